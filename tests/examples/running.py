"""Run an example as a reader would, and look at what it leaves behind."""

import functools
import re
import runpy
import warnings
from pathlib import Path

import matplotlib as mpl

EXAMPLES = Path(__file__).parents[2] / "examples"


@functools.cache
def example(name):
    """The variables of `examples/name.py` after it ran, with "figures"; the thumbnail is among them."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    path = EXAMPLES / f"{name}.py"
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive", UserWarning)  # plt.show()
        names = runpy.run_path(str(path), run_name="__main__")
    names["figures"] = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    chosen = re.search(r"(?m)^# sphinx_gallery_thumbnail_number = (\d+)$", path.read_text())
    assert chosen is None or 1 <= int(chosen[1]) <= len(names["figures"])
    return names
