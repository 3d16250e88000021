r"""
The width of a Gaussian kernel
==============================

.. math:: \kappa(x, z) = \exp\Bigl(-\frac{\|x - z\|^2}{2\sigma^2}\Bigr)
    = e^{-\|x\|^2/2\sigma^2}
      \Bigl(1 + \frac{x^\top z}{\sigma^2} + \frac{(x^\top z)^2}{2\sigma^4}
      + \cdots\Bigr)
      \, e^{-\|z\|^2/2\sigma^2}

For a large width σ the terms after the square hardly matter: the kernel is nearly
polynomial of degree 2, and the boundary of a support vector machine nearly a conic. For
a small σ the nearest point outweighs all others, and the boundary is that of the
nearest neighbour. Both are measured here.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import PolynomialFeatures

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The points are inside and outside an ellipse with a noisy border.

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(100, 2))
level = (X[:, 0] / 1.6) ** 2 + (X[:, 1] / 0.9) ** 2 + 0.25 * rng.normal(size=100)
y = np.where(level < 1, 1, -1)
side = np.linspace(-2, 2, 121)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

# %%
# A support vector machine for each σ
# -----------------------------------
# With a Gaussian kernel no intercept is needed. The features of degree 2 shrink like
# 1/σ², so λ must shrink like 1/σ⁴ for θ to reach them. The features of degree 3 stay
# out of reach.


def machine(kernel, lam):
    """θ for Σ max(0, 1 − yᵢθᵀF(xᵢ)) + λ‖θ‖², as a function of points."""
    theta = ko.Theta(kernel)
    hinge = cp.sum(ko.losses.hinge(y, theta(X)))
    ko.Problem(cp.Minimize(hinge + lam * ko.sum_squares(theta))).solve(tol=1e-10)
    return theta.value


def boundaries(f, other, name):
    ax = plt.figure().subplots()
    ax.contourf(side, side, np.sign(f), [-2, 0, 2], colors=["C0", "C1"], alpha=0.2)
    ax.contour(side, side, f, levels=[0], colors="black", linestyles="-")
    ax.plot([], [], "-", color="black", label="machine")
    lines = {"colors": "C1", "linestyles": "--", "linewidths": 2.5}
    ax.contour(side, side, other, levels=[0], **lines)
    ax.plot([], [], "--", color="C1", linewidth=2.5, label=name)
    for label, marker, color in ((1, "s", "C1"), (-1, "o", "C0")):
        style = {"marker": marker, "color": color, "edgecolors": "black"}
        ax.scatter(*X[y == label].T, s=18, linewidths=0.4, **style)
    ax.set(xlabel="x₁", ylabel="x₂", aspect="equal")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


# %%
# A large σ
# ---------
# The first three terms in brackets are the kernel ½ + ½(1 + xᵀz/σ²)², whose machine has
# a conic as its boundary. The Gaussian's f is compared with the f of that machine, and
# with the quadratic function that fits it best on the grid. The distances are relative
# to the variation of f. Each doubling of σ divides the distance to a quadratic by 2.3
# to 4; the first term left out has the rate 1/σ², a division by 4.

monomials = PolynomialFeatures(2).fit_transform(grid)
fits, large = {}, []
for sigma in (1.0, 2.0, 4.0, 8.0, 16.0):
    f = fits[sigma] = machine(ko.kernels.Gaussian(sigma=sigma), 0.3 * sigma**-4)
    bracket = ko.kernels.Constant(0.5) + 0.5 * ko.kernels.Polynomial(
        degree=2, scale=sigma**-2
    )
    degree_2 = machine(bracket, 0.3 * sigma**-4)(grid)
    quadratic = monomials @ np.linalg.lstsq(monomials, f(grid))[0]
    spread = np.linalg.norm(f(grid) - f(grid).mean())
    apart = [np.linalg.norm(f(grid) - g) / spread for g in (quadratic, degree_2)]
    large.append((sigma, *apart))
    line = (
        "σ = {:4g}: distance to a quadratic {:.4f}, to the machine of degree 2 {:.4f}"
    )
    print(line.format(*large[-1]))

shape = len(side), len(side)
conic = monomials @ np.linalg.lstsq(monomials, fits[8.0](grid))[0]
ax = boundaries(fits[8.0](grid).reshape(shape), conic.reshape(shape), "best quadratic")
ax.set_title("σ = 8")
plt.show()

# %%
# A small σ
# ---------
# As σ → 0, the term of each row outweighs all others near it, and the sign of f becomes
# the label of the nearest row.

nearest = KNeighborsClassifier(1).fit(X, y).predict(grid)
small = []
for sigma in (0.5, 0.2, 0.1, 0.05, 0.02):
    f = fits[sigma] = machine(ko.kernels.Gaussian(sigma=sigma), 0.3)
    small.append((sigma, np.mean(np.sign(f(grid)) == nearest)))
    print(
        "σ = {:4g}: same as nearest neighbour at {:.2%} of the grid".format(*small[-1])
    )

decided = np.sign(fits[0.02](grid)).reshape(shape)
ax = boundaries(decided, nearest.reshape(shape), "nearest\nneighbour")
ax.set_title("σ = 0.02")
plt.show()
