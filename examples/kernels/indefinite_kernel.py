r"""
A kernel that is none
=====================

.. math::

   \text{minimize} \quad \sum_i \max(0, 1 - y_i(Qc + b\mathbf{1})_i) + \lambda\, c^\top Qc,
   \qquad Q_{ij} = \tanh(s\, x_i^\top x_j)

The sigmoid looks like a kernel, and is in many libraries. But Q has negative eigenvalues: there is no F with
:math:`Q_{ij} = F(x_i)^\top F(x_j)`, no θ, and no norm. What can be done, and what does it cost?
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# A third of scikit-learn's breast cancer data for training, the others to judge.

data = load_breast_cancer()
X, labels = StandardScaler().fit_transform(data.data), np.where(data.target == 1, 1.0, -1.0)
train = np.arange(len(X)) % 3 == 0
y, test = labels[train], ~train

kernel = ko.kernels.Sigmoid(scale=0.1)
print(kernel.explain())

# %%
# Before anything is solved, the support vector machine is refused, with the eigenvalue.

lam = 0.5
theta, b = ko.Theta(kernel), cp.Variable()
f = theta(X[train]) + b
problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, f)) + lam * ko.sum_squares(theta)))
try:
    problem.solve()
except ko.errors.NotPSDError as error:
    print(error)

# %%
# It is refused with reason. Along an eigenvector v of a negative eigenvalue the loss grows linearly, and the "square"
# of the norm falls quadratically: the problem in c has no optimum.

Q = kernel(X[train])
eigenvalues, V = np.linalg.eigh(Q)


def objective(c, b):
    return np.sum(np.maximum(0, 1 - y * (Q @ c + b))) + lam * c @ Q @ c


for t in (0, 10, 100, 1000):
    print(f"objective at c = {t}·v: {objective(t * V[:, 0], 0.0):.4g}")

# %%
# To run anyway, Q is changed to a Q̃ that has no negative eigenvalues: they are clipped to 0, flipped to their absolute
# values, or all are shifted. Each is a convex problem, solved and certified, but another one: ‖Q − Q̃‖ says how far
# away. Last, the objective in terms of Q at the answer, and how many rows that answer has right.

changed = {
    "clip": eigenvalues.clip(0),
    "flip": np.abs(eigenvalues),
    "shift": eigenvalues - eigenvalues[0],
}
K = kernel(X[test], X[train])


def accuracies(c, b):
    return np.mean((Q @ c + b > 0) == (y > 0)), np.mean((K @ c + b > 0) == (labels[test] > 0))


answers = {}
print("       ‖Q−Q̃‖/‖Q‖  objective  certified gap  in terms of Q  training (by Q̃)  held out")
for way, values in changed.items():
    problem.solve(indefinite=way)
    distance = np.linalg.norm(values - eigenvalues) / np.linalg.norm(eigenvalues)
    c = theta.value.coefficients
    by_changed = np.mean((f.value > 0) == (y > 0))
    answers[way] = problem.value, objective(c, b.value), *accuracies(c, b.value)
    value, in_terms_of_q, right, held_out = answers[way]
    print(
        f"{way:<6}  {distance:9.3f}  {value:9.4f}  {problem.certificate.relative_gap:13.0e}  {in_terms_of_q:13.4f}  "
        f"{right:.3f}    ({by_changed:.3f})  {held_out:8.3f}"
    )

# %%
# The shift costs most. It adds to κ a multiple of [x = z], which lets the machine learn each training row by
# heart (by Q̃ all are right) and says nothing of new points.
#
# scikit-learn's ``SVC`` takes the same Q without a word. Its dual problem, maximize :math:`\sum_i|c_i| - c^\top Qc/2`,
# is not concave then, and where the method stops depends on where it starts. Here is the same Q with its rows in
# another order, four times, with a tight tolerance; ``fit_status_`` is 0, for "correctly fitted".

rng = np.random.default_rng(0)
sklearn = []
for _ in range(4):
    order = rng.permutation(len(y))
    svc = SVC(kernel="precomputed", C=1 / (2 * lam), tol=1e-8).fit(Q[np.ix_(order, order)], y[order])
    c = np.zeros(len(y))
    c[order[svc.support_]] = svc.dual_coef_[0]
    dual = np.abs(c).sum() - c @ Q @ c / 2
    sklearn.append((c, svc.intercept_[0], dual, *accuracies(c, svc.intercept_[0])))
    print(
        f"SVC: fit_status_ {svc.fit_status_}, dual objective {dual:.4f}, cᵀQc = {c @ Q @ c:.2f}, "
        f"training {sklearn[-1][3]:.3f}, held out {sklearn[-1][4]:.3f}"
    )

# %%
# What is such an answer worth? For Q the question has no answer, and ``verify`` says so. For the nearest matrix
# without negative eigenvalues, the clipped one, it has: with the first of the four c the objective is this far from its
# optimum.

theta.value = ko.Function(kernel, X[train], sklearn[0][0])
b.value = sklearn[0][1]
try:
    problem.verify()
except ko.errors.NotPSDError as error:
    print(f"refused: {str(error)[:110]} …")

clipped = ko.kernels.Precomputed((V * changed["clip"]) @ V.T)
theta_q, b_q = ko.Theta(clipped), cp.Variable()
rows = np.arange(len(y))
nearest = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta_q(rows) + b_q)) + lam * ko.sum_squares(theta_q)))
theta_q.value = ko.Function(clipped, rows, sklearn[0][0])
b_q.value = sklearn[0][1]
audit = nearest.verify()
print(audit)

# %%
# Left the eigenvalues, and what each way makes of them; right the share of rows that are right.

figure, (left, right_) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
styles = {"clip": ("-", "tab:blue"), "flip": ("--", "tab:orange"), "shift": ("-.", "tab:red")}
number = np.arange(1, len(y) + 1)
left.plot(number, eigenvalues, color="black", linewidth=3, alpha=0.4, label="Q")
for way, (style, color) in styles.items():
    left.plot(number, changed[way], style, color=color, label=way)
left.set(xlabel="number", ylabel="eigenvalue", yscale="symlog")
left.legend(frameon=False)
names = [*answers, *(f"SVC {k}" for k in range(1, 5))]
shares = np.array([*(a[2:] for a in answers.values()), *(s[3:] for s in sklearn)])
right_.plot(names, shares[:, 0], "o", color="0.6", label="training, by Q")
right_.plot(names, shares[:, 1], "s", color="tab:blue", label="held out")
right_.tick_params(axis="x", labelrotation=45)
right_.set(ylabel="share of rows that are right", ylim=(0.88, 1.0))
right_.legend(frameon=False)
plt.show()
