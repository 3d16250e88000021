r"""
Where data lie: one-class machines and smallest spheres
=======================================================

.. math::

    \begin{array}{ll}
    \text{one-class machine} & \text{minimize} \quad \tfrac12\|\theta\|^2 - \rho
      + C\sum_{i=1}^N \max(0,\, \rho - \theta^\top F(x_i)) \\
    \text{smallest sphere} & \text{minimize} \quad R^2 + C\sum_{i=1}^N \max(0,\, \|F(x_i) - a\|^2 - R^2)
    \end{array}

The first separates the rows from the origin of the feature space by a hyperplane, but for a few; the second encloses
them in a sphere with centre a and radius R, but for a few. With C = 1/(νN), a share ν of the rows is about what is left
out. For a Gaussian kernel both are one problem. For a polynomial kernel they are not.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import OneClassSVM

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Two clusters and a few strays.

rng = np.random.default_rng(0)
clusters = [rng.normal([-1.2, 0], 0.35, size=(45, 2)), rng.normal([1.0, 0.6], 0.5, size=(45, 2))]
X = np.vstack([*clusters, rng.uniform(-2.5, 2.5, size=(10, 2))])
N, nu = len(X), 0.15
C = 1 / (nu * N)
side = np.linspace(-3, 3, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

# %%
# The one-class machine as it is written. Points with θᵀF(x) < ρ are outliers.


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
# scikit-learn's ``OneClassSVM`` minimizes ½‖θ‖² − νNρ + Σ max(0, ρ − θᵀF(xᵢ)): (νN)² times as much, at θ and ρ that are
# νN times as large.

peer = OneClassSVM(nu=nu, gamma=1 / (2 * 0.8**2), tol=1e-10).fit(X)
apart = np.abs(nu * N * decide(grid) - peer.decision_function(grid)).max()
outside, on_or_outside = np.mean(decide(X) < -1e-7), np.mean(decide(X) < 1e-7)
print(f"largest difference of decision values, against OneClassSVM: {apart:.1e}")
print(f"share of the rows that are outliers {outside:.2f} ≤ ν = {nu} ≤ {on_or_outside:.2f}, with those on the boundary")

# %%
# The sphere, as it stands, is not convex in (a, R). With the square multiplied out,
#
# .. math:: \|F(x_i) - a\|^2 - R^2 = \kappa(x_i, x_i) - 2a^\top F(x_i) - s, \qquad s = R^2 - \|a\|^2,
#
# it is a problem in a and s that is linear but for max and ‖a‖², which enters as a penalty:
#
# .. math:: \text{minimize} \quad \|a\|^2 + s + C\sum_{i=1}^N \max(0,\, \kappa(x_i, x_i) - 2a^\top F(x_i) - s).
#
# s is free: R² = s + ‖a‖² does not become negative as long as CN > 1, because then all terms would be positive, and
# raising s would lower the sum by more than it costs.


def sphere(kernel, X, C=None):
    """The solved problem, and ‖F(x) − a‖² − R² as a function; without C, no row may lie outside."""
    a, A = ko.Theta(kernel, name="a"), ko.FeatureMatrix(X, kernel)
    s = cp.Variable(name="s")
    outside = A.diag() - 2 * (A @ a) - s
    if C is None:
        problem = ko.Problem(cp.Minimize(ko.sum_squares(a) + s), [outside <= 0])
    else:
        problem = ko.Problem(cp.Minimize(ko.sum_squares(a) + s + C * cp.sum(cp.pos(outside))))
    problem.solve(tol=1e-12)
    radius = np.sqrt(s.value + a.value.norm**2)
    return problem, radius, lambda Z: kernel.diag(Z) - 2 * a.value(Z) - s.value


gaussian_sphere, radius, excess = sphere(gaussian, X, C)
print(gaussian_sphere.explain())

# %%
# κ(x, x) = 1 for a Gaussian kernel. With s = 1 − 2ρ the sphere's objective is
# 1 + 2(½‖a‖² − ρ + C Σ max(0, ρ − aᵀF(xᵢ))): it is the one-class machine, with a = θ, R² = 1 − 2ρ + ‖θ‖², and twice the
# decision function with the sign changed.

print(f"values: {gaussian_sphere.value:.10f} and 1 + 2·({problem.value:.10f}) = {1 + 2 * problem.value:.10f}")
print(f"largest difference of the decision functions: {np.abs(excess(grid) + 2 * decide(grid)).max():.1e}")

# %%
# For a polynomial kernel κ(x, x) grows with x. The hyperplane then takes points near the origin for outliers, and all
# that are far out for ordinary. The sphere encloses.

polynomial = ko.kernels.Polynomial(degree=2)
_, decide_2 = one_class(polynomial)
_, radius_2, excess_2 = sphere(polynomial, X, C)
differ = np.mean((decide_2(grid) >= 0) != (excess_2(grid) <= 0))
same = np.mean((decide(grid) >= 0) == (excess(grid) <= 0))
print(f"points of the grid on which both agree: Gaussian {same:.1%}, polynomial {1 - differ:.1%}")
corner = np.array([[3.0, 3.0]])
print(f"is (3, 3) inside? hyperplane {decide_2(corner)[0] >= 0}, sphere {excess_2(corner)[0] <= 0}")

# %%
# No row outside, and the linear kernel: the smallest enclosing circle in the plane, which plain cvxpy finds too.

_, smallest, excess_hard = sphere(ko.kernels.Linear(), X)
centre, r = cp.Variable(2), cp.Variable()
circle = cp.Problem(cp.Minimize(r), [cp.norm(X - centre[None, :], axis=1) <= r])
circle.solve(solver="CLARABEL")
print(f"smallest circle: radius {smallest:.8f}, plain cvxpy {r.value:.8f}")

# %%
# The points that the sphere encloses, and the boundaries of both. In the second panel the one-class machine takes what
# is outside of its line for ordinary.

figure, panels = plt.subplots(1, 2, figsize=(10, 5), layout="constrained", sharey=True)
shape = len(side), len(side)
for axes, title, hyperplane, ball in (
    (panels[0], "Gaussian kernel: the same", decide, excess),
    (panels[1], "polynomial kernel of degree 2", decide_2, excess_2),
):
    inside = ball(grid).reshape(shape)
    axes.contourf(side, side, inside, levels=[inside.min(), 0], colors=["tab:blue"], alpha=0.2)
    axes.contour(side, side, inside, levels=[0], colors="tab:blue", linewidths=3)
    axes.contour(side, side, hyperplane(grid).reshape(shape), levels=[0], colors="tab:orange", linestyles="--")
    axes.scatter(*X.T, s=12, color="black", linewidths=0)
    axes.set(title=title, xlabel="x₁", aspect="equal")
panels[1].contour(side, side, excess_hard(grid).reshape(shape), levels=[0], colors="0.4", linestyles=":")
panels[0].plot([], [], color="tab:blue", linewidth=3, label="smallest sphere")
panels[0].plot([], [], color="tab:orange", linestyle="--", label="one-class machine")
panels[0].plot([], [], color="0.4", linestyle=":", label="smallest circle around all")
panels[0].set_ylabel("x₂")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
plt.show()
