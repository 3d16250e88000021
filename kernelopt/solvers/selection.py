"""Which solver takes a problem, and why the others can't."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import cvxpy as cp
import cvxpy.error

from kernelopt.errors import SolverError
from kernelopt.solvers.conic import CONIC_SOLVERS

# Clarabel takes every continuous cone that cvxpy knows and reaches 1e-8, but breaks down at some degenerate
# points (θ = 0 under an unsquared norm); ECOS and SCS stand by for these.
CONTINUOUS = ("CLARABEL", "ECOS", "SCS")
QUADRATIC = ("OSQP", "HIGHS", "PIQP", "DAQP", "QPALM", "PROXQP")
MIXED_INTEGER = ("HIGHS", "GUROBI", "MOSEK", "CPLEX", "XPRESS", "COPT", "SCIP", "ECOS_BB")


@dataclass(frozen=True)
class SolverTable(Mapping[str, "str | None"]):
    """Solver name → None where it applies, else the reason why it doesn't; prints as a table."""

    reasons: Mapping[str, str | None]
    chosen: str | None

    def __getitem__(self, name: str) -> str | None:
        return self.reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.reasons)

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def applicable(self) -> list[str]:
        return [name for name, reason in self.reasons.items() if reason is None]

    def __str__(self) -> str:
        width = max(map(len, self.reasons))
        return "\n".join(
            f"{name:<{width}}  " + (reason or ("applies (default)" if name == self.chosen else "applies"))
            for name, reason in self.reasons.items()
        )


def candidates(probe: cp.Problem, wanted: str | None = None, alternatives: bool = True) -> list[str]:
    """The solver to use, and those that stand by should it break down; only the wanted one, if one is.

    `probe` is the reduced problem with a factor of two columns: the same cones, cheap to compile. Raises
    SolverError where no installed solver takes the problem.
    """
    if wanted is not None:
        return [wanted.upper()]
    installed = cp.installed_solvers()
    if not probe.is_mixed_integer():
        names = [name for name in CONTINUOUS if name in installed]
        return names if alternatives else names[:1]
    for name in MIXED_INTEGER:
        if name in installed and _reason(probe, name) is None:
            return [name]
    raise SolverError(
        "Expected an installed solver for this mixed-integer problem; found none. Install one, such as "
        f"{CONIC_SOLVERS['ECOS_BB'].install}."
    )


def table(probe: cp.Problem) -> SolverTable:
    """Ask cvxpy about each solver, installed or known to us."""
    installed = set(cp.installed_solvers())
    reasons = {}
    for name in dict.fromkeys([*CONIC_SOLVERS, *sorted(installed)]):
        if name in installed:
            reasons[name] = _reason(probe, name)
        else:
            install = CONIC_SOLVERS[name].install if name in CONIC_SOLVERS else "see cvxpy"
            reasons[name] = f"not installed: {install}"
    try:
        return SolverTable(reasons, candidates(probe)[0])
    except SolverError:
        return SolverTable(reasons, None)


def _reason(probe: cp.Problem, name: str) -> str | None:
    try:
        probe.get_problem_data(name)
    except (cvxpy.error.SolverError, ValueError) as error:
        if name in QUADRATIC and not probe.is_qp():
            return "takes linear and quadratic programs only; this problem has other cones"
        if probe.is_mixed_integer():
            return "takes no mixed-integer problem of this kind"
        if "cannot solve" in str(error):
            return "does not take all cones of this problem"
        return " ".join(str(error).split())
    return None
