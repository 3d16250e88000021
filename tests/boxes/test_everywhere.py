"""Inequalities proven at all points of a box."""

import pickle

import cvxpy as cp
import mpmath
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.boxes import bend, exchange
from kernelopt.boxes.least_value import CellBounds, chord_bound, least_value
from kernelopt.errors import DataError, KernelError, KernelOptError, OptionError

RNG = np.random.default_rng(0)
GAUSSIAN = ko.kernels.Gaussian(sigma=0.7)
X = np.linspace(0, 6, 60)[:, None]
Y = np.tanh(X[:, 0] - 3) + 0.3 * np.sin(7 * X[:, 0])
GRID = np.linspace(0, 6, 20001)[:, None]


def fit(theta, lam=0.1):
    return cp.sum_squares(theta(X) - Y) + lam * ko.sum_squares(theta)


def slope(theta, P, order=0):
    return ko.FeatureMatrix(P, theta.kernel).derivative(order) @ theta


def rising(theta, **options):
    return ko.everywhere(lambda P: slope(theta, P) >= 0, 0.0, 6.0, **options)


def given(kernel, seed=0, n=8, d=1, outputs=None):
    """θ with the value of a random function, and the function."""
    rng = np.random.default_rng(seed)
    theta = ko.Theta(kernel, outputs=outputs)
    shape = (n,) if outputs is None else (n, outputs)
    theta.value = ko.Function(kernel, rng.uniform(size=(n, d)), rng.normal(size=shape))
    return theta


# ---------------------------------------------------------------- proofs


def test_chord_bound():
    """It is attained by parabolas, and below g for all g with |g″| ≤ m."""
    x = np.linspace(0, 1, 1001)
    for a, b, m in RNG.normal(size=(50, 3)) * [1, 1, 5]:
        parabola = a + (b - a) * x - abs(m) / 2 * x * (1 - x)
        assert chord_bound(np.array(a), np.array(b), np.array(abs(m))) == pytest.approx(parabola.min(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "count", "points"), [(1, 60, 4001), (2, 25, 201), (3, 6, 41)])
def test_least_values_of_random_functions(d, count, points):
    axes = [np.linspace(0, 1, points)] * d
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, d)
    for seed in range(count):
        theta = given(ko.kernels.Gaussian(sigma=[0.2, 0.5, 1.0][seed % 3] * (1.0 if d < 3 else 1.5)), seed, d=d)
        box = ko.everywhere(lambda P, theta=theta: theta(P) >= 0, np.zeros(d), np.ones(d))
        found = exchange.look(box, bend.structure(box))
        least = theta.value(grid).min()
        assert found.bound <= least + 1e-14
        if least < 0:
            assert found.bound >= 1.11 * least - 0.02 * abs(least) * (d > 1)
        else:
            assert found.bound >= 0


MARGINS = {
    "values": (lambda theta, P, v: theta(P), 0),
    "slopes": (lambda theta, P, v: slope(theta, P), 0),
    "curvature and values": (lambda theta, P, v: slope(theta, P, (0, 0)) + 2 * theta(P), 0),
    "x times values": (lambda theta, P, v: cp.multiply(1 + 3 * P[:, 0], theta(P)) + P[:, 0] * v, 0),
    "beside a point": (lambda theta, P, v: theta(P) - theta([[0.5]]) + v, 0),
    "a curve of numbers": (lambda theta, P, v: theta(P) - np.sin(4 * P[:, 0]), 16),
}
KERNELS = [
    ko.kernels.Gaussian(sigma=0.3),
    ko.kernels.RationalQuadratic(sigma=0.4),
    ko.kernels.Periodic(period=2.0),
    2 * ko.kernels.Gaussian(sigma=1.0) * ko.kernels.Periodic(period=1.0) + ko.kernels.Gaussian(sigma=0.2),
    ko.kernels.Gaussian(sigma=1.0).ard([0.25]),
    ko.kernels.Linear() + 2 * ko.kernels.Gaussian(sigma=0.3),
    ko.kernels.Polynomial(degree=3) + ko.kernels.Gaussian(sigma=0.4),
    (ko.kernels.Linear() + ko.kernels.Constant(0.5)) ** 4,
]


@pytest.mark.one_row
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_bounds_of_second_derivatives(kernel, margin):
    g, declared = MARGINS[margin]
    v = cp.Variable(value=0.7)
    x, h = np.linspace(0, 1, 801), 1e-4
    shares = []
    for seed in range(4):
        theta = given(kernel, seed, n=1 + 3 * seed)
        box = ko.everywhere(lambda P, theta=theta: g(theta, P, v) >= 0, 0.0, 1.0, bend=declared)
        at = bend.structure(box).bounds()
        assert at.has_bend_alone
        values = [g(theta, (x + k * h)[:, None], v).value for k in (-1, 0, 1)]
        second = np.abs(values[0] - 2 * values[1] + values[2]) / h**2
        assert second.max() <= at[0][0, 0] * (1 + 1e-4)
        shares.append(second.max() / at[0][0, 0])
    assert max(shares) > 0.1  # the bound is no trivial one


def test_bounds_of_first_derivatives():
    """Where F has one more derivative only."""
    kernel = ko.kernels.Matern(nu=1.5, sigma=0.5)
    theta = given(kernel)
    box = ko.everywhere(lambda P: cp.multiply(1 + P[:, 0], theta(P)) >= 0, 0.0, 1.0)
    M, L, rough = bend.structure(box).bounds()
    x, h = np.linspace(0, 1, 4001), 1e-6
    first = np.abs((2 + x - 1 + h) * theta.value((x + h)[:, None]) - (1 + x) * theta.value(x[:, None])) / h
    assert not M.any() and not rough
    assert 0.1 * L[0, 0] < first.max() <= L[0, 0]
    found = exchange.look(box, bend.structure(box))
    least = ((1 + x) * theta.value(x[:, None])).min()
    assert found.bound <= least
    assert found.bound >= min(0.0, 1.12 * least)


ROUGH = [
    ko.kernels.Laplacian(sigma=0.5),
    ko.kernels.Matern(nu=0.5, sigma=0.3),
    2 * ko.kernels.Laplacian(sigma=0.5) + ko.kernels.Gaussian(sigma=0.2),
    ko.kernels.Laplacian(sigma=0.5) * ko.kernels.Gaussian(sigma=0.2),
    ko.kernels.Laplacian(sigma=1.0).ard([0.3]),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ROUGH, ids=str)
def test_bounds_without_derivatives(kernel):
    """In cells of any width, below the chord by no more than is allowed, and by more than a hundredth of it."""
    for seed in range(6):
        theta = given(kernel, seed, n=4 if seed else 1)
        box = ko.everywhere(lambda P, theta=theta: cp.multiply(1 + P[:, 0], theta(P)) >= 0, 0.0, 1.0)
        bounds = bend.structure(box).bounds()
        assert len(bounds.rough) == 1 and not bounds.bend.any()
        shares = []
        for h in np.geomspace(1e-7, 1, 15):
            start = np.append(RNG.uniform(0, 1 - h, size=40), np.clip(theta.value.centers[:, 0] - h / 2, 0, 1 - h))
            ends = [((1 + x) * theta.value(x[:, None])) for x in (start, start + h)]
            t = np.linspace(0.02, 0.98, 25)[:, None]
            x = start + t * h
            inside = (1 + x) * theta.value(x.reshape(-1, 1)).reshape(x.shape)
            below = ((1 - t) * ends[0] + t * ends[1] - inside).max()
            allowed = bounds.drop(np.array([[h]]))[0, 0, 0]
            assert below <= allowed + 1e-13
            shares.append(below / allowed)
        assert max(shares) > 0.01
    wide = exchange.look(box, bend.structure(box))
    x = np.linspace(0, 1, 4001)
    assert wide.bound <= ((1 + x) * theta.value(x[:, None])).min()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [ko.kernels.Laplacian(sigma=1.0), ko.kernels.Matern(nu=0.5, sigma=2.0)], ids=str)
def test_a_bound_without_derivatives(kernel):
    theta = ko.Theta(kernel)
    box = ko.everywhere(lambda P: theta(P) >= -0.2, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(fit(theta)), [box])
    problem.solve(tol=1e-2)
    assert problem.status == "optimal" and box.least >= 0
    assert theta.value(GRID).min() >= -0.2 + box.least
    at_points = ko.Problem(cp.Minimize(fit(theta)), [theta(GRID[::40]) >= -0.2])
    at_points.solve()
    assert problem.certificate.upper >= at_points.certificate.lower


@pytest.mark.slow
def test_slopes_beside_a_straight_line():
    """A kernel with a polynomial part: the least slope of straight lines is proven too."""
    kernel = ko.kernels.Linear() + ko.kernels.Gaussian(sigma=0.7)
    theta = ko.Theta(kernel)
    box = rising(theta)
    problem = ko.Problem(cp.Minimize(fit(theta)), [box])
    problem.solve(tol=1e-5)
    assert problem.status == "optimal" and box.least >= 0
    assert theta.value.derivative(0)(GRID).min() >= box.least


def test_rounding():
    """Values of a function with large coefficients of both signs differ from exact ones by less than is allowed."""
    centers = np.linspace(0, 1, 12)
    c = 1e9 * RNG.normal(size=12)
    theta = ko.Theta(GAUSSIAN)
    theta.value = ko.Function(GAUSSIAN, centers[:, None], c)
    box = ko.everywhere(lambda P: slope(theta, P) - 1e3 >= 0, 0.0, 1.0)
    allowed = bend.structure(box).rounding()[0]
    x = RNG.uniform(size=50)
    values = box.margin(x[:, None]).value
    with mpmath.workdps(50):
        exact = [
            mpmath.fsum(
                mpmath.mpf(a)
                * (mpmath.mpf(z) - p)
                / mpmath.mpf(0.7) ** 2
                * mpmath.exp(-((mpmath.mpf(z) - p) ** 2) / (2 * mpmath.mpf(0.7) ** 2))
                for a, z in zip(c.tolist(), centers.tolist(), strict=True)
            )
            - 1000
            for p in map(mpmath.mpf, x.tolist())
        ]
        worst = max(abs(mpmath.mpf(v) - e) for v, e in zip(values.tolist(), exact, strict=True))
    assert 1e-9 < worst < allowed < 1e-2


def test_several_margins_and_fixed_cells():
    """The least of all gₖ; a box that is a point."""
    found = least_value(
        lambda P: np.hstack([P**2 + 1, 2 - P]),
        CellBounds(np.array([[2.0], [0.0]]), np.zeros((2, 1))),
        np.zeros(2),
        (np.array([0.0]), np.array([3.0])),
    )
    assert found.bound == pytest.approx(-1.0, rel=0.11)
    assert found.bound <= -1.0
    theta = given(GAUSSIAN)
    box = ko.everywhere(lambda P: theta(P) - 5 >= 0, 0.5, 0.5)
    value = theta.value([[0.5]])[0] - 5
    assert exchange.look(box, bend.structure(box)).bound == pytest.approx(value, rel=1e-9)


# ---------------------------------------------------------------- solves


@pytest.mark.slow
def test_a_rising_fit():
    theta = ko.Theta(GAUSSIAN)
    box = rising(theta)
    problem = ko.Problem(cp.Minimize(fit(theta)), [box])
    value = problem.solve(tol=1e-6)
    certificate = problem.certificate
    assert problem.status == "optimal" and certificate.relative_gap <= 1e-6
    assert box.least >= 0 and theta.value.derivative(0)(GRID).min() >= box.least
    assert certificate.lower <= value <= certificate.upper * (1 + 1e-12)
    assert len(box.points) < 60 and box.dual_value.shape == (len(box.points),)
    assert 2 <= np.sum(box.dual_value > 1e-6 * box.dual_value.max()) < len(box.points)
    assert "proven: A′·θ ≥ 0 for all x in [0, 6]" in str(certificate)
    # At 2000 points it is imposed on a part of the box: that optimum is below ours, by the little between the points.
    sampled = ko.Problem(cp.Minimize(fit(theta)), [slope(theta, GRID[::10]) >= 0])
    sampled.solve(tol=1e-8)
    assert sampled.certificate.lower <= certificate.upper
    assert sampled.certificate.upper >= certificate.lower - 1e-6 * abs(value)
    assert problem.history["upper"][-1] == certificate.upper
    assert list(problem.history.columns) == ["points", "shift", "least", "lower", "upper", "gap", "seconds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bounded", "curvature", "line and variable", "above a curve", "two outputs", "x f(x)"]
)
def test_enclosures(name):
    """The optimum of the box lies between the bounds: it is that of a fine grid, nearly."""
    theta, b = ko.Theta(GAUSSIAN, outputs=2 if name == "two outputs" else None), cp.Variable()
    loss = ko.losses.absolute_error(Y, theta(X)[:, 0] if name == "two outputs" else theta(X) + b)
    g, options = {
        "bounded": (lambda P: theta(P) + b <= 0.5, {}),
        "curvature": (lambda P: slope(theta, P, (0, 0)) >= -1.0, {}),
        "line and variable": (lambda P: theta(P) + b >= 0.3 * P[:, 0] - 1.0, {}),
        "above a curve": (lambda P: theta(P) + b >= np.sin(P[:, 0]), {"bend": 1.0}),
        "two outputs": (lambda P: theta(P)[:, 1] - theta(P)[:, 0] >= 0.2, {}),
        "x f(x)": (lambda P: cp.multiply(P[:, 0], theta(P)) + slope(theta, P) >= -0.2, {}),
    }[name]
    objective = cp.sum(loss) + 0.1 * ko.sum_squares(theta) + 0.01 * cp.square(b)
    problem = ko.Problem(cp.Minimize(objective), [ko.everywhere(g, 0.0, 6.0, **options)])
    problem.solve(tol=1e-5)
    assert problem.status == "optimal"
    assert len(problem.history.rounds) > 1  # the first grid does not suffice
    low, high = problem.certificate.lower, problem.certificate.upper
    sampled = ko.Problem(cp.Minimize(objective), [g(GRID[::20])])
    below = sampled.solve(tol=1e-8)
    assert low * (1 - 1e-5) <= below <= high


@pytest.mark.slow
def test_a_density():
    """Counts in bins, f ≥ 0 and ∫f = 1: integrals beside values."""
    draws = np.random.default_rng(0).normal(3.0, 0.8, size=300)
    edges = np.linspace(0, 6, 25)
    share = np.histogram(draws, edges)[0] / 300
    theta = ko.Theta(GAUSSIAN)
    bins = ko.integral(edges[:-1], edges[1:], GAUSSIAN) @ theta
    whole = ko.integral(0.0, 6.0, GAUSSIAN) @ theta == 1
    above = ko.everywhere(lambda P: theta(P) >= 0, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(bins - share) + 1e-4 * ko.sum_squares(theta)), [above, whole])
    problem.solve(tol=1e-5)
    assert problem.status == "optimal" and theta.value(GRID).min() >= above.least >= 0
    assert theta.value.integral(0.0, 6.0) == pytest.approx(1.0, rel=1e-9)
    assert len(problem.history.rounds) > 1


@pytest.mark.slow
def test_maximize():
    theta = ko.Theta(GAUSSIAN)
    least = ko.Problem(cp.Minimize(fit(theta)), [rising(theta)])
    most = ko.Problem(cp.Maximize(-fit(theta)), [rising(theta)])
    assert most.solve() == pytest.approx(-least.solve(), rel=1e-5)
    assert most.certificate.lower <= -least.certificate.lower and most.certificate.upper >= -least.certificate.upper
    assert most.status == "optimal"


@pytest.mark.slow
def test_two_columns():
    rng = np.random.default_rng(1)
    Z = rng.uniform(size=(80, 2))
    kernel = ko.kernels.Gaussian(sigma=0.5)
    theta = ko.Theta(kernel)
    boxes = [ko.everywhere(lambda P, j=j: slope(theta, P, j) >= 0, [0.0, 0.0], [1.0, 1.0]) for j in (0, 1)]
    y = np.tanh(4 * Z.sum(axis=1) - 4) + 0.2 * rng.normal(size=80)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(Z) - y) + 0.1 * ko.sum_squares(theta)), boxes)
    problem.solve(tol=1e-3)
    assert problem.status == "optimal" and min(box.least for box in boxes) >= 0
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 151)] * 2), axis=-1).reshape(-1, 2)
    for j, box in enumerate(boxes):
        assert theta.value.derivative(j)(grid).min() >= box.least
    report = problem.verify(tol=1e-3)
    assert report.passed and report.certificate is problem.certificate
    assert report["everywhere in [0, 1] × [0, 1]"].number == 0


@pytest.mark.slow
def test_with_an_equality_there_is_no_room():
    """f ≥ 0 and f(3) = 0: no answer is strictly feasible, so that violations are made small and stated."""
    theta = ko.Theta(GAUSSIAN)
    above = ko.everywhere(lambda P: theta(P) >= 0, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(fit(theta)), [above, theta([[3.0]]) == 0])
    problem.solve(tol=1e-6)
    assert problem.status == "optimal_inaccurate"
    assert -1e-5 < above.least < 0
    assert theta.value(GRID).min() >= above.least
    assert "up to" in str(problem.certificate) and problem.certificate.upper == np.inf
    level = slope(theta, [[3.0]]) == 0  # implied: f has a minimum there
    sampled = ko.Problem(cp.Minimize(fit(theta)), [theta(GRID[::10]) >= 0, theta([[3.0]]) == 0, level])
    assert problem.certificate.lower <= sampled.solve() * (1 + 1e-6)


@pytest.mark.slow
def test_infeasible():
    theta = ko.Theta(GAUSSIAN)
    above = ko.everywhere(lambda P: theta(P) >= 0, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(fit(theta)), [above, theta([[3.0]]) <= -1])
    assert problem.solve() == np.inf
    assert problem.status == "infeasible" and theta.value is None and above.least is None
    assert 3.0 in above.points  # one of the points that prove it


@pytest.mark.slow
def test_time_limit_keeps_the_enclosure():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(fit(theta)), [rising(theta)])
    problem.solve(tol=1e-9, time_limit=1e-2)
    assert problem.status == "user_limit"
    low = problem.certificate.lower
    assert np.isfinite(low) and np.isfinite(problem.constraints[0].least)
    problem.solve(tol=1e-6)
    assert low <= problem.certificate.upper


@pytest.mark.slow
def test_answers_without_multipliers():
    """A solver that stops at once leaves θ = 0, which has none; the enclosure holds, and is wide."""
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(
        cp.Minimize(cp.norm1(theta(X) - Y) + 0.1 * ko.sum_squares(theta)),
        [ko.everywhere(lambda P: theta(P) <= 0.5, 0.0, 6.0)],
    )
    value = problem.solve("CLARABEL", max_iter=1)
    stopped, least = problem.status, problem.certificate.lower
    assert stopped == "optimal_inaccurate"
    assert least <= problem.solve() <= value and problem.status == "optimal"


@pytest.mark.slow
def test_parameters_and_kernels_with_parameters():
    sigma, level = cp.Parameter(pos=True, value=0.7), cp.Parameter(value=-0.5)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    box = ko.everywhere(lambda P: theta(P) >= level, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(fit(theta)), [box])
    for s, a in [(0.7, -0.5), (0.4, -0.2)]:
        sigma.value, level.value = s, a
        value = problem.solve()
        fixed = ko.Theta(ko.kernels.Gaussian(sigma=s))
        other = ko.Problem(cp.Minimize(fit(fixed)), [ko.everywhere(lambda P, a=a, f=fixed: f(P) >= a, 0.0, 6.0)])
        assert value == pytest.approx(other.solve(), rel=1e-6)
        assert problem.status == "optimal" and theta.value(GRID).min() >= a


@pytest.mark.slow
def test_printed():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(fit(theta)), [rising(theta), theta([[0.0]]) <= 1])
    assert "subject to  A′·θ ≥ 0 for all x in [0, 6]" in str(problem)
    assert r"\text{for all } x \in [0, 6]" in problem._repr_latex_()
    assert len(problem.constraints) == 2 and problem.constraints[0].least is None
    problem.solve(progress=True)
    told = str(problem.explain())
    assert "for all x in [0, 6]" in told
    assert f", A′: {len(problem.constraints[0].points)}" in told  # the name of its matrix at all points in use
    assert "Everywhere(" in repr(problem)


def above_zero(P):
    return PICKLED(P) >= 0


PICKLED = ko.Theta(GAUSSIAN)


@pytest.mark.slow
def test_pickled():
    problem = ko.Problem(cp.Minimize(fit(PICKLED)), [ko.everywhere(above_zero, 0.0, 6.0)])
    problem.solve()
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.value == problem.value and copy.constraints[0].least == problem.constraints[0].least
    assert str(copy.certificate) == str(problem.certificate)


@pytest.mark.later
def test_verified_for_a_given_function():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(fit(theta)), [rising(theta)])
    theta.value = ko.Function(GAUSSIAN, [[3.0]], [1.0])  # rises, and falls
    check = problem.verify()["everywhere in [0, 6]"]
    steepest = np.exp(-0.5) / 0.7
    assert not check.passed and steepest <= check.number <= 1.11 * steepest


@pytest.mark.slow
def test_in_an_estimator():
    def build(X, y, lam=0.1):
        theta = ko.Theta(GAUSSIAN)
        f = theta(X)
        box = ko.everywhere(lambda P: slope(theta, P) >= 0, 0.0, 6.0)
        return ko.Problem(cp.Minimize(cp.sum_squares(f - y) + lam * ko.sum_squares(theta)), [box]), f

    model = ko.estimators.from_problem(build)().fit(X, Y)
    assert np.all(np.diff(model.predict(GRID)) >= -1e-12)


# ---------------------------------------------------------------- wrong use


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 0.0, 1.0), "function of points"),
        ((lambda P: P, [0.0, 1.0], [1.0, 0.5]), "got 1 > 0.5 in column 1"),
        ((lambda P: P, 0.0, np.inf), "finite corners"),
        ((lambda P: P, [np.nan], [1.0]), "finite corners"),
        ((lambda P: P, np.zeros(4), np.ones(4)), "at most 3 columns"),
        ((lambda P: P, np.zeros(2), np.ones(3)), "one shape"),
        ((lambda P: P, np.zeros((1, 1)), np.ones((1, 1))), "one shape"),
    ],
)
def test_wrong_boxes(arguments, message):
    with pytest.raises(DataError, match=message):
        ko.everywhere(*arguments)
    with pytest.raises(DataError, match="bend as numbers >= 0"):
        ko.everywhere(lambda P: P, 0.0, 1.0, bend=-1.0)


@pytest.mark.parametrize(
    ("g", "error", "message"),
    [
        (lambda theta, P: theta(P) == 0, DataError, "got an equality"),
        (lambda theta, P: theta(P), DataError, "to be an inequality"),
        (lambda theta, P: cp.square(theta(P)) <= 1, DataError, "affine in θ"),
        (lambda theta, P: ko.norm(theta) <= theta(P), DataError, "affine in θ"),
        (lambda theta, P: theta(P)[:1] >= 0, DataError, "a row for each of the"),
        (lambda theta, P: cp.sum(theta(P)) >= 0, DataError, "a row for each of the"),
        (lambda theta, P: theta(P) >= P[:, 0] ** 2, DataError, "bend="),
        (lambda theta, P: cp.multiply(np.sin(P[:, 0]), theta(P)) >= 0, DataError, "affine in x"),
        (lambda theta, P: theta(P + 1) >= 0, DataError, "at the points P themselves"),
    ],
)
def test_wrong_inequalities(g, error, message):
    theta = ko.Theta(GAUSSIAN)
    with pytest.raises(error, match=message):
        ko.Problem(cp.Minimize(fit(theta)), [ko.everywhere(lambda P: g(theta, P), 0.0, 6.0)]).solve()
    assert theta.value is None


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (ko.kernels.Polynomial(degree=3) * ko.kernels.Gaussian(sigma=1.0), "stationary, polynomial.*Polynomial"),
        (ko.kernels.Laplacian(sigma=1.0) + ko.kernels.Linear(), "Laplacian.*up to order 0"),
        (ko.kernels.Laplacian(sigma=1.0) * ko.kernels.Periodic(period=1.0), "Laplacian.*up to order 0"),
    ],
)
def test_kernels_without_bounds(kernel, message):
    theta = ko.Theta(kernel)
    with pytest.raises(KernelError, match=message):
        ko.Problem(cp.Minimize(fit(theta)), [ko.everywhere(lambda P: theta(P) >= 0, 0.0, 6.0)]).solve()


@pytest.mark.slow
def test_what_has_no_meaning_beside_boxes():
    theta, lam = ko.Theta(GAUSSIAN), cp.Parameter(nonneg=True, value=0.1)
    w = cp.Parameter(60, nonneg=True, value=np.ones(60))
    loss = cp.sum(cp.multiply(w, ko.losses.squared_error(Y, theta(X))))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [rising(theta)])
    with pytest.raises(OptionError, match="certify=True"):
        problem.solve(certify=False)
    problem.solve(tol=1e-4)
    for call in (
        lambda: ko.path(problem, lam, [0.1, 1.0]),
        lambda: ko.cross_validate(problem, w, lam, [0.1]),
        lambda: ko.gradient(problem, problem.objective, [lam]),
        lambda: problem.certificate_at({lam: 1.0}),
        lambda: ko.approximate_leave_one_out(problem, theta(X)),
    ):
        with pytest.raises(KernelOptError, match="without ko.everywhere"):
            call()
    z = cp.Variable(boolean=True)
    with pytest.raises(KernelOptError, match="without integers"):
        ko.Problem(cp.Minimize(fit(theta) + z), [rising(theta)]).solve()
    with pytest.raises(KernelOptError, match="lower bound"):
        ko.Problem(cp.Minimize(cp.sum(theta(X))), [rising(theta)]).solve()


@pytest.mark.slow
def test_a_square_is_refused_with_the_two_inequalities_that_say_it():
    x = np.linspace(0, 1, 8)[:, None]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.5))
    fit = cp.Minimize(cp.sum_squares(theta(x) - 2) + 0.1 * ko.sum_squares(theta))
    with pytest.raises(DataError, match=r"two constraints, f <= c and f >= -c"):
        ko.Problem(fit, [ko.everywhere(lambda P: cp.square(theta(P)) <= 1, 0, 1)]).solve()
    both = [ko.everywhere(lambda P: theta(P) <= 1, 0, 1), ko.everywhere(lambda P: theta(P) >= -1, 0, 1)]
    ko.Problem(fit, both).solve()
    assert np.abs(theta.value(np.linspace(0, 1, 300)[:, None])).max() <= 1 + 1e-6


def test_a_box_with_too_few_columns_is_named():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    fit = cp.sum_squares(theta(np.eye(2)) - 1) + ko.sum_squares(theta)
    with pytest.raises(DataError, match="points of 2 columns; got points of 1 column, shape") as raised:
        ko.Problem(cp.Minimize(fit), [ko.everywhere(lambda P: theta(P) >= 0, 0, 3)]).solve()
    assert raised.value.__notes__ == [
        "This happened at points of the box [0, 3] of ko.everywhere, which has 1 column. Its corners have one number "
        "per column, such as [0, 0] and [1, 1]."
    ]


@pytest.mark.parametrize(
    "kernel", [ko.kernels.Gaussian(sigma=1.0), 2.0 * ko.kernels.RationalQuadratic(sigma=1.0, alpha=1.0)]
)
def test_beside_a_theta_that_is_held_at_0(kernel):
    """It has no centers."""
    theta = ko.Theta(kernel)
    above = ko.everywhere(lambda P: theta(P) >= -1, 0.0, 1.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(np.array([[0.0], [1.0]])) - 1)), [ko.norm(theta) <= 0, above])
    problem.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(2.0) and problem.verify().passed


@pytest.mark.parametrize(
    "right", [lambda P, c, e: 0.3 + e * P[:, 0], lambda P, c, e: c + 0.1 * P[:, 0], lambda P, c, e: 5 * c - e * P[:, 0]]
)
def test_parameters_on_the_left_of_points(right):
    """Python asks the symbol's operator first, as its class is one of parameters."""
    X = np.linspace(0, 1, 6)[:, None]
    c, e, theta = cp.Parameter(value=0.3), cp.Parameter(value=0.1), ko.Theta(ko.kernels.Gaussian(sigma=0.5))
    loss = cp.sum_squares(np.sin(7 * X[:, 0]) - theta(X)) + 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [ko.everywhere(lambda P: theta(P) <= right(P, c, e), 0, 1)])
    problem.solve()
    assert problem.status == "optimal"
    assert "code computes" not in str(problem.certificate)
