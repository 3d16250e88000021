r"""
The price of a fair score
=========================

A score f decides about members of two groups. Their mean scores may differ by at most t:

.. math:: p(t) = \text{minimize} \quad \sum_i \log\bigl(1 + e^{-y_i f(x_i)}\bigr) + \lambda\|\theta\|^2
   \quad \text{subject to} \quad \Bigl|\tfrac{1}{|G|}\sum_{i\in G} f(x_i) - \tfrac{1}{|H|}\sum_{i\in H} f(x_i)\Bigr|
   \le t

The constraint is one line, and holds exactly. What it costs is a convex curve p(t), and the multiplier of the
constraint is its slope: :math:`p'(t) = -\mu(t)`, the price of one more unit of fairness.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 300 people with two measurements. In one group the second is lower by 1.2 on average, and the label follows both.

rng = np.random.default_rng(0)
group = rng.uniform(size=300) < 0.4
X = rng.normal(size=(300, 2))
X[group, 1] -= 1.2
y = np.where(np.sin(1.5 * X[:, 0]) + X[:, 0] + 0.7 * X[:, 1] + 0.7 * rng.normal(size=300) > 0, 1, -1)

# %%
# The tolerance t is a parameter. The absolute value is bounded from both sides, as linear constraints.

theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(name="b")
t = cp.Parameter(nonneg=True, name="t")
f = theta(X) + b
difference = cp.sum(f[group]) / group.sum() - cp.sum(f[~group]) / (~group).sum()
loss = cp.sum(ko.losses.log_loss(y, f))
fair = [difference <= t, -t <= difference]
problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)), fair)

# %%
# From a constraint that does not bind to equal means. ``evaluate`` keeps what is wanted of each answer, μ included.


def look(_):
    mu = sum(float(constraint.dual_value) for constraint in fair)
    return {"difference": abs(difference.value), "mu": mu, "errors": np.mean(y * f.value < 0)}


t.value = 100.0
problem.solve()
print(problem.explain())
free = abs(difference.value)
print(f"without a constraint the means differ by {free:.3f}, and {np.mean(y * f.value < 0):.1%} are misjudged")
path = ko.path(problem, t, np.linspace(0, 1.2 * free, 13), evaluate=look, tol=1e-9)
print(path.to_pandas()[["t", "objective", "status", "difference", "mu", "errors"]].round(4).to_string(index=False))

# %%
# A convex curve lies above its tangents, so that its slope between neighbours lies between the multipliers at the ends:
# :math:`\mu(t_2) \le (p(t_1) - p(t_2)) / (t_2 - t_1) \le \mu(t_1)`. (At t = 0 the curve ends, and every larger μ is a
# multiplier as well.)

p, mu = path["objective"], path["mu"]
slopes = -np.diff(p) / np.diff(path["t"])
print(f"slopes between the multipliers at both ends: {np.all((mu[1:] <= slopes + 1e-6) & (slopes <= mu[:-1] + 1e-6))}")
print(f"equal means cost {p[0] - p[-1]:.1f}, {p[0] / p[-1] - 1:.0%} of the unconstrained optimum")

# %%
# So a few solves say much about the whole curve: it lies above all tangents and below the chords. The errors of the
# decision, the sign of f, are not what was minimized. They need not grow with the price, and here they fall first.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for value, objective, slope in zip(path["t"][1::3], p[1::3], mu[1::3], strict=True):
    ends = np.clip([value - 0.3 * free, value + 0.3 * free], 0, 1.2 * free)
    axes[0].plot(ends, objective - slope * (ends - value), color="tab:orange", linewidth=1)
axes[0].plot(path["t"], p, "o-", color="tab:blue", markersize=4)
axes[0].set(xlabel="tolerance t", ylabel="optimum p(t)", title="the price, with tangents of slope −μ")
axes[1].plot(path["t"], 100 * path["errors"], "o-", color="tab:blue", markersize=4)
axes[1].set(xlabel="tolerance t", ylabel="misjudged, %", title="and the errors that go with it")
plt.show()
