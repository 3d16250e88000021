"""From a bound that was found to one that is proven: the checker's input is made from the multipliers.

A bound of `cone_bounds`, a repaired point, becomes a dual point z of the raw cone data,
tangents, rows along which z may be moved, and Gram matrices from the kernel with their errors. An error in this module
makes the bound weaker, never wrong; which norm is dual to which is taken from `multipliers.DUAL_KIND`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import block_diag

from kernelopt.certificate import checker, pivots
from kernelopt.certificate.balance import balanced
from kernelopt.certificate.cancelling import with_exact_costs
from kernelopt.certificate.claim import Bound, Dual, Link, Norm, Program, nothing, still
from kernelopt.certificate.gram import CHEAP, FROM_FACTOR, STREAMED, Gram, features_of, gram_of
from kernelopt.certificate.multipliers import DUAL_KIND, is_identity
from kernelopt.certificate.report import Lower
from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.factorization import Factor
from kernelopt.kernels import Explicit, Linear
from kernelopt.language.text import letters
from kernelopt.support.types import Array, Ints

# Relative room between ‖Aᵀν‖ and a given μ, to which ν is shortened; tried in this order until the proof succeeds. A
# larger room costs more of the bound, a smaller one may not cover the rounding that the checker counts.
SPARES = (1e-11, 1e-9, 1e-7)
SPARE = 1e-11  # relative: where μ can be chosen, it is larger than ‖Aᵀν‖ by this much, for rounding

# Relative to the largest multiplier of a row: if the multipliers of predictions are smaller, ν = 0 is tried too. Larger
# values cost a check that rarely helps.
SLIGHT = 1e-3
# Relative to the largest multiplier: smaller ones are set to zero, as an interior-point solver leaves small positive
# multipliers on inactive rows. The values are tried in this order; 0 leaves the point as it is.
SNAPS = (0.0, 1e-11, 1e-8, 1e-6)
# Relative to the terms of a large problem's bound: if moving the dual point costs more, the point is also moved on a
# grid, where sums are exact.
COSTLY = 1e-9
ROUNDS = 12  # corrections on the grid: each removes the residuals that the last one left; two or three usually suffice
MOST = 5000  # rows up to which the multipliers z = 0 are tried; that costs one more check
EXACT = (Linear, Explicit)  # kernels whose features are given, not computed by a rounded formula
FEW = 1000  # rows up to which all variants are tried and the best bound is kept; larger values cost more checks
# Least weight of a norm, relative to the one with the largest ‖mⱼ‖, when the remainder of Aᵀν is divided: it keeps
# M·W²·Mᵀ regular where a part is short.
LEAST = 1e-3


def checked(
    reduction: Reduction, data: Outer, found: Lower, span: bool, enough: Callable[[Bound], bool]
) -> tuple[Bound, tuple[str, ...]]:
    """The bound that the checker proves from `found`, and the assumptions made for it.

    With `span` θ is confined to the factor's span. For small problems variants are tried until a bound is `enough`.
    """
    form = data.form
    links = links_of(reduction, form, found, span)
    if found.point is None:
        return nothing("no multipliers of the cone data are known"), ()
    z, tangent, u = np.array(found.point.z), np.zeros(len(form.c)), np.concatenate([np.arange(0), *form.u]).astype(int)
    tangent[u] = form.P[u] * found.point.x[u]
    if not np.isfinite(z).all():
        return nothing("the dual point is not finite"), ()
    program, links, z = balanced(program_of(form), links, z)
    best = _moved_and_checked(form, found, program, links, still(z, tangent), enough)
    exact = None if isfinite(best.value) else with_exact_costs(program, links)
    if exact is not None:
        more = exact.c[len(program.c) :]  # the multipliers of the new rows are the costs of the new columns
        dual = still(np.append(z, more), np.append(tangent, np.zeros(len(more))))
        best = _moved_and_checked(form, found, exact, links, dual, enough)
    if isfinite(best.value):
        return best, ()
    if found.box is None:
        return best, ()
    named = _named(reduction, form)
    bound, assumptions = best, tuple[str, ...]()
    for among in (form.y, None):  # the user's variables alone, if that is enough
        claim = _with_assumptions(program, links, still(z, tangent), found.box, found.radii, named, among)
        extended, bound_links, dual, assumptions = claim
        moved = _with_norms(extended, bound_links, _moved(extended, bound_links, dual, False))
        bound = checker.lower(extended, bound_links, moved)
        if isfinite(bound.value):
            break
    return bound, assumptions if isfinite(bound.value) else ()


def _moved_and_checked(  # noqa: PLR0917
    form: ConicForm, found: Lower, program: Program, links: list[Link], start: Dual, enough: Callable[[Bound], bool]
) -> Bound:
    """The best bound of a dual point that is moved so that free columns vanish, in several ways."""
    z, tangent, best = start.z, start.tangent, nothing("no dual point")
    # A solver's z is tried as it is, then with its small entries set to zero. The grid also works for columns that
    # depend on each other.
    for share_of_largest in SNAPS:
        dual = still(_snapped(form, z, share_of_largest), tangent)
        for moved in _vanishing(form, program, links, dual):
            bound = checker.lower(program, links, _with_norms(program, links, moved))
            if not isfinite(best.value) and -inf < bound.value < program.offset:
                best = max(bound, _without_multipliers(program, links, dual), key=_by_value)
            best = bound if bound.value > best.value or not isfinite(best.value) else best
            settled = len(z) > FEW and best.rounding <= COSTLY * best.terms
            if isfinite(best.value) and (enough(best) or settled):
                return best
        if isfinite(best.value) and len(z) > FEW:
            return best
        if found.point is None:
            break
    none = still(_snapped(form, z, SNAPS[-1]), 0 * tangent)
    if found.point is not None and len(z) <= FEW and _is_nearly_free(program, links, none):
        best = max(best, _of_nothing(program, links, none), key=_by_value)
    return best


def _without_multipliers(program: Program, links: list[Link], dual: Dual) -> Bound:
    """The bound of z = 0 and ν = 0. It is at most the offset, and tight where θ = 0 and y = 0 attain the offset."""
    if len(program.b) > MOST:
        return nothing("not asked")
    return checker.lower(program, _empty(links), still(np.zeros(len(program.b)), np.zeros_like(dual.tangent)))


def _is_nearly_free(program: Program, links: list[Link], dual: Dual) -> bool:
    """Whether the multipliers of predictions are small relative to those of rows."""
    u = np.concatenate([np.arange(0), *(link.columns.ravel() for link in links)]).astype(int)
    nu = program.c[u] + program.A[:, u].T @ dual.z
    return float(np.abs(nu).max(initial=0.0)) <= SLIGHT * float(np.abs(dual.z).max(initial=0.0))


def _of_nothing(program: Program, links: list[Link], dual: Dual) -> Bound:
    """The bound of a dual point that is moved to ν = 0, as if no norm bound θ: θ then drops out of the Lagrangian."""
    free = [link._replace(norms=[], shares=np.zeros((len(link.shares), 0)), features=None) for link in _empty(links)]
    return max((checker.lower(program, free, _moved(program, free, dual, exactly))
                for exactly in (False, True)), key=_by_value)  # fmt: skip


def _empty(links: list[Link]) -> list[Link]:
    return [
        link._replace(V=np.zeros_like(link.V), gram=np.zeros_like(link.gram), error=np.zeros_like(link.error))
        for link in links
    ]


def _by_value(bound: Bound) -> float:
    return bound.value


def _named(reduction: Reduction, form: ConicForm) -> list[tuple[str, Ints]]:
    """The user's variables: how each is called in an assumption, and its columns."""
    variables = [reduction.form.users.get(variable.id, variable) for variable in reduction.form.y]
    unnamed = letters([*variables, *reduction.form.outer.parameters()])
    called = [unnamed.get(variable.id, variable.name()) for variable in variables]
    return list(zip(called, form.variables, strict=True))


def _told_of(columns: Ints, box: Array, named: Sequence[tuple[str, Ints]]) -> list[str]:
    """The assumptions on columns as sentences: the user's variables by name, and then what cvxpy adds for its atoms."""
    told, rest = [], np.ones(len(columns), dtype=bool)
    for name, own in named:
        mine = np.isin(columns, own)
        rest &= ~mine
        if mine.any():
            told.append(f"for |{name}| ≤ {box[columns[mine]].max():.3g}")
    if rest.any():
        told.append(f"for auxiliary variables of atoms up to {box[columns[rest]].max():.3g}")
    return told


def _with_assumptions(  # noqa: PLR0917
    program: Program, links: list[Link], dual: Dual, box: Array, radii: tuple[float, ...],
    named: Sequence[tuple[str, Ints]] = (), among: Ints | None = None,
) -> tuple[Program, list[Link], Dual, tuple[str, ...]]:  # fmt: skip
    """The claim with one constraint per assumption.

    These are ‖θ‖ ≤ R where no norm binds θ, and |xⱼ| ≤ Xⱼ where a column, one of `among` if given, does not vanish.
    """
    (m, n), assumptions = program.A.shape, []
    rows: list[int] = []
    values: list[float] = []
    columns: list[int] = []
    b: list[float] = []
    z: list[float] = []
    extended = []
    count = 0
    for link, radius in zip(links, radii, strict=True):
        if link.norms or not link.columns.size or not isfinite(radius):
            extended.append(link)
            continue
        K = link.columns.shape[1]
        norm = Norm(n + count, "fro", np.eye(K), slice(0, K), slice(K, K))
        extended.append(link._replace(norms=[norm], shares=np.eye(K), features=None))
        rows, values, columns, b = [*rows, m + len(b)], [*values, 1.0], [*columns, n + count], [*b, radius]
        length = checker.dual_norm(link.gram[:K, :K], link.error[:K, :K], "fro")
        z.append(length * (1 + 1e-6) + 1e-9 * float(np.abs(dual.z).max(initial=0.0)))
        assumptions.append(f"for ‖θ‖ ≤ {radius:.3g}")
        count += 1
    free = checker.free_columns(program, links, dual)
    found, _ = checker.sums(free, dual.z)
    unit = 1e-13 * float(np.abs(dual.z).max(initial=0.0))
    able = np.isin(free.columns, among) if among is not None else True
    alone = np.flatnonzero((free.owners < 0) & (found != 0) & able)
    for k in alone:
        j = int(free.columns[k])
        for sign in (1.0, -1.0):
            rows, values, columns, b = [*rows, m + len(b)], [*values, sign], [*columns, j], [*b, float(box[j])]
            z.append(max(-sign * float(found[k]), 0.0) + unit)
    assumptions += _told_of(free.columns[alone].astype(int), box, named)
    more = sp.csc_array((values, (rows, columns)), shape=(m + len(b), n + count))
    wide = sp.csc_array((program.A.data, program.A.indices, np.append(program.A.indptr, [program.A.nnz] * count)),
                        shape=(m, n + count))  # fmt: skip
    A = sp.csc_array(sp.vstack([wide, sp.csr_array(more)[m:]]))
    program = program._replace(
        P=np.append(program.P, np.zeros(count)), c=np.append(program.c, np.zeros(count)), A=A,
        b=np.append(program.b, b), cones=[*program.cones, ("nonneg", slice(m, m + len(b)), None)],
    )  # fmt: skip
    dual = replace(
        dual, z=np.append(dual.z, z), tangent=np.append(dual.tangent, np.zeros(count)),
        radius=np.append(dual.radius, np.zeros(len(b))),
    )  # fmt: skip
    return program, extended, dual, tuple(assumptions)


def _moved(program: Program, links: list[Link], dual: Dual, exactly: bool) -> Dual:
    """The dual point with the rows along which it can be moved, and radii, so that all free columns vanish.

    With `exactly` the point itself is moved on a grid, on which sums are exact: then columns that depend on each other
    vanish, too.
    """
    free = checker.free_columns(program, links, dual)
    left = checker.residuals(free, dual)
    W = free.matrix(len(dual.z), free.values)
    # Rounding to the grid may leave something in each column but those whose terms are all 0.
    busy = (left > 0) | (abs(W[:-1]).T @ (dual.z != 0) > 0)
    everywhere = np.where(busy, left.max(initial=0.0), 0.0)
    moves = pivots.moves(W, everywhere if exactly else left, dual.z, list(program.cones))
    if exactly:
        z = pivots.on_grid(dual.z)
        for _ in range(ROUNDS):
            z, still = pivots.corrected(z, checker.sums(free, z)[0], moves)
            if still:
                break
        dual = replace(dual, z=z)
        left = checker.residuals(free, dual)
        moves = pivots.moves(W, left, z, list(program.cones))
    z = _with_room(program, dual.z, moves.radius)
    return replace(dual, z=z, **moves._asdict())


def _vanishing(form: ConicForm, program: Program, links: list[Link], dual: Dual) -> Iterator[Dual]:
    """Dual points in which free columns vanish: by elimination, by radii, and on a grid."""
    eliminated = _eliminated(form, program, links, dual)
    if eliminated is not None:
        yield eliminated
    for exactly in (False, True):
        yield _moved(program, links, dual, exactly)


def _eliminated(form: ConicForm, program: Program, links: list[Link], dual: Dual) -> Dual | None:
    """The dual point with all free columns exactly 0, by elimination; None where they do not vanish that way."""
    W = _free_matrix(form, program, links, dual)
    if not W.shape[1]:
        return dual
    z = pivots.eliminated(W, dual.z, list(program.cones))
    return None if z is None else replace(dual, z=z)


def _free_matrix(form: ConicForm, program: Program, links: list[Link], dual: Dual) -> sp.csc_array:
    """[A_J; c_J] of the free columns; the last one is kept for the next value of a path, which often has the same."""
    plain = all(link.norms for link in links)
    A, last, known = form.notes.get("free columns", (None, (), None))
    given = program.c, program.P > 0, dual.tangent
    if plain and A is program.A and all(np.array_equal(a, b) for a, b in zip(last, given, strict=True)):
        return cast(sp.csc_array, known)
    free = checker.free_columns(program, links, dual)
    found = free.matrix(len(dual.z), free.values)
    if plain:
        form.notes["free columns"] = program.A, given, found
    return found


def _with_norms(program: Program, links: list[Link], dual: Dual) -> Dual:
    """The dual point with multipliers of rows a·t ≤ b raised where ‖Aᵀν‖ exceeds μ."""
    if all(program.P[norm.column] > 0 for link in links for norm in link.norms):
        return dual
    g, e = checker.stationarity(program, dual, dual.radius)
    A, z = sp.csr_array(program.A), dual.z.copy()
    inside = np.zeros(len(z), dtype=bool)
    for kind, rows, _ in program.cones:
        inside[rows] = kind == "nonneg"
    for link in links:
        for norm, length, _ in (checker.lengths(link, g, e) or []) if link.norms else []:
            j, short = norm.column, length - float(g[norm.column] - e[norm.column])
            part = program.A[:, [j]]
            rows = part.indices[(part.data > 0) & inside[part.indices] & (np.diff(A.indptr)[part.indices] == 1)]
            if program.P[j] == 0 and short > -SPARE * length and len(rows):
                a = np.asarray(A[rows, np.full(len(rows), j)]).ravel()
                tightest = int(np.argmin(program.b[rows] / a))
                z[rows[tightest]] += (max(short, 0.0) + 1e-13 * length) / a[tightest] * (1 + 1e-12)
    return replace(dual, z=z)


def _with_room(program: Program, z: Array, radius: Array) -> Array:
    """z moved so that its dual exponential and power cones contain the whole box around it.

    Only entries whose rows are constants change, since no column depends on them. Each gets the least value that the
    cone allows: a larger one would cost bᵀz for nothing. The last entry of a power cone is shortened.
    """
    if not any(kind in ("exp", "power") for kind, _, _ in program.cones):
        return z
    constant, z = (np.bincount(program.A.indices, minlength=len(z)) == 0) & (radius == 0), z.copy()
    starts = [np.arange(rows.start, rows.stop, 3) for kind, rows, _ in program.cones if kind == "exp"]
    if starts:
        every = np.concatenate(starts)
        first = every[constant[every + 1]]
        least = checker.largest_phi(z[first], z[first + 2], radius[first], radius[first + 2])
        _change(program, z, first + 1, least + 1e-14 * np.abs(least))
        first = every[constant[every + 2] & ~constant[every + 1]]
        _change(program, z, first + 2, _least_w(z[first], z[first + 1] - radius[first + 1], radius[first]))
    powers = [(rows.start, float(a)) for kind, rows, a in program.cones if kind == "power"]
    for k in (0, 1) if powers else ():
        first, alpha = np.array([start for start, _ in powers]), np.array([a for _, a in powers])
        here = constant[first + k]
        first, alpha = first[here], alpha[here]
        _change(program, z, first + k, _least_of_power(z, radius, first, k, alpha if k else 1 - alpha))
    for start, a in powers:
        if constant[start + 2]:  # as in an inverse, whose numerator is a constant
            most = _most_of_power(z[start : start + 2] - radius[start : start + 2], np.array([a, 1 - a]))
            z[start + 2] = np.clip(z[start + 2], -most, most)
    return z


def _least_w(u: Array, v: Array, radius: Array) -> Array:
    """The least w with v ≥ u(1 + ln(w/−u)) for all u within the radius, with room for rounding; ∞ where there is none.

    −u e^{v/u − 1} is convex in u, so that it is largest at an end.
    """
    worst = np.zeros(len(u))
    with np.errstate(all="ignore"):
        for p in (np.maximum(-u - radius, 0.0), -u + radius):
            logarithm = -v / p - 1
            w = np.where(p > 0, p * np.exp(logarithm) * (1 + 1e-13 * (2 + np.abs(logarithm))), 0.0)
            worst = np.maximum(worst, np.where((p > 0) | (v >= 0), w, np.inf))
    return worst


def _change(program: Program, z: Array, at: Array, least: Array) -> None:
    """Set entries of z to `least`; where that is not finite they stay, and where b ≤ 0 they are only raised."""
    wanted = np.isfinite(least) & ((z[at] < least) | (program.b[at] > 0))
    z[at[wanted]] = least[wanted]


@np.errstate(all="ignore")
def _least_of_power(z: Array, radius: Array, first: Array, k: int, a: Array) -> Array:
    """The least v, entry k, with (u/a)ᵃ(v/(1 − a))¹⁻ᵃ ≥ |w| on the box, and room for rounding; nan if there is none."""
    other, last = first + 1 - k, first + 2
    u, w = (z[other] - radius[other]) / a, np.abs(z[last]) + radius[last]
    room = 1e-14 * (60 + np.abs(np.log(u)) + np.abs(np.log(np.where(w > 0, w, 1.0))))
    least = (1 - a) * (w / u**a) ** (1 / (1 - a)) * (1 + room / (1 - a))
    return np.where(u > 0, least, np.where(w == 0, 0.0, np.nan))


@np.errstate(all="ignore")
def _most_of_power(inside: Array, a: Array) -> float:
    """The largest |w| with Π(zᵢ/aᵢ)^aᵢ ≥ |w|, less room for rounding; 0 where some zᵢ ≤ 0."""
    if inside.min() <= 0:
        return 0.0
    logarithms = np.log(inside / a)
    return float(np.exp(a @ logarithms) * (1 - 1e-14 * (60 + np.abs(logarithms).sum())))


def _snapped(form: ConicForm, z: Array, share: float) -> Array:
    """z with multipliers of linear rows, and of whole cones, set to zero where they are below share·max|z|."""
    least, z = share * float(np.abs(z).max(initial=0.0)), z.copy()
    for kind, rows, _ in form.cones.slices if share else []:
        if kind in ("zero", "nonneg"):
            z[rows] = np.where(np.abs(z[rows]) < least, 0.0, z[rows])
        elif kind in ("soc", "psd", "power", "generalized_power") and np.abs(z[rows]).max(initial=0.0) < least:
            z[rows] = 0.0
        elif kind == "exp":
            z[rows] = _snapped_exponentials(z[rows], np.diff(form.by_rows.indptr)[rows] > 0, least)
    return z


def _snapped_exponentials(z: Array, touched: NDArray[np.bool_], least: float) -> Array:
    """z of exponential cones, with small u and w set to zero.

    v is then set to zero too, whatever its size, unless a column meets its row; there a negative v is set to zero.
    """
    u, v, w = z.reshape(-1, 3).T
    small = np.maximum(np.abs(u), np.abs(w)) < least
    v = np.where(small, np.where(touched.reshape(-1, 3)[:, 1], np.maximum(v, 0.0), 0.0), v)
    return np.stack([np.where(small, 0.0, u), v, np.where(small, 0.0, w)], axis=1).ravel()


def program_of(form: ConicForm) -> Program:
    """The cone data as the checker takes them."""
    return Program(form.P, form.c, form.offset, form.A, form.b, form.cones.slices)


def links_of(reduction: Reduction, form: ConicForm, found: Lower, span: bool) -> list[Link]:
    """The links of each θ, with the vectors that Aᵀν was split into and their Gram matrix."""
    made = []
    for number, (m, gram) in enumerate(zip(found.multipliers, found.grams, strict=True)):
        link, columns = reduction.form.predictions[number], form.u[number]
        outputs = link.theta.outputs or 1
        norms, at = [], 0
        if not m.free:
            for j, width, f in zip(m.norms, m.widths, m.shifts, strict=True):
                norm = reduction.form.norms[j]
                dual = DUAL_KIND.get(norm.kind, "fro")
                norms.append(Norm(int(form.t[j]), dual, norm.right, slice(at, at + width), f))
                at += width
        V, at_V, norms = turned(link, reduction.factors[link.theta], m.stack, gram, norms, span)
        made.append(Link(
            columns=columns.reshape(-1, outputs, order="F"), take=link.take[: len(columns) // outputs],
            sizes=at_V.sizes, norms=norms, V=V, gram=at_V.value, error=at_V.error,
            shares=_shared_out(norms, at_V.value) if norms else np.zeros((outputs, 0)),
            features=None if norms else features_within(reduction, number, span),
        ))  # fmt: skip
    return made


def _shared_out(norms: list[Norm], gram: Array) -> Array:
    """S = (MW²Mᵀ)⁻¹MW² with weights W in proportion to ‖mⱼ‖, so that most of the remainder goes to the longest parts.

    S = 0 where the matrix is singular; the checker then refuses the split.
    """
    if len(norms) == 1 and is_identity(norms[0].M):
        return np.eye(len(norms[0].M))
    found = [max(float(np.trace(gram[norm.n, norm.n])), 0.0) for norm in norms]
    heavy = np.sqrt(np.array(found) / (max(found) or 1.0)).clip(LEAST)
    M = np.hstack([norm.M for norm in norms])
    parts = np.hstack([norm.M * (length > 0) for norm, length in zip(norms, found, strict=True)])
    if np.linalg.matrix_rank(parts) == len(M):
        heavy = np.where(np.array(found) > 0, heavy, 0.0)  # a norm without a part gets no share
    MW = M * np.concatenate([np.full(one.M.shape[1], w) for one, w in zip(norms, heavy, strict=True)]) ** 2
    G = MW @ M.T
    d = np.diag(G)
    if not (G - np.diag(d)).any():
        return np.asarray(MW / np.where(d > 0, d, 1.0)[:, None])
    try:
        return np.linalg.solve(G, MW)
    except np.linalg.LinAlgError:
        return np.zeros_like(M)


def turned(  # noqa: PLR0917
    link: PredictionLink, factor: Factor, V: Array, gram: Gram, norms: list[Norm], span: bool
) -> tuple[Array, Gram, list[Norm]]:
    """V with nT in place of n where the dual norm is the nuclear norm; T are the right singular vectors of Aᵀn.

    Columns of AᵀnT that belong to singular values of 0 are then small, and so are the errors of their Gram matrix.
    """
    if not any(norm.dual == "nuc" and norm.f.stop == norm.f.start for norm in norms):
        return V, gram, norms
    turned, blocks = [], []
    for norm in norms:
        straight = norm.dual != "nuc" or norm.f.stop > norm.f.start
        G = gram.value[norm.n, norm.n]
        T = np.eye(len(G)) if straight else np.linalg.eigh((G + G.T) / 2)[1]
        turned.append(norm if straight else norm._replace(T=T))
        blocks.append(T)
    V = V @ block_diag(*blocks, np.eye(V.shape[1] - sum(map(len, blocks))))
    way = FROM_FACTOR if span else CHEAP if factor.is_exact and not factor.is_restriction else STREAMED
    return V, gram_of(link, factor, V, way), turned


def features_within(reduction: Reduction, number: int, span: bool) -> Array | None:
    """φ(x) for each row where features are few; B where θ is confined to the factor's span."""
    link = reduction.form.predictions[number]
    factor = reduction.factors[link.theta]
    if span and factor.is_restriction:
        return np.asarray(factor.in_one_array(link.rows).B)
    return free_features(reduction, number)[0]


def free_features(reduction: Reduction, number: int) -> tuple[Array | None, bool]:
    """φ(x) for each row where features are few, and whether these are exact; found once for a factor."""
    link, notes = reduction.form.predictions[number], reduction.form.notes
    factor, name = reduction.factors[link.theta], f"features {number}"
    if name not in notes or notes[name][0] is not factor:
        notes[name] = factor, _free_features(link, factor)
    found: tuple[Array | None, bool] = notes[name][1]
    return found


def _free_features(link: PredictionLink, factor: Factor) -> tuple[Array | None, bool]:
    """φ(x) for each row where features are few, and whether these are exact.

    Each feature is divided by a power of two, a constant one by itself. Of features that agree to 13 digits up to a
    factor, one is kept. Features are exact if all are kept and the kernel computes them without rounding.
    """
    F = features_of(link, factor)
    if F is None:
        return None, True
    largest = F[np.abs(F).argmax(axis=0), np.arange(F.shape[1])]
    F, largest = F[:, largest != 0], largest[largest != 0]
    _, first = np.unique(np.round(F / largest, 13), axis=1, return_index=True)
    exact = len(first) == F.shape[1] and isinstance(link.rows.kernel, EXACT)
    F = np.where((F[:1] == F).all(axis=0), 1.0, np.ldexp(F, 1 - np.frexp(largest)[1]))
    return F[:, np.sort(first)], exact
