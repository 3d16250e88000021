r"""
A fit that stays near an earlier one
====================================

.. math:: \text{minimize} \quad \|A\theta - y\|^2 + \lambda\|\theta - \theta_0\|^2

θ₀ is a function that was fitted before, to many old data. What it describes has changed a little since, and there are
few new data. The penalty draws θ to θ₀ in place of 0. With the kernel matrix Q of the new points,

.. math:: \theta = \theta_0 + A^\top(Q + \lambda I)^{-1}(y - A\theta_0).
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 300 old values, and 6 new ones of a function that is higher between 4 and 7, and elsewhere the same.

rng = np.random.default_rng(0)
old_truth = lambda X: np.sin(2 * X[:, 0]) + 0.3 * X[:, 0]
truth = lambda X: old_truth(X) + 0.8 * np.exp(-((X[:, 0] - 5.5) ** 2))
X_old = rng.uniform(0, 8, size=(300, 1))
y_old = old_truth(X_old) + 0.3 * rng.normal(size=300)
X = np.array([[3.4], [4.2], [5.0], [5.6], [6.4], [7.3]])
y = truth(X) + 0.1 * rng.normal(size=6)

# %%
# The earlier fit. ``theta.value`` is a function that does not change any more: its centers and coefficients, and
# its kernel.

kernel = ko.kernels.Gaussian(sigma=0.7)
earlier = ko.Theta(kernel)
ko.Problem(cp.Minimize(cp.sum_squares(earlier(X_old) - y_old) + 1.0 * ko.sum_squares(earlier))).solve()
f0 = earlier.value
print(f0)

# %%
# The new problem differs from regularized least squares in one place, ‖θ − θ₀‖ for ‖θ‖.

theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
lam = cp.Parameter(nonneg=True, name="lam", value=0.1)
problem = ko.Problem(cp.Minimize(cp.sum_squares(A @ theta - y) + lam * ko.norm(theta - f0) ** 2))
problem.solve()
fit = theta.value
print(problem.explain())

# %%
# The closed form: a correction with a center at each new point is added to θ₀. ‖θ − θ₀‖² is
# :math:`\alpha^\top Q\alpha`, how far the new data move the function.

Q = kernel(X)
alpha = np.linalg.solve(Q + lam.value * np.eye(len(y)), y - f0(X))
grid = np.linspace(0, 8, 400)[:, None]
closed_form = f0(grid) + kernel(grid, X) @ alpha
distance = ko.norm(theta - f0).value
print(f"largest difference of the two curves: {np.abs(fit(grid) - closed_form).max():.1e}")
print(f"‖θ − θ₀‖² = {distance**2:.6f}, αᵀQα = {alpha @ Q @ alpha:.6f}")

# %%
# For comparison: the same data with a penalty on ‖θ‖, and the earlier fit as it is. Both have the
# best of 25 values of λ, by the error that only the truth can tell; the earlier fit is what λ → ∞ leads to.

alone = ko.Theta(kernel)
without = ko.Problem(cp.Minimize(cp.sum_squares(alone(X) - y) + lam * ko.sum_squares(alone)))
rms = lambda f: np.sqrt(np.mean((f(grid) - truth(grid)) ** 2))
values = np.geomspace(1e-3, 1e3, 25)
errors = {}
for name, stated in (("near θ₀", problem), ("near 0", without)):
    path = ko.path(stated, lam, values, evaluate=lambda p: rms(p.thetas()[0].value))
    errors[name] = path["evaluation"]
    print(f"{name:>8}: error {errors[name].min():.3f} at λ = {values[errors[name].argmin()]:.3g}")
print(f" θ₀ only: error {rms(f0):.3f}")

# %%
# Left of the new data the fit near θ₀ keeps to what was known, and the other falls to 0.

lam.value = 0.1
without.solve()
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(3, 2))
left.plot(X_old, y_old, ".", color="0.8", markersize=4, label="old data")
left.plot(grid, f0(grid), ":", color="0.3", label="θ₀")
left.plot(grid, alone.value(grid), "--", color="tab:orange", label="near 0")
left.plot(grid, fit(grid), color="tab:blue", label="near θ₀")
left.plot(X, y, "o", color="black", markersize=5, label="new data")
left.set(xlabel="x", ylabel="θᵀF(x)", title="λ = 0.1", ylim=(-1.2, 6))
left.legend(frameon=False, ncols=2, loc="upper left")
right.semilogx(values, errors["near θ₀"], color="tab:blue", label="near θ₀")
right.semilogx(values, errors["near 0"], "--", color="tab:orange", label="near 0")
right.axhline(rms(f0), linestyle=":", color="0.3", label="θ₀ only")
right.set(xlabel="λ", ylabel="root mean square error", ylim=(0, None))
right.legend(frameon=False)
plt.show()
