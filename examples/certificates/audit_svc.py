r"""
Auditing a support vector machine that was trained elsewhere
============================================================

Another library claims to have minimized

.. math:: \sum_i \max\bigl(0,\, 1 - y_i(\theta^\top F(x_i) + b)\bigr)
   + \tfrac{1}{2C}\|\theta\|^2.

How close is its answer to the optimum? Its dual coefficients determine a θ, which is
set as the value of ours. ``problem.verify()`` then bounds the optimum from below, with
the full kernel matrix. So it shows how far the given θ is from the optimum, whoever
found it and how.
"""

import warnings

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The problem is stated once. scikit-learn's γ is 1/2σ².

X, y = make_moons(300, noise=0.25, random_state=0)
y = 2 * y - 1
C, gamma = 10.0, 2.0
kernel = ko.kernels.Gaussian(sigma=(2 * gamma) ** -0.5)
theta, b = ko.Theta(kernel), cp.Variable(name="b")
loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C)))

# %%
# An audit
# --------
# The machine has scikit-learn's default tolerance, 10⁻³.


def audited(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the audit tells more
        svc = SVC(C=C, gamma=gamma, **options).fit(X, y)
    theta.value = ko.Function(kernel, svc.support_vectors_, svc.dual_coef_[0])
    b.value = svc.intercept_[0]
    return problem.verify()


report = audited()
print(report)

# %%
# The tolerance
# -------------
# The tighter the tolerance, the smaller the certified gap.

tolerances = 10.0 ** np.arange(0, -7, -1)
by_tolerance = [audited(tol=tol).certificate for tol in tolerances]
for tol, certificate in zip(tolerances, by_tolerance, strict=True):
    print(f"tol {tol:.0e}: {certificate}")
fig, ax = plt.subplots()
ax.loglog(tolerances, [c.relative_gap for c in by_tolerance], "o-", markersize=6)
ax.set(xlabel="tol of SVC", ylabel="certified relative gap")
plt.show()

# %%
# Stopped early
# -------------
# The audit detects an early stop, and measures it: the objective could be lower by up
# to the gap.

limits = [20, 50, 100, 200, 500]
by_limit = [audited(max_iter=limit).certificate for limit in limits]
for limit, certificate in zip(limits, by_limit, strict=True):
    interval = f"[{certificate.lower:.4f}, {certificate.upper:.4f}]"
    print(f"max_iter {limit:4}: the optimum is in {interval}")

fig, ax = plt.subplots()
ax.loglog(limits, [c.relative_gap for c in by_limit], "s-", color="C1", markersize=6)
ax.set_xticks(limits, [str(limit) for limit in limits])
ax.minorticks_off()
ax.set(xlabel="max_iter of SVC", ylabel="certified relative gap")
plt.show()

# %%
# The optimum
# -----------
# An answer of our own decides. It lies in every one of these intervals.

optimum = problem.solve(tol=1e-9)
inside = [c.lower <= optimum <= c.upper for c in [*by_tolerance, *by_limit]]
print(f"optimum {optimum:.6f}, in all {len(inside)} intervals: {all(inside)}")
