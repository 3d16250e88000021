"""The table of bad inputs and degenerate cases: rows, the doors at which each is met, and what is expected there.

Most rows are data that a fit of squares may be given. They go through every door that can meet them: the language with
the solver and the factorization of its choice, in memory, streamed, on Dask, through cvxpy's solvers, estimators,
derivatives, boxes and files. Other rows state a problem of their own. `python tests/whole/bad_inputs.py` writes
docs/what_happens_when.md from it.
"""

import os
import pickle
import re
import tempfile
import threading
import warnings
import zipfile
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import chi2_kernel, laplacian_kernel

import kernelopt as ko
from kernelopt.errors import (
    DataError,
    DataTypeError,
    DCPError,
    FormatError,
    KernelError,
    MemoryLimitError,
    NotPSDError,
    OptionError,
    ParameterError,
    RepresenterError,
)

PAGE = Path(__file__).parents[2] / "docs" / "what_happens_when.md"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
y = np.sin(X[:, 0]) + X[:, 1]
W = RNG.uniform(0.5, 2.0, size=20)
LABELS = np.where(y > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=1.0)
LAM = 0.1


# ---------------------------------------------------------------- doors: a fit of squares, by each way in


def stated(A, theta, y, w, lam, **options):
    """Minimize Σ w(y − Aθ)² + λ‖θ‖²."""
    errors = ko.losses.squared_error(y, A @ theta)
    problem = ko.Problem(cp.Minimize((cp.sum(errors) if w is None else w @ errors) + lam * ko.sum_squares(theta)))
    problem.solve(**options)
    assert problem.status == "optimal"
    return theta.value


def language(X, y, w=None, kernel=KERNEL, lam=LAM, **options):
    theta = ko.Theta(kernel)
    return stated(ko.FeatureMatrix(X, kernel), theta, y, w, lam, **options)


def on_dask(X, y, **rest):
    return language(da.from_array(X, chunks=7) if isinstance(X, np.ndarray) and X.size else X, y, **rest)


def estimators(X, y, w=None, kernel=KERNEL, lam=LAM):
    model = ko.estimators.KernelRegressor(kernel=kernel, alpha=lam, fit_intercept=False)
    return model.fit(X, y, sample_weight=w).predict


def derivatives(X, y, w=None, kernel=KERNEL, lam=LAM):
    """Slopes are rows beside values, with a bound that does not bind."""
    A, theta = ko.FeatureMatrix(X, kernel), ko.Theta(kernel)
    errors = ko.losses.squared_error(y, A @ theta)
    objective = (cp.sum(errors) if w is None else w @ errors) + lam * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [A.derivative(0) @ theta <= 1e3 * np.abs(y).max()])
    problem.solve()
    assert problem.status == "optimal"
    return theta.value


def boxes(X, y, w=None, kernel=KERNEL, lam=LAM):
    """Means over points that are known exactly are values."""
    theta = ko.Theta(kernel)
    stated(ko.gaussian_mean(X, 0.0, kernel), theta, y, w, lam)
    return lambda points: (ko.gaussian_mean(points, 0.0, kernel) @ theta).value


def files(X, y, w=None, kernel=KERNEL, lam=LAM):
    """A function with these centers and coefficients, saved and loaded."""
    f = ko.Function(kernel, X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.ko"
        ko.save(path, f=f)
        g = ko.load(path)["f"]
    points = np.asarray(X.toarray() if sp.issparse(X) else X)
    assert np.array_equal(f(points), g(points))
    return g


DOORS = {
    "language": language,
    "in memory": lambda *a, **k: language(*a, factorization="cholesky", **k),
    "streamed": lambda *a, **k: language(*a, factorization="streamed", **k),
    "solvers": lambda *a, **k: language(*a, solver="CLARABEL", **k),
    "Dask": on_dask,
    "estimators": estimators,
    "derivatives": derivatives,
    "boxes": boxes,
    "files": files,
}
FITS = tuple(name for name in DOORS if name != "files")
PLAIN = ("language", "in memory", "streamed", "solvers")


def ridge(X, y, w=None, kernel=KERNEL, lam=LAM):
    """The fit at X in closed form: K(K + λW⁻¹)⁻¹y."""
    X = X.toarray() if sp.issparse(X) else X
    K = kernel(X)
    return K @ np.linalg.solve(K + lam * np.diag(1 / (np.ones(len(K)) if w is None else w)), np.asarray(y, dtype=float))


# ---------------------------------------------------------------- the table


@dataclass
class Case:
    """A row at a door. `run` does it; with `error`, that class with these words is raised by it."""

    row: str
    door: str
    run: object
    error: object = None
    words: str = ""

    def check(self):
        with warnings.catch_warnings():
            if self.error is None:
                self.run()
                return
            with pytest.raises(self.error, match=self.words):
                self.run()


CASES = []


def refused(row, error, words, doors, others=None, /, **data):
    """A fit of such data is refused at these doors; `others` has errors and words of doors that say it otherwise."""
    arguments = {"X": X, "y": y} | data
    for door in doors:
        its_error, its_words = (others or {}).get(door, (error, words))
        fit = DOORS[door]
        CASES.append(Case(row, door, lambda fit=fit, a=arguments: fit(**a), its_error, its_words))


def fits(row, doors, at=None, rtol=1e-5, /, **data):
    """A fit of such data equals the closed form at these doors; files keep the function."""
    arguments = {"X": X, "y": y} | data

    def run(door):
        found = DOORS[door](**arguments)
        points = arguments["X"] if at is None else at
        if door != "files":
            expected = ridge(**(arguments | {"X": points}))
            assert np.allclose(found(points), expected, rtol=rtol, atol=rtol * (1e-300 + np.abs(expected).max()))

    for door in doors:
        CASES.append(Case(row, door, lambda door=door: run(door)))


def stands(row, door):
    """A case of its own: the decorated function asserts what happens."""
    return lambda run: CASES.append(Case(row, door, run)) or run


def raises(row, door, error, words):
    """A case of its own: the decorated function raises this error with these words."""
    return lambda run: CASES.append(Case(row, door, run, error, words)) or run


# What each row is, and what happens; the page has these words.
ROWS = {
    "1": ("NaN or ±∞ in points, targets or weights", "`DataError` that names the array and the first places"),
    "2": ("a kernel whose values overflow", "`KernelError` that names the pair of rows"),
    "3": ("no rows", "`DataError`"),
    "4": ("one row", "solved"),
    "5": ("repeated rows, with λ = 0 too", "merged exactly; `explain()` has both numbers of rows"),
    "6": ("a constant kernel, a kernel that is 0", "solved, with rank 1 and 0"),
    "7": (
        "a kernel or kernel matrix that is not positive semidefinite",
        '`NotPSDError` with the eigenvalue; `indefinite="clip"`, `"flip"` and `"shift"` solve with a matrix near it',
    ),
    "8": ("a kernel matrix that is not symmetric", "`DataError`, beyond 1e-12 of the largest entry"),
    "9": ("a kernel × 1e±16, λ to match", "the same predictions"),
    "10": ("λ negative or NaN", "`RepresenterError`, `DataError`; `OptionError` in estimators"),
    "11": ("λ = 0, or no norm of θ", "solved; optimal for the full kernel only where the factor has full rank"),
    "12": ("separable labels, logistic loss, no penalty", "`not_attained`: no θ reaches the infimum"),
    "13": ("a hard margin that cannot hold", "`infeasible`, proved for the full kernel"),
    "14": ("a linear objective without a norm", "`unbounded`, with a ray that was checked"),
    "15": ("labels of one class", "solved in the language; classifiers refuse"),
    "16": ("targets of another length or with two axes, points with one axis", "`DataError` with both shapes"),
    "17": ("negative weights", "refused, with the first place"),
    "18": ("sparse, pandas, lists, float32, integers, booleans, Fortran order, read-only", "taken, as float64"),
    "19": ("complex numbers, objects and strings for a kernel of vectors", "`DataTypeError` that names the kernel"),
    "20": ("strings with a kernel of strings", "taken as they are"),
    "21": ("a kernel matrix larger than the memory", "`MemoryLimitError` before it is allocated"),
    "22": ("a limit of iterations or time", "`user_limit` or `optimal_inaccurate`, with bounds that hold"),
    "24": ("one problem solved from several threads", "one solve after the other; all get the optimum"),
    "25": (
        "copies and pickles of solved problems and estimators",
        "work, with the same predictions; to solve one with `ko.everywhere` again, `g` has to be copied, too",
    ),
    "26": ("a kernel with a lambda, saved to a file", "`KernelError` with the reason; by a name it works"),
    "27": ("a forged file", "`FormatError`, in bounded memory"),
    "28": ("the same data twice", "the same bits"),
    "29": ("θ with rows of another kernel, or of another number of columns", "refused at the line that wrote it"),
    "30": ("a parameter without a value", "`ParameterError`"),
    "31": ("predictions before a solve", "None, as in cvxpy, and so is `theta.value`; `NotFittedError` in estimators"),
    "32": ("a loss of your own with a wrong derivative", "`DataError` at its first call, with the worst point"),
    "33": ("a loss of your own that is declared convex and is not", "`DataError` with the point"),
    "34": ("targets in a column beside flat predictions", "refused, with both shapes"),
    "35": ("labels 0 and 1 for a loss of ±1; negative counts", "`DataError` with the values"),
    "36": ("a low rank and no norm of θ", "`optimal_inaccurate`, of the reduced problem"),
    "37": ("an objective plus a constant, or times one", "the same status and relative gap"),
    "38": ("integer variables", "solved by a mixed-integer solver, with a certificate where its boxes are few"),
    "39": ("masked arrays", "`DataError`: drop the rows, or fill"),
    "40": ("a product of two negative numbers and a convex part", "cvxpy's rules decide"),
    "41": ("integers whose optimum is 0", "solved, with the integer exactly 0"),
    "42": ("λ = 0 as a number, a parameter, or on a path", "as if the term were left out"),
    "43": ("weights of one problem 1e12 apart", "`optimal`, or `optimal_inaccurate` with bounds that hold"),
    "44": ("numbers beyond 1e±150", "`DataError` or `KernelError`: change units"),
    "45": ("a declaration that data contradict", "refused where it is cheap to see; else named in the certificate"),
    "46": ("functions that are not symmetric", "`KernelError` with the word symmetric; rounding is allowed"),
    "47": ("a kernel matrix of float32, cast to float64", "`NotPSDError` that names the precision"),
    "53": ("columns in another order", "`DataError` for tables of pandas and Arrow, and for blocks of an iterator"),
    "55": (
        "a column of a frame for a kernel of strings",
        'one column is taken; of several, `frame["name"]` is asked for',
    ),
    "56": ("a function of `sklearn.metrics.pairwise` as kernel", "taken as a function of matrices"),
    "57": ("labels −1, 0 and 1", "`DataError` that says what 0 may mean"),
    "58": ("a parameter of labels in a copy of a problem", "checked there too"),
    "59": ("diagonal, symmetric and sparse variables", "work, in constraints too"),
    "60": ("10**400, `max_rank=-1`, `huber(M=inf)`, `pinball(tau=None)`", "refused by name"),
    "62": (
        "equalities that no double meets",
        "the violation stands in the certificate; never `optimal` beyond rounding",
    ),
}

NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf
OF_SKLEARN = {"estimators": (ValueError, "NaN|infinity")}
for broken in (NAN, INF):
    refused("1", DataError, re.escape("first at (3, 1)"), DOORS, OF_SKLEARN, X=broken)
for value in (np.nan, np.inf):
    refused("1", DataError, "finite.* at 5", DOORS, OF_SKLEARN, y=np.where(np.arange(20) == 5, value, y))
    refused("1", DataError, "first at 7", FITS, OF_SKLEARN, w=np.where(np.arange(20) == 7, value, W))

HUGE = ko.kernels.Polynomial(degree=40)
refused("2", KernelError, "rows|NaN or inf at", FITS, X=1e10 * X, kernel=HUGE)
refused("2", KernelError, "NaN or inf at new point", ["files"], X=1e10 * X, kernel=HUGE)

NONE = {"estimators": (ValueError, "0 sample"), "boxes": (DataError, "not empty")}
refused("3", DataError, "at least one", DOORS, NONE, X=np.zeros((0, 2)), y=np.zeros(0))
fits("4", [d for d in DOORS if d != "estimators"], X=X[:1], y=y[:1])
fits("4", ["estimators"], X=X[:1], y=y[:1])
TWICE = {"X": np.vstack([X, X, X[:3]]), "y": np.concatenate([y, y + 1, y[:3]])}
fits("5", FITS, **TWICE)
ONES = ko.kernels.Constant(1.0)
fits("6", [d for d in FITS if d != "derivatives"], kernel=ONES)
fits("6", [d for d in FITS if d != "derivatives"], kernel=0.0 * KERNEL)
SIGMOID = ko.kernels.Sigmoid(scale=1.0, offset=-1.0)
refused("7", NotPSDError, "eigenvalue|κ\\(x, x\\)", [*PLAIN, "Dask", "estimators"], kernel=SIGMOID)
for scale in (1e-16, 1e16):
    fits("9", FITS, kernel=scale * KERNEL, lam=scale * LAM)
LAMS = {"estimators": (OptionError, "alpha to be a number > 0")}
refused("10", RepresenterError, "larger norm is better", FITS, LAMS, lam=-0.1)
refused("10", DataError, "NaN", FITS, LAMS, lam=np.nan)
SHAPES = {"estimators": (ValueError, "inconsistent numbers of samples"), "files": (DataError, "per center")}
refused("16", DataError, r"\(19,\).*\(20,\)", DOORS, SHAPES, y=y[:-1])
refused("34", DataError, r"\(20, 1\).*\(20,\).*ravel", [d for d in FITS if d != "estimators"], y=y[:, None])
FLAT = {"estimators": (ValueError, "Expected 2D array"), "boxes": (DataError, r"\(20,\)|same|shape")}
refused("16", DataError, r"\(20,\).*reshape", [d for d in DOORS if d != "boxes"], FLAT, X=X[:, 0])
NEGATIVE = np.where(np.arange(20) == 2, -1.0, W)
WEIGHTS = {"estimators": (DataError, "sample_weight ≥ 0; got -1 at 2")}
refused("17", DCPError, "negative, -1 first at 2", FITS, WEIGHTS, w=NEGATIVE)

READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False
KINDS = {
    "sparse": sp.csr_array(X),
    "pandas": pd.DataFrame(X, columns=["a", "b"]),
    "list": X.tolist(),
    "Fortran": np.asfortranarray(X),
    "read-only": READ_ONLY,
    "strided": np.repeat(X, 2, axis=0)[::2],
    "float32": X.astype(np.float32),
    "integers": np.round(3 * X).astype(int),
    "truth values": X > 0,
}
for kind, data in KINDS.items():
    if kind == "list":
        fits("18", [d for d in FITS if d != "Dask"], X=data)
    else:
        fits("18", FITS, X=data)

REAL = {"estimators": (ValueError, "[Cc]omplex|real numbers")}
refused(
    "19", DataTypeError, r"Gaussian\(sigma=1\.0\)", [d for d in DOORS if d not in ("Dask", "boxes")], REAL, X=X + 1j
)
refused("19", DataTypeError, "real numbers", ["boxes"], X=X + 1j)
STRINGS = np.array([["a", "b"]] * 20)
NO_NUMBERS = {"estimators": (ValueError, "real numbers|convert")}
refused("19", DataTypeError, "real numbers", [d for d in DOORS if d != "Dask"], NO_NUMBERS, X=STRINGS)
WORDS = ["ab", "abba", "cab", "bca", "aabb"]
OF_WORDS = {"X": WORDS, "y": y[:5], "kernel": ko.kernels.Spectrum(2)}
fits("20", ["language", "in memory", "streamed", "solvers", "estimators", "files"], **OF_WORDS)

MASKED = np.ma.masked_array(X, np.arange(40).reshape(20, 2) == 7)
HIDDEN = np.ma.masked_array(y, np.arange(20) == 7)
refused("39", DataError, "mask.*Drop the rows", [d for d in DOORS if d != "Dask"], X=MASKED)
refused("39", DataError, "mask.*Drop the rows", DOORS, y=HIDDEN)
refused("39", DataError, "mask", ["estimators"], w=np.ma.masked_array(W, np.arange(20) == 7))
fits("39", FITS, X=np.ma.masked_array(X, np.zeros((20, 2))))
for units in (1e-160, 1e160):
    refused("44", DataError, "Change units|between 1e-150", FITS, y=units * y)
    refused("44", KernelError, "digits|Rescale|Change", [d for d in FITS if d != "derivatives"], X=units * X,
            kernel=ko.kernels.Linear())  # fmt: skip
fits("44", [d for d in FITS if d != "solvers"], y=1e100 * y)
LARGE = np.array([[10**400, 1]] * 20, dtype=object)
refused(
    "60", DataError, "numbers below 1e308|real numbers; got", [d for d in DOORS if d not in ("Dask", "boxes")], X=LARGE
)
refused("60", DataError, "numbers below 1e308", ["boxes"], X=LARGE)
refused("60", DataError, "numbers below 1e308|real numbers; got", DOORS, y=LARGE[:, 0])


# ---------------------------------------------------------------- problems of their own


def solved(objective, constraints=(), **options):
    problem = ko.Problem(objective, list(constraints))
    problem.solve(**options)
    return problem


# How problems of their own are solved, door by door.
WAYS = {"language": {}, "in memory": {"factorization": "cholesky"}, "streamed": {"factorization": "streamed"}}


def everywhere(row):
    """A case that is solved in each of the ways; the function gets the options."""

    def add(run):
        for door, options in WAYS.items():
            CASES.append(Case(row, door, lambda options=options: run(options)))
        return run

    return add


@everywhere("5")
def _(options):
    theta = ko.Theta(KERNEL)
    losses = cp.sum_squares(TWICE["y"] - theta(TWICE["X"]))
    problem = solved(cp.Minimize(losses), rank_tol=1e-13, **options)
    assert "43 rows, 20 distinct" in str(problem.explain())
    assert set(map(tuple, theta.value.centers)) <= set(map(tuple, X))


for way in ("clip", "flip", "shift"):

    @stands("7", "language")
    def _(way=way):
        theta = ko.Theta(SIGMOID)
        problem = solved(cp.Minimize(cp.sum_squares(y - theta(X)) + ko.sum_squares(theta)), indefinite=way)
        assert problem.status in ("optimal", "optimal_inaccurate")
        assert "Q̃" in str(problem.explain())


ASYMMETRIC = KERNEL(X)
ASYMMETRIC[0, 1] += 1e-9
raises("8", "language", DataError, "symmetric")(lambda: ko.kernels.Precomputed(ASYMMETRIC))
raises("8", "estimators", DataError, "symmetric")(
    lambda: ko.estimators.KernelRegressor(kernel="precomputed").fit(ASYMMETRIC, y)
)


@everywhere("11")
def _(options):
    theta = ko.Theta(KERNEL)
    problem = solved(cp.Minimize(cp.sum_squares(y - theta(X))), max_rank=4, **options)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "reduced problem"
    whole = solved(cp.Minimize(cp.sum_squares(y - theta(X))), rank_tol=1e-13, **options)
    assert whole.value < 1e-6


@everywhere("12")
def _(options):
    theta = ko.Theta(ko.kernels.Linear())
    losses = ko.losses.log_loss(np.sign(X[:, 0]), theta(X))
    assert solved(cp.Minimize(cp.sum(losses)), **options).status == "not_attained"


@everywhere("13")
def _(options):
    theta = ko.Theta(KERNEL)
    rows, opposite = np.vstack([X, X[:1]]), np.append(LABELS, -LABELS[0])
    problem = solved(cp.Minimize(ko.sum_squares(theta)), [ko.margin(opposite, theta(rows)) >= 1], **options)
    assert problem.status == "infeasible" and problem.value == np.inf


@everywhere("14")
def _(options):
    theta = ko.Theta(KERNEL)
    problem = solved(cp.Minimize(cp.sum(theta(X))), **options)
    assert problem.status == "unbounded" and problem.value == -np.inf


@everywhere("15")
def _(options):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    losses = ko.losses.hinge(np.ones(20), theta(X) + b)
    assert solved(cp.Minimize(cp.sum(losses) + ko.sum_squares(theta)), **options).value == pytest.approx(0, abs=1e-6)


raises("15", "estimators", ValueError, "class")(lambda: ko.estimators.KernelClassifier().fit(X, np.ones(20)))
MANY = np.arange(400_000.0).reshape(-1, 2)
for door, options in {
    "in memory": {"factorization": "cholesky", "memory_limit": 2e9},
    "streamed": {"factorization": "streamed", "memory_limit": 1e8},
}.items():
    raises("21", door, MemoryLimitError, "memory_limit")(
        lambda options=options: language(MANY, np.zeros(200_000), **options)
    )


@stands("22", "solvers")
def _():
    theta = ko.Theta(KERNEL)
    objective = cp.Minimize(cp.sum(ko.losses.hinge(LABELS, theta(X))) + LAM * ko.sum_squares(theta))
    optimum = solved(objective).value
    for solver, limit in (("SCS", {"max_iters": 1}), ("CLARABEL", {"max_iter": 2})):
        problem = solved(objective, solver=solver, **limit)
        assert problem.status in ("user_limit", "optimal_inaccurate")
        if problem.value is not None:
            assert problem.certificate.lower <= optimum + 1e-6
            assert problem.certificate.upper == pytest.approx(problem.value)


@stands("24", "language")
def _():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + ko.sum_squares(theta)))
    found = []
    threads = [threading.Thread(target=lambda: found.append(problem.solve())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and np.ptp(found) < 1e-5 * found[0]


for door, options in {"language": {}, "solvers": {"solver": "CLARABEL"}, "streamed": WAYS["streamed"]}.items():

    @stands("25", door)
    def _(options=options):
        theta = ko.Theta(KERNEL)
        problem = solved(cp.Minimize(cp.norm1(y - theta(X)) + ko.sum_squares(theta)), **options)
        for other in (deepcopy(problem), pickle.loads(pickle.dumps(problem))):
            assert np.array_equal(other.thetas()[0].value(X), theta.value(X))
            assert other.solve(**options) == pytest.approx(problem.value, rel=1e-6)


@stands("25", "estimators")
def _():
    model = ko.estimators.KernelRegressor().fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


ANONYMOUS = ko.kernels.Explicit(lambda X: X**2)
raises("26", "files", KernelError, "lambda|name of its own")(lambda: files(X, y, kernel=ANONYMOUS))
raises("26", "estimators", KernelError, "lambda")(
    lambda: pickle.dumps(ko.estimators.KernelRegressor(kernel=ANONYMOUS).fit(X, y))
)


@raises("27", "files", FormatError, "Expected")
def _():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "forged.ko")
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("kernelopt.json", '{"format": "kernelopt", "schema": 1, "values": {"a": {"kind": "array"')
        ko.load(path)


@everywhere("28")
def _(options):
    def once():
        theta = ko.Theta(KERNEL)
        problem = solved(cp.Minimize(cp.norm1(y - theta(X)) + ko.norm(theta)), max_rank=6, **options)
        return problem.value, problem.certificate.lower, theta.value(X).tobytes()

    assert once() == once()


@stands("28", "estimators")
def _():
    once, twice = (ko.estimators.KernelRegressor("absolute_error").fit(X, y).predict(X) for _ in range(2))
    assert np.array_equal(once, twice)


def with_theta(use):
    """A call of `use` with a θ."""
    return lambda: use(ko.Theta(KERNEL))


def again(points):
    """θ at other points, while its rows X are in use."""
    theta, rows = used()
    return theta(points), rows


def used():
    theta = ko.Theta(KERNEL)
    return theta, theta(X)


raises("29", "language", DataError, "2 columns.*3 columns")(lambda: again(np.ones((4, 3))))
raises("29", "language", RepresenterError, "one kernel")(
    lambda: ko.FeatureMatrix(X, ko.kernels.Linear()) @ ko.Theta(KERNEL)
)
raises("29", "Dask", DataError, "2 columns.*3 columns")(lambda: again(da.ones((4, 3))))
raises("29", "estimators", ValueError, "3 features, but .* expecting 2")(
    lambda: ko.estimators.KernelRegressor().fit(X, y).predict(np.ones((4, 3)))
)
raises("29", "derivatives", DataError, "column from 0 to 1")(lambda: ko.FeatureMatrix(X, KERNEL).derivative(2))
raises("29", "files", DataError, "2 columns")(lambda: files(X, y)(np.ones((4, 3))))
raises("30", "language", ParameterError, "lam")(lambda: language(X, y, lam=cp.Parameter(nonneg=True, name="lam")))
raises("30", "derivatives", ParameterError, "lam")(lambda: derivatives(X, y, lam=cp.Parameter(nonneg=True, name="lam")))


@stands("31", "language")
def _():
    theta, f, *_ = used()
    assert f.value is None and theta.value is None


raises("31", "estimators", NotFittedError, "not fitted")(lambda: ko.estimators.KernelRegressor().predict(X))
WRONG_SLOPE = ko.SmoothLoss(lambda u: np.cosh(u), lambda u: np.cosh(u), lambda u: np.cosh(u))
raises("32", "language", DataError, "gradient")(lambda: WRONG_SLOPE(ko.Theta(KERNEL)(X)))
raises("32", "estimators", DataError, "gradient")(
    lambda: ko.estimators.KernelRegressor(
        ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: u - y, lambda u, y: 2 + 0 * u)
    ).fit(X, y)
)
CONCAVE = ko.SmoothLoss(lambda u: -(u**2), lambda u: -2 * u, lambda u: -2 + 0 * u)
raises("33", "language", DataError, "convex")(lambda: CONCAVE(ko.Theta(KERNEL)(X)))
raises("34", "language", RepresenterError, re.escape("(20, 20)"))(
    with_theta(lambda t: ko.Problem(cp.Minimize(cp.sum_squares(y[:, None] - t(X)))).solve())
)
raises("35", "language", DataError, "got 0, 1")(lambda: ko.losses.hinge((y > 0).astype(int), ko.Theta(KERNEL)(X)))
raises("35", "language", DataError, "counts y ≥ 0; got -")(lambda: ko.losses.poisson(y - 10, ko.Theta(KERNEL)(X)))


@everywhere("36")
def _(options):
    theta = ko.Theta(KERNEL)
    problem = solved(cp.Minimize(cp.norm1(y - theta(X))), max_rank=3, **options)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "reduced problem"


@everywhere("37")
def _(options):
    theta = ko.Theta(KERNEL)
    objective = cp.sum(ko.losses.hinge(LABELS, theta(X))) + LAM * ko.sum_squares(theta)
    plain = solved(cp.Minimize(objective), max_rank=8, **options)
    for factor, constant in ((1.0, -15.1), (1.0, 1e6), (1e-8, 0.0)):
        other = solved(cp.Minimize(factor * objective + constant), max_rank=8, **options)
        assert other.value == pytest.approx(factor * plain.value + constant, rel=1e-7)
        assert other.status == plain.status
        assert other.certificate.relative_gap == pytest.approx(plain.certificate.relative_gap, rel=1e-2)


@stands("38", "solvers")
def _():
    theta, k = ko.Theta(KERNEL), cp.Variable(integer=True)
    losses = ko.losses.absolute_error(y + 2, theta(X) + k)
    problem = solved(cp.Minimize(cp.sum(losses)), [cp.abs(theta(X)) <= 0.2, k >= 0, k <= 5])
    assert problem.status == "optimal" and problem.certificate.scope == "solver's word"
    assert k.value == pytest.approx(2, abs=1e-6)


@stands("39", "Dask")
def _():
    hidden = da.ma.masked_array(da.from_array(X), mask=da.from_array(MASKED.mask))
    with pytest.raises(DataError, match="mask"):
        language(hidden, y)


@everywhere("40")
def _(options):
    theta = ko.Theta(KERNEL)
    loss = cp.sum_squares(y - theta(X)) + LAM * ko.sum_squares(theta)
    value = solved(cp.Minimize(loss), **options).value
    assert solved(cp.Minimize(-1 * (-1 * loss)), **options).value == pytest.approx(value, rel=1e-6)
    assert solved(cp.Maximize(-loss), **options).value == pytest.approx(-value, rel=1e-6)
    bounded = solved(cp.Minimize(ko.sum_squares(theta)), [-cp.sum_squares(y - theta(X)) >= -5], **options)
    assert bounded.status == "optimal"


raises("40", "language", DCPError, "rules")(
    with_theta(lambda t: solved(cp.Minimize(-cp.sum_squares(y - t(X)) + ko.sum_squares(t))))
)


@stands("41", "solvers")
def _():
    theta, z = ko.Theta(KERNEL), cp.Variable(boolean=True)
    problem = solved(cp.Minimize(cp.norm1(theta(X[:4]) - y[:4]) + z), [cp.abs(theta(X[:4])) <= 0.5])
    assert problem.status == "optimal"
    assert z.value == 0.0


@everywhere("42")
def _(options):
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=0.0)
    losses = cp.sum(ko.losses.absolute_error(y, theta(X)))
    bound = [ko.norm(theta) <= 2]
    without = solved(cp.Minimize(losses), bound, **options)
    for strength in (0.0, lam):
        problem = solved(cp.Minimize(losses + strength * ko.sum_squares(theta)), bound, **options)
        assert problem.value == pytest.approx(without.value, rel=1e-5)
        assert problem.status == without.status == "optimal"
    lam.value = 1.0
    path = ko.path(ko.Problem(cp.Minimize(losses + lam * ko.sum_squares(theta)), bound), lam, [1.0, 0.0], **options)
    assert path["objective"][-1] == pytest.approx(without.value, rel=1e-5)


@everywhere("43")
def _(options):
    theta = ko.Theta(KERNEL)
    w = np.where(np.arange(20) < 10, 1e-12, 1.0)
    problem = solved(cp.Minimize(w @ cp.square(y - theta(X)) + LAM * ko.sum_squares(theta)), **options)
    K = KERNEL(X)
    best = LAM * y @ np.linalg.solve(K + LAM * np.diag(1 / w), y)
    assert problem.status in ("optimal", "optimal_inaccurate")
    assert problem.certificate.lower <= best * (1 + 1e-9) and problem.certificate.upper >= best * (1 - 1e-9)


FALSE = ko.kernels.FromFunction(lambda a, b: -1.0 if a is not b and a != b else 0.5, psd=True)
raises("45", "language", KernelError, "psd|declared|positive semidefinite|eigenvalue")(
    lambda: language([1, 2, 3], y[:3], kernel=FALSE)
)


@stands("45", "language")
def _():
    theta = ko.Theta(ko.kernels.FromFunction(lambda a, b: float(a == b), psd=True))
    points = [1, 2, 3, 3]
    problem = solved(cp.Minimize(cp.sum_squares(y[:4] - theta(points)) + ko.sum_squares(theta)))
    assert "as declared" in str(problem.certificate)


raises("46", "language", KernelError, "symmetric")(
    lambda: ko.kernels.FromFunction(lambda a, b: float(a) - b)([1.0, 2.0])
)
raises("46", "estimators", KernelError, "symmetric")(
    lambda: ko.estimators.KernelRegressor(kernel=lambda a, b: float(a[0] - b[1])).fit(X, y)
)
raises("46", "language", KernelError, "symmetric")(
    lambda: ko.kernels.FromFunction(lambda A, B: np.subtract.outer(A, B), on_lists=True)([1.0, 2.0])
)


@stands("46", "language")
def _():
    rounded = ko.kernels.FromFunction(lambda a, b: 1.0 + (1e-15 if a < b else 0.0))
    assert rounded([1.0, 2.0]).shape == (2, 2)


SINGLE = ko.kernels.Gaussian(sigma=30.0)(X).astype(np.float32).astype(np.float64)


@everywhere("47")
def _(options):
    theta = ko.Theta(ko.kernels.Precomputed(SINGLE.astype(np.float32)))
    problem = solved(cp.Minimize(cp.sum_squares(y - theta(np.arange(20))) + ko.sum_squares(theta)), **options)
    assert problem.status in ("optimal", "optimal_inaccurate")


raises("47", "language", NotPSDError, "float32|single")(
    lambda: language(np.arange(20), y, kernel=ko.kernels.Precomputed(SINGLE))
)
FRAME = pd.DataFrame(X, columns=["a", "b"])
raises("53", "language", DataError, "in the order")(with_theta(lambda t: (t(FRAME), t(FRAME[["b", "a"]]))))
raises("53", "language", DataError, "in the order")(lambda: language(FRAME, y)(FRAME[["b", "a"]]))
raises("53", "language", DataError, "in the order")(
    with_theta(lambda t: (t(FRAME), t(pa.Table.from_pandas(FRAME[["b", "a"]]))))
)
raises("53", "language", DataError, r"columns \['a', 'b'\] in each block.*block 1")(
    with_theta(lambda t: t(iter([FRAME, FRAME[["b", "a"]]])))
)
NUMBERED = pd.DataFrame(X)
raises("53", "language", DataError, "in the order")(with_theta(lambda t: (t(NUMBERED), t(NUMBERED[[1, 0]]))))
raises("53", "estimators", ValueError, "feature names should match")(
    lambda: ko.estimators.KernelRegressor().fit(FRAME, y).predict(FRAME[["b", "a"]])
)
raises("53", "derivatives", DataError, "in the order")(
    with_theta(lambda t: (t(FRAME), t.derivative(0)(FRAME[["b", "a"]])))
)
raises("53", "boxes", DataError, "in the order")(
    with_theta(lambda t: (t(FRAME), ko.integral(FRAME[["b", "a"]], FRAME[["b", "a"]] + 1, KERNEL) @ t))
)
TEXTS = pd.DataFrame({"w": WORDS, "v": WORDS})


@stands("55", "language")
def _():
    kernel = ko.kernels.Spectrum(2)
    assert np.array_equal(kernel(TEXTS[["w"]]), kernel(WORDS))
    assert np.array_equal(kernel(TEXTS["w"]), kernel(WORDS))


raises("55", "language", DataTypeError, r"frame\[name\]")(lambda: ko.kernels.Spectrum(2)(TEXTS))


@stands("55", "estimators")
def _():
    found = ko.estimators.KernelRegressor(kernel=ko.kernels.Spectrum(2)).fit(TEXTS["w"], y[:5])
    assert found.predict(TEXTS["w"]).shape == (5,)


for function in (laplacian_kernel, chi2_kernel):
    kernel = ko.kernels.as_kernel(function)
    fits("56", [*PLAIN, "estimators"], X=np.abs(X), kernel=kernel)
raises("57", "language", DataError, "-1, 0, 1.*unlabelled")(
    lambda: ko.losses.hinge(np.sign(np.round(y)), ko.Theta(KERNEL)(X))
)


@stands("58", "language")
def _():
    theta, labels = ko.Theta(KERNEL), cp.Parameter(20, value=LABELS)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(X))) + ko.sum_squares(theta)))
    for other in (deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        other.parameters()[0].value = (LABELS > 0).astype(float)
        with pytest.raises(DataError, match="got 0, 1"):
            other.solve()


@everywhere("59")
def _(options):
    warnings.filterwarnings("ignore", "Reading from a sparse CVXPY")  # by cvxpy's own reductions, of its own variable
    theta, targets = ko.Theta(KERNEL, outputs=2), np.column_stack([y, -y])
    attributes = ({"diag": True}, {"symmetric": True}, {"PSD": True}, {"sparsity": ((0, 1), (1, 1))})
    for M in (cp.Variable((2, 2), **attribute) for attribute in attributes):
        objective = cp.sum_squares(targets - theta(X)) + ko.sum_squares(theta) + cp.sum_squares(M - np.eye(2))
        problem = solved(cp.Minimize(objective), [M <= 2, theta(X)[:2] <= M + 5], **options)
        assert problem.status == "optimal"
        found = M.value.toarray() if sp.issparse(M.value) else M.value
        possible = np.array([[0.0, 0.0], [0.0, 1.0]]) if M.attributes["sparsity"] else np.eye(2)
        assert np.abs(found - possible).max() < 1e-3  # what is nearest to the identity; no constraint binds


for text, words in {
    "ko.kernels.Gaussian(sigma=10**400)": "sigma to be a number > 0; got 1000",
    "ko.kernels.Polynomial(degree=10**400)": "degree to be an integer",
    "ko.Theta(KERNEL, outputs=10**400)": "outputs to be an integer ≥ 1",
    "ko.losses.huber(y, used()[1], M=np.inf)": "M to be a number > 0",
    "ko.losses.huber(y, used()[1], M=10**400)": "M to be numbers below 1e308",
    "ko.losses.pinball(y, used()[1], tau=None)": "tau",
    "language(X, y, max_rank=-1)": "max_rank to be an integer ≥ 1",
    "language(X, y, tol=10**400)": "tol to be a number between 0 and 1",
}.items():
    raises("60", "language", (KernelError, DataError, DataTypeError, OptionError), words)(lambda text=text: eval(text))
raises("60", "estimators", OptionError, "alpha to be a number > 0")(lambda: estimators(X, y, lam=10**400))
raises("60", "boxes", DataError, "below 1e308")(lambda: ko.integral([10**400], [1], KERNEL))
raises("60", "files", OptionError, "max_bytes to be an integer ≥ 1")(lambda: ko.load("none.ko", max_bytes=-1))


@everywhere("62")
def _(options):
    """π·x at three points of a line, one of them off by 1e-12; then targets that need a norm that no double holds."""
    points = np.array([[1.0], [1 / 3], [1e-3]])
    targets = np.pi * points[:, 0] * (1 + np.array([0, 1e-12, 0]))
    theta = ko.Theta(ko.kernels.Linear())
    problem = solved(cp.Minimize(ko.sum_squares(theta)), [theta(points) == targets], **options)
    assert problem.status == "optimal"
    assert problem.certificate.violation == pytest.approx(np.abs(theta.value(points) - targets).max(), rel=1e-2)
    smooth, x = ko.Theta(ko.kernels.Gaussian(sigma=3.0)), np.linspace(0, 1, 12)[:, None]
    rough = solved(cp.Minimize(ko.sum_squares(smooth)), [smooth(x) == np.sin(9 * x[:, 0])], **options)
    assert rough.status in ("user_limit", "optimal_inaccurate")


# ---------------------------------------------------------------- the page

TEXT = """# What happens when

Bad inputs and degenerate cases. Each row is tried at the places in its last column, and a test repeats it: the language
with default options; with the kernel matrix in memory; streamed; on Dask; with cvxpy's solvers; and through estimators,
derivatives, boxes and files. Errors say what was expected, what was got, and what to do;
[errors](errors.md) lists their classes.

| what is given | what happens | tried |
|---|---|---|
{rows}
"""


def page():
    lines = []
    for row, (given, happens) in ROWS.items():
        doors = [door for door in DOORS if any(c.row == row and c.door == door for c in CASES)]
        tried = "everywhere" if len(doors) == len(DOORS) else ", ".join(doors)
        lines.append(f"| {given} | {happens} | {tried} |")
    return TEXT.format(rows="\n".join(lines))


if __name__ == "__main__":
    PAGE.write_text(page())
