r"""
From θ to w, step by step
=========================

.. math:: \text{minimize} \quad f(A\theta,\ \|\theta\|)

θ may have infinitely many entries, and a computer solves the problem all the same. This
lesson takes the steps of a lecture on kernels one by one, in NumPy and plain cvxpy: the
kernel matrix, the representer theorem, the factorization :math:`Q = BB^\top`, the
change of variables from θ to w, and the way back to a function. The library does the
same, and the curves agree. The formulas, for any problem of this kind, are on the page
:doc:`The mathematics </mathematics>`.
"""

# %%
# A problem in θ
# --------------
# F(x) are the features of a Gaussian kernel, which are infinitely many. The prediction
# at x is θᵀF(x). The errors of 26 predictions are summed, and ‖θ‖² is penalized:
#
# .. math:: \text{minimize} \quad
#    \sum_i |y_i - \theta^\top F(x_i)| + \lambda\|\theta\|^2
#
# The row :math:`F(x_i)^\top` of the matrix A is known only through inner products.

# sphinx_gallery_thumbnail_number = 2

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

rng = np.random.default_rng(1)
x = np.concatenate([np.linspace(0, 2.2, 13), np.linspace(3.8, 6, 13)])
X, y = x[:, None], np.sin(x) + 0.2 * rng.standard_t(3, size=26)
kernel, lam = ko.kernels.Gaussian(sigma=0.5), 0.1

theta = ko.Theta(kernel)
loss = cp.sum(cp.abs(y - theta(X)))
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
problem.solve()
print(f"optimum {problem.value:.6f}, ‖θ‖ = {theta.value.norm:.4f}")

# %%
# The kernel matrix
# -----------------
# The inner products of the rows of A are values of the kernel,
# :math:`Q_{ij} = F(x_i)^\top F(x_j) = \kappa(x_i, x_j)`. So :math:`Q = AA^\top` is a
# matrix of 26 × 26 numbers, although A has infinitely many columns. Points next to each
# other have inner products near 1, and the two groups have nearly orthogonal features.

A = ko.FeatureMatrix(X, kernel)
Q = kernel(X)  # exp(−(xᵢ − xⱼ)²/(2σ²))
print("A", A.shape, "Q", Q.shape, "Q₀₁ =", Q[0, 1].round(3))
ko.plots.gram(A)
plt.show()

# %%
# The representer theorem
# -----------------------
# Split :math:`\theta = A^\top\alpha + \theta_\perp` with :math:`A\theta_\perp = 0`. The
# second part changes no prediction at the data, and makes the norm larger. Here is such
# a part: the features F(z) of a point z between the groups, less their projection onto
# the rows of A.

z = np.array([[3.0]])
projection = np.linalg.solve(Q, kernel(X, z)[:, 0])
centers, coefficients = np.vstack([z, X]), np.append(1.0, -projection)
unscaled = ko.Function(kernel, centers, coefficients)
coefficients /= unscaled(z)  # so that θ⊥ᵀF(z) = 1
orthogonal = ko.Function(kernel, centers, coefficients)

f = theta.value.expanded()  # Σ αᵢκ(xᵢ, x), a combination of kernel functions
both = np.vstack([f.centers, centers]), np.append(f.coefficients, coefficients)
more = ko.Function(kernel, *both)  # θ + θ⊥

print(f"θ⊥ᵀF(z) = {orthogonal(z)[0]:.2f}, largest |Aθ⊥| {abs(orthogonal(X)).max():.0e}")
print(f"largest change of predictions {abs(more(X) - f(X)).max():.0e}")
print(f"‖θ‖² = {f.norm**2:.3f}, ‖θ⊥‖² = {orthogonal.norm**2:.3f}", end=", ")
print(f"‖θ + θ⊥‖² = {more.norm**2:.3f}")

# %%
# Both curves pass through the same predictions at the data, so the losses are equal.
# The penalty of θ alone is smaller. A part θ⊥ never helps, whatever the loss, as long
# as the objective does not decrease in ‖θ‖.

grid = np.linspace(0, 6, 400)[:, None]
fig, ax = plt.subplots()
ax.plot(grid, theta.value(grid), label="θᵀF(x)")
ax.plot(grid, more(grid), label="(θ + θ⊥)ᵀF(x)")
ax.plot(X, theta.value(X), "o", color="black", label="predictions Aθ")
ax.set(xlabel="x", ylabel="prediction")
ax.legend()
plt.show()

# %%
# The factorization Q = BBᵀ
# -------------------------
# The eigenvalues of Q decrease fast, so that B needs fewer columns than Q has rows.
# Pivoted Cholesky takes the row with the largest remainder as the next pivot, and
# subtracts what this row explains of the others.


def pivoted_cholesky(Q, tol):
    B, pivots, left = np.zeros((len(Q), 0)), [], np.diag(Q).copy()
    while left.sum() > tol * np.trace(Q):
        j = int(np.argmax(left))
        column = (Q[:, j] - B @ B[j]) / np.sqrt(left[j])
        B, pivots, left = np.column_stack([B, column]), [*pivots, j], left - column**2
    return B, pivots


B, pivots = pivoted_cholesky(Q, tol=1e-8)
r = len(pivots)
print(f"B has {r} columns; largest entry of |Q − BBᵀ|: {abs(Q - B @ B.T).max():.0e}")
print("pivots", pivots)

# %%
# The picture shows the eigenvalues of Q, and those of BBᵀ for the factor that the
# library computed, with a line at its rank.

ko.plots.spectrum(problem)
plt.show()

# %%
# The change of variables
# -----------------------
# The r pivots span the rows of A to this accuracy. Let C have orthonormal rows with
# :math:`A = BC`, and set :math:`\theta = C^\top w`. Then
#
# .. math:: A\theta = BCC^\top w = Bw, \qquad \|\theta\|^2 = w^\top CC^\top w = \|w\|^2.
#
# What remains is a problem in r numbers, for any convex solver:

w = cp.Variable(r)
errors = cp.sum(cp.abs(y - B @ w))
small = cp.Problem(cp.Minimize(errors + lam * cp.sum_squares(w)))
small.solve(solver="CLARABEL")
print(f"{r} numbers, optimum {small.value:.6f} ({problem.value:.6f} in θ)")
print(f"‖w‖ = {np.linalg.norm(w.value):.4f}, ‖θ‖ = {theta.value.norm:.4f}")

# %%
# Back to a function
# ------------------
# For a new point the features are needed through C only. The pivots' rows of
# :math:`A = BC` say :math:`A_P = B_P C`, with :math:`B_P` of size r × r, so that
# :math:`CF(x) = B_P^{-1}k_P(x)` with the kernel values
# :math:`k_P(x) = (\kappa(x_j, x))_{j \in P}`. Hence
# :math:`\theta^\top F(x) = w^\top B_P^{-1}k_P(x) = \alpha^\top k_P(x)`, a combination
# of the kernel functions of the pivots, as the representer theorem says.

alpha = np.linalg.solve(B[pivots].T, w.value)
by_hand = kernel(grid, X[pivots]) @ alpha
apart = abs(by_hand - theta.value(grid)).max()
print(f"largest difference of the two curves: {apart:.0e}")

fig, ax = plt.subplots()
ax.plot(X, y, "o", color="0.6", label="data")
ax.plot(grid, theta.value(grid), "-", color="0.75", linewidth=6, label="by kernelopt")
ax.plot(grid, by_hand, "--", color="C1", label="by hand, from w")
ax.plot(X[pivots], np.full(r, -1.75), "|", color="C1", markersize=9, label="pivots")
ax.set(xlabel="x", ylabel="y", ylim=(-1.9, 2.1))
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# How good is the answer?
# -----------------------
# Each ν with :math:`|\nu_i| \le 1` gives a lower bound of the optimum,
# :math:`\nu^\top y - \nu^\top Q\nu/(4\lambda)`, with the full Q. The multipliers of the
# problem give one that meets the value of the answer. The certificate does this for any
# problem, and allows for rounding.

nu = np.clip(theta(X).dual_value, -1, 1)
bound = nu @ y - nu @ Q @ nu / (4 * lam)
print(f"bound {bound:.6f}, value {problem.value:.6f}")
print(problem.certificate)

# %%
# ``explain()`` has the same steps: rows of A, the factor, the reduced problem, the
# bounds.

print(problem.explain())
