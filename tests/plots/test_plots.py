"""What pictures show: the data of what is drawn."""

import subprocess
import sys

import cvxpy as cp
import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons

import kernelopt as ko
from kernelopt import plots
from kernelopt.errors import DataError, DataTypeError, KernelOptError, MissingPackageError
from kernelopt.support import drawing, optional

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

X = np.linspace(0, 6, 40)[:, None]
Y = np.sin(X[:, 0])
P, LABELS = make_moons(60, noise=0.2, random_state=0)
SIGNS = 2 * LABELS - 1
GAUSSIAN = ko.kernels.Gaussian(sigma=0.7)


@pytest.fixture(autouse=True)
def figures():
    """Each call makes at most the one figure that it draws on; styles are as before, also after other tests."""
    plt.close("all")
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


def solved(outputs=None, penalty=0.1, **options):
    theta, b = ko.Theta(GAUSSIAN, outputs), cp.Variable() if outputs is None else cp.Variable((1, outputs))
    target = Y if outputs is None else np.outer(Y, np.arange(1.0, outputs + 1))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(target - theta(X) - b) + penalty * ko.sum_squares(theta)))
    problem.solve(**options)
    return problem, theta, b


def posed():
    """A posterior, and its θ."""
    problem, theta, _ = solved()
    return ko.posterior(problem), theta


def labels_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.later
def test_fit():
    _, theta, b = solved(tol=1e-2, max_rank=5)
    ax = plots.fit(lambda X: theta(X) + b, X, Y)
    data, curve = ax.lines
    assert np.array_equal(data.get_xydata(), np.column_stack([X[:, 0], Y]))
    x, values = curve.get_data()
    assert x[0] == 0 and x[-1] == 6 and np.allclose(values, (theta(x[:, None]) + b).value)
    (band,) = ax.collections
    bound = theta.value.optimality_bound(x[:, None])
    edges = band.get_paths()[0].vertices
    assert bound.max() > 1e-3 and np.isclose(edges[:, 1].max(), (values + bound).max())
    assert np.isclose(edges[:, 1].min(), (values - bound).min())
    assert labels_of(ax) == ["data", "optimality bound of θ", "fit"]


def test_fit_with_a_band_thinner_than_a_pixel():
    """The band is drawn, for those who enlarge the picture; the legend does not name what nobody sees."""
    _, theta, _ = solved(tol=1e-9)
    ax = plots.fit(theta, X, Y)
    assert len(ax.collections) == 1 and labels_of(ax) == ["data", "fit"]
    low, high = ax.get_ylim()
    assert 0 < theta.value.optimality_bound(X).max() * 2 * ax.bbox.height < high - low


@pytest.mark.slow
def test_fit_with_binding_constraints():
    """Ticks stand where a bound holds with equality."""
    theta = ko.Theta(GAUSSIAN)
    box = ko.everywhere(lambda P: theta(P) <= 0.2, X.min(), X.max())
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + 0.1 * ko.sum_squares(theta)), [box])
    assert box.binding is None
    with pytest.raises(KernelOptError, match="Solve first"):
        plots.fit(ko.Function(GAUSSIAN, X[:1], [1.0]), X, constraints=[box])
    problem.solve()
    ax = plots.fit(theta, X, Y, constraints=[box])
    ticks = next(line for line in ax.lines if line.get_label() == "constraint binds").get_xdata()
    assert 1 <= len(ticks) < len(box.points)
    assert theta.value(ticks[:, None]) == pytest.approx(0.2, abs=1e-4)
    apart = np.abs(theta.value(box.points) - 0.2) > 1e-3
    assert not set(box.points[apart, 0]) & set(ticks)
    assert "constraint binds" not in [line.get_label() for line in plots.fit(theta, X, Y).lines]


def test_fit_of_several_outputs():
    _, theta, b = solved(3)
    ax = plots.fit(lambda X: theta(X) + b, X)
    assert len(ax.lines) == 3 and len(ax.collections) == 3
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 3
    assert np.allclose(ax.lines[2].get_ydata(), (theta(ax.lines[2].get_xdata()[:, None]) + b).value[:, 2])


@pytest.mark.parametrize("kind", ["theta", "value", "predictor", "function", "two", "product"])
def test_fit_of_anything(kind):
    """The band is that of θ alone: where f is not θ plus something, there is none."""
    _, theta, b = solved()
    f, banded = {
        "theta": (theta, True),
        "value": (theta.value, True),
        "predictor": (ko.Predictor(theta(X) + b, X), False),
        "function": (ko.Function(GAUSSIAN, X[:2], [1.0, 2.0]), False),
        "two": (lambda X: theta(X) + theta(X + 1), False),
        "product": (lambda X: 2 * theta(X), False),
    }[kind]
    ax = plots.fit(f, X)
    assert len(ax.lines) == 1 and bool(ax.collections) == banded


@pytest.mark.later
def test_fit_without_a_bound():
    theta = ko.Theta(GAUSSIAN)
    ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y)), [ko.norm(theta) <= 2]).solve()
    assert not plots.fit(theta, X).collections


def test_posterior():
    """The mean, and a band of two standard deviations on each side."""
    problem, theta, b = solved()
    found = ko.posterior(problem, noise=0.01)
    ax = plots.posterior(found, lambda X: theta(X) + b, X, Y)
    data, curve = ax.lines
    assert np.array_equal(data.get_xydata(), np.column_stack([X[:, 0], Y]))
    x, mean = curve.get_data()
    rows = theta(x[:, None]) + b
    assert x[0] == 0 and x[-1] == 6 and np.allclose(mean, found.mean(rows))
    (band,) = ax.collections
    edges, width = band.get_paths()[0].vertices[:, 1], 2 * found.std(rows)
    assert np.isclose(edges.max(), (mean + width).max()) and np.isclose(edges.min(), (mean - width).min())
    assert labels_of(ax) == ["data", "±2 standard deviations", "posterior mean"]
    assert len(plots.posterior(found, theta.derivative(0), X).lines) == 1


def classifier():
    theta, b = ko.Theta(GAUSSIAN), cp.Variable()
    f = lambda X: theta(X) + b
    ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(SIGNS, f(P))) + 0.5 * ko.sum_squares(theta))).solve()
    return theta, f


@pytest.mark.later
def test_decision_regions():
    theta, f = classifier()
    ax = plots.decision_regions(f, P, SIGNS)
    below, above, lines, *classes, support = ax.collections
    assert np.array_equal(lines.levels, [-1, 0, 1]) and len(lines.get_paths()) == 3
    for path, level in zip(lines.get_paths(), (-1, 0, 1), strict=True):
        assert np.abs(f(path.vertices).value - level).max() < 0.02
    for at, sign in zip(classes, (-1, 1), strict=True):
        assert np.array_equal(at.get_offsets(), P[sign == SIGNS])
    nu = theta(P).dual_value
    assert np.array_equal(support.get_offsets(), P[np.abs(nu) > 1e-8 * np.abs(nu).max()])
    assert 5 < len(support.get_offsets()) < len(P)
    inside = [region.get_paths()[0].contains_points(P) for region in (below, above)]
    decided = f(P).value > 0
    assert np.mean(inside[0] == ~decided) > 0.95 and np.mean(inside[1] == decided) > 0.95
    assert labels_of(ax) == ["-1", "1", "support vectors"]


def test_no_circles_where_all_points_are_support_vectors():
    theta = ko.Theta(GAUSSIAN)
    ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(SIGNS, theta(P))) + 0.5 * ko.sum_squares(theta))).solve()
    assert (theta(P).dual_value != 0).all()
    assert labels_of(plots.decision_regions(theta, P, SIGNS)) == ["-1", "1"]


@pytest.mark.slow
def test_decision_regions_of_several_classes():
    B, c = make_blobs(80, centers=4, random_state=3)
    names = np.array(["a", "b", "c", "d"])[c]
    model = ko.estimators.KernelClassifier("log_loss", kernel=ko.kernels.Gaussian(sigma=3.0)).fit(B, names)
    ax = plots.decision_regions(model.decision_function, B, names)
    regions, boundaries, points = ax.collections[:4], ax.collections[4:8], ax.collections[8:]
    assert labels_of(ax) == ["a", "b", "c", "d"] and len(points) == 4
    assert len({p.get_paths()[0].vertices.tobytes() for p in points}) == 4  # markers
    for k, boundary in enumerate(boundaries):
        values = model.decision_function(np.concatenate([p.vertices for p in boundary.get_paths()]))
        others = np.delete(values, k, axis=1).max(axis=1)
        assert np.abs(values[:, k] - others).max() < 0.05 * np.abs(values).max()
    assert len({to_hex(r.get_facecolor()[0]) for r in regions}) == 4


def test_spectrum():
    problem, theta, _ = solved()
    ax = plots.spectrum(problem)
    exact, kept, cut = ax.lines
    expected = np.linalg.eigvalsh(GAUSSIAN(X))[::-1]
    number, values = exact.get_data()
    assert np.allclose(values, expected[number - 1]) and ax.get_yscale() == "log"
    rank = len(theta.value.pivots)
    assert len(kept.get_ydata()) == rank and cut.get_xdata()[0] == rank + 0.5
    assert np.allclose(kept.get_ydata()[:3], expected[:3], rtol=1e-6)
    assert labels_of(ax)[1].startswith(f"BBᵀ, rank {rank}, trace residual ")


@pytest.mark.slow
def test_spectrum_with_negative_eigenvalues():
    kernel = ko.kernels.Sigmoid()
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(P) - SIGNS) + ko.sum_squares(theta)))
    problem.solve(indefinite="clip")
    positive, negative, *_ = plots.spectrum(problem).lines
    values = np.linalg.eigvalsh(kernel(P))
    assert np.isclose(negative.get_ydata().max(), -values[0]) and negative.get_markerfacecolor() == "none"
    assert np.isclose(positive.get_ydata().max(), values[-1])


@pytest.mark.later
def test_spectrum_of_several_and_of_a_matrix(monkeypatch):
    thetas = [ko.Theta(ko.kernels.Gaussian(sigma=s)) for s in (0.1, 1.0)]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - sum(t(X) for t in thetas)) + sum(map(ko.norm, thetas))))
    problem.solve()
    ax = plots.spectrum(problem)
    assert [label.split(",")[0] for label in labels_of(ax)] == ["Q of θ₁", "BBᵀ of θ₁", "Q of θ₂", "BBᵀ of θ₂"]
    monkeypatch.setattr(plots, "LARGEST", 10)
    assert len(plots.spectrum(problem).lines) == 4  # Q is not formed
    assert len(plots.spectrum(ko.FeatureMatrix(X[:4], GAUSSIAN)).lines[0].get_xdata()) == 4


def test_gram():
    A = ko.FeatureMatrix(P, GAUSSIAN)
    (image,) = (ax := plots.gram(A, order=LABELS)).images
    rows = np.argsort(LABELS, kind="stable")
    assert np.allclose(image.get_array(), GAUSSIAN(P[rows])) and image.get_clim() == (0, 1)
    assert image.colorbar is not None and len(ax.figure.axes) == 2
    (signed,) = plots.gram(P @ P.T).images
    low, high = signed.get_clim()
    assert low == -high and signed.get_cmap().name == "PuOr"


def test_ticks_of_axes_that_count_are_whole_numbers():
    A = ko.FeatureMatrix(X[:7], GAUSSIAN)
    for axis in (plots.gram(A).xaxis, plots.gram(A).yaxis, plots.spectrum(A).xaxis):
        ticks = axis.get_majorticklocs()
        assert len(ticks) > 3 and (ticks == ticks.round()).all()
    _, own = plt.subplots()
    own.set_xticks([0.5, 1.5])
    assert plots.gram(A, ax=own).get_xticks().tolist() == [0.5, 1.5]


def test_path():
    theta, lam = ko.Theta(GAUSSIAN), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.sum_squares(theta)))
    table = ko.path(problem, lam, [0.1, 1.0, 10.0])
    ax = plots.path(table, y=["lower", "upper"])
    assert np.array_equal(ax.lines[1].get_ydata(), table["upper"])
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 2
    with pytest.raises(DataError, match=r"what ko.path returned"):
        plots.path(problem)


CALLS = {
    "fit": lambda ax: plots.fit(ko.Function(GAUSSIAN, X[:2], [1.0, 2.0]), X, Y, ax=ax),
    "posterior": lambda ax: plots.posterior(*posed(), X, Y, ax=ax),
    "decision_regions": lambda ax: plots.decision_regions(
        ko.Function(GAUSSIAN, P[:4], [-1.0, 2.0, 1.0, -2.0]), P, LABELS, ax=ax
    ),
    "spectrum": lambda ax: plots.spectrum(ko.FeatureMatrix(X, GAUSSIAN), ax=ax),
    "gram": lambda ax: plots.gram(ko.FeatureMatrix(X, GAUSSIAN), ax=ax),
}


@pytest.mark.parametrize("name", CALLS)
def test_axes_that_are_given(name):
    """They are drawn on and returned, and pyplot's current figure stays what it is."""
    current = plt.figure()
    ax = mpl.figure.Figure().subplots()
    assert CALLS[name](ax) is ax and ax.has_data()
    assert plt.gcf() is current and len(plt.get_fignums()) == 1 and not current.axes
    assert CALLS[name](None).figure is plt.gcf() and len(plt.get_fignums()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit", "decision_regions"])
def test_light_and_dark(name):
    """What is black on a light background is white on a dark one, whatever the style is called."""
    seen = {}
    for face in ("white", "black"):
        ax = mpl.figure.Figure().subplots()
        ax.set_facecolor(face)
        seen[face] = drawing.ink(CALLS[name](ax)), drawing.color(ax, 0)
    assert seen["white"][0] == "#111111" and seen["black"][0] == "#EEEEEE" and seen["white"][1] != seen["black"][1]
    figure = mpl.figure.Figure(facecolor="black")
    ax = figure.subplots()
    ax.set_facecolor("none")
    assert drawing.is_dark(ax)


def luminance(color):
    channels = np.array(mpl.colors.to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_colours_can_be_seen():
    """Contrasts (WCAG): 3 for the first three colours, which most pictures need, 1.5 for the rest."""
    for palette, background in ((drawing.ON_LIGHT, "white"), (drawing.ON_DARK, "black")):
        light = [sorted([luminance(c), luminance(background)]) for c in palette]
        contrast = [(high + 0.05) / (low + 0.05) for low, high in light]
        assert min(contrast[:3]) > 3 and min(contrast) > 1.5


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plots.fit(ko.Theta(GAUSSIAN), X), KernelOptError, "solve the problem first"),
        (
            lambda: plots.fit(ko.Function(GAUSSIAN, X[:1], [1.0]), X, constraints=[3]),
            DataError,
            "made by ko.everywhere",
        ),
        (
            lambda: plots.fit(
                ko.Function(GAUSSIAN, X[:1], [1.0]),
                X,
                constraints=[ko.everywhere(lambda P: 0, [0, 0], [1, 1])],
            ),
            DataError,
            "one column",
        ),
        (lambda: plots.fit(lambda X: X[:, 0], P), DataError, "points with 1 column"),
        (lambda: plots.fit(lambda X: X[:, 0], X, Y[:3]), DataError, r"y of shape \(40,\)"),
        (lambda: plots.fit(lambda X: 1.0, X), DataError, "a number .* per point"),
        (lambda: plots.decision_regions(lambda X: X[:, 0], X, Y), DataError, "points with 2 columns"),
        (lambda: plots.decision_regions(lambda X: X[:, 0], P, LABELS[:3]), DataError, "a label for each of 60"),
        (lambda: plots.decision_regions(lambda X: X[:, 0], P, 0 * LABELS), DataError, "2 to 2 classes"),
        (lambda: plots.decision_regions(lambda X: X, P, np.arange(60)), DataError, "2 to 2 classes"),
        (lambda: plots.posterior(X, GAUSSIAN, X), DataTypeError, r"the posterior to be one made by ko\.posterior"),
        (lambda: plots.posterior(posed()[0], 3, X), DataTypeError, "f to be a function of points"),
        (lambda: plots.posterior(posed()[0], ko.Theta(GAUSSIAN), P), DataError, "points with 1 column"),
        (lambda: plots.posterior(posed()[0], ko.Theta(GAUSSIAN), X, Y[:3]), DataError, r"y of shape \(40,\)"),
        (lambda: plots.posterior(posed()[0], lambda X: X[:, 0], X), DataError, "an expression of 400 numbers"),
        (lambda: plots.posterior(posed()[0], ko.Theta(GAUSSIAN), X), DataError, "whose posterior this is"),
        (lambda: plots.spectrum(X), DataError, "Problem or a ko.FeatureMatrix; got ndarray"),
        (lambda: plots.spectrum(ko.Problem(cp.Minimize(ko.norm(ko.Theta(GAUSSIAN))))), KernelOptError, "solve"),
        (lambda: plots.gram(X), DataError, "square array"),
        (lambda: plots.gram(np.eye(3), order=[1]), DataError, r"order of shape \(3,\)"),
        (lambda: plots.gram(ko.FeatureMatrix(np.zeros((4001, 1)), GAUSSIAN)), DataError, r"A\[::3\]"),
        (lambda: plots.gram(ko.FeatureMatrix(X, GAUSSIAN).derivative(0)), DataError, "of a derivative"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not plt.get_fignums()


@pytest.mark.slow
def test_matplotlib_is_imported_by_who_draws(monkeypatch):
    code = "import sys, kernelopt as ko; assert ko.plots.fit and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(optional.importlib, "import_module", missing)
    with pytest.raises(MissingPackageError, match=r"plots.fit\(\) needs matplotlib: pip install matplotlib"):
        CALLS["fit"](None)


def test_style():
    """Curves of one's own follow those of ko.plots: colour by colour, and line style by line style."""
    with plt.style.context("kernelopt.plots"):
        ax = plt.figure().subplots()
        curves = [ax.plot(Y)[0] for _ in drawing.ON_LIGHT]
    for k, curve in enumerate(curves):
        assert to_hex(curve.get_color()).upper() == drawing.color(ax, k)
        assert curve.get_linestyle() == drawing.STYLES[k % len(drawing.STYLES)]
