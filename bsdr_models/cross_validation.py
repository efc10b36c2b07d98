"""Latent coordinates of held-out samples by cross-validation.

A supervised embedding of training samples can show separated classes where there are none: with
more features than samples even arbitrary labels separate. Held-out samples with arbitrary labels
overlap.
"""

import warnings
from collections.abc import Iterator
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
from bsdr_models.dims import COMPONENT, COMPONENT_AUX, LABEL, OBS
from bsdr_models.rng import RandomState, as_generator

type Fold = tuple[IntArray, IntArray]


def cross_validated_map(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 10,
    align: bool = True,
    scale: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    r"""Embed every sample, and predict its class, by a model that was not trained on it.

    Coordinate systems of latent spaces are arbitrary, so each fold's model is aligned to the model
    of all samples by the rigid motion that fits best on the fold's training samples, which both
    embed as new samples:

    .. math::
        \min_{O^\top O = I,\, a} \sum_{n \in \text{train}} |O^\top z_n + a - z_n^{\text{all}}|^2 .

    Rotations, reflections and shifts preserve distances. A scale factor could hide differences
    between folds, so by default it is only reported. Held-out samples do not enter the alignment,
    and labels only through the models.

    Parameters
    ----------
    estimator : classifier
        Of this package, or of scikit-learn if it has ``transform`` and ``predict_proba``, or a
        ``Pipeline`` that ends in such a classifier or in one of the latent coordinates. It is
        cloned, not fitted itself.
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
    random_state : int, RandomState, Generator or None
        Of the folds.

    Returns
    -------
    xarray.DataTree
        The tree of the fit to all samples, with a group ``predictions`` of all samples held out:
        ``latent_mean`` and ``latent_cov``, aligned to that fit, ``probability``, ``predicted``,
        ``y``, ``fold``; and ``fold_scale`` (cv_fold,), the best scale factor of each fold. The
        covariance is zero for models without uncertainty of coordinates. After a keyboard interrupt
        it holds the folds completed until then, and the root attribute ``interrupted``.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the end of the first fold.
    TypeError
        If the estimator has no ``transform`` or no ``predict_proba``.
    ValueError
        If y does not hold classes, the splits do not hold out every sample once, a class is absent
        from a training set, or the models differ in their number of components.

    Notes
    -----
    Whether the classes separate at all is tested by scikit-learn's ``permutation_test_score`` with
    ``scoring="neg_log_loss"``, drawn by :func:`bsdr_models.plots.plot_permutation`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, cross_validated_map, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(variant="paper", random_state=0)
    >>> tree = cross_validated_map(model, X, y, cv=5, random_state=0)
    >>> training = plots.plot_map(tree)
    >>> held_out = plots.plot_map(tree, group="predictions")
    """
    check_consistent_length(X, y)
    y = _check_classes(y)
    folds = list(_folds(X, y, cv, random_state))
    full = _fitted(estimator, X, y)
    _check_labels(full, y)
    tree, reference = _fit_tree(full, X, y), _coordinates(full, X)
    parts: list[xr.Dataset] = []
    scales: list[float] = []
    interrupted = False
    for number, (train, test) in enumerate(folds):
        X_train = _safe_indexing(X, train)
        try:
            model = _fitted(estimator, X_train, y[train])
        except KeyboardInterrupt:
            if not parts:
                raise
            interrupted = True
            break
        latent = _coordinates(model, X_train)
        if latent.shape[1] != reference.shape[1]:
            raise ValueError(
                f"the model of fold {number} has {latent.shape[1]} components, that of all samples "
                f"{reference.shape[1]}: give a number of components"
            )
        part = _predictions(model, _safe_indexing(X, test), y[test])
        rotation, shift, factor = motion(latent, reference[train], scale=scale)
        if align:
            part = _moved(part, rotation, shift)
        fold = xr.DataArray(np.full(len(test), number), dims=OBS)
        parts.append(part.assign_coords({OBS: test}).assign(fold=fold))
        scales.append(factor)
    held_out = xr.concat(parts, dim=OBS, join="exact").sortby(OBS)
    names = tree["fit"].dataset[OBS].to_numpy()
    if len(names) == len(y):
        held_out = held_out.assign_coords({OBS: names[held_out[OBS].values]})
    held_out["fold_scale"] = ("cv_fold", np.array(scales))
    held_out.attrs["note"] = (
        f"Every sample is embedded by one of {len(parts)} fits that were not trained on it."
    )
    tree["predictions"] = xr.DataTree(held_out)
    if interrupted:
        tree.attrs["interrupted"] = 1
        warnings.warn(
            f"interrupted after {len(parts)} of {len(folds)} folds: only their samples are there",
            UserWarning,
            stacklevel=2,
        )
    return tree


def motion(
    source: FloatArray, target: FloatArray, *, scale: bool = False
) -> tuple[FloatArray, FloatArray, float]:
    """Rigid motion that brings source closest to target, both (N, R): source @ rotation + shift.

    Returns
    -------
    rotation : (R, R)
        Orthogonal, possibly a reflection; times the factor if `scale`.
    shift : (R,)
    factor : float
        Best scale factor; 1 if the source is a single point.
    """
    centre, aim = source.mean(axis=0), target.mean(axis=0)
    rotation, stretch = orthogonal_procrustes(source - centre, target - aim)
    size = float(np.sum((source - centre) ** 2))
    factor = float(stretch) / size if size > 0.0 else 1.0
    if scale:
        rotation = factor * rotation
    return rotation, aim - centre @ rotation, factor


# Classes and folds


def _check_classes(y: Any) -> np.ndarray:
    kind = type_of_target(y, input_name="y")
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"y must hold one class per sample, got {kind}")
    return column_or_1d(y)


def _check_labels(model: Any, y: np.ndarray) -> None:
    """Refuse samples that the estimator treats as unlabelled."""
    known = np.asarray(getattr(model, "classes_", [])).tolist()
    unknown = sorted(set(y.tolist()) - set(known), key=str)
    if unknown:
        raise ValueError(
            f"y holds {unknown}, which are not classes of the fitted estimator: leave out "
            "unlabelled samples"
        )


def _folds(X: Any, y: np.ndarray, cv: Any, random_state: RandomState) -> Iterator[Fold]:
    """Yield pairs (train, test) that hold out every sample once; all classes are in each train."""
    names, index, counts = np.unique(y, return_inverse=True, return_counts=True)
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
    for train, test in splits:
        learnt = np.bincount(index[train], minlength=len(names))
        if not learnt.all():
            label = names.tolist()[learnt.argmin()]
            count = counts[learnt.argmin()]
            raise ValueError(
                f"all {count} samples of class {label!r} are held out at once: leave the class "
                "out, join it to another, or split differently"
            )
        yield train, test


# Fitted models


def _fitted(estimator: Any, X: Any, y: np.ndarray) -> Any:
    """A fitted clone; an interrupted fit raises KeyboardInterrupt."""
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


def _coordinates(model: Any, X: Any) -> FloatArray:
    """Latent coordinates of new samples, (M, R)."""
    last, X = _last_step(model, X)
    if hasattr(last, "transform"):
        X = last.transform(X)
    elif last is getattr(model, "best_estimator_", model):
        raise TypeError(f"{type(last).__name__} has no transform and cannot embed samples")
    return np.asarray(X, dtype=np.float64)


def _fit_tree(model: Any, X: Any, y: np.ndarray) -> xr.DataTree:
    """Tree of the fit to all samples."""
    last, _ = _last_step(model, X)
    if hasattr(last, "idata_"):
        return last.idata_.copy()
    fit = _embedding(_coordinates(model, X)).assign_coords({LABEL: last.classes_})
    fit["y_index"] = OBS, np.searchsorted(last.classes_, y)
    root = xr.Dataset(attrs={"model": type(last).__name__})
    return xr.DataTree.from_dict({"/": root, "fit": fit})


def _predictions(model: Any, X: Any, y: np.ndarray) -> xr.Dataset:
    """Coordinates and predictions of held-out samples."""
    last, inner = _last_step(model, X)
    if hasattr(last, "predict_idata"):
        return last.predict_idata(inner, y)["predictions"].to_dataset()
    if not hasattr(last, "predict_proba"):
        raise TypeError(f"{type(last).__name__} has no predict_proba")
    probability = last.predict_proba(inner)
    embedding = _embedding(_coordinates(model, X)).assign_coords({LABEL: last.classes_})
    return embedding.assign(
        probability=((OBS, LABEL), probability),
        predicted=(OBS, last.classes_[probability.argmax(axis=1)]),
        y=(OBS, y),
    )


def _embedding(mean: FloatArray) -> xr.Dataset:
    """Latent coordinates with zero covariance."""
    m, r = mean.shape
    axes = {COMPONENT: np.arange(r), COMPONENT_AUX: np.arange(r)}
    return xr.Dataset(
        {
            "latent_mean": ((OBS, COMPONENT), mean),
            "latent_cov": ((OBS, COMPONENT, COMPONENT_AUX), np.zeros((m, r, r))),
        },
        coords={OBS: np.arange(m), **axes},
    )


def _moved(part: xr.Dataset, rotation: FloatArray, shift: FloatArray) -> xr.Dataset:
    """Latent coordinates and their covariances after a rigid motion."""
    mean, cov = part["latent_mean"], part["latent_cov"]
    return part.assign(
        latent_mean=(mean.dims, mean.values @ rotation + shift),
        latent_cov=(cov.dims, rotation.T @ cov.values @ rotation),
    )
