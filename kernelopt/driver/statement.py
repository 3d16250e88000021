"""A problem as stated, in cvxpy's terms, and its compiled forms up to the factorization of Q."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import canonical_form, representer, rules
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.restated import Restated, restated
from kernelopt.driver import convex, local_optima, principal_components, proximal_linearization
from kernelopt.driver.options import layout
from kernelopt.driver.strategy import Strategy
from kernelopt.errors import KernelOptError, ParameterError, SolverError
from kernelopt.factorization import Layout
from kernelopt.factorization.cluster import client_in_use
from kernelopt.language import latex, text
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import ThetaLeaf
from kernelopt.losses import check_parameters
from kernelopt.solvers import choice
from kernelopt.solvers.choice import SolverTable
from kernelopt.solvers.culprits import summands
from kernelopt.spectral import spectral_form, spectral_problems
from kernelopt.spectral.spectral_form import SpectralForm
from kernelopt.support.checks import require_flag
from kernelopt.support.locks import Lock
from kernelopt.support.properties import cached_property
from kernelopt.support.threads import one_pool

SHORT = 80  # characters of a term that a reason names

P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(method: Callable[P, R]) -> Callable[P, R]:
    """Let threads call such methods of one problem, and functions of it, one at a time, since they share its factor, θ,
    variables and parameters."""

    @wraps(method)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        problem: Any = args[0] if args else kwargs.get("problem")
        lock: Any = getattr(problem, "_lock", None) or nullcontext()  # what is no problem is refused by name
        with lock, one_pool():
            return method(*args, **kwargs)

    return locked


class Statement:
    """Objective and constraints. Each stage of compilation runs when it is first needed, and its result is kept."""

    _boxes: tuple[Everywhere, ...] = ()
    _given: tuple[Any, ...] = ()

    def _state(self, stated: cp.Problem) -> None:
        self._stated = stated
        self._inspection: rules.Inspection | None = None
        self._form: CanonicalForm | None = None
        self._restated: Restated | None = None
        self._apart: CanonicalForm | None = None
        self._spectral: SpectralForm | None = None
        self._last_outer: Outer | None = None
        self._lock = Lock()

    # ---------------------------------------------------------------- as stated

    @property
    def objective(self) -> cp.Minimize | cp.Maximize:
        """As stated."""
        return self._stated.objective

    @property
    def constraints(self) -> list[Any]:
        """As stated."""
        return list(self._given) if self._boxes else self._imposed

    @property
    def _imposed(self) -> list[Any]:
        """The constraints that are compiled: boxes by their points."""
        return list(self._stated.constraints)

    def variables(self) -> list[cp.Variable]:
        """The user's own cvxpy variables (θ is not one)."""
        return [v for v in self._stated.variables() if not isinstance(v, ThetaLeaf)]

    def thetas(self) -> list[Theta]:
        """The θs, in order of appearance."""
        leaves = (v for v in self._stated.variables() if isinstance(v, ThetaLeaf))
        return [v.theta for v in leaves]

    def parameters(self) -> list[cp.Parameter]:
        """The problem's cvxpy parameters, those of kernels last."""
        of_kernels = [p for theta in self.thetas() for p in theta.kernel.parameters()]
        return list(dict.fromkeys([*self._stated.parameters(), *of_kernels]))

    def constants(self) -> list[cp.Constant]:
        return list(self._stated.constants())

    def atoms(self) -> list[type]:
        return list(self._stated.atoms())

    @property
    def var_dict(self) -> dict[str, cp.Variable]:
        return {v.name(): v for v in self.variables()}

    @property
    def param_dict(self) -> dict[str, cp.Parameter]:
        return {p.name(): p for p in self.parameters()}

    @one_at_a_time
    def is_dcp(self, dpp: bool = False) -> bool:
        """Whether the problem is convex by the DCP rules (with `dpp`, for every value of its parameters)."""
        require_flag(dpp, "dpp")
        return bool(self._stated.is_dcp(bool(dpp)))

    def is_dpp(self) -> bool:
        """Whether re-solving after a change of a parameter skips compilation."""
        return self.is_dcp(dpp=True)

    @one_at_a_time
    def is_representable(self) -> bool:
        """Whether the representer theorem applies; `explain()` says why not."""
        return not self._inspect().violations

    def is_mixed_integer(self) -> bool:
        return bool(self._stated.is_mixed_integer())

    @one_at_a_time
    def is_qp(self) -> bool:
        """Whether the reduced problem is a quadratic program, which OSQP takes."""
        return not self.canonical_form().smooth and bool(self._probe.is_qp())

    @one_at_a_time
    def __str__(self) -> str:
        named = self._notation()
        lines = [text.describe(self.objective, named=named), *(text.describe(c, named=named) for c in self.constraints)]
        return "\n".join(
            ("    subject to  " if i == 1 else " " * 16 if i else "") + line for i, line in enumerate(lines)
        )

    @one_at_a_time
    def _repr_latex_(self) -> str:
        return latex.problem(self.objective, self.constraints, self._notation())

    def __repr__(self) -> str:
        return f"Problem({self.objective!r}, {self.constraints!r})"

    def _notation(self) -> text.Notation:
        return text.notation(self.thetas(), [self.objective, *self.constraints])

    def _require_no_boxes(self, what: str) -> None:
        """Raise KernelOptError where constraints hold everywhere in a box, whose points change with the answer."""
        if self._boxes:
            raise KernelOptError(
                f"Expected a problem without ko.everywhere for {what}; the points of {self._boxes[0].text} change with "
                "the answer. Solve for each value in a loop, or state the inequality at points of your own."
            )

    # ---------------------------------------------------------------- compiled

    def _inspect(self) -> rules.Inspection:
        """Walk the tree once: which rows and norms it uses, and whether the representer theorem and DCP allow it."""
        if self._inspection is None:
            self._inspection = rules.inspect(self.objective, tuple(self._imposed))
        return self._inspection

    @one_at_a_time
    def canonical_form(self) -> CanonicalForm:
        """The problem cut where θ enters: the outer problem f(u, t, y), and the links u = Aθ, ‖θ‖ ≤ t.

        Raises RepresenterError or DCPError where the problem has no such form.
        """
        if self._form is None:
            found = self._inspect()
            rules.require_representable(found)
            if not spectral_form.is_candidate(self.objective):
                rules.require_dcp(found)
            canonical = canonical_form.cut(self.objective, tuple(self._imposed), found)
            self._spectral = spectral_form.required(canonical, found) if found.not_dcp else None
            self._form = canonical
        elif outdated := canonical_form.outdated(self._form):
            self._follow_kernels(outdated)
        return self._form

    def _follow_kernels(self, outdated: list[Theta]) -> None:
        """Give the compiled forms the kernels that parameters have now; all else in them stays."""
        assert self._form is not None
        if self._spectral is not None:
            self._form = self._apart = self._restated = None
            self.canonical_form()
            return
        self._form = canonical_form.at_present(self._form)
        self._apart = None if self._apart is None else canonical_form.at_present(self._apart)
        if self._restated is not None:
            self._restated = replace(self._restated, form=canonical_form.at_present(self._restated.form))

    def _private_form(self, as_stated: bool = False) -> CanonicalForm:
        """The canonical form in variables of its own, so that solvers don't touch the user's.

        Constraints are restated for the values that parameters have now, unless they are wanted `as_stated`.
        """
        canonical = self.canonical_form()
        if as_stated:
            return canonical_form.apart(canonical)
        if self._restated is None or not self._restated.is_current:
            known, self._restated = (
                self._restated,
                restated(canonical) if self._spectral is None else Restated(canonical),
            )
            if known is None or known.form is not self._restated.form:
                self._apart = None
        if self._apart is None:
            self._apart = canonical_form.apart(self._restated.form)
        return self._apart

    def _outer(self, as_stated: bool = False) -> Outer | None:
        """The outer problem's cone data and pieces; None with integer variables, and in the spectral form."""
        canonical = self._private_form(as_stated)
        if self.is_mixed_integer() or self._spectral is not None:
            return None
        # It keeps alive what it has in common with the next one.
        self._last_outer = outer_of(canonical, self._last_outer)
        return self._last_outer

    def _layout(self, outer: Outer | None, backend: Any, dtype: Any) -> Layout | None:
        """Where B is held, None for one local array. By default that is the cluster that computes Dask arrays of the
        problem, where the problem and its solvers allow it."""
        canonical = self.canonical_form()
        if backend is None and any(p.data.A._from_dask for p in self._inspect().predictions):
            points = all(link.rows.are_points for link in canonical.predictions)
            if points and self._spectral is None and choice.lacks_for_blocks(canonical, outer) is None:
                backend = client_in_use()
        found = layout(backend, dtype, self._most_rows())
        if found is not None and self._spectral is not None:
            raise SolverError(
                "Expected B as one array in double precision for a problem of the spectral form; got a backend or a "
                "dtype. Leave them out."
            )
        return found

    def _most_rows(self) -> int:
        return max((len(link.rows) for link in self.canonical_form().predictions), default=0)

    @cached_property
    def _probe(self) -> cp.Problem:
        """The reduced problem with a factor of two columns: the same structure, cheap to inspect."""
        canonical = self._private_form()
        return representer.substitute(canonical, representer.thin_factors(canonical)).problem

    def _solver_names(self, outer: Outer | None, solver: str | None, options: Mapping[str, Any]) -> list[str]:
        """The solvers to run, in order. Raises SolverError where no solver, or not the requested one, fits."""
        names = spectral_problems.solver_names(self._spectral, solver, options)
        if names is None:
            names = choice.candidates(
                lambda: self._probe, self._private_form(), outer, solver, alternatives=not options
            )
            choice.require_options(names, options, solver)
        return names

    def _strategy(self, outer: Outer | None, names: list[str]) -> Strategy:
        """The strategy for this kind of problem."""
        if self._spectral is not None:
            return partial(principal_components.begin, self._spectral)
        if outer is not None and not self.canonical_form().is_convex:
            if names == [choice.LINEARIZED] or choice.needs_models(self.canonical_form(), outer):
                return partial(proximal_linearization.begin, outer)
            return partial(local_optima.begin, outer, names)
        return partial(convex.begin, outer, names)

    def _solver_table(self, size: int | None) -> SolverTable:
        """Each solver, or why it can't take this problem; the default depends on the number of variables.

        Before rows are factored it is taken for the number of rows.
        """
        form = self._private_form()
        if size is None:
            of_rows = sum(len(link.rows) * (link.theta.outputs or 1) for link in form.predictions)
            size = of_rows + sum(y.size for y in form.y)
        return spectral_problems.solver_table(
            self._spectral, lambda: choice.table(self._probe, form, self._outer(), size, self._texts())
        )

    def _texts(self) -> list[str]:
        """The summands of the objective and the constraints, as they are printed."""
        named = self._notation()
        return [text.describe(part, SHORT, named) for part in [*summands(self.objective), *self.constraints]]

    def _require_parameter_values(self) -> None:
        for p in self.parameters():
            if p.value is None:
                raise ParameterError(f"Expected a value for the parameter {p.name()}; got none. Set {p.name()}.value.")
            if not np.isfinite(p.value.data if sp.issparse(p.value) else p.value).all():
                raise ParameterError(f"Expected finite values of the parameter {p.name()}; got NaN or infinity.")
        check_parameters(self._inspect().checked)

    def _require_variable_values(self) -> None:
        for v in self.variables():
            if v.value is None:
                raise KernelOptError(f"Expected the value that solve() gave {v.name()}; got None. Solve again.")
