"""Kernels, functions, rows and cones of a problem in pieces as lines of a proof file."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import inf, isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import KernelOptError
from kernelopt.kernels import Constant, Explicit, Gaussian, Linear, Polynomial
from kernelopt.kernels.algebra import Scaled, Sum
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.named_columns import NamedColumns
from kernelopt.kernels.sparse_rows import dense, is_sparse
from kernelopt.kernels.transforms import Columns
from kernelopt.language.rows import Rows
from kernelopt.pieces import elementary, extremes
from kernelopt.pieces.by_size import Sorted, SortedSizes
from kernelopt.pieces.form import Group
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.ratios import SquaresOverLinear
from kernelopt.pieces.spectral import Schatten
from kernelopt.support.types import Array

GRAM = 2000  # rows up to which a kernel matrix is written, N²/2 numbers
Item = dict[str, Any]


def number(value: float | Fraction) -> str:
    """A double in hexadecimal, or p/q."""
    found = float(value)
    if not isinstance(value, Fraction) or Fraction(found) == value:
        return found.hex()
    return f"{value.numerator:#x}/{value.denominator:#x}"


def rows_of(S: sp.csr_array) -> list[list[tuple[int, float]]]:
    return [
        [(int(j), float(v)) for j, v in zip(S.indices[i:k], S.data[i:k], strict=True) if v]
        for i, k in zip(S.indptr[:-1], S.indptr[1:], strict=True)
    ]


def kernel_of(rows: Rows) -> Item:
    """The kernel as a sum of terms with their points, or the kernel matrix as computed, with a bound on its errors."""
    points = dense(rows.points) if is_sparse(rows.points) else rows.points
    terms = _terms(rows.kernel, points, 1.0) if rows.are_points else None
    if terms is not None:
        return {"kernel": terms}
    if len(rows) > GRAM:
        raise KernelOptError(
            f"Expected at most {GRAM} distinct rows where the kernel matrix is written; got {len(rows)} of "
            f"{rows.kernel!r}. Sums of Gaussian, linear and polynomial kernels are written by their points."
        )
    Q, lengths, r = rows.gram(), rows.lengths(), rows.rounding()
    error = r * float(np.max(lengths, initial=0.0)) ** 2 if isfinite(r) else 0.0
    numbers = [[number(v) for v in Q[i, : i + 1].tolist()] for i in range(len(Q))]
    return {"kernel": [{"name": "gram", "error": number(error), "rows": numbers}]}


def _terms(kernel: Kernel, X: Array, factor: float) -> list[Item] | None:
    """The terms of a kernel at points X; None where some are not known by name."""
    if isinstance(kernel, Sum):
        parts = [_terms(term, X, factor) for term in kernel.terms]
        return None if any(part is None for part in parts) else [term for part in parts for term in part or ()]
    if isinstance(kernel, Scaled):
        exact = Fraction(factor) * Fraction(kernel.factor)
        return _terms(kernel.kernel, X, float(exact)) if Fraction(float(exact)) == exact else None
    if isinstance(kernel, NamedColumns):
        return _terms(kernel.kernel, kernel._point(X), factor)
    if X.dtype.kind != "f" or not np.isfinite(X).all():  # strings, rows of frames, missing values
        return None
    if isinstance(kernel, Columns):
        return _terms(kernel.kernel, X[:, list(kernel.columns)], factor)
    stated: dict[type[Kernel], Callable[[Any], Item]] = {
        Gaussian: lambda k: {"name": "gaussian", "sigma": number(float(k.sigma))},
        Linear: lambda _: {"name": "polynomial"},
        Explicit: lambda _: {"name": "polynomial"},
        Constant: lambda k: {"name": "polynomial", "gamma": number(0.0), "coef0": number(float(k.value))},
        Polynomial: lambda k: {
            "name": "polynomial", "degree": int(k.degree), "gamma": number(float(k.scale)),
            "coef0": number(float(k.offset)),
        },
    }  # fmt: skip
    if type(kernel) not in stated:
        return None
    points = [[number(v) for v in x] for x in X.tolist()]
    return [stated[type(kernel)](kernel) | {"factor": number(factor), "points": points}]


def is_given(kernel: Item) -> bool:
    """Whether a kernel matrix is written, with errors."""
    return kernel["kernel"][0]["name"] == "gram"


def functions_of(group: Group) -> list[Item]:
    """The functions of a group, those that are alike together."""
    alike: dict[str, tuple[list[Any], list[Any]]] = {}
    W, stated = group.weights, FUNCTIONS[type(group.family)]
    for i, rows in enumerate(group.rows.tolist()):
        name, parameters = stated(group.family, i, len(rows))
        key = json.dumps({"function": name, "with": parameters})
        entries = slice(W.indptr[i], W.indptr[i + 1])
        weights = [[int(o), number(v)] for o, v in zip(W.indices[entries], W.data[entries], strict=True)]
        alike.setdefault(key, ([], []))[0].append(rows)
        alike[key][1].append(weights)
    return [json.loads(key) | {"rows": rows, "weights": weights} for key, (rows, weights) in alike.items()]


def _quadratics(f: Piecewise, i: int, **more: str) -> tuple[str, Item]:
    """Knots and slopes, continued exactly in both directions from the piece whose terms are smallest, next to 0.

    Constants of far pieces, as −M² of Huber's, are rounded. Where rounding would make a smooth joint concave,
    the slope continues exactly.
    """
    i = i if len(f.knots) > 1 else 0
    knots = [Fraction(v) for v in f.knots[i].tolist() if isfinite(v)]
    parts = [[Fraction(d), Fraction(e)] for _, d, e in f.coefficients[i][: len(knots) + 1].tolist()]
    constants = [Fraction(c) for c, *_ in f.coefficients[i][: len(parts)].tolist()]
    ends: list[Any] = [-inf, *knots, inf]
    nearest = [max(low, -high, 0) for low, high in pairwise(ends)]  # distances to 0
    sizes = [abs(c) + abs(d * q) + e * q**2 for c, (d, e), q in zip(constants, parts, nearest, strict=True)]
    k = sizes.index(min(sizes))
    for q, before, after in zip(knots[k:], parts[k:], parts[k + 1 :], strict=False):
        after[0] = max(after[0], before[0] + q * (before[1] - after[1]))
    c0 = constants[k]
    for q, before, after in zip(knots[:k][::-1], parts[:k][::-1], parts[1 : k + 1][::-1], strict=True):
        before[0] = min(before[0], after[0] + q * (after[1] - before[1]))
        c0 += q * (after[0] - before[0] + q * (after[1] - before[1]) / 2)
    told = {"knots": [number(v) for v in knots], "c0": number(c0),
            "parts": [[number(v) for v in part] for part in parts]}  # fmt: skip
    return "quadratics", told | more


def _of_norm(f: RowNorm) -> tuple[str, Item]:
    order = "inf" if f.p == inf else number(float(f.p))
    return "quadratics", {"knots": [], "c0": number(0.0), "parts": [[number(1.0), number(0.0)]], "order": order}


def _largest(count: float, k: int) -> tuple[str, Item]:
    """Weights 1, …, 1, and the rest of the count, for s and a further 0."""
    left = Fraction(count)
    return "sorted", {"weights": [number(min(max(left - j, Fraction(0)), Fraction(1))) for j in range(k + 1)]}


FUNCTIONS: dict[type[Family], Callable[[Any, int, int], tuple[str, Item]]] = {
    Piecewise: lambda f, i, _: _quadratics(f, i),
    Radial: lambda f, i, _: _quadratics(f.shape, i, order=number(2.0)),
    RowNorm: lambda f, *_: _of_norm(f),
    elementary.Exp: lambda *_: ("exp", {}),
    elementary.Logistic: lambda *_: ("log-sum-exp", {}),
    extremes.RowLogSumExp: lambda *_: ("log-sum-exp", {}),
    elementary.NegativeLog: lambda *_: ("log", {}),
    elementary.NegativeLogComplement: lambda *_: ("log complement", {}),
    elementary.NegativeEntropy: lambda *_: ("entropy", {}),
    elementary.AbsolutePower: lambda f, *_: ("power", {"p": number(float(f.p))}),
    elementary.PositivePower: lambda f, *_: ("power", {"p": number(float(f.p)), "positive": True}),
    elementary.InversePower: lambda f, *_: ("power", {"p": number(-float(f.p))}),
    elementary.NegativeRoot: lambda f, *_: ("power", {"p": number(float(f.p))}),
    extremes.Largest: lambda _f, _i, k: _largest(1.0, k),
    extremes.SumOfLargest: lambda f, _i, k: _largest(f.count, k),
    Sorted: lambda f, *_: ("sorted", {"weights": [number(v) for v in f.weights]}),
    SortedSizes: lambda f, *_: (
        "sorted", {"weights": [number(v) for v in f.weights], "of": "positive" if f.positive else "sizes"}
    ),
    SquaresOverLinear: lambda *_: ("ratio", {}),
    Schatten: lambda f, *_: ("schatten", {"n": f.shape[0], "kind": "nuclear" if f.p == 1 else "spectral"}),
}  # fmt: skip


def rows_of_cone(kind: str, rows: Array) -> list[list[int]]:
    return rows.reshape(-1, 3).tolist() if kind == "exp" else [rows.ravel().tolist()]
