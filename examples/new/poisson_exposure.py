r"""
A semi-parametric Poisson regression with exposure
==================================================

How often people see a doctor is counted over different lengths of time :math:`e_i`. The rate depends on some
covariates z as in a generalized linear model, on others by a function of which only smoothness is assumed:

.. math:: \text{minimize} \quad \sum_i \exp(f_i) - y_i f_i + \lambda\|\theta\|^2, \qquad
   f_i = \log e_i + z_i^\top\beta + \theta^\top F(x_i).

scikit-learn's kernel methods have no Poisson loss, and its Poisson regression has no kernel. Here the loss is a word,
and exposure and parametric part are in the affine expression f of Aθ, of variables and of data.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from statsmodels.datasets import randhie

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# Visits to doctors of the RAND health insurance experiment, 2000 of its 20 190 rows. Insurance plan and health go into
# a linear part with an intercept; the number of chronic diseases and the logarithm of the coinsurance rate into a
# smooth one. Everyone was observed for a year; we pretend to have lost track of some, with that share of their visits.

rng = np.random.default_rng(0)
data = randhie.load_pandas().data.sample(2000, random_state=0)
linear = ["idp", "lpi", "physlm", "hlthg", "hlthf", "hlthp"]
Z = np.column_stack([np.ones(len(data)), data[linear]])
smooth = data[["disea", "lncoins"]].to_numpy()
X = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
exposure = rng.uniform(0.2, 1.0, size=len(data))
y = rng.binomial(data["mdvis"].to_numpy(dtype=int), exposure)

# %%
# The problem.

kernel = ko.kernels.Gaussian(sigma=2.0)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
beta, lam = cp.Variable(7, name="beta"), cp.Parameter(nonneg=True, name="lam")
f = np.log(exposure) + Z @ beta + A @ theta
problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.poisson(y, f)) + lam * ko.sum_squares(theta)))
lam.value = 0.5
problem.solve(tol=1e-10)
semi, g = beta.value, theta.value
print(problem.status, problem.solver_stats.solver_name, problem.certificate)

# %%
# At the optimum the derivative in each coefficient vanishes: the model's counts and those observed agree in
# :math:`Z^\top(\exp(f) - y) = 0`, in their total for instance, and θ is :math:`A^\top(y - \exp(f))/2\lambda`.

rate = np.exp(f.value)
print(f"visits: {y.sum()} observed, {rate.sum():.3f} by the model")
residual = ko.Function(kernel, X, (y - rate) / (2 * lam.value))
print(f"θ and Aᵀ(y − exp(f))/2λ differ by at most {np.abs(residual(X) - g(X)).max():.1e}")

# %%
# As λ grows, θ vanishes and β tends to the generalized linear model in z alone, as statsmodels has it.

lam.value = 1e8
problem.solve(tol=1e-10)
glm = beta.value
print("          " + "  ".join(f"{name:>9}" for name in ["intercept", *linear]))
print("λ = 0.5   " + "  ".join(f"{value:9.3f}" for value in semi))
print("λ = 10⁸   " + "  ".join(f"{value:9.3f}" for value in glm))

# %%
# The smooth part, as a factor of the rate, for free care and where people pay 95 % of their bills.

diseases = np.linspace(*np.quantile(smooth[:, 0], [0.01, 0.99]), 200)
figure, axes = plt.subplots(figsize=(8, 4.3), layout="constrained")
for percent, color, style in ((0, "tab:blue", "-"), (95, "tab:orange", "--")):
    points = np.column_stack([diseases, np.full(200, np.log(percent + 1))])
    factor = np.exp(g((points - smooth.mean(axis=0)) / smooth.std(axis=0)))
    axes.plot(diseases, factor, style, color=color, label=f"coinsurance {percent} %")
axes.set(xlabel="number of chronic diseases", ylabel="factor of the rate of visits, exp(θᵀF(x))")
axes.legend(frameon=False)
plt.show()
