"""Random problems at the border with cvxpy: each of its atoms × attributes of variables × Parameters × places.

    python tests/fuzz/fuzzing_border.py 5000 [--first 0] [--atom NAME] [--jobs 2]
    python tests/fuzz/fuzzing_border.py 1 --first NUMBER --show      (one draw, with its statement, in this process)

Draw number n takes atom n of `border.atoms()`, and puts it into an objective, a constraint or a gradient's criterion.
The truth is the same problem with Bw and ‖w‖ in plain cvxpy, solved tightly; for booleans and integers each choice of
them; for a gradient, differences of such solutions. Each draw runs in a process of its own, which is forked from this
one, with limits of time and memory. A draw is

- right: the value and the enclosure agree, or both have no answer;
- refused: a KernelOptError, where plain cvxpy refuses the statement too, or where kernelopt says why;
- lost: no answer, or a wide enclosure, where the truth is known;
- wrong, bare (an exception that is no KernelOptError), died, slow: faults, with which the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import wait
from signal import SIGKILL, SIGXCPU
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from border import ATTRIBUTES, POINTS, RECIPES, WHOLE, ByHand, Draw, InKernel, K, atoms
from stating import tight

import kernelopt as ko
from kernelopt.compiler.canonical_form import rewrite  # a copy of a tree; it is tested elsewhere

FAULTS = ("wrong", "bare", "died", "slow")
SECONDS = 40  # of a processor: the slowest draws take some seconds
PATIENCE = 20 * SECONDS  # on the clock, for a process that waits for ever
BYTES = 6 << 30  # of addresses; a process with all imports has 2 GB
PLACES = ("objective", "objective", "constraint", "criterion")
SOLVERS = ("CLARABEL", "OSQP", "ECOS", "SCS", "HIGHS", "ECOS_BB")
LAMBDA = 0.4


class Outcome(NamedTuple):
    """The verdict on one draw, and a sentence."""

    number: int
    atom: str
    place: str
    verdict: str
    said: str
    seconds: float = 0.0


class Stated(NamedTuple):
    """One statement; λ is a Parameter, and so are others of `draw`."""

    objective: Any
    constraints: list[Any]
    lam: cp.Parameter
    draw: Draw
    criterion: Any


def place_of(number: int) -> str:
    return PLACES[np.random.default_rng([number, 1]).integers(len(PLACES))]


def stated(number: int, atom: str, language: type, levels: list[float]) -> Stated:
    """Draw `number` in a language; by hand it finds `levels`, which the other language takes."""
    place, rng = place_of(number), np.random.default_rng([number, 2])
    outputs = K if rng.random() < 0.3 else None
    X = rng.normal(size=(POINTS, 2))
    if rng.random() < 0.2:
        X[1] = X[0]
    kernel = [ko.kernels.Gaussian(sigma=1.0), ko.kernels.Laplacian(sigma=2.0), ko.kernels.Polynomial(degree=2)][
        rng.integers(3)
    ]
    attribute = list(ATTRIBUTES)[rng.integers(len(ATTRIBUTES))]
    if place == "criterion" and attribute in WHOLE:
        attribute = "bounds"
    d = Draw(language(kernel, X, outputs), rng, attribute, with_norms=bool(rng.random() < 0.15))
    lam = cp.Parameter(pos=True, value=LAMBDA, name="lam")
    y = np.round(rng.normal(size=POINTS), 2)
    f = d.language.predictions(np.arange(POINTS))
    f = f if f.ndim == 1 else f[:, 0] + 0.5 * f[:, 1]
    residual = y - f - d.number() * d.of_v(POINTS)
    smooth = place == "criterion"
    loss = [cp.sum_squares, cp.norm1, lambda r: cp.sum(cp.huber(r, 0.5)), lambda r: cp.sum(cp.logistic(r))][
        0 if smooth else rng.integers(4)
    ](residual)
    penalty = "squared" if smooth else d.one_of(["squared", "squared", "norm", "ball"])
    objective = loss + (cp.sum_squares(cp.imag(d.v)) if d.v.is_imag() else cp.sum_squares(d.v - 0.3))
    if penalty != "ball":
        objective = objective + lam * (d.language.sum_squares() if penalty == "squared" else d.language.norm())
    if penalty == "ball":
        d.constraints.append(d.language.norm() <= 1 + lam)
    term = RECIPES[atom](d)
    if d.chance(0.15) and term.is_convex():
        term = d.one_of(
            [lambda e: cp.pos(e - 0.1), lambda e: cp.exp(0.2 * e), cp.square, lambda e: cp.maximum(e, 0.3)]
        )(term)
    if d.chance(0.1):
        term = term * d.parameter((), "pos")
    if term.is_complex():
        term = cp.real(term)
    criterion = None
    if place == "criterion":
        criterion = term
    elif place == "constraint":
        level = d.chance(0.5)  # one bound of the sum, or of each entry
        left = cp.sum(term) if level else term
        if not levels:
            levels.append(_level(left, d))
        concave = term.is_concave() and not (term.is_convex() and d.chance(0.5))
        d.constraints.append(left >= levels[0] - 0.1 if concave else left <= levels[0] + 0.1)
    else:
        scaled = d.number(0.1, 1) * cp.sum(term)
        objective = objective - scaled if term.is_concave() and not term.is_convex() else objective + scaled
    goal = cp.Maximize(-objective) if d.chance(0.4) else cp.Minimize(objective)
    return Stated(goal, d.constraints, lam, d, criterion)


def _level(expression: Any, d: Draw) -> float:
    """The largest entry at θ = 0 and small variables, 1 where it has none."""
    for x in d.variables:
        x.save_value(0.5 * np.ones(x.shape) if x.is_pos() else np.zeros(x.shape))
    if isinstance(d.language, ByHand):
        d.language.w.save_value(np.zeros(d.language.w.shape))
    try:
        value = np.max(np.real(np.asarray(expression.value, dtype=complex)))
    except Exception:  # outside of its domain
        return 1.0
    return round(float(value), 3) if np.isfinite(value) else 1.0


# ---------------------------------------------------------------- truth


class Truth(NamedTuple):
    """optimal, infeasible, unbounded or unknown, and the value."""

    word: str
    value: float = np.nan


def truth(said: Stated, solver: str = "CLARABEL") -> Truth:
    """The optimum by hand. Booleans and integers take each of their values in turn."""
    whole = [
        x
        for x in cp.Problem(said.objective, said.constraints).variables()
        if x.attributes["boolean"] or x.attributes["integer"]
    ]
    if not whole:
        return _solved(said.objective, said.constraints, solver)
    entries = [(x, tuple(map(int, at))) for x in whole for at in zip(*(x.boolean_idx or x.integer_idx), strict=True)]
    choices = [[0, 1] if x.attributes["boolean"] else [-1, 0, 1] for x, _ in entries]
    found = [_fixed(said, list(zip(entries, values, strict=True)), solver) for values in itertools.product(*choices)]
    values = [t.value for t in found if t.word == "optimal"]
    for word in ("unknown", "unbounded"):
        if any(t.word == word for t in found):
            return Truth(word)
    if not values:
        return Truth("infeasible")
    return Truth("optimal", max(values) if isinstance(said.objective, cp.Maximize) else min(values))


def _fixed(said: Stated, pinned: list[Any], solver: str) -> Truth:
    """The optimum with entries of variables fixed: by constants, or variables of no integers with rows for them."""
    replaced: dict[int, Any] = {}
    rows = []
    for x in {x.id: x for (x, _), _ in pinned}.values():
        mine = {at if x.ndim else (): value for (y, at), value in pinned if y is x}
        if len(mine) == x.size:
            value = np.zeros(x.shape)
            for at, number in mine.items():
                value[at] = number
            replaced[id(x)] = cp.Constant(value)
            continue
        given = {k: v for k, v in _given(x).items() if k not in ("boolean", "integer")}
        replaced[id(x)] = cp.Variable(x.shape, **given)
        rows += [replaced[id(x)][at] == value for at, value in mine.items()]
    problem = rewrite(cp.Problem(said.objective, said.constraints), replaced)
    return _solved(problem.objective, [*problem.constraints, *rows], solver)


def _given(x: cp.Variable) -> dict[str, Any]:
    """The attributes that a variable was made with."""
    return {k: v for k, v in x.attributes.items() if v is not None and v is not False}


def _solved(objective: Any, constraints: list[Any], solver: str) -> Truth:
    problem = rewrite(cp.Problem(objective, constraints), {})  # cvxpy's value of some atoms is not what it solves
    for tol in (1e-10, 1e-8):
        options = {
            "CLARABEL": tight(tol),
            "SCS": {"eps_abs": tol, "eps_rel": tol, "max_iters": 50_000},
        }[solver]
        try:
            problem.solve(solver=solver, **options)
        except Exception:  # whatever cvxpy's own steps raise: there is no truth then
            continue
        value = np.nan if problem.value is None else float(problem.value)
        if problem.status in ("infeasible", "unbounded") or (problem.status == "optimal" and np.isfinite(value)):
            return Truth(problem.status, value)
    return Truth("unknown")


# ---------------------------------------------------------------- verdicts


def judged(number: int, atom: str, show: bool = False) -> Outcome:
    """The outcome of one draw."""
    place = place_of(number)

    def outcome(verdict: str, said: str) -> Outcome:
        return Outcome(number, atom, place, verdict, said)

    levels: list[float] = []
    try:
        by_hand = stated(number, atom, ByHand, levels)
        problem = cp.Problem(by_hand.objective, by_hand.constraints)
        known = None if problem.is_dcp() else Truth("no DCP")
    except Exception as error:
        known, by_hand = Truth("not built", np.nan), None
        refusal = f"{type(error).__name__}: {error}"
    try:
        ours = stated(number, atom, InKernel, levels)
    except ko.errors.KernelOptError as error:
        return outcome("refused", f"at its statement: {type(error).__name__}: {error}")
    except Exception as error:
        if known is not None and known.word == "not built":
            return outcome("refused", f"by cvxpy: {refusal}")
        return outcome("bare", f"at its statement: {type(error).__name__}: {error}")
    if show:
        print(_shown(ours))
    return (_gradient if place == "criterion" else _values)(outcome, ours, by_hand, known, number)


def _shown(said: Stated) -> str:
    lines = [str(ko.Problem(said.objective, said.constraints))]
    for x in said.draw.variables:
        lines.append(f"{x.name()} of shape {x.shape}: {_given(x)}")
    lines += [f"{p.name()} = {p.value}" for p in said.draw.parameters]
    return "\n".join([*lines, f"criterion: {said.criterion}"])


def _values(outcome: Any, ours: Stated, by_hand: Stated, known: Truth | None, number: int) -> Outcome:
    rng = np.random.default_rng([number, 3])
    options = {"solver": str(rng.choice(SOLVERS))} if rng.random() < 0.35 else {}
    try:
        problem = ko.Problem(ours.objective, ours.constraints)
        problem.solve(**options)
    except ko.errors.KernelOptError as error:
        why = "by cvxpy too" if known is not None else "named solver" if options else "cvxpy takes it"
        return outcome("refused", f"{why}: {type(error).__name__}: {error}")
    if known is not None:
        return outcome("wrong", f"{problem.status} at {problem.value}, but plain cvxpy refuses it: {known.word}")
    found = _compared(problem, by_hand, options)
    if found[0] != "right" or rng.random() > 0.3 or not ours.draw.parameters:
        return outcome(*found)
    # Other values of the Parameters.
    for one, other in zip([ours.lam, *ours.draw.parameters], [by_hand.lam, *by_hand.draw.parameters], strict=True):
        one.value = other.value = 1.3 * other.value
    try:
        problem.solve(**options)
    except ko.errors.KernelOptError as error:
        return outcome("refused", f"the second solve: {type(error).__name__}: {error}")
    verdict, said = _compared(problem, by_hand, options)
    return outcome(verdict, f"with other Parameters: {said}")


def _compared(problem: Any, by_hand: Stated, options: dict[str, Any]) -> tuple[str, str]:
    """The verdict on an answer. Where the first solver's truth contradicts it, a second one is asked."""
    known = truth(by_hand)
    verdict = _beside(problem, known, options)
    if verdict[0] == "wrong":
        other = truth(by_hand, "SCS")
        if other.word == "unknown" or _beside(problem, other, options)[0] != "wrong":
            return "right", f"two solvers of cvxpy differ: {known}, {other}"
    return verdict


def _beside(problem: Any, known: Truth, options: dict[str, Any]) -> tuple[str, str]:
    status, value, c = str(problem.status), problem.value, problem.certificate
    said = f"{status}, {value}, {c}, {options or 'default'}; by hand {known}"
    if known.word == "unknown":
        return "right", f"unknown: {said}"
    if known.word != "optimal":
        if status in ("optimal", "not_attained") or (
            c is not None and not c.assumptions and np.isfinite(c.absolute_gap)
        ):
            return "wrong", said
        return "right" if status == known.word else "lost", said
    if status in ("infeasible", "unbounded"):
        return "wrong", said
    slack = 2e-6 * max(1.0, abs(known.value))
    sure = c is not None and not c.assumptions and c.scope == "full kernel"
    if sure and not c.lower - slack <= known.value <= c.upper + slack:
        return "wrong", f"outside of the enclosure: {said}"
    if status == "optimal":
        reached = value if value is not None else np.inf
        allowed = slack + (0.0 if c is None else c.floor + 1e-6 * abs((c.at_zero or 0.0) - reached))
        return ("right" if abs(reached - known.value) <= 2 * allowed else "wrong"), said
    return "lost", said


def _gradient(outcome: Any, ours: Stated, by_hand: Stated, known: Truth | None, number: int) -> Outcome:
    """The gradient of a criterion by λ beside differences of what cvxpy finds by hand."""
    if known is not None:
        return outcome("refused", f"by cvxpy: {known.word}")
    problem = ko.Problem(ours.objective, ours.constraints)
    try:
        problem.solve(tol=1e-10)
        if not problem.status.has_point:
            return outcome("lost", f"{problem.status}")
        found = ko.gradient(problem, ours.criterion, [ours.lam])
    except ko.errors.KernelOptError as error:
        return outcome("refused", f"{type(error).__name__}: {error}")
    outcomes = []
    for h in (1e-3, 3e-4, 1e-4, 3e-5):  # a kink between two values of λ makes their difference no derivative
        outcomes.append(_beside_differences(found, ours, by_hand, h))
        if outcomes[-1][0] != "wrong":
            break
    return outcome(*outcomes[-1])


def _beside_differences(found: Any, ours: Stated, by_hand: Stated, h: float) -> tuple[str, str]:
    values, optima = [], []
    for k in (-2, -1, 0, 1, 2):
        by_hand.lam.value = LAMBDA + k * h
        if truth(by_hand).word != "optimal":
            return "right", "unknown: no truth"
        values.append(_value(by_hand.criterion))
        optima.append(float(by_hand.objective.value))
    if not np.isfinite(values).all():
        return "right", f"unknown: values by hand are {values}"
    central = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * h)
    sides = [(-3 * values[2] + 4 * values[2 + s] - values[2 + 2 * s]) / (2 * s * h) for s in (-1, 1)]
    size = max(1.0, abs(values[2]))
    said = f"{found[ours.lam]} ± {found.errors[ours.lam]}, differentiable {found.is_differentiable}"
    said = f"{said}; by hand {central}, sides {sides}, h = {h}"
    if abs(found.value - values[2]) > 1e-5 * size:
        if not found.is_differentiable and _attains(ours, optima[2]):
            return "right", f"several optima, no derivative: {said}"
        return "wrong", f"value {found.value}, by hand {values[2]}; {said}"
    if not found.is_differentiable:
        return "right", f"no derivative: {said}"
    slope = float(found[ours.lam])
    near = 1e-7 / h * max(size, abs(central)) + float(found.errors[ours.lam])
    if abs(slope - central) <= near or (
        any(abs(slope - s) <= near for s in sides) and abs(sides[0] - sides[1]) < 1e-2 * size
    ):
        return "right", said
    return "wrong", said


def _attains(ours: Stated, optimum: float) -> bool:
    """Whether our point is an optimum, too: a criterion of other variables differs between optima."""
    met = all(np.max(one.violation(), initial=0.0) <= 1e-6 for one in ours.constraints)
    return met and abs(float(ours.objective.value) - optimum) <= 1e-6 * max(1.0, abs(optimum))


def _value(criterion: Any) -> float:
    value = criterion.value
    return np.nan if value is None else float(np.sum(np.real(value)))


# ---------------------------------------------------------------- processes


def _child(pipe: Any, number: int, atom: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    began = time.process_time()
    try:
        outcome = judged(number, atom)
    except BaseException:
        outcome = Outcome(number, atom, place_of(number), "bare", traceback.format_exc(limit=-6))
    pipe.send(outcome._replace(seconds=time.process_time() - began))
    pipe.close()


def drawn(numbers: list[tuple[int, str]], jobs: int) -> Any:
    """The outcomes of draws, as they end."""
    context, waiting = multiprocessing.get_context("fork"), list(reversed(numbers))
    running: dict[Any, tuple[Any, Any, int, str]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number, atom = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(theirs, number, atom))
            process.start()
            theirs.close()
            running[ours] = process, time.monotonic(), number, atom
        ended = wait(list(running), timeout=5)  # a pipe is at its end, too, where its process has died
        for pipe, (process, began, number, atom) in list(running.items()):
            if pipe not in ended:
                if time.monotonic() - began > PATIENCE:
                    process.kill()
                continue
            del running[pipe]
            try:
                yield pipe.recv()
            except EOFError:
                process.join()
                verdict = "slow" if -process.exitcode in (SIGXCPU, SIGKILL) else "died"
                yield Outcome(number, atom, place_of(number), verdict, f"exit code {process.exitcode}", SECONDS)
            process.join()
            pipe.close()


def main(count: int, first: int = 0, atom: str = "", jobs: int = 2, listed: tuple[str, ...] = FAULTS) -> int:
    """Print faults as they come, and counts by atom and verdict. The exit status."""
    names = atoms()
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        print(f"cvxpy has atoms without a recipe in tests/fuzz/border.py: {', '.join(unknown)}")
        return 1
    numbers = [(n, atom or names[n % len(names)]) for n in range(first, first + count)]
    outcomes = []
    for one in drawn(numbers, jobs):
        outcomes.append(one)
        if one.verdict in listed:
            print(f"{one.number} {one.atom}, {one.place}: {one.verdict}\n    {one.said}", flush=True)
    verdicts = ("right", "refused", "lost", *FAULTS)
    print(f"\n{'atom':<22}", *(f"{v:>8}" for v in verdicts), f"{'seconds':>9}")
    for name in [*sorted({o.atom for o in outcomes}), "all"]:
        own = [o for o in outcomes if name in (o.atom, "all")]
        counts = Counter(o.verdict for o in own)
        print(f"{name:<22}", *(f"{counts[v]:>8}" for v in verdicts), f"{np.mean([o.seconds for o in own]):>9.2f}")
    return int(any(o.verdict in FAULTS for o in outcomes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=153)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--atom", default="", help="this atom in each draw")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", default=",".join(FAULTS), help="verdicts whose draws are printed, by commas")
    parser.add_argument(
        "--show", action="store_true", help="run the first draw in this process, and print its statement"
    )
    told = parser.parse_args()
    if told.show:
        print(*judged(told.first, told.atom or atoms()[told.first % len(atoms())], show=True), sep="\n")
        sys.exit()
    sys.exit(main(told.count, told.first, told.atom, told.jobs, tuple(told.list.split(","))))
