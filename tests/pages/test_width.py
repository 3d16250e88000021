"""Code on pages is at most 88 columns wide: it does not wrap there."""

import doctest
import inspect
import re
import unicodedata
from pathlib import Path

from test_docs import LISTED, find

ROOT = Path(__file__).parents[2]
WIDTH = 88


def too_wide(text):
    return [line for line in text.splitlines() if sum(not unicodedata.combining(c) for c in line) > WIDTH]


def test_code_of_pages():
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/howto/*.md")]
    blocks = [(page.name, code) for page in pages for code in re.findall(r"(?s)```python\n(.*?)```", page.read_text())]
    assert len(blocks) > 100
    assert [(name, wide) for name, code in blocks if (wide := too_wide(code))] == []


def test_examples():
    scripts = [*ROOT.glob("examples/**/*.py")]
    assert len(scripts) > 40
    assert [(path.name, wide) for path in scripts if (wide := too_wide(path.read_text()))] == []


def test_code_of_docstrings():
    """With its prompt, as pages show it."""
    parser = doctest.DocTestParser()
    sources = [(name, one.source) for name in LISTED for one in parser.get_examples(inspect.getdoc(find(name)))]
    assert len(sources) > 300
    wide = [(name, line) for name, source in sources for line in source.splitlines() if len(line) > WIDTH - 4]
    assert wide == []
