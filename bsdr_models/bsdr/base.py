"""Base class of the BSDR estimators: scaling, inference, embedding, trees."""

import os
from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.arrays import FloatArray, ProjectionPrior, Target
from bsdr_models.base import LatentSpaceEstimator
from bsdr_models.bsdr import hierarchical, predict, sampling, trees
from bsdr_models.bsdr.data import make_data
from bsdr_models.bsdr.hierarchical import HierarchicalFit
from bsdr_models.bsdr.mean_field import Start
from bsdr_models.bsdr.mean_field_fit import fit_mean_field
from bsdr_models.bsdr.pooling import Pooling, as_power
from bsdr_models.bsdr.priors import HierarchicalPriors, Priors
from bsdr_models.bsdr.settings import (
    ENGINES,
    N_DRAWS,
    PAPER_ONLY,
    PAPER_SETTINGS,
    Inference,
    Settings,
    Variant,
)
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.summary_parts import summary_parts
from bsdr_models.bsdr.trees import Context
from bsdr_models.checks import (
    check_choice,
    check_count,
    check_flag,
    check_jobs,
    check_tol,
    feature_names,
    fit_scaler,
    one_thread,
    units_of_samples,
    warn_not_converged,
)
from bsdr_models.frames import validate_samples
from bsdr_models.inference.callbacks import ascent_progress
from bsdr_models.inference.sampling import Schedule
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import relevance
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.summary import SummaryParts


class BaseBSDR(LatentSpaceEstimator):
    """Scaling, inference, embedding and trees; subclasses validate targets and predict."""

    _spec = SPEC
    _context: Context

    def __init__(
        self,
        n_components: int | Literal["auto"] = 2,
        *,
        variant: Variant = "hierarchical",
        inference: Inference | None = None,
        pooling: Pooling = "auto",
        projection_prior: ProjectionPrior | None = None,
        latent_scale: float | None = None,
        priors: HierarchicalPriors | Priors | None = None,
        start: Start | None = None,
        n_restarts: int = 1,
        max_iter: int = 500,
        tol: float | None = None,
        standardize: bool = True,
        draws: int | None = None,
        tune: int = 1000,
        chains: int = 4,
        block_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.inference = inference
        self.pooling = pooling
        self.projection_prior = projection_prior
        self.latent_scale = latent_scale
        self.priors = priors
        self.start = start
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.block_size = block_size
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    # ---------------------------------------------------------------- fitting

    def _settings(self) -> Settings:
        """Validated arguments of the paper's model, with None replaced."""
        given = {
            name: getattr(self, name)
            for name in ("projection_prior", "latent_scale", "priors", "start", "tol")
            if getattr(self, name) is not None
        }
        settings = replace(PAPER_SETTINGS, **given)
        check_choice(
            "projection_prior",
            settings.projection_prior,
            ("entrywise", "columnwise", "rowwise"),
        )
        check_choice("start", settings.start, ("discriminant", "pca", "random"))
        if (
            isinstance(settings.latent_scale, bool)
            or not isinstance(settings.latent_scale, Real)
            or not 0.0 < settings.latent_scale < np.inf
        ):
            raise ValueError(
                f"latent_scale must be a positive finite number, got {settings.latent_scale!r}"
            )
        if not isinstance(settings.priors, Priors):
            raise ValueError(f"priors must be a Priors, got {type(settings.priors).__name__}")
        check_tol(settings.tol)
        check_count("n_components", self.n_components)
        if as_power(self.pooling) not in (None, 1.0):
            raise ValueError(
                f"pooling={self.pooling!r} is for variant='hierarchical': predictions of the model "
                "of the paper are pooled linearly"
            )
        return settings

    @property
    def _engine(self) -> Inference:
        """Requested inference method, by default that of the variant."""
        return ENGINES[self.variant][0] if self.inference is None else self.inference

    @property
    def _method(self) -> Inference:
        return self._hierarchical.engine if self.variant_ == "hierarchical" else self._engine

    def _check_arguments(self) -> None:
        """Validate the arguments of both models."""
        check_choice("variant", self.variant, tuple(ENGINES))
        if self.inference is not None:
            check_choice("inference", self.inference, get_args(Inference))
            if self.inference not in ENGINES[self.variant]:
                others = [name for name in ENGINES if self.inference in ENGINES[name]]
                raise ValueError(
                    f"inference={self.inference!r} is for variant={others[0]!r}; "
                    f"variant={self.variant!r} has {ENGINES[self.variant]}"
                )
        check_jobs(self.n_jobs)
        for name in ("n_restarts", "max_iter", "tune", "chains"):
            check_count(name, getattr(self, name))
        for name in ("draws", "block_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_flag("standardize", self.standardize)
        as_power(self.pooling)

    def _hierarchical_priors(self) -> HierarchicalPriors:
        """Priors of the hierarchical model; raises for arguments of the paper's model."""
        for name, default in PAPER_ONLY.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for variant='paper', "
                    "the hierarchical model has no such argument"
                )
        if self.n_components == "auto":
            if self._engine != "smc":
                raise ValueError("n_components='auto' needs inference='smc', for its evidence")
        else:
            check_count("n_components", self.n_components)
        priors = HierarchicalPriors() if self.priors is None else self.priors
        if not isinstance(priors, HierarchicalPriors):
            raise ValueError(
                "priors must be a HierarchicalPriors for variant='hierarchical', got "
                f"{type(priors).__name__}"
            )
        return priors

    def _fit(
        self,
        X: FloatArray,
        y: np.ndarray,
        *,
        target: Target,
        labels: np.ndarray,
        **context: Any,
    ) -> Self:
        """Fit to validated features and encoded targets; ``context`` is for the trees."""
        self._check_arguments()
        if self.block_size is not None:
            raise ValueError("block_size is for BSDRClassifier: real targets are fitted in memory")
        if self.checkpoint is not None:
            raise ValueError("checkpoint is for samples in blocks: give block_size as well")
        if self.variant == "hierarchical":
            return self._fit_hierarchical(X, y, target=target, labels=labels, **context)
        settings = self._settings()
        self._check_width(X.shape[1])
        self._scaler = fit_scaler(X, standardize=self.standardize)
        fit_rng = self._set_context(
            self._scaler.transform(X),
            y,
            target=target,
            labels=labels,
            projection_prior=settings.projection_prior,
            config=self._config(inference=self._engine, **settings.named()),
            **context,
        )
        fit = self._fit_mean_field if self._engine == "mean_field" else self._fit_draws
        units = units_of_samples(self._context.X, standardize=self.standardize)
        # The matrices are small: more threads would be slower, and change the rounding.
        with one_thread(), self._fitting(X.shape), units:
            fit(settings, fit_rng)
        return self

    def _fit_hierarchical(
        self,
        X: FloatArray,
        y: np.ndarray,
        *,
        target: Target,
        labels: np.ndarray,
        **context: Any,
    ) -> Self:
        """Fit the hierarchical model."""
        priors = self._hierarchical_priors()
        if self.n_components != "auto":
            self._check_width(X.shape[1])
        self._scaler = fit_scaler(X, standardize=self.standardize)
        rng = self._set_context(
            self._scaler.transform(X),
            y,
            target=target,
            labels=labels,
            variant="hierarchical",
            config=self._config(inference=self._engine, priors=priors),
            **context,
        )
        scaled = self._context.X
        units = units_of_samples(scaled, standardize=self.standardize)
        with one_thread(), self._fitting(X.shape), units:
            fit = hierarchical.fit(
                scaled,
                y,
                engine=cast(hierarchical.Engine | None, self.inference),
                n_labels=len(labels),
                n_components="auto" if self.n_components == "auto" else self._n_asked,
                target=target,
                priors=priors,
                power=as_power(self.pooling),
                n_chains=int(self.chains),
                n_draws=None if self.draws is None else int(self.draws),
                tune=int(self.tune),
                rng=rng,
                n_jobs=self.n_jobs,
                progressbar=self.progressbar,
                declare=lambda r: sampling.declare(self._context, priors, n_components=r),
            )
            self._set_fitted_hierarchical(fit)
        return self

    def _set_fitted_hierarchical(self, fit: HierarchicalFit) -> None:
        posterior = fit.posterior
        self._hierarchical, self._posterior = fit, posterior
        self._set_components(posterior.components(), posterior.coordinates.share)
        self.pooling_power_ = posterior.power
        self.log_evidence_ = fit.total_log_evidence
        self.log_bayes_factor_ = fit.log_bayes_factor
        for name, value in fit.held_out.named().items():
            setattr(self, f"{name}_", value)
        self.n_iter_ = fit.n_iter
        self.interrupted_ = fit.interrupted
        self.converged_ = fit.converged
        fit.warn()

    def _selected_params(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.n_components == "auto":
            found["n_components"] = self.n_components_
        if self.pooling == "auto" and self.variant_ == "hierarchical":
            found["pooling"] = self.pooling_power_
        return found

    @property
    def _n_asked(self) -> int:
        """Requested number of components, if not "auto"."""
        assert self.n_components != "auto"
        return int(self.n_components)

    def _check_width(self, n_features: int) -> None:
        if self._n_asked > n_features:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n_features}"
            )

    def _set_context(
        self,
        X: FloatArray,
        y: np.ndarray,
        *,
        target: Target,
        labels: np.ndarray,
        config: dict[str, Any],
        given: np.ndarray | None = None,
        **more: Any,
    ) -> np.random.Generator:
        """Set the data and settings of a fit; returns a random generator for it.

        ``given`` are real targets in their own units.
        """
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        fit_rng, tree_rng = as_generator(self.random_state).spawn(2)
        self._tree_seed = int(tree_rng.integers(2**63))
        if given is None:
            given = labels[y] if target == "multiclass" else y.astype(np.int64)
        self._context = Context(
            X=X,
            y=given,
            targets=y,
            index=y if target == "multiclass" else None,
            feature_names=feature_names(self),
            labels=labels,
            target=target,
            config=config,
            **more,
        )
        self._tree: xr.DataTree | None = None
        return fit_rng

    def _fit_mean_field(self, settings: Settings, rng: np.random.Generator) -> None:
        context = self._context
        priors = replace(settings.priors, latent_scale=float(settings.latent_scale))
        data = make_data(
            context.X,
            context.targets,
            n_labels=len(context.labels),
            target=context.target,
            projection_prior=settings.projection_prior,
        )
        with ascent_progress(
            "BSDR, mean field",
            n_restarts=int(self.n_restarts),
            max_iter=int(self.max_iter),
            n_jobs=self.n_jobs,
            enabled=self.progressbar,
        ) as watched:
            result = fit_mean_field(
                data,
                priors,
                n_components=self._n_asked,
                projection_prior=settings.projection_prior,
                rng=rng,
                start=settings.start,
                n_restarts=int(self.n_restarts),
                max_iter=int(self.max_iter),
                tol=settings.tol,
                **watched,
            )
        state = result.state
        self._result = result
        self._posterior = predict.MeanFieldPosterior(
            state=state, data=data, latent_scale=priors.latent_scale
        )
        self.latent_scale_ = priors.latent_scale
        self.lower_bounds_ = result.elbo
        self.n_iter_ = len(self.lower_bounds_)
        self.converged_ = result.converged
        self.interrupted_ = result.interrupted
        loadings = data.design.loadings(state.projection.mean)
        contrast = context.contrast(state.weights.mean[1:])
        self._set_components(loadings.T, relevance(state.latent.mean, contrast))
        if not (self.converged_ or self.interrupted_):
            warn_not_converged(self.max_iter, settings.tol, stacklevel=5)

    def _fit_draws(self, settings: Settings, rng: np.random.Generator) -> None:
        context = self._context
        priors = replace(settings.priors, latent_scale=float(settings.latent_scale))
        self._tree = sampling.sample(
            self._engine,
            context,
            priors,
            n_components=self._n_asked,
            schedule=Schedule(
                draws=N_DRAWS if self.draws is None else int(self.draws),
                tune=int(self.tune),
                chains=int(self.chains),
                progressbar=self.progressbar,
            ),
            rng=rng,
        )
        posterior = trees.draw_posterior(
            self._tree["posterior"].to_dataset(),
            latent_scale=priors.latent_scale,
            target=context.target,
        )
        self._posterior = posterior.thin(sampling.N_PREDICT)
        self.latent_scale_ = priors.latent_scale
        fit = self._tree["fit"]
        self.lower_bounds_ = fit["elbo"].to_numpy() if "elbo" in fit else np.array([])
        self.n_iter_ = int(self._tree["posterior"].sizes["draw"]) + int(self.tune)
        self.interrupted_ = bool(self._tree.attrs.get("interrupted", 0))
        self.converged_ = sampling.warn_unless_converged(self._tree)
        self._set_components(fit["projection_mean"].to_numpy().T, fit["relevance"].to_numpy())

    def _set_draws(
        self, tree: xr.DataTree, draws: dict[str, FloatArray], latent_scale: float
    ) -> None:
        """Set the fit from draws (chain, draw, ...) of a tree, whose other contents are kept."""
        built = trees.draws_tree(
            draws, self._context, inference_method="nuts", latent_scale=latent_scale
        )
        for name, group in tree.children.items():
            if name not in built.children:
                built[name] = group.copy()
        more = tree["posterior"].to_dataset().drop_vars(list(draws))
        here = built["posterior"].to_dataset()
        others = [name for name in more.data_vars if name not in here]
        built["posterior"] = xr.DataTree(
            here.merge(more[others], compat="override", join="override")
        )
        self._tree = built
        self._posterior = trees.draw_posterior(
            here, latent_scale=latent_scale, target=self._context.target
        ).thin(sampling.N_PREDICT)
        self.latent_scale_ = latent_scale
        self.lower_bounds_ = np.array([])
        self.n_iter_ = here.sizes["draw"]
        self.interrupted_ = False
        self.converged_ = sampling.warn_unless_converged(built)
        fit = built["fit"]
        self._set_components(fit["projection_mean"].to_numpy().T, fit["relevance"].to_numpy())

    def _set_components(self, components: FloatArray, share: FloatArray) -> None:
        """Set attributes of the components: loadings (R, D), and the share of each."""
        self.components_, self.relevance_ = components, share
        self.n_components_ = self._n_features_out = len(components)
        learned = Reference.learn(self._context.X, components.T)
        self._reference = None if learned is None else learned[0]

    # ---------------------------------------------------------------- after the fit

    def _make_tree(self) -> xr.DataTree:
        rng = np.random.default_rng(self._tree_seed)
        if self.variant_ == "hierarchical":
            return trees.hierarchical_tree(
                self._hierarchical, self._context, rng=rng, attrs=self._attrs()
            )
        return trees.mean_field_tree(
            self._posterior, self._result, self._context, rng=rng, attrs=self._attrs()
        )

    def _attrs(self) -> dict[str, Any]:
        """Attributes of the tree."""
        attrs = super()._attrs()
        if self.variant_ == "hierarchical":
            return attrs | self._hierarchical.attrs()
        attrs["latent_scale"] = float(self.latent_scale_)
        return attrs

    def _summary_parts(self) -> SummaryParts:
        return summary_parts(self)

    @property
    def model_(self) -> Any:
        """The ``pymc.Model`` on the scaled training samples, and on standardised real targets.

        :func:`bsdr_models.bsdr.model.build_model` says how to predict new samples by PyMC.
        """
        check_is_fitted(self)
        if self._context.kept is not None:
            raise AttributeError("model_ needs all training samples in memory")
        if "priors" not in self._context.config:
            raise AttributeError("model_ is unknown: the draws are of a model of the user")
        return sampling.declare(
            self._context, self._context.priors_at(self._attrs()), n_components=self.n_components_
        )

    @property
    def variant_(self) -> Variant:
        """Fitted model."""
        check_is_fitted(self)
        return self._context.variant

    def _samples_of_fit(self, X: Any) -> FloatArray:
        return validate_samples(self, X, reset=True, least=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
