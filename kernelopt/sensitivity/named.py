"""Rows of the cone data in the user's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import ThetaNorm
from kernelopt.language.text import Notation, describe
from kernelopt.sensitivity.optimum import Optimum
from kernelopt.support.types import Array, Ints

Named: TypeAlias = tuple[Theta, int] | cp.Constraint | cp.Expression


def named(found: Optimum, owners: Ints, objective: Any, constraints: Sequence[Any]) -> tuple[Named, ...]:
    """What the user has stated that rows of the cone data belong to, and −1 − j for the norm j.

    A row of one prediction is that prediction (θ, number); another one of a stated constraint is the constraint; a
    bound of a variable is the variable. Other rows are auxiliary: they are the predictions in them, or in rows with an
    auxiliary column in common, else what such rows belong to, else the objective.
    """
    reader = _Reader(found, constraints)
    entries: dict[Any, Named] = {}
    for owner in owners.tolist():
        for entry in reader.entries(owner) or [objective]:
            key = (id(entry[0]), entry[1]) if isinstance(entry, tuple) else id(entry)
            entries.setdefault(key, entry)
    return tuple(entries.values())


def in_words(entry: Named, notation: Notation) -> str:
    """An entry as a phrase."""
    if isinstance(entry, tuple):
        return f"{entry[0]!r} {entry[1]}"
    return f"variable {notation.leaf(entry)}" if isinstance(entry, cp.Variable) else describe(entry, named=notation)


class _Reader:
    """The owner of each column and of each row of the constraints."""

    def __init__(self, found: Optimum, constraints: Sequence[Any]) -> None:
        form, data = found.form, found.data
        self.found = found
        self.of_column: dict[int, Named] = {}
        for link, columns in zip(form.predictions, data.u, strict=True):
            self.of_column |= {int(column): (link.theta, k) for k, column in enumerate(columns)}
        for v, columns in zip(form.y, data.y, strict=True):
            self.of_column |= dict.fromkeys(columns.tolist(), form.users.get(v.id, v))
        for norm, column in zip(form.norms, data.t, strict=True):
            self.of_column[int(column)] = _norm(norm)
        self.of_row: dict[int, Any] = {}
        numbers = data.data.multipliers(np.arange(1.0, len(data.b) + 1))  # each row's multiplier is its number
        stated = {c.id: c for c in constraints if isinstance(c, cp.Constraint)}
        for name, values in numbers.items():
            if name in stated:
                flat = np.abs(np.concatenate([np.ravel(a) for a in _arrays(values)]))
                rows = np.rint(flat).astype(int) - 1
                self.of_row |= dict.fromkeys(
                    rows[(np.abs(flat - rows - 1) < 0.25) & (rows >= 0)].tolist(), stated[name]
                )
        self.parts = {part.start: np.arange(part.start, part.stop) for _, part, *_ in found.faces.cones}

    def entries(self, owner: int) -> list[Named]:
        if owner < 0:
            return [_norm(self.found.form.norms[-1 - owner])]
        rows = self.parts.get(owner, np.array([owner]))
        columns = self._columns(rows)
        predictions = self._predictions(columns)
        if len(predictions) == 1:
            return list(predictions)
        if owner in self.of_row:
            return [self.of_row[owner]]
        known = [self.of_column[k] for k in columns if k in self.of_column]
        if predictions or len(known) == len(columns):
            return list(predictions) or known
        more = sp.csc_array(self.found.data.A)[:, columns].indices
        others = self._columns(np.unique(more))
        predictions = self._predictions(others)
        if predictions:
            return list(predictions)
        return [self.of_row[k] for k in np.unique(more).tolist() if k in self.of_row] or [
            self.of_column[k] for k in others if k in self.of_column
        ]

    def _columns(self, rows: Array) -> list[int]:
        return list(np.unique(self.found.data.by_rows[rows].indices).tolist())

    def _predictions(self, columns: list[int]) -> list[Named]:
        return [self.of_column[k] for k in columns if isinstance(self.of_column.get(k), tuple)]


def _norm(norm: Any) -> cp.Expression:
    return ThetaNorm(norm.view.theta._leaf, norm.view, norm.kind)


def _arrays(values: Any) -> list[Array]:
    return [np.asarray(a, dtype=float) for a in (values if isinstance(values, (list, tuple)) else [values])]
