"""The memory that is available, and errors before more is taken."""

from __future__ import annotations

import os
import time
from numbers import Real
from pathlib import Path

from kernelopt.errors import MemoryLimitError, OptionError
from kernelopt.support.checks import shown

# The default limit, as a share of the available memory. The rest is for uncounted arrays, and for other programs.
SHARE = 0.8
# Bytes taken to be available where the operating system does not tell. A problem that needs more sets memory_limit.
FALLBACK = 4 * 2**30
# An answer of the operating system serves for RECENT seconds, and WORTH times as long as it took: to read the files of
# control groups takes longer than many a small solve.
RECENT, WORTH = 0.1, 100.0
# The files of limit and usage, and the entry of memory.stat that can be given back, of versions 2 and 1.
CONTROL_GROUPS = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
# What a solve takes beside B, measured, see `of_solve`: vectors of N numbers, and blocks of kernel values as B grows.
VECTORS, BLOCKS = 100, 2**24
LITTLE = 2**24  # bytes for which no file is read: Q of 1000 rows, twice
_answer = (0.0, 0)  # until when it serves, and bytes


def available_bytes() -> int:
    """Memory that can be taken without swapping, where the operating system tells; else half of all, or FALLBACK.

    Limits of the container, which control groups of Linux set, count too.
    """
    global _answer  # noqa: PLW0603 one answer for all
    until, found = _answer
    began = time.monotonic()
    if began >= until:
        found = min([_of_machine(), *_of_groups()])
        now = time.monotonic()
        _answer = now + max(RECENT, WORTH * (now - began)), found
    return found


def has_twice(needed: float) -> bool:
    """Whether twice as many bytes are available; LITTLE are, without a look."""
    return has_little(needed) or 2 * needed <= available_bytes()


def has_little(needed: float) -> bool:
    """Whether these are so few bytes that they are there in any case."""
    return needed <= LITTLE


def _of_machine() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    except (AttributeError, OSError, ValueError):
        return FALLBACK


def _of_groups(root: Path = Path("/")) -> list[int]:
    """What is left of the memory limit of this process's control group, and of each group above it that is visible."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers in CONTROL_GROUPS:
            names, mount = CONTROL_GROUPS[controllers], root / "sys/fs/cgroup" / controllers
            # In a container the path may be that outside of it; its own group is then mounted at the top.
            for group in (mount / path.strip("/"), *(mount / path.strip("/")).parents):
                if group.is_relative_to(mount) and ".." not in group.parts:
                    found += _left_in(group, *names)
    return found


def _left_in(group: Path, limit: str, usage: str, cache: str) -> list[int]:
    """Limit − usage, without the file cache that the kernel gives back; empty where there is no limit."""
    try:
        most, used = int((group / limit).read_text()), int((group / usage).read_text())
        entries = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file; or "max", no limit
        return []
    return [max(most - used + int(entries.get(cache, 0)), 0)]


def allowed_bytes(limit: float | None) -> float:
    """The limit; by default 80 % of what is available. Raises OptionError for what is no number of bytes."""
    number = isinstance(limit, Real) and not isinstance(limit, bool) and limit > 0
    if limit is not None and not number:
        raise OptionError(f"Expected memory_limit to be a number of bytes > 0, or None; got {shown(limit)}.")
    return SHARE * available_bytes() if limit is None else limit


def require(
    needed: float, what: str, limit: float | None, remedy: str = "Use fewer rows", whole: float | None = None
) -> None:
    """Raise MemoryLimitError if `needed` bytes exceed the limit.

    The message names `whole` instead, the bytes that later steps are likely to need too, where these are more.
    """
    allowed = allowed_bytes(limit)
    if needed > allowed:
        told = needed if whole is None else max(whole, needed)
        raise MemoryLimitError(
            f"{what} needs about {human(told)}, and the limit is {human(allowed)}. {remedy}, or set "
            f"solve(memory_limit=...) to more than {told:.0f} bytes if the machine has them."
        )


def of_solve(rows: int, rank: int, entry: int = 8) -> float:
    """Bytes that a solve with a factor of `rows` × `rank` takes at its peak, measured for N from 2e4 to 1e5.

    Either B grows, with a part of it once more and blocks of kernel values, or the solver has its vectors beside it.
    """
    again = 1.6 if entry == 8 else 2.0  # in single precision all of B is computed once more, beside the old one
    B = entry * rows * rank
    return max(again * B + BLOCKS, 1.25 * B + VECTORS * 8 * rows)


def human(size: float) -> str:
    """Bytes in a unit for reading: 80 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
