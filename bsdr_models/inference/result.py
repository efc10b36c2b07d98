"""What a fit by any engine of any model returns; draws of a sampler, and the length of its run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bsdr_models.numerics.arrays import FloatArray

if TYPE_CHECKING:
    import xarray as xr

    from bsdr_models.estimators.calibration import HeldOutScore

# Statistics of nutpie by the names that PyMC and ArviZ have for them.
ARVIZ_NAMES = {"logp": "lp", "mean_tree_accept": "acceptance_rate", "depth": "tree_depth"}
# Attributes of a trace that tell of the run.
OF_RUN = ("sampling_time", "tuning_steps")


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

    @classmethod
    def of(cls, trace: "xr.DataTree") -> Self:
        """Those of a trace as PyMC and ArviZ write it: statistics are one number for each draw."""
        stats = trace["sample_stats"].data_vars if "sample_stats" in trace.children else {}
        attrs = trace["posterior"].attrs
        return cls(
            draws={str(name): each.values for name, each in trace["posterior"].data_vars.items()},
            sample_stats={
                ARVIZ_NAMES.get(str(name), str(name)): np.asarray(each.values)
                for name, each in stats.items()
                if each.ndim == 2 and each.dtype.kind in "biuf"
            },
            attrs={name: attrs[name] for name in OF_RUN if name in attrs},
        )


@dataclass(frozen=True, kw_only=True)
class Result[P]:
    """Result of a fit; models add what their trees and summaries show."""

    posterior: P  # embeds and predicts scaled samples; of coordinate ascent the last state
    trace: FloatArray  # objective of each iteration, (n_iter,); of a sampler, log density of draws
    converged: bool  # whether the engine met its criterion
    interrupted: bool = False  # whether the user stopped it
    # Log probabilities of the classes of training samples, (N, K), by fits that have not seen
    # them; NaN of samples that were not held out, None if none was.
    held_out_log_proba: FloatArray | None = None
    held_out: "HeldOutScore | None" = None  # their score; None of models that hold out none
    # Terms of the objective by name: of each iteration, (n_iter,), or at the end.
    terms: Mapping[str, Any] = field(default_factory=dict)
    restarts: tuple[float, ...] = ()  # final objective of each
    sampled: Sampled | None = None  # draws of a sampler
    messages: tuple[str, ...] = ()  # warnings for the user
    advice: str = ""  # warning of an engine that has not converged; empty if it has
    attrs: Mapping[str, Any] = field(default_factory=dict)  # for the roots of the trees
