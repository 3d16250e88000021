r"""
Kernel principal components, plain and centered
===============================================

.. math::

    \begin{array}{ll}
    \text{maximize}   & \|A\theta\| \\
    \text{subject to} & \|\theta\| \le 1, \quad u_j^\top A\theta = 0, \quad j = 1, \dots, k - 1
    \end{array}

The k-th component is the function of norm 1 that is largest over the rows among those whose values are orthogonal to
the values u₁, …, uₖ₋₁ of the components before. The problem is not convex, and solved exactly all the same, by
eigenvalues. Stated in this way, it takes further equalities, such as equal means in two groups, which no library has.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import StandardScaler

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 30 measurements of each of 569 tumours, and whether its mean radius is above the median.

data = load_breast_cancer()
X = StandardScaler().fit_transform(data.data)
large = data.data[:, 0] > np.median(data.data[:, 0])
N = len(X)

# %%
# One component after the other. ``also`` makes more equalities of the predictions.


def components(kernel, count, also=lambda u: []):
    """The problems, and the fitted functions, of the first components."""
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
    problems, functions = [], []
    for _ in range(count):
        deflation = [f(X) @ (A @ theta) == 0 for f in functions]
        constraints = [ko.norm(theta) <= 1, *deflation, *also(A @ theta)]
        problems.append(ko.Problem(cp.Maximize(cp.norm(A @ theta)), constraints))
        problems[-1].solve()
        functions.append(theta.value)
    return problems, functions


# %%
# Plain components: the optimal values are the square roots of the eigenvalues of Q, and the values at the rows the
# eigenvectors times them.

kernel = ko.kernels.Gaussian(sigma=8.0)
problems, functions = components(kernel, 3)
print(problems[-1].explain(), "\n")

eigenvalues, eigenvectors = np.linalg.eigh(kernel(X))
for k, (problem, f) in enumerate(zip(problems, functions, strict=True), start=1):
    scores = np.sqrt(eigenvalues[-k]) * eigenvectors[:, -k]
    apart = min(np.abs(f(X) - scores).max(), np.abs(f(X) + scores).max())
    print(f"component {k}: ‖Aθ‖² = {problem.value**2:.8f}, eigenvalue {eigenvalues[-k]:.8f}, scores apart {apart:.1e}")
first = functions[0](X)
print(f"without centering, the first component is positive in all rows: {first.min():.3f} to {first.max():.3f}")

# %%
# Centered components are those of the kernel of F(x) − mean, and ‖Aθ‖²/N their variance. They are the scores of
# scikit-learn's ``KernelPCA``, also of points that were not among the rows.

centered = kernel.centered(X)
centered_problems, centered_functions = components(centered, 3)
pca = KernelPCA(n_components=3, kernel="rbf", gamma=1 / (2 * 8.0**2), eigen_solver="dense").fit(X)
fresh = X[:100] + 0.3 * np.random.default_rng(0).normal(size=(100, X.shape[1]))
for points, name in ((X, "rows"), (fresh, "new points")):
    ours = np.column_stack([f(points) for f in centered_functions])
    print(f"{name}: largest difference of scores and KernelPCA's {np.abs(ours - pca.transform(points)).max():.1e}")
plain = np.column_stack([f(X) for f in centered_functions])

# %%
# One equality more: the mean of each component is the same for large and small tumours. What varies most is
# then nothing in which they differ on average.


def same_mean(u):
    return [cp.sum(u[large]) / large.sum() == cp.sum(u[~large]) / (~large).sum()]


blind_problems, blind_functions = components(centered, 2, same_mean)
blind = np.column_stack([f(X) for f in blind_functions])
for name, scores in (("centered", plain[:, :2]), ("with equal means", blind)):
    apart = scores[large].mean(axis=0) - scores[~large].mean(axis=0)
    print(f"{name}: variances {scores.var(axis=0).round(5)}, differences of the means {np.abs(apart).round(5)}")

# %%
# Both pairs of components. Markers of large radii are filled; vertical lines are means of the large and small ones.

figure, panels = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
titles = "centered kernel PCA", "equal means of large and small tumours"
for axes, scores, title in zip(panels, (plain, blind), titles, strict=True):
    for label, name, color, marker in ((0, "malignant", "tab:orange", "s"), (1, "benign", "tab:blue", "o")):
        for size, radius, face in ((True, "large", color), (False, "small", "none")):
            rows = (data.target == label) & (large == size)
            style = {"s": 16, "marker": marker, "edgecolors": color, "facecolors": face, "linewidths": 0.8}
            axes.scatter(*scores[rows, :2].T, **style, label=f"{name}, {radius}")
    for size, name, style in ((True, "mean, large", "-"), (False, "mean, small", ":")):
        axes.axvline(scores[large == size, 0].mean(), color="black", linestyle=style, linewidth=1.2, label=name)
    axes.set(xlabel="first component", ylabel="second component", title=title)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()
