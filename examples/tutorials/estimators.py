"""
In scikit-learn: pipelines, searches, and estimators of your own
================================================================

`ko.estimators` has an estimator for each common problem, and `from_problem` makes one
of any other. They have `fit`, `predict` and `score`, and work in pipelines, grid
searches and cross-validation. Each of them solves a problem of this library, and most
carry its certificate.
"""

# %%
# Regression in a pipeline
# ------------------------
# The data are 100 values with heavy tails over two columns of different scales. The
# search compares two losses and three values of σ, as with any estimator.

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC

import kernelopt as ko

plt.style.use("kernelopt.plots")

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, size=(100, 2)) * [6, 1000]
truth = np.sin(X[:, 0]) + X[:, 1] / 1000
y = truth + 0.5 * rng.standard_t(1.2, size=100)

regressor = ko.estimators.KernelRegressor(kernel=ko.kernels.Gaussian(sigma=1.0))
search = GridSearchCV(
    make_pipeline(StandardScaler(), regressor),
    {
        "kernelregressor__loss": ["squared_error", "absolute_error"],
        "kernelregressor__kernel__sigma": [0.5, 1.0, 2.0],
    },
    scoring="neg_median_absolute_error",
    cv=5,
).fit(X, y)
print("chosen:", search.best_params_)
best = search.best_estimator_
print(best[-1].certificate_)

# %%
# `KernelRegressorCV` chooses λ, `alpha` here. That is faster than a search, since one
# factor of the kernel matrix serves all folds and values.

distances = {}
for loss in ("absolute_error", "squared_error"):
    model = ko.estimators.KernelRegressorCV(
        loss, alphas=[0.1, 1.0, 10.0], cv=5, kernel=best[-1].kernel
    )
    fitted = make_pipeline(StandardScaler(), model).fit(X, y)
    distances[loss] = np.abs(fitted.predict(X) - truth).mean()
    print(f"{loss}: α = {fitted[-1].alpha_:g}, mean distance", end=" ")
    print(f"from the true function {distances[loss]:.2f}")

# %%
# Quantiles, and a tube
# ---------------------
# `KernelQuantileRegressor` fits several quantiles that do not cross at the data.
# `NuKernelRegressor` has a tube around its fit, with at most a fraction ν of the rows
# outside.

x = np.sort(rng.uniform(0, 5, size=(120, 1)), axis=0)
t = np.sqrt(x[:, 0]) * rng.normal(1, 0.3, size=120)
gaussian = ko.kernels.Gaussian(sigma=1.5)
levels = [0.1, 0.5, 0.9]
quantiles = ko.estimators.KernelQuantileRegressor(levels, alpha=0.1, kernel=gaussian)
quantiles.fit(x, t)
tube = ko.estimators.NuKernelRegressor(0.2, C=10.0, kernel=gaussian).fit(x, t)
below = (t[:, None] <= quantiles.predict(x) + 1e-6).mean(axis=0)
outside = np.mean(np.abs(t - tube.predict(x)) > tube.epsilon_ + 1e-6)
print(f"rows below the quantiles: {below.round(2)}, outside the tube: {outside:.2f}")

grid = np.linspace(0, 5, 300)[:, None]
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
for ax in (left, right):
    ax.plot(x, t, "o", color="0.7", markersize=3)
    ax.set(xlabel="x")
for level, curve in zip(levels, quantiles.predict(grid).T, strict=True):
    left.plot(grid, curve, label=f"{level:.0%}")
middle = tube.predict(grid)
right.plot(grid, middle, label="fit")
band = {"alpha": 0.2, "linewidth": 0, "label": "tube"}
right.fill_between(grid[:, 0], middle - tube.epsilon_, middle + tube.epsilon_, **band)
left.set(title="quantiles", ylabel="y")
right.set(title="ν = 0.2")
for ax in (left, right):
    ax.legend(loc="upper left")
plt.show()

# %%
# Classifiers side by side
# ------------------------
# The same cross-validation takes all of them: losses of `KernelClassifier`, with
# `alpha` chosen by `KernelClassifierCV`, the ν form, the perceptron, and linear
# classifiers of scikit-learn after `FeatureMap` or `KernelPCA`.

M, labels = make_moons(150, noise=0.25, random_state=1)
kernel = ko.kernels.Gaussian(sigma=0.7)
narrow = ko.kernels.Gaussian(sigma=0.2)  # a perceptron ends where classes are separable
classifiers = {
    "hinge": ko.estimators.KernelClassifier("hinge", alpha=0.3, kernel=kernel),
    "logistic": ko.estimators.KernelClassifier("log_loss", alpha=0.1, kernel=kernel),
    "logistic, α chosen": ko.estimators.KernelClassifierCV("log_loss", kernel=kernel),
    "ν = 0.3": ko.estimators.NuKernelClassifier(0.3, kernel=kernel),
    "perceptron": ko.estimators.KernelPerceptron(narrow),
    "features + linear": make_pipeline(
        ko.estimators.FeatureMap(kernel, max_rank=20), LogisticRegression()
    ),
    "components + linear": make_pipeline(
        ko.estimators.KernelPCA(8, kernel=kernel), LogisticRegression()
    ),
}
scores = {
    name: cross_val_score(model, M, labels, cv=5).mean()
    for name, model in classifiers.items()
}
for name, score in scores.items():
    print(f"{name:<22}{score:.1%}")

# %%
# `NuKernelClassifier` has the decision function of scikit-learn's `NuSVC`. Log losses
# have probabilities.

nu = classifiers["ν = 0.3"].fit(M, labels)
svc = NuSVC(nu=0.3, gamma=1 / (2 * 0.7**2), tol=1e-8).fit(M, labels)
apart = np.abs(nu.decision_function(M) - svc.decision_function(M)).max()
print(f"largest difference to NuSVC: {apart:.0e}")
logistic = classifiers["logistic"].fit(M, labels)
print("P(y = 1) of three rows:", logistic.predict_proba(M[:3])[:, 1].round(2))

ax = ko.plots.decision_regions(logistic.decision_function, M, labels)
ax.set_title("logistic loss")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# Novelties
# ---------
# `OneClass` finds a region without labels; at most a fraction ν of the rows is outside.

region = ko.estimators.OneClass(0.1, kernel=ko.kernels.Gaussian(sigma=0.5)).fit(M)
inside = region.decision_function(M) > -1e-6
print(f"rows outside the region: {np.mean(~inside):.2f}")
side = np.linspace(-2, 3, 120), np.linspace(-1.5, 2, 100)
points = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
fig, ax = plt.subplots()
ax.contour(
    *side, region.decision_function(points).reshape(100, 120), levels=[0], colors="C0"
)
ax.plot(*M[inside].T, "o", color="0.6", label="inside")
ax.plot(*M[~inside].T, "s", color="C1", label="outside")
ax.set(xlabel="x₁", ylabel="x₂")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# An estimator of your own
# ------------------------
# `from_problem` takes a function that states a problem. Its arguments with defaults are
# the parameters of the estimator, which a search can choose. This one is a median
# regression whose curve rises at all x in [0, 5].


def rising_median(X, y, lam=1.0, sigma=1.0):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    f = theta(X) + b
    loss = cp.sum(ko.losses.absolute_error(y, f)) + lam * ko.sum_squares(theta)
    rises = ko.everywhere(lambda P: theta.derivative(0)(P) >= 0, 0, 5)
    return ko.Problem(cp.Minimize(loss), [rises]), f


RisingMedian = ko.estimators.from_problem(rising_median)
grown = GridSearchCV(RisingMedian(sigma=1.0), {"lam": [0.1, 1.0]}, cv=3)
grown.fit(x, t)
rises = np.diff(grown.predict(grid))
print(f"chosen: {grown.best_params_}, smallest step {rises.min():.1e}")

fig, ax = plt.subplots()
ax.plot(x, t, "o", color="0.7", label="data")
ax.plot(grid, np.sqrt(grid[:, 0]), ":", color="black", label="true median")
ax.plot(grid, grown.predict(grid), "-", color="C0", label="rising median")
ax.set(xlabel="x", ylabel="y")
ax.legend(loc="upper left")
plt.show()
