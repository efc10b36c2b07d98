"""Fits of BSDR at full rank as ``xarray.DataTree``, and what all fits of BSDR have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models import dims
from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bsdr.fit import Fit, pointwise_log_likelihood
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.views import Views
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import InferenceMethod
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import feature_relevance

# Random perturbation of log likelihoods of labels, in nats. They are equal for all draws that are
# certain of a sample, and Pareto smoothing fails on ties.
TIE = 1e-9

LIKELIHOOD_NOTE = (
    "Of each sample given the parameters, latent coordinates and utilities integrated out, as "
    "needed by leave-one-out cross-validation. Pareto k is large or NaN for samples of which all "
    "draws are certain; their elpd_i is negligible."
)
APPROXIMATE_NOTE = (
    " The draws are from an approximation of the posterior, which arviz.loo would take for the "
    "posterior: the group is therefore not called log_likelihood."
)
MEAN_FIELD_NOTE = (
    " Give arviz.loo_approximate_posterior the tree with this group as log_likelihood, and log_p "
    "and log_q of the group sample_stats."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(datatree.Context):
    """Data and settings of a fit of BSDR.

    targets
        As in :class:`bsdr_models.bsdr.paper.data.Data`.
    views
        Names and features of views.
    """

    targets: np.ndarray
    views: list[tuple[str, IntArray]] | None = None

    @property
    def modelled(self) -> np.ndarray:
        """Targets as the PyMC model takes them: real ones standardised."""
        return self.targets if self.target == "regression" else self.y

    @property
    def log_scale(self) -> float:
        """Sum over real outputs of the log of their scale, which log densities of y contain."""
        return float(np.sum(np.log(self.attrs.get("y_scale", 1.0))))

    def build(
        self,
        groups: dict[str, dict[str, Any]],
        *,
        inference_method: InferenceMethod,
        n_components: int,
        attrs: Mapping[str, Any],
        coords: Mapping[str, Sequence[Any]] | None = None,
        dims: Mapping[str, tuple[str, ...]] | None = None,
    ) -> xr.DataTree:
        """Tree of a fit, with notes on its log likelihood."""
        likelihood = "log_likelihood"
        if inference_method in datatree.APPROXIMATIONS and likelihood in groups:
            likelihood = "approximate_log_likelihood"
            groups = {
                likelihood if name == "log_likelihood" else name: groups[name] for name in groups
            }
        tree = self.fit_tree(
            groups,
            SPEC,
            inference_method=inference_method,
            n_components=n_components,
            coords=coords,
            dims={"parameters": (), **(dims or {})},
            attrs=attrs,
        )
        if likelihood in groups:
            note = LIKELIHOOD_NOTE
            note += APPROXIMATE_NOTE if likelihood != "log_likelihood" else ""
            note += MEAN_FIELD_NOTE if "log_q" in groups.get("sample_stats", {}) else ""
            tree[likelihood].attrs["note"] = note
        return tree


def hierarchical_tree(
    fit: Fit,
    context: Context,
    *,
    rng: np.random.Generator,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Tree of a fit at full rank.

    Draws are mapped to identified latent coordinates, by an affine map of each draw that leaves the
    linear predictor, and hence all predictions, unchanged. The part of the projection outside the
    row space of the training samples is drawn by ``rng``. ``attrs`` are further root attributes.
    """
    posterior, draws = fit.posterior, fit.draws
    p, r = context.X.shape[1], posterior.n_components
    k, (n_chains, per_chain) = draws.bias.shape[1], fit.shape
    n_kept = int(np.clip(datatree.MAX_NUMBERS // (p * max(r, k) * n_chains), 5, per_chain))
    one = np.unique(np.linspace(0, per_chain - 1, n_kept).round().astype(np.int64))
    kept = (np.arange(n_chains)[:, None] * per_chain + one).ravel()
    shape = (n_chains, len(one))
    raw = draws.take(kept)
    aligned = posterior.coordinates.thin(kept).align(raw)
    maps = posterior.coordinates.maps[kept, 1:]  # (S, J, R)
    outside = raw.scale[:, None, None] * rng.standard_normal((len(kept), maps.shape[1], p))
    feature_map = posterior.metric
    variables = {"weights": aligned.weights[:, :r], "bias": aligned.bias, "scale": raw.scale}
    full = feature_map.loadings(raw.projection, outside, raw.view_scale)  # (S, J, P)
    whitened, loadings = feature_map.whiten(context.X), None
    if full is not None:
        full = np.swapaxes(full, 1, 2)
        loadings = full @ maps[..., :r]
        variables |= {"projection": loadings, "coef": full @ raw.weights}
    views: list[str] = []
    if isinstance(feature_map, Views):
        views = list(feature_map.names)
        assert raw.view_scale is not None
        variables["view_scale"] = raw.view_scale
        variables["view_share"] = feature_map.shares(raw, whitened)
    if context.target == "multiclass":
        variables["bias_centered"] = raw.bias
    if raw.noise_scale is not None:
        variables["noise_scale"] = raw.noise_scale
    latent = posterior.embed(context.X)
    contrast = posterior.coordinates.axes[:, :r].T
    groups: dict[str, dict[str, Any]] = {
        "posterior": {
            name: each.reshape(*shape, *each.shape[1:]) for name, each in variables.items()
        },
        "sample_stats": {name: each[:, one] for name, each in fit.sample_stats.items()},
        "fit": {
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
            "relevance": posterior.share,
        },
    }
    if loadings is not None and (found := posterior.components()) is not None:
        components = found.T
        groups["fit"] |= {
            "projection_mean": components,
            "projection_sd": loadings.std(axis=0),
        }
        if feature_map.is_linear:
            relevant = feature_relevance(components, contrast)
            groups["fit"] |= outlier_statistics(context.X, components)[0]
        else:
            relevant = posterior.feature_relevance(context.X)
        groups["fit"]["feature_relevance"] = relevant
    total = fit.log_likelihood[:, one] - len(context.X) * context.log_scale
    if fit.engine not in datatree.APPROXIMATIONS:
        groups["sample_stats"]["log_likelihood"] = total
    if fit.log_prior is not None:
        groups["sample_stats"]["lp"] = total + fit.log_prior[:, one]
    if fit.log_prior is not None:
        groups["log_prior"] = {"parameters": fit.log_prior[:, one]}
    if not groups["sample_stats"]:
        del groups["sample_stats"]
    # The pointwise log likelihood of a subsample would be misleading.
    if context.kept is None and len(kept) * len(context.X) <= datatree.MAX_NUMBERS:
        each = pointwise_log_likelihood(
            raw, whitened, context.targets, context.target, posterior.lapse
        )
        if context.target != "regression":
            each -= TIE * rng.random(each.shape)
        each -= context.log_scale
        groups["log_likelihood"] = {"y": each.reshape(*shape, -1)}
    return context.build(
        groups,
        inference_method=fit.engine,
        n_components=r,
        coords={dims.VIEW: views} if views else None,
        attrs={
            "alignment": "affine",
            "nonlinear": int(not feature_map.is_linear),
            **(attrs or {}),
        },
    )


def outlier_statistics(
    X: FloatArray, loadings: FloatArray
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Outlier statistics of the training samples, and the attributes of their reference."""
    learned = Reference.learn(X, loadings)
    return ({}, {}) if learned is None else (learned[1].by_name(), learned[0].attrs())
