r"""
A loss invented on this page
============================

Stock is ordered by a forecast u of the demand y. Too little is five times as bad as too much; and small errors count
quadratically, large ones only in proportion. Such a loss has to be written down first, with slopes a = 1 and −b = −5
far out:

.. math:: \ell(u, y) = \log\frac{b\,e^{a(u - y)} + a\,e^{-b(u - y)}}{a + b}

(With a = b = 1 it is log cosh.) With its first and second derivative it is a loss like any other: summed, weighted,
beside constraints, and solved to an optimum that is certified.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The loss: value, gradient and curvature in u, elementwise, in terms of :math:`p = b e^{ar} / (b e^{ar} + a e^{-br})`
# for r = u − y. All arguments after u are data.


def asymmetric(u, y, a, b):
    return a * (u - y) + np.log(b / (a + b)) + np.logaddexp(0, np.log(a / b) - (a + b) * (u - y))


def share(u, y, a, b):
    return expit((a + b) * (u - y) + np.log(b / a))


def gradient(u, y, a, b):
    p = share(u, y, a, b)
    return a * p - b * (1 - p)


def hessian(u, y, a, b):
    p = share(u, y, a, b)
    return (a + b) ** 2 * p * (1 - p)


loss = ko.SmoothLoss(asymmetric, gradient, hessian)

# %%
# A derivative that is wrong is found when the loss is first called.

theta, c = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable(name="c")
try:
    ko.SmoothLoss(asymmetric, lambda u, y, a, b: np.tanh(u - y), hessian)(theta([[0.0]]), [1.0], 1.0, 5.0)
except ko.errors.DataError as error:
    print(error)

# %%
# Demand over a season, with outliers, and a warehouse that holds no more than 7.

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 6, size=120))
y = np.clip(3.5 + 4 * np.sin(1.5 * x) + rng.standard_t(2, size=120), 0, None)
X, grid = x[:, None], np.linspace(0, 6, 300)[:, None]

f = theta(X) + c
stock = theta(grid) + c
lam = 0.5
problem = ko.Problem(cp.Minimize(cp.sum(loss(f, y, 1.0, 5.0)) + lam * ko.sum_squares(theta)), [stock <= 7])
problem.solve(tol=1e-9)
cautious, below = stock.value, np.mean(f.value < y)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
print(f"too little in {below:.0%} of all cases; highest forecast {cautious.max():.7f}")

# %%
# The multipliers ν of f are the slopes of the loss with the other sign.

nu = theta(X).dual_value
print(f"ν and −ℓ′(f) differ by at most {np.abs(nu + gradient(f.value, y, 1.0, 5.0)).max():.1e}")

# %%
# This loss can be put together from atoms of cvxpy too, if one sees how:
# :math:`ar + \log\tfrac{b}{a+b} + \log(1 + e^{\log(a/b) - (a+b)r})`. The answer is the same.

r = f - y
atoms = r + np.log(5 / 6) + cp.logistic(np.log(1 / 5) - 6 * r)
same = ko.Problem(cp.Minimize(cp.sum(atoms) + lam * ko.sum_squares(theta)), [stock <= 7])
same.solve(tol=1e-9)
apart = np.abs(stock.value - cautious).max()
print(f"SmoothLoss {problem.value:.8f}, atoms {same.value:.8f}, forecasts differ by at most {apart:.1e}")

# %%
# The forecast for which both errors are as bad, a = b = 1, beside it.

even = ko.Problem(cp.Minimize(cp.sum(loss(f, y, 1.0, 1.0)) + lam * ko.sum_squares(theta)), [stock <= 7])
even.solve(tol=1e-9)

figure, axes = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[1, 2], layout="constrained")
errors = np.linspace(-3, 3, 200)
axes[0].plot(errors, asymmetric(errors, 0, 1, 5), color="tab:blue")
axes[0].plot(errors, asymmetric(errors, 0, 1, 1), "--", color="tab:orange")
axes[0].set(xlabel="u − y", ylabel="ℓ(u, y)")
axes[1].plot(x, y, "o", color="0.6", markersize=3)
axes[1].plot(grid, cautious, color="tab:blue", label=f"b = 5: too little in {below:.0%}")
axes[1].plot(grid, stock.value, "--", color="tab:orange", label=f"b = 1: too little in {np.mean(f.value < y):.0%}")
axes[1].set(xlabel="time", ylabel="demand")
axes[1].legend(frameon=False, loc="upper right")
plt.show()
