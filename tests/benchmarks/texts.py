"""Texts as rows of a sparse matrix: kernelopt's estimator and problem beside scikit-learn's SVC on the same rows.

    python tests/benchmarks/texts.py [--rows 1500] [--columns 40000] [--seed 7]

Each runs in a process of its own: seconds of the fit, certificate included, peak memory of the process, and the share
of 300 new texts that get their topic. One BLAS thread. Texts are drawn: 120 words each of Zipf's law, of which three in
twenty belong to the topic; entries are log counts, rows have length 1.
"""

import argparse
import os
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
WORDS, SHARE, TOPIC = 120, 0.15, 200
WAYS = ("SVC linear", "SVC rbf", "KernelClassifier linear", "KernelClassifier rbf", "Problem linear", "Problem rbf")


def texts(np, sp, rows, columns, *, seed, topics):
    """A sparse matrix and labels ±1; topics : the words of both topics."""
    rng = np.random.default_rng(seed)
    law = 1 / np.arange(1, columns + 1)
    row, word = np.repeat(np.arange(rows), WORDS), rng.choice(columns, size=rows * WORDS, p=law / law.sum())
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    mine = rng.random(len(word)) < SHARE
    word[mine] = topics[rng.integers(0, TOPIC, mine.sum()) + TOPIC * (y[row[mine]] > 0)]
    X = sp.csr_matrix((np.ones(len(word)), (row, word)), shape=(rows, columns))
    X.sum_duplicates()
    X.data = 1 + np.log(X.data)
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(1 / lengths) @ X), y


def measured(way, rows, columns, seed):
    import resource

    import cvxpy as cp
    import numpy as np
    import scipy.sparse as sp
    from sklearn.svm import SVC

    import kernelopt as ko
    from kernelopt.estimators import KernelClassifier

    topics = np.random.default_rng(seed).integers(0, columns, 2 * TOPIC)
    (X, y), (new, labels) = (texts(np, sp, n, columns, seed=seed + k, topics=topics) for k, n in enumerate((rows, 300)))
    kind, kernel = way.split()
    gamma = 1 / (columns * (X.power(2).mean() - X.mean() ** 2))
    start, said = time.perf_counter(), ""
    if kind == "Problem":
        kappa = ko.kernels.Linear() if kernel == "linear" else ko.kernels.Gaussian.from_gamma(gamma)
        theta, b = ko.Theta(kappa), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.5 * ko.sum_squares(theta)))
        problem.solve()
        seconds, said = time.perf_counter() - start, f"{problem.status}, gap {problem.certificate.relative_gap:.1e}"
        predicted = np.sign(theta.value(new) + b.value)
    else:
        model = SVC(kernel=kernel) if kind == "SVC" else KernelClassifier(loss="hinge", kernel=kernel, C=1.0)
        model.fit(X, y)
        seconds, predicted = time.perf_counter() - start, model.predict(new)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{way:<24} {seconds:6.2f} s  {memory:5.0f} MB  {np.mean(predicted == labels):.3f}  {said}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--columns", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--way", choices=WAYS)
    told = parser.parse_args()
    if told.way:
        measured(told.way, told.rows, told.columns, told.seed)
        return
    sizes = [f"--{name}={getattr(told, name)}" for name in ("rows", "columns", "seed")]
    for way in WAYS:
        subprocess.run([sys.executable, "-W", "ignore", __file__, "--way", way, *sizes], check=True)


if __name__ == "__main__":
    main()
