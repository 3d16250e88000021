"""Degenerate data beside all kinds of problems that couple rows, outputs or norms: is each answer proven?

    python tests/fuzz/battery.py [--kinds NAME …] [--data NAME …] [--rows 40] [--limit 20]

Each kind × data set × number of free columns (0, 1, 3) × weights (ones, a third of them 0) × λ (1e-4, 0.1, 10). A line
is printed for each answer that is not proven to 1e-6 relatively, or to 1e-9 of the sum of the data's units.
"""

import argparse
import time
import warnings
from collections import Counter
from itertools import product

import cvxpy as cp
import numpy as np

import kernelopt as ko

STRENGTHS, FREE = (1e-4, 0.1, 10.0), (0, 1, 3)
KINDS, DATA = {}, {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def data(function):
    DATA[function.__name__] = function
    return function


class Setting:
    """Points, targets, weights, free columns and λ of one problem; the words in which kinds are stated."""

    def __init__(self, points, targets, rng, weights, options):
        free, _, strength = options
        self.X, self.Y, self.N, self.rng = points, targets, len(points), rng
        self.y, self.labels = targets[:, 0], np.where(targets[:, 0] > np.median(targets[:, 0]), 1.0, -1.0)
        self.w, self.lam = weights, strength
        self.Z = np.column_stack([np.ones(self.N), rng.normal(size=(self.N, 2))])[:, :free]
        self.groups = np.arange(self.N) % 3

    def f(self, sigma=1.0):
        """One output, with free columns, and its θ."""
        theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
        f = theta(self.X)
        return (f + self.Z @ cp.Variable(self.Z.shape[1]) if self.Z.shape[1] else f), theta

    def F(self):
        """Three outputs."""
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3)
        F = theta(self.X)
        return (F + self.Z @ cp.Variable((self.Z.shape[1], 3)) if self.Z.shape[1] else F), theta

    def square(self, theta):
        return self.lam * ko.sum_squares(theta)


@kind
def norms_of_rows(s):
    F, theta = s.F()
    return s.w @ cp.norm(s.Y - F, 2, axis=1) + s.square(theta), []


@kind
def huber_of_row_norms(s):
    F, theta = s.F()
    return s.w @ cp.huber(cp.norm(s.Y - F, 2, axis=1)) + s.square(theta), []


@kind
def rows_in_balls(s):
    F, theta = s.F()
    return cp.sum(s.w @ cp.square(s.Y - F)) + s.square(theta), [cp.norm(F, 2, axis=1) <= 1]


@kind
def rows_of_bounded_sums(s):
    F, theta = s.F()
    return cp.sum(s.w @ cp.abs(s.Y - F)) + s.square(theta), [cp.norm(F, 1, axis=1) <= 1]


@kind
def nuclear_norm_of_residuals(s):
    F, theta = s.F()
    return cp.normNuc(cp.multiply(s.w[:, None], s.Y - F)) + s.square(theta), []


@kind
def low_rank_of_theta(s):
    F, theta = s.F()
    return cp.sum(s.w @ cp.square(s.Y - F)) + s.lam * ko.norm(theta, "nuc"), []


@kind
def tail_of_hinge(s):
    f, theta = s.f()
    losses = cp.multiply(s.w, cp.pos(1 - cp.multiply(s.labels, f)))
    return cp.sum_largest(losses, max(s.N // 5, 1)) + s.square(theta), []


@kind
def worst_group_of_log_losses(s):
    f, theta = s.f()
    losses = cp.multiply(s.w, cp.logistic(-cp.multiply(s.labels, f)))
    parts = [cp.sum(losses[s.groups == g]) for g in range(3) if np.any(s.groups == g)]
    return cp.max(cp.hstack(parts)) + s.square(theta), []


@kind
def entropic_risk_of_squares(s):
    f, theta = s.f()
    unit = max(float(np.abs(s.y).max()), 1e-3)
    return cp.log_sum_exp(cp.multiply(s.w, cp.square(s.y - f)) / unit**2) + s.square(theta), []


@kind
def length_of_the_residual(s):
    f, theta = s.f()
    return cp.norm(cp.multiply(s.w, s.y - f)) + s.lam * ko.norm(theta), []


@kind
def norm_of_order_three_halves(s):
    f, theta = s.f()
    return cp.pnorm(cp.multiply(s.w, s.y - f), 1.5) + s.square(theta), []


@kind
def noise_level(s):
    f, theta = s.f()
    scale = cp.Variable(pos=True)
    return cp.quad_over_lin(cp.multiply(s.w, s.y - f), scale) + s.N * scale + s.square(theta), []


@kind
def least_radius(s):
    f, theta = s.f()
    radius = cp.Variable(nonneg=True)
    return radius + s.square(theta), [cp.abs(cp.multiply(s.w, s.y - f)) <= radius]


@kind
def several_norms(s):
    parts = [s.f(sigma) for sigma in (0.5, 2.0, 8.0)]
    f = sum(one for one, _ in parts)
    return s.w @ cp.logistic(-cp.multiply(s.labels, f)) + s.lam * sum(ko.norm(theta) for _, theta in parts), []


@kind
def norm_within_the_hinge(s):
    f, theta = s.f()
    losses = cp.pos(1 - cp.multiply(s.labels, f) + 0.1 * ko.norm(theta))
    return s.w @ losses + s.square(theta), []


@kind
def hinge_in_a_ball(s):
    f, theta = s.f()
    return s.w @ cp.pos(1 - cp.multiply(s.labels, f)), [ko.norm(theta) <= 1 / s.lam]


@kind
def fair_squared_hinge(s):
    f, theta = s.f()
    row = s.rng.normal(size=s.N) / s.N
    return s.w @ cp.square(cp.pos(1 - cp.multiply(s.labels, f))) + s.square(theta), [cp.abs(row @ f) <= 0.01]


@kind
def rising(s):
    f, theta = s.f()
    order = np.argsort(s.X[:, 0], kind="stable")
    return s.w @ cp.abs(s.y - f) + s.square(theta), [f[order[1:]] >= f[order[:-1]]] if s.N > 1 else []


@kind
def total_variation(s):
    f, theta = s.f()
    i, j = s.rng.integers(0, s.N, size=(2, s.N))
    return s.w @ cp.square(s.y - f) + cp.norm1(f[i] - f[j]) + s.square(theta), []


@data
def plain(rng, N):
    X = rng.normal(size=(N, 2))
    return X, np.column_stack([np.sin(2 * X[:, 0]), X[:, 1], np.cos(X[:, 1])]) + 0.3 * rng.standard_t(3, size=(N, 3))


@data
def repeated(rng, N):
    X, Y = plain(rng, -(-N // 4))
    return np.repeat(X, 4, axis=0)[:N], np.repeat(Y, 4, axis=0)[:N] + rng.normal(size=(N, 3))


@data
def one_point(rng, N):
    return np.zeros((N, 2)), rng.normal(size=(N, 3))


@data
def constant_targets(rng, N):
    return rng.normal(size=(N, 2)), np.ones((N, 3))


@data
def no_targets(rng, N):
    return rng.normal(size=(N, 2)), np.zeros((N, 3))


@data
def near_repeats(rng, N):
    X, Y = plain(rng, -(-N // 2))
    return np.repeat(X, 2, axis=0)[:N] + 1e-9 * rng.normal(size=(N, 2)), np.repeat(Y, 2, axis=0)[:N]


@data
def far_outliers(rng, N):
    X, Y = plain(rng, N)
    Y[: max(N // 10, 1)] *= 1e3
    return X, Y


def judged(what, source, rows, limit, options):
    """How an answer is proven, and the seconds."""
    free, zeros, _ = options
    rng = np.random.default_rng([*map(ord, what + source), free, int(zeros)])
    X, Y = DATA[source](rng, rows)
    weights = np.where(np.arange(rows) % 3 == 0, 0.0, 1.0) if zeros else np.ones(rows)
    setting = Setting(X, Y, rng, weights, options)
    objective, constraints = KINDS[what](setting)
    problem, start = ko.Problem(cp.Minimize(objective), constraints), time.perf_counter()
    try:
        problem.solve(time_limit=limit)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:160], time.perf_counter() - start
    seconds, found = time.perf_counter() - start, problem.certificate
    if problem.status == "optimal":
        return "proven", seconds
    unit = max(1.0, float(np.abs(Y).max()))
    if found is not None and found.absolute_gap <= 1e-9 * unit * rows:
        return "absolutely", seconds
    told = f"{problem.status} {problem.solver_stats and problem.solver_stats.solver_name} {problem.value}"
    return f"{told} {'' if found is None else found}", seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--limit", type=float, default=20.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, longest = Counter(), 0.0
    for what, source in product(given.kinds, given.data):
        for options in product(FREE, (False, True), STRENGTHS):
            said, seconds = judged(what, source, given.rows, given.limit, options)
            counts[said if said in ("proven", "absolutely") else "open"] += 1
            longest = max(longest, seconds)
            if said not in ("proven", "absolutely"):
                print(f"{what} {source} {options}: {said} ({seconds:.1f} s)", flush=True)
    print(dict(counts), f"longest {longest:.1f} s")
