"""Parameters of a problem, chosen by the gradient of a criterion through its optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize
from tqdm.auto import tqdm

from kernelopt.driver.options import spelling
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, KernelOptError, OptionError, ParameterError
from kernelopt.kernels.domains import frozen
from kernelopt.model_selection.cross_validation import _base_weights, _folds, on_rows
from kernelopt.model_selection.gradients import gradient
from kernelopt.model_selection.leave_one_out_slope import LeaveOneOutLoss, leave_one_out_slope
from kernelopt.problem import Problem, require_problem
from kernelopt.sensitivity.gradient_of import require_number
from kernelopt.support import clock
from kernelopt.support.checks import generator, require_flag, require_kind, require_limit
from kernelopt.support.properties import cached_property
from kernelopt.support.table import Table
from kernelopt.support.types import Array
from kernelopt.support.undoing import undone_by_errors

# Without bounds, a parameter that is declared positive is searched within this factor of its value, on both sides.
FACTOR = 1e4
# The tolerance of solves during a search. Answers are refined to rounding for the gradient, so that a finer one would
# cost time and change nothing.
TOL = 1e-3
# The tolerance of solves that are not refined, as rows left out in a quadratic model: its factor is as fine.
FINE = 1e-6
FINER = 1e-8  # the tolerance of another solve, where an answer can't be refined
# L-BFGS-B ends where a step improves the criterion by less than this share of it, or where all entries of the gradient,
# by the logarithm of positive parameters, are smaller than the same share of the first criterion. Differences between
# samples of rows are far larger; with smaller values a search along kinks takes many short steps.
CONVERGED = 1e-4
INTERRUPTED = "ended: interrupted"


class CrossValidatedLoss(NamedTuple):
    """Σᵢ lossᵢ/N over rows i left out in turn: a criterion for `ko.tune`.

    Parameters
    ----------
    weights : cp.Parameter (N,)
        The weights of the rows' losses in the problem, as for `ko.cross_validate`: a fold is left out by weights of 0,
        so that one factor of the kernel matrix serves all folds.
    losses : expression (N,)
        The loss of each row, such as `ko.losses.log_loss(y, theta(X) + b)`.
    cv : folds, as for `ko.cross_validate`
    random_state : seed of the folds where `cv` is a number

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> w, u = cp.Parameter(6, nonneg=True), cp.Variable(6)
    >>> ko.CrossValidatedLoss(w, ko.losses.hinge(np.ones(6), u), cv=3).cv
    3
    """

    weights: cp.Parameter
    losses: cp.Expression
    cv: Any = 5
    random_state: int = 0


class Evaluation(NamedTuple):
    """One point of a search: the start it belongs to, the parameters' values, the criterion, its gradient, seconds."""

    start: int
    values: tuple[Array, ...]
    criterion: float
    gradient: tuple[Array, ...]
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Table):
    """The evaluations of a search and the best of them; made by `ko.tune`. It prints as a table.

    Columns are "start", "criterion", the parameters of one number by name, "slope", the norm of the gradient by
    log(parameter) where that is positive, and "seconds" since the beginning.

    Attributes
    ----------
    parameters : tuple of cp.Parameter
    evaluations : tuple of Evaluation
    message : why the search ended
    """

    parameters: tuple[cp.Parameter, ...]
    evaluations: tuple[Evaluation, ...]
    message: str

    @property
    def best(self) -> Evaluation:
        """The evaluation with the smallest criterion."""
        return min(self.evaluations, key=lambda e: e.criterion)

    @property
    def value(self) -> float:
        """The smallest criterion."""
        return self.best.criterion

    @cached_property
    def columns(self) -> Mapping[str, Array]:
        """The columns by name."""
        table: dict[str, Any] = {
            "start": [e.start for e in self.evaluations],
            "criterion": [e.criterion for e in self.evaluations],
        }
        for k, p in enumerate(self.parameters):
            if p.size == 1:
                table[p.name()] = [float(np.ravel(e.values[k])[0]) for e in self.evaluations]
        table["slope"] = [self._slope(e) for e in self.evaluations]
        table["seconds"] = [e.seconds for e in self.evaluations]
        return MappingProxyType({name: frozen(np.array(column)) for name, column in table.items()})

    def _slope(self, e: Evaluation) -> float:
        parts = [g * (v if np.all(v > 0) else 1.0) for g, v in zip(e.gradient, e.values, strict=True)]
        return float(np.sqrt(sum(float(np.sum(part**2)) for part in parts)))

    def _captions(self) -> list[str]:
        return [self.message]

    def plot(self, ax: Any = None) -> Any:
        """Draw the criterion over the seconds, by matplotlib; return the Axes."""
        return self._drawn("seconds", ["criterion"], ax)


@one_at_a_time
def tune(
    problem: Problem,
    criterion: Any,
    parameters: Sequence[cp.Parameter],
    bounds: Mapping[cp.Parameter, tuple[Any, Any]] | None = None,
    *,
    at: cp.Expression | None = None,
    n_init: int = 1,
    random_state: int | np.random.Generator | None = 0,
    max_evaluations: int = 100,
    time_limit: float | None = None,
    progress: bool = False,
    **solve_options: Any,
) -> Tuned:
    """Choose parameters of a problem that minimize a criterion of its optimum, by gradients.

    L-BFGS-B works on the values of the parameters, or on their logarithms if the lower bound is positive. Each
    evaluation is a solve and a gradient (`ko.gradient`), or one per fold. For λ, length scales of columns and weights
    of rows together it takes tens of evaluations; the size of a grid would be exponential in their number. It finds a
    local minimum. The current values are the first start, and `n_init` adds starts drawn at random within the bounds.

    After the call the parameters have the best values, and the problem is solved for them, to its default tolerance.

    Parameters
    ----------
    problem : Problem
    criterion : expression, function with `at`, `CrossValidatedLoss` or `LeaveOneOutLoss`
        As for `ko.gradient`: what is minimized, such as the loss of rows that the problem does not have; or
        `ko.CrossValidatedLoss(w, losses)` for the losses of rows left out in turn, or `ko.LeaveOneOutLoss(f, loss)` for
        their approximation from one solve.
    parameters : sequence of cp.Parameter
        With values, the first start.
    at : expression, optional
        Predictions and variables, of any shape, that a function as criterion takes.
    bounds : mapping of parameters to (low, high), optional
        Numbers or arrays. By default a factor of 10⁴ on both sides of the values of parameters declared positive or
        nonnegative, and none for others.
    n_init : int ≥ 1
    random_state : seed, or generator, of other starts
    max_evaluations : int
        Of each start.
    time_limit : seconds of the whole call
        The first evaluation is finished in any case; the last solve has what is left, and half a second at least.
    progress : whether to show a bar, with the best criterion so far
    **solve_options : passed on to `Problem.solve`

    Returns
    -------
    Tuned
        A table with a row for each evaluation; `.best` has the values.

    Raises
    ------
    ParameterError
        For parameters that are not the problem's, or have no value.
    OptionError
        For bounds that are not intervals with the present value inside.
    KernelOptError
        Where no gradient is known at the first start; see `ko.gradient`. The problem is then as it was.

    Notes
    -----
    Ctrl-C raises KeyboardInterrupt; the problem is then as it was. The exception's attribute `table` is the table of
    the evaluations so far (`sys.last_value.table`).

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.3 * np.random.default_rng(0).standard_t(2, size=80)
    >>> sigma = cp.Parameter(pos=True, value=3.0, name="sigma")
    >>> lam = cp.Parameter(pos=True, value=1.0, name="lam")
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    >>> train, test = np.arange(0, 80, 2), np.arange(1, 80, 2)
    >>> errors = ko.losses.absolute_error(y[train], theta(X[train]) + b)
    >>> problem = ko.Problem(cp.Minimize(cp.sum(errors) + lam * ko.sum_squares(theta)))
    >>> criterion = cp.sum(ko.losses.huber(y[test], theta(X[test]) + b)) / 40
    >>> found = ko.tune(problem, criterion, [sigma, lam])
    >>> bool(found.value < found["criterion"][0]), bool(sigma.value < 1.5)
    (True, True)
    """
    require_problem(problem)
    require_kind(bounds, (Mapping, type(None)), "bounds", "{parameter: (low, high)}, or None")
    chosen = _chosen(problem, parameters, criterion)
    box = _Box.of(chosen, bounds or {})
    _require_counts(n_init, max_evaluations)
    random = generator(random_state)
    require_limit(time_limit)
    require_flag(progress, "progress")
    judge = _judge(problem, criterion, chosen, at)
    deadline = inf if time_limit is None else clock.now() + time_limit
    search = _Search(problem, judge, box, {"tol": TOL, "certify": False, **solve_options}, deadline, max_evaluations)
    starts = [box.start, *(box.random(random) for _ in range(n_init - 1))]
    shown_as = tqdm(total=None, desc="criterion", disable=not progress)
    try:
        with undone_by_errors(problem._keep()), spelling(tune, solve_options), shown_as as bar:
            search.bar = bar
            for number, start in enumerate(starts):
                search.begin(number)
                search.run(start)
                if search.ended:
                    break
            found = Tuned(tuple(chosen), tuple(search.evaluations), search.message)
            for p, value in zip(chosen, found.best.values, strict=True):
                p.value = value
            search.prepare()
            problem.solve(**_within(solve_options, max(deadline - clock.now(), clock.LAST)))
    except KeyboardInterrupt as interrupt:
        if search.evaluations:
            interrupt.table = Tuned(tuple(chosen), tuple(search.evaluations), INTERRUPTED)  # type: ignore[attr-defined]
            interrupt.add_note(
                f"{len(search.evaluations)} evaluations were done before; this exception's attribute `table` has them."
            )
        raise
    return found


def _within(options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Options of a solve with a time limit of at most so many seconds."""
    known = options.get("time_limit")
    least = seconds if known is None else min(known, seconds)
    return {**options, "time_limit": least} if isfinite(seconds) else options


class _Box(NamedTuple):
    """The parameters' entries in one array, as logarithms where `logs`, within low and high; ends : both as numbers."""

    parameters: tuple[cp.Parameter, ...]
    start: Array
    low: Array
    high: Array
    logs: Any
    ends: tuple[Array, Array]

    @classmethod
    def of(cls, parameters: list[cp.Parameter], bounds: Mapping[cp.Parameter, Any]) -> _Box:
        unknown = [p for p in bounds if not any(p is q for q in parameters)]
        if unknown:
            raise OptionError(f"Expected bounds of the parameters; {unknown[0]!r} is none of them.")
        starts, lows, highs = [], [], []
        for p in parameters:
            value = np.ravel(np.asarray(p.value, dtype=float), order="F")
            low, high = _interval(p, value, bounds.get(p))
            starts.append(value)
            lows.append(low)
            highs.append(high)
        start, low, high = (np.concatenate(parts) for parts in (starts, lows, highs))
        logs = low > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            x, least, most = (np.where(logs, np.log(a), a) for a in (start, low, high))
        return cls(tuple(parameters), x, least, most, logs, (low, high))

    def values(self, x: Array) -> tuple[Array, ...]:
        """The parameters' values, in their shapes."""
        flat = np.clip(np.where(self.logs, np.exp(np.where(self.logs, x, 0.0)), x), *self.ends)
        ends = np.cumsum([0, *(p.size for p in self.parameters)])
        return tuple(
            np.reshape(flat[i:j], p.shape, order="F")
            for p, i, j in zip(self.parameters, ends[:-1], ends[1:], strict=True)
        )

    def slopes(self, values: tuple[Array, ...], gradient: tuple[Array, ...]) -> Array:
        """The gradient by x: times the value, for logarithms."""
        flat = [np.concatenate([np.ravel(a, order="F") for a in several]) for several in (values, gradient)]
        return np.asarray(np.where(self.logs, flat[0], 1.0) * flat[1])

    def random(self, generator: np.random.Generator) -> Array:
        """A start within finite bounds; at the first one elsewhere."""
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        drawn = generator.uniform(np.where(finite, self.low, 0.0), np.where(finite, self.high, 1.0))
        return np.where(finite, drawn, self.start)


def _interval(p: cp.Parameter, value: Array, given: Any) -> tuple[Array, Array]:
    """The bounds of a parameter's entries. Raises OptionError."""
    if given is None:
        if p.is_nonneg() and np.all(value > 0):
            return value / FACTOR, value * FACTOR
        return np.full(p.size, 0.0 if p.is_nonneg() else -inf), np.full(p.size, inf)
    pair = given if isinstance(given, (tuple, list)) and len(given) == 2 else (np.nan, np.nan)
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=float), p.shape).ravel(order="F") for end in pair)
    except (TypeError, ValueError) as error:
        raise OptionError(f"Expected bounds (low, high) of {p.name()}, two numbers; got {given!r}.") from error
    positive = not p.attributes.get("pos") or bool(np.all(low > 0))
    signed = not p.is_nonneg() or bool(np.all(low >= 0))
    if not (np.all(low < high) and np.all((low <= value) & (value <= high)) and positive and signed):
        raise OptionError(
            f"Expected bounds (low, high) of {p.name()} with low < high, its value {p.value} between them, and a low "
            f"of the declared sign; got {given!r}. The search starts at {p.name()}.value: set it, or other bounds."
        )
    return low, high


class _Judge(NamedTuple):
    """How values of parameters are judged: a function of options and a deadline that solves, and how to restore the
    weights."""

    evaluate: Callable[[dict[str, Any], float], tuple[float, tuple[Array, ...]]]
    prepare: Callable[[], None]


def _judge(problem: Problem, criterion: Any, chosen: list[cp.Parameter], at: Any) -> _Judge:
    """The judge for a criterion."""
    if isinstance(criterion, LeaveOneOutLoss):
        if at is not None:
            raise DataError("Expected `at` only with a function as criterion; got a LeaveOneOutLoss. Leave out `at`.")
        return _Judge(lambda *limits: _left_out(problem, criterion, chosen, *limits), lambda: None)
    if not isinstance(criterion, CrossValidatedLoss):
        require_number(criterion)  # before anything is solved
        return _Judge(lambda *limits: _once(problem, criterion, chosen, at, *limits), lambda: None)
    weights, losses = criterion.weights, criterion.losses
    base = _base_weights(problem, weights)
    if not isinstance(losses, cp.Expression) or losses.shape != (len(base),):
        raise DataError(f"Expected losses of shape ({len(base)},), one for each weight; got {losses!r}.")
    folds = _folds(criterion.cv, base, criterion.random_state)
    if any(p is weights for p in chosen):
        raise ParameterError(f"Expected parameters other than the weights of the folds; got {weights.name()}.")

    def prepare() -> None:
        weights.value = base

    def evaluate(options: dict[str, Any], deadline: float) -> tuple[float, tuple[Array, ...]]:
        value, total = 0.0, [np.zeros(p.shape) for p in chosen]
        try:
            for train, test in folds:
                weights.value = on_rows(train, base)
                part, slopes = _once(problem, cp.sum(losses[test]) / len(base), chosen, None, options, deadline)
                value, total = value + part, [a + b for a, b in zip(total, slopes, strict=True)]
        finally:
            prepare()
        return value, tuple(total)

    return _Judge(evaluate, prepare)


def _left_out(
    problem: Problem, criterion: LeaveOneOutLoss, chosen: list[cp.Parameter], options: dict[str, Any], deadline: float
) -> tuple[float, tuple[Array, ...]]:
    """Solve with a factor that leaves out no more than predictions tell, and take the derivative."""
    _solve(problem, {**options, "tol": min(float(options["tol"]), FINE)}, deadline)
    return leave_one_out_slope(problem, criterion, chosen)


def _solve(problem: Problem, options: dict[str, Any], deadline: float) -> None:
    """Solve until a deadline. Raises _LimitError where it is reached."""
    left = deadline - clock.now()
    if left <= 0:
        raise _LimitError("ended: time limit")
    problem.solve(**_within(options, left))
    if clock.now() >= deadline:
        raise _LimitError("ended: time limit")


def _once(  # noqa: PLR0917
    problem: Problem, criterion: Any, chosen: list[cp.Parameter], at: Any, options: dict[str, Any], deadline: float
) -> tuple[float, tuple[Array, ...]]:
    """Solve, and take the gradient; once more with a finer tolerance where the answer can't be refined."""
    _solve(problem, options, deadline)
    try:
        found = gradient(problem, criterion, chosen, at=at)
    except KernelOptError:
        if problem.value is None:
            raise
        _solve(problem, {**options, "tol": FINER}, deadline)
        found = gradient(problem, criterion, chosen, at=at)
    return found.value, tuple(np.array(found[p]) for p in chosen)


class _LimitError(Exception):
    """The time is up, or there have been enough evaluations."""


class _Search:
    """The evaluations of all starts."""

    def __init__(  # noqa: PLR0917
        self, problem: Problem, judge: _Judge, box: _Box, options: dict[str, Any], deadline: float, most: int
    ) -> None:
        self.problem, self.judge, self.box, self.options = problem, judge, box, options
        self.deadline, self.most, self.began = deadline, most, clock.now()
        self.evaluations: list[Evaluation] = []
        self.start, self.count, self.ended, self.message = 0, 0, False, ""
        self.bar: Any = None

    @property
    def prepare(self) -> Callable[[], None]:
        return self.judge.prepare

    def begin(self, number: int) -> None:
        self.start, self.count = number, 0

    def run(self, start: Array) -> None:
        """L-BFGS-B from a start; it ends early for limits, and where no gradient is known."""
        bounds = list(zip(self.box.low, self.box.high, strict=True))
        try:
            first = self(start)
            scale = max(abs(first[0]), 1e-300)
            options = {"ftol": CONVERGED, "gtol": CONVERGED, "maxfun": self.most}

            def scaled(x: Array) -> tuple[float, Array]:
                value, slope = self(x)
                return value / scale, slope / scale

            found = minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            self.message = f"ended: {found.message}"
        except _LimitError as reason:
            self.message, self.ended = str(reason), clock.now() + self._seconds() > self.deadline
        except KernelOptError as error:
            if not self.evaluations:
                raise
            self.message = f"ended: no gradient: {str(error).splitlines()[0]}"

    def __call__(self, x: Array) -> tuple[float, Array]:
        """The criterion and its gradient at x."""
        values = self.box.values(np.clip(x, self.box.low, self.box.high))
        known = self._known(values)
        if known is None:
            if self.evaluations and clock.now() + self._seconds() > self.deadline:
                raise _LimitError("ended: time limit")
            if self.count >= self.most:
                raise _LimitError(f"ended: {self.most} evaluations")
            for p, value in zip(self.box.parameters, values, strict=True):
                p.value = value
            # Without the first evaluation there is no answer: it may take longer.
            criterion, slopes = self.judge.evaluate(self.options, self.deadline if self.evaluations else inf)
            known = Evaluation(self.start, values, criterion, slopes, clock.now() - self.began)
            self.evaluations.append(known)
            self.count += 1
            self._show()
        return known.criterion, self.box.slopes(known.values, known.gradient)

    def _seconds(self) -> float:
        """The mean duration of an evaluation; no other one is begun where less is left, which the last solve takes."""
        return self.evaluations[-1].seconds / len(self.evaluations)

    def _known(self, values: tuple[Array, ...]) -> Evaluation | None:
        """The last evaluation, where it was at these values."""
        last = self.evaluations[-1] if self.evaluations else None
        same = last is not None and all(np.array_equal(a, b) for a, b in zip(last.values, values, strict=True))
        return last if same else None

    def _show(self) -> None:
        with suppress(AttributeError):
            self.bar.update()
            self.bar.set_postfix_str(f"{min(e.criterion for e in self.evaluations):.6g}")


def _chosen(problem: Problem, parameters: Sequence[cp.Parameter], criterion: Any) -> list[cp.Parameter]:
    """The parameters. Raises ParameterError for others than the problem's and criterion's, and without a value."""
    require_kind(parameters, (cp.Parameter, list, tuple), "parameters", "a list of parameters of the problem")
    several = [parameters] if isinstance(parameters, cp.Parameter) else list(parameters)
    known = [*problem.parameters(), *(criterion.parameters() if isinstance(criterion, cp.Expression) else [])]
    for p in several:
        if not isinstance(p, cp.Parameter) or not any(p is q for q in known):
            shown = p.name() if isinstance(p, cp.Parameter) else repr(p)
            names = ", ".join(q.name() for q in known) or "none"
            raise ParameterError(f"Expected parameters of the problem, {names}; got {shown}.")
        if isinstance(p, cp.CallbackParam):
            raise ParameterError(
                f"Expected parameters that take values; got {p.name()}, a CallbackParam. Tune the parameters that its "
                "function reads, stated as expressions: 2 * a in place of CallbackParam(lambda: 2 * a.value)."
            )
        if p.value is None:
            raise ParameterError(f"Expected a value of {p.name()}, the first start; got none. Set {p.name()}.value.")
    if not several:
        raise ParameterError("Expected at least one parameter; got none.")
    return several


def _require_counts(*counts: Any) -> None:
    for count in counts:
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise OptionError(f"Expected n_init and max_evaluations to be integers ≥ 1; got {count!r}.")
