"""A table of named columns that can be printed, plotted, and converted to pandas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np

from kernelopt.errors import OptionError
from kernelopt.support.checks import shown
from kernelopt.support.drawing import MARKERS, STYLES, axes, color
from kernelopt.support.html import table
from kernelopt.support.optional import optional
from kernelopt.support.types import Array

DIGITS = 7  # significant digits of the objective and its bounds: enough to show a relative gap of 1e-6
FORMATS = {"gap": ".1e", "seconds": ".2g"}  # by column; columns without a format get five digits, bounds DIGITS
DECADE = 10.0  # an axis is logarithmic where its numbers are positive and span more than this factor


class Table(ABC):
    """Columns of equal length; `table[name]` is one, a read-only numpy array. Prints as a table."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Array]:
        """The columns by name."""

    def __getitem__(self, name: str) -> Array:
        if not isinstance(name, str) or name not in self.columns:
            raise OptionError(f"Expected one of the columns {', '.join(self.columns)}; got {shown(name)}.")
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        """Names of columns, as for a DataFrame."""
        return iter(self.columns)

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
        pandas = optional("pandas", "to_pandas()")
        return pandas.DataFrame(dict(self.columns))

    def __str__(self) -> str:
        cells = self._cells()
        widths = {name: max(len(name), *map(len, column)) if column else len(name) for name, column in cells.items()}
        lines = ["  ".join(name.rjust(widths[name]) for name in cells)]
        lines += ["  ".join(column[i].rjust(widths[name]) for name, column in cells.items()) for i in range(len(self))]
        return "\n".join([*lines, *self._captions()])

    __repr__ = __str__

    def __getstate__(self) -> dict[str, Any]:
        """Without columns that are kept: read-only mappings do not pickle, and they are made again."""
        return {name: value for name, value in vars(self).items() if name != "columns"}

    def _repr_html_(self) -> str:
        cells = self._cells()
        return table(list(zip(*cells.values(), strict=True)), list(cells), self._captions())

    def _cells(self) -> dict[str, list[str]]:
        """The columns as text. Bounds are rounded outward, so that the printed interval holds the optimum, too."""
        outward = {"lower": Context(DIGITS, ROUND_FLOOR), "upper": Context(DIGITS, ROUND_CEILING)}

        def text(name: str, number: Any) -> str:
            if isinstance(number, (str, np.integer)):
                return str(number)
            if name in outward:
                number = float(outward[name].create_decimal(float(number)))
            exact = name in ("objective", *outward)
            return format(float(number), f".{DIGITS}g" if exact else FORMATS.get(name, ".5g"))

        return {name: [text(name, number) for number in column] for name, column in self.columns.items()}

    def _captions(self) -> list[str]:
        """Lines below the table."""
        return []

    def _drawn(self, x: str, ys: Sequence[str], ax: Any, errors: Array | None = None) -> Any:
        """Columns `ys` against the column `x`, with error bars if there are errors; on `ax` or a new figure's Axes.

        Raises OptionError for columns that hold no numbers.
        """
        if not ys:
            raise OptionError(f"Expected one or more of the columns {', '.join(self.columns)}; got none.")
        for name in (x, *ys):
            if self[name].dtype.kind not in "if":
                raise OptionError(f"Expected columns of numbers; got {name!r}, which holds others.")
        ax = axes(ax, "plot()")
        order = np.argsort(self[x], kind="stable")
        for k, name in enumerate(ys):
            look = {"linestyle": STYLES[k % len(STYLES)], "marker": MARKERS[k % len(MARKERS)], "color": color(ax, k)}
            ax.plot(self[x][order], self[name][order], **look, markersize=4, label=name)
            if errors is not None:
                bars = {"fmt": "none", "ecolor": color(ax, k), "label": "_nolegend_"}
                ax.errorbar(self[x][order], self[name][order], errors[order], **bars)
        if _is_wide([self[x]]):
            ax.set_xscale("log")
        if _is_wide([self[name] for name in ys]):
            ax.set_yscale("log")
        ax.set_xlabel(x)
        if len(ys) > 1:
            ax.legend()
        else:
            ax.set_ylabel(ys[0])
        return ax


def listed(y: Any) -> list[str]:
    """One name, or several of a list, as a list. Raises OptionError."""
    if not isinstance(y, (str, list, tuple)):
        raise OptionError(f"Expected y to be a column, or a list of them; got {shown(y)}.")
    return [y] if isinstance(y, str) else list(y)


def _is_wide(columns: Sequence[Array]) -> bool:
    """Whether numbers are positive and span more than a decade."""
    numbers = np.concatenate(columns)
    numbers = numbers[np.isfinite(numbers)]
    return len(numbers) > 0 and numbers.min() > 0 and numbers.max() > DECADE * numbers.min()
