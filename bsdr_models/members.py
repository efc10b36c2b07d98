"""What models given by the user predict, checked right after the call."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import _num_samples, check_array

from bsdr_models.arrays import FloatArray
from bsdr_models.plane import check_probabilities


@contextmanager
def errors_name(name: str) -> Iterator[None]:
    """Context in which errors say which model has raised them, or was refused."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {name}")
        raise


def is_frozen(model: Any) -> bool:
    """Whether a model, or a predictor in it, stays as it was fitted."""
    parts = [model, *model.get_params(deep=True).values()]
    return any(isinstance(part, FrozenEstimator) and hasattr(part, "predict") for part in parts)


def refuse_frozen(model: Any) -> None:
    """Raise a ValueError unless folds fit a model again, or it has held-out predictions."""
    if is_frozen(model) and getattr(model, "held_out_log_proba_", None) is None:
        raise ValueError(
            "a FrozenEstimator has seen the samples that are to be held out: give the estimator "
            "inside, which is fitted again for each fold"
        )


def class_probabilities(model: Any, X: Any, classes: np.ndarray) -> FloatArray:
    """Probabilities (N, K) of classes (K,), zero of those that the fit has not seen."""
    return _of_classes(model.predict_proba(X), model.classes_, X, classes)


def label_probabilities(model: Any, X: Any, n_labels: int) -> FloatArray:
    """Probabilities (N, T) of labels; one that the fit has not seen is absent."""
    p = model.predict_proba(X)
    both = np.arange(2)
    classes = model.classes_ if isinstance(p, list) else [both] * n_labels
    if not isinstance(p, list):  # of each label, as some classifiers of scikit-learn give
        p = [np.stack([1.0 - of_label, of_label], axis=1) for of_label in np.asarray(p).T]
    known = zip(p, classes, strict=True)
    return np.stack([_of_classes(each, own, X, both)[:, 1] for each, own in known], axis=1)


def moments(model: Any, X: Any, n_outputs: int) -> tuple[FloatArray, FloatArray]:
    """Means and standard deviations (N, T) of outputs."""
    both = model.predict(X, return_std=True)
    mean, std = (check_array(np.reshape(part, (_num_samples(X), n_outputs))) for part in both)
    if len(bad := np.flatnonzero(std.min(axis=1) <= 0.0)):
        raise ValueError(f"the standard deviation of sample {bad[0]} is not positive")
    return mean, std


def _of_classes(values: Any, own: Any, X: Any, classes: np.ndarray) -> FloatArray:
    """Probabilities of a model's own classes, checked, as those of all classes, (N, K)."""
    p = np.asarray(values, dtype=np.float64)
    if p.shape != (shape := (_num_samples(X), len(own))):
        raise ValueError(f"probabilities must have the shape {shape}, got {p.shape}")
    check_probabilities(p)
    columns = {label: k for k, label in enumerate(classes.tolist())}
    found = np.zeros((len(p), len(classes)))
    found[:, [columns[label] for label in np.asarray(own).tolist()]] = p
    return found
