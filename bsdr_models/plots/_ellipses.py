"""Credible regions of a bivariate normal."""

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


def spread_samples(group: IntArray, limit: int) -> IntArray:
    """At most `limit` sorted sample indices, spread evenly over the groups, (<= limit,)."""
    if len(group) <= limit:
        return np.arange(len(group))
    by_group = np.argsort(group, kind="stable")
    return np.sort(by_group[np.linspace(0, len(group) - 1, limit).astype(np.int64)])
