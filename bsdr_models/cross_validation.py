"""Latent coordinates of held-out samples by cross-validation.

A supervised embedding of training samples can show separated classes where there are none: with
more features than samples even arbitrary labels separate. Held-out samples with arbitrary labels
overlap.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import orthogonal_procrustes
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dims import COMPONENT, COMPONENT_AUX, GRID_X, GRID_Y, LABEL, OBS
from bsdr_models.latent_grid import (
    VARIABLE,
    LogProbabilities,
    add_class_probability,
    class_frequency,
    nearness,
)
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.validation import constant_features_ignored

type Fold = tuple[IntArray, IntArray]
# Latent coordinates of held-out samples, (M, R), and class probabilities at coordinates (G, R).
type FoldMap = tuple[FloatArray, Callable[[FloatArray], FloatArray]]


def cross_validated_map(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 10,
    align: bool = True,
    scale: bool = False,
    reuse_settings: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    r"""Embed every sample, and predict its class, by a model that was not trained on it.

    Coordinate systems of latent spaces are arbitrary, so each fold's model is aligned to the model
    of all samples by the rigid motion that fits best on the fold's training samples, which both
    embed as new samples:

    .. math::
        \min_{O^\top O = I,\, a} \sum_{n \in \text{train}} |O^\top z_n + a - z_n^{\text{all}}|^2 .

    Rotations, reflections and shifts preserve distances. A scale factor could hide differences
    between folds, so by default it is only reported. The coordinates of a model whose likelihood
    identifies them only up to an affine map, the default of BSDR, are aligned by an affine map.
    Held-out samples do not enter the alignment, and labels only through the models.

    Parameters
    ----------
    estimator : classifier
        Of this package, or of scikit-learn with ``predict_proba``, or a ``Pipeline`` of either. It
        is cloned, not fitted itself. Samples have latent coordinates if it has ``transform``, or
        if it is a classifier of the coordinates of a ``Pipeline``.
    X : array-like or data frame of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Classes.
    cv : int, splitter or iterable of (train, test), default=10
        Number of stratified, shuffled folds, or a splitter that holds every sample out once.
    align : bool, default=True
        Align the folds.
    scale : bool, default=False
        Rescale them as well, for models whose unit differs between fits, such as one that tunes a
        metric; ``fold_scale`` is then far from 1.
    reuse_settings : bool, default=False
        Keep what the fit to all samples has selected, such as hyper-parameters and the temperature
        (``selected_params``), for the folds: several times faster. Held-out samples have
        then contributed to these few numbers, though not to the fits.
    random_state : int, RandomState, Generator or None
        Of the folds.

    Returns
    -------
    xarray.DataTree
        The tree of the fit to all samples, with a group ``predictions`` of all samples held out:
        ``latent_mean`` and ``latent_cov``, aligned to that fit, ``probability``, ``predicted``,
        ``y``, ``fold``; ``fold_scale`` (cv_fold,), the best scale factor of each fold; and with at
        most two components ``class_probability`` over the map, the mean over the folds, weighted
        by how near their held-out samples are. The
        covariance is zero for models without uncertainty of coordinates. After a keyboard interrupt
        it holds the folds completed until then, and the root attribute ``interrupted``.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the end of the first fold.
    TypeError
        If the estimator has no ``predict_proba``.
    ValueError
        If y does not hold classes, the splits do not hold out every sample once, a class is absent
        from a training set, or the models differ in their number of components.

    See Also
    --------
    bsdr_models.plots.plot_map : draws the map.
    compare_models : held-out scores of several models.

    Notes
    -----
    Whether the classes separate at all is tested by scikit-learn's ``permutation_test_score`` with
    ``scoring="neg_log_loss"``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import cross_validated_map, plots
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = PaperBSDRClassifier(random_state=0)
    >>> tree = cross_validated_map(model, X, y, cv=5, random_state=0)
    >>> held_out = plots.plot_map(tree)
    >>> training = plots.plot_map(tree, group="fit")
    """
    check_consistent_length(X, y)
    y = read_classes(y)
    folds = _folds(X, y, cv, random_state)
    full = fitted_clone(estimator, X, y)
    _check_labels(full, y)
    reference = _coordinates(full, X)
    tree = _fit_tree(full, X, y, reference)
    if reuse_settings:
        estimator = _with_settings_of(estimator, full, X)
    parts: list[xr.Dataset] = []
    scales: list[float] = []
    maps: list[FoldMap | None] = []
    for number, (train, test) in enumerate(folds):
        X_train = _safe_indexing(X, train)
        try:
            with constant_features_ignored():  # the fit to all samples has warned
                model = fitted_clone(estimator, X_train, y[train])
        except KeyboardInterrupt:
            if not parts:
                raise
            tree.attrs["interrupted"] = 1
            warnings.warn(
                f"interrupted after {len(parts)} of {len(folds)} folds: only their samples are "
                "there",
                UserWarning,
                stacklevel=2,
            )
            break
        part = _predictions(model, _safe_indexing(X, test), y[test])
        latent = _coordinates(model, X_train)
        if latent is not None and reference is not None:
            if latent.shape[1] != reference.shape[1]:
                raise ValueError(
                    f"the model of fold {number} has {latent.shape[1]} components, that of all "
                    f"samples {reference.shape[1]}: give a number of components"
                )
            linear, shift, factor = motion(latent, reference[train], scale=scale)
            scales.append(factor)
            if tree.attrs.get("alignment") == "affine":
                linear, shift = _affine_map(latent, reference[train])
            if align:
                mean, cov = part["latent_mean"], part["latent_cov"]
                part["latent_mean"] = mean.dims, mean.values @ linear + shift
                part["latent_cov"] = cov.dims, linear.T @ cov.values @ linear
                maps.append(_fold_map(model, X_train, part["latent_mean"].values, linear, shift))
        part["fold"] = OBS, np.full(len(test), number)
        parts.append(part.assign_coords({OBS: test}))
    held_out = xr.concat(parts, dim=OBS, join="exact").sortby(OBS)
    names = tree["fit"].dataset[OBS].to_numpy()
    if len(names) == len(y):
        held_out = held_out.assign_coords({OBS: names[held_out[OBS].values]})
    if scales:
        held_out["fold_scale"] = ("cv_fold", np.array(scales))
    index = np.unique(y, return_inverse=True)[1]
    held_out["class_frequency"] = LABEL, class_frequency(index, held_out.sizes[LABEL])
    held_out.attrs["note"] = (
        f"Every sample is embedded by one of {len(parts)} fits that were not trained on it."
    )
    tree["predictions"] = xr.DataTree(held_out)
    known = [fold_map for fold_map in maps if fold_map is not None]
    if known and len(known) == len(parts):
        add_class_probability(tree, "predictions", _mean_log_proba(known))
    return tree


def _fold_map(
    model: Any, X_train: Any, held_out: FloatArray, linear: FloatArray, shift: FloatArray
) -> FoldMap | None:
    """Map of a fold in the coordinates of all samples; None if probabilities there are unknown."""
    classifier, _ = _last_step(model, X_train)
    log_proba_at = getattr(classifier, "_log_proba_at", None)
    if log_proba_at is None and hasattr(classifier, "transform"):
        return None
    back = np.linalg.pinv(linear)

    def probability(at: FloatArray) -> FloatArray:
        latent = (at - shift) @ back
        if log_proba_at is None:
            return np.asarray(classifier.predict_proba(latent))
        return np.exp(log_proba_at(latent))

    return held_out, probability


def _mean_log_proba(maps: list[FoldMap]) -> LogProbabilities:
    """Log of the mean of class probabilities over folds, weighted by their samples nearby."""
    latent = [held_out for held_out, _ in maps]
    ends = np.cumsum([len(held_out) for held_out in latent])[:-1]

    def log_proba(at: FloatArray) -> FloatArray:
        closeness = nearness(at, np.concatenate(latent))  # (G, M)
        weight = np.stack([part.sum(axis=1) for part in np.split(closeness, ends, axis=1)])
        probability = np.stack([probability(at) for _, probability in maps])
        mean = np.einsum("fg,fgk->gk", weight, probability)
        return np.asarray(np.log(np.maximum(mean, np.finfo(np.float64).tiny)))

    return log_proba


def motion(
    source: FloatArray, target: FloatArray, *, scale: bool = False
) -> tuple[FloatArray, FloatArray, float]:
    """Rotation, shift and scale factor that bring source closest to target, both (N, R).

    The factor is 1 for a single point; if ``scale``, it multiplies the rotation.
    """
    centre, aim = source.mean(axis=0), target.mean(axis=0)
    rotation, stretch = orthogonal_procrustes(source - centre, target - aim)
    size = float(np.sum((source - centre) ** 2))
    factor = float(stretch) / size if size > 0.0 else 1.0
    if scale:
        rotation = factor * rotation
    return rotation, aim - centre @ rotation, factor


def _affine_map(source: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Affine map that brings source closest to target, both (N, R): source @ linear + shift."""
    centre, aim = source.mean(axis=0), target.mean(axis=0)
    linear = np.linalg.lstsq(source - centre, target - aim, rcond=None)[0]
    return linear, aim - centre @ linear


# Classes and folds


def read_classes(y: Any) -> np.ndarray:
    """Classes of the samples, (N,); ValueError if y holds anything else."""
    if len(np.shape(y)) == 2 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y must hold one class per sample, got {np.shape(y)[1]} columns: give the column of "
            "one task or label"
        )
    kind = type_of_target(y, input_name="y")
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: y must hold one class per sample, got {kind}")
    return column_or_1d(y, warn=True)


def check_training_classes(folds: Iterable[Fold], y: np.ndarray, *, least: int = 1) -> None:
    """Raise a ValueError if a training set has fewer than ``least`` samples of a class."""
    names, index = np.unique(y, return_inverse=True)
    for train, _ in folds:
        counts = np.bincount(index[train], minlength=len(names))
        if counts.min() < least:
            raise ValueError(
                f"a fold has {counts.min()} training samples of class "
                f"{names.tolist()[counts.argmin()]!r}, at least {least} needed: leave the class "
                "out, join it to another, or split differently"
            )


def _check_labels(model: Any, y: np.ndarray) -> None:
    """Refuse samples that the estimator treats as unlabelled."""
    known = np.asarray(getattr(model, "classes_", [])).tolist()
    unknown = sorted(set(y.tolist()) - set(known), key=str)
    if unknown:
        raise ValueError(
            f"y holds {unknown}, which are not classes of the fitted estimator: leave out "
            "unlabelled samples"
        )


def _folds(X: Any, y: np.ndarray, cv: Any, random_state: RandomState) -> list[Fold]:
    """Pairs (train, test) that hold out every sample once; all classes are in each train."""
    names, counts = np.unique(y, return_counts=True)
    if isinstance(cv, int | np.integer):
        if cv > counts.max():
            raise ValueError(
                f"cv={cv} folds need a class of as many samples; the largest, "
                f"{names.tolist()[counts.argmax()]!r}, has {counts.max()}"
            )
        seed = int(as_generator(random_state).integers(2**31))
        cv = StratifiedKFold(int(cv), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class with fewer samples than folds is missing from some test sets, which is harmless.
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = list(check_cv(cv, y, classifier=True).split(X, y))
    times = np.bincount(np.concatenate([test for _, test in splits]), minlength=len(y))
    if np.any(times != 1):
        row = int(np.argmax(times != 1))
        raise ValueError(
            f"cv must hold every sample out once; sample {row} is held out {times[row]} times"
        )
    check_training_classes(splits, y)
    return splits


# Fitted models


def fitted_clone(estimator: Any, X: Any, y: np.ndarray) -> Any:
    """Fit a clone; an interrupted fit raises KeyboardInterrupt."""
    model = clone(estimator).fit(X, y)
    last, _ = _last_step(model, X)
    if getattr(last, "interrupted_", False):
        raise KeyboardInterrupt
    return model


def _last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Final step of a model, and the samples as transformed for it."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        return model[-1], model[:-1].transform(X) if len(model) > 1 else X
    return model, X


def _with_settings_of(estimator: Any, full: Any, X: Any) -> Any:
    """Clone of an estimator with the settings that its fit to all samples has selected."""
    full = getattr(full, "best_estimator_", full)
    last, _ = _last_step(full, X)
    if not hasattr(last, "selected_params"):
        raise TypeError(f"reuse_settings=True: {type(last).__name__} has no selected_params")
    if isinstance(full, Pipeline):
        name = full.steps[-1][0]
        chosen = {f"{name}__{key}": value for key, value in last.selected_params().items()}
        return clone(full).set_params(**chosen)
    return clone(full).set_params(**last.selected_params())


def _coordinates(model: Any, X: Any) -> FloatArray | None:
    """Latent coordinates of new samples, (M, R); None if the model has none."""
    last, X = _last_step(model, X)
    if hasattr(last, "transform"):
        X = last.transform(X)
    elif last is getattr(model, "best_estimator_", model):
        return None
    return np.asarray(X, dtype=np.float64)


def _fit_tree(model: Any, X: Any, y: np.ndarray, latent: FloatArray | None) -> xr.DataTree:
    """Tree of the fit to all samples, with their latent coordinates."""
    last, _ = _last_step(model, X)
    if hasattr(last, "idata_"):
        return last.idata_.copy()
    fit = _embedding(latent, len(y)).assign_coords({LABEL: last.classes_})
    fit["y_index"] = OBS, np.searchsorted(last.classes_, y)
    root = xr.Dataset(attrs={"model": type(last).__name__})
    return xr.DataTree.from_dict({"/": root, "fit": fit})


def _predictions(model: Any, X: Any, y: np.ndarray) -> xr.Dataset:
    """Coordinates and predictions of held-out samples."""
    last, inner = _last_step(model, X)
    if hasattr(last, "predict_idata"):
        dataset = last.predict_idata(inner, y)["predictions"].to_dataset()
        return dataset.drop_vars([VARIABLE, "class_frequency", GRID_X, GRID_Y], errors="ignore")
    if not hasattr(last, "predict_proba"):
        raise TypeError(f"{type(last).__name__} has no predict_proba")
    probability = last.predict_proba(inner)
    embedding = _embedding(_coordinates(model, X), len(y)).assign_coords({LABEL: last.classes_})
    return embedding.assign(
        probability=((OBS, LABEL), probability),
        predicted=(OBS, last.classes_[probability.argmax(axis=1)]),
        y=(OBS, y),
    )


def _embedding(mean: FloatArray | None, m: int) -> xr.Dataset:
    """Latent coordinates (M, R) with zero covariance, if there are any."""
    if mean is None:
        return xr.Dataset(coords={OBS: np.arange(m)})
    r = mean.shape[1]
    axes = {COMPONENT: np.arange(r), COMPONENT_AUX: np.arange(r)}
    return xr.Dataset(
        {
            "latent_mean": ((OBS, COMPONENT), mean),
            "latent_cov": ((OBS, COMPONENT, COMPONENT_AUX), np.zeros((m, r, r))),
        },
        coords={OBS: np.arange(m), **axes},
    )
