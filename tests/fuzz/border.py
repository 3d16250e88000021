"""Random statements at the border with cvxpy, in kernelopt and by hand: all atoms, attributes, Parameters as data.

`atoms()` lists the atoms from cvxpy itself. `RECIPES` says how each of them is called, `ABSTRACT` which classes nobody
calls. An atom in neither table is an error, so that those of a new version are seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import cvxpy.logic
import numpy as np
from cvxpy.atoms.atom import Atom
from cvxpy.transforms.suppfunc import SuppFunc

import kernelopt as ko

POINTS = 6  # of the pool whose rows predictions take
K = 2  # outputs of a θ with columns, and the order of matrices

# Classes of cvxpy.atoms that no user calls.
ABSTRACT = {
    "AffAtom": "a base class", "AxisAtom": "a base class", "BinaryOperator": "a base class",
    "Elementwise": "a base class", "UnaryOperator": "a base class", "Wrap": "a base class",
    "LogicExpression": "a base class", "_NaryLogicExpression": "a base class",
    "SymbolicQuadForm": "made by cvxpy's compiler, from squares",
}  # fmt: skip


def atoms() -> list[str]:
    """The names of all atoms: callables that cvxpy exports, and classes of atoms in any of its modules."""
    public = {name for name in dir(cp) if _is_atom(getattr(cp, name))}
    nlp = {name for name in dir(getattr(cp, "nlp", None)) if _is_atom(getattr(cp.nlp, name))}
    classes = {c.__name__ for c in _below(Atom) if c.__module__.startswith("cvxpy.")}
    return sorted((public | nlp | classes) - set(ABSTRACT))


def _is_atom(value: Any) -> bool:
    return callable(value) and str(getattr(value, "__module__", "")).startswith("cvxpy.atoms.")


def _below(cls: type) -> set[type]:
    return {c for s in cls.__subclasses__() for c in {s, *_below(s)}}


# ---------------------------------------------------------------- one θ in two languages


class InKernel:
    """θ behind a kernel."""

    def __init__(self, kernel: Any, X: Any, outputs: int | None) -> None:
        self.X, self.theta = X, ko.Theta(kernel, outputs=outputs)
        self.solved = ko.Problem

    def predictions(self, rows: Any) -> Any:
        return self.theta(self.X[rows])

    def norm(self) -> Any:
        return ko.norm(self.theta, None if self.theta.outputs is None else "fro")

    def sum_squares(self) -> Any:
        return ko.sum_squares(self.theta)


class ByHand:
    """Bw with BBᵀ = Q, and ‖w‖, in plain cvxpy."""

    def __init__(self, kernel: Any, X: Any, outputs: int | None) -> None:
        values, V = np.linalg.eigh(kernel(X))
        kept = values > 1e-13 * values.max(initial=0.0)
        self.B = V[:, kept] * np.sqrt(values[kept])
        r = self.B.shape[1]
        self.w = cp.Variable(r if outputs is None else (r, outputs))
        self.solved = cp.Problem

    def predictions(self, rows: Any) -> Any:
        return self.B[rows] @ self.w

    def norm(self) -> Any:
        return cp.norm(self.w) if self.w.ndim == 1 else cp.norm(self.w, "fro")

    def sum_squares(self) -> Any:
        return cp.sum_squares(self.w)


# ---------------------------------------------------------------- variables

# For each attribute of cvxpy's variables: the shape and the arguments. Bounds keep every problem bounded by themselves.
ATTRIBUTES: dict[str, Any] = {
    "none": lambda d: ((3,), {}),
    "scalar": lambda d: ((), {}),
    "nonneg": lambda d: ((3,), {"nonneg": True}),
    "nonpos": lambda d: ((3,), {"nonpos": True}),
    "pos": lambda d: ((3,), {"pos": True}),
    "neg": lambda d: ((), {"neg": True}),
    "complex": lambda d: ((3,), {"complex": True}),
    "imag": lambda d: ((3,), {"imag": True}),
    "symmetric": lambda d: ((K, K), {"symmetric": True}),
    "diag": lambda d: ((K, K), {"diag": True}),
    "PSD": lambda d: ((K, K), {"PSD": True}),
    "NSD": lambda d: ((K, K), {"NSD": True}),
    "hermitian": lambda d: ((K, K), {"hermitian": True}),
    "boolean": lambda d: ((2,), {"boolean": True}),
    "integer": lambda d: ((2,), {"integer": True, "bounds": [-1, 1]}),
    "boolean_entries": lambda d: ((3,), {"boolean": [np.array([1])]}),
    "integer_entries": lambda d: ((3,), {"integer": [np.array([0])], "bounds": [-1, 1]}),
    "sparsity": lambda d: ((K, K), {"sparsity": [(0, 1), (1, 1)]}),
    "bounds": lambda d: ((3,), {"bounds": [-0.3, 0.2]}),
    "bounds_arrays": lambda d: ((3,), {"bounds": [np.array([-0.2, -np.inf, 0.1]), np.array([0.1, 0.3, np.inf])]}),
    "bounds_below": lambda d: ((), {"bounds": [-0.1, None]}),
    "bounds_above": lambda d: ((3,), {"bounds": [None, 0.15]}),
    "bounds_expressions": lambda d: ((3,), {"bounds": [-d.parameter((), "nonneg"), 0.1 + d.parameter((3,), "nonneg")]}),
    "bounds_nonneg": lambda d: ((3,), {"nonneg": True, "bounds": [None, 0.2]}),
    "bounds_symmetric": lambda d: ((K, K), {"symmetric": True, "bounds": [-0.2, 0.2]}),
    "bounds_PSD": lambda d: ((K, K), {"PSD": True, "bounds": [-0.2, 0.4]}),
    "bounds_diag": lambda d: ((K, K), {"diag": True, "bounds": [-0.2, 0.4]}),
    "bounds_equal": lambda d: ((3,), {"bounds": [np.array([-0.2, 0.1, -1]), np.array([0.3, 0.1, 1])]}),
}  # fmt: skip
WHOLE = ("boolean", "integer", "boolean_entries", "integer_entries")


def attributes() -> set[str]:
    """cvxpy's own list."""
    return set(cp.Variable().attributes)


# ---------------------------------------------------------------- one statement


@dataclass
class Draw:
    """The ingredients of one statement. The same seed draws the same ones in both languages.

    levels : numbers that depend on values, found by hand and used in both languages
    """

    language: Any
    rng: np.random.Generator
    attribute: str
    with_norms: bool
    levels: list[float] = field(default_factory=list)
    parameters: list[cp.Parameter] = field(default_factory=list)
    variables: list[cp.Variable] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape, given = ATTRIBUTES[self.attribute](self)
        self.v = cp.Variable(shape, name="v", **given)
        self.variables.append(self.v)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: float = 0.2, high: float = 1.5) -> float:
        return round(float(self.rng.uniform(low, high)), 3)

    def parameter(self, shape: Any, sign: str | None = None) -> cp.Parameter:
        value = self.rng.uniform(0.1, 0.8, shape) if sign else self.rng.normal(size=shape)
        p = cp.Parameter(
            shape, value=np.round(value, 3), name=f"p{len(self.parameters)}", **({sign: True} if sign else {})
        )
        self.parameters.append(p)
        return p

    def data(self, shape: Any, sign: str | None = None) -> Any:
        """A constant, in a third of all cases a Parameter."""
        if self.chance(1 / 3):
            return self.parameter(shape, sign)
        value = self.rng.uniform(0.1, 0.8, shape) if sign else self.rng.normal(size=shape)
        return np.round(value, 3)

    def rows(self, n: int) -> Any:
        return self.rng.integers(POINTS, size=n)

    def predictions(self, n: int) -> Any:
        f = self.language.predictions(self.rows(n))
        return f if f.ndim == 1 else f[:, int(self.rng.integers(K))]

    def of_v(self, n: int) -> Any:
        """An affine vector of n real numbers in v."""
        v = self.v
        if v.is_complex():
            v = cp.imag(v) if v.is_imag() or self.chance(0.5) else cp.real(v)
        flat = cp.reshape(v, (v.size,), order="F")
        if v.size == n and self.chance(0.5):
            return flat
        return np.round(self.rng.normal(size=(n, v.size)), 2) @ flat

    def vector(self, n: int = 3) -> Any:
        """An affine vector in θ, v and data, of size about 1."""
        kind = self.one_of(["θ", "θ", "θ − data", "θ + v", "θ + v − data", "v − data", "norm"])
        f = self.number() * self.of_v(n) if kind[0] == "v" else self.predictions(n)
        if kind == "norm" and self.with_norms:
            norm = self.language.norm() if self.chance(0.5) else self.language.sum_squares()
            return self.number() * norm * np.ones(n) - self.number(0.0, 0.5)
        if "+ v" in kind:
            f = f + self.of_v(n)
        return f - self.data((n,)) if "data" in kind else f

    def scalar(self) -> Any:
        return self.vector(1)[0]

    def above(self, n: int = 3) -> Any:
        """An affine vector that is positive where its terms are small."""
        return self.number(1.5, 3) + 0.3 * self.vector(n)

    def positive(self, shape: Any = (3,)) -> Any:
        """A vector that cvxpy knows to be positive: a variable's exponential, or a positive variable."""
        x = cp.Variable(shape, pos=True, name=f"x{len(self.variables)}")
        self.variables.append(x)
        f = self.predictions(int(np.prod(shape, dtype=int)))
        self.constraints.append(x >= 0.5 + cp.reshape(cp.exp(0.3 * f), shape, order="F"))
        self.constraints.append(x <= 20)
        return x

    def booleans(self, n: int = 2) -> list[cp.Variable]:
        z = [cp.Variable(boolean=True, name=f"z{len(self.variables) + k}") for k in range(n)]
        self.variables += z
        return z

    def matrix(self, m: int = K, n: int = K) -> Any:
        """An affine matrix."""
        f = self.language.predictions(self.rows(m))
        if f.ndim == 2 and n == K and self.chance(0.7):
            return f - self.data((m, n)) if self.chance(0.5) else f
        return cp.reshape(self.vector(m * n), (m, n), order="F")

    def symmetric(self, k: int = K) -> Any:
        M = self.matrix(k, k)
        return M + M.T

    def definite(self, k: int = K) -> Any:
        """A symmetric matrix that is definite where its terms are small."""
        M = self.matrix(k, k)
        return self.number(2, 4) * np.eye(k) + 0.2 * (M + M.T)

    def skew(self, k: int = K) -> Any:
        M = self.matrix(k, k)
        return M - M.T

    def weights(self, shape: Any) -> Any:
        return np.round(self.rng.normal(size=shape), 2)

    def psd(self, k: int) -> Any:
        R = np.round(self.rng.normal(size=(k, k)), 1)
        if self.chance(1 / 3):
            p = cp.Parameter((k, k), PSD=True, value=R @ R.T + 0.1 * np.eye(k), name=f"p{len(self.parameters)}")
            self.parameters.append(p)
            return p
        return R @ R.T

    def axis(self) -> dict[str, Any]:
        return {"axis": int(self.rng.integers(2)), "keepdims": self.chance(0.5)} if self.chance(0.4) else {}

    def any_of(self) -> Any:
        """A vector, or a matrix."""
        return self.matrix(3, 2) if self.chance(0.4) else self.vector()

    def power(self) -> float:
        return self.one_of([-2, -1, -0.5, 0.3, 0.5, 1.0, 1.5, 2, 2.7, 3, 4])


def _perspective(d: Draw) -> Any:
    s, x = cp.Variable(nonneg=True, name="s"), cp.Variable(2, name="x")
    d.variables += [s, x]
    d.constraints += [s >= 0.5, s <= 2, x == d.vector(2)]
    return cp.perspective(cp.sum_squares(x) if d.chance(0.5) else cp.sum(cp.exp(x)), s)


def _support(d: Draw) -> Any:
    x = cp.Variable(3)
    return SuppFunc(x, [cp.norm(x, d.one_of([1, 2, "inf"])) <= 1])(d.vector())


def _nlp(name: str) -> Any:
    return lambda d: getattr(cp.nlp, name)(0.3 * d.vector())


# How each atom is called: a function of the ingredients.
RECIPES: dict[str, Any] = {
    # affine
    "AddExpression": lambda d: d.vector() + d.vector(),
    "Concatenate": lambda d: cp.concatenate([d.vector(2), d.vector(1)]),
    "DivExpression": lambda d: d.vector() / d.data((3,), "pos"),
    "Hstack": lambda d: cp.hstack([d.vector(1), d.vector(2)]),
    "MulExpression": lambda d: d.weights((2, 3)) @ d.vector(),
    "NegExpression": lambda d: -d.vector(),
    "Promote": lambda d: d.scalar() + d.vector(),
    "Sum": lambda d: cp.sum(d.any_of()),
    "Trace": lambda d: cp.trace(d.matrix()),
    "Vstack": lambda d: cp.vstack([d.vector(2), d.vector(2)]),
    "bmat": lambda d: cp.bmat([[d.matrix(), d.matrix()], [d.matrix(), d.weights((K, K))]]),
    "broadcast_to": lambda d: cp.broadcast_to(cp.reshape(d.vector(), (1, 3), order="F"), (2, 3)),
    "concatenate": lambda d: cp.concatenate([d.matrix(2, 2), d.matrix(1, 2)], axis=0),
    "conj": lambda d: cp.real(cp.conj(d.v * (1 + 2j))) if d.v.is_complex() else cp.conj(d.vector()),
    "conv": lambda d: cp.conv(d.weights(2), cp.reshape(d.vector(), (3, 1), order="F")),
    "convolve": lambda d: cp.convolve(d.weights(2), d.vector()),
    "cumsum": lambda d: cp.cumsum(d.any_of(), axis=0),
    "deep_flatten": lambda d: cp.deep_flatten([d.vector(2), [d.vector(1), d.number()]]),
    "diag": lambda d: cp.diag(d.matrix()) if d.chance(0.5) else cp.diag(d.vector()),
    "diag_mat": lambda d: cp.diag(d.matrix(3, 3)),
    "diag_vec": lambda d: cp.diag(d.vector(2), k=d.one_of([-1, 0, 1])),
    "diff": lambda d: cp.diff(d.vector(4), k=d.one_of([1, 2])),
    "einsum": lambda d: cp.einsum("ij,jk->ik", d.weights((2, 3)), d.matrix(3, 2)),
    "hstack": lambda d: cp.hstack([d.matrix(2, 2), d.matrix(2, 1)]),
    "hermitian_wrap": lambda d: cp.real(cp.hermitian_wrap(d.symmetric())),
    "imag": lambda d: cp.imag(d.vector() * (1 + 2j)),
    "index": lambda d: d.vector(4)[1:3],
    "kron": lambda d: cp.kron(d.weights((2, 2)), d.matrix(1, 2)),
    "matmul": lambda d: cp.matmul(d.matrix(2, 3), d.weights((3, 2))),
    "mean": lambda d: cp.mean(d.any_of(), **d.axis() if d.chance(0.0) else {}),
    "moveaxis": lambda d: cp.moveaxis(d.matrix(3, 2), 0, 1),
    "multiply": lambda d: cp.multiply(d.data((3,)), d.vector()),
    "nonneg_wrap": lambda d: cp.atoms.affine.wraps.nonneg_wrap(d.above()),
    "nonpos_wrap": lambda d: cp.atoms.affine.wraps.nonpos_wrap(-d.above()),
    "nsd_wrap": lambda d: cp.atoms.affine.wraps.nsd_wrap(-d.definite()),
    "outer": lambda d: cp.outer(d.weights(2), d.vector(2)),
    "partial_trace": lambda d: cp.partial_trace(d.matrix(4, 4), (2, 2), axis=d.one_of([0, 1])),
    "partial_transpose": lambda d: cp.partial_transpose(d.matrix(4, 4), (2, 2), axis=d.one_of([0, 1])),
    "permute_dims": lambda d: cp.permute_dims(d.matrix(3, 2), [1, 0]),
    "promote": lambda d: cp.promote(d.scalar(), (3,)),
    "psd_wrap": lambda d: cp.psd_wrap(d.definite()),
    "real": lambda d: cp.real(d.vector() * (1 + 2j)),
    "reshape": lambda d: cp.reshape(d.vector(4), (2, 2), order=d.one_of(["F", "C"])),
    "scalar_product": lambda d: cp.scalar_product(d.weights(3), d.vector()),
    "skew_symmetric_wrap": lambda d: cp.skew_symmetric_wrap(d.skew()),
    "special_index": lambda d: d.vector(4)[[0, 2, 2]],
    "squeeze": lambda d: cp.squeeze(d.matrix(3, 1)),
    "stack": lambda d: cp.stack([d.vector(), d.vector()], axis=d.one_of([0, 1])),
    "sum": lambda d: cp.sum(d.matrix(3, 2), **d.axis()),
    "swapaxes": lambda d: cp.swapaxes(d.matrix(3, 2), 0, 1),
    "symmetric_wrap": lambda d: cp.symmetric_wrap(d.symmetric()),
    "trace": lambda d: cp.trace(d.weights((K, K)) @ d.matrix()),
    "transpose": lambda d: d.matrix(3, 2).T,
    "upper_tri": lambda d: cp.upper_tri(d.matrix(3, 3)),
    "vdot": lambda d: cp.vdot(d.weights(3), d.vector()),
    "vec": lambda d: cp.vec(d.matrix(3, 2), order=d.one_of(["F", "C"])),
    "vec_to_upper_tri": lambda d: cp.vec_to_upper_tri(d.vector(3), strict=d.chance(0.5)),
    "vstack": lambda d: cp.vstack([d.matrix(2, 2), d.matrix(1, 2)]),
    # convex, concave
    "GeoMean": lambda d: cp.geo_mean(d.above(), p=d.one_of([None, [0.2, 0.5, 0.3]]), approx=False),
    "GeoMeanApprox": lambda d: cp.geo_mean(d.above(), p=d.one_of([None, [1, 2, 1]])),
    "MatrixFrac": lambda d: cp.matrix_frac(d.vector(2), d.definite()),
    "Pnorm": lambda d: cp.pnorm(d.vector(), d.one_of([1.5, 2, 3, 2.7, 1.01, 20]), approx=False),
    "PnormApprox": lambda d: cp.pnorm(d.vector(), d.one_of([1.5, 3, 4]), approx=True),
    "Power": lambda d: cp.power(d.above(), d.power(), approx=False),
    "PowerApprox": lambda d: cp.power(d.above(), d.power(), approx=True),
    "QuadForm": lambda d: cp.quad_form(d.vector(), d.psd(3)),
    "SuppFuncAtom": _support,
    "abs": lambda d: cp.abs(d.v) if d.v.is_complex() and d.chance(0.5) else cp.abs(d.vector()),
    "cummax": lambda d: cp.cummax(d.vector()),
    "cvar": lambda d: cp.cvar(d.vector(4), d.one_of([0.0, 0.3, 0.5])),
    "dotsort": lambda d: cp.dotsort(d.vector(), d.data((2,))),
    "entr": lambda d: cp.entr(d.above()),
    "exp": lambda d: cp.exp(d.vector()),
    "geo_mean": lambda d: cp.geo_mean(d.above(), d.one_of([None, [0.5, 0.25, 0.25]])),
    "harmonic_mean": lambda d: cp.harmonic_mean(d.above()),
    "huber": lambda d: cp.huber(d.vector(), d.data((), "pos")),
    "inv_pos": lambda d: cp.inv_pos(d.above()),
    "inv_prod": lambda d: cp.inv_prod(d.above(2)),
    "kl_div": lambda d: cp.kl_div(d.above(), d.above() if d.chance(0.5) else d.data((3,), "pos")),
    "lambda_max": lambda d: cp.lambda_max(d.symmetric()),
    "lambda_min": lambda d: cp.lambda_min(d.symmetric()),
    "lambda_sum_largest": lambda d: cp.lambda_sum_largest(d.symmetric(3), 2),
    "lambda_sum_smallest": lambda d: cp.lambda_sum_smallest(d.symmetric(3), 2),
    "log": lambda d: cp.log(d.above()),
    "log1p": lambda d: cp.log1p(d.above()),
    "log_det": lambda d: cp.log_det(d.definite()),
    "log_normcdf": lambda d: cp.log_normcdf(d.vector()),
    "log_sum_exp": lambda d: cp.log_sum_exp(d.any_of()),
    "loggamma": lambda d: cp.loggamma(d.above()),
    "logistic": lambda d: cp.logistic(d.vector()),
    "matrix_frac": lambda d: cp.matrix_frac(d.vector(2), d.psd(2) if d.chance(0.5) else d.definite()),
    "max": lambda d: cp.max(d.matrix(3, 2), **d.axis()),
    "maximum": lambda d: cp.maximum(d.vector(), d.vector(), d.number()),
    "min": lambda d: cp.min(d.matrix(3, 2), **d.axis()),
    "minimum": lambda d: cp.minimum(d.vector(), d.vector()),
    "mixed_norm": lambda d: cp.mixed_norm(d.matrix(3, 2), d.one_of([1, 2, "inf"]), d.one_of([1, 2, "inf"])),
    "neg": lambda d: cp.neg(d.vector()),
    "norm": lambda d: cp.norm(d.matrix(2, 2), d.one_of([1, 2, "fro", "nuc", "inf"])),
    "norm1": lambda d: cp.norm1(d.any_of()),
    "norm2": lambda d: cp.norm2(d.matrix(3, 2), axis=d.one_of([0, 1])),
    "normNuc": lambda d: cp.normNuc(d.matrix(3, 2)),
    "norm_inf": lambda d: cp.norm_inf(d.any_of()),
    "perspective": _perspective,
    "pnorm": lambda d: cp.pnorm(d.vector(), d.one_of([1, 1.5, 2, 3, "inf"])),
    "pos": lambda d: cp.pos(d.vector()),
    "power": lambda d: cp.power(d.vector() if d.chance(0.5) else d.above(), d.power()),
    "ptp": lambda d: cp.ptp(d.vector()),
    "quad_form": lambda d: cp.quad_form(d.vector(), d.psd(3)),
    "quad_over_lin": lambda d: cp.quad_over_lin(d.vector(), d.above(1)[0] if d.chance(0.7) else d.data((), "pos")),
    "quantum_cond_entr": lambda d: cp.quantum_cond_entr(cp.symmetric_wrap(d.definite(2)), (2, 1)),
    "quantum_rel_entr": lambda d: cp.quantum_rel_entr(
        cp.symmetric_wrap(d.definite()), cp.symmetric_wrap(d.definite()) if d.chance(0.5) else np.eye(K)
    ),
    "rel_entr": lambda d: cp.rel_entr(d.above(), d.above() if d.chance(0.5) else d.data((3,), "pos")),
    "scalene": lambda d: cp.scalene(d.vector(), 0.7, 0.2),
    "sigma_max": lambda d: cp.sigma_max(d.matrix(3, 2)),
    "sqrt": lambda d: cp.sqrt(d.above()),
    "square": lambda d: cp.square(d.vector()),
    "std": lambda d: cp.std(d.vector(), ddof=d.one_of([0, 1])),
    "sum_largest": lambda d: cp.sum_largest(d.vector(4), d.one_of([1, 2, 2.5])),
    "sum_smallest": lambda d: cp.sum_smallest(d.vector(4), 2),
    "sum_squares": lambda d: cp.sum_squares(d.v) if d.v.is_complex() and d.chance(0.5) else cp.sum_squares(d.any_of()),
    "tr_inv": lambda d: cp.tr_inv(d.definite()),
    "tv": lambda d: cp.tv(d.matrix(3, 3)) if d.chance(0.5) else cp.tv(d.vector(4)),
    "var": lambda d: cp.var(d.vector(4)),
    "von_neumann_entr": lambda d: cp.von_neumann_entr(cp.symmetric_wrap(d.definite())),
    "xexp": lambda d: cp.xexp(d.above()),
    # quasiconvex, log-log convex, or nonconvex: refused in objectives and constraints, but values of criteria
    "ceil": lambda d: cp.ceil(d.vector()),
    "condition_number": lambda d: cp.condition_number(d.definite()),
    "cumprod": lambda d: cp.cumprod(d.positive()),
    "diff_pos": lambda d: cp.diff_pos(d.above(1)[0], d.number(0.1, 0.5)),
    "dist_ratio": lambda d: cp.dist_ratio(d.vector(), d.weights(3), d.weights(3)),
    "eye_minus_inv": lambda d: cp.eye_minus_inv(0.1 * d.definite()),
    "floor": lambda d: cp.floor(d.vector()),
    "gen_lambda_max": lambda d: cp.gen_lambda_max(d.symmetric(), d.definite()),
    "gmatmul": lambda d: cp.gmatmul(d.weights((2, 3)), d.positive()),
    "length": lambda d: cp.length(d.vector()),
    "one_minus_pos": lambda d: cp.one_minus_pos(0.3 * d.above()),
    "pf_eigenvalue": lambda d: cp.pf_eigenvalue(d.positive((2, 2))),
    "prod": lambda d: cp.prod(d.above()),
    "Prod": lambda d: cp.prod(d.positive()),
    "resolvent": lambda d: cp.resolvent(0.1 * d.definite(), 2.0),
    "sign": lambda d: cp.sign(d.scalar()),
    # of booleans
    "And": lambda d: cvxpy.logic.And(*d.booleans()),
    "Not": lambda d: cvxpy.logic.Not(d.booleans(1)[0]),
    "Or": lambda d: cvxpy.logic.Or(*d.booleans()),
    "Xor": lambda d: cvxpy.logic.Xor(*d.booleans()),
    # for nonlinear solvers
    **{name: _nlp(name) for name in ("sin", "cos", "tan", "sinh", "tanh", "asinh", "atanh", "normcdf")},
}  # fmt: skip
