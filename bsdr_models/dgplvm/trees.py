"""Fits of D-GPLVM by any engine as an ``xarray.DataTree``."""

from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.latent_inference import tail_probability
from bsdr_models.dgplvm.learn import FitResult
from bsdr_models.dgplvm.predict import Embedder, MappingEmbedder
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dims import LABEL, TERM
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context, InferenceMethod


def fit_tree(
    result: FitResult, context: Context, *, inference_method: InferenceMethod
) -> xr.DataTree:
    """Tree of a fit.

    ``posterior`` holds the latent coordinates of the training samples and the kernel parameters:
    the mode as a single draw, or the draws of a sampler. ``fit/latent_mean`` and ``latent_cov``
    are the leave-one-out latent coordinates, which are not biased by the label of the sample.
    """
    r = result.latent.shape[1]
    embedder = result.posterior.embedder
    index = context.index
    assert index is not None
    fit: dict[str, Any] = {
        "latent_mean": result.left_out.mean,
        "latent_cov": result.left_out.cov,
        "relevance": relevance(result.left_out.mean, index),
        "elbo": result.trace,
        "restarts": np.array(result.restarts),
        "objective_terms": np.array(list(result.terms.values())),
        "class_size": np.bincount(index[index >= 0], minlength=len(context.labels)),
    }
    if isinstance(embedder, MappingEmbedder):
        slope, sd, share = embedder.sensitivity(context.X)
        own = embedder.out_of_range_left_out()
        fit |= {
            "projection_mean": slope,
            "projection_sd": sd,
            "feature_relevance": share,
            "out_of_range": own,
            "tail_probability": tail_probability(-own, -own),
        }
    groups: dict[str, dict[str, Any]] = {"posterior": _posterior(result), "fit": fit}
    if result.sampled is not None:
        fit |= dict(result.sampled.fit)
        groups["sample_stats"] = dict(result.sampled.sample_stats)
    dims: dict[str, tuple[str, ...]] = {"objective_terms": (TERM,), "class_size": (LABEL,)}
    tree = context.fit_tree(
        groups,
        SPEC,
        inference_method=inference_method,
        n_components=r,
        attrs={"converged": int(result.converged), "interrupted": int(result.interrupted)},
        dims=dims,
        coords={TERM: list(result.terms)},
    )
    if isinstance(embedder, MappingEmbedder):
        tree["fit/projection_sd"].attrs["over"] = "rows"
    return tree


def _posterior(result: FitResult) -> dict[str, Any]:
    """Draws of a sampler, or the mode as a single draw."""
    if result.sampled is not None:
        draws = dict(result.sampled.draws)
        if draws["latent"].size > datatree.MAX_NUMBERS:
            del draws["latent"]
        return draws
    mode: dict[str, Any] = {name: np.array(v)[None, None] for name, v in result.variables.items()}
    return {"latent": result.latent[None, None], **mode}


def out_of_range(embedder: Embedder, X: FloatArray) -> dict[str, FloatArray]:
    """Relative variance of new samples, and the share of training samples with at least as much.

    Empty unless samples are embedded by the mapping.
    """
    if not isinstance(embedder, MappingEmbedder):
        return {}
    found = embedder.out_of_range(X)
    tail = tail_probability(-found, -embedder.out_of_range_left_out())
    return {"out_of_range": found, "tail_probability": tail}


def relevance(latent: FloatArray, index: IntArray) -> FloatArray:
    """Share of each component in the scatter of the class centroids, (R,)."""
    classes = np.unique(index[index >= 0])
    centroids = np.stack([latent[index == label].mean(axis=0) for label in classes])
    scatter = ((centroids - centroids.mean(axis=0)) ** 2).sum(axis=0)
    return scatter / (scatter.sum() or 1.0)
