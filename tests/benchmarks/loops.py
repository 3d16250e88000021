"""Problems that are written row by row beside the same with arrays, and two with a bound or a scale for each row.

    python tests/benchmarks/loops.py [--rows N] [--seed S]

Seconds from the statement to the certified answer, status, solver, certified gap; one BLAS thread, new data for each.
"""

import argparse
import os
import time
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import cvxpy as cp
import numpy as np

import kernelopt as ko


def theta(X, outputs=None):
    one = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=outputs)
    return one(X), ko.sum_squares(one), ko.norm(one, "fro" if outputs else 2)


def norms(X, y, rng):
    F, square, _ = theta(X, 2)
    return cp.sum(cp.norm(F - np.column_stack([y, y**2]), 2, axis=1)) + 0.5 * square, []


def norms_in_a_loop(X, y, rng):
    (F, square, _), Y = theta(X, 2), np.column_stack([y, y**2])
    return sum(cp.norm(F[i] - Y[i]) for i in range(len(y))) + 0.5 * square, []


def absolute_errors(X, y, rng):
    f, square, _ = theta(X)
    return cp.sum(cp.abs(f - y)) + 0.5 * square, []


def absolute_errors_in_a_loop(X, y, rng):
    f, square, _ = theta(X)
    return sum(cp.abs(f[i] - y[i]) for i in range(len(y))) + 0.5 * square, []


def mean_and_precision_of_each_row(X, y, rng):
    F, square, _ = theta(X, 2)
    s = F[:, 1] + cp.Variable()
    e = cp.multiply(y, s) - F[:, 0]
    return sum(cp.quad_over_lin(e[i], s[i]) for i in range(len(y))) - cp.sum(cp.log(s)) + 0.5 * square, []


def bounded_differences_beside_a_norm(X, y, rng):
    (f, _, norm), (i, j) = theta(X), rng.integers(0, len(y), size=(2, len(y)))
    f = f + cp.Variable()
    bound = 0.5 * np.linalg.norm(X[i] - X[j], axis=1)
    return cp.sum(cp.logistic(-cp.multiply(np.sign(y), f))) + 3 * norm, [cp.abs(f[i] - f[j]) <= bound]


CASES = (
    norms, norms_in_a_loop, absolute_errors, absolute_errors_in_a_loop, mean_and_precision_of_each_row,
    bounded_differences_beside_a_norm,
)  # fmt: skip


def run(cases, drawn):
    """Solve each case with data of its own, drawn(rng, rows) = (X, y), and print what a user waits for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # cvxpy's advice against loops
    for number, case in enumerate(cases):
        rng = np.random.default_rng([given.seed, number])
        X, y = drawn(rng, given.rows)
        began = time.perf_counter()
        objective, constraints = case(X, y, rng)
        problem = ko.Problem(cp.Minimize(objective), constraints)
        problem.solve(time_limit=60)
        seconds, found = time.perf_counter() - began, problem.certificate
        gap = "none" if found is None else f"{found.relative_gap:.1e}"
        print(f"{case.__name__:36s}{seconds:6.2f} s  {problem.status}  {problem.solver_stats.solver_name}  gap {gap}")


def steps(rng, rows):
    """Noise that depends on a column."""
    X = rng.normal(size=(rows, 3))
    return X, np.sin(X[:, 0]) + (0.2 + 0.3 * (X[:, 1] > 0)) * rng.normal(size=rows)


if __name__ == "__main__":
    run(CASES, steps)
