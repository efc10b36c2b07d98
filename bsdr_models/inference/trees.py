"""Reading of trees, with checks of what the plots and diagnostics need."""

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from bsdr_models.inference.datatree import SUMMARY_DIMS
from bsdr_models.inference.dims import CHAIN, DRAW, GRID_X, LABEL, OBS
from bsdr_models.inference.latent_grid import VARIABLE

# Dims that variables of samples and maps have at least.
NEEDED = {**SUMMARY_DIMS, "y": (OBS,), VARIABLE: (GRID_X, LABEL)}


def read(tree: xr.DataTree, group: str, *names: str) -> xr.Dataset:
    """Dataset of a group, after checking that it has the variables `names`."""
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            f"expected an xarray.DataTree, got {type(tree).__name__}; "
            "a fitted estimator keeps its tree in `idata_`"
        )
    if unnamed := [each for each in (group, *names) if not isinstance(each, str)]:
        raise TypeError(f"groups and variables of trees have names, got {unnamed[0]!r}")
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
    return _in_order(dataset, tree.attrs.get("class_order"))


def _in_order(dataset: xr.Dataset, order: Sequence[int] | None) -> xr.Dataset:
    """Classes in the order in which they are shown; trees hold them sorted by name."""
    if order is None:
        return dataset
    if "y_index" in dataset:
        places = np.append(np.argsort(order), -1)  # an unknown class, -1, remains the last
        dataset = dataset.assign(y_index=(OBS, places[dataset["y_index"].values]))
    return dataset.isel({LABEL: list(order)}, missing_dims="ignore")


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
