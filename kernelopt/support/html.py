"""Tables for notebooks; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# The attribute of left-aligned cells; blanks are kept.
LEFT = ' style="text-align:left;white-space:pre-wrap"'


def table(
    rows: Iterable[Sequence[str]], head: Sequence[str] = (), captions: Iterable[str] = (), left: bool = False
) -> str:
    """A table of texts, with captions as paragraphs below.

    With `left`, cells are aligned to the left and keep their blanks, and the first column is a heading.
    """
    body = "".join(_row(["th" if left and j == 0 else "td" for j in range(len(row))], row, left) for row in rows)
    top = f"<thead>{_row(['th'] * len(head), head, left)}</thead>" if head else ""
    return f"<table>{top}<tbody>{body}</tbody></table>" + "".join(f"<p>{escape(caption)}</p>" for caption in captions)


def _row(tags: Sequence[str], cells: Sequence[str], left: bool) -> str:
    style = LEFT if left else ""
    joined = "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for tag, cell in zip(tags, cells, strict=True))
    return f"<tr>{joined}</tr>"
