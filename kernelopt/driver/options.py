"""The options of solve(), checked and bundled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import signature
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np

from kernelopt.driver.strategy import Goal
from kernelopt.errors import OptionError, SolverError
from kernelopt.factorization import AUTO, METHODS, FactorCache, Layout, Settings, memory
from kernelopt.factorization.block_matrix import Here
from kernelopt.factorization.cluster import OnDask, is_client
from kernelopt.solvers.cvxpy_solvers import ACCURACY
from kernelopt.support import clock
from kernelopt.support.checks import require_flag

INDEFINITE = ("raise", "clip", "flip", "shift")
SIMILAR = 0.65  # least ratio of difflib for a similar name: timelimit suggests time_limit, max_iter not max_rank
EXPANDED = "expanded"
MODELS = (EXPANDED, "compact")
# Options of cvxpy's solve() itself, with the reason why there is no use for them here.
OF_CVXPY = {
    "ignore_dpp": "after a change of a parameter the factor is used again, and the small problem is compiled as needed",
    "enforce_dpp": "parameters need not follow the DPP rules; problem.is_dpp() tells whether they do",
    "canon_backend": "the small problem is compiled with the backend that is the fastest for dense rows",
    "solver_path": "by default, further solvers are tried where the first falls short; solver= names a single one",
    "gp": "problems are solved by the DCP rules",
    "qcp": "problems are solved by the DCP rules",
    "nlp": "problems are solved by the DCP rules",
}
# Most and fewest rows of a block of B. Larger blocks take more memory per thread; smaller ones have more overhead each.
ROWS, FEWEST = 65536, 1024
# The default of rank_tol in units of tol, and its upper limit. A restriction costs a gap that is in proportion to its
# trace: with a larger share it may use up tol, with a smaller one the rank grows.
RANK_SHARE, LARGEST_RANK_TOL = 1e-2, 1e-4


@dataclass(frozen=True)
class FactorOptions:
    """How Q is factored; part of the key of a cached reduction.

    functions : whether a streamed factor may grow by functions Aᵀν; growth : how often it has grown;
    layout : where the blocks of B are, None where B is one array; why : the reason for the method, for `explain()`;
    cache : where factors of other problems are looked up
    """

    method: str
    settings: Settings
    memory_limit: float | None = field(compare=False)
    functions: bool = True
    growth: int = 0
    layout: Layout | None = None
    why: str = field(default="", compare=False)
    cache: FactorCache | None = field(default=None, compare=False)


def factor_options(  # noqa: PLR0917
    tol: float = 1e-6, rank_tol: float | None = None, max_rank: int | None = None,
    factorization: str | None = None, memory_limit: float | None = None, indefinite: str = "raise",
    random_state: Any = None, model: str = EXPANDED, cache: Any = None,
) -> FactorOptions:  # fmt: skip
    """Check the options of the factorization, and bundle them. Raises OptionError."""
    for name, value in (("tol", tol), ("rank_tol", LARGEST_RANK_TOL if rank_tol is None else rank_tol)):
        if not isinstance(value, Real) or not 0 < value < 1:
            raise OptionError(f"Expected {name} to be a number between 0 and 1; got {value!r}.")
    rank_tol = min(RANK_SHARE * tol, LARGEST_RANK_TOL) if rank_tol is None else rank_tol
    if max_rank is not None and (not isinstance(max_rank, Integral) or isinstance(max_rank, bool) or max_rank < 1):
        raise OptionError(f"Expected max_rank to be an integer ≥ 1, or None; got {max_rank!r}.")
    if factorization is not None and not _is_of(factorization, METHODS):
        raise OptionError(f"Expected factorization to be one of {', '.join(METHODS)}, or None; got {factorization!r}.")
    if not _is_of(model, MODELS):
        raise OptionError(f"Expected model to be one of {', '.join(MODELS)}; got {model!r}.")
    if not _is_of(indefinite, INDEFINITE):
        raise OptionError(f"Expected indefinite to be one of {', '.join(INDEFINITE)}; got {indefinite!r}.")
    if not isinstance(cache, FactorCache | None):
        raise OptionError(f"Expected cache to be a ko.FactorCache, or None; got {cache!r}.")
    seed = max(int(random_state), 0) if isinstance(random_state, Integral) else 0
    settings = Settings(rank_tol, max_rank, indefinite, seed)
    return FactorOptions(factorization or AUTO, settings, memory_limit, model == EXPANDED, cache=cache)


def _is_of(name: Any, names: Iterable[str]) -> bool:
    return isinstance(name, str) and name in names


def layout(backend: Any, dtype: Any, rows: int) -> Layout | None:
    """Where B is held, from checked options: None for one local array in double precision. Raises OptionError."""
    named = isinstance(dtype, (str, type, np.dtype))
    if dtype is not None and not (named and dtype in ("float32", "float64", np.float32, np.float64)):
        raise OptionError(f"Expected dtype to be float32 or float64, or None; got {dtype!r}.")
    precision = np.dtype(dtype or np.float64).type
    if backend is None:
        return None if precision is np.float64 else Layout(Here(), ROWS, precision)
    if not is_client(backend):
        raise OptionError(f"Expected backend to be a dask.distributed.Client, or None; got {backend!r}.")
    executor = OnDask.of(backend)
    blocks = executor.threads * -(-max(rows, 1) // (executor.threads * ROWS))  # the same number for each thread
    return Layout(executor, max(-(-rows // blocks), FEWEST), precision)


def goal(  # noqa: PLR0917
    tol: float, abs_tol: float | None, certify: bool | str, time_limit: float | None, memory_limit: float | None,
    options: dict[str, Any], warm_start: bool, verbose: bool, progress: bool, n_init: int = 1, random_state: Any = None,
) -> Goal:  # fmt: skip
    """Check the options for accuracy and limits, and bundle them. Raises OptionError."""
    for name, value in (("abs_tol", abs_tol), ("time_limit", time_limit)):
        if value is not None and (not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < inf):
            raise OptionError(f"Expected {name} to be a positive number, or None; got {value!r}.")
    if memory_limit is not None:
        memory.allowed_bytes(memory_limit)  # where the factor stays, nothing else asks
    for name, flag in (("warm_start", warm_start), ("verbose", verbose), ("progress", progress)):
        require_flag(flag, name)
    if not isinstance(certify, bool) and not (isinstance(certify, str) and certify == "estimate"):
        raise OptionError(f'Expected certify to be True, "exact", "estimate" or False; got {certify!r}.')
    if not isinstance(n_init, Integral) or isinstance(n_init, bool) or n_init < 1:
        raise OptionError(f"Expected n_init to be an integer ≥ 1; got {n_init!r}.")
    integer = isinstance(random_state, Integral) and not isinstance(random_state, bool) and random_state >= 0
    if not integer and random_state is not None and not isinstance(random_state, np.random.Generator):
        raise OptionError(
            f"Expected random_state to be an integer ≥ 0, a numpy.random.Generator or None; got {random_state!r}."
        )
    deadline = inf if time_limit is None else clock.now() + time_limit
    return Goal(
        tol, abs_tol, certify, deadline, {"warm_start": warm_start, "verbose": verbose, **options}, bool(options),
        memory_limit, progress, int(n_init), random_state,
    )  # fmt: skip


def check_solver_options(solver: str | None, options: Mapping[str, Any]) -> None:
    """Raise OptionError for options that cvxpy takes but a problem in θ can't."""
    if solver is not None and not isinstance(solver, str):
        raise OptionError(f"Expected solver to be a name, such as CLARABEL, or None; got {solver!r}.")
    for name in ("gp", "qcp", "nlp"):
        if options.get(name):
            raise OptionError(f"Expected a convex problem by the DCP rules; {name}=True is not available here.")
    for name, reason in OF_CVXPY.items():
        if name in options:
            raise OptionError(f"Expected no option {name}: {reason}. Leave it out.")


@contextmanager
def spelling(function: Callable[..., Any], options: Iterable[str]) -> Iterator[None]:
    """Add notes to an error about options that a function passed on: its own keywords that may have been meant."""
    try:
        yield
    except (OptionError, SolverError) as error:
        known = [p.name for p in signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        said = "\n".join(getattr(error, "__notes__", []))
        for name in options:
            named = re.search(rf"\b{re.escape(name)}\b", str(error))
            told = name in ACCURACY or f"no option {name}." in said
            meant = _similar(name, known) if named and not told else []
            if meant:
                error.add_note(f"{function.__name__}() has no option {name}. Did you mean {' or '.join(meant)}?")
        raise


def _similar(name: str, known: list[str]) -> list[str]:
    """The known name that differs by a few letters, and known names that begin the name, or that begin with it."""
    begun = [k for k in known if k.startswith(name) or name.startswith(k)]
    return list(dict.fromkeys([*get_close_matches(name, known, n=1, cutoff=SIMILAR), *begun]))
