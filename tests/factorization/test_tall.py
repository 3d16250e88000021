"""Parts of B, whichever way it is held."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.errors import MemoryLimitError
from kernelopt.factorization import tall as tall_module
from kernelopt.factorization.tall import SPARE, DenseMatrix, Room, tall
from kernelopt.factorization.whole import WholeMatrix

RNG = np.random.default_rng(0)
B, ROOT = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 6))
HELD = {"dense": (DenseMatrix(B), B), "whole": (WholeMatrix(ROOT @ ROOT.T), ROOT @ ROOT.T)}


@pytest.mark.parametrize("name", HELD)
def test_parts_are_those_of_the_array(name):
    held, array = HELD[name]
    assert held.shape == array.shape and len(held) == 6
    for rows in (slice(1, 4), [3, 0, 3], np.arange(6) % 2 == 0):
        np.testing.assert_array_equal(held[rows], array[rows])
        np.testing.assert_array_equal(held[rows, 1:3], array[rows][:, 1:3])
    for columns in (slice(None), slice(0, array.shape[1])):
        assert held[:, columns].shape == array.shape
        np.testing.assert_array_equal(held[:, columns].whole(), array)
    assert held[:, :0].shape[0] == 6
    E = sp.random_array((5, 6), density=0.5, format="csr", rng=RNG)
    np.testing.assert_allclose(held.combined(E), E @ array, atol=1e-14)


def test_first_columns():
    np.testing.assert_array_equal(DenseMatrix(B)[:, :3].whole(), B[:, :3])


def test_memory_for_more_columns_is_asked_for_first():
    """For the old array, the new one, and the room behind it."""
    needed = 8 * 6 * 4 + 8 * 6 * (4 + 2 + SPARE)
    assert tall(B).beside(np.ones((6, 2)), limit=needed)[0].shape == (6, 6)
    with pytest.raises(MemoryLimitError, match="6 rows and 14 columns"):
        tall(B).beside(np.ones((6, 2)), limit=needed - 1)


def test_all_of_the_room_is_taken():
    """Once, and by the B that ends where the room begins."""
    room, T = Room(np.zeros((6, 5)), 3), np.ones((6, 2))
    assert room.take(B[:, :2], T) is None
    assert room.take(B[:, :3], np.ones((6, 3))) is None
    assert room.take(room.array[:, :3], T).shape == (6, 5)
    assert room.take(room.array[:, :3], T) is None


def test_rows_of_weight_zero_are_left_out(monkeypatch):
    """Unless they are few: a copy of the others would cost more."""
    taken, ours = [], tall_module._symmetric
    monkeypatch.setattr(tall_module, "_symmetric", lambda L, w: taken.append(len(L)) or ours(L, w))
    whole = RNG.normal(size=(20, 3))
    for zeros in (1, 5):
        w = np.ones(20)
        w[:zeros] = 0.0
        np.testing.assert_allclose(tall(whole).gram(w), whole[zeros:].T @ whole[zeros:])
    assert taken == [20, 15]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("outside", [0.0, 2.0])
def test_products_beside_a_gram_matrix(sign, outside):
    """BᵀD is read off the rows with a weight only where D is 0 on the others."""
    array, D = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 2))
    w = sign * RNG.uniform(1, 2, size=20)
    w[4:12] = 0.0
    D[4:12] *= outside
    expected = np.hstack([array.T @ (w[:, None] * array), array.T @ D])
    np.testing.assert_allclose(tall(array).gram(w, D), expected, atol=1e-13)
    np.testing.assert_allclose(tall(array).column_squares(w), w @ array**2, atol=1e-13)


@pytest.mark.parametrize("rows", [4, 6, 7, 12])
def test_gram_matrices_are_added_up_piece_by_piece(rows, monkeypatch):
    """The last piece may have fewer rows."""
    monkeypatch.setattr(tall_module, "SCALED", 8)
    whole, w = RNG.normal(size=(rows, 3)), RNG.uniform(1, 2, size=rows)
    np.testing.assert_allclose(tall(whole).gram(w), whole.T @ (w[:, None] * whole))


def test_products_with_the_kernel_matrix():
    """Of one column the last ones are known, for multiples of it too; of several they are computed each time."""
    Q, held = HELD["whole"][1], WholeMatrix(HELD["whole"][1])
    v, V = RNG.normal(size=6), RNG.normal(size=(6, 2))
    np.testing.assert_allclose(held @ V, Q @ V)
    assert not held._last
    np.testing.assert_allclose(held @ v, Q @ v)
    np.testing.assert_allclose(held @ v[:, None], (Q @ v)[:, None])
    np.testing.assert_allclose(held @ (-3 * v[:, None]), -3 * (Q @ v)[:, None])
    assert len(held._last) == 1
    np.testing.assert_array_equal(held.outer(), Q)
    np.testing.assert_array_equal(held.outer_among(np.arange(6)), Q)
    np.testing.assert_array_equal(held.outer_among(np.array([4, 1])), Q[np.ix_([4, 1], [4, 1])])
