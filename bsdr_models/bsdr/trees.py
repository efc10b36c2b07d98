"""Fits of BSDR as ``xarray.DataTree``, in one format for all inference methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models import dims
from bsdr_models.arrays import FloatArray, IntArray, ProjectionPrior, Target
from bsdr_models.bsdr import log_density, predict
from bsdr_models.bsdr.hierarchical import HierarchicalFit, pointwise_log_likelihood
from bsdr_models.bsdr.mean_field import State
from bsdr_models.bsdr.predict import DrawPosterior, MeanFieldPosterior
from bsdr_models.bsdr.priors import HierarchicalPriors, Priors, Variant
from bsdr_models.bsdr.spec import PROJECTION_PRECISION_DIMS, SPEC
from bsdr_models.bsdr.views import Views
from bsdr_models.inference import datatree
from bsdr_models.inference.coordinate_ascent import FitResult
from bsdr_models.inference.datatree import InferenceMethod
from bsdr_models.numerics import align
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.outliers import Reference
from bsdr_models.numerics.relevance import LatentCoordinates, feature_relevance, relevance

# Noise of real targets, in the paper's model and in the hierarchical one.
NOISE = ("noise_precision", "noise_scale")
# Draws of a mean-field fit.
N_DRAWS = 500
# Random perturbation of log likelihoods of labels, in nats. They are equal for all draws that are
# certain of a sample, and Pareto smoothing fails on ties.
TIE = 1e-9

LIKELIHOOD_NOTE = (
    "Of each sample given the parameters, latent coordinates and utilities integrated out, as "
    "needed by leave-one-out cross-validation. Pareto k is large or NaN for samples of which all "
    "draws are certain; their elpd_i is negligible."
)
APPROXIMATE_NOTE = (
    " The draws are from an approximation of the posterior, which arviz.loo would take for the "
    "posterior: the group is therefore not called log_likelihood."
)
MEAN_FIELD_NOTE = (
    " Give arviz.loo_approximate_posterior the tree with this group as log_likelihood, and log_p "
    "and log_q of the group sample_stats."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(datatree.Context):
    """Data and settings of a fit of BSDR.

    targets
        As in :class:`bsdr_models.bsdr.data.Data`.
    variant, projection_prior
        The model; the projection prior is of the paper's model.
    views
        Names and features of views.
    """

    targets: np.ndarray
    variant: Variant = "paper"
    views: list[tuple[str, IntArray]] | None = None
    projection_prior: ProjectionPrior = "entrywise"

    @property
    def log_scale(self) -> float:
        """Sum over real outputs of the log of their scale, which log densities of y contain."""
        return float(np.sum(np.log(self.attrs.get("y_scale", 1.0))))

    @property
    def priors(self) -> Any:
        """Hyper-parameters of the variant, if the fit has stored them."""
        kind = HierarchicalPriors if self.variant == "hierarchical" else Priors
        return kind(**self.config["priors"]) if "priors" in self.config else None

    def build(
        self,
        groups: dict[str, dict[str, Any]],
        *,
        inference_method: InferenceMethod,
        n_components: int,
        latent_scale: float = 0.0,
        attrs: Mapping[str, Any] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
    ) -> xr.DataTree:
        """Tree of a fit, with the model in its attributes."""
        precision_dims = PROJECTION_PRECISION_DIMS[self.projection_prior]
        model: dict[str, Any] = {"variant": self.variant}
        if self.variant == "paper":
            model |= {
                "projection_prior": self.projection_prior,
                "latent_scale": float(latent_scale),
            }
        likelihood = "log_likelihood"
        if inference_method in datatree.APPROXIMATIONS and likelihood in groups:
            likelihood = "approximate_log_likelihood"
            groups = {
                likelihood if name == "log_likelihood" else name: groups[name] for name in groups
            }
        tree = self.fit_tree(
            groups,
            SPEC,
            inference_method=inference_method,
            n_components=n_components,
            coords=coords,
            dims={
                "projection_precision": precision_dims,
                "projection_precision_mean": precision_dims,
                "parameters": (),
            },
            attrs={**model, **(attrs or {})},
        )
        if likelihood in groups:
            note = LIKELIHOOD_NOTE
            note += APPROXIMATE_NOTE if likelihood != "log_likelihood" else ""
            note += MEAN_FIELD_NOTE if "log_q" in groups.get("sample_stats", {}) else ""
            tree[likelihood].attrs["note"] = note
        return tree


def mean_field_tree(
    posterior: MeanFieldPosterior,
    result: FitResult[State],
    context: Context,
    *,
    rng: np.random.Generator,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Tree of a mean-field fit: draws from q, and the variational parameters in ``fit``.

    ``attrs`` are further root attributes.
    """
    state, design = posterior.state, posterior.data.design
    n, r = state.latent.mean.shape
    p, k = context.X.shape[1], state.weights.mean.shape[1]
    n_draws = int(np.clip(datatree.MAX_NUMBERS // (p * max(r, k)), 20, N_DRAWS))
    projection = _draw_projection(posterior, n_draws, rng)
    factor = cholesky(state.weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
    noise = rng.standard_normal((n_draws, k, 1 + r))
    full = state.weights.mean + np.einsum("kpq,skq->spk", factor, noise)  # (S, 1 + R, K)
    phi, psi = state.projection_precision, state.weight_precision
    phi_draws = rng.gamma(phi.shape, size=(n_draws, *phi.shape.shape)) / phi.rate
    psi_draws = rng.gamma(psi.shape, size=(n_draws, *psi.shape.shape)) / psi.rate
    draws = {
        "projection": projection,
        "weights": full[:, 1:],
        "bias": full[:, 0],
        "projection_precision": _drop_tied(phi_draws, context.projection_prior),
        "weight_precision": psi_draws[:, 1:],
        "bias_precision": psi_draws[:, 0],
    }
    if state.noise_precision is not None:
        tau = state.noise_precision
        draws["noise_precision"] = rng.gamma(tau.shape, size=(n_draws, k)) / tau.rate
    if n * r * n_draws <= datatree.MAX_NUMBERS:
        half = cholesky(state.latent.cov, name="latent covariance")
        draws["latent"] = state.latent.mean + rng.standard_normal((n_draws, n, r)) @ half.T
    draws = {name: values[None] for name, values in draws.items()}
    loadings = design.loadings(state.projection.mean)
    contrast = context.contrast(state.weights.mean[1:])
    group = {
        "latent_mean": state.latent.mean,
        "latent_cov": np.broadcast_to(state.latent.cov, (n, r, r)),
        "projection_mean": loadings,
        "projection_sd": np.sqrt(design.loading_variance(state.projection.variance, phi.mean)),
        "relevance": relevance(state.latent.mean, contrast),
        "feature_relevance": feature_relevance(loadings, contrast),
        **_outliers(context.X, loadings)[0],
        "elbo": result.elbo,
        "elbo_terms": np.column_stack(list(result.terms.values())),
        "restarts": np.array(result.restarts),
    }
    if context.projection_prior != "entrywise" or design.n_features == p:
        group["projection_precision_mean"] = _drop_tied(phi.mean[None], context.projection_prior)[0]
    return context.build(
        {
            "posterior": _with_identified(draws, context),
            "fit": group,
            **_densities(draws, posterior, context),
        },
        inference_method="mean_field",
        latent_scale=posterior.latent_scale,
        n_components=r,
        attrs={"converged": int(result.converged), "interrupted": int(result.interrupted)}
        | dict(attrs or {}),
        coords={"term": list(result.terms)},
    )


def hierarchical_tree(
    fit: HierarchicalFit,
    context: Context,
    *,
    rng: np.random.Generator,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Tree of a fit of the hierarchical model.

    Draws are mapped to identified latent coordinates, by an affine map of each draw that leaves the
    linear predictor, and hence all predictions, unchanged. The part of the projection outside the
    row space of the training samples is drawn by ``rng``. ``attrs`` are further root attributes.
    """
    posterior, draws = fit.posterior, fit.draws
    p, r = context.X.shape[1], posterior.n_components
    k, per_chain = draws.bias.shape[1], fit.n_draws
    n_kept = int(np.clip(datatree.MAX_NUMBERS // (p * max(r, k) * fit.n_chains), 5, per_chain))
    one = np.unique(np.linspace(0, per_chain - 1, n_kept).round().astype(np.int64))
    kept = (np.arange(fit.n_chains)[:, None] * per_chain + one).ravel()
    shape = (fit.n_chains, len(one))
    raw = draws.take(kept)
    aligned = fit.coordinates.thin(kept).align(raw)
    maps = fit.coordinates.maps[kept, 1:]  # (S, J, R)
    outside = raw.scale[:, None, None] * rng.standard_normal((len(kept), maps.shape[1], p))
    feature_map = posterior.metric
    variables = {"weights": aligned.weights[:, :r], "bias": aligned.bias, "scale": raw.scale}
    full = feature_map.loadings(raw.projection, outside, raw.view_scale)  # (S, J, P)
    whitened, loadings = feature_map.whiten(context.X), None
    if full is not None:
        full = np.swapaxes(full, 1, 2)
        loadings = full @ maps[..., :r]
        variables |= {"projection": loadings, "coef": full @ raw.weights}
    views: list[str] = []
    if isinstance(feature_map, Views):
        views = list(feature_map.names)
        assert raw.view_scale is not None
        variables["view_scale"] = raw.view_scale
        variables["view_share"] = feature_map.shares(raw, whitened)
    if context.target == "multiclass":
        variables["bias_centered"] = raw.bias
    if raw.noise_scale is not None:
        variables["noise_scale"] = raw.noise_scale
    latent = posterior.embed(context.X)
    contrast = posterior.coordinates.axes[:, :r].T
    groups: dict[str, dict[str, Any]] = {
        "posterior": {
            name: each.reshape(*shape, *each.shape[1:]) for name, each in variables.items()
        },
        "sample_stats": {name: each[:, one] for name, each in fit.sample_stats.items()},
        "fit": {
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
            "relevance": posterior.share,
        },
    }
    if loadings is not None and (found := posterior.components()) is not None:
        components = found.T
        groups["fit"] |= {
            "projection_mean": components,
            "projection_sd": loadings.std(axis=0),
        }
        if feature_map.is_linear:
            relevant = feature_relevance(components, contrast)
            groups["fit"] |= _outliers(context.X, components)[0]
        else:
            relevant = posterior.feature_relevance(context.X)
        groups["fit"]["feature_relevance"] = relevant
    total = fit.log_likelihood[:, one] - len(context.X) * context.log_scale
    if fit.engine not in datatree.APPROXIMATIONS:
        groups["sample_stats"]["log_likelihood"] = total
    if fit.log_prior is not None:
        groups["sample_stats"]["lp"] = total + fit.log_prior[:, one]
    if fit.log_prior is not None:
        groups["log_prior"] = {"parameters": fit.log_prior[:, one]}
    if not groups["sample_stats"]:
        del groups["sample_stats"]
    # The pointwise log likelihood of a subsample would be misleading.
    if context.kept is None and len(kept) * len(context.X) <= datatree.MAX_NUMBERS:
        each = pointwise_log_likelihood(
            raw, whitened, context.targets, context.target, posterior.lapse
        )
        if context.target != "regression":
            each -= TIE * rng.random(each.shape)
        each -= context.log_scale
        groups["log_likelihood"] = {"y": each.reshape(*shape, -1)}
    return context.build(
        groups,
        inference_method=fit.engine,
        n_components=r,
        coords={dims.VIEW: views} if views else None,
        attrs={
            "alignment": "affine",
            "nonlinear": int(not feature_map.is_linear),
            **(attrs or {}),
        },
    )


def _draw_projection(
    posterior: MeanFieldPosterior, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws of Q over features from q, (S, P, R)."""
    state, design = posterior.state, posterior.data.design
    precision, r = state.projection_precision.mean, state.projection.mean.shape[1]
    inside = design.draw(precision, posterior.latent_scale**2, size=(n_draws, r), rng=rng)
    draws = design.loadings(state.projection.mean + inside)
    return draws + design.draw_outside(precision, size=(n_draws, r), rng=rng)


def _drop_tied(values: FloatArray, projection_prior: ProjectionPrior) -> FloatArray:
    """Precisions (S, D, R), (S, 1, R) or (S, D, 1) without the shared axis."""
    if projection_prior == "columnwise":
        return values[:, 0]
    return values[:, :, 0] if projection_prior == "rowwise" else values


def _with_identified(draws: dict[str, FloatArray], context: Context) -> dict[str, FloatArray]:
    """Draws (chain, draw, ...) with the identified quantities added."""
    out = {**draws, "coef": context.contrast(draws["projection"] @ draws["weights"])}
    if context.target == "multiclass":
        out["bias_centered"] = context.contrast(draws["bias"])
    return out


def _densities(
    draws: Mapping[str, FloatArray], posterior: MeanFieldPosterior, context: Context
) -> dict[str, dict[str, FloatArray]]:
    """Groups of log densities of draws from q: pointwise likelihood, joint density, and q."""
    scale, target = posterior.latent_scale, context.target
    groups = log_likelihood_group(draws, context, latent_scale=scale, target=target)
    if groups and (priors := context.priors) is not None:
        data = posterior.data
        inside = draw_posterior(draws, latent_scale=scale, target=target)
        turned = np.swapaxes(inside.projection, 1, 2)  # (S, R, P)
        working = data.design.coordinates(turned.reshape(-1, turned.shape[2]))
        working = np.swapaxes(working.reshape(*turned.shape[:2], -1), 1, 2)
        inside = replace(inside, projection=working)
        log_p = log_density.log_prior(inside, priors)
        # As the bound, of the standardised targets.
        log_p += groups["log_likelihood"]["y"][0].sum(axis=1) + len(context.X) * context.log_scale
        log_q = log_density.log_q(inside, posterior.state, data, scale)
        groups["sample_stats"] = {"log_p": log_p[None], "log_q": log_q[None]}
    return groups


def log_prior_group(
    draws: Mapping[str, FloatArray], context: Context, *, latent_scale: float
) -> dict[str, dict[str, FloatArray]]:
    """log p(parameters) with precisions integrated out, (chain, draw).

    For the prior sensitivity of ``arviz.psense_summary``, which approximations that underestimate
    the posterior variance would understate.
    """
    if (priors := context.priors) is None:
        return {}
    stacked = draw_posterior(draws, latent_scale=latent_scale, target=context.target)
    values = log_density.log_prior(stacked, priors)
    return {"log_prior": {"parameters": values.reshape(draws["bias"].shape[:2])}}


def log_likelihood_group(
    draws: Mapping[str, FloatArray], context: Context, *, latent_scale: float, target: Target
) -> dict[str, dict[str, FloatArray]]:
    """log p(y_n | x_n, draw), latent coordinates and utilities integrated out: (chain, draw, obs).

    Importance-sampling cross-validation must not use the likelihood given latent coordinates.
    """
    chains, n_draws = draws["bias"].shape[:2]
    if chains * n_draws * len(context.X) > datatree.MAX_NUMBERS:
        return {}
    posterior = draw_posterior(draws, latent_scale=latent_scale, target=target)
    values = predict.log_likelihood(posterior, context.X, context.targets)  # (S, N)
    values -= context.log_scale
    return {"log_likelihood": {"y": values.reshape(chains, n_draws, -1)}}


def draw_posterior(
    draws: Mapping[str, Any] | xr.Dataset,
    *,
    latent_scale: float,
    target: Target,
    lapse: float = 0.0,
) -> DrawPosterior:
    """Posterior with stacked chains, from arrays (chain, draw, ...) or a posterior group."""

    def stacked(name: str) -> FloatArray:
        values = np.ascontiguousarray(draws[name])  # as in a saved model
        return values.reshape(-1, *values.shape[2:])

    noise_precision = None
    if "noise_precision" in draws:
        noise_precision = stacked("noise_precision")
    elif "noise_scale" in draws:
        noise_precision = stacked("noise_scale") ** -2.0
    return DrawPosterior(
        projection=stacked("projection"),
        weights=stacked("weights"),
        bias=stacked("bias"),
        noise_precision=noise_precision,
        latent_scale=latent_scale,
        target=target,
        lapse=lapse,
    )


def read_draws(tree: xr.DataTree, target: Target) -> dict[str, FloatArray]:
    """Draws (chain, draw, ...) of projection, weights and bias, from the tree of a sampler.

    For real targets also of the noise, by one of the names `NOISE`.
    """
    if not isinstance(tree, xr.DataTree):
        raise TypeError(f"expected an xarray.DataTree, got {type(tree).__name__}")
    if "posterior" not in tree.children:
        raise ValueError(
            f"the tree has no group 'posterior'; its groups are {sorted(tree.children)}"
        )
    posterior = tree["posterior"].to_dataset()
    ndims = {"projection": 4, "weights": 4, "bias": 3}
    if target == "regression":
        given = [name for name in NOISE if name in posterior.data_vars]
        if len(given) != 1:
            raise ValueError(
                f"group 'posterior' needs exactly one of {' and '.join(NOISE)}, it has "
                f"{'both' if given else 'neither'}"
            )
        ndims[given[0]] = 3
    draws = {}
    for name, ndim in ndims.items():
        if name not in posterior.data_vars:
            raise ValueError(f"group 'posterior' has no variable {name!r}")
        array = posterior[name]
        if array.dims[:2] != ("chain", "draw") or array.ndim != ndim:
            raise ValueError(
                f"posterior/{name} has dims {array.dims}, expected chain, draw and {ndim - 2} more"
            )
        draws[name] = np.asarray(array.values, dtype=np.float64)
        if not np.isfinite(draws[name]).all():
            raise ValueError(f"posterior/{name} holds values that are not finite")
        if name in NOISE and not (draws[name] > 0.0).all():
            raise ValueError(f"posterior/{name} holds values that are not positive")
    return draws


def check_draws(draws: Mapping[str, FloatArray], *, n_features: int, n_labels: int) -> None:
    """Raise ValueError if draws do not fit the samples and their classes or outputs."""
    r = draws["projection"].shape[3]
    expected = {"projection": (n_features, r), "weights": (r, n_labels)}
    for name, values in draws.items():
        shape = expected.get(name, (n_labels,))
        if values.shape[2:] != shape:
            raise ValueError(
                f"posterior/{name} has shape {values.shape[2:]} in each draw, expected {shape}, "
                f"for {n_features} features, {r} components and {n_labels} classes or outputs"
            )


# Component axis of each variable of draws (chain, draw, ...).
COMPONENT_AXES = {"projection": 3, "weights": 2, "weight_precision": 2, "latent": 3}


def align_components(
    draws: dict[str, FloatArray], projection_prior: ProjectionPrior
) -> dict[str, FloatArray]:
    """Align the components of all draws by signed permutations, which leave Q W unchanged."""
    chains, n_draws, _, r = draws["projection"].shape
    stacked = np.concatenate([draws["projection"], np.swapaxes(draws["weights"], 2, 3)], axis=2)
    order, sign = align.align(stacked.reshape(chains * n_draws, -1, r))
    axes = dict(COMPONENT_AXES)
    if projection_prior == "entrywise":
        axes["projection_precision"] = 3
    elif projection_prior == "columnwise":
        axes["projection_precision"] = 2
    out = dict(draws)
    for name, axis in axes.items():
        if name not in draws:
            continue
        last = np.moveaxis(draws[name], axis, -1)
        signs = np.ones_like(sign) if name.endswith("precision") else sign
        moved = align.apply(last.reshape(chains * n_draws, *last.shape[2:]), order, signs)
        out[name] = np.moveaxis(moved.reshape(last.shape), -1, axis)
    return out


def draws_tree(
    draws: dict[str, FloatArray],
    context: Context,
    *,
    inference_method: InferenceMethod,
    latent_scale: float,
    sample_stats: Mapping[str, FloatArray] | None = None,
    fit: Mapping[str, FloatArray] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Tree of draws (chain, draw, ...) by name, components aligned.

    Parameters
    ----------
    draws : dict
        With projection, weights and bias; without latent, latent coordinates are computed from the
        projection and the latent scale.
    sample_stats, fit, attrs : mapping, optional
        Further variables of these groups, and root attributes.
    """
    draws = align_components(draws, context.projection_prior)
    projection, weights = draws["projection"], draws["weights"]
    r = projection.shape[3]
    if "latent" in draws:
        z = draws["latent"].reshape(-1, *draws["latent"].shape[2:])
        centred = z - z.mean(axis=0)
        cov = np.einsum("snr,snq->nrq", centred, centred, optimize=True) / len(z)
        latent = LatentCoordinates(mean=z.mean(axis=0), cov=cov)
        if draws["latent"].size > datatree.MAX_NUMBERS:
            del draws["latent"]
    else:
        posterior = draw_posterior(draws, latent_scale=latent_scale, target=context.target)
        latent = posterior.embed(context.X)
    contrast = context.contrast(weights.mean(axis=(0, 1)))
    loadings = projection.mean(axis=(0, 1))
    outliers, reference = _outliers(context.X, loadings)
    group = {
        "latent_mean": latent.mean,
        "latent_cov": latent.cov,
        "projection_mean": loadings,
        "projection_sd": projection.std(axis=(0, 1)),
        "relevance": relevance(latent.mean, contrast),
        "feature_relevance": feature_relevance(loadings, contrast),
        **outliers,
        **(fit or {}),
    }
    if "projection_precision" in draws:
        group["projection_precision_mean"] = draws["projection_precision"].mean(axis=(0, 1))
    groups: dict[str, dict[str, Any]] = {
        "posterior": _with_identified(draws, context),
        "fit": group,
    }
    if sample_stats:
        groups["sample_stats"] = dict(sample_stats)
    groups |= log_likelihood_group(draws, context, latent_scale=latent_scale, target=context.target)
    if inference_method != "advi":
        groups |= log_prior_group(draws, context, latent_scale=latent_scale)
    return context.build(
        groups,
        inference_method=inference_method,
        latent_scale=latent_scale,
        n_components=r,
        attrs={"alignment": "signed permutation", **reference, **(attrs or {})},
    )


def _outliers(
    X: FloatArray, loadings: FloatArray
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Outlier statistics of the training samples, and the attributes of their reference."""
    learned = Reference.learn(X, loadings)
    return ({}, {}) if learned is None else (learned[1].by_name(), learned[0].attrs())
