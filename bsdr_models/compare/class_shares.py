"""Class probabilities for a population with other class shares than the training samples."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from bsdr_models.compare.plane import check_probabilities
from bsdr_models.numerics.arrays import FloatArray

# Sums of rounded shares differ from one by at most so much.
TOLERANCE = 0.01


def shift_class_shares(probability: ArrayLike, old: ArrayLike, new: ArrayLike) -> FloatArray:
    r"""Class probabilities of samples from a population with other class shares.

    Probabilities hold for the class shares of the training samples. If classes are as they were and
    only their shares differ, such as fewer cases in the field than in a study, Bayes' rule gives
    :math:`p'(k \mid x) \propto p(k \mid x)\, \pi'_k / \pi_k` [1]_.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
        Probabilities, as of ``predict_proba``.
    old : array-like of shape (n_classes,)
        Shares of the classes in the training samples, in the order of ``classes_``; none is zero.
    new : array-like of shape (n_classes,)
        Their shares in the population of the samples.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)

    Raises
    ------
    ValueError
        If shapes disagree, or probabilities or shares are negative or do not sum to one.

    See Also
    --------
    bsdr_models.BSDRClassifier.fit : ``sample_weight``, with which a fit has other class shares.

    References
    ----------
    .. [1] M. Saerens, P. Latinne, C. Decaestecker (2002). Adjusting the outputs of a classifier to
           new a priori probabilities: a simple procedure. Neural Computation 14(1).

    Examples
    --------
    >>> from bsdr_models import shift_class_shares
    >>> shift_class_shares([[0.5, 0.5]], old=[0.5, 0.5], new=[0.9, 0.1])
    array([[0.9, 0.1]])
    """
    p = check_probabilities(probability)
    before, after = (check_array(each, dtype=np.float64, ensure_2d=False) for each in (old, new))
    for name, share in {"old": before, "new": after}.items():
        if share.shape != p.shape[1:]:
            raise ValueError(
                f"{name} has the shape {share.shape}, not a share of {p.shape[1]} classes"
            )
        if share.min() < 0.0 or abs(share.sum() - 1.0) > TOLERANCE:
            raise ValueError(f"{name} must be shares of sum one, got {share.tolist()}")
    if not before.all():
        raise ValueError(f"old has a class without samples: {before.tolist()}")
    shifted = p * (after / before)
    total = shifted.sum(axis=1, keepdims=True)
    if not total.all():
        sample = int((total == 0.0).argmax())
        raise ValueError(f"sample {sample} is certainly of a class that new does not have")
    return np.asarray(shifted / total)
