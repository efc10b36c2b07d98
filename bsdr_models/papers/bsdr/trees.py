"""Fits of the paper's model as ``xarray.DataTree``, in one format for all inference methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from bsdr_models.alignment import permute, signed_permutations
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.spec import PROJECTION_PRECISION_DIMS, SPEC
from bsdr_models.bsdr.trees import Context, Groups
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import InferenceMethod
from bsdr_models.inference.result import Result
from bsdr_models.inference.trees import read
from bsdr_models.numerics.arrays import FloatArray, ProjectionPrior, Target
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import LatentCoordinates, feature_relevance, relevance
from bsdr_models.papers.bsdr.mean_field import Data, make_data, without_shared_axis
from bsdr_models.papers.bsdr.posterior import DrawPosterior, MeanFieldPosterior, PaperPosterior

# Noise of real targets in draws of other models, and its power that is the precision.
NOISE = {"noise_precision": 1.0, "noise_scale": -2.0}
# Draws of a mean-field fit.
N_DRAWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperContext(Context):
    """Data and settings of a fit of the paper's model."""

    priors: Priors | None  # None for draws of a model of the user
    latent_scale: float  # standard deviation of the latent coordinates given the features

    @property
    def projection_prior(self) -> ProjectionPrior:
        """Which entries of the projection share a precision."""
        return "entrywise" if self.priors is None else self.priors.projection_prior

    def data(self, projection_prior: ProjectionPrior) -> Data:
        """Samples and targets with the design that suits a prior."""
        return make_data(
            self.X,
            self.targets,
            n_labels=len(self.labels),
            target=self.target,
            projection_prior=projection_prior,
        )

    def posterior(
        self, draws: Mapping[str, FloatArray] | xr.Dataset, most: int | None = None
    ) -> DrawPosterior:
        """Posterior of draws (chain, draw, ...) of this fit, or of evenly spaced ones of them."""
        stacked: dict[str, FloatArray] = {}
        for name in ("projection", "weights", "bias", "noise_precision"):
            if name in draws:
                values = np.ascontiguousarray(draws[name])  # as in a saved model
                values = values.reshape(-1, *values.shape[2:])
                stacked[name] = values if most is None else values[evenly_spaced(len(values), most)]
        return DrawPosterior.of(**stacked, latent_scale=self.latent_scale, target=self.target)


def mean_field_tree(
    result: Result[PaperPosterior],
    context: PaperContext,
    *,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Tree of a mean-field fit: draws from q, and the variational parameters in ``fit``."""
    posterior = result.posterior
    assert isinstance(posterior, MeanFieldPosterior)
    state = posterior.state
    design = posterior.data.design
    phi = state.projection_precision
    tau = state.noise_precision
    n, r = state.latent.mean.shape
    p = context.X.shape[1]
    k = state.weights.mean.shape[1]
    n_draws = int(np.clip(datatree.MAX_NUMBERS // (p * max(r, k)), 20, N_DRAWS))
    projection = posterior.components().T + draw_deviations(
        DenseDesign(context.X), phi.mean, context.latent_scale, (n_draws, r), rng
    )

    def gammas(q: Gamma) -> FloatArray:
        return rng.gamma(q.shape, size=(n_draws, *q.shape.shape)) / q.rate

    phi_draws = gammas(phi)
    psi_draws = gammas(state.weight_precision)
    draws = {
        "projection": projection,
        "weights": posterior.weights[:n_draws],
        "bias": posterior.bias[:n_draws],
        "projection_precision": without_shared_axis(phi_draws, context.projection_prior),
        "weight_precision": psi_draws[:, 1:],
        "bias_precision": psi_draws[:, 0],
    }
    if tau is not None:
        draws["noise_precision"] = gammas(tau)
    if n * r * n_draws <= datatree.MAX_NUMBERS:
        half = cholesky(state.latent.cov, name="latent covariance")
        draws["latent"] = state.latent.mean + rng.standard_normal((n_draws, n, r)) @ half.T
    fit = {
        "elbo": result.trace,
        "elbo_terms": np.column_stack(list(result.terms.values())),
        "restarts": np.array(result.restarts),
    }
    if context.projection_prior != "entrywise" or design.X.shape[1] == p:
        fit["projection_precision_mean"] = without_shared_axis(
            phi.mean[None], context.projection_prior
        )[0]
    return _build_tree(
        {name: values[None] for name, values in draws.items()},
        context,
        latent=LatentCoordinates(
            mean=state.latent.mean, cov=np.broadcast_to(state.latent.cov, (n, r, r))
        ),
        loadings=posterior.components().T,
        # A variance of zero may be a negative rounding error.
        spread=np.sqrt(
            np.maximum(design.loading_variance(state.projection.variance, phi.mean), 0.0)
        ),
        weights=state.weights.mean[1:],
        fit=fit,
        inference_method="mean_field",
        attrs={"converged": int(result.converged), "interrupted": int(result.interrupted)},
        coords={"term": list(result.terms)},
    )


def draw_deviations(
    design: DenseDesign,
    precision: FloatArray,
    latent_scale: float,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> FloatArray:
    """S draws of deviations of Q from its mean under q, (S, D, R) with ``shape`` (S, R)."""
    zero = np.zeros((1, len(design.X), shape[0]))
    scale = np.array([latent_scale**-2.0])
    phi = np.broadcast_to(precision, (precision.shape[0], shape[1]))
    noise = [design.draw(zero, column[None], scale, rng=rng)[0] for column in phi.T]  # (D, S) each
    return np.stack(noise, axis=2).swapaxes(0, 1)


def _build_tree(
    draws: dict[str, FloatArray],
    context: PaperContext,
    *,
    latent: LatentCoordinates,
    loadings: FloatArray,
    spread: FloatArray,
    weights: FloatArray,
    fit: Mapping[str, FloatArray],
    attrs: Mapping[str, object],
    inference_method: InferenceMethod,
    sample_stats: Mapping[str, FloatArray] | None = None,
    coords: Mapping[str, Sequence[object]] | None = None,
) -> xr.DataTree:
    """Tree of draws (chain, draw, ...) and of the means and spread of a fit.

    ``loadings`` and ``spread`` (P, R) are of the projection, ``weights`` (R, K) means. Of a model
    of ours there are also the offsets of the latent coordinates, free variables in PyMC. The log
    likelihood is log p(y_n | x_n, draw), latent coordinates and utilities integrated out, since
    importance-sampling cross-validation must not use the likelihood given latent coordinates.
    """
    posterior = {**draws, "coef": context.contrast(draws["projection"] @ draws["weights"])}
    if context.priors is not None and "latent" in draws:
        offset = draws["latent"] - context.X @ draws["projection"]
        posterior["latent_offset"] = offset / context.latent_scale
    if context.target == "multiclass":
        posterior["bias_centered"] = context.contrast(draws["bias"])
    contrast = context.contrast(weights)
    reference = Reference.learn(context.X, loadings)
    outliers = {} if reference is None else reference.compare_training(context.X)
    group = {
        "latent_mean": latent.mean,
        "latent_cov": latent.cov,
        "projection_mean": loadings,
        "projection_sd": spread,
        "relevance": relevance(latent.mean, contrast),
        "feature_relevance": feature_relevance(loadings, contrast),
    }
    groups: Groups = {"posterior": {**posterior}, "fit": {**group, **outliers, **fit}}
    chains, n_draws = draws["bias"].shape[:2]
    exact = inference_method not in datatree.APPROXIMATIONS
    if exact and chains * n_draws * len(context.X) <= datatree.MAX_NUMBERS:
        values = context.posterior(draws).log_likelihood(context.X, context.targets)  # (S, N)
        groups["log_likelihood"] = {"y": (values - context.log_scale).reshape(chains, n_draws, -1)}
    if sample_stats:
        groups["sample_stats"] = dict(sample_stats)
    prior = context.projection_prior
    names = ("projection_precision", "projection_precision_mean")
    return context.fit_tree(
        groups,
        SPEC,
        inference_method=inference_method,
        n_components=loadings.shape[1],
        dims=dict.fromkeys(names, PROJECTION_PRECISION_DIMS[prior]),
        attrs={
            "projection_prior": prior,
            "latent_scale": context.latent_scale,
            **({} if reference is None else reference.attrs()),
            **attrs,
        },
        coords=coords,
    )


def read_draws(
    tree: xr.DataTree, target: Target, names: Mapping[str, Sequence[object]]
) -> tuple[xr.Dataset, dict[str, FloatArray]]:
    """Group ``posterior`` in the order of the names of features and outcomes, and draws in it.

    These are of projection, weights and bias, (chain, draw, ...), and, for real targets, of the
    precision of the noise. Coordinates are compared as text; numbers from 0 are positions.
    """
    needed = ["projection", "weights", "bias"]
    posterior = read(tree, "posterior", *needed)
    if target == "regression":
        given = [name for name in NOISE if name in posterior.data_vars]
        if len(given) != 1:
            raise ValueError(
                f"group 'posterior' needs exactly one of {' and '.join(NOISE)}, it has "
                f"{'both' if given else 'neither'}"
            )
        needed += given
    for name in needed:
        axes = (dims.CHAIN, dims.DRAW, *SPEC.variables[name])
        if set(posterior[name].dims) != set(axes):
            raise ValueError(
                f"posterior/{name} has the dims {posterior[name].dims}, expected {axes}: name them "
                "in the model, or rename them in the tree"
            )
        posterior[name] = posterior[name].transpose(*axes)
    for axis, wanted in names.items():
        found = posterior[axis].to_numpy().tolist()  # 0, 1, ... without coordinates
        if found == list(range(len(wanted))):
            continue
        if sorted(map(str, found)) != sorted(map(str, wanted)):
            raise ValueError(
                f"the draws have the {axis}s {found}, expected {wanted} in any order: give X and "
                "y with these names, or rename the coordinates"
            )
        order = [str(each) for each in found]
        posterior = posterior.isel({axis: [order.index(str(each)) for each in wanted]})
    draws = {}
    for name in needed:
        array = posterior[name]
        if not array.size:
            raise ValueError(f"posterior/{name} has no draws: {dict(array.sizes)}")
        if array.dtype.kind not in "iuf":
            raise ValueError(f"posterior/{name} must hold real numbers, got {array.dtype}")
        values = np.asarray(array.values, dtype=np.float64)
        bad = "finite" if not np.isfinite(values).all() else ""
        if name in NOISE and not bad and values.min() <= 0.0:
            bad = "positive"
        if bad:
            raise ValueError(f"posterior/{name} holds values that are not {bad}")
        draws["noise_precision" if name in NOISE else name] = values ** NOISE.get(name, 1.0)
    return posterior, draws


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


def draws_tree(
    draws: dict[str, FloatArray],
    context: PaperContext,
    *,
    inference_method: InferenceMethod,
    sample_stats: Mapping[str, FloatArray] | None = None,
    fit: Mapping[str, FloatArray] | None = None,
    attrs: Mapping[str, object] | None = None,
) -> xr.DataTree:
    """Tree of draws (chain, draw, ...) by name, components aligned.

    Without draws of latent coordinates these are computed from projection and latent scale.
    """
    draws = align_components(draws, context.projection_prior)
    fit = dict(fit or {})
    if "latent" in draws:
        z = draws["latent"].reshape(-1, *draws["latent"].shape[2:])
        centred = z - z.mean(axis=0)
        cov = np.einsum("snr,snq->nrq", centred, centred, optimize=True) / len(z)
        latent = LatentCoordinates(mean=z.mean(axis=0), cov=cov)
        if draws["latent"].size > datatree.MAX_NUMBERS:
            del draws["latent"]
    else:
        latent = context.posterior(draws).embed(context.X)
    if "projection_precision" in draws:
        fit["projection_precision_mean"] = draws["projection_precision"].mean(axis=(0, 1))
    return _build_tree(
        draws,
        context,
        latent=latent,
        loadings=draws["projection"].mean(axis=(0, 1)),
        spread=draws["projection"].std(axis=(0, 1)),
        weights=draws["weights"].mean(axis=(0, 1)),
        fit=fit,
        attrs={"alignment": "signed permutation", **(attrs or {})},
        sample_stats=sample_stats,
        inference_method=inference_method,
    )


def user_tree(
    tree: xr.DataTree,
    posterior: xr.Dataset,
    draws: dict[str, FloatArray],
    context: PaperContext,
) -> xr.DataTree:
    """Tree of what `read_draws` has read, with the other contents of the tree of the user."""
    built = draws_tree(draws, context, inference_method="nuts")
    for name in tree.children.keys() - built.children.keys():
        built[name] = tree[name].copy()
    here = built["posterior"].to_dataset()
    more = posterior.drop_vars(here.data_vars, errors="ignore")
    built["posterior"] = xr.DataTree(here.merge(more, compat="override", join="override"))
    return built
