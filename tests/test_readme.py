"""The code of README and guide runs in order and prints what they say; seconds and last digits aside."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def without_seconds(text):
    """Seconds differ from run to run, and a gap's last digits from machine to machine."""
    text = re.sub(r"optimum in \[[^]]*\], relative gap [0-9.e-]+", "optimum in […]", text)
    return re.sub(r"[0-9.e-]+ s\b", "… s", text).strip()


@pytest.mark.parametrize(("page", "texts"), [(README, 2), (GUIDE, 33)], ids=["README", "guide"])
def test_page(page, texts, capsys):
    printed, checked, scope = "", 0, {}
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "python":
            exec(compile(block, str(page), "exec"), scope)
            printed = capsys.readouterr().out
            if "problem = ko.Problem(" in block and ".solve(" not in block:
                scope["problem"].solve()
                assert scope["problem"].status == "optimal"
        else:
            assert without_seconds(printed) == without_seconds(block)
            checked += 1
    assert checked == texts
    if page == README:
        norms = [t.value.norm for t in scope["thetas"]]
        assert norms[2] < 1e-6 < min(norms[:2])  # the widest kernel drops out


LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links(page, link):
    assert (page.parent / link).exists()
