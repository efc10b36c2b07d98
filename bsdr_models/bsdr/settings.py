"""What the arguments of an estimator stand for that are left at None."""

from dataclasses import dataclass
from typing import Literal

from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.priors import PAPER, SAMPLING, Priors
from bsdr_models.typing import ProjectionPrior, Target

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]
Preset = Literal["recommended", "paper"]
Sampler = Literal["averaged", "joint", "paper"]

# The averaged kernel is the default up to this much work of one pass over the rows, about five
# minutes for 4 x (1000 + 1000) sweeps: N = 5000 for three classes and ten features, N = 1000 for
# ten classes and 64 features. Measured in docs/decisions/0010-averaged-latents.md.
MAX_WORK = 100_000.0


Start = mean_field.Start | Literal["stochastic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``None`` stands for in the arguments of an estimator."""

    projection_prior: ProjectionPrior
    latent_scale: float | Literal["stack", "estimate"]
    priors: Priors
    start: Start
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


def start_in_memory(start: Start) -> mean_field.Start:
    """The start of a fit to rows in memory; a ValueError if that cannot start so."""
    if start == "stochastic":
        raise ValueError(
            "start='stochastic' is for rows in blocks, fitted by BSDRClassifier: give block_rows "
            "as well, or another start"
        )
    return start


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
