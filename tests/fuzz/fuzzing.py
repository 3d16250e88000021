"""Seeded random problems of many families, each with a reference that does not come from kernelopt.

Problems of `Case` have a twin in an explicit θ and in units of about 1; those of `families.py` are small and are
enclosed in 57 digits by `oracle.py`. `python tests/fuzz/fuzzing.py 10000` draws as many and prints every disagreement,
then counts by family, by solver and by status. `fuzzing.py 1 SEED --families NAME` draws one problem again.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import cvxpy as cp
import numpy as np
from exact import InfeasibleError, UnsupportedError
from families import FAMILIES
from oracle import check, optimum
from stating import InFeatures, InKernel, Statement, tight

import kernelopt as ko
from kernelopt import losses
from kernelopt.solvers.engines import ENGINES

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
    "largest of three": (lambda y, f, s: cp.maximum(f - y, f[::-1] - 2 * y, -f), 1, False),
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
    known = {name: getattr(ko.driver.policy, name) for name in small}
    try:
        for name, value in small.items():
            setattr(ko.driver.policy, name, value)
        yield
    finally:
        for name, value in known.items():
            setattr(ko.driver.policy, name, value)


def verdict(case):
    """(solver, status, truth, disagreement or None) of one case; the truth is `reference`'s word, "" if not asked."""
    said = case.build(InKernel(), case.units)
    problem = ko.Problem(said.objective, said.constraints)
    options = dict(case.options)
    try:
        with few_columns() if case.grows else nullcontext():
            problem.solve(**options)
    except ko.errors.KernelOptError as error:
        if refused(error, options):
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
        # Where θ = 0 is infeasible, a gap is relative to |P| without constants.
        zero = case.value(0.0, case.units) if found.at_zero is None else found.at_zero
        allowed = max(found.floor, 1e-6 * abs(zero - reached)) + slack
        if not low - allowed <= problem.value <= high + allowed:
            return f"optimal at {problem.value}, but the optimum is {low} … {high}"
    return None


# ---------------------------------------------------------------- families of cases with a twin


class HugeCase(Case):
    """Units from 1e-150 to 1e150."""

    def __post_init__(self):
        super().__post_init__()
        self.options, self.restricted, self.grows = {}, False, False
        while True:
            s = 10.0 ** self.rng.integers(-150, 151) if self.degree else 1.0
            c, a = 10.0 ** self.rng.integers(-150, 151, size=2)
            logs = np.log10([s, c, a])
            products = [
                (0, 0, 1),
                (self.degree, 0, 1),
                (self.degree - 2, 1, 1),
                (self.degree - 1, 0.5, 1),
                (1, -0.5, 0),
                (self.degree, 1, 1),
                (self.degree, 0.5, 1),
            ]
            if np.abs(np.array(products) @ logs).max() < 280:
                break
        self.units = Units(float(s), float(c), float(a), 0.0)


class GrowingCase(Case):
    """Factors that begin with a column or two, in double and in single precision."""

    def __post_init__(self):
        super().__post_init__()
        self.restricted, self.grows = False, True
        solver = {k: v for k, v in self.options.items() if k == "solver"}
        self.options = solver | {"factorization": "streamed", "model": str(self.rng.choice(["expanded", "compact"]))}
        if self.rng.random() < 0.3:
            self.options["dtype"] = "float32"


class MatrixCase(Case):
    """Two outputs, with the Frobenius, nuclear or spectral norm."""

    def __post_init__(self):
        super().__post_init__()
        self.units, self.options, self.restricted, self.grows = Units(), {}, False, False
        self.norm_kind = ["fro", "nuc", 2][self.rng.integers(3)]
        self.in_constraint = bool(self.rng.random() < 0.4)
        self.mixture = self.rng.normal(size=2)
        self.kind = self.penalty = f"norm {self.norm_kind}"

    def build(self, language, units):
        theta = language.theta(self.kernel, outputs=2)
        f = theta(self.X) @ self.mixture
        objective = self.weights @ LOSSES[self.loss][0](self.y, f, 1.0) + 0.1 * cp.sum(cp.abs(theta(self.X)[:, 0]))
        norm, constraints = language.norm(theta, self.norm_kind), []
        if self.in_constraint:
            constraints = [norm <= 1.5]
        else:
            objective = objective + self.strength * norm
        if self.bound:
            constraints.append(theta(self.grid)[:, 0] <= 0.3)
        return Statement(cp.Maximize(-objective) if self.negate else cp.Minimize(objective), constraints, [theta])


# "twin" is the name of the problems in an explicit θ that stood here first.
CASES = {"twin": Case, "huge units": HugeCase, "growth": GrowingCase, "matrix norms": MatrixCase}
MIX = ["twin"] * 12 + [*list(CASES)[1:], *FAMILIES]


# ---------------------------------------------------------------- small problems against the oracle


@dataclass(frozen=True)
class Outcome:
    """One problem: truth is "optimal" where a reference is known, "" where the solver refused."""

    family: str
    seed: int
    shown: str
    solver: str
    status: str
    truth: str
    restricted: bool
    problem: str | None
    seconds: float = 0.0

    @property
    def undecided(self):
        """An optimum is known, no rank limit was asked for, and it ended without a verdict, not refused by name."""
        decided = ("optimal", "not_attained", "refused")
        return self.truth == "optimal" and not self.restricted and self.status not in decided


def refused(error, options):
    """Whether an error says that this solver doesn't take the problem, or that numbers are out of range."""
    said = str(error)
    by_name = "solver" in options and "Solvers that take" in said
    return by_name or "Leave out backend and dtype" in said or "units" in said


def small(family, seed):
    """The `Outcome` of a problem of `families.py`."""
    stated = FAMILIES[family](np.random.default_rng([zlib.crc32(family.encode()), seed]))
    problem, options = stated.problem, stated.options
    name, shown = options.get("solver", "default"), f"{family}, seed {seed}: {stated.shown}"
    if stated.before is not None:
        stated.before(problem)
    status, wrong, truth = "error", None, None
    try:
        with few_columns() if "dtype" in options else nullcontext():
            problem.solve(**options)
        status = str(problem.status)
    except ko.errors.KernelOptError as error:
        if refused(error, options):
            return Outcome(family, seed, shown, name, "refused", "", stated.restricted, None)
        wrong = f"{type(error).__name__}: {error}"
    if stated.bind is not None and problem.value is not None:
        stated.bind()
    try:
        read = stated.statement or problem
        truth = optimum(read, choices=stated.choices, accuracy="1e-18", precision=stated.precision)
    except InfeasibleError:
        known = "infeasible"
        wrong = wrong or (f"{status}, but infeasible" if status in ("optimal", "unbounded", "not_attained") else None)
    except UnsupportedError:
        known = "unknown"
    else:
        known = truth.word
        if wrong is None:
            wrong = "; ".join(check(problem, truth=truth, statement=read, choices=stated.choices)) or None
    return Outcome(family, seed, shown, name, status, known, stated.restricted, wrong)


def case(family, seed):
    """The `Outcome` of a problem with a twin."""
    drawn = CASES[family](seed)
    name, status, truth, wrong = verdict(drawn)
    return Outcome(family, seed, f"{family}, {drawn}", name, status, truth, drawn.restricted, wrong)


def _one(drawn):
    family, seed = drawn
    start = time.perf_counter()
    try:
        outcome = (case if family in CASES else small)(family, seed)
    except Exception as error:  # a bug is a disagreement too
        said = f"{type(error).__name__}: {error}"
        outcome = Outcome(family, seed, f"{family}, seed {seed}", "any", "crash", "", False, said)
    return replace(outcome, seconds=time.perf_counter() - start)


# ---------------------------------------------------------------- counts


def by_family(outcomes):
    """A line for each family."""
    lines = [
        f"{'family':<18}{'problems':>9}{'known':>7}{'optimal':>9}{'undecided':>11}{'share':>8}"
        f"{'no solver named':>17}{'refused':>9}{'disagreements':>15}{'s each':>8}"
    ]
    names = list(dict.fromkeys(o.family for o in outcomes))
    for name in [*sorted(names, key=list(dict.fromkeys(MIX)).index), "all"]:
        own = [o for o in outcomes if name in (o.family, "all")]
        judged = [o for o in own if o.truth == "optimal" and not o.restricted]
        undecided = sum(o.undecided for o in own)
        default = [o for o in judged if o.solver == "default"]
        of_default = sum(o.undecided for o in default) / max(len(default), 1)
        lines.append(
            f"{name:<18}{len(own):>9}{sum(o.truth not in ('', 'unknown') for o in own):>7}"
            f"{sum(o.status == 'optimal' for o in own):>9}{undecided:>11}{undecided / max(len(judged), 1):>8.1%}"
            f"{of_default:>17.1%}{sum(o.status == 'refused' for o in own):>9}"
            f"{sum(o.problem is not None for o in own):>15}{np.mean([o.seconds for o in own]):>8.2f}"
        )
    return lines


def by_solver(outcomes):
    """A line for each solver and status."""
    counts = Counter((o.solver, o.status) for o in outcomes)
    wrong = Counter((o.solver, o.status) for o in outcomes if o.problem is not None)
    lines = [f"{'solver':<22}{'status':<20}{'count':>8}{'disagreements':>15}"]
    return lines + [f"{s:<22}{t:<20}{number:>8}{wrong[s, t]:>15}" for (s, t), number in sorted(counts.items())]


def main(count, first=0, families=None, jobs=2, undecided=False):
    """Print disagreements (and what is undecided) as they come, then counts by family and by solver and status."""
    mix = families or MIX
    drawn = [(mix[number % len(mix)], number) for number in range(first, first + count)]
    outcomes = []
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in pool.map(_one, drawn, chunksize=8):
            outcomes.append(outcome)
            if outcome.problem is not None:
                print(f"{outcome.shown}\n    {outcome.status}: {outcome.problem}", flush=True)
            elif undecided and outcome.undecided:
                print(f"{outcome.shown}\n    undecided: {outcome.status} by {outcome.solver}", flush=True)
            if outcome.seconds > 20:
                print(f"{outcome.family}, seed {outcome.seed} took {outcome.seconds:.0f} s", flush=True)
    wrong = sum(o.problem is not None for o in outcomes)
    print("", *by_family(outcomes), "", *by_solver(outcomes), sep="\n")
    print(f"{wrong} disagreements in {count} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("--families", default="", help=f"some of these, by commas: {', '.join(dict.fromkeys(MIX))}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--undecided", action="store_true", help="print problems that end undecided, too")
    told = parser.parse_args()
    names = [name.strip() for name in told.families.split(",") if name]
    sys.exit(main(told.count, told.first, names, told.jobs, told.undecided))
