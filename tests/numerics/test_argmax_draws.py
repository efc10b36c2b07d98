"""Draws from the argmax region against quadrature: laws, moments, tails."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_trapezoid
from scipy.special import log_ndtr

from bsdr_models.papers import orthant

SIZE = 20_000

CASES = {
    "two labels": ([0.3, -0.4], 1),
    "middling": ([0.5, -1.0, 0.2], 0),
    "likely": ([6.0, 0.0, -1.0, 2.0], 0),
    "unlikely": ([0.0, 3.0, 2.5, -1.0], 3),
    "hopeless": ([-30.0, 10.0, 9.0, 0.0], 0),
    "one rival far above all": ([0.0, 200.0, 0.0], 2),
    "many equal": ([0.0] * 12, 5),
}


def draws_of(eta, label, *, seed=1, size=SIZE):
    rows = np.tile(np.asarray(eta, dtype=float), (size, 1))
    y = np.full(size, label)
    return orthant.draw_argmax(rows, y, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", CASES)
def test_label_always_has_the_largest_score(name):
    eta, label = CASES[name]
    t = draws_of(eta, label)
    assert np.isfinite(t).all()
    assert np.all(t[:, [label]] > np.delete(t, label, axis=1))


@pytest.mark.parametrize("name", CASES)
def test_largest_score_has_its_own_marginal_law(name):
    """Ranks of u = t_y - eta_y under phi(u) prod_j Phi(u + d_j), tabulated on a fine grid."""
    eta, label = CASES[name]
    u = draws_of(eta, label, seed=2)[:, label] - eta[label]
    grid = np.linspace(u.min() - 2.0, u.max() + 2.0, 40_001)
    margin = eta[label] - np.delete(eta, label)
    log_f = stats.norm.logpdf(grid) + log_ndtr(grid[:, None] + margin).sum(axis=1)
    cdf = cumulative_trapezoid(np.exp(log_f - log_f.max()), grid, initial=0.0)
    ranks = np.interp(u, grid, cdf / cdf[-1])
    assert stats.kstest(ranks, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_other_scores_are_normals_cut_at_the_largest(name):
    """Given t_y their ranks are uniform and independent of t_y and of each other."""
    eta, label = CASES[name]
    t = draws_of(eta, label, seed=3)
    top = t[:, label]
    ranks = [
        np.exp(log_ndtr(t[:, j] - eta[j]) - log_ndtr(top - eta[j]))
        for j in range(len(eta))
        if j != label
    ]
    for rank in ranks:
        assert stats.kstest(rank, "uniform").pvalue > 1e-4
    correlation = np.corrcoef([*ranks, stats.rankdata(top)])
    off = correlation[np.triu_indices(len(correlation), 1)]
    assert np.abs(off).max() < 5.0 / np.sqrt(SIZE)


@pytest.mark.parametrize("scale", [1e3, 1e5, 3e7, 1e8, 1e10, 1e14])
def test_scores_of_any_size_give_draws_without_ties(scale):
    rng = np.random.default_rng(6)
    eta = scale * rng.standard_normal((300, 5))
    y = rng.integers(5, size=300)
    t = orthant.draw_argmax(eta, y, rng=rng)
    assert np.isfinite(t).all()
    ordered = np.sort(t, axis=1)
    assert np.all(ordered[:, -1] > ordered[:, -2])
    np.testing.assert_array_equal(t.argmax(axis=1), y)


def test_chain_axes_are_rows():
    rng = np.random.default_rng(8)
    eta, y = rng.standard_normal((3, 2, 7, 4)), rng.integers(4, size=7)
    t = orthant.draw_argmax(eta, y, rng=np.random.default_rng(9))
    flat = orthant.draw_argmax(eta.reshape(-1, 4), np.tile(y, 6), rng=np.random.default_rng(9))
    assert t.shape == eta.shape
    np.testing.assert_array_equal(t.reshape(-1, 4), flat)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_means_that_are_not_numbers_give_nan_and_come_back(bad):
    eta = np.zeros((3, 4))
    eta[1, 2] = bad
    t = orthant.draw_argmax(eta, np.array([0, 2, 1]), rng=np.random.default_rng(10))
    assert not np.isfinite(t[1]).all()
    assert np.isfinite(t[[0, 2]]).all()
