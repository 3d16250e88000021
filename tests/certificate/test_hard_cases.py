"""Cases in which a status or a bound was once wrong: each may end undecided, never wrong."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import kernelopt as ko
from kernelopt.errors import KernelOptError, OptionError, ParameterError

LINEAR, QUADRATIC = ko.kernels.Linear(), ko.kernels.Polynomial(degree=2)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 2))
LABELS = np.sign(RNG.normal(size=10))


def svm(bounds=lambda theta, b: [], scale=1.0):
    theta, b = ko.Theta(LINEAR), cp.Variable()
    loss = cp.sum(ko.losses.hinge(LABELS, theta(scale * X) + b))
    return ko.Problem(cp.Minimize(loss + 0.1 * scale**2 * ko.sum_squares(theta)), bounds(theta, b))


@pytest.mark.parametrize(
    "bounds",
    [
        lambda theta, b: [b <= 1e10, b >= -1e10],
        lambda theta, b: [b <= 1e8],
        lambda theta, b: [ko.norm(theta) <= 1e10],
        lambda theta, b: [theta(X) <= 1e9],
        lambda theta, b: [cp.Variable() >= 1e9],
    ],
)
def test_a_large_bound_that_does_not_bind(bounds):
    optimum = svm().solve()
    problem = svm(bounds)
    value = problem.solve()
    if problem.status == "optimal":
        assert value == pytest.approx(optimum, rel=1e-6)
    if value is not None:
        assert problem.certificate.lower - 1e-5 <= optimum <= problem.certificate.upper + 1e-5


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e6])
def test_features_in_other_units(scale):
    """max margin loss in a ball: 0.3/s for features × s."""
    optimum = None
    for s in (1.0, scale):
        theta, b = ko.Theta(LINEAR), cp.Variable()
        loss = cp.sum(cp.pos(1 - cp.multiply(LABELS, theta(s * X) + b)))
        problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 0.3 / s])
        value = problem.solve()
        optimum = value if optimum is None else optimum
        assert problem.status == "optimal"
        assert value == pytest.approx(optimum, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("s", [1e-6, 1e-7, 1e-8])
def test_features_of_unequal_size(s):
    """θ = (0, 1/s) fits exactly, though Q hides the second feature below its rounding."""
    z = RNG.normal(size=8)
    points = np.c_[np.ones(8), s * z]
    theta = ko.Theta(LINEAR)
    for objective, highest in (
        (cp.sum_squares(z - theta(points)), 0.0),
        (cp.sum_squares(z - theta(points)) + 1e-4 * s**2 * ko.sum_squares(theta), 1.01e-4),
    ):
        problem = ko.Problem(cp.Minimize(objective))
        value = problem.solve()
        if problem.status == "optimal":
            assert value <= highest + 1e-6
        if problem.certificate.scope == "full kernel" and not problem.certificate.assumptions:
            assert problem.certificate.lower <= highest + 1e-6
    interpolation = ko.Problem(cp.Minimize(0), [theta(points) == z])
    interpolation.solve()
    assert interpolation.status != "infeasible"


@pytest.mark.slow
@pytest.mark.parametrize(
    "atom", [lambda u: -cp.sum(cp.sqrt(u)), lambda u: cp.sum(cp.inv_pos(u)), lambda u: -cp.sum(cp.log(u))]
)
def test_without_a_minimizer(atom):
    theta = ko.Theta(QUADRATIC)
    problem = ko.Problem(cp.Minimize(atom(theta(X))))
    problem.solve()
    assert problem.status != "optimal"


@pytest.mark.later
@pytest.mark.parametrize("lam", [1e-7, 1e-8])
def test_a_small_penalty_bounds_a_slow_fall(lam):
    """−√u + λ|θ| has the optimum −1/(4λ)."""
    theta = ko.Theta(LINEAR)
    problem = ko.Problem(cp.Minimize(-cp.sum(cp.sqrt(theta([[1.0]]))) + lam * ko.norm(theta)))
    value = problem.solve()
    assert problem.status != "unbounded"
    if problem.status == "optimal":
        assert value == pytest.approx(-1 / (4 * lam), rel=1e-5)


def test_a_small_penalty_attains_separable_logistic():
    theta = ko.Theta(LINEAR)
    signs, points = np.array([-1.0, 1.0]), np.array([[-1.0], [1.0]])
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(signs, theta(points))) + 1e-9 * ko.norm(theta)))
    problem.solve()
    assert problem.status != "not_attained"


@pytest.mark.slow
def test_multipliers_are_checked_for_new_values_of_parameters():
    theta, b, shifts = ko.Theta(LINEAR), cp.Variable(), cp.Parameter(10, value=np.ones(10))
    loss = cp.sum(ko.losses.hinge(LABELS, theta(X) + cp.multiply(shifts, b)))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    found = problem.certificate_at({shifts: 5 * LABELS})  # b = 0.2 fits exactly
    assert found.lower <= 1e-9


@pytest.mark.slow
def test_logarithms_of_numbers_that_are_nearly_0():
    """The optimum has all predictions at their bound of 1e-9."""
    theta = ko.Theta(QUADRATIC)
    problem = ko.Problem(cp.Minimize(-cp.sum(cp.log(theta(X))) + ko.sum_squares(theta)), [theta(X) <= 1e-9])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(90 * np.log(10), rel=1e-6)


@pytest.mark.slow
def test_matrix_inequalities_that_cannot_hold():
    """[[1, u], [u, 1]] ⪰ 0 says |u| ≤ 1."""
    theta = ko.Theta(LINEAR)
    u = theta([[1.0, 0.0]])[0]
    matrix = cp.bmat([[1.0, u], [u, 1.0]]) >> 0
    loose = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [matrix, u >= 0.9])
    assert loose.solve() == pytest.approx(0.81, rel=1e-5)
    assert loose.status == "optimal"
    tight = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [matrix, u >= 1.5])
    assert tight.solve() == np.inf
    assert tight.status == "infeasible"


@pytest.mark.slow
def test_a_restricted_answer_with_integers_is_not_optimal():
    points = RNG.normal(size=(6, 3))
    theta, b = ko.Theta(LINEAR), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(b + cp.norm1(theta(points) - points @ np.ones(3))))
    problem.solve(max_rank=1)
    assert problem.status == "optimal_inaccurate"


def test_a_problem_of_constants():
    assert ko.Problem(cp.Minimize(3)).solve() == 3


def test_a_diagonal_variable():
    theta, D = ko.Theta(LINEAR), cp.Variable((2, 2), diag=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(LABELS - theta(X)) + cp.sum_squares(D - 1) + ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"


# ---------------------------------------------------------------- clear errors, and nothing lost


@pytest.mark.slow
@pytest.mark.parametrize("size", [cp.abs, cp.square, lambda d: cp.norm(cp.vstack([d, d]))])
def test_zero_as_a_bound_of_what_rounds(size):
    """What a function of predictions that cancel may depart from zero is measured by their size, not by its own."""
    theta, b = ko.Theta(QUADRATIC), cp.Variable()
    f = theta(X) + b
    difference = (cp.sum(f[:4]) / 4 - cp.sum(f[4:]) / 6) * 100
    objective = cp.Minimize(cp.sum(ko.losses.log_loss(LABELS, f)) + 0.1 * ko.sum_squares(theta))
    expected = ko.Problem(objective, [difference == 0]).solve()
    problem = ko.Problem(objective, [size(difference) <= 0])
    assert problem.solve() == pytest.approx(expected, rel=1e-5)
    assert abs(difference.value) < 1e-6 * 200 * np.abs(f.value).max()  # of the sum of |coefficient|·|f|


@pytest.mark.slow
def test_norms_of_columns_beside_the_whole():
    """The gradients of ‖θ₁‖, ‖θ₂‖ … add up to that of ‖θ‖: which share of ν is whose, ν alone doesn't say."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, size=40))[:, None]
    theta, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable(3)
    slopes = ko.FeatureMatrix(np.linspace(-2, 2, 30)[:, None], theta.kernel).derivative(0)
    rising = [0.1 * ko.norm(theta[:, k]) <= slopes @ theta[:, k] for k in range(3)]
    y = np.repeat(np.sin(1.5 * x) + x / 2 + 0.5 * rng.normal(size=x.shape), 3, axis=1)
    loss = cp.sum(ko.losses.pinball(y, theta(x) + c[None, :], [0.2, 0.5, 0.8]))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), rising)
    problem.solve("CLARABEL", tol=1e-7)
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-7
    assert len(problem.solver_stats.attempts) == 1


def test_errors_are_ours():
    theta, b, lam = ko.Theta(LINEAR), cp.Variable(), cp.Parameter(nonneg=True, value=0.1, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(LABELS - theta(X) - b) + lam * ko.sum_squares(theta)))
    problem.solve()
    for value in (-1.0, np.nan, "x", [1, 2]):
        with pytest.raises(ParameterError):
            problem.certificate_at({lam: value})
        assert lam.value == 0.1
    for key in ("lam", None, cp.Parameter(value=1.0)):
        with pytest.raises(ParameterError, match="parameters of this problem"):
            problem.certificate_at({key: 1.0})
    for options in ({"tol": 0}, {"tol": -1}):
        with pytest.raises(OptionError, match="tol"):
            problem.verify(**options)
    for options in ({"certify": np.array([1, 2])}, {"abs_tol": True}, {"time_limit": True}):
        with pytest.raises(OptionError):
            problem.solve(**options)
    b.value = None
    for ask in (problem.verify, lambda: problem.certificate_at({})):
        with pytest.raises(KernelOptError, match="Solve again"):
            ask()
    lam.value = None
    with pytest.raises(ParameterError):
        problem.verify()


def test_a_failed_solve_changes_nothing():
    problem = svm()
    problem.solve()
    before = str(problem.explain()), problem.value, problem.status
    with pytest.raises(ko.errors.SolverError):
        problem.solve(solver="CLARABEL", rank_tol=1e-2, nonsense=3)
    assert (str(problem.explain()), problem.value, problem.status) == before
    assert problem.verify().passed


@pytest.mark.later
def test_an_audit_changes_nothing():
    theta, b = ko.Theta(LINEAR), cp.Variable()
    bound = b <= 0.1
    problem = ko.Problem(cp.Minimize(cp.sum_squares(LABELS - theta(X) - b) + ko.sum_squares(theta)), [bound])
    problem.solve()
    dual = float(bound.dual_value)
    theta.value = ko.Function(LINEAR, X[:2] + 1, [1.0, 2.0])
    problem.verify()
    assert bound.dual_value == dual


@pytest.mark.slow
def test_reports_of_degenerate_problems():
    theta = ko.Theta(LINEAR)
    for objective in (ko.sum_squares(theta), cp.sum_squares(theta(X)) + ko.sum_squares(theta)):
        problem = ko.Problem(cp.Minimize(objective))
        problem.solve()
        assert problem.status == "optimal"
        assert problem.verify().passed, str(problem.verify())
    slack = ko.Problem(cp.Minimize(cp.sum_squares(0.01 * LABELS - theta(X))), [ko.norm(theta) <= 1])
    slack.solve()
    assert slack.verify().passed, str(slack.verify())
    unbounded = ko.Problem(cp.Minimize(cp.sum(theta(X))))
    theta.value = ko.Function(LINEAR, X[:2], np.ones(2))
    assert not unbounded.verify().passed


@pytest.mark.later
def test_predictions_without_a_norm_at_full_rank_with_an_intercept():
    """ν vanishes in each row, so that Σν does: the intercept's column is the sum of the rows'."""
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    points[5] = points[0]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(points) + b - y))))
    assert problem.solve() == pytest.approx(abs(y[5] - y[0]), rel=1e-6)
    assert problem.status == "optimal"
    assert problem.certificate.assumptions == ()


@pytest.mark.slow
def test_a_square_of_a_variable_beside_a_smooth_loss():
    rng = np.random.default_rng(1)
    points, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    square = ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: 2 * (u - y), lambda u, y: 2.0 + 0 * u)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    fit, parts = square(theta(points) + b, y), []
    for loss in (cp.sum(fit), cp.sum_squares(theta(points) + b - y)):
        problem = ko.Problem(cp.Minimize(loss + cp.sum(cp.abs(theta(points))) + b**2 + 0.1 * ko.norm(theta)))
        parts.append(problem.solve())
        assert problem.status == "optimal"
    assert parts[0] == pytest.approx(parts[1], rel=1e-6)


@pytest.mark.slow
def test_ridge_whose_predictions_only_exact_sums_know():
    """λ = 1e-10: Bv is no prediction of the computed kernel matrix to the digits that count."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 3))
    y = 100 * rng.normal(size=120)
    kernel = ko.kernels.Gaussian(sigma=3.0)
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - y) + 1e-10 * ko.sum_squares(theta)))
    value = problem.solve()
    found = problem.certificate
    assert found.lower <= value <= found.upper
    assert problem.status == "optimal"
    Q = kernel(points, points)
    c = KernelRidge(alpha=1e-10, kernel="precomputed").fit(Q, y).dual_coef_
    with np.errstate(all="ignore"):
        reached = float(np.sum((Q @ c - y) ** 2) + 1e-10 * c @ Q @ c)
    assert value <= reached * (1 + 1e-6)


@pytest.mark.slow
def test_what_a_certificate_rests_on():
    points, y = RNG.normal(size=(6, 2)), RNG.normal(size=6)
    declared = ko.kernels.FromFunction(lambda a, b: float(a @ b + 1), psd=True)
    square = ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: 2 * (u - y), lambda u, y: 2.0 + 0 * u)
    for kernel, loss, told in (
        (declared, lambda u: cp.sum_squares(u - y), "positive semidefinite, as declared"),
        (QUADRATIC, lambda u: cp.sum(square(u, y)), "is convex, as declared"),
    ):
        theta = ko.Theta(kernel)
        problem = ko.Problem(cp.Minimize(loss(theta(points)) + ko.sum_squares(theta)))
        problem.solve()
        assert problem.status == "optimal"
        assert any(told in sentence for sentence in problem.certificate.rests_on)
        assert told in str(problem.certificate)
    theta = ko.Theta(QUADRATIC)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(RNG.normal(size=(20, 2))) - RNG.normal(size=20))))
    problem.solve()
    assert "for features as computed" in problem.certificate.rests_on
    theta = ko.Theta(LINEAR)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - LABELS)))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.rests_on == ()


@pytest.mark.later
def test_violations_of_each_constraint():
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(f - LABELS) + ko.sum_squares(theta)), [b >= 1, cp.norm(theta(X[:3])) <= 0.1, b <= 3]
    )
    problem.solve(solver="SCS")
    found = problem.certificate
    assert len(found.violations) == 3
    assert found.violation == max(found.violations)
    assert found.violations == pytest.approx([float(np.max(c.violation())) for c in problem.constraints], abs=1e-12)
    assert found.is_feasible or problem.status != "optimal"


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "seed"), [("hinge", 3), ("hinge", 11), ("poisson", 4), ("poisson", 10)])
def test_no_norm_of_theta_and_rows_that_must_be_chosen_together(loss, seed):
    """Few features and repeated rows: rows chosen for one column after another leave others without any."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(10, 1 if seed % 2 else 3))[rng.integers(10, size=10)]
    labels = np.where(rng.normal(size=10) > 0, 1.0, -1.0)
    weights = rng.uniform(0, 2, size=10) * (rng.random(10) > 0.1)
    counts = np.round(np.abs(2 * rng.normal(size=10)))
    kernel = ko.kernels.Polynomial(degree=2, offset=0.4) if loss == "hinge" else ko.kernels.Linear()
    theta, b = ko.Theta(kernel), cp.Variable()
    f = theta(X) + b if seed % 3 else theta(X)
    fit = ko.losses.hinge(labels, f) if loss == "hinge" else ko.losses.poisson(counts, f)
    problem = ko.Problem(cp.Minimize(weights @ fit))
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal", problem.certificate


@pytest.mark.slow
def test_features_whose_products_underflow_are_no_crash():
    """In the span of 29 of 30 bumps, B has entries of 1e-157 and less."""
    x, theta = np.linspace(0, 6, 30)[:, None], ko.Theta(ko.kernels.Gaussian(sigma=0.1))
    loss = cp.norm1(np.sin(9 * x[:, 0]) - theta(x))
    problem = ko.Problem(cp.Minimize(loss), [theta(x[:1]) <= 0])
    problem.solve(max_rank=29)
    assert problem.status == "optimal_inaccurate"


def ordered(loss, seed, least=0.0, n=10):
    """Losses of sorted rows with weights in order, all of which are different."""
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, (n, 2)), rng.normal(size=n)
    theta = ko.Theta(ko.kernels.Laplacian(sigma=0.8))
    cost = cp.dotsort(loss(y - theta(X)), np.arange(n) / n + least)
    return ko.Problem(cp.Minimize(cost + 0.9 * ko.sum_squares(theta)))


def by_hand(loss, seed, least=0.0, n=10):
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, (n, 2)), rng.normal(size=n)
    B, w = np.linalg.cholesky(ko.kernels.Laplacian(sigma=0.8)(X)), cp.Variable(n)
    cost = cp.dotsort(loss(y - B @ w), np.arange(n) / n + least)
    return cp.Problem(cp.Minimize(cost + 0.9 * cp.sum_squares(w))).solve(solver="CLARABEL")


LOSSES = {"abs": cp.abs, "hinge": lambda r: cp.pos(1 - r)}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(1, 5))
def test_several_sums_of_the_largest_of_the_same_losses(loss, seed):
    """Each sum has its own share in the multipliers of the losses' bounds, which the engine's slopes tell."""
    problem = ordered(LOSSES[loss], seed)
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-8
    assert problem.value == pytest.approx(by_hand(LOSSES[loss], seed), rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("least", [0.0, 0.1])
def test_an_engine_without_a_proof_is_followed_by_a_cone_solver(loss, least):
    """With seed 0 its gap is 0, and its multipliers leave one open; with costs of all losses they prove nothing."""
    problem = ordered(LOSSES[loss], 0, least)
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-6
    assert problem.value == pytest.approx(by_hand(LOSSES[loss], 0, least), rel=1e-6)


@pytest.mark.parametrize("weights", [(1, 0.5, 0.2), (2, 0.5, 0.5)])
def test_losses_that_cost_something_beside_their_sums(weights):
    """A least weight that is not 0: the objective is at least 0, and was called unbounded."""
    X, y = np.array([[0.0], [2.0], [4.0]]), np.array([1.0, -1.0, 0.5])
    kernel = ko.kernels.Gaussian(sigma=1.0)
    theta, w, B = ko.Theta(kernel), cp.Variable(3), np.linalg.cholesky(kernel(X))
    problem = ko.Problem(cp.Minimize(cp.dotsort(cp.abs(theta(X) - y), weights) + 0.1 * ko.sum_squares(theta)))
    problem.solve(solver="INTERIOR_POINT")
    by_hand = cp.Problem(cp.Minimize(cp.dotsort(cp.abs(B @ w - y), weights) + 0.1 * cp.sum_squares(w)))
    by_hand.solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(by_hand.value, rel=1e-6)


@pytest.mark.parametrize("counts", [(2, 5), (1, 4, 7)])
def test_several_bounds_of_sums_of_the_largest(counts):
    rng = np.random.default_rng(7)
    X, y = rng.uniform(-1, 1, (10, 2)), rng.normal(size=10)
    values = []
    for solver in (None, "CLARABEL"):
        theta = ko.Theta(ko.kernels.Laplacian(sigma=0.8))
        losses = cp.abs(y - theta(X))
        bounds = [cp.sum_largest(losses, count) <= 0.5 * count for count in counts]
        problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.sum_squares(theta(X))), bounds)
        problem.solve(solver=solver)
        assert problem.status == "optimal" or solver == "CLARABEL"  # whose multipliers prove less
        values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_many_variables_of_rows_whose_bounds_are_their_own():
    """Transport plans: a variable for each pair of bins, in two equations. Those of basic ones are 0, and get room."""
    rng = np.random.default_rng(5)
    n, bins = 48, 5
    X, target = rng.normal(size=(n, 3)), rng.dirichlet(np.ones(bins), size=n)
    cost = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))) ** 1.5
    theta, plans = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=bins), cp.Variable((n, bins**2), nonneg=True)
    scores = theta(X) + np.ones((n, 1)) @ cp.Variable((1, bins))
    constraints = [
        plans @ np.kron(np.eye(bins), np.ones((bins, 1))) == target,
        plans @ np.kron(np.ones((bins, 1)), np.eye(bins)) == scores,
    ]
    objective = cp.sum(plans @ cost.ravel()) + 0.5 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-6
    B, w = np.linalg.cholesky(ko.kernels.Gaussian(sigma=2.0)(X) + 1e-12 * np.eye(n)), cp.Variable((n, bins))
    T = cp.Variable((n, bins**2), nonneg=True)
    by_hand = [
        T @ np.kron(np.eye(bins), np.ones((bins, 1))) == target,
        T @ np.kron(np.ones((bins, 1)), np.eye(bins)) == B @ w + np.ones((n, 1)) @ cp.Variable((1, bins)),
    ]
    value = cp.Problem(cp.Minimize(cp.sum(T @ cost.ravel()) + 0.5 * cp.sum_squares(w)), by_hand).solve(
        solver="CLARABEL"
    )
    assert problem.value == pytest.approx(value, rel=1e-5)


GROWING = {
    "exp": cp.exp,
    "logistic": cp.logistic,
    "log_sum_exp": lambda n: cp.log_sum_exp(cp.hstack([n, 0])),
    "square": lambda n: cp.square(n + 1),
    "cube": lambda n: (n + 1) ** 3,
    "huber": lambda n: cp.huber(n + 1, 3),
}


@pytest.mark.parametrize("loss", [cp.sum_squares, cp.norm1])
@pytest.mark.parametrize("name", GROWING)
def test_functions_of_the_norm_where_no_function_is_optimal(name, loss):
    """Of multipliers of t ≥ ‖θ‖ above the dual norm that at t = 0 proves most."""
    X, y = np.arange(4.0)[:, None], np.array([1.0, -1.0, 2.0, 0.0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(loss(y - theta(X)) + 30 * GROWING[name](ko.norm(theta))))
    problem.solve()
    there = float(loss(y).value) + 30 * float(GROWING[name](cp.Constant(0.0)).value)
    assert problem.status == "optimal" and problem.value == pytest.approx(there, rel=1e-7)
    assert problem.certificate.lower == pytest.approx(there, rel=1e-6)


COMPLEX = {
    "moduli": lambda e: cp.sum(cp.abs(e + 1j)),
    "a real part": lambda e: cp.real(cp.vdot(1j * np.ones(4), e)) + cp.norm1(e),
    "a length": lambda e: cp.norm(cp.conj(e) + 1j * np.arange(4)),
    "a parameter": lambda e: cp.sum(cp.abs(e + cp.Parameter(complex=True, value=2j))),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_constants_beside_real_predictions(name):
    X, y = np.arange(4.0)[:, None], np.array([1.0, -1.0, 2.0, 0.0])
    kernel, w = ko.kernels.Gaussian(sigma=1.0), cp.Variable(4)
    theta, B = ko.Theta(kernel), np.linalg.cholesky(kernel(X))
    problem = ko.Problem(cp.Minimize(COMPLEX[name](y - theta(X)) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    by_hand = cp.Problem(cp.Minimize(COMPLEX[name](y - B @ w) + 0.3 * cp.sum_squares(w))).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(by_hand, rel=1e-6)


def test_complex_differences_that_vanish():
    X, y = np.arange(4.0)[:, None], np.array([1.0, -1.0, 2.0, 0.0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.norm1(y - f)), [cp.abs(f[0] - 1 + 1j * (f[1] - 2)) <= 0])
    problem.solve()
    assert problem.status == "optimal" and f.value[:2] == pytest.approx([1, 2], abs=1e-6)


UNBOUNDED = {
    "logistic": lambda f, b: cp.sum(cp.logistic(f)) + b,
    "exp": lambda f, b: cp.sum(cp.exp(f)) + b,
    "log_sum_exp": lambda f, b: cp.log_sum_exp(f[:2] - b),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_variable_in_no_function_has_a_cost(name):
    b, theta = cp.Variable(), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(np.arange(4.0)[:, None])
    problem = ko.Problem(cp.Minimize(UNBOUNDED[name](f, b) + ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "unbounded"


FALLING = {
    "sqrt": lambda v: cp.exp(-v[0]) - cp.sqrt(v[0] + 1),
    "log": lambda v: cp.logistic(-v[0]) - 0.01 * cp.log(v[1] + 1) + 0 * v[1],
    "geometric mean": lambda v: cp.exp(-v[0]) - cp.geo_mean(v),
}


@pytest.mark.parametrize("name", FALLING)
def test_what_falls_ever_more_slowly_is_not_called_finite(name):
    v, theta = cp.Variable(2), ko.Theta(ko.kernels.Gaussian(sigma=0.5))
    X, y = np.arange(5.0)[:, None], np.array([1.0, -1.0, 2.0, 0.0, 0.5])
    rows = [v[1] <= v[0]] if name == "log" else [v[1] <= 1]
    problem = ko.Problem(cp.Minimize(cp.norm1(theta(X) - y) + ko.sum_squares(theta) + FALLING[name](v)), rows)
    problem.solve()
    assert problem.status != "not_attained"
    assert problem.certificate is None or problem.certificate.lower == -np.inf


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [(ko.kernels.Gaussian(sigma=1.0), 1), (ko.kernels.Gaussian(sigma=1.0), 2), (ko.kernels.Polynomial(degree=2), 1)],
)
def test_quadratic_forms_that_cancel_are_no_other_functions(kernel, rank):
    X, U = np.linspace(0, 1, 12)[:, None], np.random.default_rng(0).normal(size=(12, rank))
    signs, theta = np.sign(np.sin(9 * X[:, 0]) + 0.1), ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.quad_form(1 - cp.multiply(signs, theta(X)), U @ U.T)))
    problem.solve()
    assert problem.status == "optimal" and abs(problem.value) <= 1e-9
