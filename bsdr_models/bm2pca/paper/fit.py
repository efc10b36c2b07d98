"""The paper's model by mean field: latent coordinates depend on labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.factor_model import FactorModel, Rows
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.paper.mean_field import Data, State
from bsdr_models.bm2pca.paper.mean_field_fit import fit_mean_field
from bsdr_models.bm2pca.paper.posterior import MarginPosterior
from bsdr_models.bm2pca.paper.views import make_view
from bsdr_models.bm2pca.task import Candidate, FitResult, Task

# Sweeps in cross-validation for a fit that runs to convergence.
CONVERGED = 50
# Components and sweeps of the factor model that imputes missing values.
N_COMPLETE = 20
COMPLETE_SWEEPS = 30


def make_data(task: Task, costs: Sequence[float]) -> Data:
    """Views and margins of all problems, one set for each cost."""
    views = tuple(
        make_view(task.X if columns is None else task.X[:, columns], n_features=n_features)
        for columns, n_features in zip(task.columns, task.n_features, strict=True)
    )
    return Data(views=views, margins=make_margins(task, costs))


def make_margins(task: Task, costs: Sequence[float]) -> Margins:
    """Margins of all problems, one set for each cost."""
    y = task.targets_by_problem()
    cost = np.repeat(np.asarray(costs, dtype=np.float64), len(y))[:, None, None]
    return task.margins(np.tile(y, (len(costs), 1, 1)), cost)


def path_scores(
    task: Task, X: Rows, rng: np.random.Generator, *, candidates: Sequence[Candidate]
) -> FloatArray:
    """Scores of new samples for all costs and numbers of sweeps, costs first: (G, M, K).

    One run serves all numbers of sweeps and all costs.
    """
    costs = list(dict.fromkeys(each["C"] for each in candidates))
    sweeps = list(dict.fromkeys(each["n_sweeps"] or CONVERGED for each in candidates))
    data = make_data(task, costs)
    state = mean_field.init(
        data, task.priors, n_components=task.n_components, rng=rng, start=task.start
    )
    found = []
    for sweep in range(1, max(sweeps) + 1):
        state = mean_field.sweep(state, data, task.priors)
        if sweep in sweeps:
            mean = margin_posterior(state, data, task).score_means(X)
            found.append(mean.reshape(X.shape[0], len(costs), -1))
    return np.moveaxis(np.stack(found), 2, 0).reshape(-1, X.shape[0], task.Y.shape[1])


def margin_posterior(state: State, data: Data, task: Task) -> MarginPosterior:
    """Posterior for prediction."""
    factor_model = FactorModel.of(state.views, data.views, task.columns)
    return MarginPosterior(factor_model=factor_model, state=state)


def fit_conjugate(
    task: Task,
    *,
    cost: float,
    rng: np.random.Generator,
    max_iter: int,
    tol: float,
    n_restarts: int = 1,
    **options: Any,
) -> FitResult:
    """Fit the paper's model: ``max_iter`` plain sweeps if ``tol`` is 0, else to convergence.

    ``options`` go to :func:`~bsdr_models.bm2pca.paper.mean_field_fit.fit_mean_field`.
    """
    data = make_data(task, [cost])
    result = fit_mean_field(
        data,
        task.priors,
        n_components=task.n_components,
        rng=rng,
        start=task.start,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        accelerate=tol > 0.0,
        **options,
    )
    posterior = margin_posterior(result.state, data, task)
    return FitResult(
        posterior=posterior,
        factor_model=posterior.factor_model,
        elbo=result.elbo,
        terms=dict(result.terms),
        converged=result.converged,
        interrupted=result.interrupted,
        restarts=result.restarts,
    )


def fit_completer(task: Task, rng: np.random.Generator) -> FactorModel:
    """Factor model of the features alone, which imputes missing values."""
    free = replace(task, Y=np.zeros((task.X.shape[0], 1)), epsilon=None, strategy="shared")
    data = make_data(free, [1.0])
    n_components = min(N_COMPLETE, min(task.X.shape) - 1)
    state = mean_field.init(
        data, task.priors, n_components=max(n_components, 1), rng=rng, start="pca"
    )
    for _ in range(COMPLETE_SWEEPS):
        state = mean_field.sweep(state, data, task.priors)
    return FactorModel.of(state.views, data.views, task.columns)
