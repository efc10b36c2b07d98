"""Scikit-learn estimators of BSDR."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import xarray as xr
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bsdr_models import options
from bsdr_models.bsdr import trees
from bsdr_models.bsdr.engines import Engine, EngineOptions, Fit, fit_problem
from bsdr_models.bsdr.feature_map import FeatureMap, MapLearner, check_views, make_learner
from bsdr_models.bsdr.kernels import KERNELS, Kernel
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem
from bsdr_models.bsdr.trees import SPEC
from bsdr_models.data.replicates import weigh_samples
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import (
    feature_names,
    read_views,
    validate_samples,
)
from bsdr_models.estimators.base import Estimator, WeightedFit
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.estimators.regressor import GaussianRegressor
from bsdr_models.inference.tasks import threads
from bsdr_models.lazy import annex
from bsdr_models.learned_metric.metric import MetricName
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.options import COUNT, POSITIVE, RandomState, Sampling, StrOptions

if TYPE_CHECKING:
    import pymc as pm


@dataclass(eq=False, repr=False)
class FullRankEstimator(Estimator):
    """The recommended model: arguments, fit, embedding and trees."""

    _spec = SPEC
    _result: Fit = field(init=False)
    _views: list[tuple[str, IntArray]] | None = field(init=False)  # names and features
    _option_types: ClassVar[dict[str, type[options.Options]]] = {
        "priors": HierarchicalPriors,
        "sampling": Sampling,
    }
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_components": [COUNT, None],
        "inference": [StrOptions({"hmc", "laplace", "nuts", "advi"}), None],
        "kernel": [StrOptions(set(KERNELS)), Kernel],
        "temperature": [StrOptions({"auto"}), POSITIVE],
    }

    n_components: int | None = None
    _: KW_ONLY
    inference: Engine | None = None
    kernel: str | Kernel = "linear"
    views: Mapping[str, Sequence[object]] | None = None
    temperature: Literal["auto"] | float = "auto"
    priors: HierarchicalPriors | None = None
    metric: MetricName = "auto"
    sampling: Sampling | None = None
    n_jobs: int | None = None
    progressbar: bool = False
    random_state: RandomState = None

    @property
    def _method(self) -> Engine:
        return self._result.engine

    def _config(self, **resolved: object) -> dict[str, Any]:
        config = super()._config(**resolved)
        kernel = self.kernel
        return config | {"kernel": kernel if isinstance(kernel, str) else kernel.label}

    def _check_params(self) -> None:
        super()._check_params()
        if self.inference == "laplace" and self.views is not None:
            raise ValueError("inference='laplace' is for one kernel and no views: use 'hmc'")

    def _check_width(self) -> None:
        n = int(self._scaler.varies.sum())
        if self.n_components is not None and self.n_components > n:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )

    def _read(self, X: SamplesLike, *, reset: bool) -> FloatArray:
        missing = not reset and self._views is not None
        return validate_samples(self, X, reset=reset, missing=missing)

    def _scale(self, X: FloatArray) -> FloatArray:
        scaled = super()._scale(X)
        if self._is_plain:
            self._check_width()
        elif self._context.weights is not None:
            raise ValueError(
                "sample_weight is for the linear kernel of all features: give no kernel or views"
            )
        self._views = self._named_views()
        return scaled

    def _named_views(self) -> list[tuple[str, IntArray]] | None:
        """Names and features of views among the scaled ones."""
        views = read_views(self.views, list(feature_names(self)))
        return None if views is None or len(views) == 1 else self._scaler.positions(views)

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Fit:
        with threads(self.n_jobs):
            return fit_problem(
                self._learner(targets, rng.spawn(1)[0]),
                self._problem,
                self.inference,
                self._engine_options(),
                declare=self._declare,
                rng=rng,
            )

    def _learner(self, targets: Targets, rng: np.random.Generator) -> MapLearner:
        """What learns whitened features from the training samples in memory."""
        views = self._views
        training = self._training(targets, rng, metric=self.metric if views is None else None)
        self._groups = training.groups
        return make_learner(training, metric=self.metric, kernel=self.kernel, views=views)

    def _problem(self, feature_map: FeatureMap, samples: IntArray) -> BSDRProblem:
        """The problem of some training samples with whitened features."""
        context = self._context
        whitened = feature_map.whiten(context.X[samples])
        targets = context.targets.coded[samples]
        weights = None if context.weights is None else context.weights[samples]
        exact = context.targets.kind == "regression" and self.inference in (None, "conjugate")
        if exact and self._groups is not None:
            own = weigh_samples(whitened, targets, self._groups[samples])
            weights = own if weights is None else own * weights
        return BSDRProblem(
            X=whitened,
            y=targets.astype(bool) if context.targets.kind == "multilabel" else targets,
            n_labels=len(context.targets.names),
            target=context.targets.kind,
            priors=self._option("priors"),
            views=feature_map.index,
            weights=weights,
        )

    def _engine_options(self) -> EngineOptions:
        return EngineOptions(
            n_components=self.n_components,
            temperature=None if self.temperature == "auto" else float(self.temperature),
            sampling=self._option("sampling"),
            progressbar=self.progressbar,
        )

    def _name_fitted(self) -> None:
        fit = self._result
        posterior = fit.posterior
        feature_map = posterior.feature_map
        draws = posterior.draws
        X = self._context.X if feature_map.is_linear else None
        self._set_components(posterior.components().T, posterior.share, X)
        self.n_components_ = self._n_features_out
        if feature_map.n_views > 1:
            whitened = feature_map.whiten(self._context.X)
            shares = feature_map.shares(draws.projection, draws.weights, whitened)
            self.views_ = list(feature_map.names)
            self.view_share_ = shares.mean(axis=0)
        self.metric_weights_ = feature_map.metric_weights
        self.temperature_ = posterior.calibration.temperature

    def _selected_params(self) -> dict[str, object]:
        return {"temperature": self.temperature_} if self.temperature == "auto" else {}

    @property
    def _is_plain(self) -> bool:
        """Whether the model has the linear kernel of all features."""
        return self.views is None and bool(self.kernel == "linear")

    def _make_tree(self) -> xr.DataTree:
        rng = np.random.default_rng(self._seed)
        with one_thread():  # the same bits in another process
            return trees.hierarchical_tree(
                self._result,
                self._context,
                reference=self._reference,
                rng=rng,
                attrs=self._attrs(),
            )

    def _mean_effects(self) -> tuple[FloatArray, FloatArray] | None:
        linear = self._posterior.feature_map.is_linear
        return self._posterior.effects() if linear else None

    def _attrs(self) -> dict[str, object]:
        return super()._attrs() | self._result.described()

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples, and on standardised real targets.

        ``idata_`` holds its free variables, so that the functions of PyMC take it. Scale new
        samples by ``(X - mean_) / scale_``; with views, or a kernel other than the linear one, the
        model has no new samples.
        """
        check_is_fitted(self)
        if self._context.kept is not None and self._context.weights is None:
            raise AttributeError("model_ needs all training samples in memory")
        return self._context.name_dims(self._declare(self._posterior.feature_map))

    def _declare(self, feature_map: FeatureMap) -> "pm.Model":
        """The PyMC model of given whitened features."""
        from bsdr_models.bsdr.model import declare_hierarchical

        context = self._context
        priors = HierarchicalPriors(**context.config["priors"])
        X = context.X
        y = context.targets.coded if context.targets.kind == "regression" else context.targets.y
        names = context.modelled_names
        return declare_hierarchical(
            X, y, priors, context.targets.kind, feature_map, names, sample_weight=context.weights
        )

    def _scale_new(self, X: SamplesLike) -> FloatArray:
        check_is_fitted(self)
        scaled = super()._scale_new(X)
        if self._views is not None:
            check_views(scaled, self._views)
        return scaled

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        if self._posterior.feature_map.is_linear:
            return super()._outliers(X)
        return {"out_of_range": self._posterior.undetermined(X)}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.views is not None
        return tags


@dataclass(eq=False, repr=False)
class BSDRClassifier(WeightedFit, ProbabilisticClassifier, FullRankEstimator):
    """Bayesian supervised dimensionality reduction for classification [1]_.

    A multinomial probit classifier with one projection of the features for each contrast of
    classes. The prior of the projections is matrix-normal with a learned scale, and shrinks
    directions that the labels do not support. The posterior is sampled by Hamiltonian Monte Carlo,
    or approximated by Laplace's method for many samples.

    Parameters
    ----------
    n_components : int, optional
        Number of latent coordinates, the leading ones. None is all of them, the number of classes
        less one (for multi-label targets, the number of labels). Predictions do not depend on it.
    inference : {"hmc", "laplace", "nuts", "advi"}, optional
        Inference method: ``"hmc"``, Hamiltonian Monte Carlo, or ``"laplace"``, a normal
        approximation around the mode, for at most 10 000 features times contrasts. None is
        ``"hmc"`` up to about 25 000 samples (ten classes, 64 features) and ``"laplace"`` beyond.
        ``"nuts"`` and ``"advi"`` compile the PyMC model.
    kernel : str or Kernel, default="linear"
        Kernel of the Gaussian process prior of the linear predictor. ``"linear"`` is linear in the
        features; ``"rbf"``, ``"matern"`` and ``"polynomial"`` stand for a
        :class:`bsdr_models.bsdr.Kernel` with its defaults. Compare them by ``held_out_score_``.
        Above 1500 training samples kernels have 500 landmarks. Not for Dask arrays, as ``views``.
    views : dict, optional
        Groups of features, each with a scale of its own: lists of columns by the name of the view.
        A new sample may lack views (NaN), which are integrated out. Relative scales are those of
        the largest marginal posterior density, but for ``"nuts"`` and ``"advi"``, which sample
        them. Not for ``inference="laplace"``.
    temperature : "auto" or float, default="auto"
        Number by which the log of class probabilities is divided. 1 is the posterior predictive,
        which is under-confident on most real data. ``"auto"`` is for ``"hmc"`` an average by the
        likelihood of held-out samples, and mixes in the class frequencies as far as these show no
        signal (:mod:`bsdr_models.estimators.calibration`). For the other methods it is 1.
    priors : HierarchicalPriors, optional
        Hyper-parameters.
    metric : {"auto", "unit", "identity"}, default="auto"
        Prior covariance of the effects of the features (:mod:`bsdr_models.learned_metric`).
        ``"auto"`` is an average of several that are learned within classes, by how well they
        predict held-out samples: a feature matters by how far it can separate the classes
        relative to its variation within them. ``"unit"`` gives all features unit variance,
        ``"identity"`` leaves them as they are. For real outputs ``"auto"`` is ``"unit"``.
    sampling : Sampling, optional
        Draws, warm-up and chains. By default 1000 draws of each of four chains, for ``"hmc"`` 500
        draws of each of eight chains. Beyond about 300 samples of ten classes there are fewer
        draws, and beyond about 1300 only four chains.
    n_jobs : int, optional
        Threads of ``"hmc"``, for blocks of its chains and for the folds of the temperature: None is
        1 unless set by ``joblib.parallel_config``, -1 is all cores. The result does not depend on
        it.
    progressbar : bool, default=False
        Whether to show how far a long fit has come.
    random_state : int, RandomState, Generator or None
        For the samples that are held out and the draws. A Generator is advanced by each fit, so
        that two fits differ, as they do with None.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    n_components_ : int
        Number of columns of :meth:`transform`.
    components_ : ndarray of shape (n_components, n_features)
        Loadings of the coordinates returned by :meth:`transform` on scaled features. Of a kernel
        those of the linear function that is closest at the training samples.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the linear predictor of class means.
    views_ : list of str
        Names of the views. Without views this attribute and the next are absent.
    view_share_ : ndarray of shape (n_views,)
        Posterior mean of the share of each view in the variance of the linear predictor; draws
        are ``view_share`` of ``idata_``.
    temperature_ : float
        Temperature of class probabilities.
    metric_weights_ : dict
        Weights of the covariances that the metric averages by name, the largest first; with views
        a dict for each view.
    held_out_score_ : float
        Mean log probability of the labels that were held out for the temperature, each calibrated
        by the other folds, in nats per sample or, for several labels, per label.
        NaN if none was held out.
    held_out_gain_, held_out_gain_se_ : float
        Gain of the held-out score over that of the class frequencies, and its standard error,
        which allows for folds that share training samples.
    n_iter_ : int
        Draws of a chain, or Newton steps of ``"laplace"``.
    converged_ : bool
        Samplers: whether R-hat of identified quantities is below 1.05. ``"laplace"``: whether a
        mode was found and the Pareto k of the importance ratios is below 0.7.
    interrupted_ : bool
        Whether the fit was stopped by the user; it can still be used.
    idata_ : xarray.DataTree
        Posterior draws, diagnostics and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The PyMC model on the training samples.

    See Also
    --------
    BM2PCAClassifier : few samples, missing values, unlabelled samples.
    DGPLVMClassifier : a nonlinear map.
    bsdr_models.papers.PaperBSDRClassifier : the model as the paper prints it.
    cross_validated_map : a map of samples that the model has not seen.
    bsdr_models.bsdr.build_model : the model in PyMC.

    Notes
    -----
    The model identifies the linear predictor. Its latent coordinates are the canonical variates of
    its posterior mean, in units of the probit noise and ordered by ``relevance_``; their covariance
    is that over draws, without the scale and shear that a draw gives all samples. With a kernel
    they are nonlinear functions of the features (:mod:`bsdr_models.bsdr.kernels`).

    Class probabilities are means over at most 600 draws, shifted to the mean of all, which changes
    them by less than another ``random_state`` does. Draws, intervals and latent coordinates do not
    depend on the temperature. They are those given the metric. Folds relearn it, so that
    temperature and held-out scores do not know the labels of the samples that are held out.

    `fit` also takes Dask arrays, if each sample has one label, and reads each chunk once per
    evaluation of Laplace's method. The metric is learned from an evenly spaced subsample of 2000,
    which ``idata_`` contains.

    A fit warns if chains have not mixed, and if the held-out gain does not show a signal, or there
    are too few samples to tell.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.held_out_gain_ > 0.9)  # over the class frequencies, in nats per sample
    True
    >>> curved = BSDRClassifier(kernel="matern", random_state=0).fit(X, y)
    >>> predictive = BSDRClassifier(temperature=1.0, random_state=0).fit(X, y)
    >>> predictive.temperature_
    1.0
    """

    _several: ClassVar[bool] = True

    def _fit_chunks(self, X: SamplesLike, y: TargetLike, groups: TargetLike | None) -> Self:
        annex("large.engine").fit_chunks(self, X, y, groups)
        return self


@dataclass(eq=False, repr=False)
class BSDRRegressor(WeightedFit, GaussianRegressor, FullRankEstimator):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian linear regression of several outputs that share the scale of their coefficients.
    Latent coordinates are the principal components of the linear predictor. Outputs are
    standardised internally. With ``groups``, ``"conjugate"`` weights samples by how much those of
    a group resemble each other: replicates count together as one sample, and so do equal samples. A
    ``sample_weight`` of two counts as two.

    Parameters
    ----------
    n_components, kernel, views, priors, metric, sampling, n_jobs, progressbar, random_state
        As for :class:`BSDRClassifier`, with one contrast per output.
    inference : {"conjugate", "nuts", "advi"}, optional
        ``"conjugate"``, the default, are independent draws of the exact posterior: all but the
        scales of projection and noise is integrated out, and these are on a grid. Scales of views
        are those of the highest marginal likelihood. Others as for :class:`BSDRClassifier`.
    temperature : "auto" or 1.0
        Ignored: predictions are the mean and standard deviation of the posterior predictive.

    Attributes
    ----------
    n_components_ : int
        At most the number of outputs.
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; other attributes as for :class:`BSDRClassifier`.
    log_evidence_ : float
        Log marginal likelihood of the standardised outputs by ``"conjugate"``, in nats; NaN by the
        other methods.

    See Also
    --------
    BM2PCARegressor : models the features too, and takes missing values.
    bsdr_models.papers.bsdr.fit : the reduced-rank regression of the paper.
    bsdr_models.bsdr.build_model : the model in PyMC.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bsdr_models import BSDRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BSDRRegressor(random_state=0).fit(X[:200], y[:200])
    >>> mean, std = model.predict(X[200:], return_std=True)
    >>> mean.shape, std.shape
    ((242,), (242,))
    >>> model.transform(X).shape  # one output has one direction
    (442, 1)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **FullRankEstimator._parameter_constraints,
        "inference": [StrOptions({"conjugate", "nuts", "advi"}), None],
    }

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.log_evidence_ = self._result.log_evidence

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, std = self._posterior.moments(X)
        return mean, std
