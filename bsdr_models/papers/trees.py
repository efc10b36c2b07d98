"""Trees of draws, the same for the papers' engines and for traces of any other sampler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import xarray as xr

from bsdr_models.inference.datatree import SAMPLE_DIMS, Context, read_draws
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS, SCORE
from bsdr_models.inference.result import Sampled
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.latent import LatentCoordinates, Reference, feature_relevance, relevance
from bsdr_models.papers.alignment import SUFFIX, align_draws

# A rotation of the components turns loadings, weights and the variable of this name, and
# coefficients with this dim. Other variables would have another meaning, and are left out.
TURNED = ("latent", BASIS)


def name_dims(draws: Mapping[str, FloatArray], dims: Mapping[str, tuple[str, ...]]) -> xr.Dataset:
    """Draws (chain, draw, ...) of variables with these dims."""
    return xr.Dataset({name: ((*SAMPLE_DIMS, *dims[name]), each) for name, each in draws.items()})


def values_of(draws: xr.Dataset) -> dict[str, FloatArray]:
    """Arrays (chain, draw, ...) by name."""
    return {str(name): each.values for name, each in draws.data_vars.items()}


def stack_draws(
    draws: Mapping[str, FloatArray], names: Sequence[str], most: int | None = None
) -> dict[str, FloatArray]:
    """Draws (S, ...) of some variables (chain, draw, ...), by default all, else evenly spaced."""
    stacked = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in names}
    if most is None:
        return stacked
    index = evenly_spaced(len(stacked[names[0]]), most)
    # C order, as in a model loaded from a file.
    return {name: np.ascontiguousarray(each[index]) for name, each in stacked.items()}


def take_draws(
    tree: xr.DataTree, spec: ModelSpec, names: Sequence[str], most: int
) -> dict[str, FloatArray]:
    """At most so many draws (S, ...) of a tree, with the dims of the specification in its order."""
    posterior = read_draws(tree, "posterior", *names)
    draws = {n: posterior[n].transpose(*SAMPLE_DIMS, *spec.variables[n]).values for n in names}
    return stack_draws(draws, names, most)


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
        if context.target == "multiclass" and "bias" in draws:
            centred = context.contrast(draws["bias"].values)
            draws = draws.assign(bias_centered=(draws["bias"].dims, centred))
    if draws.sizes.get(LABEL) == 1 < len(context.labels):
        draws = draws.drop_vars(LABEL, errors="ignore").rename({LABEL: SCORE})
    if SCORE in draws.sizes:
        for name in {"coef", "intercept"} & draws.data_vars.keys():
            values = context.per_class(draws[name].transpose(..., SCORE).values)
            draws = draws.assign({name: ((*draws[name].dims[:-1], LABEL), values)})
    return draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Latent coordinates of the samples, and what else a tree has beside the draws."""

    latent: LatentCoordinates
    fit: Mapping[str, object] = field(default_factory=dict)  # variables of the group
    attrs: Mapping[str, object] = field(default_factory=dict)  # of the root
    # Further draws with their dims, or others in place of those given.
    draws: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, xr.Dataset] = field(default_factory=dict)

    @classmethod
    def linear(
        cls,
        context: Context,
        latent: LatentCoordinates,
        loadings: FloatArray,
        weights: FloatArray,
        *,
        fit: Mapping[str, object] | None = None,
        attrs: Mapping[str, object] | None = None,
        **others: Any,
    ) -> Self:
        """By a linear map of the features (P, R), with weights (R, K) in the class scores."""
        contrast = context.contrast(weights)
        group: dict[str, object] = {
            "projection_mean": loadings,
            "relevance": relevance(latent.mean, contrast),
            "feature_relevance": feature_relevance(loadings, contrast),
        }
        of_reference: dict[str, float] = {}
        if (reference := Reference.learn(context.X, loadings)) is not None:
            group |= reference.compare_training(context.X)
            of_reference = reference.attrs()
        return cls(
            latent=latent,
            fit={**group, **(fit or {})},
            attrs={**of_reference, **(attrs or {})},
            **others,
        )


def make_tree(
    draws: xr.Dataset,
    located: Located,
    sampled: Sampled,
    context: Context,
    spec: ModelSpec,
    *,
    aligned: bool = True,
    attrs: Mapping[str, object] | None = None,
    dims: Mapping[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> xr.DataTree:
    """Tree of draws that `add_effects` returns, with options of `Context.fit_tree`."""
    latent = located.latent
    stats = dict(sampled.sample_stats)
    datasets = {"posterior": draws.assign(located.draws), **located.groups}
    if "log_prior" in stats:
        datasets["log_prior"] = xr.Dataset({"parameters": (SAMPLE_DIMS, stats.pop("log_prior"))})
    groups: dict[str, dict[str, Any]] = {name: values_of(each) for name, each in datasets.items()}
    if stats:
        groups["sample_stats"] = stats
    groups["fit"] = {
        "latent_mean": latent.mean,
        "latent_cov": latent.cov,
        **located.fit,
        **sampled.fit,
    }
    how = {"alignment": str(spec.alignment["method"]).replace("_", " ")} if spec.alignment else {}
    return context.fit_tree(
        groups,
        spec,
        n_components=latent.mean.shape[1],
        attrs={**sampled.attrs, **(how if aligned else {}), **(attrs or {}), **located.attrs},
        dims=dict(dims or {})
        | {
            str(name): tuple(map(str, each.dims[2:]))
            for dataset in datasets.values()
            for name, each in dataset.items()
        }
        | {"X": (OBS, FEATURE), "y": (OBS, LABEL)},
        **options,
    )
