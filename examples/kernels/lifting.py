r"""
Lifting: separated by a plane in another space
==============================================

.. math:: \text{minimize} \quad \|\theta\|^2 \quad \text{subject to} \quad y_i(\theta^\top F(x_i) + b) \ge 1

No point on a line separates the inside of an interval from its outside, and no line in the plane separates a disk from
what is around it. After a map F one does: the parabola :math:`x \mapsto (x, x^2)`, squares
:math:`x \mapsto (x_1^2, x_2^2)`, or polar coordinates :math:`x \mapsto (r, \varphi)`. The separator of largest margin
:math:`1/\|\theta\|` there is a boundary of another shape where the points are.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Three maps, each a kernel F(x)ᵀF(z).


def parabola(X):
    return np.hstack([X, X**2])


def squares(X):
    return X**2


def polar(X):
    return np.column_stack([np.hypot(X[:, 0], X[:, 1]), np.arctan2(X[:, 1], X[:, 0])])


# %%
# Points in and around the interval [1, 2.5], and in and around a disk.

rng = np.random.default_rng(0)
x = np.array([0.0, 0.3, 0.6, 1.1, 1.5, 1.8, 2.4, 3.0, 3.3, 3.9])[:, None]
x_labels = np.where((x[:, 0] > 1) & (x[:, 0] < 2.5), 1, -1)
radius, angle = np.append(rng.uniform(0.2, 0.9, 40), rng.uniform(1.3, 1.9, 60)), rng.uniform(-np.pi, np.pi, 100)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
X_labels = np.where(radius < 1, 1, -1)

# %%
# The problem is the same for the three of them, typed as above. Before it is lifted there is no separator:


def separate(kernel, X, y):
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [ko.margin(y, theta(X) + b) >= 1])
    problem.solve()
    return problem, theta, b


for points, labels in ((x, x_labels), (X, X_labels)):
    print(f"{points.shape[1]} columns, not lifted: {separate(ko.kernels.Linear(), points, labels)[0].status}")

# %%
# With p = 2 features each, θ can be looked at.

cases = {"parabola": (parabola, x, x_labels), "squares": (squares, X, X_labels), "polar": (polar, X, X_labels)}
found = {}
for name, (F, points, labels) in cases.items():
    problem, theta, b = separate(ko.kernels.Explicit(F), points, labels)
    f = theta.value
    entries = F(f.centers).T @ f.coefficients
    found[name] = entries, b.value, theta, b
    support = np.abs(theta(points).dual_value) > 1e-6 * np.abs(theta(points).dual_value).max()
    print(
        f"{name:>8}: {problem.status}, θ = ({entries[0]:.4f}, {entries[1]:.4f}), b = {b.value:.4f}, "
        f"margin {1 / f.norm:.4f}, {support.sum()} support vectors"
    )

# %%
# Back on the line, θ₁x + θ₂x² + b = 0 has two roots: the ends of the interval that was found.

entries, offset, *_ = found["parabola"]
ends = np.sort(np.roots([entries[1], entries[0], offset]).real)
print(f"from {ends[0]:.4f} to {ends[1]:.4f}")

# %%
# θ₁x₁² + θ₂x₂² + b = 0 is an ellipse. In polar coordinates θ₁r + θ₂φ + b = 0 is a spiral that widens slowly: the map
# knows nothing of the symmetry, and the boundary has a jump where φ does, at the negative x₁ axis.

entries, offset, *_ = found["squares"]
axes_of_ellipse = np.sqrt(-offset / entries)
entries, offset, *_ = found["polar"]
ends_of_spiral = -(offset + entries[1] * np.array([-np.pi, np.pi])) / entries[0]
print("half axes of the ellipse", axes_of_ellipse.round(4))
print("radius of the spiral at φ = −π and π", ends_of_spiral.round(4))

# %%
# Above the points where they are lifted to, with the separator and its margins; below where they came from.

classes = ((-1, "o", "#0072B2"), (1, "s", "#D55E00"))
figure, axes = plt.subplots(2, 3, figsize=(10, 6.5), layout="constrained")
titles = {"parabola": ("x", "x²"), "squares": ("x₁²", "x₂²"), "polar": ("r", "φ")}
for (name, (F, points, labels)), (above, below) in zip(cases.items(), axes.T, strict=True):
    lifted, (w, offset, *_) = F(points), found[name]
    for label, marker, color in classes:
        above.plot(*lifted[labels == label].T, marker, color=color, markersize=4)
    a = np.linspace(*above.get_xlim(), 50)
    c = np.linspace(*above.get_ylim(), 50)
    plane = w[0] * a + w[1] * c[:, None] + offset
    above.contour(
        a, c, plane, levels=[-1, 0, 1], colors="black", linestyles=["--", "-", "--"], linewidths=[0.8, 1.5, 0.8]
    )
    above.set(title=name, xlabel=titles[name][0], ylabel=titles[name][1])
    if name == "parabola":
        fine = np.linspace(-0.2, 4.1, 200)
        above.plot(fine, fine**2, color="0.7", zorder=0)
        for label, marker, color in classes:
            below.plot(points[labels == label, 0], 0 * points[labels == label, 0], marker, color=color, markersize=4)
        below.axvspan(*ends, color="#D55E00", alpha=0.15)
        below.vlines(ends, -1, 1, color="black", linewidth=1.5)
        below.set(xlabel="x", yticks=[], ylim=(-1, 1))
    else:
        theta, b = found[name][2:]
        ko.plots.decision_regions(lambda X, theta=theta, b=b: theta(X) + b, points, labels, ax=below)
        below.get_legend().remove()
        below.set_aspect("equal")
plt.show()
