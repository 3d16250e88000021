r"""
An exposure that is learned
===========================

People were followed for different shares :math:`h_i` of a year. The longer they are
asked, the smaller the share of visits they report. The expected share is

.. math:: e_i(\tau) = \frac{1 - \exp(-h_i/\tau)}{1 - \exp(-1/\tau)},

with an unknown rate :math:`1/\tau` of fatigue. The logarithms of the exposures are a
parameter of the loss, one number per person. :func:`kernelopt.gradient` gives the
derivative of the deviance of other people by all of them, and the chain rule gives that
by :math:`\tau`. (A factor :math:`\gamma\log h_i` could be a variable; with :math:`\tau`
as a variable the problem is not convex.) For the same data with a known exposure see
:ref:`sphx_glr_gallery_regression_poisson_exposure.py`.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from statsmodels.datasets import randhie

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data are visits to doctors of 1500 people of the RAND experiment, and the share of
# them that is reported. A third is for the fit, a third to choose :math:`\tau` and
# :math:`\lambda`, a third for a test.

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
# The search
# ----------
# Problem and criterion both have a parameter for the logarithms of exposures. The
# picture shows the exposure as a function of time.

theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
lam = cp.Parameter(pos=True, value=1.0, name="lam")
known, other = cp.Parameter(500, name="fit"), cp.Parameter(500, name="chosen")
losses = ko.losses.poisson(y[fit], known + theta(X[fit]) + b)
problem = ko.Problem(cp.Minimize(cp.sum(losses) + lam * ko.sum_squares(theta)))
others = ko.losses.poisson(y[chosen], other + theta(X[chosen]) + b)
criterion = cp.sum(others) / 500


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
print(f"τ = {tau:.3f} after {len(history)} fits; the data have {true}")

grid = np.linspace(0.01, 1, 200)
fig, ax = plt.subplots()
ax.plot(grid, share(grid, true), "-", color="0.75", linewidth=6, label="true")
ax.plot(grid, share(grid, tau), "-", color="C0", label="learned")
ax.plot(grid, grid, "--", color="C1", label="proportional to time")
ax.set(xlabel="share of the year", ylabel="expected share of visits reported")
ax.legend()
plt.show()

# %%
# Deviance on test rows
# ---------------------
# The learned exposure is compared with the time itself and with the true exposure.


def deviance(exposure):
    known.value = np.log(exposure[fit])
    problem.solve()
    f = np.log(exposure[test]) + theta.value(X[test]) + b.value
    return np.mean(ko.losses.poisson(y[test], f).value)


exposures = {"the time h": h, "learned": share(h, tau), "true": share(h, true)}
deviances = {name: deviance(exposure) for name, exposure in exposures.items()}
for name, value in deviances.items():
    print(f"{name:>12}: deviance of the test rows {value:.4f}")
