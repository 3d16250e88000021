"""What cvxpy's atoms are read as: one row of `RULES` for each.

A rule takes the reader and a node, and gives its entries, or None where the atom's graph form is to be read. It asks
the reader for the entries of arguments, and for affine stand-ins of those that are not affine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import quadratic_part
from kernelopt.compiler.entries import Entries, applied, stacked, summed, wide
from kernelopt.compiler.linear_maps import flat
from kernelopt.errors import DCPError
from kernelopt.language.proximal import check
from kernelopt.pieces import quadratics
from kernelopt.pieces.by_size import Sorted, SortedSizes
from kernelopt.pieces.elementary import (
    AbsolutePower,
    Exp,
    InversePower,
    Logistic,
    NegativeEntropy,
    NegativeLog,
    NegativeLogComplement,
    NegativeRoot,
    PositivePower,
)
from kernelopt.pieces.extremes import Largest, RowLogSumExp, SumOfLargest
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import ABS, POS, SQUARE, Piecewise, many
from kernelopt.pieces.ratios import SquaresOverLinear
from kernelopt.pieces.spectral import Schatten
from kernelopt.support.types import Array, Ints

MOST = 8  # lines of one number whose maximum is one function of it
# Different weights of a `dotsort` up to which it is sums of largest ones, whose losses engines know; and entries of all
# these sums, with losses of which its graph form has fewer rows.
FEW_STEPS, MOST_SORTED = 10, 20_000


class Reading(Protocol):
    """What rules ask of the reader."""

    def entries(self, node: Any) -> Entries: ...

    def flattened(self, entries: Entries) -> Entries: ...

    def at_most_zero(self, entries: Entries) -> None: ...

    def linear(self, node: Any) -> Entries: ...

    @property
    def has_many_ratios(self) -> bool: ...


Rule = Callable[[Reading, Any], Entries | None]


def _argument(reader: Reading, node: Any) -> Entries:
    return reader.entries(node.args[0])


def _affine(reader: Reading, node: Any) -> Entries:
    return reader.flattened(reader.entries(node.args[0]))


def _along(node: Any) -> Ints:
    """The entries of the argument that each entry of a reduction takes, (out, k)."""
    a = node.args[0]
    place = np.arange(a.size).reshape(a.shape, order="F")
    if node.axis is None:
        return place.reshape(1, -1, order="F")
    if a.ndim < 2:
        return place[None]
    axes = np.atleast_1d(node.axis)
    place = np.moveaxis(place, axes, range(-len(axes), 0))
    rest = place.shape[: a.ndim - len(axes)]
    return np.asarray(place.reshape((*rest, -1), order="F").reshape((int(np.prod(rest)), -1), order="F"))


def _spread(reader: Reading, node: Any) -> list[Entries]:
    """The entries of each argument, broadcast to the shape of the node."""
    found = []
    for a in node.args:
        entries = reader.entries(a)
        if a.shape != node.shape:
            place = np.broadcast_to(np.arange(a.size).reshape(a.shape, order="F"), node.shape)
            entries = entries.take(flat(place).astype(int))
        found.append(entries)
    return found


def _rows_of(entries: Entries, along: Ints) -> Entries:
    """The arguments of one function after the other."""
    return entries.take(along.ravel())


def _reduced(node: Any, entries: Entries) -> Entries:
    """Sums of entries over the axis of a reduction."""
    if node.size == 1:
        return entries.total()
    along = _along(node)
    data = np.ones(along.size), along.ravel(), np.arange(0, along.size + 1, along.shape[1])
    return entries.mapped(sp.csr_array(data, shape=(len(along), len(entries))))


# Affine atoms


def _add(reader: Reading, node: Any) -> Entries:
    return summed(_spread(reader, node))


def _negated(reader: Reading, node: Any) -> Entries:
    return _argument(reader, node).times(-1.0)


def _multiplied(reader: Reading, node: Any) -> Entries | None:
    """Entrywise with a constant."""
    constant = [a.is_constant() for a in node.args]
    if not any(constant):
        return None
    factor, other = _spread(reader, node)[:: 1 if constant[0] else -1]
    return other.times(factor.c)


def _divided(reader: Reading, node: Any) -> Entries | None:
    if not node.args[1].is_constant():
        return None
    above, below = _spread(reader, node)
    return above.times(1.0 / below.c)


def _product(reader: Reading, node: Any) -> Entries:
    """A constant matrix times a column, or a row times one; other products by their matrix."""
    left, right = node.args
    if left.is_constant() and left.size == right.size == 1:
        return reader.entries(right).times(flat(left.value))
    if left.is_constant() and right.ndim <= 1:
        return reader.entries(right).mapped(left.value if sp.issparse(left.value) else np.atleast_2d(left.value))
    if right.is_constant() and left.ndim <= 1:
        value = right.value.toarray() if sp.issparse(right.value) else np.asarray(right.value)
        return reader.entries(left).mapped(np.atleast_2d(value.T))
    return reader.linear(node)


def _sum(reader: Reading, node: Any) -> Entries:
    return _argument(reader, node).total() if node.size == 1 else reader.linear(node)


# Piecewise quadratic functions


def _piecewise(reader: Reading, function: Piecewise, entries: Entries) -> Entries:
    """g of each entry: composed with it where it is one piecewise quadratic function and a constant."""
    m = len(entries)
    if len(entries.terms) == 1 and not entries.M.nnz:
        [term] = entries.terms
        inner, alone = term.functions.family, np.array_equal(term.at, np.arange(m))
        if isinstance(inner, Piecewise) and alone and np.all(term.weight >= 0):
            both = function.of_piecewise(inner.take(term.which).times(term.weight).plus(entries.c))
            if both is not None:
                argument = Entries(term.functions.M, term.functions.c).take(term.which)
                return applied(both, argument)
    if function is POS and not entries.is_affine and (lines := _lines(entries)) is not None:
        return _largest(reader, [*lines, entries.times(0.0).affine])
    return applied(many(function, m), reader.flattened(entries))


def _lines(entries: Entries) -> list[Entries] | None:
    """Affine parts whose maximum each entry is, MOST at most; None of other entries.

    Those of weight·max(a, b) + c are weight·a + c and weight·b + c.
    """
    if entries.is_affine:
        return [entries]
    if len(entries.terms) > 1:
        return None
    [term] = entries.terms
    h, k = term.functions.family, term.functions.k
    if not np.array_equal(term.at, np.arange(len(entries))) or np.any(term.weight < 0) or k >= MOST:
        return None
    numbers = (term.which[:, None] * k + np.arange(k)).T
    s = [Entries(term.functions.M, term.functions.c).take(place).times(term.weight) for place in numbers]
    if isinstance(h, Largest):
        return [entries.affine, *(entries.affine.plus(part) for part in s)]
    if isinstance(h, Piecewise) and (both := h.take(term.which).lines()) is not None:
        slopes, shifts = both
        return [
            entries.affine.plus(s[0].times(slope)).plus_constant(term.weight * shift)
            for slope, shift in zip(slopes, shifts, strict=True)
        ]
    return None


def _of(function: Piecewise) -> Rule:
    return lambda reader, node: _piecewise(reader, function, _argument(reader, node))


def _huber(reader: Reading, node: Any) -> Entries:
    return _piecewise(reader, quadratics.huber(float(node.M.value)), _argument(reader, node))


def _largest(reader: Reading, parts: list[Entries]) -> Entries:
    """The maximum of several, entry by entry: the last one plus max(0, differences from it)."""
    if len(parts) == 1:
        return parts[0]
    if not all(part.is_affine for part in parts) and (found := _of_one_number(parts)) is not None:
        return found
    if len(parts) == 2:
        curved, line = parts if parts[1].is_affine else parts[::-1]
        if line.is_affine:
            return line.plus(_piecewise(reader, POS, curved.minus(line)))
    if (found := _of_one_number(parts)) is not None:
        return found
    lines = [_lines(part) for part in parts]
    if sum(MOST + 1 if some is None else len(some) for some in lines) <= MOST:
        parts = [line for some in lines for line in some or ()]
    else:
        parts = _with_shared_columns(reader, parts)
        if (found := _of_one_number(parts)) is not None:
            return found
    *others, last = [reader.flattened(part) for part in parts]
    m, k = len(last), len(others)
    differences = stacked([part.minus(last) for part in others])
    order = np.arange(k * m).reshape(k, m).T.ravel()
    return last.plus(applied(Largest(), differences.take(order), k, base=last.M))


def _with_shared_columns(reader: Reading, parts: list[Entries]) -> list[Entries]:
    """The same parts, with one column z ≥ h for each h that several of them have: h is in one constraint then."""
    uses = Counter((id(t.functions), t.which.tobytes()) for part in parts for t in part.terms)
    columns, found = dict[tuple[int, bytes], Entries](), []
    for part in parts:
        rest, kept = part.affine, []
        for t in part.terms:
            key = id(t.functions), t.which.tobytes()
            whole = np.array_equal(t.at, np.arange(len(part)))
            if uses[key] == 1 or not whole or np.any(t.weight < 0):
                kept.append(t)
                continue
            if key not in columns:
                alone = part.times(0.0).affine
                columns[key] = reader.flattened(Entries(alone.M, alone.c, (t._replace(weight=np.ones(len(part))),)))
            rest = rest.plus(columns[key].times(t.weight))
        found.append(Entries(rest.M, rest.c, tuple(kept)))
    return found


def _of_one_number(parts: list[Entries]) -> Entries | None:
    """The maximum of piecewise quadratic functions of one affine number each, entry by entry; None of others."""
    m = len(parts[0])
    if len(parts) > MOST:
        return None
    n = max([part.M.shape[1] for part in parts] + [t.functions.M.shape[1] for part in parts for t in part.terms])
    known = [wide(part.M, n) for part in parts]
    known += [wide(t.functions.M, n)[t.which] for part in parts for t in part.terms if len(t.at) == m]
    one = next((M for M in known if M.shape[0] == m and np.all(np.diff(M.indptr) > 0) and M.data.all()), None)
    if one is None:
        return None
    # A quotient of equal numbers is 1 to the last bit.
    first = np.repeat(one.data[one.indptr[:-1]], np.diff(one.indptr))
    one = sp.csr_array((one.data / first, one.indices, one.indptr), shape=one.shape)
    found = None
    for part in parts:
        other = _in_terms_of(part, one)
        if other is None:
            return None
        found = other if found is None else found.above(other)
    assert found is not None
    return applied(found, Entries(one, np.zeros(m)))


def _in_terms_of(part: Entries, one: sp.csr_array) -> Piecewise | None:
    """Entries as functions of one number each, the rows of a matrix that start with 1; None where they are none."""
    m, n = one.shape
    r = _multiples(wide(part.M, n), one)
    if r is None or len(part.terms) > 1:
        return None
    found = quadratics.nothing(m)
    for t in part.terms:
        h, argument = t.functions.family, wide(t.functions.M, n)[t.which]
        rate = _multiples(argument, one) if np.array_equal(t.at, np.arange(m)) and np.all(t.weight >= 0) else None
        if rate is None or not isinstance(h, Piecewise) or not rate.all():
            return None
        found = h.take(t.which).times(t.weight).along(rate, t.functions.c[t.which])
    return found.with_line(r, part.c)


def _multiples(M: sp.csr_array, one: sp.csr_array) -> Array | None:
    """r with Mᵢ = rᵢ·oneᵢ exactly, or None; oneᵢ starts with 1."""
    r = np.asarray(M[np.arange(one.shape[0]), one.indices[one.indptr[:-1]]]).ravel()
    return None if abs(M - sp.csr_array(sp.diags_array(r) @ one)).nnz else r


def _maximum(reader: Reading, node: Any) -> Entries:
    return _largest(reader, _spread(reader, node))


def _minimum(reader: Reading, node: Any) -> Entries:
    return _largest(reader, [part.times(-1.0) for part in _spread(reader, node)]).times(-1.0)


def _max(reader: Reading, node: Any) -> Entries:
    entries, along = _argument(reader, node), _along(node)
    entries = entries if entries.is_affine or along.shape[1] <= 2 else reader.flattened(entries)
    return _largest(reader, [entries.take(column) for column in along.T])


def _min(reader: Reading, node: Any) -> Entries:
    entries, along = _argument(reader, node).times(-1.0), _along(node)
    entries = entries if entries.is_affine or along.shape[1] <= 2 else reader.flattened(entries)
    return _largest(reader, [entries.take(column) for column in along.T]).times(-1.0)


def _sum_largest(reader: Reading, node: Any) -> Entries | None:
    """count times the last entry, plus the sum of the count largest of differences from it and of 0.

    A share of the largest one for count ≤ 1; all but a share of the least one for count ≥ n − 1.
    """
    along, count = _along(node), float(node.k)
    k = along.shape[1] - 1
    if not 0 < count <= k + 1:
        return None
    if count <= 1:
        return _max(reader, node).times(count)
    entries = _affine(reader, node)
    if count >= k:
        parts = [entries.take(column) for column in along.T]
        return summed(parts).plus(_largest(reader, [part.times(-1.0) for part in parts]).times(k + 1 - count))
    last = entries.take(along[:, -1])
    differences = entries.take(along[:, :-1].ravel()).minus(entries.take(np.repeat(along[:, -1], k)))
    return last.times(count).plus(applied(SumOfLargest(count), differences, k, base=last.M))


def _dotsort(reader: Reading, node: Any) -> Entries | None:
    """Σ wⱼx₍ⱼ₎ with both in decreasing order: Σ (wⱼ − wⱼ₊₁)·(the sum of the j largest) + wₙΣx, where these are few."""
    if not node.args[1].is_constant():
        return None
    e, given = node.args[0], flat(node.args[1].value)
    n = e.size
    w = np.sort(np.append(given, np.zeros(n - len(given))))[::-1]
    steps = w[:-1] - w[1:]
    number, weights = np.count_nonzero(steps), tuple(w.tolist())
    sizes = _sizes(e) if number > FEW_STEPS and w[-1] >= 0 else None
    if sizes is not None:
        return applied(SortedSizes(weights, sizes.positive), reader.flattened(reader.entries(sizes.of)), n)
    if not e.is_affine() and number * n > MOST_SORTED:
        return None
    entries = _affine(reader, node)
    last, found = entries.take(np.array([n - 1])), entries.total().times(w[-1])
    differences = entries.take(np.arange(n - 1)).minus(entries.take(np.full(n - 1, n - 1)))
    if e.is_affine() and number > FEW_STEPS:
        return last.times(float(w.sum())).plus(applied(Sorted(weights), differences, n - 1, base=last.M))
    for j in np.flatnonzero(steps):
        count, step = float(j + 1), float(steps[j])
        largest = applied(SumOfLargest(count), differences, n - 1, base=last.M)
        found = found.plus(last.times(count).plus(largest).times(step))
    return found


class _Sizes(NamedTuple):
    """An affine expression whose moduli, or whose positive parts, are meant."""

    of: Any
    positive: bool


def _sizes(e: Any) -> _Sizes | None:
    if type(e).__name__ == "abs" and e.args[0].is_affine():
        return _Sizes(e.args[0], False)
    if type(e).__name__ == "maximum" and len(e.args) == 2:
        (x, zero) = e.args if e.args[1].is_constant() else e.args[::-1]
        if x.is_affine() and x.shape == e.shape and zero.is_constant() and not np.any(flat(zero.value)):
            return _Sizes(x, True)
    return None


def _log_sum_exp(reader: Reading, node: Any) -> Entries:
    """The last entry, plus ln(1 + Σ exp(differences from it))."""
    entries, along = _affine(reader, node), _along(node)
    k = along.shape[1] - 1
    last = entries.take(along[:, -1])
    if not k:
        return last
    differences = entries.take(along[:, :-1].ravel()).minus(entries.take(np.repeat(along[:, -1], k)))
    if k == 1:
        return last.plus(applied(Logistic(), differences))
    return last.plus(applied(RowLogSumExp(), differences, k, base=last.M))


def _quad_over_lin(reader: Reading, node: Any) -> Entries | None:
    if not node.args[1].is_constant():
        if not reader.has_many_ratios:
            return None
        along, y = _along(node), reader.flattened(reader.entries(node.args[1]))
        both = stacked([_affine(reader, node), y])
        rows = np.column_stack([along, np.full(len(along), len(both) - 1)])
        return applied(SquaresOverLinear(), _rows_of(both, rows), rows.shape[1])
    squares = _reduced(node, _piecewise(reader, SQUARE, _argument(reader, node)))
    return squares.times(1.0 / flat(node.args[1].value))


def _norm1(reader: Reading, node: Any) -> Entries:
    return _reduced(node, _piecewise(reader, ABS, _argument(reader, node)))


def _quad_form(reader: Reading, node: Any) -> Entries | None:
    """xᵀPx = ‖Rx‖² with P = RᵀR; a negative semidefinite P is minus that of −P."""
    if not node.args[1].is_constant():
        return None
    P = sp.csc_array(node.args[1].value, dtype=float)
    sign = -1.0 if P.diagonal().sum() < 0 else 1.0
    R = quadratic_part.root(sp.csc_array(sign / 2 * (P + P.T)))
    return _piecewise(reader, SQUARE, _argument(reader, node).mapped(R)).total().times(sign)


# Norms


def _norm(reader: Reading, node: Any) -> Entries | None:
    """‖·‖ₚ of each row; the Euclidean one is the identity of its length, on r ≥ 0."""
    p, along = float(node.p), _along(node)
    if p < 1:
        return None
    rows = _rows_of(_affine(reader, node), along)
    family: Family = Radial(many(POS, len(along))) if p == 2 else RowNorm(p)
    return applied(family, rows, along.shape[1])


def _norm_inf(reader: Reading, node: Any) -> Entries:
    along = _along(node)
    return applied(RowNorm(inf), _rows_of(_affine(reader, node), along), along.shape[1])


def _spectral(p: float) -> Rule:
    def rule(reader: Reading, node: Any) -> Entries:
        a = node.args[0]
        return applied(Schatten(a.shape, p), _affine(reader, node), a.size)

    return rule


# Smooth functions of one number


def _smooth(family: Family, weight: float = 1.0) -> Rule:
    return lambda reader, node: applied(family, _affine(reader, node), weight=weight)


def _log(reader: Reading, node: Any) -> Entries:
    """Of c − c·eˢ for a constant c > 0 it is ln c + ln(1 − eˢ)."""
    argument = _argument(reader, node)
    if len(argument.terms) == 1 and not argument.M.nnz and np.all(argument.c > 0):
        [term] = argument.terms
        alone = np.array_equal(term.at, np.arange(len(argument))) and np.array_equal(term.weight, -argument.c)
        if alone and isinstance(term.functions.family, Exp):
            s = Entries(term.functions.M, term.functions.c).take(term.which)
            return applied(NegativeLogComplement(), s, weight=-1.0).plus_constant(np.log(argument.c))
    return applied(NegativeLog(), reader.flattened(argument), weight=-1.0)


def _log1p(reader: Reading, node: Any) -> Entries:
    return applied(NegativeLog(), _affine(reader, node).plus_constant(1.0), weight=-1.0)


def _power(reader: Reading, node: Any) -> Entries | None:
    p, argument = float(np.asarray(node.p.value)), _argument(reader, node)
    if p == 1:
        return argument
    if p == 2:
        return _piecewise(reader, SQUARE, argument)
    if p > 1:  # of other powers than even ones cvxpy's is ∞ below 0
        if (found := _of_size(p, argument)) is not None:
            return found
        base = reader.flattened(argument)
        if not (node.args[0].is_nonneg() or p % 2 == 0):
            reader.at_most_zero(base.times(-1.0))
        return applied(AbsolutePower(p), base)
    if p == 0:
        return None
    family, weight = (NegativeRoot(p), -1.0) if p > 0 else (InversePower(-p), 1.0)
    return applied(family, reader.flattened(argument), weight=weight)


def _of_size(p: float, entries: Entries) -> Entries | None:
    """Powers of |r(s − knot)| or max(r(s − knot), 0), entry by entry; None of others."""
    if len(entries.terms) != 1 or entries.M.nnz or entries.c.any():
        return None
    [term] = entries.terms
    h = term.functions.family
    if not isinstance(h, Piecewise) or h.knots.shape[1] != 1 or not np.isfinite(h.knots).all():
        return None
    if not np.array_equal(term.at, np.arange(len(entries))) or np.any(term.weight < 0):
        return None
    h = h.take(term.which).times(term.weight)
    (left, right), knot = np.moveaxis(h.coefficients, 1, 0), h.knots[:, 0]
    if left[:, 2].any() or right[:, 2].any() or np.any(left[:, 0] + left[:, 1] * knot):
        return None
    argument = Entries(term.functions.M, term.functions.c).take(term.which).plus_constant(-knot)
    if np.array_equal(left[:, 1], -right[:, 1]):
        return applied(AbsolutePower(p), argument.times(right[:, 1]))
    if np.all((left[:, 1] == 0) | (right[:, 1] == 0)):
        return applied(PositivePower(p), argument.times(left[:, 1] + right[:, 1]))
    return None


def _kl_div(reader: Reading, node: Any) -> Entries | None:
    """x ln(x/y) − x + y of a constant x ≥ 0, or of a constant y > 0."""
    x, y = _spread(reader, node)
    if node.args[1].is_constant() and np.all(y.c > 0) and x.is_affine:
        return applied(NegativeEntropy(), x).plus(x.times(-1 - np.log(y.c))).plus_constant(y.c)
    if not node.args[0].is_constant():
        return None
    return y.plus_constant(_x_log_x(x.c) - x.c).plus(applied(NegativeLog(), reader.flattened(y)).times(x.c))


def _rel_entr(reader: Reading, node: Any) -> Entries | None:
    """x ln(x/y) of a constant x ≥ 0, or of a constant y > 0."""
    x, y = _spread(reader, node)
    if node.args[1].is_constant() and np.all(y.c > 0) and x.is_affine:
        return applied(NegativeEntropy(), x).plus(x.times(-np.log(y.c)))
    if not node.args[0].is_constant():
        return None
    return applied(NegativeLog(), reader.flattened(y)).times(x.c).plus_constant(_x_log_x(x.c))


def _x_log_x(x: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, x * np.log(x), 0.0)


# Functions of rows that users state


def _proximal(reader: Reading, node: Any) -> Entries:
    found, s = node.function(), node.args[0]
    if found is None:
        raise DCPError(f"Expected data of {node.loss.name} with values; got a cp.Parameter without one.")
    if any(part.parameters() for part in node.args[1:]):
        check(found, node.loss.name)
    by_rows = np.arange(s.size).reshape((found.m, found.k), order="F").ravel()
    return applied(found, _affine(reader, node).take(by_rows), found.k)


# By the names of cvxpy's classes, which outlive the modules that they are in.
RULES: dict[str, Rule] = {
    "AddExpression": _add, "NegExpression": _negated, "multiply": _multiplied, "DivExpression": _divided,
    "MulExpression": _product, "Sum": _sum,
    "abs": _of(ABS), "huber": _huber, "maximum": _maximum, "minimum": _minimum, "max": _max, "min": _min,
    "sum_largest": _sum_largest, "dotsort": _dotsort, "log_sum_exp": _log_sum_exp,
    "quad_over_lin": _quad_over_lin, "norm1": _norm1, "QuadForm": _quad_form, "SymbolicQuadForm": lambda *_: None,
    "Pnorm": _norm, "PnormApprox": _norm, "norm_inf": _norm_inf, "normNuc": _spectral(1.0), "sigma_max": _spectral(inf),
    "exp": _smooth(Exp()), "logistic": _smooth(Logistic()), "log": _log,
    "log1p": _log1p, "entr": _smooth(NegativeEntropy(), -1.0), "Power": _power, "PowerApprox": _power,
    "kl_div": _kl_div, "rel_entr": _rel_entr, "ProximalTerm": _proximal,
}  # fmt: skip
