"""What 1000 solves leave behind: `make fuzz` prints memory, threads and open files after 100, 600 and 1100 solves."""

import gc
import os
import sys
import threading
import tracemalloc

import cvxpy as cp
import numpy as np

import kernelopt as ko

AT, ALLOWED = (100, 600, 1100), 200_000  # bytes; one problem has 15 kB


def stated(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=n))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.1 * ko.sum_squares(theta)))


def state():
    gc.collect()  # problems are cycles
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return tracemalloc.get_traced_memory()[0], threading.active_count(), files


def leaks(solver):
    """Whether memory, threads or files grow from 100 solves to 1100."""
    found = []
    tracemalloc.start()
    for i in range(max(AT) + 1):
        stated(n=20, seed=i % 5).solve(solver=solver, tol=1e-3)
        if i in AT:
            found.append(state())
            print(
                f"{solver or 'own':>10} {i:5} solves: {found[-1][0] / 1e3:8.0f} kB, threads and files {found[-1][1:]}"
            )
    tracemalloc.stop()
    first, last = found[0], found[-1]
    return last[0] - first[0] > ALLOWED or last[1:] != first[1:]


if __name__ == "__main__":
    leaking = [str(solver) for solver in (None, "CLARABEL", "OSQP", "SCS") if leaks(solver)]
    sys.exit(f"memory, threads or files grow: {leaking}" if leaking else 0)
