"""From a cvxpy problem in an explicit θ to the kernel problem."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.explicit import ExplicitSource, _Translation
from kernelopt.errors import DataError, RepresenterError

RNG = np.random.default_rng(0)
X, Z, y = RNG.normal(size=(20, 2)), RNG.normal(size=(5, 2)), RNG.normal(size=20)
labels = np.where(y > 0, 1.0, -1.0)
KERNEL = ko.kernels.Polynomial(degree=2)
PHI, GRID = KERNEL.features(X), KERNEL.features(Z)
A, A_GRID = ko.FeatureMatrix(X, KERNEL), ko.FeatureMatrix(Z, KERNEL)


@pytest.fixture
def theta():
    return cp.Variable(6, name="theta")


@pytest.fixture
def Theta():
    return cp.Variable((6, 3), name="Theta")


b = cp.Variable(name="b")
MASK = np.array([True, False, True])
COVERED = {
    "sum_squares": lambda t: (cp.sum_squares(PHI @ t - y) + cp.sum_squares(t), []),
    "norm": lambda t: (cp.norm1(PHI @ t - y) + 2 * cp.norm(t), []),
    "norm2": lambda t: (cp.norm1(PHI @ t - y) + cp.norm2(t), [cp.norm(t) <= 3]),
    "sum of squares": lambda t: (cp.norm1(PHI @ t - y) + cp.sum(cp.square(t)), []),
    "squared norm": lambda t: (cp.norm1(PHI @ t - y) + cp.square(cp.norm(t)), []),
    "transposed": lambda t: (cp.sum_squares(t @ PHI.T - y) + cp.sum_squares(t), []),
    "cone": lambda t: (cp.norm1(PHI @ t - y), [cp.SOC(cp.Constant(0.5), t)]),
    "intercept": lambda t: (cp.sum(cp.pos(1 - cp.multiply(labels, PHI @ t + b))) + cp.sum_squares(t), []),
    "rows": lambda t: (cp.sum_squares(PHI[:7] @ t - y[:7]) + cp.sum_squares(t), [PHI[3] @ t >= 0]),
    "negated": lambda t: (cp.sum_squares(PHI @ -t - y) + 2 * cp.norm(-t), []),
    "scaled": lambda t: (
        cp.norm1(PHI @ (2 * t) - y) + cp.sum_squares(3 * t) + cp.norm(t / -2),
        [GRID @ (t * 0.5) >= 0],
    ),
    "scaled transposed": lambda t: (cp.sum_squares((t / 2) @ PHI.T - y) + cp.sum(cp.square(-t)), []),
    "scaled cone": lambda t: (cp.norm1(PHI @ t - y), [cp.SOC(cp.Constant(0.5), 2 * t)]),
    "quadratic form": lambda t: (cp.norm1(PHI @ t - y) + cp.quad_form(-2 * t, 0.5 * np.eye(6)), []),
    "quadratic over a number": lambda t: (cp.norm1(PHI @ t - y) + cp.quad_over_lin(t, 2.0), []),
    "rows of several matrices": lambda t: (cp.norm1(cp.vstack([PHI, GRID, PHI[:2]]) @ t - 1) + cp.sum_squares(t), []),
    "several feature matrices": lambda t: (cp.norm1(PHI @ t - y) + cp.sum_squares(t), [GRID @ t >= 0]),
}
COVERED_MATRIX = {
    "frobenius": lambda t: (cp.sum_squares(PHI @ t - 1) + cp.norm(t, "fro"), []),
    "nuclear": lambda t: (cp.sum_squares(PHI @ t - 1) + cp.normNuc(t), []),
    "spectral": lambda t: (cp.sum_squares(PHI @ t - 1) + cp.sigma_max(t), []),
    "squares": lambda t: (cp.sum_squares(PHI @ t - 1) + cp.sum_squares(t), []),
    "scaled": lambda t: (cp.sum_squares(PHI @ (-2 * t) - 1) + cp.normNuc(t / 2) + cp.norm(-t, "fro"), []),
    "rows of several matrices": lambda t: (
        cp.sum_squares(cp.vstack([GRID, PHI]) @ t - 1) + cp.sum_squares(t[:, 0] / 3) + cp.sum_squares(t),
        [],
    ),
    "columns": lambda t: (cp.sum_squares(PHI @ t[:, 0] - 1) + cp.norm(t[:, 0]) + cp.norm(t[:, 1:], "fro"), []),
    "columns in another order": lambda t: (cp.sum_squares(PHI @ t[:, [2, 0]] - 1) + cp.norm(t[:, [2, 0]], "fro"), []),
    "columns by mask": lambda t: (
        cp.sum_squares(PHI @ t[:, MASK] - 1) + cp.sum_squares(t),
        [],
    ),
    "combinations": lambda t: (cp.sum_squares(PHI @ (t @ [1, 1, 0]) - 1) + cp.sum_squares(t), [PHI @ t[:, 2] >= 1]),
}
NOT_COVERED = {
    "entry": lambda t: (cp.sum_squares(PHI @ t - y) + cp.square(t[0]), r"theta\[0\]"),
    "norm of a part": lambda t: (cp.sum_squares(PHI @ t - y) + cp.sum_squares(t[1:]), "own"),
    "l1": lambda t: (cp.sum_squares(PHI @ t - y) + cp.norm1(t), "cp.norm"),
    "another matrix": lambda t: (cp.sum_squares(RNG.normal(size=(4, 6)) @ t), "features="),
    "weighted norm": lambda t: (cp.sum_squares(PHI @ t) + cp.norm(np.diag(np.arange(6.0)) @ t), "features="),
    "sum": lambda t: (cp.sum_squares(PHI @ t - y) + cp.sum(t), "cp.norm"),
    "maximum": lambda t: (cp.sum_squares(PHI @ t - y) + cp.max(t), "cp.norm"),
    "multiple of θ": lambda t: (cp.sum(2 * t), "cp.norm"),
    "another quadratic form": lambda t: (cp.quad_form(t, np.diag(np.arange(1.0, 7.0))), "cp.norm"),
    "a part of the rows": lambda t: (cp.sum_squares(np.vstack([PHI, RNG.normal(size=(1, 6))]) @ t), "features="),
    "scaled rows": lambda t: (cp.sum_squares((y[:, None] * PHI) @ t), r"M @ \(Phi @ theta\)"),
    "spectral norm of a table": lambda t: (cp.sigma_max(cp.reshape(t, (3, 2), order="F")), "cp.norm"),
    "indicator": lambda t: (cp.sum_squares(PHI @ t) + cp.transforms.indicator([t >= 0]), "indicator"),
}


def both(explicit, variable):
    problem = ko.Problem.from_cvxpy(explicit, theta=variable, features={cp.Constant(PHI): A, cp.Constant(GRID): A_GRID})
    value = problem.solve("CLARABEL")
    recovered, duals = variable.value.copy(), [c.dual_value for c in explicit.constraints]
    reference = explicit.solve("CLARABEL")
    assert abs(value - reference) < 1e-6 * max(1, abs(reference))
    return problem, recovered, duals


@pytest.mark.parametrize("name", COVERED)
def test_vector(name, theta):
    objective, constraints = COVERED[name](theta)
    explicit = cp.Problem(cp.Minimize(objective), constraints)
    problem, recovered, duals = both(explicit, theta)
    assert np.abs(PHI @ (recovered - theta.value)).max() < 1e-3
    for ours, theirs in zip(duals, [c.dual_value for c in explicit.constraints], strict=True):
        if "cone" not in name:  # it became ‖θ‖ ≤ 0.5, a constraint of its own
            assert np.abs(ours - theirs).max() < 1e-4
    assert problem.is_representable()


@pytest.mark.parametrize("name", COVERED_MATRIX)
def test_matrix(name, Theta):
    objective, constraints = COVERED_MATRIX[name](Theta)
    _, recovered, _ = both(cp.Problem(cp.Minimize(objective), constraints), Theta)
    assert np.abs(PHI @ (recovered - Theta.value)).max() < 1e-3


@pytest.mark.parametrize("name", NOT_COVERED)
def test_not_covered(name, theta):
    objective, words = NOT_COVERED[name](theta)
    explicit = cp.Problem(cp.Minimize(objective))
    with pytest.raises(RepresenterError, match=words) as refusal:
        ko.Problem.from_cvxpy(explicit, theta=theta, features={cp.Constant(PHI): A})
    assert len(refusal.value.violations) == 1
    assert "the objective" in str(refusal.value)
    assert theta.value is None


def test_all_uses_are_listed(theta):
    explicit = cp.Problem(
        cp.Minimize(cp.sum_squares(PHI @ theta - y) + cp.norm1(theta) + cp.square(theta[3])),
        [theta >= 0, PHI @ theta <= 1, cp.sum(theta) == 1, np.eye(6) @ theta <= 2],
    )
    with pytest.raises(RepresenterError) as refusal:
        ko.Problem.from_cvxpy(explicit, theta=theta, features={cp.Constant(PHI): A})
    places = [v.place for v in refusal.value.violations]
    assert places == ["the objective"] * 2 + ["constraint 1", "constraint 3", "constraint 4"]
    text = str(refusal.value)
    assert "norm1(theta)" in text
    assert "theta[3]" in text


def test_the_rules_hold_too(theta):
    with pytest.raises(RepresenterError, match="larger norm is better"):
        ko.Problem.from_cvxpy(
            cp.Problem(cp.Minimize(cp.sum_squares(PHI @ theta)), [cp.norm(theta) >= 1]), theta, {cp.Constant(PHI): A}
        )


def test_declared_signs_are_uses():
    theta = cp.Variable(6, nonneg=True)
    with pytest.raises(RepresenterError, match="nonneg"):
        ko.Problem.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(PHI @ theta))), theta, {cp.Constant(PHI): A})


def test_features_must_fit(theta):
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(PHI @ theta - y) + cp.sum_squares(theta)))
    wrong, linear = ko.FeatureMatrix(X, ko.kernels.Gaussian(sigma=1.0)), ko.FeatureMatrix(GRID, ko.kernels.Linear())
    with pytest.raises(DataError, match=r"differ by .* at rows"):
        ko.Problem.from_cvxpy(explicit, theta, {cp.Constant(PHI): wrong})
    with pytest.raises(DataError, match=r"\(20, 6\)"):
        ko.Problem.from_cvxpy(explicit, theta, {cp.Constant(PHI[:, :5]): A})
    with pytest.raises(DataError, match="at least one"):
        ko.Problem.from_cvxpy(explicit, theta, {})
    with pytest.raises(RepresenterError, match=r"cp\.Variable"):
        ko.Problem.from_cvxpy(explicit, X, {cp.Constant(PHI): A})
    with pytest.raises(RepresenterError, match="one kernel"):
        ko.Problem.from_cvxpy(explicit, theta, {cp.Constant(PHI): A, cp.Constant(GRID): linear})


def test_parameters_stay(theta):
    lam = cp.Parameter(nonneg=True, value=1.0)
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(PHI @ theta - y) + lam * cp.sum_squares(theta)))
    problem = ko.Problem.from_cvxpy(explicit, theta, {cp.Constant(PHI): A})
    for lam.value in (1.0, 0.1):
        assert abs(problem.solve() - explicit.solve("CLARABEL")) < 1e-6


RESHAPED = {
    "nuclear": lambda t: cp.normNuc(cp.reshape(t, (3, 6), order="F")),
    "nuclear, flat": lambda t: cp.normNuc(cp.reshape(t, (18, 1), order="F")),
    "spectral": lambda t: cp.sigma_max(cp.reshape(t, (2, 9), order="F")),
    "norm 2": lambda t: cp.norm(cp.reshape(t, (9, 2), order="F"), 2),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_other_norms_of_a_reshaped_theta_are_refused(name, Theta):
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(PHI @ Theta - 1) + RESHAPED[name](Theta)))
    with pytest.raises(RepresenterError, match="reshape"):
        ko.Problem.from_cvxpy(explicit, Theta, {cp.Constant(PHI): A})


def test_an_outlying_row_does_not_hide_a_wrong_one():
    X = np.array([[1e5, 0, 0], [0, 1, 2], [0, 3, 1.0]])
    wrong, t = X.copy(), cp.Variable(3)
    wrong[1] = [0, 2, 1]
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(wrong @ t - 1) + cp.sum_squares(t)))
    with pytest.raises(DataError, match="rows 1"):
        ko.Problem.from_cvxpy(explicit, t, {cp.Constant(wrong): ko.FeatureMatrix(X, ko.kernels.Linear())})


def test_only_a_norm(theta):
    """No predictions at all; and features as pairs, which take plain arrays."""
    problem = ko.Problem.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(theta))), theta, [(PHI, A)])
    assert problem.solve() == pytest.approx(0, abs=1e-8)
    assert np.allclose(theta.value, 0)


def test_swapped_features(theta):
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(PHI @ theta)))
    with pytest.raises(DataError, match="the problem first"):
        ko.Problem.from_cvxpy(explicit, theta, {A: PHI.tobytes()})
    with pytest.raises(DataError, match=r"ko\.FeatureMatrix.*ndarray"):
        ko.Problem.from_cvxpy(explicit, theta, [(PHI, X)])


def test_one_center_has_the_features_of_its_row():
    source = ExplicitSource(None, cp.Variable(6), None, ((PHI, A),))
    one = SimpleNamespace(centers=X[3:4], coefficients=np.array([2.0]))
    assert source.theta_value(one) == pytest.approx(2 * PHI[3])
    none = SimpleNamespace(centers=X[:0], coefficients=np.zeros(0))
    assert source.theta_value(none).tolist() == [0.0] * 6


def test_a_cone_of_other_variables_stays(theta):
    walk = _Translation(theta, ko.Theta(KERNEL), ((PHI, A),))
    cone = cp.SOC(b, cp.Variable(2))
    assert isinstance(walk.constraint(cone), cp.SOC) and not walk.violations


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_kernels_agree_in_any_unit(size):
    """Relative to the lengths of both rows."""
    rows, t = size * np.array([[1.0, 2.0], [0.5, -1.0]]), cp.Variable(2)
    features = ko.FeatureMatrix(rows, ko.kernels.Linear())
    for error, fits in ((1e-10, True), (1e-6, False)):
        Phi = rows * (1 + error)
        explicit = cp.Problem(cp.Minimize(cp.sum_squares(Phi @ t - 1) + cp.sum_squares(t)))
        if fits:
            ko.Problem.from_cvxpy(explicit, t, [(Phi, features)])
        else:
            with pytest.raises(DataError, match="at rows 0 and 0"):
                ko.Problem.from_cvxpy(explicit, t, [(Phi, features)])


@pytest.mark.parametrize(
    "use", [lambda t, C: cp.sum_squares(cp.multiply(t, C)), lambda t, C: cp.sum_squares(cp.multiply(C, t))]
)
def test_elementwise_products_are_no_matrix_products(use):
    """Shapes agree for both where θ is square."""
    t, square = cp.Variable((2, 2), name="t"), ko.FeatureMatrix(X[:2], ko.kernels.Linear())
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(X[:2] @ t - 1) + use(t, X[:2])))
    with pytest.raises(RepresenterError, match=r"data\]·t|t·\["):
        ko.Problem.from_cvxpy(explicit, theta=t, features={cp.Constant(X[:2]): square})
