"""Cox's partial likelihood as an atom of cvxpy trees, and a form whose size grows with the number of rows only.

With event times τ₁ < τ₂ < … (d₁, d₂, … events each), rows j at risk at τₖ (tⱼ ≥ τₖ), and Rₖ = Σ e^uⱼ over these,

    Σₖ dₖ log Rₖ = min over L of  Σⱼ e^(uⱼ + L_k(j)) − Σₖ dₖ log(e^Lₖ − e^Lₖ₋₁) + Σₖ (dₖ log dₖ − dₖ),

with e^L₀ = 0, and k(j) the last event time that row j was at risk. Proof: with hₖ = e^Lₖ − e^Lₖ₋₁ > 0 the first sum is
Σₖ hₖRₖ, and min over hₖ of hₖRₖ − dₖ log hₖ is dₖ log Rₖ + dₖ − dₖ log dₖ, at hₖ = dₖ/Rₖ. These are Breslow's
increments of the cumulative hazard e^L. The right side is jointly convex in u and L, since

    −log(e^Lₖ − e^Lₖ₋₁) = −Lₖ − log(1 − e^(Lₖ₋₁ − Lₖ)),

and each of its terms is a function of one number; log-sum-exp over all risk sets has N²/2 exponentials.
"""

from __future__ import annotations

from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from kernelopt.errors import DCPError
from kernelopt.support.cvxpy_parts import Atom
from kernelopt.support.types import Array


class RiskSets:
    """Who is at risk when: the event times in order, their numbers of events, and the last event time of each row."""

    def __init__(self, time: Array, event: Array) -> None:
        self.rows = np.flatnonzero(event)
        times, self.events = np.unique(time[self.rows], return_counts=True)
        self.last = np.searchsorted(times, time, side="right") - 1  # −1: never at risk at an event time

    def log_totals(self, u: Array) -> Array:
        """log Rₖ for each event time."""
        totals = np.full(len(self.events), -np.inf)
        at_risk = self.last >= 0
        np.logaddexp.at(totals, self.last[at_risk], u[at_risk])
        return np.logaddexp.accumulate(totals[::-1])[::-1]


class CoxLikelihood(Atom):
    """Σ over events i of  log Σ{e^uⱼ : tⱼ ≥ tᵢ} − uᵢ, convex in u."""

    def __init__(self, u: Any, sets: RiskSets) -> None:
        self.sets = sets
        super().__init__(u)

    def get_data(self) -> list[RiskSets]:
        return [self.sets]

    def shape_from_args(self) -> tuple[int, ...]:
        return ()

    def sign_from_args(self) -> tuple[bool, bool]:
        return False, False  # ≥ 0, but cvxpy does not know this of the form that is written out

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:
        return False

    def is_decr(self, idx: int) -> bool:
        return False

    def numeric(self, values: Any) -> float:
        u = np.ravel(values[0])
        return float(self.sets.events @ self.sets.log_totals(u) - u[self.sets.rows].sum())

    def _grad(self, values: Any) -> list[Any]:
        u, sets = np.ravel(values[0]), self.sets
        log_hazard = np.logaddexp.accumulate(np.log(sets.events) - sets.log_totals(u))
        found = np.where(sets.last >= 0, np.exp(u + log_hazard[sets.last]), 0.0)
        found[sets.rows] -= 1.0
        return [sp.csc_array(found[:, None])]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DCPError(
            "ko.losses.cox(…) is compiled by ko.Problem. Write ko.Problem(objective, constraints) instead of "
            "cp.Problem(objective, constraints)."
        )

    def written_out(self, u: cp.Expression) -> cp.Expression:
        """The right side of the module's formula at u, an expression in cvxpy's atoms with L as a further variable."""
        d, at_risk = self.sets.events.astype(float), np.flatnonzero(self.sets.last >= 0)
        L = cp.Variable(len(d), name="log_hazard")
        hazards = cp.exp(u[at_risk] + L[self.sets.last[at_risk]])
        total = cp.sum(hazards) - d @ L - cp.sum(u[self.sets.rows]) + float(np.sum(xlogy(d, d) - d))
        return total - d[1:] @ cp.log(1 - cp.exp(L[:-1] - L[1:])) if len(d) > 1 else total
