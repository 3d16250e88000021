r"""
The kernel perceptron
=====================

.. math:: f(x) = \eta\sum_{i=1}^N m_i y_i\,(\kappa(x_i, x) + 1),
    \qquad m_i \leftarrow m_i + 1 \;\text{ whenever }\; y_i f(x_i) \le 0

Rosenblatt's rule goes through the rows and adds yᵢF(xᵢ) to θ at each mistake, so that the coefficients are counts of
mistakes. If some function separates the rows, with a margin γ, there are no more than (R/γ)² mistakes in all (Novikoff,
1962). The best γ is the optimum of a convex problem, and its certificate makes the bound a proven number.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Two classes on both sides of a wave, with a gap between them.


def waves(gap, seed=0):
    """50 points whose distance from the wave, in the direction x₂, is at least the gap; and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=50)
    x = rng.uniform(-2, 2, size=50)
    return np.column_stack([x, np.sin(2 * x) + y * (gap + rng.exponential(0.5, size=50))]), y


X, y = waves(0.15)
kernel = ko.kernels.Gaussian(sigma=0.7)

# %%
# The rule, written out. The feature 1, for an intercept, adds 1 to the kernel.

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
print(f"{m.sum()} mistakes on {np.sum(m > 0)} rows in {passes} passes, the last without one")

# %%
# ``KernelPerceptron`` counts the same. The learning rate η scales f, and no prediction.

model = ko.estimators.KernelPerceptron(kernel=kernel).fit(X, y)
slow = ko.estimators.KernelPerceptron(kernel=kernel, learning_rate=0.01).fit(X, y)
print("the same counts:", np.array_equal(model.mistakes_, m), np.array_equal(slow.mistakes_, m))
grid = np.random.default_rng(1).uniform(-2, 2, size=(500, 2))
scaled = slow.decision_function(grid) / model.decision_function(grid)
print(f"η = 0.01 scales f by {scaled.min():.6f} to {scaled.max():.6f}")

# %%
# Novikoff's theorem: with the separating function of least norm, minimize ‖θ‖² subject to yᵢθᵀF(xᵢ) ≥ 1, the margin is
# γ = 1/‖θ‖, and the number of mistakes at most R²‖θ‖² with R² = max κ(x, x) + 1. The certificate's upper bound of the
# minimum, times R², is a bound that holds whatever the solver did; its lower bound says that no other θ proves less.


def novikoff(X, y):
    """R² times the certified enclosure of min ‖θ‖²."""
    with_one = kernel + ko.kernels.Constant(1.0)
    theta, A = ko.Theta(with_one), ko.FeatureMatrix(X, with_one)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.multiply(y, A @ theta) >= 1])
    problem.solve()
    return theta, A.diag().max() * np.array([problem.certificate.lower, problem.certificate.upper])


theta, (lower, bound) = novikoff(X, y)
margin = 1 / theta.value.norm
print(f"margin γ = {margin:.4f}; at most {bound:.2f} mistakes are possible, and {m.sum()} were made")
print(f"no θ proves less than {lower:.2f}")

# %%
# The narrower the gap, the more mistakes, and the larger the bound.

gaps = np.geomspace(0.05, 1.6, 7)
counted, bounds = [], []
for gap in gaps:
    data = waves(gap)
    model_of_gap = ko.estimators.KernelPerceptron(kernel=kernel).fit(*data)
    counted.append(model_of_gap.mistakes_.sum())
    bounds.append(novikoff(*data)[1][1])
    print(f"gap {gap:.2f}: {counted[-1]:4d} mistakes, at most {bounds[-1]:.1f}")

# %%
# The perceptron stops at the first function that separates; that of maximum margin is as far from both classes as can
# be. Both margins are min yᵢf(xᵢ)/‖f‖, where 1 counts in the norm. The size of a marker shows its mistakes.

f = y * model.decision_function(X)
length = np.sqrt(m * y @ Q @ (m * y))
print(f"margin of the perceptron {f.min() / length:.4f}, largest margin {margin:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
first, second = np.meshgrid(np.linspace(-2.1, 2.1, 150), np.linspace(-2.1, 2.1, 150))
points = np.column_stack([first.ravel(), second.ravel()])
for name, f, color, style in (
    ("perceptron", model.decision_function(points), "tab:blue", "-"),
    ("maximum margin", theta.value(points), "tab:red", "--"),
):
    left.contour(first, second, f.reshape(first.shape), levels=[0], colors=color, linestyles=style)
    left.plot([], [], color=color, linestyle=style, label=name)
for label, marker, color in ((1, "s", "0.3"), (-1, "o", "0.65")):
    rows = y == label
    left.scatter(*X[rows].T, s=12 + 25 * m[rows], marker=marker, color=color, linewidths=0)
left.set(xlabel="x₁", ylabel="x₂", ylim=(-2.1, 2.1), title=f"{m.sum()} mistakes on {np.sum(m > 0)} rows")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)
right.loglog(gaps, bounds, "s--", color="tab:orange", label="bound (R/γ)²")
right.loglog(gaps, counted, "o-", color="tab:blue", label="mistakes made")
right.set(xlabel="gap between the classes", ylabel="mistakes")
right.legend(frameon=False)
plt.show()
