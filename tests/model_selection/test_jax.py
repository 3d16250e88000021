"""Problems as functions that JAX differentiates."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelOptError, MissingPackageError, ParameterError
from kernelopt.model_selection import jax_layer

ks, losses = ko.kernels, ko.losses
RNG = np.random.default_rng(6)
X = RNG.uniform(0, 4, size=(24, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_t(2, size=24)
LABELS = np.where(np.median(Y) < Y, 1.0, -1.0)
TRAIN, TEST = np.arange(16), np.arange(16, 24)


pytestmark = pytest.mark.filterwarnings("ignore:You are solving a parameterized problem that is not DPP")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def positive(shape=(), name="p"):
    return cp.Parameter(shape, pos=True, name=name)


def smooth():
    """Huber's loss, with λ, σ and weights."""
    lam, sigma, w = positive(name="lam"), positive(name="sigma"), cp.Parameter(16, nonneg=True, name="w")
    theta, b = ko.Theta(ks.Gaussian(sigma=sigma)), cp.Variable(name="b")
    fit = w @ losses.huber(Y[TRAIN], theta(X[TRAIN]) + b) + lam * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(fit))
    outputs = [theta(X[TEST]) + b, problem.objective, ko.norm(theta), cp.reshape(b, (1, 1), order="F")]
    return problem, [lam, sigma, w], outputs, (0.5, 1.3, np.linspace(0.5, 1.5, 16))


def points():
    """Logistic loss, with points as parameters."""
    lam, Z = positive(name="lam"), cp.Parameter(X.shape, name="Z")
    theta, b = ko.Theta(ks.Gaussian(sigma=1.0).indexed(Z)), cp.Variable()
    loss = cp.sum(losses.log_loss(LABELS[TRAIN], theta(TRAIN) + b))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    return problem, [Z, lam], [theta(TEST) + b, b], (X, 0.4)


def constrained():
    """Absolute loss under bounds, with length scales, labels and the bound as parameters."""
    scales, labels, bound = positive(2, "scales"), cp.Parameter(16, name="labels"), cp.Parameter(name="bound")
    theta = ko.Theta(ks.Matern(2.5, 1.0).ard(scales))
    loss = cp.sum(losses.absolute_error(labels, theta(X[TRAIN]))) + 0.2 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [theta(X[TEST]) <= bound])
    return problem, [labels, bound, scales], [theta(X), problem.objective], (Y[TRAIN], 0.4, np.array([1.0, 2.0]))


def maximized():
    """A concave maximum; a product of parameters, which follows the rules one parameter at a time."""
    lam, mu = positive(name="lam"), positive(name="mu")
    theta = ko.Theta(ks.Gaussian(sigma=1.0))
    likelihood = -cp.sum(losses.log_loss(LABELS[TRAIN], theta(X[TRAIN])))
    problem = ko.Problem(cp.Maximize(likelihood - lam * mu * ko.sum_squares(theta)))
    return problem, [lam, mu], [cp.square(theta(X[TEST])), problem.objective], (0.7, 0.6)


def several():
    """Two outputs of θ, and predictions as a matrix."""
    lam = positive(name="lam")
    theta = ko.Theta(ks.Gaussian(sigma=1.0), outputs=2)
    errors = cp.sum(cp.huber(np.column_stack([Y, Y**2])[TRAIN] - theta(X[TRAIN])))
    return ko.Problem(cp.Minimize(errors + lam * ko.sum_squares(theta))), [lam], [theta(X[TEST])], (0.7,)


def own_loss():
    """A loss that JAX differentiates itself, within the callback."""
    lam, sigma = positive(name="lam"), positive(name="sigma")
    theta = ko.Theta(ks.Gaussian(sigma=sigma))
    loss = ko.SmoothLoss.from_jax(lambda u, y: jnp.sqrt(1 + (u - y) ** 2))
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X[TRAIN]), Y[TRAIN])) + lam * ko.sum_squares(theta)))
    return problem, [lam, sigma], [theta(X[TEST]), problem.objective], (0.3, 1.0)


CASES = [smooth, points, constrained, maximized, several, own_loss]


def total(layer):
    """A number of all outputs."""
    return lambda *values: sum(jnp.sum(jnp.sin(output)) for output in layer(*values))


def close(found, expected, rtol=1e-7, atol=1e-9):
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, expected)


@pytest.fixture
def solves(monkeypatch):
    """The number of solves."""
    count, plain = [], ko.Problem.solve
    monkeypatch.setattr(ko.Problem, "solve", lambda *args, **options: count.append(1) or plain(*args, **options))
    return count


# ---------------------------------------------------------------- values and gradients


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_solved_problem(case):
    problem, parameters, outputs, values = case()
    found = ko.JaxLayer(problem, parameters, outputs)(*values)
    for p, value in zip(parameters, values, strict=True):
        p.value = value
    problem.solve(tol=1e-9)
    for array, output in zip(found, outputs, strict=True):
        expected = output.value
        assert isinstance(array, jax.Array) and array.dtype == np.float64 and array.shape == np.shape(expected)
        np.testing.assert_allclose(array, expected, atol=2e-4)
        if output is problem.objective:
            np.testing.assert_allclose(array, expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_by_differences(case, compiled):
    layer, values = ko.JaxLayer(*case()[:3]), case()[3]
    check_grads(jax.jit(layer) if compiled else layer, values, order=1, modes=["rev"], rtol=1e-5, atol=1e-6, eps=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_library(case):
    problem, parameters, outputs, values = case()
    gradients = jax.grad(lambda *v: ko.JaxLayer(problem, parameters, outputs)(*v)[0].sum(), range(len(values)))(*values)
    for p, value in zip(parameters, values, strict=True):
        p.value = value
    problem.solve()
    expected = ko.gradient(problem, cp.sum(outputs[0]), parameters)
    close(gradients, tuple(expected[p] for p in parameters))


@pytest.mark.slow
def test_a_network_in_front():
    layer = ko.JaxLayer(*points()[:3])

    def loss(weights, lam):
        features = jnp.tanh(X @ weights)
        predictions, _ = layer(features, lam)
        return jnp.mean(jnp.logaddexp(0.0, -LABELS[TEST] * predictions))

    weights = RNG.normal(size=(2, 2))
    check_grads(jax.jit(loss), (weights, 0.4), order=1, modes=["rev"], rtol=1e-5, eps=1e-5)


# ---------------------------------------------------------------- transformations, and the order of calls


@pytest.mark.slow
def test_transformations():
    layer, (lam, sigma, w) = ko.JaxLayer(*smooth()[:3]), smooth()[3]
    f, places = total(layer), (0, 1, 2)
    value, gradient = jax.value_and_grad(f, places)(lam, sigma, w)
    close(jax.jit(jax.value_and_grad(f, places))(lam, sigma, w), (value, gradient))
    close(layer(lam, sigma, w), jax.jit(layer)(lam, sigma, w))
    rows = jax.jacrev(lambda s: layer(lam, s, w)[0])(sigma)
    for i in (0, 5):
        assert rows[i] == pytest.approx(float(jax.grad(lambda s, i=i: layer(lam, s, w)[0][i])(sigma)), rel=1e-9)
    lams, ws = np.array([0.3, 0.5, 1.0]), np.stack([w, 2 * w, w[::-1]])
    for function in (f, jax.jit(f)):
        batched = jax.vmap(jax.value_and_grad(function, places), in_axes=(0, None, 0))(lams, sigma, ws)
        for i in range(3):
            one = jax.value_and_grad(f, places)(lams[i], sigma, ws[i])
            close(jax.tree_util.tree_map(lambda a, i=i: a[i], batched), one)
    assert len({float(v) for v in batched[0]}) == 3


@pytest.mark.slow
def test_calls_in_any_order(solves):
    layer, (_, sigma, w) = ko.JaxLayer(*smooth()[:3]), smooth()[3]
    function = lambda lam: layer(lam, sigma, w)[0].sum()
    expected = [jax.value_and_grad(function)(value) for value in (0.2, 0.6, 2.0)]
    assert len(solves) == 3  # none of them for a gradient
    forward = [jax.vjp(function, value) for value in (0.2, 0.6, 2.0)]
    assert len(solves) == 6
    for (value, pull), (known, slope) in reversed(list(zip(forward, expected, strict=True))):
        close((value, pull(1.0)[0]), (known, slope))
    assert len(solves) == 8  # the last one was known
    close([pull(1.0)[0] for _, pull in forward], [slope for _, slope in expected])
    assert len({float(slope) for _, slope in expected}) == 3


@pytest.mark.later
def test_cotangents_of_zero_take_no_system(monkeypatch):
    layer, values = ko.JaxLayer(*smooth()[:3]), smooth()[3]
    _, pull = jax.vjp(lambda *v: layer(*v)[0], *values)
    monkeypatch.setattr(jax_layer.Refined, "gradient", lambda *_: pytest.fail("a gradient of 0"))
    close(pull(jnp.zeros(8)), (0.0, 0.0, np.zeros(16)))


@pytest.mark.slow
def test_other_parameters_keep_their_values():
    problem, (lam, sigma, w), outputs, values = smooth()
    sigma.value, w.value = values[1:]
    layer, whole = ko.JaxLayer(problem, [lam], outputs), ko.JaxLayer(problem, [lam, sigma, w], outputs)
    f, g = total(layer), total(whole)
    close(jax.value_and_grad(f)(0.5), jax.value_and_grad(g)(*values))
    value = f(0.5)
    sigma.value = 2.0  # known at the next call
    close(jax.value_and_grad(f)(0.5), jax.value_and_grad(g)(0.5, 2.0, values[2]))
    assert float(f(0.5)) != pytest.approx(float(value), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_single_precision(compiled):
    layer, values = ko.JaxLayer(*smooth()[:3]), smooth()[3]
    expected = jax.value_and_grad(total(layer), (0, 1, 2))(*values)
    with jax.enable_x64(False):
        function = jax.value_and_grad(total(layer), (0, 1, 2))
        found = (jax.jit(function) if compiled else function)(*values)
        assert all(a.dtype == np.float32 for a in jax.tree_util.tree_leaves(found))
        assert all(output.dtype == np.float32 for output in layer(*values))
        assert [output.dtype for output in layer(1, 2, np.ones(16, dtype=int))] == [np.float32] * 4
    close(found, expected, rtol=2e-6, atol=2e-6)
    assert found[0] != expected[0]


@pytest.mark.slow
def test_nothing_else_changes():
    problem, parameters, outputs, values = smooth()
    theta = problem.thetas()[0]
    for p, value in zip(parameters, values, strict=True):
        p.value = value
    problem.solve()
    before = problem.value, theta.value, [v.value for v in problem.variables()], problem.status
    layer = ko.JaxLayer(problem, parameters, outputs)
    jax.grad(total(layer), range(3))(2.0, 0.7, np.ones(16))
    with pytest.raises(ParameterError):
        layer(2.0, -0.7, np.ones(16))
    after = problem.value, theta.value, [v.value for v in problem.variables()], problem.status
    assert after == before and not problem._changed_since()
    close([p.value for p in parameters], list(values))


@pytest.mark.slow
def test_solve_options(monkeypatch):
    problem, parameters, outputs, values = smooth()
    seen, plain = [], ko.Problem.solve
    monkeypatch.setattr(ko.Problem, "solve", lambda *a, **options: seen.append(options) or plain(*a, **options))
    found = ko.JaxLayer(problem, parameters, outputs, solver="CLARABEL", tol=1e-5)(*values)
    assert seen == [{"tol": 1e-5, "certify": False, "solver": "CLARABEL"}]
    close(found, ko.JaxLayer(problem, parameters, outputs)(*values))


# ---------------------------------------------------------------- errors


def test_without_jax(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    with pytest.raises(MissingPackageError, match=r"JaxLayer needs jax: pip install jax"):
        ko.JaxLayer(*smooth()[:3])


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda problem, ps, os: (problem, [*ps, cp.Parameter(name="q")], os), ParameterError, "of the problem.*got q"),
        (lambda problem, ps, os: (problem, [*ps, ps[0]], os), ParameterError, "once"),
        (lambda problem, ps, os: (problem, [], os), ParameterError, "with parameters"),
        (lambda problem, ps, os: (cp.Problem(cp.Minimize(0)), ps, os), DataTypeError, "a ko.Problem"),
        (lambda problem, ps, os: (problem, ps, os[0]), DataError, "list of outputs.*expression"),
        (lambda problem, ps, os: (problem, ps, []), DataError, "list of outputs"),
        (lambda problem, ps, os: (problem, ps, [1.0]), DataError, "real expressions"),
        (lambda problem, ps, os: (problem, ps, [1j * os[0]]), DataError, "real expressions"),
        (lambda problem, ps, os: (problem, ps, [cp.Minimize(os[2])]), DataError, "problem.objective"),
        (lambda problem, ps, os: (problem, ps, [cp.Variable(name="v")]), DataError, "none of them"),
        (lambda problem, ps, os: (problem, ps, [cp.Parameter() * os[0]]), DataError, "in JAX, from the outputs"),
        (lambda problem, ps, os: (problem, ps, [ko.Theta(ks.Linear())(X)]), DataError, "none of them"),
    ],
)
def test_what_it_refuses(change, kind, words):
    with pytest.raises(kind, match=words):
        ko.JaxLayer(*change(*smooth()[:3]))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1.0, 1.0), "each of the parameters lam, sigma, w; got 2"),
        ((1.0, 1.0, 1.0), r"shape \(16,\) for w; got shape \(\).*jax.vmap"),
        (([1.0], 1.0, np.ones(16)), r"shape \(\) for lam; got shape \(1,\)"),
        ((1j, 1.0, np.ones(16)), "real numbers.*complex"),
        ((1.0, -1.0, np.ones(16)), "fits sigma; got .* must be positive"),
        ((1.0, 1.0, -np.ones(16)), "fits w"),
        ((np.nan, 1.0, np.ones(16)), "fits lam"),
    ],
)
def test_wrong_values(values, words):
    with pytest.raises(ParameterError, match=words):
        ko.JaxLayer(*smooth()[:3])(*values)


def bounded():
    """A problem that is feasible for bound ≥ 0 only."""
    bound, theta = cp.Parameter(value=3.0, name="bound"), ko.Theta(ks.Linear())
    f = theta(X[TRAIN])
    return ko.Problem(cp.Minimize(cp.sum_squares(f - 5)), [ko.norm(theta) <= 1, f[0] <= bound, f[0] >= 0]), bound, f


@pytest.mark.slow
def test_without_an_answer():
    problem, bound, f = bounded()
    layer = ko.JaxLayer(problem, [bound], [f])
    expected = layer(0.5)
    with pytest.raises(KernelOptError, match="ended as infeasible"):
        layer(-1.0)
    close(layer(0.5), expected)
    with pytest.raises(jax.errors.JaxRuntimeError, match="ended as infeasible"):
        jax.block_until_ready(jax.jit(layer)(-1.0))
    close(jax.jit(layer)(0.5), expected)
    assert bound.value == 3.0


@pytest.mark.slow
def test_where_there_is_no_gradient():
    data, theta = cp.Parameter(16, name="data"), ko.Theta(ks.Gaussian(sigma=1.0))
    loss = ko.SmoothLoss.from_jax(lambda u, y: (u - y) ** 2)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X[TRAIN]), data)) + ko.sum_squares(theta)))
    layer = ko.JaxLayer(problem, [data], [theta(X[TEST])])
    assert layer(Y[TRAIN])[0].shape == (8,)
    with pytest.raises(KernelOptError, match="by data is not known"):
        jax.grad(total(layer))(Y[TRAIN])


@pytest.mark.later
def test_other_derivatives_are_refused():
    layer, (lam, sigma, w) = ko.JaxLayer(*smooth()[:3]), smooth()[3]
    f = lambda lam: layer(lam, sigma, w)[0].sum()
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(f, (lam,), (1.0,))
    with pytest.raises((TypeError, ValueError), match="custom_vjp|Pure callbacks"):
        jax.grad(jax.grad(f))(lam)
