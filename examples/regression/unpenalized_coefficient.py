r"""
Least squares with a free constant
==================================

.. math:: \text{minimize} \quad \|A\theta + b\mathbf{1} - y\|^2 + \lambda\|\theta\|^2

The coefficient b of the constant feature is not penalized: it is an ordinary variable beside θ. With
:math:`\theta = A^\top\alpha` the optimum solves a linear system with one row more than Q has,

.. math::
   \begin{bmatrix} Q + \lambda I & \mathbf{1} \\ \mathbf{1}^\top & 0 \end{bmatrix}
   \begin{bmatrix} \alpha \\ b \end{bmatrix} = \begin{bmatrix} y \\ 0 \end{bmatrix}.

A constant that is a feature of the kernel is penalized, and then the fit depends on where y has its zero. Several
unpenalized coefficients Zβ make the model semi-parametric.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# A bump on a falling line that starts at 8. The data are all in [0, 6], and we shall look beyond.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(40, 1)), axis=0)
y = 8 - X[:, 0] + 2 * np.exp(-2 * (X[:, 0] - 3) ** 2) + 0.2 * rng.normal(size=40)

# %%
# The free constant is a cvxpy variable. The shift of y is a parameter, 0 for now.

kernel, lam = ko.kernels.Gaussian(sigma=0.7), 0.3
shift = cp.Parameter(name="shift", value=0.0)
theta, b = ko.Theta(kernel), cp.Variable(name="b")
free = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) + b - y - shift) + lam * ko.sum_squares(theta)))
free.solve()
print(free.explain())

# %%
# The block system has the same solution.

Q, one = kernel(X), np.ones((len(y), 1))
system = np.block([[Q + lam * np.eye(len(y)), one], [one.T, 0]])
*alpha, b_system = np.linalg.solve(system, np.append(y, 0))
apart = np.abs(ko.Function(kernel, X, alpha)(X) - theta.value(X)).max()
print(f"b = {b.value:.6f}, from the system {b_system:.6f}; largest difference of Aθ: {apart:.1e}")

# %%
# The other way to have a constant is a kernel with a constant feature, κ + 1. It is one of the entries of θ, and
# ‖θ‖² counts it.

theta_c = ko.Theta(kernel + ko.kernels.Constant(1.0))
penalized = ko.Problem(cp.Minimize(cp.sum_squares(theta_c(X) - y - shift) + lam * ko.sum_squares(theta_c)))
penalized.solve()

# %%
# Now y is measured from a zero that is 20 lower. With the free constant the fit moves by 20, and θ is what it was. With
# the penalized one the fit moves by something else, and its shape changes.

grid = np.linspace(0, 9, 300)[:, None]
f = lambda X: theta(X) + b
before, before_c = f(grid).value, theta_c.value(grid)
shift.value = 20.0
free.solve()
penalized.solve()
moved, moved_c = f(grid).value - before, theta_c.value(grid) - before_c
inside = grid[:, 0] <= 6
for name, by in (("free", moved), ("penalized", moved_c)):
    print(f"{name:>9}: moved by {by[inside].min():.6f} to {by[inside].max():.6f} in [0, 6], by {by[-1]:.6f} at x = 9")

# %%
# A large constant, κ + c, costs little: as c grows, the penalized fit comes near the free one. But the constant then
# makes up most of the trace of Q, of which the factor's precision is a share, and that has to be finer.

shift.value = 0.0
free.solve()
apart_by_c = {}
for c in (1.0, 1e2, 1e4):
    theta_large = ko.Theta(kernel + ko.kernels.Constant(c))
    large = ko.Problem(cp.Minimize(cp.sum_squares(theta_large(X) - y) + lam * ko.sum_squares(theta_large)))
    large.solve(rank_tol=1e-12)
    apart_by_c[c] = np.abs(theta_large.value(X) - f(X).value).max()
    print(f"c = {c:7g}: largest difference from the free fit at the data {apart_by_c[c]:.1e}")

# %%
# Several coefficients without a penalty are as easy: Z has columns 1 and x, and θ has only to explain what a line does
# not. The system has two more rows, :math:`Z^\top\alpha = 0`.

Z = lambda X: np.hstack([np.ones_like(X), X])
theta_z, beta = ko.Theta(kernel), cp.Variable(2, name="β")
g = lambda X: theta_z(X) + Z(X) @ beta
semi = ko.Problem(cp.Minimize(cp.sum_squares(g(X) - y) + lam * ko.sum_squares(theta_z)))
semi.solve()
system_z = np.block([[Q + lam * np.eye(len(y)), Z(X)], [Z(X).T, np.zeros((2, 2))]])
beta_system = np.linalg.solve(system_z, np.append(y, [0, 0]))[-2:]
print(f"β = {beta.value.round(6)}, from the system {beta_system.round(6)}")
print(f"‖θ‖ = {theta.value.norm:.2f} with a free constant, {theta_z.value.norm:.2f} with a free line")

# %%
# Right of the data the Gaussian features fade, and the fits return to their constants, of which the penalized one is
# drawn to 0, or to the line.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(grid[inside], moved[inside] - 20, color="tab:blue", label="free constant b")
left.plot(grid[inside], moved_c[inside] - 20, "--", color="tab:orange", label="penalized constant, κ + 1")
left.set(xlabel="x", ylabel="change of the fit − 20", title="y is raised by 20", ylim=(-0.55, 0.25))
left.legend(frameon=False)
right.axvspan(6, 9, color="0.95")
right.plot(X, y, "o", color="black", markersize=3, label="data")
right.plot(grid, before_c, "--", color="tab:orange", label="κ + 1, penalized")
right.plot(grid, before, color="tab:blue", label="θᵀF(x) + b")
right.plot(grid, g(grid).value, "-.", color="tab:red", label="θᵀF(x) + β₀ + β₁x")
right.set(xlabel="x", ylabel="fit", title="beyond the data")
right.legend(frameon=False)
plt.show()
