"""Scikit-learn estimators of BSDR: validate, delegate, name the results."""

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d, validate_data

from bsdr_models.bsdr import predict, sampling, trees
from bsdr_models.bsdr.checks import (
    check_choice,
    check_count,
    check_tol,
    dense_targets,
    encode_labels,
    fit_scaler,
    warn_not_converged,
)
from bsdr_models.bsdr.priors import PAPER, SAMPLING, Priors
from bsdr_models.bsdr.stacking import Mixture, Problem, fit_mixture, fit_single
from bsdr_models.bsdr.trees import Context
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.random import RandomState, as_generator
from bsdr_models.typing import FloatArray, ProjectionPrior, Target

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]
Preset = Literal["recommended", "paper"]

# Weight of the model without features above which a mixture says that there is no signal.
NO_SIGNAL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``None`` stands for in the arguments of an estimator."""

    projection_prior: ProjectionPrior
    latent_scale: float | Literal["stack", "estimate"]
    priors: Priors
    start: str
    tol: float


def resolve(preset: Preset, inference: Inference) -> Settings:
    """Settings of a preset.

    ``"recommended"`` stacks latent scales by cross-validation under a columnwise prior for mean
    field, stopping each climb when a round gains 0.005 nats; samplers get a unit latent scale
    and priors under which they mix. ``"paper"`` is the configuration of Gönen (2013).
    """
    if preset == "paper":
        return Settings(
            projection_prior="entrywise",
            latent_scale=1.0,
            priors=PAPER,
            start="discriminant",
            tol=1e-3,
        )
    if inference == "mean_field":
        return Settings(
            projection_prior="columnwise",
            latent_scale="stack",
            priors=PAPER,
            start="discriminant",
            tol=5e-3,
        )
    return Settings(
        projection_prior="entrywise",
        latent_scale=1.0,
        priors=SAMPLING,
        start="discriminant",
        tol=1e-3,
    )


class _BSDR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What classifier and regressor share: scaling, engines, positions, the tree."""

    def __init__(
        self,
        n_components: int = 2,
        *,
        preset: Preset = "recommended",
        inference: Inference = "mean_field",
        projection_prior: ProjectionPrior | None = None,
        latent_scale: float | Literal["stack", "estimate"] | None = None,
        priors: Priors | None = None,
        start: Literal["discriminant", "pca", "random"] | None = None,
        n_restarts: int = 1,
        max_iter: int = 500,
        tol: float | None = None,
        integrate_latent: bool = True,
        standardize: bool = True,
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.preset = preset
        self.inference = inference
        self.projection_prior = projection_prior
        self.latent_scale = latent_scale
        self.priors = priors
        self.start = start
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.integrate_latent = integrate_latent
        self.standardize = standardize
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.progressbar = progressbar
        self.random_state = random_state

    # ---------------------------------------------------------------- fitting

    def _forget(self) -> None:
        """Be unfitted until the fit that begins has succeeded."""
        self.__dict__.pop("_mixture", None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_mixture")

    def _settings(self) -> Settings:
        """Arguments with None replaced, all checked."""
        check_choice("preset", self.preset, ("recommended", "paper"))
        check_choice("inference", self.inference, ("mean_field", "gibbs", "nuts", "advi"))
        settings = resolve(self.preset, self.inference)
        given = {
            name: getattr(self, name)
            for name in ("projection_prior", "latent_scale", "priors", "start", "tol")
            if getattr(self, name) is not None
        }
        if not isinstance(given.get("latent_scale", "stack"), str):
            given.setdefault("tol", 1e-3)
        settings = replace(settings, **given)
        check_choice(
            "projection_prior",
            settings.projection_prior,
            ("entrywise", "columnwise", "rowwise"),
        )
        check_choice("start", settings.start, ("discriminant", "pca", "random"))
        if isinstance(settings.latent_scale, str):
            check_choice("latent_scale", settings.latent_scale, ("stack", "estimate"))
            if self.inference != "mean_field":
                raise ValueError(
                    f"latent_scale={settings.latent_scale!r} needs inference='mean_field'; "
                    f"give a number for inference={self.inference!r}"
                )
        elif not (isinstance(settings.latent_scale, Real) and 0.0 < settings.latent_scale < np.inf):
            raise ValueError(
                f"latent_scale must be 'stack', 'estimate' or a positive finite number, "
                f"got {settings.latent_scale!r}"
            )
        if not isinstance(settings.priors, Priors):
            raise ValueError(f"priors must be a Priors, got {type(settings.priors).__name__}")
        check_tol(settings.tol)
        for name in ("n_components", "n_restarts", "max_iter", "draws", "tune", "chains"):
            check_count(name, getattr(self, name))
        return settings

    def _fit(self, X: FloatArray, y: np.ndarray, *, target: Target, labels: np.ndarray) -> Self:
        """Fit to validated features and to targets in the form of the engines."""
        settings = self._settings()
        if self.n_components > X.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={X.shape[1]}"
            )
        self._scaler = fit_scaler(X, standardize=self.standardize)
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        rng = as_generator(self.random_state)
        fit_rng, tree_rng = rng.spawn(2)
        self._tree_seed = int(tree_rng.integers(2**63))
        names = getattr(self, "feature_names_in_", None)
        self._context = Context(
            X=self._scaler.transform(X),
            y=y,
            feature_names=[f"x{i}" for i in range(X.shape[1])] if names is None else names,
            labels=labels,
            projection_prior=settings.projection_prior,
            target=target,
            config=self._config(settings),
        )
        self._tree: xr.DataTree | None = None
        if self.inference == "mean_field":
            self._fit_mean_field(settings, fit_rng)
        else:
            self._fit_draws(settings, fit_rng)
        self._n_features_out = self.n_components
        return self

    def _config(self, settings: Settings) -> dict[str, Any]:
        """Arguments for the record, without the random state."""
        config = self.get_params(deep=False)
        config.pop("random_state")
        for name in ("projection_prior", "latent_scale", "start", "tol"):
            config[name] = getattr(settings, name)
        config["priors"] = {
            name: getattr(settings.priors, name) for name in Priors.__dataclass_fields__
        }
        return config

    def _problem(self, settings: Settings) -> Problem:
        context = self._context
        return Problem(
            X=context.X,
            y=context.y,
            n_labels=len(context.labels),
            target=context.target,
            projection_prior=settings.projection_prior,
            priors=settings.priors,
            options={
                "n_components": self.n_components,
                "start": settings.start,
                "n_restarts": self.n_restarts,
                "max_iter": self.max_iter,
                "tol": settings.tol,
                "quasi_newton": not isinstance(settings.latent_scale, str),
            },
        )

    def _fit_mean_field(self, settings: Settings, rng: np.random.Generator) -> None:
        problem = self._problem(settings)
        if isinstance(settings.latent_scale, str):
            mixture = fit_mixture(
                problem,
                rng,
                select=settings.latent_scale == "estimate",
                progressbar=self.progressbar,
            )
        else:
            mixture = fit_single(
                problem, float(settings.latent_scale), rng, progressbar=self.progressbar
            )
        if settings.latent_scale == "stack" and mixture.no_features_weight > NO_SIGNAL:
            warnings.warn(
                "the targets are not predictable from X by this model: cross-validation gives "
                f"the model without features a weight of {mixture.no_features_weight:.2f}",
                UserWarning,
                stacklevel=4,
            )
        leading = mixture.fits[0]
        self._mixture = mixture
        self._leading: predict.Posterior = leading.posterior
        self.latent_scale_ = leading.latent_scale
        self.lower_bounds_ = leading.result.elbo
        self.n_iter_ = len(self.lower_bounds_)
        self.converged_ = all(fit.result.converged for fit in mixture.fits)
        self.interrupted_ = any(fit.result.interrupted for fit in mixture.fits)
        state = leading.result.state
        loadings = leading.posterior.data.design.loadings(state.projection.mean)
        self._name_results(loadings, state.latent.mean, state.weights.mean[1:])
        if not (self.converged_ or self.interrupted_):
            warn_not_converged(self.max_iter, settings.tol, stacklevel=5)

    def _fit_draws(self, settings: Settings, rng: np.random.Generator) -> None:
        context = self._context
        assert not isinstance(settings.latent_scale, str)
        priors = replace(settings.priors, latent_scale=float(settings.latent_scale))
        self._tree = sampling.sample(
            self.inference,
            context,
            priors,
            n_components=self.n_components,
            draws=self.draws,
            tune=self.tune,
            chains=self.chains,
            rng=rng,
            progressbar=self.progressbar,
        )
        posterior = trees.draw_posterior(
            self._tree["posterior"].to_dataset(),
            latent_scale=priors.latent_scale,
            target=context.target,
        )
        posterior = posterior.thin(sampling.N_PREDICT)
        self._leading = posterior
        self._mixture = Mixture(
            fits=(),
            components=(posterior,),
            weights=np.ones(1),
            log_scores=np.full(1, np.nan),
        )
        self.latent_scale_ = priors.latent_scale
        fit = self._tree["fit"]
        self.lower_bounds_ = fit["elbo"].to_numpy() if "elbo" in fit else np.array([])
        self.n_iter_ = int(self._tree["posterior"].sizes["draw"]) + self.tune
        self.interrupted_ = bool(self._tree.attrs.get("interrupted", 0))
        self.converged_ = sampling.warn_unless_converged(self._tree)
        self._name_results(
            fit["projection_mean"].to_numpy(),
            fit["latent_mean"].to_numpy(),
            self._tree["posterior"]["weights"].mean(("chain", "draw")).to_numpy(),
        )

    def _name_results(self, loadings: FloatArray, latent: FloatArray, weights: FloatArray) -> None:
        self.components_ = loadings.T
        self.relevance_ = trees.relevance(latent, self._context.contrast(weights))

    # ---------------------------------------------------------------- after the fit

    @property
    def idata_(self) -> xr.DataTree:
        """Posterior draws, fit and data as a DataTree for ArviZ and the plots."""
        check_is_fitted(self)
        if self._tree is None:
            mixture = self._mixture
            self._tree = trees.mean_field_tree(
                mixture.fits[0],
                self._context,
                rng=np.random.default_rng(self._tree_seed),
                attrs=self._attrs(),
            )
        return self._tree

    def _attrs(self) -> dict[str, Any]:
        """What a tree says about the fit."""
        mixture = self._mixture
        attrs: dict[str, Any] = {"latent_scale": float(self.latent_scale_)}
        if len(mixture.weights) > 1:
            attrs["stack_latent_scales"] = [fit.latent_scale for fit in mixture.fits]
            attrs["stack_weights"] = [float(weight) for weight in mixture.weights]
            attrs["no_features_weight"] = mixture.no_features_weight
        return attrs

    @property
    def model_(self) -> Any:
        """The model as a ``pymc.Model`` on the training rows, scaled as the fit saw them."""
        check_is_fitted(self)
        return sampling.declare(self._context, self._priors_used(), n_components=self.n_components)

    def _priors_used(self) -> Priors:
        return replace(self._settings().priors, latent_scale=self.latent_scale_)

    def _rows(self, X: Any) -> FloatArray:
        """New rows, validated and scaled."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._scaler.transform(X)

    def transform(
        self, X: Any, *, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Positions of rows in the latent space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_cov : bool
            Also return the uncertainty of each position.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
            Posterior predictive mean of the position [1]_, Section II-B3.
        cov : ndarray of shape (n_samples, n_components, n_components)
            Its covariance, if ``return_cov``. Mean field makes it too narrow.
        """
        positions = self._leading_positions(self._rows(X))
        return (positions.mean, positions.cov) if return_cov else positions.mean

    def _leading_positions(self, rows: FloatArray) -> predict.Positions:
        assert not isinstance(self._leading, predict.NoFeatures)
        return self._leading.positions(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class BSDRClassifier(ClassifierMixin, _BSDR):
    """Bayesian supervised dimensionality reduction for labels.

    Rows are projected linearly to ``n_components`` dimensions and classified there by a
    multinomial probit; projection and classifier are learned together [1]_.

    Parameters
    ----------
    n_components : int, default=2
        R, dimension of the latent space.
    preset : {"recommended", "paper"}, default="recommended"
        What the arguments left at None stand for. ``"recommended"``: for mean field a columnwise
        prior and several latent scales stacked with a model without features by cross-validated
        log score; for samplers an entrywise prior with moderate tails and a unit latent scale.
        ``"paper"``: entrywise prior, all shapes and rates one, unit latent scale.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Engine. The last two compile the PyMC model.
    projection_prior : {"entrywise", "columnwise", "rowwise"}, optional
        Which entries of the projection share a precision: none, those of a component
        (automatic relevance determination), or those of a feature (feature selection).
    latent_scale : float, "stack" or "estimate", optional
        Standard deviation of a position given the features, in latent units. It decides the
        calibration with few rows. ``"stack"`` mixes a grid, ``"estimate"`` picks from it, both
        by cross-validation.
    priors : Priors, optional
        Hyper-parameters; their ``latent_scale`` is overruled by the argument of that name.
    start : {"discriminant", "pca", "random"}, optional
        Where mean field starts; further restarts are random.
    n_restarts : int, default=1
        Restarts of mean field; the highest bound is kept.
    max_iter : int, default=500
        Iterations of mean field per restart; of ADVI, a multiple of it.
    tol : float, optional
        Mean field stops when a round gains less than this many nats.
    integrate_latent : bool, default=True
        Average predictions over the position; otherwise plug its mean in.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    draws, tune, chains : int
        Of the samplers.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so that two fits differ.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection, for scaled features.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the scores.
    latent_scale_ : float
        Latent scale of the fit that gives the map (of a stack, the one with most weight).
    lower_bounds_ : ndarray of shape (n_iter_,)
        Exact bound in nats after each iteration of that fit.
    n_iter_ : int
    converged_ : bool
    interrupted_ : bool
        Whether the fit was stopped by the user; it is usable all the same.
    idata_ : xarray.DataTree
        Posterior draws, diagnostics and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The same model, declared.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(n_components=2, random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn projection and classifier jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), or (n_samples, n_labels) of 0 and 1
            Labels of any kind; an indicator matrix makes the problem multi-label, each label an
            independent probit in one shared space.

        Returns
        -------
        self : BSDRClassifier

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, or an argument is out of range.
        """
        self._forget()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, multi_output=True)
        y = dense_targets(y)
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            return self._fit_multilabel(X, y)
        y = column_or_1d(y, warn=True)
        self.classes_, index = encode_labels(y)
        return self._fit(X, index, target="multiclass", labels=self.classes_)

    def _fit_multilabel(self, X: FloatArray, Y: np.ndarray) -> Self:
        on = Y.astype(bool)
        fixed = np.flatnonzero(on.all(axis=0) | ~on.any(axis=0))
        if fixed.size:
            raise ValueError(f"label {int(fixed[0])} of y is the same in every row")
        self.classes_ = np.arange(Y.shape[1])
        return self._fit(X, on, target="multilabel", labels=self.classes_)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of the classes, or of each label being on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Computed from the latent position alone.
        """
        rows = self._rows(X)
        log_p = self._mixture.log_average(
            lambda part: predict.label_log_probabilities(
                part, rows, integrate_latent=self.integrate_latent
            )
        )
        if self._context.target == "multilabel":
            return np.minimum(log_p, 0.0)
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, or of each label being on: see `predict_log_proba`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row; for a multi-label fit, which labels are on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
        """
        log_p = self.predict_log_proba(X)
        if self._context.target == "multilabel":
            return (log_p > np.log(0.5)).astype(int)
        return self.classes_[log_p.argmax(axis=1)]

    def decision_function(self, X: Any) -> FloatArray:
        """Log odds for two classes or multi-label, else log probabilities.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        log_p = self.predict_log_proba(X)
        if self._context.target == "multilabel":
            return log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300)))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Positions and probabilities of new rows as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like, optional
            True labels, for confusion and reliability.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: latent_mean, latent_cov, probability, predicted, y.
        """
        rows = self._rows(X)
        positions = self._leading_positions(rows)
        return trees.predictions_tree(
            self._context,
            positions=positions,
            values={"probability": self.predict_proba(X), "predicted": self.predict(X)},
            y=y,
            inference_method=self.inference,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


class BSDRRegressor(RegressorMixin, _BSDR):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian reduced-rank regression: rows are projected to ``n_components`` dimensions and the
    outputs are linear there with Gaussian noise [1]_, Section II-D. Outputs are scaled inside.

    Parameters
    ----------
    n_components, preset, inference, projection_prior, latent_scale, priors, start, n_restarts, \
max_iter, tol, integrate_latent, standardize, draws, tune, chains, progressbar, random_state
        As for :class:`BSDRClassifier`.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; the others as for :class:`BSDRClassifier`.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn projection and regression jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self : BSDRRegressor

        Raises
        ------
        ValueError
            If the input is not finite, an output or every feature is constant, or an argument
            is out of range.
        """
        self._forget()
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            ensure_min_samples=2,
            multi_output=True,
            y_numeric=True,
        )
        y = dense_targets(y)
        assert_all_finite(y, input_name="y")  # None became NaN
        self._one_output = y.ndim == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        self._output_scaler = Scaler.fit(Y)
        if self._output_scaler.constant.any():
            raise ValueError(
                f"output {int(self._output_scaler.constant.argmax())} of y is constant"
            )
        self.y_mean_, self.y_scale_ = self._output_scaler.location, self._output_scaler.scale
        labels = np.array([f"y{i}" for i in range(Y.shape[1])])
        return self._fit(X, self._output_scaler.transform(Y), target="regression", labels=labels)

    def predict(
        self, X: Any, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Posterior predictive mean of the outputs, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool
            Also return the standard deviation of a new observation.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        mean, std = self._moments(self._rows(X))
        if self._one_output:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the mixture, in the units of y: (M, K)."""
        mixture = self._mixture
        weights = mixture.weights[mixture.weights > 0.0]
        means, stds = zip(
            *(
                predict.score_moments(part, rows, integrate_latent=self.integrate_latent)
                for part, weight in zip(mixture.components, mixture.weights, strict=True)
                if weight > 0.0
            ),
            strict=True,
        )
        mean = np.tensordot(weights, means, axes=1)
        variance = np.tensordot(weights, np.square(stds) + np.square(means - mean), axes=1)
        return mean * self.y_scale_ + self.y_mean_, np.sqrt(variance) * self.y_scale_

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Positions and predictions of new rows as a DataTree, for the plots."""
        rows = self._rows(X)
        mean, std = self._moments(rows)
        return trees.predictions_tree(
            self._context,
            positions=self._leading_positions(rows),
            values={"prediction": mean, "prediction_sd": std},
            y=y,
            inference_method=self.inference,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
