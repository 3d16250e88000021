"""Answers carried from one process to another, which has the same problem in objects of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pickle import Unpickler
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.errors import MissingPackageError
from kernelopt.kernels.domains import frozen
from kernelopt.language.functions import Function
from kernelopt.model_selection.path_table import Path, PathSolution
from kernelopt.problem import Problem
from kernelopt.results.solution import Solution
from kernelopt.support.optional import optional
from kernelopt.support.types import Array

NEEDED_FOR = "ko.cross_validate with n_jobs"


@dataclass(frozen=True, eq=False)
class _Answer:
    """What a `PathSolution` holds, without the problem's objects: what has values by its order.

    solution : without functions and multipliers; values : of `Problem._with_values()`; functions, duals : of each θ,
    the multipliers in the order of its predictions
    """

    parameter: float
    solution: Solution
    values: Sequence[Any]
    functions: Sequence[Any]
    duals: Sequence[Sequence[Array | None]]
    supports: Sequence[float]
    evaluation: Mapping[str, float]
    seconds: float


class _Names:
    """Objects that both processes have, by their order: θs, their kernels, and the rows that functions stand on."""

    def __init__(self, problem: Problem) -> None:
        rows = [link.rows for link in problem.canonical_form().predictions]
        thetas = problem.thetas()
        kernels = [*(theta.kernel for theta in thetas), *(r.kernel for r in rows)]
        if any(theta.kernel.parameters() for theta in thetas):
            kernels = []  # they have other values in the other process
        self.objects = [*thetas, *kernels, *(r.points for r in rows)]
        self.numbers = {id(part): i for i, part in reversed([*enumerate(self.objects)])}


def cloudpickle() -> Any:
    """joblib's pickle for functions and classes of the main script; it was a part of joblib before 1.6."""
    try:
        return optional("cloudpickle", NEEDED_FOR)
    except MissingPackageError:
        return optional("joblib.externals.cloudpickle", NEEDED_FOR)


def _packer(file: BytesIO, names: _Names) -> Any:
    """Pickles answers; θs, kernels and rows of the problem are written as numbers."""

    class Packer(cloudpickle().Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> int | None:
            return names.numbers.get(id(obj))

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, Function) and obj._selected is not None:
                return _of_selected, (type(obj), obj._state(copied=False))
            return super().reducer_override(obj)

    return Packer(file)


class _Unpacker(Unpickler):
    def __init__(self, file: BytesIO, names: _Names) -> None:
        super().__init__(file)
        self._names = names

    def persistent_load(self, pid: int) -> Any:
        return self._names.objects[pid]


def _of_selected(kind: type[Function], state: dict[str, Any]) -> Function:
    function = kind.__new__(kind)
    vars(function).update(state)
    frozen(function._coefficients)
    return function


def packed(problem: Problem, paths: Sequence[Path]) -> bytes:
    """The answers of paths of a problem. The problem is left with the last of them."""
    buffer = BytesIO()
    _packer(buffer, _Names(problem)).dump([[_answer(problem, row) for row in path.solutions] for path in paths])
    return buffer.getvalue()


def unpacked(problem: Problem, parameter: cp.Parameter, data: bytes) -> list[Path]:
    """The same paths for the same problem here. Rows restore without the factor, as a problem from a file."""
    answers: list[list[_Answer]] = _Unpacker(BytesIO(data), _Names(problem)).load()
    return [Path(problem, parameter, tuple(_row(problem, one) for one in path)) for path in answers]


def _answer(problem: Problem, row: PathSolution) -> _Answer:
    row._restore()
    thetas, known, solution = problem.thetas(), _predictions(problem), problem._solution
    assert solution is not None  # a row is the answer of a solve
    return _Answer(
        parameter=row.parameter,
        solution=replace(solution.detached(), functions={}, duals={}),
        values=[one.value for one in problem._with_values()],
        functions=[theta.value for theta in thetas],
        duals=[[theta._duals.get(name) for name in known[theta]] for theta in thetas],
        supports=[row.supports.get(theta, np.nan) for theta in thetas],
        evaluation=dict(row.evaluation),
        seconds=row.seconds,
    )


def _row(problem: Problem, answer: _Answer) -> PathSolution:
    thetas, known = problem.thetas(), _predictions(problem)
    functions = {t: f for t, f in zip(thetas, answer.functions, strict=True) if f is not None}
    duals = {
        theta: {name: nu for name, nu in zip(known[theta], found, strict=True) if nu is not None}
        for theta, found in zip(thetas, answer.duals, strict=True)
    }
    solution = replace(answer.solution, functions=functions, duals=duals)
    variables = zip(problem.variables(), answer.values, strict=False)  # which come first
    return PathSolution(
        parameter=answer.parameter,
        objective=np.nan if solution.value is None else solution.value,
        status=str(solution.status),
        certificate=solution.certificate,
        functions=MappingProxyType(functions),
        variables=MappingProxyType({v: frozen(np.array(dense(value))) for v, value in variables if value is not None}),
        supports=MappingProxyType({t: n for t, n in zip(thetas, answer.supports, strict=True) if t in functions}),
        evaluation=MappingProxyType(dict(answer.evaluation)),
        seconds=answer.seconds,
        _restore=_restorer(problem, solution, answer.values, functions, duals),
    )


def _restorer(
    problem: Problem, solution: Solution, values: Sequence[Any], functions: Mapping[Any, Function],
    duals: Mapping[Any, Mapping[object, Array]],
) -> Callable[[], None]:  # fmt: skip
    def restore() -> None:
        for one, value in zip(problem._with_values(), values, strict=True):
            one.save_value(value)
        for theta in problem.thetas():
            theta._set_solution(functions.get(theta), duals[theta])
        problem._set_answer(solution)

    return restore


def _predictions(problem: Problem) -> dict[Any, list[object]]:
    """The fingerprints of each θ's feature matrices, in order of appearance."""
    found: dict[Any, list[object]] = {theta: [] for theta in problem.thetas()}
    for node in problem._inspect().predictions:
        found[node.data.theta].append(node.data.fingerprint)
    return {theta: list(dict.fromkeys(names)) for theta, names in found.items()}
