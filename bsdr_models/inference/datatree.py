"""Results of any engine as an ``xarray.DataTree``, how they are made and read.

Groups (each only if given): ``posterior``, ``sample_stats``, ``log_likelihood``, ``log_prior``,
``posterior_predictive`` with axes (chain, draw, ...); ``fit`` and ``predictions`` with summaries
per sample, feature, component or iteration; ``observed_data`` and ``constant_data``.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from bsdr_models.data.targets import Targets, class_frequency
from bsdr_models.inference.dims import (
    CHAIN,
    COMPONENT,
    COMPONENT_AUX,
    DRAW,
    FEATURE,
    GRID_X,
    ITERATION,
    LABEL,
    OBS,
    SCORE,
    TERM,
)
from bsdr_models.inference.latent_grid import VARIABLE, LogProbabilities, add_class_probability
from bsdr_models.inference.spec import ModelSpec, spec_attrs
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, Rows, TargetLike
from bsdr_models.numerics.association import associate
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.numerics.scaling import pad

if TYPE_CHECKING:
    import pymc as pm


type InferenceMethod = Literal[
    "mcmc", "hmc", "conjugate", "mean_field", "gibbs", "nuts", "advi", "laplace", "map", "stack"
]

# Labels along a dim.
type Coordinate = Sequence[object] | np.ndarray

# Largest size of a variable in a tree.
MAX_NUMBERS = 5_000_000

SAMPLE_DIMS = (CHAIN, DRAW)
SAMPLE_GROUPS = {"posterior", "sample_stats", "log_likelihood", "log_prior", "posterior_predictive"}

# What is known of the spread of the draws of other methods.
SPREAD: Mapping[str, str] = {
    "mean_field": "not checked: the factors are independent, so intervals are usually too narrow",
    "advi": "not checked: normals without correlations, so intervals are usually too narrow",
    "laplace": "not checked: a normal approximation at the mode, for many samples",
    "conjugate": "ok: independent draws of the posterior",
    "map": "not applicable: a mode has no spread",
}
HELD = "not checked: draws of the classifier given metric and subspace, so intervals are too narrow"
# Root attributes that the groups of draws share, by their names in ArviZ.
OF_SAMPLER = ("inference_library", "inference_library_version", "sampling_time", "tuning_steps")

# Methods whose draws are from an approximation. Their trees have no log likelihood, since
# ``arviz.loo`` would take the draws for those of the posterior.
APPROXIMATIONS = ("mean_field", "advi", "laplace")

RESTART = "restart"

# Dims of the variables that are common to all models, in ``fit`` and ``predictions``.
SUMMARY_DIMS: Mapping[str, tuple[str, ...]] = {
    "latent_mean": (OBS, COMPONENT),
    "latent_cov": (OBS, COMPONENT, COMPONENT_AUX),
    "projection_mean": (FEATURE, COMPONENT),
    "projection_sd": (FEATURE, COMPONENT),
    "relevance": (COMPONENT,),
    "feature_relevance": (FEATURE,),
    "elbo": (ITERATION,),
    "objective": (ITERATION,),
    "log_density": (ITERATION,),
    "elbo_terms": (ITERATION, TERM),
    "restarts": (RESTART,),
    "independent_samples": (),
    "correlation": (FEATURE, LABEL),
    "explained": (FEATURE,),
    "false_discovery_rate": (FEATURE,),
    "y_index": (OBS,),
    "sample_weight": (OBS,),
    "probability": (OBS, LABEL),
    "class_frequency": (LABEL,),
    "t2": (OBS,),
    "q_residual": (OBS,),
    "tail_probability": (OBS,),
    "out_of_range": (OBS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Data and attributes shared by all trees of a fit."""

    X: Rows  # (N, P), scaled as for the model, with NaN for missing values; or sparse
    targets: Targets
    feature_names: Sequence[str] | np.ndarray  # of all features, (D,)
    config: Mapping[str, Any]  # arguments of the fit
    attrs: Mapping[str, Any] = field(default_factory=dict)  # root attributes
    samples: np.ndarray | None = None  # labels of the samples, (N,), by default their positions
    # If X is a subsample: indices of its samples, (N,), and the number of all samples.
    kept: IntArray | None = None
    n_samples: int | None = None
    groups: IntArray | None = None  # group of each sample, (N,), if samples come in groups
    weights: FloatArray | None = None  # positive weight of each sample, (N,), if any are given
    # Features that are constant, (D,), which X leaves out and trees fill with zeros; or None.
    constant: BoolArray | None = None

    def check(self) -> None:
        """ValueError if an index is out of its range, which would end the process."""
        n_samples = self.n_samples or self.X.shape[0]
        limits = {
            "index": (self.targets.index, len(self.targets.names)),
            "kept": (self.kept, n_samples),
            "groups": (self.groups, n_samples),
        }
        for name, (values, limit) in limits.items():
            if values is not None and not -1 <= np.min(values) <= np.max(values) < limit:
                raise ValueError(f"{name!r} of its samples is out of range")

    def take(self, kept: IntArray) -> "Context":
        """Context of some samples, whose positions it keeps."""
        of_each = ("X", "samples", "groups", "weights")
        given = {name: getattr(self, name) for name in of_each}
        parts = {name: values[kept] for name, values in given.items() if values is not None}
        targets = self.targets.take(kept)
        return replace(self, **parts, targets=targets, kept=kept, n_samples=self.X.shape[0])

    @property
    def varies(self) -> BoolArray:
        """Features that X holds, (D,)."""
        every = np.ones(len(self.feature_names), dtype=bool)
        return every if self.constant is None else ~self.constant

    @property
    def modelled_names(self) -> list[str]:
        """Names of the features in X."""
        return list(compress(self.feature_names, self.varies))

    def contrast(self, values: FloatArray) -> FloatArray:
        """Centre over the classes (last axis): only their differences are identified.

        Values of labels (multi-label) and real outputs are returned unchanged.
        """
        if self.targets.kind != "multiclass":
            return values
        return values - values.mean(axis=-1, keepdims=True)

    def per_class(self, values: FloatArray) -> FloatArray:
        """Expand weights or biases (..., K) to one per class: two classes may share one score."""
        if self.targets.kind == "multiclass" and len(self.targets.names) == 2:
            return np.insert(values, 0, 0.0, axis=-1)
        return values

    @property
    def frequency(self) -> FloatArray:
        """Share of each class in the weights of the labelled samples, (K,)."""
        assert self.targets.index is not None
        return class_frequency(self.targets.index, len(self.targets.names), self.weights)

    def known(self, X: Rows) -> tuple[Rows, FloatArray, IntArray | None]:
        """Of samples with known targets: features, as in X, targets (N, K) as numbers, and groups.

        Classes are indicators.
        """
        targets = self.targets
        if targets.kind == "multiclass":
            numbers = np.equal.outer(targets.coded, np.arange(len(targets.names)))
            known = targets.coded >= 0
        elif targets.kind == "multilabel":
            numbers = targets.coded == 1
            known = (targets.coded >= 0).all(axis=1)
        else:
            numbers = targets.y.reshape(len(targets.y), -1)
            known = np.isfinite(numbers).all(axis=1)
        groups = None if self.groups is None else self.groups[known]
        return X[known], numbers[known].astype(np.float64), groups

    def name_dims(self, model: "pm.Model") -> "pm.Model":
        """A PyMC model on the samples of the fit, with the coordinates of the trees."""
        names = {OBS: self.samples, FEATURE: self.modelled_names, LABEL: self.targets.names}
        if len(self.targets.names) == 2:
            names[SCORE] = self.targets.names[1:]
        for dim, values in names.items():
            if values is not None and dim in model.coords and len(model.coords[dim]) == len(values):
                model.set_dim(dim, len(values), coord_values=tuple(values))
        return model

    def fit_tree(
        self,
        groups: dict[str, dict[str, Any]],
        spec: ModelSpec,
        *,
        coords: Mapping[str, Coordinate] | None = None,
        **options: Any,
    ) -> xr.DataTree:
        """Tree of a fit, of groups and options as of `_build`, and of the data unless too large."""
        samples = self.kept if self.samples is None else self.samples
        groups["observed_data"] = {"y": self.targets.y}
        if not issparse(self.X) and self.X.size <= MAX_NUMBERS:
            groups["constant_data"] = {"X": self.X}
        if self.weights is not None:
            groups["fit"]["sample_weight"] = self.weights
        if "explained" not in groups["fit"]:  # BM2PCA has it of samples before imputation
            groups["fit"] = {**associate(*self.known(self.X)), **groups["fit"]}
        if self.targets.index is not None:
            groups["fit"]["y_index"] = self.targets.index
            groups["fit"]["class_frequency"] = self.frequency
        named = {} if samples is None else {OBS: samples}
        return self._build(groups, spec, coords=named | dict(coords or {}), **options)

    def predictions_tree(
        self,
        spec: ModelSpec,
        *,
        latent: LatentCoordinates,
        values: Mapping[str, np.ndarray],
        y: TargetLike | None,
        samples: np.ndarray | None,
        inference_method: InferenceMethod,
        attrs: Mapping[str, object] | None = None,
        log_proba_at: LogProbabilities | None = None,
    ) -> xr.DataTree:
        """Tree of predictions ``values`` for new samples, by name, for the plots.

        ``samples`` are their labels (M,), by default their positions; ``log_proba_at`` gives log
        class probabilities at latent coordinates, for the colours of a map.
        """
        group = {"latent_mean": latent.mean, "latent_cov": latent.cov, **values}
        if y is not None:
            group["y"] = np.asarray(y)
            if len(group["y"]) != len(latent.mean):
                raise ValueError(f"y has {len(group['y'])} samples, X has {len(latent.mean)}")
        dims = {name: (OBS, LABEL)[: np.ndim(value)] for name, value in values.items()}
        if self.targets.index is not None:
            group["class_frequency"] = self.frequency
        tree = self._build(
            {"predictions": group},
            spec,
            inference_method=inference_method,
            n_components=latent.mean.shape[1],
            attrs=attrs,
            dims=dims,
            coords=None if samples is None else {OBS: samples},
        )
        if log_proba_at is not None and self.targets.index is not None:
            add_class_probability(tree, "predictions", log_proba_at)
        return tree

    def _build(
        self,
        groups: Mapping[str, Mapping[str, ArrayLike]],
        spec: ModelSpec,
        *,
        inference_method: InferenceMethod,
        n_components: int,
        attrs: Mapping[str, object] | None = None,
        dims: Mapping[str, tuple[str, ...]] | None = None,
        coords: Mapping[str, Coordinate] | None = None,
    ) -> xr.DataTree:
        """Tree with named axes, coordinates and provenance.

        In the sample groups every array begins with (chain, draw). Arrays of xarray keep their own
        dims. ``dims`` of variables override those of the specification, for example for a precision
        shared by a column; axes without ``coords`` are numbered from 0. The arguments of the fit
        are stored as one JSON string, since NetCDF has no nested attributes; ``attrs`` are strings,
        numbers, or lists of these.
        """
        known: dict[str, tuple[str, ...]] = {**SUMMARY_DIMS, **spec.variables, **(dims or {})}
        labels: dict[str, Coordinate] = {
            FEATURE: list(self.feature_names),
            LABEL: list(self.targets.names),
            SCORE: list(self.targets.names[-1:]),
            COMPONENT: range(n_components),
            COMPONENT_AUX: range(n_components),
            **(coords or {}),
        }
        datasets = {
            group: _dataset(group, variables, known, labels, self.constant)
            for group, variables in groups.items()
        }
        config = json.dumps(dict(self.config), default=lambda each: each.tolist(), sort_keys=True)
        root: dict[str, object] = {
            **spec_attrs(spec),
            "inference_method": inference_method,
            "creation_library": "bsdr_models",
            "creation_library_version": package_version(),
            "inference_library": "bsdr_models",
            "inference_library_version": package_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "config": config,
        }
        for name, value in {"target": self.targets.kind, **self.attrs, **(attrs or {})}.items():
            root[name] = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        if "posterior" in groups and (spread := spread_of(inference_method, groups["fit"])):
            root["note"] = f"spread {spread}"
        for group in datasets.keys() & SAMPLE_GROUPS:
            datasets[group].attrs = {name: root[name] for name in OF_SAMPLER if name in root}
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=root), **datasets})


def spread_of(method: str, fit: Container[Any]) -> str:
    """What is known of the spread of draws, with the group ``fit``; empty of Markov chains."""
    return HELD if "objective" in fit else SPREAD.get(method, "")


def _dataset(
    group: str,
    variables: Mapping[str, ArrayLike],
    known: Mapping[str, tuple[str, ...]],
    coords: Mapping[str, Coordinate],
    constant: BoolArray | None,
) -> xr.Dataset:
    arrays = dict[str, tuple[tuple[str, ...], np.ndarray]]()
    for name, given in variables.items():
        values = np.asarray(given)
        axes = getattr(given, "dims", None) or _variable_dims(group, name, values.ndim, known)
        if FEATURE in axes:
            values = pad(values, constant, axis=axes.index(FEATURE))
        arrays[name] = axes, values
    dataset = xr.Dataset(arrays)
    labels = {dim: coords.get(str(dim), range(size)) for dim, size in dataset.sizes.items()}
    return dataset.assign_coords({dim: np.asarray(values) for dim, values in labels.items()})


def _variable_dims(
    group: str, name: str, ndim: int, known: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Axes of one variable; targets and statistics may lack the trailing ones.

    ValueError if they are not known, or as many as the variable has.
    """
    leading = SAMPLE_DIMS if group in SAMPLE_GROUPS else ()
    if group == "sample_stats":
        axes = known.get(name, ())
    elif name not in known:
        raise ValueError(f"{group}/{name}: the dims are neither in the specification nor given")
    else:
        axes = known[name]
    if name == "y":  # (obs,) for labels and pointwise likelihoods, (obs, outcome) for vectors
        axes = axes[: ndim - len(leading)]
    if len(leading) + len(axes) != ndim:
        raise ValueError(f"{group}/{name} has {ndim} axes, expected {(*leading, *axes)}")
    return (*leading, *axes)


def package_version() -> str:
    """Version of this package; "uninstalled" for a source tree on the path."""
    try:
        return version("bsdr_models")
    except PackageNotFoundError:
        return "uninstalled"


# Dims that variables of samples and maps have at least.
NEEDED = {**SUMMARY_DIMS, "y": (OBS,), VARIABLE: (GRID_X, LABEL)}


def read(tree: xr.DataTree, group: str, *names: str) -> xr.Dataset:
    """Dataset of a group, after checking that it has the variables `names`."""
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            f"expected an xarray.DataTree, got {type(tree).__name__}; "
            "a fitted estimator keeps its tree in `idata_`"
        )
    if unnamed := [each for each in (group, *names) if not isinstance(each, str)]:
        raise TypeError(f"groups and variables of trees have names, got {unnamed[0]!r}")
    if group not in tree.children:
        found = f"its groups are {sorted(tree.children)}"
        if tree.attrs.get("model") == "stack":
            found = "a stack has none of its own, its members in `named_estimators_` have"
        raise ValueError(f"the tree has no group {group!r}; {found}")
    dataset = tree[group].to_dataset()
    for name in map(str, dataset.data_vars if group in ("fit", "predictions") else ()):
        check_dims(f"{group}/{name}", dataset[name], NEEDED.get(name, ()))
        if name in NEEDED and name != "y" and dataset[name].dtype.kind not in "biuf":
            raise ValueError(f"{group}/{name} must hold numbers, got {dataset[name].dtype}")
    missing = [name for name in names if name not in dataset.variables]
    if missing:
        engine = tree.attrs.get("inference_method", "unknown")
        raise ValueError(
            f"group {group!r} has no variable {', '.join(map(repr, missing))} "
            f"(inference method: {engine}); its variables are {sorted(map(str, dataset.data_vars))}"
        )
    return _in_order(dataset, tree.attrs.get("class_order"))


def _in_order(dataset: xr.Dataset, order: Sequence[int] | None) -> xr.Dataset:
    """Classes in the order in which they are shown; trees hold them sorted by name."""
    if order is None:
        return dataset
    if "y_index" in dataset:
        places = np.append(np.argsort(order), -1)  # an unknown class, -1, remains the last
        dataset = dataset.assign(y_index=(OBS, places[dataset["y_index"].values]))
    return dataset.isel({LABEL: list(order)}, missing_dims="ignore")


def read_draws(tree: xr.DataTree, group: str, *names: str) -> xr.Dataset:
    """Dataset of a group, after checking its variables and their dims chain and draw."""
    dataset = read(tree, group, *names)
    for name in names or map(str, dataset.data_vars):
        check_dims(f"{group}/{name}", dataset[name])
    return dataset


def check_dims(name: str, array: xr.DataArray, dims: Iterable[str] = (CHAIN, DRAW)) -> None:
    """Raise a ValueError unless an array has the dims, by default chain and draw."""
    if absent := [dim for dim in dims if dim not in array.dims]:
        raise ValueError(f"{name} has no dim {' and no '.join(map(repr, absent))}")
