"""The papers' models as scikit-learn classifiers: each fit is a tree, kept in ``idata_``."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import fit_scaler
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.dims import DRAW, FEATURE
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.scaling import HUGE, Scaler
from bsdr_models.options import StrOptions
from bsdr_models.papers.bm2pca.fitting import BM2PCAFit
from bsdr_models.papers.bsdr.fitting import BSDRFit
from bsdr_models.papers.dgplvm.fitting import DGPLVMFit
from bsdr_models.papers.fitting import PaperFit
from bsdr_models.papers.training import units_of_samples

if TYPE_CHECKING:
    import pymc as pm

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25


class PaperClassifier(PaperFit, ProbabilisticClassifier):
    """A fit of a paper's model to scaled features; subclasses have those of one model."""

    standardize: Any

    @property
    def _method(self) -> Any:
        return getattr(self, "inference", "map")

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        with units_of_samples(self._context.X, standardize=bool(self.standardize)):
            result, self._fitted_tree = self._run(self._context, targets.coded, rng)
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
        return self._context.name_dims(self._declare(self._context))


@dataclass(eq=False, repr=False)
class PaperBSDRClassifier(BSDRFit, PaperClassifier):
    """Bayesian supervised dimensionality reduction as printed [1]_, for classification.

    A multinomial probit classifier on latent coordinates, which are a random projection of the
    features. :class:`bsdr_models.BSDRClassifier`, at full rank, predicts better.

    Parameters
    ----------
    n_components : int, default=2
        R, from 1 to D.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    priors : Priors, optional
        Hyper-parameters; the paper's by default.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers.
    optimization : Optimization, optional
        Restarts, iterations and tolerance of mean field.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
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

    _: KW_ONLY
    standardize: bool = True


@dataclass(eq=False, repr=False)
class PaperBM2PCAClassifier(BM2PCAFit, PaperClassifier):
    r"""Bayesian maximum margin principal component analysis as printed [1]_.

    Latent coordinates explain the features and, by max-margin classifiers, the labels. All classes
    share one subspace; the paper has one for each class against the rest:
    ``sklearn.multiclass.OneVsRestClassifier(PaperBM2PCAClassifier())``.
    :class:`bsdr_models.BM2PCAClassifier`, whose embedding needs no labels, predicts better.

    Parameters
    ----------
    n_components : int, default=10
        R, at most D.
    C : float, default=10
        Cost of a violated margin.
    unlabeled : scalar, optional
        Value of y that marks a missing label: such samples contribute their features.
    priors : BM2PCAPriors, optional
        Hyper-parameters; the paper's for mean field, and proper ones, ``SAMPLING``, for samplers.
    max_iter : int, default=5000
        Sweeps of mean field.
    inference, sampling, standardize
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
    bsdr_models.papers.bm2pca.fit : the same fit without scaling, as a tree.
    bsdr_models.papers.bm2pca.build_model : the model in PyMC.

    Notes
    -----
    Mean field is conjugate, since the hinge factor is normal given a slack scale. The factor is a
    pseudo-likelihood: probabilities are the softmax of the mean class scores, not calibrated.
    Choose C, which is 10 to 40 in the paper, by held-out samples, as ``GridSearchCV`` does.

    *Early stopping.* z depends on the label of a training sample; a new sample has none. With few
    samples and many features the bound keeps rising as W adapts to the features, while training
    labels are explained by latent coordinates that new samples lack: on ORL faces accuracy falls
    from 70 to 62 % between the second sweep and the twentieth. A small ``max_iter`` stops before.

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

    _: KW_ONLY
    standardize: bool = True


@dataclass(eq=False, repr=False)
class PaperDGPLVMClassifier(DGPLVMFit, PaperClassifier):
    r"""D-GPLVM as Urtasun and Darrell print it, for comparison.

    The objective [1]_, Eq. (13), is minimised over latent coordinates and kernel parameters. It has
    no minimum, so that the result is a local minimum between bounds of the parameters; the fit
    warns if a bound determines it.

    Parameters
    ----------
    n_components : int, optional
        Dimension R of the latent space; by default 2, and 1 for two classes.
    weight : float, default=1e4
        1 / sigma_d**2, weight of the discriminative prior.
    criterion : str, default="auto"
        Measure of class separation, see :class:`bsdr_models.DGPLVMPriors`.
    width : float, default=2
        Width gamma of the back-constraint, Eq. (18), in units of the inverse median squared
        distance of the samples.
    approximation : {"ep", "laplace"}, default="ep"
        Posterior of the Gaussian process classifier by expectation propagation or Laplace's method.
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

    _: KW_ONLY
    standardize: bool | Literal["auto"] = "auto"

    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        **DGPLVMFit._parameter_constraints,
        "standardize": ["boolean", StrOptions({"auto"})],
    }

    def _scale(self, X: FloatArray) -> FloatArray:
        scaler = fit_scaler(self, X, standardize=True)
        of_each = in_different_units(scaler) if self.standardize == "auto" else self.standardize
        self.standardized_ = bool(of_each)
        self._set_scaler(scaler if of_each else common_scale(scaler))
        return self._scaler.transform(X)

    def _selected_params(self) -> dict[str, object]:
        return {"standardize": self.standardized_}

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.latent_ = self.idata_["posterior/latent"].to_numpy()[0, 0]


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
