"""How many processes share a piece of work, by the habits of scikit-learn."""

from __future__ import annotations

import sys
from numbers import Integral
from typing import Any

from kernelopt.errors import OptionError
from kernelopt.support.checks import shown
from kernelopt.support.optional import optional


def processes(n_jobs: Any, caller: str) -> int:
    """The number that n_jobs stands for, as joblib counts: −1 for all cores, None for 1 but within `parallel_config`.

    Raises OptionError for what is no such number, and MissingPackageError where joblib is needed and not installed.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise OptionError(
            f"Expected n_jobs to be an integer other than 0, −1 for all cores, or None; got {shown(n_jobs)}."
        )
    if n_jobs == 1 or (n_jobs is None and "joblib" not in sys.modules):
        return 1
    return int(optional("joblib", caller).effective_n_jobs(n_jobs))
