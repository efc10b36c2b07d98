"""The smoothed hinge against plain sums."""

import numpy as np
from numpy.testing import assert_allclose

from bsdr_models.bm2pca.label_free.smooth_hinge import smooth_hinge


def test_sums_are_those_of_the_labelled_entries():
    rng = np.random.default_rng(0)
    scores, square = rng.normal(size=(30, 4)), rng.random(4)
    Y = rng.choice([-1.0, 0.0, 1.0], size=(30, 4))
    gap = 1.0 - Y * scores
    width = np.sqrt(gap**2 + square)

    got = smooth_hinge(scores.copy(), Y, square)
    assert_allclose(got.total, (gap + width)[Y != 0.0].sum(), rtol=1e-13)
    assert_allclose(got.slope, Y * (1.0 + gap / width), rtol=1e-13)
    assert_allclose(got.inverse_width, np.sum((Y != 0.0) / width, axis=0), rtol=1e-13)


def test_the_slope_is_the_derivative():
    rng = np.random.default_rng(1)
    scores, Y, square = rng.normal(size=(5, 2)), np.ones((5, 2)), np.array([0.3, 1e-4])
    got, step = smooth_hinge(scores.copy(), Y, square), 1e-6
    for entry in np.ndindex(scores.shape):
        shift = np.zeros(scores.shape)
        shift[entry] = step
        up, down = (smooth_hinge(scores + s * shift, Y, square).total for s in (1.0, -1.0))
        assert_allclose((down - up) / (2.0 * step), got.slope[entry], atol=1e-6)


def test_a_sample_on_its_margin_and_layouts_are_no_exception():
    Y = np.array([[1.0, -1.0], [-1.0, 1.0]])
    got = smooth_hinge(np.asfortranarray(Y.copy()), np.asfortranarray(Y), np.zeros(2))
    assert np.isfinite(got.slope).all()
    assert_allclose(got.total, 0.0, atol=1e-140)
