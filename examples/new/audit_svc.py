r"""
Auditing a support vector machine that was trained elsewhere
============================================================

A library says that it minimized

.. math:: \sum_i \max\bigl(0,\, 1 - y_i(\theta^\top F(x_i) + b)\bigr) + \tfrac{1}{2C}\|\theta\|^2.

How close did it come? Its dual coefficients are a θ, which is put in place of ours. ``problem.verify()`` then bounds
the optimum from below, with the full kernel matrix, and says how far the given θ is from it, whoever found it and how.
"""

import warnings

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The problem, stated once. scikit-learn's γ is 1/2σ².

X, y = make_moons(300, noise=0.25, random_state=0)
y = 2 * y - 1
C, gamma = 10.0, 2.0
kernel = ko.kernels.Gaussian(sigma=(2 * gamma) ** -0.5)
theta, b = ko.Theta(kernel), cp.Variable(name="b")
loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C)))

# %%
# A machine with scikit-learn's default tolerance, 10⁻³, and its audit.


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
# The tighter its tolerance, the smaller the gap.

tolerances = 10.0 ** np.arange(0, -7, -1)
by_tolerance = [audited(tol=tol).certificate for tol in tolerances]
for tol, certificate in zip(tolerances, by_tolerance, strict=True):
    print(f"tol {tol:.0e}: {certificate}")

# %%
# One that was stopped early. The audit finds out, and by how much: the objective could be lower by up to the gap.

limits = [20, 50, 100, 200, 500]
by_limit = [audited(max_iter=limit).certificate for limit in limits]
for limit, certificate in zip(limits, by_limit, strict=True):
    print(f"max_iter {limit:4}: objective {certificate.upper:.4f}, at least {certificate.lower:.4f} is possible")

# %%
# Who is right is settled by an answer of our own. It lies in every one of these intervals.

optimum = problem.solve(tol=1e-9)
inside = [c.lower <= optimum <= c.upper for c in [*by_tolerance, *by_limit]]
print(f"optimum {optimum:.6f}, in all {len(inside)} intervals: {all(inside)}")

# %%
# The certified gap follows the tolerance, and the iterations.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
axes[0].loglog(tolerances, [c.relative_gap for c in by_tolerance], "o-", color="tab:blue")
axes[0].set(xlabel="tol of SVC", ylabel="certified relative gap")
axes[1].loglog(limits, [c.relative_gap for c in by_limit], "s-", color="tab:orange")
axes[1].set_xticks(limits, [str(limit) for limit in limits])
axes[1].minorticks_off()
axes[1].set(xlabel="max_iter of SVC")
plt.show()
