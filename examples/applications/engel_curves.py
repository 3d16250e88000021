r"""
Monotone quantile regression without crossing, for all incomes
==============================================================

An Engel curve is what households spend on a good, given their income. Five quantiles
:math:`F_k(x) = \theta_k^\top F(x) + c_k` of what they spend on food are fitted together. Food is a normal good, so that
each quantile rises with the income, and quantiles of one distribution never cross:

.. math:: \text{minimize} \quad \sum_{i,k} \rho_{\tau_k}\bigl(y_i - F_k(x_i)\bigr) + \lambda\|\theta\|^2
   \quad \text{subject to} \quad F_k'(x) \ge 0, \quad F_{k+1}(x) - F_k(x) \ge 0 \quad \text{for all } x \in [a, b],

with the pinball loss ρ. The constraints hold for all incomes of the range, not only at points of a grid. Where they
stand at points only, curves fall and cross in between. Margins at the points repair that (Aubin-Frankowski and Szabó,
"Hard shape-constrained kernel machines", NeurIPS 2020), and cost a part of the objective. ``ko.everywhere`` states what
is meant, and its answer is proven for the whole range.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from statsmodels.datasets import engel
from statsmodels.formula.api import quantreg

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The data
# --------
# Engel's 235 Belgian households. First straight lines: the documentation of statsmodels prints the slope .5602 of the
# median and .4018 and .6863 of the outer deciles.

data = engel.load_pandas().data
levels = [0.1, 0.3, 0.5, 0.7, 0.9]
lines = [quantreg("foodexp ~ income", data).fit(q=level).params for level in levels]
print("slopes of quantile regression:", [f"{line['income']:.4f}" for line in lines])

# %%
# The same lines are a problem in a finite θ: a linear kernel without a penalty.

income, food = data["income"].to_numpy() / 1000, data["foodexp"].to_numpy() / 1000
Y = np.repeat(food[:, None], 5, axis=1)
straight, c = ko.Theta(ko.kernels.Linear(), outputs=5), cp.Variable((1, 5))
loss = cp.sum(ko.losses.pinball(Y, straight(income[:, None]) + c, levels))
linear = ko.Problem(cp.Minimize(loss))
linear.solve(tol=1e-9)
slopes = np.diff(straight.value([[0.0], [1.0]]), axis=0)[0]
print("slopes of the statement here:  ", [f"{slope:.4f}" for slope in slopes])

# %%
# Curves
# ------
# Logarithms of income and of food expenditure, standardized; a Gaussian kernel. θ is a p×5 matrix.

logarithms = np.log(np.column_stack([income, food]))
x, y = ((logarithms - logarithms.mean(axis=0)) / logarithms.std(axis=0)).T
X, Y, span = x[:, None], np.repeat(y[:, None], 5, axis=1), (x.min(), x.max())
lam, kernel = 0.01, ko.kernels.Gaussian(sigma=1.0)
theta, c = ko.Theta(kernel, outputs=5), cp.Variable((1, 5), name="c")


def curves(P):
    return theta(P) + c


def slope(P):
    return ko.FeatureMatrix(P, kernel).derivative(0) @ theta


loss = cp.sum(ko.losses.pinball(Y, curves(X), levels)) + lam * ko.sum_squares(theta)

# %%
# Three ways to state the shape: at n points; at n points with margins, which cover the range by the inequality of
# Cauchy and Schwarz; and everywhere.


def at_points(n):
    P = np.linspace(*span, n)[:, None]
    return [slope(P) >= 0, cp.diff(curves(P), axis=1) >= 0]


def with_margins(n):
    radius = (span[1] - span[0]) / (2 * n)
    P = np.linspace(span[0] + radius, span[1] - radius, n)[:, None]
    A = ko.FeatureMatrix(P, kernel)
    eta, eta_slope = A.modulus(radius)[0], A.derivative(0).modulus(radius)[0]
    differences = np.diff(np.eye(5)).T
    rising = [eta_slope * ko.norm(theta[:, k]) <= slope(P)[:, k] for k in range(5)]
    ordered = [eta * ko.norm(theta @ M) <= curves(P) @ M for M in differences]
    return rising + ordered


def everywhere():
    return [
        ko.everywhere(lambda P: slope(P) >= 0, *span),
        ko.everywhere(lambda P: curves(P)[:, 1:] >= curves(P)[:, :-1], *span),
    ]


# %%
# What holds in the range of incomes is looked at in 10 000 points.

fine = np.linspace(*span, 10_000)[:, None]
fits = {}
shapes = {
    "8 points": at_points(8),
    "60 points": at_points(60),
    "60 margins": with_margins(60),
    "200 margins": with_margins(200),
    "everywhere": everywhere(),
}
for name, constraints in shapes.items():
    problem = ko.Problem(cp.Minimize(loss), constraints)
    problem.solve(tol=1e-5)
    fits[name] = {
        "problem": problem,
        "status": problem.status,
        "certificate": problem.certificate,
        "curves": curves(fine).value,
        "slope": slope(fine).value,
    }
    print(
        f"{name:12} {problem.status}, value {problem.value:.4f}, "
        f"least slope {fits[name]['slope'].min():+.1e}, "
        f"least distance {np.diff(fits[name]['curves'], axis=1).min():+.1e}"
    )

# %%
# Everywhere
# ----------
# The certificate says what is proven, and how close the value is to the optimum with constraints at infinitely many
# incomes. Margins are safe too; the optimum tells what they cost.

certificate = fits["everywhere"]["certificate"]
print(str(certificate).replace(", proven", "\nproven"))
lost = {}
for name in ("60 margins", "200 margins"):
    lost[name] = fits[name]["problem"].value / certificate.upper - 1
    print(f"{name} lose {lost[name]:.2%} of the objective")

# %%
# Constraints stand at few points in the end, and fewer bind.

rising, ordered = shapes["everywhere"]
for text, box in (("F′ ≥ 0", rising), ("no crossing", ordered)):
    print(f"{text}: {len(box.points)} points, {len(box.binding)} bind, proven g ≥ {box.least:.1e}")

# %%
# With 8 points, left, quantiles fall and cross between the points (red). Everywhere, right, they don't; ticks mark
# the incomes at which a constraint binds.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.3), sharey=True, layout="constrained")
styles = ["-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1))]
for axis, name in zip(axes, ("8 points", "everywhere"), strict=True):
    found = fits[name]
    axis.plot(x, y, "o", color="0.75", markersize=3)
    for k, level in enumerate(levels):
        color = plt.cm.cividis(k / 5)
        axis.plot(fine, found["curves"][:, k], linestyle=styles[k], color=color, label=f"{level:.0%}")
        crossed = np.diff(found["curves"], axis=1) < -1e-6
        wrong = found["slope"][:, k] < -1e-6
        wrong |= crossed[:, min(k, 3)] | crossed[:, max(k - 1, 0)]
        axis.plot(fine[wrong], found["curves"][wrong, k], ".", color="tab:red", markersize=4)
    axis.set(title=f"constraints: {name}", xlabel="log income, standardized")
for box in (rising, ordered):
    axes[1].plot(box.binding, np.full(len(box.binding), y.min()), "|", color="k")
axes[0].set_ylabel("log food expenditure, standardized")
axes[1].legend(frameon=False, title="quantile", loc="upper left")
plt.show()
