"""The papers' models as scikit-learn classifiers: each fit is a tree, kept in ``idata_``."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.spec import SPEC as BM2PCA
from bsdr_models.bsdr.spec import SPEC as BSDR
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import fit_scaler
from bsdr_models.dgplvm.posterior import FitResult
from bsdr_models.dgplvm.priors import CriterionName, DGPLVMOptimization
from bsdr_models.dgplvm.trees import SPEC as DGPLVM
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.dims import DRAW, FEATURE
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.rng import RandomState
from bsdr_models.numerics.scaling import HUGE, Scaler
from bsdr_models.options import COUNT, POSITIVE, Options, Sampling, StrOptions
from bsdr_models.papers.bm2pca.fitting import BM2PCAFit, default_priors
from bsdr_models.papers.bsdr.fitting import BSDRFit
from bsdr_models.papers.bsdr.priors import Optimization, Priors
from bsdr_models.papers.dgplvm.fitting import Approximation, DGPLVMFit
from bsdr_models.papers.training import Inference, units_of_samples

if TYPE_CHECKING:
    import pymc as pm

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25


class PaperClassifier(ProbabilisticClassifier):
    """A fit of a paper's model: its tree, and predictions by what the tree holds."""

    inference: Inference
    standardize: Any
    _kind: ClassVar[type[BSDRFit | BM2PCAFit | DGPLVMFit]]
    _arguments: BSDRFit | BM2PCAFit | DGPLVMFit  # of the fit
    _several: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_components": [COUNT],
        "inference": [StrOptions(set(get_args(Inference)))],
    }

    def _read_arguments(self) -> Any:
        """Those arguments of the estimator that the paper's fit has, too."""
        given = self.get_params(deep=False)
        given |= {name: self._option(name) for name in self._option_types}
        if "sampling" in given:
            given["schedule"] = self._schedule()
        return self._kind(**{field.name: given[field.name] for field in fields(self._kind)})

    @property
    def _method(self) -> Any:
        return self.inference

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        self._arguments = self._read_arguments()
        with units_of_samples(self._context.X, standardize=bool(self.standardize)):
            result, self._fitted_tree = self._arguments.run(self._context, targets.coded, rng)
        return result

    def _name_fitted(self) -> None:
        self._tree = tree = self.__dict__.pop("_fitted_tree")
        fit = tree["fit"].to_dataset().isel({FEATURE: self._context.varies}, missing_dims="ignore")
        share = fit["relevance"].to_numpy()
        if "projection_mean" in fit:
            self._set_components(fit["projection_mean"].to_numpy(), share, self._context.X)
            self.lower_bounds_ = self._result.trace
        else:
            self.relevance_ = share
            self._n_features_out = len(share)
            self.log_density_ = self._result.trace
        if "sample_stats" in tree:
            self.n_iter_ = tree["posterior"].sizes[DRAW] + self._schedule().tune

    def _make_tree(self) -> xr.DataTree:
        assert self._tree is not None
        return self._tree

    def _mean_effects(self) -> tuple[FloatArray, FloatArray] | None:
        if not hasattr(self._posterior, "effects"):
            return None
        coef, intercept = self._posterior.effects()
        return self._context.contrast(coef), self._context.contrast(intercept)

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples.

        Scale new samples by ``(X - mean_) / scale_``. ``idata_`` holds the free variables, so that
        the functions of PyMC take it; ``build_model`` of the paper says what they compute.
        """
        check_is_fitted(self)
        return self._context.name_dims(self._arguments.declare(self._context))


class PaperBSDRClassifier(PaperClassifier):
    """Bayesian supervised dimensionality reduction as printed [1]_, for classification.

    A multinomial probit classifier on latent coordinates, which are a random projection of the
    features. :class:`bsdr_models.BSDRClassifier`, at full rank, predicts better.

    Parameters
    ----------
    n_components, inference, priors, optimization
        As for :func:`bsdr_models.papers.bsdr.fit`.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers.
    progressbar, random_state
        As for :class:`bsdr_models.BSDRClassifier`.

    Attributes
    ----------
    lower_bounds_ : ndarray of shape (n_iter,)
        Bound in nats after each iteration of the best restart: exact by mean field, by ADVI an
        estimate of one draw; empty for samplers.
    n_iter_ : int
        Iterations of mean field, steps of ADVI, or sweeps of a sampler.
    converged_ : bool
        Mean field: whether it ended before ``max_iter``; otherwise it warns. Samplers: whether
        R-hat of identified quantities is below 1.05.
    components_, classes_, mean_, scale_, relevance_, interrupted_, idata_, model_
        As for :class:`bsdr_models.BSDRClassifier`.

    See Also
    --------
    bsdr_models.BSDRClassifier : the recommended model.
    bsdr_models.papers.bsdr.fit : the same fit without scaling, as a tree; and of real outputs.
    bsdr_models.papers.bsdr.build_model : the model in PyMC.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = PaperBSDRClassifier(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    """

    _spec = BSDR
    _kind = BSDRFit
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": Priors,
        "sampling": Sampling,
        "optimization": Optimization,
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        inference: Inference = "mean_field",
        priors: Priors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        optimization: Optimization | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.inference = inference
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.optimization = optimization
        self.progressbar = progressbar
        self.random_state = random_state


class PaperBM2PCAClassifier(PaperClassifier):
    r"""Bayesian maximum margin principal component analysis as printed [1]_.

    Latent coordinates explain the features and, by max-margin classifiers, the labels. All classes
    share one subspace; the paper has one for each class against the rest:
    ``sklearn.multiclass.OneVsRestClassifier(PaperBM2PCAClassifier())``.
    :class:`bsdr_models.BM2PCAClassifier`, whose embedding needs no labels, predicts better.

    Parameters
    ----------
    n_components, inference, C, unlabeled, priors, max_iter
        As for :func:`bsdr_models.papers.bm2pca.fit`.
    standardize, sampling
        As for :class:`PaperBSDRClassifier`.
    progressbar, random_state
        As for :class:`bsdr_models.BM2PCAClassifier`.

    Attributes
    ----------
    lower_bounds_, n_iter_, converged_
        As for :class:`PaperBSDRClassifier`.
    classes_, components_, mean_, scale_, relevance_, interrupted_, idata_, model_
        As for :class:`bsdr_models.BM2PCAClassifier`.

    See Also
    --------
    bsdr_models.BM2PCAClassifier : the recommended model, which chooses C and takes missing values.
    bsdr_models.papers.bm2pca.fit : the same fit without scaling, as a tree; its notes.
    bsdr_models.papers.bm2pca.build_model : the model in PyMC.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models.papers import PaperBM2PCAClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = PaperBM2PCAClassifier(3, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    _spec = BM2PCA
    _kind = BM2PCAFit
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": BM2PCAPriors,
        "sampling": Sampling,
    }
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **PaperClassifier._parameter_constraints,
        "C": [POSITIVE],
        "max_iter": [COUNT],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        inference: Inference = "mean_field",
        C: float = 10.0,
        unlabeled: object = None,
        priors: BM2PCAPriors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        max_iter: int = 2000,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.inference = inference
        self.C = C
        self.unlabeled = unlabeled
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.max_iter = max_iter
        self.progressbar = progressbar
        self.random_state = random_state

    def _option(self, name: str) -> Any:
        if name == "priors" and self.priors is None:
            return default_priors(self.inference)
        return super()._option(name)


class PaperDGPLVMClassifier(PaperClassifier):
    r"""D-GPLVM as Urtasun and Darrell print it, for comparison.

    The objective [1]_, Eq. (13), is minimised over latent coordinates and kernel parameters. It has
    no minimum, so that the result is a local minimum between bounds of the parameters; the fit
    warns if a bound determines it.

    Parameters
    ----------
    n_components : int, optional
        Dimension R of the latent space; by default 2, and 1 for two classes.
    weight, criterion, width, approximation
        As for :func:`bsdr_models.papers.dgplvm.fit`.
    standardize : bool or "auto", default="auto"
        Whether to scale each feature to unit variance, or all by a common factor. "auto" scales
        each if a few features have most of the variance, as with different units.
    unlabeled, optimization, progressbar, random_state
        As for :class:`bsdr_models.DGPLVMClassifier`.

    Attributes
    ----------
    latent_ : ndarray of shape (n_samples, n_components)
        Latent coordinates of the training samples, to which the classifier is fitted.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the scatter of the class centroids.
    log_density_ : ndarray of shape (n_iter,)
        Minus the objective after each iteration, in nats.
    standardized_ : bool
        Whether each feature was scaled to unit variance.
    classes_, n_iter_, converged_, interrupted_, idata_, model_
        As for :class:`bsdr_models.DGPLVMClassifier`.

    See Also
    --------
    bsdr_models.DGPLVMClassifier : the recommended, well-posed model, which explains the problems.
    bsdr_models.papers.dgplvm.fit : the same fit without scaling, as a tree.
    bsdr_models.papers.dgplvm.build_model : the objective in PyMC.

    References
    ----------
    .. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
           classification. International Conference on Machine Learning 24, 927-934.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models.papers import PaperDGPLVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the objective has no minimum
    ...     model = PaperDGPLVMClassifier(random_state=0).fit(X[::3], y[::3])
    >>> bool(model.score(X[1::3], y[1::3]) > 0.8)
    True
    """

    _spec = DGPLVM
    _kind = DGPLVMFit
    _result: FitResult
    _method = "map"
    _several = False
    _option_types: ClassVar[dict[str, type[Any]]] = {"optimization": DGPLVMOptimization}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        "weight": [POSITIVE],
        "criterion": [StrOptions(set(get_args(CriterionName)))],
        "width": [POSITIVE],
        "approximation": [StrOptions(set(get_args(Approximation)))],
        "standardize": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        weight: float = 1e4,
        criterion: CriterionName = "auto",
        width: float = 2.0,
        approximation: Approximation = "ep",
        unlabeled: object = None,
        standardize: bool | Literal["auto"] = "auto",
        optimization: DGPLVMOptimization | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.weight = weight
        self.criterion = criterion
        self.width = width
        self.approximation = approximation
        self.unlabeled = unlabeled
        self.standardize = standardize
        self.optimization = optimization
        self.progressbar = progressbar
        self.random_state = random_state

    def _scale(self, X: FloatArray) -> FloatArray:
        scaler = fit_scaler(self, X, standardize=True)
        of_each = in_different_units(scaler) if self.standardize == "auto" else self.standardize
        self.standardized_ = bool(of_each)
        self._set_scaler(scaler if of_each else common_scale(scaler))
        return self._scaler.transform(X)

    def _selected_params(self) -> dict[str, object]:
        return {"standardize": self.standardized_}

    def _read_arguments(self) -> Any:
        n_components = self.n_components or min(2, len(self.classes_) - 1)
        return replace(super()._read_arguments(), n_components=n_components)

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.latent_ = self._result.latent


def common_scale(scaler: Scaler) -> Scaler:
    """Scaler with a common divisor, the root mean square of the features, without overflow."""
    own = scaler.of_varying()
    largest = own.peak.max()
    with np.errstate(over="ignore", under="ignore"):
        size = np.sqrt(np.mean((own.std * (own.peak / largest)) ** 2))
        return replace(scaler, std=np.minimum(size * (largest / scaler.peak), HUGE))


def in_different_units(scaler: Scaler) -> bool:
    """Whether a few of the features that vary have most of the variance of the samples."""
    sd = scaler.of_varying().scale
    d = len(sd)
    if d == 1:
        return False
    share = (sd / sd.max()) ** 2
    ratio = share.sum() ** 2 / (share @ share)
    return bool((ratio - 1.0) / (d - 1.0) < SAME_UNITS)
