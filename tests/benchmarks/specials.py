"""Rows that are not one solve against one peer: paths of λ, seconds beside a published figure, one Newton iteration,
and how time grows with N."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from math import isnan, nan
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from measuring import FAILURES, Ours, Row, Target, is_patient, judged, solve, told
from peers import Answer, Statement, installed, newton_step, ridge
from solver_cases import Sizes, classify, engel_quantiles, regress

import kernelopt as ko

# For 220 points, with quantiles that rise and do not cross (Sangnier, Fercoq and d'Alché-Buc, Joint quantile regression
# in vector-valued RKHSs, NIPS 2016; Aubin-Frankowski and Szabó, Hard shape-constrained kernel machines, NeurIPS 2020).
PUBLISHED = 600.0  # seconds, on another machine: printed beside ours, and no part of the target
SOON = 5.0  # seconds
HINGE_VALUES = 50


class Special(NamedTuple):
    number: str
    name: str
    peer: str
    target: str
    run: Callable[[int], dict[str, Any]]  # what it fills in of a row
    needs: str = "sklearn"

    def row(self, runs: int) -> Row:
        """The row, or why there is none."""
        empty = Row(self.number, self.name, self.peer, f"{self.needs} not installed", self.target)
        if not installed(self.needs):
            return empty
        try:
            return empty._replace(**self.run(runs))
        except FAILURES as error:
            return empty._replace(ratio=told(error))


def specials(z: Sizes) -> list[Special]:
    N, r = z.newton
    ridges = f"{z.lambdas} KernelRidge fits"
    return [
        Special(
            "10", f"ridge, leave-one-out for {z.lambdas} λ, N = {z.medium}", ridges, str(RIDGE_PATH),
            partial(ridge_values, z.medium, z.lambdas, leave_one_out),
        ),
        Special(
            "10", f"ridge path, {z.lambdas} λ, N = {z.medium}, each certified", ridges, str(RIDGE_PATH),
            partial(ridge_values, z.medium, z.lambdas, sweep),
        ),
        Special(
            "11", f"hinge + b path, N = {z.path}, {HINGE_VALUES} λ, gap 1e-6", "cold solves of ours",
            str(HINGE_PATH), partial(hinge_path, z.path, cold_solves),
        ),
        Special("11", "the same", "the factor kept", str(HINGE_PATH), partial(hinge_path, z.path, cold_solvers)),
        Special(
            "14", "engel, 5 quantiles, rising, in order, gap 1e-6", f"published, 220 points: {PUBLISHED:g} s",
            f"ours ≤ {SOON:g} s", joint_quantiles, "statsmodels",
        ),
        Special(
            "15", f"logistic + b, N = {N}, r = {r}, one iteration", "bare dsyrk + dpotrf",
            str(NEWTON), partial(newton_iteration, N, r),
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------- paths

RIDGE_PATH, HINGE_PATH = Target(50.0, faster=True), Target(5.0, faster=True)


class Swept(NamedTuple):
    """One run along λ: seconds without those of certificates, these, and the table."""

    seconds: float
    proof: float
    path: Any


def with_parameter(statement: Statement) -> tuple[ko.Problem, cp.Parameter]:
    """The problem with λ as a parameter."""
    lam = cp.Parameter(nonneg=True, name="lam")
    return replace(statement, lam=lam).problem(), lam


def sweep(statement: Statement, values: Any) -> Swept:
    """State the problem and go along λ with ko.path."""
    gc.collect()
    start = perf_counter()
    problem, lam = with_parameter(statement)
    path = ko.path(problem, lam, values)
    seconds = perf_counter() - start
    proof = sum(c.seconds for c in path.certificates if c is not None)
    return Swept(seconds - proof, proof, path)


def leave_one_out(statement: Statement, values: Any) -> Swept:
    """Solve for the least λ, which needs the highest rank; leave out each row for every λ; solve for the best λ."""
    gc.collect()
    start = perf_counter()
    problem, lam = with_parameter(statement)
    lam.value = min(values)
    problem.solve()
    proof, errors = problem.certificate.seconds, []
    for lam.value in values:
        errors.append(float(np.mean(ko.leave_one_out(problem) ** 2)))
    lam.value = values[int(np.argmin(errors))]
    problem.solve()
    proof += problem.certificate.seconds
    path = {"status": [problem.status], "gap": [problem.certificate.relative_gap]}
    return Swept(perf_counter() - start - proof, proof, path)


def _along(swept: list[Swept], theirs: list[Answer], target: Target) -> dict[str, Any]:
    """The row of a path."""
    ratio = target.ratio(swept, theirs)
    certified = all(set(s.path["status"]) == {"optimal"} for s in swept)
    return {
        "ratio": ratio,
        "verdict": ("met" if target.is_met(ratio) else "missed") if certified else "not certified",
        "part": target.part,
        "ours": median(s.seconds for s in swept),
        "proof": median(s.proof for s in swept),
        "theirs": median(t.seconds for t in theirs),
        "gap": max(float(np.max(s.path["gap"])) for s in swept),
        "runs": f"{len(swept)}/{len(theirs)}",
    }


def ridge_values(N: int, count: int, way: Callable[[Statement, Any], Swept], runs: int) -> dict[str, Any]:
    """All λ by us, and KernelRidge λ by λ, which leaves nothing out and certifies nothing."""
    statement, values = regress(N, 1.0, ko.losses.squared_error, intercept=False), np.geomspace(1e2, 1e-3, count)
    swept: list[Swept] = []
    for _ in range(runs):
        if is_patient(swept):
            swept.append(way(statement, values))
    return _along(swept, [kernel_ridges(N, count)], RIDGE_PATH)


@cache
def kernel_ridges(N: int, count: int) -> Answer:
    statement = regress(N, 1.0, ko.losses.squared_error, intercept=False)
    return Answer(sum(ridge(replace(statement, lam=lam), None).seconds for lam in np.geomspace(1e2, 1e-3, count)))


def hinge_path(N: int, cold: Callable[[Statement, Any], tuple[float, float]], runs: int) -> dict[str, Any]:
    """From λ to λ, and each λ by itself."""
    statement, values = classify(N, 1.0), np.geomspace(1e1, 1e-3, HINGE_VALUES)
    swept: list[Swept] = []
    alone: list[Answer] = []
    for _ in range(runs):
        if is_patient(swept):
            swept.append(sweep(statement, values))
        if is_patient(alone):
            seconds, gap = cold(statement, values)
            alone.append(Answer(seconds))
    return _along(swept, alone, HINGE_PATH) | {"their_gap": gap}


def cold_solves(statement: Statement, values: Any) -> tuple[float, float]:
    """Seconds without certificates, and the largest certified gap: nothing is kept from λ to λ."""
    return _one_by_one(values, lambda: with_parameter(statement))


def cold_solvers(statement: Statement, values: Any) -> tuple[float, float]:
    """The same, with the factor and what is known of the problem kept: only the solver starts anew."""
    known = with_parameter(statement)
    return _one_by_one(values, lambda: known)


def _one_by_one(values: Any, stated: Callable[[], tuple[ko.Problem, cp.Parameter]]) -> tuple[float, float]:
    gc.collect()
    proof, gap = 0.0, 0.0
    start = perf_counter()
    for value in values:
        problem, lam = stated()
        lam.value = value
        problem.solve(warm_start=False)
        proof += problem.certificate.seconds
        gap = max(gap, problem.certificate.relative_gap)
    return perf_counter() - start - proof, gap


# ---------------------------------------------------------------- seconds

NEWTON = Target(1.5)


def joint_quantiles(runs: int) -> dict[str, Any]:
    """Everything, the certificate too."""
    ours = [solve(engel_quantiles, {"tol": 1e-6}) for _ in range(runs)]
    seconds = median(o.seconds + o.proof for o in ours)
    found = _ours(ours) | {"ratio": seconds, "verdict": judged(seconds <= SOON, *ours), "part": "all-in + proof"}
    return found | {"theirs": PUBLISHED, "runs": f"{runs}/0"}


def newton_iteration(N: int, rank: int, runs: int) -> dict[str, Any]:
    """Seconds of an iteration as the solver reports them; with its rank the certified gap is limited too."""
    statement = classify(N, 0.5, ko.losses.log_loss)
    B = np.asfortranarray(np.random.default_rng(0).normal(size=(N, rank)))
    ours: list[Ours] = []
    bare: list[float] = []
    for _ in range(runs):
        if is_patient(ours):
            ours.append(solve(statement.problem, {"max_rank": rank}))
        bare.append(newton_step(B))
    seconds = median(o.per_iteration for o in ours)
    ratio = "not reported" if isnan(seconds) else seconds / median(bare)
    verdict = "" if isnan(seconds) else "met" if NEWTON.is_met(seconds / median(bare)) else "missed"
    return _ours(ours) | {
        "ratio": ratio, "verdict": verdict, "part": "one iteration", "ours": seconds, "theirs": median(bare),
        "runs": f"{len(ours)}/{len(bare)}",
    }  # fmt: skip


def _ours(ours: list[Ours]) -> dict[str, Any]:
    """What a row says of our own solves."""
    return {
        "ours": median(o.seconds for o in ours), "proof": median(o.proof for o in ours),
        "gap": max(o.gap for o in ours), "solver": ours[-1].name,
    }  # fmt: skip


# ---------------------------------------------------------------- growth


class Growth(NamedTuple):
    """Seconds and certified gaps by N (nan where a solve failed), and the exponent of a power law of seconds."""

    name: str
    seconds: dict[int, float]
    gaps: dict[int, float]
    exponent: float
    failed: dict[int, str]


def growth(z: Sizes, name: str, loss: Callable[..., Any], runs: int) -> Growth:
    """All-in seconds with a factor of limited rank, for one N after the other, `runs` times."""
    found: dict[int, list[Ours]] = {N: [] for N in z.growth}
    failed: dict[int, str] = {}
    for _ in range(runs):
        for N, solves in found.items():
            if N not in failed and is_patient(solves):
                try:
                    solves.append(solve(classify(N, 0.5, loss).problem, {"max_rank": z.max_rank}))
                except FAILURES as error:
                    failed[N] = told(error)
    seconds = {N: median(o.seconds for o in solves) if solves else nan for N, solves in found.items()}
    gaps = {N: max((o.gap for o in solves), default=nan) for N, solves in found.items()}
    return Growth(name, seconds, gaps, exponent(seconds), failed)


def exponent(seconds: dict[int, float]) -> float:
    """p of seconds ∝ Nᵖ by least squares on logarithms; nan unless every N was solved."""
    if any(isnan(s) for s in seconds.values()):
        return nan
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])
