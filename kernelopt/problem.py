"""A problem in θ: stated with cvxpy expressions, checked, reduced, solved, and returned to θ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from tqdm.auto import tqdm

from kernelopt.boxes import bend, exchange
from kernelopt.certificate import Certificate
from kernelopt.compiler import explain, explicit, representer, rules
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.reduction_steps import Material
from kernelopt.compiler.representer import Reduction
from kernelopt.driver import audits, convex, exact, policy, principal_components, refine, values, verification
from kernelopt.driver.answered import Answered
from kernelopt.driver.derivation import ProblemDerivation, derived
from kernelopt.driver.options import FactorOptions, check_solver_options, factor_options, goal, spelling
from kernelopt.driver.refine import Factored
from kernelopt.driver.statement import Statement, one_at_a_time
from kernelopt.driver.verification import Check, Report
from kernelopt.errors import ClusterError, DataError, DataTypeError, DCPError, KernelOptError, OptionError, SolverError
from kernelopt.factorization import FactorCache
from kernelopt.language import text
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import FeatureMatrix
from kernelopt.language.nodes import renew_ids
from kernelopt.persistence.proofs import Proof
from kernelopt.results.solution import Solution, Status
from kernelopt.sensitivity.gradient_of import SolvedProblem, gradient_of, variable_changes
from kernelopt.solvers import choice
from kernelopt.solvers.engines import ENGINES, Start
from kernelopt.spectral import spectral_problems
from kernelopt.support import clock
from kernelopt.support.checks import is_real, require_kind, shown
from kernelopt.support.cvxpy_parts import quietly_compiled

# The tolerance of each solve of an exchange, in units of the whole: the rest is left to points and shifts.
SHARE = 0.2
LEAST_TIME = 1e-3  # seconds of a solve where the time is over: it does what is always done


class Problem(Statement, Answered):
    """A convex problem in θ that enters through predictions Aθ and norms ‖θ‖ only.

    Takes what `cp.Problem` takes. Any cvxpy atom works on predictions; cvxpy variables and parameters mix in
    freely. Solving sets `theta.value`, the values of the variables, and the multipliers of the constraints.

    It also takes the spectral form, which is not convex, of kernel principal component analysis: maximize ‖Aθ‖, or a
    nondecreasing function of it such as `cp.sum_squares`, `cp.var` or `cp.std` of predictions, subject to ‖θ‖ ≤ R and
    homogeneous equalities of predictions. Its sign is such that the first of the largest entries of Aθ is positive;
    there are no multipliers.

    Parameters
    ----------
    objective : cp.Minimize or cp.Maximize
    constraints : sequence of cvxpy constraints, optional

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=2))
    >>> loss = cp.sum(ko.losses.squared_error(y, theta(X)))
    >>> problem = ko.Problem(cp.Minimize(loss + 1e-6 * ko.sum_squares(theta)))
    >>> problem.solve() < 1e-3
    True
    >>> theta.value([[10.0]]).round(1)
    array([100.])
    """

    def __init__(self, objective: cp.Minimize | cp.Maximize, constraints: Sequence[Any] | None = None) -> None:
        require_kind(objective, (cp.Minimize, cp.Maximize), "the objective", "cp.Minimize(...) or cp.Maximize(...)")
        given = _listed(constraints)
        boxes = tuple(c for c in given if isinstance(c, Everywhere))
        plain = [bool(c) if isinstance(c, np.bool_) else c for c in given]  # cvxpy takes Python's truth values only
        at_first = [c.at(c.grid()) if isinstance(c, Everywhere) else c for c in plain]
        self._set(cp.Problem(objective, at_first), None, None, boxes, given)

    def _set(
        self, stated: cp.Problem, solution: Solution | None, source: explicit.ExplicitSource | None,
        boxes: tuple[Everywhere, ...] = (), given: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        self._state(stated)
        self._boxes, self._given = boxes, given
        self._point: Iterate | None = None
        self._solves_in: int | None = None  # the process; a fork may cut a solve of another thread short
        self._shown: tuple[Reduction, cp.Problem] | None = None
        self._factored: Factored | None = None
        self._solution = solution
        self._left_off: Start | None = None
        self._asked: FactorOptions | None = None
        self._source = source
        self._solved_for: dict[int, Any] = {}

    @one_at_a_time
    def __getstate__(self) -> dict[str, Any]:
        """The stated problem and its answer. Compiled stages and solvers are made again when they are needed."""
        solution = None if self._solution is None else self._solution.detached()
        source = None if self._source is None else self._source.detached()
        for box in self._boxes:
            box._remember_leaves()
        return {
            "stated": self._stated, "solution": solution, "source": source, "boxes": self._boxes, "given": self._given
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)
        renew_ids(self._stated, *([] if self._source is None else [self._source.problem]))

    # ---------------------------------------------------------------- sums and multiples, as in cvxpy

    def __add__(self, other: Any) -> Problem:
        """The problem of the sum of the objectives, with the constraints of both."""
        if isinstance(other, Problem):
            if type(self.objective) is not type(other.objective):
                raise DCPError(
                    "Expected two problems to minimize, or two to maximize; got one of each. Subtract the other."
                )
            both = {id(c): c for c in [*self.constraints, *other.constraints]}
            return Problem(self.objective + other.objective, list(both.values()))
        if is_real(other) and other == 0:  # sum() begins with 0
            return self
        raise DataTypeError(f"Expected a ko.Problem to add; got {shown(other)}. Add numbers to the objective.")

    __radd__ = __add__

    def __neg__(self) -> Problem:
        return Problem(-self.objective, self.constraints)

    def __sub__(self, other: Any) -> Problem:
        require_kind(other, Problem, "what is subtracted", "a ko.Problem")
        return self + -other

    def __mul__(self, factor: Any) -> Problem:
        """The problem of the multiple of the objective; a negative factor turns minimizing into maximizing."""
        if not is_real(factor):
            raise DataTypeError(
                f"Expected a finite number as factor of a problem; got {shown(factor)}. Write a cp.Parameter into the "
                "objective."
            )
        return Problem(self.objective * float(factor), self.constraints)

    __rmul__ = __mul__
    __array_ufunc__ = None  # array * problem asks __rmul__, instead of multiplying a problem by each entry

    def __truediv__(self, divisor: Any) -> Problem:
        if not is_real(divisor) or divisor == 0:
            raise DataTypeError(f"Expected a finite number other than 0 as divisor of a problem; got {shown(divisor)}.")
        return self * (1 / float(divisor))

    # ---------------------------------------------------------------- the pipeline

    @one_at_a_time
    def solve(
        self,
        solver: str | None = None,
        *,
        tol: float = 1e-6,
        abs_tol: float | None = None,
        rank_tol: float | None = None,
        max_rank: int | None = None,
        factorization: str | None = None,
        model: str = "expanded",
        indefinite: str = "raise",
        certify: bool | str = True,
        memory_limit: float | None = None,
        time_limit: float | None = None,
        backend: Any = None,
        dtype: Any = None,
        cache: FactorCache | None = None,
        warm_start: bool = True,
        verbose: bool = False,
        progress: bool = False,
        n_init: int = 1,
        random_state: int | np.random.Generator | None = None,
        requires_grad: bool = False,
        **solver_options: Any,
    ) -> float | None:
        """Solve the problem and return its optimal value, as cvxpy does.

        The factor and the compiled problem are kept: after a change of a `cp.Parameter` only the solver runs.

        Parameters
        ----------
        solver : "LEAST_SQUARES", "NEWTON", "AUGMENTED_LAGRANGIAN", "PROXIMAL_POINT" (maxima of affine functions) or
            "INTERIOR_POINT", which keep B dense and take problems that split into functions of one number each,
            "METHOD_OF_MULTIPLIERS", which takes what couples rows, outputs or norms, or the name of an installed cvxpy
            solver, such as "CLARABEL", "OSQP", "ECOS" or "SCS"; by default chosen from the problem's structure, see
            `solvers()`; should that one fall short, the next is tried. Only "SPECTRAL" takes the spectral form;
            "LEVENBERG_MARQUARDT" takes a nonconvex `SmoothLoss`; "PROXIMAL_LINEARIZATION" takes it beside constraints.
        tol : largest certified relative gap, (upper − lower)/(P₀ − upper) with P₀ the optimum at θ = 0, that is called
            "optimal". The solver's own tolerances are set 100 times tighter; where its answer falls short, it is run
            again with tighter ones and in other units. `solver_stats.attempts` lists all runs.
        abs_tol : largest certified absolute gap that is called "optimal" too, in units of the objective; for problems
            whose optimum may be 0. None by default.
        rank_tol : the factor stops at trace(Q − BBᵀ) ≤ rank_tol·trace(Q); at least 1e-13. By default tol/100, at
            most 1e-4 (100 times that above 1000 rows), and finer where the certified gap needs it. Where θ in the
            factor's span can't meet the constraints, the factor always becomes finer.
        max_rank : largest rank of the factor. A lower rank restricts θ; constraints still hold exactly.
        indefinite : "raise", or what to do with a kernel matrix that is not positive semidefinite: "clip" negative
            eigenvalues to zero, "flip" them to their absolute values, "shift" all of them; `explain()` reports ‖Q − Q̃‖.
        factorization : "cholesky" (pivoted, of the N×N array) or "streamed" (pivoted, r columns in O(N r) memory), both
            with r kernel values per prediction; "eigen" (V√Λ). Default: no factor if the solver can use Q
            directly (see `explain()`); otherwise "cholesky" up to 2000 rows, "streamed" above. For a kernel that is not
            positive semidefinite by rule, "cholesky" as long as memory permits, since a streamed factor checks only a
            part of Q.
        model : "expanded" allows θ to be a combination of all rows, and a prediction to take as many kernel values: a
            streamed factor may grow by functions Aᵀν besides pivots, and Q itself may take the place of a factor.
            "compact" uses pivots only.
        certify : True for a bound with the full kernel matrix (a pass over the kernel where the factor restricts θ);
            "exact" for one that is proven again in exact arithmetic, without allowances for rounding (up to 2000
            distinct rows, about 2 s for each 1000² kernel values); "estimate" for a sampled one; False for none. Only
            a certified answer is called "optimal". With integer variables the certificate takes up to 100 boxes of
            branch and bound, or what `time_limit` allows; beyond, the solver's word decides.
        memory_limit : bytes; by default 80 % of what is available, or of what the workers of a cluster have.
        time_limit : seconds of the whole call. After them no new attempt is started, and factors, passes over the
            kernel and solvers are stopped. The best point is kept, at least θ = 0 where that is feasible, with the gap
            as far as it is known: `certificate.scope` tells of what.
            Bounds take up to a second more, and what can't be interrupted may take longer: one
            call of LAPACK, the setup of Clarabel.
        backend : a `dask.distributed.Client`, whose workers hold B and make the passes over the kernel; by default the
            client in use where X is a Dask array and our own solvers take the problem, else this process. Where there
            has been no live worker for 30 s, ClusterError is raised, unless `time_limit` is reached first.
        dtype : "float32" stores B in single precision, in half the memory; sums are in double precision, and bounds and
            values are computed from the kernel in double precision.
        cache : a `ko.FactorCache`, in which factors of up to 2000 rows are kept for other problems with the same rows
            and kernel.
        warm_start : start from the last answer, where the solver can.
        verbose : print iterations.
        progress : show bars: of the certified gap, of the gap of our own solvers, or of starting points.
        n_init : starting points for a problem with a nonconvex `SmoothLoss`; the best local optimum is kept. The first
            is θ = 0, or with `warm_start` the value that `theta` has; others are random functions.
        random_state : seed of these, or a generator; an integer is also the seed of the streamed factor's random
            candidates, by default 0, so that two runs on the same data are identical.
        requires_grad : ignored; accepted for compatibility with cvxpy. Derivatives are always available.
        **solver_options : passed on to a solver of cvxpy's, one of which is then chosen: our own have no options.

        Raises
        ------
        RepresenterError
            When the theorem does not cover a use of θ; all such uses are listed.
        DCPError
            When the problem is not convex by the DCP rules, nor of the spectral form.
        ParameterError
            When a cp.Parameter has no value.
        NotPSDError, KernelError
            When the kernel matrix is indefinite, or not finite.
        MemoryLimitError
            Before an array is allocated that would exceed the limit.
        SolverError
            When the solver is not installed, does not take the problem, or fails.
        ClusterError
            When a cluster has no live worker.
        OptionError
            For an option outside its range.
        """
        if self._boxes:
            given = {k: v for k, v in locals().items() if k not in ("self", "solver_options")}
            return self._solve_everywhere(given | solver_options)
        options = factor_options(
            tol, rank_tol, max_rank, factorization, memory_limit, indefinite, random_state, model, cache
        )  # fmt: skip
        in_rationals = isinstance(certify, str) and certify == exact.EXACT
        aim = goal(
            tol, abs_tol, in_rationals or certify, time_limit, memory_limit, solver_options, warm_start, verbose,
            progress, n_init, random_state,
        )  # fmt: skip
        check_solver_options(solver, solver_options)
        self._require_parameter_values()
        # The rules are checked, and the tree is cut where θ enters: f(u, t, y) with u = Aθ, ‖θ‖ ≤ t.
        with (
            self._not_within_itself(), clock.recorded() as seconds, spelling(Problem.solve, solver_options),
            clock.until(aim.deadline),
        ):  # fmt: skip
            with clock.phase(clock.STATEMENT):
                canonical = self._private_form()
                outer = self._outer()
            if in_rationals:
                exact.require(outer, canonical.is_convex, self._most_rows())
            start = self._left_off if warm_start and canonical.is_convex else None
            left = self._left_from(canonical, start)
            # Q is factored, u = Bw and ‖θ‖ = ‖w‖ are substituted, the small problem is solved, the answer certified.
            names = self._solver_names(outer, solver, solver_options)
            options = replace(options, layout=self._layout(outer, backend, dtype))
            names = names if options.layout is None else choice.in_blocks(names, canonical, outer)
            stated = refine.Stated(canonical, outer, self._strategy(outer, names), tuple(names))
            try:
                found = refine.pursue(stated, options, aim, rank_tol is None, left)
            except ClusterError:
                raise
            except SolverError as error:
                others = ", ".join(name for name in self.solvers().applicable if name not in names)
                told = f"Solvers that take the problem: {others}." if others else "No other installed solver takes it."
                raise SolverError(f"{error} {told}") from error
        # θ as a function, values and multipliers go to the user's objects, which are unchanged up to here.
        self._factored, self._asked, outcome = found.factored, options, found.outcome
        self._left_off, self._solved_for = outcome.left_off, {p.id: _copied(p.value) for p in self.parameters()}
        stats = replace(found.stats, seconds=seconds)
        self._unpack(replace(outcome.solution, solver_stats=stats), outcome.point)
        if outcome.interrupted:
            raise KeyboardInterrupt
        solution = self._solution
        if in_rationals and solution is not None and solution.certificate is not None and self._point is not None:
            self._unpack(exact.decided(solution, canonical.constant, tol, abs_tol), self._point)
        return self.value

    @contextmanager
    def _not_within_itself(self) -> Iterator[None]:
        """A context for a solve. Raises KernelOptError where a function that it calls solves the same problem."""
        if self._solves_in == os.getpid():
            raise KernelOptError(
                "Expected losses and kernels that do not solve the problem in which they stand; one calls its solve(). "
                "State what it needs as a problem of its own."
            )
        self._solves_in = os.getpid()
        try:
            yield
        finally:
            self._solves_in = None

    def _solve_everywhere(self, options: dict[str, Any]) -> float | None:
        """Solve with points of the boxes, exchanged until g ≥ 0 is proven on all of them."""
        limit, tol, abs_tol = options["time_limit"], options["tol"], options["abs_tol"]
        deadline = inf if limit is None else clock.now() + limit
        factor_options(tol)
        self._require_parameter_values()
        self._require_exchangeable(options["certify"])
        for box in self._boxes:
            box._require_own_leaves()
        boxes = [(box, bend.structure(box)) for box in self._boxes]
        ordinary = [c for c in self._given if not isinstance(c, Everywhere)]
        if not options["warm_start"]:
            self._left_off = None

        def solve(at_points: Sequence[cp.Constraint]) -> Problem:
            inner = Problem(self.objective, [*ordinary, *at_points])
            if self._left_off is not None:  # other points have other coordinates: the norm's multiplier alone stays
                inner._left_off = replace(self._left_off, v=(), a=None, kept=None)
            left = None if limit is None else max(deadline - clock.now(), LEAST_TIME)
            inner.solve(**(options | {"tol": SHARE * tol, "time_limit": left, "progress": False}))
            self._left_off = inner._left_off
            return inner

        def closes(certificate: Certificate) -> bool:
            return certificate.closes(tol, abs_tol)

        def is_over() -> bool:
            return clock.now() >= deadline

        with tqdm(desc="points", unit=" solves", disable=not options["progress"]) as bar:

            def watch(enclosure: Certificate) -> None:
                bar.set_postfix_str(f"gap {enclosure.relative_gap:.1e}", refresh=False)
                bar.update()

            found = exchange.exchange(solve, boxes, closes, is_over, watch)
        if found.problem.status == Status.UNBOUNDED:
            raise KernelOptError(
                "Expected a problem with a lower bound where its inequalities hold at the points of a grid; without "
                "one, no more points are found. Penalize ko.norm(theta) more, or bound it."
            )
        self._adopt(found.problem)
        assert self._solution is not None
        if found.certificate is not None:
            named = self._notation()
            stated = [(text.describe(box, named=named), structure) for box, structure in boxes]
            solution = exchange.solution(self._solution, found, stated, closes, is_over())
            self._unpack(solution, self._point)
        exchange.note(self._boxes, found)
        self._exchange = found.rounds
        return self.value

    def _require_exchangeable(self, certify: bool | str) -> None:
        """Raise KernelOptError for problems whose answers prove no bound of the optimum."""
        if certify is not True:
            raise OptionError(f"Expected certify=True with ko.everywhere, which is a proof; got {certify!r}.")
        if self.is_mixed_integer() or self._outer() is None or not self.canonical_form().is_convex:
            raise KernelOptError(
                "Expected a convex problem without integers for ko.everywhere; its bounds come from multipliers."
            )

    def _adopt(self, other: Problem) -> None:
        """Take the statement and the answer of another problem with the same boxes."""
        own = ("_lock", "_boxes", "_given")
        self.__dict__.update({k: v for k, v in vars(other).items() if k not in own})

    def _left_from(self, form: CanonicalForm, start: Start | None) -> refine.Left:
        """What the last solve left. Factors of other values of a kernel's parameters are made anew."""
        known = self._factored
        if known is None or all(
            link.rows is old.rows for link, old in zip(form.predictions, known.reduction.form.predictions, strict=True)
        ):
            if known is not None and len(known.reduction.form.norms) != len(form.norms):
                start = None  # a bound of a norm became 0, or is no longer 0: multipliers have other places
            return refine.Left(start, known and known.of(form), self._asked)
        return refine.Left(None, refine.renewed(form, known), self._asked)

    def _unpack(self, solution: Solution, point: Iterate | None) -> None:
        """Put the answer on the user's own objects."""
        found = solution.value is not None and np.isfinite(solution.value)
        if solution.certificate is not None:
            solution = replace(solution, certificate=replace(solution.certificate, prover=self._exact_proof))
        self._solution, self._point = solution, point if found else None
        values.write(self._private_form(), self._imposed, self._source, solution, self._point)

    def _keep(self) -> Callable[[], None]:
        """A function that restores the present state of the problem, its parameters, θ, variables and multipliers.

        Where there is no factor yet, one that is made later stays.
        """
        known = self._solution, self._point, self._factored, self._left_off, self._solved_for
        of_users = values.kept(self._with_values(), self.thetas())

        def restore() -> None:
            self._solution, self._point, factored, self._left_off, self._solved_for = known
            self._factored = factored or self._factored
            of_users()

        return restore

    def _set_answer(self, solution: Solution) -> None:
        """Set an answer that comes without its factor, as from a file; θs and what else has a value have it already.

        A factor that is known is dropped, since it is not that of the answer.
        """
        self._solution, self._point, self._factored, self._left_off = solution, None, None, None
        self._solved_for = {p.id: _copied(p.value) for p in self.parameters()}

    def _require_factor(self) -> Factored:
        """The factor. Raises KernelOptError for an answer from a file or from another process."""
        if self._factored is None:
            raise KernelOptError(
                "Expected an answer with its factor; one from a file or from another process has none. Call solve()."
            )
        return self._factored

    def _with_values(self) -> list[Any]:
        """The user's objects that have a value, besides θs; variables come first."""
        return values.with_values([*self.variables(), *self.parameters()], self._imposed, self._source)

    def _forget_systems(self) -> None:
        """Let go of systems that solvers keep beside B for the next problem with the same B."""
        for factor in self._factored.reduction.factors.values() if self._factored is not None else ():
            factor.matrix.kept.clear()

    def _by_columns(self) -> tuple[Reduction, Iterate]:
        """The reduction with factors of Q, and the answer in their coordinates, for what needs columns of B."""
        assert self._factored is not None
        assert self._point is not None
        if self._factored.is_whole:
            found = refine.by_columns(self._factored, self._point, self._left_off)
            self._factored, self._point, self._left_off = found
        return self._factored.reduction, self._present_point()

    def _present_point(self) -> Iterate:
        """The answer, with the present values of the user's variables."""
        assert self._point is not None
        return replace(self._point, y=self._private_form().users_values())

    # ---------------------------------------------------------------- proof

    @one_at_a_time
    def certificate_at(self, parameters: Mapping[cp.Parameter, Any]) -> Certificate:
        """Bounds from the present θ and multipliers on the optimum for other values of the problem's parameters.

        upper is the objective at the present θ and variables (inf where these are infeasible), lower comes from the
        present multipliers: for a penalty λ‖θ‖² they are feasible for every λ, and no kernel value is computed again.
        Where they are not, they are repaired, at the price of a pass over the kernel. Parameters keep their values.

        Raises
        ------
        KernelOptError
            Before a solve that ended with a certificate.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
        >>> theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, value=1.0)
        >>> objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
        >>> problem = ko.Problem(cp.Minimize(objective))
        >>> _ = problem.solve()
        >>> elsewhere = problem.certificate_at({lam: 1.1})
        >>> lam.value = 1.1
        >>> bool(elsewhere.lower <= problem.solve() <= elsewhere.upper)
        True
        """
        self._require_no_boxes("certificate_at")
        require_kind(parameters, Mapping, "parameters", "{parameter: value}")
        if self._solution is None or self._solution.certificate is None:
            raise KernelOptError("Expected a solved problem with a certificate; call solve() first.")
        if self._solution.certificate.solver:
            raise KernelOptError(
                "Expected a problem without integers, whose multipliers give bounds for other values of parameters; a "
                "solver's word gives none. Solve it again: the factor is kept."
            )
        factored = self._require_factor()
        if self._spectral is not None:
            raise KernelOptError(
                "Expected a convex problem, whose multipliers give bounds for other values of parameters; this one is "
                "of the spectral form. Solve it again: the factor is kept."
            )
        self._require_variable_values()
        of_kernels = [p for theta in self.thetas() for p in theta.kernel.parameters()]
        if any(p is q for p in parameters for q in of_kernels):
            raise KernelOptError(
                "Expected parameters outside of kernels: multipliers of one kernel are no proof for another. Solve "
                "again."
            )
        with values.of_parameters(parameters, self.parameters()):
            self._require_parameter_values()
            outer = self._outer()
            assert outer is not None  # integers have no certificate
            reduction = factored.of(self._private_form()).reduction
            point = representer.evaluate(reduction, self._present_point())
            return convex.certify_elsewhere(reduction, outer, point, self._solution.certificate)

    @one_at_a_time
    def _exact_proof(self, certificate: Certificate) -> Proof:
        """The proof of the last answer's bounds in exact arithmetic; see `Certificate.exact`."""
        self._require_no_boxes("a proof in exact arithmetic")
        if self._solution is None or self._solution.certificate is not certificate or self._point is None:
            raise KernelOptError("Expected the certificate of the last answer; the problem was solved again since.")
        if changed := self._changed_since():
            raise KernelOptError(
                f"Expected the values of the last solve; {', '.join(changed)} changed since. Solve again."
            )
        named = self._notation()
        told = [*explain.stated(self.objective, self.constraints, named), *explain.parameters(self.parameters(), named)]
        lines = [f"{label:<{explain.LABEL}}{line}".strip() for label, line in told]
        return exact.proof(self._require_factor().reduction, self._outer(), self._point, certificate, lines)

    @one_at_a_time
    def verify(self, tol: float = 1e-6) -> Report:
        """Recompute the answer in the terms of the stated problem; the report prints as a table, one number per line.

        After a solve: the factor (Q = BBᵀ, or the residual of the restriction; CCᵀ = I; A = BC), ‖θ‖ = ‖w‖ and
        predictions from the kernel, a component in the null space of A, the KKT conditions, the duality gap, and, where
        the kernel has few explicit features (or the problem came by `from_cvxpy`), the original problem in θ ∈ Rᵖ,
        solved for comparison.

        With a nonconvex `SmoothLoss`: the gradient and curvature conditions instead of the gap; beside constraints,
        what a convex model at the answer promises.

        After `theta.value = ko.Function(...)`: an audit of that function, with the values that the problem's variables
        have (or the best ones, where they have none).

        Parameters
        ----------
        tol : largest relative gap that passes; see `Certificate.relative_gap`

        Raises
        ------
        KernelOptError
            When some θ has no value.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> from sklearn.svm import SVC
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> y = np.array([-1.0, 1.0, 1.0, -1.0])
        >>> svc = SVC(kernel="rbf", gamma=0.5, C=1.0, tol=1e-8).fit(X, y)
        >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        >>> loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
        >>> problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))
        >>> theta.value = ko.Function(theta.kernel, svc.support_vectors_, svc.dual_coef_[0])
        >>> b.value = svc.intercept_[0]
        >>> problem.verify().passed
        True
        """
        factor_options(tol)
        tol = float(tol)
        self._require_parameter_values()
        functions = {theta: theta.value for theta in self.thetas()}
        if any(f is None for f in functions.values()):
            known = "" if self.status is None else f" The last solve ended as {self.status}."
            raise KernelOptError(
                f"Expected a value of every θ; call solve(), or set theta.value to a ko.Function.{known}"
            )
        solved = self._solution.functions if self._solution is not None else {}
        if self._factored is not None and solved and all(functions[t] is solved.get(t) for t in functions):
            assert self._solution is not None
            self._require_variable_values()
            reduction, point = self._by_columns()
            if self._spectral is not None:
                return principal_components.verify(reduction, self._spectral, point, self._solution, tol)
            report = verification.verify(reduction, self._outer(), point, self._solution, tol, self._source)
            if self._boxes:
                return replace(report, certificate=self.certificate, checks=(*report.checks, *self._proofs()))
            return report
        given = {theta: f for theta, f in functions.items() if f is not None}
        canonical = self._private_form(as_stated=True)
        if self._spectral is not None:
            return principal_components.audit(self._spectral, given, self._own_certificate()[0], tol)
        report = audits.audit(canonical, self._outer(as_stated=True), given, tol, self._own_certificate)
        return replace(report, checks=(*report.checks, *self._proofs()))

    def _proofs(self) -> list[Check]:
        """For each box the proven least value, from cells of another partition."""
        found = []
        for box in self._boxes:
            box._require_own_leaves()
        for box in self._boxes:
            made = bend.structure(box)
            least = exchange.look(box, made, parts=exchange.OTHER_PARTS)
            note = "; ".join([f"{least.cells} cells", *made.assumptions(), *made.declarations()])
            found.append(Check(f"everywhere in {box.text}", max(0.0, -least.bound), least.rounding, note))
        return found

    def _own_certificate(self) -> tuple[Certificate | None, Mapping[int, tuple[Any, ...]]]:
        """The certificate and the multipliers of constraints of a new solve of the same problem, which leaves values as
        they are."""
        twin, restore = Problem(self.objective, self._imposed), self._keep()
        try:
            twin.solve()
        finally:
            restore()
        return twin.certificate, {} if twin._point is None else twin._point.duals

    # ---------------------------------------------------------------- derivatives

    def _answer(self) -> SolvedProblem:
        """The answer of the last solve, for derivatives. Raises KernelOptError where there is none."""
        self._require_no_boxes("derivatives")
        if self._solution is None:
            raise KernelOptError("Expected a solved problem; call solve() first.")
        self._require_factor()
        if self._point is None:
            raise KernelOptError(f"Expected a solve with an answer; the last one ended as {self.status}.")
        if changed := self._changed_since():
            raise KernelOptError(
                f"Expected the values of the last solve; {', '.join(changed)} changed since. Solve again."
            )
        self._require_parameter_values()
        self._require_variable_values()
        if self._outer() is None:
            raise KernelOptError(
                "Expected a continuous problem; one with integers, or of the spectral form, has no derivative here."
            )
        return SolvedProblem(self, self._private_form(), *self._by_columns(), self.certificate)

    @one_at_a_time
    def backward(self) -> None:
        """Set `.gradient` of each parameter to that of Σ v.gradient·v over the variables v, as cvxpy's `backward()`.

        A variable whose `gradient` is None counts with ones. θ is no variable of cvxpy's: for criteria of predictions
        use `ko.gradient`, which says more. There is no need of `requires_grad=True`, and the answer's tolerance does
        not matter.

        Raises
        ------
        KernelOptError
            As for `ko.gradient`; and for problems whose only variable is θ.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> theta = ko.Theta(ko.kernels.Linear())
        >>> b, lam = cp.Variable(), cp.Parameter(nonneg=True, value=1.0)
        >>> loss = cp.sum_squares(theta([[0.0], [1.0]]) + b - np.array([1.0, 3.0]))
        >>> problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
        >>> _ = problem.solve()
        >>> problem.backward()  # b = 2 − ½θ, θ = 1/(½ + λ)
        >>> round(float(lam.gradient), 6), round(0.5 / 1.5**2, 6)
        (0.222222, 0.222222)
        """
        variables = self.variables()
        if not variables:
            raise KernelOptError(
                "Expected variables other than θ, whose gradients go backward; got none. For criteria of θ write "
                "ko.gradient."
            )
        given = [np.ones(v.shape) if v.gradient is None else np.asarray(v.gradient, dtype=float) for v in variables]
        criterion = sum(cp.sum(cp.multiply(g, v)) for g, v in zip(given, variables, strict=True))
        for p, found in gradient_of(self._answer(), criterion, self.parameters(), None).items():
            p.gradient = np.array(found)

    @one_at_a_time
    def derivative(self) -> None:
        """Set `.delta` of each variable to its change along the parameters' `.delta`, as cvxpy's `derivative()`.

        A parameter whose `delta` is None does not change. Those of kernels have no direction here: see `ko.gradient`.

        Raises
        ------
        KernelOptError
            As for `ko.gradient`.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> theta = ko.Theta(ko.kernels.Linear())
        >>> b, lam = cp.Variable(), cp.Parameter(nonneg=True, value=1.0)
        >>> loss = cp.sum_squares(theta([[0.0], [1.0]]) + b - np.array([1.0, 3.0]))
        >>> problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
        >>> _ = problem.solve()
        >>> lam.delta = 0.01
        >>> problem.derivative()
        >>> round(float(b.delta), 6)
        0.002222
        """
        deltas = {p: np.asarray(p.delta, dtype=float) for p in self.parameters() if p.delta is not None}
        for p, delta in deltas.items():
            if delta.shape != p.shape:
                raise DataError(f"Expected {p.name()}.delta of shape {p.shape}; got {delta.shape}.")
        for variable, change in variable_changes(self._answer(), deltas).items():
            variable.delta = change

    # ---------------------------------------------------------------- queries

    @property
    @one_at_a_time
    def reduced_problem(self) -> cp.Problem:
        """The inner cp.Problem in v = √scale·w and y; factors Q with the default options if need be.

        It has a free variable h for the values of each `SmoothLoss`, which cvxpy cannot represent.
        """
        if self._factored is None:
            self._factored = refine.reduced(self._private_form(), policy.Step(factor_options()), {})
        reduction = self._by_columns()[0] if self._factored.is_whole else self._factored.reduction
        if self._shown is None or self._shown[0] is not reduction:
            self._shown = reduction, representer.substitute(self.canonical_form(), reduction.factors).problem
        return self._shown[1]

    @one_at_a_time
    def get_problem_data(self, solver: str, **options: Any) -> Any:
        """The reduced problem's data as `solver` gets it; see `cp.Problem.get_problem_data`."""
        require_kind(solver, str, "solver", "the name of a solver of cvxpy's, such as CLARABEL")
        self.canonical_form()
        self._require_parameter_values()
        spectral_problems.require_cones(self._spectral)
        reduced = self.reduced_problem
        try:
            return quietly_compiled(reduced, solver, **options)
        except cp.error.SolverError as error:
            raise SolverError(
                f"Expected a solver of cvxpy's that takes the problem; got {solver!r}. {error}"
            ) from error

    @one_at_a_time
    def solvers(self) -> choice.SolverTable:
        """Each solver, or why it can't take this problem: a mapping of names to None or the reason."""
        return self._solver_table(self._factored.reduction.size if self._factored else None)

    @one_at_a_time
    def explain(self) -> explain.Explanation:
        """The reduction step by step, as far as it goes; never raises."""
        lines: explain.Lines = []
        try:
            named = self._notation()
            lines += explain.stated(self.objective, self.constraints, named)
            lines += explain.parameters(self.parameters(), named)
            lines += explain.rules(self._inspect())
            if self._inspect().violations:
                return explain.Explanation(tuple(lines))
            canonical = self.canonical_form()
            lines += [] if self._spectral is None else explain.SPECTRAL
            lines += explain.rows(canonical, named)
            lines += explain.factors(self._factored.reduction, named) if self._factored else explain.NOT_FACTORED
            chosen = self.solver_stats.solver_name if self.solver_stats else self.solvers().chosen
            lines += explain.solver(chosen, self.solver_stats)
            if self._factored and chosen in ENGINES and ENGINES[chosen].in_rows:
                lines += explain.systems(self._factored.reduction, named)
            lines += explain.seconds(self.solver_stats)
            restricted = self._factored is not None and self._factored.reduction.is_restriction
            lines += explain.answer(self._solution, named, restricted) if self._solution else []
            changed = [] if self._solution is None else self._changed_since()
            lines += [("", f"{', '.join(changed)} changed since: solve again")] if changed else []
        except Exception as error:  # a user's kernel may raise anything, and explaining must not
            lines += [("stopped", line) for line in str(error).splitlines()[:1]]
        return explain.Explanation(tuple(lines))

    @one_at_a_time
    def derivation(self) -> ProblemDerivation:
        r"""How the problem becomes the small one in w, and how the bound is proven, with its own formulas and numbers.

        Seven sections: the stated problem, where θ enters, the conditions of the representer theorem, the factor of Q,
        the reduced problem, the dual point, and the bound. Before a solve it ends with the rows of Q. Where the theorem
        does not apply, it names the condition that fails, and the sub-expression, and ends there. Nothing is solved.

        Returns
        -------
        ProblemDerivation
            With `markdown`, `latex` (a section to \\input, with amsmath), `html`, and `save(path)`.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
        >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
        >>> objective = cp.sum_squares(y - theta(X))
        >>> problem = ko.Problem(cp.Minimize(objective), [ko.norm(theta) <= 2])
        >>> for section in problem.derivation().sections:
        ...     print(section.title)
        1. The stated problem
        2. Where θ enters
        3. The conditions of the representer theorem
        4. The factor of Q = AAᵀ
        >>> _ = problem.solve()
        >>> problem.derivation().sections[-1].title
        '7. The bound'
        """
        found, form, stopped = self._inspect(), None, ""
        if not found.violations:
            try:
                form = self.canonical_form()
            except KernelOptError as error:
                stopped = str(error)
        nonconvex = form is not None and not form.is_convex
        kinds = {"spectral": self._spectral is not None, "integers": self.is_mixed_integer(), "nonconvex": nonconvex}
        return derived(
            Material(
                objective=self.objective,
                constraints=tuple(self.constraints),
                thetas=tuple(self.thetas()),
                parameters=tuple(self.parameters()),
                variables=tuple(self.variables()),
                named=self._notation(),
                found=found,
                form=form,
                stopped=stopped,
                reduction=None if self._factored is None else self._factored.reduction,
                solution=self._solution,
                changed=tuple([] if self._solution is None else self._changed_since()),
                kinds=frozenset(kind for kind, holds in kinds.items() if holds),
            )
        )

    @classmethod
    def from_cvxpy(
        cls, problem: cp.Problem, theta: cp.Variable, features: Mapping[cp.Constant, FeatureMatrix]
    ) -> Problem:
        """The kernel problem of an ordinary cvxpy problem in an explicit θ.

        Parameters
        ----------
        problem : cp.Problem in which `theta` occurs as Φ @ theta and in norms of theta
        theta : cp.Variable (p,) or (p, K)
        features : {Phi: A}, each feature matrix Φ (a cp.Constant, N×p) with the `FeatureMatrix` that replaces it

        Raises
        ------
        RepresenterError
            Listing every use of theta that the theorem does not cover.
        DataError
            When A is not the kernel form of Φ: shapes differ, or κ(xᵢ, xⱼ) ≠ (ΦΦᵀ)ᵢⱼ.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
        >>> Phi, theta = cp.Constant(X), cp.Variable(2)
        >>> objective = cp.norm1(Phi @ theta - [1, 2, 3]) + cp.sum_squares(theta)
        >>> explicit = cp.Problem(cp.Minimize(objective))
        >>> A = ko.FeatureMatrix(X, ko.kernels.Linear())
        >>> problem = ko.Problem.from_cvxpy(explicit, theta=theta, features={Phi: A})
        >>> bool(abs(problem.solve() - explicit.solve(solver="CLARABEL")) < 1e-6)
        True
        """
        require_kind(problem, cp.Problem, "problem", "a cp.Problem in an explicit θ")
        translated, source = explicit.kernelize(problem, theta, features)
        kernel_problem = cls(translated.objective, translated.constraints)
        rules.require_representable(kernel_problem._inspect())
        kernel_problem._source = source
        return kernel_problem

    # ---------------------------------------------------------------- helpers

    def _changed_since(self) -> list[str]:
        """Names of parameters whose values changed since the answer was computed."""
        return [
            p.name() for p in self.parameters()
            if p.id in self._solved_for and not np.array_equal(_copied(p.value), self._solved_for[p.id])
        ]  # fmt: skip


def require_problem(value: Any) -> None:
    """Raise DataTypeError unless the value is a `Problem`."""
    require_kind(value, Problem, "problem", "a ko.Problem")


def _listed(constraints: Any) -> tuple[Any, ...]:
    """The constraints as a tuple. Raises DataError unless they come in a list and are constraints."""
    if isinstance(constraints, (cp.constraints.constraint.Constraint, Everywhere)):
        raise DataError("Expected a list of constraints; got one constraint. Write [constraint].")
    several = isinstance(constraints, Iterable) and not isinstance(constraints, (str, Mapping))
    if constraints is not None and (not several or getattr(constraints, "ndim", 1) != 1):
        raise DataError(f"Expected a list of constraints, or None; got {shown(constraints)}.")
    given = tuple(constraints or ()) if isinstance(constraints, (list, tuple, type(None))) else tuple(constraints)
    for number, constraint in enumerate(given):
        # cvxpy takes truth values: 0 <= 1 is what a comparison of numbers gives.
        if not isinstance(constraint, (cp.constraints.constraint.Constraint, Everywhere, bool, np.bool_)):
            raise DataError(
                f"Expected constraints, such as theta(X) <= 1; got {type(constraint).__name__} at {number}, "
                f"{shown(constraint)}."
            )
    return given


def _copied(value: Any) -> Any:
    return None if value is None else np.array(value.toarray() if sp.issparse(value) else value)
