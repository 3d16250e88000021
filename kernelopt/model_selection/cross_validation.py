"""Cross-validation of a stated problem: folds are weights of rows, so that one factor serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from math import inf, isfinite
from pickle import PicklingError, loads
from time import time
from traceback import format_exception
from types import CodeType, MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np
from tqdm.auto import tqdm

from kernelopt.driver.options import spelling
from kernelopt.errors import DataError, KernelOptError, MemoryLimitError, OptionError, ParameterError
from kernelopt.factorization import memory
from kernelopt.kernels.domains import frozen
from kernelopt.kernels.sources import refuse_masked
from kernelopt.language.expressions import Theta
from kernelopt.model_selection import carried
from kernelopt.model_selection.path_table import EVALUATION, Path, PathSolution
from kernelopt.model_selection.paths import kernel_values, path
from kernelopt.model_selection.squares import summands
from kernelopt.problem import Problem, require_problem
from kernelopt.solvers import machines
from kernelopt.support import clock
from kernelopt.support.checks import generator, require_flag, require_limit, shown
from kernelopt.support.cvxpy_parts import PRODUCTS, AddExpression, NegExpression, Sum
from kernelopt.support.optional import optional
from kernelopt.support.processes import number_of_processes
from kernelopt.support.properties import cached_property
from kernelopt.support.table import Table
from kernelopt.support.types import Array, Ints

# Relative to the largest of the objective values that are compared: a second difference up to this is rounding, and the
# objective counts as affine in the weights.
ADDITIVE = 1e-9

# Atoms that are affine in all arguments together.
SUMS = (AddExpression, NegExpression, Sum)

# What a function may read of a problem.
STATED = (Problem, Theta, cp.Expression, cp.Problem, cp.Minimize, cp.Maximize)

Loss = Callable[[Problem, Ints], float]
Fold = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation(Table):
    """Losses of rows that were left out, for the values of a parameter; made by `ko.cross_validate`.

    `table[name]` is a column, a read-only numpy array. Columns are the parameter (by its name), "mean" and "std" of the
    loss over the folds (std divides by the number of folds, as numpy's does), "fold 1" … the loss of each fold, "gap",
    the largest certified relative gap of the folds' fits (nan where a fit has none), and "seconds". It prints as a
    table. In the table of an error, nan stands for what was not solved.

    Attributes
    ----------
    parameter : cp.Parameter
    folds : tuple of (train, test), the rows of each fold
    paths : tuple of Path, one per fold
        Fitted functions, statuses and certificates; `paths[k].restore(i)` puts a fit on the problem, with the weights
        of its fold.
    """

    parameter: cp.Parameter
    folds: tuple[Fold, ...]
    paths: tuple[Path, ...]

    @cached_property
    def _values(self) -> list[float]:
        """The values that some fold was fitted for, in the order that was asked for; paths have some or all of them."""
        return [s.parameter for s in max(self.paths, key=len).solutions]

    def _of_fits(self, number: Callable[[PathSolution], float]) -> Array:
        """A number of each value (rows) and fold (columns); nan where there is no fit."""
        found = np.full((len(self._values), len(self.folds)), np.nan)
        for k, fold in enumerate(self.paths):
            known = {s.parameter: number(s) for s in fold.solutions}
            found[:, k] = [known.get(value, np.nan) for value in self._values]
        return found

    @cached_property
    def losses(self) -> Array:
        """The loss of each value (rows) in each fold (columns); nan where a fit has no answer."""
        return frozen(self._of_fits(lambda s: s.evaluation.get(EVALUATION, np.nan)))

    @cached_property
    def columns(self) -> Mapping[str, Array]:
        """The columns by name."""
        gaps = self._of_fits(lambda s: s.certificate.relative_gap if s.certificate else np.nan)
        table = {
            self.parameter.name(): self._values,
            "mean": self.losses.mean(axis=1),
            "std": self.losses.std(axis=1),
            **{f"fold {k}": column for k, column in enumerate(self.losses.T, start=1)},
            "gap": gaps.max(axis=1),
            "seconds": np.nansum(self._of_fits(lambda s: s.seconds), axis=1),
        }
        return MappingProxyType({name: frozen(np.array(column)) for name, column in table.items()})

    @property
    def best(self) -> float:
        """The value of the smallest mean loss; the largest of several.

        Raises KernelOptError where every value lacks an answer in some fold.
        """
        means, values = self["mean"], self[self.parameter.name()]
        if np.isnan(means).all():
            raise KernelOptError("Expected a value with an answer in every fold; there is none. See the folds' paths.")
        return float(np.max(values[means == np.nanmin(means)]))

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean loss, with its standard deviation over the folds, by matplotlib; return the Axes."""
        return self._drawn(self.parameter.name(), ["mean"], ax, self["std"])


def cross_validate(
    problem: Problem,
    weights: cp.Parameter,
    parameter: cp.Parameter,
    values: Any,
    *,
    cv: Any = 5,
    loss: Loss | None = None,
    random_state: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    time_limit: float | None = None,
    progress: bool = False,
    **solve_options: Any,
) -> CrossValidation:
    """Fit without each fold of rows, for each value of a parameter, and evaluate the fits on the rows left out.

    The weights of rows are a parameter of the problem, as in `w @ ko.losses.hinge(y, f(X))`. Setting its weights to 0
    leaves a fold out. The kernel matrix is therefore factored once, for all rows, folds and values. In each fold the
    values are solved as by `ko.path`, each from the last answer. Constraints hold in all fits, also on rows left out,
    and so do the domains of losses, such as that of a logarithm.

    The loss of the left-out rows is the stated one, their part of the (minimized) objective,

        (F(w on the fold, 0 elsewhere) − F(0)) / Σ (w on the fold),

    with F the objective at the fit, as a function of the weights. Penalties of θ cancel.

    The call does not change the problem, also after an error. It only keeps the factor; of several processes, none.

    Parameters
    ----------
    problem : Problem
    weights : cp.Parameter (N,)
        The weights of the rows; `cp.Parameter(N, nonneg=True)`. Its present values are the weights of rows that take
        part in a fit, 1 where it has no values. The objective must be affine in it.
    parameter : cp.Parameter
        A scalar one of the problem's, such as λ.
    values : array (n,)
    cv : int, splitter, or iterable of (train, test)
        A number of folds, drawn at random, whose sizes differ by at most 1; an object with `split(rows)`, such as
        scikit-learn's `KFold`; or pairs of arrays of rows, such as `list(StratifiedKFold(5).split(X, y))`. Rows in
        neither array of a pair have weight 0.
    loss : function (problem, test) → float
        Called after each fit of a fold, with the numbers of the rows left out; smaller is better. By default the stated
        loss. It is required where the objective has a variable per row beside θ, such as slacks: those of rows with
        weight 0 are not determined.
    random_state : seed, or generator, of the folds where `cv` is a number
    n_jobs : int, optional
        Number of processes (joblib's) that fit folds at the same time, by default 1; −1 for all cores. Each has a copy
        of the problem, a factor and an equal share of the memory limit. It begins its first fold without a neighbour,
        so that losses differ from those of one process within `tol`. The problem, `loss` and options must pickle, by
        cloudpickle. What `loss` changes in other objects stays in its process. An error is raised when the other
        processes have ended. `paths[k].restore(i)` sets values, multipliers and the certificate, but no factor, which
        `paths[k].at` needs.
    time_limit : seconds of the whole call
    progress : whether to show a bar of folds; with several processes it moves when one ends
    **solve_options : passed on to `Problem.solve`

    Returns
    -------
    CrossValidation
        A table with a row for each value; `.best` is the value of the smallest mean.

    Raises
    ------
    ParameterError
        When `weights` or `parameter` is not of the problem, or of another shape.
    DataError
        For folds that are not rows, or have no row on a side; for values that are not finite numbers.
    OptionError
        For `cv`, `loss` or `n_jobs` of another kind, for a loss that does not return a number, for several processes
        beside `backend`, and for what does not pickle.
    MissingPackageError
        For several processes without joblib.
    KernelOptError
        Without `loss`, where the objective is not affine in the weights; when the time is up before all is solved.

    Notes
    -----
    Errors of `Problem.solve` are raised too. An exception after the first fit, also for the time limit and for
    Ctrl-C, has the table of all fits so far in its attribute `table`; after Ctrl-C, of the processes that have ended.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).standard_t(2, size=60)
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    >>> w = cp.Parameter(60, nonneg=True, name="w")
    >>> lam = cp.Parameter(nonneg=True, name="lam")
    >>> errors = ko.losses.absolute_error(y, theta(X) + b)
    >>> problem = ko.Problem(cp.Minimize(w @ errors + lam * ko.sum_squares(theta)))
    >>> table = ko.cross_validate(problem, w, lam, [0.01, 0.1, 1.0, 10.0], cv=5)
    >>> table["mean"].round(2)
    array([0.53, 0.52, 0.52, 0.68])
    >>> w.value, lam.value = np.ones(60), table.best
    >>> problem.solve() > 0
    True
    """
    require_problem(problem)
    problem._require_no_boxes("ko.cross_validate")
    base = _base_weights(problem, weights)
    if loss is not None and not callable(loss):
        raise OptionError(f"Expected loss to be a function of (problem, test rows); got {loss!r}.")
    require_limit(time_limit)
    require_flag(progress, "progress")
    folds = _folds(cv, base, random_state)
    machines.expect_many()
    jobs = 1 if n_jobs is None else min(number_of_processes(n_jobs, carried.NEEDED_FOR), len(folds))
    if jobs > 1 and solve_options.get("backend") is not None:
        raise OptionError(
            f"Expected one process, n_jobs=1, beside backend; got {jobs}. The workers of a cluster share each fit "
            "already."
        )
    if jobs > 1:
        _require_own_names(loss)
    deadline = inf if time_limit is None else clock.now() + time_limit
    # Processes have copies of the problem, which take its lock when they are made.
    with problem._lock if jobs == 1 else nullcontext():
        restore, found = problem._keep(), list[Path]()
        sweep = _Sweep(problem, weights, parameter, values, base, loss, solve_options)
        begun = sweep.in_turn(folds, deadline) if jobs == 1 else sweep.in_processes(folds, deadline, jobs)
        try:
            with closing(begun):
                found += tqdm(begun, "folds", len(folds), disable=not progress)
            if clock.now() > deadline:
                raise KernelOptError(
                    f"Expected to end within {time_limit:g} seconds; {sum(map(bool, found))} of {len(folds)} folds "
                    "were begun. Raise time_limit, or take fewer values or folds."
                )
        except BaseException as error:
            found += _begun(error)
            if any(found):
                error.table = CrossValidation(parameter, folds, tuple(found))  # type: ignore[attr-defined]
                error.add_note(
                    f"{sum(map(len, found))} fits were done before; this error's attribute `table` has them."
                )
            raise
        finally:
            restore()
        return CrossValidation(parameter, folds, tuple(found))


@dataclass(frozen=True, eq=False)
class _Sweep:
    """What fits of all folds have in common."""

    problem: Problem
    weights: cp.Parameter
    parameter: cp.Parameter
    values: Any
    base: Array
    loss: Loss | None
    options: Mapping[str, Any]

    def in_turn(self, folds: Sequence[Fold], deadline: float) -> Generator[Path, None, None]:
        """The path of each fold, each fit from the answer of the last fold for the same value, until the deadline."""
        stated, last = _StatedLoss.of(self.problem, self.weights), None
        judge = self.loss or (lambda _, rows: stated.on(on_rows(rows, self.base)))
        with kernel_values(self.problem, self.options):
            for train, test in folds:
                if last is not None:
                    if clock.now() > deadline:
                        return
                    max(last.solutions, key=lambda row: row.parameter)._restore()
                self.weights.value = on_rows(train, self.base)
                left = None if not isfinite(deadline) else max(deadline - clock.now(), 1e-3)
                with spelling(cross_validate, self.options):
                    last = path(
                        self.problem, self.parameter, self.values, evaluate=_number(judge, test), time_limit=left,
                        **self.options,
                    )  # fmt: skip
                yield last

    def in_processes(self, folds: Sequence[Fold], deadline: float, jobs: int) -> Generator[Path, None, None]:
        """The same with consecutive folds in each of some processes; a path without rows for a fold not begun.

        Raises the first error of a process after the paths of all.
        """
        joblib, failure = optional("joblib", carried.NEEDED_FOR), None
        limit = memory.allowed_bytes(self.options.get("memory_limit")) / jobs
        sweep = replace(self, options={**self.options, "memory_limit": limit})
        parts = [[folds[k] for k in part] for part in np.array_split(np.arange(len(folds)), jobs)]
        end = deadline if not isfinite(deadline) else time() + deadline - clock.now()
        # Arrays are copied: as files on disk they would be read-only for a kernel or a loss of the user's.
        run = joblib.Parallel(jobs, backend="loky", return_as="generator", max_nbytes=None)
        try:
            with closing(run(joblib.delayed(_in_process)(sweep, part, end) for part in parts)) as results:
                for part, (answers, error) in zip(parts, results, strict=True):
                    found = carried.unpacked(self.problem, self.parameter, answers)
                    yield from found
                    yield from (Path(self.problem, self.parameter, ()) for _ in part[len(found) :])
                    failure = failure or error
        except PicklingError as error:
            raise OptionError(
                "Expected a problem, a loss and options that pickle, for several processes: without locks, open files "
                f"and connections. Leave n_jobs at 1, or define them otherwise. {error.__cause__ or error}"
            ) from error
        if failure is not None:
            raise failure


def _in_process(sweep: _Sweep, folds: Sequence[Fold], end: float) -> tuple[bytes, BaseException | None]:
    """The paths of some folds, and the error that ended them; `end` is a time of the clock that processes share."""
    machines.expect_many()
    found, failure = list[Path](), None
    begun = sweep.in_turn(folds, end if not isfinite(end) else clock.now() + end - time())
    try:
        with closing(begun):
            found.extend(begun)
    except BaseException as error:
        found += _begun(error)
        failure = _to_send(error)
    return carried.packed(sweep.problem, found), failure


def _begun(error: BaseException) -> list[Path]:
    """The rows that `path` gave an error; an ImportError has an attribute of that name, too."""
    found = getattr(error, "path", None)
    return [found] if isinstance(found, Path) else []


def _to_send(error: BaseException) -> BaseException:
    """The error for another process, with its traceback as a note; a KernelOptError where it does not pickle."""
    if _begun(error):
        del error.path  # type: ignore[attr-defined]
    error.add_note(f"In the process that fitted these folds:\n{''.join(format_exception(error))}")
    if isinstance(error, MemoryLimitError):
        error.add_note("Each process has an equal share of memory_limit.")
    try:
        loads(carried.cloudpickle().dumps(error))  # noqa: S301 made here
    except Exception:
        sent = KernelOptError(f"{type(error).__name__}: {error}")
        for note in error.__notes__:
            sent.add_note(note)
        return sent
    return error


def _require_own_names(loss: Loss | None) -> None:
    """Raise OptionError for a function that a process would import, with objects of its module in place of the user's.

    Functions within functions, lambdas and those of the main script are copied together with what they read.
    """
    code, module = getattr(loss, "__code__", None), getattr(loss, "__module__", "__main__")
    if code is None or module == "__main__" or "<" in loss.__qualname__:  # type: ignore[union-attr]
        return
    known = [name for name in _names_in(code) if isinstance(loss.__globals__.get(name), STATED)]  # type: ignore[union-attr]
    if known:
        raise OptionError(
            f"Expected a loss that reads the problem's objects from its argument, for several processes; it reads "
            f"{', '.join(known)} of the module {module}, which a process imports anew. Define it within a function, "
            "beside the problem."
        )


def _names_in(code: CodeType) -> list[str]:
    """The names that code reads, and functions within it."""
    within = [_names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return list(dict.fromkeys([*code.co_names, *chain.from_iterable(within)]))


def _base_weights(problem: Problem, weights: Any) -> Array:
    """The weights of all rows. Raises ParameterError where `weights` is not a parameter of the problem."""
    known = isinstance(weights, cp.Parameter) and any(weights is p for p in problem.parameters())
    if not known or weights.ndim != 1:
        stands = "" if known or not isinstance(weights, cp.Parameter) else ", which is not in the problem"
        raise ParameterError(
            "Expected weights to be a parameter of the problem, w = cp.Parameter(N, nonneg=True) with w @ (losses of "
            f"the rows) in the objective; got {weights!r}{stands}."
        )
    return np.ones(weights.size) if weights.value is None else np.array(weights.value, dtype=float)


def on_rows(rows: Ints, base: Array) -> Array:
    """The weights on some rows, as often as they are named; 0 elsewhere."""
    return np.asarray(base * np.bincount(rows, minlength=len(base)))


def _folds(cv: Any, base: Array, random_state: Any) -> tuple[Fold, ...]:
    """(train, test) of each fold. Raises OptionError, or DataError where entries are not rows."""
    N = len(base)
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if not 2 <= cv <= N:
            raise OptionError(f"Expected from 2 to {N} folds for {N} rows; got {shown(cv)}.")
        order = generator(random_state).permutation(N)
        tests = [np.sort(part) for part in np.array_split(order, int(cv))]
        return tuple((np.setdiff1d(np.arange(N), test), test) for test in tests)
    try:
        pairs = [(train, test) for train, test in (cv.split(np.zeros((N, 1))) if hasattr(cv, "split") else cv)]
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"Expected cv to be a number, a splitter that needs no y, or pairs (train, test) of rows such as "
            f"list(splitter.split(X, y)); got {cv!r}: {error}"
        ) from error
    found = tuple((_rows(train, N), _rows(test, N)) for train, test in pairs)
    if not found:
        raise DataError("Expected folds with rows of positive weight on both sides; got no folds.")
    for k, fold in enumerate(found):
        for part, name in zip(fold, ("trained on", "left out"), strict=True):
            if not (base[part] > 0).any():
                raise DataError(
                    f"Expected folds with rows of positive weight on both sides; fold {k} has none that is {name}."
                )
    if any(np.intersect1d(*fold).size for fold in found):
        raise DataError("Expected folds whose rows are left out of the fit; some are on both sides.")
    return found


def _rows(rows: Any, N: int) -> Ints:
    """Numbers of rows from numbers or a mask."""
    refuse_masked(rows, "the rows of a fold")
    array = np.asarray(rows)
    if array.dtype == bool and array.shape == (N,):
        return np.flatnonzero(array)
    if array.size == 0 and array.ndim == 1:
        return np.arange(0)
    if array.ndim != 1 or array.dtype.kind not in "iu" or np.any((array < -N) | (array >= N)):
        raise DataError(f"Expected numbers of rows below {N}, or a mask of {N} rows; got {shown(rows)}.")
    return np.sort(array % N)


def _number(loss: Loss, test: Ints) -> Callable[[Problem], float]:
    def evaluate(problem: Problem) -> float:
        found = loss(problem, test)
        if np.ndim(found) != 0 or np.asarray(found).dtype.kind not in "biuf":
            raise OptionError(f"Expected loss to return a number; got {found!r}.")
        return float(found)

    return evaluate


@dataclass(frozen=True, eq=False)
class _StatedLoss:
    """F, the minimized objective, as a function of the weights, for the stated loss of rows.

    terms : the summands of the objective in which the weights stand; is_affine : whether they are affine in the
    weights at every point, by the rules for sums and products
    """

    problem: Problem
    weights: cp.Parameter
    terms: tuple[Any, ...]
    is_affine: bool

    @classmethod
    def of(cls, problem: Problem, weights: cp.Parameter) -> _StatedLoss:
        terms = tuple(t for t in summands(problem.objective.args[0]) if _has(t, weights))
        return cls(problem, weights, terms, all(_is_affine_in(t, weights) for t in terms))

    def on(self, some: Array) -> float:
        """(F(some weights) − F(0)) / Σ some.

        Raises KernelOptError where F is not affine in the weights, and DataError where these rows have none.
        """
        if not some.any():
            raise DataError(
                "Expected folds with rows of positive weight on both sides; got one whose test rows have weight 0. "
                "Give cv as pairs (train, test), or weights.value with positive numbers."
            )
        on_train = self.weights.value
        try:
            none, test = (self._at(w) for w in (0 * some, some))
            # An affine F has F(a + b) − F(a) − F(b) + F(0) = 0 for all a and b.
            train, both = (0.0, 0.0) if self.is_affine else (self._at(on_train), self._at(some + on_train))
        finally:
            self.weights.value = on_train
        largest = max(abs(none), abs(test), abs(train), abs(both))
        if not self.is_affine and abs(both - test - train + none) > ADDITIVE * largest:
            raise KernelOptError(
                "Expected an objective that is affine in the weights, for the stated loss of rows left out. Write w @ "
                "loss, or give a loss: loss=lambda problem, test: …."
            )
        return (test - none) / float(some.sum())

    def _at(self, w: Array) -> float:
        """F without terms in which weights do not stand."""
        self.weights.save_value(w)
        sign = -1.0 if isinstance(self.problem.objective, cp.Maximize) else 1.0
        return sign * sum(float(term.value) for term in self.terms)


def _has(node: Any, weights: cp.Parameter) -> bool:
    return any(p is weights for p in node.parameters())


def _is_affine_in(node: Any, weights: cp.Parameter) -> bool:
    """Whether a node is affine in a parameter at every point: a sum, or a product in which one factor is."""
    if node is weights or not _has(node, weights):
        return True
    if isinstance(node, PRODUCTS) and sum(_has(arg, weights) for arg in node.args) > 1:
        return False
    return isinstance(node, (*SUMS, *PRODUCTS)) and all(_is_affine_in(arg, weights) for arg in node.args)
