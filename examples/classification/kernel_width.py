r"""
The width of a Gaussian kernel
==============================

.. math:: \kappa(x, z) = \exp\Bigl(-\frac{\|x - z\|^2}{2\sigma^2}\Bigr)
    = e^{-\|x\|^2/2\sigma^2} \Bigl(1 + \frac{x^\top z}{\sigma^2} + \frac{(x^\top z)^2}{2\sigma^4} + \cdots\Bigr)
      \, e^{-\|z\|^2/2\sigma^2}

For a large width σ the terms after the square hardly count: the kernel is nearly a polynomial one of degree 2, and
the boundary of a support vector machine nearly a conic. For a small σ the nearest point outweighs all others, and the
boundary is that of the nearest neighbour. Both are measured here.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import PolynomialFeatures

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Points inside and outside of an ellipse, not quite: its border is noisy.

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(100, 2))
y = np.where((X[:, 0] / 1.6) ** 2 + (X[:, 1] / 0.9) ** 2 + 0.25 * rng.normal(size=100) < 1, 1, -1)
side = np.linspace(-2, 2, 121)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

# %%
# A support vector machine for each σ. With a Gaussian kernel no intercept is needed. The features of degree 2 shrink
# like 1/σ², so that λ must shrink like 1/σ⁴ for θ to reach them, and the features of degree 3 stay out of reach.


def machine(kernel, lam):
    """θ for Σ max(0, 1 − yᵢθᵀF(xᵢ)) + λ‖θ‖², as a function of points."""
    theta = ko.Theta(kernel)
    hinge = cp.sum(ko.losses.hinge(y, theta(X)))
    ko.Problem(cp.Minimize(hinge + lam * ko.sum_squares(theta))).solve(tol=1e-10)
    return theta.value


# %%
# The first three terms in brackets are the kernel ½ + ½(1 + xᵀz/σ²)², whose machine has a conic as its boundary. The
# Gaussian's f is compared with that one, and with the quadratic function that fits it best on the grid; what is left
# over is measured in units of how much f varies. Each doubling of σ divides the distance to a quadratic by 2.3 to 4;
# 4 is the rate 1/σ² of the first term that is left out.

monomials = PolynomialFeatures(2).fit_transform(grid)
fits, large = {}, []
for sigma in (1.0, 2.0, 4.0, 8.0, 16.0):
    f = fits[sigma] = machine(ko.kernels.Gaussian(sigma=sigma), 0.3 * sigma**-4)
    bracket = ko.kernels.Constant(0.5) + 0.5 * ko.kernels.Polynomial(degree=2, scale=sigma**-2)
    degree_2 = machine(bracket, 0.3 * sigma**-4)(grid)
    quadratic = monomials @ np.linalg.lstsq(monomials, f(grid))[0]
    spread = np.linalg.norm(f(grid) - f(grid).mean())
    large.append((sigma, *(np.linalg.norm(f(grid) - other) / spread for other in (quadratic, degree_2))))
    print("σ = {:4g}: f from a quadratic {:.4f}, from the machine of degree 2 {:.4f}".format(*large[-1]))

# %%
# The other way, for σ → 0, each row's own term outweighs all others near it, and the sign of f becomes the label of the
# nearest row.

nearest = KNeighborsClassifier(1).fit(X, y).predict(grid)
small = []
for sigma in (0.5, 0.2, 0.1, 0.05, 0.02):
    f = fits[sigma] = machine(ko.kernels.Gaussian(sigma=sigma), 0.3)
    small.append((sigma, np.mean(np.sign(f(grid)) == nearest)))
    print("σ = {:4g}: decides as the nearest neighbour at {:.2%} of the grid".format(*small[-1]))

# %%
# Dashed: the zeros of the best quadratic at σ = 8, and the boundary of the nearest neighbour at σ = 0.02.

figure, panels = plt.subplots(1, 3, figsize=(11, 4.1), layout="constrained", sharey=True)
shape = len(side), len(side)
conic = monomials @ np.linalg.lstsq(monomials, fits[8.0](grid))[0]
for axes, sigma, dashed in zip(panels, (8.0, 0.5, 0.02), (conic, None, nearest), strict=True):
    decided = np.sign(fits[sigma](grid)).reshape(shape)
    axes.contourf(side, side, decided, levels=[-2, 0, 2], colors=["tab:blue", "tab:orange"], alpha=0.25)
    for label, marker, color in ((1, "s", "tab:orange"), (-1, "o", "tab:blue")):
        axes.scatter(*X[y == label].T, s=16, marker=marker, color=color, edgecolors="black", linewidths=0.4)
    if dashed is not None:
        axes.contour(side, side, dashed.reshape(shape), levels=[0], colors="black", linestyles="--", linewidths=1)
    axes.set(title=f"σ = {sigma:g}", xlabel="x₁", aspect="equal")
panels[0].set_ylabel("x₂")
plt.show()
