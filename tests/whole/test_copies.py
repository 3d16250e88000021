"""Problems copied, pickled, and shared by threads."""

import copy
import io
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import joblib
import numpy as np
import pytest
from sklearn.datasets import make_moons

import kernelopt as ko
from kernelopt.errors import KernelOptError

X = np.linspace(0, 6, 40)[:, None]
Y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)


def by_joblib(problem):
    file = io.BytesIO()
    joblib.dump(problem, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {"pickle": lambda p: pickle.loads(pickle.dumps(p)), "deepcopy": copy.deepcopy, "joblib": by_joblib}
SOLVERS = (None, "CLARABEL", "OSQP", "SCS", *(["ECOS"] if "ECOS" in cp.installed_solvers() else []))


def stated():
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name="b")
    lam = cp.Parameter(nonneg=True, value=0.5, name="lam")
    loss = cp.sum(ko.losses.absolute_error(Y, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [theta(X) + b <= 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solved_problem(how, solver):
    problem = stated()
    problem.solve(solver=solver)
    twin = COPIES[how](problem)
    (theta,), (other,) = problem.thetas(), twin.thetas()
    assert twin.value == problem.value and twin.status == problem.status
    assert str(twin.certificate) == str(problem.certificate)
    assert np.array_equal(other.value(X), theta.value(X)) and other.value.norm == theta.value.norm
    assert np.array_equal(other.value.optimality_bound(X), theta.value.optimality_bound(X))
    assert np.array_equal(other(X).dual_value, theta(X).dual_value)
    assert twin.var_dict["b"].value == problem.var_dict["b"].value
    assert np.array_equal(twin.constraints[0].dual_value, problem.constraints[0].dual_value)
    assert twin.verify().passed
    assert "stopped" not in str(twin.explain())


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
def test_they_are_independent(how):
    problem = stated()
    before = problem.solve()
    twin = COPIES[how](problem)
    twin.param_dict["lam"].value = 0.1
    elsewhere = twin.solve()
    assert problem.param_dict["lam"].value == 0.5 and problem.value == before
    problem.param_dict["lam"].value = 0.1
    assert np.isclose(problem.solve(), elsewhere, rtol=1e-6)
    assert np.isclose(COPIES[how](twin).solve(), elsewhere, rtol=1e-6)  # a copy of a copy


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
def test_nothing_is_taken_for_something_else(how):
    """cvxpy tells leaves apart by numbers: a copy's must not be those of what is here, nor of another copy."""
    problem = stated()
    problem.solve()
    copies = [problem, COPIES[how](problem), COPIES[how](problem)]
    copies.append(COPIES[how](copies[1]))
    nodes = [[*p.variables(), *p.parameters(), *p.constraints, p.thetas()[0]._leaf] for p in copies]
    assert len({node.id for of_copy in nodes for node in of_copy}) == 4 * len(nodes[0])
    (first, *others) = copies
    both = ko.Problem(first.objective + sum(p.objective for p in others), [c for p in copies for c in p.constraints])
    assert len(both.thetas()) == 4
    assert np.isclose(both.solve(), 4 * first.value, rtol=1e-5)


@pytest.mark.slow
def test_before_a_solve_and_after_a_look():
    problem = stated()
    problem.explain(), problem.is_dpp(), problem.solvers(), problem.reduced_problem
    twin = copy.deepcopy(problem)
    assert twin.value is None and np.isclose(twin.solve(), problem.solve(), rtol=1e-6)


@pytest.mark.later
@pytest.mark.parametrize("how", COPIES)
def test_what_stands_beside_it_stays_beside_it(how):
    """Expressions that are copied together with the problem are of its θ."""
    problem = stated()
    f = problem.thetas()[0](X[:3]) + problem.var_dict["b"]
    problem.solve()
    twin, g = COPIES[how]((problem, f))
    assert np.array_equal(g.value, f.value)
    twin.param_dict["lam"].value = 5.0
    twin.solve()
    assert np.abs(g.value - f.value).max() > 1e-3


@pytest.mark.later
@pytest.mark.parametrize("how", COPIES)
def test_from_cvxpy(how):
    Phi, theta = cp.Constant(X), cp.Variable(1)
    explicit = cp.Problem(cp.Minimize(cp.norm1(Phi @ theta - Y) + cp.sum_squares(theta)))
    explicit.solve(solver="OSQP")
    problem = ko.Problem.from_cvxpy(explicit, theta, {Phi: ko.FeatureMatrix(X, ko.kernels.Linear())})
    problem.solve()
    twin = COPIES[how](problem)
    assert np.isclose(twin.solve(), problem.value, rtol=1e-6) and twin.verify().passed


@pytest.mark.later
@pytest.mark.parametrize("how", COPIES)
def test_multipliers_of_an_explicit_problem(how):
    """They are those of the kernel problem, by the ids of constraints."""
    Phi, theta = cp.Constant(X), cp.Variable(1)
    constraints = [Phi @ theta <= 0.5 * Y.max(), cp.sum_squares(theta) <= 81]
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(Phi @ theta - Y)), constraints)
    problem = ko.Problem.from_cvxpy(explicit, theta, {Phi: ko.FeatureMatrix(X, ko.kernels.Linear())})
    twin, inner = COPIES[how]((problem, explicit))
    twin.solve()
    for constraint, original in zip(twin.constraints, inner.constraints, strict=True):
        assert np.array_equal(constraint.dual_value, original.dual_value)


@pytest.mark.parametrize("how", COPIES)
def test_estimators_that_hold_one(how):
    P, labels = make_moons(60, noise=0.2, random_state=0)
    model = ko.estimators.KernelClassifier("hinge", kernel=ko.kernels.Gaussian(sigma=0.5)).fit(P, labels)
    assert np.array_equal(COPIES[how](model).decision_function(P), model.decision_function(P))


def test_a_lambda_in_a_kernel_is_refused():
    theta = ko.Theta(ko.kernels.Explicit(lambda X: X))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(ko.errors.KernelError, match="Define it with def"):
        pickle.dumps(problem)
    assert np.array_equal(copy.deepcopy(problem).thetas()[0].value(X), theta.value(X))


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_that_solve_one_problem(solver):
    problem = stated()
    expected = problem.solve(solver=solver)
    problem = stated()
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            looks = [problem.explain, problem.canonical_form, problem.solvers, lambda: problem.reduced_problem]
            looking = [pool.submit(look) for look in 2 * looks]
            values = list(pool.map(lambda _: problem.solve(solver=solver), range(16)))
            forms = {future.result() for future in looking[1::4]}
            checks = list(pool.map(lambda f: f(), [problem.verify, problem.explain] * 4))
    finally:
        sys.setswitchinterval(pause)
    assert np.allclose(values, expected, rtol=1e-6)
    assert all(report.passed for report in checks[::2]) and forms == {problem.canonical_form()}
    assert "stopped" not in str([future.result() for future in looking[::4]])
    assert problem.status == "optimal"


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(("loss", "good", "bad"), [(ko.losses.hinge, 1.0, 0.0), (ko.losses.poisson, 2.0, -1.0)])
def test_copies_check_labels_and_counts(how, loss, good, bad):
    """Labels in a Parameter may change from solve to solve."""
    theta, y = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(len(X), value=np.full(len(X), good))
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y, theta(X))) + ko.sum_squares(theta)))
    copied = COPIES[how](problem)
    for one in (problem, copied):
        (labels,) = one.parameters()
        one.solve()
        labels.value = np.full(len(X), bad)
        with pytest.raises(ko.errors.DataError, match="Expected (labels|counts)"):
            one.solve()


class Below:
    """θ + b ≤ .5, with θ and b as attributes."""

    def __init__(self, theta, b):
        self.theta, self.b = theta, b

    def __call__(self, P):
        return self.theta(P) + self.b <= 0.5


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_a_copy_keeps_its_box(how):
    """A function would go on to constrain the θ of the original; an object is copied with its θ."""
    X = np.linspace(0, 1, 12)[:, None]
    y = np.sin(6 * X[:, 0])
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable()
    objective = cp.Minimize(cp.sum_squares(theta(X) + b - y) + 0.01 * ko.sum_squares(theta))
    problem = ko.Problem(objective, [ko.everywhere(lambda P: theta(P) + b <= 0.5, 0, 1)])
    assert problem.solve() > 0.5
    with pytest.raises((KernelOptError, AttributeError, pickle.PicklingError)):
        COPIES[how](problem).solve()
    assert copy.copy(problem).solve() == pytest.approx(problem.value, abs=1e-6)
    named = ko.Problem(objective, [ko.everywhere(Below(theta, b), 0, 1)])
    assert COPIES[how](named).solve() == pytest.approx(problem.value, abs=1e-5)
