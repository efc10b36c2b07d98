"""What fits of the three papers' models have in common: training samples, and summaries."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_array, check_consistent_length

from bsdr_models.data.targets import Targets, read_classes
from bsdr_models.data.validation import check_features, column_names, read_numbers
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import feature_relevance, relevance

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]


def read_training(
    X: SamplesLike,
    y: TargetLike,
    n_components: int,
    *,
    regression: bool = False,
    unlabeled: object = None,
    config: dict[str, Any],
) -> tuple[Context, np.ndarray]:
    """Samples as they are with the settings of a fit, and targets as steps take them.

    These are classes (N,), zeros and ones of label sets (N, T), or real outputs (N, K).
    """
    array, names = check_features(X, y, n_components)
    if regression:
        outputs = read_numbers(y).reshape(len(array), -1)
        labels = np.array(column_names(y, "y", outputs.shape[1]))
        targets = Targets(kind="regression", y=outputs, coded=outputs, names=labels)
    else:
        targets = read_classes(y, unlabeled, several=True)
    check_consistent_length(array, targets.y)
    context = Context(
        X=array,
        y=targets.y,
        index=targets.index,
        labels=targets.names,
        target=targets.kind,
        feature_names=names,
        config=config,
    )
    return context, targets.coded


def read_new(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """New samples (M, D) as a finite array, of as many features as those of a tree."""
    array: FloatArray = check_array(X, dtype=np.float64, input_name="X")
    group = "posterior" if FEATURE in tree["posterior"].sizes else "constant_data"
    n_features = tree[group].sizes[FEATURE]
    if array.shape[1] != n_features:
        raise ValueError(f"X has {array.shape[1]} features, the tree has {n_features}")
    return array


def describe(
    context: Context, latent: FloatArray, loadings: FloatArray, weights: FloatArray
) -> tuple[dict[str, object], dict[str, float]]:
    """Summaries and root attributes of a linear map of the features, by name.

    Of latent coordinates (N, R), the map (P, R) and its weights (R, K) in the class scores.
    """
    contrast = context.contrast(weights)
    reference = Reference.learn(context.X, loadings)
    group: dict[str, object] = {
        "projection_mean": loadings,
        "relevance": relevance(latent, contrast),
        "feature_relevance": feature_relevance(loadings, contrast),
    }
    if reference is None:
        return group, {}
    return group | reference.compare_training(context.X), reference.attrs()
