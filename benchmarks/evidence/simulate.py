"""Parameters, positions and labels drawn from the joint distribution that BSDR assumes.

Written from the model's definition, and not with the functions under test.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.bsdr.priors import Priors
from bsdr_models.typing import FloatArray, IntArray, ProjectionPrior


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """C independent data sets on the same N rows of features.

    X
        (N, D), columns of mean 0 and standard deviation 1, so that scaling changes nothing.
    projection, latent, weights, bias
        (C, D, R), (C, N, R), (C, R, K), (C, K).
    y
        (C, N).
    """

    X: FloatArray
    projection: FloatArray
    latent: FloatArray
    weights: FloatArray
    bias: FloatArray
    y: IntArray


def features(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    """Normal features, standardised exactly."""
    X = rng.standard_normal((n_rows, n_features))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def simulate(
    X: FloatArray,
    priors: Priors,
    size: tuple[int, int, int],
    rng: np.random.Generator,
    *,
    projection_prior: ProjectionPrior = "entrywise",
) -> Truths:
    """Draw from the prior, then from the likelihood.

    Parameters
    ----------
    X : (N, D)
    priors : Priors
    size : (C, R, K)
        Data sets, components, labels.
    rng : numpy.random.Generator
    projection_prior : {"entrywise", "columnwise", "rowwise"}
        Which entries of the projection share a precision.
    """
    c, r, k = size
    n, d = X.shape
    groups = {"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[projection_prior]
    phi = rng.gamma(priors.projection_shape, 1.0 / priors.projection_rate, (c, *groups))
    psi = rng.gamma(priors.weight_shape, 1.0 / priors.weight_rate, (c, r, k))
    lam = rng.gamma(priors.bias_shape, 1.0 / priors.bias_rate, (c, k))
    Q = rng.standard_normal((c, d, r)) / np.sqrt(phi)
    W = rng.standard_normal((c, r, k)) / np.sqrt(psi)
    b = rng.standard_normal((c, k)) / np.sqrt(lam)
    Z = X @ Q + priors.latent_scale * rng.standard_normal((c, n, r))
    T = Z @ W + b[:, None] + rng.standard_normal((c, n, k))
    return Truths(X=X, projection=Q, latent=Z, weights=W, bias=b, y=T.argmax(axis=2))
