r"""Real targets: density of the epsilon-insensitive loss, and choice of C and epsilon.

.. math::
    p(y \mid f) = e^{-2 C \max(0, |y - f| - \epsilon)} / (2 \epsilon + 1 / C)

is normalised, unlike the margin factors of a classifier, so C and epsilon may be chosen by the
evidence lower bound, or by held-out squared errors. All candidates are fitted at once, by a fixed
number of plain sweeps.
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.paper import fit as paper
from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.mean_field import Data, State
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.parallel import run_tasks

# Candidates, for outputs of unit variance, and the default setting.
COSTS = (1.0, 2.0, 4.0, 8.0, 16.0)
EPSILONS = (0.0, 0.1, 0.3)
COST, EPSILON = 3.0, 0.1
# Sweeps of a comparison, enough for held-out errors to converge.
SWEEPS = 50
# Pseudo-samples that are predicted as believed, which regularise the calibration for few samples.
PSEUDO_SAMPLES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGrid:
    """Candidate pairs ``settings`` of C and epsilon.

    ``criterion`` is ``"bound"``, ``"cv"``, or None for a single setting.
    """

    settings: tuple[tuple[float, float], ...]
    criterion: str | None

    @property
    def costs(self) -> tuple[float, ...]:
        """C of every setting."""
        return tuple(cost for cost, _ in self.settings)

    @property
    def epsilons(self) -> FloatArray:
        """Epsilon of every setting, (G, 1, 1)."""
        return np.array([epsilon for _, epsilon in self.settings])[:, None, None]

    @property
    def fallback(self) -> tuple[float, float]:
        """The candidate nearest to the default."""
        return min(self.settings, key=lambda each: abs(each[0] - COST) + abs(each[1] - EPSILON))


def make_loss_grid(C: float | str, epsilon: float | str) -> LossGrid:
    """Candidates for the arguments of a regressor."""
    criteria = [value for value in (C, epsilon) if isinstance(value, str)]
    costs = COSTS if isinstance(C, str) else (float(C),)
    epsilons = EPSILONS if isinstance(epsilon, str) else (float(epsilon),)
    return LossGrid(
        settings=tuple((c, w) for c in costs for w in epsilons),
        criterion=criteria[0] if criteria else None,
    )


def noise_variance(cost: float | FloatArray, epsilon: float | FloatArray) -> FloatArray:
    r"""Variance of y about f.

    .. math::
        \frac{2 \epsilon^3 / 3 + \epsilon^2 / C + \epsilon / C^2 + 1 / (2 C^3)}{2 \epsilon + 1 / C}
    """
    c, e = np.asarray(cost), np.asarray(epsilon)
    total = 2.0 * e**3 / 3.0 + e**2 / c + e / c**2 + 0.5 / c**3
    return np.asarray(total / (2.0 * e + 1.0 / c))


def _ascend(task: Task, grid: LossGrid, rng: np.random.Generator) -> tuple[State, Data, Task]:
    """State of every setting after ``SWEEPS`` sweeps from common initial values."""
    wide = replace(task, epsilon=grid.epsilons)
    data = paper.make_data(wide, grid.costs)
    state = mean_field.init(
        data, task.priors, n_components=task.n_components, rng=rng, start=task.start
    )
    for _ in range(SWEEPS):
        state = mean_field.sweep(state, data, task.priors)
    return state, data, wide


def bounds(task: Task, grid: LossGrid, rng: np.random.Generator) -> FloatArray:
    """Evidence lower bound of every setting, (G,)."""
    state, data, _ = _ascend(task, grid, rng)
    return sum(
        mean_field.bound_terms(state, data, task.priors).values(), np.zeros(len(grid.settings))
    )


def held_out(
    task: Task,
    grid: LossGrid,
    fold: IntArray,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = 1,
) -> tuple[FloatArray, FloatArray]:
    """Predictive mean and variance of held-out samples, each (G, N, K).

    They are NaN for samples that are never held out, with -1 in ``fold`` (N,). Raise
    KeyboardInterrupt if the user stops the comparison.
    """
    shape = (len(grid.settings), *task.Y.shape)
    mean, variance = np.full(shape, np.nan), np.full(shape, np.nan)
    numbers = np.unique(fold[fold >= 0])

    def moments(own: tuple[int, np.random.Generator]) -> tuple[FloatArray, FloatArray]:
        number, stream = own
        state, data, part = _ascend(task.subset(np.flatnonzero(fold != number)), grid, stream)
        posterior = paper.margin_posterior(state, data, part)
        return posterior.score_moments(task.X[fold == number])

    arguments = list(zip(numbers.tolist(), rng.spawn(len(numbers)), strict=True))
    outcome = run_tasks(moments, arguments, n_jobs=n_jobs, what="folds")
    if outcome.interrupted:
        raise KeyboardInterrupt
    for index, values in outcome.results.items():
        test = np.flatnonzero(fold == numbers[index])
        for found, own in zip((mean, variance), values, strict=True):
            found[:, test] = np.moveaxis(own.reshape(len(test), shape[0], -1), 1, 0)
    return mean, variance + noise_variance(np.array(grid.costs)[:, None, None], grid.epsilons)


def squared_errors(Y: FloatArray, mean: FloatArray) -> FloatArray:
    """Held-out mean squared error of every setting, (G,)."""
    square = (Y - mean) ** 2
    return np.array([each[~np.isnan(each)].mean() for each in square])


def calibration(
    Y: FloatArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Calibration slopes, and factors of the standard deviations, from held-out predictions.

    Parameters
    ----------
    Y, mean, variance : (N, K)
        NaN without a target or a prediction.

    Returns
    -------
    slope : (K,)
        Of the regression of targets on predictions, at least 0.
    factor : (K,)
        Scales standard deviations to the size of the residuals of this regression.
    """
    known = ~np.isnan(Y - mean)
    Y, mean, variance = (np.where(known, each, 0.0) for each in (Y, mean, variance))
    product, square = np.sum(Y * mean, axis=0), np.sum(mean**2, axis=0)
    slope = np.maximum((product + PSEUDO_SAMPLES) / (square + PSEUDO_SAMPLES), 0.0)
    residual = (Y - slope * mean) ** 2
    ratio = np.sum(np.divide(residual, variance, out=np.zeros_like(Y), where=known), axis=0)
    return slope, np.sqrt((ratio + PSEUDO_SAMPLES) / (known.sum(axis=0) + PSEUDO_SAMPLES))
