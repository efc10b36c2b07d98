"""Parameters and targets drawn from the joint distributions of the two models of BSDR.

Implemented independently of the functions under test.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.numerics.arrays import FloatArray, IntArray, Target
from bsdr_models.papers.bsdr.priors import Priors


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """C data sets of the paper's model with the same standardised features of N samples."""

    X: FloatArray  # (N, D)
    projection: FloatArray  # (C, D, R)
    latent: FloatArray  # (C, N, R)
    weights: FloatArray  # (C, R, K)
    bias: FloatArray  # (C, K)
    y: IntArray  # (C, N)


def features(n_samples: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    """Normal features, standardised exactly."""
    X = rng.standard_normal((n_samples, n_features))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def simulate(
    X: FloatArray, priors: Priors, size: tuple[int, int, int], rng: np.random.Generator
) -> Truths:
    """Draw (C, R, K) data sets from the paper's prior, a precision per entry, and likelihood."""
    c, r, k = size
    n, d = X.shape
    phi = rng.gamma(priors.projection_shape, 1.0 / priors.projection_rate, (c, d, r))
    psi = rng.gamma(priors.weight_shape, 1.0 / priors.weight_rate, (c, r, k))
    lam = rng.gamma(priors.bias_shape, 1.0 / priors.bias_rate, (c, k))
    Q = rng.standard_normal((c, d, r)) / np.sqrt(phi)
    W = rng.standard_normal((c, r, k)) / np.sqrt(psi)
    b = rng.standard_normal((c, k)) / np.sqrt(lam)
    Z = X @ Q + priors.latent_scale * rng.standard_normal((c, n, r))
    T = Z @ W + b[:, None] + rng.standard_normal((c, n, k))
    return Truths(X=X, projection=Q, latent=Z, weights=W, bias=b, y=T.argmax(axis=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalTruths:
    """C data sets of the model at full rank with the same features; centred over classes."""

    coef: FloatArray  # (C, D, K)
    bias: FloatArray  # (C, K)
    eta: FloatArray  # linear predictors, (C, N, K)
    scale: FloatArray  # tau, (C,)
    noise_scale: FloatArray  # sigma, (C, K), of real outputs only
    y: np.ndarray  # (C, N) of int, (C, N, K) of bool or of float


def varying_together(
    n_samples: int, n_features: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Standardised features with three common factors, and one more sample, (1, D)."""
    factors = rng.standard_normal((n_samples + 1, 3)) @ rng.standard_normal((3, n_features))
    X = factors + rng.standard_normal((n_samples + 1, n_features))
    X = (X - X[:-1].mean(axis=0)) / X[:-1].std(axis=0)
    return X[:-1], X[-1:]


def simulate_hierarchical(
    X: FloatArray,
    priors: HierarchicalPriors,
    size: tuple[int, int],
    target: Target,
    rng: np.random.Generator,
    *,
    n_strong: int | None = None,
) -> HierarchicalTruths:
    """Draw (C, K) data sets of centred features from the prior at full rank and its likelihood.

    The prior covariance of the projection is proportional to the identity; or only the first
    features have effects, which are so much stronger that class scores vary as much.
    """
    c, k = size
    n, d = X.shape
    tau = np.abs(priors.scale * rng.standard_normal(c))
    strong = d if n_strong is None else n_strong
    coef = tau[:, None, None] / np.sqrt(strong) * rng.standard_normal((c, d, k))
    coef[:, strong:] = 0.0
    b = priors.bias_scale * rng.standard_normal((c, k))
    sigma = np.exp(priors.noise_location + priors.noise_width * rng.standard_normal((c, k)))
    if target == "multiclass":
        coef -= coef.mean(axis=2, keepdims=True)
        b -= b.mean(axis=1, keepdims=True)
    eta = X @ coef + b[:, None]
    noise = rng.standard_normal((c, n, k))
    if target == "regression":
        y = eta + sigma[:, None] * noise
    else:
        y = (eta + noise).argmax(axis=2) if target == "multiclass" else eta + noise > 0.0
        guess = rng.integers(0, k if target == "multiclass" else 2, y.shape)
        y = np.where(rng.random(y.shape) < priors.lapse, guess, y).astype(y.dtype)
    return HierarchicalTruths(coef=coef, bias=b, eta=eta, scale=tau, noise_scale=sigma, y=y)
