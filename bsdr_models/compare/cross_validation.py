"""Fits of the user's models in folds, and predictions of held-out samples, for maps.

A supervised embedding of training samples can show separated classes where there are none: with
more features than samples even arbitrary labels separate. Held-out samples with arbitrary labels
overlap.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import pandas as pd
import xarray as xr
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    BaseCrossValidator,
    GridSearchCV,
    RandomizedSearchCV,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _num_samples, column_or_1d, has_fit_parameter

from bsdr_models.compare.plane import normalise
from bsdr_models.data.targets import class_frequency, order_attrs, read_groups
from bsdr_models.data.validation import check_samples, feature_names, read_labels
from bsdr_models.estimators.base import Estimator, last_step
from bsdr_models.inference.dims import FEATURE, LABEL, OBS
from bsdr_models.inference.tasks import run_tasks
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import DataWarning, recorded_warnings, warn
from bsdr_models.options import N_JOBS, RandomState, as_generator, check_parameters
from bsdr_models.summary import summarise

# Positions of training samples and of those held out.
type Fold = tuple[IntArray, IntArray]
# A number of folds, a splitter, or folds.
type Splits = int | BaseCrossValidator | Iterable[Fold]


def cross_validated_map(
    estimator: BaseEstimator,
    X: SamplesLike,
    y: TargetLike,
    *,
    cv: Splits = 10,
    groups: TargetLike | None = None,
    reuse_settings: bool = False,
    n_jobs: int | None = None,
    random_state: RandomState = None,
    progressbar: bool = False,
) -> xr.DataTree:
    """Predict every sample by a model that was not trained on it, for a map of the predictions.

    Fits to different folds have different latent spaces, but their class probabilities are
    comparable. The map shows these in a plane (:class:`bsdr_models.PredictionPlane`).

    Parameters
    ----------
    estimator : classifier
        A classifier of this package, one of scikit-learn with ``predict_proba``, or a ``Pipeline``
        that ends with either. It is cloned, not fitted itself.
    X : array-like or data frame of shape (n_samples, n_features)
        Features of all samples, or their kernel matrix, if the estimator takes one.
    y : array-like of shape (n_samples,)
        Classes.
    cv : int, splitter or iterable of (train, test), default=10
        Number of stratified, shuffled folds, or a splitter that holds every sample out once.
    groups : array-like of shape (n_samples,), optional
        Samples of one group, such as repeated measures of a patient, are held out together, also
        inside of fits whose ``fit`` takes ``groups``.
    reuse_settings : bool, default=False
        Whether the folds take the settings that the fit to all samples has selected, such as
        hyper-parameters and the temperature (``selected_params``). This is several times faster.
        Held-out samples have then contributed to these few numbers, though not to the fits.
    n_jobs : int, optional
        Folds in parallel; None is 1 unless a ``joblib.parallel_config`` says otherwise.
    random_state : int, RandomState, Generator or None
        Seed of the folds.
    progressbar : bool, default=False
        Whether to show how many folds are done.

    Returns
    -------
    xarray.DataTree
        The tree of the fit to all samples, if it is a model of this package, with a group
        ``predictions`` of all samples held out: ``probability``, ``predicted``, ``y``, ``fold`` and
        ``class_frequency``. After a keyboard interrupt these are the samples of the folds that
        were complete, and the root attribute ``interrupted`` is 1.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the end of the first fold.
    TypeError
        If the estimator has no ``predict_proba``.
    ValueError
        If y does not hold classes, the splits do not hold out every sample once, or a class is
        absent from a training set.

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
    allowed: dict[str, Sequence[object]] = {
        "reuse_settings": ["boolean"],
        "n_jobs": N_JOBS,
        "progressbar": ["boolean"],
    }
    check_parameters(allowed, locals(), "cross_validated_map")
    check_estimator("estimator", estimator)
    check_samples(X, y, groups)
    given = y
    y = read_classes(y)
    own_groups = read_groups(groups, X)
    index = np.unique(y, return_inverse=True)[1]
    folds = read_folds(X, y, cv, as_generator(random_state), groups=own_groups, once=True)
    full = fitted_clone(estimator, X, y, own_groups)
    last = last_step(full)
    if not hasattr(full, "predict_proba"):  # which a search or a stack has once it is fitted
        raise TypeError(f"{type(last).__name__} has no predict_proba")
    known = np.asarray(getattr(last, "classes_", [])).tolist()
    if unknown := sorted(set(y.tolist()) - set(known), key=str):
        raise ValueError(
            f"y holds {unknown}, which are not classes of the fitted estimator: leave out "
            "unlabelled samples"
        )
    tree = xr.DataTree(xr.Dataset(attrs={"model": type(last).__name__}))
    summary = pd.Series({"model": "", "features": f"{np.shape(X)[1]}"})
    if isinstance(last, Estimator):
        tree = last.idata_.copy()
        summary = summarise(last, scores=False)["value"]
    steps = [last]
    if isinstance(best := getattr(full, "best_estimator_", full), Pipeline):
        tree = _name_features(tree, best)
        steps = [*best]
    summary["model"] = ", ".join(type(step).__name__ for step in steps)
    tree.attrs["summary"] = json.dumps([*summary.items()])  # for a report
    weight = 1.0
    if reuse_settings:
        estimator, weight = _with_settings_of(full, tree)
    labels = np.unique(y)

    def predict(task: tuple[int, Fold]) -> xr.Dataset:
        number, fold = task
        # The fit to all samples has warned.
        with recorded_warnings(category=DataWarning):
            _, p = predict_fold(estimator, X, y, fold, labels, own_groups)
        train, test = fold
        p = weight * p + (1.0 - weight) * class_frequency(index[train], len(labels))
        part = {
            "probability": ((OBS, LABEL), p),
            "predicted": (OBS, labels[p.argmax(axis=1)]),
            "y": (OBS, y[test]),
            "fold": (OBS, np.full(len(test), number)),
        }
        return xr.Dataset(part, coords={OBS: test, LABEL: labels})

    tasks = list(enumerate(folds))
    outcome = run_tasks(predict, tasks, n_jobs=n_jobs, what="Folds", progressbar=progressbar)
    if outcome.interrupted:
        tree.attrs["interrupted"] = 1
        n_done = len(outcome.results)
        warn(f"interrupted: the samples are those of {n_done} of {len(folds)} folds")
    held_out = xr.concat(outcome.results, dim=OBS, join="exact").sortby(OBS)
    if "fit" in tree.children and tree["fit"].sizes[OBS] == len(y):
        names = tree["fit"].dataset[OBS].to_numpy()
        held_out = held_out.assign_coords({OBS: names[held_out[OBS].to_numpy()]})
    held_out["class_frequency"] = LABEL, class_frequency(index, held_out.sizes[LABEL])
    tree["predictions"] = xr.DataTree(held_out)
    tree.attrs |= order_attrs(given, labels)
    return tree


# Classes and folds


def read_classes(y: TargetLike) -> np.ndarray:
    """Classes of the samples, (N,); ValueError if y holds anything else."""
    if len(np.shape(y)) == 2 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y must hold one class per sample, got {np.shape(y)[1]} columns: give the column of "
            "one label"
        )
    return column_or_1d(read_labels(y), warn=True)


def read_folds(
    X: SamplesLike,
    y: np.ndarray,
    cv: Splits,
    rng: np.random.Generator,
    *,
    groups: np.ndarray | None = None,
    once: bool = False,
    least: int = 1,
) -> list[Fold]:
    """Pairs (train, test), with at least so many training samples of each class.

    If ``once``, every sample is to be held out once.
    """
    names, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if isinstance(cv, int | np.integer):
        if cv > counts.max():
            raise ValueError(
                f"cv={cv} folds need a class of as many samples; the largest, "
                f"{names.tolist()[counts.argmax()]!r}, has {counts.max()}"
            )
        if groups is not None and cv > (n_groups := len(np.unique(groups))):
            raise ValueError(
                f"cv={cv} folds need as many groups, not {n_groups}: give cv={n_groups}"
            )
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        cv = kind(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
    # A class with fewer samples than folds is missing from some test sets, which is harmless.
    try:
        with recorded_warnings("The least populated class"):
            folds = list(check_cv(cv, y, classifier=True).split(X, y, groups))
    except TypeError as error:  # of what is no pair
        raise TypeError(f"cv must be a number of folds, a splitter or pairs: {error}") from error
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
    for train, _ in folds:
        counts = np.bincount(index[train], minlength=len(names))
        if counts.min() < least:
            raise ValueError(
                f"a fold has {counts.min()} training samples of class "
                f"{names.tolist()[counts.argmin()]!r}, at least {least} needed: leave the class "
                "out, join it to another, or split differently"
            )
    return folds


def _name_features(tree: xr.DataTree, model: Pipeline) -> xr.DataTree:
    """The tree of the last step with names of features from the steps before it."""
    if hasattr(model[-1], "feature_names_in_"):
        return tree
    with suppress(AttributeError, ValueError):  # of steps that give their features no names
        names = model[:-1].get_feature_names_out()
        known = dict(zip(feature_names(model[-1]).tolist(), map(str, names), strict=True))
        for name, group in tree.children.items():
            if FEATURE in group.coords:
                own = [known[each] for each in group[FEATURE].to_numpy().tolist()]
                tree[name] = xr.DataTree(group.to_dataset().assign_coords({FEATURE: own}))
    return tree


# Arguments with which a fit is not calibrated.
CALIBRATED = {"temperature", "loss__calibrate"}


def _with_settings_of(full: BaseEstimator, tree: xr.DataTree) -> tuple[BaseEstimator, float]:
    """Clone of a fitted estimator with the settings that its fit has selected.

    And the weight of its predictions beside the class frequencies, which is no argument.
    """
    full, last = getattr(full, "best_estimator_", full), last_step(full)
    if not hasattr(last, "selected_params"):
        raise TypeError(f"reuse_settings=True: {type(last).__name__} has no selected_params")
    prefix = f"{full.steps[-1][0]}__" if isinstance(full, Pipeline) else ""
    chosen = {f"{prefix}{name}": value for name, value in last.selected_params().items()}
    given = CALIBRATED & set(last.selected_params())
    weight = float(tree.attrs.get("signal", 1.0)) if given else 1.0
    return clone(full).set_params(**chosen), weight


# Models given by the user: what they must be, their fits and predictions


@contextmanager
def errors_name(name: str) -> Iterator[None]:
    """Context in which errors say which model has raised them, or was refused."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {name}")
        raise


def refuse_frozen(model: BaseEstimator) -> None:
    """Raise a ValueError unless folds fit a model again, or it has held-out predictions."""
    parts = [model, *model.get_params(deep=True).values()]
    frozen = any(isinstance(part, FrozenEstimator) and hasattr(part, "predict") for part in parts)
    if frozen and getattr(model, "held_out_log_proba_", None) is None:
        raise ValueError(
            "a FrozenEstimator has seen the samples that are to be held out: give the estimator "
            "inside, which is fitted again for each fold"
        )


def check_models(models: Mapping[str, BaseEstimator], argument: str) -> None:
    """Raise a TypeError that names a member of an argument which is no probabilistic classifier."""
    for name, model in models.items():
        check_estimator(f"{argument}[{name!r}]", model)
        if not hasattr(model, "predict_proba"):
            raise TypeError(f"{argument}[{name!r}], {type(model).__name__}, has no predict_proba")


def check_estimator(name: str, model: BaseEstimator) -> None:
    """Raise a TypeError that names what is no estimator, or see `refuse_frozen`."""
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise TypeError(f"{name} is not an estimator: {model!r}")
    with errors_name(name):
        refuse_frozen(model)


def centres_groups(model: BaseEstimator) -> bool:
    """Whether a pipeline or search passes groups of new samples to one of its steps."""
    routing = get_routing_for_object(model)
    return bool(routing.consumes("predict_proba", ["groups"]))


def fitted_clone(
    estimator: BaseEstimator,
    X: SamplesLike,
    y: np.ndarray,
    groups: IntArray | None = None,
    weights: FloatArray | None = None,
) -> BaseEstimator:
    """Fit a clone, with the groups of its samples if it takes them and there are several.

    Weights are given if there are some.

    Searches give groups to their splitter and, with metadata routing, to fits that request them:
    always if there is a :class:`GroupCentering`. An interrupted fit raises KeyboardInterrupt.
    """
    model = clone(estimator)
    centres = centres_groups(model)
    if centres and not get_config()["enable_metadata_routing"]:
        with config_context(enable_metadata_routing=True):
            return fitted_clone(model, X, y, groups, weights)
    name, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    searches = isinstance(last, GridSearchCV | RandomizedSearchCV)
    if get_config()["enable_metadata_routing"] and (name or searches):
        # Pipelines and searches pass groups to what has requested them.
        argument = "groups"
        takes = bool(get_routing_for_object(model).consumes("fit", ["groups"]))
    else:
        argument = f"{name}__groups" if name else "groups"
        takes = searches or has_fit_parameter(last, "groups")
    options: dict[str, np.ndarray] = {}
    if groups is not None and takes and (centres or len(np.unique(groups)) > 1):
        options[argument] = groups
    if weights is not None:
        options["sample_weight"] = weights
    model.fit(X, y, **options)
    if getattr(last_step(model), "interrupted_", False):
        raise KeyboardInterrupt
    return model


def class_probabilities(
    model: BaseEstimator, X: SamplesLike, classes: np.ndarray, groups: IntArray | None = None
) -> FloatArray:
    """Probabilities (N, K) of classes (K,), checked; zero of those that the fit has not seen.

    Groups of the samples, (N,), are for a step that centres them.
    """
    own = np.asarray(model.classes_).tolist()
    if groups is not None and centres_groups(model):
        with config_context(enable_metadata_routing=True):
            p = model.predict_proba(X, groups=groups)
    else:
        p = model.predict_proba(X)
    p = np.asarray(p, dtype=np.float64)
    if p.shape != (shape := (_num_samples(X), len(own))):
        raise ValueError(f"probabilities must have the shape {shape}, got {p.shape}")
    normalise(p)
    columns = {label: k for k, label in enumerate(classes.tolist())}
    found = np.zeros((len(p), len(classes)))
    found[:, [columns[label] for label in own]] = p
    return found


def predict_fold(
    estimator: BaseEstimator,
    X: SamplesLike,
    y: np.ndarray,
    fold: Fold,
    classes: np.ndarray,
    groups: IntArray | None,
    weights: FloatArray | None = None,
) -> tuple[BaseEstimator, FloatArray]:
    """A clone fitted to the training samples, and class probabilities (M, K) of the others.

    Of a kernel matrix also the features of the training samples are taken.
    """
    train, test = fold
    X_train, y_train = _safe_split(estimator, X, y, train)
    X_test, _ = _safe_split(estimator, X, None, test, train)
    own, new = (None, None) if groups is None else (groups[train], groups[test])
    weights = None if weights is None else weights[train]
    model = fitted_clone(estimator, X_train, y_train, own, weights)
    return model, class_probabilities(model, X_test, classes, new)
