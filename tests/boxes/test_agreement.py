"""What a proof for a box takes g to be, compared with g: contradictions are errors, and the rest is named."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError
from kernelopt.support.cvxpy_parts import JOINTLY_LINEAR

X = np.linspace(0, 6, 12)[:, None]
Y = 1 + 0.3 * np.sin(X[:, 0])
FINE = np.linspace(0, 6, 60001)[:, None]
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)
F0 = ko.Function(GAUSSIAN, [[2.0]], [0.4])
ASSUMED = "affine in x where code computes them"


def near(P, width, low, high, at=2.4):
    return np.where(np.abs(P[:, 0] - at) < width, low, high)


def solved(g, outputs=None, sense=cp.Minimize, scale=1.0, **options):
    theta, b = ko.Theta(GAUSSIAN, outputs=outputs), cp.Variable(name="b")
    f = theta(X) if outputs is None else theta(X)[:, 0]
    loss = cp.sum_squares(f + b - scale * Y) + 0.05 * ko.sum_squares(theta) + 0.1 * cp.square(b)
    box = ko.everywhere(lambda P: g(theta, P, b), 0.0, 6.0, **options)
    problem = ko.Problem(sense(loss if sense is cp.Minimize else -loss), [box])
    problem.solve(tol=1e-2)
    return problem, box


SHOWN = {
    "a number": lambda t, P, b: t(P) <= 1.2,
    "a Parameter": lambda t, P, b: t(P) <= cp.Parameter(value=1.2),
    "an array without P": lambda t, P, b: t(P) + np.ones(len(P)) * b <= np.full(len(P), 1.2),
    "of the shape of P": lambda t, P, b: t(P) <= 1.2 * np.ones_like(P[:, 0]),
    "affine": lambda t, P, b: t(P) + b >= 0.3 * P[:, 0] / 2 - 1,
    "a product with a vector": lambda t, P, b: t(P) + b >= P @ np.array([0.3]) - 1,
    "columns": lambda t, P, b: t(P) + b >= np.column_stack([np.ones(len(P)), P]) @ np.array([-1.0, 0.3]),
    "x f(x)": lambda t, P, b: cp.multiply(2 - P[:, 0], t(P)) + t.derivative(0)(P) <= 8,
    "a Parameter times x f(x)": lambda t, P, b: cp.multiply(P[:, 0], cp.Parameter(value=2.0) * t(P)) <= 30,
    "b over a number": lambda t, P, b: t(P) + b / 2 + P[:, 0] * b <= 3,
    "beside a point": lambda t, P, b: t(P) - t([[0.5]]) <= 0.5,
}


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("g", SHOWN.values(), ids=SHOWN)
def test_what_code_shows_is_no_assumption(g):
    problem, box = solved(g)
    assert problem.status == "optimal" and not problem.certificate.assumptions
    assert box.margin(FINE[::30]).value.min() >= box.least - 1e-12


@pytest.mark.slow
def test_rows_of_several_outputs():
    for g in (
        lambda t, P, b: t(P) <= np.array([1.2, 1.0]),
        lambda t, P, b: t(P)[:, 1] - t(P)[:, 0] >= 0.2 * P[:, 0] - 2,
    ):
        problem, _ = solved(g, outputs=2)
        assert problem.status == "optimal" and not problem.certificate.assumptions


CONTRADICTED = {
    "a dip": lambda t, P, b: t(P) <= near(P, 0.5, 0.3, 5.0),
    "a narrow dip": lambda t, P, b: t(P) <= near(P, 0.01, 0.3, 1.2),
    "one corner of a cell": lambda t, P, b: t(P) <= np.where(P[:, 0] == 3, 0.3, 1.2),
    "a step": lambda t, P, b: t(P) + b <= np.where(P[:, 0] > 5.9, 1.0, 1.2),
    "coefficients of values": lambda t, P, b: cp.multiply(near(P, 0.5, 2.0, 1.0), t(P)) <= 1.2,
    "coefficients of slopes": lambda t, P, b: cp.multiply(near(P, 0.01, 2.0, 1.0), t.derivative(0)(P)) + t(P) <= 1.2,
    "coefficients of a variable": lambda t, P, b: t(P) + near(P, 0.01, 2.0, 1.0) * b <= 2.2,
    "coefficients of a point": lambda t, P, b: t(P) - cp.multiply(near(P, 0.01, 1.0, 0.0), t([[0.5]])[0]) <= 1.2,
    "a variable there alone": lambda t, P, b: t(P) + near(P, 0.01, 1.0, 0.0) * b <= 1.2,
    "a kink": lambda t, P, b: t(P) <= np.interp(P[:, 0], [0, 3, 6], [1.1, 1.3, 1.1]),
    "other sizes": lambda t, P, b: 1e-8 * t(P) <= near(P, 0.01, 0.3e-8, 1.2e-8),
    "beside larger numbers": lambda t, P, b: cp.multiply(near(P, 0.01, 2e-8, 1e-8), t(P)) <= 1e3,
    "another number of points": lambda t, P, b: t(P) <= (1.2 if len(P) < 50 else 1.0),
    "the mean of the points": lambda t, P, b: t(P) <= 1.2 + 0.1 * (P[:, 0] - np.mean(P)),
}


@pytest.mark.parametrize("g", CONTRADICTED.values(), ids=CONTRADICTED)
def test_contradictions_are_errors(g):
    with pytest.raises(DataError, match=r"affine in x.* at x = \[|own point alone|points P themselves"):
        solved(g)


def test_maximized_and_scaled():
    for sense, scale in ((cp.Maximize, 1.0), (cp.Minimize, 1e-8)):
        with pytest.raises(DataError, match="affine in x"):
            solved(lambda t, P, b, c=scale: t(P) <= near(P, 0.5, 0.3 * c, 1.2 * c), sense=sense, scale=scale)


@pytest.mark.later
@pytest.mark.parametrize("where", ["numbers", "coefficients"])
def test_what_only_code_knows_is_named(where):
    """A dip of width 1e-9 is at no examined point: then the certificate says what the proof rests on."""

    def g(t, P, b):
        if where == "numbers":
            return t(P) <= near(P, 1e-9, 0.3, 1.2, at=2.41)
        return cp.multiply(near(P, 1e-9, 2.0, 1.0, at=2.41), t(P)) <= 1.2

    problem, box = solved(g)
    assert problem.status == "optimal_inaccurate"
    (assumed,) = problem.certificate.assumptions
    assert f"for {where} {ASSUMED}" in assumed and assumed in str(problem.certificate)
    report = problem.verify()
    assert ASSUMED in report["everywhere"].note and ASSUMED in str(report)
    assert float(box.margin(np.array([[2.41]])).value[0]) < box.least  # the assumption is wrong here


@pytest.mark.later
def test_code_that_needs_values():
    problem, _ = solved(lambda t, P, b: t(P) <= 1.1 + 0.1 * np.asarray(P)[:, 0])
    assert ASSUMED in problem.certificate.assumptions[0] and problem.status == "optimal_inaccurate"
    for g in (
        lambda t, P, b: t(P) <= (1.2 if P[0, 0] < 7 else 1.0),
        lambda t, P, b: t(P) <= [1.2 + 0 * float(x) for (x,) in P],
    ):
        assert ASSUMED in solved(g)[0].certificate.assumptions[0]


# ---------------------------------------------------------------- stated bends

BENT = {
    "sine": (lambda t, P, b: t(P) + b >= np.sin(P[:, 0]) - 1, 1.0),
    "parabola": (lambda t, P, b: t(P) + b >= P[:, 0] ** 2 / 18 - 1, 1 / 9),
    "huber": (
        lambda t, P, b: (
            t(P) + b >= np.where(abs(P[:, 0] - 3) < 1, 0.5 * (P[:, 0] - 3) ** 2, abs(P[:, 0] - 3) - 0.5) - 1
        ),
        1.0,
    ),
    "a fitted function": (lambda t, P, b: t(P) + b >= F0(P), 0.4),
    "the slope of one": (lambda t, P, b: t(P) + b >= F0.derivative(0)(P), 0.6),
    "θ − f₀": (lambda t, P, b: (t - F0)(P) + b >= 0, 0.4),
}


@pytest.mark.later
@pytest.mark.parametrize(("g", "bend"), BENT.values(), ids=BENT)
def test_stated_bends_are_named(g, bend):
    problem, box = solved(g, bend=bend)
    assert problem.status == "optimal" and not problem.certificate.assumptions
    assert f"with the stated bend {bend:g}" in str(problem.certificate)
    assert f"with the stated bend {bend:g}" in problem.verify(tol=1e-2)["everywhere"].note
    assert box.margin(FINE[::30]).value.min() >= box.least - 1e-12


@pytest.mark.later
@pytest.mark.parametrize(
    ("g", "bend"),
    [
        (lambda t, P, b: t(P) + b >= np.sin(P[:, 0]) - 1, 0.5),
        (lambda t, P, b: t(P) + b <= near(P, 0.2, 0.9, 1.2), 1.0),
        (lambda t, P, b: t(P) + b <= 0.5 * np.abs(P[:, 0] - 2.9) + 0.9, 1.0),
        (lambda t, P, b: (t - F0)(P) + b >= 0, 0.04),
    ],
    ids=["sine", "jump", "kink", "θ − f₀"],
)
def test_bends_that_are_too_small(g, bend):
    with pytest.raises(DataError, match=r"second derivatives up to bend = .* at x = \["):
        solved(g, bend=bend)


def test_coefficients_beside_a_bend():
    """A bend speaks of numbers alone."""
    with pytest.raises(DataError, match="coefficients of θ"):
        solved(lambda t, P, b: cp.multiply(near(P, 0.05, 2.0, 1.0), t(P)) <= 1.2 + np.sin(P[:, 0]), bend=1.0)


# ---------------------------------------------------------------- several columns and boxes


@pytest.mark.slow
def test_two_columns():
    rng = np.random.default_rng(0)
    Z = rng.uniform(size=(15, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = cp.sum_squares(theta(Z) - 1 - 0.3 * Z[:, 0]) + 0.05 * ko.sum_squares(theta)

    def problem(*ceilings, **options):
        boxes = [ko.everywhere(lambda P, c=c: theta(P) <= c(P), [0, 0], [1, 1], **options) for c in ceilings]
        made = ko.Problem(cp.Minimize(loss), boxes)
        made.solve(tol=1e-2)
        return made

    plane = lambda P: 1.2 + 0.1 * P[:, 1]
    assert problem(plane).status == "optimal"
    for g in (
        lambda P: np.where(np.max(np.abs(P - [0.3, 0.7]), axis=1) < 0.05, 1.0, 1.2),
        lambda P: 1.2 + 0.1 * P[:, 0] * P[:, 1],
    ):
        with pytest.raises(DataError, match="numbers in g"):
            problem(plane, g)
    curved = problem(lambda P: 1.1 + 0.1 * P[:, 1] ** 2, bend=[0.0, 0.2])
    assert curved.status == "optimal" and "with the stated bend 0, 0.2" in str(curved.certificate)
    with pytest.raises(DataError, match="bend"):
        problem(lambda P: 1.1 + 0.1 * P[:, 1] ** 2, bend=[0.2, 0.0])


def test_atoms_that_keep_coefficients_affine():
    x, y = cp.Variable(3), cp.Variable((2, 2))
    for made in (cp.promote(x[0], (3,)), y.T, x[[0, 2]], x + 1, -x, cp.hstack([x, x]), cp.sum(x)):
        assert isinstance(made, JOINTLY_LINEAR)


def test_a_constraint_is_no_function_of_points():
    theta = ko.Theta(GAUSSIAN)
    for given in (theta(X) >= 0, theta(X) == 1):
        with pytest.raises(DataError, match=r"function of points.*got the constraint.*lambda P: theta\(P\) >= 0"):
            ko.everywhere(given, 0.0, 6.0)


@pytest.mark.later
def test_rules_ask_for_affine_expressions_only():
    """Values of θ and of the user's variables stay as they are."""
    theta, b = ko.Theta(GAUSSIAN), cp.Variable(value=0.25)
    theta.value = F0
    box = ko.everywhere(lambda P: theta(P) + b >= -1, 0.0, 6.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) + b - Y) + ko.sum_squares(theta)), [box])
    check = problem.verify()["everywhere in [0, 6]"]
    assert b.value == 0.25 and theta.value is F0
    assert check.passed and check.number == 0


@pytest.mark.parametrize("by", ["sum", "column_stack", "tuple", "objects", "columns of objects"])
def test_lists_of_computed_numbers_are_code(by):
    """Lists, and arrays of objects, with numbers computed from the points are as much code as arrays of numbers."""

    def bump(P):
        return [5 * np.exp(-(((x - 0.43217) / 1e-6) ** 2)) for x in P[:, 0]]

    def objects(P):
        found = np.empty(len(P), dtype=object)
        for i, x in enumerate(bump(P)):
            found[i] = x
        return found

    forms = {
        "objects": lambda P: -2 + 0 * P[:, 0] + objects(P),
        "columns of objects": lambda P: -2 + np.column_stack([P[:, 0], objects(P)]) @ [0.0, 1.0],
        "sum": lambda P: -2 + 0 * P[:, 0] + bump(P),
        "column_stack": lambda P: -2 + np.column_stack([P[:, 0], bump(P)]) @ [0.0, 1.0],
        "tuple": lambda P: -2 + 0 * P[:, 0] + tuple(bump(P)),
    }
    theta, points = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), np.linspace(0, 1, 20)[:, None]
    box = ko.everywhere(lambda P: theta(P) >= forms[by](P), 0.0, 1.0)
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(theta(points) - np.sin(5 * points[:, 0])) + 0.1 * ko.sum_squares(theta)), [box]
    )
    problem.solve()
    assert problem.status == "optimal_inaccurate" and ASSUMED in str(problem.certificate)


LINEAR = ko.kernels.Linear()
READ_BACK = {
    "points": lambda t, P: ko.FeatureMatrix(P, GAUSSIAN).X[:, 0],
    "points of a prediction": lambda t, P: t(P).data.A.X[:, 0],
    "lengths": lambda t, P: np.linalg.norm(ko.FeatureMatrix(P, LINEAR).X, axis=1),
    "diagonal": lambda t, P: ko.FeatureMatrix(P, LINEAR).diag() ** 0.5,
    "diagonal of combinations": lambda t, P: (np.eye(len(P)) @ ko.FeatureMatrix(P, LINEAR)).diag() ** 0.5,
    "moduli": lambda t, P: P[:, 0] + 0 * ko.FeatureMatrix(P, GAUSSIAN).derivative(0).modulus(0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_BACK)
def test_points_that_g_reads_back(name):
    """A spike that lies between the points of the proof: the numbers are none that code shows."""

    def g(t, P, b):
        x = READ_BACK[name](t, P)
        return t(P) + b <= np.where(np.abs(x - 2.4321234) < 1e-6, 0.2, 1.2)

    problem, _ = solved(g)
    assert any(ASSUMED in text for text in problem.certificate.assumptions)
    assert problem.status == "optimal_inaccurate"
