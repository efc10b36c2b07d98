"""The evidence of an inverse Wishart scale, from its matrices and with repeated eigenvalues."""

import numpy as np
import pytest
from scipy import optimize, stats

from bsdr_models.bm2pca.within_class_metric import best_scale, effective_sizes, log_evidence


@pytest.mark.parametrize(("n", "d"), [(7, 3), (3, 7), (5, 5), (1, 1)])
def test_evidence_is_a_ratio_of_normalisers(n, d):
    """Likelihood times prior over posterior at any covariance, from SciPy's densities."""
    rng = np.random.default_rng(53)
    rows = rng.standard_normal((n, d))
    scatter, kappa = rows.T @ rows, 0.8
    cov = stats.invwishart(d + 2, np.eye(d)).rvs(random_state=rng).reshape(d, d)
    expected = stats.multivariate_normal(np.zeros(d), cov).logpdf(rows).sum()
    expected += stats.invwishart(d + 1, kappa * np.eye(d)).logpdf(cov)
    expected -= stats.invwishart(d + 1 + n, kappa * np.eye(d) + scatter).logpdf(cov)
    s = np.linalg.eigvalsh(scatter)[-min(n, d) :]
    assert log_evidence(kappa, s, np.ones(len(s)), n, d) == pytest.approx(expected, rel=1e-9)


def test_counts_are_repeated_eigenvalues():
    s, counts = np.array([0.3, 2.0, 9.0]), np.array([4.0, 1.0, 2.0])
    full, ones = np.repeat(s, counts.astype(int)), np.ones(7)
    assert best_scale(s, counts, 7, 20) == pytest.approx(best_scale(full, ones, 7, 20), rel=1e-10)
    assert log_evidence(0.5, s, counts, 7, 20) == pytest.approx(
        log_evidence(0.5, full, ones, 7, 20), rel=1e-12
    )


@pytest.mark.parametrize(("n", "d", "r"), [(40, 6, 6), (6, 40, 6), (500, 500, 500), (1, 1000, 1)])
def test_best_scale_is_the_top_of_the_evidence(n, d, r):
    s = np.random.default_rng(59).gamma(0.3, size=r) + 1e-6
    best = optimize.minimize_scalar(
        lambda u: -log_evidence(np.exp(u), s, np.ones(r), n, d),
        bounds=(-25.0, 10.0),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert np.log(best_scale(s, np.ones(r), n, d)) == pytest.approx(best.x, abs=1e-3)


def test_equal_eigenvalues_have_a_closed_form():
    """kappa / (kappa + s) is the same for all, so that kappa = s q / (1 - q)."""
    q = 1.0 - 6.0 / (4.0 + 1.0 + 6.0)
    assert best_scale(np.array([2.0]), np.array([4.0]), 6.0, 4.0) == pytest.approx(2 * q / (1 - q))


def test_large_sizes_and_an_infinite_scale_stay_in_range():
    s = np.linspace(1.0, 50.0, 300)
    assert np.isfinite(log_evidence(1.0, s, np.ones(300), 300, 100_000))
    assert log_evidence(np.inf, s, np.ones(300), 300, 1000) == -np.inf


def test_sizes_of_a_singular_scatter():
    assert effective_sizes(6.0, 20, 6) == (6.0, 20.0)
    assert effective_sizes(6.0, 20, 4) == (4.0, 20.0)
    assert effective_sizes(20.0, 6, 6) == (20.0, 6.0)
    assert effective_sizes(20.0, 6, 4) == (20.0, 4.0)
    assert effective_sizes(6.4, 20, 6) == (6.4, 20.0)
