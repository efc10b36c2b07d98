"""Margin factors of BM2PCA: the density of real targets, and missing targets."""

import numpy as np
import pytest

from bsdr_models.papers.bm2pca.loss_augmentation import margins_of

EPSILON = 0.3


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


@pytest.mark.parametrize(("case", "missing"), [("shared", 0.0), ("regression shared", np.nan)])
def test_a_missing_target_has_no_factor(lab, case, missing):
    problem, rng = lab.make_problem(case), np.random.default_rng(41)
    known = problem.known
    assert not known.all()
    margins = margins_of(np.where(known, problem.y, missing), problem.cost, problem.epsilon)
    np.testing.assert_array_equal(margins.observed, known)
    mean = 1.5 * rng.standard_normal(known.shape)
    variance = rng.uniform(0.01, 2.0, known.shape)
    s = rng.uniform(0.3, 4.0, margins.scales(mean, variance).shape)
    assert np.all(margins.scales(mean, variance)[..., ~known] == 1.0)
    other, wild = np.where(known, mean, 1e3), np.where(known, s, 1e3)
    np.testing.assert_array_equal(
        margins.bound(other, variance, wild), margins.bound(mean, variance, s)
    )
