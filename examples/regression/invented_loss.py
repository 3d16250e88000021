r"""
A loss invented on this page
============================

Stock is ordered by a forecast u of the demand y. Ordering too little is five times as
bad as ordering too much. Small errors count quadratically, large ones in proportion. No
library has such a loss. It has slopes a = 1 and −b = −5 far out:

.. math:: \ell(u, y) = \log\frac{b\,e^{a(u - y)} + a\,e^{-b(u - y)}}{a + b}

(With a = b = 1 it is log cosh.) With its first and second derivative it is a loss like
any other: it can be summed and weighted, stands beside constraints, and the optimum is
certified.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The loss
# --------
# Value, gradient and curvature in u are elementwise functions, in terms of :math:`p = b
# e^{ar} / (b e^{ar} + a e^{-br})` for r = u − y. All arguments after u are data.


def asymmetric(u, y, a, b):
    return (
        a * (u - y)
        + np.log(b / (a + b))
        + np.logaddexp(0, np.log(a / b) - (a + b) * (u - y))
    )


def share(u, y, a, b):
    return expit((a + b) * (u - y) + np.log(b / a))


def gradient(u, y, a, b):
    p = share(u, y, a, b)
    return a * p - b * (1 - p)


def hessian(u, y, a, b):
    p = share(u, y, a, b)
    return (a + b) ** 2 * p * (1 - p)


loss = ko.SmoothLoss(asymmetric, gradient, hessian)
errors = np.linspace(-3, 3, 200)
fig, ax = plt.subplots()
ax.plot(errors, asymmetric(errors, 0, 1, 5), label="a = 1, b = 5")
ax.plot(errors, asymmetric(errors, 0, 1, 1), label="a = b = 1")
ax.set(xlabel="u − y", ylabel="ℓ(u, y)")
ax.legend()
plt.show()

# %%
# A wrong derivative is detected when the loss is first called.

theta, c = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable(name="c")
wrong = ko.SmoothLoss(asymmetric, lambda u, y, a, b: np.tanh(u - y), hessian)
try:
    wrong(theta([[0.0]]), [1.0], 1.0, 5.0)
except ko.errors.DataError as error:
    print(error)

# %%
# A forecast with a capacity
# --------------------------
# The data are the demand over a season, with outliers. The warehouse holds no more than
# 7. For comparison, the first forecast weighs both kinds of errors equally, a = b = 1.

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 6, size=120))
y = np.clip(3.5 + 4 * np.sin(1.5 * x) + rng.standard_t(2, size=120), 0, None)
X, grid = x[:, None], np.linspace(0, 6, 300)[:, None]

f, stock, lam = theta(X) + c, theta(grid) + c, 0.5
penalty, capacity = lam * ko.sum_squares(theta), [stock <= 7]
even = ko.Problem(cp.Minimize(cp.sum(loss(f, y, 1.0, 1.0)) + penalty), capacity)
even.solve(tol=1e-9)
balanced, below_balanced = stock.value, np.mean(f.value < y)

problem = ko.Problem(cp.Minimize(cp.sum(loss(f, y, 1.0, 5.0)) + penalty), capacity)
problem.solve(tol=1e-9)
cautious, below = stock.value, np.mean(f.value < y)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
print(f"too little in {below:.0%} of all cases; largest forecast {cautious.max():.7f}")

fig, ax = plt.subplots()
ax.plot(x, y, "o", color="0.6", label="demand")
ax.plot(grid, cautious, label=f"b = 5: too little in {below:.0%}")
ax.plot(grid, balanced, label=f"b = 1: too little in {below_balanced:.0%}")
ax.axhline(7, color="0.2", linestyle=":", linewidth=1)
ax.annotate("capacity", (3, 7), xytext=(0, 3), textcoords="offset points")
ax.set(xlabel="time", ylabel="demand")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# The multipliers ν of f are the slopes of the loss with the opposite sign.

nu = theta(X).dual_value
slopes = gradient(f.value, y, 1.0, 5.0)
print(f"ν and −ℓ′(f) differ by at most {np.abs(nu + slopes).max():.1e}")

# %%
# The same loss from cvxpy's atoms
# --------------------------------
# This loss can also be written with atoms of cvxpy: :math:`ar + \log\tfrac{b}{a+b} +
# \log(1 + e^{\log(a/b) - (a+b)r})`. The answer is the same.

r = f - y
atoms = r + np.log(5 / 6) + cp.logistic(np.log(1 / 5) - 6 * r)
same = ko.Problem(cp.Minimize(cp.sum(atoms) + penalty), capacity)
same.solve(tol=1e-9)
apart = np.abs(stock.value - cautious).max()
print(f"SmoothLoss {problem.value:.8f}, atoms {same.value:.8f}")
print(f"forecasts differ by at most {apart:.1e}")

# sphinx_gallery_thumbnail_number = 2
