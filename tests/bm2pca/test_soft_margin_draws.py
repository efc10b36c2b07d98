"""Draws of a classifier on one uncertain input against its posterior on a grid.

The precision of (e_0, e) integrates out to a Student t, so expectations are sums over a grid.
"""

import mpmath
import numpy as np
import pytest
from scipy import stats

from bsdr_models.papers.bm2pca import soft_margin_draws
from bsdr_models.papers.bm2pca.soft_margin_draws import draw_scores, draw_slices, log_masses

N = 6
SHAPE, RATE = 3.0, 2.0
COST = 1.6
KINDS = ("hinge", "shared")


def make_scores(kind):
    rng = np.random.default_rng(41)
    mean = 1.5 * rng.standard_normal((N, 1))
    cov = np.full((1, 1, 1), 0.4) if kind == "shared" else rng.uniform(0.05, 1.0, (N, 1, 1))
    y = np.where(mean[:, 0] + rng.standard_normal(N) > 0.0, 1.0, -1.0)
    y[0] = 0.0  # a sample without a label
    return mean, cov, y


def grid_expectations(kind):
    """Expectations of bounded functions, with weights beyond the grid's reach left out."""
    mean, cov, sign = make_scores(kind)
    # tan covers the plane; its derivative is part of the sum.
    angle = (np.arange(300) + 0.5) / 300 * np.pi - 0.5 * np.pi
    x, jacobian = 1.5 * np.tan(angle), np.log(1.0 + np.tan(angle) ** 2)
    e0, e = np.meshgrid(x, x, indexing="ij")
    square = e0**2 + e**2
    # nu integrated out: 2 SHAPE degrees of freedom in two dimensions.
    log_p = -(SHAPE + 1.0) * np.log(RATE + 0.5 * square)
    log_p += jacobian[:, None] + jacobian[None]
    covs = np.broadcast_to(cov, (N, 1, 1))
    for n in range(N):
        centre = e0 + e * mean[n, 0]
        sd = np.abs(e) * np.sqrt(covs[n, 0, 0])
        log_p += np.logaddexp(*log_masses(centre, sd, sign[n], COST))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    return {name: (p * value).sum() for name, value in bounded(e0, e, square).items()}


def bounded(e0, e, square):
    return {
        "e > 1": e > 1.0,
        "e0 > 0": e0 > 0.0,
        "tanh e": np.tanh(e),
        "tanh e0": np.tanh(e0),
        "tanh e tanh e0": np.tanh(e) * np.tanh(e0),
        "size": np.exp(-np.sqrt(square)),
        "far": square > 1.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_their_posterior_on_a_grid(kind):
    rng = np.random.default_rng([42, KINDS.index(kind)])
    c = 4000
    mean, cov, sign = make_scores(kind)
    scores = soft_margin_draws.Scores(
        mean=np.tile(mean, (c, 1, 1)),
        cov=np.tile(cov, (c, 1, 1, 1)),
        sign=sign,
        cost=np.array(COST),
    )
    eta, nu = rng.standard_normal((c, 2)), np.ones(c)
    for _ in range(25):
        eta, nu, _ = soft_margin_draws.draw_soft_margin(
            eta, nu, scores, shape=SHAPE, rate=RATE, rng=rng
        )
        nu = rng.gamma(SHAPE + 1.0, 1.0 / (RATE + 0.5 * (eta**2).sum(axis=1)))
    found = bounded(eta[:, 0], eta[:, 1], (eta**2).sum(axis=1))
    for name, expected in grid_expectations(kind).items():
        value = np.asarray(found[name], dtype=float)
        error = value.std() / np.sqrt(c)
        assert abs(value.mean() - expected) < 4.5 * error, (name, value.mean(), expected, error)


def test_scores_follow_the_weights():
    """Without a margin they are normal, and shared covariances are those written out."""
    rng = np.random.default_rng(43)
    c, n, k = 3, 4, 2
    root = rng.standard_normal((c, k, k))
    shared = root @ root.swapaxes(1, 2)
    mean = rng.standard_normal((c, n, k))
    free = {"sign": np.array(0.0), "cost": np.array(1.0)}
    weights = rng.standard_normal((c, 1 + k, 2))
    small = soft_margin_draws.Scores(mean=mean, cov=shared[:, None], **free)
    large = soft_margin_draws.Scores(mean=mean, cov=np.repeat(shared[:, None], n, axis=1), **free)
    for one, other in zip(small.moments(weights), large.moments(weights), strict=True):
        np.testing.assert_allclose(np.broadcast_to(one, other.shape), other, rtol=1e-12)
    centres, covs = large.moments(weights)
    for i, w in enumerate(weights):
        np.testing.assert_allclose(centres[i], mean[i] @ w[1:] + w[0], rtol=1e-12)
        np.testing.assert_allclose(covs[i, 0], w[1:].T @ shared[i] @ w[1:], rtol=1e-10)
    variance = np.array([[0.3, 2.0]])
    np.testing.assert_allclose(large.log_margin(np.zeros((1, 2)), variance), 0.0, atol=1e-12)


LAWS = {
    "skew": stats.gamma(2.5),
    "two humps": stats.dweibull(4.0),
    "narrow": stats.norm(3.0, 1e-3),
}


@pytest.mark.parametrize("width", [0.5, 6.0])
@pytest.mark.parametrize("name", LAWS)
def test_density_is_left_alone(name, width):
    rng = np.random.default_rng(31)
    n, law = 20_000, LAWS[name]
    x = start = law.rvs(n, random_state=rng)
    for _ in range(3):
        x = x + draw_slices(lambda a, x=x: law.logpdf(x + a), width, n_chains=n, rng=rng)
    assert np.all(x != start)
    assert stats.kstest(x, law.cdf).pvalue > 1e-3


def test_a_density_that_is_nowhere_a_number_is_given_up():
    found = draw_slices(
        lambda a: np.full(3, np.nan), 1.0, n_chains=3, rng=np.random.default_rng(33)
    )
    np.testing.assert_array_equal(found, 0.0)


# mean, sd, sign, cost
CASES = [
    (0.3, 0.5, 1.0, 10.0),
    (2.0, 1.0, 1.0, 10.0),
    (-40.0, 0.2, 1.0, 10.0),
    (3.0, 2.0, -1.0, 1.0),
    (-90.0, 30.0, -1.0, 40.0),
    (90.0, 30.0, -1.0, 40.0),
    (0.4, 2.0, 0.0, 5.0),
    (0.0, 1e-6, 1.0, 1.0),
    (1e8, 1e9, -1.0, 40.0),
]


def log_mean(*case):
    return np.logaddexp(*log_masses(*(np.asarray(value) for value in case)))


def masses(case, end=mpmath.inf):
    """E[phi(f); y f < end] on both sides of the margin, normal integrals with a shifted mean."""
    m, s, y, C = (mpmath.mpf(x) for x in case)
    m, margin = (y * m, mpmath.mpf(1)) if y else (m, -mpmath.inf)

    def normal(low, high, shift):
        low, high = (low - m) / s - shift, (high - m) / s - shift
        if low > 0:
            low, high = -high, -low
        return mpmath.ncdf(high) - mpmath.ncdf(low) if high > low else mpmath.mpf(0)

    r = 2 * C * s
    total = normal(margin, end, 0) if end > margin else mpmath.mpf(0)
    if y:
        short = normal(-mpmath.inf, min(margin, end), r)
        total += mpmath.exp(-2 * C * (margin - m) + r * r / 2) * short
    return total


@pytest.mark.parametrize("case", CASES)
def test_log_mean(case):
    with mpmath.workdps(80):
        expected = float(mpmath.log(masses(case)))
    found = float(log_mean(*case))
    assert found == pytest.approx(expected, rel=1e-12, abs=2e-12)


def test_two_routes_at_the_middle_of_a_long_range():
    """No jump where one formula takes over from another."""
    mean = np.linspace(-60.0, 60.0, 200_001)
    for sd, cost in ((1.0, 3.0), (20.0, 0.5)):
        values = log_mean(mean, sd, 1.0, cost)
        slopes = np.diff(values) / np.diff(mean)
        assert np.all(slopes > -1e-9)
        assert np.all(np.diff(slopes) < 1e-6 * (1.0 + 2.0 * cost))  # log-concave in the mean


@pytest.mark.parametrize("case", CASES[:7])
def test_draws_have_their_law(case):
    """By the probability integral transform."""
    rng = np.random.default_rng(21)
    draws = draw_scores(np.full(400, case[0]), *map(np.asarray, case[1:]), rng=rng)
    draws *= case[2] or 1.0
    with mpmath.workdps(80):
        whole = masses(case)
        ranks = [float(masses(case, mpmath.mpf(float(f))) / whole) for f in draws]
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
