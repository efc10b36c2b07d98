"""Arguments and fit of an estimator, for all models; what a model has of its own is abstract."""

import logging
import sys
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_consistent_length

from bsdr_models.data.replicates import warn_of_replicates
from bsdr_models.data.targets import Targets, read_groups
from bsdr_models.data.training import Training, is_shared
from bsdr_models.data.validation import (
    check_samples,
    check_variation,
    feature_names,
    is_dask,
    read_weights,
    require_targets,
    sample_labels,
    validate_samples,
)
from bsdr_models.estimators.calibration import lack_of_signal, no_signal
from bsdr_models.estimators.fitted import Fitted
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.result import Result, Schedule
from bsdr_models.learned_metric.metric import MetricName
from bsdr_models.numerics.arrays import FloatArray, Rows, SamplesLike, TargetLike
from bsdr_models.numerics.folds import subsample
from bsdr_models.numerics.latent import Reference
from bsdr_models.numerics.process_state import NoSignalWarning, numpy_errors, one_thread, warn
from bsdr_models.numerics.scaling import Scaler, pad
from bsdr_models.options import N_DRAWS, N_JOBS, Options, StrOptions, as_generator, check_parameters

logger = logging.getLogger(__name__)


def last_step(model: BaseEstimator) -> BaseEstimator:
    """The estimator itself or, of a search or pipeline, the last step of the best one."""
    model = getattr(model, "best_estimator_", model)
    return model[-1] if isinstance(model, Pipeline) else model


def warn_of(result: Result[Any]) -> None:
    """Issue the warnings of a fit."""
    for message in dict.fromkeys(result.messages):
        warn(message)
    if result.advice:
        warn(result.advice, ConvergenceWarning)


class Arguments(BaseEstimator):
    """Arguments, some of which are option objects whose fields are arguments too."""

    # Classes of the hyper-parameters and option objects, by argument; None is their default.
    _option_types: ClassVar[dict[str, type[Options]]] = {}
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "metric": [StrOptions({"auto", "unit", "identity"})],
        "standardize": ["boolean"],
        "n_jobs": N_JOBS,
        "progressbar": ["boolean"],
    }

    def __dask_tokenize__(self) -> tuple[str, Mapping[str, Any]]:
        """All attributes: of a dataclass Dask would take the fields, which fits may share."""
        return type(self).__qualname__, vars(self)

    def _option(self, name: str) -> Any:
        """Option object or hyper-parameters, with their defaults for None."""
        value = getattr(self, name)
        return self._option_types[name]() if value is None else value

    def _schedule(self) -> Schedule:
        """Length of a sampler's run."""
        sampling = self._option("sampling")
        return Schedule(
            draws=N_DRAWS if sampling.draws is None else int(sampling.draws),
            tune=int(sampling.tune),
            chains=sampling.n_chains(),
            progressbar=self.progressbar,
        )

    def _check_params(self) -> None:
        """Raise a ValueError if an argument has the wrong type or value."""
        options = {name: [kind, None] for name, kind in self._option_types.items()}
        check_parameters(
            {**Arguments._parameter_constraints, **options, **self._parameter_constraints},
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

    def _get_params_html(self, deep: bool = False, doc_link: str = "") -> object:
        """Arguments for scikit-learn's diagram, without single options."""
        return super()._get_params_html(False, doc_link)

    def _reset(self) -> None:
        """Delete the results of an earlier fit."""
        kept = {*self.get_params(deep=False), "_metadata_request", "_sklearn_output_config"}
        kept |= {"_skl_callbacks", "_parent_callback_ctx"}  # set by a Pipeline during its fit
        if is_dataclass(self):  # a subclass may have fewer arguments
            kept |= {each.name for each in fields(self) if each.init}
        for name in vars(self).keys() - kept:
            delattr(self, name)

    def _config(self, **resolved: object) -> dict[str, Any]:
        """Arguments that determine the fit, apart from the random state, for the trees."""
        config = self.get_params(deep=False)
        config |= {name: asdict(self._option(name)) for name in self._option_types}
        for name in ("random_state", "n_jobs", "views"):
            config.pop(name, None)
        if config.get("unlabeled") is not None:
            config["unlabeled"] = str(config["unlabeled"])
        return config | resolved


class Estimator(Fitted, Arguments):
    """The fit, the same for all models.

    An estimator of a model validates its targets and arguments, calls its engine, and makes the
    tree of a fit.
    """

    # Metadata routing passes groups on without ``set_fit_request``.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    # Of more training samples a fit takes a subsample.
    _most_samples: ClassVar[int] = sys.maxsize

    def fit(
        self, X: SamplesLike, y: TargetLike, *, groups: TargetLike | None = None, **others: Any
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples. For BM2PCA also NaN for a missing value.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Classes of any type; of a regressor outputs in any units, for BM2PCA NaN if missing.
            Entries equal to the argument ``unlabeled``, if the model has it, are unknown. Plots and
            tables show ordered categories of pandas in their order.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups. Equal samples are held out together by themselves.
        **others
            Refused, as there are none.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If X is no table, or a Dask array, or ``sample_weight`` is given.
        ValueError
            If the input is not finite or of the wrong shape, y does not hold two classes, or an
            output or every feature is constant; if an argument is out of range, or ``groups`` has
            gaps or one value.
        """
        self._refuse(others)
        return self._fit(X, y, groups)

    def _refuse(self, others: Mapping[str, object]) -> None:
        """TypeError of an argument that fit does not take, in the name of this class."""
        if others:
            name = next(iter(others))
            takes = "BSDRClassifier, BSDRRegressor and BM2PCAClassifier take weights"
            raise TypeError(
                f"{type(self).__name__}.fit() got an unexpected keyword argument {name!r}"
                + (f": {takes}" if name == "sample_weight" else "")
            )

    def _fit(
        self,
        X: SamplesLike,
        y: TargetLike,
        groups: TargetLike | None,
        sample_weight: ArrayLike | None = None,
        **given: Any,
    ) -> Self:
        """Validate, scale, learn, describe; `_learn` finds what else is ``given`` as attributes.

        Samples of weight zero are left out.
        """
        self._reset()
        self._check_params()
        require_targets(self, X, y)
        if is_dask(X):
            if sample_weight is not None:
                raise ValueError("sample_weight is not for Dask arrays: give samples in memory")
            return self._fit_chunks(X, y, groups)
        table = X
        X = self._read(X, reset=True)
        total = X.shape[0]
        samples = sample_labels(table)
        group = read_groups(groups, table)
        weights = read_weights(sample_weight, table)
        used = None
        if weights is not None and not weights.all():
            check_consistent_length(X, y)
            used = np.flatnonzero(weights)
            X = X[used]
            y, weights, samples, group = (
                None if each is None else _safe_indexing(each, used)
                for each in (y, weights, samples, group)
            )
        targets = self._read_targets(y, weights)
        check_consistent_length(X, targets.y)
        context = Context(
            X=X,
            targets=targets,
            attrs=targets.attrs,
            feature_names=feature_names(self),
            config=self._config(),
            samples=samples,
            groups=group,
            weights=weights,
            kept=used,
            n_samples=None if used is None else total,
        )
        if (n := X.shape[0]) > self._most_samples:
            context = context.take(subsample(targets.coded, self._most_samples))
            targets = context.targets
        rng, later = as_generator(self.random_state).spawn(2)
        self._seed = int(later.integers(2**63))  # of imputations and draws for the trees
        self._context = context
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
        raise TypeError(
            f"X is a Dask array, and {type(self).__name__} is fitted in memory: give "
            "numpy.asarray(X), or a subsample; BSDRClassifier is fitted to all samples, chunk by "
            "chunk"
        )

    def _read(self, X: SamplesLike, *, reset: bool) -> Rows:
        """Samples as float64, (N, D), as far as the model takes them."""
        missing = get_tags(self).input_tags.allow_nan
        return validate_samples(self, X, reset=reset, missing=missing)

    @abstractmethod
    def _read_targets(self, y: TargetLike, weights: FloatArray | None = None) -> Targets:
        """Targets, validated, of samples with weights (N,)."""

    def _scale(self, X: Rows) -> Rows:
        """Training samples (N, P), scaled by `_scaler`, which is set."""
        standardize = getattr(self, "standardize", True)
        weights = self._context.weights
        scaler = Scaler.fit(X, standardize=standardize, weights=weights)
        self._set_scaler(check_variation(self, scaler))
        return self._scaler.transform(X)

    def _warn_of_replicates(self, X: Rows, targets: Targets) -> None:
        """Warn if what scaled samples tell of the targets rests on near neighbours."""
        warn_of_replicates(X, targets.classes, targets.coded.astype(np.float64))

    def _set_scaler(self, scaler: Scaler) -> None:
        self._scaler = scaler
        self.mean_ = scaler.location
        self.scale_ = scaler.scale

    def _training(
        self,
        targets: Targets,
        rng: np.random.Generator,
        *,
        metric: MetricName | None,
        units: FloatArray | None = None,
    ) -> Training:
        """Samples in `_context` with divisions into folds, and a metric of features in units (P,).

        Units are by default those in which the features were given.
        """
        context = self._context
        return Training.of(
            context.X,
            targets.classes,
            len(targets.names),
            self._scaler.units if units is None else units,
            metric=metric,
            rng=rng,
            groups=context.groups,
            sample_weight=context.weights,
        )

    @abstractmethod
    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        """Posterior of the samples in `_context`, with predictions of those held out."""

    @abstractmethod
    def _name_fitted(self) -> None:
        """Set the attributes of the model from `_result`."""

    def _set_result(self, result: Result[Any], context: Context) -> None:
        """Set what every fit has, with the score of held-out samples, and issue its warnings."""
        reason = None
        if result.held_out is not None:
            attrs = result.held_out.attrs()
            context = replace(context, attrs={**context.attrs, **attrs})
            for name, value in result.held_out.named().items():
                setattr(self, f"{name}_", value)
            of_target = {**attrs, "target": context.targets.kind}
            reason = None if result.interrupted else lack_of_signal(of_target)
        self._result = result
        self._context = context
        self._posterior = result.posterior
        self._tree = self._made_tree = None
        self.n_iter_ = len(result.trace)
        self.converged_ = result.converged
        self.interrupted_ = result.interrupted
        warn_of(result)
        if reason is not None:
            warn(no_signal(reason), NoSignalWarning)

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

    @contextmanager
    def _fitting(self, shape: tuple[int, int]) -> Iterator[None]:
        """Log the fit, and reset the estimator after an error or interrupt."""
        name = type(self).__name__
        begin = time.perf_counter()
        logger.info("%s: fit to %d samples of %d features", name, *shape)
        try:
            with numpy_errors():
                yield
        except BaseException:
            self._reset()
            raise
        outcome = "converged" if self.converged_ else "not converged"
        outcome = "interrupted" if self.interrupted_ else outcome
        seconds = time.perf_counter() - begin
        logger.info("%s: %s after %d iterations, %.2f s", name, outcome, self.n_iter_, seconds)


class WeightedFit(Estimator):
    """The `fit` of models whose likelihood takes weights of the samples."""

    def fit(
        self,
        X: SamplesLike,
        y: TargetLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: TargetLike | None = None,
        **others: Any,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples. For BM2PCA also a sparse matrix, or NaN for a missing
            value, which a stack takes if all its members do.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Classes of any type, or (n_samples, n_labels) of 0 and 1, label sets; of a regressor
            outputs in any units. Entries equal to the argument ``unlabeled``, if the model has it,
            are unknown. Plots and tables show ordered categories of pandas in their order.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each sample, at least 0. A sample of weight two is the same as two samples,
            for the effects, scaling, class frequencies, probabilities and held-out scores, and one
            of weight zero is left out. Outliers, and correlations of single features, are those
            of the samples without weights. Not for Dask arrays, kernels, views, missing values,
            samples without a label, and stacks with a member that takes none, as the default ones.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups. Equal samples are held out together by themselves. Members of a
            stack whose ``fit`` takes no groups are refitted for each fold.
        **others
            Refused, as there are none.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If X is no table, or a Dask array for a model other than BSDRClassifier, or a member of
            a stack does not predict probabilities or take weights that are given.
        ValueError
            If the input is not finite or of the wrong shape, y does not hold two classes, or an
            output or every feature is constant; if an argument is out of range, ``groups`` has gaps
            or one value, or samples cannot be weighted.
        """
        self._refuse(others)
        return self._fit(X, y, groups, sample_weight)


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
