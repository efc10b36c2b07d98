"""The argmax cone against high precision, closed forms, and its own identities."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose
from scipy.special import erfcx, log_ndtr, logsumexp

from bsdr_models.papers import normal_tail, orthant


def precise_moments(eta, y):
    """Log probability and E[t] at 30 digits, from the definition.

    The trapezoidal rule converges exponentially for these entire integrands: at this step
    its error is below exp(-50) for five labels.
    """
    step = mp.mpf(1) / 4
    gaps = [mp.mpf(float(eta[y])) - mp.mpf(float(e)) for e in eta]
    others = [j for j in range(len(eta)) if j != y]
    top = max(0, *(-float(g) for g in gaps))
    with mp.workdps(30):
        total, shift = mp.mpf(0), [mp.mpf(0)] * len(eta)
        for i in range(int(-14 / step), int((top + 14) / step)):
            u = i * step
            phi = [mp.ncdf(u + gaps[j]) for j in others]
            weight = mp.npdf(u) * mp.fprod(phi) * step
            total += weight
            shift[y] += u * weight
            for j, p in zip(others, phi, strict=True):
                shift[j] -= weight * mp.npdf(u + gaps[j]) / p
        log_prob = float(mp.log(total))
        return log_prob, np.array([float(e + s / total) for e, s in zip(eta, shift, strict=True)])


GAPS = [  # eta_y - eta_j of the other labels, for K = 2, 3 and 5
    [0.3],
    [-40.0],
    [40.0, -40.0],
    [-38.0, -40.0],
    [-6.0, 2.0],
    [-1.0, 0.5, 2.0, 0.0],
    [-40.0, -40.0, -40.0, -40.0],
    [40.0, 40.0, 40.0, 40.0],
    [-40.0, 40.0, -20.0, -19.0],
]


@pytest.mark.parametrize("gaps", GAPS, ids=str)
def test_argmax_region_is_right_to_1e_8_at_any_difference(gaps):
    y = len(gaps) // 2
    eta = np.insert(-np.array(gaps), y, 0.0) + 1.5
    log_prob, mean = precise_moments(eta, y)

    got = orthant.moments(eta[None], [y])
    assert_allclose(got.log_prob, [log_prob], rtol=1e-12, atol=1e-8)
    assert_allclose(got.mean, mean[None], rtol=0, atol=1e-8)


def test_rational_approximation_is_accurate():
    """Of exp(x^2 / 2) (1 - Phi(x)); beyond 60 the tail is too small for 60 digits."""
    with mp.workdps(60):
        for x in [0.0, *np.geomspace(1e-4, 60.0, 120)]:
            expected = float(mp.exp(mp.mpf(x) ** 2 / 2) * mp.erfc(mp.mpf(x) / mp.sqrt(2)) / 2)
            approximation = np.polyval(normal_tail.NUMERATOR[::-1], x) / np.polyval(
                normal_tail.DENOMINATOR[::-1], x
            )
            assert approximation == pytest.approx(expected, rel=5e-14)


def test_two_labels_are_a_binary_probit():
    gap = np.concatenate([np.linspace(-40.0, 40.0, 161), [-1000.0, 1000.0]])
    eta = np.column_stack([np.zeros_like(gap), gap])
    y = np.ones(len(gap), dtype=int)
    z = gap / np.sqrt(2.0)
    hazard = 1.0 / (np.sqrt(np.pi) * erfcx(-z / np.sqrt(2.0)))

    got = orthant.moments(eta, y)
    assert_allclose(got.log_prob, log_ndtr(z), rtol=1e-12, atol=1e-14)
    assert_allclose(got.mean, eta + np.outer(hazard, [-1.0, 1.0]), rtol=1e-12, atol=1e-12)


def test_equal_scores_share_the_probability_equally():
    for n_labels in (2, 3, 7):
        log_prob = orthant.moments(np.full((1, n_labels), 3.0), [0]).log_prob
        assert_allclose(log_prob, -np.log(n_labels), atol=1e-10)


def test_extreme_differences_stay_finite_and_match_the_leading_order():
    """log P of the dominated class: the squared distance of eta to the cone, over two."""
    eta = np.array([[0.0, 1000.0, -1000.0], [1000.0, 0.0, 0.0], [-1000.0, 1000.0, 1000.0]])
    got = orthant.moments(eta, [0, 0, 0])
    assert np.isfinite(got.mean).all()
    assert_allclose(got.log_prob[[0, 2]], [-(1000.0**2) / 4, -(2000.0**2) / 3], rtol=1e-4)
    assert got.log_prob[1] == pytest.approx(0.0, abs=1e-12)
    assert_allclose(got.mean[0], [500.0, 500.0, -1000.0], atol=1.0)
    assert_allclose(got.mean[1], eta[1], atol=1e-10)


def problem(seed, n_samples=77, n_labels=5, scale=2.0):
    """Scores and labels of which a fifth contradict the scores; the last block is not full."""
    rng = np.random.default_rng(seed)
    eta = rng.normal(scale=scale, size=(n_samples, n_labels))
    y = np.where(
        rng.random(n_samples) < 0.8, eta.argmax(axis=1), rng.integers(n_labels, size=n_samples)
    )
    return eta, y, rng


def test_a_sample_does_not_depend_on_the_others():
    eta, y, _ = problem(1)
    together = orthant.moments(eta, y, n_nodes=8)
    for row in (0, 63, 64, 76):
        alone = orthant.moments(eta[row : row + 1], y[row : row + 1], n_nodes=8)
        assert_allclose(together.log_prob[row], alone.log_prob[0], rtol=1e-14)
        assert_allclose(together.mean[row], alone.mean[0], rtol=1e-14)


def test_ten_labels_converge_with_the_nodes_as_documented():
    eta, y, _ = problem(7, n_samples=64, n_labels=10)
    eta[:32] = 0.0
    eta[np.arange(32), y[:32]] = np.linspace(-6.0, 6.0, 32)  # all others tied
    log_prob, mean = precise_moments(eta[24], y[24])
    fine = orthant.moments(eta, y, n_nodes=100)
    assert_allclose(fine.log_prob[24], log_prob, atol=1e-12)
    assert_allclose(fine.mean[24], mean, atol=1e-12)
    for n_nodes, tolerance in ((12, 1e-4), (16, 1e-5), (32, 1e-8)):
        got = orthant.moments(eta, y, n_nodes=n_nodes)
        assert_allclose(got.log_prob, fine.log_prob, rtol=0, atol=tolerance)
        assert_allclose(got.mean, fine.mean, rtol=0, atol=tolerance)


def test_warm_start_changes_nothing_but_the_work():
    eta, y, rng = problem(2)
    cold = orthant.moments(eta, y)
    for start in (cold.mode, cold.mode + rng.normal(size=len(y)), np.full(len(y), 1e3)):
        warm = orthant.moments(eta, y, start=start)
        assert_allclose(warm.log_prob, cold.log_prob, atol=1e-9)
        assert_allclose(warm.mean, cold.mean, atol=1e-8)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n_labels=st.integers(2, 5))
def test_identities_of_the_cone(data, n_labels):
    """One sample of scores seen from each of its labels."""
    scores = data.draw(hnp.arrays(float, n_labels, elements=st.floats(-40, 40, width=32)))
    order = np.array(data.draw(st.permutations(range(n_labels))))
    eta, y = np.tile(scores, (n_labels, 1)), np.arange(n_labels)
    got = orthant.moments(eta, y)

    assert logsumexp(got.log_prob) == pytest.approx(0.0, abs=1e-8)
    assert_allclose(got.mean.sum(axis=1), scores.sum(), atol=1e-9)
    assert np.all(got.mean[y, y] >= scores)
    assert np.all(got.mean.argmax(axis=1) == y)
    # The law of total expectation.
    assert_allclose(np.exp(got.log_prob) @ got.mean, scores, atol=1e-6)

    moved = orthant.moments(eta + 17.0, y)
    assert_allclose(moved.log_prob, got.log_prob, rtol=1e-10, atol=1e-8)
    assert_allclose(moved.mean - 17.0, got.mean, atol=1e-8)

    permuted = orthant.moments(eta[:, order], np.argsort(order))
    assert_allclose(permuted.log_prob, got.log_prob, rtol=1e-10, atol=1e-8)
    assert_allclose(permuted.mean, got.mean[:, order], atol=1e-8)


def test_utilities_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        orthant.moments(np.array([[0.0, np.inf]]), [0])


def test_inputs_are_left_alone_and_may_be_read_only_or_empty():
    eta, y, _ = problem(6)
    eta.setflags(write=False)
    start = np.zeros(len(y))
    orthant.moments(eta, y, start=start)
    assert not start.any()
    assert orthant.moments(np.empty((0, 3)), np.empty(0, dtype=int)).mean.shape == (0, 3)
