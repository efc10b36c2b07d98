"""Scikit-learn classifier of the recommended model."""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import warn_unless_mixed
from bsdr_models.dgplvm.back_constraint import MappingEmbedder
from bsdr_models.dgplvm.engines import fit_problem
from bsdr_models.dgplvm.left_out import in_metric
from bsdr_models.dgplvm.posterior import FitResult
from bsdr_models.dgplvm.priors import DGPLVMMapping, DGPLVMOptimization, DGPLVMPriors, Inference
from bsdr_models.dgplvm.problem import DGPLVMProblem, choose_criterion, relevance
from bsdr_models.dgplvm.sampling import declare_model
from bsdr_models.dgplvm.trees import SPEC, make_tree
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.learned_metric.metric import MetricName
from bsdr_models.numerics.arrays import FloatArray, SamplesLike
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.numerics.scaling import pad
from bsdr_models.options import COUNT, RandomState, Sampling, StrOptions

if TYPE_CHECKING:
    import pymc as pm

# Most components of the default.
MOST_COMPONENTS = 50


@dataclass(eq=False, repr=False)
class DGPLVMClassifier(ProbabilisticClassifier):
    r"""Classification by a discriminative Gaussian process latent variable model (D-GPLVM).

    The features are smooth functions of latent coordinates in which the classes are separated
    [1]_. A smooth mapping (back-constraint) embeds new samples and a Gaussian process classifier
    gives class probabilities. The model is nonlinear and meant for few samples with many features;
    of more than 2000 samples the fit takes a subsample with the same share of every class.
    It is a well-posed version of the paper's objective, which has no optimum; see Notes.

    Parameters
    ----------
    n_components : int, optional
        R, dimension of the latent space; by default one less than there are classes, at most 50.
    inference : {"map", "nuts", "advi"}, default="map"
        Maximum a posteriori, NUTS or ADVI. The last two compile the PyMC model.
    priors : DGPLVMPriors, optional
        Hyper-parameters, such as weight and criterion of the discriminative prior, see
        :class:`bsdr_models.DGPLVMPriors`.
    mapping : DGPLVMMapping, optional
        Back-constraint, which embeds new samples, see :class:`bsdr_models.DGPLVMMapping`.
    unlabeled : scalar, optional
        Value of y that marks a missing label. NaN stands for all kinds of missing values.
    metric : {"auto", "unit", "identity"}, default="auto"
        Metric in which the mapping compares samples: an average of eight candidates, weighted by
        held-out log losses (:mod:`bsdr_models.learned_metric`); features scaled to unit variance;
        or features in their own units.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over 200 evenly spaced draws, each of which needs a classifier of its own.
    optimization : DGPLVMOptimization, optional
        Restarts, iterations and tolerance of the search, see
        :class:`bsdr_models.DGPLVMOptimization`.
    progressbar : bool, default=False
        Whether to show how far a long fit has come.
    random_state : int, RandomState, Generator or None
        For the samples that are held out, random initialisations and samplers. A Generator is
        advanced by each fit, so that two fits differ, as they do with None.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    latent_ : ndarray of shape (n_fitted, n_components)
        Latent coordinates of the samples of the fit, with their labels: the mode, or means over
        draws. The rows are all training samples or, if there are more than 2000, those of the
        subsample: ``idata_["fit"]["obs"]`` has their positions, or labels of a data frame.
    components_ : ndarray of shape (n_components, n_features)
        Mean derivative of the mapping over the samples of the fit, in features of unit variance;
        not of samplers.
    feature_importances_ : ndarray of shape (n_features,)
        Share of each feature in the squared derivatives of the mapping.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the scatter of the class centroids of the left-out latent
        coordinates.
    map_width_, map_noise_ : float
        Width and noise of the mapping: averages by the errors of left-out samples, or as given.
    held_out_score_ : float
        Mean log probability of the labels of left-out samples, in nats per sample; NaN if every
        class has one sample.
    held_out_gain_, held_out_gain_se_ : float
        Gain of the held-out score over that of the class frequencies, and its standard error,
        which allows for folds that share training samples. The fit warns if the gain less 0.85
        standard errors is at most 0.01.
    metric_weights_ : dict
        Weight of each candidate of the metric by name, the largest first.
    log_density_ : ndarray of shape (n_iter,)
        Log posterior density after each iteration, in nats, up to a constant.
    n_iter_ : int
        Iterations of the optimisation; of a sampler warm-up and draws of a chain.
    converged_, interrupted_ : bool
        Whether the search met its tolerance, or the draws have mixed, and whether the user stopped
        the fit.
    idata_ : xarray.DataTree
        Mode or draws, latent coordinates and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The well-posed model on the samples of the fit, in features whitened by the metric.

    See Also
    --------
    bsdr_models.papers.PaperDGPLVMClassifier : the objective of the paper.
    BSDRClassifier : a linear map with effects of the features.
    BM2PCAClassifier : few samples, missing values.

    Notes
    -----
    The paper's objective has no minimum: its criterion :math:`J = \operatorname{tr}(S_b^{-1} S_w)`
    does not depend on the scale of the latent coordinates, and its back-constraint, with one weight
    per sample and component, constrains nothing. This model whitens the latent coordinates,
    integrates out the means of the features, counts correlated features by their effective number,
    gives kernel parameters proper priors, and has a Gaussian process with noise as back-constraint.
    The mode minimises

    .. math::
        \tau L(X, \theta) + w J(X) + \tfrac{(N - 1) R + \nu}{2}
        \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu) - \log p(\theta).

    The classifier is fitted to latent coordinates of samples that are left out of the mapping, and
    of its metric, because training samples lie closer to their class centroids than new samples
    do. Plots of training samples show the same coordinates. Its probabilities are mixed with the
    class frequencies as far as held-out samples show no signal. Standardised values of new samples
    are bounded by :math:`\sqrt{n - 1}` in magnitude, the largest of n training samples.

    References
    ----------
    .. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
           classification. International Conference on Machine Learning 24, 927-934.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import DGPLVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = DGPLVMClassifier().fit(X[::3], y[::3])
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.score(X[1::3], y[1::3]) > 0.9)
    True
    """

    _spec = SPEC
    _result: FitResult = field(init=False)
    _most_samples: ClassVar[int] = 2000
    _option_types: ClassVar[dict[str, type[Any]]] = {
        "priors": DGPLVMPriors,
        "mapping": DGPLVMMapping,
        "sampling": Sampling,
        "optimization": DGPLVMOptimization,
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        "inference": [StrOptions({"map", "nuts", "advi"})],
    }

    n_components: int | None = None
    _: KW_ONLY
    inference: Inference = "map"
    priors: DGPLVMPriors | None = None
    mapping: DGPLVMMapping | None = None
    unlabeled: object = None
    metric: MetricName = "auto"
    sampling: Sampling | None = None
    optimization: DGPLVMOptimization | None = None
    progressbar: bool = False
    random_state: RandomState = None

    def _learn(self, targets: Targets, rng: np.random.Generator) -> FitResult:
        index = targets.coded
        n_classes = len(targets.names)
        n_components = int(self.n_components or min(MOST_COMPONENTS, n_classes - 1))
        priors = self._option("priors")
        n_labelled = int((index >= 0).sum())
        criterion = choose_criterion(priors.criterion, n_components, n_classes, n_labelled)
        training = self._training(targets, rng, metric=self.metric)
        self._metric = training.metric()
        self.metric_weights_ = self._metric.shares
        problem = DGPLVMProblem(
            X=in_metric(self._metric, training.X),
            y_index=index,
            n_components=n_components,
            criterion=criterion,
            optimization=self._option("optimization"),
            priors=priors,
            mapping=self._option("mapping"),
            training=training,
        )
        result = fit_problem(problem, self.inference, self._schedule(), rng=rng)
        self._problem = replace(problem, training=None)  # only the fit needs what it has held out
        attrs = {
            "weight": priors.weight,
            "criterion": criterion,
            "objective": "log posterior density",
            **result.settings,
            **result.posterior.calibration.attrs(),
        }
        return replace(result, attrs=attrs)

    def _prepare(self, X: FloatArray, *, bounded: bool = True) -> FloatArray:
        if bounded:
            largest = np.sqrt(len(self._context.X) - 1.0)
            X = np.clip(X, -largest, largest)
        return in_metric(self._metric, X)

    def _name_fitted(self) -> None:
        result = self._result
        index = self._context.targets.index
        assert index is not None
        self.latent_ = result.latent
        self.log_density_ = result.trace
        self._n_features_out = result.latent.shape[1]
        self.relevance_ = relevance(result.left_out.mean, index)
        self.temperature_ = result.posterior.calibration.temperature
        self.map_width_ = result.settings["map_width"]
        self.map_noise_ = result.settings["map_noise"]
        if result.sampled is None:
            derivative = self._sensitivity()[0]
            self.components_ = pad(derivative, self._context.constant, axis=0).T
        else:
            mixed = warn_unless_mixed(self.idata_, SPEC.identified)
            self.converged_ = mixed and result.posterior.classified
            draws = self.idata_["posterior"].sizes["draw"]
            steps = result.sampled.fit.get("elbo")
            self.n_iter_ = draws + self._schedule().tune if steps is None else len(steps)

    def _selected_params(self) -> dict[str, object]:
        return {"mapping__width": self.map_width_, "mapping__noise": self.map_noise_}

    def out_of_range(self, X: SamplesLike) -> FloatArray:
        """Predictive variance of the mapping: how far samples are from the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Relative to an infinitely distant sample, between 0 and 1; near 1 the class is a guess.
            Values of the features are not bounded here.
        """
        samples = self._prepare(self._scale_new(X), bounded=False)  # raises NotFittedError
        return self._embedder.out_of_range(samples)

    @property
    def _embedder(self) -> MappingEmbedder:
        embedder: MappingEmbedder = self._posterior.embedder
        return embedder

    def _sensitivity(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of the mapping in the scaled features, over the training samples."""
        effects = np.pad(self._metric.effects, ((0, 0), (0, 1)))  # none outside of their span
        return self._embedder.sensitivity(self._problem.X, effects)

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        """Relative variance, and the share of training samples with at least as much."""
        return self._embedder.outliers(self._embedder.out_of_range(X))

    def _make_tree(self) -> xr.DataTree:
        with one_thread():
            derivative, sd, share = self._sensitivity()
            outliers = self._embedder.outliers(self._embedder.out_of_range_left_out())
        fit = {
            "relevance": self.relevance_,
            **outliers,
            "projection_mean": derivative,
            "projection_sd": sd,
            "feature_relevance": share,
        }
        return make_tree(self._result, self._context, fit=fit, method=self._method)

    @property
    def _method(self) -> Inference:
        return self.inference

    @property
    def model_(self) -> "pm.Model":
        """The model on the samples of the fit, whitened by the metric, as a ``pymc.Model``.

        Its factors are potentials. It has no observed variable, so that
        ``pm.compute_log_likelihood`` and ``pm.sample_posterior_predictive`` find nothing to draw.
        """
        check_is_fitted(self)
        whitened = replace(self._context, feature_names=())
        return whitened.name_dims(declare_model(self._problem, self._result.settings))
