"""Fits of the paper's model as trees, and predictions from their draws."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr
from scipy.special import log_expit, log_softmax

from bsdr_models.alignment import rotations
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.bm2pca.trees import count_draws, make_tree, per_class
from bsdr_models.data.validation import warn_unless_mixed
from bsdr_models.estimators.base import warn_of
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Sampled, Schedule
from bsdr_models.inference.trees import read_draws
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.rng import RandomState, as_generator
from bsdr_models.papers.bm2pca import gibbs
from bsdr_models.papers.bm2pca.conjugate import BM2PCAProblem, MarginPosterior, fit_mean_field
from bsdr_models.papers.bm2pca.gibbs import SAMPLING
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of
from bsdr_models.papers.bm2pca.mean_field import with_ones
from bsdr_models.papers.sampler import run_sampler
from bsdr_models.papers.training import Inference, describe, read_new, read_training

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
    priors: BM2PCAPriors | None = None,
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
    priors : BM2PCAPriors, optional
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
    bsdr_models.papers.PaperBM2PCAClassifier : the same fit as an estimator.

    Notes
    -----
    Mean field is conjugate, since the hinge factor is normal given a slack scale. The factor is a
    pseudo-likelihood: probabilities are the softmax of the mean class scores, not calibrated.
    Choose C, which is 10 to 40 in the paper, by held-out samples, as ``GridSearchCV`` does.

    *Early stopping.* z depends on the label of a training sample; a new sample has none. With few
    samples and many features the bound keeps rising as W adapts to the features, while training
    labels are explained by latent coordinates that new samples lack: on ORL faces accuracy falls
    from 70 to 62 % between the second sweep and the twentieth. A small ``max_iter`` stops before.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bm2pca
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = bm2pca.fit(scale(X), y, n_components=3, random_state=0)
    >>> tree["posterior/loadings"].dims
    ('chain', 'draw', 'feature', 'component')
    """
    config = {"inference": inference, "n_components": n_components, "C": C}
    context, targets = read_training(X, y, n_components, unlabeled=unlabeled, config=config)
    arguments = BM2PCAFit(
        inference=inference,
        n_components=n_components,
        C=C,
        priors=priors or default_priors(inference),
        unlabeled=unlabeled,
        max_iter=max_iter,
        schedule=Schedule(draws=draws, tune=tune, chains=chains, progressbar=progressbar),
    )
    result, tree = arguments.run(context, targets, as_generator(random_state))
    warn_of(result)
    return tree


def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, the softmax of their mean class scores.

    The model has a pseudo-likelihood, so these are no probabilities of the model, and they are not
    calibrated: scores are about 1 where a margin is met, whatever the cost.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or :func:`bsdr_models.from_trace`, or of any draws of ``coef`` and ``intercept``,
        which the PyMC model has.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.

    Returns
    -------
    ndarray of shape (M, K)
        Probabilities of the classes, or that each label is one; means of real outputs.

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
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bm2pca
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = bm2pca.fit(scale(X), y, n_components=3, random_state=0)
    >>> bm2pca.predict(tree, scale(X)).shape
    (150, 3)
    """
    mean = read_draws(tree, "posterior", "coef", "intercept").mean(SAMPLE_DIMS)
    coef = mean["coef"].transpose(dims.FEATURE, ...).to_numpy()
    scores = read_new(tree, X) @ coef + mean["intercept"].to_numpy()
    if tree.attrs.get("target") == "regression":
        return scores
    return np.exp(_link(scores, tree.attrs.get("target") != "multilabel"))


def default_priors(inference: Inference) -> BM2PCAPriors:
    """Hyper-parameters of the paper for mean field, proper ones for samplers."""
    return BM2PCAPriors() if inference == "mean_field" else SAMPLING


def _link(scores: FloatArray, exclusive: bool) -> FloatArray:
    """Log probabilities (M, K) of classes, of which two may share a score, or of each label."""
    if not exclusive:
        return np.asarray(log_expit(scores))
    if scores.shape[1] == 1:
        scores = np.insert(scores, 0, 0.0, axis=1)
    return np.asarray(log_softmax(scores, axis=1))


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
        return _link(with_ones(latent) @ self.weights.mean(axis=0), self.exclusive)


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCAFit:
    """Arguments of a fit to validated samples and targets."""

    inference: Inference
    n_components: int
    C: float
    priors: BM2PCAPriors
    unlabeled: object
    max_iter: int
    schedule: Schedule

    def declare(self, context: Context) -> "pm.Model":
        """The PyMC model of the training samples."""
        from bsdr_models.papers.bm2pca.model import build_model

        return build_model(
            context.X,
            context.y,
            n_components=min(self.n_components, context.X.shape[1]),
            target=context.target,
            C=self.C,
            priors=self.priors,
            unlabeled=self.unlabeled,
        )

    def run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[BM2PCADraws], xr.DataTree]:
        """Result, which predicts those features that vary, and tree.

        There are at most as many components as these features.
        """
        problem = BM2PCAProblem(
            X=context.X,
            Y=signs_of(targets, len(context.labels)),
            n_components=min(self.n_components, context.X.shape[1]),
            priors=self.priors,
        )
        by_mean_field = self.inference == "mean_field"
        result: Result[Any] = (
            self._maximise(problem, rng) if by_mean_field else self._sample(problem, context, rng)
        )
        posterior = result.posterior
        described, of_reference = describe(
            context,
            posterior.latent(context.X),
            posterior.projection,
            per_class(context, posterior.mean_weights),
        )
        aligned = {} if by_mean_field else {"alignment": "rotation"}
        attrs = {"interrupted": int(result.interrupted), "C": float(self.C), **aligned}
        tree = make_tree(
            result,
            context,
            group=described,
            attrs={**attrs, **of_reference},
            method=self.inference,
            rng=rng,
        )
        if self.inference in ("gibbs", "nuts"):
            result = replace(result, converged=warn_unless_mixed(tree, SPEC.identified))
        assert result.sampled is not None
        draws = dict(result.sampled.draws)
        draws |= {name: per_class(context, draws[name]) for name in ("coef", "intercept")}
        predictor = BM2PCADraws.of(draws, exclusive=context.target == "multiclass")
        return replace(result, sampled=None).with_posterior(predictor), tree

    def _maximise(
        self, problem: BM2PCAProblem, rng: np.random.Generator
    ) -> Result[MarginPosterior]:
        """Mean field, with draws of q."""
        result = fit_mean_field(
            problem,
            cost=self.C,
            rng=rng,
            max_iter=self.max_iter,
            progressbar=self.schedule.progressbar,
        )
        drawn = result.posterior.draw(count_draws(result.posterior), rng)
        sampled = Sampled(
            draws={name: values[None] for name, values in drawn.items()},
            fit={
                "elbo": result.trace,
                "elbo_terms": np.column_stack(list(result.terms.values())),
            },
            attrs={"converged": int(result.converged)},
        )
        return replace(result, sampled=sampled)

    def _sample(
        self, problem: BM2PCAProblem, context: Context, rng: np.random.Generator
    ) -> Result[BM2PCADraws]:
        """Draws by Gibbs sampling, NUTS or ADVI, with components aligned."""
        data = gibbs.SignData(X=problem.X, margins=margins_of(problem.Y, self.C, None))
        size = {"n_components": problem.n_components, "n_chains": self.schedule.chains}
        excluded = {"scores"}
        n_draws = self.schedule.chains * self.schedule.draws
        if n_draws * len(problem.X) * problem.n_components > datatree.MAX_NUMBERS:
            excluded.add("latent")
        sampled = run_sampler(
            self.inference,
            self.schedule,
            init=lambda stream: gibbs.init(data, problem.priors, **size, rng=stream),
            step=lambda state, stream: gibbs.step(state, data, problem.priors, rng=stream),
            record=gibbs.to_variables,
            stats=lambda state: {"lp": gibbs.log_density(state, data, problem.priors)},
            excluded=excluded,
            declare=lambda: self.declare(context),
            spec=SPEC,
            rng=rng,
        )
        # C order, as in a model loaded from a file.
        aligned = align_components(dict(sampled.draws), problem.priors, rng).items()
        sampled = replace(sampled, draws={name: np.ascontiguousarray(v) for name, v in aligned})
        return Result(
            posterior=BM2PCADraws.of(sampled.draws, exclusive=context.target == "multiclass"),
            trace=np.asarray(sampled.fit.get("elbo", [])),
            converged=False,
            interrupted=sampled.interrupted,
            sampled=sampled,
        )


def align_components(
    draws: dict[str, FloatArray], priors: BM2PCAPriors, rng: np.random.Generator
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
