"""Option objects of D-GPLVM, and resolution of defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm import mcml
from bsdr_models.dgplvm.mapping_selection import NOISES, WIDTHS
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import COUNT, ITERATIONS, POSITIVE, Options, StrOptions

Inference = Literal["map", "nuts", "advi"]

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25
# Finite stand-in for infinity; a feature divided by it is negligible.
HUGE = 1e200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping(Options):
    """Smooth mapping from features to latent coordinates, the back-constraint.

    Parameters
    ----------
    kind : {"kernel", "none"}, default="kernel"
        Whether latent coordinates are a smooth function of the features.
    n_centres : int, optional
        Training samples at which the mapping has kernels: by default all, or 300 of more than
        2000; the cost is then linear in the number of samples.
    width, noise : float or "cv", default="cv"
        Width g and noise lambda of the mapping; "cv" minimises the leave-one-out error of the
        class indicators.
    placement : {"auto", "map", "likelihood"}, default="auto"
        How samples are embedded: by the mapping, or by their likelihood, Eq. (14) of the paper.

    Raises
    ------
    ValueError
        If an option is out of range, or samples are to be embedded by no mapping.

    See Also
    --------
    bsdr_models.DGPLVMClassifier : the estimator.

    Examples
    --------
    >>> from bsdr_models import DGPLVMClassifier, DGPLVMMapping
    >>> model = DGPLVMClassifier(mapping=DGPLVMMapping(n_centres=100))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "kind": [StrOptions({"kernel", "none"})],
        "n_centres": [COUNT, None],
        "width": [POSITIVE, StrOptions({"cv"})],
        "noise": [POSITIVE, StrOptions({"cv"})],
        "placement": [StrOptions({"auto", "map", "likelihood"})],
    }

    kind: Literal["kernel", "none"] = "kernel"
    n_centres: int | None = None
    width: float | Literal["cv"] = "cv"
    noise: float | Literal["cv"] = "cv"
    placement: Literal["auto", "map", "likelihood"] = "auto"

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.kind == "none" and self.placement == "map":
            raise ValueError("placement='map' needs kind='kernel'")

    @property
    def embedding(self) -> str:
        """How samples are embedded: "map" or "likelihood"."""
        placement = "map" if self.placement == "auto" else self.placement
        return "likelihood" if self.kind == "none" else placement

    @property
    def widths(self) -> Sequence[float]:
        """Candidates of the width."""
        return WIDTHS if self.width == "cv" else (float(self.width),)

    @property
    def noises(self) -> Sequence[float]:
        """Candidates of the noise."""
        return NOISES if self.noise == "cv" else (float(self.noise),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of the search of the posterior mode.

    Parameters
    ----------
    n_restarts : int, default=1
        Initialisations, in this order: class indicators (not for the paper's model), principal
        components, discriminants, shrunken discriminants, random. More than one shows whether the
        optimum is unique.
    max_iter : int, default=500
        Iterations per initialisation.
    tol : float, default=1e-6
        The optimiser has converged when an iteration gains less than about this many nats.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.Sampling : settings of samplers.

    Examples
    --------
    >>> from bsdr_models import DGPLVMClassifier, DGPLVMOptimization
    >>> model = DGPLVMClassifier(optimization=DGPLVMOptimization(n_restarts=3))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = ITERATIONS

    n_restarts: int = 1
    max_iter: int = 500
    tol: float = 1e-6


def choose_components(n_components: int | None, n_classes: int) -> int:
    """R: the given number, or two, or one for two classes."""
    return min(2, n_classes - 1) if n_components is None else int(n_components)


def choose_criterion(criterion: str, n_components: int, n_classes: int, n_labelled: int) -> str:
    """The paper's criterion for fewer components than classes, else ``"total"``, if "auto".

    Raises
    ------
    ValueError
        If the given criterion is not defined for so many components, or would compare the pairs of
        too many labelled samples.
    """
    if criterion == "mcml" and n_labelled > mcml.MAX_SAMPLES:
        raise ValueError(
            f"criterion='mcml' compares all pairs of labelled samples, at most {mcml.MAX_SAMPLES}, "
            f"got {n_labelled}: use another criterion, or label fewer samples"
        )
    if criterion != "auto":
        if criterion in ("trace_ratio", "inverse_trace") and n_components > n_classes - 1:
            raise ValueError(
                f"criterion={criterion!r} needs n_components <= {n_classes - 1}, one less than "
                f"the number of classes, got {n_components}; criterion='total' has no such limit"
            )
        return criterion
    return "trace_ratio" if n_components <= n_classes - 1 else "total"


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
