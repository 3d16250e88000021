"""Gradients where the optimum has no derivative: planted kinks and bounds, beside differences to each side."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, KernelOptError

KERNEL = ko.kernels.Gaussian(sigma=1.0)


class Planted:
    """A problem, a criterion, and the parameters by which it has a derivative (`smooth`) or none (`bent`)."""

    def __init__(self, objective, constraints, criterion, *, bent, smooth=(), maximize=False):
        if maximize:
            self.problem = ko.Problem(cp.Maximize(-objective), constraints)
        else:
            self.problem = ko.Problem(cp.Minimize(objective), constraints)
        self.criterion, self.bent, self.smooth = criterion, bent, smooth


def data(seed, N=9):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 5, N))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=N)
    return rng, X, y, ko.Theta(KERNEL), cp.Parameter(pos=True, value=float(rng.uniform(0.1, 0.6)), name="lam")


def number(value, name):
    return cp.Parameter(value=float(value), name=name)


def ridge(X, y, lam):
    """Predictions of Σ(y − f)² + λ‖θ‖² at X, and ‖θ‖."""
    Q = KERNEL(X)
    alpha = np.linalg.solve(Q + lam * np.eye(len(X)), y)
    return Q @ alpha, float(np.sqrt(alpha @ Q @ alpha))


def bound_twice(seed):
    _, X, y, theta, lam = data(seed)
    f, _ = ridge(X, y, lam.value)
    at, level = int(np.argmax(f)), float(f.max()) - 0.2
    c = number(level, "c")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    constraints = [theta(X) <= c, theta(X[at : at + 1]) <= level]
    return Planted(objective, constraints, cp.sum_squares(theta(X + 0.1)), bent=[c], smooth=[lam], maximize=seed % 2)


def equal_rows(seed):
    _, X, y, theta, lam = data(seed)
    X[4], y[4] = X[3], y[3]
    lam.value = 0.05
    shift, mass = number(0.0, "shift"), np.zeros(9)
    mass[4] = 1.0
    objective = cp.norm1(y + shift * mass - theta(X)) + lam * ko.sum_squares(theta)
    return Planted(objective, [], cp.sum_squares(theta(X + 0.1)), bent=[shift], smooth=[lam], maximize=seed % 2)


def bound_of_a_variable(seed):
    _, X, y, theta, lam = data(seed)
    kind = seed % 3
    c = number([0.0, 0.0, 1.0][kind], "c")
    b = [cp.Variable(nonneg=True), cp.Variable(), cp.Variable(bounds=[-2, 1])][kind]
    constraints = [[], [b >= 0], []][kind]
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta) + cp.square(b - c)
    return Planted(objective, constraints, cp.sum(theta(X)) + 3 * b, bent=[c], smooth=[lam])


def bound_reached(seed):
    """f ≤ c, with c the largest of the predictions without it."""
    _, X, y, theta, lam = data(seed)
    f, _ = ridge(X, y, lam.value)
    c = number(f.max(), "c")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    return Planted(objective, [theta(X) <= c], cp.sum_squares(theta(X + 0.1)), bent=[c, lam], maximize=seed % 2)


def ball_reached(seed):
    """‖θ‖ ≤ R, with R the norm without it."""
    _, X, y, theta, lam = data(seed)
    R = number(ridge(X, y, lam.value)[1], "R")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    return Planted(objective, [ko.norm(theta) <= R], cp.sum_squares(theta(X + 0.1)), bent=[R, lam])


def about_to_leave_zero(seed):
    """λ‖θ‖ with λ = ‖Aᵀν‖ = 2√(yᵀQy)."""
    _, X, y, theta, lam = data(seed)
    lam.value = 2 * float(np.sqrt(y @ KERNEL(X) @ y))
    objective = cp.sum_squares(y - theta(X)) + lam * ko.norm(theta)
    criterion = cp.sum(theta(X + 0.1)) + (2.0 * ko.norm(theta) if seed % 2 else 0)
    return Planted(objective, [], criterion, bent=[lam])


def implied_equation(seed):
    """f = d at a point where f ≤ c = d is stated, too: for smaller c there is no solution."""
    _, X, y, theta, lam = data(seed)
    c = number(0.3, "c")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    constraints = [theta(X[2:4]) == 0.3, theta(X[2:3]) <= c]
    return Planted(objective, constraints, cp.sum_squares(theta(X + 0.1)), bent=[c], smooth=[lam])


def sum_of_bounds(seed):
    """f₁ ≤ c, f₂ ≤ c and f₁ + f₂ ≤ 2c: one too many."""
    _, X, y, theta, lam = data(seed)
    f, _ = ridge(X, y, lam.value)
    i, j = np.argsort(f)[-2:]
    level = float(min(f[i], f[j])) - 0.3
    c, d = number(level, "c"), number(2 * level, "d")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    constraints = [theta(X[[i, j]]) <= c, cp.sum(theta(X[[i, j]])) <= d]
    return Planted(objective, constraints, cp.sum_squares(theta(X + 0.1)), bent=[c, d], smooth=[lam], maximize=seed % 2)


def cone_reached(seed):
    """‖f(X₁…₃)‖ ≤ c, or Σexp f(X₁…₃) ≤ c, with the value without it."""
    _, X, y, theta, lam = data(seed)
    f, _ = ridge(X, y, lam.value)
    value = np.linalg.norm(f[:3]) if seed % 2 else np.exp(f[:3]).sum()
    c, at = number(value, "c"), theta(X[:3])
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    constraints = [cp.norm(at) <= c if seed % 2 else cp.sum(cp.exp(at)) <= c]
    return Planted(objective, constraints, cp.sum_squares(theta(X + 0.1)), bent=[c, lam])


def group_about_to_leave_zero(seed):
    """μ‖v‖ beside ‖v − a‖²/2 with μ = ‖a‖."""
    rng, X, y, theta, lam = data(seed)
    a, v = rng.normal(size=3), cp.Variable(3)
    mu = cp.Parameter(pos=True, value=float(np.linalg.norm(a)), name="mu")
    objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta) + cp.sum_squares(v - a) / 2 + mu * cp.norm(v)
    return Planted(objective, [], cp.sum(theta(X)) + v @ rng.normal(size=3), bent=[mu], smooth=[lam])


def hinge_reached(seed):
    """A row of the pinball loss about to leave its kink: λ from the closed form of one row."""
    _, X, y, theta, lam = data(seed, N=1)
    y = 1.0 + abs(y)
    lam.value = 1 / (2 * float(y[0]))  # κ(x, x) = 1: f = y while 2λy ≤ 1
    objective = cp.sum(cp.abs(y - theta(X))) + lam * ko.sum_squares(theta)
    return Planted(objective, [], cp.sum(theta(X + 0.1)), bent=[lam], maximize=seed % 2)


KINDS = [
    bound_twice, equal_rows, bound_of_a_variable, bound_reached, ball_reached, about_to_leave_zero, implied_equation,
    sum_of_bounds, cone_reached, group_about_to_leave_zero, hinge_reached,
]  # fmt: skip


def one_sided(problem, value, p, sign):
    """The derivative to one side of p by values at p ± h, p ± 2h and p ± 3h; nan where there is no solution."""
    kept, values = float(p.value), []
    h = 1e-3 * (abs(kept) or 1.0)
    for k in (1, 2, 3):
        p.value = kept + sign * k * h
        problem.solve(tol=1e-11)
        values.append(value())
        if np.isnan(values[0]):
            break
    p.value = kept
    if np.isnan(values[0]):
        return np.nan
    return sign * (-5 * values[0] + 8 * values[1] - 3 * values[2]) / (2 * h)


def checked(planted):
    """Both derivatives of a planted problem beside differences, and whether they count as equal."""
    planted.problem.solve(tol=1e-11)
    for p in (*planted.bent, *planted.smooth):
        found = ko.gradient(planted.problem, planted.criterion, [p])
        is_smooth = any(p is q for q in planted.smooth)

        def value(p=p, is_smooth=is_smooth):
            if planted.criterion.value is None:
                return np.nan
            if is_smooth:  # the optimum is at a kink for all p, where solvers are less exact
                return ko.gradient(planted.problem, planted.criterion, [p]).value
            return float(np.ravel(planted.criterion.value)[0])

        known = [one_sided(planted.problem, value, p, sign) for sign in (-1, 1)]
        planted.problem.solve(tol=1e-11)
        yield p, is_smooth, found, known


def compared(make, seed):
    """Assert what the differences show, and return how many parameters have no derivative."""
    planted, bent = make(seed), 0
    for p, is_smooth, found, (left, right) in checked(planted):
        size = max(1e-3, *(abs(k) for k in (left, right) if np.isfinite(k)))
        is_bent = not abs(left - right) <= 0.01 * size
        bent += is_bent
        assert is_bent <= (not is_smooth), p.name()
        assert found.is_differentiable == (not is_bent), (p.name(), left, right)
        assert found.one_sided[p] == pytest.approx((left, right), abs=1e-3 * size, nan_ok=True), p.name()
    return bent


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_planted(make):
    assert compared(make, 2) > 0


def symmetric(criterion, loss=cp.sum_squares):
    """Targets of opposite signs: θ(0) = 0, and b = 0, to rounding."""
    theta, q, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(value=0.0), cp.Variable()
    points = np.array([[-1.0], [1.0], [-0.4], [0.4]])
    f = theta(points)
    objective = loss(f + b - np.array([-1.1, 1.1, 0.53, -0.53])) + q * f[0] + 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective + 0.1 * cp.square(b)))
    problem.solve(tol=1e-9)
    return ko.gradient(problem, criterion(theta, b), [q])


@pytest.mark.parametrize(
    ("criterion", "kink"),
    [
        (lambda theta, b: cp.sum(cp.abs(theta(np.zeros((1, 1))))), "abs"),
        (lambda theta, b: cp.pos(theta(np.zeros((1, 1)))[0]), "maximum"),
        (lambda theta, b: cp.abs(b), "abs"),
    ],
)
def test_a_criterion_at_a_kink_to_rounding(criterion, kink):
    """A value of 1e-17 beside predictions of size 1 tells no side."""
    found = symmetric(criterion)
    assert not found.is_differentiable and found.kinks == (kink,)


def held(criterion):
    """The gradient of a criterion by c, with f₀ = c = 0.4, and c."""
    points = np.random.default_rng(3).uniform(-2, 2, (14, 1))
    theta, c = ko.Theta(KERNEL), cp.Parameter(value=0.4)
    f = theta(np.linspace(-2, 2, 9)[:, None])
    loss = cp.sum_squares(theta(points) - np.sin(2 * points[:, 0])) + 0.2 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [f[0] == c])
    problem.solve(tol=1e-10)
    return ko.gradient(problem, criterion(f), [c]), c


@pytest.mark.parametrize(
    ("criterion", "kinks"),
    [
        (lambda f: cp.norm_inf(f[:1] - 0.4), {"norm_inf"}),
        (lambda f: cp.sqrt(cp.sum_squares(f[:1] - 0.4)), {"power"}),
        (lambda f: cp.power(cp.square(cp.square(f[0] - 0.4)), 0.25), {"power"}),
        (lambda f: cp.sqrt(cp.sum(cp.huber(f[:1] - 0.4))), {"power"}),
        (lambda f: cp.sqrt(cp.quad_form(f[:1] - 0.4, np.eye(1))), {"power"}),
        (lambda f: cp.sqrt(cp.sum_squares(f[:1] - 0.4) / 3), {"power"}),
        (lambda f: cp.geo_mean(cp.hstack([cp.square(f[0] - 0.4), 1])), {"geo_mean"}),
        # A slope of 0 in the middle of the outer kink hides the inner one.
        (lambda f: cp.mixed_norm(cp.reshape(f[:2] - np.array([0.4, 0]), (2, 1), order="F"), "inf", 1),
         {"norm1", "norm_inf"}),
        (lambda f: cp.abs(cp.norm_inf(f[:1] - 0.4)), {"abs", "norm_inf"}),
    ],
)  # fmt: skip
def test_kinks_and_roots_of_what_is_0(criterion, kinks):
    found, c = held(criterion)
    assert not found.is_differentiable and set(found.kinks) == kinks and found.one_sided[c] is None


def test_a_root_of_squares_beside_0_has_a_slope():
    found, c = held(lambda f: cp.sqrt(cp.sum_squares(f[:1] - 0.4 + 1e-6)))
    assert found.is_differentiable and float(found[c]) == pytest.approx(1.0, abs=1e-5)


def test_the_length_of_a_function_that_is_0():
    theta, q = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(value=0.0)
    f = theta(np.array([[-1.0], [1.0]]))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f) + q * f[0] + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    assert ko.gradient(problem, ko.norm(theta), [q]).kinks == ("norm",)
    assert ko.gradient(problem, ko.sum_squares(theta), [q]).is_differentiable


@pytest.mark.parametrize("criterion", [None, lambda f: cp.sum(cp.square(f + 1))])
def test_equations_that_a_function_held_at_0_meets(criterion):
    """min ‖θ‖ with f = qv: at q = 0 the value is |q| times a constant, and θ leaves 0 on both sides."""
    theta, q = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(value=0.0)
    f = theta(np.array([[0.0], [1.0], [3.0]]))
    problem = ko.Problem(cp.Minimize(ko.norm(theta)), [f == q * np.array([1.0, -1.0, 0.5])])
    problem.solve()
    found = ko.gradient(problem, problem.objective if criterion is None else criterion(f), [q])
    assert not found.is_differentiable and found.one_sided[q] is None


def test_equal_rows_at_a_differentiable_point():
    """Of two equal rows at a kink the one with the larger weight decides: what is left has a derivative of its own."""
    X = np.array([[0.0], [1.0], [0.0]])
    y, s, theta = cp.Parameter(3, value=[0.5, 0.3, 0.5]), cp.Parameter(value=0.0), ko.Theta(KERNEL)
    f = theta(X)
    losses = cp.abs(f - y - s * np.array([1.0, 0.0, 0.0]))
    problem = ko.Problem(cp.Minimize(np.array([3.0, 3.0, 1.0]) @ losses + 0.01 * ko.norm(theta)))
    problem.solve()
    found = ko.gradient(problem, f[0] + 0)
    assert found.is_differentiable
    assert found[y] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert float(found[s]) == pytest.approx(1.0, abs=1e-6) and found.one_sided[s] == pytest.approx((1.0, 1.0))


def test_equal_rows_that_move_apart():
    """At the optimum 0 all of them are at kinks."""
    p, theta, weights = cp.Parameter(value=0.0), ko.Theta(KERNEL), np.array([1.0, 2.0, 2.0])
    f = theta(np.zeros((3, 1)))
    losses = cp.multiply(weights, cp.abs(f - p * np.arange(3)))
    problem = ko.Problem(cp.Minimize(cp.sum_largest(losses, 2) + 0.5 * ko.norm(theta)))
    problem.solve()
    found = ko.gradient(problem, cp.sum(f), [p])
    assert not found.is_differentiable and {(theta, 0), (theta, 1), (theta, 2)} <= set(found.near)


WAYS = {
    "abs": lambda f, theta: cp.sum(cp.abs(f)),
    "pos": lambda f, theta: cp.sum(cp.pos(f)),
    "maximum": lambda f, theta: cp.sum(cp.maximum(f, -f)),
    "a sum": lambda f, theta: cp.sum(cp.abs(f) + f),
    "norm of f": lambda f, theta: cp.norm(f),
    "norm of θ": lambda f, theta: ko.norm(theta),
}


@pytest.mark.parametrize("name", WAYS)
def test_kinks_of_a_criterion_that_move_where_a_constraint_is_left(name):
    """f = max(c, 0) at c = 0: with f ≥ c held, or not there, the criterion's slopes at f = 0 change nothing."""
    c, theta = cp.Parameter(value=0.0), ko.Theta(ko.kernels.Linear())
    f = theta(np.ones((1, 1)))
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f >= c])
    problem.solve()
    found = ko.gradient(problem, WAYS[name](f, theta), [c])
    assert not found.is_differentiable and found.near and found.one_sided[c] is None
    known = ko.gradient(problem, cp.sum(2 * f), [c])
    assert known.one_sided[c] == pytest.approx((0.0, 2.0), abs=1e-6)


@pytest.mark.parametrize("name", ["abs", "pos"])
def test_kinks_of_a_criterion_that_move_where_a_function_leaves_0(name):
    """f = max(a − 1, 0) at a = 1."""
    a, theta = cp.Parameter(value=1.0), ko.Theta(ko.kernels.Linear())
    f = theta(np.ones((1, 1)))
    problem = ko.Problem(cp.Minimize(0.5 * cp.sum_squares(f - a) + ko.norm(theta)))
    problem.solve(tol=1e-10)
    found = ko.gradient(problem, WAYS[name](f, theta), [a])
    assert not found.is_differentiable and found.one_sided[a] is None


def test_slacks_that_cost_nothing():
    """A θ without a norm moves along a row of weight 0: what a slack costs is rounding there."""
    X, w = np.array([[2.0], [2.0], [-1.0]]), cp.Parameter(3, nonneg=True, value=[2.0, 0.0, 1.0])
    free, theta, b = ko.Theta(ko.kernels.Linear()), ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable(nonneg=True)

    def f(Z):
        return free(Z) + theta(Z) + b

    objective = w @ cp.pos(1 - f(X)) + ko.norm(theta) + cp.square(b + 1)
    problem = ko.Problem(cp.Minimize(objective), [f(X[:1])[0] <= 1])
    problem.solve(tol=1e-9)
    found = ko.gradient(problem, cp.sum(f(np.array([[0.5], [-1.2]]))), [w])
    assert not found.is_differentiable and found.one_sided[w] is None
    assert {leaf for leaf, _ in found.near} == {free, theta}


def test_sides_where_the_optimum_is_not_unique():
    """θ₁ is free in its ball: nothing tells how it moves."""
    bound, radius = cp.Parameter(value=10.0), cp.Parameter(nonneg=True, value=0.25)
    free, theta = ko.Theta(ko.kernels.Linear()), ko.Theta(ko.kernels.Gaussian(sigma=2.0))

    def f(Z):
        return free(Z) + theta(Z)

    X, y = np.array([[-2.0], [2.0], [0.0], [0.0], [0.0]]), np.array([1.0, 0.0, -2.0, 2.0, 0.0])
    objective = cp.max(cp.abs(y - f(X))) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [ko.norm(free) <= radius, f(np.array([[-1.0]])) <= bound])
    problem.solve(tol=1e-9)
    found = ko.gradient(problem, cp.sum(f(np.array([[1.3], [-0.4]]))), [bound, radius])
    assert not found.is_differentiable
    assert found.one_sided == {bound: None, radius: None}


def test_a_value_whose_optimum_is_not_unique():
    """Two labels of each class: the intercept of a support vector machine is free between two kinks, so that a weight
    of one class changes the value at other rates to both sides. λ does not act on what is free."""
    X, labels = np.array([[-0.2], [0.2], [-0.1], [0.1]]), np.array([1.0, 1, -1, -1])
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    w, lam = cp.Parameter(nonneg=True, value=1.0), cp.Parameter(nonneg=True, value=5.0)
    losses = cp.pos(1 - cp.multiply(labels, theta(X) + b))
    problem = ko.Problem(cp.Minimize(w * cp.sum(losses[:2]) + cp.sum(losses[2:]) + lam * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="unique in all that"):
        ko.gradient(problem, problem.objective, [w])
    found = ko.gradient(problem, problem.objective, [lam])
    assert found.is_differentiable and found[lam] == pytest.approx(ko.sum_squares(theta).value, abs=1e-9)


def test_a_weight_of_0_that_decides_between_optima():
    """b + u₀ is the same for all optima at p = 0; which of them the limit p → 0 chooses decides its derivative."""
    X = np.array([[0.0], [1.0], [2.0]])
    theta, b, u, p = ko.Theta(KERNEL), cp.Variable(), cp.Variable(3), cp.Parameter(nonneg=True, value=0.0)
    objective = cp.sum_squares(np.array([1.0, -0.5, 2.0]) - theta(X) - b - u) + p * cp.norm1(u) + 2 * ko.norm(theta)
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve()
    with pytest.raises(KernelOptError, match="unique in all that"):
        ko.gradient(problem, b + u[0], [p])


@pytest.mark.parametrize("seed", [28, 36])
def test_predictions_that_are_small_beside_constants(seed):
    """Losses of 1 ± 1e-6 are apart where predictions are 1e-3: neither is at the kink of the other."""
    rng, n = np.random.default_rng(seed), 18
    X = rng.uniform(-2, 2, (n, 1))
    labels = np.where(np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    labels[:2] = 1, -1
    theta, b, a = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(), cp.Parameter(value=0.3)
    tilt = 0.1 * rng.normal(size=n)
    losses = cp.pos(1 - cp.multiply(labels, theta(X) + b))
    objective = cp.cvar(losses, 0.7) + 0.45 * ko.sum_squares(theta) + a * (tilt @ theta(X))
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve()
    criterion = rng.normal(size=4) @ theta(rng.uniform(-2, 2, (4, 1)))
    found, values = ko.gradient(problem, criterion, [a]), []
    for a.value in (0.297, 0.303):
        problem.solve(tol=1e-9)
        values.append(ko.gradient(problem, criterion, [a]).value)
    assert found.is_differentiable
    assert found.one_sided[a] == pytest.approx(2 * ((values[1] - values[0]) / 0.006,), rel=1e-4)


@pytest.mark.parametrize(("seed", "slopes"), [(30, (0.0, -0.5)), (0, (-0.5, -0.5)), (9, (0.5, -0.5))])
def test_a_value_by_the_tilt_of_a_median(seed, slopes):
    """With θ = 0 it is min Σ|y − b| + pb. An optimum at the end of those of an even number of targets is not unique
    either, though none of its rows is on a stretch: that has no derivative, and one within is refused."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.choice([2, 4, 6])), 1))
    y, b, p = np.round(2 * rng.normal(size=len(X))) / 2, cp.Variable(), cp.Parameter(value=0.0)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(y - theta(X) - b)) + p * b + 50 * ko.norm(theta)))
    problem.solve()
    if seed == 9:
        with pytest.raises(KernelOptError, match="unique"):
            ko.gradient(problem, problem.objective, [p])
        return
    found = ko.gradient(problem, problem.objective, [p])
    assert found.is_differentiable == (slopes[0] == slopes[1])
    assert float(found[p]) == pytest.approx(float(b.value), abs=1e-6)


def test_parameters_that_do_not_act_on_what_is_free():
    """No loss changes with b; λ acts on ‖θ‖² alone, which is unique, up to errors of the curvature of exponentials."""
    X, theta, b = np.linspace(0, 5, 6)[:, None], ko.Theta(KERNEL), cp.Variable()
    lam, r = cp.Parameter(pos=True, value=0.01), np.sin(X[:, 0]) - theta(X) - b
    loss = cp.log_sum_exp(r) + cp.log_sum_exp(-r)
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve()
    found = ko.gradient(problem, problem.objective, [lam])
    assert found.is_differentiable
    assert float(found[lam]) == pytest.approx(ko.sum_squares(theta).value, rel=1e-5)
    assert ko.gradient(problem, theta(X)[0] - theta(X)[3], [lam]).is_differentiable


@pytest.mark.parametrize(
    ("target", "criterion", "kinks"),
    [
        ([0.0, -0.7, -2.0], lambda f: cp.abs(cp.max(f)), ("abs",)),
        ([0.0, -0.7, -2.0], lambda f: cp.norm1(cp.cummax(f) - np.array([0.0, 0.1, 0.1])), ("norm1",)),
        ([1.0, 0.7, 2.0], lambda f: cp.pos(cp.log(f[0])), ("maximum",)),
        ([1.0, 1.0, 1.0], lambda f: cp.norm(cp.log(f)), ("pnorm",)),
        ([1.3, 1.3, 0.2], lambda f: cp.abs(cp.rel_entr(f[0], f[1])), ("abs",)),
        ([2.0, 0.5, 1.0], lambda f: cp.pos(cp.log_det(cp.diag(f))), ("maximum",)),
        ([float(np.log(1 - np.exp(-1.3) - np.exp(-0.9))), -1.3, -0.9], lambda f: cp.pos(cp.log_sum_exp(f)),
         ("maximum",)),
        ([0.3, -0.7, -2.0], lambda f: cp.abs(cp.max(f)), ()),
        ([1.1, 0.7, 2.0], lambda f: cp.pos(cp.log(f[0])), ()),
    ],
)  # fmt: skip
def test_kinks_of_what_is_0_but_for_rounding_of_its_arguments(target, criterion, kinks):
    """log f near f = 1 is 0 up to the error of f, however small its own value is."""
    c, theta = cp.Parameter(value=0.0), ko.Theta(ko.kernels.Gaussian(sigma=0.7))
    f = theta(np.array([[0.0], [1.0], [2.0]]))
    move = np.array([1.0, 0.0, 0.0])
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f == np.array(target) + c * move])
    problem.solve()
    found, h = ko.gradient(problem, criterion(f), [c]), 1e-6
    values = [float(criterion(cp.Constant(np.array(target) + step * move)).value) for step in (-h, 0, h)]
    left, right = np.diff(values) / h
    assert found.kinks == kinks and (abs(left - right) < 1e-3) == (not kinks)
    if not kinks:
        assert found[c] == pytest.approx((left + right) / 2, abs=1e-5)


KINKED = {
    "Laplacian": (ko.kernels.Laplacian(sigma=1.0), [[0.0, 1.0], [2.0, 1.0]]),
    "Matern": (ko.kernels.Matern(nu=0.5, sigma=1.0), [[0.0, 1.0], [0.0, 1.0]]),
    "Intersection": (ko.kernels.Intersection(), [[0.3, 1.0], [0.5, 1.0]]),
    "l1": (ko.kernels.GeneralizedGaussian("l1", beta=2.0), [[0.0, 1.0], [2.0, 1.0]]),
    "sum": (2.0 * ko.kernels.Laplacian(sigma=1.0).on([1]) + ko.kernels.Linear(), [[0.0, 1.0], [2.0, 1.0]]),
    "smooth Matern": (ko.kernels.Matern(nu=1.5, sigma=1.0), [[0.0, 1.0], [0.0, 1.0]]),
    "Gaussian": (ko.kernels.Gaussian(sigma=1.0), [[0.0, 1.0], [0.0, 1.0]]),
    "square of l1": (ko.kernels.GeneralizedGaussian("l1", beta=2.0), [[0.0, 1.0], [0.0, 1.0]]),
}


@pytest.mark.parametrize("name", KINKED)
def test_kinks_of_a_kernel_between_points_that_are_parameters(name):
    """Beside differences to both sides of y′(K + I)⁻¹k, for points that share a coordinate, or are the same."""
    kernel, two = KINKED[name]
    start, lam = np.array([*two, [0.7, 0.4]]), cp.Parameter(nonneg=True, value=1.0)
    Z, y = cp.Parameter((3, 2), value=start), np.array([1.0, 2.0])
    theta = ko.Theta(kernel.indexed(Z))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(np.arange(2))) + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-9)
    criterion = theta(np.array([2]))[0]
    found = ko.gradient(problem, criterion, [Z])

    def value(points):
        K = kernel(points)
        return y @ np.linalg.solve(K[:2, :2] + np.eye(2), K[:2, 2])

    h, sides = 1e-6, np.zeros((2, 3, 2))
    for at in np.ndindex(3, 2):
        for k, step in enumerate((-h, h)):
            moved = start.copy()
            moved[at] += step
            sides[k][at] = (value(moved) - value(start)) / step
    differ = np.abs(sides[0] - sides[1]).max() > 1e-3
    assert found.is_differentiable is (not differ) and bool(differ) == (name in list(KINKED)[:5])
    assert found[Z] == pytest.approx(sides.mean(axis=0), abs=1e-5)
    assert ko.gradient(problem, criterion, [lam]).is_differentiable
    assert ko.gradient(problem, ko.sum_squares(theta), [Z]).is_differentiable is (not differ)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda g: cp.sum_squares(cp.pos(g)), None),
        (cp.sum_squares, 0.27 / (2 * (0.12**2 + 0.27**2))),
        (lambda g: cp.log_sum_exp(cp.pos(g)), 1 + np.exp(-0.27)),
        (lambda g: cp.exp(cp.max(cp.abs(g))), np.exp(-0.27)),
    ],
    ids=["squares of parts", "squares", "log-sum-exp", "largest"],
)
def test_a_constraint_that_is_met_exactly_by_the_optimum_without_it(function, left):
    """Its multiplier is 0, so that columns of the cone program within it cost nothing. Where they decide the slope, as
    the part that is 0, the slope is not known: by rounding it was a third of what it is."""
    b, m = np.array([-1.06, -0.28]), -0.41
    theta, c = ko.Theta(ko.kernels.Linear()), cp.Parameter(value=float(function(cp.Constant(b / 2 - m)).value))
    f = theta(np.eye(2))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(b - f) + ko.sum_squares(theta)), [function(f - m) <= c])
    problem.solve()
    found = ko.gradient(problem, f[1], [c])
    assert not found.is_differentiable
    assert found.one_sided[c] == (None if left is None else pytest.approx((left, 0.0), rel=1e-6, abs=1e-9))


STILL = {
    "a bound beside losses of 0": lambda f, c: (cp.sum(cp.pos(cp.abs(f - [0.2, 0.1, 0.3]) - 1)), [f[0] >= c]),
    "bounds at the edge of losses": lambda f, c: (cp.sum(cp.pos(cp.abs(f - [1.0, 0.0, 1.0]) - 1)), [f >= c]),
    "one bound": lambda f, c: (0, [f[0] >= c]),
    "a bound of another row": lambda f, c: (0, [f[0] >= c, cp.abs(f[1]) <= 1]),
}


@pytest.mark.parametrize("name", STILL)
def test_a_bound_at_which_all_is_0(name):
    """θ, variables and all multipliers are 0 but for rounding, which is no unit of slacks: by it the bound was far."""
    theta, b, c = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(value=0.0)
    f = theta(np.array([[0.0], [1.0], [2.0]])) + b
    losses, constraints = STILL[name](f, c)
    problem = ko.Problem(cp.Minimize(losses + 0.5 * ko.sum_squares(theta) + 0.5 * cp.square(b)), constraints)
    problem.solve()
    found = ko.gradient(problem, cp.sum(f), [c])
    c.value = 0.01
    problem.solve(tol=1e-9)
    assert not found.is_differentiable
    assert found.one_sided[c] == pytest.approx((0.0, cp.sum(f).value / 0.01), rel=1e-5, abs=1e-9)


def test_an_optimum_of_0_has_derivatives():
    """The conditions' terms are all rounding there; they were refused as a residual of 1."""
    theta, y = ko.Theta(KERNEL), cp.Parameter(3, value=np.zeros(3))
    f = theta(np.array([[0.0], [1.0], [2.0]]))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta)), [f <= 0])
    problem.solve()
    found = ko.gradient(problem, cp.sum(f), [y])
    assert not found.is_differentiable
    free = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta)))
    free.solve()
    found = ko.gradient(free, cp.sum(f), [y])
    Q = KERNEL(np.array([[0.0], [1.0], [2.0]]))
    assert found.is_differentiable
    np.testing.assert_allclose(found[y], np.linalg.solve(Q + np.eye(3), Q).sum(axis=0), rtol=1e-8)


def at_its_edge(shape, seed, beyond=0.0):
    """Least squares with a bound by `shape` that the optimum without it meets exactly, and how much that is beyond."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (6, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=6)
    kernel = ko.kernels.Gaussian(sigma=0.7)
    Q = kernel(X)
    f = Q @ np.linalg.solve(Q + 0.3 * np.eye(6), y)
    bound = cp.Parameter(value=float(shape(cp.Constant(f)).value) + beyond, name="bound")
    theta = ko.Theta(kernel)
    objective = cp.sum_squares(theta(X) - y) + 0.3 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [shape(theta(X)) <= bound])
    problem.solve()
    return problem, cp.sum(theta(X)), bound


@pytest.mark.parametrize("beyond", [0.0, 1e-8, 1e-5])
@pytest.mark.parametrize("shape", [cp.norm, cp.std, cp.sum_squares], ids=["norm", "std", "squares"])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_curved_bound_that_is_hardly_active(shape, seed, beyond):
    """The answer to the default tolerance says that it binds, the refined point that it does not, or hardly."""
    problem, total, bound = at_its_edge(shape, seed, beyond)
    of_value = ko.gradient(problem, problem.objective, [bound])
    assert of_value.is_differentiable and of_value[bound] == pytest.approx(0, abs=1e-12)
    found = ko.gradient(problem, total, [bound])
    assert found[bound] == pytest.approx(0, abs=1e-9) and (beyond < 1e-5 or found.is_differentiable)
    if not beyond:
        before, after = found.one_sided[bound]
        lower, higher = (at_its_edge(shape, seed, sign * 1e-3) for sign in (-1, 1))
        slope = ko.gradient(lower[0], lower[1], [lower[2]])[lower[2]]
        assert not found.is_differentiable and after == pytest.approx(0, abs=1e-9)
        assert before == pytest.approx(slope, rel=0.02)
        assert ko.gradient(higher[0], higher[1], [higher[2]])[higher[2]] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shape", [cp.lambda_max, cp.sigma_max])
@pytest.mark.parametrize("seed", range(5))
def test_a_semidefinite_bound_that_is_hardly_active(shape, seed):
    problem, total, bound = at_its_edge(lambda f: shape(cp.bmat([[f[0], f[1]], [f[1], f[2]]])), seed)
    of_value = ko.gradient(problem, problem.objective, [bound])
    assert of_value.is_differentiable and of_value[bound] == pytest.approx(0, abs=1e-10)
    found = ko.gradient(problem, total, [bound])
    assert not found.is_differentiable and found.one_sided[bound] is None


@pytest.mark.parametrize("number", range(8))
def test_sides_where_active_rows_depend_on_each_other(number):
    """Rows that force θ₁ = 0 beside one that is about to bind: rounding of their dependencies is no effect of a.

    The value has the same slope on both sides, and the last prediction is linear on one side and 0 on the other.
    """
    rng = np.random.default_rng(number)
    first = np.array([2.0, -2.0, 1.0, -3.0])[: int(rng.integers(2, 5))]
    k, x, y, e = len(first), float(rng.integers(1, 3)), rng.normal(size=len(first)), rng.integers(-1, 2, len(first))
    X = np.vstack([np.c_[first, np.zeros(k)], [[0.0, x]]])
    theta, a = ko.Theta(ko.kernels.Linear()), cp.Parameter(value=0.0, name="a")
    f, moved = theta(X), np.append(e, 1.0)
    loss = cp.sum_squares(f - np.append(y, 0.0) - a * moved)
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)), [f <= 0])
    problem.solve(tol=1e-9)
    last, value = ko.gradient(problem, f[-1], [a]), ko.gradient(problem, problem.objective, [a])
    assert last.one_sided[a] == pytest.approx((x**2 / (x**2 + 1), 0.0), abs=1e-6)
    sides = value.one_sided[a]
    assert sides is None or sides == pytest.approx((2 * y @ e, 2 * y @ e), abs=1e-6)
    assert float(value[a]) == pytest.approx(2 * y @ e, abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-3])
def test_sides_whose_slacks_and_multipliers_are_both_zero(scale):
    """An interior point finds such slacks to half of the digits."""
    X, y = np.array([[0.0, -1.0], [2.0, 0.0], [0.0, -1.0], [-1.0, 2.0]]), np.array([-1.0, -2.0, 2.0, -2.0])
    theta, b, a = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(value=-scale, name="a")
    f = theta(X) + b
    loss = 2 * cp.sum_largest(cp.abs(f - scale * y - a * np.array([1.0, 0.0, 0.0, 0.0])), 2)
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / scale + 0.5 * cp.square(b) / scale))
    problem.solve(tol=1e-9)
    for criterion in (f[0], b + 0):
        left, _ = ko.gradient(problem, criterion, [a]).one_sided[a]
        assert abs(left) <= 1e-9


RETURNED = {
    "a string": lambda f: ("a", f),
    "a complex value": lambda f: (1j, f),
    "a complex slope": lambda f: (1.0, f * (1 + 5j)),
    "a slope of strings": lambda f: (1.0, "a"),
    "a ragged slope": lambda f: (1.0, [[1], [1, 2]]),
    "no value": lambda f: (None, f),
}


@pytest.mark.parametrize("name", RETURNED)
def test_functions_that_return_no_real_numbers(name):
    _, X, y, theta, lam = data(0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(DataError, match="to return a number and its gradient"):
        ko.gradient(problem, RETURNED[name], [lam], at=theta(X))
