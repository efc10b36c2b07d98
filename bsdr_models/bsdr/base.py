"""Base class of the BSDR estimators: scaling, inference, embedding, trees."""

from abc import abstractmethod
from typing import Any, ClassVar, Self, cast, get_args

import numpy as np
import xarray as xr
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.base import LatentSpaceEstimator
from bsdr_models.bsdr import hierarchical, predict, sampling, trees
from bsdr_models.bsdr.data import make_data
from bsdr_models.bsdr.held_out import Temperature
from bsdr_models.bsdr.hierarchical import HierarchicalFit
from bsdr_models.bsdr.kernels import KERNELS, Kernel, as_kernel
from bsdr_models.bsdr.mean_field_fit import fit_mean_field
from bsdr_models.bsdr.priors import PAPER, HierarchicalPriors, Priors, Variant
from bsdr_models.bsdr.settings import ENGINES, Inference, Optimization
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.trees import Context
from bsdr_models.bsdr.views import (
    Views,
    check_kernel_matrix,
    check_missing_views,
    check_views,
    compared_kernels,
    is_several,
)
from bsdr_models.checks import (
    feature_names,
    fit_scaler,
    one_thread,
    units_of_samples,
    warn_not_converged,
)
from bsdr_models.frames import sample_labels, validate_samples
from bsdr_models.inference.callbacks import ascent_progress
from bsdr_models.inputs import read_views
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import relevance
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import COUNT, POSITIVE, Sampling
from bsdr_models.rng import RandomState, as_generator


class BaseBSDR(LatentSpaceEstimator):
    """Scaling, inference, embedding and trees; subclasses validate targets and predict."""

    _spec = SPEC
    _context: Context
    _option_types: ClassVar[dict[str, type[Any]]] = {
        "priors": HierarchicalPriors,
        "sampling": Sampling,
        "optimization": Optimization,
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        "variant": [StrOptions(set(ENGINES))],
        "inference": [StrOptions(set(get_args(Inference))), None],
        "kernel": [
            StrOptions({"auto", "precomputed", *KERNELS}),
            Kernel,
            callable,
            list,
            tuple,
        ],
        "temperature": [StrOptions({"auto"}), POSITIVE],
        "priors": [HierarchicalPriors, Priors, None],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        variant: Variant = "hierarchical",
        inference: Inference | None = None,
        kernel: Any = "linear",
        views: Any = None,
        temperature: Temperature = "auto",
        priors: HierarchicalPriors | Priors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        optimization: Optimization | None = None,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.inference = inference
        self.kernel = kernel
        self.views = views
        self.temperature = temperature
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.optimization = optimization
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    # ---------------------------------------------------------------- fitting

    def _default_option(self, name: str) -> Any:
        if name == "priors" and self.variant == "paper":
            return PAPER
        return super()._default_option(name)

    @property
    def _engine(self) -> Inference:
        """Requested inference method, by default that of the variant."""
        return ENGINES[self.variant][0] if self.inference is None else self.inference

    @property
    def _method(self) -> Inference:
        return self._hierarchical.engine if self.variant_ == "hierarchical" else self._engine

    def _config(self, **resolved: Any) -> dict[str, Any]:
        config = super()._config(**resolved)
        names = [each if isinstance(each, str) else as_kernel(each).label for each in self._kernels]
        return config | {"kernel": names if is_several(self.kernel) else names[0]}

    @property
    def _kernels(self) -> list[Any]:
        return list(self.kernel) if is_several(self.kernel) else [self.kernel]

    def _check_arguments(self) -> None:
        """Validate the arguments of both models."""
        self._check_params()
        if self.inference is not None and self.inference not in ENGINES[self.variant]:
            others = [name for name in ENGINES if self.inference in ENGINES[name]]
            raise ValueError(
                f"inference={self.inference!r} is for variant={others[0]!r}; "
                f"variant={self.variant!r} has {ENGINES[self.variant]}"
            )
        kind = type(self._default_option("priors"))
        if not isinstance(self._option("priors"), kind):
            raise ValueError(
                f"priors must be a {kind.__name__} for variant={self.variant!r}, got "
                f"{type(self.priors).__name__}"
            )
        if self.variant == "hierarchical":
            self._check_hierarchical()
        else:
            self._check_paper()

    def _check_paper(self) -> None:
        self._check_linear("variant='paper'")
        if self.temperature not in ("auto", 1.0):
            raise ValueError(
                f"temperature={self.temperature!r} is for variant='hierarchical': predictions of "
                "the model of the paper are the posterior predictive"
            )

    def _check_hierarchical(self) -> None:
        if self.optimization is not None:
            raise ValueError(
                "optimization is for variant='paper': the hierarchical model has no mean field"
            )
        for kernel in self._kernels if is_several(self.kernel) else ():
            if not (isinstance(kernel, Kernel) or callable(kernel) or kernel in KERNELS):
                raise ValueError(
                    f"each of several kernels must be one of {KERNELS}, a Kernel or a function, "
                    f"got {kernel!r}"
                )
        if not self._kernels:
            raise ValueError("kernel is empty")
        if self.inference == "laplace" and (self.views is not None or is_several(self.kernel)):
            raise ValueError("inference='laplace' is for one kernel and no views: use 'hmc'")
        if self._is_precomputed and self.views is not None:
            raise ValueError("views need features: kernel='precomputed' has none")

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
        if self.variant == "hierarchical":
            return self._fit_hierarchical(X, y, target=target, labels=labels, **context)
        priors: Priors = self._option("priors")
        self._check_width(X.shape[1])
        self._scaler = fit_scaler(X, standardize=self.standardize)
        fit_rng = self._set_context(
            self._scaler.transform(X),
            y,
            target=target,
            labels=labels,
            projection_prior=priors.projection_prior,
            config=self._config(inference=self._engine),
            **context,
        )
        fit = self._fit_mean_field if self._engine == "mean_field" else self._fit_draws
        units = units_of_samples(self._context.X, standardize=self.standardize)
        # The matrices are small: more threads would be slower, and change the rounding.
        with one_thread(), self._fitting(X.shape), units:
            fit(priors, fit_rng)
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
        priors, sampler = self._option("priors"), self._option("sampling")
        self._check_engine(target)
        if self._is_plain:
            self._check_width(X.shape[1])
        views = read_views(self.views, list(feature_names(self)))
        if self._is_precomputed:
            check_kernel_matrix(X)
            self._scaler = Scaler.identity(X.shape[1])
        else:
            self._scaler = fit_scaler(X, standardize=self.standardize)
            check_views(X, self._scaler, views)
        rng = self._set_context(
            self._scaler.transform(X),
            y,
            target=target,
            labels=labels,
            variant="hierarchical",
            views=views,
            config=self._config(inference=self._engine),
            **context,
        )
        scaled = self._context.X
        units = units_of_samples(scaled, standardize=self.standardize)
        with one_thread(), self._fitting(X.shape), units:
            fit = hierarchical.fit_hierarchical(
                scaled,
                y,
                engine=cast(hierarchical.Engine | None, self.inference),
                n_labels=len(labels),
                n_components=self.n_components,
                target=target,
                priors=priors,
                temperature=None if self.temperature == "auto" else float(self.temperature),
                n_chains=int(sampler.chains),
                n_draws=None if sampler.draws is None else int(sampler.draws),
                tune=int(sampler.tune),
                rng=rng,
                progressbar=self.progressbar,
                declare=lambda feature_map: sampling.declare_hierarchical(
                    self._context, priors, feature_map
                ),
                kernels=compared_kernels(self.kernel),
                views=views,
            )
            self._set_fitted_hierarchical(fit)
        return self

    def _set_fitted_hierarchical(self, fit: HierarchicalFit) -> None:
        posterior = fit.posterior
        self._hierarchical, self._posterior = fit, posterior
        self._set_components(posterior.components(), posterior.share)
        feature_map = posterior.metric
        if isinstance(feature_map, Views):
            shares = feature_map.shares(posterior.draws, feature_map.whiten(self._context.X))
            self.views_, self.view_share_ = list(feature_map.names), shares.mean(axis=0)
        self.kernel_ = self.kernel
        if fit.choice is not None:
            self.kernel_ = fit.choice.kernel
        self.temperature_ = posterior.temperature
        self.log_evidence_ = fit.log_evidence
        self.log_evidence_error_ = fit.log_evidence_error
        self.log_bayes_factor_ = fit.log_bayes_factor
        for name, value in fit.held_out.named().items():
            setattr(self, f"{name}_", value)
        self.n_iter_ = fit.n_iter
        self.interrupted_ = fit.interrupted
        self.converged_ = fit.converged
        fit.warn()

    def _selected_params(self) -> dict[str, Any]:
        selected: dict[str, Any] = {}
        if isinstance(self.kernel, str) and self.kernel == "auto":
            selected["kernel"] = self.kernel_
        if self.temperature == "auto" and self.variant_ == "hierarchical":
            selected["temperature"] = self.temperature_
        return selected

    @property
    def _n_asked(self) -> int:
        """Number of components of the paper's model, by default 2."""
        return 2 if self.n_components is None else int(self.n_components)

    def _check_engine(self, target: Target) -> None:
        """Raise a ValueError if an engine is for other targets."""
        regression = ("conjugate", "nuts", "advi")
        allowed = regression if target == "regression" else ("hmc", "laplace", "nuts", "advi")
        if self.inference is not None and self.inference not in allowed:
            raise ValueError(
                f"inference={self.inference!r} is not for these targets: {type(self).__name__} "
                f"has {allowed}"
            )

    def _check_width(self, n_features: int) -> None:
        asked = self._n_asked if self.variant == "paper" else self.n_components
        if asked is not None and asked > n_features:
            raise ValueError(f"n_components={asked} must be at most n_features={n_features}")

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

    def _fit_mean_field(self, priors: Priors, rng: np.random.Generator) -> None:
        context, optimization = self._context, self._option("optimization")
        limits: dict[str, Any] = {
            "n_restarts": int(optimization.n_restarts),
            "max_iter": int(optimization.max_iter),
        }
        data = make_data(
            context.X,
            context.targets,
            n_labels=len(context.labels),
            target=context.target,
            projection_prior=priors.projection_prior,
        )
        with ascent_progress(
            "BSDR, mean field", **limits, n_jobs=self.n_jobs, enabled=self.progressbar
        ) as watched:
            result = fit_mean_field(
                data,
                priors,
                n_components=self._n_asked,
                rng=rng,
                start=optimization.start,
                tol=optimization.tol,
                **limits,
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
            warn_not_converged(optimization.max_iter, optimization.tol, stacklevel=5)

    def _fit_draws(self, priors: Priors, rng: np.random.Generator) -> None:
        context, schedule = self._context, self._schedule()
        self._tree = sampling.sample(
            self._engine,
            context,
            priors,
            n_components=self._n_asked,
            schedule=schedule,
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
        self.n_iter_ = int(self._tree["posterior"].sizes["draw"]) + schedule.tune
        self.interrupted_ = bool(self._tree.attrs.get("interrupted", 0))
        self.converged_ = sampling.warn_unless_converged(self._tree)
        self._set_components(fit["projection_mean"].to_numpy().T, fit["relevance"].to_numpy())

    @classmethod
    def _from_posterior(
        cls, tree: xr.DataTree, X: Any, y: Any, *, target: Target, latent_scale: float
    ) -> Self:
        """A fitted estimator from draws of a model of the user, see the subclasses."""
        draws = trees.read_draws(tree, target)
        r = draws["projection"].shape[3]
        model = cls(n_components=r, variant="paper", inference="nuts", standardize=False)
        samples, X = sample_labels(X), model._samples_of_fit(X)
        targets, context = model._read_given(y)
        check_consistent_length(X, targets)
        trees.check_draws(draws, n_features=X.shape[1], n_labels=len(context["labels"]))
        if not 0.0 <= latent_scale < np.inf:
            raise ValueError(f"latent_scale must be a finite number, not below 0: {latent_scale!r}")
        model._scaler = Scaler.identity(X.shape[1])
        config = model._config()
        del config["priors"]
        config["sampling"]["tune"] = None
        model._set_context(
            X,
            targets,
            target=target,
            config=config,
            samples=samples,
            **context,
        )
        model._set_draws(tree, draws, float(latent_scale))
        return model

    @abstractmethod
    def _read_given(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Targets of a model of the user as its arrays, and what the context holds of them."""

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

    def _set_components(self, components: FloatArray | None, share: FloatArray) -> None:
        """Set attributes of the components: loadings (R, D) if known, and the share of each."""
        self.relevance_ = share
        self.n_components_ = self._n_features_out = len(share)
        learned = None
        if components is not None:
            self.components_ = components
            if self._is_linear:
                learned = Reference.learn(self._context.X, components.T)
        self._reference = None if learned is None else learned[0]

    @property
    def _is_linear(self) -> bool:
        """Whether the latent coordinates of a fit are linear in the features."""
        return self._context.variant == "paper" or bool(self._posterior.metric.is_linear)

    @property
    def _is_plain(self) -> bool:
        """Whether the model has the linear kernel of all features."""
        return self.views is None and isinstance(self.kernel, str) and self.kernel == "linear"

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _check_linear(self, what: str) -> None:
        if not self._is_plain:
            given = f"kernel={self.kernel!r}" if self.views is None else "views"
            raise ValueError(
                f"{given} is not for {what}, where the kernel is linear and features have no "
                "views: the hierarchical model in memory takes kernels and views"
            )

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
        context = self._context
        if context.variant == "paper":
            return sampling.declare(context, context.priors, n_components=self.n_components_)
        return sampling.declare_hierarchical(context, context.priors, self._posterior.metric)

    @property
    def variant_(self) -> Variant:
        """Fitted model."""
        check_is_fitted(self)
        return self._context.variant

    def _samples_of_fit(self, X: Any) -> FloatArray:
        return validate_samples(self, X, reset=True, least=2, missing=self.views is not None)

    def _scale_new(self, X: Any) -> FloatArray:
        if self.views is None:
            return super()._scale_new(X)
        check_is_fitted(self)
        X = self._scaler.transform(validate_samples(self, X, reset=False, missing=True))
        feature_map = self._posterior.metric
        exclusive = isinstance(feature_map, Views) and feature_map.exclusive
        check_missing_views(X, self._context.views or (), exclusive=exclusive)
        return X

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        if self._is_linear:
            return super()._outliers(X)
        return {"out_of_range": self._posterior.undetermined(X)}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.allow_nan = self.views is not None
        return tags
