"""Kernels and their parameters, chosen by the data before any problem is solved: alignment and marginal likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, log, pi
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize, nnls

from kernelopt.errors import DataError, KernelError, NotPSDError, OptionError
from kernelopt.factorization import memory
from kernelopt.feature_space import center, target_alignment
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.kernels.domains import check_finite, real_array
from kernelopt.support.checks import generator, is_integer, is_real, require_kind, require_number, shown
from kernelopt.support.types import Array

NOISE = "noise"
# Where a search stops: absolute changes of log(parameter) and of the log-likelihood, in nats. Each further step takes
# O(N³).
CONVERGED = 1e-6
# Relative to the largest weight, in units of the normalized centered matrices: kernels with less are left out, as
# rounding of the nonnegative least squares.
NOTHING = 1e-8
# The first step of a search, as a share of the interval of log(parameter). Longer steps explore more of the interval,
# shorter ones stay near the start.
STEP = 0.25
# The loss where Q + noise·I is not positive definite. It is finite, since the search subtracts losses.
WORST = float(np.finfo(float).max)
NUMBER = 8  # bytes of a number in double precision


def kernel_alignment(kernel: Any, X: Any, y: Any) -> float:
    """How well a kernel fits targets, before any fit: the centered alignment of its matrix with yyᵀ,

        ⟨Q̃, ỹỹᵀ⟩ / (‖Q̃‖·‖ỹỹᵀ‖),   Q̃ = HQH, ỹ = Hy, H = I − 11ᵀ/N,

    in [0, 1] for positive semidefinite kernels; the larger, the better (Cortes, Mohri and Rostamizadeh, JMLR 13, 2012).
    It does not depend on the scales of the kernel and of y. It takes O(N²) operations, without a solve.

    Parameters
    ----------
    kernel : Kernel, or an object that `as_kernel` accepts
    X : N points, as the kernel takes them
    y : array (N,) or (N, K)
        Targets, or labels ±1; for classes a column of 0 and 1 for each (YYᵀ in place of yyᵀ).

    Returns
    -------
    float
        0 where all y are equal, or all points have the same features.

    Raises
    ------
    DataError, DataTypeError
        For y of another length, or not finite numbers.
    MemoryLimitError
        Where the matrix does not fit.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> kernels = [ko.kernels.Gaussian(sigma=s) for s in (0.01, 1.0, 100.0)]
    >>> max(kernels, key=lambda kernel: ko.kernel_alignment(kernel, X, np.sin(X[:, 0])))
    Gaussian(sigma=1.0)
    """
    kernel = as_kernel(kernel)
    rows = kernel.rows(X)
    memory.require(3 * NUMBER * len(rows) ** 2, "The kernel matrix", None)
    return target_alignment(kernel._matrix(rows, None), _targets(y, len(rows)), centered=True)


def aligned_kernel(kernels: Sequence[Any], X: Any, y: Any) -> Kernel:
    """The sum Σₖ μₖκₖ, μ ≥ 0, of largest centered alignment with yyᵀ; kernels that do not help are left out.

    With Q_k centered, v minimizes vᵀMv − 2vᵀa over v ≥ 0, Mₖₗ = ⟨Q_k, Q_l⟩, aₖ = ⟨Q_k, yyᵀ⟩; μ is the multiple of v for
    which the mean diagonal of the sum's (uncentered) matrix is 1 (Cortes, Mohri and Rostamizadeh, JMLR 13, 2012:
    alignf).

    Parameters
    ----------
    kernels : sequence of kernels, on the same kind of points
    X : N points
    y : array (N,) or (N, K), as in `kernel_alignment`

    Returns
    -------
    Kernel
        `2.3 * k₁ + 0.4 * k₃`, say.

    Raises
    ------
    DataError, DataTypeError, MemoryLimitError
        As for `kernel_alignment`.
    OptionError
        Without a kernel.
    KernelError
        Where no kernel is aligned with y at all.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(-3, 3, 50)[:, None]
    >>> kernels = [ko.kernels.Linear(), ko.kernels.Gaussian(sigma=1.0)]
    >>> ko.aligned_kernel(kernels, X, X[:, 0])
    0.32... * Linear()
    """
    require_kind(kernels, (list, tuple), "kernels", "a list of kernels")
    known = [as_kernel(kernel) for kernel in kernels]
    if not known:
        raise OptionError("Expected at least one kernel; got none.")
    Y = _targets(y, len(known[0].rows(X)))
    Y = Y - Y.mean(axis=0)
    memory.require((len(known) + 2) * NUMBER * len(Y) ** 2, "The kernel matrices", None, "Use fewer rows or kernels")
    matrices = [center(kernel(X)) for kernel in known]
    sizes = [float(np.linalg.norm(Q)) for Q in matrices]
    unit = np.array([1 / size if size > 0 else 0.0 for size in sizes])
    M = np.array([[np.sum(Q * P) for P in matrices] for Q in matrices]) * unit[:, None] * unit
    a = np.array([np.sum(Y * (Q @ Y)) for Q in matrices]) * unit / (np.linalg.norm(Y.T @ Y) or 1.0)
    # With M = RᵀR and Rᵀb = a, vᵀMv − 2vᵀa is ‖Rv − b‖² up to a constant. M is singular where kernels depend on each
    # other linearly; its eigenvalues that are rounding are left out of the inverse.
    values, vectors = np.linalg.eigh(M)
    roots = np.sqrt(np.clip(values, 0.0, None))
    inverse = np.where(values > np.finfo(float).eps * len(M) * values[-1], 1 / np.where(roots > 0, roots, 1.0), 0.0)
    v = nnls(roots[:, None] * vectors.T, inverse * (vectors.T @ a))[0]
    v = np.where(v > NOTHING * v.max(), v, 0.0) * unit
    if not v.any():
        raise KernelError("Expected a kernel that is aligned with y; none is. Are all y equal?")
    mean = sum(float(weight * kernel.diag(X).mean()) for weight, kernel in zip(v, known, strict=True) if weight)
    terms = [float(weight / mean) * kernel for weight, kernel in zip(v, known, strict=True) if weight > 0]
    total: Kernel = terms[0]
    for term in terms[1:]:
        total += term
    return total


def log_marginal_likelihood(kernel: Any, X: Any, y: Any, noise: float) -> float:
    """log p(y) where y = f(X) + ε, f a Gaussian process of covariance κ and mean 0, ε of variance `noise`,

        −½ yᵀ(Q + noise·I)⁻¹y − ½ log det(Q + noise·I) − ½N log 2π,

    summed over the columns of y. The mean of f given y minimizes ‖y − f(X)‖² + noise·‖θ‖², so that this judges ridge
    regression with λ = noise. There is no intercept: subtract the mean from y first.

    Parameters
    ----------
    kernel : Kernel, or an object that `as_kernel` accepts
    X : N points
    y : array (N,) or (N, K)
    noise : float > 0
        A variance, in units of y², as is the kernel.

    Returns
    -------
    float
        In nats.

    Raises
    ------
    DataError, DataTypeError
        For y of another length, or not finite numbers.
    OptionError
        For a noise that is not a positive number.
    NotPSDError
        Where Q + noise·I is not positive definite.
    MemoryLimitError
        Before an N×N matrix is formed that would not fit.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=50)
    >>> likelihoods = [
    ...     ko.log_marginal_likelihood(ko.kernels.Gaussian(sigma=s), X, y, noise=0.01)
    ...     for s in (0.1, 1, 10)
    ... ]
    >>> np.round(likelihoods)
    array([ -45.,   34., -387.])
    """
    kernel = as_kernel(kernel)
    rows = kernel.rows(X)
    if not is_real(noise) or not noise > 0:
        raise OptionError(f"Expected noise to be a number > 0, a variance; got {noise!r}.")
    N, Y = len(rows), _targets(y, len(rows))
    memory.require(2 * NUMBER * N**2, "The kernel matrix", None)
    Q = kernel._matrix(rows, None)
    Q[np.diag_indices(N)] += float(noise)
    try:
        L = sl.cholesky(Q, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError as error:
        raise NotPSDError(
            f"Expected Q + noise·I to be positive definite; {kernel!r} with noise {noise:g} is not, on these points. "
            "Raise noise, or take a positive semidefinite kernel."
        ) from error
    z = sl.solve_triangular(L, Y, lower=True)
    return float(-0.5 * np.sum(z**2) - Y.shape[1] * (np.sum(np.log(np.diag(L))) + 0.5 * N * log(2 * pi)))


class LikelyKernel(NamedTuple):
    """A kernel and a noise, and their log marginal likelihood."""

    kernel: Kernel
    noise: float
    log_marginal_likelihood: float


def maximize_likelihood(  # noqa: PLR0917
    kernel: Any, X: Any, y: Any, bounds: Mapping[str, tuple[float, float]], noise: float = 1.0,
    n_init: int = 1, random_state: int | np.random.Generator | None = 0,
) -> LikelyKernel:  # fmt: skip
    """The parameters of a kernel, and the noise, that maximize `log_marginal_likelihood`.

    L-BFGS-B on the logarithms of the parameters, within bounds, with the gradient

        ∂/∂p = ½ Σₖ αₖᵀ ∂Q αₖ − ½K tr((Q + noise·I)⁻¹ ∂Q),   α = (Q + noise·I)⁻¹y,

    by the kernels' own rules (for kernels without one, Nelder and Mead's method); O(N³) per step, whatever the number
    of parameters. It finds a local maximum: the present values are the first start, and `n_init` asks for more, drawn
    at random.

    Parameters
    ----------
    kernel : Kernel
    X : N points
    y : array (N,) or (N, K)
    bounds : mapping of names to (low, high), 0 < low < high
        Parameters as `kernel.get_params()` names them (`"sigma"`, `"k1__sigma"`), and "noise", unless it is to stay as
        given. Others keep their values.
    noise : float > 0
        The variance, or the start of the search for it.
    n_init : int ≥ 1
    random_state : seed, or generator, of other starts

    Returns
    -------
    LikelyKernel
        (kernel, noise, log_marginal_likelihood). For ridge regression with that kernel, λ = noise.

    Raises
    ------
    KernelError
        For names of parameters that the kernel does not have, or values that it does not take.
    OptionError
        For bounds that are not pairs of positive numbers in increasing order.

    Notes
    -----
    Errors of `log_marginal_likelihood` are raised too.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=50)
    >>> found = ko.maximize_likelihood(
    ...     ko.kernels.Gaussian(sigma=1.0), X, y, {"sigma": (0.1, 10), "noise": (1e-4, 1)}
    ... )
    >>> round(found.kernel.sigma, 1), round(found.noise, 2)
    (1.9, 0.01)
    """
    kernel = as_kernel(kernel)
    low, high = _log_bounds(bounds)
    require_number(noise, "noise", "a number > 0", lambda value: value > 0)
    noise = float(noise)
    if not is_integer(n_init) or n_init < 1:
        raise OptionError(f"Expected n_init to be an integer ≥ 1; got {shown(n_init)}.")

    def at(logs: Array) -> tuple[Kernel, float]:
        values = {name: float(np.exp(x)) for name, x in zip(bounds, logs, strict=True)}
        its_noise = values.pop(NOISE, noise)
        return kernel.with_params(**values), its_noise

    parameters = {name: cp.Parameter(pos=True) for name in bounds if name != NOISE}

    def with_slopes(logs: Array) -> tuple[float, Array]:
        """The loss and its gradient; WORST, and a gradient of 0, where there is too little noise."""
        tried, its_noise = at(logs)
        for name, parameter in parameters.items():
            parameter.value = tried.get_params()[name]
        found = _slopes(kernel.with_params(**parameters), parameters, X, y, its_noise)
        if found is None:
            return WORST, np.zeros(len(logs))
        values = [float(np.exp(x)) for x in logs]
        return -found[0], -np.array([found[1][name] for name in bounds]) * values

    def loss(logs: Array) -> float:
        tried, its_noise = at(logs)
        try:
            return -log_marginal_likelihood(tried, X, y, its_noise)
        except NotPSDError:  # too little noise for a matrix that is nearly singular
            return WORST

    present = {**kernel.get_params(), NOISE: noise}
    unknown = [name for name in bounds if name not in present]
    if unknown:
        raise KernelError(
            f"Expected bounds of parameters of {kernel!r}, which are {', '.join(present)}; got {shown(unknown[0])}."
        )
    random = generator(random_state)
    starts = [np.clip(np.log([float(present[name]) for name in bounds]), low, high)]
    starts += [random.uniform(low, high) for _ in range(n_init - 1)]
    try:
        searched = [_by_gradient(with_slopes, start, low, high) for start in starts]
        stuck = all(result.fun >= WORST for result in searched)
    except KernelError:  # no rule for a derivative, or a number that takes no parameter
        stuck = True
    if stuck:
        searched = [_nelder_mead(loss, start, low, high) for start in starts]
    best = min(searched, key=lambda result: float(result.fun))
    chosen = at(best.x)
    return LikelyKernel(*chosen, log_marginal_likelihood(chosen[0], X, y, chosen[1]))


def _by_gradient(loss: Callable[[Array], tuple[float, Array]], start: Array, low: Array, high: Array) -> Any:
    """A local minimum within bounds by L-BFGS-B."""
    options = {"ftol": 1e-12, "gtol": CONVERGED, "maxfun": 1000}
    bounds = list(zip(low, high, strict=True))
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def _slopes(
    kernel: Kernel, parameters: Mapping[str, cp.Parameter], X: Any, y: Any, noise: float
) -> tuple[float, dict[str, float]] | None:
    """The log marginal likelihood and its derivatives by name; None where Q + noise·I is not positive definite."""
    rows = kernel.rows(X)
    N, Y = len(rows), _targets(y, len(rows))
    memory.require(4 * NUMBER * N**2, "The kernel matrix and its inverse", None)
    Q = kernel._matrix(rows, None)
    Q[np.diag_indices(N)] += noise
    try:
        factor = sl.cho_factor(Q, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError:
        return None
    alpha, K = sl.cho_solve(factor, Y), Y.shape[1]
    inverse = sl.cho_solve(factor, np.eye(N))
    value = -0.5 * np.sum(Y * alpha) - K * (np.sum(np.log(np.diag(factor[0]))) + 0.5 * N * log(2 * pi))
    # ½(ααᵀ − K·inverse) = LRᵀ
    L, R = np.hstack([0.5 * alpha, -0.5 * K * inverse]), np.hstack([alpha, np.eye(N)])
    by_parameter = kernel_gradient(kernel, rows, rows, L, R)
    slopes = {name: float(by_parameter[p]) for name, p in parameters.items()}
    slopes[NOISE] = 0.5 * float(np.sum(alpha**2) - K * np.trace(inverse))
    return float(value), slopes


def _nelder_mead(loss: Callable[[Array], float], start: Array, low: Array, high: Array) -> Any:
    """A local minimum within bounds; each first step goes towards the farther end of its interval."""
    steps = np.where(start - low > high - start, -1.0, 1.0) * STEP * (high - low)
    simplex = np.vstack([start, start + np.diag(steps)])
    options = {"xatol": CONVERGED, "fatol": CONVERGED, "maxfev": 1000 * len(start), "initial_simplex": simplex}
    return minimize(loss, start, method="Nelder-Mead", bounds=list(zip(low, high, strict=True)), options=options)


def _log_bounds(bounds: Any) -> tuple[Array, Array]:
    """Logarithms of the ends. Raises OptionError for anything but positive intervals."""
    pairs = list(bounds.values()) if isinstance(bounds, Mapping) else []
    good = [
        isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_real, pair))
        and 0 < pair[0] < pair[1] < inf
        for pair in pairs
    ]  # fmt: skip
    if not good or not all(good):
        raise OptionError(f"Expected bounds as {{name: (low, high)}} with 0 < low < high; got {bounds!r}.")
    ends = np.array(pairs, dtype=float)
    return np.log(ends[:, 0]), np.log(ends[:, 1])


def _targets(y: Any, N: int) -> Array:
    """y as (N, K). Raises DataError."""
    Y = real_array(y, "y")
    check_finite(Y, "y")
    if Y.ndim not in (1, 2) or len(Y) != N:
        raise DataError(f"Expected y of shape ({N},) or ({N}, K), an entry for each point; got shape {Y.shape}.")
    return Y.reshape(N, -1)
