"""Slopes of each of cvxpy's atoms, beside central differences of formulas in numpy."""

import importlib
import pkgutil

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.atoms.affine.wraps import (
    hermitian_wrap,
    nonneg_wrap,
    nonpos_wrap,
    nsd_wrap,
    psd_wrap,
    skew_symmetric_wrap,
    symmetric_wrap,
)
from cvxpy.atoms.atom import Atom
from cvxpy.atoms.elementwise import hyperbolic, trig
from cvxpy.atoms.elementwise.normcdf import normcdf
from scipy import linalg, special, stats

from kernelopt import SmoothLoss, errors, losses
from kernelopt.sensitivity import atom_slopes
from kernelopt.sensitivity.chain_rule import gradient

rng = np.random.default_rng(0)
x, z = rng.uniform(0.3, 2.0, (2, 6)) * rng.choice([-1, 1], (2, 6))
p, q = rng.uniform(0.2, 0.9, (2, 6))
X, Y = rng.normal(size=(2, 3, 4))
A, B = rng.normal(size=(2, 3, 3))
T = rng.normal(size=(2, 3, 3))
C, w = rng.normal(size=(5, 6)), rng.normal(size=6)
half = np.array(0.5)


def sym(M):
    return M @ np.swapaxes(M, -1, -2)


def spd(M):
    return psd_wrap(M @ M.T)


def matrix_log(M):
    values, V = np.linalg.eigh(M)
    return (V * np.log(values)) @ V.T


def sorted_sum(v, k):
    return np.sort(v)[::-1][:k].sum()


def huber(v, M):
    return np.where(np.abs(v) <= M, v**2, 2 * M * np.abs(v) - M**2)


def cox(v):
    times = np.arange(6.0)
    return sum(special.logsumexp(v[times >= t]) - v[i] for i, t in enumerate(times))


def convolved(v):
    with pytest.warns(Warning, match="deprecated"):
        return cp.conv(w[:3], v)


def tail(u, y):
    return np.sqrt(1 + (u - y) ** 2)


smooth = SmoothLoss(
    tail, lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2), lambda u, y: (1 + (u - y) ** 2) ** -1.5
)  # fmt: skip

# Atom → (the expression of leaves, the same in numpy, the leaves' values), as lists where one case does not show all.
CASES = {
    "exp": [(cp.exp, np.exp, [x])],
    "log": [(cp.log, np.log, [p])],
    "log1p": [(cp.log1p, np.log1p, [p])],
    "entr": [(cp.entr, lambda v: -v * np.log(v), [p])],
    "xexp": [(cp.xexp, lambda v: v * np.exp(v), [p])],
    "logistic": [(cp.logistic, lambda v: np.log(1 + np.exp(v)), [x])],
    "sinh": [(hyperbolic.sinh, np.sinh, [x])],
    "tanh": [(hyperbolic.tanh, np.tanh, [x])],
    "asinh": [(hyperbolic.asinh, np.arcsinh, [x])],
    "atanh": [(hyperbolic.atanh, np.arctanh, [p])],
    "sin": [(trig.sin, np.sin, [x])],
    "cos": [(trig.cos, np.cos, [x])],
    "tan": [(trig.tan, np.tan, [p])],
    "normcdf": [(normcdf, stats.norm.cdf, [x])],
    "AddExpression": [
        (lambda a, b: a + b + b, lambda a, b: a + 2 * b, [x, z]),
        (lambda a, b: a + b, lambda a, b: a + b, [X, half]),
    ],
    "NegExpression": [(lambda v: -v, np.negative, [x])],
    "Promote": [(lambda v: cp.promote(v, (2, 3)), lambda v: v * np.ones((2, 3)), [half])],
    "broadcast_to": [(lambda v: cp.broadcast_to(v, (3, 6)), lambda v: np.broadcast_to(v, (3, 6)), [x])],
    "reshape": [
        (lambda v: cp.reshape(v, (2, 6), order="F"), lambda v: v.reshape((2, 6), order="F"), [X]),
        (lambda v: cp.reshape(v, (2, 6), order="C"), lambda v: v.reshape((2, 6)), [X]),
    ],
    "transpose": [
        (lambda v: v.T, np.transpose, [X]),
        (lambda v: cp.permute_dims(v, (2, 0, 1)), lambda v: np.transpose(v, (2, 0, 1)), [T]),
    ],
    "index": [(lambda v: v[1:, ::2], lambda v: v[1:, ::2], [X]), (lambda v: v[-1], lambda v: v[-1], [x])],
    "special_index": [
        (lambda v: v[[0, 2, 2, 0]], lambda v: v[[0, 2, 2, 0]], [x]),
        (lambda v: v[X > 0], lambda v: v[X > 0], [X]),
    ],
    "Hstack": [(lambda a, b: cp.hstack([a, b, a]), lambda a, b: np.hstack([a, b, a]), [x, z])],
    "Vstack": [(lambda a, b: cp.vstack([a, b]), lambda a, b: np.vstack([a, b]), [x, z])],
    "Concatenate": [
        (lambda a, b: cp.concatenate([a, b], axis=1), lambda a, b: np.concatenate([a, b], axis=1), [X, Y])
    ],
    "diag_vec": [(lambda v: cp.diag(v, k=1), lambda v: np.diag(v, k=1), [x])],
    "diag_mat": [(lambda v: cp.diag(v, k=-1), lambda v: np.diag(v, k=-1), [A])],
    "upper_tri": [(cp.upper_tri, lambda v: v[np.triu_indices(3, 1)][:, None], [A])],
    "nonneg_wrap": [(nonneg_wrap, lambda v: v, [p])],
    "nonpos_wrap": [(nonpos_wrap, lambda v: v, [-p])],
    "psd_wrap": [(spd, sym, [A])],
    "nsd_wrap": [(lambda M: nsd_wrap(-M @ M.T), lambda M: -sym(M), [A])],
    "symmetric_wrap": [(lambda M: symmetric_wrap(M + M.T), lambda M: M + M.T, [A])],
    "hermitian_wrap": [(lambda M: hermitian_wrap(M + M.T), lambda M: M + M.T, [A])],
    "skew_symmetric_wrap": [(lambda M: skew_symmetric_wrap(M - M.T), lambda M: M - M.T, [A])],
    "real": [(cp.real, lambda v: v, [x])],
    "conj": [(cp.conj, lambda v: v, [x])],
    "imag": [(lambda v: cp.imag(v) + v, lambda v: v, [x])],
    "Sum": [
        (cp.sum, np.sum, [X]),
        (lambda v: cp.sum(v, axis=0), lambda v: v.sum(axis=0), [X]),
        (lambda v: cp.sum(v, axis=1, keepdims=True), lambda v: v.sum(axis=1, keepdims=True), [X]),
        (lambda v: cp.sum(v, axis=(0, 2)), lambda v: v.sum(axis=(0, 2)), [T]),
    ],
    "cumsum": [
        (cp.cumsum, np.cumsum, [x]),
        (lambda v: cp.cumsum(v, axis=1), lambda v: np.cumsum(v, axis=1), [X]),
        (lambda v: cp.cumsum(v, axis=None), np.cumsum, [X]),
    ],
    "Trace": [(cp.trace, np.trace, [A])],
    "kron": [
        (lambda v: cp.kron(B, v), lambda v: np.kron(B, v), [X]),
        (lambda v: cp.kron(v, B), lambda v: np.kron(v, B), [X]),
    ],
    "conv": [(convolved, lambda v: np.convolve(w[:3], v), [x])],
    "convolve": [(lambda v: cp.convolve(w[:3], v), lambda v: np.convolve(w[:3], v), [x])],
    "multiply": [
        (cp.multiply, np.multiply, [x, z]),
        (lambda a, b: cp.multiply(a, cp.reshape(b, (6, 1), order="F")), lambda a, b: a * b[:, None], [x, z]),
        (lambda a: cp.multiply(a, a), np.square, [x]),
    ],
    "DivExpression": [
        (lambda a, b: a / b, np.divide, [x, z]),
        (lambda a, b: a / b, np.divide, [X, half]),
        (lambda a, b: a / b, np.divide, [half, X]),
    ],
    "MulExpression": [
        (lambda a: C @ a, lambda a: C @ a, [x]),
        (lambda a: a @ C.T, lambda a: a @ C.T, [x]),
        (lambda a: sp.csr_array(C) @ a, lambda a: C @ a, [x]),
        (lambda a: a @ sp.csc_matrix(C.T), lambda a: a @ C.T, [x]),
        (lambda a, b: a @ b, np.matmul, [x, z]),
        (lambda a, b: a @ b.T, lambda a, b: a @ b.T, [X, Y]),
        (lambda a, b: a @ b, np.matmul, [A, X]),
        (lambda a, b: a @ b, np.matmul, [A[0], X]),
        (lambda a, b: a @ b, np.matmul, [X, x[:4]]),
        (lambda a, b: a * b, lambda a, b: a * b, [half, X]),
        (lambda a, b: a @ b, np.matmul, [T, A]),
    ],
    "Power": [(lambda v: cp.power(v, 2.3, approx=False), lambda v: v**2.3, [p])],
    "PowerApprox": [
        *((lambda v, n=n: cp.power(v, n), lambda v, n=n: v**n, [p]) for n in (-1.5, -1, 0.5, 1, 1.5, 3, 4)),
        (lambda v: cp.power(v, 3), lambda v: v**3, [p]),
        (cp.square, np.square, [x]),
        (cp.inv_pos, lambda v: 1 / v, [p]),
    ],
    "huber": [(lambda v: cp.huber(v, 0.9), lambda v: huber(v, 0.9), [x])],
    "abs": [(cp.abs, np.abs, [x])],
    "rel_entr": [(cp.rel_entr, lambda a, b: a * np.log(a / b), [p, q])],
    "kl_div": [
        (cp.kl_div, lambda a, b: a * np.log(a / b) - a + b, [p, q]),
        (lambda a: cp.kl_div(a, 0.4), lambda a: a * np.log(a / 0.4) - a + 0.4, [p]),
    ],
    "maximum": [
        (lambda a, b: cp.maximum(a, b, 0.1), lambda a, b: np.maximum(np.maximum(a, b), 0.1), [x, z]),
        (lambda a, b: cp.maximum(a, b), np.maximum, [X, half]),
    ],
    "minimum": [(cp.minimum, np.minimum, [x, z])],
    "norm1": [
        (cp.norm1, lambda v: np.abs(v).sum(), [X]),
        (lambda v: cp.norm1(v, axis=1), lambda v: np.abs(v).sum(axis=1), [X]),
        (lambda v: cp.norm1(v, axis=0, keepdims=True), lambda v: np.abs(v).sum(axis=0, keepdims=True), [X]),
    ],
    "norm_inf": [
        (cp.norm_inf, lambda v: np.abs(v).max(), [X]),
        (lambda v: cp.norm_inf(v, axis=1), lambda v: np.abs(v).max(axis=1), [X]),
    ],
    "Pnorm": [(lambda v: cp.pnorm(v, 1.7, approx=False), lambda v: np.sum(np.abs(v) ** 1.7) ** (1 / 1.7), [x])],
    "PnormApprox": [
        (lambda v: cp.norm(v, 2), np.linalg.norm, [x]),
        (lambda v: cp.norm(v, 2, axis=1), lambda v: np.linalg.norm(v, axis=1), [X]),
        (lambda v: cp.pnorm(v, 3), lambda v: np.sum(np.abs(v) ** 3) ** (1 / 3), [X]),
        (lambda v: cp.pnorm(v, 0.5), lambda v: np.sum(v**0.5) ** 2, [p]),
        (lambda v: cp.pnorm(v, -1), lambda v: 1 / np.sum(1 / v), [p]),
    ],
    "log_sum_exp": [
        (cp.log_sum_exp, special.logsumexp, [X]),
        (lambda v: cp.log_sum_exp(v, axis=0), lambda v: special.logsumexp(v, axis=0), [X]),
        (lambda v: cp.log_sum_exp(v, axis=1, keepdims=True), lambda v: special.logsumexp(v, axis=1, keepdims=True),
         [X]),
    ],
    "max": [
        (cp.max, np.max, [X]),
        (lambda v: cp.max(v, axis=1), lambda v: v.max(axis=1), [X]),
        (lambda v: cp.max(v, axis=0, keepdims=True), lambda v: v.max(axis=0, keepdims=True), [X]),
    ],
    "min": [(cp.min, np.min, [x]), (lambda v: cp.min(v, axis=0), lambda v: v.min(axis=0), [X])],
    "sum_largest": [
        (lambda v: cp.sum_largest(v, 3), lambda v: sorted_sum(v, 3), [x]),
        (lambda v: cp.sum_largest(v, 2.5), lambda v: (sorted_sum(v, 2) + sorted_sum(v, 3)) / 2, [x]),
        (lambda v: cp.sum_largest(v, 2, axis=1), lambda v: np.sort(v, axis=1)[:, -2:].sum(axis=1), [X]),
        (lambda v: cp.sum_smallest(v, 2), lambda v: np.sort(v)[:2].sum(), [x]),
        (lambda v: cp.cvar(v, 0.5), lambda v: sorted_sum(v, 3) / 3, [x]),
    ],
    "dotsort": [
        (lambda v: cp.dotsort(v, w), lambda v: np.sort(v) @ np.sort(w), [x]),
        (lambda v: cp.dotsort(v, [3.0, 1.0]), lambda v: np.sort(v)[::-1][:2] @ [3.0, 1.0], [p]),
    ],
    "cummax": [
        (cp.cummax, np.maximum.accumulate, [x]),
        (lambda v: cp.cummax(v, axis=1), lambda v: np.maximum.accumulate(v, axis=1), [X]),
    ],
    "cumprod": [
        (cp.cumprod, np.cumprod, [x]),
        (cp.cumprod, np.cumprod, [np.array([1.3, 0.0, 2.0, -1.0])]),
        (lambda v: cp.cumprod(v, axis=1), lambda v: np.cumprod(v, axis=1), [X]),
    ],
    "Prod": [
        (cp.prod, np.prod, [X]),
        (cp.prod, np.prod, [np.array([1.3, 0.0, 2.0])]),
        (lambda v: cp.prod(v, axis=0), lambda v: v.prod(axis=0), [X]),
    ],
    "GeoMean": [(lambda v: cp.geo_mean(v, approx=False), lambda v: np.prod(v) ** (1 / 6), [p])],
    "GeoMeanApprox": [
        (cp.geo_mean, lambda v: np.prod(v) ** (1 / 6), [p]),
        (lambda v: cp.geo_mean(v, [1, 2, 0, 1, 0, 0]), lambda v: (v[0] * v[1] ** 2 * v[3]) ** 0.25, [p]),
        (lambda v: cp.geo_mean(v, axis=0), lambda v: np.prod(v, axis=0) ** (1 / 3), [np.abs(X) + 0.5]),
    ],
    "quad_over_lin": [
        (cp.quad_over_lin, lambda a, b: np.sum(a**2) / b, [X, half]),
        (lambda a, b: cp.quad_over_lin(a, b, axis=1), lambda a, b: np.sum(a**2, axis=1) / b, [X, half]),
        (cp.sum_squares, lambda v: np.sum(v**2), [X]),
        (cp.var, lambda v: v.var(), [x]),
        (cp.std, lambda v: v.std(), [x]),
    ],
    "QuadForm": [(lambda v: cp.quad_form(v, sym(A)), lambda v: v @ sym(A) @ v, [x[:3]])],
    "MatrixFrac": [
        (lambda v: cp.matrix_frac(v, sp.csc_array(2 * np.eye(3))), lambda v: v @ v / 2, [x[:3]]),
        (lambda v, M: cp.matrix_frac(v, spd(M)), lambda v, M: v @ np.linalg.inv(sym(M)) @ v, [x[:3], A]),
        (lambda V, M: cp.matrix_frac(V, spd(M)), lambda V, M: np.trace(V.T @ np.linalg.inv(sym(M)) @ V), [X, A]),
    ],
    "log_det": [(lambda M: cp.log_det(spd(M)), lambda M: np.log(np.linalg.det(sym(M))), [A])],
    "tr_inv": [(lambda M: cp.tr_inv(spd(M)), lambda M: np.trace(np.linalg.inv(sym(M))), [A])],
    "lambda_max": [
        (lambda M: cp.lambda_max(M + M.T), lambda M: np.linalg.eigvalsh(M + M.T)[-1], [A]),
        (lambda M: cp.lambda_min(M + M.T), lambda M: np.linalg.eigvalsh(M + M.T)[0], [A]),
    ],
    "lambda_sum_largest": [
        (lambda M: cp.lambda_sum_largest(M + M.T, 2), lambda M: np.linalg.eigvalsh(M + M.T)[1:].sum(), [A])
    ],
    "condition_number": [(lambda M: cp.condition_number(spd(M)), lambda M: np.linalg.cond(sym(M)), [A])],
    "gen_lambda_max": [
        (lambda M, S: cp.gen_lambda_max(M + M.T, spd(S)), lambda M, S: linalg.eigvalsh(M + M.T, sym(S))[-1], [A, B])
    ],
    "sigma_max": [(cp.sigma_max, lambda M: np.linalg.norm(M, 2), [X])],
    "normNuc": [(cp.normNuc, lambda M: np.linalg.norm(M, "nuc"), [X])],
    "von_neumann_entr": [
        (lambda M: cp.von_neumann_entr(spd(M)), lambda M: -np.trace(sym(M) @ matrix_log(sym(M))), [A])
    ],
    "eye_minus_inv": [(cp.eye_minus_inv, lambda M: np.linalg.inv(np.eye(3) - M), [np.abs(A) / 10])],
    "pf_eigenvalue": [(cp.pf_eigenvalue, lambda M: np.abs(np.linalg.eigvals(M)).max(), [np.abs(A)])],
    "one_minus_pos": [(cp.one_minus_pos, lambda v: 1 - v, [p])],
    "gmatmul": [
        (lambda v: cp.gmatmul(C, v), lambda v: np.exp(C @ np.log(v)), [p])
    ],
    "dist_ratio": [
        (lambda v: cp.dist_ratio(v, w, z), lambda v: np.linalg.norm(v - w) / np.linalg.norm(v - z), [x])
    ],
    "SmoothTerm": [(lambda v: smooth(v, w), lambda v: tail(v, w), [x])],
    "CoxLikelihood": [(lambda v: losses.cox(np.arange(6.0), np.ones(6, dtype=bool), v), cox, [x])],
}  # fmt: skip


def difference(f, values, number, entry):
    """The derivative by one entry, to fourth order."""

    def at(step):
        moved = [np.array(v, dtype=float) for v in values]
        moved[number][entry] += step
        return f(*moved)

    h = 1e-3
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name", CASES)
def test_slopes(name):
    for make, formula, values in CASES[name]:
        leaves = [cp.Variable(np.shape(v), pos=name == "gmatmul") for v in values]
        expression = make(*leaves)
        weights = np.random.default_rng(1).normal(size=expression.shape)
        found = gradient(
            cp.sum(cp.multiply(weights, expression)), {v.id: a for v, a in zip(leaves, values, strict=True)}
        )

        def truth(*several, formula=formula, weights=weights):
            return float(np.sum(weights * formula(*several)))

        assert found.value == pytest.approx(truth(*values), rel=1e-10)
        assert not found.kinks
        for number, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            known = np.zeros(np.shape(value))
            for entry in np.ndindex(known.shape):
                known[entry] = difference(truth, values, number, entry)
            assert found.slopes[leaf.id] == pytest.approx(known, rel=1e-7, abs=1e-7 * max(1, np.abs(known).max()))


def classes():
    """All classes of atoms that cvxpy has."""
    for module in pkgutil.walk_packages(cp.atoms.__path__, "cvxpy.atoms."):
        importlib.import_module(module.name)
    found, left = {}, [Atom]
    while left:
        for one in left.pop().__subclasses__():
            left.append(one)
            if one.__module__.startswith("cvxpy.atoms."):
                found[one.__name__] = one
    return found


# Bases of others, and atoms that are refused.
BASES = {"AffAtom", "AxisAtom", "BinaryOperator", "Elementwise", "LogicExpression", "UnaryOperator", "Wrap",
         "_NaryLogicExpression", "SymbolicQuadForm"}  # fmt: skip
REFUSED = {"And", "Not", "Or", "SuppFuncAtom", "Xor", "ceil", "floor", "length", "perspective", "quantum_rel_entr",
           "sign"}  # fmt: skip


def test_every_atom_has_a_rule_or_is_refused_by_name():
    known = classes()
    assert set(known) - BASES - REFUSED == set(atom_slopes.SLOPES) - {"SmoothTerm", "CoxLikelihood"}
    assert set(CASES) == set(atom_slopes.SLOPES)
    for name in REFUSED:
        with pytest.raises(errors.KernelOptError, match=rf"derivative; it has {name}, which is "):
            atom_slopes.rule_of(object.__new__(known[name]))
