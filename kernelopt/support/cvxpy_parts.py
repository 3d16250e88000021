"""All that kernelopt uses of cvxpy beyond the documented interface, in one place.

The atoms are the classes that cvxpy's own functions return; expression trees are read by them. The functions wrap
cvxpy's compilation, whose steps, inverse steps and internal names may change from one minor version to the next.
`tests/support/test_cvxpy_parts.py` uses each of these parts, so that it is the first to fail where cvxpy has moved one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain
from math import inf
from threading import Event
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import clarabel
import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.affine.hstack import Hstack
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.promote import Promote
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.sum import Sum
from cvxpy.atoms.affine.transpose import transpose
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.upper_tri import upper_tri
from cvxpy.atoms.affine.vstack import Vstack
from cvxpy.atoms.affine.wraps import nonneg_wrap, nonpos_wrap, symmetric_wrap
from cvxpy.atoms.atom import Atom
from cvxpy.atoms.dotsort import dotsort
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.atoms.elementwise.logic import LogicExpression
from cvxpy.atoms.elementwise.power import Power, PowerApprox
from cvxpy.atoms.matrix_frac import MatrixFrac
from cvxpy.atoms.norm1 import norm1
from cvxpy.atoms.norm_nuc import normNuc
from cvxpy.atoms.perspective import perspective
from cvxpy.atoms.pnorm import Pnorm, PnormApprox
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.atoms.quantum_rel_entr import quantum_rel_entr
from cvxpy.atoms.sigma_max import sigma_max
from cvxpy.atoms.suppfunc import SuppFuncAtom
from cvxpy.atoms.tr_inv import tr_inv
from cvxpy.constraints import Inequality
from cvxpy.cvxcore.python.canonInterface import get_problem_matrix
from cvxpy.expressions.leaf import Leaf
from cvxpy.lin_ops.canon_backend import TensorRepresentation
from cvxpy.lin_ops.lin_utils import get_id
from cvxpy.problems.problem import SolverStats
from cvxpy.reductions.complex2real.complex2real import Complex2Real
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.reductions.solution import Solution
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC, SOLVER_MAP_QP
from cvxpy.reductions.solvers.solving_chain import _validate_problem_data
from cvxpy.utilities.coeff_extractor import CoeffExtractor
from scipy.special import xlogy

from kernelopt.errors import KernelOptError, SolverError
from kernelopt.support import clock, outside
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array, Ints

__all__ = [
    "COLUMNS", "JOINTLY_LINEAR", "PRODUCTS", "SIGNED", "AddExpression", "AffAtom", "Atom", "Compiled", "ConeData",
    "DataSlopes", "DivExpression", "Elementwise", "Hstack", "Inequality", "Leaf", "LogicExpression", "MatrixFrac",
    "MulExpression", "NegExpression", "Pnorm", "PnormApprox", "Power", "PowerApprox", "Promote", "QuadForm", "Solution",
    "SolverStats", "Sum", "Vstack", "broadcast_to", "clarabel_answer", "clarabel_cones", "coefficients", "compiled",
    "cone_data", "distinct_nodes", "forget", "get_id", "graph_form", "has_complex_leaves", "has_graph_form", "index",
    "jacobians", "multiply", "nodes_of", "norm1", "normNuc", "perspective", "perspective_of", "quad_over_lin",
    "require_setup_within",
    "reshape", "rightly_valued", "sigma_max", "special_index", "symmetric_wrap", "with_args",
]  # fmt: skip

PRODUCTS = (MulExpression, multiply)  # affine in each of two arguments
JOINTLY_LINEAR = (
    AddExpression, Hstack, NegExpression, Promote, Sum, Vstack, broadcast_to, index, reshape, special_index, transpose,
)  # fmt: skip
SIGNED = (nonneg_wrap, nonpos_wrap)  # signs that are declared, and neither known nor constraints
# Numbers for which cvxpy's canonicalization has an array of one entry.
COLUMNS = (quad_over_lin, QuadForm, tr_inv, dotsort)
PLAIN = (*PRODUCTS, AddExpression, NegExpression, Sum, Promote, reshape, index, special_index)  # in every problem
ITS_OWN = (cp.error.SolverError, cp.error.DCPError, cp.error.ParameterError)  # errors by which cvxpy refuses a problem


# Clarabel's setup can't be interrupted: per entry of its matrix it takes 2e-7 s for 5e5 entries, and 6e-7 s for 2e7. It
# is not begun where it takes longer than the time that is left. Larger values give up too early, smaller ones overrun.
SETUP_SECONDS = 6e-7


def require_setup_within(seconds: float, entries: int, sides: Iterable[int]) -> None:
    """Raise OutOfTimeError where Clarabel's setup takes longer, for so many entries and semidefinite cones of these
    sides: a block of T = n(n + 1)/2 rows is dense. Each of its iterations takes longer still."""
    rows = [n * (n + 1) // 2 for n in sides]
    if SETUP_SECONDS * (entries + sum(t * (t + 1) // 2 for t in rows)) > seconds:
        raise OutOfTimeError


@np.errstate(over="ignore", invalid="ignore")  # far outside slopes may be infinite
def jacobians(expression: cp.Expression) -> dict[int, Any]:
    """∂(expression)/∂(variable), sparse (entries of the variable, entries of the expression), by the variables' ids.

    Of complex expressions their sizes. Empty for an expression that is neither convex nor concave by cvxpy's rules: its
    own derivatives of quotients and products of two varying factors are wrong, or end the process. Variables are left
    out by which cvxpy knows no derivative, and all of them outside of the domain, or where cvxpy's derivative of an
    atom fails by itself.
    """
    if not expression.is_dcp():
        return {}
    if expression.is_complex():
        return _of_complex(expression)
    try:
        found = expression.grad
    except (NotImplementedError, ValueError, TypeError, AttributeError):  # as that of a support function of entries
        return {}
    return {
        v.id: sp.csc_array(g if sp.issparse(g) else np.reshape(g, (v.size, expression.size)))
        for v, g in found.items() if g is not None
    }  # fmt: skip


def _of_complex(expression: cp.Expression) -> dict[int, Any]:
    """|∂(real part)| + |∂(imaginary part)| by real variables of an affine expression, of which cvxpy knows none."""
    if not expression.is_affine() or any(v.is_complex() for v in expression.variables()):
        return {}
    problem, _ = in_real_numbers(cp.Problem(cp.Minimize(0), [expression == 0]))
    found = dict[int, Any]()
    for part in problem.constraints:
        for i, g in jacobians(part.args[0]).items():
            found[i] = found[i] + abs(g) if i in found else abs(g)
    return found


def forget(node: Any) -> None:
    """Drop the values that a node has cached from its leaves, such as signs and shapes."""
    for name in [name for name in vars(node) if name.startswith("_lazy") or name.endswith("__cache__")]:
        delattr(node, name)


def rightly_valued(node: Any, args: list[Any]) -> Any | None:
    """What stands for an atom whose value in cvxpy is another than its cones state; None for all others.

    The entries of `upper_tri` are a column in an expression and a row in its value. `quantum_rel_entr` divides the
    eigenvalues of X by their sum in its value. The cones of `sum_largest` and `lambda_sum_largest` are unbounded
    for more entries than there are, where the value is the sum of all. Powers in the value of `pnorm` underflow.
    """
    if isinstance(node, cp.sum_largest) and node.k >= _count_along(args[0], node.axis):
        return cp.sum(args[0], axis=node.axis, keepdims=node.keepdims)
    if isinstance(node, cp.lambda_sum_largest) and node.k >= args[0].shape[0] and args[0].is_real():
        return cp.trace(args[0])
    if isinstance(node, upper_tri) and args[0].ndim == 2 and node.size:
        return reshape(args[0][np.triu_indices(args[0].shape[0], k=1)], node.shape, order="F")
    if isinstance(node, quantum_rel_entr):
        found = with_args(node, args)
        found.numeric = _relative_entropy
        return found
    if isinstance(node, Pnorm) and 2 < node.p < inf:
        found = Pnorm(args[0], node.original_p) if is_costly(node) else with_args(node, args)
        found.numeric = partial(_scaled_norm, float(node.p))
        return found
    return None


def perspective_of(f: Any, s: cp.Variable, recession: Any) -> Any:
    """s·f(x/s), with the value NaN where cvxpy's raises: at s = 0 without a recession function, and for s < 0."""
    found = perspective(f, s, recession)
    found.numeric = partial(_value_or_nan, found)
    return found


def _value_or_nan(node: Any, values: Any) -> Any:
    try:
        return np.reshape(type(node).numeric(node, values), node.shape)
    except AssertionError:
        return np.full(node.shape, np.nan)


def is_costly(node: Any) -> bool:
    """Whether a norm takes many second-order cones per number: those of orders that are multiples of ½ take few."""
    return isinstance(node, PnormApprox) and bool((2 * node.original_p) % 1)


def _scaled_norm(p: float, values: Sequence[Any]) -> float:
    """m(Σ|x/m|ᵖ)^(1/p) with m = max |x|."""
    x = np.abs(np.ravel(values[0]))
    m = float(x.max(initial=0.0))
    return m * float(np.linalg.norm(x / m, p)) if 0 < m < inf else m


def _count_along(node: Any, axis: int | Sequence[int] | None) -> int:
    """The entries that an atom takes together."""
    if axis is None:
        return int(node.size)
    return int(np.prod([node.shape[i] for i in np.atleast_1d(axis)]))


def _relative_entropy(values: Sequence[Any]) -> float:
    """tr X(ln X − ln Y); ∞ where an eigenvalue is negative, or where X is not 0 on the kernel of Y."""
    (x, V), (y, W) = (np.linalg.eigh((M + M.conj().T) / 2) for M in values)
    if min(x[0], y[0]) < -quantum_rel_entr.EVAL_TOL:
        return inf
    x, y = np.maximum(x, 0.0), np.maximum(y, 0.0)
    along = x @ np.abs(V.conj().T @ W) ** 2
    return float(np.sum(xlogy(x, x)) - np.sum(xlogy(along, y)))


def with_args(node: Any, args: Sequence[Any]) -> Any:
    """The same atom or constraint with other arguments, as `node.copy(args)`, also where cvxpy's own copy fails."""
    if isinstance(node, SuppFuncAtom):  # its set is no argument, and no data
        return SuppFuncAtom(args[0], node._parent)
    if isinstance(node, LogicExpression):  # takes constants of type bool alone
        args = [cp.Constant(np.asarray(a.value, dtype=bool)) if isinstance(a, cp.Constant) else a for a in args]
    return node.copy(list(args))


class Compiled(NamedTuple):
    """A problem in a solver's form, and cvxpy's way back from the solver's answer to the problem's variables."""

    data: Any
    chain: Any
    inverse: Any

    def answer(
        self, problem: cp.Problem, options: Mapping[str, Any], ours: dict[str, Any], seconds: float = inf
    ) -> Any:
        """The solver's own return value. Raises OutOfTimeError where it takes more than `seconds`."""
        warm, verbose = options.get("warm_start", True), options.get("verbose", False)
        if self.solver != "CLARABEL" or not isinstance(self.data, dict):
            return outside.call(lambda: self.chain.solve_via_data(problem, self.data, warm, verbose, ours), seconds)
        _validate_problem_data(self.data)
        began = clock.now()
        require_setup_within(seconds, self.data["A"].nnz, self.data["dims"].psd)
        last = problem._solver_cache.pop(self.solver, None)  # which may run on after Ctrl-C
        solver = (self._updated(last, verbose, ours) if warm else None) or self._new(verbose, ours)
        answer = clarabel_answer(solver, seconds - (clock.now() - began))
        problem._solver_cache[self.solver] = solver
        return answer

    # cvxpy's own call of Clarabel gives no access to the solver, which has to be told when to stop.

    def _new(self, verbose: bool, ours: dict[str, Any]) -> Any:
        data, settings = self._for_clarabel(), self.chain.solver.parse_solver_opts(verbose, ours)
        return clarabel.DefaultSolver(
            data["P"], data["q"], data["A"], data["b"], dims_to_solver_cones(self.data["dims"]), settings
        )

    def _updated(self, last: Any, verbose: bool, ours: dict[str, Any]) -> Any:
        """A solver that has solved a problem of the same pattern, with new data; None where there is none."""
        if last is None or not last.is_data_update_allowed():
            return None
        settings = self.chain.solver.parse_solver_opts(verbose, ours, last.get_settings())
        try:
            last.update(**self._for_clarabel(), settings=settings)
        except Exception:  # of another pattern, or of another size
            return None
        return last

    def _for_clarabel(self) -> dict[str, Any]:
        data = self.data
        P = sp.csc_array((len(data["c"]),) * 2) if data.get("P") is None else sp.triu(data["P"]).tocsc()
        return {"P": P, "q": data["c"], "A": data["A"], "b": data["b"]}

    def solution(self, raw: Any, units: tuple[float | Array, float] = (1.0, 1.0)) -> Solution:
        """The solver's return value as cvxpy's `Solution`, with units of x, for each column or for all, and of z.

        Units are undone before cvxpy's other steps, one of which projects variables on their bounds.
        """
        (of_x, of_z), steps = units, list(zip(self.chain.reductions, self.inverse, strict=True))
        last, data = steps.pop()
        found = last.invert(raw, data)
        found.primal_vars = {i: of_x * np.asarray(x) for i, x in (found.primal_vars or {}).items()}
        found.dual_vars = {i: _times(of_z, z) for i, z in (found.dual_vars or {}).items()}
        for step, data in reversed(steps):
            found = step.invert(found, data)
        return found

    @property
    def solver(self) -> str:
        return str(self.chain.solver.name())

    @property
    def offset(self) -> float:
        """The constant of the minimized objective, which the solver does not see."""
        return float(np.ravel(self.inverse[-1][cp.settings.OFFSET])[0])

    def first_column(self, variable: cp.Variable) -> int | None:
        """The index at which a variable begins in the solver's x; None where compilation removed the variable."""
        found = self.data["param_prob"].var_id_to_col.get(variable.id)
        return None if found is None else int(found)


def quietly_compiled(problem: cp.Problem, solver: str, **options: Any) -> Any:
    """cvxpy's data of a problem for a solver, without its warning that parameters prevent a faster compilation.

    That would point here, at a problem that the user did not write.
    """
    known = SOLVER_MAP_QP.get(solver.upper()) or SOLVER_MAP_CONIC.get(solver.upper())
    quadratic = "qp" if known is not None and known.supports_quad_obj() else None
    told = {"ignore_dpp": not problem.is_dpp("dcp", quadratic)} | options
    try:
        return _without_values(problem.variables(), lambda: problem.get_problem_data(solver, **told))
    except AssertionError:  # the graph form of dotsort(x − p, q) has products of parameters where the atom has none
        return problem.get_problem_data(solver, **told | {"ignore_dpp": True})


def _without_values(variables: Iterable[cp.Variable], made: Callable[[], Any]) -> Any:
    """What is made, where need be while variables have no values.

    Some graph forms of cvxpy's start from values where there are some: those of a sum of the 2.5 largest ones fail, and
    of the largest entries of a matrix.
    """
    try:
        return made()
    except (TypeError, ValueError, IndexError):
        present = [(variable, variable._value) for variable in variables if variable._value is not None]
        if not present:
            raise
        try:
            for variable, _ in present:
                variable._value = None
            return made()
        finally:
            for variable, value in present:
                variable._value = value


def compiled(problem: cp.Problem, solver: str, options: Mapping[str, Any]) -> Compiled:
    """A problem in a solver's form.

    The COO backend is as fast as others for dense matrices, and takes milliseconds for weights in a parameter of 20 000
    entries, where the SciPy backend takes 19 s.

    Raises SolverError where one of cvxpy's steps fails on an expression, as `cp.real` does without complex variables.
    """
    construct = problem._construct_chain
    problem._construct_chain = lambda **chosen: _economical(construct(**chosen))
    try:
        with np.errstate(over="ignore"):  # twice 1e308, which is refused later
            found = quietly_compiled(problem, solver, canon_backend=cp.COO_CANON_BACKEND, solver_opts=dict(options))
    except (*ITS_OWN, KernelOptError, MemoryError, OutOfTimeError, Warning):
        raise
    except Exception as error:
        raise SolverError(_failed(problem, error)) from error
    finally:
        del problem._construct_chain
    return Compiled(*found)


# Entries of a program's parameters from which its rows are formatted by `_Formatting`.
MANY_PARAMETERS = 50


def _failed(problem: cp.Problem, error: Exception) -> str:
    """What cvxpy could not compile: the atoms that stand in the way, where it names none."""
    atoms = dict.fromkeys(type(node).__name__ for node in nodes_of(problem) if type(node).__name__ in str(error))
    names = atoms or dict.fromkeys(type(node).__name__ for node in nodes_of(problem) if not isinstance(node, PLAIN))
    said = f"{type(error).__name__}{f': {error}' if str(error) else ''}".rstrip(".")
    listed = f" (atoms: {', '.join(names)})" if names else ""
    return f"cvxpy could not compile the problem{listed}: {said}. State it with other atoms."


def nodes_of(problem: cp.Problem) -> list[Any]:
    """All atoms of a problem, those that stand in several places several times."""
    found: list[Any] = []
    waiting = [problem.objective.args[0], *(a for c in problem.constraints for a in c.args)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, Atom):
            found.append(node)
            waiting += node.args
    return found


def distinct_nodes(problem: cp.Problem) -> list[Any]:
    """All atoms of a problem, each once."""
    found: dict[int, Any] = {}
    waiting = [problem.objective.args[0], *(a for c in problem.constraints for a in c.args)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, Atom) and id(node) not in found:
            found[id(node)] = node
            waiting += node.args
    return list(found.values())


class _Formatting:
    """A conic solver's interface whose rows are formatted in the memory of their entries.

    cvxpy multiplies a sparse matrix of (n + 1)(p + 1) columns, for n variables and p entries of parameters: this takes
    3.5 GB for 6000 exponentials with weights in a parameter. Few of these columns have entries.
    """

    @classmethod
    def format_constraints(cls, problem: Any, exp_cone_order: Any) -> Any:
        formatted: Callable[[Any, Any], Any] = super().format_constraints  # type: ignore[misc]
        n, T = problem.x.size + 1, sp.coo_array(problem.A)
        if T.shape[1] <= MANY_PARAMETERS or not T.shape[0]:
            return formatted(problem, exp_cone_order)
        m = T.shape[0] // n
        j, i = np.divmod(T.coords[0].astype(np.int64), m)
        used, place = np.unique(j + n * T.coords[1].astype(np.int64), return_inverse=True)
        few = copy(problem)
        few.A = sp.csc_array((T.data, (i + m * place, np.zeros_like(i))), shape=(m * len(used), 1))
        few.x = SimpleNamespace(size=len(used) - 1)
        few.P = None
        found = formatted(few, exp_cone_order)
        S = sp.coo_array(found.A)
        rows = S.shape[0] // len(used)
        place, i = np.divmod(S.coords[0].astype(np.int64), rows)
        parameter, j = np.divmod(used[place], n)
        A = sp.csc_array((S.data, (i + rows * j, parameter)), shape=(rows * n, T.shape[1]))
        return type(found)(
            problem.q, problem.x, A, found.variables, found.var_id_to_col, found.constraints, found.parameters,
            found.param_id_to_col, P=problem.P, formatted=True, lower_bounds=found.lower_bounds,
            upper_bounds=found.upper_bounds, lb_tensor=found.lb_tensor, ub_tensor=found.ub_tensor,
            dir_cones=found.dir_cones,
        )  # fmt: skip


class _Extractor(CoeffExtractor):
    """cvxpy's coefficients of an objective, which stay sparse: its own pass through arrays of n·p numbers.

    One of p parameters stands in few of the n terms as a rule, such as a row's weight.
    """

    def extract_quadratic_coeffs(self, affine_expr: Any, quad_forms: Any) -> tuple[Any, Any]:
        forms = {number: form for number, (_, _, form) in quad_forms.items()}
        if any(form.P.parameters() for form in forms.values()):
            return cast(tuple[Any, Any], super().extract_quadratic_coeffs(affine_expr, quad_forms))
        places, offsets, length, _ = InverseData.get_var_offsets(affine_expr.variables())
        T = sp.csr_array(
            get_problem_matrix(
                [affine_expr.canonical_form[0]], length, offsets, self.param_to_size, self.param_id_map,
                affine_expr.size, self.canon_backend,
            )
        )  # fmt: skip
        found: dict[int, dict[str, Any]] = {}
        for variable in affine_expr.variables():
            first, size = places[variable.id]
            part, form = T[first : first + size], forms.get(variable.id)
            target = variable.id if form is None else form.args[0].id
            length = size if form is None else form.P.shape[0]
            mine = found.setdefault(target, {"q": sp.csr_array((length, T.shape[1]))})
            if form is None:
                mine["q"] = mine["q"] + part
            else:
                square = _weighted_squares(form, part)
                mine["P"] = mine["P"] + square if "P" in mine else square
        return found, T[[-1]]


def _weighted_squares(form: Any, part: sp.csr_array) -> TensorRepresentation:
    """Σⱼ wⱼxᵀPⱼx with w = part·(parameters, 1): Pⱼ are the entries of P among the indices of the form's value j."""
    P, values = sp.coo_array(form.P.value), part.shape[0]
    value_of = np.arange(P.shape[0]) if values > 1 else np.zeros(P.shape[0], dtype=int)
    for j, indices in enumerate(form.block_indices or ()):
        value_of[indices] = j
    here = np.flatnonzero(value_of[P.row] == value_of[P.col])
    spread = sp.csr_array((P.data[here], (np.arange(len(here)), value_of[P.row[here]])), shape=(len(here), values))
    entries = sp.coo_array(spread @ part)
    at = here[entries.row]
    return TensorRepresentation(entries.data, P.row[at], P.col[at], entries.col, P.shape)


class _Stuffing(ConeMatrixStuffing):
    """cvxpy's step to matrices, in the memory of their entries where parameters are many."""

    def stuffed_objective(self, problem: Any, extractor: Any) -> tuple[Any, Any, Any]:
        expression, count = problem.objective.expr, sum(p.size for p in problem.parameters())
        if not self.quad_obj or count <= MANY_PARAMETERS:
            return cast(tuple[Any, Any, Any], super().stuffed_objective(problem, extractor))
        extractor = copy(extractor)
        extractor.__class__ = _Extractor
        # A matrix of parameters takes cvxpy's own way, whose arrays have a row for each variable of an affine term.
        terms = expression.args if isinstance(expression, AddExpression) else []
        affine, rest = [one for one in terms if one.is_affine()], [one for one in terms if not one.is_affine()]
        if not affine or not rest:
            return cast(tuple[Any, Any, Any], super().stuffed_objective(problem, extractor))
        curved = SimpleNamespace(objective=cp.Minimize(AddExpression(rest)), variables=problem.variables)
        P, c, x = super().stuffed_objective(curved, extractor)
        return P, c + extractor.affine(AddExpression(affine)), x


def _economical(chain: Any) -> Any:
    """A chain of cvxpy's with the two steps above in the place of its own."""
    for number, step in enumerate(chain.reductions):
        if type(step) is ConeMatrixStuffing:
            chain.reductions[number] = mine = copy(step)
            mine.__class__ = _Stuffing
        elif isinstance(step, ConicSolver):
            chain.reductions[number] = chain.solver = mine = copy(step)
            mine.__class__ = type(type(step).__name__, (_Formatting, type(step)), {})
    return chain


class ConeData(NamedTuple):
    """minimize ½xᵀPx + cᵀx + offset subject to Ax + s = b, s ∈ K, as cvxpy's conic interface has it.

    P : None where there is no quadratic part
    dims : sizes of the cones of K
    columns : the columns of a variable in x; empty where compilation removed the variable
    multipliers : those of the problem's constraints, by id, from the multipliers z of the rows
    program : cvxpy's program with parameters, whose values these are
    """

    P: Any
    c: Array
    offset: float
    A: Any
    b: Array
    dims: Any
    columns: Callable[[cp.Variable], Ints]
    multipliers: Callable[[Array], dict[int, Any]]
    program: Any = None

    def moved(self, deltas: Mapping[int, Array]) -> tuple[Any, Array, Any, Array]:
        """(dP, dc, dA, db) for changes of the program's parameters, by id."""
        program, n, m = self.program, len(self.c), len(self.b)
        vector = np.zeros(program.A.shape[1])
        for number, start in program.param_id_to_col.items():
            if number in deltas:
                flat = np.ravel(deltas[number], order="F")
                vector[start : start + len(flat)] = flat

        def matrix(tensor: Any, shape: tuple[int, int]) -> sp.csc_array:
            T = sp.coo_array(tensor)
            j, i = np.divmod(T.coords[0], shape[0])
            return sp.csc_array((T.data * vector[T.coords[1]], (i, j)), shape=shape)

        A = matrix(program.A, (m, n + 1)) if m else sp.csc_array((m, n + 1))
        P = sp.csc_array((n, n)) if program.P is None else matrix(program.P, (n, n))
        c = sp.csr_array(program.q) @ vector
        return P, c[:n], -A[:, :n], A[:, [n]].toarray().ravel()


def _times(factor: float, value: Any) -> Any:
    return [_times(factor, v) for v in value] if isinstance(value, list) else factor * value


def coefficients(expression: Any, variables: Sequence[Any]) -> tuple[sp.csr_array, Array]:
    """L and l of an affine expression without parameters, L·(entries of the variables) + l, all by columns."""
    starts, n = dict[int, int](), 0
    for variable in variables:
        starts[variable.id] = n
        n += variable.size
    operator = expression.canonical_form[0]
    T = get_problem_matrix([operator], n, starts, {-1: 1}, {-1: 0}, expression.size, "SCIPY")
    L = sp.csr_array(sp.csc_array(T).reshape((expression.size, n + 1), order="F"))
    return sp.csr_array(L[:, :n]), np.ravel(L[:, [n]].toarray())


def has_graph_form(node: Any) -> bool:
    """Whether cvxpy replaces this atom by an affine expression and constraints."""
    return type(node) in CANON_METHODS


def graph_form(node: Any, arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The expression and the constraints that cvxpy puts in the place of one atom of these arguments."""
    variables = [variable for argument in arguments for variable in argument.variables()]
    found: tuple[Any, list[Any]] = _without_values(variables, lambda: CANON_METHODS[type(node)](node, arguments))
    return found


class DataSlopes(NamedTuple):
    """The derivative of a number by the data of a cone program.

    quadratic, rows : of P and of A, functions of rows i and columns j, arrays of one length; costs, right, offset : of
    c, of b, and of the offset
    """

    quadratic: Callable[[Ints, Ints], Array]
    costs: Array
    rows: Callable[[Ints, Ints], Array]
    right: Array
    offset: float = 0.0

    def of_parameters(self, data: ConeData) -> dict[int, tuple[Array, Array]]:
        """The derivative by each parameter of the program, and the sizes of its terms, by id.

        cvxpy's data are affine in its parameters.
        """
        program, n, m = data.program, len(data.c), len(data.b)
        q, of_q = sp.csr_array(program.q), np.append(self.costs, self.offset)
        total, sizes = of_q @ q, np.abs(of_q) @ abs(q)
        A = sp.coo_array(program.A)
        j, i = np.divmod(A.coords[0], m)
        inside = j < n
        # cvxpy's conic form has −A.
        at_A = -self.rows(np.where(inside, i, 0), np.where(inside, j, 0)) if m else np.zeros(len(i))
        weights = np.where(inside, at_A, self.right[i] if m else 0.0)
        total = total + np.bincount(A.coords[1], weights * A.data, A.shape[1])
        sizes = sizes + np.bincount(A.coords[1], np.abs(weights * A.data), A.shape[1])
        if program.P is not None:
            P = sp.coo_array(program.P)
            j, i = np.divmod(P.coords[0], n)
            weights = self.quadratic(i, j) * P.data
            total = total + np.bincount(P.coords[1], weights, P.shape[1])
            sizes = sizes + np.bincount(P.coords[1], np.abs(weights), P.shape[1])
        found: dict[int, tuple[Array, Array]] = {}
        for number, start in program.param_id_to_col.items():
            parameter = program.id_to_param.get(number)
            if parameter is not None:
                part = slice(start, start + parameter.size)
                shaped = [np.reshape(a[part], parameter.shape, order="F") for a in (total, sizes)]
                found[number] = shaped[0], shaped[1]
        return found


def cone_data(problem: cp.Problem) -> ConeData:
    """The cone data of a problem, as Clarabel takes them."""
    data, chain, inverse = compiled(problem, "CLARABEL", {})
    names: dict[int, int] = {}  # cvxpy replaces variables with attributes by new ones, with new ids
    for reduction in chain.reductions:
        names |= {old: new[0] for old, new in getattr(reduction, "var_id_map", {}).items()}
    first = data["param_prob"].var_id_to_col
    sizes = {v.id: v.size for v in data["param_prob"].variables}

    def columns(variable: cp.Variable) -> Ints:
        name = names.get(variable.id, variable.id)
        start = first.get(name)
        return np.arange(0) if start is None else np.arange(start, start + sizes.get(name, variable.size))

    def multipliers(z: Array) -> dict[int, Any]:
        # cvxpy's inverse wants a whole answer of Clarabel; the multipliers depend on z alone.
        x = np.zeros(len(data["c"]))
        point = SimpleNamespace(x=x, z=z, s=z, obj_val=0.0, status="Solved", solve_time=0.0, iterations=0)
        return dict(chain.invert(point, inverse).dual_vars)

    offset = Compiled(data, chain, inverse).offset
    A, c, b = data["A"], np.asarray(data["c"], dtype=float), np.asarray(data["b"], dtype=float)
    A.eliminate_zeros()  # of parameters; those of constants are not there
    return ConeData(data.get("P"), c, offset, A, b, data["dims"], columns, multipliers, data["param_prob"])


def clarabel_answer(solver: Any, seconds: float = inf) -> Any:
    """Clarabel's answer, of status CallbackTerminated after the time limit or Ctrl-C.

    Raises OutOfTimeError where its last iteration does not end soon after these seconds.
    """
    told = Event()
    solver.set_termination_callback(lambda _: told.is_set())
    return outside.call(solver.solve, seconds, told.set)


def clarabel_cones(**dims: Any) -> Any:
    """Clarabel's cones from cvxpy's names and sizes: zero, nonneg, soc, psd, exp, p3d, pnd."""
    return dims_to_solver_cones(SimpleNamespace(**dims))


class _KeptLeaves(Complex2Real):
    """Remembers which expressions stand for the real and the imaginary part of each leaf.

    Expressions without complex leaves stay as they are: some atoms (perspective, support functions) have no copy.
    """

    def canonicalize_tree(self, expr: Any, real2imag: Any, leaf_map: Any) -> Any:
        self.leaves = leaf_map
        if not any(leaf.is_complex() for leaf in (*expr.variables(), *expr.parameters(), *expr.constants())):
            return expr, None
        return super().canonicalize_tree(expr, real2imag, leaf_map)

    def canonicalize_expr(self, expr: Any, real_args: Any, imag_args: Any, real2imag: Any, leaf_map: Any) -> Any:
        if isinstance(expr, SuppFuncAtom) and all(part is None for part in imag_args):
            return with_args(expr, real_args), None
        if isinstance(expr, quad_over_lin) and imag_args[0] is not None:  # cvxpy's needs a real part, and has no axis
            parts = [part for part in (real_args[0], imag_args[0]) if part is not None]
            return sum(with_args(expr, [part, real_args[1]]) for part in parts), None
        return super().canonicalize_expr(expr, real_args, imag_args, real2imag, leaf_map)


def has_complex_leaves(problem: cp.Problem) -> bool:
    """Whether some variable, parameter or constant is complex."""
    arguments = chain.from_iterable(node.args for node in distinct_nodes(problem))
    return any(isinstance(leaf, Leaf) and leaf.is_complex() for leaf in chain(arguments, problem.variables()))


def in_real_numbers(problem: cp.Problem) -> tuple[cp.Problem, dict[int, int]]:
    """The problem with real and imaginary parts of complex leaves, and what the ids of its variables stand for: the id
    of a complex variable, negative for the imaginary part. The problem itself where it has no complex leaves."""
    if not has_complex_leaves(problem):
        return problem, {}
    reduction = _KeptLeaves()
    found, _ = reduction.apply(problem)
    parts = dict[int, int]()
    for leaf, both in reduction.leaves.items():
        if isinstance(leaf, cp.Variable) and leaf.is_complex():
            for part, sign in zip(both, (1, -1), strict=True):
                parts |= {variable.id: sign * leaf.id for variable in (part.variables() if part is not None else ())}
    return found, parts
