"""Data of kernels on strings and other objects, in lists, columns and frames."""

import numpy as np
import pandas as pd
import pytest

import kernelopt as ko
from kernelopt.errors import DataTypeError

WORDS = ["ab", "ba", "aab"]


@pytest.mark.parametrize(
    "given",
    [
        np.array(WORDS),
        np.array(WORDS)[:, None],
        np.array(WORDS, dtype=object)[:, None],
        pd.Series(WORDS),
        pd.DataFrame({"word": WORDS}),
        pd.DataFrame({"word": pd.Series(WORDS, dtype="category")}),
    ],
)
def test_strings_in_a_column(given):
    kernel = ko.kernels.Spectrum(2)
    assert np.array_equal(kernel(given), kernel(WORDS))
    assert ko.Theta(kernel)(given).shape == (3,)


def test_several_columns_of_strings_are_refused():
    with pytest.raises(DataTypeError, match=r"strings in a list or in one column; got 2 columns\. Choose one"):
        ko.kernels.Spectrum(2)(pd.DataFrame({"a": WORDS, "b": WORDS}))
