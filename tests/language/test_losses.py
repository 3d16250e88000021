"""Every loss equals its formula, and checks its arguments."""

import inspect
import re

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import kernelopt as ko
from kernelopt import losses, margin
from kernelopt.errors import DataError, DataTypeError

RNG = np.random.default_rng(0)
N, K = 7, 3
F1, FK = RNG.normal(size=N), RNG.normal(size=(N, K))
SIGNS = np.where(RNG.normal(size=N) > 0, 1, -1)
Y = RNG.normal(size=N)
COUNTS = RNG.integers(0, 4, size=N)
CLASSES = RNG.integers(0, K, size=N)
r = Y - F1
OTHERS = 1 - np.eye(K)[CLASSES]
OWN = FK[np.arange(N), CLASSES]

FORMULAS = {
    "margin": (margin, SIGNS, F1, {}, SIGNS * F1),
    "hinge": (losses.hinge, SIGNS, F1, {}, np.maximum(0, 1 - SIGNS * F1)),
    "squared_hinge": (losses.squared_hinge, SIGNS, F1, {}, np.maximum(0, 1 - SIGNS * F1) ** 2),
    "log_loss": (losses.log_loss, SIGNS, F1, {}, np.log1p(np.exp(-SIGNS * F1))),
    "squared_error": (losses.squared_error, Y, F1, {}, r**2),
    "absolute_error": (losses.absolute_error, Y, F1, {}, abs(r)),
    "huber": (losses.huber, Y, F1, {"M": 0.5}, np.where(abs(r) <= 0.5, r**2, abs(r) - 0.25)),
    "pinball": (losses.pinball, Y, F1, {"tau": 0.8}, np.where(r > 0, 0.8 * r, -0.2 * r)),
    "expectile": (losses.expectile, Y, F1, {"tau": 0.8}, np.where(r > 0, 0.8 * r**2, 0.2 * r**2)),
    "ordinal": (
        losses.ordinal,
        CLASSES,
        F1,
        {"thresholds": np.array([-0.5, 0.8])},
        -np.log(
            expit(np.array([-0.5, 0.8, np.inf])[CLASSES] - F1) - expit(np.array([-np.inf, -0.5, 0.8])[CLASSES] - F1)
        ),
    ),
    "epsilon_insensitive": (losses.epsilon_insensitive, Y, F1, {"epsilon": 0.3}, np.maximum(0, abs(r) - 0.3)),
    "poisson": (losses.poisson, COUNTS, F1, {}, np.exp(F1) - COUNTS * F1),
    "multinomial": (losses.multinomial, CLASSES, FK, {}, np.log(np.exp(FK).sum(axis=1)) - OWN),
    "crammer_singer": (losses.crammer_singer, CLASSES, FK, {}, (FK + OTHERS).max(axis=1) - OWN),
}
LABELLED = [losses.hinge, losses.squared_hinge, losses.log_loss, margin]
REAL = [
    losses.squared_error,
    losses.absolute_error,
    losses.huber,
    losses.pinball,
    losses.expectile,
    losses.epsilon_insensitive,
]


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    loss, y, f, options, expected = FORMULAS[name]
    expression = loss(y, cp.Constant(f), **options)
    assert expression.shape == (N,)
    assert np.allclose(expression.value, expected, rtol=0, atol=1e-14)
    assert loss(y, cp.Variable(f.shape), **options).is_convex()


@pytest.mark.parametrize("name", FORMULAS)
def test_kinds_of_y(name):
    loss, y, f, options, expected = FORMULAS[name]
    for same in (list(y), pd.Series(y, index=np.arange(N) + 5), y.astype(np.float32)):
        assert np.allclose(loss(same, cp.Constant(f), **options).value, expected, atol=1e-6)


def test_losses_are_listed():
    assert set(losses.__all__) == {*FORMULAS, "cox"}  # which has its own tests


@pytest.mark.parametrize("loss", [*LABELLED, *REAL, losses.poisson])
@pytest.mark.parametrize("shape", [(N + 1,), (N, 1), (1, N), ()])
def test_shapes_must_agree(loss, shape):
    with pytest.raises(DataError) as refusal:
        loss(np.ones(shape), cp.Variable(N))
    assert str(shape) in str(refusal.value)
    assert str((N,)) in str(refusal.value)


def test_a_column_is_told_to_ravel():
    with pytest.raises(DataError, match=r"y\.ravel\(\)"):
        losses.squared_error(Y[:, None], cp.Variable(N))


@pytest.mark.parametrize("loss", LABELLED)
@pytest.mark.parametrize("labels", [[0, 1, 1], [1, 2, 1], [-1.0, 0.5, 1.0]])
def test_labels_must_be_signs(loss, labels):
    with pytest.raises(DataError, match=r"got .*[0-9]"):
        loss(labels, cp.Variable(3))


def test_labels_0_1_are_named():
    with pytest.raises(DataError, match=r"got 0, 1.*2\*y - 1"):
        losses.hinge([0, 1, 1], cp.Variable(3))


def test_counts_and_classes():
    with pytest.raises(DataError, match="-2 at 1"):
        losses.poisson([1, -2], cp.Variable(2))
    with pytest.raises(DataError, match="classes 0 … 1; got 0, 2"):
        losses.multinomial([0, 2], cp.Variable((2, 2)))
    with pytest.raises(DataError, match="outputs=K"):
        losses.crammer_singer([0, 1], cp.Variable(2))
    with pytest.raises(DataTypeError, match="real numbers"):
        losses.multinomial(["a", "b"], cp.Variable((2, 2)))


@pytest.mark.parametrize("loss", [*REAL, *LABELLED, losses.poisson])
def test_nan_is_named(loss):
    y = np.ones(N)
    y[3] = np.nan
    with pytest.raises(DataError, match="y to be finite.*at 3"):
        loss(y, cp.Variable(N))


def test_numbers_are_checked():
    f = cp.Variable(N)
    for call in (
        lambda: losses.huber(Y, f, M=0),
        lambda: losses.pinball(Y, f, tau=1.0),
        lambda: losses.pinball(Y, f, tau=-0.5),
        lambda: losses.epsilon_insensitive(Y, f, epsilon=-1),
        lambda: losses.pinball(Y, f, tau=np.array([0.1, 0.2])),
    ):
        with pytest.raises(DataError, match=r"Expected (M|tau|epsilon)"):
            call()


def test_parameters_are_accepted():
    y = cp.Parameter(N)
    tau = cp.Parameter(nonneg=True)
    expression = cp.sum(losses.pinball(y, cp.Variable(N), tau))
    assert expression.is_convex()
    assert losses.hinge(y, cp.Variable(N)).is_dcp(dpp=True)
    y.value = np.zeros(N)
    with pytest.raises(DataError, match="got 0"):
        losses.hinge(y, cp.Variable(N))


def test_scalars():
    assert losses.squared_error(1.0, cp.Variable()).shape == ()
    assert losses.hinge(SIGNS, cp.Constant(F1)).value.shape == (N,)


def test_swapped_arguments():
    for loss in (losses.pinball, losses.poisson, losses.hinge, losses.absolute_error):
        with pytest.raises(DataError, match=r"order is \(y, f\)"):
            loss(cp.Variable(N), Y)


@pytest.mark.later
def test_labels_and_counts_in_parameters_are_checked_at_each_solve():
    import kernelopt as ko  # noqa: PLC0415

    theta, y = ko.Theta(ko.kernels.Linear()), cp.Parameter(N)
    for loss, good, bad in ((losses.hinge, SIGNS, (SIGNS > 0) * 1.0), (losses.poisson, COUNTS, COUNTS - 5.0)):
        problem = ko.Problem(cp.Minimize(cp.sum(loss(y, theta(FK))) + ko.sum_squares(theta)))
        y.value = good
        problem.solve()
        y.value = bad
        with pytest.raises(DataError, match=r"got (0, 1|-)"):
            problem.solve()
        y.value = None


def test_one_level_a_column():
    F, Y3 = cp.Constant(FK), np.column_stack([Y, Y, Y])
    columns = [losses.pinball(Y, cp.Constant(FK[:, k]), tau).value for k, tau in enumerate((0.1, 0.5, 0.9))]
    assert np.allclose(losses.pinball(Y3, F, [0.1, 0.5, 0.9]).value, np.column_stack(columns))
    with pytest.raises(DataError, match="tau"):
        losses.pinball(Y3, F, [0.1, 0.5, 1.0])


def test_one_target_for_several_levels():
    levels = [0.1, 0.5, 0.9]
    for loss in (losses.pinball, losses.expectile):
        several = loss(Y, cp.Constant(FK), levels)
        assert np.allclose(
            several.value,
            np.column_stack([loss(Y, cp.Constant(c), t).value for c, t in zip(FK.T, levels, strict=True)]),
        )
        assert np.allclose(several.value, loss(np.tile(Y[:, None], K), cp.Constant(FK), levels).value)
        parameter = cp.Parameter(N, value=Y)
        assert np.allclose(loss(parameter, cp.Constant(FK), levels).value, several.value)
        with pytest.raises(DataError, match="NaN"):
            loss(np.full(N, np.nan), cp.Constant(FK), levels)


def test_expectiles_are_means_with_weights():
    """θ of a constant: the τ-expectile e has τ Σ(y − e)₊ = (1 − τ) Σ(e − y)₊."""
    e = cp.Variable()
    cp.Problem(cp.Minimize(cp.sum(losses.expectile(Y, e * np.ones(N), 0.8)))).solve()
    assert 0.8 * np.maximum(Y - e.value, 0).sum() == pytest.approx(0.2 * np.maximum(e.value - Y, 0).sum(), rel=1e-5)


def ordered_classes(n=80):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(n, 1))
    return X, np.digitize(np.sin(2 * X[:, 0]) + 0.4 * rng.logistic(size=n), [-0.6, 0.0, 0.7])


@pytest.mark.later
def test_ordinal_is_the_likelihood_of_proportional_odds():
    """Against scipy's minimizer of −Σ log(σ(b_y − f) − σ(b_y₋₁ − f)) + λwᵀw with f = Xw."""
    X, y = ordered_classes()
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable(3)
    problem = ko.Problem(cp.Minimize(cp.sum(losses.ordinal(y, theta(X), b)) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name == "NEWTON"
    assert (np.diff(b.value) > 0).all()

    def value(x):
        ends = np.concatenate([[-np.inf], x[0] + np.cumsum([0, *np.exp(x[1:3])]), [np.inf]])
        f = X[:, 0] * x[3]
        return -np.log(expit(ends[y + 1] - f) - expit(ends[y] - f)).sum() + 0.3 * x[3] ** 2

    found = minimize(value, np.array([-1.0, 0.0, 0.0, 0.0]), tol=1e-12)
    assert problem.value == pytest.approx(found.fun, rel=1e-6)
    assert b.value[0] == pytest.approx(found.x[0], abs=1e-3)


@pytest.mark.later
def test_ordinal_classes_are_predicted_by_the_thresholds():
    X, y = ordered_classes(200)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable(3)
    ko.Problem(cp.Minimize(cp.sum(losses.ordinal(y, theta(X), b)) + 0.3 * ko.sum_squares(theta))).solve()
    wrong, of_median = (np.abs(k - y).mean() for k in (np.searchsorted(b.value, theta.value(X)), np.median(y)))
    assert wrong < 0.7 * of_median


def test_ordinal_refuses_other_classes():
    f = cp.Variable(3)
    with pytest.raises(DataError, match="Expected classes 0 … 2, one more than thresholds; got 3"):
        losses.ordinal([0, 1, 3], f, cp.Variable(2))
    with pytest.raises(DataError, match=r"The order is \(y, f, thresholds\)"):
        losses.ordinal([0, 1], f, cp.Variable(2))
    assert losses.ordinal([0, 1, 0], f, cp.Variable(1)).is_convex()


@pytest.mark.parametrize("loss", [losses.pinball, losses.expectile])
@pytest.mark.parametrize(
    ("tau", "words"),
    [
        (90, r"got 90\. tau is a share: write 0\.9 for 90 %\."),
        (2.5, r"got 2\.5\. tau is a share: write 0\.025 for 2\.5 %\."),
        (cp.Parameter(value=90), r"got 90\. tau is a share: write 0\.9"),
        (1, r"got 1\. tau is a share: write 0\.01"),
        (-0.5, r"got -0\.5\.$"),
        (100, r"got 100\.$"),
        (np.inf, r"got inf\.$"),
    ],
)
def test_a_level_in_percent(loss, tau, words):
    with pytest.raises(DataError, match=rf"Expected tau to be a number between 0 and 1; {words}"):
        loss(Y, F1, tau)


def test_levels_in_percent():
    with pytest.raises(DataError, match=r"tau is a share: write 0\.1 for 10 %"):
        losses.pinball(Y, FK, [10, 50, 90])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("logistic", "log_loss(y, f)"),
        ("LogisticLoss", "log_loss(y, f)"),
        ("cross_entropy", "log_loss(y, f), for labels −1 and +1, or multinomial(y, F), for classes"),
        ("quantile", "pinball(y, f, tau)"),
        ("mse", "squared_error(y, f), one value per row"),
        ("l1", "absolute_error(y, f)"),
        ("hinge_loss", "hinge."),
    ],
)
def test_a_loss_by_the_name_of_another_library(name, instead):
    with pytest.raises(AttributeError) as refusal:
        getattr(losses, name)
    assert f"module 'kernelopt.losses' has no attribute {name!r}. Write {instead}" in str(refusal.value)
    assert not hasattr(losses, name) and name not in dir(losses)
    with pytest.raises(ImportError, match=name):
        exec(f"from kernelopt.losses import {name}")


@pytest.mark.parametrize("text", losses._ELSEWHERE.values())
def test_the_losses_that_are_named_instead_exist(text):
    for loss, arguments in re.findall(r"(?<!cp\.)\b([a-z_]+)\(([^…)]+)\)", text):
        assert set(arguments.split(", ")) <= set(inspect.signature(getattr(losses, loss)).parameters)


def test_levels_or_classes_are_asked_for_beside_several_columns():
    F = cp.Variable((4, 3))
    for call in (lambda: losses.pinball(np.ones(4), F, [0.1, 0.9]), lambda: losses.hinge(np.ones(4), F)):
        with pytest.raises(DataError, match="pass 3 levels; for classes 0 … 2 see ko.losses.multinomial"):
            call()


def levels_of(tau):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (30, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=30)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.pinball(y, theta(X), tau)) + 0.1 * ko.sum_squares(theta)))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("wrap", [lambda tau: tau, lambda tau: cp.multiply(1.0, tau)])
def test_several_levels_as_a_parameter(wrap, known):
    """They were the numbers that they had at first."""
    tau = cp.Parameter(2, nonneg=True, value=[0.3, 0.7] if known else None)
    problem = levels_of(wrap(tau))
    assert problem.parameters() == [tau]
    for values in ([0.3, 0.7], [0.05, 0.95]):
        tau.value = values
        assert problem.solve() == pytest.approx(levels_of(values).solve(), rel=1e-7)
    tau.value = [0.3, 1.7]
    with pytest.raises(DataError, match="tau to be between 0 and 1"):
        problem.solve()


def of_one(loss, y, f, p):
    return {"pinball": ko.losses.pinball, "huber": ko.losses.huber, "epsilon": ko.losses.epsilon_insensitive}[loss](
        y, f, p
    )


@pytest.mark.parametrize(
    ("loss", "value", "said"),
    [("pinball", 1.7, "tau to be between 0 and 1"), ("huber", 0.0, "M to be a number > 0"),
     ("epsilon", -0.5, "epsilon to be a number ≥ 0")],
)  # fmt: skip
def test_numbers_of_losses_are_checked_at_each_solve(loss, value, said):
    X = np.linspace(0, 1, 6)[:, None]
    p, theta = cp.Parameter(value=0.5), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    p = cp.Parameter(nonneg=True, value=0.5) if loss == "huber" else p
    problem = ko.Problem(cp.Minimize(cp.sum(of_one(loss, X[:, 0], theta(X), p)) + ko.sum_squares(theta)))
    problem.solve()
    p.value = value
    with pytest.raises(DataError, match=said):
        problem.solve()


def test_expectiles_take_levels_as_numbers():
    tau, f = cp.Parameter(nonneg=True, value=0.3), cp.Variable(2)
    with pytest.raises(DataError, match="no sign that cvxpy knows.*up and down"):
        ko.losses.expectile([1.0, 2.0], f, tau)
