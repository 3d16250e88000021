"""What kernelopt adds to the solver's own work, and what it saves against cvxpy by hand.

    python tests/benchmarks/overhead.py

Hinge loss with intercept, N = 2000 points in the plane, Gaussian kernel, rank about 500, Clarabel. Every
measurement runs in a process of its own with BLAS on one thread; peers alternate, medians of the ratios are
printed beside the targets.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

N, LAM, SIGMA, RANK_TOL = 2000, 0.5, 0.4, 1e-8


def data():
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * rng.normal(size=N))
    return X, y


class Timed:
    """Clarabel, with the seconds spent in it: set-up, update of data, and solve.

    Its own `solve_time` counts the first set-up again at each re-solve, so that wall time is taken instead.
    """

    seconds = 0.0

    def __init__(self, make, *arguments):
        self.solver = self.timed(make, *arguments)

    def timed(self, call, *arguments, **options):
        start = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            Timed.seconds += time.perf_counter() - start

    def __getattr__(self, name):
        return lambda *a, **k: self.timed(getattr(self.solver, name), *a, **k)


def declared():
    """The problem as declared, then re-solved for another λ."""
    import clarabel
    import cvxpy as cp

    import kernelopt as ko

    make = clarabel.DefaultSolver
    clarabel.DefaultSolver = lambda *arguments: Timed(make, *arguments)
    X, y = data()
    start = time.perf_counter()
    theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(), cp.Parameter(nonneg=True, value=LAM)
    loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    value = problem.solve("CLARABEL", rank_tol=RANK_TOL)
    total, solver = time.perf_counter() - start, Timed.seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stats, again = problem.solver_stats, []
    for factor in (0.5, 2.0, 0.7):
        lam.value, Timed.seconds = factor * LAM, 0.0
        start = time.perf_counter()
        problem.solve("CLARABEL", rank_tol=RANK_TOL)
        again.append(time.perf_counter() - start - Timed.seconds)
    return {
        "total": total,
        "value": value,
        "memory": memory,
        "kernel": stats.kernel_time,
        "factor": stats.factor_time,
        "solver": solver,
        "resolve": statistics.median(again),
        "rank": problem.reduced_problem.var_dict["v_θ"].size,
    }


def reduced_by_hand():
    """The same reduced problem written in cvxpy, with one u == B @ w."""
    import cvxpy as cp
    import numpy as np
    from scipy.linalg.lapack import dpstrf

    X, y = data()
    start = time.perf_counter()
    squares = np.einsum("ij,ij->i", X, X)
    Q = X @ X.T
    Q *= -2
    Q += squares[:, None]
    Q += squares
    Q *= -1 / (2 * SIGMA**2)
    np.exp(Q, out=Q)
    L, order, _, _ = dpstrf(Q.T, tol=RANK_TOL, lower=1, overwrite_a=1)
    rank = 1 + np.argmax(N - np.cumsum(np.sum(np.tril(L) ** 2, axis=0)) <= RANK_TOL * N)
    B = np.empty((N, rank))
    B[order - 1] = np.tril(L[:, :rank])
    del Q, L
    u, w, b = cp.Variable(N), cp.Variable(rank), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, u + b)))
    problem = cp.Problem(cp.Minimize(loss + LAM * cp.sum_squares(w)), [u == B @ w])
    value = problem.solve("CLARABEL")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"total": time.perf_counter() - start, "value": value, "memory": memory, "rank": int(rank)}


def without_reduction():
    """What a user writes today: θ = Aᵀα, with quad_form over the wrapped kernel matrix."""
    import cvxpy as cp
    import numpy as np

    X, y = data()
    start = time.perf_counter()
    Q = np.exp(-np.sum((X[:, None] - X) ** 2, axis=2) / (2 * SIGMA**2))
    a, b = cp.Variable(N), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, Q @ a + b)))
    problem = cp.Problem(cp.Minimize(loss + LAM * cp.quad_form(a, cp.psd_wrap(Q))))
    value = problem.solve("CLARABEL")
    return {"total": time.perf_counter() - start, "value": value}


def import_kernelopt():
    start = time.perf_counter()
    import kernelopt  # noqa: F401

    return {"total": time.perf_counter() - start}


def import_cvxpy():
    start = time.perf_counter()
    import cvxpy  # noqa: F401

    return {"total": time.perf_counter() - start}


def run(name):
    """One measurement in a process of its own."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import threadpoolctl, overhead; "
        "threadpoolctl.threadpool_limits(1); print(json.dumps(getattr(overhead, sys.argv[2])()))"
    )
    folder = __file__.rpartition("/")[0] or "."
    done = subprocess.run([sys.executable, "-c", code, folder, name], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def alternate(names, runs):
    """`runs` rounds of the measurements, in turn."""
    results = {name: [] for name in names}
    for _ in range(runs):
        for name in names:
            results[name].append(run(name))
    return results


def ratio(results, key, one, other):
    return statistics.median(a[key] / b[key] for a, b in zip(results[one], results[other], strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    r = alternate(["declared", "reduced_by_hand"], runs) | alternate(["import_kernelopt", "import_cvxpy"], 2 * runs)
    r |= {"without_reduction": [run("without_reduction")]}
    d = r["declared"]
    outside = statistics.median(1 - (x["kernel"] + x["factor"] + x["solver"]) / x["total"] for x in d)
    value, today = d[0]["value"], r["without_reduction"][0]
    total = statistics.median(x["total"] for x in d)
    resolve = 1e3 * statistics.median(x["resolve"] for x in d)
    rows = [
        ("outside kernel, factor and solver, share of the total", f"{100 * outside:.1f} %", "≤ 10 %"),
        ("peak memory / reduced problem by hand", f"{ratio(r, 'memory', 'declared', 'reduced_by_hand'):.2f}", "≤ 1.3"),
        ("total time / reduced problem by hand", f"{ratio(r, 'total', 'declared', 'reduced_by_hand'):.2f}", ""),
        ("re-solve after changing λ, beyond the solver", f"{resolve:.0f} ms", "≤ 50 ms"),
        ("α ∈ Rᴺ with quad_form / total time", f"{today['total'] / total:.1f}", "≥ 2"),
        ("  relative difference of objectives", f"{abs(today['value'] - value) / value:.1e}", "≤ 1e-6"),
        ("import kernelopt / import cvxpy", f"{ratio(r, 'total', 'import_kernelopt', 'import_cvxpy'):.2f}", "≤ 1.3"),
    ]
    print(f"hinge + intercept, N = {N}, rank {d[0]['rank']}, Clarabel, {runs} runs, one BLAS thread\n")
    print(f"| {'measurement':<54} | {'median':>8} | {'target':>8} |\n|{'-' * 56}|{'-' * 9}:|{'-' * 9}:|")
    for row in rows:
        print(f"| {row[0]:<54} | {row[1]:>8} | {row[2]:>8} |")


if __name__ == "__main__":
    main()
