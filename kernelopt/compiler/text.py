"""Expressions for people: cvxpy's trees in the notation of the lectures."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.elementwise.power import Power
from cvxpy.expressions.leaf import Leaf

LIMIT = 120  # characters


def describe(node: Any, limit: int = LIMIT) -> str:
    """A problem, constraint or expression in one line, shortened to `limit` characters."""
    text = _text(node)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _constant(value: Any) -> str:
    value = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    if value.size and (value == value.flat[0]).all():
        return f"{value.flat[0]:g}"
    return "[" + "×".join(map(str, value.shape)) + " data]"


def _wrapped(node: Any) -> str:
    """In brackets if it is a sum."""
    text = _text(node)
    return f"({text})" if type(node).__name__ == "AddExpression" else text


def _sum(node: Any) -> str:
    parts = [_text(a) for a in node.args]
    return "".join(
        part if i == 0 else f" − {part[1:]}" if part.startswith("−") else f" + {part}" for i, part in enumerate(parts)
    )


def _square(node: Any) -> str:
    inner = _text(node.args[0])
    power = {2.0: "²", 3.0: "³"}.get(float(node.p.value), f"^{node.p.value:g}")
    return f"{inner}{power}" if inner.startswith("‖") or inner.isalnum() else f"({inner}){power}"


def _relation(symbol: str) -> Any:
    return lambda node: f"{_text(node.args[0])} {symbol} {_text(node.args[1])}"


def _maximum(node: Any) -> str:
    return f"max({', '.join(map(_text, reversed(node.args)))})"


def _index(node: Any) -> str:
    inside = node.args[0]
    return _wrapped(inside) + node.name().removeprefix(inside.name())


def _product(node: Any) -> str:
    left, right = node.args
    if isinstance(left, cp.Constant) and _constant(left.value) == "-1":
        return f"−{_wrapped(right)}"
    return f"{_wrapped(left)}·{_wrapped(right)}"


FORMATS = {
    "AddExpression": _sum,
    "NegExpression": lambda node: f"−{_wrapped(node.args[0])}",
    "MulExpression": lambda node: f"{_wrapped(node.args[0])} @ {_wrapped(node.args[1])}"
    if node.args[0].size > 1 and node.args[1].size > 1
    else _product(node),
    "multiply": _product,
    "DivExpression": lambda node: f"{_wrapped(node.args[0])} / {_wrapped(node.args[1])}",
    "Promote": lambda node: _text(node.args[0]),
    "broadcast_to": lambda node: _text(node.args[0]),
    "Sum": lambda node: f"Σ{'' if node.axis is None else f'_{node.axis}'} {_wrapped(node.args[0])}",
    "index": _index,
    "special_index": _index,
    "maximum": _maximum,
    "abs": lambda node: f"|{_text(node.args[0])}|",
    "Inequality": _relation("≤"),
    "Equality": _relation("="),
    "Minimize": lambda node: f"minimize  {_text(node.args[0])}",
    "Maximize": lambda node: f"maximize  {_text(node.args[0])}",
}  # fmt: skip


def _text(node: Any) -> str:
    if isinstance(node, cp.Constant):
        return _constant(node.value)
    if isinstance(node, Leaf) or not node.args:
        return str(node.name())
    name = type(node).__name__
    if isinstance(node, Power):
        return _square(node)
    if name in FORMATS:
        return str(FORMATS[name](node))
    if name in ("Prediction", "ThetaNorm"):
        return str(node.name())
    parts = [_text(a) if not isinstance(a, list) else "[…]" for a in node.args]
    return f"{name}({', '.join(parts)})"
