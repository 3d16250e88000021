r"""
Which kernels? A sum of norms decides
=====================================

Several kernels at once, each with a vector :math:`\theta_k` of its own feature space:

.. math:: \text{minimize} \quad \Bigl\|y - b\mathbf{1} - \sum_k A_k\theta_k\Bigr\|^2 + \lambda \sum_k \|\theta_k\|

A sum of norms, not of their squares, sets whole vectors to zero, as the lasso does with numbers: multiple kernel
learning (Bach, Lanckriet and Jordan 2004), or the group lasso of infinitely many features. A kernel for each column
selects columns; one for each width chooses widths.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Six columns, of which two matter: the first through a sine, the second through a square.

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(150, 6))
y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=150)

# %%
# A Gaussian kernel of each column, :math:`f(x) = b + \sum_k \theta_k^\top F_k(x_k)`.

kernel = ko.kernels.Gaussian(sigma=0.7)
thetas = [ko.Theta(kernel, name=f"θ{k + 1}") for k in range(6)]
b, lam = cp.Variable(name="b"), cp.Parameter(nonneg=True, name="lam")
predictions = [theta(X[:, [k]]) for k, theta in enumerate(thetas)]
norms = [ko.norm(theta) for theta in thetas]
problem = ko.Problem(cp.Minimize(cp.sum_squares(y - b - sum(predictions)) + lam * sum(norms)))

# %%
# Where :math:`\theta_k = 0` is optimal can be read off the multipliers ν of :math:`A_k\theta_k`, here twice the
# residuals. :math:`A_k^\top\nu` is a subgradient of :math:`\lambda\|\theta_k\|`, so that
#
# .. math:: \sqrt{\nu^\top Q_k \nu} \le \lambda, \quad \text{with equality where} \quad \theta_k \ne 0.

lam.value = 15.0
problem.solve(tol=1e-9)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
residual = y - b.value - sum(p.value for p in predictions)
lengths = []
for k, (theta, prediction) in enumerate(zip(thetas, predictions, strict=True)):
    nu, Q = prediction.dual_value, kernel(X[:, [k]])
    length = np.sqrt(nu @ Q @ nu)
    lengths.append(length)
    print(f"column {k + 1}: ‖θ‖ = {theta.value.norm:.4f}, √(νᵀQν)/λ = {length / lam.value:.6f}")
print(f"ν and twice the residuals differ by at most {np.abs(nu - 2 * residual).max():.1e}")

# %%
# At :math:`\theta = 0` ν is twice the centered y. That gives the λ from which on all kernels drop out; below it they
# enter one after the other.

centered = y - y.mean()
lam_max = max(2 * np.sqrt(centered @ kernel(X[:, [k]]) @ centered) for k in range(6))
print(f"λ_max = {lam_max:.2f}")

values = lam_max * np.geomspace(1.05, 0.03, 16)
path = ko.path(problem, lam, values, evaluate=lambda _: {f"‖θ{k + 1}‖": norms[k].value for k in range(6)})
figure, axes = plt.subplots(figsize=(8, 4.3), layout="constrained")
for k in range(6):
    color, style = [("tab:blue", "o-"), ("tab:orange", "s--")][k] if k < 2 else ("0.6", ".:")
    label = f"column {k + 1}" if k < 2 else "columns 3 to 6" if k == 2 else None
    axes.semilogx(values, path[f"‖θ{k + 1}‖"], style, color=color, markersize=4, label=label)
axes.axvline(lam_max, color="black", linewidth=0.8)
axes.annotate("$\\lambda_\\mathrm{max}$", (lam_max, 1.5), xytext=(-6, 0), textcoords="offset points", ha="right")
axes.set(xlabel="λ", ylabel="‖θₖ‖")
axes.set_xticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()
