"""Names of other libraries and papers that the pages mention have an address, and the names exist."""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest
from test_docs import LISTED
from test_docs import find as public

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from mentions import LINKS, NAME, SKLEARN, elsewhere, of_pages, papers_in  # noqa: E402

sys.path.pop(0)

# Books, theses and papers whose address is not known for certain.
WITHOUT_ADDRESS = {
    "Bochner 1932", "Goovaerts 1997", "Jegelka 2019", "MacKay 1998", "Matérn 1960", "Mooney 2007", "Noble 2002",
    "Novikoff 1962", "Obermayer 2000", "Williamson 2001", "et al. 2001", "et al. 2007", "et al. 2008",
}  # fmt: skip
NO_SURNAMES = {"Above", "CPAM", "December", "ICML", "NIPS", "NeurIPS", "November", "USA"}
YEAR = r"(?:18|19|20)\d\d"


def documented(thing):
    """What an API page shows of a function or a class: its docstring and those of its public methods."""
    own = [getattr(thing, name) for name in dir(thing) if not name.startswith("_")] if inspect.isclass(thing) else []
    return [text for each in (thing, *own) if callable(each) or isinstance(each, property) if (text := each.__doc__)]


def prose():
    """Every text that becomes a page, without code."""
    for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/howto/*.md"), ROOT / "README.md"]:
        yield re.sub("(?s)```.*?```", "", path.read_text())
    for path in ROOT.glob("examples/**/*.py"):
        yield ast.get_docstring(ast.parse(path.read_text())) or ""
        yield "\n".join(re.findall("(?m)^# (.*)$", path.read_text()))
    for name in LISTED:
        yield from (re.sub(r"(?m)^\s*(>>>|\.\.\.).*$", "", text) for text in documented(public(name)))


TEXT = "\n\n".join(prose())
MENTIONED = {found[1] for code in re.findall("`+([^`]+)`+", TEXT) if (found := NAME.fullmatch(code.strip()))}


def find(name):
    """The object of a full name, `sklearn.svm.SVC`."""
    thing = importlib.import_module(name.partition(".")[0])
    for part in name.split(".")[1:]:
        if not hasattr(thing, part):
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return thing


def test_names_exist_and_are_mentioned():
    for name in LINKS["names"]:
        find(name)
    assert set(LINKS["names"]) <= set(map(elsewhere, MENTIONED))


def test_names_of_cvxpy_and_numpy_have_an_address():
    names = {elsewhere(name) for name in MENTIONED if name.startswith(("cp.", "np."))}
    assert names <= set(LINKS["names"])


def test_names_of_scikit_learn_are_unique():
    assert len(SKLEARN) == sum(name.startswith("sklearn.") for name in LINKS["names"])


@pytest.mark.later
def test_papers_are_cited():
    cited = {address for _, _, address in papers_in(TEXT)}
    assert cited == set(LINKS["papers"].values())


@pytest.mark.later
def test_citations_have_an_address():
    """What looks like "Surname 1971" or "(Surname, 1971)" is a link, or stands in WITHOUT_ADDRESS."""
    linked = [range(start, end) for start, end, _ in papers_in(TEXT)]
    surname = r"(?:[A-ZÓ][\w’-]+|et al\.)"
    for found in re.finditer(rf"{surname},? {YEAR}(?=[),.;:\s])(?! rows)", TEXT):
        if any(found.end() in span or found.end() == span.stop for span in linked):
            continue
        assert found[0].replace(",", "") in WITHOUT_ADDRESS or re.match(r"\w+", found[0])[0] in NO_SURNAMES, found[0]


def test_links_to_examples_become_links_to_their_pages():
    text = "[a](../examples/regression/multi_task.py), [b](../../examples), [c](../README.md), [d](../examples/x.md)"
    pages = "[a](/gallery/regression/multi_task.rst), [b](/gallery/index.rst)"
    assert of_pages(text) == f"{pages}, [c](../README.md), [d](../examples/x.md)"
