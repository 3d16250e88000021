"""The lines of `explain()`: the statement, the rules, rows and factors of each θ, and the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, isinf
from textwrap import wrap
from typing import Any

from kernelopt.compiler import representer
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.rules import Inspection
from kernelopt.language.text import Notation, describe
from kernelopt.results.solution import Solution, SolverStats, Status, remedy_of
from kernelopt.support.html import table

LABEL, WIDTH = 13, 106  # characters: of the column of labels, and of the text beside it
# Feature matrices of one θ whose rows are listed. Of more, these are the first five and the last.
MATRICES = 6
Lines = list[tuple[str, str]]
SPECTRAL = [("", "of the spectral form: maximize φ(‖MAθ‖), φ nondecreasing, subject to ‖θ‖ ≤ R and GᵀAθ = 0")]
NOT_FACTORED = [("factor", "not yet: solve() factors Q")]
NO_INTERIOR = (
    "Where inequalities leave no room, as f <= c and f >= c or norm(f - c) <= 0, state the equation, f == c; where "
    "equations nearly contradict each other, as at points that nearly coincide, state a tolerance as large as they "
    "differ, abs(f - c) <= e."
)
NOT_PROVEN_INFEASIBLE = f"that no θ meets the constraints, which could not be proved. {NO_INTERIOR}"
NOT_PROVEN_UNBOUNDED = (
    "that the objective has no lower bound, which could not be proved. Penalize ko.norm(theta), or bound it, and bound "
    "variables that the objective does not."
)


@dataclass(frozen=True)
class Explanation:
    """The stated problem, the rules that allow its reduction, and the solved one; prints as a table."""

    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(f"{label:<{LABEL}}{text}".rstrip() for label, text in self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(self.lines, left=True)


def stated(objective: Any, constraints: Iterable[Any], named: Notation) -> Lines:
    lines = _wrapped("stated", describe(objective, None, named))
    for number, constraint in enumerate(constraints):
        lines += _wrapped("" if number else "  subject to", describe(constraint, None, named))
    return lines


def parameters(values: Iterable[Any], named: Notation) -> Lines:
    """Scalar parameters and their values."""
    scalars = [p for p in values if p.size == 1]
    told = ", ".join(f"{named.leaf(p)} = " + ("?" if p.value is None else f"{float(p.value):g}") for p in scalars)
    return _wrapped("  with", told) if scalars else []


def rules(found: Inspection) -> Lines:
    if found.violations:
        lines = [("rules", f"the representer theorem does not apply, in {_places(len(found.violations))}:")]
        return lines + [("", line) for v in found.violations for line in str(v).splitlines()]
    uses = f"Aθ in {_places(len(found.predictions))}"
    norms = f"‖θ‖ in {_places(len(found.norms))}, nondecreasing" if found.norms else "no norm of θ: its length is open"
    lines = [("rules", f"{uses} · {norms} · the representer theorem applies")]
    return lines + [("", f"not convex: {line}") for line in found.not_dcp]


def rows(form: CanonicalForm, named: Notation) -> Lines:
    return [("" if i else "rows", _rows(link, named)) for i, link in enumerate(form.predictions)]


def factors(reduction: Reduction, named: Notation) -> Lines:
    lines: Lines = []
    told: set[int] = set()
    for link in reduction.form.predictions:
        factor = reduction.factors[link.theta]
        restricts = " (restricts θ)" if factor.is_restriction else ""
        shared = ", shared" if id(factor) in told else ""
        told.add(id(factor))
        seconds = f"{factor.kernel_seconds + factor.factor_seconds:.2g} s"
        why = f" ({factor.why})" if factor.why else ""
        text = f"{named.theta(link.theta)}: "
        if factor.is_whole:
            text += f"none, solved with Q itself, since B would take longer than Q{why}, "
            text += f"{len(factor.B)} × {factor.rank}, {seconds}{shared}"
        else:
            text += f"Q = BBᵀ by {factor.method}{why}, B {len(factor.B)} × {factor.rank}, "
            text += f"trace residual {factor.residual:.1e}{restricts}, {seconds}{shared}"
        lines.append(("" if lines else "factor", text))
    variables = [f"w_{named.theta(link.theta)}" for link in reduction.form.predictions]
    variables += [named.leaf(reduction.form.users.get(y.id, y)) for y in reduction.form.y]
    constraints = count(representer.count_constraints(reduction), "constraint")
    return [*lines, ("reduced", f"{reduction.size} variables ({', '.join(variables)}), {constraints}")]


def systems(reduction: Reduction, named: Notation) -> Lines:
    """Where solvers in kernel space take entries of BBᵀ from, unless they solve with Q itself."""
    factors = {link.theta: reduction.factors[link.theta] for link in reduction.form.predictions}
    told = [f"{named.theta(t)}: entries of BBᵀ {f.matrix.entries()}" for t, f in factors.items() if not f.is_whole]
    return [("" if i else "systems", line) for i, line in enumerate(told)]


def answer(solution: Solution, named: Notation, is_restriction: bool = False) -> Lines:
    value = "" if solution.value is None else f", value {solution.value:.7g}"
    lines = [("answer", f"{solution.status}{value}")]
    for theta, f in solution.functions.items():
        kind = "" if theta.outputs is None else "_fro"
        lines.append(("", f"‖{named.theta(theta)}‖{kind} = {f.norm:.6g} on {len(f.pivots)} pivots"))
    if solution.certificate is not None:
        lines += _wrapped("certificate", str(solution.certificate))
    return lines + ([("", told)] if (told := remedy(solution, is_restriction)) else [])


def solver(chosen: str | None, stats: SolverStats | None) -> Lines:
    """The solver of the answer, and the others that were tried before it, with what they left open."""
    before: dict[str, str] = {}
    for attempt in stats.attempts if stats is not None else ():
        if attempt.solver != chosen:
            gap = f"gap {attempt.gap:.0e}" if isfinite(attempt.gap) else "no bound"
            before[attempt.solver] = f"{attempt.solver} ({attempt.claimed}, {gap})"
    after = f", after {', '.join(before.values())}" if before else ""
    return [("solver", (chosen or "none") + after)]


def seconds(stats: SolverStats | None) -> Lines:
    """The time of each phase of the last solve."""
    if stats is None or not stats.seconds:
        return []
    return [("seconds", ", ".join(f"{name} {spent:.2g}" for name, spent in stats.seconds.items()))]


def remedy(solution: Solution, is_restriction: bool) -> str:
    """What to do about the status: what helps against the reason that is known, else what may help."""
    stats, status = solution.solver_stats, solution.status
    if status == Status.OPTIMAL_INACCURATE and solution.certificate is not None:
        return _of_open(solution.certificate) or status.remedy
    if status != Status.USER_LIMIT or stats is None:
        return remedy_of(status, solution.certificate)
    if stats.out_of_time:
        return "The time limit was reached before the gap closed: raise time_limit, or tol."
    if any(attempt.claimed == Status.USER_LIMIT for attempt in stats.attempts):
        name = stats.solver_name
        return f"{name} reached a limit of its own, such as its number of iterations: raise it, or leave `solver` out."
    for claim, told in ((Status.INFEASIBLE, NOT_PROVEN_INFEASIBLE), (Status.UNBOUNDED, NOT_PROVEN_UNBOUNDED)):
        names = list(dict.fromkeys(attempt.solver for attempt in stats.attempts if attempt.claimed == claim))
        if names and solution.value is None:
            finer = " Where max_rank restricts θ, raise it." if claim == Status.INFEASIBLE and is_restriction else ""
            return f"{', '.join(names)} {'say' if len(names) > 1 else 'says'} {told}{finer}"
    return status.remedy


def _of_open(certificate: Any) -> str:
    """What helps against an open gap, where the certificate knows the reason."""
    if not certificate.is_feasible:
        return f"Constraints hold to {certificate.violation:.1e} only. {NO_INTERIOR}"
    if any("‖" not in assumption for assumption in certificate.assumptions):
        return "The bound rests on assumed sizes of variables: state bounds of those that the certificate names."
    if certificate.rounding > 0.5 * certificate.absolute_gap:
        return (
            "Most of the gap is an allowance for rounding, which no solver reduces: raise tol, subtract the mean of "
            "targets, or use a larger penalty."
        )
    return ""


def _wrapped(label: str, text: str) -> Lines:
    """A long text on several lines, broken at blanks."""
    head, *rest = wrap(text, WIDTH, break_long_words=False)
    return [(label, head), *(("", f"    {line}") for line in rest)]


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _places(number: int) -> str:
    return count(number, "place")


def _rows(link: PredictionLink, named: Notation) -> str:
    name = named.theta(link.theta)
    if link.u is None:
        return f"{name}: no predictions"
    n = link.u.shape[0]
    p = link.rows.features
    merged = "" if len(link.rows) == n else f", {len(link.rows)} distinct"
    features = "∞" if isinf(p) else f"{p:.0f}"
    return f"{name}: N = {n} rows{_matrices(link, named)}{merged}, p = {features} features, {link.theta.kernel!r}"


def _matrices(link: PredictionLink, named: Notation) -> str:
    """The number of rows of each feature matrix, where θ has several."""
    if len(link.blocks) == 1:
        return ""
    told = [f"{named.matrix(link.theta, key)}: {rows.stop - rows.start}" for key, rows in link.blocks]
    if len(told) > MATRICES:
        told[MATRICES - 1 : -1] = ["…"]
    return f" ({', '.join(told)})"
