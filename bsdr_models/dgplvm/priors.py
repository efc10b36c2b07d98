"""Hyper-parameters of D-GPLVM, validated once."""

import math
from dataclasses import dataclass, fields

from bsdr_models.inputs import check_number

# A search for the mode stays within this many standard deviations of the log.
BOX = 5.0


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal prior of a positive number.

    Parameters
    ----------
    median : float
    log_sd : float
        Standard deviation of the logarithm.

    Raises
    ------
    ValueError
        If one of them is not a positive finite number.
    """

    median: float
    log_sd: float

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name))

    @property
    def log_median(self) -> float:
        """Mean of the logarithm."""
        return math.log(self.median)

    @property
    def bounds(self) -> tuple[float, float]:
        """Logarithms between which a mode is looked for."""
        return self.log_median - BOX * self.log_sd, self.log_median + BOX * self.log_sd

    def negative_log_density(self, log_value: float) -> tuple[float, float]:
        """Of the logarithm, in nats, and its slope there."""
        z = (log_value - self.log_median) / self.log_sd
        constant = 0.5 * math.log(2.0 * math.pi) + math.log(self.log_sd)
        return 0.5 * z * z + constant, z / self.log_sd


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """Hyper-parameters of the well-posed model.

    Latent positions have unit variance along every axis, and features are in units of their mean
    variance: the priors below are on those scales.

    Parameters
    ----------
    signal_variance : LogNormal
        a: variance of the features that the latent positions explain. Narrow: with a loose prior
        there is a second optimum where many rows of curved classes are explained without noise.
    lengthscale : LogNormal
        l: length-scale of the map from positions to features. Nearly fixed, since the positions
        carry the scale.
    noise_variance : LogNormal
        b: the rest of the variance. It must not vanish: with a loose prior the positions of a
        class contract instead.
    map_dof : float
        nu: degrees of freedom of the scale of the map from features to positions, whose variance
        is InvGamma(nu / 2, nu / 2).
    map_mean_variance : float
        omega: prior variance of the constant of that map, relative to the rest.
    nonlinear_variance : LogNormal
        Of the classifier: variance of its smooth part.
    classifier_lengthscale : LogNormal
        In units of the root mean square distance between class centroids.
    linear_variance : LogNormal
        Variance of its linear part.

    Raises
    ------
    ValueError
        If a hyper-parameter is of the wrong kind or not positive.
    """

    signal_variance: LogNormal = LogNormal(0.3, 0.15)
    lengthscale: LogNormal = LogNormal(1.0, 0.02)
    noise_variance: LogNormal = LogNormal(0.7, 0.3)
    map_dof: float = 4.0
    map_mean_variance: float = 0.3
    nonlinear_variance: LogNormal = LogNormal(math.exp(-1.6), 1.5)
    classifier_lengthscale: LogNormal = LogNormal(1.0, 0.35)
    linear_variance: LogNormal = LogNormal(math.exp(3.0), 0.7)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is LogNormal or field.type == "LogNormal":
                if not isinstance(value, LogNormal):
                    raise ValueError(f"{field.name} must be a LogNormal, got {value!r}")
            else:
                check_number(field.name, value)

    @property
    def kernel(self) -> tuple[LogNormal, LogNormal, LogNormal]:
        """Priors of the generative part: signal variance, length-scale, noise variance."""
        return self.signal_variance, self.lengthscale, self.noise_variance

    @property
    def classifier(self) -> tuple[LogNormal, LogNormal, LogNormal]:
        """Priors of the classifier: smooth variance, length-scale, linear variance."""
        return self.nonlinear_variance, self.classifier_lengthscale, self.linear_variance
