"""Hyper-parameters of BSDR."""

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, get_args

from bsdr_models.numerics.arrays import ProjectionPrior
from bsdr_models.options import POSITIVE, Number, Options, StrOptions

# In units of the noise, beyond which searches and samplers meet limits of double precision.
SCALE = Number(Real, 1e-6, 1e3, closed="neither")
# Beyond it exp is no noise scale of an output of unit variance.
LOG_SCALE = Number(Real, -20.0, 20.0, closed="neither")
# A probability of lapses.
RATE = Number(Real, 0.0, 1.0, closed="neither")


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
        If a number is not positive and finite, the latent scale is not between 1e-6 and 1000, or
        the projection prior is unknown.

    See Also
    --------
    HierarchicalPriors : those of the recommended model.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6).

    Examples
    --------
    >>> from bsdr_models import Priors
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> model = PaperBSDRClassifier(priors=Priors(projection_prior="rowwise"))
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "projection_prior": [StrOptions(get_args(ProjectionPrior))],
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
class HierarchicalPriors(Options):
    """Hyper-parameters of the recommended model, for features of unit variance.

    Parameters
    ----------
    scale : float
        Scale of the half-normal prior of tau, the scale of the projection: the standard deviation
        of a contrast of classes, in units of the probit noise or of an output.
    view_width : float
        Standard deviation of the log of lambda, the scale of a view relative to tau, if there are
        several views. By default all views count equally before the labels are seen, however many
        features they have; with 0.5 the fit can nearly switch off a view of noise.
    bias_scale : float
        Standard deviation of the biases, in units of the probit noise or of an output.
    noise_location, noise_width : float
        Mean and standard deviation of the log noise scale of real outputs of unit variance.
    lapse : float
        Probability that a label is independent of the features, which bounds the loss of any sample
        by ``log(K / lapse)`` nats.

    Raises
    ------
    ValueError
        If a width or scale is not between 1e-6 and 1000, the location not between -20 and 20, or
        the lapse not between 0 and 1.

    See Also
    --------
    Priors : those of the paper's model.

    Examples
    --------
    >>> from bsdr_models import BSDRClassifier, HierarchicalPriors
    >>> model = BSDRClassifier(priors=HierarchicalPriors(lapse=0.02))
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "lapse": [RATE],
        "noise_location": [LOG_SCALE],
    }
    _others: ClassVar[list[object]] = [SCALE]

    scale: float = 1.5
    view_width: float = 0.1
    bias_scale: float = 5.0
    noise_location: float = -1.0
    noise_width: float = 2.0
    lapse: float = 0.003


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
