"""What models given by the user predict, checked right after the call."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import _num_samples

from bsdr_models.arrays import FloatArray, SamplesLike
from bsdr_models.plane import check_probabilities


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
