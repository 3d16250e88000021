"""The quickstart: the declared SVM is scikit-learn's, the robust one is what it says."""

import numpy as np
import pytest
from running import example


@pytest.mark.slow
def test_quickstart():
    names = example("quickstart")
    decisions, theta = names["decisions"], names["theta_robust"].value
    np.testing.assert_allclose(decisions["declared SVM"], decisions["SVC (scikit-learn)"], atol=2e-4)
    assert names["svm"].status == names["robust"].status == "optimal"
    margins = names["y"] * (theta(names["X"]) + names["b_robust"].value)
    value = np.maximum(0, 1 - margins + 0.15 * theta.norm).sum() + theta.norm**2 / 6
    assert names["robust"].value == pytest.approx(value, rel=1e-9)
    assert theta.norm < names["theta"].value.norm
    assert names["path"].exists()
