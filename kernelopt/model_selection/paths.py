"""Answers along the values of one parameter: solved from value to value, and certified in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import inf, isfinite
from numbers import Real
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np
from tqdm.auto import tqdm

from kernelopt.certificate import FULL, Certificate
from kernelopt.compiler.attributes import dense
from kernelopt.driver.options import spelling
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, KernelOptError, OptionError, ParameterError
from kernelopt.factorization import memory
from kernelopt.kernels.domains import check_finite, frozen, real_array
from kernelopt.language.expressions import Theta
from kernelopt.model_selection.path_table import EVALUATION, Path, PathSolution, own_columns
from kernelopt.problem import Problem
from kernelopt.support import clock
from kernelopt.support.checks import require_limit, require_number, shown

# Between neighbouring values, relative to P₀ − P. λ‖θ‖² takes about 1/√gap solves, and ‖θ‖ ≤ R up to 1/gap.
DEFAULT_GAP = 1e-2
# The search for a step ends where the step is within this factor of the longest, or its gap of the allowed one. A finer
# search takes more certificates, to save at most a tenth of the solves.
FINE = 1.1
# As a share of the interval (of its logarithms): where only a shorter step is certified, the walk ends there.
SHORTEST = 1e-7
# The same where the answer is infeasible at longer steps. Shorter ones, of which there would be many, would only use up
# how far it is inside of its constraints.
SLACK = 1e-3
# Rows up to which the kernel matrix is held for all solves of a path, 800 MB, and the share of the memory that it may
# take. To form it takes the time of two passes; from then on a pass takes a tenth.
MOST_HELD, HELD = 10_000, 0.1
# The default tol of solve(). A certificate's floor, its absolute gap that counts as 0, is meant for this tol.
TOL = 1e-6
# Relative to the largest multiplier: smaller ones count as 0. Solvers leave small numbers where the exact one is 0.
SUPPORT = 1e-8


@one_at_a_time
def path(
    problem: Problem,
    parameter: cp.Parameter,
    values: Any = None,
    *,
    between: tuple[float, float] | None = None,
    gap: float | None = None,
    evaluate: Callable[[Problem], float | Mapping[str, float]] | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    **solve_options: Any,
) -> Path:
    """Solve a problem for many values of one parameter, and tabulate the answers.

    The kernel matrix is factored and the problem compiled once, and each solve starts from the last answer. Values are
    solved in decreasing order, strongly penalized problems first. The table has them in the given order. A repeated
    value is solved once.

    With `between=(low, high)` instead of `values`, the spacing is chosen. The next value is the farthest one at which
    the certificate of the last answer, `problem.certificate_at`, has a relative gap ≤ `gap`. It is found by bisection,
    on a logarithmic scale if both ends are positive, without a solve. For a parameter of costs alone that enters
    linearly, as in λ‖θ‖², and for ‖θ‖ ≤ R, the gap is largest at the end of such an interval. For every value between
    `low` and `high` some row is therefore optimal up to `gap`; `path.at(value)` finds it, and certifies it there. For a
    parameter that shifts a loss, or bounds other variables, this holds for the absolute gap, but not for the relative
    one, which `path.at(value)` tells. (Giesen, Laue, Mueller and
    Swiercy, Approximating Concavely Parameterized Optimization Problems, NIPS 2012.) If answers are infeasible for
    smaller values, as for ‖θ‖ ≤ R, the path goes upwards. λ‖θ‖² needs about 1/√gap rows, λ‖θ‖ and ‖θ‖ ≤ R up to 1/gap.

    The call does not change parameters, θ, variables and multipliers of the problem, also after an error. It only keeps
    the factor. `path.restore(i)` sets the problem to row i.

    Parameters
    ----------
    problem : Problem
    parameter : cp.Parameter
        A scalar one of the problem's, in its own units.
    values : array (n,)
    between : (low, high)
    gap : largest certified relative gap between neighbours, see `Certificate.relative_gap`; 1e-2 by default. An
        absolute gap of gap/100 of the objective's terms suffices too, since near θ = 0 relative gaps stay large.
    evaluate : function of the problem, called after each solve that has an answer; returns a number, such as a
        validation error, or a mapping of names to numbers.
    time_limit : seconds of the whole call. The rows until then are returned, the last one with status "user_limit" if
        its solve was stopped.
    progress : whether to show a bar, with the certified gap of the last row
    **solve_options : passed on to `Problem.solve`

    Returns
    -------
    Path

    Raises
    ------
    ParameterError
        When `parameter` is not a scalar parameter of the problem, or does not take one of the values.
    DataError
        When values are not finite numbers.
    OptionError
        For an option outside its range.
    KernelOptError
        With `between`, where neighbouring answers can't be certified to `gap`, or where there are none.

    Notes
    -----
    Errors of `Problem.solve` are raised too. An exception after the first row, Ctrl-C included, has the rows computed
    so far in its attribute `path`.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 3, 20)[:, None]
    >>> y = np.sin(2 * X[:, 0])
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    >>> lam = cp.Parameter(nonneg=True, name="lam")
    >>> loss = cp.sum_squares(y - theta(X))
    >>> problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    >>> path = ko.path(problem, lam, [0.1, 1.0, 10.0], evaluate=lambda problem: loss.value)
    >>> path["norm"].round(2)
    array([2.21, 1.19, 0.43])
    >>> best = int(np.argmin(path["evaluation"]))
    >>> path.restore(best)
    >>> float(lam.value)
    0.1
    >>> path = ko.path(problem, lam, between=(0.01, 10.0), gap=1e-2)
    >>> solution, certificate = path.at(0.345)
    >>> bool(certificate.relative_gap <= 1e-2)
    True
    """
    _check(problem, parameter, evaluate, time_limit)
    spacing = None
    plan: Iterator[float]
    total: int | None
    if between is None:
        numbers = _numbers(values, parameter, gap)
        downwards = np.unique(numbers)[::-1].tolist()
        plan, total = iter(downwards), len(downwards)
    else:
        ends = _ends(between, values, parameter)
        spacing = _Spacing(problem, parameter, ends, _gap(gap, solve_options.get("certify", True)))
        plan, total = spacing.values(), None
    rows: dict[float, PathSolution] = {}

    def table() -> Path:
        if spacing is None:
            return Path(problem, parameter, tuple(rows[v] for v in numbers if v in rows))
        return Path(problem, parameter, tuple(rows[v] for v in sorted(rows)), spacing.gap, spacing.covered())

    problem._require_no_boxes("ko.path")
    deadline = inf if time_limit is None else clock.now() + time_limit
    restore = problem._keep()
    try:
        with (
            kernel_values(problem, solve_options),
            tqdm(total=total, desc=parameter.name(), unit=" values", disable=not progress) as bar,
        ):
            # The plan reads the last answer, and must not be asked for more after the time limit stopped that solve.
            while not rows or clock.now() < deadline:
                value = next(plan, None)
                if value is None:
                    break
                if value in rows:
                    rows[value]._restore()
                    continue
                parameter.value = value
                with spelling(path, solve_options):
                    found = rows[value] = _solve(problem, value, evaluate, deadline, solve_options)
                bar.set_postfix({"gap": "?" if found.certificate is None else f"{found.certificate.relative_gap:.1e}"})
                bar.update()
        return table()
    except BaseException as error:
        if rows:
            with suppress(AttributeError):  # a property of that name
                error.path = table()  # type: ignore[attr-defined]
            error.add_note(f"{len(rows)} values were solved before; this error's attribute `path` is their table.")
        raise
    finally:
        problem._forget_systems()  # the rows of the table keep the matrix, with the last system that was factored
        restore()


@contextmanager
def kernel_values(problem: Problem, options: Mapping[str, Any]) -> Iterator[None]:
    """Hold the kernel matrix of each θ for all solves within, where it takes little memory: their passes share it.

    With B in blocks, passes are tasks that compute kernel values where the blocks are.
    """
    in_blocks = options.get("backend") is not None or options.get("dtype") is not None
    with ExitStack() as stack:
        for link in () if in_blocks else problem.canonical_form().predictions:
            size = 8.0 * len(link.rows) ** 2
            if len(link.rows) <= MOST_HELD and size <= HELD * memory.allowed_bytes(options.get("memory_limit")):
                with suppress(KernelOptError):  # a solve says what is wrong with the kernel's values
                    stack.enter_context(link.rows.held())
        yield


def _solve(
    problem: Problem, value: float, evaluate: Callable[[Problem], Any] | None, deadline: float, options: dict[str, Any]
) -> PathSolution:
    """Solve for the value that the parameter has now, and keep the answer."""
    start = clock.now()
    problem.solve(**options, time_limit=max(deadline - start, 1e-3) if isfinite(deadline) else None)
    seconds, restore = clock.now() - start, problem._keep()
    functions = {theta: theta.value for theta in problem.thetas() if theta.value is not None}
    evaluation = _evaluation(problem, evaluate) if evaluate is not None and functions else {}
    for function in functions.values():  # of a grid's many functions, each would keep its centers
        function._without_copies()
    return PathSolution(
        parameter=value,
        objective=np.nan if problem.value is None else problem.value,
        status=str(problem.status),
        certificate=problem.certificate,
        functions=MappingProxyType(functions),
        variables=MappingProxyType(
            {v: frozen(np.array(dense(v.value))) for v in problem.variables() if v.value is not None}
        ),
        supports=MappingProxyType({theta: _support(theta) for theta in functions}),
        evaluation=MappingProxyType(evaluation),
        seconds=seconds,
        _restore=restore,
    )


def _support(theta: Theta) -> float:
    """The number of rows with a multiplier that counts; nan where the solver gave none."""
    sizes = [np.abs(nu).reshape(len(nu), -1).max(axis=1) for nu in theta._duals.values()]
    return int((np.concatenate(sizes) > SUPPORT * max(s.max(initial=0.0) for s in sizes)).sum()) if sizes else np.nan


def _evaluation(problem: Problem, evaluate: Callable[[Problem], Any]) -> dict[str, float]:
    """The result of `evaluate` as named numbers. Raises OptionError for anything else."""
    found = evaluate(problem)
    named = dict(found) if isinstance(found, Mapping) else {EVALUATION: found}
    taken = own_columns(problem)
    for name, number in named.items():
        if not isinstance(name, str) or name in taken:
            raise OptionError(f"Expected evaluate() to use names other than {', '.join(taken)}; got {name!r}.")
        if np.ndim(number) != 0 or not isinstance(np.asarray(number).item(), Real):
            raise OptionError(f"Expected evaluate() to return a number, or a mapping to numbers; got {shown(found)}.")
    return {name: float(number) for name, number in named.items()}


# ---------------------------------------------------------------- spacing


class _Spacing:
    """Values at which to solve, so that the answers cover an interval.

    The caller solves at each value of `values()` before it asks for the next one. `stretches` are the intervals on
    which an answer was certified to the gap.
    """

    def __init__(self, problem: Problem, parameter: cp.Parameter, ends: tuple[float, float], gap: float) -> None:
        self.problem, self.parameter, self.gap = problem, parameter, gap
        self.low, self.high = ends
        self.stretches: list[tuple[float, float]] = []
        self._length = abs(self._way(self.low, self.high))
        self._step = self._length / 2

    def values(self) -> Iterator[float]:
        """The ends, then values downwards. If that walk stops, as where answers are infeasible for smaller values, then
        values upwards from the lower end to where it stopped."""
        yield self.low
        self._require_certificate(self.low)
        if self.high == self.low:
            self.stretches.append((self.low, self.high))
            return
        yield self.high
        self._require_certificate(self.high)
        reached = yield from self._walk(self.high, self.low)
        if reached != self.low:
            yield self.low
            stuck = yield from self._walk(self.low, reached)
            if stuck != reached:
                raise self._error(stuck)

    def _walk(self, here: float, end: float) -> Generator[float, None, float]:
        """Values from `here`, where the problem is solved, towards `end`, each as far as the answer before it is
        certified. Returns where the walk ended."""
        while here != end:
            reached = self._farthest(here, end)
            if reached == here:
                break
            self.stretches.append((min(here, reached), max(here, reached)))
            here = reached
            if here != end:
                yield here
        return here

    def _farthest(self, here: float, end: float) -> float:
        """The farthest value towards `end` at which the answer `here` is certified to the gap, or nearly so.

        Gaps grow with the square of a step for penalties, and in proportion to it for bounds. The next trial assumes
        the square, to reach 97 % of the gap; where that leaves the bracket (good, bad), bisection follows.
        """
        way = self._way(here, end)
        good, bad = 0.0, inf  # shares of the way
        trial = min(self._step / abs(way), 1.0)
        while True:
            found = self.problem.certificate_at({self.parameter: self._at(here, trial * way) if trial < 1 else end})
            closed, used = self._is_covered(found), self._used(found)
            good, bad = (trial, bad) if closed else (good, trial)
            if good == 1 or bad <= FINE * good or (closed and used >= 1 / FINE):
                break
            if bad * abs(way) < (SHORTEST if isfinite(found.absolute_gap) else SLACK) * self._length:
                return here
            guess = min(trial * np.sqrt(0.97 / used) if used > 0 else inf, 1.0)
            trial = guess if good < guess < bad else (good + bad) / 2
        self._step = good * abs(way)
        return end if good == 1 else self._at(here, good * way)

    def _way(self, here: float, there: float) -> float:
        """The signed distance between two values; between their logarithms where the interval is positive."""
        return float(np.log(there / here)) if self.low > 0 else there - here

    def _at(self, here: float, way: float) -> float:
        return float(here * np.exp(way)) if self.low > 0 else here + way

    def _is_covered(self, found: Certificate) -> bool:
        """Whether a certificate proves a gap that is small enough, relatively or in units of the objective's terms."""
        proven = found.scope == FULL and found.evidence is not None and not found.assumptions
        return proven and found.closes(self.gap, self._absolute(found))

    def _used(self, found: Certificate) -> float:
        """A certificate's gap as a share of the allowed one, relative or absolute, whichever is less."""
        limits = (found.relative_gap, self.gap), (found.absolute_gap, self._absolute(found))
        return min((gap / limit for gap, limit in limits if isfinite(gap) and limit > 0), default=inf)

    def _absolute(self, found: Certificate) -> float:
        """The absolute gap that is small enough: the certificate's floor, scaled from `TOL` to `gap`."""
        return found.floor * self.gap / TOL

    def _require_certificate(self, end: float) -> None:
        if self.problem.certificate is None or not self._is_covered(self.problem.certificate):
            raise self._error(end)

    def _error(self, stuck: float) -> KernelOptError:
        name, found = self.parameter.name(), self.problem.certificate
        return KernelOptError(
            f"Expected answers certified to a relative gap of {self.gap:g} for all {name} in [{self.low:g}, "
            f"{self.high:g}]; at {name} = {stuck:g} the status is {str(self.problem.status)!r} with "
            f"{'no certificate' if found is None else f'the certificate: {found}'}. That does not cover the values "
            "next to it. Raise gap, lower tol, or choose an interval on which the problem has an answer."
        )

    def covered(self) -> tuple[tuple[float, float], ...]:
        """The stretches, joined where they meet."""
        joined: list[tuple[float, float]] = []
        for low, high in sorted(self.stretches):
            if joined and low <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(high, joined[-1][1])
            else:
                joined.append((low, high))
        return tuple((float(low), float(high)) for low, high in joined)


# ---------------------------------------------------------------- input


def _check(problem: Any, parameter: Any, evaluate: Any, time_limit: Any) -> None:
    """Raise OptionError or ParameterError unless these are a problem, a scalar parameter of it, and valid options."""
    if not isinstance(problem, Problem):
        raise OptionError(f"Expected a ko.Problem; got {type(problem).__name__}.")
    if not any(parameter is p for p in problem.parameters()):
        known = ", ".join(p.name() for p in problem.parameters()) or "none"
        raise ParameterError(f"Expected a parameter of this problem (there are: {known}); got {parameter!r}.")
    if parameter.shape != ():
        raise ParameterError(
            f"Expected a scalar, cp.Parameter() without a shape; got {parameter.name()} of shape {parameter.shape}."
        )
    if parameter.name() in own_columns(problem):
        raise ParameterError(
            f"Expected a name that no other column of the table has; got {parameter.name()!r}. Give the parameter "
            "another name."
        )
    if evaluate is not None and not callable(evaluate):
        raise OptionError(f"Expected evaluate to be a function of the problem, or None; got {evaluate!r}.")
    require_limit(time_limit)


def _numbers(values: Any, parameter: cp.Parameter, gap: float | None) -> list[float]:
    """The values to solve for, checked."""
    if values is None:
        raise OptionError("Expected values of the parameter, or between=(low, high); got neither.")
    if gap is not None:
        raise OptionError("Expected gap together with between=(low, high); given values are taken as they are.")
    numbers = real_array(values, "values")
    if numbers.ndim != 1 or not len(numbers):
        raise DataError(f"Expected a list of values, shape (n,) with n ≥ 1; got shape {numbers.shape}.")
    check_finite(numbers, "values")
    _check_fit(parameter, numbers.tolist())
    return numbers.tolist()


def _ends(between: Any, values: Any, parameter: cp.Parameter) -> tuple[float, float]:
    """The ends of the interval, checked."""
    if values is not None:
        raise OptionError("Expected either values or between=(low, high); got both.")
    ends = real_array(between, "between")
    if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] > ends[1]:
        raise DataError(f"Expected between=(low, high), two finite numbers with low ≤ high; got {between!r}.")
    low, high = ends.tolist()
    _check_fit(parameter, [low, (low + high) / 2, high])
    return low, high


def _check_fit(parameter: cp.Parameter, values: Sequence[float]) -> None:
    """Raise ParameterError for a value that the parameter's attributes (nonneg …) do not admit."""
    old = parameter.value
    try:
        for value in values:
            try:
                parameter.value = value
            except (ValueError, NotImplementedError) as error:
                raise ParameterError(f"{parameter.name()} does not take the value {value:g}: {error}") from error
    finally:
        parameter.save_value(old)


def _gap(gap: Any, certify: Any) -> float:
    """The gap between neighbours, checked; answers need certificates for it."""
    gap = DEFAULT_GAP if gap is None else gap
    require_number(gap, "gap", "a number between 0 and 1", lambda value: 0 < value < 1)
    if certify is not True:
        raise OptionError(f"Expected certify=True with between=(low, high), which needs certificates; got {certify!r}.")
    return float(gap)
