"""Random problems with up to six booleans or integers, each beside the enumeration of these.

    python tests/fuzz/enumerating.py [500] [--first 0] [--jobs 2]

For every choice of the integers a hand-written problem in the coordinates of the kernel matrix, f = Lv with Q = LLᵀ, is
solved by cvxpy. The best choice is the truth, for the value, the bounds and the status.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import cvxpy as cp
import numpy as np

import kernelopt as ko
from kernelopt import losses

TOL = 1e-5  # of the size of the data: what the truth's solvers and `tol` leave
LOSSES = {
    "absolute": lambda y, f: cp.norm1(y - f),
    "hinge": lambda y, f: cp.sum(losses.hinge(np.where(y > 0, 1.0, -1.0), f)),
    "epsilon": lambda y, f: cp.sum(losses.epsilon_insensitive(y, f, 0.1 * float(np.abs(y).max()))),
    "worst": lambda y, f: cp.norm_inf(y - f),
    "squares": lambda y, f: cp.sum_squares(y - f),
}
KINDS = ["outliers", "indicator", "count", "price", "shift", "mixed", "attributes", "at most one"]


class Case:
    """A random problem; `state` writes it down for the library, or for one choice of its integers by hand."""

    def __init__(self, seed: int):
        rng = np.random.default_rng([7, seed])
        self.seed, self.kind = seed, str(rng.choice(KINDS))
        n = int(rng.choice([1, 2, 3, 4, 5, 6]))
        X = rng.uniform(-2, 2, (n, 2))
        self.X = X[rng.integers(n, size=n)] if rng.random() < 0.2 else X
        self.kernel = ko.kernels.Laplacian(sigma=0.7) if rng.random() < 0.5 else ko.kernels.Linear()
        self.loss = str(rng.choice(list(LOSSES), p=[0.4, 0.2, 0.2, 0.1, 0.1]))
        self.penalty = str(rng.choice(["none", "squared", "unsquared", "ball"]))
        self.penalty = "none" if rng.random() < 0.4 else self.penalty
        self.scale = 1.0 if self.loss == "hinge" else float(rng.choice([1.0, 1.0, 1.0, 1e3, 1e-4, 1e-8]))
        y = rng.normal(size=n)
        self.y = y if rng.random() < 0.7 else np.where(np.arange(n) % 3, 0.0, 2 * y)
        self.strength, self.price = float(10 ** rng.uniform(-2, 0.5)), float(rng.choice([-1, 1]) * rng.uniform(0, 1))
        self.maximize, self.constant = rng.random() < 0.3, float(rng.choice([0.0, 0.0, 100.0, -3.0]))
        self.count, self.weights = int(rng.integers(0, n + 1)), rng.uniform(0.5, 2.0, n)
        self.size = self.scale * (1.0 if self.loss != "squares" else self.scale)
        self.solver = str(rng.choice(["HIGHS", "SCIPY"])) if self.is_linear and rng.random() < 0.3 else None
        # With the kernel unit²·k, the same problem is one in unit·‖θ‖, or in f/unit.
        rng = np.random.default_rng([8, seed])
        self.unit, self.of_theta = float(rng.choice([1.0, 1.0, 1e6, 1e-6, 1e3, 1e-3])), rng.random() < 0.5

    @property
    def is_linear(self) -> bool:
        return self.penalty == "none" and self.loss != "squares"

    def integers(self):
        """The integer variables, and for each the values that it may have, whole arrays."""
        n = len(self.y)
        if self.kind in ("shift", "attributes"):
            nonneg = self.kind == "attributes"
            low, high = (0, 2) if nonneg else (-1, 2)
            z = cp.Variable(integer=True, nonneg=nonneg) if nonneg else cp.Variable(integer=True)
            return z, [np.array(float(k)) for k in range(low, high + 1)]
        if self.kind == "mixed":
            z = cp.Variable(3, boolean=[(0, 2)])
            return z, [np.array([a, np.nan, b]) for a in (0.0, 1.0) for b in (0.0, 1.0)]
        if self.kind == "price":
            return cp.Variable(boolean=True), [np.array(0.0), np.array(1.0)]
        z = cp.Variable(n, boolean=True)
        return z, [np.array(bits, dtype=float) for bits in itertools.product((0.0, 1.0), repeat=n)]

    def state(self, f, norm, z, s):
        """(objective, constraints) for predictions f, ‖θ‖ and integers z, in units of s."""
        y, n, M, unit = s * self.y, len(self.y), 10 * s, s * s if self.loss == "squares" else s
        loss, constraints = LOSSES[self.loss], []
        match self.kind:
            case "outliers":  # free shifts of a few rows
                other = cp.Variable(n)
                objective = loss(y, f + other)
                constraints = [other <= M * z, other >= -M * z, cp.sum(z) <= self.count]
            case "indicator":  # zᵢ = 1 makes a row's prediction at least its target
                objective = loss(y, f) - unit * cp.sum(cp.multiply(0.3 * self.weights, z))
                constraints = [f >= y + 0.2 * s - M * (1 - z), f <= M, f >= -M]
            case "count":  # a prediction above 0 counts
                objective = loss(y, f)
                constraints = [f <= M * z, cp.sum(z) <= self.count]
            case "price":
                objective = loss(y, f) + unit * self.price * z
                constraints = [cp.abs(f[0]) <= 3 * s * z]
            case "shift":
                objective = loss(y, f + s * z) + unit * 0.1 * self.price * z
                constraints = [z >= -1, z <= 2]
            case "attributes":
                other = cp.Variable(nonneg=True)
                objective = loss(y, f + s * z - other) + unit * 0.2 * z
                constraints = [z <= 2, other <= s * z]
            case "mixed":  # z₁ is continuous, and in units of the data
                objective = loss(y, f + z[1]) + unit * 0.1 * (z[0] + z[2])
                constraints = [cp.abs(z[1]) <= s * (z[0] + 2 * z[2]), cp.abs(f) <= s]
            case _:
                objective = loss(y, f + s * (self.weights @ z)) + unit * 0.05 * cp.sum(z)
                constraints = [cp.sum(z) <= 1]
        if self.penalty == "squared":
            objective = objective + self.strength * unit / s**2 * norm**2
        if self.penalty == "unsquared":
            objective = objective + self.strength * unit / s * norm
        if self.penalty == "ball":
            constraints.append(norm <= 1.5 * s)
        objective = objective + self.constant * unit
        return (cp.Maximize(-objective) if self.maximize else cp.Minimize(objective)), constraints

    def problem(self):
        theta = ko.Theta(self.kernel if self.unit == 1 else self.unit**2 * self.kernel)
        z, _ = self.integers()
        of_theta, of_f = (self.unit, 1.0) if self.of_theta else (1.0, self.unit)
        norm = _Squared(theta, of_theta) if self.penalty == "squared" else of_theta * ko.norm(theta)
        objective, constraints = self.state(theta(self.X) / of_f, norm, z, self.scale)
        return ko.Problem(objective, constraints), z

    def truth(self):
        """("optimal", value), ("infeasible", …) or ("unbounded", …) of the problem as it is stated."""
        values, V = np.linalg.eigh(self.kernel(self.X))
        keep = values > 1e-12 * values.max()
        L, sign = V[:, keep] * np.sqrt(values[keep]), -1.0 if self.maximize else 1.0
        found = []
        for choice in self.integers()[1]:
            v = cp.Variable(L.shape[1])
            z = cp.Constant(choice)
            if np.isnan(choice).any():
                free = cp.Variable()
                z = cp.hstack([choice[0], free, choice[2]])
            objective, constraints = self.state(L @ v, cp.norm(v), z, 1.0)
            if self.kind == "attributes" and choice < 0:
                continue
            problem = cp.Problem(objective, constraints)
            try:
                problem.solve(solver="CLARABEL")
            except cp.error.SolverError:
                return "unknown", np.nan
            if problem.status == "unbounded":
                return "unbounded", np.nan
            if problem.status in ("optimal", "optimal_inaccurate"):
                found.append(sign * problem.value)
            elif problem.status != "infeasible":
                return "unknown", np.nan
        return ("optimal", sign * self.size * min(found)) if found else ("infeasible", np.nan)

    def __str__(self):
        return (
            f"seed {self.seed}, {self.kind}, {self.loss}, {self.penalty}, N = {len(self.y)}, {self.kernel!r}, "
            f"scale {self.scale:g}, {'θ' if self.of_theta else 'f'} in {self.unit:g}, "
            f"{'max' if self.maximize else 'min'}, constant {self.constant}, {self.solver}"
        )


class _Squared:
    """unit·‖θ‖ of which only the square is asked for: the library wants ko.sum_squares."""

    def __init__(self, theta, unit):
        self.theta, self.unit = theta, unit

    def __pow__(self, two):
        return self.unit**2 * ko.sum_squares(self.theta)


def wrong(case: Case) -> tuple[str, str | None]:
    """(status, what is wrong with it or None)."""
    truth, best = case.truth()
    problem, z = case.problem()
    problem.solve(solver=case.solver, time_limit=120)
    status, value, found = str(problem.status), problem.value, problem.certificate
    sign = -1.0 if case.maximize else 1.0
    size = TOL * case.size * (float(np.abs(case.y).sum()) + abs(case.constant) + 1.0)
    if truth == "unknown":
        return status, None
    if truth != "optimal":
        return status, None if status in (truth, "user_limit", "optimal_inaccurate") else f"the problem is {truth}"
    if value is None or not np.isfinite(value):
        return status, f"no answer; the optimum is {best}"
    if sign * (value - best) < -size:
        return status, f"{value} is better than the optimum {best}"
    if status == "optimal" and abs(value - best) > size:
        return status, f"optimal at {value}, {value - best:.1e} off"
    violated = max((float(np.max(c.violation())) for c in problem.constraints), default=0.0)
    if violated > 1e-6 * max(case.scale, 1.0 if case.scale >= 1 else 0.0):
        return status, f"a constraint is violated by {violated:.1e}"
    whole = z.value[[0, 2]] if case.kind == "mixed" else z.value
    if status == "optimal" and np.any(whole != np.round(whole)):
        return status, f"not integers: {z.value}"
    if abs(problem.objective.value - value) > size:
        return status, f"the value {value} is not that of the point, {problem.objective.value}"
    if found is not None and not found.lower - size <= best <= found.upper + size:
        return status, f"{found}; the optimum is {best}"
    if status != "optimal":
        return status, f"undecided: {value}, {found}; the optimum is {best}"
    return status, None


def _one(seed):
    warnings.simplefilter("ignore")
    case = Case(seed)
    try:
        return (case, *wrong(case))
    except Exception as error:  # a bug is a disagreement, too
        return case, "crash", f"{type(error).__name__}: {error}"


def main(count, first=0, jobs=2):
    statuses, undecided, bad = Counter(), 0, 0
    with ProcessPoolExecutor(jobs) as pool:
        for case, status, said in pool.map(_one, range(first, first + count), chunksize=4):
            statuses[status] += 1
            if said is not None:
                undecided += said.startswith("undecided")
                bad += not said.startswith("undecided")
                print(f"{case}\n    {status}: {said}", flush=True)
    print(dict(statuses), f"{undecided} undecided, {bad} wrong in {count} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    told = parser.parse_args()
    raise SystemExit(main(told.count, told.first, told.jobs))
