"""Credible regions of a bivariate normal, and moments of a mixture of normals."""

import numpy as np
from scipy.stats import chi2

from bsdr_models.arrays import FloatArray, IntArray

N_VERTICES = 73  # one every five degrees, the first repeated


def outline(mean: FloatArray, cov: FloatArray, *, prob: float) -> FloatArray:
    r"""Vertices of the ellipses of highest density that hold `prob` of N(mean, cov).

    .. math::
        (x - \mu)^\top \Sigma^{-1} (x - \mu) = \chi^2_2(\text{prob})

    Parameters
    ----------
    mean, cov
        (M, 2) and (M, 2, 2).

    Returns
    -------
    array
        (M, 73, 2).
    """
    angle = np.linspace(0.0, 2.0 * np.pi, N_VERTICES)
    circle = np.sqrt(chi2.ppf(prob, df=2)) * np.column_stack([np.cos(angle), np.sin(angle)])
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]  # root @ root.T = cov
    return np.asarray(mean[:, None, :] + np.einsum("mij,pj->mpi", root, circle))


def mixture_moments(mean: FloatArray, cov: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Mean (R,) and covariance (R, R) of an equal mixture of N(mean_n, cov_n).

    .. math::
        \Sigma = \frac{1}{N} \sum_n \left[
            \Sigma_n + (\mu_n - \bar\mu)(\mu_n - \bar\mu)^\top \right]

    Parameters
    ----------
    mean, cov
        (N, R) and (N, R, R).
    """
    centre = mean.mean(axis=0)
    deviation = mean - centre
    return centre, cov.mean(axis=0) + deviation.T @ deviation / len(mean)


def spread_samples(group: IntArray, limit: int) -> IntArray:
    """At most `limit` sorted sample indices, spread evenly over the groups, (<= limit,)."""
    if len(group) <= limit:
        return np.arange(len(group))
    by_group = np.argsort(group, kind="stable")
    return np.sort(by_group[np.linspace(0, len(group) - 1, limit).astype(np.int64)])
