"""How many processes share a piece of work, by the habits of scikit-learn."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from kernelopt.errors import OptionError
from kernelopt.support.checks import shown
from kernelopt.support.optional import optional


def number_of_processes(n_jobs: Any, caller: str) -> int:
    """The number of processes that n_jobs asks for: −1 all cores, None 1, or what `joblib.parallel_config` sets.

    Raises OptionError for what is no such number, and MissingPackageError where joblib is needed and not installed.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise OptionError(
            f"Expected n_jobs to be an integer other than 0, −1 for all cores, or None; got {shown(n_jobs)}."
        )
    return 1 if n_jobs == 1 else int(optional("joblib", caller).effective_n_jobs(n_jobs))
