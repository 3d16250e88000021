r"""
Which columns matter
====================

Thirteen measurements of wines, and twenty-six columns that tell nothing: two copies of each measurement, shuffled. A
length scale :math:`\ell_j` for each column leaves a column out where it is long,

.. math:: \kappa(x, z) = \exp\Big(-\sum_j \frac{(x_j - z_j)^2}{2\ell_j^2}\Big).

No grid has forty dimensions. :func:`kernelopt.tune` follows the gradient of the loss of rows left out, which
:class:`kernelopt.LeaveOneOutLoss` takes from a single fit.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The data: is a wine of the second cultivar? 90 wines to train on, 88 for a test.

wines = load_wine()
rng = np.random.default_rng(0)
probes = np.hstack([rng.permuted(wines.data, axis=0) for _ in range(2)])
X = np.hstack([wines.data, probes])
y = np.where(wines.target == 1, 1.0, -1.0)
train, test = np.split(rng.permutation(len(y)), [90])
X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)

# %%
# Logistic loss, with :math:`\lambda` and the length scales as parameters: first one scale for all columns, then one for
# each, which starts there. :math:`\lambda` stays above 0.03, as with forty numbers to choose, rows left out can be
# fitted too well.


def tuned(scale, lam):
    """The problem with λ and scales chosen, its predictions, and the search."""
    lam, scale = cp.Parameter(pos=True, value=lam), cp.Parameter(scale.shape, pos=True, value=scale)
    gaussian = ko.kernels.Gaussian
    kernel = gaussian(sigma=1.0).ard(scale) if scale.ndim else gaussian(sigma=scale)
    theta, b = ko.Theta(kernel), cp.Variable()
    f = lambda points: theta(points) + b
    fit = cp.sum(ko.losses.log_loss(y[train], f(X[train])))
    problem = ko.Problem(cp.Minimize(fit + lam * ko.sum_squares(theta)))
    left_out = ko.LeaveOneOutLoss(f(X[train]), lambda u: ko.losses.log_loss(y[train], u))
    search = ko.tune(problem, left_out, [lam, scale], {lam: (0.03, 100.0)})
    return f, scale.value, float(lam.value), search


def told(name, f, search):
    margins = y[test] * f(X[test]).value
    loss, wrong = np.mean(np.logaddexp(0, -margins)), np.mean(margins < 0)
    print(
        f"{name:>22}: loss of rows left out {search.value:.3f}, of test rows {loss:.3f},"
        f" wrong {wrong:.1%}, {len(search)} fits"
    )
    return loss


f, scale, lam, search = tuned(np.array(6.0), 0.1)
one = told("one length scale", f, search)
f, scales, lam, search = tuned(np.full(X.shape[1], float(scale)), lam)
each = told("one for each column", f, search)

# %%
# The weights :math:`1/\ell_j` that the columns got: most of those that were shuffled got none.

weights = 1 / scales
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
order = np.argsort(weights)[::-1]
measured = order < 13
axes.bar(np.arange(39)[measured], weights[order][measured], color="tab:blue", label="measured")
axes.bar(
    np.arange(39)[~measured],
    weights[order][~measured],
    color="tab:orange",
    hatch="///",
    edgecolor="white",
    label="shuffled",
)
names = [wines.feature_names[j] if j < 13 else "" for j in order]
axes.set_xticks(np.arange(39), names, rotation=90, fontsize=8)
axes.set(ylabel="weight of the column, 1/ℓ")
axes.legend(frameon=False)
plt.show()
