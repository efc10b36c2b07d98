"""Width and noise of the mapping, chosen by samples that are left out of it."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from bsdr_models.arrays import IntArray
from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.fold_metric import Part
from bsdr_models.dgplvm.leave_one_out import leave_one_out, leave_out_tuples, whitened_indicators
from bsdr_models.dgplvm.priors import MAP_MEAN_VARIANCE, LogNormal
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.numerics.folds import evenly_spaced, stratified_subset

# Weak priors of the settings; without that of the width the choice is poor for many samples.
WIDTH_PRIOR = LogNormal(2.0, 0.5)

NOISE_PRIOR = LogNormal(0.03, 1.5)

# Maximum number of labelled samples for this choice, whose cost is cubic.
SETTING_SAMPLES = 1000


def subsample(y_index: IntArray, most: int) -> IntArray:
    """Indices of so many samples, labelled ones first, the same share of every class (N,)."""
    known = np.flatnonzero(y_index >= 0)
    unknown = np.flatnonzero(y_index < 0)
    n_others = max(most - len(known), 0)
    others = unknown[evenly_spaced(len(unknown), n_others)] if n_others else unknown[:0]
    return np.sort(np.append(known[stratified_subset(y_index[known], most)], others))


def choose_settings(
    problem: Problem, tuples: IntArray, parts: Sequence[Part] = ()
) -> tuple[float, float]:
    """Width g and noise lambda, relative to the variance of the smooth part, of the mapping.

    They minimise the penalised error of the left-out whitened class indicators, which are the
    latent coordinates of infinite weight. Samples are left out as they are of the classifier,
    by ``parts`` of all samples if these are known.
    """
    candidates = list(product(problem.mapping.widths, problem.mapping.noises))
    if len(candidates) == 1:
        return candidates[0]
    some = problem.known
    if len(some) > SETTING_SAMPLES:
        some = some[stratified_subset(problem.y_index[some], SETTING_SAMPLES)]
        tuples = leave_out_tuples(problem.y_index[some], problem.features[some])
    X = problem.X[some]
    y = problem.y_index[some]
    targets = whitened_indicators(y)
    weights = centroid_weights(y)
    if problem.metric is not None:
        parts = parts or problem.metric.take(some).parts()
    make = partial(make_mapping, mean_variance=MAP_MEAN_VARIANCE)

    def loss(settings: tuple[float, float]) -> float:
        width, noise = settings
        own = partial(make, width=width, noise=noise)
        if parts:
            folds = (part.fold(y, own) for part in parts)
            residual = [targets[fold.left_out] - fold.predict(targets) for fold in folds]
        else:
            residual = [targets - leave_one_out(own(X, weights), targets, y, tuples).latent]
        square = np.concatenate(residual) ** 2
        error = 0.5 * problem.share * square.size * np.log(square.mean())
        penalty, _ = WIDTH_PRIOR.negative_log_density(np.log(width))
        return float(error) + penalty + NOISE_PRIOR.negative_log_density(np.log(noise))[0]

    return min(candidates, key=loss)
