"""Factors that problems share: never those of other rows, kernels or options, and in bounded memory."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import kernelopt as ko
from kernelopt import factorization
from kernelopt.errors import OptionError
from kernelopt.factorization.reuse import _bytes, _equal
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
KERNEL = ko.kernels.Gaussian(sigma=1.0)


@pytest.fixture
def made(monkeypatch):
    """The rows that were factored."""
    found = []
    build = factorization.METHODS["cholesky"]
    monkeypatch.setitem(factorization.METHODS, "cholesky", lambda *args: found.append(args[0]) or build(*args))
    return found


def solved(X, kernel=KERNEL, lam=0.1, y=Y, **options):
    theta = ko.Theta(kernel)
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta))).solve(**options)


@pytest.mark.slow
def test_a_grid_factors_each_fold_once(made):
    cache, labels, grid = ko.FactorCache(), np.where(Y > 0, "up", "down"), {"alpha": [0.01, 0.1, 1.0]}
    plain = ko.estimators.KernelClassifier("hinge", kernel=KERNEL)
    expected = GridSearchCV(plain, grid, cv=4, refit=False).fit(X, labels)
    assert len(made) == 12
    made.clear()
    model = clone(plain).set_params(solve_options={"cache": cache})
    search = GridSearchCV(model, grid, cv=4, refit=False).fit(X, labels)
    assert len(made) == len(cache) == 4
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    "other",
    [
        {"X": X[::-1]}, {"X": X + 1e-15}, {"X": X.astype(np.float32)}, {"kernel": ko.kernels.Gaussian(sigma=1.1)},
        {"kernel": ko.kernels.Laplacian(sigma=1.0)}, {"max_rank": 7}, {"indefinite": "clip"},
        {"factorization": "eigen"},
    ],
    ids=str,
)  # fmt: skip
def test_other_factors_are_not_taken(other):
    cache = ko.FactorCache()
    solved(X, cache=cache)
    arguments = {"X": X, "y": Y, **other}
    assert solved(**arguments, cache=cache) == solved(**arguments)
    assert len(cache) == 2


def test_equal_digests_are_not_enough(monkeypatch):
    """Rows are compared number by number."""
    monkeypatch.setattr(Rows, "fingerprint", lambda rows: rows.kernel)
    cache = ko.FactorCache()
    solved(X, cache=cache)
    assert solved(2 * X, cache=cache) == solved(2 * X)
    factors = [
        factorization.METHODS["cholesky"](Rows.of_points(KERNEL, k * X), factorization.Settings(1e-8, None))
        for k in (1, 2)
    ]
    cache.factor(Rows.of_points(KERNEL, X), "options", lambda: factors[0])
    assert cache.factor(Rows.of_points(KERNEL, 2 * X), "options", lambda: factors[1]) is factors[1]


@pytest.mark.later
def test_other_losses_and_penalties_share_it(made):
    cache = ko.FactorCache()
    values = [solved(X, lam=lam, y=y, cache=cache) for lam in (0.1, 1.0) for y in (Y, -2 * Y)]
    assert len(made) == 1
    np.testing.assert_allclose(values, [solved(X, lam=lam, y=y) for lam in (0.1, 1.0) for y in (Y, -2 * Y)])


def test_memory():
    """The least recently used ones go; a factor that is too large alone is not kept."""
    one = 8 * 50 * 100 + X.nbytes  # B and BBᵀ at most, and the rows
    cache = ko.FactorCache(max_bytes=2.5 * one)
    for shift in (0.0, 1.0, 0.0, 2.0):
        solved(X + shift, cache=cache, rank_tol=1e-12, kernel=ko.kernels.Laplacian(sigma=0.1))
    kept = [entry.rows.points for entry in cache._known.values()]
    assert [np.array_equal(points, X + shift) for points, shift in zip(kept, (0.0, 2.0), strict=True)] == [True, True]
    cache.clear()
    assert len(cache) == 0
    small = ko.FactorCache(max_bytes=one / 4)
    solved(X, cache=small)
    assert len(small) == 0


def test_copies_and_pickles():
    cache = ko.FactorCache(max_bytes=1e6)
    solved(X, cache=cache)
    assert copy.copy(cache) is cache and copy.deepcopy({"cache": cache})["cache"] is cache
    again = pickle.loads(pickle.dumps(cache))
    assert len(again) == 0 and again.max_bytes == 1e6 and repr(again) == "FactorCache(max_bytes=1e+06)"


@pytest.mark.slow
def test_threads():
    cache, expected = ko.FactorCache(), [solved(X + k % 3) for k in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: solved(X + k % 3, cache=cache), range(12)))
    assert found == expected and len(cache) == 3


def test_what_it_refuses():
    for size in (0, -1.0, True, "1 GB"):
        with pytest.raises(OptionError, match="max_bytes to be a number > 0"):
            ko.FactorCache(max_bytes=size)
    with pytest.raises(OptionError, match=r"Expected cache to be a ko\.FactorCache"):
        solved(X, cache=True)


def test_memory_of_points_counts():
    """Here they take 20 times as much as B and BBᵀ."""
    points = np.random.default_rng(0).normal(size=(50, 2000))
    for share, kept in ((0.5, 0), (2.0, 1)):
        cache = ko.FactorCache(max_bytes=share * points.nbytes)
        solved(points, cache=cache)
        assert len(cache) == kept


def test_all_of_the_memory_may_be_taken():
    """To the last byte."""
    rows = Rows.of_points(KERNEL, X)
    factor = factorization.METHODS["cholesky"](rows, factorization.Settings(1e-8, None))
    cache = ko.FactorCache(max_bytes=_bytes(rows, factor))
    cache.factor(rows, "options", lambda: factor)
    assert len(cache) == 1
    cache.factor(rows, "others", lambda: factor)
    assert len(cache) == 1


def test_rows_are_equal_where_all_numbers_are():
    """Of the same type; objects, which the key compares, count as equal."""
    assert _equal(X, X.copy()) and not _equal(X, X + 1e-15)
    assert not _equal(X[0].astype(np.float32), X[0].astype(np.float32).astype(float))
    assert _equal(np.array(["a"], dtype=object), np.array(["b"], dtype=object))
