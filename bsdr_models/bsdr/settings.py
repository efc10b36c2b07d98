"""What the arguments of an estimator stand for that are left at None."""

from dataclasses import dataclass
from typing import Literal

from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.priors import PAPER, Priors
from bsdr_models.typing import ProjectionPrior, Target

Inference = Literal["smc", "laplace", "mean_field", "gibbs", "nuts", "advi"]
Variant = Literal["hierarchical", "paper"]
Sampler = Literal["averaged", "joint", "paper"]

# The averaged kernel is the default up to this much work of one pass over the rows, about five
# minutes for 4 x (1000 + 1000) sweeps: N = 5000 for three classes and ten features, N = 1000 for
# ten classes and 64 features. Measured in docs/decisions/0010-averaged-latents.md.
MAX_WORK = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``None`` stands for in the arguments of an estimator."""

    projection_prior: ProjectionPrior
    latent_scale: float
    priors: Priors
    start: mean_field.Start
    tol: float


# Draws of a chain, of samplers that are not sized by the problem, and steps of ADVI from a start.
N_DRAWS, ADVI_STEPS = 1000, 10_000
# Engines of each model; the first is its default.
ENGINES: dict[Variant, tuple[Inference, ...]] = {
    "hierarchical": ("smc", "laplace", "nuts", "advi"),
    "paper": ("mean_field", "gibbs", "nuts", "advi"),
}
# Arguments that only the model of the paper has, with the values that leave them alone.
OF_THE_PAPER = {
    "sampler": None,
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


def default_sampler(target: Target, *, size: tuple[int, int], n_labels: int, r: int) -> Sampler:
    """Kernel of ``inference="gibbs"``: averaged for classes, unless there are too many rows.

    A joint sweep takes a fifteenth of the time and gives a thousandth of the effective draws, so
    that the averaged kernel is left only where it would run for long.

    Parameters
    ----------
    target : {"multiclass", "multilabel", "regression"}
    size : tuple of int
        Rows and features.
    n_labels, r : int
        Labels and components.
    """
    if target != "multiclass":
        return "joint"
    return "averaged" if work(size, n_labels, r) <= MAX_WORK else "joint"


def work(size: tuple[int, int], n_labels: int, r: int) -> float:
    """Work of one pass of the averaged kernel in normal distribution functions, of about 6 ns.

    Of each row those of its rivals at 8 points; seven products with features cost as much as one.
    """
    n, d = size
    return n * (8.0 * (n_labels - 1) + d * r / 7.0)
