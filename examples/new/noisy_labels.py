r"""
Weights of noisy labels
=======================

A quarter of the labels is wrong, and nobody knows which; fifty rows were checked. With weights :math:`w_i` of the
losses as parameters, the derivative of the loss on the checked rows by each weight says which labels hurt:

.. math:: \text{minimize} \quad \sum_i w_i \log(1 + e^{-y_i f(x_i)}) + \lambda\|\theta\|^2.

One adjoint system gives the derivatives by all weights.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The data: 300 rows to train on, of whose labels a quarter is turned over, 50 that were checked, the rest for a test.

rng = np.random.default_rng(0)
X, labels = load_breast_cancer(return_X_y=True)
X, labels = (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * labels - 1
order = rng.permutation(len(labels))
train, checked, test = np.split(order, [300, 350])
wrong = rng.random(300) < 0.25
y = np.where(wrong, -labels[train], labels[train])

# %%
# The problem with all weights 1, and the derivative of the loss on the checked rows by each of them.

w = cp.Parameter(300, nonneg=True, value=np.ones(300), name="w")
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=8.0)), cp.Variable()
f = lambda points: theta(points) + b
problem = ko.Problem(cp.Minimize(w @ ko.losses.log_loss(y, f(X[train])) + 0.3 * ko.sum_squares(theta)))
problem.solve()
criterion = cp.sum(ko.losses.log_loss(labels[checked], f(X[checked]))) / 50
slopes = ko.gradient(problem, criterion, [w])[w]
area = roc_auc_score(wrong, slopes)
print(f"area under the curve of finding wrong labels by the derivative: {area:.3f}")

# %%
# Without the quarter of the rows with the largest derivatives the loss on the test rows, too, is smaller, and the fit
# is about that without the rows whose labels are wrong, which nobody knows.

loss = cp.sum(ko.losses.log_loss(labels[test], f(X[test]))) / len(test)
losses = {}
chosen = {
    "all rows": np.ones(300),
    "without suspects": slopes < np.quantile(slopes, 0.75),
    "right labels alone": ~wrong,
}
for name, weights in chosen.items():
    w.value = weights.astype(float)
    problem.solve()
    losses[name] = float(loss.value)
    right = float(np.mean(np.sign(f(X[test]).value) == labels[test]))
    print(f"{name:>18}: loss on the test rows {losses[name]:.3f}, accuracy {right:.3f}")

# %%
# Derivatives at equal weights, by whether a label is right.

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
bins = np.linspace(slopes.min(), slopes.max(), 40)
axes.hist(slopes[~wrong], bins, color="tab:blue", label="right labels")
axes.hist(slopes[wrong], bins, color="tab:orange", alpha=0.8, label="wrong labels")
axes.set(xlabel="derivative of the loss on checked rows by the row's weight", ylabel="rows")
axes.legend(frameon=False)
plt.show()
