"""Properties of whatever Hypothesis draws: the calculus of kernels, the representer rules, canonical forms."""

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelopt as ko
from kernelopt import losses

ks = ko.kernels
COLUMNS = 2
# The same examples in each run: a failure is then one that everybody sees.
fixed = settings(derandomize=True, deadline=None, max_examples=40, database=None)

positive = st.floats(0.2, 4.0)
numbers = st.floats(-2.0, 2.0)
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6).map(np.array)
leaves = st.one_of(
    st.builds(lambda s: ks.Gaussian(sigma=s), positive),
    st.builds(lambda s: ks.Laplacian(sigma=s), positive),
    st.builds(lambda s, nu: ks.Matern(nu=nu, sigma=s), positive, st.sampled_from([0.5, 0.7, 1.5, 2.2, 2.5])),
    st.builds(lambda s, a: ks.RationalQuadratic(sigma=s, alpha=a), positive, positive),
    st.builds(lambda p, s: ks.Periodic(period=p, sigma=s), positive, positive),
    st.builds(lambda d, c: ks.Polynomial(degree=d, offset=c), st.integers(1, 3), positive),
    st.just(ks.Linear()),
    st.builds(ks.Constant, positive),
)
kernels = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda c, a: c * a, positive, parts),
        st.builds(lambda a: a**2, parts),
        st.builds(lambda a, v: a.ard(list(v)), parts, st.tuples(positive, positive)),
        st.builds(lambda a, c: a.weighted(lambda X: c + X[:, 0]), parts, numbers),
    ),
    max_leaves=4,
)


def close(got, expected):
    scale = max(1e-300, float(np.abs(expected).max()))
    assert np.abs(np.asarray(got) - expected).max() <= 1e-11 * scale


@pytest.mark.slow
@fixed
@given(kernels, rows, rows)
def test_every_kernel(k, X, Z):
    Q, K = k(X), k(X, Z)
    close(Q, Q.T)
    close(K, k(Z, X).T)
    close(k.diag(X), np.diag(Q))
    assert k.is_psd
    eigenvalues = np.linalg.eigvalsh(Q)
    assert eigenvalues[0] >= -1e-11 * max(eigenvalues[-1], 0.0)
    close(k(np.vstack([X, Z]), Z), np.vstack([K, k(Z)]))
    # Cauchy and Schwarz
    assert (np.outer(k.diag(X), k.diag(Z)) * (1 + 1e-11) + 1e-290 >= K**2).all()


@pytest.mark.slow
@fixed
@given(kernels, kernels, kernels, positive, positive, rows, rows)
def test_calculus_of_kernels(a, b, c, s, t, X, Z):  # noqa: PLR0917
    A, B, C = (k(X, Z) for k in (a, b, c))
    size = np.abs(A) + np.abs(B) + np.abs(C)
    assert (np.abs((a + b)(X, Z) - (A + B)) <= 1e-12 * size).all()
    assert (np.abs((a + (b + c))(X, Z) - ((a + b) + c)(X, Z)) <= 1e-12 * size).all()
    close((a * b)(X, Z), A * B)
    close((b * a)(X, Z), A * B)
    close(((a * b) * c)(X, Z), A * B * C)
    close((s * a)(X, Z), s * A)
    close((s * (t * a))(X, Z), s * t * A)
    close((a**2)(X, Z), A * A)
    assert (np.abs((s * (a + b))(X, Z) - (s * a + s * b)(X, Z)) <= 1e-12 * s * size).all()
    assert (np.abs((a * (b + c))(X, Z) - (a * b + a * c)(X, Z)) <= 1e-12 * np.abs(A) * size).all()
    for k in (a + b, a * b, s * a, a**2):
        close(k.diag(X), np.diag(k(X)))


# Representer rules. A use of ‖θ‖ is a chain of steps, each increasing (+1), decreasing (−1), or neither (0). The
# theorem covers it if the product of their signs is that of the goal.

X = np.random.default_rng(0).normal(size=(5, COLUMNS))
y = np.sin(3 * X[:, 0])
STEPS = {
    "times 3": (1, lambda e: 3 * e),
    "plus 1": (1, lambda e: e + 1),
    "exp": (1, cp.exp),
    "pos": (1, cp.pos),
    "maximum": (1, lambda e: cp.maximum(e, 0.5)),
    "minus": (-1, lambda e: -e),
    "1 minus": (-1, lambda e: 1 - e),
    "over −2": (-1, lambda e: e / -2),
    "times a variable": (0, lambda e: FREE * e),
    "of unknown sign": (0, lambda e: UNKNOWN * e),
}
UNKNOWN, FREE = cp.Parameter(value=1.0), cp.Variable()
chains = st.lists(st.sampled_from(sorted(STEPS)), max_size=5)


def representable(names, rewritten=lambda e: e, maximized=False, as_constraint=False):
    theta = ko.Theta(ks.Gaussian(sigma=1.0))
    e = ko.norm(theta)
    for name in names:
        e = STEPS[name][1](e)
    e = rewritten(e)
    if as_constraint:
        return ko.Problem(cp.Minimize(cp.sum(theta(X))), [e <= 7]).is_representable()
    e = e + cp.sum(theta(X))
    return ko.Problem(cp.Maximize(e) if maximized else cp.Minimize(e)).is_representable()


@pytest.mark.slow
@settings(fixed, max_examples=150)
@given(chains)
def test_the_product_of_signs_decides(names):
    sign = np.prod([STEPS[name][0] for name in names])
    assert representable(names) == (sign > 0)
    assert representable(names, maximized=True) == (sign < 0)
    assert representable(names, as_constraint=True) == (sign > 0)


REWRITES = {
    "twice negated": lambda e: -cp.multiply(-1, e),
    "plus and minus": lambda e: e + 4 - 4,
    "in halves": lambda e: 0.5 * e + 0.5 * e,
    "summed": lambda e: cp.sum(cp.hstack([e])),
    "reshaped": lambda e: cp.reshape(e, (1,), order="C")[0],
    "times and over": lambda e: (e * 8) / 8,
    "over and times −1": lambda e: -1 * (e / -1),
}


@pytest.mark.slow
@settings(fixed, max_examples=100)
@given(chains, st.lists(st.sampled_from(sorted(REWRITES)), min_size=1, max_size=3))
def test_rewrites_that_keep_signs_change_no_verdict(names, rewrites):
    def rewritten(e):
        for name in rewrites:
            e = REWRITES[name](e)
        return e

    for options in ({}, {"maximized": True}, {"as_constraint": True}):
        assert representable(names, rewritten, **options) == representable(names, **options)


# Canonical forms


LOSSES = {
    "squares": losses.squared_error,
    "absolute": losses.absolute_error,
    "huber": losses.huber,
    "hinge": lambda y, f: losses.hinge(np.where(y > 0, 1.0, -1.0), f),
    "logistic": lambda y, f: losses.log_loss(np.where(y > 0, 1.0, -1.0), f),
}
PENALTIES = {
    "squared": ko.sum_squares,
    "unsquared": ko.norm,
    "both": lambda theta: ko.norm(theta) + 0.5 * ko.sum_squares(theta),
    "exponential": lambda theta: cp.exp(ko.norm(theta)),
}
vectors = st.lists(numbers, min_size=5, max_size=5).map(np.array)


@cache
def gaussian():
    return ks.Gaussian(sigma=1.0)


@pytest.mark.slow
@fixed
@given(
    st.sampled_from(sorted(LOSSES)), st.sampled_from(sorted(PENALTIES)), st.booleans(), st.booleans(), vectors, numbers,
    positive,
)  # fmt: skip
def test_the_cut_form_has_the_stated_value(  # noqa: PLR0917
    loss, penalty, negated, repeated, c, intercept, weight
):
    """At u = Aθ, t = ‖θ‖ and any y."""
    theta, b = ko.Theta(gaussian()), cp.Variable()
    points = np.vstack([X[:3], X[1:3]]) if repeated else X
    objective = cp.sum(LOSSES[loss](y, theta(points) + b)) + weight * PENALTIES[penalty](theta) + cp.square(b)
    goal = cp.Maximize(-objective) if negated else cp.Minimize(objective)
    form = ko.Problem(goal, [cp.sum(theta(X[:2])) + b <= 3]).canonical_form()
    # θ = Σ cᵢF(xᵢ), by the kernel's formula
    squared = float(c @ gaussian()(X) @ c)
    at = gaussian()(points, X) @ c
    (link,) = form.predictions
    predictions = gaussian()(link.rows.points, X) @ c
    link.u.value = predictions[link.take]
    for norm in form.norms:
        norm.t.value = max(squared, 0.0) ** 0.5
    b.value = intercept
    length = max(squared, 0.0) ** 0.5
    kinds = {"squared": squared, "unsquared": length, "both": length + 0.5 * squared, "exponential": np.exp(length)}
    stated = float(np.sum(LOSSES[loss](y, cp.Constant(at + intercept)).value)) + weight * kinds[penalty] + intercept**2
    assert form.outer.objective.value == pytest.approx(-stated if negated else stated, rel=1e-9, abs=1e-9)
    short = max(float(np.sum(gaussian()(X[:2], X) @ c)) + intercept - 3, 0.0)
    assert np.max(form.outer.constraints[0].violation()) == pytest.approx(short, abs=1e-9)


@pytest.mark.slow
@settings(fixed, max_examples=12)
@given(st.sampled_from(sorted(LOSSES)), positive, vectors)
def test_the_optimum_of_the_reduced_form_is_that_of_an_explicit_theta(loss, weight, y):
    theta, beta = ko.Theta(ks.Polynomial(degree=2)), cp.Variable(6)
    F = ks.Polynomial(degree=2).features(X)
    ours = ko.Problem(cp.Minimize(cp.sum(LOSSES[loss](y, theta(X))) + weight * ko.sum_squares(theta)))
    theirs = cp.Problem(cp.Minimize(cp.sum(LOSSES[loss](y, F @ beta)) + weight * cp.sum_squares(beta)))
    ours.solve()
    theirs.solve(solver="CLARABEL")
    assert F.shape[1] == 6
    assert ours.value == pytest.approx(theirs.value, rel=1e-5, abs=1e-6)
