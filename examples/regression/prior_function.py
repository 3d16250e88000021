r"""
A fit that stays near an earlier one
====================================

.. math:: \text{minimize} \quad \|A\theta - y\|^2 + \lambda\|\theta - \theta_0\|^2

θ₀ is a function that was fitted to many old data. The truth has changed a little since,
and there are few new data. The penalty draws θ to θ₀ instead of 0. With the kernel
matrix Q of the new points,

.. math:: \theta = \theta_0 + A^\top(Q + \lambda I)^{-1}(y - A\theta_0).
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# There are 300 old values, and 6 new ones. The new function is higher between 4 and 7,
# and the same elsewhere.

rng = np.random.default_rng(0)
old_truth = lambda X: np.sin(2 * X[:, 0]) + 0.3 * X[:, 0]
truth = lambda X: old_truth(X) + 0.8 * np.exp(-((X[:, 0] - 5.5) ** 2))
X_old = rng.uniform(0, 8, size=(300, 1))
y_old = old_truth(X_old) + 0.3 * rng.normal(size=300)
X = np.array([[3.4], [4.2], [5.0], [5.6], [6.4], [7.3]])
y = truth(X) + 0.1 * rng.normal(size=6)

# %%
# The earlier fit
# ---------------
# ``theta.value`` is an immutable function: a kernel, centers and coefficients.

kernel = ko.kernels.Gaussian(sigma=0.7)
earlier = ko.Theta(kernel)
squares = cp.sum_squares(earlier(X_old) - y_old)
ko.Problem(cp.Minimize(squares + ko.sum_squares(earlier))).solve()
f0 = earlier.value
print(f0)

# %%
# The new fit
# -----------
# It differs from regularized least squares in one place: ‖θ − θ₀‖ replaces ‖θ‖. For
# comparison, the same data are fitted with a penalty on ‖θ‖.

theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam", value=0.1)
problem = ko.Problem(
    cp.Minimize(cp.sum_squares(A @ theta - y) + lam * ko.norm(theta - f0) ** 2)
)
problem.solve()
fit = theta.value
print(problem.explain())
alone = ko.Theta(kernel)
squares = cp.sum_squares(alone(X) - y)
without = ko.Problem(cp.Minimize(squares + lam * ko.sum_squares(alone)))
without.solve()

grid = np.linspace(0, 8, 400)[:, None]
fig, ax = plt.subplots()
ax.plot(X_old, y_old, ".", color="0.8", label="old data")
ax.plot(X, y, "o", color="black", markersize=6, label="new data")
ax.plot(grid, fit(grid), label="near θ₀")
ax.plot(grid, alone.value(grid), label="near 0")
ax.plot(grid, f0(grid), ":", color="0.2", label="θ₀")
ax.set(xlabel="x", ylabel="θᵀF(x)", title="λ = 0.1")
fig.legend(loc="outside upper center", ncols=5)
plt.show()

# %%
# Left of the new data the fit near θ₀ keeps to what was known, and the other falls to
# 0.
#
# The closed form
# ---------------
# A correction with a center at each new point is added to θ₀. Its size is ‖θ − θ₀‖² =
# :math:`\alpha^\top Q\alpha`: how far the new data move the function.

Q = kernel(X)
alpha = np.linalg.solve(Q + lam.value * np.eye(len(y)), y - f0(X))
closed_form = f0(grid) + kernel(grid, X) @ alpha
distance = ko.norm(theta - f0).value
print(
    f"largest difference of the two curves: {np.abs(fit(grid) - closed_form).max():.1e}"
)
print(f"‖θ − θ₀‖² = {distance**2:.6f}, αᵀQα = {alpha @ Q @ alpha:.6f}")

# %%
# Errors for all λ
# ----------------
# Each penalty gets the best of 25 values of λ, by the error against the truth. The
# earlier fit is the limit λ → ∞.

rms = lambda f: np.sqrt(np.mean((f(grid) - truth(grid)) ** 2))
values = np.geomspace(1e-3, 1e3, 25)
errors = {}
for name, stated in (("near θ₀", problem), ("near 0", without)):
    path = ko.path(stated, lam, values, evaluate=lambda p: rms(p.thetas()[0].value))
    errors[name] = path["evaluation"]
    best = errors[name].argmin()
    print(f"{name:>8}: error {errors[name][best]:.3f} at λ = {values[best]:.3g}")
print(f" θ₀ only: error {rms(f0):.3f}")
fig, ax = plt.subplots()
ax.semilogx(values, errors["near θ₀"], label="near θ₀")
ax.semilogx(values, errors["near 0"], label="near 0")
ax.axhline(rms(f0), linestyle=":", color="0.2", label="θ₀ only")
ax.set(xlabel="λ", ylabel="root mean square error", ylim=(0, None))
ax.legend()
plt.show()
