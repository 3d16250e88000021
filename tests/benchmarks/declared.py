"""Declared problems, each as a user would type it: how long until the certified answer, and by hand in cvxpy.

    python tests/benchmarks/declared.py [--rows N] [--seed S] [--hand] [--limit SECONDS] [NAME …]

Every case runs in a process of its own: seconds from the statement to the answer, status, solver, certified gap,
attempts, peak memory; with --hand also the same problem with the same B by Clarabel through cvxpy. One BLAS thread.
"""

import argparse
import os
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


class Here:
    """The words of a case in kernelopt."""

    def __init__(self, ko, cp, X):
        self.ko, self.cp, self.X = ko, cp, X

    def theta(self, K=None, sigma=2.0):
        th = (
            self.ko.Theta(self.ko.kernels.Gaussian(sigma=sigma))
            if K is None
            else self.ko.Theta(self.ko.kernels.Gaussian(sigma=sigma), outputs=K)
        )
        return th, th(self.X)

    def square(self, th):
        return self.ko.sum_squares(th)

    def norm(self, th, kind=None):
        return self.ko.norm(th) if kind is None else self.ko.norm(th, kind)


class Hand:
    """The same words with B w, as one writes them in cvxpy."""

    def __init__(self, ko, cp, X):
        self.ko, self.cp, self.X = ko, cp, X

    def theta(self, K=None, sigma=2.0):
        import numpy as np
        from scipy.linalg import lapack

        Q = self.ko.kernels.Gaussian(sigma=sigma)(self.X)
        C, piv, r, _ = lapack.dpstrf(Q, tol=1e-8, lower=1)
        B = np.empty((len(Q), r))
        B[piv - 1] = np.tril(C)[:, :r]
        w = self.cp.Variable(r if K is None else (r, K))
        return w, B @ w

    def square(self, w):
        return self.cp.sum_squares(w)

    def norm(self, w, kind=None):
        return self.cp.norm(w, 2 if w.ndim == 1 else "fro") if kind is None else self.cp.norm(w, kind)


class Data:
    def __init__(self, np, N, seed=7):
        rng = np.random.default_rng(seed)
        self.N, self.X = N, rng.normal(size=(N, 5))
        X, t = self.X, lambda: 0.3 * rng.standard_t(2, size=N)
        self.f0 = f0 = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
        self.y, self.c = f0 + t(), np.sign(f0 + 0.3 * rng.normal(size=N))
        self.Y = np.c_[self.y, np.cos(X[:, 1]) + t(), f0 * X[:, 3] + t()]
        self.counts = rng.poisson(np.exp(np.clip(0.5 * f0, -3, 3)))
        self.positive = np.exp(0.3 * f0) * rng.gamma(2.0, 0.5, size=N)
        self.group, (self.i, self.j) = rng.integers(0, 5, size=N), rng.integers(0, N, size=(2, 2 * N))
        self.P = np.abs(self.Y) / np.abs(self.Y).sum(1, keepdims=True)


# ---- rows that belong together
@case
def norms_of_rows(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum(cp.norm(D.Y - F, 2, axis=1)) + 0.5 * E.square(th), []


@case
def norms_of_rows_with_intercepts(E, D, cp, L, np):
    th, F = E.theta(3)
    b = cp.Variable((1, 3))
    return cp.sum(cp.norm(D.Y - F - np.ones((D.N, 1)) @ b, 2, axis=1)) + 0.5 * E.square(th), []


@case
def huber_of_row_norms(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum(cp.huber(cp.norm(D.Y - F, 2, axis=1))) + 0.5 * E.square(th), []


@case
def rows_in_balls(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum_squares(D.Y - F) + 0.5 * E.square(th), [cp.norm(F, 2, axis=1) <= 1.0]


@case
def rows_on_the_simplex(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum_squares(D.P - F) + 0.5 * E.square(th), [F >= 0, cp.sum(F, axis=1) == 1]


@case
def quantiles_that_do_not_cross(E, D, cp, L, np):
    th, F = E.theta(5)
    b, levels = cp.Variable((1, 5)), [0.1, 0.3, 0.5, 0.7, 0.9]
    G = F + np.ones((D.N, 1)) @ b
    loss = sum(cp.sum(cp.maximum(q * (D.y - G[:, k]), (q - 1) * (D.y - G[:, k]))) for k, q in enumerate(levels))
    return loss + 0.5 * E.square(th), [G[:, k] <= G[:, k + 1] for k in range(4)]


@case
def nuclear_norm_of_residuals(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.normNuc(D.Y - F) + 0.01 * E.square(th), []


@case
def matrix_inequalities_of_40_rows(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum_squares(D.Y - F) + 0.5 * E.square(th), [
        cp.bmat([[F[q, 0], F[q, 1]], [F[q, 1], F[q, 2]]]) >> 0 for q in range(40)
    ]


# ---- risk: all rows belong together
@case
def cvar_of_hinge(E, D, cp, L, np):
    th, F = E.theta()
    k = D.N // 10
    return cp.sum_largest(cp.pos(1 - cp.multiply(D.c, F + cp.Variable())), k) / k + 0.001 * E.square(th), []


@case
def worst_group_of_hinge(E, D, cp, L, np):
    th, F = E.theta()
    loss = cp.pos(1 - cp.multiply(D.c, F + cp.Variable()))
    return cp.max(cp.hstack([cp.sum(loss[D.group == g]) / np.sum(D.group == g) for g in range(5)])) + 1e-3 * E.square(
        th
    ), []


@case
def least_radius_of_a_tube(E, D, cp, L, np):
    th, F = E.theta()
    r = cp.Variable(nonneg=True)
    return r + 0.5 * E.square(th) / D.N, [cp.abs(D.y - F - cp.Variable()) <= r]


@case
def worst_group_of_log_losses(E, D, cp, L, np):
    th, F = E.theta()
    loss = cp.logistic(-cp.multiply(D.c, F + cp.Variable()))
    return cp.max(cp.hstack([cp.sum(loss[D.group == g]) / np.sum(D.group == g) for g in range(5)])) + 1e-3 * E.square(
        th
    ), []


@case
def entropic_risk_of_squares(E, D, cp, L, np):
    th, F = E.theta()
    return cp.log_sum_exp(0.2 * cp.square(np.clip(D.y, -4, 4) - F - cp.Variable())) + 0.01 * E.square(th), []


@case
def largest_error(E, D, cp, L, np):
    th, F = E.theta()
    return cp.norm_inf(np.clip(D.y, -4, 4) - F - cp.Variable()) + 0.01 * E.square(th), []


@case
def length_of_the_residual(E, D, cp, L, np):
    th, F = E.theta()
    return cp.norm(D.y - F - cp.Variable(), 2) + 2 * E.norm(th), []


@case
def length_of_the_residual_with_a_square(E, D, cp, L, np):
    th, F = E.theta()
    return cp.norm(D.y - F, 2) + 0.3 * E.square(th), []


@case
def least_norm_within_an_error(E, D, cp, L, np):
    th, F = E.theta()
    return E.norm(th), [cp.norm(D.y - F - cp.Variable(), 2) <= 0.5 * np.linalg.norm(D.y - D.y.mean())]


@case
def norm_of_order_three_halves(E, D, cp, L, np):
    th, F = E.theta()
    return cp.pnorm(D.y - F - cp.Variable(), 1.5) + 0.01 * E.square(th), []


@case
def noise_level_estimated_too(E, D, cp, L, np):
    th, F = E.theta()
    s = cp.Variable(pos=True)
    return cp.quad_over_lin(D.y - F - cp.Variable(), s) + 0.1 * D.N * s + 0.5 * E.square(th), []


@case
def mean_and_precision(E, D, cp, L, np):
    th, F = E.theta(2)
    s = F[:, 1] + cp.Variable()
    e, n = cp.multiply(D.y, s) - F[:, 0], 60
    return sum(cp.quad_over_lin(e[q], s[q]) for q in range(n)) - cp.sum(cp.log(s[:n])) + 0.5 * E.square(th), []


# ---- several norms, norms within losses, low rank
@case
def four_kernels_log_loss(E, D, cp, L, np):
    parts = [E.theta(sigma=s) for s in (1.0, 2.0, 4.0, 8.0)]
    f = sum(F for _, F in parts) + cp.Variable()
    return cp.sum(cp.logistic(-cp.multiply(D.c, f))) + 3 * sum(E.norm(th) for th, _ in parts), []


@case
def four_kernels_squares(E, D, cp, L, np):
    parts = [E.theta(sigma=s) for s in (1.0, 2.0, 4.0, 8.0)]
    f = sum(F for _, F in parts) + cp.Variable()
    return cp.sum_squares(D.y - f) + 8 * sum(E.norm(th) for th, _ in parts), []


@case
def low_rank_of_theta(E, D, cp, L, np):
    th, F = E.theta(3)
    return cp.sum_squares(D.Y - F) + 3 * E.norm(th, "nuc"), []


@case
def norm_within_the_hinge(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.pos(1 - cp.multiply(D.c, F + cp.Variable()) + 0.1 * E.norm(th))) + 0.5 * E.square(th), []


@case
def hinge_in_a_ball(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.pos(1 - cp.multiply(D.c, F + cp.Variable()))), [E.norm(th) <= 5]


@case
def mean_hinge_and_norm(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.pos(1 - cp.multiply(D.c, F + cp.Variable()))) / D.N + 0.02 * E.norm(th), []


# ---- constraints
@case
def fair_squared_hinge(E, D, cp, L, np):
    th, F = E.theta()
    s = (D.X[:, 4] > 0) - np.mean(D.X[:, 4] > 0)
    f = F + cp.Variable()
    return cp.sum(cp.square(cp.pos(1 - cp.multiply(D.c, f)))) + 0.5 * E.square(th), [cp.abs(s @ f) / D.N <= 0.01]


@case
def rising_along_a_column(E, D, cp, L, np):
    th, F = E.theta()
    f, o = F + cp.Variable(), np.argsort(D.X[:, 0])
    return cp.sum(cp.abs(D.y - f)) + 0.5 * E.square(th), [f[o[1:]] >= f[o[:-1]]]


@case
def differences_bounded(E, D, cp, L, np):
    th, F = E.theta()
    f, reach = F + cp.Variable(), np.linalg.norm(D.X[D.i] - D.X[D.j], axis=1)
    return cp.sum(cp.abs(D.y - f)) + 0.5 * E.square(th), [cp.abs(f[D.i] - f[D.j]) <= 0.5 * reach]


@case
def total_variation_on_pairs(E, D, cp, L, np):
    th, F = E.theta()
    f, n = F + cp.Variable(), D.N
    return cp.sum_squares(D.y - f) + 2 * cp.sum(cp.abs(f[D.i[:n]] - f[D.j[:n]])) + 0.5 * E.square(th), []


@case
def pairs_ranked(E, D, cp, L, np):
    th, F = E.theta()
    s = np.sign(D.f0[D.i] - D.f0[D.j] + 1e-9)
    return cp.sum(cp.pos(1 - cp.multiply(s, F[D.i] - F[D.j]))) + 0.5 * E.square(th), []


@case
def divergence_from_positive_targets(E, D, cp, L, np):
    th, F = E.theta()
    f = F + cp.Variable()
    return cp.sum(cp.kl_div(D.positive, f)) + 0.5 * E.square(th), [f >= 1e-3]


@case
def linear_part_with_few_columns(E, D, cp, L, np):
    th, F = E.theta()
    beta = cp.Variable(5)
    r = D.y - F - D.X @ beta
    return cp.sum(cp.maximum(0.7 * r, -0.3 * r)) + 0.5 * E.square(th) + 5 * cp.norm1(beta), []


# ---- sums of functions of one number
@case
def hinge(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.pos(1 - cp.multiply(D.c, F + cp.Variable()))) + 0.5 * E.square(th), []


@case
def log_loss(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.logistic(-cp.multiply(D.c, F + cp.Variable()))) + 0.5 * E.square(th), []


@case
def poisson(E, D, cp, L, np):
    th, F = E.theta()
    f = F + cp.Variable()
    return cp.sum(cp.exp(f) - cp.multiply(D.counts, f)) + 0.5 * E.square(th), []


@case
def power_three_halves(E, D, cp, L, np):
    th, F = E.theta()
    return cp.sum(cp.power(cp.abs(D.y - F - cp.Variable()), 1.5)) + 0.5 * E.square(th), []


def one(name, N, hand, limit, seed):
    import resource
    import warnings

    warnings.simplefilter("ignore")
    import cvxpy as cp
    import numpy as np

    import kernelopt as ko

    D = Data(np, N, seed)

    def ours():
        objective, constraints = CASES[name](Here(ko, cp, D.X), D, cp, ko.losses, np)
        p = ko.Problem(cp.Minimize(objective), constraints)
        p.solve(time_limit=limit)
        return p

    if hand:
        began = time.perf_counter()
        objective, constraints = CASES[name](Hand(ko, cp, D.X), D, cp, ko.losses, np)
        q = cp.Problem(cp.Minimize(objective), constraints)
        q.solve(solver="CLARABEL", time_limit=limit)
        return f"{time.perf_counter() - began:8.2f} s by hand, {q.status} {q.value}"
    began = time.perf_counter()
    p = ours()
    seconds, c = time.perf_counter() - began, p.certificate
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    gap = "none" if c is None else f"{c.relative_gap:.1e}"
    stats = p.solver_stats
    told = f"{p.status:19s} {stats.solver_name!s:21s} gap {gap:8s} {len(stats.attempts):2d} attempts {memory:5.1f} GiB"
    return f"{seconds:8.2f} s {told}  {p.value}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--hand", action="store_true")
    parser.add_argument("--one")
    a = parser.parse_args()
    if a.one:
        print(one(a.one, a.rows, a.hand, a.limit, a.seed))
        sys.exit()
    for name in a.names or CASES:
        for hand in (False, True)[: 1 + a.hand]:
            command = [
                sys.executable,
                __file__,
                "--one",
                name,
                "--rows",
                str(a.rows),
                "--limit",
                str(a.limit),
                "--seed",
                str(a.seed),
            ]
            try:
                run = subprocess.run(
                    command + ["--hand"] * hand, capture_output=True, text=True, timeout=2 * a.limit + 60, check=False
                )
                said = (
                    (run.stdout.strip().splitlines() or [""])[-1]
                    if run.returncode == 0
                    else f"   ended with {run.returncode}: {run.stderr.strip()[-100:]}"
                )
            except subprocess.TimeoutExpired:
                said = f"   no answer in {2 * a.limit + 60:g} s"
            print(f"{'' if hand else name:38s}{said}", flush=True)
