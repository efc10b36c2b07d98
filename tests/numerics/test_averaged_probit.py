"""The compiled average against SciPy, its gradient against differences, its mean in closed form."""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from bsdr_models.numerics import averaged_probit

SCALE = 0.7
# C, N, D, R, K, M: two classes; rows that fill no block, one and more; more rivals than one
# product holds.
SIZES = {
    "binary": (2, 5, 3, 1, 2, 4),
    "one block": (3, 64, 4, 2, 3, 8),
    "two blocks": (2, 70, 3, 3, 5, 1),
    "many classes": (2, 9, 4, 3, 22, 6),
}


def draw_problem(size, spread=2.0):
    c, n, d, r, k, m = SIZES[size]
    rng = np.random.default_rng([91, n])
    columns, y = rng.standard_normal((d, n)), rng.integers(0, k, n)
    blocks = [spread * rng.standard_normal(shape) for shape in ((c, d, r), (c, r, k), (c, k))]
    return columns, y, blocks, rng.standard_normal((c, m, r + 1, n))


def evaluate(columns, y, blocks, points, **options):
    return averaged_probit.evaluate(columns, y, *blocks, points, latent_scale=SCALE, **options)


def by_scipy(columns, y, blocks, points):
    """Log likelihood (C,) and log of l, (C, M, N)."""
    Q, W, b = blocks
    z = np.einsum("dn,cds->csn", columns, Q)[:, None] + SCALE * points[:, :, :-1]
    eta = np.einsum("cmsn,csk->cmnk", z, W) + b[:, None, None]
    own = np.take_along_axis(eta, np.broadcast_to(y[:, None], (*eta.shape[:3], 1)), axis=3)
    rival = np.arange(b.shape[1]) != y[:, None]
    log_l = np.sum(rival * log_ndtr(points[:, :, -1, :, None] + own - eta), axis=3)
    return np.sum(logsumexp(log_l, axis=1) - np.log(log_l.shape[1]), axis=1), log_l


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("size", SIZES)
def test_values_are_those_of_scipy(size, spread):
    columns, y, blocks, points = draw_problem(size, spread)
    found = evaluate(columns, y, blocks, points)
    expected, log_l = by_scipy(columns, y, blocks, points)
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-11, atol=1e-10)
    share = np.exp(log_l - logsumexp(log_l, axis=1, keepdims=True))
    # An l of size e^-s is right to s roundings of its logarithm.
    np.testing.assert_allclose(found.share, share, atol=1e-15 * max(100.0, np.abs(log_l).max()))
    np.testing.assert_allclose(found.share.sum(axis=1), 1.0, rtol=1e-14)


def test_chains_may_have_labels_of_their_own():
    columns, y, blocks, points = draw_problem("two blocks")
    other = np.roll(y, 1)
    found = evaluate(columns, np.stack([y, other]), blocks, points)
    for c, labels in enumerate((y, other)):
        alone = evaluate(columns, labels, [each[[c]] for each in blocks], points[[c]])
        np.testing.assert_array_equal(found.log_likelihood[c], alone.log_likelihood[0])
        np.testing.assert_array_equal(found.weights[c], alone.weights[0])


@pytest.mark.parametrize("size", SIZES)
def test_gradient_is_that_of_fourth_order_differences(size):
    columns, y, blocks, points = draw_problem(size)
    found = evaluate(columns, y, blocks, points)
    rng, h = np.random.default_rng(92), 1e-3
    for block, slope in enumerate((found.projection, found.weights, found.bias)):
        for _ in range(6):
            at = (slice(None), *(rng.integers(0, length) for length in slope.shape[1:]))

            def value(shift, block=block, at=at):
                moved = [values.copy() for values in blocks]
                moved[block][at] += shift
                out = evaluate(columns, y, moved, points, with_gradient=False)
                return out.log_likelihood

            expected = 8.0 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))
            # Truncation h^4 f'''''/30 and rounding of values of some hundred nats.
            np.testing.assert_allclose(slope[at], expected / (12.0 * h), rtol=1e-6, atol=1e-6)
            assert np.median(np.abs(slope[at] / (expected / (12.0 * h)) - 1.0)) < 1e-8


def test_value_alone_is_the_same():
    problem = draw_problem("many classes")
    both, alone = evaluate(*problem), evaluate(*problem, with_gradient=False)
    np.testing.assert_array_equal(both.log_likelihood, alone.log_likelihood)
    assert not alone.projection.any()
    assert not alone.weights.any()


def test_average_of_two_classes_is_a_normal_probability():
    r"""E l = Phi(delta / sqrt(2 + sigma^2 |w_1 - w_0|^2)), within 5 standard errors."""
    columns, _, blocks, _ = draw_problem("binary", 1.0)
    y = np.array([0, 1, 1, 0, 1])
    points = np.random.default_rng(93).standard_normal((2, 200_000, 2, 5))
    _, log_l = by_scipy(columns, y, blocks, points)
    Q, W, b = blocks
    sign = np.where(y == 1, 1.0, -1.0)
    gap = (W[:, :, 1] - W[:, :, 0])[:, 0, None]
    delta = (Q[:, :, 0] @ columns) * gap + (b[:, 1] - b[:, 0])[:, None]
    expected = norm.logcdf(sign * delta / np.sqrt(2.0 + (SCALE * gap) ** 2))
    found = evaluate(columns, y, blocks, points, with_gradient=False).log_likelihood
    size = np.exp(log_l)
    error = size.std(axis=1) / size.mean(axis=1) / np.sqrt(size.shape[1])
    assert (np.abs(found - expected.sum(axis=1)) < 5.0 * np.sqrt((error**2).sum(axis=1))).all()


def test_a_hopeless_row_stays_finite():
    """Margins far beyond any float's probability: -x^2 / 2 a row, and no overflow."""
    columns, y, blocks, points = draw_problem("many classes")
    far = [block * 1e9 for block in blocks]
    found = evaluate(columns, y, far, points)
    assert np.isfinite(found.log_likelihood).all()
    assert all(np.isfinite(part).all() for part in (found.projection, found.weights, found.share))
