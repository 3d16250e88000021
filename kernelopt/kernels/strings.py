"""Kernels of strings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from kernelopt.kernels.domains import STRINGS, Domain
from kernelopt.kernels.kernel import Kernel, Verdict, require
from kernelopt.kernels.rounding import FUNCTION, Inexact
from kernelopt.support.arithmetic import gamma
from kernelopt.support.checks import is_integer
from kernelopt.support.types import Array


class _OfStrings(Kernel):
    @property
    def domain(self) -> Domain:
        return STRINGS


def _require_count(value: object, name: str) -> None:
    require(is_integer(value) and value >= 1, name, "an integer ≥ 1", value)  # type: ignore[operator]


@dataclass(frozen=True)
class Spectrum(_OfStrings):
    """κ(s, t) = Σ #(w in s)·#(w in t) over all strings w of n characters (Leslie, Eskin and Noble 2002).

    Parameters
    ----------
    n : int ≥ 1
        Characters of the substrings.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Spectrum(n=2)(["banana", "bandana"])
    array([[9., 7.],
           [7., 8.]])
    """

    n: int

    def __post_init__(self) -> None:
        _require_count(self.n, "n")

    def _verdict(self) -> Verdict:
        return Verdict(True, "F(s) counts the substrings of n characters")

    def _counts(self, strings: Array, columns: dict[str, int]) -> sp.csr_array:
        """Counts of substrings, one column per substring; new substrings are added to `columns`."""
        indptr, indices, data = [0], [], []
        for s in strings:
            for word, count in Counter(s[i : i + self.n] for i in range(len(s) - self.n + 1)).items():
                indices.append(columns.setdefault(word, len(columns)))
                data.append(float(count))
            indptr.append(len(indices))
        return sp.csr_array((np.array(data), indices, indptr), shape=(len(strings), max(len(columns), 1)))

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        columns: dict[str, int] = {}
        A = self._counts(X, columns)
        if Z is None:
            return (A @ A.T).toarray()
        B = self._counts(Z, columns)
        A.resize((len(X), B.shape[1]))  # empty columns for substrings that occur in Z only
        return (A @ B.T).toarray()

    def _diagonal(self, X: Array) -> Array:
        A = self._counts(X, {})
        return np.asarray(A.multiply(A).sum(axis=1), dtype=np.float64).ravel()

    def _rounding(self, at: Inexact) -> float:
        """0 for integers below 2⁵³, which are exact; else γₙ for n substrings, at most the length of a string."""
        return 0.0 if self._diagonal(at.points).max() < 2**53 else gamma(max(map(len, at.points)))


@dataclass(frozen=True)
class PositionMatch(_OfStrings):
    """κ(s, t) = (number of positions at which s and t have the same character)^power.

    Parameters
    ----------
    power : int ≥ 1

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.PositionMatch(power=2)(["abcd"], ["abxd"])
    array([[9.]])
    """

    power: int = 1

    def __post_init__(self) -> None:
        _require_count(self.power, "power")

    def _verdict(self) -> Verdict:
        return Verdict(True, "power of a sum over positions of [same character]")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        A, B = _characters(X), _characters(X if Z is None else Z)
        K = np.zeros((len(A), len(B)))
        for a, b in zip(A.T, B.T, strict=False):  # later positions match nowhere: one side has no characters there
            K += (a[:, None] == b) & (b >= 0)
        return np.power(K, self.power, out=K)

    def _diagonal(self, X: Array) -> Array:
        return np.array([float(len(s)) for s in X]) ** self.power

    def _rounding(self, at: Inexact) -> float:
        """The error of the power; the counts are exact."""
        return FUNCTION if self.power > 1 else 0.0


def _characters(strings: Array) -> Array:
    """Code points of the characters, one string per row, filled up with −1."""
    table = np.full((len(strings), max(map(len, strings))), -1, dtype=np.int32)
    for i, s in enumerate(strings):
        table[i, : len(s)] = [ord(c) for c in s]
    return table
