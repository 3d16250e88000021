"""Bounds proven on pieces: close to the optimum from a solver's multipliers, and never above it."""

from dataclasses import replace
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from by_cvxpy import multipliers

import kernelopt as ko
from kernelopt.certificate.claim import Dual, Link, Norm, still
from kernelopt.certificate.pieces_checker import free_columns, lower, stationarity, upper
from kernelopt.compiler.reader import read
from kernelopt.support.arithmetic import UNIT, gamma

N = 10
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
SIGNS, COUNTS = np.where(Y > 0, 1.0, -1.0), np.round(np.abs(3 * Y))
KERNEL = ko.kernels.Gaussian(sigma=1.0)
L = ko.losses

# Objectives of f = θ(X) and F = Θ(X), of three columns, without columns that are free, and constraints.
STATED = {
    "hinge": (lambda f, F: (cp.sum(L.hinge(SIGNS, f)), [])),
    "squares": (lambda f, F: (cp.sum_squares(Y - f), [])),
    "pinball": (lambda f, F: (cp.sum(L.pinball(Y, f, 0.3)), [])),
    "Huber": (lambda f, F: (cp.sum(cp.huber(Y - f, 0.3)), [])),
    "logistic": (lambda f, F: (cp.sum(L.log_loss(SIGNS, f)), [])),
    "poisson": (lambda f, F: (cp.sum(L.poisson(COUNTS, f)), [])),
    "norms of rows": (lambda f, F: (cp.sum(cp.norm(F - 1, 2, axis=1)), [])),
    "multinomial": (lambda f, F: (cp.sum(L.multinomial(COUNTS.astype(int) % 3, F)), [])),
    "Crammer-Singer": (lambda f, F: (cp.sum(L.crammer_singer(COUNTS.astype(int) % 3, F)), [])),
    "value at risk": (lambda f, F: (cp.sum_largest(cp.abs(Y - f), 3), [])),
    "entropic risk": (lambda f, F: (cp.log_sum_exp(cp.abs(Y - f)), [])),
    "Huber's of norms": (lambda f, F: (cp.sum(cp.huber(cp.norm(F - 1, 2, axis=1), 0.5)), [])),
    "length of residuals": (lambda f, F: (cp.norm(Y - f), [])),
    "nuclear norm": (lambda f, F: (cp.normNuc(F - 1), [])),
    "cubes": (lambda f, F: (cp.sum(cp.power(cp.abs(Y - f), 3)), [])),
    "inequalities": (lambda f, F: (cp.sum_squares(Y - f), [f >= -0.2, cp.sum(f) <= 1])),
    "an equation": (lambda f, F: (cp.sum(cp.abs(Y - f)), [f[0] + f[1] == 0.5])),
    "a norm that is bounded": (lambda f, F: (cp.sum_squares(Y - f), [cp.norm(f) <= 1])),
    "a constant": (lambda f, F: (cp.sum(L.hinge(SIGNS, f)) + 1e3, [])),
}


def thetas_of(form, P):
    """For each θ: its columns (N, K), B, the column of its norm, and which rows of the kernel matrix it takes."""
    found = []
    for link in form.predictions:
        columns = P.columns[link.u.id].reshape(-1, link.theta.outputs or 1, order="F")
        [norm] = (n for n in form.norms if n.view.theta is link.theta)
        eigenvalues, V = np.linalg.eigh(KERNEL(X))
        B = (V * np.sqrt(np.maximum(eigenvalues, 0)))[link.take]
        found.append((columns, B, int(P.columns[norm.t.id][0]), link.take))
    return found


class Case:
    """A stated problem, its pieces, the links of its θ, and a solver's optimum and multipliers."""

    def __init__(self, name, scale=1.0):
        form = self.form(name, scale)
        self.P = read(form.outer)
        self.thetas = thetas_of(form, self.P)
        self.optimum, a = multipliers(self.P, [theta[:3] for theta in self.thetas])
        self.a = self.inside(a)

    @staticmethod
    def form(name, scale=1.0):
        theta, Theta = ko.Theta(KERNEL), ko.Theta(KERNEL, outputs=3)
        loss, constraints = STATED[name](theta(X), Theta(X))
        loss = loss + 0.1 * cp.sum(theta(X)) - 0.05 * cp.sum(Theta(X))
        penalty = 0.3 * ko.sum_squares(theta) + 0.2 * ko.sum_squares(Theta)
        return ko.Problem(cp.Minimize(scale * (loss + penalty)), constraints).canonical_form()

    def inside(self, a):
        """Multipliers in their domains, and what curved costs of norms need."""
        P, twins = self.P, self.P.twins
        a = a.copy()
        own = np.setdiff1d(P.below, np.flatnonzero(twins.row != np.arange(len(a))))
        a[own] = np.maximum(a[own], 0)
        for _ in range(5):
            a = twins.sign * a[twins.row]
            for group in P.groups:
                w = group.weights @ np.concatenate([[1.0], np.maximum(a[P.below], 0)])
                share = 1.0 if not group.weights[:, 1:].nnz else 1 - 1e-13
                a[group.rows] = group.family.nearest(a[group.rows], share * w)
        a = twins.sign * a[twins.row]
        g, e = stationarity(P, still(a), np.zeros(len(a)))
        for link in self.links(a):  # squares of t alone: their multiplier may be larger
            length, t = np.sqrt(max(np.trace(link.gram), 0)), link.norms[0].column
            need = length * (1 + 1e-9) - g[t] + 2 * e[t]
            rows, values = P.by_columns[:, [t]].nonzero()[0], P.by_columns[:, [t]].data
            for row, value in zip(rows, values, strict=True):
                if need > 0 and np.diff(P.S.indptr)[row] == 1 and value > 0 and row not in P.below:
                    a[row] += need / value
                    break
        return a

    def links(self, a):
        g, _ = stationarity(self.P, still(a), np.zeros(len(a)))
        Q, found = KERNEL(X), []
        sizes = np.sqrt(np.diag(Q)) * (1 + 4 * UNIT)
        for columns, _, t, take in self.thetas:
            K, V = columns.shape[1], np.zeros((N, columns.shape[1]))
            np.add.at(V, take, -g[columns])
            size = sizes @ np.abs(V)
            error = (64 * UNIT + gamma(2 * N + 4)) * np.outer(size, size)
            norm = Norm(t, "fro", np.eye(K), slice(0, K), slice(K, K))
            found.append(Link(columns, take, sizes, (norm,), V, V.T @ Q @ V, error, np.eye(K)))
        return found

    def balanced(self, a):
        """Each free column z vanishes by the multiplier of the row that bounds it, up to a rounding: its radius."""
        P, a = self.P, a.copy()
        free = free_columns(P, self.links(a)).columns
        own = np.array([P.below[P.bounds[P.bounds[:, 0] == z][0, 1]] for z in free], dtype=int)
        for _ in range(3):
            a = P.twins.sign * a[P.twins.row]
            a[own] += P.by_columns[:, free].T @ a + P.c[free]
            for group in P.groups:  # whose weights are these multipliers, with room for the radius
                if group.weights[:, 1:].nnz:
                    w = group.weights @ np.concatenate([[1.0], np.maximum(a[P.below], 0)])
                    a[group.rows] = group.family.nearest(a[group.rows], w * (1 - 1e-10))
        radius, none = np.zeros(len(a)), np.arange(0)
        radius[own] = 1e-12 * (1 + np.abs(a[own]))
        inverse = sp.csr_array(-sp.eye_array(len(free)))
        place = np.arange(len(free))
        return Dual(a, radius, own, place, inverse, none, sp.csc_array((len(free), 0)))

    def bound(self, a):
        P = self.P
        if len(free_columns(P, self.links(a)).columns):
            dual = self.balanced(a)
            return lower(P, self.links(dual.z), dual)
        return lower(P, self.links(a), still(a))


@pytest.mark.later
@pytest.mark.parametrize("name", STATED)
def test_bounds_are_close_and_never_above(name):
    case = Case(name)
    found = case.bound(case.a)
    assert found.missing == ""
    assert case.optimum - 2e-6 * (1 + abs(case.optimum)) <= found.value <= case.optimum + 1e-9 * (1 + abs(case.optimum))
    finite = 0
    for size in (1e-8, 1e-4, 1e-2, 1.0):
        for _ in range(5):
            moved = case.bound(case.inside(case.a + size * RNG.normal(size=len(case.a))))
            finite += np.isfinite(moved.value)
            assert moved.value <= case.optimum + 1e-9 * (1 + abs(case.optimum))
    assert finite


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_the_objective(scale):
    case = Case("logistic", scale)
    assert case.bound(case.a).value == pytest.approx(case.optimum, rel=1e-5)


@pytest.mark.parametrize("k", [-480, 480])
def test_units_far_from_one(k):
    """The objective and its multipliers times 2ᵏ, where squares of multipliers under- or overflow."""
    case = Case("value at risk")
    P, dual = case.P, case.balanced(case.a)
    plain = lower(P, case.links(dual.z), dual)
    groups = []
    for group in P.groups:
        W = group.weights.copy()
        W.data = np.where(W.indices == 0, np.ldexp(W.data, k), W.data)
        groups.append(replace(group, weights=W))
    scaled = replace(P, c=np.ldexp(P.c, k), c0=float(np.ldexp(P.c0, k)), groups=tuple(groups))
    links = [
        link._replace(V=np.ldexp(link.V, k), gram=link.gram * 4.0**k, error=link.error * 4.0**k)
        for link in case.links(dual.z)
    ]
    moved = replace(dual, z=np.ldexp(dual.z, k), radius=np.ldexp(dual.radius, k))
    found = lower(scaled, links, moved)
    assert found.missing == "" and found.value == pytest.approx(np.ldexp(plain.value, k), rel=1e-9)


def test_what_is_not_proven_has_a_reason():
    case = Case("hinge")
    P, row = case.P, int(case.P.groups[0].rows[0, 0])
    beyond = case.a.copy()
    beyond[row] = np.nextafter(P.groups[0].weights.data[0], 2)
    for a, why in (
        (beyond, "domain of Piecewise"),
        (np.where(np.arange(len(case.a)) == row, np.nan, case.a), "not finite"),
        (np.append(case.a, 0.0), "not those of the rows"),
    ):
        dual = still(a)
        assert why in lower(P, case.links(case.a), dual).missing
    short = [link._replace(gram=4 * link.gram) for link in case.links(case.a)]
    assert "exceeds what its norm costs" in lower(P, short, still(case.a)).missing
    none = [link._replace(norms=()) for link in case.links(case.a)]
    assert "does not vanish" in lower(P, none, still(case.a)).missing
    both = [*case.links(case.a), *case.links(case.a)]
    assert "two owners" in lower(P, both, still(case.a)).missing


def test_inequalities_have_multipliers_of_their_sign():
    case = Case("inequalities")
    a = case.a.copy()
    a[case.P.below[0]] = -1e-300
    assert "negative" in case.bound(a).missing


def test_twins_have_one_multiplier():
    case = Case("value at risk")
    twins = case.P.twins
    own = np.flatnonzero(twins.row != np.arange(len(case.a)))
    assert len(own) and twins.settled.sum() == len(own)
    a = case.a.copy()
    a[own[0]] = np.nextafter(a[own[0]], 2)
    assert "twins" in lower(case.P, case.links(a), still(a)).missing


def test_cones_have_multipliers_in_their_dual_cones():
    """min t over (t, v − 3, 4) in the second-order cone, which is 4."""
    t, v = cp.Variable(), cp.Variable()
    P = read(cp.Problem(cp.Minimize(t), [cp.SOC(t, cp.hstack([v - 3, 4]))]))
    signs = {end: lower(P, [], still(np.array([-1.0, 0.0, end]))) for end in (1 - 1e-12, 1 + 1e-12)}
    found, outside = signs.values()
    assert 4 - 1e-11 < found.value <= 4
    assert "dual cone" in outside.missing
    moved = lower(P, [], still(np.array([-1.0, 1e-3, 0.9])))
    assert "does not vanish" in moved.missing


# A number t in a cone with constants.
CONES = {
    "psd": lambda t: t * np.eye(3) - MATRIX >> 0,
    "exp": lambda t: cp.ExpCone(cp.Constant([1.0]), cp.Constant([1.0]), cp.reshape(t, (1,), order="F")),
    "power": lambda t: cp.PowCone3D(cp.reshape(t, (1,), order="F"), cp.Constant([1.0]), cp.Constant([2.0]), 0.5),
}
MATRIX = np.array([[1.0, 2.0, -0.5], [2.0, 0.3, 0.7], [-0.5, 0.7, -1.0]])


def _multipliers_of_cone(kind):
    """The least t, and z in the dual cone whose entry for t is 1 (for a matrix, tr Z = 1)."""
    if kind == "psd":
        eigenvalues, V = np.linalg.eigh(MATRIX)
        Z = (1 - 3e-13) * np.outer(V[:, -1], V[:, -1]) + 1e-13 * np.eye(3)
        i, j = np.tril_indices(3)
        return eigenvalues[-1], Z[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    if kind == "exp":
        return np.e, np.array([-np.e * (1 - 1e-12), 0.0, 1.0])
    return 4.0, np.array([1.0, 4.0, -4.0 * (1 - 1e-12)])


@pytest.mark.parametrize("kind", ["psd", "exp", "power"])
def test_other_cones(kind):
    t = cp.Variable()
    P = read(cp.Problem(cp.Minimize(t), [CONES[kind](t)]))
    least, z = _multipliers_of_cone(kind)
    a = -z
    [column] = P.columns[t.id]
    rows = P.by_columns[:, [column]].nonzero()[0]
    place, none = np.array([0]), np.arange(0)
    radius = np.where(np.arange(len(a)) == rows[0], 1e-15, 0.0) if kind == "psd" else np.zeros(len(a))
    dual = Dual(a, radius, rows[:1], place, sp.csr_array([[1.0]]), none, sp.csc_array((1, 0)))
    found = lower(P, [], dual if kind == "psd" else still(a))
    assert found.missing == "" and least - 1e-10 < found.value <= least * (1 + 1e-15)
    outside = still(a * np.where(np.arange(len(a)) == len(a) - 1, 1.1, 1.0))
    assert lower(P, [], outside).missing


def test_distances_from_a_function():
    """‖θ − f₀‖ adds −⟨m, f₀⟩."""
    theta, alpha = ko.Theta(KERNEL), 0.5 * RNG.normal(size=N)
    squares = 0.3 * ko.sum_squares(theta - ko.Function(KERNEL, X, alpha))
    form = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + squares)).canonical_form()
    P, [link], [norm] = read(form.outer), form.predictions, form.norms
    points = link.rows.points
    Q, function = KERNEL(points), np.zeros((len(points), 1))
    np.add.at(function[:, 0], [int(np.flatnonzero((points == x).all(axis=1))[0]) for x in X], alpha)
    eigenvalues, W = np.linalg.eigh(Q)
    B, columns, t = W * np.sqrt(np.maximum(eigenvalues, 0)), P.columns[link.u.id][:, None], int(P.columns[norm.t.id][0])
    optimum, a = multipliers(P, [(columns, B[link.take], t, B.T @ function)])
    sizes = np.sqrt(np.diag(Q)) * (1 + 4 * UNIT)

    def links(a):
        V = np.hstack([np.zeros_like(function), function])
        np.add.at(V[:, 0], link.take, -stationarity(P, still(a), np.zeros(len(a)))[0][columns[:, 0]])
        size = sizes @ np.abs(V)
        error = (64 * UNIT + gamma(2 * len(Q) + 4)) * np.outer(size, size)
        distance = Norm(t, "fro", np.eye(1), slice(0, 1), slice(1, 2))
        return [Link(columns, link.take, sizes, (distance,), V, V.T @ Q @ V, error, np.eye(1))]

    [row] = np.setdiff1d(P.by_columns[:, [t]].nonzero()[0], P.below)  # that of the square
    g, e = stationarity(P, still(a), np.zeros(len(a)))
    a[row] += np.sqrt(links(a)[0].gram[0, 0]) * (1 + 1e-9) - g[t] + 2 * e[t]
    found = lower(P, links(a), still(a))
    assert found.missing == "" and optimum - 1e-6 <= found.value <= optimum + 1e-9
    for _ in range(10):
        other = a + 0.1 * RNG.normal(size=len(a))
        other[P.below] = a[P.below]
        other[row] = 2 * np.abs(a[row]) + 5
        moved = lower(P, links(other), still(other))
        assert moved.missing == "" and moved.value <= optimum + 1e-9


def plain(P, a):
    """D(a) without what rounding costs, and without θ."""
    value = P.c0 + P.s0 @ a
    for group in P.groups:
        w = group.weights @ np.concatenate([[1.0], a[P.below]])
        value -= group.family.conjugate(a[group.rows], np.zeros(group.rows.shape), w, w).value.sum()
    return value


def test_a_radius_moves_the_weights_of_functions():
    """A row that may move moves the multiplier of its twin, and so the domain of the norm inside."""
    Theta, b = ko.Theta(KERNEL, outputs=3), cp.Variable(name="b")
    outer = cp.sum(cp.square(cp.pos(cp.norm(Theta(X) - 1, 2, axis=1) + b))) - 0.5 * b
    form = ko.Problem(cp.Minimize(outer + 0.2 * ko.sum_squares(Theta))).canonical_form()
    case = Case.__new__(Case)
    case.P = P = read(form.outer)
    case.thetas, [of_b] = thetas_of(form, P), P.columns[b.id]
    case.optimum, a = multipliers(P, [theta[:3] for theta in case.thetas])
    a, twins = case.inside(a), P.twins
    [outside] = (group for group in P.groups if type(group.family).__name__ == "Piecewise" and len(group.rows) == N)
    row = outside.rows[a[outside.rows[:, 0]].argmax(), 0]
    entries = twins.sign * np.asarray(P.by_columns[:, [of_b]].todense()).ravel()
    entry = entries[twins.row == row].sum()
    assert a[row] > 0.01 and entry != 0 and np.count_nonzero(twins.row == row) == 2
    for _ in range(3):
        a[row] -= (P.by_columns[:, [of_b]].T @ a + P.c[of_b])[0] / entry
        a = case.inside(a)
    left = (P.by_columns[:, [of_b]].T @ a + P.c[of_b])[0]
    place, none, inverse = np.array([0]), np.arange(0), sp.csr_array([[1 / entry]])
    for width, why in ((10 * abs(left) + 1e-14, ""), (1e-4, "domain of Radial")):
        radius = np.where(np.arange(len(a)) == row, width, 0.0)
        dual = Dual(a, radius, np.array([row]), place, inverse, none, sp.csc_array((1, 0)))
        found = lower(P, [link._replace(gram=0.9 * link.gram) for link in case.links(a)], dual)
        assert why in found.missing and bool(found.missing) == bool(why)


def test_a_free_column_vanishes_within_a_radius():
    """An intercept: Σ of its rows' multipliers must be 0, which one of them makes exact within a radius."""
    b = cp.Variable()
    theta = ko.Theta(KERNEL)
    form = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - b) + 0.3 * ko.sum_squares(theta))).canonical_form()
    case = Case.__new__(Case)
    case.P = P = read(form.outer)
    case.thetas = thetas_of(form, P)
    case.optimum, a = multipliers(P, [case.thetas[0][:3]])
    a = case.inside(a)
    [of_b] = P.columns[b.id]
    rows, values = P.by_columns[:, [of_b]].nonzero()[0], P.by_columns[:, [of_b]].data
    a[rows[0]] -= (P.by_columns[:, [of_b]].T @ a)[0] / values[0]
    off = a + np.where(np.arange(len(a)) == rows[1], 1e-3, 0)
    assert "does not vanish" in lower(P, case.links(off), still(off)).missing
    radius = np.zeros(len(a))
    radius[rows[0]] = 1e-12
    none = np.arange(0)
    dual = Dual(a, radius, rows[:1], np.array([0]), sp.csr_array([[1 / values[0]]]), none, sp.csc_array((1, 0)))
    found = lower(P, case.links(a), dual)
    assert found.missing == "" and case.optimum - 1e-6 <= found.value <= case.optimum + 1e-9
    # A bound for a wide radius holds for all multipliers within it: for those at both ends, too.
    entries = dict(zip(rows.tolist(), values.tolist(), strict=True))
    against = rows[(np.abs(P.s0 - a / 2) - np.abs(P.s0))[rows].argmax()]  # the constant and the conjugate add up
    for row in (rows[np.abs(P.s0[rows]).argmax()], against):
        radius = np.where(np.arange(len(a)) == row, 1e-2, 0.0)
        wide = replace(dual, radius=radius, rows=np.array([row]), inverse=sp.csr_array([[1 / entries[int(row)]]]))
        links = [link._replace(gram=0.9 * link.gram) for link in case.links(a)]  # room for what the radius adds to ν
        found = lower(P, links, wide)
        ends = [plain(P, a + sign * radius) for sign in (-1, 1)]
        assert found.missing == "" and found.value <= min(ends) and found.value > min(ends) - 0.1


@pytest.mark.parametrize("name", STATED)
def test_the_largest_value_within_errors(name):
    """Above the values of all points within the errors, and near them; with z at what they bound."""
    form, rng = Case.form(name), np.random.default_rng(1)
    P = read(form.outer)
    x = rng.normal(size=P.n)
    x[[P.columns[norm.t.id][0] for norm in form.norms]] = 2.0
    exact, size = P.sums(P.settled(x))[0], 1 + np.abs(P.sums(P.settled(x))).max()
    assert 0 <= upper(P, x, np.zeros(P.n)) - exact <= 1e-9 * size * P.n
    for most in (1e-9, 1e-3, 0.3):
        error = most * rng.random(P.n)
        error[P.bounds[:, 0]] = 0.0
        bound = upper(P, x, error)
        values = [P.sums(P.settled(x + sign * error))[0] for sign in rng.choice([-1.0, 1.0], size=(40, P.n))]
        assert max(values) <= bound <= exact + 2e3 * (most + 1e-12) * size


def test_the_largest_value_of_maxima_that_are_nearly_equal():
    """Their difference is 1e-12, of numbers of size 1, whose rounding it does not tell."""
    theta = ko.Theta(KERNEL)
    f = theta(X)
    risk = cp.sum(cp.maximum(2 * f - 1, -0.577216 * (f + 3) - cp.log(f + 3)))
    problem = ko.Problem(cp.Minimize(risk + cp.sum_squares(f - Y) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.upper - problem.value < 1e-9


def test_no_largest_value_outside_of_a_domain():
    x = cp.Variable(2)
    P = read(cp.Problem(cp.Minimize(-cp.sum(cp.log(x)))))
    assert np.isfinite(upper(P, np.array([1.0, 2.0]), np.array([0.5, 0.5])))
    assert upper(P, np.array([1.0, 2.0]), np.array([1.5, 0.5])) == np.inf
    assert upper(P, np.array([np.nan, 2.0]), np.zeros(2)) == np.inf


def test_the_largest_value_of_bounds_with_affine_parts():
    """Columns z that bound a function beside an affine part, given at their values: errors of both count."""
    x = cp.Variable(3)
    P = read(cp.Problem(cp.Minimize(cp.sum(cp.exp(cp.abs(x + 1) + 2 * x) + cp.exp(cp.square(x) + x)))))
    error, at = np.zeros(P.n), P.settled(np.concatenate([[0.1, 0.4, 0.2], np.zeros(P.n - 3)]))
    for most in (1e-6, 1e-2, 0.3):
        error[:3] = most
        largest = P.sums(P.settled(at + error))[0]  # all terms rise with x
        assert largest <= upper(P, at, error) <= largest * (1 + 20 * most**2) + 1e-9


@pytest.mark.parametrize("part", ["rows", "sums"])
def test_the_largest_value_counts_rounding(part):
    """Of rows whose terms cancel, and of sums, beside fractions."""
    rng, below = np.random.default_rng(3), 0
    for _ in range(40):
        a, here = 1e8 * rng.normal(size=6), rng.normal(size=6)
        x = cp.Variable(6)
        inner = cp.sum(cp.abs(cp.multiply(a, x) - a * here)) if part == "rows" else cp.sum(cp.abs(x)) + a @ x - a @ here
        P = read(cp.Problem(cp.Minimize(inner)))
        at = np.nextafter(here, np.inf)
        exact = sum(abs(Fraction(s) * Fraction(v) + Fraction(c)) for s, v, c in zip(P.S.data, at, P.s0, strict=True))
        exact += sum(Fraction(c) * Fraction(v) for c, v in zip(P.c, at, strict=True)) + Fraction(P.c0)
        below += P.sums(at)[0] < exact
        assert Fraction(upper(P, at, np.zeros(P.n))) >= exact
    assert below > 5  # plain sums are too small now and then


def test_rounding_of_a_row_does_not_grow_with_the_number_of_rows():
    """The value at risk of 4000 rows that bound one function each; sums of many functions in rows, by fractions."""
    rng, x = np.random.default_rng(4), cp.Variable(4000)
    P = read(cp.Problem(cp.Minimize(cp.sum_largest(cp.abs(x), 400) / 400)))
    at = P.settled(np.concatenate([rng.normal(size=4000), np.zeros(P.n - 4000)]))
    assert 0 < upper(P, at, np.zeros(P.n)) - P.sums(at)[0] < 1e-12
    y = cp.Variable(300)
    P = read(cp.Problem(cp.Minimize(cp.maximum(cp.sum(cp.abs(y)), cp.sum(cp.pos(y))))))
    below = 0
    for _ in range(20):
        here = rng.normal(size=300) * 10.0 ** rng.uniform(-8, 8, size=300)
        at = P.settled(np.concatenate([here, np.zeros(P.n - 300)]))
        exact = sum(abs(Fraction(v)) for v in here)
        below += P.sums(at)[0] < exact
        assert Fraction(upper(P, at, np.zeros(P.n))) >= exact
    assert below > 2


def test_errors_of_functions_within_functions_settle_from_the_inside():
    """Where values are 0 all errors are room for rounding: that of an outer function has to reach that of an inner
    one, which stays once it is large enough."""
    rng = np.random.default_rng(0)
    points, d = rng.uniform(-2, 2, (8, 1)), rng.normal(size=8)
    y = np.sin(2 * points[:, 0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(points)
    inner = cp.pos(cp.maximum(cp.pos(f - y), cp.sum(f) / 8) - d)
    loss = cp.sum(cp.square(cp.pos(cp.maximum(inner, inner - 1.64, 0))))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
