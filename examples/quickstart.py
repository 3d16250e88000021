"""Two classifiers on breast_cancer, declared: a support vector machine, and a robust one that no library has.

    python examples/quickstart.py

Trains both, explains the reduction, evaluates on held-out rows beside scikit-learn's SVC, and saves a picture.
"""

from pathlib import Path

import cvxpy as cp
import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import PercentFormatter

SIGMA, C, RHO = 6.0, 3.0, 0.15
NOISE = np.linspace(0.0, 2.0, 9)


def load():
    """Standardized features, labels −1 (malignant) and +1 (benign), 40 % of the rows held out."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, 2 * y - 1, test_size=0.4, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


def support_vector_machine(X, y):
    """minimize  Σᵢ max(0, 1 − yᵢ(Aθ + b)ᵢ) + ‖θ‖²/(2C): what SVC solves."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(name="b")
    f = lambda X: theta(X) + b
    loss = cp.sum(ko.losses.hinge(y, f(X)))
    return ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C))), f


def robust_machine(X, y):
    """The same, but every point may move by ρ in feature space before it is judged.

    The worst move costs ρ‖θ‖ of margin: minimize  Σᵢ max(0, 1 − yᵢ(Aθ + b)ᵢ + ρ‖θ‖) + ‖θ‖²/(2C).
    """
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(name="b")
    f = lambda X: theta(X) + b
    loss = cp.sum(cp.pos(1 - ko.margin(y, f(X)) + RHO * ko.norm(theta)))
    return ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / (2 * C))), f


def accuracy_under_noise(decide, X, y):
    """Accuracy on rows with Gaussian noise added to their standardized features, averaged over 20 draws."""
    rng = np.random.default_rng(0)
    draws = [[X + s * rng.normal(size=X.shape) for _ in range(20)] for s in NOISE]
    return np.array([np.mean([np.sign(decide(Z)) == y for Z in noisy]) for noisy in draws])


def picture(path, accuracies, decisions, y):
    """Accuracy against noise, and the margins of the held-out rows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    styles = {
        "SVC (scikit-learn)": {"color": "0.75", "linewidth": 6, "markersize": 9},
        "declared SVM": {"color": "tab:blue", "linewidth": 1.5, "markersize": 4},
        "robust": {"color": "tab:red", "linewidth": 1.5, "markersize": 4},
    }
    for name, accuracy in accuracies.items():
        left.plot(NOISE, 100 * accuracy, marker="o", label=name, **styles[name])
        right.ecdf(y * decisions[name], **styles[name])
    left.set(xlabel="noise on the features (standard deviations)", title="Held-out accuracy under noise")
    left.xaxis.set_major_formatter("{x:g}")
    right.axvline(0, color="0.4", linewidth=1, linestyle=":", zorder=0)
    right.set(xlabel="margin  $y_i f(x_i)$, negative where wrong", title="Held-out rows with at most this margin")
    left.legend(frameon=False, loc="lower left")
    for axes, whole in ((left, 100), (right, 1)):
        axes.yaxis.set_major_formatter(PercentFormatter(whole, decimals=0))
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main():
    X, X_test, y, y_test = load()
    svm, f = support_vector_machine(X, y)
    svm.solve()
    print("A support vector machine, declared\n")
    print(svm.explain(), "\n")

    robust, g = robust_machine(X, y)
    robust.solve()
    print("A robust variant: every point may move by ρ in feature space\n")
    print(robust.explain(), "\n")

    svc = SVC(C=C, gamma=1 / (2 * SIGMA**2), tol=1e-6).fit(X, y)
    models = {
        "SVC (scikit-learn)": svc.decision_function,
        "declared SVM": lambda Z: f(Z).value,
        "robust": lambda Z: g(Z).value,
    }
    decisions = {name: decide(X_test) for name, decide in models.items()}
    accuracies = {name: accuracy_under_noise(decide, X_test, y_test) for name, decide in models.items()}
    print(f"Held-out accuracy, {len(y_test)} rows      no noise   noise {NOISE[4]:g}   noise {NOISE[-1]:g}")
    for name, accuracy in accuracies.items():
        print(f"  {name:<30}  {accuracy[0]:9.1%} {accuracy[4]:9.1%} {accuracy[-1]:9.1%}")
    apart = np.abs(decisions["declared SVM"] - decisions["SVC (scikit-learn)"]).max()
    print(f"\nLargest difference of decision values, declared SVM against SVC: {apart:.1e}")
    path = Path(__file__).with_suffix(".png")
    picture(path, accuracies, decisions, y_test)
    print(f"Picture: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
