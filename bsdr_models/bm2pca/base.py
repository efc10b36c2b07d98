"""Base class of the estimators of BM2PCA: scaling, views, missing values, reconstruction."""

from functools import partial
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import check_is_fitted

from bsdr_models import validation
from bsdr_models.arrays import FloatArray
from bsdr_models.base import Estimator
from bsdr_models.bm2pca import trees
from bsdr_models.bm2pca.paper import factor_model
from bsdr_models.bm2pca.paper import fit as paper
from bsdr_models.bm2pca.paper.factor_model import FactorModel, Rows
from bsdr_models.bm2pca.paper.views import Moments, make_view
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import FitResult, Task
from bsdr_models.dask_arrays import is_chunked, not_in_memory
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.numerics.relevance import relevance
from bsdr_models.numerics.scaling import TOO_LARGE, Scaler
from bsdr_models.options import COUNT
from bsdr_models.rng import as_generator
from bsdr_models.validation import MAX_RAW, check_latent, fit_scaler, one_thread

validate_samples = partial(validation.validate_samples, missing=True)


class BaseBM2PCA(Estimator):
    """Embedding and reconstruction; subclasses validate targets, fit and predict."""

    _spec = SPEC
    _learned: FitResult
    _scaler: Scaler | None  # type: ignore[assignment]
    # Bound of scaled values of new samples, (P,), or None.
    _largest: FloatArray | None = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"n_components": [COUNT]}

    def _validate(self, X: Any, y: Any) -> Rows:
        """Validate training samples: float64, NaN marks a missing value."""
        if is_chunked(X):
            raise not_in_memory(self, X)
        validation.require_targets(self, y)
        return validate_samples(self, X, reset=True, sparse=True, least=2)

    def _make_task(self, X: Rows, Y: FloatArray, **options: Any) -> Task:
        """Scale validated samples and combine them with encoded targets."""
        n_components = min(int(self.n_components), X.shape[1])
        return Task(X=self._scale(X), Y=Y, n_components=n_components, **options)

    def _scale(self, X: Rows) -> Rows:
        """Fit the scaling of the training samples and apply it; sparse samples are unchanged."""
        if issparse(X):
            X = finite_csr(X)
            if np.array_equal(X.max(axis=0).toarray(), X.min(axis=0).toarray()):
                raise ValueError("X has no variation: all rows are equal")
            if (size := np.abs(X.data).max()) < 1.0 / MAX_RAW:
                raise ValueError(
                    f"X is sparse, so never scaled, and no value is larger than {size:.3g}: give "
                    "other units"
                )
            self._scaler = None
            self.mean_, self.scale_ = np.zeros(X.shape[1]), np.ones(X.shape[1])
            return X
        if (empty := np.isnan(X).all(axis=1)).any():
            raise ValueError(f"sample {int(empty.argmax())} of X has no observed value")
        scaler = fit_scaler(X, standardize=self.standardize)
        self._scaler = scaler if self.standardize else scaler.with_common_scale(X)
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        return self._scaler.transform(X)

    def _scale_new(self, X: Any) -> Rows:
        check_is_fitted(self)
        X = validate_samples(self, X, reset=False, sparse=True)
        if issparse(X):
            X = finite_csr(X)
            if self._scaler is None:
                return X
            X = X.toarray()
        return X if self._scaler is None else self._scaler.transform(X)

    def _prepare(self, X: Rows, *, bounded: bool = True) -> Rows:
        if issparse(X):
            return X
        if bounded and self._largest is not None:
            X = np.clip(X, -self._largest, self._largest)
        if np.isnan(X).any() and self._learned.factor_model is None:
            return self._completer.impute(X)
        return X

    @property
    def _completer(self) -> FactorModel:
        """Factor model that imputes missing values."""
        if self._learned.factor_model is not None:
            return self._learned.factor_model
        if not hasattr(self, "_lazy_completer"):
            rng = np.random.default_rng(self._seed)
            with one_thread():
                self._lazy_completer = paper.fit_completer(self._observed, rng)
        return self._lazy_completer

    @property
    def _decoder(self) -> FactorModel:
        """Factor model that maps latent coordinates to features."""
        if self._learned.factor_model is not None:
            return self._learned.factor_model
        if not hasattr(self, "_lazy_decoder"):
            with one_thread():
                self._lazy_decoder = _fit_decoder(self._learned, self._task)
        return self._lazy_decoder

    def _latent_means(self, X: Rows) -> FloatArray:
        means: FloatArray = self._posterior.latent(X)
        return means

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Features at latent coordinates: E[W] z + E[t] of the factor model.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        Z = check_latent(Z, self._n_features_out)
        factor_model = self._decoder
        p, r = factor_model.shape
        X = factor_model.reconstruct(np.moveaxis(Z.reshape(len(Z), p, r), 1, 0))
        return X if self._scaler is None else self._scaler.inverse(X)

    def impute(self, X: Any) -> Rows:
        """Replace every NaN by its posterior mean given the observed values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray or sparse array of shape (n_samples, n_features)
            Observed values are unchanged. Sparse samples have no missing values, since entries that
            are not stored are zero.
        """
        check_is_fitted(self)
        X = validate_samples(self, X, reset=False, sparse=True)
        if issparse(X):
            return finite_csr(X)
        missing = np.isnan(X)
        if not missing.any():
            return X
        scaled = X if self._scaler is None else self._scaler.transform(X)
        filled = self._completer.impute(scaled)
        filled = filled if self._scaler is None else self._scaler.inverse(filled)
        return np.where(missing, filled, X)

    def _set_fitted(self, result: FitResult, context: Context) -> None:
        """Set the fitted attributes."""
        self._learned, self._context, self._posterior = result, context, result.posterior
        self._tree: xr.DataTree | None = None
        compared = trees.compare_samples(result, self._task.X)
        self._reference = None if compared is None else compared[0]
        latent = result.posterior.latent(self._task.X)
        self.relevance_ = relevance(latent, trees.class_contrast(result.posterior, context))
        self.components_ = result.posterior.projection.T
        self._n_features_out = len(self.components_)
        self.lower_bounds_ = result.elbo
        self.n_iter_ = len(self.lower_bounds_)
        self.converged_, self.interrupted_ = result.converged, result.interrupted

    def _outliers(self, X: Rows) -> dict[str, FloatArray]:
        return super()._outliers(trees.complete(self._learned, X))

    @property
    def _method(self) -> InferenceMethod:
        method: InferenceMethod = getattr(self, "inference", "mean_field")
        return method

    def _make_tree(self) -> xr.DataTree:
        rng = np.random.default_rng(self._seed)
        return trees.posterior_tree(
            self._learned, self._context, inference_method=self._method, rng=rng
        )

    def _spawn(self) -> tuple[np.random.Generator, np.random.Generator]:
        """Random streams of the cross-validation and of the fit; the seed of later draws."""
        select, fit, later = as_generator(self.random_state).spawn(3)
        self._seed = int(later.integers(2**63))
        return select, fit

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def finite_csr(X: Any) -> csr_array:
    """Finite sparse samples in CSR format; entries that are not stored are zero, not missing."""
    X = csr_array(X)
    if not np.isfinite(X.data).all():
        raise ValueError("Input X contains NaN, which sparse X cannot have: 0 is not missing")
    if np.abs(X.data).max(initial=0.0) > TOO_LARGE:
        raise ValueError("X is sparse, so never scaled, and holds values too large to compute with")
    return X


def _fit_decoder(result: FitResult, task: Task) -> FactorModel:
    """Factor model of the features given the embedding of a fit that has none."""
    found = result.posterior.embed(task.X)
    mean, cov = found.mean[None], found.cov[None]
    view = make_view(task.X)
    second = np.swapaxes(mean, 1, 2) @ mean + cov.sum(axis=1)
    moments = Moments(
        total=mean.sum(axis=1)[:, None], second=second[:, None], cross=view.project_back(mean)
    )
    states = factor_model.fit_decoder((moments,), (view,), task.priors)
    return FactorModel.of(states, (view,), (None,))
