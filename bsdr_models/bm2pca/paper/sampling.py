"""Sampling from the posterior of BM2PCA: Gibbs in NumPy, NUTS and ADVI through PyMC."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import fit as paper
from bsdr_models.bm2pca.paper import gibbs
from bsdr_models.bm2pca.paper.factor_model import Rows
from bsdr_models.bm2pca.paper.loss_augmentation import EpsilonInsensitive, Margins
from bsdr_models.bm2pca.paper.posterior import DrawPosterior
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import Candidate, FitResult, Task
from bsdr_models.inference import sampling as inference
from bsdr_models.inference.sampling import Sampled, Schedule
from bsdr_models.numerics import align

# Draws used for prediction.
N_PREDICT = 300
# Gibbs sweeps in cross-validation, both warm-up and kept.
PATH_SWEEPS = 150
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
    schedule: Schedule,
    rng: np.random.Generator,
) -> Sampled:
    """Draws of the paper's model with one subspace, with aligned components.

    Parameters
    ----------
    engine : {"gibbs", "nuts", "advi"}
    X : (N, D)
        Complete scaled samples.
    margins : Hinge or EpsilonInsensitive
        Targets of one problem, (1, N, K).
    priors : Priors
    n_components : int
    schedule : Schedule
    rng : numpy.random.Generator
    """
    problem = gibbs.Problem(X=X, margins=margins)
    excluded = {"slack_scale", "slack_scale_lower", "scores"}
    if schedule.chains * schedule.draws * len(X) * n_components > MAX_NUMBERS:
        excluded.add("latent")

    def init(stream: np.random.Generator) -> gibbs.GibbsState:
        return gibbs.initial_chains(
            problem, priors, n_components=n_components, n_chains=schedule.chains, rng=stream
        )

    found = inference.run_sampler(
        engine,
        schedule,
        init=init,
        step=lambda state, stream: gibbs.step_joint(state, problem, priors, rng=stream),
        record=gibbs.to_variables,
        excluded=excluded,
        declare=lambda: declare(X, margins, priors, n_components=n_components),
        spec=SPEC,
        rng=rng,
    )
    # C order, as in a model loaded from a file.
    aligned = align_components(dict(found.draws)).items()
    return replace(found, draws={name: np.ascontiguousarray(v) for name, v in aligned})


def make_posterior(draws: Mapping[str, FloatArray]) -> DrawPosterior:
    """Posterior for predictions, of at most `N_PREDICT` draws."""
    total = draws["bias"].shape[0] * draws["bias"].shape[1]
    index = np.unique(np.linspace(0, total - 1, min(N_PREDICT, total)).astype(int))
    kept = {
        name: draws[name].reshape(-1, *draws[name].shape[2:])[index]
        for name in ("loadings", "offset", "noise_precision", "weights", "bias")
    }
    return DrawPosterior(
        loadings=kept["loadings"],
        offset=kept["offset"],
        noise_precision=kept["noise_precision"],
        weights=np.concatenate([kept["bias"][:, None], kept["weights"]], axis=1),
    )


def declare_task(task: Task, cost: float) -> Any:
    """The PyMC model on the samples of a task; raise a ValueError unless `check_samples`."""
    check_samples(task, "model_")
    margins = paper.make_margins(task, [cost])
    return declare(task.X, margins, task.priors, n_components=task.n_components)


def declare(X: FloatArray, margins: Margins, priors: Priors, *, n_components: int) -> Any:
    """Declare the PyMC model on training samples."""
    from bsdr_models.bm2pca.paper.model import build_model

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


def path_scores(
    task: Task, X: Rows, rng: np.random.Generator, *, candidates: Sequence[Candidate]
) -> FloatArray:
    """Scores of new samples by short Gibbs runs for every cost, (G, M, K).

    All samplers have the same posterior; scores of mean field are smaller.
    """
    schedule = Schedule(draws=PATH_SWEEPS, tune=PATH_SWEEPS, chains=1)
    found = []
    for each in candidates:
        fit = fit_draws(task, "gibbs", cost=each["C"], schedule=schedule, rng=rng)
        if fit.interrupted:
            raise KeyboardInterrupt
        found.append(fit.posterior.score_means(X))
    return np.stack(found)


def fit_draws(
    task: Task, engine: str, *, cost: float, schedule: Schedule, rng: np.random.Generator
) -> FitResult:
    """Fit the paper's model by a sampler; raise a ValueError unless :func:`check_samples`."""
    check_samples(task, f"inference={engine!r}")
    found = sample(
        engine,
        task.X,
        paper.make_margins(task, [cost]),
        task.priors,
        n_components=task.n_components,
        schedule=schedule,
        rng=rng,
    )
    posterior = make_posterior(found.draws)
    return FitResult(
        posterior=posterior,
        factor_model=posterior.factor_model(),
        elbo=np.asarray(found.fit.get("elbo", np.array([]))),
        terms={},
        converged=False,
        interrupted=found.interrupted,
        sampled=found,
    )
