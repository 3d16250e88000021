"""A world of small objects that go together, right values of arguments by their names, and wrong values by labels."""

import decimal
import fractions
import importlib
import os
import pathlib
from functools import cached_property

import cvxpy as cp
import numpy as np
import pandas as pd
import scipy.sparse as sp

import kernelopt as ko

HERE = os.path.abspath(__file__)


class World:
    """Small objects that go together; each is made when it is first used."""

    @cached_property
    def X(self):
        return np.random.default_rng(0).uniform(-1, 1, size=(6, 2))

    @cached_property
    def y(self):
        return self.X[:, 0] + 0.5 * self.X[:, 1] ** 2

    labels = cached_property(lambda self: np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
    kernel = cached_property(lambda self: ko.kernels.Gaussian(sigma=1.0))
    theta = cached_property(lambda self: ko.Theta(self.kernel))
    matrix = cached_property(lambda self: ko.Theta(self.kernel, outputs=2))
    function = cached_property(lambda self: ko.Function(self.kernel, self.X[:2], [1.0, -1.0]))
    functions = cached_property(lambda self: ko.Function(self.kernel, self.X[:2], [[1.0, 0.0], [-1.0, 2.0]]))
    A = cached_property(lambda self: ko.FeatureMatrix(self.X, self.kernel))
    lam = cached_property(lambda self: cp.Parameter(nonneg=True, value=0.5, name="lam"))
    weights = cached_property(lambda self: cp.Parameter(6, nonneg=True, value=np.ones(6), name="weights"))
    u = cached_property(lambda self: self.theta(self.X))
    loss = cached_property(lambda self: self.weights @ cp.square(self.y - self.u))
    Q = cached_property(lambda self: self.kernel(self.X))

    @cached_property
    def objective(self):
        return cp.Minimize(self.loss + self.lam * ko.sum_squares(self.theta))

    problem = cached_property(lambda self: ko.Problem(self.objective))

    @cached_property
    def solved(self):
        self.problem.solve()
        return self.problem

    alpha = cached_property(lambda self: cp.Variable(6))

    @cached_property
    def reduced(self):
        """The problem in coefficients α."""
        penalty = self.lam * cp.quad_form(self.alpha, cp.psd_wrap(self.Q))
        return cp.Problem(cp.Minimize(self.weights @ cp.square(self.y - self.Q @ self.alpha) + penalty))

    explicit = cached_property(lambda self: cp.Variable(2))
    Phi = cached_property(lambda self: cp.Constant(self.X))

    @cached_property
    def in_features(self):
        """A problem in an explicit θ."""
        residuals = self.Phi @ self.explicit - self.y
        return cp.Problem(cp.Minimize(cp.sum_squares(residuals) + cp.sum_squares(self.explicit)))

    everywhere = cached_property(lambda self: ko.everywhere(self.theta, [-1.0, -1.0], [1.0, 1.0]))
    path = cached_property(lambda self: ko.path(self.problem, self.lam, [1.0, 0.5]))
    folds = cached_property(lambda self: ko.cross_validate(self.problem, self.weights, self.lam, [1.0, 0.5], cv=2))
    tuned = cached_property(
        lambda self: ko.tune(
            self.problem, cp.sum_squares(self.u), [self.lam], {self.lam: (0.1, 1.0)}, max_evaluations=2
        )
    )
    smooth = cached_property(lambda self: ko.SmoothLoss(lambda u: u**2, lambda u: 2 * u, lambda u: 2 + 0 * u))

    axes = cached_property(lambda self: importlib.import_module("matplotlib.figure").Figure().gca())

    def fitted(self, kind, *args, **named):
        """An estimator, fitted; with few folds and α where it chooses them."""
        few = {"cv": 2, "alphas": [0.1, 1.0]} if kind.__name__.endswith("CV") else {}
        return kind(*args, **(few | named)).fit(self.X, self.labels)


def build(X, y, lam=1.0):
    """What `from_problem` takes."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    return ko.Problem(cp.Minimize(cp.sum_squares(y - f) + lam * ko.sum_squares(theta))), f


def fitted(name):
    """An estimator by its name, fitted in a world; classifiers have probabilities."""
    kind = getattr(ko.estimators, name)
    like = {"loss": "log_loss"} if name in ("KernelClassifier", "KernelClassifierCV") else {}
    return lambda w: w.fitted(kind, **like)


# Owners of public methods.
OBJECTS = {
    "Theta": lambda w: w.theta,
    "Theta of 2 outputs": lambda w: w.matrix,
    "ThetaView": lambda w: w.matrix[:, 0],
    "FeatureMatrix": lambda w: w.A,
    "Function": lambda w: w.function,
    "Function of 2 outputs": lambda w: w.functions,
    "FittedFunction": lambda w: w.solved.thetas()[0].value,
    "Problem": lambda w: w.problem,
    "Problem, solved": lambda w: w.solved,
    "Predictor": lambda w: (w.solved, ko.Predictor(w.u, w.X))[1],
    "Path": lambda w: w.path,
    "CrossValidation": lambda w: w.folds,
    "Tuned": lambda w: w.tuned,
    "SmoothLoss": lambda w: w.smooth,
    "Certificate": lambda w: w.solved.certificate,
    "Report": lambda w: w.solved.verify(),
    "SolverStats": lambda w: w.solved.solver_stats,
    "History": lambda w: w.solved.history,
    "SolverTable": lambda w: w.solved.solvers(),
    "Explanation": lambda w: w.solved.explain(),
    "ProblemDerivation": lambda w: w.solved.derivation(),
    "Gradient": lambda w: ko.gradient(w.solved, cp.sum_squares(w.u), [w.lam]),
    "FactorCache": lambda w: ko.FactorCache(),
    "Band": lambda w: ko.jackknife(w.solved, w.u, w.y, w.theta(w.X[:3]), level=0.5),
    "ClassSets": lambda w: ko.conformal_sets(w.y, w.labels, w.y, level=0.5),
    "DerivedFunction": lambda w: w.function.derivative(0),
    "Everywhere": lambda w: w.everywhere,
    "Gaussian": lambda w: w.kernel,
    "Polynomial": lambda w: ko.kernels.Polynomial(degree=2),
    "Sum": lambda w: w.kernel + ko.kernels.Linear(),
    "Matern": lambda w: ko.kernels.Matern(nu=1.5, sigma=1.0),
    "Precomputed": lambda w: ko.kernels.Precomputed(w.Q),
    "Spectrum": lambda w: ko.kernels.Spectrum(2),
    "Categorical": lambda w: ko.kernels.Categorical(levels=[0, 1]),
    "NamedColumns": lambda w: w.kernel.on(["a", "b"]),
    "Gower": lambda w: ko.kernels.Gower({"a": 1.0, "b": None}, missing="ignore"),
    "MissingIgnored": lambda w: w.kernel.with_missing("ignore"),
    "FromFunction": lambda w: ko.kernels.FromFunction(lambda a, b: 1.0),
    "Scaled": lambda w: 2.0 * w.kernel,
    **{name: fitted(name) for name in ko.estimators.__all__ if isinstance(getattr(ko.estimators, name), type)},
}
# Right values of arguments, by their names; a more specific "Owner.name" comes first.
RIGHT = {
    "X": lambda w: w.X,
    "Z": lambda w: w.X[:3],
    "y": lambda w: w.labels,
    "f": lambda w: w.u,
    "F": lambda w: w.matrix(w.X),
    "kernel": lambda w: w.kernel,
    "kernels": lambda w: [w.kernel, ko.kernels.Linear()],
    "Q": lambda w: w.Q,
    "Q1": lambda w: w.Q,
    "Q2": lambda w: w.Q,
    "K": lambda w: w.Q[:, :2],
    "theta": lambda w: w.theta,
    "problem": lambda w: w.problem,
    "stated": lambda w: w.problem,
    "reduced": lambda w: w.reduced,
    "functions": lambda w: {w.theta: w.alpha},
    "parameter": lambda w: w.lam,
    "parameters": lambda w: [w.lam],
    "weights": lambda w: w.weights,
    "values": lambda w: [1.0, 0.5],
    "criterion": lambda w: cp.sum_squares(w.u),
    "bounds": lambda w: {w.lam: (0.1, 1.0)},
    "objective": lambda w: w.objective,
    "g": lambda w: w.theta,
    "lower": lambda w: [-1.0, -1.0],
    "upper": lambda w: [1.0, 1.0],
    "mean": lambda w: w.X,
    "sd": lambda w: [0.1, 0.2],
    "centers": lambda w: w.X[:2],
    "coefficients": lambda w: [1.0, 2.0],
    "value": lambda w: lambda u: u**2,
    "gradient": lambda w: lambda u: 2 * u,
    "hessian": lambda w: lambda u: 2 + 0 * u,
    "losses": lambda w: cp.square(w.u),
    "loss": lambda w: cp.square,
    "outputs": lambda w: [w.u],
    "noise": lambda w: 0.1,
    "labels": lambda w: w.labels,
    "time": lambda w: np.abs(w.y) + 0.1,
    "event": lambda w: np.ones(6),
    "thresholds": lambda w: cp.Variable(1),
    "sigma": lambda w: 1.0,
    "nu": lambda w: 1.5,
    "degree": lambda w: 2,
    "period": lambda w: 1.0,
    "scales": lambda w: (1.0, 2.0),
    "columns": lambda w: (0,),
    "NamedColumns.columns": lambda w: ("a", "b"),
    "Gower.columns": lambda w: {"a": 1.0, "b": None},
    "Gower.weights": lambda w: (1.0, 2.0),
    "levels": lambda w: (0, 1),
    "covariance": lambda w: ((1.0, 0.5), (0.5, 2.0)),
    "missing": lambda w: "level",
    "unknown": lambda w: "level",
    "policy": lambda w: "level",
    "map": lambda w: np.sin,
    "first": lambda w: w.kernel,
    "second": lambda w: ko.kernels.Linear(),
    "feature_map": lambda w: np.sin,
    "function": lambda w: lambda a, b: float(a @ b),
    "distance": lambda w: "cityblock",
    "points": lambda w: w.X,
    "data": lambda w: w.X,
    "exponent": lambda w: 2,
    "factor": lambda w: 2.0,
    "terms": lambda w: (w.kernel, ko.kernels.Linear()),
    "n": lambda w: 2,
    "weight": lambda w: lambda P: P[:, 0],
    "beta": lambda w: 1.0,
    "gamma": lambda w: 0.5,
    "feature": lambda w: 0,
    "radius": lambda w: 0.1,
    "f0": lambda w: w.function,
    "other": lambda w: w.function,
    "M": lambda w: np.eye(2),
    "table": lambda w: w.path,
    "A": lambda w: w.A,
    "path": lambda w: "model.ko",
    "ProblemDerivation.path": lambda w: "derivation.md",
    "build": lambda w: build,
    "row": lambda w: 0,
    "solver": lambda w: "CLARABEL",
    "lines": lambda w: (("a", "b"),),
    "operation": lambda w: "inner",
    "quantile": lambda w: 0.5,
    "self": lambda w: w.kernel,
    "others": lambda w: (),
    "index": lambda w: 0,
    "Theta.outputs": lambda w: 2,
    "JaxLayer.outputs": lambda w: [w.u],
    "Problem.from_cvxpy.theta": lambda w: w.explicit,
    "Problem.from_cvxpy.problem": lambda w: w.in_features,
    "Problem.from_cvxpy.features": lambda w: {w.Phi: ko.FeatureMatrix(w.X, ko.kernels.Linear())},
    "losses.multinomial.y": lambda w: np.array([0, 1, 0, 1, 0, 1]),
    "losses.poisson.y": lambda w: np.arange(6.0),
    "losses.crammer_singer.y": lambda w: np.array([0, 1, 0, 1, 0, 1]),
    "losses.ordinal.y": lambda w: np.array([0, 1] * 3),
    "LeaveOneOutLoss.loss": lambda w: lambda f: cp.square(w.y - f),
    "integral.lower": lambda w: w.X,
    "integral.upper": lambda w: w.X + 1,
    "average.weights": lambda w: np.ones(6),
    "plots.fit.f": lambda w: w.function,
    "plots.fit.X": lambda w: w.X[:, :1],
    "plots.decision_regions.f": lambda w: w.function,
    "maximize_likelihood.bounds": lambda w: {"sigma": (0.5, 2.0)},
    "kernels.Constant.value": lambda w: 1.0,
    "Theta.value": lambda w: w.function,
    "certificate_at.parameters": lambda w: {w.lam: 1.0},
    "Path.at.value": lambda w: 0.7,
    "Function.integral.lower": lambda w: w.X,
    "Function.integral.upper": lambda w: w.X + 1,
    "ThetaView.value": lambda w: w.function,
    "estimators.y": lambda w: w.labels,
    "inverse_transform.X": lambda w: w.X,
    "kernels.FromSklearn.kernel": lambda w: importlib.import_module("sklearn.gaussian_process.kernels").RBF(),
    "estimators.kernel": lambda w: "rbf",
    "estimators.nu": lambda w: 0.5,
    "estimators.loss": lambda w: "squared_hinge",
    "KernelRegressor.loss": lambda w: "squared_error",
    "estimators.gamma": lambda w: 0.5,
    "estimators.tune": lambda w: False,
    "KernelRegressorCV.loss": lambda w: "squared_error",
    "gradient.parameters": lambda w: [w.lam],
    "gradient.problem": lambda w: w.solved,
    "approximate_leave_one_out.problem": lambda w: w.solved,
    "leave_one_out.problem": lambda w: w.solved,
    "leave_one_out_predictions.problem": lambda w: w.solved,
    "jackknife.problem": lambda w: w.solved,
    "jackknife.y": lambda w: w.y,
    "new": lambda w: w.theta(w.X[:3]),
    "level": lambda w: 0.5,
    "low": lambda w: w.y - 1,
    "high": lambda w: w.y + 1,
    "conformal_interval.y": lambda w: w.y,
    "low_new": lambda w: [0.0, 1.0],
    "high_new": lambda w: [1.0, 2.0],
    "conformal_sets.new": lambda w: [0.5, -0.5],
    "scores": lambda w: w.y,
    "Band.covers.y": lambda w: w.y[:3],
    "kernels.Periodic.sigma": lambda w: 1.0,
    "kernels.Cached.data": lambda w: w.X,
    "kernels.Scaled.kernel": lambda w: w.kernel,
}


def too_few():
    return 1.0


def gives_none(*args, **kwargs):
    return None


def gives_text(*args, **kwargs):
    return "text"


class Unlike:
    """An object that answers no question."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("this object is no array")


class Fails:
    """A sequence by its methods."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index > 2:
            raise IndexError
        return object()


MASKED = np.ma.masked_array(np.arange(12.0).reshape(6, 2), np.arange(12).reshape(6, 2) == 3)
# Values by a label; those in NEVER are right for nothing but a name or the like.
WRONG = {
    "None": lambda w: None,
    "True": lambda w: True,
    "False": lambda w: False,
    "0": lambda w: 0,
    "-1": lambda w: -1,
    "3": lambda w: 3,
    "0.5": lambda w: 0.5,
    "-0.5": lambda w: -0.5,
    "1e308": lambda w: 1e308,
    "1e-320": lambda w: 1e-320,
    "nan": lambda w: float("nan"),
    "inf": lambda w: float("inf"),
    "-inf": lambda w: -float("inf"),
    "np.nan": lambda w: np.float64("nan"),
    "10**400": lambda w: 10**400,
    "-10**400": lambda w: -(10**400),
    "2**63": lambda w: 2**63,
    "1j": lambda w: 1j,
    "Decimal": lambda w: decimal.Decimal("0.1"),
    "Fraction": lambda w: fractions.Fraction(1, 3),
    "empty text": lambda w: "",
    "text": lambda w: "x",
    "bytes": lambda w: b"x",
    "empty list": lambda w: [],
    "empty tuple": lambda w: (),
    "empty dict": lambda w: {},
    "set": lambda w: {1.0, 2.0},
    "dict": lambda w: {"x": 1.0},
    "[None]": lambda w: [None],
    "[[]]": lambda w: [[]],
    "ragged": lambda w: [[1.0, 2.0], [3.0]],
    "mixed": lambda w: [1.0, "a"],
    "texts": lambda w: ["a", "b"],
    "[10**400]": lambda w: [10**400, 1],
    "no rows": lambda w: np.zeros((0, 2)),
    "no columns": lambda w: np.zeros((6, 0)),
    "no entries": lambda w: np.zeros(0),
    "0-d": lambda w: np.array(3.0),
    "3-d": lambda w: np.zeros((2, 2, 2)),
    "5 entries": lambda w: np.ones(5),
    "6x3": lambda w: np.ones((6, 3)),
    "column": lambda w: np.ones((6, 1)),
    "row": lambda w: np.ones((1, 6)),
    "zeros": lambda w: np.zeros(6),
    "NaN array": lambda w: np.full((6, 2), np.nan),
    "NaN vector": lambda w: np.full(6, np.nan),
    "infinite vector": lambda w: np.full(6, np.inf),
    "objects": lambda w: np.array([object(), None], dtype=object),
    "object numbers": lambda w: np.array([10**400] * 6, dtype=object),
    "complex array": lambda w: np.ones((6, 2)) * 1j,
    "dates": lambda w: np.array(["2020-01-01"] * 6, dtype="datetime64[D]"),
    "structured": lambda w: np.zeros(6, dtype=[("a", float), ("b", int)]),
    "masked": lambda w: MASKED,
    "masked vector": lambda w: MASKED[:, 1],
    "sparse": lambda w: sp.csr_matrix(np.ones((6, 2))),
    "bools": lambda w: np.ones(6, dtype=bool),
    "ints": lambda w: np.arange(6),
    "large ints": lambda w: [2**63, 2**64] * 3,
    "frame": lambda w: pd.DataFrame({"a": ["x"] * 6, "b": range(6)}),
    "series": lambda w: pd.Series([1.0, None] * 3),
    "dask": lambda w: importlib.import_module("dask.array").ones(5),
    "dask matrix": lambda w: importlib.import_module("dask.array").ones((6, 3)),
    "object": lambda w: object(),
    "class": lambda w: object,
    "int type": lambda w: int,
    "module": lambda w: os,
    "no array": lambda w: Unlike(),
    "odd sequence": lambda w: Fails(),
    "kernel": lambda w: w.kernel,
    "kernel class": lambda w: ko.kernels.Gaussian,
    "string kernel": lambda w: ko.kernels.Spectrum(2),
    "precomputed": lambda w: ko.kernels.Precomputed(np.eye(3)),
    "[kernel]": lambda w: [w.kernel, None],
    "theta": lambda w: w.theta,
    "another theta": lambda w: ko.Theta(ko.kernels.Linear()),
    "view": lambda w: w.matrix[:, 0],
    "matrix theta": lambda w: w.matrix,
    "feature matrix": lambda w: w.A,
    "function": lambda w: w.function,
    "functions": lambda w: w.functions,
    "another function": lambda w: ko.Function(ko.kernels.Linear(), [[1.0]], [1.0]),
    "prediction": lambda w: w.u,
    "predictions of others": lambda w: ko.Theta(ko.kernels.Linear())(w.X[:4]),
    "norm": lambda w: ko.norm(w.theta),
    "problem": lambda w: w.problem,
    "cvxpy problem": lambda w: cp.Problem(cp.Minimize(0)),
    "objective": lambda w: w.objective,
    "[constraint]": lambda w: [w.u <= 1],
    "[True]": lambda w: [True],
    "variable": lambda w: cp.Variable(),
    "variables": lambda w: cp.Variable((6, 2)),
    "integer": lambda w: cp.Variable(integer=True),
    "complex variable": lambda w: cp.Variable(6, complex=True),
    "parameter": lambda w: cp.Parameter(),
    "negative parameter": lambda w: cp.Parameter(neg=True, value=-1.0),
    "parameters": lambda w: [cp.Parameter()],
    "constant": lambda w: cp.Constant(1.0),
    "convex": lambda w: cp.square(cp.Variable()),
    "constraint": lambda w: w.u <= 1,
    "everywhere": lambda w: w.everywhere,
    "[everywhere]": lambda w: [w.everywhere],
    "smooth loss": lambda w: w.smooth,
    "certificate": lambda w: w.solved.certificate,
    "path table": lambda w: w.path,
    "generator": lambda w: (i for i in range(3)),
    "empty iterator": lambda w: iter(()),
    "range": lambda w: range(6),
    "no arguments": lambda w: too_few,
    "gives None": lambda w: gives_none,
    "gives text": lambda w: gives_text,
    "slice": lambda w: slice(None),
    "ellipsis": lambda w: ...,
    "(0, 9)": lambda w: (0, 9),
    "(nan, 1)": lambda w: (np.nan, 1.0),
    "(2, 1)": lambda w: (2.0, 1.0),
    "pair of text": lambda w: ("a", "b"),
    "file": lambda w: pathlib.Path("missing.ko"),
    "folder": lambda w: ".",
    "rng": lambda w: np.random.default_rng(0),
    "exception": lambda w: ValueError("x"),
    "estimator": lambda w: ko.estimators.KernelRegressor(),
    "parameter keys": lambda w: {w.lam: (2.0, 1.0)},
    "parameter to nan": lambda w: {w.lam: np.nan},
    "NaN keys": lambda w: {np.nan: 1},
    "axes": lambda w: w.axes,
}
NEVER = {
    "nan",
    "inf",
    "-inf",
    "np.nan",
    "10**400",
    "-10**400",
    "1j",
    "object",
    "module",
    "no array",
    "exception",
    "NaN array",
    "NaN vector",
    "[10**400]",
    "complex array",
    "dates",
    "structured",
    "ragged",
    "gives text",
    "NaN keys",
    "(nan, 1)",
    "parameter to nan",
    "complex variable",
}
# Calls and parameters that take such values, and why.
TAKES = {
    "SolverTable.get key": "as of any mapping",
    "Gradient.get key": "as of any mapping",
    "SolverTable.get default": "as of any mapping",
    "Gradient.get default": "as of any mapping",
    "KernelPCA.fit y": "scikit-learn's, for pipelines: it is not used",
    "FactorCache max_bytes": "inf is no limit",
    "KernelPCA.fit_transform y": "as of fit",
    "FeatureMap.fit y": "as of fit",
    "FeatureMap.fit_transform y": "as of fit",
    "OneClass.fit y": "as of fit",
    "FromFunction.cached X": "objects of any kind",
    "FromFunction.centered X": "so",
    "FromFunction.diag X": "so",
    "FromFunction.__call__ X": "so",
    "FromFunction.rounding X": "so",
    "CrossValidatedLoss random_state": "checked by tune",
    "CrossValidatedLoss cv": "checked by tune",
    "CrossValidatedLoss weights": "checked by tune",
    "CrossValidatedLoss losses": "checked by tune",
    "SmoothLoss.from_jax function": "checked at its first call",
    "everywhere g": "checked by a solve",
    "Problem.solve memory_limit": "inf is no limit",
    "Problem, solved.solve memory_limit": "inf is no limit",
    "Problem.solve requires_grad": "cvxpy's, not used",
    "Problem, solved.solve requires_grad": "cvxpy's, not used",
    "FeatureMatrix.modulus radius": "inf is the whole space",
    "plots.gram order": "labels of any kind are sorted",
    "average groups=dates": "days are labels",
    "LeaveOneOutLoss f": "checked by tune",
    "LeaveOneOutLoss loss": "checked by tune",
}
# Parameters of an estimator that its other parameters leave without a use.
UNUSED = {"degree", "coef0", "delta", "epsilon", "quantile", "n_jobs", "alpha"}
