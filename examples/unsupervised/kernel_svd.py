r"""
The singular value decomposition of the data matrix
===================================================

.. math:: A = U\Sigma V^\top, \qquad Q = AA^\top = U\Sigma^2U^\top,
   \qquad v_j = A^\top u_j/\sigma_j

A has a row F(xᵢ)ᵀ per point and infinitely many columns, yet it has a singular value
decomposition. Left vectors are the eigenvectors of Q, singular values the roots of its
eigenvalues, and right vectors are functions. The error of the best approximation of
rank k is the tail of the squares, σ²ₖ₊₁ + … + σ²_N (Eckart and Young, 1936).
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The decomposition
# -----------------
# For points on an interval and a Gaussian kernel. Right vectors are smooth functions,
# which oscillate more the smaller their singular value. Ticks mark the points.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, size=80))[:, None]
kernel = ko.kernels.Gaussian(sigma=0.7)
sigma, U, V = ko.feature_space.kernel_svd(kernel, X)
Q = kernel(X)
print(f"{len(sigma)} singular values, from {sigma[0]:.3f} to {sigma[-1]:.1e}")
print(f"largest entry of Q − UΣ²Uᵀ: {np.abs(Q - U * sigma**2 @ U.T).max():.1e}")
grid = np.linspace(0, 10, 400)[:, None]
fig, ax = plt.subplots()
for j in (0, 1, 5):
    ax.plot(grid, V(grid)[:, j], label=f"v{'₁₂₃₄₅₆'[j]}, σ = {sigma[j]:.2f}")
ax.plot(X, np.full(len(X), -0.95), "|", color="0.4", markersize=8)
ax.set(xlabel="x", ylabel="vⱼᵀF(x)")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# Orthonormal functions
# ---------------------
# V is a function with one output per right vector, V(x) = VᵀF(x). The vectors are
# orthonormal, and A maps vⱼ to σⱼuⱼ: the values of V at the rows are UΣ. Both are inner
# products in the feature space, computed from kernel values. For vectors with small σⱼ
# the division by σⱼ loses digits, so only those with σⱼ > 0.001 are checked.

kept = sigma > 1e-3
gram = V.gram(V)[np.ix_(kept, kept)]
print(f"largest entry of VᵀV − I: {np.abs(gram - np.eye(kept.sum())).max():.1e}")
print(f"largest entry of AV − UΣ: {np.abs(V(X) - U * sigma)[:, kept].max():.1e}")

# %%
# The best approximation
# ----------------------
# The best approximation of rank k replaces each F(xᵢ) by its projection on v₁, …, vₖ.
# The remainder has the squared length κ(xᵢ, xᵢ) − Σⱼ vⱼ(xᵢ)². These sum to the tail of
# σ².

tail = np.sum(sigma**2) - np.cumsum(sigma**2)
ranks = np.array([1, 2, 4, 8, 12, 16, 20])
squares = np.cumsum(V(X) ** 2, axis=1)
left_over = np.array([np.sum(kernel.diag(X) - squares[:, k - 1]) for k in ranks])
for k, error in zip(ranks, left_over, strict=True):
    share = error / np.trace(Q)
    print(f"rank {k:2d}: ‖A − Aₖ‖² = {error:.8f}, tail {tail[k - 1]:.8f}, {share:.2%}")

# %%
# Pivoted Cholesky factorization
# ------------------------------
# No other projection of rank k has a smaller error. Pivoted Cholesky factorization
# projects on the features of k of the points. This library uses it to reduce problems,
# since it needs only k columns of Q. Its error is up to a few times as large.


def cholesky_error(k):
    """trace(Q − BBᵀ) after k pivots, each the row of the largest remaining diagonal."""
    E = Q.copy()
    for _ in range(k):
        pivot = np.argmax(np.diag(E))
        E -= np.outer(E[:, pivot], E[pivot]) / E[pivot, pivot]
    return np.trace(E)


pivoted = np.array([cholesky_error(k) for k in ranks])
print("error of pivoted Cholesky / best error:", np.round(pivoted / left_over, 2))

fig, ax = plt.subplots()
ax.semilogy(
    np.arange(1, 31), tail[:30], "-", color="0.7", linewidth=5, label="tail of σ²"
)
ax.semilogy(ranks, left_over, "o", color="C0", markersize=6, label="best projection")
style = {"color": "C1", "markersize": 7, "fillstyle": "none"}
ax.semilogy(ranks, pivoted, "s", **style, label="pivoted Cholesky")
ax.set(xlabel="rank k", ylabel="‖A − Aₖ‖²")
ax.legend()
plt.show()
