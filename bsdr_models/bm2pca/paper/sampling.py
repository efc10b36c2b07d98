"""Sampling from the posterior of BM2PCA: Gibbs in NumPy, NUTS and ADVI through PyMC."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models.alignment import rotations
from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import gibbs
from bsdr_models.bm2pca.paper.mean_field_fit import make_margins
from bsdr_models.bm2pca.paper.posterior import DrawPosterior
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import Candidate, FitResult, Task
from bsdr_models.inference.sampling import Schedule, run_sampler
from bsdr_models.numerics.row_space import Rows

# Gibbs sweeps in cross-validation, both warm-up and kept.
PATH_SWEEPS = 150
# Largest variable, in numbers over all draws, that is recorded.
MAX_NUMBERS = 20_000_000
# Component axis of each variable, counting the axes of chains and draws.
COMPONENT_AXES: Mapping[str, int] = {"loadings": 3, "weights": 2, "latent": 3}


def fit_draws(
    task: Task, engine: str, *, cost: float, schedule: Schedule, rng: np.random.Generator
) -> FitResult:
    """Fit the model with one subspace by Gibbs, NUTS or ADVI; components are aligned.

    Raise a ValueError unless :func:`check_samples`.
    """
    check_samples(task, f"inference={engine!r}")
    problem = gibbs.Problem(X=task.X, margins=make_margins(task, [cost]))
    excluded = {"slack_scale", "slack_scale_lower", "scores"}
    if schedule.chains * schedule.draws * len(task.X) * task.n_components > MAX_NUMBERS:
        excluded.add("latent")

    def init(stream: np.random.Generator) -> gibbs.GibbsState:
        return gibbs.initial_chains(
            problem,
            task.priors,
            n_components=task.n_components,
            n_chains=schedule.chains,
            rng=stream,
        )

    sampled = run_sampler(
        engine,
        schedule,
        init=init,
        step=lambda state, stream: gibbs.step_joint(state, problem, task.priors, rng=stream),
        record=gibbs.to_variables,
        excluded=excluded,
        declare=lambda: declare(task, cost),
        spec=SPEC,
        rng=rng,
    )
    # C order, as in a model loaded from a file.
    aligned = align_components(dict(sampled.draws)).items()
    sampled = replace(sampled, draws={name: np.ascontiguousarray(v) for name, v in aligned})
    return FitResult(
        posterior=DrawPosterior.of(sampled.draws),
        trace=np.asarray(sampled.fit.get("elbo", np.array([]))),
        converged=False,
        interrupted=sampled.interrupted,
        sampled=sampled,
    )


def path_scores(
    task: Task, X: Rows, candidates: Sequence[Candidate], rng: np.random.Generator
) -> FloatArray:
    """Scores of new samples by short Gibbs runs for every cost, (G, M, K).

    All samplers have the same posterior; scores of mean field are smaller.
    """
    schedule = Schedule(draws=PATH_SWEEPS, tune=PATH_SWEEPS, chains=1)
    scores = []
    for each in candidates:
        fit = fit_draws(task, "gibbs", cost=each["C"], schedule=schedule, rng=rng)
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.posterior.score_means(X))
    return np.stack(scores)


def declare(task: Task, cost: float) -> Any:
    """The PyMC model on the samples of a task; raise a ValueError unless `check_samples`."""
    from bsdr_models.bm2pca.paper.model import build_model

    check_samples(task, "model_")
    epsilon = task.epsilon
    return build_model(
        task.X,
        task.Y,
        n_components=task.n_components,
        C=cost,
        priors=task.priors,
        target="signs" if epsilon is None else "regression",
        epsilon=0.1 if epsilon is None else float(np.squeeze(epsilon)),
    )


def check_samples(task: Task, what: str) -> None:
    """Raise a ValueError if X is sparse, incomplete or of several views."""
    if issparse(task.X) or not task.complete or len(task.columns) > 1:
        raise ValueError(
            f"{what} needs complete dense samples of one view; use "
            "inference='mean_field' for sparse or missing values and for several views"
        )


def align_components(draws: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Rotate the components of every draw into alignment.

    Products over the component axis, such as W z and eta' z, are unchanged. Precisions of columns
    of the loadings are not defined after a rotation and are left out.
    """
    chains, n_draws, _, r = draws["loadings"].shape
    stacked = np.concatenate([draws["loadings"], np.swapaxes(draws["weights"], 2, 3)], axis=2)
    rotation = rotations(stacked.reshape(chains * n_draws, -1, r))
    out = {name: values for name, values in draws.items() if name != "loading_precision"}
    for name, axis in COMPONENT_AXES.items():
        if name in draws:
            last = np.moveaxis(draws[name], axis, -1)
            flat = last.reshape(chains * n_draws, -1, r) @ rotation
            out[name] = np.moveaxis(flat.reshape(last.shape), -1, axis)
    return out
