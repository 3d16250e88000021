r"""
Physics-informed regression, with proofs about the differential equation
========================================================================

Noisy samples :math:`Y = f^\star(X) + \varepsilon` of a damped oscillator, which is known to solve
:math:`f'' + f' + f = 0` on :math:`[-L, L]`. Doumèche, Bach, Biau and Boyer ("Physics-informed kernel learning", 2025)
add the differential equation to ridge regression as a penalty:

.. math:: \text{minimize} \quad \frac1n \sum_{i=1}^n \bigl(f(X_i) - Y_i\bigr)^2 + \lambda |f|_s^2
   + \frac{\mu}{4L} \int_{-L}^L \bigl(f''(x) + f'(x) + f(x)\bigr)^2\,dx

over trigonometric polynomials :math:`f(x) = \sum_{|k| \le m} c_k e^{i\pi kx/2L}`, with the Sobolev norm
:math:`|f|_s^2 = \sum_k \bigl(1 + |k|^{2s}/(2L)^s\bigr)|c_k|^2`. Their package `pikernel
<https://github.com/NathanDoumeche/pikernel>`_ (MIT license) solves this problem; both formulas are those of its code.
Its documentation has an example, whose result is reproduced here.

A penalty keeps the mean square of :math:`f'' + f' + f` small. Two statements need more than a penalty, and are proven
here at every point of the interval:

.. math:: |f'' + f' + f| \le \varepsilon \quad \text{and} \quad f'' + f' + f \ge 0.

The first says that the equation holds within a tolerance, the second that an unknown force pushes in one direction.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import kernelopt as ko

plt.rc("axes.spines", top=False, right=False)

# %%
# The samples are those of the example: n = 1000 points drawn by torch after ``torch.manual_seed(1)``, noise with a
# standard deviation of 0.5, and 1000 test points. Torch on the CPU and numpy's ``RandomState`` have the same generator
# of 32-bit words, so that these draws need no torch.

L, n = np.pi, 1000


def uniform(words, size):
    """torch.rand: the low 53 bits of two words."""
    high, low = words.randint(0, 2**32, size=(size, 2), dtype=np.uint32).T.astype(np.uint64)
    return ((high << np.uint64(32) | low) & np.uint64(2**53 - 1)) / 2.0**53


def normal(words, size):
    """torch.randn: Box and Muller's method in blocks of 16. The last 16 numbers are drawn anew."""
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
#
# The norm of the coefficients is the norm of θ if the feature of frequency k is
# :math:`e^{i\pi kx/2L}/\sqrt{1 + |k|^{2s}/(2L)^s}`. The operator :math:`f'' + f' + f` multiplies this feature by
# :math:`(i\omega)^2 + i\omega + 1` with :math:`\omega = \pi k/2L`. A second column of the points tells which of both a
# row is. The integral is a sum over Gauss-Legendre nodes, which is exact up to rounding for polynomials of this degree.

s, m = 2, 100
k = np.arange(-m, m + 1)
omega = np.pi * k / (2 * L)
multiplier = (1j * omega) ** 2 + 1j * omega + 1


def features(points):
    waves = np.exp(1j * np.outer(points[:, 0], omega)) / np.sqrt(1 + np.abs(k) ** (2 * s) / (2 * L) ** s)
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
print(f"mean squared error: {reproduced:.9f}; the documentation of pikernel prints {published:.9f}")
print(problem.certificate)

# %%
# How well does the equation hold at this answer? The penalty bounds a mean square. At the ends of the interval, where
# the data say least, :math:`f'' + f' + f` is much larger than its root mean square.

fine = np.linspace(-L, L, 4001)
of_penalty = residual(fine).value
print(
    f"f″ + f′ + f: root mean square {np.sqrt(np.mean(of_penalty**2)):.3f}, "
    f"largest absolute value {np.abs(of_penalty).max():.3f}, at x = {fine[np.abs(of_penalty).argmax()]:.2f}"
)

# %%
# The equation within a tolerance, everywhere
# -------------------------------------------
#
# The same samples, a Gaussian kernel, and the equation as a constraint. :func:`kernelopt.everywhere` imposes it at few
# points, adds points where it fails, and proves it for the whole interval.

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

# %%
# The proof has a consequence. Let g solve the equation exactly, with :math:`g(-L) = f(-L)` and
# :math:`g'(-L) = f'(-L)`. By variation of constants
#
# .. math:: |f(x) - g(x)| \le \varepsilon \int_0^\infty \frac{2}{\sqrt 3}\, e^{-t/2}\,\bigl|\sin(t\sqrt 3/2)\bigr|\,dt
#    = \varepsilon \coth\frac{\pi}{2\sqrt 3} \quad \text{for all } x \in [-L, L].

bound = tolerance / np.tanh(np.pi / (2 * np.sqrt(3)))
start, speed = smooth.value([[-L]])[0], smooth.value.derivative(0)([[-L]])[0]
t = fine + L
exact = np.exp(-t / 2) * (
    start * np.cos(np.sqrt(3) / 2 * t) + (speed + start / 2) * 2 / np.sqrt(3) * np.sin(np.sqrt(3) / 2 * t)
)
apart = np.abs(smooth.value(fine[:, None]) - exact).max()
print(f"distance from an exact solution: at most {bound:.4f} by the proof, {apart:.4f} at 4001 points")

# %%
# Is the error smaller too? One draw does not tell: with two free numbers in an exact solution, noise alone makes an
# error of about :math:`2 \cdot 0.5^2/n = 0.0005`. Three draws, without the equation, with the penalty, with the
# tolerance, and least squares over the exact solutions :math:`e^{-x/2}(a \cos \frac{\sqrt 3}{2}x + b \sin
# \frac{\sqrt 3}{2}x)`, which is the limit of the tolerance:


def solutions(x):
    return np.exp(-x / 2)[:, None] * np.column_stack([np.cos(np.sqrt(3) / 2 * x), np.sin(np.sqrt(3) / 2 * x)])


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
for name, errors in [*((f"draw {seed}", e) for seed, e in enumerate(draws, 1)), ("mean", np.mean(draws, axis=0))]:
    print("{:19}  {:11.5f}  {:8.5f}  {:10.5f}  {:16.5f}".format(name, *errors))

# %%
# A force that only pushes
# ------------------------
#
# Now a force :math:`u(x) = f'' + f' + f` acts on the oscillator for some time. Neither its size nor its time is known,
# only its direction: :math:`u \ge 0`. The penalty takes u for an error, and shrinks it. The constraint leaves it any
# size. Points and noise are those of the first draw; the response to u is Duhamel's integral.


def push(x):
    return 3 * np.exp(-2 * x**2)


def pushed(x):
    t, w = np.polynomial.legendre.leggauss(100)
    half = (x[:, None] + L) / 2
    delay = half * (1 - t)
    answer = 2 / np.sqrt(3) * np.exp(-delay / 2) * np.sin(np.sqrt(3) / 2 * delay)
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
    forces[name], curves[name] = equation(fine[:, None]).value, smooth.value(fine[:, None])
print(problem.certificate)
for name, force in forces.items():
    print(
        f"{name:17} root mean square error of f {np.sqrt(np.mean((curves[name] - pushed(fine)) ** 2)):.3f}, "
        f"of the force {np.sqrt(np.mean((force - push(fine)) ** 2)):.3f}; least force {force.min():+.2f}"
    )

# %%
# Left, :math:`f'' + f' + f` at the answers of the first task: the penalty lets it grow at the ends, the tolerance keeps
# it within the grey band. Right, the force that is found with its sign, and without.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
left.axhspan(-tolerance, tolerance, color="0.85", label=f"±{tolerance:g}")
left.plot(fine, of_penalty, "--", color="tab:orange", label="penalty")
left.plot(fine, of_tolerance, color="tab:blue", label="tolerance everywhere")
left.set_yscale("symlog", linthresh=0.02)
left.set(title="the equation at the answers", xlabel="x", ylabel="f″ + f′ + f", ylim=(-0.5, 0.5))
left.legend(frameon=False, loc="lower right")
right.plot(fine, push(fine), color="0.7", lw=5, label="true force")
right.plot(fine, forces["no constraint"], ":", color="tab:green", label="no constraint")
right.plot(fine, forces["penalty, μ = 0.1"], "--", color="tab:orange", label="penalty, μ = 0.1")
right.plot(fine, forces["u ≥ 0 everywhere"], color="tab:blue", label="u ≥ 0 everywhere")
right.set(title="a force that only pushes", xlabel="x", ylabel="u = f″ + f′ + f", ylim=(-2.5, 4.5))
right.legend(frameon=False, loc="lower left", ncols=2, fontsize="small")
plt.show()
