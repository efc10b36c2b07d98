"""Scikit-learn classifier of the model as the paper prints it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.validation import fit_scaler
from bsdr_models.dgplvm.base import BaseDGPLVM
from bsdr_models.dgplvm.criteria import class_centroids
from bsdr_models.dgplvm.engines import FitResult
from bsdr_models.dgplvm.priors import CriterionName, Priors
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.dgplvm.settings import Mapping, Optimization
from bsdr_models.inference import dims
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.rng import RandomState
from bsdr_models.numerics.scaling import HUGE, Scaler
from bsdr_models.options import COUNT, POSITIVE, StrOptions
from bsdr_models.papers.dgplvm.engines import Approximation, Placement, fit_problem
from bsdr_models.papers.dgplvm.map import KernelMapping

if TYPE_CHECKING:
    import pymc as pm

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25
# Distance of class centroids, relative to the largest feature, that counts as rounding error.
SAME_CENTROIDS = 1e-10


class PaperDGPLVMClassifier(BaseDGPLVM):
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
    criterion : {"auto", "trace_ratio", "inverse_trace", "total", "mcml"}
        Measure of class separation, see :class:`bsdr_models.dgplvm.Priors`; "auto" is
        tr(S_b^-1 S_w), Eq. (13), with fewer components than classes.
    mapping : {"kernel", "none"}, default="kernel"
        Whether latent coordinates are sums of kernels of the features, the back-constraint of
        Eq. (17).
    width : float, default=2
        Width gamma of Eq. (18), in units of the inverse median squared distance of the samples.
    placement : {"map", "likelihood"}, default="map"
        How samples are embedded: by the mapping, or by their likelihood, Eq. (14), which is the
        only way without a mapping.
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

    _method = "map"
    _most_components: ClassVar[int] = 2
    _free_dims: ClassVar = {"latent_raw": (dims.BASIS, dims.COMPONENT), "theta": (dims.THETA,)}
    _option_types: ClassVar[dict[str, type[Any]]] = {"optimization": Optimization}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        "weight": [POSITIVE],
        "criterion": [StrOptions(set(get_args(CriterionName)))],
        "mapping": [StrOptions({"kernel", "none"})],
        "width": [POSITIVE],
        "placement": [StrOptions({"map", "likelihood"})],
        "approximation": [StrOptions({"ep", "laplace"})],
        "standardize": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        weight: float = 1e4,
        criterion: CriterionName = "auto",
        mapping: Literal["kernel", "none"] = "kernel",
        width: float = 2.0,
        placement: Placement = "map",
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
        self.mapping = mapping
        self.width = width
        self.placement = placement
        self.approximation = approximation
        self.unlabeled = unlabeled
        self.standardize = standardize
        self.optimization = optimization
        self.progressbar = progressbar
        self.random_state = random_state

    def _scale(self, X: FloatArray) -> FloatArray:
        scaler = fit_scaler(X, standardize=True)
        of_each = in_different_units(scaler) if self.standardize == "auto" else self.standardize
        self.standardized_ = bool(of_each)
        self._set_scaler(scaler if of_each else common_scale(scaler))
        return self._scaler.transform(X)

    def _selected_params(self) -> dict[str, object]:
        return {"standardize": self.standardized_}

    def _model_options(self) -> tuple[Priors, Mapping]:
        return Priors(weight=self.weight, criterion=self.criterion), Mapping()

    def _kernel_mapping(self, problem: Problem) -> KernelMapping:
        return KernelMapping.of(problem.X, self.width if self.mapping == "kernel" else None)

    def _run(self, problem: Problem, rng: np.random.Generator) -> FitResult:
        centroids = class_centroids(problem.X, problem.y_index)
        largest = np.abs(problem.X[problem.known]).max()
        if np.ptp(centroids, axis=0).max() < SAME_CENTROIDS * largest:
            raise ValueError(
                "the centroids of all classes coincide in the features: the criterion of the paper "
                "is undefined"
            )
        return fit_problem(
            problem,
            self._kernel_mapping(problem),
            placement=self.placement if self.mapping == "kernel" else "likelihood",
            approximation=self.approximation,
            rng=rng,
            progressbar=self.progressbar,
        )

    @property
    def model_(self) -> "pm.Model":
        """The objective within bounds as a ``pymc.Model`` on the training samples.

        Its factors are potentials: labels and features have no draws and no log likelihood.
        """
        from bsdr_models.papers.dgplvm.model import declare

        check_is_fitted(self)
        if self._problem.dynamics is not None:
            raise ValueError(
                "model_ has no sequences; papers.dgplvm.build_model(sequence=) has them"
            )
        return self._context.name_dims(declare(self._problem, self._kernel_mapping(self._problem)))


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
