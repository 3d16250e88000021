"""Bv as an affine atom where B is not one array: cvxpy can evaluate it, but not compile it."""

from __future__ import annotations

from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom

from kernelopt.errors import SolverError
from kernelopt.factorization.tall import BlockMatrix
from kernelopt.kernels.domains import Array


class _Data:
    def __init__(self, B: BlockMatrix, rows: int) -> None:
        self.B, self.rows = B, rows


class BlockProduct(AffAtom):
    """The first rows of Bv, for a B in blocks."""

    def __init__(self, v: cp.Variable, data: _Data) -> None:
        self.data = data
        super().__init__(v)

    @classmethod
    def of(cls, B: BlockMatrix, rows: int, v: cp.Variable) -> BlockProduct:
        return cls(v, _Data(B, rows))

    def get_data(self) -> list[_Data]:
        return [self.data]

    def shape_from_args(self) -> tuple[int, ...]:
        return (self.data.rows, *self.args[0].shape[1:])

    def numeric(self, values: Any) -> Array:
        return (self.data.B @ np.asarray(values[0]))[: self.data.rows]

    def _grad(self, values: Any) -> list[Any]:
        return [None]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SolverError(
            "Expected one of kernelopt's own solvers where B is not one array in double precision; cvxpy's compile all "
            "of it. problem.solvers() says why they don't take this problem. Leave out backend and dtype."
        )
