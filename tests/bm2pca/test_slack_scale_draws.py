"""Draws of slack scales, GIG(1/2, 1, s**2), against its distribution function."""

import numpy as np
import pytest
from scipy import stats

from bsdr_models.bm2pca.paper.gibbs import draw_slack_scale


@pytest.mark.parametrize("s", [0.0, 1e-12, 1e-4, 0.2, 1.0, 30.0, 1e3])
def test_draws_have_their_law(s):
    draws = draw_slack_scale(np.full(20_000, s), rng=np.random.default_rng(11))
    assert np.all(draws > 0.0)
    if s < 1e-6:
        cdf = stats.chi2(1).cdf
    else:

        def cdf(x):
            return stats.invgauss.sf(1.0 / x, 1.0 / s)

    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_reciprocals_of_large_mean_keep_their_digits():
    """1 / lambda is inverse Gaussian of mean 1 / s; NumPy's own draws lose it."""
    mean, n = 1e12, 50_000
    ours = 1.0 / draw_slack_scale(np.full(n, 1.0 / mean), rng=np.random.default_rng(13))
    numpys = np.random.default_rng(13).wald(mean, 1.0, size=n)
    assert len(np.unique(ours)) > 0.999 * n
    assert len(np.unique(numpys)) < 0.9 * n
    assert stats.kstest(ours, stats.invgauss(mean).cdf).pvalue > 1e-3
