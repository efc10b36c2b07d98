"""Draws of any model by Gibbs sampling, or by NUTS and ADVI through PyMC."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.inference.gibbs import GibbsResult
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


def sample(
    engine: str,
    schedule: Schedule,
    *,
    run_gibbs: Callable[..., GibbsResult[Any]],
    declare: Callable[[], Any],
    spec: ModelSpec,
    rng: np.random.Generator,
) -> Sampled:
    """Draws of a model.

    Parameters
    ----------
    engine : {"gibbs", "nuts", "advi"}
    schedule : Schedule
    run_gibbs : callable
        :func:`bsdr_models.inference.gibbs.run_gibbs` with the steps of the model.
    declare : callable
        Returns the ``pymc.Model``.
    spec : ModelSpec
    rng : numpy.random.Generator
    """
    length = {"draws": schedule.draws, "tune": schedule.tune, "progressbar": schedule.progressbar}
    if engine == "gibbs":
        found = run_gibbs(rng=rng, **length)
        return Sampled(draws=dict(found.draws), interrupted=found.interrupted)
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    tree = engines.run_pymc(engine, declare(), spec, chains=schedule.chains, rng=rng, **length)
    return Sampled.from_tree(tree)


def _arrays(tree: xr.DataTree, group: str) -> dict[str, FloatArray]:
    if group not in tree.children:
        return {}
    dataset = tree[group].dataset
    return {str(name): np.asarray(dataset[name]) for name in dataset.data_vars}
