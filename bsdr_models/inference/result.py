"""What a fit by any engine of any model returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bsdr_models.inference.sampling import Sampled
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.arrays import FloatArray


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
    held_out: HeldOutScore | None = None  # their score; None of models that hold out none
    # Terms of the objective by name: of each iteration, (n_iter,), or at the end.
    terms: Mapping[str, Any] = field(default_factory=dict)
    restarts: tuple[float, ...] = ()  # final objective of each
    sampled: Sampled | None = None  # draws of a sampler
    messages: tuple[str, ...] = ()  # warnings for the user
    advice: str = ""  # warning of an engine that has not converged; empty if it has
    attrs: Mapping[str, Any] = field(default_factory=dict)  # for the roots of the trees

    def with_posterior[Q](self, posterior: Q) -> "Result[Q]":
        """The same result with what predicts in place of the last state of an engine."""
        result: Any = self
        return replace(result, posterior=posterior)
