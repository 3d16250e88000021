r"""A text with formulas, written as Markdown, as LaTeX and as HTML.

A formula is kept twice: as LaTeX, and in one line of Unicode for HTML, which has to be readable without a network. In
texts, `code` stands between backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from string import Formatter
from typing import Any

from kernelopt.language import latex
from kernelopt.language.text import LIMIT, Notation, describe

# What formulas of `math` contain beside names: as LaTeX, and in the line of Unicode where that differs.
COMMANDS = {
    "√⟨": r"\sqrt{", "_⟨": "_{", "^⟨": "^{", "⟩": "}", "‹": r"\langle ", "›": r"\rangle ", "inf": r"\inf ",
    "tr(": r"\operatorname{tr}(", ",  ": r",\quad ", "ᵀ": r"^\top ", "²": "^{2}", "⊥": r"_\perp ", "ⱼ": "_{j}",
    "ₖ": "_{k}", "≤": r"\leq ", "≥": r"\geq ", "∈": r"\in ", "∞": r"\infty ", "≈": r"\approx ", "Σ": r"\sum ",
    "ℝ": r"\mathbf{R}",
}  # fmt: skip
COMMAND = re.compile("|".join(re.escape(c) for c in sorted(COMMANDS, key=len, reverse=True)))
INDICES, EXPONENTS = "_⊥ⱼₖ", "^ᵀ²"
PLAIN = str.maketrans({"⟨": "(", "⟩": ")", "‹": "⟨", "›": "⟩"})
# Blanks that formulas don't need: before exponents and indices, and inside of brackets.
IDLE = re.compile(r"(?<!\\) +(?=[\^_)\]},])|(?<=[(\[{]) +| +$|^ +")
CODE = re.compile("`([^`]*)`")
# Characters with a meaning in a text of LaTeX or of Markdown. HTML's are those of `html.escape`.
IN_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "#": r"\#", "$": r"\$", "%": r"\%", "&": r"\&",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
}  # fmt: skip
IN_MARKDOWN = re.compile(r"([\\*_$<])")
# MathJax knows \lt, which HTML needs in place of <; LaTeX does not.
ONLY_MATHJAX, ITS_CHARACTERS = re.compile(r"\\(lt|gt)(?![a-zA-Z]) ?"), {"lt": "< ", "gt": "> "}
STYLE = (
    "body{max-width:52em;margin:2em auto;padding:0 1em;font-family:sans-serif;line-height:1.5}"
    "pre{overflow-x:auto;padding:.6em 1em;border-left:3px solid}code,pre{font-family:monospace}"
)


@dataclass(frozen=True)
class Formula:
    """A formula as LaTeX for math mode, and in one line of Unicode."""

    latex: str
    text: str


Text = tuple[str | Formula, ...]


@dataclass(frozen=True)
class Paragraph:
    """Words and formulas."""

    text: Text


@dataclass(frozen=True)
class Items:
    """A list without numbers."""

    texts: tuple[Text, ...]


@dataclass(frozen=True)
class Display:
    """Formulas below each other, each with the word before it."""

    lines: tuple[tuple[str, Formula], ...]


Block = Paragraph | Items | Display


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


def paragraph(*text: str | Formula) -> Paragraph:
    return Paragraph(text)


def expression(node: Any, named: Notation, limit: int | None = LIMIT) -> Formula:
    """A cvxpy expression or constraint; `limit` shortens its line of Unicode."""
    return Formula(latex.formula(node, named), describe(node, limit, named))


def symbol(name: str) -> Formula:
    """A name."""
    return Formula(latex.symbol(name), name)


def number(value: float | str) -> Formula:
    """A number to six digits, or as it is printed already."""
    text = value if isinstance(value, str) else f"{value:.6g}"
    mantissa, _, exponent = ("0" if float(text) == 0 else text).partition("e")
    shown = mantissa.replace("inf", r"\infty") + (rf" \cdot 10^{{{int(exponent)}}}" if exponent else "")
    return Formula(shown, text.replace("inf", "∞"))


def math(template: str, **parts: Formula) -> Formula:
    """A formula with others in braces: math("{A}ᵀα", A=A). What stands in √⟨…⟩, _⟨…⟩ or ^⟨…⟩ belongs together."""
    pieces = [(plain, None if field is None else parts[field]) for plain, field, _, _ in Formatter().parse(template)]
    following = [plain[:1] for plain, _ in pieces[1:]] + [""]
    shown = " ".join(
        f"{_in_latex(plain)} {'' if part is None else _before(part.latex, after)}"
        for (plain, part), after in zip(pieces, following, strict=True)
    )
    text = ""
    for plain, part in pieces:
        text += plain.translate(PLAIN)
        text += "" if part is None else ("·" if _needs_dot(text, part.text) else "") + part.text
    return Formula(re.sub(" +", " ", IDLE.sub("", shown)), text)


def _needs_dot(text: str, name: str) -> bool:
    """Whether a name of several letters would be read together with what stands before it."""
    return text[-1:].isalpha() and len(name) > 1 and name[:2].isalpha()


def _before(formula: str, character: str) -> str:
    """A formula in braces where it has an index or exponent, and another one follows."""
    second = ("_" in formula and character in INDICES) or ("^" in formula and character in EXPONENTS)
    return f"{{{formula}}}" if second and character else formula


def _in_latex(text: str) -> str:
    """Symbols for math mode."""
    found, end = [], 0
    for command in COMMAND.finditer(text):
        found += [latex.escaped(text[end : command.start()]), COMMANDS[command[0]]]
        end = command.end()
    return " ".join([*found, latex.escaped(text[end:])])


# ------------------------------------------------------------ Markdown


def as_markdown(title: str, sections: Iterable[Section]) -> str:
    """Markdown with LaTeX between dollar signs, as notebooks and pandoc read it."""
    found = [f"# {_plain_markdown(title)}"]
    for section in sections:
        found += [f"## {_plain_markdown(section.title)}", *(_markdown_block(block) for block in section.blocks)]
    return "\n\n".join(found) + "\n"


def _markdown_block(block: Block) -> str:
    if isinstance(block, Display):
        return "$$\n" + _aligned(block, "aligned") + "\n$$"
    if isinstance(block, Items):
        return "\n".join(f"- {_markdown(text)}" for text in block.texts)
    return _markdown(block.text)


def _markdown(text: Text) -> str:
    return _joined(text, lambda f: f"${f.latex}$", _plain_markdown, lambda s: f"`{s}`")


def _plain_markdown(text: str) -> str:
    return IN_MARKDOWN.sub(r"\\\1", text)


# ------------------------------------------------------------ LaTeX


def as_latex(title: str, sections: Iterable[Section]) -> str:
    r"""A section to \input, which needs amsmath alone."""
    found = [rf"\section*{{{_escaped(title)}}}"]
    for section in sections:
        found += [rf"\subsection*{{{_escaped(section.title)}}}", *(_latex_block(block) for block in section.blocks)]
    return "\n\n".join(found) + "\n"


def _latex_block(block: Block) -> str:
    if isinstance(block, Display):
        return _own(_aligned(block, "align*"))
    if isinstance(block, Items):
        items = "\n".join(rf"\item {_latex(text)}" for text in block.texts)
        return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
    return _latex(block.text)


def _latex(text: Text) -> str:
    return _joined(text, lambda f: f"${_own(f.latex)}$", _escaped, lambda s: rf"\texttt{{{_escaped(s)}}}")


def _own(formula: str) -> str:
    return ONLY_MATHJAX.sub(lambda found: ITS_CHARACTERS[found[1]], formula)


def _escaped(text: str) -> str:
    return "".join(IN_LATEX.get(c) or _character(c) for c in text)


def _character(c: str) -> str:
    """A character of a text; symbols and Greek letters stand in math mode."""
    shown = c if c.isascii() else COMMANDS.get(c) or latex.escaped(c)
    return c if shown == c else rf"\ensuremath{{{shown.strip()}}}"


# ------------------------------------------------------------ HTML


def as_html(title: str, sections: Iterable[Section]) -> str:
    """A page that needs nothing else; formulas are lines of Unicode."""
    found = [f"<h1>{escape(title)}</h1>"]
    for section in sections:
        found += [f"<h2>{escape(section.title)}</h2>", *(_html_block(block) for block in section.blocks)]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(found)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html_block(block: Block) -> str:
    if isinstance(block, Display):
        width = max(len(word) for word, _ in block.lines) + 2
        lines = [f"{word:<{width}}{formula.text}" if width > 2 else formula.text for word, formula in block.lines]
        return f"<pre>{escape(chr(10).join(lines))}</pre>"
    if isinstance(block, Items):
        return "<ul>\n" + "\n".join(f"<li>{_html(text)}</li>" for text in block.texts) + "\n</ul>"
    return f"<p>{_html(block.text)}</p>"


def _html(text: Text) -> str:
    return _joined(
        text, lambda f: f"<code>{escape(f.text)}</code>", escape, lambda s: f"<code>{escape(s)}</code>"
    )  # fmt: skip


# ------------------------------------------------------------ all three


def _joined(
    text: Text, formula: Callable[[Formula], str], plain: Callable[[str], str], code: Callable[[str], str]
) -> str:  # fmt: skip
    """A text whose formulas, words and code are written by these functions."""
    found = []
    for part in text:
        if isinstance(part, Formula):
            found.append(formula(part))
        else:
            found += [code(s) if k % 2 else plain(s) for k, s in enumerate(CODE.split(part))]
    return "".join(found)


def _aligned(block: Display, environment: str) -> str:
    lines = [rf"\text{{{word}}}\quad & {f.latex}" if word else f"& {f.latex}" for word, f in block.lines]
    return rf"\begin{{{environment}}}" + "\n" + " \\\\\n".join(lines) + "\n" + rf"\end{{{environment}}}"
