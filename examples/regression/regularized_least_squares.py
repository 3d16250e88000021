r"""
Regularized least squares, and its dual
=======================================

.. math:: \text{minimize} \quad \|A\theta - y\|^2 + \lambda\|\theta\|^2

With :math:`\theta = A^\top\alpha` and :math:`Q = AA^\top` the optimum has a closed form,
:math:`\alpha = (Q + \lambda I)^{-1}y`: one number for each row. As λ falls to zero the curve goes through
all points, with :math:`\alpha = Q^{-1}y`.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Noisy values of a function at 20 points.

rng = np.random.default_rng(0)
X = np.linspace(0, 6, 20)[:, None] + 0.1 * rng.uniform(-1, 1, size=(20, 1))
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0] + 0.3 * rng.normal(size=20)

# %%
# The problem is typed as it is written. λ is a parameter: the kernel matrix is factored once for all of its values.

kernel = ko.kernels.Gaussian(sigma=0.5)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam")
problem = ko.Problem(cp.Minimize(cp.sum_squares(A @ theta - y) + lam * ko.sum_squares(theta)))

fits = {}
for lam.value in (10.0, 0.3, 0.01):
    problem.solve()
    fits[lam.value] = theta.value
print(problem.explain())

# %%
# The dual solution for the last λ is a linear system in Q, and the same function.

Q = kernel(X)
alpha = np.linalg.solve(Q + lam.value * np.eye(len(y)), y)
dual = ko.Function(kernel, X, alpha)
grid = np.linspace(0, 6, 400)[:, None]
print(f"largest difference of the two curves: {np.abs(dual(grid) - theta.value(grid)).max():.1e}")

# %%
# The multipliers ν of Aθ are :math:`2\lambda\alpha`: the dual solution comes with the primal one.

nu = (A @ theta).dual_value
print(f"largest difference of ν/2λ and α: {np.abs(nu / (2 * lam.value) - alpha).max():.1e}")

# %%
# Without a penalty there are many θ with Aθ = y. The one of least norm is what λ → 0 leads to:
# minimize ‖θ‖² subject to Aθ = y, with :math:`\alpha = Q^{-1}y`.

interpolation = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [A @ theta == y])
interpolation.solve()
through = theta.value
alpha_0 = np.linalg.solve(Q, y)
apart = np.abs(through(grid) - ko.Function(kernel, X, alpha_0)(grid)).max()
print(f"{interpolation.status}, largest residual {np.abs(through(X) - y).max():.1e}, from α = Q⁻¹y {apart:.1e}")

# %%
# A large λ flattens the curve, a small one lets it follow the noise.

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for (value, f), color in zip(fits.items(), ("tab:blue", "tab:green", "tab:red"), strict=True):
    axes.plot(grid, f(grid), color=color, label=f"λ = {value:g}")
axes.plot(grid, through(grid), color="0.5", linestyle=":", label="least norm with Aθ = y")
axes.plot(X, y, "o", color="black", markersize=4, label="data")
axes.set(xlabel="x", ylabel="θᵀF(x)", ylim=(y.min() - 0.7, y.max() + 0.7))
axes.legend(frameon=False, ncols=2)
plt.show()
