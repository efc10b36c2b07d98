"""Reading a DataTree, and choosing what colours the samples."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from bsdr_models.data.validation import find_classes
from bsdr_models.estimators.calibration import lack_of_signal
from bsdr_models.inference.datatree import read
from bsdr_models.inference.dims import LABEL, OBS
from bsdr_models.numerics.arrays import FloatArray, IntArray

APPROXIMATE = {
    "mean_field": "Mean field",
    "advi": "ADVI",
    "laplace": "Laplace",
    "map": "Posterior mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Class of each sample, an index (N,) in the names of all classes (K,), -1 without a label.

    `title` heads a legend, such as "class" or "predicted class".
    """

    index: IntArray
    names: tuple[str, ...]
    title: str = "class"

    def name(self, position: int) -> str:
        """Name of a class."""
        return self.names[position] if position >= 0 else "no label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A real value per sample, (N,), and its name."""

    values: FloatArray
    title: str


type Target = Classes | Values | None


def caveats(tree: xr.DataTree, what: str | None) -> str:
    """Warnings for the caption: approximate inference, or no signal."""
    engine = APPROXIMATE.get(tree.attrs.get("inference_method", ""))
    note = f" {engine}: {what}." if engine and what else ""
    reason = lack_of_signal(tree.attrs)
    return note if reason is None else f"{note} No signal: {reason}."


def read_target(tree: xr.DataTree, group: str, label: Hashable | None = None) -> Target:
    """Training labels of group `fit`, true or else predicted ones of `predictions`, or None.

    `label` selects one of several outputs (the first by default).
    """
    dataset = read(tree, group)
    y = dataset.get("y")
    probability = dataset.get("probability")
    if "y_index" in dataset:
        return Classes(index=dataset["y_index"].values, names=_names(dataset))
    if y is None and group == "fit" and "observed_data" in tree.children:
        y = read(tree, "observed_data").get("y")
    if y is None:
        if probability is None:
            return None
        p = probability.transpose(OBS, LABEL).values
        if np.allclose(p.sum(axis=1), 1.0):
            title = "predicted class"
            return Classes(index=p.argmax(axis=1), names=_names(dataset), title=title)
        values, name = _column(dataset, p, label)
        return Values(values=values, title=f"probability of {name}")
    if y.ndim == 2:
        values, name = _column(dataset, y.values, label)
        if values.dtype.kind in "bi":
            return Classes(index=values.astype(np.int64), names=("no", "yes"), title=name)
        return Values(values=values.astype(np.float64), title=name)
    # Float labels are classes if the group has class probabilities.
    if y.dtype.kind == "f" and probability is None:
        return Values(values=y.values, title="y")
    index = find_classes(y.values, dataset[LABEL].values)
    if unknown := {*y.values[index < 0].tolist()}:
        raise ValueError(f"y holds labels unknown to the model: {sorted(map(str, unknown))}")
    return Classes(index=index, names=_names(dataset))


def _names(dataset: xr.Dataset) -> tuple[str, ...]:
    return tuple(map(str, dataset[LABEL].values))


def _column(
    dataset: xr.Dataset, values: np.ndarray, label: Hashable | None
) -> tuple[np.ndarray, str]:
    """Values (N,) of one of several outputs, (N, K), and its name."""
    labels = dataset[LABEL].values.tolist()
    if label is not None and label not in labels:
        raise ValueError(f"label must be one of {labels}, got {label!r}")
    position = 0 if label is None else labels.index(label)
    return values[:, position], str(labels[position])
