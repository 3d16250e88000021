r"""
Support vector machines (SVM)
=============================

.. math:: \text{minimize} \quad \tfrac12\|\theta\|^2 + C\sum_{i=1}^N \max(0,\, 1
   - y_i(\theta^\top F(x_i) + b))

Margins below 1 are penalized instead of forbidden. The problem is stated with and
without intercept, swept over C, and compared with its dual and with scikit-learn's
``SVC``. In the ν form, a share of the rows replaces C.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC, NuSVC

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are two half moons that overlap.

X, numbers = make_moons(120, noise=0.3, random_state=0)
y = 2 * numbers - 1
N = len(y)
kernel = ko.kernels.Gaussian(sigma=0.7)
gamma = 1 / (2 * kernel.sigma**2)
grid = np.random.default_rng(0).uniform([-2, -1.5], [3, 2], size=(500, 2))

# %%
# The problem
# -----------
# C is a parameter, so the kernel matrix is factored once for all values. The picture
# shows the boundary f = 0, the margins f = ±1 (dashed), and the support vectors
# (circled).

theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
b = cp.Variable(name="b")
C = cp.Parameter(nonneg=True, name="C", value=1.0)
hinge = cp.sum(ko.losses.hinge(y, A @ theta + b))
problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) + C * hinge))
problem.solve(tol=1e-12)
print(problem.explain())
ax = ko.plots.decision_regions(lambda Z: theta(Z) + b, X, y)
ax.set_title("C = 1")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# The dual problem
# ----------------
# Maximize :math:`\mathbf{1}^\top\alpha - \tfrac12\alpha^\top YQY\alpha` subject to 0 ≤
# α ≤ C and yᵀα = 0. The equality belongs to the intercept. The multipliers ν of Aθ are
# yᵢαᵢ.

nu_of_rows = (A @ theta).dual_value
alpha = cp.Variable(N)
YQY = cp.psd_wrap(kernel(X) * np.outer(y, y))
box = [alpha >= 0, alpha <= C.value]
gain = cp.sum(alpha) - 0.5 * cp.quad_form(alpha, YQY)
dual = cp.Problem(cp.Maximize(gain), [*box, y @ alpha == 0])
dual.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
print(f"primal {problem.value:.8f}, dual {dual.value:.8f}")
print(
    f"largest difference of ν and Yα: {np.abs(nu_of_rows - y * alpha.value).max():.1e}"
)

# %%
# Without intercept, the dual has no equality.

hinge = cp.sum(ko.losses.hinge(y, A @ theta))
without = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) + C * hinge))
without.solve(tol=1e-12)
theta_without = theta.value
dual_without = cp.Problem(cp.Maximize(gain), box)
dual_without.solve(
    solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
)
print(f"without intercept: primal {without.value:.8f}, dual {dual_without.value:.8f}")

# %%
# A sweep over C
# --------------
# ``SVC`` is fitted beside each solve, and its support vectors and decision values are
# compared. With a larger C the norm ‖θ‖ grows.

sweep = []
for C.value in (0.1, 1.0, 10.0, 100.0):
    problem.solve(tol=1e-12)
    svc = SVC(C=C.value, gamma=gamma, tol=1e-10).fit(X, y)
    apart = np.abs((theta(grid) + b).value - svc.decision_function(grid)).max()
    multipliers = np.abs((A @ theta).dual_value)
    row = {"C": C.value, "norm": theta.value.norm, "apart": apart}
    row["support"] = int(np.sum(multipliers > 1e-6 * C.value))
    row["svc"] = len(svc.support_)
    sweep.append(row)
    line = "C = {C:<5g} ‖θ‖ = {norm:6.3f}, {support:3d} support vectors, SVC {svc:3d}"
    print((line + "; f differs by at most {apart:.1e}").format(**row))

# %%
# The ν form
# ----------
# The margin ρ is a variable in place of the 1:
#
# .. math:: \text{minimize} \quad \tfrac12\|\theta\|^2 - \nu\rho
#     + \frac1N\sum_{i=1}^N \max(0,\, \rho - y_if(x_i)), \quad \rho \ge 0.
#
# At most a share ν of the rows lies inside the margin, yᵢf(xᵢ) < ρ, and at least that
# share are support vectors (Schölkopf, Smola, Williamson and Bartlett, 2000). Divided
# by ρ, the function f is that of ``NuSVC``.

rho = cp.Variable(nonneg=True, name="rho")
nu = cp.Parameter(nonneg=True, name="nu")
f = A @ theta + b
margins = cp.sum(cp.pos(rho - ko.margin(y, f))) / N
nu_problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) - nu * rho + margins))
shares = []
for nu.value in np.arange(0.25, 0.81, 0.05):
    nu_problem.solve(tol=1e-12)
    errors = np.mean(y * f.value < (1 - 1e-6) * rho.value)
    support = np.mean(np.abs((A @ theta).dual_value) > 1e-6 / N)
    svc = NuSVC(nu=nu.value, gamma=gamma, tol=1e-10).fit(X, y)
    apart = np.abs(
        (theta(grid) + b).value / rho.value - svc.decision_function(grid)
    ).max()
    shares.append((nu.value, errors, support, apart))
shares = np.array(shares)
for row in shares[::5]:
    line = "ν = {:.2f}: margin errors {:.3f} ≤ ν ≤ support vectors {:.3f}"
    print((line + "; f/ρ differs from NuSVC by {:.1e}").format(*row))

fig, ax = plt.subplots()
ax.plot(shares[:, 0], shares[:, 2], "s--", color="C1", label="support vectors")
ax.plot(shares[:, 0], shares[:, 0], ":", color="black", label="ν")
ax.plot(shares[:, 0], shares[:, 1], "o-", color="C0", label="inside the margin")
ax.set(xlabel="ν", ylabel="share of the rows")
ax.legend()
plt.show()
