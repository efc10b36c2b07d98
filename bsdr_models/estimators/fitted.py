"""What a fitted estimator of any model offers: coordinates, trees, effects, plots, files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.validation import (
    check_order,
    is_dask,
    match_columns,
    read_targets,
    sample_labels,
)
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.inference.result import Result
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.lazy import annex
from bsdr_models.numerics.arrays import FloatArray, IntArray, Rows, SamplesLike, TargetLike
from bsdr_models.numerics.latent import LatentCoordinates, Reference
from bsdr_models.numerics.process_state import DataWarning, numpy_errors, warn
from bsdr_models.numerics.scaling import Scaler, pad
from bsdr_models.summary import summarise, to_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# A sample is compared with the training samples if this share of its features
FEW = 0.05
# is so many standard deviations off, since one pixel that hardly varies in training is no reason,
FAR = 20.0
# or if one of them is so far, as by a wrong unit.
VERY_FAR = 1000.0
# It is unlike them if its tail probability is below this.
NIL = 1e-12


def by_chunks[M: Callable[..., Any]](method: M) -> M:
    """Let a method of X accept Dask arrays, and call it chunk by chunk; the result is lazy.

    The result for a sample must depend on that sample alone, and be an array.
    """

    @wraps(method)
    def called(model: Any, X: Any, **options: Any) -> Any:
        if is_dask(X):
            check_is_fitted(model)
            return annex("large.dask_arrays").map_chunks(method, model, X, **options)
        with numpy_errors():
            return method(model, X, **options)

    return cast(M, called)


class Fitted(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ABC):
    """Embedding, trees, effects of the features, plots, summary and saving.

    A fit sets ``_scaler``, ``_context`` (data and settings, for the trees) and ``_posterior``,
    which embeds and predicts scaled samples; every method here is built on these three.
    """

    _spec: ClassVar[ModelSpec]
    _exclusive = False  # whether a sample has one class
    _result: Result[Any]
    _posterior: Any
    _scaler: Scaler
    _context: Context
    _tree: xr.DataTree | None
    _made_tree: xr.DataTree | None  # as it was made of the state, which a file need not hold
    _reference: Reference | None = None  # of outliers to a linear map
    n_iter_: int
    converged_: bool
    interrupted_: bool

    @abstractmethod
    def _read(self, X: SamplesLike, *, reset: bool) -> Rows:
        """Samples as float64, (N, D), as far as the model takes them."""

    @classmethod
    def citation(cls) -> str:
        """The paper of the model, as a BibTeX entry.

        Examples
        --------
        >>> from bsdr_models import BSDRClassifier
        >>> print(BSDRClassifier.citation().splitlines()[0])
        @article{gonen2013bsdr,
        """
        return cls._spec.citation_bibtex

    def summary(self) -> pd.DataFrame:
        """Summary of the fit: data, engine, diagnostics, components.

        Returns
        -------
        DataFrame
            A column ``value`` of text, by name. The last rows, named remark, are warnings.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models.papers import PaperBSDRClassifier
        >>> model = PaperBSDRClassifier().fit(*load_wine(return_X_y=True))
        >>> print(model.summary().loc["classes", "value"])
        3: 0 (59), 1 (71), 2 (48)
        """
        check_is_fitted(self)
        return summarise(self)

    def selected_params(self) -> dict[str, object]:
        """Arguments with which another fit skips what this one has selected from the samples.

        With them the number of components, the settings of a cross-validation and the temperature
        of probabilities are given; all else is fitted, and the class frequencies have no part in
        predictions. Held-out scores of samples that took part in the selection are optimistic.

        Returns
        -------
        dict
            For `set_params`; empty if nothing was selected.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.base import clone
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import DGPLVMClassifier
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DGPLVMClassifier().fit(X[::3], y[::3])
        >>> sorted(model.selected_params())
        ['mapping__noise', 'mapping__width']
        >>> again = clone(model).set_params(**model.selected_params()).fit(X[1::3], y[1::3])
        """
        check_is_fitted(self)
        return self._selected_params()

    def _selected_params(self) -> dict[str, object]:
        return {}

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        """Scikit-learn's diagram, and the summary of a fit; only text if so configured."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _repr_html_inner(self) -> str:
        summary = to_html(self.summary()) if self.__sklearn_is_fitted__() else ""
        return str(super()._repr_html_inner()) + summary

    def _get_fitted_attr_html(self, doc_link: str = "") -> object:
        """Fitted attributes for scikit-learn's diagram, which would else compute `model_`."""
        bare = BaseEstimator()
        vars(bare).update(vars(self))
        shown = bare._get_fitted_attr_html(doc_link)
        shown.estimator_class = type(self)
        return shown

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_posterior")

    def _samples(self, X: SamplesLike) -> Rows:
        """New samples as the model takes them."""
        scaled = self._scale_new(X)
        self._warn_if_unlike(scaled)
        return self._prepare(scaled)

    def _warn_if_unlike(self, X: Rows) -> None:
        """Warn if scaled samples have no place in the distribution of the training samples.

        Only those far off are compared: all would take as long as the predictions.
        """
        if self._reference is None or issparse(X):
            return
        size = np.abs(X)
        far = ((size > FAR).mean(axis=1) >= FEW) | (size > VERY_FAR).any(axis=1)
        if not far.any():
            return
        some = self._prepare(X[far], bounded=False)
        tail = self._outliers(some).get("tail_probability", np.empty(0))
        if count := int((tail < NIL).sum()):
            warn(
                f"{count} of {len(X)} samples are unlike the training samples, so that their "
                "predictions mean little: compare units and codes of missing values, and see "
                "plots.plot_outliers(model.predict_idata(X), group='predictions')",
                DataWarning,
            )

    def _scale_new(self, X: SamplesLike) -> Rows:
        """New samples, validated and scaled."""
        check_is_fitted(self)
        return self._scaler.transform(self._read(X, reset=False))

    def _prepare(self, X: Rows, *, bounded: bool = True) -> Rows:
        """Scaled samples with values bounded and imputed as far as the model needs it."""
        return X

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, which :func:`bsdr_models.load` reads.

        The file is a zip archive of skops, without code. **It holds the training samples**, scaled,
        which `idata_`, `model_` and some predictions need. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path-like
            File to write, usually with the extension ``.skops``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If an argument of the estimator cannot be stored, such as a user's function.
        OSError
            If the file cannot be written.

        See Also
        --------
        bsdr_models.load : reads the file; an example.
        """
        from bsdr_models.persistence import save

        save(self, path)

    @property
    @abstractmethod
    def _method(self) -> InferenceMethod:
        """Inference method of the fit."""

    @abstractmethod
    def _make_tree(self) -> xr.DataTree:
        """Posterior, fit and data as a tree."""

    @abstractmethod
    def _predictions(self, X: Rows) -> dict[str, np.ndarray]:
        """Predictions of scaled samples by name, for the trees."""

    def _match_targets(self, y: TargetLike) -> TargetLike:
        """Targets of new samples, columns of a table in the order of those of the fit."""
        check_is_fitted(self)
        return y if self._exclusive else match_columns(y, self._context.targets.names)

    def _attrs(self) -> dict[str, object]:
        """Root attributes of the trees, beside those of the context."""
        return {} if self._reference is None else dict[str, object](self._reference.attrs())

    def _embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates of scaled samples."""
        return self._posterior.embed(X)

    def _locate(self, X: Rows) -> tuple[LatentCoordinates, dict[str, np.ndarray]]:
        """Latent coordinates and predictions by name of scaled samples, for the trees."""
        return self._embed(X), self._predictions(X)

    def _outliers(self, X: Rows) -> dict[str, FloatArray]:
        """Outlier statistics of scaled samples by name."""
        return {} if self._reference is None else self._reference.compare(X)

    @property
    def coef_(self) -> FloatArray:
        """Effects of the features, as given, on the class scores or outputs; posterior means.

        Of shape (n_classes, n_features), or (1, n_features) for two classes, whose effect is on the
        score of ``classes_[1]`` less that of ``classes_[0]``. Of a regressor (n_outputs,
        n_features), or (n_features,) if y was a vector. Zero for constant features.

        Class probabilities of BM2PCA are a formula of ``X @ coef_.T + intercept_``; those of BSDR
        are averages over the posterior of the scores (guide: predict in other programs).

        Raises
        ------
        AttributeError
            If the model is not linear in the features.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import BM2PCAClassifier
        >>> model = BM2PCAClassifier(random_state=0).fit(*load_wine(return_X_y=True))
        >>> model.coef_.shape, model.intercept_.shape
        ((3, 13), (3,))
        """
        return self._linear_model("coef_")[0]

    @property
    def intercept_(self) -> FloatArray | Any:
        """Class scores or outputs where all features are zero; of shape (n_classes,), see `coef_`.

        One number of a regressor if y was a vector.
        """
        return self._linear_model("intercept_")[1]

    @property
    def feature_importances_(self) -> FloatArray:
        """Share of each feature in the sum of squared effects of scaled features, (n_features,).

        Effects are those on differences of class scores or on outputs, of a nonlinear model mean
        slopes. The root of n_features times the share has a mean square of one, as the variable
        importance in projection (VIP) of PLS.

        Raises
        ------
        AttributeError
            If the model has neither effects nor slopes.

        See Also
        --------
        bsdr_models.plots.features_table : the order of features by what each tells alone.
        """
        fit = self.idata_["fit"]
        if "feature_relevance" not in fit:
            raise AttributeError(f"{type(self).__name__} has no effects of features in this fit")
        return np.array(fit["feature_relevance"].values)

    def _linear_model(self, name: str) -> tuple[FloatArray, FloatArray | float]:
        """Coefficients (K, D) of features as given and intercepts (K,), for an attribute."""
        check_is_fitted(self)
        effects = self._mean_effects()
        if effects is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name}: its predictions are not linear in the "
                "features. feature_importances_ has a number for each of them"
            )
        scaled, intercept = effects
        coef = pad(scaled.T, self._scaler.constant, axis=1) / self._scaler.scale
        return coef, intercept - coef @ self._scaler.location

    @property
    def _observed_samples(self) -> Rows:
        """Scaled training samples before imputation, (N, P)."""
        return self._observed if hasattr(self, "_observed") else self._context.X

    def _known(self) -> tuple[Rows, FloatArray, IntArray | None]:
        """Training samples before imputation, targets and groups, as of `Context.known`."""
        return self._context.known(self._observed_samples)

    def _mean_effects(self) -> tuple[FloatArray, FloatArray] | None:
        """Effects (P, K) of scaled features on scores or outputs, and intercepts (K,), if linear.

        Features that are constant are left out.
        """
        return None

    @property
    def idata_(self) -> xr.DataTree:
        """Posterior draws, fit and data as a DataTree, for ArviZ and the plots."""
        check_is_fitted(self)
        if is_new := self._tree is None:
            self._tree = self._make_tree()
        self._add_probabilities(self._tree, is_new=is_new)
        if is_new:
            self._made_tree = self._tree.copy()
        return self._tree

    def _add_probabilities(self, tree: xr.DataTree, *, is_new: bool) -> None:
        """Add what a classifier predicts of training samples and of places of the map."""

    def predict_idata(self, X: SamplesLike, y: TargetLike | None = None) -> xr.DataTree:
        """Latent coordinates and predictions of new samples as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        y : array-like, optional
            True targets.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: ``latent_mean``, ``latent_cov``, ``y``; of classifiers
            ``probability`` and ``predicted``, of regressors ``prediction`` and ``prediction_sd``;
            and measures of outliers: ``t2``, ``q_residual``, ``tail_probability``
            (:mod:`bsdr_models.numerics.latent`), or ``out_of_range`` of a mapping.
        """
        check_order(X, y)
        samples = sample_labels(X)
        scaled = self._scale_new(X)
        self._warn_if_unlike(scaled)
        given = self._prepare(scaled, bounded=False)
        latent, values = self._locate(self._prepare(scaled))
        if y is not None:
            y = read_targets(self._match_targets(y))
            # A column of classes becomes a vector.
            y = y.ravel() if self._exclusive and y.shape[1:] == (1,) else y
        return self._context.predictions_tree(
            self._spec,
            latent=latent,
            values=values | self._outliers(given),
            y=y,
            samples=samples,
            inference_method=self._method,
            attrs=self._attrs(),
            log_proba_at=getattr(self, "_log_proba_at", None),
        )

    @by_chunks
    def transform(self, X: SamplesLike, *, return_cov: bool = False) -> FloatArray | Any:
        """Latent coordinates of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array
            A Dask array gives a Dask array, as for the other predictions. For BM2PCA also a sparse
            matrix; NaN there marks a missing value.
        return_cov : bool
            Also return the covariance of the latent coordinates of each sample.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
            Posterior predictive mean of the latent coordinates, given the features alone.
        cov : ndarray of shape (n_samples, n_components, n_components)
            Their covariance, if ``return_cov``. Mean field underestimates it.
        """
        scaled = self._samples(X)
        if not return_cov:
            return self._latent_means(scaled)
        latent = self._embed(scaled)
        return latent.mean, latent.cov

    def _latent_means(self, X: Rows) -> FloatArray:
        """Latent coordinates of scaled samples, without their covariance."""
        means = getattr(self._posterior, "latent", None)  # which take less time
        return self._embed(X).mean if means is None else np.asarray(means(X))

    def plot_map(
        self, X: SamplesLike | None = None, y: TargetLike | None = None, **options: Any
    ) -> "Axes":
        """Plot samples and what is predicted for them, see :func:`bsdr_models.plots.plot_map`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            New samples; by default the training samples, at their predictions without their labels
            if the fit has made these.
        y : array-like, optional
            Their true targets.
        **options
            As for :func:`bsdr_models.plots.plot_map`.

        Returns
        -------
        matplotlib.axes.Axes

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import DGPLVMClassifier
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DGPLVMClassifier(random_state=0).fit(X[::2], y[::2])
        >>> ax = model.plot_map(X[1::2], y[1::2])
        """
        from bsdr_models.plots import plot_map

        return plot_map(self._tree_of(X, y), **options)

    def _tree_of(self, X: SamplesLike | None, y: TargetLike | None) -> xr.DataTree:
        """Tree of new samples, of the fit if there are none."""
        if X is None and y is not None:
            raise ValueError("y is given without the samples X")
        return self.idata_ if X is None else self.predict_idata(X, y)
