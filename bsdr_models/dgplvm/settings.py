"""Option objects of D-GPLVM: the mapping and the search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bsdr_models.options import ITERATIONS, POSITIVE, Options, StrOptions

Inference = Literal["map", "nuts", "advi"]

# Candidates of width and noise of the mapping.
WIDTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping(Options):
    """Smooth mapping from features to latent coordinates, the back-constraint.

    Parameters
    ----------
    width, noise : float or "cv", default="cv"
        Width g and noise lambda of the mapping; "cv" is an average by the errors of left-out
        class indicators.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.DGPLVMClassifier : the estimator.

    Examples
    --------
    >>> from bsdr_models import DGPLVMClassifier, DGPLVMMapping
    >>> model = DGPLVMClassifier(mapping=DGPLVMMapping(width=1.0))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "width": [POSITIVE, StrOptions({"cv"})],
        "noise": [POSITIVE, StrOptions({"cv"})],
    }

    width: float | Literal["cv"] = "cv"
    noise: float | Literal["cv"] = "cv"

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
        components, random. More than one shows whether the optimum is unique.
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
