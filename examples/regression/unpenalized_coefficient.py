r"""
Least squares with a free constant
==================================

.. math:: \text{minimize} \quad \|A\theta + b\mathbf{1} - y\|^2 + \lambda\|\theta\|^2

The coefficient b of the constant feature is not penalized: it is an ordinary variable
beside θ. With :math:`\theta = A^\top\alpha` the optimum solves a linear system with one
row more than Q,

.. math::
   \begin{bmatrix} Q + \lambda I & \mathbf{1} \\ \mathbf{1}^\top & 0 \end{bmatrix}
   \begin{bmatrix} \alpha \\ b \end{bmatrix} = \begin{bmatrix} y \\ 0 \end{bmatrix}.

A constant that is a feature of the kernel is penalized. The fit then depends on where y
has its zero. With several unpenalized coefficients, Zβ, the model is semi-parametric.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are a bump on a falling line. All lie in [0, 6]; the pictures go on to 9.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(40, 1)), axis=0)
y = 8 - X[:, 0] + 2 * np.exp(-2 * (X[:, 0] - 3) ** 2) + 0.2 * rng.normal(size=40)

# %%
# A free constant
# ---------------
# It is a cvxpy variable. The shift of y is a parameter, 0 for now.

kernel, lam = ko.kernels.Gaussian(sigma=0.7), 0.3
shift = cp.Parameter(name="shift", value=0.0)
theta, b = ko.Theta(kernel), cp.Variable(name="b")
free = ko.Problem(
    cp.Minimize(cp.sum_squares(theta(X) + b - y - shift) + lam * ko.sum_squares(theta))
)
free.solve()
print(free.explain())

# %%
# The block system has the same solution.

Q, one = kernel(X), np.ones((len(y), 1))
system = np.block([[Q + lam * np.eye(len(y)), one], [one.T, 0]])
*alpha, b_system = np.linalg.solve(system, np.append(y, 0))
apart = np.abs(ko.Function(kernel, X, alpha)(X) - theta.value(X)).max()
print(f"b = {b.value:.6f}, from the system {b_system:.6f}")
print(f"largest difference of Aθ: {apart:.1e}")

# %%
# A penalized constant
# --------------------
# The alternative is a kernel with a constant feature, κ + 1. This constant is an entry
# of θ, and ‖θ‖² includes it. Right of the data the Gaussian features vanish and each
# fit returns to its constant. The penalized one is drawn to 0.

theta_c = ko.Theta(kernel + ko.kernels.Constant(1.0))
penalized = ko.Problem(
    cp.Minimize(cp.sum_squares(theta_c(X) - y - shift) + lam * ko.sum_squares(theta_c))
)
penalized.solve()
grid = np.linspace(0, 9, 300)[:, None]
f = lambda X: theta(X) + b
before, before_c = f(grid).value, theta_c.value(grid)

fig, ax = plt.subplots()
ax.axvspan(6, 9, color="0.93", label="no data")
ax.plot(X, y, "o", color="black", label="data")
ax.plot(grid, before, label="free: θᵀF(x) + b")
ax.plot(grid, before_c, label="penalized: κ + 1")
ax.set(xlabel="x", ylabel="fit")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# A shift of y
# ------------
# Now y is raised by 20. With the free constant the fit moves by 20, and θ stays. With
# the penalized one the fit moves by other amounts, and its shape changes.

shift.value = 20.0
free.solve()
penalized.solve()
moved, moved_c = f(grid).value - before, theta_c.value(grid) - before_c
inside = grid[:, 0] <= 6
for name, by in (("free", moved), ("penalized", moved_c)):
    print(
        f"{name:>9}: moved by {by[inside].min():.6f} to {by[inside].max():.6f} "
        f"in [0, 6], by {by[-1]:.6f} at x = 9"
    )

fig, ax = plt.subplots()
ax.plot(grid[inside], moved[inside] - 20, label="free constant b")
ax.plot(grid[inside], moved_c[inside] - 20, label="penalized constant, κ + 1")
ax.set(xlabel="x", ylabel="change of the fit − 20")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# A large constant, κ + c, is hardly penalized: as c grows, the penalized fit approaches
# the free one. But the constant then makes up most of the trace of Q. The precision of
# the factor is relative to the trace, so it must be finer.

shift.value = 0.0
free.solve()
apart_by_c = {}
for c in (1.0, 1e2, 1e4):
    theta_large = ko.Theta(kernel + ko.kernels.Constant(c))
    large = ko.Problem(
        cp.Minimize(
            cp.sum_squares(theta_large(X) - y) + lam * ko.sum_squares(theta_large)
        )
    )
    large.solve(rank_tol=1e-12)
    apart_by_c[c] = np.abs(theta_large.value(X) - f(X).value).max()
    print(f"c = {c:7g}: at most {apart_by_c[c]:.1e} from the free fit at the data")

# %%
# A free line
# -----------
# Several coefficients without a penalty are as easy. Z has columns 1 and x, and θ
# explains only what a line does not. The system has two more rows, :math:`Z^\top\alpha
# = 0`. Right of the data the fit returns to the line.

Z = lambda X: np.hstack([np.ones_like(X), X])
theta_z, beta = ko.Theta(kernel), cp.Variable(2, name="β")
g = lambda X: theta_z(X) + Z(X) @ beta
semi = ko.Problem(cp.Minimize(cp.sum_squares(g(X) - y) + lam * ko.sum_squares(theta_z)))
semi.solve()
system_z = np.block([[Q + lam * np.eye(len(y)), Z(X)], [Z(X).T, np.zeros((2, 2))]])
beta_system = np.linalg.solve(system_z, np.append(y, [0, 0]))[-2:]
print(f"β = {beta.value.round(6)}, from the system {beta_system.round(6)}")
print(f"‖θ‖ with a free constant {theta.value.norm:.2f}")
print(f"‖θ‖ with a free line     {theta_z.value.norm:.2f}")
fig, ax = plt.subplots()
ax.axvspan(6, 9, color="0.93", label="no data")
ax.plot(X, y, "o", color="black", label="data")
ax.plot(grid, before, label="θᵀF(x) + b")
ax.plot(grid, g(grid).value, label="θᵀF(x) + β₀ + β₁x")
ax.set(xlabel="x", ylabel="fit")
fig.legend(loc="outside upper center", ncols=4)
plt.show()
