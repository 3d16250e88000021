"""The gradient of a criterion by the parameters of a problem, through its optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cvxpy as cp

from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import ParameterError
from kernelopt.problem import Problem, require_problem
from kernelopt.sensitivity.gradient_of import Gradient, gradient_of
from kernelopt.support.checks import require_kind


@one_at_a_time
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

    one linear system for all parameters. It takes all convex problems with linear, second-order, semidefinite,
    exponential and power cones and `SmoothLoss`, with any use of norms of θ and θ − f₀, constraints, several θ and
    outputs. It also takes a nonconvex `SmoothLoss` at its local optimum. Smooth pieces of a loss have curvature,
    predictions at a kink or a bound stay there, and rows on a linear piece keep their multiplier. (Agrawal, Barratt,
    Boyd, Busseti and Moursi, J. Appl. Numer. Optim. 1, 2019; Bertrand et al., JMLR 23, 2022.)

    The answer of the last solve is refined first. Active rows near it are identified, and Newton's method on the other
    conditions gives an optimum to rounding, so that the gradient does not depend on the tolerance of the solve. Above
    2000 rows θ stays in the span of the factor.

    Parameters
    ----------
    problem : Problem
        Solved, with an answer.
    criterion : expression of shape (), objective, or function
        Any cvxpy expression of predictions at any points and of the problem's variables and parameters, of any
        curvature; `problem.objective` for the optimal value, which needs no system; or, with `at`, a function of the
        values of `at` that returns the criterion and its gradient in the shape of `at`.
    parameters : sequence of cp.Parameter, optional
        Those of the problem, or the criterion, that the gradient is wanted for; by default all of the problem. In
        objective and constraints they must follow cvxpy's rules for parameters (DPP), one at a time; in kernels they
        may replace any real number.
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
        for integers, the spectral form, cones and norms without a derivative here; for an atom of the criterion without
        a derivative, such as `ceil`, at the end of its domain, or with one that differences of values contradict by
        more than 1e-5 of the derivative along a random direction.
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
    >>> found = ko.gradient(
    ...     problem, cp.sum(ko.losses.huber(y[test], theta(X[test]) + b)), [lam]
    ... )
    >>> round(found.value, 3), round(float(found[lam]), 3), bool(found.errors[lam] < 1e-6)
    (25.312, 0.467, True)
    """
    require_problem(problem)
    return gradient_of(problem._answer(), criterion, _parameters(problem, parameters, criterion), at)


def _parameters(problem: Problem, parameters: Sequence[cp.Parameter] | None, criterion: Any) -> list[cp.Parameter]:
    """The wanted parameters. Raises ParameterError for others than the problem's and the criterion's."""
    known = problem.parameters()
    if isinstance(parameters, cp.Parameter):
        parameters = [parameters]
    require_kind(parameters, (list, tuple, type(None)), "parameters", "a list of parameters of the problem, or None")
    chosen = known if parameters is None else list(parameters)
    known = [*known, *(criterion.parameters() if isinstance(criterion, cp.Expression) else [])]
    for p in chosen:
        if not isinstance(p, cp.Parameter) or not any(p is q for q in known):
            shown = p.name() if isinstance(p, cp.Parameter) else repr(p)
            names = ", ".join(q.name() for q in known) or "none"
            raise ParameterError(f"Expected parameters of the problem, {names}; got {shown}.")
    if not chosen:
        raise ParameterError("Expected a problem with parameters; got none. Declare λ = cp.Parameter(nonneg=True).")
    return list(dict.fromkeys(chosen))
