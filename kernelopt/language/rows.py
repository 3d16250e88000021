"""The rows of a data matrix A: linear functionals of θ whose inner products the kernel determines.

A row is a point, θ ↦ F(x)ᵀθ, or a fitted function, θ ↦ f₀ᵀθ. The rest of the compiler sees only
their Gram matrix Q = AAᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import KernelError
from kernelopt.kernels.derivatives import WithDerivatives, grouped
from kernelopt.kernels.domains import frozen, key, stack
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.lifts import plain, plain_points
from kernelopt.kernels.rounding import Inexact, compounded, repeated
from kernelopt.language.functions import Function, Selected
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT, additions, gamma, in_columns, summed_inner, summed_product
from kernelopt.support.properties import cached_property
from kernelopt.support.threads import in_order
from kernelopt.support.types import Array, Ints

R = TypeVar("R")

# The smallest mean of diag(Q) that is accepted, in units of the kernel. Products of such values with numbers down to
# the unit roundoff are still normal numbers (at least 2.2e-308), so that they keep all digits.
SMALLEST = 1e-290
# The largest entry of points for which diag(Q) = 0 is checked for underflow, in units of the points. Their squares are
# below 1e-100, so that polynomials of degree 4 underflow. A larger value would also refuse more kernels that are truly
# zero near the origin.
SMALL = 1e-50
# Rows of a block of Q in a pass over the kernel, 8 MB of kernel values. Larger blocks cost memory, smaller ones more
# calls of the kernel.
BLOCK = 1024
# Threads of a pass: each holds a block, or a few, with its temporaries.
MOST_THREADS = 8
# Centers of a function, on average, up to which its kernel values are computed when they are asked for. Those of
# functions on more centers, of which there are few, are computed once and kept.
FEW = 8
# Products with fewer than one in FEW_COLUMNS of the columns of a Q that is held copy these; to copy more takes longer.
FEW_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct points, followed by functions given on shared centers.

    Row i is F(points[i])ᵀ for i < len(points), and Σₘ combinations[m, i − len(points)] F(centers[m])ᵀ after.
    """

    kernel: Kernel
    points: Array
    centers: Array
    combinations: Array

    @classmethod
    def of_points(cls, kernel: Kernel, points: Array) -> Rows:
        return cls(kernel, points, points[:0], np.zeros((0, 0)))

    def with_functions(self, functions: list[Function]) -> Rows:
        """These rows, followed by one row for each output of each function."""
        if not functions:
            return self
        blocks = [in_columns(f.coefficients) for f in functions]
        combinations = np.zeros((sum(map(len, blocks)), sum(b.shape[1] for b in blocks)))
        i = j = 0
        for block in blocks:
            combinations[i : i + block.shape[0], j : j + block.shape[1]] = block
            i, j = i + block.shape[0], j + block.shape[1]
        return Rows(self.kernel, self.points, stack([f._centers for f in functions]), combinations)

    def __len__(self) -> int:
        return len(self.points) + self.combinations.shape[1]

    @property
    def mixed(self) -> bool:
        """Whether rows are of different kinds (values, derivatives, functions), and hence of different units."""
        if 0 < len(self.points) < len(self):
            return True
        return isinstance(self.kernel, WithDerivatives) and len(self) > 0 and len(grouped(self.points)) > 1

    @property
    def are_points(self) -> bool:
        """Whether all rows belong to points and are of one kind."""
        return len(self.points) == len(self) and not self.mixed

    def mass(self) -> Ints:
        """How many points each row takes, at least 1."""
        ones = np.ones(len(self.points), dtype=np.intp)
        return np.concatenate([ones, np.maximum(np.count_nonzero(self.combinations, axis=0), 1)])

    def fingerprint(self) -> object:
        """Equal for equal rows of an equal kernel."""
        return self.kernel, key(self.points), key(self.centers), key(self.combinations)

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported below, with its rows
    def gram(self) -> Array:
        """Q = AAᵀ, a new Fortran-ordered array."""
        n, kernel = len(self.points), self.kernel
        if n == len(self):
            # The transpose of a C-ordered array is Fortran-ordered, so that Q is not copied.
            Q = np.asfortranarray(kernel._matrix(self.points, None).T)
        else:
            Q = np.empty((len(self), len(self)), order="F")
            Q[:n, :n] = kernel._matrix(self.points, None) if n else 0.0
            Q[:, n:] = self._functions
            Q[n:, :n] = self._functions[:n].T
        everything = np.arange(len(self))
        return self._finite(Q, everything, everything)

    def gram_to_read(self) -> Array:
        """Q where it is held, which the caller must not change; else a new array."""
        return self._Q[0] if self._Q else self.gram()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within this context Q is held, and passes over kernel values look them up. Raises as `gram` does."""
        if self._Q:
            yield
            return
        self._Q.append(self.gram())
        try:
            yield
        finally:
            self._Q.clear()

    @cached_property
    def _Q(self) -> list[Array]:
        """Q where it is held, in a list."""
        return []

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported below, with its rows
    def block(self, left: Ints, right: Ints) -> Array:
        """Q[left][:, right] for row numbers in any order, (len(left), len(right)), without the rest of Q.

        Raises KernelError for values that are not finite.
        """
        n, kernel = len(self.points), self.kernel
        i, j = left < n, right < n
        if i.all() and j.all():
            return self._finite(kernel._matrix(self.points[left], self.points[right]), left, right)
        if self._has_few_centers:
            return self._finite(self._expanded(left, right), left, right)
        Q = np.empty((len(left), len(right)))
        if i.any() and j.any():
            Q[np.ix_(i, j)] = kernel._matrix(self.points[left[i]], self.points[right[j]])
        Q[:, ~j] = self._functions[np.ix_(left, right[~j] - n)]
        Q[np.ix_(~i, j)] = self._functions[np.ix_(right[j], left[~i] - n)].T
        return self._finite(Q, left, right)

    @cached_property
    def _has_few_centers(self) -> bool:
        """Whether functions have few centers on average."""
        return np.count_nonzero(self.combinations) <= FEW * self.combinations.shape[1]

    @cached_property
    def spread(self) -> sp.csc_array:
        """Each row as a combination of points and centers, a column for each."""
        return sp.csc_array(sp.block_diag([sp.eye_array(len(self.points)), sp.csc_array(self.combinations)]))

    def _expanded(self, left: Ints, right: Ints) -> Array:
        """Q[left][:, right] by kernel values of the points and centers of these rows alone."""
        to, W = self.among(right)
        step = max(1, BLOCK**2 // (FEW * max(len(to), 1)))
        found = []
        for i in range(0, len(left), step):
            of, V = self.among(left[i : i + step])
            values = self.kernel._matrix(of, to) if len(of) and len(to) else np.zeros((len(of), len(to)))
            found.append(V.T @ (values @ W))
        return np.concatenate(found) if found else np.zeros((0, len(right)))

    def among(self, chosen: Ints) -> tuple[Array, sp.csc_array]:
        """The points and centers of some rows, and their combinations."""
        W = self.spread[:, chosen]
        used, place = np.unique(W.indices, return_inverse=True)
        n = len(self.points)
        at = stack([self.points[used[used < n]], self.centers[used[used >= n] - n]])
        return at, sp.csc_array((W.data, place.reshape(-1), W.indptr), shape=(len(used), len(chosen)))

    @cached_property
    def _functions(self) -> Array:
        """The columns of Q that belong to functions, (n, functions): their values and inner products.

        With C = combinations and blocks I of centers, CᵀKC = D + Dᵀ for D = Σ_I C_Iᵀ(½K_II C_I + Σ_{J>I} K_IJ C_J):
        each pair of centers is computed once, and never all at a time.
        """
        Z, C = self.centers, self.combinations
        step = max(1, BLOCK**2 // max(len(Z), 1))
        at_points = [self.kernel._matrix(self.points[i : i + step], Z) @ C for i in range(0, len(self.points), step)]
        half = np.zeros((C.shape[1], C.shape[1]))
        for i in range(0, len(Z), BLOCK):
            here = slice(i, i + BLOCK)
            products = 0.5 * self.kernel._matrix(Z[here], None) @ C[here]
            for j in range(i + BLOCK, len(Z), BLOCK):
                products += self.kernel._matrix(Z[here], Z[j : j + BLOCK]) @ C[j : j + BLOCK]
            half += C[here].T @ products
        columns = np.concatenate([*at_points, half + half.T])
        return self._finite(columns, np.arange(len(self)), np.arange(len(self.points), len(self)))

    def _finite(self, Q: Array, left: Ints, right: Ints) -> Array:
        """Q if it is finite. Otherwise raises a KernelError that names a pair of rows."""
        if not np.isfinite(Q).all():
            i, j = (int(v) for v in np.argwhere(~np.isfinite(Q))[0])
            raise self._not_finite(Q[i, j], left[i], right[j])
        return Q

    def _not_finite(self, value: float, i: int, j: int) -> KernelError:
        return KernelError(
            f"{self.kernel!r} returned {value} for rows {i} and {j} of the data. Rescale the data, or choose "
            "parameters for which the kernel does not overflow."
        )

    @property
    def features(self) -> float:
        """p, the number of features; inf where there are infinitely many."""
        if not len(self.points):
            return np.inf
        return plain(self.kernel)._n_features(plain_points(self.kernel, self.points))

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported below, with its row
    def diagonal(self) -> Array:
        """diag(Q), (n,). Raises KernelError for values that are not finite."""
        at_points = self.kernel._diagonal(self.points)
        d = at_points if len(at_points) == len(self) else np.concatenate([at_points, self._of_functions()])
        for i in np.flatnonzero(~np.isfinite(d))[:1]:
            raise self._not_finite(d[i], i, i)
        return d

    def _of_functions(self) -> Array:
        """The squared norms of the functions."""
        n, step = len(self.points), BLOCK // FEW
        if not self._has_few_centers:
            return np.diag(self._functions[n:])
        numbers = np.arange(n, len(self))
        parts = [numbers[i : i + step] for i in range(0, len(numbers), step)]
        return np.concatenate([np.diag(self._expanded(part, part)) for part in parts])

    def require_digits(self, mean: float) -> None:
        """Raise KernelError if the mean of diag(Q) shows that kernel values underflow.

        It is below SMALLEST, or it is zero while kernel values of the points, scaled to size 1, are positive.
        """
        vanished = 0 < mean < SMALLEST
        if mean == 0 and self.are_points and self.points.dtype.kind == "f":
            points = plain_points(self.kernel, self.points)
            size = float(np.abs(points).max())
            vanished = 0 < size < SMALL and bool(np.any(plain(self.kernel)._diagonal(points / size) > 0))
        if vanished:
            raise KernelError(
                f"Expected values of {self.kernel!r} that doubles store with all digits; got {mean:.3g} for κ(x, x) on "
                "average. Change the units of the data, or multiply the kernel by a constant."
            )

    def subset(self, chosen: Ints) -> Rows:
        """The chosen rows; points must come before functions."""
        n = len(self.points)
        on_points = chosen < n
        if not on_points.all():
            order = np.argsort(~on_points, kind="stable")
            assert np.array_equal(order, np.arange(len(chosen))), "functions come after points"
        return Rows(
            self.kernel, self.points[chosen[on_points]], self.centers, self.combinations[:, chosen[~on_points] - n]
        )

    def quadratic(self, V: Array, block: int = BLOCK) -> Array:
        """VᵀQV for V of shape (n, k), in O(n·k + block²) memory: a symmetric pass over blocks of kernel values.

        Zero rows of V are skipped, so that the cost depends on the support vectors alone. Raises KernelError for values
        that are not finite.
        """
        support = np.flatnonzero(np.any(V != 0, axis=1))
        if self._Q:
            return self._symmetric(summed_inner(V, self.product(V)))
        points, W = self.expansion(support, V[support])

        def part(pair: tuple[slice, slice]) -> Array:
            return summed_inner(W[pair[0]], summed_product(self._block(points, *pair), W[pair[1]]))

        total = np.zeros((V.shape[1], V.shape[1]))
        of_rows = np.zeros_like(total)
        for (rows, columns), found in _passed(part, len(points), block):
            if rows == columns:
                total += of_rows  # a sum of block sums rounds less than one long sum
                of_rows = found
            else:
                of_rows = of_rows + (found + found.T)
        return self._symmetric(total + of_rows)

    def _block(self, points: Any, rows: slice, columns: slice) -> Array:
        return self.kernel._matrix(points[rows], None if rows == columns else points[columns])

    def _symmetric(self, total: Array) -> Array:
        """(T + Tᵀ)/2. Raises KernelError for numbers that are not finite."""
        if not np.isfinite(total).all():
            raise KernelError(f"{self.kernel!r} returned NaN or inf, or overflowed, on the rows of the data.")
        return np.asarray((total + total.T) / 2)

    def product(self, V: Array, block: int = BLOCK) -> Array:
        """QV for V of shape (n, k), in O(n·k + block²) memory.

        By symmetry half of the kernel values suffice. If fewer than half of the rows of V are nonzero, only the columns
        of Q for these rows are computed, which are fewer values.

        Raises KernelError for values that are not finite.
        """
        support = np.flatnonzero(np.any(V != 0, axis=1))
        if 2 * len(support) < len(self) or self._Q:
            return self.combined(support, V[support])
        n = len(self.points)
        points, W = self.points, V
        if n < len(self):
            points, W = stack([points, self.centers]), np.concatenate([V[:n], self._mixed() @ V[n:]])

        def part(pair: tuple[slice, slice]) -> tuple[Array, Array]:
            Q = self._block(points, *pair)
            return summed_product(Q, W[pair[1]]), summed_product(Q.T, W[pair[0]]) if pair[0] != pair[1] else W[:0]

        found = np.zeros_like(W)
        for (rows, columns), (of_rows, of_columns) in _passed(part, len(points), block):
            found[rows] += of_rows
            if rows != columns:
                found[columns] += of_columns
        if not np.isfinite(found).all():
            raise KernelError(f"{self.kernel!r} returned NaN or inf, or overflowed, on the rows of the data.")
        return found if n == len(self) else np.concatenate([found[:n], self._mixed().T @ found[n:]])

    def rounding(self) -> float:
        """r with |Q̂ᵢⱼ − Qᵢⱼ| ≤ r·lᵢlⱼ for the `lengths` l, an a priori bound.

        Lengths are those of the terms that a row is a sum of: where they cancel, as at a point that is the mean of a
        centred kernel, Qᵢᵢ is much smaller. The error of a function Σₘ cₘF(zₘ) is relative to (Σₘ |cₘ|√s(zₘ))².
        """
        return self._rounding[0]

    @cached_property
    @np.errstate(over="ignore", invalid="ignore")
    def _rounding(self) -> tuple[float, Array]:
        """r and sᵢ with |Q̂ᵢⱼ − Qᵢⱼ| ≤ r√(sᵢsⱼ), and sᵢ ≥ Qᵢᵢ up to a factor 1 + r."""
        everything = self.points if not len(self.centers) else stack([self.points, self.centers])
        if not len(everything):
            return 0.0, np.zeros(len(self))
        r, size = self.kernel._rounding(Inexact(everything)), self.kernel._size(self.points)
        if len(self.points) < len(self):
            lengths = np.abs(self.combinations).T @ np.sqrt(self.kernel._size(self.centers))
            size, r = np.concatenate([size, lengths**2]), compounded(r, gamma(2 * len(self.centers) + 4))
        return (r if r >= 0 else np.inf), size

    def lengths(self) -> Array:
        """Upper bounds of ‖row i‖ = √Qᵢᵢ, which include the errors of kernel values: (n,), read-only."""
        return self._lengths

    @cached_property
    def _lengths(self) -> Array:
        r, size = self._rounding
        found = np.sqrt(np.clip(size, 0.0, None))
        # np.where evaluates both branches: the cap on r avoids 0·∞.
        return frozen(
            np.where(found > 0, np.where(np.isfinite(r), found * (1 + min(r, 1e300) + 8 * UNIT), np.inf), 0.0)
        )

    def quadratic_error(self, V: Array, additions: int | None = None) -> Array:
        """E with |T̂ − VᵀQV| ≤ E entrywise for T̂ = `quadratic(V)`, (k, k).

        E = ((1 + r)(1 + γₘ) − 1)SSᵀ, where r and sᵢ are the errors and sizes of the rows, and S = Σᵢ √sᵢ|Vᵢ|. m is the
        number of successive `additions`: by default those of a product and of an inner product, see `_additions`.
        """
        support = np.flatnonzero(np.any(V != 0, axis=1))
        count = len(support) + len(self.centers)
        m = 2 * self._additions(count, count) + 8 if additions is None else additions
        relative, S = self._relative(m, V)
        return _times(relative, np.outer(S, S))

    def product_error(self, V: Array, additions: int | None = None) -> Array:
        """E with |P̂ − QV| ≤ E entrywise for P̂ = `product(V)`, (n, k): ((1 + r)(1 + γₘ) − 1)√sᵢ·S.

        As in `quadratic_error`. The default m is the number of nonzero rows of V if these are fewer than half and Q is
        not held, else that of `_additions`.
        """
        support, centers = np.flatnonzero(np.any(V != 0, axis=1)), len(self.centers)
        count, few = len(support) + centers, 2 * len(support) < len(self)
        m = count if few and not self._Q else self._additions(count, len(self.points) + centers)
        relative, S = self._relative(m + centers + 8 if additions is None else additions, V)
        E = _times(relative, np.outer(np.sqrt(self._rounding[1]), S))
        return E + self._error_of_prefix_sums(V, count) if few and self._sums_fast else E

    def _additions(self, count: int, terms: int) -> int:
        """The most additions that one of `count` nonzero terms goes through: those of short sums, of blocks and of all.

        terms : how many of them blocks are made of, zeros included
        """
        if self._Q:
            return additions(count, max(terms, len(self)))
        return additions(count, min(terms, BLOCK)) + -(-terms // BLOCK)

    def _error_of_prefix_sums(self, V: Array, count: int) -> Array:
        """γ₂ₙ₊₁₂·2s(x)Σₘ|cₘ|, the error of Σₘ cₘκ(zₘ, x) where a kernel adds prefix sums of n = `count` terms."""
        mass = np.concatenate([np.ones(len(self.points)), np.abs(self.combinations).sum(axis=0)])
        at_centers = self.kernel._size(self.centers) if len(self.centers) else np.zeros(0)
        sizes = np.concatenate([self.kernel._size(self.points), np.abs(self.combinations).T @ at_centers])
        return _times(gamma(2 * count + 12), np.outer(2 * sizes, mass @ np.abs(V)))

    def _relative(self, additions: int, V: Array) -> tuple[float, Array]:
        """(1 + r)(1 + γₘ) − 1 and S = Σᵢ √sᵢ|Vᵢ|, increased by the error of their own computation."""
        r, size = self._rounding
        functions = len(self) - len(self.points)
        own = repeated(compounded(r, gamma(len(self) + 4)), 2)
        relative = compounded(r, gamma(additions + functions))
        return relative * (1 + own), np.sqrt(size) @ np.abs(V)

    @property
    def _sums_fast(self) -> bool:
        """Whether the kernel evaluates sums over centers by a method of its own, without forming kernel values."""
        some = self.points[:1] if len(self.points) else self.centers[:1]
        return len(some) > 0 and self.kernel._evaluator(some, np.ones(1)) is not None

    def combined(self, chosen: Ints, coefficients: Array) -> Array:
        """Aθ on the distinct rows for θ = Σₛ coefficients[s]·(row chosen[s]), (n,) or (n, K)."""
        if self._Q:
            return self._looked_up(chosen, coefficients)
        return self.predictions(Function._of_rows(self.kernel, *self.expansion(chosen, coefficients)))

    def _looked_up(self, chosen: Ints, coefficients: Array) -> Array:
        """`combined` with the Q that is held."""
        Q, n = self._Q[0], len(self)
        if FEW_COLUMNS * len(chosen) > n:  # to copy columns would take longer
            spread = np.zeros((n, *coefficients.shape[1:]))
            spread[chosen] = coefficients
            return summed_product(Q, spread)
        return summed_product(Q[:, chosen], coefficients)

    def predictions(self, function: Function) -> Array:
        """Aθ on the distinct rows for a function θ on this kernel, evaluated block by block: (n,) or (n, K)."""
        at_points = function._evaluate(self.points)
        if len(self.points) == len(self):
            return at_points
        return np.concatenate([at_points, self._mixed().T @ function._evaluate(self.centers)])

    def _mixed(self, chosen: Ints | slice = slice(None)) -> Any:
        """The combinations of some functions, sparse where these have few centers."""
        if not self._has_few_centers:
            return self.combinations[:, chosen]
        n = len(self.points)
        return self.spread[n:, n:][:, chosen]

    def expansion(self, chosen: Ints, coefficients: Array) -> tuple[Array, Array]:
        """Σₛ coefficients[s]·(row chosen[s]) as centers and coefficients, without centers whose coefficient is 0."""
        n = len(self.points)
        on_points = chosen < n
        if on_points.all():
            return self.points[chosen], coefficients
        combined = self._mixed(chosen[~on_points] - n) @ coefficients[~on_points]
        used = np.flatnonzero(in_columns(combined).any(axis=1))
        return (
            stack([self.points[chosen[on_points]], self.centers[used]]),
            np.concatenate([coefficients[on_points], combined[used]]),
        )

    def selection(self, chosen: Ints, coefficients: Array) -> tuple[Array | Selected, Array]:
        """As `expansion`, with centers that are copied when they are first needed, where all are points."""
        n = len(self.points)
        if (chosen < n).all():
            everything = len(chosen) == n and np.array_equal(chosen, np.arange(n))
            return Selected(self.points, slice(None) if everything else chosen), coefficients
        return self.expansion(chosen, coefficients)


def _passed(
    part: Callable[[tuple[slice, slice]], R], count: int, block: int
) -> Iterator[tuple[tuple[slice, slice], R]]:
    """The blocks of a symmetric matrix on and below the diagonal, row by row from the diagonal on, and `part` of each.

    Parts come in this order, whatever the threads, so that sums of them do not depend on their number.
    """
    starts = range(0, count, block)
    at = {i: slice(i, min(i + block, count)) for i in starts}
    pairs = [(at[i], at[j]) for i in starts for j in (i, *range(0, i, block))]
    if len(pairs) > 1:
        clock.check()
    for number, (pair, found) in enumerate(zip(pairs, in_order(part, pairs, MOST_THREADS), strict=True)):
        if number:
            clock.check()
        yield pair, found


def _times(error: float, sizes: Array) -> Array:
    """error·sizes, with ∞·0 = 0."""
    return np.multiply(error, sizes, out=np.zeros_like(sizes), where=sizes > 0)
