"""Accuracy and R² of our estimators beside SVC, SVR and KernelRidge, all with their defaults.

    python tests/benchmarks/defaults.py [--quick]

Means of 5 folds, shuffled with SEEDS seeds; the same folds for all. "Behind" is theirs minus ours, if positive.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import kernelopt as ko

SEEDS = 4
N = 300  # rows of data that are drawn
MOST = 600  # rows of digits
Data = Callable[[], tuple[np.ndarray, np.ndarray]]
es = ko.estimators

CLASSES: dict[str, Data] = {
    "moons": lambda: datasets.make_moons(N, noise=0.3, random_state=0),
    "circles": lambda: datasets.make_circles(N, noise=0.2, factor=0.5, random_state=0),
    "hastie_10_2": lambda: datasets.make_hastie_10_2(N, random_state=0),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: tuple(part[:MOST] for part in datasets.load_digits(return_X_y=True)),
}
TARGETS: dict[str, Data] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman1": lambda: datasets.make_friedman1(N, noise=1.0, random_state=0),
    "friedman2": lambda: datasets.make_friedman2(N, noise=50.0, random_state=0),
    "friedman3": lambda: datasets.make_friedman3(N, noise=0.1, random_state=0),
    "sparse_uncorrelated": lambda: datasets.make_sparse_uncorrelated(N, random_state=0),
}
CLASSIFIERS = {
    "SVC": SVC(),
    "hinge": es.KernelClassifier(),
    "log_loss": es.KernelClassifier("log_loss"),
    "squared_hinge": es.KernelClassifier("squared_hinge"),
}
REGRESSORS = {
    "SVR": SVR(),
    "epsilon_insensitive": es.KernelRegressor("epsilon_insensitive"),
    "KernelRidge linear": KernelRidge(),
    "KernelRidge rbf": KernelRidge(kernel="rbf"),
    "squared_error": es.KernelRegressor(),
}


class Row(NamedTuple):
    """The scores of a data set, with columns as they are or standardized."""

    data: str
    columns: str
    scores: dict[str, float]


def score(model: Any, X: Any, y: Any, splits: Any, seeds: int) -> float:
    """The mean over seeds and folds."""
    return float(
        np.mean([cross_val_score(model, X, y, cv=splits(5, shuffle=True, random_state=s)) for s in range(seeds)])
    )


def rows(named: dict[str, Data], models: dict[str, Any], splits: Any, seeds: int) -> list[Row]:
    found = []
    for name, load in named.items():
        X, y = load()
        for columns, prepare in (("as given", "passthrough"), ("standardized", StandardScaler())):
            pipelines = {m: make_pipeline(prepare, model) for m, model in models.items()}
            found.append(Row(name, columns, {m: score(p, X, y, splits, seeds) for m, p in pipelines.items()}))
    return found


def table(found: list[Row], pairs: list[tuple[str, str]]) -> None:
    """Rows of scores, and by how much ours is behind in the worst row of each pair (theirs, ours)."""
    names = list(found[0].scores)
    print(f"| data | columns | {' | '.join(names)} |")
    print(f"|---|---|{'--:|' * len(names)}")
    for row in found:
        print(f"| {row.data} | {row.columns} | {' | '.join(f'{v:.3f}' for v in row.scores.values())} |")
    print()
    for theirs, ours in pairs:
        worst = max(found, key=lambda r: r.scores[theirs] - r.scores[ours])
        behind = worst.scores[theirs] - worst.scores[ours]
        print(f"{ours} behind {theirs}: at most {behind:.3f} ({worst.data}, {worst.columns})")
    print()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two data sets and one seed, to see that it runs")
    quick = parser.parse_args(arguments).quick
    seeds = 1 if quick else SEEDS
    classes = {"iris": CLASSES["iris"]} if quick else CLASSES
    targets = {"sparse_uncorrelated": TARGETS["sparse_uncorrelated"]} if quick else TARGETS
    print(f"Accuracy, means of 5 folds × {seeds} seeds\n")
    table(
        rows(classes, CLASSIFIERS, StratifiedKFold, seeds),
        [("SVC", "hinge"), ("SVC", "log_loss"), ("SVC", "squared_hinge")],
    )
    print(f"R², means of 5 folds × {seeds} seeds\n")
    table(
        rows(targets, REGRESSORS, KFold, seeds),
        [
            ("SVR", "epsilon_insensitive"), ("KernelRidge rbf", "squared_error"),
            ("KernelRidge linear", "squared_error"), ("SVR", "squared_error"),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
