"""Metamorphic relations: a problem that is changed in a known way has an answer that changes in a known way.

Each solver of ours and Clarabel, each estimator, and gradients, on one small problem.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import losses
from kernelopt.solvers.engines import ENGINES

RNG = np.random.default_rng(7)
N = 24
X, Z = RNG.normal(size=(N, 2)), RNG.normal(size=(9, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_t(3, size=N)
COUNTS = np.arange(N) % 3  # weights that are numbers of rows, 0 too
ROTATION = np.linalg.qr(RNG.normal(size=(2, 2)))[0]
ORDER = RNG.permutation(N)


def sign(y):
    return np.where(y > 0, 1.0, -1.0)


def crammer_singer(y, F):
    """The largest margin that is missed, with three classes: y below −0.5, above 0.5, and between."""
    own = np.eye(3)[np.digitize(y, [-0.5, 0.5])]
    return cp.max(F + 1 - own, axis=1) - cp.sum(cp.multiply(own, F), axis=1)


def spread(y, F):
    """The largest residual minus the smallest one, of three classes."""
    residuals = F - np.eye(3)[np.digitize(y, [-0.5, 0.5])]
    return cp.max(residuals, axis=1) + cp.max(-residuals, axis=1)


def cauchy(y, f):
    """log(1 + (f − y)²/4), which is not convex."""
    loss = ko.SmoothLoss(
        lambda u, y: np.log1p((u - y) ** 2 / 4),
        lambda u, y: (u - y) / 2 / (1 + (u - y) ** 2 / 4),
        lambda u, y: (1 - (u - y) ** 2 / 4) / 2 / (1 + (u - y) ** 2 / 4) ** 2,
        curvature="nonconvex",
    )
    return loss(f, y)


@dataclass(frozen=True)
class Units:
    """Targets and optimum in other units: y → a·y + c gives f → a·f + c and the value times `value`, at lam·`lam`."""

    a: float
    c: float
    value: float
    lam: float


@dataclass(frozen=True)
class Kind:
    """A loss that a solver takes, and how its targets may change."""

    loss: Any
    units: Units
    labels: bool = False
    outputs: int | None = None


KINDS = {
    "LEAST_SQUARES": Kind(losses.squared_error, Units(-300.0, 20.0, 9e4, 1.0)),
    "NEWTON": Kind(losses.log_loss, Units(-1.0, 0.0, 1.0, 1.0), labels=True),
    "AUGMENTED_LAGRANGIAN": Kind(losses.hinge, Units(-1.0, 0.0, 1.0, 1.0), labels=True),
    "PROXIMAL_POINT": Kind(crammer_singer, Units(-1.0, 0.0, 1.0, 1.0), outputs=3),
    "INTERIOR_POINT": Kind(lambda y, f: losses.pinball(y, f, 0.3), Units(50.0, -5.0, 50.0, 1 / 50)),
    "LEVENBERG_MARQUARDT": Kind(cauchy, Units(-1.0, 2.0, 1.0, 1.0)),
    "CLARABEL": Kind(losses.absolute_error, Units(-50.0, 3.0, 50.0, 1 / 50)),
}
# Losses that others take too: a solver of kinks is also asked for smooth functions.
MORE = {
    "AUGMENTED_LAGRANGIAN": Kind(losses.absolute_error, Units(-50.0, 3.0, 50.0, 1 / 50)),
    "INTERIOR_POINT": Kind(losses.log_loss, Units(-1.0, 0.0, 1.0, 1.0), labels=True),
    "NEWTON": Kind(losses.squared_error, Units(-300.0, 20.0, 9e4, 1.0)),
    "PROXIMAL_POINT": Kind(spread, Units(-1.0, 0.0, 1.0, 1.0), outputs=3),
}
CASES = [(s, k) for table in (KINDS, MORE) for s, k in table.items()]
NAMES = [*KINDS, *(f"{s} again" for s in MORE)]


def test_each_solver_has_a_case():
    assert {s for s, _ in CASES} == {*ENGINES, "CLARABEL"}


@dataclass(frozen=True, eq=False)
class Case:
    """minimize factor·Σᵢ wᵢ loss(yᵢ, f(xᵢ)) + factor·lam‖θ‖², with f = θᵀF + b."""

    solver: str
    kind: Kind
    X: Any = None
    y: Any = None
    w: Any = None
    Z: Any = None
    lam: float = 0.3
    factor: float = 1.0
    kernel: float = 1.0
    blocks: tuple = ()
    negated: bool = False

    def stated(self):
        """The problem, its prediction at new points, and lam."""
        points, at = X if self.X is None else self.X, Z if self.Z is None else self.Z
        y, w = self.targets(), np.ones(len(points)) if self.w is None else self.w
        K = self.kind.outputs
        theta = ko.Theta(self.kernel * ko.kernels.Gaussian(sigma=1.0), outputs=K)
        b = cp.Variable() if K is None else cp.Variable((1, K))
        f = lambda X: theta(X) + b
        lam = cp.Parameter(nonneg=True, value=self.lam)
        parts = np.split(np.arange(len(points)), self.blocks)
        loss = sum(w[p] @ self.kind.loss(y[p], f(points[p])) for p in parts)
        objective = self.factor * (loss + lam * ko.sum_squares(theta))
        goal = cp.Maximize(-objective) if self.negated else cp.Minimize(objective)
        if K is None:
            return ko.Problem(goal), lambda: theta.value(at) + b.value, lam
        # A common intercept of all classes changes nothing. −y turns their order round, and this difference's sign.
        return ko.Problem(goal), lambda: (theta.value(at) + b.value) @ np.array([-1.0, 0.0, 1.0]), lam

    def targets(self):
        y = Y if self.y is None else self.y
        return sign(y) if self.kind.labels else y

    def answer(self):
        problem, predicted, _ = self.stated()
        return answered(problem, predicted, self.solver)


def answered(problem, predicted, solver, **options):
    """The value and the predictions of a problem that is solved."""
    if solver == "LEVENBERG_MARQUARDT":
        problem.solve(solver=solver, **options)
        assert problem.status == "locally_optimal"
    else:
        problem.solve(solver=solver, tol=1e-9, **options)
        assert problem.status == "optimal", problem.certificate
    assert problem.solver_stats.solver_name == solver
    return problem.value, predicted()


RELATIONS = {
    "the objective times 1e-3": lambda c: (replace(c, factor=1e-3), 1e-3, 1.0, 0.0),
    "the objective times 1e5": lambda c: (replace(c, factor=1e5), 1e5, 1.0, 0.0),
    "the kernel times 1e4": lambda c: (replace(c, kernel=1e4, lam=1e4 * c.lam), 1.0, 1.0, 0.0),
    "rows in another order": lambda c: (replace(c, X=X[ORDER], y=Y[ORDER]), 1.0, 1.0, 0.0),
    "targets in other units": lambda c: (
        replace(c, y=c.kind.units.a * c.targets() + c.kind.units.c, lam=c.lam * c.kind.units.lam),
        c.kind.units.value, c.kind.units.a, c.kind.units.c,
    ),
    "points rotated and moved": lambda c: (replace(c, X=X @ ROTATION + 3, Z=Z @ ROTATION + 3), 1.0, 1.0, 0.0),
    "points in blocks": lambda c: (replace(c, blocks=(5, 6, 17)), 1.0, 1.0, 0.0),
    "maximized": lambda c: (replace(c, negated=True), -1.0, 1.0, 0.0),
}  # fmt: skip


def close(one, other, times=1.0, a=1.0, c=0.0):
    """Values agree to the gap; predictions to its square root, which is what a gap says of them."""
    assert other[0] == pytest.approx(times * one[0], rel=1e-6)
    assert np.abs(other[1] - (a * one[1] + c)).max() < 2e-4 * abs(a)


@cache
def first(name):
    """The answer of a case as it stands."""
    return Case(*CASES[NAMES.index(name)]).answer()


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("name", "case"), list(zip(NAMES, CASES, strict=True)), ids=NAMES)
def test_solvers(name, case, relation):
    other, times, a, c = RELATIONS[relation](Case(*case))
    close(first(name), other.answer(), times, a, c)


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_weights_are_numbers_of_rows_and_zero_is_none(case):
    weighted = Case(*case, w=COUNTS.astype(float)).answer()
    rows = np.repeat(np.arange(N), COUNTS)
    close(weighted, Case(*case, X=X[rows], y=Y[rows]).answer())
    kept = COUNTS > 0
    close(weighted, Case(*case, X=X[kept], y=Y[kept], w=COUNTS[kept].astype(float)).answer())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), list(zip(NAMES, CASES, strict=True)), ids=NAMES)
def test_warm_starts_from_anything(name, case):
    """From the answer itself, from other strengths, and from points that other solvers left."""
    solver, _ = case
    problem, predicted, lam = Case(*case).stated()
    answered(problem, predicted, solver)
    close(first(name), answered(problem, predicted, solver))
    convex = solver != "LEVENBERG_MARQUARDT"  # others only take convex problems
    before = [s for s in KINDS if convex and s != solver and problem.solvers()[s] is None]
    for strength, other in [(1e4, solver), (1e-3, solver), *((3.0, s) for s in before)]:
        lam.value = strength
        problem.solve(solver=other)
        lam.value = 0.3
        close(first(name), answered(problem, predicted, solver))


# Gradients


def differentiated(kind, *, X=X, y=Y, w=None, lam=0.3, factor=1.0, Z=Z, blocks=(), scaled=1.0, solves=1):
    """Gradients of Σ f(zᵢ)² by lam and by weights."""
    strength = cp.Parameter(nonneg=True, value=lam)
    weights = cp.Parameter(len(X), nonneg=True, value=np.linspace(1, 2, len(X)) if w is None else w)
    theta, b = ko.Theta(scaled * ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    y = sign(y) if kind.labels else y
    parts = np.split(np.arange(len(X)), blocks)
    loss = sum(weights[p] @ kind.loss(y[p], theta(X[p]) + b) for p in parts)
    problem = ko.Problem(cp.Minimize(factor * (loss + strength * ko.sum_squares(theta))))
    for _ in range(solves):
        problem.solve()
    found = ko.gradient(problem, cp.sum_squares(theta(Z) + b), [strength, weights])
    return found[strength], found[weights]


def agree(one, other):
    unit = max(abs(one[0]), np.abs(one[1]).max())
    assert other[0] == pytest.approx(one[0], rel=1e-6, abs=1e-8 * unit)
    assert other[1] == pytest.approx(one[1], rel=1e-6, abs=1e-8 * unit)


DIFFERENTIATED = [KINDS["LEAST_SQUARES"], KINDS["NEWTON"], KINDS["AUGMENTED_LAGRANGIAN"], KINDS["INTERIOR_POINT"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DIFFERENTIATED, ids=["squares", "logistic", "hinge", "pinball"])
def test_gradients(kind):
    w = np.linspace(1, 2, N)
    one = by_lam, by_w = differentiated(kind)
    # All weights and lam times c: the same optimum.
    assert by_w @ w + 0.3 * by_lam == pytest.approx(0.0, abs=1e-7 * np.abs(by_w * w).sum())
    agree(one, differentiated(kind, factor=1e4))
    agree(one, differentiated(kind, X=X @ ROTATION, Z=Z @ ROTATION))
    agree(one, differentiated(kind, blocks=(3, 11)))
    agree(one, differentiated(kind, solves=2))
    agree((by_lam, by_w[ORDER]), differentiated(kind, X=X[ORDER], y=Y[ORDER], w=w[ORDER]))
    agree((by_lam * 1e-3, by_w), differentiated(kind, scaled=1e3, lam=0.3e3))
    rows = np.r_[np.arange(N), 4]  # row 4 twice, with half its weight
    halved = np.where(rows == 4, w[4] / 2, w[rows])
    agree((by_lam, by_w[rows]), differentiated(kind, X=X[rows], y=Y[rows], w=halved))
    w[4] = 0.0
    without = np.arange(N) != 4
    by_lam, by_w = differentiated(kind, w=w)
    agree((by_lam, by_w[without]), differentiated(kind, X=X[without], y=Y[without], w=w[without]))


# Estimators

pytest.importorskip("sklearn")
import kernelopt.estimators as es  # noqa: E402


def folds(ids):
    """Three folds, by the number of a row, whatever its place."""
    return [(np.flatnonzero(ids // 3 % 3 != k), np.flatnonzero(ids // 3 % 3 == k)) for k in range(3)]


@es.from_problem
def ridge(X, y, sample_weight=None):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    w = np.ones(len(y)) if sample_weight is None else sample_weight
    f = theta(X) + b
    return ko.Problem(cp.Minimize(w @ cp.square(y - f) + 0.1 * ko.sum_squares(theta))), f


@dataclass(frozen=True)
class Model:
    """An estimator for rows with numbers `ids`, and what it takes."""

    build: Any
    labels: bool = False
    weights: bool = True
    order: bool = True  # no answer depends on the order of rows
    slope: float | None = None  # targets a·y + c give predictions a·f + c, at `units`
    scales: bool = True  # gamma="scale" is relative to the points


ALPHAS = [0.1, 1.0]
MODELS = {
    "KernelRegressor": Model(lambda ids: es.KernelRegressor(alpha=0.3, tol=1e-9), slope=-40.0),
    "KernelRegressorCV": Model(
        lambda ids: es.KernelRegressorCV(alphas=ALPHAS, cv=folds(ids), scoring=None, tol=1e-9), slope=-40.0
    ),
    "KernelQuantileRegressor": Model(lambda ids: es.KernelQuantileRegressor([0.3, 0.8], alpha=0.3, tol=1e-9)),
    "NuKernelRegressor": Model(lambda ids: es.NuKernelRegressor(0.43, tol=1e-9)),
    "KernelClassifier": Model(lambda ids: es.KernelClassifier("log_loss", tol=1e-9), labels=True),
    "KernelClassifierCV": Model(
        lambda ids: es.KernelClassifierCV("log_loss", alphas=ALPHAS, cv=folds(ids), tol=1e-9), labels=True
    ),
    "NuKernelClassifier": Model(lambda ids: es.NuKernelClassifier(0.43, tol=1e-9), labels=True),
    "KernelPerceptron": Model(
        lambda ids: es.KernelPerceptron(gamma=20.0), labels=True, weights=False, order=False, scales=False
    ),
    "OneClass": Model(lambda ids: es.OneClass(0.43, tol=1e-9)),
    "KernelPCA": Model(lambda ids: es.KernelPCA(2, tol=1e-9), weights=False),
    "FeatureMap": Model(lambda ids: es.FeatureMap(rank_tol=1e-13), weights=False),
    "from_problem": Model(lambda ids: ridge(), slope=-40.0, scales=False),
}


def test_each_estimator_has_a_case():
    assert MODELS.keys() == set(es.__all__)


def fitted(model, X, y, ids, w=None, **params):
    estimator = model.build(ids).set_params(**params)
    target = np.where(y > 0, "up", "down") if model.labels else y
    return estimator.fit(X, target, **({} if w is None else {"sample_weight": w}))


def shown(estimator, Z):
    """What it says at new points; components have either sign, and features any basis."""
    if isinstance(estimator, es.FeatureMap):
        F = estimator.transform(Z)
        return F @ F.T
    if isinstance(estimator, es.KernelPCA):
        return np.abs(estimator.transform(Z))
    return getattr(estimator, "decision_function", getattr(estimator, "predict", None))(Z)


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("name", MODELS)
def test_estimators(name):
    model, ids = MODELS[name], np.arange(N)
    estimator = fitted(model, X, Y, ids)
    known = shown(estimator, Z)
    near = lambda other, Z=Z, a=1.0, c=0.0: np.abs(shown(other, Z) - (a * known + c)).max() < 5e-4 * abs(a)
    estimator.fit(X, np.where(Y > 0, "up", "down") if model.labels else Y)
    assert near(estimator)
    if model.scales:
        assert near(fitted(model, 1e3 * X, Y, ids), 1e3 * Z)
    gamma = {"gamma": 1 / (2 * X.var())} if model.scales else {}  # "scale" depends on the axes
    assert near(fitted(model, X @ ROTATION + 1, Y, ids, **gamma), Z @ ROTATION + 1)
    if model.order:
        assert near(fitted(model, X[ORDER], Y[ORDER], ORDER))
    if model.slope is not None:
        assert near(fitted(model, X, model.slope * Y + 7, ids), a=model.slope, c=7.0)


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.weights])
def test_weights_of_estimators(name):
    model, ids = MODELS[name], np.arange(N)
    weighted = shown(fitted(model, X, Y, ids, COUNTS.astype(float)), Z)
    rows = np.repeat(ids, COUNTS)
    assert np.abs(shown(fitted(model, X[rows], Y[rows], ids[rows]), Z) - weighted).max() < 5e-4
    kept = COUNTS > 0
    without = fitted(model, X[kept], Y[kept], ids[kept], COUNTS[kept].astype(float))
    assert np.abs(shown(without, Z) - weighted).max() < 5e-4
