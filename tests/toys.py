"""What tests of several files share: small data sets, and results by other routes."""

import numpy as np
from scipy.spatial.distance import cdist, pdist
from scipy.special import log_ndtr

# Prior variance of the mean of mapped samples.
MEAN_VARIANCE = 0.3


def condition(Z, y, latent, rest, out, *, width=2.0, noise=0.05, typical=None):
    """Conditional means and variances of mapped samples given the others, by dense algebra.

    The mean is that of the class centroids of ``y``, whose unknown samples do not count. Squared
    distances are relative to their median among the others, if no ``typical`` one is given.
    """
    if typical is None:
        typical = np.median(pdist(Z[rest], "sqeuclidean"))
    K = np.exp(-0.5 * width * cdist(Z, Z, "sqeuclidean") / typical) + MEAN_VARIANCE
    inner = K[np.ix_(rest, rest)] + noise * np.eye(len(rest))
    mean = np.mean([latent[y == c].mean(axis=0) for c in np.unique(y[y >= 0])], axis=0)
    cross = K[np.ix_(out, rest)]
    solved = np.linalg.solve(inner, cross.T)
    variance = 1.0 + MEAN_VARIANCE + noise - np.einsum("ij,ji->i", cross, solved)
    return mean + solved.T @ (latent[rest] - mean), variance


def condition_on_others(Z, y, latent, out, **options):
    """The same given all other samples, with the typical distance of all."""
    rest = np.delete(np.arange(len(Z)), out)
    typical = np.median(pdist(Z, "sqeuclidean"))
    return condition(Z, y, latent, rest, out, typical=typical, **options)


def central(function, x, step):
    """Central differences of an array function of x (..., P) in its last axis, (..., P)."""
    units = step * np.eye(x.shape[-1])
    return np.stack([function(x + e) - function(x - e) for e in units], axis=-1) / (2.0 * step)


def hermite(n_dims, n_nodes=20):
    """Nodes (G, P) and weights (G,) of N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * n_dims, indexing="ij"), axis=-1)
    product = np.meshgrid(*[weights / weights.sum()] * n_dims, indexing="ij")
    return grid.reshape(-1, n_dims), np.prod(product, axis=0).ravel()


def choice(mean, sd=1.0):
    """Probabilities (..., K) that independent normals are the largest."""
    nodes, weights = hermite(1, 30)
    sd = np.broadcast_to(sd, mean.shape)
    t = mean[..., None, :] + sd[..., None, :] * nodes  # (..., Q, K), of the largest
    below = log_ndtr((t[..., None] - mean[..., None, None, :]) / sd[..., None, None, :])
    own = np.arange(mean.shape[-1])
    below[..., own, own] = 0.0
    return np.einsum("q,...qk->...k", weights, np.exp(below.sum(axis=-1)))


def scatters(X, y):
    """Scatter matrices within and between classes, by a loop over samples."""
    within = between = 0.0
    for x, label in zip(X, y, strict=True):
        centre = X[y == label].mean(axis=0)
        within = within + np.outer(x - centre, x - centre) / len(X)
        off = centre - X.mean(axis=0)
        between = between + np.outer(off, off) / len(X)
    return within, between
