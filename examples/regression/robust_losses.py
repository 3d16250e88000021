r"""
Absolute values, Huber, tubes and quantiles
===========================================

.. math:: \text{minimize} \quad \sum_i \ell(y_i, \theta^\top F(x_i) + b) + \lambda\|\theta\|^2

The same model with five losses ℓ, on data with gross errors. At the optimum :math:`2\lambda\theta = A^\top\nu`, where
:math:`-\nu_i` is a slope of ℓ at the prediction: νᵢ is the pull of row i on the fit. Squares pull without limit, the
others do not, and what they are blind to can be read off ν.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 80 values of a function; eight of them, in one place, are far too high.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(80, 1)), axis=0)
truth = lambda X: np.sin(X[:, 0]) + 0.3 * X[:, 0]
y = truth(X) + 0.15 * rng.normal(size=80)
wrong = rng.choice(np.flatnonzero((X[:, 0] > 1.5) & (X[:, 0] < 4.5)), 8, replace=False)
y[wrong] += rng.uniform(3, 6, size=8)

# %%
# One line for each loss. ``ko.losses.huber`` is cvxpy's, with slopes up to 2M.

losses = {
    "squares": ko.losses.squared_error,
    "absolute": ko.losses.absolute_error,
    "huber": lambda y, f: ko.losses.huber(y, f, M=0.3),
    "tube": lambda y, f: ko.losses.epsilon_insensitive(y, f, epsilon=0.3),
}
kernel, lam = ko.kernels.Gaussian(sigma=1.0), 0.1
grid = np.linspace(0, 6, 400)[:, None]


def fit(loss):
    """The fit at the data and on the grid, ν, and the optimal value."""
    theta, b = ko.Theta(kernel), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y, theta(X) + b)) + lam * ko.sum_squares(theta)))
    value = problem.solve(tol=1e-8)
    return {
        "value": value,
        "at": theta.value(X) + b.value,
        "grid": theta.value(grid) + b.value,
        "nu": theta(X).dual_value,
        "gap": problem.certificate.relative_gap,
    }


fits = {name: fit(loss) for name, loss in losses.items()}
for name, found in fits.items():
    error = np.abs(found["grid"] - truth(grid)).max()
    print(
        f"{name:>8}: certified gap {found['gap']:.0e}, largest error of the curve {error:.2f}, "
        f"largest pull {np.abs(found['nu']).max():.2f}"
    )

# %%
# Rows strictly inside of the tube do not pull at all: the fit would be the same without them. Rows outside pull with 1.

tube, nu = fits["tube"], fits["tube"]["nu"]
away = np.abs(y - tube["at"])
inside, outside = away < 0.3 - 1e-4, away > 0.3 + 1e-4
print(f"{inside.sum()} rows inside, largest |ν| {np.abs(nu[inside]).max():.1e}")
print(f"{outside.sum()} rows outside, |ν| from {np.abs(nu[outside]).min():.6f} to {np.abs(nu[outside]).max():.6f}")
print(f"{(~inside & ~outside).sum()} rows on the edge")

# %%
# The pinball loss has slope τ where y is above and 1 − τ where it is below. Since b is not penalized the pulls add up
# to 0, so that at most a share τ of the rows is strictly below the curve, and at most 1 − τ strictly above.

levels = (0.1, 0.5, 0.9)
quantiles = {tau: fit(lambda y, f, tau=tau: ko.losses.pinball(y, f, tau)) for tau in levels}
for tau, found in quantiles.items():
    below, above = np.mean(y < found["at"] - 1e-5), np.mean(y > found["at"] + 1e-5)
    error = np.abs(found["grid"] - truth(grid)).max()
    print(f"τ = {tau}: {below:.1%} below, {above:.1%} above, Σν = {found['nu'].sum():.0e}, largest error {error:.2f}")

# %%
# For τ = ½ the pinball loss is half the absolute value, and the curve is a median, which 10 % of gross errors hardly
# move; for τ = 0.9 they are what the upper quantile is about.

figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
good = np.setdiff1d(np.arange(80), wrong)
for ax in axes.flat[:3]:
    ax.plot(X[good], y[good], "o", color="0.55", markersize=3)
    ax.plot(X[wrong], y[wrong], "x", color="black", markersize=5)
    ax.set(xlabel="x", ylabel="y", ylim=(-0.8, 8.8))
styles = {
    "squares": ("-", "s", "tab:red"),
    "absolute": ("-", "o", "tab:blue"),
    "huber": ("--", "^", "tab:orange"),
    "tube": (":", "D", "black"),
}
for name, (style, marker, color) in styles.items():
    axes[0, 0].plot(grid, fits[name]["grid"], style, color=color, label=name)
    axes[1, 1].plot(y - fits[name]["at"], fits[name]["nu"], marker, color=color, markersize=4, label=name)
axes[0, 0].set(title="four losses")
axes[0, 1].plot(grid, tube["grid"], color="black")
axes[0, 1].fill_between(grid[:, 0], tube["grid"] - 0.3, tube["grid"] + 0.3, color="tab:orange", alpha=0.3, linewidth=0)
axes[0, 1].plot(X[~inside], y[~inside], "o", markersize=8, markerfacecolor="none", color="tab:blue", label="ν ≠ 0")
axes[0, 1].set(title="the tube, ε = 0.3")
for (tau, found), style in zip(quantiles.items(), ("--", "-", "-."), strict=True):
    axes[1, 0].plot(grid, found["grid"], style, color="tab:blue", label=f"τ = {tau}")
axes[1, 0].set(title="quantiles")
axes[1, 1].set(xlabel="residual y − f(x)", ylabel="ν", title="how rows pull", ylim=(-3, 10))
for ax in axes.flat:
    ax.legend(frameon=False, loc="upper left")
plt.show()
