"""What an inequality's g is made of: its coefficients at points, by values or as far as its code shows them.

    g(x) = Σ_α (∂^αf(x))ᵀc_α(x) + Σ_j c_j(x)·(fixed functionals of θ, entries of variables) + c₀(x)

A margin is cut where θ enters: variables take the place of predictions, and twins that of the user's variables. Then c
are its derivatives, and values for random numbers in place of the functionals compare c at many points at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import rules
from kernelopt.compiler.canonical_form import rewrite, twin
from kernelopt.kernels.chain import Order
from kernelopt.language.expressions import FeatureMatrix, Theta
from kernelopt.language.nodes import Prediction
from kernelopt.language.symbol import PointSymbol
from kernelopt.support.cvxpy_parts import JOINTLY_LINEAR, PRODUCTS, DivExpression, Leaf, jacobians
from kernelopt.support.types import Array

NUMBERS = "numbers"


class Moving(NamedTuple):
    """The functional ∂^αf_k(x)."""

    theta: Theta
    order: Order
    output: int


class Staying(NamedTuple):
    """A functional of output k of θ that does not depend on x: a row at a point that stays, or of a function."""

    theta: Theta
    order: Order
    row: Hashable
    output: int


class Entry(NamedTuple):
    """An entry of a user's variable."""

    variable: int
    at: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Parts:
    """A margin at points P, cut: the affine expression in stand-ins for predictions and for the user's variables."""

    P: Array
    margin: cp.Expression
    predictions: tuple[tuple[Prediction, cp.Variable], ...]
    variables: tuple[tuple[cp.Variable, cp.Variable], ...]

    @property
    def numbers(self) -> Array:
        """c₀ at the points, (n, K)."""
        return self.at({})

    def at(self, values: Mapping[int, Array]) -> Array:
        """The margin for values of the stand-ins by their ids, 0 for the others, (n, K)."""
        for _, v in (*self.predictions, *self.variables):
            v.save_value(values.get(v.id, np.zeros(v.shape)))
        return np.asarray(self.margin.value, dtype=float).reshape(len(self.P), -1)


def parts(margin: cp.Expression, P: Array) -> Parts:
    """The tree of a margin, cut where θ enters it."""
    total = cp.Minimize(cp.sum(margin))
    predictions = tuple((p, cp.Variable(p.shape)) for p in rules.inspect(total, ()).predictions)
    stand_ins = {id(p): u for p, u in predictions}
    without = rewrite(cp.Problem(total), stand_ins)
    own = {u.id for _, u in predictions}
    variables = tuple((v, twin(v)) for v in without.variables() if v.id not in own)
    outer = rewrite(without, {id(v): y for v, y in variables})
    return Parts(P, outer.objective.args[0].args[0], predictions, variables)


def row_names(A: FeatureMatrix) -> list[Hashable]:
    """For each row of A a name that is equal for equal rows at points, and for rows of equal functions."""
    if A.function is not None:
        return [(A.fingerprint(), row) for row in range(len(A))]
    return [x.tobytes() for x in A._X + 0.0]


def coefficients(found: Parts) -> dict[Hashable, Array]:
    """The coefficients (n, K) of all that an affine margin is made of."""
    P, numbers = found.P, found.numbers
    known: dict[Hashable, Array] = {NUMBERS: numbers}

    def add(key: Hashable, point: int, k: int, value: float) -> None:
        known.setdefault(key, np.zeros(numbers.shape))[point, k] += value

    slopes = jacobians(found.margin)
    at_points = [x.tobytes() for x in P + 0.0]
    for node, u in found.predictions:
        A, names = node.data.A, row_names(node.data.A)
        for at, point, k, value in _nonzeros(slopes.get(u.id), u, len(P)):
            theta, output = node.data.theta, at[1] if len(at) > 1 else 0
            moves = A.function is None and names[at[0]] == at_points[point]
            key = Moving(theta, A.order, output) if moves else Staying(theta, A.order, names[at[0]], output)
            add(key, point, k, value)
    for v, y in found.variables:
        for at, point, k, value in _nonzeros(slopes.get(y.id), y, len(P)):
            add(Entry(v.id, at), point, k, value)
    return known


def _nonzeros(slope: Any, v: cp.Variable, n: int) -> Iterator[tuple[tuple[int, ...], int, int, float]]:
    """The nonzero derivatives by a variable: its entry, the point, the column of the margin, and the value."""
    if slope is None:
        return
    J = sp.coo_array(slope)
    entries = np.unravel_index(J.row, v.shape, order="F") if v.shape else ()
    for i, (column, value) in enumerate(zip(J.col, J.data, strict=True)):
        yield tuple(int(e[i]) for e in entries), int(column) % n, int(column) // n, float(value)


def trial(found: Parts, affine: Mapping[Hashable, Array], unit: float) -> tuple[Array, Array]:
    """The margin without c₀ for random values of the functionals, and its value by affine coefficients, both (n, K).

    affine : (1 + d, K) for each functional; its value is drawn from ±[½, 1]·unit/(its largest coefficient), so that
    each deviates from affine visibly, whatever the sizes of the others.
    """
    rng, P = np.random.default_rng(1), found.P
    basis = np.hstack([np.ones((len(P), 1)), P])
    reach = np.abs(basis).max(axis=0)

    def drawn(shape: tuple[int, ...], key: Hashable) -> Array:
        size = float((reach @ np.abs(affine[key])).max()) if key in affine else 0.0
        return rng.uniform(0.5, 1.0, shape) * rng.choice([-1.0, 1.0], shape) * (unit / size if size > 0 else unit)

    stay = {key: float(drawn((), key)) for key in affine if isinstance(key, (Staying, Entry))}
    at_points: dict[bytes, int] = {}
    moving: dict[Hashable, Array] = {}

    def values_at_points(key: Moving) -> Array:
        """∂^αf_k(xᵢ), equal to that of a fixed functional where that is the same."""
        if key not in moving:
            moving[key] = drawn((len(P),), key)
            for other, value in stay.items():
                if isinstance(other, Staying) and (other.theta, other.order, other.output) == key:
                    i = places().get(other.row)
                    moving[key][[] if i is None else [i]] = value
        return moving[key]

    def places() -> dict[Any, int]:
        if not at_points:
            at_points.update({x.tobytes(): i for i, x in enumerate(P + 0.0)})
        return at_points

    def of_row(key: Staying) -> float:
        if key in stay:
            return stay[key]
        i = places().get(key.row)
        return float(drawn((), key) if i is None else values_at_points(Moving(key.theta, key.order, key.output))[i])

    given: dict[int, Array] = {}
    for node, u in found.predictions:
        A, theta = node.data.A, node.data.theta
        columns = []
        names = None if A.function is None and np.array_equal(A._X, P) else row_names(A)
        for output in range(theta.outputs or 1):
            if names is None:
                columns.append(values_at_points(Moving(theta, A.order, output)))
            else:
                columns.append(np.array([of_row(Staying(theta, A.order, name, output)) for name in names]))
        given[u.id] = np.stack(columns, axis=-1).reshape(u.shape)
    for v, y in found.variables:
        filled = np.empty(y.shape)
        for at in np.ndindex(y.shape):
            entry = Entry(v.id, at)
            filled[at] = stay[entry] if entry in stay else drawn((), entry)
        given[y.id] = filled
    constant = sum((c * stay[key] for key, c in affine.items() if key in stay), np.zeros((basis.shape[1], 1)))
    expected = basis @ constant
    for key, c in affine.items():
        if isinstance(key, Moving):
            expected = expected + (basis @ c) * values_at_points(key)[:, None]
    return found.at(given) - found.numbers, expected


# ---------------------------------------------------------------- what code shows of them

NONE, CONSTANT, AFFINE, UNKNOWN = -np.inf, 0.0, 1.0, 2.0


def degrees(node: Any) -> tuple[float, float]:
    """How the coefficients of θ and the variables, and the numbers, of an affine tree depend on symbolic points.

    The largest degree of each in the points, as far as operations show it: −∞ where there are none, and above 1 where
    it is not known.
    """
    if isinstance(node, (Prediction, cp.Variable)):
        return CONSTANT, NONE
    if isinstance(node, PointSymbol):
        return NONE, AFFINE if node.is_affine_in_points else UNKNOWN
    if isinstance(node, Leaf):
        # Numbers that feature matrices at a symbol give are NaN.
        return NONE, CONSTANT if isinstance(node, cp.Parameter) or not np.isnan(_dense(node)).any() else UNKNOWN
    of_args = [degrees(a) for a in node.args]
    most = max(c for c, _ in of_args), max(h for _, h in of_args)
    if isinstance(node, PRODUCTS):
        (c, h), (d, k) = of_args
        return max(c + k, h + d), h + k
    if max(most) <= CONSTANT or isinstance(node, JOINTLY_LINEAR):
        return most
    if isinstance(node, DivExpression) and max(of_args[1]) <= CONSTANT:
        return of_args[0]
    return (UNKNOWN if most[0] > NONE else NONE), UNKNOWN


def _dense(node: Any) -> Array:
    return np.asarray(node.value.data if sp.issparse(node.value) else node.value, dtype=float)
