"""Trees of the paper's model by Gibbs sampling, and by NUTS and ADVI through PyMC."""

from typing import Any, cast

import numpy as np
import xarray as xr

from bsdr_models.bsdr import gibbs, trees
from bsdr_models.bsdr.data import Data
from bsdr_models.bsdr.priors import HierarchicalPriors, Priors
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.trees import Context
from bsdr_models.bsdr.views import FeatureMap
from bsdr_models.checks import warn_unless_mixed
from bsdr_models.inference import datatree
from bsdr_models.inference import sampling as inference
from bsdr_models.inference.sampling import Schedule
from bsdr_models.numerics.design import DenseDesign

# Draws that prediction averages over.
N_PREDICT = 500


def sample(
    engine: str,
    context: Context,
    priors: Priors,
    *,
    n_components: int,
    schedule: Schedule,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Tree of a fit by ``engine``: "gibbs", "nuts" or "advi"."""
    data = Data(
        design=DenseDesign(context.X),
        y=context.targets,
        n_labels=len(context.labels),
        target=context.target,
    )
    chains = schedule.chains
    excluded = {"utilities"}
    if chains * schedule.draws * len(context.X) * n_components > datatree.MAX_NUMBERS:
        excluded.add("latent")

    def init(stream: np.random.Generator) -> gibbs.GibbsState:
        return gibbs.initial_chains(
            data,
            priors,
            n_components=n_components,
            n_chains=chains,
            rng=stream,
        )

    found = inference.run_sampler(
        engine,
        schedule,
        init=init,
        step=lambda state, stream: gibbs.step_joint(state, data, priors, rng=stream),
        record=lambda state: gibbs.to_variables(state, priors.projection_prior),
        excluded=excluded,
        declare=lambda: declare(context, priors, n_components=n_components),
        spec=SPEC,
        rng=rng,
    )
    attrs = {"interrupted": int(found.interrupted)}
    return trees.draws_tree(
        {name: values for name, values in found.draws.items() if name not in SPEC.identified},
        context,
        inference_method=cast(datatree.InferenceMethod, engine),
        latent_scale=priors.latent_scale,
        sample_stats=found.sample_stats,
        fit=found.fit,
        attrs=attrs | ({"tune": schedule.tune} if engine == "gibbs" else {}),
    )


def declare(context: Context, priors: Priors, *, n_components: int) -> Any:
    """The PyMC model of the paper on the training samples of a fit."""
    from bsdr_models.bsdr.model import build_model

    return build_model(
        context.X,
        _targets(context),
        n_components=n_components,
        variant="paper",
        priors=priors,
        target=context.target,
    )


def declare_hierarchical(
    context: Context, priors: HierarchicalPriors, feature_map: FeatureMap
) -> Any:
    """The model at full rank on the training samples of a fit, with given whitened features."""
    from bsdr_models.bsdr.model import declare_hierarchical

    return declare_hierarchical(context.X, _targets(context), priors, context.target, feature_map)


def _targets(context: Context) -> np.ndarray:
    return context.targets if context.target == "regression" else context.y


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
