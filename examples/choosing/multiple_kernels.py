r"""
Which kernels? A sum of norms decides
=====================================

Several kernels are used at once, each with a vector :math:`\theta_k` of its own feature
space:

.. math:: \text{minimize} \quad
   \Bigl\|y - b\mathbf{1} - \sum_k A_k\theta_k\Bigr\|^2 + \lambda \sum_k \|\theta_k\|

A sum of norms, not of their squares, sets whole vectors to zero, as the lasso sets
numbers to zero. This is multiple kernel learning (Bach, Lanckriet and Jordan 2004), or
the group lasso of infinitely many features. One kernel per column selects columns; one
per width selects widths.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Two of six columns matter: the first through a sine, the second through a square.

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(150, 6))
y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=150)

# %%
# The problem
# -----------
# Each column has a Gaussian kernel, :math:`f(x) = b + \sum_k \theta_k^\top F_k(x_k)`.

kernel = ko.kernels.Gaussian(sigma=0.7)
thetas = [ko.Theta(kernel, name=f"θ{k + 1}") for k in range(6)]
b, lam = cp.Variable(name="b"), cp.Parameter(nonneg=True, name="lam")
predictions = [theta(X[:, [k]]) for k, theta in enumerate(thetas)]
norms = [ko.norm(theta) for theta in thetas]
squares = cp.sum_squares(y - b - sum(predictions))
problem = ko.Problem(cp.Minimize(squares + lam * sum(norms)))

# %%
# The path of λ
# -------------
# At :math:`\theta = 0` the multipliers ν of :math:`A_k\theta_k` are twice the centered
# y. From λ_max on, the largest :math:`\sqrt{\nu^\top Q_k \nu}`, all kernels drop out.
# Below it they enter one after the other.

centered = y - y.mean()
lam_max = max(2 * np.sqrt(centered @ kernel(X[:, [k]]) @ centered) for k in range(6))
print(f"λ_max = {lam_max:.2f}")

values = lam_max * np.geomspace(1.05, 0.03, 16)
lengths_of = lambda _: {f"‖θ{k + 1}‖": norms[k].value for k in range(6)}
path = ko.path(problem, lam, values, evaluate=lengths_of)

fig, axes = plt.subplots()
for k in range(6):
    color, style = [("C0", "o-"), ("C1", "s--")][k] if k < 2 else ("0.5", ".:")
    label = f"column {k + 1}" if k < 2 else "columns 3 to 6" if k == 2 else None
    axes.semilogx(values, path[f"‖θ{k + 1}‖"], style, color=color, label=label)
axes.axvline(lam_max, color="black", linestyle="-", linewidth=0.8)
offset = {"xytext": (-6, 0), "textcoords": "offset points", "ha": "right"}
axes.annotate(r"$\lambda_\mathrm{max}$", (lam_max, 1.5), **offset)
axes.set(xlabel="λ", ylabel="‖θₖ‖")
axes.set_xticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# Why a kernel drops out
# ----------------------
# The multipliers ν are twice the residuals. :math:`A_k^\top\nu` is a subgradient of
# :math:`\lambda\|\theta_k\|`, so
#
# .. math:: \sqrt{\nu^\top Q_k \nu} \le \lambda,
#    \quad \text{with equality where} \quad \theta_k \ne 0.

lam.value = 15.0
problem.solve(tol=1e-9)
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
residual = y - b.value - sum(p.value for p in predictions)
lengths = []
for k, (theta, prediction) in enumerate(zip(thetas, predictions, strict=True)):
    nu, Q = prediction.dual_value, kernel(X[:, [k]])
    length = np.sqrt(nu @ Q @ nu)
    lengths.append(length)
    ratio = length / lam.value
    print(f"column {k + 1}: ‖θ‖ = {theta.value.norm:.4f}, √(νᵀQν)/λ = {ratio:.6f}")
print(
    f"ν and twice the residuals differ by at most {np.abs(nu - 2 * residual).max():.1e}"
)
