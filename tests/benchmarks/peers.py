"""What kernelopt is measured against: the reduced problem by hand, scikit-learn, ReHLine, and scipy's L-BFGS-B.

Each peer is a function of a `Statement` and of our answer to it (for the rank, and to tell a peer when it is as good
as we are). It returns its seconds, without those of evaluating its objective, and the objective that it attained.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpstrf
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR

import kernelopt as ko

Array = np.ndarray
CACHE = 2000  # MB of kernel values that libsvm may keep, ten times its default: as much as others use
EPOCHS = 1_000_000  # that ReHLine may take; its tolerance stops it earlier
MEMORY = 20  # pairs that L-BFGS keeps; twice scipy's default, and faster here


@dataclass(frozen=True)
class Statement:
    """A problem in θ with a Gaussian kernel, in words that serve kernelopt and cvxpy alike.

    said(statement, square, f, ...) is the objective and the constraints for ‖θ‖² and predictions at X and, where there
    are more rows, at these.
    """

    X: Array
    y: Array
    lam: float | cp.Parameter
    said: Callable[..., tuple[cp.Expression, list[Any]]]
    more: tuple[Array, ...] = ()
    outputs: int | None = None
    sigma: float = 1.5

    @property
    def kernel(self) -> ko.kernels.Kernel:
        return ko.kernels.Gaussian(sigma=self.sigma)

    @property
    def gamma(self) -> float:
        """scikit-learn's parameter: exp(−γ‖x − z‖²)."""
        return 1 / (2 * self.sigma**2)

    def problem(self) -> ko.Problem:
        theta = ko.Theta(self.kernel, self.outputs)
        predictions = [theta(rows) for rows in (self.X, *self.more)]
        objective, constraints = self.said(self, ko.sum_squares(theta), *predictions)
        return ko.Problem(cp.Minimize(objective), constraints)


@dataclass(frozen=True)
class Answer:
    """Seconds, and the objective attained (None where the peer solves another problem)."""

    seconds: float
    objective: float | None = None


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


# ---------------------------------------------------------------- the reduced problem


def gaussian_gram(X: Array, sigma: float) -> Array:
    """Q by one matrix product."""
    squares = np.einsum("ij,ij->i", X, X)
    Q = X @ X.T
    Q *= -2
    Q += squares[:, None]
    Q += squares
    np.clip(Q, 0.0, None, out=Q)
    Q *= -1 / (2 * sigma**2)
    return np.exp(Q, out=Q)


def reduced_factor(X: Array, sigma: float, rank: int) -> Array:
    """B (N×rank) with Q ≈ BBᵀ by pivoted Cholesky."""
    C, order, found, _ = dpstrf(gaussian_gram(X, sigma).T, tol=1e-13, lower=1, overwrite_a=1)
    B = np.empty((len(X), min(rank, found)), order="F")
    B[order - 1] = np.tril(C[:, : B.shape[1]])
    return B


def by_hand(tol: float) -> Callable[..., Answer]:
    """A factor of the rank that we used, cvxpy with one u == B @ w, and Clarabel; all-in."""

    def run(s: Statement, ours: Any) -> Answer:
        start = perf_counter()
        B = reduced_factor(np.concatenate([s.X, *s.more]), s.sigma, ours.rank)
        columns = () if s.outputs is None else (s.outputs,)
        u, w = cp.Variable((len(B), *columns)), cp.Variable((B.shape[1], *columns))
        ends = np.cumsum([0, len(s.X), *map(len, s.more)])
        predictions = [u[i:j] for i, j in pairwise(ends)]
        objective, constraints = s.said(s, cp.sum_squares(w), *predictions)
        problem = cp.Problem(cp.Minimize(objective), [u == B @ w, *constraints])
        problem.solve("CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        seconds = perf_counter() - start
        if w.value is None:
            raise cp.error.SolverError(f"{problem.status} by hand")
        u.value = B @ w.value  # what this θ really predicts
        return Answer(seconds, float(objective.value))

    return run


def rehline(tol: float) -> Callable[..., Answer]:
    """Coordinate descent on the dual of C·Σ hinge + ½‖w‖², given B: C = 1/2λ."""

    def run(s: Statement, ours: Any) -> Answer:
        from rehline import plqERM_Ridge

        B = np.ascontiguousarray(reduced_factor(s.X, s.sigma, ours.rank))
        model = plqERM_Ridge(loss={"name": "svm"}, C=1 / (2 * s.lam), tol=tol, max_iter=EPOCHS)
        start = perf_counter()
        model.fit(B, s.y)
        seconds = perf_counter() - start
        w = np.ravel(model.coef_)
        return Answer(seconds, float(np.clip(1 - s.y * (B @ w), 0, None).sum() + s.lam * w @ w))

    return run


def lbfgs(tol: float) -> Callable[..., Answer]:
    """L-BFGS-B on the logistic objective in (w, b), given B, and told when its gap is `tol`.

    It could not know: it stops where our certified bounds say that it may.
    """

    def run(s: Statement, ours: Any) -> Answer:
        B = reduced_factor(s.X, s.sigma, ours.rank)
        enough = max(ours.upper, ours.lower + tol * ours.unit)

        def logistic(x: Array) -> tuple[float, Array]:
            w, margins = x[:-1], s.y * (B @ x[:-1] + x[-1])
            slopes = -s.y * expit(-margins)
            value = np.logaddexp(0.0, -margins).sum() + s.lam * w @ w
            return float(value), np.append(B.T @ slopes + 2 * s.lam * w, slopes.sum())

        def told(intermediate_result: Any) -> None:
            if intermediate_result.fun <= enough:
                raise StopIteration

        options = {"maxiter": 100_000, "maxfun": 100_000, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
        x0 = np.zeros(B.shape[1] + 1)
        start = perf_counter()
        found = minimize(logistic, x0, jac=True, method="L-BFGS-B", options=options, callback=told)
        return Answer(perf_counter() - start, float(found.fun))

    return run


# ---------------------------------------------------------------- scikit-learn


def svc(tol: float) -> Callable[..., Answer]:
    """Hinge + λ‖θ‖² with intercept: C = 1/2λ."""

    def run(s: Statement, _: Any) -> Answer:
        model = SVC(C=1 / (2 * s.lam), gamma=s.gamma, tol=tol, cache_size=CACHE)
        seconds = _seconds(lambda: model.fit(s.X, s.y))
        f, square = _expansion(s, model)
        return Answer(seconds, float(np.clip(1 - s.y * f, 0, None).sum() + s.lam * square))

    return run


def svr(tol: float, epsilon: float) -> Callable[..., Answer]:
    """ε-insensitive + λ‖θ‖² with intercept: C = 1/2λ."""

    def run(s: Statement, _: Any) -> Answer:
        model = SVR(C=1 / (2 * s.lam), epsilon=epsilon, gamma=s.gamma, tol=tol, cache_size=CACHE)
        seconds = _seconds(lambda: model.fit(s.X, s.y))
        f, square = _expansion(s, model)
        return Answer(seconds, float(np.clip(np.abs(s.y - f) - epsilon, 0, None).sum() + s.lam * square))

    return run


def ridge(s: Statement, _: Any) -> Answer:
    """Σ(y − f)² + λ‖θ‖²: α = λ."""
    model = KernelRidge(alpha=s.lam, kernel="rbf", gamma=s.gamma)
    seconds = _seconds(lambda: model.fit(s.X, s.y))
    f = ko.Function(s.kernel, s.X, model.dual_coef_)(s.X)
    return Answer(seconds, float(np.sum((s.y - f) ** 2) + s.lam * model.dual_coef_ @ f))


def least_squares(s: Statement, _: Any) -> Answer:
    """The time that kernel ridge regression takes on the same rows: another loss, no objective to compare."""
    return Answer(_seconds(lambda: KernelRidge(alpha=s.lam, kernel="rbf", gamma=s.gamma).fit(s.X, s.y)))


def _expansion(s: Statement, model: Any) -> tuple[Array, float]:
    """Predictions at X, and ‖θ‖², of a fitted SVC or SVR."""
    c = model.dual_coef_[0]
    f = ko.Function(s.kernel, model.support_vectors_, c)(s.X)
    return f + model.intercept_[0], float(c @ f[model.support_])


def _seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


# ---------------------------------------------------------------- linear algebra


def newton_step(B: Array) -> float:
    """Seconds of BᵀB and its Cholesky factor: what no Newton iteration in w can do without."""

    def step() -> None:
        H = dsyrk(1.0, B, trans=1, lower=1)
        H[np.diag_indices_from(H)] += 1.0
        dpotrf(H, lower=1, overwrite_a=1)

    return _seconds(step)
