"""What the examples of kernels and features find, against explicit features, scikit-learn and theorems."""

import cvxpy as cp
import numpy as np
import pytest
from running import example

import kernelopt as ko
from kernelopt.errors import RepresenterError


def test_finite_feature_maps():
    names = example("kernels/finite_feature_maps")
    X, y, lam, grid = (names[name] for name in ("X", "y", "lam", "grid"))
    for name, (plain, problem, theta_p, theta) in names["found"].items():
        assert plain.status == problem.status == "optimal"
        assert problem.value == pytest.approx(plain.value, rel=1e-7)
        assert theta.norm == pytest.approx(np.linalg.norm(theta_p), rel=1e-5)
        np.testing.assert_allclose(names["fitted"][name], names["explicit"][name], atol=1e-5)
    np.testing.assert_allclose(names["entries"], names["found"]["ramps"][2], atol=1e-5)
    # The polynomial fit with features written out: monomials of (1 + xz)³.
    F = X ** np.arange(4) * np.sqrt([1, 3, 3, 1])
    t = cp.Variable(4)
    cp.Problem(cp.Minimize(cp.norm1(y - F @ t) + lam * cp.sum_squares(t))).solve(solver="CLARABEL")
    expected = grid ** np.arange(4) * np.sqrt([1, 3, 3, 1]) @ t.value
    np.testing.assert_allclose(names["fitted"]["polynomial"], expected, atol=1e-5)


def test_translation_of_finite_feature_maps():
    names = example("kernels/finite_feature_maps")
    assert names["translated"].value == pytest.approx(names["written"].value, rel=1e-7)
    assert names["translated"].value > names["found"]["ramps"][0].value + 0.01  # the constraint binds
    np.testing.assert_allclose(names["by_kernel"], names["t"].value, atol=1e-5)
    with pytest.raises(RepresenterError, match=r"t\[3\]"):
        ko.Problem.from_cvxpy(names["bounded"], theta=names["t"], features={names["Phi"]: names["A"]})
