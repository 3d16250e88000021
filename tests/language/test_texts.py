"""Names in what is printed, and errors that say what to write instead."""

import re
import warnings

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, KeywordError, RepresenterError
from kernelopt.language.text import describe

KERNEL = ko.kernels.Gaussian(sigma=np.float64(0.61))
X, Y = np.linspace(0, 1, 6)[:, None], np.arange(6.0)


@pytest.mark.later
def test_variables_and_parameters_without_a_name_are_letters():
    theta, b, own, v = ko.Theta(KERNEL), cp.Variable(), cp.Variable(name="c"), cp.Variable(3)
    lam, mu = cp.Parameter(pos=True, value=0.5), cp.Parameter(pos=True, value=2.0, name="mu")
    loss = cp.sum_squares(Y - theta(X) - b - own) + cp.sum_squares(v) + cp.square(own)
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [v[0] + b <= mu])
    assert str(problem) == (
        "minimize  ‖[6 data] − A·θ − b − c‖² + ‖d‖² + c² + λ·‖θ‖²\n    subject to  d[0] + b ≤ mu"
    )  # fmt: skip
    problem.solve()
    told = str(problem.explain())
    assert "λ = 0.5, mu = 2" in told and "(w_θ, b, c, d)" in told and "Gaussian(sigma=0.61)" in told
    assert not re.search(r"(var|param)\d", told) and r"\lambda" in problem._repr_latex_()
    gradient = ko.gradient(problem, cp.sum_squares(theta(X)), [lam, mu])
    assert "d/d λ: " in repr(gradient) and "d/d mu: " in repr(gradient)
    with pytest.raises(KeyError, match="the parameters λ, mu; got"):
        gradient["sigma"]


@pytest.mark.later
def test_what_is_at_a_kink_is_named_as_in_the_text():
    """c is at its bound with a multiplier of 0, and leaves it as λ grows."""
    theta, b, c = ko.Theta(KERNEL), cp.Variable(), cp.Variable(nonneg=True)
    lam = cp.Parameter(pos=True, value=0.5)
    loss = cp.sum_squares(Y - theta(X) - b) + cp.square(c - lam + 0.5)
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve()
    gradient = ko.gradient(problem, b + c, [lam])
    told = repr(gradient)
    assert not gradient.is_differentiable and "variable c" in told and not re.search(r"(var|param)\d", told)


def test_more_variables_than_letters():
    several = [cp.Variable() for _ in range(12)]
    theta = ko.Theta(KERNEL)
    told = str(ko.Problem(cp.Minimize(ko.sum_squares(theta)), [v >= 1 for v in several]))
    names = [line.split()[-3] for line in told.splitlines()[1:]]
    assert len(set(names)) == 12 and names[0] == "b" and names[9] == "b₂"


def test_numbers_of_numpy_print_as_numbers():
    kernel = 2 * KERNEL + ko.kernels.Polynomial(degree=np.int64(2), offset=np.float64(0.5))
    assert "np." not in repr(kernel)
    assert ko.kernels.Gaussian(sigma=0.61) == KERNEL and hash(KERNEL) == hash(ko.kernels.Gaussian(sigma=0.61))


@pytest.mark.slow
def test_no_warning_of_cvxpy_points_into_the_library():
    """Parameters that cvxpy can't compile once for all: the answer is right, and nothing is said of a file of ours."""
    theta, lam, mu = ko.Theta(KERNEL), cp.Parameter(pos=True, value=0.5), cp.Parameter(pos=True, value=2.0)
    problem = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X)) + lam * mu * ko.sum_squares(theta)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.solvers()
        problem.solve(solver="CLARABEL")
        problem.get_problem_data("CLARABEL")
    plain = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X)) + 1.0 * ko.sum_squares(theta)))
    assert problem.value == pytest.approx(plain.solve(), rel=1e-6)


F, G, H = ko.Theta(KERNEL, name="f"), ko.Theta(KERNEL, name="g"), ko.Theta(ko.kernels.Linear(), name="h")
THREE = ko.Theta(KERNEL, outputs=3)


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (lambda: ko.norm(F - G), RepresenterError, r"`f − g`.*one θ with two outputs.*theta\[:, 0\] - theta\[:, 1\]"),
        (lambda: ko.norm(F + G), RepresenterError, r"`f \+ g`.*outputs=2.*theta\[:, 0\] \+ theta\[:, 1\]"),
        (lambda: ko.norm(F - H), RepresenterError, r"`f − h`.*no common feature space.*f\(X\) - g\(X\)"),
        (lambda: F + F, RepresenterError, r"`f \+ f`.*It is 0 or a multiple of θ"),
        (lambda: THREE[:, 0] + 1.0, RepresenterError, r"`θ\[:, 0\] \+ 1.0`"),
        (lambda: THREE[:, 0] - THREE, DataError, r"equally many outputs; got 1 and 3.*theta\[:, k\]"),
        (
            lambda: THREE - (THREE - ko.Function(KERNEL, X, np.ones((6, 3)))),
            RepresenterError,
            "subtracted from the second",
        ),
        (lambda: F >= 0, RepresenterError, r"`f >= 0`.*basis points, theta\(X\) >= 0"),
        (lambda: F <= G, RepresenterError, "`f <= g`.*basis points"),
        (lambda: THREE(X) - Y, DataError, r"shape \(6, 3\).*got shape \(6,\).*theta\[:, k\]\(X\).*y\[:, None\]"),
        (lambda: Y - THREE(X), DataError, r"shape \(6, 3\).*got shape \(6,\)"),
        (lambda: F(X) - Y[:5], DataError, r"shape \(6,\).*got shape \(5,\).*one row per point of X, 6"),
        (lambda: F(X) >= Y[:5], DataError, r"got shape \(5,\)"),
        (lambda: ko.kernels.Gaussian(gamma=1.0), KeywordError, r"Expected keywords of Gaussian, sigma; got gamma=1.0."),
        (lambda: ko.estimators.KernelClassifier(probability=True), KeywordError, r"log_loss.*predict_proba"),
        (lambda: ko.estimators.KernelRegressor(max_iter=10), KeywordError, r"time_limit"),
        (lambda: ko.estimators.OneClass(cache_size=200), KeywordError, r"memory_limit"),
        (lambda: ko.estimators.KernelClassifierCV(verbose=1), KeywordError, r"\"verbose\": True"),
        (lambda: ko.estimators.FeatureMap(shrink=1), KeywordError, r"Expected keywords of FeatureMap, .*got shrink=1"),
    ],
)
def test_what_to_write_instead(write, error, words):
    with pytest.raises(error, match=words):
        write()


def test_what_atoms_have_beside_their_arguments():
    theta = ko.Theta(KERNEL)
    f = theta(X)
    texts = {
        "sum_largest(|A·θ|, 2)": cp.sum_largest(cp.abs(f), 2), "pnorm(A·θ, 3)": cp.pnorm(f, 3),
        "huber(A·θ, 0.5)": cp.sum(cp.huber(f, 0.5)), "geo_mean(A·θ": -cp.geo_mean(f), "A·θ − 0)": cp.norm1(f - (-0.0)),
        "max(A·θ₁, axis=1)": cp.sum(cp.max(ko.Theta(KERNEL, outputs=2)(X), axis=1)),
        "quad_form(A·θ": cp.quad_form(f, 2 * np.eye(6) + 1), "1/3": -cp.geo_mean(f[:2], [1, 2]),
    }  # fmt: skip
    for text, node in texts.items():
        shown = str(ko.Problem(cp.Minimize(node + ko.norm(theta))))
        assert text in shown and "Approx" not in shown


U, C = cp.Variable((9, 3), name="U"), cp.Variable(3, name="c")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (U[:, :2] <= U[:, 1:], "U[:, :2] ≤ U[:, 1:]"),
        ((U + C[None, :])[:, :2] <= (U + C)[:, 1:], "(U + c)[:, :2] ≤ (U + c)[:, 1:]"),
        (2 * (U + C[None, :]), "2·(U + c)"),
        (np.ones((9, 1)) @ (C + 1)[None, :] * 3, "(c + 1)·3"),
        (np.ones((1, 9)) @ U, "1 @ U"),  # a sum of rows, no repetition
        (cp.reshape(C, (3, 1), order="F") + 1, "c + 1"),
        (cp.reshape(U, (27,), order="F"), "reshape(U)"),  # this one changes the order of entries
        (U[3], "U[3, :]"),
        (U[-1, 1:2], "U[8, 1]"),
        (U[::2], "U[::2, :]"),
        (U[::-1, 0], "U[::-1, 0]"),
        (U[7:2:-2], "U[7:2:-2, :]"),
        (C[1:], "c[1:]"),
    ],
)
def test_slices_and_broadcast_variables_are_written_as_typed(expression, text):
    assert describe(expression) == text


def test_variables_of_one_name_are_told_apart():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    a, b, c = cp.Variable(name="b"), cp.Variable(name="b"), cp.Variable(3, name="θ")
    f = theta(np.arange(3.0)[:, None])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - c - (a - b)) + ko.sum_squares(theta)))
    assert "A·θ − θ₂ − (b₁ − b₂)" in str(problem)
