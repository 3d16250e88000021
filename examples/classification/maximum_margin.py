r"""
The maximum margin, and its dual
================================

.. math::

    \begin{array}{ll}
    \text{minimize}   & \tfrac12\|\theta\|^2 \\
    \text{subject to} & y_i\,(\theta^\top F(x_i) + b) \ge 1, \quad i = 1, \dots, N
    \end{array}

Of all hyperplanes that separate two classes, this one has the largest distance to the
nearest point, 1/‖θ‖. Its dual is a quadratic program with one number αᵢ per row. The
solution depends only on the rows with αᵢ > 0, the support vectors.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# A line separates two classes in the plane.

rng = np.random.default_rng(4)
y = np.repeat([-1, 1], 25)
X = rng.normal(size=(50, 2)) + 2.5 * y[:, None] * [1, 0.6]

# %%
# The problem
# -----------
# With the linear kernel, F(x) = x. The picture shows the boundary f = 0, the margins f
# = ±1 (dashed), and the support vectors (circled).


def maximum_margin(kernel, X, y):
    """The solved problem, its θ and b."""
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    A = ko.FeatureMatrix(X, kernel)
    margins = cp.multiply(y, A @ theta + b)
    problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta)), [margins >= 1])
    problem.solve(tol=1e-12)
    return problem, theta, b


linear = ko.kernels.Linear()
problem, theta, b = maximum_margin(linear, X, y)
alpha = problem.constraints[0].dual_value
print(problem.explain())
ax = ko.plots.decision_regions(lambda Z: theta(Z) + b, X, y)
ax.set_title("linear kernel")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# The dual problem
# ----------------
# With Y = diag(y), maximize :math:`\mathbf{1}^\top\alpha - \tfrac12\alpha^\top
# YQY\alpha` subject to α ≥ 0 and yᵀα = 0. In plain cvxpy, its optimal value is that of
# the primal problem, and its solution equals the multipliers of the margins.


def dual(Q, y):
    """The optimal value and solution of the dual problem."""
    alpha = cp.Variable(len(y))
    YQY = cp.psd_wrap(Q * np.outer(y, y))
    objective = cp.Maximize(cp.sum(alpha) - 0.5 * cp.quad_form(alpha, YQY))
    plain = cp.Problem(objective, [alpha >= 0, y @ alpha == 0])
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return plain.value, alpha.value


dual_value, dual_alpha = dual(linear(X), y)
print(f"primal {problem.value:.10f}, dual {dual_value:.10f}")
apart = np.abs(alpha - dual_alpha).max()
print(f"largest difference of the multipliers and the dual solution: {apart:.1e}")

# %%
# How many support vectors
# ------------------------
# θ = Σ αᵢyᵢF(xᵢ). Points in general position have at most d + 1 support vectors, where
# d is the dimension of the feature space: so many equalities determine θ and b. In the
# plane these are at most three, also in 40 other draws. Each support vector gives b,
# since its margin is 1: b = yᵢ − θᵀF(xᵢ).

support = np.flatnonzero(alpha > 1e-6 * alpha.max())
b_from_support = y[support] - theta.value(X[support])
print(f"{len(support)} support vectors of {len(y)} rows")
print(f"b = {b.value:.8f}, from each of them {b_from_support.round(8)}")

counts = []
for _ in range(40):
    Z = rng.normal(size=(50, 2)) + 3.5 * y[:, None] * [1, 0.6]
    multipliers = maximum_margin(linear, Z, y)[0].constraints[0].dual_value
    counts.append(int(np.sum(multipliers > 1e-6 * multipliers.max())))
print("draws with 1, 2, 3, … support vectors:", np.bincount(counts)[1:])

# %%
# A Gaussian kernel
# -----------------
# The same code with a Gaussian kernel separates a ring from the cluster inside, which
# no line does. Its feature space has infinitely many dimensions, so d + 1 is no limit.

radius = np.where(y > 0, 1.0, 3.0) * (1 + 0.2 * rng.normal(size=50))
angle = rng.uniform(0, 2 * np.pi, size=50)
rings = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
gaussian = ko.kernels.Gaussian(sigma=1.5)
curved, theta_curved, b_curved = maximum_margin(gaussian, rings, y)
alpha_curved = curved.constraints[0].dual_value
curved_value, curved_alpha = dual(gaussian(rings), y)
support_curved = np.flatnonzero(alpha_curved > 1e-6 * alpha_curved.max())
print(f"Gaussian: {curved.status}, primal {curved.value:.8f}, dual {curved_value:.8f}")
margin = 1 / theta_curved.value.norm
print(f"{len(support_curved)} support vectors, distance to the boundary {margin:.4f}")

ax = ko.plots.decision_regions(lambda Z: theta_curved(Z) + b_curved, rings, y)
ax.set_title("Gaussian kernel, σ = 1.5")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
