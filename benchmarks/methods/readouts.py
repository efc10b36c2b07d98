"""Classifiers of latent coordinates, each returning a function from these to probabilities.

They may choose settings by folds: latent coordinates and labels of training and of held-out
samples, which the projection has not seen either.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import spread
from bsdr_models.baselines import PENALTIES
from bsdr_models.metrics import log_losses

N_NEIGHBOURS = 3

Reader = Callable[[Any], np.ndarray]
Fold = tuple[Any, np.ndarray, Any, np.ndarray]


def logistic(Z: Any, y: np.ndarray, n_classes: int, folds: Iterable[Fold] = ()) -> Reader:
    """Logistic regression of standardised latent coordinates, its penalty by the log loss of folds.

    The penalty is scikit-learn's if there are none.
    """

    def fit(Z: Any, y: np.ndarray, C: float) -> Any:
        return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=2000)).fit(Z, y)

    losses = np.zeros(len(PENALTIES))
    for Z_train, y_train, Z_test, y_test in folds:
        models = [fit(Z_train, y_train, C) for C in PENALTIES]
        index = np.searchsorted(np.unique(y_train), y_test)
        losses += [log_losses(model.predict_proba(Z_test), index).sum() for model in models]
    model = fit(Z, y, PENALTIES[losses.argmin()] if losses.any() else 1.0)
    return lambda new: spread(model.predict_proba(new), model.classes_, n_classes)


def neighbours(Z: Any, y: np.ndarray, n_classes: int, folds: Iterable[Fold] = ()) -> Reader:
    """Three nearest neighbours, the same number for all methods.

    One pseudo-neighbour, divided evenly among the classes, avoids an infinite log loss. The nearest
    neighbour breaks ties.
    """
    size = min(N_NEIGHBOURS, len(Z))
    index = NearestNeighbors(n_neighbors=size).fit(Z)
    # The nearest has a slightly larger weight, to break ties.
    weight = 1.0 + 1e-6 * np.arange(size, 0, -1)

    def read(new: Any) -> np.ndarray:
        near = y[index.kneighbors(new, return_distance=False)]
        votes = np.stack([(near == label) @ weight for label in range(n_classes)], axis=1)
        votes = votes + 1.0 / n_classes
        return votes / votes.sum(axis=1, keepdims=True)

    return read
