"""A kernel of row numbers, whose points it holds: numbers, or a parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError
from kernelopt.kernels.adjoints import pull, refuse_points
from kernelopt.kernels.algebra import all_psd
from kernelopt.kernels.domains import Domain, Indices, frozen, key
from kernelopt.kernels.kernel import COMPOSITIONS, Adjoint, Kernel, RealField, Symbol, Verdict, require_kernels
from kernelopt.kernels.transforms import _OfPoints
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Indexed(_OfPoints):
    """κ(i, j) = κ₀(zᵢ, zⱼ) for given points z₀, z₁, …; points of the kernel are their row numbers.

    The points may be a parameter, such as the features that a network computes: problems follow its value, and
    gradients with respect to all entries are found together. Rows to train on and rows to predict for are numbers of
    one matrix.

    Parameters
    ----------
    kernel : Kernel of vectors
    points : array (N, d), or cp.Parameter of that shape

    Raises
    ------
    DataError
        For points that are no finite matrix of numbers, or that the kernel does not take.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> Z = cp.Parameter((3, 1), value=np.array([[0.0], [1.0], [3.0]]), name="Z")
    >>> kernel = ko.kernels.Linear().indexed(Z)
    >>> kernel, kernel.is_psd
    ((Linear()).indexed(Z), True)
    >>> kernel([1, 2])
    array([[1., 3.],
           [3., 9.]])
    """

    kernel: Kernel
    points: Array

    _reals: ClassVar = {"points": RealField("any", 2)}

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        points = self.kernel.rows(self.points)
        if points.ndim != 2 or points.dtype.kind != "f":
            raise DataError(
                f"Expected points of {self.kernel!r} as a matrix of numbers, of shape (N, d); got an array of shape "
                f"{points.shape}, dtype {points.dtype}. For a kernel matrix write ko.kernels.Precomputed(Q)."
            )
        object.__setattr__(self, "points", frozen(np.array(points)))

    @property
    def domain(self) -> Domain:
        return Indices(len(self.points), "New points are further rows of the points that the kernel holds.")

    @property
    def is_stationary(self) -> bool:
        """False: row numbers have no differences."""
        return False

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "κ(zᵢ, zⱼ)")

    def _point(self, X: Array) -> Array:
        return self.points[X]

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        found = self.kernel._evaluator(self._point(centers), coefficients)
        return None if found is None else lambda X: found(self._point(X))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """Those of κ₀ at the points, added up for each row number; row numbers themselves have none."""
        refuse_points(self, points)
        found = pull(self, 1, wanted, "points" in wanted)(self._point(X), self._point(Z), G)
        if found.X is not None and found.Z is not None:
            total = np.zeros(self.points.shape)
            np.add.at(total, X, found.X)
            np.add.at(total, Z, found.Z)
            found.fields["points"] = total
        return Adjoint(found.fields)

    @cached_property
    def _key(self) -> object:
        return key(self.points)

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "points": self.points}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexed) and self.kernel == other.kernel and self._key == other._key

    def __hash__(self) -> int:
        return hash((self.kernel, self._key))

    def __repr__(self) -> str:
        few = isinstance(self.points, Symbol) or len(self.points) < 6
        points = self.points if isinstance(self.points, Symbol) else np.asarray(self.points).tolist()
        return f"({self.kernel!r}).indexed({points if few else f'<{len(self.points)} points>'})"


def kinks_in_points(kernel: Kernel, X: Array, Z: Array) -> list[tuple[cp.Parameter, str]]:
    """The parameters that hold points of which two, among those of row numbers X and Z, are at a kink of a kernel, and
    the kernel: the derivative by the points is another to each side."""
    if kernel._kind is not Indexed:
        return [one for part in kernel.parts for one in kinks_in_points(part, X, Z)]
    points, present = kernel._arguments()["points"], kernel.at_present()
    assert isinstance(present, Indexed)
    found = present._kinks(X, Z) if isinstance(points, cp.Parameter) else None
    several = found is not None and np.any(found & (X[:, None] != Z))
    return [(points, repr(present.kernel))] if several else []


COMPOSITIONS["indexed"] = Indexed
