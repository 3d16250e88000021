"""The method of multipliers on pieces, beside plain cvxpy with the same B and Clarabel."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.linalg import lapack

import kernelopt as ko
from kernelopt.compiler import comparison
from kernelopt.compiler.atom_rules import RULES
from kernelopt.errors import ReadingError
from kernelopt.factorization import CholeskyFactor
from kernelopt.solvers import method_of_multipliers, on_rows, row_gradients, row_multipliers, row_reduction, row_systems
from kernelopt.solvers.row_problem import row_problem
from kernelopt.solvers.row_reduction import Products
from kernelopt.solvers.row_systems import solver
from kernelopt.solvers.watch import Watch

NAME = "METHOD_OF_MULTIPLIERS"
N = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1], np.cos(X[:, 1])]) + 0.2 * RNG.standard_t(3, size=(N, 3))
y, c, GROUPS = Y[:, 0], np.where(Y[:, 0] > 0, 1.0, -1.0), RNG.integers(0, 3, size=N)
POSITIVE = np.exp(Y[:, 1])


class Declared:
    """The words of a statement in kernelopt."""

    def theta(self, outputs=None, sigma=1.0):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma), outputs=outputs)
        return theta, theta(X)

    def square(self, theta):
        return ko.sum_squares(theta)

    def norm(self, theta, kind=None):
        return ko.norm(theta) if kind is None else ko.norm(theta, kind)


class ByHand:
    """The same words with Bw."""

    def theta(self, outputs=None, sigma=1.0):
        C, pivots, rank, _ = lapack.dpstrf(ko.kernels.Gaussian(sigma=sigma)(X), tol=1e-12, lower=1)
        B = np.empty((N, rank))
        B[pivots - 1] = np.tril(C)[:, :rank]
        w = cp.Variable(rank if outputs is None else (rank, outputs))
        return w, B @ w

    def square(self, w):
        return cp.sum_squares(w)

    def norm(self, w, kind=None):
        return cp.norm(w, 2 if w.ndim == 1 else "fro") if kind is None else cp.norm(w, kind)


def stated(function):
    STATED[function.__name__.replace("_", " ")] = function
    return function


STATED = {}


@stated
def norms_of_rows(E):
    theta, F = E.theta(3)
    return cp.sum(cp.norm(Y - F, 2, axis=1)) + 0.5 * E.square(theta), []


@stated
def norms_of_rows_with_intercepts(E):
    theta, F = E.theta(3)
    return cp.sum(cp.norm(Y - F - np.ones((N, 1)) @ cp.Variable((1, 3)), 2, axis=1)) + 0.1 * E.square(theta), []


@stated
def Huber_of_norms_of_rows(E):
    theta, F = E.theta(3)
    return cp.sum(cp.huber(cp.norm(Y - F, 2, axis=1), 0.5)) + 0.2 * E.square(theta), []


@stated
def rows_in_balls(E):
    theta, F = E.theta(3)
    return cp.sum_squares(Y - F) + 0.2 * E.square(theta), [cp.norm(F, 2, axis=1) <= 0.6]


@stated
def the_nuclear_norm_of_residuals(E):
    theta, F = E.theta(3)
    return cp.normNuc(Y - F) + 0.05 * E.square(theta), []


@stated
def the_spectral_norm_of_residuals(E):
    theta, F = E.theta(3)
    return cp.sigma_max(Y - F) + 0.05 * E.square(theta), []


@stated
def semidefinite_and_second_order_constraints(E):
    theta, F = E.theta(3)
    G = F + np.ones((N, 1)) @ cp.Variable((1, 3))
    semidefinite = cp.bmat([[G[0, 0], G[0, 1]], [G[0, 1], G[0, 2]]]) >> 0
    return cp.sum_squares(Y - G) + 0.2 * E.square(theta), [
        semidefinite, cp.SOC(1.0 + G[:4, 0], G[:4, 1:].T, axis=0), cp.sum(G[5]) == 1, G[6] <= 0.1,
    ]  # fmt: skip


@stated
def the_worst_group_of_log_losses(E):
    theta, f = E.theta()
    loss = cp.logistic(-cp.multiply(c, f + cp.Variable()))
    return cp.max(cp.hstack([cp.sum(loss[g == GROUPS]) for g in range(3)])) + 0.05 * E.square(theta), []


@stated
def the_entropic_risk_of_squares(E):
    theta, f = E.theta()
    return cp.log_sum_exp(0.5 * cp.square(y - f - cp.Variable())) + 0.02 * E.square(theta), []


@stated
def the_length_of_residuals_and_of_theta(E):
    theta, f = E.theta()
    return cp.norm(y - f - cp.Variable()) + 0.3 * E.norm(theta), []


@stated
def the_shortest_theta_within_an_error(E):
    theta, f = E.theta()
    return E.norm(theta), [cp.norm(y - f - cp.Variable()) <= 1.0]


@stated
def the_norm_of_order_three_halves(E):
    theta, f = E.theta()
    return cp.pnorm(y - f - cp.Variable(), 1.5) + 0.1 * E.square(theta), []


@stated
def squares_over_a_variable(E):
    theta, f = E.theta()
    s = cp.Variable(pos=True)
    return cp.quad_over_lin(y - f - cp.Variable(), s) + 2 * s + 0.2 * E.square(theta), []


@stated
def several_norms(E):
    parts = [E.theta(sigma=sigma) for sigma in (0.5, 1.0, 4.0)]
    f = sum(f for _, f in parts) + cp.Variable()
    return cp.sum(cp.logistic(-cp.multiply(c, f))) + 0.8 * sum(E.norm(theta) for theta, _ in parts), []


@stated
def a_kernel_of_each_of_many_widths(E):
    parts = [E.theta(sigma=sigma) for sigma in np.geomspace(0.3, 5, 14)]
    f = sum(f for _, f in parts) + cp.Variable()
    return cp.sum_squares(y - f) + 0.5 * sum(E.norm(theta) for theta, _ in parts), []


@stated
def a_kernel_of_each_of_many_widths_with_weights(E):
    parts = [E.theta(sigma=sigma) for sigma in np.geomspace(0.3, 5, 14)]
    f = sum((1 + k / 14) * f for k, (_, f) in enumerate(parts)) + cp.Variable()
    return cp.sum(cp.huber(y - f)) + cp.norm(f[:9], 2) + 0.5 * sum(E.norm(theta) for theta, _ in parts), []


@stated
def the_nuclear_norm_of_theta(E):
    theta, F = E.theta(3)
    return cp.sum_squares(Y - F) + 0.8 * E.norm(theta, "nuc"), []


@stated
def the_spectral_norm_of_theta(E):
    theta, F = E.theta(3)
    return cp.sum_squares(Y - F) + 0.8 * E.norm(theta, 2), []


@stated
def a_norm_within_losses(E):
    theta, f = E.theta()
    margins = cp.multiply(c, f + cp.Variable()) - 0.1 * E.norm(theta)
    return cp.sum(cp.pos(1 - margins)) + 0.1 * E.square(theta), []


@stated
def a_norm_beside_losses_within_a_bound(E):
    theta, f = E.theta()
    n = E.norm(theta)
    return cp.sum_squares(y - f) + 0.1 * E.square(theta), [
        n + cp.norm1(f) <= 9, n + cp.square(f[0]) <= 1.9, cp.maximum(n, cp.norm(f)) <= 2.5, n + cp.exp(f[1]) <= 3,
    ]  # fmt: skip


@stated
def fair_squared_hinge(E):
    theta, f = E.theta()
    return cp.sum(cp.square(cp.pos(1 - cp.multiply(c, f)))) + 0.2 * E.square(theta), [cp.abs(cp.sum(f[:9])) <= 0.01]


@stated
def bounded_differences(E):
    theta, f = E.theta()
    return cp.sum(cp.abs(y - f - cp.Variable())) + 0.2 * E.square(theta), [cp.abs(f[1:] - f[:-1]) <= 0.5]


@stated
def a_divergence(E):
    theta, f = E.theta()
    g = f + cp.Variable()
    return cp.sum(cp.kl_div(POSITIVE, g)) + 0.2 * E.square(theta), [g >= 1e-3]


@stated
def a_squared_length_that_is_bounded(E):
    theta, f = E.theta()
    return cp.norm(y - f) + 0.1 * E.square(theta), [cp.sum_squares(f) <= 3, E.norm(theta) <= 2.5]


@stated
def rows_in_balls_of_several_orders(E):
    theta, F = E.theta(3)
    G = F + np.ones((N, 1)) @ cp.Variable((1, 3))
    return cp.sum(cp.norm(Y - G, 2, axis=1)) + 0.2 * E.square(theta), [
        2 * cp.norm(G[:6], 1, axis=1) <= 1, cp.abs(G[15, 0]) + 2 * cp.abs(G[15, 1]) <= 0.3,
        cp.norm(G[6:12], "inf", axis=1) <= 0.3, cp.square(cp.norm(G[12], 2)) <= 0.2,
        2 * cp.pos(cp.norm(G[13], 2) - 0.1) <= 0.2, cp.pnorm(G[14], 3) <= 0.4,
    ]  # fmt: skip


@stated
def rows_in_intervals(E):
    theta, F = E.theta(3)
    pinball = cp.maximum(2 * F[:6, 1], -F[:6, 1])
    return cp.sum(cp.norm(Y - F, 2, axis=1)) + 0.2 * E.square(theta), [
        3 * cp.abs(F[:, 0]) <= 1.2, pinball <= 0.2, cp.huber(F[6:12, 1]) <= 0.1, cp.pos(F[12:, 1]) <= 0.3,
    ]  # fmt: skip


@stated
def the_largest_of_norms_of_rows(E):
    theta, F = E.theta(3)
    lengths = cp.norm(Y - F - np.ones((N, 1)) @ cp.Variable((1, 3)), 2, axis=1)
    return cp.sum_largest(lengths, 5) / 5 + 0.02 * E.square(theta), []


@stated
def norms_of_rows_beside_a_variable(E):
    theta, F = E.theta(3)
    u, t = cp.Variable(N), cp.Variable()
    rows = [cp.norm(Y - F, 2, axis=1) <= u, 2 * cp.norm(F[:4], 2, axis=1) + F[4:8, 0] <= 1 + 3 * t]
    return t + cp.sum(cp.pos(u - t)) / 5 + 0.02 * E.square(theta), rows


@stated
def the_length_of_residuals_beside_a_variable(E):
    theta, f = E.theta()
    t = cp.Variable()
    return cp.square(t) + cp.sum(cp.abs(y - f)) / 9 + 0.1 * E.square(theta), [cp.norm(y - f) <= t]


def by_hand(name):
    objective, constraints = STATED[name](ByHand())
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value, constraints


def declared(name):
    objective, constraints = STATED[name](Declared())
    return ko.Problem(cp.Minimize(objective), constraints), constraints


@pytest.mark.later
@pytest.mark.parametrize("name", STATED)
def test_beside_a_cone_solver(name):
    """Values, certificates and multipliers."""
    truth, alike = by_hand(name)
    problem, constraints = declared(name)
    of_sums = name in ("a divergence", "bounded differences", "fair squared hinge")
    problem.solve(solver=None if of_sums else NAME)
    assert problem.solver_stats.solver_name == ("INTERIOR_POINT" if of_sums else NAME)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.certificate.lower <= truth * (1 + 1e-8) and problem.certificate.upper >= truth * (1 - 1e-8)
    for ours, theirs in zip(constraints, alike, strict=True):
        for dual, other in zip(ours.dual_variables, theirs.dual_variables, strict=True):
            size = max(1.0, float(np.abs(other.value).max()))
            np.testing.assert_allclose(dual.value, other.value, atol=2e-3 * size)


@pytest.mark.slow
def test_parameters_start_from_the_last_answer():
    theta, lam, level = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Parameter(nonneg=True), cp.Parameter()
    F = theta(X)
    problem = ko.Problem(
        cp.Minimize(cp.sum(cp.norm(Y - F, 2, axis=1)) + lam * ko.sum_squares(theta)), [cp.sum(F) <= level]
    )
    for lam.value, level.value in ((0.5, 1.0), (0.4, 1.0), (0.4, 0.9)):
        problem.solve()
        first = ko.Problem(problem.objective, problem.constraints)
        first.solve()
        assert problem.status == first.status == "optimal"
        assert problem.value == pytest.approx(first.value, rel=1e-6)


def test_what_it_lacks_is_told():
    theta, Theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    f, loss, columns = theta(X), cp.norm(y - theta(X)), cp.norm(Y[:, :2] - Theta(X))
    for objective, said in (
        (loss, "one norm of each θ"),
        (loss + ko.norm(theta) ** 3, "‖θ‖ or its square as a penalty"),
        (columns + ko.norm(Theta @ np.ones((2, 1)), "fro") + ko.norm(Theta, "fro"), "one norm of each θ"),
        (columns + ko.norm(Theta @ np.eye(2)[::-1], "fro"), "a norm of θ itself"),
        (columns + ko.norm(Theta, "nuc") ** 2, "as a multiple of them"),
        (loss + cp.rel_entr(1.0, 2 + f[0]) + cp.rel_entr(2 + f[1], 2 + f[2]) + ko.norm(theta), "kind exp"),
    ):
        assert said in str(ko.Problem(cp.Minimize(objective)).solvers()[NAME])


def test_it_takes_sums_of_functions_of_one_number_by_name():
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(c, theta(X) + b))) + 0.1 * ko.sum_squares(theta)))
    truth = problem.solve()
    assert problem.solve(solver=NAME) == pytest.approx(truth, rel=1e-6)
    assert problem.status == "optimal" and problem.solver_stats.solver_name == NAME


@pytest.mark.slow
def test_a_time_limit_ends_it():
    problem, _ = declared("the worst group of log losses")
    problem.solve(time_limit=1e-3)
    assert problem.status == "user_limit"


def test_a_misread_atom_is_an_error_that_names_it(monkeypatch):
    rule = RULES["quad_over_lin"]
    monkeypatch.setitem(RULES, "quad_over_lin", lambda reader, node: rule(reader, node).times(1.001))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.norm(y - theta(X)) + cp.sum_squares(theta(X)[:3]) + ko.sum_squares(theta)))
    with pytest.raises(ReadingError, match="u\\[:3\\]"):
        problem.solve()


def test_a_large_number_elsewhere_hides_no_misread_atom(monkeypatch):
    """Each part is compared by the numbers within it."""
    rule = RULES["quad_over_lin"]
    monkeypatch.setitem(RULES, "quad_over_lin", lambda reader, node: rule(reader, node).times(1 + 1e-6))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    offset = cp.norm((y - theta(X) + 1e8) - 1e8)
    problem = ko.Problem(cp.Minimize(offset + cp.sum_squares(theta(X)[:3]) + ko.sum_squares(theta)))
    with pytest.raises(ReadingError, match="u\\[:3\\]"):
        problem.solve()


@pytest.mark.later
@pytest.mark.parametrize("number", [0.37, 1e6])
def test_what_cancels_in_rows_is_rounded_in_the_statement(number):
    """An intercept, and a constant, which the rows of a difference don't have."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b
    problem = ko.Problem(
        cp.Minimize(ko.sum_squares(theta) + cp.square(b - number)),
        [f[0] - f[1] >= 0, (f[2] + number) - number - b <= 1],
    )
    problem.solve()
    assert problem.status == "optimal" and b.value == pytest.approx(number, abs=1e-6)


def numbers(name):
    """A problem in rows with its factors, at a random point and random multipliers."""
    objective, constraints = STATED[name](Declared())
    form = ko.Problem(cp.Minimize(objective), constraints).canonical_form()
    factors = {}
    for link in form.predictions:
        values, V = np.linalg.eigh(link.theta.kernel(link.rows.points, link.rows.points))
        B = np.ascontiguousarray((V * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :9])
        factors[link.theta] = CholeskyFactor(B, 1.0, np.arange(9), 0.0, 0.0, 0.0)
    pieces = comparison.read(form.bare)
    problem = row_problem(form, pieces, factors)
    rng = np.random.default_rng(1)
    x = 0.3 * rng.normal(size=problem.p + problem.q)
    x[problem.p :] += 1.0
    return problem, x, rng


POINTS = ["norms of rows", "Huber of norms of rows", "rows in balls", "the nuclear norm of residuals",
          "semidefinite and second order constraints", "the worst group of log losses", "the entropic risk of squares",
          "the norm of order three halves", "several norms", "a kernel of each of many widths",
          "a kernel of each of many widths with weights", "rows in balls of several orders",
          "the nuclear norm of theta", "a norm within losses",
          "fair squared hinge", "bounded differences"]  # fmt: skip


def at(problem, x, a0, b0):
    return method_of_multipliers._state(problem, x, problem.moved(x) + problem.shift, a0, b0, 2.0, None)


@pytest.mark.parametrize("name", POINTS)
def test_derivatives_of_the_inner_objective(name):
    """Multipliers are slopes, and systems invert the second derivative, by differences."""
    problem, x, rng = numbers(name)
    a0 = np.where(problem.explicit, 0.2 * np.abs(rng.normal(size=len(problem.shift))), 0.0)
    b0 = np.concatenate([0.3 * rng.normal(size=problem.p), np.zeros(problem.q)])
    state, d, h = at(problem, x, a0, b0), rng.normal(size=len(x)), 1e-6
    ends = [at(problem, x + sign * h * d, a0, b0) for sign in (1, -1)]
    slope = (ends[0].value - ends[1].value) / (2 * h)
    assert slope == pytest.approx(float(state.gradient(problem) @ d), rel=1e-5, abs=1e-5)
    bent = (ends[0].gradient(problem) - ends[1].gradient(problem)) / (2 * h)
    found = row_multipliers.curvature(problem, state.s, state.rows)
    tiny = np.full(problem.q, 1e-9)
    solved = solver(Products(problem), found, state.lengths, tiny)(bent)
    left = full(problem, found, state.lengths, tiny) @ d - bent
    assert np.abs(left).max() <= 1e-4 * (1 + np.abs(bent).max())
    back = full(problem, found, state.lengths, tiny) @ solved - bent
    assert np.abs(back).max() <= 1e-6 * (1 + np.abs(bent).max())


def full(problem, found, lengths, ridge):
    """R + W ⊗ I + Cᵀ(H + ZTZᵀ)C + UTUᵀ + ridge."""
    C = np.column_stack([problem.moved(e) for e in np.eye(problem.p + problem.q)])
    M = C.T @ (found.H @ C + found.Z @ (found.T @ (found.Z.T @ C))) + lengths.U @ lengths.T @ lengths.U.T
    R = np.diag(problem.R) + lengths.W
    for k, (a, b) in enumerate(zip(problem.ends, problem.ends[1:], strict=False)):
        for j, (e, f) in enumerate(zip(problem.ends, problem.ends[1:], strict=False)):
            M[a:b, e:f] += R[k, j] * np.eye(b - a) if b - a == f - e else 0.0
    return M + np.diag(np.concatenate([np.zeros(problem.p), ridge]))


@pytest.mark.parametrize("largest", [0, 10_000])
@pytest.mark.parametrize("name", POINTS)
def test_systems_of_large_problems(name, largest, monkeypatch):
    """In rows, in columns, alike, and by conjugate gradients, as small ones."""
    monkeypatch.setattr(row_systems, "WHOLE", 0)
    monkeypatch.setattr(row_reduction, "MANY", 0)
    monkeypatch.setattr(row_systems, "LARGE", largest)
    monkeypatch.setattr(row_gradients, "ENOUGH", 1e-13)
    monkeypatch.setattr(row_gradients, "MOST", 5000)
    problem, x, rng = numbers(name)
    a0 = np.where(problem.explicit, 0.2 * np.abs(rng.normal(size=len(problem.shift))), 0.0)
    state = at(problem, x, a0, np.zeros(len(x)))
    found, ridge = row_multipliers.curvature(problem, state.s, state.rows), np.full(problem.q, 0.1)
    r, products = rng.normal(size=len(x)), Products(problem)
    for more in (0.0, 0.7):  # the second system has the same H, and may take what the first one kept
        lengths = state.lengths._replace(W=state.lengths.W + more * np.eye(len(problem.blocks)))
        solved = solver(products, found, lengths, ridge)(r)
        left = full(problem, found, lengths, ridge) @ solved - r
        assert np.abs(left).max() <= 1e-5 * (1 + np.abs(solved).max())


def test_coarse_ranks_come_first(monkeypatch):
    monkeypatch.setattr(method_of_multipliers, "RANKS", (3, 5))
    seen = []
    whole = method_of_multipliers._rounds

    def rounds(problem, *more, **options):
        seen.append(problem.p)
        return whole(problem, *more, **options)

    monkeypatch.setattr(method_of_multipliers, "_rounds", rounds)
    problem, _, _ = numbers("norms of rows")
    found = method_of_multipliers.solve(problem, Watch("", 1e-8, 1e-12, problem.unit)).point
    monkeypatch.setattr(method_of_multipliers, "RANKS", ())
    again = method_of_multipliers.solve(problem, Watch("", 1e-8, 1e-12, problem.unit)).point
    assert seen == [9, 15, 27, 27]
    assert found.primal == pytest.approx(again.primal, rel=1e-6)


@pytest.mark.slow
def test_the_optimum_at_theta_of_zero():
    """P₀ by pieces, with and without variables."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable((1, 3))
    for shift in (np.zeros((N, 3)), np.ones((N, 1)) @ b):
        problem = ko.Problem(cp.Minimize(cp.normNuc(Y - theta(X) - shift) + 0.1 * ko.sum_squares(theta)))
        problem.solve()
        truth = cp.Problem(cp.Minimize(cp.normNuc(Y - shift))).solve(solver="CLARABEL")
        assert problem.certificate.at_zero == pytest.approx(truth, rel=1e-6)


def test_points_of_other_shapes_are_no_start():
    problem, _, _ = numbers("norms of rows")
    other, _, _ = numbers("a norm within losses")
    found = method_of_multipliers.solve(other, Watch("", 1e-6, 1e-10, other.unit))
    assert on_rows.started(problem, found) is None
    assert on_rows.started(other, found) is not None


@pytest.mark.slow
def test_a_sum_does_not_change_what_is_read_again():
    """The sum of entries was put in order in place: F had other columns where it was read next."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable()
    F = theta(X) + b
    objective = cp.Minimize(cp.sum(cp.norm(Y - F, 2, axis=1)) + ko.sum_squares(theta))
    for constraints in ([cp.sum(F) == 0, F >= -0.3], [cp.sum(F) == 0, 2 * cp.sum(F) == 0]):
        problem = ko.Problem(objective, constraints)
        value = problem.solve(solver=NAME)
        assert problem.status == "optimal" and value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


@pytest.mark.later
@pytest.mark.parametrize("loss", [cp.square, cp.huber, cp.log_sum_exp])
def test_a_bound_alone_has_steps(loss):
    """All slopes at θ = 0 are those of columns that bound functions."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3)
    lengths = cp.norm(Y - theta(X), 2, axis=1)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(lengths))), [ko.sum_squares(theta) <= 1])
    value = problem.solve(solver=NAME)
    assert problem.status == "optimal" and value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_a_theta_of_zero_is_zero():
    parts = [ko.Theta(ko.kernels.Gaussian(sigma=sigma)) for sigma in (0.5, 1.0, 4.0)]
    f = sum(theta(X) for theta in parts)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.square(y - f)) + 6 * sum(ko.norm(theta) for theta in parts)))
    problem.solve()
    zero = [not theta.value(X).any() for theta in parts]
    assert problem.status == "optimal" and problem.solver_stats.solver_name == NAME
    assert any(zero) and not all(zero)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_a_theta_of_zero_is_zero_at_any_tolerance(tol):
    """The last point's proximal map says which ones are 0; the point itself has residues of what was allowed."""
    parts = [ko.Theta(ko.kernels.Gaussian(sigma=sigma)) for sigma in (0.5, 1.0, 4.0, 8.0)]
    f = sum(theta(X) for theta in parts) + cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + 3 * sum(ko.norm(theta) for theta in parts)))
    problem.solve(solver=NAME)
    zero = [theta.value.norm == 0 for theta in parts]
    problem.solve(solver=NAME, tol=tol)
    assert problem.status == "optimal" and any(zero) and not all(zero)
    assert [theta.value.norm == 0 for theta in parts] == zero


@pytest.mark.parametrize("h", [lambda f: -cp.entr(f), lambda f: -cp.log(f), cp.inv_pos])
def test_first_points_may_be_outside_of_a_domain(h):
    """Their value is ∞; σ grows until the first one inside."""
    theta, targets = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), np.linspace(-1, 1, N)
    f = theta(np.linspace(0, 6, N)[:, None])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - targets) + cp.sum(h(f)) + 0.01 * ko.sum_squares(theta)))
    expected = problem.solve()
    assert problem.solve(solver=NAME) == pytest.approx(expected, rel=1e-6)
    assert problem.status == "optimal"


@pytest.mark.parametrize("seed", range(3))
def test_a_norm_that_vanishes_has_the_last_point(seed):
    """½xᵀRx falls with the gap where θ = 0 is optimal: relative to it no point would be better than the second."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(120, 5))
    y = np.sin(points[:, 0]) + rng.standard_t(2, size=120)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0))
    problem = ko.Problem(cp.Minimize(cp.norm(y - theta(points) - cp.Variable()) + 3 * ko.norm(theta)))
    problem.solve(solver=NAME)
    assert problem.status == "optimal" and problem.value == pytest.approx(np.linalg.norm(y - y.mean()), rel=1e-8)


@pytest.mark.parametrize(
    "loss", [lambda r: cp.sum(cp.power(cp.pos(r), 3)), lambda r: cp.max(cp.pos(r)) + cp.sum(cp.exp(r))]
)
def test_an_intercept_that_runs_away_ends_the_method(loss):
    """A step that still falls at 1e8 times the data shows that no minimum exists: a ray is found."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective = loss(theta(np.array([[1.8], [2.1], [0.3]])) + b) + 0.5 * ko.sum_squares(theta) + 0.17 * b
    problem = ko.Problem(cp.Minimize(objective), [cp.sum(cp.sqrt(theta(np.array([[0.1], [0.9], [1.5]])) + 1)) >= 2])
    problem.solve(solver=NAME)
    assert problem.status == "unbounded"
    assert problem.solver_stats.attempts[0].claimed == "failed"


def test_conjugate_gradients_with_too_many_steps_give_way_to_a_factor(monkeypatch):
    monkeypatch.setattr(row_systems, "WHOLE", 0)
    monkeypatch.setattr(row_systems, "LARGE", 0)
    monkeypatch.setattr(row_systems, "FEW", 0.0)
    monkeypatch.setattr(row_gradients, "ENOUGH", 1e-13)
    problem, x, rng = numbers("norms of rows")
    state = at(problem, x, np.where(problem.explicit, 0.3, 0.0), np.zeros(len(x)))
    found, ridge = row_multipliers.curvature(problem, state.s, state.rows), np.full(problem.q, 0.1)
    r = rng.normal(size=len(x))
    for most, stiff in ((5000, False), (1, True)):
        monkeypatch.setattr(row_gradients, "MOST", most)
        products = Products(problem)
        solved = solver(products, found, state.lengths, ridge)(r)
        assert products.is_stiff is stiff
        left = full(problem, found, state.lengths, ridge) @ solved - r
        assert np.abs(left).max() <= 1e-6 * (1 + np.abs(solved).max())


@pytest.mark.parametrize(("fresh", "made"), [(5000, 1), (-1, 3)])
def test_a_preconditioner_serves_later_systems_while_they_take_few_steps(monkeypatch, fresh, made):
    for name, value in (("WHOLE", 0), ("LARGE", 0), ("FEW", 0.0), ("ENOUGH", 1e-13), ("MOST", 5000), ("FRESH", fresh)):
        monkeypatch.setattr(row_systems if hasattr(row_systems, name) else row_gradients, name, value)
    problem, x, rng = numbers("norms of rows")
    products, ridge, seen, factored = Products(problem), np.full(problem.q, 0.1), [], row_gradients.factored
    monkeypatch.setattr(row_gradients, "factored", lambda M: seen.append(len(M)) or factored(M))
    for scale in (1.0, 1.5, 2.0):
        state = at(problem, scale * x, np.where(problem.explicit, 0.3, 0.0), np.zeros(len(x)))
        found, r = row_multipliers.curvature(problem, state.s, state.rows), rng.normal(size=len(x))
        solved = solver(products, found, state.lengths, ridge)(r)
        left = full(problem, found, state.lengths, ridge) @ solved - r
        assert np.abs(left).max() <= 1e-6 * (1 + np.abs(solved).max())
    assert len(seen) == made and not products.is_stiff


@pytest.mark.parametrize(("rows", "seed"), [(100, 1), (300, 3)])
def test_hinge_losses_beside_a_nuclear_norm_move_from_zero(rows, seed):
    """Neither has curvature at 0: the first Newton direction is one of rounding, along which nothing falls."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(rows, 5))
    noise = 0.3 * rng.standard_t(2, size=(3, rows))
    first = np.sin(2 * points[:, 0]) + points[:, 1] * points[:, 2]
    labels = np.sign(np.c_[first + noise[0], np.cos(points[:, 1]) + noise[1], first * points[:, 3] + noise[2]])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=3)
    loss = cp.sum(cp.pos(1 - cp.multiply(labels, theta(points))))
    problem = ko.Problem(cp.Minimize(loss + 3 * ko.norm(theta, "nuc")))
    problem.solve(solver=NAME, max_rank=60, certify=False)
    found = problem.value
    problem.solve(solver=NAME, max_rank=60)
    assert found < 0.7 * labels.size and found == pytest.approx(problem.value, rel=1e-6)


def test_an_intercept_beside_a_kernel_that_has_nearly_all_constants():
    """It has little curvature of its own: a ridge of a share of σ made 151 systems of 30."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(300, 5))
    y = np.sin(2 * points[:, 0]) + points[:, 1] * points[:, 2] + 0.3 * rng.standard_t(2, size=300)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    error = cp.norm(y - theta(points) - b)
    problem = ko.Problem(cp.Minimize(ko.norm(theta)), [error <= 0.5 * np.linalg.norm(y - y.mean())])
    problem.solve(solver=NAME)
    assert problem.status == "optimal" and problem.solver_stats.num_iters <= 60


COUPLED = {
    "a length": lambda f, theta: cp.norm(f[:, 0]) + ko.sum_squares(theta),
    "lengths of rows": lambda f, theta: cp.sum(cp.norm(f - 1, axis=1)) + ko.sum_squares(theta),
    "a worst group": lambda f, theta: cp.maximum(cp.sum(cp.exp(f[:5])), cp.sum_squares(f)) + ko.sum_squares(theta),
}
SPECTRAL = {
    "a nuclear norm": lambda f, theta: cp.normNuc(f - 1) + ko.sum_squares(theta),
    "a norm of a matrix": lambda f, theta: cp.sum_squares(f - 1) + ko.norm(theta, "nuc"),
}


@pytest.mark.parametrize(
    ("rows", "terms", "chosen"), [(60, COUPLED, "CLARABEL"), (120, COUPLED, NAME), (60, SPECTRAL, NAME)]
)
@pytest.mark.parametrize("sigma", [0.5, 50.0])
def test_few_predictions_go_to_a_cone_solver(rows, terms, chosen, sigma):
    """Whatever the rank: of many rows the cone program is large where it has few columns, too."""
    points = np.random.default_rng(0).normal(size=(rows, 3))
    for term in terms.values():
        theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma), outputs=2)
        problem = ko.Problem(cp.Minimize(term(theta(points), theta)))
        assert problem.solvers().chosen == chosen


@pytest.mark.parametrize(("rows", "chosen"), [(190, "INTERIOR_POINT"), (210, NAME)])
def test_many_bounded_sums_of_moduli_are_sets(rows, chosen):
    points = np.linspace(0, 9, rows)[:, None]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    F = theta(points)
    objective = cp.sum_squares(np.cos(points) - F) + 0.5 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [cp.norm(F, 1, axis=1) <= 0.5])
    assert problem.solvers().chosen == chosen
