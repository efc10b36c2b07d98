"""Fits of the paper's model as trees, and predictions from them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.back_constraint import certain
from bsdr_models.dgplvm.engines import N_DRAWS, calibrate, make_result
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.map_search import Mode
from bsdr_models.dgplvm.objective import choose_criterion
from bsdr_models.dgplvm.posterior import DGPLVMPosterior, Draw, FitResult
from bsdr_models.dgplvm.priors import CriterionName, DGPLVMOptimization, DGPLVMPriors
from bsdr_models.dgplvm.probit import EP
from bsdr_models.dgplvm.problem import DGPLVMProblem, class_centroids
from bsdr_models.dgplvm.trees import make_tree, relevance
from bsdr_models.estimators.base import warn_of
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference import dims
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.trees import read_draws
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.rng import RandomState, as_generator
from bsdr_models.papers.dgplvm.laplace import LAPLACE
from bsdr_models.papers.dgplvm.map import (
    PaperEmbedder,
    PaperObjective,
    collapse,
    fit_paper,
    kernel_mapping,
)
from bsdr_models.papers.training import read_new, read_setting, read_training

if TYPE_CHECKING:
    import pymc as pm

Approximation = Literal["ep", "laplace"]
# Posteriors of the Gaussian process classifier.
APPROXIMATIONS = {"ep": EP, "laplace": LAPLACE}
# Distance of class centroids, relative to the largest feature, that counts as rounding error.
SAME_CENTROIDS = 1e-10
# Dims of the free variables of the PyMC model.
FREE_DIMS = {"latent_raw": (dims.BASIS, dims.COMPONENT), "theta": (dims.THETA,)}


def fit(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int = 2,
    weight: float = 1e4,
    criterion: CriterionName = "auto",
    width: float = 2.0,
    approximation: Approximation = "ep",
    unlabeled: object = None,
    optimization: DGPLVMOptimization | None = None,
    progressbar: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    """Local minimum of the paper's objective, Eq. (13).

    Parameters
    ----------
    X : array-like of shape (N, D)
        Samples as the model sees them: scale features before.
    y : array-like of shape (N,)
        Classes.
    n_components : int, default=2
        R, from 1 to D.
    weight : float, default=1e4
        1 / sigma_d**2, weight of the discriminative prior.
    criterion : str, default="auto"
        Measure of class separation, see :class:`bsdr_models.DGPLVMPriors`.
    width : float, default=2
        Width gamma of the back-constraint, Eq. (18), in units of the inverse median squared
        distance of the samples.
    approximation : {"ep", "laplace"}, default="ep"
        Posterior of the Gaussian process classifier by expectation propagation or Laplace's method.
    unlabeled : scalar, optional
        Value of y that marks a missing label.
    optimization : DGPLVMOptimization, optional
        Restarts, iterations and tolerance, see :class:`bsdr_models.DGPLVMOptimization`.
    progressbar, random_state
        As for :class:`bsdr_models.DGPLVMClassifier`.

    Returns
    -------
    xarray.DataTree
        With ``posterior``, the mode as a single draw, ``fit``, ``observed_data`` and
        ``constant_data``.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there are fewer than two classes, or their
        centroids coincide.

    See Also
    --------
    bsdr_models.papers.PaperDGPLVMClassifier : the same fit as an estimator.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import dgplvm
    >>> X, y = load_iris(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the objective has no minimum
    ...     tree = dgplvm.fit(scale(X)[::3], y[::3], random_state=0)
    >>> tree["posterior/latent"].shape
    (1, 1, 50, 2)
    """
    config = {"n_components": n_components, "weight": weight, "width": width}
    context, index = read_training(X, y, n_components, unlabeled=unlabeled, config=config)
    arguments = DGPLVMFit(
        n_components=n_components,
        weight=weight,
        criterion=criterion,
        width=width,
        approximation=approximation,
        optimization=optimization or DGPLVMOptimization(),
        progressbar=progressbar,
    )
    result, tree = arguments.run(context, index, as_generator(random_state))
    warn_of(result)
    return tree


def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, by the Gaussian process classifier of Eqs. (1) to (3).

    Samples are placed by the back-constraint, Eq. (17). Of several draws the classifiers have one
    kernel, and probabilities are averaged over at most 200 of them.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, or :func:`bsdr_models.from_trace`.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.

    Returns
    -------
    ndarray of shape (M, K)

    Raises
    ------
    TypeError
        If `tree` is not a DataTree.
    ValueError
        If variables are missing, or X has other features.

    See Also
    --------
    fit : the fit.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import dgplvm
    >>> X, y = load_iris(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the objective has no minimum
    ...     tree = dgplvm.fit(scale(X)[::3], y[::3], random_state=0)
    >>> dgplvm.predict(tree, scale(X)[1::3]).shape
    (50, 3)
    """
    read = read_draws(tree, "posterior", "latent", "latent_raw")
    latent, raw = (
        read[name].to_numpy().reshape(-1, *read[name].shape[2:])
        for name in ("latent", "latent_raw")
    )
    width = read_setting(tree, "width", 2.0)
    mapping = kernel_mapping(
        tree["constant_data/X"].to_numpy(), width if np.isfinite(width) else None
    )
    approximation = APPROXIMATIONS[tree.attrs.get("approximation", "ep")]
    index = tree["fit/y_index"].to_numpy()
    kernel = None
    draws = []
    for i in evenly_spaced(len(latent), N_DRAWS):
        functions, _ = fit_gp_classifier(
            latent[i], index, kernel=kernel, approximation=approximation
        )
        kernel = functions.kernel
        embedder = PaperEmbedder.of(mapping, raw[i])
        draws.append(Draw(embedder=embedder, functions=(functions,)))
    calibration = Calibration(
        temperature=tree.attrs.get("temperature", 1.0),
        signal=tree.attrs.get("signal", 1.0),
        log_frequency=np.log(tree["fit/class_frequency"].to_numpy()),
    )
    posterior = DGPLVMPosterior(draws=tuple(draws), calibration=calibration)
    return np.exp(posterior.log_probabilities(read_new(tree, X)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DGPLVMFit:
    """Arguments of a fit to validated samples and classes."""

    n_components: int
    weight: float
    criterion: CriterionName
    width: float
    approximation: Approximation
    optimization: DGPLVMOptimization
    progressbar: bool

    def declare(self, context: Context) -> "pm.Model":
        """The PyMC model of the training samples."""
        from bsdr_models.papers.dgplvm.model import build_model

        assert context.index is not None
        return build_model(
            context.X,
            context.index,
            n_components=self.n_components,
            weight=self.weight,
            criterion=self.criterion,
            width=self.width,
            unlabeled=-1,
        )

    def run(
        self, context: Context, index: IntArray, rng: np.random.Generator
    ) -> tuple[FitResult, xr.DataTree]:
        """Result and tree of classes (N,), -1 without a label."""
        problem = self._make_problem(context, index, rng)
        centroids = class_centroids(problem.X, index)
        largest = np.abs(problem.X[problem.known]).max()
        if np.ptp(centroids, axis=0).max() < SAME_CENTROIDS * largest:
            raise ValueError(
                "the centroids of all classes coincide in the features: the criterion of the "
                "paper is undefined"
            )
        mapping = kernel_mapping(problem.X, self.width)
        mode = fit_paper(problem, mapping, rng, progressbar=self.progressbar)
        result = classify(mode, problem, self.approximation)
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
            fit={"relevance": relevance(result.left_out.mean, index)},
            method="map",
            dims=FREE_DIMS,
        )
        return replace(result, attrs=attrs), tree

    def _make_problem(
        self, context: Context, index: IntArray, rng: np.random.Generator
    ) -> DGPLVMProblem:
        """Training samples with the folds whose left-out predictions choose a temperature."""
        n_classes = len(context.labels)
        training = Training.of(
            context.X,
            index,
            n_classes,
            np.ones(context.X.shape[1]),
            metric=None,
            rng=rng,
            groups=context.groups,
        )
        n_labelled = int((index >= 0).sum())
        return DGPLVMProblem(
            X=training.X,
            y_index=index,
            n_components=self.n_components,
            criterion=choose_criterion(self.criterion, self.n_components, n_classes, n_labelled),
            optimization=self.optimization,
            priors=DGPLVMPriors(weight=self.weight, criterion=self.criterion),
            training=training,
        )


def classify(
    mode: Mode[PaperObjective], problem: DGPLVMProblem, approximation: Approximation
) -> FitResult:
    """Result of a mode with a classifier of its latent coordinates; Eq. (17) embeds new samples."""
    gram = mode.objective.gram
    theta = np.exp(mode.log_parameters)
    raw, _ = mode.objective.unpack(mode.search.x)
    signal, inverse_width, _, inverse_noise = theta.tolist()
    functions, log_odds = fit_gp_classifier(
        mode.latent,
        problem.y_index,
        approximation=APPROXIMATIONS[approximation],
    )
    variables: dict[str, float | FloatArray] = {
        "signal_variance": signal / gram.variance,
        "lengthscale": inverse_width**-0.5,
        "noise_variance": 1.0 / inverse_noise / gram.variance,
        "criterion": mode.terms.criterion,
        "theta": theta,
        "latent_raw": raw,
    }
    draw = Draw(embedder=PaperEmbedder.of(mode.objective.mapping, raw), functions=(functions,))
    # The temperature is that of each sample left out of the classifier, but not of the embedding.
    posterior, _ = calibrate([draw], [log_odds[:, None]], problem)
    return make_result(
        mode,
        posterior,
        problem,
        latent=mode.latent,
        left_out=certain(mode.latent),
        variables=variables,
        messages=[collapse(mode, problem)],
    )
