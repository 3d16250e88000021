"""scikit-learn's own checks of estimators, all of them, without expected failures."""

import cvxpy as cp
import pytest

import kernelopt as ko

checks = pytest.importorskip("sklearn.utils.estimator_checks")
es = ko.estimators

# Checks fit what can't be separated, and tell of it in warnings that are meant.
pytestmark = [
    pytest.mark.filterwarnings("ignore:KernelPerceptron still makes mistakes"),
    pytest.mark.filterwarnings("ignore:Skipping check"),
    pytest.mark.filterwarnings("ignore:The fit explains"),  # targets in large units
    pytest.mark.filterwarnings(
        "ignore:The fit of .*Kernel.* is optimal_inaccurate"
    ),  # weights of 1e7 to 1, clipped matrices
    pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API"),
]


def least_squares(X, y, lam=0.1, sigma=3.0):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    f = theta(X) + b
    return ko.Problem(cp.Minimize(cp.sum_squares(y - f) + lam * ko.sum_squares(theta))), f


def any_number_of_classes(X, y, lam=0.1, sigma=3.0):
    """Labels ±1 of two classes, or numbers of more."""
    K = None if y.min() < 0 else int(y.max()) + 1
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma), outputs=K)
    loss = ko.losses.squared_hinge(y, theta(X)) if K is None else ko.losses.crammer_singer(y, theta(X))
    return ko.Problem(cp.Minimize(cp.sum(loss) + lam * ko.sum_squares(theta))), lambda X: theta(X)


# One class of each kind; `make test` leaves the others, and variants, to `make test-all`.
FEW = [es.KernelRegressor(), es.KernelPCA(), es.OneClass()]
OTHERS = [
    es.KernelRegressor("absolute_error"),
    es.KernelClassifier(),
    es.KernelClassifier("log_loss"),
    es.KernelRegressor(kernel="precomputed", solve_options={"indefinite": "clip"}),  # checks draw such matrices
    es.KernelClassifier(kernel="precomputed", solve_options={"indefinite": "clip"}),
    es.KernelRegressorCV("absolute_error", alphas=[0.1, 1.0], cv=3),
    es.KernelClassifierCV(alphas=[0.1, 1.0], cv=3),
    es.KernelRegressorCV(alphas=[0.1, 1.0], cv=3, tune=True),
    es.KernelQuantileRegressor(),
    es.NuKernelClassifier(nu=0.1),
    es.NuKernelRegressor(),
    es.KernelPerceptron(),
    es.FeatureMap(),
    es.from_problem(least_squares)(),
    es.from_problem(any_number_of_classes, kind="classifier")(),
]


@checks.parametrize_with_checks(FEW)
def test_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks.parametrize_with_checks(OTHERS)
def test_check_of_others(estimator, check):
    check(estimator)
