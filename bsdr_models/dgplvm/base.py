"""What the recommended classifier and that of the paper have in common."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.base import ProbabilisticClassifier
from bsdr_models.dgplvm import settings, trees
from bsdr_models.dgplvm.learn import FitResult
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.inference.datatree import Context
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.rng import as_generator
from bsdr_models.validation import (
    check_latent,
    encode_known,
    feature_names,
    fit_scaler,
    known_entries,
    one_thread,
    require_targets,
    sample_labels,
    validate_samples,
)


class BaseDGPLVM(ProbabilisticClassifier):
    """Validation of the data, fitted attributes and predictions."""

    _spec = SPEC
    n_components: int | None
    optimization: settings.Optimization | None
    unlabeled: Any
    standardize: bool | Literal["auto"]

    def fit(self, X: Any, y: Any, *, sequence: Any = None) -> Self:
        """Fit latent coordinates, mapping and classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes; entries equal to ``unlabeled`` have none.
        sequence : array-like of shape (n_samples,), optional
            Sequence of each sample; those of one sequence are in order of time. Latent coordinates
            then have Gaussian process dynamics, Eqs. (19) and (20) of the paper.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the input is not finite or of the wrong shape, fewer than two classes are labelled,
            no feature varies, or an argument is out of range.
        """
        self._reset()
        self._check_params()
        require_targets(self, y)
        samples, X = sample_labels(X), validate_samples(self, X, reset=True, least=2)
        given, known = known_entries(y, self.unlabeled)
        self.classes_, index = encode_known(given, known)
        check_consistent_length(X, index)
        if sequence is not None:
            check_consistent_length(X, sequence)
            check_array(sequence, ensure_2d=False, dtype=None, input_name="sequence")
        rng = as_generator(self.random_state)
        n_components = settings.choose_components(self.n_components, len(self.classes_))
        X = self._scale(X)
        with one_thread(), self._fitting(X.shape):
            result = self._learn(X, index, n_components, sequence, rng)
            self._posterior: Any = result.posterior
            self._context = self._make_context(result, X, index, given.ravel(), samples)
            self._set_fitted(result)
        return self

    @abstractmethod
    def _learn(
        self,
        X: FloatArray,
        y_index: IntArray,
        n_components: int,
        sequence: Any,
        rng: np.random.Generator,
    ) -> FitResult:
        """Fit to scaled samples (N, D) and the index of their classes (N,), -1 without a label."""

    def _scale(self, X: FloatArray) -> FloatArray:
        """Fit the scaler to the training samples and apply it."""
        scaler = fit_scaler(X, standardize=True)
        each = settings.in_different_units(X) if self.standardize == "auto" else self.standardize
        if not each:
            scaler = settings.common_scale(scaler)
        self._scaler, self.standardized_ = scaler, bool(each)
        return scaler.transform(X)

    def _make_context(
        self,
        result: FitResult,
        X: FloatArray,
        index: IntArray,
        y: np.ndarray,
        samples: np.ndarray | None,
    ) -> Context:
        return Context(
            target="multiclass",
            X=X,
            y=y,
            samples=samples,
            index=index,
            feature_names=feature_names(self),
            labels=self.classes_,
            config=self._config(),
            attrs={
                "weight": result.weight,
                "criterion": result.criterion,
                "objective": "log posterior density",
                **result.settings,
                **result.held_out.attrs(),
            },
        )

    def _set_fitted(self, result: FitResult) -> None:
        """Set the fitted attributes and issue the warnings of a fit."""
        index, self._learned = self._context.index, result
        assert index is not None
        self._tree: xr.DataTree | None = None
        self.latent_ = result.latent
        self._n_features_out = result.latent.shape[1]
        self.relevance_ = trees.relevance(result.left_out.mean, index)
        self.log_density_, self.n_iter_ = result.trace, len(result.trace)
        self.converged_, self.interrupted_ = result.converged, result.interrupted
        for message in result.messages:
            warnings.warn(message, UserWarning, stacklevel=3)
        if result.sampled is None and not (self.converged_ or self.interrupted_):
            max_iter = self._option("optimization").max_iter
            warnings.warn(
                f"the search stopped after max_iter={max_iter} iterations; the result is "
                "usable, but a larger max_iter brings it closer to the optimum",
                ConvergenceWarning,
                stacklevel=3,
            )

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Mean features at latent coordinates, Eq. (15) of the paper.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        mean, _ = self._learned.decoder.features(check_latent(Z, self._n_features_out))
        return self._scaler.inverse(mean)

    def _latent_means(self, X: FloatArray) -> FloatArray:
        with one_thread():
            latent: FloatArray = self._posterior.latent(X)
        return latent

    def _embed(self, X: FloatArray) -> LatentCoordinates:
        with one_thread():
            return super()._embed(X)

    def _log_proba(self, X: FloatArray) -> FloatArray:
        with one_thread():
            return super()._log_proba(X)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        with one_thread():
            return super()._log_proba_at(latent)

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        return trees.out_of_range(self._posterior.embedder, X)

    def _attrs(self) -> dict[str, Any]:
        return {}

    def _selected_params(self) -> dict[str, Any]:
        return {"standardize": self.standardized_}

    @property
    def _messages(self) -> Sequence[str]:
        messages: Sequence[str] = self._learned.messages
        return messages

    def _make_tree(self) -> xr.DataTree:
        with one_thread():
            return trees.fit_tree(self._learned, self._context, inference_method=self._method)
