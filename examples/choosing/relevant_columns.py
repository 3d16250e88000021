r"""
Which columns matter
====================

The data have thirteen measurements of wines, and twenty-six columns without
information: two copies of each measurement, shuffled. A length scale :math:`\ell_j` per
column excludes a column where it is long,

.. math:: \kappa(x, z) = \exp\Big(-\sum_j \frac{(x_j - z_j)^2}{2\ell_j^2}\Big).

A grid of forty dimensions is out of reach. :func:`kernelopt.tune` follows the gradient
of the loss of rows left out, which :class:`kernelopt.LeaveOneOutLoss` computes from a
single fit.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The label tells whether a wine is of the second cultivar. 90 wines are for training,
# 88 for a test.

wines = load_wine()
rng = np.random.default_rng(0)
probes = np.hstack([rng.permuted(wines.data, axis=0) for _ in range(2)])
X = np.hstack([wines.data, probes])
y = np.where(wines.target == 1, 1.0, -1.0)
train, test = np.split(rng.permutation(len(y)), [90])
X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)

# %%
# One length scale, and one per column
# ------------------------------------
# The loss is logistic; :math:`\lambda` and the length scales are parameters. First
# there is one scale for all columns, then one per column, which starts from it.
# :math:`\lambda` stays above 0.03: with forty parameters, the rows left out can be
# overfitted.


def tuned(scale, lam):
    """The problem with λ and scales chosen, its predictions, and the search."""
    lam = cp.Parameter(pos=True, value=lam)
    scale = cp.Parameter(scale.shape, pos=True, value=scale)
    gaussian = ko.kernels.Gaussian
    kernel = gaussian(sigma=1.0).ard(scale) if scale.ndim else gaussian(sigma=scale)
    theta, b = ko.Theta(kernel), cp.Variable()
    f = lambda points: theta(points) + b
    fit = cp.sum(ko.losses.log_loss(y[train], f(X[train])))
    problem = ko.Problem(cp.Minimize(fit + lam * ko.sum_squares(theta)))
    loss = lambda u: ko.losses.log_loss(y[train], u)
    left_out = ko.LeaveOneOutLoss(f(X[train]), loss)
    search = ko.tune(problem, left_out, [lam, scale], {lam: (0.03, 100.0)})
    return f, scale.value, float(lam.value), search


def report(name, f, search):
    margins = y[test] * f(X[test]).value
    loss, wrong = np.mean(np.logaddexp(0, -margins)), np.mean(margins < 0)
    print(
        f"{name:>20}: loss of rows left out {search.value:.3f}, "
        f"of test rows {loss:.3f}, wrong {wrong:.1%}, {len(search)} fits"
    )
    return loss


f, scale, lam, search = tuned(np.array(6.0), 0.1)
one = report("one length scale", f, search)
f, scales, lam, search = tuned(np.full(X.shape[1], float(scale)), lam)
each = report("one per column", f, search)

# %%
# The weights of columns
# ----------------------
# These are the twenty largest weights :math:`1/\ell_j`. Most shuffled columns got none.

weights = 1 / scales
order = np.argsort(weights)[::-1][:20]
names = [wines.feature_names[j].split("_of_")[0] if j < 13 else "" for j in order]
place, measured = np.arange(20), order < 13
fig, ax = plt.subplots(figsize=(6.4, 4.8))
ax.barh(place[measured], weights[order][measured], color="C0", label="measured")
hatched = {"color": "C1", "hatch": "///", "edgecolor": "white", "label": "shuffled"}
ax.barh(place[~measured], weights[order][~measured], **hatched)
ax.set_yticks(place, [name.replace("_", " ") for name in names], fontsize=9)
ax.invert_yaxis()
ax.set_xlabel("weight of the column, 1/ℓ")
ax.legend(loc="lower right")
plt.show()
