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
