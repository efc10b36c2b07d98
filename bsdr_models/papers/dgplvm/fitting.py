"""Fits of the paper's model, as trees and by an estimator."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr

from bsdr_models.data.training import Training
from bsdr_models.data.validation import check_variation
from bsdr_models.dgplvm.back_constraint import certain
from bsdr_models.dgplvm.engines import calibrate, make_result
from bsdr_models.dgplvm.map_search import Mode
from bsdr_models.dgplvm.posterior import FitResult
from bsdr_models.dgplvm.priors import CriterionName, DGPLVMOptimization
from bsdr_models.dgplvm.problem import DGPLVMProblem, class_centroids, relevance
from bsdr_models.dgplvm.trees import SPEC, make_tree
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import BASIS, COMPONENT
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.scaling import HUGE, Scaler
from bsdr_models.options import COUNT, StrOptions
from bsdr_models.papers import dgplvm
from bsdr_models.papers.dgplvm.draws import Approximation, classify
from bsdr_models.papers.dgplvm.map import (
    CONSTRAINTS,
    THETA_DIM,
    PaperEmbedder,
    PaperObjective,
    collapse,
    fit_paper,
    kernel_mapping,
    make_problem,
)
from bsdr_models.papers.fitting import PaperClassifier, fit_tree

# Relative participation ratio of the variances below which features have different units.
SAME_UNITS = 0.25
# Distance of class centroids, relative to the largest feature, that counts as rounding error.
SAME_CENTROIDS = 1e-10
# Dims of the free variables of the PyMC model.
FREE_DIMS = {"latent_raw": (BASIS, COMPONENT), "theta": (THETA_DIM,)}


def fit(X: SamplesLike, y: TargetLike, **arguments: Any) -> xr.DataTree:
    """Local minimum of the paper's objective, Eq. (13), as a tree.

    Samples (N, D) are as the model sees them. Arguments are those of
    :class:`bsdr_models.papers.PaperDGPLVMClassifier`, but for ``standardize``. The group
    ``posterior`` has the mode as a single draw.

    See Also
    --------
    bsdr_models.papers.bsdr.fit : the groups of the tree, and what is refused.
    bsdr_models.papers.dgplvm.predict : predictions from the tree.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> X, y = load_iris(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the objective has no minimum
    ...     tree = papers.dgplvm.fit(scale(X)[::3], y[::3], n_components=2, random_state=0)
    >>> tree["posterior/latent"].sizes["component"]
    2
    """
    return fit_tree(PaperDGPLVMClassifier, X, y, **arguments)


@dataclass(eq=False, repr=False)
class PaperDGPLVMClassifier(PaperClassifier):
    """D-GPLVM as Urtasun and Darrell (2007) print it, for comparison.

    The objective, Eq. (13), is minimised over latent coordinates and kernel parameters. It has
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
    standardize : bool or "auto", default="auto"
        Whether to scale each feature to unit variance, or all by a common factor. "auto" scales
        each if a few features have most of the variance, as with different units.
    approximation : {"ep", "laplace"}, default="ep"
        Posterior of the Gaussian process classifier by expectation propagation or Laplace's method.
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

    n_components: int | None = None
    _: KW_ONLY
    weight: float = 1e4
    criterion: CriterionName = "auto"
    width: float = 2.0
    approximation: Approximation = "ep"
    unlabeled: object = None
    optimization: DGPLVMOptimization | None = None
    standardize: bool | Literal["auto"] = "auto"

    _spec = SPEC
    _several = False
    _folder: ClassVar[ModuleType] = dgplvm
    _of_model = ("weight", "criterion", "width", "unlabeled")
    _option_types: ClassVar[dict[str, type[Any]]] = {"optimization": DGPLVMOptimization}
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        **CONSTRAINTS,
        "approximation": [StrOptions(set(get_args(Approximation)))],
        "n_components": [COUNT, None],
        "standardize": ["boolean", StrOptions({"auto"})],
    }

    def _size(self, context: Context) -> int:
        """Number of components."""
        return int(self.n_components or min(2, len(context.targets.names) - 1))

    def _scale(self, X: FloatArray) -> FloatArray:
        scaler = check_variation(self, Scaler.fit(X))
        of_each = in_different_units(scaler) if self.standardize == "auto" else self.standardize
        self.standardized_ = bool(of_each)
        self._set_scaler(scaler if of_each else common_scale(scaler))
        return self._scaler.transform(X)

    def _selected_params(self) -> dict[str, object]:
        return {"standardize": self.standardized_}

    def _name_fitted(self) -> None:
        super()._name_fitted()
        self.latent_ = self.idata_["posterior/latent"].to_numpy()[0, 0]

    def _run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[FitResult, xr.DataTree]:
        X = context.X
        centroids = class_centroids(X, targets)
        if np.ptp(centroids, axis=0).max() < SAME_CENTROIDS * np.abs(X[targets >= 0]).max():
            raise ValueError(
                "the centroids of all classes coincide in the features: the criterion of the "
                "paper is undefined"
            )
        # Its folds have the left-out predictions that choose a temperature.
        training = Training.of(
            X,
            targets,
            len(context.targets.names),
            np.ones(X.shape[1]),
            metric=None,
            rng=rng,
            groups=context.groups,
        )
        problem = make_problem(
            X,
            targets,
            n_components=self._size(context),
            weight=self.weight,
            criterion=self.criterion,
            optimization=self._option("optimization"),
            training=training,
        )
        mode = fit_paper(problem, kernel_mapping(X, self.width), rng, progressbar=self.progressbar)
        result = describe(mode, problem, self.approximation)
        attrs = {
            "weight": self.weight,
            "criterion": problem.criterion,
            "width": self.width,
            "approximation": self.approximation,
            "objective": "log posterior density",
            **result.posterior.calibration.attrs(),
        }
        tree = make_tree(
            result,
            replace(context, attrs={**context.attrs, **attrs}),
            fit={"relevance": relevance(result.left_out.mean, targets)},
            method="map",
            dims=FREE_DIMS,
        )
        return replace(result, attrs=attrs), tree


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


def describe(
    mode: Mode[PaperObjective], problem: DGPLVMProblem, approximation: Approximation
) -> FitResult:
    """Result of a mode with a classifier of its latent coordinates; Eq. (17) embeds new samples."""
    gram = mode.objective.gram
    theta = np.exp(mode.log_parameters)
    raw, _ = mode.objective.unpack(mode.search.x)
    signal, inverse_width, _, inverse_noise = theta.tolist()
    variables: dict[str, float | FloatArray] = {
        "signal_variance": signal / gram.variance,
        "lengthscale": inverse_width**-0.5,
        "noise_variance": 1.0 / inverse_noise / gram.variance,
        "criterion": mode.terms.criterion,
        "theta": theta,
        "latent_raw": raw,
    }
    embedder = PaperEmbedder.of(mode.objective.mapping, raw)
    draws, log_odds = classify([(embedder, mode.latent)], problem.y_index, approximation)
    # The temperature is that of each sample left out of the classifier, but not of the embedding.
    posterior, _ = calibrate(draws, [log_odds[:, None]], problem)
    return make_result(
        mode,
        posterior,
        problem,
        latent=mode.latent,
        left_out=certain(mode.latent),
        variables=variables,
        messages=[collapse(mode, problem)],
    )
