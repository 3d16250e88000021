"""Cone data of problems that differ only in numbers, compiled once per process.

Most of what cvxpy's compilation takes on a small problem does not depend on labels, weights, targets or λ. The second
problem of one structure is therefore compiled with parameters in the place of its constants, and all later ones only
give these parameters values:

    data(problem) = T(structure)·(constants, 1)

The structure of a problem is its tree: atoms with their own data, shapes, signs of constants, and which variable stands
where. A constant keeps its value, and belongs to the structure, where a parameter would not do: as an argument of an
atom that is not affine, as a factor of an expression with parameters (cvxpy's DPP rules), as a long factor, or where it
is zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.support.cvxpy_parts import (
    OPAQUE,
    PRODUCTS,
    AddExpression,
    AffineData,
    ConeData,
    Hstack,
    NegExpression,
    Vstack,
    cone_data,
    cone_data_again,
    is_compiled,
    with_args,
)
from kernelopt.support.locks import Lock
from kernelopt.support.types import Array

MOST_NUMBERS = 20_000  # constants of a problem with a template; beyond, compilation is a small share of a solve
# Entries of a factor for which a parameter stands, such as labels. cvxpy's compilation then takes time that grows with
# their square, 15 ms for 500 and 0.1 s for 2000, and later problems save 6 ms each.
MOST_FACTORS = 500
MOST_TEMPLATES = 64  # templates that are kept, the least recently used goes first: a few MB each at most
LINEAR = (AddExpression, NegExpression, Hstack, Vstack)  # atoms whose constant arguments may be parameters
CONSTRAINTS = (cp.constraints.Inequality, cp.constraints.Equality, cp.constraints.Zero, cp.SOC)
ATTRIBUTES = {"nonneg", "nonpos", "pos", "neg", "symmetric", "diag", "PSD", "NSD"}  # of variables; none has values


class _NoTemplateError(Exception):
    """The problem has no template."""


@dataclass(eq=False)
class _Reading:
    """A walk over a problem, which finds its structure.

    variables : by id, in the order in which they appear
    choices : for each constant, in the order of the walk, whether a parameter stands for it, and the parameter's sign
    values : of the constants with a parameter
    changing : constants that depend on the problem's own parameters: the number of the choice, the node, and the value
        in the key where no parameter stands for it
    numbers : entries of all constants
    """

    variables: dict[int, cp.Variable] = field(default_factory=dict)
    choices: list[tuple[bool, str | None]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    changing: list[tuple[int, Any, Hashable]] = field(default_factory=list)
    numbers: int = 0

    def structure(self, problem: cp.Problem) -> Hashable:
        parts: list[Hashable] = [self._key(problem.objective.args[0], may_vary=True)[0]]
        for constraint in problem.constraints:
            if not isinstance(constraint, CONSTRAINTS):
                raise _NoTemplateError
            own = [_frozen(item) for item in constraint.get_data()[:-1]]  # the last one is its id
            parts.append(
                (type(constraint).__name__, *own, *(self._key(arg, may_vary=True)[0] for arg in constraint.args))
            )
        return type(problem.objective), tuple(parts)

    def _key(self, node: Any, may_vary: bool, signed: bool = False) -> tuple[Hashable, bool]:
        """The key of a node, and whether parameters stand in it.

        may_vary : whether a parameter may stand for the node itself, if it is constant
        signed : whether its sign counts, as for a weight of a convex function
        """
        if isinstance(node, cp.Variable):
            return self._variable(node), False
        if node.is_constant():
            return self._constant(node, may_vary, signed)
        if isinstance(node, OPAQUE):
            raise _NoTemplateError
        args, inside = {}, False
        for i in _order(node):
            if isinstance(node, PRODUCTS):
                linear = not inside and node.args[i].size <= MOST_FACTORS
            else:
                linear = isinstance(node, LINEAR)
            args[i], chosen = self._key(node.args[i], linear, not node.is_affine())
            inside |= chosen
        data = [_frozen(item) for item in node.get_data() or []]
        return (type(node), node.shape, *data, *(args[i] for i in range(len(args)))), inside

    def _variable(self, node: cp.Variable) -> Hashable:
        attributes = tuple(sorted(name for name, value in node.attributes.items() if value not in (None, False)))
        if not ATTRIBUTES.issuperset(attributes):
            raise _NoTemplateError
        self.variables.setdefault(node.id, node)
        return list(self.variables).index(node.id), node.shape, attributes

    def _constant(self, node: Any, may_vary: bool, signed: bool) -> tuple[Hashable, bool]:
        value = node.value
        if value is None or np.iscomplexobj(value):
            raise _NoTemplateError
        self.numbers += value.nnz if sp.issparse(value) else np.size(value)
        if self.numbers > MOST_NUMBERS:
            raise _NoTemplateError
        varies = bool(may_vary and not sp.issparse(value) and np.any(value))
        sign = _sign(value) if signed and varies else None
        self.choices.append((varies, sign))
        kept = None if varies else _frozen(value)
        if node.parameters():
            self.changing.append((len(self.choices) - 1, node, kept))
        if not varies:
            return ("value", kept), False
        self.values.append(np.asarray(value, dtype=float))
        return (np.shape(value), sign), True

    def again(self) -> list[Array] | None:
        """The values that the constants have now; None where the structure may be another one."""
        found, places = list(self.values), np.cumsum([varies for varies, _ in self.choices]) - 1
        for number, node, kept in self.changing:
            value, (varies, sign) = node.value, self.choices[number]
            if value is None or np.iscomplexobj(value) or (not varies and _frozen(value) != kept):
                return None
            if varies:
                if sp.issparse(value) or not np.any(value) or (sign is not None and _sign(value) != sign):
                    return None
                found[places[number]] = np.asarray(value, dtype=float)
        return found


def _order(node: Any) -> list[int]:
    """The order in which arguments are walked: a constant factor after what it multiplies."""
    last = isinstance(node, PRODUCTS) and node.args[0].is_constant()
    return [1, 0] if last else list(range(len(node.args)))


def _sign(value: Array) -> str | None:
    """The attribute of a parameter with this value."""
    if np.all(value >= 0):
        return "nonneg"
    return "nonpos" if np.all(value <= 0) else None


def _frozen(item: Any) -> Hashable:
    """A value as part of a key: equal for equal values."""
    if isinstance(item, cp.Expression) and not item.parameters() and item.is_constant():
        item = item.value
    if isinstance(item, slice):
        return "slice", item.start, item.stop, item.step
    if isinstance(item, list | tuple):
        return type(item), *map(_frozen, item)
    if sp.issparse(item):
        item = sp.csr_array(item)
        return item.shape, item.indptr.tobytes(), item.indices.tobytes(), item.data.tobytes(), item.data.dtype.str
    if isinstance(item, np.ndarray | np.generic):
        if item.dtype == object:
            raise _NoTemplateError
        return item.shape, item.tobytes(), item.dtype.str
    if item is None or isinstance(item, bool | int | float | str):
        return type(item), item
    raise _NoTemplateError


class _Template:
    """A problem with parameters for the constants of one structure."""

    def __init__(self, problem: cp.Problem, reading: _Reading):
        self.lock = Lock()
        self.parameters: list[cp.Parameter] = []
        self.affine: AffineData | None = None
        self.variables = [_of_its_own(variable) for variable in reading.variables.values()]
        own, choices = dict(zip(reading.variables, self.variables, strict=True)), iter(reading.choices)
        objective = type(problem.objective)(self._copy(problem.objective.args[0], own, choices))
        self.constraints = [c.copy([self._copy(arg, own, choices) for arg in c.args]) for c in problem.constraints]
        self.problem = cp.Problem(objective, self.constraints)
        if not self.problem.is_dcp(dpp=True):
            raise _NoTemplateError

    def _copy(self, node: Any, own: dict[int, cp.Variable], choices: Iterator[tuple[bool, str | None]]) -> Any:
        """The same expression in own variables and parameters, by the same walk."""
        if isinstance(node, cp.Variable):
            return own[node.id]
        if node.is_constant():
            varies, sign = next(choices)
            return self._parameter(np.shape(node.value), sign) if varies else cp.Constant(node.value)
        args = {i: self._copy(node.args[i], own, choices) for i in _order(node)}
        return with_args(node, [args[i] for i in range(len(args))])

    def _parameter(self, shape: tuple[int, ...], sign: str | None) -> cp.Parameter:
        self.parameters.append(cp.Parameter(shape, **({sign: True} if sign else {})))
        return self.parameters[-1]

    def cone_data(self, problem: cp.Problem, reading: _Reading, values: list[Array]) -> ConeData:
        """The cone data of a problem of this structure, in terms of the problem's own variables and constraints."""
        with self.lock:
            if self.affine is None:
                for parameter, value in zip(self.parameters, values, strict=True):
                    parameter.save_value(value)
                found = cone_data(self.problem)
                if AffineData.is_for(found, self.parameters):
                    self.affine = AffineData(found, self.parameters)
            else:
                found = self.affine.at(values)
        own = dict(zip(reading.variables, self.variables, strict=True))
        ids = {ours.id: theirs.id for ours, theirs in zip(self.constraints, problem.constraints, strict=True)}
        return found._replace(
            columns=lambda variable: found.columns(own.get(variable.id, variable)),
            multipliers=lambda z: {ids[i]: value for i, value in found.multipliers(z).items() if i in ids},
        )


def _of_its_own(variable: cp.Variable) -> cp.Variable:
    return cp.Variable(variable.shape, **{name: True for name in ATTRIBUTES if variable.attributes.get(name)})


def cone_data_of(problem: cp.Problem) -> ConeData:
    """The cone data of a problem, for the values that its constants and parameters have now."""
    if is_compiled(problem):  # a re-solve: cvxpy knows what depends on the problem's own parameters
        return cone_data_again(problem)
    template, reading = _read.get(problem, (None, _Reading()))
    values = None if template is None else reading.again()
    try:
        if template is None or values is None:
            reading = _Reading()
            template = _template(reading.structure(problem), problem, reading)
            values = reading.values
    except _NoTemplateError:
        return cone_data(problem)
    if template is None:
        return cone_data(problem)
    _read[problem] = template, reading
    return template.cone_data(problem, reading, values)


_read: WeakKeyDictionary[cp.Problem, tuple[_Template, _Reading]] = WeakKeyDictionary()  # of problems with a template
_templates: OrderedDict[Hashable, tuple[int, _Template | None]] = OrderedDict()  # how often met, and the template
_lock = Lock()


def _template(key: Hashable, problem: cp.Problem, reading: _Reading) -> _Template | None:
    """That of a structure; None where it is met for the first time, since most are met once, or has none."""
    with _lock:
        times, found = _templates.get(key, (0, None))
    if times == 1:
        try:
            found = _Template(problem, reading)
        except _NoTemplateError:
            found = None
    with _lock:
        _templates[key] = (times + 1, found)
        _templates.move_to_end(key)
        while len(_templates) > MOST_TEMPLATES:
            _templates.popitem(last=False)
    return found
