"""A first point from libsvm, where scikit-learn is installed: it only finds, and whoever takes the point judges it.

From there, active sets take one to six systems on problems on which they give up from other points.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from inspect import signature
from math import inf
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import Kinks
from kernelopt.factorization import memory
from kernelopt.solvers import machines
from kernelopt.solvers.dual_point import Point, judged, with_balance
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.solvers.machines import Machine, machine_of
from kernelopt.solvers.nu_machines import NuForm, NuMachine, nu_machine_of
from kernelopt.solvers.structured import Structured
from kernelopt.support.locks import importing
from kernelopt.support.types import Array, Ints

TOL = 1e-3  # of libsvm, in units of margins; smaller ones take longer than the steps that follow save
# Tried in turn where active sets fail from the first point, as on rows that are nearly dependent.
FINER = (1e-5, 1e-7)
# Of libsvm, per row; each takes time in proportion to the rows. Large weights need more than the first point is worth.
ITERATIONS, MORE = 100, 1000
# Rows without a slope that are farther from their kinks than CLEAR margins stay there for the next value of a path,
# nearly all of them, and so do rows with a slope beyond HOLD margins: for factors of 1.6 in λ, few moved by more. Where
# more than MOST_LEFT of the rows are left, all are taken.
CLEAR, HOLD, MOST_LEFT = 0.2, 0.4, 0.9
FEW = 450  # rows up to which libsvm takes less than Newton steps on a B of few columns
CACHE = 200  # MB of the matrix that libsvm keeps, as scikit-learn's estimators have it
LOW_LEVEL = ("svm_type", "kernel", "tol", "epsilon", "nu", "class_weight", "sample_weight", "cache_size", "max_iter")
# Of the sum of coefficients that one row stands for, relative to a row's largest: smaller sums are lost in rounding.
LEAST_SUM = 1e-3
# libsvm begins a one-class problem with αᵢ = Jᵢ until their sum is T. With T the sum of all Jᵢ but for rounding, it
# writes beyond the last row.
MOST_NU = 1 - 1e-9
INSIDE = 1e-9  # multipliers that are farther from both ends, relative to their boxes, belong to rows at their kinks
LowLevel = Callable[[Array, Array, Array, dict[str, Any]], Any]


def first_point(problem: Structured, seconds: float, tol: float = TOL, near: Point | None = None) -> Point | None:
    """The a, y and s at libsvm's dual coefficients, and an x with that y alone, see `completed`.

    tol : of libsvm, in units of margins; near : the answer to a neighbouring problem. Rows that are clear of their
    kinks there keep their slopes: those without one are left out, and one more row stands for the others. None for
    other problems, where K is not at hand, in little time, where few rows are clear, and from neighbours where
    coefficients have a given sum.
    """
    if not machines.is_at_hand() or problem.smooth or problem.linear_d.any():
        return None
    if problem.linear_y.any():
        return _nu_point(problem, seconds, tol) if near is None else None
    space, m = problem.entry_space if near is not None else problem.kernel_space, problem.m
    if space is None:
        return None
    if "machine" not in problem.notes:
        problem.notes["machine"] = machine_of(_kinks(problem), problem.slope, problem.F)
    machine: Machine | None = problem.notes["machine"]
    if machine is None or _lacks_means(problem, seconds):
        return None
    f, held = np.asarray(problem.F)[:, 0], np.zeros(m)
    if near is not None:
        rest, held = _unclear(problem, machine, near.s)
        most = FEW if problem.kernel_space is None else len(machine.rows)
        if not 0 < len(rest) <= min(MOST_LEFT * len(machine.rows), most):
            return None
        machine = replace(machine, rows=machine.rows[rest], y=machine.y[rest], height=machine.height[rest])
    K, scale = _kernel(problem, space, machine.rows, f)
    others = _others(problem, machine, space, held, f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that ran out: the point is judged in any case
        try:
            c, y = _solved(machine, K, scale, tol, others)
        except ValueError:  # where all rows with a weight are of one class
            return None
    held[machine.rows] = c / f[machine.rows]
    return _point(problem, space, held, y)


def _kinks(problem: Structured) -> Kinks:
    """The kinks of all rows."""
    p = problem
    return Kinks(np.zeros(p.m), p.slope, p.of, p.anchor, p.low, p.high, p.rho)


def _lacks_means(problem: Structured, seconds: float) -> bool:
    """Whether time or memory is short."""
    return seconds < 1e-9 * ITERATIONS * problem.m**2 or not memory.has_twice(16.0 * problem.m**2)


def _nu_point(problem: Structured, seconds: float, tol: float) -> Point | None:
    """The same for machines whose coefficients have a given sum; y is the one for which rows between the ends of their
    boxes are at their kinks."""
    space, called = problem.kernel_space, _low_level()
    if space is None or called is None or isinstance(problem.F, sp.sparray):
        return None
    if "machine" not in problem.notes:
        problem.notes["machine"] = nu_machine_of(_kinks(problem), problem.slope, problem.F, problem.linear_y)
    machine: NuMachine | None = problem.notes["machine"]
    if machine is None or _lacks_means(problem, seconds):
        return None
    if machine.form is NuForm.ONE_CLASS and machine.nu > MOST_NU:
        return None
    f = problem.F[:, machine.column]
    K, scale = _kernel(problem, space, machine.rows, f)
    most = max(int((ITERATIONS if tol == TOL else MORE) * len(K)), 1)
    try:
        c = _nu_solved(machine, K if scale == 1 else scale * K, {"tol": tol, "max_iter": most}, called)
    except ValueError:  # no such ν: the classes have too few rows
        return None
    slopes = np.zeros(problem.m)
    slopes[machine.second] = np.minimum(c, 0.0)[: len(machine.second)]
    slopes[machine.rows] = np.maximum(c, 0.0) if len(machine.second) else c
    a = np.clip(slopes / f - problem.slope, 0.0, problem.high)
    s = -problem._spread(space.times(problem._gathered(problem.slope + a)))
    free = np.flatnonzero((a > INSIDE * problem.high) & (a < (1 - INSIDE) * problem.high))
    y = np.linalg.lstsq(problem.F[free], problem.anchor[free] - s[free], rcond=None)[0]
    x = np.append(np.zeros(problem.ends[-1]), y)
    return Point(x, s + problem.F @ y, a, np.zeros(problem.m), inf, 0.0, inf, inf)


def _nu_solved(machine: NuMachine, K: Array, options: dict[str, Any], called: LowLevel) -> Array:
    """The slopes c of the machine's rows. Those of a ν-SVR are −β, both rows of a pair together.

    Heights are at most 1, and targets of a ν-SVR are of size 1, as libsvm's tolerance expects; raises ValueError where
    libsvm has no point.
    """
    c = np.zeros(len(K))
    options = options | {"svm_type": int(machine.form), "nu": machine.nu, "cache_size": CACHE, "kernel": "precomputed"}
    if machine.form is NuForm.SVR:
        unit = float(np.abs(machine.y).max())
        rows, _, _, found, *_ = called(machine.y / unit, K, machine.height / unit, options)
        c[rows] = -unit * found[0]
    else:
        labels = (machine.sign > 0).astype(float)
        options["tol"] *= float(K.diagonal().mean())
        rows, _, _, found, *_ = called(labels, K, machine.height / machine.height.max(), options)
        c[rows] = np.abs(found[0])
    if not np.isfinite(c).all() or not c.any():
        raise ValueError("Expected finite coefficients.")
    return c if machine.form is NuForm.SVR else machine.sign * c * (machine.total / c.sum())


def _unclear(problem: Structured, machine: Machine, s: Array) -> tuple[Ints, Array]:
    """The numbers of the machine's rows that may be at a kink at the optimum, if it is near s, and slopes of others."""
    k = s[problem.of] - problem.anchor
    sides = problem.slope + problem.of_kinks(np.where(k > 0, problem.high, problem.low))
    clear = np.full(problem.m, np.inf)
    np.minimum.at(clear, problem.of, np.abs(k))
    far, sloped = clear[machine.rows] / machine.unit, sides[machine.rows] != 0
    held = sloped & (far > HOLD)
    near = (sloped | (far <= CLEAR)) & ~held
    if np.sum(held) < np.sum(near):  # few stay, as for a small λ, where all rows move by more
        near |= held
    c = np.where(near, 0.0, sides[machine.rows] * np.asarray(problem.F)[machine.rows, 0])
    if c.any() and abs(c.sum()) < LEAST_SUM * np.abs(c).max():  # no row can stand for a sum of 0
        near[np.argmin(np.where(c != 0, far, np.inf))] = True
    sides[machine.rows[near]] = 0.0
    return np.flatnonzero(near), sides


class _Others(NamedTuple):
    """Kβ at the rows to solve for, and Σβ, for the coefficients β of rows that keep them."""

    pull: Array
    total: float


def _others(problem: Structured, machine: Machine, space: KernelSpace, slopes: Array, f: Array) -> _Others | None:
    """Of the rows with these slopes, in units of the margin; None where there are none."""
    if not slopes.any():
        return None
    pull = problem._spread(space.times(problem._gathered(slopes)))[machine.rows]
    return _Others(-pull / (machine.unit * f[machine.rows]), -float(f @ slopes) / machine.unit)


def _kernel(problem: Structured, space: KernelSpace, rows: Ints, f: Array) -> tuple[Array, float]:
    """K divided by the rows' entries of F on both sides, as a matrix and a factor; entries of BBᵀ where these do."""
    e = problem.E.data / f
    if len(problem.blocks) == 1 and np.all(e == e[0]):
        return problem.blocks[0].outer_among(problem.E.indices[rows]), float(e[0] ** 2 / problem.R[0])
    K = space.among(rows)
    K /= np.multiply.outer(f[rows], f[rows])
    return K, 1.0


def _solved(machine: Machine, K: Array, scale: float, tol: float, others: _Others | None = None) -> tuple[Array, float]:
    """(c, y) of the rows with kinks, for the matrix scale·K: with c = c′/scale, K alone and heights scale·J.

    Raises ValueError where all rows are of one class, and where the row that stands for others is not at its bound.
    """
    most, unit = max(int((ITERATIONS if tol == TOL else MORE) * len(K)), 1), machine.unit
    epsilon, height = machine.epsilon / unit, scale * machine.height / unit
    y = machine.y if machine.margin > 0 else machine.y / unit
    if others is not None:
        total = scale * others.total
        K, height = _with_stand_in(K, height, others.pull, total)
        y = np.append(y, np.sign(total) * (1 + epsilon))
    c, intercept = _trained(K, y, height, None if machine.margin > 0 else epsilon, tol, most)
    if others is not None and abs(c[-1]) < height[-1]:
        raise ValueError("Expected the row that stands for others at its bound.")
    return -unit / scale * c[: len(machine.rows)], unit * intercept


def _with_stand_in(K: Array, height: Array, pull: Array, total: float) -> tuple[Array, Array]:
    """K and heights with one more row, whose coefficient is β = `total` at its bound, and its column pull/β.

    The diagonal entry is negative and outweighs the row's other terms, so that β goes to its bound first and stays
    there: libsvm replaces a curvature that is not positive by a tiny one, and chooses pairs by their gain (Fan, Chen
    and Lin, JMLR 6, 2005).
    """
    if abs(total) < LEAST_SUM * height.max():
        raise ValueError("Expected a sum of coefficients that one row can stand for.")
    n, column = len(K), pull / total
    wide = np.empty((n + 1, n + 1))
    wide[:n, :n], wide[n, :n], wide[:n, n] = K, column, column
    wide[n, n] = -10 * (1 + float(np.abs(column) @ height)) / abs(total)
    return wide, np.append(height, abs(total))


def _trained(  # noqa: PLR0917
    K: Array, y: Array, height: Array, epsilon: float | None, tol: float, most: int
) -> tuple[Array, float]:
    """Dual coefficients and intercept of SVC for labels ±1, or of SVR for targets and an `epsilon`.

    Raises ValueError where all labels are equal.
    """
    options: dict[str, Any] = {"kernel": "precomputed", "tol": tol, "max_iter": most, "cache_size": CACHE}
    if epsilon is None and y.min() == y.max():
        raise ValueError("Expected labels of two classes.")
    called, c = _low_level(), np.zeros(len(K))
    if called is not None:  # entries of K were checked when it was made
        if epsilon is None:
            rows, _, _, found, intercept, *_ = called((y > 0).astype(float), K, height, {"svm_type": 0} | options)
            found, intercept = -found, -intercept
        else:
            kind = {"svm_type": 3, "epsilon": epsilon}
            rows, _, _, found, intercept, *_ = called(y, K, height, kind | options)
    else:
        with importing:
            from sklearn.svm import SVC, SVR  # noqa: PLC0415
        fit = (SVC(**options) if epsilon is None else SVR(**options, epsilon=epsilon)).fit(K, y, height)
        rows, found, intercept = fit.support_, fit.dual_coef_, fit.intercept_
    c[rows] = found[0]
    if not np.isfinite(c).all():
        raise ValueError("Expected finite coefficients.")
    return c, float(intercept[0])


@cache
def _low_level() -> LowLevel | None:
    """Libsvm as scikit-learn's estimators call it: their checks take .4 ms, a twentieth of a small fit.

    None where scikit-learn has no such function, which is not part of its interface.
    """
    with importing:
        try:
            from sklearn.svm._libsvm import fit, set_verbosity_wrap  # noqa: PLC0415
        except ImportError:
            return None
    if not set(LOW_LEVEL) <= set(signature(fit).parameters):
        return None

    def called(y: Array, K: Array, height: Array, options: dict[str, Any]) -> Any:
        set_verbosity_wrap(0)
        K, y, height = (np.ascontiguousarray(part, dtype=float) for part in (K, y, height))
        return fit(K, y, sample_weight=height, class_weight=np.ones(2), **options)

    return called


def completed(problem: Structured, point: Point) -> Point:
    """The first point with the v that belongs to a, judged."""
    combined = problem.adjoint(problem.of_kinks(point.a)) + problem.linear
    end = problem.ends[-1]
    x = np.append(-combined[:end] / problem.penalty[:end], point.x[end:])
    return judged(problem, x, problem.products(x), point.a, point.slopes, problem.penalty * x + combined)


def _turns(problem: Structured) -> tuple[Ints | slice, ...]:
    """The kinks of all rows, the first of each and then the second: a row has one or two."""
    if np.all(problem.of[1:] > problem.of[:-1]):
        return (slice(None),)
    order = np.lexsort((problem.anchor, problem.of))
    first = np.append(True, np.diff(problem.of[order]) != 0)
    return order[first], order[~first]


def _point(problem: Structured, space: KernelSpace, c: Array, y: float) -> Point:
    """The point at slopes c; kinks of a row are used up in the order of their anchors."""
    left, a = c - problem.slope, np.zeros(len(problem.of))
    for turn in _turns(problem):
        a[turn] = np.clip(left[problem.of[turn]], 0.0, problem.high[turn])
        left[problem.of[turn]] -= a[turn]
    a = with_balance(problem, a)
    g = problem._gathered(problem.slope + problem.of_kinks(a)) + problem.linear_d
    s = problem.arguments(-space.times(g), np.array([y]))
    return Point(np.append(np.zeros(problem.ends[-1]), y), s, a, np.zeros(problem.m), inf, 0.0, inf, inf)
