"""
A first fit: robust regression with bounds
==========================================

You know cvxpy: variables, atoms, `Problem`, `solve`. Here one variable is special. θ
lives in the feature space of a kernel and may have infinitely many entries. You write
its **predictions** θᵀF(xᵢ) at points, and its **norm**.
"""

# %%
# State and solve
# ---------------
# The data are half a day of a noisy sensor, with a few wild values.

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

rng = np.random.default_rng(0)
hours = np.sort(rng.uniform(0, 12, size=(150, 1)), axis=0)
level = 5 + np.sin(hours[:, 0]) + 0.2 * hours[:, 0] + 0.1 * rng.normal(size=150)
level[::15] += rng.normal(scale=4, size=10)

theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(name="b")
f = lambda X: theta(X) + b  # predictions at any points: an affine cvxpy expression

loss = cp.sum(ko.losses.absolute_error(level, f(hours)))
problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
problem.solve()
print(problem.status, round(problem.value, 3))

ax = ko.plots.fit(f, hours, level)
ax.set(xlabel="hours", ylabel="level", ylim=(3, 11))
plt.show()

below = np.sum(level < 3)
print(f"{below} wild values, down to {level.min():.1f}, are below the picture")

# %%
# `theta(X)` are the predictions at the rows of X; `ko.norm(theta)` and
# `ko.sum_squares(theta)` are the norm and its square. Everything else is cvxpy:
# `cp.sum(cp.abs(level - f(hours)))` is the same loss, and an ordinary `cp.Variable` is
# the intercept. σ is the distance over which predictions stay similar, here 1.5 hours.
#
# Predict
# -------
# After a solve, expressions have values, also at new points. `theta.value` is the
# fitted function itself: callable, immutable, with a norm, and a combination of
# features of some of the rows.

new = np.array([[6.0], [11.5]])
truth = lambda X: 5 + np.sin(X[:, 0]) + 0.2 * X[:, 0]
print("predicted", f(new).value.round(2), "truth", truth(new).round(2))
g = theta.value
print("‖θ‖", round(g.norm, 3), "on", len(g.pivots), "of 150 rows")

grid = np.arange(0, 12.01, 0.1)[:, None]
fig, ax = plt.subplots()
ax.plot(grid, truth(grid), "-", color="0.75", linewidth=5, label="truth")
ax.plot(grid, f(grid).value, "-", color="C0", label="fit")
ax.plot(new, f(new).value, "o", color="C1", markersize=7, label="new points")
ax.set(xlabel="hours", ylabel="level")
ax.legend()
plt.show()

# %%
# Add constraints
# ---------------
# The level rises by at most 0.6 per hour. It was 5 at the start, and is at most 7 at
# the end. These are three more constraints.

rises = cp.diff(f(grid)) <= 0.6 * 0.1
start, end = f([[0.0]]) == 5.0, f([[12.0]]) <= 7.0
before = f(grid).value
limited = ko.Problem(problem.objective, [rises, start, end])
limited.solve()
steepest = np.diff(f(grid).value).max() / 0.1
print("level at 0:", f([[0.0]]).value.round(4), "steepest rise:", steepest.round(4))
print("multiplier of start:", start.dual_value.round(1))
print("multiplier of end:", end.dual_value.round(1))

fig, ax = plt.subplots()
ax.plot(grid, before, "--", color="C1", label="without constraints")
ax.plot(grid, f(grid).value, "-", color="C0", label="with constraints")
ax.set(xlabel="hours", ylabel="level")
ax.legend()
plt.show()

# %%
# A multiplier is the decrease of the optimum per unit of the right-hand side: with 5.01
# instead of 5 at the start, the optimum would be lower by about 0.24. The second
# multiplier is 0, since the level at the end is below 7 anyway.
#
# The constraint on rises holds between the points of `grid` only approximately;
# `ko.everywhere` imposes an inequality at all points of an interval, with a proof.
#
# What is refused
# ---------------
# Not every use of θ can be reduced to a finite problem. Other uses are refused, with
# the rule and an alternative.

try:
    ko.Problem(cp.Minimize(loss), [ko.norm(theta) >= 2]).solve()
except ko.errors.RepresenterError as error:
    print(error)
