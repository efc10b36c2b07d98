"""Hyper-parameters of BSDR."""

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from bsdr_models.options import Number, Options

# In units of the noise, beyond which searches and samplers meet limits of double precision.
SCALE = Number(Real, 1e-6, 1e3, closed="neither")
# Beyond it exp is no noise scale of an output of unit variance.
LOG_SCALE = Number(Real, -20.0, 20.0, closed="neither")
# A probability of lapses.
RATE = Number(Real, 0.0, 1.0, closed="neither")


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
    bsdr_models.papers.bsdr.Priors : those of the paper's model.

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
