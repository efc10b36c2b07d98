"""Arguments of the estimator: what they may be, and what the defaults come to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.learn import Approximation
from bsdr_models.dgplvm.map_search import EXACT_SAMPLES
from bsdr_models.dgplvm.mapping_selection import NOISES, WIDTHS
from bsdr_models.inputs import check_number
from bsdr_models.numerics.scaling import Scaler

type Variant = Literal["whitened", "paper"]
type Inference = Literal["map", "nuts", "advi"]
type CriterionName = Literal["auto", "trace_ratio", "inverse_trace", "total", "local_fisher"]
type MappingName = Literal["kernel", "none"]
type PlacementName = Literal["auto", "map", "likelihood"]
type ApproximationName = Literal["auto", "laplace", "ep"]

CHOICES: dict[str, tuple[str, ...]] = {
    "variant": ("whitened", "paper"),
    "inference": ("map", "nuts", "advi"),
    "criterion": ("auto", "trace_ratio", "inverse_trace", "total", "local_fisher"),
    "mapping": ("kernel", "none"),
    "placement": ("auto", "map", "likelihood"),
    "approximation": ("auto", "laplace", "ep"),
}
# Weight of the criterion by variant: per labelled row and effective feature, and 1 / sigma_d**2.
WEIGHTS = {"whitened": 10.0, "paper": 1e4}
# Share of evenly spread variance below which features are taken to be in different units.
SAME_UNITS = 0.25
# In place of infinity: a feature that is divided by it is nothing beside the others.
HUGE = 1e200


def candidates(name: str, value: Any) -> Sequence[float]:
    """What a setting of the map is chosen among."""
    if isinstance(value, str):
        if value != "cv":
            raise ValueError(f"{name} must be a positive number or 'cv', got {value!r}")
        return WIDTHS if name == "map_width" else NOISES
    return (check_number(name, value),)


def choose_components(n_components: int | None, n_classes: int) -> int:
    """R: two, or one for two classes, unless it is given."""
    return min(2, n_classes - 1) if n_components is None else int(n_components)


def choose_criterion(criterion: str, n_components: int, n_classes: int) -> str:
    """The paper's criterion where the labels have as many directions as there are components."""
    if criterion != "auto":
        if criterion in ("trace_ratio", "inverse_trace") and n_components > n_classes - 1:
            raise ValueError(
                f"criterion={criterion!r} needs n_components <= {n_classes - 1}, one less than "
                f"there are classes, got {n_components}; criterion='total' has no such limit"
            )
        return criterion
    return "trace_ratio" if n_components <= n_classes - 1 else "total"


def choose_approximation(
    approximation: ApproximationName, n_classes: int, n_samples: int
) -> Approximation:
    """Laplace for two classes, EP for more: each the one with the smaller log loss there.

    With many rows they agree, and Laplace is quicker.
    """
    if approximation == "auto":
        return "laplace" if n_classes == 2 or n_samples > EXACT_SAMPLES else "ep"
    return approximation


def common_scale(scaler: Scaler) -> Scaler:
    """One divisor for all features, the root mean square of what varies in them.

    Sizes are in units of the largest feature: squares of features near the ends of what a float
    holds would over- or underflow.
    """
    varying = ~scaler.constant  # the size of a feature that is ignored is no unit
    peak = float(scaler.peak[varying].max())
    with np.errstate(over="ignore", under="ignore"):
        shares = scaler.std[varying] * (scaler.peak[varying] / peak)
        size = np.sqrt(np.sum(shares**2) / len(varying))
        std = np.minimum(size * (peak / scaler.peak), HUGE)
    return replace(scaler, std=np.where(varying, std, 1.0))


def in_different_units(X: FloatArray) -> bool:
    """Whether a few features hold most of the variance of the rows (N, D).

    By the participation ratio of their variances, 1 if all are equal and 0 if one has all.
    """
    variance = (X / (np.abs(X).max(initial=0.0) or 1.0)).var(axis=0)
    d = len(variance)
    if d == 1 or not variance.any():
        return False
    share = variance / variance.max()
    ratio = share.sum() ** 2 / (share @ share) / d
    return bool((ratio * d - 1.0) / (d - 1.0) < SAME_UNITS)
