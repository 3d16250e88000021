"""Bounds found from a solver's multipliers on pieces: close to the optimum, and never above it."""

import warnings
from functools import cache

import by_cvxpy
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.certificate import rooms
from kernelopt.certificate.gram import CHEAP, FROM_FACTOR, STREAMED
from kernelopt.certificate.on_pieces import lower_bound
from kernelopt.compiler.reader import read
from kernelopt.compiler.representer import Reduction
from kernelopt.factorization import Settings, factorize
from kernelopt.factorization.whole import whole

N = 16
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 1]), X[:, 0] * X[:, 1]]) + 0.3 * RNG.normal(size=(N, 3))
y = Y[:, 0]
SIGNS, COUNTS, LABELS, GROUPS = np.where(y > 0, 1.0, -1.0), np.round(np.abs(3 * y)), Y.argmax(axis=1), np.arange(N) % 3
KERNEL = ko.kernels.Gaussian(sigma=1.0)
L, squares = ko.losses, ko.sum_squares


def of_one(loss, penalty=lambda theta: 0.3 * squares(theta), intercept=True):
    """A statement in f = θ(X) + b: a loss, which may come with constraints, and a penalty."""

    def stated(scale=1.0):
        theta, b = ko.Theta(KERNEL), cp.Variable() if intercept else 0.0
        found = loss(theta(X) + b)
        value, constraints = found if isinstance(found, tuple) else (found, [])
        return ko.Problem(cp.Minimize(scale * (value + penalty(theta))), constraints)

    return stated


def of_three(loss, penalty=lambda theta: 0.3 * squares(theta), intercept=True):
    """A statement in F = Θ(X) + b with three columns."""

    def stated(scale=1.0):
        theta, b = ko.Theta(KERNEL, outputs=3), cp.Variable(3) if intercept else np.zeros(3)
        found = loss(theta(X) + b[None, :])
        value, constraints = found if isinstance(found, tuple) else (found, [])
        return ko.Problem(cp.Minimize(scale * (value + penalty(theta))), constraints)

    return stated


def several(scale=1.0):
    first, second, b = ko.Theta(KERNEL), ko.Theta(ko.kernels.Linear()), cp.Variable()
    loss = cp.sum(cp.abs(y - first(X) - second(X) - b))
    return ko.Problem(cp.Minimize(scale * (loss + 0.3 * squares(first) + 0.2 * ko.norm(second))))


def budget(scale=1.0):
    first, second = ko.Theta(KERNEL), ko.Theta(ko.kernels.Linear())
    loss = cp.sum_squares(y - first(X) - second(X))
    return ko.Problem(cp.Minimize(scale * loss), [ko.norm(first) + ko.norm(second) <= 0.8])


def value_at_risk(scale=1.0):
    """As Rockafellar and Uryasev state it, with the quantile as a variable."""
    theta, b, s = ko.Theta(KERNEL), cp.Variable(), cp.Variable()
    beyond = cp.sum(cp.pos(cp.abs(y - theta(X) - b) - s)) / (0.2 * N)
    return ko.Problem(cp.Minimize(scale * (s + beyond + 1e-2 * squares(theta))))


def dependent(scale=1.0):
    """Columns that add up to each other."""
    theta, b = ko.Theta(KERNEL), cp.Variable(4)
    columns = np.stack([np.ones(N), *(np.equal(GROUPS, k) for k in range(3))], axis=1)
    return ko.Problem(cp.Minimize(scale * (cp.sum(cp.abs(y - theta(X) - columns @ b)) + 0.3 * squares(theta))))


def _largest_of_groups(f):
    losses = L.log_loss(SIGNS, f)
    return cp.maximum(*[cp.sum(losses[k == GROUPS]) for k in range(3)])


def _quantiles(F):
    loss = sum(cp.sum(L.pinball(y, F[:, k], share)) for k, share in enumerate((0.1, 0.5, 0.9)))
    return loss, [F[:, 0] <= F[:, 1], F[:, 1] <= F[:, 2]]


SHORT = lambda theta: 0.2 * ko.norm(theta)
STATED = {
    "row norms": of_three(lambda F: cp.sum(cp.norm(Y - F, 2, axis=1)), intercept=False),
    "row norms, intercepts": of_three(lambda F: cp.sum(cp.norm(Y - F, 2, axis=1))),
    "Huber of row norms": of_three(lambda F: cp.sum(cp.huber(cp.norm(Y - F, 2, axis=1), 0.3))),
    "value at risk of hinge": of_one(lambda f: cp.sum_largest(L.hinge(SIGNS, f), 4)),
    "value at risk": value_at_risk,
    "worst group": of_one(_largest_of_groups, lambda theta: 0.1 * squares(theta)),
    "entropic risk": of_one(lambda f: cp.log_sum_exp(cp.abs(y - f)), lambda theta: 0.05 * squares(theta)),
    "largest error": of_one(lambda f: cp.max(cp.abs(y - f)), lambda theta: 0.01 * squares(theta)),
    "length of residuals": of_one(lambda f: cp.norm(y - f), lambda theta: 0.1 * squares(theta)),
    "length and norm": of_one(lambda f: cp.norm(y - f), SHORT),
    "Poisson and norm": of_one(lambda f: cp.sum(L.poisson(COUNTS, f)), lambda theta: 0.7 * ko.norm(theta), False),
    "least norm": of_one(lambda f: (0.0, [cp.norm(y - f) <= 1]), ko.norm, False),
    "nuclear norm": of_three(lambda F: cp.normNuc(Y - F), lambda theta: 0.1 * squares(theta)),
    "several θ": several,
    "budget of norms": budget,
    "bounded norm": of_one(lambda f: cp.sum_squares(y - f), lambda theta: 0.3 * cp.huber(ko.norm(theta), 0.1)),
    "simplex rows": of_three(lambda F: (cp.sum_squares(Y - F), [F >= 0, cp.sum(F, axis=1) == 1])),
    "rows in balls": of_three(lambda F: (cp.sum_squares(Y - F), [cp.norm(F, 2, axis=1) <= 0.7])),
    "quantiles": of_three(_quantiles),
    "isotonic": of_one(lambda f: (cp.sum_squares(y - f), [cp.diff(f[np.argsort(X[:, 0])]) >= 0])),
    "constraints": of_one(lambda f: (cp.sum(cp.abs(y - f)), [f >= -0.5, cp.sum(f[:5]) == 1, f[0] + f[1] == 0.5])),
    "second-order cone": of_one(lambda f: (cp.sum_squares(y - f), [cp.SOC(f[0] + 1, f[1:4])])),
    "Poisson": of_one(lambda f: cp.sum(L.poisson(COUNTS, f))),
    "logistic": of_one(lambda f: cp.sum(L.log_loss(SIGNS, f))),
    "hinge": of_one(lambda f: cp.sum(L.hinge(SIGNS, f))),
    "powers": of_one(lambda f: cp.sum(cp.power(cp.abs(y - f), 1.5))),
    "3-norm": of_one(lambda f: cp.pnorm(y - f, 3), lambda theta: 0.05 * squares(theta)),
    "divergence": of_one(lambda f: cp.sum(cp.kl_div(np.abs(y) + 0.1, f + 5))),
    "multinomial": of_three(lambda F: cp.sum(L.multinomial(LABELS, F))),
    "Crammer-Singer": of_three(lambda F: cp.sum(L.crammer_singer(LABELS, F))),
    "dependent columns": dependent,
    "a constant": of_one(lambda f: cp.sum(L.hinge(SIGNS, f)) + 1e3),
}


def reduced(problem, factor=lambda rows: factorize("cholesky", rows, Settings(1e-13, None))):
    form = problem.canonical_form()
    return Reduction(form, {link.theta: factor(link.rows) for link in form.predictions}), read(form.bare)


def solved(reduction, P):
    """The optimum and a solver's multipliers, with one norm of each θ."""
    thetas = []
    for link in reduction.form.predictions:
        eigenvalues, V = np.linalg.eigh(link.rows.gram())
        B = (V * np.sqrt(np.maximum(eigenvalues, 0)))[link.take]
        [norm] = reduction.form.norms_of(link.theta).values()
        columns = P.columns[link.u.id].reshape(-1, link.theta.outputs or 1, order="F")
        thetas.append((columns, B, int(P.columns[norm.t.id][0])))
    return by_cvxpy.multipliers(P, thetas)


@cache
def case(name, scale=1.0):
    reduction, P = reduced(STATED[name](scale))
    return reduction, P, *solved(reduction, P)


@pytest.mark.later
@pytest.mark.parametrize("noise", [0.0, 1e-8])
@pytest.mark.parametrize("name", STATED)
def test_bounds_are_close_and_never_above(name, noise):
    reduction, P, optimum, a = case(name)
    off = noise * (np.abs(a).max() + np.abs(a)) * np.random.default_rng(1).normal(size=len(a))
    found = lower_bound(reduction, P, None, a + off, STREAMED, False)
    assert found.missing == ""
    assert optimum - 1e-6 * abs(optimum) <= found.value <= optimum + 1e-9 * abs(optimum)
    assert 0 <= found.rounding <= 1e-9 * found.terms
    for link, m, gram in zip(reduction.form.predictions, found.multipliers, found.grams, strict=True):
        assert m.stack.shape == (len(link.rows), sum(m.widths)) and gram.value.shape == 2 * (sum(m.widths),)
        assert np.allclose(gram.value, m.stack.T @ link.rows.gram() @ m.stack, rtol=1e-8)


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("name", ["logistic", "hinge", "row norms, intercepts", "length and norm"])
def test_units_of_the_objective(name, scale):
    """The multipliers are those of the objective in its own unit, times the scale."""
    _, _, optimum, a = case(name)
    found = lower_bound(*reduced(STATED[name](scale)), None, scale * a, STREAMED, False)
    assert found.value == pytest.approx(scale * optimum, rel=1e-6) and found.value <= scale * optimum * (1 + 1e-9)


@pytest.mark.parametrize(
    "name", ["row norms", "value at risk of hinge", "constraints", "Poisson and norm", "several θ"]
)
def test_any_multipliers_give_a_valid_bound(name):
    reduction, P, optimum, a = case(name)
    rng, finite = np.random.default_rng(2), 0
    for size in (1e-4, 1e-2, 1.0, 1e3, 1e200):
        for start in (a, 0 * a):
            found = lower_bound(reduction, P, None, start + size * rng.normal(size=len(a)), STREAMED, False)
            assert found.value <= optimum + 1e-9 * abs(optimum)
            assert bool(found.missing) == (found.value == -np.inf)
            finite += np.isfinite(found.value)
    assert finite
    for odd in (np.full(len(a), np.nan), np.full(len(a), np.inf), a[1:], np.append(a, 0.0)):
        found = lower_bound(reduction, P, None, odd, STREAMED, False)
        assert found.value == -np.inf and "not finite, or not those" in found.missing


@pytest.mark.slow
def test_multipliers_of_t_are_not_needed():
    for name in ("hinge", "bounded norm", "least norm"):
        reduction, P, optimum, a = case(name)
        [t] = (int(P.columns[norm.t.id][0]) for norm in reduction.form.norms)
        alone = P.by_columns[:, [t]].nonzero()[0]
        a = np.where(np.isin(np.arange(len(a)), alone[np.diff(P.S.indptr)[alone] == 1]), 0.0, a)
        found = lower_bound(reduction, P, None, a, STREAMED, False)
        assert found.value == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("factor", ["whole", "coarse"])
def test_other_factors(factor):
    """‖Aᵀν‖ by the kernel is longer than by a coarse factor: it is shortened in more than one pass."""
    make = {
        "whole": lambda rows: whole(rows, None),
        "coarse": lambda rows: factorize("cholesky", rows, Settings(0.3, None)),
    }
    reduction, P, optimum, a = case("length and norm")
    [factor] = (make[factor](link.rows) for link in reduction.form.predictions)
    other = Reduction(reduction.form, dict.fromkeys(reduction.factors, factor))
    found = lower_bound(other, P, None, a, STREAMED, False)
    assert optimum * (1 - 1e-6) <= found.value <= optimum * (1 + 1e-9)
    for way in (CHEAP, FROM_FACTOR):
        assert np.isfinite(lower_bound(other, P, None, a, way, way == FROM_FACTOR).value)


# Penalties of Θ, whose norms are others than ‖Θ‖.
M = np.random.default_rng(3).normal(size=(3, 5))
NORMS = {
    "nuclear": lambda theta: (0.5 * ko.norm(theta, "nuc"), []),
    "nuclear, squared": lambda theta: (0.5 * cp.square(ko.norm(theta, "nuc")), []),
    "spectral": lambda theta: (0.5 * ko.norm(theta, 2), []),
    "spectral, bounded": lambda theta: (0.0, [ko.norm(theta, 2) <= 0.7]),
    "of ΘM": lambda theta: (0.5 * ko.norm(theta @ M, "fro"), []),
    "none": lambda theta: (0.0, []),
}


def oracle(reduction, P):
    """The optimum and multipliers for one θ with a norm of any kind."""
    [link], [norm] = reduction.form.predictions, reduction.form.norms
    eigenvalues, V = np.linalg.eigh(link.rows.gram())
    x, s, v = cp.Variable(P.n), cp.Variable(P.S.shape[0]), cp.Variable((len(V), 3))
    objective, restrictions = by_cvxpy._stated(P, x, s)
    equal, B = s == P.S @ x + P.s0, (V * np.sqrt(np.maximum(eigenvalues, 0)))[link.take]
    kinds = {"nuc": cp.normNuc, 2: cp.sigma_max}
    length = kinds.get(norm.kind, lambda W: cp.norm(W, "fro"))(v @ norm.right)
    t, u = P.columns[norm.t.id][0], P.columns[link.u.id]
    problem = cp.Problem(
        cp.Minimize(objective), [*restrictions, equal, x[u] == cp.vec(B @ v, order="F"), length <= x[t]]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an accuracy that it does not reach
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value, -np.array(equal.dual_value)


@pytest.mark.parametrize("name", NORMS)
def test_other_norms(name):
    theta, b = ko.Theta(KERNEL, outputs=3), cp.Variable(3)
    penalty, constraints = NORMS[name](theta)
    loss = cp.sum_squares(Y - theta(X) - b[None, :])
    reduction, P = reduced(ko.Problem(cp.Minimize(loss + penalty), constraints))
    if name == "none":  # Aᵀν vanishes for ν = 0 alone, and θ interpolates
        found = lower_bound(reduction, P, None, 1e-3 * np.ones(len(P.s0)), STREAMED, False)
        assert -1e-12 <= found.value <= 0
        return
    optimum, a = oracle(reduction, P)
    found = lower_bound(reduction, P, None, a, STREAMED, False)
    assert optimum * (1 - 1e-6) <= found.value <= optimum * (1 + 1e-9)


def test_distances_from_a_function():
    """⟨m, f₀⟩ counts, and the multipliers hold the unit columns of f₀."""
    theta, alpha = ko.Theta(KERNEL), 0.3 * np.random.default_rng(4).normal(size=N)
    distance = squares(theta - ko.Function(KERNEL, X, alpha))
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(y - theta(X))) + 0.3 * distance))
    reduction, P = reduced(problem)
    problem.solve()
    optimum, [link] = problem.value, reduction.form.predictions
    nu = np.clip((y - np.asarray(theta(X).value)) * 1e6, -1, 1)
    a = np.zeros(len(P.s0))
    [rows] = (group.rows for group in P.groups if len(group.rows) == N)
    a[rows[:, 0]] = nu * np.sign(P.S[rows[:, 0]].sum(axis=1)) * -1.0
    found = lower_bound(reduction, P, None, a, STREAMED, False)
    assert -np.inf < found.value <= optimum * (1 + 1e-9)
    [m] = found.multipliers
    assert m.stack.shape[1] == 2 and m.shifts == (slice(1, 2),) and len(link.rows) == len(m.stack)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_theta_without_a_norm_in_few_features(intercept):
    """Aᵀν vanishes in the features: the bound is that of a fit in the explicit ones."""
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(30, 3)), np.sign(rng.normal(size=30))
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(labels, theta(points) + b * intercept))))
    problem.solve()
    w, c = cp.Variable(3), cp.Variable()
    explicit = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(labels, points @ w + c * intercept)))))
    explicit.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.certificate.evidence.rows is not None
    assert problem.certificate.lower <= explicit.value + 1e-7 and explicit.value - 1e-7 <= problem.certificate.upper
    assert problem.certificate.relative_gap <= 1e-6


def test_rooms_that_are_no_numbers_are_refused(capfd):
    """LAPACK would print a complaint to the user's screen."""
    room = rooms.Rooms(np.array([np.inf, 1.0]), sp.csc_array((2, 0)), np.zeros(0), np.ones(2), sp.csr_array((2, 2)))
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError, match="too far apart"):
        rooms.step(room, sp.csc_array(np.eye(2)), np.ones(2), np.zeros((2, 0)))
    assert capfd.readouterr() == ("", "")
