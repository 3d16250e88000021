"""Draw the pictures of README and front page from README's first problem, with and without its constraints.

python docs/picture.py

The panels stand side by side in docs/_static/fit.png, for README, and one above the other in docs/_static/fit_tall.png,
for the front page.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
LEVELS = ("10 %", "50 %", "90 %")
COLORS = ("#0072B2", "#D55E00", "#009E73")
STYLES = ("--", "-", "-.")


def first_block(page: str) -> str:
    """The first block of Python."""
    return page.split("```python\n")[1].split("```", maxsplit=1)[0]


def draw(ax, names, grid, curves, title) -> None:
    """Data, the quantile curves, and in gray the places where curves cross."""
    ax.plot(names["X"], names["y"], "o", color="0.55", markersize=3.5, markeredgewidth=0)
    for level, curve, color, style in zip(LEVELS, curves.T, COLORS, STYLES, strict=True):
        ax.plot(grid, curve, style, color=color, linewidth=2, label=level)
    crossed = (np.diff(curves, axis=1) < 0).any(axis=1)
    ax.fill_between(grid, 0, 1, where=crossed, transform=ax.get_xaxis_transform(), color="0.88", linewidth=0, zorder=0)
    if crossed.any():
        ax.text(np.median(grid[crossed]), -0.45, "crossed", color="0.35", ha="center", fontsize="small")
    ax.set_title(title, fontsize="medium")
    ax.set(xlabel="x", ylabel="y", xlim=(0, 8), ylim=(-0.6, 4.3))
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    names: dict[str, object] = {}
    exec(first_block(README.read_text()), names)
    F, grid = names["F"], np.linspace(0, 8, 400)
    constrained = F(grid[:, None]).value
    ko.Problem(cp.Minimize(names["loss"] + names["penalty"])).solve()
    free = F(grid[:, None]).value
    for name, shape, size in (("fit", (1, 2), (9.2, 3.3)), ("fit_tall", (2, 1), (4.9, 5.2))):
        figure, axes = plt.subplots(*shape, figsize=size, sharex=True, sharey=True, layout="constrained")
        draw(axes[0], names, grid, free, "Quantile regression: curves fall and cross")
        draw(axes[1], names, grid, constrained, "Two more lines: rising, never crossing, proven for all x")
        for ax in axes:
            ax.label_outer()
        axes[0].legend(loc="upper left", frameon=False, title="quantiles", reverse=True)
        figure.savefig(HERE / "_static" / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
