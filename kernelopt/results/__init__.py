"""The results of a solve: status, fitted functions, statistics and history."""

from kernelopt.results.history import History
from kernelopt.results.solution import FittedFunction, SolverStats, Status

__all__ = ["FittedFunction", "History", "SolverStats", "Status"]
