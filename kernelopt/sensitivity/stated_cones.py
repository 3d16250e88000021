"""The outer problem as cone data whose dependence on parameters is known.

    minimize    ½xᵀPx + cᵀx + Σ wₖℓₖ(gₖ) + offset
    subject to  Ax + s = b,  s ∈ K

P, c, A, b and the offset are affine in the parameters (cvxpy's disciplined parametrized programming).
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.compiler.conic_form import Cones
from kernelopt.errors import KernelOptError
from kernelopt.language.smooth import SmoothLoss
from kernelopt.support.cvxpy_parts import ConeData, cone_data
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class SmoothPart:
    """w·ℓ(g, data), entry by entry: the columns of g and of its value h, whose costs are w."""

    loss: SmoothLoss
    data: tuple[Array, ...]
    g: Ints
    h: Ints


@dataclass(frozen=True, eq=False)
class StatedCones:
    """Cone data as cvxpy makes them, with the columns of u, t and y; `data` knows how they depend on parameters, of
    which some are `wanted`."""

    P: sp.csc_array
    c: Array
    A: sp.csc_array
    b: Array
    cones: Cones
    u: tuple[Ints, ...]
    t: Ints
    y: tuple[Ints, ...]
    smooth: tuple[SmoothPart, ...]
    data: ConeData
    wanted: tuple[cp.Parameter, ...]

    @cached_property
    def by_rows(self) -> sp.csr_array:
        """A by rows."""
        return sp.csr_array(self.A)

    @cached_property
    def sizes(self) -> tuple[sp.csc_array, sp.csr_array, sp.csr_array]:
        """|P|, |A| and |A|ᵀ."""
        return abs(self.P), abs(self.by_rows), sp.csr_array(abs(self.A).T)

    @cached_property
    def row_norms(self) -> Array:
        """‖Aᵢ‖ of linear rows, 1 for those of other cones: in its unit a row's slack is a distance.

        Columns that are no predictions count with entries of at most 1: data in large units would make slacks small.
        """
        found, largest = np.ones(len(self.b)), np.asarray(abs(self.A).max(axis=0).todense()).ravel()
        largest[self.of_links] = 1.0
        scaled = self.by_rows @ sp.diags_array(1 / np.maximum(largest, 1.0))
        squares = scaled.multiply(scaled).sum(axis=1)
        for kind, rows, _ in self.cones.slices:
            if kind in ("zero", "nonneg"):
                norms = np.sqrt(np.asarray(squares).ravel()[rows])
                found[rows] = np.where(norms > 0, norms, 1.0)
        return found

    @cached_property
    def vacuous(self) -> Ints:
        """The rows t ≥ 0, which the norms meet in any case."""
        A = self.by_rows
        alone = np.flatnonzero((np.diff(A.indptr) == 1) & (self.b == 0))
        entries = A.indptr[alone]
        mine = np.isin(A.indices[entries], self.t) & (A.data[entries] < 0)
        linear = [np.arange(rows.start, rows.stop) for kind, rows, _ in self.cones.slices if kind == "nonneg"]
        return np.intersect1d(alone[mine], np.concatenate([np.arange(0), *linear]))

    @property
    def of_links(self) -> Ints:
        """The columns of all u and t."""
        return np.concatenate([np.arange(0), *self.u, self.t]).astype(int)


def stated_cones(form: CanonicalForm, wanted: list[cp.Parameter]) -> StatedCones:
    """The cone data as functions of the wanted parameters; others are constants.

    Raises KernelOptError where they are no affine functions of these.
    """
    problem = _with_constants(form, wanted)
    if not problem.is_dcp(dpp=True):
        names = ", ".join(p.name() for p in wanted)
        raise KernelOptError(
            f"Expected a problem that follows the rules for parameters (DPP) in {names}; this one does not, as in a "
            "product of two parameters, or a parameter with others inside a convex function. Take the parameters one "
            "by one, or a further parameter for the product."
        )
    data = cone_data(problem)
    n, dims = len(data.c), data.dims
    P = sp.csc_array((n, n)) if data.P is None else sp.csc_array(data.P)
    of = data.columns
    smooth = []
    for link in form.smooth:
        values = link.term.data()
        assert values is not None
        count = len(of(link.h))
        smooth.append(SmoothPart(link.term.loss, tuple(d[:count] for d in values[1]), of(link.g)[:count], of(link.h)))
    return StatedCones(
        P,
        data.c,
        sp.csc_array(data.A),
        data.b,
        Cones(dims.zero, dims.nonneg, tuple(dims.soc), tuple(dims.psd), dims.exp, tuple(dims.p3d), tuple(dims.pnd)),
        tuple(np.arange(0) if link.u is None else of(link.u) for link in form.predictions),
        np.array([of(norm.t)[0] for norm in form.norms], dtype=int),
        tuple(map(of, form.y)),
        tuple(smooth),
        data,
        tuple(wanted),
    )


def follows_rules(form: CanonicalForm, wanted: list[cp.Parameter]) -> bool:
    """Whether the problem follows the rules for parameters with the wanted ones, others being constants."""
    return bool(_with_constants(form, wanted).is_dcp(dpp=True))


def _with_constants(form: CanonicalForm, wanted: list[cp.Parameter]) -> cp.Problem:
    """The outer problem itself where it follows the rules in all parameters, since cvxpy keeps what it has compiled."""
    if form.outer.is_dcp(dpp=True):
        return form.outer
    known = {p.id for p in wanted}
    others = [p for p in form.outer.parameters() if p.id not in known]
    return rewrite(form.outer, {id(p): cp.Constant(p.value) for p in others}) if others else form.outer
