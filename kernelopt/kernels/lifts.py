"""Kernels on more than points: the base of those on derivatives, and on means over boxes and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.algebra import Sum
from kernelopt.kernels.kernel import Kernel, require, require_kernels
from kernelopt.kernels.sparse_rows import is_sparse, width
from kernelopt.support.types import Array


@dataclass(frozen=True)
class Lift(Kernel):
    """κ extended to linear functionals of F, whose rows hold a point and what is taken there."""

    kernel: Kernel
    functionals: ClassVar[str]

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        require(not isinstance(self.kernel, Lift), "a lifted kernel", "a kernel on points", self.kernel)

    @classmethod
    def values_at(cls, X: Array) -> Array:
        """Rows of the lift for values at points."""
        raise NotImplementedError

    @classmethod
    def points_of(cls, rows: Array) -> Array:
        """The points of rows of the lift."""
        raise NotImplementedError


def plain(kernel: Kernel) -> Kernel:
    """The kernel on points alone."""
    if isinstance(kernel, Lift):
        return kernel.kernel
    return kernel if lift_of(kernel) is None else Sum(tuple(plain(term) for term in kernel.parts))


def plain_points(kernel: Kernel, rows: Array) -> Array:
    """The points of rows of a kernel, lifted or not."""
    lift = lift_of(kernel)
    return rows if lift is None else lift.points_of(rows)


def lift_of(kernel: Kernel) -> type[Lift] | None:
    """How a kernel is lifted, itself or a term of the sum that a shifted kernel matrix is; None on points."""
    if isinstance(kernel, Lift):
        return type(kernel)
    return joint([lift_of(term) for term in kernel.parts]) if isinstance(kernel, Sum) else None


def joint(lifts: Sequence[type[Lift] | None]) -> type[Lift] | None:
    """The lift that all of these can be rows of. Raises KernelError for two kinds."""
    found = list(dict.fromkeys(lift for lift in lifts if lift is not None))
    if len(found) > 1:
        kinds = " and ".join(lift.functionals for lift in found)
        raise KernelError(
            f"Expected rows of θ without {kinds} together: inner products between them have no rule. Write the "
            "integrals as weights @ ko.FeatureMatrix(nodes, kernel), with nodes and weights of a quadrature rule."
        )
    return found[0] if found else None


def relifted(kernel: Kernel, lift: type[Lift] | None) -> Kernel:
    """The kernel on what this lift takes; itself where there is none, or where it is lifted."""
    return kernel if lift is None or lift_of(kernel) is lift else lift(kernel)


def relifted_rows(kernel: Kernel, rows: Array, lift: type[Lift] | None) -> Array:
    """The rows of a kernel as rows of its lift. Raises DataError for rows of a sparse matrix."""
    if lift is None or lift_of(kernel) is lift:
        return rows
    if is_sparse(rows):
        raise DataError(
            f"Expected points in an array beside {lift.functionals}; got a sparse matrix of {width(rows)} columns. "
            "Write X.toarray(), of the columns that matter."
        )
    return lift.values_at(rows)
