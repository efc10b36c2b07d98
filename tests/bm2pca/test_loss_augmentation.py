"""Margin factors of BM2PCA against quadrature, finite differences and their own definitions."""

import numpy as np
import pytest
from scipy import integrate, stats

from bsdr_models.papers.bm2pca.loss_augmentation import margins_of

COST = 0.7
EPSILON = 0.3
kinds = pytest.mark.parametrize("kind", ["signs", "regression"])


def toy(kind, seed=0, n=6, k=3):
    """A third of the targets missing; moments and scales of f."""
    rng = np.random.default_rng([41, seed])
    shape = (n, k)
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


def sides(margins, f):
    """u of every factor: (S, N, K), S = 1 or 2."""
    y, e, cost = margins.y, margins.epsilon, margins.cost
    if e is None:
        return (cost * (1.0 - y * f))[None]
    return np.stack([cost * (y - f - e), cost * (f - y - e)])


def log_constant(margins):
    """Log normaliser per target."""
    if margins.epsilon is None:
        return 0.0 * margins.cost
    return np.log(2.0 * margins.epsilon + 1.0 / margins.cost)


@pytest.mark.parametrize("u", [-30.0, -3.0, -0.2, 0.0, 1e-3, 0.7, 12.0])
def test_hinge_is_a_scale_mixture_of_normals(u):
    def density(root):  # lambda = root**2 takes the pole out
        lam = root**2
        return 2.0 * root * stats.norm.pdf(u, -lam, root) if root > 0.0 else 0.0

    value, _ = integrate.quad(
        density, 0.0, 12.0 + np.sqrt(abs(u)), points=[np.sqrt(abs(u))], limit=400
    )
    assert value == pytest.approx(np.exp(-2.0 * max(0.0, u)), rel=1e-7, abs=1e-14)


def expectations(s):
    """E[lambda], E[1/lambda], E[log lambda] and entropy of GIG(1/2, 1, s**2), by quadrature."""
    x = np.log(s) + np.linspace(-12.0, 8.0 + 2.0 * abs(np.log(s)), 40_001)
    log_f = 0.5 * x - 0.5 * (np.exp(x) + s**2 * np.exp(-x))  # of log lambda
    log_f -= np.log(np.trapezoid(np.exp(log_f), x))
    f = np.exp(log_f)
    values = (np.exp(x), np.exp(-x), x, x - log_f)
    return tuple(np.trapezoid(f * v, x) for v in values)


@kinds
def test_bound_is_that_of_the_augmented_factor_at_any_scale(kind):
    """E[log N(u; -lambda, lambda)] plus the entropy of q(lambda), both by quadrature."""
    margins, mean, variance, s = toy(kind)
    u = sides(margins, mean)
    square = u**2 + margins.cost**2 * variance
    lam, inverse, log_lam, entropy = np.vectorize(expectations)(s)
    each = -0.5 * np.log(2.0 * np.pi) - 0.5 * (log_lam + square * inverse + 2.0 * u + lam) + entropy
    each = each.sum(axis=0) - log_constant(margins)
    expected = (margins.observed * each).sum()
    np.testing.assert_allclose(margins.bound(mean, variance, s), expected, rtol=1e-8)


@kinds
def test_weights_and_linear_terms_are_gradients_of_the_bound(kind):
    """At fixed scales a factor is normal in f: gradients g - w E[f] and -w / 2."""
    margins, mean, variance, s = toy(kind, 3)
    weights, linear_terms = margins.weights(s), margins.linear_terms(s)
    assert weights.shape == linear_terms.shape == mean.shape
    assert np.all((weights > 0.0) == margins.observed)
    assert np.all(linear_terms[~margins.observed] == 0.0)
    for index in np.ndindex(mean.shape):
        step = np.zeros(mean.shape)
        step[index] = 1e-4
        by_mean = margins.bound(mean + step, variance, s) - margins.bound(mean - step, variance, s)
        by_var = margins.bound(mean, variance + step, s) - margins.bound(mean, variance - step, s)
        expected = linear_terms[index] - weights[index] * mean[index]
        np.testing.assert_allclose(by_mean / 2e-4, expected, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(by_var / 2e-4, -0.5 * weights[index], rtol=1e-7, atol=1e-7)


@kinds
def test_bound_is_below_the_expected_log_factor_and_tight_without_variance(kind):
    """E of -2 max(0, u) for a normal u, in closed form."""
    margins, mean, variance, _ = toy(kind, 4)
    losses = []
    for scale in (1.0, 1e-4, 1e-12):
        u, sd = sides(margins, mean), margins.cost * np.sqrt(scale * variance)
        positive = u * stats.norm.cdf(u / sd) + sd * stats.norm.pdf(u / sd)
        each = -2.0 * positive.sum(axis=0) - log_constant(margins)
        expected = (margins.observed * each).sum()
        found = margins.bound(mean, scale * variance, margins.scales(mean, scale * variance))
        losses.append(expected - found)
    assert np.all(losses[0] > 0.1)
    assert np.all(losses[1] > 0.0)
    np.testing.assert_allclose(losses[2], 0.0, atol=1e-9)


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


@kinds
def test_a_missing_target_has_no_factor(kind):
    margins, mean, variance, s = toy(kind, 5)
    known = margins.observed
    assert np.all(margins.scales(mean, variance)[..., ~known] == 1.0)
    other, wild = np.where(known, mean, 1e3), np.where(known, s, 1e3)
    np.testing.assert_array_equal(
        margins.bound(other, variance, wild), margins.bound(mean, variance, s)
    )
