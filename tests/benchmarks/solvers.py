"""kernelopt against others: ratios of times in one run, with a certified gap beside each.

    python tests/benchmarks/solvers.py [--only PATTERN] [--threads N] [--markdown] [--quick]

"all-in" is kernel values, factor, compilation and solve; the certificate for the full kernel is "proof" and not part of
it. "solver alone" is the time of all attempts of the solver. Gaps are relative to P₀ − P: ours as certified, a peer's
from the objective that it attained and our lower bound, so that one that stops early shows. BLAS has the same number of
threads for all; ours and peers take turns, and medians are printed; what takes more than 30 s runs once.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path

import joblib
import threadpoolctl
from measuring import Row, is_selected, measure
from solver_cases import QUICK, Sizes, cases
from specials import Growth, growth, specials

import kernelopt as ko

STEEPEST = 1.1  # exponent of the growth of time with N
PACKAGES = ("kernelopt", "numpy", "scipy", "cvxpy", "clarabel", "scikit-learn", "rehline", "statsmodels")
HEADER = (
    "#", "case", "peer", "what", "ratio", "target", "", "ours, s", "proof, s", "peer, s", "our gap", "peer's gap",
    "runs", "solver",
)  # fmt: skip


def machine(threads: int) -> str:
    """Processor, cores, BLAS and versions, in a few lines."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else None
    cpu = named.group(1) if named else platform.processor() or platform.machine()
    blas = {
        f"{p['internal_api']} {p['version']} ({p['num_threads']} threads)"
        for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"
    }  # fmt: skip
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return (
        f"{cpu}, {physical_cores()} cores, {threads} threads; {', '.join(sorted(blas))}\n"
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, {', '.join(versions)}"
    )


def physical_cores() -> int:
    return int(joblib.cpu_count(only_physical_cores=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    """Aligned columns, numbers to the right; with bars for markdown."""
    rows = [[cell.replace("|", "/") for cell in cells] for cells in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    right = [all(_is_number(cells[k]) for cells in rows) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return f"| {' | '.join(padded)} |" if markdown else "  ".join(padded).rstrip()

    rule = ["-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
    middle = f"|{'|'.join(rule)}|" if markdown else "  ".join("-" * w for w in widths)
    return "\n".join([line(header), middle, *map(line, rows)])


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?\d[\d.]*(e[-+]?\d+)?( \*)?|—|", cell) is not None


def _number(value: float, digits: str = ".3g") -> str:
    return "—" if isnan(value) else f"{value:{digits}}"


def cells(r: Row) -> list[str]:
    """A row as it is printed; what has no ratio says why in its place."""
    ratio = r.ratio if isinstance(r.ratio, str) else _number(r.ratio)
    times = [_number(t) for t in (r.ours, r.proof, r.theirs)]
    gaps = [_number(g, ".1e") for g in (r.gap, r.their_gap)]
    return [r.number, r.case, r.peer, r.part, ratio, r.target, r.verdict, *times, *gaps, r.runs, r.solver]


def growth_table(found: Sequence[Growth], markdown: bool) -> str:
    """Seconds by N, and the exponent."""
    rows = []
    for g in found:
        verdict = "not all solved" if isnan(g.exponent) else "met" if g.exponent <= STEEPEST else "missed"
        seconds = [_number(s) for s in g.seconds.values()]
        rows.append([g.name, *seconds, _number(g.exponent, ".2f"), f"≤ {STEEPEST:g}", verdict])
        rows.append(["  certified gap", *(_number(gap, ".1e") for gap in g.gaps.values()), "", "", ""])
    return table(["N", *map(str, found[0].seconds), "exponent", "target", ""], rows, markdown)


def measured(sizes: Sizes, runs: int, pattern: str) -> list[Row]:
    """All selected rows, in order; each is told on stderr as soon as it is known."""
    rows: list[Row] = []
    for case in cases(sizes):
        rows += _told(measure(case, runs, pattern))
    for special in specials(sizes):
        if is_selected(pattern, special.number, special.name, special.peer):
            rows += _told([special.row(runs)])
    return sorted(rows, key=lambda r: int(r.number))


def _told(rows: list[Row]) -> list[Row]:
    for r in rows:
        print("  ".join(filter(None, cells(r))), file=sys.stderr, flush=True)
    return rows


def report(sizes: Sizes, runs: int, pattern: str, markdown: bool) -> str:
    """The tables, as text."""
    found = []
    rows = measured(sizes, runs, pattern)
    if rows:
        found.append(table(HEADER, [cells(r) for r in rows], markdown))
    losses = {"hinge + b": ko.losses.hinge, "logistic + b": ko.losses.log_loss}
    names = [name for name in losses if is_selected(pattern, "16", name, "growth")]
    if names:
        grown = [growth(sizes, name, losses[name], runs) for name in names]
        found.append(f"All-in seconds by N, λ = 0.5, max_rank = {sizes.max_rank}, least-squares exponent")
        found.append(growth_table(grown, markdown))
        found += [f"{g.name}, N = {N}: {reason}" for g in grown for N, reason in g.failed.items()]
    return "\n\n".join(found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="of ours and of each peer, in turn; 3, or 1 with --quick")
    parser.add_argument("--threads", type=int, default=1, help="of BLAS, for all")
    parser.add_argument("--only", default="", metavar="PATTERN", help='rows whose "number case | peer" it matches')
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs, not how fast")
    options = parser.parse_args(arguments)
    runs = options.runs or (1 if options.quick else 3)
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)  # Clarabel's threads
    with threadpoolctl.threadpool_limits(options.threads):
        print(machine(options.threads), end="\n\n", flush=True)
        if options.quick:
            print("small sizes: ratios mean nothing\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of answers that may be inaccurate: the gaps in the table tell
            print(report(QUICK if options.quick else Sizes(), runs, options.only, options.markdown))


if __name__ == "__main__":
    main()
