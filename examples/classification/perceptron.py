r"""
The kernel perceptron
=====================

.. math:: f(x) = \eta\sum_{i=1}^N m_i y_i\,(\kappa(x_i, x) + 1),
    \qquad m_i \leftarrow m_i + 1 \;\text{ whenever }\; y_i f(x_i) \le 0

Rosenblatt's rule goes through the rows and adds yᵢF(xᵢ) to θ at each mistake. So the
coefficients count mistakes. If some function separates the rows with a margin γ, there
are at most (R/γ)² mistakes in all (Novikoff, 1962). The best γ is the optimum of a
convex problem, and with its certificate the bound is proven.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Two classes lie on both sides of a wave, with a gap between them.


def waves(gap, seed=0):
    """50 points at least the gap above or below the wave, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=50)
    x = rng.uniform(-2, 2, size=50)
    away = gap + rng.exponential(0.5, size=50)
    return np.column_stack([x, np.sin(2 * x) + y * away]), y


X, y = waves(0.15)
kernel = ko.kernels.Gaussian(sigma=0.7)

# %%
# The rule
# --------
# The feature 1, for an intercept, adds 1 to the kernel.

Q = kernel(X) + 1
m = np.zeros(len(y), dtype=int)
passes = 0
mistaken = True
while mistaken:
    mistaken, passes = False, passes + 1
    for i in range(len(y)):
        if y[i] * (Q[i] @ (m * y)) <= 0:
            m[i] += 1
            mistaken = True
print(f"{m.sum()} mistakes on {np.sum(m > 0)} rows in {passes} passes")

# %%
# ``KernelPerceptron`` counts the same mistakes. The learning rate η scales f and
# changes no prediction.

model = ko.estimators.KernelPerceptron(kernel=kernel).fit(X, y)
slow = ko.estimators.KernelPerceptron(kernel=kernel, learning_rate=0.01).fit(X, y)
same = np.array_equal(model.mistakes_, m), np.array_equal(slow.mistakes_, m)
print("the same counts:", *same)
grid = np.random.default_rng(1).uniform(-2, 2, size=(500, 2))
scaled = slow.decision_function(grid) / model.decision_function(grid)
print(f"η = 0.01 scales f by {scaled.min():.6f} to {scaled.max():.6f}")

# %%
# Novikoff's bound
# ----------------
# The separating function of least norm minimizes ‖θ‖² subject to yᵢθᵀF(xᵢ) ≥ 1. Its
# margin is γ = 1/‖θ‖, so there are at most R²‖θ‖² mistakes, with R² = max κ(x, x) + 1.
# The certificate's upper bound of the minimum, times R², holds whatever the solver did.
# Its lower bound shows that no other θ proves less.


def novikoff(X, y):
    """R² times the certified enclosure of min ‖θ‖²."""
    with_one = kernel + ko.kernels.Constant(1.0)
    theta, A = ko.Theta(with_one), ko.FeatureMatrix(X, with_one)
    margins = cp.multiply(y, A @ theta)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [margins >= 1])
    problem.solve()
    certificate = problem.certificate
    return theta, A.diag().max() * np.array([certificate.lower, certificate.upper])


theta, (lower, bound) = novikoff(X, y)
margin = 1 / theta.value.norm
print(f"margin γ = {margin:.4f}")
print(f"at most {bound:.2f} mistakes are possible, {m.sum()} were made")
print(f"no θ proves less than {lower:.2f}")

# %%
# Two separators
# --------------
# The perceptron stops at the first function that separates the classes. The one of
# maximum margin is as far from both as possible. Both margins are min yᵢf(xᵢ)/‖f‖,
# where 1 counts in the norm. Larger markers have more mistakes.

f = y * model.decision_function(X)
length = np.sqrt(m * y @ Q @ (m * y))
print(f"margin of the perceptron {f.min() / length:.4f}, largest margin {margin:.4f}")

side = np.linspace(-2.1, 2.1, 150)
points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
fig, ax = plt.subplots()
for name, f, color, style in (
    ("perceptron", model.decision_function(points), "C0", "-"),
    ("maximum margin", theta.value(points), "C1", "--"),
):
    lines = {"colors": color, "linestyles": style}
    ax.contour(side, side, f.reshape(150, 150), levels=[0], **lines)
    ax.plot([], [], style, color=color, label=name)
for label, marker, color in ((1, "s", "0.3"), (-1, "o", "0.65")):
    rows = y == label
    style = {"marker": marker, "color": color, "linewidths": 0, "label": f"y = {label}"}
    ax.scatter(*X[rows].T, s=12 + 25 * m[rows], **style)
ax.set(xlabel="x₁", ylabel="x₂", ylim=(-2.1, 2.1))
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# Mistakes and the gap
# --------------------
# The narrower the gap, the more mistakes, and the larger the bound.

gaps = np.geomspace(0.05, 1.6, 7)
counted, bounds = [], []
for gap in gaps:
    data = waves(gap)
    model_of_gap = ko.estimators.KernelPerceptron(kernel=kernel).fit(*data)
    counted.append(model_of_gap.mistakes_.sum())
    bounds.append(novikoff(*data)[1][1])
    print(f"gap {gap:.2f}: {counted[-1]:4d} mistakes, at most {bounds[-1]:.1f}")
fig, ax = plt.subplots()
ax.loglog(gaps, bounds, "s--", color="C1", label="bound (R/γ)²")
ax.loglog(gaps, counted, "o-", color="C0", label="mistakes")
ax.set(xlabel="gap between the classes", ylabel="mistakes")
ax.legend()
plt.show()
