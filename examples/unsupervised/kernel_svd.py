r"""
The singular value decomposition of the data matrix
===================================================

.. math:: A = U\Sigma V^\top, \qquad Q = AA^\top = U\Sigma^2U^\top, \qquad v_j = A^\top u_j/\sigma_j

A has a row F(xᵢ)ᵀ for each point and infinitely many columns, yet it has a singular value decomposition: left vectors
and singular values are the eigenvectors of Q and the roots of its eigenvalues, and the right vectors are functions. The
best approximation of rank k leaves the tail of the squares, σ²ₖ₊₁ + … + σ²_N (Eckart and Young, 1936).
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Points on an interval, and the decomposition for a Gaussian kernel.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, size=80))[:, None]
kernel = ko.kernels.Gaussian(sigma=0.7)
sigma, U, V = ko.feature_space.kernel_svd(kernel, X)
Q = kernel(X)
print(f"{len(sigma)} singular values, from {sigma[0]:.3f} to {sigma[-1]:.1e}")
print(f"largest entry of Q − UΣ²Uᵀ: {np.abs(Q - U * sigma**2 @ U.T).max():.1e}")

# %%
# V is a function with an output for each right vector, V(x) = Vᵀx in features. The vectors are orthonormal, and A maps
# vⱼ to σⱼuⱼ: V's values at the rows are UΣ. Both are inner products in the feature space, computed from kernel values;
# for vectors with small σⱼ, dividing by σⱼ costs digits, so that only those with σⱼ > 0.001 are looked at.

kept = sigma > 1e-3
gram = V.gram(V)[np.ix_(kept, kept)]
print(f"largest entry of VᵀV − I: {np.abs(gram - np.eye(kept.sum())).max():.1e}")
print(f"largest entry of AV − UΣ: {np.abs(V(X) - U * sigma)[:, kept].max():.1e}")

# %%
# The best approximation of rank k replaces each F(xᵢ) by its projection on v₁, …, vₖ. What is left of it has the
# squared length κ(xᵢ, xᵢ) − Σⱼ vⱼ(xᵢ)², and these sum up to the tail of σ².

tail = np.sum(sigma**2) - np.cumsum(sigma**2)
ranks = np.array([1, 2, 4, 8, 12, 16, 20])
left_over = np.array([np.sum(kernel.diag(X) - np.sum(V(X)[:, :k] ** 2, axis=1)) for k in ranks])
for k, error in zip(ranks, left_over, strict=True):
    print(f"rank {k:2d}: ‖A − Aₖ‖² = {error:.8f}, tail {tail[k - 1]:.8f}, {error / np.trace(Q):.2%} of ‖A‖²")

# %%
# No other projection of rank k leaves less. Projecting on k of the points' own features, chosen by pivoted Cholesky
# factorization, is what problems of this library are reduced by, as it needs k columns of Q only. It leaves
# up to a few times as much.


def cholesky_error(k):
    """trace(Q − BBᵀ) after k pivots, each the row with the largest diagonal that is left."""
    E = Q.copy()
    for _ in range(k):
        pivot = np.argmax(np.diag(E))
        E -= np.outer(E[:, pivot], E[pivot]) / E[pivot, pivot]
    return np.trace(E)


pivoted = np.array([cholesky_error(k) for k in ranks])
print("pivoted Cholesky leaves", np.round(pivoted / left_over, 2), "times as much")

# %%
# Right vectors are smooth functions that oscillate the more the smaller their singular value.

grid = np.linspace(0, 10, 400)[:, None]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for j, color, style in ((0, "tab:blue", "-"), (1, "tab:orange", "--"), (5, "black", ":")):
    left.plot(grid, V(grid)[:, j], color=color, linestyle=style, label=f"v{'₁₂₃₄₅₆'[j]}, σ = {sigma[j]:.2f}")
left.plot(X, np.full(len(X), left.get_ylim()[0]), "|", color="0.5")
left.set(xlabel="x", ylabel="vⱼᵀF(x)")
left.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3, frameon=False)
right.semilogy(np.arange(1, 31), tail[:30], "-", color="0.6", linewidth=4, label="tail of σ²")
right.semilogy(ranks, left_over, "o", color="tab:blue", label="‖A − Aₖ‖², best")
right.semilogy(ranks, pivoted, "s", color="tab:orange", markerfacecolor="none", label="pivoted Cholesky")
right.set(xlabel="rank k", ylabel="what is left of ‖A‖²", xlim=(0, 31))
right.legend(frameon=False)
plt.show()
