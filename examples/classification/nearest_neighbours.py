r"""
Nearest neighbours in feature space
===================================

.. math:: \|F(x) - F(z)\|^2 = \kappa(x, x) - 2\kappa(x, z) + \kappa(z, z)

Distances in the feature space need only kernel values. So every method based on
distances works on all data that a kernel is defined for. With a Gaussian kernel the
neighbours are those of the input space. With other kernels they are not, and strings
have no input space.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import StandardScaler

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# Three kernels
# -------------
# The data are two measurements of wines from three growers; half of the wines are held
# out. The five nearest rows in the space of a Gaussian kernel are the five nearest in
# the plane, as 2 − 2exp(−d²/2σ²) increases with d. A polynomial kernel finds others. So
# does the cosine, which depends only on directions.

wines = load_wine()
Z = StandardScaler().fit_transform(wines.data[:, [0, 6]])
X, X_new, y, y_new = train_test_split(Z, wines.target, test_size=0.5, random_state=0)
in_plane = (
    NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X_new, return_distance=False)
)
kernels = {
    "Gaussian": ko.kernels.Gaussian(sigma=1.0),
    "polynomial": ko.kernels.Polynomial(degree=3),
    "cosine": ko.kernels.Linear().normalized(),
}
shares = {}
for name, kernel in kernels.items():
    found = ko.feature_space.nearest_neighbors(kernel, X_new, X, k=5).indices
    pairs = zip(found, in_plane, strict=True)
    shares[name] = np.mean([np.isin(row, other) for row, other in pairs])
    print(f"{name}: {shares[name]:.1%} of the neighbours are those in the plane")

# %%
# Lines of equal distance from one point (the cross), and its ten nearest wines:

z = np.array([[1.0, -0.5]])
first, second = np.meshgrid(np.linspace(-2.6, 2.6, 150), np.linspace(-2, 3.2, 150))
plane = np.column_stack([first.ravel(), second.ravel()])
fig, ax = plt.subplots()
ax.scatter(*Z.T, s=14, color="0.75", linewidths=0)
styles = {"Gaussian": ("-", "o", 40, "C0"), "polynomial": ("--", "s", 90, "C1")}
for name, (line, marker, size, color) in styles.items():
    distance = np.sqrt(ko.feature_space.squared_distances(kernels[name], plane, z))
    levels = np.quantile(distance, [0.03, 0.15, 0.35])
    lines = {"colors": color, "linestyles": line, "linewidths": 1.2}
    ax.contour(first, second, distance.reshape(first.shape), levels=levels, **lines)
    nearest = ko.feature_space.nearest_neighbors(kernels[name], z, Z, k=10).indices[0]
    style = {"s": size, "marker": marker, "facecolors": "none", "edgecolors": color}
    ax.scatter(*Z[nearest].T, **style, label=f"ten nearest, {name}")
ax.plot(*z[0], "x", color="black", markersize=9, markeredgewidth=2)
ax.set(
    xlabel="alcohol, standardized", ylabel="flavanoids, standardized", aspect="equal"
)
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# Classification
# --------------
# scikit-learn's ``KNeighborsClassifier`` takes distances as a precomputed matrix.


def classify(kernel, X, y, X_new, k):
    """The labels of new points by a vote of their k nearest rows in feature space."""
    distances = np.sqrt(ko.feature_space.squared_distances(kernel, X))
    model = KNeighborsClassifier(k, metric="precomputed").fit(distances, y)
    return model.predict(np.sqrt(ko.feature_space.squared_distances(kernel, X_new, X)))


for name, kernel in kernels.items():
    labels = classify(kernel, X, y, X_new, 5)
    print(f"{name}: {np.mean(labels == y_new):.1%} of the held-out wines are right")

# %%
# Strings
# -------
# The strings are sequences of four letters from two random sources. All letters are
# equally frequent; the sources differ in what follows each letter. The spectrum kernel
# counts the common substrings of three letters, and its neighbours identify the source.
# Agreement position by position, as in a Hamming distance, does so much less often. The
# picture shows the distances of strings, ordered by source.

rng = np.random.default_rng(0)
letters = np.array(list("ACGT"))
# The probabilities of steps from a letter to the next, per source.
steps = np.array([[0.2, 0.4, 0.25, 0.15], [0.2, 0.15, 0.25, 0.4]])
sources = np.tile([0, 1], 60)
shifts = [
    rng.integers(4) + np.cumsum(rng.choice(4, p=steps[source], size=200))
    for source in sources
]
strings = ["".join(letters[shift % 4]) for shift in shifts]
known, new = slice(0, 60), slice(60, 120)
traced = {}
for kernel in (ko.kernels.Spectrum(n=3), ko.kernels.PositionMatch()):
    labels = classify(kernel, strings[known], sources[known], strings[new], 3)
    traced[kernel] = np.mean(labels == sources[new])
    print(
        f"{kernel}: {traced[kernel]:.1%} of the new strings are traced to their source"
    )
order = np.argsort(sources, kind="stable")
spectrum = ko.kernels.Spectrum(n=3)
distances = np.sqrt(ko.feature_space.squared_distances(spectrum, strings))
fig, ax = plt.subplots()
image = ax.imshow(distances[np.ix_(order, order)])
fig.colorbar(image, label="‖F(s) − F(t)‖")
ax.set(title="Spectrum(n=3)", xlabel="string", ylabel="string")
plt.show()
