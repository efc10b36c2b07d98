"""Traces of PyMC, and draws of any other sampler, as trees like those of the engines.

Components are aligned as the engines align them. Latent coordinates, projection and relevance are
those of the engines for the models of the papers; of other models they follow, in this order, from
draws of ``projection`` (feature, component), of ``latent`` (obs, component), or of ``coef``
(feature, outcome), whose coordinates are the canonical variates of the mean linear predictor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bsdr_models.data.validation import sample_labels
from bsdr_models.inference.datatree import (
    OF_SAMPLER,
    SAMPLE_DIMS,
    Context,
    InferenceMethod,
    read_draws,
)
from bsdr_models.inference.dims import COMPONENT, FEATURE, LABEL, OBS
from bsdr_models.inference.result import Sampled
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import DeclaredTarget, FloatArray, SamplesLike, TargetLike
from bsdr_models.papers.reading import ORDER, read_training
from bsdr_models.papers.trees import add_effects, align, locate, make_tree, read_factors

if TYPE_CHECKING:
    import pymc as pm

# Groups that are taken over as they are.
KEPT = ("log_likelihood", "log_prior", "posterior_predictive")


def from_trace(
    trace: xr.DataTree | xr.Dataset | Mapping[str, Any],
    X: SamplesLike,
    y: TargetLike,
    spec: ModelSpec,
    *,
    model: "pm.Model | None" = None,
    target: DeclaredTarget = "multiclass",
    unlabeled: object = None,
    inference_method: InferenceMethod | None = None,
) -> xr.DataTree:
    """Tree of a trace, which diagnostics, plots, reports and ArviZ take as that of a fit.

    Parameters
    ----------
    trace : DataTree, Dataset or dict of arrays
        What ``pm.sample``, nutpie, numpyro or ``approximation.sample`` return of a model of this
        package or of any other; or the draws of one's own sampler by name, (chain, draw, ...).
    X : array-like of shape (N, D)
        Samples, as the model got them.
    y : array-like of shape (N,) or (N, K)
        Targets, as the model got them.
    spec : ModelSpec
        ``SPEC`` of a model of this package, such as ``bsdr_models.bsdr.SPEC`` of the recommended
        and of the paper's BSDR; or that of a model of one's own.
    model : pymc.Model, optional
        The model, for draws that a dictionary holds: it knows their dims and its settings, and
        computes deterministic variables that are missing.
    target, unlabeled
        As for ``build_model``.
    inference_method : str, optional
        How the draws were made, such as "advi"; by default "nuts" if the trace tells of
        divergences, otherwise "mcmc".

    Returns
    -------
    xarray.DataTree
        With ``posterior``, ``fit``, ``observed_data`` and ``constant_data``, and those groups of
        the trace that ArviZ knows. Components are aligned. What the model tells its traces decides
        how the tree predicts: its latent scale, or its lapse.

    Raises
    ------
    TypeError
        If `trace` is no trace, or `spec` no specification.
    ValueError
        If variables are missing, their shapes are not those of the samples, or draws are not
        finite.

    See Also
    --------
    diagnose : convergence of the draws.
    bsdr_models.papers.bsdr.predict : predictions from a tree.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import bsdr, from_trace
    >>> X, y = load_iris(return_X_y=True)
    >>> X = scale(X)
    >>> with bsdr.build_model(X, y):
    ...     prior = pm.sample_prior_predictive(20, random_seed=0)
    >>> tree = from_trace(prior["prior"].to_dataset(), X, y, bsdr.SPEC)
    >>> tree["fit/latent_mean"].shape
    (150, 2)
    """
    if not isinstance(spec, ModelSpec):
        raise TypeError(
            f"spec must be a ModelSpec, such as bsdr_models.bsdr.SPEC, got {type(spec).__name__}"
        )
    tree = _read(trace, spec, model)
    context = _make_context(tree, X, y, target, unlabeled)
    _check(tree, context, spec)
    draws = add_effects(align(tree["posterior"].to_dataset(), spec), context)
    settings = _settings(tree)
    if spec.name == "bsdr":
        settings = {"latent_scale": 1.0} | settings  # as in the paper
    factors = read_factors(draws, context, settings.get("latent_scale", 0.0))
    sampled = Sampled.of(tree)
    default: InferenceMethod = "nuts" if "diverging" in sampled.sample_stats else "mcmc"
    origin = tree["posterior"].attrs
    return make_tree(
        draws,
        locate(draws, context, spec, factors),
        sampled,
        context,
        spec,
        groups={name: tree[name].to_dataset() for name in KEPT if name in tree.children},
        inference_method=inference_method or default,
        attrs={name: origin[name] for name in OF_SAMPLER if name in origin} | settings,
        coords={
            str(dim): each.values
            for dim, each in draws.coords.items()
            if dim not in (*SAMPLE_DIMS, OBS, FEATURE, LABEL, COMPONENT) and each.ndim == 1
        },
    )


# Reading


def _read(trace: Any, spec: ModelSpec, model: "pm.Model | None") -> xr.DataTree:
    """A trace as a tree of finite draws, with the constants of the model if it is given."""
    if model is not None and not hasattr(model, "named_vars_to_dims"):
        raise TypeError(f"model must be a pymc.Model, got {type(model).__name__}")
    if isinstance(trace, dict):
        named = spec.variables if model is None else model.named_vars_to_dims
        trace = xr.Dataset({name: _name_dims(name, each, named) for name, each in trace.items()})
        known = {} if model is None else model.coords
        trace = trace.assign_coords({dim: [*known[dim]] for dim in trace.dims if known.get(dim)})
    if isinstance(trace, xr.Dataset):
        trace = xr.DataTree.from_dict({"posterior": trace})
    if not isinstance(trace, xr.DataTree):
        raise TypeError(
            "trace must be a DataTree, as pm.sample returns it, a Dataset, or a dict of arrays "
            f"(chain, draw, ...), got {type(trace).__name__}"
        )
    posterior = read_draws(trace, "posterior").transpose(*ORDER, ..., missing_dims="ignore")
    for name, each in posterior.data_vars.items():
        if bad := int(np.count_nonzero(~np.isfinite(each.values))):
            raise ValueError(f"{name} has {bad} of {each.size} values that are not finite")
    groups = {name: child.to_dataset() for name, child in trace.children.items()}
    if model is not None:
        posterior = _complete(posterior, model)
        constants = {each.name: each.data for each in model.data_vars if hasattr(each, "data")}
        scalars = {name: value for name, value in constants.items() if np.ndim(value) == 0}
        groups["constant_data"] = groups.get("constant_data", xr.Dataset()).assign(scalars)
    return xr.DataTree.from_dict({**groups, "posterior": posterior})


def _name_dims(
    name: str, values: Any, named: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], FloatArray]:
    """Dims and values of a variable, numbered where none are known."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    axes = named.get(name, [f"{name}_dim_{i}" for i in range(array.ndim - 2)])
    expected = (*SAMPLE_DIMS, *axes)
    if array.ndim != len(expected):
        raise ValueError(f"{name} has shape {array.shape}, expected axes {expected}")
    return expected, array


def _complete(posterior: xr.Dataset, model: "pm.Model") -> xr.Dataset:
    """Draws, with deterministic variables of the model that they lack."""
    missing = [each.name for each in model.deterministics if each.name not in posterior]
    if not missing:
        return posterior
    import pymc as pm

    absent = [each.name for each in model.free_RVs if each.name not in posterior]
    if absent:
        raise ValueError(
            f"the trace lacks {', '.join(map(repr, absent))}, of which {missing} are functions; it "
            f"has {sorted(map(str, posterior.data_vars))}"
        )
    found = pm.compute_deterministics(posterior, model=model, var_names=missing, progressbar=False)
    return posterior.assign(found.data_vars)


def _settings(tree: xr.DataTree) -> dict[str, float]:
    """Scalar constants that a model tells its traces, such as its latent scale."""
    constants = tree.children.get("constant_data", xr.DataTree()).data_vars
    return {str(name): float(each) for name, each in constants.items() if each.ndim == 0}


def _make_context(
    tree: xr.DataTree, X: SamplesLike, y: TargetLike, target: DeclaredTarget, unlabeled: object
) -> Context:
    """Samples and targets; two classes with one utility are a label, as in the model."""
    context = read_training(
        X, y, 1, regression=target == "regression", unlabeled=unlabeled, config={}
    )
    context = replace(context, samples=sample_labels(X))
    outcomes = tree["posterior"].sizes.get(LABEL)
    targets = context.targets
    if target == "binary" and outcomes == 1 and targets.kind == "multiclass":
        values = targets.coded[:, None]
        targets = replace(
            targets, kind="multilabel", y=values, coded=values, names=targets.names[1:]
        )
    return replace(context, targets=targets)


def _check(tree: xr.DataTree, context: Context, spec: ModelSpec) -> None:
    """ValueError unless a trace is of these samples, and has what the model identifies."""
    posterior = tree["posterior"].to_dataset()
    sizes = {OBS: len(context.X), FEATURE: context.X.shape[1]}
    for dim, size in sizes.items():
        if posterior.sizes.get(dim, size) != size:
            what = "samples" if dim == OBS else "features"
            raise ValueError(f"the trace has {posterior.sizes[dim]} {what}, X has {size}")
    labels = context.targets.names
    if posterior.sizes.get(LABEL, len(labels)) not in (1, len(labels)):
        raise ValueError(f"the trace has {posterior.sizes[LABEL]} outcomes, y has {labels}")
    given = tree.children.get("constant_data", xr.DataTree()).to_dataset()
    if "X" in given and not np.allclose(given["X"], context.X):
        raise ValueError("X are not the samples of the trace: give them as the model got them")
    classes = given.get("y_data", xr.DataArray([[]])).values
    comparable = context.targets.kind == "multiclass" and classes.ndim == 1
    if comparable and not np.array_equal(classes, context.targets.coded):
        raise ValueError("y are not the targets of the trace: give them as the model got them")
    names = [*map(str, posterior[FEATURE].values)] if FEATURE in posterior.coords else []
    ordered = [*map(str, context.feature_names)]
    if names != ordered and sorted(names) == sorted(ordered):
        raise ValueError(f"the trace has the features of X in another order: {names}")
    needed = {*spec.identified, "projection"}
    if not needed & posterior.data_vars.keys():
        raise ValueError(
            f"the trace has none of {sorted(needed)}; it has {sorted(map(str, posterior))}. With "
            "model=... it gets what the model computes from these"
        )
