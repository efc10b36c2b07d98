"""Fits of BM2PCA, by any variant and inference method, as ``xarray.DataTree``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.conjugate.factor_model import Rows
from bsdr_models.bm2pca.conjugate.mean_field import State
from bsdr_models.bm2pca.label_free.fit import OneVsRestPosterior, SubspacePosterior
from bsdr_models.bm2pca.predict import DrawPosterior, MarginPosterior
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import FitResult
from bsdr_models.dims import TERM
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.numerics.linalg import cholesky
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


def fit_tree(result: FitResult, context: Context, *, rng: np.random.Generator) -> xr.DataTree:
    """DataTree of a mean-field fit: draws from q in ``posterior``, summaries in ``fit``."""
    posterior = result.posterior
    projection, weights = posterior.projection, mean_weights(result)
    contrast = context.contrast(per_class(context, weights))
    group: dict[str, Any] = {
        "projection_mean": projection,
        "projection_sd": posterior.projection_sd,
        "feature_relevance": feature_relevance(projection, contrast),
        "elbo": result.elbo,
    }
    r = projection.shape[1]
    if context.X.shape[0] * r * r <= datatree.MAX_NUMBERS:
        latent = posterior.embed(context.X)
        group |= {"latent_mean": latent.mean, "latent_cov": latent.cov}
    else:
        group["latent_mean"] = posterior.latent(context.X)
    group["relevance"] = relevance(group["latent_mean"], contrast)
    outliers, reference = _outliers(result, context)
    group |= outliers
    coords: dict[str, Sequence[Any]] = {}
    if len(result.terms) > 1 and all(len(v) == len(result.elbo) for v in result.terms.values()):
        group["elbo_terms"] = np.column_stack(list(result.terms.values()))
        coords[TERM] = list(result.terms)
    if result.restarts:
        group["restarts"] = np.array(result.restarts)
    draws = {name: values[None] for name, values in _draw(result, context, rng).items()}
    return context.fit_tree(
        {"posterior": draws, "fit": group},
        SPEC,
        inference_method="mean_field",
        n_components=r,
        attrs={
            "converged": int(result.converged),
            "interrupted": int(result.interrupted),
            **reference,
        },
        coords=coords,
    )


def draws_tree(
    result: FitResult, context: Context, *, inference_method: InferenceMethod
) -> xr.DataTree:
    """DataTree of a sampler's draws, components aligned."""
    assert result.sampled is not None
    sampled, posterior = result.sampled, result.posterior
    latent, projection = posterior.embed(context.X), posterior.projection
    contrast = context.contrast(per_class(context, mean_weights(result)))
    outliers, reference = _outliers(result, context)
    group: dict[str, Any] = {
        "latent_mean": latent.mean,
        "latent_cov": latent.cov,
        "projection_mean": projection,
        "projection_sd": posterior.projection_sd,
        "relevance": relevance(latent.mean, contrast),
        "feature_relevance": feature_relevance(projection, contrast),
        **outliers,
        **sampled.fit,
    }
    draws = _for_classes(dict(sampled.draws), context)
    if draws["loadings"].size > datatree.MAX_NUMBERS:
        del draws["loadings"]
    groups = {"posterior": draws, "fit": group}
    if sampled.sample_stats:
        groups["sample_stats"] = dict(sampled.sample_stats)
    return context.fit_tree(
        groups,
        SPEC,
        inference_method=inference_method,
        n_components=projection.shape[1],
        attrs={
            "interrupted": int(result.interrupted),
            "alignment": "rotation",
            **reference,
        },
    )


def compare_samples(result: FitResult, X: Rows) -> tuple[Reference, OutlierMeasures] | None:
    """Outlier measures of the training samples, after imputation."""
    return Reference.learn(complete(result, X), result.posterior.projection)


def complete(result: FitResult, X: Rows) -> Rows:
    """Impute missing values by the factor model of the fit, if it has one."""
    if result.factor_model is None or issparse(X) or not np.isnan(X).any():
        return X
    return result.factor_model.impute(X)


def _outliers(
    result: FitResult, context: Context
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    found = compare_samples(result, context.X)
    return ({}, {}) if found is None else (found[1].by_name(), found[0].attrs())


def _for_classes(draws: dict[str, FloatArray], context: Context) -> dict[str, FloatArray]:
    """Expand draws of a single score to two classes."""
    for name in ("coef", "intercept", "weights", "bias"):
        if name in draws and draws[name].shape[-1] != len(context.labels):
            draws[name] = per_class(context, draws[name])
    precision = draws.get("weight_precision")
    if precision is not None and precision.shape[-1] != len(context.labels):
        del draws["weight_precision"]  # it belongs to the single score
    return draws


def mean_weights(result: FitResult) -> FloatArray:
    """Weights of the class scores, (R, K), block-diagonal for one-vs-rest."""
    posterior = result.posterior
    if isinstance(posterior, SubspacePosterior):
        return posterior.state.weights[1:]
    if isinstance(posterior, DrawPosterior):
        return posterior.weights[:, 1:].mean(axis=0)
    if isinstance(posterior, MarginPosterior):
        return _block_diagonal(posterior.weights.mean[:, 1:])
    return np.eye(posterior.projection.shape[1])


def _block_diagonal(weights: FloatArray) -> FloatArray:
    """Block-diagonal matrix (P R, P K) of weights (P, R, K)."""
    p, r, k = weights.shape
    out = np.zeros((p, r, p, k))
    out[np.arange(p), :, np.arange(p)] = weights
    return out.reshape(p * r, p * k)


def _draw(result: FitResult, context: Context, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws of coef and intercept, and of weights and loadings for a single problem."""
    posterior = result.posterior
    p, k = posterior.projection.shape[0], mean_weights(result).shape[1]
    n_draws = int(np.clip(datatree.MAX_NUMBERS // (p * k), 20, N_DRAWS))
    if isinstance(posterior, MarginPosterior):
        assert result.state is not None
        draws = draw_margin(result.state, posterior, n_draws, rng)
    elif isinstance(posterior, SubspacePosterior):
        draws = _draw_subspace(posterior, n_draws, rng)
    else:
        assert isinstance(posterior, OneVsRestPosterior)
        draws = _draw_one_vs_rest(posterior, n_draws, rng)
    return _for_classes(draws, context)


def draw_margin(
    state: State, posterior: MarginPosterior, n_draws: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws from the q of the paper's variant, by name, (S, ...)."""
    factor_model, weights = posterior.factor_model, posterior.weights
    p, r = factor_model.shape
    single = p == 1 and len(factor_model.parts) == 1
    # (P, J, R, R)
    factors = [cholesky(part.cov, name="loading covariance") for part in factor_model.parts]
    half = cholesky(weights.cov, name="weight covariance")  # (P, K, 1 + R, 1 + R)
    found: dict[str, list[FloatArray]] = {}
    for _ in range(n_draws):
        noise = rng.standard_normal((p, weights.mean.shape[2], 1 + r))
        eta = weights.mean + np.einsum("pkqs,pks->pqk", half, noise)
        loadings, offsets, precisions = [], [], []
        for part, factor, own in zip(factor_model.parts, factors, state.views, strict=True):
            noise = rng.standard_normal(part.loadings.shape)
            if factor.shape[1] == 1:
                noise = noise @ np.swapaxes(factor[:, 0], 1, 2)
            else:
                noise = np.einsum("pdrs,pds->pdr", factor, noise)
            loadings.append(part.loadings + noise)
            spread = rng.standard_normal(part.offset.shape) * np.sqrt(own.offset.variance)
            offsets.append(part.offset + spread)
            tau = own.noise_precision
            precisions.append(rng.gamma(tau.shape) / tau.rate)
        coef, intercept = factor_model.coefficients(loadings, offsets, precisions, eta)
        values = {"coef": coef, "intercept": intercept}
        if single:
            values |= {
                "weights": eta[0, 1:],
                "bias": eta[0, 0],
                "loadings": loadings[0][0],
                "offset": offsets[0][0],
                "noise_precision": precisions[0][0],
            }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    draws = {name: np.stack(values) for name, values in found.items()}
    if single:
        for name, gamma in (
            ("loading_precision", state.views[0].loading_precision),
            ("weight_precision", state.weight_precision),
        ):
            draws[name] = rng.gamma(gamma.shape[0], size=(n_draws, gamma.shape.shape[1]))
            draws[name] /= gamma.rate[0]
        if draws["loadings"].size > datatree.MAX_NUMBERS:
            del draws["loadings"]
    return draws


def _draw_subspace(
    posterior: SubspacePosterior, n_draws: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws of the classifier given the subspace."""
    H, half = posterior.state.weights, cholesky(posterior.weight_cov, name="weight covariance")
    noise = rng.standard_normal((n_draws, *half.shape[:2]))
    full = H + np.einsum("kpq,skq->spk", half, noise)  # (S, 1 + R, K)
    projection = posterior.projection
    coef = projection @ full[:, 1:]
    centre = posterior.metric.mean @ coef
    return {
        "weights": full[:, 1:],
        "bias": full[:, 0],
        "coef": coef,
        "intercept": full[:, 0] - centre,
    }


def _draw_one_vs_rest(
    posterior: OneVsRestPosterior, n_draws: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws of the classifiers in the row space of the training samples."""
    metric, weights, ridge = posterior.metric, posterior.state.weights, posterior.data.ridge
    coef, intercept = [], []
    for label, precision in enumerate(weights.prior_precision):
        cov = ridge.covariance(precision, weights.row_precision[:, label])
        noise = rng.standard_normal((len(cov), n_draws))
        full = weights.mean[:, label, None] + cholesky(cov, name="weight covariance") @ noise
        coef.append(metric.back(full[1:]).T)  # (S, P)
        intercept.append(full[0] - coef[-1] @ metric.mean)
    return {"coef": np.stack(coef, axis=-1), "intercept": np.stack(intercept, axis=-1)}
