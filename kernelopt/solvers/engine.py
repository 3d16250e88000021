"""The interface of our own solvers. A new one is a file with a class, and a row in `engines.ENGINES`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch


class Engine(ABC):
    """A solver of structured problems, without state: its points carry what helps the next solve, in `kept`.

    sparse : whether it takes problems with a sparse F
    in_rows : whether its systems have entries of BBᵀ, one row for each active row
    to_rounding : whether it reaches gaps of the size of their rounding, or sees soon that it does not
    free_columns : whether it takes problems of y alone
    """

    sparse = False
    in_rows = False
    to_rounding = False
    free_columns = False

    @abstractmethod
    def lacks(self, shape: Shape) -> str | None:
        """Why it can't take a problem of this shape, as a phrase that follows its name in a message; None if it can."""

    @abstractmethod
    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        """The best point found, with its gap; the watch decides when it is good enough, and when time is over."""


def needs_convexity(shape: Shape) -> str | None:
    """Why convex solvers can't take a problem, or None."""
    return f"takes convex losses; {shape.nonconvex} is declared nonconvex" if shape.nonconvex else None
