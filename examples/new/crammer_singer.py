r"""
Several classes in one problem: Crammer and Singer's machine
============================================================

One score for each class, :math:`F(x) = \theta^\top F(x) + c` with a p×K matrix θ, and one loss for all of them:

.. math:: \text{minimize} \quad \sum_i \Bigl(\max_k \bigl(F_k(x_i) + [k \ne y_i]\bigr) - F_{y_i}(x_i)\Bigr)
   + \lambda\|\theta\|^2

The score of the right class should lead every other by 1 (Crammer and Singer 2001). What is common instead is one
support vector machine for each class against the rest, whose scores are put beside each other although nothing in
their training compared them. scikit-learn has the joint machine for linear scores only; here it is the same line for
every kernel.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.svm import LinearSVC

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Three kinds of iris by the length and width of petals.

iris = load_iris()
X, y = iris.data[:, 2:], iris.target
X = (X - X.mean(axis=0)) / X.std(axis=0)

# %%
# The joint machine, and one machine for each class against the rest, with the same kernel and λ.

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


# %%
# Linear scores show the difference best: one kind of iris lies between the two others, and no line parts it from the
# rest. With Gaussian scores both ways make as many errors here.


def errors(scores):
    return np.sum(scores.argmax(axis=1) != y)


kernels = {"linear": ko.kernels.Linear(), "Gaussian": ko.kernels.Gaussian(sigma=1.0)}
classifiers = {}
for name, kernel in kernels.items():
    problem, F = jointly(kernel)
    G = against_the_rest(kernel)
    classifiers[name] = F, G
    print(f"{name} scores: errors {errors(F(X).value)} jointly, {errors(G(X))} against the rest, of {len(y)}")
print(problem.status, problem.solver_stats.solver_name, problem.certificate)

# %%
# In the multipliers, one for each row and class, each row weighs its class against the others: they sum to zero.

theta = problem.thetas()[0]
nu = theta(X).dual_value
print(f"support vectors: {np.sum(np.abs(nu).max(axis=1) > 1e-6)}; largest |Σₖ νᵢₖ| {np.abs(nu.sum(axis=1)).max():.1e}")

# %%
# With a linear kernel and without c it is scikit-learn's ``LinearSVC(multi_class="crammer_singer")`` for C = 1/2λ.

weights = ko.Theta(ko.kernels.Linear(), outputs=3)
loss = cp.sum(ko.losses.crammer_singer(y, weights(X)))
linear = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(weights)))
linear.solve(tol=1e-9)
options = {"multi_class": "crammer_singer", "fit_intercept": False, "tol": 1e-8, "max_iter": 1_000_000}
svc = LinearSVC(C=1 / (2 * lam), **options).fit(X, y)
theirs = X @ svc.coef_.T
print(f"linear scores differ by at most {np.abs(weights.value(X) - theirs).max():.1e}")

# %%
# Left jointly, right one class against the rest. Support vectors are circled on the left.

figure, axes = plt.subplots(2, 2, figsize=(9, 8), sharex=True, sharey=True, layout="constrained")
for row, (name, pair) in zip(axes, classifiers.items(), strict=True):
    for axis, scores, how in zip(row, pair, ("jointly", "against the rest"), strict=True):
        ko.plots.decision_regions(scores, X, y, ax=axis)
        axis.set(title=f"{name} scores, {how}", xlabel=None, ylabel=None)
        axis.get_legend().remove()
figure.supxlabel("petal length, standardized")
figure.supylabel("petal width, standardized")
plt.show()
