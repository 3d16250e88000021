"""The spectral form solved: kernel PCA against explicit matrices and scikit-learn, statuses, reports, refusals."""

import copy
import re
from time import perf_counter
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sl
from inside import reduction_of
from sklearn.decomposition import KernelPCA

import kernelopt as ko
from kernelopt.driver import principal_components, verification
from kernelopt.errors import KernelOptError, OptionError, RepresenterError, SolverError

N = 40
RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(7, 2))
KERNEL = ko.kernels.Gaussian(sigma=1.0)
Q = KERNEL(X)
MEAN = np.eye(N) - 1 / N
TIGHT = {"rank_tol": 1e-13}


def largest(kernel=KERNEL, R=1.0, constraints=lambda theta: [], objective=cp.norm, points=X):
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Maximize(objective(theta(points))), [ko.norm(theta) <= R, *constraints(theta)])
    return problem, theta


KERNELS = {
    "gaussian": (KERNEL, X),
    "polynomial": (ko.kernels.Polynomial(degree=2), X),
    "linear": (ko.kernels.Linear(), X),
    "centered": (KERNEL.centered(X), X),
    "precomputed": (ko.kernels.Precomputed(Q), np.arange(N)),
    "identity": (ko.kernels.Precomputed(np.eye(N)), np.arange(N)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_against_eigenvalues_of_the_gram_matrix(name):
    kernel, points = KERNELS[name]
    values, V = np.linalg.eigh(kernel(points))
    problem, theta = largest(kernel, R=3.0, points=points)
    assert problem.solve(**TIGHT) == pytest.approx(3 * np.sqrt(values[-1]), rel=1e-12)
    assert problem.status == "optimal"
    assert theta.value.norm == pytest.approx(3.0, rel=1e-12)
    u = theta(points).value
    assert np.allclose(kernel(points) @ u, values[-1] * u, atol=1e-8 * values[-1] * np.linalg.norm(u))
    if values[-2] < 0.9 * values[-1]:
        assert np.allclose(np.abs(u), 3 * np.sqrt(values[-1]) * np.abs(V[:, -1]), atol=1e-10)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_against_singular_values_of_explicit_features(degree):
    """maximize ‖WΦθ‖ with ‖θ‖ ≤ R and GᵀΦθ = 0, θ ∈ Rᵖ."""
    kernel = ko.kernels.Polynomial(degree=degree)
    Phi, W, G = kernel.features(X), RNG.normal(size=(9, N)), RNG.normal(size=(2, N))
    free = sl.null_space(G @ Phi)
    expected = 2.5 * np.linalg.norm(W @ Phi @ free, 2)
    problem, theta = largest(kernel, 2.5, lambda t: [G @ t(X) == 0], lambda u: cp.norm(W @ u))
    assert problem.solve(**TIGHT) == pytest.approx(expected, rel=1e-10)
    assert np.abs(G @ theta(X).value).max() < 1e-12 * expected
    report = problem.verify()
    assert report.passed
    assert report["θ ∈ Rᵖ solved"].number < 1e-9


def scores(center, kernel):
    """Three centered components by deflation: eigenvalues, scores, and scores at new points."""
    theta = ko.Theta(kernel)
    variance, found, new = [], [], []
    for _ in range(3):
        orthogonal = [u @ center(theta(X)) == 0 for u in found]
        problem = ko.Problem(cp.Maximize(cp.sum_squares(center(theta(X)))), [ko.norm(theta) <= 1, *orthogonal])
        variance.append(problem.solve(**TIGHT))
        assert problem.status == "optimal"
        found.append(center(theta(X)).value)
        new.append(theta(X_NEW).value - np.mean(theta(X).value))
    return np.array(variance), np.array(found).T, np.array(new).T


CENTERINGS = {
    "matrix": (lambda u: MEAN @ u, KERNEL),
    "mean": (lambda u: u - cp.mean(u), KERNEL),
    "kernel": (lambda u: u, KERNEL.centered(X)),
}


@pytest.mark.parametrize("name", CENTERINGS)
def test_kernel_pca_as_in_scikit_learn(name):
    pca = KernelPCA(n_components=3, kernel="precomputed", eigen_solver="dense").fit(Q)
    variance, projected, new = scores(*CENTERINGS[name])
    assert np.allclose(variance, pca.eigenvalues_, rtol=1e-8)
    signs = np.sign(np.sum(projected * pca.transform(Q), axis=0))
    assert np.allclose(projected * signs, pca.transform(Q), atol=1e-8)
    assert np.allclose(new * signs, pca.transform(KERNEL(X_NEW, X)), atol=1e-8)
    if name == "kernel":  # scikit-learn's convention of signs is ours
        assert np.all(signs == 1)


def test_orthogonal_functions_instead_of_predictions():
    """θ₁ᵀθ = 0 says the same as u₁ᵀAθ = 0."""
    first, theta = largest()
    first.solve(**TIGHT)
    f1 = theta.value
    second = ko.Problem(first.objective, [*first.constraints, f1.inner(theta) == 0])
    assert second.solve(**TIGHT) == pytest.approx(np.sqrt(np.linalg.eigvalsh(Q)[-2]), rel=1e-9)
    assert abs(f1.inner(theta.value)) < 1e-12


def test_several_components_from_one_factor():
    """Rows of a parameter are filled one by one; R is one too. Nothing is factored again."""
    theta, U, R = ko.Theta(KERNEL), cp.Parameter((3, N), value=np.zeros((3, N))), cp.Parameter(nonneg=True, value=1.0)
    problem = ko.Problem(cp.Maximize(cp.norm(theta(X))), [ko.norm(theta) <= R, U @ theta(X) == 0])
    values, rows, factors = [], np.zeros((3, N)), set()
    for k in range(3):
        values.append(problem.solve(**TIGHT))
        rows[k] = theta(X).value
        U.value = rows
        factors.add(id(reduction_of(problem)))
    assert np.allclose(np.square(values), np.linalg.eigvalsh(Q)[:-4:-1], rtol=1e-9)
    assert len(factors) == 1
    U.value, R.value = np.zeros((3, N)), 2.0
    assert problem.solve(**TIGHT) == pytest.approx(2 * values[0], rel=1e-12)


def test_weights_as_a_parameter():
    w = cp.Parameter(N, nonneg=True)
    problem, _ = largest(objective=lambda u: cp.norm(cp.multiply(w, u)))
    for seed in (0, 1):
        w.value = np.random.default_rng(seed).uniform(size=N)
        S = w.value[:, None] * Q * w.value
        assert problem.solve(**TIGHT) == pytest.approx(np.sqrt(np.linalg.eigvalsh(S)[-1]), rel=1e-12)


def test_repeated_rows():
    rows = np.array([0, 1, 1, 2, 0, 3, 3, 3])
    problem, _ = largest(points=X[rows])
    assert problem.solve(**TIGHT) == pytest.approx(np.sqrt(np.linalg.eigvalsh(KERNEL(X[rows]))[-1]), rel=1e-12)


def test_slopes():
    """The steepest function of unit norm on given points."""
    theta, A = ko.Theta(KERNEL), ko.FeatureMatrix(X, KERNEL)
    slopes = [A.derivative(j) @ theta for j in range(2)]
    problem = ko.Problem(cp.Maximize(cp.sum_squares(cp.hstack(slopes))), [ko.norm(theta) <= 1])
    problem.solve()
    assert problem.status == "optimal"
    steps = 1e-5 * np.eye(2)
    numeric = [(theta.value(X + h) - theta.value(X - h)) / 2e-5 for h in steps]
    assert problem.value == pytest.approx(np.sum(np.square(numeric)), rel=1e-8)


def test_the_sign():
    """The first of the largest entries of Aθ is positive."""
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(9, 2))
        problem, theta = largest(ko.kernels.Linear(), points=points)
        problem.solve()
        u = theta(points).value
        assert u[np.argmax(np.abs(u))] > 0
    # ±1 at rows that differ by rounding only
    problem, theta = largest(ko.kernels.Linear(), points=np.array([[-1.0], [1.0 + 1e-14], [0.5]]))
    problem.solve()
    assert theta([[1.0]]).value < 0


def test_an_eigenvalue_that_is_not_simple():
    """Any maximizer will do, and the next component has the same eigenvalue."""
    kernel, points = KERNELS["identity"]
    problem, theta = largest(kernel, points=points)
    assert problem.solve() == pytest.approx(1.0, rel=1e-12)
    u = theta(points).value
    again = ko.Problem(problem.objective, [*problem.constraints, u @ theta(points) == 0])
    assert again.solve() == pytest.approx(1.0, rel=1e-12)
    assert abs(u @ theta(points).value) < 1e-12
    assert problem.verify().passed


# ---------------------------------------------------------------- enclosures, ranks, units


def test_the_rank_grows_where_the_gap_asks_for_it():
    """A component so small that the trace of a factor of the default rank is not enough."""
    kernel, points = ko.kernels.Gaussian(sigma=3.0), X
    values, V = np.linalg.eigh(kernel(points))
    problem, _ = largest(kernel, constraints=lambda t: [V[:, -20:].T @ t(points) == 0], objective=cp.sum_squares)
    problem.solve()
    assert problem.status == "optimal"
    ranks = [attempt.ranks[0] for attempt in problem.solver_stats.attempts]
    assert len(ranks) > 1
    assert ranks == sorted(ranks)
    assert problem.value == pytest.approx(values[-21], rel=1e-6, abs=problem.certificate.floor)
    assert problem.certificate.floor < 1e-4 * values[-21]
    assert values[-21] < 1e-7 * values.sum()
    problem.solve(rank_tol=1e-8)
    assert len(problem.solver_stats.attempts) == 1


def test_the_value_is_that_of_the_function():
    """Predictions of a small component are recomputed from the kernel: the factor's differ by its rounding."""
    kernel = ko.kernels.Gaussian(sigma=3.0)
    V = np.linalg.eigh(kernel(X))[1]
    problem, theta = largest(kernel, constraints=lambda t: [V[:, -20:].T @ t(X) == 0])
    problem.solve(rank_tol=1e-8)
    assert problem.value == pytest.approx(np.linalg.norm(theta.value(X)), rel=1e-14, abs=0)


@pytest.mark.parametrize("bound", [True, False])
def test_a_violation_is_seen(monkeypatch, bound):
    """Nothing is called optimal or unbounded at a point that violates a constraint."""
    problem, _ = largest()
    problem = problem if bound else ko.Problem(problem.objective)
    monkeypatch.setattr("kernelopt.compiler.violations.violation", lambda *_: 1e-3)
    problem.solve()
    assert problem.status == "optimal_inaccurate"


def test_a_rank_that_is_too_low():
    problem, theta = largest()
    problem.solve(max_rank=5)
    found = problem.certificate
    assert problem.status == "optimal_inaccurate"
    assert problem.value == pytest.approx(np.linalg.norm(KERNEL(X, theta.value.centers) @ theta.value.coefficients))
    assert found.lower <= np.sqrt(np.linalg.eigvalsh(Q)[-1]) * (1 + 1e-12) <= found.upper * (1 + 1e-9)
    report = problem.verify()
    assert not report["eigen-residual"].passed
    assert not report["duality gap"].passed
    assert report["primal feasibility"].passed


def test_without_a_certificate_nothing_is_optimal():
    problem, _ = largest()
    problem.solve(certify=False)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate is None
    problem.solve(certify="estimate")
    assert problem.status == "optimal"


def test_no_time_for_a_second_attempt():
    problem, _ = largest()
    problem.solve(max_rank=3, time_limit=1e-9)
    assert problem.status == "user_limit"
    assert problem.certificate.upper > problem.value


@pytest.mark.parametrize("scale", [1e-16, 1e16, 1e-100, 1e100])
@pytest.mark.parametrize("objective", [cp.norm, cp.sum_squares])
def test_units_of_the_kernel(scale, objective):
    one, _ = largest(objective=objective)
    other, _ = largest(scale * KERNEL, objective=objective)
    power = 0.5 if objective is cp.norm else 1.0
    assert other.solve() == pytest.approx(one.solve() * scale**power, rel=1e-9, abs=0)
    assert (one.status, other.status) == ("optimal", "optimal")
    assert other.certificate.relative_gap == pytest.approx(one.certificate.relative_gap, rel=1e-3, abs=0)


@pytest.mark.parametrize("R", [1e-12, 1e12])
def test_units_of_the_radius(R):
    problem, theta = largest(R=R)
    assert problem.solve() == pytest.approx(R * np.sqrt(np.linalg.eigvalsh(Q)[-1]), rel=1e-9, abs=0)
    assert theta.value.norm == pytest.approx(R, rel=1e-12, abs=0)
    assert problem.status == "optimal"


def test_an_indefinite_matrix_that_is_clipped():
    K = Q - 0.5 * np.eye(N)
    problem, _ = largest(ko.kernels.Precomputed(K), points=np.arange(N))
    assert problem.solve(indefinite="clip") == pytest.approx(np.sqrt(np.linalg.eigvalsh(K)[-1]), rel=1e-9)
    assert problem.status == "optimal"
    assert "projected" in str(problem.certificate)
    assert "eigen-residual" not in str(problem.verify())


@pytest.mark.parametrize("max_rank", [None, 3])
def test_an_indefinite_matrix_that_is_shifted(max_rank):
    """The value is that of K + 3I, also where the factor holds three of its eigenvectors alone."""
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))[0]
    K = V * np.array([5.0, 4.0, 2.0, -3.0, *np.full(N - 4, 0.01)]) @ V.T
    problem, _ = largest(ko.kernels.Precomputed((K + K.T) / 2), points=np.arange(N))
    assert problem.solve(indefinite="shift", max_rank=max_rank) == pytest.approx(np.sqrt(8), rel=1e-9)


# ---------------------------------------------------------------- degenerate cases


@pytest.mark.parametrize("objective", [cp.norm, cp.sum_squares])
@pytest.mark.parametrize("case", ["no features", "deflated away", "radius zero", "no features, no bound"])
def test_nothing_to_gain(case, objective):
    """The optimum is 0, and so is θ."""
    theta, points = ko.Theta(ko.kernels.Linear()), X
    constraints = [ko.norm(theta) <= (0 if case == "radius zero" else 1)]
    if case == "deflated away":
        constraints.append(np.linalg.svd(X)[0][:, :2].T @ theta(X) == 0)
    if case.startswith("no features"):
        points = np.zeros((4, 2))
        constraints = constraints if case == "no features" else []
    problem = ko.Problem(cp.Maximize(objective(theta(points))), constraints)
    assert problem.solve() == 0
    assert problem.status == "optimal"
    assert theta.value.norm == 0
    assert problem.certificate.upper <= problem.certificate.floor
    assert problem.verify().passed


def test_almost_everything_deflated():
    """A rank that is larger than that of the data by rounding is not taken for a component."""
    kernel = ko.kernels.Polynomial(degree=2)
    U = np.linalg.svd(kernel.features(X))[0][:, :6]
    problem, _ = largest(kernel, constraints=lambda t: [U.T @ t(X) == 0])
    problem.solve(rank_tol=1e-13)
    assert problem.status == "optimal"
    assert problem.certificate.upper < 2e-6 * np.sqrt(np.trace(kernel(X)))


@pytest.mark.parametrize("objective", [cp.norm, cp.sum_squares, lambda u: cp.abs(u[0])])
def test_one_row(objective):
    problem, theta = largest(ko.kernels.Linear(), R=2.0, points=[[3.0]], objective=objective)
    assert problem.solve() == pytest.approx(36.0 if objective is cp.sum_squares else 6.0, rel=1e-14)
    assert theta([[1.0]]).value == pytest.approx([2.0])
    assert problem.certificate.absolute_gap <= 2e-13


def test_infeasible():
    for bound in (lambda t: ko.norm(t) <= -1, lambda t: ko.sum_squares(t) <= -1e-9):
        theta = ko.Theta(KERNEL)
        for objective, value in ((cp.Maximize(cp.norm(theta(X))), -np.inf), (cp.Minimize(-cp.norm(theta(X))), np.inf)):
            problem = ko.Problem(objective, [bound(theta)])
            assert problem.solve() == value
            assert problem.status == "infeasible"
            assert theta.value is None
            assert problem.certificate is None


def test_unbounded():
    theta = ko.Theta(KERNEL)
    for constraints in ([], [np.ones(N) @ theta(X) == 0]):
        problem = ko.Problem(cp.Maximize(cp.sum_squares(theta(X))), constraints)
        assert problem.solve() == np.inf
        assert problem.status == "unbounded"
        assert theta.value is None
    problem = ko.Problem(cp.Maximize(cp.norm(theta(X[:3]))), [theta(X) == 0])
    problem.solve()
    assert problem.status in ("optimal", "optimal_inaccurate")  # nothing is left but rounding
    assert problem.value == 0


def test_a_statement_with_a_norm_of_one_is_refused():
    theta = ko.Theta(KERNEL)
    with pytest.raises(RepresenterError, match="at the optimum of a problem that wants it large"):
        ko.Problem(cp.Maximize(cp.norm(theta(X))), [ko.norm(theta) == 1]).solve()


# ---------------------------------------------------------------- solvers, what can be asked, reports


@pytest.mark.later
def test_who_solves():
    problem, theta = largest()
    assert problem.solve(solver="spectral") > 0
    assert problem.solver_stats.solver_name == "SPECTRAL"
    assert problem.solvers()["SPECTRAL"] is None
    assert problem.solvers().applicable == ["SPECTRAL"]
    assert re.search("SPECTRAL +applies .default.", str(problem.solvers()))
    with pytest.raises(SolverError, match="CLARABEL takes convex problems only.*SPECTRAL"):
        problem.solve(solver="CLARABEL")
    with pytest.raises(OptionError, match="no solver options.*max_iter"):
        problem.solve(max_iter=3)
    with pytest.raises(SolverError, match="solved by SPECTRAL"):
        problem.get_problem_data("CLARABEL")
    convex = ko.Problem(cp.Minimize(cp.norm(theta(X) - 1)), [ko.norm(theta) <= 1])
    with pytest.raises(SolverError, match="SPECTRAL takes the spectral form only.*is convex"):
        convex.solve(solver="SPECTRAL")
    assert "spectral form only" in convex.solvers()["SPECTRAL"]
    assert convex.solvers().chosen == "CLARABEL"


def test_what_can_be_asked():
    problem, theta = largest()
    assert "SPECTRAL" in str(problem.explain())
    assert "spectral form" in str(problem.explain())
    problem.solve()
    told = str(problem.explain())
    assert "maximize  ‖A·θ‖" in told
    assert "optimal, value" in told
    assert str(problem.certificate) in told
    assert not problem.is_dcp()
    assert not problem.is_qp()
    assert problem.is_representable()
    assert str(problem.canonical_form()).startswith("maximize  ‖u‖")
    assert theta(X).dual_value is None
    assert problem.constraints[0].dual_value is None
    with pytest.raises(KernelOptError, match="spectral form"):
        problem.certificate_at({})


def test_copies():
    problem, _ = largest()
    value = problem.solve()
    twin = copy.deepcopy(problem)
    assert twin.value == value
    assert twin.solve() == pytest.approx(value, rel=1e-14)


LINES = ["A = BC", "predictions", "‖θ‖ = ‖w‖", "primal feasibility", "eigen-residual", "duality gap"]


def test_a_report():
    problem, theta = largest(constraints=lambda t: [np.ones(N) @ t(X) == 0])
    problem.solve()
    before = theta.value, problem.value
    report = problem.verify()
    assert report.passed, str(report)
    assert [c.name for c in report.checks if c.name in LINES] == LINES
    assert report.certificate.upper == pytest.approx(problem.certificate.upper, rel=1e-12)
    assert (theta.value, problem.value) == before


@pytest.mark.parametrize("constraints", [lambda t: [], lambda t: [np.ones(N) @ t(X) == 0]], ids=["free", "orthogonal"])
def test_a_report_with_explicit_features(constraints):
    """The problem in θ ∈ R² is solved beside, with and without constraints."""
    problem, _ = largest(ko.kernels.Linear(), constraints=constraints)
    problem.solve()
    report = problem.verify()
    assert report.passed and report["θ ∈ Rᵖ solved"].number < 1e-9


@pytest.mark.later
def test_an_audit():
    """The component of another library passes, a wrong one fails."""
    pca = KernelPCA(n_components=2, kernel="precomputed").fit(Q)
    problem, theta = largest(objective=lambda u: cp.norm(u - cp.mean(u)))
    for component, passes in ((0, True), (1, False)):
        alpha = MEAN @ pca.eigenvectors_[:, component] / np.sqrt(pca.eigenvalues_[component])
        theta.value = ko.Function(KERNEL, X, alpha)
        report = problem.verify()
        assert report.passed == passes, str(report)
        assert report["primal feasibility"].passed
        assert report["eigen-residual"].passed  # both are eigenvectors
        assert report["duality gap"].passed == passes
    theta.value = ko.Function(KERNEL, X, 2 * alpha)
    assert not problem.verify()["primal feasibility"].passed
    theta.value = ko.Function(KERNEL, X[:1], [1.0])
    assert problem.verify()["eigen-residual"].number > 1e-2


def test_from_an_explicit_problem():
    kernel = ko.kernels.Polynomial(degree=2)
    Phi, t = cp.Constant(kernel.features(X)), cp.Variable(6)
    explicit = cp.Problem(cp.Maximize(cp.norm(Phi @ t)), [cp.norm(t) <= 1])
    problem = ko.Problem.from_cvxpy(explicit, theta=t, features={Phi: ko.FeatureMatrix(X, kernel)})
    assert problem.solve() == pytest.approx(np.linalg.norm(Phi.value, 2), rel=1e-10)
    assert np.linalg.norm(Phi.value @ t.value) == pytest.approx(problem.value, rel=1e-10)
    assert problem.verify().passed


@pytest.mark.parametrize("A", [None, np.eye(2)])
def test_no_explicit_optimum_without_a_radius_or_features(A, monkeypatch):
    """σ_max times the radius, where p is finite and small, and ‖θ‖ bounded."""
    monkeypatch.setattr(verification, "explicit_matrix", lambda _: A)
    form = SimpleNamespace(link=None, objective_at=lambda value: value)
    for radius in (1.0, np.inf):
        numbers = SimpleNamespace(radius=radius, G=np.zeros((2, 0)), M=3.0 * np.eye(2))
        expected = None if A is None or radius == np.inf else 3.0
        assert principal_components._explicit_features(form, numbers) == expected


def test_nothing_but_the_solve_is_timed_at_first():
    """Times of the kernel, the factor and the compiler are known elsewhere."""
    stats = principal_components._stats(perf_counter())
    assert (stats.kernel_time, stats.factor_time, stats.compile_time) == (0.0, 0.0, 0.0)
