r"""
How far a fit may be from the optimum
=====================================

What does it cost to stop early? Every answer comes with an interval that contains the
optimum of the stated problem. With λ‖θ‖² in the objective, the gap g bounds the
function itself:

.. math:: |\hat f(x) - f^\star(x)| \;\le\; \sqrt{\kappa(x, x)\, g / \lambda}
   \quad \text{for all } x,

since the objective grows by at least :math:`\lambda\|\theta - \theta^\star\|^2` away
from the optimum. The multipliers of one λ also give bounds for every other λ, without a
solve.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The problem fits a curve with the least sum of absolute errors.

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, size=(400, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_t(2, size=400)

theta, lam = (
    ko.Theta(ko.kernels.Gaussian(sigma=0.4)),
    cp.Parameter(nonneg=True, name="lam"),
)
loss = cp.sum(ko.losses.absolute_error(y, theta(X)))
problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))

# %%
# Few columns
# -----------
# First the optimum is computed to ten digits, as a reference. Then θ is restricted to
# the span of a few rows of A. The gap shows what the restriction costs. The certificate
# holds for all θ, by the full kernel matrix. The picture shows the fit of rank 13 with
# its band; a few data are outside.

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
    print(f"    largest distance {apart.max():.1e}, bound {bound.max():.1e}", end=", ")
    print(f"everywhere: {np.all(apart <= bound)}")

ax = ko.plots.fit(fits[13], X, y)
ax.plot(grid, exact, "--", color="black", label="optimum")
ax.set(ylabel="θᵀF(x)", ylim=(-3, 3.5))
ax.get_legend().remove()
ax.figure.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# One solve, every λ
# ------------------
# From the answer for λ = 1 alone follows an interval for the optimum at any other λ.
# The picture shows these intervals, divided by the optimum.

problem.solve()
elsewhere = np.geomspace(0.2, 5, 41)
ahead = [problem.certificate_at({lam: value}) for value in elsewhere]
solved = ko.path(problem, lam, elsewhere, tol=1e-9)
pairs = zip(ahead, solved["objective"], strict=True)
enclosed = [c.lower <= value <= c.upper for c, value in pairs]
widest = max(c.relative_gap for c in ahead)
print(f"{sum(enclosed)} of 41 optima are in their intervals")
print(f"largest relative gap {widest:.2f}")

lower, upper = (
    np.array([getattr(c, end) for c in ahead]) / solved["objective"]
    for end in ("lower", "upper")
)
fig, ax = plt.subplots()
band = {"color": "C1", "alpha": 0.3, "linewidth": 0, "label": "from λ = 1 alone"}
ax.fill_between(elsewhere, lower, upper, **band)
ax.semilogx(elsewhere, np.ones(41), "-", color="black", label="optimum")
ax.plot(1.0, 1.0, "o", color="C1", markersize=7)
ax.set(xlabel="λ", ylabel="bounds / optimum")
ax.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
ax.minorticks_off()
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# A path without a grid
# ---------------------
# ``ko.path`` uses these bounds to choose values of λ. For every λ between them, one of
# the answers attains 99 % of the possible improvement over θ = 0. No grid has to be
# guessed, and nothing is missed between its points.

path = ko.path(problem, lam, between=(0.01, 100), gap=1e-2)
print(f"{len(path)} solves for all λ from 0.01 to 100; covered: {path.covered}")
solution, certificate = path.at(0.345)
gap = certificate.relative_gap
print(f"at λ = 0.345 the answer for λ = {solution.parameter:.3f} has the gap {gap:.1e}")
lam.value = 0.345
there = problem.solve()
print(f"    optimum {there:.4f} in [{certificate.lower:.4f}, {certificate.upper:.4f}]")
