"""Means of functions of a distance over intervals and normal distributions, and moments: the parts of kernel means.

A spread point is a distribution with independent columns: column j is uniform in [xⱼ − hⱼ, xⱼ + hⱼ], plus a normal
variable of standard deviation sⱼ. A point is the spread point with h = s = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, lgamma, log, pi, prod, sqrt
from typing import Any

import numpy as np
from scipy.special import erf, erfc, erfcx, roots_legendre

from kernelopt.support.types import Array

# Half-widths up to which the mean of e^{−t²/2} is taken at Gauss–Legendre nodes, in units of its standard deviation.
# Differences of antiderivatives lose a factor of 1/h²; larger values need more nodes.
NARROW = 0.5
MISSED = 1e-17  # bound on the error of a Gauss–Legendre mean of e^{−t²/2} over a narrow interval
FARTHEST = 800.0  # e⁻⁸⁰⁰ = 0 in double precision, while a polynomial times 0 would be nan for an infinite distance
# Where the series for incomplete gamma functions ends, and its terms: those left out are below 1e-17 of the first. For
# larger w they are at least a third, so that their difference from 1 loses no more than two binary digits.
LONG, TERMS = 3.0, 28


@dataclass(frozen=True, eq=False)
class Spread:
    """Spread points: centres, half-widths h ≥ 0 and standard deviations s ≥ 0 by columns, each (n, d)."""

    centres: Array
    halves: Array
    deviations: Array

    @classmethod
    def of_rows(cls, rows: Array) -> Spread:
        """The points that rows (x, h, s) hold."""
        return cls(*np.hsplit(rows, 3))

    @property
    def rows(self) -> Array:
        return np.hstack([self.centres, self.halves, self.deviations])

    def __len__(self) -> int:
        return len(self.centres)

    def __getitem__(self, chosen: Any) -> Spread:
        return Spread(self.centres[chosen], self.halves[chosen], self.deviations[chosen])

    def on(self, columns: Sequence[int]) -> Spread:
        """The chosen columns: a marginal distribution."""
        return self[:, list(columns)]

    def over(self, centre: Array, scales: Array) -> Spread:
        """The points (x − c)/ℓ."""
        return Spread((self.centres - centre) / scales, self.halves / scales, self.deviations / scales)


def nodes(h: float) -> tuple[Array, Array]:
    """Gauss–Legendre nodes on [−1, 1] and weights of sum 1 for the mean of e^{−t²/2} over intervals of half-width ≤ h.

    With n nodes the error is at most 2²ⁿ(n!)⁴/((2n + 1)(2n)!³)·h²ⁿ·sup|f⁽²ⁿ⁾|, and Cramér's inequality for Hermite
    functions gives |f⁽²ⁿ⁾| ≤ 1.1√(2n)!.
    """
    n = 1
    while h > 0 and _log_missed(n, h) > log(MISSED):
        n += 1
    return _gauss_legendre(n)


def _log_missed(n: int, h: float) -> float:
    return 2 * n * log(2 * h) + 4 * lgamma(n + 1) - log(2 * n + 1) - 2.5 * lgamma(2 * n + 1) + log(1.1)


@cache
def _gauss_legendre(n: int) -> tuple[Array, Array]:
    x, w = roots_legendre(n)
    return (x - x[::-1]) / 2, w / 2


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of spread points in one column: |x − z|, both half-widths, and √(sₓ² + s_z²), which broadcast."""

    apart: Array
    one: Array
    other: Array
    deviation: Array

    @classmethod
    def of(cls, X: Spread, Z: Spread, column: int) -> Pairs:
        """All pairs, (n, m)."""
        x, z = X[:, column], Z[:, column]
        return cls(
            np.abs(x.centres[:, None] - z.centres), x.halves[:, None], z.halves,
            np.hypot(x.deviations[:, None], z.deviations),
        )  # fmt: skip

    @classmethod
    def with_itself(cls, X: Spread, column: int) -> Pairs:
        """Each point and itself, (n,)."""
        x = X[:, column]
        return cls(np.zeros(len(x)), x.halves, x.halves, np.hypot(x.deviations, x.deviations))

    def over(self, scale: Array | float) -> tuple[Array, Array, Array]:
        """t = |x − z|, and the smaller a and larger b of the half-widths, in units of `scale`."""
        h, k = self.one / scale, self.other / scale
        t, a, b = np.broadcast_arrays(self.apart / scale, np.minimum(h, k), np.maximum(h, k))
        return t, a, b


def gaussian_means(pairs: Pairs, sigma: float) -> Array:
    """E e^{−(x + U − z − V)²/2σ²}.

    Normal parts widen the Gaussian: E e^{−(t + W)²/2σ²} = (σ/τ)e^{−t²/2τ²} for W ~ N(0, s²), τ² = σ² + s².
    """
    tau = np.hypot(sigma, pairs.deviation)
    return sigma / tau * gaussian_mean(*pairs.over(tau))


def gaussian_mean(t: Array, a: Array, b: Array) -> Array:
    """E e^{−(t + U + V)²/2}, U and V uniform in [−a, a] and [−b, b], 0 ≤ a ≤ b: at nodes or by antiderivatives."""
    wide, double = b > NARROW, a > NARROW
    found = np.empty(t.shape)
    narrow, single = ~wide, wide & ~double
    found[narrow] = _at_nodes(lambda y, b: _at_nodes(_bell, y, b), t[narrow], a[narrow], b[narrow])
    found[single] = _at_nodes(_bell_over, t[single], a[single], b[single])
    found[double] = _second_difference(t[double], a[double], b[double], sqrt(pi / 2), _bell_rest)
    return found


def _at_nodes(f: Callable[..., Array], t: Array, a: Array, *more: Array) -> Array:
    """The Gauss–Legendre mean of f over [t − a, t + a]."""
    total = np.zeros(t.shape)
    if not t.size:
        return total
    for x, w in zip(*nodes(float(a.max())), strict=True):
        total += w * f(t + x * a, *more)
    return total


def _bell(y: Array) -> Array:
    return np.exp(-0.5 * y * y)


def _bell_over(y: Array, b: Array) -> Array:
    """The mean of e^{−t²/2} over [y − b, y + b]: √(π/2)/(2b) times a difference of erf.

    Where both ends are on one side of 0, erfc keeps more digits.
    """
    y = np.abs(y)
    low, high = (y - b) / sqrt(2), (y + b) / sqrt(2)
    area = np.where(low > 0, erfc(np.maximum(low, 0)) - erfc(high), erf(high) + erf(-np.minimum(low, 0)))
    return sqrt(pi / 8) * area / b


def _bell_rest(s: Array) -> Array:
    """D(s) for s ≥ 0, where √(π/2)|t| + D(|t|) is the second antiderivative of e^{−t²/2}."""
    s = np.minimum(s, FARTHEST)
    return np.exp(-0.5 * s * s) * (1 - sqrt(pi / 2) * s * erfcx(s / sqrt(2)))


def _second_difference(t: Array, a: Array, b: Array, slope: float, rest: Callable[[Array], Array]) -> Array:
    """(G(t + b + a) − G(t + b − a) − G(t − b + a) + G(t − b − a))/(4ab) for G(t) = slope·|t| + rest(|t|).

    The terms in |t| add up to twice the length that the intervals [−a, a] and [t − b, t + b] share.
    """
    shared = np.clip(a + b - t, 0.0, 2 * a)
    rests = rest(t + b + a) - rest(t + (b - a)) - rest(np.abs(t - (b - a))) + rest(np.abs(t - b - a))
    return (2 * slope * shared + rests) / (4 * a * b)


def exponential_means(pairs: Pairs, scale: float, p: tuple[float, ...]) -> Array:
    """E g(|x + U − z − V|/scale) for g(s) = p(s)e⁻ˢ with a polynomial p that has coefficients ≥ 0."""
    return exponential_mean(*pairs.over(scale), p)


def exponential_mean(t: Array, a: Array, b: Array, p: tuple[float, ...]) -> Array:
    """E g(|t + U + V|) for g(s) = p(s)e⁻ˢ, U and V uniform in [−a, a] and [−b, b], 0 ≤ a ≤ b.

    The density of t + U + V rises over a length 2a, is 1/2b over 2(b − a), and falls over 2a. Each stretch is split at
    0. All terms are ≥ 0, so that none cancel.
    """
    found = np.empty(t.shape)
    at_point = b == 0
    found[at_point] = _profile(t[at_point], p)
    t, a, b = t[~at_point], a[~at_point], b[~at_point]
    start, left, right = t - b - a, t - (b - a), t + (b - a)  # where it rises, where it is flat, where it falls
    below, one = np.maximum(-left, 0.0), np.ones(t.shape)
    up = np.clip(np.divide(-start, 2 * a, out=np.zeros_like(a), where=a > 0), 0.0, 1.0)  # the height at 0, if rising
    rises_after = np.where(start >= 0, 2 * a, np.maximum(left, 0.0))
    flat_after = np.where(left >= 0, 2 * (b - a), right)
    total = _area(np.maximum(start, 0.0), rises_after, up, one, p)
    total += _area(below, np.where(left > 0, np.maximum(-start, 0.0), 2 * a * up), np.where(left > 0, up, 1.0), 0.0, p)
    total += _area(np.zeros_like(t), below, one, one, p)
    total += _area(np.maximum(left, 0.0), flat_after, one, one, p)
    total += _area(right, 2 * a, one, 0.0, p)
    found[~at_point] = total / (2 * b)
    return found


def _profile(s: Array, p: tuple[float, ...]) -> Array:
    s = np.minimum(s, FARTHEST)
    return np.asarray(np.polynomial.polynomial.polyval(s, p) * np.exp(-s))


def _area(start: Array, width: Array, first: Array | float, last: Array | float, p: tuple[float, ...]) -> Array:
    """∫₀ʷ l(v)g(start + v)dv, with l linear from `first` at 0 to `last` at w.

    By Taylor's formula for p it is e^{−start}Σₖ p⁽ᵏ⁾(start)(first·(Iₖ − Jₖ) + last·Jₖ), with Iₖ = ∫₀ʷ vᵏe⁻ᵛ/k! dv =
    P(k + 1, w), the incomplete gamma function, and Jₖ = ∫₀ʷ (v/w)vᵏe⁻ᵛ/k! dv = (k + 1)P(k + 2, w)/w.
    """
    start = np.minimum(start, FARTHEST)
    total, derivative = np.zeros(np.shape(start)), np.asarray(p)
    P = incomplete_gammas(width, len(p) + 1)
    for k in range(len(p)):
        J = np.divide((k + 1) * P[k + 1], width, out=np.zeros_like(width), where=width > 0)
        total += np.polynomial.polynomial.polyval(start, derivative) * (first * (P[k] - J) + last * J)
        derivative = np.polynomial.polynomial.polyder(derivative)
    return np.asarray(total * np.exp(-start))


def incomplete_gammas(w: Array, most: int) -> list[Array]:
    """P(a, w) = ∫₀ʷ vᵃ⁻¹e⁻ᵛ/(a − 1)! dv for a = 1 … most, each with a small relative error.

    For the largest a, wᵃe⁻ʷ/a!·(1 + w/(a + 1)·(1 + w/(a + 2)·(…))) for w up to LONG, else 1 − e⁻ʷΣ wⁱ/i! over i < a.
    Then P(a, w) = P(a + 1, w) + wᵃe⁻ʷ/a!, without cancellation.
    """
    w = np.minimum(w, FARTHEST)
    terms = [np.exp(-w)]
    for a in range(1, most + 1):
        terms.append(terms[-1] * w / a)
    long = w > LONG
    short, series = w[~long], np.ones(int((~long).sum()))
    for i in range(TERMS, 0, -1):
        series = 1 + short / (most + i) * series
    found = np.empty_like(w)
    found[long] = 1 - sum(term[long] for term in terms[:most])
    found[~long] = terms[most][~long] * series
    gammas = [found]
    for a in range(most - 1, 0, -1):
        gammas.append(gammas[-1] + terms[a])
    return gammas[::-1]


def moments(X: Spread, most: int) -> Array:
    """E (xⱼ + Uⱼ)ᵏ for k = 0 … most, (most + 1, n, d): Σᵢ C(k, 2i)xᵏ⁻²ⁱ E U²ⁱ, whose terms have one sign.

    E U²ⁱ = Σₗ C(2i, 2l)h²ˡ/(2l + 1)·s²⁽ⁱ⁻ˡ⁾(2(i − l) − 1)‼ for an interval plus a normal variable.
    """
    x, h, s = (_powers(part, most) for part in (X.centres, X.halves, X.deviations))
    even = [
        sum(comb(2 * i, 2 * l) * odd_factorial(i - l) / (2 * l + 1) * h[2 * l] * s[2 * (i - l)] for l in range(i + 1))  # noqa: E741
        for i in range(most // 2 + 1)
    ]
    return np.array([sum(comb(k, 2 * i) * x[k - 2 * i] * even[i] for i in range(k // 2 + 1)) for k in range(most + 1)])


def odd_factorial(i: int) -> int:
    """(2i − 1)‼ = 1·3·5⋯(2i − 1)."""
    return prod(range(1, 2 * i, 2))


def _powers(x: Array, most: int) -> list[Array]:
    found = [np.ones_like(x)]
    for _ in range(most):
        found.append(found[-1] * x)
    return found


def power_means(left: Array, right: Array) -> list[Array]:
    """E (uᵀv)ⁿ for n = 0, 1, …, from the moments of the columns of u and v, (N + 1, …, d) each.

    Columns are independent: E (s + uⱼvⱼ)ⁿ = Σₖ C(n, k) E sⁿ⁻ᵏ · E uⱼᵏ E vⱼᵏ.
    """
    most = len(left) - 1
    shape = np.broadcast_shapes(left.shape[1:-1], right.shape[1:-1])
    sums = [np.ones(shape)] + [np.zeros(shape)] * most
    for j in range(left.shape[-1]):
        terms = [left[k, ..., j] * right[k, ..., j] for k in range(most + 1)]
        sums = [sum(comb(n, k) * sums[n - k] * terms[k] for k in range(n + 1)) for n in range(most + 1)]
    return sums
