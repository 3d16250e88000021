"""The problems whose proofs stand in `proofs/`: all kinds of functions, cones, norms and kernels that a file may hold.

python tests/certificate/stated_proofs.py    writes the files again
"""

from pathlib import Path

import cvxpy as cp
import numpy as np

import kernelopt as ko

FOLDER = Path(__file__).parent / "proofs"
N = 8
RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(N, 2)), 3)
Y = np.round(np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N), 3)
SIGNS, COUNTS = np.where(Y > 0, 1.0, -1.0), np.round(np.abs(3 * Y))
TARGETS = np.round(RNG.normal(size=(N, 2)), 3)
L = ko.losses
PROBLEMS = {}


def problem(state):
    PROBLEMS[state.__name__] = state
    return state


def theta(outputs=None, kernel=None):
    kernel = ko.kernels.Gaussian(sigma=1.0) if kernel is None else kernel
    found = ko.Theta(kernel) if outputs is None else ko.Theta(kernel, outputs=outputs)
    return found, found(X)


def ridge(loss, strength=0.1, kernel=None):
    """loss(f) + strength·‖θ‖² with an intercept."""
    t, f = theta(kernel=kernel)
    return ko.Problem(cp.Minimize(loss(f + cp.Variable()) + strength * ko.sum_squares(t)))


@problem
def squares():
    return ridge(lambda f: cp.sum_squares(Y - f))


@problem
def hinge():
    return ridge(lambda f: cp.sum(L.hinge(SIGNS, f)))


@problem
def hinge_of_a_linear_kernel():
    return ridge(lambda f: cp.sum(L.hinge(SIGNS, f)), kernel=ko.kernels.Linear())


@problem
def pinball_of_a_cubic_kernel():
    return ridge(lambda f: cp.sum(L.pinball(Y, f, 0.3)), kernel=ko.kernels.Polynomial(degree=3))


@problem
def huber_of_a_sum_of_kernels():
    kernel = 0.5 * ko.kernels.Gaussian(sigma=0.5).on([1]) + 2.0 * ko.kernels.Linear() + ko.kernels.Constant(0.25)
    return ridge(lambda f: cp.sum(cp.huber(Y - f, 0.25)), kernel=kernel)


@problem
def insensitive_of_a_laplacian_kernel():
    return ridge(lambda f: cp.sum(L.epsilon_insensitive(Y, f, 0.125)), kernel=ko.kernels.Laplacian(sigma=1.0))


@problem
def logistic():
    return ridge(lambda f: cp.sum(cp.logistic(-cp.multiply(SIGNS, f))))


@problem
def poisson():
    return ridge(lambda f: cp.sum(cp.exp(f) - cp.multiply(COUNTS, f)))


@problem
def gamma_scale():
    return ridge(lambda f: cp.sum(-cp.log(f) + cp.multiply(np.abs(Y) + 0.25, f)))


@problem
def entropy():
    return ridge(lambda f: cp.sum(-cp.entr(f)) + cp.sum_squares(f - Y))


@problem
def power():
    return ridge(lambda f: cp.sum(cp.power(cp.abs(Y - f), 1.5)))


@problem
def positive_power():
    return ridge(lambda f: cp.sum(cp.power(cp.pos(1 - cp.multiply(SIGNS, f)), 3)))


@problem
def inverse():
    return ridge(lambda f: cp.sum(cp.inv_pos(f + 0.5)) + cp.sum(cp.pos(f)))


@problem
def roots():
    return ridge(lambda f: cp.sum(-cp.sqrt(f)) + cp.sum_squares(f - Y))


@problem
def largest_error():
    return ridge(lambda f: cp.norm_inf(Y - f))


@problem
def value_at_risk():
    return ridge(lambda f: cp.sum_largest(cp.pos(1 - cp.multiply(SIGNS, f)), 3))


@problem
def sorted_errors():
    return ridge(lambda f: cp.dotsort(cp.abs(Y - f), np.arange(N) / 8.0))


@problem
def entropic_risk():
    return ridge(lambda f: cp.log_sum_exp(cp.square(Y - f)))


@problem
def worst_group():
    return ridge(lambda f: cp.maximum(cp.sum(cp.abs(Y - f)[:4]), cp.sum(cp.square(Y - f)[4:])))


@problem
def length_of_the_residual():
    t, f = theta()
    return ko.Problem(cp.Minimize(cp.norm(Y - f) + 0.25 * ko.norm(t)))


@problem
def norm_of_order_3():
    return ridge(lambda f: cp.pnorm(Y - f, 3))


@problem
def squares_over_a_scale():
    t, f = theta()
    scale = cp.Variable(nonneg=True)
    return ko.Problem(cp.Minimize(cp.quad_over_lin(Y - f, scale) + scale + 0.1 * ko.sum_squares(t)))


@problem
def mean_and_precision():
    t, f = theta(2)
    each = cp.hstack([cp.quad_over_lin(Y[i] - f[i, 0], f[i, 1] + 2) for i in range(N)])
    return ko.Problem(cp.Minimize(cp.sum(each) + cp.sum(f[:, 1]) + 0.1 * ko.sum_squares(t)))


@problem
def many_ratios():
    t, f = theta(2)
    each = [cp.quad_over_lin(Y[i % N] + i / 16 - f[i % N, 0], f[3 * i % N, 1] + 2) for i in range(32)]
    return ko.Problem(cp.Minimize(cp.sum(cp.hstack(each)) + 8 * cp.sum(f[:, 1]) + 0.1 * ko.sum_squares(t)))


@problem
def geometric_counts():
    return ridge(lambda f: cp.sum(-cp.log(1 - cp.exp(f))) - cp.sum(cp.multiply(COUNTS, f)))


@problem
def norms_of_rows():
    t, F = theta(2)
    lengths = cp.norm(F + cp.Variable(2)[None, :] - TARGETS, axis=1)
    return ko.Problem(cp.Minimize(cp.sum(lengths) + 0.1 * ko.sum_squares(t)))


@problem
def huber_of_norms():
    t, F = theta(2)
    lengths = cp.norm(F - TARGETS, axis=1)
    return ko.Problem(cp.Minimize(cp.sum(cp.huber(lengths, 0.5)) + 0.1 * ko.sum_squares(t)))


@problem
def multinomial():
    t, F = theta(3)
    return ko.Problem(cp.Minimize(cp.sum(L.multinomial(COUNTS.astype(int) % 3, F)) + 0.1 * ko.sum_squares(t)))


@problem
def nuclear_norm_of_residuals():
    t, F = theta(2)
    return ko.Problem(cp.Minimize(cp.normNuc(F - TARGETS) + 0.1 * ko.sum_squares(t)))


@problem
def spectral_norm_of_residuals():
    t, F = theta(2)
    return ko.Problem(cp.Minimize(cp.sigma_max(F - TARGETS) + 0.1 * ko.sum_squares(t)))


@problem
def nuclear_norm_of_theta():
    t, F = theta(2)
    return ko.Problem(cp.Minimize(cp.sum_squares(F - TARGETS) + ko.norm(t, "nuc")))


@problem
def spectral_norm_of_theta():
    t, F = theta(2)
    return ko.Problem(cp.Minimize(cp.sum_squares(F - TARGETS) + ko.norm(t, 2)))


@problem
def norms_of_outputs():
    t, F = theta(2)
    return ko.Problem(cp.Minimize(cp.sum_squares(F - TARGETS) + ko.norm(t @ [1.0, 0.0]) + 0.5 * ko.norm(t, "fro") ** 2))


@problem
def near_a_function():
    t, f = theta()
    u = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    first = ko.Problem(cp.Minimize(cp.sum_squares(Y[:4] - u(X[:4])) + ko.sum_squares(u)))
    first.solve()
    return ko.Problem(cp.Minimize(cp.sum(cp.abs(Y - f)) + ko.norm(t - u.value)))


@problem
def two_kernels():
    t, f = theta()
    u, g = theta(kernel=ko.kernels.Linear())
    loss = cp.sum(cp.logistic(-cp.multiply(SIGNS, f + g)))
    return ko.Problem(cp.Minimize(loss + 0.25 * ko.norm(t) + 0.25 * ko.norm(u)))


@problem
def free_linear_part():
    t, f = theta()
    _, g = theta(kernel=ko.kernels.Linear())
    return ko.Problem(cp.Minimize(cp.sum(cp.abs(Y - f - g)) + 0.1 * ko.sum_squares(t)))


@problem
def hinge_in_a_ball():
    t, f = theta()
    return ko.Problem(cp.Minimize(cp.sum(L.hinge(SIGNS, f))), [ko.norm(t) <= 0.5])


@problem
def bounds_and_an_equation():
    t, f = theta()
    return ko.Problem(cp.Minimize(cp.sum_squares(Y - f) + 0.1 * ko.sum_squares(t)), [cp.sum(f) == 0, f <= 0.5])


@problem
def least_norm_within_an_error():
    t, f = theta()
    return ko.Problem(cp.Minimize(ko.norm(t)), [cp.norm(Y - f) <= 0.75])


@problem
def matrix_inequality():
    t, F = theta(3)
    entries = [cp.bmat([[1 + F[i, 0], F[i, 1]], [F[i, 1], 1 + F[i, 2]]]) >> 0 for i in range(2)]
    return ko.Problem(cp.Minimize(cp.sum_squares(F[:, :2] - 2 * TARGETS) + 0.1 * ko.sum_squares(t)), entries)


@problem
def relative_entropy():
    t, f = theta()
    s = cp.Variable()
    return ko.Problem(cp.Minimize(cp.sum(cp.rel_entr(f + 2, s)) + cp.square(s - 1) + 0.1 * ko.sum_squares(t)))


@problem
def to_maximize():
    t, f = theta()
    return ko.Problem(cp.Maximize(cp.sum(cp.log(f + 2)) - cp.sum_squares(f) - 0.25 * ko.sum_squares(t) + 3))


@problem
def derivatives_of_theta():
    t, f = theta()
    slopes = t.derivative(0)(X)
    return ko.Problem(cp.Minimize(cp.sum_squares(Y - f) + cp.sum(cp.pos(-slopes)) + 0.1 * ko.sum_squares(t)))


def main():
    for name, state in PROBLEMS.items():
        stated = state()
        stated.solve(tol=1e-8)
        print(name, stated.status, stated.certificate.save(FOLDER / f"{name}.jsonl"))


if __name__ == "__main__":
    main()
