"""Shared parts of plots: axes, and colours that everyone can tell apart, in print, on light and dark backgrounds."""

from __future__ import annotations

from typing import Any

from kernelopt.support.checks import require_kind
from kernelopt.support.optional import optional

# The palette of Okabe and Ito (2008), in the order of contrast with the background.
ON_LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
ON_DARK = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "D", "^", "v", "P")


def axes(ax: Any, caller: str) -> Any:
    """The given axes, or those of a new figure. Raises DataTypeError for other objects."""
    if ax is None:
        return optional("matplotlib.pyplot", caller).subplots()[1]
    require_kind(ax, optional("matplotlib.axes", caller).Axes, f"ax of {caller}", "Axes of matplotlib")
    return ax


def is_dark(ax: Any) -> bool:
    """Whether the background of the axes is dark."""
    to_rgba = optional("matplotlib.colors", "drawing").to_rgba
    red, green, blue, alpha = to_rgba(ax.get_facecolor())
    if alpha == 0:
        red, green, blue, _ = to_rgba(ax.figure.get_facecolor())
    # The luma of ITU-R BT.601, which weights colours by their perceived brightness.
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.5)


def ink(ax: Any) -> str:
    """Nearly black on a light background, nearly white on a dark one."""
    return "#EEEEEE" if is_dark(ax) else "#111111"


def color(ax: Any, number: int) -> str:
    """The colour of the curve or class with this number."""
    palette = ON_DARK if is_dark(ax) else ON_LIGHT
    return palette[number % len(palette)]
