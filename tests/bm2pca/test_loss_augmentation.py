"""Margin factors of BM2PCA: the density of real targets, and missing targets."""

import numpy as np
import pytest

from bsdr_models.papers.bm2pca.loss_augmentation import margins_of

COST = 0.7
EPSILON = 0.3


def toy(kind):
    """A third of the targets missing; moments and scales of f."""
    rng = np.random.default_rng([41, 5])
    shape = (6, 3)
    known = rng.random(shape) > 0.3
    sign = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
    if kind == "signs":
        margins = margins_of(known * sign, COST, None)
    else:
        margins = margins_of(np.where(known, rng.standard_normal(shape), np.nan), COST, EPSILON)
    mean, variance = 1.5 * rng.standard_normal(shape), rng.uniform(0.01, 2.0, shape)
    scales = rng.uniform(0.3, 4.0, margins.scales(mean, variance).shape)
    assert not known.all()
    np.testing.assert_array_equal(margins.observed, known)
    return margins, mean, variance, scales


@pytest.mark.parametrize("cost", [0.7, 2.5])
def test_epsilon_insensitive_density_is_normalised(cost):
    """It depends on y - f, so its integral over f is that over y."""
    grid = np.linspace(-30.0, 30.0, 300_001)
    loss = margins_of(np.array([[0.4]]), cost, EPSILON)
    log_p = loss.log_factors(grid[:, None, None])
    assert np.trapezoid(np.exp(log_p), grid) == pytest.approx(1.0, rel=1e-7)
    inside = log_p[np.abs(grid - 0.4) < EPSILON - 1e-9]
    np.testing.assert_allclose(inside, inside[0], rtol=0.0, atol=1e-14)
    assert log_p.max() == pytest.approx(inside[0], abs=1e-14)


@pytest.mark.parametrize("kind", ["signs", "regression"])
def test_a_missing_target_has_no_factor(kind):
    margins, mean, variance, s = toy(kind)
    known = margins.observed
    assert np.all(margins.scales(mean, variance)[..., ~known] == 1.0)
    other, wild = np.where(known, mean, 1e3), np.where(known, s, 1e3)
    np.testing.assert_array_equal(
        margins.bound(other, variance, wild), margins.bound(mean, variance, s)
    )
