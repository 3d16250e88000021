r"""
Tasks that share: regression with a nuclear norm
================================================

Ten curves, each observed at points of its own, are fitted at once by a p×10 matrix θ,
one column per curve:

.. math:: \text{minimize} \quad \sum_{(i, k)\ \text{observed}} \bigl(y_{ik}
   - (A\theta)_{ik}\bigr)^2
   + \lambda\|\theta\|_*

The nuclear norm :math:`\|\theta\|_* = \sum_j \sigma_j(\theta)` penalizes singular
values as the lasso penalizes numbers. So θ gets a low rank: all curves become
combinations of a few, which are not given. The representer theorem holds for this norm
as for ‖θ‖ (Argyriou, Micchelli and Pontil 2009), and θ may have infinitely many rows.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

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
# Two problems
# ------------
# One has the nuclear norm. The other has λ‖θ‖², which fits each task separately.

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
# The rank falls as λ grows
# -------------------------
# The singular values of θ are the roots of the eigenvalues of the 10×10 matrix
# :math:`\theta^\top\theta`. The error is measured where a task was not observed.

spectra, ranks, errors = {}, {}, {}
for lam.value in np.geomspace(0.1, 10, 5):
    shared.solve()
    spectra[lam.value], errors[lam.value] = singular_values(), error(shared)
    ranks[lam.value] = np.sum(spectra[lam.value] > 1e-3 * spectra[lam.value][0])
    if errors[lam.value] == min(errors.values()):
        best = theta.value
    rank, least = ranks[lam.value], errors[lam.value]
    print(f"λ = {lam.value:5.2f}  rank {rank:2}  error {least:.3f}")
print(shared.certificate)
fig, ax = plt.subplots()
markers = zip(spectra.items(), "osD^v", np.linspace(0, 0.85, 5), strict=True)
for (value, spectrum), marker, shade in markers:
    style = {"color": plt.cm.cividis(shade), "linestyle": "-", "markersize": 5}
    shown = np.maximum(spectrum, 1e-4)
    ax.semilogy(range(1, 11), shown, marker=marker, **style, label=f"λ = {value:.2g}")
ax.set(xlabel="number", ylabel="singular values of θ, at least 10⁻⁴")
fig.legend(loc="outside upper center", ncols=5)
plt.show()

# %%
# What sharing gains
# ------------------
# The separate fits get the best of 15 values of λ. The picture shows the task that
# gains most. Where it has no data, it follows the other tasks.

by_itself = ko.path(separate, lam, np.geomspace(1e-3, 10, 15), evaluate=error)
by_itself.restore(int(by_itself["evaluation"].argmin()))
alone = theta.value
least = min(errors.values()), by_itself["evaluation"].min()
print(f"least error: shared {least[0]:.3f}, separate {least[1]:.3f}")

off_alone, off_shared = (
    np.mean((f(x[:, None]) - truth) ** 2, axis=0) for f in (alone, best)
)
k = int(np.argmax(off_alone - off_shared))
fig, ax = plt.subplots()
ax.plot(x, truth[:, k], "-", color="0.75", linewidth=5, label="truth")
ax.plot(x[seen[:, k]], Y[seen[:, k], k], "o", color="black", label="observed")
ax.plot(x, best(x[:, None])[:, k], "-", color="C0", label="shared")
ax.plot(x, alone(x[:, None])[:, k], "--", color="C1", label="separate")
ax.set(xlabel="x", ylabel=f"task {k + 1}")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# A closed form
# -------------
# For a linear kernel and orthonormal columns, the singular values of XᵀY are reduced by
# λ/2, down to zero.

design = np.linalg.qr(rng.normal(size=(30, 5)))[0]
targets = rng.normal(size=(30, 4))
weights = ko.Theta(ko.kernels.Linear(), outputs=4)
squares = cp.sum_squares(targets - weights(design))
plain = ko.Problem(cp.Minimize(squares + ko.norm(weights, "nuc")))
plain.solve(tol=1e-10)
U, s, Vt = np.linalg.svd(design.T @ targets, full_matrices=False)
thresholded = (U * np.maximum(s - 1 / 2, 0)) @ Vt
apart = np.abs(weights.value(np.eye(5)) - thresholded).max()
print(f"largest difference from the closed form: {apart:.1e}")

# sphinx_gallery_thumbnail_number = 2
