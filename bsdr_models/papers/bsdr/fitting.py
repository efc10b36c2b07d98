"""Fits of the paper's model as trees, and predictions from their draws."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import xarray as xr

from bsdr_models.bsdr.trees import SPEC
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.options import TOLERANCE, Options, Sampling, StrOptions, check_parameters
from bsdr_models.papers.bsdr import gibbs, mean_field
from bsdr_models.papers.bsdr.draws import N_DRAWS, NAMES, BSDRDraws, ProjectionFactor
from bsdr_models.papers.bsdr.mean_field import Data, State, without_shared_axis
from bsdr_models.papers.bsdr.priors import (
    PROJECTION_PRECISION_DIMS,
    Optimization,
    Priors,
    ProjectionPrior,
)
from bsdr_models.papers.fitting import FIT, PREDICT, SampledClassifier, fit_tree, with_sections
from bsdr_models.papers.training import read_new, read_setting, refuse_calibrated
from bsdr_models.papers.trees import Located, name_dims, stack_draws, values_of

if TYPE_CHECKING:
    import pymc as pm

# Draws of a mean-field fit, and numbers that those of one variable have at most.
MEAN_FIELD_DRAWS = 500
MOST_NUMBERS = 1_000_000


@with_sections(
    FIT,
    folder="bsdr",
    estimator="PaperBSDRClassifier",
    targets="Classes; zeros and ones of label sets; or real outputs.",
    posterior="whose components are aligned",
    more="""target : {"classes", "regression"}, default="classes"
    What y holds: classes or label sets, or the real outputs of Section II-D.
""",
)
def fit(
    X: SamplesLike,
    y: TargetLike,
    *,
    target: Literal["classes", "regression"] = "classes",
    **arguments: Any,
) -> xr.DataTree:
    """Posterior of the paper's model as a tree."""
    check_parameters({"target": [StrOptions(("classes", "regression"))]}, locals(), "fit")
    return fit_tree(PaperBSDRClassifier, X, y, regression=target == "regression", **arguments)


@with_sections(
    PREDICT,
    folder="bsdr",
    draws=""", or any draws of ``projection``, ``weights``
    and ``bias``, such as ``pm.sample`` returns""",
    more="""latent_scale : float, optional
    Standard deviation of latent coordinates around the projection. By default that of the tree,
    which the PyMC model tells its traces, or else 1 as in the paper.
""",
)
def predict(tree: xr.DataTree, X: SamplesLike, *, latent_scale: float | None = None) -> FloatArray:
    """Class probabilities of new samples, means over draws as in Appendix B of the paper."""
    check_parameters({"latent_scale": [TOLERANCE, None]}, locals(), "predict")
    draws = BSDRDraws.of(tree, latent_scale)
    if "group_effect" in tree["posterior"]:
        raise ValueError("the model has group effects: predict_groups(tree, X, groups) knows them")
    array = read_new(tree, X)
    refuse_calibrated(tree)
    if draws.target == "regression":
        return draws.outputs(array)
    p = np.exp(draws.log_probabilities(array))
    lapse = read_setting(tree, "lapse", 0.0)  # of the recommended model
    return (1.0 - lapse) * p + lapse / (p.shape[1] if draws.target == "multiclass" else 2)


@dataclass(eq=False, repr=False)
class PaperBSDRClassifier(SampledClassifier):
    """Bayesian supervised dimensionality reduction as printed [1]_, for classification.

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
    bsdr_models.papers.bsdr.build_model : the model in PyMC.

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

    _: KW_ONLY
    priors: Priors | None = None
    optimization: Optimization | None = None

    _spec = SPEC
    _mean_field: ClassVar[ModuleType] = mean_field
    _gibbs: ClassVar[ModuleType] = gibbs
    _unrecorded = frozenset({"utilities", "latent_offset", *SPEC.identified})
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": Priors,
        "sampling": Sampling,
        "optimization": Optimization,
    }

    def _declare(self, context: Context) -> "pm.Model":
        from bsdr_models.papers.bsdr.model import build_model

        return build_model(
            context.X,
            context.y,
            n_components=self.n_components,
            priors=self._option("priors"),
            target=context.target,
        )

    def _make_data(self, context: Context, targets: np.ndarray) -> Data:
        if self.n_components > (n := context.X.shape[1]):
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )
        # Draws of a sampler are over the features.
        prior: ProjectionPrior = "entrywise"
        if self.inference == "mean_field":
            prior = self._option("priors").projection_prior
        return mean_field.make_data(
            context.X,
            targets,
            n_labels=len(context.labels),
            target=context.target,
            projection_prior=prior,
        )

    def _limits(self) -> dict[str, Any]:
        return asdict(self._option("optimization"))

    def _draw(self, state: State, data: Data, rng: np.random.Generator) -> dict[str, FloatArray]:
        n, r = state.latent.mean.shape
        n_features = data.design.samples.shape[1]
        n_draws = int(
            np.clip(MOST_NUMBERS // (n_features * max(r, data.n_labels)), 20, MEAN_FIELD_DRAWS)
        )
        latent = n * r * n_draws <= datatree.MAX_NUMBERS
        options = {"n_draws": n_draws, "latent": latent, "rng": rng}
        return mean_field.draw(state, data, self._option("priors"), **options)

    def _dims(self) -> Mapping[str, tuple[str, ...]]:
        shared = PROJECTION_PRECISION_DIMS[self._option("priors").projection_prior]
        names = ("projection_precision", "projection_precision_mean")
        return {**SPEC.variables, **dict.fromkeys(names, shared)}

    def _describe(
        self, draws: xr.Dataset, context: Context, data: Data, result: Result[Any]
    ) -> tuple[BSDRDraws, Located]:
        """What predicts, and the tree.

        The offsets of latent coordinates are free variables in PyMC. The log likelihood of labels
        is log p(y_n | x_n, draw), latent coordinates and utilities integrated out, since
        importance-sampling cross-validation must not use the likelihood given latent coordinates.
        """
        priors = self._option("priors")
        scale = float(priors.latent_scale)
        state: State | None = result.posterior
        factor = None
        fit: dict[str, object] = {"projection_sd": draws["projection"].values.std(axis=(0, 1))}
        if state is not None:
            phi = state.projection_precision.mean
            mean = data.design.loadings(state.projection.mean)
            factor = ProjectionFactor(mean=mean, precision=phi, X=context.X)
            shared = without_shared_axis(phi[None], priors.projection_prior)[0]
            fit |= {"restarts": np.array(result.restarts), "projection_precision_mean": shared}
        arrays = values_of(draws)
        posterior = BSDRDraws(
            **stack_draws(arrays, NAMES),
            target=context.target,
            latent_scale=scale,
            factor=factor,
        )
        more = {}
        if "latent" in draws:
            offset = draws["latent"].values - context.X @ draws["projection"].values
            more["latent_offset"] = (draws["latent"].dims, offset / scale)
        groups = {}
        small = len(posterior.bias) * len(context.X) <= datatree.MAX_NUMBERS
        exact = self.inference not in datatree.APPROXIMATIONS
        if small and exact and context.target != "regression":
            values = posterior.log_likelihood(context.X, data.y)  # (S, N)
            values = values.reshape(*draws["bias"].shape[:2], -1)
            groups["log_likelihood"] = name_dims({"y": values}, {"y": (dims.OBS,)})
        located = Located.linear(
            context,
            posterior.embed(context.X),
            posterior.mean_projection,
            posterior.weights.mean(axis=0),
            fit=fit,
            attrs={"projection_prior": priors.projection_prior, "latent_scale": scale},
            draws=more,
            groups=groups,
        )
        thinned: dict[str, Any] = stack_draws(arrays, NAMES, N_DRAWS)
        return replace(posterior, **thinned), located
