"""Optional packages, imported where they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from kernelopt.errors import MissingPackageError
from kernelopt.support.locks import importing

# The extra that installs a package; a package without an extra is installed by its own name.
EXTRAS = {
    "distributed": "'kernelopt[dask]'",
    "jax": "'kernelopt[jax]'",
    "joblib": "'kernelopt[sklearn]'",
    "matplotlib": "'kernelopt[plot]'",
    "sklearn": "'kernelopt[sklearn]'",
}


def optional(module: str, caller: str) -> Any:
    """A module of an optional package. Raises MissingPackageError where the package is not installed."""
    try:
        with importing:
            return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise MissingPackageError(f"{caller} needs {package}: pip install {EXTRAS.get(package, package)}.") from error
