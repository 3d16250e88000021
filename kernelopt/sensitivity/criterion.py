"""A criterion of an answer: its value and its derivative by predictions at any points, by variables and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.compiler import rules
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink, links_of
from kernelopt.errors import DataError, ParameterError
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import ThetaLeaf
from kernelopt.sensitivity.chain_rule import Tree
from kernelopt.support.types import Array


class Criterion(NamedTuple):
    """An expression as stated, with what stands for predictions and norms in it, by their ids; and its variables."""

    expression: cp.Expression
    replaced: dict[int, cp.Expression]
    predictions: tuple[PredictionLink, ...]
    norms: tuple[NormLink, ...]
    of_y: tuple[cp.Variable, ...]


class Slopes(NamedTuple):
    """The value, and derivatives: of each link's predictions (n, K), each norm, each y, each parameter (by id).

    kinks : the names of atoms that are at a kink of the criterion
    """

    value: float
    predictions: tuple[Array, ...]
    norms: Array
    y: tuple[Array, ...]
    parameters: dict[int, Array]
    kinks: tuple[str, ...]


def criterion_of(stated: cp.Expression, thetas: Sequence[Theta], variables: Sequence[cp.Variable]) -> Criterion:
    """An expression of any curvature. Raises DataError for one of another problem."""
    total = cp.Minimize(cp.sum(stated))
    predictions, norms, replaced = links_of(rules.inspect(total, ()))
    foreign = [link.theta for link in predictions if not any(link.theta is theta for theta in thetas)]
    if foreign:
        raise DataError(f"Expected a criterion of the problem's own functions; {foreign[0]!r} is none of them.")
    of_y = tuple(v for v in stated.variables() if not isinstance(v, ThetaLeaf))
    unknown = [v for v in of_y if not any(v is known for known in variables)]
    if unknown:
        raise DataError(f"Expected variables of the problem in the criterion; {unknown[0].name()} is none.")
    return Criterion(stated, replaced, predictions, norms, of_y)


class Place(NamedTuple):
    """Where a criterion is evaluated: predictions of each link (distinct rows, K), norms, and variables.

    unit : of predictions and variables: smaller ones may be rounding of 0
    """

    f: tuple[Array, ...]
    t: tuple[float, ...]
    y: tuple[Any, ...]
    unit: float = 0.0


def value(criterion: Criterion, place: Place) -> Array:
    """The value of the expression at a place, in its shape."""
    given = _given(criterion, place)
    return Tree(criterion.expression, (), criterion.replaced).value(given)


def slopes(
    criterion: Criterion, place: Place, chosen: Sequence[cp.Parameter], ties: Mapping[str, int] | None = None
) -> Slopes:
    """Value and derivatives at a place, by the chosen parameters too; at kinks of atoms in `ties` a slope at random.

    Raises KernelOptError where the criterion has no derivative there, and for atoms without a rule for it.
    """
    missing = [p.name() for p in criterion.expression.parameters() if p.value is None]
    if missing:
        raise ParameterError(f"Expected parameters of the criterion with values; {missing[0]} has none. Set its value.")
    given = _given(criterion, place)
    given |= {p.id: np.asarray(dense(p.value), dtype=float) for p in chosen if _has(criterion.expression, p)}
    # θ itself varies, too, so that an atom that hides predictions is refused.
    hidden = [v.id for v in criterion.expression.variables() if isinstance(v, ThetaLeaf)]
    units = {link.u.id: place.unit for link in criterion.predictions if link.u is not None}
    units |= {v.id: place.unit for v in criterion.of_y}
    found = Tree(criterion.expression, [*given, *hidden], criterion.replaced, units).gradient(given, ties)

    def of(leaf: cp.Variable) -> Array:
        return found.slopes.get(leaf.id, np.zeros(leaf.shape))

    predictions = []
    for link in criterion.predictions:
        total = np.zeros((len(link.rows), link.theta.outputs or 1))
        if link.u is not None:
            np.add.at(total, link.take, of(link.u).reshape(len(link.take), -1))
        predictions.append(total)
    return Slopes(
        found.value,
        tuple(predictions),
        np.array([float(of(norm.t)) for norm in criterion.norms]),
        tuple(of(v) for v in criterion.of_y),
        {p.id: found.slopes[p.id] for p in chosen if p.id in found.slopes},
        found.kinks,
    )


def _given(criterion: Criterion, place: Place) -> dict[int, Array]:
    """The values of u, t and y, by their ids."""
    given = {
        link.u.id: values[link.take].reshape(link.u.shape)
        for link, values in zip(criterion.predictions, place.f, strict=True)
        if link.u is not None
    }
    given |= {norm.t.id: np.asarray(length) for norm, length in zip(criterion.norms, place.t, strict=True)}
    return given | {v.id: np.asarray(dense(y), dtype=float) for v, y in zip(criterion.of_y, place.y, strict=True)}


def _has(expression: cp.Expression, p: cp.Parameter) -> bool:
    return any(p is q for q in expression.parameters())


def twins(form: CanonicalForm, variables: Sequence[cp.Variable]) -> list[int]:
    """For each variable of the user, the number of its twin among the form's y, −1 where it dropped out."""
    users = [form.users.get(v.id, v) for v in form.y]
    return [next((k for k, u in enumerate(users) if u is v), -1) for v in variables]
