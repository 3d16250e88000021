"""Gradients of criteria by parameters of a problem that was solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.certificate import Certificate
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.driver.statement import Statement
from kernelopt.errors import DataError, KernelOptError, UnknownNameError
from kernelopt.kernels.domains import frozen
from kernelopt.language.text import Notation, describe, notation
from kernelopt.sensitivity import solution_map
from kernelopt.sensitivity.criterion import Criterion, criterion_of, twins
from kernelopt.sensitivity.criterion import value as value_of
from kernelopt.sensitivity.named import Named, in_words, named
from kernelopt.sensitivity.one_sided import OneSided
from kernelopt.sensitivity.optimum import MOST, Optimum
from kernelopt.sensitivity.solution_map import Derivative
from kernelopt.sensitivity.stated_cones import follows_rules
from kernelopt.support.checks import shown
from kernelopt.support.types import Array

STRUCTURED = (
    "Expected parameters without structure; {} is {}, which cvxpy replaces by another. Take a parameter of its free "
    "entries."
)
IN_NUMBERS = (
    "Expected a problem that cvxpy compiles with {} as a parameter; it puts numbers in the place of all of them where "
    "one stands inside cp.quad_form. Write cp.sum_squares(R @ x), with P = RᵀR."
)
# The error of a gradient in units of the largest size of its terms: a multiple of the residuals of the adjoint system
# and of the optimality conditions, what rounding becomes in systems of usual condition, and a part of √(trace that the
# factor leaves out, relative), by which predictions move. Over random problems, differences between gradients after
# rough and after precise solves were below this in more than 99 %.
SHARE, ROUNDED, MOVED = 100.0, 1e-8, 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Gradient(Mapping[cp.Parameter, Array]):
    """A criterion's value and its gradient: `found[p]` has the shape of the parameter p; made by `ko.gradient`.

    Attributes
    ----------
    value : the criterion at the optimum
    errors : for each parameter an estimate (not a bound) of the largest error of the gradient's entries, in its shape;
        too small, as a rule, for λ below about 1e-4 of κ(x, x)
    near : what has reached the end of a kink or a bound, where the criterion has no derivative by the parameters: the
        derivatives to both sides differ, or are not known to agree. Predictions as (θ, number), and constraints,
        variables and norms as they are stated. It is reached where slack and multiplier, or a multiplier that is not
        unique, are within 1e-6 of 0, in units of predictions and of the largest multiplier. What `found[p]` gives is
        then the derivative with the active constraints as they are, which need not be one to either side.
    one_sided : for each parameter that is one number, its derivatives to the left (as it decreases) and to the right,
        nan where the problem has no solution on that side; None where they are not known, and for other parameters
    kinks : names of atoms of the criterion, such as abs, that are at a kink and move across it as a parameter changes,
        and kernels, such as the Laplacian, with a kink between two points that a parameter holds. What is given is then
        between the one-sided derivatives, which are None.
    notation : how the problem's text calls what has no name; `repr` uses it
    """

    value: float
    gradients: Mapping[cp.Parameter, Array]
    errors: Mapping[cp.Parameter, Array]
    near: tuple[Named, ...]
    one_sided: Mapping[cp.Parameter, tuple[float, float] | None]
    kinks: tuple[str, ...] = ()
    notation: Notation = field(default_factory=Notation)

    @property
    def is_differentiable(self) -> bool:
        """Whether nothing has reached the end of a kink or a bound, and no atom of the criterion a kink."""
        return not self.near and not self.kinks

    def __getitem__(self, parameter: cp.Parameter) -> Array:
        if not isinstance(parameter, cp.Parameter) or parameter not in self.gradients:
            names = ", ".join(self.notation.leaf(p) for p in self.gradients)
            hint = " Give the cp.Parameter itself, not its name." if isinstance(parameter, str) else ""
            raise UnknownNameError(f"Expected one of the parameters {names}; got {shown(parameter)}.{hint}")
        return self.gradients[parameter]

    def __iter__(self) -> Iterator[cp.Parameter]:
        return iter(self.gradients)

    def __len__(self) -> int:
        return len(self.gradients)

    def __repr__(self) -> str:
        lines = [f"value {self.value:.6g}"]
        for p, g in self.gradients.items():
            size = f"{float(g):.6g}" if np.ndim(g) == 0 else f"shape {np.shape(g)}, norm {np.linalg.norm(g):.6g}"
            lines.append(f"d/d {self.notation.leaf(p)}: {size} ± {float(np.max(self.errors[p])):.1g}")
            sides = self.one_sided[p]
            if sides is not None and sides[0] != sides[1]:
                lines[-1] += f"; to the left {sides[0]:.6g}, to the right {sides[1]:.6g}"
        if self.near:
            several = ", ".join(in_words(entry, self.notation) for entry in self.near[:5])
            lines.append(f"no derivative: {len(self.near)} at the end of a kink or a bound ({several})")
        if self.kinks:
            lines.append(f"no derivative: the criterion is at a kink of {', '.join(self.kinks)}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class SolvedProblem:
    """A problem as stated, and its answer: private form at present values, reduction, point and certificate."""

    stated: Statement
    form: CanonicalForm
    reduction: Reduction
    point: Iterate
    certificate: Certificate | None


def gradient_of(
    answer: SolvedProblem, criterion: Any, chosen: list[cp.Parameter], at: cp.Expression | None
) -> Gradient:
    """The gradient of a criterion by the chosen parameters; `ko.gradient` describes it."""
    require_number(criterion)
    return Refined(answer, chosen).gradient(criterion, at)


class Refined:
    """The optimum next to an answer, found once: values of expressions there, and gradients by the chosen parameters.

    With parameters that follow cvxpy's rules only one at a time, it is found once for each of them. Parameters must
    have the answer's values at each call.
    """

    def __init__(self, answer: SolvedProblem, chosen: list[cp.Parameter]) -> None:
        self.answer, self.chosen = answer, chosen
        self._in_data = [p for p in chosen if any(p is q for q in answer.form.outer.parameters())]
        together = follows_rules(answer.form, self._in_data)
        self._groups = [self._in_data] if together else [[p] for p in self._in_data]
        self._optima: dict[int, Optimum] = {}
        self._kinks: dict[int, OneSided] = {}

    def optimum(self, number: int = 0) -> Optimum:
        """The optimum as a function of one group of parameters. Raises KernelOptError; see `ko.gradient`."""
        if number not in self._optima:
            answer, group = self.answer, self._groups[number]
            self._optima[number] = solution_map.at_optimum(answer.form, answer.reduction, answer.point, group)
        return self._optima[number]

    def kinks(self, number: int) -> OneSided:
        """Where the optimum has no derivative by one group of parameters."""
        if number not in self._kinks:
            self._kinks[number] = OneSided(self.optimum(number), self.chosen)
        return self._kinks[number]

    def value(self, output: Any) -> Array:
        """The value of an expression, or of the problem's objective."""
        if isinstance(output, cp.Expression):
            return _values(self.answer.stated, self.optimum(), output)
        derivative, sign = _derivative(self.answer.stated, self.optimum(), output, None, [])
        return np.asarray(sign * derivative.value)

    def gradient(self, criterion: Any, at: cp.Expression | None = None) -> Gradient:
        """The gradient of a criterion, as `ko.gradient` describes it."""
        _require_known(self.answer, self.chosen)
        value, near, of_atoms = 0.0, dict[Any, Named](), dict[str, None]()
        gradients, errors = ({p: np.zeros(p.shape) for p in self.chosen} for _ in range(2))
        one_sided: dict[cp.Parameter, tuple[float, float] | None] = {}
        for number in range(len(self._groups)):
            found, group = self.optimum(number), self._of_group(number)
            derivative, sign = _derivative(self.answer.stated, found, criterion, at, self.chosen)
            value = sign * derivative.value
            share = _share(self.answer.certificate, found, derivative)
            of_atoms |= dict.fromkeys(derivative.kinks)
            for p in group:
                if p.id not in derivative.of_parameters and any(p is q for q in self._in_data):
                    raise KernelOptError(_unknown(found, p))
                if p.id in derivative.of_parameters:
                    gradients[p], sizes = (np.array(sign * a, dtype=float) for a in derivative.of_parameters[p.id])
                    errors[p] = np.full(p.shape, share * float(np.abs(sizes).max(initial=0.0)))
            kinks = self.kinks(number)
            sides = (kinks.of_value if derivative.adjoint is None else kinks.of_criterion)(derivative, group)
            for p in group:
                linear = sides[p.id].linear
                gradients[p] = gradients[p] if linear is None else np.array(sign * linear)
                known = None if derivative.kinks else sides[p.id].left_right
                one_sided[p] = None if known is None else (sign * known[0], sign * known[1])
            owners = np.unique(np.concatenate([np.arange(0), *(one.owners for one in sides.values())]))
            for entry in named(found, owners, self.answer.stated.objective, self.answer.stated.constraints):
                near.setdefault((id(entry[0]), entry[1]) if isinstance(entry, tuple) else id(entry), entry)
        fixed = [{p: frozen(a) for p, a in parts.items()} for parts in (gradients, errors)]
        sided = {p: one_sided[p] for p in self.chosen}
        stated = self.answer.stated
        called = notation(stated.thetas(), [stated.objective, *stated.constraints])
        return Gradient(value, fixed[0], fixed[1], tuple(near.values()), sided, tuple(of_atoms), called)

    def _of_group(self, number: int) -> list[cp.Parameter]:
        """The parameters whose derivative is taken from a group: those of kernels and of the criterion alone, which
        have the same in each, from the first."""
        own = self._groups[number]
        others = [p for p in self.chosen if not any(p is q for q in self._in_data)]
        return [*own, *others] if number == 0 else own


def _unknown(found: Optimum, p: cp.Parameter) -> str:
    """Why the compiled problem does not tell how it depends on a parameter."""
    known = {number for number in found.data.data.program.param_id_to_col if number >= 0}
    return STRUCTURED.format(p.name(), repr(p)) if known else IN_NUMBERS.format(p.name())


def _require_known(answer: SolvedProblem, chosen: list[cp.Parameter]) -> None:
    """Raise KernelOptError for parameters whose effect on the conditions is not known."""
    form, stated = answer.form, answer.stated
    if form.proximal:
        name = form.proximal[0].loss.name
        raise KernelOptError(f"Expected a problem of cvxpy's atoms and SmoothLosses; got {name}, a ProximalLoss.")
    for constraint in form.pinned:
        gone = [p for p in constraint.parameters() if any(p is q for q in chosen)]
        if gone:
            mine = next((c for c in stated.constraints if getattr(c, "id", None) == constraint.id), constraint)
            called = notation(stated.thetas(), [stated.objective, *stated.constraints])
            raise KernelOptError(
                "Expected constraints with room where the derivative by their parameters is asked for; "
                f"`{describe(mine, named=called)}` holds with equality only at the present value of "
                f"{gone[0].name()}, and has no point beyond it. Take a value that leaves some room."
            )
    of_losses = [p for link in form.smooth for argument in link.term.args[1:] for p in argument.parameters()]
    for p in chosen:
        if any(p is q for q in of_losses):
            raise KernelOptError(
                f"Expected parameters outside of the data of a SmoothLoss; its derivative by {p.name()} is not known."
            )


def require_number(criterion: Any) -> None:
    """Raise DataError for anything but an expression of one number, an objective or a function."""
    if isinstance(criterion, cp.Expression):
        if criterion.size != 1 or criterion.is_complex():
            raise DataError(
                f"Expected a criterion that is one real number; got an expression of shape {criterion.shape}."
            )
    elif not isinstance(criterion, (cp.Minimize, cp.Maximize)) and not callable(criterion):
        raise DataError(f"Expected a criterion as an expression, problem.objective or a function; got {criterion!r}.")


def _derivative(
    problem: Statement, found: Optimum, criterion: Any, at: cp.Expression | None, chosen: list[cp.Parameter]
) -> tuple[Derivative, float]:
    """The derivative, and the sign of its criterion beside the one that is meant."""
    if isinstance(criterion, (cp.Minimize, cp.Maximize)):
        if criterion is not problem.objective:
            raise DataError(
                f"Expected the problem's own objective, problem.objective, or an expression; got {criterion!r}. Pass "
                "the expression without cp.Minimize."
            )
        return solution_map.of_value(found, chosen), -1.0 if isinstance(criterion, cp.Maximize) else 1.0
    if callable(criterion) and not isinstance(criterion, cp.Expression):
        value, cut = _linearized(problem, found, criterion, at)
        return solution_map.derivative(found, cut, chosen)._replace(value=value), 1.0
    if at is not None:
        raise DataError("Expected `at` only with a function as criterion; got an expression. Leave out `at`.")
    cut = criterion_of(criterion, problem.thetas(), problem.variables())
    return solution_map.derivative(found, cut, chosen), 1.0


def _linearized(
    problem: Statement, found: Optimum, function: Callable[..., Any], at: cp.Expression | None
) -> tuple[float, Criterion]:
    """The function's value, and Σ slope·at in place of it."""
    if not isinstance(at, cp.Expression):
        raise DataError(f"Expected `at`, the expression whose values the criterion takes; got {at!r}.")
    values = _values(problem, found, at)
    told = function(values.copy())
    if not isinstance(told, (tuple, list)) or len(told) != 2:
        raise DataError(f"Expected the criterion to return (value, gradient); got {shown(told)}.")
    value, slope = (_real(part) for part in told)
    if value is None or value.ndim or slope is None or slope.shape != at.shape:
        got = shown(told[1]) if slope is None else f"an array of shape {slope.shape}"
        raise DataError(
            f"Expected the criterion to return a number and its gradient, of shape {at.shape}, both real and finite; "
            f"got {shown(told[0])} and {got}."
        )
    cut = criterion_of(cp.sum(cp.multiply(slope, at)), problem.thetas(), problem.variables())
    return float(value), cut


def _real(told: Any) -> Array | None:
    """Finite real numbers as an array; None for anything else."""
    try:
        found = np.asarray(told)
    except ValueError:  # a ragged list
        return None
    return np.asarray(found, dtype=float) if found.dtype.kind in "biuf" and np.isfinite(found).all() else None


def _values(problem: Statement, found: Optimum, at: cp.Expression) -> Array:
    """The values of an expression at the refined optimum."""
    cut = criterion_of(at, problem.thetas(), problem.variables())
    return value_of(cut, solution_map.at(found, cut))


def _share(certificate: Certificate | None, found: Optimum, derivative: Derivative) -> float:
    """The estimated error in units of the sizes of a gradient's terms."""
    residual = 0.0 if derivative.adjoint is None else derivative.adjoint.residual
    left_out = max((factor.residual for factor in found.reduction.factors.values()), default=0.0)
    share = ROUNDED + SHARE * (residual + found.residual) + MOVED * np.sqrt(left_out)
    rows = max((len(link.rows) for link in found.form.predictions), default=0)
    if rows > MOST and found.reduction.is_restriction:
        if certificate is None:
            return inf  # of how much the restriction costs nothing is known
        # ‖θ̂ − θ*‖ ≤ √(2·gap/(μ/t)), relative to ‖θ*‖.
        far = [np.sqrt(2 * certificate.absolute_gap / n.weight) / n.t for n in found.system.norms if n.weight * n.t > 0]
        share += max(far, default=0.0)
    return float(share)


def variable_changes(answer: SolvedProblem, deltas: Mapping[cp.Parameter, Array]) -> dict[cp.Variable, Array]:
    """The derivative of the optimal variables along a change of parameters, those that stand in the cone data."""
    _require_known(answer, [p for p in deltas if np.any(deltas[p])])
    wanted = [p for p in deltas if any(p is q for q in answer.form.outer.parameters())]
    others = [p.name() for p in deltas if not any(p is q for q in wanted) and np.any(deltas[p])]
    if others:
        raise KernelOptError(
            f"Expected changes of parameters in the objective and constraints; {others[0]} is in a kernel. "
            "ko.gradient gives its derivative."
        )
    found = solution_map.at_optimum(answer.form, answer.reduction, answer.point, wanted)
    for p in wanted:
        if p.id not in found.data.data.program.param_id_to_col:
            raise KernelOptError(_unknown(found, p))
    x = solution_map.moved(found, {p.id: np.asarray(deltas[p], dtype=float) for p in wanted})
    variables = answer.stated.variables()
    changes = {}
    for v, k in zip(variables, twins(answer.form, variables), strict=True):
        columns = found.data.y[k] if k >= 0 else np.arange(0)
        if len(columns) != v.size:
            raise KernelOptError(f"Expected variables without structure; the change of {v.name()} is not known.")
        changes[v] = np.reshape(x[columns], v.shape, order="F")
    return changes
