"""Derivatives of cvxpy's atoms: for each class cᵀ∂(atom)/∂(argument), with a cotangent c in the shape of the atom.

Each rule is a function of the values at a node, the number of an argument, and c. `SLOPES` has all of them, by the name
of the class. It knows no classes derived from these, since they may be other functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.special import expit, huber, xlogy

from kernelopt.compiler.attributes import dense
from kernelopt.errors import KernelOptError
from kernelopt.support.types import Array, Bools

# Distances from a kink, relative to the terms that an entry is made of. Up to the first the entry counts as at the
# kink, since optima are exact to about 1e-12 of these terms, and to 1e-8 in all but hard cases. Up to the second its
# side is not known in double precision.
NEAR, AT = 1e-8, 1e-12


class Ties:
    """The kinks that a node is at, up to a distance, and which of the slopes there is taken.

    Without `draw` it is the middle: 0 for |x| at 0, equal shares for a maximum. With `draw` it is one at random, the
    same for all arguments of a node. `count` has the number of kinks.
    """

    def __init__(self, distance: float, draw: int | None = None) -> None:
        self.distance, self.draw, self.count = distance, draw, 0

    def signs(self, at: Bools, signs: Array) -> Array:
        """`signs`, with slopes in [−1, 1] at kinks."""
        self.count = max(self.count, int(np.count_nonzero(at)))
        middle = np.zeros(at.shape) if self.draw is None else self._random().uniform(-1.0, 1.0, at.shape)
        return np.where(at, middle, signs)

    def shares(self, at: Bools, axis: int) -> Array:
        """Nonnegative shares of the entries `at`, which add up to 1 along the axis."""
        self.count = max(self.count, int(np.count_nonzero(np.count_nonzero(at, axis=axis) > 1)))
        weights = at * (1.0 if self.draw is None else self._random().exponential(size=at.shape))
        return np.asarray(weights / weights.sum(axis=axis, keepdims=True))

    def among(self, weights: Array) -> Array:
        """The weights of tied entries in another order, or their mean."""
        if np.ptp(weights) == 0:
            return weights
        self.count += 1
        return np.full_like(weights, weights.mean()) if self.draw is None else self._random().permutation(weights)

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self.draw)


class At(NamedTuple):
    """A node with the values of its arguments, then of the attributes in `DATA`, and its own.

    size : for an argument the sizes of the terms that its entries are sums of
    """

    node: Any
    x: tuple[Any, ...]
    y: Array
    size: Callable[[int], Array]
    ties: Ties


Rule = Callable[[At, int, Array], Array]


def times(c: Array, slope: Array) -> Array:
    """c·slope, 0 where c = 0 and the slope is infinite."""
    return np.where(c == 0, 0.0, c * slope)


NAMES = {
    "PowerApprox": "power", "Power": "power", "PnormApprox": "pnorm", "Pnorm": "pnorm", "GeoMeanApprox": "geo_mean",
    "GeoMean": "geo_mean", "SmoothTerm": "SmoothLoss", "ProximalTerm": "ProximalLoss",
    "CoxLikelihood": "cox",
}  # fmt: skip


def kind(node: Any) -> str:
    """The name of a node's class as users know it."""
    name = type(node).__name__
    return NAMES.get(name, name)


def refused(node: Any, number: int | None = None) -> KernelOptError:
    """The error for a node without a rule, or without one by an argument."""
    by = "" if number is None else f" by its argument {number + 1}"
    why = "constant between its jumps" if type(node).__name__ in STEPS else "without a rule for its derivative"
    return KernelOptError(
        f"Expected a criterion with a derivative; it has {kind(node)}, which is {why}{by}. Write it in other atoms, or "
        "give ko.gradient a function with `at=`, the expression of which it takes the value, that returns the "
        "criterion and its gradient."
    )


# ---------------------------------------------------------------- affine atoms


def _same(at: At, number: int, c: Array) -> Array:
    """x₁ + x₂ + …, and x itself: c."""
    return c


def _negative(at: At, number: int, c: Array) -> Array:
    """−x: −c."""
    return -c


def _zero(at: At, number: int, c: Array) -> Array:
    """The imaginary part of a real x: 0."""
    return np.zeros_like(c)


def _placed(at: At, number: int, c: Array) -> Array:
    """Atoms whose entries are entries of x or 0, such as slices, shapes and stacks: c is added up where each is from.

    The atom itself tells, at an x of the numbers 1, 2, …
    """
    x = at.x[number]
    parts = [np.zeros(np.shape(one)) for one in at.x]
    parts[number] = np.arange(1.0, x.size + 1).reshape(x.shape)
    source = np.ravel(np.asarray(at.node.numeric(parts))).astype(int)
    return np.bincount(source, np.ravel(c), x.size + 1)[1:].reshape(x.shape)


def _sum(at: At, number: int, c: Array) -> Array:
    """Σx along axes: c in each entry."""
    return np.broadcast_to(_spread(at, c), at.x[0].shape)


def _cumsum(at: At, number: int, c: Array) -> Array:
    """yₖ = Σ{xᵢ : i ≤ k}: Σ{cₖ : k ≥ i}."""
    axis = at.node.axis if at.x[0].ndim else None
    return np.flip(np.cumsum(np.flip(c, axis), axis), axis).reshape(at.x[0].shape)


def _trace(at: At, number: int, c: Array) -> Array:
    """tr X of each matrix: cI."""
    return c[..., None, None] * np.eye(at.x[0].shape[-1])


def _kron(at: At, number: int, c: Array) -> Array:
    """A ⊗ B: Σ over the entries of the other factor."""
    (m, n), (p, q) = (x.shape for x in at.x)
    blocks, other = c.reshape(m, p, n, q), at.x[1 - number]
    return np.einsum("ipjq,pq->ij" if number == 0 else "ipjq,ij->pq", blocks, other)


def _convolution(at: At, number: int, c: Array) -> Array:
    """yₖ = Σ aᵢbₖ₋ᵢ: Σₖ cₖbₖ₋ᵢ."""
    return np.correlate(np.ravel(c), np.ravel(at.x[1 - number]), "valid").reshape(at.x[number].shape)


# ---------------------------------------------------------------- products and quotients


def _multiply(at: At, number: int, c: Array) -> Array:
    """ab entry by entry: cb, ca."""
    return c * at.x[1 - number]


def _divide(at: At, number: int, c: Array) -> Array:
    """a/b entry by entry: c/b, −ca/b²."""
    a, b = at.x
    return c / b if number == 0 else -c * (a / b) / b


def _product(at: At, number: int, c: Array) -> Array:
    """AB: cBᵀ, Aᵀc."""
    a, b = at.x
    if a.ndim == 0 or b.ndim == 0:
        return np.asarray(c * (b if number == 0 else a))
    # Vectors stand for a row on the left, and for a column on the right.
    A, B = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    C = np.expand_dims(c, -1) if b.ndim == 1 else c
    C = np.expand_dims(C, -2) if a.ndim == 1 else C
    found = C @ _transposed(B) if number == 0 else _transposed(A) @ C
    x = at.x[number]
    return unbroadcast(np.asarray(found), (A if number == 0 else B).shape).reshape(x.shape)


def _transposed(A: Any) -> Any:
    """Aᵀ of the last two dimensions; a constant may be sparse."""
    return A.T if sp.issparse(A) else np.swapaxes(A, -1, -2)


def unbroadcast(c: Array, shape: tuple[int, ...]) -> Array:
    """The sum of c along axes along which an array of this shape was repeated."""
    c = c.sum(axis=tuple(range(c.ndim - len(shape)))) if c.ndim > len(shape) else c
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and c.shape[i] != 1)
    return np.broadcast_to(c.sum(axis=repeated, keepdims=True) if repeated else c, shape)


# ---------------------------------------------------------------- entry by entry


# f′(x) of smooth functions of one number.
OF_ONE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": lambda x: 1 / x,
    "log1p": lambda x: 1 / (1 + x),
    "entr": lambda x: -np.log(x) - 1,  # −x log x
    "xexp": lambda x: np.exp(x) * (1 + x),
    "logistic": expit,  # log(1 + eˣ)
    "sinh": np.cosh,
    "tanh": lambda x: np.cosh(np.clip(x, -350, 350)) ** -2.0,
    "asinh": lambda x: 1 / np.hypot(1, x),
    "atanh": lambda x: 1 / ((1 - x) * (1 + x)),
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "tan": lambda x: np.cos(x) ** -2.0,
    "normcdf": lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
}


def _of_one(at: At, number: int, c: Array) -> Array:
    """f(x): cf′(x)."""
    return times(c, OF_ONE[type(at.node).__name__](at.x[0]))


def _power(at: At, number: int, c: Array) -> Array:
    """xᵖ: cpxᵖ⁻¹, and cxᵖ log x by p; a kink at x = 0 for 0 < p < 1, as of the root of squares."""
    x, p = at.x[0], float(at.x[1])
    if number == 1:
        return times(c, xlogy(at.y, x))
    if 0 < p < 1:
        c = c * at.ties.signs(_is_root_of_0(at, np.array(p)), np.ones_like(x))
    return times(c, p * x ** (p - 1)) if p else np.zeros_like(c)


def _is_root_of_0(at: At, p: Array) -> Bools:
    """Whether xᵖ is 0 to rounding, which for a small p > 0 is so of much smaller x than otherwise."""
    with np.errstate(divide="ignore"):
        return np.asarray((p > 0) & (at.x[0] <= at.ties.distance ** (1 / p) * at.size(0)))


def _huber(at: At, number: int, c: Array) -> Array:
    """x² up to M, 2M|x| − M² beyond: 2x in [−2M, 2M], and 2(|x| − M)₊ by M."""
    x, M = at.x[0], float(at.x[1])
    return c * 2 * (np.clip(x, -M, M) if number == 0 else np.maximum(np.abs(x) - M, 0.0))


def _abs(at: At, number: int, c: Array) -> Array:
    """|x|: c·sign x."""
    return c * _signs(at)


def _relative_entropy(at: At, number: int, c: Array) -> Array:
    """x log(x/y): log(x/y) + 1, −x/y."""
    x, y = at.x
    return times(c, np.log(x / y) + 1 if number == 0 else -x / y)


def _kl_divergence(at: At, number: int, c: Array) -> Array:
    """x log(x/y) − x + y: log(x/y), 1 − x/y."""
    x, y = at.x
    return times(c, np.log(x / y) if number == 0 else 1 - x / y)


def _largest_of(at: At, number: int, c: Array) -> Array:
    """max(x₁, x₂, …) and min: c for the one that it is."""
    x = np.stack(np.broadcast_arrays(*at.x))
    sizes = np.stack(np.broadcast_arrays(*(at.size(i) for i in range(len(at.x)))))
    gaps = np.abs(at.y - x)
    of_first = np.take_along_axis(sizes, np.argmin(gaps, axis=0)[None], 0)
    return np.asarray(c * at.ties.shares(gaps <= at.ties.distance * (sizes + of_first), 0)[number])


# ---------------------------------------------------------------- along axes


def _spread(at: At, c: Array) -> Array:
    """An array in the shape of the node with axes of length 1 in place of those that it takes together."""
    axes = _axes(at)
    return c.reshape(tuple(1 if i in axes else n for i, n in enumerate(at.x[0].shape)))


def _axes(at: At) -> tuple[int, ...]:
    axis = at.node.axis
    return tuple(range(at.x[0].ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _signs(at: At) -> Array:
    x = at.x[0]
    return at.ties.signs(np.abs(x) <= at.ties.distance * at.size(0), np.sign(x))


def _norm1(at: At, number: int, c: Array) -> Array:
    """Σ|x|: c·sign x."""
    return _spread(at, c) * _signs(at)


def _norm_inf(at: At, number: int, c: Array) -> Array:
    """max |x|: c·sign x for the largest, with slopes in [−1, 1] where all are 0."""
    x, largest = at.x[0], np.max(at.size(0), axis=_axes(at), keepdims=True)
    at_zero = np.broadcast_to(_spread(at, at.y) <= at.ties.distance * largest, x.shape)
    return _spread(at, c) * at.ties.signs(at_zero, np.sign(x)) * _along(at, np.abs(x), np.ones(1))


def _pnorm(at: At, number: int, c: Array) -> Array:
    """(Σ|x|ᵖ)^(1/p): c·sign x·(|x|/y)ᵖ⁻¹, a kink at x = 0 for p > 1."""
    x, p, y = at.x[0], float(at.node.p), _spread(at, at.y)
    size = np.sqrt(np.sum(at.size(0) ** 2, axis=_axes(at), keepdims=True))
    at_zero = (y <= at.ties.distance * size) & (p > 1)
    slopes = np.sign(x) * (np.abs(x) / np.where(at_zero, 1.0, y)) ** (p - 1)
    inside = at.ties.signs(np.broadcast_to(at_zero, x.shape), slopes)
    return times(_spread(at, c), np.where(at_zero, inside / x.size, slopes))


def _log_sum_exp(at: At, number: int, c: Array) -> Array:
    """log Σeˣ: c·eˣ⁻ʸ."""
    return _spread(at, c) * np.exp(at.x[0] - _spread(at, at.y))


def _max(at: At, number: int, c: Array) -> Array:
    """max x: c for the largest."""
    return _spread(at, c) * _along(at, at.x[0], np.ones(1))


def _min(at: At, number: int, c: Array) -> Array:
    """min x: c for the smallest."""
    return _spread(at, c) * _along(at, -at.x[0], np.ones(1))


def _sum_largest(at: At, number: int, c: Array) -> Array:
    """The sum of the k largest entries: c for these, and c times the fraction of k for the next."""
    return _spread(at, c) * _along(at, at.x[0], _first(at.node.k))


def _first(k: float) -> Array:
    """The weights (1, …, 1, fraction) of the k first."""
    whole = int(np.floor(k))
    return np.append(np.ones(whole), k - whole)


def _dotsort(at: At, number: int, c: Array) -> Array:
    """Σx₍ᵢ₎w₍ᵢ₎ in ascending order: c·w₍ᵢ₎ for x₍ᵢ₎, and the other way round."""
    x, w = (np.ravel(v, order="F") for v in at.x)
    w = np.append(w, np.zeros(len(x) - len(w)))
    one, other = (x, w) if number == 0 else (w, x)
    sizes = np.append(np.ravel(at.size(number), order="F"), np.zeros(len(one) - at.x[number].size))[None]
    found = _ranked(one[None], sizes, -np.sort(-other), at.ties)[0]
    return c * found[: at.x[number].size].reshape(at.x[number].shape, order="F")


def _along(at: At, x: Array, weights: Array) -> Array:
    """The weights, descending, of the entries in their order along the node's axes, the largest first."""
    axes = _axes(at)
    ends = range(-len(axes), 0)
    moved = np.moveaxis(x, axes, ends)
    rows = moved.reshape(-1, int(np.prod([x.shape[i] for i in axes])))
    sizes = np.moveaxis(at.size(0), axes, ends).reshape(rows.shape)
    return np.moveaxis(_ranked(rows, sizes, weights, at.ties).reshape(moved.shape), ends, axes)


def _ranked(x: Array, sizes: Array, weights: Array, ties: Ties) -> Array:
    """The slopes of Σwᵢx₍ᵢ₎ for each row of x, with x and w descending, 0 beyond the given weights.

    These are wᵢ for the entry at place i; entries that are tied share their weights.
    """
    n = x.shape[1]
    weights = np.append(weights[:n], np.zeros(max(n - len(weights), 0)))
    order = np.argsort(-x, axis=1, kind="stable")
    x, sizes = (np.take_along_axis(one, order, 1) for one in (x, np.broadcast_to(sizes, x.shape)))
    apart = -np.diff(x) > ties.distance * (sizes[:, 1:] + sizes[:, :-1])
    found = np.empty(x.shape)
    np.put_along_axis(found, order, np.broadcast_to(weights, x.shape), 1)
    for row in np.flatnonzero(np.any(~apart & (np.diff(weights) != 0), axis=1)):
        for places in np.split(np.arange(n), np.flatnonzero(apart[row]) + 1):
            found[row, order[row, places]] = ties.among(weights[places])
    return found


def _cummax(at: At, number: int, c: Array) -> Array:
    """yₖ = max{xᵢ : i ≤ k}: from the last back, what comes to yₖ goes to xₖ if it is the largest, on to yₖ₋₁ if not."""
    if not at.x[0].ndim:
        return c
    axis = at.node.axis or 0
    x, y, size, left = (np.moveaxis(v, axis, 0) for v in (at.x[0], at.y, at.size(0), c))
    found, carried = np.zeros(x.shape), np.zeros(x.shape[1:])
    of_y = size.copy()
    for k in range(1, len(x)):
        of_y[k] = np.where(x[k] == y[k], size[k], of_y[k - 1])
    for k in range(len(x) - 1, 0, -1):
        ahead = np.stack([x[k], y[k - 1]]) >= y[k] - at.ties.distance * (size[k] + of_y[k - 1])
        total = left[k] + carried
        to_x, to_y = at.ties.shares(ahead, 0)
        found[k], carried = to_x * total, to_y * total
    found[0] = left[0] + carried
    return np.moveaxis(found, 0, axis)


def _cumprod(at: At, number: int, c: Array) -> Array:
    """yₖ = Π{xᵢ : i ≤ k}: yᵢ₋₁sᵢ with sᵢ = cᵢ + xᵢ₊₁sᵢ₊₁."""
    if not at.x[0].ndim:
        return c
    axis = at.node.axis or 0
    x, y, left = (np.moveaxis(v, axis, 0) for v in (at.x[0], at.y, c))
    found, s = np.zeros(x.shape), np.zeros(x.shape[1:])
    for k in range(len(x) - 1, -1, -1):
        s = left[k] + (x[k + 1] * s if k + 1 < len(x) else 0.0)
        found[k] = s * (y[k - 1] if k else 1.0)
    return np.moveaxis(found, 0, axis)


def _prod(at: At, number: int, c: Array) -> Array:
    """Πx: c times the product of the others."""
    axes = _axes(at)
    moved = np.moveaxis(at.x[0], axes, range(-len(axes), 0))
    x = moved.reshape(-1, int(np.prod([at.x[0].shape[i] for i in axes])))
    ones = np.ones((len(x), 1))
    before = np.cumprod(np.hstack([ones, x[:, :-1]]), axis=1)
    after = np.cumprod(np.hstack([ones, x[:, :0:-1]]), axis=1)[:, ::-1]
    return _spread(at, c) * np.moveaxis((before * after).reshape(moved.shape), range(-len(axes), 0), axes)


def _geo_mean(at: At, number: int, c: Array) -> Array:
    """Πxᵢ^wᵢ: c·y·wᵢ/xᵢ, a kink at xᵢ = 0 for wᵢ < 1."""
    x, axes, node = at.x[0], _axes(at), at.node
    w = np.zeros(len(node._keep))
    w[node._keep] = [float(one) for one in node.w]
    first = w.reshape([x.shape[i] for i in axes] + [1] * (x.ndim - len(axes)), order="F")
    weights = np.moveaxis(first, range(len(axes)), axes)
    weights = np.broadcast_to(weights, x.shape)
    sides = at.ties.signs(_is_root_of_0(at, weights) & (weights < 1), np.ones_like(x))
    return np.where(weights == 0, 0.0, sides * _spread(at, c * at.y) * weights / x)


def _quad_over_lin(at: At, number: int, c: Array) -> Array:
    """Σx²/y: 2cx/y, −cΣx²/y²."""
    x, y = at.x[0], float(np.ravel(at.x[1])[0])
    return _spread(at, c) * 2 * x / y if number == 0 else np.full(at.x[1].shape, -np.sum(c * at.y) / y)


# ---------------------------------------------------------------- matrices


def _quad_form(at: At, number: int, c: Array) -> Array:
    """xᵀPx: c(P + Pᵀ)x, cxxᵀ."""
    x, P = at.x
    return c * (P @ x + P.T @ x) if number == 0 else np.ravel(c) * np.outer(x, x)


def _matrix_frac(at: At, number: int, c: Array) -> Array:
    """tr XᵀP⁻¹X: c(P⁻¹ + P⁻ᵀ)X, −cP⁻ᵀXXᵀP⁻ᵀ."""
    X, P = map(dense, at.x)
    there, back = np.linalg.solve(P, X), np.linalg.solve(P.T, X)
    if number == 0:
        return c * (there + back)
    return -c * (np.outer(back, there) if X.ndim == 1 else back @ there.T)


def _log_det(at: At, number: int, c: Array) -> Array:
    """log det X: cX⁻ᵀ."""
    return c * np.linalg.inv(at.x[0]).T


def _trace_of_inverse(at: At, number: int, c: Array) -> Array:
    """tr X⁻¹: −cX⁻²."""
    inverse = np.linalg.inv(at.x[0])
    return -c * (inverse @ inverse).T


def _lambda_sum_largest(at: At, number: int, c: Array) -> Array:
    """The sum of the k largest eigenvalues, or the largest: cΣwᵢvᵢvᵢᵀ with their weights."""
    X = at.x[0]
    values, V = np.linalg.eigh((X + np.swapaxes(X, -1, -2)) / 2)
    rows = values.reshape(-1, X.shape[-1])
    d = _of_eigenvalues(rows, getattr(at.node, "k", 1), at.ties).reshape(values.shape)
    return np.asarray(c[..., None, None] * ((V * d[..., None, :]) @ np.swapaxes(V, -1, -2)))


def _of_eigenvalues(values: Array, k: float, ties: Ties) -> Array:
    return _ranked(values, np.abs(values).max(axis=1, keepdims=True), _first(k), ties)


def _condition_number(at: At, number: int, c: Array) -> Array:
    """λ₁/λₙ: c(v₁v₁ᵀ − y·vₙvₙᵀ)/λₙ."""
    values, V = np.linalg.eigh((at.x[0] + at.x[0].T) / 2)
    high, low = (_of_eigenvalues(sign * values[None], 1, at.ties)[0] for sign in (1, -1))
    return np.asarray(c * (V * ((high - at.y * low) / values[0])) @ V.T)


def _gen_lambda_max(at: At, number: int, c: Array) -> Array:
    """λ with Av = λBv, vᵀBv = 1: cvvᵀ, −cλvvᵀ."""
    A, B = at.x
    values, V = eigh(A, B)
    V = V * np.sqrt(_of_eigenvalues(values[None], 1, at.ties)[0])
    return c * (1.0 if number == 0 else -at.y) * V @ V.T


def _sigma_max(at: At, number: int, c: Array) -> Array:
    """The largest singular value: cuvᵀ."""
    U, s, Vt = np.linalg.svd(at.x[0], full_matrices=False)
    slopes = _ranked(s[None], at.size(0).max(), np.ones(1), at.ties)[0]
    if s[0] <= at.ties.distance * at.size(0).max():
        slopes = at.ties.signs(slopes > 0, slopes)
    return np.asarray(c * (U * slopes) @ Vt)


def _nuclear_norm(at: At, number: int, c: Array) -> Array:
    """The sum of the singular values: cUVᵀ, with slopes in [−1, 1] where one is 0."""
    U, s, Vt = np.linalg.svd(at.x[0], full_matrices=False)
    return c * (U * at.ties.signs(s <= at.ties.distance * at.size(0).max(), np.ones(len(s)))) @ Vt


def _von_neumann_entropy(at: At, number: int, c: Array) -> Array:
    """−tr N log N: −c(log N + I)."""
    values, V = np.linalg.eigh(at.x[0])
    return -c * (V * (np.log(values) + 1)) @ V.T


def _eye_minus_inverse(at: At, number: int, c: Array) -> Array:
    """(I − X)⁻¹ = Y: YᵀcYᵀ."""
    return np.asarray(at.y.T @ c @ at.y.T)


def _pf_eigenvalue(at: At, number: int, c: Array) -> Array:
    """The largest eigenvalue of a positive matrix: cuvᵀ/uᵀv with its left and right vectors."""
    values, V = np.linalg.eig(at.x[0])
    first = int(np.argmax(np.abs(values)))
    u, v = np.real(np.linalg.inv(V)[first]), np.real(V[:, first])
    return c * np.outer(u, v) / (u @ v)


def _gmatmul(at: At, number: int, c: Array) -> Array:
    """Y = e^(A log X): Aᵀ(c∘Y)/X, and (c∘Y)(log X)ᵀ by A."""
    X, A = at.x
    CY = c * at.y
    if number == 0:
        return np.asarray(A.T @ CY) / X
    return np.outer(CY, np.log(X)) if X.ndim == 1 else CY @ np.log(X).T


def _distance_ratio(at: At, number: int, c: Array) -> Array:
    """‖x − a‖/‖x − b‖: c((x − a)/‖x − a‖² − (x − b)/‖x − b‖²)y."""
    if number:
        raise refused(at.node, number)
    far = [at.x[0] - at.node.a, at.x[0] - at.node.b]
    return c * at.y * (far[0] / np.sum(far[0] ** 2) - far[1] / np.sum(far[1] ** 2))


# ---------------------------------------------------------------- our own


def _smooth_term(at: At, number: int, c: Array) -> Array:
    """ℓ(u, data): cℓ′."""
    if number:
        raise refused(at.node, number)
    u, *data = (np.broadcast_to(x, c.shape).ravel(order="F") for x in at.x)
    slope = np.where(at.node.loss.inside(u), at.node.loss.gradient(u, tuple(data)), np.nan)
    return times(c, slope.reshape(c.shape, order="F"))


def _cox(at: At, number: int, c: Array) -> Array:
    """The partial likelihood: c times its gradient."""
    return np.reshape(c * at.node.slopes(np.ravel(at.x[0])), at.x[0].shape)


# Attributes with numbers or parameters that count as further arguments, and the atoms as functions of all of these.
DATA = {"huber": ("M",), "Power": ("p",), "PowerApprox": ("p",), "gmatmul": ("A",)}
OF_DATA: dict[str, Callable[[Any, Any], Array]] = {
    "huber": lambda x, M: 2 * huber(M, x),
    "Power": lambda x, p: x ** float(p),
    "PowerApprox": lambda x, p: x ** float(p),
    "gmatmul": lambda X, A: np.exp(A @ np.log(X)),
}


def numeric(node: Any, values: list[Any]) -> Any:
    """A node's value for values of its arguments and of its attributes in `DATA`."""
    name = type(node).__name__
    if name in OF_DATA:
        return OF_DATA[name](*map(dense, values))
    return node.numeric(values if name in SUMS or name == "QuadForm" else [*map(dense, values)])


# Atoms whose entries are sums of entries of arguments, or of products of these, with coefficients 0, 1 and −1.
SUMS = frozenset(
    {"AddExpression", "NegExpression", "Sum", "cumsum", "Trace", "kron", "conv", "convolve", "multiply",
     "MulExpression", "reshape", "transpose", "index", "special_index", "Hstack", "Vstack", "Concatenate", "Promote",
     "broadcast_to", "diag_vec", "diag_mat", "upper_tri", "nonneg_wrap", "psd_wrap", "symmetric_wrap"}
)  # fmt: skip
# Atoms with |f(x)| ≤ f(|x|), also of sizes of terms in the place of |x|, with |data|; powers from 1 on are some, too.
OF_SIZES = frozenset(
    {"abs", "huber", "norm1", "norm_inf", "Pnorm", "PnormApprox", "quad_over_lin", "QuadForm", "DivExpression"}
)
STEPS = frozenset({"ceil", "floor", "sign", "length", "Not", "And", "Or", "Xor"})

SLOPES: dict[str, Rule] = {
    **dict.fromkeys(OF_ONE, _of_one),
    **dict.fromkeys(
        ("AddExpression", "nonneg_wrap", "nonpos_wrap", "psd_wrap", "nsd_wrap", "symmetric_wrap", "hermitian_wrap",
         "skew_symmetric_wrap", "real", "conj"),
        _same,
    ),
    **dict.fromkeys(
        ("broadcast_to", "Promote", "reshape", "transpose", "index", "special_index", "Hstack", "Vstack", "Concatenate",
         "diag_vec", "diag_mat", "upper_tri"),
        _placed,
    ),
    **dict.fromkeys(("NegExpression", "one_minus_pos"), _negative),
    "imag": _zero,
    "Sum": _sum,
    "cumsum": _cumsum,
    "Trace": _trace,
    "kron": _kron,
    **dict.fromkeys(("conv", "convolve"), _convolution),
    "multiply": _multiply,
    "DivExpression": _divide,
    "MulExpression": _product,
    **dict.fromkeys(("Power", "PowerApprox"), _power),
    "huber": _huber,
    "abs": _abs,
    "rel_entr": _relative_entropy,
    "kl_div": _kl_divergence,
    **dict.fromkeys(("maximum", "minimum"), _largest_of),
    "norm1": _norm1,
    "norm_inf": _norm_inf,
    **dict.fromkeys(("Pnorm", "PnormApprox"), _pnorm),
    "log_sum_exp": _log_sum_exp,
    "max": _max,
    "min": _min,
    "sum_largest": _sum_largest,
    "dotsort": _dotsort,
    "cummax": _cummax,
    "cumprod": _cumprod,
    "Prod": _prod,
    **dict.fromkeys(("GeoMean", "GeoMeanApprox"), _geo_mean),
    "quad_over_lin": _quad_over_lin,
    "QuadForm": _quad_form,
    "MatrixFrac": _matrix_frac,
    "log_det": _log_det,
    "tr_inv": _trace_of_inverse,
    **dict.fromkeys(("lambda_max", "lambda_sum_largest"), _lambda_sum_largest),
    "condition_number": _condition_number,
    "gen_lambda_max": _gen_lambda_max,
    "sigma_max": _sigma_max,
    "normNuc": _nuclear_norm,
    "von_neumann_entr": _von_neumann_entropy,
    "eye_minus_inv": _eye_minus_inverse,
    "pf_eigenvalue": _pf_eigenvalue,
    "gmatmul": _gmatmul,
    "dist_ratio": _distance_ratio,
    "SmoothTerm": _smooth_term,
    "CoxLikelihood": _cox,
}  # fmt: skip


def rule_of(node: Any) -> Rule:
    """A node's rule. Raises KernelOptError, which names it, where there is none."""
    ours = type(node).__module__.startswith(("cvxpy.", "kernelopt."))
    if not ours or type(node).__name__ not in SLOPES:
        raise refused(node)
    return SLOPES[type(node).__name__]
