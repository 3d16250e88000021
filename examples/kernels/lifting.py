r"""
Lifting: separated by a plane in another space
==============================================

.. math:: \text{minimize} \quad \|\theta\|^2
   \quad \text{subject to} \quad y_i(\theta^\top F(x_i) + b) \ge 1

No point on a line separates the inside of an interval from its outside, and no line in
the plane separates a disk from its surroundings. After a map F a hyperplane does. The
maps here are the parabola :math:`x \mapsto (x, x^2)`, squares :math:`x \mapsto (x_1^2,
x_2^2)`, and polar coordinates :math:`x \mapsto (r, \varphi)`. The separator of largest
margin :math:`1/\|\theta\|` is a boundary of another shape in the space of the points.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Each of three maps makes a kernel F(x)ᵀF(z).


def parabola(X):
    return np.hstack([X, X**2])


def squares(X):
    return X**2


def polar(X):
    return np.column_stack([np.hypot(X[:, 0], X[:, 1]), np.arctan2(X[:, 1], X[:, 0])])


# %%
# The points are in and around the interval [1, 2.5], and in and around a disk.

rng = np.random.default_rng(0)
x = np.array([0.0, 0.3, 0.6, 1.1, 1.5, 1.8, 2.4, 3.0, 3.3, 3.9])[:, None]
x_labels = np.where((x[:, 0] > 1) & (x[:, 0] < 2.5), 1, -1)
radius = np.append(rng.uniform(0.2, 0.9, 40), rng.uniform(1.3, 1.9, 60))
angle = rng.uniform(-np.pi, np.pi, 100)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
X_labels = np.where(radius < 1, 1, -1)

# %%
# One problem for three maps
# --------------------------
# Without a map there is no separator:


def separate(kernel, X, y):
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    separated = ko.margin(y, theta(X) + b) >= 1
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [separated])
    problem.solve()
    return problem, theta, b


for points, labels in ((x, x_labels), (X, X_labels)):
    problem, *_ = separate(ko.kernels.Linear(), points, labels)
    print(f"{points.shape[1]} columns, not lifted: {problem.status}")

# %%
# With a map there is one. With p = 2 features, θ can be printed.

cases = {
    "parabola": (parabola, x, x_labels),
    "squares": (squares, X, X_labels),
    "polar": (polar, X, X_labels),
}
found = {}
for name, (F, points, labels) in cases.items():
    problem, theta, b = separate(ko.kernels.Explicit(F), points, labels)
    f = theta.value
    entries = F(f.centers).T @ f.coefficients
    found[name] = entries, b.value, theta, b
    multipliers = np.abs(theta(points).dual_value)
    support = multipliers > 1e-6 * multipliers.max()
    print(f"{name:>8}: θ = {entries.round(4)}, b = {b.value:.4f}", end=", ")
    print(f"margin {1 / f.norm:.4f}, {support.sum()} support vectors")

# %%
# The parabola
# ------------
# Back on the line, θ₁x + θ₂x² + b = 0 has two roots: the ends of the interval. The
# picture shows the lifted points on the parabola, the separator and its margins, and
# below the points and the interval.

entries, offset, *_ = found["parabola"]
ends = np.sort(np.roots([entries[1], entries[0], offset]).real)
print(f"from {ends[0]:.4f} to {ends[1]:.4f}")
classes = ((-1, "o", "C0"), (1, "s", "C1"))


def lifted(ax, name):
    """The points after the map, the separator and its margins."""
    F, points, labels = cases[name]
    w, offset, *_ = found[name]
    for label, marker, color in classes:
        ax.plot(*F(points)[labels == label].T, marker, color=color, markersize=5)
    first, second = np.linspace(*ax.get_xlim(), 50), np.linspace(*ax.get_ylim(), 50)
    plane = w[0] * first + w[1] * second[:, None] + offset
    style = {"linestyles": ["--", "-", "--"], "linewidths": [0.8, 1.5, 0.8]}
    ax.contour(first, second, plane, levels=[-1, 0, 1], colors="black", **style)


fig, ax = plt.subplots()
lifted(ax, "parabola")
fine = np.linspace(-0.2, 4.1, 200)
ax.plot(fine, fine**2, "-", color="0.75", zorder=0)
for label, marker, color in classes:
    below = x[x_labels == label, 0]
    ax.plot(below, np.full(len(below), -2.0), marker, color=color, markersize=5)
ax.hlines(-2.0, *ends, color="black", linewidth=1.5, zorder=0)
ax.set(xlabel="x", ylabel="x²")
plt.show()

# %%
# Squares and polar coordinates
# -----------------------------
# θ₁x₁² + θ₂x₂² + b = 0 is an ellipse. In polar coordinates θ₁r + θ₂φ + b = 0 is a
# spiral that widens slowly: the map does not have the symmetry of the disk. The
# boundary jumps where φ does, at the negative x₁ axis. The pictures have the lifted
# points above, and the original points below.

entries, offset, *_ = found["squares"]
axes_of_ellipse = np.sqrt(-offset / entries)
entries, offset, *_ = found["polar"]
ends_of_spiral = -(offset + entries[1] * np.array([-np.pi, np.pi])) / entries[0]
print("half axes of the ellipse", axes_of_ellipse.round(4))
print("radius of the spiral at φ = −π and π", ends_of_spiral.round(4))
fig, axes = plt.subplots(2, 2, figsize=(6.4, 6))
titles = {"squares": ("x₁²", "x₂²"), "polar": ("r", "φ")}
for (name, (first, second)), (above, below) in zip(titles.items(), axes.T, strict=True):
    lifted(above, name)
    above.set(title=name, xlabel=first, ylabel=second)
    theta, b = found[name][2:]
    f = lambda X, theta=theta, b=b: theta(X) + b
    ko.plots.decision_regions(f, X, X_labels, ax=below)
    below.get_legend().remove()
    below.set_aspect("equal")
fig.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
plt.show()
