"""A progress bar for a gap, on a logarithmic scale."""

from __future__ import annotations

from math import inf, log10
from typing import Any

from tqdm.auto import tqdm


class GapBar:
    """A bar from the first gap to the goal. It is drawn only if `shown`."""

    def __init__(self, label: str, shown: bool, leave: bool = False) -> None:
        self.label, self.shown, self.leave = label, shown, leave
        self._bar: Any = None
        self._first = 1.0

    def show(self, gap: float, goal: float, note: str = "") -> None:
        """Show a gap. A gap larger than an earlier one leaves the bar where it is."""
        if not self.shown or not 0 < gap < inf or not goal > 0:
            return
        if self._bar is None:
            self._first = max(gap, goal)
            total = max(log10(self._first / goal), 1e-9)
            form = "{desc}: {bar} {postfix} {elapsed}"
            self._bar = tqdm(total=total, desc=self.label, bar_format=form, leave=self.leave)
        done = min(log10(self._first / max(gap, goal)), self._bar.total)
        self._bar.n = self._bar.total if gap <= goal else max(done, self._bar.n)
        self._bar.set_postfix_str(f"gap {gap:.1e}{note}", refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
