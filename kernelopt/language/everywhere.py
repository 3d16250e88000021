"""Constraints at all points of a box."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError, KernelOptError
from kernelopt.kernels.domains import real_array
from kernelopt.language.symbol import PointSymbol
from kernelopt.support.checks import shown
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

MOST_COLUMNS = 3
BINDS = 1e-6  # of the largest multiplier: smaller ones are those of solvers that stop in the interior
FIRST = {1: 9, 2: 5, 3: 3}  # points per column at first


class Everywhere:
    """g(x) ≥ 0 for all x of a box, a constraint made by `ko.everywhere`.

    Attributes
    ----------
    lower, upper : (d,), the corners of the box
    least : after a solve, a number m with g ≥ m proven for all x of the box at the answer, under the assumptions that
        the certificate names; else None
    points : after a solve, the points (n, d) at which the constraint was imposed; else None
    dual_value : after a solve, its multipliers at these points, (n,) or (n, K); else None
    binding : after a solve, the points that bind (m, d): those with a multiplier above 1e-6 of the largest; else None
    """

    def __init__(self, g: Callable[[Array], Any], lower: Array, upper: Array, bend: Array) -> None:
        self.g, self.lower, self.upper, self.bend = g, lower, upper, bend
        self.least: float | None = None
        self.points: Array | None = None
        self.dual_value: Array | None = None
        self._leaves: list[Any] | None = None

    def grid(self, halvings: int = 0) -> Array:
        """The points at first: a coarse grid, whose steps are halved some times."""
        count = (FIRST[len(self.lower)] - 1) * 2**halvings + 1
        axes = [np.linspace(a, b, count if a < b else 1) for a, b in zip(self.lower, self.upper, strict=True)]
        return np.array(list(product(*axes)))

    @cached_property
    def shown(self) -> Any:
        """The inequality at a few points, to be printed."""
        return self._stated(self.grid())

    def _stated(self, P: Array) -> Any:
        try:
            return self.g(P)
        except DataError as error:
            count = len(self.lower)
            error.add_note(
                f"This happened at points of the box {self.text} of ko.everywhere, which has {count} "
                f"column{'' if count == 1 else 's'}. Its corners have one number per column, such as [0, 0] and [1, 1]."
            )
            raise

    def _remember_leaves(self) -> None:
        """Keep the θ and variables that g uses: a deep copy has copies of them."""
        self._leaves = list(self._stated(self.grid()).variables())

    def _require_own_leaves(self) -> None:
        """Raise KernelOptError where the g of a copy uses other θ and variables than the copies of what it used."""
        used = {id(leaf) for leaf in self._stated(self.grid()).variables()} if self._leaves is not None else set()
        if used != {id(leaf) for leaf in self._leaves or ()}:
            raise KernelOptError(
                "Expected a function g of ko.everywhere that is copied together with the θ and variables that it uses; "
                "this one, as Python functions do, uses those of the problem that was copied. To solve again, "
                "state the problem again, or give g as an object that has them as attributes; answers can be read."
            )

    @property
    def binding(self) -> Array | None:
        if self.points is None or self.dual_value is None:
            return None
        size = np.abs(self.dual_value).reshape(len(self.points), -1).max(axis=1)
        return np.asarray(self.points[(size > BINDS * size.max(initial=0.0)) & (size > 0)])

    @property
    def text(self) -> str:
        """The box, "[0, 1] × [2, 3]"."""
        return " × ".join(f"[{a:g}, {b:g}]" for a, b in zip(self.lower, self.upper, strict=True))

    def margin(self, P: Array) -> cp.Expression:
        """The expression that is ≥ 0 at the points P, one row for each. Raises DataError."""
        return self._margin_of(self._stated(P.copy()), len(P))

    def symbolic_margin(self, P: Array) -> cp.Expression | None:
        """The same for points without values, which shows how g depends on them; None where its code needs values."""
        try:
            return self._margin_of(self.g(PointSymbol.of_points(P)), len(P))
        except Exception:  # of the user's code, with what is no array
            return None

    def _margin_of(self, stated: Any, count: int) -> cp.Expression:
        if isinstance(stated, cp.constraints.Inequality):
            margin = -stated.expr
        elif isinstance(stated, cp.constraints.NonNeg):
            margin = stated.args[0]
        elif isinstance(stated, (cp.constraints.Equality, cp.constraints.Zero)):
            raise DataError(
                "Expected an inequality in ko.everywhere; got an equality, which infinitely many points would "
                "determine. State both inequalities with a tolerance, or equalities at chosen points."
            )
        else:
            raise DataError(f"Expected g(P) to be an inequality such as theta(P) >= 0; got {stated!r}.")
        if not margin.is_affine():
            raise DataError(
                "Expected g(P) to be affine in θ and the variables; got an expression that is not. State |f| <= c and "
                "f² <= c² as two constraints, f <= c and f >= -c, each in a ko.everywhere."
            )
        if margin.ndim not in (1, 2) or margin.shape[0] != count:
            raise DataError(
                f"Expected g(P) with a row for each of the {count} points; got shape {margin.shape}. Write g for any "
                "number of points, such as lambda P: theta(P) >= 0."
            )
        return margin

    def at(self, P: Array, shift: float = 0.0) -> cp.Constraint:
        """The constraint g(x) ≥ shift at the points P."""
        return self.margin(P) >= shift

    def __repr__(self) -> str:
        return f"Everywhere({self.g!r}, {self.lower.tolist()}, {self.upper.tolist()})"


def everywhere(g: Callable[[Array], Any], lower: Any, upper: Any, *, bend: Any = 0.0) -> Everywhere:
    """The constraint that an inequality holds at all points of a box, for `ko.Problem`.

    The kernel is stationary, such as a Gaussian or rational quadratic one, or polynomial, or a sum of such kernels. It
    has derivatives two orders above those in the inequality. A solve imposes the inequality at a few points and adds
    points where it is violated, until it is proven for the whole box: on a cell with sides hⱼ

        g(x) ≥ min over the corners − Σⱼ Mⱼhⱼ²/8,   Mⱼ = max ‖∂ⱼ∂ⱼ∂F‖·‖θ‖ ≥ |∂²g/∂xⱼ²|.

    With only one derivative more (Matérn kernels), proofs use bounds of slopes. For values of functions without
    derivatives (Laplacian and Matérn, ν = ½) they use ‖F(x) − F(x + h)‖ = √(2κ(0) − 2κ(h)) and Σ|cᵢ||κ(x) − κ(x + h)|.
    These proofs take more cells. In one column they reach tolerances of 1e-3, and in two columns they often fail.

    The problem at few points bounds the optimum from below. An answer that is proven feasible bounds it from above.

    Parameters
    ----------
    g : function
        Takes points (m, d) and returns an inequality with a row for each of them, (m,) or (m, K), affine in predictions
        and derivatives at these points, other functionals of θ, and variables. Coefficients may depend on x affinely:
        they are compared with affine functions at all points that the proof looks at. Where g's code shows it, by
        operators on P such as `0.3 * P[:, 0] - 1`, nothing is assumed. Where it is known at the points that were
        examined only, as with `np.where`, the certificate names the assumption, and the status is "optimal_inaccurate".
    lower, upper : numbers or arrays (d,), d ≤ 3
    bend : number or array (d,), optional
        Bounds on the second derivatives by each xⱼ of the terms of g that hold neither θ nor variables, where these are
        not affine in x. The numbers are compared with them in all cells that the proof looks at. Between these points
        they are taken on trust, and the certificate names them.

    Returns
    -------
    Everywhere
        A constraint, with `points`, `dual_value`, `least` and `binding` after a solve.

    Raises
    ------
    DataError
        For boxes that are not finite, upside down, or of more than 3 columns; for an equality; for a constraint at
        chosen points in place of a function. In a solve, where coefficients or numbers contradict what is said above.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> y = np.tanh(np.linspace(-3, 3, 30)) + 0.1 * np.cos(np.arange(30.0))
    >>> kernel = ko.kernels.Gaussian(sigma=1.0)
    >>> theta = ko.Theta(kernel)
    >>> rising = ko.everywhere(
    ...     lambda P: ko.FeatureMatrix(P, kernel).derivative(0) @ theta >= 0, 0.0, 6.0
    ... )
    >>> objective = cp.sum_squares(theta(X) - y) + 0.01 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective), [rising])
    >>> _ = problem.solve()
    >>> print(problem.status, rising.least >= 0)
    optimal True
    """
    if isinstance(g, (cp.constraints.constraint.Constraint, bool)):
        raise DataError(
            f"Expected a function of points, such as lambda P: theta(P) >= 0; got the constraint {g}, which holds at "
            "points that are chosen. Write ko.everywhere(lambda P: theta(P) >= 0, lower, upper)."
        )
    if not callable(g):
        raise DataError(f"Expected a function of points, such as lambda P: theta(P) >= 0; got {shown(g)}.")
    low, high = (np.atleast_1d(real_array(a, name)) for a, name in ((lower, "lower"), (upper, "upper")))
    if low.ndim != 1 or high.ndim != 1 or len({len(low), len(high)} - {1}) > 1:
        raise DataError(f"Expected lower and upper of one shape (d,); got {low.shape} and {high.shape}.")
    low, high = (np.array(a) for a in np.broadcast_arrays(low, high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(f"Expected a box with finite corners; got {low.tolist()} and {high.tolist()}.")
    for j in np.flatnonzero(low > high)[:1]:
        raise DataError(f"Expected lower <= upper; got {low[j]:g} > {high[j]:g} in column {j}.")
    if len(low) > MOST_COLUMNS:
        raise DataError(
            f"Expected a box of at most {MOST_COLUMNS} columns, since cells multiply with each; got {len(low)}. "
            "State the inequality at points of your own, with a margin from FeatureMatrix.modulus."
        )
    bent = np.asarray(real_array(bend, "bend"))
    if bent.shape not in ((), (1,), low.shape) or not np.isfinite(bent).all() or np.any(bent < 0):
        raise DataError(f"Expected bend as numbers >= 0, one or {len(low)}; got {bend!r}.")
    return Everywhere(g, low, high, np.broadcast_to(bent, low.shape).copy())
