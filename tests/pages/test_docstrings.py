"""Docstrings of public functions, kernels and estimators name their parameters, and what functions return."""

import importlib
import inspect
import re
from pathlib import Path

import kernelopt as ko
from kernelopt.kernels import Kernel

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
STATED = {ko.Theta, ko.Problem, ko.FeatureMatrix, ko.Function, ko.Predictor, ko.SmoothLoss, ko.FactorCache, ko.JaxLayer}


def found(name):
    first, *rest = name.split(".")
    at = importlib.import_module(first)
    for k, part in enumerate(rest, start=1):
        at = getattr(at, part) if hasattr(at, part) else importlib.import_module(".".join([first, *rest[:k]]))
    return at


def listed():
    """The names of the reference pages, with their objects."""
    for page in sorted(REFERENCE.glob("*.rst")):
        text = page.read_text()
        module = re.search(r"currentmodule:: (\S+)", text)
        for name in re.findall(r"(?m)^   ([A-Za-z_.0-9]+)$", text):
            full = f"{module[1]}.{name}" if module else name
            yield full, found(full)


def is_called_by_users(thing):
    """Functions, kernels and estimators; other classes are results, which have attributes."""
    if not inspect.isclass(thing):
        return callable(thing)
    return issubclass(thing, Kernel) or "kernelopt.estimators" in thing.__module__ or thing in STATED


THINGS = [(name, thing) for name, thing in listed() if is_called_by_users(thing)]
TITLE = re.compile(r"(?m)^(Parameters|Returns|Raises|Attributes|Notes|Examples|References|See Also)\n-+$")


def sections(thing):
    """The sections of a docstring by title."""
    parts = TITLE.split(inspect.getdoc(thing))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def lacks(thing):
    """What a docstring does not say."""
    parts = sections(thing)
    wanted = {p for p in inspect.signature(thing).parameters if p not in {"self", "args", "kwargs", "named", "params"}}
    heads = [line.split(" :")[0] for line in parts.get("Parameters", "").splitlines() if line[:1].strip()]
    told = {word.strip(" *") for head in heads for word in head.split(",")}
    found = sorted(wanted - told)
    found += [] if inspect.isclass(thing) or parts.get("Returns", "").strip() else ["Returns"]
    return found + ([] if ">>>" in parts.get("Examples", "") else ["Examples"])


def test_parameters_returns_and_examples():
    assert len(THINGS) > 100
    assert {name: missing for name, thing in THINGS if (missing := lacks(thing))} == {}
