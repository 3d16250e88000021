"""Checks a proof that stands in a file: python3 check.py FILE. Standard library only, in exact arithmetic.

    minimize    c·x + c₀ + Σ w₀h(s)
    subject to  sᵢ + Σ wᵢh(s) ≤ 0 ("below"),  sᵢ = 0 ("equal"),  s ∈ K,    s = Sx + s₀,  u = Aθ,  ‖θM − f‖ ≤ t

Lower bound, with multipliers a ≥ 0 of rows below, −a ∈ K* of cones, ω = w₀ + Σ aᵢwᵢ, and g = c + Sᵀa that is 0 in
columns of no θ:

    c₀ + s₀·a − Σ (ωh)*(a) − Σ ⟨n, f⟩    where −g_u = Σ nMᵀ and ‖Aᵀn‖ ≤ g_t

Upper bound: the objective at θ = Σ αᵢκ(xᵢ, ·) and the given x, if no constraint is violated there. All numbers are
rationals; kernel values, exp and ln are enclosed. docs/proof_files.md describes the lines.
"""

# fmt: off
import json
import sys
from fractions import Fraction
from math import inf, isqrt, lcm, nextafter
from operator import mul

P, E = 128, 16  # kernel values are integers in units of 2⁻ᴾ, with errors below E units
ONE = 1 << P
# Against files that are made to take forever: the most columns, characters of a number and of a file, points, bits of
# all denominators and of a point, and work, in units of about 20 ns. Proofs that kernelopt writes are far below.
COLUMNS, LONG, SIZE, POINTS, BITS, WIDE, WORK = 10**6, 20000, 10**8, 5000, 10**6, 5000, 3 * 10**10
OUTSIDE = "a multiplier outside of its domain"
LINE, SPENT = [0], [0, 0]  # the line that is read, or judged; work and bits of denominators so far
DENOMINATORS = set()


class Refused(Exception):
    """Why the lines prove nothing."""

def need(true, why):
    if not true: raise Refused(why)

def begin():
    SPENT[:] = [0, 0]
    DENOMINATORS.clear()

def spend(work):
    SPENT[0] += work
    need(SPENT[0] < WORK, "more work than a proof needs")

def num(v):
    """A hexadecimal double, or p/q of hexadecimal integers. Sums take at most the bits of all q."""
    need(isinstance(v, str) and 2 < len(v) < LONG and set(v) <= set("0123456789abcdefxp+-./"), "a number")
    if "/" in v:
        p, q = v.split("/")
        need("0x" in p and q[:2] == "0x" and int(q, 16) > 0, "a fraction")
        if q not in DENOMINATORS: SPENT[1] += 4 * len(q)
        DENOMINATORS.add(q)
        need(SPENT[1] < BITS, "denominators that are too long")
        spend((SPENT[1] + 4 * len(p)) ** 2 >> 13)
        return Fraction(int(p, 16), int(q, 16))
    sign = v[:1] if v[0] in "+-" else ""
    digits, _, e = v[len(sign):].partition("p")
    whole, _, part = digits.partition(".")
    need(whole[:2] == "0x" and set(whole[2:] + part) <= set("0123456789abcdef") and abs(int(e)) < 2000, "a number")
    return Fraction(int(sign + whole + part, 16)) * Fraction(2) ** (int(e) - 4 * len(part))

def short(x):
    """A number ≥ x of about 300 binary digits."""
    s = max(300 - x.numerator.bit_length() + x.denominator.bit_length(), 0)
    return x if x.denominator.bit_length() < 300 else Fraction(-((-x.numerator << s) // x.denominator), 1 << s)

def units(x, up):
    """x in units of 2⁻ᴾ, rounded down or up."""
    return -((-x.numerator << P) // x.denominator) if up else (x.numerator << P) // x.denominator

# ---- logarithms, exponentials and powers: (lower, upper)

def atanh(p, q):
    """2·atanh(p/q) in units of 2⁻¹⁶⁰ for 0 ≤ p/q ≤ 1/3, and its error: 2 units a term, and 1 for the rest."""
    z = (p << 160) // q
    square, term, k, total = z * z >> 160, z, 1, 0
    while term: total, term, k = total + term // k, term * square >> 160, k + 2
    return 2 * total, 8 * k

LN2, LN2_ERROR = atanh(1, 3)

def ln(x):
    """x = 2ᵉp/q with ¾ ≤ p/q ≤ 3/2."""
    need(x > 0, "the logarithm of a number that is not positive")
    p, q = x.numerator, x.denominator
    e = p.bit_length() - q.bit_length()
    p, q = p << max(-e, 0), q << max(e, 0)
    if 2 * p > 3 * q: q, e = 2 * q, e + 1
    if 4 * p < 3 * q: p, e = 2 * p, e - 1
    v, off = atanh(abs(p - q), p + q)
    v, off = (v if p >= q else -v) + e * LN2, off + abs(e) * LN2_ERROR + 4
    return Fraction(v - off, 1 << 160), Fraction(v + off, 1 << 160)

def series(x):
    """exp(−x), both in units of 2⁻¹⁶⁰, x ≤ 1: each of about 100 terms is off by at most 2 units."""
    term, total, k = 1 << 160, 0, 0
    while term: total, k, term = total + (-term if k % 2 else term), k + 1, (term * x >> 160) // (k + 1)
    return total

SEVEN, FOURTEEN = ([series(j << (160 - b)) >> 32 for j in range(n)] for b, n in ((7, 90), (14, 128)))

def exp_minus(x):
    """exp(−x) for an integer x ≥ 0, both in units: 2⁻ⁿ · exp(−j/2⁷) · exp(−k/2¹⁴) · (1 − r + … − r⁹/9!), r < 2⁻¹⁴.

    The rest of the series is below 2⁻¹⁵⁰, each product and each table is off by at most 2 units, n ln 2 and x by n + 1
    units where the value is below 2⁻ⁿ: less than E in all.
    """
    n, r = divmod(x, LN2 >> 32)
    if n > P: return 0
    first, r = SEVEN[r >> (P - 7)], r & (1 << P - 7) - 1
    second, r = FOURTEEN[r >> (P - 14)], r & (1 << P - 14) - 1
    q = ONE
    for k in (9, 8, 7, 6, 5, 4, 3, 2, 1): q = ONE - (r * q >> P) // k
    return ((first * second >> P) * q >> P) >> n

def exp(x):
    """For x > 0 it is (1/exp(−x/m))ᵐ with x/m ≤ 8."""
    need(x < 4000, "an exponential that is too large")
    m = max(-(-x // 8), 1)
    y = abs(x) / (m if x > 0 else 1)
    low, high = max(exp_minus(units(y, True)) - E, 0), exp_minus(units(y, False)) + E
    return (Fraction(low, ONE), Fraction(high, ONE)) if x <= 0 else (Fraction(ONE, high)**m, Fraction(ONE, low)**m)

def power(x, p):
    """xᵖ for x ≥ 0."""
    need(x > 0 or (x == 0 and p > 0), "a power of a number that is not positive")
    low, high = sorted(p * v for v in ln(x)) if x else (0, 0)
    return (exp(low)[0], exp(high)[1]) if x else (Fraction(0), Fraction(0))

# ---- upper bounds of roots, norms, a ln(a/w) and eigenvalues

def root(x):
    """√x, to 2⁻ᴾ of it."""
    s = 2 * max(0, P - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    return Fraction(isqrt(-((-x.numerator << s) // x.denominator)) + 1, 1 << s // 2) if x > 0 else Fraction(0)

def length(v, order):
    """‖v‖ of that order."""
    v = [abs(x) for x in v]
    if order in (1, inf): return sum(v) if order == 1 else max(v)
    return root(sum(x * x for x in v)) if order == 2 else power(sum(power(x, order)[1] for x in v), 1 / order)[1]

def xln(a, w):
    """a ln(a/w)."""
    need(a >= 0, OUTSIDE)
    return a * ln(a / w)[1] if a > 0 else Fraction(0)

def matrix(n, entry): return [[entry(i, j) for j in range(n)] for i in range(n)]

def is_semidefinite(A):
    """Whether a symmetric matrix is positive semidefinite, by elimination."""
    A = [list(row) for row in A]
    for k, top in enumerate(A):
        if top[k] < 0 or (top[k] == 0 and any(top[k:])): return False
        for row in A[k + 1:]:
            f = row[k] / top[k] if row[k] else 0
            if f:
                spend(len(top[k:]) * (200 + (f.denominator.bit_length() ** 2 >> 10)))
                row[k:] = [x - f * y for x, y in zip(row[k:], top[k:])]
    return True

def inverse(A, grid=None):
    """A⁻¹ of a positive definite matrix, by elimination; about, where numbers are rounded to multiples of a grid."""
    short = lambda row: [x // grid * grid for x in row] if grid else row
    rows = [[*row, *(Fraction(i == j) for j in range(len(A)))] for i, row in enumerate(A)]
    for k, top in enumerate(rows):
        need(top[k] > 0, "a matrix that is not positive definite")
        top[:] = short([x / top[k] for x in top])
        spend(len(A) * len(top) * (200 + (top[-1].denominator.bit_length() ** 2 >> 10)))
        for row in rows[:k] + rows[k + 1:]:
            if row[k]: row[:] = short([x - row[k] * y for x, y in zip(row, top)])
    return [row[len(A):] for row in rows]

def largest(G):
    """At least the largest eigenvalue or 0, to 2⁻⁸⁰ of the sum of sizes, by bisection."""
    fits = lambda v: is_semidefinite(matrix(len(G), lambda i, j: v * (i == j) - G[i][j]))
    if fits(Fraction(0)): return Fraction(0)
    low, high = Fraction(0), short(sum(abs(x) for row in G for x in row))
    grid = Fraction(2) ** (high.numerator.bit_length() - high.denominator.bit_length() - 100)
    G, off = [[x // grid * grid for x in row] for row in G], len(G) * grid  # 0 ≤ each change ≤ grid
    high = -(-high // grid) * grid
    for _ in range(80): low, high = (low, (low + high) / 2) if fits((low + high) / 2) else ((low + high) / 2, high)
    return high + off

def trace(A, B): return sum(map(mul, sum(A, []), sum(B, [])))

def norm(G, kind):
    """The norm of an S with SᵀS = G: √tr G ("fro"), √λ_max ("spectral"), tr √G ("nuclear").

    tr √G ≤ ½tr(D + D⁻¹G) for every D ≻ 0, here by Denman and Beavers' iteration for the root of G + a little.
    """
    eye = matrix(len(G), lambda i, j: Fraction(i == j))
    total, tiny, grid = trace(G, eye), Fraction(1, 1 << 96), Fraction(1, 1 << 4 * P)
    if kind == "fro" or total <= 0: return root(total)
    if kind == "spectral": return root(largest(G))
    need(kind == "nuclear", "a norm of another kind")
    half = lambda A, B: matrix(len(G), lambda i, j: (A[i][j] + A[j][i] + B[i][j] + B[j][i]) / 4 // grid * grid)
    D = start = matrix(len(G), lambda i, j: G[i][j] / total + tiny * (i == j))
    Y, before = eye, None
    while before is None or abs(before - trace(D, eye)) > tiny:
        before, D, Y = trace(D, eye), half(D, inverse(Y, grid)), half(Y, inverse(D, grid))
    D = [[x // tiny**2 * tiny**2 for x in row] for row in D]
    return short(root(total) * (trace(D, eye) + trace(inverse(D), start)) / 2)

# ---- functions h of a row: conjugate(a, w) ≥ (wh)*(a) for w > 0, and value(s) ≥ h on a box of intervals (low, high)

class OfOne:
    """A function of one number."""
    def fits(self, count): return count == 1

class OfRow:
    """A function of any row of numbers."""
    def fits(self, count): return count > 0

class Quadratics:
    """c₀ + c₁q + ½c₂q² between knots, continuous and convex; q = s, or q = ‖s‖ of an order, in which it never falls."""
    def __init__(self, knots, c0, parts, order=None):
        b, parts, c0, pieces = [num(v) for v in knots], [[num(v) for v in p] for p in parts], num(c0), []
        need(len(parts) == len(b) + 1 and all(x < y for x, y in zip(b, b[1:])), "knots")
        for k, (d, e) in enumerate(parts):
            if k:
                q, (f, g) = b[k - 1], parts[k - 1]
                need(d + q * e >= f + q * g, "a concave kink")
                c0 += q * (f - d + q * (g - e) / 2)
            need(e >= 0, "a concave part")
            pieces.append((c0, d, e))
        self.order = None if order is None else inf if order == "inf" else num(order)
        self.parts = list(zip([None, *b], [*b, None], pieces))
        if order is not None:
            self.parts = [(max(lo or 0, Fraction(0)), hi, c) for lo, hi, c in self.parts if hi is None or hi > 0]
            need(self.order >= 1 and self.parts[0][2][1] >= 0, "a function that falls in a norm")
    def fits(self, count): return count == 1 or (count > 0 and self.order is not None)
    def conjugate(self, a, w):
        r, (_, d, e) = a[0], self.parts[-1][2]
        if self.order is not None:
            dual = {1: inf, inf: Fraction(1)}[self.order] if self.order in (1, inf) else self.order / (self.order - 1)
            r = length(a, dual)
            if dual == 2 and e == 0 and sum(x * x for x in a) <= (w * d) ** 2: r = min(r, w * d)
        best = []
        spend(len(self.parts))
        for lo, hi, (c0, d, e) in self.parts:
            d, e = r - w * d, w * e
            q = d / e if e > 0 else hi if d > 0 else lo
            need(q is not None or d == 0, OUTSIDE)
            q = next((end for end in (q, lo, hi) if end is not None), Fraction(0))
            q = max(q, lo) if lo is not None else q
            q = min(q, hi) if hi is not None else q
            best.append(q * (d - e * q / 2) - w * c0)
        return max(best)
    def at(self, q):
        spend(len(self.parts))
        return next(c + q * (d + e * q / 2) for _, hi, (c, d, e) in self.parts if hi is None or q <= hi)
    def value(self, s):
        if self.order is None: return max(map(self.at, s[0]))
        return self.at(length([max(abs(low), abs(high)) for low, high in s], self.order))

class Exp(OfOne):
    def conjugate(self, a, w): return xln(a[0], w) - a[0]
    def value(self, s): return exp(s[0][1])[1]

class NegativeLog(OfOne):
    def conjugate(self, a, w): return -w - w * ln(-a[0] / w)[0]
    def value(self, s): return -ln(s[0][0])[0]

class NegativeLogComplement(OfOne):
    """−ln(1 − eˢ)."""
    def conjugate(self, a, w): return xln(a[0], w + a[0]) + xln(w, w + a[0])
    def value(self, s): return -ln(1 - exp(s[0][1])[1])[0]

class NegativeEntropy(OfOne):
    """s ln s."""
    def conjugate(self, a, w): return w * exp(a[0] / w - 1)[1]
    def value(self, s): return max(xln(q, Fraction(1)) for q in s[0])

class Power(OfOne):
    """|s|ᵖ, or of positive parts max(s, 0)ᵖ, for p > 1; −sᵖ for 0 < p < 1; sᵖ for p < 0.

    (wh)*(a) = ±|a|q|1 − 1/p| at q = (|a|/(w|p|))^(1/(p − 1)), + for p > 0.
    """
    def __init__(self, p, positive=False):
        self.p, self.positive = num(p), positive
        need(self.p not in (0, 1) and type(positive) is bool and (self.p > 1 or not positive), "a power that is none")
    def conjugate(self, a, w):
        a, p = a[0], self.p
        need(a <= 0 if p < 0 else a < 0 if p < 1 else a >= 0 or not self.positive, OUTSIDE)
        q = power(abs(a) / (w * abs(p)), 1 / (p - 1)) if a else (0, 0)
        return abs(a) * abs(1 - 1 / p) * (q[1] if p > 0 else -q[0])
    def value(self, s):
        low, high = s[0]
        if self.p < 1: return power(low, self.p)[1] if self.p < 0 else -power(low, self.p)[0]
        return power(max(high, Fraction(0)) if self.positive else max(abs(low), abs(high)), self.p)[1]

class LogSumExp(OfRow):
    """ln(1 + Σ exp s)."""
    def conjugate(self, a, w): return sum(xln(x, w) for x in [*a, w - sum(a)])
    def value(self, s):
        most = max(Fraction(0), *(high for _, high in s))
        return most + ln(exp(-most)[1] + sum(exp(high - most)[1] for _, high in s))[1]

class Sorted:
    """Σ wⱼx₍ⱼ₎ with falling weights, of x = (s, 0), or of "sizes" |s| or "positive" parts with weights ≥ 0."""
    def __init__(self, weights, of="entries"):
        self.v, self.of = [num(v) for v in weights], of
        need(of in ("entries", "sizes", "positive") and all(x >= y for x, y in zip(self.v, self.v[1:])), "weights")
        need(of == "entries" or self.v[-1] >= 0, "negative weights")
    def fits(self, count): return count > 0 and len(self.v) == count + (self.of == "entries")
    def conjugate(self, a, w):
        """0 if any j entries add up to at most the j largest weights, and for x = (s, 0) at least the j smallest."""
        need(self.of != "positive" or min(a) >= 0, OUTSIDE)
        sides = [(a, self.v), ([-x for x in a], [-v for v in reversed(self.v)])]
        for side, weights in sides if self.of == "entries" else [([abs(x) for x in a], self.v)]:
            room = 0
            for x, v in zip(sorted(side, reverse=True), weights):
                room += w * v - x
                need(room >= 0, OUTSIDE)
        return Fraction(0)
    def value(self, s):
        """At the upper ends; with weights of any sign at most Σ |w|₍ⱼ₎δ₍ⱼ₎ above it, for widths δ."""
        x = [{"entries": high, "sizes": max(abs(low), high), "positive": max(high, 0)}[self.of] for low, high in s]
        off = []
        if self.of == "entries": x, off = [*x, 0], [*(high - low for low, high in s), 0]
        pairs = [(self.v, x), (map(abs, self.v), off)]
        return sum(y * z for v, w in pairs for y, z in zip(sorted(v, reverse=True), sorted(w, reverse=True)))

class SquaresOverLinear(OfRow):
    """‖x‖²/y of a row (x, y), y > 0."""
    def conjugate(self, a, w):
        need(4 * w * a[-1] + sum(x * x for x in a[:-1]) <= 0, OUTSIDE)
        return Fraction(0)
    def value(self, s):
        need(s[-1][0] > 0, "a ratio by a number that is not positive")
        return sum(max(abs(low), abs(high)) ** 2 for low, high in s[:-1]) / s[-1][0]

DUAL = {"fro": "fro", "nuclear": "spectral", "spectral": "nuclear"}

class Schatten:
    """The nuclear or the spectral norm of a matrix of n rows, given by columns."""
    def __init__(self, n, kind):
        self.n, self.kind = n, kind
        need(type(n) is int and n > 0 and kind in ("nuclear", "spectral"), "a norm of another kind")
    def fits(self, count): return count > 0 and count % self.n == 0
    def norm(self, s, kind):
        S = [s[k:k + self.n] for k in range(0, len(s), self.n)]
        spend(100 * len(s) * len(S))
        return norm([[sum(map(mul, x, y)) for y in S] for x in S], kind)
    def conjugate(self, a, w):
        need(self.norm(a, DUAL[self.kind]) <= w, OUTSIDE)
        return Fraction(0)
    def value(self, s): return self.norm([low for low, _ in s], self.kind) + sum(high - low for low, high in s)

FUNCTIONS = {"quadratics": Quadratics, "exp": Exp, "log": NegativeLog, "log complement": NegativeLogComplement,
             "entropy": NegativeEntropy, "power": Power, "log-sum-exp": LogSumExp, "sorted": Sorted,
             "ratio": SquaresOverLinear, "schatten": Schatten}

# ---- cones K: whether z is in the dual cone, and by how much a row of intervals is outside of K, at most

class SecondOrder:
    @staticmethod
    def fits(count): return count > 0
    @staticmethod
    def holds(z): return z[0] >= 0 and z[0] ** 2 >= sum(x * x for x in z[1:])
    @staticmethod
    def outside(s): return length([max(map(abs, x)) for x in s[1:]], 2) - s[0][0]

class Exponential:
    """s₂ exp(s₁/s₂) ≤ s₃; v + p(1 + ln(w/p)) ≥ 0 for z = (−p, v, w)."""
    @staticmethod
    def fits(count): return count == 3
    @staticmethod
    def holds(z):
        p, v, w = -z[0], z[1], z[2]
        return p >= 0 and w >= 0 and (v >= 0 if p == 0 else w > 0 and v + p + p * ln(w / p)[0] >= 0)
    @staticmethod
    def outside(s):
        need(s[1][0] > 0, "a point at the end of an exponential cone")
        return s[1][1] * exp(s[0][1] / s[1][s[0][1] < 0])[1] - s[2][0]

class Semidefinite:
    """The lower triangle by rows, whose entries off the diagonal are multiplied by √2, as a double."""
    @staticmethod
    def fits(count): return count > 0 and isqrt(8 * count + 1) ** 2 == 8 * count + 1
    @staticmethod
    def matrix(z, factor):
        at = lambda i, j: z[max(i, j) * (max(i, j) + 1) // 2 + min(i, j)] * (1 if i == j else factor)
        return matrix((isqrt(8 * len(z) + 1) - 1) // 2, at)
    @staticmethod
    def holds(z): return is_semidefinite(Semidefinite.matrix(z, ROOT2 / 2))
    @staticmethod
    def outside(s):
        off, M = sum(high - low for low, high in s), Semidefinite.matrix([low for low, _ in s], 1 / ROOT2)
        return largest(matrix(len(M), lambda i, j: off * (i == j) - M[i][j]))

ROOT2 = num("0x1.6a09e667f3bcdp+0")
CONES = {"soc": SecondOrder, "exp": Exponential, "psd": Semidefinite}

# ---- kernels: rows of kernel values times 2^shift in units, each with an error below `error`, the largest below `most`

FORMS = {"gram": {"rows", "error"}, "gaussian": {"points", "sigma"},
         "polynomial": {"points", "gamma", "coef0", "degree"}}

class Term:
    def __init__(self, name, factor="0x1p+0", points=(), rows=(), error="0x0p+0", sigma="0x0p+0", gamma="0x1p+0",
                 coef0="0x0p+0", degree=1):
        self.name, self.factor, self.shift, self.error, self.rests_on = name, num(factor), 0, 1, ""
        if name == "gram":
            self.G, off = [[num(v) for v in row] for row in rows], num(error)
            need(all(len(row) == i + 1 for i, row in enumerate(self.G)) and off >= 0, "rows of a triangle")
            self.n, top = len(self.G), max(abs(v) for row in self.G for v in row)
            self.work = 100 * self.n**2
            self.shift = top.denominator.bit_length() - top.numerator.bit_length()
            self.most, self.error = (units(v * Fraction(2) ** self.shift, True) + 1 for v in (top, off))
            self.rests_on = f"a positive semidefinite kernel matrix within {float(off):.1e} of the numbers given"
            return
        X, q = [[num(v) for v in point] for point in points], 1
        need(len({len(point) for point in X}) <= 1 and len(X) <= POINTS, f"points of one length, {POINTS} at most")
        for v in sum(X, []):
            need(max(v.numerator.bit_length(), v.denominator.bit_length()) < WIDE, "numbers that are too long")
            q = lcm(q, v.denominator)
            need(q.bit_length() < WIDE, "numbers that are too long")
        self.n, self.X = len(X), [[int(v * q) for v in point] for point in X]
        bits = max((abs(v).bit_length() for point in self.X for v in point), default=0)
        self.work = self.n**2 * (100 + len(X[0] if X else X) * (bits + 60 >> 5))
        if name == "gaussian":  # exp(−‖x − z‖²/(2σ²)), ‖x − z‖² = (integer)/q²
            sigma = num(sigma)
            need(sigma > 0 and sigma.numerator.bit_length() + sigma.denominator.bit_length() < WIDE, "a width")
            self.rate, self.error, self.most = ONE / (2 * sigma**2 * q * q), E, ONE + E
        else:  # (coef0 + gamma x·z)^degree = (h + g·(integer))^p/D
            gamma, coef0 = num(gamma), num(coef0)
            need(gamma >= 0 <= coef0 and type(degree) is int and 0 < degree < 65, "a kernel of another form")
            D = lcm(gamma.denominator * q * q, coef0.denominator)
            bits = degree * (2 * bits + D.bit_length() + max(v.numerator.bit_length() for v in (gamma, coef0)))
            need(bits < BITS, "numbers that are too long")
            self.work += self.n**2 * (bits**2 >> 13)
            need(self.work < WORK, "more work than a proof needs")
            self.g, self.h, self.p, self.D = int(gamma * D) // (q * q), int(coef0 * D), degree, D**degree
            top = max((self.powers(x, [x])[0] for x in self.X), default=1)
            self.shift = self.D.bit_length() - top.bit_length()
            self.most = (top << P + max(self.shift, 0)) // (self.D << max(-self.shift, 0)) + 2
    def powers(self, x, others):
        return [(self.g * sum(map(mul, x, z)) + self.h) ** self.p for z in others]
    def row(self, i):
        """κ(xᵢ, xⱼ) for j ≤ i."""
        up, down = P + max(self.shift, 0), max(-self.shift, 0)
        if self.name == "gram": return [(v.numerator << up) // (v.denominator << down) for v in self.G[i]]
        x, others = self.X[i], self.X[:i + 1]
        if self.name == "polynomial": return [(v << up) // (self.D << down) for v in self.powers(x, others)]
        N, D = self.rate.numerator, self.rate.denominator
        return [exp_minus(sum((p - r) * (p - r) for p, r in zip(x, z)) * N // D) for z in others]
    def is_zero(self, w):
        """Whether Σ wᵢκ(xᵢ, ·) = 0 for integers w."""
        return self.name == "polynomial" and not sum(
            y * sum(map(mul, w, self.powers(x, self.X))) for x, y in zip(self.X, w) if y)

class Kernel:
    """A sum of terms times factors ≥ 0."""
    def __init__(self, kernel):
        for d in kernel: need(set(d) <= FORMS[d["name"]] | {"name", "factor"}, "a kernel of another form")
        self.terms = [Term(**d) for d in kernel]
        self.work = sum(t.work for t in self.terms)
        self.n, self.rests_on = self.terms[0].n, [t.rests_on for t in self.terms if t.rests_on]
        need(all(t.n == self.n and t.factor >= 0 for t in self.terms), "terms of a kernel")
        top = sum(t.factor * t.most * Fraction(2) ** -t.shift for t in self.terms)
        self.shift = P + top.denominator.bit_length() - top.numerator.bit_length()
        self.by = [t.factor * Fraction(2) ** (self.shift - t.shift) for t in self.terms]
        self.error, self.most = (sum(int(c * v) + 2 for c, v in zip(self.by, part)) for part in (
            [t.error for t in self.terms], [t.most for t in self.terms]))
    def row(self, i):
        rows = [[c.numerator * v // c.denominator for v in t.row(i)] for c, t in zip(self.by, self.terms)]
        return rows[0] if len(rows) == 1 else list(map(sum, zip(*rows)))
    def is_zero(self, v):
        """Whether Σ vᵢκ(xᵢ, ·) = 0, exactly."""
        scale = lcm(*(x.denominator for x in v))
        return not any(v) or all(t.is_zero([int(x * scale) for x in v]) for t in self.terms if t.factor)

class Products:
    """Qv and vᵀQw for vectors of rationals, from one pass over half of Q.

    Vectors are integers in units of 2⁻ᵇ, off by less than 1 in `loose` many entries.
    """
    def __init__(self, kernel, vectors):
        spend(kernel.work + 10 * kernel.n**2 * len(vectors))
        self.b, self.V, self.loose, self.P = [], [], [], P + kernel.shift
        for v in vectors:
            top = max(map(abs, v), default=Fraction(0))
            self.b.append(2 * P - (top.numerator.bit_length() - top.denominator.bit_length()))
            scaled = [x * Fraction(2) ** self.b[-1] for x in v]
            self.V.append([int(x) for x in scaled])
            self.loose.append(sum(x.denominator != 1 for x in scaled))
        self.R = [[0] * kernel.n for _ in vectors]
        for i in range(kernel.n) if vectors else ():
            row = kernel.row(i)
            for v, r in zip(self.V, self.R):
                r[i] += sum(map(mul, row, v))
                if v[i]: r[:i] = [y + v[i] * k for y, k in zip(r[:i], row)]
        self.sums = [sum(map(abs, v)) + loose for v, loose in zip(self.V, self.loose)]
        self.off = [total * kernel.error + loose * kernel.most for total, loose in zip(self.sums, self.loose)]
    def entries(self, i):
        unit = Fraction(1, 2) ** (self.P + self.b[i])
        return [((x - self.off[i]) * unit, (x + self.off[i]) * unit) for x in self.R[i]]
    def inner(self, i, j):
        unit, value = Fraction(1, 2) ** (self.P + self.b[i] + self.b[j]), sum(map(mul, self.V[i], self.R[j]))
        off = self.sums[i] * self.off[j] + self.loose[i] * max(map(abs, self.R[j]), default=0)
        return (value - off) * unit, (value + off) * unit

class Theta:
    """A θ with its u and norms: what its multipliers n need, and the values of u and t at θ = Σ αᵢκ(xᵢ, ·)."""
    def __init__(self, kernels, link, u, take, norms, alpha):
        need(type(link) is int and 0 <= link < len(kernels), "a kernel")
        self.kernel, self.u, self.take = kernels[link], u, take
        n, eye = self.kernel.n, matrix(len(u), lambda i, j: Fraction(i == j))
        need(all(len(c) == len(take) for c in u) and all(0 <= i < n for i in take), "rows of u")
        self.alpha, self.norms = [[num(v) for v in a] for a in alpha], []
        need(len(alpha) == len(u) and all(len(v) == n for v in self.alpha), "coefficients")
        for d in norms:
            M, N = ([[num(v) for v in line] for line in d.get(name, ())] for name in "Mn")
            M, f, k = M or eye, d.get("f", ()), len(d.get("M", eye)[0])
            need(set(d) <= {"t", "M", "n", "f", "kind"} and len(M) == len(u), "a norm")
            need(all(len(row) == k for row in M), "a norm")
            need(len(N) == (k if "n" in d or "M" in d else 0) and all(len(c) == n for c in N), "a norm's multipliers")
            need(len(f) in (0, k) and all(0 <= i < n for i in f), "a norm's function")
            self.norms.append((d["t"], M, N, f, d.get("kind", "fro")))
            spend(5 * len(u) * k * n)
        self.columns = [j for c in u for j in c] + [t for t, *_ in self.norms]
    def measured(self, g):
        """The dual norms of Aᵀn by t, and Σ ⟨n, f⟩, at most; for ν = −g_u."""
        nu = [[Fraction(0)] * self.kernel.n for _ in self.u]
        for column, v in zip(self.u, nu):
            for j, i in zip(column, self.take): v[i] -= g[j]
        left, vectors, self.needs, self.at, self.inner = [list(v) for v in nu], [*self.alpha], {}, [], Fraction(0)
        for t, M, N, f, kind in self.norms:
            N = N or nu
            for row, v in zip(M, left):
                for m, c in zip(row, N): v[:] = [y - m * z for y, z in zip(v, c)] if m else v
            shifted = [[sum(map(mul, column, row)) for row in zip(*self.alpha)] for column in zip(*M)]
            for column, i in zip(shifted, f): column[i] -= 1
            self.at.append((t, f, range(len(vectors), len(vectors) + len(N)), kind))
            vectors += [*N, *shifted]
        need(all(map(self.kernel.is_zero, left)), "multipliers that the norms of a θ do not take")
        self.found = Products(self.kernel, vectors)
        for t, f, at, kind in self.at:
            self.needs[t] = self.norm(at, DUAL[kind])
            self.inner += sum(self.found.entries(i)[row][1] for i, row in zip(at, f))
    def norm(self, numbers, kind):
        """At least the norm of these vectors; other than ‖·‖_F that of a matrix ⪰ their Gram matrix."""
        G = [[self.found.inner(i, j) for j in numbers] for i in numbers]
        if kind == "fro": return root(sum(G[i][i][1] for i in range(len(G))))
        off = max(high - low for row in G for low, high in row) * len(G)
        return norm(matrix(len(G), lambda i, j: (sum(G[i][j]) + sum(G[j][i])) / 4 + off * (i == j)), kind)
    def placed(self, x):
        """Set u, and t at least its norm."""
        for k, column in enumerate(self.u):
            values = self.found.entries(k)
            x.update((j, values[i]) for j, i in zip(column, self.take))
        for t, _, at, kind in self.at: x[t] = (self.norm([i + len(at) for i in at], kind),) * 2

# ---- the file

def unique(pairs):
    need(len(dict(pairs)) == len(pairs), "a name given twice")
    return dict(pairs)

def read(lines):
    """The first line, and the others by kind, each with its number."""
    items, size, kinds = [], 0, ("kernel", "link", "function", "cone", "row", "lower")
    for LINE[0], line in enumerate(lines, 1):
        size += len(line)
        need(size <= SIZE, "a file that is too long")
        items.append((LINE[0], json.loads(line, object_pairs_hook=unique)))
        need(isinstance(items[-1][1], dict), "no object")
        need(LINE[0] == 1 or sum(kind in items[-1][1] for kind in kinds) == 1, "a line of another kind")
    LINE[0] = 1
    need(items and items[0][1].get("format") == "kernelopt proof 1", "a file of another format")
    return items[0][1], {kind: [item for item in items[1:] if kind in item[1]] for kind in kinds}

def is_told(lines): return type(lines) is list and all(isinstance(line, str) and line.isprintable() for line in lines)

def blocks_of(items, count):
    """Functions with their rows and weights, in the objective and in `count` rows below."""
    blocks = []
    for LINE[0], d in items:
        need(set(d) <= {"function", "rows", "weights", "with"} and len(d["rows"]) == len(d["weights"]), "a function")
        weights = [[(o, num(v)) for o, v in w] for w in d["weights"]]
        need(all(v >= 0 and 0 <= o <= count for w in weights for o, v in w), "a weight")
        h = FUNCTIONS[d["function"]](**d.get("with", {}))
        need(all(h.fits(len(row)) for row in d["rows"]), "rows of a function")
        blocks.append((LINE[0], h, d["rows"], weights))
    return blocks

def sums(c, S, s0, x, below, blocks):
    """The objective without its constant and the left sides of rows below, at most, and all rows s as intervals."""
    end = lambda j, v, up: v * x[j][(v > 0) == up]
    s = [tuple(p + sum(end(j, v, up) for j, v in row) for up in (False, True)) for row, p in zip(S, s0)]
    value = [sum(end(j, v, True) for j, v in enumerate(c) if v), *(s[r][1] for r in below)]
    for LINE[0], h, rows, weights in blocks:
        for row, w in zip(rows, weights):
            most = h.value([s[r] for r in row]) if w else 0
            for o, v in w: value[o] += short(v * most)
    return value, s

def rows_of(items, is_column):
    S, s0, a = [], [], []
    for LINE[0], d in items:
        need(set(d) == {"row", "plus", "a"} and all(is_column(j) for j, _ in d["row"]), "a row")
        S.append([(j, num(v)) for j, v in d["row"]])
        s0.append(num(d["plus"]))
        a.append(num(d["a"]))
    return S, s0, a

def check(lines):
    """(lower, upper, violation, what they rest on, sense); upper and violation are None without a point."""
    begin()
    head, of = read(lines)
    need(set(head) == {"format", "sense", "statement", "columns", "c", "c0", "below", "equal", "x"}, "the first line")
    n, below, equal = head["columns"], head["below"], head["equal"]
    need(type(n) is int and 0 <= n <= COLUMNS and head["sense"] in ("minimize", "maximize"), "the first line")
    need(is_told(head["statement"]), "the statement")
    is_column = lambda j: type(j) is int and 0 <= j < n
    c = [Fraction(0)] * n
    for j, v in head["c"]: c[j if is_column(j) else n] += num(v)
    S, s0, a = rows_of(of["row"], is_column)
    g = list(c)
    for row, z in zip(S, a):
        for j, v in row if z else ():
            g[j] += v * z
    blocks, kernels, thetas = blocks_of(of["function"], len(below)), [], []
    used = [*below, *equal, *(r for _, _, rows, _ in blocks for row in rows for r in row)]
    used += [r for _, d in of["cone"] for row in d["rows"] for r in row]
    need(all(type(r) is int for r in used) and sorted(used) == list(range(len(S))), "rows that stand twice, or nowhere")
    need(all(a[r] >= 0 for r in below), "a negative multiplier of an inequality")
    for LINE[0], d in of["kernel"]: kernels.append(Kernel(**d))
    for LINE[0], d in of["link"]: thetas.append((LINE[0], Theta(kernels, **d)))
    owned = [j for _, theta in thetas for j in theta.columns]
    need(all(map(is_column, owned)) and len(set(owned)) == len(owned), "columns of two θ")
    need(not any(g[j] for j in set(range(n)) - set(owned)), "a column that is not balanced")
    lower, omega = num(head["c0"]) + sum(map(mul, s0, a)), [Fraction(1), *(a[r] for r in below)]
    for LINE[0], theta in thetas:
        theta.measured(g)
        need(all(g[t] >= size for t, size in theta.needs.items()), "‖Aᵀn‖ above its cost")
        lower -= theta.inner
    for LINE[0], h, rows, weights in blocks:
        for row, w in zip(rows, weights):
            total, z = sum(v * omega[o] for o, v in w), [a[r] for r in row]
            need(total > 0 or not any(z), OUTSIDE)
            lower -= short(h.conjugate(z, total)) if total > 0 else 0
    for LINE[0], d in of["cone"]:
        need(set(d) == {"cone", "rows"} and all(CONES[d["cone"]].fits(len(row)) for row in d["rows"]), "a cone")
        need(all(CONES[d["cone"]].holds([-a[r] for r in row]) for row in d["rows"]), OUTSIDE)
    LINE[0], claim = of["lower"][0]
    need(set(claim) == {"lower", "upper", "violation", "rests on"} and len(of["lower"]) == 1, "the claims")
    need(num(claim["lower"]) <= lower, "the lower bound is not proven")
    need(is_told(claim["rests on"]), "the claims")
    rests_on = [*(told for k in kernels for told in k.rests_on), *claim["rests on"]]
    if claim["upper"] is None: return lower, None, None, rests_on, head["sense"]
    x = {j: (num(v),) * 2 for j, v in head["x"]}
    need(not set(x) & set(owned), "a value of a column of θ")
    for LINE[0], theta in thetas: theta.placed(x)
    need(set(x) == set(range(n)), "a column without a value")
    (upper, *off), s = sums(c, S, s0, x, below, blocks)
    off += [max(map(abs, s[r])) for r in equal]
    for LINE[0], d in of["cone"]: off += [CONES[d["cone"]].outside([s[r] for r in row]) for row in d["rows"]]
    LINE[0], upper, violation = of["lower"][0][0], upper + num(head["c0"]), max([Fraction(0), *off])
    need(upper <= num(claim["upper"]) and violation <= num(claim["violation"]), "the upper bound is not attained")
    return lower, upper, violation, rests_on, head["sense"]

def rounded(v, up):
    """The next double above, or below."""
    try: x = float(v)
    except OverflowError: x = inf if v > 0 else -inf
    if abs(x) == inf: return x if (x > 0) == up else nextafter(x, 0)
    return x if (Fraction(x) >= v if up else Fraction(x) <= v) else nextafter(x, inf if up else -inf)

# What broken lines raise.
FAULTS = (Refused, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)

def lines_of(file):
    """The lines of a file that is open, of which no more is read than a proof may have."""
    text = file.read(SIZE + 1)
    need(len(text) <= SIZE, "a file that is too long")
    return text.removesuffix("\n").split("\n")

def told(lower, upper, violation, rests_on, sense):
    """What is proven, as lines."""
    low, up = rounded(lower, False), None if upper is None else rounded(upper, True)
    if sense == "maximize": low, up = up if up is None else -up, -low
    at = "least" if sense == "minimize" else "most"
    if violation or None in (low, up):
        bound, value = (low, up) if sense == "minimize" else (up, low)
        yield f"proven: the optimum is at {at} {bound}"
        if violation: yield f"at a point that violates constraints by {rounded(violation, True)} at most, it is {value}"
        yield f"exactly: {bound.hex()}"
    else:
        yield f"proven: the optimum is in [{low}, {up}]"
        yield f"exactly: [{low.hex()}, {up.hex()}]"
    for fact in rests_on: yield f"rests on: {fact}"

def main(path):
    for stream in (sys.stdout, sys.stderr): stream.reconfigure(errors="backslashreplace")
    try:
        with open(path, encoding="utf-8") as file: found = list(told(*check(lines_of(file))))
    except (*FAULTS, OSError) as error:
        print(f"refused: line {LINE[0]}: {error if isinstance(error, Refused) else ascii(error)[:200]}")
        return 1
    print("\n".join(found))
    return 0

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else "Expected one argument, the file of a proof.")
