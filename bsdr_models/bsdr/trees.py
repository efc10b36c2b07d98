"""Specification of BSDR, of variables and dims, and fits at full rank as ``xarray.DataTree``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from bsdr_models.bsdr.feature_map import FeatureMap
from bsdr_models.bsdr.posterior import Parameters
from bsdr_models.bsdr.problem import pointwise_log_likelihood
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.dims import BASIS, COMPONENT, CONTRAST, FEATURE, GROUP, LABEL, OBS, VIEW
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.latent import Reference, feature_relevance

if TYPE_CHECKING:
    from bsdr_models.bsdr.engines import Fit


SPEC = ModelSpec(
    name="bsdr",
    citation_bibtex="""@article{gonen2013bsdr,
  author  = {G{\\"o}nen, Mehmet},
  title   = {Bayesian Supervised Dimensionality Reduction},
  journal = {IEEE Transactions on Cybernetics},
  volume  = {43},
  number  = {6},
  pages   = {2179--2189},
  year    = {2013},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS, LABEL),
            "projection_precision": (FEATURE, COMPONENT),
            "projection": (FEATURE, COMPONENT),
            "latent": (OBS, COMPONENT),
            "latent_offset": (OBS, COMPONENT),
            "weight_precision": (COMPONENT, LABEL),
            "weights": (COMPONENT, LABEL),
            "bias_precision": (LABEL,),
            "bias": (LABEL,),
            "utilities": (OBS, LABEL),
            "scale": (),
            "projection_offset": (FEATURE, CONTRAST),
            "basis_offset": (BASIS, CONTRAST),
            "bias_contrasts": (CONTRAST,),
            "view_scale": (VIEW,),
            "basis_weights": (BASIS, COMPONENT),
            "view_share": (VIEW,),
            "group_scale": (),
            "group_offset": (GROUP, CONTRAST),
            "group_effect": (GROUP, LABEL),
            "noise_scale": (LABEL,),
            "noise_precision": (LABEL,),
            "coef": (FEATURE, LABEL),
            "bias_centered": (LABEL,),
        }
    ),
    identified=("coef", "bias_centered", "group_scale", "group_effect"),
    alignment=MappingProxyType(
        {"loadings": "projection", "weights": "weights", "method": "signed_permutation"}
    ),
)


# Arrays by group and name.
type Groups = dict[str, dict[str, ArrayLike]]

# Draws that a tree holds at least, enough for intervals,
LEAST_DRAWS = 100
# unless these have more numbers.
MOST_NUMBERS = 20_000_000
# Random perturbation of log likelihoods of labels, in nats. They are equal for all draws that are
# certain of a sample, and Pareto smoothing fails on ties.
TIE = 1e-9


def hierarchical_tree(
    fit: "Fit",
    context: datatree.Context,
    *,
    reference: Reference | None,
    rng: np.random.Generator,
    attrs: Mapping[str, object],
) -> xr.DataTree:
    """Tree of a fit to coded targets, with further root attributes, and outliers by a reference.

    Draws are mapped to identified latent coordinates, by an affine map of each draw that leaves the
    linear predictor, and hence all predictions, unchanged. The part of the projection outside the
    row space of the training samples is drawn by ``rng``. The free variables of the PyMC model are
    kept beside them.
    """
    posterior = fit.posterior
    feature_map = fit.posterior.feature_map
    n, p = context.X.shape
    r = posterior.n_components
    k = len(context.targets.names)
    n_chains, per_chain = fit.log_likelihood.shape
    width = p if feature_map.metric is not None else max(p, posterior.draws.projection.shape[2])
    j = posterior.draws.projection.shape[1]
    size = width * (j + r + k) * n_chains  # of the free loadings, loadings and coefficients
    least = min(LEAST_DRAWS // n_chains, MOST_NUMBERS // size)
    n_kept = int(np.clip(max(datatree.MAX_NUMBERS // size, least), 5, per_chain))
    one = np.unique(np.linspace(0, per_chain - 1, n_kept).round().astype(np.int64))
    kept = (np.arange(n_chains)[:, None] * per_chain + one).ravel()
    shape = (n_chains, len(one))
    raw = posterior.draws.take(kept)
    coordinates = posterior.coordinates
    aligned = coordinates.align(posterior.draws, kept)
    maps = coordinates.maps[kept, 1:]  # (S, J, R)
    normal = rng.standard_normal((len(kept), maps.shape[1], p))
    variables = {"weights": aligned.weights[:, :r], "bias": raw.bias, "scale": raw.scale}
    variables |= free_variables(raw, feature_map, normal)
    latent = posterior.embed(context.X)
    components = posterior.components()
    outside = raw.scale[:, None, None] * normal
    full = feature_map.loadings(raw.projection, outside, raw.view_scale)
    full = np.swapaxes(full, 1, 2)  # (S, P, J)
    loadings = full @ maps[..., :r]
    variables |= {"projection": loadings, "coef": full @ raw.weights}
    group: dict[str, ArrayLike] = {
        "latent_mean": latent.mean,
        "latent_cov": latent.cov,
        "relevance": posterior.share,
        "projection_mean": components.T,
        "projection_sd": loadings.std(axis=0),
        "feature_relevance": feature_relevance(components.T, coordinates.axes[:, :r].T),
    }
    if reference is not None:
        group |= reference.compare_training(context.X)
    whitened = feature_map.whiten(context.X)
    if raw.view_scale is not None:
        variables["view_scale"] = raw.view_scale
        variables["view_share"] = feature_map.shares(raw.projection, raw.weights, whitened)
    if context.targets.kind == "multiclass":
        variables["bias_centered"] = raw.bias
    if raw.noise_scale is not None:
        variables["noise_scale"] = raw.noise_scale
    groups: Groups = {
        "posterior": {
            name: each.reshape(*shape, *each.shape[1:]) for name, each in variables.items()
        },
        "fit": group,
    }
    stats: dict[str, ArrayLike] = {name: each[:, one] for name, each in fit.sample_stats.items()}
    # Log densities of real outputs contain their scale.
    log_scale = float(np.sum(np.log(context.attrs.get("y_scale", 1.0))))
    total = fit.log_likelihood[:, one] - n * log_scale
    if exact := fit.engine not in datatree.APPROXIMATIONS:
        stats["log_likelihood"] = total
    if fit.log_prior is not None:
        stats["lp"] = total + fit.log_prior[:, one]
        groups["log_prior"] = {"parameters": fit.log_prior[:, one]}
    if stats:
        groups["sample_stats"] = stats
    # Leaving one of several samples out, as ArviZ does, is not leaving out one of weight two.
    if exact and context.weights is None and len(kept) * n <= datatree.MAX_NUMBERS:
        each = pointwise_log_likelihood(
            raw, whitened, context.targets.coded, context.targets.kind, posterior.lapse
        )
        if context.targets.kind != "regression":
            each -= TIE * rng.random(each.shape)
        groups["log_likelihood"] = {"y": (each - log_scale).reshape(*shape, -1)}
    return context.fit_tree(
        groups,
        SPEC,
        inference_method=fit.engine,
        n_components=r,
        dims={"parameters": ()},
        coords={dims.VIEW: feature_map.names} if feature_map.n_views > 1 else None,
        attrs={
            "alignment": "affine",
            "latent_scale": 0.0,
            "nonlinear": int(not feature_map.is_linear),
            **attrs,
        },
    )


def free_variables(
    draws: Parameters, feature_map: FeatureMap, outside: FloatArray
) -> dict[str, FloatArray]:
    """Normals of the PyMC model, (S, D or B, J) and (S, J), from draws and normals (S, J, D)."""
    normal = draws.projection / draws.scale[:, None, None]
    if draws.view_scale is not None:
        normal = normal / draws.view_scale[:, None, feature_map.index]
    name = "basis_offset"
    if (metric := feature_map.metric) is not None:
        name = "projection_offset"
        normal = outside + (normal - outside @ metric.axes) @ metric.axes.T
    bias = np.einsum("sk,sjk->sj", draws.bias, draws.weights)
    return {name: np.swapaxes(normal, 1, 2), "bias_contrasts": bias}
