r"""
Learning to rank, by differences of predictions
===============================================

Somebody says which of two items is better, for some pairs. A score f is sought that agrees:

.. math:: \text{minimize} \quad \frac{1}{|P|} \sum_{(i, j) \in P} \max\bigl(0,\, 1 - (f(x_i) - f(x_j))\bigr)
   + \lambda\|\theta\|^2, \qquad f(x) = \theta^\top F(x),

where i is better than j for the pairs in P. The loss is one of *differences* of predictions. No kernel of pairs has to
be invented, and no row for each pair computed: differences are ``f[i] - f[j]`` (the ranking SVM of Herbrich, Graepel
and Obermayer 2000, and of Joachims 2002).
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import kendalltau

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 80 items in the plane with a quality that nobody can measure. 400 random pairs were compared; one in ten times the
# worse item was preferred.


def quality(X):
    return np.exp(-((X[:, 0] - 0.5) ** 2)) + np.exp(-((X[:, 1] + 0.5) ** 2) / 0.5)


rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(80, 2))
i, j = np.triu_indices(80, 1)
pairs = rng.choice(len(i), size=400, replace=False)
i, j = i[pairs], j[pairs]
prefers_i = (quality(X[i]) > quality(X[j])) ^ (rng.uniform(size=400) < 0.1)
better, worse = np.where(prefers_i, i, j), np.where(prefers_i, j, i)

# %%
# The problem. An intercept would cancel in the differences.

kernel = ko.kernels.Gaussian(sigma=1.0)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam")
f = A @ theta
loss = cp.sum(cp.pos(1 - (f[better] - f[worse]))) / len(better)
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))

# %%
# Kendall's τ counts how many pairs of new items a score puts in the right order: 1 for all, −1 for none, 0 by chance.
# λ is chosen on 200 items, and the score judged on 500 others.

validation, test = (rng.uniform(-2, 2, size=(n, 2)) for n in (200, 500))


def tau(X):
    return kendalltau(theta.value(X), quality(X)).statistic


path = ko.path(problem, lam, np.geomspace(1e-4, 1, 9), evaluate=lambda _: tau(validation))
best = int(np.argmax(path["evaluation"]))
path.restore(best)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
print(
    f"λ = {lam.value:.1e}, τ on new items {tau(test):.3f}, in the wrong order: {(1 - tau(test)) / 2:.1%} of their pairs"
)

# %%
# The multiplier of an item is what its comparisons say together. With ν of Aθ, :math:`\theta = A^\top\nu/2\lambda`; and
# since the loss has differences only, the multipliers sum to zero.

nu = f.dual_value
print(f"Σν = {nu.sum():.1e}, θ − Aᵀν/2λ at most {np.abs(kernel(X) @ nu / (2 * lam.value) - f.value).max():.1e}")

# %%
# Level sets of the score, and the items, brighter where they are really better.

grid = np.linspace(-2, 2, 100)
points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].contour(grid, grid, theta.value(points).reshape(100, 100), levels=12, cmap="cividis", zorder=0)
axes[0].scatter(X[:, 0], X[:, 1], c=quality(X), cmap="cividis", edgecolors="black", linewidths=0.5)
axes[0].set(xlabel="x₁", ylabel="x₂", title="score (lines) and quality (dots)")
axes[1].plot(theta.value(test), quality(test), ".", color="tab:blue", markersize=4)
axes[1].set(xlabel="score", ylabel="quality", title=f"500 new items, τ = {tau(test):.2f}")
plt.show()
