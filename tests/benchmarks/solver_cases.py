"""The problems of the table: data, statements, peers and targets.

X ~ N(0, I₄), labels sign(sin 2x₁ + x₂² − 1 + 0.3ε), targets with the noise 0.3·t₂ (Student's, heavy-tailed), Gaussian
kernel with σ = 1.5, unless a row says otherwise. λ is the coefficient of ‖θ‖², beside the sum of losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
from measuring import Case, Peer, Target
from peers import Array, Statement, by_hand, lbfgs, least_squares, rehline, ridge, svc, svr

import kernelopt as ko

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
EPSILON = 0.1  # scikit-learn's default
MARGIN = 0.2  # of points that shall be separated: |sin 2x₁ + x₂² − 1| is at least that


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows; `patients` None for all of randhie's."""

    medium: int = 5000
    large: int = 20_000
    quantiles: int = 1000
    path: int = 2000
    lambdas: int = 100
    slope: int = 200
    patients: int | None = None
    newton: tuple[int, int] = (20_000, 1000)
    growth: tuple[int, ...] = (1000, 2000, 5000, 10_000, 20_000, 50_000)
    max_rank: int = 300


QUICK = Sizes(250, 400, 60, 100, 10, 50, 400, (400, 50), (100, 200, 400), 50)


# ---------------------------------------------------------------- data


def score(X: Array) -> Array:
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1


def points(N: int) -> tuple[Array, Array, Array]:
    """X, labels, and targets with heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, np.sign(score(X) + 0.3 * rng.normal(size=N)), score(X) + 0.3 * rng.standard_t(2, size=N)


def separable(N: int) -> tuple[Array, Array]:
    """Points with |score| ≥ MARGIN and its sign, so that a θ of moderate norm separates them."""
    X = np.random.default_rng(0).normal(size=(2 * N, 4))
    X = X[np.abs(score(X)) >= MARGIN][:N]
    return X, np.sign(score(X))


def rising(N: int) -> tuple[Array, Array]:
    """A rising function on a line, with heavy-tailed noise that makes the fit fall in places."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=N)
    return x[:, None], np.tanh(2 * x) + x / 3 + 0.3 * rng.standard_t(2, size=N)


def standardized(X: Any) -> Array:
    X = np.asarray(X, dtype=float)
    return (X - X.mean(axis=0)) / X.std(axis=0)


@cache
def randhie(rows: int | None) -> tuple[Array, Array]:
    """Visits to doctors of the RAND health insurance experiment, nine covariates: 20 190 rows, 2760 distinct ones."""
    from statsmodels.datasets import randhie

    data = randhie.load_pandas().data.iloc[:rows]
    covariates = data.drop(columns="mdvis")
    covariates = covariates.loc[:, covariates.std() > 0]  # a few rows alone may not differ in all
    return standardized(covariates), data["mdvis"].to_numpy(dtype=float)


def engel() -> tuple[Array, Array]:
    """Food expenditure by income of 235 households."""
    from statsmodels.datasets import engel

    data = engel.load_pandas().data
    return standardized(data[["income"]]), standardized(data["foodexp"])


# ---------------------------------------------------------------- statements


def summed(loss: Callable[..., cp.Expression], intercept: bool = True) -> Callable[..., Any]:
    """Σ loss + λ‖θ‖², with intercept b or without."""

    def said(s: Statement, square: cp.Expression, f: cp.Expression) -> tuple[cp.Expression, list[Any]]:
        b = cp.Variable() if intercept else 0.0
        return cp.sum(loss(s.y, f + b)) + s.lam * square, []

    return said


def insensitive(y: Array, f: cp.Expression) -> cp.Expression:
    return ko.losses.epsilon_insensitive(y, f, EPSILON)


def monotone_median(s: Statement, square: cp.Expression, f: cp.Expression, grid: cp.Expression) -> Any:
    """Absolute error, predictions on a grid nondecreasing."""
    return cp.sum(ko.losses.absolute_error(s.y, f + cp.Variable())) + s.lam * square, [cp.diff(grid) >= 0]


def hard_margin(s: Statement, square: cp.Expression, f: cp.Expression) -> Any:
    return square, [ko.margin(s.y, f) >= 1]


def noncrossing_quantiles(s: Statement, square: cp.Expression, F: cp.Expression) -> Any:
    """Pinball losses of all levels, in order at the data points."""
    F = F + cp.Variable(len(LEVELS))[None, :]
    Y = np.repeat(s.y[:, None], len(LEVELS), axis=1)
    return cp.sum(ko.losses.pinball(Y, F, list(LEVELS))) + s.lam * square, [cp.diff(F, axis=1) >= 0]


def classify(N: int, lam: float, loss: Callable[..., Any] = ko.losses.hinge, intercept: bool = True) -> Statement:
    X, labels, _ = points(N)
    return Statement(X, labels, lam, summed(loss, intercept))


def regress(N: int, lam: float, loss: Callable[..., Any], intercept: bool = True) -> Statement:
    X, _, y = points(N)
    return Statement(X, y, lam, summed(loss, intercept))


def rising_median(N: int) -> Statement:
    """On a line; a narrow kernel, so that the factor has some rank."""
    x, y = rising(N)
    return Statement(x, y, 0.1, monotone_median, (np.linspace(-3, 3, N)[:, None],), sigma=0.1)


def rising_median_4d(N: int, grid: int) -> Statement:
    """x₁ added to the targets; nondecreasing along the first axis."""
    X, _, y = points(N)
    axis = np.zeros((grid, 4))
    axis[:, 0] = np.linspace(-2, 2, grid)
    return Statement(X, y + X[:, 0], 0.5, monotone_median, (axis,))


def visits(rows: int | None, loss: Callable[..., Any]) -> Statement:
    """σ = 3 = √9 for nine standardized covariates."""
    X, y = randhie(rows)
    return Statement(X, y, 0.5, summed(loss), sigma=3.0)


def engel_quantiles() -> ko.Problem:
    """Five quantiles of food expenditure, rising with income and in order, on a grid of 50 incomes."""
    x, y = engel()
    kernel = ko.kernels.Gaussian(sigma=1.0)
    grid = np.linspace(x.min(), x.max(), 50)[:, None]
    theta, c = ko.Theta(kernel, outputs=len(LEVELS)), cp.Variable(len(LEVELS))
    slopes = ko.FeatureMatrix(grid, kernel).derivative(0) @ theta
    Y, F = np.repeat(y[:, None], len(LEVELS), axis=1), theta(x) + c[None, :]
    loss = cp.sum(ko.losses.pinball(Y, F, list(LEVELS)))
    ordered = cp.diff(theta(grid) + c[None, :], axis=1) >= 0
    return ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), [ordered, slopes >= 0])


# ---------------------------------------------------------------- cases


def cases(sizes: Sizes) -> list[Case]:
    return [*_piecewise(sizes), *_constrained(sizes), *_smooth(sizes), *_visits(sizes)]


def _piecewise(z: Sizes) -> list[Case]:
    """Piecewise linear losses, with intercept and without."""
    N, M = z.medium, z.large
    both = (Target(6.0), Target(2.0, part="solver alone"))
    by_clarabel = Peer("1", "by hand, Clarabel", by_hand(1e-6), (Target(60.0, faster=True),))
    found = [
        Case(
            f"hinge + b, N = {N}, λ = 0.5, gap 1e-6", lambda: classify(N, 0.5),
            (by_clarabel, Peer("2", "SVC, tol 1e-6", svc(1e-6), both)), {"tol": 1e-6},
        ),
        Case(
            f"hinge, N = {N}, λ = 5e-4, gap 1e-6", lambda: classify(N, 5e-4, intercept=False),
            (
                Peer("3", "SVC, tol 1e-6 (with b)", svc(1e-6), (Target(3.0),), own=lambda: classify(N, 5e-4)),
                Peer("3", "ReHLine on B, tol 1e-6", rehline(1e-6), (Target(1.0, part="solver alone"),), "rehline"),
            ), {"tol": 1e-6},
        ),
    ]  # fmt: skip
    for gap in ("1e-3", "1e-6"):  # libsvm's tolerance is one of its own: its gap at 1e-3 lies between these
        found += [
            Case(
                f"hinge + b, N = {M}, λ = 0.5, gap {gap}", lambda: classify(M, 0.5),
                (Peer("4", "SVC, tol 1e-3", svc(1e-3), (Target(1.0),)),), {"tol": float(gap)},
            ),
            Case(
                f"ε-insensitive + b, N = {M}, λ = 0.5, gap {gap}", lambda: regress(M, 0.5, insensitive),
                (Peer("5", "SVR, tol 1e-3", svr(1e-3, EPSILON), (Target(0.7),)),), {"tol": float(gap)},
            ),
        ]  # fmt: skip
    return found


def _constrained(z: Sizes) -> list[Case]:
    """Constraints on predictions, against the same by hand."""

    def case(number: str, name: str, statement: Callable[[], Statement]) -> Case:
        peer = Peer(number, "by hand, Clarabel", by_hand(1e-6), (Target(20.0, faster=True),))
        return Case(f"{name}, gap 1e-6", statement, (peer,), {"tol": 1e-6})

    return [
        case("6", f"monotone median, N = {z.slope} on a line", lambda: rising_median(z.slope)),
        case("6", f"monotone median, N = {z.medium}", lambda: rising_median_4d(z.medium, z.slope)),
        case("6", f"hard margin, N = {z.medium}", lambda: Statement(*separable(z.medium), 1.0, hard_margin)),
        case("7", f"5 quantiles in order, N = {z.quantiles}", lambda: _quantiles(z.quantiles)),
    ]


def _quantiles(N: int) -> Statement:
    X, _, y = points(N)
    return Statement(X, y, 0.5, noncrossing_quantiles, outputs=len(LEVELS))


def _smooth(z: Sizes) -> list[Case]:
    """Logistic and ridge regression."""
    N = z.medium

    def logistic(lam: float, faster: float) -> Case:
        told = Target(faster, faster=True, part="solver alone")
        peers = (
            Peer("8", "by hand, Clarabel", by_hand(1e-8), (Target(100.0, faster=True),)),
            Peer("8", "L-BFGS-B on B, told when to stop", lbfgs(1e-8), (told,)),
        )
        statement = lambda: classify(N, lam, ko.losses.log_loss)
        return Case(f"logistic + b, N = {N}, λ = {lam:g}, gap 1e-8", statement, peers, {"tol": 1e-8})

    least = Peer("9", "KernelRidge", ridge, (Target(0.8),))
    return [
        logistic(0.5, 2.0),
        logistic(0.005, 6.0),
        Case(
            f"ridge, N = {N}, λ = 0.5, gap 1e-6", lambda: regress(N, 0.5, ko.losses.squared_error, False), (least,),
            {"tol": 1e-6},
        ),
    ]  # fmt: skip


def _visits(z: Sizes) -> list[Case]:
    """Repeated rows: counts of visits to doctors."""
    slower = Peer("12", "KernelRidge on the same rows", least_squares, (Target(10.0, faster=True),))
    vector = Peer("13", "SVR, tol 1e-3", svr(1e-3, EPSILON), (Target(1.0),))
    return [
        Case(
            "Poisson + b, randhie, λ = 0.5, gap 1e-6", lambda: visits(z.patients, ko.losses.poisson), (slower,),
            {"tol": 1e-6}, "statsmodels",
        ),
        Case(
            "ε-insensitive + b, randhie, λ = 0.5, gap 1e-6", lambda: visits(z.patients, insensitive), (vector,),
            {"tol": 1e-6}, "statsmodels",
        ),
    ]  # fmt: skip
