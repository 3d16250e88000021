r"""
How many features, and how many rows
====================================

.. math::

   (1 + x^\top z)^2 = F(x)^\top F(z), \qquad
   F(x) = (1,\ \sqrt2\,x_1, \ldots, \sqrt2\,x_d,\ x_1^2, \ldots, x_d^2,\ \sqrt2\,x_1x_2, \ldots, \sqrt2\,x_{d-1}x_d)

A polynomial of degree two in d variables is linear in these :math:`\binom{d+2}{2}` features; of degree k there are
:math:`\binom{d+k}{k}`. The kernel costs d multiplications for any degree, and its matrix has N × N entries in place of
N × p.
"""

from math import comb

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import PolynomialFeatures

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# In the plane there are six features. The √2 of the mixed ones is there because x₁x₂z₁z₂ stands twice in the square.

kernel = ko.kernels.Polynomial(degree=2)
x, z = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
print("F(x) =", kernel.features(x).round(3))
print("F(x)ᵀF(z) =", (kernel.features(x) @ kernel.features(z).T).item(), " (1 + xᵀz)² =", (1 + x @ z.T).item() ** 2)

# %%
# Without the √2 the monomials are features, too, but of another kernel: the same polynomials, with another norm. λ‖θ‖²
# then charges mixed and linear terms twice as much.

monomials = ko.kernels.Explicit(PolynomialFeatures(degree=2).fit_transform)
print("without √2:", monomials(x, z).item())

# %%
# The count grows as dᵏ/k!.

dimensions = (2, 10, 64, 784)
counts = {
    k: [ko.FeatureMatrix(np.ones((1, d)), ko.kernels.Polynomial(degree=k)).shape[1] for d in dimensions]
    for k in (2, 3, 4)
}
print("     d" + "".join(f"  degree {k:<8d}" for k in counts))
for i, d in enumerate(dimensions):
    print(f"{d:6d}" + "".join(f"  {count[i]:<15,d}" for count in counts.values()))

# %%
# A fit: which of 357 images of 8 × 8 pixels show a 3, and which an 8. A quarter of them is for training.

digits = load_digits()
rows = np.flatnonzero(np.isin(digits.target, (3, 8)))
X, labels = digits.data[rows] / 64, np.where(digits.target[rows] == 3, 1.0, -1.0)
train = np.arange(len(rows)) % 4 == 0
test = ~train

theta = ko.Theta(kernel)
squares = cp.sum(ko.losses.squared_error(labels[train], theta(X[train])))
problem = ko.Problem(cp.Minimize(squares + 0.1 * ko.sum_squares(theta)))
problem.solve()
scores = theta.value(X[test])
right = np.mean(np.sign(scores) == labels[test])
print(f"{right:.1%} of {len(scores)} other images right")

# %%
# The same in explicit features: a system of p equations in place of N.

F = kernel.features(X)
p, N = F.shape[1], F[train].shape[0]
theta_p = np.linalg.solve(F[train].T @ F[train] + 0.1 * np.eye(p), F[train].T @ labels[train])
print(f"p = {p}, N = {N}; largest difference of scores {np.abs(F[test] @ theta_p - scores).max():.1e}")

# %%
# What each has to keep, Q or A, and to factor, about N³/3 or p³/3 operations. With p > N the kernel is less work, with
# p < N the features are.

sizes = {"Q": N * N, "A": N * p}
print(f"entries: Q {sizes['Q']:,}, A {sizes['A']:,}; factoring: {N**3 // 3:,} and {p**3 // 3:,} operations")

# %%
# One need not choose. The factor Q = BBᵀ has as many columns as Q has rank, r ≤ min(N, p): here 1500 rows, but in four
# variables, and a target x₁x₂ that is one of the features.

many = np.random.default_rng(0).normal(size=(1500, 4))
product = many[:, 0] * many[:, 1]
theta_4 = ko.Theta(kernel)
larger = ko.Problem(cp.Minimize(cp.sum_squares(theta_4(many) - product) + 1e-3 * ko.sum_squares(theta_4)))
larger.solve()
rank = len(theta_4.value.pivots)
print(f"rank {rank}; ‖θ‖² = {theta_4.value.norm**2:.4f}, as x₁x₂ is the feature √2x₁x₂ with the coefficient 1/√2")

# %%
# The line of N = 1000 rows: right of where it crosses a curve the kernel matrix is the smaller one.

figure, (left, middle) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(3, 2))
d = np.arange(1, 1001)
for (k, style), color in zip({2: "-", 3: "--", 4: "-."}.items(), ("tab:blue", "tab:orange", "tab:red"), strict=True):
    left.loglog(d, [comb(int(n) + k, k) for n in d], style, color=color, label=f"degree {k}")
left.axhline(1000, color="black", linewidth=0.8, linestyle=":", label="N = 1000")
left.set(xlabel="number of variables d", ylabel="number of features p")
left.legend(frameon=False)
middle.hist(scores[labels[test] > 0], bins=20, color="tab:blue", alpha=0.6, label="3")
middle.hist(scores[labels[test] < 0], bins=20, color="tab:orange", alpha=0.6, label="8")
middle.axvline(0, color="black", linewidth=0.8)
middle.set(xlabel="score θᵀF(x)", ylabel="images", title=f"{right:.1%} right")
middle.legend(frameon=False)
plt.show()
