"""Gower's similarity of rows of a data frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from kernelopt.errors import DataError, DataTypeError
from kernelopt.kernels.domains import Domain, FrameRows
from kernelopt.kernels.kernel import Kernel, Verdict, entries, require
from kernelopt.kernels.records import are_missing, number, objects, refuse_missing
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.arithmetic import gamma
from kernelopt.support.checks import is_real
from kernelopt.support.types import Array

POLICIES = ("refuse", "level", "ignore")
REMEDY = 'Drop or fill them, or write Gower(…, missing="level") or missing="ignore".'


@dataclass(frozen=True)
class Gower(Kernel):
    """κ(x, y) = Σⱼ wⱼδⱼsⱼ(xⱼ, yⱼ)/Σⱼ wⱼδⱼ, the mean similarity of columns of a data frame (Gower 1971).

    sⱼ = max(0, 1 − |xⱼ − yⱼ|/Rⱼ) for numbers of range Rⱼ, and sⱼ = [xⱼ = yⱼ] for labels. δⱼ is 1 except for columns
    that are left out. `Gower(…).exp()` and products with other kernels are kernels, too.

    Parameters
    ----------
    columns : {name: range > 0, or None for labels}
        Gower's ranges are those of the data, max − min, in units of the columns.
    weights : sequence of numbers > 0, one for each column, optional
        By default 1.
    missing : "refuse", "level" or "ignore"
        Missing values are refused (DataError); or are a level of their own, sⱼ = 1 for two of them and 0 for one, which
        is positive semidefinite; or are left out, δⱼ = 0, as Gower does. This need not be positive semidefinite:
        `is_psd` is None, and each data set decides. κ is 0 for rows without a common column.

    Raises
    ------
    KernelError
        For other ranges, weights and policies.
    DataError, DataTypeError
        For frames without the columns, missing values that are refused, and rows without any value.

    Examples
    --------
    >>> import pandas as pd, kernelopt as ko
    >>> frame = pd.DataFrame({"age": [20.0, 30.0, None], "sex": ["f", "f", "m"]})
    >>> ko.kernels.Gower({"age": 40.0, "sex": None}, missing="ignore")(frame)
    array([[1.   , 0.875, 0.   ],
           [0.875, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    """

    columns: tuple[tuple[str, float | None], ...]
    weights: tuple[float, ...] | None = None
    missing: str = "refuse"

    def __post_init__(self) -> None:
        pairs = _pairs(self.columns)
        names = [name for name, _ in pairs]
        sound = bool(pairs) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        sound &= all(R is None or (is_real(R) and R > 0) for _, R in pairs)
        require(sound, "columns", "{name: range > 0, or None for labels}", self.columns)
        object.__setattr__(self, "columns", tuple((name, None if R is None else float(R)) for name, R in pairs))
        if self.weights is not None:
            weights = entries(self.weights)
            fits = len(weights) == len(pairs) and all(is_real(w) and w > 0 for w in weights)
            require(fits, "weights", f"{len(pairs)} numbers > 0, one for each column", self.weights)
            object.__setattr__(self, "weights", tuple(float(w) for w in weights))
        require(
            isinstance(self.missing, str) and self.missing in POLICIES, "missing", ", ".join(POLICIES), self.missing
        )

    @property
    def domain(self) -> Domain:
        return FrameRows(name for name, _ in self.columns)

    def _verdict(self) -> Verdict:
        if self.missing == "ignore":
            return Verdict(None, "a mean over other columns for each pair: decided for each data set")
        return Verdict(True, "a sum of [x = y] and of triangles max(0, 1 − |x − y|/R) (Pólya 1949)")

    def _refuse(self, rows: Array) -> None:
        names = [name for name, _ in self.columns]
        raw = np.column_stack([objects(rows, name) for name in names])
        for (name, R), column in zip(self.columns, raw.T, strict=True):
            for value in column:
                if value is None:
                    continue
                if R is not None and not (isinstance(value, Real) and np.isfinite(float(value))):
                    raise DataTypeError(
                        f"{self!r} expects finite numbers in column {name!r}; got {value!r:.40}. Write None as its "
                        "range for labels."
                    )
                if R is None:
                    _require_hashable(name, value)
        missing = are_missing(raw.ravel()).reshape(raw.shape)
        if self.missing == "refuse":
            refuse_missing(missing, names, repr(self), REMEDY)
        empty = np.flatnonzero(missing.all(axis=1))
        if self.missing == "ignore" and len(empty):
            raise DataError(
                f"{self!r} expects a value in some column of each row; got none in row {empty[0]}. Drop such rows."
            )

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        Z = X if Z is None else Z
        total, weight = np.zeros((len(X), len(Z))), np.zeros((len(X), len(Z)))
        for (name, R), w in zip(self.columns, self.weights or (1.0,) * len(self.columns), strict=True):
            x, z = objects(X, name), objects(Z, name)
            no_x, no_z = are_missing(x)[:, None], are_missing(z)
            total += w * np.where(no_x | no_z, no_x & no_z if self.missing == "level" else 0.0, _alike(x, z, R))
            weight += w if self.missing != "ignore" else w * ~(no_x | no_z)
        return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)

    def _diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def _rounding(self, at: Inexact) -> float:
        """γ_{2d+10}: similarities have errors up to 3u, and their mean those of two sums and a quotient."""
        return gamma(2 * len(self.columns) + 10)

    def __repr__(self) -> str:
        weights = "" if self.weights is None else f", weights={list(self.weights)!r}"
        missing = "" if self.missing == "refuse" else f", missing={self.missing!r}"
        return f"Gower({dict(self.columns)!r}{weights}{missing})"


def _pairs(given: Any) -> tuple[tuple[Any, Any], ...]:
    """Pairs (name, range) of a mapping, or of a sequence of such; none for other objects."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    paired = isinstance(pairs, (list, tuple)) and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs)
    return tuple((name, R) for name, R in pairs) if paired else ()


def _require_hashable(name: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise DataTypeError(
            f"Expected labels that can be hashed in column {name!r}; got {type(value).__name__}. Write tuple(x) for a "
            "list x."
        ) from error


def _alike(x: Array, z: Array, R: float | None) -> Array:
    """sⱼ, (n, m); any finite number where a value is missing."""
    if R is None:
        codes: dict[Any, int] = {}
        left, right = (np.array([codes.setdefault(v, len(codes)) for v in values]) for values in (x, z))
        return np.asarray(left[:, None] == right, dtype=np.float64)
    a, b = (np.nan_to_num(np.array([number(v) for v in values])) for values in (x, z))
    with np.errstate(over="ignore"):
        return np.maximum(0.0, 1.0 - np.abs(a[:, None] - b) / R)
