"""A point of a reduced problem, and multipliers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.pieces.form import Pieces
from kernelopt.support.types import Array

# Predictions smaller than this fraction of the data's unit count as zero where a scale is needed. A smaller fraction
# could take a solver's error for the scale, a larger one would ignore small predictions.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point and its multipliers, immutable: solvers return it, certificates and verification read it.

    Attributes
    ----------
    v : for each θ, √scale·w in the factor's units, (r,) or (r, K)
    y : the value of each variable of the form's y
    u : for each θ, its predictions in the shape of the link's u
    t : the norms, one for each norm link
    value : the stated objective there; nan where the point is not evaluated yet, and u and t may not belong to v
    nu : for each θ, the multipliers of u = Aθ in u's shape; None where they are unknown
    duals : multipliers of the outer problem's constraints by their ids, an array for each dual variable
    """

    v: tuple[Array, ...]
    y: tuple[Any, ...]
    u: tuple[Array, ...] = ()
    t: Array = field(default_factory=lambda: np.zeros(0))
    value: float = nan
    nu: tuple[Array | None, ...] = ()
    duals: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def u_flat(self) -> Array:
        """All predictions, those of each θ in Fortran order."""
        return np.concatenate([np.zeros(0), *(np.ravel(u, order="F") for u in self.u)])

    @property
    def y_flat(self) -> Array:
        """All of y, each variable in Fortran order."""
        return np.concatenate([np.zeros(0), *(np.ravel(dense(y), order="F") for y in self.y)])

    def multipliers(self) -> list[Array]:
        """ν of each link; zero where it is unknown."""
        return [
            np.zeros_like(u) if nu is None else np.asarray(nu, dtype=float)
            for u, nu in zip(self.u, self.nu or (None,) * len(self.u), strict=True)
        ]

    def prediction_unit(self, data_unit: float = 0.0) -> float:
        """The largest |prediction|, or `data_unit` where predictions are negligible beside it."""
        size = max((float(np.abs(u).max(initial=0.0)) for u in self.u), default=0.0)
        return size if size > NEGLIGIBLE * data_unit else data_unit


def place(form: CanonicalForm, point: Iterate) -> None:
    """Assign a point to the variables of the outer problem, from which cvxpy's expressions take their values."""
    for link, u in zip(form.predictions, point.u, strict=True):
        if link.u is not None:
            link.u.save_value(u)
    for norm, t in zip(form.norms, point.t, strict=True):
        norm.t.save_value(np.asarray(t))
    for variable, value in zip(form.y, point.y, strict=True):
        variable.save_value(value)
    for smooth in form.smooth:
        smooth.place()


def in_columns(form: CanonicalForm, pieces: Pieces, point: Iterate) -> Array:
    """The values of u, t and y in the columns of pieces, 0 elsewhere."""
    x = np.zeros(pieces.n)
    for link, u in zip(form.predictions, point.u, strict=True):
        if link.u is not None:
            x[pieces.columns[link.u.id]] = np.ravel(u, order="F")
    for norm, t in zip(form.norms, point.t, strict=True):
        x[pieces.columns[norm.t.id]] = t
    for variable, value in zip(form.y, point.y, strict=True):
        numbers = np.asarray(dense(value))
        if variable.id in pieces.columns:
            x[pieces.columns[variable.id]] = np.ravel(numbers.real, order="F")
        if -variable.id in pieces.columns:  # of a Hermitian matrix it is the upper triangle
            whole = not variable.attributes.get("hermitian")
            entries = np.ravel(numbers, order="F") if whole else numbers[np.triu_indices(len(numbers), 1)]
            x[pieces.columns[-variable.id]] = entries.imag
    if pieces.values:
        place(form, point)
    for columns, atom in pieces.values:
        value = _value_of(atom)
        if value is not None:
            x[columns] = np.ravel(dense(value), order="F")
    return x


def _value_of(atom: Any) -> Any:
    """The value of an atom; None where cvxpy has none, as of a fraction by a singular matrix."""
    try:
        return atom.value
    except (ArithmeticError, ValueError):  # LinAlgError is a ValueError
        return None
