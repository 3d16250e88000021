r"""
Kernel logistic regression
==========================

.. math:: \text{minimize} \quad \sum_{i=1}^N \log\bigl(1 + e^{-y_i(\theta^\top F(x_i)
   + b)}\bigr) + \lambda\|\theta\|^2

This classifier gives probabilities, P(y = 1 | x) = 1/(1 + exp(−θᵀF(x) − b)). The
multiplier of a row is the probability of the wrong label, so every row is a support
vector. The same problem is solved by scikit-learn in explicit features, and by Newton's
method for a kernel with infinitely many.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Labels are drawn from known probabilities, to which the fit is compared.

rng = np.random.default_rng(0)


def true_probability(X):
    return expit(3 * np.sin(1.5 * X[:, 0]) + 2 * X[:, 1])


def draw(n):
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.where(rng.random(n) < true_probability(X), 1, -1)


X, y = draw(300)

# %%
# The fit
# -------
# The map shows the probabilities of the fit. On the white dashed line, the true
# probability is ½.


def logistic(kernel, lam):
    """The solved problem, its θ and b."""
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    loss = cp.sum(ko.losses.log_loss(y, theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-12)
    return problem, theta, b


lam = 0.1
gaussian = ko.kernels.Gaussian(sigma=1.0)
problem, theta, b = logistic(gaussian, lam)
print(problem.explain())
side = np.linspace(-2, 2, 80)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
fitted = expit((theta(grid) + b).value).reshape(80, 80)
truth = true_probability(grid).reshape(80, 80)
fig, ax = plt.subplots()
drawn = ax.contourf(side, side, fitted, levels=np.linspace(0, 1, 11))
ax.contour(side, side, truth, levels=[0.5], colors="white", linestyles="--")
for label, marker, face in ((1, "s", "white"), (-1, "o", "black")):
    style = {"marker": marker, "color": face, "edgecolors": "0.4"}
    ax.scatter(*X[y == label].T, s=12, linewidths=0.4, label=f"y = {label}", **style)
fig.colorbar(drawn, label="P(y = 1 | x)")
ax.set(xlabel="x₁", ylabel="x₂")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# What the multipliers are
# ------------------------
# The multiplier of row i is yᵢ times the probability of the other label, and θ =
# Aᵀν/2λ. Since the derivative in b is zero, the multipliers sum to zero: the
# probabilities sum to the number of rows with y = 1.

f = (theta(X) + b).value
nu = theta(X).dual_value
difference = np.abs(nu - y * expit(-y * f)).max()
print(f"largest difference of ν and y(1 − P(y)): {difference:.1e}")
print(f"{np.sum(y > 0)} rows with y = 1, sum of all probabilities {expit(f).sum():.8f}")

# %%
# Newton's method
# ---------------
# For (α, b), with f = Qα + b, each step solves the linear system of weighted least
# squares, :math:`(Q + 2\lambda W^{-1})\alpha + b\mathbf 1 = f + W^{-1}g` and
# :math:`\mathbf 1^\top\alpha = 0`. Here g = y P(−y | x), and W holds the second
# derivatives P(1 | x)P(−1 | x).

Q, ones = gaussian(X), np.ones(len(y))
alpha, b_newton = np.zeros(len(y)), 0.0
for _ in range(10):
    f_newton = Q @ alpha + b_newton
    g, W = y * expit(-y * f_newton), expit(f_newton) * expit(-f_newton)
    H = Q + np.diag(2 * lam / W)
    system = np.block([[H, ones[:, None]], [ones[None, :], np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(f_newton + g / W, 0.0))
    alpha, b_newton = solution[:-1], solution[-1]
newton = ko.Function(gaussian, X, alpha)
fresh, _ = draw(1000)
ours, by_newton = (theta(fresh) + b).value, newton(fresh) + b_newton
apart = np.abs(expit(ours) - expit(by_newton)).max()
print(f"ten Newton steps: largest difference of probabilities {apart:.1e}")

# %%
# Explicit features
# -----------------
# A polynomial kernel has finitely many features. scikit-learn's ``LogisticRegression``
# takes them, with C = 1/2λ.

polynomial = ko.kernels.Polynomial(degree=3)
_, theta_3, b_3 = logistic(polynomial, lam)
peer = LogisticRegression(
    C=1 / (2 * lam), solver="newton-cholesky", tol=1e-10, max_iter=1000
)
peer.fit(polynomial.features(X), y)
probabilities = peer.predict_proba(polynomial.features(fresh))[:, 1]
apart_3 = np.abs(expit((theta_3(fresh) + b_3).value) - probabilities).max()
print(f"scikit-learn: largest difference of probabilities {apart_3:.1e}")

# %%
# Calibration
# -----------
# Among new rows with a probability of about 30 %, about 30 % should have y = 1. The
# picture checks this on 20 000 rows. With a small λ the probabilities are too extreme,
# with a large one too close to ½.

many, labels = draw(20_000)


def calibration(p):
    """Mean probability and share of y = 1 in each tenth of the rows, ordered by p."""
    tenths = np.array_split(np.argsort(p), 10)
    return np.array([[p[rows].mean(), np.mean(labels[rows] > 0)] for rows in tenths]).T


curves, excess = {}, {}
for value in (1e-4, 0.1, 3.0):
    _, theta_value, b_value = logistic(gaussian, value)
    given, seen = curves[value] = calibration(
        expit((theta_value(many) + b_value).value)
    )
    excess[value] = np.mean(np.sign(given - 0.5) * (given - seen))
    print(
        f"λ = {value:g}: on average probabilities are {100 * excess[value]:+.1f} % "
        "farther from ½ than the shares"
    )

fig, ax = plt.subplots()
ax.plot([0, 1], [0, 1], ":", color="black", label="calibrated")
for (value, curve), marker in zip(curves.items(), "so^", strict=True):
    ax.plot(*curve, marker=marker, markersize=5, label=f"λ = {value:g}")
ax.set(xlabel="probability", ylabel="share of rows with y = 1")
ax.legend()
plt.show()
