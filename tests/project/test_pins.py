"""CI installs only what is pinned, in the same versions with and without hashes."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def requirements(text):
    return [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"[A-Za-z]", line)]


def needed(extras):
    """Names of all packages that kernelopt needs in this interpreter, with these extras."""
    found, ahead = set(), [("kernelopt", extras)]
    while ahead:
        name, extras = ahead.pop()
        if (name, extras) in found:
            continue
        found.add((name, extras))
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if any(requirement.marker is None or requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
                ahead.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in found} - {"kernelopt"}


@pytest.mark.later
def test_every_package_of_the_tests_is_pinned():
    pins = requirements((ROOT / "constraints.txt").read_text())
    pinned = {canonicalize_name(p.name) for p in pins if p.marker is None or p.marker.evaluate()}
    names = needed(frozenset({"test"}))
    assert {"numpy", "scikit-learn", "pytest"} <= names
    assert names <= pinned


def test_files_with_and_without_hashes_agree():
    hashed = (ROOT / ".ci" / "requirements.txt").read_text()
    assert [str(r) for r in requirements(hashed)] == [
        str(r) for r in requirements((ROOT / "constraints.txt").read_text())
    ]
    blocks = re.split(r"\n(?=[A-Za-z])", hashed.strip())
    assert all("--hash=sha256:" in block for block in blocks)
