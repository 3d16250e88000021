"""Every row of the table of bad inputs, at every door that can meet it."""

from collections import Counter

import pytest
from bad_inputs import CASES, PAGE, ROWS, page

COUNTS = Counter()


def name(case):
    """Row and door, with a number where the row has several cases there."""
    COUNTS[case.row, case.door] += 1
    number = COUNTS[case.row, case.door]
    return f"{case.row}-{case.door}" + (f"-{number}" if number > 1 else "")


@pytest.mark.one_row
@pytest.mark.parametrize("case", [pytest.param(case, id=name(case)) for case in CASES])
def test_what_happens(case):
    case.check()


def test_every_row_has_a_case():
    assert {case.row for case in CASES} == set(ROWS)


def test_the_page_is_this_table():
    assert PAGE.read_text() == page()
