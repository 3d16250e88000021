"""Predictions Aθ and norms ‖θ‖ as atoms of ordinary cvxpy trees.

A prediction is an affine atom and a norm a convex atom over a hidden scalar leaf that stands for θ. cvxpy's
curvature and sign rules work on them unchanged; only `kernelopt.Problem` knows how to compile them.
"""

from __future__ import annotations

from contextlib import suppress
from math import sqrt
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError, DCPError
from kernelopt.kernels.domains import frozen, key
from kernelopt.kernels.sources import refuse_dates, refuse_masked
from kernelopt.language.functions import Function
from kernelopt.support.cvxpy_parts import AffAtom, Atom, forget, get_id
from kernelopt.support.types import Array

BESIDE = "what stands beside predictions"
EUCLIDEAN = "2-norm"  # the kind of the norm of a vector θ; kind 2 is the spectral norm of a matrix θ


class ThetaLeaf(cp.Variable):
    """The hidden leaf that stands for θ in cvxpy's trees."""

    def __init__(self, theta: Any, name: str) -> None:
        self.theta = theta
        super().__init__(name=name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.id = get_id()  # the pickled id may belong to another variable in this process


class PredictionData:
    """The data of a prediction node besides θ's leaf."""

    def __init__(self, theta: Any, A: Any) -> None:
        self.theta = theta
        self.A = A
        self.fingerprint = A.fingerprint()


class _Unmasked:
    """Refuses a masked array as left operand, which numpy.ma would otherwise split into entries."""

    @property
    def _data(self) -> NoReturn:
        """The attribute that numpy.ma reads from the right operand of `y - theta(X)`."""
        raise DataError(
            "Expected an array without a mask next to predictions and norms; got a masked array. Drop the rows that "
            "are masked, or write y.filled(value) to replace masked entries; write y.data if no entry is masked."
        )


class Prediction(_Unmasked, AffAtom):
    """Aθ as a cvxpy atom, shape (N,) or (N, K)."""

    # pandas' own priorities are at most 4000. A Series as left operand then leaves the operator to this class, and
    # builds no Series of expressions.
    __pandas_priority__ = 5000

    def __init__(self, leaf: cp.Variable, data: PredictionData) -> None:
        self.data = data
        self._cache: tuple[Function, Array] | None = None
        super().__init__(leaf)

    def get_data(self) -> list[PredictionData]:
        return [self.data]

    def shape_from_args(self) -> tuple[int, ...]:
        n, outputs = len(self.data.A), self.data.theta.outputs
        return (n,) if outputs is None else (n, outputs)

    def sign_from_args(self) -> tuple[bool, bool]:
        return False, False

    def name(self) -> str:
        return f"A·{self.data.theta.name}"

    def _value_impl(self) -> Array | None:
        f = self.data.theta.value
        if f is None:
            return None
        # Functions are immutable, so the values are those of f as long as θ holds the same object.
        if self._cache is None or self._cache[0] is not f:
            known = f._known.get(self.data.fingerprint)
            self._cache = f, frozen(np.array(self.at(f) if known is None else known))
        return self._cache[1]

    def at(self, f: Function) -> Array:
        """Aθ for a function in place of θ."""
        A = self.data.A
        return f._at(A._X, A.order) if A.function is None else self._products(A.function, f)

    def _products(self, f0: Function, f: Function) -> Array:
        gram = f0._gram_with(f)
        return gram[:, 0] if f.outputs is None else gram

    def numeric(self, values: Any) -> Array | None:
        return self._value_impl()

    @property
    def dual_value(self) -> Array | None:
        """ν, the multiplier of u = Aθ in f(u, …) + νᵀ(u − Aθ), one entry per row, read-only; None before a solve.

        Its nonzeros are the support vectors: −ν is a subgradient of the (minimized) outer problem in u.
        """
        return self.data.theta._duals.get(self.data.fingerprint)

    def _grad(self, values: Any) -> list[Any]:
        return [None]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse_plain_problem(self)

    def __mul__(self, other: Any) -> Any:
        return super().__mul__(self._no_matrix_product(_data(other)))

    def __rmul__(self, other: Any) -> Any:
        return super().__rmul__(self._no_matrix_product(_data(other)))

    def _no_matrix_product(self, other: Any) -> Any:
        """Refuse `y * theta(X)`: in cvxpy it is the matrix product, one number."""
        if np.ndim(other) or (isinstance(other, cp.Expression) and not other.is_scalar()):
            raise DataError(
                "Expected a number to multiply predictions by; `*` with an array is the matrix product in cvxpy. Write "
                "cp.multiply(y, theta(X)), or ko.margin(y, theta(X)) for labels, or y @ theta(X) if a sum is meant."
            )
        return other

    def __add__(self, other: Any) -> Any:
        return _before_pandas(super().__add__(self._beside(other)))

    def __radd__(self, other: Any) -> Any:
        return _before_pandas(super().__radd__(self._beside(other)))

    def __sub__(self, other: Any) -> Any:
        return _before_pandas(super().__sub__(self._beside(other)))

    def __rsub__(self, other: Any) -> Any:
        return _before_pandas(super().__rsub__(self._beside(other)))

    def __matmul__(self, other: Any) -> Any:
        return super().__matmul__(_data(other))

    def __rmatmul__(self, other: Any) -> Any:
        return super().__rmatmul__(_data(other))

    def __truediv__(self, other: Any) -> Any:
        return super().__truediv__(_data(other))

    def __le__(self, other: Any) -> Any:
        return super().__le__(self._beside(other))

    def __ge__(self, other: Any) -> Any:
        return super().__ge__(self._beside(other))

    def __eq__(self, other: object) -> Any:
        return super().__eq__(self._beside(other))

    def _beside(self, other: Any) -> Any:
        """What stands in a sum or comparison with predictions. Raises DataError for masked entries and other shapes."""
        shape = getattr(_data(other), "shape", ())
        if isinstance(other, (list, tuple)):
            with suppress(ValueError):  # rows of different lengths, which cvxpy refuses
                shape = np.shape(other)
        try:
            np.broadcast_shapes(self.shape, shape)
        except (TypeError, ValueError):
            rows, *outputs = self.shape
            remedy = f" There is one row per point of X, {rows}."
            if outputs and shape == (rows,):
                remedy = " For one output write theta[:, k](X); for the same numbers beside all of them y[:, None]."
            expected = f"shape {self.shape}, as predictions have,"
            raise DataError(
                f"Expected a number or an array of {expected} beside them; got shape {shape}.{remedy}"
            ) from None
        return other

    __hash__ = AffAtom.__hash__


def _data(other: Any) -> Any:
    """Refuse masked entries and dates, which cvxpy would read as data. Those in its own atoms are not seen here."""
    refuse_masked(other, BESIDE)
    refuse_dates(other, BESIDE)
    return other


def _before_pandas(expression: Any) -> Any:
    """Give sums the priority of a Prediction, so that `series - (theta(X) + b)` is a cvxpy expression too."""
    if expression is not NotImplemented:
        expression.__pandas_priority__ = Prediction.__pandas_priority__
    return expression


class ThetaNorm(_Unmasked, Atom):
    """‖θM − f₀‖ as a cvxpy atom: convex, nonnegative, and not monotone in θ."""

    def __init__(self, leaf: cp.Variable, view: Any, kind: str | int) -> None:
        self.view = view
        self.kind = kind
        super().__init__(leaf)

    def get_data(self) -> list[Any]:
        return [self.view, self.kind]

    def fingerprint(self) -> object:
        """Equal for norms that are equal for every θ."""
        right, shift = self.view.right, self.view.shift
        return (
            self.view.theta,
            None if right is None else key(right),
            None if shift is None else (key(shift._centers), key(shift.coefficients)),
            self.kind,
        )

    def shape_from_args(self) -> tuple[int, ...]:
        return ()

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:
        return False

    def is_decr(self, idx: int) -> bool:
        return False

    def name(self) -> str:
        kind = "" if self.kind == EUCLIDEAN else f"_{self.kind}"
        view = repr(self.view)
        return f"‖{view[1:-1] if view.startswith('(') and view.endswith(')') else view}‖{kind}"

    def _value_impl(self) -> Any:
        f = self.view.theta.value
        if f is None:
            return None
        return np.array(norm_from_gram(view_gram(self.view, f), self.kind))

    def numeric(self, values: Any) -> Any:
        return self._value_impl()

    def _grad(self, values: Any) -> list[Any]:
        return [None]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse_plain_problem(self)


def renew_ids(*problems: cp.Problem) -> None:
    """Give leaves and constraints new ids, and drop cached values that contain the old ones; equal ids stay equal.

    cvxpy identifies leaves by numbers that are unique within one process only. In a copy from another process or from a
    file, they may equal the numbers of other variables here. The problems must not have been compiled yet.
    """
    renewed: dict[int, int] = {}
    for node in {id(node): node for problem in problems for node in _named_by_ids(problem)}.values():
        node.id = renewed.setdefault(node.id, get_id())
    nodes: list[Any] = [*problems]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
            continue
        nodes += node.args
        forget(node)


def _named_by_ids(problem: cp.Problem) -> list[Any]:
    duals = [dual for constraint in problem.constraints for dual in constraint.dual_variables]
    return [*problem.variables(), *problem.parameters(), *problem.constraints, *duals]


def view_gram(view: Any, f: Function) -> Array:
    """(θM − f₀)ᵀ(θM − f₀) for a function θ = f."""
    M = np.eye(f.outputs or 1) if view.right is None else view.right.reshape(len(view.right), -1)
    gram = M.T @ f.gram() @ M
    if view.shift is None:
        return gram
    cross = view.shift.gram(f) @ M
    return np.asarray(gram - cross - cross.T + view.shift.gram())


def norm_from_gram(G: Array, kind: str | int) -> float:
    """A norm of θ from G = θᵀθ: with σᵢ² its eigenvalues, √Σσᵢ² ("fro"), Σσᵢ ("nuc") or max σᵢ (2)."""
    if G.size == 1:  # one output: no decomposition
        return sqrt(max(G.item(), 0.0))
    # Rounding can make eigenvalues of a Gram matrix slightly negative.
    singular = np.sqrt(np.clip(np.linalg.eigvalsh((G + G.T) / 2), 0.0, None))
    if kind == "nuc":
        return float(singular.sum())
    return float(singular.max() if kind == 2 else np.linalg.norm(singular))


def _refuse_plain_problem(atom: Atom) -> NoReturn:
    raise DCPError(
        f"{atom.name()} is a node of kernelopt, which cp.Problem cannot compile. Write ko.Problem(objective, "
        "constraints) instead of cp.Problem(objective, constraints)."
    )
