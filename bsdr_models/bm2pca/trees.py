"""Fits of BM2PCA as ``xarray.DataTree``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper.factor_model import Rows
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import FitResult, Posterior
from bsdr_models.dims import TERM
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.numerics.outliers import OutlierMeasures, Reference
from bsdr_models.numerics.relevance import feature_relevance, relevance
from bsdr_models.tasks import by_task

# Draws from the q of mean field.
N_DRAWS = 500


def per_class(context: Context, values: FloatArray) -> FloatArray:
    """Expand weights or biases (..., K) to one per class: two classes share one score."""
    if context.target != "multiclass":
        return values
    sizes = [1 if count == 2 else count for count in context.class_counts]
    parts = [
        np.concatenate([np.zeros_like(own), own], axis=-1) if size == 1 else own
        for own, size in zip(by_task(values, sizes), sizes, strict=True)
    ]
    return np.concatenate(parts, axis=-1)


def class_contrast(posterior: Posterior, context: Context) -> FloatArray:
    """Weights of the components in the differences of class scores."""
    return context.contrast(per_class(context, posterior.mean_weights))


def posterior_tree(
    result: FitResult,
    context: Context,
    *,
    inference_method: InferenceMethod,
    rng: np.random.Generator,
) -> xr.DataTree:
    """DataTree of a fit: draws of a sampler, or from q, in ``posterior``, summaries in ``fit``."""
    posterior: Any = result.posterior
    projection, contrast = posterior.projection, class_contrast(posterior, context)
    r, sampled = projection.shape[1], result.sampled
    group: dict[str, Any] = {
        "projection_mean": projection,
        "projection_sd": posterior.projection_sd,
        "feature_relevance": feature_relevance(projection, contrast),
    }
    if context.X.shape[0] * r * r <= datatree.MAX_NUMBERS:
        latent = posterior.embed(context.X)
        group |= {"latent_mean": latent.mean, "latent_cov": latent.cov}
    else:
        group["latent_mean"] = posterior.latent(context.X)
    group["relevance"] = relevance(group["latent_mean"], contrast)
    compared = compare_samples(result, context.X)
    attrs: dict[str, Any] = {"interrupted": int(result.interrupted)}
    if compared is not None:
        group |= compared[1].by_name()
        attrs |= compared[0].attrs()
    coords: dict[str, Sequence[Any]] = {}
    groups: dict[str, Any] = {}
    if sampled is not None:
        group |= sampled.fit
        attrs["alignment"] = "rotation"
        draws = dict(sampled.draws)
        if sampled.sample_stats:
            groups["sample_stats"] = dict(sampled.sample_stats)
    else:
        group["elbo"] = result.elbo
        attrs["converged"] = int(result.converged)
        if len(result.terms) > 1 and all(len(v) == len(result.elbo) for v in result.terms.values()):
            group["elbo_terms"] = np.column_stack(list(result.terms.values()))
            coords[TERM] = list(result.terms)
        if result.restarts:
            group["restarts"] = np.array(result.restarts)
        size = projection.shape[0] * posterior.mean_weights.shape[1]
        n_draws = int(np.clip(datatree.MAX_NUMBERS // size, 20, N_DRAWS))
        draws = {name: values[None] for name, values in posterior.draw(n_draws, rng).items()}
    return context.fit_tree(
        {"posterior": _recorded(draws, context), "fit": group, **groups},
        SPEC,
        inference_method=inference_method,
        n_components=r,
        attrs=attrs,
        coords=coords,
    )


def compare_samples(result: FitResult, X: Rows) -> tuple[Reference, OutlierMeasures] | None:
    """Outlier measures of the training samples, after imputation."""
    return Reference.learn(complete(result, X), result.posterior.projection)


def complete(result: FitResult, X: Rows) -> Rows:
    """Impute missing values by the factor model of the fit, if it has one."""
    if result.factor_model is None or issparse(X) or not np.isnan(X).any():
        return X
    return result.factor_model.impute(X)


def _recorded(draws: dict[str, FloatArray], context: Context) -> dict[str, FloatArray]:
    """Draws, those of a single score expanded to two classes, without loadings too large."""
    if "loadings" in draws and draws["loadings"].size > datatree.MAX_NUMBERS:
        del draws["loadings"]
    for name in ("coef", "intercept", "weights", "bias"):
        if name in draws and draws[name].shape[-1] != len(context.labels):
            draws[name] = per_class(context, draws[name])
    precision = draws.get("weight_precision")
    if precision is not None and precision.shape[-1] != len(context.labels):
        del draws["weight_precision"]  # it belongs to the single score
    return draws
