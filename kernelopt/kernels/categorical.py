"""Kernels of labels: equality, and a covariance matrix of levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import LABELS, Domain, real_array
from kernelopt.kernels.kernel import Kernel, Verdict, entries, require
from kernelopt.kernels.records import entry
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.arithmetic import gamma
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# The largest negative eigenvalue of a covariance that counts as rounding, relative to its largest eigenvalue. Products
# BBᵀ in double precision have 1e-15; matrices that are typed with four digits are refused if they are indefinite.
TOLERANCE = 1e-10
POLICIES = ("refuse", "level")


@dataclass(frozen=True)
class Categorical(Kernel):
    """κ(a, b) = [a = b] for labels, or κ(a, b) = S_ab for a covariance matrix S of given levels.

    Labels are strings, integers, booleans, categories, dates or other values that can be hashed. They are equal as in
    Python: 1 = 1.0 = True. None, NaN and pandas' NA are one missing label. With S = WWᵀ + diag(v) and a kernel of other
    columns, `Categorical(levels, S).on("task") * Gaussian(sigma=1.0).on("x")` is the intrinsic coregionalization model
    (Goovaerts 1997; Bonilla, Chai and Williams 2007).

    Parameters
    ----------
    levels : sequence of labels, optional
        All labels, in the order of the rows of S. By default any label is a level.
    covariance : array (levels, levels), optional
        S, symmetric up to 1e-10 of its largest entry, and positive semidefinite: its smallest eigenvalue is at least
        −1e-10 of the largest. κ is exact for S without its negative eigenvalues, which `rounding` accounts for. By
        default the identity.
    missing : "refuse" or "level"
        A missing label is refused (DataError), or is a level of its own, uncorrelated with the others.
    unknown : "refuse" or "level"
        The same for labels that are not in `levels`; each is a level of its own. Such levels have the mean of diag(S)
        as variance.

    Raises
    ------
    KernelError
        For levels that repeat, and for S of another shape, not symmetric, or not positive semidefinite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Categorical()(["red", "blue", "red"])
    array([[1., 0., 1.],
           [0., 1., 0.],
           [1., 0., 1.]])
    >>> S = [[1.0, 0.5], [0.5, 2.0]]
    >>> sizes = ko.kernels.Categorical(["S", "M"], covariance=S, missing="level")
    >>> sizes(["M", "S", None])
    array([[2. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1.5]])
    """

    levels: tuple[Any, ...] | None = None
    covariance: tuple[tuple[float, ...], ...] | None = None
    missing: str = "refuse"
    unknown: str = "refuse"

    def __post_init__(self) -> None:
        for name in ("missing", "unknown"):
            value = getattr(self, name)
            require(isinstance(value, str) and value in POLICIES, name, '"refuse" or "level"', value)
        if self.levels is not None:
            object.__setattr__(self, "levels", _levels(self.levels))
        elif self.unknown != "refuse":
            raise KernelError('Expected levels beside unknown="level"; got none, where no label is unknown.')
        if self.covariance is not None:
            object.__setattr__(self, "covariance", _covariance(self.covariance, self.levels))

    @property
    def domain(self) -> Domain:
        return LABELS

    def _verdict(self) -> Verdict:
        if self.covariance is None:
            return Verdict(True, "an orthonormal feature for each label")
        return Verdict(True, "a covariance matrix of the levels, whose eigenvalues were checked")

    @cached_property
    def _number(self) -> dict[Any, int]:
        """The row of each level."""
        return {level: i for i, level in enumerate(self.levels or ())}

    @cached_property
    def _S(self) -> Array:
        return np.eye(len(self.levels or ())) if self.covariance is None else np.array(self.covariance)

    @property
    def _variance(self) -> float:
        """Of levels of their own."""
        return 1.0 if self.covariance is None else float(np.mean(np.diag(self._S)))

    def _refuse(self, rows: Array) -> None:
        labels = _labels(rows)
        if self.missing == "refuse" and None not in self._number:
            where = [i for i, label in enumerate(labels) if label is None]
            if where:
                raise DataError(
                    f"{self!r} expects labels without missing values; got {len(where)} missing, first in row "
                    f'{where[0]}. Write Categorical(missing="level") for a level of their own.'
                )
        if self.levels is not None and self.unknown == "refuse":
            new = next((x for x in labels if x is not None and x not in self._number), None)
            if new is not None:
                shown = ", ".join(map(repr, self.levels[:8])) + (", …" if len(self.levels) > 8 else "")
                raise DataError(
                    f"{self!r} expects the levels {shown}; got {new!r}. Add it to levels, or write "
                    'Categorical(…, unknown="level") for a level of its own.'
                )

    def _codes(self, *blocks: Array) -> list[Ints]:
        """A number for each label: the row of a level, and further numbers for labels of their own."""
        numbers = dict(self._number)
        return [
            np.array([numbers.setdefault(x, len(numbers)) for x in _labels(rows)], dtype=np.intp) for rows in blocks
        ]

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        left, right = self._codes(X, X if Z is None else Z)
        if self.covariance is None:
            return (left[:, None] == right).astype(np.float64)
        known = len(self._S)
        K = np.where(left[:, None] == right, self._variance, 0.0)
        i, j = np.flatnonzero(left < known), np.flatnonzero(right < known)
        K[np.ix_(i, j)] = self._S[np.ix_(left[i], right[j])]
        return K

    def _diagonal(self, X: Array) -> Array:
        (codes,) = self._codes(X)
        padded = np.append(np.diag(self._S), self._variance)
        return padded[np.minimum(codes, len(self._S))]

    @cached_property
    def _projection_error(self) -> float:
        """A bound on ‖S − S₊‖₂, S₊ the positive semidefinite part: 0 where all eigenvalues are surely positive.

        Computed eigenvalues are within γ of n²‖S‖ of the exact ones (backward stability).
        """
        if self.covariance is None:
            return 0.0
        values = np.linalg.eigvalsh(self._S)
        error = gamma(10 * len(values) ** 2 + 10) * float(np.abs(values).max())
        return max(error - float(values.min()), 0.0)

    def _rounding(self, at: Inexact) -> float:
        """‖S − S₊‖₂/max diag(S); 0 for equality."""
        if at.error is not None and at.error.any():
            return 1.0  # rounding may have made different labels equal
        error = self._projection_error
        return error / self._largest if error else 0.0

    @property
    def _largest(self) -> float:
        return max(float(np.diag(self._S).max(initial=0.0)), self._variance)

    def _size(self, X: Array, order: Order = ()) -> Array:
        """max diag(S), as errors of S are relative to all of it."""
        return np.full(len(X), self._largest) if self._projection_error else self._diagonal(X)

    def _n_features(self, X: Array) -> float:
        return len(self.levels) if self.levels is not None and "level" not in (self.missing, self.unknown) else inf

    def _features(self, X: Array) -> Array:
        if self._n_features(X) == inf:
            return super()._features(X)
        (codes,) = self._codes(X)
        if self.covariance is None:
            return np.eye(len(self._S))[codes]
        values, vectors = np.linalg.eigh(self._S)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0)))[codes])

    def __repr__(self) -> str:
        told = [] if self.levels is None else [f"levels={list(self.levels)!r}"]
        told += [] if self.covariance is None else [f"covariance={[list(row) for row in self.covariance]!r}"]
        told += [f"{name}='level'" for name in ("missing", "unknown") if getattr(self, name) != "refuse"]
        return f"Categorical({', '.join(told)})"


def _labels(rows: Array) -> Sequence[Any]:
    """Labels of canonical rows: objects, or a matrix of one column of numbers."""
    if rows.ndim == 1:
        return rows.tolist()
    if rows.shape[1] != 1:
        raise KernelError(
            f"Expected labels in one column; got {rows.shape[1]} columns. Write .on([number]) for each column, and the "
            "product of these kernels."
        )
    return list(map(entry, rows[:, 0].tolist()))


def _levels(given: Any) -> tuple[Any, ...]:
    values = tuple(given.tolist()) if hasattr(given, "tolist") else entries(given)
    require(bool(values), "levels", "a sequence of labels, one or more", given)
    levels = tuple(map(entry, values))
    try:
        different = len(set(levels)) == len(levels)
    except TypeError:
        different = False
    require(different, "levels", "different labels that can be hashed", given)
    return levels


def _covariance(given: Any, levels: Sequence[Any] | None) -> tuple[tuple[float, ...], ...]:
    """S as a tuple of rows, checked."""
    if levels is None:
        raise KernelError("Expected levels beside a covariance, in the order of its rows; got none.")
    S, n = real_array(given, "the covariance of Categorical"), len(levels)
    if S.shape != (n, n) or not np.isfinite(S).all():
        raise KernelError(
            f"Expected a covariance of {n} levels, finite numbers of shape ({n}, {n}); got shape {S.shape}"
            f"{'' if np.isfinite(S).all() else ' with NaN or infinity'}."
        )
    difference = float(np.abs(S - S.T).max())
    if difference > TOLERANCE * float(np.abs(S).max()):
        raise KernelError(f"Expected a symmetric covariance; got entries that differ by {difference:.3g} across it.")
    S = (S + S.T) / 2
    values = np.linalg.eigvalsh(S)
    if values[0] < -TOLERANCE * max(float(values[-1]), 0.0):
        raise KernelError(
            f"Expected a positive semidefinite covariance, with eigenvalues ≥ {-TOLERANCE:g} of the largest; got "
            f"{values[0]:.3g} beside {values[-1]:.3g}. Write S = W @ W.T + np.diag(v) with v ≥ 0."
        )
    return tuple(tuple(row) for row in S.tolist())
