"""The code of README and pages runs in order and prints what they say; seconds and last digits aside."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


def without_seconds(text):
    """Seconds differ from run to run, and a gap's last digits from machine to machine."""
    text = re.sub(r"optimum in \[[^]]*\], relative gap [0-9.e-]+", "optimum in […]", text)
    text = re.sub(r"for ‖θ‖ ≤ [0-9.e+]+", "for ‖θ‖ ≤ …", text)
    return re.sub(r"[0-9.e-]+ s\b", "… s", text).strip()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of Dask's that close late
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_page(page, capsys):
    text = page.read_text()
    printed, checked, scope = "", 0, {}
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            exec(compile(block, str(page), "exec"), scope)
            printed = capsys.readouterr().out
            if page == README and "problem = ko.Problem(" in block and ".solve(" not in block:
                scope["problem"].solve()
                assert scope["problem"].status == "optimal"
        else:
            assert without_seconds(printed) == without_seconds(block)
            checked += 1
    assert checked == text.count("```text") > 0
    if page == README:
        norms = [t.value.norm for t in scope["thetas"]]
        assert norms[2] < 1e-6 < min(norms[:2])  # the widest kernel drops out


LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links(page, link):
    """To files, or to pages that are made of the examples."""
    target = page.parent / link
    if link.startswith("gallery/"):
        target = ROOT / "examples" / Path(link.removeprefix("gallery/")).with_suffix(".py")
        target = target.with_stem("quickstart") if target.stem == "index" else target
    assert target.exists()
