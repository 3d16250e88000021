"""Pieces stated in cvxpy once more, family by family: an oracle for what the reader reads."""

import warnings

import cvxpy as cp
import numpy as np

from kernelopt.pieces.elementary import (
    AbsolutePower,
    Exp,
    InversePower,
    Logistic,
    NegativeEntropy,
    NegativeLog,
    NegativeRoot,
)
from kernelopt.pieces.extremes import Largest, RowLogSumExp, SumOfLargest
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.spectral import Schatten


def restated(P):
    """(problem, x)."""
    x = cp.Variable(P.n)
    objective, restrictions = _stated(P, x, P.S @ x + P.s0)
    return cp.Problem(cp.Minimize(objective), restrictions), x


def _stated(P, x, s):
    """The objective and the restrictions in x and the rows s."""
    objective, left = P.c @ x + P.c0, s[P.below] if len(P.below) else None
    for group in P.groups:
        value = expressed(group.family, cp.reshape(s[group.rows.ravel()], group.rows.shape, order="C"))
        weights = group.weights.toarray()
        if weights[:, 0].any():
            objective = objective + weights[:, 0] @ value
        if weights[:, 1:].any():
            left = left + weights[:, 1:].T @ value
    restrictions = [] if left is None else [left <= 0]
    restrictions += [s[P.equal] == 0] if len(P.equal) else []
    for kind, rows, extra in P.cones:
        restrictions += CONES[kind](s[rows], extra)
    return objective, restrictions


def _triples(s, extra):
    return cp.reshape(s, (s.size // 3, 3), order="C")


def _semidefinite(s, n):
    i, j = np.tril_indices(n)
    L, k = np.zeros((n * n, len(i))), np.arange(len(i))
    L[i + n * j, k] = L[j + n * i, k] = np.where(i == j, 1.0, np.sqrt(0.5))
    return [cp.reshape(L @ s, (n, n), order="F") >> 0]


CONES = {
    "soc": lambda s, _: [cp.SOC(s[0], s[1:])],
    "exp": lambda s, _: [cp.ExpCone(*_triples(s, _).T)],
    "power": lambda s, alpha: [cp.PowCone3D(*_triples(s, None).T, alpha)],
    "generalized_power": lambda s, alpha: [cp.PowConeND(s[:-1], s[-1], alpha)],
    "psd": _semidefinite,
}


def _with_zero(s):
    return cp.hstack([s, np.zeros((s.shape[0], 1))])


def _piecewise(family, q):
    """The first stretch as it goes on, then what slopes and curvatures change by at each knot."""
    b, C = family.knots, family.coefficients
    rows = np.arange(len(C))
    if not b.shape[1]:
        return C[:, 0, 0] + cp.multiply(C[:, 0, 1], q) + cp.multiply(0.5 * C[:, 0, 2], cp.square(q))
    at = np.where(np.isfinite(b[:, 0]), b[:, 0], 0.0)
    slope = C[:, 0, 1] + C[:, 0, 2] * at
    value = C[:, 0, 0] + at * (C[:, 0, 1] + 0.5 * C[:, 0, 2] * at)
    found = value + cp.multiply(slope, q - at)
    if C[:, 0, 2].any():
        found = found + cp.multiply(0.5 * C[:, 0, 2], cp.square(cp.neg(q - at)))
    for k in range(b.shape[1]):
        used = np.isfinite(b[:, k])
        at = np.where(used, b[:, k], 0.0)
        jump = used * ((C[:, k + 1, 1] - C[:, k, 1]) + (C[:, k + 1, 2] - C[:, k, 2]) * at)
        found = found + cp.multiply(np.where(jump > 1e-12, jump, 0.0), cp.pos(q - at))
        end = b[:, k + 1] if k + 1 < b.shape[1] else np.full(len(b), np.inf)
        for i in rows[used & (C[:, k + 1, 2] != 0)]:
            beyond, half = cp.pos(q[i] - at[i]), 0.5 * C[i, k + 1, 2]
            term = cp.huber(beyond, end[i] - at[i]) if np.isfinite(end[i]) else cp.square(beyond)
            found = found + half * term * (rows == i)
    return found


def expressed(family, s):
    """Σ-able cvxpy expressions of the functions of a family at s (m, k)."""
    q = s[:, 0]
    if isinstance(family, Piecewise):
        return _piecewise(family, q)
    if isinstance(family, Radial):
        return _piecewise(family.shape, cp.norm(s, 2, axis=1))
    if isinstance(family, RowNorm):
        return cp.hstack([cp.pnorm(s[i], family.p) for i in range(s.shape[0])])
    if isinstance(family, Schatten):
        norm = cp.normNuc if family.p == 1 else cp.sigma_max
        return cp.hstack([norm(cp.reshape(s[i], family.shape, order="F")) for i in range(s.shape[0])])
    if isinstance(family, SumOfLargest):
        count = int(family.count) if family.count % 1 == 0 else family.count  # cvxpy slices by it
        return cp.hstack([cp.sum_largest(_with_zero(s)[i], count) for i in range(s.shape[0])])
    if isinstance(family, AbsolutePower):
        return cp.power(cp.abs(q), family.p)
    if isinstance(family, InversePower):
        return cp.power(q, -family.p)
    if isinstance(family, NegativeRoot):
        return -cp.power(q, family.p)
    plain = {
        Largest: lambda: cp.max(_with_zero(s), axis=1), RowLogSumExp: lambda: cp.log_sum_exp(_with_zero(s), axis=1),
        Exp: lambda: cp.exp(q), Logistic: lambda: cp.logistic(q), NegativeLog: lambda: -cp.log(q),
        NegativeEntropy: lambda: -cp.entr(q),
    }  # fmt: skip
    return plain[type(family)]()


def multipliers(P, thetas):
    """The optimum and the multipliers of all rows, u = Bv and ‖v − v₀‖ ≤ t.

    thetas : (columns (N, K), B, column of t), and v₀ where it is not 0
    """
    x, s = cp.Variable(P.n), cp.Variable(P.S.shape[0])
    link = s == P.S @ x + P.s0
    objective, restrictions = _stated(P, x, s)
    restrictions.append(link)
    for columns, B, t, *shift in thetas:
        v = cp.Variable((B.shape[1], columns.shape[1]))
        centre = shift[0] if shift else np.zeros(v.shape)
        restrictions += [x[columns.ravel(order="F")] == cp.vec(B @ v, order="F"), cp.norm(v - centre, "fro") <= x[t]]
    problem = cp.Problem(cp.Minimize(objective), restrictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an accuracy that it does not reach
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value, -np.array(link.dual_value, dtype=float)
