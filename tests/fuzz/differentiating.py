"""Random problems with parameters, central differences through them, and how often estimates of errors hold.

    python tests/fuzz/differentiating.py [1000] [--first 0] [--jobs 2]

For each problem a gradient after a solve at a tolerance from 1e-2 to 1e-9 is compared with one after a solve at 1e-12.
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor

import cvxpy as cp
import numpy as np

import kernelopt as ko
from kernelopt import losses
from kernelopt.errors import KernelOptError

N = 30


def smooth(y, f):
    """√(1 + (f − y)²)."""
    loss = ko.SmoothLoss(
        lambda u, y: np.sqrt(1 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2),
        lambda u, y: (1 + (u - y) ** 2) ** -1.5,
    )
    return loss(f, y)


LOSSES = {
    "squared error": losses.squared_error,
    "absolute error": losses.absolute_error,
    "huber": lambda y, f: losses.huber(y, f, 0.5),
    "pinball": lambda y, f: losses.pinball(y, f, 0.3),
    "epsilon insensitive": lambda y, f: losses.epsilon_insensitive(y, f, 0.2),
    "hinge": losses.hinge,
    "squared hinge": losses.squared_hinge,
    "logistic": losses.log_loss,
    "exponential": lambda y, f: cp.exp(-cp.multiply(y, f)),
    "power": lambda y, f: cp.power(cp.abs(f - y), 1.5),
    "poisson": lambda y, f: losses.poisson(np.round(np.abs(2 * y)), f),
    "smooth": smooth,
}
LABELS = {"hinge", "squared hinge", "logistic", "exponential"}
CONSTRAINTS = ["none", "bounds elsewhere", "monotone", "equality"]
PENALTIES = ["squared", "unsquared", "ball"]


class Case:
    """A problem with λ, weights w of its rows and a constant c in its constraint, and a criterion at other points.

    The first `left_out` rows have weight 0.
    """

    def __init__(self, loss, constraint="none", penalty="squared", seed=0, left_out=0):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(N, 1))
        y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=N)
        self.y = np.where(y > 0, 1.0, -1.0) if loss in LABELS else y
        self.lam = cp.Parameter(nonneg=True, value=0.3, name="lam")
        self.c = cp.Parameter(value=0.15, name="c")
        self.w = cp.Parameter(N, nonneg=True, value=rng.uniform(0.5, 1.5, N) * (np.arange(N) >= left_out), name="w")
        self.theta, self.b = ko.Theta(ko.kernels.Gaussian(sigma=0.8)), cp.Variable(name="b")
        grid = np.linspace(-2, 2, 12)[:, None]
        g = self.theta(grid) + self.b
        constraints = {
            "none": [],
            "bounds elsewhere": [g <= self.c + 0.6],
            "monotone": [g[1:] - g[:-1] >= self.c - 0.2],
            "equality": [g[:2] == self.c],
            "second order": [cp.norm(g[:5]) <= self.c + 0.4],
        }[constraint]
        objective = self.w @ LOSSES[loss](self.y, self.theta(X) + self.b)
        if penalty == "ball":
            constraints = [*constraints, ko.norm(self.theta) <= self.lam + 1.0]
        else:
            objective += self.lam * {"squared": ko.sum_squares, "unsquared": ko.norm}[penalty](self.theta)
        self.problem = ko.Problem(cp.Minimize(objective), constraints)
        Z = rng.uniform(-2, 2, size=(20, 1))
        self.criterion = cp.sum_squares(self.theta(Z) + self.b - np.sin(2 * Z[:, 0]))
        self.parameters = [self.lam, self.w] + ([] if constraint == "none" else [self.c])


def compared(seed):
    """For each parameter of a random problem, whether its estimated errors held between a rough and a precise solve,
    and the largest estimate, relative to the gradient; nothing where there is no derivative."""
    rng = np.random.default_rng(seed)
    name = list(LOSSES)[seed % len(LOSSES)]
    constraint, penalty, left_out = CONSTRAINTS[rng.integers(4)], PENALTIES[rng.integers(3)], int(rng.integers(4))
    gradients = []
    for tol in (10.0 ** -rng.uniform(2, 9), 1e-10):
        case = Case(name, constraint, penalty, seed=seed, left_out=left_out)
        case.problem.solve(tol=tol)
        gradients.append(ko.gradient(case.problem, case.criterion, [case.lam, case.w]))
    one, other = gradients
    if not (one.is_differentiable and other.is_differentiable):
        return []
    pairs = [(p, q, max(float(np.abs(one[p]).max()), 1e-3)) for p, q in zip(one, other, strict=True)]
    return [
        (bool(np.all(np.abs(one[p] - other[q]) <= one.errors[p] + other.errors[q])), one.errors[p].max() / size)
        for p, q, size in pairs
    ]


def difference(problem, criterion, parameter, entry=(), h=1e-4, order=4):  # noqa: PLR0917
    """The central difference of the criterion at refined optima, of second or fourth order."""
    kept, values = np.array(parameter.value, dtype=float), []
    for k in (-2, -1, 1, 2) if order == 4 else (-1, 1):
        moved = kept.copy()
        moved[entry] += k * h
        parameter.value = moved
        problem.solve(certify=False)
        values.append(ko.gradient(problem, criterion, [parameter]).value)
    parameter.value = kept
    if order == 2:
        return (values[1] - values[0]) / (2 * h)
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


def counted(seed):
    """`compared`, or why there is no gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compared(seed)
        except KernelOptError as error:
            return str(error)


def main():
    parser = argparse.ArgumentParser(description="How often estimated errors of gradients hold.")
    parser.add_argument("problems", nargs="?", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.problems)
    with ProcessPoolExecutor(given.jobs) as processes:
        found = list(processes.map(counted, seeds, chunksize=8))
    refused = [seed for seed, answer in zip(seeds, found, strict=True) if isinstance(answer, str)]
    pairs = [(seed, *pair) for seed, answer in zip(seeds, found, strict=True) if not isinstance(answer, str)
             for pair in answer]  # fmt: skip
    missed = sorted({seed for seed, held, _ in pairs if not held})
    print(f"{len(pairs)} gradients of {given.problems} problems: the estimate held for", end=" ")
    print(f"{np.mean([held for _, held, _ in pairs]):.1%}, its median was {np.median([s for *_, s in pairs]):.1g},")
    print(f"the largest {max(size for *_, size in pairs):.1g} (relative). Not held: seeds {missed}.")
    print(f"No derivative: {sum(answer == [] for answer in found)} problems. Refused: seeds {refused}.")


if __name__ == "__main__":
    main()
