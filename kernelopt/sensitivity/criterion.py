"""A criterion of an answer: its value and its derivative by predictions at any points, by variables and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import rules
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink, cut, rewrite
from kernelopt.errors import DataError, KernelOptError
from kernelopt.language.expressions import Theta
from kernelopt.support.types import Array


class Criterion(NamedTuple):
    """The tree of a sum, cut where θ enters it, with variables in place of parameters.

    of_y : the user's variables, and those that stand for them; of_parameters : the same for parameters
    """

    expression: cp.Expression
    predictions: tuple[PredictionLink, ...]
    norms: tuple[NormLink, ...]
    of_y: tuple[cp.Variable, ...]
    of_parameters: tuple[tuple[cp.Parameter, cp.Variable], ...]


class Slopes(NamedTuple):
    """The value, and derivatives: of each link's predictions (n, K), each norm, each y, each parameter (by id)."""

    value: float
    predictions: tuple[Array, ...]
    norms: Array
    y: tuple[Array, ...]
    parameters: dict[int, Array]


def criterion_of(stated: Any, thetas: Sequence[Theta], variables: Sequence[cp.Variable]) -> Criterion:
    """The sum of a stated expression of any curvature. Raises DataError for one of another problem."""
    total = cp.Minimize(cp.sum(stated))
    form = cut(total, (), replace(rules.inspect(total, ()), smooth=()))
    foreign = [link.theta for link in form.predictions if not any(link.theta is theta for theta in thetas)]
    if foreign:
        raise DataError(f"Expected a criterion of the problem's own functions; {foreign[0]!r} is none of them.")
    unknown = [v for v in form.y if not any(v is known for known in variables)]
    if unknown:
        raise DataError(f"Expected variables of the problem in the criterion; {unknown[0].name()} is none.")
    parameters = {p: cp.Variable(p.shape, name=p.name()) for p in form.outer.parameters()}
    cast = rewrite(form.outer, {id(p): v for p, v in parameters.items()}) if parameters else form.outer
    return Criterion(cast.objective.args[0], form.predictions, form.norms, tuple(form.y), tuple(parameters.items()))


class Place(NamedTuple):
    """Where a criterion is evaluated: predictions of each link (distinct rows, K), norms, and variables."""

    f: tuple[Array, ...]
    t: tuple[float, ...]
    y: tuple[Any, ...]


@contextmanager
def placed(criterion: Criterion, place: Place) -> Iterator[None]:
    """Give the variables of a criterion their values; those of the user get theirs back."""
    kept = [v.value for v in criterion.of_y]
    try:
        for link, values in zip(criterion.predictions, place.f, strict=True):
            if link.u is not None:
                link.u.save_value(values[link.take].reshape(link.u.shape))
        for norm, length in zip(criterion.norms, place.t, strict=True):
            norm.t.save_value(np.asarray(length))
        for v, value in zip(criterion.of_y, place.y, strict=True):
            v.save_value(value)
        for parameter, variable in criterion.of_parameters:
            variable.save_value(np.asarray(parameter.value))
        yield
    finally:
        for v, old in zip(criterion.of_y, kept, strict=True):
            v.save_value(old)


def slopes(criterion: Criterion, place: Place) -> Slopes:
    """Value and derivatives at a place. Raises KernelOptError where the criterion has no derivative there."""
    with placed(criterion, place):
        number, grad = criterion.expression.value, criterion.expression.grad
    if number is None or not np.isfinite(number):
        raise KernelOptError(f"Expected a criterion with a finite value at the answer; got {number}.")
    if any(g is None for g in grad.values()):
        raise KernelOptError("Expected a criterion with a derivative at the answer; it is at the end of its domain.")

    def of(variable: cp.Variable | None) -> Array:
        g = None if variable is None else grad.get(variable)
        if variable is None or g is None:
            return np.zeros(() if variable is None else variable.shape)
        return np.reshape(np.ravel(g.toarray() if sp.issparse(g) else g), variable.shape, order="F")

    predictions = []
    for link in criterion.predictions:
        total = np.zeros((len(link.rows), link.theta.outputs or 1))
        if link.u is not None:
            np.add.at(total, link.take, of(link.u).reshape(len(link.take), -1))
        predictions.append(total)
    return Slopes(
        float(np.ravel(number)[0]),
        tuple(predictions),
        np.array([float(of(norm.t)) for norm in criterion.norms]),
        tuple(of(v) for v in criterion.of_y),
        {p.id: of(v) for p, v in criterion.of_parameters},
    )


def twins(form: CanonicalForm, variables: Sequence[cp.Variable]) -> list[int]:
    """For each variable of the user, the number of its twin among the form's y, −1 where it dropped out."""
    users = [form.users.get(v.id, v) for v in form.y]
    return [next((k for k, u in enumerate(users) if u is v), -1) for v in variables]
