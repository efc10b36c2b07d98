"""Fits of the paper's model: mean field, Gibbs sampling, and NUTS and ADVI through PyMC."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import xarray as xr

from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.inference import datatree
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule, run_sampler
from bsdr_models.options import ITERATIONS, Options
from bsdr_models.papers.bsdr import gibbs, mean_field, trees
from bsdr_models.papers.bsdr.mean_field import Data, State
from bsdr_models.papers.bsdr.trees import PaperContext
from bsdr_models.papers.coordinate_ascent import (
    Extrapolation,
    run_coordinate_ascent,
)

if TYPE_CHECKING:
    import pymc as pm

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of mean field in the paper's model of BSDR.

    Parameters
    ----------
    n_restarts : int, default=1
        Restarts, of which the one with the highest bound is selected: the first from discriminant
        directions, the others from random coordinates.
    max_iter : int, default=500
        Iterations per restart.
    tol : float, default=1e-3
        Mean field stops when a round gains less than this many nats.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.Sampling : settings of samplers.

    Examples
    --------
    >>> from bsdr_models import BSDROptimization
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> model = PaperBSDRClassifier(optimization=BSDROptimization(n_restarts=3))
    """

    _constraints: ClassVar[dict[str, list[object]]] = ITERATIONS

    n_restarts: int = 1
    max_iter: int = 500
    tol: float = 1e-3


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    **options: Any,
) -> Result[State]:
    """Maximise the bound by sweeps, with the options of `run_coordinate_ascent`."""
    return run_coordinate_ascent(
        lambda stream, restart: mean_field.init(
            data, priors, n_components=n_components, rng=stream, at_random=restart > 0
        ),
        lambda state: mean_field.step(state, data, priors),
        title="BSDR, mean field",
        extrapolation=Extrapolation(pack=mean_field.pack, unpack=mean_field.unpack),
        **options,
    )


def sample(
    engine: Inference,
    context: PaperContext,
    *,
    n_components: int,
    schedule: Schedule,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Tree of a fit by ``engine``: "gibbs", "nuts" or "advi"."""
    data = context.data("entrywise")
    priors = context.priors
    assert priors is not None
    excluded = {"utilities", "latent_offset"}
    if schedule.chains * schedule.draws * len(context.X) * n_components > datatree.MAX_NUMBERS:
        excluded.add("latent")
    found = run_sampler(
        engine,
        schedule,
        init=lambda stream: gibbs.init(
            data, priors, n_components=n_components, n_chains=schedule.chains, rng=stream
        ),
        step=lambda state, stream: gibbs.step(state, data, priors, rng=stream),
        record=lambda state: gibbs.to_variables(state, priors.projection_prior),
        stats=lambda state: gibbs.sample_stats(state, data, priors),
        excluded=excluded,
        declare=lambda: declare(context, n_components),
        spec=SPEC,
        rng=rng,
    )
    return trees.draws_tree(
        {name: values for name, values in found.draws.items() if name not in SPEC.identified},
        context,
        inference_method=engine,
        sample_stats=found.sample_stats,
        fit=found.fit,
        attrs={"interrupted": int(found.interrupted), **found.attrs},
    )


def declare(context: PaperContext, n_components: int) -> "pm.Model":
    """The PyMC model of the paper on the training samples of a fit."""
    from bsdr_models.papers.bsdr.model import build_model

    return build_model(
        context.X,
        context.modelled,
        n_components=n_components,
        priors=context.priors,
        target=context.target,
    )
