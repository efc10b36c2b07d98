"""Mean-field fits of the paper's model by coordinate ascent and joint L-BFGS searches."""

from typing import Any

import numpy as np

from bsdr_models.bsdr.paper import joint_lbfgs, mean_field
from bsdr_models.bsdr.paper.data import Data
from bsdr_models.bsdr.paper.mean_field import Start, State
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
    **options: Any,
) -> FitResult[State]:
    """Maximise the bound by sweeps, each after a search by `joint_lbfgs`.

    ``start`` is that of the first restart, further ones are random; ``options`` are those of
    `run_coordinate_ascent`.
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
        joint_search=joint_search,
        **options,
    )
