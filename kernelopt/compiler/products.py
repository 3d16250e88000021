"""Bv as an affine atom that shares B: cvxpy would copy it as a constant."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import cvxpy.lin_ops.lin_utils as lu
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom

from kernelopt.errors import SolverError
from kernelopt.factorization.tall import BlockMatrix
from kernelopt.support.types import Array

LARGE = 2**20  # entries of B from which it is shared


class _Data:
    """What the atom knows besides v; prints as nothing in cvxpy's names."""

    def __init__(self, B: Any, rows: int) -> None:
        self.B, self.rows = B, rows


class SharedProduct(AffAtom):
    """The first rows of Bv; an array is handed to cvxpy when a solver of its asks for it, blocks never are."""

    def __init__(self, v: cp.Variable, data: _Data) -> None:
        self.data = data
        super().__init__(v)

    def get_data(self) -> list[_Data]:
        return [self.data]

    def name(self) -> str:
        return f"B @ {self.args[0].name()}"

    def shape_from_args(self) -> tuple[int, ...]:
        return (self.data.rows, *self.args[0].shape[1:])

    def numeric(self, values: Any) -> Array:
        return np.asarray((self.data.B @ np.asarray(values[0]))[: self.data.rows])

    def _grad(self, values: Any) -> list[Any]:
        return [None]

    def graph_implementation(
        self, arg_objs: list[Any], shape: tuple[int, ...], data: Any = None
    ) -> tuple[Any, list[Any]]:
        if isinstance(self.data.B, BlockMatrix):
            raise SolverError(
                "Expected one of kernelopt's own solvers where B is not one array in double precision; cvxpy's compile "
                "all of it. problem.solvers() says why they don't take this problem. Leave out backend and dtype."
            )
        B = self.data.B[: self.data.rows]
        return lu.mul_expr(lu.create_const(B, B.shape), arg_objs[0], shape), []


def product(B: Any, rows: int, v: cp.Variable) -> cp.Expression:
    """The first rows of Bv, without a copy of B where it is large."""
    if isinstance(B, BlockMatrix) or B.size > LARGE:
        return SharedProduct(v, _Data(B, rows))
    return cp.Constant(B[:rows]) @ v
