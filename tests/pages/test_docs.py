"""The API reference lists everything public, and everything in it has an example."""

import importlib
import inspect
import re
from pathlib import Path

import kernelopt as ko

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
LISTED = [
    name
    for page in sorted(REFERENCE.glob("*.rst"))
    for name in re.findall(r"^   ([a-zA-Z_.]+)$", page.read_text(), re.MULTILINE)
]
MODULES = {"losses", "kernels", "estimators", "feature_space", "plots", "testing"}


def public():
    """Names as `ko.…` reaches them; `margin` stands once. The page of errors is the module's own."""
    names = {name for name in ko.__all__ if name not in MODULES | {"__version__", "errors"}}
    for module in MODULES:
        room = importlib.import_module(f"kernelopt.{module}")
        own = [
            name
            for name, thing in inspect.getmembers(room)
            if inspect.isfunction(thing) and thing.__module__ == room.__name__ and not name.startswith("_")
        ]
        names |= {f"{module}.{name}" for name in getattr(room, "__all__", own)}
    return names - {"losses.margin"}


def find(name):
    thing = ko
    for part in name.split("."):
        thing = getattr(thing, part, None) or importlib.import_module(f"{thing.__name__}.{part}")
    return thing


def test_all_that_is_public_is_listed():
    assert public() <= set(LISTED)


def test_everything_listed_has_an_example():
    assert [name for name in LISTED if ">>>" not in inspect.getdoc(find(name))] == ["results.Status"]


def test_files_that_pages_name_exist():
    """Code such as `rules.py` or `tests/fuzz/fuzzing.py` in prose is the end of a path in the repository."""
    root = REFERENCE.parent.parent
    files = [
        str(path.relative_to(root))
        for room in ("kernelopt", "tests", "examples", "docs", ".ci")
        for path in root.glob(f"{room}/**/*.*")
    ]
    files += [path.name for path in root.iterdir()]
    for page in [root / "README.md", *root.glob("docs/*.md"), *root.glob("docs/howto/*.md")]:
        prose = re.sub("(?s)```.*?```", "", page.read_text())
        for name in re.findall(r"`([\w./]+\.(?:py|md|txt|toml))\b", prose):
            assert any(f"/{file}".endswith(f"/{name}") for file in files), f"{page.name}: {name}"
