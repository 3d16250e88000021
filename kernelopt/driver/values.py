"""Values of the user's own objects: written once after a solve, and restored after a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.explicit import ExplicitSource
from kernelopt.compiler.iterate import Iterate
from kernelopt.errors import ParameterError
from kernelopt.kernels.sources import refuse_masked
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Solution
from kernelopt.support.checks import shown


def _as_cvxpy_has_it(variable: cp.Variable, value: Any) -> Any:
    """A value as cvxpy stores it: of a diagonal variable as a sparse matrix."""
    return value if value is None or not variable.attributes["diag"] else sp.diags_array(np.diagonal(dense(value)))


def write(
    form: CanonicalForm, constraints: Sequence[Any], source: ExplicitSource | None, solution: Solution,
    point: Iterate | None,
) -> None:  # fmt: skip
    """Write θ as a function, values of variables, and multipliers; all of them are None without a point.

    With a `source`, the explicit problem that was translated gets them, too.
    """
    for variable, value in zip(form.y, (None,) * len(form.y) if point is None else point.y, strict=True):
        form.users[variable.id].save_value(_as_cvxpy_has_it(variable, value))
    for link in form.predictions:
        function = solution.functions.get(link.theta)
        named = None if function is None else function._named(link.theta._names())
        link.theta._set_solution(named, solution.duals.get(link.theta, {}))
    for constraint in [*constraints, *([] if source is None else source.problem.constraints)]:
        known = () if point is None else point.duals.get(constraint.id, ())
        for place, value in zip(
            constraint.dual_variables, known or (None,) * len(constraint.dual_variables), strict=True
        ):
            place.save_value(value)
    if source is not None:
        function = solution.functions.get(source.theta)
        source.variable.save_value(None if function is None else source.theta_value(function))


def with_values(named: Iterable[Any], constraints: Sequence[Any], source: ExplicitSource | None) -> list[Any]:
    """What has a value besides θs: variables and parameters, the explicit θ, and multipliers of constraints."""
    if source is not None:
        named, constraints = [*named, source.variable], [*constraints, *source.problem.constraints]
    return [*named, *(dual for constraint in constraints for dual in constraint.dual_variables)]


def kept(objects: Sequence[Any], thetas: Sequence[Theta]) -> Callable[[], None]:
    """A function that restores the present values of some objects and θs."""
    values = [(one, one.value) for one in objects]
    functions = [(theta, theta.value, theta._duals) for theta in thetas]

    def restore() -> None:
        for one, value in values:
            one.save_value(value)
        for theta, function, duals in functions:
            theta._set_solution(function, duals)

    return restore


@contextmanager
def of_parameters(values: Mapping[cp.Parameter, Any], known: Sequence[cp.Parameter]) -> Iterator[None]:
    """A context in which some of the known parameters have other values. Raises ParameterError."""
    for p in values:
        if not any(p is one for one in known):
            names = ", ".join(one.name() for one in known) or "none"
            raise ParameterError(f"Expected parameters of this problem as keys (there are: {names}); got {p!r}.")
    old = {p: p.value for p in values}
    try:
        for parameter, value in values.items():
            refuse_masked(value, f"the value of {parameter.name()}")
            try:
                parameter.value = value
            except (ValueError, TypeError) as error:
                raise ParameterError(
                    f"Expected a value that fits {parameter.name()}; got {shown(value)}. {error}"
                ) from error
        yield
    finally:
        for parameter, value in old.items():
            parameter.save_value(value)
