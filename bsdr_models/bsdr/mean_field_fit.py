"""Mean-field fits of the paper's model by coordinate ascent and joint L-BFGS searches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bsdr_models.bsdr import joint_lbfgs, mean_field
from bsdr_models.bsdr.data import Data
from bsdr_models.bsdr.mean_field import Start, State
from bsdr_models.bsdr.priors import Priors
from bsdr_models.inference.coordinate_ascent import FitResult, run_coordinate_ascent

# Evaluations of the first joint search. Each search is twice as long as the one before, since its
# preconditioner, taken at its initial state, is poor at first.
FIRST_SEARCH = 20


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start = "discriminant",
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    callbacks: Sequence[Any] = (),
    n_jobs: int | None = 1,
    on_restart: Callable[[FitResult[State]], object] = lambda result: None,
) -> FitResult[State]:
    """Maximise the bound by sweeps, each after a search by :mod:`bsdr_models.bsdr.joint_lbfgs`.

    Parameters
    ----------
    n_components : int
        R.
    start : {"discriminant", "pca", "random"}
        Initialisation of the first restart; further ones are random.
    max_iter : int
        Sweeps and quasi-Newton steps per restart.
    tol : float
        The fit stops when a round gains less than this many nats.
    callbacks : sequence of callables
        Called with (iteration, state, info).
    n_jobs : int, optional
        Parallel restarts.
    on_restart : callable
        Called with the result of each restart.
    """

    def init(stream: np.random.Generator, restart: int) -> State:
        return mean_field.init(
            data,
            priors,
            n_components=n_components,
            rng=stream,
            start=start if restart == 0 else "random",
        )

    def joint_search(
        state: State, number: int, budget: int, on_step: Any
    ) -> tuple[State, mean_field.Info]:
        budget = min(budget, FIRST_SEARCH << number)
        return joint_lbfgs.maximise(state, data, priors, max_evaluations=budget, on_step=on_step)

    return run_coordinate_ascent(
        init,
        lambda state: mean_field.step(state, data, priors),
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        joint_search=joint_search,
        callbacks=callbacks,
        n_jobs=n_jobs,
        on_restart=on_restart,
    )
