"""Further declared problems: rows on the simplex with several losses, and risks of rows' norms and of sorted losses.

    python tests/benchmarks/further.py [--rows N] [--seed S]

Printed as by loops.py: one BLAS thread, new data for each, at most 60 s.
"""

from loops import cp, ko, np, run


def theta(X, outputs=None):
    one = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=outputs)
    y = cp.Variable((1, outputs)) if outputs else cp.Variable()
    return one(X) + (np.ones((len(X), 1)) @ y if outputs else y), ko.sum_squares(one)


def on_the_simplex(G):
    return [G >= 0, cp.sum(G, axis=1) == 1]


def distances_of_probabilities(X, y, rng):
    """Sums of |differences of cumulative probabilities|, the distance of the earth mover."""
    (G, square), P = theta(X, 5), rng.dirichlet(np.ones(5), size=len(y))
    return cp.sum(cp.abs((P - G) @ np.triu(np.ones((5, 5)))[:, :4])) + 0.5 * square, on_the_simplex(G)


def relative_entropies(X, y, rng):
    (G, square), P = theta(X, 5), rng.dirichlet(np.ones(5), size=len(y))
    return cp.sum(cp.rel_entr(P, G)) + 0.5 * square, [cp.sum(G, axis=1) == 1]


def entropies_with_a_budget(X, y, rng):
    (G, square), gains = theta(X, 4), rng.normal(size=(len(y), 4))
    rows = [cp.sum(G, axis=1) == 1, cp.sum(G, axis=0) <= 0.3 * len(y)]
    return -cp.sum(cp.multiply(gains, G)) - cp.sum(cp.entr(G)) + 0.5 * square, rows


def maxima_on_the_simplex(X, y, rng):
    (G, square), hot = theta(X, 4), np.eye(4)[rng.integers(0, 4, size=len(y))]
    loss = cp.sum(cp.max(G + (1 - hot), axis=1) - cp.sum(cp.multiply(hot, G), axis=1))
    return loss + 0.5 * square, on_the_simplex(G)


def value_at_risk_of_norms(X, y, rng):
    (G, square), Y, k = theta(X, 4), np.outer(y, rng.normal(size=4)), len(y) // 10
    return cp.sum_largest(cp.norm(Y - G, 2, axis=1), k) / k + 0.01 * square, []


def spectral_risk_of_hinge(X, y, rng):
    (f, square), weights = theta(X), np.arange(len(y)) / len(y)
    return cp.dotsort(cp.pos(1 - cp.multiply(np.sign(y), f)), weights) + 0.1 * square, []


def spectral_risk_of_absolute_errors(X, y, rng):
    (f, square), weights = theta(X), np.arange(len(y)) / len(y)
    return cp.dotsort(cp.abs(y - f), weights) + 0.1 * square, []


CASES = (
    distances_of_probabilities, relative_entropies, entropies_with_a_budget, maxima_on_the_simplex,
    value_at_risk_of_norms, spectral_risk_of_hinge, spectral_risk_of_absolute_errors,
)  # fmt: skip


def heavy_tails(rng, rows):
    X = rng.normal(size=(rows, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(2, size=rows)


if __name__ == "__main__":
    run(CASES, heavy_tails)
