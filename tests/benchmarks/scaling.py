"""Many rows: time, memory and certified gaps, beside peers in one run.

    python tests/benchmarks/scaling.py [--only NUMBER ...] [--quick]

Each case runs in a process of its own, with one BLAS thread, and prints its row; "memory" is the peak of the process
beyond what it had after imports and data. Times of ours include the certificate unless the row says otherwise.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import cvxpy as cp
import numpy as np
import scipy.linalg as sl
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.svm import SVC

import kernelopt as ko
from kernelopt.solvers import engines

LAM = 0.5


def points(N: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, d))
    return X, np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)


def kernel_for(d: int) -> Any:
    return ko.kernels.Gaussian(sigma=1.5 if d < 6 else 3.0)


def stated(X: Any, y: Any, loss: Callable[..., Any], intercept: bool = True) -> ko.Problem:
    theta = ko.Theta(kernel_for(X.shape[1]))
    f = theta(X) + cp.Variable() if intercept else theta(X)
    return ko.Problem(cp.Minimize(cp.sum(loss(y, f)) + LAM * ko.sum_squares(theta)))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    found = work()
    return perf_counter() - start, found


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def verdict(met: bool) -> str:
    return "met" if met else "missed"


def row(*cells: Any) -> None:
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


# ------------------------------------------------------------ cases


def against_svc(N: int, bound: float) -> None:
    X, y = points(N, 4)
    before = peak()
    problem = stated(X, y, ko.losses.hinge)
    seconds, _ = timed(lambda: problem.solve(tol=1e-3))
    memory = peak() - before
    svc = SVC(C=1 / (2 * LAM), gamma=1 / (2 * 1.5**2), tol=1e-3, cache_size=2000)
    theirs, _ = timed(lambda: svc.fit(X, y))
    found, last = problem.certificate, problem.history.rounds[-1]
    row(
        f"hinge + b, N = {N}, d = 4, gap 1e-3", "SVC, tol 1e-3", f"{seconds / theirs:.2f}", f"ours/peer ≤ {bound:.2g}",
        verdict(seconds <= bound * theirs and problem.status == "optimal"), f"{seconds:.2f}", f"{found.seconds:.2f}",
        f"{theirs:.2f}", f"{found.relative_gap:.1e}", f"{last.rank} columns, {last.rows} rows", f"{memory:.2f}",
    )  # fmt: skip


def columns(N: int, tol: float) -> None:
    X, y = points(N, 10)
    problem = stated(X, y, ko.losses.log_loss)
    before = peak()
    seconds, _ = timed(lambda: problem.solve(tol=tol))
    memory, mine = peak() - before, problem.history.rounds[-1].rank
    rank = mine
    while True:  # pivots by the trace of what they leave, at as few columns as reach the gap
        rank = int(1.25 * rank)
        other = stated(X, y, ko.losses.log_loss)
        options = {"factorization": "streamed", "rank_tol": 1e-12, "max_rank": rank, "tol": tol}
        theirs, _ = timed(lambda: other.solve(**options))  # noqa: B023
        if other.certificate.relative_gap <= tol or rank > N / 2:
            break
    row(
        f"logistic + b, N = {N}, d = 10, gap {tol:.0e}", f"random pivots alone: {rank} columns",
        f"{rank / mine:.1f} × fewer, time {seconds / theirs:.2f}", "≥ 5 × fewer columns, faster",
        verdict(rank >= 5 * mine and seconds < theirs), f"{seconds:.2f}", f"{problem.certificate.seconds:.2f}",
        f"{theirs:.2f}", f"{problem.certificate.relative_gap:.1e}", f"{mine} columns", f"{memory:.2f}",
    )  # fmt: skip


def beside_nystroem(N: int, r: int) -> None:
    X, y = points(N, 10)
    problem = stated(X, y, ko.losses.squared_error, intercept=False)
    options = {"factorization": "streamed", "rank_tol": 1e-12, "max_rank": r}
    before = peak()
    seconds, _ = timed(lambda: problem.solve(certify=False, **options))
    memory = peak() - before
    features = Nystroem(gamma=1 / (2 * 3.0**2), n_components=r, random_state=0)

    def peer() -> Any:
        return Ridge(alpha=LAM, fit_intercept=False).fit(features.fit_transform(X), y)

    theirs, _ = timed(peer)
    problem.solve(**options)
    row(
        f"ridge, N = {N}, d = 10, r = {r}, no certificate", "Nystroem + Ridge", f"{seconds / theirs:.2f}",
        "ours/peer ≤ 1.2", verdict(seconds <= 1.2 * theirs), f"{seconds:.2f}",
        f"{problem.certificate.seconds:.2f} apart", f"{theirs:.2f}",
        f"{problem.certificate.relative_gap:.1e}", f"{r} columns", f"{memory:.2f}",
    )  # fmt: skip


def iterations(N: int, r: int) -> None:
    X, y = points(N, 10)
    problem = stated(X, y, ko.losses.log_loss)
    before = peak()
    seconds, _ = timed(lambda: problem.solve(certify=False, factorization="streamed", rank_tol=1e-12, max_rank=r))
    memory, stats = peak() - before, problem.solver_stats
    B = next(iter(problem._factored.reduction.factors.values())).B
    w = np.random.default_rng(0).uniform(0.1, 1.0, size=N)

    def bare() -> Any:
        total = np.zeros((r, r))
        for i in range(0, N, 8192):
            S = np.sqrt(w[i : i + 8192])[:, None] * B[i : i + 8192]
            total += S.T @ S
        return total

    theirs, _ = timed(bare)
    each = stats.solve_time / max(stats.num_iters, 1)
    row(
        f"logistic + b, N = {N}, d = 10, r = {r}", "bare BᵀDB", f"{each / theirs:.2f}", "an iteration ≤ 1.5, ≤ 12 GiB",
        verdict(each <= 1.5 * theirs and peak() <= 12 * 1.0737), f"{each:.2f} ({seconds:.0f} in all)", "none",
        f"{theirs:.2f}", "not certified", f"{stats.num_iters} systems, {stats.solver_name}", f"{memory:.2f}",
    )  # fmt: skip


def growth(sizes: tuple[int, ...], r: int) -> None:
    seconds = []
    for N in sizes:
        X, y = points(N, 10)
        problem = stated(X, y, ko.losses.log_loss)
        options = {"certify": False, "factorization": "streamed", "rank_tol": 1e-12, "max_rank": r}
        seconds.append(timed(lambda: problem.solve(**options))[0])  # noqa: B023
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    row(
        f"logistic + b, d = 10, r = {r}, N = {', '.join(map(str, sizes))}", "–", f"exponent {exponent:.2f}",
        "1.0 ± 0.1", verdict(abs(exponent - 1) <= 0.1), ", ".join(f"{s:.2f}" for s in seconds), "none", "–",
        "not certified", "",
        f"{peak():.2f} in all",
    )  # fmt: skip


def factorization(N: int, r: int) -> None:
    from kernelopt.factorization import Settings
    from kernelopt.factorization.streamed import streamed_cholesky
    from kernelopt.language.rows import Rows

    X, _ = points(N, 10)
    kernel = kernel_for(10)
    before = peak()
    seconds, factor = timed(lambda: streamed_cholesky(Rows.of_points(kernel, X), Settings(1e-13, r)))
    memory = peak() - before

    def bare() -> Any:
        """The kernel values, a triangular solve and the downdates of 96 columns at a time, by BLAS alone."""
        B = np.empty((N, r))
        S = X[factor.pivots]
        L = np.linalg.cholesky(kernel(S) + 1e-10 * np.eye(r))
        for i in range(0, N, 4096):
            K = kernel._matrix(X[i : i + 4096], S)
            B[i : i + 4096] = sl.solve_triangular(L, K.T, lower=True, check_finite=False).T
        return B

    theirs, _ = timed(bare)
    row(
        f"factorization, N = {N}, d = 10, r = {r}", "K_XS and dtrsm", f"{seconds / theirs:.2f}", "ours/peer ≤ 1.5",
        verdict(seconds <= 1.5 * theirs), f"{seconds:.2f}", "none", f"{theirs:.2f}", "–", "", f"{memory:.2f}",
    )  # fmt: skip


def on_dask(N: int, r: int, certify: bool) -> None:
    from distributed import Client, LocalCluster

    X, y = points(N, 10)
    options: dict[str, Any] = {"certify": certify, "rank_tol": 1e-12, "max_rank": r}
    here = stated(X, y, ko.losses.log_loss)
    alone, value = timed(lambda: here.solve(factorization="streamed", **options))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(_warm)
        there = stated(X, y, ko.losses.log_loss)
        seconds, theirs = timed(lambda: there.solve(backend=client, **options))
        again = stated(X, y, ko.losses.log_loss)
        victim = next(iter(client.run(os.getpid).values()))
        threading.Timer(seconds / 2, os.kill, (victim, signal.SIGKILL)).start()
        killed, survived = timed(lambda: again.solve(backend=client, **options))
    found = there.certificate
    row(
        f"logistic + b, N = {N}, r = {r}, 2 processes", "in memory, 1 thread", f"{alone / seconds:.2f} × faster",
        "≥ 1.4 × faster" if certify else "–", verdict(alone >= 1.4 * seconds) if certify else "", f"{seconds:.2f}",
        f"{found.seconds:.2f}" if certify else "none", f"{alone:.2f}",
        f"{found.relative_gap:.1e}" if certify else "not certified",
        f"a worker killed: {killed:.1f} s, objective {abs(survived - theirs) / abs(theirs):.0e} off; "
        f"with other pivots in memory {abs(value - theirs) / value:.0e}",
        f"{peak():.2f} in all",
    )  # fmt: skip


def to_a_gap(N: int, tol: float) -> None:
    """In this process and on two workers, certificate included, with as many columns as the gap asks for."""
    from distributed import Client, LocalCluster

    X, y = points(N, 10)
    here, there = (stated(X, y, ko.losses.log_loss) for _ in range(2))
    alone, _ = timed(lambda: here.solve(tol=tol))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(_warm)
        seconds, _ = timed(lambda: there.solve(tol=tol, backend=client))
    found = there.certificate
    row(
        f"logistic + b, N = {N}, gap {tol:.0e}, 2 processes", "in memory, 1 thread", f"{seconds / alone:.2f}",
        "ours/peer ≤ 0.65", verdict(seconds <= 0.65 * alone), f"{seconds:.2f}", f"{found.seconds:.2f}", f"{alone:.2f}",
        f"{found.relative_gap:.1e}",
        f"{there.history.rounds[-1].rank} columns; the proof in memory {here.certificate.seconds:.2f} s",
        f"{peak():.2f} in all",
    )  # fmt: skip


def bounded(N: int, r: int) -> None:
    """Without a proof, and with the bound of the reduced problem within 1.2 times that time."""
    X, y = points(N, 10)
    bare, other = (stated(X, y, ko.losses.log_loss) for _ in range(2))
    options = {"factorization": "streamed", "rank_tol": 1e-12, "max_rank": r}
    without, _ = timed(lambda: bare.solve(certify=False, **options))
    seconds, _ = timed(lambda: other.solve(time_limit=1.05 * without, **options))
    found = other.certificate
    row(
        f"logistic + b, N = {N}, d = 10, r = {r}, time_limit", "without a proof", f"{seconds / without:.2f}",
        "ours/peer ≤ 1.2", verdict(seconds <= 1.2 * without and found.lower > 0), f"{seconds:.2f}",
        f"{found.seconds:.2f}", f"{without:.2f}", f"{found.relative_gap:.1e}, {found.scope}", "",
        f"{peak():.2f} in all",
    )  # fmt: skip


def _warm() -> None:
    """Imports of a worker."""
    assert engines.ENGINES


CASES: list[Callable[[bool], None]] = [
    lambda quick: against_svc(2500 if quick else 20_000, 1.0),
    lambda quick: against_svc(4000 if quick else 60_000, 1 / 3),
    lambda quick: columns(2500 if quick else 20_000, 1e-2 if quick else 1e-4),
    lambda quick: beside_nystroem(3000 if quick else 100_000, 100 if quick else 1000),
    lambda quick: iterations(5000 if quick else 1_000_000, 50 if quick else 500),
    lambda quick: growth((1000, 2000, 4000) if quick else (10_000, 100_000, 1_000_000), 50 if quick else 200),
    lambda quick: factorization(5000 if quick else 100_000, 100 if quick else 1000),
    lambda quick: on_dask(5000 if quick else 200_000, 50 if quick else 200, certify=True),
    lambda quick: on_dask(5000 if quick else 200_000, 50 if quick else 200, certify=False),
    lambda quick: to_a_gap(5000 if quick else 50_000, 1e-3),
    lambda quick: bounded(20_000 if quick else 1_000_000, 200),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases, from 1")
    parser.add_argument("--quick", action="store_true", help="small problems, to see whether everything runs")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    chosen = options.only or range(1, len(CASES) + 1)
    if options.here:
        for number in chosen:
            CASES[number - 1](options.quick)
        return
    row("case", "peer", "ratio", "target", "", "ours, s", "proof, s", "peer, s", "our gap", "with", "memory, GB")
    row(*["---"] * 11)
    for number in chosen:
        command = [sys.executable, "-W", "ignore", __file__, "--here", "--only", str(number)]
        subprocess.run(command + ["--quick"] * options.quick, check=False)


if __name__ == "__main__":
    main()
