"""Trees of the paper's model by Gibbs sampling, and by NUTS and ADVI through PyMC."""

from typing import Any, cast

import numpy as np
import xarray as xr

from bsdr_models.bsdr.paper import gibbs, trees
from bsdr_models.bsdr.paper.trees import PaperContext
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.inference import datatree
from bsdr_models.inference import sampling as inference
from bsdr_models.inference.sampling import Schedule
from bsdr_models.validation import warn_unless_mixed

# Draws that prediction averages over.
N_PREDICT = 500


def sample(
    engine: str,
    context: PaperContext,
    *,
    n_components: int,
    schedule: Schedule,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Tree of a fit by ``engine``: "gibbs", "nuts" or "advi"."""
    data, priors = context.data("entrywise"), context.priors
    assert priors is not None
    chains = schedule.chains
    excluded = {"utilities"}
    if chains * schedule.draws * len(context.X) * n_components > datatree.MAX_NUMBERS:
        excluded.add("latent")

    def init(stream: np.random.Generator) -> gibbs.GibbsState:
        return gibbs.initial_chains(
            data, priors, n_components=n_components, n_chains=chains, rng=stream
        )

    found = inference.run_sampler(
        engine,
        schedule,
        init=init,
        step=lambda state, stream: gibbs.step_joint(state, data, priors, rng=stream),
        record=lambda state: gibbs.to_variables(state, priors.projection_prior),
        excluded=excluded,
        declare=lambda: declare(context, n_components),
        spec=SPEC,
        rng=rng,
    )
    attrs = {"interrupted": int(found.interrupted)}
    return trees.draws_tree(
        {name: values for name, values in found.draws.items() if name not in SPEC.identified},
        context,
        inference_method=cast(datatree.InferenceMethod, engine),
        sample_stats=found.sample_stats,
        fit=found.fit,
        attrs=attrs | ({"tune": schedule.tune} if engine == "gibbs" else {}),
    )


def declare(context: PaperContext, n_components: int) -> Any:
    """The PyMC model of the paper on the training samples of a fit."""
    from bsdr_models.bsdr.paper.model import build_paper_model

    options: dict[str, Any] = {"priors": context.priors, "target": context.target}
    return build_paper_model(context.X, context.modelled, n_components=n_components, **options)


def warn_unless_converged(tree: xr.DataTree, *, stacklevel: int = 6) -> bool:
    """Whether R-hat of identified quantities is small; warns with a remedy if not."""
    bias = "bias_centered" if "bias_centered" in tree["posterior"] else "bias"
    return warn_unless_mixed(tree, ["coef", bias], stacklevel=stacklevel)
