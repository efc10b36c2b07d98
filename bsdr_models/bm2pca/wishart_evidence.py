r"""Evidence of the scale of an inverse Wishart covariance.

n independent rows of N(0, Psi) in d dimensions with scatter S, and
:math:`\Psi \sim IW(\nu_0, \kappa I)`, :math:`\nu_0 = d + 1`, have the density

.. math::
    \log m(\kappa) = \log \frac{\Gamma_d(\frac{\nu_0 + n}{2})}{\Gamma_d(\frac{\nu_0}{2})}
        - \tfrac{nd}{2} \log \pi + \tfrac{\nu_0 d}{2} \log\kappa
        - \tfrac{\nu_0 + n}{2} \log |\kappa I + S|,

which depends on S only by its eigenvalues. Non-zero ones are given with multiplicities.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from bsdr_models.arrays import FloatArray


def effective_sizes(n_samples: float, n_features: float, rank: int) -> tuple[float, float]:
    """n and d of a scatter of the given rank.

    In general position the rank is the smaller of the two. With repeated samples or dependent
    features it is lower, the density is singular, and the evidence is unbounded at kappa = 0; the
    smaller of n and d is therefore set to the rank.
    """
    if n_samples <= n_features:
        return (float(rank) if rank < np.floor(n_samples) else n_samples), float(n_features)
    return n_samples, float(rank)


def best_scale(
    eigenvalues: FloatArray, counts: FloatArray, n_samples: float, n_features: float
) -> float:
    r"""Kappa of the largest evidence.

    It is the root of :math:`\sum_j \kappa/(\kappa + s_j) = r - d n/(\nu_0 + n)`, r the rank. The
    left side increases with kappa, so the root is unique; its bracket has a closed form.

    Parameters
    ----------
    eigenvalues : (J,)
        s, positive.
    counts : (J,)
        Their multiplicities.
    n_samples, n_features : float
        n and d, from :func:`effective_sizes`.
    """
    rank = float(counts.sum())
    target = rank - n_features * n_samples / (n_features + 1.0 + n_samples)
    low = target * eigenvalues.min() / rank
    high = target * eigenvalues.max() / (rank - target)
    low, high = np.log(min(low, high)) - 1e-6, np.log(max(low, high)) + 1e-6
    root = brentq(
        lambda u: float(np.sum(counts / (1.0 + eigenvalues * np.exp(-u)))) - target,
        low,
        high,
        xtol=1e-12,
    )
    return float(np.exp(root))


def log_evidence(
    kappa: float, eigenvalues: FloatArray, counts: FloatArray, n_samples: float, n_features: float
) -> float:
    """log m(kappa), arguments as in :func:`best_scale`; -inf for an infinite kappa."""
    if np.isinf(kappa):
        return -np.inf
    d, n, nu0 = n_features, n_samples, n_features + 1.0
    log_det = float(counts @ np.log(kappa + eigenvalues)) + (d - counts.sum()) * np.log(kappa)
    order = 0.5 * (nu0 + 1.0 - np.arange(1, round(d) + 1))
    constant = float(np.sum(gammaln(order + 0.5 * n) - gammaln(order))) - 0.5 * n * d * np.log(
        np.pi
    )
    return float(constant + 0.5 * nu0 * d * np.log(kappa) - 0.5 * (nu0 + n) * log_det)
