"""Base classes of the estimators of BM2PCA: scaling, missing values, class scores."""

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import xarray as xr
from scipy.sparse import csr_array, issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca.factor_model import (
    FactorModel,
    fit_factor_model,
    impute,
)
from bsdr_models.bm2pca.trees import SPEC, make_tree
from bsdr_models.data.validation import (
    MAX_RAW,
    check_variation,
    fit_scaler,
    validate_samples,
)
from bsdr_models.estimators.base import Estimator
from bsdr_models.numerics.arrays import FloatArray, Rows, SamplesLike
from bsdr_models.numerics.association import associate
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.numerics.relevance import LatentCoordinates, feature_relevance, relevance
from bsdr_models.numerics.scaling import TOO_LARGE, Scaler
from bsdr_models.options import COUNT


class BaseBM2PCA(Estimator):
    """Embedding and imputation; subclasses fit and predict."""

    _spec = SPEC
    # Whether X may be sparse.
    _sparse: ClassVar[bool] = True
    # Whether each dense feature is scaled to unit variance; always if there is a metric.
    standardize: bool = True
    # Bound of scaled values of new samples, (P,), or None.
    _largest: FloatArray | None = None
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {"n_components": [COUNT]}

    def _read(self, X: SamplesLike, *, reset: bool) -> Rows:
        """Samples as float64, NaN where missing; or CSR, whose entries not stored are zero."""
        least = 1 + reset
        X = validate_samples(self, X, reset=reset, sparse=self._sparse, missing=True, least=least)
        if not issparse(X):
            return X
        X = csr_array(X)
        if not np.isfinite(X.data).all():
            raise ValueError("Input X contains NaN, which sparse X cannot have: 0 is not missing")
        if np.abs(X.data).max(initial=0.0) > TOO_LARGE:
            raise ValueError(
                "X is sparse, so never scaled, and holds values too large to compute with"
            )
        return X

    def _scale(self, X: Rows) -> Rows:
        """Scaled training samples; sparse ones are not scaled."""
        if issparse(X):
            value = X.max(axis=0).toarray()
            constant = value == X.min(axis=0).toarray()
            scaler = Scaler.identity(X.shape[1])
            scaler = replace(scaler, mean=np.where(constant, value, 0.0), constant=constant)
            self._set_scaler(check_variation(self, scaler))
            if (size := np.abs(X.data).max()) < 1.0 / MAX_RAW:
                raise ValueError(
                    f"X is sparse, so never scaled, and no value is larger than {size:.3g}: give "
                    "other units"
                )
            return self._scaler.select(X)
        weights = self._context.weights
        scaler = fit_scaler(self, X, standardize=self.standardize, weights=weights)
        self._set_scaler(scaler if self.standardize else scaler.with_common_scale(X))
        empty = np.isnan(self._scaler.select(X)).all(axis=1)
        if empty.any():
            sample = int(empty.argmax())
            raise ValueError(f"sample {sample} of X has no observed value of varying features")
        return self._scaler.transform(X)

    def _scale_new(self, X: SamplesLike) -> Rows:
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if issparse(X):
            if issparse(self._context.X):
                return self._scaler.select(X)
            X = X.toarray()
        return self._scaler.transform(X)

    def _prepare(self, X: Rows, *, bounded: bool = True) -> Rows:
        if self._largest is None or not bounded or issparse(X):
            return X
        return np.clip(X, -self._largest, self._largest)

    def _impute(self, X: Rows) -> Rows:
        """Scaled samples with missing values imputed."""
        return X if issparse(X) or not np.isnan(X).any() else impute(self._imputers, X)

    @cached_property
    def _imputers(self) -> tuple[FactorModel, ...]:
        """Factor models that impute missing values: of the fit, or of the features alone."""
        if hasattr(self, "_posterior") and self._posterior.factor_models:
            return self._posterior.factor_models
        with one_thread():
            rng = np.random.default_rng(self._seed)
            return (fit_factor_model(self._observed_samples, rng),)

    def _complete(self, X: Rows) -> Rows:
        """Scaled samples as the posterior takes them."""
        return X if self._posterior.factor_models else self._impute(X)

    def _embed(self, X: Rows) -> LatentCoordinates:
        return self._posterior.embed(self._complete(X))

    def _latent_means(self, X: Rows) -> FloatArray:
        return self._posterior.latent(self._complete(X))

    def impute(self, X: SamplesLike) -> Rows:
        """Replace every NaN by its posterior mean given the observed values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray or sparse array of shape (n_samples, n_features)
            Observed values are unchanged. Sparse samples have no missing values, since entries that
            are not stored are zero.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if issparse(X) or not (missing := np.isnan(X)).any():
            return X
        filled = self._scaler.inverse(self._impute(self._scaler.transform(X)))
        return np.where(missing, filled, X)

    def _name_fitted(self) -> None:
        posterior = self._posterior
        X = self._context.X
        share = relevance(posterior.latent(X), self._contrast, self._context.weights)
        self._set_components(posterior.projection, share, self._impute(X))
        if self._method == "map":
            self.objective_ = self._result.trace
        else:
            self.lower_bounds_ = self._result.trace

    @property
    def _contrast(self) -> FloatArray:
        """Weights of the components in the differences of class scores."""
        return self._context.contrast(self._context.per_class(self._posterior.mean_weights))

    def _mean_effects(self) -> tuple[FloatArray, FloatArray]:
        coef, intercept = self._posterior.effects()
        return coef, intercept

    def _outliers(self, X: Rows) -> dict[str, FloatArray]:
        return super()._outliers(self._impute(X))

    def _make_tree(self) -> xr.DataTree:
        attrs: dict[str, object] = {"interrupted": int(self._result.interrupted)}
        group: dict[str, object] = {
            **associate(*self._known()),
            "feature_relevance": feature_relevance(self._posterior.projection, self._contrast),
            "relevance": self.relevance_,
        }
        if self._reference is not None:
            group |= self._reference.compare_training(self._impute(self._context.X))
            attrs |= self._reference.attrs()
        return make_tree(
            self._result,
            self._context,
            group=group,
            attrs=attrs,
            method=self._method,
            rng=np.random.default_rng(self._seed),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._sparse
        tags.input_tags.allow_nan = True
        return tags
