"""Fits of the paper's model, as trees and by an estimator."""

from dataclasses import KW_ONLY, asdict, dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
import xarray as xr

from bsdr_models.bsdr.trees import SPEC
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import OBS
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import SamplesLike, TargetLike
from bsdr_models.options import Options, Sampling, StrOptions, check_parameters
from bsdr_models.papers import bsdr
from bsdr_models.papers.bsdr.draws import BSDRDraws, ProjectionFactor
from bsdr_models.papers.bsdr.mean_field import Data, State, make_data, without_shared_axis
from bsdr_models.papers.bsdr.priors import (
    PROJECTION_PRECISION_DIMS,
    Optimization,
    Priors,
    ProjectionPrior,
)
from bsdr_models.papers.fitting import SampledClassifier, fit_tree
from bsdr_models.papers.trees import name_dims

# Draws of a mean-field fit, and numbers that those of one variable have at most.
N_DRAWS = 500
MOST_NUMBERS = 1_000_000


def fit(
    X: SamplesLike,
    y: TargetLike,
    *,
    target: Literal["classes", "regression"] = "classes",
    **arguments: Any,
) -> xr.DataTree:
    """Posterior of the paper's model as a tree, whose components are aligned.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Samples as the model sees them: scale features before.
    y : array-like of shape (N,), or (N, K)
        Classes; zeros and ones of label sets; or real outputs.
    target : {"classes", "regression"}, default="classes"
        What y holds: classes or label sets, or the real outputs of Section II-D.
    **arguments
        Those of :class:`bsdr_models.papers.PaperBSDRClassifier`, but for ``standardize``.

    Returns
    -------
    xarray.DataTree
        With ``posterior``, ``fit``, ``observed_data`` and ``constant_data``; of samplers also
        ``sample_stats`` and, if the model has one, ``log_likelihood``.

    Raises
    ------
    ValueError
        If samples or targets are not finite, their shapes disagree, or an argument is out of range.

    See Also
    --------
    bsdr_models.papers.bsdr.predict : predictions from the tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = papers.bsdr.fit(scale(X), y, n_components=2, random_state=0)
    >>> tree["posterior/latent"].sizes["component"]
    2
    """
    check_parameters({"target": [StrOptions({"classes", "regression"})]}, locals(), "fit")
    return fit_tree(PaperBSDRClassifier, X, y, regression=target == "regression", **arguments)


@dataclass(eq=False, repr=False)
class PaperBSDRClassifier(SampledClassifier):
    """Bayesian supervised dimensionality reduction as printed (Gönen, 2013), for classification.

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
    priors: Priors | None = None
    optimization: Optimization | None = None

    _spec = SPEC
    _folder: ClassVar[ModuleType] = bsdr
    _of_model = ("priors",)
    _unrecorded = frozenset({"utilities", "latent_offset", *SPEC.identified})
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": Priors,
        "sampling": Sampling,
        "optimization": Optimization,
    }

    def _make_data(self, context: Context, targets: np.ndarray) -> Data:
        if self.n_components > (n := context.X.shape[1]):
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )
        # Draws of a sampler are over the features.
        prior: ProjectionPrior = "entrywise"
        if self.inference == "mean_field":
            prior = self._option("priors").projection_prior
        return make_data(
            context.X,
            targets,
            n_labels=len(context.targets.names),
            target=context.targets.kind,
            projection_prior=prior,
        )

    def _limits(self) -> dict[str, Any]:
        return asdict(self._option("optimization"))

    def _count_draws(self, context: Context, data: Data) -> int:
        numbers = context.X.shape[1] * max(self.n_components, data.n_labels)
        return int(np.clip(MOST_NUMBERS // numbers, 20, N_DRAWS))

    def _dims(self) -> dict[str, tuple[str, ...]]:
        shared = PROJECTION_PRECISION_DIMS[self._option("priors").projection_prior]
        return {**SPEC.variables, "projection_precision": shared}

    def _factors(
        self, draws: xr.Dataset, context: Context, data: Data, state: State | None
    ) -> BSDRDraws:
        factors: BSDRDraws = super()._factors(draws, context, data, state)
        if state is None:
            return factors
        factor = ProjectionFactor(
            mean=data.design.loadings(state.projection.mean),
            precision=state.projection_precision.mean,
            X=context.X,
        )
        return replace(factors, factor=factor)

    def _more(
        self,
        draws: xr.Dataset,
        factors: BSDRDraws,
        context: Context,
        data: Data,
        result: Result[Any],
    ) -> tuple[xr.Dataset, dict[str, Any]]:
        """Offsets of latent coordinates, which are free in PyMC, and log likelihoods of labels.

        These are log p(y_n | x_n, draw), latent coordinates and utilities integrated out, since
        importance-sampling cross-validation must not use the likelihood given latent coordinates.
        """
        prior = self._option("priors").projection_prior
        fit: dict[str, object] = {}
        if factors.factor is not None:
            precision = without_shared_axis(factors.factor.precision[None], prior)[0]
            dims = PROJECTION_PRECISION_DIMS[prior]
            fit["projection_precision_mean"] = xr.DataArray(precision, dims=dims)
            fit["restarts"] = np.array(result.restarts)
        if "latent" in draws:
            offset = draws["latent"].values - context.X @ draws["projection"].values
            scaled = offset / factors.latent_scale
            draws = draws.assign(latent_offset=(draws["latent"].dims, scaled))
        groups = {}
        small = len(factors.bias) * len(context.X) <= datatree.MAX_NUMBERS
        exact = self.inference not in datatree.APPROXIMATIONS
        if small and exact and context.targets.kind != "regression":
            values = factors.log_likelihood(context.X, data.y)  # (S, N)
            values = values.reshape(*draws["bias"].shape[:2], -1)
            groups["log_likelihood"] = name_dims({"y": values}, {"y": (OBS,)})
        attrs = {"projection_prior": prior, "latent_scale": factors.latent_scale}
        return draws, {"fit": fit, "attrs": attrs, "groups": groups}
