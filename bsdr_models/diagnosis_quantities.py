"""Identified quantities: given by the user, by a specification, or derived from a tree."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models import diagnosis_checks as checks
from bsdr_models.alignment import read_draws
from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.diagnosis_checks import Limits
from bsdr_models.diagnosis_report import Row
from bsdr_models.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.spec import ModelSpec

# Arguments of `align_draws` for each model; the loadings span its subspace.
ALIGNMENT: Mapping[str, Mapping[str, Any]] = {
    "bsdr": {"loadings": "projection", "weights": "weights", "method": "signed_permutation"},
    "bm2pca": {"loadings": "loadings", "weights": "weights", "method": "procrustes"},
    "dgplvm": {"loadings": "latent", "method": "procrustes"},
}


def identified(
    dataset: xr.Dataset,
    quantities: Sequence[str] | Mapping[str, xr.DataArray] | None,
    spec: ModelSpec | None,
    tree: xr.DataTree,
    group: str,
) -> dict[str, xr.DataArray]:
    """Quantities given by the user, or else the identified variables of the specification."""
    if isinstance(quantities, Mapping):
        for name, array in quantities.items():
            absent = [dim for dim in (CHAIN, DRAW) if dim not in array.dims]
            if absent:
                raise ValueError(f"quantity {name!r} has no dim {' and no '.join(absent)}")
        return dict(quantities)
    if quantities is not None:
        names = [quantities] if isinstance(quantities, str) else list(quantities)
        read_draws(tree, group, *names)
        return {name: dataset[name] for name in names}
    if spec is None:
        raise ValueError(
            "the tree is of no model of this package: give quantities=..., variables of group "
            f"{group!r} that are invariant to permutation and rotation of components; it has "
            f"{sorted(map(str, dataset.data_vars))}"
        )
    names = list(spec.identified)
    if spec.name == "bsdr" and "bias_centered" not in dataset:
        names += ["bias", "noise_precision"]  # identified for multi-label and real outputs
    found = {name: dataset[name] for name in names if name in dataset}
    if not found:
        raise ValueError(
            f"group {group!r} has none of the identified quantities of {spec.name!r}, "
            f"{list(spec.identified)}; its variables are {sorted(map(str, dataset.data_vars))}"
        )
    return found


def derived(tree: xr.DataTree, dataset: xr.Dataset, spec: ModelSpec, limits: Limits) -> list[Row]:
    """Rows of the subspace, and of the log likelihood."""
    rows = []
    basis = ALIGNMENT[spec.name]["loadings"] if spec.name in ALIGNMENT else None
    if basis in dataset:
        rows.append(_subspace(dataset[basis], limits))
    for group in {"log_likelihood", "approximate_log_likelihood"} & tree.children.keys():
        pointwise = tree[group].to_dataset()
        for name, array in pointwise.data_vars.items():
            inner = [dim for dim in array.dims if dim not in (CHAIN, DRAW)]
            found = {f"log likelihood of {name}": array.sum(inner)}
            if tree.attrs.get("target") == "multiclass":
                found["probability of observed class"] = array.copy(data=np.exp(array.values))
            rows += [
                checks.mixing(label, values, limits, kind="identified")
                for label, values in found.items()
            ]
    return rows


def _subspace(loadings: xr.DataArray, limits: Limits) -> Row:
    """Row of the projector onto the span of the components, which is invariant to rotations."""
    name = "subspace projector"
    [row_dim] = [dim for dim in loadings.dims if dim not in (CHAIN, DRAW, COMPONENT)]
    ordered = loadings.transpose(CHAIN, DRAW, row_dim, COMPONENT)
    n_samples, r = ordered.shape[2:]
    if r >= n_samples:
        verdict = f"not applicable: {r} components span all {n_samples} dimensions"
        return Row(quantity=name, kind="identified", verdict=verdict)
    values = ordered.values
    if not np.isfinite(values).all():
        return checks.mixing(name, ordered, limits, kind="identified")
    basis = np.linalg.qr(values)[0]  # (C, S, P, R)
    total = n_samples * (n_samples + 1) // 2
    first, second = upper_pairs(n_samples, checks.spaced(total, limits.max_entries))
    entries = _products(basis, first, second)
    labels = ordered[row_dim].values.astype(str)
    pairs = [f"{labels[i]}, {labels[j]}" for i, j in zip(first, second, strict=True)]
    array = xr.DataArray(entries, dims=(CHAIN, DRAW, "pair"), coords={"pair": pairs})
    return checks.mixing(name, array, limits, kind="identified", total=total)


def upper_pairs(n: int, at: IntArray) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries `at` (m,) of an (n, n) upper triangle in row-major order."""
    ends = np.cumsum(n - np.arange(n))
    row = np.searchsorted(ends, at, side="right")
    return row, at - ends[row] + n


def _products(basis: FloatArray, first: IntArray, second: IntArray) -> FloatArray:
    """Inner products (C, S, n) of pairs of rows of (C, S, P, R); loops over R to save memory."""
    found = np.zeros((*basis.shape[:2], len(first)))
    for component in range(basis.shape[3]):
        found += basis[:, :, first, component] * basis[:, :, second, component]
    return found
