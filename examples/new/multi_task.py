r"""
Tasks that share: regression with a nuclear norm
================================================

Ten curves, each observed at points of its own, are fitted at once by a p×10 matrix θ, one column for each:

.. math:: \text{minimize} \quad \sum_{(i, k)\ \text{observed}} \bigl(y_{ik} - (A\theta)_{ik}\bigr)^2
   + \lambda\|\theta\|_*

The nuclear norm :math:`\|\theta\|_* = \sum_j \sigma_j(\theta)` penalizes singular values as the lasso does numbers. So
θ gets a low rank: all curves become combinations of few, which no task was told. The representer theorem holds for this
norm as for ‖θ‖ (Argyriou, Micchelli and Pontil 2009), and θ may have infinitely many rows.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Each task is a combination of two curves, observed with noise at 12 of 40 points.

rng = np.random.default_rng(0)
x = np.linspace(0, 6, 40)
curves = np.column_stack([np.sin(2 * x), np.abs(x - 3) - 1])
weights = rng.normal(size=(2, 10))
truth = curves @ weights
seen = np.argsort(rng.uniform(size=truth.shape), axis=0) < 12
Y = np.where(seen, truth + 0.3 * rng.normal(size=truth.shape), 0)

# %%
# Two problems: with the nuclear norm, and with λ‖θ‖², which takes each task by itself.

kernel = ko.kernels.Gaussian(sigma=0.7)
theta, A = ko.Theta(kernel, outputs=10), ko.FeatureMatrix(x[:, None], kernel)
lam = cp.Parameter(nonneg=True, name="lam")
misfit = cp.sum_squares(cp.multiply(seen, Y - A @ theta))
shared = ko.Problem(cp.Minimize(misfit + lam * ko.norm(theta, "nuc")))
separate = ko.Problem(cp.Minimize(misfit + lam * ko.sum_squares(theta)))


def error(problem):
    return np.sqrt(np.mean((theta(x[:, None]).value - truth)[~seen] ** 2))


def singular_values():
    return np.sqrt(np.clip(np.linalg.eigvalsh(theta.value.gram())[::-1], 0, None))


# %%
# The rank of θ falls as λ grows; its singular values are the roots of the eigenvalues of the 10×10 matrix
# :math:`\theta^\top\theta`. The error is that where a task was not observed.

spectra, ranks, errors = {}, {}, {}
for lam.value in np.geomspace(0.1, 10, 5):
    shared.solve()
    spectra[lam.value], errors[lam.value] = singular_values(), error(shared)
    ranks[lam.value] = np.sum(spectra[lam.value] > 1e-3 * spectra[lam.value][0])
    if errors[lam.value] == min(errors.values()):
        best = theta.value
    print(f"λ = {lam.value:5.2f}  rank {ranks[lam.value]:2}  error {errors[lam.value]:.3f}  {shared.status}")
print(shared.certificate)

# %%
# The same for tasks by themselves, with the λ of many that has the least error.

by_itself = ko.path(separate, lam, np.geomspace(1e-3, 10, 15), evaluate=error)
by_itself.restore(int(by_itself["evaluation"].argmin()))
alone = theta.value
print(f"least error: shared {min(errors.values()):.3f}, each by itself {by_itself['evaluation'].min():.3f}")

# %%
# For a linear kernel and orthonormal columns of the data there is a closed form to compare with: the singular values of
# XᵀY are moved to zero by λ/2.

design = np.linalg.qr(rng.normal(size=(30, 5)))[0]
targets = rng.normal(size=(30, 4))
weights = ko.Theta(ko.kernels.Linear(), outputs=4)
plain = ko.Problem(cp.Minimize(cp.sum_squares(targets - weights(design)) + ko.norm(weights, "nuc")))
plain.solve(tol=1e-10)
U, s, Vt = np.linalg.svd(design.T @ targets, full_matrices=False)
thresholded = (U * np.maximum(s - 1 / 2, 0)) @ Vt
print(f"from the closed form: {np.abs(weights.value(np.eye(5)) - thresholded).max():.1e}")

# %%
# Left the singular values; right the task that gains most, which leans on the others where it has no data.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for (value, spectrum), shade in zip(spectra.items(), np.linspace(0, 0.9, 5), strict=True):
    shown = np.maximum(spectrum, 1e-4)
    axes[0].semilogy(range(1, 11), shown, "o-", color=plt.cm.cividis(shade), markersize=4, label=f"λ = {value:.2g}")
axes[0].set(xlabel="number", ylabel="singular values of θ, at least 10⁻⁴")
axes[0].legend(frameon=False)
off_alone, off_shared = (np.mean((f(x[:, None]) - truth) ** 2, axis=0) for f in (alone, best))
k = int(np.argmax(off_alone - off_shared))
axes[1].plot(x, truth[:, k], color="0.7", linewidth=4, label="truth")
axes[1].plot(x, best(x[:, None])[:, k], color="tab:blue", label="shared")
axes[1].plot(x, alone(x[:, None])[:, k], "--", color="tab:orange", label="by itself")
axes[1].plot(x[seen[:, k]], Y[seen[:, k], k], "o", color="black", markersize=4, label="observed")
axes[1].set(xlabel="x", ylabel=f"task {k + 1}")
axes[1].legend(frameon=False)
plt.show()
