r"""
The yield curve from bond prices, without arbitrage and robust to mispriced bonds
=================================================================================

A bond pays cash flows :math:`C_{ij}` at dates :math:`t_j`. Its price is a linear
functional of the discount curve d,

.. math:: P_i = \sum_j C_{ij}\,d(t_j), \qquad d(0) = 1.

Filipović, Pelger and Ye ("Stripping the discount curve", 2022) estimate :math:`d = 1 +
\theta` by kernel ridge regression. With M bonds of durations :math:`D_i`, a pricing
error divided by :math:`D_iP_i` is about an error of the yield, and

.. math:: \text{minimize} \quad
   \frac1M \sum_{i=1}^M
   \Bigl(\frac{P_i - \sum_j C_{ij} - (CA\theta)_i}{D_iP_i}\Bigr)^2
   + \lambda \|\theta\|^2,
   \qquad \|\theta\|^2 = \int_0^\infty \theta''(t)^2 e^{\alpha t}\,dt.

A has a row per date, CA one per bond. This page first states their estimator, and
compares it with its closed form. Then absolute values replace squares, so that a
mispriced bond does not distort the curve. And arbitrage is excluded: the forward rate
:math:`-d'(t)/d(t)` is nonnegative at all maturities,

.. math:: d'(t) \le 0 \ \text{ for all } t \in [0, 30], \qquad d(30) \ge 0.

As d decreases, the second inequality makes it positive everywhere.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The bonds
# ---------
# 43 bonds are made from a Nelson-Siegel curve with short rates near zero. Coupons are
# paid twice a year, in multiples of ⅛ %; up to one year there are bills without
# coupons. Yields have errors with a standard deviation of 3 basis points (bp). Two
# bonds are mispriced: one by +4 % of its price, the other by −5 %.

level, slope, curvature, decay = 0.02, -0.0195, -0.02, 2.0


def true_yield(t):
    u = t / decay
    mean = (1 - np.exp(-u)) / u
    return level + slope * mean + curvature * (mean - np.exp(-u))


def true_forward(t):
    u = t / decay
    return level + (slope + curvature * u) * np.exp(-u)


rng = np.random.default_rng(1)
quarters = [
    rng.integers(1, 5, 6),
    rng.integers(3, 41, 24),
    rng.integers(41, 121, 12),
    [120],
]
maturity = np.sort(np.concatenate(quarters)) / 4
M = len(maturity)
at_par = np.clip(true_yield(maturity) + 0.01 * rng.normal(size=M), 0, None)
coupon = np.where(maturity <= 1, 0, np.round(800 * at_par) / 8)  # percent a year


def cash_flows(maturity, coupon):
    """The dates of a bond in years, and what it pays there for 100 of face value."""
    dates = np.arange(maturity, 0, -0.5)
    return dates, coupon / 2 + 100 * (dates == maturity)


bonds = [cash_flows(*bond) for bond in zip(maturity, coupon, strict=True)]
dates, column = np.unique(
    np.concatenate([when for when, _ in bonds]), return_inverse=True
)
row = np.repeat(np.arange(M), [len(when) for when, _ in bonds])
C = sp.csr_array(
    (np.concatenate([paid for _, paid in bonds]), (row, column)), shape=(M, len(dates))
)


def duration(cash, price):
    """With continuous compounding, in years; and the yield to maturity."""
    to_maturity = brentq(lambda y: cash @ np.exp(-y * dates) - price, -0.5, 1.0)
    return (cash * np.exp(-to_maturity * dates)) @ dates / price, to_maturity


fair = C @ np.exp(-dates * true_yield(dates))
bonds_at_fair = zip(C.toarray(), fair, strict=True)
length = np.array([duration(cash, price)[0] for cash, price in bonds_at_fair])
price = fair * np.exp(-3e-4 * length * rng.normal(size=M))
mispriced = [np.searchsorted(maturity, 12.0), M - 3]
price[mispriced] *= [1.04, 0.95]
sold = zip(C.toarray(), price, strict=True)
D, to_maturity = np.transpose([duration(cash, p) for cash, p in sold])
print(f"{M} bonds, {len(dates)} dates; mispriced: {maturity[mispriced]} years")

# %%
# Kernel ridge regression
# -----------------------
# The kernel of the norm :math:`\int \theta''^2e^{\alpha t}` for functions with
# :math:`\theta(0) = 0` and :math:`\theta'(\infty) = 0` is :math:`\int \min(s, u)\min(t,
# u)e^{-\alpha u}\,du`. The parameters are those of the authors: α = 0.05, and λ = 1
# divided by the longest maturity in days.

alpha = 0.05


def smooth(s, t):
    low, high = np.minimum(s, t.T), np.maximum(s, t.T)
    at_low, at_high = np.exp(-alpha * low), np.exp(-alpha * high)
    return (2 / alpha * (1 - at_low) - low * (at_low + at_high)) / alpha**2


points, daily = dates[:, None], 1 / (365 * maturity.max())
ridge = ko.kernels.FromFunction(smooth, on_lists=True, psd=True)


def yield_errors(theta):
    """In basis points, one per bond."""
    model = C.sum(axis=1) + (C @ ko.FeatureMatrix(points, theta.kernel)) @ theta
    return (price - model) / (1e-4 * D * price)


theta = ko.Theta(ridge)
lam = cp.Parameter(nonneg=True, value=daily)
loss = cp.sum_squares(yield_errors(theta)) / M
problem = ko.Problem(cp.Minimize(loss + 1e8 * lam * ko.sum_squares(theta)))
problem.solve(tol=1e-10)
print(problem.certificate)

K = smooth(points, points)
weights = np.diag(M * (D * price) ** 2)
system = C @ (C @ K).T + daily * weights
closed_form = C.T @ np.linalg.solve(system, price - C.sum(axis=1))
fine = np.linspace(0.02, 30, 3000)
curves = {"ridge": 1 + theta.value(fine[:, None])}
by_formula = 1 + smooth(fine[:, None], points) @ closed_form
apart = -np.log(curves["ridge"] / by_formula) / fine
largest = 1e4 * np.abs(apart).max()
print(f"largest difference of yields from the closed form: {largest:.1e} bp")

# %%
# No arbitrage, and absolute errors
# ---------------------------------
# Proofs at all maturities need a kernel that is stationary and smooth. Here it is a
# rational quadratic one with a length scale of 10 years; :math:`\theta(0) = 0` becomes
# a constraint.

kernel = ko.kernels.RationalQuadratic(sigma=10.0, alpha=1.0)
curve = ko.Theta(kernel)
strength = cp.Parameter(nonneg=True)
d = lambda T: 1 + curve(T)
slope_of_d = lambda T: ko.FeatureMatrix(T, kernel).derivative(0) @ curve
robust = cp.norm1(yield_errors(curve)) / M + strength * ko.sum_squares(curve)
today = d([[0.0]]) == 1
no_arbitrage = [
    ko.everywhere(lambda T: slope_of_d(T) <= 0, 0.0, 30.0),
    d([[30.0]]) >= 0,
]


def rates(d, slope):
    """Yields and forward rates."""
    return -np.log(d) / fine, -slope / d


def row_of_table(name, strength, found):
    error = 1e4 * np.sqrt(np.mean((found[0] - true_yield(fine)) ** 2))
    lowest = found[1].argmin()
    values = f"{error:14.2f} {100 * found[1][lowest]:18.3f} {fine[lowest]:13.2f}"
    print(f"{name:36} {strength:7g} {values}")


# %%
# The table shows errors of yields up to 30 years against the true curve, for several
# penalties. The ridge estimator has no derivatives here; its forward rates are those of
# differences of discount factors.

fits = {}
columns = f"{'yield error bp':>14} {'least forward in %':>18} {'at years':>13}"
print(f"{'':36} {'penalty':>7} {columns}")
for factor in (1.0, 0.1, 0.01):
    lam.value = factor * daily
    problem.solve(tol=1e-8)
    discount = 1 + theta.value(fine[:, None])
    fits["ridge", factor] = rates(discount, np.gradient(discount, fine))
    row_of_table("squares, kernel ridge", factor, fits["ridge", factor])
statements = {"absolute errors": [], "absolute errors, no arbitrage": no_arbitrage}
for name, constraints in statements.items():
    stated = ko.Problem(cp.Minimize(robust), [today, *constraints])
    for strength.value in (1.0, 0.1, 0.01):
        stated.solve(tol=1e-5)
        f = curve.value
        falls = f.derivative(0)(fine[:, None])
        fits[name, strength.value] = rates(1 + f(fine[:, None]), falls)
        row_of_table(name, strength.value, fits[name, strength.value])

# %%
# The yields of the bonds, and of three curves:

usual = np.setdiff1d(np.arange(M), mispriced)
shown = {
    "absolute errors, no arbitrage": fits["absolute errors, no arbitrage", 0.1],
    "absolute errors": fits["absolute errors", 0.1],
    "kernel ridge": fits["ridge", 1.0],
}


def curves_of(k, truth, ax):
    ax.plot(fine, 100 * truth(fine), "-", color="0.8", linewidth=6, label="truth")
    for (name, found), style in zip(shown.items(), ("-", ":", "--"), strict=True):
        ax.plot(fine, 100 * found[k], style, label=name)
    ax.set(xlabel="maturity in years")


fig, ax = plt.subplots(figsize=(6.4, 4.4))
curves_of(0, true_yield, ax)
ax.plot(maturity[usual], 100 * to_maturity[usual], "o", color="0.4", label="bonds")
cross = {"color": "black", "markersize": 9, "markeredgewidth": 2}
yields = 100 * to_maturity
ax.plot(maturity[mispriced], yields[mispriced], "x", **cross, label="mispriced")
ax.set_ylabel("yield, percent per year")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# Their forward rates: without the constraint, they become negative.

fig, ax = plt.subplots(figsize=(6.4, 4.4))
ax.axhline(0, color="black", linestyle="-", linewidth=0.8)
curves_of(1, true_forward, ax)
ax.set_ylabel("forward rate, percent per year")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# In these data absolute errors help most where the penalty is large, and the constraint
# where it is small. With a small penalty the curve follows the noise, but it cannot
# bend down to negative forward rates. Where the constraint does not bind it costs
# nothing. The fit with a penalty of 0.1, with its certificate:

strength.value = 0.1
stated.solve()
print(stated.certificate)

# %%
# The largest errors of yields are those of the two mispriced bonds.

errors = yield_errors(curve).value
for i in np.argsort(-np.abs(errors))[:3]:
    kind = "mispriced" if i in mispriced else "not mispriced"
    bond = f"{maturity[i]:5.2f} years, coupon {coupon[i]:.3f} %"
    print(f"{bond}: {errors[i]:+6.1f} bp, {kind}")

# %%
# A new bond of 17.4 years with a coupon of 2 % pays at dates on which no other bond
# pays. Its price is a functional of the same curve.

when, paid = cash_flows(17.4, 2.0)
value = paid @ ko.FeatureMatrix(when[:, None], kernel) @ curve
new_price = (paid.sum() + value).value.item()
new_fair = paid @ np.exp(-when * true_yield(when))
print(f"price of the new bond {new_price:.3f}, by the true curve {new_fair:.3f}")
