"""Every example has a test of what it finds, a title, and a picture."""

import ast
import re

import pytest
from running import EXAMPLES

NAMES = sorted(str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.py"))
NAMES.remove("large_scale")  # a script for the command line, with a test of its own
TESTS = "".join(path.read_text() for path in (EXAMPLES.parent / "tests" / "examples").glob("test_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_has_test(name):
    assert f'example("{name}")' in TESTS


def test_has_place_in_gallery():
    conf = (EXAMPLES.parent / "docs" / "conf.py").read_text()
    (sections,) = [node.value for node in ast.parse(conf).body if assigns(node, "SECTIONS")]
    listed = [f"{section}/{name}" for section, names in ast.literal_eval(sections).items() for name in names]
    assert sorted(["quickstart", *listed]) == NAMES


def assigns(node, name):
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


@pytest.mark.parametrize("name", NAMES)
def test_form(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    title, underline = ast.get_docstring(ast.parse(source)).splitlines()[:2]
    assert re.fullmatch("=+", underline) and len(underline) == len(title)
    assert "\n# %%\n" in source
    assert "plt.show()" in source or "savefig" in source
    assert 'plt.style.use("kernelopt.plots")' in source
