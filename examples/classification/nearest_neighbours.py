r"""
Nearest neighbours in feature space
===================================

.. math:: \|F(x) - F(z)\|^2 = \kappa(x, x) - 2\kappa(x, z) + \kappa(z, z)

Distances in the feature space need kernel values only, and with them every method that looks at distances works on
whatever a kernel is defined for. For a Gaussian kernel the neighbours are those of the input space. For others they
are not, and strings have no input space to begin with.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import StandardScaler

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Two measurements of wines from three growers, half of them held out. The five nearest rows in the space of a Gaussian
# kernel are the five nearest in the plane, as 2 − 2exp(−d²/2σ²) grows with d. A polynomial kernel finds others, and so
# does the cosine, which sees directions only.

wines = load_wine()
Z = StandardScaler().fit_transform(wines.data[:, [0, 6]])
X, X_new, y, y_new = train_test_split(Z, wines.target, test_size=0.5, random_state=0)
in_plane = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X_new, return_distance=False)
kernels = {
    "Gaussian": ko.kernels.Gaussian(sigma=1.0),
    "polynomial": ko.kernels.Polynomial(degree=3),
    "cosine": ko.kernels.Linear().normalized(),
}
shares = {}
for name, kernel in kernels.items():
    found = ko.feature_space.nearest_neighbors(kernel, X_new, X, k=5).indices
    shares[name] = np.mean([np.isin(row, other) for row, other in zip(found, in_plane, strict=True)])
    print(f"{name}: {shares[name]:.1%} of the neighbours are those in the plane")

# %%
# Distances go into scikit-learn's ``KNeighborsClassifier`` as a precomputed matrix.


def classify(kernel, X, y, X_new, k):
    """The labels of new points by a vote of their k nearest rows in feature space."""
    distances = np.sqrt(ko.feature_space.squared_distances(kernel, X))
    model = KNeighborsClassifier(k, metric="precomputed").fit(distances, y)
    return model.predict(np.sqrt(ko.feature_space.squared_distances(kernel, X_new, X)))


for name, kernel in kernels.items():
    labels = classify(kernel, X, y, X_new, 5)
    print(f"{name}: {np.mean(labels == y_new):.1%} of the held-out wines are named rightly")

# %%
# Strings: sequences of four letters from two random sources, in which all letters are equally frequent and differ in
# what follows them. The spectrum kernel counts the substrings of three letters that two strings have in common, and its
# neighbours tell the sources apart. Agreement position by position, as in a Hamming distance, tells little.

rng = np.random.default_rng(0)
letters = np.array(list("ACGT"))
steps = np.array([[0.2, 0.4, 0.25, 0.15], [0.2, 0.15, 0.25, 0.4]])  # how far the next letter is, for each source
sources = np.tile([0, 1], 60)
shifts = [rng.integers(4) + np.cumsum(rng.choice(4, p=steps[source], size=200)) for source in sources]
strings = ["".join(letters[shift % 4]) for shift in shifts]
known, new = slice(0, 60), slice(60, 120)
traced = {}
for kernel in (ko.kernels.Spectrum(n=3), ko.kernels.PositionMatch()):
    labels = classify(kernel, strings[known], sources[known], strings[new], 3)
    traced[kernel] = np.mean(labels == sources[new])
    print(f"{kernel}: {traced[kernel]:.1%} of the new strings are traced to their source")

# %%
# All points at the same distance from one point (the cross) in feature space, with its ten nearest rows filled; and the
# distances of strings, ordered by their source.

z = np.array([[0.7, 0.4]])
first, second = np.meshgrid(np.linspace(-2.6, 2.6, 150), np.linspace(-2, 3.2, 150))
plane = np.column_stack([first.ravel(), second.ravel()])
figure, panels = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for axes, name in zip(panels, ("Gaussian", "polynomial"), strict=False):
    distances = np.sqrt(ko.feature_space.squared_distances(kernels[name], plane, z))
    levels = np.quantile(distances, np.linspace(0.02, 0.6, 6))
    axes.contour(first, second, distances.reshape(first.shape), levels=levels, colors="0.6", linewidths=0.8)
    nearest = ko.feature_space.nearest_neighbors(kernels[name], z, Z, k=10).indices[0]
    axes.scatter(*Z.T, s=14, facecolors="none", edgecolors="0.4", linewidths=0.7)
    axes.scatter(*Z[nearest].T, s=16, color="tab:blue")
    axes.plot(*z[0], "x", color="tab:red", markersize=9, markeredgewidth=2)
    axes.set(title=name, xlabel="alcohol, standardized", ylabel="flavanoids, standardized", aspect="equal")
order = np.argsort(sources, kind="stable")
distances = np.sqrt(ko.feature_space.squared_distances(ko.kernels.Spectrum(n=3), strings))
picture = panels[2].imshow(distances[np.ix_(order, order)], cmap="cividis")
figure.colorbar(picture, ax=panels[2], shrink=0.7, label="‖F(s) − F(t)‖")
panels[2].set(title="Spectrum(n=3)", xlabel="string", ylabel="string")
plt.show()
