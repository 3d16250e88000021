"""Rows of large sparse matrices as points: the same answers as for arrays, without arrays."""

import pickle
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, FormatError, KernelError, OptionError
from kernelopt.estimators import KernelClassifier, KernelPCA, KernelRegressor
from kernelopt.kernels import sparse_rows
from kernelopt.kernels.domains import distinct, stack

KERNELS = {
    "linear": ko.kernels.Linear(),
    "polynomial": ko.kernels.Polynomial(degree=3, offset=0.5, scale=0.7),
    "cosine": ko.kernels.Cosine(),
    "gaussian": ko.kernels.Gaussian(sigma=1.3),
    "series": ko.kernels.Linear().series([1.0, 0.5, 0.1]),
    "sum": 0.5 * ko.kernels.Gaussian(sigma=2.0) + ko.kernels.Linear() * ko.kernels.Constant(2.0) + ko.kernels.Delta(),
    "normalized": ko.kernels.Polynomial(degree=2).normalized(),
    "exponential": (0.1 * ko.kernels.Linear()).exp(),
    "coefficients": ko.kernels.PolynomialSeries([1.0, 0.5, 0.2]),
    "power": ko.kernels.Linear() ** 2,
    "difference": 4.0 * ko.kernels.Gaussian(sigma=1.0) - ko.kernels.Linear(),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Also small matrices stay sparse, and products are formed in several parts."""
    monkeypatch.setattr(sparse_rows, "SMALL", 0)
    monkeypatch.setattr(sparse_rows, "DENSE", 1.1)
    monkeypatch.setattr(sparse_rows, "AT_ONCE", 40)


def data(n=12, d=30, seed=0, repeats=True):
    X = sp.random_array((n, d), density=0.1, rng=np.random.default_rng(seed), format="csr")
    return sp.csr_array(sp.vstack([X, X[:2], sp.csr_array((1, d))])) if repeats else X


@pytest.mark.parametrize("name", KERNELS)
def test_values(name):
    kernel, X, Z = KERNELS[name], data(), data(5, seed=1)
    A, B = X.toarray(), Z.toarray()
    assert sparse_rows.is_sparse(kernel.rows(X)) and kernel.domain.columns(kernel.rows(X)) == 30
    assert kernel(X) == pytest.approx(kernel(A), rel=1e-13, abs=1e-13)
    assert np.array_equal(kernel(X), kernel(X).T) or name == "normalized"
    for left, right in ((X, Z), (X, B), (A, Z)):
        assert kernel(left, right) == pytest.approx(kernel(A, B), rel=1e-13, abs=1e-13)
    assert kernel.diag(X) == pytest.approx(kernel.diag(A), rel=1e-14)
    assert 0 <= kernel.rounding(X) <= kernel.rounding(A) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_features(name):
    kernel, X = KERNELS[name], data()
    F = kernel.features(X)
    assert F.shape == (15, 30) and np.allclose(F @ F.T, kernel(X), rtol=0, atol=1e-14)


def test_the_bound_on_rounding_holds():
    """Of inner products, in rational numbers."""
    X = data(seed=3)
    X.data *= 10.0 ** np.random.default_rng(0).uniform(-3, 3, X.nnz)
    kernel, A = ko.kernels.Linear(), X.toarray()
    exact = [
        [sum(Fraction(a) * Fraction(b) for a, b in zip(x, z, strict=True)) for z in A.tolist()] for x in A.tolist()
    ]
    K, r = kernel(X), Fraction(kernel.rounding(X))
    for i in range(len(A)):
        for j in range(len(A)):
            assert (Fraction(K[i, j]) - exact[i][j]) ** 2 <= r**2 * exact[i][i] * exact[j][j]


def test_points_far_away_have_a_larger_bound():
    """Squared distances come from one product with 0 as the centre."""
    X = data()
    X.data += 1e4
    kernel = ko.kernels.Gaussian(sigma=1.0)
    K, r = kernel(X), kernel.rounding(X)
    assert r > 1e-8 and np.abs(K - kernel(X.toarray())).max() <= r


def test_equal_rows_are_one():
    X = data()
    rows = ko.kernels.Linear().rows(X)
    assert len(distinct(rows).first) == 13 and rows[0] == rows[12] and hash(rows[0]) == hash(rows[12])
    assert rows[0] != rows[1] and rows[0] != "row" and repr(rows[14]) == "<0 of 30 columns>"
    both = stack([rows, X.toarray(), rows[:0]])
    assert len(distinct(both).first) == 13
    unsorted = sp.csr_array((np.array([1.0, 2.0, 0.0, 1.0]), np.array([5, 3, 7, 5]), np.array([0, 4])), shape=(1, 30))
    [row] = ko.kernels.Linear().rows(unsorted)
    assert row.columns.tolist() == [3, 5] and row.values.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["linear", "gaussian", "sum"])
def test_a_fit(name):
    """The same answer as with an array; the certificate and verify() say so."""
    X, new, y = data(30, 60), data(4, 60, seed=9, repeats=False), np.sign(np.random.default_rng(2).normal(size=33))

    def solved(X):
        theta, b = ko.Theta(KERNELS[name]), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(y, theta(X) + b)) + 0.1 * ko.sum_squares(theta)))
        problem.solve(tol=1e-9)
        assert problem.status == "optimal" and problem.verify().passed
        return theta, problem

    (theta, problem), (other, same) = solved(X), solved(X.toarray())
    assert problem.value == pytest.approx(same.value, rel=1e-8)
    for points in (new, new.toarray()):
        assert theta.value(points) == pytest.approx(other.value(new.toarray()), abs=1e-4)
    assert theta.value.norm == pytest.approx(other.value.norm, rel=1e-5)
    restored = pickle.loads(pickle.dumps(theta.value))
    assert np.array_equal(restored(new), theta.value(new))


def test_rows_of_both_kinds_in_one_problem():
    X = data(10)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = (
        cp.sum_squares(theta(X) - 1)
        + cp.sum_squares(theta(X.toarray()[:3]) + 1)
        + ko.sum_squares(theta - ko.Function(theta.kernel, X[:1], [0.5]))
    )
    problem = ko.Problem(cp.Minimize(loss), [theta(X)[0] >= 0.1])
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed
    assert len(problem._factored.reduction.form.predictions[0].rows) == len(np.unique(X.toarray(), axis=0)) + 1


@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"max_rank": 8}], ids=["whole", "blocks", "low rank"])
def test_streamed(options):
    X, y = data(60, 40), np.random.default_rng(0).normal(size=63)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + ko.sum_squares(theta)))
    problem.solve(tol=1e-4, **options)
    K = ko.kernels.Gaussian(sigma=1.0)(X)
    optimum = y @ np.linalg.solve(np.eye(63) + K, y)
    assert problem.certificate.lower - 1e-6 <= optimum <= problem.certificate.upper + 1e-6
    assert problem.value == pytest.approx(optimum, rel=1e-4) or "max_rank" in options


def test_gradients_by_parameters_of_the_kernel():
    X, y = data(10, repeats=False), np.random.default_rng(0).normal(size=10)
    sigma, found = cp.Parameter(pos=True, value=1.0), []
    for points in (X, X.toarray()):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
        problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - y) + ko.sum_squares(theta)))
        problem.solve(tol=1e-9)
        found.append(ko.gradient(problem, cp.sum_squares(theta(points[:4])), [sigma])[sigma])
    assert found[0] == pytest.approx(found[1], rel=1e-7)


def test_what_takes_arrays_gets_arrays():
    X = data()
    for kernel in (
        ko.kernels.Laplacian(sigma=1.0), ko.kernels.Gaussian(sigma=1.0).on([0, 1]), ko.kernels.Linear().ard([1.0] * 30),
        ko.kernels.Linear() + ko.kernels.Matern(nu=1.5, sigma=1.0), ko.kernels.Linear().compose(np.tanh),
        ko.kernels.Linear().weighted(lambda Z: 1 + Z[:, 0]),
    ):  # fmt: skip
        assert kernel.rows(X).dtype == float
        assert np.array_equal(kernel(X), kernel(X.toarray()))


def test_what_has_no_rule():
    X, theta = data(), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    with pytest.raises(DataError, match=r"points in an array beside derivatives; got a sparse matrix of 30 columns"):
        ko.Problem(cp.Minimize(cp.sum_squares(theta(X)) + cp.sum_squares(theta.derivative(0)(X)))).solve()
    with pytest.raises(DataTypeError, match="real and imaginary"):
        theta(X * 1j)
    X.data[3] = np.nan
    with pytest.raises(DataError, match=r"finite.*sparse|sparse.*finite"):
        theta(X)
    with pytest.raises(KernelError, match="equally many columns"):
        ko.kernels.Linear()(data(), data(d=31))


@pytest.mark.parametrize("name", ["linear", "polynomial", "cosine", "gaussian"])
def test_combinations_of_rows_alone(name):
    """There is no row of a point, of whose number of columns nothing is known."""
    X, values = data(), []
    for points in (X, X.toarray()):
        theta = ko.Theta(KERNELS[name])
        mean = np.full((1, 15), 1 / 15) @ ko.FeatureMatrix(points, KERNELS[name])
        problem = ko.Problem(cp.Minimize(cp.sum_squares(mean @ theta - 1) + ko.sum_squares(theta)))
        problem.solve()
        assert problem.status == "optimal" and problem.verify().passed
        values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.parametrize("made", [lambda k, X: k, lambda k, X: k.centered(X), lambda k, X: k.cached(X)])
def test_files(tmp_path, made):
    X = data()
    f = ko.Function(made(ko.kernels.Gaussian(sigma=1.0), X), X, np.arange(15.0))
    ko.save(tmp_path / "f.zip", f=f)
    again = ko.load(tmp_path / "f.zip")["f"]
    assert sparse_rows.is_sparse(again._centers) and np.array_equal(again(X), f(X))


def test_predictors_and_the_check_of_kernels():
    X, theta = data(), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta))).solve()
    for f in (theta(X) + 1, lambda P: theta(P) + 1):
        predictor = ko.Predictor(f, X)
        assert predictor(X[:4]) == pytest.approx(theta.value(X.toarray()[:4]) + 1, abs=1e-12)
        with pytest.raises(DataTypeError, match="real and imaginary"):
            predictor(X[:4] * 1j)
    other = ko.Theta(ko.kernels.Laplacian(sigma=1.0))  # which takes arrays
    ko.Problem(cp.Minimize(cp.sum_squares(other(X) - 1) + ko.sum_squares(other))).solve()
    assert ko.Predictor(lambda P: 2 * other(P), X)(X[:4]) == pytest.approx(2 * other.value(X[:4]), abs=1e-12)
    ko.testing.check_kernel(ko.kernels.Gaussian(sigma=1.0), X)


def test_the_way_back_of_principal_components_needs_an_array():
    assert KernelPCA(2).fit(data()).transform(data()).shape == (15, 2)
    with pytest.raises(OptionError, match="predicts all columns of X; got a sparse matrix of 30 columns"):
        KernelPCA(2, fit_inverse_transform=True).fit(data())


@pytest.mark.parametrize(
    ("name", "value"),
    [("indices", [40, 1]), ("indptr", [0, 3]), ("indptr", [1, 2]), ("indices", [0.5, 1.0]), ("data", [1.0])],
)
def test_files_that_nobody_saved(tmp_path, name, value):
    from kernelopt.persistence import loading  # noqa: PLC0415

    parts = {"data": np.array([1.0, 2.0]), "indices": np.array([0, 4]), "indptr": np.array([0, 2])}
    assert len(loading._sparse(**parts, columns=30)) == 1
    for columns in (30, 0, 2.0, 2**40):
        with pytest.raises(FormatError):
            loading._sparse(**parts | {name: np.array(value)}, columns=columns)


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "cosine", ko.kernels.Gaussian(sigma=1.0)], ids=str)
def test_estimators(kernel):
    X, y = data(40, 50), np.random.default_rng(0).normal(size=43)
    weights = 1.0 + np.arange(43) % 3
    for made, target in ((KernelRegressor, y), (KernelClassifier, np.sign(y))):
        sparse, dense = made(kernel=kernel), made(kernel=kernel)
        sparse.fit(X, target, sample_weight=weights)
        dense.fit(X.toarray(), target, sample_weight=weights)
        assert sparse_rows.is_sparse(sparse.function_.centers) and sparse.n_features_in_ == 50
        ours, theirs = (
            m.predict(X[:9]) if made is KernelRegressor else m.decision_function(X[:9]) for m in (sparse, dense)
        )
        assert ours == pytest.approx(theirs, abs=1e-4)
        assert sparse.predict(X.toarray()[:9]) == pytest.approx(sparse.predict(X[:9]), abs=1e-12)


def test_order_and_weights_of_rows():
    """A fit does not depend on the order of rows, and equal rows are one with their weights."""
    X, y = data(20, 50), np.random.default_rng(0).normal(size=23)
    y[20:22] = y[:2]
    order = np.random.default_rng(1).permutation(23)
    one = KernelRegressor(kernel="rbf").fit(X, y)
    other = KernelRegressor(kernel="rbf").fit(X[order], y[order])
    assert np.array_equal(one.predict(X), other.predict(X))
    assert len(one.function_.centers) <= 21
