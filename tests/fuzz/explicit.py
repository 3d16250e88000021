"""Explicit features of a kernel matrix, so that plain cvxpy can state the same problem."""

import numpy as np


def gaussian(X, Z, sigma):
    """The Gaussian kernel matrix, from its formula."""
    return np.exp(-((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2) / (2 * sigma**2))


def features(Q):
    """One row of features for each row of Q: their products are the entries of Q."""
    values, vectors = np.linalg.eigh(Q)
    kept = values > 1e-12 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])
