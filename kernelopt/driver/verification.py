"""Recompute an answer in the terms of the stated problem, and report how well each property holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernelopt.certificate import Certificate, Request, certify, certify_again
from kernelopt.certificate.multipliers import lengths_of, row_coefficients
from kernelopt.certificate.report import Lower
from kernelopt.compiler import canonical_form, integers, representer, violations
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.explicit import ExplicitSource
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver import local_optima, proximal_linearization
from kernelopt.driver.mixed_integer import Rest
from kernelopt.errors import DataError, KernelOptError, MemoryLimitError, OptionError, SolverError
from kernelopt.factorization import CholeskyFactor, Factor, carried
from kernelopt.kernels.domains import stack
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.text import names
from kernelopt.results.solution import Solution, Status
from kernelopt.solvers import choice, cvxpy_solvers
from kernelopt.solvers.nonconvex import FLAT
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.checks import shown
from kernelopt.support.cvxpy_parts import Inequality
from kernelopt.support.html import table
from kernelopt.support.types import Array, Ints

# Rows up to which N×N arrays are formed, and features up to which the explicit problem is solved: 32 MB per array.
LARGEST = 2000
SINGLE = 1e-4  # FACTOR for a factor in single precision: 1700 times its unit roundoff, for sums of so many terms
COLUMNS = 100  # columns of C that are checked where rows exceed LARGEST: more of them cost more products with Q
# Tolerance for identities of the factor, relative to trace(Q)/N or to the compared values: far above rounding, which an
# ill-conditioned L magnifies, and far below an error of the algebra.
FACTOR = 1e-7
# Relative to the largest ν: the evidence's may differ by that from the answer's, which it was moved from. Where a cone
# solver is inaccurate they differ by its tolerance; a ν that is wrong differs by more.
SAME = 1e-3
NOTHING_LEFT = 1e-10  # in units of the objective's data: terms up to that are those of an optimum of 0
# Roundings of an entry of Q or of a product with it, for which identities that divide by small pivots allow; and the
# largest such allowance.
ROUNDINGS, WORST = 8, 0.1


@dataclass(frozen=True)
class Check:
    """One line of a report: a number, its tolerance (None: not judged), and what the number is relative to."""

    name: str
    number: float
    tolerance: float | None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        return None if self.tolerance is None else bool(self.number <= self.tolerance)


@dataclass(frozen=True)
class Report:
    """What `problem.verify()` found; prints as a table.

    Attributes
    ----------
    checks : tuple of Check
    certificate : Certificate of the checked point, or None

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> objective = cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> report = problem.verify()
    >>> report.passed, report["duality gap"].passed
    (True, True)
    """

    checks: tuple[Check, ...]
    certificate: Certificate | None = None

    @property
    def passed(self) -> bool:
        """Whether all checks that have a tolerance passed."""
        return all(check.passed is not False for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if isinstance(name, str) and check.name.startswith(name):
                return check
        raise OptionError(f"Expected one of the checks {', '.join(c.name for c in self.checks)}; got {shown(name)}.")

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [
            f"{name:<{width}}  {number:>9}  {limit:<7}  {verdict:<4}  {note}".rstrip()
            for name, number, limit, verdict, note in self._cells()
        ]
        return "\n".join([*lines, *self._captions()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(self._cells(), ("check", "number", "limit", "", ""), self._captions(), left=True)

    def _cells(self) -> list[tuple[str, str, str, str, str]]:
        verdicts = {True: "pass", False: "FAIL", None: ""}
        limits = ["" if c.tolerance is None else f"≤ {c.tolerance:.0e}" for c in self.checks]
        return [
            (c.name, f"{c.number:.2e}", limit, verdicts[c.passed], c.note)
            for c, limit in zip(self.checks, limits, strict=True)
        ]

    def _captions(self) -> list[str]:
        return [] if self.certificate is None else [str(self.certificate)]


def verify(  # noqa: PLR0917
    reduction: Reduction, data: Outer | None, point: Iterate, solution: Solution, tol: float,
    source: ExplicitSource | None,
) -> Report:  # fmt: skip
    """Check the reduction, a point, and its multipliers. `data` is None for problems with integers."""
    _, point = representer.invert(reduction, point)
    form = reduction.form
    checks = [*reduction_checks(reduction, point, solution.functions)]
    found = None
    if data is not None and not form.is_convex:
        checks += local_checks(reduction, data, point, tol)
    elif data is None:
        violation = violation_with_integers(reduction, point)
        checks.append(Check("primal feasibility", violation, FEASIBLE, "largest violation, of a constraint's terms"))
        if form.outer.is_mixed_integer():
            found = solution.certificate
            checks.append(_optimality_by_word(solution))
    else:
        known = None if solution.certificate is None else solution.certificate.evidence
        found = certify(reduction, data, point, Request(tol=tol, rows=_known_rows(known, point)))
        if not found.closes(tol):
            found = _as_proven(reduction, data, point, found, solution.certificate, tol)
        checks += [*_optimality_checks(reduction, data, point, found, tol), gap(found, tol)]
        checks += _explicit_features(reduction, data, found, point, tol)
    if source is not None and form.has_cones:
        checks.append(_explicit_original(source, point.value, found, tol))
    return Report(tuple(checks), found)


def violation_with_integers(reduction: Reduction, point: Iterate) -> float:
    """The largest violation, with integers fixed, too, where the problem is a convex one that has a form then."""
    fixed = integers.fixed(reduction.form, point)
    try:
        outer = outer_of(fixed.form)
    except (DataError, SolverError):
        return violations.violation(reduction, point)
    return Rest(Reduction(fixed.form, reduction.factors), outer, fixed).violation(reduction, point)


# ---------------------------------------------------------------- the factor, and θ


def reduction_checks(reduction: Reduction, point: Iterate, functions: Mapping[Theta, Function]) -> Iterator[Check]:
    """Checks of the factors and fitted θs, which are the same for every problem."""
    named = names(link.theta for link in reduction.form.predictions)
    for number, link in enumerate(reduction.form.predictions):
        prefix = "" if len(reduction.form.predictions) == 1 else f"{named[link.theta]}: "
        function = functions[link.theta]
        for c in (
            *_factor_checks(number, reduction, point, function),
            *_null_space(link, reduction.factors[link.theta], function),
        ):
            yield Check(prefix + c.name, c.number, c.tolerance, c.note)


def _factor_checks(number: int, reduction: Reduction, point: Iterate, function: Function) -> Iterator[Check]:
    """Q = BBᵀ, CCᵀ = I and ACᵀ = B from the kernel's own values, and θ's predictions and norm against v."""
    link = reduction.form.predictions[number]
    factor = reduction.factors[link.theta]
    # Functions among the columns do not make identities any looser: only single precision does.
    n, r, most = len(link.rows), factor.rank, FACTOR if factor.of_pivots.is_exact else SINGLE
    if not n or not r:
        return
    if factor.is_projected:
        yield Check("Q = BBᵀ", factor.departure, None, f"of ‖Q‖: {factor.method}")
    else:
        rows = _some(n)
        E = link.rows.subset(rows).gram() / factor.scale - factor.B[rows] @ factor.B[rows].T
        if factor.is_restriction:
            note = f"trace(Q − BBᵀ)/trace(Q): θ is restricted to rank {r} of {n}"
            yield Check("Q = BBᵀ", factor.residual, None, note)
            off = -min(float(np.linalg.eigvalsh(E)[0]), 0.0)
            yield Check("Q − BBᵀ ⪰ 0", off, most, "largest negative eigenvalue, of trace(Q)/N")
        else:
            yield Check("Q = BBᵀ", float(np.abs(E).max()), most, "largest entry of Q − BBᵀ, of trace(Q)/N")
        columns = np.arange(r) if n <= LARGEST else _some(r, COLUMNS)
        C = factor.coefficients(np.eye(r)[:, columns]) * np.sqrt(factor.scale)
        basis = Function._of_rows(link.rows.kernel, *link.rows.expansion(factor.pivots, C))
        at_rows = link.rows.subset(rows).predictions(basis)
        spread = np.zeros((n, len(columns)))
        spread[factor.pivots] = C
        gram = factor.quadratic(link.rows, spread)
        unit = np.sqrt(factor.scale)
        # C = L⁻¹A_S. The root mean square over rows judges the inverse as a whole: cancellation in the smallest pivots
        # spoils a few rows by more. Errors E of Q, of a few roundings, leave L⁻¹EL⁻ᵀ.
        width = np.sqrt(len(columns))
        loss = float(np.linalg.norm(gram - np.eye(len(columns))) / width)
        of_errors = min(ROUNDINGS * UNIT * float(np.sum(C**2)) / width, WORST)
        yield Check("CCᵀ = I", loss, max(np.sqrt(FACTOR), of_errors), "root mean square of CCᵀ − I, by rows")
        off = float(np.abs(at_rows / unit - factor.B[rows][:, columns]).max())
        yield Check("A = BC", off, np.sqrt(FACTOR), "ACᵀ against B")
    predicted = link.rows.predictions(function)
    reduced = factor.B @ point.v[number]
    size = float(np.abs(reduced).max(initial=0.0)) or 1.0
    yield Check("predictions", float(np.abs(predicted - reduced).max()) / size, most, "from the kernel against Bw")
    if not factor.is_projected:
        c = row_coefficients(reduction, point, number)
        square = float(np.sum(c * predicted.reshape(n, -1)))
        norm = function.norm
        terms = float(np.abs(c).sum(axis=1) @ np.sqrt(link.rows.diagonal())) ** 2
        allowed = min(max(FACTOR, ROUNDINGS * UNIT * terms / (norm or 1.0) ** 2), WORST)
        yield Check("‖θ‖ = ‖w‖", abs(np.sqrt(max(square, 0.0)) - norm) / (norm or 1.0), allowed, "from the kernel")


def _null_space(link: PredictionLink, factor: Factor, function: Function) -> Iterator[Check]:
    """Add to θ a function φ with Aφ = 0: predictions stay, ‖θ + φ‖² = ‖θ‖² + ‖φ‖².

    φ is κ(z, ·) less its projection on the rows, for a z between two of them.
    """
    points, n = link.rows.points, len(link.rows)
    vectors = isinstance(points, np.ndarray) and points.dtype == float and points.ndim == 2
    if not vectors or n > LARGEST or n < 2 or len(points) < n or link.rows.mixed or factor.added:
        return
    z = (0.6 * points[0] + 0.4 * points[-1])[None]
    try:
        to_rows = link.rows.kernel._matrix(points, z)
        Q = link.rows.gram()
        coefficients = np.linalg.lstsq(Q, to_rows, rcond=1e-13)[0]
        phi = Function._of_rows(link.rows.kernel, stack([z, points]), np.concatenate([[1.0], -coefficients[:, 0]]))
        length, left = phi.inner(phi), float(np.abs(link.rows.predictions(phi)).max())
        cross = float(np.abs(phi.gram(function)).max())
    except (KernelOptError, ValueError, TypeError):
        return
    unit = float(link.rows.kernel._diagonal(z)[0])
    if length <= np.sqrt(FACTOR) * unit:
        return  # κ(z, ·) is nearly in the span of the rows, and what remains of it is rounding
    yield Check("Aφ = 0 leaves Aθ", left / np.sqrt(unit * length), np.sqrt(FACTOR), "φ orthogonal to all rows")
    raised = abs(cross) / (function.norm * np.sqrt(length) or 1.0)
    yield Check("Aφ = 0 raises ‖θ‖", raised, np.sqrt(FACTOR), f"cosine of θ and φ; ‖φ‖² = {length:.2g}")


# ---------------------------------------------------------------- optimality


def _optimality_checks(
    reduction: Reduction, data: Outer, point: Iterate, found: Certificate, tol: float
) -> Iterator[Check]:
    """The KKT conditions of the stated problem, in the unit in which the gap is compared with `tol`."""
    form = reduction.form
    violation = violations.violation(reduction, point, data.data_unit)
    yield Check("primal feasibility", violation, FEASIBLE, "largest violation, relative to a constraint's terms")
    unit = max(found.unit, found.floor / tol) or found.terms or 1.0
    if found.terms <= NOTHING_LEFT * data.units[1]:  # the value is 0
        unit = max(unit, data.units[1])
    # Where all of them are 0, so are those that a solver found: the unit is that of ν.
    nu = max((float(np.abs(part).max(initial=0.0)) for part in point.multipliers()), default=0.0)
    yield Check("rounding", found.rounding / unit, None, "the bounds' allowance for arithmetic, of P₀ − P")
    negative = slackness = largest = 0.0
    for constraint in form.outer.constraints:
        (known,) = point.duals.get(constraint.id, (None,)) if isinstance(constraint, Inequality) else (None,)
        if known is None:
            continue
        dual = np.asarray(known, dtype=float)
        largest = max(largest, float(np.abs(dual).max(initial=0.0)))
        negative = max(negative, -float(dual.min(initial=0.0)))
        with np.errstate(all="ignore"):  # NaN at an end of a domain
            slack = np.nan_to_num(np.asarray(constraint.expr.value, dtype=float))
        slackness += float(np.abs(dual * slack).sum())
    if largest and not data.facts.is_constant:
        usual = FEASIBLE * data.units[1] / data.units[0]  # where all multipliers are a solver's inaccuracy
        note = "most negative multiplier, of the largest, or of ν"
        yield Check("dual feasibility", negative / max(largest, nu, usual), FEASIBLE, note)
        # A solver's multipliers are as exact as its own gap, which it measures in the objective's terms.
        yield Check(
            "complementarity",
            slackness / max(unit, found.terms),
            tol,
            "Σ |multiplier × slack|, of P₀ − P or terms of P",
        )
    yield from _angle(reduction, data, point, tol * unit)
    yield from _shares_of_the_gap(form, point, found, unit, tol)


def _shares_of_the_gap(
    form: CanonicalForm, point: Iterate, found: Certificate, unit: float, tol: float
) -> Iterator[Check]:
    """Gap = [f + νᵀu − μt − its minimum over u, t, y] + [μ‖θ‖ − νᵀAθ]: both are ≥ 0, and 0 where stationary."""
    lower = found.evidence
    shifted = any(norm.view.shift is not None for norm in form.norms)
    if lower is None or shifted or any(m.free for m in lower.multipliers) or not np.isfinite(found.absolute_gap):
        return
    in_theta = 0.0 if lower.nu is None else -float(lower.nu @ point.u_flat)
    for m, gram in zip(lower.multipliers, lower.grams, strict=True):
        lengths = lengths_of(m, gram)
        in_theta += sum(float(point.t[j]) * length for j, length in zip(m.norms, lengths, strict=True))
    rest = found.absolute_gap - in_theta
    yield Check("stationarity in θ", max(in_theta, 0.0) / unit, tol, "μ‖θ‖ − νᵀAθ, of P₀ − P")
    note = "f + νᵀu − μt above its minimum over u, t, y, of P₀ − P"
    yield Check("stationarity in u, t, y", max(rest, 0.0) / unit, tol, note)


def _angle(reduction: Reduction, data: Outer, point: Iterate, gap: float) -> Iterator[Check]:
    """Aᵀν = μθ/‖θ‖ where ‖θ‖ is the only norm: the angle between Aᵀν and θ, in the factor.

    A gap of at most `gap` leaves μ‖θ‖ − νᵀAθ ≤ gap, with ‖Aᵀν‖ ≤ μ. For the unit vectors e of θ and a of Aᵀν,
    ½‖a − e‖² = 1 − aᵀe ≤ (μ‖θ‖ − νᵀAθ)/(‖Aᵀν‖‖θ‖), so that ‖a − e‖ ≤ √(2·gap/(‖Aᵀν‖‖θ‖)). Where the norm costs λ‖θ‖²
    alone, μ = 2λ‖θ‖ is known: λ‖θ‖² − νᵀAθ + ‖Aᵀν‖²/4λ = ‖Aᵀν − 2λθ‖²/4λ ≤ gap, and the same holds for a = Aᵀν/μ.
    This holds for the certificate's ν. The ν here is the solver's, which `dual_value` shows and which differs from it
    by small repairs.
    """
    costs = data.lengths
    links = zip(reduction.form.predictions, point.v, point.multipliers(), strict=True)
    for number, (link, v, nu) in enumerate(links):
        norms, factor = reduction.form.norms_of(link.theta), reduction.factors[link.theta]
        if len(norms) != 1 or not next(iter(norms.values())).is_plain or not v.any():
            continue
        w, a, j = v.reshape(factor.rank, -1), factor.B.T @ link.summed(nu), next(iter(norms))
        mu, t = np.sqrt(factor.scale) * float(np.linalg.norm(a)), float(point.t[j])
        if costs is not None and costs.slope[j] == 0 and costs.curvature[j] > 0 and np.isinf(costs.limit[j]):
            mu = float(costs.curvature[j]) * t
        if mu * t > 0:
            angle = float(np.linalg.norm(np.sqrt(factor.scale) * a / mu - w / np.linalg.norm(w)))
            allowed = float(np.sqrt(2 * gap / (mu * t)))
            yield Check(f"Aᵀν ∥ θ{number + 1 if number else ''}", angle, allowed, "distance of unit vectors")


def local_checks(reduction: Reduction, data: Outer, point: Iterate, tol: float) -> Iterator[Check]:
    """The conditions of a local optimum of a nonconvex problem."""
    if choice.needs_models(reduction.form, data):
        unit = data.data_unit
        yield Check("primal feasibility", violations.violation(reduction, point, unit), FEASIBLE, "largest violation")
        promised = proximal_linearization.stationarity(reduction, data, point, tol)
        number = np.inf if promised is None else promised.relative
        yield Check("stationarity", number, tol, "decrease that the convex model there allows, of its P₀ − P")
        return
    found = local_optima.conditions(reduction, data, point)
    yield Check(
        "gradient", found.gradient, local_optima.SHARE * float(np.sqrt(tol)), "‖Aᵀν − 2λθ‖ of its terms, full kernel"
    )
    yield Check("curvature", max(-found.curvature, 0.0), FLAT, "negative eigenvalue of the Hessian, of 2λ, in the span")


def _optimality_by_word(solution: Solution) -> Check:
    """With integers optimality rests on boxes that were proven, or on what the mixed-integer solver tells."""
    found, name = solution.certificate, solution.solver_stats.solver_name
    if found is not None and not found.solver:
        return Check("optimality", found.absolute_gap, None, "absolute gap; " + "; ".join(found.rests_on))
    if found is None:
        return Check("optimality", np.nan, None, f"rests on {name}'s word alone, which tells no bound")
    return Check("optimality", found.absolute_gap, None, f"absolute gap; rests on {name}'s word, and is not proven")


def _as_proven(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, found: Certificate, told: Certificate | None, tol: float
) -> Certificate:  # fmt: skip
    """The certificate that multipliers of the solution's own one prove, if it is better.

    Those found from ν alone may be worse. Where ν is not unique, the answer's is another one that proves as much as a
    solver's accuracy allows, up to `tol` times the value without constants, or its terms.
    """
    exact = found.absolute_gap <= tol * max(found.terms, abs(point.value - reduction.form.constant))
    if told is None or told.evidence is None or not exact:
        return found
    again = certify_again(reduction, data, point, told, tol)
    return again if again is not None and again.absolute_gap < found.absolute_gap else found


def _is_near(nu: Array, point: Iterate) -> bool:
    """Whether ν is that of the answer, up to rounding."""
    own = np.concatenate([np.zeros(0), *(part.ravel(order="F") for part in point.multipliers())])
    apart = float(np.abs(own - nu).max(initial=0.0)) if own.shape == nu.shape else np.inf
    return apart <= SAME * float(np.abs(own).max(initial=0.0))


def _known_rows(known: Lower | None, point: Iterate) -> Array | None:
    """The multipliers of rows of pieces on which the solution's certificate rests; None where ν is another one."""
    if known is None or known.rows is None or known.nu is None:
        return None
    return known.rows if _is_near(known.nu, point) else None


def gap(found: Certificate, tol: float) -> Check:
    if found.closes(tol) and not found.relative_gap <= tol:
        return Check("duality gap", found.absolute_gap, max(found.floor, found.last_digit), f"absolute, {found.scope}")
    return Check("duality gap", found.relative_gap, tol, f"of P₀ − P, {found.scope}")


# ---------------------------------------------------------------- explicit features


def _explicit_features(
    reduction: Reduction, data: Outer, found: Certificate, point: Iterate, tol: float
) -> Iterator[Check]:
    """The original problem in θ ∈ Rᵖ, with A = [F(xᵢ)ᵀ], where p is finite and small.

    Its solver is accurate to tol/100 of its terms, so that no difference counts below a thousandth of them. The θ of
    the answer is a point of that problem, too: where its value is better than the solver's, that counts.
    """
    factors: dict[Theta, Factor] = {}
    if not reduction.form.has_cones:
        return  # cvxpy's solvers take no smooth losses
    for link in reduction.form.predictions:
        A = None if reduction.factors[link.theta].added else explicit_matrix(link)
        if A is None:
            return
        scale = float(np.mean(np.sum(A**2, axis=1))) or 1.0
        B = A / np.sqrt(scale)
        factors[link.theta] = CholeskyFactor(B, scale, np.arange(A.shape[1]), 0.0, 0.0, 0.0)
    explicit = Reduction(reduction.form, factors)
    try:
        sigma, kappa = data.units
        answer = cvxpy_solvers.solve_reduction(explicit, "CLARABEL", 1e-2 * tol, {}, (sigma, kappa / sigma))
    except (SolverError, MemoryLimitError) as error:
        yield Check("θ ∈ Rᵖ solved", np.nan, None, f"not solved: {error}")
        return
    if answer.status != Status.OPTIMAL or answer.point is None:
        yield Check("θ ∈ Rᵖ solved", np.nan, None, f"not solved: Clarabel ended {answer.status}")
        return
    v = [
        carried(reduction.factors[link.theta], factors[link.theta], part)
        for link, part in zip(reduction.form.predictions, point.v, strict=True)
    ]
    own = representer.evaluate(explicit, replace(point, v=tuple(v)))
    optimum = representer.evaluate(explicit, answer.point).value
    if violations.violation(explicit, own, data.data_unit) <= FEASIBLE and np.isfinite(own.value):
        optimum = max(optimum, own.value) if found.maximize else min(optimum, own.value)
    if np.isfinite(optimum):
        yield compared("θ ∈ Rᵖ solved", point.value, optimum, found, tol, 1e-3 * max(found.terms, data.units[1]))


def explicit_matrix(link: PredictionLink) -> Array | None:
    """A = [F(xᵢ)ᵀ] where p is finite and small, else None."""
    p = link.rows.features
    if not len(link.rows) or p > LARGEST or len(link.rows) * p > LARGEST**2:
        return None
    try:
        A = link.rows.kernel._features(link.rows.points)
        if len(link.rows) > len(link.rows.points):
            A = np.concatenate([A, link.rows.combinations.T @ link.rows.kernel._features(link.rows.centers)])
    except (KernelOptError, NotImplementedError, AttributeError):
        return None
    return np.asarray(A)


def _explicit_original(source: ExplicitSource, value: float, found: Certificate | None, tol: float) -> Check:
    """Compare with the cvxpy problem that the kernel problem was made from."""
    problem = canonical_form.with_twins(source.problem)
    try:
        answer = cvxpy_solvers.solve(problem, "CLARABEL", 1e-2 * tol, {})
    except MemoryLimitError:
        return Check("explicit original", np.nan, None, "not solved: it takes more memory than there is")
    if answer.status != Status.OPTIMAL:
        return Check("explicit original", np.nan, None, f"not solved: Clarabel ended {answer.status}")
    optimum = float(problem.objective.value)
    return compared("explicit original", value, optimum, found, tol)


def compared(  # noqa: PLR0917
    name: str, value: float, optimum: float, found: Certificate | None, tol: float, least: float = 0.0
) -> Check:
    """Whether two optima are equal, relative to P₀ − P, or `least` at least; to P where there is no P₀."""
    size = abs(found.at_zero - value) if found is not None and found.at_zero is not None else abs(optimum)
    unit = max(size, 10 * found.floor / tol if found is not None else 0.0, least) or 1.0
    return Check(name, abs(value - optimum) / unit, 10 * tol, f"its optimum is {optimum:.10g}; of P₀ − P")


def _some(n: int, most: int = LARGEST) -> Ints:
    """The indices 0 … n − 1, or a random subset of `most` of them where n is larger."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))
