"""What notebooks show: LaTeX and HTML, with everything escaped that others wrote."""

import re
from xml.etree import ElementTree as ET

import cvxpy as cp
import numpy as np
import pytest
from matplotlib.mathtext import MathTextParser

import kernelopt as ko
from kernelopt.language import latex
from kernelopt.language.text import Notation

X = np.linspace(0, 6, 30)[:, None]
Y = np.sin(X[:, 0])
EVIL = "<img src=x onerror=alert(1)> $x$ \\bad {_^&#%~ θ₁"


def stated(name="b", parameter="lam"):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name=name)
    lam = cp.Parameter(nonneg=True, value=0.5, name=parameter)
    loss = cp.sum(ko.losses.absolute_error(Y, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [theta(X) + b <= 1.1])


def test_latex_of_a_problem():
    assert stated()._repr_latex_() == (
        r"$$\begin{aligned}" "\n"
        r"\text{minimize}\quad & \sum \left|\mathtt{[30\ data]} - \left(A\theta + b\right)\right|"
        r" + \mathrm{lam}\,{\left\|\theta\right\|}^{2} \\" "\n"
        r"\text{subject to}\quad & A\theta + b \leq 1.1" "\n"
        r"\end{aligned}$$"
    )  # fmt: skip


THETA, MATRIX = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(ko.kernels.Linear(), outputs=3, name="Θ")
U, B, LONG = THETA(X), cp.Variable(name="b1"), cp.Variable(30, name="slack_i")
LAM, P = cp.Parameter(name="λ", nonneg=True), cp.Variable((2, 2), name="P")
SQUARE = ko.SmoothLoss(value=lambda s: s**2, gradient=lambda s: 2 * s, hessian=lambda s: 2 + 0 * s)
FORMULAS = {
    r"{\left\|\theta\right\|}^{2}": ko.sum_squares(THETA),
    r"\left\|\Theta\right\|_{\mathrm{nuc}} \leq 3": ko.norm(MATRIX, "nuc") <= 3,
    r"\left\|\Theta [:, 0]\right\|": ko.norm(MATRIX[:, 0]),
    r"\left\|\theta - f_{0}\right\|": ko.norm(THETA - ko.Function(THETA.kernel, X[:1], [1.0])),
    r"A\theta + b_{1} - 2\,\mathrm{slack\_i} = 0": U + B - 2 * LONG == 0,
    r"\left(A\theta\right)_{[3]} \geq 1": U[3] >= 1,
    r"\mathtt{[30\ data]} \odot A\theta": cp.multiply(Y, U),
    r"\mathtt{[30\ data]}\,A\theta": Y @ U,
    r"\frac{\sum A\theta}{30}": cp.sum(U) / 30,
    r"-\left(A\theta + b_{1}\right)": -(U + B),
    r"{b_{1}}^{3}": cp.power(B, 3),
    r"{\left(A\theta + b_{1}\right)}^{2}": cp.square(U + B),
    r"\max\left(0, 1 - A\theta\right)": cp.pos(1 - U),
    r"\lambda\,\left\|A\theta\right\|": LAM * cp.norm(U),
    r"\sum_{1} A\Theta": cp.sum(MATRIX(X), axis=1),
    r"\operatorname{log\_sum\_exp}\left(A\theta\right)": cp.log_sum_exp(U),
    r"\operatorname{SmoothLoss}\left(A\theta\right)": SQUARE(U),
}  # fmt: skip


@pytest.mark.parametrize("expected", FORMULAS)
def test_formulas(expected):
    shown = latex.formula(FORMULAS[expected], Notation())
    assert shown == expected
    is_math(shown)


def is_math(formula):
    """matplotlib's parser of LaTeX, another's, takes it."""
    formula = formula.replace(r"\lt ", "<").replace(r"\gt ", ">").replace(r"\&", "+")
    MathTextParser("path").parse(f"${formula}$")


def formulas(shown):
    lines = shown.splitlines()[1:-1]
    return [re.sub(r"\\text\{.*?\}\\quad", "", line).replace("& ", "", 1).removesuffix(r" \\") for line in lines]


@pytest.mark.slow
def test_names_are_escaped():
    problem = stated(EVIL, EVIL)
    shown = problem._repr_latex_()
    assert "<" not in shown and "onerror" in shown and shown.count("$") == 4 + 2 * shown.count(r"\$x\$")
    for formula in formulas(shown):
        is_math(formula)
    problem.solve()
    ET.fromstring(problem.explain()._repr_html_())
    assert "<img" not in problem.explain()._repr_html_() and "&lt;img" in problem.explain()._repr_html_()


def test_odd_names():
    """Every printable character of the first planes, one by one, as a name."""
    for point in [*range(0x20, 0x250), *range(0x370, 0x400), *range(0x2080, 0x2090), 0x1F600, 0x202E, 0x0]:
        shown = latex.escaped(chr(point) + "x")
        bare = shown.replace(r"\{", "").replace(r"\}", "")
        assert not set(shown) & set("<>\x00\u202e") and bare.count("{") == bare.count("}")


def test_long_problems():
    b, theta = cp.Variable(name="b"), ko.Theta(ko.kernels.Linear())
    loss = sum(cp.abs(theta(X[i % 30 : i % 30 + 1]) + b) for i in range(60))
    shown = ko.Problem(cp.Minimize(cp.sum(loss)), [b >= i for i in range(30)])._repr_latex_()
    assert "56 more terms" in shown and len(formulas(shown)) == 22 and r"\text{and 10 more}" in shown
    assert len(shown) < 3000
    product = cp.abs(theta(X[:1]) + b)
    for _ in range(60):  # a formula that is long without a sum
        product = cp.abs(product + b) / 2
    assert r"\ldots" in ko.Problem(cp.Minimize(cp.sum(product)))._repr_latex_()
    is_math(formulas(shown)[0])
    assert r"\text{maximize}" in ko.Problem(cp.Maximize(cp.sum(theta(X))))._repr_latex_()


def cells(html):
    table = ET.fromstring(f"<all>{html}</all>").find("table")
    return [[cell.text or "" for cell in row] for row in table.iter("tr")]


@pytest.mark.later
def test_tables():
    problem = stated()
    problem.solve()
    explained = problem.explain()
    assert [tuple(row) for row in cells(explained._repr_html_())] == list(explained.lines)
    report = problem.verify()
    head, *rows = cells(report._repr_html_())
    assert head[:3] == ["check", "number", "limit"] and [row[0] for row in rows] == [c.name for c in report.checks]
    assert {row[3] for row in rows} == {"pass", ""}
    assert "text-align:left" in report._repr_html_()  # of words, not of numbers
    assert str(problem.verify().certificate) in ET.fromstring(f"<a>{report._repr_html_()}</a>").find("p").text
    shown = dict(cells(problem.certificate._repr_html_()))
    low, high = map(float, shown["optimum in"].strip("[]").split(","))
    assert low <= problem.certificate.lower and high >= problem.certificate.upper
    assert shown["scope"] == "full kernel" and shown["relative gap"] == f"{problem.certificate.relative_gap:.1e}"


def test_a_refused_problem():
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum(theta(X))), [ko.norm(theta) >= 1])
    assert r"\left\|\theta\right\| \geq 1" in problem._repr_latex_()
    assert "does not apply" in problem.explain()._repr_html_()
