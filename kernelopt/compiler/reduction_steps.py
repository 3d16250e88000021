"""The steps from a stated problem to the reduced one, written with the formulas of one problem.

Each step is a function of what a problem knows already. Nothing is solved or factored for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isinf
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler import explain, representer, uses
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.rules import COSTS, UNKNOWN, Inspection, Violation
from kernelopt.factorization import Factor
from kernelopt.language.document import (
    Block,
    Display,
    Formula,
    Items,
    Paragraph,
    Text,
    expression,
    math,
    number,
    paragraph,
    symbol,
)
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import EUCLIDEAN, Prediction, ThetaNorm
from kernelopt.language.text import MATRICES, SUBSCRIPTS, TRANSPARENT, Notation
from kernelopt.results.solution import Solution

# Constraints and ways from norms that are listed, and sub-expressions of one matrix or norm.
MOST, MOST_HOLDERS = 20, 4
# Letters of the derivation's own symbols, and those that stand for the ones that the problem uses itself.
OWN = "ABCDFILMNQcfmptuwxyzακμν"
OTHERS = ("GHPSTUVWXYZEJKOR", "vqrsghkdenabjlo", "ηζξρτφψωβγδεσλ")
SUBSCRIPTED = re.compile("[0-9₀-₉]+$")
VERBS = {1: "nondecreasing", -1: "nonincreasing", UNKNOWN: "not known to be monotone"}
NEEDS_SOLVE = (
    "`solve()` factors it, solves the reduced problem and proves the bound. Until then, the derivation ends here."
)
NO_FACTOR = "An answer from a file or from another process has no factor and no multipliers. `solve()` finds the rest."


@dataclass(frozen=True, eq=False)
class Material:
    """What a problem knows when its derivation is written.

    form : None where there is none, with the reason in `stopped`
    reduction, solution : None before a solve; changed : names of parameters that changed since
    kinds : "spectral", "integers", "nonconvex" where the problem is of that kind
    letters : those that stand for symbols of the derivation whose own letter the problem uses
    """

    objective: Any
    constraints: tuple[Any, ...]
    thetas: tuple[Theta, ...]
    parameters: tuple[cp.Parameter, ...]
    variables: tuple[cp.Variable, ...]
    named: Notation
    found: Inspection
    form: CanonicalForm | None = None
    stopped: str = ""
    reduction: Reduction | None = None
    solution: Solution | None = None
    changed: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    letters: Mapping[str, str] = field(default_factory=dict)

    @property
    def statements(self) -> tuple[Any, ...]:
        """The constraints, those of boxes at their points."""
        return tuple(c.shown if isinstance(c, Everywhere) else c for c in self.constraints)

    @property
    def maximizes(self) -> bool:
        return isinstance(self.objective, cp.Maximize)

    @property
    def name(self) -> str:
        """The name of the only θ, or θ."""
        return self.named.theta(self.thetas[0]) if len(self.thetas) == 1 else "θ"

    def math(self, template: str, **parts: Formula) -> Formula:
        """A formula with the letters of this derivation."""
        return math(renamed(template, self.letters), **parts)

    @property
    def has_squares(self) -> bool:
        """Whether the square of each norm is a sum of squares: not of the spectral and the nuclear norm."""
        return all(norm.kind in {EUCLIDEAN, "fro"} for norm in self.found.norms)

    @property
    def has_shift(self) -> bool:
        """Whether some norm is that of a difference to a fitted function f₀."""
        return any(norm.view.shift is not None for norm in self.found.norms)


def with_letters(m: Material) -> Material:
    """The material with a free letter for each symbol of the derivation that the problem uses itself."""
    taken = {SUBSCRIPTED.sub("", m.named.leaf(leaf)) for leaf in (*m.parameters, *m.variables)}
    taken |= {m.named.theta(theta) for theta in m.thetas}
    letters = dict[str, str]()
    for own in [letter for letter in OWN if letter in taken]:
        others = OTHERS[0 if own.isupper() else 1 if own.isascii() else 2]
        letters[own] = next((o for o in others if o not in taken and o not in letters.values()), own)
    A = letters.get(MATRICES[0], MATRICES[0])
    matrices = {key: A + name.removeprefix(MATRICES[0]) for key, name in m.named.matrices.items()}
    return replace(m, named=replace(m.named, matrices=matrices), letters=letters)


def renamed(template: str, letters: Mapping[str, str]) -> str:
    """A template of `math` with other letters, outside of braces and words; f₀ is a name of its own."""
    return re.sub(r"\{[^}]*\}|inf|tr\(|f₀|\w", lambda found: letters.get(found[0], found[0]), template)


# ---------------------------------------------------------------- 1. the stated problem


def stated(m: Material) -> Iterator[Block]:
    yield from _problem(m, m.named)
    values = [math("{p} = {v}", p=symbol(m.named.leaf(p)), v=_value(p)) for p in m.parameters if p.size == 1]
    if values:
        yield Paragraph(("Parameters: ", *_listed(values), "."))


def _value(parameter: cp.Parameter) -> Formula:
    """The value of a scalar parameter, which may be complex; a question mark where it has none."""
    if parameter.value is None:
        return Formula("?", "?")
    value = np.asarray(dense(parameter.value)).item()
    return Formula(f"{value:g}", f"{value:g}") if isinstance(value, complex) else number(float(value))


def _problem(m: Material, named: Notation) -> Iterator[Block]:
    """The objective and the constraints in a notation."""
    goal = "maximize" if m.maximizes else "minimize"
    lines = [(goal, expression(m.objective.args[0], named, None))]
    for k, constraint in enumerate(m.constraints[:MOST]):
        lines.append(("" if k else "subject to", expression(constraint, named, None)))
    yield Display(tuple(lines))
    if len(m.constraints) > MOST:
        yield paragraph(f"{len(m.constraints) - MOST} more constraints are left out here.")


# ---------------------------------------------------------------- 2. where θ enters


def entering(m: Material) -> Iterator[Block]:
    if not m.thetas:
        yield paragraph("The problem holds no θ, and there is nothing to reduce.")
    found = uses.occurrences(m.objective, m.statements)
    for theta in m.thetas:
        yield _space(m, theta)
        yield Items(tuple(_matrices(m, theta, found)) + tuple(_norms(m, theta, found)))
    if len(m.thetas) > 1:
        yield paragraph("The same letters beside another θ stand for the matrices of that θ.")


def _space(m: Material, theta: Theta) -> Paragraph:
    link = None if m.form is None else _link(m.form, theta)
    p = m.math("p") if link is None or isinf(link.rows.features) else number(link.rows.features)
    K = "" if theta.outputs is None else f"×{theta.outputs}"
    size = math(f"{{θ}} ∈ ℝ^⟨{{p}}{K}⟩", θ=theta_of(m, theta), p=p)
    of_p: Text = (", with the number ", p, " of features, finite or not,") if link is None else ()
    of_p = (", with ", p, " infinite,") if link is not None and isinf(link.rows.features) else of_p
    kernel = f" is a {'vector' if theta.outputs is None else 'matrix'} of the feature space of the kernel "
    told = m.math("κ(x, z) = F(x)ᵀF(z)")
    return paragraph(size, *of_p, f"{kernel}`{theta.kernel!r}`, ", told, ". It enters in these places.")


def _matrices(m: Material, theta: Theta, found: list[uses.Occurrence]) -> Iterator[Text]:
    """One item for each feature matrix of a θ."""
    in_boxes = {p.data.fingerprint for c in m.constraints if isinstance(c, Everywhere) for p in _predictions(c.shown)}
    groups: dict[object, list[uses.Occurrence]] = {}
    for o in found:
        if isinstance(o.node, Prediction) and o.node.data.theta is theta:
            groups.setdefault(o.node.data.fingerprint, []).append(o)
    for fingerprint, own in groups.items():
        node = own[0].node
        rows = "a row for each point of the box" if fingerprint in in_boxes else explain.count(node.shape[0], "row")
        kind = ("values", "first derivatives", "second derivatives")[len(node.data.A.order)]
        outputs = "1 output" if theta.outputs is None else f"{theta.outputs} outputs"
        yield (
            expression(node, m.named),
            f": predictions, {kind} of the function, {rows}, {outputs}; in ",
            *_holders(m, own),
            ".",
        )


def _norms(m: Material, theta: Theta, found: list[uses.Occurrence]) -> Iterator[Text]:
    """One item for each norm of a θ."""
    groups: dict[object, list[uses.Occurrence]] = {}
    for o in found:
        if isinstance(o.node, ThetaNorm) and o.node.view.theta is theta:
            groups.setdefault(o.node.fingerprint(), []).append(o)
    for own in groups.values():
        yield (expression(own[0].node, m.named), ": a norm; in ", *_holders(m, own), ".")


def _holders(m: Material, found: Sequence[uses.Occurrence]) -> Text:
    """The sub-expressions that hold a matrix or a norm, with their places."""
    distinct = list({(id(o.holder), o.place): o for o in found}.values())
    told: list[str | Formula] = []
    for k, o in enumerate(distinct[:MOST_HOLDERS]):
        told += ["; " if k else "", expression(o.holder, m.named), f" ({o.place})"]
    more = len(distinct) - MOST_HOLDERS
    return (*told, f"; and in {more} more" if more > 0 else "")


# ---------------------------------------------------------------- 3. the conditions


def conditions(m: Material) -> Iterator[Block]:
    entry = [v for v in m.found.violations if not v.of_norm]
    of_norm = [v for v in m.found.violations if v.of_norm]
    yield from _through_predictions(m, entry)
    yield from _nondecreasing(m, of_norm)
    if m.found.violations:
        failing = [name for name, failed in (("(i)", entry), ("(ii)", of_norm)) if failed]
        told = f"Condition {failing[0]} fails" if len(failing) == 1 else "Both conditions fail"
        yield paragraph(f"{told}. The representer theorem does not apply, and the derivation stops here.")
        return
    yield from _decomposition(m)
    if m.form is None:
        yield paragraph("The representer theorem applies. The derivation stops here for another reason.")
        yield Items(tuple((line.removeprefix("- "),) for line in m.stopped.splitlines() if line))


def _through_predictions(m: Material, failed: list[Violation]) -> Iterator[Block]:
    yield paragraph("(i) ", symbol(m.name), " enters through predictions and norms only.")
    if failed:
        yield Items(tuple(_violation(v) for v in failed))
        return
    told = f"{explain.count(len(m.found.predictions), 'prediction')} and {explain.count(len(m.found.norms), 'norm')}"
    yield paragraph(f"This holds: the expressions contain {told}, and no other use.")


def _violation(v: Violation) -> Text:
    return (f"`{v.expression}` in {v.place}. Rule: {v.rule}. Instead: {v.remedy}.",)


def _nondecreasing(m: Material, failed: list[Violation]) -> Iterator[Block]:
    yield paragraph("(ii) A larger norm improves neither the objective nor the feasibility of a constraint.")
    ways = list(islice(uses.ascents(m.objective, m.statements), MOST + 1))
    if not ways:
        yield paragraph("This holds, since no norm is stated. The length of ", symbol(m.name), " is open.")
        return
    yield Items(tuple(_ascent(m, way) for way in ways[:MOST]))
    if len(ways) > MOST:
        yield paragraph("Further occurrences of norms are left out here.")
    if failed:
        yield Items(tuple(_violation(v) for v in failed))
    else:
        yield paragraph("This holds: each step is nondecreasing, or two nonincreasing ones cancel.")


def _ascent(m: Material, way: uses.Ascent) -> Text:
    """The monotonicity of each atom between a norm and the problem."""
    told: list[str | Formula] = [expression(way.norm, m.named), f" in {way.place}: "]
    for atom, sign in way.steps:
        if type(atom).__name__ not in TRANSPARENT | {"AddExpression"}:
            told += [expression(atom, m.named), f" is {VERBS[sign]} in it; "]
    if way.place == uses.OBJECTIVE:
        end = "a term of the objective, which is " + ("minimized" if way.side == COSTS else "maximized")
    elif way.side == UNKNOWN:
        end = "the constraint is monotone in neither direction"
    else:
        end = f"this side of the constraint is bounded from {'above' if way.side == COSTS else 'below'}"
    return (*told, end, "." if way.direction == COSTS else ". Here the condition fails.")


def _decomposition(m: Material) -> Iterator[Block]:
    several = len(m.thetas) > 1
    k = "ₖ" if several else ""
    parts = {"θ": math("θₖ") if several else symbol(m.name), "A": m.math(f"A{k}")}
    yield paragraph(
        "(iii) Hence, if there is an optimum, some optimal ", parts["θ"], " combines the rows of ", parts["A"], "."
    )
    if several:
        yield paragraph("Here ", parts["θ"], " is each of ", *_listed([theta_of(m, theta) for theta in m.thetas]), ".")
    if _has_several_matrices(m) or m.has_shift:
        more = ", and has a row for each fitted function f₀ of a norm" if m.has_shift else ""
        yield paragraph(parts["A"], f" stacks all feature matrices{more}.")
    own = f"{{A}}ᵀα{k}"
    lines = [f"{{θ}} = {own} + {{θ}}⊥,  {{A}}{{θ}}⊥ = 0", f"{{A}}{{θ}} = {{A}}{own}"]
    for shift in ("", " − f₀") if m.has_shift else ("",):
        squares = f"‖{{θ}}{shift}‖² = ‖{own}{shift}‖² + ‖{{θ}}⊥‖² ≥ ‖{own}{shift}‖²"
        lines.append(squares if m.has_squares else f"‖{{θ}}{shift}‖ ≥ ‖{own}{shift}‖")
    yield Display(tuple(("", m.math(line, **parts)) for line in lines))
    told = "Without the part orthogonal to the rows, all predictions stay as they are, and no norm grows. "
    if any(theta.outputs is not None for theta in m.thetas):
        told += "For a matrix this holds for every orthogonally invariant norm. "
    if not m.found.norms:
        told += "No norm is stated, so that the orthogonal part has no effect at all; 0 is chosen. "
    yield paragraph(told + "By (i) and (ii) the objective is then no worse, and every constraint still holds.")


# ---------------------------------------------------------------- 4. the factor


def factored(m: Material) -> Iterator[Block]:
    form = m.form
    assert form is not None
    entries, A = m.math("Q = AAᵀ"), m.math("A")
    yield paragraph("The entries of ", entries, " are kernel values, so that ", A, " itself is never formed.")
    yield Items(tuple(_rows(m, link) for link in form.predictions))
    if m.changed:
        yield paragraph(f"{', '.join(m.changed)} changed since the last solve. Solve again for the rest.")
    elif m.reduction is None:
        yield (
            paragraph(m.math("Q"), f" is not factored yet. {NEEDS_SOLVE}")
            if m.solution is None
            else paragraph(NO_FACTOR)
        )
    else:
        for link in form.predictions:
            yield from _factor(m, link, m.reduction.factors[link.theta])


def _rows(m: Material, link: PredictionLink) -> Text:
    n, distinct = 0 if link.u is None else link.u.shape[0], explain.count(len(link.rows), "distinct row")
    kernel = f"kernel `{link.theta.kernel!r}`"
    rows, fitted = m.math("N = {n}", n=number(n)), any(norm.view.shift is not None for norm in _norms_of(m, link.theta))
    more = " with those of fitted functions" if fitted else ""
    return ("For ", theta_of(m, link.theta), ": ", rows, f" {'row' if n == 1 else 'rows'}, {distinct}{more}, {kernel}.")


def _norms_of(m: Material, theta: Theta) -> list[Any]:
    return [norm for norm in m.found.norms if norm.view.theta is theta]


def _factor(m: Material, link: PredictionLink, factor: Factor) -> Iterator[Block]:
    parts = _symbols(m, link.theta)
    why = f" ({factor.why})" if factor.why else ""
    n, r = len(factor.B), factor.rank
    if factor.is_whole:
        yield paragraph(
            "For ", parts["θ"], f" no factor was computed{why}. The solver used ", m.math("Q"), f" itself, {n} × {n}."
        )
        lines = ["{B} = Q^⟨1/2⟩", "{θ} = Aᵀc,  {w} = {B}c", "{B}{w} = Qc", "‖{w}‖² = cᵀQc"]
        yield Display(tuple(("", m.math(line, **parts)) for line in lines))
        yield paragraph("The solver works with ", m.math("c"), ". The formulas below have ", parts["w"], ".")
        return
    yield Display((
        ("", m.math(f"Q {'≈' if factor.is_restriction or factor.is_projected else '='} {{B}}{{B}}ᵀ", **parts)),
        ("", m.math("{θ} = {C}ᵀ{w},  {C}{C}ᵀ = I,  A{C}ᵀ = {B}", **parts)),
    ))  # fmt: skip
    yield paragraph(
        "For ", parts["θ"], ", ", parts["B"], f" is {n} × {r}, of rank {r}, by {factor.method}{why}. Its residual is ",
        m.math("tr(Q − {B}{B}ᵀ)/tr(Q) = {v}", v=number(f"{factor.residual:.1e}"), **parts), ".",
    )  # fmt: skip
    if factor.is_projected:
        change, Q = m.math("‖Q − Q′‖/‖Q‖ = {v}", v=number(f"{factor.departure:.1e}")), m.math("Q")
        yield paragraph(
            Q, " is indefinite. A positive semidefinite ", m.math("Q′"), " is factored in its place, ", change, "."
        )
    elif factor.is_restriction:
        yield paragraph(
            "This restricts ", parts["θ"], f": the rank {r} is less than the numerical rank of ", m.math("Q"),
            f", and only combinations of {r} directions are allowed. Their predictions and norms are exact. The gap "
            "includes what this costs.",
        )  # fmt: skip
    else:
        yield paragraph(
            "The residual is rounding: the rank is the numerical rank of ", m.math("Q"), ", and nothing is lost."
        )


# ---------------------------------------------------------------- 5. the reduced problem


def reduced(m: Material) -> Iterator[Block]:
    reduction = m.reduction
    assert reduction is not None
    for theta in m.thetas:
        parts = _symbols(m, theta)
        yield Display((
            ("", m.math("A{θ} = A{C}ᵀ{w} = {B}{w}", **parts)),
            ("", m.math("‖{θ}‖² = {w}ᵀ{C}{C}ᵀ{w} = ‖{w}‖²" if m.has_squares else "‖{θ}‖ = ‖{C}ᵀ{w}‖ = ‖{w}‖", **parts)),
        ))  # fmt: skip
    yield paragraph("With these in place of predictions and norms, the problem is")
    yield from _problem(m, _reduced_notation(m))
    if _has_several_matrices(m):
        yield paragraph("The matrices in place of the feature matrices are the rows of the factor that belong to them.")
    if m.has_shift:
        yield paragraph(
            "In a norm, f₀ stands for its row b₀ of the factor. The part of f₀ outside of the span is orthogonal to "
            "the difference, and its squared length is added."
        )
    variables = explain.count(reduction.size, "variable")
    constraints = explain.count(representer.count_constraints(reduction), "constraint")
    yield paragraph(f"It has {variables}, and {constraints} as cvxpy's solvers take it, links of predictions included.")
    if m.solution is None:
        yield paragraph(NEEDS_SOLVE)


def _reduced_notation(m: Material) -> Notation:
    """The notation in which predictions are Bw and norms ‖w‖; with several θs Bₖwₖ.

    The rows of B that belong to one of several feature matrices of a θ have its number as a further index.
    """
    w, B, A = (m.letters.get(letter, letter) for letter in ("w", "B", "A"))
    indices = _indices(m)
    matrices = dict[tuple[Theta, object], str]()
    for (theta, key), name in m.named.matrices.items():
        marks = name.removeprefix(A)
        primes = marks.rstrip("₀₁₂₃₄₅₆₇₈₉")
        matrices[theta, key] = B + primes + indices[theta] + marks.removeprefix(primes)
    return Notation({theta: w + index for theta, index in indices.items()}, matrices, m.named.leaves)


def _indices(m: Material) -> dict[Theta, str]:
    """A subscript for each of several θs."""
    several = len(m.thetas) > 1
    return {theta: str(k).translate(SUBSCRIPTS) if several else "" for k, theta in enumerate(m.thetas, start=1)}


def _symbols(m: Material, theta: Theta) -> dict[str, Formula]:
    """The names of a θ, of its factor B, its coordinates w, and the C with θ = Cᵀw."""
    own = {letter: symbol(m.letters.get(letter, letter) + _indices(m)[theta]) for letter in "BCw"}
    return {"θ": theta_of(m, theta), **own}


# ---------------------------------------------------------------- names


def theta_of(m: Material, theta: Theta) -> Formula:
    return symbol(m.named.theta(theta))


def _link(form: CanonicalForm, theta: Theta) -> PredictionLink:
    return next(link for link in form.predictions if link.theta is theta)


def _predictions(node: Any) -> Iterator[Prediction]:
    if isinstance(node, Prediction):
        yield node
        return
    for child in node.args:
        yield from _predictions(child)


def _has_several_matrices(m: Material) -> bool:
    return len(m.named.matrices) > len({theta for theta, _ in m.named.matrices})


def _listed(formulas: Sequence[Formula]) -> Text:
    return tuple(part for k, formula in enumerate(formulas) for part in ((", ", formula) if k else (formula,)))
