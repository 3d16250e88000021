r"""
The price of a fair score
=========================

A score f decides about members of two groups. Their mean scores may differ by at most
t:

.. math:: p(t) = \text{minimize} \quad
   \sum_i \log\bigl(1 + e^{-y_i f(x_i)}\bigr) + \lambda\|\theta\|^2
   \quad \text{subject to} \quad
   \Bigl|\tfrac{1}{|G|}\sum_{i\in G} f(x_i) - \tfrac{1}{|H|}\sum_{i\in H} f(x_i)\Bigr|
   \le t

The constraint is one line of code, and holds exactly. Its cost is a convex curve p(t).
The multiplier of the constraint is the slope of that curve: :math:`p'(t) = -\mu(t)`,
the price of one more unit of fairness.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are 300 people with two measurements. In one group the second is lower by 1.2
# on average. The label depends on both.

rng = np.random.default_rng(0)
group = rng.uniform(size=300) < 0.4
X = rng.normal(size=(300, 2))
X[group, 1] -= 1.2
merit = np.sin(1.5 * X[:, 0]) + X[:, 0] + 0.7 * X[:, 1]
y = np.where(merit + 0.7 * rng.normal(size=300) > 0, 1, -1)

# %%
# The problem
# -----------
# The tolerance t is a parameter. The absolute value is bounded from both sides, by two
# linear constraints.

theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(name="b")
t = cp.Parameter(nonneg=True, name="t")
f = theta(X) + b
difference = cp.sum(f[group]) / group.sum() - cp.sum(f[~group]) / (~group).sum()
loss = cp.sum(ko.losses.log_loss(y, f))
fair = [difference <= t, -t <= difference]
problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)), fair)

# %%
# The price
# ---------
# The path goes from equal means to a constraint that does not bind. ``evaluate`` keeps
# what is needed of each answer, here with μ. The picture shows the optimum p(t), with
# tangents of slope −μ.


def look(_):
    mu = sum(float(constraint.dual_value) for constraint in fair)
    return {
        "difference": abs(difference.value),
        "mu": mu,
        "errors": np.mean(y * f.value < 0),
    }


t.value = 100.0
problem.solve()
print(problem.explain())
free = abs(difference.value)
wrong = np.mean(y * f.value < 0)
print(f"without a constraint the means differ by {free:.3f}; {wrong:.1%} are wrong")
path = ko.path(problem, t, np.linspace(0, 1.2 * free, 13), evaluate=look, tol=1e-9)
columns = ["t", "objective", "status", "difference", "mu", "errors"]
print(path.to_pandas()[columns].round(4).to_string(index=False))

p, mu = path["objective"], path["mu"]
fig, ax = plt.subplots()
ax.plot(path["t"], p, "o-", color="C0", markersize=5, label="optimum p(t)")
for i in range(1, 12, 3):
    t_i = path["t"][i]
    ends = np.clip([t_i - 0.3 * free, t_i + 0.3 * free], 0, 1.2 * free)
    ax.plot(ends, p[i] - mu[i] * (ends - t_i), "--", color="C1", linewidth=1.2)
ax.plot([], [], "--", color="C1", label="tangents of slope −μ")
ax.set(xlabel="tolerance t", ylabel="optimum")
ax.legend()
plt.show()

# %%
# The multiplier is the slope
# ---------------------------
# A convex curve lies above its tangents. So its slope between two neighbours lies
# between their multipliers: :math:`\mu(t_2) \le (p(t_1) - p(t_2)) / (t_2 - t_1) \le
# \mu(t_1)`. (At t = 0 the curve ends, and every larger μ is a multiplier too.) So a few
# solves determine the curve up to a small error: it lies above all tangents and below
# the chords.

slopes = -np.diff(p) / np.diff(path["t"])
between = (mu[1:] <= slopes + 1e-6) & (slopes <= mu[:-1] + 1e-6)
print(f"slopes lie between the multipliers at both ends: {np.all(between)}")
share = p[0] / p[-1] - 1
print(f"equal means cost {p[0] - p[-1]:.1f}, {share:.0%} of the unconstrained optimum")

# %%
# Errors of the decision
# ----------------------
# The decision is the sign of f. Its errors are not what was minimized, and need not
# grow as t falls. Here they fall first.

fig, ax = plt.subplots()
ax.plot(path["t"], 100 * path["errors"], "o-", color="C0", markersize=5)
ax.set(xlabel="tolerance t", ylabel="wrong decisions, %")
plt.show()
