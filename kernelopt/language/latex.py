"""The stated problem in LaTeX, for notebooks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import cvxpy as cp

from kernelopt.language.text import Notation, Printer, bare, constant, describe

# Characters of LaTeX per formula. A longer one is replaced by the plain text of `describe`, cut to one line, since a
# formula of many lines is hard to read.
LONGEST = 1000
MOST = 20  # constraints that are shown, so that the display fits on a screen; a last line counts the others
# Commands for characters that LaTeX or HTML acts upon, and for symbols.
SPECIAL = {
    "\\": r"\backslash ", "{": r"\{", "}": r"\}", "_": r"\_", "^": r"\wedge ", "#": r"\#", "$": r"\$", "%": r"\%",
    "&": r"\&", "~": r"\sim ", "<": r"\lt ", ">": r"\gt ", "−": "-", "×": r"\times ", "·": r"\cdot ", "…": r"\ldots ",
    "‖": r"\|", "Σ": r"\Sigma ", "′": "'", "″": "''",
}  # fmt: skip
# The Greek letters with a command in LaTeX; the others have the shape of Latin letters.
GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi",
    "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
}  # fmt: skip
SUBSCRIPT = re.compile("[₀-₉]+")
DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def problem(objective: Any, constraints: Sequence[Any], named: Notation) -> str:
    """An aligned display of the objective and the first constraints."""
    goal = "minimize" if isinstance(objective, cp.Minimize) else "maximize"
    lines = [rf"\text{{{goal}}}\quad & {formula(objective.args[0], named)}"]
    for number, constraint in enumerate(constraints[:MOST]):
        lines.append((r"& " if number else r"\text{subject to}\quad & ") + formula(constraint, named))
    if len(constraints) > MOST:
        lines.append(rf"& \text{{and {len(constraints) - MOST} more}}")
    return r"$$\begin{aligned}" + "\n" + " \\\\\n".join(lines) + "\n" + r"\end{aligned}$$"


def formula(node: Any, named: Notation) -> str:
    """An expression or a constraint for math mode."""
    text, legend = _Latex(named).whole(node)
    text += rf"\quad \text{{{legend.strip()}}}" if legend else ""
    return text if len(text) <= LONGEST else escaped(describe(node, named=named), spaces=True)


def symbol(name: str) -> str:
    """A name for math mode: a letter with its subscript, or upright letters."""
    return _Latex(Notation()).name(name)


def escaped(text: str, spaces: bool = False) -> str:
    """Text for math mode: commands for Greek letters and subscripts, escapes for characters of LaTeX and HTML."""
    words = {" ": r"\ " if spaces else " "} | SPECIAL
    shown = "".join(words.get(c) or _greek(c) or c for c in text if c.isprintable())
    shown = SUBSCRIPT.sub(lambda found: f"_{{{found[0].translate(DIGITS)}}}", shown)
    return shown.replace("  ", " ").strip()


def _greek(character: str) -> str | None:
    found = re.fullmatch("GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", unicodedata.name(character, ""))
    if found is None:
        return None
    name = found[2].replace("LAMDA", "LAMBDA").lower()
    name = name.capitalize() if found[1] == "CAPITAL" else name
    return f"\\{name} " if name in GREEK else None


def _is_number(node: Any) -> bool:
    """Whether the node is a scalar, or a vector of one repeated number."""
    node = bare(node)
    return bool(node.is_scalar()) or (isinstance(node, cp.Constant) and not constant(node.value).startswith("["))


class _Latex(Printer):
    def spaced(self, text: str) -> str:
        return escaped(text)

    def omitted(self, count: int) -> str:
        return rf"\text{{… {count} more terms …}}"

    def everywhere(self, inequality: str, box: str) -> str:
        return rf"{inequality}\ \text{{for all }} x \in {box.replace('×', chr(92) + 'times')}"

    def prediction(self, matrix: str, theta: str) -> str:
        return f"{escaped(matrix)}{self.name(theta)}"

    def theta_norm(self, text: str) -> str:
        inner, _, kind = text.removeprefix("‖").rpartition("‖")
        shown = self.norm(self.name(inner) if inner.isalnum() else escaped(inner))
        return shown + (rf"_{{\mathrm{{{escaped(kind[1:])}}}}}" if kind else "")

    def constant(self, text: str) -> str:
        return rf"\mathtt{{{escaped(text, spaces=True)}}}" if text.startswith("[") else escaped(text)

    def name(self, name: str) -> str:
        found = re.fullmatch("([^\\W\\d_])(\\d*)", name)
        if found:
            return escaped(found[1]) + (f"_{{{found[2]}}}" if found[2] else "")
        bare = SUBSCRIPT.sub("", name)
        return escaped(name) if len(bare) == 1 else rf"\mathrm{{{escaped(name, spaces=True)}}}"

    def indexed(self, text: str, index: str) -> str:
        return f"{text}_{{{escaped(index)}}}"

    def norm(self, text: str) -> str:
        return rf"\left\|{text}\right\|"

    def raised(self, text: str, power: str) -> str:
        return f"{{{text}}}^{{{self.name(power) if not power[-1].isdigit() else power}}}"

    def brackets(self, text: str) -> str:
        return rf"\left({text}\right)"

    def call(self, name: str, parts: list[str]) -> str:
        return rf"\operatorname{{{escaped(name)}}}" + self.brackets(", ".join(parts).replace("…", r"\ldots "))

    def of_AddExpression(self, node: Any) -> str:
        parts = self.elided([self.text(a) for a in node.args])
        return parts[0] + "".join(f" - {p[1:]}" if p.startswith("-") else f" + {p}" for p in parts[1:])

    def of_NegExpression(self, node: Any) -> str:
        text = self.factor(node.args[0])
        return text[1:] if text.startswith("-") else f"-{text}"

    def of_multiply(self, node: Any) -> str:
        left, right = node.args
        if isinstance(left, cp.Constant) and self.text(left) in {"1", "-1"}:
            return f"{'-' if self.text(left) == '-1' else ''}{self.factor(right)}"
        between = r"\," if _is_number(left) or _is_number(right) else r" \odot "
        return f"{self.factor(left)}{between}{self.factor(right)}"

    def of_MulExpression(self, node: Any) -> str:
        return rf"{self.factor(node.args[0])}\,{self.factor(node.args[1])}"

    def of_DivExpression(self, node: Any) -> str:
        return rf"\frac{{{self.text(node.args[0])}}}{{{self.text(node.args[1])}}}"

    def of_Sum(self, node: Any) -> str:
        return rf"\sum{'' if node.axis is None else f'_{{{node.axis}}}'} {self.factor(node.args[0])}"

    def of_maximum(self, node: Any) -> str:
        return rf"\max{self.brackets(', '.join(self.elided([self.text(a) for a in reversed(node.args)])))}"

    def of_abs(self, node: Any) -> str:
        return rf"\left|{self.text(node.args[0])}\right|"

    def of_Inequality(self, node: Any) -> str:
        left, right = node.args
        if left.is_constant() and not right.is_constant():
            return rf"{self.text(right)} \geq {self.text(left)}"
        return rf"{self.text(left)} \leq {self.text(right)}"
