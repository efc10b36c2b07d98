"""Length of a sampler's run, and what it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bsdr_models.numerics.arrays import FloatArray

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length of a run: draws that are kept and warm-up of each chain; ADVI has a single chain."""

    draws: int
    tune: int
    chains: int
    progressbar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Draws of a sampler, and what is known of its run."""

    draws: Mapping[str, FloatArray]  # (chain, draw, ...) by name
    sample_stats: Mapping[str, FloatArray] = field(default_factory=dict)  # (chain, draw)
    fit: Mapping[str, FloatArray] = field(default_factory=dict)  # bounds of ADVI, see `fit_advi`
    interrupted: bool = False
    attrs: Mapping[str, float] = field(default_factory=dict)  # times, by their names in ArviZ
