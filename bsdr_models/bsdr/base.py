"""What the estimators of BSDR share: scaling, engines, positions, the tree."""

import os
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bsdr import predict, sampling, trees
from bsdr_models.bsdr.card import CARD
from bsdr_models.bsdr.facts import NO_SIGNAL, facts, no_signal
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.settings import (
    Inference,
    Preset,
    Sampler,
    Settings,
    Start,
    default_sampler,
    resolve,
    start_in_memory,
)
from bsdr_models.bsdr.stacking import Mixture, Problem, fit_mixture, fit_single
from bsdr_models.bsdr.trees import Context
from bsdr_models.by_blocks import by_blocks
from bsdr_models.checks import (
    check_choice,
    check_count,
    check_flag,
    check_jobs,
    check_tol,
    feature_names,
    fit_scaler,
    forget,
    one_thread,
    units_of_rows,
    warn_not_converged,
)
from bsdr_models.frames import validate_rows
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import relevance
from bsdr_models.random import RandomState, as_generator
from bsdr_models.report import Facts
from bsdr_models.surface import Surface
from bsdr_models.typing import FloatArray, ProjectionPrior, Target

# What a fit leaves beside the attributes whose names end in an underscore.
PRIVATE = (
    "_mixture",
    "_leading",
    "_scaler",
    "_output_scaler",
    "_one_output",
    "_context",
    "_tree",
    "_tree_seed",
    "_stream",
)


class BaseBSDR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Surface, BaseEstimator):
    """Scaling, engines, positions and the tree; a subclass validates targets and predicts."""

    _card = CARD

    def __init__(
        self,
        n_components: int = 2,
        *,
        preset: Preset = "recommended",
        inference: Inference = "mean_field",
        sampler: Sampler | None = None,
        projection_prior: ProjectionPrior | None = None,
        latent_scale: float | Literal["stack", "estimate"] | None = None,
        priors: Priors | None = None,
        start: Start | None = None,
        n_restarts: int = 1,
        max_iter: int = 500,
        tol: float | None = None,
        integrate_latent: bool = True,
        standardize: bool = True,
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        block_rows: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.preset = preset
        self.inference = inference
        self.sampler = sampler
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
        self.block_rows = block_rows
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    # ---------------------------------------------------------------- fitting

    def _forget(self) -> None:
        """Be unfitted, and keep no result of an earlier fit, until this one has succeeded."""
        forget(self, PRIVATE)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_mixture")

    def _settings(self) -> Settings:
        """Arguments with None replaced, all checked."""
        check_choice("preset", self.preset, ("recommended", "paper"))
        check_choice("inference", self.inference, ("mean_field", "gibbs", "nuts", "advi"))
        if self.sampler is not None:
            check_choice("sampler", self.sampler, ("averaged", "joint", "paper"))
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
        check_choice("start", settings.start, ("discriminant", "pca", "random", "stochastic"))
        if isinstance(settings.latent_scale, str):
            check_choice("latent_scale", settings.latent_scale, ("stack", "estimate"))
            if self.inference != "mean_field":
                raise ValueError(
                    f"latent_scale={settings.latent_scale!r} needs inference='mean_field'; "
                    f"give a number for inference={self.inference!r}"
                )
        elif (
            isinstance(settings.latent_scale, bool)
            or not isinstance(settings.latent_scale, Real)
            or not 0.0 < settings.latent_scale < np.inf
        ):
            raise ValueError(
                f"latent_scale must be 'stack', 'estimate' or a positive finite number, "
                f"got {settings.latent_scale!r}"
            )
        if not isinstance(settings.priors, Priors):
            raise ValueError(f"priors must be a Priors, got {type(settings.priors).__name__}")
        check_tol(settings.tol)
        check_jobs(self.n_jobs)
        for name in ("n_components", "n_restarts", "max_iter", "draws", "tune", "chains"):
            check_count(name, getattr(self, name))
        if self.block_rows is not None:
            check_count("block_rows", self.block_rows)
            if self.inference != "mean_field":
                raise ValueError(
                    f"block_rows needs inference='mean_field', got inference={self.inference!r}"
                )
        for name in ("integrate_latent", "standardize"):
            check_flag(name, getattr(self, name))
        return settings

    def _fit(self, X: FloatArray, y: np.ndarray, *, target: Target, labels: np.ndarray) -> Self:
        """Fit to validated features and to targets in the form of the engines."""
        settings = self._settings()
        if self.block_rows is not None:
            raise ValueError("block_rows is for BSDRClassifier: real targets are fitted in memory")
        if self.checkpoint is not None:
            raise ValueError("checkpoint is for rows in blocks: give block_rows as well")
        start_in_memory(settings.start)
        self._check_width(X.shape[1])
        self._scaler = fit_scaler(X, standardize=self.standardize)
        fit_rng = self._begin(
            self._scaler.transform(X), y, target=target, labels=labels, settings=settings
        )
        fit = self._fit_mean_field if self.inference == "mean_field" else self._fit_draws
        units = units_of_rows(self._context.X, standardize=self.standardize)
        # The matrices are small: more threads cost more than they bring, and change the rounding.
        with one_thread(), self._fitting(X.shape), units:
            fit(settings, fit_rng)
        self._n_features_out = self.n_components
        return self

    def _check_width(self, n_features: int) -> None:
        if self.n_components > n_features:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n_features}"
            )

    def _begin(
        self,
        X: FloatArray,
        y: np.ndarray,
        *,
        target: Target,
        labels: np.ndarray,
        settings: Settings,
        **more: Any,
    ) -> np.random.Generator:
        """Take note of scaled rows, and of what more the context says of them; a stream."""
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        fit_rng, tree_rng = as_generator(self.random_state).spawn(2)
        self._tree_seed = int(tree_rng.integers(2**63))
        self._context = Context(
            X=X,
            y=y,
            feature_names=feature_names(self),
            labels=labels,
            projection_prior=settings.projection_prior,
            target=target,
            config=self._config(settings),
            **more,
        )
        self._tree: xr.DataTree | None = None
        return fit_rng

    def _config(self, settings: Settings) -> dict[str, Any]:
        """Arguments for the record, without the random state and what changes no result."""
        config = self.get_params(deep=False)
        for name in ("random_state", "n_jobs", "checkpoint"):
            del config[name]
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
                n_jobs=self.n_jobs,
            )
        else:
            mixture = fit_single(
                problem,
                float(settings.latent_scale),
                rng,
                progressbar=self.progressbar,
                n_jobs=self.n_jobs,
            )
        if settings.latent_scale == "stack" and mixture.no_features_weight > NO_SIGNAL:
            warnings.warn(
                no_signal(mixture.no_features_weight),
                UserWarning,
                stacklevel=4,
            )
        self._adopt(mixture, settings)

    def _adopt(self, mixture: Mixture, settings: Settings, *, quiet: bool = False) -> None:
        """Results of a mean-field fit, under the names that they are known by."""
        leading = mixture.fits[0]
        self._mixture = mixture
        self._leading: predict.Posterior = leading.posterior
        self.latent_scale_ = leading.latent_scale
        self.lower_bounds_ = leading.result.elbo
        self.n_iter_ = len(self.lower_bounds_)
        self.converged_ = all(fit.result.converged for fit in mixture.fits)
        self.interrupted_ = mixture.interrupted
        state = leading.result.state
        loadings = leading.posterior.data.design.loadings(state.projection.mean)
        self._name_results(loadings, state.latent.mean, state.weights.mean[1:])
        if mixture.reached(self.max_iter) and not (self.interrupted_ or quiet):
            warn_not_converged(self.max_iter, settings.tol, stacklevel=6)

    def _fit_draws(self, settings: Settings, rng: np.random.Generator) -> None:
        context = self._context
        assert not isinstance(settings.latent_scale, str)
        priors = replace(settings.priors, latent_scale=float(settings.latent_scale))
        self._tree = sampling.sample(
            self.inference,
            context,
            priors,
            sampler=self.sampler
            or default_sampler(
                context.target,
                size=context.X.shape,
                n_labels=len(context.labels),
                r=self.n_components,
            ),
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
        self.relevance_ = relevance(latent, self._context.contrast(weights))
        learned = Reference.learn(self._context.X, loadings)
        self._reference = None if learned is None else learned[0]

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
        if self._reference is not None:
            attrs |= self._reference.attrs()
        if len(mixture.weights) > 1:
            attrs["stack_latent_scales"] = [fit.latent_scale for fit in mixture.fits]
            attrs["stack_weights"] = [float(weight) for weight in mixture.weights]
            attrs["no_features_weight"] = mixture.no_features_weight
        return attrs

    def _facts(self) -> Facts:
        return facts(self)

    @property
    def model_(self) -> Any:
        """The model as a ``pymc.Model`` on the training rows, scaled as the fit saw them."""
        check_is_fitted(self)
        if self._context.kept is not None:
            raise AttributeError("the model has all training rows in memory, and this fit has not")
        return sampling.declare(self._context, self._priors_used(), n_components=self.n_components)

    def _priors_used(self) -> Priors:
        return replace(self._settings().priors, latent_scale=self.latent_scale_)

    def _rows(self, X: Any) -> FloatArray:
        """New rows, validated and scaled."""
        check_is_fitted(self)
        return self._scaler.transform(validate_rows(self, X, reset=False))

    def _rows_of_fit(self, X: Any) -> FloatArray:
        """Rows of a fit, validated."""
        return validate_rows(self, X, reset=True, least=2)

    @by_blocks
    def transform(
        self, X: Any, *, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Positions of rows in the latent space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array
            Of a Dask array the answer is a Dask array, as it is of the other predictions.
        return_cov : bool
            Also return the uncertainty of each position.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
            Posterior predictive mean of the position (the paper, Section II-B3).
        cov : ndarray of shape (n_samples, n_components, n_components)
            Its covariance, if ``return_cov``. Mean field makes it too narrow.
        """
        positions = self._leading_positions(self._rows(X))
        return (positions.mean, positions.cov) if return_cov else positions.mean

    def _unusual(self, rows: FloatArray) -> dict[str, FloatArray]:
        """How far out rows lie, by name; nothing from too few training rows."""
        return {} if self._reference is None else self._reference.compare(rows).by_name()

    def _leading_positions(self, rows: FloatArray) -> predict.Positions:
        assert not isinstance(self._leading, predict.NoFeatures)
        return self._leading.positions(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
