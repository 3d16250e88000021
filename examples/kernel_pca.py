"""Kernel principal component analysis, stated as in a lecture, and a variant that no library has.

    python examples/kernel_pca.py

maximize ‖Aθ‖²/N subject to ‖θ‖ ≤ 1 and orthogonality to what was found before, for breast_cancer; then, with one more
equality, components whose means are the same for large and small tumours. Compares with scikit-learn's KernelPCA, and
saves a picture.
"""

from pathlib import Path

import cvxpy as cp
import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import StandardScaler

import kernelopt as ko

mpl.use("Agg")
import matplotlib.pyplot as plt

SIGMA = 8.0


def load():
    """Standardized features, labels, and whether a tumour's mean radius is above the median."""
    data = load_breast_cancer()
    return StandardScaler().fit_transform(data.data), data.target, data.data[:, 0] > np.median(data.data[:, 0])


def components(X, count, also=lambda u: []):
    """The functions that vary most over the rows of X, one after the other: maximize ‖Aθ‖²/N with ‖θ‖ ≤ 1.

    The kernel is centered, so that this is their variance. Each is uncorrelated with those before; `also` makes more
    equalities of the centered predictions.
    """
    kernel = ko.kernels.Gaussian(sigma=SIGMA).centered(X)
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
    found, problems = [], []
    for _ in range(count):
        uncorrelated = [u @ (A @ theta) == 0 for u in found]
        problem = ko.Problem(
            cp.Maximize(cp.sum_squares(A @ theta) / len(X)), [ko.norm(theta) <= 1, *uncorrelated, *also(A @ theta)]
        )
        problem.solve()
        problems.append(problem)
        found.append((A @ theta).value)
    return np.array(found).T, problems


def picture(path, plain, blind, labels, large):
    """Both pairs of components, colored by label; large radii are filled."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    titles = "Kernel PCA", "Equal means of large and small tumours"
    for axes, scores, title in zip(panels, (plain, blind), titles, strict=True):
        for label, name, color in ((0, "malignant", "tab:red"), (1, "benign", "tab:blue")):
            for size, marker, face in ((True, "large", color), (False, "small", "none")):
                rows = (labels == label) & (large == size)
                axes.scatter(*scores[rows].T, s=18, edgecolors=color, facecolors=face, label=f"{name}, {marker}")
        for size, name, style in ((True, "mean, large", "-"), (False, "mean, small", ":")):
            mean = scores[large == size, 0].mean()
            axes.axvline(mean, color="0.3", linestyle=style, linewidth=1, zorder=0, label=name)
        axes.set(xlabel="first component", ylabel="second component", title=title)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=150)


def main():
    X, labels, large = load()
    plain, problems = components(X, 3)
    print("The third component of kernel PCA, declared\n")
    print(problems[-1].explain(), "\n")

    gram = ko.kernels.Gaussian(sigma=SIGMA)(X)
    pca = KernelPCA(n_components=3, kernel="precomputed", eigen_solver="dense").fit(gram)
    print("variance of a component    declared   KernelPCA   largest difference of scores")
    for k, problem in enumerate(problems):
        apart = np.abs(plain[:, k] - pca.transform(gram)[:, k]).max()
        print(
            f"  {k + 1}                       {problem.value:.6f}    {pca.eigenvalues_[k] / len(X):.6f}   {apart:.1e}"
        )

    blind, _ = components(X, 2, lambda u: [cp.sum(u[large]) / large.sum() == cp.sum(u[~large]) / (~large).sum()])
    print("\ncomponents with equal means of large and small tumours: variances", np.var(blind, axis=0).round(6))
    path = Path(__file__).with_suffix(".png")
    picture(path, plain[:, :2], blind, labels, large)
    print(f"Picture: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
