r"""
How far a fit may be from the optimum
=====================================

Whoever stops early should know what that costs. Every answer comes with an interval that holds the optimum of the
stated problem, and with λ‖θ‖² in the objective the gap g bounds the function itself:

.. math:: |\hat f(x) - f^\star(x)| \;\le\; \sqrt{\kappa(x, x)\, g / \lambda} \quad \text{for all } x,

since the objective grows by at least :math:`\lambda\|\theta - \theta^\star\|^2` away from the optimum. And the
multipliers of one λ say something about every other, without a solve.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# A curve with the least sum of absolute errors.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(400, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_t(2, size=400)

theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Parameter(nonneg=True, name="lam")
loss = cp.sum(ko.losses.absolute_error(y, theta(X)))
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))

# %%
# First the optimum to ten digits, as a reference. Then answers with θ restricted to the span of few rows of A: the gap
# says what the restriction costs. The certificate is one for all θ, by the full kernel matrix.

grid = np.linspace(0, 6, 300)[:, None]
lam.value = 1.0
optimum = problem.solve(tol=1e-10)
exact = theta.value(grid)
fits, certificates = {}, {}
for rank in (11, 13, 16, 24):
    problem.solve(max_rank=rank)
    fits[rank], certificates[rank] = theta.value, problem.certificate
    bound, apart = theta.value.optimality_bound(grid), np.abs(theta.value(grid) - exact)
    print(f"{problem.certificate}; {problem.status}")
    print(f"    largest distance {apart.max():.1e}, bound {bound.max():.1e}, everywhere: {np.all(apart <= bound)}")

# %%
# From the answer for λ = 1 alone: an interval for the optimum at any other λ.

problem.solve()
elsewhere = np.geomspace(0.2, 5, 41)
ahead = [problem.certificate_at({lam: value}) for value in elsewhere]
solved = ko.path(problem, lam, elsewhere, tol=1e-10)
enclosed = [c.lower <= value <= c.upper for c, value in zip(ahead, solved["objective"], strict=True)]
print(f"41 optima, in their intervals: {sum(enclosed)}; widest relative gap {max(c.relative_gap for c in ahead):.2f}")

# %%
# ``ko.path`` makes use of that: it chooses values of λ so that for all between them one of the answers attains 99 % of
# what can be gained over θ = 0. No grid has to be guessed, and nothing is missed between its points.

path = ko.path(problem, lam, between=(0.01, 100), gap=1e-2)
print(f"{len(path)} solves for all λ from 0.01 to 100; covered: {path.covered}")
solution, certificate = path.at(0.345)
print(f"at λ = 0.345 the answer for λ = {solution.parameter:.3f} has a relative gap of {certificate.relative_gap:.1e}")
lam.value = 0.345
there = problem.solve()
print(f"    optimum {there:.4f} in [{certificate.lower:.4f}, {certificate.upper:.4f}]")

# %%
# Left, a fit of rank 13 with its band, and the exact optimum; right, the intervals from λ = 1, as a share of the
# optimum.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
ko.plots.fit(fits[13], X, y, ax=axes[0])
axes[0].plot(grid, exact, "--", color="black", linewidth=1, label="optimum")
axes[0].set(ylim=(-3, 5.3), ylabel="θᵀF(x)")
axes[0].legend(frameon=False, ncols=2)
lower, upper = (np.array([getattr(c, end) for c in ahead]) / solved["objective"] for end in ("lower", "upper"))
axes[1].fill_between(elsewhere, lower, upper, color="tab:orange", alpha=0.4, linewidth=0, label="from λ = 1 alone")
axes[1].semilogx(elsewhere, np.ones(41), color="black", linewidth=1, label="optimum")
axes[1].plot(1.0, 1.0, "o", color="tab:orange")
axes[1].set(xlabel="λ", ylabel="bounds / optimum")
axes[1].set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
axes[1].minorticks_off()
axes[1].legend(frameon=False)
plt.show()
