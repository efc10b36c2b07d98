"""Fits of the paper's model as trees, and predictions from their draws."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xarray as xr

from bsdr_models.bm2pca.posterior import PLAIN
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.bm2pca.trees import SPEC, count_draws, latent_offset
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context, read_draws
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.latent import LatentCoordinates, spread
from bsdr_models.options import COUNT, POSITIVE, Options, Sampling
from bsdr_models.papers.bm2pca import gibbs, mean_field
from bsdr_models.papers.bm2pca.gibbs import SAMPLING
from bsdr_models.papers.bm2pca.mean_field import FactorState, ViewData, with_ones
from bsdr_models.papers.fitting import FIT, PREDICT, SampledClassifier, fit_tree, with_sections
from bsdr_models.papers.training import read_new, refuse_calibrated
from bsdr_models.papers.trees import Located, stack_draws, values_of

if TYPE_CHECKING:
    import pymc as pm

# Most draws that latent coordinates of new samples average over.
N_DRAWS = 300
# Variables of which they are functions.
NAMES = ("loadings", "offset", "noise_precision", "weights", "bias")


@with_sections(
    FIT,
    folder="bm2pca",
    estimator="PaperBM2PCAClassifier",
    targets="Classes, or zeros and ones of label sets. Two classes have one class score.",
    posterior="whose components are aligned",
    more="",
)
def fit(X: SamplesLike, y: TargetLike, **arguments: Any) -> xr.DataTree:
    """Pseudo-posterior of the paper's model, with one subspace for all classes, as a tree."""
    return fit_tree(PaperBM2PCAClassifier, X, y, **arguments)


@with_sections(
    PREDICT,
    folder="bm2pca",
    draws=""", or of any draws of ``coef`` and ``intercept``,
    which the PyMC model has""",
    more="",
)
def predict(tree: xr.DataTree, X: SamplesLike) -> FloatArray:
    """Class probabilities of new samples, the softmax of their mean class scores.

    The model has a pseudo-likelihood, so these are no probabilities of the model, and they are not
    calibrated: scores are about 1 where a margin is met, whatever the cost.
    """
    draws = read_draws(tree, "posterior", "coef", "intercept")
    array = read_new(tree, X)
    refuse_calibrated(tree)
    mean = draws.mean(SAMPLE_DIMS)
    coef = mean["coef"].transpose(dims.FEATURE, ...).to_numpy()
    scores = array @ coef + mean["intercept"].to_numpy()
    if tree.attrs.get("target") == "regression":
        return scores
    return np.exp(_link(scores, tree.attrs.get("target") != "multilabel"))


def _link(scores: FloatArray, exclusive: bool) -> FloatArray:
    """Log probabilities (M, K) of classes, of which two may share a score, or of each label."""
    return replace(PLAIN, exclusive=exclusive)(scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCADraws:
    """S draws, with stacked chains. Two classes have one score, J = 1 and K = 2; else J = K."""

    maps: FloatArray  # from features to latent coordinates, (S, P, R)
    origin: FloatArray  # product of the offset t and the map, (S, R)
    cov: FloatArray  # mean covariance of latent coordinates given the draw, (R, R)
    weights: FloatArray  # [bias; weights], (S, 1 + R, J)
    coef: FloatArray  # means over all draws, (P, K)
    intercept: FloatArray  # (K,)
    exclusive: bool  # whether a sample has one class

    @classmethod
    def of(cls, draws: Mapping[str, FloatArray], *, exclusive: bool) -> Self:
        """From at most `N_DRAWS` of the draws (chain, draw, ...) by name.

        The covariance is V(z_new) of the paper, after Eq. (5).
        """
        some = stack_draws(draws, NAMES, N_DRAWS)
        W = some["loadings"]
        tau = some["noise_precision"][:, None, None]
        cov = np.linalg.inv(np.eye(W.shape[2]) + tau * (W.mT @ W))
        maps = W @ (tau * cov)
        return cls(
            maps=maps,
            origin=np.squeeze(some["offset"][:, None] @ maps, axis=1),
            cov=cov.mean(axis=0),
            weights=np.concatenate([some["bias"][:, None], some["weights"]], axis=1),
            coef=draws["coef"].mean(axis=(0, 1)),
            intercept=draws["intercept"].mean(axis=(0, 1)),
            exclusive=exclusive,
        )

    @property
    def projection(self) -> FloatArray:
        """Mean of the linear map from features to latent coordinates, (P, R)."""
        return self.maps.mean(axis=0)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, J)."""
        return self.weights[:, 1:].mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances, within and between draws, of latent coordinates of (M, P)."""
        each = X @ self.maps - self.origin[:, None]
        mean = each.mean(axis=0)
        return LatentCoordinates(mean=mean, cov=spread(each, mean) + self.cov)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of features on mean class scores, (P, K), and intercepts, (K,)."""
        return self.coef, self.intercept

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes, or that each label is one, of samples (M, P): (M, K)."""
        return _link(X @ self.coef + self.intercept, self.exclusive)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R): (G, K)."""
        return _link(with_ones(latent) @ self.weights.mean(axis=0), self.exclusive)


@dataclass(eq=False, repr=False)
class PaperBM2PCAClassifier(SampledClassifier):
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

    n_components: int = 10
    _: KW_ONLY
    C: float = 10.0
    unlabeled: object = None
    priors: BM2PCAPriors | None = None
    max_iter: int = 5000

    _spec = SPEC
    _mean_field: ClassVar[ModuleType] = mean_field
    _gibbs: ClassVar[ModuleType] = gibbs
    _unrecorded = frozenset({"scores", "hinge_scale"})
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": BM2PCAPriors,
        "sampling": Sampling,
    }
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        **SampledClassifier._parameter_constraints,
        "C": [POSITIVE],
        "max_iter": [COUNT],
    }

    def _option(self, name: str) -> Any:
        if name == "priors" and self.priors is None and self.inference != "mean_field":
            return SAMPLING
        return super()._option(name)

    def _size(self, context: Context) -> int:
        """Number of components, at most that of the features that vary."""
        return min(int(self.n_components), context.X.shape[1])

    def _declare(self, context: Context) -> "pm.Model":
        from bsdr_models.papers.bm2pca.model import build_model

        return build_model(
            context.X,
            context.y,
            n_components=self._size(context),
            target=context.target,
            C=self.C,
            priors=self._option("priors"),
            unlabeled=self.unlabeled,
        )

    def _make_data(self, context: Context, targets: np.ndarray) -> ViewData:
        signs = signs_of(targets, len(context.labels))
        return mean_field.make_data(context.X, signs, self.C)

    def _limits(self) -> dict[str, Any]:
        return {"max_iter": self.max_iter}

    def _draw(
        self, state: FactorState, data: ViewData, rng: np.random.Generator
    ) -> dict[str, FloatArray]:
        n_draws = count_draws(data.X.shape[1], data.margins.y.shape[1])
        latent = n_draws * state.latent.mean.size <= datatree.MAX_NUMBERS
        return mean_field.draw(state, data, n_draws=n_draws, latent=latent, rng=rng)

    def _align(self, draws: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
        """Draws with rotated components, and precisions of the loadings given these.

        Those of the sampler are not defined after a rotation.
        """
        aligned = super()._align(draws, rng)
        priors = self._option("priors")
        W = aligned["loadings"].values
        rate = priors.loading_rate + 0.5 * np.sum(W**2, axis=2)
        precision = rng.gamma(priors.loading_shape + 0.5 * W.shape[2], 1.0 / rate)
        return aligned.assign(loading_precision=((*SAMPLE_DIMS, dims.COMPONENT), precision))

    def _describe(
        self, draws: xr.Dataset, context: Context, data: ViewData, result: Result[Any]
    ) -> tuple[BM2PCADraws, Located]:
        arrays = values_of(draws)
        posterior = BM2PCADraws.of(arrays, exclusive=context.target == "multiclass")
        more = {}
        if "latent" in draws and draws["bias"].shape[-1] > 1:
            more["latent_offset"] = (draws["latent"].dims, latent_offset(arrays, context.X))
        located = Located.linear(
            context,
            posterior.embed(context.X),
            posterior.projection,
            context.per_class(posterior.mean_weights),
            attrs={"C": float(self.C)},
            draws=more,
        )
        return posterior, located
