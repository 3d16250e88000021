"""scikit-learn estimators, most of them stated as a `ko.Problem`; they need scikit-learn.

`import kernelopt` does not import scikit-learn; the first use of `ko.estimators` does.
"""

from kernelopt.errors import MissingPackageError

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingPackageError("ko.estimators needs scikit-learn: pip install scikit-learn.") from error

from kernelopt.estimators.classification import KernelClassifier
from kernelopt.estimators.cross_validated import KernelClassifierCV, KernelRegressorCV
from kernelopt.estimators.feature_map import FeatureMap
from kernelopt.estimators.nu_forms import NuKernelClassifier, NuKernelRegressor
from kernelopt.estimators.one_class import OneClass
from kernelopt.estimators.pca import KernelPCA
from kernelopt.estimators.perceptron import KernelPerceptron
from kernelopt.estimators.regression import KernelQuantileRegressor, KernelRegressor
from kernelopt.estimators.stated import from_problem

__all__ = [
    "FeatureMap",
    "KernelClassifier",
    "KernelClassifierCV",
    "KernelPCA",
    "KernelPerceptron",
    "KernelQuantileRegressor",
    "KernelRegressor",
    "KernelRegressorCV",
    "NuKernelClassifier",
    "NuKernelRegressor",
    "OneClass",
    "from_problem",
]
