"""Trees of draws, the same for the papers' engines and for traces of any other sampler."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from sklearn.utils import gen_batches

from bsdr_models.bsdr.posterior import Coordinates, Parameters
from bsdr_models.bsdr.problem import make_contrasts
from bsdr_models.dgplvm.problem import relevance as share_of_centroids
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS, SCORE
from bsdr_models.inference.result import Sampled
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.latent import (
    LatentCoordinates,
    Reference,
    feature_relevance,
    relevance,
    spread,
)
from bsdr_models.papers.alignment import SUFFIX, align_draws
from bsdr_models.papers.bm2pca.draws import NAMES as OF_BM2PCA
from bsdr_models.papers.bm2pca.draws import BM2PCADraws
from bsdr_models.papers.bsdr.draws import NAMES as OF_BSDR
from bsdr_models.papers.bsdr.draws import BSDRDraws
from bsdr_models.papers.reading import stack_draws

# A rotation of the components turns loadings, weights and the variable of this name, and
# coefficients with this dim. Other variables would have another meaning, and are left out.
TURNED = ("latent", BASIS)
# Samples whose latent coordinates under all draws are in memory at once.
BLOCK = 256


def name_dims(draws: Mapping[str, FloatArray], dims: Mapping[str, tuple[str, ...]]) -> xr.Dataset:
    """Draws (chain, draw, ...) of variables with these dims."""
    return xr.Dataset({name: ((*SAMPLE_DIMS, *dims[name]), each) for name, each in draws.items()})


def align(draws: xr.Dataset, spec: ModelSpec) -> xr.Dataset:
    """Draws with components aligned as the specification says, by its loadings or else `latent`."""
    options = dict(spec.alignment)
    with_components = [name for name, each in draws.items() if COMPONENT in each.dims]
    if options and options.get("loadings") not in with_components:
        options["loadings"] = "latent"
    if options.get("loadings") not in with_components:
        return draws
    if options.get("weights") not in with_components:
        options.pop("weights", None)
    turned = {options["loadings"], options.get("weights")}
    others = [str(name) for name in with_components if name not in turned]
    if options["method"] == "procrustes":
        others = [name for name in others if {name, *draws[name].dims} & {*TURNED}]
    tree = xr.DataTree.from_dict({"posterior": draws})
    aligned = align_draws(tree, **options, others=others)["posterior" + SUFFIX].to_dataset()
    return draws.drop_vars(with_components).assign(aligned.data_vars)


def add_effects(draws: xr.Dataset, context: Context) -> xr.Dataset:
    """Draws with effects of the features, of both classes if two share a class score."""
    if "coef" not in draws and {"projection", "weights"} <= draws.data_vars.keys():
        coef = draws["projection"].values @ draws["weights"].values
        axes = (*draws["projection"].dims[:-1], draws["weights"].dims[-1])
        draws = draws.assign(coef=(axes, context.contrast(coef)))
        if context.targets.kind == "multiclass" and "bias" in draws:
            centred = context.contrast(draws["bias"].values)
            draws = draws.assign(bias_centered=(draws["bias"].dims, centred))
    if draws.sizes.get(LABEL) == 1 < len(context.targets.names):
        draws = draws.drop_vars(LABEL, errors="ignore").rename({LABEL: SCORE})
    for name in {"coef", "intercept"} & draws.data_vars.keys():
        if SCORE in draws[name].dims:
            values = context.per_class(draws[name].transpose(..., SCORE).values)
            draws = draws.assign({name: ((*draws[name].dims[:-1], LABEL), values)})
    return draws


# Latent coordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Latent coordinates of the samples, and what a tree tells of them."""

    latent: LatentCoordinates
    fit: Mapping[str, object]  # variables of the group
    attrs: Mapping[str, object] = field(default_factory=dict)  # of the root
    draws: Mapping[Any, Any] = field(default_factory=dict)  # in place of those given


def read_factors(
    draws: xr.Dataset, context: Context, latent_scale: float
) -> BSDRDraws | BM2PCADraws | None:
    """What embeds samples by draws of a linear map of the features; None if there are none."""
    names = draws.data_vars.keys()
    if {*OF_BM2PCA, "coef"} <= names:
        return BM2PCADraws.of(draws, exclusive=context.targets.kind == "multiclass")
    if "projection" not in names or COMPONENT not in draws["projection"].dims:
        return None
    if "weights" not in names and "coef" in names:
        return None
    given = [name for name in OF_BSDR if name in names]
    found: dict[str, Any] = stack_draws(draws, given)
    n_draws, _, r = found["projection"].shape
    weights = found.setdefault("weights", np.broadcast_to(np.eye(r), (n_draws, r, r)))
    found.setdefault("bias", np.zeros((n_draws, weights.shape[2])))
    return BSDRDraws(**found, latent_scale=latent_scale, target=context.targets.kind)


def locate(
    draws: xr.Dataset,
    context: Context,
    spec: ModelSpec,
    factors: BSDRDraws | BM2PCADraws | None,
) -> Located:
    """Latent coordinates by a linear map of the features, or else by draws of latent or coef."""
    if factors is not None:
        fit = {}
        if "projection" in draws:
            fit["projection_sd"] = draws["projection"].std(SAMPLE_DIMS).values
        latent = factors.embed(context.X)
        return _linear(context, latent, factors.mean_projection, factors.mean_weights, fit)
    names = draws.data_vars.keys()
    if "latent" in names:
        return _by_latent(draws, context)
    if "coef" not in names:
        raise ValueError(
            "latent coordinates need draws of projection, latent or coef; the trace has "
            f"{sorted(map(str, names))}"
        )
    return _canonical(draws, context, spec)


def _linear(
    context: Context,
    latent: LatentCoordinates,
    loadings: FloatArray,
    weights: FloatArray,
    fit: Mapping[str, object],
) -> Located:
    """By a linear map of the features (P, R), with weights (R, K) in the class scores."""
    if weights.shape[1] < len(context.targets.names):
        weights = context.per_class(weights)
    contrast = context.contrast(weights)
    group: dict[str, object] = {
        "projection_mean": loadings,
        "relevance": relevance(latent.mean, contrast),
        "feature_relevance": feature_relevance(loadings, contrast),
    }
    attrs: dict[str, object] = {}
    if (reference := Reference.learn(context.X, loadings)) is not None:
        group |= reference.compare_training(context.X)
        attrs = dict(reference.attrs())
    return Located(latent=latent, fit={**group, **fit}, attrs=attrs)


def _by_latent(draws: xr.Dataset, context: Context) -> Located:
    """By draws of the latent coordinates, of which slopes are those of least squares."""
    each = stack_draws(draws, ["latent"])["latent"]
    mean = each.mean(axis=0)
    latent = LatentCoordinates(mean=mean, cov=spread(each, mean))
    slopes = np.linalg.lstsq(context.X - context.X.mean(axis=0), mean - mean.mean(axis=0))[0]
    if "coef" in draws:
        weights = np.linalg.pinv(slopes) @ draws["coef"].mean(SAMPLE_DIMS).values
        if "weights" in draws and COMPONENT in draws["weights"].dims:
            weights = draws["weights"].mean(SAMPLE_DIMS).transpose(COMPONENT, ...).values
        return _linear(context, latent, slopes, weights, {})
    share = mean.var(axis=0) / mean.var(axis=0).sum()
    if context.targets.index is not None:
        share = share_of_centroids(mean, context.targets.index)
    fit = {
        "relevance": share,
        "projection_mean": slopes,
        "feature_relevance": feature_relevance(slopes, np.diag(np.sqrt(share))),
    }
    return Located(latent=latent, fit=fit)


def _canonical(draws: xr.Dataset, context: Context, spec: ModelSpec) -> Located:
    """Identified coordinates of a linear predictor, as the recommended BSDR has them."""
    X = np.asarray(context.X)
    shape = draws["coef"].shape
    coef = draws["coef"].values.reshape(-1, *shape[2:])  # (S, D, K)
    contrasts = make_contrasts(shape[3], context.targets.kind)
    projection = np.swapaxes(coef @ contrasts.T, 1, 2)
    parameters = Parameters(
        projection=projection,
        scale=np.ones(len(coef)),
        weights=np.broadcast_to(contrasts, (len(coef), *contrasts.shape)),
        bias=np.zeros((len(coef), shape[3])),
        noise_scale=None,
        outside=np.zeros(projection.shape[:2]),
    )
    targets = context.targets
    known = np.ones(len(X), dtype=bool) if targets.index is None else targets.index >= 0
    coordinates = Coordinates.learn(X[known], targets.coded[known], targets.kind, parameters)
    mean = coordinates.embed(X)
    cov = [
        coordinates.covariance(parameters.latent(X[part]), mean[part])
        for part in gen_batches(len(X), BLOCK)
    ]
    aligned = coordinates.align(parameters)
    located = _linear(
        context,
        LatentCoordinates(mean=mean, cov=np.concatenate(cov)),
        coordinates.coefficients @ coordinates.axes,
        coordinates.axes.T,
        {
            "relevance": coordinates.share,
            "projection_sd": aligned.projection.std(axis=0).T,
        },
    )
    attrs = {
        **located.attrs,
        "alignment": "affine",
        "latent_scale": 0.0,
        "component_share": coordinates.share.tolist(),
    }
    replaced: Mapping[Any, Any] = {}
    if "projection" in spec.variables:
        turned = {"projection": np.swapaxes(aligned.projection, 1, 2), "weights": aligned.weights}
        turned = {name: each.reshape(*shape[:2], *each.shape[1:]) for name, each in turned.items()}
        axes = {"projection": (FEATURE, COMPONENT), "weights": (COMPONENT, LABEL)}
        replaced = name_dims(turned, axes).data_vars
    return replace(located, attrs=attrs, draws=replaced)


# The tree


def make_tree(
    draws: xr.Dataset,
    located: Located,
    sampled: Sampled,
    context: Context,
    spec: ModelSpec,
    *,
    aligned: bool = True,
    groups: Mapping[str, xr.Dataset] | None = None,
    fit: Mapping[str, object] | None = None,
    attrs: Mapping[str, object] | None = None,
    **options: Any,
) -> xr.DataTree:
    """Tree of draws that `add_effects` returns, with options of `Context.fit_tree`.

    Further ``groups`` of draws, variables of the group ``fit``, and root attributes.
    """
    latent = located.latent
    stats = dict(sampled.sample_stats)
    datasets = {"posterior": draws.assign(located.draws), **(groups or {})}
    found: dict[str, dict[str, Any]] = {
        group: {str(name): each for name, each in dataset.items()}
        for group, dataset in datasets.items()
    }
    if "log_prior" in stats:
        found["log_prior"] = {"parameters": xr.DataArray(stats.pop("log_prior"), dims=SAMPLE_DIMS)}
    if stats:
        found["sample_stats"] = stats
    found["fit"] = {"latent_mean": latent.mean, "latent_cov": latent.cov, **located.fit}
    found["fit"] |= {**sampled.fit, **(fit or {})}
    how = {"alignment": str(spec.alignment["method"]).replace("_", " ")} if spec.alignment else {}
    return context.fit_tree(
        found,
        spec,
        n_components=latent.mean.shape[1],
        attrs={**sampled.attrs, **(how if aligned else {}), **(attrs or {}), **located.attrs},
        dims={"X": (OBS, FEATURE), "y": (OBS, LABEL)},
        **options,
    )
