"""Leave-out positions against a map that never saw the rows."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bsdr_models.dgplvm.back_constraint import DenseMapping, LowRankMapping, centroid_weights
from bsdr_models.dgplvm.leave_one_out import (
    MIN_SLOPE,
    LeaveOneOutFit,
    enforce_centroid_order,
    leave_one_out,
    leave_out_tuples,
    mapping_scale,
    minimum_slope,
)


def condition(prior, latent, left, row):
    """Position of a row given all but some, by dense algebra on the prior covariance."""
    root = prior.root(np.eye(prior.n_raw))
    K, mean = root @ root.T, prior.mean_weights @ latent
    kept = np.setdiff1d(np.arange(len(latent)), left)
    weights = np.linalg.solve(K[np.ix_(kept, kept)], K[kept, row])
    variance = K[row, row] - weights @ K[kept, row]
    return mean + weights @ (latent[kept] - mean), variance


@pytest.mark.parametrize("few", [False, True])
def test_positions_are_those_of_a_map_without_the_rows(few, problem):
    X, y = problem
    y = y.copy()
    y[[2, 9]] = -1
    rng = np.random.default_rng(1)
    latent = rng.standard_normal((len(X), 2))
    options = {"width": 2.0, "noise": 0.05, "mean_variance": 0.3}
    weights = centroid_weights(y, 3)
    prior = (
        LowRankMapping.of(X, weights, X[:6], **options)
        if few
        else DenseMapping.of(X, weights, **options)
    )
    tuples = leave_out_tuples(y, 3)
    found = leave_one_out(prior, latent, y, tuples)
    for i, sets in enumerate(tuples):
        row = sets[0, 0]
        each = [condition(prior, latent, left, row) for left in sets]
        position = np.mean([position for position, _ in each], axis=0)
        # The variance of a row given the rest, its tuple unknown: that of the row in M_II^-1.
        variance = np.mean([variance for _, variance in each])
        np.testing.assert_allclose(found.latent[row], position, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.variance[row], variance, rtol=1e-8)
        assert row == np.flatnonzero(y >= 0)[i]
    np.testing.assert_array_equal(found.latent[[2, 9]], latent[[2, 9]])


def test_a_tuple_holds_one_row_of_every_class_and_the_row_itself_first(problem):
    _, y = problem
    tuples = leave_out_tuples(y, 5)  # classes 3 and 4 have no row
    assert tuples.shape == (len(y), 20, 3)
    np.testing.assert_array_equal(tuples[:, :, 0], np.arange(len(y))[:, None].repeat(20, axis=1))
    assert np.all(np.sort(y[tuples], axis=2) == np.arange(3))


def test_tuples_are_the_same_every_time(problem):
    _, y = problem
    np.testing.assert_array_equal(leave_out_tuples(y, 3), leave_out_tuples(y, 3))


def test_classes_in_reverse_are_shifted_back():
    y = np.array([0, 0, 1, 1, -1])
    latent = np.array([-1.0, -1.0, 1.0, 1.0, 0.0])[:, None]
    reverse = LeaveOneOutFit(latent=-0.5 * latent, variance=np.ones(5), slope=-0.5)
    assert not reverse.predictive
    shifted = enforce_centroid_order(reverse, latent, y)
    np.testing.assert_allclose(shifted[:4], MIN_SLOPE * latent[:4])
    assert shifted[4] == 0.0
    ahead = LeaveOneOutFit(latent=0.9 * latent, variance=np.ones(5), slope=0.9)
    assert enforce_centroid_order(ahead, latent, y) is ahead.latent


def test_little_is_granted_to_a_map_of_many_rows():
    assert minimum_slope(4) == minimum_slope(10) == MIN_SLOPE
    y = np.arange(60) % 2
    latent = np.where(y == 0, -1.0, 1.0)[:, None]
    nothing = LeaveOneOutFit(latent=0.0 * latent, variance=np.ones(60), slope=0.0)
    believed = enforce_centroid_order(nothing, latent, y, minimum_slope(60))
    np.testing.assert_allclose(believed, MIN_SLOPE / 36 * latent)


def test_the_scale_of_draws_of_the_map_is_found():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = np.arange(400) % 2
    prior = DenseMapping.of(X, centroid_weights(y, 2), width=1.0, noise=0.1, mean_variance=1e-6)
    latent = np.sqrt(3.7) * prior.root(rng.standard_normal((400, 1)))
    fit = leave_one_out(prior, latent, y, leave_out_tuples(y, 2))
    # 400 squares, correlated a little: 4 standard errors of a mean of 200 independent ones.
    assert mapping_scale(fit, latent, y) == pytest.approx(3.7, rel=4 * np.sqrt(2 / 200))


def test_pure_noise_is_not_predicted():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 200)), np.arange(60) % 3
    prior = DenseMapping.of(X, centroid_weights(y, 3), width=2.0, noise=0.03, mean_variance=0.3)
    latent = np.eye(3)[y][:, :2] * 2.0
    fit = leave_one_out(prior, latent, y, leave_out_tuples(y, 3))
    assert not fit.predictive
    assert cdist(fit.latent[:1], latent[:1]).item() > 0.5
