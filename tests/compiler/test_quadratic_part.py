"""Quadratic forms of several numbers as sums of squares."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler import quadratic_part
from kernelopt.errors import DataError

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 2))
Y = np.sign(X[:, 0] + 0.3 * RNG.normal(size=N))
Q = np.exp(-((X[:, None] - X[None]) ** 2).sum(2) / 2)
WEIGHTS = np.where(RNG.random((N, N)) < 0.1, RNG.random((N, N)), 0.0)
LAPLACIAN = np.diag((WEIGHTS + WEIGHTS.T).sum(1)) - (WEIGHTS + WEIGHTS.T)
BENDS = np.diff(np.eye(N), n=2, axis=0)
LOW_RANK = RNG.normal(size=(N, 3))
FORMS = {
    "Laplacian": sp.csr_array(LAPLACIAN),
    "Laplacian, dense": LAPLACIAN,
    "signs": np.abs(LAPLACIAN),
    "second differences": sp.csr_array(BENDS.T @ BENDS),
    "dense": Q + np.eye(N),
    "low rank": LOW_RANK @ LOW_RANK.T,
    "units": np.outer(10.0 ** np.linspace(-6, 6, N), 10.0 ** np.linspace(-6, 6, N)) * (np.eye(N) + 0.5),
}


@pytest.mark.parametrize("name", FORMS)
def test_roots(name):
    P = sp.csc_array(FORMS[name])
    R = quadratic_part.root(P)
    size = np.sqrt(P.diagonal())
    assert np.all(np.abs((R.T @ R - P).toarray()) <= 1e-13 * np.outer(size, size))


def test_a_graph_has_one_row_per_edge():
    R = quadratic_part.root(sp.csc_array(LAPLACIAN))
    assert R.shape[0] == np.count_nonzero(np.triu(LAPLACIAN, 1))
    assert set(np.diff(R.indptr).tolist()) == {2}
    assert R.shape[0] > quadratic_part.root(sp.csc_array(FORMS["low rank"])).shape[0] == 3


@pytest.mark.parametrize("P", [np.diag([1.0, -1.0]) + 0.1, np.array([[0.0, 1.0], [1.0, 0.0]])], ids=["-1", "zeros"])
def test_indefinite_matrices(P):
    with pytest.raises(DataError, match=r"positive semidefinite .* eigenvalue -"):
        quadratic_part.root(sp.csc_array(P))


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["u", "u − y"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squares"])
@pytest.mark.parametrize("name", [name for name in FORMS if name != "units"])
def test_problems(name, loss, shift):
    """Own solvers take them, as sums of squares of linear maps; values are those of cvxpy in explicit features."""
    P = cp.psd_wrap(FORMS[name])

    def stated(u):
        losses = {
            "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(Y, u))),
            "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(Y, u))),
            "squares": lambda: cp.sum_squares(u - Y),
        }
        return losses[loss]() + 0.2 * cp.quad_form(u - shift * Y, P)

    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(stated(theta(X)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    values, vectors = np.linalg.eigh(Q)
    kept = values > 1e-8  # what is left out changes the optimum by less than 1e-7 of it
    w = cp.Variable(int(kept.sum()))
    B = vectors[:, kept] * np.sqrt(values[kept])
    expected = cp.Problem(cp.Minimize(stated(B @ w) + 0.1 * cp.sum_squares(w))).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(expected, rel=1e-6)
    assert problem.solver_stats.solver_name in {"NEWTON", "INTERIOR_POINT", "LEAST_SQUARES"}


@pytest.mark.slow
def test_multipliers_and_parameters():
    """Rows of the form do not disturb the multipliers of constraints; a weight may be a parameter."""
    theta, b, weight = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(2), cp.Parameter(nonneg=True)
    u = theta(X) + b[0]
    P = np.array([[2.0, 1.0], [1.0, 2.0]])
    bounds = [cp.sum(u) == 1, u[:3] <= 0.5, b[1] >= 0.3]
    objective = cp.sum_squares(u - Y) + weight * cp.quad_form(u - Y, LAPLACIAN + np.eye(N)) + cp.quad_form(b, P)
    problem = ko.Problem(cp.Minimize(objective + ko.sum_squares(theta)), bounds)
    L = np.linalg.cholesky(Q + 1e-12 * np.eye(N))
    w, a = cp.Variable(N), cp.Variable(2)
    v = L @ w + a[0]
    same = [cp.sum(v) == 1, v[:3] <= 0.5, a[1] >= 0.3]
    terms = cp.sum_squares(v - Y) + weight * cp.quad_form(v - Y, LAPLACIAN + np.eye(N)) + cp.quad_form(a, P)
    explicit = cp.Problem(cp.Minimize(terms + cp.sum_squares(w)), same)
    for weight.value in (0.5, 0.0, 2.0):
        problem.solve()
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(explicit.solve(solver="CLARABEL"), rel=1e-6)
        np.testing.assert_allclose(b.value, a.value, atol=1e-4)
        for one, other in zip(bounds, same, strict=True):
            np.testing.assert_allclose(one.dual_value, other.dual_value, atol=1e-3)


def test_an_indefinite_form_is_refused():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    form = cp.quad_form(theta(X), cp.psd_wrap(LAPLACIAN - np.eye(N)))
    problem = ko.Problem(cp.Minimize(form + ko.sum_squares(theta)))
    with pytest.raises(DataError, match="positive semidefinite"):
        problem.solve()


def test_a_difference_and_a_column_without_entries():
    """(x₀ − x₁)², where rounding leaves nothing of the diagonal."""
    P = sp.csc_array(np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    assert np.abs(quadratic_part._by_pairs(P).toarray()).tolist() == [[1.0, 1.0, 0.0]]
