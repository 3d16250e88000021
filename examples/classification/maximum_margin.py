r"""
The maximum margin, and its dual
================================

.. math::

    \begin{array}{ll}
    \text{minimize}   & \tfrac12\|\theta\|^2 \\
    \text{subject to} & y_i\,(\theta^\top F(x_i) + b) \ge 1, \quad i = 1, \dots, N
    \end{array}

Of all hyperplanes that separate two classes this one is farthest from the nearest point, at a distance of 1/‖θ‖.
Its dual is a quadratic program with one number αᵢ for each row. The rows with αᵢ > 0, the support vectors, are all
that the solution depends on.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Two classes in the plane that a line separates.

rng = np.random.default_rng(4)
y = np.repeat([-1, 1], 25)
X = rng.normal(size=(50, 2)) + 2.5 * y[:, None] * [1, 0.6]

# %%
# The problem as it is written, with the linear kernel, F(x) = x.


def maximum_margin(kernel, X, y):
    """The solved problem, its θ and b."""
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    A = ko.FeatureMatrix(X, kernel)
    problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta)), [cp.multiply(y, A @ theta + b) >= 1])
    problem.solve(tol=1e-12)
    return problem, theta, b


linear = ko.kernels.Linear()
problem, theta, b = maximum_margin(linear, X, y)
alpha = problem.constraints[0].dual_value
print(problem.explain())

# %%
# The dual in plain cvxpy, with Y = diag(y): maximize :math:`\mathbf{1}^\top\alpha - \tfrac12\alpha^\top YQY\alpha`
# subject to α ≥ 0 and yᵀα = 0. Its optimal value is that of the primal problem, and its solution the multipliers of
# the margins.


def dual(Q, y):
    """The optimal value and solution of the dual problem."""
    alpha = cp.Variable(len(y))
    YQY = cp.psd_wrap(Q * np.outer(y, y))
    plain = cp.Problem(cp.Maximize(cp.sum(alpha) - 0.5 * cp.quad_form(alpha, YQY)), [alpha >= 0, y @ alpha == 0])
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return plain.value, alpha.value


dual_value, dual_alpha = dual(linear(X), y)
print(f"primal {problem.value:.10f}, dual {dual_value:.10f}")
print(f"largest difference of the multipliers and the dual solution: {np.abs(alpha - dual_alpha).max():.1e}")

# %%
# θ = Σ αᵢyᵢF(xᵢ). Points in general position have no more than d + 1 support vectors, d the dimension of the feature
# space: that many equalities determine θ and b. In the plane these are three at most, also in 40 other draws. Each of
# them tells b, since its margin is 1: b = yᵢ − θᵀF(xᵢ).

support = np.flatnonzero(alpha > 1e-6 * alpha.max())
b_from_support = y[support] - theta.value(X[support])
print(
    f"{len(support)} support vectors of {len(y)} rows; b = {b.value:.8f}, from each of them {b_from_support.round(8)}"
)

counts = []
for _ in range(40):
    Z = rng.normal(size=(50, 2)) + 3.5 * y[:, None] * [1, 0.6]
    multipliers = maximum_margin(linear, Z, y)[0].constraints[0].dual_value
    counts.append(int(np.sum(multipliers > 1e-6 * multipliers.max())))
print("draws with 1, 2, 3, … support vectors:", np.bincount(counts)[1:])

# %%
# The same lines with a Gaussian kernel separate what no line separates: a ring around a cluster. Its feature space has
# infinitely many dimensions, and d + 1 is no limit any more.

radius = np.where(y > 0, 1.0, 3.0) * (1 + 0.2 * rng.normal(size=50))
angle = rng.uniform(0, 2 * np.pi, size=50)
rings = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
gaussian = ko.kernels.Gaussian(sigma=1.5)
curved, theta_curved, b_curved = maximum_margin(gaussian, rings, y)
alpha_curved = curved.constraints[0].dual_value
curved_value, curved_alpha = dual(gaussian(rings), y)
support_curved = np.flatnonzero(alpha_curved > 1e-6 * alpha_curved.max())
print(f"Gaussian: {curved.status}, primal {curved.value:.8f}, dual {curved_value:.8f}")
print(f"{len(support_curved)} support vectors, distance to the boundary {1 / theta_curved.value.norm:.4f}")

# %%
# The boundary f = 0, the margins f = ±1 (dashed), and the support vectors (circled).

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
ko.plots.decision_regions(lambda Z: theta(Z) + b, X, y, ax=axes[0])
ko.plots.decision_regions(lambda Z: theta_curved(Z) + b_curved, rings, y, ax=axes[1])
for panel, title in zip(axes, ("linear kernel", "Gaussian kernel, σ = 1.5"), strict=True):
    panel.set_title(title)
    panel.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()
