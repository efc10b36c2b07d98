"""One temperature for all scores: the optimum, its edges and what it leaves alone."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_softmax

from benchmarks.methods.temperature import RANGE, fit_temperature


def make_scores(n=200, k=4, T=0.3, seed=0):
    """Labels drawn from softmax(scores / T)."""
    rng = np.random.default_rng([31, seed])
    scores = rng.standard_normal((n, k)) + rng.standard_normal((n, 1))
    y = np.argmax(scores / T + rng.gumbel(size=(n, k)), axis=1)
    return scores, y


def log_loss(scores, y, T):
    return -log_softmax(scores / T, axis=1)[np.arange(len(y)), y].sum()


@pytest.mark.parametrize("k", [2, 4, 9])
def test_minimises_the_log_loss_and_that_of_one_sample_without_a_label(k):
    scores, y = make_scores(k=k)
    n = len(y)

    def loss(T):
        even = -log_softmax(scores / T, axis=1).mean(axis=1).sum()
        return n / (n + 1) * log_loss(scores, y, T) + even / (n + 1)

    best = optimize.minimize_scalar(
        loss, bounds=(0.01, 10.0), method="bounded", options={"xatol": 1e-9}
    )
    assert fit_temperature(scores, y) == pytest.approx(best.x, rel=1e-4)


def test_one_column_is_a_logistic_score_of_the_second_class():
    scores, y = make_scores(k=2)
    single = scores[:, 1:] - scores[:, :1]
    assert fit_temperature(scores, y) == pytest.approx(fit_temperature(single, y))


def test_extremes_stay_in_range():
    scores, y = make_scores()
    wrong = fit_temperature(-scores, y)
    spread = np.std(scores - scores.mean(axis=1, keepdims=True))
    assert wrong == pytest.approx(RANGE * spread, rel=0.1)
    assert fit_temperature(np.ones((5, 3)), np.zeros(5, dtype=int)) == 1.0
    assert fit_temperature(np.empty((0, 3)), np.empty(0, dtype=int)) == 1.0
