"""A map in which every row lies where a model puts it that has never seen its label.

A supervised map of its own training rows shows separation whether there is any or not: with more
features than rows even arbitrary labels come apart. Held out, rows of arbitrary labels lie on
top of each other.
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
    r"""LatentCoordinates and class probabilities of every row, by models that never saw its label.

    The frame of a latent space is arbitrary, so that of each fold's model is brought to that of
    the model of all rows by the rigid motion that agrees best on the rows from which both have
    learnt, both placing them as new rows:

    .. math::
        \min_{O^\top O = I,\, a} \sum_{n \in \text{train}} |O^\top z_n + a - z_n^{\text{all}}|^2 .

    Rotations, reflections and shifts keep all distances. A scale factor would make folds look
    alike that are not, so there is none by default; the one that fits best is reported. The
    held-out rows have no say in the motion, and labels enter it through the models alone.

    Parameters
    ----------
    estimator : classifier
        Any of this package, or of scikit-learn if it has ``transform`` and ``predict_proba``, or
        a ``Pipeline`` that ends in such a one or in a classifier of the positions. Cloned, never
        fitted itself.
    X : array-like or data frame of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Classes.
    cv : int, splitter or iterable of (train, test), default=10
        Number of stratified, shuffled folds, or a way to split that holds every row out once.
    align : bool, default=True
        Bring the folds to one frame.
    scale : bool, default=False
        Stretch them to one unit as well. For models that choose their unit in every fit, such
        as one that tunes a metric: where ``fold_scale`` is far from 1 in some folds, their rows
        lie too far out or in for no other reason.
    random_state : int, RandomState, Generator or None
        Of the folds.

    Returns
    -------
    xarray.DataTree
        The tree of the fit to all rows, whose group ``fit`` is the map of the training rows, with
        a group ``predictions`` of all rows held out: ``latent_mean`` and ``latent_cov`` in the
        frame of that fit, ``probability``, ``predicted``, ``y``, ``fold``; and ``fold_scale``
        (cv_fold,), the best scale factor of each fold, 1 if the folds agree on the unit. A model
        that states no uncertainty of a position has covariance zero. Interrupted by the keyboard
        it holds the rows of the folds until then, and says so in the root attribute
        ``interrupted``.

    Raises
    ------
    KeyboardInterrupt
        If the user stops it before the end of the first fold.
    TypeError
        If the estimator cannot place rows or has no probabilities.
    ValueError
        If y holds no classes, the splits do not hold out every row once, a class would be absent
        from a training set, or the models differ in their number of components.

    Notes
    -----
    Whether the classes come apart at all is a question for a permutation test, which
    scikit-learn has: ``permutation_test_score(estimator, X, y, scoring="neg_log_loss")``, which
    :func:`bsdr_models.plots.plot_permutation` draws.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, cross_validated_map, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(variant="paper", random_state=0)
    >>> tree = cross_validated_map(model, X, y, cv=5, random_state=0)
    >>> shown = plots.plot_map(tree)  # what the labels were used for
    >>> held_out = plots.plot_map(tree, group="predictions")  # what they are good for
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
        rows = _safe_indexing(X, train)
        try:
            model = _fitted(estimator, rows, y[train])
        except KeyboardInterrupt:
            if not parts:
                raise
            interrupted = True
            break
        placed = _coordinates(model, rows)
        if placed.shape[1] != reference.shape[1]:
            raise ValueError(
                f"the model of fold {number} has {placed.shape[1]} components, that of all rows "
                f"{reference.shape[1]}: give a number of components"
            )
        part = _predictions(model, _safe_indexing(X, test), y[test])
        rotation, shift, factor = motion(placed, reference[train], scale=scale)
        if align:
            part = _moved(part, rotation, shift)
        fold = xr.DataArray(np.full(len(test), number), dims=OBS)
        parts.append(part.assign_coords({OBS: test}).assign(fold=fold))
        scales.append(factor)
    held_out = xr.concat(parts, dim=OBS, join="exact").sortby(OBS)
    held_out["fold_scale"] = ("cv_fold", np.array(scales))
    held_out.attrs["note"] = (
        f"Every row is placed by one of {len(parts)} fits that have not seen its label."
    )
    tree["predictions"] = xr.DataTree(held_out)
    if interrupted:
        tree.attrs["interrupted"] = 1
        warnings.warn(
            f"interrupted after {len(parts)} of {len(folds)} folds: only their rows are there",
            UserWarning,
            stacklevel=2,
        )
    return tree


def motion(
    source: FloatArray, target: FloatArray, *, scale: bool = False
) -> tuple[FloatArray, FloatArray, float]:
    """Rotation O and shift a of source @ O + a nearest to the target, both (N, R).

    Returns
    -------
    rotation : (R, R)
        Orthogonal, reflections included; times the factor if it is to scale.
    shift : (R,)
    factor : float
        Of the nearest scaled motion; 1 if the source is a single point.
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
        raise ValueError(f"y must hold one class per row, got {kind}")
    return column_or_1d(y)


def _check_labels(model: Any, y: np.ndarray) -> None:
    """Rows that the estimator takes for unlabelled have no label to hold out."""
    known = np.asarray(getattr(model, "classes_", [])).tolist()
    unknown = sorted(set(y.tolist()) - set(known), key=str)
    if unknown:
        raise ValueError(
            f"y holds {unknown}, which the fitted estimator does not know as classes: leave out "
            "the rows without a label"
        )


def _folds(X: Any, y: np.ndarray, cv: Any, random_state: RandomState) -> Iterator[Fold]:
    """Pairs (train, test) that hold out every row once; every training set has every class."""
    names, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if isinstance(cv, int | np.integer):
        if cv > counts.max():
            raise ValueError(
                f"cv={cv} folds need a class of as many rows; the largest, "
                f"{names.tolist()[counts.argmax()]!r}, has {counts.max()}"
            )
        seed = int(as_generator(random_state).integers(2**31))
        cv = StratifiedKFold(int(cv), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some test sets, which does no harm.
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = list(check_cv(cv, y, classifier=True).split(X, y))
    times = np.bincount(np.concatenate([test for _, test in splits]), minlength=len(y))
    if np.any(times != 1):
        row = int(np.argmax(times != 1))
        raise ValueError(
            f"cv must hold every row out once; row {row} is held out {times[row]} times"
        )
    for train, test in splits:
        learnt = np.bincount(index[train], minlength=len(names))
        if not learnt.all():
            label = names.tolist()[learnt.argmin()]
            rows = counts[learnt.argmin()]
            raise ValueError(
                f"all {rows} rows of class {label!r} are held out at once, so that no model could "
                "know it: leave the class out, join it to another, or split differently"
            )
        yield train, test


# Fitted models


def _fitted(estimator: Any, X: Any, y: np.ndarray) -> Any:
    """A fitted clone; a fit that the user has cut short is not one of these."""
    model = clone(estimator).fit(X, y)
    last, _ = _last_step(model, X)
    if getattr(last, "interrupted_", False):
        raise KeyboardInterrupt
    return model


def _last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """What places the rows in the end, and the rows as it gets them."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        return model[-1], model[:-1].transform(X) if len(model) > 1 else X
    return model, X


def _coordinates(model: Any, X: Any) -> FloatArray:
    """LatentCoordinates of rows, placed as new rows, (M, R)."""
    last, rows = _last_step(model, X)
    if hasattr(last, "transform"):
        rows = last.transform(rows)
    elif last is getattr(model, "best_estimator_", model):
        raise TypeError(f"{type(last).__name__} has no transform: it places no rows")
    return np.asarray(rows, dtype=np.float64)


def _fit_tree(model: Any, X: Any, y: np.ndarray) -> xr.DataTree:
    """Tree of the fit to all rows."""
    last, _ = _last_step(model, X)
    if hasattr(last, "idata_"):
        return last.idata_.copy()
    fit = _placed(_coordinates(model, X)).assign_coords({LABEL: last.classes_})
    fit["y_index"] = OBS, np.searchsorted(last.classes_, y)
    root = xr.Dataset(attrs={"model": type(last).__name__})
    return xr.DataTree.from_dict({"/": root, "fit": fit})


def _predictions(model: Any, X: Any, y: np.ndarray) -> xr.Dataset:
    """Held-out rows as the model sees them."""
    last, rows = _last_step(model, X)
    if hasattr(last, "predict_idata"):
        return last.predict_idata(rows, y)["predictions"].to_dataset()
    if not hasattr(last, "predict_proba"):
        raise TypeError(f"{type(last).__name__} has no predict_proba: it gives no probabilities")
    probability = last.predict_proba(rows)
    placed = _placed(_coordinates(model, X)).assign_coords({LABEL: last.classes_})
    return placed.assign(
        probability=((OBS, LABEL), probability),
        predicted=(OBS, last.classes_[probability.argmax(axis=1)]),
        y=(OBS, y),
    )


def _placed(mean: FloatArray) -> xr.Dataset:
    """LatentCoordinates without a stated uncertainty."""
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
    """LatentCoordinates and their covariances after a rigid motion."""
    mean, cov = part["latent_mean"], part["latent_cov"]
    return part.assign(
        latent_mean=(mean.dims, mean.values @ rotation + shift),
        latent_cov=(cov.dims, rotation.T @ cov.values @ rotation),
    )
