"""cvxpy's solvers on the reduced problem, whose data are scaled to about 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import cvxpy as cp
import cvxpy.error
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import attributes, integers
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.conic_form import ConicForm, typical
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import DCPError, MemoryLimitError, ParameterError, SolverError
from kernelopt.factorization import memory
from kernelopt.results.solution import Status
from kernelopt.solvers import branch_and_bound, cone_memory, integer_boxes
from kernelopt.solvers.equilibration import equilibrate
from kernelopt.support import clock, outside
from kernelopt.support.checks import is_integer, shown
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.cvxpy_parts import Compiled, compiled
from kernelopt.support.cvxpy_parts import Solution as CvxpySolution
from kernelopt.support.cvxpy_parts import SolverStats as CvxpyStats
from kernelopt.support.locks import is_forked
from kernelopt.support.types import Array


class ConicSolver(NamedTuple):
    """How a cvxpy solver takes our tolerance and a time limit, and how to install it.

    finest : it is not tried on answers with a relative gap up to this, which a first-order method would not improve
    stopped : whether its own handler of Ctrl-C ended it, by its return value; keeps : whether a point is there then
    names : its options; complete : whether these are all, as the installed solver itself lists them
    """

    install: str
    options: Callable[[float], dict[str, Any]] = lambda tol: {}
    time_limit: str | None = None
    finest: float = 0.0
    stopped: Callable[[Any], bool] = lambda raw: False
    keeps: bool = False
    names: Callable[[], Collection[str]] = tuple
    complete: bool = False


def _clarabel(tol: float) -> dict[str, Any]:
    return {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}


def _osqp(tol: float) -> dict[str, Any]:
    return {"eps_abs": tol, "eps_rel": tol, "max_iter": 100_000}


def _ecos(tol: float) -> dict[str, Any]:
    return {"abstol": tol, "reltol": tol, "feastol": tol}


def _scs(tol: float) -> dict[str, Any]:
    return {"eps_abs": tol, "eps_rel": tol, "max_iters": 100_000}


def _highs(tol: float) -> dict[str, Any]:
    """Its own defaults of branch and bound leave 1e-4 of the value, or 1e-6, and integers that are off by 1e-6."""
    near = min(max(tol, HIGHS_LEAST), 1e-6)
    return {"mip_rel_gap": tol, "mip_abs_gap": tol, "mip_feasibility_tolerance": near}


def _ecos_bb(tol: float) -> dict[str, Any]:
    """Its own defaults leave 1e-3 of the value, and integers that are off by 1e-4."""
    return {**_ecos(tol), "mi_rel_eps": tol, "mi_abs_eps": tol}


def _relaxations(tol: float) -> dict[str, Any]:
    """Clarabel as far as it gets, since its dual points are bounds; almost solved is what other solvers call solved."""
    return {**_clarabel(max(1e-2 * tol, TIGHTEST)), **_reduced(max(tol, TIGHTEST))}


def _reduced(tol: float) -> dict[str, Any]:
    """The accuracy that Clarabel calls almost solved."""
    return {f"reduced_{name}": value for name, value in _clarabel(tol).items()}


def _attributes(module: str, settings: str) -> list[str]:
    """The options of a solver that has a class of them."""
    return [name for name in dir(getattr(import_module(module), settings)) if not name.startswith("_")]


def _clarabel_names() -> list[str]:
    return [*_attributes("clarabel", "DefaultSettings"), "use_quad_obj", "accept_unknown"]  # the last two are cvxpy's


def _osqp_names() -> list[str]:
    return [
        *_attributes("osqp.ext_builtin", "OSQPSettings"),
        "polish",
        "solver_type",
        "cg_preconditioner",
        "warm_start",
    ]


# ECOS and SCS list their options in their documentation only.
ECOS_NAMES = ("max_iters", "abstol", "reltol", "feastol", "abstol_inacc", "reltol_inacc", "feastol_inacc")
SCS_NAMES = (
    "max_iters", "eps", "eps_abs", "eps_rel", "eps_infeas", "alpha", "rho_x", "scale", "adaptive_scale", "normalize",
    "acceleration_lookback", "acceleration_interval", "time_limit_secs", "use_indirect", "use_quad_obj",
)  # fmt: skip
HIGHS_LEAST = 1e-10  # least mip_feasibility_tolerance that it takes
# What other solvers call the accuracy, for which solve() has tol.
ACCURACY = {"eps", "eps_abs", "eps_rel", "abstol", "reltol", "feastol", "tol_gap_abs", "tol_gap_rel", "tol_feas"}
ITERATIONS = {
    "max_iter",
    "max_iters",
}  # numbers of iterations, which solvers refuse without their name, or take as others
SPELLED = 0.8  # least ratio of difflib for an option of the solver that was meant: max_iters suggests max_iter
ECOS_STOPPED, ECOS_INACCURATE, SCS_STOPPED = -4, 10, -5  # in the headers of ECOS and of SCS
# The solvers that kernelopt's tests cover. Every other one that cvxpy finds installed works by name, with its own
# defaults.
CONIC_SOLVERS = {
    "CLARABEL": ConicSolver("comes with cvxpy", _clarabel, "time_limit", names=_clarabel_names, complete=True),
    "OSQP": ConicSolver(
        "comes with kernelopt",
        _osqp,
        "time_limit",
        stopped=lambda raw: raw.info.status == "interrupted",
        names=_osqp_names,
        complete=True,
    ),
    "ECOS": ConicSolver(
        "pip install ecos (Python < 3.13)",
        _ecos,
        stopped=lambda raw: raw["info"]["exitFlag"] == ECOS_STOPPED,
        keeps=True,
        names=lambda: ECOS_NAMES,
    ),
    "SCS": ConicSolver(
        "comes with cvxpy",
        _scs,
        "time_limit_secs",
        1e-7,
        lambda raw: raw["info"]["status_val"] == SCS_STOPPED,
        names=lambda: SCS_NAMES,
    ),
    "HIGHS": ConicSolver(
        "comes with cvxpy", _highs, "time_limit", names=lambda: _attributes("highspy", "HighsOptions")
    ),
    "ECOS_BB": ConicSolver(
        "pip install ecos (Python < 3.13)",
        _ecos_bb,
        stopped=lambda raw: raw["info"]["exitFlag"] == ECOS_STOPPED,
    ),
    "BRANCH_AND_BOUND": ConicSolver("comes with kernelopt", _relaxations, names=_clarabel_names, complete=True),
}
BRANCH_AND_BOUND = "BRANCH_AND_BOUND"  # our own, with Clarabel for its relaxations
# The bound of the optimum that branch and bound tells beside its answer, where its raw answer holds one.
BOUNDS: dict[str, Callable[[Any], float]] = {
    "HIGHS": lambda raw: raw["info"].mip_dual_bound,
    "SCIPY": lambda raw: raw["mip_dual_bound"],
    "SCIP": lambda raw: raw["model"].getDualbound(),
    "GUROBI": lambda raw: raw["model"].ObjBound,
}
# Rows whose largest coefficient is between 1/MODERATE and MODERATE are not rescaled: units that differ by less cost few
# digits.
MODERATE = 1e2
COMPILED_BYTES = 160  # bytes per entry of B, taken by cvxpy and its solvers (measured: 110 to 170)
# Seconds per entry of B that cvxpy compiles (measured: 4e-7): the reduced problem is not compiled where that takes
# longer than the time that is left.
COMPILE_SECONDS = 4e-7
TIGHTEST = 1e-12  # least tolerance passed to a solver: rounding in double precision prevents smaller ones
HUGE = 1e100  # a variable with an entry of this size counts as one without a value: its square is close to overflow

# Every other status becomes user_limit, and so does one that promises a point without giving one.
STATUSES = {
    cp.OPTIMAL: Status.OPTIMAL,
    cp.OPTIMAL_INACCURATE: Status.OPTIMAL_INACCURATE,
    cp.INFEASIBLE: Status.INFEASIBLE,
    cp.UNBOUNDED: Status.UNBOUNDED,
}


# Clarabel's statuses that say something of a relaxation.
CLARABEL_STATUSES = {
    "Solved": Status.OPTIMAL, "AlmostSolved": Status.OPTIMAL,
    "PrimalInfeasible": Status.INFEASIBLE, "DualInfeasible": Status.UNBOUNDED,
}  # fmt: skip
# The accuracy of a relaxation that Clarabel does not solve better, and what counts as almost solved, of the tolerance.
SOLVED, ALMOST = 1e-2, 1e-1
AS_IT_IS = {"equilibrate_enable": False}  # the data are in units of their own, and Clarabel's may stall on a box
WIDE = 100.0  # intervals of integers longer than this are moved to where the relaxation puts them
GAP = 0.5  # of the tolerance: what branch and bound may leave, beside the accuracy of its relaxations


# Solvers that tell no bound, and whose claims are wrong now and then: ECOS_BB calls points optimal that enumeration
# shows not to be, and feasible problems infeasible. cvxpy takes it by name only, too.
UNRELIABLE = {"ECOS_BB"}


def unknown_options(solver: str, options: Iterable[str]) -> list[str]:
    """The options that a solver is known not to have."""
    known = CONIC_SOLVERS.get(solver, ConicSolver(""))
    names = _names(known) if known.complete else ()
    return [name for name in options if names and name not in names]


def meant(solver: str, options: Iterable[str]) -> str:
    """For options that a solver refused: the option that may have been meant, and the solvers that have it."""
    own, said, accuracy = _names(CONIC_SOLVERS.get(solver, ConicSolver(""))), list[str](), False
    for option in options:
        accuracy |= "tol" in option or "eps" in option
        if option in own:  # its value was refused
            continue
        others = [name for name, known in CONIC_SOLVERS.items() if name != BRANCH_AND_BOUND and option in _names(known)]
        if others:
            said.append(f"{option} is an option of {' and '.join(others)}.")
        if option not in ACCURACY and (near := get_close_matches(option, own, n=1, cutoff=SPELLED)):
            said.append(f"That of {solver} is {near[0]}.")
    if accuracy:
        said.append("For the accuracy write tol=, which every solver takes.")
    return " ".join(said)


def _names(solver: ConicSolver) -> Collection[str]:
    try:
        return solver.names()
    except ImportError:  # it is not installed
        return ()


@dataclass(frozen=True)
class Answer:
    """A solver's status, whether it found a point, and its own statistics.

    point : its point, not evaluated yet; without `has_point` only its multipliers may be of use
    left_off : the starting point for the next solve
    interrupted : whether Ctrl-C ended it
    gap : absolute, of the reduced problem, by the solver's own dual point; NaN where it has none
    predictions : Bv of each link, where the solver knows them
    bound : of the minimized reduced problem, by the word of a mixed-integer solver; NaN where it tells none
    rows : multipliers of all rows of the pieces, where the solver takes pieces
    """

    status: Status
    has_point: bool
    stats: CvxpyStats
    point: Iterate | None = None
    left_off: Any = None
    interrupted: bool = False
    gap: float = nan
    predictions: tuple[Array, ...] | None = None
    bound: float = nan
    rows: Array | None = None


def solve(  # noqa: PLR0917
    problem: cp.Problem, solver: str, tol: float, options: Mapping[str, Any],
    units: tuple[float, float] | None = None, seconds: float | None = None, penalized: Sequence[cp.Variable] = (),
    memory_limit: float | None = None,
) -> Answer:  # fmt: skip
    """Solve a reduced problem; values and multipliers stay on its variables and constraints.

    All variables are measured in σ and the objective in κ. The same unit for all variables leaves cones unchanged, so
    that x = σx̃ and z = (κ/σ)z̃. `units` are the sizes of x and z from an earlier answer; by default σ is a typical
    right-hand side and κ = max(σ‖c‖∞, σ²‖P‖∞), without the `penalized` variables, whose weight may be of any size.

    Raises SolverError, DCPError or ParameterError with cvxpy's own words, MemoryLimitError before the solver takes
    more than `memory_limit`, and KeyboardInterrupt after Ctrl-C.
    """
    deadline = inf if seconds is None else clock.now() + seconds
    known = CONIC_SOLVERS.get(solver, ConicSolver(""))
    ours = known.options(max(1e-2 * tol, TIGHTEST))  # the certified gap adds the factor's error
    if seconds is not None and known.time_limit:
        ours[known.time_limit] = max(seconds, 1e-3)  # a limit ≤ 0 may mean no limit
    ours |= {k: v for k, v in options.items() if k not in ("warm_start", "verbose")}
    if solver in ("CLARABEL", BRANCH_AND_BOUND) and is_forked():
        ours["max_threads"] = 1  # with more, it would wait for a pool of threads that this process does not have
    try:
        with _told(solver, options):
            if solver == BRANCH_AND_BOUND:
                return _by_branch_and_bound(problem, tol, ours, deadline, memory_limit)
            return _by_cvxpy(problem, solver, options, ours, deadline, units, penalized, memory_limit)
    except OutOfTimeError:
        return nothing(solver)


@contextmanager
def _told(solver: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Errors of cvxpy and of solvers as ours, with their own words."""
    try:
        yield
    except cvxpy.error.ParameterError as error:
        raise ParameterError(str(error)) from error
    except cvxpy.error.DCPError as error:
        raise DCPError(str(error)) from error
    except (cvxpy.error.SolverError, RuntimeError) as error:  # ECOS raises one where it can't set up a problem
        raise SolverError(f"{solver}: {error}") from error
    except Exception as error:  # Clarabel raises plain ones, and OverflowError for numbers that are too large
        if not isinstance(error, (TypeError, ValueError, OverflowError)) and type(error) is not Exception:
            raise
        given = sorted(set(options) - {"verbose", "warm_start"})
        raise SolverError(
            f"{solver} did not take the options {', '.join(given) or 'that it was given'}, which solve() itself does "
            f"not know: {str(error).rstrip('.')}. {meant(solver, given)}".rstrip()
        ) from error


def _by_cvxpy(  # noqa: PLR0917
    problem: cp.Problem, solver: str, options: Mapping[str, Any], ours: dict[str, Any], deadline: float,
    units: tuple[float, float] | None, penalized: Sequence[cp.Variable], memory_limit: float | None,
) -> Answer:  # fmt: skip
    """The answer of one of cvxpy's solvers."""
    known = CONIC_SOLVERS.get(solver, ConicSolver(""))
    for name in ITERATIONS & set(options):
        if not is_integer(options[name]) or options[name] < 1:
            raise SolverError(f"Expected {name} of {solver} to be an integer ≥ 1; got {shown(options[name])}.")
    if solver == "ECOS_BB" and not options.get("mi_max_iters", 1) >= 1:  # it ends the process
        raise SolverError(f"Expected mi_max_iters of ECOS_BB to be at least 1; got {options['mi_max_iters']!r}.")
    found = compiled(problem, solver, ours)
    _require_memory_of(found, memory_limit)
    mixed = problem.is_mixed_integer()
    plain = mixed or not isinstance(found.data, dict)
    of_x, of_z, kappa = _in_units(found, units, penalized, mixed)
    rows = _equilibrated(found.data) if solver == "CLARABEL" and not plain else None
    left = deadline - clock.now()
    if isfinite(left) and known.time_limit and known.time_limit not in options:
        ours[known.time_limit] = max(left, 1e-3)
    raw = found.answer(problem, options, ours, left)
    if known.stopped(raw) and clock.now() < deadline:
        outside.interrupt()
    if known.stopped(raw) and not known.keeps:
        raise OutOfTimeError
    raw = raw if rows is None else _ClarabelPoint(raw, rows)
    solution = _with_a_point(found, raw, (of_x, of_z))
    stats = CvxpyStats.from_dict(solution.attr, solver)
    if solution.status in cp.settings.ERROR:
        raise SolverError(f"{solver} failed. Try another solver, or verbose=True for more.")
    status = STATUSES.get(solution.status, Status.USER_LIMIT)
    if solver in UNRELIABLE:
        status = Status.OPTIMAL_INACCURATE if status == Status.OPTIMAL else Status.USER_LIMIT
    _unpack(problem, solution)
    has_point = _is_placed(problem) and solution.status in cp.settings.SOLUTION_PRESENT
    status = status if has_point or not status.has_point else Status.USER_LIMIT
    return Answer(status, has_point, stats, bound=_told_bound(found, raw, kappa) if mixed else nan)


@np.errstate(all="ignore")  # the point may be outside of the objective's domain
def _unpack(problem: cp.Problem, solution: Any) -> None:
    """Place a solution; diagonal variables get arrays: cvxpy can't index the sparse matrices that it makes of them."""
    for variable in problem.variables():
        if variable.attributes["diag"] and variable.id in solution.primal_vars:
            solution.primal_vars[variable.id] = attributes.dense(solution.primal_vars[variable.id])
    problem.unpack(solution)


def _is_placed(problem: cp.Problem) -> bool:
    """Move all variables to values with their attributes, and into v ≽ 0; whether each has a finite value."""
    for variable in problem.variables():
        _place_inside(variable)
    if not all(map(_has_value, problem.variables())):
        return False
    for constraint in problem.constraints:
        if isinstance(constraint, cp.constraints.PSD) and len(constraint.variables()) == 1:
            _make_definite(constraint)
    return True


def _make_definite(constraint: cp.constraints.PSD) -> None:
    """Move v of v ≽ 0 or −v ≽ 0 to the nearest definite value: relative to v ≈ 0 a solver's error is large."""
    (variable,), X = constraint.variables(), attributes.dense(constraint.args[0].value)
    v = attributes.dense(variable.value)
    sign = next((sign for sign in (1.0, -1.0) if X.shape == v.shape and np.array_equal(X, sign * v)), 0.0)
    if not sign or any(variable.attributes[name] for name in ("boolean", "integer", "bounds", "sparsity")):
        return
    even = (v + np.swapaxes(v, -2, -1).conj()) / 2  # what cvxpy asks to be definite, also of a v that is not symmetric
    value = v + (attributes.definite(even, sign) - even)
    variable.save_value(value)


def lacks_relaxation(problem: cp.Problem) -> str | None:
    """Why branch and bound of our own can't take a problem, as a phrase that follows its name; None if it can."""
    return None if problem.is_mixed_integer() else "takes problems with integers"


def _by_branch_and_bound(
    problem: cp.Problem, tol: float, ours: dict[str, Any], deadline: float, memory_limit: float | None
) -> Answer:
    """The answer of branch and bound; its bound is that of Clarabel's dual points, by its word."""
    if (reason := lacks_relaxation(problem)) is not None:
        raise SolverError(f"{BRANCH_AND_BOUND} {reason}.")
    relaxed, began = integers.relaxation(problem), clock.now()
    found = compiled(relaxed.problem, "CLARABEL", ours)
    _require_memory_of(found, memory_limit)
    first = found.first_column(relaxed.z)
    assert first is not None
    n = len(relaxed.lower)
    found.data["int_vars_idx"] = integer_boxes.beside(found.data, range(first, first + n))
    lower, upper, origin, added = relaxed.lower, relaxed.upper, np.zeros(len(found.data["c"])), 0.0
    if np.any(upper - lower > WIDE):
        origin = _whole_origin(found, relaxed.problem, ours, deadline)
        added = integer_boxes.shifted(found.data, origin)
        lower, upper = (bound - origin[first : first + n] for bound in (lower, upper))
    of_x, kappa = equilibrate(found.data, found.data["int_vars_idx"])
    pins = integer_boxes.pins(found.data, first, n)
    if integer_boxes.lacks_integers(found.data, pins):
        return Answer(Status.INFEASIBLE, False, CvxpyStats(BRANCH_AND_BOUND, solve_time=clock.now() - began))

    def on_box(lower: Array, upper: Array) -> branch_and_bound.Relaxed:
        boxed, added = integer_boxes.boxed(found, first, lower, upper, pins)
        for accuracy in (ours, ours | AS_IT_IS, ours | _clarabel(tol * SOLVED) | _reduced(tol * ALMOST)):
            raw = boxed.answer(relaxed.problem, {"warm_start": False}, accuracy, deadline - clock.now())
            if str(raw.status) in ("CallbackTerminated", "MaxTime"):
                raise OutOfTimeError
            if str(raw.status) in CLARABEL_STATUSES:
                break
        status, x = CLARABEL_STATUSES.get(str(raw.status), Status.USER_LIMIT), np.asarray(raw.x)
        if status in (Status.INFEASIBLE, Status.UNBOUNDED) or not np.isfinite(x).all():
            return branch_and_bound.Relaxed(status)
        bound = raw.obj_val_dual if status == Status.OPTIMAL else -inf
        if str(raw.status) == "AlmostSolved":
            bound -= tol * ALMOST * max(1.0, abs(bound))
        point = _ClarabelPoint(raw, without=added, status=None if status == Status.OPTIMAL else "AlmostSolved")
        return branch_and_bound.Relaxed(status, x[first : first + n], raw.obj_val, bound, point)

    answer = branch_and_bound.search(
        on_box, lower, upper, lambda value: GAP * tol * max(1.0, abs(value)), lambda value: GAP * tol * abs(value)
    )
    stats = CvxpyStats(BRANCH_AND_BOUND, solve_time=clock.now() - began)
    bound = found.offset + added + kappa * answer.bound
    if answer.kept is None:
        return Answer(answer.status, False, stats, bound=bound)
    answer.kept.x = np.asarray(answer.kept.x) + origin / of_x
    solution = found.solution(answer.kept, (of_x, 1.0))
    solution.dual_vars = {}  # those of a box are none of the problem
    _unpack(relaxed.problem, solution)
    relaxed.take()
    has_point = _is_placed(problem)
    status = answer.status if has_point else Status.USER_LIMIT
    return Answer(status, has_point, stats, bound=bound)


def _whole_origin(found: Compiled, problem: cp.Problem, ours: dict[str, Any], deadline: float) -> Array:
    """The integers next to the relaxation's, and 0 in all other columns; 0 where the relaxation has no point."""
    data = dict(found.data)
    units, _ = equilibrate(data, [])
    raw = found._replace(data=data).answer(problem, {"warm_start": False}, ours, deadline - clock.now())
    x, whole, origin = units * np.asarray(raw.x), found.data["int_vars_idx"], np.zeros(len(units))
    if CLARABEL_STATUSES.get(str(raw.status)) == Status.OPTIMAL and np.isfinite(x).all():
        origin[whole] = np.round(x[whole])
    return origin


def _told_bound(found: Compiled, raw: Any, kappa: float) -> float:
    """The solver's own bound of the minimized problem, constants included; NaN where its answer holds none."""
    try:
        bound = float(BOUNDS[found.solver](raw))
    except (KeyError, TypeError, AttributeError):  # a solver that tells none, or not this time
        return nan
    return found.offset + kappa * bound


def nothing(solver: str) -> Answer:
    """The answer of a solver whose time was over before it had a point."""
    return Answer(Status.USER_LIMIT, False, CvxpyStats(solver))


def _has_value(variable: cp.Variable) -> bool:
    """Whether a variable has finite values whose squares are finite: a solver that diverges may return 1e240."""
    value = variable.value.data if sp.issparse(variable.value) else variable.value
    return value is not None and bool(np.all(np.abs(value) < HUGE))


def _place_inside(variable: cp.Variable) -> None:
    """Move a variable's value to the nearest one with its attributes: a solver may return −1e-12 for a number ≥ 0."""
    if variable.value is None or variable.is_complex() or not any(variable.attributes.values()):
        return
    value = attributes.nearest(variable, attributes.dense(variable.value))
    variable.save_value(value)


def _in_units(
    found: Compiled, units: tuple[float, float] | None, penalized: Sequence[cp.Variable], mixed: bool
) -> tuple[float | Array, float, float]:
    """Rescale the solver's data, in place; return the units of x, for each column or for all, of z and of the
    objective."""
    if not isinstance(found.data, dict):  # a problem of constants is its own data
        return 1.0, 1.0, 1.0
    if mixed:
        whole = [*found.data.get("bool_vars_idx", ()), *found.data.get("int_vars_idx", ())]
        of_x, kappa = equilibrate(found.data, whole)
        return of_x, 1.0, kappa
    sigma, kappa = _scaled(found, units, penalized)
    return sigma, kappa / sigma, kappa


@np.errstate(over="ignore", invalid="ignore")  # a solver refuses data that are not finite
def _scaled(
    found: Compiled, units: tuple[float, float] | None, penalized: Sequence[cp.Variable]
) -> tuple[float, float]:
    """Rescale the solver's data, in place, by the units of x and of the objective; return these units (σ, κ)."""
    data = found.data
    bounds = [
        name for name in ("b", "h", "G", "lower_bounds", "upper_bounds") if getattr(data.get(name), "ndim", 0) == 1
    ]
    finite = np.concatenate([np.zeros(0), *(data[name][np.isfinite(data[name])] for name in bounds)])
    sigma = units[0] if units else typical(finite) or 1.0
    linear = "q" if data.get("q") is not None else "c"
    P = data.get("P")
    kappa = sigma * units[1] if units else _objective_unit(found, sigma, linear, penalized)
    kappa = kappa or 1.0  # of costs so small that their products underflow
    for name in bounds:
        data[name] = data[name] / sigma
    data[linear] = data[linear] * (sigma / kappa)
    if P is not None:
        data["P"] = P * (sigma**2 / kappa)
    return sigma, kappa


def _objective_unit(found: Compiled, sigma: float, linear: str, penalized: Sequence[cp.Variable]) -> float:
    """max(σ‖c‖∞, σ²‖P‖∞), where P leaves out penalized variables unless all other terms are 0."""
    data = found.data
    diagonal = np.zeros(len(data[linear])) if data.get("P") is None else np.abs(data["P"].diagonal())
    others = np.ones(len(diagonal), dtype=bool)
    for variable in penalized:
        start = found.first_column(variable)
        if start is not None:
            others[start : start + variable.size] = False
    linear_unit = sigma * float(np.abs(data[linear]).max(initial=0.0))
    kappa = max(linear_unit, sigma**2 * float(diagonal[others].max(initial=0.0)))
    return kappa or sigma**2 * float(diagonal.max(initial=0.0)) or 1.0


def _equilibrated(data: dict[str, Any]) -> Array:
    """Scale rows of the zero and nonnegative cones with coefficients far from 1 to unit size; return the factors.

    A bound on ‖θ‖ may be a row of any size, and solvers measure feasibility in absolute terms. Rows of other cones
    would need one scale per cone, and are left alone.
    """
    A, factors = sp.csr_array(data["A"]), np.ones(len(data["b"]))
    linear = data["dims"].zero + data["dims"].nonneg
    largest = abs(A[:linear]).max(axis=1).toarray().ravel() if linear and A.nnz else np.zeros(linear)
    odd = (largest > 0) & ((largest < 1 / MODERATE) | (largest > MODERATE))
    factors[:linear][odd] = 1 / largest[odd]
    if odd.any():
        data["A"], data["b"] = sp.csc_array(sp.diags_array(factors) @ A), factors * data["b"]
    return factors


class _ClarabelPoint:
    """Clarabel's answer with multipliers of the rows before `_equilibrated`, or the last point of a failed solve.

    The certificate decides how good that point is.
    """

    def __init__(
        self, raw: Any, rows: Array | None = None, status: str | None = None, without: Array | None = None
    ) -> None:
        """`without` are rows that were added to cvxpy's."""
        self.x, self.s, self.obj_val = raw.x, raw.s, raw.obj_val
        z = raw.z if without is None else np.delete(np.asarray(raw.z), without)
        self.z = z if rows is None else rows * np.asarray(z)
        self.status = status or str(raw.status)
        self.solve_time, self.iterations = raw.solve_time, raw.iterations


def _with_a_point(found: Compiled, raw: Any, units: tuple[float | Array, float] = (1.0, 1.0)) -> CvxpySolution:
    """The solution; where Clarabel or ECOS stopped at a limit, or Clarabel broke down, with its last point."""
    if found.solver == "ECOS" and raw["info"]["exitFlag"] == ECOS_STOPPED:
        raw["info"]["exitFlag"] = ECOS_INACCURATE
        solution = found.solution(raw, units)
        solution.status = cp.USER_LIMIT
        return solution
    solution = found.solution(raw, units)
    stopped = solution.status in (*cp.settings.ERROR, cp.USER_LIMIT) and not solution.primal_vars
    if not stopped or found.solver != "CLARABEL" or not len(raw.x) or not np.isfinite(raw.x).all():
        return solution
    limit = solution.status == cp.USER_LIMIT or str(raw.status) == "CallbackTerminated"
    solution = found.solution(_ClarabelPoint(raw, status="AlmostSolved"), units)
    solution.status = cp.USER_LIMIT if limit else cp.OPTIMAL_INACCURATE
    return solution


def _require_memory_of(found: Compiled, limit: float | None) -> None:
    """Raise MemoryLimitError where the solver's data say that it takes more memory than there is."""
    data = found.data if isinstance(found.data, dict) else {}
    matrices = [data[name] for name in ("A", "G", "F", "P") if sp.issparse(data.get(name))]
    cone_memory.require(found.solver, getattr(data.get("dims"), "psd", ()), sum(M.nnz for M in matrices), limit)


def entries(reduction: Reduction) -> int:
    """The number of coefficients of v that cvxpy compiles."""
    return sum(factor.B.size * (theta.outputs or 1) for theta, factor in reduction.factors.items())


def require_memory(
    reduction: Reduction, limit: float | None, solver: str = "CLARABEL", form: ConicForm | None = None
) -> None:
    """Raise MemoryLimitError where compiling and solving the reduced problem takes more memory than there is.

    form : the outer problem's cone data, whose semidefinite cones are those of the reduced problem; with them a problem
        is refused before it is compiled
    """
    memory.require(COMPILED_BYTES * entries(reduction), "Compiling and solving the reduced problem", limit)
    if form is not None:
        cone_memory.require(solver, form.cones.psd, form.A.nnz, limit)


def solve_reduction(  # noqa: PLR0917
    reduction: Reduction, solver: str, tol: float, options: Mapping[str, Any],
    units: tuple[float, float] | None = None, seconds: float | None = None, memory_limit: float | None = None,
) -> Answer:  # fmt: skip
    """The answer of one of cvxpy's solvers, with v, y and multipliers as an iterate."""
    if seconds is not None:
        deadline = clock.now() + seconds
        try:
            outside.wait_for_others(seconds - COMPILE_SECONDS * entries(reduction))
        except OutOfTimeError:
            return nothing(solver)
        seconds = deadline - clock.now()
    inner = reduction.inner
    penalized = [v for v in inner.v.values() if v is not None]
    answer = solve(inner.problem, solver, tol, options, units, seconds, penalized, memory_limit)
    v, nu = [], []
    for link in reduction.form.predictions:
        variable, constraint = inner.v[link.theta], inner.links[link.theta]
        shape = reduction.shape_of_v(link)
        known = None if variable is None else variable.value
        v.append(np.zeros(shape) if known is None else np.array(known, dtype=float))
        nu.append(None if constraint is None else constraint.dual_value)
    duals = {c.id: tuple(d.value for d in c.dual_variables) for c in inner.problem.constraints}
    point = Iterate(tuple(v), tuple(y.value for y in reduction.form.y), nu=tuple(nu), duals=duals)
    return replace(answer, point=point)


def fill_in(
    form: CanonicalForm, point: Iterate, tol: float, seconds: float | None = None, keeps: bool = False
) -> Iterate | None:
    """The point with optimal y for its u and t, and unchanged multipliers; None where no y is found.

    keeps : whether those of y that have a value keep it
    """
    place(form, point)
    linked = [link.u for link in form.predictions if link.u is not None] + [norm.t for norm in form.norms]
    linked += [v for v, value in zip(form.y, point.y, strict=True) if keeps and value is not None]
    fixed = [v == v.value for v in linked]
    problem = cp.Problem(form.bare.objective, [*form.bare.constraints, *fixed])
    try:
        found = solve(problem, "CLARABEL", tol, {}, None, seconds).has_point
    except (SolverError, MemoryLimitError):
        return None
    return replace(point, y=tuple(y.value for y in form.y), value=nan) if found else None
