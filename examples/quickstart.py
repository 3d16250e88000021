r"""
Quickstart: a classifier, and a robust one that no library has
==============================================================

.. math:: \text{minimize} \quad
   \sum_i \max(0,\ 1 - y_i(A\theta + b)_i) + \frac{1}{2C}\|\theta\|^2

This is the support vector machine of scikit-learn's ``SVC``. If every point may move by
ρ in feature space before it is judged, the worst move costs :math:`\rho\|\theta\|` of
margin, and one term of the problem changes. Both are trained on the breast cancer data,
explained, and evaluated on held-out rows.
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

plt.style.use("kernelopt.plots")

# %%
# The data
# --------
# Features are standardized. Labels are −1 (malignant) and +1 (benign), and 40 % of the
# rows are held out.

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X, 2 * y - 1, test_size=0.4, random_state=0, stratify=y
)
scaler = StandardScaler().fit(X)
X, X_test = scaler.transform(X), scaler.transform(X_test)

# %%
# The support vector machine
# --------------------------
# The code repeats the formula. A has a row :math:`F(x_i)^\top` for each patient, of
# which only inner products are known, the kernel matrix :math:`Q = AA^\top`.
# ``explain()`` shows how the problem became a small one, and how close the answer
# provably is to the optimum:
#
# - *rules*: the representer theorem covers every use of θ, so that the optimal θ is a
#   combination of the rows of A.
# - *factor*: with :math:`Q = BB^\top`, Aθ becomes Bw and ‖θ‖ becomes ‖w‖. This problem
#   needs no factor: all rows are independent, so that B would be as large as Q, and the
#   solver for support vector machines uses entries of Q.
# - *answer*: θ is a combination of the features of the pivots, here the support
#   vectors.
# - *certificate*: an interval that contains the optimum of the problem as stated. The
#   relative gap is its width, divided by what the answer improves on θ = 0.

SIGMA, C, RHO = 6.0, 3.0, 0.15
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(name="b")
f = lambda X: theta(X) + b
loss = cp.sum(ko.losses.hinge(y, f(X)))
svm = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C)))
svm.solve()
print("The support vector machine")
print(svm.explain())

# %%
# The robust machine
# ------------------
# It has ρ‖θ‖ in every row, without a square. Its solver works with w, so that *factor*
# shows B, which has as many columns as rows here.

theta_robust, b_robust = (
    ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)),
    cp.Variable(name="b"),
)
g = lambda X: theta_robust(X) + b_robust
loss = cp.sum(cp.pos(1 - ko.margin(y, g(X)) + RHO * ko.norm(theta_robust)))
robust = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta_robust) / (2 * C)))
robust.solve()
print("\nThe robust machine")
print(robust.explain())

# %%
# Comparison on held-out rows
# ---------------------------
# The rows are evaluated as they are and with noise on their features, averaged over 20
# draws.

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
    name: np.array(
        [np.mean([np.sign(decide(Z)) == y_test for Z in draws]) for draws in noisy]
    )
    for name, decide in models.items()
}
print(f"\nHeld-out accuracy, {len(y_test)} rows", end="")
print(f"{'no noise':>15}{f'noise {noise[4]:g}':>10}{f'noise {noise[-1]:g}':>10}")
for name, accuracy in accuracies.items():
    print(f"  {name:<28}{accuracy[0]:12.1%}{accuracy[4]:10.1%}{accuracy[-1]:10.1%}")
apart = np.abs(decisions["declared SVM"] - decisions["SVC (scikit-learn)"]).max()
print(f"\nLargest difference of decision values, declared SVM and SVC: {apart:.1e}")

# %%
# Accuracy against noise:

figure, axes = plt.subplots()
styles = {
    "SVC (scikit-learn)": {"color": "0.75", "linestyle": "-", "linewidth": 6},
    "declared SVM": {"color": "C0", "linestyle": "-", "marker": "o"},
    "robust": {"color": "C1", "linestyle": "--", "marker": "s"},
}
for name, accuracy in accuracies.items():
    axes.plot(noise, 100 * accuracy, label=name, **styles[name])
axes.set(xlabel="noise on the features (standard deviations)")
axes.set(ylabel="held-out accuracy, %")
axes.legend()
path = Path(sys.argv[0]).with_suffix(".png")
figure.savefig(path, dpi=150)
shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
print(f"Picture: {shown}")
