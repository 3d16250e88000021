r"""
Kernel principal components, plain and centered
===============================================

.. math::

    \begin{array}{ll}
    \text{maximize}   & \|A\theta\| \\
    \text{subject to} & \|\theta\| \le 1, \quad u_j^\top A\theta = 0, \quad j = 1
     \dots, k - 1
    \end{array}

The k-th component is the function of norm 1 with the largest values on the rows, among
those whose values are orthogonal to the values u₁, …, uₖ₋₁ of the components before.
The problem is not convex, but eigenvalues solve it exactly. In this form it takes
further equalities, such as equal means of two groups, which no library offers.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import StandardScaler

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are 30 measurements of each of 569 tumours, and whether its mean radius is
# above the median.

data = load_breast_cancer()
X = StandardScaler().fit_transform(data.data)
large = data.data[:, 0] > np.median(data.data[:, 0])
N = len(X)

# %%
# One component after the other
# -----------------------------
# The argument ``also`` adds further equality constraints on the predictions.


def components(kernel, count, also=lambda u: []):
    """The problems, and the fitted functions, of the first components."""
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
    problems, functions = [], []
    for _ in range(count):
        deflation = [f(X) @ (A @ theta) == 0 for f in functions]
        constraints = [ko.norm(theta) <= 1, *deflation, *also(A @ theta)]
        largest = cp.Maximize(cp.norm(A @ theta))
        problems.append(ko.Problem(largest, constraints))
        problems[-1].solve()
        functions.append(theta.value)
    return problems, functions


# %%
# For plain components the optimal values are the square roots of the eigenvalues of Q.
# The values at the rows are the eigenvectors times these roots.

kernel = ko.kernels.Gaussian(sigma=8.0)
problems, functions = components(kernel, 3)
print(problems[-1].explain(), "\n")

eigenvalues, eigenvectors = np.linalg.eigh(kernel(X))
for k, (problem, f) in enumerate(zip(problems, functions, strict=True), start=1):
    scores = np.sqrt(eigenvalues[-k]) * eigenvectors[:, -k]
    apart = min(np.abs(f(X) - scores).max(), np.abs(f(X) + scores).max())
    values = f"‖Aθ‖² = {problem.value**2:.8f}, eigenvalue {eigenvalues[-k]:.8f}"
    print(f"component {k}: {values}, scores differ by at most {apart:.1e}")
first = functions[0](X)
print("without centering, the first component is positive in all rows:", end=" ")
print(f"{first.min():.3f} to {first.max():.3f}")

# %%
# Centered components
# -------------------
# They are those of the kernel of F(x) − mean, and ‖Aθ‖²/N is their variance.
# scikit-learn's ``KernelPCA`` has the same scores, also at new points. In the picture
# markers of large tumours are filled. The vertical lines are the means of large and of
# small tumours.

centered = kernel.centered(X)
centered_problems, centered_functions = components(centered, 3)
pca = KernelPCA(3, kernel="rbf", gamma=1 / (2 * 8.0**2), eigen_solver="dense").fit(X)
fresh = X[:100] + 0.3 * np.random.default_rng(0).normal(size=(100, X.shape[1]))
for points, name in ((X, "rows"), (fresh, "new points")):
    ours = np.column_stack([f(points) for f in centered_functions])
    apart = np.abs(ours - pca.transform(points)).max()
    print(f"{name}: scores differ from KernelPCA's by at most {apart:.1e}")
plain = np.column_stack([f(X) for f in centered_functions])


def picture(scores):
    """The first two scores; the colour is the diagnosis, filled markers are large."""
    fig, ax = plt.subplots(figsize=(6.4, 4.6))
    kinds = ((0, "malignant", "C1", "s"), (1, "benign", "C0", "o"))
    for label, name, color, marker in kinds:
        for size, radius, face in ((True, "large", color), (False, "small", "none")):
            rows = (data.target == label) & (large == size)
            style = {"marker": marker, "edgecolors": color, "facecolors": face}
            dots = {"s": 18, "linewidths": 0.8, "label": f"{name}, {radius}"}
            ax.scatter(*scores[rows, :2].T, **style, **dots)
    for size, name, style in ((True, "mean, large", "-"), (False, "mean, small", ":")):
        mean = scores[large == size, 0].mean()
        ax.axvline(mean, color="black", linestyle=style, label=name)
    ax.set(xlabel="first component", ylabel="second component")
    fig.legend(loc="outside upper center", ncols=3)


picture(plain)
plt.show()

# %%
# Equal means
# -----------
# One more equality per component: its mean is the same for large and small tumours. The
# directions of largest variance then show nothing in which the two groups differ on
# average.


def same_mean(u):
    return [cp.sum(u[large]) / large.sum() == cp.sum(u[~large]) / (~large).sum()]


blind_problems, blind_functions = components(centered, 2, same_mean)
blind = np.column_stack([f(X) for f in blind_functions])
for name, scores in (("centered", plain[:, :2]), ("with equal means", blind)):
    apart = scores[large].mean(axis=0) - scores[~large].mean(axis=0)
    variances = f"variances {scores.var(axis=0).round(5)}"
    print(f"{name}: {variances}, differences of means {np.abs(apart).round(5)}")

picture(blind)
plt.show()
