"""What to write in place of keywords of scikit-learn's kernel machines that our estimators do not have."""

from __future__ import annotations

Hints = dict[str, str]

# Of every estimator with a kernel by name.
KERNEL: Hints = {
    "kernel_params": "A kernel has its own: write kernel=ko.kernels.Gaussian(sigma=1.0), or a function of two points.",
    "sigma": "Write kernel=ko.kernels.Gaussian(sigma=1.0), or gamma=1 / (2 * sigma**2).",
    "random_state": "Leave it out: fits draw nothing at random.",
    "n_jobs": "Leave it out: threads are those of BLAS, OPENBLAS_NUM_THREADS.",
    "n_components": "FeatureMap(max_rank=n) makes n features, and KernelPCA(n_components=n) components.",
    "nu": "NuKernelClassifier, NuKernelRegressor and OneClass have it.",
    "epsilon": 'KernelRegressor("epsilon_insensitive", epsilon=0.1) has it.',
}
# Of every estimator that solves a problem.
SOLVED: Hints = {
    "max_iter": 'A fit ends at the tolerance tol; to end it earlier write solve_options={"time_limit": seconds}.',
    "cache_size": 'Memory is limited by solve_options={"memory_limit": bytes}.',
    "verbose": 'Write solve_options={"verbose": True}.',
    "shrinking": "Leave it out: it changes no optimum.",
}
FITS: Hints = KERNEL | SOLVED
NO_CLASSES: Hints = {
    "class_weight": "It has no classes; fit(X, y, sample_weight=w) has weights of rows.",
    "probability": "It has no classes, so leave it out.",
    "decision_function_shape": "It has no classes, so leave it out.",
    "break_ties": "It has no classes, so leave it out.",
}
CLASSES: Hints = {
    "probability": 'KernelClassifier("log_loss") has predict_proba; so has "multinomial".',
    "decision_function_shape": "Leave it out: decision_function has a column for each of several classes.",
    "break_ties": "Leave it out: predict is the largest column of decision_function.",
}
LOW_RANK: Hints = {
    "n_components": 'Write solve_options={"max_rank": n} for a fit with n columns of the kernel matrix; '
    "FeatureMap(max_rank=n) makes n features.",
}

_VALUES: Hints = {
    "alpha": "Write alphas=[alpha], with the values to choose from.",
    "C": "Write alphas=[1 / (2 * C)], with the values to choose from, as alpha is 1/(2C).",
}

CLASSIFIER: Hints = FITS | CLASSES | LOW_RANK | {"nu": "NuKernelClassifier(nu=0.5) has it."}
CLASSIFIER_CV: Hints = CLASSIFIER | _VALUES
REGRESSOR: Hints = FITS | NO_CLASSES | LOW_RANK | {"nu": "NuKernelRegressor(nu=0.5) has it."}
REGRESSOR_CV: Hints = REGRESSOR | _VALUES
QUANTILES: Hints = REGRESSOR | {"C": "Write alpha=1 / (2 * C)."}
_FRACTION = "Write nu=0.5, the fraction of rows on the wrong side of the margin, which takes its place."
NU_CLASSIFIER: Hints = FITS | CLASSES | LOW_RANK | {
    "C": f"{_FRACTION} KernelClassifier(C=1.0) has C.", "alpha": f"{_FRACTION} KernelClassifier(alpha=0.5) has alpha.",
}  # fmt: skip
NU_REGRESSOR: Hints = FITS | NO_CLASSES | LOW_RANK | {
    "alpha": "Write C=1 / (2 * alpha).",
    "epsilon": "Write nu=0.5, the fraction of rows outside the tube, whose ε is found: the attribute epsilon_.",
}  # fmt: skip
ONE_CLASS: Hints = FITS | NO_CLASSES | LOW_RANK | {
    "C": "Write nu=0.5, the fraction of outliers, which takes its place.",
    "alpha": "Write nu=0.5, the fraction of outliers, which takes its place.",
}  # fmt: skip
_UNWEIGHTED = {"class_weight": "It has no weights, of classes or rows."}
PCA: Hints = FITS | NO_CLASSES | _UNWEIGHTED | {
    "C": "Leave it out: components are not penalized. Write alpha=1.0 for the strength of inverse_transform.",
    "eigen_solver": 'Leave it out, or write solve_options={"solver": name} for another solver.',
    "iterated_power": "Leave it out: the eigenvalue problem is solved to tol.",
    "remove_zero_eig": "Write n_components=None for all components whose eigenvalue is above rounding.",
    "copy_X": "Leave it out: X is not changed.",
}  # fmt: skip
_NO_PENALTY = "Leave it out: it has no penalty. KernelClassifier has one."
PERCEPTRON: Hints = KERNEL | CLASSES | _UNWEIGHTED | {
    "C": _NO_PENALTY, "alpha": _NO_PENALTY,
    "tol": "Leave it out: it stops after a pass without mistakes; max_iter limits the passes.",
    "cache_size": "Leave it out: it keeps the kernel matrix.",
    "shrinking": SOLVED["shrinking"], "verbose": "Leave it out: it prints nothing.",
}  # fmt: skip
_MAP = "Leave it out: a feature map has no loss and no penalty; the estimator after it does."
FEATURE_MAP: Hints = KERNEL | NO_CLASSES | _UNWEIGHTED | {
    "C": _MAP, "alpha": _MAP, "shrinking": _MAP, "max_iter": _MAP, "epsilon": _MAP, "nu": _MAP,
    "n_components": "Write max_rank=n, with rank_tol=1e-14 for exactly n features where the rank allows.",
    "tol": "Write rank_tol=1e-8, the trace of the kernel matrix that the factor may omit.",
    "cache_size": "Leave it out: the factor takes 8·n·max_rank bytes.", "verbose": "Leave it out: it prints nothing.",
}  # fmt: skip
