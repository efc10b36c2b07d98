"""What both classifiers of BM2PCA have in common: class scores and settings."""

from typing import ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import Tags

from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.factor_model import spread_of_missing
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.estimators.base import by_chunks
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.numerics.arrays import FloatArray, SamplesLike
from bsdr_models.numerics.process_state import warn
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.scaling import largest_scaled


class MarginClassifier(ProbabilisticClassifier, BaseBM2PCA):
    """Predictions of a max-margin classifier; subclasses have settings and an engine."""

    _several: ClassVar[bool] = True

    def _scale(self, X: Rows) -> Rows:
        X = super()._scale(X)
        if self.standardize and not issparse(X):
            self._largest = largest_scaled(X)
        return X

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.temperature_ = self._posterior.probabilities.calibration.temperature

    def _held_out_known(self, n_held_out: int) -> bool:
        """Whether samples can be held out; warns if not."""
        if n_held_out:
            return True
        reason = "every class has one sample only"
        if self._context.groups is not None:
            reason = "no group can be held out, since each has all samples of a class"
        warn(f"{reason}: fallback settings are used and probabilities are not calibrated")
        return False

    def _selected_params(self) -> dict[str, object]:
        loss: HingeLoss = self._option("loss")
        if not loss.calibrate:
            return {"loss__C": self.C_}
        return {"loss__C": self.C_, "loss__calibrate": self.temperature_}

    @by_chunks
    def decision_function(self, X: SamplesLike) -> FloatArray:
        """Class scores f, positive for the class; not log odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        X = self._samples(X)  # raises NotFittedError
        scores = self._posterior.scores(self._complete(X))
        return scores[:, 0] if self._exclusive and scores.shape[1] == 1 else scores

    def _log_proba(self, X: Rows) -> FloatArray:
        posterior = self._posterior
        if posterior.factor_models or issparse(X) or not (missing := np.isnan(X)).any():
            return posterior.log_probabilities(X)
        # Class scores are as uncertain as what is missing leaves them.
        log_p = np.empty((len(X), len(self.classes_)))
        part = missing.any(axis=1)
        log_p[~part] = posterior.log_probabilities(X[~part])
        scores = posterior.scores(self._impute(X[part]))
        (imputer,) = self._imputers
        cov = spread_of_missing(imputer, X[part], posterior.effects()[0])
        log_p[part] = posterior.probabilities(scores, cov)
        frequency = posterior.probabilities.calibration.log_frequency
        if frequency is not None:  # as known as without features
            log_p[missing.all(axis=1)] = frequency if self._exclusive else frequency[:, 1]
        return log_p

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
