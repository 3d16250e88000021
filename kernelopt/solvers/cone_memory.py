"""The memory that a solver of others takes for a cone program, and an error before it is taken.

A library that finds no memory ends the process: no exception of Python's reaches the caller. So the estimate is made
from the cone data alone. It counts what is certain to be there, and no fill of sparse rows, whose size depends on an
ordering that only the solver finds: too small an estimate leaves things as they were, too large a one would refuse what
fits.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelopt.factorization import memory

# Bytes per entry of A and P, their copies and factor included. Measured: Clarabel 60 to 70, SCS 110 to 120.
ENTRY = 64.0
# Bytes per pair of rows of a semidefinite cone, where its block in the KKT matrix is dense: that of side n has
# n(n + 1)/2 rows. Measured: Clarabel 100 to 120, for its block, its factor, and the copies of both.
PAIR = 100.0
# Bytes per entry of a semidefinite matrix where the solver decomposes it instead, with its copies and workspace.
EIGEN = 64.0
# First-order methods, whose systems have no dense block for a semidefinite cone. Any other solver counts as an interior
# point, whose blocks are dense.
BY_EIGENVALUES = ("SCS", "COSMO", "PDCS")


def of_cones(solver: str, sides: Iterable[int], entries: int) -> float:
    """Bytes for semidefinite cones of these sides, and rows with so many entries.

    Interior points: 64·entries + 100·Σ T(T + 1)/2 with T = n(n + 1)/2. First-order methods: 64·entries + 64·Σ n².
    """
    if solver in BY_EIGENVALUES:
        return ENTRY * entries + EIGEN * sum(float(n) ** 2 for n in sides)
    rows = [n * (n + 1) / 2 for n in sides]
    return ENTRY * entries + PAIR * sum(t * (t + 1) / 2 for t in rows)


def require(solver: str, sides: Iterable[int], entries: int, limit: float | None = None) -> None:
    """Raise MemoryLimitError where the cone program takes more than the limit, by default 80 % of what is available."""
    sides = list(sides)
    needed = of_cones(solver, sides, entries)
    if memory.has_little(needed) and limit is None:
        return
    largest = max(sides, default=0)
    what = f"{solver}'s system"
    remedy = "Use fewer rows"
    if largest and needed > 2 * ENTRY * entries:
        what += f" with a semidefinite matrix of order {largest}"
        remedy = (
            "State the spectral or nuclear norm, or the semidefinite constraint, of fewer rows or columns, or ask for "
            "solver='SCS', which needs less where its accuracy suffices"
        )
    memory.require(needed, what, limit, remedy)
