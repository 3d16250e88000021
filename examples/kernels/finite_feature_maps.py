r"""
A finite θ, with and without a kernel
=====================================

.. math:: \text{minimize} \quad \sum_i |y_i - \theta^\top F(x_i)| + \lambda\|\theta\|^2

Where F(x) has a finite number p of entries, θ can be a cvxpy variable, and the problem
an ordinary one. The kernel problem uses only :math:`\kappa(x, z) = F(x)^\top F(z)`, and
has the same solution: at the optimum θ is a combination of the F(xᵢ), for any loss.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are values along a curve with a corner, with some gross errors.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 4, size=(60, 1)), axis=0)
y = np.abs(X[:, 0] - 2.5) + 0.1 * rng.normal(size=60)
y[::12] += 2

# %%
# Four feature maps
# -----------------
# ``Explicit`` makes a kernel from a function of the points: here a constant and ramps
# max(0, x − k/2), whose combinations are piecewise linear. ``Linear`` and
# ``Polynomial`` have ``kernel.features``. A Gaussian has infinitely many features;
# ``FeatureMap`` finds the r that matter at given points, where F(x)ᵀF(z) = κ(x, z) up
# to a tolerance.


def ramps(X):
    return np.hstack([np.ones_like(X), np.maximum(0, X - np.arange(8) / 2)])


gaussian = ko.kernels.Gaussian(sigma=0.5)
learned = ko.estimators.FeatureMap(gaussian, rank_tol=1e-10).fit(X)
kernels = {
    "ramps": (ko.kernels.Explicit(ramps), ramps),
    "linear": (ko.kernels.Linear(), ko.kernels.Linear().features),
    "polynomial": (
        ko.kernels.Polynomial(degree=3),
        ko.kernels.Polynomial(degree=3).features,
    ),
    "gaussian": (gaussian, learned.transform),
}

# %%
# The same problem, twice
# -----------------------
# For each map, cvxpy solves the problem in θ ∈ Rᵖ, and kernelopt the kernel problem. In
# the picture the kernel fits are lines, and the fits in θ ∈ Rᵖ crosses.

grid, lam = np.linspace(0, 4, 300)[:, None], 0.05
explicit, fitted, found = {}, {}, {}
print("features      p  in θ ∈ Rᵖ  by kernel  largest difference of predictions")
for name, (kernel, features) in kernels.items():
    F = features(X)
    theta_p = cp.Variable(F.shape[1])
    errors, square = cp.norm1(y - F @ theta_p), cp.sum_squares(theta_p)
    plain = cp.Problem(cp.Minimize(errors + lam * square))
    plain.solve(solver="CLARABEL")
    explicit[name] = features(grid) @ theta_p.value

    theta = ko.Theta(kernel)
    errors, square = cp.norm1(y - theta(X)), ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(errors + lam * square))
    problem.solve(tol=1e-8)
    fitted[name] = theta.value(grid)

    found[name] = plain, problem, theta_p.value, theta.value
    apart = np.abs(fitted[name] - explicit[name]).max()
    values = f"{plain.value:.7f}  {problem.value:.7f}"
    print(f"{name:<10} {F.shape[1]:4d}  {values}  {apart:.0e}")

fig, ax = plt.subplots()
ax.plot(X, y, "o", color="0.7", label="data")
for name, curve in fitted.items():
    ax.plot(grid, curve, label=name)
for curve in explicit.values():
    ax.plot(grid[::15], curve[::15], "x", color="black", markersize=5)
ax.plot([], [], "x", color="black", label="in θ ∈ Rᵖ")
ax.set(xlabel="x", ylabel="θᵀF(x)")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# The entries of θ
# ----------------
# The kernel's answer gives them: θ = Σᵢ cᵢF(zᵢ), with the centers zᵢ and the
# coefficients cᵢ of ``theta.value``. They are the value at 0, the slope there, and its
# changes at ½, 1, …

f = found["ramps"][3]
entries = ramps(f.centers).T @ f.coefficients
print("by kernel ", entries.round(3))
print("in θ ∈ R⁹ ", found["ramps"][2].round(3))
names = ["1", *(f"(x−{k / 2:g})₊" for k in range(8))]
fig, ax = plt.subplots()
ax.bar(names, entries, color="C0", alpha=0.5, label="by kernel")
ax.plot(names, found["ramps"][2], "x", color="black", markersize=6, label="in θ ∈ R⁹")
ax.axhline(0, color="black", linestyle="-", linewidth=0.5)
ax.tick_params(axis="x", labelsize=9)
ax.set(xlabel="feature", ylabel="entry of θ")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# From cvxpy
# ----------
# A problem written for an explicit θ need not be written again. ``from_cvxpy`` takes
# the constant that is the feature matrix. It checks that the theorem covers every use
# of θ, and returns the kernel problem. A solve sets the value of the old variable too.

Phi, t = cp.Constant(ramps(X)), cp.Variable(9, name="t")
objective = cp.Minimize(cp.norm1(y - Phi @ t) + lam * cp.sum_squares(t))
written = cp.Problem(objective, [Phi[:5] @ t >= 2.6])
A = ko.FeatureMatrix(X, ko.kernels.Explicit(ramps))
translated = ko.Problem.from_cvxpy(written, theta=t, features={Phi: A})
translated.solve(tol=1e-8)
by_kernel = t.value
written.solve(solver="CLARABEL")
apart = np.abs(by_kernel - t.value).max()
print(f"with a constraint: {translated.value:.7f} and {written.value:.7f}")
print(f"largest difference of θ: {apart:.0e}")

# %%
# What the theorem does not cover is refused. With a bound on one entry, an optimal θ
# need not be a combination of the F(xᵢ).

bounded = cp.Problem(written.objective, [t[3] <= 0])
try:
    ko.Problem.from_cvxpy(bounded, theta=t, features={Phi: A})
except ko.errors.RepresenterError as error:
    print(error)
