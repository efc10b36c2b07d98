"""Scikit-learn classifier of D-GPLVM: validate, scale, delegate, name the results."""

import warnings
from dataclasses import asdict
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.by_blocks import by_blocks
from bsdr_models.checks import (
    check_choice,
    check_count,
    check_jobs,
    check_latent,
    check_tol,
    feature_names,
    fit_scaler,
    one_thread,
    reset_fit,
    warn_unless_mixed,
)
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.dgplvm import settings, trees
from bsdr_models.dgplvm.draws import declare, learn_draws
from bsdr_models.dgplvm.dynamics import Dynamics
from bsdr_models.dgplvm.learn import Learned, Options, learn_map
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.paper import learn_paper
from bsdr_models.dgplvm.predict import ByLikelihood, ByMap, Posterior
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dgplvm.summary_parts import facts
from bsdr_models.estimator_mixin import EstimatorMixin
from bsdr_models.frames import read_truth, require_targets, validate_samples
from bsdr_models.inference.datatree import Context
from bsdr_models.inputs import check_number
from bsdr_models.numerics.latent_coordinates import LatentCoordinates
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.summary import SummaryParts
from bsdr_models.unlabeled import encode_known, known_entries

# What a fit leaves beside the attributes whose names end in an underscore.
PRIVATE = ("_learned", "_context", "_tree", "_task", "_scaler")


class DGPLVMClassifier(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ProbabilisticClassifier,
    EstimatorMixin,
    BaseEstimator,
):
    r"""Discriminative Gaussian process latent variable model.

    Rows are placed in a latent space from which the features are smooth functions and in which
    classes keep apart [1]_; a smooth map places new rows, and a Gaussian process classifier gives
    their probabilities. Nonlinear, and made for few rows with many features. The default is a
    well-posed version of the paper's model, which has no optimum as printed; see Notes.

    Parameters
    ----------
    n_components : int, optional
        R, dimension of the latent space. Two by default, one for two classes.
    variant : {"whitened", "paper"}, default="whitened"
        The well-posed model, or the objective of the paper.
    inference : {"map", "nuts", "advi"}, default="map"
        Engine. The last two compile the PyMC model and need ``variant="whitened"``.
    weight : float, optional
        Weight of the discriminative prior. Whitened: per labelled row and effective feature, 10
        by default, and ``numpy.inf`` for the limit in closed form, a penalised kernel discriminant
        analysis. Paper: 1 / sigma_d**2, 1e4 by default.
    criterion : {"auto", "trace_ratio", "inverse_trace", "total", "local_fisher"}
        How separate classes are. The paper's tr(S_b^-1 S_w) where there are fewer components than
        classes, else tr(S_t^-1 S_w); local Fisher lets a class have several clusters.
    mapping : {"kernel", "none"}, default="kernel"
        Whether positions are a smooth function of the features.
    n_centres : int, optional
        Training rows at which the map has kernels. All of them by default, 300 of them where there
        are more than 2000; the cost is then linear in the number of rows.
    map_width, map_noise : float or "cv", default="cv"
        Width g and noise lambda of the map. By leave-out error of the class codes.
    placement : {"auto", "map", "likelihood"}, default="auto"
        How rows are placed: by the map, or by what their features say alone, Eq. (14) of [1]_.
    approximation : {"auto", "laplace", "ep"}, default="auto"
        Of the classifier: Laplace's for two classes or more than 2000 rows, else expectation
        propagation.
    reuse_kernel : bool, default=False
        Whether the classifier takes the kernel of the features as it is, as in Section 5 of [1]_,
        instead of fitting one of its own.
    unlabeled : scalar, optional
        Entries of y that are equal to it have no label. NaN stands for all kinds of missing
        values.
    priors : Priors, optional
        Hyper-parameters.
    standardize : bool or "auto", default="auto"
        Scale each feature to unit variance; otherwise all by one number. "auto" does so where a
        few features hold most of the variance, as features in different units do.
    n_restarts : int, default=1
        Starts of the search: class codes (not of the paper's), principal components,
        discriminants, shrunken discriminants, random ones. More than one tells whether the optimum
        is unique.
    max_iter : int, default=500
        Iterations per start.
    tol : float, default=1e-6
        A start has converged when an iteration gains about less than this many nats.
    draws, tune, chains : int
        Of the samplers.
    n_jobs : int, optional
        Starts of the search that run side by side, by joblib as in scikit-learn: None is 1 unless
        a ``joblib.parallel_config`` says otherwise, -1 is all cores. The result does not depend
        on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        For centres, random starts and samplers. A Generator is used as it is, so that two fits
        differ.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    latent_ : ndarray of shape (n_samples, n_components)
        Latent coordinates of the training rows, which have seen their labels.
    components_ : ndarray of shape (n_components, n_features)
        Mean derivative of the map over the training rows; only where there is a map.
    feature_relevance_ : ndarray of shape (n_features,)
        Share of each feature in the squared derivatives of the map.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the scatter of the class centroids of rows left out.
    map_width_, map_noise_ : float
    standardized_ : bool
        Whether features were scaled one by one.
    log_density_ : ndarray of shape (n_iter,)
        Of the posterior after each iteration, in nats, up to a constant.
    n_iter_ : int
    converged_, interrupted_ : bool
    idata_ : xarray.DataTree
        Mode or draws, positions, landscape and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The well-posed model, declared on the rows of the fit.

    Notes
    -----
    *What is wrong with the objective of the paper.* Its prior of the positions, exp(-J / sigma_d^2)
    with :math:`J = \operatorname{tr}(S_b^{-1} S_w)`, is the same for positions of any scale. With
    the length-scale free, and densities 1 / theta of the kernel parameters, it improves without
    limit. Its back-constraint has as many weights as there are rows and constrains nothing. The
    kernel of the features makes a fragile classifier: with more features than rows the best
    optimum explains them by noise alone.

    *What is done instead.* Latent coordinates are whitened; the means of the features are integrated out;
    correlated features count by their effective number; kernel parameters have proper priors; the
    map is a Gaussian process with noise. The mode minimises

    .. math::
        \tau L(X, \theta) + w J(X) + \tfrac{(N - 1) R + \nu}{2}
        \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu) - \log p(\theta).

    *What the classifier learns from.* Training rows lie on the centres of their classes, new ones
    do not. So it is fitted to where training rows would lie as new ones, which the map has in
    closed form; maps of training rows show these positions as well.

    *What the generative part is good for.* Not accuracy: with ``weight=numpy.inf`` that is the same
    to a point or so. It gives the latent space a density: reconstruction, and placement by the
    features alone.

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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        variant: settings.Variant = "whitened",
        inference: settings.Inference = "map",
        weight: float | None = None,
        criterion: settings.CriterionName = "auto",
        mapping: settings.MappingName = "kernel",
        n_centres: int | None = None,
        map_width: float | Literal["cv"] = "cv",
        map_noise: float | Literal["cv"] = "cv",
        placement: settings.PlacementName = "auto",
        approximation: settings.ApproximationName = "auto",
        reuse_kernel: bool = False,
        unlabeled: Any = None,
        priors: Priors | None = None,
        standardize: bool | Literal["auto"] = "auto",
        n_restarts: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.inference = inference
        self.weight = weight
        self.criterion = criterion
        self.mapping = mapping
        self.n_centres = n_centres
        self.map_width = map_width
        self.map_noise = map_noise
        self.placement = placement
        self.approximation = approximation
        self.reuse_kernel = reuse_kernel
        self.unlabeled = unlabeled
        self.priors = priors
        self.standardize = standardize
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sequence: Any = None) -> Self:
        """Learn positions, map and classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes; entries equal to ``unlabeled`` have none.
        sequence : array-like of shape (n_samples,), optional
            Sequence that each row belongs to, rows of one in the order of time. Latent coordinates then
            have a Gaussian process dynamics as well, Eqs. (19) and (20) of the paper.

        Returns
        -------
        self : DGPLVMClassifier

        Raises
        ------
        ValueError
            If the input is not finite or of the wrong shape, no two classes are labelled, no
            feature varies, or an argument is out of range.
        """
        self._reset()
        require_targets(self, y)
        X = validate_samples(self, X, reset=True, least=2)
        priors = self._check_arguments()
        given, known = known_entries(y, self.unlabeled)
        self.classes_, index = encode_known(given, known)
        check_consistent_length(X, index)
        if sequence is not None:
            check_consistent_length(X, sequence)
            check_array(sequence, ensure_2d=False, dtype=None, input_name="sequence")
        rng = as_generator(self.random_state)
        task = self._make_task(self._scale(X), index, priors, sequence)
        with one_thread(), self._fitting(X.shape):
            self._set_fitted(self._learn(task, sequence, rng), task, given.ravel())
        return self

    def _learn(self, task: Task, sequence: Any, rng: np.random.Generator) -> Learned:
        options = self._options(len(task.X))
        if self.variant == "paper":
            return learn_paper(task, options, sequence=sequence, rng=rng)
        if self.inference == "map":
            return learn_map(task, options, rng=rng)
        return learn_draws(
            self.inference,
            task,
            options,
            draws=self.draws,
            tune=self.tune,
            chains=self.chains,
            rng=rng,
        )

    def _reset(self) -> None:
        """Be unfitted, and keep no result of an earlier fit, until this one has succeeded."""
        reset_fit(self, PRIVATE)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def _check_arguments(self) -> Priors:
        """Arguments checked as far as they can be without data; the hyper-parameters."""
        for name, choices in settings.CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in ("n_restarts", "max_iter", "draws", "tune", "chains"):
            check_count(name, getattr(self, name))
        for name in ("n_components", "n_centres"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_tol(self.tol)
        check_jobs(self.n_jobs)
        for name in ("map_width", "map_noise"):
            settings.candidates(name, getattr(self, name))
        if not isinstance(self.reuse_kernel, bool | np.bool_):
            raise ValueError(f"reuse_kernel must be a bool, got {self.reuse_kernel!r}")
        if not isinstance(self.standardize, bool | np.bool_) and self.standardize != "auto":
            raise ValueError(f"standardize must be a bool or 'auto', got {self.standardize!r}")
        if self.weight is not None:
            check_number("weight", self.weight, infinite=self.variant == "whitened")
        if self.variant == "paper" and self.inference != "map":
            raise ValueError(
                f"variant='paper' has inference='map' only, got {self.inference!r}: its density "
                "has no finite integral"
            )
        if self.mapping == "none" and self.placement == "map":
            raise ValueError("placement='map' needs mapping='kernel'")
        priors = Priors() if self.priors is None else self.priors
        if not isinstance(priors, Priors):
            raise ValueError(f"priors must be a dgplvm Priors, got {type(priors).__name__}")
        return priors

    def _make_task(self, X: FloatArray, index: IntArray, priors: Priors, sequence: Any) -> Task:
        n_classes = len(self.classes_)
        n_components = settings.choose_components(self.n_components, n_classes)
        weight = settings.WEIGHTS[self.variant] if self.weight is None else float(self.weight)
        return Task(
            X=X,
            y_index=index,
            n_labels=n_classes,
            n_components=n_components,
            priors=priors,
            weight=weight,
            criterion=settings.choose_criterion(self.criterion, n_components, n_classes),
            n_centres=0 if self.mapping == "none" else self.n_centres,
            dynamics=None if sequence is None else Dynamics.of(sequence),
        )

    def _options(self, n_samples: int) -> Options:
        placement = "map" if self.placement == "auto" else self.placement
        return Options(
            approximation=settings.choose_approximation(
                self.approximation, len(self.classes_), n_samples
            ),
            placement="likelihood" if self.mapping == "none" else placement,
            reuse_kernel=self.reuse_kernel,
            widths=settings.candidates("map_width", self.map_width),
            noises=settings.candidates("map_noise", self.map_noise),
            n_starts=self.n_restarts,
            max_iter=self.max_iter,
            tol=self.tol,
            progressbar=self.progressbar,
            n_jobs=self.n_jobs,
        )

    def _scale(self, X: FloatArray) -> FloatArray:
        """Learn the scaling of training rows and apply it."""
        scaler = fit_scaler(X, standardize=True)
        apart = settings.in_different_units(X) if self.standardize == "auto" else self.standardize
        if not apart:
            scaler = settings.common_scale(scaler)
        self._scaler, self.standardized_ = scaler, bool(apart)
        return scaler.transform(X)

    def _set_fitted(self, learned: Learned, task: Task, y: np.ndarray) -> None:
        """Take the results of a fit, name them, and say what is wrong with them."""
        self._learned, self._task = learned, task
        self._tree: xr.DataTree | None = None
        self._context = Context(
            target="multiclass",
            X=task.X,
            y=y,
            index=task.y_index,
            feature_names=feature_names(self),
            labels=self.classes_,
            config=self._config(task.priors),
            attrs={
                "variant": self.variant,
                "weight": task.weight,
                "criterion": task.criterion,
                "objective": "log posterior density",
                **learned.settings,
            },
        )
        self.latent_ = learned.latent
        self._n_features_out = learned.latent.shape[1]
        self.relevance_ = trees.relevance(learned.left_out.mean, task.y_index)
        self.log_density_, self.n_iter_ = learned.trace, len(learned.trace)
        self.converged_, self.interrupted_ = learned.converged, learned.interrupted
        for name, value in learned.settings.items():
            setattr(self, f"{name}_", value)
        if isinstance(learned.posterior, Posterior):
            placement = learned.posterior.placement
            if isinstance(placement, ByMap):
                slope, _, share = placement.sensitivity(task.X)
                self.components_, self.feature_relevance_ = slope.T, share
        for remark in learned.remarks:
            warnings.warn(remark, UserWarning, stacklevel=3)
        if learned.sampled is not None:
            self.converged_ = warn_unless_mixed(self.idata_, SPEC.identified, stacklevel=4)
            self.n_iter_ = self.idata_["posterior"].sizes["draw"] + self.tune
        elif not (self.converged_ or self.interrupted_):
            warnings.warn(
                f"the search stopped after max_iter={self.max_iter} iterations; the result is "
                "usable, a larger max_iter brings it to the optimum",
                ConvergenceWarning,
                stacklevel=3,
            )

    # ---------------------------------------------------------------- after the fit

    def _summary_parts(self) -> SummaryParts:
        return facts(self)

    def _samples(self, X: Any) -> FloatArray:
        """New rows, validated and scaled."""
        check_is_fitted(self)
        return self._scaler.transform(validate_samples(self, X, reset=False))

    @by_blocks
    def transform(
        self, X: Any, *, return_cov: bool = False, sequence: Any = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """LatentCoordinates of rows in the latent space, as of new rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array
            Of a Dask array the answer is a Dask array, as it is of the other predictions.
        return_cov : bool
            Also return the uncertainty of each position.
        sequence : array-like of shape (n_samples,), optional
            As in `fit`: rows are placed one after the other, each with what the dynamics make of
            the one before as its prior. Needs a fit to sequences and placement by the likelihood.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
        cov : ndarray of shape (n_samples, n_components, n_components)
            If ``return_cov``. By the map, on the scale of the leave-out errors of the training
            rows; by the likelihood, the inverse curvature at the optimum.
        """
        rows = self._samples(X)
        with one_thread():
            if sequence is None and not return_cov:
                return self._learned.posterior.latent(rows)
            found = self._coordinates(rows, sequence)
        return (found.mean, found.cov) if return_cov else found.mean

    def _coordinates(self, rows: FloatArray, sequence: Any) -> LatentCoordinates:
        if sequence is None:
            return self._learned.posterior.embed(rows)
        check_consistent_length(rows, sequence)
        placement = self._any_placement()
        if not isinstance(placement, ByLikelihood) or placement.dynamics is None:
            raise ValueError("sequence needs placement='likelihood' and a fit to sequences")
        return placement.in_sequence(rows, np.asarray(sequence))

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Mean features of rows at latent positions: Eq. (15) of the paper.

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
        """How little training rows say of where rows lie: the variance of the map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Relative to a row infinitely far away, between 0 and 1; near 1 the class is a guess.
        """
        rows = self._samples(X)
        placement = self._any_placement()
        if not isinstance(placement, ByMap):
            raise AttributeError("out_of_range needs placement by the map")
        return placement.out_of_range(rows)

    def _any_placement(self) -> Any:
        posterior = self._learned.posterior
        return (posterior if isinstance(posterior, Posterior) else posterior.draws[0]).placement

    def _log_proba(self, rows: FloatArray) -> FloatArray:
        with one_thread():
            return self._learned.posterior.log_probabilities(rows)

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """LatentCoordinates and probabilities of new rows as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            True labels, for confusion and reliability.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: latent_mean, latent_cov, probability, predicted, y; and by
            the map, out_of_range and tail_probability, the share of the training rows, each
            placed by the others, that are at least as far out.
        """
        rows = self._samples(X)
        log_p = self._log_proba(rows)
        with one_thread():
            latent = self._learned.posterior.embed(rows)
        values = {
            "probability": np.exp(log_p),
            "predicted": self._most_probable(log_p),
            **trees.out_of_range(self._any_placement(), rows),
        }
        return self._context.predictions_tree(
            self._spec,
            latent=latent,
            values=values,
            y=read_truth(y, classes=True),
            inference_method=self.inference,
        )

    @property
    def idata_(self) -> xr.DataTree:
        """Mode or draws, positions, landscape and data as a DataTree."""
        check_is_fitted(self)
        if self._tree is None:
            with one_thread():
                self._tree = trees.fit_tree(
                    self._learned, self._context, inference_method=self.inference
                )
        return self._tree

    @property
    def model_(self) -> Any:
        """The well-posed model on the rows of the fit as a ``pymc.Model``."""
        check_is_fitted(self)
        if self.variant != "whitened":
            raise AttributeError("model_ needs variant='whitened': the paper's is no density")
        return declare(self._task, self._options(len(self._task.X)), rng=np.random.default_rng(0))

    def _config(self, priors: Priors) -> dict[str, Any]:
        """Arguments for the record, without the random state and what changes no result."""
        config = self.get_params(deep=False)
        for name in ("random_state", "n_jobs"):
            del config[name]
        config["unlabeled"] = None if self.unlabeled is None else str(self.unlabeled)
        return {**config, "priors": asdict(priors)}
