"""What holds for every test."""

import gc
import zlib
from collections import defaultdict

import numpy as np
import pytest
import sklearn.svm  # noqa: F401 (loaded, so that fits take libsvm's points whatever ran before)
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Examples stand in the package: tests are not read a second time for them."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


@pytest.hookimpl(tryfirst=True)  # before pytest looks at `-m`
def pytest_collection_modifyitems(items):
    """What `make test` leaves to `make test-all` is marked "slow", and what that leaves to `make test-every` "rare".

    Slow are runs of the examples and repetitions: rows of a cross product whose values all stand in rows before them,
    and, with the mark "one_row", all rows but the first. All but each sixth of them, and of the rows of slow tests, are
    rare, too; those of pages are not. Tests with the mark "later" are slow, with the rows that they have.
    """
    seen = defaultdict(set)
    for item in items:
        of_function = seen[item.nodeid.partition("[")[0]]
        rows = getattr(item, "callspec", None)
        new = {("", 0)} if rows is None else set(rows.indices.items())
        repeats = rows is not None and new <= of_function
        repeats |= item.get_closest_marker("one_row") is not None and bool(of_function)
        if repeats or "examples" in item.path.parts:
            item.add_marker(pytest.mark.slow)
        repeats |= rows is not None and item.get_closest_marker("slow") is not None and bool(of_function)
        if repeats and "pages" not in item.path.parts and zlib.crc32(item.nodeid.encode()) % 6:
            item.add_marker(pytest.mark.rare)
        if item.get_closest_marker("later") is not None:
            item.add_marker(pytest.mark.slow)
        of_function |= new


def pytest_collection_finish():
    """Collections of cycles leave out what is here by now: it stays, and looking at it takes 0.3 s a time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def draws_of_its_own(request):
    """A module's generators begin at a seed that is the test's name: the data depend on no other test and no order."""
    for value in list(vars(getattr(request.node, "module", None) or object).values()):
        if isinstance(value, np.random.Generator):
            seed = zlib.crc32(request.node.name.encode())
            value.bit_generator.state = np.random.default_rng(seed).bit_generator.state
