"""Option objects of D-GPLVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bsdr_models.dgplvm.leave_one_out import NOISES, WIDTHS
from bsdr_models.options import COUNT, ITERATIONS, POSITIVE, Options, StrOptions

Inference = Literal["map", "nuts", "advi"]


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
