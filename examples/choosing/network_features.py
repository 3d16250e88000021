r"""
A network in front of a kernel machine
======================================

A network maps rows to two features :math:`z_i = h_W(x_i)`, and a kernel machine with
absolute loss predicts from them:

.. math:: \text{minimize} \quad \sum_i |y_i - f(z_i)| + \lambda\|\theta\|^2,
   \qquad f(z) = F(z)^\top\theta + b.

The machine is solved to the optimum at each step. The weights W follow the gradient,
through that optimum, of the error on rows left out of the fit: the machine is a layer
of JAX.
"""

import cvxpy as cp
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data
# --------
# The response depends on a radius and a height in three of eight directions, which are
# not the columns. A tenth of the responses is far off.

rng = np.random.default_rng(0)
known, test = slice(0, 1000), slice(1000, 2000)
X = rng.normal(size=(2000, 8))
directions = np.linalg.qr(rng.normal(size=(8, 3)))[0]
a, b, height = (X @ directions).T
radius = np.hypot(a, b)
truth = np.sin(2.5 * radius) + np.tanh(2 * height)
y = truth + 0.1 * rng.normal(size=2000)
y += np.where(rng.random(2000) < 0.1, rng.normal(0, 5, size=2000), 0)

style = {"c": truth[test], "s": 8, "vmin": -2, "vmax": 2}
fig, ax = plt.subplots()
points = ax.scatter(radius[test], height[test], **style)
fig.colorbar(points, label="response without noise")
ax.set(xlabel="radius", ylabel="height", title="hidden quantities")
plt.show()

# %%
# The machine as a layer
# ----------------------
# Its data are row numbers; the features are a parameter. The first 200 rows are fitted,
# the others predicted. The intercept has a small cost, so that it is unique.

Z, labels = cp.Parameter((400, 2), name="Z"), cp.Parameter(200, name="labels")
lam = cp.Parameter(pos=True, name="lam")
theta, intercept = ko.Theta(ko.kernels.Gaussian(sigma=1.0).indexed(Z)), cp.Variable()
f = lambda rows: theta(rows) + intercept
costs = lam * ko.sum_squares(theta) + 1e-6 * cp.square(intercept)
fit = cp.sum(ko.losses.absolute_error(labels, f(np.arange(200))))
problem = ko.Problem(cp.Minimize(fit + costs))
layer = ko.JaxLayer(problem, [Z, labels, lam], [f(np.arange(200, 400))])

# %%
# Training
# --------
# The network has one hidden layer of 24 units. Adam trains its weights and λ together;
# each step draws 400 rows.


def features(weights, rows):
    return jnp.tanh(rows @ weights["in"] + weights["shift"]) @ weights["out"]


def error(weights, rows, responses):
    drawn = features(weights, rows), responses[:200], jnp.exp(weights["log_lam"])
    (predictions,) = layer(*drawn)
    return jnp.mean(jnp.abs(predictions - responses[200:]))


@jax.jit
def step(state, number, rows, responses):
    weights, means, squares = state
    value, slopes = jax.value_and_grad(error)(weights, rows, responses)
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, slopes)
    squares = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, squares, slopes)
    rate = 0.05 * (1 - 0.9 * number / 300)
    corrected = lambda s: jnp.sqrt(s / (1 - 0.99**number)) + 1e-8
    scaled = lambda m, s: rate * m / (1 - 0.9**number) / corrected(s)
    moved = jax.tree.map(lambda w, m, s: w - scaled(m, s), weights, means, squares)
    return value, (moved, means, squares)


weights = {
    "in": jnp.array(rng.normal(size=(8, 24)) / np.sqrt(8)),
    "shift": jnp.array(rng.normal(size=24)),
    "out": jnp.array(rng.normal(size=(24, 2)) / np.sqrt(24)),
    "log_lam": jnp.log(0.3),
}
zeros, history = jax.tree.map(jnp.zeros_like, weights), []
state = weights, zeros, zeros
for number in range(1, 301):
    drawn = rng.choice(1000, 400, replace=False)
    value, state = step(state, number, X[drawn], y[drawn])
    history.append(float(value))
weights = state[0]
first, last = np.mean(history[:50]), np.mean(history[-50:])
print(f"error on rows left out: first 50 steps {first:.2f}, last 50 steps {last:.2f}")

# %%
# The features that were found
# ----------------------------
# The machine is fitted to all 1000 rows with these features. The lines are levels of
# its prediction.


def fitted(kernel, points, lam, rows=known):
    theta, b = ko.Theta(kernel), cp.Variable()
    g = lambda points: theta(points) + b
    loss = cp.sum(ko.losses.absolute_error(y[rows], g(points[rows])))
    costs = lam * ko.sum_squares(theta) + 1e-6 * cp.square(b)
    return ko.Problem(cp.Minimize(loss + costs)), g


found = np.asarray(features(weights, X), dtype=float)
trained = float(jnp.exp(weights["log_lam"]))
machine, g = fitted(ko.kernels.Gaussian(sigma=1.0), found, trained)
machine.solve()
predictions = {"features of the network": g(found[test]).value}
print(machine.certificate)

low, high = np.quantile(found[test], [0.001, 0.999], axis=0)
grid = np.stack(np.meshgrid(*np.linspace(low, high, 60).T), axis=-1)
surface = g(grid.reshape(-1, 2)).value.reshape(60, 60)
fig, ax = plt.subplots()
points = ax.scatter(*found[test].T, **style)
lines = {"colors": "black", "linewidths": 0.8, "linestyles": "-"}
ax.contour(grid[..., 0], grid[..., 1], surface, np.arange(-1.5, 2, 0.5), **lines)
fig.colorbar(points, label="response without noise")
ax.set(xlabel="first feature", ylabel="second feature")
plt.show()

# %%
# Compared with the columns
# -------------------------
# The same machine is fitted to the columns themselves, with one length scale or one per
# column. A gradient chooses λ and the length scales, on half of the rows. Training of a
# network is random: with seeds from 0 to 4 its features lead to mean errors from 0.17
# to 0.26.

lam.value, sigma = 0.3, cp.Parameter(pos=True, value=3.0)
scales = cp.Parameter(8, pos=True, value=np.full(8, 3.0))
kernels = {
    "columns": (ko.kernels.Gaussian(sigma=sigma), sigma),
    "columns, scaled each": (ko.kernels.Gaussian(sigma=1.0).ard(scales), scales),
}
for name, (kernel, parameter) in kernels.items():
    half, h = fitted(kernel, X, lam, rows=slice(0, 500))
    criterion = cp.sum(ko.losses.absolute_error(y[500:1000], h(X[500:1000])))
    ko.tune(half, criterion, [parameter, lam], max_evaluations=15)
    whole, h = fitted(kernel, X, lam)
    whole.solve()
    predictions[name] = h(X[test]).value

errors = {
    name: float(np.mean(np.abs(values - truth[test])))
    for name, values in predictions.items()
}
errors["the median"] = float(np.mean(np.abs(np.median(y[known]) - truth[test])))
for name, mean in errors.items():
    print(f"{name:>23}: mean error {mean:.2f}")

fig, ax = plt.subplots()
markers = {"columns": ("s", "C1"), "features of the network": ("o", "C0")}
for name, (marker, color) in markers.items():
    label = f"{name}, mean error {errors[name]:.2f}"
    dots = {"s": 10, "alpha": 0.6, "marker": marker, "color": color, "linewidths": 0}
    ax.scatter(truth[test], predictions[name], **dots, label=label)
ax.axline((0, 0), slope=1, color="black", linestyle="-", linewidth=0.8)
ax.set(xlabel="response without noise", ylabel="prediction")
fig.legend(loc="outside upper center", ncols=2, markerscale=2)
plt.show()

# sphinx_gallery_thumbnail_number = 2
