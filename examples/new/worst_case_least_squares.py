r"""
Least squares for the worst case
================================

The data of a regression are not where they seem to be: each row :math:`F(x_i)` of A may be off by some
:math:`\delta_i` in the feature space, :math:`\|\delta_i\| \le \rho`. Least squares for the worst case is

.. math:: \text{minimize} \quad \max_{\|\delta_i\| \le \rho} \sum_i \bigl(y_i - \theta^\top (F(x_i) + \delta_i)\bigr)^2
   \;=\; \sum_i \bigl(|y_i - \theta^\top F(x_i)| + \rho\|\theta\|\bigr)^2,

a problem in Aθ and ‖θ‖. If instead A as a whole moves by a matrix of Frobenius norm ρ, the worst case is the square of

.. math:: \|y - A\theta\| + \rho\|\theta\|

(El Ghaoui and Lebret 1997). Both are typed as they stand.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# A curve with noise.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(40, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0] + 0.2 * rng.normal(size=40)

# %%
# The first problem. Absolute residuals plus ρ‖θ‖ are convex and nonnegative, and so are their squares. Shifts of x by
# up to 0.1 move F(x) by at most ρ = ``A.modulus(0.1)``, so that the answer is safe against these as well.

kernel, rho = ko.kernels.Gaussian(sigma=0.7), cp.Parameter(nonneg=True, name="rho")
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
length = ko.norm(theta)
row_by_row = ko.Problem(cp.Minimize(cp.sum_squares(cp.abs(y - A @ theta) + rho * length)))
rho.value = A.modulus(0.1)[0]
row_by_row.solve(tol=1e-8)
print(row_by_row.explain())

# %%
# Is that really the worst that can happen? The move that hurts row i most is along θ, against the residual:
# :math:`\delta_i = -\rho\,\mathrm{sign}(y_i - \theta^\top F(x_i))\,\theta/\|\theta\|`. It attains the optimum. Random
# moves of the same length, in coordinates of the span of the data, and random shifts of x do less harm.

f = theta.value
residual = y - f(X)
worst_move = -rho.value * np.sign(residual) * f.norm  # θᵀδᵢ
attained = np.sum((residual - worst_move) ** 2)

values, vectors = np.linalg.eigh(kernel(X))
kept = values > 1e-10 * values[-1]
coordinates = f(X) @ vectors[:, kept] / np.sqrt(values[kept])  # of θ
moved, shifted = [], []
for _ in range(1000):
    delta = rng.normal(size=(40, kept.sum()))
    delta *= rho.value / np.linalg.norm(delta, axis=1, keepdims=True)
    moved.append(np.sum((residual - delta @ coordinates) ** 2))
    shifted.append(np.sum((y - f(X + rng.choice([-0.1, 0.1], size=X.shape))) ** 2))
print(f"optimum {row_by_row.value:.6f}, attained by the worst move {attained:.6f}")
print(f"random moves up to {max(moved):.3f}, random shifts of x up to {max(shifted):.3f}")

# %%
# The second problem. Where neither residuals nor θ are zero its answer is that of ridge regression,
# :math:`\theta = A^\top (Q + \lambda I)^{-1} y`, for :math:`\lambda = \rho\|y - A\theta\|/\|\theta\|`. Robustness is a
# reason for a penalty λ‖θ‖², and ρ says how large it is.

whole = ko.Problem(cp.Minimize(cp.norm(y - A @ theta) + rho * length))
whole.solve(tol=1e-10)
f_whole = theta.value
lam = rho.value * np.linalg.norm(y - f_whole(X)) / f_whole.norm
ridge = ko.Function(kernel, X, np.linalg.solve(kernel(X) + lam * np.eye(40), y))
print(f"{whole.status}, λ = {lam:.4f}, from ridge regression {np.abs(ridge(X) - f_whole(X)).max():.1e}")

# %%
# Left, fits for shifts of x up to three sizes; right, what each costs in the worst case if rows really move by ρ. Each
# is best for the ρ that it was made for, marked by a dot.

sizes, grid = np.linspace(0, 0.6, 100), np.linspace(0, 6, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].plot(X, y, "o", color="0.6", markersize=4)
costs = []
for shift, color, style in ((0.02, "tab:red", ":"), (0.1, "tab:blue", "-"), (0.3, "tab:orange", "--")):
    rho.value = A.modulus(shift)[0]
    row_by_row.solve()
    error, norm = np.abs(y - theta.value(X)), theta.value.norm
    costs.append([np.sum((error + size * norm) ** 2) for size in sizes])
    axes[0].plot(grid, theta.value(grid), style, color=color, label=f"shifts up to {shift}")
    axes[1].semilogy(sizes, costs[-1], style, color=color)
    axes[1].plot(rho.value, row_by_row.value, "o", color=color)
axes[0].set(xlabel="x", ylabel="θᵀF(x)", ylim=(-1.5, 4))
axes[0].legend(frameon=False, loc="upper left")
axes[1].set(xlabel="ρ", ylabel="squared error in the worst case")
plt.show()
