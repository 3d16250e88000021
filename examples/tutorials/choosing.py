"""
Choosing λ and σ, and reading a certificate
===========================================

A fit is an answer for given numbers. This lesson chooses them, and shows what
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
ax.plot(X, y, ".", color="gray")
for lam.value, style in ((10, "--"), (0.3, "-"), (1e-4, ":")):
    problem.solve()
    ax.plot(grid, theta.value(grid) + b.value, style, label=f"λ = {lam.value:g}")
    print("λ", lam.value, "loss", round(losses.value.sum(), 2), "‖θ‖", round(theta.value.norm, 2))
ax.set(xlabel="x", ylim=(-2.2, 2.2))
ax.legend(ncols=3, loc="upper center")
plt.show()

# %%
# Cross-validation
# ----------------
# Rows with weight 0 are left out. `ko.cross_validate` fits without each fold, for each
# value, and judges the fits by the rows left out.

table = ko.cross_validate(problem, w, lam, np.geomspace(1e-3, 30, 10), cv=5)
print(table.to_pandas()[["lam", "mean", "std"]].round(3))
table.plot()
plt.show()

# %%
# By a gradient
# -------------
# σ and λ together, by the gradient of the same criterion. A grid would take 100 values.

lam.value = table.best
w.value = np.ones(100)
tuned = ko.tune(problem, ko.CrossValidatedLoss(w, losses), [sigma, lam])
print("σ", sigma.value.round(2), "λ", lam.value.round(2), "criterion", round(tuned.value, 4))
problem.solve()
ax = ko.plots.fit(lambda P: theta(P) + b, X, y)
ax.set(xlabel="x", ylim=(-2.2, 2.2))
plt.show()

# %%
# What "optimal" means
# --------------------
# The certificate is computed from the multipliers and the full kernel matrix. It does not
# trust the solver: the optimum of the problem *as stated* lies in the interval. A status
# is "optimal" where the relative gap, the share of the attainable improvement over θ = 0
# that may be missing, is at most `tol`.


print(problem.certificate)
bound = theta.value.optimality_bound(grid).max()
print(f"predictions are within {bound:.0e} of the exact optimum's")

# %%
# The proof covers what a restriction of θ loses, too. Here θ is confined to the span of few
# rows; each answer comes with an interval that holds the optimum of the whole problem.

ranks = [3, 4, 5, 6, 7, 8]
bounds = []
for rank in ranks:
    problem.solve(max_rank=rank)
    bounds.append((problem.certificate.lower, problem.certificate.upper))
    print("rank", rank, problem.status, np.round(bounds[-1], 2))

lower, upper = np.array(bounds).T
fig, ax = plt.subplots()
ax.fill_between(ranks, np.maximum(lower, 0), upper, alpha=0.3, label="the optimum is here")
ax.plot(ranks, upper, "o-", label="objective of the answer")
ax.set(xlabel="largest rank", ylabel="objective", ylim=(0, None))
ax.legend()
plt.show()
