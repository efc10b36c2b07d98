"""Reading of trees: their groups, and the effects of the features."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, COMPONENT, DRAW, FEATURE, GRID_X, LABEL, OBS
from bsdr_models.inference.datatree import SUMMARY_DIMS
from bsdr_models.latent_grid import VARIABLE
from bsdr_models.numerics.relevance import feature_relevance, rescale_to_median_size

# Dims that variables of samples and maps have at least.
NEEDED = {**SUMMARY_DIMS, "y": (OBS,), VARIABLE: (GRID_X, LABEL)}


def read(tree: xr.DataTree, group: str, *names: str) -> xr.Dataset:
    """Dataset of a group, after checking that it has the variables `names`."""
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            f"expected an xarray.DataTree, got {type(tree).__name__}; "
            "a fitted estimator keeps its tree in `idata_`"
        )
    if group not in tree.children:
        raise ValueError(f"the tree has no group {group!r}; its groups are {sorted(tree.children)}")
    dataset = tree[group].to_dataset()
    for name in map(str, dataset.data_vars if group in ("fit", "predictions") else ()):
        check_dims(f"{group}/{name}", dataset[name], NEEDED.get(name, ()))
        if name in NEEDED and name != "y" and dataset[name].dtype.kind not in "biuf":
            raise ValueError(f"{group}/{name} must hold numbers, got {dataset[name].dtype}")
    missing = [name for name in names if name not in dataset.variables]
    if missing:
        engine = tree.attrs.get("inference_method", "unknown")
        raise ValueError(
            f"group {group!r} has no variable {', '.join(map(repr, missing))} "
            f"(inference method: {engine}); its variables are {sorted(map(str, dataset.data_vars))}"
        )
    return dataset


def read_draws(tree: xr.DataTree, group: str, *names: str) -> xr.Dataset:
    """Dataset of a group, after checking its variables and their dims chain and draw."""
    dataset = read(tree, group, *names)
    for name in names or map(str, dataset.data_vars):
        check_dims(f"{group}/{name}", dataset[name])
    return dataset


def check_dims(name: str, array: xr.DataArray, dims: Iterable[str] = (CHAIN, DRAW)) -> None:
    """Raise a ValueError unless an array has the dims, by default chain and draw."""
    if absent := [dim for dim in dims if dim not in array.dims]:
        raise ValueError(f"{name} has no dim {' and no '.join(map(repr, absent))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Effects of D features on K class scores, or mean slopes of K latent coordinates.

    ``dim`` names the second axis, class scores or latent coordinates.
    """

    draws: FloatArray | None  # (S, D, K), of a common size but for real outputs; None for slopes
    mean: FloatArray  # (D, K)
    importance: FloatArray  # share of each feature in the squared effects, (D,)
    strength: FloatArray  # by which features are in order, largest first, (D,)
    features: np.ndarray  # names, (D,)
    outcomes: np.ndarray  # names, (K,)
    dim: str


def read_effects(tree: xr.DataTree) -> Effects:
    """Effects in a tree; ValueError if it has neither coefficients nor slopes."""
    fit = read(tree, "fit")
    if "posterior" in tree.children and "coef" in tree["posterior"]:
        coef = tree["posterior"]["coef"].transpose(CHAIN, DRAW, FEATURE, LABEL)
        draws = coef.values.reshape(-1, *coef.shape[2:])
        classes = "y_index" in fit
        if tree.attrs.get("target") != "regression":
            draws = rescale_to_median_size(draws, centred=classes)
        mean = draws.mean(axis=0)
        k = mean.shape[1]
        share = feature_relevance(mean, np.eye(k) - classes / k)
    elif missing := {"projection_mean", "feature_relevance"} - set(fit):
        raise ValueError(
            "the tree has neither coefficients nor mean slopes: no variable 'coef' in group "
            f"'posterior', and no variable {', '.join(map(repr, sorted(missing)))} in group 'fit'"
        )
    else:
        coef = fit["projection_mean"].transpose(FEATURE, COMPONENT)
        draws = None
        mean = coef.values
        share = np.empty(0)
    if "feature_relevance" in fit:
        share = fit["feature_relevance"].values
    return Effects(
        draws=draws,
        mean=mean,
        importance=share,
        strength=fit["explained"].values if "explained" in fit else share,
        features=coef[FEATURE].values,
        outcomes=coef[coef.dims[-1]].values,
        dim=str(coef.dims[-1]),
    )
