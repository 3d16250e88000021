"""What is read of a problem is what it says: beside cvxpy, for all of its atoms and at random points."""

import itertools
import sys
import warnings

import border
import cvxpy as cp
import numpy as np
import pytest
from by_cvxpy import restated
from fuzzing_border import ByHand, place_of, stated

import kernelopt as ko
from kernelopt.compiler.canonical_form import rewrite
from kernelopt.compiler.reader import Reader, read
from kernelopt.errors import DCPError


def place(problem, P):
    """Values of the columns of all variables, NaN for others."""
    x = np.full(P.n, np.nan)
    for variable in problem.variables():
        if variable.id in P.columns:
            value = variable.value.toarray() if hasattr(variable.value, "toarray") else np.asarray(variable.value)
            x[P.columns[variable.id]] = np.ravel(value, order="F")
    return x


def settled(P, x):
    """With z that functions bound, where no cone has columns of its own."""
    return P.settled(np.nan_to_num(x))


def nodes(root):
    """All nodes of a tree."""
    yield root
    parts = [root.objective.args[0], *root.constraints] if isinstance(root, cp.Problem) else root.args
    for part in parts:
        yield from nodes(part)


def minimized(problem):
    value = problem.objective.args[0].value
    return float(np.asarray(value).item()) * (-1 if isinstance(problem.objective, cp.Maximize) else 1)


def solved(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem


def draws(atom):
    """Statements by hand that are convex, real and without integers."""
    for number in range(40):
        if place_of(number) == "criterion":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = stated(number, atom, ByHand, [])
            except (ValueError, TypeError, cp.error.DCPError, cp.error.SolverError):
                continue
            problem = rewrite(cp.Problem(found.objective, found.constraints), {})
            whole = any(v.attributes["boolean"] or v.attributes["integer"] for v in problem.variables())
            real = not any(v.is_complex() for v in problem.variables())
            if problem.is_dcp() and real and not whole:
                yield problem


@pytest.mark.later
@pytest.mark.parametrize("atom", border.RECIPES)
def test_atoms(atom):
    """The optimum of what is read is that of the problem, and so is the objective there."""
    taken = 0
    for problem in itertools.islice(draws(atom), 6):
        try:
            solved(problem)
        except (cp.error.SolverError, AssertionError, TypeError, ValueError, NotImplementedError):  # cvxpy's own
            continue
        if problem.status != "optimal":
            continue
        try:
            P = read(problem)
        except DCPError:
            assert any(isinstance(node, cp.Expression) and node.is_complex() for node in nodes(problem))
            continue
        again = solved(restated(P)[0])
        assert again.status in ("optimal", "optimal_inaccurate")
        assert again.value == pytest.approx(minimized(problem), rel=1e-5, abs=1e-5), str(problem)
        taken += 1
        if taken == 2:
            break


N = 12
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(N, 2))
Y = np.sin(Z[:, 0]) + 0.3 * RNG.normal(size=N)
SIGNS, COUNTS = np.where(Y > 0, 1.0, -1.0), np.round(np.abs(3 * Y))
L = ko.losses

# Objectives of f = θ(X) + b and of F = Θ(X), three columns, with the kinds of functions that they are read as.
STATED = {
    "hinge": (lambda f, F: cp.sum(L.hinge(SIGNS, f)), {"Piecewise"}),
    "squared hinge": (lambda f, F: cp.sum(cp.square(cp.pos(1 - cp.multiply(SIGNS, f)))), {"Piecewise"}),
    "expectile": (lambda f, F: cp.sum(0.8 * cp.square(cp.pos(Y - f)) + 0.2 * cp.square(cp.neg(Y - f))), {"Piecewise"}),
    "pinball": (lambda f, F: cp.sum(L.pinball(Y, f, 0.3)), {"Piecewise"}),
    "insensitive": (lambda f, F: cp.sum(L.epsilon_insensitive(Y, f, 0.2)), {"Piecewise"}),
    "capped squares of |·|": (lambda f, F: cp.sum(cp.huber(cp.pos(cp.abs(Y - f) - 0.1), 0.5)), {"Piecewise"}),
    "logistic": (lambda f, F: cp.sum(L.log_loss(SIGNS, f)), {"Logistic"}),
    "poisson": (lambda f, F: cp.sum(L.poisson(COUNTS, f)), {"Exp"}),
    "norms of rows": (lambda f, F: cp.sum(cp.norm(F - 1, 2, axis=1)), {"Radial"}),
    "Huber's of norms": (lambda f, F: cp.sum(cp.huber(cp.norm(F - 1, 2, axis=1), 0.5)), {"Radial", "Piecewise"}),
    "multinomial": (lambda f, F: cp.sum(L.multinomial(COUNTS.astype(int) % 3, F)), {"RowLogSumExp"}),
    "Crammer-Singer": (lambda f, F: cp.sum(L.crammer_singer(COUNTS.astype(int) % 3, F)), {"Largest"}),
    "worst group": (
        lambda f, F: cp.max(cp.hstack([cp.sum(cp.square(f[i::3] - Y[i::3])) for i in range(3)])),
        {"Largest", "Piecewise"},
    ),
    "value at risk": (lambda f, F: cp.sum_largest(cp.abs(Y - f), 3) / 3, {"SumOfLargest", "Piecewise"}),
    "entropic risk": (lambda f, F: cp.log_sum_exp(cp.square(Y - f)), {"RowLogSumExp", "Piecewise"}),
    "length of residuals": (lambda f, F: cp.norm(Y - f), {"Radial"}),
    "largest residual": (lambda f, F: cp.norm_inf(Y - f), {"RowNorm"}),
    "nuclear norm": (lambda f, F: cp.normNuc(F - 1), {"Schatten"}),
    "spectral norm": (lambda f, F: cp.sigma_max(F - 1), {"Schatten"}),
    "divergence": (lambda f, F: cp.sum(cp.kl_div(1 + COUNTS, f + 9)), {"NegativeLog"}),
    "cubes": (lambda f, F: cp.sum(cp.power(cp.abs(Y - f), 3)), {"AbsolutePower", "Piecewise"}),
    "a quadratic form": (lambda f, F: cp.quad_form(f, np.diag(np.arange(N))), {"Piecewise"}),
    "Maximize": (lambda f, F: -cp.sum(cp.entr(f + 9)), {"NegativeEntropy"}),
}


def problem_of(name):
    theta, Theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(ko.kernels.Linear(), outputs=3), cp.Variable()
    objective = STATED[name][0](theta(Z) + b, Theta(Z)) + 0.1 * ko.sum_squares(theta) + 0.2 * ko.sum_squares(Theta)
    return ko.Problem(cp.Maximize(-objective) if name == "Maximize" else cp.Minimize(objective)).canonical_form().outer


@pytest.mark.parametrize("name", STATED)
def test_values_at_random_points(name):
    problem = problem_of(name)
    P = read(problem)
    assert STATED[name][1] <= {type(group.family).__name__ for group in P.groups} and not P.cones
    for _ in range(5):
        for variable in problem.variables():
            variable.save_value(np.abs(RNG.normal(size=variable.shape)))
        found = P.sums(settled(P, place(problem, P)))[0]
        assert found == pytest.approx(minimized(problem), rel=1e-13)


@pytest.mark.later
def test_other_values_of_parameters():
    """What is read again is what is read anew, and columns do not become more."""
    x, lam, y = cp.Variable(4), cp.Parameter(nonneg=True, value=1.0), cp.Parameter(4, value=np.arange(4.0))
    s = cp.Parameter(pos=True, value=2.0)
    objective = cp.sum(cp.square(cp.pos(cp.norm(x) - y))) + lam * cp.sum_squares(x)
    objective = objective + cp.lambda_max(cp.diag(x) * s) - cp.geo_mean(x + 9)
    problem = cp.Problem(cp.Minimize(objective), [cp.max(x) <= s, x[0] == y[0] * lam])
    reader = Reader(problem)
    for k in range(4):
        lam.value, y.value, s.value = 1.0 + k, np.arange(4.0) - k, 2.0 / (1 + k)
        again, anew = reader.read(), Reader(problem).read()
        assert (again.n, again.S.shape, again.S.nnz) == (anew.n, anew.S.shape, anew.S.nnz)
        values = [solved(restated(P)[0]).value for P in (again, anew)] + [solved(problem).value]
        assert values == pytest.approx([values[0]] * 3, rel=1e-6)


def test_a_node_in_two_places_is_read_once():
    x = cp.Variable(3)
    inner = cp.norm(x)
    P = read(cp.Problem(cp.Minimize(cp.exp(inner) + cp.square(inner)), [inner <= 2]))
    radial = [group for group in P.groups if type(group.family).__name__ == "Radial"]
    assert len(radial) == 1 and radial[0].weights.shape[1] == 1 + len(P.below)


@pytest.mark.parametrize(
    "stated",
    [
        lambda x, A: cp.sum(cp.square(x[:, None] + A[None, :])),
        lambda x, A: cp.sum(cp.maximum(x[:, None], A[None, :])),
        lambda x, A: cp.sum(cp.square(cp.multiply(x[:, None], A[None, :]) - 1)),
        lambda x, A: cp.sum(cp.square(x[:, None] / (3 + A[None, :]))),
        lambda x, A: cp.sum(-cp.minimum(x[:, None], A[None, :], 0.5)),
    ],
)
def test_what_is_broadcast_along_an_axis(stated):
    x, A = cp.Variable(3, value=[0.3, -1.0, 2.0]), np.array([1.0, -2.0])
    problem = cp.Problem(cp.Minimize(stated(x, A)), [x[:, None] <= 5 + np.abs(A)[None, :]])
    P = read(problem)
    sums = P.sums(settled(P, place(problem, P)))
    assert sums[0] == pytest.approx(minimized(problem), rel=1e-12)
    own = np.setdiff1d(np.arange(len(P.below)), P.bounds[:, 1])
    assert np.sort(sums[1 + own]) == pytest.approx(np.sort(np.subtract.outer(x.value, 5 + np.abs(A)).ravel()))


def test_variables_come_first():
    x, y, z = (cp.Variable(n) for n in (1, 2, 3))
    P = read(cp.Problem(cp.Minimize(cp.sum(x) + cp.norm(z - 1)), [y >= cp.exp(z[:2])]), [z, y])
    assert P.columns[z.id].tolist() == [0, 1, 2] and P.columns[y.id].tolist() == [3, 4]


def test_complex_variables_have_columns_for_both_parts():
    x = cp.Variable(2, complex=True)
    found = read(cp.Problem(cp.Minimize(cp.norm(x - 1j)), [cp.real(x) >= 1]))
    at = np.zeros(found.n)
    at[found.columns[x.id]], at[found.columns[-x.id]] = [1.0, 2.0], [1.0, 5.0]
    assert found.sums(found.settled(at))[0] == pytest.approx(np.sqrt(1 + 4 + 16))


@pytest.mark.parametrize(
    ("term", "count"),
    [
        (lambda u, t: cp.pos(cp.pos(1 - u) - t), 3),
        (lambda u, t: cp.pos(2 * cp.maximum(u, t, -u) - 1 - t), 4),
        (lambda u, t: cp.maximum(cp.pos(u) + t, cp.maximum(u, 2 * t, 0.5) - 1, -u), 6),
    ],
)
def test_maxima_of_maxima_are_maxima(term, count):
    """One function of several lines each, in place of functions within others."""
    u, t = cp.Variable(5, name="u"), cp.Variable(name="t")
    problem = cp.Problem(cp.Minimize(cp.sum(term(u, t))))
    P = read(problem, [u, t])
    assert not len(P.below) and {(type(g.family).__name__, g.rows.shape[1]) for g in P.groups} == {
        ("Largest", count - 1)
    }
    rng = np.random.default_rng(0)
    for _ in range(20):
        u.value, t.value = rng.normal(size=5), rng.normal()
        assert P.sums(P.settled(place(problem, P)))[0] == pytest.approx(minimized(problem), rel=1e-12, abs=1e-12)


def test_a_function_that_a_maximum_has_twice_is_in_one_constraint():
    u, t = cp.Variable(5, name="u"), cp.Variable(name="t")
    inner = cp.pos(cp.maximum(cp.pos(u), t) - np.arange(5.0))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.square(cp.maximum(inner, 2 * inner - 1.64, 0.1)))))
    P = read(problem, [u, t])
    assert all(np.all(np.diff(g.weights.indptr) == 1) for g in P.groups)
    rng = np.random.default_rng(0)
    for _ in range(20):
        u.value, t.value = 3 * rng.normal(size=5), rng.normal()
        assert P.sums(settled(P, place(problem, P)))[0] == pytest.approx(minimized(problem), rel=1e-12, abs=1e-12)


def test_maxima_of_many_lines_stay_within_others():
    u, t = cp.Variable((3, 9)), cp.Variable()
    problem = cp.Problem(cp.Minimize(cp.sum(cp.pos(cp.max(u, axis=1) - t))))
    assert len(read(problem, [u, t]).below) == 3


def in_loops(kind, f, F, z):
    """Sums that are written row by row, with other weights and constants in each."""
    rows = range(6)
    match kind:
        case "absolute values":
            return cp.sum([(1 + i) * cp.abs(f[i] - i) for i in rows]) + 2 * cp.norm1(f)
        case "norms of rows":
            return cp.sum([(1 + i) * cp.norm(F[i] - i) for i in rows]) + cp.sum(cp.norm(F, 2, axis=1))
        case "maxima":
            return cp.sum([cp.max(F[i]) for i in rows]) + cp.sum(cp.max(F, axis=1))
        case "exponentials":
            return cp.sum([cp.exp(f[i]) + (2 + i) * cp.logistic(f[i]) for i in rows])
        case "ratios":
            return cp.sum(
                [cp.quad_over_lin(F[i], z[i] + 1) + cp.quad_over_lin(F[i] - 1, cp.sqrt(z[i] + 1)) for i in rows]
            )
        case _:
            return cp.sum([cp.maximum(cp.abs(f[i]), 2 * f[i] - 1, cp.norm(F[i])) for i in rows])


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("absolute values", 1), ("norms of rows", 1), ("maxima", 1), ("exponentials", 2), ("ratios", 2), ("others", 4)],
)
def test_functions_of_one_kind_are_one_group(monkeypatch, kind, groups):
    """A problem in loops, as one that is written with arrays; those of constraints stay apart."""
    monkeypatch.setattr(sys.modules["kernelopt.compiler.reader"], "RATIOS", 0)
    f, F, z = cp.Variable(6), cp.Variable((6, 3)), cp.Variable(6)
    problem = cp.Problem(cp.Minimize(in_loops(kind, f, F, z)), [cp.abs(f[0]) + cp.square(z[i]) <= 4 for i in range(6)])
    P = read(problem)
    assert len(P.groups) <= groups + 2
    rng = np.random.default_rng(1)
    for _ in range(5):
        f.value, F.value, z.value = rng.normal(size=6), rng.normal(size=(6, 3)), rng.uniform(-0.5, 2, size=6)
        sums = P.sums(settled(P, place(problem, P)))
        assert sums[0] == pytest.approx(problem.objective.value, rel=1e-12)
        assert P.settled(np.nan_to_num(place(problem, P))).shape == (P.n,)


def test_groups_of_several_nodes_follow_parameters():
    """Other weights and other constants, of which one changes which functions weigh anything."""
    x, w, y = cp.Variable(4), cp.Parameter(4, nonneg=True), cp.Parameter(4)
    problem = cp.Problem(cp.Minimize(cp.sum([w[i] * cp.abs(x[i] - y[i]) for i in range(4)]) + cp.sum(cp.abs(x))))
    reader, rng = Reader(problem), np.random.default_rng(2)
    for weights in ([1, 2, 3, 4], [0, 1, 0, 2], [5, 5, 5, 5]):
        w.value, y.value, x.value = np.array(weights, dtype=float), rng.normal(size=4), rng.normal(size=4)
        P = reader.read()
        assert P.sums(settled(P, place(problem, P)))[0] == pytest.approx(problem.objective.value, rel=1e-12)


RATIOS = {
    "a scale": lambda e, s, z: cp.quad_over_lin(e, z) + 3 * z,
    "a scale that is concave": lambda e, s, z: cp.quad_over_lin(e, cp.sqrt(z)) + 3 * z,
    "rows over rows": lambda e, s, z: cp.sum([cp.quad_over_lin(e[i], s[i]) for i in range(8)]) - cp.sum(cp.log(s)),
    "of absolute values": lambda e, s, z: cp.quad_over_lin(cp.abs(e), z + 1) + cp.square(z),
    "within a maximum": lambda e, s, z: cp.maximum(cp.quad_over_lin(e, z), cp.norm1(e)) + z,
    "that is 0": lambda e, s, z: cp.quad_over_lin(e - e, z) + cp.quad_over_lin(z, z + 2) + cp.sum_squares(e),
    "columns": lambda e, s, z: cp.sum(cp.quad_over_lin(cp.reshape(e, (2, 4), order="F"), z, axis=0)) + z,
}


@pytest.mark.parametrize(("fewest", "solver"), [(0, None), (0, "METHOD_OF_MULTIPLIERS"), (30, None)])
@pytest.mark.parametrize("name", RATIOS)
def test_squares_over_what_is_no_constant(monkeypatch, name, solver, fewest):
    """Beside cvxpy by hand, in the objective and as a bound; as functions, and as cvxpy's cones."""
    monkeypatch.setattr(sys.modules["kernelopt.compiler.reader"], "RATIOS", fewest)
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, (8, 2)), rng.normal(size=8)
    kernel = ko.kernels.Gaussian(sigma=0.8)
    B = np.linalg.cholesky(kernel(X) + 1e-13 * np.eye(8))
    # Bounds that do not bind are left to whichever solver proves them.
    for bound in (False, True) if solver is None else (False,):
        values = []
        for ours in (True, False):
            theta, W, z = ko.Theta(kernel, outputs=2), cp.Variable((8, 2)), cp.Variable()
            F = theta(X) if ours else B @ W
            square = ko.sum_squares(theta) if ours else cp.sum_squares(W)
            s = F[:, 1] + 1.5
            h = RATIOS[name](cp.multiply(y, s) - F[:, 0], s, z)
            cost, constraints = (cp.sum(cp.abs(F[:, 0] - y)) + square, [h <= 6]) if bound else (h + square, [])
            if ours:
                problem = ko.Problem(cp.Minimize(cost), constraints)
                problem.solve(solver=solver)
                assert problem.status == "optimal"
                values.append(problem.value)
            else:
                values.append(solved(cp.Problem(cp.Minimize(cost), constraints)).value)
        assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("count", [0.3, 1, 1.5, 4.2, 4.7, 5])
@pytest.mark.parametrize("loss", [cp.abs, cp.square, lambda e: e], ids=["abs", "square", "plain"])
def test_shares_of_the_largest_and_of_the_least(loss, count):
    """In the objective, for less than one entry and for nearly all of them, too."""
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-1, 1, (5, 2)), rng.normal(size=5)
    kernel = ko.kernels.Gaussian(sigma=0.8)
    theta, w, B = ko.Theta(kernel), cp.Variable(5), np.linalg.cholesky(kernel(X) + 1e-13 * np.eye(5))
    problem = ko.Problem(cp.Minimize(cp.sum_largest(loss(y - theta(X)), count) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    by_hand = solved(cp.Problem(cp.Minimize(cp.sum_largest(loss(y - B @ w), count) + 0.3 * cp.sum_squares(w))))
    assert problem.status == "optimal" and problem.value == pytest.approx(by_hand.value, rel=1e-6)
