"""Calls into solvers of others, which Ctrl-C and a deadline end whether or not the solver looks at either.

Compiled solvers release the interpreter's lock while they run. So they run in a thread of their own, while the calling
thread waits, where Ctrl-C and the clock reach it at once. A solver is first told to stop, as it does between two of its
iterations; one that does not stop in time is left, and its thread ends by itself.

ECOS, OSQP and SCS replace the process's handler of Ctrl-C while they run, so that Python never hears of it. Python's
handler is put back, and theirs is called when they are to stop.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from contextvars import copy_context
from math import inf, isfinite
from time import perf_counter
from typing import Any, TypeVar

from kernelopt.errors import SolverError
from kernelopt.support.clock import OutOfTimeError

T = TypeVar("T")

# Seconds between two looks at the clock and at the handler of Ctrl-C, in the beginning and later. Longer ones leave
# Ctrl-C to the solver for longer; shorter ones cost time that the solver could use.
FIRST_LOOK, LOOK = 1e-3, 0.05
# Seconds after its deadline in which a solver with a time limit of its own may return, before it is told to stop.
LATE = 0.3
# Seconds that a solver has for ending after it was told to. A longer time keeps more last points, of solvers with slow
# iterations, but may be all that is left of the 2 s in which Ctrl-C should be heard.
GRACE = 0.7

_left: list[threading.Thread] = []  # threads that were told to stop, and left
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_left.clear)


def call(  # noqa: PLR0915
    work: Callable[[], T], seconds: float = inf, stop: Callable[[], None] | None = None
) -> T:
    """work(), run in a thread of its own. `stop` tells it to end soon; it is called in the calling thread.

    Raises KeyboardInterrupt after Ctrl-C, and OutOfTimeError where `work` does not end in `seconds`, both within about
    a second, in which `work` may still end, and SolverError where compiled code panics.
    """
    deadline = perf_counter() + seconds
    if perf_counter() >= deadline:
        raise OutOfTimeError
    ended, found = threading.Event(), list[tuple[Any, BaseException | None]]()
    handler, context = _Handler(), copy_context()

    def run() -> None:
        try:
            found.append((context.run(work), None))
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # handed on to the calling thread
            found.append((None, error))
        except BaseException as error:  # a panic in a solver's own code, as Clarabel's of Rust
            found.append((None, SolverError(f"the solver broke down: {error}")))
        finally:
            handler.put_back()
            ended.set()

    thread = threading.Thread(target=run, name="kernelopt: a solver", daemon=True)

    def watch() -> None:
        """Stop a solver that was left in its setup, as soon as it listens, and keep Python's handler in place."""
        while not ended.wait(LOOK):
            handler.put_back()
            handler.call_theirs()

    def end() -> bool:
        """Tell the solver to stop; return whether it did so in time."""
        stoppable = handler.call_theirs()
        if stop is not None:
            stop()
            stoppable = True
        try:
            return ended.wait(GRACE)
        finally:
            if not ended.is_set():
                threading.Thread(target=watch, name="kernelopt: waits for a solver", daemon=True).start()
            if stoppable and not ended.is_set():
                _left.append(thread)

    thread.start()
    look = FIRST_LOOK
    try:
        while not ended.wait(look):
            handler.put_back()
            look = min(2 * look, LOOK)
            if perf_counter() > deadline + LATE and not end():
                raise OutOfTimeError
    except OutOfTimeError:
        raise
    except BaseException:
        end()
        raise
    handler.put_back()
    value, error = found[0]
    if error is not None:
        raise error
    return value


def wait_for_others(seconds: float = inf) -> None:
    """Wait for solvers that were told to stop and left, so that they don't pile up. Raises OutOfTimeError."""
    deadline = perf_counter() + seconds
    for thread in [*_left]:
        thread.join(max(deadline - perf_counter(), 0.0) if isfinite(deadline) else None)
        if not thread.is_alive() and thread in _left:  # another thread may have waited for it too
            _left.remove(thread)
    if perf_counter() >= deadline:
        raise OutOfTimeError


def interrupt() -> None:
    """Raise KeyboardInterrupt for a Ctrl-C that only a solver heard, in the main thread too."""
    if threading.current_thread() is not threading.main_thread():
        _thread.interrupt_main()
    raise KeyboardInterrupt


# ---------------------------------------------------------------- the handler of Ctrl-C


def _functions_of_python() -> tuple[Any, Any] | None:
    """`PyOS_getsig` and `PyOS_setsig` of Python's C interface; None where there are none."""
    try:
        get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    except AttributeError:
        return None
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_int]
    put.restype, put.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    return get, put


_FUNCTIONS = _functions_of_python()


def _address() -> int:
    """The address of the process's present handler of Ctrl-C."""
    return 0 if _FUNCTIONS is None else int(_FUNCTIONS[0](signal.SIGINT) or 0)


_of_python: list[int] = []  # the function in C that notes a signal for Python's own handlers, once it is known


def _note_pythons() -> None:
    """Note that function while no solver runs: at the import, or later where Ctrl-C was ignored until then."""
    if not _of_python and callable(signal.getsignal(signal.SIGINT)):
        _of_python.append(_address())


_note_pythons()


class _Handler:
    """The handler of Ctrl-C that a solver puts in the place of Python's."""

    def __init__(self) -> None:
        self.theirs: int | None = None
        _note_pythons()

    def put_back(self) -> None:
        """Put Python's handler back where another one is in its place."""
        known: Any = signal.getsignal(signal.SIGINT)
        ours = next(iter(_of_python), None) if callable(known) else known  # None where it was set outside of Python
        if ours is None or _FUNCTIONS is None:
            return
        now = _address()
        if now != int(ours):
            self.theirs = now
            _FUNCTIONS[1](signal.SIGINT, int(ours))

    def call_theirs(self) -> bool:
        """Call the solver's handler, as Ctrl-C would; return whether there is one."""
        if not self.theirs or self.theirs == int(signal.SIG_IGN):
            return False
        ctypes.CFUNCTYPE(None, ctypes.c_int)(self.theirs)(int(signal.SIGINT))
        return True
