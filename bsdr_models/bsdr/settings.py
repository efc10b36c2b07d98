"""What the arguments of an estimator stand for that are left at None."""

from dataclasses import dataclass
from typing import Literal

from bsdr_models.arrays import ProjectionPrior
from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.priors import PAPER, Priors

Inference = Literal["smc", "laplace", "mean_field", "gibbs", "nuts", "advi"]
Variant = Literal["hierarchical", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``None`` stands for in the arguments of an estimator."""

    projection_prior: ProjectionPrior
    latent_scale: float
    priors: Priors
    start: mean_field.Start
    tol: float


# Draws of a chain, of samplers that are not sized by the problem.
N_DRAWS = 1000
# Engines of each model; the first is its default.
ENGINES: dict[Variant, tuple[Inference, ...]] = {
    "hierarchical": ("smc", "laplace", "nuts", "advi"),
    "paper": ("mean_field", "gibbs", "nuts", "advi"),
}
# Arguments that only the model of the paper has, with the values that leave them alone.
OF_THE_PAPER = {
    "projection_prior": None,
    "latent_scale": None,
    "start": None,
    "tol": None,
    "n_restarts": 1,
    "max_iter": 500,
    "integrate_latent": True,
}

# The configuration of Gönen (2013).
PAPER_SETTINGS = Settings(
    projection_prior="entrywise",
    latent_scale=1.0,
    priors=PAPER,
    start="discriminant",
    tol=1e-3,
)
