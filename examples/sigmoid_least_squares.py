"""Sigmoid least squares, a nonconvex loss: minimize  Σᵢ (tanh((Aθ)ᵢ) − yᵢ)² + λ‖θ‖².

    python examples/sigmoid_least_squares.py

A row costs at most 4, however far on the wrong side, where logistic loss grows without end: rows that are far off and
labelled wrongly pull the boundary of the one, and hardly that of the other, as long as they are few. Trains both,
sigmoid least squares from many starts, and saves a picture.
"""

from pathlib import Path

import cvxpy as cp
import matplotlib as mpl
import numpy as np

import kernelopt as ko

mpl.use("Agg")
import matplotlib.pyplot as plt

ROWS, DRAWS = 100, 10
WRONG = (0.0, 0.05, 0.1, 0.15, 0.2)
LAMBDA = 0.1
COLORS = {"logistic": "tab:blue", "sigmoid least squares": "tab:red"}


def value(u, y):
    return (np.tanh(u) - y) ** 2


def gradient(u, y):
    t = np.tanh(u)
    return 2 * (t - y) * (1 - t**2)


def hessian(u, y):
    t = np.tanh(u)
    return 2 * (1 - t**2) ** 2 - 4 * (t - y) * t * (1 - t**2)


sigmoid_loss = ko.SmoothLoss(value, gradient, hessian, curvature="nonconvex")


def data(share, seed):
    """Two classes, a share of the rows far off with the wrong label; and clean rows."""
    rng = np.random.default_rng(seed)

    def drawn(n, share):
        y = rng.choice([-1, 1], size=n)
        X = rng.normal(size=(n, 2)) + 1.5 * y[:, None] * [1, 0]
        wrong = rng.random(n) < share
        X[wrong] = [-6, 2] + 0.7 * rng.normal(size=(wrong.sum(), 2))
        return X, np.where(wrong, 1, y)

    return drawn(ROWS, share), drawn(2000, 0.0)


def fitted(name, X, y):
    """The solved problem, and θ."""
    theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    u, sigmoid = theta(X), name == "sigmoid least squares"
    loss = sigmoid_loss(u, y) if sigmoid else ko.losses.log_loss(y, u)
    problem = ko.Problem(cp.Minimize(cp.sum(loss) + LAMBDA * ko.sum_squares(theta)))
    problem.solve(n_init=5 if sigmoid else 1, random_state=0)
    return problem, theta.value


def accuracy(f, X, y):
    return float(np.mean(np.sign(f(X)) == y))


def picture(path, functions, train, accuracies):
    """Both boundaries at 10 % wrong rows, and accuracy on clean rows against their share."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    X, y = train
    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    a, b = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    grid = np.column_stack([a.ravel(), b.ravel()])
    for label, marker, color in ((1, "o", "0.35"), (-1, "s", "0.75")):
        left.scatter(*X[y == label].T, s=16, marker=marker, color=color, linewidths=0)
    for name, f in functions.items():
        left.contour(a, b, f(grid).reshape(a.shape), levels=[0], colors=COLORS[name], linewidths=1.8)
        left.plot([], [], color=COLORS[name], label=name)
        right.plot(100 * np.array(WRONG), 100 * np.array(accuracies[name]), "o-", color=COLORS[name], label=name)
    left.set(title="Boundaries, 10 % of the rows far off and labelled wrongly", xticks=[], yticks=[])
    left.legend(frameon=False, loc="lower left")
    right.set(xlabel="rows far off and labelled wrongly, %", ylabel="accuracy on clean rows, %", title="Accuracy")
    right.set_xticks(100 * np.array(WRONG))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main():
    train, _ = data(0.1, seed=0)
    functions = {}
    for name in COLORS:
        problem, functions[name] = fitted(name, *train)
    print(problem.explain(), "\n")
    print(problem.verify(), "\n")
    accuracies = {name: [] for name in COLORS}
    for share in WRONG:
        draws = [data(share, seed) for seed in range(DRAWS)]
        for name, kept in accuracies.items():
            kept.append(np.mean([accuracy(fitted(name, *train)[1], *clean) for train, clean in draws]))
    print("Accuracy on clean rows     " + "  ".join(f"{100 * share:3.0f} % wrong" for share in WRONG))
    for name, kept in accuracies.items():
        print(f"  {name:<24}" + "  ".join(f"{100 * a:9.1f} %" for a in kept))
    path = Path(__file__).with_suffix(".png")
    picture(path, functions, train, accuracies)
    print(f"Picture: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
