"""BM2PCA as printed, by steps of mean field; held-out samples choose C and the number of sweeps.

At convergence of the bound latent coordinates of training samples follow their labels, those of
new samples cannot, and predictions are worse than after a few sweeps.
"""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.methods import tempered
from benchmarks.methods.base import Fitted, Method
from benchmarks.protocols import Training
from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.numerics.row_space import as_dense
from bsdr_models.papers.bm2pca import mean_field

# Slopes C of the hinge in Figs. 2 and 3 of Du et al. (2015), and those among which one is chosen.
COSTS = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
SEARCHED = (5.0, 10.0, 20.0, 50.0)
SWEEPS = (1, 2, 5, 20)
# The bound still rises after as many, but accuracy changes by less than .03.
MANY_SWEEPS = 100


def scores(
    rows: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    *,
    cost: float,
    n_sweeps: int,
    size: int,
    seed: int,
    shared: bool,
) -> np.ndarray:
    """Mean class scores (M, K) of new samples, a single column for two classes.

    Every class has a subspace of its own, or all share one.
    """
    signs = tempered.signs(y)
    parts = [signs] if shared else list(signs.T[:, :, None])
    found = [_scores(rows, part, new, cost, n_sweeps, size, seed) for part in parts]
    return np.concatenate(found, axis=1)


def _scores(
    rows: np.ndarray,
    signs: np.ndarray,
    new: np.ndarray,
    cost: float,
    n_sweeps: int,
    size: int,
    seed: int,
) -> np.ndarray:
    data = mean_field.make_data(rows, signs, cost)
    rng = np.random.default_rng(seed)
    state = mean_field.init(data, PAPER, n_components=size, rng=rng)
    for _ in range(n_sweeps):
        state = mean_field.sweep(state, data, PAPER)
    model = FactorModel.of(state.views, data.views, data.columns)
    coef, intercept = model.effects(state.weights.mean)
    return new @ coef + intercept


def settings(
    r: int, seed: int, *, costs: tuple[float, ...], sweeps: tuple[int, ...], shared: bool
) -> list[tempered.Machine]:
    """One for each cost and number of sweeps."""
    return [
        partial(scores, cost=cost, n_sweeps=n, size=r, seed=seed, shared=shared)
        for cost, n in product(costs, sweeps)
    ]


def fit(training: Training, n_components: int, seed: int, **arguments: Any) -> Fitted:
    """Of dense samples; a rotation to fewer coordinates would change the noise per feature."""
    dense = replace(training, X=as_dense(training.X))
    choose = partial(settings, **arguments)
    fitted = tempered.fit(dense, n_components, seed, settings=choose, rotated=False)
    return replace(fitted, predict=lambda new: fitted.predict(as_dense(new)))


ARGUMENTS: dict[str, dict[str, Any]] = {
    "paper, one-vs-rest": {"costs": SEARCHED, "sweeps": SWEEPS, "shared": False},
    "paper, one-vs-rest, C = 10, 100 sweeps": {
        "costs": (10.0,),
        "sweeps": (MANY_SWEEPS,),
        "shared": False,
    },
    "paper, shared": {"costs": SEARCHED, "sweeps": SWEEPS, "shared": True},
    **{
        f"paper, one-vs-rest, C = {cost:g}": {"costs": (cost,), "sweeps": SWEEPS, "shared": False}
        for cost in COSTS
    },
}
METHODS = {
    name: Method(
        fit=partial(fit, **arguments),
        modules=("benchmarks.methods.margins",),
        configuration=arguments,
    )
    for name, arguments in ARGUMENTS.items()
}
