"""Kernels of row numbers, whose points are numbers or a parameter."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError, ParameterError
from kernelopt.factorization import FactorCache
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.testing import check_kernel

ks = ko.kernels
RNG = np.random.default_rng(8)
POINTS = RNG.uniform(0.1, 2, size=(10, 3))
POINTS[4] = POINTS[1]  # equal points of two rows
ROWS, OTHERS = np.array([0, 5, 1, 4, 9, 2, 2]), np.array([1, 0, 8, 4])
L, R = RNG.normal(size=(7, 2)), RNG.normal(size=(4, 2))


def held(value=POINTS):
    return cp.Parameter(value.shape, value=value, name="Z")


def scale(value):
    return cp.Parameter(np.shape(value), pos=True, value=value)


# A kernel of row numbers with points Z, and the same values from a function of points.
KERNELS = {
    "gaussian": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z),
    "two parameters": lambda Z: ks.Gaussian(sigma=scale(1.3)).indexed(Z),
    "length scales": lambda Z: ks.Matern(1.5, 2.0).ard(scale([0.7, 1.5, 3.0])).indexed(Z),
    "histograms": lambda Z: ks.AdditiveChiSquared().indexed(Z),
    "a sum": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z) + ks.Polynomial(2).indexed(Z) * scale(0.3),
    "a product": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z) * ks.Linear().indexed(Z),
    "a power": lambda Z: (ks.Linear().indexed(Z) + ks.Constant(1.0).indexed(Z)) ** 3,
    "normalized": lambda Z: ks.Polynomial(2).indexed(Z).normalized(),
    "centered": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z).centered([0, 3, 7]),
    "cached": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z).cached(np.arange(10)),
    "columns": lambda Z: ks.Gaussian(sigma=1.3).on([2, 0, 2]).indexed(Z),
    "beside a matrix": lambda Z: ks.Gaussian(sigma=1.3).indexed(Z) + ks.Precomputed(POINTS @ POINTS.T),
}


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_those_of_points(name):
    Z = held()
    kernel, numeric = KERNELS[name](Z), KERNELS[name](POINTS).at_present()
    assert repr(kernel.at_present()) == repr(numeric) and "Z" in repr(kernel)
    assert kernel.at_present() == numeric and kernel != numeric and Z in kernel.parameters()
    assert kernel.is_psd == numeric.is_psd == (None if "matrix" in name else True)
    np.testing.assert_array_equal(kernel(ROWS, OTHERS), numeric(ROWS, OTHERS))
    np.testing.assert_array_equal(kernel.diag(ROWS), numeric.diag(ROWS))
    assert kernel.rounding(ROWS) == numeric.rounding(ROWS) < 1e-12
    Z.value = POINTS[::-1]
    assert kernel.at_present() == KERNELS[name](POINTS[::-1]).at_present() != numeric


@pytest.mark.parametrize("name", ["gaussian", "columns", "histograms"])
def test_values_against_the_kernel_of_points(name):
    inner = KERNELS[name](POINTS).kernel
    np.testing.assert_array_equal(KERNELS[name](held())(ROWS, OTHERS), inner(POINTS[ROWS], POINTS[OTHERS]))


@pytest.mark.parametrize("name", KERNELS)
def test_the_check_of_kernels_passes(name):
    check_kernel(KERNELS[name](held()), ROWS[:5], OTHERS)
    check_kernel(KERNELS[name](POINTS), ROWS[:5])


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_by_differences(name):
    Z = held()
    kernel = KERNELS[name](Z)
    gradient = kernel_gradient(kernel, ROWS, OTHERS, L, R, block=3)[Z]
    assert gradient.shape == Z.shape
    np.testing.assert_allclose(gradient, kernel_gradient(kernel, ROWS, OTHERS, L, R)[Z], rtol=1e-11, atol=1e-13)
    for entry in np.ndindex(Z.shape):
        sums = []
        for step in (1e-5, -1e-5):
            moved = POINTS.copy()
            moved[entry] += step
            Z.value = moved
            sums.append(np.sum(L @ R.T * kernel(ROWS, OTHERS)))
        assert gradient[entry] == pytest.approx((sums[0] - sums[1]) / 2e-5, rel=1e-6, abs=1e-8)
    Z.value = POINTS
    if name in ("gaussian", "columns"):
        assert not gradient[[3, 6, 7]].any() and gradient[[0, 1, 2, 4, 5, 8, 9]].any(axis=1).all()


def test_as_a_value():
    Z = held()
    kernel = ks.Gaussian(sigma=1.0).indexed(Z)
    assert kernel == ks.Gaussian(sigma=1.0).indexed(Z) and hash(kernel) == hash(ks.Gaussian(sigma=1.0).indexed(Z))
    assert kernel not in (ks.Gaussian(sigma=1.0).indexed(held()), ks.Gaussian(sigma=2.0).indexed(Z))
    assert ks.Linear().indexed(POINTS) == ks.Indexed(ks.Linear(), POINTS.copy()) != ks.Linear().indexed(2 * POINTS)
    assert repr(kernel) == "(Gaussian(sigma=1.0)).indexed(Z)"
    assert repr(ks.Linear().indexed(POINTS)) == "(Linear()).indexed(<10 points>)"
    assert kernel.with_params(points=POINTS) == ks.Gaussian(sigma=1.0).indexed(POINTS)
    assert ks.Gaussian(sigma=1.0).indexed(POINTS).with_params(points=Z) == kernel
    again = pickle.loads(pickle.dumps(kernel))
    assert again.parameters()[0] is not Z and np.array_equal(again(ROWS), kernel(ROWS))
    points = POINTS.copy()
    constant = ks.Linear().indexed(points)
    points[0] = 7.0
    assert constant([0])[0, 0] == pytest.approx(POINTS[0] @ POINTS[0])
    with pytest.raises(ValueError, match="read-only"):
        constant.points[0] = 7.0


def test_without_a_value():
    kernel = ks.Gaussian(sigma=1.0).indexed(cp.Parameter((4, 2), name="Z"))
    assert kernel.is_psd and kernel.rows([3, 0]).tolist() == [3, 0] and not kernel.is_stationary
    with pytest.raises(ParameterError, match="parameter Z"):
        kernel([0, 1])


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda k: k.indexed(cp.Parameter(3)), KernelError, "dense matrix.*cp.Parameter..N, d.."),
        (lambda k: k.indexed(cp.Parameter((2, 2), symmetric=True)), KernelError, "without structure"),
        (lambda k: k.indexed(cp.Parameter((2, 2), PSD=True)), KernelError, "without structure"),
        (lambda k: k.indexed(2 * held()), KernelError, "no other expressions"),
        (lambda k: k.indexed(POINTS[0]), DataError, "matrix with one point per row"),
        (lambda k: k.indexed(np.full((2, 2), np.nan)), DataError, "finite"),
        (lambda k: ks.Spectrum(2).indexed(["ab"]), DataError, "matrix of numbers"),
        (lambda k: ks.Precomputed(np.eye(2)).indexed([0, 1]), DataError, "matrix of numbers"),
        (lambda k: ks.Intersection().indexed(-POINTS), DataError, "histogram"),
        (lambda k: ks.Intersection().indexed(held(-POINTS))([0]), DataError, "histogram"),
        (lambda k: k.indexed(held())([0, 10]), DataError, "0 to 9; got 0 to 10. New points are further rows"),
        (lambda k: k.indexed(held())([-1]), DataError, "0 to 9"),
        (lambda k: k.indexed(held())(POINTS), DataTypeError, "row numbers"),
        (lambda k: k.indexed(held()) + k.indexed(POINTS[:4]), KernelError, "same kind of data"),
        (lambda k: k.indexed(held()) + k, KernelError, "same kind of data"),
    ],
)
def test_what_it_refuses(make, kind, words):
    with pytest.raises(kind, match=words):
        make(ks.Gaussian(sigma=1.0))


def test_row_numbers_have_no_gradient():
    kernel = ks.Gaussian(sigma=1.0).indexed(POINTS)
    with pytest.raises(KernelError, match="gradients to its points"):
        kernel._adjoint(ROWS, OTHERS, L @ R.T, frozenset(), True)


def fitted(points, X):
    theta, b = ko.Theta(points), cp.Variable()
    loss = cp.sum(cp.abs(np.sin(np.arange(6)) - theta(X[:6]) - b))
    return ko.Problem(cp.Minimize(loss + 0.3 * ko.sum_squares(theta) + 0.1 * cp.square(b))), theta(X[6:]) + b


@pytest.mark.later
def test_problems_follow_the_points():
    Z = held()
    problem, rest = fitted(ks.Gaussian(sigma=1.0).indexed(Z), np.arange(10))
    values = []
    for points in (POINTS, POINTS**2):
        Z.value = points
        plain, expected = fitted(ks.Gaussian(sigma=1.0), points)
        assert problem.solve(tol=1e-9) == pytest.approx(plain.solve(tol=1e-9), rel=1e-8)
        np.testing.assert_allclose(rest.value, expected.value, atol=1e-5)
        assert problem.status == "optimal"
        values.append(problem.value)
    assert values[0] != pytest.approx(values[1], rel=1e-3)


@pytest.mark.later
def test_only_the_factor_of_new_points_is_made_anew():
    Z, other = held(), ko.Theta(ks.Gaussian(sigma=1.0))
    theta, lam, cache = ko.Theta(ks.Gaussian(sigma=1.0).indexed(Z)), cp.Parameter(pos=True, value=1.0), FactorCache()
    loss = cp.sum_squares(theta(np.arange(10)) + other(POINTS) - np.arange(10.0))
    problem = ko.Problem(cp.Minimize(loss + lam * (ko.sum_squares(theta) + ko.sum_squares(other))))
    problem.solve(cache=cache)
    first = dict(problem._factored.reduction.factors)
    lam.value = 2.0
    problem.solve(cache=cache)
    assert all(problem._factored.reduction.factors[t] is first[t] for t in (theta, other))
    Z.value = POINTS + 0.1
    problem.solve(cache=cache)
    assert problem._factored.reduction.factors[other] is first[other]
    assert problem._factored.reduction.factors[theta] is not first[theta]


@pytest.mark.slow
def test_the_gradient_of_a_criterion_by_the_points():
    Z = held()
    problem, rest = fitted(ks.Gaussian(sigma=1.0).indexed(Z), np.arange(10))
    problem.solve()
    criterion = cp.sum_squares(rest - 1.0)
    gradient, direction = ko.gradient(problem, criterion)[Z], RNG.normal(size=POINTS.shape)
    assert gradient.any(axis=1).sum() >= 8
    values = []
    for step in (1e-5, -1e-5):
        Z.value = POINTS + step * direction
        problem.solve()
        values.append(ko.gradient(problem, criterion).value)
    assert np.sum(gradient * direction) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)
