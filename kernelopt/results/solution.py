"""The results of a solve: a status with its remedy, θ as a fitted function, and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from kernelopt.errors import KernelOptError
from kernelopt.kernels.kernel import Kernel
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import NOWHERE, Function, Selected
from kernelopt.results.history import Round
from kernelopt.support.checks import require_number
from kernelopt.support.types import Array, Ints


class Status(StrEnum):
    """The outcome of a solve, a string.

    "optimal", "optimal_inaccurate", "locally_optimal", "not_attained", "infeasible", "unbounded" or "user_limit".
    """

    OPTIMAL = "optimal"
    OPTIMAL_INACCURATE = "optimal_inaccurate"
    LOCALLY_OPTIMAL = "locally_optimal"
    NOT_ATTAINED = "not_attained"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    USER_LIMIT = "user_limit"

    @property
    def has_point(self) -> bool:
        """Whether this status always comes with a θ; "user_limit" may or may not."""
        return self in (Status.OPTIMAL, Status.OPTIMAL_INACCURATE, Status.LOCALLY_OPTIMAL, Status.NOT_ATTAINED)

    @property
    def remedy(self) -> str:
        """The meaning of the status, and what to do about it; empty for "optimal"."""
        return _REMEDIES[self]


_REMEDIES = {
    Status.OPTIMAL: "",
    Status.OPTIMAL_INACCURATE: "The certified gap is larger than tol, or does not hold for the full kernel: see "
    "problem.certificate; with integers, a constraint may hold too loosely: see problem.verify(). Lower rank_tol or "
    "raise max_rank, try another of problem.solvers(), bound ko.norm(theta) if no norm of θ, or only norms of some of "
    "its outputs, are stated, or bring data and penalties to similar scales.",
    Status.LOCALLY_OPTIMAL: "A loss is declared nonconvex: the conditions of a local optimum hold, but a better θ may "
    "exist farther away, so that there is no certificate. Try many starting points, solve(n_init=20, random_state=0).",
    Status.NOT_ATTAINED: "The optimum is finite, but no θ reaches it (as for logistic regression of separable data): "
    "penalize ko.norm(theta), or bound it.",
    Status.INFEASIBLE: "No θ meets the constraints: relax them, or add slack variables.",
    Status.UNBOUNDED: "The objective has no lower bound: penalize ko.norm(theta), or bound it.",
    Status.USER_LIMIT: "A limit was reached before an answer could be verified, or a solver's claim that there is none "
    "could not be proved; problem.explain() says which. Raise a limit that was reached; where θ was restricted to a "
    "low rank, lower rank_tol or raise max_rank.",
}


UNCERTIFIED = (
    "No certificate tells how near this is to the optimum: certify=False asks for none, and with integers there may be "
    "none. See problem.verify()."
)


def remedy_of(status: Status, certificate: Any) -> str:
    """The remedy of a status, where the answer has this certificate, or None."""
    return UNCERTIFIED if status == Status.OPTIMAL_INACCURATE and certificate is None else status.remedy


ROUNDED = 1e-13  # relative to ‖θ‖: coefficients that make up no more than this are rounding


class FittedFunction(Function):
    """θ after a solve, a function on the pivot rows of the data.

    Immutable and callable, with all methods of a `Function`.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> objective = cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> f = theta.value
    >>> f([[10.0]]).round(1), len(f.pivots), round(f.norm, 2)
    (array([21.]), 2, 2.24)
    """

    def __init__(
        self, kernel: Kernel, centers: Array | Selected, coefficients: Array, *,
        products: Array, pivots: Ints, pivot_coefficients: Array, dual: Function | None,
        predictions: Mapping[object, Array] = NOWHERE,
    ) -> None:  # fmt: skip
        self._set(kernel, centers, coefficients)
        self._known = predictions
        self._products = products
        self._pivots = pivots
        self._pivot_coefficients = pivot_coefficients
        self._dual = dual
        self._distance: float | None = None

    @property
    def norm(self) -> float:
        """‖θ‖ = ‖w‖ (Frobenius where there are several outputs)."""
        return float(np.sqrt(np.trace(self._products)))

    def gram(self, other: Function | None = None) -> Array:
        """θᵀθ = wᵀw as computed by the solve; or θᵀg for another function g."""
        return self._products if other is None or other is self else super().gram(other)

    def trimmed(self) -> FittedFunction:
        """The function without pivots whose coefficients are rounding, which together make no more than 1e-13·‖θ‖.

        Returns
        -------
        FittedFunction
        """
        if not len(self._pivots) or len(self._pivots) != len(self.coefficients):  # functions f₀ stand among the centers
            return self
        sizes = np.abs(self._pivot_coefficients).reshape(len(self._pivots), -1).max(axis=1)
        lengths = sizes * np.sqrt(np.clip(self._kernel._diagonal(self._centers), 0.0, None))
        order = np.argsort(lengths)
        dropped = order[np.cumsum(lengths[order]) <= ROUNDED * self.norm]
        kept = np.setdiff1d(np.arange(len(sizes)), dropped)
        kept = kept[np.argsort(self._pivots[kept])] if len(kept) else np.zeros(1, dtype=np.intp)
        dual, centers = self._dual, self._centers[kept]
        if dual is not None and len(dual.centers):
            size = np.abs(dual.coefficients).reshape(len(dual.centers), -1).max(axis=1)
            some = size > ROUNDED * size.max(initial=0.0)
            some = some if some.any() else np.arange(len(size)) == 0
            same = np.array_equal(dual._centers[some], centers)
            dual = Function._of_rows(dual._kernel, centers if same else dual._centers[some], dual.coefficients[some])
        found = FittedFunction(
            self._kernel, centers, self.coefficients[kept], products=self._products,
            pivots=self._pivots[kept], pivot_coefficients=self._pivot_coefficients[kept], dual=dual,
        )  # fmt: skip
        found._distance = self._distance
        return found._named(self._names)

    @property
    def pivots(self) -> Ints:
        """The rows S of the stacked data (feature matrices in order of appearance) in θ = Σₛ cₛF(xₛ)."""
        return self._pivots

    @property
    def pivot_coefficients(self) -> Array:
        """The coefficient of each pivot, cₛ in θ = Σₛ cₛF(xₛ) (besides functions f₀ of the problem)."""
        return self._pivot_coefficients

    def optimality_bound(self, X: Any) -> Array:
        """A bound on |f̂(x) − f*(x)|, f̂ this function and f* that of an exact optimum: √κ(x, x)·√(absolute gap/λ).

        It bounds the optimization error of θᵀF(x), without intercepts; it is no confidence interval. Shape (len(X),),
        the same for every output.

        Raises
        ------
        KernelOptError
            Where the objective holds no λ‖θ‖², or there is no certificate for the full kernel.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
        >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0))
        >>> objective = cp.sum_squares(y - theta(X)) + 0.1 * ko.sum_squares(theta)
        >>> problem = ko.Problem(cp.Minimize(objective))
        >>> _ = problem.solve()
        >>> bool(theta.value.optimality_bound([[2.5]])[0] < 1e-2)
        True
        """
        if self._distance is None:
            raise KernelOptError(
                "Expected a problem with λ·ko.sum_squares(theta) in its objective, solved with a certificate for the "
                "full kernel; without strong convexity, or a bound on the gap, θ may be far from the optimum's."
            )
        return np.sqrt(np.clip(self.kernel.diag(X), 0.0, None)) * self._distance

    def expanded(self, threshold: float = 1e-8) -> Function:
        """The function that the multipliers imply, θ = (‖θ‖/‖Aᵀν‖)·Aᵀν, as an expansion on the support vectors.

        Support vectors are the rows with |νᵢ| > threshold·max|ν|. At an exact optimum it equals this function.

        Raises
        ------
        KernelOptError
            Where θ is not a multiple of Aᵀν (no norm of θ, or another one than ‖θ‖), or the solver gave no
            multipliers.
        """
        require_number(threshold, "threshold", "a number from 0 to 1", lambda value: 0 <= value < 1)
        if self._dual is None:
            raise KernelOptError(
                "Expected a problem whose only norm of θ is ko.norm(theta) or ko.sum_squares(theta), solved with "
                "multipliers, and not loaded from a file; here θ is not a multiple of Aᵀν, or not known to be one. Use "
                "the function itself, which stands on its pivots."
            )
        size = np.abs(self._dual.coefficients).reshape(len(self._dual.centers), -1).max(axis=1)
        support = size > threshold * size.max(initial=0.0)
        centers, coefficients = self._dual._centers[support], self._dual.coefficients[support]
        return Function._of_rows(self._dual._kernel, centers, coefficients)._named(self._names)


@dataclass(frozen=True)
class Attempt:
    """One run of a solver.

    solver : its name; tol : its relative tolerance; units : of variables and multipliers (None: those of the data)
    ranks : ranks of the factors; claimed : the status that the solver returned
    gap : the relative gap of its answer for the reduced problem, nan without a point or a bound
    """

    solver: str
    tol: float
    units: tuple[float, float] | None
    ranks: tuple[int, ...]
    claimed: str
    gap: float
    seconds: float


@dataclass(frozen=True)
class SolverStats:
    """The solver's name, times in seconds, and number of iterations.

    `attempts` lists all runs of solvers, `rounds` all factors; `out_of_time` tells whether time_limit ended the solve.
    `seconds` is the time of each phase of the whole solve: statement (reading and compiling), factor (kernel values and
    factorization), solver (all attempts) and proof (bounds).

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> objective = cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> problem.solver_stats.solver_name, len(problem.solver_stats.attempts)
    ('LEAST_SQUARES', 1)
    """

    solver_name: str
    solve_time: float | None
    setup_time: float | None
    num_iters: int | None
    kernel_time: float
    factor_time: float
    compile_time: float
    extra_stats: Any = None
    attempts: tuple[Attempt, ...] = ()
    rounds: tuple[Round, ...] = ()
    out_of_time: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Solution:
    """An answer: functions by θ, multipliers by θ and feature matrix, with its status and certificate."""

    status: Status
    value: float | None
    functions: Mapping[Theta, FittedFunction]
    duals: Mapping[Theta, Mapping[object, Array]]
    solver_stats: Any
    certificate: Any = None

    def detached(self) -> Solution:
        """A copy without the solver's own objects, and without the certificate's references to the compiled problem."""
        stats = None if self.solver_stats is None else replace(self.solver_stats, extra_stats=None)
        certificate = None if self.certificate is None else replace(self.certificate, evidence=None, prover=None)
        return replace(self, solver_stats=stats, certificate=certificate)
