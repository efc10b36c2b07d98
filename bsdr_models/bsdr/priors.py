"""Hyper-parameters of BSDR, validated once."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """Hyper-parameters of the model; every Gamma is given by shape and **rate**.

    The paper states shape and scale [1]_, Section II; a rate is one over a scale.

    Parameters
    ----------
    projection_shape, projection_rate : float
        Gamma prior of the precisions of the projection, Phi, in units of 1 / projection**2.
    weight_shape, weight_rate : float
        Gamma prior of the precisions of the weights, Psi.
    bias_shape, bias_rate : float
        Gamma prior of the precisions of the biases, lambda.
    noise_shape, noise_rate : float
        Gamma prior of the noise precisions of regression outputs, tau.
    latent_scale : float
        Standard deviation sigma_z of the latent position given the features. 1 in the paper.

    Raises
    ------
    ValueError
        If a hyper-parameter is not a positive finite number.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6).
    """

    projection_shape: float = 1.0
    projection_rate: float = 1.0
    weight_shape: float = 1.0
    weight_rate: float = 1.0
    bias_shape: float = 1.0
    bias_rate: float = 1.0
    noise_shape: float = 1.0
    noise_rate: float = 1.0
    latent_scale: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{field.name} must be a positive finite number, got {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field.name} must be a positive finite number, got {value!r}")


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

With the precisions integrated out each entry is Student-t with 10 degrees of freedom and
scale 1. Under :data:`PAPER` it has 2, hence infinite variance, and on separable classes no
sampler that moves one entry at a time explores such a tail.
"""
