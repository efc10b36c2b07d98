"""What all regressors have in common: outputs in their own units, means and standard deviations."""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import column_names, read_numbers
from bsdr_models.estimators.base import Estimator, ScoreMixin
from bsdr_models.numerics.arrays import FloatArray, Rows, SamplesLike, TargetLike
from bsdr_models.numerics.scaling import Scaler


class GaussianRegressor(ScoreMixin, RegressorMixin, Estimator):
    """Predictions of real targets, which are standardised for the model."""

    # Whether some outputs may be missing.
    _missing_outputs: ClassVar[bool] = False

    @abstractmethod
    def _moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of standardised outputs of scaled samples, each (M, K)."""

    def _read_targets(self, y: TargetLike, weights: FloatArray | None = None) -> Targets:
        """Outputs in their own units and as the model sees them."""
        values = read_numbers(y, missing=self._missing_outputs)
        self._one_output = values.ndim == 1
        Y = values.reshape(len(values), -1)
        names = np.array(column_names(y, "y", Y.shape[1]))
        if (empty := np.isnan(Y).all(axis=0)).any():
            raise ValueError(f"output {int(empty.argmax())} of y has no target at all")
        scaler = Scaler.fit(Y, weights=weights)
        if scaler.constant.any():
            raise ValueError(f"output {int(scaler.constant.argmax())} of y is constant")
        self.y_mean_ = scaler.location
        self.y_scale_ = scaler.scale
        attrs = {"y_mean": scaler.location.tolist(), "y_scale": scaler.scale.tolist()}
        return Targets(kind="regression", y=Y, coded=scaler.transform(Y), names=names, attrs=attrs)

    def predict(self, X: SamplesLike, *, return_std: bool = False) -> FloatArray | Any:
        """Posterior predictive mean of the outputs, and their standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        return_std : bool
            Also return the standard deviation of a new output, which includes its noise.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        scaled = self._samples(X)
        if not return_std:
            return self._match_shape(self._means(scaled) * self.y_scale_ + self.y_mean_)
        mean, std = self._predictions(scaled).values()
        return self._match_shape(mean), self._match_shape(std)

    def _linear_model(self, name: str) -> tuple[FloatArray, FloatArray | float]:
        coef, intercept = super()._linear_model(name)
        coef = coef * self.y_scale_[:, None]
        intercept = intercept * self.y_scale_ + self.y_mean_
        return (coef[0], float(intercept[0])) if self._one_output else (coef, intercept)

    def _means(self, X: Rows) -> FloatArray:
        """Mean of standardised outputs of scaled samples, (M, K)."""
        return self._moments(X)[0]

    def _match_shape(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self._one_output else values

    def _predictions(self, X: Rows) -> dict[str, np.ndarray]:
        mean, std = self._moments(X)
        return {
            "prediction": mean * self.y_scale_ + self.y_mean_,
            "prediction_sd": std * self.y_scale_,
        }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
