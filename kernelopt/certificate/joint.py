"""Multipliers of all rows at once, from a cone program: the outer problem's cones with u = Bv and ‖VM − b₀‖ ≤ t.

ν alone determines neither how Aᵀν is divided among several norms, nor the multipliers of rows that connect t with other
variables.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.compiler.conic_form import Cones, ConicForm
from kernelopt.compiler.representer import Reduction, centre_and_rest
from kernelopt.factorization import Factor
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.solvers import outer_dual
from kernelopt.support.types import Array

# Columns of x plus entries of v up to which the cone program is solved. It holds B as sparse rows; as B is dense, the
# solver's time grows with the cube of this number.
MOST = 3000


class Joint(NamedTuple):
    """x and z of the outer problem, and for each norm the nⱼ with mⱼ = Aᵀnⱼ."""

    x: Array
    z: Array
    pieces: dict[int, Array]


def solved(reduction: Reduction, form: ConicForm, units: Array, room: float) -> Joint | None:
    """Multipliers with ‖mⱼ‖ ≤ (1 − room)μⱼ; `units` are those of u and t.

    A norm below a bound that another one sets has μⱼ = 0, and Aᵀν = 0 only up to the solver's accuracy: a gain from
    each tⱼ without a cost, of `room` times the objective's unit, leaves μⱼ that much above ‖mⱼ‖.

    None for large problems, and for norms other than Euclidean and Frobenius norms.
    """
    sizes = [factor.rank * (link.theta.outputs or 1) for link, factor in _parts(reduction)]
    if len(form.c) + sum(sizes) > MOST or any(n.kind not in (EUCLIDEAN, "fro") for n in reduction.form.norms):
        return None
    n, curved = len(form.c), form.cones.zero + form.cones.nonneg + sum(form.cones.soc)
    links, lengths = _links(reduction, form, sum(sizes)), _lengths(reduction, form, sizes, room)
    A = sp.csr_array(sp.hstack([form.A, sp.csc_array((len(form.b), sum(sizes)))], format="csr"))
    A = sp.vstack([links, A[:curved], *(a for a, _ in lengths), A[curved:]], format="csc")
    b = np.concatenate([np.zeros(links.shape[0]), form.b[:curved], *(c for _, c in lengths), form.b[curved:]])
    cones = replace(
        form.cones, zero=form.cones.zero + links.shape[0], soc=(*form.cones.soc, *(len(c) for _, c in lengths))
    )
    x, z = _answered(form, A, b, cones, _units(form, units, sizes), room)
    z = z[links.shape[0] :]
    ends = curved + np.cumsum([0, *(len(c) for _, c in lengths)])
    pieces = {j: _piece(reduction, j, z[i + 1 : k]) for j, (i, k) in enumerate(pairwise(ends.tolist()))}
    return Joint(x[:n], np.concatenate([z[:curved], z[ends[-1] :]]), pieces)


def _units(form: ConicForm, units: Array, sizes: list[int]) -> Array:
    """Units of x and v; entries of v have about the size of predictions."""
    unit = np.full(len(form.c), form.units[0])
    unit[form.linked] = units
    ours = [np.full(size, unit[u].max(initial=form.units[0])) for size, u in zip(sizes, form.u, strict=True)]
    return np.concatenate([unit, *ours])


@np.errstate(over="ignore", invalid="ignore")  # numbers that are too far apart are refused below
def _answered(  # noqa: PLR0917
    form: ConicForm, A: sp.csc_array, b: Array, cones: Cones, unit: Array, gain: float
) -> tuple[Array, Array]:  # fmt: skip
    """A cone solver's x and z; the solver gets the problem in units in which numbers are about 1."""
    sigma, more = form.units[0], len(unit) - len(form.c)
    P, c = np.append(form.P, np.zeros(more)), np.append(form.c, np.zeros(more))
    kappa = float(max((unit * np.abs(c)).max(initial=0.0), np.delete(unit**2 * P, form.t).max(initial=0.0))) or 1.0
    scaled = sp.csc_array(A @ sp.diags_array(unit / sigma))
    P, c = unit**2 * P / kappa, unit * c / kappa
    shared = form.t[(c[form.t] == 0) & (P[form.t] == 0) & (np.diff(form.A.indptr)[form.t] > 1)]
    c[shared] = -gain
    if not (np.isfinite(P).all() and np.isfinite(c).all()):
        raise ArithmeticError("costs overflow in units of their largest")
    solution = outer_dual.answered(P, c, scaled, b / sigma, cones)
    return unit * np.nan_to_num(np.array(solution.x)), np.nan_to_num(np.array(solution.z)) * kappa / sigma


def _piece(reduction: Reduction, j: int, dual: Array) -> Array:
    """n over the rows, from a multiplier of (VM − b₀, R), which is −1/scale times m in the units of v."""
    norm = reduction.form.norms[j]
    factor = reduction.factors[norm.view.theta]
    (link,) = (link for link in reduction.form.predictions if link.theta is norm.view.theta)
    outputs = norm.right.shape[1]
    n = np.zeros((len(link.rows), outputs))
    if factor.rank:
        V = dual[: factor.rank * outputs].reshape(factor.rank, outputs, order="F")
        np.add.at(n, factor.pivots, factor.coefficients(-factor.scale * V).reshape(-1, outputs))
    return n


def _parts(reduction: Reduction) -> list[tuple[PredictionLink, Factor]]:
    return [(link, reduction.factors[link.theta]) for link in reduction.form.predictions]


def _links(reduction: Reduction, form: ConicForm, width: int) -> sp.csr_array:
    """Rows of u − Bv = 0."""
    n, blocks, at = len(form.c), [], 0
    for (link, factor), columns in zip(_parts(reduction), form.u, strict=True):
        outputs = link.theta.outputs or 1
        B = factor.in_one_array(link.rows).matrix.whole()
        take = link.take[: len(columns) // outputs]
        for k in range(outputs):
            some = columns.reshape(-1, outputs, order="F")[:, k]
            pick = sp.csr_array((np.ones(len(some)), (np.arange(len(some)), some)), shape=(len(some), n))
            start = at + k * factor.rank
            place = sp.csr_array((len(some), width)).tolil()
            place[:, start : start + factor.rank] = -B[take]
            blocks.append(sp.hstack([pick, place], format="csr"))
        at += outputs * factor.rank
    return sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else sp.csr_array((0, n + width))


def _lengths(reduction: Reduction, form: ConicForm, sizes: list[int], room: float) -> list[tuple[sp.csr_array, Array]]:
    """Rows of (√scale·t/(1 − room), VM − b₀, R), a second-order cone for each norm."""
    starts = {link.theta: at for (link, _), at in zip(_parts(reduction), np.cumsum([0, *sizes]), strict=False)}
    n, width, found = len(form.c), sum(sizes), []
    for norm, column in zip(reduction.form.norms, form.t, strict=True):
        factor, start = reduction.factors[norm.view.theta], int(starts[norm.view.theta])
        size = factor.rank * norm.right.shape[1]
        shifted = norm.view.shift is not None
        centre, rest = centre_and_rest(norm, factor) if shifted else (np.zeros(size), np.zeros(0))
        head = sp.csr_array(([-np.sqrt(factor.scale) / (1 - room)], ([0], [int(column)])), shape=(1, n + width))
        moved = sp.kron(sp.csr_array(norm.right.T), sp.eye_array(factor.rank), format="csr")
        after = width - start - moved.shape[1]
        body = sp.hstack([sp.csr_array((size, n + start)), -moved, sp.csr_array((size, after))], format="csr")
        rows = sp.vstack([head, body, sp.csr_array((rest.size, n + width))], format="csr")
        found.append((rows, np.concatenate([[0.0], -np.ravel(centre, order="F"), np.ravel(rest, order="F")])))
    return found
