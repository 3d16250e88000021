r"""
Conditional value at risk (CVaR) of the errors
==============================================

The conditional value at risk at level β is the mean of the largest fraction 1 − β of
the losses. It is a minimum over one more variable (Rockafellar and Uryasev 2000), so
that it can be minimized or bounded together with a fit:

.. math:: \text{CVaR}_\beta(\ell) = \min_s \; s + \frac{1}{(1 - \beta)N}
   \sum_i \max(0, \ell_i - s)

Here a mean absolute error hides large errors of a few rows. The fits below have a small
mean error, a small mean of the largest tenth, or a bound on the latter.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# There are 120 values of a function. A tenth of them belongs to a second group, for
# which the function is larger.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(120, 1)), axis=0)
rare = np.arange(120) % 10 == 0
y = np.where(rare, 2.0, 1.0) * np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
beta, kernel = 0.9, ko.kernels.Gaussian(sigma=1.0)


def cvar(loss):
    """The mean of the largest fraction 1 − β of the losses, an expression."""
    s = cp.Variable(name="s")
    return s + cp.mean(cp.pos(loss - s)) / (1 - beta)


def fit(objective, bound=None):
    """Minimize a function of the losses; the largest tenth may have a bound."""
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    f = lambda X: theta(X) + b
    loss = ko.losses.absolute_error(y, f(X))
    constraints = [] if bound is None else [cvar(loss) <= bound]
    penalty = 1e-3 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective(loss) + penalty), constraints)
    problem.solve()
    return {"f": f, "problem": problem, "errors": np.sort(loss.value)[::-1]}


# %%
# Three objectives
# ----------------
# The largest error is the limit β → 1. The numbers are those of the 120 rows.

fits = {"mean": fit(cp.mean), "CVaR": fit(cvar), "largest": fit(cp.max)}
for name, found in fits.items():
    errors = found["errors"]
    print(
        f"{name:>8}: mean {errors.mean():.3f}, largest tenth {errors[:12].mean():.3f}, "
        f"largest {errors[0]:.3f}, {found['problem'].status}"
    )

grid = np.linspace(0, 6, 400)[:, None]
fig, ax = plt.subplots()
ax.plot(X[~rare], y[~rare], "o", color="0.6", label="data")
ax.plot(X[rare], y[rare], "x", color="black", markersize=6, label="second group")
for name, found in fits.items():
    ax.plot(grid, found["f"](grid).value, label=name)
ax.set(xlabel="x", ylabel="y")
fig.legend(loc="outside upper center", ncols=5)
plt.show()

# %%
# The errors in order of size show the difference. CVaR is the mean of the shaded tenth.

fig, ax = plt.subplots()
share = (np.arange(120) + 0.5) / 120
ax.axvspan(0, 1 - beta, color="0.9")
for name, found in fits.items():
    ax.plot(share, found["errors"], label=name)
ax.set(xlabel="fraction of rows with a larger error", ylabel="absolute error")
ax.legend()
plt.show()

# %%
# The mean error with a bound on the largest tenth
# ------------------------------------------------
# A bound on CVaR is a constraint. It makes the choice between both objectives explicit.

least, most = (fits[name]["errors"][:12].mean() for name in ("CVaR", "mean"))
bounds = np.linspace(1.01 * least, most, 6)
curve = [fit(cp.mean, bound) for bound in bounds]
means = [found["errors"].mean() for found in curve]
for bound, found, mean in zip(bounds, curve, means, strict=True):
    print(f"CVaR ≤ {bound:.3f}: mean {mean:.3f}, {found['problem'].status}")

fig, ax = plt.subplots()
ax.plot(bounds, means, "o-", label="least mean error within the bound")
errors = fits["CVaR"]["errors"]
ax.plot(least, errors.mean(), "s", color="C1", label="least CVaR")
ax.set(xlabel="mean of the largest tenth of errors", ylabel="mean error")
ax.legend()
plt.show()
