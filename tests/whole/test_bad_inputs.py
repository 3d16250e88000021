"""Bad inputs and degenerate cases, numbered."""

import re
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.compiler import violations
from kernelopt.compiler.violations import has_integers, with_integers
from kernelopt.errors import (
    DataError,
    DataTypeError,
    DCPError,
    KernelError,
    KernelOptError,
    KeywordError,
    MemoryLimitError,
    NotPSDError,
    ParameterError,
    RepresenterError,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
y = X[:, 0] + 0.1 * RNG.normal(size=20)
labels = np.where(y > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=1.0)


@pytest.fixture
def theta():
    return ko.Theta(KERNEL)


def ridge(theta, X=X, y=y, lam=0.1):
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_01_nan_and_inf(theta, value):
    broken = X.copy()
    broken[3, 1] = value
    with pytest.raises(DataError, match=re.escape("first at (3, 1)")):
        theta(broken)
    weights = np.ones(20)
    weights[7] = value
    with pytest.raises(DataError, match="first at 7"):
        ko.Problem(cp.Minimize(weights @ cp.abs(theta(X)))).solve()
    target = y.copy()
    target[5] = value
    with pytest.raises(DataError, match="first at 5"):
        ridge(theta, y=target).solve()
    with pytest.raises(DataError, match="y to be finite.* at 5"):
        ko.losses.squared_error(target, theta(X))


def test_02_kernel_output(theta):
    large = ko.Theta(ko.kernels.Polynomial(degree=40))
    with pytest.raises(ko.errors.KernelError, match="rows"):
        ridge(large, X=1e10 * X).solve()


def test_03_no_rows(theta):
    with pytest.raises(DataError, match="at least one point"):
        theta(np.zeros((0, 2)))
    with pytest.raises(DataError, match="at least one row"):
        ko.FeatureMatrix(X, KERNEL)[:0]


def test_04_one_row(theta):
    problem = ridge(theta, X[:1], y[:1], lam=1.0)
    assert problem.solve() == pytest.approx(y[0] ** 2 / 2, rel=1e-6)
    assert theta.value(X[:1]) == pytest.approx(y[:1] / 2, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("lam", [0.0, 0.1])
def test_05_repeated_rows(theta, lam):
    twice, targets = np.vstack([X, X, X[:3]]), np.concatenate([y, y + 1, y[:3]])
    problem = ridge(theta, twice, targets, lam)
    problem.solve()
    assert problem.status in ("optimal", "optimal_inaccurate")
    assert "43 rows, 20 distinct" in str(problem.explain())
    # no component outside the row space: θ stands on the points that it was given
    assert set(map(tuple, theta.value.centers)) <= set(map(tuple, X))
    if lam:
        Phi = KERNEL(X)
        alpha = np.linalg.solve(
            np.kron(np.ones((2, 1)), Phi).T @ np.kron(np.ones((2, 1)), Phi) + Phi[:3].T @ Phi[:3] + lam * Phi,
            np.vstack([Phi, Phi, Phi[:3]]).T @ targets,
        )
        assert np.abs(theta.value(X) - Phi @ alpha).max() < 1e-4


def test_06_constant_and_zero_kernels():
    constant = ko.Theta(ko.kernels.Explicit(lambda X: np.ones((len(X), 1))))
    problem = ridge(constant)
    problem.solve()
    assert "B 20 × 1," in str(problem.explain())
    assert np.ptp(constant.value(X)) < 1e-12
    zero = ko.Theta(0.0 * KERNEL)
    problem = ridge(zero)
    assert problem.solve() == pytest.approx(np.sum(y**2), rel=1e-9)
    assert problem.status == "optimal"
    assert "B 20 × 0," in str(problem.explain())
    assert np.array_equal(zero.value(X), np.zeros(20))
    assert zero.value.norm == 0


def test_07_indefinite(theta):
    sigmoid = np.tanh(X @ X.T - 1)
    with pytest.raises(NotPSDError, match="eigenvalue"):
        ridge(ko.Theta(ko.kernels.Precomputed(sigmoid)), X=np.arange(20)).solve()


def test_08_asymmetric_gram():
    Q = KERNEL(X)
    Q[0, 1] += 1e-9
    with pytest.raises(DataError, match="symmetric"):
        ko.kernels.Precomputed(Q)


@pytest.mark.parametrize("scale", [1e-16, 1e-8, 1e8, 1e16])
def test_09_kernel_scale(theta, scale):
    reference = ridge(theta)
    reference.solve()
    other = ko.Theta(scale * KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - other(X)) + (0.1 * scale) * ko.sum_squares(other)))
    assert problem.solve() == pytest.approx(reference.value, rel=1e-6)
    assert problem.status == "optimal"
    assert np.abs(other.value(X) - theta.value(X)).max() < 1e-6


def test_10_bad_lambda(theta):
    with pytest.raises(RepresenterError, match="larger norm is better"):
        ridge(theta, lam=-0.1).solve()
    with pytest.raises(DataError, match="NaN"):
        ridge(theta, lam=np.nan).solve()
    lam = cp.Parameter(nonneg=True)
    with pytest.raises(ValueError, match="nonnegative"):
        lam.value = -1.0


@pytest.mark.slow
def test_11_no_penalty(theta):
    for lam in (0.0, None):
        objective = cp.sum(ko.losses.absolute_error(y, theta(X)))
        problem = ko.Problem(cp.Minimize(objective if lam is None else objective + lam * ko.sum_squares(theta)))
        assert ("its length is open" in str(problem.explain())) == (lam is None)
        assert problem.solve(rank_tol=1e-13) < 1e-4
        assert problem.status in ("optimal", "optimal_inaccurate")


@pytest.mark.slow
def test_11_no_penalty_at_low_rank(theta):
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))))
    problem.solve(max_rank=4)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "reduced problem"
    bounded = ko.Problem(problem.objective, [ko.norm(theta) <= 2])
    bounded.solve(max_rank=4)
    assert bounded.certificate.scope == "full kernel"


@pytest.mark.slow
def test_12_separable_logistic_without_penalty():
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(np.sign(X[:, 0]), theta(X)))))
    problem.solve()
    assert problem.status == "not_attained"


@pytest.mark.slow
def test_13_hard_margins(theta):
    linear = ko.Theta(ko.kernels.Linear())
    mixed = np.sign(np.sin(5 * X[:, 0]))
    cannot = ko.Problem(cp.Minimize(ko.sum_squares(linear)), [ko.margin(mixed, linear(X)) >= 1])
    assert cannot.solve() == np.inf
    assert cannot.status == "infeasible"
    twice, opposite = np.r_[X, X[:1]], np.r_[labels, -labels[0]]
    equal = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [ko.margin(opposite, theta(twice)) >= 1])
    assert equal.solve() == np.inf
    assert equal.status == "infeasible"
    narrow = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    low = ko.Problem(cp.Minimize(ko.sum_squares(narrow)), [ko.margin(mixed, narrow(X)) >= 1])
    alone = low.solve()
    assert low.status == "optimal"
    low.solve(max_rank=2)
    assert low.status in ("user_limit", "optimal_inaccurate")  # never "infeasible"
    pair = ko.Theta(narrow.kernel, outputs=2)
    both = [ko.margin(mixed, pair(X)[:, 0]) >= 1, ko.margin(mixed, pair(X)[:, 1]) >= 2]
    low = ko.Problem(cp.Minimize(ko.sum_squares(pair)), both)
    low.solve(max_rank=2)
    assert low.status in ("user_limit", "optimal_inaccurate")
    assert low.solve() == pytest.approx(5 * alone, rel=1e-5)


@pytest.mark.slow
def test_14_linear_objectives(theta):
    for objective in (cp.sum(theta(X)), cp.sum(theta(X)) + 1e-3 * ko.norm(theta)):
        problem = ko.Problem(cp.Minimize(objective))
        assert problem.solve() == -np.inf
        assert problem.status == "unbounded"
    bounded = ko.Problem(cp.Minimize(cp.sum(theta(X)) + 1e-6 * ko.sum_squares(theta)))
    bounded.solve()
    assert bounded.status == "optimal"


@pytest.mark.slow
def test_15_one_class(theta):
    b = cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.ones(20), theta(X) + b)) + ko.sum_squares(theta)))
    assert problem.solve() == pytest.approx(0, abs=1e-6)


def test_16_shapes(theta):
    for wrong in (y[:-1], y[:, None], y[None, :]):
        with pytest.raises(DataError) as refusal:
            ko.losses.squared_error(wrong, theta(X))
        assert str(wrong.shape) in str(refusal.value)
        assert "(20,)" in str(refusal.value)
    with pytest.raises(DataError, match=r"\(20,\).*reshape"):
        theta(y)
    with pytest.raises(DataError, match=r"\(1, 20, 2\)"):
        theta(X[None])
    with pytest.raises(DataError, match="different lengths"):
        theta([[1.0, 2.0], [3.0]])


def test_17_negative_weights(theta):
    weights = np.ones(20)
    weights[2] = -1.0
    with pytest.raises(DCPError, match="negative, -1 first at 2"):
        ko.Problem(cp.Minimize(weights @ ko.losses.squared_error(y, theta(X)))).solve()


def memmap(path):
    mapped = np.memmap(path / "X.bin", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    return np.memmap(path / "X.bin", dtype=np.float64, mode="r", shape=X.shape)


KINDS = {
    "sparse": lambda path: sp.csr_matrix(X),
    "sparse array": lambda path: sp.csc_array(X),
    "pandas": lambda path: pd.DataFrame(X, columns=["a", "b"]),
    "mixed pandas": lambda path: pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(object)}),
    "list": lambda path: X.tolist(),
    "float32": lambda path: X.astype(np.float32),
    "Fortran order": lambda path: np.asfortranarray(X),
    "read-only memmap": memmap,
    "strided": lambda path: np.repeat(X, 2, axis=0)[::2],
}


@pytest.mark.parametrize("kind", KINDS)
def test_18_kinds_of_data(kind, theta, tmp_path):
    data = KINDS[kind](tmp_path)
    reference = ko.Theta(KERNEL)
    expected = ridge(reference).solve()
    assert ridge(theta, data).solve() == pytest.approx(expected, rel=1e-5)
    assert np.allclose(theta.value(data), reference.value(X), atol=1e-5)
    assert theta.value(data).dtype == np.float64
    again = data.toarray() if sp.issparse(data) else np.asarray(data, dtype=float)
    assert np.allclose(again, X, atol=1e-6)


@pytest.mark.parametrize("dtype", [int, bool, np.int8])
def test_18_integers(theta, dtype):
    assert ridge(theta, (X > 0).astype(dtype)).solve() == pytest.approx(ridge(ko.Theta(KERNEL), (X > 0) * 1.0).solve())


@pytest.mark.parametrize(
    "data", [X + 1j, np.array([["a", "b"]]), np.array([[object(), None]]), [["1.0", "2.0"]], pd.DataFrame({"a": ["x"]})]
)
def test_19_not_real_numbers(theta, data):
    with pytest.raises(DataTypeError, match=r"Gaussian\(sigma=1\.0\)"):
        theta(data)
    with pytest.raises(TypeError):
        theta(data)


@pytest.mark.slow
def test_21_memory(theta):
    many = np.arange(400_000.0).reshape(-1, 2)
    problem = ridge(theta, many, np.zeros(200_000))
    with pytest.raises(MemoryLimitError, match=r"200000 distinct rows needs about \d+ GB.*memory_limit") as refusal:
        problem.solve(memory_limit=2e9, factorization="cholesky")
    assert isinstance(refusal.value, MemoryError)
    with pytest.raises(
        MemoryLimitError, match=r"200000 distinct rows and \d+ columns needs about [0-9.]+ GB.*memory_limit"
    ):
        problem.solve(memory_limit=1e8)
    larger = ridge(ko.Theta(KERNEL), np.arange(4e6).reshape(-1, 2), np.zeros(2_000_000))
    with pytest.raises(MemoryLimitError, match="TB"):  # by default, what the machine has
        larger.solve(factorization="cholesky")


@pytest.mark.slow
def test_22_limits(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(X))) + 0.1 * ko.sum_squares(theta)))
    optimum = problem.solve()
    for solver, limit in (("SCS", {"max_iters": 1}), ("CLARABEL", {"max_iter": 2})):
        value = problem.solve(solver, **limit)
        assert problem.status in ("user_limit", "optimal_inaccurate")
        if value is not None:
            assert problem.certificate.lower <= optimum + 1e-6
            assert problem.certificate.upper == pytest.approx(value)
            assert problem.certificate.relative_gap > 1e-6


@pytest.mark.later
def test_28_two_runs_are_identical():
    values = []
    for _ in range(2):
        theta = ko.Theta(KERNEL)
        problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + ko.norm(theta)))
        problem.solve(max_rank=6)
        values.append((problem.value, problem.certificate.lower, theta.value(X).tobytes()))
    assert values[0] == values[1]


def test_29_another_kernel_or_columns(theta):
    used = theta(X)
    with pytest.raises(DataError, match="3 columns"):
        theta(RNG.normal(size=(4, 3)))
    with pytest.raises(RepresenterError, match="one kernel"):
        ko.FeatureMatrix(X, ko.kernels.Linear()) @ theta
    assert used.shape == (20,)


def test_30_parameters(theta):
    lam = cp.Parameter(nonneg=True, name="lam")
    problem = ridge(theta, lam=lam)
    with pytest.raises(ParameterError, match="lam"):
        problem.solve()
    with pytest.raises(ValueError, match="lam|Parameter"):
        lam.value = np.nan
    weights = cp.Parameter(20, nonneg=True, name="weights")
    weights.save_value(np.full(20, np.nan))
    with pytest.raises(ParameterError, match="weights"):
        ko.Problem(cp.Minimize(weights @ cp.square(theta(X)) + ko.norm(theta))).solve()


def test_31_values_before_a_solve(theta):
    b = cp.Variable()
    f = lambda X: theta(X) + b
    assert f(X).value is None
    ridge(theta).solve()
    with pytest.raises(DataError, match="2 columns.*3 columns"):
        f(RNG.normal(size=(4, 3)))
    with pytest.raises(DataError, match="2 columns"):
        theta.value(RNG.normal(size=(4, 3)))


def test_34_columns_against_flat(theta):
    with pytest.raises(RepresenterError, match=re.escape("(20, 20)")):
        ko.Problem(cp.Minimize(cp.sum_squares(y[:, None] - theta(X)))).solve()
    with pytest.raises(DataError, match=r"y\.ravel\(\)"):
        ko.losses.absolute_error(y[:, None], theta(X))
    with pytest.raises(RepresenterError, match="table"):
        ko.Problem(cp.Minimize(ko.norm(theta)), [y[:, None] <= theta(X)]).solve()
    with pytest.raises(RepresenterError, match="table"):
        ko.Problem(cp.Minimize(cp.sum(cp.abs(cp.multiply(y[:, None], theta(X)))))).solve()


def test_35_labels(theta):
    with pytest.raises(DataError, match="got 0, 1"):
        ko.losses.hinge((y > 0).astype(int), theta(X))
    with pytest.raises(DataError, match="counts y ≥ 0; got -"):
        ko.losses.poisson(y - 10, theta(X))


@pytest.mark.slow
def test_36_low_rank_and_no_norm(theta):
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X))))
    problem.solve(max_rank=3)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "reduced problem"


@pytest.mark.later
@pytest.mark.parametrize(("factor", "constant"), [(1.0, -15.1), (1.0, 1e6), (1e-8, 0.0)])
def test_37_shifted_and_scaled_objectives(theta, factor, constant):
    objective = cp.sum(ko.losses.hinge(labels, theta(X))) + 0.1 * ko.sum_squares(theta)
    plain, other = ko.Problem(cp.Minimize(objective)), ko.Problem(cp.Minimize(factor * objective + constant))
    value = plain.solve(max_rank=8)
    assert other.solve(max_rank=8) == pytest.approx(factor * value + constant, rel=1e-7)
    assert other.status == plain.status
    assert other.certificate.relative_gap == pytest.approx(plain.certificate.relative_gap, rel=1e-2)


@pytest.mark.slow
def test_38_integers_in_y(theta):
    """Choosing an offset among integers, by a linear program; no multipliers."""
    k = cp.Variable(integer=True)
    losses = ko.losses.absolute_error(y + 2, theta(X) + k)
    problem = ko.Problem(cp.Minimize(cp.sum(losses)), [cp.abs(theta(X)) <= 0.2, k >= 0, k <= 5])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name == "HIGHS"
    assert k.value == pytest.approx(2, abs=1e-6)
    assert problem.value == pytest.approx(np.maximum(0, np.abs(y) - 0.2).sum(), rel=1e-6)
    assert theta(X).dual_value is None


@pytest.mark.slow
def test_38_integers_and_a_norm(theta):
    k = cp.Variable(integer=True)
    problem = ko.Problem(
        cp.Minimize(cp.sum(ko.losses.absolute_error(y + 2, theta(X) + k)) + ko.norm(theta)), [k >= 0, k <= 5]
    )
    problem.solve()
    assert problem.status == "optimal"
    assert k.value == pytest.approx(2, abs=1e-6)
    assert theta(X).dual_value is None
    fixed = ko.Theta(KERNEL)
    best = min(
        ko.Problem(cp.Minimize(cp.sum(ko.losses.absolute_error(y + 2, fixed(X) + j)) + ko.norm(fixed))).solve()
        for j in range(4)
    )
    assert problem.value == pytest.approx(best, rel=1e-5)


MASKED = np.ma.masked_array(np.arange(20.0), np.arange(20) == 7)
TABLE = np.ma.masked_array(X, np.arange(40).reshape(20, 2) == 7)
lam = cp.Parameter(nonneg=True, value=1.0)
OF_MASKED = {
    "points": lambda t: t(TABLE),
    "blocks": lambda t: t(iter([X, TABLE])),
    "rows of a list": lambda t: t(list(TABLE)),
    "objects": lambda t: ko.Theta(ko.kernels.FromFunction(lambda a, b: 1.0))(np.ma.masked_array([1, 2], [True, False])),
    "row numbers": lambda t: ko.Theta(ko.kernels.Precomputed(np.eye(2)))(np.ma.masked_array([0, 1], [True, False])),
    "a kernel matrix": lambda t: ko.kernels.Precomputed(np.ma.masked_array(np.eye(2), np.eye(2))),
    "targets": lambda t: cp.sum_squares(MASKED - t(X)),
    "targets on the right": lambda t: cp.sum_squares(t(X) - MASKED),
    "targets added": lambda t: t(X) + MASKED,
    "targets of a loss": lambda t: ko.losses.squared_error(MASKED, t(X)),
    "levels of a loss": lambda t: ko.losses.pinball(
        X, ko.Theta(KERNEL, outputs=2)(X), np.ma.masked_array([0.1, 0.9], [0, 1])
    ),
    "weights": lambda t: MASKED @ t(X),
    "a bound": lambda t: t(X) <= MASKED,
    "a lower bound": lambda t: t(X) >= MASKED,
    "an equality": lambda t: t(X) == MASKED,
    "a divisor": lambda t: t(X) / MASKED,
    "a penalty": lambda t: np.ma.masked_array(2.0, True) * ko.norm(t),
    "coefficients": lambda t: ko.Function(KERNEL, X, MASKED),
    "kernel values": lambda t: ko.Function(KERNEL, X[:2], [1.0, 2.0]).from_gram(TABLE),
    "new points": lambda t: ko.Function(KERNEL, X[:2], [1.0, 2.0])(TABLE),
    "values of a path": lambda t: ko.path(ridge(t, lam=lam), lam, np.ma.masked_array([1.0, 0.1], [False, True])),
    "data of an alignment": lambda t: ko.kernel_alignment(KERNEL, X, MASKED),
    "a feature map": lambda t: ko.kernels.Explicit(lambda points: np.ma.masked_array(points, points > 0))(X),
}


@pytest.mark.parametrize("name", OF_MASKED)
def test_39_masked_arrays(name, theta):
    with pytest.raises(DataError, match="Expected .*mask.*; got a masked array.*Drop the rows"):
        OF_MASKED[name](theta)


def test_39_masked_values_elsewhere(theta):
    estimators = pytest.importorskip("kernelopt.estimators")
    model = estimators.KernelRegressor()
    for X_, y_, weights in ((TABLE, y, None), (X, MASKED, None), (X, y, MASKED)):
        with pytest.raises(DataError, match="masked"):
            model.fit(X_, y_, sample_weight=weights)
    with pytest.raises(DataError, match="masked"):
        model.fit(X, y).predict(TABLE)
    problem = ridge(theta, lam=lam)
    problem.solve()
    with pytest.raises(DataError, match="masked"):
        problem.certificate_at({lam: np.ma.masked_array(2.0, True)})


def test_39_a_mask_that_hides_nothing(theta):
    """As files of measurements are read."""
    whole = np.ma.masked_array(X, np.zeros((20, 2)))
    assert theta(whole).shape == (20,)
    assert np.array_equal(KERNEL(whole), KERNEL(X))
    assert ko.losses.squared_error(np.ma.masked_array(y), theta(X)).shape == (20,)


FOUR, OF_FOUR = np.arange(4.0)[:, None], np.array([1.0, -1.0, 2.0, 0.5])


@pytest.mark.later
def test_41_a_boolean_that_is_zero():
    """A solver's −8e-12 is 0; the value is that of the problem without the boolean."""
    theta, z, plain = ko.Theta(KERNEL), cp.Variable(boolean=True), ko.Theta(KERNEL)
    losses = [cp.sum(cp.abs(t(FOUR) - OF_FOUR)) + 0.3 * ko.sum_squares(t) for t in (theta, plain)]
    problem = ko.Problem(cp.Minimize(losses[0] + z))
    assert problem.solve() == pytest.approx(ko.Problem(cp.Minimize(losses[1])).solve(), rel=1e-6)
    assert problem.status == "optimal"
    assert z.value == 0.0


@pytest.mark.slow
def test_41_some_entries_are_boolean():
    theta, Z = ko.Theta(KERNEL), cp.Variable((2, 2), boolean=[(0, 1), (0, 1)])
    problem = ko.Problem(
        cp.Minimize(
            cp.sum_squares(theta(FOUR) - cp.vec(Z, order="F"))
            + cp.sum_squares(theta(FOUR) - OF_FOUR)
            + ko.sum_squares(theta)
        )
    )
    problem.solve()
    assert problem.status == "optimal"
    best = np.inf
    for diagonal in ((0, 0), (0, 1), (1, 0), (1, 1)):
        fixed, others = ko.Theta(KERNEL), cp.Variable(2)
        W = cp.hstack([diagonal[0], others, diagonal[1]])
        loss = cp.sum_squares(fixed(FOUR) - W) + cp.sum_squares(fixed(FOUR) - OF_FOUR)
        best = min(best, ko.Problem(cp.Minimize(loss + ko.sum_squares(fixed))).solve())
    assert problem.value == pytest.approx(best, rel=1e-6)


@pytest.mark.slow
def test_41_theta_restricted_beside_integers():
    x, targets = np.linspace(0, 6, 30)[:, None], np.random.default_rng(0).normal(size=30)
    values = []
    for options in ({"max_rank": 10}, {"rank_tol": 1e-8}, {}):
        theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(boolean=True)
        problem = ko.Problem(cp.Minimize(cp.norm1(targets - theta(x))), [theta(x[:1]) <= 100 * z])
        values.append(problem.solve(**options))
        assert problem.status == "optimal_inaccurate"  # all fits exactly, with a norm that no double can use
    assert values[0] > values[1] > values[2]
    spread, z = ko.Theta(ko.kernels.Gaussian(sigma=0.1)), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(cp.norm1(targets - spread(x))), [spread(x[:1]) <= 100 * z])
    assert problem.solve() < 1e-6
    assert problem.status == "optimal"
    problem.solve(max_rank=29)
    assert problem.status == "optimal_inaccurate"


@pytest.mark.later
def test_41_features_that_are_all_there():
    """Two columns that say the same: rank 2 of 3 features is all that there is."""
    x = np.linspace(0, 6, 30)
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(boolean=True)
    A = np.column_stack([x, np.ones(30), x])
    problem = ko.Problem(cp.Minimize(cp.norm1(np.sin(x) - theta(A))), [theta(A[:1]) <= 10 * z - 5])
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.later
def test_41_infeasible_with_a_restricted_theta_is_no_proof():
    """Integers or not, 30 equalities need 30 columns of B."""
    x, targets = np.linspace(0, 6, 30)[:, None], np.random.default_rng(0).normal(size=30)
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(z), [theta(x) == targets])
    problem.solve()
    assert problem.status == "user_limit"
    none = ko.Problem(cp.Minimize(z), [z >= 0.2, z <= 0.8, ko.Theta(ko.kernels.Gaussian(sigma=0.1))(x) == targets])
    none.solve()
    assert none.status == "infeasible"


@pytest.mark.later
def test_41_rounding_that_would_break_a_constraint_is_not_done():
    """A solver's 1e-7 for a boolean opens 1e4 of a bound."""
    theta, z = ko.Theta(KERNEL), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(z), [theta(FOUR[:1]) <= 1e11 * z, theta(FOUR[:1]) == 1])
    problem.solve()
    reduction, point = reduction_of(problem), point_of(problem)
    near = with_integers(reduction, replace(point, y=(np.array(1e-7),)))
    assert near.y[0] == 1e-7
    assert not has_integers(reduction.form, near)
    near = with_integers(reduction, replace(point, y=(np.array(1 - 1e-7),)))
    assert near.y[0] == 1.0
    assert has_integers(reduction.form, near)


@pytest.mark.later
def test_41_an_answer_without_integers_is_not_optimal(monkeypatch):
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(boolean=True)
    monkeypatch.setattr(violations, "rounded", lambda variable, value: np.array(np.asarray(value) - 1e-9))
    problem = ko.Problem(cp.Minimize(z + cp.norm1(theta(FOUR) - OF_FOUR)))
    problem.solve()
    assert problem.status == "optimal_inaccurate"


def in_units(name, theta, s):
    """(y, objective) × s in one way or another, and the optimum in units of its own at s = 1."""
    losses = {
        "ridge": cp.sum_squares(y - theta(X)) + 0.1 * ko.sum_squares(theta),
        "hinge": cp.sum(ko.losses.hinge(labels, theta(X))) + 0.1 * ko.sum_squares(theta),
        "logistic": cp.sum(ko.losses.log_loss(labels, theta(X))) + 0.1 * ko.sum_squares(theta),
        "a norm": cp.norm(y - theta(X)) + 0.1 * ko.norm(theta),
        "targets": cp.sum_squares(s * y - theta(X)) + 0.1 * ko.sum_squares(theta),
    }
    return ko.Problem(cp.Minimize(losses[name] if name == "targets" else s * losses[name]))


@pytest.mark.parametrize("s", [1e-320, 1e-300, 1e-180, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("name", ["ridge", "hinge", "logistic", "a norm", "targets"])
def test_44_numbers_whose_squares_no_double_holds(name, s, theta):
    with pytest.raises(DataError, match="between 1e-150 and 1e\\+150.*got .*Change units"):
        in_units(name, theta, s).solve()


@pytest.mark.one_row
@pytest.mark.parametrize("s", [1e-140, 1e-100, 1e100, 1e140])
@pytest.mark.parametrize("name", ["ridge", "hinge", "logistic", "targets"])
def test_44_numbers_whose_squares_are_held(name, s, theta):
    problem, unit = in_units(name, theta, s), in_units(name, ko.Theta(KERNEL), 1.0)
    assert problem.solve() / (s * s if name == "targets" else s) == pytest.approx(unit.solve(), rel=1e-5)
    assert problem.status == "optimal"


@pytest.mark.slow
def test_44_single_numbers_of_any_size(theta):
    """Targets, weights and bounds that vanish or are as good as infinite change nothing for the others."""
    weights = np.where(np.arange(20) == 3, 1e-200, 1.0)
    losses, u = cp.multiply(weights, cp.abs(theta(X) - weights)), theta(X)
    for constraints in ([u <= 1e200], [ko.norm(theta) <= 1e100], []):
        problem = ko.Problem(
            cp.Minimize(cp.sum(losses) + 1e-200 * cp.abs(u[0]) + 0.1 * ko.sum_squares(theta)), constraints
        )
        problem.solve()
        assert problem.status in ("optimal", "optimal_inaccurate")
        assert problem.certificate.lower <= problem.value <= problem.certificate.upper


def test_44_rows_and_bounds(theta):
    for constraint in (1e200 * theta(X) <= 1e200, 1e-200 * theta(X) <= 1e-200, ko.norm(theta) <= 1e200):
        with pytest.raises(DataError, match="Change units"):
            ko.Problem(cp.Minimize(cp.sum(cp.abs(y - theta(X))) + ko.sum_squares(theta)), [constraint]).solve()


@pytest.mark.parametrize("s", [1e-310, 1e-250, 1e-180, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("method", ["cholesky", "streamed", "eigen"])
def test_44_kernel_values_without_digits(s, method):
    for kernel in (
        ko.kernels.Linear(),
        2 * ko.kernels.Polynomial(degree=2, offset=0.0),
        ko.kernels.Linear().normalized(),
    ):
        with pytest.raises(KernelError, match="digits.*Change the units|Rescale the data"):
            ridge(ko.Theta(kernel), s * X).solve(factorization=method)


@pytest.mark.slow
def test_44_kernels_of_points_of_any_size(theta):
    angle = ko.kernels.Cosine()(X)
    for s in (1e-300, 1e-200, 1e200, 1e300):
        assert ko.kernels.Cosine()(s * X) == pytest.approx(angle, rel=1e-12)
        for kernel in (ko.kernels.Gaussian, ko.kernels.Laplacian, ko.kernels.RationalQuadratic):
            tiny = ko.Theta(kernel(sigma=s))
            assert ridge(tiny, s * X).solve() == pytest.approx(ridge(ko.Theta(kernel(sigma=1.0))).solve(), rel=1e-6)
    assert ko.Theta(0 * ko.kernels.Linear())(1e-200 * X).shape == (20,)
    assert ridge(ko.Theta(0 * ko.kernels.Linear()), 1e-200 * X).solve() == pytest.approx(y @ y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_44_derivatives_at_extreme_scales():
    for s in (1e-200, 1e200):
        for kernel in (
            ko.kernels.Gaussian(sigma=s),
            ko.kernels.Periodic(period=1.0, sigma=s),
            ko.kernels.Periodic(period=s),
        ):
            slopes = ko.FeatureMatrix(X, kernel).derivative(0)
            assert slopes.diag().shape == (20,)
            assert slopes.modulus(1.0).shape == (20,)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1e-200))
    slopes = ko.FeatureMatrix(X, theta.kernel).derivative(0) @ theta
    with pytest.raises(KernelError, match="Rescale"):
        ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + ko.sum_squares(theta)), [slopes <= 1]).solve()


@pytest.mark.slow
def test_44_columns_of_far_units():
    """1e8 and 1e-8 together: a bound that holds, and with a scale for each column the optimum."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 3))
    targets = Z @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=40)
    A, F = Z * [1e8, 1e-8, 1.0], np.vstack([Z, np.sqrt(1e-3) * np.diag([1e-8, 1e8, 1.0])])
    for scales, G in (([1.0, 1.0, 1.0], F), ([1e8, 1e-8, 1.0], np.vstack([Z, np.sqrt(1e-3) * np.eye(3)]))):
        problem = ridge(ko.Theta(ko.kernels.Linear().ard(scales)), A, targets, 1e-3)
        problem.solve()
        best = np.linalg.lstsq(G, np.append(targets, np.zeros(3)), rcond=None)[1][0]
        assert problem.certificate.lower <= best * (1 + 1e-9)
        assert problem.certificate.upper >= best * (1 - 1e-9)
        assert (problem.status == "optimal") == (scales[0] != 1.0)


def test_extreme_units(theta):
    """Data and targets × 1e-8: the same problem, the same answer."""
    tiny = ko.Theta(ko.kernels.Gaussian(sigma=1e-8))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - tiny(1e-8 * X)) + 0.1 * ko.sum_squares(tiny)))
    assert problem.solve() == pytest.approx(ridge(theta).solve(), rel=1e-6)


def test_every_error_is_ours():
    for name in ko.errors.__dict__.values():
        if isinstance(name, type) and issubclass(name, Exception):
            assert issubclass(name, KernelOptError)


def test_lists_of_another_shape_and_keywords_of_theta():
    f = ko.Theta(ko.kernels.Gaussian(sigma=1.0))(np.zeros((6, 2)))
    with pytest.raises(DataError, match=r"array of shape \(6,\), as predictions have, beside them; got shape \(2,\)"):
        f >= [1, 2]  # noqa: B015
    assert (f <= [1, 2, 3, 4, 5, 6]).shape == (6,)
    with pytest.raises(DataError, match="rows of different lengths"):
        ko.kernels.Precomputed([[1, 2], [2]])
    with pytest.raises(KeywordError, match=r"of Theta, kernel, outputs, name; got output=2\. Did you mean outputs\?"):
        ko.Theta(ko.kernels.Linear(), output=2)
