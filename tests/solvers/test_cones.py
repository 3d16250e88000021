"""Points moved into dual cones are in them."""

from types import SimpleNamespace

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.compiler.conic_form import Cones
from kernelopt.solvers import cone_program
from kernelopt.solvers.cones import into_dual, matrix, packed, violation
from kernelopt.solvers.dual_feasibility import corrected

CONES = Cones(zero=2, nonneg=3, soc=(4,), psd=(3,), exp=2, power=(0.3,), generalized_power=((0.2, 0.3, 0.5),))
SIZE = 2 + 3 + 4 + 6 + 6 + 3 + 4


def inside_dual(z):
    rows = {kind: part for kind, part, _ in CONES.slices}
    u, v, w = z[15:21].reshape(2, 3).T
    slack = [
        z[rows["nonneg"]].min(),
        z[5] - np.linalg.norm(z[6:9]),
        np.linalg.eigvalsh(matrix(z[9:15], 3))[0],
        (np.e * w + np.where(u < 0, u * np.exp(v / np.where(u < 0, u, -1.0)), 0)).min(),
        (z[21] / 0.3) ** 0.3 * (z[22] / 0.7) ** 0.7 - abs(z[23]),
        np.prod((z[24:27] / [0.2, 0.3, 0.5]) ** np.array([0.2, 0.3, 0.5])) - abs(z[27]),
    ]
    return min(slack) >= -1e-15


@pytest.mark.parametrize("seed", range(30))
def test_into_dual(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=SIZE)
    A = sp.csc_array(rng.normal(size=(SIZE, 5)))
    moved = into_dual(z, CONES, A)
    assert inside_dual(moved)
    assert np.array_equal(moved[:2], z[:2])
    again = into_dual(moved, CONES, A)
    assert np.abs(again - moved).max() <= 1e-12 * np.abs(moved).max()
    for _ in range(20):  # ⟨z, s⟩ ≥ 0 for points s of the primal cone
        s = rng.normal(size=SIZE)
        s[:2] = 0
        s[2:5] = np.abs(s[2:5])
        s[5] = np.linalg.norm(s[6:9]) + abs(s[5])
        G = rng.normal(size=(3, 3))
        G = G @ G.T
        columns, rows = np.tril_indices(3)
        s[9:15] = G[rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
        for j in (15, 18):
            s[j + 1] = abs(s[j + 1])
            s[j + 2] = s[j + 1] * np.exp(s[j] / s[j + 1]) + 0.1
        s[21:23] = np.abs(s[21:23])
        s[23] = 0.9 * s[21] ** 0.3 * s[22] ** 0.7
        s[24:27] = np.abs(s[24:27])
        s[27] = -0.9 * np.prod(s[24:27] ** np.array([0.2, 0.3, 0.5]))
        assert violation(s, CONES) <= 1e-12
        assert moved @ s >= -1e-10 * np.abs(moved).max() * np.abs(s).max()


@pytest.mark.parametrize("rows", [[5, 6, 8], [6], [5], []])
def test_second_order_cones_keep_what_columns_meet(rows):
    """The tail shrinks where columns meet the head alone; else the head is raised, by rounding more than necessary."""
    z = np.zeros(SIZE)
    z[5:9] = 1.0, 2.0, -3.0, 6.0
    moved = into_dual(z, CONES, sp.csc_array((np.ones(len(rows)), (rows, np.zeros(len(rows)))), shape=(SIZE, 1)))
    assert inside_dual(moved)
    if rows == [5]:
        assert moved[5] == 1.0 and np.allclose(moved[6:9], z[6:9] / 7)
    else:
        assert np.array_equal(moved[6:9], z[6:9]) and np.isclose(moved[5], 7.0, rtol=1e-12)


def test_violation_sees_each_cone():
    inside = np.zeros(SIZE)
    inside[5], inside[16], inside[17], inside[19], inside[20] = 1.0, 1.0, 3.0, 1.0, 3.0
    assert violation(inside, CONES) <= 0
    for j, step in ((0, 1.0), (2, -1.0), (6, 2.0), (9, -1.0), (15, 3.0), (23, 0.5), (27, 0.5)):
        outside = inside.copy()
        outside[j] += step
        assert violation(outside, CONES) > 0.1, j


def test_clarabel_packs_matrices_as_we_do():
    """minimize tr(X) over X ⪰ I: the solution is I."""
    c = np.array([1.0, 0, 1, 0, 0, 1])
    A, b = -sp.eye_array(6, format="csc"), -np.array([1.0, 0, 1, 0, 0, 1])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    P = sp.csc_array((6, 6))
    solution = clarabel.DefaultSolver(P, c, A, b, [clarabel.PSDTriangleConeT(3)], settings).solve()
    assert np.allclose(matrix(np.array(solution.x), 3), np.eye(3), atol=1e-6)


def test_packed_keeps_inner_products_and_is_undone_by_matrix():
    M = np.random.default_rng(0).normal(size=(4, 4, 3))
    M = M + M.swapaxes(0, 1)
    rows = packed(M)
    for k in range(3):
        np.testing.assert_allclose(matrix(rows[k], 4), M[:, :, k], rtol=1e-14)
    np.testing.assert_allclose(rows @ rows.T, np.einsum("ijk,ijl->kl", M, M), rtol=1e-13)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_residuals_are_relative_to_their_terms(size):
    """z₁ + z₂ = 1 for z held at (1, 2): the residual 2 of terms up to 1 + 2, in any unit."""
    held = size * np.array([1.0, 2.0])
    z, worst = corrected(np.ones((2, 1)), np.array([size]), held, lambda z: held, np.ones_like)
    assert np.array_equal(z, held)
    assert worst == pytest.approx(2 / 3, rel=1e-12)


def test_the_optimum_at_given_predictions():
    """minimize 1 + y subject to y ≥ u, for u = 3; there is none with y ≤ u − 1 too."""
    form = SimpleNamespace(
        offset=1.0, c=np.array([0.0, 1.0]), P=np.zeros(2), A=sp.csc_array(np.array([[1.0, -1.0], [-1.0, 1.0]])),
        b=np.array([0.0, 1.0]), linked=np.array([0]), cones=Cones(zero=0, nonneg=2),
    )  # fmt: skip
    assert cone_program.value_at(form, np.array([3.0])) == pytest.approx(4.0, rel=1e-8)
    form.b = np.array([0.0, -1.0])
    assert cone_program.value_at(form, np.array([3.0])) is None
