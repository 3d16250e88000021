"""Results of the last solve, as properties of the problem."""

from __future__ import annotations

from kernelopt.certificate import Certificate
from kernelopt.results.history import ExchangeHistory, ExchangeRound, History
from kernelopt.results.solution import Solution, SolverStats


class Answered:
    """A problem and its last solution, which is None before the first solve."""

    _solution: Solution | None
    _exchange: tuple[ExchangeRound, ...] = ()

    @property
    def value(self) -> float | None:
        """The optimal value of the last solve, f at the predictions and norms of the fitted θ; None before a solve."""
        return None if self._solution is None else self._solution.value

    @property
    def status(self) -> str | None:
        """The `solution.Status` of the last solve; None before a solve.

        "optimal", "optimal_inaccurate", "locally_optimal", "not_attained", "infeasible", "unbounded" or "user_limit";
        it is decided by the certificate, or, with integer variables, by the solver.
        """
        return None if self._solution is None else self._solution.status

    @property
    def solver_stats(self) -> SolverStats | None:
        """The solver, its times and iterations, and all attempts; None before a solve."""
        return None if self._solution is None else self._solution.solver_stats

    @property
    def history(self) -> History | ExchangeHistory:
        """The factors of the last solve, from coarse to fine, with the bounds certified for each: prints, and plots.

        With `ko.everywhere` the rounds of points instead.
        """
        if self._exchange:
            return ExchangeHistory(self._exchange)
        return History(() if self.solver_stats is None else self.solver_stats.rounds)

    @property
    def certificate(self) -> Certificate | None:
        """An enclosure of the optimum of the stated problem, with the full kernel matrix; None where there is none.

        With integer variables one bound is the solver's word, and is not proven: see `Certificate.scope`.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
        >>> theta = ko.Theta(ko.kernels.Polynomial(degree=2))
        >>> loss = cp.sum(ko.losses.squared_error(y, theta(X)))
        >>> problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)))
        >>> problem.solve() <= problem.certificate.upper
        True
        >>> print(problem.certificate)
        optimum in [..., ...], relative gap ..., full kernel, rank 3 of 6
        """
        return None if self._solution is None else self._solution.certificate
