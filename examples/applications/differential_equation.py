r"""
Physics-informed regression, with proofs about the differential equation
========================================================================

Noisy samples :math:`Y = f^\star(X) + \varepsilon` come from a damped oscillator, which
solves :math:`f'' + f' + f = 0` on :math:`[-L, L]`. Doumèche, Bach, Biau and Boyer
("Physics-informed kernel learning", 2025) add the differential equation to ridge
regression as a penalty:

.. math:: \text{minimize} \quad
   \frac1n \sum_{i=1}^n \bigl(f(X_i) - Y_i\bigr)^2 + \lambda |f|_s^2
   + \frac{\mu}{4L} \int_{-L}^L \bigl(f''(x) + f'(x) + f(x)\bigr)^2\,dx

over trigonometric polynomials :math:`f(x) = \sum_{|k| \le m} c_k e^{i\pi kx/2L}`, with
the Sobolev norm :math:`|f|_s^2 = \sum_k \bigl(1 + |k|^{2s}/(2L)^s\bigr)|c_k|^2`. Their
package `pikernel <https://github.com/NathanDoumeche/pikernel>`_ (MIT license) solves
this problem; both formulas are those of its code. The result of an example in its
documentation is reproduced here.

A penalty keeps the mean square of :math:`f'' + f' + f` small. Two statements need more
than a penalty, and are proven here at every point of the interval:

.. math:: |f'' + f' + f| \le \varepsilon \quad \text{and} \quad f'' + f' + f \ge 0.

The first says that the equation holds within a tolerance, the second that an unknown
force pushes in one direction.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.style.use("kernelopt.plots")

# %%
# The samples
# -----------
# They are those of the example: n = 1000 points drawn by torch after
# ``torch.manual_seed(1)``, noise with a standard deviation of 0.5, and 1000 test
# points. Torch on the CPU and numpy's ``RandomState`` have the same generator of 32-bit
# words, so these draws need no torch.

L, n = np.pi, 1000


def uniform(words, size):
    """torch.rand: the low 53 bits of two words."""
    high, low = words.randint(0, 2**32, size=(size, 2), dtype=np.uint32).T.astype(
        np.uint64
    )
    return ((high << np.uint64(32) | low) & np.uint64(2**53 - 1)) / 2.0**53


def normal(words, size):
    """torch.randn: Box and Muller's method in blocks of 16; the last 16 are redrawn."""
    blocks = uniform(words, size)[: size // 16 * 16].reshape(-1, 2, 8)
    blocks = np.concatenate([blocks, uniform(words, 16).reshape(1, 2, 8)])
    radius, angle = np.sqrt(-2 * np.log(1 - blocks[:, 0])), 2 * np.pi * blocks[:, 1]
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    return np.concatenate([z[: size - 16], z[-16:]])


def oscillator(x):
    return np.exp(-x / 2) * np.cos(np.sqrt(3) / 2 * x)


def sample(seed):
    """Points, observations and test points."""
    words = np.random.RandomState(seed)
    x = uniform(words, n) * 2 * L - L
    y = oscillator(x) + 0.5 * normal(words, n)
    return x, y, uniform(words, n) * 2 * L - L


x, y, x_test = sample(1)

# %%
# The penalty
# -----------
# The norm of the coefficients is the norm of θ if the feature of frequency k is
# :math:`e^{i\pi kx/2L}/\sqrt{1 + |k|^{2s}/(2L)^s}`. The operator :math:`f'' + f' + f`
# multiplies this feature by :math:`(i\omega)^2 + i\omega + 1` with :math:`\omega = \pi
# k/2L`. A second column of the points marks rows to which the operator is applied. The
# integral is a sum over Gauss-Legendre nodes, which is exact up to rounding for
# polynomials of this degree.

s, m = 2, 100
k = np.arange(-m, m + 1)
omega = np.pi * k / (2 * L)
multiplier = (1j * omega) ** 2 + 1j * omega + 1


def features(points):
    scale = np.sqrt(1 + np.abs(k) ** (2 * s) / (2 * L) ** s)
    waves = np.exp(1j * np.outer(points[:, 0], omega)) / scale
    waves = np.where(points[:, 1:] == 1, multiplier * waves, waves)
    return np.hstack([waves.real, waves.imag])


theta = ko.Theta(ko.kernels.Explicit(features))
f = lambda x: theta(np.column_stack([x, np.zeros(len(x))]))
residual = lambda x: theta(np.column_stack([x, np.ones(len(x))]))

nodes, weights = np.polynomial.legendre.leggauss(220)
nodes, weights = L * nodes, L * weights


def penalized(x, y, mu):
    integral = weights @ cp.square(residual(nodes)) / (4 * L)
    loss = cp.sum_squares(f(x) - y) / n
    return ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) / n + mu * integral))


def squared_error(found, x):
    return np.mean((found - oscillator(x)) ** 2)


published = 0.0006955136680173575
problem = penalized(x, y, mu=1.0)
problem.solve(tol=1e-9)
reproduced = squared_error(f(x_test).value, x_test)
print(f"mean squared error {reproduced:.9f}, pikernel {published:.9f}")
print(problem.certificate)

# %%
# How well does the equation hold at this answer? The penalty bounds a mean square. At
# the ends of the interval, where the data have least influence, :math:`f'' + f' + f` is
# much larger than its root mean square.

fine = np.linspace(-L, L, 4001)
of_penalty = residual(fine).value
where = np.abs(of_penalty).argmax()
print(f"f″ + f′ + f: root mean square {np.sqrt(np.mean(of_penalty**2)):.3f}", end=", ")
print(f"largest absolute value {abs(of_penalty[where]):.3f}, at x = {fine[where]:.2f}")

# %%
# The equation within a tolerance, everywhere
# -------------------------------------------
# The samples are the same, the kernel is Gaussian, and the equation is a constraint.
# :func:`kernelopt.everywhere` imposes it at a few points, adds points where it fails,
# and proves it for the whole interval. In the picture, the penalty lets :math:`f'' + f'
# + f` grow at the ends; the tolerance keeps it within the grey band.

kernel = ko.kernels.Gaussian(sigma=1.0)
smooth = ko.Theta(kernel)
lam, tolerance = 1e-5, 0.01


def equation(P):
    A = ko.FeatureMatrix(P, kernel)
    return A.derivative((0, 0)) @ smooth + A.derivative(0) @ smooth + A @ smooth


def constrained(x, y, constraints):
    loss = cp.sum_squares(smooth(x[:, None]) - y) / n
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(smooth)), constraints)


within = [
    ko.everywhere(lambda P: equation(P) <= tolerance, -L, L),
    ko.everywhere(lambda P: equation(P) >= -tolerance, -L, L),
]
problem = constrained(x, y, within)
problem.solve()
of_tolerance = equation(fine[:, None]).value
certificate = problem.certificate
print(f"mean squared error: {squared_error(smooth(x_test[:, None]).value, x_test):.6f}")
print(certificate)

fig, ax = plt.subplots()
ax.axhspan(-tolerance, tolerance, color="0.87", label=f"±{tolerance:g}")
ax.plot(fine, of_tolerance, "-", color="C0", label="tolerance everywhere")
ax.plot(fine, of_penalty, "--", color="C1", linewidth=1, label="penalty")
ax.set_yscale("symlog", linthresh=0.02)
ticks = [-0.1, -0.01, 0, 0.01, 0.1]
ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
ax.set(xlabel="x", ylabel="f″ + f′ + f", ylim=(-0.6, 0.6))
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# The proof has a consequence. Let g solve the equation exactly, with :math:`g(-L) =
# f(-L)` and :math:`g'(-L) = f'(-L)`. By variation of constants
#
# .. math:: |f(x) - g(x)|
#    \le \varepsilon \int_0^\infty
#    \frac{2}{\sqrt 3}\, e^{-t/2}\,\bigl|\sin(t\sqrt 3/2)\bigr|\,dt
#    = \varepsilon \coth\frac{\pi}{2\sqrt 3} \quad \text{for all } x \in [-L, L].

bound = tolerance / np.tanh(np.pi / (2 * np.sqrt(3)))
start, speed = smooth.value([[-L]])[0], smooth.value.derivative(0)([[-L]])[0]
t = fine + L
root = np.sqrt(3) / 2
sine = (speed + start / 2) / root * np.sin(root * t)
exact = np.exp(-t / 2) * (start * np.cos(root * t) + sine)
apart = np.abs(smooth.value(fine[:, None]) - exact).max()
print("distance from an exact solution:", end=" ")
print(f"at most {bound:.4f} by the proof, {apart:.4f} at 4001 points")

# %%
# Is the error smaller too? One draw cannot tell. An exact solution has two free
# numbers, so noise alone causes an error of about :math:`2 \cdot 0.5^2/n = 0.0005`. The
# table shows three draws: without the equation, with the penalty, with the tolerance,
# and with least squares over the exact solutions :math:`e^{-x/2}(a \cos \frac{\sqrt
# 3}{2}x + b \sin \frac{\sqrt 3}{2}x)`, the limit of the tolerance.


def solutions(x):
    waves = np.column_stack([np.cos(root * x), np.sin(root * x)])
    return np.exp(-x / 2)[:, None] * waves


draws = []
for seed in (1, 2, 3):
    x_k, y_k, to = sample(seed)
    errors = []
    constrained(x_k, y_k, []).solve()
    errors.append(squared_error(smooth(to[:, None]).value, to))
    penalized(x_k, y_k, mu=1.0).solve()
    errors.append(squared_error(f(to).value, to))
    constrained(x_k, y_k, within).solve(tol=1e-4)
    errors.append(squared_error(smooth(to[:, None]).value, to))
    a, *_ = np.linalg.lstsq(solutions(x_k), y_k, rcond=None)
    errors.append(squared_error(solutions(to) @ a, to))
    draws.append(errors)
print("mean squared error   no equation   penalty   tolerance   exact solutions")
labels = ["draw 1", "draw 2", "draw 3", "mean"]
for name, errors in zip(labels, [*draws, np.mean(draws, axis=0)], strict=True):
    print("{:19}  {:11.5f}  {:8.5f}  {:10.5f}  {:16.5f}".format(name, *errors))

# %%
# A force that only pushes
# ------------------------
# Now a force :math:`u(x) = f'' + f' + f` acts on the oscillator for some time. Its size
# and time are unknown; its direction is known, :math:`u \ge 0`. The penalty treats u as
# an error, and shrinks it. The constraint leaves it any size. Points and noise are
# those of the first draw; the response to u is Duhamel's integral.


def push(x):
    return 3 * np.exp(-2 * x**2)


def pushed(x):
    t, w = np.polynomial.legendre.leggauss(100)
    half = (x[:, None] + L) / 2
    delay = half * (1 - t)
    answer = np.exp(-delay / 2) * np.sin(root * delay) / root
    return oscillator(x) + (half * answer * push(x[:, None] - delay)) @ w


y_pushed = y - oscillator(x) + pushed(x)
forces, curves = {}, {}
for mu in (0.01, 0.1, 1.0):
    penalized(x, y_pushed, mu).solve()
    name = f"penalty, μ = {mu:g}"
    forces[name], curves[name] = residual(fine).value, f(fine).value
pushing = ko.everywhere(lambda P: equation(P) >= 0, -L, L)
for name, constraints in (("no constraint", []), ("u ≥ 0 everywhere", [pushing])):
    problem = constrained(x, y_pushed, constraints)
    problem.solve()
    forces[name], curves[name] = (
        equation(fine[:, None]).value,
        smooth.value(fine[:, None]),
    )
print(problem.certificate)
rms = lambda errors: np.sqrt(np.mean(errors**2))
for name, force in forces.items():
    of_f, of_force = rms(curves[name] - pushed(fine)), rms(force - push(fine))
    print(f"{name:17} root mean square error of f {of_f:.3f}", end=", ")
    print(f"of the force {of_force:.3f}; least force {force.min():+.2f}")

fig, ax = plt.subplots()
ax.plot(fine, push(fine), "-", color="0.75", linewidth=6, label="true force")
for name in ("u ≥ 0 everywhere", "penalty, μ = 0.1", "no constraint"):
    ax.plot(fine, forces[name], label=name)
ax.set(xlabel="x", ylabel="u = f″ + f′ + f", ylim=(-1.7, 4.2))
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# sphinx_gallery_thumbnail_number = 2
