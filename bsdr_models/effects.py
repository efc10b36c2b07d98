"""Effects of the features, as every engine writes them into its tree."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, COMPONENT, DRAW, FEATURE, LABEL
from bsdr_models.numerics.relevance import importance, of_common_size
from bsdr_models.tasks import check_one_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Effects of D features on K class scores, or mean slopes of K latent coordinates.

    draws
        Coefficients by draw, (S, D, K); None for slopes. Except for real outputs, of a common size.
    mean
        (D, K).
    importance
        Of each feature, (D,).
    features, outcomes
        Their names.
    dim
        Name of the second axis: that of class scores, or that of latent coordinates.
    """

    draws: FloatArray | None
    mean: FloatArray
    importance: FloatArray
    features: np.ndarray
    outcomes: np.ndarray
    dim: str


def read_effects(tree: xr.DataTree) -> Effects:
    """Effects in a tree; ValueError if it has neither coefficients nor slopes."""
    fit = tree["fit"].to_dataset()
    if "posterior" in tree.children and "coef" in tree["posterior"]:
        coef = tree["posterior"]["coef"].transpose(CHAIN, DRAW, FEATURE, LABEL)
        check_one_task(coef)
        draws, classes = coef.values.reshape(-1, *coef.shape[2:]), "y_index" in fit
        if tree.attrs.get("target") != "regression":
            draws = of_common_size(draws, centred=classes)
        mean = draws.mean(axis=0)
        if tree.attrs.get("nonlinear"):  # mean slopes may cancel
            size = np.sqrt(len(mean) * fit["feature_relevance"].values)
        else:
            size = importance(mean, centred=classes)
    elif missing := {"projection_mean", "feature_relevance"} - set(fit):
        raise ValueError(
            "the tree has neither coefficients nor mean slopes: no variable 'coef' in group "
            f"'posterior', and no variable {', '.join(map(repr, sorted(missing)))} in group 'fit'"
        )
    else:
        coef, draws = fit["projection_mean"].transpose(FEATURE, COMPONENT), None
        mean = coef.values
        size = np.sqrt(len(mean) * fit["feature_relevance"].values)
    return Effects(
        draws=draws,
        mean=mean,
        importance=size,
        features=coef[FEATURE].values,
        outcomes=coef[coef.dims[-1]].values,
        dim=str(coef.dims[-1]),
    )
