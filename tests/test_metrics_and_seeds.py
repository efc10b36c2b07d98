"""Scores of probabilities by hand and by scikit-learn, their intervals, every random state."""

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import norm
from sklearn.metrics import log_loss

from bsdr_models.compare.comparison import PROB, ModelScores, mean_difference
from bsdr_models.estimators.calibration import (
    HeldOutScore,
    TemperaturePrior,
    error_of_folds,
    judge,
    lack_of_signal,
)
from bsdr_models.metrics import expected_calibration_error, log_losses


def test_calibration_error_is_the_weighted_gap_of_the_bins():
    # Two samples said 0.9 and one was right: gap 0.4. Two said 0.6 and both were right: gap 0.4.
    # One said 1.0 and was right: no gap, though it shares the last bin with the first two.
    assert expected_calibration_error(np.eye(3), [0, 1, 2]) == 0.0
    probability = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [1.0, 0.0]])
    y = [0, 1, 0, 0, 0]
    expected = (abs(0.9 + 0.9 + 1.0 - 2.0) + abs(0.6 + 0.6 - 2.0)) / 5.0
    assert expected_calibration_error(probability, y) == pytest.approx(expected)


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for k in (2, 4):
        probability = rng.dirichlet(np.ones(k), size=50)
        y = rng.integers(k, size=50)
        assert log_losses(probability, y).mean() == pytest.approx(
            log_loss(y, probability, labels=range(k)), rel=1e-12
        )


def test_scores_of_certainty():
    np.testing.assert_allclose(log_losses(np.eye(2), [0, 0]), [0.0, 52 * np.log(2.0)])


def interval(values, groups=None, factor=1.0):
    scores = (ModelScores(loss=loss, line={}) for loss in (values, np.zeros(len(values))))
    return mean_difference(*scores, groups=groups, seed=2, factor=factor)


def test_interval_of_a_mean_is_that_of_the_normal():
    """One per cent for N, five standard errors (3 % each) for 1000 resamples."""
    values = np.random.default_rng(1).exponential(size=2000)
    found = interval(values)
    assert found.value == pytest.approx(values.mean())
    width = 2.0 * norm.ppf(0.5 + 0.5 * PROB) * values.std() / np.sqrt(2000)
    assert found.high - found.low == pytest.approx(width, rel=0.16)


def test_copies_of_a_sample_in_one_group_leave_its_interval():
    values = np.random.default_rng(1).exponential(size=50)
    once = interval(values)
    thrice = interval(np.tile(values, 3), np.tile(np.arange(50), 3))
    assert [thrice.low, thrice.high] == pytest.approx([once.low, once.high])


def test_held_out_score_is_compared_with_class_frequencies():
    rng = np.random.default_rng(3)
    probability, y = rng.dirichlet(np.ones(3), 50), rng.integers(0, 3, 50)
    log_p = np.log(probability[np.arange(50), y])
    found = HeldOutScore.of(log_p, np.array(["a", "b", "c"])[y])
    assert found.score == pytest.approx(-log_loss(y, probability))
    each = log_p - np.log(np.bincount(y) / 50)[y]
    assert found.gain == pytest.approx(each.mean())
    assert found.gain_se == pytest.approx(each.std(ddof=1) / np.sqrt(50))


def test_held_out_score_of_several_labels_is_of_samples():
    """Labels of one sample are not independent: three copies say no more than one."""
    rng = np.random.default_rng(4)
    y, log_p = rng.integers(0, 2, 40), np.log(rng.random(40))
    one = HeldOutScore.of(log_p, y)
    many = HeldOutScore.of(np.tile(log_p[:, None], 3), np.tile(y[:, None], 3))
    assert many.named() == pytest.approx(one.named())
    log_p[:5] = np.nan  # unknown labels
    part = np.column_stack([log_p, log_p])
    assert HeldOutScore.of(part, np.column_stack([y, y])).gain == pytest.approx(
        HeldOutScore.of(log_p[5:], y[5:]).gain
    )


def test_means_over_folds_have_larger_errors():
    """Of five folds by half: the variance is 1 + (1 / 4) / (1 / 5) times as large."""
    rng = np.random.default_rng(6)
    y, log_p = rng.integers(0, 2, 40), np.log(rng.random(40))
    alone, folds = (HeldOutScore.of(log_p, y, n_folds=n) for n in (None, 5))
    assert folds.gain == alone.gain
    assert folds.gain_se == pytest.approx(1.5 * alone.gain_se)
    assert error_of_folds(2) == pytest.approx(np.sqrt(3.0))
    assert error_of_folds(10, 0.5) == pytest.approx(np.sqrt(6.0))
    assert error_of_folds(None) == error_of_folds(1) == error_of_folds(0) == 1.0


def test_error_over_groups_is_that_of_their_sums():
    """Three copies of each sample, in one group, say no more than one."""
    rng = np.random.default_rng(7)
    y, log_p = rng.integers(0, 2, 40), np.log(rng.random(40))
    groups = np.tile(np.arange(40), 3)
    once = HeldOutScore.of(log_p, y)
    found = HeldOutScore.of(np.tile(log_p, 3), np.tile(y, 3), groups=groups)
    assert found.named() == pytest.approx(once.named())
    one_group = HeldOutScore.of(log_p, y, groups=np.zeros(40, dtype=int))
    assert np.isnan(one_group.gain)


def test_interval_is_so_many_times_as_far_from_the_mean():
    values = np.random.default_rng(1).exponential(size=50)
    near, far = (interval(values, factor=factor) for factor in (1.0, 3.0))
    assert far.value == near.value
    assert far.high - far.value == pytest.approx(3.0 * (near.high - near.value))
    assert far.value - far.low == pytest.approx(3.0 * (near.value - near.low))


@pytest.mark.parametrize("n", [0, 1])
def test_held_out_score_needs_two_samples(n):
    found = HeldOutScore.of(np.full(n, -1.0), np.zeros(n, dtype=int))
    assert np.isnan(list(found.named().values())).all()
    assert found.attrs() == {}


def test_signal_is_judged_by_held_out_samples():
    assert lack_of_signal({}) is None
    assert lack_of_signal(HeldOutScore().named()) is None
    weak, strong = ({"held_out_gain": gain, "held_out_gain_se": 0.04} for gain in (0.04, 0.2))
    assert "0.04 ± 0.04 nats" in lack_of_signal(weak)
    assert lack_of_signal(strong) is None
    assert "too few samples to tell" in lack_of_signal(weak)
    assert "too few" not in lack_of_signal({"held_out_gain": -0.1, "held_out_gain_se": 0.04})


@pytest.mark.slow
def test_chance_is_rarely_called_a_signal():
    """Calibrated scores of 60 samples without signal, the best of four settings."""
    rng, found = np.random.default_rng(5), 0
    y = np.arange(60) % 3
    fold = np.arange(60) // 3 % 5
    prior = TemperaturePrior(mean=0.0, sd=1.0)
    for _ in range(60):
        scores = [
            judge([rng.standard_normal((60, 3))], y, [fold], softmax_link, prior).score
            for _ in range(4)
        ]
        best = max(scores, key=lambda score: score.score)
        found += lack_of_signal(best.named()) is None
    assert found <= 6


def softmax_link(values, temperature):
    """Log probabilities of class scores at a temperature."""
    return log_softmax(values / temperature, axis=1)
