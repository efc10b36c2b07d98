"""One mean-field fit: the model's steps handed to the driver of coordinate ascent."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsdr_models.bsdr import collapsed, mean_field
from bsdr_models.bsdr.mean_field import Start, State
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data
from bsdr_models.inference.coordinate_ascent import Extrapolation, FitResult, run_coordinate_ascent
from bsdr_models.typing import ProjectionPrior


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    projection_prior: ProjectionPrior,
    rng: np.random.Generator,
    start: Start = "discriminant",
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    quasi_newton: bool = True,
    callbacks: Sequence[Any] = (),
) -> FitResult[State]:
    """Maximise the bound of BSDR: L-BFGS on the collapsed bound, then accelerated sweeps.

    Parameters
    ----------
    data : Data
    priors : Priors
    n_components : int
        R.
    projection_prior : {"entrywise", "columnwise", "rowwise"}
    rng : numpy.random.Generator
    start : {"discriminant", "pca", "random"}
        Of the first restart; further ones are random.
    n_restarts : int
    max_iter : int
        Sweeps and quasi-Newton steps per restart.
    tol : float
        Gain of the bound per round, in nats, that counts as none.
    quasi_newton : bool
        Climb the collapsed bound by L-BFGS before the sweeps.
    callbacks : sequence of callables
        Called with (iteration, state, info).

    Returns
    -------
    FitResult
    """

    def init(stream: np.random.Generator, restart: int) -> State:
        return mean_field.init(
            data,
            priors,
            n_components=n_components,
            projection_prior=projection_prior,
            rng=stream,
            start=start if restart == 0 else "random",
        )

    def leap(state: State, budget: int, on_step: Any) -> tuple[State, mean_field.Info]:
        return collapsed.maximise(state, data, priors, max_evaluations=budget, on_step=on_step)

    return run_coordinate_ascent(
        init,
        lambda state: mean_field.step(state, data, priors),
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        extrapolation=Extrapolation(pack=mean_field.pack, unpack=mean_field.unpack),
        leap=leap if quasi_newton else None,
        callbacks=callbacks,
    )
