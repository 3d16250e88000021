"""The kernel of an estimator: one of `ko.kernels`, a function, or a name with parameters as in scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from kernelopt.errors import DataError, KernelError, OptionError
from kernelopt.kernels import Cosine, Gaussian, Kernel, Laplacian, Linear, Polynomial, Sigmoid, as_kernel
from kernelopt.kernels.domains import SPARSE, Vectors, may_miss
from kernelopt.kernels.sparse_rows import is_sparse, matrix, width
from kernelopt.support.checks import is_real, shown
from kernelopt.support.keywords import Hinting
from kernelopt.support.types import Array
from kernelopt.support.undoing import undone_by_errors

PRECOMPUTED = "precomputed"
# Kernels by scikit-learn's names, from gamma, degree and coef0.
NAMED: dict[str, Callable[[float, int, float], Kernel]] = {
    "linear": lambda gamma, degree, coef0: Linear(),
    "poly": lambda gamma, degree, coef0: Polynomial(degree=degree, scale=gamma, offset=coef0),
    "polynomial": lambda gamma, degree, coef0: Polynomial(degree=degree, scale=gamma, offset=coef0),
    "rbf": lambda gamma, degree, coef0: Gaussian(sigma=(2 * gamma) ** -0.5),
    "laplacian": lambda gamma, degree, coef0: Laplacian(sigma=1 / gamma),
    "sigmoid": lambda gamma, degree, coef0: Sigmoid(scale=gamma, offset=coef0),
    "cosine": lambda gamma, degree, coef0: Cosine(),
}


# Those that take rows of a sparse matrix.
SPARSE_NAMES = {name for name, made in NAMED.items() if made(0.5, 3, 1.0).domain is SPARSE}


@np.errstate(over="ignore")
def _of_array(X: Array, shares: Array) -> tuple[float, float, float]:
    """The variance of all entries, with a share for those of each row; the least and the largest entry."""
    shares = np.broadcast_to(shares[:, None], X.shape)
    return float(np.sum(shares * (X - np.sum(shares * X)) ** 2)), float(X.min()), float(X.max())


@np.errstate(over="ignore")
def _of_sparse(X: Array, shares: Array) -> tuple[float, float, float]:
    """The same for sparse rows, most entries of which are 0."""
    A = matrix(X)
    each = np.repeat(shares, np.diff(A.indptr))
    mean, zeros = float(each @ A.data), width(X) * float(shares.sum()) - float(each.sum())
    variance = float(each @ (A.data - mean) ** 2) + zeros * mean**2
    return variance, min(float(A.data.min(initial=0.0)), 0.0), max(float(A.data.max(initial=0.0)), 0.0)


def _undone_by_errors(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` with the attributes of before where it raises: a fit that is refused leaves what it found."""

    @wraps(fit)
    def whole(self: Any, *args: Any, **data: Any) -> Any:
        before = dict(vars(self))

        def restore() -> None:
            vars(self).clear()
            vars(self).update(before)

        with undone_by_errors(restore):
            return fit(self, *args, **data)

    return whole


class Unmade:
    """A kernel with parameters that it does not take, between `set_params` and `fit`, which raises the error."""

    def __init__(self, base: Kernel, params: dict[str, Any], error: KernelError) -> None:
        self.base, self.params, self.error = base, params, error

    def __repr__(self) -> str:
        return f"{self.base!r} with {', '.join(f'{name}={shown(value)}' for name, value in self.params.items())}"

    def __sklearn_clone__(self) -> Self:
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Those of the kernel, with the new ones."""
        return self.base.get_params(deep) | self.params


def _with_params(kernel: Any, params: dict[str, Any]) -> Kernel | Unmade:
    """The kernel with some parameters changed, `Unmade` where it takes no such values. Raises KernelError for names."""
    known = kernel.params if isinstance(kernel, Unmade) else {}
    base = kernel.base if isinstance(kernel, Unmade) else as_kernel(kernel)
    try:
        return base.with_params(**known | params)
    except KernelError as error:
        if set(params) - set(base.get_params()):
            raise
        return Unmade(base, known | params, error)


def made(kernel: Any) -> Kernel:
    """A kernel from what an estimator has as one. Raises KernelError, also for parameters that were set before."""
    if isinstance(kernel, Unmade):
        raise kernel.error
    return as_kernel(kernel)


class ChoosesKernel(BaseEstimator, metaclass=Hinting):
    """An estimator with a parameter `kernel`, whose own parameters are set as `kernel__name`."""

    kernel: Any

    def __init_subclass__(cls, **options: Any) -> None:
        if "fit" in vars(cls):
            cls.fit = _undone_by_errors(cls.fit)
        super().__init_subclass__(**options)

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; `kernel__name` makes a kernel with that parameter changed, as kernels are immutable.

        A value that the kernel does not take is refused by `fit`, so that a search goes on without it.

        Raises OptionError for a kernel given by name, as its parameters are those of the estimator.
        """
        inside = {name.removeprefix("kernel__"): v for name, v in params.items() if name.startswith("kernel__")}
        plain = {name: v for name, v in params.items() if not name.startswith("kernel__")}
        kernel = plain.get("kernel", getattr(self, "kernel", None))
        if inside and isinstance(kernel, str):
            instead = f" Pass kernel=ko.kernels.{NAMED[kernel](0.5, 3, 1.0)!r}." if kernel in NAMED else ""
            raise OptionError(
                f"Expected a kernel of ko.kernels in order to set {', '.join(inside)}; got kernel={kernel!r}, "
                f"a name with the parameters gamma, degree and coef0.{instead}"
            )
        if inside:
            plain["kernel"] = _with_params(kernel, inside)
        super().set_params(**plain)
        return self


class NamesKernel(ChoosesKernel):
    """An estimator whose `kernel` may be a name, with `gamma`, `degree` and `coef0`, or "precomputed"."""

    gamma: Any
    degree: Any
    coef0: Any

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == PRECOMPUTED

    @property
    def _needs_matrix(self) -> bool:
        """Whether X must be a matrix of numbers."""
        return isinstance(self.kernel, str) or isinstance(made(self.kernel).domain, Vectors)

    def _chosen_kernel(self, X: Any, weights: Array) -> Kernel:
        """The kernel for the points X; raises OptionError for an unknown name, or an invalid parameter."""
        if not isinstance(self.kernel, str):
            return made(self.kernel)
        if self.kernel not in NAMED:
            raise OptionError(
                f"Expected kernel to be one of {', '.join(NAMED)}, {PRECOMPUTED}, or a kernel of ko.kernels; got "
                f"{self.kernel!r}."
            )
        return NAMED[self.kernel](self._gamma(X, weights), self.degree, self.coef0)

    def _gamma(self, X: Array, weights: Array) -> float:
        """γ: 1/(columns·variance of all entries, weighted by rows) for "scale", 1/columns for "auto" and None."""
        columns = width(X)
        if self.gamma is None or (isinstance(self.gamma, str) and self.gamma == "auto"):
            return 1 / columns
        if isinstance(self.gamma, str) and self.gamma == "scale":
            shares = weights / weights.sum() / columns
            variance, low, high = _of_sparse(X, shares) if is_sparse(X) else _of_array(X, shares)
            if not variance < np.inf or (variance == 0 and low < high):
                raise DataError(
                    'Expected points whose variance is in the range of double precision, for gamma="scale"; got '
                    f"values from {low:.3g} to {high:.3g}. Change their units, or give a number as gamma."
                )
            return 1 / (columns * variance) if variance > 0 else 1.0  # 1 for constant data, as in scikit-learn
        if not is_real(self.gamma) or not self.gamma > 0:
            raise OptionError(f'Expected gamma to be "scale", "auto", None or a number > 0; got {shown(self.gamma)}.')
        return float(self.gamma)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = isinstance(self.kernel, Kernel) and may_miss(self.kernel.domain)
        return tags
