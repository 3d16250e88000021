"""Data frames and series where arrays are expected."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError
from kernelopt.estimators import KernelPCA, KernelRegressor

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(20, 2)), RNG.normal(size=(7, 2))
Y = np.sin(X[:, 0])
SIGNS = np.where(Y > 0, 1, -1)
LOSSES = {
    "squared_error": Y, "absolute_error": Y, "huber": Y, "epsilon_insensitive": Y, "hinge": SIGNS, "log_loss": SIGNS,
    "squared_hinge": SIGNS, "poisson": np.abs(np.round(3 * Y)),
}  # fmt: skip


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    """Its frame and series, the former with an index that does not count from 0 where there is one."""
    if request.param == "pandas":
        return (
            request.param,
            lambda A: pd.DataFrame(A, columns=["a", "b"], index=range(100, 100 + len(A))),
            lambda v: pd.Series(v, index=range(100, 100 + len(v))),
        )
    pl = pytest.importorskip("polars")
    return request.param, lambda A: pl.DataFrame(A, schema=["a", "b"]), pl.Series


@pytest.fixture
def frame(library):
    return library[1]


@pytest.fixture
def series(library):
    return library[2]


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, frame, series):
    loss, y = getattr(ko.losses, name), LOSSES[name]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    theta.value = ko.Function(theta.kernel, frame(X[:3]), series(Y[:3]))
    assert np.array_equal(loss(series(y), theta(frame(X))).value, loss(y, theta(X)).value)


@pytest.mark.later
def test_a_fit(frame, series):
    values = []
    for F, S in ((frame, series), (np.array, np.array)):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        f = theta(F(X)) + b
        loss = cp.sum(ko.losses.absolute_error(S(Y), f)) + cp.sum(cp.multiply(S(np.abs(Y)), cp.abs(f)))
        ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), [f <= S(Y + 1)]).solve()
        predictor = ko.Predictor(f, F(X))
        values.append([theta.value(F(NEW)), theta(F(NEW)).value, theta.value.optimality_bound(F(NEW)), f.value])
        assert np.array_equal(predictor(F(NEW)), theta(NEW).value + b.value)
    for of_frames, of_arrays in zip(*values, strict=True):
        assert type(of_frames) is np.ndarray and np.array_equal(of_frames, of_arrays)


def test_columns_of_other_numbers(frame):
    f = ko.Function(ko.kernels.Linear(), X, Y)
    for A in (X > 0, np.round(X).astype(int), X.astype(np.float32)):
        assert np.array_equal(f(frame(A)), f(A))


def test_frames_that_need_pyarrow_for_pandas():
    """polars converts to pandas by pyarrow, which need not be installed, and to numpy by itself."""

    class Frame:
        columns = ("a", "b")
        to_numpy = __array__ = lambda self, dtype=None, copy=None: X
        __arrow_c_stream__ = None

        def to_pandas(self):
            raise ModuleNotFoundError("No module named 'pyarrow'")

    f = ko.Function(ko.kernels.Linear(), X, Y)
    assert np.array_equal(f(Frame()), f(X)) and len(ko.FeatureMatrix(Frame(), f.kernel)) == len(X)


def test_strings(series):
    words = ["ab", "banana", "ba"]
    assert np.array_equal(ko.kernels.Spectrum(n=2)(series(words)), ko.kernels.Spectrum(n=2)(words))


def test_what_is_no_number(frame, series, library):
    f = ko.Function(ko.kernels.Gaussian(sigma=1.0), X, Y)
    with pytest.raises(DataTypeError, match=r"got dtype object with 'x' \(str\). Encode strings"):
        f(frame(np.array([[1.0, "x"], [2.0, "y"]], dtype=object)))
    with pytest.raises(DataError, match="1 NaN or infinite value, first at"):
        f(frame(np.array([[1.0, np.nan]])))
    with pytest.raises(DataError, match=r"For a single column write X.reshape"):
        f(series(Y))
    with pytest.raises(DataError, match=r"got y of shape \(20, 2\)"):
        ko.losses.squared_error(frame(X), ko.Theta(f.kernel)(X))
    if library[0] == "pandas":
        with pytest.raises(DataTypeError, match=r"<NA> \(NAType\).*fill missing values"):
            f(pd.DataFrame({"a": [1, None], "b": [1, 2]}).convert_dtypes())


def test_series_beside_expressions(library):
    """pandas leaves `y - f` to cvxpy; polars does not, and says so itself: a loss takes it, or y.to_numpy() does."""
    name, _, series = library
    theta = ko.Theta(ko.kernels.Linear())
    theta.value = ko.Function(theta.kernel, X, Y)
    f = theta(X)
    assert np.array_equal((f - series(Y)).value, f.value - Y)
    if name == "polars":
        with pytest.raises(TypeError, match="cannot convert"):
            series(Y) - f
    assert np.array_equal((series(Y).to_numpy() - f).value, Y - f.value)


@pytest.mark.parametrize("make", ["FeatureMap", "KernelPCA"])
def test_estimators_hand_out_frames(library, make):
    name, frame, _ = library
    model = getattr(ko.estimators, make)(kernel=ko.kernels.Gaussian(sigma=1.0))
    handed = model.set_output(transform=name).fit(frame(X)).transform(frame(NEW))
    assert type(handed) is type(frame(X)) and list(handed.columns) == list(model.get_feature_names_out())
    assert np.array_equal(handed.to_numpy(), model.set_output(transform="default").transform(frame(NEW)))
    if name == "pandas":
        assert list(model.set_output(transform=name).transform(frame(NEW)).index) == list(range(100, 107))


@pytest.mark.later
def test_estimators_predict_from_frames(frame, series):
    model = ko.estimators.KernelRegressor("absolute_error", kernel=ko.kernels.Gaussian(sigma=1.0))
    predicted = model.fit(frame(X), series(Y)).predict(frame(NEW))
    assert list(model.feature_names_in_) == ["a", "b"]
    assert np.array_equal(predicted, model.fit(X, Y).predict(NEW))


def test_files_hold_frames_as_arrays(frame, series, tmp_path):
    ko.save(tmp_path / "a", X=frame(X), y=series(Y), words=series(["a", "bc"]).to_numpy().astype(str))
    found = ko.load(tmp_path / "a")
    assert np.array_equal(found["X"], X) and np.array_equal(found["y"], Y) and list(found["words"]) == ["a", "bc"]


def test_columns_in_another_order_are_refused(frame):
    """By θ, by the fitted function, and by what is made of either."""
    here, there = frame(X), frame(NEW)[["b", "a"]]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(here) + 1.0
    ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ko.sum_squares(theta))).solve()
    words = r"columns in the order of the data before, \['a', 'b'\]; got \['b', 'a'\]"
    fitted = theta.value
    calls = [theta, fitted, fitted.expanded(), pickle.loads(pickle.dumps(fitted)), copy.deepcopy(theta)]
    calls += [ko.Predictor(f, here), ko.Function(theta.kernel, here, Y)]
    calls += [
        lambda A: ko.FeatureMatrix(A, theta.kernel) @ theta,
        lambda A: ko.FeatureMatrix(A, theta.kernel)[:2] @ theta,
    ]
    for call in calls:
        with pytest.raises(DataError, match=words):
            call(there)
    assert np.array_equal(theta(there[["a", "b"]]).value, fitted(NEW))
    assert np.array_equal(fitted(there.to_numpy()), fitted(NEW[:, ::-1]))  # an array says nothing of columns


def test_columns_of_other_names_are_taken():
    theta = ko.Theta(ko.kernels.Linear())
    theta.value = ko.Function(theta.kernel, pd.DataFrame(X, columns=["b", "c"]), Y)
    for columns in (["a", "b"], [1, 0], ["b", "b"]):
        assert np.array_equal(theta(pd.DataFrame(NEW, columns=columns)).value, theta.value(NEW))


def test_a_lazy_frame_has_no_data_yet():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(X, schema=["a", "b"])
    lazy, kernel = frame.lazy(), ko.kernels.Gaussian(sigma=1.0)
    theta = ko.Theta(kernel)
    theta.value = ko.Function(kernel, frame, Y)
    doors = [
        lambda: theta(lazy),
        lambda: theta.value(lazy),
        lambda: kernel(lazy, X),
        lambda: theta(iter([frame, lazy])),
        lambda: theta([lazy]),
        lambda: ko.losses.squared_error(lazy.select("a"), theta(X)),
        lambda: ko.kernels.Precomputed(lazy),
        lambda: ko.kernels.Spectrum(1)(lazy, ["a"]),
        lambda: ko.FeatureMatrix(lazy, kernel),
        lambda: KernelRegressor().fit(lazy, Y),
        lambda: KernelRegressor().fit(X, lazy.select("a")),
        lambda: KernelRegressor().fit(X, Y).predict(lazy),
        lambda: KernelPCA().fit(lazy),
    ]
    for door in doors:
        with pytest.raises(DataTypeError, match=r"got a LazyFrame, which is not computed yet\. Write \.collect\(\)"):
            door()
