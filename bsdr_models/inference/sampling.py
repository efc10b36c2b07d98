"""Draws of any model by Gibbs sampling, or by NUTS and ADVI through PyMC."""

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.inference.gibbs import Init, Record, Step, run_gibbs
from bsdr_models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length of a run.

    draws, tune, chains
        Draws that are kept and warm-up, of each chain; ADVI returns ``draws`` draws in one chain.
    progressbar
        Whether to show progress.
    """

    draws: int
    tune: int
    chains: int
    progressbar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Result of a sampler.

    draws
        By name, (chain, draw, ...).
    sample_stats
        Statistics of each draw by name, (chain, draw).
    fit
        Of ADVI: ``elbo`` by iteration, and of each restart.
    interrupted
        Whether the user stopped the run.
    """

    draws: Mapping[str, FloatArray]
    sample_stats: Mapping[str, FloatArray] = field(default_factory=dict)
    fit: Mapping[str, FloatArray] = field(default_factory=dict)
    interrupted: bool = False

    @classmethod
    def from_tree(cls, tree: xr.DataTree) -> Self:
        """Result of :mod:`bsdr_models.inference.engines`."""
        stats, fit = _arrays(tree, "sample_stats"), _arrays(tree, "fit")
        return cls(
            draws=_arrays(tree, "posterior"),
            sample_stats={name: values for name, values in stats.items() if values.ndim == 2},
            fit={name: values for name, values in fit.items() if name in ("elbo", "restarts")},
            interrupted=bool(tree.attrs.get("interrupted", 0)),
        )


def run_sampler[S](
    engine: str,
    schedule: Schedule,
    *,
    init: Init[S],
    step: Step[S],
    record: Record[S],
    excluded: Set[str],
    declare: Callable[[], Any],
    spec: ModelSpec,
    rng: np.random.Generator,
) -> Sampled:
    """Draws of a model.

    Parameters
    ----------
    engine : {"gibbs", "nuts", "advi"}
    schedule : Schedule
    init, step, record : callable
        Gibbs sampler of the model, as for :func:`bsdr_models.inference.gibbs.run_gibbs`.
    excluded : set of str
        Variables of Gibbs sampling that are not kept.
    declare : callable
        Returns the ``pymc.Model``.
    spec : ModelSpec
    rng : numpy.random.Generator
    """
    if engine == "gibbs":
        found = run_gibbs(
            init,
            step,
            record=lambda state: {k: v for k, v in record(state).items() if k not in excluded},
            rng=rng,
            draws=schedule.draws,
            tune=schedule.tune,
            progressbar=schedule.progressbar,
        )
        return Sampled(draws=dict(found.draws), interrupted=found.interrupted)
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    tree = engines.run_pymc(engine, declare(), spec, rng=rng, **asdict(schedule))
    return Sampled.from_tree(tree)


def _arrays(tree: xr.DataTree, group: str) -> dict[str, FloatArray]:
    if group not in tree.children:
        return {}
    dataset = tree[group].dataset
    return {str(name): np.asarray(dataset[name]) for name in dataset.data_vars}
