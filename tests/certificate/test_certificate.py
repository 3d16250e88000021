"""What makes the bound a bound, and what it is good for."""

import tracemalloc
from dataclasses import replace
from importlib import import_module
from itertools import combinations
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import point_of, reduction_of
from scipy.optimize import minimize_scalar
from scipy.special import huber
from threadpoolctl import threadpool_limits

import kernelopt as ko
from kernelopt import losses
from kernelopt.certificate import attained as attained_module
from kernelopt.certificate import certify, slopes
from kernelopt.certificate.attained import UpperBound, _of_predictions, _scales, errors_of_predictions, upper_bound
from kernelopt.certificate.certify import FULL, Request, _assembled
from kernelopt.certificate.gram import DIAGONAL, PRODUCTS, STREAMED, Gram, gram_of
from kernelopt.certificate.report import Certificate, Lower
from kernelopt.compiler.outer import outer_of
from kernelopt.compiler.representer import valued
from kernelopt.errors import KernelOptError, OptionError
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
TARGETS = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * RNG.standard_t(2, size=80)
LABELS = np.sign(TARGETS - 1)
KERNEL = ko.kernels.Gaussian(sigma=1.2)

LOSSES = {
    "hinge": lambda f: losses.hinge(LABELS, f),
    "logistic": lambda f: losses.log_loss(LABELS, f),
    "huber": lambda f: losses.huber(TARGETS, f, 0.4),
    "pinball": lambda f: losses.pinball(TARGETS, f, 0.3),
    "squared": lambda f: losses.squared_error(TARGETS, f),
    "insensitive": lambda f: losses.epsilon_insensitive(TARGETS, f, 0.2),
    "poisson": lambda f: losses.poisson(np.round(np.abs(TARGETS)), f),
}


def fit(loss, penalty="squared", *, intercept=True, constraints=(), kernel=KERNEL, points=X):
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    f = theta(points) + b if intercept else theta(points)
    objective, bounds = cp.sum(LOSSES[loss](f)), list(constraints)
    if penalty == "squared":
        objective = objective + 0.2 * ko.sum_squares(theta)
    elif penalty == "unsquared":
        objective = objective + 1.5 * ko.norm(theta)
    elif penalty == "ball":
        bounds.append(ko.norm(theta) <= 3)
    return ko.Problem(cp.Minimize(objective), bounds), theta, b


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
@pytest.mark.parametrize("loss", LOSSES)
def test_low_ranks_enclose_the_optimum_and_each_other(loss, penalty):
    problem, _, _ = fit(loss, penalty)
    optimum = problem.solve()
    assert problem.status == "optimal"
    exact = problem.certificate
    for rank in (8, 25):
        problem.solve(max_rank=rank)
        found = problem.certificate
        slack = exact.absolute_gap + exact.rounding + 1e-9
        assert found.lower <= optimum + slack
        assert found.upper >= optimum - slack
        assert found.scope == "full kernel"
        assert found.ranks == ((rank, 80),)
        assert max(found.lower, exact.lower) <= min(found.upper, exact.upper) + slack
    assert found.relative_gap < 0.7


OUTPUTS = np.c_[TARGETS, np.sin(X[:, 0]), X[:, 1] ** 2][:30]
NEAR = ko.Function(KERNEL, X[:4] + 0.1, RNG.normal(size=(4, 3)))
NORMS = {
    "nuclear": lambda theta: ko.norm(theta, "nuc"),
    "spectral": lambda theta: ko.norm(theta, 2),
    "distance": lambda theta: ko.norm(theta - NEAR, "nuc"),
    "squared": ko.sum_squares,
    "columns": lambda theta: ko.norm(theta[:, 1:], "fro"),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(combinations(NORMS, 2)), ids=" and ".join)
def test_several_norms_of_one_matrix(pair):
    """Aᵀν is shared out among the norms as their subgradients at θ say."""
    theta = ko.Theta(KERNEL, outputs=3)
    penalty = 0.7 * NORMS[pair[0]](theta) + 0.3 * NORMS[pair[1]](theta)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(OUTPUTS - theta(X[:30])) + penalty))
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [lambda t: ko.sum_squares(t[:, 0]), lambda t: ko.norm(t[:, [2, 0]], "fro")])
def test_outputs_that_are_not_used_need_no_norm(penalty):
    """The problem is one in θ's first column; with a third one of no use, which ‖·‖ may bind, it is the same."""
    theta, single = ko.Theta(KERNEL, outputs=3), ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(TARGETS - theta[:, 0](X)) + penalty(theta)))
    known = ko.sum_squares(single) if problem.is_qp() else ko.norm(single)
    optimum = ko.Problem(cp.Minimize(cp.sum_squares(TARGETS - single(X)) + known)).solve()
    assert problem.solve(rank_tol=1e-4) == pytest.approx(optimum, rel=1e-2)
    assert problem.certificate.scope == "full kernel"
    assert problem.certificate.assumptions == ()
    assert problem.certificate.lower <= optimum
    assert problem.solve() == pytest.approx(optimum, rel=1e-6)
    assert problem.status == "optimal"


@pytest.mark.slow
def test_an_output_without_a_norm_has_the_bound_of_the_reduced_problem():
    """A penalty on the difference of two outputs leaves their sum free: Aᵀν must vanish there, which takes all rows."""
    theta = ko.Theta(KERNEL, outputs=2)
    penalty = ko.sum_squares(theta @ np.array([1.0, -1.0]))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(OUTPUTS[:, :2] - theta(X[:30])) + penalty))
    problem.solve(max_rank=10)
    assert problem.status == "optimal_inaccurate" and problem.certificate.scope == "reduced problem"
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.scope == "full kernel"


# ---------------------------------------------------------------- the five points


@pytest.mark.slow
def test_without_a_norm_the_scope_is_the_reduced_problem():
    problem, theta, _ = fit("squared", "none")
    problem.solve(max_rank=10)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "reduced problem"
    with pytest.raises(KernelOptError, match="sum_squares"):
        theta.value.optimality_bound(X)
    bounded, _, _ = fit("squared", "ball")
    bounded.solve(max_rank=10)
    assert bounded.certificate.scope == "full kernel"


@pytest.mark.slow
def test_without_a_norm_at_full_rank():
    """N = p = rank: Aᵀν = 0 is decided by counting. Interpolation has the optimum 0."""
    problem, _, _ = fit("squared", "none", kernel=ko.kernels.Polynomial(degree=2))
    features = np.c_[ko.kernels.Polynomial(degree=2).features(X), np.ones(80)]
    reference = np.sum((TARGETS - features @ np.linalg.lstsq(features, TARGETS, rcond=None)[0]) ** 2)
    assert problem.solve() == pytest.approx(reference, rel=1e-7)
    assert problem.status == "optimal"
    assert problem.certificate.scope == "full kernel"
    assert problem.certificate.assumptions == ()
    narrow, _, _ = fit("squared", "none", kernel=ko.kernels.Gaussian(sigma=0.2))
    assert narrow.solve() == pytest.approx(0, abs=1e-8)
    assert narrow.status == "optimal"


@pytest.mark.slow
def test_the_upper_bound_is_widened_by_violations():
    problem, theta, _ = fit("squared", constraints=[])
    problem = ko.Problem(problem.objective, [theta(X[:5]) <= -1])
    problem.solve()
    assert problem.status == "optimal"
    reduction, point = reduction_of(problem), point_of(problem)
    exact = problem.certificate.upper
    moved = valued(reduction.form, replace(point, u=(point.u[0] + 1e-7,)))
    found = certify(reduction, outer_of(reduction.form), moved)
    assert found.widened > 0
    assert found.upper == pytest.approx(moved.value + found.widened)
    assert found.upper >= exact - 1e-6
    far = valued(reduction.form, replace(point, u=(point.u[0] + 1e-3,)))
    found = certify(reduction, outer_of(reduction.form), far)
    assert found.upper == np.inf and found.relative_gap == np.inf and "constraints hold too loosely" in str(found)


# ---------------------------------------------------------------- what a certificate says


def test_it_reads_as_one_sentence():
    problem, _, _ = fit("hinge")
    problem.solve(rank_tol=1e-3)
    words = str(problem.certificate)
    assert words.startswith("optimum in [")
    assert "\n" not in words
    low, high = (float(number) for number in words[words.index("[") + 1 : words.index("]")].split(", "))
    assert low <= problem.certificate.lower <= problem.certificate.upper <= high
    assert "relative gap" in words
    assert f"full kernel, rank {problem.certificate.ranks[0][0]} of 80" in words
    assert words in str(problem.explain()).replace("\n                 ", " ")


@pytest.mark.slow
def test_the_relative_gap_does_not_see_constants():
    def at_zero(b):
        return 2 * float(np.sum(huber(0.4, TARGETS - b)))

    gaps = []
    for constant in (0.0, -15.1, 1e6):
        problem, _, _ = fit("huber")
        shifted = ko.Problem(cp.Minimize(problem.objective.args[0] + constant))
        shifted.solve(max_rank=12)
        gaps.append(shifted.certificate.relative_gap)
        assert shifted.certificate.at_zero - constant == pytest.approx(minimize_scalar(at_zero).fun, rel=1e-8)
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-4)
    assert gaps[2] == pytest.approx(gaps[0], rel=1e-2)


@pytest.mark.slow
def test_a_maximum_is_enclosed_too():
    problem, _, _ = fit("hinge")
    flipped = ko.Problem(cp.Maximize(-problem.objective.args[0]))
    problem.solve(max_rank=10)
    flipped.solve(max_rank=10)
    assert flipped.certificate.upper == pytest.approx(-problem.certificate.lower, rel=1e-6)
    assert flipped.certificate.lower == pytest.approx(-problem.certificate.upper, rel=1e-6)
    assert flipped.certificate.relative_gap == pytest.approx(problem.certificate.relative_gap, rel=1e-4)


def test_the_distance_to_the_optimum_is_bounded():
    problem, theta, _ = fit("hinge")
    problem.solve()
    exact = theta.value
    problem.solve(max_rank=50)
    rough, new = theta.value, RNG.normal(size=(50, 3))
    bound = rough.optimality_bound(new)
    assert (np.abs(rough(new) - exact(new)) <= bound + 1e-5).all()
    assert 0 < bound.max() < 1
    difference = ko.Function(
        KERNEL, np.r_[rough.centers, exact.centers], np.r_[rough.coefficients, -exact.coefficients]
    )
    assert difference.norm <= problem.certificate.distance[theta] + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "squared", "logistic"])
def test_certificates_for_other_penalties(loss):
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=0.3)
    problem = ko.Problem(cp.Minimize(cp.sum(LOSSES[loss](theta(X))) + lam * ko.sum_squares(theta)))
    problem.solve()
    elsewhere = {value: problem.certificate_at({lam: value}) for value in (0.2, 0.3, 0.5)}
    assert lam.value == 0.3
    assert elsewhere[0.3].closes(1e-6)
    for value, found in elsewhere.items():
        lam.value = value
        optimum = problem.solve()
        assert found.lower - 1e-6 <= optimum <= found.upper + 1e-6
        assert found.relative_gap < 0.2


@pytest.mark.later
def test_other_penalties_cost_no_kernel_values(monkeypatch):
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=0.3)
    problem = ko.Problem(cp.Minimize(cp.sum(LOSSES["hinge"](theta(X))) + lam * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-4)
    monkeypatch.setattr(KERNEL.__class__, "_matrix", lambda *a: 1 / 0)
    assert problem.certificate_at({lam: 0.4}).scope == "full kernel"


def test_certificate_at_needs_a_certificate():
    problem, _, _ = fit("hinge")
    with pytest.raises(KernelOptError, match="solve"):
        problem.certificate_at({})


def test_an_estimate_is_called_one():
    problem, _, _ = fit("hinge")
    problem.solve(max_rank=20)
    exact = problem.certificate
    problem.solve(max_rank=20, certify="estimate")
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "estimate"
    assert problem.certificate.lower == pytest.approx(exact.lower, rel=0.1)
    problem.solve(certify=False)
    assert problem.certificate is None
    assert problem.status == "optimal_inaccurate"
    with pytest.raises(OptionError, match="certify"):
        problem.solve(certify="yes")


def test_no_second_pass_at_full_rank(monkeypatch):
    """Where the factor leaves nothing, νᵀQν is read off it."""
    problem, _, _ = fit("hinge", kernel=ko.kernels.Polynomial(degree=2))
    monkeypatch.setattr("kernelopt.language.rows.Rows.quadratic", lambda *a: 1 / 0)
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.scope == "full kernel"


def test_rows_without_multiplier_are_skipped():
    """Only support vectors cost kernel values."""
    rows = fit("hinge")[0].canonical_form().predictions[0].rows
    V = np.zeros((80, 1))
    V[3], V[50] = 1.0, -2.0
    seen = []

    class Counting(type(KERNEL)):
        def _matrix(self, A, B):
            seen.append((len(A), None if B is None else len(B)))
            return super()._matrix(A, B)

    counted = replace(rows, kernel=Counting(sigma=1.2))
    Q = rows.gram()
    assert counted.quadratic(V) == pytest.approx(V.T @ Q @ V)
    assert seen == [(2, None)]
    W = RNG.normal(size=(80, 2))
    assert rows.quadratic(W, block=7) == pytest.approx(W.T @ Q @ W)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "block"), [(2000, 64), (1000, 256)])
def test_a_pass_over_the_kernel_takes_memory_for_a_few_blocks(n, block):
    """O(n·k + block²), not n², for each thread."""
    points, V = RNG.normal(size=(n, 3)), RNG.normal(size=(n, 2))
    rows = Rows.of_points(KERNEL, points)
    with threadpool_limits(1):
        rows.quadratic(V, block)  # a first call imports what it needs
        tracemalloc.start()
        rows.quadratic(V, block)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= 8 * (2 * points.size + 2 * V.size + 4 * block**2)


def test_a_projected_matrix_is_named():
    sigmoid = ko.kernels.Sigmoid(scale=1.0, offset=-1.0)
    theta = ko.Theta(sigmoid)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(TARGETS - theta(X)) + ko.sum_squares(theta)))
    problem.solve(indefinite="clip")
    assert "projected" in str(problem.certificate)
    assert problem.status == "optimal"


# ---------------------------------------------------------------- statuses


@pytest.mark.slow
def test_not_attained():
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    separable = np.sign(X[:, 0])
    problem = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(separable, theta(X)))))
    problem.solve()
    assert problem.status == "not_attained"
    assert problem.value == pytest.approx(0, abs=1e-3)
    assert "penalize" in problem.status.remedy
    one_class = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(np.ones(80), theta(X) + b)) + ko.sum_squares(theta)))
    one_class.solve()
    assert one_class.status == "not_attained"
    mixed = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(LABELS, theta(X)))))
    mixed.solve()
    assert mixed.status == "optimal"
    attained = ko.Problem(cp.Minimize(cp.sum(losses.hinge(separable, theta(X)))))
    attained.solve()
    assert attained.status == "optimal"
    assert attained.value == pytest.approx(0, abs=1e-7)


def test_remedies_are_listed():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(1e4 * TARGETS - theta(X))), [ko.norm(theta) <= 1])
    problem.solve()
    assert problem.status == "optimal"
    attempts = problem.solver_stats.attempts
    assert attempts[0].solver == "LEAST_SQUARES"
    assert attempts[-1].gap <= 1e-6 or problem.certificate.absolute_gap <= problem.certificate.floor
    assert all(a.seconds >= 0 for a in attempts)


def test_time_limit():
    problem, _, _ = fit("hinge")
    problem.solve(time_limit=60)
    assert problem.status == "optimal"
    problem.solve(tol=1e-15, time_limit=1e-3, warm_start=False)  # from the optimum one step might be in time
    assert problem.status == "user_limit"
    assert len(problem.solver_stats.attempts) == 1
    assert problem.certificate.lower < problem.value <= problem.certificate.upper
    assert problem.certificate.relative_gap > 1e-15  # ∞ where the answer is no better than θ = 0
    assert problem.certificate.absolute_gap < np.inf
    with pytest.raises(OptionError, match="time_limit"):
        problem.solve(time_limit=-1)


def test_absolute_tolerance():
    problem, _, _ = fit("hinge")
    problem.solve(max_rank=20)
    gap = problem.certificate.absolute_gap
    assert problem.status == "optimal_inaccurate"
    problem.solve(max_rank=20, abs_tol=2 * gap)
    assert problem.status == "optimal"


@pytest.mark.slow
def test_two_runs_are_identical():
    results = []
    for _ in range(2):
        problem, theta, _ = fit("logistic", "unsquared")
        problem.solve(max_rank=20)
        results.append((problem.value, problem.certificate.lower, theta.value(X).tobytes()))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["log-sum-exp", "maximum"])
def test_an_intercept_for_each_of_ten_classes(loss):
    """Ten columns that add up to those of other variables: pivot rows for the latter must leave room for them."""
    rng = np.random.default_rng(4)
    labels = np.arange(80) % 10
    points, Y = rng.normal(size=(80, 2)) + np.column_stack([labels % 4, labels // 4]), np.eye(10)[labels]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=10), cp.Variable(10)
    U = theta(points) + np.ones((80, 1)) @ cp.reshape(b, (1, 10), order="C")
    each = cp.log_sum_exp(U, axis=1) if loss == "log-sum-exp" else cp.max(U + 1 - Y, axis=1)
    problem = ko.Problem(cp.Minimize(cp.sum(each - cp.sum(cp.multiply(Y, U), axis=1)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.assumptions == ()


@pytest.mark.parametrize(
    ("lower", "upper", "low", "high"),
    [
        (1.23456789, 1.23467891, "1.234567", "1.234679"),  # down to the gap's third digit
        (100.0, 150.4, "100", "151"),
        (-2.0, 123456789.0, "-2", "1.3e+08"),  # two digits at least
    ],
)
def test_bounds_are_printed_with_the_digits_that_show_the_gap(lower, upper, low, high):
    problem, _, _ = fit("hinge")
    problem.solve()
    found = replace(problem.certificate, lower=lower, upper=upper, bare=None)
    assert str(found).startswith(f"optimum in [{low}, {high}], ")


def test_errors_of_predictions_close_no_gap_where_the_optimum_without_theta_is_not_known():
    """They are negligible beside P₀ − P only if P₀ is known."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(losses.huber(TARGETS[:9], theta(X[:9]), 0.4)) + ko.sum_squares(theta)))
    problem.solve()
    reduction, data = reduction_of(problem), problem._outer()
    upper = upper_bound(reduction, data, point_of(problem))
    upper = replace(upper, kernel=1e-13, terms=1e-14)
    assert upper.at_zero - upper.value > 0.1

    def floor(upper):
        return _assembled(reduction, data, problem.certificate.evidence, upper, FULL).floor

    assert floor(upper) > upper.kernel
    assert floor(replace(upper, at_zero=None)) == 0.0
    assert floor(replace(upper, kernel=1e-6)) == 0.0  # they are not negligible


# Single steps

MODULE = import_module("kernelopt.certificate.certify")  # the package's attribute of this name is the function
NO_THETA = SimpleNamespace(is_restriction=False, form=SimpleNamespace(predictions=()))
NO_PIECES = SimpleNamespace(pieces=None, split=None, in_cones=None)


def bound(value, **more):
    return Lower(value, **{"rounding": 0.0, "terms": 1.0,
                           "multipliers": (), "grams": ()} | more)  # fmt: skip


@pytest.mark.parametrize(
    ("own", "known", "taken"),
    [
        (None, bound(1.0), True),
        (bound(0.0), bound(1.0), True),
        (bound(2.0), bound(1.0), False),
        (bound(0.0), bound(1.0, confined=True), False),
    ],
)
def test_a_known_bound_is_taken_where_it_is_better(monkeypatch, own, known, taken):
    """One for a factor's span is no bound of the stated problem."""
    monkeypatch.setattr(MODULE, "_on_pieces", lambda *_: own)
    told = lambda _, __, evidence, *___, **____: SimpleNamespace(evidence=evidence, closes=lambda *_: True)
    monkeypatch.setattr(MODULE, "_assembled", told)
    found = MODULE._by_way(NO_THETA, NO_PIECES, None, Request(known=known), None, STREAMED)
    assert found.certificate.evidence is (known if taken else own)
    assert found.own is own


@pytest.mark.parametrize(
    ("lower", "unit", "decides"), [(1.5, 0.0, True), (1.499, 2.0, True), (1.49, 2.0, False), (0.5, 2.0, False)]
)
def test_rounding_decides_where_the_bound_without_it_is_near_the_value(monkeypatch, lower, unit, decides):
    """Near 1.5: the value 1 and what constraints that hold only nearly add to it."""
    attained = UpperBound(
        stated=1.0, value=1.0, sizes=1.0, plain=1.0, upper=1.6, widened=0.5, rounding=0.1, terms=1.0, at_zero=None,
        is_zero=False, violations=(), is_feasible=True, kernel=0.0,
    )  # fmt: skip
    monkeypatch.setattr(MODULE, "_on_pieces", lambda *_: bound(lower))
    monkeypatch.setattr(MODULE, "_assembled", lambda *_: SimpleNamespace(unit=unit))
    reduction = SimpleNamespace(form=SimpleNamespace(predictions=[]))
    own = bound(0.0, grams=(Gram(np.eye(1), np.eye(1), np.ones(1)),))
    assert MODULE._rounding_decides(reduction, NO_PIECES, None, own, Request(FULL), attained) is decides


@pytest.mark.parametrize(("tol", "abs_tol", "decides"), [(1e-5, None, True), (1e-6, None, False), (1e-6, 1e-5, True)])
def test_exact_sums_are_for_gaps_near_the_tolerance(monkeypatch, tol, abs_tol, decides):
    """The gap without errors is 2e-5, which is within four times the tolerance, or it is not."""
    attained = UpperBound(
        stated=1.0, value=1.0, sizes=1.0, plain=1.0, upper=1.1, widened=0.0, rounding=0.1, terms=1.0, at_zero=None,
        is_zero=False, violations=(), is_feasible=True, kernel=0.0,
    )  # fmt: skip
    monkeypatch.setattr(MODULE, "_on_pieces", lambda *_: bound(1.0 - 2e-5))
    monkeypatch.setattr(MODULE, "_assembled", lambda *_: SimpleNamespace(unit=1.0))
    own = bound(0.0, grams=(Gram(np.eye(1), np.eye(1), np.ones(1)),))
    request = Request(FULL, tol=tol, abs_tol=abs_tol)
    assert MODULE._rounding_decides(None, NO_PIECES, None, own, request, attained) is decides


@pytest.mark.parametrize(("scope", "lower"), [(FULL, 0.5), (MODULE.REDUCED, 0.0)])
def test_the_kernel_matrix_as_computed_is_tried_for_the_full_kernel_only(monkeypatch, scope, lower):
    """There where rounding keeps the gap open, and it is taken if it closes."""
    found = MODULE.Certified(replace(certificate(0.0, 1.0, 2.0), scope=scope), bound(0.0))
    monkeypatch.setattr(MODULE, "upper_bound", lambda *_, **__: None)
    monkeypatch.setattr(MODULE, "_by_way", lambda *_: found)
    monkeypatch.setattr(MODULE, "_rounding_decides", lambda *_: True)
    monkeypatch.setattr(MODULE, "_for_computed_kernel", lambda *_: certificate(0.5, 0.5, 2.0))
    reduction = SimpleNamespace(factors={}, is_restriction=False, form=SimpleNamespace(predictions=[]))
    taken = MODULE.certified(reduction, None, None, Request(scope, tol=0.1))
    assert taken.certificate.lower == lower and taken.own is found.own


@pytest.fixture(scope="module")
def nine():
    """The certificate of nine rows, and what it was made from."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(losses.huber(TARGETS[:9], theta(X[:9]), 0.4)) + ko.sum_squares(theta)))
    problem.solve()
    return problem.certificate, reduction_of(problem), problem._outer(), point_of(problem)


def test_a_first_look_leaves_out_rounding_inside_of_losses(nine):
    _, reduction, data, point = nine
    look = upper_bound(reduction, data, point, exactly=True, look=True)
    assert look.sizes == look.terms < upper_bound(reduction, data, point, exactly=True).sizes


def test_errors_of_predictions_cost_multipliers_where_columns_are_not_known(nine):
    _, reduction, data, point = nine
    cost = 2 * float(errors_of_predictions(reduction, point)[0] @ np.abs(point.multipliers()[0]))
    assert cost > 0
    for x, terms in ((None, 1.0), (np.zeros(len(data.form.c)), np.inf)):
        assert _of_predictions(reduction, data.form, point, x, terms, 0.0, _scales(reduction, point)) == cost


@pytest.mark.parametrize(
    ("at_zero", "terms", "sizes", "floor"),
    [
        (5 + 1e-9, 1.0, 1.0, 1e-8),  # θ = 0 is optimal
        (6.0, 1.0, 1.0, 0.0),
        (None, 2.0**-46, 1.0, 2.0**-46),  # the optimum is 0 to double precision
        (None, 2.0**-45, 1.0, 0.0),
    ],
)
def test_gaps_up_to_the_floor(nine, at_zero, terms, sizes, floor):
    certificate, reduction, data, point = nine
    upper = replace(
        upper_bound(reduction, data, point), value=5.0, upper=5.0, kernel=0.0, plain=0.0, at_zero=at_zero, terms=terms,
        sizes=sizes,
    )  # fmt: skip
    assert _assembled(reduction, data, replace(certificate.evidence, value=5.0), upper, FULL).floor == floor


@pytest.mark.parametrize(("kernel", "counts"), [(0.0, 1e-20), (1e-3, 1e-20)])
def test_rounding_of_a_value_of_0_closes_and_errors_of_kernel_values_do_not(nine, kernel, counts):
    certificate, reduction, data, point = nine
    upper = replace(
        upper_bound(reduction, data, point), value=0.0, upper=1e-20 + kernel, rounding=1e-20 + kernel, kernel=kernel,
        plain=0.0, at_zero=None, terms=0.0, sizes=0.0,
    )  # fmt: skip
    found = _assembled(reduction, data, replace(certificate.evidence, value=0.0), upper, FULL)
    assert found.floor == pytest.approx(counts, rel=1e-3)


def certificate(lower, upper, at_zero, *, maximize=False):
    return Certificate(
        lower=lower, upper=upper, scope=FULL, ranks=(), assumptions=(), widened=0.0, rounding=0.0, floor=0.0,
        at_zero=at_zero, maximize=maximize, seconds=0.0, terms=1.0,
    )  # fmt: skip


def test_gaps_relative_to_what_was_attained():
    """A Minimize attains the upper bound, a Maximize the lower one."""
    assert certificate(1.0, 1.5, 3.5).relative_gap == 0.25
    assert certificate(2.0, 2.5, 0.0, maximize=True).relative_gap == 0.25


def test_the_last_digits_close_a_gap():
    """2⁻⁴⁴ of the improvement over θ = 0, where that is known."""
    assert certificate(-(2.0**-44), 0.0, 1.0).closes(0.0)
    assert not certificate(-(2.0**-43), 0.0, 1.0).closes(0.0)
    assert not certificate(-(2.0**-44), 0.0, None).closes(0.0)


def test_constants_move_both_bounds_outward():
    found = certificate(1.0, 2.0, 4.0).shifted(10.0, np.nan)
    assert found.lower < 11.0 and found.upper > 12.0 and found.at_zero == 14.0
    assert (found.lower, found.upper) == pytest.approx((11.0, 12.0), rel=1e-15)


# From multipliers to a dual point


def test_slopes_far_below_1_keep_their_digits():
    """An entry is at its end only relative to the others: 5e-13 beside 3e-12 is not."""
    pieces = SimpleNamespace(
        slopes=lambda: (np.zeros(2), np.full(2, np.inf)),
        y=np.zeros(1), F=sp.csr_array(np.ones((2, 1))), linear_y=np.array([-3.5e-12]),
    )  # fmt: skip
    v = np.array([3e-12, 5e-13])
    assert slopes.feasible_slopes(pieces, v) == pytest.approx(v, rel=1e-9, abs=0)


def test_violations_cost_twice_their_multipliers():
    """Entry by entry, and for a cone Σ|z| times the largest violation."""
    constraints = [SimpleNamespace(id=name) for name in ("row", "cone", "unknown")]
    duals = {"row": [np.array([3.0, -4.0])], "cone": [np.array([3.0, -4.0]), np.array(5.0)], "unknown": [None]}
    residuals = [np.array([0.5, 0.25]), np.array([0.5, 0.25, 0.0]), np.ones(1)]
    form = SimpleNamespace(outer=SimpleNamespace(constraints=constraints))
    found = attained_module._widening(form, SimpleNamespace(duals=duals), residuals)
    assert found == 2 * (1.5 + 1.0) + 2 * 12 * 0.5


def with_few_support_vectors(N=2200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0, 1.0, -1.0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable()
    loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_the_last_pass_is_one_over_rows_with_multipliers(tol, monkeypatch):
    """Qν is computed where another column may follow. The bounds are the same either way."""
    found, by_way = {}, MODULE._by_way
    for share in (MODULE.FEW_BUSY, 0.0):
        ways = []
        monkeypatch.setattr(MODULE, "FEW_BUSY", share)
        monkeypatch.setattr(MODULE, "MANY_BUSY", share)
        monkeypatch.setattr(MODULE, "_by_way", lambda *rest, ways=ways: ways.append(rest[-1]) or by_way(*rest))
        problem = with_few_support_vectors()
        problem.solve(tol=tol, factorization="streamed")
        assert problem.status == "optimal"
        found[share] = ways, problem.certificate
    (ways, mine), (others, other) = found.values()
    assert ways[-1] == STREAMED and set(others) == {PRODUCTS}
    assert ways.count(PRODUCTS) == len(others) - 1
    assert mine.lower == pytest.approx(other.lower, rel=1e-9)
    assert mine.upper == pytest.approx(other.upper, rel=1e-9)


def test_slopes_of_zero_stay_where_others_can_move():
    """Their rows then need no kernel values; where no other has room, they move."""
    pieces = SimpleNamespace(
        slopes=lambda: (-np.ones(4), np.ones(4)), y=np.zeros(1, dtype=int), F=sp.csr_array(np.ones((4, 1))),
        linear_y=np.zeros(1),
    )  # fmt: skip
    found = slopes.feasible_slopes(pieces, np.array([0.0, 1.0, -0.75, 0.0]))
    assert found.tolist() == [0.0, 1.0, -1.0, 0.0]
    found = slopes.feasible_slopes(pieces, np.array([0.0, 1.0, 0.0, 0.0]))
    np.testing.assert_allclose(found, [-1 / 3, 1.0, -1 / 3, -1 / 3])


@pytest.mark.slow
def test_where_most_rows_have_multipliers_the_last_gap_decides(monkeypatch):
    """A pass over them comes first where functions have to reduce the last gap by little, not otherwise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=3000)
    found = {}
    for times in (0.0, MODULE.BY_FEW, 1e9):
        ways, by_way = [], MODULE._by_way
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "BY_FEW", times)
            patch.setattr(MODULE, "_by_way", lambda *rest, ways=ways, by_way=by_way: ways.append(rest[-1])
                          or by_way(*rest))  # fmt: skip
            theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
            losses = cp.sum(ko.losses.epsilon_insensitive(y, theta(X) + b, 0.15))
            problem = ko.Problem(cp.Minimize(losses + 0.5 * ko.sum_squares(theta)))
            problem.solve(tol=1e-6, factorization="streamed")
        assert problem.status == "optimal"
        found[times] = ways, problem.certificate
    nowhere, here, everywhere = (ways for ways, _ in found.values())
    assert STREAMED not in nowhere
    assert here[-1] == STREAMED and 0 < here.count(STREAMED) < everywhere.count(STREAMED)
    bounds = [certificate.lower for _, certificate in found.values()]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-9)


@pytest.mark.slow
def test_where_the_pass_over_few_rows_leaves_the_gap_open_another_computes_products(monkeypatch):
    monkeypatch.setattr(MODULE, "LIKELY", 1e12)
    ways, by_way = [], MODULE._by_way
    monkeypatch.setattr(MODULE, "_by_way", lambda *rest: ways.append(rest[-1]) or by_way(*rest))
    problem = with_few_support_vectors(4000)
    problem.solve(tol=1e-6, factorization="streamed")
    assert problem.status == "optimal"
    assert ways[:2] == [STREAMED, PRODUCTS]


def test_an_estimate_from_the_diagonal_of_what_the_factor_leaves():
    problem = with_few_support_vectors(300)
    problem.solve(max_rank=20)
    reduction = reduction_of(problem)
    (link,), (factor,) = reduction.form.predictions, reduction.factors.values()
    V = np.random.default_rng(1).normal(size=(len(link.rows), 2))
    B, Q = np.asarray(factor.B), link.rows.gram()
    left = np.diag(Q - factor.scale * B @ B.T)
    expected = factor.scale * (V.T @ B) @ (B.T @ V) + V.T @ (left[:, None] * V)
    np.testing.assert_allclose(gram_of(link, factor, V, DIAGONAL).value, expected, rtol=1e-9)


def test_no_pass_is_made_for_multipliers_that_close_nothing(monkeypatch):
    """What the factor leaves keeps this gap open: ν proves the value with the factor, so no other rows help.

    Where ν is far from optimal, multipliers from the point alone have their pass.
    """
    problem = with_few_support_vectors(1200)
    problem.solve(max_rank=20)
    reduction, data, point = reduction_of(problem), problem._outer(), point_of(problem)
    ways, on_pieces = [], MODULE._on_pieces
    monkeypatch.setattr(MODULE, "_on_pieces", lambda *rest: ways.append(rest[4]) or on_pieces(*rest))
    found = MODULE.certify(reduction, data, point)
    assert found.upper - found.lower > 1 and found.scope == FULL and ways.count(STREAMED) == 1
    ways.clear()
    wrong = replace(point, nu=tuple(np.zeros_like(nu) for nu in point.multipliers()))
    again = MODULE.certify(reduction, data, wrong)
    assert ways.count(STREAMED) == 2 and again.lower == pytest.approx(found.lower, rel=1e-3)
