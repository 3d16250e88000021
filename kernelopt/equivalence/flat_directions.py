"""Coefficients α of a nearly singular Q in coordinates w of the row space of all that multiplies them.

Where α enters a problem in products C₁α, C₂α, … and forms αᵀPα, P = BBᵀ, alone, let C₀ = Bᵀ and

    S = [C₀; C₁; …] = UΣVᵀ,    α = VΣ⁻¹w,    Cⱼα = Uⱼw,    αᵀPα = ‖U₀w‖².

Directions with singular values that are rounding are left out: they change nothing, and let solvers and multipliers
drift. The problem in w is the same up to rounding in the entries of the matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import rewrite
from kernelopt.support.cvxpy_parts import MulExpression, distinct_nodes
from kernelopt.support.types import Array

RANK = 1e-13  # eigenvalues of P and singular values of S up to this, relative to the largest, are rounding
NEGATIVE = 1e-10  # eigenvalues of P below −NEGATIVE, relative to the largest, are more than rounding


def without(problem: cp.Problem) -> tuple[cp.Problem, Callable[[], None]] | None:
    """The problem in such coordinates, and a function that sets the original variables to the values found.

    None where no variable enters in these ways alone.
    """
    nodes = distinct_nodes(problem)
    replaced, backs = dict[int, Any](), list[tuple[cp.Variable, cp.Variable, Array]]()
    for v in problem.variables():
        uses = [node for node in nodes if any(a is v for a in node.args)]
        known = [_matrix(node, v) for node in uses]
        parts = [np.atleast_2d(part) for part in known if part is not None]
        if v.ndim != 1 or any(v.attributes.values()) or not parts or len(parts) < len(uses):
            continue
        # Equal rows stay equal to the last bit: differences of rounding would be equations in w.
        distinct, place = np.unique(np.vstack(parts), axis=0, return_inverse=True)
        U, sizes, Vt = np.linalg.svd(distinct, full_matrices=False)
        keep = sizes > RANK * sizes[0] if sizes.size and sizes[0] > 0 else np.zeros(len(sizes), dtype=bool)
        if not keep.any():
            continue
        w = cp.Variable(int(keep.sum()), name=v.name())
        ends = np.cumsum([len(part) for part in parts])[:-1]
        for node, Uj in zip(uses, np.split(U[np.ravel(place)][:, keep], ends), strict=True):
            form = isinstance(node, cp.QuadForm)
            replaced[id(node)] = cp.sum_squares(Uj @ w) if form else (Uj if node.ndim else Uj[0]) @ w
        backs.append((v, w, Vt[keep].T / sizes[keep]))
    if not backs:
        return None

    def set_back() -> None:
        for v, w, C in backs:
            v.save_value(None if w.value is None else C @ w.value)

    return rewrite(problem, replaced), set_back


def _matrix(node: Any, v: cp.Variable) -> Array | None:
    """C of a product Cv, or Bᵀ of a form vᵀPv with P = BBᵀ; None for other uses."""
    if isinstance(node, cp.QuadForm) and node.args[0] is v and node.args[1].is_constant():
        P = dense(node.args[1].value)
        values, W = np.linalg.eigh((P + P.T) / 2)
        largest = max(float(values[-1]), 0.0)
        if values[0] < -NEGATIVE * largest or largest == 0:
            return None
        keep = values > RANK * largest
        return np.asarray(np.sqrt(values[keep])[:, None] * W[:, keep].T)
    if isinstance(node, MulExpression) and node.args[1] is v and node.args[0].is_constant():
        return np.asarray(dense(node.args[0].value), dtype=float)
    return None
