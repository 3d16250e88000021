"""scikit-learn's scores, of data that are checked as those of a fit are."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import _num_samples

from kernelopt.estimators.sample import explained, require_data, require_numbers, row_weights
from kernelopt.support.types import Array


def score_weights(X: Any, y: Any, sample_weight: Any, is_numeric: bool = True) -> Array | None:
    """The weights for a score, None for equal ones. Raises ValueError for weights or y that no fit takes."""
    require_data(y, "y")
    if is_numeric:
        require_numbers(y)
    with explained("y"):
        assert_all_finite(y, input_name="y")
    return None if sample_weight is None else row_weights(sample_weight, _num_samples(X))


class Regressor(RegressorMixin):
    """A regressor's score, R²."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²: 1 is best, 0 that of the best constant, negative if predictions are worse."""
        return float(super().score(X, y, score_weights(X, y, sample_weight)))


class Classifier(ClassifierMixin):
    """A classifier's score, the accuracy."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The (weighted) share of rows whose class is predicted."""
        return float(super().score(X, y, score_weights(X, y, sample_weight, is_numeric=False)))
