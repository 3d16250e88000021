"""What holds for every test."""

import zlib

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def draws_of_its_own(request):
    """A module's generators begin at a seed that is the test's name: the data depend on no other test and no order."""
    for value in list(vars(getattr(request.node, "module", None) or object).values()):
        if isinstance(value, np.random.Generator):
            seed = zlib.crc32(request.node.name.encode())
            value.bit_generator.state = np.random.default_rng(seed).bit_generator.state
