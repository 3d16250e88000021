r"""
Monotone quantile regression without crossing, for all incomes
==============================================================

An Engel curve is the expenditure of households on a good as a function of their income.
Five quantiles :math:`F_k(x) = \theta_k^\top F(x) + c_k` of the expenditure on food are
fitted together. Food is a normal good, so each quantile rises with the income.
Quantiles of one distribution never cross:

.. math:: \begin{array}{ll}
   \text{minimize} & \displaystyle \sum_{i,k} \rho_{\tau_k}\bigl(y_i - F_k(x_i)\bigr)
   + \lambda\|\theta\|^2 \\
   \text{subject to} & F_k'(x) \ge 0, \quad F_{k+1}(x) - F_k(x) \ge 0
   \quad \text{for all } x \in [a, b],
   \end{array}

with the pinball loss ρ. The constraints hold for all incomes of the range, not only at
points of a grid. With constraints at points only, curves fall and cross between them.
Margins at the points repair that (Aubin-Frankowski and Szabó, "Hard shape-constrained
kernel machines", NeurIPS 2020), at a cost in the objective. ``ko.everywhere`` states
the constraints as they are meant, and its answer is proven for the whole range.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from statsmodels.datasets import engel
from statsmodels.formula.api import quantreg

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The data
# --------
# They are Engel's 235 Belgian households. First come straight lines: the documentation
# of statsmodels prints the slope .5602 of the median and .4018 and .6863 of the outer
# deciles.

data = engel.load_pandas().data
levels = [0.1, 0.3, 0.5, 0.7, 0.9]
lines = [quantreg("foodexp ~ income", data).fit(q=level).params for level in levels]
print("slopes of quantile regression:", [f"{line['income']:.4f}" for line in lines])

# %%
# The same lines solve a problem in a finite θ: a linear kernel without a penalty.

income, food = data["income"].to_numpy() / 1000, data["foodexp"].to_numpy() / 1000
Y = np.repeat(food[:, None], 5, axis=1)
straight, c = ko.Theta(ko.kernels.Linear(), outputs=5), cp.Variable((1, 5))
loss = cp.sum(ko.losses.pinball(Y, straight(income[:, None]) + c, levels))
linear = ko.Problem(cp.Minimize(loss))
linear.solve(tol=1e-9)
slopes = np.diff(straight.value([[0.0], [1.0]]), axis=0)[0]
print("slopes of the statement here:  ", [f"{slope:.4f}" for slope in slopes])

# %%
# Curves
# ------
# The data are logarithms of income and of food expenditure, standardized. The kernel is
# Gaussian, and θ a p×5 matrix.

logarithms = np.log(np.column_stack([income, food]))
x, y = ((logarithms - logarithms.mean(axis=0)) / logarithms.std(axis=0)).T
X, Y, span = x[:, None], np.repeat(y[:, None], 5, axis=1), (x.min(), x.max())
lam, kernel = 0.01, ko.kernels.Gaussian(sigma=1.0)
theta, c = ko.Theta(kernel, outputs=5), cp.Variable((1, 5), name="c")


def curves(P):
    return theta(P) + c


def slope(P):
    return ko.FeatureMatrix(P, kernel).derivative(0) @ theta


loss = cp.sum(ko.losses.pinball(Y, curves(X), levels)) + lam * ko.sum_squares(theta)

# %%
# There are three ways to state the shape: at n points; at n points with margins, which
# cover the range by the Cauchy-Schwarz inequality; and everywhere.


def at_points(n):
    P = np.linspace(*span, n)[:, None]
    return [slope(P) >= 0, cp.diff(curves(P), axis=1) >= 0]


def with_margins(n):
    radius = (span[1] - span[0]) / (2 * n)
    P = np.linspace(span[0] + radius, span[1] - radius, n)[:, None]
    A = ko.FeatureMatrix(P, kernel)
    eta, eta_slope = A.modulus(radius)[0], A.derivative(0).modulus(radius)[0]
    differences = np.diff(np.eye(5)).T
    rising = [eta_slope * ko.norm(theta[:, k]) <= slope(P)[:, k] for k in range(5)]
    ordered = [eta * ko.norm(theta @ M) <= curves(P) @ M for M in differences]
    return rising + ordered


def everywhere():
    return [
        ko.everywhere(lambda P: slope(P) >= 0, *span),
        ko.everywhere(lambda P: curves(P)[:, 1:] >= curves(P)[:, :-1], *span),
    ]


# %%
# Each answer is checked at 10 000 incomes of the range.

fine = np.linspace(*span, 10_000)[:, None]
fits = {}
shapes = {
    "8 points": at_points(8),
    "60 points": at_points(60),
    "60 margins": with_margins(60),
    "200 margins": with_margins(200),
    "everywhere": everywhere(),
}
for name, constraints in shapes.items():
    problem = ko.Problem(cp.Minimize(loss), constraints)
    problem.solve(tol=1e-5)
    fits[name] = {
        "problem": problem,
        "status": problem.status,
        "certificate": problem.certificate,
        "curves": curves(fine).value,
        "slope": slope(fine).value,
    }
    print(
        f"{name:12} {problem.status}, value {problem.value:.4f}, "
        f"least slope {fits[name]['slope'].min():+.1e}, "
        f"least distance {np.diff(fits[name]['curves'], axis=1).min():+.1e}"
    )
certificate = fits["everywhere"]["certificate"]
rising, ordered = shapes["everywhere"]

# %%
# With constraints everywhere, curves neither fall nor cross. Ticks mark the incomes at
# which a constraint binds.

styles = ["-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1))]


def picture(name):
    fig, ax = plt.subplots()
    ax.plot(x, y, "o", color="0.8", markersize=3)
    for k, level in enumerate(levels):
        style = {"linestyle": styles[k], "color": plt.cm.cividis(k / 5)}
        ax.plot(fine, fits[name]["curves"][:, k], **style, label=f"{level:.0%}")
    ax.set(xlabel="log income, standardized", ylabel="log food expenditure")
    ax.set(title=f"constraints: {name}", ylim=(-2.6, 3.7))
    fig.legend(loc="outside right upper", title="quantile", reverse=True)
    return ax


ax = picture("everywhere")
for box in (rising, ordered):
    place = np.full(len(box.binding), -2.45)
    ax.plot(box.binding, place, "|", color="black", markersize=9)
plt.show()

# %%
# With constraints at 8 points, quantiles fall and cross between the points (thick
# lines).

ax = picture("8 points")
found = fits["8 points"]
crossed = np.diff(found["curves"], axis=1) < -1e-6
for k in range(5):
    wrong = found["slope"][:, k] < -1e-6
    wrong |= crossed[:, min(k, 3)] | crossed[:, max(k - 1, 0)]
    ax.plot(fine[wrong], found["curves"][wrong, k], "o", color="C1", markersize=4)
plt.show()

# %%
# What is proven, and what margins cost
# -------------------------------------
# The certificate tells what is proven, and how close the value is to the optimum with
# constraints at infinitely many incomes. Margins are safe too. Compared with the
# optimum, their cost is:

print(str(certificate).replace(", proven", "\nproven"))
lost = {}
for name in ("60 margins", "200 margins"):
    lost[name] = fits[name]["problem"].value / certificate.upper - 1
    print(f"{name} lose {lost[name]:.2%} of the objective")

# %%
# In the end the constraints are imposed at few points, and bind at fewer.

for text, box in (("F′ ≥ 0", rising), ("no crossing", ordered)):
    counts = f"{len(box.points)} points, {len(box.binding)} bind"
    print(f"{text}: {counts}, proven g ≥ {box.least:.1e}")
