"""Gradients of criteria through the optimum, beside central differences over optima that are exact to rounding."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from differentiating import CONSTRAINTS, LABELS, LOSSES, PENALTIES, Case, N, compared, difference
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

import kernelopt as ko
from kernelopt import errors, kernels, losses
from kernelopt.sensitivity import kkt


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_constraints_and_penalties(loss, constraint, penalty):
    # With other data a row of the power is within 1e-6 of its target, where |f − y|^1.5 has no second derivative.
    case = Case(loss, constraint, penalty, seed=int(loss == "power"))
    case.problem.solve()
    found = ko.gradient(case.problem, case.criterion, case.parameters)
    noise = 1e-8 * max(float(np.abs(found[p]).max()) for p in found)  # of differences
    for p in case.parameters:
        if p is case.w and penalty != "squared":
            continue
        entry = (3,) if p is case.w else ()
        assert found[p].shape == p.shape
        # Long steps may cross a kink, short ones lose digits.
        steps = ((1e-5, 2), (1e-5, 4), (1e-4, 4), (1e-6, 4))
        known = (difference(case.problem, case.criterion, p, entry, h, order) for h, order in steps)
        assert any(found[p][entry] == pytest.approx(d, rel=1e-6, abs=noise) for d in known), p.name()


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
def test_the_tolerance_of_the_solve_does_not_matter(loss, tol):
    case = Case(loss)
    case.problem.solve()
    known = ko.gradient(case.problem, case.criterion)
    rough = Case(loss)
    rough.problem.solve(tol=tol)
    found = ko.gradient(rough.problem, rough.criterion)
    assert found[rough.lam] == pytest.approx(known[case.lam], rel=1e-8)
    assert found[rough.w] == pytest.approx(known[case.w], rel=1e-7, abs=1e-10)
    assert abs(found[rough.lam] - known[case.lam]) <= found.errors[rough.lam] + known.errors[case.lam]


def test_ridge_in_closed_form():
    """θ = Aᵀ(Q + λI)⁻¹y, and ∂(Q + λI)⁻¹ = −(Q + λI)⁻²."""
    rng = np.random.default_rng(1)
    X, Z, y = rng.normal(size=(25, 2)), rng.normal(size=(7, 2)), rng.normal(size=25)
    kernel, lam = ko.kernels.Gaussian(sigma=1.0), cp.Parameter(nonneg=True, value=0.2)
    labels = cp.Parameter(25, value=y)
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - labels) + lam * ko.sum_squares(theta)))
    problem.solve()
    found = ko.gradient(problem, cp.sum(theta(Z)), [lam, labels])
    M, k = np.linalg.inv(kernel(X) + 0.2 * np.eye(25)), kernel(Z, X).sum(axis=0)
    assert found.value == pytest.approx(k @ M @ y, rel=1e-9)
    assert found[lam] == pytest.approx(-k @ M @ M @ y, rel=1e-8)
    assert found[labels] == pytest.approx(M @ k, rel=1e-7, abs=1e-10)


@pytest.mark.slow
def test_second_order_cones():
    case = Case("huber", "second order")
    case.problem.solve()
    found = ko.gradient(case.problem, case.criterion)
    for p in (case.lam, case.c):
        assert found[p] == pytest.approx(difference(case.problem, case.criterion, p, h=1e-5), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", ["hinge", "logistic", "smooth", "squared error"])
def test_the_optimal_value(loss, penalty):
    """The envelope theorem: no system is solved."""
    case = Case(loss, "bounds elsewhere" if loss != "smooth" else "none", penalty)
    case.problem.solve()
    found = ko.gradient(case.problem, case.problem.objective)
    assert found.value == pytest.approx(case.problem.value, rel=1e-5)
    for p in found:
        entry = (3,) if p is case.w else ()
        known = difference(case.problem, case.problem.objective, p, entry)
        assert found[p][entry] == pytest.approx(known, rel=1e-6, abs=1e-8)


@pytest.mark.slow
def test_maximization():
    case = Case("huber")
    mirrored = ko.Problem(cp.Maximize(-case.problem.objective.args[0]))
    case.problem.solve()
    one = ko.gradient(case.problem, case.problem.objective), ko.gradient(case.problem, case.criterion)
    mirrored.solve()
    other = ko.gradient(mirrored, mirrored.objective), ko.gradient(mirrored, case.criterion)
    assert other[0].value == pytest.approx(-one[0].value)
    assert other[0][case.w] == pytest.approx(-one[0][case.w], abs=1e-9)
    assert other[1][case.lam] == pytest.approx(one[1][case.lam], rel=1e-8)


@pytest.mark.slow
def test_parameters_of_the_criterion_variables_and_norms():
    case = Case("logistic")
    share = 2.0 * case.lam
    criterion = case.criterion + share * ko.norm(case.theta) + cp.exp(case.b)
    case.problem.solve()
    found = ko.gradient(case.problem, criterion, [case.lam])
    assert found[case.lam] == pytest.approx(difference(case.problem, criterion, case.lam), rel=1e-6)


@pytest.mark.slow
def test_a_function_as_criterion():
    case = Case("pinball")
    Z = np.linspace(-1, 1, 9)[:, None]
    at = case.theta(Z) + case.b
    case.problem.solve()
    one = ko.gradient(case.problem, lambda f: (np.sum(f**3), 3 * f**2), at=at)
    assert one.value == pytest.approx(float(np.sum(at.value**3)), rel=1e-3)
    known = [ko.gradient(case.problem, 3 * float(v) ** 2 * at[i])[case.lam] for i, v in enumerate(at.value)]
    assert one[case.lam] == pytest.approx(sum(known), rel=1e-3)
    with pytest.raises(errors.KernelOptError, match="domain"):
        ko.gradient(case.problem, -cp.sum(cp.sqrt(at - at)))
    with pytest.raises(errors.DataError, match="its gradient, of shape"):
        ko.gradient(case.problem, lambda f: (f.sum(), f[1:]), at=at)
    with pytest.raises(errors.DataError, match="`at`"):
        ko.gradient(case.problem, lambda f: (f.sum(), np.ones_like(f)))


@pytest.mark.slow
def test_several_functions_and_outputs():
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(25, 2)), rng.normal(size=(25, 2))
    one = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    two = ko.Theta(ko.kernels.Laplacian(sigma=2.0))
    lam, mu = cp.Parameter(nonneg=True, value=0.3, name="lam"), cp.Parameter(nonneg=True, value=0.7, name="mu")
    f = one(X) + cp.reshape(two(X), (25, 1), order="F") @ np.ones((1, 2))
    objective = cp.sum(losses.huber(Y, f, 0.5)) + lam * ko.sum_squares(one) + mu * ko.norm(two)
    problem = ko.Problem(cp.Minimize(objective + 0.1 * ko.sum_squares(one[:, 0])))
    criterion = cp.sum_squares(one(X[:5]) @ np.array([1.0, 2.0]) + two(X[:5] + 0.1))
    problem.solve()
    found = ko.gradient(problem, criterion)
    for p in (lam, mu):
        assert found[p] == pytest.approx(difference(problem, criterion, p), rel=1e-6)


@pytest.mark.slow
def test_repeated_points():
    rng = np.random.default_rng(4)
    X = np.repeat(rng.normal(size=(12, 1)), 3, axis=0)
    y = np.sign(rng.normal(size=36))
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Parameter(nonneg=True, value=0.1, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(y, theta(X))) + lam * ko.sum_squares(theta)))
    criterion = cp.sum(cp.abs(theta(X[::4] + 0.2) - 3))
    problem.solve()
    assert ko.gradient(problem, criterion)[lam] == pytest.approx(difference(problem, criterion, lam), rel=1e-6)


def test_one_row():
    """f = y/(1 + λ) for one row with κ = 1, so that d/dλ (f − y)² = 2(f − y)·(−y/(1 + λ)²)."""
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.5)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta([[0.0]]) - 3.0) + lam * ko.sum_squares(theta)))
    problem.solve()
    found = ko.gradient(problem, cp.sum_squares(theta([[0.0]]) - 3.0))
    assert found[lam] == pytest.approx(2 * (2.0 - 3.0) * (-3.0 / 1.5**2), rel=1e-9)


@pytest.mark.slow
def test_active_sets_that_go_round_in_a_circle():
    """Changes of all rows at once do not end here; one at a time they do."""
    X, classes = load_iris(return_X_y=True)
    w = cp.Parameter(150, nonneg=True, value=np.ones(150))
    lam, mu = cp.Parameter(pos=True, value=0.5), cp.Parameter(nonneg=True, value=5e-7)
    kernel, objective, criterion = ko.kernels.Gaussian(sigma=2.8), 0.0, 0.0
    test = list(StratifiedKFold(5).split(X, classes))[1][1]
    w.value[test] = 0.0
    for k in range(3):
        theta, b = ko.Theta(kernel), cp.Variable()
        f = theta(X) + b
        objective += w @ ko.losses.hinge(np.where(classes == k, 1.0, -1.0), f) + lam * ko.sum_squares(theta)
        objective += mu * cp.square(b)
        criterion += cp.sum_squares(f[test])
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve(tol=1e-3)
    found = ko.gradient(problem, criterion, [lam])
    assert found[lam] == pytest.approx(difference(problem, criterion, lam, h=1e-6), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-8, 1e6])
def test_units(scale):
    """Data in other units: λ → scale·λ, criterion → scale² where y → scale·y."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(20, 1)), rng.normal(size=20)
    gradients = []
    for unit in (1.0, scale):
        theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.4 / unit)
        problem = ko.Problem(
            cp.Minimize(cp.sum(losses.absolute_error(unit * y, theta(X))) + lam * ko.sum_squares(theta))
        )
        problem.solve()
        gradients.append(ko.gradient(problem, cp.sum_squares(theta(X + 0.1)))[lam] / unit**3)
    assert gradients[1] == pytest.approx(gradients[0], rel=1e-6)


@pytest.mark.slow
def test_a_row_at_the_end_of_its_kink_is_named():
    """|f − y| with λ at which the first row is about to leave its kink: f = y there, at multiplier 1."""
    theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, value=0.5)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta([[1.0]]) - 1.0)) + lam * ko.sum_squares(theta)))
    problem.solve()  # θ = 1, with 2λθ = 1 = the largest multiplier
    found = ko.gradient(problem, cp.sum(theta([[2.0]])))
    assert not found.is_differentiable
    assert found.near == ((theta, 0),)
    assert "no derivative" in repr(found)
    lam.value = 0.4  # at the kink, θ = 1
    problem.solve()
    inside = ko.gradient(problem, cp.sum(theta([[2.0]])))
    assert inside.is_differentiable
    assert inside[lam] == pytest.approx(0.0, abs=1e-9)
    lam.value = 0.8  # beyond it, θ = 1/2λ
    problem.solve()
    beyond = ko.gradient(problem, cp.sum(theta([[2.0]])))
    assert beyond[lam] == pytest.approx(-2 / (2 * 0.8**2), rel=1e-9)


@pytest.mark.slow
def test_nonconvex_losses():
    """At the local optimum."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-2, 2, size=(25, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, size=25)
    loss = ko.SmoothLoss(
        lambda u, y: np.log1p((u - y) ** 2),
        lambda u, y: 2 * (u - y) / (1 + (u - y) ** 2),
        lambda u, y: (2 - 2 * (u - y) ** 2) / (1 + (u - y) ** 2) ** 2,
        curvature="nonconvex",
    )
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.3, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X), y)) + lam * ko.sum_squares(theta)))
    criterion = cp.sum_squares(theta(X + 0.1))
    problem.solve()
    assert ko.gradient(problem, criterion)[lam] == pytest.approx(difference(problem, criterion, lam), rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem that is not DPP")
def test_parameters_that_multiply_each_other():
    """Labels and weights in one product follow the rules one at a time only."""
    case = Case("hinge")
    labels = cp.Parameter(N, value=case.y)
    X = np.random.default_rng(0).uniform(-2, 2, size=(N, 1))
    margins = cp.multiply(labels, case.theta(X) + case.b)
    problem = ko.Problem(cp.Minimize(case.w @ cp.pos(1 - margins) + case.lam * ko.sum_squares(case.theta)))
    problem.solve()
    found = ko.gradient(problem, case.criterion, [case.w, labels, case.lam])
    for p, entry in ((case.w, (3,)), (labels, (5,)), (case.lam, ())):
        known = difference(problem, case.criterion, p, entry, h=1e-5)
        assert found[p][entry] == pytest.approx(known, rel=1e-6, abs=1e-8)


@pytest.mark.later
def test_what_is_refused():
    case = Case("huber")
    with pytest.raises(errors.KernelOptError, match="solve"):
        ko.gradient(case.problem, case.criterion)
    case.problem.solve()
    other = ko.Theta(ko.kernels.Linear())
    with pytest.raises(errors.DataError, match="own functions"):
        ko.gradient(case.problem, cp.sum(other([[1.0]])))
    with pytest.raises(errors.DataError, match="variables of the problem"):
        ko.gradient(case.problem, cp.sum(case.theta([[1.0]])) + cp.Variable())
    with pytest.raises(errors.DataError, match="one real number"):
        ko.gradient(case.problem, case.theta([[1.0], [2.0]]))
    with pytest.raises(errors.DataError, match=r"got Minimize\(.* without cp\.Minimize"):
        ko.gradient(case.problem, cp.Minimize(case.criterion))
    with pytest.raises(errors.DataError, match="got 3"):
        ko.gradient(case.problem, 3)
    with pytest.raises(errors.ParameterError, match="lam, w|w, lam"):
        ko.gradient(case.problem, case.criterion, [cp.Parameter(name="p", value=1.0)])
    case.lam.value = 0.7
    with pytest.raises(errors.KernelOptError, match="lam changed since"):
        ko.gradient(case.problem, case.criterion)


@pytest.mark.slow
def test_nothing_changes():
    """Values of θ, variables, parameters and multipliers stay as the solve left them."""
    case = Case("hinge", "bounds elsewhere")
    case.problem.solve()
    before = case.theta.value, case.b.value, case.problem.value, case.problem.constraints[0].dual_value
    ko.gradient(case.problem, case.criterion + cp.square(case.b))
    assert (case.theta.value, case.problem.value) == (before[0], before[2])
    assert np.array_equal(case.b.value, before[1])
    assert np.array_equal(case.problem.constraints[0].dual_value, before[3])


@pytest.mark.later
def test_free_variables_that_nothing_determines():
    theta, lam, free = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, value=1.0), cp.Variable()
    objective = cp.sum(cp.abs(theta([[1.0]]) - 3 - 0 * free)) + lam * ko.sum_squares(theta) + cp.pos(free - 1)
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve()
    found = ko.gradient(problem, cp.sum(theta([[1.0]])))
    assert found[lam] == pytest.approx(-0.5, rel=1e-8)  # θ = 1/2λ


def of_kernel(kernel, loss="huber", penalty="squared", constraint="none"):
    """A problem with a kernel of two columns, its λ, and a criterion at other points."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, size=(N, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=N)
    y = np.where(y > 0, 1.0, -1.0) if loss in LABELS else y
    lam = cp.Parameter(nonneg=True, value=0.2, name="lam")
    theta, b = ko.Theta(kernel), cp.Variable()
    objective = cp.sum(LOSSES[loss](y, theta(X) + b))
    constraints = [theta(X[:4]) + b == 0.1] if constraint == "equality" else []
    if penalty == "ball":
        constraints = [*constraints, ko.norm(theta) <= lam + 1.0]
    else:
        objective += lam * {"squared": ko.sum_squares, "unsquared": ko.norm}[penalty](theta)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    Z = rng.uniform(-2, 2, size=(15, 2))
    return problem, cp.sum_squares(theta(Z) + b - np.sin(2 * Z[:, 0])) + 0.1 * ko.norm(theta)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["none", "equality"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", ["huber", "logistic", "hinge", "smooth"])
def test_kernel_parameters(loss, penalty, constraint):
    sigma = cp.Parameter(pos=True, value=1.2, name="sigma")
    mu = cp.Parameter(nonneg=True, value=0.5, name="mu")
    problem, criterion = of_kernel(kernels.Gaussian(sigma) + kernels.Laplacian(2.0) * mu, loss, penalty, constraint)
    problem.solve()
    if (loss, penalty, constraint) == ("hinge", "ball", "none"):  # its intercept can move at no cost
        with pytest.raises(errors.KernelOptError, match="unique"):
            ko.gradient(problem, criterion)
        return
    found = ko.gradient(problem, criterion)
    assert {p.name() for p in found} == {"lam", "sigma", "mu"}
    value = ko.gradient(problem, problem.objective)
    for p in found:
        for one, gradient in ((criterion, found), (problem.objective, value)):
            steps = ((1e-5, 2), (1e-5, 4), (1e-4, 4), (1e-6, 4))
            known = (difference(problem, one, p, (), h, order) for h, order in steps)
            assert any(gradient[p] == pytest.approx(d, rel=1e-6, abs=1e-7) for d in known), p.name()


@pytest.mark.slow
def test_a_length_scale_for_each_column():
    scales = cp.Parameter(2, pos=True, value=[1.0, 2.0], name="scales")
    problem, criterion = of_kernel(kernels.Gaussian(1.0).ard(scales), "logistic")
    problem.solve()
    found = ko.gradient(problem, criterion, [scales])
    for entry in range(2):
        assert found[scales][entry] == pytest.approx(difference(problem, criterion, scales, (entry,)), rel=1e-6)


@pytest.mark.slow
def test_kernel_parameters_of_several_outputs():
    rng = np.random.default_rng(8)
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    sigma = cp.Parameter(pos=True, value=1.2, name="sigma")
    theta = ko.Theta(kernels.Gaussian(sigma), outputs=2)
    objective = cp.sum(losses.huber(Y, theta(X), 0.5)) + 0.2 * ko.norm(theta, "fro") + 0.1 * ko.sum_squares(theta[:, 0])
    problem = ko.Problem(cp.Minimize(objective))
    criterion = cp.sum(cp.multiply(theta(X + 0.1), rng.normal(size=(20, 2))))
    problem.solve()
    assert ko.gradient(problem, criterion)[sigma] == pytest.approx(difference(problem, criterion, sigma), rel=1e-6)


def test_a_kernel_parameter_that_changed():
    sigma = cp.Parameter(pos=True, value=1.2, name="sigma")
    problem, criterion = of_kernel(kernels.Gaussian(sigma))
    problem.solve()
    sigma.value = 1.3
    with pytest.raises(errors.KernelOptError, match="sigma changed"):
        ko.gradient(problem, criterion)
    with pytest.raises(errors.KernelOptError, match="sigma changed"):
        ko.approximate_leave_one_out(problem, criterion)


@pytest.mark.slow
def test_backward_in_cvxpys_words():
    case = Case("logistic", "bounds elsewhere")
    case.problem.solve(requires_grad=True)
    case.b.gradient = np.array(2.0)
    case.problem.backward()
    known = ko.gradient(case.problem, 2 * case.b)
    for p in case.parameters:
        assert np.array_equal(p.gradient, known[p])
    case.b.gradient = None
    case.problem.backward()
    assert case.lam.gradient == pytest.approx(0.5 * known[case.lam])


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "hinge", "smooth", "power"])
def test_derivatives_along_changes_are_the_transpose(loss):
    """δb for changes of all parameters is the sum of gradient·change."""
    case = Case(loss, "bounds elsewhere")
    rng = np.random.default_rng(9)
    case.problem.solve()
    for p in case.parameters:
        p.delta = rng.normal(size=p.shape)
    case.problem.derivative()
    found = ko.gradient(case.problem, case.b)
    assert case.b.delta == pytest.approx(sum(np.sum(found[p] * p.delta) for p in found), rel=1e-8)
    case.w.delta = None
    case.lam.delta, case.c.delta = np.array(1.0), np.array(0.0)
    case.problem.derivative()
    assert case.b.delta == pytest.approx(found[case.lam], rel=1e-8)


@pytest.mark.slow
def test_what_derivatives_of_cvxpy_refuse():
    sigma = cp.Parameter(pos=True, value=1.0, name="sigma")
    problem, _ = of_kernel(kernels.Gaussian(sigma))
    with pytest.raises(errors.KernelOptError, match="solve"):
        problem.backward()
    problem.solve()
    problem.backward()
    assert np.shape(sigma.gradient) == ()
    sigma.delta = np.array(1.0)
    with pytest.raises(errors.KernelOptError, match="is in a kernel"):
        problem.derivative()
    sigma.delta = np.ones(3)
    with pytest.raises(errors.DataError, match="delta"):
        problem.derivative()
    theta = ko.Theta(kernels.Linear())
    alone = ko.Problem(cp.Minimize(cp.sum_squares(theta([[1.0]]) - 1) + ko.sum_squares(theta)))
    alone.solve()
    with pytest.raises(errors.KernelOptError, match="variables other than"):
        alone.backward()
    far = cp.Variable()
    infeasible = ko.Problem(cp.Minimize(ko.norm(theta) + far), [theta([[1.0]]) >= 1, theta([[1.0]]) <= 0, far >= 0])
    infeasible.solve()
    with pytest.raises(errors.KernelOptError, match="infeasible"):
        infeasible.backward()
    integer = cp.Variable(integer=True)
    mixed = ko.Problem(cp.Minimize(cp.sum_squares(theta([[1.0]]) - integer) + ko.sum_squares(theta)), [integer >= 1])
    mixed.solve()
    with pytest.raises(errors.KernelOptError, match="integers"):
        mixed.backward()


@pytest.mark.slow
def test_estimates_of_errors():
    """Gradients after rough solves differ from those after precise ones by less than the estimates, in 95 %."""
    held, sizes = zip(*(pair for seed in range(36) for pair in compared(seed)), strict=True)
    assert len(held) > 45
    assert np.mean(held) >= 0.95 and max(sizes) <= 1e-6


def test_a_function_that_its_penalty_holds_at_zero():
    """θ = 0 where λ‖θ‖ exceeds all it could gain: b is the mean, whose derivative by each target is 1/N."""
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(10, 1)), rng.normal(size=10)
    theta, b = ko.Theta(kernels.Gaussian(1.0)), cp.Variable()
    lam, labels = cp.Parameter(nonneg=True, value=1e3, name="lam"), cp.Parameter(10, value=y, name="labels")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) + b - labels) + lam * ko.norm(theta)))
    problem.solve()
    found = ko.gradient(problem, cp.sum(theta(X[:2])) + 3 * b)
    assert found[lam] == 0
    assert found[labels] == pytest.approx(np.full(10, 0.3))


@pytest.mark.slow
def test_nothing_for_the_function_to_explain():
    """One row and an intercept: θ = 0, b = y."""
    theta, b, lam = ko.Theta(kernels.Gaussian(1.0)), cp.Variable(), cp.Parameter(nonneg=True, value=0.3)
    label = cp.Parameter(1, value=[0.7])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta([[1.0]]) + b - label) + lam * ko.sum_squares(theta)))
    problem.solve()
    found = ko.gradient(problem, 2 * b + cp.sum(theta([[2.0]])))
    assert found[lam] == pytest.approx(0.0, abs=1e-9)
    assert found[label] == pytest.approx([2.0])


@pytest.mark.slow
@pytest.mark.parametrize("lam", [3e7, 3e4])
def test_small_targets(lam):
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(20, 1)), 1e-8 * rng.normal(size=20)
    strength = cp.Parameter(nonneg=True, value=lam)
    theta = ko.Theta(kernels.Gaussian(1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X) - y)) + strength * ko.sum_squares(theta)))
    criterion = cp.sum_squares(theta(X + 0.1))
    problem.solve()
    found = ko.gradient(problem, criterion)[strength]
    assert found == pytest.approx(difference(problem, criterion, strength, h=1e-4 * lam), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        lambda U, Y, rng: ko.losses.cox(rng.exponential(size=len(Y)), rng.random(len(Y)) < 0.7, U[:, 0]),
        lambda U, Y, rng: cp.log_sum_exp(U[:, 0]) - cp.sum(U[:3, 0]) + cp.sum_squares(U[:, 1:]),
        lambda U, Y, rng: cp.sum(cp.log_sum_exp(U, axis=1) - cp.sum(cp.multiply(Y, U), axis=1)),
        lambda U, Y, rng: cp.sum(cp.max(U + 1 - Y, axis=1) - cp.sum(cp.multiply(Y, U), axis=1)),
    ],
    ids=["cox", "log-sum-exp of all rows", "multinomial", "Crammer and Singer"],
)
def test_losses_that_couple_rows_and_outputs(loss):
    rng = np.random.default_rng(12)
    X, Y = rng.normal(size=(25, 2)), np.eye(3)[rng.integers(0, 3, 25)]
    theta, lam = ko.Theta(kernels.Gaussian(1.0), outputs=3), cp.Parameter(nonneg=True, value=0.3)
    problem = ko.Problem(cp.Minimize(loss(theta(X), Y, rng) + lam * ko.sum_squares(theta)))
    criterion = cp.sum_squares(theta(X[:5] + 0.1))
    problem.solve()
    known = (difference(problem, criterion, lam, h=h) for h in (1e-5, 1e-4, 1e-6))
    gradient = ko.gradient(problem, criterion)[lam]
    assert any(gradient == pytest.approx(d, rel=1e-6) for d in known)


@pytest.mark.slow
def test_no_derivative_is_zero_for_want_of_a_rule():
    """What the conditions depend on in a way that is not known is refused, not left out."""
    rng = np.random.default_rng(13)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    label, lam = cp.Parameter(12, value=y), cp.Parameter(nonneg=True, value=0.3)
    theta = ko.Theta(kernels.Gaussian(1.0))
    own = ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: 2 * (u - y), lambda u, y: np.full(u.shape, 2.0))
    problem = ko.Problem(cp.Minimize(cp.sum(own(theta(X), label)) + lam * ko.sum_squares(theta)))
    problem.solve()
    criterion = cp.sum(theta(X[:2]))
    with pytest.raises(errors.KernelOptError, match="SmoothLoss"):
        ko.gradient(problem, criterion)
    assert ko.gradient(problem, criterion, [lam])[lam] != 0

    factor = cp.Parameter(pos=True, value=2.0, name="factor")
    free = ko.Theta(kernels.Linear() * factor)
    plain = ko.Problem(cp.Minimize(cp.sum_squares(free(X) - y) + lam * cp.square(free(X)[0])))
    plain.solve()
    assert ko.gradient(plain, cp.sum(free(X[:2])), [lam])[lam] != 0
    with pytest.raises(errors.KernelOptError, match="cost of"):
        ko.gradient(plain, cp.sum(free(X[:2])), [factor])

    S, target = cp.Variable((2, 2), symmetric=True), cp.Parameter((2, 2), symmetric=True, value=np.eye(2))
    objective = cp.sum_squares(theta(X) - y) + cp.sum_squares(S - target) + lam * ko.sum_squares(theta)
    structured = ko.Problem(cp.Minimize(objective))
    structured.solve()
    with pytest.raises(errors.KernelOptError, match="structure"):
        ko.gradient(structured, cp.sum(S), [lam])
    for one in (structured.objective, criterion):
        with pytest.raises(errors.KernelOptError, match="structure"):
            ko.gradient(structured, one, [target])
    target.delta = np.eye(2)
    with pytest.raises(errors.KernelOptError, match="structure"):
        structured.derivative()
    target.delta, lam.delta = None, 1.0
    with pytest.raises(errors.KernelOptError, match="structure"):
        structured.derivative()


@pytest.mark.slow
def test_parameters_of_kernels_that_nobody_asks_for_need_no_rule():
    scales = cp.Parameter(2, pos=True, value=[1.0, 1.0])
    kernel = kernels.Gaussian(1.0).weighted(lambda X: 1 + X[:, 0] ** 2).ard(scales)
    problem, criterion = of_kernel(kernel)
    problem.solve()
    (lam,) = [p for p in problem.parameters() if p.name() == "lam"]
    assert ko.gradient(problem, criterion, [lam])[lam] != 0
    with pytest.raises(errors.KernelError):
        ko.gradient(problem, criterion, [scales])


def prior(kernel):
    """A function θ₀ fitted to other data."""
    theta = ko.Theta(kernel)
    X = np.linspace(-2, 2, 7)[:, None]
    ko.Problem(cp.Minimize(cp.sum_squares(np.cos(X[:, 0]) - theta(X)) + 0.1 * ko.sum_squares(theta))).solve()
    return theta.value


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["alone", "beside ‖θ‖²", "derivatives", "inner product"])
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
def test_norms_of_differences_and_rows_of_other_kinds(penalty, extra):
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, size=(N, 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_t(2, size=N)
    kernel = ko.kernels.Gaussian(sigma=1.0)
    theta, lam, f0 = ko.Theta(kernel), cp.Parameter(pos=True, value=0.4, name="lam"), prior(kernel)
    shift = cp.Parameter(value=0.1, name="shift")
    distance = theta - f0
    objective, constraints = cp.sum(losses.huber(y - shift, theta(X))), []
    if penalty == "ball":
        constraints.append(ko.norm(distance) <= lam + 2.0)
    else:
        objective += lam * (ko.sum_squares(distance) if penalty == "squared" else ko.norm(distance))
    Z = rng.uniform(-2, 2, size=(10, 1))
    criterion = cp.sum_squares(theta(Z) - np.sin(Z[:, 0]))
    if extra == "beside ‖θ‖²":
        objective += 0.3 * ko.sum_squares(theta)
    elif extra == "derivatives":
        slopes = ko.FeatureMatrix(np.array([[0.3], [1.5], [-1.0]]), kernel).derivative(0) @ theta
        constraints.append(slopes >= cp.hstack([0.5, shift + 0.2, -1.0]))
        criterion += cp.sum_squares(ko.FeatureMatrix(Z[:4], kernel).derivative(0) @ theta)
    elif extra == "inner product":
        constraints.append(theta.inner(f0) == 0.5 + shift)
        criterion += theta.inner(f0)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    problem.solve()
    found = ko.gradient(problem, criterion, [lam, shift])
    for p in (lam, shift):
        assert found[p] == pytest.approx(difference(problem, criterion, p), rel=1e-6, abs=1e-7)


@pytest.mark.slow
def test_derivatives_in_the_criterion_alone():
    case = Case("huber")
    points = ko.FeatureMatrix(np.array([[0.2], [1.0]]), case.theta.kernel)
    criterion = cp.sum_squares(points.derivative(0) @ case.theta)
    case.problem.solve()
    found = ko.gradient(case.problem, criterion, [case.lam])
    assert found[case.lam] == pytest.approx(difference(case.problem, criterion, case.lam), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["largest eigenvalue", "nuclear norm", "spectral norm", "bound", "semidefinite"])
def test_semidefinite_cones(use):
    rng = np.random.default_rng(11)
    X = rng.uniform(-2, 2, size=(20, 1))
    y = np.column_stack([np.sin(2 * X[:, 0]), np.cos(X[:, 0]), X[:, 0]]) + 0.1 * rng.normal(size=(20, 3))
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Parameter(pos=True, value=0.3, name="lam")
    c = cp.Parameter(nonneg=True, value=1.1, name="c")
    f = theta(X)
    objective, constraints = cp.sum(losses.huber(y, f)) + lam * ko.sum_squares(theta), []
    M = f[:3]
    if use == "largest eigenvalue":
        objective += c * cp.lambda_max(M + M.T)
    elif use == "nuclear norm":
        objective += c * cp.normNuc(f[:5])
    elif use == "spectral norm":
        objective += c * cp.sigma_max(f[:5])
    elif use == "bound":
        constraints = [cp.lambda_min(M + M.T) >= c - 2]
    else:
        V = cp.Variable((3, 3), symmetric=True)
        constraints = [V - M - M.T >> 0, V >> 0.1 * np.eye(3)]
        objective += c * cp.trace(V)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    criterion = cp.sum_squares(theta(X[:7] + 0.2) - 0.5)
    problem.solve()
    found = ko.gradient(problem, criterion, [lam, c])
    for p in (lam, c):
        assert found[p] == pytest.approx(difference(problem, criterion, p, h=1e-3), rel=1e-6, abs=1e-8)
    problem.solve(tol=1e-3)
    again = ko.gradient(problem, criterion, [lam, c])
    assert again[lam] == pytest.approx(found[lam], rel=1e-8) and again[c] == pytest.approx(found[c], rel=1e-8)


@pytest.mark.parametrize(("right", "most"), [((1.0, 1.0), 5), ((1.0, 2.0), 3)])
def test_refinement_ends_where_the_rest_is_not_in_the_range(right, most, monkeypatch):
    """Two equal equations with one right-hand side are solved exactly; with two of them ½(1, −1) remains of (1, 2)."""
    calls, nearly = [], kkt.System._nearly

    def counted(system, left):
        calls.append(left)
        return nearly(system, left)

    monkeypatch.setattr(kkt.System, "_nearly", counted)
    B = np.array([[1.0, 0.0], [0.5, 1.0]])
    span = kkt.Span(B, np.array([[0], [1]]), np.zeros((2, 1)), {})
    norm = kkt.Length(0, 2, np.eye(1), np.zeros((2, 1)), 0.0, 1.0)
    J = sp.csr_array(np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    system = kkt.System(sp.csc_array((3, 3)), J, (span,), (norm,))
    found, left = system.solve(kkt.Move((np.zeros((2, 1)),), np.zeros(3), np.array(right)))
    assert len(calls) <= most
    assert (B @ found.w[0])[0, 0] == pytest.approx(np.mean(right), rel=1e-6)
    assert left == pytest.approx(0.0 if right[0] == right[1] else np.sqrt(0.5 / 5), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squares", "logistic"])
@pytest.mark.parametrize("k", [1e-2, 3e-6, 1e-6])
def test_units_of_a_constraint(k, loss):
    """k·Σf(z) = k·c is the same equation for every k, also beside a second one in other units."""
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(20, 2)), rng.normal(size=(5, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=20)
    found = []
    for unit in (1.0, k):
        lam, c = cp.Parameter(pos=True, value=0.5), cp.Parameter(value=0.7)
        theta, b = ko.Theta(kernels.Gaussian(1.0)), cp.Variable()
        f, at = theta(X) + b, theta(Z)
        losses = cp.sum_squares(y - f) if loss == "squares" else cp.sum(cp.logistic(-cp.multiply(np.sign(y), f)))
        constraints = [unit * cp.sum(at) == unit * c, at[0] - at[1] == 0.1]
        problem = ko.Problem(cp.Minimize(losses + lam * ko.sum_squares(theta)), constraints)
        problem.solve(tol=1e-7)
        gradient = ko.gradient(problem, cp.sum_squares(at) + b, [lam, c])
        found.append([gradient[lam], gradient[c]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7)


def test_parameters_inside_a_quadratic_form_are_refused_by_name():
    """cvxpy puts numbers in their place, and in that of all others; written as squares they stay."""
    y, R = np.array([1.0, -0.5, 0.3]), np.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    e, lam = cp.Parameter(value=0.1, name="e"), cp.Parameter(nonneg=True, value=0.5, name="lam")
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f, found = theta(np.array([[0.0], [1.0], [2.5]])), []
    for loss in (lambda r: cp.quad_form(r, R.T @ R), lambda r: cp.sum_squares(R @ r)):
        problem = ko.Problem(cp.Minimize(loss(y + e * np.ones(3) - f) + lam * ko.sum_squares(theta)))
        problem.solve(tol=1e-9)
        found.append(lambda p, of=problem: ko.gradient(of, f[0], [p])[p])
    for p in (e, lam):
        with pytest.raises(
            ko.errors.KernelOptError, match=f"with {p.name()} as a parameter; it puts numbers.*cp.sum_squares"
        ):
            found[0](p)
    K = theta.kernel(np.array([[0.0], [1.0], [2.5]]))
    by_hand = K @ np.linalg.solve(R.T @ R @ K + 0.5 * np.eye(3), R.T @ R @ np.ones(3))
    assert found[1](e) == pytest.approx(by_hand[0], rel=1e-6)


def test_a_theta_that_is_held_at_0():
    """d(b²)/dλ of Σ(b − y)² + λb², b = 3/(2 + λ), beside a θ of rank 0."""
    for outputs in (None, 2):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=outputs), cp.Variable()
        lam, f = cp.Parameter(nonneg=True, value=0.1), theta(np.array([[0.0], [1.0]]))
        loss = cp.sum_squares((f if outputs is None else f[:, 0]) + b - np.array([1.0, 2.0])) + lam * cp.square(b)
        problem = ko.Problem(cp.Minimize(loss), [ko.sum_squares(theta) <= 0])
        problem.solve()
        assert ko.gradient(problem, cp.square(b), [lam])[lam] == pytest.approx(-18 / 2.1**3, rel=1e-6)


UNITS = {
    "none": {},
    "a column of data": {"column": 1e6},
    "a column of small data": {"column": 1e-4},
    "the weight of a row": {"weight": 1e4},
    "the objective": {"factor": 1e8},
    "an offset of all labels": {"offset": 1e5},
}


@pytest.mark.parametrize(
    "loss", [cp.norm1, cp.sum_squares, lambda r: cp.sum(cp.huber(r, 0.2))], ids=["l1", "l2", "huber"]
)
@pytest.mark.parametrize("name", UNITS)
def test_units_of_data_change_no_gradient(name, loss):
    """A partially linear model. Systems were regularized as much for each column, and rows had one unit of slacks."""
    unit = {"column": 1.0, "weight": 1.0, "factor": 1.0, "offset": 0.0} | UNITS[name]
    rng = np.random.default_rng(3)
    points, income = rng.uniform(0, 5, (30, 1)), rng.lognormal(0, 0.5, 30)
    labels = np.sin(points[:, 0]) + 0.5 * income + 0.3 * rng.normal(size=30)
    has_threshold = loss not in (cp.norm1, cp.sum_squares)

    def found(unit):
        theta, b, beta = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable()
        lam = cp.Parameter(pos=True, value=0.2)
        r = labels + unit["offset"] - theta(points) - b - beta * (income * unit["column"])
        first = 100 * unit["weight"] * cp.abs(r[0] - 0.01)  # 0 from weights of 100 on
        objective = loss(r[1:]) + first + lam * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(unit["factor"] * objective))
        problem.solve()
        gradient = ko.gradient(problem, np.arange(1, 4) @ theta(np.array([[1.0], [2.0], [4.0]])), [lam])
        # Beside such an offset, rows near Huber's threshold count as kinks, which is no wrong value.
        assert gradient.is_differentiable or (has_threshold and unit["offset"])
        return gradient[lam]

    assert found(unit) == pytest.approx(found(dict.fromkeys(unit, 1.0) | {"offset": 0.0}), rel=1e-6)
