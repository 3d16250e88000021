"""Multipliers of the cones' rows from slopes of the functions that they consist of."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.certificate import dual_rows
from kernelopt.certificate.dual_rows import of_slopes
from kernelopt.compiler.outer import of_cones
from kernelopt.compiler.pieces import Custom

RNG = np.random.default_rng(3)
N = 6
X = RNG.normal(size=(N, 2))
WEIGHTS = np.arange(1.0, N + 1)

FUNCTIONS = {
    "exp q": lambda f: WEIGHTS @ cp.exp(2 * f - 0.5),
    "-log q": lambda f: -WEIGHTS @ cp.log(3 * f + 10),
    "q log q": lambda f: -WEIGHTS @ cp.entr(2 * f + 10),
    "-log(1 - exp q)": lambda f: -WEIGHTS @ cp.log(1 - cp.exp(0.5 * f - 3)),
    "log(1 + exp q)": lambda f: WEIGHTS @ cp.logistic(2 * f - 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_multipliers_attain_the_conjugate(name):
    """Σ bᵀz = h*(v), Aᵀz + c = 0 on auxiliary columns and v on those of f: z is optimal in the dual of each cone."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(FUNCTIONS[name](f) + ko.sum_squares(theta)))
    outer = of_cones(problem.canonical_form())
    form, split = outer.form, outer.split
    s = 0.3 * RNG.normal(size=len(split.arguments(np.zeros(N), np.zeros(len(split.y)))))
    v = split.derivative(s)
    z, tangent, _ = of_slopes(form, split, v)
    assert not tangent.any()
    (piece,) = split.pieces
    slack = form.b @ z
    assert slack == pytest.approx(np.sum(piece.conjugate(v[piece.at])), rel=1e-11)
    left = sp.csr_array(form.A).T @ z + form.c
    left[form.u[0]] -= split.E.T @ v + split.linear_u
    left[form.t] = 0.0
    assert np.abs(left).max() <= 1e-12 * np.abs(z).max()


def test_a_log_sum_exp_of_weight_0_has_no_multipliers():
    theta, weight = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.0)
    f = theta(X)
    loss = cp.sum_squares(f) + weight * cp.log_sum_exp(f)
    outer = of_cones(ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).canonical_form())
    z, _, _ = of_slopes(outer.form, outer.split, np.zeros(len(outer.split.arguments(np.zeros(N), np.zeros(0)))))
    assert not z.any()


def test_multipliers_of_a_log_sum_exp():
    """w is its weight in all cones, and uₖ = −vₖ."""
    z = dual_rows._log_sum_exp(SimpleNamespace(shift=np.zeros((3, 1)), weight=np.array([6.0])), None, np.arange(1.0, 4))
    assert z[0, 0] == 6 and z[0, 1::3].tolist() == [-1.0, -2.0, -3.0] and z[0, 3::3].tolist() == [6.0] * 3


def test_an_exponential_whose_argument_stands_in_two_rows():
    """aᵀz = v holds with an argument in the row of the auxiliary too."""
    a, v = np.array([[-1.0, 0.0, 0.5]]), np.array([3.0])
    batch = SimpleNamespace(A=np.array([[[0.0], [0.0], [-1.0]]]), a=a, c=np.array([[2.0]]))
    z = dual_rows._exponential(batch, v)
    assert np.sum(a * z) == 3.0 and z[0, 2] == 2.0 and z[0, 0] < 0


def test_rows_take_the_slopes_of_their_sign():
    """x ≥ q and x ≥ −q: a slope is the multiplier of one of these rows, and no multiplier is negative."""
    a = np.array([[1.0, -1.0, 0.0, 0.0, 0.0]] * 2)
    A = np.zeros((2, 5, 2))
    A[:, :2, 0], A[:, 4, 0] = -1.0, -1.0
    z = np.zeros((2, 5))
    dual_rows._last(SimpleNamespace(A=A, a=a), np.array([2.0, -3.0]), z, 2, 1)
    assert z[:, :2].tolist() == [[2.0, 0.0], [0.0, 3.0]]


@pytest.mark.parametrize("count", [1, 3])
def test_systems_that_are_nearly_singular_have_no_solution(count):
    """Equal matrices, of one function or of several: rounding would be all of the solution."""
    rhs = np.arange(2.0 * count).reshape(count, 2)
    singular = np.tile([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]], (count, 1, 1))
    assert dual_rows._solved(singular, rhs) is None
    regular = np.tile([[2.0, 1.0], [0.0, 1.0]], (count, 1, 1))
    found = dual_rows._solved(regular, rhs)
    assert np.einsum("nij,nj->ni", regular, found) == pytest.approx(rhs, abs=1e-14)


@pytest.mark.parametrize("last", [[], [np.array([0.4, 5.0])]])
def test_arguments_of_a_loss_from_slopes(last):
    """With and without an argument at which the loss was evaluated before."""
    loss = ko.SmoothLoss(np.cosh, np.sinh, np.cosh)
    piece = Custom(np.arange(2), loss, (), np.array([2.0, 1.0]), np.array([0.5, 0.0]), np.array([0.0, 7.0]), last)
    assert dual_rows._argument(piece, np.array([np.sinh(0.3), 0.0])) == pytest.approx([0.3, 7.0], rel=1e-12)


def test_the_middle_entry_of_a_dual_power_cone():
    """(u/α)^α (v/(1 − α))^(1 − α) = |w| at |w| = 1, too, and v = 0 only where w = 0."""
    w, alpha = np.array([1.0, -1.0, 0.5, 0.0]), 0.5
    v = dual_rows._second(np.full(4, 2.0), w, alpha)
    assert (2.0 / alpha) ** alpha * (v / (1 - alpha)) ** (1 - alpha) == pytest.approx(np.abs(w), rel=1e-9)


def test_systems_of_which_some_are_singular():
    """The others are solved; what has no solution gets no number."""
    K = np.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 1.0], [0.0, 1.0]]])
    found = dual_rows._solved(K, np.array([[1.0, 2.0], [5.0, 3.0]]))
    assert np.isnan(found[0]).all() and found[1].tolist() == [1.0, 3.0]


def test_systems_of_two_equations():
    """By Cramer's rule, as by LAPACK."""
    rng = np.random.default_rng(0)
    K, rhs = rng.normal(size=(50, 2, 2)), rng.normal(size=(50, 2))
    found = dual_rows._solved(K, rhs)
    assert found == pytest.approx(np.linalg.solve(K, rhs[:, :, None])[:, :, 0], rel=1e-9)
    K[:, 1] = 2 * K[:, 0] * (1 + 1e-15)
    assert dual_rows._solved(K, rhs) is None


def test_an_argument_in_either_cone_of_a_logistic_loss():
    """aᵀz = v with z = −1 there, and −α + 1 in the other cone."""
    a, v = np.zeros((2, 7)), np.array([2.0, 2.0])
    a[0, 1] = a[1, 4] = -2.0
    z = dual_rows._logistic(SimpleNamespace(a=a, c=np.array([[0.0, 3.0]] * 2)), v)
    assert np.sum(a * z, axis=1).tolist() == [2.0, 2.0]
    assert z[:, [1, 4]].tolist() == [[-1.0, -2.0], [-2.0, -1.0]]
