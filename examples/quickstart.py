r"""
Quickstart: a classifier, and a robust one that no library has
==============================================================

.. math:: \text{minimize} \quad \sum_i \max(0,\ 1 - y_i(A\theta + b)_i) + \frac{1}{2C}\|\theta\|^2

This is the support vector machine, which scikit-learn's ``SVC`` solves too. If every point may move by ρ in feature
space before it is judged, the worst move costs :math:`\rho\|\theta\|` of margin, and one term of the problem changes.
Both are trained on breast_cancer, explained, and evaluated on held-out rows.
"""

import sys
from pathlib import Path

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Standardized features, labels −1 (malignant) and +1 (benign), 40 % of the rows held out.

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, 2 * y - 1, test_size=0.4, random_state=0, stratify=y)
scaler = StandardScaler().fit(X)
X, X_test = scaler.transform(X), scaler.transform(X_test)

# %%
# The support vector machine, as it is written above. ``explain()`` shows what became of it: the kernel matrix and its
# rank, the small problem, and how close the answer provably is to the optimum.

SIGMA, C, RHO = 6.0, 3.0, 0.15
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(name="b")
f = lambda X: theta(X) + b
loss = cp.sum(ko.losses.hinge(y, f(X)))
svm = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C)))
svm.solve()
print(svm.explain())

# %%
# The robust one has ρ‖θ‖ in every row, without a square. That is all there is to write.

theta_robust, b_robust = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(name="b")
g = lambda X: theta_robust(X) + b_robust
loss = cp.sum(cp.pos(1 - ko.margin(y, g(X)) + RHO * ko.norm(theta_robust)))
robust = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta_robust) / (2 * C)))
robust.solve()
print(robust.explain())

# %%
# Beside scikit-learn on the held-out rows, as they are and with noise on their features, averaged over 20 draws.

svc = SVC(C=C, gamma=1 / (2 * SIGMA**2), tol=1e-6).fit(X, y)
models = {
    "SVC (scikit-learn)": svc.decision_function,
    "declared SVM": lambda Z: f(Z).value,
    "robust": lambda Z: g(Z).value,
}
decisions = {name: decide(X_test) for name, decide in models.items()}

rng = np.random.default_rng(0)
noise = np.linspace(0.0, 2.0, 9)
noisy = [[X_test + s * rng.normal(size=X_test.shape) for _ in range(20)] for s in noise]
accuracies = {
    name: np.array([np.mean([np.sign(decide(Z)) == y_test for Z in draws]) for draws in noisy])
    for name, decide in models.items()
}
print(f"Held-out accuracy, {len(y_test)} rows      no noise   noise {noise[4]:g}   noise {noise[-1]:g}")
for name, accuracy in accuracies.items():
    print(f"  {name:<30}  {accuracy[0]:9.1%} {accuracy[4]:9.1%} {accuracy[-1]:9.1%}")
apart = np.abs(decisions["declared SVM"] - decisions["SVC (scikit-learn)"]).max()
print(f"\nLargest difference of decision values, declared SVM against SVC: {apart:.1e}")

# %%
# Accuracy against noise, and the margins of the held-out rows.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
styles = {
    "SVC (scikit-learn)": {"color": "0.75", "linewidth": 6, "markersize": 9},
    "declared SVM": {"color": "tab:blue", "linewidth": 1.5, "markersize": 4},
    "robust": {"color": "tab:red", "linewidth": 1.5, "markersize": 4},
}
for name, accuracy in accuracies.items():
    left.plot(noise, 100 * accuracy, marker="o", label=name, **styles[name])
    right.ecdf(y_test * decisions[name], **styles[name])
left.set(xlabel="noise on the features (standard deviations)", ylabel="held-out accuracy, %", title="Under noise")
left.legend(frameon=False, loc="lower left")
right.axvline(0, color="0.4", linewidth=1, linestyle=":", zorder=0)
right.set(xlabel="margin  $y_i f(x_i)$, negative where wrong", ylabel="share of rows with at most this margin")
right.set_title("Margins of the held-out rows")
path = Path(sys.argv[0]).with_suffix(".png")
figure.savefig(path, dpi=150)
print(f"Picture: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
