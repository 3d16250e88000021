"""The errors of kernelopt.

Each derives from `KernelOptError` and from the builtin (or cvxpy error) that fits, so that
`except ValueError` keeps working. Every message says what was expected, what was got, and what to do.
"""

import cvxpy.error


class KernelOptError(Exception):
    """Base of every error that kernelopt raises."""


class DataError(KernelOptError, ValueError):
    """Data of the wrong shape or with entries that cannot be used (NaN, labels, signs)."""


class DataTypeError(KernelOptError, TypeError):
    """Data of a type that the kernel does not take (complex, strings, objects)."""


class KernelError(KernelOptError, ValueError):
    """A kernel with invalid parameters, or one that returned values that are not finite."""


class NotPSDError(KernelError):
    """A kernel matrix that is not positive semidefinite."""


class RepresenterError(KernelOptError, ValueError):
    """A use of θ that the representer theorem does not cover; `violations` lists all such uses."""

    def __init__(self, message: str, violations: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.violations = violations


class DCPError(KernelOptError, cvxpy.error.DCPError):
    """A problem that does not follow the rules of disciplined convex programming."""


class ReadingError(KernelOptError, RuntimeError):
    """A part of a problem that was read as another function: a fault of kernelopt."""


class ParameterError(KernelOptError, cvxpy.error.ParameterError):
    """A `cp.Parameter` without a value."""


class SolverError(KernelOptError, cvxpy.error.SolverError):
    """A solver that is not installed, cannot handle the problem, or failed."""


class ClusterError(SolverError):
    """A cluster without live workers, or a client of one that was closed."""


class MemoryLimitError(KernelOptError, MemoryError):
    """An array that would not fit; raised before it is allocated."""


class OptionError(KernelOptError, ValueError):
    """An option of `solve` outside its range."""


class KeywordError(OptionError, TypeError):
    """A keyword that a class does not take."""


class UnknownNameError(OptionError, KeyError):
    """A name that a table or mapping does not have; a KeyError too, so that `get` and `in` work."""

    __str__ = Exception.__str__  # KeyError would print the message in quotation marks


class FormatError(KernelOptError, ValueError):
    """A file that does not have the format of `ko.save`."""


class MissingPackageError(KernelOptError, ImportError):
    """An optional package that is not installed, and that the called function needs."""
