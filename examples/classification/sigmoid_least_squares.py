r"""
Sigmoid least squares, a nonconvex loss
=======================================

.. math:: \text{minimize} \quad \sum_{i=1}^N \bigl(\tanh(\theta^\top F(x_i)) - y_i\bigr)^2 + \lambda\|\theta\|^2

A row costs at most 4, however far on the wrong side, where logistic loss grows without end. Rows that are far off and
labelled wrongly pull the boundary of logistic regression, and hardly that of sigmoid least squares, as long as they are
few. The price is that only a local optimum is found, from several starts.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# A loss of one's own: its value and two derivatives in u, and that it is not convex.


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
# Two classes of which a share of rows is far off, with the wrong label; and 2000 clean rows to judge by.


def data(share, seed):
    """100 rows to train on, and clean ones."""
    rng = np.random.default_rng(seed)

    def drawn(n, share):
        y = rng.choice([-1, 1], size=n)
        X = rng.normal(size=(n, 2)) + 1.5 * y[:, None] * [1, 0]
        wrong = rng.random(n) < share
        X[wrong] = [-6, 2] + 0.7 * rng.normal(size=(wrong.sum(), 2))
        return X, np.where(wrong, 1, y)

    return drawn(100, share), drawn(2000, 0.0)


# %%
# Both problems, with a kernel whose features are 1, x₁ and x₂. The status of the nonconvex one is
# ``locally_optimal``: there is no certificate, but the gradient is checked to vanish, and the Hessian to have no
# negative eigenvalue.

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

# %%
# Accuracy on clean rows, averaged over five draws for each share of wrong rows.

wrong = (0.0, 0.05, 0.1, 0.15, 0.2)
accuracies = {name: [] for name in functions}
for share in wrong:
    draws = [data(share, seed) for seed in range(5)]
    for name, kept in accuracies.items():
        functions_of_draws = [fitted(name, *train)[1] for train, _ in draws]
        hits = [np.sign(f(Z)) == z for f, (_, (Z, z)) in zip(functions_of_draws, draws, strict=True)]
        kept.append(np.mean(hits))
print("accuracy on clean rows   " + "  ".join(f"{share:3.0%} wrong" for share in wrong))
for name, kept in accuracies.items():
    print(f"  {name:<22}" + "  ".join(f"{accuracy:9.1%}" for accuracy in kept))

# %%
# Both boundaries with 10 % wrong rows, the cluster of squares on the far left, and accuracy against their share.

colors = {"logistic": "tab:blue", "sigmoid least squares": "tab:red"}
styles = {"logistic": "--", "sigmoid least squares": "-"}
low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
first, second = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
grid = np.column_stack([first.ravel(), second.ravel()])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for label, marker, color in ((1, "s", "0.35"), (-1, "o", "0.7")):
    left.scatter(*X[y == label].T, s=16, marker=marker, color=color, linewidths=0, label=f"y = {label}")
for name, f in functions.items():
    style = {"colors": colors[name], "linestyles": styles[name], "linewidths": 1.8}
    left.contour(first, second, f(grid).reshape(first.shape), levels=[0], **style)
    percent = 100 * np.array(wrong), 100 * np.array(accuracies[name])
    right.plot(*percent, "o", color=colors[name], linestyle=styles[name], label=name)
left.set(title="10 % of the rows far off and labelled wrongly", xlabel="x₁", ylabel="x₂")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)
right.set(xlabel="rows far off and labelled wrongly, %", ylabel="accuracy on clean rows, %", xticks=percent[0])
right.legend(frameon=False)
plt.show()
