"""Trees of the paper's model by Gibbs sampling, and by NUTS and ADVI through PyMC."""

from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr import gibbs, trees
from bsdr_models.bsdr.data import Data
from bsdr_models.bsdr.priors import HierarchicalPriors, Priors
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.trees import Context
from bsdr_models.checks import warn_unless_mixed
from bsdr_models.inference import datatree
from bsdr_models.inference.gibbs import run_gibbs
from bsdr_models.numerics.design import DenseDesign

# Draws that prediction averages over.
N_PREDICT = 500


def sample(
    engine: str,
    context: Context,
    priors: Priors,
    *,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> xr.DataTree:
    """Tree of a fit by ``engine``: "gibbs", "nuts" or "advi"; ADVI has a single chain."""
    if engine == "gibbs":
        return _gibbs(context, priors, n_components, draws, tune, chains, rng, progressbar)
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    model = declare(context, priors, n_components=n_components)
    found = engines.run_pymc(
        engine, model, SPEC, draws=draws, tune=tune, chains=chains, rng=rng, progressbar=progressbar
    )
    posterior = found["posterior"].dataset
    values = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    for derived in SPEC.identified:
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
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> xr.DataTree:
    data = Data(
        design=DenseDesign(context.X),
        y=context.targets,
        n_labels=len(context.labels),
        target=context.target,
    )
    prior = context.projection_prior
    excluded = {"utilities"}
    if chains * draws * len(context.X) * n_components > datatree.MAX_NUMBERS:
        excluded.add("latent")

    def record(state: gibbs.State) -> dict[str, FloatArray]:
        values = gibbs.to_variables(state, prior)
        return {name: value for name, value in values.items() if name not in excluded}

    result = run_gibbs(
        lambda stream: gibbs.init(
            data,
            priors,
            n_components=n_components,
            projection_prior=prior,
            n_chains=chains,
            rng=stream,
        ),
        lambda state, stream: gibbs.step_joint(state, data, priors, rng=stream),
        record=record,
        rng=rng,
        draws=draws,
        tune=tune,
        progressbar=progressbar,
    )
    return trees.draws_tree(
        dict(result.draws),
        context,
        inference_method="gibbs",
        latent_scale=priors.latent_scale,
        attrs={"interrupted": int(result.interrupted), "tune": tune},
    )


def declare(context: Context, priors: Priors | HierarchicalPriors, *, n_components: int) -> Any:
    """The PyMC model on the training samples of a fit."""
    from bsdr_models.bsdr.model import build_model

    return build_model(
        context.X,
        context.targets if context.target == "regression" else context.y,
        n_components=n_components,
        variant=context.variant,
        projection_prior=context.projection_prior if context.variant == "paper" else None,
        priors=priors,
        target=context.target,
    )


def warn_unless_converged(tree: xr.DataTree) -> bool:
    """Whether R-hat of identified quantities is small; warns with a remedy if not."""
    return warn_unless_mixed(tree, identified_names(tree), remedy=_remedy(tree), stacklevel=6)


def _remedy(tree: xr.DataTree) -> str:
    """Advice on better mixing, given the sampler of a tree."""
    remedy = "draw more, or tighten the priors (a larger shape)"
    if tree.attrs["inference_method"] == "nuts":
        return remedy
    return remedy + ", or use inference='nuts', or variant='hierarchical'"


def identified_names(tree: xr.DataTree) -> list[str]:
    """Identified variables of a tree, for diagnostics."""
    posterior = tree["posterior"].dataset
    names = [name for name in SPEC.identified if name in posterior]
    if "bias_centered" not in names:  # except for classes the bias is identified
        names.append("bias")
    return names
