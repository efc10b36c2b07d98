"""Sampling from the posterior of BM2PCA: Gibbs in NumPy, NUTS and ADVI through PyMC."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.conjugate import gibbs
from bsdr_models.bm2pca.conjugate.loss_augmentation import EpsilonInsensitive, Margins
from bsdr_models.bm2pca.predict import DrawPosterior
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import FitResult, Sampled, Task
from bsdr_models.inference.gibbs import run_gibbs
from bsdr_models.numerics import align

# Draws used for prediction.
N_PREDICT = 300
# Largest variable, in numbers over all draws, that is recorded.
MAX_NUMBERS = 20_000_000
# Component axis of each variable, counting the axes of chains and draws.
COMPONENT_AXES: Mapping[str, int] = {"loadings": 3, "weights": 2, "latent": 3}


def sample(
    engine: str,
    X: FloatArray,
    margins: Margins,
    priors: Priors,
    *,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> Sampled:
    """Posterior of the paper's model with one subspace.

    Parameters
    ----------
    engine : {"gibbs", "nuts", "advi"}
    X : (N, D)
        Complete scaled samples.
    margins : Hinge or EpsilonInsensitive
        Targets of one problem, (1, N, K).
    priors : Priors
    n_components : int
    draws, tune, chains : int
        Kept draws and warm-up per chain; ADVI returns ``draws`` draws in one chain.
    rng : numpy.random.Generator
    progressbar : bool

    Returns
    -------
    Sampled
    """
    if engine == "gibbs":
        values, stats, fit, interrupted = _gibbs(
            X, margins, priors, n_components, draws, tune, chains, rng, progressbar
        )
    else:
        values, stats, fit, interrupted = _pymc(
            engine, X, margins, priors, n_components, draws, tune, chains, rng, progressbar
        )
    # C order, as in a model loaded from a file.
    values = {name: np.ascontiguousarray(v) for name, v in align_components(values).items()}
    stacked = {
        name: values[name].reshape(-1, *values[name].shape[2:])
        for name in ("loadings", "offset", "noise_precision", "weights", "bias")
    }
    total = len(stacked["bias"])
    index = np.unique(np.linspace(0, total - 1, min(N_PREDICT, total)).astype(int))
    weights = np.concatenate([stacked["bias"][:, None], stacked["weights"]], axis=1)
    return Sampled(
        draws=values,
        posterior=DrawPosterior(
            loadings=stacked["loadings"][index],
            offset=stacked["offset"][index],
            noise_precision=stacked["noise_precision"][index],
            weights=weights[index],
        ),
        sample_stats=stats,
        fit=fit,
        interrupted=interrupted,
    )


type _Output = tuple[dict[str, FloatArray], dict[str, FloatArray], dict[str, FloatArray], bool]


def _gibbs(
    X: FloatArray,
    margins: Margins,
    priors: Priors,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> _Output:
    problem = gibbs.Problem(X=X, margins=margins)
    size = chains * draws * len(X) * n_components
    excluded = {"slack_scale", "slack_scale_lower", "scores"}
    if size > MAX_NUMBERS:
        excluded.add("latent")

    def record(state: gibbs.State) -> Mapping[str, FloatArray]:
        values = gibbs.to_variables(state)
        return {name: value for name, value in values.items() if name not in excluded}

    result = run_gibbs(
        lambda stream: gibbs.init(
            problem, priors, n_components=n_components, n_chains=chains, rng=stream
        ),
        lambda state, stream: gibbs.step_joint(state, problem, priors, rng=stream),
        record=record,
        draws=draws,
        tune=tune,
        rng=rng,
        progressbar=progressbar,
    )
    return dict(result.draws), {}, {}, result.interrupted


def _pymc(
    engine: str,
    X: FloatArray,
    margins: Margins,
    priors: Priors,
    n_components: int,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> _Output:
    # Imported here because PyMC loads slowly.
    from bsdr_models.inference import engines

    model = declare(X, margins, priors, n_components=n_components)
    tree = engines.run_pymc(
        engine, model, SPEC, draws=draws, tune=tune, chains=chains, rng=rng, progressbar=progressbar
    )
    values = _arrays(tree, "posterior")
    stats = {k: v for k, v in _arrays(tree, "sample_stats").items() if v.ndim == 2}
    fit = {k: v for k, v in _arrays(tree, "fit").items() if k in ("elbo", "restarts")}
    return values, stats, fit, bool(tree.attrs.get("interrupted", 0))


def _arrays(tree: xr.DataTree, group: str) -> dict[str, FloatArray]:
    if group not in tree.children:
        return {}
    dataset = tree[group].dataset
    return {str(name): np.asarray(dataset[name]) for name in dataset.data_vars}


def declare(X: FloatArray, margins: Margins, priors: Priors, *, n_components: int) -> Any:
    """Declare the PyMC model on training samples."""
    from bsdr_models.bm2pca.conjugate.model import build_model

    cost = float(margins.cost.ravel()[0])
    options: dict[str, Any] = {"n_components": n_components, "C": cost, "priors": priors}
    if isinstance(margins, EpsilonInsensitive):
        return build_model(
            X,
            np.where(margins.observed[0], margins.y[0], np.nan),
            target="regression",
            epsilon=float(np.ravel(margins.epsilon)[0]),
            **options,
        )
    return build_model(X, margins.y[0], target="signs", **options)


def align_components(draws: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Rotate the components of every draw into alignment.

    Products over the component axis, such as W z and eta' z, are unchanged. Precisions of columns
    of the loadings are not defined after a rotation and are left out.
    """
    chains, n_draws, _, r = draws["loadings"].shape
    stacked = np.concatenate([draws["loadings"], np.swapaxes(draws["weights"], 2, 3)], axis=2)
    rotation = align.rotations(stacked.reshape(chains * n_draws, -1, r))
    out = {name: values for name, values in draws.items() if name != "loading_precision"}
    for name, axis in COMPONENT_AXES.items():
        if name in draws:
            last = np.moveaxis(draws[name], axis, -1)
            flat = last.reshape(chains * n_draws, -1, r) @ rotation
            out[name] = np.moveaxis(flat.reshape(last.shape), -1, axis)
    return out


def check_samples(task: Task, what: str) -> None:
    """Raise a ValueError if X is sparse, incomplete or of several views."""
    if issparse(task.X) or not task.complete or len(task.columns) > 1:
        raise ValueError(
            f"{what} needs complete dense samples of one view; use "
            "inference='mean_field' for sparse or missing values and for several views"
        )


def fit(
    task: Task,
    engine: str,
    *,
    margins: Margins,
    draws: int,
    tune: int,
    chains: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> FitResult:
    """Fit the paper's model by a sampler; raise a ValueError unless :func:`check_samples`."""
    check_samples(task, f"inference={engine!r}")
    sampled = sample(
        engine,
        task.X,
        margins,
        task.priors,
        n_components=task.n_components,
        draws=draws,
        tune=tune,
        chains=chains,
        rng=rng,
        progressbar=progressbar,
    )
    return FitResult(
        posterior=sampled.posterior,
        factor_model=sampled.posterior.factor_model(),
        elbo=np.asarray(sampled.fit.get("elbo", np.array([]))),
        terms={},
        converged=False,
        interrupted=sampled.interrupted,
        sampled=sampled,
    )
