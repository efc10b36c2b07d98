"""Hyper-parameters and other option objects of D-GPLVM."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

from bsdr_models.options import ITERATIONS, POSITIVE, Number, Options, StrOptions

Inference = Literal["map", "nuts", "advi"]
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
        If one of them is not between 1e-30 and 1e12.

    See Also
    --------
    DGPLVMPriors : the hyper-parameters that have such priors.

    Examples
    --------
    >>> from bsdr_models.dgplvm import DGPLVMPriors, LogNormal
    >>> priors = DGPLVMPriors(noise_variance=LogNormal(0.5, 0.3))
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
class DGPLVMPriors(Options):
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
        "weight": [Number(Real, 0.0, None, closed="right")],
        "criterion": [StrOptions(set(get_args(CriterionName)))],
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

# Candidates of width and noise of the mapping.
WIDTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DGPLVMMapping(Options):
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
class DGPLVMOptimization(Options):
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
