"""Differential equation: the method of pikernel in its own formulas, the tolerance in plain cvxpy, and what is said."""

import cvxpy as cp
import numpy as np
import pytest
from running import example


def pikernel(x, y, L, m=100, s=2):
    """pikernel's answer for f″ + f′ + f, as a function: its matrices with μ = 1, transcribed from its code."""
    n, k = len(x), np.arange(-m, m + 1)
    sobolev = np.diag(1 + k.astype(float) ** (2 * s) / (2 * L) ** s)
    step = -1j * np.pi / 2 / L
    equation = np.diag(1 + k * step + (k * step) ** 2)
    overlap = np.sinc((k[:, None] - k) / 2) / 2  # of waves of period 4L on [−L, L]
    M = sobolev / n + equation.conj().T @ overlap @ equation
    waves = lambda x: np.exp(1j * np.pi / L / 2 * np.outer(k, x))
    c = np.linalg.solve(waves(x) @ waves(x).conj().T + n * M, waves(x) @ y)
    return lambda x: (waves(x).conj().T @ c).real


def hermite(z, order):
    """dᵏ/dzᵏ exp(−z²/2)."""
    polynomial = [1, -z, z**2 - 1, -(z**3) + 3 * z, z**4 - 6 * z**2 + 3][order]
    return polynomial * np.exp(-(z**2) / 2)


def with_the_equation_at(names, points):
    """The optimum of the statement with the tolerance at points, for explicit features."""
    x, y, L = names["x"], names["y"], np.pi
    own = np.linspace(-L, L, 60)  # representers that span the functions up to rounding
    values = lambda s, t: hermite(s[:, None] - t, 0)
    size, V = np.linalg.eigh(values(own, own))
    kept = size > 1e-12 * size[-1]
    T = V[:, kept] / np.sqrt(size[kept])
    equation = sum(hermite(points[:, None] - own, order) for order in (0, 1, 2)) @ T
    w, slack = cp.Variable(kept.sum()), names["tolerance"]
    loss = cp.sum_squares(values(x, own) @ T @ w - y) / len(x)
    laws = [equation @ w <= slack, equation @ w >= -slack]
    return cp.Problem(cp.Minimize(loss + names["lam"] * cp.sum_squares(w)), laws).solve(solver="CLARABEL")


@pytest.mark.slow
def test_differential_equation():
    names = example("applications/differential_equation")
    x, y, L = names["x"], names["y"], np.pi
    assert names["reproduced"] == pytest.approx(names["published"], rel=1e-6)
    theirs = pikernel(x, y, L)
    assert names["squared_error"](theirs(names["x_test"]), names["x_test"]) == pytest.approx(
        names["published"], rel=1e-9
    )
    names["penalized"](x, y, mu=1.0).solve(tol=1e-9)
    assert names["f"](names["fine"]).value == pytest.approx(theirs(names["fine"]), abs=1e-5)

    assert "proven" in " ".join(names["certificate"].rests_on)
    assert np.abs(names["of_penalty"]).max() > 10 * names["tolerance"]
    assert np.abs(names["of_tolerance"]).max() <= names["tolerance"] * (1 + 1e-9)
    points = np.concatenate([law.points[:, 0] for law in names["within"]])
    assert with_the_equation_at(names, np.linspace(-L, L, 2001)) == pytest.approx(names["certificate"].upper, rel=1e-4)
    assert len(points) < 200
    assert 0.5 * names["bound"] < names["apart"] <= names["bound"]

    means = np.mean(names["draws"], axis=0)
    assert means[0] > 2 * max(means[1:])  # without the equation
    error = {name: np.mean((curve - names["pushed"](names["fine"])) ** 2) for name, curve in names["curves"].items()}
    assert min(error, key=error.get) == "u ≥ 0 everywhere"
    assert names["forces"]["u ≥ 0 everywhere"].min() >= -1e-9
    assert max(force.min() for name, force in names["forces"].items() if name != "u ≥ 0 everywhere") < -0.05
