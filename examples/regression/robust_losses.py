r"""
Absolute values, Huber, tubes and quantiles
===========================================

.. math:: \text{minimize} \quad \sum_i \ell(y_i, \theta^\top F(x_i) + b)
   + \lambda\|\theta\|^2

The same model is fitted with five losses ℓ to data with gross errors. At the optimum
:math:`2\lambda\theta = A^\top\nu`, where :math:`-\nu_i` is a slope of ℓ at the
prediction: νᵢ is the pull of row i on the fit. Squares pull without limit, the other
losses do not. The multipliers ν show which rows a loss ignores.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# There are 80 values of a function. Eight of them, close together, are far too high.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(80, 1)), axis=0)
truth = lambda X: np.sin(X[:, 0]) + 0.3 * X[:, 0]
y = truth(X) + 0.15 * rng.normal(size=80)
wrong = rng.choice(np.flatnonzero((X[:, 0] > 1.5) & (X[:, 0] < 4.5)), 8, replace=False)
y[wrong] += rng.uniform(3, 6, size=8)
good = np.setdiff1d(np.arange(80), wrong)

# %%
# Four losses
# -----------
# Each loss is one line. ``ko.losses.huber`` is cvxpy's, with slopes up to 2M.

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
    problem = ko.Problem(
        cp.Minimize(cp.sum(loss(y, theta(X) + b)) + lam * ko.sum_squares(theta))
    )
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
        f"{name:>8}: certified gap {found['gap']:.0e}, largest error {error:.2f}, "
        f"largest pull {np.abs(found['nu']).max():.2f}"
    )


def scatter(ax):
    ax.plot(X[good], y[good], "o", color="0.6", label="data")
    ax.plot(X[wrong], y[wrong], "x", color="black", markersize=6, label="errors")
    ax.set(xlabel="x", ylabel="y")


fig, ax = plt.subplots()
scatter(ax)
for name, found in fits.items():
    ax.plot(grid, found["grid"], label=name)
fig.legend(loc="outside upper center", ncols=6, columnspacing=1.2)
plt.show()

# %%
# How rows pull
# -------------
# Against the residual, ν shows the slopes of each loss. A square pulls in proportion to
# the residual, an absolute value with ±1.

fig, ax = plt.subplots()
for (name, found), marker in zip(fits.items(), "soD^", strict=True):
    ax.plot(y - found["at"], found["nu"], marker, label=name, fillstyle="none")
ax.set(xlabel="residual y − f(x)", ylabel="pull ν")
ax.legend()
plt.show()

# %%
# The tube
# --------
# Rows strictly inside the tube do not pull at all: the fit would be the same without
# them. Rows outside pull with ±1.

tube, nu = fits["tube"], fits["tube"]["nu"]
away = np.abs(y - tube["at"])
inside, outside = away < 0.3 - 1e-4, away > 0.3 + 1e-4
pulls = np.abs(nu[outside])
print(f"{inside.sum()} rows inside, largest |ν| {np.abs(nu[inside]).max():.1e}")
print(f"{outside.sum()} rows outside, |ν| from {pulls.min():.6f} to {pulls.max():.6f}")
print(f"{(~inside & ~outside).sum()} rows on the edge")

fig, ax = plt.subplots()
scatter(ax)
ax.plot(grid, tube["grid"], label="fit")
low, high = tube["grid"] - 0.3, tube["grid"] + 0.3
ax.fill_between(
    grid[:, 0], low, high, color="C0", alpha=0.25, linewidth=0, label="tube"
)
style = {"markersize": 9, "fillstyle": "none", "color": "C1"}
ax.plot(X[~inside], y[~inside], "o", **style, label="ν ≠ 0")
fig.legend(loc="outside upper center", ncols=5)
plt.show()

# %%
# Quantiles
# ---------
# The pinball loss has slope τ where y is above and 1 − τ where it is below. Since b is
# not penalized, the pulls sum to 0. Therefore at most a share τ of the rows lies
# strictly below the curve, and at most 1 − τ strictly above.

levels = (0.1, 0.5, 0.9)
quantiles = {
    tau: fit(lambda y, f, tau=tau: ko.losses.pinball(y, f, tau)) for tau in levels
}
for tau, found in quantiles.items():
    below, above = np.mean(y < found["at"] - 1e-5), np.mean(y > found["at"] + 1e-5)
    error = np.abs(found["grid"] - truth(grid)).max()
    print(
        f"τ = {tau}: {below:.1%} below, {above:.1%} above, "
        f"Σν = {found['nu'].sum():.0e}, largest error {error:.2f}"
    )

# %%
# For τ = ½ the pinball loss is half the absolute value, and the curve is a median: 10 %
# of gross errors hardly move it. The upper quantile, τ = 0.9, follows them.

fig, ax = plt.subplots()
scatter(ax)
for tau, found in quantiles.items():
    ax.plot(grid, found["grid"], label=f"τ = {tau}")
fig.legend(loc="outside upper center", ncols=5)
plt.show()
