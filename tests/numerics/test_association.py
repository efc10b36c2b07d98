"""Features one by one: shares of variance, and rates of false discoveries under the null."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models.numerics.association import associate


def one_hot(index):
    return np.eye(index.max() + 1)[index]


def test_explained_is_the_share_of_variance_between_classes_and_r_squared_of_outputs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5))
    X[:, 4] = 2.0
    index = rng.permutation(np.arange(30) % 3)
    X[index == 1, 0] += 2.0
    found = associate(X, one_hot(index))
    for d in range(4):
        within = sum(np.sum((X[index == k, d] - X[index == k, d].mean()) ** 2) for k in range(3))
        total = np.sum((X[:, d] - X[:, d].mean()) ** 2)
        assert found["explained"][d] == pytest.approx(1.0 - within / total)
        for k in range(3):
            r = np.corrcoef(X[:, d], index == k)[0, 1]
            assert found["correlation"][d, k] == pytest.approx(r)
    assert found["explained"][4] == 0.0
    assert found["false_discovery_rate"][4] == 1.0
    y = rng.standard_normal((30, 2))
    residual = X[:, 0] - X[:, 0].mean()
    centred = y - y.mean(axis=0)
    residual = residual - centred @ np.linalg.lstsq(centred, residual, rcond=None)[0]
    expected = 1.0 - np.sum(residual**2) / np.sum((X[:, 0] - X[:, 0].mean()) ** 2)
    assert associate(X, y)["explained"][0] == pytest.approx(expected)


def test_sparse_samples_are_those_with_zeros_and_missing_values_are_at_the_mean():
    rng = np.random.default_rng(1)
    X = rng.poisson(0.5, (40, 6)).astype(float)
    targets = one_hot(np.arange(40) % 2)
    dense = associate(X, targets)
    for name, values in associate(csr_array(X), targets).items():
        np.testing.assert_allclose(values, dense[name], atol=1e-12)
    lost = X.copy()
    lost[3, 2] = np.nan
    X[3, 2] = np.nanmean(lost[:, 2])
    np.testing.assert_allclose(
        associate(lost, targets)["explained"], associate(X, targets)["explained"]
    )


@pytest.mark.parametrize(("common", "skewed"), [(0, False), (5, True)])
def test_shuffled_labels_seldom_find_a_feature(common, skewed):
    """At a rate of .1, one run in ten at most; by chance more than 25 of 120 with p = .0002."""
    n_runs = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 80))
        if common:
            X += 2.0 * rng.standard_normal((30, common)) @ rng.standard_normal((common, 80))
        index = rng.permutation(np.arange(30) < 8).astype(int)
        found = associate(np.exp(X) if skewed else X, one_hot(index))
        n_runs += bool((found["false_discovery_rate"] <= 0.1).any())
    assert n_runs < 24


def test_planted_features_are_found_and_few_others():
    rng = np.random.default_rng(2)
    index = np.arange(60) % 2
    X = rng.standard_normal((60, 400))
    X[:, :40] += 1.5 * index[:, None]
    found = associate(X, one_hot(index))["false_discovery_rate"] <= 0.1
    assert found[:40].sum() > 36
    assert found[40:].sum() < 12


def test_copies_of_a_sample_do_not_count_as_samples():
    rng = np.random.default_rng(3)
    n_runs = 0
    for _ in range(20):
        subjects = rng.standard_normal((12, 50))
        groups = np.repeat(np.arange(12), 5)
        X = subjects[groups] + 0.1 * rng.standard_normal((60, 50))
        targets = one_hot(groups % 2)
        found = associate(X, targets, groups)
        assert found["independent_samples"] == 12
        n_runs += bool((found["false_discovery_rate"] <= 0.1).any())
        assert (associate(X, targets)["false_discovery_rate"] <= 0.1).any()
    assert n_runs < 8
