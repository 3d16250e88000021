"""Atoms of cvxpy beside plain cvxpy with Bw for Aθ; `make fuzz-border` draws many more, each in its own process."""

import warnings

import border
import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms.suppfunc import SuppFunc
from fuzzing_border import judged
from scipy.optimize import minimize
from stating import TIGHT

import kernelopt as ko
from kernelopt.compiler.residuals import relative_violation, residual
from kernelopt.errors import DataError, DCPError, SolverError
from kernelopt.support.cvxpy_parts import in_real_numbers

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(1).normal(size=8)


def test_each_atom_of_cvxpy_has_a_recipe():
    assert set(border.atoms()) == set(border.RECIPES)


@pytest.mark.later
@pytest.mark.parametrize("number", [30, 37, 44, 55, 87, 99, 133])
def test_sample(number):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cvxpy
        found = judged(number, border.atoms()[number % len(border.atoms())])
    assert found.verdict in ("right", "refused"), found


def by_hand(term, bound=None):
    """The optimum with BBᵀ = Q, of term(f) + 0.1‖θ‖², or of term(f) where ‖θ‖ ≤ bound."""
    B, w = np.linalg.cholesky(ko.kernels.Gaussian(sigma=1.0)(X) + 1e-13 * np.eye(8)), cp.Variable(8)
    cost = 0.0 if bound else 0.1 * cp.sum_squares(w)
    problem = cp.Problem(cp.Minimize(term(B @ w) + cost), [cp.norm(w) <= bound] if bound else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it may be inaccurate, at these tolerances
        return problem.solve(solver="CLARABEL", **TIGHT)


TERMS = {
    "rel_entr": lambda f: cp.sum(cp.rel_entr(5 + Y - f, 5)),
    "rel_entr of a constant": lambda f: cp.sum(cp.rel_entr(5, 6 + Y - f)),
    "rel_entr of both": lambda f: cp.sum(cp.rel_entr(5 + Y - f, 4 + f)),
    "kl_div": lambda f: cp.sum(cp.kl_div(5 + Y - f, 5)),
    "entr": lambda f: -cp.sum(cp.entr(3 + Y - f)),
    "xexp": lambda f: cp.sum(cp.xexp(1 + 0.3 * cp.abs(Y - f))),
    "geo_mean": lambda f: -cp.geo_mean(5 + Y - f, approx=False),
    "harmonic_mean": lambda f: -cp.harmonic_mean(5 + Y - f),
    "inv_pos": lambda f: cp.sum(cp.inv_pos(4 + Y - f)),
    "log_sum_exp": lambda f: cp.log_sum_exp(cp.abs(Y - f)),
    "quad_over_lin": lambda f: cp.quad_over_lin(Y - f, 3 + f[0]),
    "log_det": lambda f: -cp.log_det(3 * np.eye(3) + cp.diag(f[:3])),
    "pnorm": lambda f: cp.pnorm(Y - f, 2.5),
}


@pytest.mark.one_row
@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("name", TERMS)
def test_bounds_of_cones(name, bound):
    """Multipliers at the boundary of their cones prove an enclosure."""
    theta, term = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), TERMS[name]
    f = theta(X)
    cost = 0.0 if bound else 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(term(f) + cost), [ko.norm(theta) <= bound] if bound else [])
    problem.solve()
    truth = by_hand(term, bound)
    slack = 1e-7 * max(1.0, abs(truth))
    assert problem.status == "optimal"
    assert problem.certificate.lower - slack <= truth <= problem.certificate.upper + slack


@pytest.mark.slow
def test_a_support_function_and_a_perspective():
    """Both hold expressions that are no arguments."""
    a, s, x = cp.Variable(3), cp.Variable(nonneg=True), cp.Variable(8)

    def cost(f):
        return SuppFunc(a, [cp.norm(a) <= 1])(f[:3] - 1.0) + cp.sum_squares(Y - f)

    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cost(theta(X)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.value == pytest.approx(by_hand(cost), abs=1e-6)
    rows = [x == Y - theta(X), s >= 0.5, s <= 2]
    problem = ko.Problem(cp.Minimize(cp.perspective(cp.sum_squares(x), s) + 0.1 * ko.sum_squares(theta)), rows)
    problem.solve()  # ‖x‖²/s, and s = 2 is the best
    assert problem.value == pytest.approx(by_hand(lambda f: cp.sum_squares(Y - f) / 2), abs=1e-6)


def test_a_perspective_has_no_value_at_0():
    """cvxpy's asserts that there is a recession function; the user's own expression is not changed."""
    s, x, theta = cp.Variable(nonneg=True), cp.Variable(2), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    stated = cp.perspective(cp.sum_squares(x), s)
    loss = cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [stated <= 1.1, x == theta(X[:2]) + 1])
    problem.solve()
    assert problem.status == "optimal" and s.value * 1.1 >= np.sum(x.value**2) * (1 - 1e-6)
    [constraint] = [c for c in problem._factored.reduction.form.outer.constraints if not c.args[0].is_affine()]
    for v in constraint.variables():
        v.save_value(np.zeros(v.shape))
    assert np.isinf(residual(constraint)).all() and relative_violation(constraint, {}, {}) == np.inf
    s.value, x.value = 0.0, np.zeros(2)
    with pytest.raises(AssertionError, match="recession"):
        stated.value


def test_what_cvxpy_cannot_compile_is_named():
    """cvxpy itself ends in a bare NotImplementedError."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(cp.real(theta(X)) - Y) + ko.sum_squares(theta)))
    with pytest.raises(ko.errors.SolverError, match="could not compile .*real"):
        problem.solve()


def test_what_ends_in_an_error_of_cvxpy_is_named():
    """cvxpy asks for the value of a support function within a maximum, which has none before its argument has one."""
    a, v, theta = cp.Variable(3), cp.Variable((2, 2), symmetric=True), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    entries = cp.vec(v, order="F")[1:]
    largest = cp.maximum(SuppFunc(a, [cp.norm(a) <= 1])(entries), 0.3)
    problem = ko.Problem(cp.Minimize(largest + cp.sum_squares(theta(X[:3]) - entries) + ko.sum_squares(theta)))
    with pytest.raises(ko.errors.SolverError, match="could not compile .*SuppFuncAtom"):
        problem.solve()
    assert "AttributeError" in problem.solvers()["CLARABEL"]


@pytest.mark.later
@pytest.mark.parametrize("solver", [None, "CLARABEL"])
def test_fractions_of_largest_entries_again(solver):
    """cvxpy's graph form fails where its argument has a value, as it has once the problem was solved."""
    theta, p = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(3, value=np.zeros(3))
    objective = cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective + cp.cvar(theta(X[:3]) - p, 0.1)))
    first = problem.solve(solver=solver)
    p.value = np.ones(3)
    assert problem.solve(solver=solver) == pytest.approx(first - 1, rel=1e-5)


@pytest.mark.parametrize("count", [6, 9])
def test_as_many_largest_as_there_are_and_more(count):
    """Their value is the sum of all, where their cones have no least one."""
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6.0)
    parts = {
        "sum": lambda r: (cp.sum_largest(cp.abs(r), count), cp.norm1(r)),
        "affine": lambda r: (cp.sum_largest(r, count) + 2 * cp.norm1(r), cp.sum(r) + 2 * cp.norm1(r)),
        "smallest": lambda r: (2 * cp.norm1(r) - cp.sum_smallest(r, count), 2 * cp.norm1(r) - cp.sum(r)),
        "axis": lambda r: (cp.sum(cp.sum_largest(cp.abs(cp.vstack([r, -r])), count, axis=1)), 2 * cp.norm1(r)),
        "eigenvalues": lambda r: (cp.norm1(r) + cp.lambda_sum_largest(cp.diag(r), count), cp.norm1(r) + cp.sum(r)),
    }  # fmt: skip
    for name, part in parts.items():
        values = []
        for which in (0, 1):
            theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
            problem = ko.Problem(cp.Minimize(part(theta(X) - y)[which] + ko.norm(theta)))
            values.append(problem.solve())
            assert problem.status == "optimal", name
        assert values[0] == pytest.approx(values[1], rel=1e-6), name


def test_a_finite_set_is_refused_with_its_booleans():
    theta, v = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.norm1(theta(np.arange(3.0)[:, None]) - v) + ko.norm(theta)
    with pytest.raises(DCPError, match="State it by booleans"):
        ko.Problem(cp.Minimize(loss), [cp.constraints.FiniteSet(v, np.array([0.0, 1.0]))]).solve()


@pytest.mark.parametrize("slope", [0.05, 0.1])
def test_linear_losses_beside_a_norm_that_keeps_theta_at_0(slope):
    """The value is a constant, to its last digit, and no term has a size."""
    X, y = np.random.default_rng(0).normal(size=(10, 2)), np.random.default_rng(1).normal(size=10)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(slope * cp.sum(f - y) + ko.norm(theta)), [f >= -2])
    assert problem.solve() == pytest.approx(-slope * y.sum(), rel=1e-12) and problem.status == "optimal"


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("attribute", [{"imag": True}, {"hermitian": True}])
def test_support_functions_beside_complex_variables_are_refused_by_name(attribute, within):
    # cvxpy copies all expressions of such a problem, and a support function has no copy.
    u = cp.Variable(2)
    longest, v = SuppFunc(u, [cp.norm1(u) <= 1]), cp.Variable((2, 2), **attribute)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    part = cp.imag(v) if "imag" in attribute else cp.real(v)
    here = theta(X[:2]) + part[0] if within else theta(X[:2])
    loss = cp.sum_squares(Y - theta(X) - np.ones((8, 4)) @ cp.vec(part, order="F")) + longest(here)
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    with pytest.raises(SolverError, match=r"SuppFuncAtom.*No other installed solver takes it\."):
        problem.solve()


def test_squares_of_imaginary_variables_are_refused_by_name():
    """cvxpy does not compile them. |x|² of complex ones is that of both parts, along an axis too."""
    v, theta = cp.Variable(2, imag=True), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = cp.sum_squares(Y - theta(X) - np.ones((8, 2)) @ cp.imag(v)) + cp.sum_squares(v)
    with pytest.raises(SolverError, match=r"quad_over_lin.*State it with other atoms"):
        ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).solve()
    z = cp.Variable((2, 3), complex=True)
    for x, value in ((z, np.array([[1, 2j, 3], [1j, 1 + 1j, 2]])), (v, np.array([1j, 3j]))):
        for axis in (None, 0, 1)[: x.ndim + 1]:
            found, parts = in_real_numbers(cp.Problem(cp.Minimize(cp.max(cp.quad_over_lin(x, 2.0, axis=axis)))))
            for part in found.variables():
                part.value = value.imag if parts[part.id] < 0 else value.real
            expected = np.max(np.sum(np.abs(value) ** 2, axis=axis) / 2)
            assert found.objective.value == pytest.approx(expected)


@pytest.mark.parametrize(
    "term",
    [
        lambda f: cp.sum(cp.power(f - Y, 4)),
        lambda f: cp.sum((Y - f) ** 8),
        lambda f: cp.sum(cp.power(f - Y, 6, approx=False)),
    ],
)
def test_even_powers_have_all_numbers(term):
    """cvxpy says that some of them have numbers from 0 on only, and solves for all."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(term(theta(X)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(by_hand(term), rel=1e-6)
    assert (theta(X).value < Y).any() and (theta(X).value > Y).any()


def test_an_even_power_in_a_constraint():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(ko.norm(theta)), [cp.power(f - Y, 4) <= 1e-3])
    other = ko.Problem(cp.Minimize(ko.norm(theta)), [cp.abs(f - Y) <= 1e-3**0.25])
    assert problem.solve() == pytest.approx(other.solve(), rel=3e-6) and problem.status == "optimal"


def test_norms_of_high_order_do_not_underflow():
    """Residuals of 1e-8 to the power of 60 are 0 in double precision, and their norm is not."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.pnorm(theta(X) - Y, 60, approx=False) + 1e-3 * ko.norm(theta)))
    problem.solve()
    interpolant = 1e-3 * np.sqrt(Y @ np.linalg.solve(ko.kernels.Gaussian(sigma=1.0)(X), Y))
    assert problem.value <= interpolant * (1 + 1e-6)


@pytest.mark.parametrize(
    "constraint", [lambda z: z[0, 0] <= 0.2, lambda z: z[0, 0] == 0.2, lambda z: z[1] <= 0.1, lambda z: z[0, 1] <= 1]
)
def test_entries_of_a_diagonal_variable(constraint):
    """cvxpy can't index the sparse matrix that it makes of its value."""
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable((2, 2), diag=True)
    objective = cp.sum_squares(theta(X) + z[0, 0] - Y) + ko.sum_squares(theta) + cp.sum_squares(z - np.eye(2))
    problem = ko.Problem(cp.Minimize(objective), [constraint(z)])
    problem.solve()
    w, d = cp.Variable(8), cp.Variable(2)
    B = np.linalg.cholesky(ko.kernels.Gaussian(sigma=1.0)(X) + 1e-13 * np.eye(8))
    other = cp.Problem(
        cp.Minimize(cp.sum_squares(B @ w + d[0] - Y) + cp.sum_squares(w) + cp.sum_squares(d - 1)),
        [constraint(cp.diag(d))],
    )
    assert problem.status == "optimal" and problem.value == pytest.approx(other.solve(solver="CLARABEL"), rel=1e-6)
    assert z.value.diagonal() == pytest.approx(d.value, abs=1e-4)


@pytest.mark.parametrize("small", [1e-160, 1e-300])
def test_coefficients_whose_squares_underflow_are_refused(small):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    with pytest.raises(DataError, match="times the coefficients beside them"):
        ko.Problem(cp.Minimize(cp.norm1(small * theta(X) - Y) + ko.sum_squares(theta))).solve()


def test_marked_entries_of_another_form_are_refused():
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(3, integer=[(0,), (1,)])
    with pytest.raises(DataError, match=r"one sequence for each of its axes.*\[\(0,\), \(1,\)\]"):
        ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta) + cp.sum_squares(z - 0.4))).solve()


def test_fractions_by_a_singular_matrix():
    """cvxpy has no value of xᵀM⁻¹x at a singular M, where the answer is."""
    X, y = np.linspace(0, 1, 4)[:, None], np.array([0.3, -0.2, 0.5, 0.1])
    theta, M = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable((4, 4), PSD=True)
    loss = cp.matrix_frac(theta(X) - y, M) + cp.trace(M)
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.value == pytest.approx(0.829838, abs=1e-5)


@pytest.mark.parametrize(
    ("inner", "value"), [(lambda x: cp.power(x, 3), 1.0925926), (lambda x: cp.power(x, 1.5), 1.2150632),
                         (cp.inv_pos, 0.7372635), (lambda x: -cp.sqrt(x), -0.2359933)],
)  # fmt: skip
def test_perspectives_of_powers(inner, value):
    """cvxpy's graph form of a perspective takes no power cones. s·f(x/s) + s + d² with x = 1 − d, by scipy."""
    theta, s, x = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable(nonneg=True), cp.Variable()
    f = theta(np.array([[0.0]]))[0]
    loss = cp.perspective(inner(x), s) + s
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)), [x == f + 1, s >= 0.5])
    problem.solve()

    def by_hand(at):
        x, s = at
        return float(s * inner(cp.Constant(x / s)).value + s + (x - 1) ** 2)

    found = minimize(by_hand, [0.5, 0.6], bounds=[(1e-6, 3), (0.5, 3)], tol=1e-12)
    assert problem.value == pytest.approx(found.fun, abs=1e-5)
    assert problem.value == pytest.approx(value, abs=1e-6)
