r"""
Support vector machines
=======================

.. math:: \text{minimize} \quad \tfrac12\|\theta\|^2 + C\sum_{i=1}^N \max(0,\, 1 - y_i(\theta^\top F(x_i) + b))

Margins below 1 are paid for instead of being forbidden. The problem is stated with and without intercept, swept over C,
compared with its dual and with scikit-learn's ``SVC``, and stated once more in its ν form, where a share of rows takes
the place of C.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC, NuSVC

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Two half moons that overlap.

X, numbers = make_moons(120, noise=0.3, random_state=0)
y = 2 * numbers - 1
N = len(y)
kernel = ko.kernels.Gaussian(sigma=0.7)
gamma = 1 / (2 * kernel.sigma**2)
grid = np.random.default_rng(0).uniform([-2, -1.5], [3, 2], size=(500, 2))

# %%
# The problem as it is written. C is a parameter, so that the kernel matrix is factored once for all of its values.

theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
b = cp.Variable(name="b")
C = cp.Parameter(nonneg=True, name="C", value=1.0)
hinge = cp.sum(ko.losses.hinge(y, A @ theta + b))
problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) + C * hinge))
problem.solve(tol=1e-12)
print(problem.explain())

# %%
# The dual: maximize :math:`\mathbf{1}^\top\alpha - \tfrac12\alpha^\top YQY\alpha` subject to 0 ≤ α ≤ C and yᵀα = 0, the
# last of which belongs to the intercept. The multipliers ν of Aθ are yᵢαᵢ.

nu_of_rows = (A @ theta).dual_value
alpha = cp.Variable(N)
YQY = cp.psd_wrap(kernel(X) * np.outer(y, y))
box = [alpha >= 0, alpha <= C.value]
gain = cp.sum(alpha) - 0.5 * cp.quad_form(alpha, YQY)
dual = cp.Problem(cp.Maximize(gain), [*box, y @ alpha == 0])
dual.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
print(f"primal {problem.value:.8f}, dual {dual.value:.8f}")
print(f"largest difference of ν and Yα: {np.abs(nu_of_rows - y * alpha.value).max():.1e}")

# %%
# Without intercept the equality in the dual goes.

without = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) + C * cp.sum(ko.losses.hinge(y, A @ theta))))
without.solve(tol=1e-12)
theta_without = theta.value
dual_without = cp.Problem(cp.Maximize(gain), box)
dual_without.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
print(f"without intercept: primal {without.value:.8f}, dual {dual_without.value:.8f}")

# %%
# A sweep over C, each beside ``SVC`` with its dual coefficients yᵢαᵢ and decision values. With a larger C
# the norm ‖θ‖ grows.

sweep = []
for C.value in (0.1, 1.0, 10.0, 100.0):
    problem.solve(tol=1e-12)
    svc = SVC(C=C.value, gamma=gamma, tol=1e-10).fit(X, y)
    apart = np.abs((theta(grid) + b).value - svc.decision_function(grid)).max()
    multipliers = np.abs((A @ theta).dual_value)
    row = {"C": C.value, "norm": theta.value.norm, "support": int(np.sum(multipliers > 1e-6 * C.value))}
    sweep.append(row | {"svc": len(svc.support_), "apart": apart})
    print(
        "C = {C:<5g} ‖θ‖ = {norm:6.3f}, {support:3d} support vectors, SVC {svc:3d}; f from SVC's {apart:.1e}".format(
            **sweep[-1]
        )
    )

# %%
# The ν form has the margin ρ as a variable in place of the 1:
#
# .. math:: \text{minimize} \quad \tfrac12\|\theta\|^2 - \nu\rho + \frac1N\sum_{i=1}^N \max(0,\, \rho - y_if(x_i)),
#     \quad \rho \ge 0.
#
# No more than a share ν of the rows lies inside of the margin, yᵢf(xᵢ) < ρ, and at least that share are support
# vectors (Schölkopf, Smola, Williamson and Bartlett, 2000). Divided by ρ, its f is the f of ``NuSVC``.

rho = cp.Variable(nonneg=True, name="rho")
nu = cp.Parameter(nonneg=True, name="nu")
f = A @ theta + b
margins = cp.sum(cp.pos(rho - ko.margin(y, f))) / N
nu_problem = ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) - nu * rho + margins))
shares = []
for nu.value in np.arange(0.25, 0.81, 0.05):
    nu_problem.solve(tol=1e-12)
    errors = np.mean(y * f.value < rho.value - 1e-6 * abs(rho.value))
    support = np.mean(np.abs((A @ theta).dual_value) > 1e-6 / N)
    svc = NuSVC(nu=nu.value, gamma=gamma, tol=1e-10).fit(X, y)
    apart = np.abs((theta(grid) + b).value / rho.value - svc.decision_function(grid)).max()
    shares.append((nu.value, errors, support, apart))
shares = np.array(shares)
for row in shares[::5]:
    print("ν = {:.2f}: margin errors {:.3f} ≤ ν ≤ support vectors {:.3f}; f/ρ from NuSVC's {:.1e}".format(*row))

# %%
# The boundary for C = 1, and the two shares between which ν lies.

C.value = 1.0
problem.solve()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
ko.plots.decision_regions(lambda Z: theta(Z) + b, X, y, ax=left)
left.set_title("C = 1: boundary, margins, support vectors")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False)
right.plot(shares[:, 0], shares[:, 2], "s-", color="tab:orange", label="support vectors")
right.plot(shares[:, 0], shares[:, 0], color="black", linestyle=":", label="ν")
right.plot(shares[:, 0], shares[:, 1], "o-", color="tab:blue", label="inside of the margin")
right.set(xlabel="ν", ylabel="share of the rows", title="ν form")
right.legend(frameon=False)
plt.show()
