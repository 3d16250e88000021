"""Files: what is saved comes back bit for bit, and what is not a file of ours is refused."""

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial

import cvxpy as cp
import numpy as np
import pytest
from forging import faults
from sklearn.gaussian_process import kernels as gp

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, FormatError, KernelError, KernelOptError, OptionError
from kernelopt.kernels import Kernel
from kernelopt.kernels.derivatives import WithDerivatives
from kernelopt.kernels.kernel import Verdict
from kernelopt.kernels.lifts import Lift
from kernelopt.kernels.parametrized import Parametrized
from kernelopt.kernels.spreads import WithMeans
from kernelopt.persistence import archive
from kernelopt.persistence.vocabulary import KERNELS

RNG = np.random.default_rng(0)
X, NEW = np.abs(RNG.normal(size=(6, 3))), np.abs(RNG.normal(size=(9, 3)))
WORDS, NEW_WORDS = ["ab", "banana", "", "añb\ud800"], ["ba", "abba"]
ks = ko.kernels
GAUSSIAN = ks.Gaussian(sigma=1.5)
S = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
A = RNG.normal(size=(12, 12))
A32 = A.astype(np.float32)
NOISY = (A32 @ A32.T) * (1 + np.triu(np.full((12, 12), 1e-7, dtype=np.float32)))


def squares(X):
    return np.column_stack([X, X**2])


def first(X):
    return X[:, 0]


def overlap(a, b):
    return float(np.minimum(a, b).sum())


def letters(a, b):
    return float(len(set(a) & set(b)))


def cityblock(X, Z):
    return np.abs(X[:, None] - Z).sum(axis=2)


@dataclass(frozen=True)
class Tilted(Kernel):
    """A kernel of one's own, (xᵀy)·scale."""

    scale: float
    inner: Kernel

    def _verdict(self):
        return Verdict(True, "a multiple")

    def _matrix(self, X, Z):
        return self.scale * self.inner._matrix(X, Z)

    def _diagonal(self, X):
        return self.scale * self.inner._diagonal(X)


OF_VECTORS = [
    ks.Constant(2.0), ks.Delta(), ks.Linear(), ks.Cosine(), ks.Polynomial(degree=3, offset=0.5, scale=2.0),
    ks.Polynomial(degree=np.int64(2)), ks.PolynomialSeries([1, 0, 2, 0.5]), ks.Geometric().ard([9, 9, 9]),
    GAUSSIAN, ks.Gaussian(sigma=np.float32(0.1)), ks.Gaussian(sigma=np.float64(0.1)), ks.Gaussian.from_gamma(0.3),
    ks.Laplacian(sigma=1.5), ks.Matern(nu=0.5, sigma=2.0), ks.Matern(nu=1.5, sigma=2.0), ks.Matern(nu=2.5, sigma=2.0),
    ks.Matern(nu=0.3, sigma=2.0), ks.Matern(nu=2, sigma=1.5),
    ks.Spline(order=3, low=-2, high=1.5).on([1]), ks.ThinPlate(3 * np.vstack([np.eye(3), -np.ones(3)])),
    ks.RationalQuadratic(sigma=1.5, alpha=0.7), ks.Periodic(period=1.3, sigma=0.8), ks.Sigmoid(scale=0.3, offset=-0.2),
    *(ks.GeneralizedGaussian(d, 2.0) for d in ("l1", "l2", "linf", "chi2", "hellinger")),
    ks.GeneralizedGaussian("mahalanobis", 2.0, S), ks.GeneralizedGaussian(cityblock, 2.0),
    ks.Intersection(), ks.Intersection(maximum=7), ks.AdditiveChiSquared(), ks.Explicit(squares),
    ks.FromFunction(overlap), ks.FromFunction(overlap, psd=True), 3 * ks.Linear(),
    ks.Linear() + 0.5 * GAUSSIAN, ks.Intersection() + GAUSSIAN + ks.Linear() * GAUSSIAN,
    (ks.Linear() + ks.Delta()) ** 3,
    ks.Linear().series([1.0, 0.0, 0.5]), (0.1 * ks.Linear()).exp(), GAUSSIAN - 0.5 * ks.Linear(),
    ks.Linear().weighted(first), GAUSSIAN.compose(squares), GAUSSIAN.on([2, 0]), GAUSSIAN.ard([1, 2, 0.5]),
    ks.Polynomial(degree=2).normalized(), ks.Linear().centered(X), GAUSSIAN.centered(NEW), GAUSSIAN.cached(X),
    ((2 * GAUSSIAN.on([1])).exp() + ks.Linear()).centered(X[:3]), Tilted(2.0, GAUSSIAN + ks.Linear()),
    ks.as_kernel(gp.RBF(2.0)), ks.as_kernel(gp.RBF([1.0, 2.0, 3.0])), ks.as_kernel(gp.Matern(1.5, nu=1.5)),
    ks.as_kernel(1.5 * gp.RationalQuadratic() + gp.DotProduct() ** 2), ks.as_kernel(gp.ExpSineSquared(1.0, 2.0)),
    ks.as_kernel(gp.RBF(np.array([1.0, 2.0, 3.0]), "fixed") * gp.PairwiseKernel(metric="rbf", gamma=0.3)),
]  # fmt: skip
OF_WORDS = [
    ks.Spectrum(n=2), ks.PositionMatch(power=2), ks.Spectrum(n=1).normalized() + ks.Delta(), ks.FromFunction(letters),
    ks.Spectrum(n=2).centered(WORDS), ks.Spectrum(n=2).cached(WORDS[:2]),
]  # fmt: skip
PRECOMPUTED = [
    ks.Precomputed(A @ A.T),
    GAUSSIAN.indexed(np.vstack([X, NEW])),
    ks.Precomputed(NOISY),
    2 * ks.Precomputed(A @ A.T) + ks.Delta(),
]
ROWS = [
    {"a": 0.5, "n": 3, "s": "ab", "g": "x", "t": True},
    {"a": -1.5, "n": 2**60 + 1, "s": "ba", "g": None, "t": False},
    {"a": None, "n": 3, "s": "", "g": 7, "t": True},
]
OF_ROWS = [
    GAUSSIAN.with_missing("level").on("a") + ks.Spectrum(n=2).on("s"),
    ks.Categorical(missing="level").on("g") * ks.Categorical().on("n"),
    ks.Categorical(levels=[True, False], covariance=[[1.0, 0.5], [0.5, 2.0]]).on("t").centered(ROWS),
    ks.Gower({"a": 2.0, "g": None, "t": None}, weights=[1, 2, 3], missing="ignore"),
]
GAPPY = [GAUSSIAN.with_missing("ignore"), GAUSSIAN.with_missing("level").on([0, 1]) + ks.Linear().on([1])]
CASES = [
    *((k, ROWS, ROWS[:2]) for k in OF_ROWS),
    *((k, X, NEW) for k in GAPPY),
    *((k, X, NEW) for k in OF_VECTORS),
    *((k, WORDS, NEW_WORDS) for k in OF_WORDS),
    *((k, [1, 5, 7], [0, 2, 5]) for k in PRECOMPUTED),
]
NAMES = {"squares": squares, "first": first, "overlap": overlap, "letters": letters, "cityblock": cityblock} | {
    "Tilted": Tilted
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ko"


def parts(kernel):
    return {type(kernel)}.union(*(parts(part) for part in kernel.parts))


def test_no_kernel_is_forgotten():
    """A kernel that is new in the library needs a case above, which the next test takes to a file and back."""
    below, families = [Kernel], set()
    while below:
        below += (kind := below.pop()).__subclasses__()
        families |= {kind} if kind.__module__.startswith("kernelopt.") and not kind.__name__.startswith("_") else set()
    tested = set().union(*(parts(kernel) for kernel, _, _ in CASES)) | {WithDerivatives, WithMeans}  # below
    assert set(KERNELS.values()) == families - {Kernel, Lift, Parametrized} == tested - {Tilted}
    assert all(name == kind.__name__ for name, kind in KERNELS.items())


def test_missing_values_are_kept(path):
    points = np.array([[np.nan, 1.0], [2.0, np.nan], [0.0, 0.0]])
    labels = ko.Function(ks.Categorical(missing="level"), ["a", None, 1, True, 0.5, "b"], np.arange(6.0))
    numbers = ko.Function(ks.Categorical(missing="level"), [0.5, None, np.inf], np.arange(3.0))
    f = ko.Function(GAUSSIAN.with_missing("level"), points, np.arange(3.0))
    ko.save(path, f=f, labels=labels, numbers=numbers)
    found = ko.load(path)
    assert np.array_equal(found["f"].centers, points, equal_nan=True) and np.array_equal(found["f"](points), f(points))
    assert found["labels"].centers.tolist() == ["a", None, 1, True, 0.5, "b"] and found["labels"].norm == labels.norm
    assert found["numbers"].centers.tolist() == [0.5, None, np.inf]
    assert type(found["labels"].centers[3]) is bool


@pytest.mark.parametrize("value", [date(2020, 1, 1), (1, 2)])
def test_labels_that_files_do_not_hold(path, value):
    rows = [{"g": "x"}, {"g": value}]
    with pytest.raises(DataTypeError, match="Expected g to hold numbers, strings and booleans; got .* at 1"):
        ko.save(path, f=ko.Function(ks.Categorical().on("g"), rows, [1.0, 2.0]))


@pytest.mark.one_row
@pytest.mark.parametrize(("kernel", "points", "new"), CASES, ids=[repr(k)[:60] for k, _, _ in CASES])
@pytest.mark.parametrize("outputs", [None, 2])
def test_every_kernel(kernel, points, new, outputs, path):
    n = len(points)
    f = ko.Function(kernel, points, RNG.normal(size=n if outputs is None else (n, outputs)))
    ko.save(path, f=f)
    g = ko.load(path, kernels=NAMES)["f"]
    assert type(g) is ko.Function and g.outputs == outputs
    assert np.array_equal(g.coefficients, f.coefficients) and np.array_equal(g.centers, f.centers)
    assert g.kernel == f.kernel and g.kernel.precision == f.kernel.precision
    assert g(new).tobytes() == f(new).tobytes() and g(points).tobytes() == f(points).tobytes()
    assert not g.centers.flags.writeable and not g.coefficients.flags.writeable
    again = path.with_name("again")
    ko.save(again, f=g)
    assert again.read_bytes() == path.read_bytes()


def fitted(outputs=None, kernel=GAUSSIAN):
    theta, b = ko.Theta(kernel, outputs), cp.Variable(name="b")
    target = np.sin(X[:, 0]) if outputs is None else np.sin(X[:, :outputs])
    loss = cp.sum_squares(target - theta(X) - b)
    ko.Problem(cp.Minimize(loss + 0.3 * ko.sum_squares(theta))).solve()
    return theta, b


@pytest.mark.parametrize("outputs", [None, 3])
def test_fitted_functions(outputs, path):
    theta, b = fitted(outputs)
    ko.save(path, theta=theta, again=theta.value, b=b)
    found = ko.load(path)
    for g in (found["theta"], found["again"]):
        assert g(NEW).tobytes() == theta.value(NEW).tobytes()
        assert g.norm == theta.value.norm and np.array_equal(g.pivots, theta.value.pivots)
        assert np.array_equal(g.pivot_coefficients, theta.value.pivot_coefficients)
        assert np.array_equal(g.optimality_bound(NEW), theta.value.optimality_bound(NEW))
        with pytest.raises(KernelOptError, match="not loaded from a file"):
            g.expanded()
    assert found["b"].shape == () and found["b"] == b.value
    theta.value = found["theta"]  # takes its place again
    assert np.array_equal(theta(NEW).value, found["theta"](NEW))


def test_functions_on_derivatives(path):
    theta = ko.Theta(GAUSSIAN)
    A = ko.FeatureMatrix(X, GAUSSIAN)
    slopes = A.derivative(1) @ theta
    data = cp.sum_squares(A @ theta - 1) + cp.sum_squares(slopes - 2) + cp.sum_squares(A.derivative((0, 2)) @ theta)
    ko.Problem(cp.Minimize(data + 0.1 * ko.sum_squares(theta))).solve()
    ko.save(path, theta=theta)
    expected, g = slopes.value, ko.load(path)["theta"]
    assert g(NEW).tobytes() == theta.value(NEW).tobytes() and np.array_equal(g.centers, theta.value.centers)
    theta.value = g
    assert np.array_equal((A.derivative(1) @ theta).value, expected)


@pytest.mark.later
@pytest.mark.parametrize("kernel", [GAUSSIAN, ks.Polynomial(degree=3)], ids=str)
def test_functions_on_integrals(kernel, path):
    theta = ko.Theta(kernel)
    boxes, blurred = ko.integral(X, X + 0.3, kernel), ko.gaussian_mean(X, 0.2, kernel)
    data = cp.sum_squares(boxes @ theta - 1) + cp.sum_squares(blurred @ theta - 2)
    ko.Problem(cp.Minimize(data + 0.1 * ko.sum_squares(theta))).solve()
    ko.save(path, theta=theta)
    expected, g = (boxes @ theta).value, ko.load(path)["theta"]
    assert g(NEW).tobytes() == theta.value(NEW).tobytes() and np.array_equal(g.centers, theta.value.centers)
    assert np.array_equal(g.integral(X, X + 0.3), theta.value.integral(X, X + 0.3))
    theta.value = g
    assert np.array_equal((boxes @ theta).value, expected)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.0, 0.1, 0.1]], "half-widths or standard deviations"),
        ([[0.0, -0.1, 0.0]], "half-widths or standard deviations"),
        ([[0.0, 0.1]], "3d columns"),
        ([[0.0, 0.0, np.inf]], "finite"),
    ],
)
def test_integrals_that_are_none(rows, words, path):
    f = ko.Function._of_rows(WithMeans(GAUSSIAN), np.array(rows), np.ones(1))
    ko.save(path, f=f)
    with pytest.raises(FormatError, match=words):
        ko.load(path)


def test_integrals_without_a_rule_in_a_file(path):
    f = ko.Function._of_rows(WithMeans(ks.Cosine()), np.array([[1.0, 0.1, 0.0]]), np.ones(1))
    ko.save(path, f=f)
    with pytest.raises(FormatError, match="closed form"):
        ko.load(path)


def test_theta_zero_and_shifted_matrices(path):
    """A fit without pivots, and one with a multiple of Delta in its kernel."""
    theta, other = ko.Theta(GAUSSIAN), ko.Theta(ks.Sigmoid())
    ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.sum_squares(theta(0 * X)))).solve()
    ko.Problem(cp.Minimize(ko.sum_squares(other) + cp.sum_squares(other(X) - 1))).solve(indefinite="shift")
    nothing = ko.Function._of_rows(GAUSSIAN, X[:0], np.zeros(0))
    ko.save(path, theta=theta, other=other, nothing=nothing)
    found = ko.load(path)
    assert np.array_equal(found["other"](X), other.value(X)) and not found["nothing"](NEW).any()
    assert np.array_equal(found["theta"](NEW), theta.value(NEW))


ARRAYS = {
    "plain": RNG.normal(size=(3, 4)), "fortran": np.asfortranarray(RNG.normal(size=(3, 4))), "strided": A[::2, ::3],
    "empty": np.zeros((0, 3)), "number": np.float64(0.1), "python": 3, "truth": np.array([True, False]),
    "single": A32, "swapped": A.astype(">f8"), "integers": np.arange(3), "bytes": np.arange(3, dtype=np.uint8),
    "complex": A + 1j, "strings": np.array(["ham", "späm"]), "string": "spam", "list": [[1.0, 2.0]],
    "special": np.array([np.nan, -0.0, np.inf]), "swapped strings": np.array(["ab"], dtype=">U2"),
    "big": np.arange(2 * archive.CHUNK // 8 + 3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name, path):
    expected = np.asarray(ARRAYS[name])
    ko.save(path, a=ARRAYS[name])
    a = ko.load(path)["a"]
    assert a.dtype == expected.dtype and a.shape == expected.shape and a.tobytes() == expected.tobytes()
    assert a.flags.writeable


def test_leaves_of_cvxpy(path):
    v, lam = cp.Variable((2, 3), nonneg=True), cp.Parameter(value=2.5)
    v.value = np.arange(6.0).reshape(2, 3)
    ko.save(path, v=v, lam=lam, total=cp.sum(v) * lam)
    found = ko.load(path)
    assert np.array_equal(found["v"], v.value) and found["lam"] == 2.5 and found["total"] == 37.5


THETA, B = fitted()
MATRIX, _ = fitted(3)
LEVELS = cp.Variable(3)
LEVELS.value = np.arange(3.0)
EXPRESSIONS = {
    "intercept": lambda X: THETA(X) + B,
    "linear part": lambda X: 2 * THETA(X) - X @ LEVELS / 3,
    "outputs": lambda X: MATRIX(X) + LEVELS[None, :],
    "one output": lambda X: MATRIX(X)[:, 1],
    "chosen outputs": lambda X: MATRIX(X)[:, [0, 2]],
    "differences": lambda X: cp.diff(MATRIX(X), axis=1),
    "largest": lambda X: cp.max(MATRIX(X), axis=1),
    "softmax": lambda X: cp.log_sum_exp(MATRIX(X), axis=1),
    "length": lambda X: cp.norm(MATRIX(X), axis=1),
    "rate": lambda X: cp.exp(THETA(X) + B) + cp.logistic(THETA(X)),
    "clipped": lambda X: cp.minimum(cp.maximum(THETA(X) + B, 0), cp.abs(THETA(X))),
    "square": lambda X: cp.square(THETA(X)) + cp.huber(THETA(X), 0.1),
    "stacked": lambda X: cp.vstack([THETA(X), MATRIX(X)[:, 0]]).T @ np.eye(2),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_predictors(name, path):
    predictor = ko.Predictor(EXPRESSIONS[name](X), X)
    ko.save(path, f=predictor)
    g = ko.load(path)["f"]
    for points in (NEW, X, NEW[:1]):
        assert g(points).tobytes() == predictor(points).tobytes()
        assert np.allclose(g(points), EXPRESSIONS[name](points).value, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- what is refused when saving

NAMELESS = "no name of its own"


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (lambda: ko.Function(ks.Explicit(lambda X: X), X, np.ones(6)), KernelError, NAMELESS),
        (lambda: ko.Function(ks.Explicit(partial(squares)), X, np.ones(6)), KernelError, NAMELESS),
        (lambda: ko.Function(GAUSSIAN.compose(lambda X: X) + GAUSSIAN, X, np.ones(6)), KernelError, NAMELESS),
        (lambda: ko.Function(ks.FromFunction(letters), [{1}, {2}], [1, 2]), DataTypeError, "got set at 0"),
        (lambda: ko.Function(ks.as_kernel(gp.CompoundKernel([gp.RBF()])), X, np.ones(6)), KernelError, "Files know no"),
        (lambda: ko.Theta(GAUSSIAN), KernelOptError, "Solve the problem first"),
        (cp.Variable, KernelOptError, "Solve the problem first"),
        (lambda: THETA(X), DataError, "Save ko.Predictor"),
        (lambda: np.array([None]), DataTypeError, "dtype object"),
        (lambda: {"a": 1}, DataTypeError, "got dict"),
        (lambda: ko.Problem(cp.Minimize(0)), DataTypeError, "got Problem. .* of a problem its θ and variables"),
        (lambda: ko.estimators.KernelRegressor(), DataTypeError, "got KernelRegressor. .* save function_ and inter"),
        (lambda: np.zeros(2, dtype="datetime64[s]"), DataTypeError, "datetime64"),
        (lambda: np.zeros(2, dtype=np.longdouble), DataTypeError, "numbers or strings"),
        (lambda: ko.Predictor(cp.sum_largest(MATRIX(X), 2, axis=1), X), DataError, "atoms that files know"),
    ],
)
def test_what_files_do_not_hold(value, error, message, path):
    path.write_bytes(b"what was here before")
    with pytest.raises(error, match=message):
        ko.save(path, good=np.ones(3), value=value())
    assert path.read_bytes() == b"what was here before" and os.listdir(path.parent) == [path.name]


def test_no_values(path):
    with pytest.raises(DataError, match="got no values"):
        ko.save(path)
    assert not path.exists()


def test_writing_is_all_or_nothing(path, monkeypatch):
    ko.save(path, a=np.ones(3))
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="no space left"):
        ko.save(path, a=np.zeros(3))
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


# ---------------------------------------------------------------- names


def test_functions_by_name(path):
    anonymous = lambda X: np.hstack([X, 1 / (1 + X)])
    kernel = ks.Linear().compose(anonymous)
    f = ko.Function(kernel, X, np.ones(6))
    ko.save(path, kernels={"ratios": anonymous}, f=f)
    assert np.array_equal(ko.load(path, kernels={"ratios": anonymous})["f"](NEW), f(NEW))
    for given in (None, {}, {"other": anonymous}):
        with pytest.raises(FormatError, match="what ratios stands for"):
            ko.load(path, kernels=given)
    with pytest.raises(FormatError, match="does not hold together"):
        ko.load(path, kernels={"ratios": 3})


def test_kernels_by_name(path):
    """A kernel that is named is not in the file, its matrix or data neither."""
    kernel = ks.Precomputed(A @ A.T)
    f = ko.Function(2 * kernel, [1, 4], [1.0, 2.0])
    ko.save(path, kernels={"gram": kernel, "unused": GAUSSIAN}, f=f)
    assert path.stat().st_size < 8 * A.size
    g = ko.load(path, kernels={"gram": kernel})["f"]
    assert g.kernel == f.kernel and np.array_equal(g([0, 3]), f([0, 3]))
    with pytest.raises(FormatError, match="row numbers from 0 to 1"):
        ko.load(path, kernels={"gram": ks.Precomputed(np.eye(2))})


def test_a_class_by_name(path):
    f = ko.Function(Tilted(2.0, GAUSSIAN), X, np.ones(6))
    ko.save(path, kernels={"mine": Tilted}, f=f)
    assert ko.load(path, kernels={"mine": Tilted})["f"].kernel == f.kernel
    with pytest.raises(FormatError, match="to be a class"):
        ko.load(path, kernels={"mine": GAUSSIAN})


def test_two_things_of_one_name(path):
    namesake = type(squares)(squares.__code__, globals(), "squares")
    kernel = ks.Explicit(squares) + ks.Explicit(squares) + ks.Explicit(namesake)
    with pytest.raises(KernelError, match="Two things are called squares"):
        ko.save(path, f=ko.Function(kernel, X, np.ones(6)))


# ---------------------------------------------------------------- files of others


def members(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path, contents):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in contents.items():
            file.writestr(zipfile.ZipInfo(name), content)


def edited(path, edit):
    """The file with its JSON changed."""
    contents = members(path)
    document = json.loads(contents["kernelopt.json"])
    edit(document)
    forge(path, contents | {"kernelopt.json": json.dumps(document)})


@pytest.fixture
def model(path):
    theta, b = fitted(kernel=GAUSSIAN + ks.Polynomial(degree=2).centered(X))
    f = ko.Predictor(theta(X) + b, X)
    words = ko.Function(ks.Spectrum(n=2), WORDS, np.ones(4))
    ko.save(path, theta=theta, b=b, f=f, words=words, labels=np.array(["a", "b"]), yes=np.array([True]))
    return path


def set_in(*keys, to):
    def edit(document):
        node = document
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = to

    return edit


GAUSS = ("values", "theta", "kernel", "parameters", "terms", 0)
EDITS = [
    (set_in("schema", to=2), "Expected schema 1; got 2"),
    (set_in("schema", to=True), "Expected schema 1"),
    (set_in("format", to="pickle"), "format 'kernelopt'"),
    (set_in("values", to=[]), "values by name"),
    (set_in("more", to=1), "Expected an object with format"),
    (set_in(*GAUSS, "parameters", "sigma", to=-1.0), "sigma to be a number > 0; got -1.0"),
    (set_in(*GAUSS, "parameters", "sigma", to=float("nan")), "finite numbers in JSON; got NaN"),
    (set_in(*GAUSS, "parameters", "sigma", to="1"), "sigma to be a number > 0"),
    (set_in(*GAUSS, "parameters", "sigma", to=10**400), "does not hold together"),
    (set_in(*GAUSS, "parameters", "sigma", to=[1.0]), "sigma to be a number > 0"),
    (set_in(*GAUSS, "parameters", "sigma", to={"kind": "float32", "value": "x"}), "Expected a number"),
    (set_in(*GAUSS, "parameters", to={}), "sigma"),
    (set_in(*GAUSS, "parameters", to={"sigma": 1.0, "psd": True}), "psd"),
    (set_in(*GAUSS, "name", to="os.system"), "Expected a kernel, one of ARD"),
    (set_in(*GAUSS, "name", to="Kernel"), "Expected a kernel, one of ARD"),
    (set_in(*GAUSS, "kind", to="pickle"), "a kernel or a parameter"),
    (set_in(*GAUSS, "kind", to="sklearn"), "scikit-learn, one of"),
    (set_in(*GAUSS, to={"kind": "given", "name": "print"}), "what print stands for"),
    (set_in(*GAUSS, to=5), "a sequence of kernels"),
    (set_in("values", "theta", "kernel", to=5), "Expected a kernel; got 5"),
    (set_in("values", "theta", "centers", "member", to=10**9), "there is none"),
    (set_in("values", "theta", "centers", "member", to=-1), "number of a member"),
    (set_in("values", "theta", "centers", "member", to="0"), "number of a member"),
    (set_in("values", "theta", "coefficients", "member", to=3), "referred to once"),
    (set_in("values", "theta", "fit", "distance", to=-1.0), "distance ≥ 0"),
    (set_in("values", "theta", "fit", "distance", to=float("inf")), "finite numbers in JSON; got Infinity"),
    (set_in("values", "theta", "fit", to=None), "to which it does not"),
    (set_in("values", "theta", to={"kind": "function"}), "of kind 'function' with"),
    (set_in("values", "f", "node", "name", to="eval"), "an atom, one of"),
    (set_in("values", "f", "node", "data", to=[1, 2, 3]), "too many"),
    (set_in("values", "f", "node", "arguments", to=3), "Expected a list"),
    (set_in("values", "b", to=[]), "of kind 'array'"),
    (set_in("values", "words", "centers", "kind", to="array"), "referred to once"),
    (lambda d: d["values"].pop("b"), "to which it does not"),
    (lambda d: d.pop("values"), "Expected an object with format"),
]


@pytest.mark.one_row
@pytest.mark.parametrize(("edit", "message"), EDITS)
def test_edited_json(edit, message, model):
    edited(model, edit)
    with pytest.raises(FormatError, match=message):
        ko.load(model)


def test_edited_kernels_of_sklearn(path):
    ko.save(path, f=ko.Function(ks.as_kernel(gp.RBF(2.0)), X, np.ones(6)))
    edited(path, set_in("values", "f", "kernel", "parameters", "kernel", "parameters", "length_scale", to="wide"))
    with pytest.raises(FormatError, match="parameters of RBF"):
        ko.load(path)


def nested(depth):
    kernel = {"kind": "kernel", "name": "Linear", "parameters": {}}
    for _ in range(depth):
        kernel = {"kind": "kernel", "name": "Exponential", "parameters": {"kernel": kernel}}
    return kernel


@pytest.mark.later
def test_deep_json(model):
    contents = members(model)
    edited(model, set_in("values", "theta", "kernel", to=nested(200)))
    with pytest.raises(FormatError, match="at most 100 deep"):
        ko.load(model)
    forge(model, contents | {"kernelopt.json": "[" * 100_000})
    with pytest.raises(FormatError, match="can't be read"):
        ko.load(model)
    for depth in (100, 500, 800, 950, 990):
        whole = contents["kernelopt.json"].replace(b'"sigma":1.5', b'"sigma":' + b"[" * depth + b"]" * depth)
        assert whole != contents["kernelopt.json"]
        forge(model, contents | {"kernelopt.json": whole})
        with pytest.raises(FormatError):
            ko.load(model)
    deep = GAUSSIAN
    for _ in range(101):
        deep = deep.normalized()
    with pytest.raises(KernelError, match="at most 100 deep"):
        ko.save(model, f=ko.Function(deep, X, np.ones(6)))


def npy(header, data=b""):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def header(descr="'<f8'", order="False", shape="(3,)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()


EIGHTS = bytes(24)
HEADERS = [
    (npy(header(shape="(1099511627776,)"), EIGHTS), "Expected 8796093022"),  # 8 TiB
    (npy(header(shape="(" + "9" * 18 + ", " + "9" * 18 + ")"), EIGHTS), "as its header says"),
    (npy(header(shape="(" + "9" * 30 + ",)"), EIGHTS), "Expected a shape"),
    (npy(header(shape="(0, 1000000000000000000)")), "Expected a shape"),
    (npy(header(shape="(" + "0, " * 70 + ")")), "can't be read"),
    (npy(header(shape="(-3,)"), EIGHTS), ".npy header"),
    (npy(header(shape="(3, , )"), EIGHTS), "Expected a shape"),
    (npy(header(descr="'|O'"), EIGHTS), ".npy header"),
    (npy(header(descr="[('a', '<f8')]"), EIGHTS), ".npy header"),
    (npy(header(descr="'<f16'"), bytes(48)), "all machines have"),
    (npy(header(descr="'<f3'"), EIGHTS), "can't be read"),
    (npy(header(descr="'<U0'")), ".npy header"),
    (npy(header(), EIGHTS[:-1]), "Expected 9. bytes"),
    (npy(header(), EIGHTS + b"x"), "Expected 9. bytes"),
    (npy(b"__import__('os').abort()"), ".npy header"),
    (npy(header())[:7], ".npy header"),
    (npy(header(), EIGHTS).replace(b"NUMPY\x01", b"NUMPY\x02"), ".npy header"),
    (npy(header(descr="'|b1'"), b"\x00\x01\x07"), "truth values"),
    (npy(header(descr="'<U1'"), b"\xff" * 12), "characters"),
    (b"", ".npy header"),
]


@pytest.mark.parametrize(("content", "message"), HEADERS)
def test_arrays_of_others(content, message, path):
    ko.save(path, a=np.ones(3))
    forge(path, members(path) | {"0.npy": content})
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message):
            ko.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_nan_in_functions(path):
    f = ko.Function._of_rows(GAUSSIAN, X.copy(), np.full(6, np.nan))
    ko.save(path, f=f)
    with pytest.raises(FormatError, match="coefficients to be finite"):
        ko.load(path)
    ko.save(path, f=ko.Function._of_rows(GAUSSIAN, X * np.nan, np.ones(6)))
    with pytest.raises(FormatError, match="to be finite"):
        ko.load(path)
    bad = ks.Precomputed(np.eye(3))
    object.__setattr__(bad, "Q", np.full((3, 3), np.inf))
    ko.save(path, f=ko.Function(bad, [0], [1.0]))
    with pytest.raises(FormatError, match="finite parameters"):
        ko.load(path)


MEMBERS = [
    ("../evil.npy", "Expected members"), ("/etc/passwd", "Expected members"), ("a.pkl", "Expected members"),
    ("00.npy", "Expected members"), ("99.npy", "to which it does not"), ("99.json", "to which it does not"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message"), MEMBERS)
def test_unexpected_members(name, message, model):
    forge(model, members(model) | {name: b"[]"})
    before = set(os.listdir(model.parent))
    with pytest.raises(FormatError, match=message):
        ko.load(model)
    assert set(os.listdir(model.parent)) == before


def test_one_member_twice(path):
    ko.save(path, a=np.ones(3))
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("0.npy", b"")
    with pytest.raises(FormatError, match="'0.npy' twice"):
        ko.load(path)


@pytest.mark.slow
def test_compressed_members(path):
    """80 MB in 80 kB are not unpacked."""
    ko.save(path, a=np.ones(3))
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(10_000_000))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in ({"kernelopt.json": b"{}", "0.npy": buffer.getvalue()}).items():
            file.writestr(name, content)
    assert path.stat().st_size < 100_000
    with pytest.raises(FormatError, match="compressed or encrypted"):
        ko.load(path)


def test_sizes_are_capped(path):
    ko.save(path, a=np.ones(10_000))
    with pytest.raises(FormatError, match=r"at most 1000 bytes in memory; these may take (\d+).*max_bytes=\1"):
        ko.load(path, max_bytes=1000)
    assert len(ko.load(path, max_bytes=100_000)["a"]) == 10_000
    for wrong in (0, 1.5, True, None):
        with pytest.raises(OptionError, match="max_bytes"):
            ko.load(path, max_bytes=wrong)


@pytest.mark.slow
def test_json_takes_no_more_than_it_is_counted(path):
    ko.save(path, f=ko.Function(ks.Spectrum(n=2), WORDS, np.ones(4)))
    contents = members(path)
    (name,) = (name for name in contents if name[0].isdigit() and name.endswith(".json"))
    for item in ('{"":0}', "[]", "{}", '"ab"', "1.5"):
        forge(path, contents | {name: f"[{','.join([item] * 50_000)}]"})
        size = 50_000 * (len(item) + 1)
        tracemalloc.start()
        try:
            with pytest.raises(FormatError):
                ko.load(path)
            assert tracemalloc.get_traced_memory()[1] < archive.JSON_WEIGHT * size
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_a_directory_without_end(path):
    """A zip of a million empty members is not listed."""
    directory = b"".join(
        b"PK\x01\x02" + bytes(24) + len(name).to_bytes(2, "little") + bytes(16) + name
        for name in (b"%d.npy" % i for i in range(150_000))
    )
    end = b"PK\x05\x06" + bytes(8) + len(directory).to_bytes(4, "little") + bytes(4) + b"\x00\x00"
    path.write_bytes(directory + end)
    with pytest.raises(FormatError, match="directory of at most"):
        ko.load(path)


def test_truncated_files(model):
    whole = model.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        model.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="a zip"):
            ko.load(model)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ko.load(tmp_path / "nothing")


def test_two_names_in_json(path):
    ko.save(path, a=np.ones(3))
    contents = members(path)
    twice = contents["kernelopt.json"].replace(b'{"format"', b'{"schema":1,"format"')
    forge(path, contents | {"kernelopt.json": twice})
    with pytest.raises(FormatError, match="got one twice"):
        ko.load(path)


def loaded(path, whole):
    path.write_bytes(whole)
    try:
        values = ko.load(path, kernels=NAMES)
    except FormatError:
        return False
    return isinstance(values, dict)


@pytest.mark.slow
def test_mutated_bytes(model, monkeypatch):
    """Whatever is done to the bytes of a file, it loads or a FormatError is raised, in little memory, no pickle."""
    import pickle  # noqa: PLC0415

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    whole, rng = bytearray(model.read_bytes()), np.random.default_rng(0)
    tracemalloc.start()
    try:
        for _ in range(400):
            some = bytearray(whole)
            for at in rng.integers(len(some), size=rng.integers(1, 4)):
                some[at] = rng.choice([0, 0xFF, rng.integers(256), some[at] ^ (1 << rng.integers(8))])
            loaded(model, some)
            a, b = sorted(rng.integers(len(whole), size=2))
            loaded(model, whole[:a] + whole[b:])
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_mutated_contents(model):
    """The same behind correct checksums, where the mutations reach JSON and headers."""
    contents, rng, survivors = members(model), np.random.default_rng(1), 0
    alphabet = b'0123456789-.eE"[]{},: abNI\\'
    tracemalloc.start()
    try:
        for i in range(600):
            name = "kernelopt.json" if i % 2 else str(rng.choice(list(contents)))
            some = bytearray(contents[name])
            for at in rng.integers(len(some) if name.endswith("json") else 100, size=rng.integers(1, 3)):
                some[at % len(some)] = rng.choice(list(alphabet)) if name.endswith("json") else rng.integers(256)
            buffer = io.BytesIO()
            forge(buffer, contents | {name: bytes(some)})
            survivors += loaded(model, buffer.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert 0 < survivors < 600


@pytest.mark.slow
def test_forged_files(path):
    """A share of those that `make fuzz` makes."""
    assert list(faults(range(400), path)) == []


def test_derivatives_by_columns_without_end(path):
    """A function on derivatives without points, of 10⁷ columns or more: they cost the file nothing."""
    f = ko.Function._of_rows(WithDerivatives(GAUSSIAN), np.array([[1.0, 2.0, 0.0, -1.0]]), np.ones(1))
    ko.save(path, f=f)
    contents = members(path)
    for columns in (10**6, 10**7, 10**15):
        empty = {"0.npy": npy(header(shape=f"(0, {columns})")), "1.npy": npy(header(shape="(0,)"))}
        forge(path, contents | empty)
        tracemalloc.start()
        try:
            with pytest.raises(FormatError, match="array without rows") if columns > 10**6 else nullcontext():
                ko.load(path)
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()


# ---------------------------------------------------------------- places that are no files, and files that stay


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_pipes(path):
    os.mkfifo(path)
    with pytest.raises(FormatError, match="a device, a pipe or a socket"):
        ko.load(path)
    link = path.with_name("link")
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(OSError, match="which is not replaced"):
            ko.save(target, a=np.ones(3))
    assert path.is_fifo() and sorted(os.listdir(path.parent)) == ["link", path.name]


def test_directories_and_devices(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory"):
        ko.save(tmp_path, a=np.ones(3))
    with pytest.raises(IsADirectoryError):
        ko.load(tmp_path)
    if os.path.exists("/dev/zero"):
        with pytest.raises(FormatError, match="a device"):
            ko.load("/dev/zero")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_modes_links_and_long_names(path):
    ko.save(path, a=np.ones(3))
    path.chmod(0o604)
    link = path.with_name("link")
    link.symlink_to(path)
    ko.save(link, a=np.zeros(3))
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and link.is_symlink() and not ko.load(path)["a"].any()
    long = path.with_name("x" * 250 + ".ko")
    ko.save(long, a=np.ones(3))
    assert ko.load(long)["a"].sum() == 3


KILLED = """
import os, signal, sys
import numpy as np
from kernelopt.persistence import archive

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

archive.os.fsync = killed
archive.write(sys.argv[1], {}, [np.ones(1000)])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_killed_while_saving(path, monkeypatch):
    """The old file stays; what was left is deleted by a later call, but not what another process still writes."""
    ko.save(path, a=np.ones(3))
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(path.parent)) == 3 and ko.load(path)["a"].sum() == 3
    left = next(p for p in path.parent.iterdir() if p != path)
    monkeypatch.setattr(archive, "STALE", -1.0)
    with open(left, "rb") as file:
        archive._lock(file.fileno())
        ko.save(path, a=np.zeros(3))
        assert {*os.listdir(path.parent)} == {path.name, left.name}
    ko.save(path, a=np.zeros(3))
    assert os.listdir(path.parent) == [path.name] and not ko.load(path)["a"].any()


def test_the_first_schema(path):
    """A file as the first version wrote it, by hand: later ones read it."""
    f = {"kind": "kernel", "name": "Gaussian", "parameters": {"sigma": 2.0}}
    document = {
        "format": "kernelopt", "schema": 1, "kernelopt": "0.1.0",
        "values": {
            "f": {
                "kind": "function", "kernel": f, "centers": {"kind": "array", "member": 0},
                "coefficients": {"kind": "array", "member": 1}, "fit": None,
            },
            "labels": {"kind": "array", "member": 2},
        },
    }  # fmt: skip
    contents = {"kernelopt.json": json.dumps(document)}
    for i, array in enumerate([np.array([[0.0], [2.0]]), np.array([1.0, 2.0]), np.array(["no", "yes"])]):
        buffer = io.BytesIO()
        np.save(buffer, array)
        contents[f"{i}.npy"] = buffer.getvalue()
    forge(path, contents)
    found = ko.load(path)
    assert np.allclose(found["f"]([[0.0]]), 1 + 2 * np.exp(-0.5)) and list(found["labels"]) == ["no", "yes"]


@pytest.mark.parametrize(
    ("value", "error"), [(np.ma.masked_array([1.0, 2.0], [0, 1]), DataError), ([[1, 2], [3]], DataTypeError)]
)
def test_arrays_that_are_none(path, value, error):
    """Masked entries have no value, and rows of several lengths no shape; nothing is written."""
    with pytest.raises(error):
        ko.save(path, a=value)
    assert not path.exists()


def test_a_folder_that_is_not_there(tmp_path):
    """The message names the file that was asked for."""
    with pytest.raises(FileNotFoundError, match="Expected a file in a folder that exists; got .*answer"):
        ko.save(tmp_path / "none" / "answer", v=1.0)
