r"""
Regularized least squares, and its dual
=======================================

.. math:: \text{minimize} \quad \|A\theta - y\|^2 + \lambda\|\theta\|^2

With :math:`\theta = A^\top\alpha` and :math:`Q = AA^\top` the optimum has a closed
form, :math:`\alpha = (Q + \lambda I)^{-1}y`: one number per row. As λ falls to zero,
the curve passes through all points, and :math:`\alpha = Q^{-1}y`.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Noisy values of a function at 20 points:

rng = np.random.default_rng(0)
X = np.linspace(0, 6, 20)[:, None] + 0.1 * rng.uniform(-1, 1, size=(20, 1))
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0] + 0.3 * rng.normal(size=20)
grid = np.linspace(0, 6, 400)[:, None]

# %%
# The fit for three values of λ
# -----------------------------
# The code repeats the formula. λ is a parameter: the kernel matrix is factored once for
# all values. A large λ flattens the curve; a small one lets it follow the noise.

kernel = ko.kernels.Gaussian(sigma=0.5)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam")
problem = ko.Problem(
    cp.Minimize(cp.sum_squares(A @ theta - y) + lam * ko.sum_squares(theta))
)

fits = {}
for lam.value in (10.0, 0.3, 0.01):
    problem.solve()
    fits[lam.value] = theta.value
print(problem.explain())
fig, ax = plt.subplots()
ax.plot(X, y, "o", color="black", label="data")
for value, f in fits.items():
    ax.plot(grid, f(grid), label=f"λ = {value:g}")
ax.set(xlabel="x", ylabel="θᵀF(x)")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# The dual problem
# ----------------
# For the last λ, the linear system in Q gives the same function.

Q = kernel(X)
alpha = np.linalg.solve(Q + lam.value * np.eye(len(y)), y)
dual = ko.Function(kernel, X, alpha)
apart = np.abs(dual(grid) - theta.value(grid)).max()
print(f"largest difference of the two curves: {apart:.1e}")

# %%
# The multipliers ν of Aθ equal :math:`2\lambda\alpha`: the dual solution comes with the
# primal one.

nu = (A @ theta).dual_value
apart = np.abs(nu / (2 * lam.value) - alpha).max()
print(f"largest difference of ν/2λ and α: {apart:.1e}")

# %%
# No penalty: interpolation
# -------------------------
# Many θ satisfy Aθ = y. The limit λ → 0 is the one of least norm: minimize ‖θ‖² subject
# to Aθ = y, with :math:`\alpha = Q^{-1}y`.

interpolation = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [A @ theta == y])
interpolation.solve()
through = theta.value
alpha_0 = np.linalg.solve(Q, y)
apart = np.abs(through(grid) - ko.Function(kernel, X, alpha_0)(grid)).max()
residual = np.abs(through(X) - y).max()
print(f"{interpolation.status}: largest residual {residual:.1e}")
print(f"largest difference from α = Q⁻¹y: {apart:.1e}")
fig, ax = plt.subplots()
ax.plot(X, y, "o", color="black", label="data")
ax.plot(grid, through(grid), label="least norm with Aθ = y")
ax.plot(grid, dual(grid), label=f"λ = {lam.value:g}")
ax.set(xlabel="x", ylabel="θᵀF(x)")
fig.legend(loc="outside upper center", ncols=3)
plt.show()
