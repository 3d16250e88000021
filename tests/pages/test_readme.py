"""The code of README and pages runs in order and prints what they say; seconds and last digits aside."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
HOWTO = DOCS / "howto"  # each section of these pages is copyable alone
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted(HOWTO.glob("*.md"))]
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
SECTIONS = [
    (page, number, section)
    for page in PAGES
    for number, section in enumerate(
        re.split("(?m)^(?=## )", page.read_text()) if page.parent == HOWTO else [page.read_text()]
    )
    if "```python" in section
]


def titled(value):
    """The name of a test."""
    if isinstance(value, Path):
        return value.stem
    return value.splitlines()[0].removeprefix("## ") if isinstance(value, str) and value.startswith("## ") else ""


def without_seconds(text):
    """Seconds differ from run to run, and a gap's last digits from machine to machine."""
    text = re.sub(r"optimum in \[[^]]*\], relative gap [0-9.e-]+", "optimum in […]", text)
    text = re.sub(r"for ‖θ‖ ≤ [0-9.e+]+", "for ‖θ‖ ≤ …", text)
    text = re.sub(r"(?m)^seconds .*$", "seconds …", text)
    return re.sub(r"[0-9.e-]+ s\b", "… s", text).strip()


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Where files go that a page writes."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of Dask's that close late
@pytest.mark.parametrize(("page", "number", "text"), SECTIONS, ids=titled)
def test_page(page, number, text, capsys):
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


def test_front_page_and_readme_begin_alike():
    """The same code, which docs/picture.py draws, its output, and as first sentence the summary of pyproject.toml."""
    readme, front = README.read_text(), (DOCS / "index.md").read_text()
    assert BLOCK.findall(readme)[:2] == BLOCK.findall(front)[:2]
    summary = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    for text in (readme, front):
        assert re.search(r"(?m)^\*\*(.*)\*\*$", text)[1] == summary


def test_pictures_of_the_mathematics_have_their_blocks(monkeypatch):
    """docs/picture.py draws each after one block of the page, which shows it."""
    monkeypatch.syspath_prepend(str(DOCS))
    picture = importlib.import_module("picture")
    page = (DOCS / "mathematics.md").read_text()
    for words, draw in picture.DRAWN.items():
        assert sum(words in block for block in picture.blocks(picture.MATHEMATICS)) == 1
        assert f"_static/mathematics_{draw.__name__}.png" in page


def prose(page):
    """A page without its blocks of code."""
    return re.sub("(?s)```.*?```", "", page.read_text())


LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)]+)\)", prose(page))]


def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall("(?m)^#+ (.*)$", prose(page))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def leads_somewhere(page, link):
    """To a file and its heading, as they are in the repository."""
    if link.startswith("https://"):
        return True
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (target.suffix != ".md" or not anchor or anchor in anchors(target))


def test_links():
    assert len(LINKS) > 100
    assert [f"{page.name}: {link}" for page, link in LINKS if not leads_somewhere(page, link)] == []


def test_titles_are_unique():
    titles = [
        re.search("(?m)^# (.*)$", page.read_text())[1] for page in PAGES if page not in (README, DOCS / "index.md")
    ]
    assert len(set(titles)) == len(titles)


def test_pictures_have_alternative_texts():
    for page in PAGES:
        text = page.read_text()
        assert all(len(alt) > 20 for alt in re.findall(r"!\[(.*?)\]\(", text))
        assert text.count("```{image}") == len(re.findall(r"(?m)^:alt: \S.{20,}", text))


WANTED = [
    "multiclass", "isotonic", "monotone", "quantile regression", "survival", "semi-supervised", "CVaR", "DRO",
    "ordinal", "sparse", "class weights", "densities", "expectile", "mean embedding", "indefinite kernel",
    "low rank", "ranking", "conformal", "prediction intervals", "missing values", "categorical", "time series",
    "hyperparameter", "GPU", "torch", "density ratio", "Wasserstein", "heteroscedastic", "listwise", "simplex",
    "multiple instance",
]  # fmt: skip


def test_what_is_looked_for_has_a_heading():
    headings = [line.lower() for page in PAGES for line in page.read_text().splitlines() if line.startswith("#")]
    assert [words for words in WANTED if not any(words.lower() in line for line in headings)] == []
