"""Samplers of BSDR from data to tree: the package's own, and NUTS and ADVI through PyMC."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.bsdr import averaged, averaged_target, gibbs, trees
from bsdr_models.bsdr.card import CARD
from bsdr_models.bsdr.priors import HierarchicalPriors, Priors
from bsdr_models.bsdr.settings import ADVI_STEPS, Sampler
from bsdr_models.bsdr.trees import Context
from bsdr_models.checks import warn_unless_mixed
from bsdr_models.data import Data
from bsdr_models.inference.gibbs import GibbsResult, run_gibbs
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.typing import FloatArray

# Draws that prediction averages over.
N_PREDICT = 500


def sample(
    engine: str,
    context: Context,
    priors: Priors,
    *,
    sampler: Sampler,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> xr.DataTree:
    """Posterior of BSDR by a sampler, or by ADVI.

    Parameters
    ----------
    engine : {"gibbs", "nuts", "advi"}
    context : Context
        Data and names.
    priors : Priors
    sampler : {"averaged", "joint", "paper"}
        Kernel of the first engine: :mod:`bsdr_models.bsdr.averaged`, or ``step_joint`` or ``step``
        of :mod:`bsdr_models.bsdr.gibbs`.
    n_components : int
    draws, tune, chains : int
        Kept draws and warm-up per chain; ADVI returns ``draws`` draws in one chain.
    rng : numpy.random.Generator
    progressbar : bool

    Returns
    -------
    xarray.DataTree
    """
    if engine == "gibbs":
        return _gibbs(context, priors, sampler, n_components, draws, tune, chains, rng, progressbar)
    # PyMC takes most of a second to load and is not needed by the other engines.
    from bsdr_models.inference import engines

    model = declare(context, priors, n_components=n_components)
    options: dict[str, Any] = {
        "card": CARD,
        "rng": rng,
        "draws": draws,
        "progressbar": progressbar,
    }
    if engine == "nuts":
        found = engines.sample_nuts(model, tune=tune, chains=chains, **options)
    else:
        found = engines.fit_advi(model, n_iterations=ADVI_STEPS, **options)
    posterior = found["posterior"].dataset
    values = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    for derived in CARD.identified:
        values.pop(derived, None)
    stats = found["sample_stats"].dataset if "sample_stats" in found.children else {}
    numbers = {str(name): np.asarray(stats[name]) for name in stats}
    fit = found["fit"].dataset if "fit" in found.children else {}
    return trees.draws_tree(
        values,
        context,
        inference_method=found.attrs["inference_method"],
        latent_scale=priors.latent_scale,
        sample_stats={k: v for k, v in numbers.items() if v.ndim == 2},
        fit={str(name): np.asarray(fit[name]) for name in fit if name in ("elbo", "restarts")},
        attrs={"interrupted": int(found.attrs.get("interrupted", 0))},
    )


def _gibbs(
    context: Context,
    priors: Priors,
    sampler: Sampler,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> xr.DataTree:
    data = Data(
        design=DenseDesign(context.X),
        y=context.y,
        n_labels=len(context.labels),
        target=context.target,
    )
    prior = context.projection_prior
    left_out = {"scores"}
    if chains * draws * len(context.X) * n_components > trees.MAX_NUMBERS:
        left_out.add("latent")

    def start(stream: np.random.Generator) -> gibbs.State:
        return gibbs.init(
            data,
            priors,
            n_components=n_components,
            projection_prior=prior,
            n_chains=chains,
            rng=stream,
        )

    def kept(values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        return {name: value for name, value in values.items() if name not in left_out}

    options: dict[str, Any] = {"draws": draws, "tune": tune, "progressbar": progressbar}
    result: GibbsResult[Any]
    if sampler == "averaged":
        problem = averaged_target.pose(
            data, priors, n_components=n_components, projection_prior=prior
        )
        record_rng, rng = rng.spawn(2)
        result = run_gibbs(
            lambda stream: averaged.init(problem, start(stream), rng=stream),
            lambda state, stream: averaged.step(state, problem, tune=tune, rng=stream),
            record=lambda state: kept(
                averaged.to_variables(state, problem, priors, rng=record_rng)
            ),
            rng=rng,
            **options,
        )
    else:
        sweep = gibbs.step_joint if sampler == "joint" else gibbs.step
        result = run_gibbs(
            start,
            lambda state, stream: sweep(state, data, priors, rng=stream),
            record=lambda state: kept(gibbs.to_variables(state, prior)),
            rng=rng,
            **options,
        )
    return trees.draws_tree(
        dict(result.draws),
        context,
        inference_method="gibbs",
        latent_scale=priors.latent_scale,
        attrs={"interrupted": int(result.interrupted), "tune": tune, "sampler": sampler},
    )


def declare(context: Context, priors: Priors | HierarchicalPriors, *, n_components: int) -> Any:
    """The PyMC model on the training rows of a fit."""
    from bsdr_models.bsdr.model import build_model

    return build_model(
        context.X,
        context.decoded,
        n_components=n_components,
        variant=context.variant,
        projection_prior=context.projection_prior if context.variant == "paper" else None,
        priors=priors,
        target=context.target,
    )


def warn_unless_converged(tree: xr.DataTree) -> bool:
    """Whether R-hat of the identified quantities is small; a warning with a remedy if not."""
    return warn_unless_mixed(tree, identified_names(tree), remedy=_remedy(tree), stacklevel=6)


def _remedy(tree: xr.DataTree) -> str:
    """What may mix better than the sampler that made a tree."""
    more = "draw more, tighten the priors (a larger shape), or use "
    if tree.attrs["target"] != "multiclass":
        return more + "inference='nuts'"
    if tree.attrs.get("sampler") == "averaged":
        return more + "another n_components"
    return more + "inference='gibbs', sampler=\"averaged\""


def identified_names(tree: xr.DataTree) -> list[str]:
    """Variables of a tree of which diagnostics mean something."""
    posterior = tree["posterior"].dataset
    names = [name for name in CARD.identified if name in posterior]
    if "bias_centered" not in names:  # without classes the bias is identified as it is
        names.append("bias")
    return names
