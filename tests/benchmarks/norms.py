"""Many norms, and none: a kernel for each of many columns, and few features with a penalty that vanishes.

    python tests/benchmarks/norms.py [--seed 7] [--large]

Each problem runs in a process of its own: seconds from the statement to the certified answer, status, solver, gap and
peak memory. With 30 kernels also the same by Clarabel through cvxpy, with the factors made before. --large adds 50
kernels of 3000 rows. One BLAS thread.
"""

import argparse
import os
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
LOSSES = {
    "squares": lambda cp, y, c, f: cp.sum_squares(y - f),
    "log": lambda cp, y, c, f: cp.sum(cp.logistic(-cp.multiply(c, f))),
    "hinge": lambda cp, y, c, f: cp.sum(cp.pos(1 - cp.multiply(c, f))),
    "absolute": lambda cp, y, c, f: cp.norm1(y - f),
    "huber": lambda cp, y, c, f: cp.sum(cp.huber(y - f)),
    "poisson": lambda cp, y, c, f: cp.sum(cp.exp(f) - cp.multiply(abs(y).round(), f)),
}
MANY, FEW, STRENGTH = ("squares", "log", "hinge"), ("log", "hinge", "absolute", "huber", "poisson"), 3.0


def data(np, rows, columns, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    f0 = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 - X[:, 2]
    return X, f0 + 0.3 * rng.normal(size=rows), np.sign(f0 + 0.3 * rng.normal(size=rows))


def kernels(loss, rows, columns, seed, hand):
    """Σ losses + 3 Σ‖θₖ‖ with a Gaussian kernel of each column."""
    import cvxpy as cp
    import numpy as np
    from scipy.linalg import lapack

    import kernelopt as ko

    X, y, c = data(np, rows, columns, seed)
    kernel = ko.kernels.Gaussian(sigma=1.0)
    if not hand:
        start = time.perf_counter()
        thetas = [ko.Theta(kernel) for _ in range(columns)]
        f = sum(theta(X[:, [k]]) for k, theta in enumerate(thetas)) + cp.Variable()
        problem = ko.Problem(cp.Minimize(LOSSES[loss](cp, y, c, f) + STRENGTH * sum(ko.norm(t) for t in thetas)))
        return solved(problem, start)
    parts = []
    for k in range(columns):
        C, pivots, rank, _ = lapack.dpstrf(kernel(X[:, [k]]), tol=1e-8, lower=1)
        B = np.empty((rows, rank))
        B[pivots - 1] = np.tril(C)[:, :rank]
        parts.append((B, cp.Variable(rank)))
    start = time.perf_counter()
    f = sum(B @ w for B, w in parts) + cp.Variable()
    problem = cp.Problem(cp.Minimize(LOSSES[loss](cp, y, c, f) + STRENGTH * sum(cp.norm(w) for _, w in parts)))
    problem.solve(solver="CLARABEL")
    return f"{time.perf_counter() - start:7.2f} s  {problem.status} {problem.value:.8g} by hand"


def features(loss, rows, columns, seed, lam):
    """Σ losses + λ‖θ‖² with a linear kernel; at λ = 0 no norm stands in the problem."""
    import cvxpy as cp
    import numpy as np

    import kernelopt as ko

    X, y, c = data(np, rows, columns, seed)
    start = time.perf_counter()
    theta = ko.Theta(ko.kernels.Linear())
    objective = LOSSES[loss](cp, y, c, theta(X) + cp.Variable())
    return solved(ko.Problem(cp.Minimize(objective + lam * ko.sum_squares(theta) if lam else objective)), start)


def solved(problem, start):
    import resource

    problem.solve()
    seconds, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    stats, found = problem.solver_stats, problem.certificate
    told = f"{problem.status} {stats.solver_name} gap {found.relative_gap:.1e} {len(stats.attempts)} attempts"
    return f"{seconds:7.2f} s  {told} {memory:.1f} GiB  {problem.value:.8g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--one", nargs="*")
    given = parser.parse_args()
    if given.one:
        import warnings

        warnings.simplefilter("ignore")
        kind, loss, rows, columns, last = given.one
        run = kernels if kind == "kernels" else features
        print(run(loss, int(rows), int(columns), given.seed, float(last)))
        sys.exit()
    plan = [("kernels", loss, 300, 30, hand) for loss in MANY for hand in (0, 1)]
    plan += [("kernels", loss, 3000, 50, 0) for loss in MANY if given.large]
    plan += [("features", loss, 10_000, 20, lam) for loss in FEW for lam in (1e-6, 0)]
    for one in plan:
        command = [sys.executable, __file__, "--seed", str(given.seed), "--one", *map(str, one)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (run.stdout.strip().splitlines() or [run.stderr.strip()[-100:]])[-1]
        kind, loss, rows, columns, last = one
        what = f"{columns} kernels" if kind == "kernels" else f"{columns} features, λ = {last:g}"
        print(f"{what + ', ' + loss + f', {rows} rows':46s}{said}", flush=True)
