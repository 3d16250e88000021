"""Kernels of data frames by the names of columns, of labels, and of vectors with missing values."""

import pickle

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from mpmath import mpf
from sklearn.metrics.pairwise import nan_euclidean_distances

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError, NotPSDError
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.kernels.domains import distinct
from kernelopt.kernels.records import Record
from kernelopt.testing import check_kernel

pd = pytest.importorskip("pandas")
ks = ko.kernels
RNG = np.random.default_rng(0)
N = 24
COLUMNS = {
    "a": RNG.normal(size=N).tolist(),
    "b": RNG.integers(0, 4, N).tolist(),
    "s": ["".join(RNG.choice(list("ab"), 5)) for _ in range(N)],
    "g": RNG.choice(["x", "y", "z"], N).tolist(),
    "t": RNG.choice([True, False], N).tolist(),
}
NUMBERS = np.array([COLUMNS["a"], COLUMNS["b"]], dtype=float).T
ONE_HOT = np.array([[g == level for level in "xyz"] for g in COLUMNS["g"]], dtype=float)
COVARIANCE = np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 1.5]])
GAPS = RNG.normal(size=(12, 3))
GAPS[[0, 3, 3, 5, 7, 8], [1, 0, 2, 0, 0, 1]] = np.nan
WITH_GAPS = {
    "age": [30.0, None, 50.0, 41.0, float("nan"), 20.0],
    "sex": ["f", "m", None, "m", None, "f"],
    "n": [1, 2, 3, 4, 5, 6],
}


def of_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def of_arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


FRAMES = {
    "pandas": pd.DataFrame,
    "pandas in another order": lambda columns: pd.DataFrame(columns)[list(columns)[::-1]].assign(more=0.0),
    "pandas with an index": lambda columns: pd.DataFrame(columns, index=np.arange(N)[::-1]),
    "pandas of nullable types": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "categories": lambda columns: pd.DataFrame(columns).astype({"g": "category", "b": "int8", "a": "object"}),
    "polars": of_polars,
    "arrow": of_arrow,
    "dicts": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    "blocks": lambda columns: iter([pd.DataFrame(columns)[:10], pd.DataFrame(columns)[10:]]),
}
GAUSSIAN, SPECTRUM = ks.Gaussian(sigma=1.0), ks.Spectrum(n=2)
NAMED = {
    "two columns": (GAUSSIAN.on(["a", "b"]), lambda: GAUSSIAN(NUMBERS)),
    "integers": (ks.Linear().on("b"), lambda: np.outer(COLUMNS["b"], COLUMNS["b"])),
    "booleans": (ks.Linear().on("t"), lambda: np.outer(COLUMNS["t"], COLUMNS["t"]).astype(float)),
    "strings": (SPECTRUM.on("s"), lambda: SPECTRUM(COLUMNS["s"])),
    "labels": (ks.Categorical().on("g"), lambda: ONE_HOT @ ONE_HOT.T),
    "a sum": (GAUSSIAN.on(["a", "b"]) + 2.0 * SPECTRUM.on("s"), lambda: GAUSSIAN(NUMBERS) + 2 * SPECTRUM(COLUMNS["s"])),
    "tasks": (
        ks.Categorical(levels=["x", "y", "z"], covariance=COVARIANCE).on("g") * GAUSSIAN.on("a"),
        lambda: (ONE_HOT @ COVARIANCE @ ONE_HOT.T) * GAUSSIAN(NUMBERS[:, :1]),
    ),
    "a function": (
        ks.FromFunction(lambda u, v: float(len(set(u) & set(v))), psd=True).on("s"),
        lambda: [[len(set(u) & set(v)) for v in COLUMNS["s"]] for u in COLUMNS["s"]],
    ),
    "a map": (ks.Linear().compose(np.abs).on(["a", "b"]), lambda: np.abs(NUMBERS) @ np.abs(NUMBERS).T),
    "row numbers": (ks.Precomputed(np.diag([1.0, 2, 3, 4])).on("b"), lambda: np.diag([1.0, 2, 3, 4])[np.ix_(B, B)]),
    "scales": (GAUSSIAN.ard([1.0, 2.0]).on(["b", "a"]), lambda: GAUSSIAN(NUMBERS[:, ::-1] / [1, 2])),
    "whole rows": (
        ks.Constant(0.5) + ks.Delta() + ks.Linear().on("a"),
        lambda: 0.5 + np.eye(N) + np.outer(COLUMNS["a"], COLUMNS["a"]),
    ),
}  # fmt: skip
B = COLUMNS["b"]


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize("name", NAMED)
def test_columns_by_name(name, form):
    kernel, expected = NAMED[name]
    X = FRAMES[form](COLUMNS)
    assert np.allclose(kernel(X), expected(), rtol=1e-14, atol=1e-15)
    assert np.allclose(kernel.diag(FRAMES[form](COLUMNS)), np.diag(expected()), rtol=1e-14)


@pytest.mark.parametrize("name", NAMED)
def test_kernels_by_name_are_kernels(name):
    kernel, _ = NAMED[name]
    if name != "row numbers":  # a matrix has features that are not known
        check_kernel(kernel, pd.DataFrame(COLUMNS))
    assert kernel.is_psd is (None if name == "row numbers" else True)
    if name not in ("a function", "a map", "row numbers"):
        again = eval(repr(kernel), vars(ks))
        assert again == kernel and hash(again) == hash(kernel) and pickle.loads(pickle.dumps(kernel)) == kernel
    assert kernel.with_params(**kernel.get_params()) == kernel


def test_names_and_numbers_are_different_kernels():
    assert GAUSSIAN.on("a") == GAUSSIAN.on(["a"]) != GAUSSIAN.on(["b"])
    assert repr(GAUSSIAN.on(["a"])) == "(Gaussian(sigma=1.0)).on('a')" and GAUSSIAN.on("a") != GAUSSIAN.on([0])
    assert "(Gaussian(sigma=1.0)).on('a')" in str(GAUSSIAN.on("a").explain())


def test_parts_read_their_columns_alone():
    """Rows that differ in other columns are one point."""
    frame = pd.DataFrame(COLUMNS)
    rows = ks.Categorical().on("g").rows(frame)
    assert len(distinct(rows).first) == 3 and list(rows[0]) == ["g"]
    assert np.array_equal((GAUSSIAN.on("a")).rows((GAUSSIAN.on("a") + SPECTRUM.on("s")).rows(frame)),
                          GAUSSIAN.on("a").rows(frame))  # fmt: skip


def test_rows_of_other_types_are_other_points():
    one, real, true, none = (Record({"a": v}) for v in (1, 1.0, True, None))
    assert one != real != true and one == Record({"a": 1}) and hash(one) == hash(Record({"a": 1}))
    assert none == Record({"a": None}) and repr(one) == "{'a': 1}"
    assert (
        len(distinct(ks.Categorical(missing="level").on("a").rows([{"a": None}, {"a": np.nan}, {"a": pd.NA}])).first)
        == 1
    )


def test_missing_values_in_objects_are_one_value():
    """Python's NaN is equal to itself alone, so that points would depend on which object stands for it."""
    points = [float("nan"), float("nan"), (1, float("nan")), (1, float("nan")), (1, None), None, 1.0]
    expected = np.eye(7)
    for same in ([0, 1], [2, 3]):
        expected[np.ix_(same, same)] = 1.0
    assert np.array_equal(ks.Delta()(points), expected)
    half = ks.FromFunction(lambda x, y: 0.5, psd=True).cached(points[:4])
    assert half([(1, float("nan"))], points[:1]) == 0.5 and half.rounding(points[2:4]) == 0.0
    gaps = np.array([[np.nan, 1.0], [np.nan, 1.0], [0.0, 1.0]])
    assert distinct(gaps).inverse.tolist() == [0, 0, 1]


def test_gradients_of_parameters():
    sigma = cp.Parameter(pos=True, value=1.3)
    kernel, frame = ks.Gaussian(sigma=sigma).on(["a", "b"]) * ks.Categorical().on("g"), pd.DataFrame(COLUMNS)
    rows = kernel.rows(frame)
    G = RNG.normal(size=(N, N))
    found = kernel_gradient(kernel, rows, rows, G, np.eye(N))[sigma]
    squares = ((NUMBERS[:, None] - NUMBERS) ** 2).sum(axis=2)
    assert np.allclose(found, np.sum(G * np.exp(-squares / 2 / 1.3**2) * squares / 1.3**3 * (ONE_HOT @ ONE_HOT.T)))


FRAME = pd.DataFrame(COLUMNS)
REFUSED = {
    "an array": (
        GAUSSIAN.on(["a", "b"]), NUMBERS, DataTypeError,
        r'DataFrame with columns "a", "b"; '
        r'got an array of shape \(24, 2\)\. Pass a frame of pandas or polars, or write column numbers',
    ),
    "a list": (GAUSSIAN.on("a"), [[1.0]], DataTypeError, 'DataFrame with column "a"; got a list'),
    "a series": (GAUSSIAN.on("a"), FRAME["a"], DataTypeError, 'DataFrame with column "a"; got a Series'),
    "another frame": (
        GAUSSIAN.on(["a", "q"]), FRAME, DataError,
        'DataFrame with column "q"; got one with columns "a", "b"',
    ),
    "twice": (GAUSSIAN.on("a"), pd.concat([FRAME, FRAME], axis=1), DataError, 'several of column "a"'),
    "no rows": (GAUSSIAN.on("a"), FRAME[:0], DataError, "at least one row"),
    "strings": (
        GAUSSIAN.on(["a", "s"]), FRAME, DataTypeError,
        r"real numbers; got '.*' \(str\) in column 's'.*Categorical\(\).on\('s'\)",
    ),
    "no strings": (SPECTRUM.on("a"), FRAME, DataTypeError, "Column 'a': .* expects a list of strings; got float"),
    "two of strings": (SPECTRUM.on(["s", "g"]), FRAME, DataTypeError, r"strings in one column; got \['s', 'g'\]"),
    "missing": (
        GAUSSIAN.on(["a", "b"]), FRAME.assign(b=[None, *B[1:]]), DataError,
        "1 NaN or missing, in column 'b', first in row 0",
    ),
    "missing of two": (
        GAUSSIAN.on(["a", "b"]), FRAME.assign(b=np.nan, a=np.nan), DataError,
        "48 NaN or missing, in column 'a', 'b'",
    ),
    "missing string": (
        SPECTRUM.on("s"), FRAME.assign(s=[*COLUMNS["s"][:-1], None]), DataError,
        "1 NaN or missing, in column 's', first in row 23",
    ),
    "missing label": (
        ks.Categorical().on("g"), FRAME.assign(g=None), DataError,
        r"Column 'g': .*24 missing, first in row 0. Write Categorical\(missing",
    ),
    "infinite": (GAUSSIAN.on("a"), FRAME.assign(a=np.inf), DataError, "Column 'a': .* finite; got 24 NaN or infinite"),
    "dates": (
        GAUSSIAN.on("a"), FRAME.assign(a=pd.Timestamp("2020-01-01")), DataTypeError,
        r"Timestamp\) in column 'a'",
    ),
    "no date": (ks.Categorical().on("a"), FRAME.assign(a=pd.NaT), DataTypeError, "Column 'a': .*got NaT"),
    "unknown": (
        ks.Categorical(levels=["x", "y"]).on("g"), FRAME, DataError,
        "Column 'g': .*expects the levels 'x', 'y'; got 'z'. Add it",
    ),
    "lists": (
        ks.Categorical().on("g"), FRAME.assign(g=[[1]] * N), DataTypeError,
        "labels that can be hashed.*got list at 0",
    ),
    "labels in two columns": (ks.Categorical().on(["g", "s"]), FRAME, DataTypeError, "labels in one column"),
    "large integers": (GAUSSIAN.on("a"), [{"a": 10**400}], DataError, "more digits"),
    "histograms": (ks.Intersection().on("a"), FRAME, DataError, "Column 'a': .*entries ≥ 0"),
    "a lazy frame": (GAUSSIAN.on("a"), None, DataTypeError, r"Write \.collect\(\)"),
    "no blocks": (GAUSSIAN.on("a"), iter([]), DataError, "at least one block"),
    "dicts that differ": (GAUSSIAN.on("a"), [{"a": 1.0}, {}], DataError, "value of 'a' in each row"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    kernel, X, error, words = REFUSED[name]
    if name == "a lazy frame":
        X = of_polars({"a": [1.0]}).lazy()
    with pytest.raises(error, match=words):
        kernel(X)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GAUSSIAN.on(["a", 1]), "different names"),
        (lambda: GAUSSIAN.on(["a", "a"]), "different names"),
        (lambda: GAUSSIAN.on("a").on("b"), r"Write \.on\(names\) once"),
        (lambda: GAUSSIAN.on("a") + GAUSSIAN, "same kind of data"),
        (lambda: GAUSSIAN.on("a") + GAUSSIAN.on([0]), "same kind of data"),
        (lambda: ks.Categorical() * GAUSSIAN, "same kind of data"),
        (lambda: ks.Categorical(missing="drop"), 'missing to be "refuse" or "level"'),
        (lambda: ks.Categorical(unknown="level"), "levels beside unknown"),
        (lambda: ks.Categorical(levels=[]), "levels to be a sequence"),
        (lambda: ks.Categorical(levels=["a", "a"]), "different labels"),
        (lambda: ks.Categorical(levels=[[1], [2]]), "different labels"),
        (lambda: ks.Categorical(covariance=np.eye(2)), "levels beside a covariance"),
        (lambda: ks.Categorical(levels=[1, 2], covariance=np.eye(3)), r"shape \(2, 2\); got shape \(3, 3\)"),
        (lambda: ks.Categorical(levels=[1, 2], covariance=[[1.0, np.nan], [np.nan, 1]]), "with NaN or infinity"),
        (lambda: ks.Categorical(levels=[1, 2], covariance=[[1.0, 0.5], [0.4, 1]]), "symmetric"),
        (lambda: ks.Categorical(levels=[1, 2], covariance=[[1.0, 2.0], [2.0, 1]]), "eigenvalues ≥ -1e-10 .* got -1"),
        (lambda: GAUSSIAN.with_missing("drop"), '"level" or "ignore"'),
        (lambda: ks.Linear().with_missing("ignore"), "Expected a Gaussian"),
        (lambda: SPECTRUM.with_missing("level"), "kernel of vectors"),
        (lambda: GAUSSIAN.on("a").with_missing("level"), "kernel of vectors"),
        (lambda: ks.Gower({}), "range > 0, or None"),
        (lambda: ks.Gower({"a": 0.0}), "range > 0, or None"),
        (lambda: ks.Gower({"a": 1.0}, weights=[1.0, 2.0]), "1 numbers > 0"),
        (lambda: ks.Gower({"a": 1.0}, missing="drop"), "refuse, level, ignore"),
    ],
)
def test_what_is_no_kernel(make, words):
    with pytest.raises(KernelError, match=words):
        make()


def test_a_column_of_numbers_in_one_frame_and_not_in_the_other():
    with pytest.raises(KernelError, match="numbers alone in all frames"):
        ks.Delta().on("g")([{"g": 1}], [{"g": "a"}])


# ---------------------------------------------------------------- labels


def test_labels_of_every_type():
    labels = ["a", 1, True, None, (1, 2), np.str_("a"), np.float64(1.0), np.nan, pd.NA, pd.Timestamp("2020-01-01")]
    expected = np.eye(10)
    for same in ([0, 5], [1, 2, 6], [3, 7, 8]):  # as in Python, and missing values
        expected[np.ix_(same, same)] = 1.0
    kernel = ks.Categorical(missing="level")
    assert np.array_equal(kernel(labels), expected) and np.array_equal(kernel(labels, labels[:4]), expected[:, :4])
    check_kernel(kernel, labels)


def test_labels_in_series_and_tables():
    words = list("xyx")
    forms = [words, np.array(words), pd.Series(words), pd.Series(words, dtype="category"), pd.DataFrame({"g": words})]
    forms += [np.array(words, dtype=object)[:, None], of_polars({"g": words}), of_polars({"g": words})["g"]]
    for form in forms:
        assert np.array_equal(ks.Categorical()(form), [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    with pytest.raises(DataTypeError, match=r"got 2 columns. Write \.on\(name\)"):
        ks.Categorical()(pd.DataFrame({"g": words, "h": words}))


def test_one_hot_features():
    levels = ["z", "x", "y"]
    F = np.array([[g == level for level in levels] for g in COLUMNS["g"]], dtype=float)
    kernel = ks.Categorical(levels=levels)
    assert np.array_equal(kernel.features(COLUMNS["g"]), F) and np.array_equal(kernel(COLUMNS["g"]), F @ F.T)
    assert ko.FeatureMatrix(COLUMNS["g"], kernel).shape == (N, 3)
    covariance = ks.Categorical(levels=levels, covariance=COVARIANCE)
    assert np.array_equal(covariance(COLUMNS["g"]), F @ COVARIANCE @ F.T)
    for one in (kernel, covariance):
        check_kernel(one, COLUMNS["g"])
        assert one.rounding(COLUMNS["g"]) == 0.0
    with pytest.raises(KernelError, match="finite feature map"):
        ks.Categorical().features(["a"])


def test_levels_of_their_own():
    kernel = ks.Categorical(levels=["a", "b"], covariance=[[1.0, 0.5], [0.5, 3.0]], missing="level", unknown="level")
    expected = [[1, 0.5, 0, 0, 0], [0.5, 3, 0, 0, 0], [0, 0, 2, 0, 0], [0, 0, 0, 2, 2], [0, 0, 0, 2, 2]]
    labels = ["a", "b", None, "c", "c"]
    assert np.array_equal(kernel(labels), expected) and np.array_equal(kernel.diag(labels), np.diag(expected))
    check_kernel(kernel, [*labels, "d"])
    stated = ks.Categorical(levels=["a", None], covariance=[[1.0, 0.5], [0.5, 3.0]])
    assert np.array_equal(stated(["a", np.nan]), [[1, 0.5], [0.5, 3]])
    assert eval(repr(kernel), vars(ks)) == kernel and eval(repr(stated), vars(ks)) == stated
    assert kernel.with_params(missing="refuse") != kernel


def test_a_covariance_of_low_rank_is_rounded():
    """κ is exact for the positive semidefinite part of S, from which S differs by its rounding."""
    W = RNG.normal(size=(6, 2))
    S = W @ W.T
    S[0, 1] = S[1, 0] = S[0, 1] - 1e-11
    kernel = ks.Categorical(levels=range(6), covariance=S)
    values, vectors = np.linalg.eigh(S)
    assert values[0] < -1e-13
    projected = (vectors * np.maximum(values, 0)) @ vectors.T
    lengths = np.sqrt(np.diag(S))
    r = kernel.rounding(np.arange(6))
    assert np.abs((projected - S) / np.outer(lengths, lengths)).max() <= r < 1e-9


def test_labels_are_numbers_of_an_array():
    X = np.column_stack([NUMBERS, B])
    kernel = ks.Categorical().on([2]) * GAUSSIAN.on([0, 1])
    assert np.array_equal(kernel(X), np.equal.outer(B, B) * GAUSSIAN(NUMBERS))
    assert np.array_equal(ks.Categorical()(X[:, 2:]), np.equal.outer(B, B))
    check_kernel(kernel, X)
    X[0, 2] = np.nan
    with pytest.raises(DataError, match="labels without missing values; got 1 missing"):
        kernel(X)
    level = ks.Categorical(missing="level").on([2]) * GAUSSIAN.on([0, 1])
    assert np.array_equal(level(X)[0, 1:], np.zeros(N - 1)) and level(X)[0, 0] == 1
    X[1, 0] = np.nan
    with pytest.raises(DataError, match=r"Gaussian\(sigma=1.0\) expects .*in column 0, first in row 1"):
        level(X)
    with pytest.raises(KernelError, match="in one column; got 2"):
        ks.Categorical().on([0, 1])(NUMBERS)


# ---------------------------------------------------------------- missing values


def test_missing_as_a_level():
    """Products over columns of κⱼ with κⱼ(missing, missing) = 1 and κⱼ(x, missing) = 0."""
    expected = np.ones((len(GAPS), len(GAPS)))
    for x in GAPS.T:
        missing = np.isnan(x)
        one = np.exp(-((x[:, None] - x) ** 2) / 2)
        expected *= np.where(missing[:, None] | missing, missing[:, None] & missing, one)
    kernel = GAUSSIAN.with_missing("level")
    assert np.allclose(kernel(GAPS), expected, rtol=1e-14) and kernel.is_psd
    assert np.allclose(kernel(GAPS, GAPS[:5]), expected[:, :5], rtol=1e-14)
    assert np.allclose(kernel.on(["u", "v", "w"])(pd.DataFrame(GAPS, columns=["u", "v", "w"])), expected, rtol=1e-14)
    assert np.array_equal(kernel(np.nan_to_num(GAPS)), GAUSSIAN(np.nan_to_num(GAPS)))


def test_missing_ignored():
    kernel = GAUSSIAN.with_missing("ignore")
    expected = np.nan_to_num(np.exp(-(nan_euclidean_distances(GAPS) ** 2) / 2))  # NaN without a common column
    assert np.allclose(kernel(GAPS), expected, rtol=1e-13) and kernel.is_psd is None
    scaled = kernel.ard([1.0, 2.0, 0.5])
    assert np.allclose(
        scaled(GAPS), np.nan_to_num(np.exp(-(nan_euclidean_distances(GAPS / [1, 2, 0.5]) ** 2) / 2)), rtol=1e-13
    )
    assert kernel([[1.0, np.nan]], [[np.nan, 1.0]]) == 0.0
    with pytest.raises(DataError, match="got none in 1 rows, first in row 1"):
        kernel([[1.0], [np.nan]])


def test_ignored_values_need_not_be_positive_semidefinite():
    """x and z are far apart; y has no value where they differ, and is near both."""
    kernel = GAUSSIAN.with_missing("ignore")
    points = np.array([[0.0, 0.0], [0.0, 9.0], [0.0, np.nan]])
    assert np.linalg.eigvalsh(kernel(points))[0] < -0.4
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - [1.0, 2.0, 3.0]) + ko.sum_squares(theta)))
    with pytest.raises(NotPSDError):
        problem.solve()


def test_no_constant_similarity_to_missing_is_positive_semidefinite():
    """As the docstring of MissingLevel says: constants are not in the space of a Gaussian."""
    for m in (0.5, 0.2):
        n = int(2 / m**2)
        K = np.full((n + 1, n + 1), m)
        K[:n, :n], K[n, n] = GAUSSIAN(20.0 * np.arange(n)[:, None]), 1.0
        assert np.linalg.eigvalsh(K)[0] < -0.1


GAPPY_KERNELS = [
    GAUSSIAN.with_missing("level"), GAUSSIAN.with_missing("ignore"), ks.Linear().with_missing("level"),
    GAUSSIAN.with_missing("ignore").ard([1.0, 2.0, 0.5]), GAUSSIAN.ard([1.0, 2.0, 0.5]).with_missing("level"),
    ks.Polynomial(degree=2).with_missing("level").on([0, 2]) + GAUSSIAN.with_missing("ignore") + ks.Constant(1.0),
    GAUSSIAN.with_missing("level").normalized(), GAUSSIAN.with_missing("level").centered(GAPS[:4]),
]  # fmt: skip


@pytest.mark.parametrize("kernel", GAPPY_KERNELS, ids=repr)
def test_kernels_of_gaps_are_kernels(kernel):
    check_kernel(kernel, GAPS)
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel and np.array_equal(again(GAPS), kernel(GAPS))
    if "centered" not in repr(kernel):
        assert eval(repr(kernel), vars(ks)) == kernel
    assert kernel.with_params(**kernel.get_params()) == kernel
    assert len(distinct(kernel.rows(np.vstack([GAPS, GAPS[::-1]]))).first) == len(GAPS)


def test_gaps_in_other_columns():
    """Each kernel says which columns may have gaps."""
    X = np.where(np.arange(3) == 1, 0.0, GAPS)
    kernel = GAUSSIAN.with_missing("level").on([0, 2]) + ks.Linear().on([1])
    assert kernel(X).shape == (12, 12)
    with pytest.raises(DataError, match=r"Linear\(\) expects .* 2 NaN or missing, in column 1, first in row 0"):
        kernel(GAPS)
    for whole in (GAUSSIAN, GAUSSIAN.compose(np.nan_to_num), ks.Linear().weighted(lambda P: P[:, 1])):
        with pytest.raises(DataError, match="missing values|NaN"):
            (GAUSSIAN.with_missing("level") + whole)(GAPS)
    with pytest.raises(DataError, match="finite; got 1 NaN or infinite"):
        GAUSSIAN.with_missing("level")([[np.inf, np.nan]])
    objects = [[None if np.isnan(v) else v for v in row] for row in GAPS.tolist()]
    assert np.array_equal(GAUSSIAN.with_missing("level")(objects), GAUSSIAN.with_missing("level")(GAPS))
    assert np.array_equal(
        GAUSSIAN.with_missing("level")(pd.DataFrame(GAPS).convert_dtypes()), GAUSSIAN.with_missing("level")(GAPS)
    )


def exact_ignored(x, z, sigma):
    present = [j for j in range(len(x)) if not np.isnan(x[j]) and not np.isnan(z[j])]
    total = mpmath.fsum((mpf(float(x[j])) - mpf(float(z[j]))) ** 2 for j in present)
    return mpmath.exp(-mpf(len(x)) / len(present) * total / (2 * mpf(sigma) ** 2)) if present else mpf(0)


@pytest.mark.parametrize("shift", [0.0, 1e8])
@pytest.mark.parametrize("sigma", [0.3, 30.0])
def test_rounding_is_as_stated(shift, sigma):
    X = GAPS + shift
    ignored, level = (ks.Gaussian(sigma=sigma).with_missing(policy) for policy in ("ignore", "level"))
    with mpmath.workdps(60):
        for kernel in (ignored, level):
            K, exact = kernel(X), exact_ignored if kernel is ignored else exact_level
            errors = [abs(mpf(float(K[i, j])) - exact(x, z, sigma)) for i, x in enumerate(X) for j, z in enumerate(X)]
            assert max(errors) <= kernel.rounding(X)
    assert ignored.rounding(X) < 1e-14


def exact_level(x, z, sigma):
    present = ~np.isnan(x)
    if (present != ~np.isnan(z)).any():
        return mpf(0)
    total = mpmath.fsum((mpf(float(a)) - mpf(float(b))) ** 2 for a, b in zip(x[present], z[present], strict=True))
    return mpmath.exp(-total / (2 * mpf(sigma) ** 2))


# ---------------------------------------------------------------- Gower


def gower(x, z, ranges, weights, missing):
    total = weight = 0.0
    for (name, R), w in zip(ranges.items(), weights, strict=True):
        a, b = (None if pd.isna(v) else v for v in (x[name], z[name]))
        if a is None or b is None:
            if missing == "ignore":
                continue
            s = float(a is b)
        else:
            s = float(a == b) if R is None else max(0.0, 1 - abs(a - b) / R)
        total, weight = total + w * s, weight + w
    return total / weight if weight else 0.0


@pytest.mark.parametrize("missing", ["level", "ignore"])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_gower(missing, weights):
    ranges = {"age": 25.0, "sex": None, "n": 10.0}
    kernel = ks.Gower(ranges, weights=weights, missing=missing)
    rows = [dict(zip(WITH_GAPS, row, strict=True)) for row in zip(*WITH_GAPS.values(), strict=True)]
    expected = [[gower(x, z, ranges, weights or [1, 1, 1], missing) for z in rows] for x in rows]
    for frame in (pd.DataFrame(WITH_GAPS), rows):
        assert np.allclose(kernel(frame), expected, rtol=1e-14) and np.allclose(kernel.diag(frame), 1.0)
    assert kernel.is_psd is (True if missing == "level" else None)
    check_kernel(kernel, rows)
    assert eval(repr(kernel), vars(ks)) == kernel and kernel.with_params(**kernel.get_params()) == kernel
    assert 0 < kernel.rounding(rows) < 1e-14


def test_gower_of_whole_rows_is_a_sum_of_kernels():
    ranges = {"a": 2.0, "g": None}
    kernel = ks.Gower(ranges)
    triangle = ks.FromFunction(lambda x, y: max(0.0, 1.0 - abs(float(x[0]) - float(y[0])) / 2.0), psd=True)
    parts = 0.5 * triangle.on("a") + 0.5 * ks.Categorical().on("g")
    assert np.allclose(kernel(FRAME), parts(FRAME), rtol=1e-14) and kernel.is_psd
    assert np.linalg.eigvalsh(kernel(FRAME))[0] > -1e-14
    assert (kernel.exp() * GAUSSIAN.on("b")).is_psd


def test_gower_left_out_need_not_be_positive_semidefinite():
    frame = [{"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 9.0}, {"a": 0.0, "b": None}]
    assert np.linalg.eigvalsh(ks.Gower({"a": 1.0, "b": 1.0}, weights=[1, 9], missing="ignore")(frame))[0] < -0.2


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"age": 10.0}, DataError, "2 NaN or missing, in column 'age', first in row 1"),
        ({"sex": 10.0}, DataTypeError, "finite numbers in column 'sex'; got 'f'"),
        ({"who": 10.0}, DataError, 'DataFrame with column "who"'),
    ],
)
def test_gower_refuses(columns, error, words):
    with pytest.raises(error, match=words):
        ks.Gower(columns)(pd.DataFrame(WITH_GAPS))


def test_gower_refuses_rows_without_values():
    with pytest.raises(DataError, match="some column of each row; got none in row 1"):
        ks.Gower({"age": 10.0}, missing="ignore")(pd.DataFrame(WITH_GAPS))
    with pytest.raises(DataTypeError, match="can be hashed in column 'g'; got list"):
        ks.Gower({"g": None})([{"g": [1]}])
