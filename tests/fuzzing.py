"""Seeded random problems in random units, each with its twin in an explicit θ and in units of about 1.

`python tests/fuzzing.py 10000` draws as many and prints counts by solver and status, and every disagreement.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from stating import InFeatures, InKernel, Statement, tight

import kernelopt as ko
from kernelopt import losses
from kernelopt.solvers.own import ENGINES

INSTALLED = cp.installed_solvers()
# Loss, its degree of homogeneity in (y, f): f(sy, sf) = sᵖ f(y, f), and labels or not. Thresholds scale with s.
LOSSES = {
    "squared error": (lambda y, f, s: losses.squared_error(y, f), 2, False),
    "absolute error": (lambda y, f, s: losses.absolute_error(y, f), 1, False),
    "huber": (lambda y, f, s: losses.huber(y, f, 0.4 * s), 2, False),
    "pinball": (lambda y, f, s: losses.pinball(y, f, 0.3), 1, False),
    "epsilon insensitive": (lambda y, f, s: losses.epsilon_insensitive(y, f, 0.15 * s), 1, False),
    "asymmetric": (lambda y, f, s: cp.maximum(2 * cp.pos(f - y), 0.5 * cp.pos(y - f)), 1, False),
    "hinge": (lambda y, f, s: losses.hinge(y, f), 0, True),
    "squared hinge": (lambda y, f, s: losses.squared_hinge(y, f), 0, True),
    "logistic": (lambda y, f, s: losses.log_loss(y, f), 0, True),
    "exponential": (lambda y, f, s: cp.exp(-cp.multiply(y, f)), 0, True),
    "power": (lambda y, f, s: cp.power(cp.abs(f - y), 1.5), 1.5, False),
    "poisson": (lambda y, f, s: losses.poisson(np.round(np.abs(2 * y)), f), 0, True),
}
PENALTIES = ["squared", "unsquared", "ball", "squared and ball", "none"]
KINDS = ["plain"] * 8 + ["infeasible", "hard margin", "unbounded", "interpolation"]


@dataclass
class Units:
    """Targets × s, kernel × c (with penalties to match), objective × a, plus a constant."""

    targets: float = 1.0
    kernel: float = 1.0
    objective: float = 1.0
    constant: float = 0.0


@dataclass
class Case:
    """One random problem; `build` states it in a language and units."""

    seed: int
    units: Units = field(default_factory=Units)
    options: dict = field(default_factory=dict)
    restricted: bool = False

    def __post_init__(self):
        rng = self.rng = np.random.default_rng(self.seed)
        self.columns = int(rng.integers(1, 4))
        self.kernel = [
            ko.kernels.Linear(),
            ko.kernels.Polynomial(degree=int(rng.integers(2, 4)), offset=float(rng.uniform(0.2, 2))),
            ko.kernels.Linear() + 0.5 * ko.kernels.Polynomial(degree=2),
        ][rng.integers(3)]
        n = int(rng.integers(1, 25))
        X = rng.uniform(-1, 1, size=(n, self.columns))
        self.X = X[rng.integers(n, size=n)] if rng.random() < 0.4 else X
        self.loss = str(rng.choice(list(LOSSES)))
        self.degree, labels = LOSSES[self.loss][1:]
        y = rng.normal(size=n)
        self.y = np.where(y > 0, 1.0, -1.0) if labels and self.loss != "poisson" else y
        self.weights = rng.uniform(0, 2, size=n) * (rng.random(n) > 0.1)
        self.grid = rng.uniform(-1, 1, size=(int(rng.integers(2, 5)), self.columns))
        self.strength = float(10 ** rng.uniform(-3, 1))
        self.penalty = str(rng.choice(PENALTIES, p=[0.4, 0.2, 0.15, 0.15, 0.1]))
        self.kind = str(rng.choice(KINDS))
        self.intercept, self.negate = rng.random(2) < 0.5
        self.bound, self.slope, self.mean, self.box = rng.random(4) < 0.2
        s = 10.0 ** rng.integers(-8, 6) if not labels else 1.0
        c = 10.0 ** rng.integers(-16, 17) if rng.random() < 0.5 else 1.0
        a = 10.0 ** rng.integers(-8, 9) if rng.random() < 0.5 else 1.0
        self.units = Units(s, c, a, float(rng.choice([0.0, -15.1, 1e6])) * a * s**self.degree)
        solver = str(rng.choice(["default", "CLARABEL", "ECOS", "SCS", "OSQP"], p=[0.6, 0.15, 0.1, 0.05, 0.1]))
        if solver in ("ECOS", "OSQP"):  # our own by name, half of the time
            solver = str(rng.choice([solver, *ENGINES]))
        self.options = {} if solver == "default" or solver not in (*INSTALLED, *ENGINES) else {"solver": solver}
        if rng.random() < 0.2:
            self.options |= {"max_rank": int(rng.integers(1, 4))} if rng.random() < 0.5 else {"rank_tol": 1e-2}
            self.restricted = True
        # Factors that begin with a column or two and grow, as those of many rows do; B as one array or in blocks.
        self.grows = not self.restricted and rng.random() < 0.3
        if self.grows:
            self.options |= {"factorization": "streamed", "model": str(rng.choice(["expanded", "compact"]))}
            if rng.random() < 0.3:
                self.options["dtype"] = "float32"

    def build(self, language, units):
        """The statement in given units; its optimum is `value(v, units)` for the optimum v in units of 1."""
        s, c, a = units.targets, units.kernel, units.objective
        theta, b = language.theta(c * self.kernel), cp.Variable()
        f = theta(self.X)
        f = f + b if self.intercept else f
        out = a * s**self.degree
        loss = self.weights @ LOSSES[self.loss][0](s * self.y, f, s) * a
        objective, constraints = loss, []
        if self.kind == "unbounded":
            objective = out / s * cp.sum(f - s * self.y)
        if self.kind in ("hard margin", "interpolation"):
            signs = np.where(self.y > 0, 1.0, -1.0)
            objective = cp.Constant(0.0)
            constraints.append(f == s * self.y if self.kind == "interpolation" else cp.multiply(signs, f) >= s)
        if self.kind == "infeasible":
            constraints += [theta(self.grid[:1]) >= s, theta(self.grid[:1]) <= 0.5 * s]
        if "squared" in self.penalty.split() and self.kind != "unbounded":
            objective = objective + (out * self.strength * c / s**2) * language.sum_squares(theta)
        if self.penalty == "unsquared" and self.kind != "unbounded":
            objective = objective + (out * self.strength * c**0.5 / s) * language.norm(theta)
        if "ball" in self.penalty and self.kind != "unbounded":
            constraints.append(language.norm(theta) <= 1.5 * s / c**0.5)
        if self.bound:
            constraints += [theta(self.grid) <= 0.3 * s, theta(self.X) >= -2 * s]
        if self.slope:
            constraints.append(cp.diff(theta(self.grid)) >= -0.1 * s)
        if self.mean:
            constraints.append(cp.sum(theta(self.grid)) == 0)
        if self.box and self.intercept:
            constraints += [b <= s, b >= -s]
        objective = objective + units.constant
        goal = cp.Maximize(-objective) if self.negate else cp.Minimize(objective)
        return Statement(goal, constraints, [theta], (b,))

    def value(self, optimum, units):
        """The optimum in other units, for a minimized optimum in units of 1."""
        value = optimum * units.objective * units.targets**self.degree + units.constant
        return -value if self.negate else value

    def __str__(self):
        parts = [f"seed {self.seed}", self.kind, self.loss, self.penalty, repr(self.kernel), f"N={len(self.X)}"]
        return ", ".join([*parts, str(self.units), str(self.options)])


def reference(case):
    """(status, lowest, highest) of the minimized optimum in explicit θ and units of 1, as two solvers agree on it."""
    said = case.build(InFeatures(case.columns), Units())
    problem = cp.Problem(said.objective, said.constraints)
    found, claims = [], Counter()
    for solver in ("CLARABEL", "ECOS", "SCS"):
        for tol in (1e-11, 1e-9):
            options = {
                "CLARABEL": tight(tol),
                "ECOS": {"abstol": tol, "reltol": tol, "feastol": tol},
                "SCS": {"eps_abs": tol, "eps_rel": tol, "max_iters": 20_000},
            }[solver]
            try:
                problem.solve(solver=solver, **options)
            except (cp.error.SolverError, ValueError):
                continue
            claims[problem.status] += 1
            if problem.status == "optimal" and all(np.max(c.violation()) < 1e-6 for c in said.constraints):
                found.append(-problem.value if case.negate else problem.value)
                break
            if problem.status in ("infeasible", "unbounded"):
                break
        if len(found) == 2 or max(claims["infeasible"], claims["unbounded"]) == 2:
            break
    if len(found) == 2 and abs(found[0] - found[1]) <= 1e-6 * max(1.0, abs(found[0])):
        return "optimal", min(found), max(found)
    certain = [s for s in ("infeasible", "unbounded") if claims[s] >= 2 and not found]
    return certain[0] if certain else "unknown", np.nan, np.nan


@contextmanager
def few_columns():
    """Factors start with a column or two, however few the rows."""
    small = {"MANY": 0, "FEW": 0, "FIRST": 0.5, "LEAST": 1}
    known = {name: getattr(ko.ranks, name) for name in small}
    try:
        for name, value in small.items():
            setattr(ko.ranks, name, value)
        yield
    finally:
        for name, value in known.items():
            setattr(ko.ranks, name, value)


def verdict(case):
    """(solver, status, truth, disagreement or None) of one case; the truth is `reference`'s word, "" if not asked."""
    said = case.build(InKernel(), case.units)
    problem = ko.Problem(said.objective, said.constraints)
    options = dict(case.options)
    try:
        with few_columns() if case.grows else nullcontext():
            problem.solve(**options)
    except ko.errors.SolverError as error:
        if ("solver" in options and "Solvers that take" in str(error)) or "Leave out backend and dtype" in str(error):
            return options.get("solver", "default"), "refused", "", None
        return options.get("solver", "default"), "error", "", f"{type(error).__name__}: {error}"
    name, status, (truth, lowest, highest) = options.get("solver", "default"), str(problem.status), reference(case)
    return name, status, truth, disagreement(case, problem, truth, lowest, highest)


def disagreement(case, problem, truth, lowest, highest):
    """What is wrong with an answer, or None."""
    status, found = str(problem.status), problem.certificate
    if truth == "unknown":
        return None
    if truth != "optimal":
        if (truth == "unbounded" and status == "infeasible") or (truth == "infeasible" and status == "unbounded"):
            return f"{status}, but {truth}"
        if status == "optimal":
            return f"{status} at {problem.value}, but {truth}"
        sure = found is not None and found.scope == "full kernel" and not found.assumptions
        reached = found.absolute_gap if sure else np.inf
        return f"{status} with the enclosure {found}, but {truth}" if np.isfinite(reached) else None
    if status in ("infeasible", "unbounded"):
        return f"{status}, but the optimum is {case.value(lowest, case.units)}"
    if found is None:
        return None
    low, high = sorted((case.value(lowest, case.units), case.value(highest, case.units)))
    unit = case.units.objective * case.units.targets**case.degree
    slack = 1e-8 * unit * max(1.0, abs(lowest)) + 4e-16 * abs(case.units.constant) + found.rounding
    if found.scope != "full kernel":
        return f"optimal with scope {found.scope}" if status == "optimal" else None
    if found.lower > high + slack or found.upper < low - slack:
        return f"{status}: the optimum {low} … {high} is not in [{found.lower}, {found.upper}] (slack {slack})"
    if status == "optimal":
        reached = found.lower if problem.objective.NAME == "maximize" else found.upper
        allowed = max(found.floor, 1e-6 * abs((found.at_zero or 0.0) - reached)) + slack
        if not low - allowed <= problem.value <= high + allowed:
            return f"optimal at {problem.value}, but the optimum is {low} … {high}"
    return None


def _one(seed):
    start = time.perf_counter()
    try:
        return seed, *verdict(Case(seed)), time.perf_counter() - start
    except Exception as error:  # a bug is a disagreement too
        return seed, "any", "crash", "", f"{type(error).__name__}: {error}", time.perf_counter() - start


def main(count, first=0, jobs=2):
    """Print disagreements as they come, then counts by solver and status."""
    counts, wrong, known = Counter(), Counter(), Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for seed, solver, status, truth, problem, seconds in pool.map(_one, range(first, first + count), chunksize=8):
            counts[solver, status] += 1
            known[truth] += 1
            if problem is not None:
                wrong[solver, status] += 1
                print(f"{Case(seed)}\n    {problem}", flush=True)
            if seconds > 20:
                print(f"seed {seed} took {seconds:.0f} s", flush=True)
    print(f"\n{'solver':<22}{'status':<20}{'count':>8}{'disagreements':>15}")
    for (solver, status), number in sorted(counts.items()):
        print(f"{solver:<22}{status:<20}{number:>8}{wrong[solver, status]:>15}")
    checked = {truth: number for truth, number in sorted(known.items()) if truth not in ("", "unknown")}
    listed = ", ".join(f"{number} {truth}" for truth, number in checked.items())
    print(f"with a reference on which two solvers agree: {sum(checked.values())} ({listed})")
    print(f"without: {known['unknown']}; refused or failed: {known['']}")
    print(f"{sum(wrong.values())} disagreements in {count} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
