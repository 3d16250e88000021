"""A bound as lines of a file that `kernelopt.check` proves in exact arithmetic, without anything of the library.

The lines hold the pieces, the kernels, a point and multipliers. These are those of `on_pieces`, moved so that free
columns vanish exactly: the pivot rows that the checker's argument by Brouwer's theorem moves are solved for in
rationals. Multipliers of rows of a t alone follow from the exact ‖Aᵀν‖.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from kernelopt import check
from kernelopt.certificate import on_pieces
from kernelopt.certificate.gram import COMPUTED, ERRORLESS, STREAMED
from kernelopt.certificate.lengths import single
from kernelopt.certificate.multipliers import is_identity, row_coefficients
from kernelopt.certificate.proof_items import (
    FUNCTIONS,
    Item,
    functions_of,
    is_given,
    kernel_of,
    number,
    rows_of,
    rows_of_cone,
)
from kernelopt.certificate.rationals import balanced, shared
from kernelopt.compiler.canonical_form import NormLink, PredictionLink
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import KernelOptError
from kernelopt.persistence.proofs import Proof, checked
from kernelopt.pieces.form import ROUNDS, Pieces
from kernelopt.support.types import Array

FORMAT = "kernelopt proof 1"
MOST = check.POINTS  # rows of A: the checker takes N² kernel values, about 2 s per 1000² of a Gaussian
NEARLY = 2.0  # times the certified gap
NOT_MET = Fraction(1, 10**6)  # of 1 + |bound|: a violation from which a point is of no use
# Roundings that the point's z take: each is at least the function that it bounds.
UP = Fraction(1, 1 << 110)
WHOLE, SHORTER = Fraction(1), 1 - Fraction(1, 1 << 49)  # shares of θ: the second is shorter by some roundings
FAR, HALVINGS = 2.0**60, 120  # values of atoms that are sought, and steps of bisection: the rest is rounding
KINDS: dict[Any, str] = {"nuc": "nuclear", 2: "spectral"}  # of norms of a θ with several outputs


class Wording(NamedTuple):
    """What the lines say of the stated problem: its text, whether it maximizes, the constant that pieces leave out, the
    certified gap, what its bounds rest on, and whether the bound is that of terms alone, which multipliers of 0
    prove."""

    text: tuple[str, ...]
    maximize: bool
    constant: float
    gap: float
    rests_on: tuple[str, ...]
    by_terms: bool = False


def written(reduction: Reduction, pieces: Pieces, point: Iterate, rows: Array, statement: Wording) -> Proof:
    """The lines that prove most, of multipliers that leave out errors of kernel values, and of those that allow for
    them. Raises KernelOptError where no exact proof is found.

    A kernel matrix that is written as numbers holds for all values within their rounding, if that proves a bound nearly
    as good as these numbers themselves do.
    """
    _require_known(reduction, pieces)
    kernels, found, why = [kernel_of(link.rows) for link in reduction.form.predictions], list[Proof](), "no bound"
    as_given = [{"kernel": [k["kernel"][0] | {"error": number(0.0)}]} if is_given(k) else k for k in kernels]
    for way, written in ((ERRORLESS, kernels), (STREAMED, kernels), (COMPUTED, as_given)):
        if (way == COMPUTED and as_given == kernels) or (found and _width(found[0]) <= NEARLY * statement.gap):
            break
        a = np.zeros_like(rows) if statement.by_terms else rows
        claimed = on_pieces.proven(reduction, pieces, point, a, way, span=False)
        if claimed is None or claimed.claim is None or not isfinite(claimed.bound.value):
            continue
        if any(link.loose.size for link in claimed.claim.links):
            why = "norms bind some outputs of a θ only"
            continue
        try:
            proof = _Writer(reduction, claimed, pieces.n, point, statement, written).proof()
            if proof.violation and not len(pieces.equal):  # a bound of the norm, as a rule
                other = _Writer(reduction, claimed, pieces.n, point, statement, written, SHORTER).proof()
                proof = min(proof, other, key=lambda one: (one.violation, abs(_width(one))))
            # Rounding may leave a matrix indefinite that is given: then the bounds contradict each other.
            if proof.violation > NOT_MET * (1 + abs(next(end for end in proof.exact if end is not None))):
                proof = _Writer(reduction, claimed, pieces.n, point, statement, written).proof(with_point=False)
            found += [proof] if proof.violation or _width(proof) >= 0 else []
        except (check.Refused, ArithmeticError) as error:
            why = str(error)
    if not found:
        raise KernelOptError(f"Expected multipliers that prove a bound in exact arithmetic; got none: {why}.")
    return min(found, key=lambda proof: abs(_width(proof)))


def _width(proof: Proof) -> float:
    """The width of the enclosure; where one side has no bound, how far the other is from 0."""
    low, high = proof.exact
    return float(high - low) if low is not None and high is not None else abs(float(low or high or inf))


def _require_known(reduction: Reduction, pieces: Pieces) -> None:
    """Raise KernelOptError for what the file has no form for, by name."""
    lacking = [type(g.family).__name__ for g in pieces.groups if type(g.family) not in FUNCTIONS]
    lacking += [f"a cone of kind {cone.kind}" for cone in pieces.cones if cone.kind not in check.CONES]
    lacking += ["a projected kernel matrix" for factor in reduction.factors.values() if factor.is_projected]
    if lacking:
        raise KernelOptError(
            f"Expected a problem whose proof can be written in exact arithmetic; it has {lacking[0]}. "
            "docs/proof_files.md lists what a file may hold."
        )
    most = max((len(link.rows) for link in reduction.form.predictions), default=0)
    if most > MOST:
        raise KernelOptError(f"Expected at most {MOST} distinct rows in a proof that is written; got {most}.")


class _Writer:
    """The lines of one claim."""

    def __init__(  # noqa: PLR0917
        self,
        reduction: Reduction,
        found: on_pieces.Proven,
        stated: int,
        point: Iterate,
        statement: Wording,
        kernels: list[Item],
        share: Fraction = WHOLE,
    ) -> None:
        assert found.claim is not None
        check.begin()
        self.reduction, self.point, self.statement, self.kernels = reduction, point, statement, kernels
        self.pieces, self.claim, self.stated, self.share = found.pieces, found.claim, stated, share
        self.S = rows_of(self.pieces.S)
        a, twins = balanced(found.free, self.claim.dual), self.pieces.twins
        self.a = [int(sign) * a[row] for sign, row in zip(twins.sign, twins.row, strict=True)]

    def proof(self, *, with_point: bool = True) -> Proof:
        functions = [item for group in self.pieces.groups for item in functions_of(group)]
        cones = [{"cone": c.kind, "rows": rows_of_cone(c.kind, c.rows)} for c in self.pieces.cones]
        links, thetas = self._links()
        try:
            x = self._point(thetas, functions) if with_point else None
        except (check.Refused, ArithmeticError):  # outside of a domain: the bound from below stays
            x = None
        head = {
            "format": FORMAT, "sense": "maximize" if self.statement.maximize else "minimize",
            "statement": _printable(self.statement.text), "columns": self.pieces.n,
            "c": [[int(j), number(self.pieces.c[j])] for j in np.flatnonzero(self.pieces.c)],
            "c0": number(Fraction(self.pieces.c0) + Fraction(self.statement.constant)),
            "below": self.pieces.below.tolist(), "equal": self.pieces.equal.tolist(), "x": x,
        }  # fmt: skip
        rows = [
            {"row": [[j, number(v)] for j, v in row], "plus": number(float(plus)), "a": number(a)}
            for row, plus, a in zip(self.S, self.pieces.s0, self.a, strict=True)
        ]
        items = [head, *self.kernels, *links, *functions, *cones, *rows]
        return _with_claims(
            [json.dumps(item) for item in items], x is not None, self.statement.maximize, self.statement.rests_on
        )

    def _links(self) -> tuple[list[Item], list[check.Theta]]:
        """The links, after multipliers of rows of a t alone were moved so that g_t is just above ‖Aᵀn‖."""
        found, thetas, kernels = list[Item](), list[check.Theta](), [check.Kernel(**item) for item in self.kernels]
        for k, (of_theta, link) in enumerate(zip(self.reduction.form.predictions, self.claim.links, strict=True)):
            alpha = row_coefficients(self.reduction, self.point, k)
            coefficients = [[Fraction(v) * self.share for v in column] for column in alpha.T.tolist()]
            item = {
                "link": k, "u": link.columns.T.tolist(), "take": link.take.tolist(),
                "norms": [], "alpha": [[number(v) for v in column] for column in coefficients],
            }  # fmt: skip
            norms = [self.reduction.form.norms[j] for j in self.claim.multipliers[k].norms]
            if norms:
                item["norms"] = self._norms(of_theta, link, norms, self.claim.multipliers[k].stack)
            found.append(item)
            thetas.append(check.Theta(kernels, **item))
        g = self._costs()
        for theta in thetas:
            theta.measured(g)
            for t, need in theta.needs.items():
                row, value = _row_of(self.pieces, t)
                if row >= 0:
                    moved = self.a[row] + (need - g[t]) / Fraction(value)
                    self.a[row] = max(Fraction(check.rounded(moved, True)), Fraction(0))
        return found, thetas

    def _norms(self, of_theta: PredictionLink, link: Any, norms: Sequence[NormLink], V: Array) -> list[Item]:
        """Each norm; with its n where they are not ν itself."""
        items: list[Item] = []
        for stated, norm in zip(norms, link.norms, strict=True):
            item: Item = {"t": int(norm.column)}
            if norm.dual != "fro":
                item["kind"] = KINDS[stated.kind]
            if not is_identity(norm.M):
                item["M"] = [[number(v) for v in row] for row in norm.M.tolist()]
            if len(stated.function_rows):
                item["f"] = stated.function_rows.tolist()
            items.append(item)
        if len(norms) > 1 or "M" in items[0]:
            parts = [[[Fraction(v) for v in column] for column in V[:, norm.n].T.tolist()] for norm in link.norms]
            shared(self._nu(of_theta, link), parts, [norm.M for norm in link.norms])
            for item, part in zip(items, parts, strict=True):
                item["n"] = [[number(v) for v in column] for column in part]
        return items

    def _costs(self) -> list[Fraction]:
        """g = c + Sᵀa."""
        g = [Fraction(v) for v in self.pieces.c.tolist()]
        for row, a in zip(self.S, self.a, strict=True):
            for j, v in row if a else ():
                g[j] += Fraction(v) * a
        return g

    def _nu(self, of_theta: PredictionLink, link: Any) -> list[list[Fraction]]:
        g, nu = self._costs(), [[Fraction(0)] * len(of_theta.rows) for _ in link.columns.T]
        for column, v in zip(link.columns.T.tolist(), nu, strict=True):
            for j, i in zip(column, link.take.tolist(), strict=True):
                v[i] -= g[j]
        return nu

    def _point(self, thetas: list[check.Theta], functions: list[Item]) -> list[list[Any]] | None:
        """The columns of x that no θ has, with each z at least what it bounds; None where a column has no value."""
        pieces = self.pieces
        values = pieces.settled(in_columns(self.reduction.form, pieces, self.point))
        if not np.isfinite(values).all():
            return None
        x: dict[int, Any] = {j: (Fraction(v),) * 2 for j, v in enumerate(values.tolist())}
        x |= {j: x[k] for j, k in self._same().items()}
        for theta in thetas:
            theta.placed(x)
        S = [[(j, Fraction(v)) for j, v in row] for row in self.S]
        s0, c = [Fraction(v) for v in pieces.s0.tolist()], [Fraction(v) for v in pieces.c.tolist()]
        self._lift(x, S, s0)
        blocks = check.blocks_of([(0, item) for item in functions], len(pieces.below))
        for _ in range(ROUNDS if len(pieces.bounds) else 0):
            left = check.sums(c, S, s0, x, pieces.below.tolist(), blocks)[0]
            above = [(z, left[1 + number]) for z, number in pieces.bounds.tolist() if left[1 + number] > 0]
            for z, more in above:
                moved = x[z][1] + more
                x[z] = (Fraction(check.rounded(moved + UP * (1 + abs(moved)), True)),) * 2
            if not above:
                break
        owned = {j for theta in thetas for j in theta.columns}
        return [[j, number(v)] for j, (_, v) in x.items() if j not in owned]

    def _lift(self, x: dict[int, Any], S: list[list[tuple[int, Fraction]]], s0: list[Fraction]) -> None:
        """Set columns that stand in one cone alone, as values of atoms do, to where the cone begins, by bisection."""
        pieces, alone = self.pieces, set(np.flatnonzero((self.pieces.counts == 1) & (self.pieces.c != 0)).tolist())
        mine = alone.intersection(pieces.local.tolist())
        for cone in pieces.cones if mine else ():
            for rows in rows_of_cone(cone.kind, cone.rows):
                for j in {j for r in rows for j, _ in S[r]} & mine:
                    outside: Callable[[Any], Fraction] = check.CONES[cone.kind].outside  # type: ignore[attr-defined]

                    def is_inside(v: float) -> bool:
                        x[j] = (Fraction(v),) * 2  # noqa: B023
                        s = [(s0[r] + sum(v * x[k][0] for k, v in S[r]),) * 2 for r in rows]  # noqa: B023
                        return outside(s) <= 0  # noqa: B023

                    sign = float(np.sign(pieces.c[j]))
                    x[j] = (Fraction(_first(is_inside, sign)),) * 2

    def _same(self) -> dict[int, int]:
        """The columns that were added for costs that cancel exactly, with the column that each is equal to."""
        more = range(self.stated, self.pieces.n)
        rows = ([j for j, _ in self.S[r]] for r in self.pieces.equal.tolist()) if more else ()
        return {max(row): min(row) for row in rows if len(row) == 2 and max(row) in more}


def _first(is_inside: Callable[[float], bool], sign: float) -> float:
    """The least double, times the sign, that is inside; ∞ where none is found."""
    step = 1.0
    while not is_inside(sign * step):
        step *= 2.0
        if step > FAR:
            return inf
    low, high = -step, step
    while low != 0 and is_inside(sign * low) and abs(low) < FAR:
        low *= 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_inside(sign * middle) else (middle, high)
    return sign * high


def _row_of(pieces: Pieces, t: int) -> tuple[int, float]:
    """A row of t alone whose multiplier may be any number ≥ 0, and its coefficient; −1 where there is none."""
    found = single(pieces, t)
    if not found.is_endless:
        return -1, 1.0
    growing = [(int(r), float(v)) for r, v in zip(found.rows, found.values, strict=True) if v > 0]
    bounds = [(pieces.s0[r] / -v, r, v) for r, v in growing if r in found.below]
    if bounds:
        return min(bounds)[1:]
    return next((r, v) for r, v in growing)


def _printable(lines: Sequence[str]) -> list[str]:
    """Lines with a blank in place of each character that does not print, as in a user's names."""
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


def _with_claims(lines: list[str], attained: bool, maximize: bool, rests_on: Sequence[str]) -> Proof:
    """The lines with the bounds that they prove, rounded outwards."""

    def claims(lower: float, upper: float | None, violation: float | None) -> str:
        values = [None if v is None else number(v) for v in (lower, upper, violation)]
        return json.dumps(
            dict(zip(("lower", "upper", "violation"), values, strict=True)) | {"rests on": _printable(rests_on)}
        )

    most = float(np.finfo(float).max)
    first = [*lines, claims(-most, *((most, most) if attained else (None, None)))]
    proof = checked(first)
    low, high = (-end if end is not None else None for end in proof.exact[::-1]) if maximize else proof.exact
    assert low is not None
    above = [check.rounded(v, True) if attained and v is not None else None for v in (high, proof.violation)]
    return replace(proof, lines=(*lines, claims(check.rounded(low, False), *above)))
