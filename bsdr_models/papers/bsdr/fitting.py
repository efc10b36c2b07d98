"""Fits of the paper's model as trees, and predictions from their draws."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from bsdr_models.alignment import permute, signed_permutations
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.data.validation import warn_unless_mixed
from bsdr_models.estimators.base import warn_of
from bsdr_models.inference import datatree, dims
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Sampled, Schedule
from bsdr_models.numerics.arrays import FloatArray, ProjectionPrior, SamplesLike, TargetLike
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.rng import RandomState, as_generator
from bsdr_models.papers.bsdr import gibbs, mean_field
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.draws import BSDRDraws, ProjectionFactor
from bsdr_models.papers.bsdr.mean_field import Data, State, make_data, without_shared_axis
from bsdr_models.papers.bsdr.priors import PROJECTION_PRECISION_DIMS, Optimization, Priors
from bsdr_models.papers.coordinate_ascent import Extrapolation, run_coordinate_ascent
from bsdr_models.papers.sampler import run_sampler
from bsdr_models.papers.training import Inference, describe, read_new, read_setting, read_training

if TYPE_CHECKING:
    import pymc as pm

# Draws of a mean-field fit, and numbers that those of one variable have at most.
N_DRAWS = 500
MOST_NUMBERS = 1_000_000


def fit(
    X: SamplesLike,
    y: TargetLike,
    *,
    inference: Inference = "mean_field",
    n_components: int = 2,
    target: Literal["classes", "regression"] = "classes",
    priors: Priors | None = None,
    optimization: Optimization | None = None,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    progressbar: bool = False,
    random_state: RandomState = None,
) -> xr.DataTree:
    """Posterior of the paper's model.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Samples as the model sees them: scale features before.
    y : array-like of shape (N,), or (N, K)
        Classes; zeros and ones of label sets; or real outputs.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    n_components : int, default=2
        R, from 1 to D.
    target : {"classes", "regression"}, default="classes"
        What y holds: classes or label sets, or the real outputs of Section II-D.
    priors : Priors, optional
        Hyper-parameters; the paper's by default.
    optimization : Optimization, optional
        Restarts, iterations and tolerance of mean field.
    draws, tune, chains : int
        Draws that are kept and warm-up of each chain of a sampler. ADVI has one chain.
    progressbar, random_state
        As for :class:`bsdr_models.BSDRClassifier`.

    Returns
    -------
    xarray.DataTree
        With ``posterior``, ``fit``, ``observed_data`` and ``constant_data``, of samplers also
        ``sample_stats`` and, of labels, ``log_likelihood``. Components are aligned.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, or there are fewer than two classes.

    See Also
    --------
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
    context, targets = read_training(
        X,
        y,
        n_components,
        regression=target == "regression",
        config={"inference": inference, "n_components": n_components},
    )
    arguments = BSDRFit(
        inference=inference,
        n_components=n_components,
        priors=priors or Priors(),
        optimization=optimization or Optimization(),
        schedule=Schedule(draws=draws, tune=tune, chains=chains, progressbar=progressbar),
    )
    result, tree = arguments.run(context, targets, as_generator(random_state))
    warn_of(result)
    return tree


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
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers import bsdr
    >>> X, y = load_wine(return_X_y=True)
    >>> tree = bsdr.fit(scale(X), y, random_state=0)
    >>> bsdr.predict(tree, scale(X)).shape
    (178, 3)
    """
    draws = BSDRDraws.of(tree, latent_scale)
    array = read_new(tree, X)
    if draws.target == "regression":
        return draws.outputs(array)
    p = np.exp(draws.log_probabilities(array))
    lapse = read_setting(tree, "lapse", 0.0)  # of the recommended model
    return (1.0 - lapse) * p + lapse / (p.shape[1] if draws.target == "multiclass" else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BSDRFit:
    """Arguments of a fit to validated samples and targets."""

    inference: Inference
    n_components: int
    priors: Priors
    optimization: Optimization
    schedule: Schedule

    def declare(self, context: Context) -> "pm.Model":
        """The PyMC model of the training samples."""
        from bsdr_models.papers.bsdr.model import build_model

        return build_model(
            context.X,
            context.y,
            n_components=self.n_components,
            priors=self.priors,
            target=context.target,
        )

    def run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[BSDRDraws], xr.DataTree]:
        """Result, which predicts those features that vary, and tree."""
        if self.n_components > (n := context.X.shape[1]):
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )
        if context.target == "multilabel":
            targets = targets.astype(bool)
        by_mean_field = self.inference == "mean_field"
        data = make_data(
            context.X,
            targets,
            n_labels=len(context.labels),
            target=context.target,
            # Draws of a sampler are over the features.
            projection_prior=self.priors.projection_prior if by_mean_field else "entrywise",
        )
        run = self._maximise if by_mean_field else self._sample
        found, sampled = run(data, context, rng)
        posterior = BSDRDraws.stack(
            sampled.draws,
            target=context.target,
            latent_scale=float(self.priors.latent_scale),
            factor=found.posterior,
        )
        result = found.with_posterior(posterior.thinned())
        tree = self._make_tree(context, found, posterior, sampled, targets)
        if not by_mean_field:
            bias = "bias_centered" if context.target == "multiclass" else "bias"
            result = replace(result, converged=warn_unless_mixed(tree, ["coef", bias]))
        return result, tree

    def _maximise(
        self, data: Data, context: Context, rng: np.random.Generator
    ) -> tuple[Result[ProjectionFactor | None], Sampled]:
        """Mean field: q of the projection, and draws."""
        result = run_mean_field(
            data,
            self.priors,
            n_components=self.n_components,
            rng=rng,
            progressbar=self.schedule.progressbar,
            **asdict(self.optimization),
        )
        state = result.posterior
        phi = state.projection_precision.mean
        factor: ProjectionFactor | None = ProjectionFactor(
            mean=data.design.loadings(state.projection.mean), precision=phi, X=context.X
        )
        sampled = Sampled(
            draws=draw(state, data, context.X, self.priors, rng),
            fit={
                "elbo": result.trace,
                "elbo_terms": np.column_stack(list(result.terms.values())),
                "restarts": np.array(result.restarts),
                "projection_precision_mean": without_shared_axis(
                    phi[None], self.priors.projection_prior
                )[0],
            },
            attrs={"converged": int(result.converged)},
        )
        return result.with_posterior(factor), sampled

    def _sample(
        self, data: Data, context: Context, rng: np.random.Generator
    ) -> tuple[Result[ProjectionFactor | None], Sampled]:
        """Draws by Gibbs sampling, NUTS or ADVI, with components aligned."""
        priors = self.priors
        size = {"n_components": self.n_components, "n_chains": self.schedule.chains}
        excluded = {"utilities", "latent_offset", *SPEC.identified}
        n_draws = self.schedule.chains * self.schedule.draws
        if n_draws * self.n_components * data.n_samples > datatree.MAX_NUMBERS:
            excluded.add("latent")
        sampled = run_sampler(
            self.inference,
            self.schedule,
            init=lambda stream: gibbs.init(data, priors, **size, rng=stream),
            step=lambda state, stream: gibbs.step(state, data, priors, rng=stream),
            record=lambda state: gibbs.to_variables(state, priors.projection_prior),
            stats=lambda state: gibbs.sample_stats(state, data, priors),
            excluded=excluded,
            declare=lambda: self.declare(context),
            spec=SPEC,
            rng=rng,
        )
        aligned = align_components(dict(sampled.draws), priors.projection_prior)
        sampled = replace(sampled, draws=aligned)
        result = Result(
            posterior=None,
            trace=np.asarray(sampled.fit.get("elbo", [])),
            converged=False,
            interrupted=sampled.interrupted,
        )
        return result, sampled

    def _make_tree(
        self,
        context: Context,
        result: Result[Any],
        posterior: BSDRDraws,
        sampled: Sampled,
        targets: np.ndarray,
    ) -> xr.DataTree:
        """Tree of a fit.

        The offsets of latent coordinates are free variables in PyMC. The log likelihood of labels
        is log p(y_n | x_n, draw), latent coordinates and utilities integrated out, since
        importance-sampling cross-validation must not use the likelihood given latent coordinates.
        """
        draws = dict(sampled.draws)
        latent = posterior.embed(context.X)
        described, of_reference = describe(
            context,
            latent.mean,
            posterior.mean_projection,
            draws["weights"].mean(axis=(0, 1)),
        )
        group = {
            **described,
            "projection_sd": draws["projection"].std(axis=(0, 1)),
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
            **sampled.fit,
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
        small = len(posterior.bias) * len(context.X) <= datatree.MAX_NUMBERS
        exact = self.inference not in datatree.APPROXIMATIONS
        if small and exact and context.target != "regression":
            values = posterior.log_likelihood(context.X, targets)  # (S, N)
            groups["log_likelihood"] = {"y": values.reshape(*draws["bias"].shape[:2], -1)}
        aligned = {} if self.inference == "mean_field" else {"alignment": "signed permutation"}
        prior = self.priors.projection_prior
        names = ("projection_precision", "projection_precision_mean")
        return context.fit_tree(
            groups,
            SPEC,
            inference_method=self.inference,
            n_components=self.n_components,
            dims=dict.fromkeys(names, PROJECTION_PRECISION_DIMS[prior]),
            coords={dims.TERM: list(result.terms)},
            attrs={
                "projection_prior": prior,
                "latent_scale": posterior.latent_scale,
                "interrupted": int(result.interrupted),
                **aligned,
                **of_reference,
                **sampled.attrs,
            },
        )


def run_mean_field(
    data: Data, priors: Priors, *, n_components: int, **options: Any
) -> Result[State]:
    """Maximise the bound by sweeps, with the options of `run_coordinate_ascent`."""
    return run_coordinate_ascent(
        lambda stream, restart: mean_field.init(
            data, priors, n_components=n_components, rng=stream, at_random=restart > 0
        ),
        lambda state: mean_field.step(state, data, priors),
        title="BSDR, mean field",
        extrapolation=Extrapolation(pack=mean_field.pack, unpack=mean_field.unpack),
        **options,
    )


def draw(
    state: State, data: Data, X: FloatArray, priors: Priors, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws from q by name, (1, S, ...), of a fit to samples X (N, D)."""
    n, r = state.latent.mean.shape
    d = X.shape[1]
    k = data.n_labels
    n_draws = int(np.clip(MOST_NUMBERS // (d * max(r, k)), 20, N_DRAWS))

    def gammas(q: Gamma) -> FloatArray:
        return rng.gamma(q.shape, size=(n_draws, *q.shape.shape)) / q.rate

    half = cholesky(state.weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
    noise = rng.standard_normal((n_draws, k, 1 + r))
    weights = state.weights.mean + np.einsum("kpq,skq->spk", half, noise)
    phi = state.projection_precision
    deviations = draw_deviations(DenseDesign(X), phi.mean, priors.latent_scale, (n_draws, r), rng)
    psi = gammas(state.weight_precision)
    draws = {
        "projection": data.design.loadings(state.projection.mean) + deviations,
        "weights": weights[:, 1:],
        "bias": weights[:, 0],
        "projection_precision": without_shared_axis(gammas(phi), priors.projection_prior),
        "weight_precision": psi[:, 1:],
        "bias_precision": psi[:, 0],
    }
    if state.noise_precision is not None:
        draws["noise_precision"] = gammas(state.noise_precision)
    if n * r * n_draws <= datatree.MAX_NUMBERS:
        root = cholesky(state.latent.cov, name="latent covariance")
        draws["latent"] = state.latent.mean + rng.standard_normal((n_draws, n, r)) @ root.T
    return {name: values[None] for name, values in draws.items()}


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
