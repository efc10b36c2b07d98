"""Predictions of every classifier, from the log probabilities of its model."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from bsdr_models.arrays import FloatArray
from bsdr_models.by_blocks import by_blocks


class ProbabilisticClassifier(ClassifierMixin):
    """A classifier says how samples enter its model, and their log probabilities."""

    classes_: np.ndarray
    # Whether a sample belongs to one class only; otherwise each class is a label, on or off.
    _exclusive = True

    # Samples, validated and scaled; and log probabilities of these.
    _samples: Callable[[Any], Any]
    _log_proba: Callable[[Any], FloatArray]

    @by_blocks
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of the classes, see `predict_proba`.

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
        """Probabilities of the classes; with several labels, of each being on.

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
        """Most probable class; with several labels, which are on.

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
        """Log odds for two classes or several labels, else log probabilities.

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
