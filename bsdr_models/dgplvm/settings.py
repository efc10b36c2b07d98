"""Arguments of the estimator: allowed values and resolution of defaults."""

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
# Default weight by variant: per labelled sample and effective feature, and 1 / sigma_d**2.
WEIGHTS = {"whitened": 10.0, "paper": 1e4}
# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25
# Finite stand-in for infinity; a feature divided by it is negligible.
HUGE = 1e200


def candidates(name: str, value: Any) -> Sequence[float]:
    """Candidate values of a setting of the mapping."""
    if isinstance(value, str):
        if value != "cv":
            raise ValueError(f"{name} must be a positive number or 'cv', got {value!r}")
        return WIDTHS if name == "map_width" else NOISES
    return (check_number(name, value),)


def choose_components(n_components: int | None, n_classes: int) -> int:
    """R: the given number, or two, or one for two classes."""
    return min(2, n_classes - 1) if n_components is None else int(n_components)


def choose_criterion(criterion: str, n_components: int, n_classes: int) -> str:
    """The paper's criterion for fewer components than classes, else ``"total"``, if "auto"."""
    if criterion != "auto":
        if criterion in ("trace_ratio", "inverse_trace") and n_components > n_classes - 1:
            raise ValueError(
                f"criterion={criterion!r} needs n_components <= {n_classes - 1}, one less than "
                f"the number of classes, got {n_components}; criterion='total' has no such limit"
            )
        return criterion
    return "trace_ratio" if n_components <= n_classes - 1 else "total"


def choose_approximation(
    approximation: ApproximationName, n_classes: int, n_samples: int
) -> Approximation:
    """Laplace for two classes, EP for more: the one with the smaller log loss in benchmarks.

    With many samples they agree, and Laplace is faster.
    """
    if approximation == "auto":
        return "laplace" if n_classes == 2 or n_samples > EXACT_SAMPLES else "ep"
    return approximation


def common_scale(scaler: Scaler) -> Scaler:
    """Scaler with a common divisor, the root mean square of the varying features.

    Computed in units of the largest feature, so that squares do not over- or underflow.
    """
    varying = ~scaler.constant
    peak = float(scaler.peak[varying].max())
    with np.errstate(over="ignore", under="ignore"):
        shares = scaler.std[varying] * (scaler.peak[varying] / peak)
        size = np.sqrt(np.sum(shares**2) / len(varying))
        std = np.minimum(size * (peak / scaler.peak), HUGE)
    return replace(scaler, std=np.where(varying, std, 1.0))


def in_different_units(X: FloatArray) -> bool:
    """Whether a few features have most of the variance of the samples (N, D).

    The participation ratio of the variances is scaled to 1 if all are equal, 0 if one has all.
    """
    variance = (X / (np.abs(X).max(initial=0.0) or 1.0)).var(axis=0)
    d = len(variance)
    if d == 1 or not variance.any():
        return False
    share = variance / variance.max()
    ratio = share.sum() ** 2 / (share @ share) / d
    return bool((ratio * d - 1.0) / (d - 1.0) < SAME_UNITS)
