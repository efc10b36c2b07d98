"""Fits of the paper's model, as trees and by an estimator."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.bm2pca.trees import SPEC, count_draws, latent_offset
from bsdr_models.inference.datatree import SAMPLE_DIMS, Context
from bsdr_models.inference.dims import COMPONENT
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import SamplesLike, TargetLike
from bsdr_models.options import COUNT, POSITIVE, Options, Sampling
from bsdr_models.papers import bm2pca
from bsdr_models.papers.bm2pca.draws import BM2PCADraws
from bsdr_models.papers.bm2pca.gibbs import SAMPLING
from bsdr_models.papers.bm2pca.mean_field import ViewData, make_data
from bsdr_models.papers.fitting import SampledClassifier, fit_tree

# Variables of which the offset of latent coordinates is a function.
OF_OFFSET = ("latent", "loadings", "noise_precision", "offset")


def fit(X: SamplesLike, y: TargetLike, **arguments: Any) -> xr.DataTree:
    """Pseudo-posterior of the paper's model, with one subspace for all classes, as a tree.

    Samples (N, D) are as the model sees them. Arguments are those of
    :class:`bsdr_models.papers.PaperBM2PCAClassifier`, but for ``standardize``.

    See Also
    --------
    bsdr_models.papers.bsdr.fit : the groups of the tree, and what is refused.
    bsdr_models.papers.bm2pca.predict : predictions from the tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = papers.bm2pca.fit(scale(X), y, n_components=2, random_state=0)
    >>> tree["posterior/loadings"].sizes["component"]
    2
    """
    return fit_tree(PaperBM2PCAClassifier, X, y, **arguments)


@dataclass(eq=False, repr=False)
class PaperBM2PCAClassifier(SampledClassifier):
    r"""Bayesian maximum margin principal component analysis as printed (Du et al., 2015).

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

    Notes
    -----
    Mean field is conjugate, since the hinge factor is normal given a slack scale. The factor is a
    pseudo-likelihood: probabilities are the softmax of the mean class scores, not calibrated.
    Choose C, which is 10 to 40 in the paper, by held-out samples, as ``GridSearchCV`` does.

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
    _folder: ClassVar[ModuleType] = bm2pca
    _of_model = ("priors", "C", "unlabeled")
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

    def _make_data(self, context: Context, targets: np.ndarray) -> ViewData:
        return make_data(context.X, signs_of(targets, len(context.targets.names)), self.C)

    def _limits(self) -> dict[str, Any]:
        return {"max_iter": self.max_iter}

    def _count_draws(self, context: Context, data: ViewData) -> int:
        return count_draws(context.X.shape[1], data.margins.y.shape[1])

    def _align(self, draws: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
        """Draws with rotated components, and precisions of the loadings given these.

        Those of the sampler are not defined after a rotation.
        """
        aligned = super()._align(draws, rng)
        priors = self._option("priors")
        W = aligned["loadings"].values
        rate = priors.loading_rate + 0.5 * np.sum(W**2, axis=2)
        precision = rng.gamma(priors.loading_shape + 0.5 * W.shape[2], 1.0 / rate)
        return aligned.assign(loading_precision=((*SAMPLE_DIMS, COMPONENT), precision))

    def _more(
        self,
        draws: xr.Dataset,
        factors: BM2PCADraws,
        context: Context,
        data: ViewData,
        result: Result[Any],
    ) -> tuple[xr.Dataset, dict[str, Any]]:
        """Offsets of latent coordinates, which are free in PyMC if there are several scores."""
        if "latent" in draws and draws["bias"].shape[-1] > 1:
            offset = latent_offset({name: draws[name].values for name in OF_OFFSET}, context.X)
            draws = draws.assign(latent_offset=(draws["latent"].dims, offset))
        return draws, {"attrs": {"C": float(self.C)}}
