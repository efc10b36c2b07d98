"""Stacking weights against a general optimiser and optima that are known."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bsdr_models.numerics.stacking import NEGLIGIBLE, stack_weights


def log_score(weights, log_prob):
    return np.mean(np.log(weights @ np.exp(log_prob)))


def by_optimiser(log_prob):
    """The best log score, over softmax coordinates and from several starts."""
    rng = np.random.default_rng(0)

    def loss(x):
        weights = np.exp(x - x.max())
        return -log_score(weights / weights.sum(), log_prob)

    starts = [np.zeros(len(log_prob)), *(3.0 * rng.standard_normal((4, len(log_prob))))]
    return -min(minimize(loss, start, method="BFGS").fun for start in starts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n_candidates", "n_rows"), [(2, 50), (5, 200), (9, 30)])
def test_reaches_the_best_log_score(n_candidates, n_rows, seed):
    rng = np.random.default_rng([1, seed])
    log_prob = np.log(rng.beta(2.0, 1.5, (n_candidates, n_rows)))
    weights = stack_weights(log_prob)
    assert weights.shape == (n_candidates,)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
    assert log_score(weights, log_prob) > by_optimiser(log_prob) - 1e-4


def test_stationary():
    """Karush-Kuhn-Tucker: mean ratio 1 for what has weight, at most 1 for the rest."""
    rng = np.random.default_rng(2)
    log_prob = np.log(rng.beta(2.0, 1.5, (6, 120)))
    weights = stack_weights(log_prob)
    ratio = np.mean(np.exp(log_prob) / (weights @ np.exp(log_prob)), axis=1)
    np.testing.assert_allclose(ratio[weights > 0.01], 1.0, atol=1e-3)
    assert ratio.max() < 1.0 + 1e-3


def test_the_closed_form_of_two_candidates():
    """Right with probability 1 on 30 and on 70 of 100 rows, where the other has 0.1."""
    log_prob = np.log(np.where(np.arange(100) < 30, [[1.0], [0.1]], [[0.1], [1.0]]))
    # d/dw [0.3 log(w + 0.1 (1 - w)) + 0.7 log(0.1 w + 1 - w)] = 0
    w = (0.3 * 1.0 - 0.7 * 0.1) / 0.9
    np.testing.assert_allclose(stack_weights(log_prob), [w, 1.0 - w], atol=1e-6)


def test_what_is_always_worse_has_no_weight_at_all():
    rng = np.random.default_rng(3)
    best = np.log(rng.beta(5.0, 2.0, 80))
    weights = stack_weights(np.stack([best - 0.1, best, best - 2.0]))
    np.testing.assert_array_equal(weights, [0.0, 1.0, 0.0])


def test_equal_candidates_share():
    log_prob = np.tile(np.log(np.random.default_rng(4).random(40)), (3, 1))
    np.testing.assert_allclose(stack_weights(log_prob), 1.0 / 3.0)


def test_log_probabilities_far_below_the_smallest_number():
    """Densities of rows are not of order one: only their ratios count."""
    rng = np.random.default_rng(5)
    log_prob = np.log(rng.beta(2.0, 1.5, (4, 60)))
    shift = rng.choice([-5000.0, 0.0, 5000.0], 60)
    np.testing.assert_allclose(stack_weights(log_prob + shift), stack_weights(log_prob), atol=1e-9)


def test_one_impossible_row_keeps_a_safe_candidate():
    """A candidate that gives one row nothing may not have all the weight."""
    log_prob = np.log(np.array([[0.99] * 99 + [1e-300], [0.5] * 100]))
    weights = stack_weights(log_prob)
    assert 0.005 < weights[1] < 0.05
    assert weights[1] > NEGLIGIBLE
