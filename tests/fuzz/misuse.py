"""Seeded wrong calls of everything public: an error may be raised that says what was expected, and what was got.

Names are found in the public modules, so that new ones are covered. A call has wrong values for one argument among
right ones, for several, or for all; what it returns is used (a kernel is evaluated, a problem is solved), since some
arguments are checked only then. A finding is

    foreign     an exception that is neither KernelOptError nor TypeError nor ValueError
    bare        a TypeError or ValueError that no check raised: it comes from the inside
    unexplained an error of ours without "expected … got"
    hang        a call of more than LIMIT seconds
    warning     a warning of numpy
    accepted    a value that is never right, and no error

`python tests/fuzz/misuse.py 20000` draws as many calls and prints each kind of finding once; `misuse.py 1 SEED` draws
one again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import inspect
import io
import itertools
import linecache
import operator
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import partial

import cvxpy as cp
import numpy as np
from wrong_values import HERE as VALUES
from wrong_values import NEVER, OBJECTS, RIGHT, TAKES, UNUSED, WRONG, World

import kernelopt as ko
from kernelopt.errors import (
    DCPError,
    KernelOptError,
    MemoryLimitError,
    MissingPackageError,
    ParameterError,
    RepresenterError,
    SolverError,
)

LIMIT = 5.0  # seconds of a call, of this process's work
MODULES = ("", "kernels", "losses", "estimators", "feature_space", "plots", "testing")
# Operators as expressions, so that Python tries both operands.
OPERATORS = {
    "__call__": lambda a, *args, **named: a(*args, **named), "__getitem__": operator.getitem, "__add__": operator.add,
    "__radd__": lambda a, b: b + a, "__sub__": operator.sub, "__rsub__": lambda a, b: b - a, "__mul__": operator.mul,
    "__rmul__": lambda a, b: b * a, "__matmul__": operator.matmul, "__rmatmul__": lambda a, b: b @ a,
    "__truediv__": operator.truediv, "__pow__": operator.pow, "__le__": operator.le, "__ge__": operator.ge,
}  # fmt: skip
# Methods without an underscore that other modules call; no page tells of them.
INTERNAL = {
    "check_same_space", "at_present", "rows", "fingerprint", "canonical_form", "Everywhere.at", "Everywhere.outwards",
    "FactorCache.factor", "SmoothLoss.value", "SmoothLoss.gradient", "SmoothLoss.hessian", "SmoothLoss.evaluate",
    "SmoothLoss.check", "SmoothLoss.inside", "Certificate.shifted", "Everywhere.grid", "Everywhere.margin",
}  # fmt: skip
# What scikit-learn's classes and tuples bring along.
INHERITED = {
    "count", "index", "fit_predict", "get_metadata_routing", "set_output", "set_fit_request", "set_score_request",
    "get_feature_names_out", "get_params", "set_predict_request", "set_transform_request",
}  # fmt: skip


# Classes that functions return, and nobody makes.
RETURNED = {"kernels.Derivation", "feature_space.SVD", "feature_space.Neighbors", "feature_space.MatrixChecks"}


@dataclass
class Entry:
    """Something public that can be called: `call(world)` is it, `owner` the class that has it, if any."""

    name: str
    call: object
    signature: inspect.Signature | None
    used: bool = True  # whether what it returns is used

    def right(self, parameter, world):
        """A right value for a parameter."""
        parts = [p for p in re.split(r"[.\s,]+", self.name) if p]
        whole = ".".join(parts)
        keys = [f"{whole}.{parameter}", *(f"{part}.{parameter}" for part in reversed(parts)), parameter]
        maker = next((RIGHT[k] for k in keys if k in RIGHT), None)
        return None if maker is None else maker(world)


def signed(thing):
    try:
        return inspect.signature(thing)
    except (TypeError, ValueError):
        return None


def public_names():
    """Classes and functions of the public modules, by name."""
    for module in MODULES:
        room = importlib.import_module(f"kernelopt.{module}" if module else "kernelopt")
        here = [n for n, t in vars(room).items() if n[0] != "_" and getattr(t, "__module__", "") == room.__name__]
        for name in getattr(room, "__all__", here):
            thing = getattr(room, name)
            if callable(thing) and not isinstance(thing, types.ModuleType):
                yield f"{module}.{name}" if module else name, thing


def of_modules():
    """Functions, constructors and class methods. An estimator is made and fitted."""
    seen = set()
    for name, thing in public_names():
        if name in RETURNED or thing in seen or inspect.isabstract(thing):
            continue
        seen.add(thing)
        if hasattr(thing, "fit"):
            yield Entry(f"{name} fitted", lambda w, kind=thing: partial(w.fitted, kind), signed(thing))
        else:
            yield Entry(name, lambda w, way=thing: way, signed(thing))
        for method, way in inspect.getmembers(thing, inspect.ismethod) if inspect.isclass(thing) else ():
            if not method.startswith("_") and method not in INHERITED:
                yield Entry(f"{name}.{method}", lambda w, way=way: way, signed(way))


def of_objects():
    """Methods and operators of objects, and attributes that can be set."""
    value = inspect.Signature([inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    for owner, make in OBJECTS.items():
        kind = type(make(World()))
        for name, thing in inspect.getmembers(kind):
            if {name, f"{kind.__name__}.{name}"} & (INHERITED | INTERNAL):
                continue
            own = signed(thing)
            if own is not None and isinstance(inspect.getattr_static(kind, name), types.FunctionType):
                own = own.replace(parameters=list(own.parameters.values())[1:])
            full = f"{owner}.{name}"
            if name in OPERATORS and getattr(object, name, None) is not thing:
                yield Entry(full, lambda w, m=make, n=name: partial(OPERATORS[n], m(w)), own)
            elif name.startswith("_"):
                continue
            elif isinstance(thing, property) and thing.fset is not None:
                yield Entry(full, lambda w, m=make, n=name: partial(setattr, m(w), n), value)
            elif callable(thing) and not inspect.isclass(thing):
                yield Entry(full, lambda w, m=make, n=name: getattr(m(w), n), own)


def entries():
    """Everything public that can be called, operators and attributes that can be set included."""
    return [*of_modules(), *of_objects()]


# ---------------------------------------------------------------- drawing calls


@dataclass
class Call:
    """One wrong call; `text` shows it, `wrong` the labels of the wrong values by parameter."""

    entry: Entry
    args: list
    named: dict
    wrong: dict

    def __str__(self):
        return f"{self.entry.name}({', '.join(f'{p}={label}' for p, label in self.wrong.items())})"

    @property
    def parameters(self):
        return {} if self.entry.signature is None else self.entry.signature.parameters


def draw(rng, world, found):
    """A call of a random entry."""
    entry = found[rng.integers(len(found))]
    labels = list(WRONG)
    one = lambda: labels[rng.integers(len(labels))]
    parameters = [] if entry.signature is None else list(entry.signature.parameters.values())
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    kind = rng.choice(["one", "all", "two", "count"], p=[0.65, 0.2, 0.1, 0.05])
    if kind == "count" and entry.name.split(".")[-1] in set(OPERATORS) - {"__call__"}:
        kind = "one"  # Python sees to their number
    wrong, args, named = {}, [], {}
    if kind == "count" or not plain:
        wrong = {str(i): one() for i in range(int(rng.integers(0, len(plain) + 2)))}
        if rng.random() < 0.3:
            wrong["not_an_argument"] = one()
        args = [WRONG[label](world) for name, label in wrong.items() if name != "not_an_argument"]
        named = {"not_an_argument": WRONG[wrong["not_an_argument"]](world)} if "not_an_argument" in wrong else {}
        return Call(entry, args, named, wrong)
    required = [p.name for p in plain if p.default is p.empty]
    chosen = {
        "one": [plain[rng.integers(len(plain))].name],
        "two": list({plain[i].name for i in rng.integers(len(plain), size=2)}),
        "all": required or [plain[0].name],
    }[str(kind)]
    for p in plain:
        if p.name in chosen:
            wrong[p.name] = one()
            value = WRONG[wrong[p.name]](world)
        elif p.name in required:
            value = entry.right(p.name, world)
        else:
            continue
        if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and len(args) < plain.index(p)):
            named[p.name] = value
        else:
            args.append(value)
    return Call(entry, args, named, wrong)


def use(result, world):
    """What a user would do next."""
    repr(result)
    if isinstance(result, ko.kernels.Kernel):
        repr(result), hash(result), result.is_psd
        points = {"vectors": world.X, "any objects": world.X, "strings": ["ab", "bc"], "histograms": abs(world.X)}
        points["row indices"] = np.arange(getattr(result.domain, "size", 0))
        points |= {"labels": [0, 1, 0], "vectors with missing values": [[0.5, np.nan], [1.0, 2.0]]}
        columns = getattr(result.domain, "names", ())
        points["rows of a data frame"] = [dict.fromkeys(columns, value) for value in (0.5, 1.0)]
        if result.domain.name in points:
            result(points[result.domain.name])
    elif isinstance(result, ko.Problem):
        result.solve()
    elif isinstance(result, ko.FeatureMatrix):
        result.diag()
    elif isinstance(result, ko.Function | ko.Theta):
        result(world.X)
    elif isinstance(result, cp.Expression):
        result.value, result.curvature
    elif isinstance(result, type) and hasattr(result, "fit"):
        result().fit(world.X, world.y)


# ---------------------------------------------------------------- judging


class Hang(BaseException):
    """A call that takes too long."""


@contextlib.contextmanager
def limited(seconds):
    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


SIGNATURE = re.compile(
    r"missing \d+ required|unexpected keyword|takes .* (positional )?arguments?|multiple values|positional-only|"
    r"too many positional|takes no|has no parameter|unsupported operand|bad operand|"
    r"object is not (callable|subscriptable)|expected \d+ arguments"
)
OWN = os.path.dirname(ko.__file__)
HERE = os.path.abspath(__file__)
# "Expected … ; got …" or "Expected …; all weights are zero".
WORDS = re.compile(r"[Ee]xpect.*(got|missing|;)|got .*[Ee]xpect", re.DOTALL)
# What Python says where classes and kernels of the pool are called as functions.
CALLED = re.compile(
    r"(object|int|Gaussian(\.__init__)?|(Kernel|ThetaExpression)\.__call__)\(\) (takes|missing|argument)|only 0-dim"
)
# Errors of other forms: lists of uses of θ, refusals of problems, and what is not installed.
FREE = (RepresenterError, DCPError, ParameterError, SolverError, MissingPackageError, MemoryLimitError)


def finding(error, called=""):
    """What is wrong with an error, or None."""
    frames = traceback.extract_tb(error.__traceback__)
    last, text = frames[-1], str(error)
    reflected = called.startswith("__r")
    if isinstance(error, KernelOptError):
        return None if isinstance(error, FREE) or WORDS.search(text) else "unexplained"
    if last.filename == VALUES and last.name in ("__array__", "too_few", "gives_none", "gives_text", "<lambda>"):
        return None  # what a user's own object or function raises
    if isinstance(error, OSError) and called in ("load", "save"):
        return None  # what the operating system says of files
    if reflected and last.filename not in (HERE, VALUES) and not last.filename.startswith(OWN):
        return None  # the operator of the other operand, which Python tries first
    own = any(f.filename.startswith(OWN) for f in frames)
    if not own and any("sklearn" in f.filename for f in frames):
        return None  # from methods that scikit-learn's classes bring along, such as score
    if not isinstance(error, (TypeError, ValueError)):
        return "foreign"
    inner = [f for f in frames if f.filename not in (HERE, VALUES)]
    if CALLED.match(text):
        return None  # a class or kernel of the pool, called as a function
    made = r"[A-Z]\w+" if called.startswith("from_") else re.escape(called)  # keywords go on to the constructor
    named = rf"^(World\..*|([\w<>]+\.)*(too_few|{made})(\.__init__)?)\(\)"
    if SIGNATURE.search(text) and (not inner or re.match(named, text)):
        return None  # the signature of what was called, or of the user's own function
    outside = itertools.takewhile(lambda f: not f.filename.startswith(OWN), reversed(frames))
    if any("sklearn" in f.filename for f in outside):
        return None  # scikit-learn's own checks of data
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    if last.filename.startswith(OWN) and line.startswith("raise"):
        return None if WORDS.search(text) or SIGNATURE.search(text) else "unexplained"
    return "bare"


@dataclass
class Outcome:
    """What one call did: the finding, or None; where it came from."""

    seed: int
    shown: str
    finding: str | None
    detail: str = ""
    place: str = ""


def outcome(seed, found):
    world, rng = World(), np.random.default_rng(seed)
    call, raised = draw(rng, world, found), None
    shown, way = str(call), call.entry.call(world)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            importlib.import_module("matplotlib.pyplot").close("all")
            with limited(LIMIT), contextlib.redirect_stdout(io.StringIO()):
                result = way(*call.args, **call.named)
                use(result, world)
        except Hang as error:
            return Outcome(seed, shown, "hang", "", place(error))
        except Exception as error:
            raised = error
    if raised is not None:
        what = finding(raised, call.entry.name.removesuffix(" fitted").split(".")[-1])
        if what is not None:
            return Outcome(seed, shown, what, f"{type(raised).__name__}: {raised}"[:200], place(raised))
    seconds = time.process_time() - start
    if seconds > LIMIT:
        return Outcome(seed, shown, "hang", f"{seconds:.1f} s")
    # cvxpy's atoms evaluate constants as they are.
    numerical = [w for w in told if issubclass(w.category, RuntimeWarning) and "cvxpy" not in w.filename]
    if numerical:
        w = numerical[0]
        return Outcome(seed, shown, "warning", str(w.message)[:120], f"{os.path.basename(w.filename)}:{w.lineno}")
    if raised is None and len(call.wrong) == 1:
        ((parameter, label),) = call.wrong.items()
        at = f"{call.entry.name} {parameter}"
        unused = call.entry.name.endswith(" fitted") and parameter in UNUSED
        takes = at in TAKES or f"{at}={label}" in TAKES
        if label in NEVER and parameter in call.parameters and not takes and not unused:
            return Outcome(seed, shown, "accepted", f"returned {str(result)[:60]}", at)
    return Outcome(seed, shown, None, "" if raised is None else type(raised).__name__)


def place(error):
    """The innermost line of the library."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(OWN)]
    return "" if not frames else f"{os.path.relpath(frames[-1].filename, OWN)}:{frames[-1].lineno}"


@contextlib.contextmanager
def in_a_folder_of_its_own():
    """Calls may write files, draw figures, and leave some of these open."""
    importlib.import_module("matplotlib").use("Agg")
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def main(count, first=0):
    faulthandler.enable()
    found, outcomes = entries(), []
    with in_a_folder_of_its_own():
        for seed in range(first, first + count):
            outcomes.append(outcome(seed, found))
    groups = {}
    for o in outcomes:
        if o.finding is not None:
            groups.setdefault((o.finding, o.place or o.detail[:30], o.detail.split(":")[0]), []).append(o)
    for (kind, where, _), several in sorted(groups.items(), key=lambda item: item[0]):
        o = several[0]
        print(f"{kind:11} {len(several):4}× {where}  seed {o.seed}  {o.shown}\n            {o.detail}")
    counts = Counter(o.finding or "right" for o in outcomes)
    print(f"{len(found)} entries, {count} calls:", ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    return counts


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    bad = main(*(given or [20000]))
    sys.exit(any(bad[kind] for kind in ("foreign", "bare", "unexplained", "hang")))
