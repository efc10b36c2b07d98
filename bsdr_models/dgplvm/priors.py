"""Hyper-parameters of D-GPLVM."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

from bsdr_models.options import POSITIVE, Number, Options, StrOptions

CriterionName = Literal["auto", "trace_ratio", "inverse_trace", "total"]

# Variables of the kernel of the features.
KERNEL = ("signal_variance", "lengthscale", "noise_variance")
# Bound of the mode, in standard deviations of the logarithm.
BOX = 5.0
# nu: degrees of freedom of the scale of the mapping from features to latent coordinates, whose
# variance is InvGamma(nu / 2, nu / 2).
MAP_DOF = 4.0
# omega: prior variance of the constant of the mapping, relative to the rest.
MAP_MEAN_VARIANCE = 0.3


@dataclass(frozen=True, slots=True)
class LogNormal(Options):
    """Log-normal prior of a positive number.

    Parameters
    ----------
    median : float
        Median of the number, in its own units.
    log_sd : float
        Standard deviation of the logarithm.

    Raises
    ------
    ValueError
        If one of them is not a positive finite number.

    See Also
    --------
    Priors : the hyper-parameters that have such priors.

    Examples
    --------
    >>> from bsdr_models.dgplvm import LogNormal, Priors
    >>> priors = Priors(noise_variance=LogNormal(0.5, 0.3))
    """

    _others: ClassVar[list[Any]] = [POSITIVE]

    median: float
    log_sd: float

    @property
    def log_median(self) -> float:
        """Mean of the logarithm."""
        return math.log(self.median)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the logarithm at the mode."""
        return self.log_median - BOX * self.log_sd, self.log_median + BOX * self.log_sd

    def negative_log_density(self, log_value: float) -> tuple[float, float]:
        """Negative log density of the logarithm, in nats, and its derivative."""
        z = (log_value - self.log_median) / self.log_sd
        constant = 0.5 * math.log(2.0 * math.pi) + math.log(self.log_sd)
        return 0.5 * z * z + constant, z / self.log_sd


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Density 1 / theta of a positive number, within bounds of its logarithm."""

    log_median: float
    bounds: tuple[float, float]

    def negative_log_density(self, log_value: float) -> tuple[float, float]:
        """Negative log density of theta, in nats up to a constant; its derivative in log theta."""
        return log_value, 1.0


# Prior of a parameter of an objective.
type ParameterPrior = LogNormal | LogUniform


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors(Options):
    """Hyper-parameters of D-GPLVM.

    Latent coordinates have unit variance, and features are in units of their mean variance.

    Parameters
    ----------
    weight : float, default=10
        Weight of the discriminative prior, per labelled sample and effective feature;
        ``numpy.inf`` is the closed-form limit, a penalised kernel discriminant analysis.
    criterion : {"auto", "trace_ratio", "inverse_trace", "total"}
        Measure of class separation in the discriminative prior. "auto" is the paper's
        tr(S_b^-1 S_w) with fewer components than classes, else "total", tr(S_t^-1 S_w).
        "inverse_trace" is 1 / tr(S_w^-1 S_b), Eq. (12).
    signal_variance : LogNormal
        a: explained variance of the features. A wide prior has a second optimum, in which many
        samples of curved classes are explained without noise.
    lengthscale : LogNormal
        l: length-scale from latent coordinates to features. Nearly fixed, since the latent
        coordinates have unit variance.
    noise_variance : LogNormal
        b: residual variance. With a wide prior the classes contract instead.

    Raises
    ------
    ValueError
        If a hyper-parameter has the wrong type or is not positive.

    See Also
    --------
    LogNormal : prior of a positive number.

    Examples
    --------
    >>> from bsdr_models import DGPLVMClassifier, DGPLVMPriors
    >>> model = DGPLVMClassifier(priors=DGPLVMPriors(criterion="total"))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "weight": [Number(Real, 0.0, math.inf, closed="right")],
        "criterion": [StrOptions(get_args(CriterionName))],
    }
    _others: ClassVar[list[Any]] = [LogNormal]

    weight: float = 10.0
    criterion: CriterionName = "auto"
    signal_variance: LogNormal = LogNormal(0.3, 0.15)
    lengthscale: LogNormal = LogNormal(1.0, 0.02)
    noise_variance: LogNormal = LogNormal(0.7, 0.3)

    @property
    def kernel(self) -> tuple[LogNormal, LogNormal, LogNormal]:
        """Priors of the generative part: signal variance, length-scale, noise variance."""
        return self.signal_variance, self.lengthscale, self.noise_variance


# Priors of the kernel of the classifier: variance of its smooth part, length-scale in units of the
# root mean square distance of the class centroids from their mean, variance of its linear part.
CLASSIFIER_PRIORS = (
    LogNormal(math.exp(-1.6), 1.5),
    LogNormal(1.0, 0.35),
    LogNormal(math.exp(3.0), 0.7),
)
