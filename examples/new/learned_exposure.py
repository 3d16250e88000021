r"""
An exposure that is learned
===========================

People were followed for different shares :math:`h_i` of a year, and report fewer of their visits the longer they are
asked. How much less is not known: the expected share of visits is

.. math:: e_i(\tau) = \frac{1 - \exp(-h_i/\tau)}{1 - \exp(-1/\tau)},

with a rate :math:`1/\tau` of fatigue. The logarithm of the exposure stands in the loss as a parameter, one number for
each person. :func:`kernelopt.gradient` gives the derivative of the deviance of other people by all of them, and the
chain rule that by :math:`\tau`. (A factor :math:`\gamma\log h_i` would be a variable; :math:`\tau` makes no convex
problem.) See :ref:`sphx_glr_gallery_new_poisson_exposure.py` for the same data with a known exposure.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from statsmodels.datasets import randhie

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Visits to doctors of 1500 people of the RAND experiment, and the share of them that is reported. A third is for the
# fit, a third to choose :math:`\tau` and :math:`\lambda`, a third for a test.

rng = np.random.default_rng(0)
data = randhie.load_pandas().data.sample(1500, random_state=0)
X = data[["disea", "lncoins", "physlm", "hlthg"]].to_numpy(dtype=float)
X = (X - X.mean(axis=0)) / X.std(axis=0)
h = rng.uniform(0.05, 1.0, size=1500)
true = 0.25


def share(h, tau):
    return np.expm1(-h / tau) / np.expm1(-1 / tau)


y = rng.binomial(data["mdvis"].to_numpy(dtype=int), share(h, true)).astype(float)
fit, chosen, test = np.split(np.arange(1500), [500, 1000])

# %%
# The problem, and the deviance of other people. Both have a parameter for the logarithms of exposures.

theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
lam = cp.Parameter(pos=True, value=1.0, name="lam")
known, other = cp.Parameter(500, name="fit"), cp.Parameter(500, name="chosen")
losses = ko.losses.poisson(y[fit], known + theta(X[fit]) + b)
problem = ko.Problem(cp.Minimize(cp.sum(losses) + lam * ko.sum_squares(theta)))
criterion = cp.sum(ko.losses.poisson(y[chosen], other + theta(X[chosen]) + b)) / 500


def judged(z):
    """The criterion and its derivative by (log τ, log λ)."""
    tau, lam.value = np.exp(z)
    slopes = []
    for parameter, rows in ((known, fit), (other, chosen)):
        parameter.value = np.log(share(h[rows], tau))
        step = 1e-5 * tau
        ends = [np.log(share(h[rows], tau + k * step)) for k in (-1, 1)]
        slopes.append((ends[1] - ends[0]) / (2 * step))  # d log e/dτ
    problem.solve()
    found = ko.gradient(problem, criterion, [known, other, lam])
    by_tau = found[known] @ slopes[0] + found[other] @ slopes[1]
    history.append((tau, found.value))
    return found.value, np.array([tau * by_tau, lam.value * found[lam]])


history = []
start = np.log([2.0, 1.0])
search = minimize(judged, start, jac=True, bounds=[(-3.0, 3.0), (-4.0, 6.0)])
tau = float(np.exp(search.x[0]))
print(f"τ = {tau:.3f} after {len(history)} fits; the data were made with {true}")

# %%
# On the rows of the test: the learned exposure, the time itself, and the exposure with which the data were made.


def deviance(exposure):
    known.value = np.log(exposure[fit])
    problem.solve()
    f = np.log(exposure[test]) + theta.value(X[test]) + b.value
    return np.mean(ko.losses.poisson(y[test], f).value)


deviances = {"the time h": deviance(h), "learned": deviance(share(h, tau)), "true": deviance(share(h, true))}
for name, value in deviances.items():
    print(f"{name:>12}: deviance of the test rows {value:.4f}")

# %%
# The exposure as a function of time.

grid = np.linspace(0.01, 1, 200)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(grid, grid, ":", color="gray", label="in proportion to time")
axes.plot(grid, share(grid, true), "-", color="tab:blue", lw=3, alpha=0.5, label="that made the data")
axes.plot(grid, share(grid, tau), "--", color="tab:orange", label="learned")
axes.set(xlabel="share of the year", ylabel="expected share of visits reported")
axes.legend(frameon=False)
plt.show()
