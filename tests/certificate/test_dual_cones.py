"""Points moved into dual cones are inside of them, with room, and near to where they were."""

import numpy as np
import pytest

from kernelopt.certificate import checker, dual_cones

CONES = {
    "soc": (5, None), "psd": (6, 3), "exp": (9, None), "power": (3, 0.3),
    "generalized_power": (4, np.array([0.2, 0.3, 0.5])),
}  # fmt: skip


def inside(kind, z, extra, radius=0.0):
    return checker.in_dual_cone(z, radius * np.abs(z), [(kind, slice(0, len(z)), extra)])


@pytest.mark.parametrize("spare", [1e-12, 1e-8])
@pytest.mark.parametrize("kind", CONES)
def test_points_are_moved_inside_and_stay_there(kind, spare):
    size, extra = CONES[kind]
    rng = np.random.default_rng(0)
    for scale in (1e-30, 1.0, 1e20):
        for _ in range(20):
            z = scale * rng.normal(size=size)
            moved = dual_cones.nearest(kind, z[None], extra, spare)[0]
            if not moved.any():
                continue
            assert inside(kind, moved, extra)
            again = dual_cones.nearest(kind, moved[None], extra, spare)[0]
            np.testing.assert_allclose(again, moved, rtol=0, atol=4 * spare * np.abs(moved).max())


@pytest.mark.parametrize("kind", ["soc", "exp", "power"])
def test_points_on_the_boundary_move_by_little(kind):
    size, extra = CONES[kind]
    edge = {"soc": np.array([5.0, 3.0, 4.0, 0.0, 0.0]), "power": np.array([0.3, 0.7, 1.0])}
    u, w = -np.array([1e-6, 1.0, 3.0]), np.array([2.0, 1e-9, 3.0])
    edge["exp"] = np.column_stack([u, u * (1 + np.log(w / -u)), w]).ravel()
    z = edge[kind]
    assert not inside(kind, z, extra)
    moved = dual_cones.nearest(kind, z[None], extra, 1e-10)[0]
    assert inside(kind, moved, extra)
    assert np.abs(moved - z).max() <= 1e-8 * np.abs(z).max()
    assert len(moved) == size


def test_what_is_far_outside_becomes_0():
    assert dual_cones.nearest("power", np.array([[-1.0, 1.0, 2.0]]), 0.5, 0.0).tolist() == [[0.0, 1.0, 0.0]]
    assert dual_cones.nearest("exp", np.array([[1.0, -1.0, -1.0]]), None, 0.0).tolist() == [[0.0, 0.0, 0.0]]
    assert dual_cones.nearest("soc", np.array([[-2.0, 1.0, 0.0]]), None, 0.0).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("kind", ["soc", "psd"])
def test_cones_in_a_batch_are_moved_as_they_are_alone(kind):
    size, extra = CONES[kind]
    z = np.random.default_rng(1).normal(size=(7, size))
    [cones] = dual_cones.alike([(kind, np.arange(size) + size * i, extra) for i in range(7)])
    together = dual_cones.nearest(cones.kind, z.ravel()[cones.rows], cones.extra, 1e-10)
    alone = [dual_cones.nearest(kind, row[None], extra, 1e-10)[0] for row in z]
    np.testing.assert_allclose(together, alone, rtol=1e-13, atol=1e-15)


def test_other_cones_stay_alone():
    cones = [("soc", np.arange(3), None), ("power", np.arange(3, 6), 0.3), ("power", np.arange(6, 9), 0.4)]
    cones += [("soc", np.arange(9, 12), None), ("soc", np.arange(12, 16), None), ("psd", np.arange(16, 19), 2)]
    found = [(some.kind, some.rows.shape, some.extra) for some in dual_cones.alike(cones)]
    assert found == [("soc", (2, 3), None), ("power", (1, 3), 0.3), ("power", (1, 3), 0.4), ("soc", (1, 4), None),
                     ("psd", (1, 3), 2)]  # fmt: skip
