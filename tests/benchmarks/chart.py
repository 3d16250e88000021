"""The chart of the benchmarks page: seconds against the number of rows, for a hinge loss with an intercept.

    python tests/benchmarks/chart.py

Ours from the statement to the certified answer (relative gap 1e-3), scikit-learn's SVC (tol 1e-3, no certificate), and
the problem in α ∈ Rᴺ with `cp.quad_form` as it is usually written by hand, up to BY_HAND rows. One BLAS thread; the
median of three runs, of one from LONG rows on. It prints a table and writes docs/_static/times.png.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import cvxpy as cp
import matplotlib as mpl
import numpy as np
from everyday import LAM, hinge, in_four_dimensions, seconds, svc

mpl.use("agg")
import matplotlib.pyplot as plt

import kernelopt as ko

ROWS = (100, 300, 1000, 3000, 10000)
BY_HAND, LONG = 1000, 3000
PICTURE = Path(__file__).parent.parent.parent / "docs" / "_static" / "times.png"


def ours(N: int) -> Any:
    problem = hinge(in_four_dimensions(N), cp.Parameter(nonneg=True, value=LAM))
    problem.solve(tol=1e-3)
    assert problem.status == "optimal"
    return problem


def by_hand(N: int) -> Any:
    X, y, sigma = in_four_dimensions(N)
    Q = ko.kernels.Gaussian(sigma=sigma)(X)
    alpha, b = cp.Variable(N), cp.Variable()
    objective = cp.sum(cp.pos(1 - cp.multiply(y, Q @ alpha + b))) + LAM * cp.quad_form(alpha, cp.psd_wrap(Q))
    return cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")


def main() -> None:
    names: dict[str, tuple[Callable[[int], Any], str, str]] = {
        "kernelopt, certified": (ours, "o-", "#0072B2"),
        "SVC, no certificate": (lambda N: svc(in_four_dimensions(N), 1e-3), "s--", "#D55E00"),
        "cvxpy by hand": (by_hand, "^:", "#555555"),
    }
    ours(50)  # imports, and what is compiled once
    print("| N | " + " | ".join(names) + " |\n|--:|" + "--:|" * len(names))
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for N in ROWS:
        cells = []
        for name, (call, _, _) in names.items():
            if call is by_hand and N > BY_HAND:
                cells.append("–")
                continue
            times = [seconds(lambda: call(N))[0] for _ in range(3 if N < LONG else 1)]  # noqa: B023 called at once
            found[name].append((N, median(times)))
            cells.append(f"{median(times):.3g} s")
        print(f"| {N} | " + " | ".join(cells) + " |")
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    for name, (_, style, color) in names.items():
        ax.loglog(*np.array(found[name]).T, style, color=color, label=name)
    ax.set(xlabel="rows", ylabel="seconds")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    figure.savefig(PICTURE, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
