"""Approximate leave-one-out against fits that leave a row out."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, KernelOptError

KERNEL = ko.kernels.Gaussian(sigma=1.0)


def data(N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    X[-3:] = X[:3]
    level = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    return X, np.where(level + 0.5 * rng.normal(size=N) > 1, 1.0, -1.0), level + 0.3 * rng.normal(size=N)


X, LABELS, TARGETS = data(60)
COUNTS = np.random.default_rng(1).poisson(np.exp(0.5 * np.sin(X[:, 0]))).astype(float)
WEIGHTS = np.random.default_rng(2).uniform(0.5, 2, size=60)
WEIGHTS[7] = 0.0
PSEUDO_HUBER = ko.SmoothLoss(
    lambda u, y: np.sqrt(1 + (u - y) ** 2) - 1,
    lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2),
    lambda u, y: (1 + (u - y) ** 2) ** -1.5,
)


def stated(loss, lam, *, constraints=lambda f: [], penalty=lambda f: 0.0):
    """A problem with an intercept and a parameter of weights."""
    theta, b, w = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(60, nonneg=True, value=WEIGHTS)
    f = theta(X) + b
    objective = w @ loss(f) + penalty(f) + lam * ko.sum_squares(theta)
    return ko.Problem(cp.Minimize(objective), constraints(f)), f, w


def refits(problem, f, w, chosen):
    """f₋ᵢ(xᵢ) by a fit with weight 0 for each chosen row."""
    found, kept = [], w.value
    for i in chosen:
        w.value = np.where(np.arange(len(kept)) == i, 0.0, kept)
        problem.solve(tol=1e-9)
        found.append(f.value[i])
    w.value = kept
    problem.solve(tol=1e-9)
    return np.array(found)


# With the relative error of predictions that is accepted.
SMOOTH = {
    "logistic": (lambda f: ko.losses.log_loss(LABELS, f), 0.01),
    "poisson": (lambda f: ko.losses.poisson(COUNTS, f), 0.03),
    "squared hinge": (lambda f: ko.losses.squared_hinge(LABELS, f), 0.02),
    "huber": (lambda f: ko.losses.huber(TARGETS, f, 0.5), 0.01),
    "user's": (lambda f: PSEUDO_HUBER(f, TARGETS), 0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_losses(name):
    loss, accuracy = SMOOTH[name]
    problem, f, w = stated(loss, 1.0)
    problem.solve(tol=1e-9)
    fitted, found = f.value, ko.approximate_leave_one_out(problem, f)
    chosen = np.arange(0, 60, 3)
    exact = refits(problem, f, w, chosen)
    assert np.linalg.norm(found[chosen] - exact) <= accuracy * np.linalg.norm(exact)
    assert np.abs(found[chosen] - exact).mean() <= 0.1 * np.abs(fitted[chosen] - exact).mean()
    assert found[7] == pytest.approx(fitted[7], abs=1e-4)  # a row without weight


@pytest.mark.later
def test_it_is_exact_for_squares():
    problem, f, _ = stated(lambda f: cp.square(TARGETS - f), 0.1)
    problem.solve()
    expected = TARGETS - ko.leave_one_out(problem)
    assert ko.approximate_leave_one_out(problem, f) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def move_without(K, i, slopes, at_kink, lam):
    """f₋ᵢ(xᵢ) − f(xᵢ) for Σ loss + λ‖θ‖² with an intercept, while other rows stay on their stretch or kink.

    Δf = K(gᵢeᵢ − Σ dⱼeⱼ)/2λ + Δb is 0 at the kinks j, and changes of slopes add up to the one taken out, Σ dⱼ = gᵢ.
    """
    others = np.flatnonzero(at_kink & (np.arange(len(K)) != i))
    n = len(others)
    M = np.zeros((n + 1, n + 1))
    M[:n, :n], M[:n, n], M[n, :n] = K[np.ix_(others, others)] / (2 * lam), -1.0, 1.0
    rhs = np.append(K[others, i] * slopes[i] / (2 * lam), slopes[i])
    d = np.linalg.solve(M, rhs)
    return (K[i, i] * slopes[i] - K[i, others] @ d[:n]) / (2 * lam) + d[n]


@pytest.mark.later
@pytest.mark.parametrize("lam", [1.0, 0.1])
def test_kinks_against_the_formula(lam):
    """Hinge loss: rows of margin 1 stay there."""
    points, labels, _ = data(57)
    points = points[:54]
    labels = labels[:54]
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(points) + b
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, f)) + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-10, rank_tol=1e-13)
    nu = -theta(points).dual_value
    at_kink = (np.abs(nu) > 1e-5) & (np.abs(nu) < 1 - 1e-5)
    K = KERNEL(points)
    expected = [f.value[i] + move_without(K, i, nu, at_kink, lam) for i in range(54)]
    assert 3 <= at_kink.sum() <= 50
    assert ko.approximate_leave_one_out(problem, f) == pytest.approx(expected, rel=1e-5, abs=1e-5)


KINKED = {
    "hinge": lambda f: ko.losses.hinge(LABELS, f),
    "absolute": lambda f: ko.losses.absolute_error(TARGETS, f),
    "pinball": lambda f: ko.losses.pinball(TARGETS, f, 0.3),
    "insensitive": lambda f: ko.losses.epsilon_insensitive(TARGETS, f, 0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINKED)
def test_kinked_losses(name):
    problem, f, w = stated(KINKED[name], 3.0)
    problem.solve(tol=1e-9)
    fitted, found = f.value, ko.approximate_leave_one_out(problem, f)
    chosen = np.arange(0, 60, 3)
    exact = refits(problem, f, w, chosen)
    assert np.abs(found[chosen] - exact).mean() <= 0.06
    assert np.abs(found[chosen] - exact).mean() <= 0.6 * np.abs(fitted[chosen] - exact).mean()


@pytest.mark.slow
def test_hinge_on_150_rows():
    """The estimate of the loss, and each prediction on average."""
    points, labels, _ = data(150)
    theta, b, w = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(150, nonneg=True, value=np.ones(150))
    f = theta(points) + b
    problem = ko.Problem(cp.Minimize(w @ ko.losses.hinge(labels, f) + 2 * ko.sum_squares(theta)))
    problem.solve()
    found, exact = ko.approximate_leave_one_out(problem, f), np.empty(150)
    for i in range(150):
        w.value = np.where(np.arange(150) == i, 0.0, 1.0)
        problem.solve(certify=False)
        exact[i] = f.value[i]
    losses = [np.maximum(0, 1 - labels * g).mean() for g in (found, exact)]
    assert np.abs(found - exact).mean() <= 0.05
    assert losses[0] == pytest.approx(losses[1], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "squared hinge", "user's", "hinge", "pinball"])
def test_refits(name):
    """Exact, even where most rows are fitted exactly and the model extrapolates far."""
    loss, lam = (SMOOTH | {k: (v, 0) for k, v in KINKED.items()})[name][0], 1e-2
    problem, f, w = stated(loss, lam)
    problem.solve(tol=1e-9)
    found, rough = (ko.approximate_leave_one_out(problem, f, refit=r) for r in (True, False))
    chosen = np.arange(0, 60, 4)
    exact = refits(problem, f, w, chosen)
    assert found[chosen] == pytest.approx(exact, abs=1e-3)
    assert np.abs(found[chosen] - exact).max() <= 0.2 * np.abs(rough[chosen] - exact).max()


@pytest.mark.slow
def test_refits_beside_constraints_and_of_several_outputs():
    bounded = {"constraints": lambda f: [f <= 1.2, f[0] + f[1] == 0.3], "penalty": lambda f: cp.sum_squares(cp.diff(f))}
    problem, f, w = stated(SMOOTH["user's"][0], 0.5, **bounded)
    problem.solve(tol=1e-9)
    chosen = np.arange(0, 60, 6)
    found = ko.approximate_leave_one_out(problem, f, refit=True)[chosen]
    assert found == pytest.approx(refits(problem, f, w, chosen), abs=1e-4)
    theta, w = ko.Theta(KERNEL, outputs=3), cp.Parameter(60, nonneg=True, value=WEIGHTS)
    F = theta(X)
    loss = w @ ko.losses.multinomial(np.digitize(TARGETS, [0.0, 1.5]), F)
    problem = ko.Problem(cp.Minimize(loss + 0.05 * ko.sum_squares(theta)))
    problem.solve(tol=1e-9)
    found = ko.approximate_leave_one_out(problem, F, refit=True)[chosen]
    assert found == pytest.approx(refits(problem, F, w, chosen), abs=1e-3)


@pytest.mark.later
def test_a_loss_without_a_value_at_zero():
    theta = ko.Theta(KERNEL)
    f = theta(X[:10])
    problem = ko.Problem(cp.Minimize(cp.sum(f) - cp.sum(cp.log(f)) + ko.sum_squares(theta)))
    problem.solve()
    found = ko.approximate_leave_one_out(problem, f)
    assert np.all(np.isfinite(found) & (np.abs(found - f.value) > 1e-3))
    with pytest.raises(KernelOptError, match="refit=False"):
        ko.approximate_leave_one_out(problem, f, refit=True)


def test_two_rows_at_one_kink():
    """Of two equal rows at a kink, one holds the prediction when the other is left out."""
    points, targets = np.array([[0.0], [0.0], [3.0]]), np.array([0.5, 0.5, 9.0])
    theta = ko.Theta(KERNEL)
    f = theta(points)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(targets - f)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert ko.approximate_leave_one_out(problem, f)[:2] == pytest.approx([0.5, 0.5], abs=1e-6)


@pytest.mark.slow
def test_a_row_that_alone_determines_the_intercept():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(np.zeros((1, 1))) + b
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(f - 2.0)) + ko.sum_squares(theta)))
    problem.solve()
    assert np.isnan(ko.approximate_leave_one_out(problem, f)).all()
    squares = ko.Problem(cp.Minimize(cp.sum_squares(f - 2.0) + ko.sum_squares(theta)))
    squares.solve()
    assert np.isnan(ko.approximate_leave_one_out(squares, f)).all()


@pytest.mark.slow
def test_constraints_and_coupling_terms_stay():
    bounded = {
        "constraints": lambda f: [f <= 1.2, f[0] + f[1] == 0.3],
        "penalty": lambda f: 0.5 * cp.sum_squares(cp.diff(f)),
    }
    problem, f, w = stated(SMOOTH["user's"][0], 0.5, **bounded)
    problem.solve(tol=1e-9)
    fitted, found = f.value, ko.approximate_leave_one_out(problem, f)
    assert np.count_nonzero(fitted > 1.2 - 1e-7) > 2
    chosen = np.arange(0, 60, 4)
    exact = refits(problem, f, w, chosen)
    # Where a constraint stops binding without its row, the error is not small.
    assert np.median(np.abs(found[chosen] - exact)) <= 0.01 * np.median(np.abs(fitted[chosen] - exact))


@pytest.mark.slow
def test_several_terms_of_a_row_and_variables_beside():
    """Two losses at one prediction leave together; what is asked for need not be what the loss is of."""

    def loss(f):
        return ko.losses.log_loss(LABELS, f) + 0.3 * cp.square(f) + 0.2 * f

    theta, beta, w = ko.Theta(KERNEL), cp.Variable(2), cp.Parameter(60, nonneg=True, value=WEIGHTS)
    f = theta(X) + X @ beta
    problem = ko.Problem(cp.Maximize(-w @ loss(f) - 2 * ko.sum_squares(theta) - cp.sum_squares(beta)))
    problem.solve(tol=1e-9)
    whole, part = (ko.approximate_leave_one_out(problem, g) for g in (f, 1 - 2 * theta(X)))
    chosen = np.arange(0, 60, 6)
    exact, exact_part = [], []
    for i in chosen:
        w.value = np.where(np.arange(60) == i, 0.0, WEIGHTS)
        problem.solve(tol=1e-9)
        exact.append(f.value[i])
        exact_part.append(1 - 2 * theta(X).value[i])
    assert whole[chosen] == pytest.approx(exact, abs=0.01)
    assert part[chosen] == pytest.approx(exact_part, abs=0.02)


@pytest.mark.slow
def test_rows_of_a_matrix_leave_as_a_whole():
    classes = np.digitize(TARGETS, [0.0, 1.5])
    theta, b, w = ko.Theta(KERNEL, outputs=3), cp.Variable((1, 3)), cp.Parameter(60, nonneg=True, value=WEIGHTS)
    F = theta(X) + np.ones((60, 1)) @ b
    loss = w @ ko.losses.multinomial(classes, F)
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + 0.1 * cp.sum_squares(b)))
    problem.solve(tol=1e-8)
    fitted, found = F.value, ko.approximate_leave_one_out(problem, F)
    assert found.shape == (60, 3)
    chosen = np.arange(0, 60, 6)
    exact = refits(problem, F, w, chosen)
    assert np.abs(found[chosen] - exact).mean() <= 0.05 * np.abs(fitted[chosen] - exact).mean()


@pytest.mark.slow
def test_intercepts_that_only_differ_in_a_shift():
    """Softmax does not know the sum of the intercepts: probabilities are those with the sum 0."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 2))
    classes = np.digitize(points[:, 0] + 0.3 * rng.normal(size=50), [-0.5, 0.5])
    found = []
    for fixed in (False, True):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable(3)
        F = theta(points) + b[None, :]
        loss = cp.sum(ko.losses.multinomial(classes, F)) + 0.3 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(loss), [cp.sum(b) == 0] if fixed else [])
        problem.solve()
        left_out = ko.approximate_leave_one_out(problem, F)
        found.append(left_out - left_out.mean(axis=1, keepdims=True))
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.slow
def test_quantiles_together():
    """Kinks of several outputs in one row, coupled by constraints that they do not cross."""
    theta, b, w = ko.Theta(KERNEL, outputs=2), cp.Variable((1, 2)), cp.Parameter(60, nonneg=True, value=WEIGHTS)
    F = theta(X) + np.ones((60, 1)) @ b
    loss = sum(w @ ko.losses.pinball(TARGETS, F[:, k], tau) for k, tau in enumerate((0.2, 0.7)))
    problem = ko.Problem(cp.Minimize(loss + 2 * ko.sum_squares(theta)), [F[:, 0] <= F[:, 1]])
    problem.solve(tol=1e-9)
    fitted, found = F.value, ko.approximate_leave_one_out(problem, F)
    chosen = np.arange(0, 60, 6)
    exact = refits(problem, F, w, chosen)
    assert np.abs(found[chosen] - exact).mean() <= 0.6 * np.abs(fitted[chosen] - exact).mean()


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["CLARABEL", "INTERIOR_POINT"])
def test_any_solver_and_present_values_of_parameters(solver):
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=3.0)
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(LABELS, f)) + lam * ko.sum_squares(theta)))
    problem.solve(solver=solver)
    lam.value = 1.0
    before = theta.value
    found = ko.approximate_leave_one_out(problem, f)
    assert theta.value is before
    problem.solve()
    assert found == pytest.approx(ko.approximate_leave_one_out(problem, f), rel=1e-6)


@pytest.mark.slow
def test_what_has_no_model():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f, penalty = theta(X) + b, ko.sum_squares(theta)
    losses = cp.sum(ko.losses.absolute_error(TARGETS, f))
    with pytest.raises(KernelOptError, match=r"solve\(\) first"):
        ko.approximate_leave_one_out(ko.Problem(cp.Minimize(losses + penalty)), f)
    for objective, constraints in (
        (losses + ko.norm(theta), []),
        (losses, [ko.norm(theta) <= 1]),
        (cp.norm(TARGETS - f) + penalty, []),
    ):
        problem = ko.Problem(cp.Minimize(objective), constraints)
        problem.solve()
        with pytest.raises(KernelOptError, match="quadratic model around its optimum; this one needs"):
            ko.approximate_leave_one_out(problem, f)


@pytest.mark.slow
def test_what_is_no_row():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X) + b
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(LABELS, f)) + ko.sum_squares(theta)))
    problem.solve()
    other = ko.Theta(KERNEL)
    for wrong, message in (
        (f.value, "affine expression"),
        (cp.abs(f), "affine expression"),
        (cp.sum(f), "affine expression"),
        (theta(X[:5]), "predictions of the problem"),
        (other(X), "predictions of the problem"),
        (f + cp.Variable(name="foreign"), "foreign is none"),
        (cp.cumsum(f), "predictions of their own"),
        (f[[0, 0]], "predictions of their own"),
    ):
        with pytest.raises(DataError, match=message):
            ko.approximate_leave_one_out(problem, wrong)
    slopes = ko.Problem(cp.Minimize(cp.sum(cp.abs(cp.diff(f) - 1)) + cp.square(b) + ko.sum_squares(theta)))
    slopes.solve()
    with pytest.raises(DataError, match="none to leave out"):
        ko.approximate_leave_one_out(slopes, f)


@pytest.mark.later
def test_linear_terms_that_can_not_be_told_apart():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X)
    rows = cp.sum(cp.exp(f)) + cp.sum(cp.exp(f + b)) - COUNTS @ (f + b)
    problem = ko.Problem(cp.Minimize(rows + ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="is unknown"):
        ko.approximate_leave_one_out(problem, f + b)


def test_another_problem_is_sent_to_the_approximation():
    X, theta = np.arange(5.0)[:, None], ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.norm1(theta(X) - 1) + ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="Use ko.approximate_leave_one_out"):
        ko.leave_one_out(problem)


@pytest.mark.parametrize(
    "loss",
    [
        lambda F: cp.sum(ko.losses.crammer_singer(np.arange(9) % 3, F)),
        lambda F: cp.sum(cp.logistic(F[:, 0])) + cp.sum(cp.max(F, axis=1)),
        lambda F: cp.sum(cp.abs(F[:, 0] - 1)) + cp.sum(cp.maximum(F[:, 1], F[:, 2] - 1, 0)),
        lambda F: cp.sum(cp.square(F)) + cp.norm_inf(F[2] - 1),
    ],
)
def test_a_maximum_of_several_numbers_of_a_row_is_refused(loss):
    """Its rows look like constraints, which stay where a row is left out."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.7), outputs=3)
    F = theta(np.linspace(0, 3, 9)[:, None])
    problem = ko.Problem(cp.Minimize(loss(F) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="maximum of several"):
        ko.approximate_leave_one_out(problem, F)


@pytest.mark.slow
def test_a_bound_of_all_rows_by_a_variable_stays():
    theta, t = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable()
    f, y = theta(np.linspace(0, 3, 9)[:, None]), np.arange(9.0) % 2
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + 0.3 * ko.sum_squares(theta) + t), [t >= f])
    problem.solve()
    assert np.isfinite(ko.approximate_leave_one_out(problem, f, refit=True)).all()


def test_refits_where_a_variable_costs_little():
    """Hinge losses of two outputs with 1e-3·‖b‖²: a gap of 1e-6 would leave b open to 1e-2."""
    X = np.array([0.04882127, -0.55660367, 0.30492174, 0.39249214, -1.04822785, 1.29111472, 1.49219422])[:, None]
    S = np.stack([[-1.0, -1, 1, 1, -1, 1, -1], np.ones(7)], axis=1)
    theta, b = ko.Theta(ko.kernels.Laplacian(sigma=1.0), outputs=2), cp.Variable(2)
    f, w = theta(X) + b[None, :], cp.Parameter(7, nonneg=True, value=np.ones(7))
    losses = cp.sum(cp.pos(1 - cp.multiply(S, f)), axis=1)
    problem = ko.Problem(cp.Minimize(w @ losses + 2 * ko.sum_squares(theta) + 1e-3 * cp.sum_squares(b)))
    problem.solve()
    found, chosen = ko.approximate_leave_one_out(problem, f, refit=True), np.array([0, 3])
    assert found[chosen] == pytest.approx(refits(problem, f, w, chosen), abs=1e-6)
