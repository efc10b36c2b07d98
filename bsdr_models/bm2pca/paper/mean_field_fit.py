"""Mean-field fit by coordinate ascent.

Plain sweeps converge slowly along changes of the latent basis and along narrow ridges of the
bound, so rotations (`rotation`) and extrapolation are added.
"""

from typing import Any

import numpy as np

from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.mean_field import Data, Info, Start, State
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.inference.coordinate_ascent import Extrapolation, FitResult, run_coordinate_ascent

# Rounds before the first rotation. An earlier one prunes columns of the loadings that have no
# direction yet, for good.
PLAIN_ROUNDS = 3


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start = "label",
    accelerate: bool = True,
    **options: Any,
) -> FitResult[State]:
    """Maximise the bound of BM2PCA: rounds of a rotation and four sweeps, one extrapolated.

    Parameters
    ----------
    data : Data
    priors : Priors
    n_components : int
        R.
    rng : numpy.random.Generator
    start : {"label", "pca", "random"}
        Initial values of the first restart; further ones are random.
    accelerate : bool
        Use rotations and SQUAREM; else plain sweeps, whose number is a setting of the model.
    **options
        Restarts, iterations, tolerance and callbacks of
        :func:`bsdr_models.inference.coordinate_ascent.run_coordinate_ascent`; gains are summed over
        problems.
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

    def step(state: State) -> tuple[State, Info]:
        return mean_field.step(state, data, priors)

    return run_coordinate_ascent(
        init,
        step,
        rng=rng,
        extrapolation=squarem if accelerate else None,
        **options,
    )
