"""Predictions of the papers' models from trees of fits and of traces."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.inference.datatree import read
from bsdr_models.numerics.arrays import FloatArray, SamplesLike
from bsdr_models.papers.bm2pca.draws import MeanScores
from bsdr_models.papers.bsdr.draws import BSDRDraws
from bsdr_models.papers.dgplvm.draws import posterior_of
from bsdr_models.papers.reading import read_new

# What predicts from the tree of a model.
READERS: Mapping[str, Callable[[xr.DataTree], Any]] = {
    "bsdr": BSDRDraws.of,
    "bm2pca": MeanScores.of_tree,
    "dgplvm": posterior_of,
}


def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, or means of real outputs.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` of a paper's model, or from :func:`bsdr_models.from_trace`, also of a recommended
        model.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.

    Returns
    -------
    ndarray of shape (M, K)
        Probabilities of the classes, or that each label is one; means of real outputs.

    Raises
    ------
    TypeError
        If `tree` is no tree.
    ValueError
        If it is not of these models, variables are missing, or X has other features than the tree.

    See Also
    --------
    bsdr_models.papers.bsdr.fit, bsdr_models.papers.bm2pca.fit, bsdr_models.papers.dgplvm.fit

    Notes
    -----
    Probabilities of BSDR and D-GPLVM are means over draws. Those of BM2PCA are the softmax of mean
    class scores; its model has a pseudo-likelihood, so they are not calibrated.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> X, y = load_iris(return_X_y=True)
    >>> X = scale(X)
    >>> tree = papers.bsdr.fit(X[::3], y[::3], n_components=2, random_state=0)
    >>> papers.bsdr.predict(tree, X[1::3]).shape
    (50, 3)
    """
    read(tree, "posterior")
    array = read_new(tree, X)
    if "temperature" in tree.attrs and "width" not in tree.attrs:  # as the paper's D-GPLVM has
        raise ValueError(
            "the tree is of a recommended estimator, which calibrates probabilities: use its "
            "predict_proba"
        )
    model = tree.attrs.get("model", "")
    if model not in READERS:
        raise ValueError(
            f"the tree is not of a fit or trace of {', '.join(READERS)}: from_trace makes one of a "
            "trace"
        )
    posterior = READERS[model](tree)
    if tree.attrs["target"] == "regression":
        coef, intercept = posterior.effects()
        return array @ coef + intercept
    return np.exp(posterior.log_probabilities(array))
