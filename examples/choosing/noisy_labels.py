r"""
Weights of noisy labels
=======================

A quarter of the labels is wrong, and it is not known which; fifty rows were checked.
The weights :math:`w_i` of the losses are parameters. The derivative of the loss on the
checked rows by each weight shows which labels do harm:

.. math:: \text{minimize} \quad \sum_i w_i \log(1 + e^{-y_i f(x_i)})
   + \lambda\|\theta\|^2.

One adjoint system gives the derivatives by all weights.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are 300 rows for training, a quarter of them with the opposite label, 50 rows
# that were checked, and the rest for a test.

rng = np.random.default_rng(0)
X, labels = load_breast_cancer(return_X_y=True)
X, labels = (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * labels - 1
order = rng.permutation(len(labels))
train, checked, test = np.split(order, [300, 350])
wrong = rng.random(300) < 0.25
y = np.where(wrong, -labels[train], labels[train])

# %%
# Derivatives by weights
# ----------------------
# All weights are 1. The picture shows the derivatives, for right and for wrong labels.

w = cp.Parameter(300, nonneg=True, value=np.ones(300), name="w")
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=8.0)), cp.Variable()
f = lambda points: theta(points) + b
fit = w @ ko.losses.log_loss(y, f(X[train]))
problem = ko.Problem(cp.Minimize(fit + 0.3 * ko.sum_squares(theta)))
problem.solve()
criterion = cp.sum(ko.losses.log_loss(labels[checked], f(X[checked]))) / 50
slopes = ko.gradient(problem, criterion, [w])[w]
area = roc_auc_score(wrong, slopes)
print(f"area under the ROC curve, wrong labels by the derivative: {area:.3f}")

fig, ax = plt.subplots()
bins = np.linspace(slopes.min(), slopes.max(), 40)
ax.hist(slopes[~wrong], bins, color="C0", label="right labels")
hatched = {"color": "C1", "alpha": 0.8, "hatch": "///", "edgecolor": "white"}
ax.hist(slopes[wrong], bins, **hatched, label="wrong labels")
ax.set(xlabel="derivative of the loss on checked rows by a weight", ylabel="rows")
ax.legend()
plt.show()

# %%
# Without the suspects
# --------------------
# The quarter of the rows with the largest derivatives is removed. Then the loss on the
# test rows is smaller too. It is close to that of a fit without the wrong labels, which
# are unknown in practice.

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
