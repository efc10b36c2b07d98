"""Draws of a classifier on uncertain inputs against its posterior on a grid.

One input: weights (e_0, e) live in a plane and their precision integrates out to a Student t, so
that expectations of bounded functions are sums over a grid. The expected margin factors in it are
those of ``log_masses``, which has its own tests against the definition.
"""

import numpy as np
import pytest
from scipy.special import logsumexp

from bsdr_models.bm2pca.paper import soft_margin_draws

N = 6
SHAPE, RATE = 3.0, 2.0
COST = 1.6
KINDS = ("hinge", "tube", "shared")


def make_scores(kind):
    rng = np.random.default_rng(41)
    mean = 1.5 * rng.standard_normal((N, 1))
    cov = np.full((1, 1, 1), 0.4) if kind == "shared" else rng.uniform(0.05, 1.0, (N, 1, 1))
    y = np.where(mean[:, 0] + rng.standard_normal(N) > 0.0, 1.0, -1.0)
    if kind == "tube":
        lower, upper = 1.3 * y - 0.2, 1.3 * y + 0.2
    else:
        lower, upper = np.where(y > 0.0, 1.0, -np.inf), np.where(y < 0.0, -1.0, np.inf)
        lower[0] = -np.inf  # a sample without a label
    return mean, cov, lower, upper


def grid_expectations(kind):
    """Expectations of bounded functions, with weights beyond the grid's reach left out."""
    mean, cov, lower, upper = make_scores(kind)
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
        masses = soft_margin_draws.log_masses(centre, sd, lower[n], upper[n], COST)
        log_p += logsumexp(masses, axis=0)
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
    mean, cov, lower, upper = make_scores(kind)
    scores = soft_margin_draws.Scores(
        mean=np.tile(mean, (c, 1, 1)),
        cov=np.tile(cov, (c, 1, 1, 1)),
        lower=lower,
        upper=upper,
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
    free = {"lower": np.array(-np.inf), "upper": np.array(np.inf), "cost": np.array(1.0)}
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
