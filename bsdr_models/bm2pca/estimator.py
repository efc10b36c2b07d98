"""Scikit-learn estimators of BM2PCA: what all have in common, and the recommended classifier."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xarray as xr
from scipy.sparse import csr_array, issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca import engines, trees
from bsdr_models.bm2pca.engines import FitSettings
from bsdr_models.bm2pca.factor_model import (
    FactorModel,
    fit_factor_model,
    impute,
    spread_of_missing,
)
from bsdr_models.bm2pca.posterior import LAPSE, BM2PCAPosterior, is_large, whiten_with_scale
from bsdr_models.bm2pca.priors import HingeLoss
from bsdr_models.bm2pca.subspace import compares_classes
from bsdr_models.bm2pca.trees import SPEC
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import (
    MAX_RAW,
    check_variation,
    validate_samples,
)
from bsdr_models.estimators.base import Estimator, WeightedFit
from bsdr_models.estimators.calibration import Calibration, HeldOutScore
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.estimators.fitted import by_chunks
from bsdr_models.inference import datatree
from bsdr_models.inference.dims import COMPONENT, FEATURE, LABEL, SCORE, TERM
from bsdr_models.inference.result import Result
from bsdr_models.learned_metric.metric import MetricName
from bsdr_models.numerics.arrays import FloatArray, Rows, SamplesLike
from bsdr_models.numerics.association import associate
from bsdr_models.numerics.latent import LatentCoordinates, feature_relevance, relevance
from bsdr_models.numerics.process_state import one_thread, warn
from bsdr_models.numerics.scaling import TOO_LARGE, Scaler, largest_scaled
from bsdr_models.options import COUNT, Options, RandomState

if TYPE_CHECKING:
    import pymc as pm


# Costs that are averaged; the first is the fallback.
COSTS: tuple[float, ...] = (10.0, 1.0, 0.1)
MULTICLASS_COSTS: tuple[float, ...] = (1.0, 3.0, 0.3)


class BaseBM2PCA(Estimator):
    """Embedding and imputation; subclasses fit and predict."""

    _spec = SPEC
    # Whether X may be sparse.
    _sparse: ClassVar[bool] = True
    # Whether each dense feature is scaled to unit variance; always if there is a metric.
    standardize: bool = True
    # Bound of scaled values of new samples, (P,), or None.
    _largest: FloatArray | None = None
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {"n_components": [COUNT]}

    def _read(self, X: SamplesLike, *, reset: bool) -> Rows:
        """Samples as float64, NaN where missing; or CSR, whose entries not stored are zero."""
        X = validate_samples(self, X, reset=reset, sparse=self._sparse, missing=True)
        if not issparse(X):
            return X
        X = csr_array(X)
        if not np.isfinite(X.data).all():
            raise ValueError("Input X contains NaN, which sparse X cannot have: 0 is not missing")
        if np.abs(X.data).max(initial=0.0) > TOO_LARGE:
            raise ValueError(
                "X is sparse, so never scaled, and holds values too large to compute with"
            )
        return X

    def _scale(self, X: Rows) -> Rows:
        """Scaled training samples; sparse ones are not scaled."""
        if issparse(X):
            value = X.max(axis=0).toarray()
            constant = value == X.min(axis=0).toarray()
            scaler = Scaler.identity(X.shape[1])
            scaler = replace(scaler, mean=np.where(constant, value, 0.0), constant=constant)
            self._set_scaler(check_variation(self, scaler))
            if (size := np.abs(X.data).max()) < 1.0 / MAX_RAW:
                raise ValueError(
                    f"X is sparse, so never scaled, and no value is larger than {size:.3g}: give "
                    "other units"
                )
            return self._scaler.select(X)
        weights = self._context.weights
        scaler = Scaler.fit(X, standardize=self.standardize, weights=weights)
        check_variation(self, scaler)
        self._set_scaler(scaler if self.standardize else scaler.with_common_scale(X))
        empty = np.isnan(self._scaler.select(X)).all(axis=1)
        if empty.any():
            sample = int(empty.argmax())
            raise ValueError(f"sample {sample} of X has no observed value of varying features")
        return self._scaler.transform(X)

    def _scale_new(self, X: SamplesLike) -> Rows:
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if issparse(X):
            if issparse(self._context.X):
                return self._scaler.select(X)
            X = X.toarray()
        return self._scaler.transform(X)

    def _prepare(self, X: Rows, *, bounded: bool = True) -> Rows:
        if self._largest is None or not bounded or issparse(X):
            return X
        return np.clip(X, -self._largest, self._largest)

    def _impute(self, X: Rows) -> Rows:
        """Scaled samples with missing values imputed."""
        return X if issparse(X) or not np.isnan(X).any() else impute(self._imputer, X)

    @cached_property
    def _imputer(self) -> FactorModel:
        """Factor model that imputes missing values, of the features alone."""
        with one_thread():
            return fit_factor_model(self._observed_samples, np.random.default_rng(self._seed))

    def _complete(self, X: Rows) -> Rows:
        """Scaled samples as the posterior takes them."""
        return self._impute(X)

    def _embed(self, X: Rows) -> LatentCoordinates:
        return self._posterior.embed(self._complete(X))

    def _latent_means(self, X: Rows) -> FloatArray:
        return self._posterior.latent(self._complete(X))

    def impute(self, X: SamplesLike) -> Rows:
        """Replace every NaN by its posterior mean given the observed values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray or sparse array of shape (n_samples, n_features)
            Observed values are unchanged. Sparse samples have no missing values, since entries that
            are not stored are zero.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if issparse(X) or not (missing := np.isnan(X)).any():
            return X
        filled = self._scaler.inverse(self._impute(self._scaler.transform(X)))
        return np.where(missing, filled, X)

    def _name_fitted(self) -> None:
        posterior = self._posterior
        X = self._context.X
        share = relevance(posterior.latent(X), self._contrast, self._context.weights)
        self._set_components(posterior.projection, share, self._impute(X))
        if self._method == "map":
            self.objective_ = self._result.trace
        else:
            self.lower_bounds_ = self._result.trace

    @property
    def _contrast(self) -> FloatArray:
        """Weights of the components in the differences of class scores."""
        return self._context.contrast(self._context.per_class(self._posterior.mean_weights))

    def _mean_effects(self) -> tuple[FloatArray, FloatArray]:
        return self._posterior.effects()

    def _outliers(self, X: Rows) -> dict[str, FloatArray]:
        return super()._outliers(self._impute(X))

    def _make_tree(self) -> xr.DataTree:
        context = self._context
        result = self._result
        posterior = self._posterior
        X = context.X
        projection = posterior.projection
        r = projection.shape[1]
        group: dict[str, object] = {
            **associate(*self._known()),
            "feature_relevance": feature_relevance(projection, self._contrast),
            "relevance": self.relevance_,
            "projection_mean": projection,
            "objective" if self._method == "map" else "elbo": result.trace,
        }
        if self._reference is not None:
            group |= self._reference.compare_training(self._impute(X))
        if X.shape[0] * r * r <= datatree.MAX_NUMBERS:
            latent = posterior.embed(X)
            group |= {"latent_mean": latent.mean, "latent_cov": latent.cov}
        else:
            group["latent_mean"] = posterior.latent(X)
        if result.terms:
            group["elbo_terms"] = np.column_stack(list(result.terms.values()))
        n_draws = trees.count_draws(len(projection), posterior.mean_weights.shape[1])
        drawn = posterior.draw(n_draws, np.random.default_rng(self._seed))
        draws = {name: values[None] for name, values in drawn.items()}
        dims = dict(trees.FREE_DIMS)
        if context.targets.kind == "multiclass" and len(context.targets.names) == 2:
            dims |= {"weights": (COMPONENT, SCORE), "bias": (SCORE,), "weight_precision": (SCORE,)}
        state = {"converged": int(result.converged), "interrupted": int(result.interrupted)}
        return context.fit_tree(
            {"posterior": trees.recorded(draws, context), "fit": group},
            SPEC,
            inference_method=self._method,
            n_components=r,
            attrs=self._attrs() | state,
            coords={TERM: list(result.terms)},
            dims=dims,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._sparse
        tags.input_tags.allow_nan = True
        return tags


@dataclass(eq=False, repr=False)
class BM2PCAClassifier(WeightedFit, ProbabilisticClassifier, BaseBM2PCA):
    r"""Classification by Bayesian maximum margin principal component analysis (BM2PCA).

    Samples are embedded in a latent space in which linear max-margin classifiers separate the
    classes [1]_. The embedding depends on the features alone, in a metric that is learned. The
    model as printed in the paper is :class:`bsdr_models.papers.PaperBM2PCAClassifier`.

    Parameters
    ----------
    n_components : int, default=10
        Dimension R of the latent space. It is limited to the number of features, and to one fewer
        than there are classes or, for several labels, to their number.
    metric : {"auto", "unit", "identity"}, default="auto"
        Metric of the features: learned (:mod:`bsdr_models.learned_metric`), Euclidean after scaling
        to unit variance, or Euclidean in the units as given. Sparse samples with more than 33
        million entries, zeros included, always have ``"identity"``.
    loss : HingeLoss, optional
        Cost C, and how probabilities are calibrated, see :class:`bsdr_models.bm2pca.HingeLoss`.
    unlabeled : scalar, optional
        Value of y that marks samples without a label, or missing entries of a label matrix. NaN
        stands for all kinds of missing values. By default every value is a class, -1 included, and
        a missing value is an error.
    max_iter : int, default=2000
        Iterations of the optimisation.
    n_jobs : int, optional
        Folds run in parallel by joblib: None is 1 unless set by ``joblib.parallel_config``, -1 is
        all cores. The result does not depend on it.
    progressbar : bool, default=False
        Whether to show how far a long fit has come.
    random_state : int, RandomState, Generator or None
        For the samples that are held out, imputation and the draws of ``idata_``. A Generator is
        advanced by each fit, so that two fits differ, as they do with None.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    components_ : ndarray of shape (n_components_out, n_features)
        Linear map from complete scaled samples to latent coordinates, up to a shift.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features. For sparse samples they are zeros and ones, except the
        centres of constant features.
    C_ : float
        Cost of the fit.
    metric_weights_ : dict
        Weight of each candidate of the metric by name, the largest first.
    temperature_ : float
        Softmax temperature of the class scores, an average by the likelihood of held-out samples.
    cv_results_ : dict or None
        ``"candidates"`` with their held-out ``"log_loss"`` and ``"weight"``.
    held_out_score_ : float
        Mean log probability of the labels that were held out to average costs and temperatures, in
        nats per sample or, for several labels, per label. NaN if none was held out.
    held_out_gain_, held_out_gain_se_ : float
        Gain of the held-out score over that of the class frequencies, and its standard error,
        which allows for folds that share training samples. The fit warns if the gain less 0.85
        standard errors is at most 0.01.
    relevance_ : ndarray of shape (n_components_out,)
        Share of each component in the variance of the class scores.
    objective_ : ndarray of shape (n_iter,)
        Log density of the pseudo-posterior up to a constant, in nats, from the initial value on.
    n_iter_ : int
        Iterations of the optimisation.
    converged_ : bool
        Whether the optimisation met its tolerance.
    interrupted_ : bool
        Whether the user stopped the fit, which remains usable.
    idata_ : xarray.DataTree
        Posterior draws, objective and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The pseudo-posterior on the training samples.

    See Also
    --------
    BSDRClassifier : effects of features with intervals, from ten samples per class.
    DGPLVMClassifier : a nonlinear map.
    bsdr_models.papers.PaperBM2PCAClassifier : the paper's model, by mean field or sampling.

    Notes
    -----
    The metric is a covariance :math:`\Lambda` of the effects of the features, an average of eight
    candidates that are learned within classes and weighted by held-out log loss. All three models
    have it (:mod:`bsdr_models.learned_metric`). Whitened features :math:`a_n`, with
    :math:`a_n^\top a_m = (x_n - t)^\top \Lambda (x_m - t)`, have latent coordinates
    :math:`z_n = Q^\top a_n` plus a little noise. With signs :math:`y_{nc} = \pm 1` and class scores
    :math:`f_{nc} = \eta_c^\top z_n + \eta_{c0}`, a label has the factor

    .. math::
        \phi(y_{nc} \mid z_n) = e^{-2 C \max(0,\, 1 - y_{nc} f_{nc})} .

    If there are fewer components than classes less one, or more samples than features, the loss
    compares the classes with each other instead of each with all others [2]_. Training samples are
    embedded as new samples are, and the fit converges.

    :math:`\phi(+1) + \phi(-1)` depends on f, so the factor is a pseudo-likelihood: it gives neither
    probabilities nor draws of labels, and its evidence cannot choose C. The cost C is the geometric
    mean of a few values, with weights that are powers of their held-out likelihood.

    Probabilities are softmax(f / T), or logistic(f / T) for two classes or for each of several
    labels, and a class is random with a probability of 0.01. They are mixed with the class
    frequencies as far as held-out samples show no signal.

    Missing values (NaN) are imputed by a factor model of the features alone. Probabilities of new
    samples are averages over their missing values. Standardised values of
    new samples are bounded by :math:`\sqrt{n - 1}` in magnitude, the largest of n training samples.
    Samples without a label count as labelled if their class is nearly certain and the held-out log
    likelihood of the labelled samples gains by it.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.
    .. [2] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass
           kernel-based vector machines. Journal of Machine Learning Research 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BM2PCAClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BM2PCAClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.score(X[1::2], y[1::2]) > 0.95)
    True

    Without the labels of three quarters of the samples:

    >>> known = np.where(np.arange(len(y)) % 4, -1, y)
    >>> model = BM2PCAClassifier(unlabeled=-1, random_state=0).fit(X, known)
    >>> model.classes_.tolist()
    [0, 1, 2]
    """

    _method = "map"
    _several: ClassVar[bool] = True
    _many_classes: ClassVar[bool] = True
    _option_types: ClassVar[dict[str, type[Options]]] = {"loss": HingeLoss}
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **BaseBM2PCA._parameter_constraints,
        "max_iter": [COUNT],
    }

    n_components: int = 10
    _: KW_ONLY
    metric: MetricName = "auto"
    loss: HingeLoss | None = None
    unlabeled: object = None
    max_iter: int = 2000
    n_jobs: int | None = None
    progressbar: bool = False
    random_state: RandomState = None

    def _scale(self, X: Rows) -> Rows:
        """Scaled training samples, missing values imputed."""
        weighted = self._context.weights is not None
        if weighted and self.unlabeled is not None:
            raise ValueError("sample_weight is not for samples without a label: give no unlabeled")
        X = super()._scale(X)
        if issparse(X):
            return X
        if self.standardize:
            self._largest = largest_scaled(X, self._context.weights)
        if not np.isnan(X).any():
            return X
        if weighted:
            raise ValueError(
                "sample_weight is not for samples with missing values: impute them before the fit"
            )
        self._observed = X
        return self._impute(X)

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[BM2PCAPosterior]:
        X = self._context.X
        n, d = X.shape
        loss: HingeLoss = self._option("loss")
        large = is_large(X)
        exclusive = targets.kind == "multiclass"
        n_scores = 1 if exclusive and len(targets.names) == 2 else len(targets.names)
        r = min(int(self.n_components), d)
        settings = FitSettings(
            n_components=r,
            multiclass=exclusive and compares_classes(n, d, r, n_scores),
            exclusive=exclusive,
        )
        costs = MULTICLASS_COSTS if settings.multiclass else COSTS
        costs = costs if loss.C is None else (float(loss.C),)
        units = np.full(d, 1.0 / np.abs(X.data).max()) if issparse(X) else None
        metric = None if large else self.metric
        training = self._training(targets, rng, metric=metric, units=units)
        self.cv_results_: dict[str, object] | None = None
        cost = costs[0]
        given = not isinstance(loss.calibrate, bool | np.bool_)
        calibration = Calibration(temperature=float(loss.calibrate) if given else 1.0)
        judged: dict[str, Any] = {"held_out": HeldOutScore()}
        fitted = bool(loss.calibrate) and not given
        if (fitted or len(costs) > 1) and self._held_out_known(len(training.folds())):
            some = training.limited(engines.MOST_SAMPLES)
            selected = engines.select(
                some,
                settings,
                costs,
                n_jobs=self.n_jobs,
                progressbar=self.progressbar,
            )
            cost = selected.cost
            if fitted:
                calibration = selected.judged.calibration
            judged = selected.judged.of_result(some.kept, n)
            self.cv_results_ = {
                "candidates": [{"C": own} for own in costs],
                "log_loss": selected.log_loss,
                "weight": selected.weight,
            }
        task = engines.Task.of(training, settings)
        self._signs = task.signs
        result = engines.fit_all(task, cost, calibration, int(self.max_iter))
        self.C_ = cost
        attrs = {
            "C": float(cost),
            "lapse": LAPSE,
            "link": "softmax",
            "objective": "log density of the pseudo-posterior",
            "metric": self.metric,
            **calibration.attrs(),
        }
        return replace(result, attrs=attrs, **judged)

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.temperature_ = self._posterior.calibration.temperature
        self.metric_weights_ = self._posterior.metric.shares

    def _held_out_known(self, n_held_out: int) -> bool:
        """Whether samples can be held out; warns if not."""
        if n_held_out:
            return True
        reason = "every class has one sample only"
        if self._context.groups is not None:
            reason = "no group can be held out, since each has all samples of a class"
        warn(f"{reason}: fallback settings are used and probabilities are not calibrated")
        return False

    def _selected_params(self) -> dict[str, object]:
        loss: HingeLoss = self._option("loss")
        if not loss.calibrate:
            return {"loss__C": self.C_}
        return {"loss__C": self.C_, "loss__calibrate": self.temperature_}

    @by_chunks
    def decision_function(self, X: SamplesLike) -> FloatArray:
        """Class scores f, positive for the class, smaller for samples unlike the training samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        X = self._samples(X)  # raises NotFittedError
        scores = self._posterior.scores(self._complete(X))
        return scores[:, 0] if self._exclusive and scores.shape[1] == 1 else scores

    def _log_proba(self, X: Rows) -> FloatArray:
        posterior = self._posterior
        if issparse(X) or not (missing := np.isnan(X)).any():
            return posterior.log_probabilities(X)
        # Class scores are as uncertain as what is missing leaves them.
        log_p = np.empty((len(X), len(self.classes_)))
        part = missing.any(axis=1)
        log_p[~part] = posterior.log_probabilities(X[~part])
        A, size = whiten_with_scale(posterior.metric, posterior.known, self._impute(X[part]))
        cov = spread_of_missing(self._imputer, X[part], posterior.effects()[0])
        cov /= size[:, :, None] ** 2
        log_p[part] = posterior.probabilities(posterior.state.scores(A) / size, cov)
        frequency = posterior.calibration.log_frequency
        if frequency is not None:  # as known as without features
            log_p[missing.all(axis=1)] = frequency if self._exclusive else frequency[:, 1]
        return log_p

    @property
    def model_(self) -> "pm.Model":
        """The pseudo-posterior as a ``pymc.Model`` on the scaled training samples.

        Labels have a pseudo-likelihood only: PyMC neither draws them nor computes their log
        likelihood. ``scores`` of new samples are drawn after ``pm.set_data``.
        """
        from bsdr_models.bm2pca import model

        check_is_fitted(self)
        X = self._context.X
        posterior = self._posterior
        if issparse(X):
            raise ValueError("model_ needs dense samples")
        signs = self._signs
        axis = SCORE if signs.shape[1] == 1 else LABEL
        declared = model.declare(
            X,
            signs,
            {FEATURE: range(X.shape[1]), axis: range(signs.shape[1])},
            metric=posterior.metric,
            settings=posterior.settings,
            n_components=len(posterior.mean_weights),
        )
        return self._context.name_dims(declared)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
