"""Which solvers take a problem, and why the others can't: one table of cvxpy's solvers and our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import cvxpy as cp
import cvxpy.error
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import integers, linearization
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.outer import Outer
from kernelopt.errors import KernelOptError, OptionError, SolverError, UnknownNameError
from kernelopt.factorization.tall import WIDE
from kernelopt.solvers import culprits, engines, on_rows
from kernelopt.solvers.assemble import SPLIT, Shape, shape_of, spread
from kernelopt.solvers.augmented_lagrangian import NOT_SMOOTH
from kernelopt.solvers.coupling import DENSE_ROW
from kernelopt.solvers.cvxpy_solvers import BRANCH_AND_BOUND, CONIC_SOLVERS, lacks_relaxation, meant, unknown_options
from kernelopt.solvers.engines import ENGINES, MULTIPLIERS, OURS
from kernelopt.solvers.least_squares import NOT_SQUARES
from kernelopt.support import html
from kernelopt.support.checks import shown
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.cvxpy_parts import quietly_compiled
from kernelopt.support.locks import importing

# Clarabel takes every continuous cone that cvxpy knows and reaches 1e-8, but breaks down at some degenerate
# points (θ = 0 under an unsquared norm). ECOS and SCS are the fallback for these.
CONTINUOUS = ("CLARABEL", "ECOS", "SCS")
# Variables of the reduced problem from which the augmented Lagrangian is tried first. It solves many systems of the
# active set's size, the interior point few of the size of all variables: below, the interior point is as fast, and
# more robust.
LARGE = 400
# The same where an earlier answer starts it: the augmented Lagrangian takes fewer systems from there, the interior
# point hardly does. Paths of 20 λ take 20 to 40 % less at 240 to 320 variables; with smooth functions the same at 144.
WARM = 200
# Maxima of affine functions from which their bounds are minimized out. Of fewer, they are a few more variables: one
# maximum over 300 rows takes the interior point half of the time.
MANY = 20
# Bounds Σₖ|sₖ| ≤ c of rows from which they are sets to the method of multipliers, and no variables of the interior
# point: 400 rows of three outputs take half of the time, 1000 a fifth.
SUMS = 200
# Variables, bounds of maxima included, up to which the interior point's dense systems are worth a try.
JOINT = 3000
# Equations from which the interior point is tried first: their multipliers have no ends, so that the augmented
# Lagrangian's take many rounds. 1000 rows with 150 equations take .9 to 1.6 s in place of 2.1 to 7.1, 300 rows on the
# simplex 1.0 in place of 5.2, and 30 equations the same time either way. So do inequalities along a chain of
# predictions: 1000 rows that rise along a column take 2 s, and find no end otherwise.
EQUATIONS = 20
# Bounded rows beside an unsquared norm from which the method of multipliers comes first, and rows from which it does
# beside losses with kinks: eight kinds take half of the time at 300 to 3000 rows, log losses of bounded differences 0.3
# in place of 1.1 s, and of 15 with other data. One bounded mean of 3000 rows takes it 40 s, the other engines .5.
BOUNDED, BOUNDED_ROWS = 20, 400
# Predictions, rows times outputs, up to which cvxpy's first solver comes before the method of multipliers, where only
# rows are coupled. On 12 kinds of problems (risks, groups, norms of rows, balls) the sum of times is 1.3 times as long
# by the method of multipliers at 120 rows, the same at 180, and by Clarabel 1.5 times as long at 240. The rank matters
# little: 1000 rows of rank 100 take Clarabel .4 to 10 s, ours .03 to 4. Several θ, spectral functions and semidefinite
# cones, whose cone forms are large, take 1.5 to 40 times as long by cone solvers.
SMALL = 200
# Cones up to which that holds: cvxpy compiles each by itself, and 60 of three rows take .5 s, ours .3, with the proof.
FEW_CONES = 20
# Solvers of linear and quadratic programs, for which `_reason` has a plainer message than cvxpy.
QUADRATIC = ("OSQP", "HIGHS", "PIQP", "DAQP", "QPALM", "PROXQP")
# Without a norm of θ, problems with this many times as many rows as variables are solved with v among the free columns:
# with fewer rows, the infimum is often not attained, which a cone solver finds in less time.
FEWER, FREE = 4, ["NEWTON", "INTERIOR_POINT"]
LINEARIZED = "PROXIMAL_LINEARIZATION"  # takes losses declared nonconvex, by convex models that other solvers take
LONG = 80  # characters of a reason that is written once
NO_ATOM = "takes cvxpy's atoms only, and not a"
# In the order in which they are tried: the first that is installed and takes the problem.
MIXED_INTEGER = ("HIGHS", "GUROBI", "MOSEK", "CPLEX", "XPRESS", "COPT", "SCIP", BRANCH_AND_BOUND, "ECOS_BB")


@dataclass(frozen=True)
class SolverTable(Mapping[str, "str | None"]):
    """Solver name → None where it applies, else the reason why it doesn't; prints as a table."""

    reasons: Mapping[str, str | None]
    chosen: str | None

    def __getitem__(self, name: str) -> str | None:
        if not isinstance(name, str) or name not in self.reasons:
            raise UnknownNameError(f"Expected one of the solvers {', '.join(self.reasons)}; got {shown(name)}.")
        return self.reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.reasons)

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def applicable(self) -> list[str]:
        return [name for name, reason in self.reasons.items() if reason is None]

    def __str__(self) -> str:
        width = max(map(len, self.reasons))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self._told())

    def _repr_html_(self) -> str:
        return html.table(self._told(), left=True)

    def _told(self) -> list[tuple[str, str]]:
        """Each solver with its reason; one that several share is written once."""
        lines, first = [], dict[str, str]()
        for name, reason in self.reasons.items():
            text = reason or ("applies (default)" if name == self.chosen else "applies")
            if reason and len(reason) > LONG and first.setdefault(reason, name) != name:
                text = f"as {first[reason]}"
            lines.append((name, text))
        return lines


def candidates(
    probe: Callable[[], cp.Problem], form: CanonicalForm, outer: Outer | None, wanted: str | None = None,
    alternatives: bool = True,
) -> list[str]:  # fmt: skip
    """The solvers that may be tried, those of cvxpy in order of preference; if one is `wanted`, that one alone.

    `probe` makes the reduced problem with a factor of two columns, cheap to compile; `outer` is None for
    mixed-integer problems; without `alternatives`, a continuous problem gets the first of cvxpy's solvers alone.
    Raises SolverError where no installed solver takes the problem.
    """
    if wanted is not None and wanted.upper() == LINEARIZED:
        if reason := _lacks_models(form, outer):
            raise SolverError(f"{LINEARIZED} does not take this problem: it {reason}.")
        return [LINEARIZED]
    if form.smooth:
        _require_own(form, outer)
        if wanted is not None and wanted.upper() not in OURS:
            takes = [name for name in ENGINES if engines.lacks(name, shape_of(form, outer)) is None] if outer else []
            takes += [MULTIPLIERS] if outer is not None and on_rows.lacks(form, outer) is None else []
            takes += [] if form.is_convex or _lacks_models(form, outer) else [LINEARIZED]
            raise SolverError(
                f"{wanted.upper()} {NO_ATOM} SmoothLoss. Solvers that take the problem: {', '.join(takes)}."
            )
    elif form.proximal:
        _require_rows(form, outer, wanted)
    if wanted is not None:
        return [wanted.upper()]
    if not form.has_cones:
        return list(OURS) if form.smooth else [MULTIPLIERS]
    installed = _installed()
    if outer is not None:
        names = [name for name in CONTINUOUS if name in installed]
        return [*OURS, *names] if alternatives else names[:1]
    for name in MIXED_INTEGER:
        if name in installed and _reason(probe(), name) is None:
            follows = alternatives and name != BRANCH_AND_BOUND and _reason(probe(), BRANCH_AND_BOUND) is None
            return [name, BRANCH_AND_BOUND] if follows else [name]
    raise SolverError("Expected a mixed-integer problem for which cvxpy has a conic form; it lacks that of an atom.")


def require_options(names: Sequence[str], options: Mapping[str, object], wanted: str | None) -> None:
    """Refuse options that the first solver is known not to have, before it is tried.

    Raises OptionError where it is one of our own, which have none; SolverError where it is one of cvxpy's.
    """
    if options and names[0] in (*OURS, LINEARIZED):
        raise OptionError(f"Expected no solver options, as {names[0]} has none; got {', '.join(options)}.")
    if unknown := unknown_options(names[0], options):
        given = f"{names[0]} has" if wanted else f"Without solver=, options go to {names[0]}, which has"
        several = "s" if len(unknown) > 1 else ""
        raise SolverError(f"{given} no option{several} {', '.join(unknown)}. {meant(names[0], unknown)}".rstrip())


def in_blocks(names: Sequence[str], form: CanonicalForm, outer: Outer | None) -> list[str]:
    """The candidates that take B in blocks, our own. Raises SolverError where none of them takes the problem."""
    lacks = lacks_for_blocks(form, outer)
    kept = [name for name in names if name in ENGINES]
    if lacks is None and kept:
        return kept
    reason = f"one of ours {lacks}" if lacks is not None else f"{', '.join(names)} can't"
    raise SolverError(
        "Expected a problem for kernelopt's own solvers, which alone take B in blocks (backend, dtype), with one "
        f"prediction in each term and constraint; {reason}. Leave out backend and dtype."
    )


def lacks_for_blocks(form: CanonicalForm, outer: Outer | None) -> str | None:
    """Why none of our own solvers takes the problem with B in blocks, or None."""
    shape = Shape("takes no integer variables") if outer is None else shape_of(form, outer)
    reasons = [engines.lacks(name, shape) for name in ENGINES]
    if None not in reasons:
        return shape.lacks or reasons[-1]
    assert outer is not None
    assert outer.split is not None
    row_of = np.concatenate([np.arange(len(k.rows)) for k in form.predictions for _ in range(k.theta.outputs or 1)])
    E = sp.coo_array(outer.split.E @ spread(form))
    # Short rows of E enter EᵀWE. One that connects different rows of B may connect different blocks, which never meet
    # in one task. Long rows are multiplied with B block by block.
    short = np.diff(outer.split.E.indptr) <= DENSE_ROW
    first = np.full(E.shape[0], -1)
    first[E.row] = row_of[E.col]
    if np.any(short[E.row] & (row_of[E.col] != first[E.row])):
        return "would need terms and constraints that connect predictions of different rows"
    return None


def _require_rows(form: CanonicalForm, outer: Outer | None, wanted: str | None) -> None:
    """Raise SolverError where the method of multipliers, which alone takes a ProximalLoss, is not the one."""
    name = form.proximal[0].loss.name
    if outer is None:
        raise SolverError(f"Expected no integer variables with {name}: no solver takes both.")
    reason = on_rows.lacks(form, outer)
    if reason is not None:
        raise SolverError(f"No solver takes this problem, with {name}: {MULTIPLIERS}, which takes it, {reason}.")
    if wanted is not None and wanted.upper() != MULTIPLIERS:
        raise SolverError(f"{wanted.upper()} takes no ProximalLoss. Solvers that take the problem: {MULTIPLIERS}.")


def needs_models(form: CanonicalForm, outer: Outer) -> bool:
    """Whether a loss is declared nonconvex beside what Levenberg and Marquardt's method does not take."""
    return not form.is_convex and engines.lacks(engines.LOCAL, shape_of(form, outer)) is not None


def _lacks_models(form: CanonicalForm, outer: Outer | None) -> str | None:
    """Why a problem has no convex models, or None."""
    return "takes no integer variables" if outer is None else linearization.lacks(form)


def _require_own(form: CanonicalForm, outer: Outer | None) -> None:
    """Raise SolverError where our own solvers don't take a part of a problem with a SmoothLoss."""
    name = form.smooth[0].term.loss.name
    if outer is None:
        raise SolverError(f"Expected no integer variables with {name}: no solver takes both.")
    shape = shape_of(form, outer)
    lacks, name = shape.lacks, shape.nonconvex or name
    if not form.is_convex:
        name = next(link.term.loss.name for link in form.smooth if not link.term.loss.is_convex)
        lacks = linearization.lacks(form) and engines.lacks(engines.LOCAL, shape)
    if lacks is not None and on_rows.lacks(form, outer) is not None:
        beside = [part.text for part in culprits.parts(form) if not part.splits] if outer.split is None else []
        names = " and ".join([name, *beside])
        raise SolverError(f"No solver takes this problem, with {names}: a solver that takes a SmoothLoss {lacks}.")


@cache
def _installed() -> tuple[str, ...]:
    """The solvers that cvxpy finds installed, cached since cvxpy searches the file system each time."""
    with importing:
        return (*cp.installed_solvers(), BRANCH_AND_BOUND)


def ordered(names: list[str], form: CanonicalForm, outer: Outer | None, size: int, warm: bool = False) -> list[str]:
    """The candidates in the order in which they are tried; our own only where they apply and pay off.

    warm : whether there is an answer for other values of parameters to start from
    """
    if outer is None or len(names) == 1:
        return names
    if needs_models(form, outer):
        return [LINEARIZED]
    shape = shape_of(form, outer)
    preferred = _preferred(shape, size, warm)
    if (_is_bound_by_a_norm(shape, form) and on_rows.lacks(form, outer) is None) or (
        shape.local > SUMS and not shape.free and on_rows.sums_in_balls(form, outer) > SUMS
    ):
        preferred = [MULTIPLIERS, *preferred]
    if form.smooth:  # there is no solver but ours to fall back on
        preferred += [name for name in ENGINES if name not in preferred and engines.lacks(name, shape) is None]
        preferred = preferred or [MULTIPLIERS]
    elif shape.lacks is not None and not preferred and on_rows.lacks(form, outer) is None:
        others = [name for name in names if name not in OURS]
        preferred = [*others[: _is_small(form, outer)], MULTIPLIERS]
    found = [*preferred, *(name for name in names if name not in OURS and name not in preferred)]
    return found or [name for name in names if engines.lacks(name, shape) is None]  # B in blocks, which no other takes


def _is_bound_by_a_norm(shape: Shape, form: CanonicalForm) -> bool:
    """Whether many rows are bounded beside a bound of ‖θ‖ or a penalty of it: the other engines search the multiplier
    of the norm, with a problem for each, where the method of multipliers takes it as one more function."""
    many = shape.constraints > BOUNDED and max(shape.equations, shape.chain) <= EQUATIONS
    large = sum(len(link.rows) for link in form.predictions) > BOUNDED_ROWS
    return shape.odd is not None and many and not shape.wide and (shape.smooth or large)


def _is_small(form: CanonicalForm, outer: Outer) -> bool:
    """Whether few predictions of one θ and its Euclidean norm enter, no function whose cone form is large, and few
    cones and atoms, each of which cvxpy compiles by itself."""
    pieces = outer.pieces
    if len(form.predictions) != 1 or outer.has_large_cones or pieces is None:
        return False
    if len(pieces.cones) > FEW_CONES or outer.is_long:
        return False
    link = form.predictions[0]
    return len(link.rows) * (link.theta.outputs or 1) <= SMALL and all(norm.is_plain for norm in form.norms)


def _preferred(shape: Shape, size: int, warm: bool) -> list[str]:
    """Our own solvers for a shape with `size` variables, best first."""
    if shape.free:
        return FREE if FEWER * size <= shape.rows else []
    if shape.lacks is not None:
        return []
    if shape.wide:
        return ["INTERIOR_POINT"] if shape.local else []
    if shape.nonconvex:
        return [engines.LOCAL]
    if shape.squares:
        return ["LEAST_SQUARES", "NEWTON", "INTERIOR_POINT"]
    if not shape.kinked:
        return ["NEWTON", "INTERIOR_POINT"]
    if shape.maxima > MANY and shape.local <= shape.maxima + MANY:
        first = [] if shape.smooth else ["PROXIMAL_POINT"]
        if shape.equations > EQUATIONS:  # 1000 rows on the simplex take 9 s in place of 27
            return ["INTERIOR_POINT", *first]
        return [*first, "INTERIOR_POINT"] if size + shape.maxima < JOINT else first
    if shape.local and size - shape.local < JOINT:  # one per row: 1 s at 1000 rows, by the other way no end
        return ["INTERIOR_POINT"]
    if max(shape.equations, shape.chain) > EQUATIONS and size < 2 * JOINT:
        return ["INTERIOR_POINT", "AUGMENTED_LAGRANGIAN"]
    if shape.machine and size >= WIDE * shape.machine:
        return ["AUGMENTED_LAGRANGIAN", "INTERIOR_POINT"]
    if size < _large(shape, warm):
        return ["INTERIOR_POINT"]
    return ["AUGMENTED_LAGRANGIAN", "INTERIOR_POINT"]


def _large(shape: Shape, warm: bool) -> int:
    """The variables from which the augmented Lagrangian is tried first."""
    if not warm or shape.hard:
        return LARGE
    # Of kinks alone, paths of 20 λ at 20 to 110 variables take 10 to 40 % less.
    return WARM if shape.smooth else 0


def table(
    probe: cp.Problem, form: CanonicalForm, outer: Outer | None, size: int, texts: Sequence[str] = ()
) -> SolverTable:
    """The table of our own solvers and of all solvers that cvxpy has installed or that `CONIC_SOLVERS` lists.

    texts : the summands and constraints of the stated problem, by which reasons name them
    """
    installed = set(_installed())
    shape = Shape("takes no integer variables") if outer is None else shape_of(form, outer)
    reasons = {name: engines.lacks(name, shape) for name in ENGINES}
    reasons[MULTIPLIERS] = shape.lacks if outer is None else on_rows.lacks(form, outer)
    if not form.is_convex:
        reasons[LINEARIZED] = _lacks_models(form, outer)
    if outer is not None:
        reasons = _with_names(reasons, culprits.parts(form, texts))
    own = "SmoothLoss" if form.smooth else "ProximalLoss"
    for name in dict.fromkeys([*CONIC_SOLVERS, *sorted(installed)]):
        if name in installed:
            reasons[name] = _reason(probe, name) if form.has_cones else f"{NO_ATOM} {own}"
        else:
            install = CONIC_SOLVERS[name].install if name in CONIC_SOLVERS else "see cvxpy"
            reasons[name] = f"not installed: {install}"
    try:
        return SolverTable(reasons, ordered(candidates(lambda: probe, form, outer), form, outer, size)[0])
    except SolverError:
        return SolverTable(reasons, None)


def _with_names(reasons: Mapping[str, str | None], parts: Sequence[culprits.StatedPart]) -> dict[str, str | None]:
    """The reasons, with the terms and constraints that they are about."""
    told = {
        SPLIT: culprits.not_split(parts),
        NOT_SMOOTH: culprits.not_smooth(parts),
        NOT_SQUARES: culprits.not_squares(parts),
    }
    return {name: reason if reason is None else reason + told.get(reason, "") for name, reason in reasons.items()}


def _reason(probe: cp.Problem, name: str) -> str | None:
    if name == BRANCH_AND_BOUND:
        if (reason := lacks_relaxation(probe)) is not None:
            return reason
        probe, name = integers.relaxation(probe).problem, "CLARABEL"
    try:
        with np.errstate(invalid="ignore"):  # cvxpy's bounds of a matrix product of free variables are 0·∞
            quietly_compiled(probe, name)
    except (cvxpy.error.SolverError, ValueError) as error:
        if name in QUADRATIC and not probe.is_qp():
            return "takes linear and quadratic programs only; this problem has other cones"
        if probe.is_mixed_integer():
            return "takes no mixed-integer problem of this kind"
        if "cannot solve" in str(error):
            return "does not take all cones of this problem"
        return " ".join(str(error).split())
    except NotImplementedError:
        return "has no form of this problem: cvxpy lacks that of an atom"
    except (KernelOptError, MemoryError, OutOfTimeError, Warning):
        raise
    except Exception as error:  # as of a support function within a maximum, whose value cvxpy asks for
        return f"has no form of this problem: cvxpy's compilation ends in {type(error).__name__}"
    return None
