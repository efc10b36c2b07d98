"""The objective: a density of some samples, whitening, and invariance."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import inv, sqrtm
from sklearn.preprocessing import scale

from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.left_out import whitened_indicators
from bsdr_models.dgplvm.map_search import find_mode
from bsdr_models.dgplvm.priors import DGPLVMOptimization, DGPLVMPriors
from bsdr_models.dgplvm.problem import FeatureGram, WellPosedObjective, make_criterion, whiten

LOG_KERNEL = np.array([-1.0, 0.02, -0.4])


def make_objective(X, y, modelled=slice(None)):
    part = X[modelled]
    gram = FeatureGram.of(part - part.mean(axis=0))
    mapping = make_mapping(X, centroid_weights(y), width=1.5, noise=0.07, mean_variance=0.3)
    return WellPosedObjective(
        gram=gram,
        mapping=mapping,
        root=mapping.factor,
        criterion=make_criterion("trace_ratio", y),
        weight=7.0,
        known=np.flatnonzero(y >= 0),
        parameter_priors=DGPLVMPriors().kernel,
        n_components=2,
        temper=gram.temper,
        modelled=modelled,
    )


def test_gradient_with_a_density_of_some_samples(problem, differences):
    X, y = problem
    objective = make_objective(X, y, np.arange(0, len(X), 3))
    raw = np.random.default_rng(0).standard_normal((len(X), 2))
    x = objective.pack(raw, LOG_KERNEL)
    expected = differences(lambda v: objective(v)[0], x)
    np.testing.assert_allclose(objective(x)[1], expected, atol=1e-7 * np.abs(expected).max())


def test_whitened_latent_coordinates_are_a_symmetric_square_root(problem):
    X, y = problem
    rng = np.random.default_rng(2)
    raw = rng.standard_normal((len(X), 3))
    known = np.flatnonzero(y > 0)
    white = whiten(raw, known)[0]
    centred = raw - raw[known].mean(axis=0)
    cov = centred[known].T @ centred[known] / len(known)
    np.testing.assert_allclose(white, centred @ inv(sqrtm(cov)).real, atol=1e-10)
    np.testing.assert_allclose(white[known].T @ white[known] / len(known), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(whiten(white, known)[0], white, atol=1e-10)


def test_invariant_to_scale_shift_and_rotation_of_raw_coordinates(problem):
    X, y = problem
    objective = make_objective(X, y)
    rng = np.random.default_rng(4)
    raw = rng.standard_normal((len(X), 2))
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    value = objective(objective.pack(raw, LOG_KERNEL))[0]
    shear, shift = np.array([[2.0, 1.0], [0.0, 0.5]]), np.array([5.0, -2.0])
    for moved in (1e-6 * raw, 1e6 * raw, raw + shift, raw @ turn, raw @ shear @ turn):
        same = objective(objective.pack(moved, LOG_KERNEL))[0]
        assert same == pytest.approx(value, rel=1e-10)


def test_search_in_conditioned_coordinates_ends_at_the_same_mode_sooner(wine):
    X, _, y, _ = wine
    objective = replace(make_objective(scale(X), y), weight=500.0)
    start = objective.mapping.shrink_towards_loo(whitened_indicators(y))
    conditioned = objective.conditioned(start)
    value, same = (own(own.pack(start, LOG_KERNEL))[0] for own in (objective, conditioned))
    assert same == pytest.approx(value, rel=1e-10)
    options = DGPLVMOptimization()
    first, second = (find_mode(own, [start], options).search for own in (objective, conditioned))
    assert second.value == pytest.approx(first.value, abs=1e-4)
    assert len(second.trace) < 0.7 * len(first.trace)


def test_rank_deficient_latent_coordinates_raise(problem):
    X, y = problem
    objective = make_objective(X, y)
    raw = np.outer(np.arange(len(X)), [1.0, 2.0])
    with pytest.raises(np.linalg.LinAlgError, match="span"):
        objective(objective.pack(raw, LOG_KERNEL))
