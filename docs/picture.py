"""Draw the pictures of README, of the front page, and of docs/mathematics.md, from the code of these pages.

python docs/picture.py

README's first problem is drawn with and without its constraints. The panels stand side by side in fit.png, for README,
and one above the other in fit_tall.png, for the front page.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

HERE = Path(__file__).parent
README, MATHEMATICS = HERE.parent / "README.md", HERE / "mathematics.md"
LEVELS = ("10 %", "50 %", "90 %")
COLORS = ("#0072B2", "#D55E00", "#009E73")
STYLES = ("--", "-", "-.")


def blocks(page: Path) -> list[str]:
    """The blocks of Python, in order."""
    return [
        part.split("```", maxsplit=1)[0]
        for part in page.read_text().split("```python\n")[1:]
    ]


def save(figure, name: str) -> None:
    figure.savefig(HERE / "_static" / f"{name}.png", dpi=150)
    plt.close(figure)


def draw(ax, names, grid, curves, title) -> None:
    """Data, the quantile curves, and in gray the places where curves cross."""
    ax.plot(
        names["X"], names["y"], "o", color="0.55", markersize=3.5, markeredgewidth=0
    )
    for level, curve, color, style in zip(
        LEVELS, curves.T, COLORS, STYLES, strict=True
    ):
        ax.plot(grid, curve, style, color=color, linewidth=2, label=level)
    crossed = (np.diff(curves, axis=1) < 0).any(axis=1)
    ax.fill_between(
        grid,
        0,
        1,
        where=crossed,
        transform=ax.get_xaxis_transform(),
        color="0.88",
        linewidth=0,
        zorder=0,
    )
    if crossed.any():
        ax.text(
            np.median(grid[crossed]),
            -0.45,
            "crossed",
            color="0.35",
            ha="center",
            fontsize="small",
        )
    ax.set_title(title, fontsize="medium")
    ax.set(xlabel="x", ylabel="y", xlim=(0, 8), ylim=(-0.6, 4.3))
    ax.spines[["top", "right"]].set_visible(False)


def front() -> None:
    names: dict[str, object] = {}
    exec(blocks(README)[0], names)
    F, grid = names["F"], np.linspace(0, 8, 400)
    constrained = F(grid[:, None]).value
    ko.Problem(cp.Minimize(names["loss"] + names["penalty"])).solve()
    free = F(grid[:, None]).value
    for name, shape, size in (
        ("fit", (1, 2), (9.2, 3.3)),
        ("fit_tall", (2, 1), (4.9, 5.2)),
    ):
        figure, axes = plt.subplots(
            *shape, figsize=size, sharex=True, sharey=True, layout="constrained"
        )
        draw(axes[0], names, grid, free, "Quantile regression: curves fall and cross")
        draw(
            axes[1],
            names,
            grid,
            constrained,
            "Two more lines: rising, never crossing, proven for all x",
        )
        for ax in axes:
            ax.label_outer()
        axes[0].legend(loc="upper left", frameon=False, title="quantiles", reverse=True)
        save(figure, name)


def matrix(names) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3))
    ko.plots.gram(names["A"], order=names["X"][:, 0], ax=left)
    ko.plots.spectrum(names["problem"], ax=right)
    left.set_title("Q, sorted by the first column of X")
    right.set_title("eigenvalues")
    save(figure, "mathematics_matrix")


def losses(names) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3))
    u, zero, one = np.linspace(-2.5, 2.5, 401), np.zeros(401), np.ones(401)
    of_residuals = {
        "squares": ko.losses.squared_error(zero, u),
        "ℓ1": ko.losses.absolute_error(zero, u),
        "Huber, M = 0.5": ko.losses.huber(zero, u, 0.5),
        "quantile, τ = 0.9": ko.losses.pinball(zero, u, 0.9),
        "ε-insensitive, ε = 0.5": ko.losses.epsilon_insensitive(zero, u, 0.5),
    }
    of_margins = {
        "hinge": ko.losses.hinge(one, u),
        "squared hinge": ko.losses.squared_hinge(one, u),
        "logistic": ko.losses.log_loss(one, u),
    }
    for ax, drawn, label in (
        (left, of_residuals, "residual u − y"),
        (right, of_margins, "margin yu"),
    ):
        for name, loss in drawn.items():
            ax.plot(u, loss.value, label=name)
        ax.set(xlabel=label, ylim=(-0.1, 4))
        ax.legend()
    left.set_ylabel("loss")
    save(figure, "mathematics_losses")


def margin(names) -> None:
    theta, b = names["theta"], names["b"]
    figure, ax = plt.subplots()
    ko.plots.decision_regions(lambda X: theta(X) + b, names["X"], names["s"], ax=ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, "mathematics_margin")


# What is drawn after the block of docs/mathematics.md with these words.
DRAWN = {"by_hand = ": matrix, "numeric = ": losses, "svm.solve(": margin}


def main() -> None:
    front()
    plt.style.use("kernelopt.plots")
    names: dict[str, object] = {}
    for block in blocks(MATHEMATICS):
        exec(block, names)
        for words, picture in DRAWN.items():
            if words in block:
                picture(names)


if __name__ == "__main__":
    main()
