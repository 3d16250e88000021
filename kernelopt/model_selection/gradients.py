"""The gradient of a criterion by the parameters of a problem, through its optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError, KernelOptError, ParameterError
from kernelopt.kernels.domains import frozen
from kernelopt.language.expressions import Theta
from kernelopt.model_selection.leave_one_out import fitted
from kernelopt.problem import Problem
from kernelopt.sensitivity import solution_map
from kernelopt.sensitivity.criterion import Criterion, criterion_of, placed
from kernelopt.sensitivity.optimum import MOST, Optimum, nearby
from kernelopt.sensitivity.solution_map import Derivative
from kernelopt.sensitivity.stated_cones import follows_rules
from kernelopt.support.types import Array

# Relative to the units of slacks and multipliers: a row this near to the other case counts as at a point where the
# optimum has no derivative. Polished points are exact to about 1e-12 of these units.
NEAR = 1e-6
# The error of a gradient in units of the sizes of its terms: a multiple of the residual of the adjoint system, of the
# optimality conditions, and of the rounding of kernel values.
SHARE, ROUNDED = 100.0, 1e-11


@dataclass(frozen=True, eq=False, repr=False)
class Gradient(Mapping[cp.Parameter, Array]):
    """A criterion's value and its gradient: `found[p]` has the shape of the parameter p; made by `ko.gradient`.

    Attributes
    ----------
    value : the criterion at the optimum
    errors : for each parameter an estimate of the gradient's error, in its shape
    near : predictions (θ, number) whose row of the problem is within 1e-6 of the other side of a kink or a bound, in
        units of predictions and of the largest multiplier. There the optimum has no derivative, or changes it nearby.
        What is given is then the derivative with these rows as they are, a one-sided one at most.
    """

    value: float
    gradients: Mapping[cp.Parameter, Array]
    errors: Mapping[cp.Parameter, Array]
    near: tuple[tuple[Theta, int], ...]

    @property
    def is_differentiable(self) -> bool:
        """Whether no row is near the other side of a kink or a bound."""
        return not self.near

    def __getitem__(self, parameter: cp.Parameter) -> Array:
        return self.gradients[parameter]

    def __iter__(self) -> Iterator[cp.Parameter]:
        return iter(self.gradients)

    def __len__(self) -> int:
        return len(self.gradients)

    def __repr__(self) -> str:
        lines = [f"value {self.value:.6g}"]
        for p, g in self.gradients.items():
            size = f"{float(g):.6g}" if np.ndim(g) == 0 else f"shape {np.shape(g)}, norm {np.linalg.norm(g):.6g}"
            lines.append(f"d/d {p.name()}: {size} ± {float(np.max(self.errors[p])):.1g}")
        if self.near:
            several = ", ".join(f"{theta!r} {number}" for theta, number in self.near[:5])
            lines.append(f"no derivative: {len(self.near)} predictions at a kink's end or bound ({several})")
        return "\n".join(lines)


def gradient(
    problem: Problem,
    criterion: Any,
    parameters: Sequence[cp.Parameter] | None = None,
    *,
    at: cp.Expression | None = None,
) -> Gradient:
    """The gradient of a criterion by parameters of a problem, through its optimum (θ*, y*).

    With the optimality conditions R(θ, y, multipliers; p) = 0 at the optimum, whose derivative K is symmetric,

        dφ/dp = ∂φ/∂p − rᵀ ∂R/∂p,    K r = ∇φ:

    one linear system for all parameters. It takes all convex problems with linear, second-order, exponential and power
    cones and `SmoothLoss`, with norms ‖θ‖ of any use, constraints, several θ and outputs; a nonconvex `SmoothLoss` at
    its local optimum. Smooth stretches of a loss have curvature, predictions at a kink or a bound stay there, and rows
    on a linear stretch keep their multiplier. (Agrawal, Barratt, Boyd, Busseti and Moursi, J. Appl. Numer. Optim. 1,
    2019; Bertrand et al., JMLR 23, 2022.)

    The answer of the last solve is refined first: active rows are found around it, and Newton's method on what remains
    ends at an optimum to rounding, so that the gradient does not depend on the solve's tolerance. Up to 2000 rows θ is
    not restricted to the factor's span; with more it stays in it.

    Parameters
    ----------
    problem : Problem
        Solved, with an answer.
    criterion : expression of shape (), objective, or function
        Any cvxpy expression of predictions at any points and of the problem's variables and parameters, of any
        curvature; `problem.objective` for the optimal value, which needs no system; or, with `at`, a function of the
        values of `at` that returns the criterion and its gradient in the shape of `at`.
    parameters : sequence of cp.Parameter, optional
        Those of the problem that the gradient is wanted for; by default all. In objective and constraints they must
        follow cvxpy's rules for parameters (DPP), one at a time; in kernels they may stand for any real number.
    at : expression
        Predictions and variables, of any shape, that a function as criterion takes.

    Returns
    -------
    Gradient
        A mapping of parameters to gradients in their shape, with the value, estimates of errors, and rows near to a
        point without a derivative.

    Raises
    ------
    KernelOptError
        Before a solve; where the answer is no regular optimum, as with variables that the problem does not determine;
        for integers, the spectral form, cones and norms without a derivative here.
    ParameterError
        For parameters of another problem, and without a value.
    DataError
        For a criterion of another kind, or of other functions and variables.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).standard_t(2, size=60)
    >>> lam = cp.Parameter(nonneg=True, value=1.0, name="lam")
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    >>> train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    >>> errors = ko.losses.absolute_error(y[train], theta(X[train]) + b)
    >>> problem = ko.Problem(cp.Minimize(cp.sum(errors) + lam * ko.sum_squares(theta)))
    >>> _ = problem.solve()
    >>> found = ko.gradient(problem, cp.sum(ko.losses.huber(y[test], theta(X[test]) + b)), [lam])
    >>> round(found.value, 3), round(float(found[lam]), 3), bool(found.errors[lam] < 1e-9)
    (25.312, 0.467, True)
    """
    chosen = _parameters(problem, parameters)
    _require_number(criterion)
    form, reduction, outer = fitted(problem)
    if outer is None:
        raise KernelOptError(
            "Expected a continuous problem; one with integers, or of the spectral form, has no derivative here."
        )
    if changed := problem._changed_since():
        raise KernelOptError(f"Expected the values of the last solve; {', '.join(changed)} changed since. Solve again.")
    form, point = problem._private_form(), problem._present_point()
    in_data = [p for p in chosen if any(p is q for q in form.outer.parameters())]
    together = follows_rules(form, in_data)
    value, near = 0.0, tuple[tuple[Theta, int], ...]()
    gradients, errors = {p: np.zeros(p.shape) for p in chosen}, {p: np.zeros(p.shape) for p in chosen}
    for number, group in enumerate([in_data] if together else [[p] for p in in_data]):
        found = solution_map.at_optimum(form, reduction, point, group)
        derivative, sign = _derivative(problem, found, criterion, at)
        value, share, adjoint = sign * derivative.value, _share(problem, found, derivative), derivative.adjoint
        near = () if adjoint is None else nearby(found, NEAR, adjoint.move, adjoint.x)
        # Parameters of kernels and of the criterion alone have the same derivative in each group.
        of_group = [
            p for p in chosen if any(p is q for q in group) or (number == 0 and not any(p is q for q in in_data))
        ]
        for p in of_group:
            if p.id in derivative.of_parameters:
                gradients[p], sizes = (np.array(sign * a, dtype=float) for a in derivative.of_parameters[p.id])
                errors[p] = np.array(share * np.abs(sizes))
    known = [{p: frozen(a) for p, a in parts.items()} for parts in (gradients, errors)]
    return Gradient(value, known[0], known[1], near)


def _require_number(criterion: Any) -> None:
    """Raise DataError for anything but an expression of one number, an objective or a function."""
    if isinstance(criterion, cp.Expression):
        if criterion.size != 1 or criterion.is_complex():
            raise DataError(
                f"Expected a criterion that is one real number; got an expression of shape {criterion.shape}."
            )
    elif not isinstance(criterion, (cp.Minimize, cp.Maximize)) and not callable(criterion):
        raise DataError(f"Expected a criterion as an expression, problem.objective or a function; got {criterion!r}.")


def _derivative(problem: Problem, found: Optimum, criterion: Any, at: cp.Expression | None) -> tuple[Derivative, float]:
    """The derivative, and the sign of its criterion beside the one that is meant."""
    if isinstance(criterion, (cp.Minimize, cp.Maximize)):
        if criterion is not problem.objective:
            raise DataError("Expected the problem's own objective, problem.objective, or an expression.")
        return solution_map.of_value(found), -1.0 if isinstance(criterion, cp.Maximize) else 1.0
    if callable(criterion) and not isinstance(criterion, cp.Expression):
        value, cut = _linearized(problem, found, criterion, at)
        return solution_map.derivative(found, cut)._replace(value=value), 1.0
    if at is not None:
        raise DataError("Expected `at` beside a function as criterion only; got an expression. Leave out `at`.")
    return solution_map.derivative(found, criterion_of(criterion, problem.thetas(), problem.variables())), 1.0


def _linearized(
    problem: Problem, found: Optimum, function: Callable[..., Any], at: cp.Expression | None
) -> tuple[float, Criterion]:
    """The function's value, and Σ slope·at in place of it."""
    if not isinstance(at, cp.Expression):
        raise DataError(f"Expected `at`, the expression whose values the criterion takes; got {at!r}.")
    values = _values(problem, found, at)
    value, slope = function(values.copy())
    slope = np.asarray(slope, dtype=float)
    if np.ndim(value) != 0 or not np.isfinite(value) or slope.shape != at.shape or not np.isfinite(slope).all():
        raise DataError(
            f"Expected the criterion to return a number and its gradient, of shape {at.shape}, both finite; got "
            f"{value!r} and an array of shape {slope.shape}."
        )
    cut = criterion_of(cp.sum(cp.multiply(slope, at)), problem.thetas(), problem.variables())
    return float(value), cut


def _values(problem: Problem, found: Optimum, at: cp.Expression) -> Array:
    """The values of an expression at the refined optimum."""
    cut = criterion_of(at, problem.thetas(), problem.variables())
    with placed(cut, solution_map.at(found, cut)):
        return np.array(cut.expression.args[0].value, dtype=float)


def _share(problem: Problem, found: Optimum, derivative: Derivative) -> float:
    """The estimated error in units of the sizes of a gradient's terms."""
    residual = 0.0 if derivative.adjoint is None else derivative.adjoint.residual
    share = ROUNDED + SHARE * (residual + found.residual)
    certificate = problem.certificate
    rows = max((len(link.rows) for link in found.form.predictions), default=0)
    if rows > MOST and certificate is not None and found.reduction.is_restriction:
        # ‖θ̂ − θ*‖ ≤ √(2·gap/(μ/t)), relative to ‖θ*‖.
        far = [np.sqrt(2 * certificate.absolute_gap / (n.mu * n.t)) for n in found.system.norms if n.mu * n.t > 0]
        share += max(far, default=0.0)
    return float(share)


def _parameters(problem: Problem, parameters: Sequence[cp.Parameter] | None) -> list[cp.Parameter]:
    """The wanted parameters. Raises ParameterError for others than the problem's."""
    known = problem.parameters()
    if isinstance(parameters, cp.Parameter):
        parameters = [parameters]
    chosen = known if parameters is None else list(parameters)
    for p in chosen:
        if not isinstance(p, cp.Parameter) or not any(p is q for q in known):
            shown = p.name() if isinstance(p, cp.Parameter) else repr(p)
            names = ", ".join(q.name() for q in known) or "none"
            raise ParameterError(f"Expected parameters of the problem, {names}; got {shown}.")
    if not chosen:
        raise ParameterError("Expected a problem with parameters; got none. Declare λ = cp.Parameter(nonneg=True).")
    return list(dict.fromkeys(chosen))
