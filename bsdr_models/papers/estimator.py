"""The papers' models as scikit-learn classifiers: each fit is a tree, kept in ``idata_``."""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca import priors as bm2pca_priors
from bsdr_models.bm2pca.spec import SPEC as BM2PCA
from bsdr_models.bsdr.spec import SPEC as BSDR
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import fit_scaler, units_of_samples
from bsdr_models.dgplvm.posterior import FitResult
from bsdr_models.dgplvm.priors import CriterionName, Optimization
from bsdr_models.dgplvm.trees import SPEC as DGPLVM
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.dims import DRAW, FEATURE
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.rng import RandomState
from bsdr_models.numerics.scaling import HUGE, Scaler
from bsdr_models.options import COUNT, POSITIVE, Options, Sampling, StrOptions
from bsdr_models.papers import bm2pca, bsdr
from bsdr_models.papers.bm2pca import fitting as bm2pca_fitting
from bsdr_models.papers.bsdr import fitting as bsdr_fitting
from bsdr_models.papers.dgplvm import fitting as dgplvm_fitting
from bsdr_models.papers.dgplvm.fitting import Approximation
from bsdr_models.papers.training import Inference

if TYPE_CHECKING:
    import pymc as pm

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25


class PaperClassifier(ProbabilisticClassifier):
    """A fit of a paper's model: its tree, and predictions by what the tree holds."""

    inference: Inference
    standardize: Any
    _fitted_tree: xr.DataTree  # during a fit
    _several: ClassVar[bool] = True
    _option_types: ClassVar[dict[str, type[Options]]] = {"sampling": Sampling}
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_components": [COUNT],
        "inference": [StrOptions(set(get_args(Inference)))],
    }

    @abstractmethod
    def _fit_tree(
        self, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        """Fit to the samples of the context; the result predicts, the tree describes."""

    @property
    def _method(self) -> Any:
        return self.inference

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        with units_of_samples(self._context.X, standardize=bool(self.standardize)):
            result, self._fitted_tree = self._fit_tree(targets.coded, rng)
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


class PaperBSDRClassifier(PaperClassifier):
    """Bayesian supervised dimensionality reduction as printed [1]_, for classification.

    A multinomial probit classifier on latent coordinates, which are a random projection of the
    features. :class:`bsdr_models.BSDRClassifier`, at full rank, predicts better.

    Parameters
    ----------
    n_components : int, default=2
        R, dimension of the latent space, at most the number of features.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    priors : Priors, optional
        Hyper-parameters, with the kind of the projection prior and the latent scale; by default
        those of the paper. Samplers mix better with ``bsdr_models.papers.bsdr.SAMPLING``.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over at most 2048 evenly spaced draws.
    optimization : Optimization, optional
        Restarts, iterations and tolerance of mean field, see
        :class:`bsdr_models.papers.bsdr.Optimization`.
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
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection of scaled features.
    model_ : pymc.Model
        The model on the scaled training samples.
    classes_, mean_, scale_, relevance_, interrupted_, idata_
        As for :class:`bsdr_models.BSDRClassifier`.

    See Also
    --------
    bsdr_models.BSDRClassifier : the recommended model.
    bsdr_models.papers.bsdr.fit : the same fit without scaling, as a tree; and of real outputs.
    bsdr_models.papers.bsdr.build_model : the model in PyMC.

    Notes
    -----
    Predictions are the posterior predictive by draws, by mean field those of its factors. Mean
    field underestimates posterior variances.

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
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": bsdr.Priors,
        "sampling": Sampling,
        "optimization": bsdr.Optimization,
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        inference: Inference = "mean_field",
        priors: "bsdr.Priors | None" = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        optimization: "bsdr.Optimization | None" = None,
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

    def _fit_tree(
        self, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        return bsdr_fitting.fit_tree(
            self._context,
            targets,
            inference=self.inference,
            n_components=int(self.n_components),
            priors=self._option("priors"),
            optimization=self._option("optimization"),
            schedule=self._schedule(),
            rng=rng,
        )

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples.

        Scale new samples by ``(X - mean_) / scale_``. ``idata_`` holds the free variables, so that
        the functions of PyMC take it; :func:`bsdr_models.papers.bsdr.build_model` says how to
        predict new samples. ``pm.compute_log_likelihood`` is given the latent coordinates, which
        the group ``log_likelihood`` of ``idata_`` integrates out, as ``arviz.loo`` needs it.
        """
        check_is_fitted(self)
        model = bsdr_fitting.declare(
            self._context, n_components=self._n_features_out, priors=self._option("priors")
        )
        return self._context.name_dims(model)


class PaperBM2PCAClassifier(PaperClassifier):
    r"""Bayesian maximum margin principal component analysis as printed [1]_.

    Latent coordinates explain the features and, by max-margin classifiers, the labels.
    :class:`bsdr_models.BM2PCAClassifier`, whose embedding needs no labels, predicts better.

    Parameters
    ----------
    n_components : int, default=10
        Dimension R of the latent space, at most the number of features.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    C : float, default=10
        Cost of a violated margin, half the slope of the hinge. The paper has 10 to 40.
    unlabeled : scalar, optional
        Value of y that marks a missing label: such samples contribute their features.
    priors : Priors, optional
        Hyper-parameters; the paper's for mean field, proper ones for samplers.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers.
    max_iter : int, default=2000
        Sweeps of mean field.
    progressbar, random_state
        As for :class:`bsdr_models.BM2PCAClassifier`.

    Attributes
    ----------
    lower_bounds_ : ndarray of shape (n_iter,)
        Bound in nats after each iteration: exact by mean field, by ADVI an estimate of one draw;
        empty for samplers.
    n_iter_, converged_
        As for :class:`PaperBSDRClassifier`.
    model_ : pymc.Model
        The model on the scaled training samples.
    classes_, components_, mean_, scale_, relevance_, interrupted_, idata_
        As for :class:`bsdr_models.BM2PCAClassifier`.

    See Also
    --------
    bsdr_models.BM2PCAClassifier : the recommended model, which chooses C and takes missing values.
    bsdr_models.papers.bm2pca.fit : the same fit without scaling, as a tree.

    Notes
    -----
    With signs :math:`y_{nc} = \pm 1` and class scores
    :math:`f_{nc} = \eta_c^\top z_n + \eta_{c0}`,

    .. math::
        z_n \sim N(0, I), \qquad x_n \sim N(W z_n + t, I / \tau), \qquad
        \phi(y_{nc} \mid z_n) = e^{-2 C \max(0,\, 1 - y_{nc} f_{nc})},

    and the hinge factor is normal given a slack scale [2]_, so that mean field is conjugate. It is
    a pseudo-likelihood: probabilities are the softmax of the mean class scores, not calibrated.
    Choose C by held-out samples, as ``GridSearchCV`` does.

    All classes share one subspace. The paper has one for each class against the rest:
    ``sklearn.multiclass.OneVsRestClassifier(PaperBM2PCAClassifier())``.

    *Early stopping.* z depends on the label of a training sample; a new sample has none. With few
    samples and many features the bound keeps rising as W adapts to the features, while training
    labels are explained by latent coordinates that new samples lack: on ORL faces accuracy falls
    from 70 to 62 % between the second sweep and the twentieth. A small ``max_iter`` stops before.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.
    .. [2] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines.
           Bayesian Analysis 6(1), 1-23.

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
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": bm2pca_priors.Priors,
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
        priors: bm2pca_priors.Priors | None = None,
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
        if name == "priors" and self.priors is None and self.inference != "mean_field":
            return bm2pca.SAMPLING
        return super()._option(name)

    def _fit_tree(
        self, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        self._problem = bm2pca_fitting.make_problem(
            self._context, targets, int(self.n_components), self._option("priors")
        )
        return bm2pca_fitting.fit_tree(
            self._problem,
            self._context,
            inference=self.inference,
            C=float(self.C),
            max_iter=int(self.max_iter),
            schedule=self._schedule(),
            rng=rng,
        )

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples.

        ``pm.sample_posterior_predictive`` with ``idata_`` draws features. Labels have a
        pseudo-likelihood only: PyMC neither draws them nor computes their log likelihood.
        """
        check_is_fitted(self)
        model = bm2pca_fitting.declare(self._problem, float(self.C), exclusive=self._exclusive)
        return self._context.name_dims(model)


class PaperDGPLVMClassifier(PaperClassifier):
    r"""D-GPLVM as Urtasun and Darrell print it, for comparison.

    The objective [1]_, Eq. (13), is minimised over latent coordinates and kernel parameters, from
    principal components or other initial values. It has no minimum, so that the result is a local
    minimum between bounds of the parameters; the fit warns if a bound determines it. Misprints
    are corrected, such as Eqs. (10) and (11), which interchange the scatter matrices.

    Parameters
    ----------
    n_components : int, optional
        Dimension R of the latent space; by default 2, and 1 for two classes.
    weight : float, default=1e4
        1 / sigma_d**2, weight of the discriminative prior.
    criterion : str, default="auto"
        Measure of class separation, see :class:`bsdr_models.dgplvm.Priors`; "auto" is
        tr(S_b^-1 S_w), Eq. (13), with fewer components than classes.
    width : float, default=2
        Width gamma of the back-constraint, Eqs. (17) and (18), in units of the inverse median
        squared distance of the samples. It embeds new samples.
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
    classes_, n_iter_, converged_, interrupted_, idata_
        As for :class:`bsdr_models.DGPLVMClassifier`.
    model_ : pymc.Model
        The objective within bounds on the training samples.

    See Also
    --------
    bsdr_models.DGPLVMClassifier : the recommended, well-posed model, which explains the problems.
    bsdr_models.papers.dgplvm.fit : the same fit without scaling, as a tree.

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
    _result: FitResult
    _method = "map"
    _several = False
    _option_types: ClassVar[dict[str, type[Any]]] = {"optimization": Optimization}
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
        optimization: Optimization | None = None,
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

    def _fit_tree(
        self, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        self._problem = dgplvm_fitting.make_problem(
            self._context,
            targets,
            n_components=int(self.n_components or min(2, len(self.classes_) - 1)),
            weight=self.weight,
            criterion=self.criterion,
            optimization=self._option("optimization"),
            rng=rng,
        )
        result, tree = dgplvm_fitting.fit_tree(
            self._problem,
            self._context,
            width=self.width,
            approximation=self.approximation,
            rng=rng,
            progressbar=self.progressbar,
        )
        self._problem = replace(self._problem, training=None)  # only the fit needs it
        return result, tree

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.latent_ = self._result.latent

    @property
    def model_(self) -> "pm.Model":
        """The objective within bounds as a ``pymc.Model`` on the training samples.

        Its factors are potentials: labels and features have no draws and no log likelihood.
        """
        check_is_fitted(self)
        model = dgplvm_fitting.declare(self._problem, self.width)
        return self._context.name_dims(model)


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
