"""Small data, models and helpers that tests of several folders share."""

import subprocess
import sys
from functools import partial, wraps

import numpy as np
from pytensor.compile.mode import Mode
from scipy.spatial.distance import cdist, pdist
from scipy.special import log_ndtr
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    bm2pca,
    bsdr,
    dgplvm,
    papers,
)

RECOMMENDED = {
    "BSDR": BSDRClassifier(random_state=0),
    "BM2PCA": BM2PCAClassifier(random_state=0),
    "D-GPLVM": DGPLVMClassifier(random_state=0),
}

# How to compile what is evaluated a few times: by Python, and without rewriting.
FAST = {"mode": Mode("py", None)}
# Functions that declare a model of samples and classes.
BUILDS = {
    "bsdr": bsdr.build_model,
    "paper's bsdr": partial(papers.bsdr.build_model, n_components=2),
    "bm2pca": bm2pca.build_model,
    "paper's bm2pca": partial(papers.bm2pca.build_model, n_components=2),
    "dgplvm": partial(dgplvm.build_model, n_components=2),
    "paper's dgplvm": partial(papers.dgplvm.build_model, n_components=2, weight=100.0),
}
# Prior variance of the mean of mapped samples.
MEAN_VARIANCE = 0.3


def scaled_iris(start=0, step=5):
    """Some samples of iris, scaled by all, and their classes."""
    X, y = load_iris(return_X_y=True)
    return scale(X)[start::step], y[start::step]


def random_point(model, rng):
    """Values of every free variable, on the scale of the model."""
    sizes = {name: len(values) for name, values in model.coords.items()}
    point = {}
    for variable in model.free_RVs:
        shape = tuple(sizes[axis] for axis in model.named_vars_to_dims.get(variable.name, ()))
        positive = "precision" in variable.name or "scale" in variable.name
        point[variable.name] = rng.gamma(3.0, size=shape) if positive else rng.normal(size=shape)
    return point


def on_value_scale(model, point):
    """A point as PyMC samples it: of precisions the logarithms."""
    return {
        name: np.log(point[name[: -len("_log__")]]) if name.endswith("_log__") else point[name]
        for name in (variable.name for variable in model.continuous_value_vars)
    }


def random_values(model, seed, size=0.4):
    """Values of all free variables as PyMC samples them, of some size."""
    rng = np.random.default_rng(seed)
    start = model.initial_point()
    return {name: size * rng.standard_normal(value.shape) for name, value in start.items()}


def with_value(X, value):
    """Samples with another value in one place."""
    X = X.copy()
    X[3, 1] = value
    return X


def run_fresh(code, *arguments):
    """Run code in a new interpreter; what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def stopped(function, call, calls=None):
    """The function, stopped by the user at one of its calls; the list ``calls`` grows with them."""
    calls = [] if calls is None else calls

    @wraps(function)
    def tired(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return tired


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
