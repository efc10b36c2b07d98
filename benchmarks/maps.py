"""Scores of a map: what the coordinates that it draws of test samples say, and nothing else."""

import numpy as np
from scipy.spatial import procrustes
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import Fitted, Method
from benchmarks.protocols import Split
from bsdr_models import PredictionPlane
from bsdr_models.metrics import expected_calibration_error
from bsdr_models.plots.map import MOST_LATENT

# Test samples of each class that are drawn, folds of the scores, and neighbours that vote.
N_DRAWN, N_FOLDS, N_NEIGHBOURS = 60, 5, 5


def drawn(y: np.ndarray) -> np.ndarray:
    """Indices of the test samples that are drawn."""
    return np.concatenate([np.flatnonzero(y == label)[:N_DRAWN] for label in np.unique(y)])


def coordinates(
    method: Method, fitted: Fitted, split: Split, n_components: int, probability: np.ndarray
) -> np.ndarray | None:
    """Coordinates (M, 1 or 2) of the drawn test samples; None with more than two components.

    Probabilities (N, K) are those of all test samples. Classifiers of all features have the plane
    of their predictions, models of the package with their default number of components what
    ``plot_map`` draws.
    """
    if n_components > 2:
        return None
    shown = drawn(split.y_test)
    chosen = bool(method.paper) and n_components == 0
    if method.full or (chosen and probability.shape[1] > MOST_LATENT):
        return PredictionPlane().fit_transform(probability[shown])
    if fitted.transform is None:
        return None
    return np.asarray(fitted.transform(split.X_test[shown]))[:, :2]


def scores(at: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Cross-validated accuracy of neighbours and of logistic regression on coordinates (M, 2).

    Of the latter the expected calibration error, too.
    """
    cv = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=1000))
    _, index = np.unique(y, return_inverse=True)
    voted = cross_val_predict(KNeighborsClassifier(N_NEIGHBOURS), at, index, cv=cv)
    read = cross_val_predict(logistic, at, index, cv=cv, method="predict_proba")
    return {
        "neighbours": float(np.mean(voted == index)),
        "linear": float(np.mean(read.argmax(axis=1) == index)),
        "linear_ece": expected_calibration_error(read, index),
    }


def change(first: np.ndarray, second: np.ndarray) -> float:
    """Root of the share of variance in which two maps of the same samples differ.

    Shifts, rotations, reflections and one scale do not count.
    """
    return float(np.sqrt(procrustes(first, second)[2]))
