"""Calibration error by hand, and every kind of random state."""

import numpy as np
import pytest

from bsdr_models.metrics import expected_calibration_error
from bsdr_models.random import as_generator


def test_calibration_error_is_the_weighted_gap_of_the_bins():
    # Two rows said 0.9 and one was right: gap 0.4. Two said 0.6 and both were right: gap 0.4.
    # One said 1.0 and was right: no gap, though it shares the last bin with the first two.
    probability = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [1.0, 0.0]])
    y = [0, 1, 0, 0, 0]
    expected = (abs(0.9 + 0.9 + 1.0 - 2.0) + abs(0.6 + 0.6 - 2.0)) / 5.0
    assert expected_calibration_error(probability, y) == pytest.approx(expected)


def test_perfect_certainty_has_no_calibration_error():
    assert expected_calibration_error(np.eye(3), [0, 1, 2]) == 0.0


def test_integer_seeds_repeat_and_generators_go_on():
    assert as_generator(3).random() == as_generator(3).random()
    assert as_generator(np.int64(3)).random() == as_generator(3).random()
    generator = np.random.default_rng(3)
    assert as_generator(generator) is generator
    first = as_generator(np.random.RandomState(3)).random()
    assert first == as_generator(np.random.RandomState(3)).random()
    assert as_generator(None).random() != as_generator(None).random()


def test_other_random_states_are_refused():
    with pytest.raises(TypeError, match="random_state"):
        as_generator("seed")
