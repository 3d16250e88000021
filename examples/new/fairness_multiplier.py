r"""
How much fairness new people get
================================

A constraint on the mean scores of two groups holds for the people that one has
(:ref:`sphx_glr_gallery_new_fairness.py`), not for others. Here the difference d of the means has a price instead,

.. math:: \text{minimize} \quad \sum_i \log\bigl(1 + e^{-y_i f(x_i)}\bigr) + \mu\, n\, d(f)^2 + \lambda\|\theta\|^2,

and the price :math:`\mu`, with :math:`\lambda` and the width of the kernel, is found by the gradient of what is wanted
of people who were held out: a small loss, and a difference of at most 0.1.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# People with two measurements. In one group the second is lower by 1.2 on average, and the label follows both.

rng = np.random.default_rng(0)
group = rng.uniform(size=4200) < 0.4
X = rng.normal(size=(4200, 2))
X[group, 1] -= 1.2
y = np.where(np.sin(1.5 * X[:, 0]) + X[:, 0] + 0.7 * X[:, 1] + 0.7 * rng.normal(size=4200) > 0, 1.0, -1.0)
fit, held, new = np.split(np.arange(4200), [200, 1200])

# %%
# The problem: :math:`\mu` stands for the multiplier of a constraint. The criterion takes the same words for the people
# who were held out. A difference above 0.1 costs its square, times a thousand.

sigma = cp.Parameter(pos=True, value=1.5, name="sigma")
mu, lam = cp.Parameter(pos=True, value=0.1, name="mu"), cp.Parameter(pos=True, value=0.5, name="lam")
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable(name="b")


def difference(rows):
    """The mean score of one group minus that of the other."""
    f = theta(X[rows]) + b
    inside = group[rows]
    return cp.sum(f[inside]) / inside.sum() - cp.sum(f[~inside]) / (~inside).sum()


def loss(rows):
    return cp.sum(ko.losses.log_loss(y[rows], theta(X[rows]) + b)) / len(rows)


n = len(fit)
fair = mu * cp.square(difference(fit))
problem = ko.Problem(cp.Minimize(n * (loss(fit) + fair) + lam * ko.sum_squares(theta)))
criterion = loss(held) + 1000 * cp.square(cp.pos(cp.abs(difference(held)) - 0.1))


def told(name):
    values = abs(difference(fit).value), abs(difference(held).value), abs(difference(new).value)
    wrong = np.mean(y[new] * (theta(X[new]) + b).value < 0)
    print(f"{name:>14}: {values[0]:6.3f} {values[1]:6.3f} {values[2]:6.3f} {loss(new).value:8.3f} {wrong:8.1%}")
    return values


# %%
# The difference of people of the fit, of those held out, and of 3000 new ones, with the loss and the errors of these.

print(f"{'difference':>14}: {'fit':>6} {'held':>6} {'new':>6} {'loss':>8} {'errors':>8}")
problem.solve()
start = told("at the start")
search = ko.tune(problem, criterion, [mu, sigma, lam], {mu: (1e-3, 1e3)})
end = told("tuned")
print(f"μ = {mu.value:.3g}, σ = {sigma.value:.3g}, λ = {lam.value:.3g} after {len(search)} fits")

# %%
# What the price does: the differences as functions of μ, for the σ and λ that were found.

prices = np.geomspace(1e-3, 1e2, 25)
found, best = [], float(mu.value)
for price in prices:
    mu.value = price
    problem.solve()
    found.append([abs(difference(rows).value) for rows in (fit, held, new)])
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
styles = [("fit", "-", "tab:blue"), ("held out", "--", "tab:orange"), ("new", ":", "tab:green")]
for (name, style, color), values in zip(styles, np.transpose(found), strict=True):
    axes.semilogx(prices, values, style, color=color, label=name)
axes.axhline(0.1, color="gray", lw=0.8)
axes.axvline(best, color="gray", lw=0.8)
axes.annotate("tuned μ", (best, 0.85), xytext=(4, 0), textcoords="offset points")
axes.set(xlabel="price μ", ylabel="difference of the groups' mean scores", ylim=(0, None))
axes.legend(frameon=False)
plt.show()
