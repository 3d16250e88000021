r"""
A finite θ, with and without a kernel
=====================================

.. math:: \text{minimize} \quad \sum_i |y_i - \theta^\top F(x_i)| + \lambda\|\theta\|^2

Where F(x) has a finite number p of entries, θ can be a cvxpy variable, and the problem an ordinary one. The kernel
problem, which knows :math:`\kappa(x, z) = F(x)^\top F(z)` alone, has the same solution: θ is a combination of the
F(xᵢ) at the optimum, for any loss.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Values along a curve with a corner, and some gross errors.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 4, size=(60, 1)), axis=0)
y = np.abs(X[:, 0] - 2.5) + 0.1 * rng.normal(size=60)
y[::12] += 2

# %%
# Four feature maps. A function of the points makes a kernel by ``Explicit``: here a constant and ramps
# max(0, x − k/2), whose combinations are piecewise linear. ``Linear`` and ``Polynomial`` have their features in
# ``kernel.features``. A Gaussian has infinitely many; ``FeatureMap`` finds the r that matter at given points,
# F(x)ᵀF(z) = κ(x, z) there up to a tolerance.


def ramps(X):
    return np.hstack([np.ones_like(X), np.maximum(0, X - np.arange(8) / 2)])


gaussian = ko.kernels.Gaussian(sigma=0.5)
learned = ko.estimators.FeatureMap(gaussian, rank_tol=1e-10).fit(X)
kernels = {
    "ramps": (ko.kernels.Explicit(ramps), ramps),
    "linear": (ko.kernels.Linear(), ko.kernels.Linear().features),
    "polynomial": (ko.kernels.Polynomial(degree=3), ko.kernels.Polynomial(degree=3).features),
    "gaussian": (gaussian, learned.transform),
}

# %%
# For each the problem in θ ∈ Rᵖ, by cvxpy, and the kernel problem.

grid, lam = np.linspace(0, 4, 300)[:, None], 0.05
explicit, fitted, found = {}, {}, {}
print("features      p  in θ ∈ Rᵖ  by kernel  largest difference of predictions")
for name, (kernel, features) in kernels.items():
    F = features(X)
    theta_p = cp.Variable(F.shape[1])
    plain = cp.Problem(cp.Minimize(cp.norm1(y - F @ theta_p) + lam * cp.sum_squares(theta_p)))
    plain.solve(solver="CLARABEL")
    explicit[name] = features(grid) @ theta_p.value

    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-8)
    fitted[name] = theta.value(grid)

    found[name] = plain, problem, theta_p.value, theta.value
    apart = np.abs(fitted[name] - explicit[name]).max()
    print(f"{name:<10} {F.shape[1]:4d}  {plain.value:.7f}  {problem.value:.7f}  {apart:.0e}")

# %%
# The entries of θ come back from the kernel's answer: θ = Σᵢ cᵢF(zᵢ), with the centers zᵢ and the coefficients cᵢ of
# ``theta.value``. They are the value at 0, the slope there, and its changes
# at ½, 1, …

f = found["ramps"][3]
entries = ramps(f.centers).T @ f.coefficients
print("by kernel ", entries.round(3))
print("in θ ∈ R⁹ ", found["ramps"][2].round(3))

# %%
# A problem that was written for an explicit θ needs not be written again. ``from_cvxpy`` is told which constant is the
# feature matrix, checks that the theorem covers every use of θ, and solves the kernel problem in its place. The value
# of the old variable is set, too.

Phi, t = cp.Constant(ramps(X)), cp.Variable(9, name="t")
written = cp.Problem(cp.Minimize(cp.norm1(y - Phi @ t) + lam * cp.sum_squares(t)), [Phi[:5] @ t >= 2.6])
A = ko.FeatureMatrix(X, ko.kernels.Explicit(ramps))
translated = ko.Problem.from_cvxpy(written, theta=t, features={Phi: A})
translated.solve(tol=1e-8)
by_kernel = t.value
written.solve(solver="CLARABEL")
print(
    f"with a constraint: {translated.value:.7f} and {written.value:.7f}; θ differ by "
    f"{np.abs(by_kernel - t.value).max():.0e}"
)

# %%
# What the theorem does not cover is refused: with a bound on one entry, θ need not be a combination of the F(xᵢ) any
# more.

bounded = cp.Problem(written.objective, [t[3] <= 0])
try:
    ko.Problem.from_cvxpy(bounded, theta=t, features={Phi: A})
except ko.errors.RepresenterError as error:
    print(error)

# %%
# The two fits of each kind lie on each other; so do the entries of θ.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(X, y, "o", color="0.7", markersize=3)
colors = {"ramps": "tab:blue", "linear": "0.4", "polynomial": "tab:red", "gaussian": "tab:orange"}
for name, color in colors.items():
    left.plot(grid, fitted[name], color=color, linewidth=4, alpha=0.4, label=name)
    left.plot(grid, explicit[name], ":", color="black", linewidth=1)
left.plot([], [], ":", color="black", linewidth=1, label="in θ ∈ Rᵖ")
left.set(xlabel="x", ylabel="θᵀF(x)", ylim=(-0.3, 6))
left.legend(frameon=False, ncols=3, loc="upper center")
names = ["1", *(f"(x−{k / 2:g})₊" for k in range(8))]
right.bar(names, entries, color="tab:blue", alpha=0.4, label="by kernel")
right.plot(names, found["ramps"][2], "o", color="black", markersize=4, label="in θ ∈ R⁹")
right.axhline(0, color="black", linewidth=0.5)
right.tick_params(axis="x", labelrotation=45)
right.set(ylabel="entries of θ", xlabel="feature")
right.legend(frameon=False)
plt.show()
