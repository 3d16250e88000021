r"""
Multiclass classification in one problem: Crammer and Singer's machine
======================================================================

There is one score per class, :math:`F(x) = \theta^\top F(x) + c` with a p×K matrix θ,
and one loss for all of them:

.. math:: \text{minimize} \quad
   \sum_i \Bigl(\max_k \bigl(F_k(x_i) + [k \ne y_i]\bigr) - F_{y_i}(x_i)\Bigr)
   + \lambda\|\theta\|^2

The score of the right class should exceed every other by 1 (Crammer and Singer 2001).
The common alternative is one support vector machine per class against the rest. Their
scores are then compared, although nothing in the training did so. scikit-learn has the
joint machine for linear scores only; here the same code works for every kernel.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.svm import LinearSVC

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are three kinds of iris, by the length and width of petals.

iris = load_iris()
X, y = iris.data[:, 2:], iris.target
X = (X - X.mean(axis=0)) / X.std(axis=0)

# %%
# Two ways to classify
# --------------------
# One is the joint machine. The other is one machine per class against the rest, with
# the same kernel and λ. The picture shows the joint machine with Gaussian scores;
# support vectors are circled.

lam = 0.5


def jointly(kernel):
    theta, c = ko.Theta(kernel, outputs=3), cp.Variable(3)
    loss = cp.sum(ko.losses.crammer_singer(y, theta(X) + c[None, :]))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve()
    return problem, lambda X: theta(X) + c[None, :]


def against_the_rest(kernel):
    theta, b, machines = ko.Theta(kernel), cp.Variable(), []
    for k in range(3):
        hinge = ko.losses.hinge(np.where(y == k, 1, -1), theta(X) + b)
        ko.Problem(cp.Minimize(cp.sum(hinge) + lam * ko.sum_squares(theta))).solve()
        machines.append((theta.value, b.value))
    return lambda X: np.column_stack([f(X) + b for f, b in machines])


def errors(scores):
    return np.sum(scores.argmax(axis=1) != y)


def picture(scores, title, ax=None):
    ax = ko.plots.decision_regions(scores, X, iris.target_names[y], ax=ax)
    ax.get_legend().remove()
    ax.set(title=title, xlabel="petal length, standardized")
    ax.set(ylabel="petal width, standardized")
    return ax


kernels = {"linear": ko.kernels.Linear(), "Gaussian": ko.kernels.Gaussian(sigma=1.0)}
problem, F = jointly(kernels["Gaussian"])
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
ax = picture(F, "Gaussian scores, jointly")
ax.figure.legend(loc="outside right upper")
plt.show()

# %%
# Jointly, and against the rest
# -----------------------------
# Linear scores show the difference best: one kind of iris lies between the two others,
# and no line separates it from the rest. With Gaussian scores both ways make the same
# number of errors here.


classifiers = {}
for name, kernel in kernels.items():
    problem, F = jointly(kernel)
    G = against_the_rest(kernel)
    classifiers[name] = F, G
    print(f"{name} scores, of {len(y)} rows:", end=" ")
    print(f"{errors(F(X).value)} errors jointly, {errors(G(X))} against the rest")

fig, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True)
hows = "jointly", "against the rest"
for ax, scores, how in zip(axes, classifiers["linear"], hows, strict=True):
    picture(scores, f"linear scores, {how}", ax)
axes[1].set_ylabel(None)
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
plt.show()

# %%
# Multipliers
# -----------
# There is one multiplier per row and class. In each row they weigh its class against
# the others and sum to zero.

theta = problem.thetas()[0]
nu = theta(X).dual_value
print(f"{np.sum(np.abs(nu).max(axis=1) > 1e-6)} support vectors")
print(f"largest |Σₖ νᵢₖ| {np.abs(nu.sum(axis=1)).max():.1e}")

# %%
# The same machine in scikit-learn
# --------------------------------
# With a linear kernel and without c, it is ``LinearSVC(multi_class="crammer_singer")``
# for C = 1/2λ.

weights = ko.Theta(ko.kernels.Linear(), outputs=3)
loss = cp.sum(ko.losses.crammer_singer(y, weights(X)))
linear = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(weights)))
linear.solve(tol=1e-9)
svc = LinearSVC(
    multi_class="crammer_singer",
    C=1 / (2 * lam),
    fit_intercept=False,
    tol=1e-8,
    max_iter=1_000_000,
).fit(X, y)
theirs = X @ svc.coef_.T
apart = np.abs(weights.value(X) - theirs).max()
print(f"linear scores differ by at most {apart:.1e}")
