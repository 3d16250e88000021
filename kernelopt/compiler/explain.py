"""The reduction, told step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from kernelopt.compiler.form import CanonicalForm, PredictionLink
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.rules import Inspection
from kernelopt.compiler.text import describe
from kernelopt.solution import Solution

WIDTH = 13


@dataclass(frozen=True)
class Explanation:
    """What was stated, why it may be reduced, and what was solved; prints as a table."""

    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(f"{label:<{WIDTH}}{text}".rstrip() for label, text in self.lines)

    __repr__ = __str__


def stated(objective: object, constraints: tuple[object, ...]) -> list[tuple[str, str]]:
    lines = [("stated", describe(objective))]
    lines += [("  subject to" if i == 0 else "", describe(c)) for i, c in enumerate(constraints)]
    return lines


def rules(found: Inspection) -> list[tuple[str, str]]:
    if found.violations:
        lines = [("rules", f"the representer theorem does not apply, in {_places(len(found.violations))}:")]
        return lines + [("", line) for v in found.violations for line in str(v).splitlines()]
    uses = f"Aθ in {_places(len(found.predictions))}"
    uses += f" · ‖θ‖ in {_places(len(found.norms))}, nondecreasing" if found.norms else " · no norm of θ"
    lines = [("rules", f"{uses} · the representer theorem applies")]
    return lines + [("", f"not convex: {line}") for line in found.not_dcp]


def rows(form: CanonicalForm) -> list[tuple[str, str]]:
    return [("rows" if i == 0 else "", _rows(link)) for i, link in enumerate(form.predictions)]


def factors(reduction: Reduction) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    told: set[int] = set()
    for link in reduction.form.predictions:
        factor = reduction.factors[link.theta]
        shared = ", shared" if id(factor) in told else ""
        told.add(id(factor))
        seconds = f"{factor.kernel_seconds + factor.factor_seconds:.2g} s"
        lines.append(
            (
                "" if lines else "factor",
                f"{link.name}: Q = BBᵀ by {factor.method}, B {len(factor.B)} × {factor.rank}, "
                f"trace residual {factor.residual:.1e}, {seconds}{shared}",
            )
        )
    v = ", ".join([f"w_{link.name}" for link in reduction.form.predictions] + [y.name() for y in reduction.form.y])
    return [
        *lines,
        ("reduced", f"{reduction.size} variables ({v}), {_count(len(reduction.problem.constraints), 'constraint')}"),
    ]


def answer(solution: Solution) -> list[tuple[str, str]]:
    value = "" if solution.value is None else f", value {solution.value:.7g}"
    lines = [("answer", f"{solution.status}{value}")]
    for theta, f in solution.functions.items():
        lines.append(("", f"‖{theta.name}‖ = {f.norm:.6g} on {len(f.pivots)} pivots"))
    return lines + ([("", solution.status.remedy)] if solution.status.remedy else [])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _places(number: int) -> str:
    return _count(number, "place")


def _rows(link: PredictionLink) -> str:
    if link.u is None:
        return f"{link.name}: no predictions"
    n = link.u.shape[0]
    p = link.theta.kernel._n_features(link.rows.points) if len(link.rows.points) else float("inf")
    merged = "" if len(link.rows) == n else f", {len(link.rows)} distinct"
    features = "∞" if isinf(p) else f"{p:.0f}"
    return f"{link.name}: N = {n} rows{merged}, p = {features} features, {link.theta.kernel!r}"
