r"""
Fairness for new people
=======================

A constraint on the mean scores of two groups
(:ref:`sphx_glr_gallery_constraints_fairness.py`) holds for the people in the data, not
for others. Here the difference d of the means has a price instead,

.. math:: \text{minimize} \quad
   \sum_i \log\bigl(1 + e^{-y_i f(x_i)}\bigr) + \mu\, n\, d(f)^2 + \lambda\|\theta\|^2.

The price :math:`\mu`, :math:`\lambda` and the width of the kernel are found by a
gradient. The criterion is evaluated on people held out: a small loss, and a difference
of at most 0.1.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are people with two measurements. In one group the second is lower by 1.2 on
# average. The label depends on both.

rng = np.random.default_rng(0)
group = rng.uniform(size=4200) < 0.4
X = rng.normal(size=(4200, 2))
X[group, 1] -= 1.2
merit = np.sin(1.5 * X[:, 0]) + X[:, 0] + 0.7 * X[:, 1]
y = np.where(merit + 0.7 * rng.normal(size=4200) > 0, 1.0, -1.0)
fit, held, new = np.split(np.arange(4200), [200, 1200])

# %%
# The problem and the criterion
# -----------------------------
# :math:`\mu` stands for the multiplier of a constraint. The criterion has the same
# terms for the people held out. A difference above 0.1 costs its square, times a
# thousand.

sigma = cp.Parameter(pos=True, value=1.5, name="sigma")
mu = cp.Parameter(pos=True, value=0.1, name="mu")
lam = cp.Parameter(pos=True, value=0.5, name="lam")
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable(name="b")


def difference(rows):
    """The mean score of one group minus that of the other."""
    f = theta(X[rows]) + b
    inside = group[rows]
    return cp.sum(f[inside]) / inside.sum() - cp.sum(f[~inside]) / (~inside).sum()


def loss(rows):
    return cp.sum(ko.losses.log_loss(y[rows], theta(X[rows]) + b)) / len(rows)


n = len(fit)
fair = mu * cp.square(difference(fit))
problem = ko.Problem(cp.Minimize(n * (loss(fit) + fair) + lam * ko.sum_squares(theta)))
criterion = loss(held) + 1000 * cp.square(cp.pos(cp.abs(difference(held)) - 0.1))


def report(name):
    values = [abs(difference(rows).value) for rows in (fit, held, new)]
    wrong = np.mean(y[new] * (theta(X[new]) + b).value < 0)
    shown = " ".join(f"{value:6.3f}" for value in values)
    print(f"{name:>14}: {shown} {loss(new).value:8.3f} {wrong:8.1%}")
    return values


# %%
# The search
# ----------
# For people in the fit, people held out, and 3000 new ones, the table has the
# difference of means. It has the loss and the errors of the new ones.

print(
    f"{'difference':>14}: {'fit':>6} {'held':>6} {'new':>6} {'loss':>8} {'errors':>8}"
)
problem.solve()
start = report("at the start")
search = ko.tune(problem, criterion, [mu, sigma, lam], {mu: (1e-3, 1e3)})
end = report("tuned")
print(f"μ = {mu.value:.3g}, σ = {sigma.value:.3g}, λ = {lam.value:.3g}")
print(f"{len(search)} fits")

# %%
# What the price does
# -------------------
# The differences as functions of μ, for the tuned σ and λ:

prices = np.geomspace(1e-3, 1e2, 25)
found, best = [], float(mu.value)
for price in prices:
    mu.value = price
    problem.solve()
    found.append([abs(difference(rows).value) for rows in (fit, held, new)])

fig, ax = plt.subplots()
for name, values in zip(("fit", "held out", "new"), np.transpose(found), strict=True):
    ax.semilogx(prices, values, label=name)
gray = {"color": "0.5", "linestyle": "-", "linewidth": 0.8}
ax.axhline(0.1, **gray)
ax.axvline(best, **gray)
ax.annotate("tuned μ", (best, 0.85), xytext=(4, 0), textcoords="offset points")
ax.annotate("wanted: 0.1", (1e-3, 0.1), xytext=(0, 3), textcoords="offset points")
ax.set(xlabel="price μ", ylabel="difference of mean scores", ylim=(0, None))
fig.legend(loc="outside upper center", ncols=3)
plt.show()
