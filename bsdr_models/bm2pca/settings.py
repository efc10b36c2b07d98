"""Candidate settings of the classifier, and defaults of arguments given as None."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bsdr_models.bm2pca.label_free import subspace
from bsdr_models.bm2pca.task import Strategy
from bsdr_models.checks import check_choice
from bsdr_models.inputs import check_number

Variant = Literal["label_free", "paper"]
Inference = Literal["mean_field", "gibbs", "nuts", "advi"]

# Candidates of a cross-validation; the first cost is the fallback without one. Costs of the
# paper's variant are the paper's. The label-free variant needs one only if samples are few.
COSTS: tuple[float, ...] = (10.0, 20.0, 30.0, 40.0)
LABEL_FREE_COSTS: dict[Strategy, tuple[float, ...]] = {
    "one_vs_rest": (10.0, 1.0, 0.1),
    "shared": (subspace.Settings().cost, 1.0, 0.1),
}
SWEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
SCALES = (1.0, 10.0, 100.0, np.inf)
# Fallback settings, if no samples can be held out.
N_SWEEPS, SCALE = 3, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Setting of a fit: C; sweeps of the paper's variant (None to convergence); metric scale."""

    cost: float
    n_sweeps: int | None = None
    scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All combinations of costs with numbers of sweeps, or with scales."""

    costs: tuple[float, ...]
    sweeps: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates, costs first."""
        if self.scales:
            return [Candidate(cost=c, scale=s) for c in self.costs for s in self.scales]
        if self.sweeps:
            return [Candidate(cost=c, n_sweeps=s) for c in self.costs for s in self.sweeps]
        return [Candidate(cost=c) for c in self.costs]

    @property
    def fallback(self) -> Candidate:
        """The setting without cross-validation."""

        def nearest(values: tuple[Any, ...], wanted: float) -> Any:
            return wanted if wanted in values else values[0]

        return Candidate(
            cost=self.costs[0],
            n_sweeps=nearest(self.sweeps, N_SWEEPS) if self.sweeps else None,
            scale=nearest(self.scales, SCALE) if self.scales else None,
        )


def make_grid(
    variant: Variant,
    C: Any,
    n_sweeps: Any,
    metric_scale: Any,
    *,
    strategy: Strategy,
    wide: bool,
) -> Grid:
    """Candidates for the arguments of a classifier; raise a ValueError if one is out of range.

    Parameters
    ----------
    variant, strategy, C, n_sweeps, metric_scale
        As for the classifier.
    wide : bool
        Whether samples do not outnumber features. Then any labels are linearly separable, and
        all larger costs lead to about the same label-free fit.
    """
    costs = COSTS if variant == "paper" else LABEL_FREE_COSTS[strategy]
    if C is None and variant == "label_free" and wide:
        costs = costs[:1]
    elif not (C is None or (isinstance(C, str) and C == "cv")):
        costs = (check_number("C", C, also=" or 'cv'"),)
    scales, sweeps = _scales(metric_scale), _sweeps(n_sweeps)  # validate both
    if variant == "label_free":
        return Grid(costs=costs, scales=scales)
    return Grid(costs=costs, sweeps=sweeps)


def _scales(metric_scale: Any) -> tuple[float, ...]:
    if isinstance(metric_scale, str):
        check_choice("metric_scale", metric_scale, ("cv",))
        return SCALES
    if metric_scale != np.inf:
        metric_scale = check_number("metric_scale", metric_scale, also=", numpy.inf or 'cv'")
    return (float(metric_scale),)


def _sweeps(n_sweeps: Any) -> tuple[int, ...]:
    if isinstance(n_sweeps, str):
        check_choice("n_sweeps", n_sweeps, ("cv", "converged"))
        return SWEEPS if n_sweeps == "cv" else ()
    if isinstance(n_sweeps, bool) or not isinstance(n_sweeps, int | np.integer) or n_sweeps < 1:
        raise ValueError(
            f"n_sweeps must be a positive integer, 'cv' or 'converged', got {n_sweeps!r}"
        )
    return (int(n_sweeps),)
