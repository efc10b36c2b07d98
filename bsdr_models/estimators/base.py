"""What all estimators have in common.

A fit sets ``_scaler``, ``_context`` (data and settings, for the trees) and ``_posterior``, which
embeds and predicts scaled samples; every method after the fit is built on these three. An estimator
of a model validates its targets and arguments, calls its engine, and makes the tree of a fit.
"""

import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.data.replicates import warn_of_replicates
from bsdr_models.data.targets import Targets, read_groups
from bsdr_models.data.training import is_shared
from bsdr_models.data.validation import (
    check_order,
    check_samples,
    feature_names,
    fit_scaler,
    is_dask,
    match_columns,
    not_in_memory,
    read_targets,
    require_targets,
    sample_labels,
    validate_samples,
)
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.lazy import annex
from bsdr_models.metrics import lack_of_signal, no_signal
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import subsample
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.process_state import numpy_errors, one_thread, warn
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.rng import as_generator
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.scaling import Scaler, pad
from bsdr_models.options import N_DRAWS, N_JOBS, Options, StrOptions, check_parameters
from bsdr_models.summary import summarise, to_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

# Scaled values from which a sample is compared with the training samples, and the tail probability
# below which it is unlike them.
FAR = 10.0
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


def last_step(model: BaseEstimator) -> BaseEstimator:
    """The estimator itself or, of a search or pipeline, the last step of the best one."""
    model = getattr(model, "best_estimator_", model)
    return model[-1] if isinstance(model, Pipeline) else model


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Fitted state, embedding, trees, plots, summary and saving of all estimators."""

    _spec: ClassVar[ModelSpec]
    _exclusive = False  # whether a sample has one class
    # Classes of the hyper-parameters and option objects, by argument; None is their default.
    _option_types: ClassVar[dict[str, type[Options]]] = {}
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
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
    _reference: Reference | None = None  # of outliers to a linear map
    # Of more training samples a fit takes a subsample.
    _most_samples: ClassVar[int] = sys.maxsize
    n_iter_: int
    converged_: bool
    interrupted_: bool

    def __init_subclass__(cls, **options: object) -> None:
        """Copy an inherited constructor and fit, so that Python's errors name this class."""
        super().__init_subclass__(**options)
        for name in ("__init__", "fit"):
            method: object = getattr(cls, name, None)
            if name in vars(cls) or not isinstance(method, FunctionType):
                continue
            own = FunctionType(
                method.__code__, method.__globals__, name, method.__defaults__, method.__closure__
            )
            own.__kwdefaults__ = method.__kwdefaults__
            own.__annotations__ = method.__annotations__
            own.__doc__ = method.__doc__
            own.__qualname__ = f"{cls.__name__}.{name}"
            setattr(cls, name, own)

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
        >>> sorted(model.selected_params())
        ['mapping__noise', 'mapping__width']
        >>> again = clone(model).set_params(**model.selected_params()).fit(X[1::3], y[1::3])
        """
        check_is_fitted(self)
        return self._selected_params()

    def _selected_params(self) -> dict[str, object]:
        return {}

    def _option(self, name: str) -> Any:
        """Option object or hyper-parameters, with their defaults for None."""
        value = getattr(self, name)
        return self._option_types[name]() if value is None else value

    def _check_params(self) -> None:
        """Raise a ValueError if an argument has the wrong type or value."""
        options = {name: [kind, None] for name, kind in self._option_types.items()}
        check_parameters(
            {**Estimator._parameter_constraints, **options, **self._parameter_constraints},
            self.get_params(deep=False),
            type(self).__name__,
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments by name.

        Parameters
        ----------
        deep : bool
            Also those of option objects and hyper-parameters, such as ``sampling__draws``.

        """
        params: dict[str, Any] = super().get_params(deep=False)
        for name in self._option_types if deep else ():
            option = self._option(name)
            if is_dataclass(option):
                params |= {f"{name}__{f.name}": getattr(option, f.name) for f in fields(option)}
        return params

    def set_params(self, **params: object) -> Self:
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
        BM2PCAClassifier(loss=HingeLoss(C=10.0, calibrate=True))
        """
        nested: dict[str, dict[str, object]] = {}
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
            if option != (replaced := replace(option, **values)):  # else None stays None
                setattr(self, name, replaced)
        return self

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        """Scikit-learn's diagram, and the summary of a fit; only text if so configured."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _repr_html_inner(self) -> str:
        summary = to_html(self.summary()) if self.__sklearn_is_fitted__() else ""
        return str(super()._repr_html_inner()) + summary

    def _get_params_html(self, deep: bool = False, doc_link: str = "") -> object:
        """Arguments for scikit-learn's diagram, without single options."""
        return super()._get_params_html(False, doc_link)

    def _get_fitted_attr_html(self, doc_link: str = "") -> object:
        """Fitted attributes for scikit-learn's diagram, which would else compute `model_`."""
        bare = BaseEstimator()
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

    # A fit, the same for all models: what a model has of its own is in the methods below it.

    def _fit(self, X: SamplesLike, y: TargetLike, groups: TargetLike | None, **given: Any) -> Self:
        """Validate, scale, learn, describe; `_learn` finds what else is ``given`` as attributes."""
        self._reset()
        self._check_params()
        require_targets(self, X, y)
        if is_dask(X):
            return self._fit_chunks(X, y, groups)
        table = X
        X = self._read(X, reset=True)
        targets = self._read_targets(y)
        check_consistent_length(X, targets.y)
        context = Context(
            X=X,
            y=targets.y,
            index=targets.index,
            labels=targets.names,
            target=targets.kind,
            attrs=targets.attrs,
            feature_names=feature_names(self),
            config=self._config(),
            samples=sample_labels(table),
            groups=read_groups(groups, table),
        )
        if (n := X.shape[0]) > self._most_samples:
            kept = subsample(targets.coded, self._most_samples)
            targets = targets.take(kept)
            context = context.take(kept)
        rng, later = as_generator(self.random_state).spawn(2)
        self._seed = int(later.integers(2**63))  # of imputations and draws for the trees
        X = self._scale(context.X)
        if context.groups is None and not is_shared():  # as a member of a stack
            self._warn_of_replicates(X, targets)
        with one_thread(), self._fitting((n, context.X.shape[1])):
            self._context = replace(context, X=X, constant=self._scaler.constant)
            for name, value in given.items():
                setattr(self, name, value)
            result = self._learn(targets, rng)
            for name in given:
                delattr(self, name)
            attrs = {**targets.attrs, **result.attrs}
            self._set_result(result, replace(self._context, attrs=attrs))
            self._name_fitted()
        return self

    def _fit_chunks(self, X: SamplesLike, y: TargetLike, groups: TargetLike | None) -> Self:
        """Fit to a Dask array, or raise a TypeError."""
        raise not_in_memory(self)

    def _read(self, X: SamplesLike, *, reset: bool) -> Rows:
        """Samples as float64, (N, D), as far as the model takes them."""
        return validate_samples(self, X, reset=reset, least=1 + reset)

    @abstractmethod
    def _read_targets(self, y: TargetLike) -> Targets:
        """Targets, validated."""

    def _scale(self, X: Rows) -> Rows:
        """Training samples (N, P), scaled by `_scaler`, which is set."""
        self._set_scaler(fit_scaler(self, X, standardize=getattr(self, "standardize", True)))
        return self._scaler.transform(X)

    def _warn_of_replicates(self, X: Rows, targets: Targets) -> None:
        """Warn if what scaled samples tell of the targets rests on near neighbours."""
        warn_of_replicates(X, targets.classes, targets.coded.astype(np.float64))

    def _set_scaler(self, scaler: Scaler) -> None:
        self._scaler = scaler
        self.mean_ = scaler.location
        self.scale_ = scaler.scale

    @abstractmethod
    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        """Posterior of the samples in `_context`, with predictions of those held out."""

    @abstractmethod
    def _name_fitted(self) -> None:
        """Set the attributes of the model from `_result`."""

    def _set_result(self, result: Result[Any], context: Context) -> None:
        """Set what every fit has, with the score of held-out samples, and issue its warnings."""
        messages = list(result.messages)
        if result.held_out is not None:
            attrs = result.held_out.attrs()
            context = replace(context, attrs={**context.attrs, **attrs})
            for name, value in result.held_out.named().items():
                setattr(self, f"{name}_", value)
            of_target = {**attrs, "target": context.target}
            reason = None if result.interrupted else lack_of_signal(of_target)
            messages += [] if reason is None else [no_signal(reason)]
        self._result = result
        self._context = context
        self._posterior = result.posterior
        self._tree = self._made_tree = None
        self.n_iter_ = len(result.trace)
        self.converged_ = result.converged
        self.interrupted_ = result.interrupted
        for message in dict.fromkeys(messages):
            warn(message)
        if result.advice:
            warn(result.advice, ConvergenceWarning)

    def _set_components(
        self, loadings: FloatArray, share: FloatArray, X: FloatArray | None = None
    ) -> None:
        """Set the map (P, R) of scaled features, the share of each component, outliers of X to it.

        X are the training samples, complete, and None if the map is not linear.
        """
        self.components_ = pad(loadings, self._scaler.constant, axis=0).T
        self.relevance_ = share
        self._n_features_out = len(share)
        self._reference = None if X is None else Reference.learn(X, loadings)

    def _config(self, **resolved: object) -> dict[str, Any]:
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
            chains=sampling.n_chains(),
            progressbar=self.progressbar,
        )

    def _samples(self, X: SamplesLike) -> Rows:
        """New samples as the model takes them."""
        scaled = self._scale_new(X)
        self._warn_if_unlike(scaled)
        return self._prepare(scaled)

    def _warn_if_unlike(self, X: Rows) -> None:
        """Warn if scaled samples have no place in the distribution of the training samples.

        Only those with a value far off are compared: all would take as long as the predictions.
        """
        if self._reference is None or issparse(X):
            return
        size = np.abs(X)
        if not (size > FAR).any():
            return
        some = self._prepare(X[(size > FAR).any(axis=1)], bounded=False)
        tail = self._outliers(some).get("tail_probability", np.empty(0))
        if count := int((tail < NIL).sum()):
            warn(
                f"{count} of {len(X)} samples are unlike the training samples, so that their "
                "predictions mean little: compare units and codes of missing values, and see "
                "plots.plot_outliers(model.predict_idata(X), group='predictions')"
            )

    def _scale_new(self, X: SamplesLike) -> Rows:
        """New samples, validated and scaled."""
        check_is_fitted(self)
        return self._scaler.transform(self._read(X, reset=False))

    def _prepare(self, X: Rows, *, bounded: bool = True) -> Rows:
        """Scaled samples with values bounded and imputed as far as the model needs it."""
        return X

    @contextmanager
    def _fitting(self, shape: tuple[int, int]) -> Iterator[None]:
        """Log the fit, and reset the estimator after an error or interrupt."""
        name = type(self).__name__
        begin = time.perf_counter()
        self._fit_in_progress = this_fit = object()
        logger.info("%s: fit to %d samples of %d features", name, *shape)
        try:
            with numpy_errors():
                yield
            if self.__dict__.pop("_fit_in_progress", None) is not this_fit:
                raise RuntimeError(
                    f"this {name} was fitted by two threads at once: give each thread a clone"
                )
        except BaseException:
            self._reset()
            raise
        outcome = "converged" if self.converged_ else "not converged"
        outcome = "interrupted" if self.interrupted_ else outcome
        seconds = time.perf_counter() - begin
        logger.info("%s: %s after %d iterations, %.2f s", name, outcome, self.n_iter_, seconds)

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
        return y if self._exclusive else match_columns(y, self._context.labels)

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

        Class probabilities are averages over the posterior of the scores, and calibrated. Those of
        the mean scores, ``X @ coef_.T + intercept_``, are near them but not the same.

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
    def intercept_(self) -> FloatArray | float:
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
            (:mod:`bsdr_models.numerics.outliers`), or ``out_of_range`` of a mapping.
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
    def transform(
        self, X: SamplesLike, *, return_cov: bool = False
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
        scaled = self._samples(X)
        if not return_cov:
            return self._latent_means(scaled)
        latent = self._embed(scaled)
        return latent.mean, latent.cov

    def _latent_means(self, X: Rows) -> FloatArray:
        """Latent coordinates of scaled samples, without their covariance."""
        return self._embed(X).mean

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


class ScoreMixin:
    """Score of scikit-learn's mixins, for targets in the order of the samples."""

    def score(self, X: SamplesLike, y: TargetLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of a classifier, coefficient of determination of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Classes, or outputs, to compare with.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each sample in the mean; equal by default.

        Returns
        -------
        float
        """
        check_samples(X, y, sample_weight)
        y = self._match_targets(y)  # type: ignore[attr-defined]
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]
