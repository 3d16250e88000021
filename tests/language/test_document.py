"""Texts with formulas: one text, three formats."""

import pytest

from kernelopt.language.document import (
    Display,
    Formula,
    Items,
    Section,
    as_html,
    as_latex,
    as_markdown,
    math,
    number,
    paragraph,
    symbol,
)


@pytest.mark.parametrize(
    ("template", "latex", "text"),
    [
        ("{A}ᵀα", r"A^\top \alpha", "Aᵀα"),
        ("{θ}⊥ = 0", r"{\theta_{1}}_\perp = 0", "θ₁⊥ = 0"),
        ("√⟨νᵀQν⟩ ≤ μ", r"\sqrt{\nu^\top Q\nu} \leq \mu", "√(νᵀQν) ≤ μ"),
        ("inf_⟨u, t⟩ f", r"\inf_{u, t} f", "inf_(u, t) f"),
        ("Σ ‹mⱼ, fⱼ›", r"\sum \langle m_{j}, f_{j} \rangle", "Σ ⟨mⱼ, fⱼ⟩"),
        ("{A}{name}", r"A \mathrm{slope}", "A·slope"),
        ("{p}² = 1", r"{a^{2}}^{2} = 1", "a²² = 1"),
    ],
)
def test_math_in_both_forms(template, latex, text):
    parts = {"A": symbol("A"), "θ": Formula(r"\theta_{1}", "θ₁"), "name": symbol("slope"), "p": Formula("a^{2}", "a²")}
    assert math(template, **parts) == Formula(latex, text)


@pytest.mark.parametrize(
    ("value", "latex", "text"),
    [
        (0.5, "0.5", "0.5"),
        (1234567.0, r"1.23457 \cdot 10^{6}", "1.23457e+06"),
        ("3.0e-09", r"3.0 \cdot 10^{-9}", "3.0e-09"),
        ("0.0e+00", "0", "0.0e+00"),
        (float("-inf"), r"-\infty", "-∞"),
    ],
)
def test_numbers(value, latex, text):
    assert number(value) == Formula(latex, text)


def test_one_text_in_three_formats():
    blocks = (
        paragraph("5 % of a_b is < $1, see `x_1 & y`: ", symbol("θ")),
        Items((("one", math("{a} ≤ 1", a=symbol("a"))), ("two",))),
        Display((("minimize", Formula(r"x \lt y", "x < y")), ("", Formula("z", "z")))),
    )
    parts = [Section("A & B", blocks)]
    assert as_markdown("T", parts) == (
        "# T\n\n## A & B\n\n5 % of a\\_b is \\< \\$1, see `x_1 & y`: $\\theta$\n\n- one$a \\leq 1$\n- two\n\n"
        "$$\n\\begin{aligned}\n\\text{minimize}\\quad & x \\lt y \\\\\n& z\n\\end{aligned}\n$$\n"
    )
    assert as_latex("T", parts) == (
        "\\section*{T}\n\n\\subsection*{A \\& B}\n\n"
        "5 \\% of a\\_b is \\ensuremath{<} \\$1, see \\texttt{x\\_1 \\& y}: $\\theta$\n\n"
        "\\begin{itemize}\n\\item one$a \\leq 1$\n\\item two\n\\end{itemize}\n\n"
        "\\begin{align*}\n\\text{minimize}\\quad & x < y \\\\\n& z\n\\end{align*}\n"
    )
    page = as_html("T", parts)
    assert "<p>5 % of a_b is &lt; $1, see <code>x_1 &amp; y</code>: <code>θ</code></p>" in page
    assert "<pre>minimize  x &lt; y\n          z</pre>" in page
    assert "<li>one<code>a ≤ 1</code></li>" in page and "<h2>A &amp; B</h2>" in page
