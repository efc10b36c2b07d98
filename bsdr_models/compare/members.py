"""Models given by the user: what they must be, their fits and predictions, checked at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _num_samples, has_fit_parameter

from bsdr_models.estimators.base import last_step
from bsdr_models.estimators.plane import check_probabilities
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike

# Positions of training samples and of those held out.
type Fold = tuple[IntArray, IntArray]


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
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
            raise TypeError(f"{argument}[{name!r}] is not an estimator: {model!r}")
        if not hasattr(model, "predict_proba"):
            kind = type(model).__name__
            raise TypeError(f"{argument}[{name!r}], {kind}, has no predict_proba")
        with errors_name(f"{argument}[{name!r}]"):
            refuse_frozen(model)


def fitted_clone(
    estimator: BaseEstimator, X: SamplesLike, y: np.ndarray, groups: IntArray | None = None
) -> BaseEstimator:
    """Fit a clone, with the groups of its samples if it takes them and there are several.

    Searches give groups to their splitter and, with metadata routing, to fits that request them. An
    interrupted fit raises KeyboardInterrupt.
    """
    model = clone(estimator)
    name, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    searches = isinstance(last, GridSearchCV | RandomizedSearchCV)
    if get_config()["enable_metadata_routing"] and (name or searches):
        # Pipelines and searches pass groups to what has requested them.
        argument = "groups"
        takes = bool(get_routing_for_object(model).consumes("fit", ["groups"]))
    else:
        argument = f"{name}__groups" if name else "groups"
        takes = searches or has_fit_parameter(last, "groups")
    options = {}
    if groups is not None and len(np.unique(groups)) > 1 and takes:
        options[argument] = groups
    model.fit(X, y, **options)
    if getattr(last_step(model), "interrupted_", False):
        raise KeyboardInterrupt
    return model


def class_probabilities(model: BaseEstimator, X: SamplesLike, classes: np.ndarray) -> FloatArray:
    """Probabilities (N, K) of classes (K,), checked; zero of those that the fit has not seen."""
    own = np.asarray(model.classes_).tolist()
    p = np.asarray(model.predict_proba(X), dtype=np.float64)
    if p.shape != (shape := (_num_samples(X), len(own))):
        raise ValueError(f"probabilities must have the shape {shape}, got {p.shape}")
    check_probabilities(p)
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
) -> tuple[BaseEstimator, FloatArray]:
    """A clone fitted to the training samples, and class probabilities (M, K) of the others.

    Of a kernel matrix also the features of the training samples are taken.
    """
    train, test = fold
    X_train, y_train = _safe_split(estimator, X, y, train)
    X_test, _ = _safe_split(estimator, X, None, test, train)
    model = fitted_clone(estimator, X_train, y_train, None if groups is None else groups[train])
    return model, class_probabilities(model, X_test, classes)
