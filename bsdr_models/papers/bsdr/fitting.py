"""Fits of the paper's model as trees, and predictions from their draws."""

from dataclasses import KW_ONLY, asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import xarray as xr

from bsdr_models.bsdr.spec import SPEC
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.options import TOLERANCE, Options, Sampling, StrOptions, check_parameters
from bsdr_models.papers.alignment import permute, signed_permutations
from bsdr_models.papers.bsdr import gibbs, mean_field
from bsdr_models.papers.bsdr.draws import BSDRDraws, ProjectionFactor
from bsdr_models.papers.bsdr.mean_field import Data, State, without_shared_axis
from bsdr_models.papers.bsdr.priors import (
    PROJECTION_PRECISION_DIMS,
    Optimization,
    Priors,
    ProjectionPrior,
)
from bsdr_models.papers.fitting import SampledFit, fit_tree
from bsdr_models.papers.training import describe, read_new, read_setting

if TYPE_CHECKING:
    import pymc as pm

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
    """Posterior of the paper's model as a tree.

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
        With ``posterior``, whose components are aligned, ``fit``, ``observed_data`` and
        ``constant_data``, of samplers also ``sample_stats`` and, of labels, ``log_likelihood``.

    See Also
    --------
    predict : predictions from the tree.
    bsdr_models.papers.PaperBSDRClassifier : the same fit as an estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bsdr
    >>> X, y = load_wine(return_X_y=True)
    >>> tree = bsdr.fit(scale(X), y, random_state=0)
    >>> tree["posterior/projection"].dims
    ('chain', 'draw', 'feature', 'component')
    """
    check_parameters({"target": [StrOptions(("classes", "regression"))]}, locals(), "fit")
    return fit_tree(BSDRFit(**arguments), X, y, regression=target == "regression")


def predict(tree: xr.DataTree, X: SamplesLike, *, latent_scale: float | None = None) -> FloatArray:
    """Class probabilities of new samples, means over draws as in Appendix B of the paper.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or :func:`bsdr_models.from_trace`, or any draws of ``projection``, ``weights``
        and ``bias``, such as ``pm.sample`` returns.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.
    latent_scale : float, optional
        Standard deviation of latent coordinates around the projection. By default that of the tree,
        which the PyMC model tells its traces, or else 1 as in the paper.

    Returns
    -------
    ndarray of shape (M, K)
        Probabilities of the classes, or that each label is one; means of real outputs.

    See Also
    --------
    fit : the fit.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bsdr
    >>> X, y = load_wine(return_X_y=True)
    >>> tree = bsdr.fit(scale(X), y, random_state=0)
    >>> bsdr.predict(tree, scale(X)).shape
    (178, 3)
    """
    check_parameters({"latent_scale": [TOLERANCE, None]}, locals(), "predict")
    draws = BSDRDraws.of(tree, latent_scale)
    if "group_effect" in tree["posterior"]:
        raise ValueError("the model has group effects: predict_groups(tree, X, groups) knows them")
    array = read_new(tree, X)
    if draws.target == "regression":
        return draws.outputs(array)
    p = np.exp(draws.log_probabilities(array))
    lapse = read_setting(tree, "lapse", 0.0)  # of the recommended model
    return (1.0 - lapse) * p + lapse / (p.shape[1] if draws.target == "multiclass" else 2)


@dataclass(eq=False, repr=False)
class BSDRFit(SampledFit):
    """Arguments of a fit of BSDR, and how it runs."""

    _: KW_ONLY
    priors: Priors | None = None
    optimization: Optimization | None = None

    _spec = SPEC
    _mean_field: ClassVar[ModuleType] = mean_field
    _gibbs: ClassVar[ModuleType] = gibbs
    _unrecorded = frozenset({"utilities", "latent_offset", *SPEC.identified})
    _alignment = "signed permutation"
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
        n_draws = int(np.clip(MOST_NUMBERS // (n_features * max(r, data.n_labels)), 20, N_DRAWS))
        latent = n * r * n_draws <= datatree.MAX_NUMBERS
        options = {"n_draws": n_draws, "latent": latent, "rng": rng}
        return mean_field.draw(state, data, self._option("priors"), **options)

    def _align(
        self, draws: dict[str, FloatArray], rng: np.random.Generator
    ) -> dict[str, FloatArray]:
        return align_components(draws, self._option("priors").projection_prior)

    def _describe(
        self, context: Context, targets: np.ndarray, result: Result[Any], data: Data
    ) -> tuple[BSDRDraws, xr.DataTree]:
        """What predicts, and the tree.

        The offsets of latent coordinates are free variables in PyMC. The log likelihood of labels
        is log p(y_n | x_n, draw), latent coordinates and utilities integrated out, since
        importance-sampling cross-validation must not use the likelihood given latent coordinates.
        """
        priors = self._option("priors")
        sampled = result.sampled
        assert sampled is not None
        draws = dict(sampled.draws)
        group = dict[str, Any](sampled.fit)
        state: State | None = result.posterior
        factor = None
        if state is not None:
            phi = state.projection_precision.mean
            mean = data.design.loadings(state.projection.mean)
            factor = ProjectionFactor(mean=mean, precision=phi, X=context.X)
            shared = without_shared_axis(phi[None], priors.projection_prior)[0]
            group |= {"restarts": np.array(result.restarts), "projection_precision_mean": shared}
        posterior = BSDRDraws.stack(
            draws,
            target=context.target,
            latent_scale=float(priors.latent_scale),
            factor=factor,
        )
        latent = posterior.embed(context.X)
        weights = draws["weights"].mean(axis=(0, 1))
        described, of_reference = describe(context, latent.mean, posterior.mean_projection, weights)
        group |= {
            **described,
            "projection_sd": draws["projection"].std(axis=(0, 1)),
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
        }
        draws["coef"] = context.contrast(draws["projection"] @ draws["weights"])
        if "latent" in draws:
            offset = draws["latent"] - context.X @ draws["projection"]
            draws["latent_offset"] = offset / posterior.latent_scale
        if context.target == "multiclass":
            draws["bias_centered"] = context.contrast(draws["bias"])
        groups: dict[str, dict[str, Any]] = {"posterior": draws, "fit": group}
        if sampled.sample_stats:
            groups["sample_stats"] = dict(sampled.sample_stats)
            if "log_prior" in sampled.sample_stats:
                groups["log_prior"] = {"parameters": groups["sample_stats"].pop("log_prior")}
        small = len(posterior.bias) * len(context.X) <= datatree.MAX_NUMBERS
        exact = self.inference not in datatree.APPROXIMATIONS
        if small and exact and context.target != "regression":
            values = posterior.log_likelihood(context.X, targets)  # (S, N)
            groups["log_likelihood"] = {"y": values.reshape(*draws["bias"].shape[:2], -1)}
        names = ("projection_precision", "projection_precision_mean")
        tree = context.fit_tree(
            groups,
            SPEC,
            inference_method=self.inference,
            n_components=self.n_components,
            dims=dict.fromkeys(names, PROJECTION_PRECISION_DIMS[priors.projection_prior])
            | {"parameters": ()},
            coords={dims.TERM: list(result.terms)},
            attrs={
                "projection_prior": priors.projection_prior,
                "latent_scale": posterior.latent_scale,
                "interrupted": int(result.interrupted),
                **of_reference,
                **sampled.attrs,
            },
        )
        return posterior.thinned(), tree


def align_components(
    draws: dict[str, FloatArray], projection_prior: ProjectionPrior
) -> dict[str, FloatArray]:
    """Align the components of all draws by signed permutations, which leave Q W unchanged."""
    chains, n_draws, _, r = draws["projection"].shape
    stacked = np.concatenate([draws["projection"], draws["weights"].mT], axis=2)
    order, sign = signed_permutations(stacked.reshape(chains * n_draws, -1, r))
    precision = {"projection_precision": PROJECTION_PRECISION_DIMS[projection_prior]}
    out = dict(draws)
    for name, values in draws.items():
        axes = (dims.CHAIN, dims.DRAW, *precision.get(name, SPEC.variables[name]))
        if dims.COMPONENT not in axes:
            continue
        last = np.moveaxis(values, axes.index(dims.COMPONENT), -1)
        signs = np.ones_like(sign) if name.endswith("precision") else sign
        moved = permute(last.reshape(chains * n_draws, *last.shape[2:]), order, signs)
        out[name] = np.moveaxis(moved.reshape(last.shape), -1, axes.index(dims.COMPONENT))
    return out
