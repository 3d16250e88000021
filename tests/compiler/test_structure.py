"""Cone data by templates: the same numbers as by cvxpy's own compilation, for other constants in one structure."""

import gc
import threading
import weakref

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler import structure
from kernelopt.compiler.structure import cone_data_of
from kernelopt.support.cvxpy_parts import cone_data

N = 7
LABELS = np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0])


@pytest.fixture(autouse=True)
def _no_templates(monkeypatch):
    monkeypatch.setattr(structure, "_templates", type(structure._templates)())


def templates():
    return [found for _, found in structure._templates.values() if found is not None]


def hinge(u, t, b, r):
    return cp.sum(cp.pos(1 - cp.multiply(r.permutation(LABELS), u + b))) + r.uniform(0.1, 1) * cp.square(t), []


def weighted(u, t, b, r):
    return np.arange(1.0, N + 1) @ cp.abs(r.normal(size=N) - u - b) + r.uniform() * t, [t <= r.uniform(1, 2)]


def squares(u, t, b, r):
    return cp.sum_squares(r.normal(size=N) - u - b) / (2 * N) + r.uniform() * cp.square(t), []


def huber(u, t, b, r):
    return cp.sum(cp.huber(u - r.normal(size=N), 0.5)) + cp.square(t), [u[0] + b == r.normal(), cp.norm(u) <= 3]


def logistic(u, t, b, r):
    return cp.sum(cp.logistic(cp.multiply(r.normal(size=N), u))) + cp.square(t), [u <= r.normal(size=N)]


def combined(u, t, b, r):
    D = sp.csr_array(np.diff(np.eye(N), axis=0))
    return cp.norm1(D @ u) + cp.max(cp.hstack([u[:3] - r.normal(size=3), b])) + t, [b >= -r.uniform(1, 2)]


def of_labels_with_zeros(u, t, b, r):
    # a parameter's zeros are no entries of A, as zeros of a constant are none
    return cp.sum(cp.pos(cp.multiply(r.permutation([0.0, *LABELS[1:]]), u) - 1.0)) + cp.square(t), []


LOSSES = [hinge, weighted, squares, huber, logistic, combined, of_labels_with_zeros]


def drawn(loss, seed):
    u, t, b = cp.Variable(N), cp.Variable(nonneg=True), cp.Variable()
    objective, constraints = loss(u, t, b, np.random.default_rng(seed))
    return cp.Problem(cp.Minimize(objective), constraints), (u, t, b)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_template_gives_the_same_cone_data(loss):
    """The second problem makes the template, the others use it, with their own numbers, variables and constraints."""
    seen = []
    for seed in range(5):
        problem, variables = drawn(loss, seed)
        found = cone_data_of(problem)
        seen.append(structure.is_compiled(problem))
        expected = cone_data(problem)
        assert (found.P is None) == (expected.P is None)
        for one, other in ((found.P, expected.P), (found.A, expected.A)):
            if one is not None:
                assert (abs(sp.csc_array(one) - sp.csc_array(other))).nnz == 0
                assert not np.any(one.data == 0)
        np.testing.assert_array_equal(found.c, expected.c)
        np.testing.assert_array_equal(found.b, expected.b)
        assert found.offset == expected.offset
        assert str(found.dims) == str(expected.dims)
        for variable in variables:
            np.testing.assert_array_equal(found.columns(variable), expected.columns(variable))
        z = np.random.default_rng(0).normal(size=len(found.b))
        mine, theirs = found.multipliers(z), expected.multipliers(z)
        assert set(mine) == {c.id for c in problem.constraints} == set(theirs)
        for key, value in mine.items():
            np.testing.assert_array_equal(value, theirs[key])
    assert len(templates()) == 1
    assert seen == [True, False, False, False, False]


def test_cvxpy_compiles_a_structure_no_more_than_twice(monkeypatch):
    for seed in range(3):
        cone_data_of(drawn(LOSSES[0], seed)[0])
    monkeypatch.setattr(structure, "cone_data", None)  # not callable
    problem, variables = drawn(LOSSES[0], 3)
    found = cone_data_of(problem)
    assert sum(len(found.columns(variable)) for variable in variables) <= len(found.c)
    assert problem._cache.param_prog is None


def test_a_change_of_a_parameter_is_seen():
    lam = cp.Parameter(nonneg=True)
    for value in (1.0, 2.0, 3.0, 4.0):
        lam.value = value
        u = cp.Variable(N)
        problem = cp.Problem(cp.Minimize(cp.norm1(u) + lam * cp.sum(u)))
        for wanted in (value, value + 10):
            lam.value = wanted
            found = cone_data_of(problem)
            np.testing.assert_array_equal(found.c[found.columns(u)], wanted)


def with_parameters():
    """Weights with a sign, slopes without one, and a number that no parameter may stand for."""
    w, a, k = cp.Parameter(N, nonneg=True), cp.Parameter(N), cp.Parameter(nonneg=True)
    w.value, a.value, k.value = np.ones(N), np.arange(1.0, N + 1), 1.0
    u = cp.Variable(N)
    objective = w @ cp.abs(u) + cp.sum(cp.pos(cp.multiply(a, u) + k)) + cp.sum(cp.maximum(u, k))
    return cp.Problem(cp.Minimize(objective)), (w, a, k)


def test_a_problem_is_read_once(monkeypatch):
    """For other values of its parameters, and again where the structure may be another one."""
    problems = [with_parameters() for _ in range(3)]
    for problem, _ in problems:
        cone_data_of(problem)
    problem, (w, a, k) = problems[-1]
    assert not structure.is_compiled(problem) and len(templates()) == 1
    walks, walk = [], structure._Reading.structure

    def counted(reading, problem):
        walks.append(problem)
        return walk(reading, problem)

    monkeypatch.setattr(structure._Reading, "structure", counted)

    def agrees():
        found, expected = cone_data_of(problem), cone_data(problem)
        problem._cache.param_prog = None
        np.testing.assert_array_equal(found.c, expected.c)
        np.testing.assert_array_equal(found.b, expected.b)
        assert abs(sp.csc_array(found.A) - sp.csc_array(expected.A)).nnz == 0

    for seed in range(3):
        rng = np.random.default_rng(seed)
        w.value, a.value = rng.uniform(size=N) * (np.arange(N) > seed), rng.normal(size=N)
        agrees()
    assert not walks
    a.value = np.zeros(N)  # a constant of zeros keeps them
    agrees()
    assert len(walks) == 1
    k.value = 2.0  # it stands in an atom
    agrees()
    assert len(walks) == 2


def test_problems_that_were_read_are_let_go():
    for _ in range(3):
        problem, _ = with_parameters()
        cone_data_of(problem)
    assert problem in structure._read
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda u: (cp.quad_form(u, np.eye(N) + 1), []),
        lambda u: (cp.sum(u), [cp.PSD(cp.diag(u))]),
        lambda u: (cp.sum(cp.multiply(np.ones(N), cp.pos(cp.multiply(np.arange(1.0, N + 1), u) - 1))), []),
        lambda u: (cp.sum(u), [u >= np.zeros(N)]),
    ],
    ids=["quad_form", "psd", "product of two parameters", "zeros"],
)
def test_what_no_parameter_may_stand_for(make):
    """Such problems have a template with values in it, or none."""
    for _ in range(4):
        u = cp.Variable(N)
        objective, constraints = make(u)
        problem = cp.Problem(cp.Minimize(objective), constraints)
        found, expected = cone_data_of(problem), cone_data(problem)
        np.testing.assert_allclose(found.A.toarray(), expected.A.toarray())
        np.testing.assert_allclose(found.b, expected.b)


def test_problems_with_many_numbers_have_no_template(monkeypatch):
    monkeypatch.setattr(structure, "MOST_NUMBERS", 3)
    for seed in range(3):
        cone_data_of(drawn(hinge, seed)[0])
    assert not templates()


@pytest.mark.later
def test_templates_are_dropped_that_were_not_used_lately(monkeypatch):
    monkeypatch.setattr(structure, "MOST_TEMPLATES", 2)
    for loss in LOSSES:
        for seed in range(2):
            cone_data_of(drawn(loss, seed)[0])
    assert len(structure._templates) == 2


@pytest.mark.slow
def test_threads_do_not_mix_their_numbers():
    """One template, many problems at once."""
    problems = [drawn(hinge, seed)[0] for seed in range(60)]
    expected = [cone_data(drawn(hinge, seed)[0]).A.toarray() for seed in range(60)]
    found = [None] * 60

    def run(start):
        for i in range(start, 60, 4):
            found[i] = cone_data_of(problems[i]).A.toarray()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_multipliers_and_variables_of_a_problem_by_template():
    """Answers arrive at the user's own variables and constraints."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    values = []
    for seed in range(4):
        y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(seed).normal(size=30)
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        bound = theta(X[:5]) + b <= 0.3
        problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + ko.sum_squares(theta)), [bound])
        values.append(problem.solve())
        assert problem.status == "optimal"
        assert bound.dual_value.shape == (5,)
        assert np.all(bound.dual_value >= 0)
        assert float(np.max(bound.violation())) <= 1e-6
        assert problem.certificate.closes(1e-6)
    assert len(set(values)) == 4


def test_long_factors_stay_constants(monkeypatch):
    """cvxpy's compilation takes time ∝ N² for a parameter of N factors; other factors are another structure."""
    u, t, b = cp.Variable(N), cp.Variable(), cp.Variable()
    for most, structures in ((N, 1), (N - 1, 2)):
        monkeypatch.setattr(structure, "MOST_FACTORS", most)
        structure._templates.clear()
        for seed in (0, 1):
            objective, constraints = hinge(u, t, b, np.random.default_rng(seed))
            data = cone_data_of(cp.Problem(cp.Minimize(objective), constraints))
            assert data is not None
        assert len(structure._templates) == structures


def test_keys_of_lists_tell_their_entries():
    """A list is no tuple."""
    keys = [structure._frozen(item) for item in ([1, 2], [1, 3], (1, 2), [[1], 2], [[2], 2])]
    assert len(set(keys)) == 5 and structure._frozen([1, [2]]) == structure._frozen([1, [2]])


def test_a_problem_that_is_not_convex_has_no_template():
    problem, reading = cp.Problem(cp.Minimize(cp.log(cp.Variable()))), structure._Reading()
    reading.structure(problem)
    with pytest.raises(structure._NoTemplateError):
        structure._Template(problem, reading)
