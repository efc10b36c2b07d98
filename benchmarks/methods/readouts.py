"""Classifiers of latent coordinates, each returning a function from these to probabilities."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import spread

N_NEIGHBOURS = 3

Reader = Callable[[Any], np.ndarray]


def logistic(Z: Any, y: np.ndarray, n_classes: int) -> Reader:
    """Logistic regression with scikit-learn's penalty, on latent coordinates of unit variance."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(Z, y)
    return lambda new: spread(model.predict_proba(new), model.classes_, n_classes)


def neighbours(Z: Any, y: np.ndarray, n_classes: int) -> Reader:
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
