"""Small claims for the checker, and an arithmetic so coarse that its allowances for rounding can be seen."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.certificate import checker, pieces_checker
from kernelopt.certificate.claim import Link, Norm
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import Bounded
from kernelopt.support import arithmetic

u, ULPS, ROOM, TINY = 2.0**-20, 2.0**-14, 2.0**-8, 2.0**-30


def make_coarse(monkeypatch):
    """Rounding to 20 bits, as far as allowances know."""
    monkeypatch.setattr(arithmetic, "UNIT", u)
    for name, value in (("U", u), ("ULPS", ULPS), ("ROOM", ROOM), ("TINY", TINY)):
        monkeypatch.setattr(checker, name, value)
        if name != "ULPS":
            monkeypatch.setattr(pieces_checker, name, value)


def gamma(n):
    return n * u / (1 - n * u)


def near(value):
    return pytest.approx(value, rel=1e-10, abs=1e-14)


def smallest(accepts, low, high):
    """The least number that is accepted, all larger ones being so."""
    assert not accepts(low) and accepts(high)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def stated(c, S, s0, below=(), groups=(), cones=(), bounds=(), c0=0.0):  # noqa: PLR0917
    """Pieces; rows that are nothing else are equations."""
    c, s0, S = np.array(c, dtype=float), np.array(s0, dtype=float), np.array(S, dtype=float).reshape(len(s0), len(c))
    below, bounds = np.array(below, dtype=int), np.array(bounds, dtype=int).reshape(-1, 2)
    others = [below, *(cone.rows for cone in cones), *(group.rows.ravel() for group in groups)]
    equal = np.setdiff1d(np.arange(len(s0)), np.concatenate(others))
    return Pieces(len(c), c, c0, sp.csr_array(S), s0, tuple(groups), below, equal, tuple(cones), bounds, {})


class Told:
    """A family whose conjugates are told: one function of one row."""

    def __init__(self, value, rounding):
        self.told, self.asked = Bounded(np.array([value]), np.array([rounding])), []

    def conjugate(self, *box):
        self.asked.append([part.ravel().tolist() for part in box])
        return self.told


def function(row, value=0.0, rounding=0.0, weights=((1.0,),)):
    """A function of a row with weights in the objective and in rows below."""
    return Group(Told(value, rounding), np.array([[row]]), sp.csr_array(np.array(weights)))


def linked(columns, norms=(), V=None, gram=None, error=None, shares=None, take=None, sizes=None, features=None):  # noqa: PLR0917
    columns = np.array(columns)
    n = len(columns)
    take, sizes = np.arange(n) if take is None else np.array(take), np.ones(n) if sizes is None else np.array(sizes)
    V = np.zeros((len(sizes), 0)) if V is None else np.array(V, dtype=float)
    gram = np.zeros((V.shape[1], V.shape[1])) if gram is None else np.array(gram, dtype=float)
    error = np.zeros_like(gram) if error is None else np.array(error, dtype=float)
    return Link(columns, take, sizes, list(norms), V, gram, error, shares, features)


def two_norms(T=None, f=slice(3, 3)):
    """Three rows, the first met twice; two outputs; ‖θ(1, 2)‖ and ‖θ‖, which has its own share of each."""
    norms = [
        Norm(6, "fro", np.array([[1.0], [2.0]]), slice(0, 1), slice(3, 3)),
        Norm(7, "fro", np.eye(2), slice(1, 3 if T is None else 1 + T.shape[1]), f, T),
    ]
    V = np.array([[1.0, -0.5, 0.25], [0.5, 1.0, -2.0]])
    gram = np.diag([4.0, 9.0, 16.0])
    shares = np.array([[0.125, 0.875, -0.25], [0.0, 0.0625, 0.9375]])
    return linked(
        [[0, 1], [2, 3], [4, 5]], norms, V, gram, np.full((3, 3), 0.5), shares, take=[0, 1, 0], sizes=[2.0, 3.0]
    )
