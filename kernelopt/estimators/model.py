"""Common parts of estimators: reading data, stating losses, solving, and storing the answer without the problem."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelopt.certificate import Certificate
from kernelopt.errors import (
    DataError,
    DataTypeError,
    KernelError,
    MemoryLimitError,
    NotPSDError,
    OptionError,
    SolverError,
)
from kernelopt.estimators.kernel_names import SPARSE_NAMES, NamesKernel, made
from kernelopt.estimators.sample import Sample, explained, merged, require_data, require_numbers, row_weights
from kernelopt.kernels import Kernel, Precomputed, as_kernel
from kernelopt.kernels.domains import ANYTHING, GAPPY, SPARSE, Anything, Domain, FrameRows, Indices
from kernelopt.kernels.sparse_rows import sparse_rows, stays_sparse
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.language.functions import Function
from kernelopt.language.smooth import SmoothLoss
from kernelopt.problem import Problem
from kernelopt.results.solution import Status, remedy_of
from kernelopt.support.checks import is_function_of_two, require_flag, require_number, shown
from kernelopt.support.types import Array, Ints

Loss = Callable[[Any, Any], Any]
HALF = 0.5  # α for C = 1, the default of SVC, SVR and LogisticRegression
FLAGS = {"center", "fit_intercept", "fit_inverse_transform", "non_crossing"}  # parameters that are True or False
# Rows with a multiplier above this share of the largest are support vectors. Interior points end at the default tol
# with multipliers of 1e-8 at rows that have none.
SUPPORT = 1e-6
FLOATS = [np.float64, np.float32]  # dtypes of X that are left as they are; others become the first


class KernelModel(NamesKernel):
    """An estimator with predictions θᵀF(x) + b, for a vector or matrix θ."""

    alpha: Any = None
    tol: Any
    solve_options: Any

    # ---------------------------------------------------------------- data

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = True, **checks: Any) -> Any:
        """X, or X and y, checked as scikit-learn does; the kernel checks points that are not numbers."""
        for name in FLAGS & set(vars(self)):
            require_flag(getattr(self, name), name)
        kernel = None if isinstance(self.kernel, str) else made(self.kernel)
        if kernel is not None and isinstance(kernel.domain, FrameRows):
            if checks.get("y_numeric"):
                require_numbers(y)
            return read_table(self, X, y, reset, kernel)
        require_data(X, "X")
        require_data(y, "y")
        if checks.get("y_numeric"):
            require_numbers(y)
        if self._needs_matrix or is_matrix(X):
            if kernel is not None and kernel.domain is GAPPY:
                checks["ensure_all_finite"] = "allow-nan"
                kernel.rows(X)  # which tells the columns of missing values that it refuses
            with explained("X"):
                found = validate_data(self, X, y, reset=reset, dtype=FLOATS, accept_sparse="csr", **checks)
            return (self._rows(found[0]), *found[1:]) if isinstance(found, tuple) else self._rows(found)
        return read_objects(self, X, y, reset, as_kernel(self.kernel).domain)

    def _rows(self, X: Any) -> Array:
        """X as an array, or the rows of a large sparse matrix where the kernel takes them."""
        takes = self.kernel in SPARSE_NAMES if isinstance(self.kernel, str) else as_kernel(self.kernel).domain is SPARSE
        tune = getattr(self, "tune", None)
        takes = takes and not (isinstance(tune, str) and tune == "columns")  # whose length scales divide columns
        return sparse_rows(X) if takes and stays_sparse(X) else dense(X)

    def _sample(
        self, X: Any, y: Array | None, sample_weight: Any, of_classes: Array | None = None
    ) -> tuple[Sample, Kernel, Any]:
        """The rows to fit, their kernel, and the points that it takes.

        of_classes : weights of the rows' classes, which multiply those of rows, and which the kernel does not count
        """
        weights, of = row_weights(sample_weight, len(X)), None if self._is_precomputed else X
        if of_classes is None:
            sample = merged(of, y, weights)
            return sample, *self._points(X, sample)
        counted = merged(of, y, np.where(of_classes > 0, weights, 0.0))
        sample = Sample(counted.rows, counted.weights * of_classes[counted.rows])
        return sample, *self._points(X, counted)

    def _points(self, X: Any, sample: Sample) -> tuple[Kernel, Any]:
        """The kernel, and rows of X as the points that it takes."""
        if self._is_precomputed:
            if X.shape[0] != X.shape[1]:
                raise DataError(
                    f"Expected a square kernel matrix for kernel={self.kernel!r}; got shape {X.shape}. Precomputed "
                    "kernel values have a row and a column for each training point."
                )
            return Precomputed(X[np.ix_(sample.rows, sample.rows)]), np.arange(len(sample.rows))
        points = take(X, sample.rows)
        kernel = self._chosen_kernel(points, sample.weights)
        if isinstance(kernel.domain, Indices):
            raise DataTypeError(
                f"Expected a kernel of points; got {kernel!r}, whose points are row numbers. Write "
                'kernel="precomputed" and fit(Q, y).'
            )
        return kernel, points

    # ---------------------------------------------------------------- the problem

    def _objective(self, terms: Any, sample: Sample, theta: Theta) -> cp.Minimize:
        """Σᵢ wᵢ ℓᵢ + α‖θ‖², or Σₖ αₖ‖θₖ‖² for the outputs k; without a norm where α is 0."""
        alpha = self._strength(theta.outputs)
        norm: Any = 0.0
        if np.ndim(alpha):
            norm = sum_squares(theta @ np.diag(np.sqrt(alpha)))
        elif alpha > 0:
            norm = alpha * sum_squares(theta)
        return cp.Minimize(cp.sum(sample.weighted(terms)) + norm)

    def _strength(self, outputs: int | None = None) -> float | Array:
        """α, or 1/(2C) where C is given, or `_usual` for neither; a number, or one for each output."""
        C, alpha = getattr(self, "C", None), self.alpha
        if C is not None and alpha is not None:
            raise OptionError(f"Expected alpha or C, where alpha is 1/(2C); got both, {alpha!r} and {C!r}.")
        if C is not None:
            return 1 / (2 * positive(self, "C"))
        return self._usual() if alpha is None else self._alpha(outputs)

    def _usual(self) -> float:
        """α where neither α nor C is given."""
        return HALF

    def _alpha(self, outputs: int | None) -> float | Array:
        """The parameter alpha. Raises OptionError."""
        return positive(self, "alpha")

    def _stronger(self) -> str | None:
        """How to penalize ‖θ‖² more, in words; None for an estimator without such a parameter."""
        if getattr(self, "C", None) is not None:
            return "lower C"
        names = vars(self)
        return "take larger alphas" if "alphas" in names else "raise alpha" if "alpha" in names else None

    # ---------------------------------------------------------------- the answer

    def _keep(  # noqa: PLR0917
        self, kernel: Kernel, points: Any, sample: Sample, functions: Sequence[Any], nu: Array | None = None,
        fitted: Sequence[Ints] | None = None,
    ) -> None:  # fmt: skip
        """Store θ as coefficients of training rows, and as a function of points; several θs become its outputs.

        nu : multipliers of the fitted rows, (n,) or (n, outputs), for `support_` and `dual_coef_`
        fitted : the rows of the sample that each θ was fitted to; None for all
        """
        functions = [f.trimmed() for f in functions]
        pivots, coefficients, function = functions[0].pivots, functions[0].pivot_coefficients, functions[0]
        if len(functions) > 1:
            pivots, coefficients = side_by_side(functions, fitted)
            function = None if self._is_precomputed else Function(kernel, take(points, pivots), coefficients)
        self.pivots_ = sample.rows[pivots]
        self.coefficients_ = np.array(coefficients)
        self.function_ = None if self._is_precomputed else function
        self._keep_support(sample, nu)

    def _keep_support(self, sample: Sample, nu: Array | None) -> None:
        """Store the rows with a multiplier, and θ = Σ dual_coef_·F over these."""
        for name in {"support_", "dual_coef_"} & set(vars(self)):
            delattr(self, name)
        if nu is None or not nu.size:
            return
        columns = nu.reshape(len(nu), -1)
        outputs = None if nu.ndim == 1 else nu.shape[1]
        alpha = np.atleast_1d(self._strength(outputs))
        if not alpha.all():  # θ is no multiple of the multipliers
            order = np.argsort(self.pivots_, kind="stable")
            self.support_ = self.pivots_[order]
            self.dual_coef_ = self.coefficients_.reshape(len(order), -1)[order].T
            return
        sizes = np.abs(columns)
        support = np.flatnonzero((sizes > SUPPORT * sizes.max(axis=0, initial=0.0)).any(axis=1))
        order = np.argsort(sample.rows[support], kind="stable")
        support = support[order]
        self.support_ = sample.rows[support]
        self.dual_coef_ = columns[support].T / (2 * alpha[:, None])

    def _theta_at(self, X: Any) -> Array:
        """θᵀF(xᵢ) at new points, or from their kernel values with the training points."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            found = X[:, self.pivots_] @ self.coefficients_ if self.function_ is None else self.function_(X)
        if not np.isfinite(found).all():
            first = int(np.argmin(np.isfinite(found).reshape(len(found), -1).all(axis=1)))
            raise KernelError(
                f"Expected predictions in the range of double precision; that at point {first} is not. Change the "
                "units of X or of the kernel."
            )
        return found


class HalfNorm(KernelModel):
    """An estimator whose objective has ½‖θ‖², so that θ is the sum of its multipliers times F."""

    def _strength(self, outputs: int | None = None) -> float:
        return HALF


def dense(X: Any) -> Any:
    """X with a sparse matrix as an array."""
    return X.toarray() if sp.issparse(X) else X


def _remedy(estimator: Any, status: Status, certificate: Certificate | None) -> str:
    """What to do about a status, by parameters of the estimator."""
    if not isinstance(estimator, KernelModel):  # of a problem that the user states
        return f"{remedy_of(status, certificate)} Options of solve go into solve_options.".lstrip()
    stronger = estimator._stronger()
    if status == Status.OPTIMAL_INACCURATE and certificate is None:
        return "No certificate tells how near this is to the optimum: solve_options has certify=False."
    if status == Status.OPTIMAL_INACCURATE:
        ways = [
            "bring the columns of X" + (", and y," if hasattr(estimator, "predict") else "") + " to similar scales",
            *([stronger] if stronger else []),
            'give solve_options a smaller "rank_tol", a larger "max_rank", or another "solver"',
        ]
        return (
            "The certified gap is larger than tol, or does not hold for the full kernel: see certificate_. "
            f"You can {', '.join(ways[:-1])}, or {ways[-1]}."
        )
    if status in (Status.NOT_ATTAINED, Status.UNBOUNDED):
        meaning = "The objective has no minimum: the loss decreases in some direction without end."
        return f"{meaning} You can {stronger}." if stronger else meaning
    if status == Status.USER_LIMIT:
        return (
            "A limit was reached before an answer could be verified. Raise the one that solve_options has: "
            '"time_limit", "memory_limit" or "max_rank".'
        )
    return status.remedy


def iterations(problem: Problem) -> int | None:
    """The number of iterations, or of linear systems, of the solver."""
    stats = problem.solver_stats
    return None if stats is None else stats.num_iters


def read_objects(estimator: Any, X: Any, y: Any, reset: bool, domain: Domain = ANYTHING) -> Any:
    """A list of points of any kind, and y as an array; the kernel checks the points.

    Of a table with one column the points are its entries. Raises DataTypeError for one with several.
    """
    if isinstance(domain, Anything):
        X = domain.of_column(X, type(estimator).__name__)
    points = list(X)
    if reset:  # such points have no columns
        for name in {"n_features_in_", "feature_names_in_"} & set(vars(estimator)):
            delattr(estimator, name)
    return points if isinstance(y, str) else (points, targets(estimator, points, y))


def targets(estimator: Any, points: Any, y: Any) -> Array:
    """y as an array with an entry for each point. Raises DataError without y."""
    if y is None:
        raise DataError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    check_consistent_length(points, y)
    return np.asarray(y)


def read_table(estimator: Any, X: Any, y: Any, reset: bool, kernel: Kernel) -> Any:
    """The rows of a frame that a kernel with columns by name takes, and y as an array.

    As for scikit-learn's ColumnTransformer, the columns that are read must be there, in any order and beside others.
    """
    points = kernel.rows(X)
    if reset and hasattr(X, "columns"):
        validate_data(estimator, X, reset=True, skip_check_array=True)
    if isinstance(y, str):
        return points
    require_data(y, "y")
    return points, targets(estimator, points, y)


def is_matrix(X: Any) -> bool:
    """Whether X, of any type, has rows of numbers (complex ones too, which are then refused)."""
    if sp.issparse(X):
        return True
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        return False
    return array.ndim == 2 and array.dtype.kind in "fiubc"


def take(points: Any, rows: Any) -> Any:
    """Some of the points, of an array or a list."""
    return points[rows] if isinstance(points, np.ndarray) else [points[i] for i in rows]


def options_of(estimator: Any) -> dict[str, Any]:
    """The estimator's options of `Problem.solve`. Raises OptionError where they are no dict."""
    options = estimator.solve_options
    named = isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
    if options is not None and not named:
        raise OptionError(f"Expected solve_options to be a dict of options of Problem.solve; got {shown(options)}.")
    return dict(options or {})


def solved(estimator: Any, problem: Problem, **defaults: Any) -> Certificate | None:
    """Solve with the estimator's options, and return the certificate.

    Raises SolverError if the solve gives no θ, OptionError if `solve_options` is not a dict.
    Warns if θ is not optimal.
    """
    options = options_of(estimator)
    try:
        problem.solve(**{**defaults, **options})
    except NotPSDError as error:
        error.add_note('An estimator passes options to solve: solve_options={"indefinite": "clip"}.')
        raise
    except MemoryLimitError as error:
        error.add_note('An estimator passes options to solve: solve_options={"memory_limit": bytes}.')
        raise
    status = Status(str(problem.status))
    remedy = _remedy(estimator, status, problem.certificate)
    if any(theta.value is None for theta in problem.thetas()):
        raise SolverError(f"The problem of {type(estimator).__name__} is {status}. {remedy}")
    if status not in (Status.OPTIMAL, Status.LOCALLY_OPTIMAL):
        told = f"The fit of {type(estimator).__name__} is {status}. {remedy}"
        warnings.warn(told, ConvergenceWarning, stacklevel=3)
    estimator.n_iter_ = iterations(problem)
    return portable(problem.certificate)


def portable(certificate: Certificate | None) -> Certificate | None:
    """A certificate without its multipliers, which refer to the problem and would keep it in memory."""
    return None if certificate is None else replace(certificate, evidence=None, prover=None, distance={})


def positive(estimator: Any, name: str) -> float:
    """A parameter that is a number > 0. Raises OptionError."""
    value = getattr(estimator, name)
    require_number(value, name, "a number > 0", lambda number: number > 0)
    return float(value)


def loss_terms(loss: Any, named: Mapping[str, Loss], y: Any, f: Any) -> Any:
    """ℓ(yᵢ, fᵢ), an entry per row (and output), from a name, a `SmoothLoss`, or a function of (y, f) returning either.

    Raises OptionError for an unknown name, DataError for a loss that is not elementwise.
    """
    if isinstance(loss, str):
        if loss not in named:
            raise OptionError(f"Expected loss to be one of {', '.join(named)}, or a function (y, f); got {loss!r}.")
        return named[loss](y, f)
    if not isinstance(loss, SmoothLoss) and not is_function_of_two(loss):
        raise OptionError(f"Expected loss to be one of {', '.join(named)}, or a function (y, f); got {loss!r}.")
    terms = loss if isinstance(loss, SmoothLoss) else loss(y, f)
    if isinstance(terms, SmoothLoss):
        terms = terms(f, y)
    if not isinstance(terms, cp.Expression) or terms.shape not in (f.shape, f.shape[:1]):
        got = f"shape {terms.shape}" if isinstance(terms, cp.Expression) else type(terms).__name__
        raise DataError(
            f"Expected loss(y, f) to return a cvxpy expression with an entry for each row, shape {f.shape}; got {got}. "
            "Leave the sum to the estimator, which weighs the rows."
        )
    return terms


def side_by_side(functions: Sequence[Any], fitted: Sequence[Ints] | None = None) -> tuple[Array, Array]:
    """All pivots of several fitted functions, and a column of coefficients per function, 0 at pivots of others only.

    If no function has a pivot, row 0 is the only one, as a `Function` needs a center. `fitted` has the rows that the
    pivots of each function number; None for all.
    """
    own = [f.pivots if fitted is None else fitted[k][f.pivots] for k, f in enumerate(functions)]
    pivots = np.unique(np.concatenate(own))
    pivots = pivots if len(pivots) else np.zeros(1, dtype=np.intp)
    coefficients = np.zeros((len(pivots), len(functions)))
    for k, f in enumerate(functions):
        coefficients[np.searchsorted(pivots, own[k]), k] = f.pivot_coefficients
    return pivots, coefficients
