"""What a solver on pieces found, as an iterate: values of columns, and multipliers of all rows."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.spectral import Semidefinite
from kernelopt.support.types import Array


def with_multipliers(form: CanonicalForm, pieces: Pieces, v: tuple[Array, ...], x: Array, a: Array) -> Iterate:
    """The iterate with v, the variables in the columns x, and the multipliers of u = Aθ and of the stated constraints
    that follow from the multipliers a of all rows; not evaluated yet."""
    y = tuple(_valued(variable, x, pieces) for variable in form.y)
    slopes = pieces.c + pieces.slopes(a)
    nu = tuple(
        None if link.u is None else -slopes[pieces.columns[link.u.id]].reshape(link.u.shape, order="F")
        for link in form.predictions
    )
    duals = {}
    for constraint in form.outer.constraints:
        rows = pieces.stated.get(constraint.id)
        if rows is not None:
            duals[constraint.id] = _duals(constraint, a[rows])
    return Iterate(v, y, nu=nu, duals=duals)


def _duals(constraint: cp.Constraint, a: Array) -> tuple[Array, ...]:
    """The multipliers of a stated constraint, as cvxpy has them: of a cone, −a is in its dual cone."""
    shapes = [dual.shape for dual in constraint.dual_variables]
    if isinstance(constraint, cp.PSD):
        order = shapes[0][0]
        return (-Semidefinite(order).matrices(a[None])[0],)
    if isinstance(constraint, cp.SOC):
        each = -a.reshape(constraint.args[0].size, -1)  # a head and a tail for each cone
        tails = each[:, 1:].T if constraint.axis == 0 else each[:, 1:]
        return each[:, 0].reshape(shapes[0], order="F"), tails.reshape(shapes[1], order="F")
    return (a.reshape(shapes[0], order="F"),)


def _valued(variable: cp.Variable, known: Array, pieces: Pieces) -> Array:
    columns = pieces.columns.get(variable.id)
    values = np.zeros(variable.size) if columns is None else known[columns]
    return values.reshape(variable.shape, order="F")
