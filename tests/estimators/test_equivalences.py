"""Which arguments of scikit-learn's estimators give which of ours; docs/equivalences.md is this table.

python tests/estimators/test_equivalences.py    writes the page again
"""

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, QuantileRegressor
from sklearn.metrics.pairwise import chi2_kernel, polynomial_kernel
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import kernelopt.estimators as es

THEIRS = (KernelPCA, Nystroem, KernelRidge, LogisticRegression, QuantileRegressor, SVC, SVR, NuSVC, NuSVR, OneClassSVM)
PAGE = Path(__file__).parent.parent.parent / "docs" / "equivalences.md"
TOL = 1e-10  # of both: the table says how far predictions differ
RNG = np.random.default_rng(0)
X, Z = RNG.uniform(-2, 2, size=(60, 2)), RNG.uniform(-2, 2, size=(20, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=60)
LABELS = np.where(y > 0, "up", "down")
W = RNG.uniform(0.5, 2.0, size=60)
G = 0.4  # gamma


def named(text):
    """The estimator that a text stands for."""
    known = {kind.__name__: kind for kind in THEIRS}
    return eval(text, known | {"es": es, "G": G, "TOL": TOL, "polynomial_kernel": polynomial_kernel})


# scikit-learn's, ours, what is compared, and whether rows have weights
# fmt: off
ROWS = [
    ("SVC(C=2.0, gamma=G, tol=TOL)", "es.KernelClassifier(C=2.0, gamma=G, tol=TOL)", "decision_function", True),
    ("SVC(tol=TOL)", "es.KernelClassifier(tol=TOL)", "decision_function", False),
    ("SVR(tol=TOL)", "es.KernelRegressor('epsilon_insensitive', tol=TOL)", "predict", False),
    ("SVC(class_weight='balanced', tol=TOL)",
     "es.KernelClassifier(class_weight='balanced', tol=TOL)", "decision_function", False),
    (
        "SVC(C=2.0, kernel='poly', degree=2, gamma=G, coef0=1.0, tol=TOL)",
        "es.KernelClassifier(C=2.0, kernel='poly', degree=2, gamma=G, coef0=1.0, tol=TOL)", "decision_function", True,
    ),
    (
        "SVC(C=2.0, gamma=G, class_weight='balanced', tol=TOL)",
        "es.KernelClassifier(C=2.0, gamma=G, class_weight='balanced', tol=TOL)", "decision_function", False,
    ),
    ("NuSVC(nu=0.4, gamma=G, tol=TOL)", "es.NuKernelClassifier(nu=0.4, gamma=G, tol=TOL)", "decision_function", False),
    (
        "SVR(C=2.0, epsilon=0.1, gamma=G, tol=TOL)",
        "es.KernelRegressor('epsilon_insensitive', C=2.0, epsilon=0.1, gamma=G, tol=TOL)", "predict", True,
    ),
    ("NuSVR(nu=0.35, C=2.0, gamma=G, tol=TOL)",
     "es.NuKernelRegressor(nu=0.35, C=2.0, gamma=G, tol=TOL)", "predict", False),
    ("KernelRidge(alpha=0.3, kernel='rbf', gamma=G)",
     "es.KernelRegressor(alpha=0.3, gamma=G, fit_intercept=False, tol=TOL)", "predict", True),
    ("KernelRidge(kernel='rbf')", "es.KernelRegressor(gamma=None, fit_intercept=False, tol=TOL)", "predict", True),
    ("KernelRidge(alpha=0.3)", "es.KernelRegressor(alpha=0.3, kernel='linear', fit_intercept=False)", "predict", True),
    (
        "QuantileRegressor(quantile=0.7, alpha=0.0)",
        "es.KernelRegressor('quantile', quantile=0.7, alpha=0, kernel='linear', tol=1e-8)", "predict", True,
    ),
    ("OneClassSVM(nu=0.31, gamma=G, tol=TOL)", "es.OneClass(nu=0.31, gamma=G, tol=TOL)", "decision_function", False),
    ("KernelPCA(2, kernel='rbf', gamma=G)", "es.KernelPCA(2, gamma=G)", "transform", False),
    (
        "LogisticRegression(C=2.0, tol=TOL, max_iter=10000)",
        "es.KernelClassifier('log_loss', C=2.0, kernel='linear', tol=TOL)", "predict_proba", True,
    ),
    ("Nystroem(gamma=G, n_components=60)", "es.FeatureMap(gamma=G, rank_tol=1e-14)", "products", False),
    (
        "SVC(C=2.0, kernel=polynomial_kernel, tol=TOL)",
        "es.KernelClassifier(C=2.0, kernel=polynomial_kernel, tol=TOL)",
        "decision_function", False,
    ),
]
# fmt: on


def compared(theirs, ours, method, weighted):
    """The largest difference, relative to the largest value."""
    results = []
    for text in (theirs, ours):
        model = named(text)
        target = LABELS if hasattr(model, "predict_proba") or "Class" in type(model).__name__ or "SVC" in text else y
        fit = {"sample_weight": W} if weighted else {}
        model.fit(X, target, **fit)
        if method == "products":
            F = model.transform(Z)
            results.append(F @ F.T)
        elif method == "transform":
            results.append(np.abs(model.transform(Z)))  # components have either sign
        else:
            results.append(getattr(model, method)(Z))
    return np.abs(results[0] - results[1]).max() / np.abs(results[0]).max()


TEXT = """# Equivalences with scikit-learn

A test fits each pair on 60 rows of data in two columns, and compares predictions at new points. The largest
difference, relative to the largest prediction, is at most 1e-6. `TOL` is 1e-10, `G` is 0.4, and `es` is
`kernelopt.estimators`. Pairs marked with "yes" are also compared with random weights of rows.

| scikit-learn | here | compared | weights |
|---|---|---|---|
{rows}

The defaults and conventions differ as follows:

- `gamma="scale"` uses the weights of rows here, and not those of classes. scikit-learn uses neither.
- `coef0` is 1 by default here, and 0 in `SVC`.
- `KernelClassifier` fits several classes one against the rest, where `SVC` fits pairs. `NuKernelClassifier` fits
  pairs, as `NuSVC` does. It uses `class_weight`, which `NuSVC` ignores.
- scikit-learn's `KernelRidge` has a linear kernel by default, and no intercept.
- Our `KernelPCA` makes the first of the largest scores positive.
- `GaussianProcessClassifier` approximates an integral. No estimator here does; log-loss with α = ½ and no intercept
  gives its mode, and `ko.posterior` of the stated problem its latent mean, variance and log marginal likelihood.
"""


def page():
    rows = [f"| `{a}` | `{b}` | {method} | {'yes' if weighted else '–'} |" for a, b, method, weighted in ROWS]
    return TEXT.format(rows="\n".join(rows))


@pytest.mark.one_row
@pytest.mark.parametrize(("theirs", "ours", "method", "weighted"), ROWS, ids=[row[0] for row in ROWS])
def test_equivalence(theirs, ours, method, weighted):
    assert compared(theirs, ours, method, weighted) < 1e-6


def test_the_page_is_this_table():
    assert PAGE.read_text() == page()


def test_matrix_functions_are_kernels():
    positive = np.abs(X)
    model = es.KernelClassifier(C=2.0, kernel=chi2_kernel).fit(positive, LABELS)
    known = SVC(C=2.0, kernel=chi2_kernel, tol=1e-8).fit(positive, LABELS)
    assert np.abs(model.decision_function(np.abs(Z)) - known.decision_function(np.abs(Z))).max() < 1e-3


if __name__ == "__main__":
    PAGE.write_text(page())
    for row in ROWS:
        print(f"{compared(*row):.1e}  {row[0]}")
