r"""
A hundred thousand rows, with a certificate
===========================================

.. math:: \text{minimize} \quad
   \sum_i \log(1 + e^{-y_i(A\theta + b)_i}) + \lambda\|\theta\|^2

for 100 000 rows, whose kernel matrix would take 80 GB. B is stored in single precision,
and the certificate guides the choice of its columns. The bounds hold for the whole
kernel matrix, in double precision.

    python examples/large_scale.py          # 100 000 rows in this process
    python examples/large_scale.py --dask   # a Dask cluster of two local processes
    python examples/large_scale.py --rows 20000 --tol 1e-4
"""

import argparse
import resource
import time
from contextlib import ExitStack

import cvxpy as cp
import numpy as np

import kernelopt as ko


def data(rows, seed, columns=10):
    """Labels by a curved boundary, noisy near it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * rng.normal(size=rows)
    return X, np.where(score > 0, 1, -1)


def main():
    parser = argparse.ArgumentParser(
        description="Kernel logistic regression on many rows, certified."
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--tol", type=float, default=1e-3, help="certified relative gap"
    )
    parser.add_argument(
        "--dask", action="store_true", help="on a Dask cluster of two local processes"
    )
    options = parser.parse_args()

    X, y = data(options.rows, seed=0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=3.0)), cp.Variable(name="b")
    f = lambda X: theta(X) + b
    loss = cp.sum(ko.losses.log_loss(y, f(X)))
    problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))

    with ExitStack() as stack:
        backend = None
        if options.dask:
            from distributed import Client, LocalCluster  # noqa: PLC0415

            cluster = LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            )
            backend = stack.enter_context(Client(stack.enter_context(cluster)))
        begin = time.perf_counter()
        problem.solve(tol=options.tol, dtype="float32", backend=backend)
        seconds = time.perf_counter() - begin
        print(problem.history, "\n")
        print(f"{problem.status} after {seconds:.0f} s: {problem.certificate}")

    X_new, y_new = data(2000, seed=1)
    print(f"accuracy on 2000 new rows: {np.mean(np.sign(f(X_new).value) == y_new):.1%}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory of this process: {peak:.2f} GB")


if __name__ == "__main__":
    main()
