"""Latent coordinates of held-out samples by cross-validation.

A supervised embedding of training samples can show separated classes where there are none: with
more features than samples even arbitrary labels separate. Held-out samples with arbitrary labels
overlap.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import orthogonal_procrustes
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
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
from bsdr_models.options import check_parameters
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.validation import constant_features_ignored

type Fold = tuple[IntArray, IntArray]


def cross_validated_map(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 10,
    groups: Any = None,
    reuse_settings: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    r"""Embed every sample, and predict its class, by a model that was not trained on it.

    Coordinate systems of latent spaces are arbitrary, so each fold's model is aligned to the model
    of all samples by the rigid motion that fits best on the fold's training samples, which both
    embed as new samples:

    .. math::
        \min_{O^\top O = I,\, a} \sum_{n \in \text{train}} |O^\top z_n + a - z_n^{\text{all}}|^2 .

    Rotations, reflections and shifts preserve distances. The coordinates of a model whose
    likelihood identifies them only up to an affine map, the default of BSDR, are aligned by an
    affine map. Held-out samples do not enter the alignment, and labels only through the models.

    Parameters
    ----------
    estimator : classifier
        Of this package, or of scikit-learn with ``predict_proba``, or a ``Pipeline`` of either. It
        is cloned, not fitted itself. Samples have latent coordinates if it has ``transform``, or
        if it is a classifier of the coordinates of a ``Pipeline``.
    X : array-like or data frame of shape (n_samples, n_features)
        Or the kernel matrix of the samples, if the estimator takes one.
    y : array-like of shape (n_samples,)
        Classes.
    cv : int, splitter or iterable of (train, test), default=10
        Number of stratified, shuffled folds, or a splitter that holds every sample out once.
    groups : array-like of shape (n_samples,), optional
        Samples of one group, such as repeated measures of a patient, are held out together. The
        cross-validations inside of fits ignore groups.
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
        ``y``, ``fold``; and with at most two components ``class_probability`` over the map, the
        mean over the folds, weighted by how near their held-out samples are. The covariance is zero
        for models without uncertainty of coordinates. After a keyboard interrupt it holds the folds
        completed until then, and the root attribute ``interrupted``.

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
    check_parameters({"reuse_settings": ["boolean"]}, locals(), "cross_validated_map")
    check_consistent_length(X, y, groups)
    y = read_classes(y)
    groups = None if groups is None else column_or_1d(groups)
    classes, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if isinstance(cv, int | np.integer) and cv > counts.max():
        raise ValueError(
            f"cv={cv} folds need a class of as many samples; the largest, "
            f"{classes.tolist()[counts.argmax()]!r}, has {counts.max()}"
        )
    folds = read_folds(X, y, cv, as_generator(random_state), groups=groups, once=True)
    full = fitted_clone(estimator, X, y)
    known = np.asarray(getattr(last_step(full), "classes_", [])).tolist()
    if unknown := sorted(set(y.tolist()) - set(known), key=str):
        raise ValueError(
            f"y holds {unknown}, which are not classes of the fitted estimator: leave out "
            "unlabelled samples"
        )
    reference = _coordinates(full, X)
    tree = _fit_tree(full, y, reference)
    affine = tree.attrs.get("alignment") == "affine"
    if reuse_settings:
        estimator = _with_settings_of(full)
    parts: list[xr.Dataset] = []
    maps: list[LogProbabilities | None] = []
    for number, (train, test) in enumerate(folds):
        X_train = select_samples(estimator, X, train, train)
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
        part = _predictions(model, select_samples(estimator, X, test, train), y[test])
        latent = _coordinates(model, X_train)
        if latent is not None and reference is not None:
            if latent.shape[1] != reference.shape[1]:
                raise ValueError(
                    f"the model of fold {number} has {latent.shape[1]} components, that of all "
                    f"samples {reference.shape[1]}: give a number of components"
                )
            linear, shift = motion(latent, reference[train], affine=affine)
            mean, cov = part["latent_mean"], part["latent_cov"]
            part["latent_mean"] = mean.dims, mean.values @ linear + shift
            part["latent_cov"] = cov.dims, linear.T @ cov.values @ linear
            maps.append(_log_proba_at(model, linear, shift))
        part["fold"] = OBS, np.full(len(test), number)
        parts.append(part.assign_coords({OBS: test}))
    held_out = xr.concat(parts, dim=OBS, join="exact").sortby(OBS)
    names = tree["fit"].dataset[OBS].to_numpy()
    if len(names) == len(y):
        held_out = held_out.assign_coords({OBS: names[held_out[OBS].values]})
    held_out["class_frequency"] = LABEL, class_frequency(index, held_out.sizes[LABEL])
    held_out.attrs["note"] = (
        f"Every sample is embedded by one of {len(parts)} fits that were not trained on it."
    )
    tree["predictions"] = xr.DataTree(held_out)
    of_folds = [log_proba for log_proba in maps if log_proba is not None]
    if of_folds and len(of_folds) == len(parts):
        log_proba = _mean_log_proba(of_folds, [part["latent_mean"].values for part in parts])
        add_class_probability(tree, "predictions", log_proba)
    return tree


def motion(
    source: FloatArray, target: FloatArray, *, affine: bool
) -> tuple[FloatArray, FloatArray]:
    """Matrix (R, R) and shift (R,) that bring source closest to target, both (N, R).

    The matrix is orthogonal unless ``affine``.
    """
    centre, aim = source.mean(axis=0), target.mean(axis=0)
    if affine:
        linear = np.linalg.lstsq(source - centre, target - aim, rcond=None)[0]
    else:
        linear = orthogonal_procrustes(source - centre, target - aim)[0]
    return linear, aim - centre @ linear


def _log_proba_at(model: Any, linear: FloatArray, shift: FloatArray) -> LogProbabilities | None:
    """Log probabilities by a fold's model at aligned coordinates; None if unknown there."""
    classifier = last_step(model)
    own = getattr(classifier, "_log_proba_at", None)
    if own is None and hasattr(classifier, "transform"):
        return None
    back = np.linalg.pinv(linear)

    def log_proba(at: FloatArray) -> FloatArray:
        latent = (at - shift) @ back
        return np.asarray(classifier.predict_log_proba(latent) if own is None else own(latent))

    return log_proba


def _mean_log_proba(of_folds: list[LogProbabilities], latent: list[FloatArray]) -> LogProbabilities:
    """Log of the mean of class probabilities over folds, weighted by their held-out samples."""
    ends = np.cumsum([len(held_out) for held_out in latent])[:-1]

    def log_proba(at: FloatArray) -> FloatArray:
        closeness = nearness(at, np.concatenate(latent))  # (G, M)
        weight = np.stack([part.sum(axis=1) for part in np.split(closeness, ends, axis=1)])
        probability = np.exp([of_fold(at) for of_fold in of_folds])
        mean = np.einsum("fg,fgk->gk", weight, probability)
        return np.asarray(np.log(np.maximum(mean, np.finfo(np.float64).tiny)))

    return log_proba


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


def read_folds(
    X: Any,
    y: np.ndarray,
    cv: Any,
    rng: np.random.Generator,
    *,
    groups: np.ndarray | None = None,
    once: bool = False,
    least: int = 1,
) -> list[Fold]:
    """Pairs (train, test), with at least so many training samples of each class.

    If ``once``, every sample is to be held out once.
    """
    if isinstance(cv, int | np.integer):
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        cv = kind(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        # A class with fewer samples than folds is missing from some test sets, which is harmless.
        warnings.filterwarnings("ignore", message="The least populated class")
        folds = list(check_cv(cv, y, classifier=True).split(X, y, groups))
    if not folds:
        raise ValueError("cv gives no folds: give a number of folds, a splitter or pairs")
    if not all(len(test) for _, test in folds):
        raise ValueError("a fold holds out no sample: use fewer folds")
    if any(np.asarray(part).dtype.kind not in "iu" for fold in folds for part in fold):
        raise ValueError("cv must give positions of samples, pairs of integer arrays (train, test)")
    for train, test in folds:
        if len(both := np.intersect1d(train, test)):
            raise ValueError(f"sample {both[0]} is both in a training set and held out from it")
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(y))
    if once and np.any(times != 1):
        row = int(np.argmax(times != 1))
        raise ValueError(
            f"cv must hold every sample out once; sample {row} is held out {times[row]} times"
        )
    names, index = np.unique(y, return_inverse=True)
    for train, _ in folds:
        counts = np.bincount(index[train], minlength=len(names))
        if counts.min() < least:
            raise ValueError(
                f"a fold has {counts.min()} training samples of class "
                f"{names.tolist()[counts.argmin()]!r}, at least {least} needed: leave the class "
                "out, join it to another, or split differently"
            )
    return folds


# Models


def check_estimators(models: Mapping[str, Any], argument: str) -> None:
    """Raise a TypeError that names a member of an argument which is no estimator."""
    for name, model in models.items():
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
            raise TypeError(f"{argument}[{name!r}] is not an estimator: {model!r}")


def check_classifiers(models: Mapping[str, Any], argument: str) -> None:
    """Raise a TypeError that names a member of an argument which is not a usable classifier."""
    check_estimators(models, argument)
    for name, model in models.items():
        if not hasattr(model, "predict_proba"):
            kind = type(model).__name__
            raise TypeError(f"{argument}[{name!r}], {kind}, has no predict_proba")


def select_samples(estimator: Any, X: Any, rows: IntArray, training: IntArray) -> Any:
    """Some of the samples; of a kernel matrix also the columns of the training samples."""
    part = _safe_indexing(X, rows)
    pairwise = get_tags(estimator).input_tags.pairwise
    return _safe_indexing(part, training, axis=1) if pairwise else part


def fitted_clone(estimator: Any, X: Any, y: Any) -> Any:
    """Fit a clone; an interrupted fit raises KeyboardInterrupt."""
    model = clone(estimator).fit(X, y)
    if getattr(last_step(model), "interrupted_", False):
        raise KeyboardInterrupt
    return model


def last_step(model: Any) -> Any:
    """The estimator itself or, of a search or pipeline, the last step of the best one."""
    model = getattr(model, "best_estimator_", model)
    return model[-1] if isinstance(model, Pipeline) else model


def _before_last_step(model: Any, X: Any) -> Any:
    """Samples as the last step takes them."""
    model = getattr(model, "best_estimator_", model)
    return model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X


def _with_settings_of(full: Any) -> Any:
    """Clone of a fitted estimator with the settings that its fit has selected."""
    full, last = getattr(full, "best_estimator_", full), last_step(full)
    if not hasattr(last, "selected_params"):
        raise TypeError(f"reuse_settings=True: {type(last).__name__} has no selected_params")
    prefix = f"{full.steps[-1][0]}__" if isinstance(full, Pipeline) else ""
    chosen = {f"{prefix}{name}": value for name, value in last.selected_params().items()}
    return clone(full).set_params(**chosen)


def _coordinates(model: Any, X: Any) -> FloatArray | None:
    """Latent coordinates of new samples, (M, R); None if the model has none."""
    inner = _before_last_step(model, X)
    if hasattr(last_step(model), "transform"):
        inner = last_step(model).transform(inner)
    return None if inner is X else np.asarray(inner, dtype=np.float64)


def _fit_tree(model: Any, y: np.ndarray, latent: FloatArray | None) -> xr.DataTree:
    """Tree of the fit to all samples, with their latent coordinates."""
    last = last_step(model)
    if hasattr(last, "idata_"):
        return last.idata_.copy()
    fit = _embedding(latent, last.classes_, len(y))
    fit["y_index"] = OBS, np.searchsorted(last.classes_, y)
    root = xr.Dataset(attrs={"model": type(last).__name__})
    return xr.DataTree.from_dict({"/": root, "fit": fit})


def _predictions(model: Any, X: Any, y: np.ndarray) -> xr.Dataset:
    """Coordinates and predictions of held-out samples."""
    last, inner = last_step(model), _before_last_step(model, X)
    if hasattr(last, "predict_idata"):
        dataset = last.predict_idata(inner, y)["predictions"].to_dataset()
        return dataset.drop_vars([VARIABLE, "class_frequency", GRID_X, GRID_Y], errors="ignore")
    if not hasattr(last, "predict_proba"):
        raise TypeError(f"{type(last).__name__} has no predict_proba")
    probability = last.predict_proba(inner)
    return _embedding(_coordinates(model, X), last.classes_, len(y)).assign(
        probability=((OBS, LABEL), probability),
        predicted=(OBS, last.classes_[probability.argmax(axis=1)]),
        y=(OBS, y),
    )


def _embedding(mean: FloatArray | None, classes: np.ndarray, m: int) -> xr.Dataset:
    """Latent coordinates (M, R) with zero covariance, if there are any."""
    coords = {OBS: np.arange(m), LABEL: classes}
    if mean is None:
        return xr.Dataset(coords=coords)
    axes = {COMPONENT: np.arange(mean.shape[1]), COMPONENT_AUX: np.arange(mean.shape[1])}
    cov = np.zeros((m, mean.shape[1], mean.shape[1]))
    return xr.Dataset(
        {
            "latent_mean": ((OBS, COMPONENT), mean),
            "latent_cov": ((OBS, COMPONENT, COMPONENT_AUX), cov),
        },
        coords=coords | axes,
    )
