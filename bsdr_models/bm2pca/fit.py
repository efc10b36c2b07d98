"""One mean-field fit: the model's steps handed to the driver of coordinate ascent."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsdr_models.bm2pca import mean_field
from bsdr_models.bm2pca.mean_field import Data, Start, State
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.inference.coordinate_ascent import Extrapolation, FitResult, run_coordinate_ascent


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start = "label",
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    extrapolate: bool = True,
    callbacks: Sequence[Any] = (),
) -> FitResult[State]:
    """Maximise the bound of BM2PCA.

    Parameters
    ----------
    data : Data
    priors : Priors
    n_components : int
        R.
    rng : numpy.random.Generator
    start : {"label", "pca", "random"}
        Of the first restart; further ones are random.
    n_restarts : int
    max_iter : int
        Sweeps per restart.
    tol : float
        Gain of the bound per round, in nats and summed over problems, that counts as none.
    extrapolate : bool
        Reach the top of the bound sooner, by SQUAREM; else plain sweeps, whose number is then a
        meaningful choice.
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
            rng=stream,
            start=start if restart == 0 else "random",
        )

    squarem = Extrapolation(
        pack=mean_field.pack,
        unpack=lambda vector, state: mean_field.unpack(vector, state, data),
    )
    return run_coordinate_ascent(
        init,
        lambda state: mean_field.step(state, data, priors),
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        extrapolation=squarem if extrapolate else None,
        callbacks=callbacks,
    )
