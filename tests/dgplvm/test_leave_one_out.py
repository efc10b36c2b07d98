"""Leave-one-out latent coordinates against a mapping without the samples."""

import numpy as np
import pytest
from bsdr_models.dgplvm.leave_one_out import (
    MIN_SLOPE,
    LeaveOneOutFit,
    enforce_centroid_order,
    leave_folds_out,
    leave_one_out,
    leave_out_tuples,
    mapping_scale,
    whitened_indicators,
)

from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping


def condition(prior, latent, left, row):
    """Conditional mean and variance of a sample given all but some, by dense algebra."""
    root = prior.root(np.eye(len(prior.raw(latent))))
    K, mean = root @ root.T, prior.mean_weights @ latent
    kept = np.setdiff1d(np.arange(len(latent)), left)
    weights = np.linalg.solve(K[np.ix_(kept, kept)], K[kept, row])
    variance = K[row, row] - weights @ K[kept, row]
    return mean + weights @ (latent[kept] - mean), variance


def test_leave_one_out_matches_a_mapping_without_the_samples(problem):
    X, y = problem
    y = y.copy()
    y[[2, 9]] = -1
    rng = np.random.default_rng(1)
    latent = rng.standard_normal((len(X), 2))
    options = {"width": 2.0, "noise": 0.05, "mean_variance": 0.3}
    prior = make_mapping(X, centroid_weights(y), **options)
    tuples = leave_out_tuples(y, X)
    found = leave_one_out(prior, latent, y, tuples)
    for i, sets in enumerate(tuples):
        row = sets[0, 0]
        each = [condition(prior, latent, left, row) for left in sets]
        mean = np.mean([mean for mean, _ in each], axis=0)
        # The variance given the samples outside the tuple.
        variance = np.mean([variance for _, variance in each])
        np.testing.assert_allclose(found.latent[row], mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.variance[row], variance, rtol=1e-8)
        assert row == np.flatnonzero(y >= 0)[i]
    np.testing.assert_array_equal(found.latent[[2, 9]], latent[[2, 9]])


def test_a_tuple_has_the_sample_first_and_one_sample_of_every_other_class(problem):
    X, y = problem
    tuples = leave_out_tuples(y, X)
    assert tuples.shape == (len(y), 20, 3)
    np.testing.assert_array_equal(tuples[:, :, 0], np.arange(len(y))[:, None].repeat(20, axis=1))
    assert np.all(np.sort(y[tuples], axis=2) == np.arange(3))


def test_order_of_samples_and_names_of_classes_do_not_change_tuples(problem):
    X, y = problem
    tuples = leave_out_tuples(y, X)
    order = np.random.default_rng(0).permutation(len(y))
    again = order[leave_out_tuples((y[order] + 1) % 3, X[order])]
    np.testing.assert_array_equal(np.sort(again, axis=2), np.sort(tuples[order], axis=2))


def test_reversed_centroids_are_shifted_back():
    y = np.array([0, 0, 1, 1, -1])
    latent = np.array([-1.0, -1.0, 1.0, 1.0, 0.0])[:, None]
    reverse = LeaveOneOutFit(latent=-0.5 * latent, variance=y >= 0, slope=-0.5, slope_se=0.1)
    assert reverse.predictive  # few samples cannot tell
    shifted = enforce_centroid_order(reverse, latent, y)
    np.testing.assert_allclose(shifted[:4], MIN_SLOPE * latent[:4])
    assert shifted[4] == 0.0
    ahead = LeaveOneOutFit(latent=0.9 * latent, variance=y >= 0, slope=0.9, slope_se=0.1)
    assert enforce_centroid_order(ahead, latent, y) is ahead.latent


def test_many_samples_are_not_shifted():
    y = np.arange(60) % 2
    latent = np.where(y == 0, -1.0, 1.0)[:, None]
    reverse = LeaveOneOutFit(latent=-0.5 * latent, variance=np.ones(60), slope=-0.5, slope_se=0.1)
    assert not reverse.predictive
    assert enforce_centroid_order(reverse, latent, y) is reverse.latent


@pytest.mark.parametrize("grouped", [False, True])
def test_slope_of_centroids_and_its_error(grouped):
    """The slope is a sum over samples, whose error is that of sums over groups."""
    rng = np.random.default_rng(7)
    y = rng.permutation(np.repeat([0, 1, 2, -1], [5, 9, 16, 4]))
    X = rng.standard_normal((len(y), 4)) + y[:, None]
    groups = rng.integers(0, 12, len(y)) if grouped else None
    latent = whitened_indicators(y)
    prior = make_mapping(X, centroid_weights(y), width=2.0, noise=0.1, mean_variance=0.3)
    some = np.flatnonzero(y >= 0)
    tuples = some[leave_out_tuples(y[some], X[some])]
    fit = leave_one_out(prior, latent, y, tuples)
    if groups is not None:
        fit = leave_folds_out(fit.latent, fit.variance, latent, y, (), groups)

    def centred(values):
        means = np.stack([values[y == c].mean(axis=0) for c in range(3)])
        return means - means.mean(axis=0)

    fitted = centred(latent)
    assert fit.slope == pytest.approx(np.sum(centred(fit.latent) * fitted) / np.sum(fitted**2))
    centre = np.mean([fit.latent[y == c].mean(axis=0) for c in range(3)], axis=0)
    size = np.bincount(y[some])
    terms = {
        i: (fit.latent[i] - centre) @ fitted[y[i]] / size[y[i]] / np.sum(fitted**2) for i in some
    }
    unit = {i: groups[i] if grouped else i for i in some}
    sums = [
        sum(terms[i] - fit.slope / len(some) for i in some if unit[i] == own)
        for own in set(unit.values())
    ]
    assert fit.slope_se == pytest.approx(np.std(sums, ddof=1) * np.sqrt(len(sums)))


def test_scale_of_draws_of_the_mapping_is_recovered():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = np.arange(400) % 2
    prior = make_mapping(X, centroid_weights(y), width=1.0, noise=0.1, mean_variance=1e-6)
    latent = np.sqrt(3.7) * prior.root(rng.standard_normal((400, 1)))
    fit = leave_one_out(prior, latent, y, leave_out_tuples(y, X))
    # 400 squares, correlated a little: 4 standard errors of a mean of 200 independent ones.
    assert mapping_scale(fit, latent, y) == pytest.approx(3.7, rel=4 * np.sqrt(2 / 200))
