"""
Choosing λ and σ, and reading a certificate
===========================================

A fit is an answer for given values of λ and σ. This lesson chooses them, and shows what
"optimal" means here.
"""

# %%
# A sweep over λ
# --------------
# With λ as a `cp.Parameter` the kernel matrix is factored once for all values.

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(0, 6, size=(100, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_t(3, size=100)
grid = np.linspace(0, 6, 200)[:, None]

lam = cp.Parameter(nonneg=True, name="lam")
sigma = cp.Parameter(pos=True, value=0.5, name="sigma")
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
w = cp.Parameter(100, nonneg=True, value=np.ones(100), name="w")  # weights of rows
losses = ko.losses.huber(y, theta(X) + b, M=0.5)
problem = ko.Problem(cp.Minimize(w @ losses + lam * ko.sum_squares(theta)))

fig, ax = plt.subplots()
ax.plot(X, y, "o", color="0.6", label="data")
for lam.value in (10, 0.3, 1e-4):
    problem.solve()
    ax.plot(grid, theta.value(grid) + b.value, label=f"λ = {lam.value:g}")
    loss, norm = losses.value.sum(), theta.value.norm
    print(f"λ = {lam.value:g}: loss {loss:.2f}, ‖θ‖ = {norm:.2f}")
ax.set(xlabel="x", ylim=(-2.2, 2.2))
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# `ko.path` tabulates such a sweep. With larger λ the norm decreases, and the loss
# increases: each λ is a compromise between them.

sweep = ko.path(problem, lam, np.geomspace(1e-3, 30, 15))
ax = ko.plots.path(sweep, y="norm")
ax.set(xlabel="λ", ylabel="‖θ‖")
plt.show()

# %%
# Cross-validation
# ----------------
# Rows with weight 0 are left out. For each value, `ko.cross_validate` fits without each
# fold in turn, and evaluates the loss on the rows left out.

table = ko.cross_validate(problem, w, lam, np.geomspace(1e-3, 30, 10), cv=5)
print(table.to_pandas()[["lam", "mean", "std"]].round(3))
ax = table.plot()
ax.set(xlabel="λ", ylabel="loss of rows left out")
plt.show()

# %%
# By a gradient
# -------------
# σ and λ are chosen together, by the gradient of the same criterion. A grid would take
# 100 values.

lam.value = table.best
w.value = np.ones(100)
tuned = ko.tune(problem, ko.CrossValidatedLoss(w, losses), [sigma, lam])
print(f"σ = {sigma.value:.2f}, λ = {lam.value:.2f}, criterion {tuned.value:.4f}")
problem.solve()
ax = ko.plots.fit(lambda P: theta(P) + b, X, y)
ax.set(xlabel="x", ylim=(-2.2, 2.2))
ax.get_legend().remove()
ax.figure.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# What "optimal" means
# --------------------
# The certificate is computed from the multipliers and the full kernel matrix. It does
# not trust the solver: the optimum of the problem *as stated* lies in the interval. The
# relative gap bounds the share of the possible improvement over θ = 0 that is missing.
# A status is "optimal" where it is at most `tol`.

print(problem.certificate)
bound = theta.value.optimality_bound(grid).max()
print(f"predictions are within {bound:.0e} of the exact optimum's")

# %%
# The proof also covers the loss from a restriction of θ. Here θ is confined to the span
# of a few rows. Each answer comes with an interval that contains the optimum of the
# whole problem.

ranks = [3, 4, 5, 6, 7, 8]
bounds = []
for rank in ranks:
    problem.solve(max_rank=rank)
    bounds.append((problem.certificate.lower, problem.certificate.upper))
    print("rank", rank, problem.status, np.round(bounds[-1], 2))

lower, upper = np.array(bounds).T
fig, ax = plt.subplots()
ax.fill_between(
    ranks, np.maximum(lower, 0), upper, alpha=0.3, label="the optimum is here"
)
ax.plot(ranks, upper, "o-", markersize=6, label="objective of the answer")
ax.set(xlabel="largest rank", ylabel="objective", ylim=(0, None))
ax.legend()
plt.show()
