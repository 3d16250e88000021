"""The table of derivatives, integrals and means in docs/kernels.md, against the library."""

import re
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import kernels as k
from kernelopt.errors import KernelOptError

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
X = np.array([[0.1], [0.3], [0.4]])
KERNELS = {
    "Linear": k.Linear(), "Polynomial": k.Polynomial(3, 1.0), "PolynomialSeries": k.PolynomialSeries([1.0, 0.5, 0.2]),
    "Constant": k.Constant(1.0), "Gaussian": k.Gaussian(1.0), "RationalQuadratic": k.RationalQuadratic(1.0, 1.0),
    "Periodic": k.Periodic(3.0, 1.0), "Geometric": k.Geometric(), "Matern(2.5)": k.Matern(2.5, 1.0),
    "Matern(3.2)": k.Matern(3.2, 1.0),
    "Matern(1.2)": k.Matern(1.2, 1.0), "Matern(0.7)": k.Matern(0.7, 1.0), "Matern(0.3)": k.Matern(0.3, 1.0),
    "Spline(3, 0, 1)": k.Spline(3, 0.0, 1.0), "Spline(2, 0, 1)": k.Spline(2, 0.0, 1.0),
    "Spline(1, 0, 1)": k.Spline(1, 0.0, 1.0),
    "Matern(1.5)": k.Matern(1.5, 1.0), "Matern(0.5)": k.Matern(0.5, 1.0), "Laplacian": k.Laplacian(1.0),
}  # fmt: skip
OTHERS = [k.Cosine(), k.Intersection(), k.AdditiveChiSquared(), k.Sigmoid(0.1, 0.0), k.GeneralizedGaussian("chi2", 1.0)]


def rows_of_table():
    part = PAGE.read_text().split("## Derivatives, integrals and means")[1].split("## ")[0]
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("`"):
            for name in re.findall("`([^`]+)`", cells[0]):
                yield name, cells[1:]


def works(make):
    try:
        make()
    except KernelOptError:
        return False
    return True


def is_proven(kernel, slope):
    theta = ko.Theta(kernel)

    def g(P):
        A = ko.FeatureMatrix(P, kernel)
        return ((A.derivative(0) if slope else A) @ theta) <= 2

    objective = cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta))
    ko.Problem(objective, [ko.everywhere(g, 0.0, 0.5)]).solve(tol=1e-2)


def abilities(kernel):
    A = ko.FeatureMatrix(X, kernel)
    order = sum(works(lambda n=n: A.derivative((0,) * n)) for n in (1, 2))
    return [
        order,
        works(lambda: ko.integral([0.0], [1.0], kernel)),
        works(lambda: ko.gaussian_mean([0.0], [0.3], kernel)),
        works(lambda: is_proven(kernel, False)),
        works(lambda: is_proven(kernel, True)),
    ]


def test_all_kernels_are_in_the_table():
    assert {name for name, _ in rows_of_table()} == set(KERNELS)


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize(("name", "told"), list(rows_of_table()))
def test_table(name, told):
    assert abilities(KERNELS[name]) == [int(told[0]), *(cell != "no" for cell in told[1:])]


@pytest.mark.parametrize("kernel", OTHERS)
def test_kernels_that_are_not_in_the_table(kernel):
    assert abilities(kernel) == [0, False, False, False, False]
