"""What the papers' models read: samples and targets of a fit, and trees of draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_array, check_consistent_length

from bsdr_models.data.targets import Targets, read_classes
from bsdr_models.data.validation import check_features, check_matrix, column_names, read_numbers
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context, read_draws
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, GROUP, LABEL, OBS, SCORE
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced

# Order of the dims of a variable.
ORDER = (*SAMPLE_DIMS, OBS, FEATURE, BASIS, GROUP, COMPONENT, LABEL, SCORE)


def read_training(
    X: SamplesLike,
    y: TargetLike,
    n_components: int,
    *,
    regression: bool = False,
    unlabeled: object = None,
    several: bool = True,
    config: dict[str, Any],
) -> Context:
    """Samples and targets as they are, with the settings of a fit."""
    array, names = check_features(X, y, n_components)
    if regression:
        outputs = read_numbers(y).reshape(len(array), -1)
        labels = np.array(column_names(y, "y", outputs.shape[1]))
        targets = Targets(kind="regression", y=outputs, coded=outputs, names=labels)
    else:
        targets = read_classes(y, unlabeled, several=several)
    check_consistent_length(array, targets.y)
    return Context(X=array, targets=targets, feature_names=names, config=config)


def read_new(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """New samples (M, D) as a finite array, of as many features as those of a tree."""
    check_matrix(X)
    array: FloatArray = check_array(X, dtype=np.float64, input_name="X")
    group = "posterior" if FEATURE in tree["posterior"].sizes else "constant_data"
    n_features = tree[group].sizes[FEATURE]
    if array.shape[1] != n_features:
        raise ValueError(f"X has {array.shape[1]} features, the tree has {n_features}")
    return array


def stack_draws(
    draws: Mapping[str, Any] | xr.Dataset, names: Sequence[str], most: int | None = None
) -> dict[str, FloatArray]:
    """Draws (S, ...) of some variables (chain, draw, ...), by default all, else evenly spaced."""
    arrays = {name: np.asarray(draws[name]) for name in names}
    stacked = {name: each.reshape(-1, *each.shape[2:]) for name, each in arrays.items()}
    if most is None:
        return stacked
    index = evenly_spaced(len(stacked[names[0]]), most)
    # C order, as in a model loaded from a file.
    return {name: np.ascontiguousarray(each[index]) for name, each in stacked.items()}


def take_draws(
    tree: xr.DataTree, names: Sequence[str], most: int | None = None
) -> dict[str, FloatArray]:
    """Draws (S, ...) of some variables of a tree, as of `stack_draws`."""
    posterior = read_draws(tree, "posterior", *names)
    return stack_draws(posterior.transpose(*ORDER, ..., missing_dims="ignore"), names, most)
