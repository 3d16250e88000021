"""README's code runs in order and prints what README says; seconds aside."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def without_seconds(text):
    return re.sub(r"[0-9.e-]+ s\b", "… s", text).strip()


def test_readme(capsys):
    printed, checked, scope = "", 0, {}
    for kind, block in BLOCK.findall(README.read_text()):
        if kind == "python":
            exec(compile(block, str(README), "exec"), scope)
            printed = capsys.readouterr().out
            if "Problem(" in block and ".solve()" not in block:
                scope["problem"].solve()
                assert scope["problem"].status == "optimal"
        else:
            assert without_seconds(printed) == without_seconds(block)
            checked += 1
    assert checked == 2
    norms = [t.value.norm for t in scope["thetas"]]
    assert norms[2] < 1e-6 < min(norms[:2])  # the widest kernel drops out


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README.read_text()))
def test_links(target):
    assert (README.parent / target).exists()
