"""What the arguments of an estimator stand for that are left at None."""

from dataclasses import dataclass
from typing import Literal

from bsdr_models.bsdr.priors import PAPER, SAMPLING, Priors
from bsdr_models.typing import ProjectionPrior, Target

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]
Preset = Literal["recommended", "paper"]
Sampler = Literal["averaged", "joint", "paper"]

# Shape of a Gamma prior below which an entry, Student-t of twice as many degrees of freedom, has
# tails that sweeps over scores and positions do not explore.
_VAGUE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``None`` stands for in the arguments of an estimator."""

    projection_prior: ProjectionPrior
    latent_scale: float | Literal["stack", "estimate"]
    priors: Priors
    start: str
    tol: float


def resolve(preset: Preset, inference: Inference) -> Settings:
    """Settings of a preset.

    ``"recommended"`` stacks latent scales by cross-validation under a columnwise prior for mean
    field, stopping each climb when a round gains 0.005 nats; samplers get a unit latent scale
    and priors under which they mix. ``"paper"`` is the configuration of Gönen (2013).
    """
    if preset == "paper":
        return Settings(
            projection_prior="entrywise",
            latent_scale=1.0,
            priors=PAPER,
            start="discriminant",
            tol=1e-3,
        )
    if inference == "mean_field":
        return Settings(
            projection_prior="columnwise",
            latent_scale="stack",
            priors=PAPER,
            start="discriminant",
            tol=5e-3,
        )
    return Settings(
        projection_prior="entrywise",
        latent_scale=1.0,
        priors=SAMPLING,
        start="discriminant",
        tol=1e-3,
    )


def default_sampler(priors: Priors, target: Target) -> Sampler:
    """Kernel of ``inference="gibbs"``: the averaged one for classes under a vague prior."""
    shapes = (priors.projection_shape, priors.weight_shape, priors.bias_shape)
    return "averaged" if target == "multiclass" and min(shapes) < _VAGUE else "joint"
