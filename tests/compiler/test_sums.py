"""Sums of functions of one number each, found in pieces, beside the values of the expressions they were read from."""

import gc
import threading
import weakref

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import kernelopt as ko
from kernelopt.compiler.outer import outer_of

RNG = np.random.default_rng(0)
N = 6
X, T = RNG.standard_normal((N, 2)), RNG.standard_normal(N)
Y = np.sign(T)
POSITIVE = np.abs(T) + 0.1

LOSSES = {
    "hinge": lambda f: cp.sum(cp.pos(1 - cp.multiply(Y, f))),
    "absolute": lambda f: cp.norm1(f - T),
    "written out": lambda f: cp.sum(cp.maximum(f - T - 0.1, T - f - 0.1, 0)),
    "lines": lambda f: cp.sum(cp.maximum(-1.5, 0.3 * f, -0.7 * f, 3 * f - 1)),
    "pinball": lambda f: cp.sum(cp.maximum(0.3 * (T - f), -0.7 * (T - f))),
    "Huber": lambda f: cp.sum(cp.huber(f - T, 0.5)),
    "squares": lambda f: cp.sum_squares(f - T) + 2 * cp.sum_squares(f[:2] - f[2:4]),
    "squared hinge": lambda f: cp.sum_squares(cp.pos(1 - cp.multiply(Y, f))),
    "quadratic form": lambda f: cp.quad_form(f, np.diag(POSITIVE) + 0.1),
    "logistic": lambda f: cp.sum(cp.logistic(-cp.multiply(Y, f))),
    "Poisson": lambda f: cp.sum(cp.exp(f) - cp.multiply(POSITIVE, f)),
    "logarithm": lambda f: -cp.sum(cp.log(f + 9)),
    "entropy": lambda f: -cp.sum(cp.entr(f + 9)),
    "powers": lambda f: cp.sum(
        cp.power(cp.abs(f - T), 3) + cp.power(cp.pos(T - f), 1.5) + cp.inv_pos(f + 9) - cp.sqrt(f + 9)
    ),
    "largest": lambda f: cp.max(f - T),
    "largest size": lambda f: cp.norm_inf(f - T),
    "two largest": lambda f: cp.sum_largest(f - T, 2),
    "two largest hinges": lambda f: cp.sum_largest(cp.pos(3 - cp.multiply(Y, f)), 2),
    "two largest sizes": lambda f: cp.sum_largest(cp.abs(f - T), 2) + cp.sum_squares(f),
    "four of a tube": lambda f: 0.5 * cp.sum_largest(cp.pos(cp.abs(f - T) - 0.7), 4),
    "largest costs": lambda f: cp.sum_largest(2 + 0.3 * cp.abs(T - f), 3),
    "conditional value at risk": lambda f: cp.cvar(cp.abs(f - T), 0.6),
    "log-sum-exp": lambda f: cp.log_sum_exp(f - T),
    "log-sum-exp of two": lambda f: cp.log_sum_exp(f[:2]),
    "constants": lambda f: cp.sum(cp.huber(f[:2] - T[:2])) + cp.sum(cp.abs(T)) + cp.abs(0 * f[0] - 2),
}


def of(loss, b=None):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X) if b is None else theta(X) + b
    form = ko.Problem(cp.Minimize(loss(f) + ko.sum_squares(theta))).canonical_form()
    return form, outer_of(form)


def values_beside(split, s_of_y):
    """min over the columns that are not the user's."""
    more = split.F.shape[1] - split.users
    if not more:
        return split.value(s_of_y(np.zeros(0)))
    start = np.full(more, 50.0)
    for _ in range(20):
        found = minimize(
            lambda y: min(split.value(s_of_y(y)) + float(split.linear_y[split.users :] @ y), 1e9), start,
            method="Nelder-Mead", options={"xatol": 1e-12, "fatol": 1e-12},
        )  # fmt: skip
        start = found.x
    return found.fun


@pytest.mark.parametrize("with_b", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_values(name, with_b):
    b = cp.Variable() if with_b else None
    form, outer = of(LOSSES[name], b)
    split, u = outer.split, RNG.standard_normal(N)
    y = np.array([0.3]) if with_b else np.zeros(0)
    assert split is not None
    form.predictions[0].u.value = u
    form.norms[0].t.value = 0.0
    for variable in form.y:
        variable.value = 0.3
    found = values_beside(split, lambda more: split.arguments(u, np.append(y, more)))
    found += float(split.linear_u @ u + split.linear_y[: split.users] @ y) + split.constant + outer.offset
    assert found == pytest.approx(float(form.bare.objective.value), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_multipliers_attain_the_value(name):
    """With c + Sᵀa = 0 but for u and t, the conjugates at a and ν = −(c_u + S_uᵀa) attain the sum of both values."""
    b = cp.Variable()
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(LOSSES[name](theta(X) + b) + ko.sum_squares(theta) + 0.01 * cp.square(b)))
    problem.solve(tol=1e-8)
    assert problem.status == "optimal"
    rows = problem.certificate.evidence.rows
    pieces = outer_of(problem.canonical_form()).pieces
    assert rows is not None
    assert rows.shape == pieces.s0.shape


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_weight_zero_are_nothing(name):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(0 * LOSSES[name](theta(X)) + cp.norm1(theta(X) - T) + ko.sum_squares(theta)))
    alone = ko.Problem(cp.Minimize(cp.norm1(theta(X) - T) + ko.sum_squares(theta)))
    assert problem.solve() == pytest.approx(alone.solve(), rel=1e-8)
    assert problem.status == "optimal"


STATED = {
    "bound": lambda f: f <= 0.1,
    "equation": lambda f: f[:2] == 0.1,
    "differences": lambda f: f[1:] - f[:-1] >= -0.2,
    "sizes of differences": lambda f: cp.abs(f[1:] - f[:-1]) <= 0.3,
    "sizes of differences, one with itself": lambda f: cp.abs(f[[0, 1, 2]] - f[[1, 1, 3]]) <= np.array([0.3, 0.1, 0.3]),
    "sizes": lambda f: 2 * cp.abs(f - 0.1) <= 0.5,
    "squares": lambda f: 3 * cp.square(f + 0.1) <= 0.3,
    "one side": lambda f: cp.pos(f - 0.1) <= 0.2,
    "Huber's": lambda f: cp.huber(f, 0.1) <= 0.05,
    "within a tube": lambda f: cp.pos(cp.abs(f) - 0.1) <= 0.2,
}


@pytest.mark.parametrize("constraint", STATED)
def test_multipliers_of_constraints(constraint):
    """Bounds of one function are those of a level set."""
    duals, values = [], []
    for solver in ("INTERIOR_POINT", "CLARABEL"):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X)
        one = STATED[constraint](f)
        problem = ko.Problem(cp.Minimize(cp.sum_squares(f - T) + ko.sum_squares(theta)), [one])
        values.append(problem.solve(solver=solver, tol=1e-8))
        assert problem.status == "optimal" and np.max(one.violation()) <= 1e-9
        duals.append(one.dual_value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert duals[0] == pytest.approx(duals[1], rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_level_sets_without_an_interior_are_left_to_others():
    for constraint in (
        lambda f: cp.pos(f) <= 0, lambda f: cp.abs(f) <= -1, lambda f: cp.square(f) <= 0,
        lambda f: cp.abs(f[:2] - f[1]) <= -np.arange(2),
    ):  # fmt: skip
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X)
        problem = ko.Problem(cp.Minimize(cp.sum_squares(f - T) + ko.sum_squares(theta)), [constraint(f)])
        assert problem.solve() == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-5)
        assert problem.status in ("optimal", "infeasible")


def test_what_is_no_sum():
    for loss in (
        lambda f: cp.norm(f), lambda f: cp.exp(cp.norm(f)), lambda f: cp.max(cp.abs(f)) ** 2,
        lambda f: cp.sum_largest(cp.square(f), 2), lambda f: cp.max(cp.hstack([cp.huber(f[:2]), f[2:]])),
    ):  # fmt: skip
        _, outer = of(loss)
        assert outer.split is None or outer.pieces is None


def test_penalties_change_what_norms_cost_alone():
    """What was found out for one λ holds for others."""
    lam, theta = cp.Parameter(nonneg=True, value=1.0), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    y = cp.Parameter(N, value=T)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + lam * ko.sum_squares(theta)))
    first = problem._outer()
    lam.value = 2.0
    second = problem._outer()
    y.value = T + 1
    third = problem._outer()
    assert second.common is first.common
    assert second.lengths.curvature.tolist() == [4.0]
    assert third.common is not second.common


def test_what_is_known_of_norms():
    theta, f0 = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), 0.5
    loss = cp.sum_squares(theta(X) - T)
    for objective, constraints, expected in (
        (loss + 3 * ko.sum_squares(theta) + f0 * ko.norm(theta), [], (0.5, 6.0, np.inf)),
        (loss, [ko.norm(theta) <= 2], (0.0, 0.0, 2.0)),
        (loss, [2 * ko.norm(theta) <= 1, ko.norm(theta) <= 3], (0.0, 0.0, 0.5)),
    ):
        found = outer_of(ko.Problem(cp.Minimize(objective), constraints).canonical_form()).lengths
        assert [part.item() for part in (found.slope, found.curvature, found.limit)] == list(expected)
    for objective in (loss + cp.exp(ko.norm(theta)), loss + cp.square(ko.norm(theta) + cp.norm_inf(theta(X)))):
        assert outer_of(ko.Problem(cp.Minimize(objective)).canonical_form()).lengths is None


def test_variables_that_drop_out_have_no_column():
    b = cp.Variable(3)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) + b[1] - T) + ko.sum_squares(theta)))
    outer = problem._outer()
    assert outer.split.F.shape[1] == 1
    problem.solve()
    assert outer.split.users == 1
    assert b.value.shape == (3,)


# Numbers of very different sizes


def separated(objective, constraints=lambda u: []):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u = theta(X[:3])
    form = ko.Problem(cp.Minimize(objective(u) + ko.sum_squares(theta)), constraints(u)).canonical_form()
    return outer_of(form)


def test_small_curvature_beside_a_large_one():
    pieces = separated(lambda u: cp.sum(1e-14 * cp.square(u) + cp.square(cp.pos(u)))).split
    curvatures = sorted(term.family.coefficients[0, -1, 2] for term in pieces.terms)
    assert curvatures == pytest.approx([2e-14, 2], rel=1e-12, abs=0)


def test_small_cost_beside_a_large_one():
    b = cp.Variable()
    pieces = separated(lambda u: 1e14 * cp.norm1(u + b) + b).split
    assert pieces.linear_y.tolist() == [1.0]


def test_kinks_beside_a_far_bound():
    """Huber's knots at ±1 are two, with a bound at −1e13 too."""
    pieces = separated(lambda u: cp.sum(cp.huber(u, 1.0)), lambda u: [u >= -1e13]).split
    assert pieces.terms[0].family.knots[0] == pytest.approx([-1.0, 1.0])


def test_knots_close_together():
    pieces = separated(lambda u: cp.sum(cp.maximum(0, u, 2 * u - 1e-10))).split
    assert pieces.terms[0].family.knots[0] == pytest.approx([0.0, 1e-10])
    squares = separated(lambda u: cp.sum(cp.maximum(cp.square(u), 1e-11 * u, 1e9 * (u - 2)))).split
    assert squares.terms[0].family.knots[0, :2] == pytest.approx([0.0, 1e-11], abs=1e-20)


@pytest.mark.one_row
@pytest.mark.parametrize("tiny", [1e-8, -1e-12, 1e-16, 1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("loss", [ko.losses.huber, ko.losses.squared_error, ko.losses.absolute_error])
def test_one_target_may_be_tiny(loss, tiny):
    """What rounding leaves of a target is 0 beside the others, and keeps none of our solvers away."""
    values = []
    for last in (tiny, 0.0):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        y, f = np.array([1.0, 2.0, -0.5, 0.3, last]), theta(np.arange(10.0).reshape(5, 2) / 4)
        problem = ko.Problem(cp.Minimize(cp.sum(loss(y, f)) + 0.1 * ko.sum_squares(theta)))
        values.append(problem.solve(solver="AUGMENTED_LAGRANGIAN"))
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# Many problems of one form


def labelled(seed):
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(seed).normal(size=N)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    bound = theta(X[:3]) + b <= 0.3
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + ko.sum_squares(theta)), [bound]), bound


def test_answers_arrive_at_each_problem():
    """At the user's own variables and constraints, whatever was solved before in the same form."""
    values = []
    for seed in range(4):
        problem, bound = labelled(seed)
        values.append(problem.solve())
        assert problem.status == "optimal" and problem.certificate.closes(1e-6)
        assert bound.dual_value.shape == (3,) and np.all(bound.dual_value >= 0)
        assert float(np.max(bound.violation())) <= 1e-6
    assert len(set(values)) == 4


@pytest.mark.slow
def test_threads_do_not_mix_their_numbers():
    expected, found = [labelled(seed)[0].solve() for seed in range(12)], [0.0] * 12
    problems = [labelled(seed)[0] for seed in range(12)]

    def run(start):
        for i in range(start, 12, 4):
            found[i] = problems[i].solve()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == pytest.approx(expected, rel=1e-9)


def test_problems_that_were_solved_are_let_go():
    problem, _ = labelled(0)
    problem.solve()
    gone = weakref.ref(problem._outer().pieces)
    del problem
    gc.collect()
    assert gone() is None


def test_what_is_taken_over_is_what_would_be_found():
    """The same numbers as from nothing, whatever changes."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    lam, y, w = cp.Parameter(nonneg=True, value=1.0), cp.Parameter(N, value=T), cp.Parameter(N, nonneg=True)
    w.value = np.append(np.ones(N - 2), [0.0, 0.0])  # weights of 0 leave the domain
    loss = w @ ko.losses.absolute_error(T, theta(X) + b) + cp.sum(ko.losses.absolute_error(y, theta(X)))
    form = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [b <= 1]).canonical_form()
    last, rng = outer_of(form), np.random.default_rng(1)
    for change, kept in (
        (lambda: setattr(lam, "value", 3.0), True),
        (lambda: setattr(lam, "value", 0.0), True),
        (lambda: setattr(lam, "value", 2.0), True),
        (lambda: setattr(y, "value", 2 * T), False),
        (lambda: setattr(w, "value", np.ones(N)), False),
        (lambda: setattr(lam, "value", 5.0), True),
    ):
        change()
        found, fresh = outer_of(form, last), outer_of(form)
        assert (found.common is last.common) == kept
        for name in ("c", "s0", "below", "equal"):
            np.testing.assert_array_equal(getattr(found.pieces, name), getattr(fresh.pieces, name))
        assert (found.pieces.S != fresh.pieces.S).nnz == 0
        for one, other in zip(found.pieces.groups, fresh.pieces.groups, strict=True):
            np.testing.assert_array_equal(one.rows, other.rows)
            np.testing.assert_array_equal(one.costs, other.costs)
        s = rng.normal(size=found.split.E.shape[0])
        assert found.split.value(s) == fresh.split.value(s)
        for name in ("slope", "curvature", "limit"):
            np.testing.assert_array_equal(getattr(found.lengths, name), getattr(fresh.lengths, name))
        assert found.units == fresh.units and found.data_unit == fresh.data_unit
        last = found


@pytest.mark.parametrize(
    "within",
    [
        lambda f, r: cp.abs(f - T) <= r, lambda f, r: 2 * cp.pos(T - f) + f - 1 <= r,
        lambda f, r: cp.maximum(0.5 * f, -f, f - T) <= 2 * r - 0.1,
    ],
)  # fmt: skip
def test_constraints_of_one_function_beside_a_variable(within):
    """They are taken apart into lines, and their multipliers are put together."""
    duals, values = [], []
    for solver in ("INTERIOR_POINT", "CLARABEL"):
        theta, r = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        f = theta(X)
        one = within(f, r)
        objective = cp.sum_squares(f - T) + ko.sum_squares(theta) + 3 * r + cp.square(r)
        problem = ko.Problem(cp.Minimize(objective), [one])
        values.append(problem.solve(solver=solver, tol=1e-8))
        assert problem.status == "optimal" and problem.verify().passed
        duals.append(one.dual_value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert duals[0] == pytest.approx(duals[1], rel=1e-3, abs=1e-4)


def test_variables_that_bound_a_function_each():
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(80)
    f = theta(np.linspace(0, 3, 80)[:, None])
    problem = ko.Problem(cp.Minimize(cp.sum(z) + ko.sum_squares(theta)), [cp.abs(f - np.arange(80) % 3) <= z])
    assert outer_of(problem.canonical_form()).split.F.shape[1] == 80
    plain = ko.Problem(cp.Minimize(cp.norm1(f - np.arange(80) % 3) + ko.sum_squares(theta)))
    assert problem.solve() == pytest.approx(plain.solve(), rel=1e-6) and problem.verify().passed


MANY = 240
FAR, SIGNS = np.random.default_rng(1).normal(size=(MANY, 3)), np.where(np.arange(MANY) % 3, 1.0, -1.0)
OF_MANY = {
    "the worst group": lambda f: (
        MANY * cp.max(cp.hstack([cp.sum(cp.pos(1 - cp.multiply(SIGNS, f)[k::4])) / 60 for k in range(4)])), []
    ),
    "a budget": lambda f: (0.0, [cp.sum(cp.pos(1 - cp.multiply(SIGNS, f))) <= 0.5 * MANY]),
    "two budgets": lambda f: (
        0.0, [cp.norm1(f - SIGNS) <= 0.8 * MANY, cp.sum(cp.maximum(f, -0.5 * f, 0.2)) + cp.sum(f[:9]) <= 0.5 * MANY]
    ),
    "conditional value at risk": lambda f: (
        cp.sum_squares(f - SIGNS),
        [cp.sum_largest(cp.abs(f - SIGNS), 24) / 24 <= 1.3, cp.sum_largest(f, 60) <= 30],
    ),
    "a mean beside a variable": lambda f: (z := cp.Variable(), [cp.sum(cp.pos(cp.abs(f - SIGNS) - 0.1)) <= MANY * z]),
}  # fmt: skip


@pytest.mark.one_row
@pytest.mark.parametrize("name", OF_MANY)
def test_many_losses_within_constraints(name):
    """Each has a variable that bounds it; values and multipliers are those of a cone solver."""
    values, duals = [], []
    for solver in (None, "CLARABEL"):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        cost, constraints = OF_MANY[name](theta(FAR) + cp.Variable())
        problem = ko.Problem(cp.Minimize(cost + 0.5 * ko.sum_squares(theta)), constraints)
        values.append(problem.solve(solver=solver, tol=1e-7))
        assert problem.status == "optimal" and problem.verify().passed
        duals.append([one.dual_value for one in constraints])
        assert problem.solver_stats.solver_name == (solver or "INTERIOR_POINT")
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    for own, others in zip(*duals, strict=True):
        assert own == pytest.approx(others, rel=1e-3, abs=1e-4)


def test_what_stands_beside_other_functions_is_no_sum():
    """A row that holds a logistic loss, too; and few losses, which the method of multipliers takes."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(FAR)
    hinge = cp.sum(cp.pos(1 - cp.multiply(SIGNS, f)))
    for row in (hinge + cp.logistic(f[0]) <= 100, cp.sum(cp.pos(1 - f[:50])) <= 20):
        problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [row])
        assert outer_of(problem.canonical_form()).split is None


FEW = 40
SHARES = np.random.default_rng(2).multinomial(FEW, np.full(FEW, 1 / FEW), size=5) / FEW
PAIRS = np.random.default_rng(3).integers(0, FEW, size=(2, 3 * FEW))
SHARED = {
    "each in several means": lambda f, e: (cp.max(SHARES @ cp.abs(e)), []),
    "in a mean and in sums of largest": lambda f, e: (
        cp.mean(cp.pos(e)) + sum(cp.sum_largest(cp.pos(e), k) / k for k in (3, 10)), []
    ),
    "in a mean and below a bound": lambda f, e: (cp.mean(cp.pos(e)), [cp.sum_largest(cp.pos(e), 5) <= 7]),
    "maxima of maxima of means": lambda f, e: (
        cp.maximum(cp.maximum(*(cp.mean(cp.abs(e)[k::4]) for k in (0, 1))), cp.mean(cp.abs(e)[2::4])), []
    ),
    "the largest of maxima": lambda f, e: (cp.sum_largest(cp.maximum(e, 2 * e - 1, -1), 5), []),
    "the largest with other least values": lambda f, e: (cp.sum_largest(np.arange(FEW) / 9 + cp.abs(e), 5), []),
    "the largest of losses and others": lambda f, e: (cp.sum_largest(cp.hstack([f, cp.abs(e)]), 5), []),
    "the largest of pairs": lambda f, e: (cp.sum_largest(cp.pos(1 - f[PAIRS[0]] + f[PAIRS[1]]), 9) / 9, []),
    "largest ones within others": lambda f, e: (
        sum(cp.pos(cp.sum_largest(f[3 * k : 3 * k + 3], 2) - f[3 * k]) for k in range(9)) + cp.sum_squares(e), []
    ),
    "a maximum within a sum": lambda f, e: (
        cp.sum(cp.huber(e)), [cp.max(f[:9]) + cp.sum(cp.abs(f[9:])) + cp.sum_largest(f[:6], 2) <= 4]
    ),
}  # fmt: skip


@pytest.mark.one_row
@pytest.mark.parametrize("name", SHARED)
def test_losses_that_several_sums_share(name):
    """Few of them, too, as the method of multipliers takes none of these; the proof has the multipliers of all rows."""
    values = []
    for solver in (None, "CLARABEL"):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(FAR[:FEW])
        cost, constraints = SHARED[name](f, f + cp.Variable() - 2 * SIGNS[:FEW])
        problem = ko.Problem(cp.Minimize(cost + 0.05 * ko.sum_squares(theta)), constraints)
        values.append(problem.solve(solver=solver))
        assert solver or (problem.status == "optimal" and problem.verify().passed)
        assert solver or problem.solver_stats.solver_name in {"INTERIOR_POINT", "METHOD_OF_MULTIPLIERS"}
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("M", [1e3, 1e7, 1e9, 1e12])
@pytest.mark.parametrize("bounded", [False, True])
def test_thresholds_far_beyond_the_data(M, bounded):
    """Huber's function of residuals below M is their square: a constant of −M² is no rounding of the value."""
    rng, kernel = np.random.default_rng(1), ko.kernels.Polynomial(degree=2, offset=1.0)
    points, y = rng.normal(size=(6, 1)), rng.normal(size=6)

    def solved(loss):
        theta = ko.Theta(kernel)
        of_theta = (0, [ko.norm(theta) <= 0.5]) if bounded else (0.5 * ko.sum_squares(theta), [])
        problem = ko.Problem(cp.Minimize(loss(theta(points)) + of_theta[0]), of_theta[1])
        problem.solve()
        return problem

    known = solved(lambda f: cp.sum_squares(y - f))
    found = solved(lambda f: cp.sum(ko.losses.huber(y, f, M)))
    assert found.status == "optimal" and found.value == pytest.approx(known.value, rel=1e-9)
    assert found.certificate.relative_gap < 1e-6


@pytest.mark.parametrize("far", [1e8, 1e12])
def test_lines_far_below_others_are_no_rounding(far):
    """What is not proven is not called optimal."""
    rng = np.random.default_rng(0)
    points, y, theta = rng.normal(size=(8, 1)), rng.normal(size=8), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(points)
    losses = cp.maximum(y - f, 2 * (f - y), -far * (y - f) - far**2)
    problem = ko.Problem(cp.Minimize(cp.sum(losses) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    right = problem.value == pytest.approx(6.284252711703633, rel=1e-6)
    assert problem.status == "optimal_inaccurate" or (right and problem.certificate.relative_gap < 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_of_0_beside_equations(seed):
    """What the value is computed from counts to a thousand times the data: 1e-21 · 1 in an equation is rounding."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 5, (8, 1))
    y, theta, b = np.sin(points[:, 0]), ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(points) + b
    objective = cp.sum(cp.pos(cp.abs(y - f) - 2.1)) + 0.2 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [cp.norm1(f) <= 0.0])
    problem.solve()
    assert problem.status == "optimal"
