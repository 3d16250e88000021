"""Reductions that are right are found equivalent; those with a mistake are not, and the mistake is in the findings."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.driver import integer_proof
from kernelopt.equivalence import (
    findings,
    flat_directions,
    meanings,
    pointwise,
    reduced_optimum,
    reduction_report,
    reductions,
)
from kernelopt.errors import DataError, DataTypeError, DCPError, KernelOptError, OptionError, ParameterError

RNG = np.random.default_rng(0)
N = 20
X = RNG.normal(size=(N, 2))
TARGETS = 3 + np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=1.0)
Q = KERNEL(X)
B = np.linalg.cholesky(Q)
LAM = 0.1


class Pair:
    """One stated problem, and the variables of its reductions."""

    def __init__(self):
        self.theta, self.b = ko.Theta(KERNEL), cp.Variable(name="b")
        self.alpha = cp.Variable(N, name="α")
        self.loss = cp.norm1(TARGETS - self.theta(X) - self.b)
        self.stated = ko.Problem(cp.Minimize(self.loss + LAM * ko.sum_squares(self.theta)))
        self.reduced_loss = cp.norm1(TARGETS - Q @ self.alpha - self.b)
        self.square = cp.quad_form(self.alpha, cp.psd_wrap(Q))
        self.right = cp.Problem(cp.Minimize(self.reduced_loss + LAM * self.square))

    def check(self, objective, constraints=(), stated=None, **named):
        reduced = cp.Problem(objective, list(constraints))
        return ko.verify_reduction(stated or self.stated, reduced, {self.theta: self.alpha}, **named)


@pytest.fixture
def pair():
    return Pair()


# ---------------------------------------------------------------- right ones


def test_coefficients(pair):
    report = ko.verify_reduction(pair.stated, pair.right, {pair.theta: (X, pair.alpha)})
    assert report.is_equivalent is True
    assert report.counterexamples == () and report.functions_tried == 8
    assert report.stated.is_proven and report.reduced.is_proven
    assert abs(report.difference) <= 1e-6 * report.unit
    assert "the problems agree at 8 functions" in report.findings[0] and "difference" not in str(report)


def test_without_functions_only_the_optima_are_compared(pair):
    report = ko.verify_reduction(pair.stated, pair.right)
    assert report.is_equivalent is True and report.functions_tried == 0
    assert report.findings[-1].startswith("Functions were not compared")


@pytest.mark.slow
def test_coordinates_of_a_factor(pair):
    w, c = cp.Variable(N), cp.Variable()
    reduced = cp.Problem(cp.Minimize(cp.norm1(TARGETS - B @ w - c) + LAM * cp.sum_squares(w)))
    report = ko.verify_reduction(pair.stated, reduced, {pair.theta: (X, np.linalg.inv(B).T @ w), pair.b: c})
    assert report.is_equivalent is True


@pytest.mark.parametrize("sign", [-1.0, 2.0])
def test_a_multiple_of_a_number_is_a_variable(pair, sign):
    c = cp.Variable()
    reduced = cp.Problem(cp.Minimize(cp.norm1(TARGETS - Q @ pair.alpha - sign * c) + LAM * pair.square))
    assert ko.verify_reduction(pair.stated, reduced, {pair.theta: pair.alpha, pair.b: sign * c}).is_equivalent is True


@pytest.mark.slow
def test_slacks_are_chosen_best(pair):
    xi, e = cp.Variable(N, nonneg=True), TARGETS - Q @ pair.alpha - pair.b
    assert pair.check(cp.Minimize(cp.sum(xi) + LAM * pair.square), [xi >= e, xi >= -e]).is_equivalent is True
    wrong = pair.check(cp.Minimize(cp.sum(xi) + LAM * pair.square), [xi >= e])
    assert wrong.is_equivalent is False and wrong.counterexamples[0].kind == "invented"


@pytest.mark.slow
def test_slacks_of_the_stated_problem_are_chosen_best(pair):
    xi, e = cp.Variable(N), TARGETS - pair.theta(X) - pair.b
    stated = ko.Problem(cp.Minimize(cp.sum(xi) + LAM * ko.sum_squares(pair.theta)), [xi >= e, xi >= -e])
    assert pair.check(pair.right.objective, stated=stated).is_equivalent is True


@pytest.mark.later
def test_maximize(pair):
    stated = ko.Problem(cp.Maximize(-pair.stated.objective.args[0]))
    right = pair.check(cp.Maximize(-pair.right.objective.args[0]), stated=stated)
    assert right.is_equivalent is True
    wrong = pair.check(cp.Maximize(-pair.reduced_loss - LAM * cp.sum_squares(pair.alpha)), stated=stated)
    assert wrong.is_equivalent is False
    ours, theirs = wrong.counterexamples[0].stated.value, wrong.counterexamples[0].reduced.value
    assert (wrong.counterexamples[0].kind == "lost") == (wrong.difference < 0)
    assert abs(ours - theirs) > 1e-3


@pytest.mark.slow
def test_several_thetas_with_outputs():
    t, m = ko.Theta(ko.kernels.Linear()), ko.Theta(KERNEL, outputs=2)
    Y = np.column_stack([TARGETS, LABELS])
    loss = cp.sum_squares(Y - m(X)) + cp.norm1(LABELS - t(X))
    stated = ko.Problem(cp.Minimize(loss + LAM * ko.sum_squares(m) + ko.norm(t)))
    W, beta = cp.Variable((N, 2)), cp.Variable(2)
    fit = cp.sum_squares(Y - B @ W) + cp.norm1(LABELS - X @ beta)
    means = {m: (X, np.linalg.inv(B).T @ W), t: (np.eye(2), beta)}
    right = cp.Problem(cp.Minimize(fit + LAM * cp.sum_squares(W) + cp.norm(beta)))
    assert ko.verify_reduction(stated, right, means).is_equivalent is True
    wrong = cp.Problem(cp.Minimize(fit + LAM * cp.sum_squares(W) + cp.norm1(beta)))
    report = ko.verify_reduction(stated, wrong, means)
    assert report.is_equivalent is False
    assert "norm1(" in " ".join(report.findings) and "‖θ₂‖" in " ".join(report.findings)


@pytest.mark.slow
def test_singular_matrices():
    """Repeated rows leave flat directions of α, in which multipliers have to cancel exactly."""
    points, y = np.vstack([X, X[:5]]), np.concatenate([TARGETS, TARGETS[:5] + 0.1])
    theta, alpha, K = ko.Theta(KERNEL), cp.Variable(N + 5), KERNEL(np.vstack([X, X[:5]]))
    stated = ko.Problem(cp.Minimize(cp.norm1(y - theta(points))), [ko.norm(theta) <= 2])
    reduced = cp.Problem(cp.Minimize(cp.norm1(y - K @ alpha)), [cp.quad_form(alpha, cp.psd_wrap(K)) <= 4])
    report = ko.verify_reduction(stated, reduced, {theta: alpha})
    assert report.is_equivalent is True and report.reduced.is_proven


def test_a_closed_form(pair):
    """The optimum of kernel ridge regression is λyᵀ(Q + λI)⁻¹y."""
    stated = ko.Problem(cp.Minimize(cp.sum_squares(TARGETS - pair.theta(X)) + LAM * ko.sum_squares(pair.theta)))
    solution = np.linalg.solve(Q + LAM * np.eye(N), TARGETS)
    optimum = LAM * TARGETS @ solution
    closed = cp.Problem(cp.Minimize(cp.Constant(optimum)))
    assert ko.verify_reduction(stated, closed, {pair.theta: cp.Constant(solution)}).is_equivalent is True
    wrong = ko.verify_reduction(stated, closed, {pair.theta: cp.Constant(1.1 * solution)})
    assert wrong.is_equivalent is False and wrong.counterexamples[0].kind == "invented"
    assert ko.verify_reduction(stated, closed).is_equivalent is True
    assert ko.verify_reduction(stated, cp.Problem(cp.Minimize(cp.Constant(0.9 * optimum)))).is_equivalent is False


@pytest.mark.slow
def test_integers_by_the_word_of_a_solver(pair, monkeypatch):
    """Where boxes prove the stated optimum, the reduction is certain."""
    z = cp.Variable(2, boolean=True)
    stated = ko.Problem(cp.Minimize(cp.norm1(TARGETS[:4] - pair.theta(X[:4]) - cp.sum(z)) + ko.norm(pair.theta)))
    w, root = cp.Variable(4), np.linalg.cholesky(Q[:4, :4])
    reduced = cp.Problem(cp.Minimize(cp.norm1(TARGETS[:4] - root @ w - cp.sum(z)) + cp.norm(w)))
    for boxes, expected in (integer_proof.BOXES, True), (0, None):
        monkeypatch.setattr(integer_proof, "BOXES", boxes)
        report = ko.verify_reduction(stated, reduced, {pair.theta: np.linalg.inv(root).T @ w})
        assert report.is_equivalent is expected and report.stated.is_proven == bool(expected)
        assert "The optima agree" in report.findings[-1]
        assert ("not certain: by" in report.findings[-1]) == (expected is None)


# ---------------------------------------------------------------- mistakes


def test_the_norm_of_coefficients(pair):
    report = pair.check(cp.Minimize(pair.reduced_loss + LAM * cp.sum_squares(pair.alpha)))
    assert report.is_equivalent is False
    assert "They differ in: stated 0.1·‖θ‖² = " in report.findings[-1] and "reduced 0.1·‖α‖² = " in report.findings[-1]
    example = report.counterexamples[-1]
    f = example.functions[pair.theta]
    assert example.stated.terms[1] == pytest.approx(LAM * f.norm**2)
    assert example.reduced.terms[1] == pytest.approx(LAM * f.coefficients @ f.coefficients)


@pytest.mark.later
def test_what_the_reduced_problem_loses_has_its_value_there(pair):
    """θ̂ has the value of the certificate, and its coefficients another one in the reduced problem."""
    report = pair.check(cp.Minimize(pair.reduced_loss + 2 * LAM * pair.square))
    lost = report.counterexamples[0]
    assert report.is_equivalent is False and lost.kind == "lost"
    assert report.stated.lower <= lost.stated.value <= report.stated.upper + 1e-9
    f = lost.functions[pair.theta]
    assert lost.reduced.value == pytest.approx(lost.stated.value + LAM * f.norm**2, rel=1e-6)
    assert f"{lost.reduced.value:.6g}" in report.findings[0]


def test_half_of_the_penalty(pair):
    report = pair.check(cp.Minimize(pair.reduced_loss + LAM / 2 * pair.square))
    assert report.is_equivalent is False and report.counterexamples[0].kind == "invented"
    terms = [
        counterexample.terms[1]
        for counterexample in (report.counterexamples[-1].stated, report.counterexamples[-1].reduced)
    ]
    assert terms[1] == pytest.approx(terms[0] / 2) and "They differ in: stated 0.1·‖θ‖²" in report.findings[-1]


@pytest.mark.later
def test_multiples_of_the_objective_have_the_same_answers(pair):
    report = pair.check(cp.Minimize(3 * (pair.reduced_loss + LAM * pair.square) + 7))
    assert report.is_equivalent is False
    assert "At 8 functions the reduced objective is 3 × the stated one + 7" in report.findings[-1]


@pytest.mark.later
def test_an_intercept_that_is_penalized(pair):
    K = Q + 1
    reduced = cp.Problem(
        cp.Minimize(cp.norm1(TARGETS - K @ pair.alpha) + LAM * cp.quad_form(pair.alpha, cp.psd_wrap(K)))
    )
    report = ko.verify_reduction(pair.stated, reduced, {pair.theta: pair.alpha, pair.b: cp.sum(pair.alpha)})
    assert report.is_equivalent is False and report.counterexamples[0].kind == "lost"
    assert "At the coefficients nearest to θ̂" in report.findings[0]


@pytest.mark.slow
def test_a_radius_that_is_not_squared(pair):
    stated = ko.Problem(cp.Minimize(pair.loss), [ko.norm(pair.theta) <= 1.5])
    assert pair.check(cp.Minimize(pair.reduced_loss), [pair.square <= 1.5**2], stated).is_equivalent is True
    report = pair.check(cp.Minimize(pair.reduced_loss), [pair.square <= 1.5], stated)
    assert report.is_equivalent is False
    assert "`quad_form(α, [20×20 data]) ≤ 1.5` by 0.75" in report.findings[0]
    larger = pair.check(cp.Minimize(pair.reduced_loss), [pair.square <= 4 * 1.5**2], stated)
    assert larger.is_equivalent is False
    assert "violates `‖θ‖ ≤ 1.5` by 1.5 in the stated problem" in " ".join(larger.findings)


@pytest.mark.later
def test_a_jitter(pair):
    f, P = cp.Variable(N), np.linalg.inv(Q + 0.01 * np.eye(N))
    reduced = cp.Problem(
        cp.Minimize(cp.norm1(TARGETS - f - pair.b) + LAM * cp.quad_form(f, cp.psd_wrap((P + P.T) / 2)))
    )
    blind = ko.verify_reduction(pair.stated, reduced)
    assert blind.is_equivalent is False and "no θ has a value below" in blind.findings[0]
    assert blind.findings[0].endswith("Pass functions= to see at which function.")
    told = ko.verify_reduction(pair.stated, reduced, {pair.theta: P @ f})
    assert told.counterexamples[0].stated.value > told.stated.lower > told.counterexamples[0].reduced.value


@pytest.mark.slow
def test_the_sign_of_a_quantile(pair):
    stated = ko.Problem(
        cp.Minimize(cp.sum(ko.losses.pinball(TARGETS, pair.theta(X) + pair.b, 0.8)) + LAM * ko.sum_squares(pair.theta))
    )
    e = TARGETS - Q @ pair.alpha - pair.b
    for sign, verdict in ((1, True), (-1, False)):
        loss = cp.sum(cp.maximum(sign * 0.8 * e, sign * -0.2 * e))
        assert pair.check(cp.Minimize(loss + LAM * pair.square), stated=stated).is_equivalent is verdict


@pytest.mark.slow
def test_derivatives_need_their_own_coefficients():
    sigma, x, z = 0.5, np.linspace(0, 3, 8)[:, None], np.linspace(0, 3, 12)[:, None]
    y = x[:, 0] + np.sin(4 * x[:, 0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    A, D = ko.FeatureMatrix(x, theta.kernel), ko.FeatureMatrix(z, theta.kernel).derivative(0)
    stated = ko.Problem(cp.Minimize(cp.sum_squares(y - A @ theta) + LAM * ko.sum_squares(theta)), [D @ theta >= 0])
    K, T, S = theta.kernel(x), (x.T - z) / sigma**2 * theta.kernel(z, x), (z - z.T) ** 2 / sigma**2
    alpha, beta = cp.Variable(8), cp.Variable(12)
    small = cp.sum_squares(y - K @ alpha) + LAM * cp.quad_form(alpha, cp.psd_wrap(K))
    report = ko.verify_reduction(stated, cp.Problem(cp.Minimize(small), [T @ alpha >= 0]), {theta: (x, alpha)})
    assert report.is_equivalent is False
    assert report.counterexamples[0].kind == "lost"
    G = np.block([[K, T.T], [T, (1 - S) / sigma**2 * theta.kernel(z)]])
    c = cp.hstack([alpha, beta])
    values, V = np.linalg.eigh(G)
    root = np.sqrt(np.maximum(values, 0))[:, None] * V.T
    fit = cp.sum_squares(y - G[:8] @ c) + LAM * cp.sum_squares(root @ c)
    report = ko.verify_reduction(
        stated, cp.Problem(cp.Minimize(fit), [G[8:] @ c >= 0]), {theta: [(A, alpha), (D, beta)]}
    )
    assert report.is_equivalent is True


@pytest.mark.later
def test_a_constraint_that_does_not_bind(pair):
    """The optima agree on these data, which proves nothing for others."""
    stated = ko.Problem(pair.stated.objective, [pair.theta(X) <= 50])
    report = pair.check(pair.right.objective, stated=stated)
    assert report.is_equivalent is None
    assert "violates the stated one: `A·θ ≤ 50`" in report.findings[0]


@pytest.mark.slow
def test_a_radius_that_does_not_bind(pair):
    """Functions are searched that one of the problems accepts, however near their bounds are."""
    large = ko.Problem(pair.stated.objective, [ko.norm(pair.theta) <= 20])
    assert pair.check(pair.right.objective, [pair.square <= 20**2], large).is_equivalent is True
    report = pair.check(pair.right.objective, [pair.square <= 20.1**2], large)
    assert report.is_equivalent is None
    assert report.counterexamples[0].kind == "objective" and "`‖θ‖ ≤ 20`" in report.findings[0]


@pytest.mark.later
def test_an_answer_that_is_zero_but_for_rounding(pair):
    """Steps of the size of a θ̂ of 1e-12 would tell no difference."""
    stated = ko.Problem(cp.Minimize(pair.loss + 1e4 * ko.norm(pair.theta)))
    root = np.linalg.cholesky(Q).T
    right = pair.check(cp.Minimize(pair.reduced_loss + 1e4 * cp.norm(root @ pair.alpha)), stated=stated)
    assert right.is_equivalent is True
    wrong = pair.check(cp.Minimize(pair.reduced_loss + 2e4 * cp.norm(root @ pair.alpha)), stated=stated)
    assert wrong.is_equivalent is None and "They differ in: stated 10000·‖θ‖" in wrong.findings[0]


def svm(pair):
    loss = cp.sum(ko.losses.hinge(LABELS, pair.theta(X) + pair.b))
    return ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(pair.theta)))


@pytest.mark.parametrize(
    ("upper", "equation", "verdict", "told"),
    [(1.0, True, True, "agree"), (1.0, False, False, "Weak duality fails"), (0.5, True, False, "A gap is left")],
)
def test_duals(pair, upper, equation, verdict, told):
    H = cp.psd_wrap(np.outer(LABELS, LABELS) * Q)
    limits = [pair.alpha >= 0, pair.alpha <= upper] + [LABELS @ pair.alpha == 0] * equation
    dual = cp.Problem(cp.Maximize(cp.sum(pair.alpha) - 0.5 * cp.quad_form(pair.alpha, H)), limits)
    means = {pair.theta: cp.multiply(LABELS, pair.alpha)}
    report = ko.verify_reduction(svm(pair), dual, means, dual=True)
    assert report.is_equivalent is verdict and told in report.findings[0]


def test_a_dual_with_the_wrong_function(pair):
    H = cp.psd_wrap(np.outer(LABELS, LABELS) * Q)
    limits = [pair.alpha >= 0, pair.alpha <= 1, LABELS @ pair.alpha == 0]
    dual = cp.Problem(cp.Maximize(cp.sum(pair.alpha) - 0.5 * cp.quad_form(pair.alpha, H)), limits)
    report = ko.verify_reduction(svm(pair), dual, {pair.theta: pair.alpha}, dual=True)
    assert report.is_equivalent is False and report.counterexamples[0].kind == "invented"


# ---------------------------------------------------------------- without an optimum


@pytest.mark.slow
def test_infeasible_and_unbounded(pair):
    empty = [Q @ pair.alpha <= -1, Q @ pair.alpha >= 1]
    none = ko.Problem(pair.stated.objective, [pair.theta(X) <= -1, pair.theta(X) >= 1])
    lost = pair.check(pair.right.objective, empty)
    assert lost.is_equivalent is False and lost.reduced.status == "infeasible"
    assert "the reduced problem is infeasible" in lost.findings[0] and "violates" in lost.findings[0]
    invented = pair.check(pair.right.objective, stated=none)
    assert invented.is_equivalent is False and "The stated problem is infeasible" in invented.findings[0]
    assert "violates `A·θ" in invented.findings[1]
    assert pair.check(pair.right.objective, empty, stated=none).is_equivalent is True
    low = pair.check(cp.Minimize(cp.sum(Q @ pair.alpha)))
    assert low.is_equivalent is False and low.reduced.upper == -np.inf
    assert all("nan" not in str(report) for report in (lost, invented, low))


def test_the_rules_come_first(pair):
    stated = ko.Problem(cp.Minimize(pair.loss), [ko.norm(pair.theta) >= 1])
    report = pair.check(pair.right.objective, stated=stated)
    assert report.is_equivalent is None and report.stated is None
    assert report.findings[0].startswith("The representer theorem does not cover the stated problem")
    assert any("bounded from above" in line for line in report.findings)


# ---------------------------------------------------------------- the optimum of the reduced problem


@pytest.mark.parametrize("maximize", [False, True])
def test_bounds_that_a_feasible_point_contradicts_are_none(monkeypatch, maximize):
    """As where an equation of rounding, 1e-16·x = 0, is met exactly by the one and to 1e-6 by the others."""
    x, sign = cp.Variable(3), -1.0 if maximize else 1.0
    square = sign * cp.sum_squares(x - 1)
    problem = cp.Problem(cp.Maximize(square) if maximize else cp.Minimize(square), [x >= 2])
    for shift, is_proven in ((0.0, True), (0.1, False)):
        bounds = reduced_optimum.Enclosure(sign * 3 + sign * shift, sign * 3 + sign * shift, "optimal", True, "proven")
        monkeypatch.setattr(reduced_optimum, "_certified", lambda *given, bounds=bounds: (bounds, None))
        found, _ = reduced_optimum.enclosed(problem, 1e-7, 1e-4)
        assert found.is_proven is found.is_known is is_proven


def test_flat_directions():
    """The problem in w has the same optimum, and the α of its answer is one of the original problem."""
    v = RNG.normal(size=(6, 3))
    P, alpha = v @ v.T, cp.Variable(6)
    problem = cp.Problem(cp.Minimize(cp.norm1(P @ alpha - np.arange(6.0)) + cp.quad_form(alpha, cp.psd_wrap(P))))
    rest, set_back = flat_directions.without(problem)
    assert sum(x.size for x in rest.variables()) == 3
    optimum = rest.solve(solver="CLARABEL")
    set_back()
    assert float(problem.objective.value) == pytest.approx(optimum, rel=1e-6)
    assert flat_directions.without(cp.Problem(cp.Minimize(cp.norm1(P @ alpha) + cp.sum(alpha)))) is None
    negative = cp.quad_form(alpha, cp.psd_wrap(P - np.eye(6)))
    assert flat_directions.without(cp.Problem(cp.Minimize(negative))) is None


@pytest.mark.later
def test_equations_of_rounding(pair):
    """Sums over equal rows are equal: in other coordinates they differ by rounding, which would be an equation."""
    points, y = np.vstack([X[:9], X[:9]]), np.concatenate([TARGETS[:9], TARGETS[9:18]])
    alpha, K = cp.Variable(18), KERNEL(np.vstack([X[:9], X[:9]]))
    f, g = pair.theta(points), K @ alpha
    stated = ko.Problem(
        cp.Minimize(cp.sum_squares(y - f) + LAM * ko.sum_squares(pair.theta)), [cp.sum(f[:9]) == cp.sum(f[9:])]
    )
    fit = cp.sum_squares(y - g) + LAM * cp.quad_form(alpha, cp.psd_wrap(K))
    reduced = cp.Problem(cp.Minimize(fit), [cp.sum(g[:9]) == cp.sum(g[9:])])
    assert ko.verify_reduction(stated, reduced, {pair.theta: alpha}).is_equivalent is True


def test_random_points_keep_signs_and_integers():
    x, z = cp.Variable(4, nonneg=True), cp.Variable(3, boolean=True)
    for point in pointwise.random_values([x, z], {x: np.ones(4)}, lambda step: 1.0, 1.0):
        assert point[x].min() >= 0 and set(np.unique(point[z])) <= {0.0, 1.0}


# ---------------------------------------------------------------- what is certain


@pytest.mark.slow
def test_bounds_that_are_open_decide_nothing():
    """Solvers stop short of the optimum at a radius of 9e4 beside a tiny kernel: they agree, and are wrong."""
    rng, x = np.random.default_rng(4), np.linspace(0, 4, 21)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=21)
    theta, b, a = ko.Theta(1e-4 * ko.kernels.Gaussian(sigma=5.0)), cp.Variable(), cp.Variable(21)
    K = theta.kernel(x)
    values, V = np.linalg.eigh(K)
    root = V * np.sqrt(np.maximum(values, 0))
    stated = ko.Problem(cp.Minimize(cp.norm2(y - theta(x) - b)), [theta(x) + b <= 0.6, ko.norm(theta) <= 9e4])
    reduced = cp.Problem(cp.Minimize(cp.norm2(y - K @ a - b)), [K @ a + b <= 0.6, cp.norm(root.T @ a) <= 9e4])
    report = ko.verify_reduction(stated, reduced, {theta: a})
    assert report.is_equivalent is not False
    assert report.reduced.lower <= report.stated.upper and "No coefficients" not in str(report)


DOMAINS = {
    "log": lambda u: -cp.sum(cp.log(u)),
    "entropy": lambda u: -cp.sum(cp.entr(u)),
    "square root": lambda u: -cp.sum(cp.sqrt(u)),
    "inverse": lambda u: cp.sum(cp.inv_pos(u)),
    "power": lambda u: cp.sum(cp.power(u, -2)),
    "divergence": lambda u: cp.sum(cp.kl_div(u, 2.0)),
    "fraction": lambda u: cp.quad_over_lin(u - TARGETS, cp.sum(u)),
}


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", DOMAINS)
def test_neither_problem_accepts_functions_outside_of_a_domain(pair, name):
    loss = DOMAINS[name]
    stated = ko.Problem(cp.Minimize(loss(pair.theta(X) + 3) + LAM * ko.sum_squares(pair.theta)))
    assert pair.check(cp.Minimize(loss(Q @ pair.alpha + 3) + LAM * pair.square), stated=stated).is_equivalent is True


def test_a_smaller_domain_is_another_constraint(pair):
    small = 1e-12 * cp.inv_pos(cp.sum(Q @ pair.alpha) + 200)
    report = pair.check(cp.Minimize(pair.reduced_loss + LAM * pair.square + small))
    assert report.is_equivalent is None and "violates the reduced one" in report.findings[0]


@pytest.mark.slow
def test_a_bound_of_slacks_is_a_constraint(pair):
    res, xi, e = cp.Variable(N), cp.Variable(N), TARGETS - Q @ pair.alpha - pair.b
    stated = ko.Problem(
        cp.Minimize(cp.norm1(res) + LAM * ko.sum_squares(pair.theta)), [res == TARGETS - pair.theta(X) - pair.b]
    )
    objective, slacks = cp.Minimize(cp.sum(xi) + LAM * pair.square), [xi >= e, xi >= -e]
    assert pair.check(objective, slacks, stated).is_equivalent is True
    for problem in (stated, pair.stated):
        report = pair.check(objective, [*slacks, xi <= 9], problem)
        assert report.is_equivalent is None and "violates the reduced one" in report.findings[0]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [ko.kernels.Polynomial(degree=2), 1e4 * ko.kernels.Linear()])
def test_a_solver_that_fails_far_away_is_no_finding(kernel):
    """Predictions as variables: f = Qα at far α are equations between large numbers."""
    x = np.linspace(0, 4, 15)[:, None]
    y, theta, a, f = np.sin(2 * x[:, 0]), ko.Theta(kernel), cp.Variable(15), cp.Variable(15)
    K = kernel(x)
    stated = ko.Problem(cp.Minimize(cp.norm1(y - theta(x)) + 0.3 * ko.sum_squares(theta)), [theta(x) <= 0.7])
    objective = cp.Minimize(cp.norm1(y - f) + 0.3 * cp.quad_form(a, cp.psd_wrap(K)))
    report = ko.verify_reduction(stated, cp.Problem(objective, [f == K @ a, f <= 0.7]), {theta: a})
    assert report.is_equivalent is True and report.functions_tried > 5


def test_points_that_are_not_known_are_not_compared(pair, monkeypatch):
    """That CLARABEL calls a point infeasible is no proof."""
    xi, e = cp.Variable(N), TARGETS - Q @ pair.alpha - pair.b
    reduced = cp.Problem(cp.Minimize(cp.sum(xi) + LAM * pair.square), [xi >= e, xi >= -e])
    monkeypatch.setattr(pointwise, "_is_infeasible", lambda problem: False)
    found = pointwise.cvxpy_solvers.solve(cp.Problem(cp.Minimize(xi[0]), [xi >= 1, xi <= 0]), "CLARABEL", 1e-8, {})
    monkeypatch.setattr(pointwise.cvxpy_solvers, "solve", lambda *given: found)
    assert pointwise.reduced_at(reduced, {pair.alpha: np.ones(N), pair.b: 0.0}) is None


@pytest.mark.parametrize(("moved", "verdict"), [(1e9, None), (0.0, False)])
def test_violations_beside_coefficients_that_cancel_are_not_certain(moved, verdict):
    """Beside α of 1e9 the reduced problem calls an excess of 0.5 rounding; the stated problem, in predictions, not."""
    points = np.vstack([X, X[:1]])
    theta, alpha, start = ko.Theta(KERNEL), cp.Variable(N + 1), np.zeros(N + 1)
    start[0], start[N] = 1.5 + moved, -moved
    stated = ko.Problem(cp.Minimize(ko.norm(theta)), [theta(points) <= 1])
    bound = 1 if moved else 2
    reduced = cp.Problem(cp.Minimize(cp.norm1(alpha)), [KERNEL(points) @ alpha <= bound])
    meaning = meanings.read([theta], [], reductions._matrices(stated), reduced, {theta: alpha})
    optimum = reduced_optimum.Enclosure(0.0, 0.0, "optimal", True, "proven")
    found = reduction_report.BothAnswers(optimum, optimum, 1.0, "1", None, {}, {alpha: start})
    attained, told, _ = findings._at_answer(stated, reduced, meaning, found, 1e-6)
    assert attained is verdict and bool(told) is (verdict is False)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e-12])
def test_steps_are_measured_in_predictions(scale):
    """With a norm twice as large the answer is 0, too: functions other than 0 have to be large enough to tell."""
    theta, a, weight = ko.Theta(scale * ko.kernels.Linear()), cp.Variable(N), 100 * np.sqrt(scale)
    stated = ko.Problem(cp.Minimize(hinge_losses(theta(X)) + weight * ko.norm(theta)))
    length = cp.norm(np.sqrt(scale) * X.T @ a)
    reduced = cp.Problem(cp.Minimize(hinge_losses(theta.kernel(X) @ a) + 2 * weight * length))
    assert ko.verify_reduction(stated, reduced, {theta: a}).is_equivalent is None


def hinge_losses(predictions):
    return cp.sum(cp.pos(1 - cp.multiply(LABELS, predictions)))


@pytest.mark.slow
def test_answers_are_called_the_same_only_beside_the_same_constraints(pair):
    stated = ko.Problem(pair.stated.objective, [pair.theta(X) <= 1])
    half = cp.Minimize(0.5 * (pair.reduced_loss + LAM * pair.square))
    same = pair.check(half, [Q @ pair.alpha <= 1], stated)
    other = pair.check(half, [Q @ pair.alpha <= 2], stated)
    assert "0.5 × the stated one: the answers are the same." in " ".join(same.findings)
    assert "0.5 × the stated one." in " ".join(other.findings)


def test_infeasible_problems_are_not_equivalent_for_that_alone(pair):
    stated = ko.Problem(pair.stated.objective, [pair.theta(X) <= -1, pair.theta(X) >= 1])
    x = cp.Variable()
    report = ko.verify_reduction(stated, cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]))
    assert report.is_equivalent is None and "That alone" in report.findings[0]


# ---------------------------------------------------------------- users' objects, and wrong input


@pytest.mark.slow
def test_nothing_of_the_users_changes(pair):
    lam = cp.Parameter(nonneg=True, value=0.2)
    stated = ko.Problem(cp.Minimize(pair.loss + lam * ko.sum_squares(pair.theta)), [pair.theta(X) <= 5])
    reduced = cp.Problem(cp.Minimize(pair.reduced_loss + lam * pair.square), [Q @ pair.alpha <= 5])
    report = ko.verify_reduction(stated, reduced, {pair.theta: pair.alpha})
    assert report.is_equivalent is True
    assert stated.status is None and pair.theta.value is None and pair.b.value is None and pair.alpha.value is None
    assert reduced.status is None and stated.constraints[0].dual_value is None
    stated.solve()
    pair.alpha.value, lam.value = np.ones(N), 0.3
    before = stated.value, stated.certificate, pair.theta.value, float(pair.b.value), stated.constraints[0].dual_value
    dual = pair.theta.value(X), before[4].copy()
    ko.verify_reduction(stated, reduced, {pair.theta: pair.alpha})
    assert stated.value == before[0] and stated.certificate is before[1] and pair.theta.value is before[2]
    assert pair.b.value == before[3] and lam.value == 0.3
    assert np.array_equal(pair.alpha.value, np.ones(N)) and np.array_equal(stated.constraints[0].dual_value, dual[1])


def test_values_are_restored_after_an_error(pair, monkeypatch):
    def fails(*given):
        pair.b.value, pair.alpha.value = 1.0, np.ones(N)
        raise KernelOptError("Expected none; got one.")

    monkeypatch.setattr(reduced_optimum, "enclosed", fails)
    with pytest.raises(KernelOptError, match="Expected none"):
        ko.verify_reduction(pair.stated, pair.right, {pair.theta: pair.alpha})
    assert pair.b.value is None and pair.alpha.value is None and pair.theta.value is None


def test_reports_are_shown_and_pickled(pair):
    report = ko.verify_reduction(pair.stated, pair.right)
    assert str(pickle.loads(pickle.dumps(report))) == str(report)
    assert report._repr_html_().count("<tr") == len(report._lines())


REFUSED = {
    "no problem": (DataTypeError, lambda p: ko.verify_reduction(p.right, p.right), "a ko.Problem"),
    "two stated": (DataTypeError, lambda p: ko.verify_reduction(p.stated, p.stated), "a cp.Problem in variables"),
    "in theta": (
        DataError,
        lambda p: ko.verify_reduction(p.stated, cp.Problem(p.stated.objective)),
        "got one in θ",
    ),
    "other sense": (
        DataError,
        lambda p: ko.verify_reduction(p.stated, cp.Problem(cp.Maximize(-p.right.objective.args[0]))),
        "write dual=True",
    ),
    "no dual": (DataError, lambda p: ko.verify_reduction(p.stated, p.right, dual=True), "the opposite sense"),
    "dual": (OptionError, lambda p: ko.verify_reduction(p.stated, p.right, dual="yes"), "dual to be True or False"),
    "tol": (OptionError, lambda p: ko.verify_reduction(p.stated, p.right, tol=-1.0), "tol"),
    "nonconvex": (
        DCPError,
        lambda p: ko.verify_reduction(p.stated, cp.Problem(cp.Minimize(-p.square))),
        "disciplined convex",
    ),
    "parameter": (
        ParameterError,
        lambda p: ko.verify_reduction(p.stated, cp.Problem(cp.Minimize(p.square + cp.Parameter(name="lam")))),
        "parameter lam",
    ),
    "parameter of the map": (
        ParameterError,
        lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: cp.Parameter(name="scale") * p.alpha}),
        "parameter scale",
    ),
    "a constant": (
        DataError,
        lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: cp.Constant(np.ones(N))}),
        "got a constant",
    ),
    "no mapping": (DataTypeError, lambda p: ko.verify_reduction(p.stated, p.right, p.alpha), "functions to be"),
    "foreign key": (
        DataTypeError,
        lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: p.alpha, p.alpha: p.alpha}),
        "as keys of functions",
    ),
    "no theta": (DataError, lambda p: ko.verify_reduction(p.stated, p.right, {p.b: p.b}), "an entry of functions"),
    "shape": (DataError, lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: p.alpha[:3]}), "shape"),
    "not affine": (
        DataError,
        lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: cp.square(p.alpha)}),
        "affine",
    ),
    "foreign variable": (
        DataError,
        lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: cp.Variable(N)}),
        "variables of the reduced problem",
    ),
    "an array": (DataError, lambda p: ko.verify_reduction(p.stated, p.right, {p.theta: np.ones(N)}), "affine cvxpy"),
    "another kernel": (
        DataError,
        lambda p: ko.verify_reduction(
            p.stated, p.right, {p.theta: (ko.FeatureMatrix(X, ko.kernels.Linear()), p.alpha)}
        ),
        "rows of the kernel",
    ),
    "boxes": (
        KernelOptError,
        lambda p: ko.verify_reduction(
            ko.Problem(p.stated.objective, [ko.everywhere(lambda P: p.theta(P) <= 9, [0.0, 0.0], [1.0, 1.0])]), p.right
        ),
        "without ko.everywhere",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_input(pair, name):
    error, call, told = REFUSED[name]
    with pytest.raises(error, match="Expected") as raised:
        call(pair)
    assert told in str(raised.value)


def test_alpha_alone_needs_one_set_of_rows(pair):
    stated = ko.Problem(pair.stated.objective, [pair.theta(X[:3] + 1) <= 5])
    with pytest.raises(DataError, match="at 2 feature matrices"):
        ko.verify_reduction(stated, pair.right, {pair.theta: pair.alpha})
