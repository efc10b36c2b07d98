"""Defaults of arguments given as None."""

from dataclasses import dataclass
from typing import Any, Literal

from bsdr_models.arrays import ProjectionPrior
from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.priors import PAPER, Priors

Inference = Literal["smc", "laplace", "mean_field", "gibbs", "nuts", "advi"]
Variant = Literal["hierarchical", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Defaults of arguments of the estimators, for the paper's model."""

    projection_prior: ProjectionPrior
    latent_scale: float
    priors: Priors
    start: mean_field.Start
    tol: float

    def named(self) -> dict[str, Any]:
        """Arguments by name."""
        return {name: getattr(self, name) for name in self.__slots__}


# Draws of a chain, except for "smc" and "laplace".
N_DRAWS = 1000
# Inference methods of each model, the default first.
ENGINES: dict[Variant, tuple[Inference, ...]] = {
    "hierarchical": ("smc", "laplace", "nuts", "advi"),
    "paper": ("mean_field", "gibbs", "nuts", "advi"),
}
# Arguments of the paper's model only, with their defaults.
PAPER_ONLY = {
    "projection_prior": None,
    "latent_scale": None,
    "start": None,
    "tol": None,
    "n_restarts": 1,
    "max_iter": 500,
}

# The configuration of Gönen (2013).
PAPER_SETTINGS = Settings(
    projection_prior="entrywise",
    latent_scale=1.0,
    priors=PAPER,
    start="discriminant",
    tol=1e-3,
)
