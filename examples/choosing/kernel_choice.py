r"""
Which kernel, and why not by its margin
=======================================

.. math:: m(\kappa) = \max_{\theta,\, b} \; \min_i \; y_i(\theta^\top F(x_i) + b) \,/\
    \|\theta\|

Kernels can be compared by alignment with the labels, by cross-validation, and by the
margin m. But the margin depends on the scale of the kernel. The kernel cκ has the
features :math:`\sqrt c\,F`: its margin is :math:`\sqrt c` times as large, and its
separator is the same. Margins of different kernels compare only after both are brought
to one scale.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# There are 100 points of two classes, 2000 others for a test, and five kernels.

X, y = make_moons(100, noise=0.15, random_state=0)
X_new, y_new = make_moons(2000, noise=0.15, random_state=1)
y, y_new = 2 * y - 1, 2 * y_new - 1
kernels = {
    "linear": ko.kernels.Linear(),
    "quintic": ko.kernels.Polynomial(degree=5),
    "Gauss 0.05": ko.kernels.Gaussian(sigma=0.05),
    "Gauss 0.3": ko.kernels.Gaussian(sigma=0.3),
    "Gauss 3": ko.kernels.Gaussian(sigma=3.0),
}

# %%
# Alignment
# ---------
# It needs no fit: it is the cosine of Q and yyᵀ, both centered.

alignment = {
    name: ko.kernel_alignment(kernel, X, y) for name, kernel in kernels.items()
}

# %%
# Cross-validation
# ----------------
# A support vector machine is judged by the share of wrong labels, for the best of three
# λ. Then its error on the new points is computed with that λ.


def cross_validated(kernel):
    theta, b = ko.Theta(kernel), cp.Variable()
    f = theta(X) + b
    weights, lam = (
        cp.Parameter(len(y), nonneg=True),
        cp.Parameter(nonneg=True, name="lam"),
    )
    fit = weights @ ko.losses.hinge(y, f)
    problem = ko.Problem(cp.Minimize(fit + lam * ko.sum_squares(theta)))
    wrong = lambda problem, test: np.mean(y[test] * f.value[test] <= 0)
    table = ko.cross_validate(problem, weights, lam, [0.01, 0.1, 1.0], loss=wrong)
    weights.value, lam.value = np.ones(len(y)), table.best
    problem.solve()
    return table["mean"].min(), np.mean(y_new * (theta.value(X_new) + b.value) <= 0)


errors = {name: cross_validated(kernel) for name, kernel in kernels.items()}

# %%
# Margins
# -------
# The margin is 1/‖θ‖ for the least ‖θ‖ with :math:`y_i(\theta^\top F(x_i) + b) \ge 1`.
# It is set to 0 where the classes cannot be separated.


def widest(kernel):
    theta, b = ko.Theta(kernel), cp.Variable()
    separated = ko.margin(y, theta(X) + b) >= 1
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [separated])
    problem.solve()
    if problem.status != "optimal":
        return 0.0, None
    return 1 / theta.value.norm, theta.value(X_new) + b.value


margins = {name: widest(kernel)[0] for name, kernel in kernels.items()}

# %%
# The scale of a kernel
# ---------------------
# By these margins the quintic is best. Now it is multiplied by c, and so is the
# Gaussian. The margin follows √c, so it can take any value, while the scores of new
# points stay.

factors = np.array([1.0, 4.0, 100.0])
scaled = {
    name: [widest(c * kernels[name]) for c in factors]
    for name in ("quintic", "Gauss 0.3")
}
for name, found in scaled.items():
    shown = ", ".join(f"{m:.4f}" for m, _ in found)
    moved = max(np.abs(scores - found[0][1]).max() for _, scores in found)
    print(f"{name}: margins {shown} for c = 1, 4, 100; scores differ by {moved:.0e}")

# %%
# One scale
# ---------
# There are two ways. ``kernel.normalized()`` puts all F(x) on the unit sphere, κ(x, x)
# = 1. Or the margin is divided by the radius R of the smallest ball that holds the
# F(xᵢ), with center θ: minimize :math:`\max_i \|F(x_i) - \theta\|^2`, where
# :math:`\|F(x_i) - \theta\|^2 = \kappa(x_i, x_i) - 2\theta^\top F(x_i) + \|\theta\|^2`.
# The picture shows both margins as functions of c.


def radius(kernel):
    center = ko.Theta(kernel)
    farthest = cp.max(kernel.diag(X) - 2 * center(X))
    problem = ko.Problem(cp.Minimize(farthest + ko.sum_squares(center)))
    return np.sqrt(problem.solve())


normalized = {name: widest(kernel.normalized())[0] for name, kernel in kernels.items()}
radii = {name: radius(kernel) for name, kernel in kernels.items()}
relative = {name: margins[name] / radii[name] for name in kernels}
larger = 100 * kernels["quintic"]
print(f"margin/R of the quintic {relative['quintic']:.6f}", end=", ")
print(f"of 100 times the quintic {widest(larger)[0] / radius(larger):.6f}")

fig, ax = plt.subplots()
styles = {"quintic": ("s-", ":", "C1"), "Gauss 0.3": ("o-", "--", "C0")}
for name, (line, flat, color) in styles.items():
    values = [m for m, _ in scaled[name]]
    ax.loglog(factors, values, line, color=color, label=f"margin, c · {name}")
    style = {"color": color, "linestyle": flat, "label": f"margin/R, c · {name}"}
    ax.axhline(relative[name], **style)
ax.set(xlabel="c", ylabel="margin")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# Comparison
# ----------
# Alignment measures only how far Q is from the matrix yyᵀ. It prefers the widest
# Gaussian, which is nearly linear on these points. On one scale, the margin prefers the
# Gaussian that has the fewest errors on new points, as cross-validation does. But it is
# no measure of error: it ranks the narrowest Gaussian second, which has more errors
# than the quintic.

print("              alignment  cross-val.  new points   margin  normalized  margin/R")
for name in kernels:
    left_out, new = errors[name]
    print(
        f"{name:<12}  {alignment[name]:9.3f}  {left_out:10.3f}  {new:10.3f}  "
        f"{margins[name]:7.4f}  {normalized[name]:10.4f}  {relative[name]:8.4f}"
    )
chosen = {
    "alignment": max(alignment, key=alignment.get),
    "cross-validation": min(errors, key=lambda name: errors[name][0]),
    "margin": max(margins, key=margins.get),
    "normalized margin": max(normalized, key=normalized.get),
    "margin/R": max(relative, key=relative.get),
}
for criterion, name in chosen.items():
    print(f"{criterion:>17}: {name}, wrong on {errors[name][1]:.1%} of new points")

# %%
# The boundary of the kernel with the largest margin/R:

theta, b = ko.Theta(kernels[chosen["margin/R"]]), cp.Variable()
separated = ko.margin(y, theta(X) + b) >= 1
ko.Problem(cp.Minimize(ko.sum_squares(theta)), [separated]).solve()
ax = ko.plots.decision_regions(lambda X: theta(X) + b, X, y)
ax.set_title(chosen["margin/R"])
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
