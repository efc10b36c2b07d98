"""Scores of class probabilities, and of retrieval in a subspace."""

import numpy as np

from bsdr_models.metrics import expected_calibration_error


def scores(probability: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, log loss, Brier score (summed over classes) and expected calibration error."""
    rows = np.arange(len(y))
    return {
        "accuracy": float(np.mean(probability.argmax(axis=1) == y)),
        "log_loss": float(-np.log(np.maximum(probability[rows, y], 1e-300)).mean()),
        "brier": float(np.mean(np.sum((probability - np.eye(probability.shape[1])[y]) ** 2, 1))),
        "ece": expected_calibration_error(probability, y),
    }


def mean_average_precision(
    queries: np.ndarray, y_queries: np.ndarray, database: np.ndarray, y_database: np.ndarray
) -> float:
    """Mean over queries of the average precision of the database, ranked by cosine.

    An entry is relevant if it has the class of the query; queries of classes that the database
    lacks are ignored. Ties are in the order of the database.

    Parameters
    ----------
    queries : (M, R)
    y_queries : (M,) of int
    database : (N, R)
    y_database : (N,) of int
    """
    order = np.argsort(-(_unit(queries) @ _unit(database).T), axis=1, kind="stable")
    relevant = y_database[order] == y_queries[:, None]  # (M, N)
    relevant = relevant[relevant.any(axis=1)]
    precision = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    return float(np.mean(np.sum(precision * relevant, axis=1) / relevant.sum(axis=1)))


def _unit(rows: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0.0, length, 1.0)
