"""Dependent samples: weights, intraclass correlation, effective number, errors of sums."""

import numpy as np
import pytest

from bsdr_models.metrics import error_of_sum
from bsdr_models.numerics.dependence import (
    effective_share,
    intraclass,
    weigh_samples,
)


def test_weights_of_samples():
    """Replicates count as one sample; groups of independent samples do not matter."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(30), rng.integers(1, 6, 30))
    size = np.bincount(groups)[groups]
    own = rng.standard_normal((30, 8))[groups]
    other = rng.standard_normal((len(groups), 8))
    np.testing.assert_allclose(weigh_samples(own, own[:, :1], groups), 1.0 / size)
    assert weigh_samples(other, other[:, :1], groups).mean() > 0.9
    assert weigh_samples(own, other[:, :1], groups).mean() > 0.7
    np.testing.assert_array_equal(weigh_samples(own, own[:, :1], np.arange(len(own))), 1.0)


def test_intraclass_correlation():
    """Groups with a variance of 3 and samples in them of 1: 3 / 4."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(2000), rng.integers(1, 6, 2000))
    values = 3.0**0.5 * rng.standard_normal((2000, 3))[groups]
    values += rng.standard_normal(values.shape)
    assert intraclass(values, groups) == pytest.approx(0.75, abs=0.02)


def test_replicates_of_a_class_are_one_effective_sample():
    rng = np.random.default_rng(6)
    groups = np.repeat(np.arange(20), 5)
    X = rng.standard_normal((20, 4))[groups]
    y = (np.arange(20) % 3)[groups]
    labels = np.column_stack([y > 0, y > 1]).astype(int)
    assert effective_share(X, y, groups) == pytest.approx(0.2)
    assert effective_share(X, labels, groups) == pytest.approx(0.2)
    assert effective_share(X, np.arange(100) % 3, groups) > 0.9  # classes mixed in every group
    assert effective_share(X, y, None) == 1.0


def test_error_of_a_sum_is_that_of_the_sums_of_groups():
    rng = np.random.default_rng(7)
    sums = []
    errors = []
    groups = np.repeat(np.arange(30), 4)
    for _ in range(2000):
        terms = rng.standard_normal(30)[groups] + 0.5 * rng.standard_normal(120)
        sums.append(terms.sum())
        errors.append(error_of_sum(terms - terms.mean(), groups))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(sums), rel=0.06)
