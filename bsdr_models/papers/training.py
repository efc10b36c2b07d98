"""What fits of the three papers' models have in common: training samples, and summaries."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_array, check_consistent_length

from bsdr_models.bm2pca.subspace import Settings, initial_state
from bsdr_models.data.targets import Targets, read_classes
from bsdr_models.data.validation import (
    MAX_RAW,
    check_features,
    check_matrix,
    column_names,
    read_numbers,
)
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike


def read_training(
    X: SamplesLike,
    y: TargetLike,
    n_components: int,
    *,
    regression: bool = False,
    unlabeled: object = None,
    several: bool = True,
    config: dict[str, Any],
) -> tuple[Context, np.ndarray]:
    """Samples as they are with the settings of a fit, and targets as steps take them.

    These are classes (N,), zeros and ones of label sets (N, T), or real outputs (N, K).
    """
    array, names = check_features(X, y, n_components)
    if regression:
        outputs = read_numbers(y).reshape(len(array), -1)
        labels = np.array(column_names(y, "y", outputs.shape[1]))
        targets = Targets(kind="regression", y=outputs, coded=outputs, names=labels)
    else:
        targets = read_classes(y, unlabeled, several=several)
    check_consistent_length(array, targets.y)
    context = Context(
        X=array,
        y=targets.y,
        index=targets.index,
        labels=targets.names,
        target=targets.kind,
        feature_names=names,
        config=config,
    )
    return context, targets.coded


def refuse_calibrated(tree: xr.DataTree) -> None:
    """Raise a ValueError for trees of recommended estimators, which calibrate probabilities."""
    if "temperature" in tree.attrs:
        raise ValueError(
            "the tree is of a recommended estimator, which calibrates probabilities: use its "
            "predict_proba"
        )


def read_new(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """New samples (M, D) as a finite array, of as many features as those of a tree."""
    check_matrix(X)
    array: FloatArray = check_array(X, dtype=np.float64, input_name="X")
    group = "posterior" if FEATURE in tree["posterior"].sizes else "constant_data"
    n_features = tree[group].sizes[FEATURE]
    if array.shape[1] != n_features:
        raise ValueError(f"X has {array.shape[1]} features, the tree has {n_features}")
    return array


def read_setting(tree: xr.DataTree, name: str, default: float) -> float:
    """A setting of a model: root attribute of a tree, or constant of the PyMC model of a trace."""
    constants = tree.children.get("constant_data", xr.DataTree())
    return float(constants[name] if name in constants else tree.attrs.get(name, default))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Initial values of a PyMC model, as projection and weights of zero are a saddle point."""

    latent: FloatArray  # (N, R), centred, of unit variance
    projection: FloatArray  # from features to latent coordinates, (D, R)
    weights: FloatArray  # in the class scores, (R, K)
    bias: FloatArray  # at the mean of the features, (K,)
    intercept: FloatArray  # where they are zero, (K,)

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, n_components: int) -> Self:
        """From samples (N, D), and signs or centred outputs (N, K), 0 where unknown.

        The first components are discriminant directions, the others principal axes of the rest.
        """
        mean = X.mean(axis=0)
        found = initial_state(X - mean, Y, n_components, Settings())
        latent = found.latent(X - mean)
        rest = X - mean - latent @ np.linalg.lstsq(latent, X - mean)[0]
        axes, size, _ = np.linalg.svd(rest, full_matrices=False)
        more = n_components - latent.shape[1]
        others = np.sqrt(len(X)) * axes[:, :more] * (size[:more] > 0.0)
        latent = np.hstack([latent, others, np.zeros((len(X), more - others.shape[1]))])
        projection = np.linalg.lstsq(X - mean, latent)[0]
        rows = np.hstack([np.ones((len(X), 1)), latent])
        ridge = rows.T @ rows + np.eye(1 + n_components)
        weights = np.linalg.solve(ridge, rows.T @ Y)
        return cls(
            latent=latent,
            projection=projection,
            weights=weights[1:],
            bias=weights[0],
            intercept=weights[0] - mean @ projection @ weights[1:],
        )


@contextmanager
def units_of_samples(X: FloatArray, *, standardize: bool) -> Iterator[None]:
    """Context of a fit to centred X (N, D): ValueError if its own units make it fail."""
    if standardize:
        yield
        return
    size = float(np.abs(X).max())
    if not 1.0 / MAX_RAW <= size <= MAX_RAW:
        raise ValueError(
            f"X is not standardised, and samples are {size:.3g} from their mean: give "
            "standardize=True, or other units"
        )
    try:
        yield
    except (np.linalg.LinAlgError, RuntimeError) as error:  # no factorisation, or a falling bound
        raise ValueError(
            f"X is not standardised, and its units are too far from those of the priors ({error}): "
            "give standardize=True, or other units"
        ) from error
