"""Our own solvers: every applicable one gives the same answer, to what the certificate proves."""

from dataclasses import replace
from time import perf_counter
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler.separable import Lengths
from kernelopt.compiler.terms import Along
from kernelopt.errors import SolverError
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.pieces.elementary import NegativeLog
from kernelopt.solvers import assemble, engines, first_point, machines
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError

OWN = ("LEAST_SQUARES", "NEWTON", "AUGMENTED_LAGRANGIAN", "INTERIOR_POINT")
KINKED = {
    "hinge": (lambda y, f: losses.hinge(np.sign(y), f)),
    "absolute": losses.absolute_error,
    "pinball": (lambda y, f: losses.pinball(y, f, 0.3)),
    "insensitive": (lambda y, f: losses.epsilon_insensitive(y, f, 0.1)),
    "largest": (lambda y, f: cp.maximum(0.2 * (f - y), y - f, 2 * (f - y) - 1)),
}
SMOOTH = {
    "squares": losses.squared_error,
    "squared hinge": (lambda y, f: losses.squared_hinge(np.sign(y), f)),
    "huber": (lambda y, f: losses.huber(y, f, 0.4)),
    "logistic": (lambda y, f: losses.log_loss(np.sign(y), f)),
    "poisson": (lambda y, f: losses.poisson(np.abs(y).round(), f)),
    "logarithm": (lambda y, f: f - cp.log(f + 4)),
    "entropy": (lambda y, f: -cp.entr(f + 4)),
    "power": (lambda y, f: cp.power(cp.abs(f - y), 1.5)),
    "cube": (lambda y, f: cp.power(cp.pos(1 - cp.multiply(np.sign(y), f)), 3)),
    "root": (lambda y, f: f - cp.sqrt(f + 4)),
    "reciprocal": (lambda y, f: cp.inv_pos(f + 4) + 0.1 * f),
}


def data(N, seed=0, columns=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, columns))
    return X, np.sin(2 * X[:, 0]) + X[:, -1] ** 2 - 1 + 0.3 * rng.standard_t(3, size=N)


def stated(name, penalty="squared", *, intercept=True, N=70, seed=0, strength=0.1, extra=lambda f, theta, b: []):
    X, y = data(N, seed)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name="b")
    f = theta(X) + b if intercept else theta(X)
    objective, constraints = cp.sum((KINKED | SMOOTH)[name](y, f)), extra(f, theta, b)
    if penalty == "squared":
        objective += strength * ko.sum_squares(theta)
    elif penalty == "unsquared":
        objective += 2 * ko.norm(theta)
    else:
        constraints.append(ko.norm(theta) <= 2)
    return ko.Problem(cp.Minimize(objective), constraints), theta, b


def agree(problem, reference, names):
    """Assert that each solver attains the reference's optimum, and proves it."""
    reference.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    for name in names:
        problem.solve(solver=name)
        found = problem.certificate
        # Where θ = 0 is all but optimal, a gap of 1e-8 of the objective's terms may be more than tol of what θ gains.
        assert problem.status == "optimal" or found.absolute_gap <= 1e-8 * found.terms, (name, found)
        assert problem.solver_stats.solver_name == name
        # Clarabel misses an optimum at θ = 0 in its ninth digit; P₀ is exact there.
        known = min(reference.value, np.inf if found.at_zero is None else found.at_zero)
        slack = 1e-6 * abs((found.at_zero or 0.0) - known) + 1e-9
        # Where θ = 0 is all but optimal, it is the absolute gap that is proved.
        near = max(slack, found.absolute_gap + 1e-9)
        assert abs(problem.value - known) <= near, (name, problem.value, known)
        assert found.lower - slack <= known <= found.upper + slack


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
@pytest.mark.parametrize("name", [*KINKED, *SMOOTH])
def test_all_applicable_solvers_agree(name, penalty):
    problem, _, _ = stated(name, penalty)
    applicable = [n for n in OWN if problem.solvers()[n] is None]
    kinked = name in KINKED
    excluded = {"NEWTON"} if kinked else set()
    excluded |= {"LEAST_SQUARES"} if name != "squares" else set()
    assert applicable == [n for n in OWN if n not in excluded]
    agree(problem, stated(name, penalty)[0], applicable)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_drawn_problems(seed):
    rng = np.random.default_rng(seed)
    name = str(rng.choice([*KINKED, *SMOOTH]))
    penalty = str(rng.choice(["squared", "unsquared", "ball"]))
    strength, intercept, n = 10 ** rng.uniform(-3, 1), bool(rng.random() < 0.5), int(rng.integers(3, 90))
    X, y = data(n, seed)
    X = X[rng.integers(n, size=n)] if rng.random() < 0.5 else X  # repeated rows
    grid = rng.normal(size=(4, 2))

    def build():
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        f = theta(X) + b if intercept else theta(X)
        weights = 1.0 + np.arange(n) % 3
        objective = weights @ (KINKED | SMOOTH)[name](y, f)
        constraints = [cp.diff(theta(grid)) >= -0.3] if seed % 3 == 0 else []
        constraints += [theta(grid) <= 1] if seed % 4 == 1 else []
        if penalty == "ball":
            constraints.append(ko.norm(theta) <= 2)
        else:
            objective += strength * (ko.sum_squares if penalty == "squared" else ko.norm)(theta)
        return ko.Problem(cp.Minimize(objective), constraints)

    problem = build()
    agree(problem, build(), [n for n in OWN if problem.solvers()[n] is None])


CONSTRAINTS = {
    "margin": lambda f, theta, b: [f <= 1.5, f >= -2],
    "equality": lambda f, theta, b: [f[0] == f[1], cp.sum(f) == 1],
    "monotone": lambda f, theta, b: [cp.diff(theta(np.c_[np.linspace(-2, 2, 30), np.zeros(30)])) >= 0],
    "on variables": lambda f, theta, b: [b <= 0.1, b + theta(np.zeros((1, 2))) >= -0.2],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hinge", "pinball", "squares", "logistic"])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constraints_and_their_multipliers(kind, name):
    problem, _, _ = stated(name, extra=CONSTRAINTS[kind])
    reference, _, _ = stated(name, extra=CONSTRAINTS[kind])
    agree(problem, reference, ["INTERIOR_POINT", "AUGMENTED_LAGRANGIAN"])
    problem.solve(tol=1e-8)
    for ours, theirs in zip(problem.constraints, reference.constraints, strict=True):
        size = max(1.0, float(np.abs(theirs.dual_value).max()))
        assert ours.dual_value == pytest.approx(theirs.dual_value, abs=2e-3 * size)
        assert np.shape(ours.dual_value) == np.shape(theirs.dual_value)


@pytest.mark.slow
def test_the_augmented_lagrangian_takes_many_constraints_of_another_size():
    """Differences of neighbouring points on a fine grid are a hundredth of the predictions."""
    grid = np.c_[np.linspace(-2, 2, 150), np.zeros(150)]
    rising = lambda f, theta, b: [cp.diff(theta(grid)) >= 0]
    problem, theta, _ = stated("absolute", N=300, extra=rising)
    problem.solve(solver="AUGMENTED_LAGRANGIAN", verbose=False)
    assert problem.status == "optimal"
    assert problem.solver_stats.num_iters < 400
    assert np.diff(theta.value(grid)).min() > -1e-6
    reference, _, _ = stated("absolute", N=300, extra=rising)
    assert problem.value == pytest.approx(reference.solve(solver="INTERIOR_POINT"), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1e-9, 1e-6, 1e-3])
def test_right_hand_sides_of_very_different_sizes(shift):
    """Half of the constraints have targets of about 10, the others a right-hand side that is nearly zero."""
    rng = np.random.default_rng(0)
    xi = np.linspace(0.0, 10.0, 40)[:, None]
    seen = rng.gamma(4.0, 1.0, size=(30, 1))
    theta, f0, x = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable(nonneg=True)
    majorant = f0 + theta(xi)
    objective = cp.Minimize(f0 + cp.sum(theta(seen)) / 30 + 0.2 * ko.norm(theta))
    constraints = [majorant >= x - 3 * xi[:, 0] + shift, majorant >= -2 * x + shift]
    problem = ko.Problem(objective, constraints)
    problem.solve(solver="INTERIOR_POINT", tol=1e-7)
    assert problem.status == "optimal"
    least = ko.Problem(objective, [majorant >= x - 3 * xi[:, 0], majorant >= -2 * x]).solve(tol=1e-7)
    assert problem.value == pytest.approx(least + shift, abs=1e-5)  # f0 takes the shift


@pytest.mark.slow
def test_a_hard_margin_by_the_augmented_lagrangian():
    """Constraints alone: multipliers, and so the gap, are 0 where the search begins."""
    X, y = data(120)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable()
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.multiply(np.sign(y), theta(X) + b) >= 1])
    reference = ko.Problem(problem.objective, problem.constraints)
    agree(problem, reference, ["INTERIOR_POINT", "AUGMENTED_LAGRANGIAN"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hinge", "squares", "logistic"])
def test_multipliers_of_bounds_on_the_norm(name):
    """The tightest of several bounds has it, in the units in which it was stated; one that does not bind has none."""
    for bounds in (
        lambda f, theta, b: [ko.norm(theta) <= 1],
        lambda f, theta, b: [2 * ko.norm(theta) <= 2, ko.norm(theta) <= 50, f[:3] <= 0.5],
        lambda f, theta, b: [ko.norm(theta) <= 1e3],
    ):
        problem, reference = (stated(name, extra=bounds)[0] for _ in range(2))
        problem.solve()
        assert problem.solver_stats.solver_name in OWN
        reference.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        for ours, theirs in zip(problem.constraints, reference.constraints, strict=True):
            assert ours.dual_value == pytest.approx(theirs.dual_value, rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_constraints_on_a_function_keep_their_multipliers():
    """|f| ≤ c is two bounds, whose multipliers make that of the constraint."""
    problem, _, _ = stated("squares", extra=lambda f, theta, b: [cp.abs(f) <= 0.5])
    assert problem.solvers()["INTERIOR_POINT"] is None
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal"
    assert problem.constraints[0].dual_value.max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
@pytest.mark.parametrize("intercept", [False, True])
def test_several_classes(intercept, penalty):
    """The Hessian of log-sum-exp couples the outputs."""
    X, y = data(90)
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))

    def build():
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable((1, 3))
        F = theta(X) + np.ones((90, 1)) @ b if intercept else theta(X)
        loss, constraints = (1.0 + np.arange(90) % 2) @ losses.multinomial(classes, F), []
        if penalty == "squared":
            loss += 0.1 * ko.sum_squares(theta)
        elif penalty == "unsquared":
            loss += 2 * ko.norm(theta, "fro")
        else:
            constraints.append(ko.norm(theta, "fro") <= 3)
        return ko.Problem(cp.Minimize(loss), constraints)

    problem = build()
    names = [n for n in OWN if problem.solvers()[n] is None]
    assert names == ["NEWTON", "AUGMENTED_LAGRANGIAN", "INTERIOR_POINT"]
    agree(problem, build(), names)
    problem.solve()
    assert problem.solver_stats.solver_name == "NEWTON"


@pytest.mark.slow
def test_several_classes_beside_constraints():
    X, y = data(60)
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))

    def build():
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3), cp.Variable((1, 3))
        F = theta(X) + np.ones((60, 1)) @ b
        loss = cp.sum(losses.multinomial(classes, F)) + 0.1 * ko.sum_squares(theta)
        return ko.Problem(cp.Minimize(loss), [F[:5] <= 0.5, cp.sum(b) == 1])

    agree(build(), build(), ["AUGMENTED_LAGRANGIAN", "INTERIOR_POINT"])


def test_multipliers_of_predictions():
    problem, theta, _ = stated("squared hinge")
    X, y = data(70)
    problem.solve()
    s = problem.var_dict["b"].value + theta(X).value
    slope = -2 * np.sign(y) * np.maximum(1 - np.sign(y) * s, 0)
    assert theta(X).dual_value == pytest.approx(-slope, abs=1e-5)


@pytest.mark.slow
def test_several_thetas_outputs_and_parametric_variables():
    X, y = data(60)
    beta = cp.Variable(2)
    kernel = ko.kernels.Gaussian(sigma=1.0)

    def build():
        first, second = ko.Theta(kernel), ko.Theta(ko.kernels.Laplacian(sigma=2.0))
        f = first(X) + second(X) + X @ beta
        objective = cp.sum(losses.pinball(y, f, 0.7)) + 0.1 * ko.sum_squares(first) + 0.3 * ko.sum_squares(second)
        return ko.Problem(cp.Minimize(objective + 0.01 * cp.sum_squares(beta)))

    agree(build(), build(), ["INTERIOR_POINT", "AUGMENTED_LAGRANGIAN"])

    def quantiles():
        theta, b = ko.Theta(kernel, outputs=3), cp.Variable(3)
        F = theta(X) + np.ones((60, 1)) @ cp.reshape(b, (1, 3), order="F")
        loss = cp.sum([cp.sum(losses.pinball(y, F[:, k], tau)) for k, tau in enumerate((0.2, 0.5, 0.8))])
        crossing = [F[:, 1] >= F[:, 0], F[:, 2] >= F[:, 1]]
        return ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), crossing)

    agree(quantiles(), quantiles(), ["INTERIOR_POINT"])


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("name", ["hinge", "squares", "pinball", "logistic"])
def test_units(name, scale):
    """Objective × scale, and kernel × 1/scale² with the penalty to match."""
    X, y = data(50)
    values = []
    for s in (1.0, scale):
        theta = ko.Theta(s**-2 * ko.kernels.Gaussian(sigma=1.0))
        loss = cp.sum((KINKED | SMOOTH)[name](y, theta(X)))
        problem = ko.Problem(cp.Minimize(s * (loss + 0.1 * s**-2 * ko.sum_squares(theta))))
        problem.solve()
        assert problem.status == "optimal"
        assert problem.solver_stats.solver_name in OWN
        values.append(problem.value / s)
    assert values[1] == pytest.approx(values[0], rel=1e-6)


@pytest.mark.later
@pytest.mark.parametrize("name", OWN)
def test_degenerate_problems(name):
    """One row; rank one; θ = 0 optimal; nothing to fit."""
    kernel = ko.kernels.Gaussian(sigma=1.0)
    for X, y in [
        (np.zeros((1, 1)), np.ones(1)),
        (np.zeros((6, 1)), np.arange(6.0)),
        (np.arange(4.0)[:, None], np.zeros(4)),
    ]:
        theta, b = ko.Theta(kernel), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + ko.sum_squares(theta)))
        problem.solve(solver=name, abs_tol=1e-12)  # the optimum may be 0, of which no share can be asked for
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(np.sum((y - y.mean()) ** 2) if len(set(X.ravel())) == 1 else 0, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("lam", [0.03, 0.06])
def test_a_norm_that_is_not_squared_to_eight_digits(lam):
    """Newton's method alone: from a neighbour its gap was small enough at once, and ‖θ‖ stayed what it had been."""
    rng, kernel = np.random.default_rng(0), ko.kernels.Gaussian(sigma=1.2)
    X, Z = rng.normal(size=(2100, 3)), rng.normal(size=(60, 3)) / 2 + 0.8
    theta = ko.Theta(kernel)
    misfit = cp.log_sum_exp(theta(X)) - cp.sum(ko.average(Z, kernel) @ theta)
    problem = ko.Problem(cp.Minimize(misfit + lam * ko.norm(theta)))
    problem.solve(tol=1e-8)
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-8
    attempts = [attempt.solver for attempt in problem.solver_stats.attempts]
    assert set(attempts) == {"NEWTON"} and len(attempts) <= 5  # each gives the factor a tolerance that its gap reaches


def test_theta_vanishes_under_a_heavy_norm():
    X, y = data(40)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(np.sign(y), theta(X))) + 100 * ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(40 * np.log(2), rel=1e-6)


def test_a_hard_margin_that_cannot_hold():
    """Equal rows with opposite labels: a Farkas vector."""
    X, labels = np.array([[0.0], [0.0], [1.0]]), np.array([1.0, -1.0, 1.0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [ko.margin(labels, theta(X)) >= 1])
    problem.solve()
    assert problem.status == "infeasible"


@pytest.mark.slow
def test_what_a_solver_lacks_is_named():
    X, y = data(20)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    coupled = ko.Problem(cp.Minimize(cp.norm(y - theta(X)) + ko.sum_squares(theta)))
    assert "split" in coupled.solvers()["INTERIOR_POINT"]
    with pytest.raises(SolverError, match=r"INTERIOR_POINT needs .* split .*: METHOD_OF_MULTIPLIERS, CLARABEL"):
        coupled.solve(solver="INTERIOR_POINT")
    assert coupled.solve() > 0
    free = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))))
    assert "norm" in free.solvers()["LEAST_SQUARES"]
    integer = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - cp.Variable(integer=True)) + ko.sum_squares(theta)))
    assert "integer" in integer.solvers()["NEWTON"]
    with pytest.raises(SolverError, match="integer"):
        integer.solve(solver="NEWTON")


@pytest.mark.later
@pytest.mark.parametrize("solver", [name for name in OWN if name != "LEAST_SQUARES"])
def test_a_limit_leaves_the_best_point(solver):
    problem, _, _ = stated("logistic", N=300)
    problem.solve(solver=solver, time_limit=1e-9, tol=1e-12)
    assert problem.status == "user_limit"
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper


@pytest.mark.later
def test_iterations_are_printed(capsys):
    problem, _, _ = stated("hinge")
    problem.solve(solver="INTERIOR_POINT", verbose=True)
    printed = capsys.readouterr().out
    assert "INTERIOR_POINT" in printed
    assert "gap" in printed
    assert len(printed.splitlines()) >= problem.solver_stats.num_iters
    problem.solve(solver="AUGMENTED_LAGRANGIAN", progress=True)
    assert "AUGMENTED_LAGRANGIAN" in capsys.readouterr().err


def test_interrupted(monkeypatch):
    """Ctrl-C is passed on; the best point stays, as at any limit."""
    from kernelopt.solvers import interior_point  # noqa: PLC0415

    steps = interior_point._Method._step
    count = []

    def interrupted(self):
        count.append(1)
        if len(count) == 5:
            raise KeyboardInterrupt
        return steps(self)

    problem, theta, _ = stated("hinge")
    monkeypatch.setattr(interior_point._Method, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "user_limit"
    assert theta.value is not None
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper
    monkeypatch.setattr(interior_point._Method, "_step", steps)
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal"


@pytest.mark.later
def test_warm_starts(monkeypatch):
    monkeypatch.setattr(machines, "is_installed", lambda: False)  # libsvm starts close to the optimum, too
    X, y = data(150)
    theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Parameter(nonneg=True, value=1.0)
    loss = cp.sum(losses.hinge(np.sign(y), theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    for solver in ("AUGMENTED_LAGRANGIAN", "INTERIOR_POINT"):
        lam.value = 1.0
        problem.solve(solver=solver, warm_start=False)
        cold = problem.solver_stats.num_iters
        lam.value = 0.99
        problem.solve(solver=solver)
        assert problem.status == "optimal"
        assert problem.solver_stats.num_iters < cold


@pytest.mark.slow
def test_a_bound_of_zero():
    """A parameter may take ‖θ‖ ≤ R there: θ = 0, by another solver."""
    X, y = data(20)
    theta, R = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))), [ko.norm(theta) <= R])
    assert abs(problem.solve() - y @ y) < 1e-6 * (y @ y)
    assert problem.status == "optimal"
    assert theta.value.norm < 1e-6
    with pytest.raises(SolverError, match="needs a positive bound"):
        problem.solve(solver="NEWTON")


@pytest.mark.later
@pytest.mark.parametrize("weight", [1e-10, 1e-4, 1e6])
def test_a_penalty_that_is_all_of_the_objective(weight):
    """Its size is the unit of the objective: λ‖θ‖² with u ≥ 1 has one solution for all λ."""
    values = []
    for strength in (1.0, weight):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        u = theta(np.arange(4.0)[:, None])
        problem = ko.Problem(cp.Minimize(strength * ko.sum_squares(theta)), [u[:3] >= 1, u[3] + b == 1, b <= 0.5])
        values.append(problem.solve() / strength)
        assert problem.status == "optimal"
    assert values[1] == pytest.approx(values[0], rel=1e-6)


@pytest.mark.later
@pytest.mark.parametrize(("objective", "targets", "kernel"), [(1e-92, 1e130, 1e100), (1e-60, 1e100, 1e-50), (1, 1, 1)])
@pytest.mark.parametrize("penalty", ["squared", "ball"])
def test_violations_and_gaps_have_other_units(objective, targets, kernel, penalty):
    """Which iterate of the interior point method is best depends on neither unit."""
    X, y = data(12)
    theta, b = ko.Theta(kernel * ko.kernels.Polynomial(degree=2)), cp.Variable()
    loss = objective * cp.sum(cp.abs(targets * y - theta(X) - b))
    constraints = [theta(X[:3]) <= 0.3 * targets, cp.sum(theta(X[:4])) == 0]
    if penalty == "squared":
        loss = loss + 0.1 * objective * kernel / targets * ko.sum_squares(theta)
    else:
        constraints.append(ko.norm(theta) <= 1.5 * targets / kernel**0.5)
    problem = ko.Problem(cp.Minimize(loss), constraints)
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal"


def reduced(name):
    """A solved problem's reduction, its outer problem, and what the engine returns for it."""
    problem, _, _ = stated(name, N=12)
    problem.solve(solver="INTERIOR_POINT")
    reduction, outer = reduction_of(problem), problem._outer()
    watch = Watch("", 1e-6, 0.0, 1.0)
    shape = assemble.shape_of(reduction.form, outer)
    return reduction, outer, engines._solved(reduction, outer, shape, engines.ENGINES["INTERIOR_POINT"], watch, None)


def test_violations_decide_what_an_answer_is(monkeypatch):
    """A violated point is no point, unless the engine was stopped on its way; where θ = 0 is feasible, it failed."""
    reduction, outer, (point, problem, R) = reduced("hinge")
    monkeypatch.setattr(engines, "_solved", lambda *_: (replace(point, violation=1e3, stopped=None), problem, R))
    with pytest.raises(SolverError, match="before constraints were met"):
        engines.solve(reduction, outer, "INTERIOR_POINT", 1e-6)
    monkeypatch.setattr(engines, "_is_met_at_zero", lambda _: False)
    for stopped, status in (None, "infeasible"), (OutOfTimeError(), "user_limit"):
        violated = replace(point, violation=1e3, stopped=stopped)
        monkeypatch.setattr(engines, "_solved", lambda *_, found=violated: (found, problem, R))
        answer = engines.solve(reduction, outer, "INTERIOR_POINT", 1e-6)
        assert str(answer.status) == status
        assert answer.has_point == (stopped is not None)


def test_the_gap_that_suffices_is_in_units_of_the_objective(monkeypatch):
    watches = []

    def noted(*given):
        watches.append(given[4])
        raise SolverError("Enough seen.")

    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(1e6 * cp.sum(cp.pos(1 - theta(np.eye(3)))) + ko.sum_squares(theta)))
    problem.solve(solver="INTERIOR_POINT")
    outer = problem._outer()
    monkeypatch.setattr(engines, "_solved", noted)
    with pytest.raises(SolverError, match="Enough seen"):
        engines.solve(reduction_of(problem), outer, "INTERIOR_POINT", 1e-6)
    assert outer.form.units[1] > 10
    assert watches[0].floor == pytest.approx(engines.FLOOR * outer.form.units[1], rel=1e-12)


def test_the_multiplier_of_a_bound_is_what_the_penalty_leaves(monkeypatch):
    """R‖θ‖ − slope − curvature·‖θ‖ for ‖θ‖ = 5."""
    monkeypatch.setattr(engines, "_columns", lambda *_: np.arange(2))
    monkeypatch.setattr(engines, "_root_scale", lambda *_: 1.0)
    shape = assemble.Shape(None, lengths=Lengths(np.array([0.5]), np.array([0.1]), np.array([5.0])), odd=0)
    reduction = SimpleNamespace(form=SimpleNamespace(norms=[None]))
    found = engines._of_norms(reduction, None, shape, SimpleNamespace(x=np.array([3.0, 4.0, 9.0])), 2.0)
    assert found == pytest.approx([2.0 * 5 - 0.5 - 0.1 * 5])


def test_the_time_of_a_solve():
    found = engines._stats("NEWTON", perf_counter() - 5.0, Watch("", 1e-6, 0.0, 1.0, systems=3))
    assert found.solve_time == pytest.approx(5.0, abs=0.5) and found.num_iters == 3


@pytest.mark.parametrize(("slope", "curvature"), [(0.5, 0.0), (0.0, 0.5)])
def test_a_penalty_costs_something_for_any_strength(slope, curvature):
    """Only a bound alone may cost nothing from some R on."""
    search = SimpleNamespace(slope=slope, curvature=curvature, limit=2.0, small=1e-9)
    assert engines._NormSearch._least(search, 0.0) == -np.inf
    search.slope = search.curvature = 0.0
    assert engines._NormSearch._least(search, 0.0) == pytest.approx(np.log(1e-9 / 4))


def logarithm(B, rate):
    """½v² − log(rate·s − 3) with s = Bv: s = 0 is outside of the domain."""
    zero, empty, one = np.zeros(1), np.zeros(0), np.ones(1)
    loss = Along(np.arange(1), NegativeLog(), one, np.full(1, rate), np.full(1, -3.0))
    return Structured(
        (DenseMatrix(np.full((1, 1), B)),), sp.csr_array(np.eye(1)), np.zeros((1, 0)), one, zero, empty, zero,
        np.arange(0), empty, empty, empty, empty, (loss,), 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("rate", [1.0, -1.0])
def test_a_first_point_inside_of_the_domain(rate):
    found = first_point.with_origin(logarithm(1.0, rate), Watch("", 1e-6, 1e-12, 1.0))
    assert rate * found.products(found.origin)[0] > 3


def test_no_first_point_inside_of_the_domain():
    """All predictions are 0."""
    with pytest.raises(SolverError, match="Found no θ"):
        first_point.with_origin(logarithm(0.0, 1.0), Watch("", 1e-6, 1e-12, 1.0))


def test_a_deadline_does_not_refuse_a_point_that_is_good_enough(capsys):
    """The table of a verbose solve has one head."""
    zero = np.zeros(1)
    good = Point(zero, zero, zero, zero, 1e-9, 1.0, 0.0, 1.0)
    watch = Watch("NEWTON", 1e-6, 0.0, 1.0, deadline=0.0, verbose=True)
    assert watch(good, 1)
    with pytest.raises(OutOfTimeError):
        watch(replace(good, gap=1.0), 1)
    assert capsys.readouterr().out.count("NEWTON") == 1


def test_a_search_for_a_norm_begins_inside_of_all_domains():
    """θ = 0 lies outside: the first strength needs a point inside, the next ones and a re-solve start from the last."""
    X = np.linspace(0, 3, 12)[:, None]
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Parameter(nonneg=True, value=2.0)
    problem = ko.Problem(cp.Minimize(-cp.sum(cp.log(theta(X) - 1)) + lam * ko.norm(theta)))
    for lam.value in (2.0, 1.0):
        problem.solve(solver="NEWTON")
        assert problem.status == "optimal" and theta.value(X).min() > 1


@pytest.mark.parametrize(("equations", "chosen"), [(10, "AUGMENTED_LAGRANGIAN"), (60, "INTERIOR_POINT")])
def test_many_equations_are_for_the_interior_point(equations, chosen):
    points = np.random.default_rng(0).normal(size=(500, 3))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    f, y = theta(points), np.sin(points[:, 0])
    problem = ko.Problem(cp.Minimize(cp.norm1(f - y) + ko.sum_squares(theta)), [f[:equations] == 1.1 * y[:equations]])
    problem.solve()
    assert problem.status == "optimal" and problem.solver_stats.solver_name == chosen


@pytest.mark.slow
def test_equations_that_the_span_of_a_factor_does_not_meet_end_the_interior_point_early():
    """Three columns can't meet twelve equations: full steps show that soon."""
    points = np.random.default_rng(0).normal(size=(40, 3))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(points)
    problem = ko.Problem(cp.Minimize(cp.norm1(f) + ko.sum_squares(theta)), [f[:12] == 1.0])
    problem.solve(solver="INTERIOR_POINT", max_rank=3)
    assert problem.status != "optimal" and problem.solver_stats.num_iters <= 12


@pytest.mark.later
def test_a_chain_of_constraints_goes_to_the_interior_point():
    """The augmented Lagrangian ends before 449 of them are met, which says nothing: θ = 0 meets them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(450, 2))
    y, order = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=450), np.argsort(X[:, 0])
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable()
    f = theta(X) + b
    rising = f[order[1:]] >= f[order[:-1]]
    problem = ko.Problem(cp.Minimize(cp.norm1(y - f) + 0.5 * ko.sum_squares(theta)), [rising])
    problem.solve()
    assert problem.status == "optimal" and {a.solver for a in problem.solver_stats.attempts} == {"INTERIOR_POINT"}


SLACKS = {
    "a shift of each row": lambda f, z: (cp.sum_squares(TARGETS - f - z) + 2 * cp.norm1(z), []),
    "a copy of each prediction": lambda f, z: (cp.sum(cp.huber(TARGETS - z)) + cp.sum_squares(f - z), [z >= -1]),
}
ROWS = np.random.default_rng(0).normal(size=(120, 3))
TARGETS = np.sin(2 * ROWS[:, 0]) + 0.3 * np.random.default_rng(1).standard_t(2, size=120)


@pytest.mark.parametrize("statement", SLACKS.values(), ids=SLACKS)
def test_a_variable_for_each_row(statement):
    """The interior point eliminates them by a sparse factor; the augmented Lagrangian finds no end."""

    def problem(f, square):
        objective, constraints = statement(f + cp.Variable(), cp.Variable(120))
        return cp.Minimize(objective + 0.5 * square), constraints

    theta, w = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable(120)
    ours = ko.Problem(*problem(theta(ROWS), ko.sum_squares(theta)))
    ours.solve()
    B = np.linalg.cholesky(ko.kernels.Gaussian(sigma=0.7)(ROWS) + 1e-12 * np.eye(120))
    expected = cp.Problem(*problem(B @ w, cp.sum_squares(w))).solve(solver="CLARABEL")
    assert ours.status == "optimal" and ours.value == pytest.approx(expected, rel=1e-6)
    assert [a.solver for a in ours.solver_stats.attempts] == ["INTERIOR_POINT"]
