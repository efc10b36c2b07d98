"""What a fit by any engine of any model returns."""

from dataclasses import dataclass
from typing import Any

from bsdr_models.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a fit; models add what their trees and summaries show.

    posterior
        Embeds and predicts scaled samples.
    trace
        Objective of each iteration, (n_iter,); of a sampler, log density of each draw.
    converged, interrupted
        Whether the engine met its criterion, and whether the user stopped it.
    messages
        Warnings for the user.
    advice
        Warning of an engine that has not converged; empty if it has.
    """

    posterior: Any
    trace: FloatArray
    converged: bool
    interrupted: bool = False
    messages: tuple[str, ...] = ()
    advice: str = ""
