r"""
Least squares for the worst case
================================

The data of a regression have errors in the inputs: each row :math:`F(x_i)` of A may be
off by some :math:`\delta_i` in the feature space, :math:`\|\delta_i\| \le \rho`. Least
squares for the worst case is

.. math:: \text{minimize} \quad
   \max_{\|\delta_i\| \le \rho} \sum_i \bigl(y_i - \theta^\top (F(x_i)
   + \delta_i)\bigr)^2
   \;=\; \sum_i \bigl(|y_i - \theta^\top F(x_i)| + \rho\|\theta\|\bigr)^2,

a problem in Aθ and ‖θ‖. If A as a whole moves by a matrix of Frobenius norm ρ instead,
the worst case is the square of

.. math:: \|y - A\theta\| + \rho\|\theta\|

(El Ghaoui and Lebret 1997). The code repeats both formulas.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are a curve with noise.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(40, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0] + 0.2 * rng.normal(size=40)

# %%
# Each row moves
# --------------
# Absolute residuals plus ρ‖θ‖ are convex and nonnegative, and so are their squares. A
# shift of x by up to 0.1 moves F(x) by at most ρ = ``A.modulus(0.1)``. So the answer is
# safe against these shifts too. The picture shows the fits for three sizes of shifts.

kernel, rho = ko.kernels.Gaussian(sigma=0.7), cp.Parameter(nonneg=True, name="rho")
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
length = ko.norm(theta)
worst = cp.sum_squares(cp.abs(y - A @ theta) + rho * length)
row_by_row = ko.Problem(cp.Minimize(worst))

grid = np.linspace(0, 6, 300)[:, None]
fits = {}
fig, ax = plt.subplots()
ax.plot(X, y, "o", color="0.6", label="data")
for shift in (0.02, 0.1, 0.3):
    rho.value = A.modulus(shift)[0]
    row_by_row.solve()
    fits[shift] = rho.value, row_by_row.value, theta.value
    ax.plot(grid, theta.value(grid), label=f"shifts up to {shift}")
ax.set(xlabel="x", ylabel="θᵀF(x)")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

rho.value = A.modulus(0.1)[0]
row_by_row.solve(tol=1e-8)
print(row_by_row.explain())

# %%
# Is that the worst case?
# -----------------------
# The worst move of row i is along θ, against the residual: :math:`\delta_i =
# -\rho\,\mathrm{sign}(y_i - \theta^\top F(x_i))\,\theta/\|\theta\|`. It attains the
# optimum. Random moves of the same length, in coordinates of the span of the data, and
# random shifts of x do less harm.

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
    shift = rng.choice([-0.1, 0.1], size=X.shape)
    shifted.append(np.sum((y - f(X + shift)) ** 2))
print(f"optimum {row_by_row.value:.6f}, attained by the worst move {attained:.6f}")
print(f"largest value for random moves {max(moved):.3f}")
print(f"largest value for random shifts of x {max(shifted):.3f}")

# %%
# What robustness costs
# ---------------------
# Each fit is the best for its own ρ, marked by a dot. For smaller moves it costs more
# than necessary; for larger ones it is not safe enough.

sizes = np.linspace(0, 0.6, 100)
costs = []
fig, ax = plt.subplots()
for shift, (_, _, fit) in fits.items():
    error = np.abs(y - fit(X))
    costs.append([np.sum((error + size * fit.norm) ** 2) for size in sizes])
    ax.semilogy(sizes, costs[-1], label=f"shifts up to {shift}")
for k, (rho_fit, optimum, _) in enumerate(fits.values()):
    ax.plot(rho_fit, optimum, "o", color=f"C{k}", markersize=7)
ax.set(xlabel="size ρ of the moves", ylabel="squared error in the worst case")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# A moves as a whole
# ------------------
# Where neither residuals nor θ are zero, the answer is that of ridge regression,
# :math:`\theta = A^\top (Q + \lambda I)^{-1} y`, for :math:`\lambda = \rho\|y -
# A\theta\|/\|\theta\|`. Robustness is a reason for a penalty λ‖θ‖², and ρ determines
# its size.

whole = ko.Problem(cp.Minimize(cp.norm(y - A @ theta) + rho * length))
whole.solve(tol=1e-10)
f_whole = theta.value
lam = rho.value * np.linalg.norm(y - f_whole(X)) / f_whole.norm
ridge = ko.Function(kernel, X, np.linalg.solve(kernel(X) + lam * np.eye(40), y))
apart = np.abs(ridge(X) - f_whole(X)).max()
print(f"{whole.status}, λ = {lam:.4f}, ridge regression differs by at most {apart:.1e}")
