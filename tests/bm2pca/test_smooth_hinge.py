"""The smoothed hinge against plain sums."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bsdr_models.bm2pca.subspace import multiclass_hinge, smooth_hinge


def test_sums_are_those_of_the_labelled_entries():
    rng = np.random.default_rng(0)
    scores, square = rng.normal(size=(30, 4)), rng.random(4)
    Y = rng.choice([-1.0, 0.0, 1.0], size=(30, 4))
    gap = 1.0 - Y * scores
    width = np.sqrt(gap**2 + square)

    got = smooth_hinge(scores, Y, square)
    assert_allclose(got.total, (gap + width)[Y != 0.0].sum(), rtol=1e-13)
    assert_allclose(got.slope, Y * (1.0 + gap / width), rtol=1e-13)
    assert_allclose(got.variance_slope, np.sum((Y != 0.0) / width, axis=0), rtol=1e-13)


@pytest.mark.parametrize("loss", [smooth_hinge, multiclass_hinge])
def test_slopes_are_the_derivatives(loss):
    rng = np.random.default_rng(1)
    scores, square = 2.0 * rng.normal(size=(5, 3)), np.array([0.3, 1e-4, 0.7])
    Y = np.where(np.arange(3) == np.array([0, 1, 2, 1, 0])[:, None], 1.0, -1.0)
    Y[1, 2], Y[4] = 0.0, 0.0
    got, step = loss(scores, Y, square), 1e-6
    for entry in np.ndindex(scores.shape):
        shift = np.zeros(scores.shape)
        shift[entry] = step
        up, down = (loss(scores + s * shift, Y, square).total for s in (1.0, -1.0))
        assert_allclose((down - up) / (2.0 * step), got.slope[entry], atol=1e-6)
    for label, shift in enumerate(1e-2 * step * np.eye(3)):
        up, down = (loss(scores, Y, square + s * shift).total for s in (1.0, -1.0))
        assert_allclose((up - down) / (1e-2 * step), got.variance_slope[label], atol=1e-4)


def test_hinge_of_all_classes_bounds_its_mean_over_scores_and_the_hinge():
    rng = np.random.default_rng(2)
    scores, square = np.array([[1.0, 0.5, -2.0], [0.3, -1.0, 0.0]]), np.array([0.5, 0.2, 1.0])
    Y = np.array([[1.0, -1.0, -1.0], [-1.0, -1.0, 1.0]])
    draws = scores + np.sqrt(square) * rng.standard_normal((100_000, 2, 3))
    own = np.take_along_axis(draws, np.array([[[0], [2]]]), axis=2)
    inside = draws - own + (Y < 0.0)
    mean = np.log(np.exp(inside).sum(axis=2)).sum(axis=1).mean()
    found = multiclass_hinge(scores, Y, square).total
    assert inside.max(axis=2).sum(axis=1).mean() < mean < found < mean + 1.0
    assert multiclass_hinge(scores, 0.0 * Y, square).total == 0.0


def test_a_sample_on_its_margin_is_no_exception():
    Y = np.array([[1.0, -1.0], [-1.0, 1.0]])
    got = smooth_hinge(Y, Y, np.zeros(2))
    assert np.isfinite(got.slope).all()
    assert_allclose(got.total, 0.0, atol=1e-140)
