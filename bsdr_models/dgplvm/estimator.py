"""Scikit-learn classifier of D-GPLVM."""

import warnings
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import xarray as xr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.base import LatentSpaceEstimator, ProbabilisticClassifier
from bsdr_models.block_sources import by_blocks
from bsdr_models.checks import (
    check_latent,
    feature_names,
    fit_scaler,
    one_thread,
    warn_unless_mixed,
)
from bsdr_models.dgplvm import settings, trees
from bsdr_models.dgplvm.draws import declare_model, learn_draws
from bsdr_models.dgplvm.dynamics import Dynamics
from bsdr_models.dgplvm.learn import FitResult, Options, learn_mode
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.paper.fit import learn_paper
from bsdr_models.dgplvm.predict import LikelihoodEmbedder, MappingEmbedder, Posterior
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.settings import Mapping, Optimization
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dgplvm.summary_parts import summary_parts
from bsdr_models.frames import require_targets, sample_labels, validate_samples
from bsdr_models.inference.datatree import Context
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.options import COUNT, Sampling
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.summary import SummaryParts
from bsdr_models.unlabeled import encode_known, known_entries


class DGPLVMClassifier(ProbabilisticClassifier, LatentSpaceEstimator):
    r"""Classification by a discriminative Gaussian process latent variable model (D-GPLVM).

    The features are smooth functions of latent coordinates in which the classes are separated
    [1]_. A smooth mapping (back-constraint) embeds new samples and a Gaussian process classifier
    gives class probabilities. The model is nonlinear and meant for few samples with many features.
    The default is a well-posed version of the paper's objective, which has no optimum; see Notes.

    Parameters
    ----------
    n_components : int, optional
        R, dimension of the latent space; by default 2, and 1 for two classes.
    variant : {"whitened", "paper"}, default="whitened"
        The well-posed model, or the objective of the paper.
    inference : {"map", "nuts", "advi"}, default="map"
        Maximum a posteriori, NUTS or ADVI. The last two compile the PyMC model and need
        ``variant="whitened"``.
    priors : Priors, optional
        Hyper-parameters, such as weight and criterion of the discriminative prior, see
        :class:`bsdr_models.dgplvm.Priors`.
    mapping : Mapping, optional
        Back-constraint and embedding of new samples, see :class:`bsdr_models.dgplvm.Mapping`.
    unlabeled : scalar, optional
        Value of y that marks a missing label. NaN stands for all kinds of missing values.
    standardize : bool or "auto", default="auto"
        Whether to scale each feature to unit variance, or all by a common factor. "auto" scales
        each if a few features have most of the variance, as with different units.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over evenly spaced draws, each of which needs a classifier of its own: as many as
        bring the standard error of a probability below 0.01, or 256 MiB allow.
    optimization : Optimization, optional
        Restarts, iterations and tolerance of the search, and approximation of the classifier, see
        :class:`bsdr_models.dgplvm.Optimization`.
    n_jobs : int, optional
        Initialisations that run in parallel, by joblib as in scikit-learn: None is 1 unless a
        ``joblib.parallel_config`` says otherwise, -1 is all cores. It does not change the result.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        For centres, random initialisations and samplers. A Generator is used as it is, so that
        two fits differ.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    latent_ : ndarray of shape (n_samples, n_components)
        Latent coordinates of the training samples, fitted with their labels.
    components_ : ndarray of shape (n_components, n_features)
        Mean derivative of the mapping over the training samples; only with a mapping.
    feature_relevance_ : ndarray of shape (n_features,)
        Share of each feature in the squared derivatives of the mapping.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the scatter of the class centroids of the leave-one-out latent
        coordinates.
    map_width_, map_noise_ : float
    held_out_score_ : float
        Log score of leave-one-out predictions, in nats per sample; NaN for the paper's variant,
        whose latent coordinates depend on the label, and if every class has one sample.
    held_out_gain_, held_out_gain_se_ : float
        How much better it is than that of the class frequencies, and its standard error. The fit
        warns if the gain less 1.28 standard errors is at most 0.01.
    standardized_ : bool
        Whether each feature was scaled to unit variance.
    log_density_ : ndarray of shape (n_iter,)
        Log posterior density after each iteration, in nats, up to a constant.
    n_iter_ : int
    converged_, interrupted_ : bool
    idata_ : xarray.DataTree
        Mode or draws, latent coordinates and data, for ArviZ and
        :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The well-posed model on the training samples.

    See Also
    --------
    BSDRClassifier : a linear map with effects of the features.
    BM2PCAClassifier : few samples, missing values.

    Notes
    -----
    *The paper's objective* is not well posed. Its prior of the latent coordinates,
    exp(-J / sigma_d^2) with :math:`J = \operatorname{tr}(S_b^{-1} S_w)`, does not depend on their
    scale. With a free length-scale and densities 1 / theta of the kernel parameters the objective
    is unbounded. Its back-constraint has one weight per sample and component and constrains
    nothing. With more features than samples the optimum explains the features by noise alone, so
    that their kernel is a poor kernel for the classifier.

    *The default* whitens the latent coordinates, integrates out the means of the features, counts
    correlated features by their effective number, gives kernel parameters proper priors, and has a
    Gaussian process with noise as back-constraint. The mode minimises

    .. math::
        \tau L(X, \theta) + w J(X) + \tfrac{(N - 1) R + \nu}{2}
        \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu) - \log p(\theta).

    *The classifier* is fitted to leave-one-out latent coordinates, which the mapping has in closed
    form, because training samples lie closer to their class centroids than new samples do. Plots
    of training samples show the same coordinates.

    *The generative part* hardly changes the accuracy: that of ``weight=numpy.inf`` is within about
    one point. It gives a density of the features, for reconstruction and embedding by likelihood.

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
    _option_types: ClassVar[dict[str, type[Any]]] = {
        "priors": Priors,
        "mapping": Mapping,
        "sampling": Sampling,
        "optimization": Optimization,
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        "variant": [StrOptions(set(get_args(settings.Variant)))],
        "inference": [StrOptions(set(get_args(settings.Inference)))],
        "standardize": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        variant: settings.Variant = "whitened",
        inference: settings.Inference = "map",
        priors: Priors | None = None,
        mapping: Mapping | None = None,
        unlabeled: Any = None,
        standardize: bool | Literal["auto"] = "auto",
        sampling: Sampling | None = None,
        optimization: Optimization | None = None,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.inference = inference
        self.priors = priors
        self.mapping = mapping
        self.unlabeled = unlabeled
        self.standardize = standardize
        self.sampling = sampling
        self.optimization = optimization
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sequence: Any = None) -> Self:
        """Fit latent coordinates, mapping and classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes; entries equal to ``unlabeled`` have none.
        sequence : array-like of shape (n_samples,), optional
            Sequence of each sample; those of one sequence are in order of time. Latent coordinates
            then have Gaussian process dynamics, Eqs. (19) and (20) of the paper.

        Returns
        -------
        self : DGPLVMClassifier

        Raises
        ------
        ValueError
            If the input is not finite or of the wrong shape, fewer than two classes are labelled,
            no feature varies, or an argument is out of range.
        """
        self._reset()
        self._check_arguments()
        require_targets(self, y)
        samples, X = sample_labels(X), validate_samples(self, X, reset=True, least=2)
        given, known = known_entries(y, self.unlabeled)
        self.classes_, index = encode_known(given, known)
        check_consistent_length(X, index)
        if sequence is not None:
            check_consistent_length(X, sequence)
            check_array(sequence, ensure_2d=False, dtype=None, input_name="sequence")
        rng = as_generator(self.random_state)
        task = self._make_task(self._scale(X), index, sequence)
        with one_thread(), self._fitting(X.shape):
            self._set_fitted(self._learn(task, sequence, rng), task, given.ravel(), samples)
        return self

    def _learn(self, task: Task, sequence: Any, rng: np.random.Generator) -> FitResult:
        options = self._options(len(task.X))
        if self.variant == "paper":
            return learn_paper(task, options, sequence=sequence, rng=rng)
        if self.inference == "map":
            return learn_mode(task, options, rng=rng)
        return learn_draws(
            self.inference,
            task,
            options,
            schedule=self._schedule(),
            rng=rng,
        )

    def _check_arguments(self) -> None:
        """Validate arguments that need no data."""
        self._check_params()
        if self.variant == "paper":
            if self.inference != "map":
                raise ValueError(
                    f"variant='paper' has inference='map' only, got {self.inference!r}: its "
                    "density has no finite integral"
                )
            if self._option("priors").weight == np.inf:
                raise ValueError("variant='paper' needs a finite weight")

    def _make_task(self, X: FloatArray, index: IntArray, sequence: Any) -> Task:
        priors, mapping = self._option("priors"), self._option("mapping")
        n_classes = len(self.classes_)
        n_components = int(settings.choose_components(self.n_components, n_classes))
        self._check_centres(n_components)
        given = priors.weight
        weight = settings.WEIGHTS[self.variant] if given is None else float(given)
        return Task(
            X=X,
            y_index=index,
            n_labels=n_classes,
            n_components=n_components,
            priors=priors,
            weight=weight,
            criterion=settings.choose_criterion(
                priors.criterion, n_components, n_classes, int((index >= 0).sum())
            ),
            n_centres=0 if mapping.kind == "none" else mapping.n_centres,
            dynamics=None if sequence is None else Dynamics.of(sequence),
        )

    def _check_centres(self, n_components: int) -> None:
        """Raise a ValueError if the paper's mapping has too few centres for its components."""
        mapping: Mapping = self._option("mapping")
        if self.variant != "paper" or mapping.kind == "none" or mapping.n_centres is None:
            return
        if mapping.n_centres < n_components:
            raise ValueError(
                f"n_centres={mapping.n_centres} must be at least n_components={n_components} for "
                "variant='paper': the latent coordinates are linear in that many kernels"
            )

    def _options(self, n_samples: int) -> Options:
        mapping, optimization = self._option("mapping"), self._option("optimization")
        return Options(
            approximation=settings.choose_approximation(
                optimization.approximation, len(self.classes_), n_samples
            ),
            placement=mapping.embedding,
            reuse_kernel=self._option("priors").reuse_kernel,
            widths=mapping.widths,
            noises=mapping.noises,
            n_starts=int(optimization.n_restarts),
            max_iter=int(optimization.max_iter),
            tol=optimization.tol,
            progressbar=self.progressbar,
            n_jobs=self.n_jobs,
        )

    def _scale(self, X: FloatArray) -> FloatArray:
        """Fit the scaler to the training samples and apply it."""
        scaler = fit_scaler(X, standardize=True)
        each = settings.in_different_units(X) if self.standardize == "auto" else self.standardize
        if not each:
            scaler = settings.common_scale(scaler)
        self._scaler, self.standardized_ = scaler, bool(each)
        return scaler.transform(X)

    def _set_fitted(
        self, result: FitResult, task: Task, y: np.ndarray, samples: np.ndarray | None
    ) -> None:
        """Set the fitted attributes and issue the warnings of a fit."""
        self._learned, self._task, self._posterior = result, task, result.posterior
        self._tree: xr.DataTree | None = None
        self._context = Context(
            target="multiclass",
            X=task.X,
            y=y,
            samples=samples,
            index=task.y_index,
            feature_names=feature_names(self),
            labels=self.classes_,
            config=self._config(),
            attrs={
                "variant": self.variant,
                "weight": task.weight,
                "criterion": task.criterion,
                "objective": "log posterior density",
                **result.settings,
                **result.held_out.attrs(),
            },
        )
        self.latent_ = result.latent
        self._n_features_out = result.latent.shape[1]
        self.relevance_ = trees.relevance(result.left_out.mean, task.y_index)
        self.log_density_, self.n_iter_ = result.trace, len(result.trace)
        self.converged_, self.interrupted_ = result.converged, result.interrupted
        for name, value in (result.settings | result.held_out.named()).items():
            setattr(self, f"{name}_", value)
        if isinstance(result.posterior, Posterior):
            embedder = result.posterior.embedder
            if isinstance(embedder, MappingEmbedder):
                slope, _, share = embedder.sensitivity(task.X)
                self.components_, self.feature_relevance_ = slope.T, share
        for message in result.warnings:
            warnings.warn(message, UserWarning, stacklevel=3)
        if result.sampled is not None:
            self.converged_ = warn_unless_mixed(self.idata_, SPEC.identified, stacklevel=4)
            tune = self._schedule().tune
            self.n_iter_ = self.idata_["posterior"].sizes["draw"] + tune
        elif not (self.converged_ or self.interrupted_):
            max_iter = self._option("optimization").max_iter
            warnings.warn(
                f"the search stopped after max_iter={max_iter} iterations; the result is "
                "usable, but a larger max_iter brings it closer to the optimum",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _selected_params(self) -> dict[str, Any]:
        chosen = self._learned.settings
        found = {f"mapping__{name.removeprefix('map_')}": value for name, value in chosen.items()}
        return {**found, "standardize": self.standardized_}

    def _summary_parts(self) -> SummaryParts:
        return summary_parts(self)

    @by_blocks
    def transform(
        self, X: Any, *, return_cov: bool = False, sequence: Any = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Latent coordinates of samples, each embedded as a new sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array
            A Dask array gives a Dask array, in the other predictions too.
        return_cov : bool
            Also return the covariance of the latent coordinates.
        sequence : array-like of shape (n_samples,), optional
            As in `fit`: the prior of each sample is what the dynamics predict from the sample
            before. Needs a fit to sequences and ``placement="likelihood"``.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
        cov : ndarray of shape (n_samples, n_components, n_components)
            If ``return_cov``. By the mapping, on the scale of the leave-one-out errors; by the
            likelihood, the inverse Hessian at the optimum.
        """
        X = self._samples(X)
        if sequence is None and not return_cov:
            with one_thread():
                return self._posterior.latent(X)
        found = self._embed(X) if sequence is None else self._embed_sequence(X, sequence)
        return (found.mean, found.cov) if return_cov else found.mean

    def _embed(self, X: FloatArray) -> LatentCoordinates:
        with one_thread():
            return super()._embed(X)

    def _embed_sequence(self, X: FloatArray, sequence: Any) -> LatentCoordinates:
        check_consistent_length(X, sequence)
        embedder = self._any_embedder()
        if not isinstance(embedder, LikelihoodEmbedder) or embedder.dynamics is None:
            raise ValueError("sequence needs placement='likelihood' and a fit to sequences")
        with one_thread():
            return embedder.embed_sequence(X, np.asarray(sequence))

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Mean features at latent coordinates, Eq. (15) of the paper.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        Z = check_latent(Z, self._n_features_out)
        mean, _ = self._learned.decoder.features(Z)
        return self._scaler.inverse(mean)

    def out_of_range(self, X: Any) -> FloatArray:
        """Predictive variance of the mapping: how far samples are from the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Relative to an infinitely distant sample, between 0 and 1; near 1 the class is a guess.
        """
        X = self._samples(X)
        embedder = self._any_embedder()
        if not isinstance(embedder, MappingEmbedder):
            raise AttributeError("out_of_range needs embedding by the mapping (placement='map')")
        return embedder.out_of_range(X)

    def _any_embedder(self) -> Any:
        return trees.any_embedder(self._learned)

    def _log_proba(self, X: FloatArray) -> FloatArray:
        with one_thread():
            return super()._log_proba(X)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        with one_thread():
            return super()._log_proba_at(latent)

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        return trees.out_of_range(self._any_embedder(), X)

    def _attrs(self) -> dict[str, Any]:
        return {}

    @property
    def _method(self) -> settings.Inference:
        return self.inference

    def _make_tree(self) -> xr.DataTree:
        with one_thread():
            return trees.fit_tree(self._learned, self._context, inference_method=self.inference)

    @property
    def model_(self) -> Any:
        """The well-posed model on the training samples as a ``pymc.Model``.

        Its factors are potentials. It has no observed variable, so that
        ``pm.compute_log_likelihood`` and ``pm.sample_posterior_predictive`` do not apply.
        """
        check_is_fitted(self)
        if self.variant != "whitened":
            raise AttributeError("model_ needs variant='whitened': the paper's is no density")
        options = self._options(len(self._task.X))
        return declare_model(self._task, options, rng=np.random.default_rng(0))
