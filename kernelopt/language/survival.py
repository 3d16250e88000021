"""Cox's partial likelihood as an atom of cvxpy trees, and a form whose size grows with the number of rows only.

With event times τ₁ < τ₂ < … (d₁, d₂, … events each), rows j at risk at τₖ (tⱼ ≥ τₖ), and Rₖ = Σ e^uⱼ over these,

    Σₖ dₖ log Rₖ = min over L of  Σⱼ e^(uⱼ + L_k(j)) − Σₖ dₖ log(e^Lₖ − e^Lₖ₋₁) + Σₖ (dₖ log dₖ − dₖ),

with e^L₀ = 0, and k(j) the last event time that row j was at risk. Proof: with hₖ = e^Lₖ − e^Lₖ₋₁ > 0 the first sum is
Σₖ hₖRₖ, and min over hₖ of hₖRₖ − dₖ log hₖ is dₖ log Rₖ + dₖ − dₖ log dₖ, at hₖ = dₖ/Rₖ. These are Breslow's
increments of the cumulative hazard e^L. The right side is jointly convex in u and L, since

    −log(e^Lₖ − e^Lₖ₋₁) = −Lₖ − log(1 − e^(Lₖ₋₁ − Lₖ)),

and each of its terms is a function of one number; log-sum-exp over all risk sets has N²/2 exponentials.

Efron's terms of the d events at one time are log(R − (l/d)T), l = 0 … d−1, with T = Σ e^uⱼ over these events. They are
steps k, l with one event each, at which the d rows have weights 1 − l/d. A row with an event at τₖ then adds

    e^uⱼ (Hₖ₋₁ + Σₗ (1 − l/d) hₖₗ) = e^uⱼ Σₗ Hₖₗ/d = (1/d) Σₗ e^(uⱼ + Lₖₗ),  Hₖₗ = e^Lₖₗ the sum of h up to step k, l,

by summation by parts: again exponentials of affine functions, d for each of the d rows.
"""

from __future__ import annotations

from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from kernelopt.errors import DCPError
from kernelopt.support.cvxpy_parts import Atom
from kernelopt.support.types import Array, Ints


class RiskSets:
    """Who is at risk when: steps, one for each event time (Breslow) or for each event (Efron).

    rows : those with an event; events : the number of events of each step; at, steps, weights : row `at` adds
    weight·e^(u + L_step), for the steps up to which it was at risk
    """

    def __init__(self, time: Array, event: Array, efron: bool = False) -> None:
        self.rows = np.flatnonzero(event)
        times, counts = np.unique(time[self.rows], return_counts=True)
        self.last = np.searchsorted(times, time, side="right") - 1  # −1: never at risk at an event time
        self._ends = np.cumsum(counts if efron else np.ones_like(counts))  # the steps of each event time
        self.events = np.ones(counts.sum(), dtype=int) if efron else counts
        self._time_of = np.repeat(np.arange(len(times)), np.diff(self._ends, prepend=0))
        order = np.arange(len(self.events)) - (self._ends - np.diff(self._ends, prepend=0))[self._time_of]
        self._share = 1 - order / counts[self._time_of]  # weight of an event at its own time
        self._is_event = np.zeros(len(time), dtype=bool)
        self._is_event[self.rows] = True
        self.at, self.steps, self.weights = self._entries(counts if efron else np.ones_like(counts))

    def _entries(self, spread: Ints) -> tuple[Ints, Ints, Array]:
        """Rows, steps and weights; `spread` is the number of steps over which an event at each time is spread."""
        at_risk = np.flatnonzero(self.last >= 0)
        copies = np.where(self._is_event[at_risk], spread[self.last[at_risk]], 1)
        at = np.repeat(at_risk, copies)
        back = np.concatenate([np.arange(0), *(np.arange(c) for c in copies)]).astype(int)
        return at, self._ends[self.last[at]] - 1 - back, np.repeat(1.0 / copies, copies)

    def log_totals(self, u: Array) -> Array:
        """log of the total at risk for each step."""
        others, own = np.full((2, len(self._ends)), -np.inf)
        for total, chosen in ((others, ~self._is_event), (own, self._is_event)):
            at_risk = (self.last >= 0) & chosen
            np.logaddexp.at(total, self.last[at_risk], u[at_risk])
        later = np.logaddexp.accumulate(np.logaddexp(others, own)[::-1])[::-1]
        others = np.logaddexp(others, np.append(later[1:], -np.inf))
        return np.logaddexp(others[self._time_of], np.log(self._share) + own[self._time_of])


class CoxLikelihood(Atom):
    """Σ over events i of  log Σ{e^uⱼ : tⱼ ≥ tᵢ} − uᵢ, convex in u; or with Efron's terms for events at one time."""

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
        return [sp.csc_array(self.slopes(np.ravel(values[0]))[:, None])]

    def slopes(self, u: Array) -> Array:
        """The gradient by u, (n,)."""
        sets = self.sets
        log_hazard = np.logaddexp.accumulate(np.log(sets.events) - sets.log_totals(u))
        found = np.zeros(len(u))
        np.add.at(found, sets.at, sets.weights * np.exp(u[sets.at] + log_hazard[sets.steps]))
        found[sets.rows] -= 1.0
        return found

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DCPError(
            "ko.losses.cox(…) is compiled by ko.Problem. Write ko.Problem(objective, constraints) instead of "
            "cp.Problem(objective, constraints)."
        )

    def written_out(self, u: cp.Expression) -> cp.Expression:
        """The right side of the module's formula at u, an expression in cvxpy's atoms with L as a further variable."""
        sets, d = self.sets, self.sets.events.astype(float)
        L = cp.Variable(len(d), name="log_hazard")
        hazards = sets.weights @ cp.exp(u[sets.at] + L[sets.steps])
        total = hazards - d @ L - cp.sum(u[self.sets.rows]) + float(np.sum(xlogy(d, d) - d))
        return total - d[1:] @ cp.log(1 - cp.exp(L[:-1] - L[1:])) if len(d) > 1 else total
