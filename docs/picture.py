"""Draw the picture of README and front page, docs/_static/fit.png, from README's first fit.

python docs/picture.py
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


def first_block(page: str) -> str:
    """The first block of Python."""
    return page.split("```python\n")[1].split("```", maxsplit=1)[0]


def main() -> None:
    names: dict[str, object] = {}
    exec(first_block(README.read_text()), names)
    f, X, y, grid = names["f"], names["X"], names["y"], np.linspace(0, 6, 300)[:, None]
    squares = ko.estimators.KernelRegressor("squared_error", alpha=0.5, kernel=ko.kernels.Gaussian(sigma=1.0)).fit(X, y)
    figure, ax = plt.subplots(figsize=(7, 3.2))
    ax.plot(X, y, ".", color="0.45", label="data, with heavy tails")
    ax.plot(grid, np.sin(grid), ":", color="0.2", label="truth")
    ax.plot(grid, squares.predict(grid), "--", color="#D55E00", label="squares")
    ax.plot(grid, f(grid).value, color="#0072B2", linewidth=2, label="absolute errors, f ≤ 1.1")
    ax.axhline(1.1, color="#0072B2", linewidth=0.8, linestyle="-.")
    ax.set(xlim=(0, 6), ylim=(-2.2, 2.6), xlabel="x")
    ax.legend(loc="upper right", ncols=2, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "_static" / "fit.png", dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
