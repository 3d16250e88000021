r"""
A similarity that is no kernel
==============================

.. math::

   \text{minimize} \quad \sum_i \max(0, 1 - y_i(Qc + b\mathbf{1})_i) + \lambda\
    c^\top Qc,
   \qquad Q_{ij} = \tanh(s\, x_i^\top x_j)

The sigmoid looks like a kernel, and many libraries offer it. But Q has negative
eigenvalues: there is no F with :math:`Q_{ij} = F(x_i)^\top F(x_j)`, no θ, and no norm.
What can be done, and what does it cost?
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# A third of scikit-learn's breast cancer data is for training, the rest for a test.

data = load_breast_cancer()
X = StandardScaler().fit_transform(data.data)
labels = np.where(data.target == 1, 1.0, -1.0)
train = np.arange(len(X)) % 3 == 0
y, test = labels[train], ~train

kernel = ko.kernels.Sigmoid(scale=0.1)
print(kernel.explain())

# %%
# The kernel is refused
# ---------------------
# The support vector machine is refused before anything is solved, with the eigenvalue.

lam = 0.5
theta, b = ko.Theta(kernel), cp.Variable()
f = theta(X[train]) + b
loss = cp.sum(ko.losses.hinge(y, f))
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
try:
    problem.solve()
except ko.errors.NotPSDError as error:
    print(error)

# %%
# The reason: along an eigenvector v of a negative eigenvalue the loss grows linearly,
# and the "square" of the norm falls quadratically. The problem in c has no optimum.

Q = kernel(X[train])
eigenvalues, V = np.linalg.eigh(Q)


def objective(c, b):
    return np.sum(np.maximum(0, 1 - y * (Q @ c + b))) + lam * c @ Q @ c


for t in (0, 10, 100, 1000):
    print(f"objective at c = {t}·v: {objective(t * V[:, 0], 0.0):.4g}")

# %%
# Three changes of Q
# ------------------
# For a fit anyway, Q is replaced by a Q̃ without negative eigenvalues: they are clipped
# to 0, flipped to their absolute values, or all eigenvalues are shifted.

changed = {
    "clip": eigenvalues.clip(0),
    "flip": np.abs(eigenvalues),
    "shift": eigenvalues - eigenvalues[0],
}
number = np.arange(1, len(y) + 1)
fig, ax = plt.subplots()
ax.plot(number, eigenvalues, "-", color="0.7", linewidth=5, label="Q")
for way, values in changed.items():
    ax.plot(number, values, label=way)
ax.set(xlabel="number", ylabel="eigenvalue", yscale="symlog")
ax.legend()
plt.show()

# %%
# Each is a convex problem, solved and certified, but another one: ‖Q − Q̃‖ is its
# distance. The table also shows the objective in terms of Q at the answer, and the
# accuracy of that answer.

K = kernel(X[test], X[train])


def accuracies(c, b):
    held_out = (K @ c + b > 0) == (labels[test] > 0)
    return np.mean((Q @ c + b > 0) == (y > 0)), np.mean(held_out)


answers, rows = {}, []
for way, values in changed.items():
    problem.solve(indefinite=way)
    c = theta.value.coefficients
    answers[way] = problem.value, objective(c, b.value), *accuracies(c, b.value)
    print(f"{way}: certified gap {problem.certificate.relative_gap:.0e}")
    distance = np.linalg.norm(values - eigenvalues) / np.linalg.norm(eigenvalues)
    rows.append((distance, *answers[way], np.mean((f.value > 0) == (y > 0))))

print("\n      ‖Q−Q̃‖/‖Q‖  objective  in terms of Q  training  held out  training by Q̃")
for way, row in zip(changed, rows, strict=True):
    line = "{:9.3f}  {:9.4f}  {:13.4f}  {:8.3f}  {:8.3f}  {:13.3f}"
    print(f"{way:<6} {line.format(*row)}")

# %%
# scikit-learn's answer
# ---------------------
# The shift costs most. It adds to κ a multiple of [x = z]. With it the machine
# memorizes each training row (by Q̃ all are right), which does not help for new points.
#
# scikit-learn's ``SVC`` accepts the same Q without a warning. Its dual problem,
# maximize :math:`\sum_i|c_i| - c^\top Qc/2`, is then not concave, and where the method
# stops depends on where it starts. Here the same Q has its rows in another order, four
# times, with a tight tolerance; ``fit_status_`` is 0, for "correctly fitted".

rng = np.random.default_rng(0)
sklearn = []
for _ in range(4):
    order = rng.permutation(len(y))
    svc = SVC(kernel="precomputed", C=1 / (2 * lam), tol=1e-8)
    svc.fit(Q[np.ix_(order, order)], y[order])
    c = np.zeros(len(y))
    c[order[svc.support_]] = svc.dual_coef_[0]
    dual = np.abs(c).sum() - c @ Q @ c / 2
    sklearn.append((c, svc.intercept_[0], dual, *accuracies(c, svc.intercept_[0])))
    print(
        f"SVC: fit_status_ {svc.fit_status_}, dual objective {dual:.4f}, "
        f"cᵀQc = {c @ Q @ c:.2f}, "
        f"training {sklearn[-1][3]:.3f}, held out {sklearn[-1][4]:.3f}"
    )
names = [*answers, *(f"SVC {k}" for k in range(1, 5))]
shares = np.array([*(a[2:] for a in answers.values()), *(s[3:] for s in sklearn)])
fig, ax = plt.subplots()
ax.plot(names, shares[:, 0], "o", color="C0", markersize=7, label="training, by Q")
ax.plot(names, shares[:, 1], "s", color="C1", markersize=7, label="held out")
ax.set_ylabel("share of rows that are right")
ax.legend()
plt.show()

# %%
# An audit of scikit-learn's answer
# ---------------------------------
# For Q the problem has no optimum, and ``verify`` says so. For the nearest matrix
# without negative eigenvalues, the clipped one, it has. With the first of the four c,
# the objective is this far from it:

theta.value = ko.Function(kernel, X[train], sklearn[0][0])
b.value = sklearn[0][1]
try:
    problem.verify()
except ko.errors.NotPSDError as error:
    print(f"refused: {str(error)[:110]} …")

clipped = ko.kernels.Precomputed((V * changed["clip"]) @ V.T)
theta_q, b_q = ko.Theta(clipped), cp.Variable()
rows = np.arange(len(y))
loss = cp.sum(ko.losses.hinge(y, theta_q(rows) + b_q))
nearest = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta_q)))
theta_q.value = ko.Function(clipped, rows, sklearn[0][0])
b_q.value = sklearn[0][1]
audit = nearest.verify()
print(audit)
