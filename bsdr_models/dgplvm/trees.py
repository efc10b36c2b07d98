"""Variables of D-GPLVM, and its fits as ``xarray.DataTree``."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import xarray as xr

from bsdr_models.dgplvm.posterior import FitResult
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.inference.dims import COMPONENT, FEATURE, LABEL, OBS, TERM
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray

SPEC = ModelSpec(
    name="dgplvm",
    citation_bibtex="""@inproceedings{urtasun2007dgplvm,
  author    = {Urtasun, Raquel and Darrell, Trevor},
  title     = {Discriminative {Gaussian} Process Latent Variable Model for Classification},
  booktitle = {Proceedings of the 24th International Conference on Machine Learning},
  pages     = {927--934},
  year      = {2007},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS,),
            "latent_raw": (OBS, COMPONENT),
            "latent": (OBS, COMPONENT),
            "signal_variance": (),
            "lengthscale": (),
            "noise_variance": (),
            "criterion": (),
        }
    ),
    identified=("signal_variance", "lengthscale", "noise_variance", "criterion"),
    alignment=MappingProxyType({"loadings": "latent", "method": "procrustes"}),
)


def make_tree(
    result: FitResult,
    context: Context,
    *,
    fit: Mapping[str, FloatArray],
    method: InferenceMethod,
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> xr.DataTree:
    """Tree of a fit, with further summaries ``fit`` and dims of free variables.

    ``posterior`` holds the mode as a single draw, or the draws of a sampler. ``fit/latent_mean``
    and ``latent_cov`` are the leave-one-out latent coordinates, which are not biased by the label
    of the sample.
    """
    index = context.targets.index
    sampled = result.sampled
    assert index is not None
    group: dict[str, object] = {
        "latent_mean": result.left_out.mean,
        "latent_cov": result.left_out.cov,
        "log_density": result.trace,
        "restarts": np.array(result.restarts),
        "objective_terms": np.array(list(result.terms.values())),
        "class_size": np.bincount(index[index >= 0], minlength=len(context.targets.names)),
        **fit,
    }
    groups: dict[str, dict[str, object]] = {"fit": group}
    if sampled is None:
        mode = {"latent": result.latent, **result.variables}
        groups["posterior"] = {name: np.array(v)[None, None] for name, v in mode.items()}
    else:
        groups["posterior"] = dict(sampled.draws)
        if sampled.draws["latent"].size > datatree.MAX_NUMBERS:
            del groups["posterior"]["latent"], groups["posterior"]["latent_raw"]
        groups["sample_stats"] = dict(sampled.sample_stats)
        if sampled.fit:
            # Iterations and restarts are those of ADVI, not of the search of its initial values.
            del group["log_density"]
            group |= sampled.fit
    tree = context.fit_tree(
        groups,
        SPEC,
        inference_method=method,
        n_components=result.latent.shape[1],
        attrs={
            "converged": int(result.converged),
            "interrupted": int(result.interrupted),
            **({} if sampled is None else sampled.attrs),
        },
        dims={"objective_terms": (TERM,), "class_size": (LABEL,), **dims},
        coords={TERM: list(result.terms)},
    )
    if "projection_sd" in group:
        tree["fit/projection_sd"].attrs["over"] = "rows"
    return tree
