"""verify() recomputes; what is wrong fails by name."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of
from sklearn.svm import SVC, SVR

import kernelopt as ko
from kernelopt import losses
from kernelopt.driver import audits, verification
from kernelopt.errors import KernelOptError
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
TARGETS = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=60)
LABELS = np.where(TARGETS > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=0.7)


def svm(kernel=KERNEL, constraints=lambda theta: []):
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    loss = cp.sum(losses.hinge(LABELS, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)), constraints(theta)), theta, b


LINES = [
    "CCᵀ = I", "A = BC", "predictions", "‖θ‖ = ‖w‖", "primal feasibility", "Aᵀν ∥ θ", "stationarity in θ",
    "stationarity in u, t, y", "duality gap",
]  # fmt: skip


@pytest.mark.later
def test_a_solved_problem_passes():
    problem, _, _ = svm(constraints=lambda theta: [theta(X) <= 0.8])
    problem.solve()
    report = problem.verify()
    assert report.passed
    names = [check.name for check in report.checks]
    assert [n for n in names if n in LINES] == LINES
    assert {"dual feasibility", "complementarity", "Q = BBᵀ"} <= set(names)
    table = str(report)
    assert len(table.splitlines()) == len(names) + 1
    assert table.splitlines()[-1] == str(report.certificate)
    assert "FAIL" not in table
    assert "pass" in table


@pytest.mark.parametrize("unit", [0.0, 1e9])
def test_targets_in_any_units(unit):
    """Numbers are relative to those that they are compared with; θ = 0 has nothing to compare."""
    theta = ko.Theta(KERNEL)
    loss = cp.sum_squares(theta(X) - unit * TARGETS)
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    report = problem.verify()
    assert report.passed
    assert report["predictions"].number < 1e-9


def test_the_null_space():
    """Points that few rows span: a component orthogonal to all rows leaves Aθ and adds to ‖θ‖²."""
    problem, theta, _ = svm(kernel=ko.kernels.Gaussian(sigma=0.2))
    problem.solve()
    report = problem.verify()
    assert report["Aφ = 0 leaves Aθ"].passed
    assert report["Aφ = 0 raises ‖θ‖"].passed
    assert theta.value.norm > 0


def test_explicit_features_side_by_side():
    problem, _, _ = svm(kernel=ko.kernels.Polynomial(degree=2))
    problem.solve()
    check = problem.verify()["θ ∈ Rᵖ solved"]
    assert check.passed
    assert check.number < 1e-6


def test_values_are_as_before():
    problem, theta, b = svm(kernel=ko.kernels.Polynomial(degree=2))
    problem.solve()
    before = b.value.copy(), theta.value, problem.value, theta(X).dual_value.copy()
    problem.verify()
    assert np.array_equal(b.value, before[0])
    assert theta.value is before[1]
    assert problem.value == before[2]
    assert np.array_equal(theta(X).dual_value, before[3])


def test_a_restriction_is_told_and_its_gap_fails():
    problem, _, _ = svm()
    problem.solve(max_rank=10)
    report = problem.verify()
    assert not report.passed
    assert report["Q = BBᵀ"].tolerance is None
    assert "rank 10 of 60" in report["Q = BBᵀ"].note
    assert report["Q − BBᵀ ⪰ 0"].passed
    assert report["duality gap"].passed is False
    assert report["predictions"].passed


@pytest.mark.slow
@pytest.mark.parametrize(("options", "tolerance"), [({}, 1e-7), ({"dtype": "float32"}, 1e-4)])
def test_functions_among_the_columns_do_not_loosen_tolerances(monkeypatch, options, tolerance):
    """Q is not read off such a factor, but its predictions are those of a double, if B is in double precision."""
    for name, value in {"MANY": 0, "FEW": 0, "FIRST": 0.5, "LEAST": 1}.items():
        monkeypatch.setattr(ko.driver.policy, name, value)
    problem, theta, _ = svm()
    problem.solve(factorization="streamed", model="expanded", **options)
    factor = problem._factored.reduction.factors[theta]
    assert "functions" in factor.method and not factor.is_exact
    assert problem.verify()["predictions"].tolerance == tolerance


FAULTS = {
    "the factor": "Q = BBᵀ",
    "the point": "stationarity in u, t, y",
    "the multipliers": "Aᵀν ∥ θ",
    "one multiplier": "Aᵀν ∥ θ",
    "a bound's multiplier": "complementarity",
    "a negative multiplier": "dual feasibility",
    "the fitted function": "predictions",
}


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault):
    problem, theta, _ = svm(kernel=ko.kernels.Polynomial(degree=2), constraints=lambda theta: [theta(X) <= 3])
    problem.solve()
    assert problem.verify().passed
    reduction, point = problem._factored.reduction, problem._point
    (v,), (nu,), [(name, (bound,))] = point.v, point.nu, point.duals.items()
    factor = reduction.factors[theta]
    if fault == "the factor":
        wrong = replace(factor, B=factor.B * (1 + 1e-3))
        problem._factored = problem._factored._replace(reduction=replace(reduction, factors={theta: wrong}))
    elif fault == "the point":
        problem._point = replace(point, v=(1.1 * v,))
    elif fault == "the multipliers":
        problem._point = replace(point, nu=(0.5 * nu,))
    elif fault == "one multiplier":
        problem._point = replace(point, nu=(nu + 0.1 * (np.arange(60) == 3),))
    elif fault == "a bound's multiplier":
        problem._point = replace(point, duals={name: (bound + 1e-5,)})
    elif fault == "a negative multiplier":
        problem._point = replace(point, duals={name: (bound - 1e-3,)})
    else:
        theta.value._coefficients = theta.value.coefficients * (1 + 1e-3)
    report = problem.verify()
    assert report[FAULTS[fault]].passed is False, str(report)


def test_explicit_features_of_many_columns():
    theta, points = ko.Theta(ko.kernels.Linear()), np.random.default_rng(0).normal(size=(60, 90))
    loss = cp.sum_squares(theta(points) - TARGETS)
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)))
    problem.solve()
    assert problem.verify()["θ ∈ Rᵖ solved"].passed


def test_explicit_features_that_the_solver_does_not_solve_are_told():
    """Its inaccurate answer is compared with nothing, and the check has no verdict."""
    rng, kernel = np.random.default_rng(0), ko.kernels.Polynomial(degree=2)
    points, targets = rng.normal(size=(6, 2)), 100 * rng.normal(size=6)
    theta, b = ko.Theta(kernel), cp.Variable()
    largest = cp.max(cp.abs(targets - theta(points) - b)) / 100
    problem = ko.Problem(cp.Minimize(largest + 1e-3 * ko.norm(theta - ko.Function(kernel, points[:2], [1.0, -1.0]))))
    problem.solve()
    check = problem.verify()["θ ∈ Rᵖ solved"]
    if check.passed is None:  # another version of the solver may solve it, and is then compared
        assert "not solved: Clarabel ended optimal_inaccurate" in check.note
    else:
        assert check.passed


@pytest.mark.slow
def test_from_cvxpy_is_compared_with_its_original():
    Phi, t = cp.Constant(X), cp.Variable(2)
    original = cp.Problem(cp.Minimize(cp.norm1(Phi @ t - TARGETS) + cp.sum_squares(t)), [cp.norm(t) <= 0.5])
    problem = ko.Problem.from_cvxpy(original, theta=t, features={Phi: ko.FeatureMatrix(X, ko.kernels.Linear())})
    problem.solve()
    value = t.value.copy()
    assert problem.verify()["explicit original"].passed
    assert np.array_equal(t.value, value)


# ---------------------------------------------------------------- models from elsewhere


@pytest.mark.parametrize(("tol", "passes"), [(1e-8, True), (0.1, False)])
def test_an_svc_is_audited(tol, passes):
    problem, theta, b = svm()
    svc = SVC(gamma=1 / (2 * 0.7**2), C=1.0, tol=tol).fit(X, LABELS)
    theta.value = ko.Function(KERNEL, svc.support_vectors_, svc.dual_coef_[0])
    b.value = svc.intercept_[0]
    report = problem.verify()
    assert report.passed is passes
    assert report["constraints hold"].passed
    assert report.certificate.scope == "full kernel"
    optimum = ko.Problem(problem.objective).solve()
    assert report.certificate.lower - 1e-6 <= optimum <= report.certificate.upper + 1e-6


def test_the_intercept_is_filled_in():
    problem, theta, b = svm()
    svc = SVC(gamma=1 / (2 * 0.7**2), C=1.0, tol=1e-8).fit(X, LABELS)
    theta.value = ko.Function(KERNEL, svc.support_vectors_, svc.dual_coef_[0])
    assert b.value is None
    assert problem.verify().passed


def test_an_svr_is_audited():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    loss = cp.sum(losses.epsilon_insensitive(TARGETS, theta(X) + b, 0.1))
    problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))
    svr = SVR(gamma=1 / (2 * 0.7**2), C=1.0, epsilon=0.1, tol=1e-8).fit(X, TARGETS)
    theta.value = ko.Function(KERNEL, svr.support_vectors_, svr.dual_coef_[0])
    b.value = svr.intercept_[0]
    assert problem.verify().passed


def test_a_function_on_other_centers():
    """Multipliers can't be read off: the lower bound is that of an answer of our own, and nothing is changed."""
    problem, theta, b = svm()
    f = ko.Function(KERNEL, X[:5] + 0.1, [1.0, -1.0, 0.5, 0.2, 0.0])
    theta.value, b.value = f, 0.3
    report = problem.verify()
    assert report["duality gap"].passed is False
    assert theta.value is f
    assert b.value == 0.3
    assert report.certificate.lower == pytest.approx(ko.Problem(problem.objective).solve(), rel=1e-5)


def test_an_infeasible_function():
    problem, theta, _ = svm(constraints=lambda theta: [ko.norm(theta) <= 1])
    theta.value = ko.Function(KERNEL, X[:2], [5.0, 5.0])
    assert problem.verify()["constraints hold"].passed is False


def test_nothing_to_verify():
    problem, _, _ = svm()
    with pytest.raises(KernelOptError, match="theta.value"):
        problem.verify()


# ---------------------------------------------------------------- single checks


def test_a_factor_with_more_than_the_trace_fails():
    """A restricted factor leaves out a positive semidefinite rest; a larger one does not."""
    problem, theta, _ = svm()
    problem.solve(max_rank=10)
    reduction, point = reduction_of(problem), point_of(problem)
    for scale, passes in ((1.0, True), (1.1, False)):
        factor = replace(reduction.factors[theta], B=scale * reduction.factors[theta].B)
        wrong = replace(reduction, factors={theta: factor})
        checks = {c.name: c for c in verification._factor_checks(0, wrong, point, theta.value)}
        assert checks["Q − BBᵀ ⪰ 0"].number >= 0
        assert checks["Q − BBᵀ ⪰ 0"].passed is passes


def test_two_shares_make_up_the_gap():
    """That of θ is the larger one where θ is restricted."""
    problem, _, _ = svm()
    problem.solve(max_rank=10)
    report = problem.verify()
    in_theta, rest = report["stationarity in θ"].number, report["stationarity in u, t, y"].number
    assert in_theta > 1e-6
    assert in_theta + rest == pytest.approx(report["duality gap"].number, rel=1e-3)


@pytest.mark.parametrize(("relative", "note"), [(1e-6, "of P₀ − P"), (2e-6, "absolute")])
def test_the_gap_is_compared_with_tol_or_with_the_floor(relative, note):
    """With the floor where the relative gap is too large, and the gap closes nevertheless."""
    found = SimpleNamespace(
        relative_gap=relative, absolute_gap=1e-9, floor=1e-8, last_digit=0.0, scope="full kernel", closes=lambda _: True
    )
    check = verification.gap(found, 1e-6)
    assert check.passed and check.note.startswith(note)


@pytest.mark.parametrize("column", range(5))
def test_every_column_of_a_small_factor_is_checked(column, monkeypatch):
    """Only where there are many rows, a few columns stand for all of them."""
    monkeypatch.setattr(verification, "COLUMNS", 1)
    problem, theta, _ = svm()
    problem.solve(max_rank=5)
    reduction, point = reduction_of(problem), point_of(problem)
    wrong = replace(reduction.factors[theta], B=reduction.factors[theta].B * (1 + 1e-2 * (np.arange(5) == column)))
    reduction = replace(reduction, factors={theta: wrong})
    checks = {c.name: c for c in verification._factor_checks(0, reduction, point, theta.value)}
    assert checks["A = BC"].passed is False


def test_rows_without_any_feature_have_no_factor_to_check():
    """Rows of zeros, with a linear kernel: only θ = 0 is left, and the rest is checked."""
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(np.zeros((3, 2))) - 1) + ko.sum_squares(theta)))
    problem.solve()
    report = problem.verify()
    assert report.passed and report["duality gap"].passed
    assert not [check for check in report.checks if check.name == "Q = BBᵀ"]


def test_a_point_of_the_null_space_is_in_the_domain():
    """It lies between two rows, so that a kernel of entries ≥ 0 has values there."""
    theta, points = ko.Theta(ko.kernels.Intersection()), np.linspace(0.1, 1.0, 7)[:, None]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - 1) + ko.sum_squares(theta)))
    problem.solve()
    (link,) = reduction_of(problem).form.predictions
    checks = [*verification._null_space(link, reduction_of(problem).factors[theta], theta.value)]
    assert len(checks) == 2 and all(check.passed for check in checks)


def test_an_answer_without_a_certificate_is_verified():
    """It gets one then, of the multipliers as they are."""
    problem, _, _ = svm()
    problem.solve(certify=False)
    assert problem.certificate is None
    assert problem.verify().certificate.scope == "full kernel"


@pytest.mark.parametrize(("at_zero", "expected"), [(None, 1e-3), (3.001, 1e-3 / 2)])
def test_optima_are_compared_in_units_of_the_improvement(at_zero, expected):
    """P₀ − P; where θ = 0 has no value, relative to the optimum."""
    found = SimpleNamespace(at_zero=at_zero, floor=0.0)
    assert verification.compared("twin", 1.001, 1.0, found, 1e-6).number == pytest.approx(expected)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_two_optima_are_compared_relatively(size):
    """Without a certificate, relative to the optimum."""
    check = verification.compared("twin", 1.001 * size, size, None, 1e-6)
    assert check.number == pytest.approx(1e-3) and not check.passed
    assert verification.compared("twin", size * (1 + 1e-6), size, None, 1e-6).passed


def test_a_given_function_of_two_outputs_keeps_its_norm():
    """In the span of its outputs, whose coordinates have its length; also where all rows are zero."""
    kernel = ko.kernels.Linear()
    for points in (X, np.zeros((3, 2))):
        theta = ko.Theta(kernel, outputs=2)
        problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - 1) + ko.sum_squares(theta)))
        f = ko.Function(kernel, X[:3], [[1.0, 0.5], [-1.0, 2.0], [0.3, 0.0]])
        reduction, point = audits.placed(problem._private_form(), {theta: f}, ())
        (factor,), (v,) = reduction.factors.values(), point.v
        assert np.allclose(point.u[0], f(points)) and factor.scale > 0
        if points is X:
            assert np.allclose(factor.B @ v, f(points))
            assert np.linalg.norm(v) / np.sqrt(factor.scale) == pytest.approx(f.norm)


@pytest.mark.parametrize(("scale", "passes"), [(1.0, True), (1.01, False)])
def test_a_wrong_factor_in_single_precision_fails(scale, passes):
    """Its tolerance is larger, and still far below 1."""
    problem, theta, _ = svm()
    problem.solve(dtype="float32", max_rank=10)
    reduction, point = reduction_of(problem), point_of(problem)
    B = reduction.factors[theta].B
    wrong = replace(B, blocks=tuple(np.float32(scale) * block for block in B.blocks))
    factor = replace(reduction.factors[theta], B=wrong)
    reduction = replace(reduction, factors={theta: factor})
    checks = {c.name: c for c in verification._factor_checks(0, reduction, point, theta.value)}
    assert checks["Q − BBᵀ ⪰ 0"].passed is passes


def test_a_point_between_two_is_taken_of_vectors_only():
    """Words have none."""
    kernel = ko.kernels.FromFunction(lambda a, b: float(a == b), psd=True, on_lists=False)
    rows = Rows.of_points(kernel, np.array(["a", "b"], dtype=object))
    assert not list(verification._null_space(SimpleNamespace(rows=rows), SimpleNamespace(added=0.0), None))


@pytest.mark.parametrize("lam", [0.3, 4.0])
def test_multipliers_of_a_function_are_its_coefficients(lam):
    """ν = 2λα for the penalty λ‖θ‖², which are the slopes of the squares."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - TARGETS) + lam * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13)
    (nu,) = audits._multipliers_from_coefficients(reduction_of(problem), problem._outer(), point_of(problem))
    assert np.abs(nu) == pytest.approx(np.abs(2 * (theta.value(X) - TARGETS)), rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_constraints_beside_integers_are_in_units_of_the_data():
    """θ = 0 is all that θ(X) = 0 allows; beside M·0, a prediction of 1 is no rounding of M."""
    theta, z = ko.Theta(KERNEL), cp.Variable(2, boolean=True)
    f = theta(X[:4])
    problem = ko.Problem(cp.Minimize(cp.norm1(f - TARGETS[:4]) + cp.sum(z)), [f == 0])
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - TARGETS[:4]) + cp.sum(z)), [cp.abs(f[:2]) <= 1e6 * z])
    problem.solve()
    reduction, point = reduction_of(problem), point_of(problem)
    [before] = [value for value in point.y if value is not None]
    wrong = replace(point, v=tuple(v + 1.0 for v in point.v), y=(np.zeros_like(before),))
    _, wrong = verification.representer.invert(reduction, verification.representer.evaluate(reduction, wrong))
    assert verification.violation_with_integers(reduction, wrong) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_small_pivots_of_an_ordinary_kernel_matrix_pass(seed):
    """400 points of a Gaussian leave pivots near rounding, by which CCᵀ divides it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 2))
    y, theta, b = (
        np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=400),
        ko.Theta(ko.kernels.Gaussian(sigma=1.0)),
        cp.Variable(),
    )
    loss = cp.sum(cp.pos(cp.abs(theta(X) + b - y) - 0.1))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed


def test_the_dual_point_of_the_certificate_is_proven_again():
    """A search from ν alone ends at a worse one, of a gap of 1e-5, where the solve was certified to 1e-7."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        X, y = rng.normal(size=(15, 2)), rng.normal(size=15)
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        r = theta(X) - y
        problem = ko.Problem(cp.Minimize(cp.norm(r) + cp.sum(cp.huber(r)) + 100 * ko.norm(theta) ** 3))
        problem.solve()
        assert problem.status == "optimal" and problem.verify().passed


@pytest.mark.parametrize("norm", [ko.norm, ko.sum_squares])
def test_slack_bounds_beside_an_optimum_of_0(norm):
    """Their multipliers are 1e-12 beside slacks of 1: in the unit of the objective, as no term has a size."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(np.array([[0.0], [1.0], [2.5]]))
    problem = ko.Problem(cp.Minimize(norm(theta)), [cp.abs(f) <= 1])
    assert problem.solve() == 0 and problem.status == "optimal" and problem.verify().passed


def test_a_function_that_is_0_has_no_centers(tmp_path):
    """It is saved, verified, and a centre of norms."""
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6.0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b)), [ko.norm(theta) <= 0])
    problem.solve()
    ko.save(tmp_path / "zero.ko", theta=theta)
    zero = theta.value = ko.load(tmp_path / "zero.ko")["theta"]
    assert problem.verify().passed and zero.inner(zero) == 0
    values = []
    for norm in (ko.norm(theta - zero), ko.norm(theta)):
        values.append(ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + norm**2)).solve())
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize(
    "norm", [lambda theta: ko.norm(theta @ np.array([1.0, -1.0])), lambda theta: ko.norm(theta[:, 0])]
)
def test_norms_of_a_part_of_the_outputs_have_bounds(norm):
    """Dual points with and without a rest of ν are not blended: one of them has the bound."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    residuals = cp.abs(Y - theta(X))
    for problem in (
        ko.Problem(cp.Minimize(cp.sum(residuals) + 0.1 * norm(theta))),
        ko.Problem(cp.Minimize(cp.max(residuals)), [norm(theta) <= 1]),
    ):
        problem.solve()
        assert problem.status in ("optimal", "optimal_inaccurate")
        assert problem.certificate.lower <= problem.value <= problem.certificate.upper


@pytest.mark.parametrize(("scale", "seed"), [(1.0, 0), (100.0, 3)])
def test_rows_of_one_class_are_proven_at_theta_0(scale, seed):
    """ν is 0 to rounding, P₀ − P is 0, and the objective is its constant: 6 to the last digit is the optimum."""
    X = np.random.default_rng(seed).normal(size=(6, 2))
    theta, b = ko.Theta(ko.kernels.Polynomial(degree=2), outputs=3), cp.Variable((1, 3))
    F = (theta(X) + b) / scale
    loss = cp.sum(cp.max(1 + F, axis=1) - F[:, 0])
    penalty = 0.05 * cp.sum_squares(b / scale) + 1.2 * cp.power(ko.norm(theta, "fro") / scale, 3)
    problem = ko.Problem(cp.Minimize(loss + penalty))
    assert problem.solve() == pytest.approx(6, abs=1e-9)
    assert problem.status == "optimal" and problem.verify().passed


@pytest.mark.parametrize("kind", ["fro", "nuc", 2])
def test_slack_bounds_of_norms_beside_an_optimum_of_0_or_not(kind):
    """Multipliers are 0 to a solver's accuracy: they are compared in the unit of the objective, and with ν's terms."""
    X = np.random.default_rng(36).normal(size=(3, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - X)), [ko.norm(theta, kind) <= 100])
    assert problem.solve() == pytest.approx(0, abs=1e-12) and problem.status == "optimal" and problem.verify().passed
    F, shift = theta(X[:1]), np.array([[1.2, 1.84]])
    loss = cp.sum(cp.max(F + shift, axis=1)) + cp.sum_squares(F)
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta, kind) <= 1.5, cp.diff(F, axis=1) >= 0])
    assert problem.solve() == pytest.approx(1.715, rel=1e-7) and problem.status == "optimal" and problem.verify().passed


def test_multipliers_at_the_end_of_a_domain():
    """The power is no number at −2e-16; the gap closes by the last digit of P₀ − P where the optimum is 0."""
    X, y = np.linspace(0, 3, 4)[:, None], np.array([-0.5, 0.4, 0.9, -0.2])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - y) + 0.2 * ko.norm(theta)), [cp.power(f[0] + 0.4, 1.5) <= 0])
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed
    X, y = np.array([[-0.7, 0.42], [-0.07, -0.28]]), np.array([1.4, -1.0])
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.cvar(cp.square(theta(X) - y), 0.58)), [ko.norm(theta) <= 8.2])
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed


@pytest.mark.parametrize("seed", [0, 3])
def test_explicit_features_in_large_units(seed):
    """Clarabel ends above the optimum; the answer is a point of the explicit problem, too."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(10, 2))
    y = np.sin(points.sum(axis=1)) + 0.3 * rng.normal(size=10)
    theta = ko.Theta(ko.kernels.Linear())
    u = (theta(points) - 1e6 * y) / 1e6
    loss = cp.sum(cp.abs(u)) if seed else cp.sum(cp.exp(u / 3))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / 1e12))
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed


@pytest.mark.parametrize("seed", [5, 33])
def test_right_answers_in_small_units_pass(seed):
    """Three outputs in units of 1e-6, with a bound on their spectral norm."""
    rng, unit = np.random.default_rng(seed), 1e-6
    n = int(rng.integers(4, 14))
    points, labels = rng.normal(size=(n, 2)), rng.integers(0, 3, size=n)
    theta = ko.Theta(ko.kernels.Polynomial(degree=2), outputs=3)
    loss = unit * cp.sum(ko.losses.crammer_singer(labels, theta(points) / unit))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta, 2) <= 0.5 * unit])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.verify()["θ ∈ Rᵖ solved"].passed


@pytest.mark.parametrize("scale", [1 - 3e-7, 1 - 1e-6, 1 + 1e-6])
@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
def test_an_audited_function_that_misses_an_equation(goal, scale):
    """Its value is below the optimum: what meeting Σf = 3 costs is added, by our own multipliers."""
    rng = np.random.default_rng(15)
    points, labels = rng.normal(size=(20, 2)), np.where(rng.normal(size=20) > 0, 1, -1)
    sign = 1 if goal is cp.Minimize else -1
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = cp.sum(cp.logistic(-cp.multiply(labels, theta(points)))) + 0.3 * ko.sum_squares(theta)
    problem = ko.Problem(goal(sign * loss), [cp.sum(theta(points)) == 3])
    problem.solve(tol=1e-9)
    optimum, K = problem.value, theta.kernel(points)
    coefficients = np.linalg.solve(K + 1e-12 * np.eye(20), theta.value(points))
    theta.value = ko.Function(theta.kernel, points, scale * coefficients)
    report = problem.verify()
    found = report.certificate
    assert found.lower <= optimum <= found.upper and found.relative_gap < 1e-6
    assert found.violation == pytest.approx(3 * abs(scale - 1), rel=1e-2) and not found.is_feasible
    assert "constraints met to" in str(found)


@pytest.mark.parametrize("target", [0.5, -1.3, 2.7])
def test_an_optimum_of_0_without_one_at_0(target):
    """θ = 0 is infeasible, so that there is no P₀: 1e-15 is no difference from 0."""
    theta = ko.Theta(ko.kernels.Polynomial(degree=2, offset=1.0))
    f = theta([[1.1, 0.2]])
    constraints = [ko.norm(theta) <= 2, cp.sum_squares(target - f) <= 0.5 * target**2]
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(target - f))), constraints)
    problem.solve()
    assert problem.status == "optimal" and abs(problem.value) < 1e-12
    assert problem.verify().passed


@pytest.mark.parametrize("size", [1e2, 1e5])
def test_multipliers_beside_an_optimum_of_0(size):
    """A solver's multiplier of an inequality with slack is at most gap/slack: none that proves the gap is larger."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    constraint = cp.inv_pos(2 * size - ko.sum_squares(theta)) <= 1 / size
    loss = cp.sum_squares(theta(np.array([[0.0], [1.0]])) - np.array([1.0, 2.0]))
    problem = ko.Problem(cp.Minimize(loss), [constraint])
    problem.solve()
    slack = 1 / size - 1 / (2 * size - theta.value.norm**2)
    assert problem.status == "optimal" and problem.verify().passed
    assert 0 <= constraint.dual_value * slack <= problem.certificate.absolute_gap * (1 + 1e-9)
