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
import scipy.sparse as sp

from kernelopt import check
from kernelopt.certificate import on_pieces
from kernelopt.certificate.checker import Free
from kernelopt.certificate.claim import Dual
from kernelopt.certificate.gram import COMPUTED, ERRORLESS, STREAMED
from kernelopt.certificate.lengths import single
from kernelopt.certificate.multipliers import is_identity, row_coefficients
from kernelopt.compiler.canonical_form import NormLink, PredictionLink
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import KernelOptError
from kernelopt.kernels import Constant, Explicit, Gaussian, Linear, Polynomial
from kernelopt.kernels.algebra import Scaled, Sum
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.sparse_rows import dense
from kernelopt.kernels.transforms import Columns
from kernelopt.language.rows import Rows
from kernelopt.persistence.proofs import Proof, checked
from kernelopt.pieces import elementary, extremes
from kernelopt.pieces.by_size import Sorted, SortedSizes
from kernelopt.pieces.form import ROUNDS, Group, Pieces
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.ratios import SquaresOverLinear
from kernelopt.pieces.spectral import Schatten
from kernelopt.support.types import Array

FORMAT = "kernelopt proof 1"
MOST = check.POINTS  # rows of A: the checker takes N² kernel values, about 2 s per 1000² of a Gaussian
NEARLY = 2.0  # times the certified gap
GRAM = 2000  # rows up to which a kernel matrix is written, N²/2 numbers
# Roundings that the point's z take: each is at least the function that it bounds.
UP = Fraction(1, 1 << 110)
SHORTER = 1 - Fraction(1, 1 << 49)
FAR, HALVINGS = 2.0**60, 120  # values of atoms that are sought, and steps of bisection: the rest is rounding
KINDS: dict[Any, str] = {"nuc": "nuclear", 2: "spectral"}  # of norms of a θ with several outputs
Item = dict[str, Any]


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
    kernels, found, why = [_kernel(link.rows) for link in reduction.form.predictions], list[Proof](), "no bound"
    as_given = [{"kernel": [k["kernel"][0] | {"error": number(0.0)}]} if _is_given(k) else k for k in kernels]
    for way, written in ((ERRORLESS, kernels), (STREAMED, kernels), (COMPUTED, as_given)):
        if (way == COMPUTED and as_given == kernels) or (found and _width(found[0]) <= NEARLY * statement.gap):
            break
        a = np.zeros_like(rows) if statement.by_terms else rows
        claimed = on_pieces.proven(reduction, pieces, point, a, way, span=False)
        if claimed is None or claimed.claim is None or not isfinite(claimed.bound.value):
            continue
        try:
            writer = _Writer(reduction, claimed, pieces.n, point, statement, written)
            proof = writer.proof()
            if proof.violation and not len(pieces.equal):
                proof = min(proof, writer.shortened().proof(), key=lambda one: (one.violation, abs(_width(one))))
            # Rounding may leave a matrix indefinite that is given: then the bounds contradict each other.
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


def number(value: float | Fraction) -> str:
    """A double in hexadecimal, or p/q."""
    found = float(value)
    if not isinstance(value, Fraction) or Fraction(found) == value:
        return found.hex()
    return f"{value.numerator:#x}/{value.denominator:#x}"


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
    ) -> None:
        assert found.claim is not None
        self.reduction, self.point, self.statement, self.kernels = reduction, point, statement, kernels
        self.pieces, self.claim, self.stated, self.share = found.pieces, found.claim, stated, Fraction(1)
        self.S = _rows(self.pieces.S)
        a, twins = balanced(found.free, self.claim.dual), self.pieces.twins
        self.a = [int(sign) * a[row] for sign, row in zip(twins.sign, twins.row, strict=True)]

    def shortened(self) -> _Writer:
        """The same with a θ that is shorter by some roundings, as bounds of its norm may need."""
        self.share = SHORTER
        return self

    def proof(self) -> Proof:
        functions = [item for group in self.pieces.groups for item in _functions(group)]
        cones = [{"cone": c.kind, "rows": _rows_of_cone(c.kind, c.rows)} for c in self.pieces.cones]
        links, thetas = self._links()
        x = self._point(thetas, functions)
        head = {
            "format": FORMAT, "sense": "maximize" if self.statement.maximize else "minimize",
            "statement": list(self.statement.text), "columns": self.pieces.n,
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
            _shared(self._nu(of_theta, link), parts, [norm.M for norm in link.norms])
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
            for rows in _rows_of_cone(cone.kind, cone.rows):
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


def _shared(nu: list[list[Fraction]], parts: list[list[list[Fraction]]], matrices: list[Array]) -> None:
    """Make Σ nMᵀ = ν hold exactly: what the doubles leave goes to a norm with a column that reads one output alone."""
    left = [list(v) for v in nu]
    for M, part in zip(matrices, parts, strict=True):
        for (k, column), m in np.ndenumerate(M):
            left[k] = [y - Fraction(m) * z for y, z in zip(left[k], part[column], strict=True)] if m else left[k]
    for k, v in enumerate(left):
        places = [
            (j, c) for j, M in enumerate(matrices) for c in np.flatnonzero(M[k]) if np.count_nonzero(M[:, c]) == 1
        ]
        if any(v) and not places:
            raise check.Refused("norms of combinations of outputs take no multiplier exactly")
        if any(v):
            j, c = places[0]
            m = Fraction(float(matrices[j][k, c]))
            parts[j][c] = [y + z / m for y, z in zip(parts[j][c], v, strict=True)]


def _with_claims(lines: list[str], attained: bool, maximize: bool, rests_on: Sequence[str]) -> Proof:
    """The lines with the bounds that they prove, rounded outwards."""

    def claims(lower: float, upper: float | None, violation: float | None) -> str:
        values = [None if v is None else number(v) for v in (lower, upper, violation)]
        return json.dumps(
            dict(zip(("lower", "upper", "violation"), values, strict=True)) | {"rests on": list(rests_on)}
        )

    most = float(np.finfo(float).max)
    first = [*lines, claims(-most, *((most, most) if attained else (None, None)))]
    proof = checked(first)
    low, high = (-end if end is not None else None for end in proof.exact[::-1]) if maximize else proof.exact
    assert low is not None
    above = [check.rounded(v, True) if attained and v is not None else None for v in (high, proof.violation)]
    return replace(proof, lines=(*lines, claims(check.rounded(low, False), *above)))


# ---------------------------------------------------------------- multipliers in rationals


def balanced(free: Free, dual: Dual) -> list[Fraction]:
    """Multipliers at which all free columns vanish: MΔ = −r for the pivot rows, in rationals.

    Elimination takes the equation with the fewest entries first, as most have one or two.
    """
    a = [Fraction(v) for v in dual.z.tolist()]
    owner = np.repeat(np.arange(len(free.owners)), np.diff(free.starts))
    own, R = np.isin(owner, dual.columns), set(dual.rows.tolist())
    system: dict[int, dict[int, Fraction]] = {j: {} for j in dual.columns.tolist()}
    right = dict.fromkeys(system, Fraction(0))
    for j, row, value in zip(owner[own].tolist(), free.rows[own].tolist(), free.values[own].tolist(), strict=True):
        exact = Fraction(value)
        right[j] -= exact * (a[row] if row < len(a) else 1)
        if row in R:
            system[j][row] = system[j].get(row, Fraction(0)) + exact
    for row, move in _solution(system, right).items():
        a[row] += move
    return a


def _solution(system: dict[int, dict[int, Fraction]], right: dict[int, Fraction]) -> dict[int, Fraction]:
    """The solution of a sparse system by elimination and substitution."""
    done = list[tuple[int, int]]()
    places: dict[int, set[int]] = {}
    for j, entries in system.items():
        for row in entries:
            places.setdefault(row, set()).add(j)
    left = set(system)
    while left:
        j = min(left, key=lambda k: len(system[k]))
        entries = {row: v for row, v in system[j].items() if v}
        if not entries:
            raise check.Refused("free columns that no pivot row moves")
        pivot = min(entries, key=lambda row: len(places[row] & left))
        for k in (places[pivot] & left) - {j}:
            factor = system[k].pop(pivot) / entries[pivot]
            right[k] -= factor * right[j]
            for row, v in entries.items():
                if row != pivot:
                    system[k][row] = system[k].get(row, Fraction(0)) - factor * v
                    places[row].add(k)
        left.discard(j)
        done.append((j, pivot))
    found: dict[int, Fraction] = {}
    for j, pivot in reversed(done):
        rest = sum((v * found[row] for row, v in system[j].items() if row != pivot), Fraction(0))
        found[pivot] = (right[j] - rest) / system[j][pivot]
    return found


# ---------------------------------------------------------------- kernels and functions


def _rows(S: sp.csr_array) -> list[list[tuple[int, float]]]:
    return [
        [(int(j), float(v)) for j, v in zip(S.indices[i:k], S.data[i:k], strict=True) if v]
        for i, k in zip(S.indptr[:-1], S.indptr[1:], strict=True)
    ]


def _kernel(rows: Rows) -> Item:
    """The kernel as a sum of terms with their points, or the kernel matrix as computed, with a bound on its errors."""
    terms = _terms(rows.kernel, np.asarray(dense(rows.points), dtype=float), 1.0) if rows.are_points else None
    if terms is not None:
        return {"kernel": terms}
    if len(rows) > GRAM:
        raise KernelOptError(
            f"Expected at most {GRAM} distinct rows where the kernel matrix is written; got {len(rows)} of "
            f"{rows.kernel!r}. Sums of Gaussian, linear and polynomial kernels are written by their points."
        )
    Q, lengths, r = rows.gram(), rows.lengths(), rows.rounding()
    error = r * float(np.max(lengths, initial=0.0)) ** 2 if isfinite(r) else 0.0
    numbers = [[number(v) for v in Q[i, : i + 1].tolist()] for i in range(len(Q))]
    return {"kernel": [{"name": "gram", "error": number(error), "rows": numbers}]}


def _terms(kernel: Kernel, X: Array, factor: float) -> list[Item] | None:
    """The terms of a kernel at points X; None where some are not known by name."""
    if isinstance(kernel, Sum):
        parts = [_terms(term, X, factor) for term in kernel.terms]
        return None if any(part is None for part in parts) else [term for part in parts for term in part or ()]
    if isinstance(kernel, Scaled):
        exact = Fraction(factor) * Fraction(kernel.factor)
        return _terms(kernel.kernel, X, float(exact)) if Fraction(float(exact)) == exact else None
    if isinstance(kernel, Columns):
        return _terms(kernel.kernel, X[:, list(kernel.columns)], factor)
    stated: dict[type[Kernel], Callable[[Any], Item]] = {
        Gaussian: lambda k: {"name": "gaussian", "sigma": number(float(k.sigma))},
        Linear: lambda _: {"name": "polynomial"},
        Explicit: lambda _: {"name": "polynomial"},
        Constant: lambda k: {"name": "polynomial", "gamma": number(0.0), "coef0": number(float(k.value))},
        Polynomial: lambda k: {
            "name": "polynomial", "degree": int(k.degree), "gamma": number(float(k.scale)),
            "coef0": number(float(k.offset)),
        },
    }  # fmt: skip
    if type(kernel) not in stated:
        return None
    points = [[number(v) for v in x] for x in X.tolist()]
    return [stated[type(kernel)](kernel) | {"factor": number(factor), "points": points}]


def _is_given(kernel: Item) -> bool:
    """Whether a kernel matrix is written, with errors."""
    return kernel["kernel"][0]["name"] == "gram"


def _functions(group: Group) -> list[Item]:
    """The functions of a group, those that are alike together."""
    alike: dict[str, tuple[list[Any], list[Any]]] = {}
    W, stated = group.weights, FUNCTIONS[type(group.family)]
    for i, rows in enumerate(group.rows.tolist()):
        name, parameters = stated(group.family, i, len(rows))
        key = json.dumps({"function": name, "with": parameters})
        entries = slice(W.indptr[i], W.indptr[i + 1])
        weights = [[int(o), number(v)] for o, v in zip(W.indices[entries], W.data[entries], strict=True)]
        alike.setdefault(key, ([], []))[0].append(rows)
        alike[key][1].append(weights)
    return [json.loads(key) | {"rows": rows, "weights": weights} for key, (rows, weights) in alike.items()]


def _quadratics(f: Piecewise, i: int, **more: str) -> tuple[str, Item]:
    """Knots and slopes; where rounding would make a smooth joint concave, the slope continues exactly."""
    i = i if len(f.knots) > 1 else 0
    knots = [Fraction(v) for v in f.knots[i].tolist() if isfinite(v)]
    parts = [[Fraction(d), Fraction(e)] for _, d, e in f.coefficients[i][: len(knots) + 1].tolist()]
    for q, before, after in zip(knots, parts[:-1], parts[1:], strict=True):
        after[0] = max(after[0], before[0] + q * (before[1] - after[1]))
    told = {"knots": [number(v) for v in knots], "c0": number(float(f.coefficients[i][0][0])),
            "parts": [[number(v) for v in part] for part in parts]}  # fmt: skip
    return "quadratics", told | more


def _of_norm(f: RowNorm) -> tuple[str, Item]:
    order = "inf" if f.p == inf else number(float(f.p))
    return "quadratics", {"knots": [], "c0": number(0.0), "parts": [[number(1.0), number(0.0)]], "order": order}


def _largest(count: float, k: int) -> tuple[str, Item]:
    """Weights 1, …, 1, and the rest of the count, for s and a further 0."""
    left = Fraction(count)
    return "sorted", {"weights": [number(min(max(left - j, Fraction(0)), Fraction(1))) for j in range(k + 1)]}


FUNCTIONS: dict[type[Family], Callable[[Any, int, int], tuple[str, Item]]] = {
    Piecewise: lambda f, i, _: _quadratics(f, i),
    Radial: lambda f, i, _: _quadratics(f.shape, i, order=number(2.0)),
    RowNorm: lambda f, *_: _of_norm(f),
    elementary.Exp: lambda *_: ("exp", {}),
    elementary.Logistic: lambda *_: ("log-sum-exp", {}),
    extremes.RowLogSumExp: lambda *_: ("log-sum-exp", {}),
    elementary.NegativeLog: lambda *_: ("log", {}),
    elementary.NegativeLogComplement: lambda *_: ("log complement", {}),
    elementary.NegativeEntropy: lambda *_: ("entropy", {}),
    elementary.AbsolutePower: lambda f, *_: ("power", {"p": number(float(f.p))}),
    elementary.PositivePower: lambda f, *_: ("power", {"p": number(float(f.p)), "positive": True}),
    elementary.InversePower: lambda f, *_: ("power", {"p": number(-float(f.p))}),
    elementary.NegativeRoot: lambda f, *_: ("power", {"p": number(float(f.p))}),
    extremes.Largest: lambda _f, _i, k: _largest(1.0, k),
    extremes.SumOfLargest: lambda f, _i, k: _largest(f.count, k),
    Sorted: lambda f, *_: ("sorted", {"weights": [number(v) for v in f.weights]}),
    SortedSizes: lambda f, *_: (
        "sorted", {"weights": [number(v) for v in f.weights], "of": "positive" if f.positive else "sizes"}
    ),
    SquaresOverLinear: lambda *_: ("ratio", {}),
    Schatten: lambda f, *_: ("schatten", {"n": f.shape[0], "kind": "nuclear" if f.p == 1 else "spectral"}),
}  # fmt: skip


def _rows_of_cone(kind: str, rows: Array) -> list[list[int]]:
    return rows.reshape(-1, 3).tolist() if kind == "exp" else [rows.ravel().tolist()]
