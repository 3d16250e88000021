"""Optional packages, imported where they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from kernelopt.errors import MissingPackageError
from kernelopt.support.locks import importing

# What pip calls a package whose name it is not.
DISTRIBUTIONS = {"distributed": "'dask[array,distributed]'", "sklearn": "scikit-learn"}


def optional(module: str, caller: str) -> Any:
    """A module of an optional package. Raises MissingPackageError where the package is not installed."""
    try:
        with importing:
            return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        distribution = DISTRIBUTIONS.get(package, package)
        raise MissingPackageError(f"{caller} needs {package}: pip install {distribution}.") from error
