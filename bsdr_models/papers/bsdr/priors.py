"""Hyper-parameters of the paper's model, and settings of mean field."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

from bsdr_models.bsdr.priors import SCALE
from bsdr_models.inference.dims import COMPONENT, FEATURE
from bsdr_models.options import ITERATIONS, POSITIVE, Options, StrOptions

ProjectionPrior = Literal["entrywise", "columnwise", "rowwise"]
PROJECTION_PRECISION_DIMS: Mapping[ProjectionPrior, tuple[str, ...]] = MappingProxyType(
    {
        "entrywise": (FEATURE, COMPONENT),
        "columnwise": (COMPONENT,),
        "rowwise": (FEATURE,),
    }
)
"""Dims of ``projection_precision`` by prior; the specification has those of the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors(Options):
    """Hyper-parameters of the paper's model; every Gamma has a shape and a **rate**.

    The paper has shape and scale [1]_, Section II; a rate is one over a scale.

    Parameters
    ----------
    projection_prior : {"entrywise", "columnwise", "rowwise"}, default="entrywise"
        Which entries of the projection share a precision: none, those of a component (automatic
        relevance determination), or those of a feature (feature selection).
    projection_shape, projection_rate : float
        Gamma prior of the precisions of the projection, Phi, in units of 1 / projection**2.
    weight_shape, weight_rate : float
        Gamma prior of the precisions of the weights, Psi.
    bias_shape, bias_rate : float
        Gamma prior of the precisions of the biases, lambda.
    noise_shape, noise_rate : float
        Gamma prior of the noise precisions of regression outputs, tau.
    latent_scale : float
        Standard deviation sigma_z of the latent coordinates given the features; 1 in the paper.

    Raises
    ------
    ValueError
        If a number is not between 1e-30 and 1e12, the latent scale not between 1e-6 and 1000, or
        the projection prior is unknown.

    See Also
    --------
    bsdr_models.HierarchicalPriors : those of the recommended model.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6).

    Examples
    --------
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> from bsdr_models.papers.bsdr import Priors
    >>> model = PaperBSDRClassifier(priors=Priors(projection_prior="rowwise"))
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "projection_prior": [StrOptions(set(get_args(ProjectionPrior)))],
        "latent_scale": [SCALE],
    }
    _others: ClassVar[list[object]] = [POSITIVE]

    projection_prior: ProjectionPrior = "entrywise"
    projection_shape: float = 1.0
    projection_rate: float = 1.0
    weight_shape: float = 1.0
    weight_rate: float = 1.0
    bias_shape: float = 1.0
    bias_rate: float = 1.0
    noise_shape: float = 1.0
    noise_rate: float = 1.0
    latent_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of mean field in the paper's model of BSDR.

    Parameters
    ----------
    n_restarts : int, default=1
        Restarts, of which the one with the highest bound is selected: the first from discriminant
        directions, the others from random coordinates.
    max_iter : int, default=5000
        Iterations per restart.
    tol : float, default=3e-3
        Mean field stops when 50 rounds of two or three iterations gain less than this many nats.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.Sampling : settings of samplers.

    Examples
    --------
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> from bsdr_models.papers.bsdr import Optimization
    >>> model = PaperBSDRClassifier(optimization=Optimization(n_restarts=3))
    """

    _constraints: ClassVar[dict[str, list[object]]] = ITERATIONS

    n_restarts: int = 1
    max_iter: int = 5000
    tol: float = 3e-3


PAPER = Priors()
"""The paper's defaults: all shapes and rates one, unit latent noise."""

SPARSE = Priors(projection_shape=1e-3, projection_rate=1e-3)
"""The paper's sparse prior for automatic relevance determination: shape 0.001, scale 1000."""

SAMPLING = Priors(
    projection_shape=5.0,
    projection_rate=5.0,
    weight_shape=5.0,
    weight_rate=5.0,
    bias_shape=5.0,
    bias_rate=5.0,
)
"""Default for samplers.

With the precisions integrated out each entry is Student-t with 10 degrees of freedom and scale 1.
Under :data:`PAPER` it has 2, hence infinite variance, and samplers that move one entry at a time do
not explore its tails on separable classes.
"""
