"""Estimators that choose α by cross-validation, with one factor of the kernel matrix for all folds and values of α.

With `tune`, α and the kernel's parameters are chosen by gradients of the loss of rows left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from numbers import Real
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed

from kernelopt.errors import DataError, KernelOptError, OptionError, SolverError
from kernelopt.estimators import by_gradient, keywords
from kernelopt.estimators.classification import JOINT, OF_MARGINS, KernelClassifier, class_weights, numbered_classes
from kernelopt.estimators.model import KernelModel, loss_terms, options_of, positive, take
from kernelopt.estimators.regression import KernelRegressor
from kernelopt.estimators.sample import Sample, row_weights
from kernelopt.kernels import Kernel
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.model_selection.cross_validation import cross_validate, on_rows
from kernelopt.problem import Problem
from kernelopt.support.checks import is_integer, shown
from kernelopt.support.processes import number_of_processes
from kernelopt.support.types import Array, Ints

MANY = 1000  # values of α by their number: each takes a solve of each fold
# The least tolerance of the folds' fits: a gap of 1e-3 changes few predictions by more than other folds do.
COARSE = 1e-3
# C = 1/(2α) from 1e-4 to 1e4, the values of scikit-learn's LogisticRegressionCV.
LEAST, MOST = 0.5e-4, 0.5e4

# The remedy where groups of rows do not reach the splitter.
GIVE_FOLDS = "Or give the folds themselves: cv=list(GroupKFold().split(X, y, groups))."

Fold = tuple[Ints, Ints]


class _ChoosesAlpha(KernelModel):
    """Fits all α in all folds, scores them, and fits all rows with the best one."""

    alphas: Any
    cv: Any
    scoring: Any
    n_jobs: Any
    tune: Any
    # The remedy where no fold has a score.
    _why_no_score: ClassVar[str] = (
        'R² is none of a single row: set scoring="neg_mean_absolute_error", say, or folds of more rows.'
    )
    _known: Array | None = None  # in a copy that is scored: f at the rows left out
    _tuned: Kernel | None = None  # while all rows are fitted: the kernel that `tune` chose

    def _strength(self, outputs: int | None = None) -> float:
        return float(self.alpha_)

    def _theta_at(self, X: Any) -> Array:
        return super()._theta_at(X) if self._known is None else self._known

    def _chosen_kernel(self, X: Any, weights: Array) -> Kernel:
        return super()._chosen_kernel(X, weights) if self._tuned is None else self._tuned

    def _values(self) -> Array:
        """α in increasing order. Raises OptionError for values that are not numbers > 0."""
        alphas = self.alphas
        if is_integer(alphas) and 0 < alphas <= MANY:
            return np.geomspace(LEAST, MOST, int(alphas)) if alphas > 1 else np.ones(1)
        try:
            given = np.asarray(alphas, dtype=float)
        except (TypeError, ValueError, OverflowError):
            given = np.zeros(0)
        values = np.unique(given)
        if given.ndim != 1 or not len(values) or not np.all((values > 0) & np.isfinite(values)):
            raise OptionError(f"Expected alphas to be numbers > 0, or how many there shall be; got {alphas!r}.")
        return values

    def _all_predictions(
        self, kernel: Any, points: Any, labels: list[Any], base: Array, folds: list[Fold]
    ) -> list[Array]:
        """For each array of labels, f at the rows left out. Each process has consecutive folds, and one factor."""
        parts = np.array_split(np.arange(len(folds)), min(number_of_processes(self.n_jobs, "n_jobs"), len(folds)))
        found = Parallel(n_jobs=len(parts))(
            delayed(type(self)._predictions)(self, kernel, points, y, base, [folds[k] for k in part])
            for y in labels
            for part in parts
        )
        return [np.hstack(found[i : i + len(parts)]) for i in range(0, len(found), len(parts))]

    def _predictions(self, kernel: Any, points: Any, y: Any, base: Array, folds: list[Fold]) -> Array:
        """f at the rows left out, for each value and fold; None where a fit has no answer."""
        weights, alpha = cp.Parameter(len(base), nonneg=True, value=base), cp.Parameter(nonneg=True)
        theta, f, terms = self._fold_problem(kernel, points, y)
        problem = Problem(cp.Minimize(cp.sum(weights @ terms) + alpha * sum_squares(theta)))
        found = np.full((len(self.alphas_), len(folds)), None, dtype=object)
        numbers = dict[tuple[bytes, bytes], list[int]]()
        for k, (train, test) in enumerate(folds):
            numbers.setdefault((on_rows(train, base).tobytes(), test.tobytes()), []).append(k)

        def record(_: Problem, test: Ints) -> float:
            at = int(np.argmin(np.abs(self.alphas_ - float(alpha.value))))
            for k in numbers[weights.value.tobytes(), test.tobytes()]:
                found[at, k] = np.asarray(f.value)[test]
            return 0.0

        options = {"tol": max(positive(self, "tol"), COARSE), **options_of(self)}
        cross_validate(problem, weights, alpha, self.alphas_, cv=folds, loss=record, n_jobs=1, **options)
        return found

    def get_metadata_routing(self) -> MetadataRouter:
        """What `fit` takes itself, and what it passes on to `cv`, as scikit-learn's LassoCV."""
        passed_on = MethodMapping().add(caller="fit", callee="split")
        return MetadataRouter(owner=self).add_self_request(self).add(splitter=self.cv, method_mapping=passed_on)

    def _for_splitter(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data of rows that `cv` takes besides X and y. Raises OptionError without metadata routing."""
        if not given:
            return {}
        if not get_config()["enable_metadata_routing"]:
            raise OptionError(
                f"Expected X, y and sample_weight; got {', '.join(given)} too. As in scikit-learn's own estimators, "
                f"these go on to cv after sklearn.set_config(enable_metadata_routing=True). {GIVE_FOLDS}"
            )
        routed: Mapping[str, Any] = process_routing(self, "fit", **given).splitter.split
        return routed

    def _choose(  # noqa: PLR0917
        self, X: Any, y: Array, sample_weight: Any, labels: list[Any], given: Mapping[str, Any],
        of_classes: Array | None = None,
    ) -> None:  # fmt: skip
        """Choose α, and what `tune` names; predictions of several `labels` stand side by side.

        of_classes : weights of the rows' classes, which fits have and scores do not; None for a regressor
        """
        for_splitter = self._for_splitter(given)
        self.alphas_ = self._values()
        counts = row_weights(sample_weight, len(y))
        base = counts if of_classes is None else counts * of_classes
        rows = np.flatnonzero(base > 0)
        kernel, points = self._points(X, Sample(rows, counts[rows]))
        is_classifier = of_classes is not None
        self._require_number_of_folds(len(y))
        try:
            split = list(check_cv(self.cv, y, classifier=is_classifier).split(X, y, **for_splitter))
        except TypeError as error:
            raise OptionError(
                f"Expected cv to be a number, a splitter or pairs (train, test) of rows; got {shown(self.cv)}: {error}"
            ) from error
        except ValueError as error:
            if "groups" in str(error) and "groups" not in for_splitter:
                error.add_note(
                    "Write sklearn.set_config(enable_metadata_routing=True) and fit(X, y, groups=groups). " + GIVE_FOLDS
                )
            raise
        if not split:
            raise OptionError(f"Expected cv to give one fold or more; got none from {shown(self.cv)}.")
        place = np.full(len(y), -1)
        place[rows] = np.arange(len(rows))
        split = [(_row_numbers(train, len(y)), _row_numbers(test, len(y))) for train, test in split]
        folds = [(_kept(place[train]), _kept(place[test])) for train, test in split]
        if is_classifier:
            _require_classes(y[rows], folds)
        of_rows = [each[rows] for each in labels]
        for name in {"scores_", "search_", "gamma_", "scales_"} & set(vars(self)):
            delattr(self, name)
        if self.tune is False or self.tune is None:
            columns = self._all_predictions(kernel, points, of_rows, base[rows], folds)
            self._score(X, y, None if sample_weight is None else counts, rows, folds, columns)
        else:
            self._search(kernel, points, of_rows, base[rows], counts[rows], folds)

    def _require_number_of_folds(self, n: int) -> None:
        """Raise OptionError for a number that is none of folds; `check_cv` checks what is no number."""
        is_flag = isinstance(self.cv, (bool, np.bool_))
        if is_flag or (is_integer(self.cv) and not 2 <= self.cv <= n):
            raise OptionError(f"Expected cv to be from 2 to {n} folds of {n} rows; got {shown(self.cv)}.")

    def _search(  # noqa: PLR0917
        self, kernel: Kernel, points: Any, labels: list[Any], base: Array, counts: Array, folds: list[Fold]
    ) -> None:
        """Set `alpha_`, `gamma_` or `scales_`, `best_score_`, `search_`, and the kernel of the fit to all rows."""
        gamma = (
            self._gamma(points, counts) if isinstance(self.kernel, str) and self.kernel in by_gradient.BY_GAMMA else 1.0
        )
        shape = gamma, self.degree, self.coef0
        search = by_gradient.kernel_search(self.tune, self.kernel, kernel, shape, points)
        parts = [self._fold_problem(search.kernel, points, y) for y in labels]
        self.alpha_, found = by_gradient.searched(search, points, self.alphas_, base, folds, parts, options_of(self))
        self.best_score_, self.search_ = -found.value, found
        self._tuned = search.kernel.at_present()
        self.__dict__.update(search.attributes())

    def _score(  # noqa: PLR0917
        self, X: Any, y: Array, weights: Array | None, rows: Ints, folds: list[Fold], columns: list[Array]
    ) -> None:
        """Set `scores_`, `alpha_` and `best_score_` for predictions at the rows left out."""
        scorer = check_scoring(self, scoring=self.scoring)
        self.scores_ = np.full((len(self.alphas_), len(folds)), np.nan)
        answered, reason = np.zeros(self.scores_.shape, dtype=bool), self._why_no_score
        for k, (_, test) in enumerate(folds):
            left_out = rows[test]
            given = {} if weights is None else {"sample_weight": weights[left_out]}
            for i in range(len(self.alphas_)):
                parts = [found[i, k] for found in columns]
                answered[i, k] = all(part is not None for part in parts)
                if answered[i, k]:
                    view = self._view(parts[0] if len(parts) == 1 else np.column_stack(parts))
                    try:
                        score = scorer(view, take(X, left_out), y[left_out], **given)
                    except KernelOptError:
                        raise
                    except ValueError as error:  # as GridSearchCV: a score of these rows that is none
                        score, reason = np.nan, f"fold {k}: {error}"
                    self.scores_[i, k] = _number(score, self.scoring)
        means = self.scores_.mean(axis=1)
        if np.isnan(means).all() and answered.all(axis=1).any():
            raise DataError(
                f"Expected folds where the score of {type(self).__name__} is a number; there is none. {reason}"
            )
        if np.isnan(means).all():
            raise SolverError(
                f"Expected an alpha of {type(self).__name__} with an answer in every fold; there is none. Try other "
                "alphas, or fit the estimator without CV to see the status."
            )
        best = np.flatnonzero(means == np.nanmax(means))[-1]
        self.alpha_, self.best_score_ = float(self.alphas_[best]), float(means[best])

    def _view(self, predictions: Array) -> Self:
        """A copy whose predictions at any points are those of the rows left out."""
        view = copy(self)
        view._known = predictions
        view.intercept_ = 0.0
        return view

    def _fold_problem(self, kernel: Any, points: Any, y: Any) -> tuple[Theta, Any, Any]:
        """θ, f, and the loss of each row."""
        raise NotImplementedError


def _number(score: Any, scoring: Any) -> float:
    score = score.item() if isinstance(score, np.ndarray) and score.size == 1 else score
    if isinstance(score, Real):
        return float(score)
    raise OptionError(f"Expected scoring to name one score, a number; got {shown(score)} from {shown(scoring)}.")


def _row_numbers(part: Any, n: int) -> Ints:
    """Numbers of rows, from numbers or a mask. Raises OptionError for others."""
    given = np.asarray(part)
    if given.dtype == bool and given.shape == (n,):
        return np.flatnonzero(given)
    if given.size == 0:
        return np.arange(0)
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n:
        got = f"{given.min()} … {given.max()}" if given.dtype.kind in "iu" else shown(part)
        raise OptionError(f"Expected cv to give numbers of the {n} rows, 0 … {n - 1}, or masks of {n} rows; got {got}.")
    return given


def _require_classes(y: Array, folds: list[Fold]) -> None:
    """Raise DataError for a fold whose training rows are of one class: no classifier can be fitted to them."""
    for k, (train, _) in enumerate(folds):
        if len(train) and len(np.unique(y[train])) < 2:
            raise DataError(
                f"Expected training rows of at least two classes in each fold; those of fold {k} are of one, "
                f"{y[train[0]].item()!r}. Take stratified folds, cv=5 or StratifiedKFold."
            )


def _kept(places: Ints) -> Ints:
    """The rows that take part, in increasing order."""
    return np.sort(places[places >= 0])


class KernelRegressorCV(_ChoosesAlpha, KernelRegressor):
    """`KernelRegressor` with α chosen by cross-validation, as scikit-learn's RidgeCV chooses it.

    The kernel matrix is factored once for all folds and values of α, and each fit starts from that of the last value.
    `GridSearchCV(KernelRegressor(...), {"alpha": alphas})` gives the same where gamma does not depend on X, and factors
    one matrix per fit, or per fold with `solve_options={"cache": ko.FactorCache()}`.

    Parameters
    ----------
    loss, kernel, gamma, degree, coef0, fit_intercept, epsilon, delta, quantile, tol, solve_options :
        As in `KernelRegressor`. gamma="scale" refers to all rows. Fits of the folds are solved to max(tol, 1e-3).
    alphas : sequence of floats > 0, or int, default 10
        The values of α; a number n stands for n values from 5e-5 to 5e3, C = 1/(2α) from 1e4 to 1e-4.
    cv : int, splitter, or iterable of (train, test), default 5 folds
        As in scikit-learn's `cross_val_score`. For a splitter of groups, such as GroupKFold, switch metadata routing
        on, `sklearn.set_config(enable_metadata_routing=True)`, and call `fit(X, y, groups=groups)`.
    scoring : str or callable, optional
        A scorer of scikit-learn, larger is better; by default the estimator's `score`, R².
    n_jobs : int, optional
        Processes (of joblib) that fit folds at the same time; None for 1, or as `joblib.parallel_config` says, −1 for
        all cores. Each has a factor of its own; answers are the same up to the tolerance of the fits. A function
        `loss` must pickle, by cloudpickle.
    tune : False, True or "columns"
        Whether the choice is made by gradients (`ko.tune`) of the mean loss of rows left out, the estimator's own, in
        place of all values of α and of `scoring`: True for α, between the least and largest of `alphas`, and γ of a
        kernel by name, from the given one; "columns" for α and a length scale ℓⱼ in each column, κ(x/ℓ, y/ℓ), from 1.
        Length scales stay within a factor of 100. `n_jobs` has no effect then.

    Attributes
    ----------
    alpha_ : the value with the largest mean score; the largest of several
    best_score_ : its mean score
    alphas_ : the values in increasing order, (n,)
    scores_ : the score of each value in each fold, (n, folds); nan where a fit has no answer; not with `tune`
    search_, gamma_, scales_ : with `tune`, its table (`ko.Tuned`), γ, and length scales (columns,); `best_score_` is
        then minus the mean loss
    function_, intercept_, pivots_, coefficients_, certificate_ : of the fit to all rows, as in `KernelRegressor`

    Raises
    ------
    ValueError
        For invalid parameters, data and weights, and for folds without a row of positive weight.
    SolverError
        Where no value has an answer in every fold.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(80, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, size=80)
    >>> model = ko.estimators.KernelRegressorCV(
    ...     "absolute_error", alphas=[0.01, 0.1, 1, 10, 100]
    ... ).fit(X, y)
    >>> model.alpha_, model.scores_.shape
    (0.01, (5, 5))
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.REGRESSOR_CV
    _elsewhere: ClassVar[Mapping[str, str]] = {"tau": "quantile", "M": "delta"}

    def __init__(
        self, loss: Any = "squared_error", *, alphas: Any = 10, cv: Any = None, scoring: Any = None,
        n_jobs: int | None = None, tune: Any = False, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3,
        coef0: float = 1.0, fit_intercept: bool = True, epsilon: float = 0.1, delta: float = 1.0,
        quantile: float = 0.5, tol: float = 1e-6, solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            loss, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
            epsilon=epsilon, delta=delta, quantile=quantile, tol=tol, solve_options=solve_options,
        )  # fmt: skip
        del self.alpha, self.C
        self.alphas, self.cv, self.scoring, self.n_jobs, self.tune = alphas, cv, scoring, n_jobs, tune

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose α, then fit to points X (n, columns), or kernel values (n, n), and targets y (n,) or (n, outputs).

        With scikit-learn's metadata routing, further data of rows go on to `cv`: `groups` to GroupKFold.
        """
        points, targets = self._read_targets(X, y, multi_output=True)
        self._choose(points, targets, sample_weight, [targets], params)
        try:
            return super().fit(X, y, sample_weight)
        finally:
            self._tuned = None

    def _fold_problem(self, kernel: Any, points: Any, y: Any) -> tuple[Theta, Any, Any]:
        theta, f, _, terms = self._stated(kernel, points, y)
        return theta, f, terms


class KernelClassifierCV(_ChoosesAlpha, KernelClassifier):
    """`KernelClassifier` with α chosen by cross-validation, as scikit-learn's LogisticRegressionCV chooses C.

    The kernel matrix is factored once for all folds and values of α (once per class where each class is fitted against
    the rest), and each fit starts from that of the last value.

    Parameters
    ----------
    loss, kernel, gamma, degree, coef0, fit_intercept, tol, solve_options :
        As in `KernelClassifier`. gamma="scale" refers to all rows. Fits of the folds are solved to max(tol, 1e-3).
    class_weight : as in `KernelClassifier`
        "balanced" counts all rows. Classes weigh in fits, and not in scores, as in `LogisticRegressionCV`.
    alphas, cv : as in `KernelRegressorCV`; folds are stratified by default
    scoring : str or callable, optional
        A scorer of scikit-learn, larger is better; by default the estimator's `score`, the accuracy.
    n_jobs, tune : as in `KernelRegressorCV`

    Attributes
    ----------
    alpha_, best_score_, alphas_, scores_, search_, gamma_, scales_ : as in `KernelRegressorCV`
    classes_, function_, intercept_, pivots_, coefficients_, certificate_ : as in `KernelClassifier`

    Raises
    ------
    ValueError, SolverError
        As in `KernelClassifier` and `KernelRegressorCV`.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    >>> model = ko.estimators.KernelClassifierCV(
    ...     "log_loss", alphas=[0.01, 1, 100], scoring="neg_log_loss"
    ... ).fit(X, y)
    >>> model.alpha_, model.scores_.shape
    (0.01, (3, 5))
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.CLASSIFIER_CV
    _why_no_score: ClassVar[str] = (
        "Some scores are none where the rows left out are of one class: take stratified folds, or another scoring."
    )

    def __init__(
        self, loss: Any = "hinge", *, alphas: Any = 10, cv: Any = None, scoring: Any = None,
        n_jobs: int | None = None, tune: Any = False, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3,
        coef0: float = 1.0, fit_intercept: bool = True, class_weight: Any = None, tol: float = 1e-6,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            loss, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
            class_weight=class_weight, tol=tol, solve_options=solve_options,
        )  # fmt: skip
        del self.alpha, self.C
        self.alphas, self.cv, self.scoring, self.n_jobs, self.tune = alphas, cv, scoring, n_jobs, tune

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose α, then fit to points X (n, columns), or kernel values (n, n), and classes y (n,) of any kind.

        With scikit-learn's metadata routing, further data of rows go on to `cv`: `groups` to GroupKFold.
        """
        points, targets = self._read(X, y)
        counts = row_weights(sample_weight, len(points))
        of_classes = (
            np.ones(len(points)) if self.class_weight is None else class_weights(self.class_weight, targets, counts)
        )
        self.classes_, numbers = numbered_classes(targets, counts * of_classes)
        self._choose(points, np.asarray(targets), sample_weight, self._labels(numbers), params, of_classes)
        try:
            return super().fit(X, y, sample_weight)
        finally:
            self._tuned = None

    def _labels(self, numbers: Array) -> list[Array]:
        """Numbers of classes for a joint loss, else ±1 for each class against the rest."""
        K = len(self.classes_)
        if self._joint(K):
            return [numbers]
        return [np.where(numbers == k, 1.0, -1.0) for k in (range(K) if K > 2 else (1,))]

    def _fold_problem(self, kernel: Any, points: Any, y: Any) -> tuple[Theta, Any, Any]:
        joint = self._joint(len(self.classes_))
        K = None if joint is None else len(self.classes_)
        theta, b = Theta(kernel, K), self._intercept(() if K is None else K)
        f = theta(points)
        if b is not None:
            f = f + b if K is None else f + b[None, :]
        if joint is not None:
            return theta, f[:, 1] - f[:, 0] if K == 2 else f, JOINT[joint](y, f)
        return theta, f, loss_terms(self.loss, OF_MARGINS | JOINT, y, f)
