"""Names of array types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
