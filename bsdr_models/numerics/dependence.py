"""Dependent samples: their intraclass correlation and effective number.

References
----------
.. [1] B. R. Moulton (1986). Random group effects and the precision of regression estimates.
       Journal of Econometrics 32(3).
"""

import numpy as np

from bsdr_models.numerics.arrays import FloatArray, IntArray


def weigh_samples(X: FloatArray, y: FloatArray, groups: IntArray) -> FloatArray:
    r"""Weights (N,) of samples (N, B) with outputs (N, K) in a likelihood of independent ones.

    They are :math:`1 / (1 + (m - 1) r_x r_y)` with the size m of a group and the intraclass
    correlations of features and outputs: the variance of regression coefficients is as many times
    larger than that from independent samples [1]_. Replicates together count as one sample.
    """
    size = np.bincount(groups)[groups]
    return np.asarray(1.0 / (1.0 + (size - 1.0) * intraclass(X, groups) * intraclass(y, groups)))


def effective_share(X: FloatArray, classes: IntArray, groups: IntArray | None) -> float:
    """Effective number of samples (N, D) of classes (N,) or labels (N, T), over their number.

    It is the mean of the weights of :func:`weigh_samples`, and one without groups.
    """
    if groups is None:
        return 1.0
    columns = classes.reshape(len(classes), -1).T
    indicators = [np.equal.outer(own, np.unique(own[own >= 0])) for own in columns]
    y = np.concatenate(indicators, axis=1).astype(np.float64)
    return float(weigh_samples(X, y, groups).mean())


def intraclass(values: FloatArray, groups: IntArray) -> float:
    """Intraclass correlation of all columns of values (N, C) together, at least 0."""
    _, index, size = np.unique(groups, return_inverse=True, return_counts=True)
    n_samples = len(index)
    n_groups = len(size)
    if n_groups in {1, n_samples}:
        return 0.0
    centred = values - values.mean(axis=0)
    sums = np.zeros((n_groups, values.shape[1]))
    np.add.at(sums, index, centred)
    between = np.sum(sums**2 / size[:, None])
    within = (np.sum(centred**2) - between) / (n_samples - n_groups)
    between /= n_groups - 1
    typical = (n_samples - np.sum(size**2) / n_samples) / (n_groups - 1)
    variance = max(between - within, 0.0) / typical
    return float(variance / (variance + within)) if variance > 0.0 else 0.0
