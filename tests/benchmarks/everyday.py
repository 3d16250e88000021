"""What people do all day: fits of a few hundred rows, grids of λ × folds, and problems with coupled terms.

    python tests/benchmarks/everyday.py [--quick] [--large]
    python tests/benchmarks/everyday.py --largest
    python tests/benchmarks/everyday.py --jobs 2

Every fit of ours is stated anew, solved and certified to the tolerance in the table; its time is that from the
statement to the status. Each run has new points and new labels; "same data" is the second fit of one statement. Runs of
ours and of the peer take turns, with BLAS on one thread (set OPENBLAS_NUM_THREADS=1).
In a grid one factor serves all folds and values (`ko.cross_validate`); paths and grids stand beside
cold solves, too. Coupled problems have Clarabel as a peer, by kernelopt on the same B, for LIMIT seconds at most.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from joblib.externals.loky import get_reusable_executor
from scipy.sparse.csgraph import laplacian
from sklearn.datasets import load_digits, make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import kneighbors_graph
from sklearn.svm import SVC

import kernelopt as ko

LAM = 0.5
LIMIT = 60.0  # seconds that Clarabel may take for a coupled problem
Data = tuple[np.ndarray, np.ndarray, float]


class Fit(NamedTuple):
    """Milliseconds of fits: the first of its structure, with new data, with the same data, after a change of λ, after a
    change of labels, and the peer's with new data."""

    name: str
    rows: int
    first: float
    ours: float
    same: float
    again: float
    relabelled: float
    theirs: float
    gap: float


def in_four_dimensions(N: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 4))
    return X, labels(X, rng), 1.5


def labels(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sign(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * rng.standard_normal(len(X)))


def in_few_dimensions(N: int, p: int) -> Data:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, p))
    y = np.sign(np.sin(2 * X[:, 0]) + X[:, -1] ** 2 - 1 + 0.3 * rng.standard_normal(N))
    return X, y, 1.5 if p <= 4 else float(np.sqrt(p))


def in_many_dimensions(N: int, p: int) -> Data:
    options = {"n_informative": min(20, p), "n_redundant": 0, "n_clusters_per_class": 3, "flip_y": 0.05}
    X, y = make_classification(N, p, random_state=0, **options)
    return (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * y - 1, float(np.sqrt(p))


def hinge(data: Data, lam: cp.Parameter) -> ko.Problem:
    X, y, sigma = data
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + lam * ko.sum_squares(theta)))


def ridge(data: Data, lam: cp.Parameter) -> ko.Problem:
    X, y, sigma = data
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))


def svc(data: Data, tol: float) -> Any:
    X, y, sigma = data
    return SVC(C=1 / (2 * LAM), gamma=1 / (2 * sigma**2), tol=tol).fit(X, y)


def kernel_ridge(data: Data, tol: float) -> Any:
    X, y, sigma = data
    return KernelRidge(alpha=LAM, kernel="rbf", gamma=1 / (2 * sigma**2)).fit(X, y)


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call and its result, without garbage collection in between, as timeit does."""
    gc.disable()
    try:
        start = perf_counter()
        result = call()
        return perf_counter() - start, result
    finally:
        gc.enable()


def fits(name: str, rows: int, tol: float, runs: int) -> Fit:
    """Statements, solves and certificates beside the peer's fits, in turn; the first of each is told apart."""
    state, peer = LOSSES[name]
    lam, found, gap = cp.Parameter(nonneg=True), list[tuple[float, ...]](), 0.0

    def solved(data: Data) -> ko.Problem:
        problem = state(data, lam)
        problem.solve(tol=tol)
        return problem

    for run in range(runs + 1):
        if rows > 2000:
            gc.collect()  # the kernel matrix of the run before; a small one is not worth the cold caches
        lam.value = LAM
        data = in_four_dimensions(rows, run)
        ours, problem = seconds(lambda: solved(data))  # noqa: B023 called at once, as those below
        gap = max(gap, problem.certificate.relative_gap)
        same, _ = seconds(lambda: solved(data))  # noqa: B023
        lam.value = 0.8 * LAM
        again, _ = seconds(lambda: problem.solve(tol=tol))  # noqa: B023
        lam.value = LAM
        y = cp.Parameter(rows, value=data[1])
        problem = solved((data[0], y, data[2]))
        y.value = labels(data[0], np.random.default_rng(1000 + run))
        relabelled, _ = seconds(lambda: problem.solve(tol=tol))  # noqa: B023
        found.append((ours, same, again, relabelled, seconds(lambda: peer(data, tol))[0]))  # noqa: B023
    columns = (1e3 * median(column) for column in zip(*found[1:], strict=True))
    return Fit(f"{name}, tol = {tol:g}", rows, 1e3 * found[0][0], *columns, gap)


LOSSES = {"hinge": (hinge, svc), "ridge": (ridge, kernel_ridge)}


def first_of_a_process(name: str, rows: int, runs: int) -> float:
    """Milliseconds of the first fit that a process makes after the import, the median of several processes."""
    loss = {"hinge": "cp.sum(ko.losses.hinge(y, theta(X) + cp.Variable()))", "ridge": "cp.sum_squares(y - theta(X))"}
    code = f"""
import time, cvxpy as cp, numpy as np, kernelopt as ko
rng = np.random.default_rng(0)
X = rng.standard_normal(({rows}, 4))
y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * rng.standard_normal({rows}))
start = time.perf_counter()
theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
ko.Problem(cp.Minimize({loss[name]} + {LAM} * ko.sum_squares(theta))).solve()
print(time.perf_counter() - start)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    told = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)]
    return 1e3 * median(float(text.split()[-1]) for text in told)


class Grid(NamedTuple):
    """Seconds of a whole grid, the largest certified gap, and accuracies of the best λ."""

    name: str
    ours: float
    theirs: float
    gap: float
    scores: tuple[float, float]


class Search(NamedTuple):
    """A grid of λ × folds."""

    data: Data
    lams: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]

    def run(self, tol: float, jobs: int | None = None) -> Any:
        """The table of hinge losses with intercept."""
        X, y, sigma = self.data
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
        weights, lam = cp.Parameter(len(y), nonneg=True), cp.Parameter(nonneg=True, value=1.0)
        f = theta(X) + b
        problem = ko.Problem(cp.Minimize(weights @ ko.losses.hinge(y, f) + lam * ko.sum_squares(theta)))

        def wrong(problem: ko.Problem, test: np.ndarray) -> float:
            return float(np.mean(np.sign(f.value[test]) != y[test]))

        return ko.cross_validate(problem, weights, lam, self.lams, cv=self.folds, loss=wrong, tol=tol, n_jobs=jobs)

    @property
    def name(self) -> str:
        N, p = self.data[0].shape
        return f"p = {p}, N = {N}, {len(self.folds)} × {len(self.lams)}"


def search(data: Data, folds: int, values: int) -> Search:
    cv = KFold(folds, shuffle=True, random_state=0)
    return Search(data, np.geomspace(10, 1e-3, values), list(cv.split(data[0])))


def grid(data: Data, folds: int, values: int, tol: float) -> Grid:
    """Hinge with intercept for all values of λ and folds, by both."""
    (X, y, sigma), asked = data, search(data, folds, values)
    ours, table = seconds(lambda: asked.run(tol))
    peer = GridSearchCV(
        SVC(gamma=1 / (2 * sigma**2), tol=1e-3), {"C": 1 / (2 * asked.lams)}, cv=asked.folds, refit=False
    )
    theirs, found = seconds(lambda: peer.fit(X, y))
    scores = 1 - float(np.nanmin(table["mean"])), float(found.best_score_)
    return Grid(asked.name, ours, theirs, float(np.max(table["gap"])), scores)


def in_processes(data: Data, folds: int, values: int, jobs: int) -> None:
    """A grid in one process, in threads with a problem each, and in several processes: at the first call, which starts
    them, and at the next; SVC's, too."""
    (X, y, sigma), asked = data, search(data, folds, values)
    peer = SVC(gamma=1 / (2 * sigma**2), tol=1e-3)
    Cs = {"C": 1 / (2 * asked.lams)}

    def theirs(n_jobs: int) -> float:
        found = GridSearchCV(peer, Cs, cv=asked.folds, refit=False, n_jobs=n_jobs)
        return seconds(lambda: found.fit(X, y))[0]

    one, found = seconds(lambda: asked.run(1e-3))
    svc_one = theirs(1)
    shares = [asked._replace(folds=asked.folds[k::jobs]) for k in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        threads, _ = seconds(lambda: list(pool.map(lambda share: share.run(1e-3), shares)))
    get_reusable_executor().shutdown()
    (first, _), (later, table) = seconds(lambda: asked.run(1e-3, jobs)), seconds(lambda: asked.run(1e-3, jobs))
    theirs(jobs)  # starts its processes
    times = " | ".join(f"{time:>8.1f} s" for time in (one, threads, first, later, svc_one, theirs(jobs)))
    print(f"| {asked.name:<26} | {times} | {np.max(np.abs(table.losses - found.losses)):>10.4f} |", flush=True)


def largest(N: int, p: int, folds: int, values: int, sample: int) -> None:
    """One grid as a whole, and the peer's on a sample of its fits, each with as many rows, for all of them."""
    data = in_many_dimensions(N, p)
    asked = search(data, folds, values)
    ours, table = seconds(lambda: asked.run(1e-3))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{asked.name}: {ours:.0f} s, certified gaps up to {np.max(table['gap']):.1e}, at most {memory:.1f} GiB, "
          f"best accuracy {1 - np.nanmin(table['mean']):.4f}", flush=True)  # fmt: skip
    (X, y, sigma), (train, test), each = data, asked.folds[0], []
    for lam in asked.lams[np.linspace(0, values - 1, sample).round().astype(int)]:
        peer = SVC(C=1 / (2 * lam), gamma=1 / (2 * sigma**2), tol=1e-3)
        taken, _ = seconds(lambda: peer.fit(X[train], y[train]).score(X[test], y[test]))  # noqa: B023 called at once
        each.append(taken)
        print(f"SVC, lam = {lam:.2g}: {taken:.1f} s", flush=True)
    whole = float(np.mean(each)) * folds * values
    print(f"SVC: {np.mean(each):.0f} s a fit, {whole:.0f} s for {folds * values}, ratio {whole / ours:.1f}")


def several_classes(N: int, loss: Callable[[Any, np.ndarray], Any]) -> ko.Problem:
    """Digits, N of 1797 rows and ten classes, with ten intercepts."""
    X, labels = load_digits(return_X_y=True)
    X, labels = X[:N] / 16, labels[:N]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=10), cp.Variable(10)
    scores = theta(X) + np.ones((N, 1)) @ cp.reshape(b, (1, 10), order="C")
    return ko.Problem(cp.Minimize(loss(scores, np.eye(10)[labels]) + 0.1 * ko.sum_squares(theta)))


def crammer_singer(U: Any, Y: np.ndarray) -> Any:
    return cp.sum(cp.max(U + 1 - Y, axis=1) - cp.sum(cp.multiply(Y, U), axis=1))


def multinomial(U: Any, Y: np.ndarray) -> Any:
    return cp.sum(cp.log_sum_exp(U, axis=1) - cp.sum(cp.multiply(Y, U), axis=1))


def with_norm(N: int, loss: Callable[[Any], Any], c: float) -> ko.Problem:
    """A loss of the margins, and c·‖θ‖."""
    X, y, sigma = in_four_dimensions(N)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    return ko.Problem(cp.Minimize(loss(-cp.multiply(y, theta(X))) + c * ko.norm(theta)))


def on_a_graph(N: int) -> ko.Problem:
    """Logistic losses, and uᵀLu with the Laplacian L of five nearest neighbours."""
    X, y, sigma = in_four_dimensions(N)
    near = kneighbors_graph(X, 5)
    L = laplacian(near.maximum(near.T))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    u = theta(X)
    losses = cp.sum(cp.logistic(-cp.multiply(y, u)))
    return ko.Problem(cp.Minimize(losses + 0.1 * cp.quad_form(u, cp.psd_wrap(L)) + LAM * ko.sum_squares(theta)))


def survival(N: int) -> ko.Problem:
    """Cox's partial likelihood with a nonlinear risk; a third of the rows is censored."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5))
    time, censored = rng.exponential(np.exp(-np.sin(X[:, 0]) - X[:, 1] / 2)), rng.exponential(2.0, size=N)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0))
    loss = ko.losses.cox(np.minimum(time, censored), time <= censored, theta(X))
    return ko.Problem(cp.Minimize(loss + LAM * ko.sum_squares(theta)))


def coupled(quick: bool) -> None:
    """The table of problems whose terms couple predictions, or whose norm is not squared."""
    few, many, c = (30, 40, 0.2) if quick else (1257, 2000, 0.01)  # with few rows, a smaller c leaves no minimum
    cases: dict[str, Callable[[], ko.Problem]] = {
        f"Crammer–Singer, digits, {few} × 10": lambda: several_classes(few, crammer_singer),
        f"multinomial, digits, {few} × 10": lambda: several_classes(few, multinomial),
        f"logistic + ‖θ‖, N = {many}": lambda: with_norm(many, lambda u: cp.sum(cp.logistic(u)), 1.0),
        f"log_sum_exp + ‖θ‖, N = {many + many // 3}": lambda: with_norm(many + many // 3, cp.log_sum_exp, c),
        f"logistic + uᵀLu, N = {many // 4}": lambda: on_a_graph(many // 4),
        f"logistic + uᵀLu, N = {many}": lambda: on_a_graph(many),
        f"Cox, N = {many}": lambda: survival(many),
    }
    print(f"\nCoupled terms and unsquared norms, tol = 1e-6; peer: Clarabel on the same B, {LIMIT:g} s at most\n")
    print("| problem                           |     ours |   Clarabel | solver         | certified gap |")
    print("|-----------------------------------|---------:|-----------:|----------------|--------------:|")
    for name, state in cases.items():
        ours, problem = seconds(lambda: solved(state()))  # noqa: B023 called at once
        gap, solver = problem.certificate.relative_gap, problem.solver_stats.solver_name
        peer = "—"  # on 12 570 predictions Clarabel takes minutes for its first factor, whatever the limit
        if "digits" not in name:
            theirs, other = seconds(lambda: solved(state(), solver="CLARABEL", time_limit=LIMIT))  # noqa: B023
            reached = "" if other is not None and other.status == "optimal" else "> "
            peer = f"{reached}{theirs:.1f} s"
        print(f"| {name:<33} | {ours:>6.2f} s | {peer:>10} | {solver:<14} | {gap:>13.1e} |")


def beside_survival_package(N: int) -> None:
    """Cox's loss by scikit-survival's Newton method on the columns of the same factor; takes over a minute."""
    linear_model, util = (optional_module(f"sksurv.{name}") for name in ("linear_model", "util"))
    if linear_model is None:
        print("\nscikit-survival is not installed: no row for it")
        return
    problem = survival(N)
    ours, _ = seconds(lambda: solved(problem))
    (factor,) = problem._factored.reduction.factors.values()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5))
    time, censored = rng.exponential(np.exp(-np.sin(X[:, 0]) - X[:, 1] / 2)), rng.exponential(2.0, size=N)
    target = util.Surv.from_arrays(time <= censored, np.minimum(time, censored))
    B = np.sqrt(factor.scale) * np.asarray(factor.B)
    model = linear_model.CoxPHSurvivalAnalysis(alpha=2 * LAM, tol=1e-9)
    theirs, _ = seconds(lambda: model.fit(B, target))
    loss = ko.losses.cox(np.minimum(time, censored), time <= censored, cp.Constant(B @ model.coef_))
    apart = float(loss.value + LAM * model.coef_ @ model.coef_) / float(problem.value) - 1
    print(f"\nCox, N = {N}: {ours:.2f} s, scikit-survival on B {theirs:.1f} s, objectives apart {apart:.0e}")


def optional_module(name: str) -> Any:
    """A module, None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def solved(problem: ko.Problem, **options: Any) -> Any:
    """The problem, solved; None where the solver gives up."""
    try:
        problem.solve(tol=1e-6, **options)
    except ko.errors.SolverError:
        return None
    return problem


class Warm(NamedTuple):
    """A statement with a parameter whose values are solved in turn, and how many of them are solved cold."""

    name: str
    problem: ko.Problem
    parameter: cp.Parameter
    values: np.ndarray
    factor_kept: bool
    sample: int
    folds: tuple[cp.Parameter, int] | None = None


def warm_cases(quick: bool) -> list[Warm]:
    rows, few = (60, 3) if quick else (3000, 30)
    rng = np.random.default_rng(0)
    lam, lam2, lam3 = (cp.Parameter(nonneg=True, name="lam") for _ in range(3))
    X, y, sigma = in_many_dimensions(rows, 100)
    theta, b, w = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable(), cp.Parameter(rows, nonneg=True)
    logistic = w @ ko.losses.log_loss(y, theta(X) + b) + lam * ko.sum_squares(theta)
    Z = np.sort(rng.uniform(0, 8, rows))[:, None]
    target = np.sin(Z[:, 0]) + (0.2 + 0.1 * Z[:, 0]) * rng.normal(size=rows)
    eta, c = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable()
    pinball = cp.sum(ko.losses.pinball(target, eta(Z) + c, 0.9)) + lam2 * ko.sum_squares(eta)
    count = 2 * rows // 3
    values = np.geomspace(10, 1e-3, few * 2 // 3)
    return [
        Warm(f"logistic, p = 100, N = {rows}, 5 × {len(values)}", ko.Problem(cp.Minimize(logistic)), lam, values,
             False, 4, (w, 5)),
        Warm(f"pinball .9, N = {rows}, {few} values", ko.Problem(cp.Minimize(pinball)), lam2,
             np.geomspace(10, 1e-2, few), False, 6),
        Warm(f"hinge, d = 4, N = {count}, {few * 5 // 3} values", hinge(in_four_dimensions(count), lam3), lam3,
             np.geomspace(10, 1e-2, few * 5 // 3), True, 10),
    ]  # fmt: skip


def warm(quick: bool) -> None:
    """The table of paths and grids beside cold solves, of which a sample stands for all."""
    print("\nPaths and grids beside cold solves of ours, tol = 1e-6; a sample of cold solves stands for all\n")
    print("| case                                | together | cold, each | cold / together | certified gap |")
    print("|-------------------------------------|---------:|-----------:|----------------:|--------------:|")
    for case in warm_cases(quick):
        fits, rows = len(case.values), None
        if case.folds is None:
            together, table = seconds(lambda: ko.path(case.problem, case.parameter, case.values))  # noqa: B023
        else:
            rows, folds = case.folds
            fits *= folds
            together, table = seconds(
                lambda: ko.cross_validate(case.problem, rows, case.parameter, case.values, cv=folds)  # noqa: B023
            )
        chosen = case.values[np.linspace(0, len(case.values) - 1, min(case.sample, len(case.values))).astype(int)]
        cold = []
        for value in chosen:
            case.parameter.value = value
            if rows is not None:
                rows.value = (np.arange(rows.size) % 5 > 0).astype(float)
            problem = case.problem if case.factor_kept else ko.Problem(case.problem.objective)
            cold.append(seconds(lambda: problem.solve(warm_start=False))[0])  # noqa: B023 called at once
        each = float(np.mean(cold))
        print(
            f"| {case.name:<35} | {together:>6.1f} s | {each:>8.2f} s | {fits * each / together:>15.1f} "
            f"| {np.max(table['gap']):>13.1e} |"
        )


def one_against_the_rest(N: int, runs: int) -> None:
    """Ten hinge problems of one kernel matrix, by both."""
    X, labels = load_digits(return_X_y=True)
    X, labels = X[:N] / 16, labels[:N]
    ours, theirs, scores = [], [], (0.0, 0.0)
    for _ in range(runs):
        mine = ko.estimators.KernelClassifier(loss="hinge", gamma=0.1, alpha=0.5)
        peer = OneVsRestClassifier(SVC(C=1.0, gamma=0.1, tol=1e-3))
        ours.append(seconds(lambda: mine.fit(X, labels))[0])  # noqa: B023 called at once
        theirs.append(seconds(lambda: peer.fit(X, labels))[0])  # noqa: B023 called at once
        scores = mine.score(X, labels), peer.score(X, labels)
    one, other = median(ours), median(theirs)
    print(f"\nHinge, one against the rest, digits, {N} × 10: {one:.2f} s, OneVsRestClassifier(SVC) {other:.2f} s, "
          f"ratio {one / other:.1f}; accuracies on the same rows {scores[0]:.4f} {scores[1]:.4f}")  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--large", action="store_true", help="grids that take minutes too")
    parser.add_argument("--largest", action="store_true", help="only a grid of 500 fits of 10 000 rows: half an hour")
    parser.add_argument("--jobs", type=int, help="only grids, whose folds are shared by so many processes")
    asked = parser.parse_args(arguments)
    if asked.largest:
        largest(*((60, 10, 2, 3, 2) if asked.quick else (10_000, 1000, 10, 50, 5)))
        return
    if asked.jobs:
        print(f"Grids of hinge losses, tol = 1e-3, in 1 and {asked.jobs} processes; peer: GridSearchCV(SVC)\n")
        names = ["ours", "threads", "first call", "later call", "SVC", "SVC, jobs", "difference"]
        print(f"| {'grid':<26} | {' | '.join(f'{name:>10}' for name in names)} |")
        print(f"|{'-' * 28}|{'|'.join(['-' * 11 + ':'] * len(names))}|")
        small = [(in_many_dimensions(60, 10), 2, 3)]
        large = [(in_many_dimensions(1000, 50), 5, 20), (in_four_dimensions(1000), 5, 20),
                 (in_many_dimensions(3000, 100), 5, 20), (in_many_dimensions(2000, 100), 10, 50)]  # fmt: skip
        for data, folds, values in small if asked.quick else large:
            in_processes(data, folds, values, asked.jobs)
        return
    sizes, runs = ((30, 60), 1) if asked.quick else ((50, 200, 455, 1000, 2000), 9)
    print(f"Fits, d = 4, certificate included, {runs} runs with new data each; peers: SVC, KernelRidge\n")
    names = ["first", "new data", "same data", "new λ", "new labels", "peer", "ours/peer"]
    print(f"| {'problem':<18} |    N | {' | '.join(f'{name:>10}' for name in names)} | certified gap |")
    print(f"|{'-' * 20}|-----:|{'|'.join(['-' * 11 + ':'] * len(names))}|--------------:|")
    for name, tol in (("hinge", 1e-6), ("hinge", 1e-3), ("ridge", 1e-6)):
        for rows in (*sizes, 5000) if asked.large and tol < 1e-3 else sizes:
            f = fits(name, rows, tol, runs if rows < 5000 else 3)
            times = " | ".join(f"{ms:>7.1f} ms" for ms in f[2:7])
            print(
                f"| {f.name:<18} | {f.rows:>4} | {times} | {f.theirs:>7.2f} ms | {f.ours / f.theirs:>10.1f} "
                f"| {f.gap:>13.1e} |"
            )
    for name, rows in (("hinge", sizes[0]), ("ridge", sizes[0])):
        found = first_of_a_process(name, rows, 1 if asked.quick else 5)
        print(f"\nFirst fit of a process after the import, {name}, N = {rows}: {found:.0f} ms")
    print("\nGrids of hinge losses, tol = 1e-3; peer: GridSearchCV(SVC), tol = 1e-3\n")
    print("| grid                          |     ours |      SVC | ours/SVC | certified gap | accuracies    |")
    print("|-------------------------------|---------:|---------:|---------:|--------------:|---------------|")
    cases: list[tuple[Data, int, int]] = [(in_many_dimensions(60, 10), 2, 3)]
    if not asked.quick:
        few = in_many_dimensions(1000, 10)
        cases = [(in_many_dimensions(1000, 50), 5, 20), (few, 5, 20), (in_four_dimensions(1000), 5, 20)]
    if asked.large:
        cases += [(in_many_dimensions(3000, 100), 5, 20), (in_four_dimensions(3000), 5, 20)]
        cases += [(in_many_dimensions(2000, 100), 10, 50)]
        cases += [(in_few_dimensions(1000, p), 5, 20) for p in (1, 2, 3, 6, 8)]
    for data, folds, values in cases:
        g = grid(data, folds, values, 1e-3)
        scores = "{:.4f} {:.4f}".format(*g.scores)
        print(
            f"| {g.name:<29} | {g.ours:>6.1f} s | {g.theirs:>6.1f} s | {g.ours / g.theirs:>8.2f} | {g.gap:>13.1e} "
            f"| {scores} |"
        )
    coupled(asked.quick)
    if asked.large or asked.quick:
        beside_survival_package(40 if asked.quick else 2000)
    one_against_the_rest(60 if asked.quick else 1257, 1 if asked.quick else 3)
    warm(asked.quick)


if __name__ == "__main__":
    main()
