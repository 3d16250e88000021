"""Packages that kernelopt does not depend on, imported by those who need them."""

from __future__ import annotations

import importlib
from typing import Any

from kernelopt.errors import MissingPackageError

EXTRAS = {"distributed": "'kernelopt[dask]'", "matplotlib": "'kernelopt[plot]'", "sklearn": "'kernelopt[sklearn]'"}


def optional(module: str, caller: str) -> Any:
    """A module of such a package. Raises MissingPackageError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise MissingPackageError(f"{caller} needs {package}: pip install {EXTRAS.get(package, package)}.") from error
