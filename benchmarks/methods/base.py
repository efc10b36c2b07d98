"""A method: a function of training samples that returns the predictions of a fit.

It has no access to test samples, so that no setting can be chosen on them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler

from benchmarks.protocols import Training
from bsdr_models.compare.baselines import Folds

# Folds of training samples by which settings are chosen.
N_FOLDS = 5


class ImpossibleError(Exception):
    """A method is not defined for these data, or its library is missing; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Class probabilities (M, K) and latent coordinates (M, R) of new samples; chosen settings."""

    predict: Callable[[Any], np.ndarray]
    transform: Callable[[Any], Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)


Fit = Callable[[Training, int, int], Fitted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A function of (training samples, number of components, seed), and what determines a fit.

    That are the `modules` of its code and their imports, the folder of its `paper` in the package,
    arguments, and `libraries` beside NumPy, SciPy and scikit-learn. A method that is `full` sees
    all features, whatever the number of components.
    """

    fit: Fit
    modules: tuple[str, ...]
    paper: str = ""
    configuration: Any = None
    full: bool = False
    libraries: tuple[str, ...] = ()


Pairs = list[tuple[np.ndarray, np.ndarray]]


def inner_folds(training: Training, seed: int, n_folds: int = N_FOLDS) -> Pairs:
    """Training and held-out samples of each fold, of whole groups if these are known.

    There are fewer folds if a class is small, and none if it has a single sample.
    """
    counts = np.bincount(training.y)
    n_folds = min(n_folds, int(counts[counts > 0].min()))
    if n_folds < 2:
        return []
    return Folds(n_folds, seed).split(training.X, training.y, training.groups)


def spread(probability: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Columns of the classes that had training samples, (M, K); 0 for the others."""
    found = np.zeros((len(probability), n_classes))
    found[:, classes] = probability
    return found


def of_classifier(
    model: Any, training: Training, *, subspace: bool = False, record: dict[str, Any] | None = None
) -> Fitted:
    """The fit of a scikit-learn classifier."""
    return Fitted(
        predict=lambda new: spread(model.predict_proba(new), model.classes_, training.n_classes),
        transform=model.transform if subspace else None,
        record=record or {},
    )


class UnitSize(TransformerMixin, BaseEstimator):
    """Samples less their mean, divided by one number: their mean square length is then one."""

    def fit(self, X: Any, y: Any = None) -> "UnitSize":
        """Find the mean and the number."""
        self.mean_ = X.mean(axis=0)
        size = float(np.sqrt(np.mean(np.sum((X - self.mean_) ** 2, axis=1))))
        self.size_ = size if size > 0.0 else 1.0
        return self

    def transform(self, X: Any) -> Any:
        """Centre and scale."""
        return (X - self.mean_) / self.size_


def scalers(training: Training) -> list[Any]:
    """Scalings among which a method may choose: one, unless the protocol has prepared features."""
    return [UnitSize()] if training.prepared else [StandardScaler(), UnitSize()]


def scaler_of(training: Training) -> Callable[[Any], Any]:
    """Unit variance over the training samples, unless the protocol has prepared them."""
    if training.prepared:
        return lambda rows: rows
    return StandardScaler().fit(training.X).transform
