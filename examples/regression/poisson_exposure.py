r"""
A semi-parametric Poisson regression with exposure
==================================================

Visits to doctors are counted over different lengths of time :math:`e_i`. The rate
depends on some covariates z as in a generalized linear model, and on others, x, by a
smooth function:

.. math:: \text{minimize} \quad \sum_i \exp(f_i) - y_i f_i + \lambda\|\theta\|^2, \qquad
   f_i = \log e_i + z_i^\top\beta + \theta^\top F(x_i).

scikit-learn's kernel methods have no Poisson loss, and its Poisson regression has no
kernel. Here the loss is a function call. Exposure and parametric part belong to the
affine expression f of Aθ, variables and data.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from statsmodels.datasets import randhie

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data
# --------
# The RAND health insurance experiment counted visits to doctors; 2000 of its 20 190
# rows are used. Insurance plan and health enter the linear part, with an intercept. The
# number of chronic diseases and the logarithm of the coinsurance rate enter the smooth
# part. Everyone was observed for a year; here some of that time is removed, with its
# share of the visits.

rng = np.random.default_rng(0)
data = randhie.load_pandas().data.sample(2000, random_state=0)
linear = ["idp", "lpi", "physlm", "hlthg", "hlthf", "hlthp"]
Z = np.column_stack([np.ones(len(data)), data[linear]])
smooth = data[["disea", "lncoins"]].to_numpy()
X = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
exposure = rng.uniform(0.2, 1.0, size=len(data))
y = rng.binomial(data["mdvis"].to_numpy(dtype=int), exposure)

# %%
# The problem
# -----------
# The picture shows the smooth part as a factor of the rate, for free care and for
# people who pay 95 % of their bills.

kernel = ko.kernels.Gaussian(sigma=2.0)
theta, A = ko.Theta(kernel), ko.FeatureMatrix(X, kernel)
beta, lam = cp.Variable(7, name="beta"), cp.Parameter(nonneg=True, name="lam")
f = np.log(exposure) + Z @ beta + A @ theta
problem = ko.Problem(
    cp.Minimize(cp.sum(ko.losses.poisson(y, f)) + lam * ko.sum_squares(theta))
)
lam.value = 0.5
problem.solve(tol=1e-10)
semi, g = beta.value, theta.value
print(problem.status, problem.solver_stats.solver_name, problem.certificate)
diseases = np.linspace(*np.quantile(smooth[:, 0], [0.01, 0.99]), 200)
fig, ax = plt.subplots()
for percent in (0, 95):
    points = np.column_stack([diseases, np.full(200, np.log(percent + 1))])
    factor = np.exp(g((points - smooth.mean(axis=0)) / smooth.std(axis=0)))
    ax.plot(diseases, factor, label=f"coinsurance {percent} %")
ax.set(xlabel="number of chronic diseases", ylabel="factor of the rate of visits")
ax.legend()
plt.show()

# %%
# Optimality conditions
# ---------------------
# At the optimum the derivative in each coefficient is zero. In :math:`Z^\top(\exp(f) -
# y) = 0`, the counts of the model equal those observed, for instance in total. And θ
# equals :math:`A^\top(y - \exp(f))/2\lambda`.

rate = np.exp(f.value)
print(f"visits: {y.sum()} observed, {rate.sum():.3f} by the model")
residual = ko.Function(kernel, X, (y - rate) / (2 * lam.value))
apart = np.abs(residual(X) - g(X)).max()
print(f"θ and Aᵀ(y − exp(f))/2λ differ by at most {apart:.1e}")

# %%
# The limit of a large λ
# ----------------------
# As λ grows, θ vanishes and β tends to the generalized linear model in z alone, which
# statsmodels fits too.

lam.value = 1e8
problem.solve(tol=1e-10)
glm = beta.value
print("          " + "  ".join(f"{name:>9}" for name in ["intercept", *linear]))
print("λ = 0.5   " + "  ".join(f"{value:9.3f}" for value in semi))
print("λ = 10⁸   " + "  ".join(f"{value:9.3f}" for value in glm))
