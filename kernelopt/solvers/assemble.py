"""Turn a reduction and its outer problem into structured data, and a solver's answer into an iterate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.least import least
from kernelopt.compiler.outer import STRUCTURED, Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Lengths, Separable
from kernelopt.compiler.sums import tightest
from kernelopt.compiler.terms import Kinked, Kinks
from kernelopt.errors import SolverError
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.pieces.custom import StatedFunction
from kernelopt.solvers import machines, maxima
from kernelopt.solvers.answers import with_multipliers
from kernelopt.solvers.nu_machines import nu_machine_of
from kernelopt.solvers.structured import Structured
from kernelopt.support.long_rows import LONG
from kernelopt.support.types import Array, Ints

# F is sparse where it has more columns than this, and less than this share of its entries are not 0. Below, dense
# systems take less time than sparse factors and their copies.
MANY, SPARSE = 50, 0.05
WIDE = 2.0**31  # bytes of a dense F, beside which there are its products with weights
SPLIT = "needs an objective and constraints that split into functions of one number each"


BAND = 4  # predictions in a row of a chain, up to which rows count as one
STRETCH = 50  # rows from which a chain is a long one


@dataclass(frozen=True)
class Shape:
    """The properties of an outer problem that decide which of our solvers take it; `lacks` says why none of them does.

    smooth, kinked : whether there are smooth functions, and pieces whose slope jumps or whose domain ends;
    squares : whether all functions are squares; maxima : how many bounds t of maxima are among y; hard : whether there
    are constraints; equations : how many of them are equations, and inhomogeneous : equations that 0 does not solve;
    lengths : how each ‖θ‖ is penalized and bounded; odd : the index of the one norm whose penalty is no multiple of its
    square, or that is bounded; machine : the number of rows of a support vector machine that libsvm takes, else 0;
    nonconvex : the name of a loss that is declared nonconvex; shifted : whether some norm is that of a θ − f₀; free :
    whether there is one θ without a norm, and no term that is unbounded below: Bv is then taken among the columns y;
    chain : how many constraints connect predictions in a row, as those of a function that rises; local : how many
    columns y share few rows, as a variable for each row does; wide : whether F is too large for a dense array;
    constraints : how many rows are bounded
    """

    lacks: str | None
    smooth: bool = False
    kinked: bool = False
    squares: bool = False
    maxima: int = 0
    hard: bool = False
    equations: int = 0
    inhomogeneous: int = 0
    lengths: Lengths | None = None
    odd: int | None = None
    machine: int = 0
    nonconvex: str | None = None
    shifted: bool = False
    free: bool = False
    rows: int = 0
    chain: int = 0
    local: int = 0
    wide: bool = False
    constraints: int = 0


def shape_of(form: CanonicalForm, outer: Outer) -> Shape:
    """The shape of an outer problem, computed once and then read from `outer.notes`."""
    if form not in outer.notes:
        outer.notes[form] = _shape(form, outer)
    found: Shape = outer.notes[form]
    return found


def _shape(form: CanonicalForm, outer: Outer) -> Shape:
    split, lengths = outer.split, outer.lengths
    if split is None:
        return Shape(_no_sum(form, outer))
    if lengths is None:
        return Shape("needs ‖θ‖ in the objective, or bounded by a constant")
    lacks = _lacks_of_norms(form, lengths)
    if lacks is not None and form.norms:
        return Shape(lacks)
    odd = np.flatnonzero((lengths.slope != 0) | np.isfinite(lengths.limit) | (lengths.curvature == 0))
    if len(odd) > 1:
        return Shape("needs a multiple of ‖θ‖² as the penalty of each θ but one; several norms have other penalties")
    nonconvex = next((link.term.loss.name for link in form.smooth if not link.term.loss.is_convex), None)
    shifted = any(norm.view.shift is not None for norm in form.norms)
    only = int(odd[0]) if len(odd) else None
    notes = outer.common.notes
    if "functions" not in notes:
        notes["functions"] = _functions(split)
    known: Shape = notes["functions"]
    if lacks is not None:
        goal, rows = form.outer.objective, split.E.shape[0]
        sign = 1.0 if isinstance(goal, cp.Minimize) else -1.0
        free = len(form.predictions) == 1 and (isfinite(least(goal.args[0], sign)) or split.is_bounded)
        return replace(known, lacks=lacks, lengths=lengths, nonconvex=nonconvex, machine=0, free=free, rows=rows)
    machine = known.machine if only is None and machines.is_at_hand(known.machine) else 0
    return replace(known, lengths=lengths, odd=only, machine=machine, nonconvex=nonconvex, shifted=shifted)


def _no_sum(form: CanonicalForm, outer: Outer) -> str:
    """Why the problem is no sum of functions of one number each."""
    for variable in form.y:
        if any(variable.attributes.get(name) for name in STRUCTURED):
            return f"needs variables without a structure; {variable.name()} has one (complex, diagonal, symmetric …)"
    pieces = outer.pieces
    if form.smooth and (
        pieces is None or any(isinstance(g.family, StatedFunction) and not g.is_outer for g in pieces.groups)
    ):
        return "needs a SmoothLoss to be summed in the minimized objective, with weights ≥ 0"
    return SPLIT


def _is_machine(kinks: Kinks, slope: Array, split: Separable) -> bool:
    """Whether libsvm takes these functions."""
    if split.linear_y.any():
        return nu_machine_of(kinks, slope, split.F, split.linear_y) is not None
    return machines.machine_of(kinks, slope, split.F) is not None


def _functions(split: Separable) -> Shape:
    """What the functions alone say about the shape, whatever norms cost."""
    smooth = any(not isinstance(term, Kinked) for term in split.terms)
    kinks, slope, _ = _kinks(split)
    unlimited = np.isinf(kinks.low) & np.isinf(kinks.high)
    kinked = bool(np.any(kinks.rho == 0))
    below, above = ((kinks.rho == 0) & np.isinf(end) for end in (kinks.low, kinks.high))
    hard, both = bool(np.any(below | above)), below & above
    equations, inhomogeneous = int(np.sum(both)), int(np.sum(both & (kinks.anchor != 0)))
    squares = not smooth and not kinked and bool(np.all(unlimited))
    bounds = len(maxima.found(split.F, split.linear_y, slope, kinks).columns) if hard else 0
    plain = not smooth and not split.linear_u.any() and bool(np.all(np.diff(split.E.indptr) == 1))
    chain = _chain(split.E[np.unique(kinks.of[below | above])]) if hard else 0
    machine = plain and _is_machine(kinks, slope, split)
    rows = split.E.shape[0] if machine else 0
    entries = np.bincount(split.F.indices, minlength=split.F.shape[1])
    local = int(np.sum(entries <= LONG)) if _is_sparse(split) else 0  # an intercept of each output is none
    return Shape(
        None, smooth, kinked, squares, bounds, hard, equations, inhomogeneous, machine=rows, chain=chain, local=local,
        wide=_is_wide(split), constraints=len(np.unique(kinks.of[below | above])),
    )  # fmt: skip


def _is_sparse(split: Separable) -> bool:
    """Whether many columns of F share few rows."""
    return bool(split.F.shape[1] > MANY and split.F.nnz < SPARSE * split.F.shape[0] * split.F.shape[1])


def _chain(E: sp.csr_array) -> int:
    """How many rows connect 2 to 4 predictions each along a line: k of them, where each is in at most k rows, and where
    they hang together over a long stretch."""
    E = sp.csr_array(E[np.diff(E.indptr) > 1])
    most = int(np.diff(E.indptr).max(initial=0))
    if not 2 <= most <= BAND or np.bincount(E.indices).max() > most:
        return 0
    part = connected_components(E.T @ E, directed=False)[1][E.indices[E.indptr[:-1]]]
    return int(np.bincount(part).max()) if np.bincount(part).max() > STRETCH else 0


def _lacks_of_norms(form: CanonicalForm, lengths: Lengths) -> str | None:
    """Why our solvers can't take the norms of θ, or None: they take one Euclidean norm per θ, penalized or bounded."""
    for norm in form.norms:
        if norm.kind not in (EUCLIDEAN, "fro") or norm.view.right is not None:
            return "needs ‖θ‖ itself (Frobenius, where θ is a matrix), not another norm"
    for link in form.predictions:
        own = list(form.norms_of(link.theta))
        if len(own) != 1:
            return f"needs one norm of each θ; there are {len(own)} of {link.theta.name}"
        j = own[0]
        if lengths.slope[j] == 0 and lengths.curvature[j] == 0 and np.isinf(lengths.limit[j]):
            return "needs a positive penalty of ‖θ‖, or a bound on it"
        if form.norms[j].view.shift is not None and (lengths.slope[j] != 0 or np.isfinite(lengths.limit[j])):
            return "needs a multiple of ‖θ − f₀‖², not ‖θ − f₀‖ or a bound on it"
        if lengths.limit[j] == 0:
            return "needs a positive bound on ‖θ‖; here it is 0"
    return None


def _is_wide(split: Separable) -> bool:
    return split.F.shape[1] > MANY and 8.0 * split.F.shape[0] * split.F.shape[1] > WIDE


def structured(reduction: Reduction, outer: Outer, R: dict[int, float], sparse: bool = False) -> Structured:
    """The structured problem with the penalties ½Rⱼ‖θⱼ‖²; R maps the index j of a norm to its strength.

    sparse : whether the engine takes a sparse F; F is sparse then where many columns share few rows
    """
    split = outer.split
    assert split is not None
    kept = reduction.kept.setdefault(outer.common, {})
    sparse &= _is_sparse(split)
    if (Structured, sparse) not in kept:
        kept[Structured, sparse] = _without_penalties(reduction, outer, split, sparse)
    found: Structured = kept[Structured, sparse]
    penalties = []
    for link in reduction.form.predictions:
        factor = reduction.factors[link.theta]
        norm = next((j for j, n in enumerate(reduction.form.norms) if n.view.theta is link.theta), None)
        strength = 0.0 if norm is None else R[norm] / factor.scale  # ‖θ‖² = ‖v‖²/scale
        penalties += [strength] * (link.theta.outputs or 1)
    return found.with_penalties(np.array(penalties))


def freed(reduction: Reduction, outer: Outer) -> Structured:
    """The structured problem without any norm, with v among its free columns."""
    split = outer.split
    assert split is not None
    kept = reduction.kept.setdefault(outer.common, {})
    if freed not in kept:
        kept[freed] = _without_penalties(reduction, outer, split, sparse=False).without_blocks()
    known: Structured = kept[freed]
    return known


def _without_penalties(reduction: Reduction, outer: Outer, split: Separable, sparse: bool) -> Structured:
    """The structured problem with R = 0."""
    links = reduction.form.predictions
    if not sparse and _is_wide(split):
        raise SolverError(f"Expected variables beside θ that fit into one array; there are {split.F.shape[1]} of them.")
    blocks = [reduction.factors[link.theta].matrix for link in links for _ in range(link.theta.outputs or 1)]
    place = places(reduction.form)
    n = sum(len(link.rows) * (link.theta.outputs or 1) for link in links)
    E = sp.csr_array((split.E.data, place[split.E.indices], split.E.indptr), shape=(split.E.shape[0], n), copy=True)
    E.sum_duplicates()  # of predictions at equal rows
    kinks, slope, constant = _kinks(split)
    return Structured(
        blocks=tuple(blocks),
        E=E,
        F=split.F if sparse else split.F.toarray(),
        R=np.zeros(len(blocks)),
        linear_d=np.bincount(place, split.linear_u, n),
        linear_y=split.linear_y,
        slope=slope,
        of=kinks.of, anchor=kinks.anchor, low=kinks.low, high=kinks.high, rho=kinks.rho,
        smooth=tuple(term for term in split.terms if not isinstance(term, Kinked)),
        constant=outer.offset + constant + split.constant,
    )  # fmt: skip


def by_link(reduction: Reduction, d: Array) -> tuple[Array, ...]:
    """The predictions at distinct rows of each θ, (n,) or (n, K), from those of all blocks one after the other."""
    found, at = [], 0
    for link in reduction.form.predictions:
        n, K = len(link.rows), link.theta.outputs or 1
        part = d[at : at + n * K].reshape(K, n).T
        found.append(part[:, 0] if link.theta.outputs is None else part)
        at += n * K
    return tuple(found)


def places(form: CanonicalForm) -> Ints:
    """For each entry of all u, its place among the predictions of all θ at distinct rows, in Fortran order."""
    found, at = [np.arange(0)], 0
    for link in form.predictions:
        for _ in range(link.theta.outputs or 1):
            found += [at + link.take] if link.u is not None else []
            at += len(link.rows)
    return np.concatenate(found)


def spread(form: CanonicalForm) -> sp.csr_array:
    """The matrix of all u = (spread)·(predictions of all θ at distinct rows), each flattened in Fortran order."""
    place, n = places(form), sum(len(link.rows) * (link.theta.outputs or 1) for link in form.predictions)
    return sp.csr_array((np.ones(len(place)), place, np.arange(len(place) + 1)), shape=(len(place), n))


def _columns_of_variables(outer: Outer) -> list[Ints]:
    """The columns of each of the user's variables, empty where one drops out; the outer problem may have twins."""
    assert outer.pieces is not None
    return [outer.pieces.columns.get(v.id, np.arange(0)) for v in outer.canonical.y]


def places_of_y(outer: Outer) -> sp.csr_array:
    """The matrix of (the user's variables) = (places)·(y of the structured problem), with entries 0 and 1."""
    split = outer.split
    assert split is not None
    known = zip(outer.canonical.y, _columns_of_variables(outer), strict=True)
    columns = [c if len(c) else np.full(v.size, -1) for v, c in known]
    rows, found = np.nonzero(np.concatenate([np.arange(0), *columns])[:, None] == split.y)
    size = (sum(v.size for v in outer.canonical.y), len(split.y))
    return sp.csr_array((np.ones(len(rows)), (rows, found)), shape=size)


def _kinks(split: Separable) -> tuple[Kinks, Array, float]:
    """The kinks of all piecewise quadratic functions, their linear slopes in s, and the sum of their constants."""
    slope, constant, found = np.zeros(split.E.shape[0]), 0.0, []
    for term in split.terms:
        if isinstance(term, Kinked):
            kinks = term.kinks()
            slope[term.at] = kinks.slope
            constant += float(kinks.value.sum())
            found.append(kinks._replace(of=term.at[kinks.of]))
    parts = [np.concatenate([np.zeros(0), *(k[i] for k in found)]) for i in range(2, 7)]
    return Kinks(np.zeros(0), np.zeros(0), parts[0].astype(int), *parts[1:]), slope, constant


def iterate(reduction: Reduction, outer: Outer, x: Array, total: Array, of_norms: Array) -> tuple[Iterate, Array]:
    """The iterate with v, y and the multipliers of u = Aθ and of the user's constraints, not evaluated yet; and the
    multipliers of all rows of the pieces.

    total : the slope of each function of s; of_norms : the multiplier of the bound on each ‖θ‖.
    """
    split, pieces = outer.split, outer.pieces
    assert split is not None
    assert pieces is not None
    at, v = 0, []
    for link in reduction.form.predictions:
        rank, K = reduction.factors[link.theta].rank, link.theta.outputs or 1
        values = x[at : at + K * rank].reshape(K, rank).T
        at += K * rank
        v.append(values if link.theta.outputs is not None else values[:, 0])
    a, known = multipliers(reduction.form, outer, total, of_norms), np.zeros(split.size)
    known[split.y] = x[at:]
    return with_multipliers(reduction.form, pieces, tuple(v), known, a), a


def multipliers(form: CanonicalForm, outer: Outer, total: Array, of_norms: Array) -> Array:
    """The multipliers of all rows of the pieces from the slopes of all functions; see `iterate`."""
    split, pieces = outer.split, outer.pieces
    assert split is not None
    assert pieces is not None
    return np.asarray(split.multipliers(total) + tightest(pieces, form, of_norms))


def vector(reduction: Reduction, outer: Outer, point: Iterate) -> Array:
    """The vector x = (v, y) of a point, where y has no shared auxiliary variables."""
    parts = [np.reshape(v, (len(v), -1)).ravel(order="F") if v.size else v.ravel() for v in point.v]
    return np.concatenate([np.zeros(0), *parts, vector_of_y(outer, point.y)])


def vector_of_y(outer: Outer, values: Sequence[Any]) -> Array:
    """The values of y in the structured problem, 0 for columns that are not the user's."""
    split = outer.split
    assert split is not None
    x = np.zeros(split.size)
    for columns, value in zip(_columns_of_variables(outer), values, strict=True):
        if len(columns) and value is not None:
            x[columns] = np.ravel(dense(value), order="F")
    return x[split.y]
