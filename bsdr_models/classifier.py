"""Predictions of classifiers, from the log probabilities of their models."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from bsdr_models.arrays import FloatArray
from bsdr_models.block_sources import by_blocks


class ProbabilisticClassifier(ClassifierMixin):
    """Classifier methods for subclasses that define `_samples` and `_log_proba`."""

    classes_: np.ndarray
    _exclusive = True  # False for multi-label problems
    _samples: Callable[[Any], Any]  # validates and scales X
    _log_proba: Callable[[Any], FloatArray]

    @by_blocks
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of the classes; see `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._log_proba(self._samples(X))

    @by_blocks
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes; for multi-label problems, of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """Most probable class; for multi-label problems, an indicator of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
        """
        return self._most_probable(self.predict_log_proba(X))

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if not self._exclusive:
            return (log_p > np.log(0.5)).astype(int)
        return self.classes_[log_p.argmax(axis=1)]

    @by_blocks
    def decision_function(self, X: Any) -> FloatArray:
        """Log odds for two classes or multi-label problems, else log probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        log_p = self.predict_log_proba(X)
        if not self._exclusive:
            return log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300)))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p
