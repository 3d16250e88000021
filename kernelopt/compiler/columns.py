"""The columns of pieces that the parts of a canonical form have: the user's variables y, predictions u and bounds t."""

from __future__ import annotations

import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.pieces.form import Pieces
from kernelopt.support.types import Ints


def columns_of_y(pieces: Pieces, form: CanonicalForm) -> Ints:
    """The columns of the user's variables."""
    known = (pieces.columns.get(variable.id, np.arange(0)) for variable in form.y)
    return np.concatenate([np.arange(0), *known]).astype(int)


def columns_of_each_u(pieces: Pieces, form: CanonicalForm) -> list[Ints]:
    """The columns of each u; none where θ has no predictions."""
    return [np.arange(0) if link.u is None else pieces.columns[link.u.id] for link in form.predictions]


def columns_of_u(pieces: Pieces, form: CanonicalForm) -> Ints:
    """The columns of all u."""
    return np.concatenate([np.arange(0), *columns_of_each_u(pieces, form)]).astype(int)


def columns_of_t(pieces: Pieces, form: CanonicalForm) -> Ints:
    """The columns of all bounds t of norms."""
    return np.concatenate([np.arange(0), *(pieces.columns[norm.t.id] for norm in form.norms)]).astype(int)
