"""What a certificate costs, and that certificates of different ranks agree.

    python tests/benchmarks/certificate.py

N = 5000 points in four dimensions, Gaussian kernel, losses with intercept, BLAS on two threads. The kernel pass is the
streamed νᵀQν alone. Multipliers of all rows are found from ν, as for a solver of cvxpy's. Medians of times in one run.
"""

from __future__ import annotations

import argparse
import statistics
import time


def problems(N, losses):
    import cvxpy as cp
    import numpy as np

    import kernelopt as ko

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1
    y, labels = score + 0.3 * rng.standard_t(2, size=N), np.sign(score + 0.3 * rng.normal(size=N))
    terms = {
        "hinge": lambda f: ko.losses.hinge(labels, f),
        "pinball": lambda f: ko.losses.pinball(y, f, 0.3),
        "Huber": lambda f: ko.losses.huber(y, f, 0.5),
        "logistic": lambda f: ko.losses.log_loss(labels, f),
        "squared": lambda f: ko.losses.squared_error(y, f),
    }
    for name in losses:
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable()
        loss = cp.sum(terms[name](theta(X) + b))
        yield name, ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))


def seconds(call, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cost(problem, repeats):
    """Seconds of (the proof with multipliers of all rows found from ν, the kernel pass)."""
    from kernelopt.certificate import certify
    from kernelopt.compiler.outer import outer_of

    problem.solve(max_rank=60, tol=1e-3)
    point = problem._point
    reduction = problem._factored.reduction
    link, nu = reduction.form.predictions[0], point.multipliers()
    total = link.summed(nu[0])
    return (
        seconds(lambda: certify(reduction, outer_of(reduction.form), point), repeats),
        seconds(lambda: link.rows.quadratic(total), repeats),
    )


def enclosures(ranks):
    """Certificates of one problem at several ranks, and the largest gap between their enclosures (≤ 0: they meet)."""
    (_, problem), *_ = problems(1500, ["hinge"])
    found = []
    for rank in ranks:
        problem.solve(max_rank=rank)
        found.append(problem.certificate)
    apart = max(c.lower for c in found) - min(c.upper for c in found)
    return found, apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    repeats = parser.parse_args().runs
    from threadpoolctl import threadpool_limits

    with threadpool_limits(2):
        print(f"N = 5000, intercept, rank 60, {repeats} runs, two BLAS threads\n")
        print("| loss     | kernel pass | proof without it | target  |")
        print("|----------|------------:|-----------------:|--------:|")
        for name, problem in problems(5000, ["hinge", "pinball", "Huber", "logistic"]):
            whole, streamed = cost(problem, repeats)
            print(f"| {name:<8} | {streamed:>9.3f} s | {whole - streamed:>14.3f} s | ≤ 0.3 s |")
        found, apart = enclosures((60, 160))
        print("\nhinge, N = 1500:")
        for certificate in found:
            print(f"    {certificate}")
        print(f"    {'they intersect' if apart <= 0 else f'APART by {apart:.2g}'}")


if __name__ == "__main__":
    main()
