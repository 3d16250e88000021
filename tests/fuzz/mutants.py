"""Mutation testing: change one expression or statement, run the tests that cover its line, and see whether one fails.

python tests/fuzz/mutants.py map [PATH ...]         runs tests, and notes which lines each of them executes
python tests/fuzz/mutants.py run [N [FOLDER ...]]   up to N mutants of each folder, drawn at random
python tests/fuzz/mutants.py table                  what was found so far, by folder, and the survivors

Needs coverage.py and a POSIX system. All files are kept in `.mutants/`. A run continues the one before: mutants that
were killed stay killed, survivors meet the tests again. Times are those of the processor, so that a busy machine
changes nothing. The environment variable MINUTES ends a map or a run early. A test that fails without a mutation, too,
kills no mutant.
"""

import ast
import copy
import gzip
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutants"
MAP, RESULTS, COPY, NOTE = KEPT / "lines.json.gz", KEPT / "results.jsonl", KEPT / "tree", KEPT / "note.txt"
FOLDERS = ("compiler", "certificate", "solvers", "factorization", "driver")
TESTS = (
    "tests/compiler", "tests/certificate", "tests/solvers", "tests/factorization", "tests/sensitivity", "tests/driver",
    "tests/whole/test_bad_inputs.py", "tests/whole/test_metamorphic.py", "tests/whole/test_properties.py",
)  # fmt: skip
SEED = int(os.environ.get("SEED", "0"))  # of the sample
# Seconds of the processor: a longer test is not used, and a mutant meets tests of at most TESTED in all.
SLOWEST, TESTED = 8.0, float(os.environ.get("TESTED", "25"))
MINUTES = float(os.environ.get("MINUTES", "inf"))  # after which no other test or mutant begins
# What tests import besides; it is imported once, and each mutant's process begins with it.
IMPORTS = (
    "numpy",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "scipy.stats",
    "cvxpy",
    "clarabel",
    "sklearn.svm",
    "sklearn.model_selection",
    "pandas",
    "hypothesis",
    "distributed",
)

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """The bytes start:end of a file, replaced; first, last: lines of the statement."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    first: int
    last: int
    inside: bool  # a function

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}: {self.old} → {self.new}"

    @property
    def folder(self) -> str:
        return self.file.split("/")[1]


def variants(node: ast.AST) -> Iterator[ast.AST | str]:
    """What stands for a node in mutants."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            other.ops = [COMPARISONS[type(op)]()]
            yield other
        case ast.BinOp() if type(other.op) in OPERATORS:
            other.op = OPERATORS[type(other.op)]()
            yield other
        case ast.AugAssign() if type(other.op) in OPERATORS:
            other.op = OPERATORS[type(other.op)]()
            yield other
            yield "pass"
        case ast.BoolOp():
            other.op = ast.And() if isinstance(other.op, ast.Or) else ast.Or()
            yield other
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield other.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not other.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(other.value + 1)
        case ast.IfExp():
            other.test = ast.UnaryOp(ast.Not(), other.test)
            yield other
        case ast.Return(value=ast.expr()) if not (isinstance(other.value, ast.Constant) and other.value.value is None):
            yield "return None"
        case ast.Expr() | ast.Raise() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file. Types, texts, errors' arguments and decorators stay as they are."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []

    def visit(node: ast.AST, statement: ast.stmt | None, inside: bool) -> None:
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            statement = node
        elif isinstance(node, ast.stmt):
            statement = None
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom)
        if isinstance(node, ast.expr | ast.stmt) and not docstring:
            at = statement or node
            for new in variants(node):
                text = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
                if isinstance(new, ast.expr):
                    text = f"({text})"
                start, end = (
                    starts[node.lineno - 1] + node.col_offset,
                    starts[node.end_lineno - 1] + node.end_col_offset,
                )
                old = " ".join(source[start:end].decode().split())
                name = path.relative_to(ROOT).as_posix()
                lines = (min(at.lineno, node.lineno), max(node.end_lineno, getattr(statement, "end_lineno", 0)))
                found.append(Mutant(name, node.lineno, start, end, old, text, *lines, inside))
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, ast.FunctionDef) and (field == "name" or node.name in ("__repr__", "__str__")):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.keyword) and child.arg == "strict":  # zip's: lengths are equal
                    continue
                if isinstance(child, ast.AST):
                    visit(child, statement, inside or (isinstance(node, ast.FunctionDef) and field == "body"))

    visit(ast.parse(source), None, False)
    return found


class Tracer:
    """A plugin of pytest: which lines a test executes, and its time."""

    def __init__(self) -> None:
        from coverage import Coverage  # noqa: PLC0415

        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.until = time.monotonic() + 60 * MINUTES
        folders = [f"{ROOT}/kernelopt/{folder}/*" for folder in FOLDERS]
        self.coverage = Coverage(data_file=None, include=folders, config_file=False)
        self.coverage.start()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        random.Random(SEED).shuffle(items)  # a map that was stopped early is still one of all folders

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        if time.monotonic() > self.until:
            item.session.shouldstop = "The time is over."
        self.coverage.switch_context(item.nodeid)
        signal.signal(signal.SIGPROF, self._too_slow)
        signal.setitimer(signal.ITIMER_PROF, SLOWEST * 2)  # tracing takes time
        began = time.process_time()
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.seconds[item.nodeid] = time.process_time() - began
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    @staticmethod
    def _too_slow(*_) -> None:
        raise TimeoutError("The test is too slow for mutants.")

    def save(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        known = {test: seconds for test, seconds in self.seconds.items() if test not in self.failed}
        earlier = read_map()
        tests = earlier["tests"] | known
        lines = defaultdict(dict)
        for file, by_line in earlier["lines"].items():
            lines[file] = {n: set(t) - self.seconds.keys() for n, t in by_line.items()}
        for file in data.measured_files():
            name = Path(file).relative_to(ROOT).as_posix()
            for number, contexts in data.contexts_by_lineno(file).items():
                lines[name].setdefault(str(number), set()).update(set(contexts) & known.keys())
        KEPT.mkdir(exist_ok=True)
        with gzip.open(MAP, "wt") as out:
            json.dump({"tests": tests, "lines": lines}, out, default=sorted)
        print(f"{len(known)} tests, {sum(known.values()):.0f} s; {len(self.failed)} failed or too slow")


def read_map() -> dict:
    if not MAP.exists():
        return {"tests": {}, "lines": {}}
    with gzip.open(MAP, "rt") as text:
        return json.load(text)


def covering(known: dict, mutant: Mutant) -> list[str]:
    """Tests that execute a mutant's statement; any of the file's for what is executed at import.

    First comes one set of parameters of each test function, then a second one, and so on, since those of one function
    are alike. Among these the tests of the mutant's folder are first, and the fastest.
    """
    lines, seconds = known["lines"].get(mutant.file, {}), known["tests"]
    numbers = range(mutant.first, mutant.last + 1) if mutant.inside else [int(n) for n in lines]
    by_function = defaultdict(list)
    for test in sorted({test for n in numbers for test in lines.get(str(n), ()) if test in seconds}):
        by_function[test.split("[")[0]].append(test)
    ranked = [
        (place, not test.startswith(f"tests/{mutant.folder}/"), seconds[test], test)
        for tests in by_function.values()
        for place, test in enumerate(sorted(tests, key=seconds.__getitem__))
    ]
    return [test for *_, test in sorted(ranked)]


class Noted:
    """A plugin of pytest: which tests there are, and the first that fails, written to a file."""

    def __init__(self, to: Path) -> None:
        self.to = to

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            self.to.write_text("\n".join(item.nodeid for item in session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.to.exists():
            self.to.write_text(report.nodeid)


def outcome(mutant: Mutant | None, tests: list[str], seconds: float) -> str:
    """What tests say to a mutant, or to the code as it is, in a process of its own."""
    NOTE.unlink(missing_ok=True)
    if mutant is None:
        return _forked(tests, seconds)
    path = COPY / mutant.file
    source = path.read_bytes()
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.end :])
    try:
        return _forked(tests, seconds)
    finally:
        path.write_bytes(source)


def _forked(tests: list[str], seconds: float, *options: str) -> str:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _child(tests, seconds, options)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "time"
    return {0: "survived", 1: "killed"}.get(os.WEXITSTATUS(status), "error")


def _child(tests: list[str], seconds: float, options: tuple[str, ...]) -> None:
    """Run tests on the copy of the tree; never returns."""
    code = 3
    try:
        limit = int(3 * seconds + 20)  # imports take some seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        signal.alarm(20 * limit)  # a process that sleeps for ever
        os.chdir(COPY)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.path[:] = [str(COPY), *(p for p in sys.path if not Path(p or ".").resolve().is_relative_to(ROOT / "tests"))]
        os.environ["PYTHONPATH"] = str(COPY)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest warns of plugins that are imported already
        sys.dont_write_bytecode = "--collect-only" not in options  # tests, which no mutant changes, are compiled once
        options = ("-x", "-p", "no:cacheprovider", "--no-header", *options)
        code = int(pytest.main([*options, *tests], plugins=[Noted(NOTE)]))
    finally:
        os._exit(code)


def _there(tests: set[str]) -> set[str]:
    """Tests of the map that still exist."""
    NOTE.unlink(missing_ok=True)
    files = sorted({test.split("::")[0] for test in tests if (COPY / test.split("::")[0]).exists()})
    if _forked(files, SLOWEST * 60, "--collect-only") != "survived":
        sys.exit(f"Expected tests that can be collected without a mutation; got an error in {COPY}.")
    return tests & set(NOTE.read_text().split("\n"))


def _fails_alone(test: str, fit: dict[str, bool]) -> bool:
    """Whether a test fails without a mutation."""
    if test not in fit:
        fit[test] = outcome(None, [test], SLOWEST) == "survived"
    return not fit[test]


def run(count: int, folders: tuple[str, ...] = FOLDERS) -> None:
    known, results = read_map(), read_results()
    if not known["tests"]:
        sys.exit("Expected a map of lines; make it by `python tests/fuzz/mutants.py map`.")
    shutil.rmtree(COPY, ignore_errors=True)
    KEPT.mkdir(exist_ok=True)
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "kernelopt"], cwd=COPY, check=False)
    for name in IMPORTS:
        importlib.import_module(name)
    drawn = []
    for folder in folders:
        everything = [m for path in sorted((ROOT / "kernelopt" / folder).glob("*.py")) for m in mutants(path)]
        random.Random(SEED).shuffle(everything)
        drawn += [(place, m) for place, m in enumerate(everything[:count])]
    drawn.sort(key=lambda pair: pair[0])  # one of each folder in turn: a run that is stopped has as many of each
    until, fit = time.monotonic() + 60 * MINUTES, {}
    there = _there(set(known["tests"]))
    known["tests"] = {test: seconds for test, seconds in known["tests"].items() if test in there}
    for _, mutant in drawn:
        if results.get(mutant.key, {}).get("outcome") in ("killed", "error", "time"):
            continue
        if time.monotonic() > until:
            break
        tests, seconds = [], 0.0
        all_covering = covering(known, mutant)
        for test in all_covering:
            seconds += known["tests"][test]
            if seconds > TESTED and tests:
                break
            tests.append(test)
        found, by = "uncovered", ""
        while tests:
            found = outcome(mutant, tests, seconds)
            by = NOTE.read_text() if NOTE.exists() else ""
            if found != "killed" or not by or not _fails_alone(by, fit):
                break
            tests.remove(by)
            found = "uncovered"
        row = {"key": mutant.key, "outcome": found, "met": len(tests), "covering": len(all_covering), "by": by}
        row |= asdict(mutant)
        with RESULTS.open("a") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{found:9} {len(tests):4}/{len(all_covering):<4} {mutant.key[:150]}", flush=True)
    table()


def read_results() -> dict[str, dict]:
    rows = map(json.loads, RESULTS.read_text().splitlines()) if RESULTS.exists() else ()
    return {row["key"]: row for row in rows}


def table() -> None:
    rows = list(read_results().values())
    print(f"{'':14}{'mutants':>9}{'killed':>9}{'survived':>10}{'uncovered':>11}{'share killed':>14}")
    for folder in FOLDERS:
        found = [row["outcome"] for row in rows if row["file"].split("/")[1] == folder]
        dead = sum(o in ("killed", "error", "time") for o in found)
        share = f"{dead / len(found):.0%}" if found else "–"
        print(f"{folder:14}{len(found):9}{dead:9}{found.count('survived'):10}{found.count('uncovered'):11}{share:>14}")
    for row in sorted(rows, key=lambda row: (row["file"], row["line"])):
        if row["outcome"] in ("survived", "uncovered"):
            print(f"{row['outcome']:9} {row['met']}/{row['covering']} {row['key']}")


def main(command: str = "table", *arguments: str) -> None:
    if command == "map":
        tracer = Tracer()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was noted so far is kept
        paths = arguments or [p for p in TESTS if (ROOT / p).exists()]
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *paths], plugins=[tracer])
        tracer.save()
    elif command == "run":
        run(int(arguments[0]) if arguments else 300, arguments[1:] or FOLDERS)
    else:
        table()


if __name__ == "__main__":
    main(*sys.argv[1:])
