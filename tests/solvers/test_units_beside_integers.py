"""Units of data beside integers, whose solvers have absolute tolerances."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.solvers.equilibration import equilibrate
from kernelopt.support.cvxpy_parts import compiled


def dims(**sizes):
    return SimpleNamespace(**({"zero": 0, "nonneg": 0, "soc": [], "psd": [], "exp": 0, "p3d": [], "pnd": []} | sizes))


def test_units_are_found_through_a_chain_of_rows():
    """z + x₁/10⁶ ≤ 1, x₁ = 10⁶x₂ and a cost x₂²: x₁ is in units of 10⁶, as z tells."""
    A = sp.csc_array(np.array([[1.0, -1e6, 0.0], [1e-6, 0.0, 1.0]]))
    data = {"A": A, "b": np.array([0.0, 1.0]), "c": np.array([0.0, 0.0, 1.0]), "dims": dims(zero=1, nonneg=1)}
    data["P"] = sp.csc_array(np.diag([0.0, 1.0, 0.0]))
    D, kappa = equilibrate(data, [2])
    assert pytest.approx([2.0**20, 1.0, 1.0]) == D and kappa == 1.0
    found = abs(data["A"].toarray())
    assert (found[found > 0] < 2).all() and (found[found > 0] > 0.5).all()


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e6])
def test_cones_keep_what_they_say(unit):
    """With squares, exponents and a semidefinite block, the optimum of the scaled data is that of the stated ones."""
    x, t, z, S = cp.Variable(2), cp.Variable(), cp.Variable(), cp.Variable((2, 2), PSD=True)
    constraints = [
        cp.sum_squares(x) <= t, cp.norm(x - unit) <= 2 * unit, z >= 0.25, x[0] + x[1] >= unit * (1 + z),
        cp.log_sum_exp(cp.hstack([x / unit, z])) <= 3, S[0, 1] >= unit, cp.trace(S) <= 5 * unit,
    ]  # fmt: skip
    problem = cp.Problem(cp.Minimize(t / unit + cp.sum(x) + S[0, 0] + unit * z), constraints)
    found = compiled(problem, "CLARABEL", {})
    before = {name: part.copy() if hasattr(part, "copy") else part for name, part in found.data.items()}
    D, kappa = equilibrate(found.data, [found.first_column(z)])
    assert D[found.first_column(z)] == 1.0
    raw = found.answer(problem, {}, {}, np.inf)
    value = before["c"] @ (D * raw.x)
    s = before["b"] - before["A"] @ (D * raw.x)
    assert value == pytest.approx(kappa * raw.obj_val, rel=1e-9)
    least = (5 - np.sqrt(21)) / 2  # the smaller root of S₀₀S₁₁ = 1 with S₀₀ + S₁₁ = 5
    u = cp.Variable(2)
    alone = cp.Problem(
        cp.Minimize(cp.sum_squares(u) + cp.sum(u)),
        [cp.norm(u - 1) <= 2, cp.sum(u) >= 1.25, cp.log_sum_exp(cp.hstack([u, cp.Constant(0.25)])) <= 3],
    )
    assert value / unit == pytest.approx(alone.solve(solver="CLARABEL") + least + 0.25, rel=1e-6)
    assert s[: before["dims"].zero] == pytest.approx(0.0, abs=1e-7 * unit)


def test_units_of_a_large_matrix_are_those_of_a_part_of_it():
    """Entries of size 1 but for the units of their row and column; most of them are left out."""
    rng, n = np.random.default_rng(0), 500
    rows, columns = 10.0 ** rng.uniform(-5, 5, n), 10.0 ** rng.uniform(-5, 5, n)
    A = sp.csc_array(rows[:, None] * rng.uniform(0.5, 2, (n, n)) * columns)
    data = {"A": A, "b": np.zeros(n), "c": np.zeros(n), "dims": dims(zero=n)}
    equilibrate(data, [])
    found = np.abs(data["A"].toarray())
    assert found.min() > 0.05 and found.max() < 20


def test_without_entries():
    data = {"A": sp.csc_array((0, 2)), "b": np.zeros(0), "c": np.zeros(2), "dims": dims()}
    D, kappa = equilibrate(data, [])
    assert D.tolist() == [1.0, 1.0] and kappa == 1.0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("solver", ["BRANCH_AND_BOUND", None])
def test_predictions_in_any_unit(solver, unit):
    """A hinge loss of f/unit, two of eleven rows moved by 1.5, and no more than a small penalty of θ."""
    rng = np.random.default_rng(12)
    X, sign = rng.standard_normal((11, 2)), np.where(rng.standard_normal(11) > 0, 1.0, -1.0)
    moved = np.zeros((11, 2))
    moved[[3, 7], [0, 1]] = 1.5
    theta, z = ko.Theta(unit**2 * ko.kernels.Gaussian(sigma=1.0)), cp.Variable(2, boolean=True)

    def problem(z):
        hinge = cp.sum(cp.pos(1 - cp.multiply(sign, theta(X) + unit * moved @ z) / unit))
        return ko.Problem(cp.Minimize(hinge + 0.3 * cp.sum(z) + 1e-3 * ko.sum_squares(theta)))

    best = min(problem(np.array([a, b])).solve() for a in (0.0, 1.0) for b in (0.0, 1.0))
    stated = problem(z)
    assert stated.solve(solver=solver) == pytest.approx(best, rel=1e-6)
    assert stated.status == "optimal"
