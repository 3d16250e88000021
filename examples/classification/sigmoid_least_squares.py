r"""
Sigmoid least squares, a nonconvex loss
=======================================

.. math:: \text{minimize} \quad
    \sum_{i=1}^N \bigl(\tanh(\theta^\top F(x_i)) - y_i\bigr)^2 + \lambda\|\theta\|^2

A row costs at most 4, however far it is on the wrong side. The logistic loss grows
without limit. So a few distant rows with wrong labels move the boundary of logistic
regression, and hardly that of sigmoid least squares. The price is that only a local
optimum is found, from several starts.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The loss
# --------
# A loss of your own needs its value and two derivatives in u, and the word that it is
# nonconvex.


def value(u, y):
    return (np.tanh(u) - y) ** 2


def gradient(u, y):
    t = np.tanh(u)
    return 2 * (t - y) * (1 - t**2)


def hessian(u, y):
    t = np.tanh(u)
    return 2 * (1 - t**2) ** 2 - 4 * (t - y) * t * (1 - t**2)


sigmoid_loss = ko.SmoothLoss(value, gradient, hessian, curvature="nonconvex")

# %%
# A share of the rows is far off, with the wrong label. The fits are evaluated on 2000
# clean rows.


def data(share, seed):
    """100 rows to train on, and 2000 clean ones."""
    rng = np.random.default_rng(seed)

    def drawn(n, share):
        y = rng.choice([-1, 1], size=n)
        X = rng.normal(size=(n, 2)) + 1.5 * y[:, None] * [1, 0]
        wrong = rng.random(n) < share
        X[wrong] = [-6, 2] + 0.7 * rng.normal(size=(wrong.sum(), 2))
        return X, np.where(wrong, 1, y)

    return drawn(100, share), drawn(2000, 0.0)


# %%
# Two fits
# --------
# The kernel has the features 1, x₁ and x₂. The status of the nonconvex problem is
# ``locally_optimal``. It has no certificate, but its gradient is checked to vanish, and
# its Hessian to have no negative eigenvalue. In the picture, 10 % of the rows are
# wrong: the squares on the far left.

kernel = ko.kernels.Polynomial(degree=1)
lam = 0.1


def fitted(name, X, y):
    """The solved problem, and θ."""
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
    sigmoid = name == "sigmoid least squares"
    loss = sigmoid_loss(A @ theta, y) if sigmoid else ko.losses.log_loss(y, A @ theta)
    problem = ko.Problem(cp.Minimize(cp.sum(loss) + lam * ko.sum_squares(theta)))
    problem.solve(n_init=3 if sigmoid else 1, random_state=0)
    return problem, theta.value


(X, y), _ = data(0.1, seed=0)
functions = {}
for name in ("logistic", "sigmoid least squares"):
    problem, functions[name] = fitted(name, X, y)
print(problem.explain(), "\n")
print(problem.verify(), "\n")
styles = {"logistic": ("--", "C1"), "sigmoid least squares": ("-", "C0")}
low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
sides = [np.linspace(*ends, 120) for ends in zip(low, high, strict=True)]
grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
fig, ax = plt.subplots()
for label, marker, color in ((1, "s", "0.35"), (-1, "o", "0.7")):
    style = {"marker": marker, "color": color, "linewidths": 0}
    ax.scatter(*X[y == label].T, s=16, **style, label=f"y = {label}")
for name, f in functions.items():
    style, color = styles[name]
    lines = {"colors": color, "linestyles": style, "linewidths": 1.8}
    ax.contour(*sides, f(grid).reshape(120, 120), levels=[0], **lines)
    ax.plot([], [], style, color=color, label=name)
ax.set(xlabel="x₁", ylabel="x₂")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# Accuracy on clean rows
# ----------------------
# It is averaged over five draws for each share of wrong rows.

wrong = (0.0, 0.05, 0.1, 0.15, 0.2)
accuracies = {name: [] for name in functions}
for share in wrong:
    draws = [data(share, seed) for seed in range(5)]
    for name, kept in accuracies.items():
        functions_of_draws = [fitted(name, *train)[1] for train, _ in draws]
        pairs = zip(functions_of_draws, draws, strict=True)
        kept.append(np.mean([np.sign(f(Z)) == z for f, (_, (Z, z)) in pairs]))
print("accuracy on clean rows   " + "  ".join(f"{share:3.0%} wrong" for share in wrong))
for name, kept in accuracies.items():
    print(f"  {name:<22}" + "  ".join(f"{accuracy:9.1%}" for accuracy in kept))
fig, ax = plt.subplots()
percent = 100 * np.array(wrong)
for (name, kept), marker in zip(accuracies.items(), "os", strict=True):
    style, color = styles[name]
    ax.plot(percent, 100 * np.array(kept), marker + style, color=color, label=name)
ax.set(xlabel="wrong rows, %", ylabel="accuracy on clean rows, %", xticks=percent)
ax.legend()
plt.show()
