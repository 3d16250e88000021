r"""
Learning to rank, by differences of predictions
===============================================

For some pairs of items it is known which is better. A score f that agrees is fitted:

.. math:: \text{minimize} \quad
   \frac{1}{|P|} \sum_{(i, j) \in P} \max\bigl(0,\, 1 - (f(x_i) - f(x_j))\bigr)
   + \lambda\|\theta\|^2, \qquad f(x) = \theta^\top F(x),

where i is better than j for the pairs (i, j) in P. The loss depends on *differences* of
predictions. It needs no kernel of pairs and no row per pair: differences are ``f[i] -
f[j]`` (the ranking SVM of Herbrich, Graepel and Obermayer 2000, and of Joachims 2002).
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import kendalltau

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# 80 items in the plane have a quality that is not observed. 400 random pairs were
# compared. In one of ten, the worse item was preferred.


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
# The problem
# -----------
# An intercept would cancel in the differences.

kernel = ko.kernels.Gaussian(sigma=1.0)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam")
f = A @ theta
loss = cp.sum(cp.pos(1 - (f[better] - f[worse]))) / len(better)
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))

# %%
# The choice of λ
# ---------------
# Kendall's τ measures how many pairs of new items a score orders correctly: 1 for all,
# −1 for none, 0 by chance. λ is chosen on 200 items. The picture shows the level lines
# of the score; the markers show the true quality.

validation, test = (rng.uniform(-2, 2, size=(n, 2)) for n in (200, 500))


def tau(X):
    return kendalltau(theta.value(X), quality(X)).statistic


path = ko.path(
    problem, lam, np.geomspace(1e-4, 1, 9), evaluate=lambda _: tau(validation)
)
best = int(np.argmax(path["evaluation"]))
path.restore(best)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
wrong = (1 - tau(test)) / 2
print(
    f"λ = {lam.value:.1e}, τ on new items {tau(test):.3f}, {wrong:.1%} of pairs wrong"
)

side = np.linspace(-2, 2, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
fig, ax = plt.subplots()
ax.contour(side, side, theta.value(grid).reshape(100, 100), levels=12, zorder=0)
points = ax.scatter(*X.T, c=quality(X), edgecolors="black", linewidths=0.5)
fig.colorbar(points, label="quality of the items")
ax.set(xlabel="x₁", ylabel="x₂", title="level lines of the score")
plt.show()

# %%
# The score on 500 items that were used neither to fit nor to choose λ:

fig, ax = plt.subplots()
ax.plot(theta.value(test), quality(test), ".", color="C0")
ax.set(xlabel="score", ylabel="quality", title=f"500 new items, τ = {tau(test):.2f}")
plt.show()

# %%
# Multipliers
# -----------
# The multiplier of an item sums up its comparisons. With ν of Aθ, :math:`\theta =
# A^\top\nu/2\lambda`. Since the loss contains only differences, the multipliers sum to
# zero.

nu = f.dual_value
apart = np.abs(kernel(X) @ nu / (2 * lam.value) - f.value).max()
print(f"Σν = {nu.sum():.1e}; θ and Aᵀν/2λ differ by at most {apart:.1e}")
