"""Fits of the paper's model by mean field: latent coordinates depend on labels."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.factor_model import FactorModel
from bsdr_models.bm2pca.paper.loss_augmentation import Margins, margins_of
from bsdr_models.bm2pca.paper.mean_field import Data, State
from bsdr_models.bm2pca.paper.posterior import MarginPosterior
from bsdr_models.bm2pca.paper.views import make_view
from bsdr_models.bm2pca.task import Candidate, FitResult, Task
from bsdr_models.inference.coordinate_ascent import Extrapolation, run_coordinate_ascent
from bsdr_models.numerics.row_space import Rows

# Sweeps in cross-validation for a fit that runs to convergence.
CONVERGED = 50
# Components and sweeps of the factor model that imputes missing values.
N_COMPLETE = 20
COMPLETE_SWEEPS = 30


def make_data(task: Task, costs: Sequence[float]) -> Data:
    """Views and margins of all problems, one set for each cost."""
    views = [make_view(task.X if own is None else task.X[:, own]) for own in task.columns]
    return Data(views=tuple(views), margins=make_margins(task, costs))


def make_margins(task: Task, costs: Sequence[float]) -> Margins:
    """Margins of all problems, one set for each cost: one problem, or one per outcome."""
    shared = task.strategy == "shared"
    y = np.ascontiguousarray(task.Y[None] if shared else task.Y.T[:, :, None])
    cost = np.repeat(np.asarray(costs, dtype=np.float64), len(y))[:, None, None]
    return margins_of(np.tile(y, (len(costs), 1, 1)), cost, task.epsilon)


def run_sweeps(
    task: Task, costs: Sequence[float], n_sweeps: int, rng: np.random.Generator
) -> tuple[State, Data]:
    """State of all problems, one set for each cost, after plain sweeps, and their data."""
    data = make_data(task, costs)
    state = mean_field.init(data, task.priors, n_components=task.n_components, rng=rng)
    for _ in range(n_sweeps):
        state = mean_field.sweep(state, data, task.priors)
    return state, data


def path_scores(
    task: Task, X: Rows, candidates: Sequence[Candidate], rng: np.random.Generator
) -> FloatArray:
    """Scores of new samples for all costs and numbers of sweeps, costs first: (G, M, K).

    One run serves all numbers of sweeps and all costs.
    """
    costs = list(dict.fromkeys(each["C"] for each in candidates))
    sweeps = list(dict.fromkeys(each["n_sweeps"] or CONVERGED for each in candidates))
    state, data = run_sweeps(task, costs, 0, rng)
    scores = []
    for sweep in range(1, max(sweeps) + 1):
        state = mean_field.sweep(state, data, task.priors)
        if sweep in sweeps:
            mean = margin_posterior(state, data, task).score_means(X)
            scores.append(mean.reshape(X.shape[0], len(costs), -1))
    return np.moveaxis(np.stack(scores), 2, 0).reshape(-1, X.shape[0], task.Y.shape[1])


def margin_posterior(state: State, data: Data, task: Task) -> MarginPosterior:
    """Posterior for prediction."""
    factor_model = FactorModel.of(state.views, data.views, task.columns)
    return MarginPosterior(factor_model=factor_model, state=state)


def fit_mean_field(
    task: Task,
    *,
    cost: float,
    rng: np.random.Generator,
    max_iter: int,
    tol: float,
    progressbar: bool = False,
) -> FitResult:
    """Maximise the bound: ``max_iter`` plain sweeps if ``tol`` is 0, else to convergence.

    Plain sweeps converge slowly along narrow ridges of the bound, so of three sweeps to
    convergence one is extrapolated.
    """
    data = make_data(task, [cost])
    squarem = Extrapolation(
        pack=mean_field.pack,
        unpack=lambda vector, state: mean_field.unpack(vector, state, data),
    )
    result = run_coordinate_ascent(
        lambda stream, _: mean_field.init(
            data, task.priors, n_components=task.n_components, rng=stream
        ),
        partial(mean_field.step, data=data, priors=task.priors),
        rng=rng,
        max_iter=max_iter,
        tol=tol,
        extrapolation=squarem if tol > 0.0 else None,
        title="BM2PCA, mean field",
        progressbar=progressbar,
    )
    return FitResult(
        posterior=margin_posterior(result.state, data, task),
        trace=result.elbo,
        terms=dict(result.terms),
        converged=result.converged,
        interrupted=result.interrupted,
    )


def fit_completer(task: Task, rng: np.random.Generator) -> FactorModel:
    """Factor model of the features alone, which imputes missing values."""
    free = replace(task, Y=np.zeros((task.X.shape[0], 1)), epsilon=None, strategy="shared")
    data = make_data(free, [1.0])
    n_components = max(min(N_COMPLETE, min(task.X.shape) - 1), 1)
    state = mean_field.init(data, task.priors, n_components=n_components, rng=rng, start="pca")
    for _ in range(COMPLETE_SWEEPS):
        state = mean_field.sweep(state, data, task.priors)
    return FactorModel.of(state.views, data.views, task.columns)
