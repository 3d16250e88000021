"""Both problems function by function: where they differ, and in which term of the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.equivalence import pointwise
from kernelopt.equivalence.meanings import Meaning
from kernelopt.equivalence.pointwise import BEYOND, place
from kernelopt.equivalence.reduction_report import BothAnswers, PointValue, numbers, plural
from kernelopt.language import text
from kernelopt.language.functions import Function
from kernelopt.problem import Problem
from kernelopt.solvers.culprits import summands

LEAST = 1e-3  # of the median size of the terms at all functions
SMALL = 1e-3  # of the size of the data: answers up to that count as 0 in random steps
FAR, BISECTIONS = 2, 30  # the far functions, and steps towards them from the reduced answer
CLEARLY = 0.1  # of a violation: one that counts as none beside it
FEWEST = 3  # functions that show an affine relation between two objectives
ROUNDED = 1e-8  # of the sum of all terms: a term up to that is printed as 0
TINY = 1e-12  # terms up to that are 0


@dataclass(frozen=True)
class AtFunction:
    """Both problems at one function; `least` is the least size of terms, so that rounding of data counts as none."""

    functions: Mapping[Any, Function]
    stated: PointValue
    reduced: PointValue
    least: float = 0.0

    def differs(self, tol: float) -> bool:
        """Whether the objectives differ by more than tol of their terms, or one problem alone accepts the function."""
        return self.unequal(tol) or self.one_accepts

    def unequal(self, tol: float) -> bool:
        s, r = self.stated, self.reduced
        if not isfinite(s.value) or not isfinite(r.value):
            return False
        return abs(s.value - r.value) > tol * self.size

    @property
    def size(self) -> float:
        """The larger sum of the absolute values of the terms."""
        return max(sum(map(abs, self.stated.terms)), sum(map(abs, self.reduced.terms)), self.least) or 1.0

    @property
    def accepted(self) -> bool | None:
        """Whether both problems accept the function; None where one does."""
        first, second = (side.violation <= FEASIBLE for side in (self.stated, self.reduced))
        return first if first == second else None

    @property
    def one_accepts(self) -> bool:
        """Whether one problem's constraints hold and those of the other do not.

        Coefficients that are huge and cancel make any violation small beside them, so that violations in the
        constraints' own units have to differ, too.
        """
        low, high = sorted([self.stated, self.reduced], key=lambda side: side.violation)
        return low.violation <= FEASIBLE and high.violation > BEYOND and low.amount <= CLEARLY * high.amount


class _TermNames:
    """The terms of both objectives as text."""

    def __init__(self, stated: Problem, reduced: cp.Problem) -> None:
        of_stated, of_reduced = stated._notation(), text.notation([], [reduced.objective, *reduced.constraints])
        self.stated = [text.describe(t, pointwise.SHORT, of_stated) for t in summands(stated.objective)]
        self.reduced = [text.describe(t, pointwise.SHORT, of_reduced) for t in summands(reduced.objective)]


def pairs(stated: Problem, reduced: cp.Problem, meaning: Meaning, found: BothAnswers) -> list[AtFunction]:
    """Both problems at the reduced answer, at θ̂ and at random functions of the span, where both are known.

    Where both accept the reduced answer and refuse a far function, one between them that one of the problems accepts is
    searched for, which is there if the sets of feasible functions differ along that line.
    """
    answer, data = found.reduced_values or {}, stated._outer(as_stated=True)
    least = SMALL * data.data_unit if data is not None and data.data_unit > 0 else 1.0
    length = max(meaning.size(answer), least)
    points = pointwise.random_values(meaning.covered(), answer, meaning.effect, length)
    if found.functions is not None:
        points.insert(0, meaning.inverse(found.functions, found.values))
    if answer:
        points.insert(0, {v: answer[v] for v in meaning.covered()})
    known = [(values, _at(stated, reduced, meaning, values)) for values in points]
    made = [pair for _, pair in known if pair is not None]
    if answer and not any(pair.one_accepts for pair in made):
        for end in known[-FAR:]:
            made += _between(stated, reduced, meaning, known[0], end)
    sizes = LEAST * float(np.median([pair.size for pair in made])) if made else 0.0
    return [replace(pair, least=sizes) for pair in made]


def _at(stated: Problem, reduced: cp.Problem, meaning: Meaning, values: Mapping[Any, Any]) -> AtFunction | None:
    """Both problems at the function that values of the reduced variables mean; None where one is not known."""
    place(values)
    functions, known = meaning.functions(), meaning.values()
    r = pointwise.reduced_at(reduced, values)
    s = None if r is None else pointwise.stated_at(stated, functions, known)
    return None if r is None or s is None else AtFunction(functions, s, r)


def _between(
    stated: Problem, reduced: cp.Problem, meaning: Meaning, near: tuple[Any, Any], far: tuple[Any, Any]
) -> list[AtFunction]:
    """A function between two that one problem alone accepts, by bisection; none where there is none to BISECTIONS."""
    (x, inside), (z, outside) = near, far
    if inside is None or outside is None or inside.accepted is not True or outside.accepted is not False:
        return []
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        t = (low + high) / 2
        pair = _at(stated, reduced, meaning, {v: (1 - t) * x[v] + t * z[v] for v in x})
        if pair is None or pair.accepted is None:
            return [] if pair is None or not pair.one_accepts else [pair]
        low, high = (t, high) if pair.accepted else (low, t)
    return []


def told(stated: Problem, reduced: cp.Problem, found: Sequence[AtFunction], tol: float, known: str) -> list[str]:
    """The terms, and the constraint, in which the problems differ, without a violation that is known."""
    lines = []
    both = [p for p in found if isfinite(p.stated.value) and isfinite(p.reduced.value)]
    unequal = [i for i, p in enumerate(both) if p.unequal(tol)]
    if unequal:
        same_constraints = not any(p.one_accepts for p in found)
        lines.append(_of_terms(both, unequal[0], _TermNames(stated, reduced), tol, same_constraints))
    for p in [p for p in found if p.one_accepts][:1]:
        refuses, at = ("stated", p.stated) if p.stated.violation > p.reduced.violation else ("reduced", p.reduced)
        accepts = "reduced" if refuses == "stated" else "stated"
        what = f"`{at.broken}` by {at.amount:.3g}" if at.broken else ""
        if not what or what not in known:
            colon = ": " if what else ""
            lines.append(f"A function that the {accepts} problem accepts violates the {refuses} one{colon}{what}.")
    return lines


def _of_terms(both: Sequence[AtFunction], i: int, named: _TermNames, tol: float, same_constraints: bool) -> str:
    """The relation of the two objectives at several functions, and the terms that occur in one of them only."""
    relation = _affine(both, tol)
    if relation is not None:
        a, c = relation
        told = "the stated one" if np.isclose(a, 1.0, rtol=tol) else f"{a:.6g} × the stated one"
        told += f" {'+' if c > 0 else '−'} {abs(c):.6g}" if c else ""
        answers = ": the answers are the same" if same_constraints else ""
        return f"At {plural(len(both), 'function')} the reduced objective is {told}{answers}."
    there = both[i]
    s, r = _unmatched(both, tol)
    of_stated = _listed(named.stated, s, there.stated.terms, there.size)
    of_reduced = _listed(named.reduced, r, there.reduced.terms, there.size)
    left, right = numbers(there.stated.value, there.reduced.value)
    head = f"At one function the stated objective is {left} and the reduced one {right}"
    if not s or not r:
        lacks = "the reduced" if s else "the stated"
        return f"{head}; {lacks} one has no term for {of_stated or of_reduced}." if s or r else f"{head}."
    return f"{head}. They differ in: stated {of_stated}; reduced {of_reduced}."


def _affine(both: Sequence[AtFunction], tol: float) -> tuple[float, float] | None:
    """a > 0 and c with R = aS + c at all functions, each to tol of its terms; None where there are none."""
    S, R = (np.array([side.value for side in sides]) for sides in _sides(both))
    size = np.array([p.size for p in both])
    if len(S) < FEWEST or np.ptp(S) <= tol * np.abs(S).max():
        return None
    design = np.column_stack([S, np.ones(len(S))]) / size[:, None]
    (a, c), *_ = np.linalg.lstsq(design, R / size, rcond=None)
    fits = np.abs(design @ [a, c] - R / size).max() <= tol
    return (float(a), 0.0 if abs(c) <= tol * size.min() else float(c)) if fits and a > 0 else None


def _sides(both: Sequence[AtFunction]) -> tuple[list[PointValue], list[PointValue]]:
    return [p.stated for p in both], [p.reduced for p in both]


def _unmatched(both: Sequence[AtFunction], tol: float) -> tuple[list[int], list[int]]:
    """The terms of each objective that the other one does not have with equal values."""
    S, R = (np.array([side.terms for side in sides]) for sides in _sides(both))
    left, right = [], list(range(R.shape[1]))
    for i, column in enumerate(S.T):
        same = [j for j in right if np.all(np.abs(R[:, j] - column) <= tol * np.maximum(np.abs(column), TINY))]
        if same:
            right.remove(same[0])
        else:
            left.append(i)
    return left, right


def _listed(names: Sequence[str], chosen: Sequence[int], values: Sequence[float], size: float) -> str:
    """Terms with their values; 0 for a solver's rounding of it."""
    known = [values[i] if abs(values[i]) > ROUNDED * size else 0.0 for i in chosen]
    return ", ".join(f"{names[i]} = {numbers(value)[0]}" for i, value in zip(chosen, known, strict=True))
