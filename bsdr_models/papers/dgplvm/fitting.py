"""Fits of the paper's model as trees, and predictions from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.back_constraint import Embedder, centroid_weights, certain, make_mapping
from bsdr_models.dgplvm.engines import N_DRAWS, calibrate, make_embedder, make_result
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.left_out import LeftOut, enforce_centroid_order
from bsdr_models.dgplvm.map_search import Mode
from bsdr_models.dgplvm.objective import choose_criterion
from bsdr_models.dgplvm.posterior import DGPLVMPosterior, Draw, FitResult
from bsdr_models.dgplvm.priors import CriterionName, DGPLVMOptimization, DGPLVMPriors
from bsdr_models.dgplvm.probit import EP
from bsdr_models.dgplvm.problem import DGPLVMProblem, class_centroids
from bsdr_models.dgplvm.trees import SPEC, make_tree, relevance
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference import dims
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context
from bsdr_models.inference.trees import read, read_draws
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.options import COUNT, POSITIVE, StrOptions
from bsdr_models.papers.dgplvm.laplace import LAPLACE
from bsdr_models.papers.dgplvm.map import (
    THETA_DIM,
    PaperEmbedder,
    PaperObjective,
    collapse,
    fit_paper,
    kernel_mapping,
)
from bsdr_models.papers.fitting import PaperFit, fit_tree
from bsdr_models.papers.training import read_new, read_setting

if TYPE_CHECKING:
    import pymc as pm

Approximation = Literal["ep", "laplace"]
# Posteriors of the Gaussian process classifier.
APPROXIMATIONS = {"ep": EP, "laplace": LAPLACE}
# Distance of class centroids, relative to the largest feature, that counts as rounding error.
SAME_CENTROIDS = 1e-10
# Embedder of one draw, and the latent coordinates (N, R) that its classifier is fitted to.
Embedding = tuple[Embedder, FloatArray]
# Dims of the free variables of the PyMC model.
FREE_DIMS = {"latent_raw": (dims.BASIS, dims.COMPONENT), "theta": (THETA_DIM,)}


def fit(X: SamplesLike, y: TargetLike, **arguments: Any) -> xr.DataTree:
    """Local minimum of the paper's objective, Eq. (13), as a tree.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Samples as the model sees them: scale features before.
    y : array-like of shape (N,)
        Classes.
    **arguments
        Those of :class:`bsdr_models.papers.PaperDGPLVMClassifier`, but for ``standardize``.

    Returns
    -------
    xarray.DataTree
        With ``posterior``, the mode as a single draw, ``fit``, ``observed_data`` and
        ``constant_data``.

    See Also
    --------
    predict : predictions from the tree.
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
    return fit_tree(DGPLVMFit(**arguments), X, y)


def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, by the Gaussian process classifier of Eqs. (1) to (3).

    Samples are placed by the back-constraint, Eq. (17). Of several draws the classifiers have one
    kernel, and probabilities are averaged over at most 200 of them. Those of the recommended model
    are fitted to coordinates that the back-constraint gives each sample without its own.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, or :func:`bsdr_models.from_trace` of the paper's or of the recommended model.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.

    Returns
    -------
    ndarray of shape (M, K)
        Not calibrated if the tree is of a trace.

    Raises
    ------
    ValueError
        If the number of features is not that of the fit, or the tree does not have the
        back-constraint of its model or the metric of a ``DGPLVMClassifier``.

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
    read(tree, "fit", "y_index", "class_frequency")
    approximation = APPROXIMATIONS[tree.attrs.get("approximation", "ep")]
    index = tree["fit/y_index"].to_numpy()
    recommended = np.isfinite(read_setting(tree, "map_noise", np.nan))
    embeddings = _recommended_embeddings if recommended else _papers_embeddings
    kernel = None
    draws = []
    for embedder, latent in embeddings(tree, index):
        functions, _ = fit_gp_classifier(latent, index, kernel=kernel, approximation=approximation)
        kernel = functions.kernel
        draws.append(Draw(embedder=embedder, functions=(functions,)))
    calibration = Calibration(
        temperature=tree.attrs.get("temperature", 1.0),
        signal=tree.attrs.get("signal", 1.0),
        log_frequency=np.log(tree["fit/class_frequency"].to_numpy()),
    )
    posterior = DGPLVMPosterior(draws=tuple(draws), calibration=calibration)
    return np.exp(posterior.log_probabilities(read_new(tree, X)))


def _papers_embeddings(tree: xr.DataTree, index: IntArray) -> Iterator[Embedding]:
    """Those of the paper's model, whose classifier is fitted to the latent coordinates."""
    if "latent_raw" not in tree["posterior"]:
        raise ValueError(
            "the tree does not have the back-constraint of its model: give model= to from_trace"
        )
    width = read_setting(tree, "width", 2.0)
    mapping = kernel_mapping(
        tree["constant_data/X"].to_numpy(), width if np.isfinite(width) else None
    )
    for latent, raw in zip(*_some_draws(tree, "latent", "latent_raw"), strict=True):
        yield PaperEmbedder.of(mapping, raw), latent


def _recommended_embeddings(tree: xr.DataTree, index: IntArray) -> Iterator[Embedding]:
    """Those of the recommended model without a metric: its classifier is fitted to left-out ones.

    The back-constraint leaves each sample out, by classes (N,).
    """
    if "temperature" in tree.attrs:
        raise ValueError(
            "the tree is of DGPLVMClassifier and does not have its metric: use its predict_proba"
        )
    mapping = make_mapping(
        tree["constant_data/X"].to_numpy(),
        centroid_weights(index),
        width=read_setting(tree, "map_width", 2.0),
        noise=read_setting(tree, "map_noise", 0.02),
    )
    for latent in _some_draws(tree, "latent")[0]:
        left_out = LeftOut.of(mapping, latent, index, (), make_mapping)
        embedder = make_embedder(mapping, latent, index, [left_out])
        yield embedder, enforce_centroid_order(left_out.latent, latent, index)


def _some_draws(tree: xr.DataTree, *names: str) -> list[FloatArray]:
    """At most `N_DRAWS` draws of variables, (S, ...)."""
    read = read_draws(tree, "posterior", *names).stack(sample=SAMPLE_DIMS)
    some = read.isel(sample=evenly_spaced(read.sizes["sample"], N_DRAWS))
    return [some[name].transpose("sample", ...).to_numpy() for name in names]


@dataclass(eq=False, repr=False)
class DGPLVMFit(PaperFit):
    """Arguments of a fit of D-GPLVM, and how it runs."""

    n_components: int | None = None
    _: KW_ONLY
    weight: float = 1e4
    criterion: CriterionName = "auto"
    width: float = 2.0
    approximation: Approximation = "ep"
    unlabeled: object = None
    optimization: DGPLVMOptimization | None = None

    _spec = SPEC
    _several = False
    _option_types: ClassVar[dict[str, type[Any]]] = {"optimization": DGPLVMOptimization}
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "n_components": [COUNT, None],
        "weight": [POSITIVE],
        "criterion": [StrOptions(set(get_args(CriterionName)))],
        "width": [POSITIVE],
        "approximation": [StrOptions(set(get_args(Approximation)))],
    }

    def _size(self, context: Context) -> int:
        """Number of components."""
        return self.n_components or min(2, len(context.labels) - 1)

    def _declare(self, context: Context) -> "pm.Model":
        from bsdr_models.papers.dgplvm.model import build_model

        assert context.index is not None
        return build_model(
            context.X,
            context.index,
            n_components=self._size(context),
            weight=self.weight,
            criterion=self.criterion,
            width=self.width,
            unlabeled=-1,
        )

    def _run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[FitResult, xr.DataTree]:
        problem = self._make_problem(context, targets, rng)
        centroids = class_centroids(problem.X, targets)
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
            fit={"relevance": relevance(result.left_out.mean, targets)},
            method="map",
            dims=FREE_DIMS,
        )
        return replace(result, attrs=attrs), tree

    def _make_problem(
        self, context: Context, index: IntArray, rng: np.random.Generator
    ) -> DGPLVMProblem:
        """Training samples with the folds whose left-out predictions choose a temperature."""
        n_components = self._size(context)
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
            n_components=n_components,
            criterion=choose_criterion(self.criterion, n_components, n_classes, n_labelled),
            optimization=self._option("optimization"),
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
