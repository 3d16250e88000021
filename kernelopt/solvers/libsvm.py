"""A first point from libsvm, where scikit-learn is installed: it only finds, and whoever takes the point judges it.

From there, active sets take one to six systems on problems on which they give up from other points.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from kernelopt.compiler.pieces import Kinks
from kernelopt.factorization import memory
from kernelopt.solvers import machines
from kernelopt.solvers.dual_point import Point, judged, with_balance
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.solvers.machines import Machine, machine_of
from kernelopt.solvers.structured import Structured
from kernelopt.support.locks import importing
from kernelopt.support.types import Array, Ints

TOL = 1e-3  # of libsvm, in units of margins; smaller ones take longer than the steps that follow save
# Tried in turn where active sets fail from the first point, as on rows that are nearly dependent.
FINER = (1e-5, 1e-7)
# Of libsvm, per row; each takes time in proportion to the rows. Large weights need more than the first point is worth.
ITERATIONS, MORE = 100, 1000
# Rows without a slope that are farther from their kinks than CLEAR margins stay there for the next value of a path,
# nearly all of them. Where more than MOST_LEFT of the rows are left, all are taken.
CLEAR, MOST_LEFT = 0.2, 0.9


def first_point(problem: Structured, seconds: float, tol: float = TOL, near: Point | None = None) -> Point | None:
    """The a, y and s at libsvm's dual coefficients, and an x with that y alone, see `completed`.

    tol : of libsvm, in units of margins; near : the answer to a neighbouring problem. Rows that are clear of their
    kinks there, and have no slope, are left out. None for other problems, where K is not at hand, in little time, and
    where few rows are clear.
    """
    costs = problem.linear_y.any() or problem.linear_d.any()
    if not machines.is_installed() or problem.smooth or costs:
        return None
    space, m = problem.kernel_space, problem.m
    if space is None:
        return None
    kinks = Kinks(np.zeros(m), problem.slope, problem.of, problem.anchor, problem.low, problem.high, problem.rho)
    machine = machine_of(kinks, problem.slope, problem.F)
    short = seconds < 1e-9 * ITERATIONS * m**2 or 16.0 * m**2 > memory.available_bytes() / 2
    if machine is None or short:
        return None
    if near is not None:
        rest = _unclear(problem, machine, near.s)
        if len(rest) > MOST_LEFT * len(machine.rows):
            return None
        machine = replace(machine, rows=machine.rows[rest], y=machine.y[rest], height=machine.height[rest])
    f = np.asarray(problem.F)[:, 0]
    K, scale = _kernel(problem, space, machine.rows, f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that ran out: the point is judged in any case
        try:
            c, y = _solved(machine, K, scale, tol)
        except ValueError:  # where all rows with a weight are of one class
            return None
    slopes = np.zeros(m)
    slopes[machine.rows] = c / f[machine.rows]
    return _point(problem, space, slopes, y)


def _unclear(problem: Structured, machine: Machine, s: Array) -> Ints:
    """The numbers of the machine's rows that may have a slope at the optimum, if it is near s."""
    k = s[problem.of] - problem.anchor
    sides = problem.slope + problem.of_kinks(np.where(k > 0, problem.high, problem.low))
    clear = np.full(problem.m, np.inf)
    np.minimum.at(clear, problem.of, np.abs(k))
    unit = machine.margin or float(np.abs(machine.y).max())
    return np.flatnonzero((sides[machine.rows] != 0) | (clear[machine.rows] <= CLEAR * unit))


def _kernel(problem: Structured, space: KernelSpace, rows: Ints, f: Array) -> tuple[Array, float]:
    """K divided by the rows' entries of F on both sides, as a matrix and a factor; entries of BBᵀ where these do."""
    e = problem.E.data / f
    if len(problem.blocks) == 1 and np.all(e == e[0]):
        return problem.blocks[0].outer_among(problem.E.indices[rows]), float(e[0] ** 2 / problem.R[0])
    K = space.among(rows)
    K /= np.multiply.outer(f[rows], f[rows])
    return K, 1.0


def _solved(machine: Machine, K: Array, scale: float, tol: float) -> tuple[Array, float]:
    """(c, y) of the rows with kinks, for the matrix scale·K: with c = c′/scale, K alone and heights scale·J."""
    with importing:
        from sklearn import config_context  # noqa: PLC0415
        from sklearn.svm import SVR  # noqa: PLC0415

    most = max(int((ITERATIONS if tol == TOL else MORE) * len(K)), 1)
    # Entries of K were checked when it was made.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        if machine.margin > 0:
            unit = machine.margin
            classifier = _classifier()(kernel="precomputed", tol=tol, max_iter=most)
            fit = classifier.fit(K, machine.y, scale * machine.height / unit)
        else:
            unit = float(np.abs(machine.y).max()) or 1.0
            fit = SVR(kernel="precomputed", tol=tol, max_iter=most, epsilon=machine.epsilon / unit)
            fit.fit(K, machine.y / unit, scale * machine.height / unit)
    c = np.zeros(len(K))
    c[fit.support_] = -unit / scale * fit.dual_coef_[0]
    return c, unit * float(fit.intercept_[0])


@cache
def _classifier() -> Any:
    """SVC for labels that are known to be ±1: it takes .3 ms to find that out, a thirtieth of a small fit.

    Where scikit-learn asks for labels in another way, it finds that out itself.
    """
    with importing:
        from sklearn.svm import SVC  # noqa: PLC0415

    class Classifier(SVC):
        def _validate_targets(self, y: Array) -> Array:
            if y.min() == y.max():
                raise ValueError("Expected labels of two classes.")
            self.classes_, self.class_weight_ = np.array([-1.0, 1.0]), np.ones(2)
            return (y > 0).astype(float)

    return Classifier


def completed(problem: Structured, point: Point) -> Point:
    """The first point with the v that belongs to a, judged."""
    combined = problem.adjoint(problem.of_kinks(point.a)) + problem.linear
    end = problem.ends[-1]
    x = np.append(-combined[:end] / problem.penalty[:end], point.x[end:])
    return judged(problem, x, problem.products(x), point.a, point.slopes, problem.penalty * x + combined)


def _point(problem: Structured, space: KernelSpace, c: Array, y: float) -> Point:
    """The point at slopes c; kinks of a row are used up in the order of their anchors."""
    left, a = c - problem.slope, np.zeros(len(problem.of))
    order = np.lexsort((problem.anchor, problem.of))
    first = np.append(True, np.diff(problem.of[order]) != 0)
    for turn in (order[first], order[~first]):  # a row has one kink or two
        a[turn] = np.clip(left[problem.of[turn]], 0.0, problem.high[turn])
        left[problem.of[turn]] -= a[turn]
    a = with_balance(problem, a)
    g = problem._gathered(problem.slope + problem.of_kinks(a)) + problem.linear_d
    s = problem.arguments(-space.times(g), np.array([y]))
    return Point(np.append(np.zeros(problem.ends[-1]), y), s, a, np.zeros(problem.m), inf, 0.0, inf, inf)
