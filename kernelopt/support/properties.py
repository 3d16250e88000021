"""`functools.cached_property` without the lock that it has before Python 3.12."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """Two threads may compute a value twice, but neither waits.

        The lock of Python 3.11 is one for all objects of a class. A process that is forked while another thread holds
        it would wait for ever.
        """

        def __init__(self, func: Callable[[Any], Any]) -> None:
            super().__init__(func)
            self.lock = nullcontext()


__all__ = ["cached_property"]
