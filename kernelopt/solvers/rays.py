"""Rays: directions along which a problem is unbounded, judged in the rows of its cone data as cvxpy gave them.

If a problem is feasible, a direction d with −Ad ∈ K, Pd = 0 and cᵀd < 0 proves that it is unbounded. A solver's d
meets these conditions nearly, and in rows of another size. Here d may violate a row by the rounding of the row's own
terms, ε|A||d|, and by the error of the predictions that d contains. To repair these violations costs their sizes times
the rows' multipliers, which must be less than −cᵀd. In a curved cone, a violation can stand for a slope of its square
root, and −cᵀd must exceed a multiple of that slope too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.feasibility import Question
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.compiler.representer import Reduction
from kernelopt.language.nodes import norm_from_gram
from kernelopt.solvers.cones import matrix
from kernelopt.support.types import Array, Ints

EPS = 2 * np.finfo(float).eps  # two roundings for each term: of the product, and of the sum
# Relative to the square root of a curved cone's violation, times the sizes of cᵀd's terms: the slope that a ray must
# exceed. A curved cone hides a slope of about one such root; 100 leaves a margin for constants of the cone.
STEEP = 100.0
# Slack of a row of unit size, for a direction of unit size, up to which the row is taken for active: above solvers'
# accuracy, 1e-8, and small enough to leave other rows out. A wrong choice costs a candidate, never a false ray.
ACTIVE = 1e-6
NOTHING = 1e-9  # relative to its largest entry: entries of a direction up to this are set to 0; the trade-off of ACTIVE
SINGULAR = 1e-13  # relative to the largest singular value: smaller ones belong to rows that are combinations of others
MOST = 2**23  # entries of the dense rows that a direction is projected on, 64 MB; beyond it there is no projection


@dataclass(frozen=True, eq=False)
class Ray:
    """A direction x with −Ax ∈ K and Px = 0 up to rounding.

    s : −Ax; error : bound on errors of s, from rounding and from predictions; slope : cᵀx; slope_error : the same bound
    for the slope; steepest : |c|ᵀ|x|; outside : violation of each row; hidden : the largest violation of a curved cone,
    relative to the sizes of its terms
    """

    x: Array
    s: Array
    error: Array
    slope: float
    slope_error: float
    steepest: float
    outside: Array
    hidden: float

    def falls(self, prices: Array) -> bool:
        """Whether cᵀd < 0 for a nearby direction d that meets all rows; `prices` are |multipliers| of the rows."""
        certain = -self.slope - self.slope_error - float(prices @ (self.outside + self.error))
        return bool(certain > 0 and -self.slope > STEEP * np.sqrt(self.hidden) * self.steepest)

    @property
    def is_flat(self) -> bool:
        """Whether cᵀd ≤ 0 up to rounding of its terms."""
        return self.slope <= self.slope_error


def judged(data: ConicForm, x: Array, noise: Array) -> Ray | None:
    """x as a ray, or None where it is no ray; `noise` holds bounds on the errors of its entries."""
    if np.any(np.abs(x[data.P > 0]) > noise[data.P > 0]) or not np.isfinite(x).all():
        return None
    A = sp.csr_array(data.A)
    sizes, counts = abs(A), np.diff(A.indptr)
    s, of_noise = -(A @ x), sizes @ noise
    terms = sizes @ np.abs(x)
    error = EPS * counts * terms + of_noise
    hidden, outside = 0.0, np.zeros(len(s))
    for kind, rows, extra in data.cones.slices:
        if kind in ("zero", "nonneg"):
            outside[rows] = np.abs(s[rows]) if kind == "zero" else np.maximum(-s[rows], 0.0)
            if np.any(outside[rows] > error[rows]):
                return None
        elif kind == "exp":
            if _outside_exponentials(s[rows], error[rows], counts[rows]):
                return None
        else:
            over = max(_outside(kind, s[rows], extra), 0.0)
            if over > float(np.linalg.norm(error[rows]) + error[rows.start]):
                return None
            outside[rows.start] = over
            size = float(np.max(terms[rows], initial=0.0))
            wrong = over + float(np.linalg.norm(of_noise[rows]))
            hidden = max(hidden, wrong / size if size > 0 else 0.0)
    costs = np.abs(data.c)
    steepest = float(costs @ np.abs(x))
    slope_error = EPS * np.count_nonzero(data.c) * steepest + float(costs @ noise)
    return Ray(x, s, error, float(data.c @ x), slope_error, steepest, outside, hidden)


def _outside(kind: str, s: Array, extra: Any) -> float:
    """The distance of s from a curved cone along the cone's axis."""
    match kind:
        case "soc":
            return float(np.linalg.norm(s[1:]) - s[0])
        case "psd":
            return -float(np.linalg.eigvalsh(matrix(s, extra))[0])
        case _:
            a = np.array([extra, 1 - extra]) if kind == "power" else np.asarray(extra)
            return max(-float(s[:-1].min()), float(abs(s[-1]) - np.prod(s[:-1].clip(0.0) ** a)))


def _outside_exponentials(s: Array, error: Array, counts: Array) -> bool:
    """Whether some (x, y, z) is outside of y·e^(x/y) ≤ z, y ≥ 0, or of its closure {x ≤ 0 ≤ z} where y is constant."""
    s, error = s.reshape(-1, 3), error.reshape(-1, 3)
    low, high = s - error, s + error
    flat = counts[1::3] == 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        least = np.where(s[:, 1] > 0, s[:, 1] * np.exp(low[:, 0] / s[:, 1]), np.where(low[:, 0] > 0, np.inf, 0.0))
    outside = (high[:, 2] < np.where(flat, 0.0, least)) | (high[:, 1] < 0) | (flat & (low[:, 0] > 0))
    return bool(outside.any())


def rays(
    question: Question, reduction: Reduction, point: Iterate, data: ConicForm, flat: bool = False
) -> Iterator[Ray]:
    """Rays near the direction that a solver found for a question.

    Candidates are that direction, its projection onto the rows that are nearly active, and its part without θ. Each is
    tried without entries that are nearly 0, then with them. With `flat`, cᵀd = 0 is one of the rows.
    """
    found = _Direction(question, reduction, data)
    q = found.start(point)
    for candidate in (q, found.projected(q, flat), np.where(found.of_theta, 0.0, q)):
        for trial in (found.snapped(candidate), candidate):
            ray = judged(data, *found.place(trial))
            if ray is not None:
                yield ray


class _Direction:
    """Directions q = (v, other columns), and their translation to the columns x of the cone data."""

    def __init__(self, question: Question, reduction: Reduction, data: ConicForm) -> None:
        self.question, self.reduction, self.data = question, reduction, data
        self.links = list(zip(reduction.form.predictions, data.u, strict=True))
        rest = np.ones(len(data.c), dtype=bool)
        rest[data.linked] = False
        self.rest = np.flatnonzero(rest)
        widths = [reduction.factors[link.theta].rank * (link.theta.outputs or 1) for link, _ in self.links]
        self.ends = np.cumsum([0, *widths])
        self.of_theta = np.arange(self.ends[-1] + len(self.rest)) < self.ends[-1]

    def start(self, point: Iterate) -> Array:
        """The direction q of a point."""
        place(self.reduction.form, point)
        parts = [np.ravel(v, order="F") for v in point.v]
        return np.concatenate([np.zeros(0), *parts, np.asarray(self.question.x.value, dtype=float)[self.rest]])

    def _v(self, q: Array, number: int) -> Array:
        theta = self.links[number][0].theta
        shape = self.reduction.factors[theta].rank, theta.outputs or 1
        return q[self.ends[number] : self.ends[number + 1]].reshape(shape, order="F")

    def place(self, q: Array) -> tuple[Array, Array]:
        """x and bounds on its errors: Bv differs from the predictions of θ = Cᵀw by rounding in the factor."""
        x, noise = np.zeros(len(self.data.c)), np.zeros(len(self.data.c))
        x[self.rest] = q[self.ends[-1] :]
        for number, (link, columns) in enumerate(self.links):
            factor, v = self.reduction.factors[link.theta], self._v(q, number)
            if not len(columns) or not v.any():
                continue
            B = factor.matrix.whole()
            shaped = v if link.theta.outputs is not None else v[:, 0]
            u = (B @ v)[link.take]
            afresh = factor.predictions(link.rows, shaped).reshape(len(link.rows), -1)[link.take]
            x[columns] = u.ravel(order="F")
            rounding = EPS * factor.rank * (np.abs(B) @ np.abs(v))[link.take]
            noise[columns] = (np.abs(u - afresh) + rounding).ravel(order="F")
        for norm, column in zip(self.question.norms, self.data.t, strict=True):
            number = next(i for i, (link, _) in enumerate(self.links) if link.theta is norm.view.theta)
            v = self._v(q, number) @ norm.right
            length = norm_from_gram(v.T @ v / self.reduction.factors[norm.view.theta].scale, norm.kind)
            x[column], noise[column] = length, EPS * (len(v) + 1) * length
        return x, noise

    def snapped(self, q: Array) -> Array:
        """q without entries, and without θs, that are nearly 0 relative to the largest entry of x."""
        x, _ = self.place(q)
        most = NOTHING * float(np.abs(x).max(initial=0.0))
        q = np.where(~self.of_theta & (np.abs(q) <= most), 0.0, q)
        for number, (_, columns) in enumerate(self.links):
            if np.all(np.abs(x[columns]) <= most):
                q[self.ends[number] : self.ends[number + 1]] = 0.0
        return q

    def projected(self, q: Array, flat: bool) -> Array:
        """The nearest direction for which the rows that are nearly active are 0."""
        x, data = self.place(q)[0], self.data
        A = sp.csr_array(sp.diags_array(self.question.sizes) @ data.A)
        chosen = _active(data, -(A @ x))
        extra = [sp.csr_array(sp.eye_array(len(x), format="csr")[np.flatnonzero(data.P > 0)])]
        if flat and data.c.any():
            extra.append(sp.csr_array(data.c[None, :] / np.abs(data.c).max()))
        rows = sp.csc_array(sp.vstack([A[chosen], *extra]))
        if not rows.shape[0] or rows.shape[0] * len(q) > MOST:
            return q
        parts = [np.zeros((rows.shape[0], 0))]
        for link, columns in self.links:
            factor, outputs = self.reduction.factors[link.theta], link.theta.outputs or 1
            B = factor.matrix.whole()[link.take] if len(columns) else np.zeros((0, factor.rank))
            each = columns.reshape(-1, outputs, order="F") if len(columns) else np.zeros((0, outputs), dtype=int)
            parts += [np.asarray(rows[:, each[:, k]] @ B) for k in range(outputs)]
        G = np.hstack([*parts, rows[:, self.rest].toarray()])
        size = np.abs(G).max(axis=1, initial=0.0)
        G /= np.where(size > 0, size, 1.0)[:, None]
        for _ in range(2):  # the second projection removes the rounding of the first
            q = q - np.linalg.lstsq(G, G @ q, rcond=SINGULAR)[0]
        return q


def _active(data: ConicForm, s: Array) -> Ints:
    """Rows with slack up to ACTIVE: equalities, inequalities, and curved cones all of whose rows are that small."""
    chosen = np.abs(s) <= ACTIVE
    for kind, rows, _ in data.cones.slices:
        if kind == "zero":
            chosen[rows] = True
        elif kind not in ("nonneg", "exp"):
            chosen[rows] = chosen[rows].all()
    return np.flatnonzero(chosen)
