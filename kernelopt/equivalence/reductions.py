"""`ko.verify_reduction`: a problem in α that was derived by hand, beside the stated problem in θ."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import cvxpy as cp

from kernelopt.driver import values
from kernelopt.driver.options import factor_options
from kernelopt.driver.statement import one_at_a_time
from kernelopt.equivalence import findings, meanings
from kernelopt.equivalence.reduction_report import ReductionReport
from kernelopt.errors import DataError
from kernelopt.language.expressions import FeatureMatrix, Theta
from kernelopt.language.nodes import ThetaLeaf
from kernelopt.problem import Problem, require_problem
from kernelopt.support.checks import require_flag, require_kind


@one_at_a_time
def verify_reduction(
    stated: Problem,
    reduced: cp.Problem,
    functions: Mapping[Any, Any] | None = None,
    tol: float = 1e-6,
    *,
    dual: bool = False,
) -> ReductionReport:
    """Whether a kernelized problem that was derived by hand is equivalent to the stated problem in θ.

    The stated problem, minimize f(Aθ, ‖θ‖, y), is solved with its certificate, an enclosure [l, u] of its optimum for
    every θ. The reduced problem, minimize r(x) in any variables x, is solved with a certificate too. Where x means the
    functions θ = Σⱼ αⱼ(x) κ(xⱼ, ·), both problems are also compared function by function:

        min over y of f(Aθ, ‖θ‖, y) = min of r over the x that mean θ,

    at the reduced answer, at the stated answer θ̂, at six seeded random functions, and where on the way to these
    constraints begin to be violated. (x that mean one θ are given by
    the variables in `functions`; the others, such as slacks, are chosen best.) Differences are reported with numbers
    and, where terms of the two sums can be told apart, with the terms.

    Both problems are solved on copies: values of variables, parameters, θ and multipliers stay as they are.

    Parameters
    ----------
    stated : Problem
        In θ, solved or not; without `ko.everywhere`.
    reduced : cp.Problem
        On the same data, of the same sense (Minimize or Maximize), convex by the DCP rules.
    functions : mapping, optional
        {theta: (X, alpha)} for each θ: the centers X, points (M, d) or a `FeatureMatrix` with M rows, such as
        derivatives, and an affine expression alpha (M,), or (M, K) for K outputs, in the reduced variables. A list of
        such pairs is their sum. {theta: alpha} suffices where the stated problem evaluates θ at one feature matrix.
        {variable: expression} for variables of the stated problem; a variable that both problems have means itself,
        and for others the best values are taken.
    tol : largest difference of the optima, and of objectives at one function, that counts as none. Optima are compared
        in the unit of certificates: P₀ − P with P₀ the stated optimum at θ = 0, as for `Certificate.relative_gap`, and
        the sum T of the absolute values of the objective's terms where that is 0 (`report.unit`). Objectives at one
        function are compared relative to the sum of the absolute values of their terms.
    dual : True if the reduced problem is a dual, of the opposite sense. Strong duality is checked, and whether the
        function that the dual answer means attains the stated optimum, but not objectives function by function.

    Returns
    -------
    ReductionReport
        `is_equivalent` (True, False, or None where that is undecided), both enclosures, and counterexamples; prints as
        a table. If the representer theorem does not cover the stated problem, that is its finding.

    Raises
    ------
    DataTypeError
        For arguments that are no problems, and keys of `functions` that are no θ or variable of the stated problem.
    DataError
        For problems of different senses, coefficients that are constant, not affine in the reduced variables or of the
        wrong shape, and a θ without an entry.
    DCPError
        Where a problem is not convex by the DCP rules.
    ParameterError
        Where a parameter has no value.
    OptionError
        For a tol out of range.

    Notes
    -----
    A reduction can be right on some data only, as with a constraint that does not bind. Then the optima agree and the
    objectives, or the constraints, do not: `is_equivalent` is None. It is False where the optima differ, or where the
    reduced answer's function misses the stated optimum. A multiple of the stated objective has the same answers and
    another optimum: `is_equivalent` is False, and the finding tells the factor.

    Coefficients of a nearly singular Q have flat directions, which change nothing. Where no bound is proven with them,
    one is proven without them, for the same problem up to rounding of its matrices. Optima that are not proven, as
    those of mixed-integer solvers, decide nothing (`report.reduced.is_proven`). Functions are compared with arrays of
    M × M numbers for M coefficients. Points at which no solver finds the best values of the other variables are left
    out.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 3, 12)[:, None]
    >>> y = np.sin(2 * X[:, 0])
    >>> theta, alpha = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(12)
    >>> objective = cp.norm1(y - theta(X)) + 0.1 * ko.sum_squares(theta)
    >>> stated = ko.Problem(cp.Minimize(objective))
    >>> Q = theta.kernel(X)
    >>> objective = cp.norm1(y - Q @ alpha) + 0.1 * cp.quad_form(alpha, cp.psd_wrap(Q))
    >>> right = cp.Problem(cp.Minimize(objective))
    >>> ko.verify_reduction(stated, right, {theta: alpha}).is_equivalent
    True
    >>> objective = cp.norm1(y - Q @ alpha) + 0.1 * cp.sum_squares(alpha)
    >>> wrong = cp.Problem(cp.Minimize(objective))
    >>> ko.verify_reduction(stated, wrong, {theta: alpha}).is_equivalent
    False
    """
    require_problem(stated)
    _require_reduced(stated, reduced, dual)
    factor_options(tol)
    stated._require_no_boxes("verify_reduction")
    if broken := stated._inspect().violations:
        return _not_covered([str(violation) for violation in broken], float(tol))
    stated._require_parameter_values()
    meaning = meanings.read(stated.thetas(), stated.variables(), _matrices(stated), reduced, functions)
    restore = _kept(stated, reduced)
    try:
        return findings.compare(stated, reduced, meaning, float(tol), bool(dual))
    finally:
        restore()


def _require_reduced(stated: Problem, reduced: Any, dual: Any) -> None:
    """Raise errors for a reduced problem of another kind or sense, or in θ, or without values of its parameters."""
    remedy = "Pass the one in θ first." if isinstance(reduced, Problem) else ""
    require_kind(reduced, cp.Problem, "the reduced problem", "a cp.Problem in variables such as alpha", remedy)
    require_flag(dual, "dual")
    if any(isinstance(v, ThetaLeaf) for v in reduced.variables()):
        raise DataError("Expected a reduced problem in variables such as alpha; got one in θ.")
    same = type(stated.objective) is type(reduced.objective)
    if same is bool(dual):
        expected = "the opposite sense, as a dual has" if dual else "the same sense"
        remedy = (
            "Leave dual=True out, or negate the objective." if dual else
            "Negate one objective; if the reduced problem is a dual, write dual=True."
        )  # fmt: skip
        got = f"{type(stated.objective).__name__} and {type(reduced.objective).__name__}"
        raise DataError(f"Expected a reduced problem of {expected}; got {got}. {remedy}")
    for p in reduced.parameters():
        meanings.require_known(p)


def _matrices(stated: Problem) -> dict[Theta, list[FeatureMatrix]]:
    """The different feature matrices at which each θ is evaluated."""
    found: dict[Theta, dict[object, FeatureMatrix]] = {}
    for prediction in stated._inspect().predictions:
        found.setdefault(prediction.data.theta, {})[prediction.data.fingerprint] = prediction.data.A
    return {theta: list(matrices.values()) for theta, matrices in found.items()}


def _kept(stated: Problem, reduced: cp.Problem) -> Any:
    """A function that restores the answer of the stated problem, and values and multipliers of the reduced one."""
    of_stated = stated._keep()
    of_reduced = values.kept(values.with_values(reduced.variables(), reduced.constraints, None), [])

    def restore() -> None:
        of_stated()
        of_reduced()

    return restore


def _not_covered(violations: list[str], tol: float) -> ReductionReport:
    """The report where the theorem does not apply."""
    head = (
        "The representer theorem does not cover the stated problem, so that no kernelized problem need be equivalent "
        "to it:"
    )
    lines = [" ".join(line.split()) for text in violations for line in text.splitlines()]
    return ReductionReport(None, None, None, nan, tol, nan, "", (head, *lines))
