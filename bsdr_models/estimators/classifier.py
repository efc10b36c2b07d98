"""What all classifiers have in common: class probabilities, decisions, the plane of a map."""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xarray as xr
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.targets import Targets, read_classes
from bsdr_models.data.training import known_samples
from bsdr_models.estimators.base import Estimator, ScoreMixin
from bsdr_models.estimators.fitted import by_chunks
from bsdr_models.inference.dims import LABEL, OBS
from bsdr_models.inference.latent_grid import VARIABLE, add_class_probability
from bsdr_models.lazy import annex
from bsdr_models.numerics.arrays import FloatArray, Rows, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import warn

if TYPE_CHECKING:
    from bsdr_models.compare.plane import PredictionPlane

# Classes up to which every model is fitted in about a minute.
MANY_CLASSES = 200


class ProbabilisticClassifier(ScoreMixin, ClassifierMixin, Estimator):
    """Predictions of classes, from the log probabilities of the posterior."""

    classes_: np.ndarray
    _exclusive = True
    _several: ClassVar[bool] = False  # whether a sample may have several labels
    _many_classes: ClassVar[bool] = False  # whether hundreds of classes take seconds

    def _read_targets(self, y: TargetLike, weights: FloatArray | None = None) -> Targets:
        targets = read_classes(y, getattr(self, "unlabeled", None), several=self._several)
        self._exclusive = targets.kind == "multiclass"
        self.classes_ = targets.names if self._exclusive else np.arange(len(targets.names))
        if self._exclusive and len(self.classes_) > MANY_CLASSES and not self._many_classes:
            warn(
                f"a fit of {type(self).__name__} to {len(self.classes_)} classes takes many "
                "minutes: BM2PCAClassifier takes a tenth of that"
            )
        return targets

    def _log_proba(self, X: Rows) -> FloatArray:
        """Log probabilities of scaled samples, (M, K)."""
        return self._posterior.log_probabilities(X)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        """Log probabilities at latent coordinates (G, R): (G, K)."""
        return self._posterior.log_probabilities_at(latent)

    def _linear_model(self, name: str) -> tuple[FloatArray, FloatArray | float]:
        coef, intercept = super()._linear_model(name)
        if self._exclusive and len(coef) == 2:
            return np.diff(coef, axis=0), np.diff(intercept)
        return coef, intercept

    @property
    def held_out_log_proba_(self) -> FloatArray | None:
        """Log probabilities of training samples, (n_samples, n_classes), without their labels.

        By the folds of the fit, each at the temperature of the other folds; means over its
        divisions. NaN of samples that were not held out, and None if none was.
        """
        check_is_fitted(self)
        log_p = self._result.held_out_log_proba
        kept = self._context.kept
        if log_p is None or kept is None:
            return log_p
        assert self._context.n_samples is not None
        every = np.full((self._context.n_samples, log_p.shape[1]), np.nan)
        every[kept] = log_p
        return every

    @cached_property
    def plane_(self) -> "PredictionPlane":
        """Plane of the predictions of training samples, held out if the fit has held some out."""
        check_is_fitted(self)
        if not (self._exclusive and self._context.targets.kind == "multiclass"):
            raise AttributeError("plane_ needs one class per sample")
        log_p = self.held_out_log_proba_
        if log_p is not None:
            log_p = log_p[~np.isnan(log_p).any(axis=1)]
        if log_p is None or not len(log_p):
            log_p = self._log_proba(self._prepare(self._context.X))
        plane: PredictionPlane = annex("compare.plane").PredictionPlane()
        return plane.fit(np.exp(log_p))

    def _held_out_proba(self) -> FloatArray | None:
        """Probabilities of training samples without their labels, (N, K); None if unknown.

        Those of samples without a label are predictions of the fit.
        """
        log_p = self._result.held_out_log_proba
        index = self._context.targets.index
        if log_p is None or index is None:
            return None
        if np.any(unlabelled := ~known_samples(index)):
            log_p = log_p.copy()
            log_p[unlabelled] = self._log_proba(self._prepare(self._context.X[unlabelled]))
        return np.exp(log_p)

    def _add_probabilities(self, tree: xr.DataTree, *, is_new: bool) -> None:
        fit = tree["fit"]
        if "class_frequency" not in fit or VARIABLE in fit:
            return
        probability = self._held_out_proba() if is_new else None
        if probability is not None:
            fit.dataset = fit.to_dataset().assign(probability=((OBS, LABEL), probability))
        add_class_probability(tree, "fit", self._log_proba_at)

    def _predictions(self, X: Rows) -> dict[str, np.ndarray]:
        return self._name_predictions(self._log_proba(X))

    def _name_predictions(self, log_p: FloatArray) -> dict[str, np.ndarray]:
        """Predictions by name, from log probabilities (M, K)."""
        return {"probability": np.exp(log_p), "predicted": self._most_probable(log_p)}

    @by_chunks
    def predict_log_proba(self, X: SamplesLike) -> FloatArray:
        """Log probabilities of the classes; see `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._log_proba(self._samples(X))

    @by_chunks
    def predict_proba(self, X: SamplesLike) -> FloatArray:
        """Probabilities of the classes; for multi-label problems, of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self._log_proba(self._samples(X)))

    @by_chunks
    def predict(self, X: SamplesLike) -> np.ndarray:
        """Most probable class; for multi-label problems, an indicator of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
        """
        return self._most_probable(self._log_proba(self._samples(X)))

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if not self._exclusive:
            return (log_p > np.log(0.5)).astype(int)
        return self.classes_[log_p.argmax(axis=1)]

    @by_chunks
    def decision_function(self, X: SamplesLike) -> FloatArray:
        """Log odds for two classes or multi-label problems, else log probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        log_p = self._log_proba(self._samples(X))
        if not self._exclusive:
            return log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300)))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self._several
        return tags
