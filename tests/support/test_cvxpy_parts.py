"""Each part of cvxpy that is no documented interface: a version that moves or changes one fails here."""

import inspect
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.solvers.cvxpy_solvers import CONIC_SOLVERS
from kernelopt.support import cvxpy_parts as parts
from kernelopt.support.clock import OutOfTimeError

x, y = cp.Variable(3, name="x"), cp.Variable((2, 2), name="y")


def test_versions_that_these_tests_were_run_with():
    assert cp.__version__.startswith("1.9.")


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        (x + 1, parts.AddExpression),
        (-x, parts.NegExpression),
        (np.ones((2, 3)) @ x, parts.MulExpression),
        (x / 2, parts.DivExpression),
        (x[0:2], parts.index),
        (x[np.array([True, False, True])], parts.special_index),
        (cp.hstack([x, x]), parts.Hstack),
        (cp.vstack([x, x]), parts.Vstack),
        (cp.reshape(y, (4,), order="F"), parts.reshape),
        (cp.sum(x), parts.Sum),
        (cp.square(x), parts.Power),
        (cp.power(x, 3), parts.PowerApprox),
        (cp.norm(x), parts.Pnorm),
        (cp.pnorm(x, 3), parts.PnormApprox),
        (cp.norm1(x), parts.norm1),
        (cp.normNuc(y), parts.normNuc),
        (cp.sigma_max(y), parts.sigma_max),
        (cp.sum_squares(x), parts.quad_over_lin),
        (cp.broadcast_to(x, (2, 3)), parts.broadcast_to),
        (cp.abs(x), parts.Elementwise),
        (cp.sum(x), parts.AffAtom),
        (cp.norm(x), parts.Atom),
        (x, parts.Leaf),
        (x <= 1, parts.Inequality),
    ],
)
def test_what_trees_are_made_of(expression, kind):
    assert isinstance(expression, kind)
    assert expression.args is not None


def test_powers_and_norms_show_their_exponents():
    assert cp.power(x, 3).p.value == 3 and cp.square(x).p.value == 2 and cp.norm(x).p == 2


def test_atoms_are_made_by_these_methods():
    """Those that predictions, norms and smooth losses override."""
    for name in ("_value_impl", "_grad", "graph_implementation", "numeric", "sign_from_args", "shape_from_args"):
        assert callable(getattr(cp.norm(x), name)) and callable(getattr(cp.exp(x), name))
    assert list(inspect.signature(parts.Atom._grad).parameters) == ["self", "values"]


def test_nodes_are_copied_with_other_arguments():
    other = cp.Variable(3)
    constraint = cp.norm(x) <= 1
    copy = constraint.copy([cp.norm(other), constraint.args[1]])
    assert copy.id == constraint.id and copy.variables() == [other]
    assert (x + 1).copy([other, cp.Constant(1)]).variables() == [other]


def test_ids_are_new():
    assert parts.get_id() < parts.get_id() < cp.Variable().id


def test_what_is_derived_from_leaves_is_forgotten():
    node = cp.norm(x) + cp.sum(x)
    node.is_convex(), node.parameters(), node.variables()
    known = set(vars(node))
    parts.forget(node)
    assert not [name for name in vars(node) if name.startswith("_lazy") or name.endswith("__cache__")]
    assert set(vars(node)) <= known and node.is_convex()


def test_cone_data():
    """½xᵀPx + cᵀx + offset with Ax + s = b, in the columns of each variable."""
    pos = cp.Variable(2, nonneg=True)
    bound = x >= 1
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) + 3 * cp.sum(pos) + 5), [bound, x[0] + pos[0] == 4])
    data = parts.cone_data(problem)
    assert data.offset == 5
    assert np.array_equal(data.P.diagonal()[data.columns(x)], [2, 2, 2])
    assert np.array_equal(data.c[data.columns(pos)], [3, 3])
    assert not len(data.columns(y))
    assert (data.dims.zero, data.dims.nonneg) == (1, 5)
    assert (data.dims.soc, data.dims.psd, data.dims.exp, data.dims.p3d, data.dims.pnd) == ([], [], 0, [], [])
    z = np.arange(1.0, 7.0)
    assert data.A.shape == (6, 5) and set(data.multipliers(z)) >= {bound.id, problem.constraints[1].id}
    assert np.size(data.multipliers(z)[bound.id]) == 3


def test_a_quadratic_part_is_a_whole_symmetric_matrix():
    P = np.ones((3, 3)) + np.eye(3)
    data = parts.cone_data(cp.Problem(cp.Minimize(cp.quad_form(x, P))))
    np.testing.assert_allclose(data.P.toarray(), 2 * P)
    assert not data.dims.soc


def test_a_problem_is_compiled_solved_and_inverted():
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - 1)), [cp.sum(x) == 0])
    found = parts.compiled(problem, "CLARABEL", {})
    assert found.solver == "CLARABEL" and found.first_column(x) is not None and found.first_column(y) is None
    assert {"c", "b", "A", "dims", "param_prob"} <= set(found.data)
    raw = found.answer(problem, {}, {})
    assert {"x", "z", "s", "obj_val", "status", "solve_time", "iterations"} <= set(dir(raw))
    solution = found.solution(raw)
    assert isinstance(solution, parts.Solution) and solution.status == "optimal"
    assert solution.primal_vars[x.id] == pytest.approx(np.zeros(3), abs=1e-6)
    assert solution.dual_vars[problem.constraints[0].id] is not None
    assert parts.SolverStats.from_dict(solution.attr, "CLARABEL").solver_name == "CLARABEL"
    problem.unpack(solution)
    assert x.value == pytest.approx(np.zeros(3), abs=1e-6)


def test_cones_as_clarabel_names_them():
    cones = parts.clarabel_cones(zero=1, nonneg=2, soc=[3], psd=[2], exp=1, p3d=[0.5], pnd=[])
    assert [type(cone).__name__ for cone in cones] == [
        "ZeroConeT", "NonnegativeConeT", "SecondOrderConeT", "PSDTriangleConeT", "ExponentialConeT", "PowerConeT",
    ]  # fmt: skip


def test_values_are_put_on_leaves_without_checks():
    scalar = cp.Variable(nonneg=True)
    scalar.save_value(np.array(-1.0))
    assert scalar.value == -1.0
    bound = scalar <= 1
    bound.dual_variables[0].save_value(np.array(2.0))
    assert bound.dual_value == 2.0


@pytest.mark.later
@pytest.mark.parametrize("solver", ["ECOS", "SCS"])
def test_the_options_that_solvers_list_nowhere(solver):
    """Each is taken, one at a time, as some exclude others."""
    if solver not in cp.installed_solvers():
        pytest.skip(f"{solver} is not installed")
    values = {"adaptive_scale": True, "normalize": True, "use_indirect": False, "use_quad_obj": True, "max_iters": 100}
    values |= {"acceleration_lookback": 10, "acceleration_interval": 10, "alpha": 1.5, "scale": 0.1, "rho_x": 1e-6}
    for name in CONIC_SOLVERS[solver].names():
        problem = cp.Problem(cp.Minimize(cp.norm(x - 1)), [x <= 2])
        problem.solve(solver, **{name: values.get(name, 1e-4 if name != "time_limit_secs" else 10.0)})
        assert problem.value == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
@pytest.mark.parametrize(
    "constraints",
    [
        lambda z, w: [cp.sum(cp.logistic(w[:60] + 2 * z)) <= 90],
        lambda z, w: [cp.SOC(w + 3, cp.vstack([cp.hstack([z, z]), cp.multiply(w, cp.hstack([z, 1 - z]))]))],
        lambda z, w: [cp.PowCone3D(z + 2, w[:60] + 3, cp.multiply(w[60:], z), 0.3)],
        lambda z, w: [cp.sum(cp.entr(z + 1)) >= cp.sum(w), z <= 2 * w[60:], cp.sum(z) == w[0]],
        lambda z, w: [cp.bmat([[w[0], z[0]], [z[0], z[1] + w[1]]]) >> 0, z >= -w[60:]],
    ],
    ids=["exponential", "second order", "power", "entropy", "semidefinite"],
)
def test_rows_are_formatted_as_by_cvxpy(constraints, solver):
    """With many entries of parameters, for any cones, and again for other values of the parameters."""
    w = cp.Parameter(120, nonneg=True)
    z = cp.Variable(60)
    problem = cp.Problem(
        cp.Minimize(w[:60] @ cp.abs(z - 1) + cp.sum_squares(z) + w[3] * cp.square(z[0]) + w[1] * z[2] + 3 * w[2] + 5),
        constraints(z, w),
    )
    plain = cp.Problem(problem.objective, problem.constraints)
    for seed in range(2):
        w.value = np.random.default_rng(seed).uniform(0.1, 1.0, size=120)
        ours = parts.compiled(problem, solver, {})
        theirs, _, inverse = plain.get_problem_data(solver)
        assert ours.inverse[-1][cp.settings.OFFSET] == pytest.approx(inverse[-1][cp.settings.OFFSET], rel=1e-15)
        assert type(ours.chain.solver).__name__ == solver and ours.chain.solver.name() == solver
        assert repr(ours.data["dims"]) == repr(theirs["dims"])
        for name in ("A", "b", "c", "P"):
            mine, expected = (sp.coo_array(one[name]).toarray() for one in (ours.data, theirs))
            np.testing.assert_array_equal(mine, expected)
    assert "_construct_chain" not in vars(problem)


PSD = cp.Parameter((5, 5), PSD=True, value=np.eye(5) + 1)


@pytest.mark.parametrize(
    "objective",
    [
        lambda x, z, w, y, lam: w @ cp.square(x - 1) + lam * cp.sum_squares(x) + y @ x,
        lambda x, z, w, y, lam: cp.sum_squares(x - y) + lam * cp.sum_squares(z) + cp.sum(z) + 3,
        lambda x, z, w, y, lam: w[:30] @ cp.quad_over_lin(z, 2.0, axis=1) + w[:4] @ cp.quad_over_lin(z, 1.0, axis=0),
        lambda x, z, w, y, lam: w @ cp.huber(2 * x) + cp.quad_form(x, np.eye(60) + 1) + w @ x,
        lambda x, z, w, y, lam: w @ cp.square(x) + 2 * cp.square(x[0]) + cp.sum(cp.square(x)) + lam * cp.sum(cp.abs(x)),
        lambda x, z, w, y, lam: w @ cp.abs(x) + lam * cp.sum(x),
        lambda x, z, w, y, lam: cp.quad_form(x[:5], PSD) + w @ cp.square(x) + y @ x,
    ],
    ids=["weights", "targets", "blocks", "huber", "twice", "no squares", "a matrix with parameters"],
)
def test_quadratic_parts_are_those_of_cvxpy(objective):
    """With many entries of parameters, and again for other values of them."""
    x, z, rng = cp.Variable(60), cp.Variable((30, 4)), np.random.default_rng(0)
    w, y, lam = cp.Parameter(60, nonneg=True), cp.Parameter(60), cp.Parameter(nonneg=True)
    problem = cp.Problem(cp.Minimize(objective(x, z, w, y, lam)))
    plain = cp.Problem(problem.objective)
    assert sum(p.size for p in problem.parameters()) > parts.MANY_PARAMETERS
    for _ in range(2):
        w.value, y.value, lam.value = rng.random(60), rng.normal(size=60), 0.7
        ours, theirs = parts.compiled(problem, "CLARABEL", {}).data, plain.get_problem_data("CLARABEL")[0]
        for name in ("A", "b", "c", "P"):
            mine, expected = (sp.coo_array(one[name]).toarray() if name in one else None for one in (ours, theirs))
            np.testing.assert_array_equal(mine, expected)


def test_squares_with_many_weights_take_little_memory():
    """cvxpy's own coefficients are arrays of 5000² numbers."""
    x, w = cp.Variable(5000), cp.Parameter(5000, nonneg=True, value=np.linspace(0.1, 1, 5000))
    tracemalloc.start()
    try:
        data = parts.cone_data(cp.Problem(cp.Minimize(w @ cp.square(x - 1))))
        assert tracemalloc.get_traced_memory()[1] <= 20e6
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(data.P.diagonal()[data.P.diagonal() > 0], 2 * w.value)


def test_a_matrix_of_parameters_beside_affine_terms():
    """cvxpy's own way for such a matrix has a column for each of its entries, but not a row for each variable."""
    n = 200
    x, y = cp.Variable(n), cp.Parameter(n, value=np.ones(n))
    P = cp.Parameter((n, n), PSD=True, value=np.eye(n))
    tracemalloc.start()
    try:
        data = parts.cone_data(cp.Problem(cp.Minimize(cp.quad_form(x, P) - 2 * (y @ x))))
        assert tracemalloc.get_traced_memory()[1] <= 30e6
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(data.P.diagonal(), 2.0)
    np.testing.assert_allclose(data.c, -2.0)


def test_exponentials_with_many_weights_take_little_memory():
    """cvxpy's own formatting takes 3.5 GB for 6000 weights."""
    z, w = cp.Variable(2000), cp.Parameter(2000, nonneg=True, value=np.ones(2000))
    tracemalloc.start()
    try:
        data = parts.cone_data(cp.Problem(cp.Minimize(w @ cp.logistic(z) + cp.square(z[0]))))
        assert tracemalloc.get_traced_memory()[1] <= 20e6
    finally:
        tracemalloc.stop()
    assert data.dims.exp == 4000


def test_derivatives_that_fail_by_themselves_are_left_out():
    """cvxpy's derivative of a support function assigns a value to its argument, which entries do not take."""
    x, y = cp.Variable(3, value=np.arange(3.0)), cp.Variable(2)
    support = cp.suppfunc(y, [cp.norm(y) <= 1])
    assert parts.jacobians(support(x[:2])) == {}
    assert parts.jacobians(cp.sum_squares(x))[x.id].toarray().ravel().tolist() == [0, 2, 4]


def test_derivatives_of_numbers_are_sparse():
    """cvxpy's derivative of a number by a number is a number or an array."""
    x = cp.Variable(value=2.0)
    for expression, slope in ((x, 1), (-x, -1), (2 * x + 1, 2), (cp.square(x), 4)):
        assert parts.jacobians(expression)[x.id].toarray().tolist() == [[slope]]


def test_setups_that_take_longer_than_there_is_time():
    """A semidefinite cone of order 60 has a dense block of 1830 rows: a second."""
    parts.require_setup_within(0.1, 1000, [])
    parts.require_setup_within(2.0, 1000, [60])
    parts.require_setup_within(np.inf, 10**9, [10**4])
    for seconds, entries, sides in ((0.9, 1000, [60]), (0.1, 10**6, []), (-1.0, 1, [])):
        with pytest.raises(OutOfTimeError):
            parts.require_setup_within(seconds, entries, sides)
