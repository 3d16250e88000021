r"""
Where data lie: one-class machines and smallest spheres
=======================================================

.. math::

    \begin{array}{ll}
    \text{one-class machine} & \text{minimize} \quad \tfrac12\|\theta\|^2 - \rho
      + C\sum_{i=1}^N \max(0,\, \rho - \theta^\top F(x_i)) \\
    \text{smallest sphere} & \text{minimize} \quad R^2
      + C\sum_{i=1}^N \max(0,\, \|F(x_i) - a\|^2 - R^2)
    \end{array}

The first separates most rows from the origin of the feature space by a hyperplane. The
second encloses most rows in a sphere with centre a and radius R. With C = 1/(νN), about
a share ν of the rows is left out. For a Gaussian kernel both are one problem. For a
polynomial kernel they are not.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import OneClassSVM

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are two clusters and a few outliers.

rng = np.random.default_rng(0)
clusters = [
    rng.normal([-1.2, 0], 0.35, size=(45, 2)),
    rng.normal([1.0, 0.6], 0.5, size=(45, 2)),
]
X = np.vstack([*clusters, rng.uniform(-2.5, 2.5, size=(10, 2))])
N, nu = len(X), 0.15
C = 1 / (nu * N)
side = np.linspace(-3.2, 3.2, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

# %%
# The one-class machine
# ---------------------
# Points with θᵀF(x) < ρ are outliers.


def one_class(kernel):
    """The solved problem, and its decision function θᵀF(x) − ρ."""
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
    rho = cp.Variable(name="rho")
    short = cp.sum(cp.pos(rho - A @ theta))
    problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) - rho + C * short))
    problem.solve(tol=1e-12)
    return problem, lambda Z: theta.value(Z) - rho.value


gaussian = ko.kernels.Gaussian(sigma=0.8)
problem, decide = one_class(gaussian)
print(problem.explain())

# %%
# scikit-learn's ``OneClassSVM`` minimizes ½‖θ‖² − νNρ + Σ max(0, ρ − θᵀF(xᵢ)): (νN)²
# times the objective here, at θ and ρ that are νN times as large.

peer = OneClassSVM(nu=nu, gamma=1 / (2 * 0.8**2), tol=1e-10).fit(X)
apart = np.abs(nu * N * decide(grid) - peer.decision_function(grid)).max()
outside, on_or_outside = np.mean(decide(X) < -1e-7), np.mean(decide(X) < 1e-7)
print(f"decision values differ from OneClassSVM's by at most {apart:.1e}")
print(f"share of outliers {outside:.2f} ≤ ν = {nu} ≤ with boundary {on_or_outside:.2f}")

# %%
# The smallest sphere
# -------------------
# As written above, the problem is not convex in (a, R). With the square expanded,
#
# .. math:: \|F(x_i) - a\|^2 - R^2 = \kappa(x_i, x_i) - 2a^\top F(x_i) - s,
#    \qquad s = R^2 - \|a\|^2,
#
# it becomes a convex problem in a and s, in which ‖a‖² is a penalty:
#
# .. math:: \text{minimize} \quad \|a\|^2 + s
#    + C\sum_{i=1}^N \max(0,\, \kappa(x_i, x_i) - 2a^\top F(x_i) - s).
#
# s is free. R² = s + ‖a‖² is not negative as long as CN > 1: otherwise all terms of the
# sum would be positive, and a larger s would lower the sum by more than it costs.


def sphere(kernel, X, C=None):
    """The problem, R and ‖F(x) − a‖² − R²; without C, no row may lie outside."""
    a, A = ko.Theta(kernel, name="a"), ko.FeatureMatrix(X, kernel)
    s = cp.Variable(name="s")
    outside = A.diag() - 2 * (A @ a) - s
    if C is None:
        problem = ko.Problem(cp.Minimize(ko.sum_squares(a) + s), [outside <= 0])
    else:
        loss = C * cp.sum(cp.pos(outside))
        problem = ko.Problem(cp.Minimize(ko.sum_squares(a) + s + loss))
    problem.solve(tol=1e-12)
    radius = np.sqrt(s.value + a.value.norm**2)
    return problem, radius, lambda Z: kernel.diag(Z) - 2 * a.value(Z) - s.value


gaussian_sphere, radius, excess = sphere(gaussian, X, C)
print(gaussian_sphere.explain())

# %%
# A Gaussian kernel: the same
# ---------------------------
# Here κ(x, x) = 1. With s = 1 − 2ρ the sphere's objective is 1 + 2(½‖a‖² − ρ + C Σ
# max(0, ρ − aᵀF(xᵢ))): it is the one-class machine, with a = θ and R² = 1 − 2ρ + ‖θ‖².
# Its decision function is −½ times the function of the sphere.

print(f"value of the sphere {gaussian_sphere.value:.10f}")
print(f"1 + 2 × value of the machine {1 + 2 * problem.value:.10f}")
apart = np.abs(excess(grid) + 2 * decide(grid)).max()
print(f"largest difference of the decision functions: {apart:.1e}")

shape = len(side), len(side)


def picture(hyperplane, ball):
    ax = plt.figure().subplots()
    inside = ball(grid).reshape(shape)
    ax.contourf(side, side, inside, levels=[inside.min(), 0], colors=["C0"], alpha=0.2)
    ax.contour(side, side, inside, levels=[0], colors="C0", linewidths=4)
    plane = hyperplane(grid).reshape(shape)
    ax.contour(side, side, plane, levels=[0], colors="C1", linestyles="--")
    ax.scatter(*X.T, s=12, color="black", linewidths=0)
    ax.plot([], [], "-", color="C0", linewidth=4, label="smallest sphere")
    ax.plot([], [], "--", color="C1", label="one-class machine")
    ax.set(xlabel="x₁", ylabel="x₂", aspect="equal")
    return ax


ax = picture(decide, excess)
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# A polynomial kernel: not the same
# ---------------------------------
# Here κ(x, x) grows with x. The hyperplane takes points near the origin for outliers,
# and distant ones for ordinary. The sphere encloses the data.

polynomial = ko.kernels.Polynomial(degree=2)
_, decide_2 = one_class(polynomial)
_, radius_2, excess_2 = sphere(polynomial, X, C)
differ = np.mean((decide_2(grid) >= 0) != (excess_2(grid) <= 0))
same = np.mean((decide(grid) >= 0) == (excess(grid) <= 0))
print(f"both agree on the grid: Gaussian {same:.1%}, polynomial {1 - differ:.1%}")
corner = np.array([[3.0, 3.0]])
by_hyperplane, by_sphere = decide_2(corner)[0] >= 0, excess_2(corner)[0] <= 0
print(f"is (3, 3) inside? hyperplane {by_hyperplane}, sphere {by_sphere}")

# %%
# Without outliers and with a linear kernel, it is the smallest circle around all
# points, which plain cvxpy finds too.

_, smallest, excess_hard = sphere(ko.kernels.Linear(), X)
centre, r = cp.Variable(2), cp.Variable()
circle = cp.Problem(cp.Minimize(r), [cp.norm(X - centre[None, :], axis=1) <= r])
circle.solve(solver="CLARABEL")
print(f"smallest circle: radius {smallest:.8f}, plain cvxpy {r.value:.8f}")
ax = picture(decide_2, excess_2)
hard = excess_hard(grid).reshape(shape)
ax.contour(side, side, hard, levels=[0], colors="0.4", linestyles=":")
ax.plot([], [], ":", color="0.4", label="circle around all")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
