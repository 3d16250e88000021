"""Pictures with matplotlib: a fit, a posterior, decision regions, the spectrum of Q, the kernel matrix, a path.

Each function draws on `ax`, or on the axes of a new figure, and returns the axes; the rest of matplotlib's state stays
as it is. Classes differ in colour and marker, curves in colour and line style, for print and for those who see fewer
colours (palette: Okabe and Ito 2008; cividis: Nuñez, Anderton and Renslow 2018). What is drawn in black on a light
background is drawn in white on a dark one. `plt.style.use("kernelopt.plots")` gives your own curves these colours and
line styles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError, KernelOptError
from kernelopt.kernels.domains import as_array, real_array
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import FeatureMatrix
from kernelopt.language.functions import Function
from kernelopt.language.nodes import Prediction, ThetaLeaf
from kernelopt.language.text import names
from kernelopt.model_selection.path_table import Path
from kernelopt.model_selection.posterior import Posterior
from kernelopt.problem import Problem
from kernelopt.results.solution import FittedFunction
from kernelopt.support.checks import require_callable, require_kind
from kernelopt.support.cvxpy_parts import AddExpression
from kernelopt.support.drawing import MARKERS, STYLES, axes, color, ink
from kernelopt.support.types import Array

FINE, COARSE = 400, 200  # points of a curve, and per side of a map: f is evaluated at 400 or 40 000 points
# Rows up to which a kernel matrix is formed to be drawn: 32 MB, and O(N³) for its eigenvalues.
LARGEST = 2000
# Relative to the largest multiplier: a row with more is a support vector, as in `ko.path`.
SUPPORT = 1e-8
WIDTH = 2  # standard deviations of a band on each side: 95 % of a Gaussian


def fit(
    f: Callable[[Any], Any], X: Any, y: Any = None, *, constraints: Sequence[Everywhere] = (), ax: Any = None
) -> Any:
    """Draw a function of one variable over the range of the data, with the data and a band that holds the optimum.

    If f is θ, or θ plus other terms, the band is ±√(κ(x, x)·gap/λ) and contains θᵀF(x) of an exact optimum
    (`theta.value.optimality_bound`). It is an error of optimization, and not a confidence interval. It is left out if
    there is no such bound. The legend names it where it is at least one pixel high.

    Parameters
    ----------
    f : function of points: `theta`, `theta.value`, `lambda X: theta(X) + b`, a `ko.Predictor`
        Several outputs are several curves.
    X : points (n, 1)
    y : observations (n,), optional
    constraints : list of `ko.everywhere`, optional
        Ticks mark the points at which they bind.
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    Axes

    Raises
    ------
    DataError
        For points, or boxes of constraints, of more than one column; for constraints of other kinds.
    KernelOptError
        Before a solve.
    MissingPackageError
        Without matplotlib.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import numpy as np, kernelopt as ko
    >>> f = ko.Function(ko.kernels.Gaussian(sigma=1.0), [[0.0], [2.0]], [1.0, -1.0])
    >>> ax = ko.plots.fit(f, [[0.0], [2.0]], [0.9, -0.9])
    >>> len(ax.lines[-1].get_xdata())
    400
    """
    points = _points(X, 1)
    observed = _observed(y, len(points))
    binding = _binding(constraints)
    x = np.linspace(points.min(), points.max(), FINE)
    values = _values(f, x[:, None])
    bound = _bound(f, x[:, None])
    ax = axes(ax, "ko.plots.fit()")
    if observed is not None:
        _draw_data(ax, points, observed)
    curves = values.reshape(FINE, -1).T
    bands = []
    for k, curve in enumerate(curves):
        label = "fit" if len(curves) == 1 else f"output {k}"
        if bound is not None:
            bands.append(ax.fill_between(x, curve - bound, curve + bound, color=color(ax, k), alpha=0.3, linewidth=0))
        ax.plot(x, curve, STYLES[k % len(STYLES)], color=color(ax, k), linewidth=2, label=label)
    if len(binding):
        at = {"transform": ax.get_xaxis_transform(), "color": ink(ax), "linewidth": 0, "markersize": 10}
        ax.plot(binding, np.full(len(binding), 0.02), "|", label="constraint binds", **at)
    if bound is not None and _is_visible(ax, bound):
        bands[0].set_label("optimality bound of θ")
    ax.set_xlabel("x")
    ax.legend()
    return ax


def _is_visible(ax: Any, widths: Array) -> bool:
    """Whether a band of these half widths is a pixel high somewhere."""
    low, high = ax.get_ylim()  # with what is drawn so far
    return bool(2 * widths.max() * ax.bbox.height >= abs(high - low))


def _binding(constraints: Sequence[Everywhere]) -> Array:
    """The points at which constraints bind, of one column."""
    require_kind(constraints, (Everywhere, list, tuple), "constraints", "a list of constraints made by ko.everywhere")
    boxes = [constraints] if isinstance(constraints, Everywhere) else list(constraints)
    for box in boxes:
        if not isinstance(box, Everywhere):
            raise DataError(f"Expected constraints made by ko.everywhere; got {box!r}.")
        if len(box.lower) != 1:
            raise DataError(f"Expected constraints on boxes of one column; got {len(box.lower)}.")
        if box.binding is None:
            raise KernelOptError("Expected constraints of a solved problem; got one without an answer. Solve first.")
    return np.concatenate([np.zeros(0), *(box.binding[:, 0] for box in boxes if box.binding is not None)])


def posterior(found: Posterior, f: Callable[[Any], Any], X: Any, y: Any = None, *, ax: Any = None) -> Any:
    """Draw the posterior mean of a function of one variable over the range of the data, with ±2 standard deviations.

    The band is of f, and not of new observations, to whose variance the noise adds.

    Parameters
    ----------
    found : Posterior, made by `ko.posterior`
    f : function of points whose value is an expression of one number per point
        `theta`, `lambda X: theta(X) + b`, `theta.derivative(0)`.
    X : points (n, 1)
    y : observations (n,), optional
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    Axes

    Raises
    ------
    DataError
        For points of more than one column, and values of f that are no expressions, one per point.
    MissingPackageError
        Without matplotlib.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import cvxpy as cp, kernelopt as ko
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 0.8, 0.9]
    >>> objective = cp.sum_squares(y - theta(X)) + 0.1 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> ax = ko.plots.posterior(ko.posterior(problem), theta, X, y)
    >>> len(ax.lines[-1].get_xdata())
    400
    """
    require_kind(found, Posterior, "the posterior", "one made by ko.posterior")
    require_callable(f, "f", "a function of points, such as theta")
    points = _points(X, 1)
    observed = _observed(y, len(points))
    x = np.linspace(points.min(), points.max(), FINE)
    rows = f(x[:, None])
    if not isinstance(rows, cp.Expression) or rows.shape != (FINE,):
        raise DataError(
            f"Expected f of {FINE} points to be an expression of {FINE} numbers, as theta(X) + b is; "
            f"got {type(rows).__name__} of shape {np.shape(rows)}."
        )
    mean, width = found.mean(rows), WIDTH * found.std(rows)
    ax = axes(ax, "ko.plots.posterior()")
    if observed is not None:
        _draw_data(ax, points, observed)
    shade = color(ax, 0)
    label = f"±{WIDTH} standard deviations"
    ax.fill_between(x, mean - width, mean + width, color=shade, alpha=0.3, linewidth=0, label=label)
    ax.plot(x, mean, STYLES[0], color=shade, linewidth=2, label="posterior mean")
    ax.set_xlabel("x")
    ax.legend()
    return ax


def _observed(y: Any, count: int) -> Array | None:
    """Observations to draw. Raises DataError for another number of them."""
    observed = None if y is None else real_array(y, "y")
    if observed is not None and observed.shape != (count,):
        raise DataError(f"Expected y of shape ({count},), one number per point; got {observed.shape}.")
    return observed


def _draw_data(ax: Any, points: Array, observed: Array) -> None:
    ax.plot(points[:, 0], observed, "o", color=ink(ax), alpha=0.45, markersize=4, linewidth=0, label="data")


def decision_regions(f: Callable[[Any], Any], X: Any, labels: Any, *, ax: Any = None) -> Any:
    """Draw the regions of a classifier of points in the plane, one per class, with margins and support vectors.

    For two classes f is one number per point, positive for the larger label. f = 0 is drawn as a line, and the margins
    f = ±1 are dashed. For K classes f is K numbers, and the largest one decides. If f is an expression of predictions,
    support vectors (points with a multiplier |νᵢ| > 1e-8·max|ν|) are circled, unless all points are support vectors.

    Parameters
    ----------
    f : function of points, such as `lambda X: theta(X) + b`, a `ko.Predictor`, or an estimator's `decision_function`
    X : points (n, 2)
    labels : (n,), the class of each
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    Axes

    Raises
    ------
    DataError
        For points that are not in the plane, or labels that do not fit them or f.
    KernelOptError
        Before a solve.
    MissingPackageError
        Without matplotlib.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import kernelopt as ko
    >>> f = ko.Function(
    ...     ko.kernels.Gaussian(sigma=1.0), [[0.0, 0.0], [2.0, 2.0]], [1.0, -1.0]
    ... )
    >>> ax = ko.plots.decision_regions(f, [[0.0, 0.0], [2.0, 2.0]], [1, -1])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['-1', '1']
    """
    points = _points(X, 2)
    given = as_array(labels, "labels")
    if given.shape != (len(points),):
        raise DataError(f"Expected a label for each of {len(points)} points; got shape {given.shape}.")
    try:
        classes, numbers = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise DataError("Expected labels of one kind, all numbers or all text; got a mixture.") from error
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    a, b = (np.linspace(low[j] - margin[j], high[j] + margin[j], COARSE) for j in (0, 1))
    values = _values(f, np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2))
    heights = _heights(values)
    if not 2 <= len(classes) <= len(heights):
        raise DataError(f"Expected labels of 2 to {len(heights)} classes, which f tells apart; got {len(classes)}.")
    ax = axes(ax, "ko.plots.decision_regions()")
    for k, height in enumerate(heights):
        if height.max() > 0:
            ax.contourf(a, b, height, levels=[0, height.max()], colors=[color(ax, k)], alpha=0.2)
    if values.ndim == 1:
        style = {"linestyles": ["--", "-", "--"], "linewidths": [1.0, 1.5, 1.0]}
        ax.contour(a, b, heights[1], levels=[-1, 0, 1], colors=[ink(ax)], **style)
    else:
        for height in heights:
            ax.contour(a, b, height, levels=[0], colors=[ink(ax)], linewidths=[1.5])
    for k, name in enumerate(classes):
        at, style = points[numbers == k], {"marker": MARKERS[k % len(MARKERS)], "linewidths": 0.5}
        ax.scatter(at[:, 0], at[:, 1], s=24, color=color(ax, k), edgecolors=ink(ax), **style, label=name)
    support = _support(f, points)
    if support.any() and not support.all():
        at = points[support]
        circle = {"s": 90, "facecolors": "none", "edgecolors": ink(ax), "linewidths": 1.0}
        ax.scatter(at[:, 0], at[:, 1], **circle, label="support vectors")
    ax.set_xlabel("x₁")
    ax.set_ylabel("x₂")
    ax.legend()
    return ax


def spectrum(A: Any, *, ax: Any = None) -> Any:
    """Draw the eigenvalues of Q = AAᵀ, and those of its factor.

    For a problem that was solved, the eigenvalues of BBᵀ of the factor Q ≈ BBᵀ are drawn too, with a line at its rank.
    Up to 2000 rows Q is formed for it; for more, only BBᵀ is drawn. Negative eigenvalues are drawn hollow, at their
    absolute values.

    Parameters
    ----------
    A : `ko.Problem` that was solved, or `ko.FeatureMatrix`
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    Axes

    Raises
    ------
    DataError
        For an A of another type, and for a feature matrix of more than 2000 rows.
    KernelOptError
        For a problem before its solve.
    MissingPackageError
        Without matplotlib.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import numpy as np, kernelopt as ko
    >>> A = ko.FeatureMatrix(np.arange(5.0)[:, None], ko.kernels.Polynomial(degree=2))
    >>> # of five rows, three eigenvalues that are not rounding
    >>> len(ko.plots.spectrum(A).lines[0].get_xdata())
    3
    """
    if isinstance(A, FeatureMatrix):
        exact = np.linalg.eigvalsh(_gram(A))[::-1]
        ax = axes(ax, "ko.plots.spectrum()")
        _eigenvalues(ax, exact, color(ax, 0), "o", "eigenvalues of Q")
    elif isinstance(A, Problem):
        ax = _problem_spectrum(A, ax)
    else:
        raise DataError(f"Expected a ko.Problem or a ko.FeatureMatrix; got {type(A).__name__}.")
    ax.set_yscale("log")
    _number(ax.xaxis)
    ax.set_xlabel("number")
    ax.set_ylabel("eigenvalue")
    ax.legend()
    return ax


def gram(A: Any, *, order: Any = None, ax: Any = None) -> Any:
    """Draw the kernel matrix Q = AAᵀ as an image with a colour bar.

    Matrices with negative entries get colours that diverge from zero.

    Parameters
    ----------
    A : `ko.FeatureMatrix`, or a square array
    order : (N,), optional
        Rows and columns are sorted by it, by labels for instance, so that classes stand out as blocks.
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    Axes

    Raises
    ------
    DataError
        For more than 2000 rows, a matrix that is not square, or an order of another length.
    MissingPackageError
        Without matplotlib.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import kernelopt as ko
    >>> ax = ko.plots.gram(
    ...     ko.FeatureMatrix([[0.0], [5.0], [0.1]], ko.kernels.Gaussian(sigma=1.0)),
    ...     order=[0, 1, 0],
    ... )
    >>> ax.images[0].get_array().round(2)[0].tolist()
    [1.0, 1.0, 0.0]
    """
    Q = _gram(A) if isinstance(A, FeatureMatrix) else real_array(A, "Q")
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or not Q.size:
        raise DataError(f"Expected a ko.FeatureMatrix, or a square array; got shape {Q.shape}.")
    if order is not None:
        if np.shape(order) != (len(Q),):
            raise DataError(f"Expected an order of shape ({len(Q)},); got {np.shape(order)}.")
        rows = np.argsort(np.asarray(order), kind="stable")
        Q = Q[np.ix_(rows, rows)]
    ax = axes(ax, "ko.plots.gram()")
    size = float(np.abs(Q).max())
    signed = Q.min() < -1e-12 * size  # entries that are negative by rounding keep the colours of nonnegative ones
    limits = {"vmin": -size, "vmax": size} if signed else {"vmin": 0.0, "vmax": size}
    image = ax.imshow(Q, cmap="PuOr" if signed else "cividis", interpolation="nearest", **limits)
    ax.figure.colorbar(image, ax=ax, label="κ(xᵢ, xⱼ)")
    _number(ax.xaxis)
    _number(ax.yaxis)
    ax.set_xlabel("j")
    ax.set_ylabel("i")
    return ax


def path(table: Path, x: str | None = None, y: Any = None, *, ax: Any = None) -> Any:
    """Draw columns of a path against each other: `table.plot(x, y, ax)`.

    Parameters
    ----------
    table : Path
    x : str, optional
        The column on the horizontal axis; by default the parameter.
    y : str or list of str, optional
        The columns that are drawn; by default those of `Path.plot`.
    ax : matplotlib Axes to draw on; by default of a new figure

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> lam = cp.Parameter(nonneg=True, name="lam")
    >>> objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> axes = ko.plots.path(ko.path(problem, lam, [10.0, 1.0, 0.1]), y=["lower", "upper"])
    >>> axes.get_xlabel()
    'lam'
    """
    if not isinstance(table, Path):
        raise DataError(f"Expected what ko.path returned; got {type(table).__name__}.")
    return table.plot(x, y, ax)


# ---------------------------------------------------------------- helpers


def _number(axis: Any) -> None:
    """Ticks of an axis that counts are whole numbers, unless the user chose them."""
    locator = axis.get_major_locator()
    if type(locator).__name__ == "AutoLocator":
        locator.set_params(integer=True)


def _points(X: Any, columns: int) -> Array:
    points = real_array(X, "X")
    if points.ndim != 2 or points.shape[1] != columns or not len(points):
        raise DataError(f"Expected points with {columns} column{'s' if columns > 1 else ''}; got shape {points.shape}.")
    return points


def _values(f: Callable[[Any], Any], X: Array) -> Array:
    """f at points, (n,) or (n, K)."""
    require_callable(f, "f", "a function of points, such as theta or theta.value")
    values = f(X)
    if isinstance(values, cp.Expression):
        values = values.value
    if values is None:
        raise KernelOptError("Expected a function with values; solve the problem first.")
    found = real_array(values, "the values of f")
    if found.ndim not in (1, 2) or len(found) != len(X):
        raise DataError(f"Expected f to give a number (or a row of numbers) per point; got shape {found.shape}.")
    return found


def _heights(values: Array) -> list[Array]:
    """The lead of each class over the others on the map's grid: positive where f decides for it."""
    columns = np.stack([-values, values], axis=1) if values.ndim == 1 else values
    heights = []
    for k in range(columns.shape[1]):
        others = np.delete(columns, k, axis=1).max(axis=1) if values.ndim == 2 else 0.0
        heights.append((columns[:, k] - others).reshape(COARSE, COARSE))
    return heights


def _bound(f: Callable[[Any], Any], X: Array) -> Array | None:
    """A bound on how far θᵀF(x) is from that of an optimum; None unless f is θ plus terms without θ and has a bound."""
    function: Function | None = f if isinstance(f, Function) else None
    if function is None:
        node = _prediction(f(X))
        function = None if node is None else node.data.theta.value
    if not isinstance(function, FittedFunction):
        return None
    try:
        return function.optimality_bound(X)
    except KernelOptError:
        return None


def _prediction(expression: Any) -> Prediction | None:
    """The prediction of an expression θ(X) + (what has no θ)."""
    if not isinstance(expression, AddExpression):
        return expression if isinstance(expression, Prediction) else None
    with_theta = [arg for arg in expression.args if any(isinstance(v, ThetaLeaf) for v in arg.variables())]
    return _prediction(with_theta[0]) if len(with_theta) == 1 else None


def _predictions(expression: Any) -> Iterator[Prediction]:
    if isinstance(expression, Prediction):
        yield expression
    for arg in getattr(expression, "args", []):
        yield from _predictions(arg)


def _support(f: Callable[[Any], Any], X: Array) -> Array:
    """Which of the points have a multiplier in some prediction of f(X)."""
    found = np.zeros(len(X), dtype=bool)
    for node in _predictions(f(X)):
        nu = node.dual_value
        if nu is not None and len(nu) == len(X):
            size = np.abs(nu).reshape(len(X), -1).max(axis=1)
            found |= size > SUPPORT * size.max()
    return found


def _gram(A: FeatureMatrix) -> Array:
    if A.function is not None or A.order:
        raise DataError("Expected rows at points; got those of a function, or of a derivative.")
    if len(A) > LARGEST:
        step = -(-len(A) // LARGEST)
        raise DataError(f"Expected at most {LARGEST} rows to draw; got {len(A)}. Draw some of them, A[::{step}].")
    return A.kernel(A.X)


def _problem_spectrum(problem: Problem, ax: Any) -> Any:
    if problem._factored is None:
        raise KernelOptError("Expected a problem that was solved; call solve() first.")
    reduction, _ = problem._by_columns()
    ax = axes(ax, "ko.plots.spectrum()")
    named = names(link.theta for link in reduction.form.predictions)
    for k, link in enumerate(reduction.form.predictions):
        factor = reduction.factors[link.theta]
        of = "" if len(named) == 1 else f" of {named[link.theta]}"
        if len(link.rows) <= LARGEST:
            exact = np.linalg.eigvalsh(link.rows.gram())[::-1]
            _eigenvalues(ax, exact, color(ax, k), "o", f"Q{of}, {len(link.rows)} rows")
        kept = factor.scale * factor.matrix.spectrum()
        cut = f"BBᵀ{of}, rank {factor.rank}, trace residual {factor.residual:.0e}"
        _eigenvalues(ax, kept, ink(ax), "x", cut)
        ax.axvline(factor.rank + 0.5, color=color(ax, k), linestyle="--", linewidth=1)
    return ax


def _eigenvalues(ax: Any, values: Array, shade: str, marker: str, label: str) -> None:
    """Draw eigenvalues larger than rounding against their number; hollow where they are negative."""
    if not len(values):
        return
    visible = np.abs(values) > len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    number = np.arange(1, len(values) + 1)
    style = {"color": shade, "linewidth": 0, "marker": marker, "markersize": 4}
    positive, negative = visible & (values > 0), visible & (values < 0)
    ax.plot(number[positive], values[positive], **style, label=label)
    if negative.any():
        hollow = style | {"markerfacecolor": "none"}
        ax.plot(number[negative], -values[negative], **hollow, label="negative, by size")
