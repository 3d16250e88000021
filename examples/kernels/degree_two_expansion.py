r"""
How many features, and how many rows
====================================

.. math::

   (1 + x^\top z)^2 = F(x)^\top F(z), \qquad
   F(x) = (1,\ \sqrt2\,x_1, \ldots, \sqrt2\,x_d,\ x_1^2, \ldots, x_d^2,\
   \sqrt2\,x_1x_2, \ldots, \sqrt2\,x_{d-1}x_d)

A polynomial of degree two in d variables is linear in these :math:`\binom{d+2}{2}`
features; for degree k there are :math:`\binom{d+k}{k}`. The kernel takes d
multiplications for any degree, and its matrix has N × N entries instead of N × p.
"""

from math import comb

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import PolynomialFeatures

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Six features in the plane
# -------------------------
# The mixed features have a factor √2, because x₁x₂z₁z₂ occurs twice in the square.

kernel = ko.kernels.Polynomial(degree=2)
x, z = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
print("F(x) =", kernel.features(x).round(3))
print("F(x)ᵀF(z) =", (kernel.features(x) @ kernel.features(z).T).item())
print("(1 + xᵀz)² =", (1 + x @ z.T).item() ** 2)

# %%
# Without the √2 the monomials are the features of another kernel: the same polynomials
# with another norm. Then λ‖θ‖² penalizes mixed and linear terms twice as much.

monomials = ko.kernels.Explicit(PolynomialFeatures(degree=2).fit_transform)
print("without √2:", monomials(x, z).item())

# %%
# The count grows as dᵏ/k!
# ------------------------
# The dotted line has N = 1000 rows. Where a curve is above it, the kernel matrix is
# smaller than the feature matrix.

dimensions = (2, 10, 64, 784)
counts = {
    k: [
        ko.FeatureMatrix(np.ones((1, d)), ko.kernels.Polynomial(degree=k)).shape[1]
        for d in dimensions
    ]
    for k in (2, 3, 4)
}
print("     d" + "".join(f"  degree {k:<8d}" for k in counts))
for i, d in enumerate(dimensions):
    print(f"{d:6d}" + "".join(f"  {count[i]:<15,d}" for count in counts.values()))
d = np.arange(1, 1001)
fig, ax = plt.subplots()
for k in counts:
    ax.loglog(d, [comb(int(n) + k, k) for n in d], label=f"degree {k}")
ax.axhline(1000, color="black", linewidth=1, linestyle=":", label="N = 1000")
ax.set(xlabel="number of variables d", ylabel="number of features p")
ax.legend()
plt.show()

# %%
# A fit
# -----
# Of 357 images of 8 × 8 pixels, which show a 3, and which an 8? A quarter of them is
# for training.

digits = load_digits()
rows = np.flatnonzero(np.isin(digits.target, (3, 8)))
X = digits.data[rows] / 64
labels = np.where(digits.target[rows] == 3, 1.0, -1.0)
train = np.arange(len(rows)) % 4 == 0
test = ~train

theta = ko.Theta(kernel)
squares = cp.sum(ko.losses.squared_error(labels[train], theta(X[train])))
problem = ko.Problem(cp.Minimize(squares + 0.1 * ko.sum_squares(theta)))
problem.solve()
scores = theta.value(X[test])
right = np.mean(np.sign(scores) == labels[test])
print(f"{right:.1%} of {len(scores)} other images are right")

fig, ax = plt.subplots()
bins = np.linspace(-2, 2, 41)
ax.hist(scores[labels[test] > 0], bins, color="C0", alpha=0.7, label="3")
hatched = {"color": "C1", "alpha": 0.7, "hatch": "///", "edgecolor": "white"}
ax.hist(scores[labels[test] < 0], bins, **hatched, label="8")
ax.axvline(0, color="black", linestyle="-", linewidth=0.8)
ax.set(xlabel="score θᵀF(x)", ylabel="images")
ax.legend()
plt.show()

# %%
# The same fit in explicit features
# ---------------------------------
# It is a system of p equations instead of N.

F = kernel.features(X)
p, N = F.shape[1], F[train].shape[0]
system = F[train].T @ F[train] + 0.1 * np.eye(p)
theta_p = np.linalg.solve(system, F[train].T @ labels[train])
apart = np.abs(F[test] @ theta_p - scores).max()
print(f"p = {p}, N = {N}; largest difference of scores {apart:.1e}")

# %%
# One stores Q, the other A. Factoring takes about N³/3 or p³/3 operations. With p > N
# the kernel is less work, with p < N the features are.

sizes = {"Q": N * N, "A": N * p}
print(f"entries: Q {sizes['Q']:,}, A {sizes['A']:,}")
print(f"operations to factor: {N**3 // 3:,} and {p**3 // 3:,}")

# %%
# The rank is the smaller of both
# -------------------------------
# The factor Q = BBᵀ has as many columns as the rank of Q, r ≤ min(N, p). Here there are
# 1500 rows, but four variables, and a target x₁x₂ that is one of the features.

many = np.random.default_rng(0).normal(size=(1500, 4))
product = many[:, 0] * many[:, 1]
theta_4 = ko.Theta(kernel)
squares = cp.sum_squares(theta_4(many) - product)
larger = ko.Problem(cp.Minimize(squares + 1e-3 * ko.sum_squares(theta_4)))
larger.solve()
rank = len(theta_4.value.pivots)
print(f"rank {rank}")
print(f"‖θ‖² = {theta_4.value.norm**2:.4f}: x₁x₂ is the feature √2x₁x₂ times 1/√2")
