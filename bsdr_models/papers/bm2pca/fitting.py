"""Fits of the paper's model as trees, and predictions from their draws."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr
from scipy.special import log_expit, log_softmax

from bsdr_models.alignment import rotations
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.bm2pca.trees import make_tree, per_class
from bsdr_models.data.validation import warn_unless_mixed
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule
from bsdr_models.inference.trees import read_draws
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.rng import RandomState, as_generator
from bsdr_models.papers.bm2pca import gibbs
from bsdr_models.papers.bm2pca.conjugate import fit_mean_field
from bsdr_models.papers.bm2pca.gibbs import SAMPLING
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of
from bsdr_models.papers.bm2pca.mean_field import with_ones
from bsdr_models.papers.bm2pca.problem import Problem
from bsdr_models.papers.sampler import run_sampler
from bsdr_models.papers.training import Inference, describe, read_new, read_training, warn_of

if TYPE_CHECKING:
    import pymc as pm

# Most draws that latent coordinates of new samples average over.
N_DRAWS = 300
# Variables of which they are functions.
NAMES = ("loadings", "offset", "noise_precision", "weights", "bias")


def fit(
    X: SamplesLike,
    y: TargetLike,
    *,
    inference: Inference = "mean_field",
    n_components: int = 10,
    C: float = 10.0,
    priors: Priors | None = None,
    unlabeled: object = None,
    max_iter: int = 2000,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    progressbar: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    """Pseudo-posterior of the paper's model, with one subspace for all classes.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Samples as the model sees them: scale features before.
    y : array-like of shape (N,), or (N, T)
        Classes, or zeros and ones of label sets. Two classes have one class score.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    n_components : int, default=10
        R, from 1 to D.
    C : float, default=10
        Cost of a violated margin.
    priors : Priors, optional
        Hyper-parameters; the paper's for mean field, and proper ones, ``SAMPLING``, for samplers.
    unlabeled : scalar, optional
        Value of y that marks a missing label: such samples contribute their features.
    max_iter : int, default=2000
        Sweeps of mean field.
    draws, tune, chains : int
        Draws that are kept and warm-up of each chain of a sampler. ADVI has one chain.
    progressbar, random_state
        As for :class:`bsdr_models.BM2PCAClassifier`.

    Returns
    -------
    xarray.DataTree
        With ``posterior``, ``fit``, ``observed_data`` and ``constant_data``, of samplers also
        ``sample_stats``. Components are aligned.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, or there are fewer than two classes.

    See Also
    --------
    predict : class probabilities of new samples, given the tree.
    bsdr_models.papers.PaperBM2PCAClassifier : the same fit as an estimator, which scales features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bm2pca
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = bm2pca.fit(scale(X), y, n_components=3, random_state=0)
    >>> bm2pca.predict(tree, scale(X)).shape
    (150, 3)
    """
    config = {"inference": inference, "n_components": n_components, "C": C}
    context, targets = read_training(X, y, n_components, unlabeled=unlabeled, config=config)
    problem = make_problem(
        context,
        targets,
        n_components,
        priors or (Priors() if inference == "mean_field" else SAMPLING),
    )
    result, tree = fit_tree(
        problem,
        context,
        inference=inference,
        C=C,
        max_iter=max_iter,
        schedule=Schedule(draws=draws, tune=tune, chains=chains, progressbar=progressbar),
        rng=as_generator(random_state),
    )
    warn_of(result)
    return tree


def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, the softmax of their mean class scores.

    The model has a pseudo-likelihood, so these are no probabilities of the model, and they are not
    calibrated: scores are about 1 where a margin is met, whatever the cost.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, or of any draws of ``coef`` and ``intercept``, which the PyMC model has.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.

    Returns
    -------
    ndarray of shape (M, K)
        Probabilities of the classes, or that each label is one.

    Raises
    ------
    TypeError
        If `tree` is not a DataTree.
    ValueError
        If variables are missing, or X has other features.

    See Also
    --------
    fit : the tree.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bm2pca
    >>> X, y = load_wine(return_X_y=True)
    >>> tree = bm2pca.fit(scale(X)[::2], y[::2], n_components=3, random_state=0)
    >>> bm2pca.predict(tree, scale(X)[1::2]).argmax(axis=1)[:3]
    array([0, 0, 0])
    """
    scores = _mean_scores(read_draws(tree, "posterior", "coef", "intercept"), read_new(tree, X))
    if tree.attrs.get("target") != "multilabel" and scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    return np.exp(_link(scores, tree.attrs.get("target") != "multilabel"))


def _mean_scores(posterior: xr.Dataset, X: FloatArray) -> FloatArray:
    """Means over draws of the class scores (M, K), which are linear in X (M, P)."""
    mean = posterior[["coef", "intercept"]].mean(SAMPLE_DIMS)
    coef = mean["coef"].transpose(dims.FEATURE, ...).to_numpy()
    return X @ coef + mean["intercept"].to_numpy()


def _link(scores: FloatArray, exclusive: bool) -> FloatArray:
    """Log probabilities of classes, or that each label is one, (M, K), of class scores."""
    return np.asarray(log_softmax(scores, axis=1) if exclusive else log_expit(scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCADraws:
    """S draws, with stacked chains. Two classes have one score, J = 1 and K = 2; else J = K."""

    loadings: FloatArray  # W, (S, P, R)
    offset: FloatArray  # t, (S, P)
    noise_precision: FloatArray  # tau, (S,)
    weights: FloatArray  # [bias; weights], (S, 1 + R, J)
    coef: FloatArray  # means over all draws, (P, K)
    intercept: FloatArray  # (K,)
    exclusive: bool  # whether a sample has one class

    @classmethod
    def of(cls, draws: Mapping[str, FloatArray], *, exclusive: bool) -> Self:
        """From at most `N_DRAWS` of the draws (chain, draw, ...) by name."""
        index = evenly_spaced(draws["noise_precision"].size, N_DRAWS)
        some = {name: draws[name].reshape(-1, *draws[name].shape[2:])[index] for name in NAMES}
        weights = np.concatenate([some.pop("bias")[:, None], some.pop("weights")], axis=1)
        return cls(
            weights=weights,
            coef=draws["coef"].mean(axis=(0, 1)),
            intercept=draws["intercept"].mean(axis=(0, 1)),
            exclusive=exclusive,
            **some,
        )

    def _maps(self) -> tuple[FloatArray, FloatArray]:
        """Linear map from features to latent coordinates, (S, P, R), and their covariance.

        V(z_new) of the paper, after Eq. (5): (S, R, R).
        """
        tau = self.noise_precision[:, None, None]
        W = self.loadings
        cov = np.linalg.inv(np.eye(W.shape[2]) + tau * (W.mT @ W))
        return tau * W @ cov, cov

    @property
    def projection(self) -> FloatArray:
        """Mean of the linear map from features to latent coordinates, (P, R)."""
        return self._maps()[0].mean(axis=0)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, J)."""
        return self.weights[:, 1:].mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances, within and between draws, of latent coordinates of (M, P)."""
        maps, cov = self._maps()
        each = X @ maps - np.einsum("sp,spr->sr", self.offset, maps)[:, None]
        mean = each.mean(axis=0)
        gap = each - mean
        between = np.einsum("smr,smq->mrq", gap, gap, optimize=True) / len(gap)
        return LatentCoordinates(mean=mean, cov=between + cov.mean(axis=0))

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self.embed(X).mean

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of features on mean class scores, (P, K), and intercepts, (K,)."""
        return self.coef, self.intercept

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes, or that each label is one, of samples (M, P): (M, K)."""
        return _link(X @ self.coef + self.intercept, self.exclusive)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R): (G, K)."""
        scores = with_ones(latent) @ self.weights.mean(axis=0)
        if scores.shape[1] < len(self.intercept):
            scores = np.insert(scores, 0, 0.0, axis=1)
        return _link(scores, self.exclusive)


def make_problem(
    context: Context, targets: np.ndarray, n_components: int, priors: Priors
) -> Problem:
    """Validated samples and signs, and as many components as features vary, at most."""
    return Problem(
        X=context.X,
        Y=signs_of(targets, len(context.labels)),
        n_components=min(n_components, context.X.shape[1]),
        priors=priors,
    )


def fit_tree(
    problem: Problem,
    context: Context,
    *,
    inference: Inference,
    C: float,
    max_iter: int,
    schedule: Schedule,
    rng: np.random.Generator,
) -> tuple[Result[BM2PCADraws], xr.DataTree]:
    """Fit to validated samples; the result predicts those features that vary."""
    exclusive = context.target == "multiclass"
    result: Result[Any]
    if inference == "mean_field":
        result = fit_mean_field(
            problem, cost=C, rng=rng, max_iter=max_iter, progressbar=schedule.progressbar
        )
    else:
        result = _sample(problem, inference, C, schedule, rng, exclusive)
    posterior = result.posterior
    described, of_reference = describe(
        context,
        posterior.latent(context.X),
        posterior.projection,
        per_class(context, posterior.mean_weights),
    )
    tree = make_tree(
        result,
        context,
        group=described,
        attrs={"interrupted": int(result.interrupted), "C": float(C), **of_reference},
        method=inference,
        rng=rng,
    )
    if inference in ("gibbs", "nuts"):
        result = replace(result, converged=warn_unless_mixed(tree, SPEC.identified))
    of_varying = tree["posterior"].to_dataset().isel({dims.FEATURE: context.varies})
    draws = {name: of_varying[name].to_numpy() for name in (*NAMES, "coef", "intercept")}
    return result.with_posterior(BM2PCADraws.of(draws, exclusive=exclusive)), tree


def _sample(
    problem: Problem,
    inference: Inference,
    cost: float,
    schedule: Schedule,
    rng: np.random.Generator,
    exclusive: bool,
) -> Result[BM2PCADraws]:
    """Draws by Gibbs sampling, NUTS or ADVI, with components aligned."""
    data = gibbs.SignData(X=problem.X, margins=margins_of(problem.Y, cost, None))
    size = {"n_components": problem.n_components, "n_chains": schedule.chains}
    excluded = {"scores"}
    n_draws = schedule.chains * schedule.draws
    if n_draws * len(problem.X) * problem.n_components > datatree.MAX_NUMBERS:
        excluded.add("latent")
    sampled = run_sampler(
        inference,
        schedule,
        init=lambda stream: gibbs.init(data, problem.priors, **size, rng=stream),
        step=lambda state, stream: gibbs.step(state, data, problem.priors, rng=stream),
        record=gibbs.to_variables,
        stats=lambda state: {"lp": gibbs.log_density(state, data, problem.priors)},
        excluded=excluded,
        declare=lambda: declare(problem, cost, exclusive=exclusive),
        spec=SPEC,
        rng=rng,
    )
    # C order, as in a model loaded from a file.
    aligned = align_components(dict(sampled.draws), problem.priors, rng).items()
    sampled = replace(sampled, draws={name: np.ascontiguousarray(v) for name, v in aligned})
    return Result(
        posterior=BM2PCADraws.of(sampled.draws, exclusive=exclusive),
        trace=np.asarray(sampled.fit.get("elbo", [])),
        converged=False,
        interrupted=sampled.interrupted,
        sampled=sampled,
    )


def declare(problem: Problem, cost: float, *, exclusive: bool) -> "pm.Model":
    """The PyMC model of the training samples; two classes have one score, not one each."""
    from bsdr_models.papers.bm2pca import model

    n_scores = problem.Y.shape[1]
    axis = dims.SCORE if exclusive and n_scores == 1 else dims.LABEL
    return model.declare(
        problem.X,
        problem.Y,
        {dims.FEATURE: range(problem.X.shape[1]), axis: range(n_scores)},
        n_components=problem.n_components,
        C=cost,
        epsilon=None,
        priors=problem.priors,
    )


def align_components(
    draws: dict[str, FloatArray], priors: Priors, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Rotate the components of every draw into alignment.

    Products over the component axis, such as W z and eta' z, are unchanged. Precisions of columns
    of the loadings are not defined after a rotation, and drawn given the rotated loadings.
    """
    W = draws["loadings"]
    eta = draws["weights"]
    d, r = W.shape[2:]
    stacked = np.concatenate([W, eta.mT], axis=2)
    turn = rotations(stacked.reshape(-1, *stacked.shape[2:])).reshape(*W.shape[:2], r, r)
    out = draws | {"loadings": W @ turn, "weights": turn.mT @ eta}
    if "latent" in draws:
        out["latent"] = draws["latent"] @ turn
    rate = priors.loading_rate + 0.5 * np.sum(out["loadings"] ** 2, axis=2)
    out["loading_precision"] = rng.gamma(priors.loading_shape + 0.5 * d, 1.0 / rate)
    return out
