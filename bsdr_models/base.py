"""What all estimators have in common.

A fit sets ``_scaler``, ``_context`` (data and settings, for the trees) and ``_posterior``, which
embeds and predicts scaled samples; every method after the fit is built on these three. An estimator
of a model validates its targets and arguments, calls its engine, and makes the tree of a fit.
"""

import logging
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dask_arrays import by_chunks
from bsdr_models.dims import LABEL, OBS
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule
from bsdr_models.latent_grid import VARIABLE, add_class_probability
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import N_DRAWS, N_JOBS, StrOptions, check_parameters
from bsdr_models.plane import PredictionPlane
from bsdr_models.spec import ModelSpec
from bsdr_models.summary import summarise, to_html
from bsdr_models.validation import (
    check_order,
    check_samples,
    encode_known,
    feature_names,
    known_entries,
    read_numbers,
    read_targets,
    require_targets,
    sample_labels,
    validate_samples,
)

logger = logging.getLogger(__name__)


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Fitted state, embedding, trees, plots, summary and saving of all estimators."""

    _spec: ClassVar[ModelSpec]
    _exclusive = False  # whether a sample has one class
    # Classes of the hyper-parameters and option objects, by argument; None is their default.
    _option_types: ClassVar[dict[str, type[Any]]] = {}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "metric": [StrOptions({"auto", "unit", "identity"})],
        "standardize": ["boolean"],
        "n_jobs": N_JOBS,
        "progressbar": ["boolean"],
    }
    _result: Result[Any]
    _posterior: Any
    _scaler: Scaler
    _context: Context
    _tree: xr.DataTree | None
    _made_tree: xr.DataTree | None  # as it was made of the state, which a file need not hold
    _reference: Reference | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Copy an inherited constructor, so that Python's errors name this class."""
        super().__init_subclass__(**options)
        init: Any = cls.__init__
        if "__init__" in vars(cls) or not isinstance(init, FunctionType):
            return
        own = FunctionType(
            init.__code__, init.__globals__, "__init__", init.__defaults__, init.__closure__
        )
        own.__kwdefaults__ = init.__kwdefaults__
        own.__annotations__ = init.__annotations__
        own.__qualname__ = f"{cls.__name__}.__init__"
        cls.__init__ = own  # type: ignore[method-assign]

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
            A column ``value`` of text, by name; the last rows, named remark, are warnings.

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

    def selected_params(self) -> dict[str, Any]:
        """Arguments with which another fit skips what this one has selected from the samples.

        With them the number of components, the settings of a cross-validation and the calibration
        of probabilities are given; all else is fitted. Held-out scores of samples that took part in
        the selection are optimistic.

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
        >>> model.selected_params()
        {'mapping__width': 2.0, 'mapping__noise': 0.1, 'standardize': True}
        >>> again = clone(model).set_params(**model.selected_params()).fit(X[1::3], y[1::3])
        """
        check_is_fitted(self)
        return self._selected_params()

    def _selected_params(self) -> dict[str, Any]:
        return {}

    def _option(self, name: str) -> Any:
        """Option object or hyper-parameters, with their defaults for None."""
        value = getattr(self, name)
        return self._option_types[name]() if value is None else value

    def _check_params(self) -> None:
        """Raise a ValueError if an argument has the wrong type or value."""
        options = {name: [kind, None] for name, kind in self._option_types.items()}
        check_parameters(
            Estimator._parameter_constraints | options | self._parameter_constraints,
            self.get_params(deep=False),
            type(self).__name__,
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments by name.

        Parameters
        ----------
        deep : bool
            Also those of given option objects and hyper-parameters, such as ``sampling__draws``.

        """
        params: dict[str, Any] = super().get_params(deep=False)
        for name, option in list(params.items()):
            if deep and name in self._option_types and is_dataclass(option):
                params |= {f"{name}__{f.name}": getattr(option, f.name) for f in fields(option)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set arguments.

        Parameters
        ----------
        **params
            By name; ``sampling__draws=100`` replaces one of the options in ``sampling``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument or option does not exist, or an option is out of range.

        Examples
        --------
        >>> from bsdr_models import BM2PCAClassifier
        >>> BM2PCAClassifier().set_params(loss__C=10.0)
        BM2PCAClassifier(loss=HingeLoss(C=10.0, strategy='shared', calibrate=True))
        """
        nested: dict[str, dict[str, Any]] = {}
        for key in [key for key in params if "__" in key]:
            name, _, field = key.partition("__")
            nested.setdefault(name, {})[field] = params.pop(key)
        super().set_params(**params)
        for name, values in nested.items():
            option: Any = self._option(name) if name in self._option_types else None
            known = {field.name for field in fields(option)} if is_dataclass(option) else set()
            if unknown := values.keys() - known:
                argument = f"{name}__{min(unknown)}"
                raise ValueError(f"{type(self).__name__} has no argument {argument!r}")
            setattr(self, name, replace(option, **values))
        return self

    @property
    def _messages(self) -> Sequence[str]:
        """Warnings of the fit that its attributes do not tell."""
        return ()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Scikit-learn's diagram, and the summary of a fit; only text if so configured."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_()
        return bundle

    @property
    def _repr_html_(self) -> Any:
        diagram: Any = super()._repr_html_
        return lambda: diagram() + (to_html(self.summary()) if self.__sklearn_is_fitted__() else "")

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Fitted attributes for scikit-learn's diagram, which would else compute `model_`."""
        bare: Any = BaseEstimator()
        vars(bare).update(vars(self))
        shown = bare._get_fitted_attr_html(doc_link)
        shown.estimator_class = type(self)
        return shown

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_posterior")

    def _reset(self) -> None:
        """Delete the results of an earlier fit."""
        kept = {*self.get_params(deep=False), "_metadata_request", "_sklearn_output_config"}
        kept |= {"_skl_callbacks", "_parent_callback_ctx"}  # set by a Pipeline during its fit
        for name in vars(self).keys() - kept:
            delattr(self, name)

    def _set_result(self, result: Result[Any], context: Context) -> None:
        """Set what every fit has, and issue its warnings."""
        self._result = result
        self._context = context
        self._posterior = result.posterior
        self._tree = self._made_tree = None
        self.n_iter_ = len(result.trace)
        self.converged_ = result.converged
        self.interrupted_ = result.interrupted
        for message in result.messages:
            warnings.warn(message, UserWarning, stacklevel=4)
        if result.advice:
            warnings.warn(result.advice, ConvergenceWarning, stacklevel=4)

    def _config(self, **resolved: Any) -> dict[str, Any]:
        """Arguments that determine the fit, apart from the random state, for the trees."""
        config = self.get_params(deep=False)
        config |= {name: asdict(self._option(name)) for name in self._option_types}
        for name in ("random_state", "n_jobs", "views"):
            config.pop(name, None)
        if config.get("unlabeled") is not None:
            config["unlabeled"] = str(config["unlabeled"])
        return config | resolved

    def _schedule(self) -> Schedule:
        """Length of a sampler's run."""
        sampling = self._option("sampling")
        return Schedule(
            draws=N_DRAWS if sampling.draws is None else int(sampling.draws),
            tune=int(sampling.tune),
            chains=int(sampling.chains),
            progressbar=self.progressbar,
        )

    def _samples(self, X: Any) -> Any:
        """New samples as the model takes them."""
        return self._prepare(self._scale_new(X))

    def _scale_new(self, X: Any) -> Any:
        """New samples, validated and scaled."""
        check_is_fitted(self)
        return self._scaler.transform(validate_samples(self, X, reset=False))

    def _prepare(self, X: Any, *, bounded: bool = True) -> Any:
        """Scaled samples with values bounded and imputed as far as the model needs it."""
        return X

    @contextmanager
    def _fitting(self, shape: tuple[int, int]) -> Iterator[None]:
        """Log the fit, and reset the estimator after an error or interrupt."""
        name = type(self).__name__
        begin = time.perf_counter()
        logger.info("%s: fit to %d samples of %d features", name, *shape)
        try:
            yield
        except BaseException:
            self._reset()
            raise
        fit: Any = self
        outcome = "converged" if fit.converged_ else "not converged"
        outcome = "interrupted" if fit.interrupted_ else outcome
        seconds = time.perf_counter() - begin
        logger.info("%s: %s after %d iterations, %.2f s", name, outcome, fit.n_iter_, seconds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, which :func:`bsdr_models.load` reads.

        The file is a zip archive of skops, without code. **It holds the training samples**, scaled,
        which `idata_`, `model_` and some predictions need. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path-like
            Usually with the extension ``.skops``.

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
    def _predictions(self, X: Any) -> dict[str, np.ndarray]:
        """Predictions of scaled samples by name, for the trees."""

    def _truth(self, y: Any) -> np.ndarray | None:
        """True targets of new samples, validated; a column of classes becomes a vector."""
        if y is None:
            return None
        y = read_targets(y)
        return y.ravel() if self._exclusive and y.shape[1:] == (1,) else y

    def _attrs(self) -> dict[str, Any]:
        """Root attributes of the trees, beside those of the context."""
        return {} if self._reference is None else self._reference.attrs()

    def _embed(self, X: Any) -> LatentCoordinates:
        """Latent coordinates of scaled samples."""
        return cast(LatentCoordinates, self._posterior.embed(X))

    def _outliers(self, X: Any) -> dict[str, FloatArray]:
        """Outlier statistics of scaled samples by name."""
        return {} if self._reference is None else self._reference.compare(X)

    @property
    def idata_(self) -> xr.DataTree:
        """Posterior draws, fit and data as a DataTree, for ArviZ and the plots."""
        check_is_fitted(self)
        if is_new := self._tree is None:
            self._tree = self._make_tree()
        fit = self._tree["fit"]
        if "class_frequency" in fit and VARIABLE not in fit:
            classifier = cast(ProbabilisticClassifier, self)
            if is_new and (probability := classifier._held_out_proba()) is not None:
                fit.dataset = fit.to_dataset().assign(probability=((OBS, LABEL), probability))
            add_class_probability(self._tree, "fit", classifier._log_proba_at)
        if is_new:
            self._made_tree = self._tree.copy()
        return self._tree

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Latent coordinates and predictions of new samples as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like, optional
            True targets.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: ``latent_mean``, ``latent_cov``, ``y``; of classifiers
            ``probability`` and ``predicted``, of regressors ``prediction`` and ``prediction_sd``;
            and measures of outliers: ``t2``, ``q_residual``, ``tail_probability``
            (:mod:`bsdr_models.numerics.outliers`), or ``out_of_range`` of a mapping.
        """
        check_order(X, y)
        samples = sample_labels(X)
        scaled = self._scale_new(X)
        given = self._prepare(scaled, bounded=False)
        X = self._prepare(scaled)
        return self._context.predictions_tree(
            self._spec,
            latent=self._embed(X),
            values=self._predictions(X) | self._outliers(given),
            y=self._truth(y),
            samples=samples,
            inference_method=self._method,
            attrs=self._attrs(),
            log_proba_at=getattr(self, "_log_proba_at", None),
        )

    def plot_features(self, **options: Any) -> Any:
        """Plot the effect of each feature, see :func:`bsdr_models.plots.plot_features`.

        Parameters
        ----------
        **options
            As for :func:`bsdr_models.plots.plot_features`.
        """
        from bsdr_models.plots import plot_features

        return plot_features(self.idata_, **options)

    @by_chunks
    def transform(
        self, X: Any, *, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
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
        X = self._samples(X)
        if not return_cov:
            return self._latent_means(X)
        latent = self._embed(X)
        return latent.mean, latent.cov

    def _latent_means(self, X: Any) -> FloatArray:
        """Latent coordinates of scaled samples, without their covariance."""
        return self._embed(X).mean

    def plot_map(self, X: Any = None, y: Any = None, **options: Any) -> Any:
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

        if X is None and y is not None:
            raise ValueError("y is given without the samples X")
        tree = self.idata_ if X is None else self.predict_idata(X, y)
        return plot_map(tree, **options)


class Scored:
    """Score of scikit-learn's mixins, for targets in the order of the samples."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, coefficient of determination of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_samples(X, y, sample_weight)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]


class ProbabilisticClassifier(Scored, ClassifierMixin, Estimator):
    """Predictions of classes, from the log probabilities of the posterior."""

    classes_: np.ndarray
    _exclusive = True

    def _read_training(
        self, X: Any, y: Any, unlabeled: Any = None
    ) -> tuple[FloatArray, IntArray, dict[str, Any]]:
        """Samples (N, D), class indices (N,), -1 if unlabelled, and what a `Context` says of both.

        Checks the arguments, deletes an earlier fit and sets ``classes_``.
        """
        self._reset()
        self._check_params()
        require_targets(self, X, y)
        samples = sample_labels(X)
        X = validate_samples(self, X, reset=True, least=2)
        given, known = known_entries(y, unlabeled)
        self.classes_, index = encode_known(given, known)
        check_consistent_length(X, index)
        described = {
            "target": "multiclass",
            "y": given.ravel(),
            "index": index,
            "samples": samples,
            "feature_names": feature_names(self),
            "labels": self.classes_,
        }
        return X, index, described

    def _log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of scaled samples, (M, K)."""
        return cast(FloatArray, self._posterior.log_probabilities(X))

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        """Log probabilities at latent coordinates (G, R): (G, K)."""
        return cast(FloatArray, self._posterior.log_probabilities_at(latent))

    @property
    def held_out_log_proba_(self) -> FloatArray | None:
        """Log probabilities of training samples, (n_samples, n_classes), without their labels.

        By cross-validation or leaving one out during the fit, whose settings and temperature they
        chose; NaN of samples that were not held out, and None if none was.
        """
        check_is_fitted(self)
        return self._result.held_out_log_proba

    @property
    def plane_(self) -> PredictionPlane:
        """Plane of the predictions of training samples, held out if the fit has held some out."""
        check_is_fitted(self)
        if not (self._exclusive and self._context.target == "multiclass"):
            raise AttributeError("plane_ needs one class per sample")
        if "_plane" in vars(self):
            return self._plane
        log_p = self.held_out_log_proba_
        if log_p is not None:
            log_p = log_p[~np.isnan(log_p).any(axis=1)]
        if log_p is None or not len(log_p):
            log_p = self._log_proba(self._prepare(self._context.X))
        self._plane: PredictionPlane = PredictionPlane().fit(np.exp(log_p))
        return self._plane

    def _held_out_proba(self) -> FloatArray | None:
        """Probabilities of training samples without their labels, (N, K); None if unknown.

        Those of samples without a label are predictions of the fit.
        """
        log_p = self._result.held_out_log_proba
        index = self._context.index
        if log_p is None or index is None:
            return None
        if np.any(unlabelled := index.reshape(len(index), -1).max(axis=1) < 0):
            log_p = log_p.copy()
            log_p[unlabelled] = self._log_proba(self._prepare(self._context.X[unlabelled]))
        return np.exp(log_p)

    def map_coordinates(self, X: Any) -> FloatArray:
        """Coordinates of samples in ``plane_``, by their predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, 1) for two classes

        Raises
        ------
        AttributeError
            If samples have several labels or tasks.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from bsdr_models import BM2PCAClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> model = BM2PCAClassifier(random_state=0).fit(X[:200], y[:200])
        >>> at = model.map_coordinates(X[200:])
        >>> same = model.plane_.predict_log_proba(at).argmax(axis=1) == model.predict(X[200:])
        >>> bool(same.mean() > 0.85)
        True
        """
        return self.plane_.transform(self.predict_proba(X))

    def _predictions(self, X: Any) -> dict[str, np.ndarray]:
        log_p = self._log_proba(X)
        return {"probability": np.exp(log_p), "predicted": self._most_probable(log_p)}

    @by_chunks
    def predict_log_proba(self, X: Any) -> Any:
        """Log probabilities of the classes; see `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._split_tasks(self._log_proba(self._samples(X)))

    def _split_tasks(self, values: FloatArray) -> Any:
        """Columns of the classes as they are returned: of one task, all of them."""
        return values

    @by_chunks
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes; for multi-label problems, of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._split_tasks(np.exp(self._log_proba(self._samples(X))))

    @by_chunks
    def predict(self, X: Any) -> np.ndarray:
        """Most probable class; for multi-label problems, an indicator of each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array

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
    def decision_function(self, X: Any) -> FloatArray:
        """Log odds for two classes or multi-label problems, else log probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask array

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        log_p = self._log_proba(self._samples(X))
        if not self._exclusive:
            return log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300)))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p


class GaussianRegressor(Scored, RegressorMixin, Estimator):
    """Predictions of real targets, which are standardised for the model."""

    @abstractmethod
    def _moments(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of standardised outputs of scaled samples, each (M, K)."""

    def _scale_outputs(
        self, y: Any, *, missing: bool = False, standardize: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Targets in their own units and as the model sees them, standardised or not: (N, K)."""
        y = read_numbers(y, missing=missing)
        self._one_output = y.ndim == 1
        Y = y.reshape(len(y), -1)
        if (empty := np.isnan(Y).all(axis=0)).any():
            raise ValueError(f"output {int(empty.argmax())} of y has no target at all")
        scaler = Scaler.fit(Y)
        if scaler.constant.any():
            raise ValueError(f"output {int(scaler.constant.argmax())} of y is constant")
        if not standardize:
            scaler = Scaler.identity(Y.shape[1])
        self._output_scaler = scaler
        self.y_mean_ = scaler.location
        self.y_scale_ = scaler.scale
        return Y, scaler.transform(Y)

    def predict(
        self, X: Any, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Posterior predictive mean of the outputs, and their standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool
            Also return the standard deviation of a new output, which includes its noise.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        X = self._samples(X)
        if not return_std:
            return self._match_shape(self._means(X) * self.y_scale_ + self.y_mean_)
        mean, std = self._predictions(X).values()
        return self._match_shape(mean), self._match_shape(std)

    def _means(self, X: Any) -> FloatArray:
        """Mean of standardised outputs of scaled samples, (M, K)."""
        return self._moments(X)[0]

    def _match_shape(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self._one_output else values

    def _predictions(self, X: Any) -> dict[str, np.ndarray]:
        mean, std = self._moments(X)
        return {
            "prediction": mean * self.y_scale_ + self.y_mean_,
            "prediction_sd": std * self.y_scale_,
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
