"""Folds are stratified and random, and copies of a sample are found."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models.numerics import folds
from bsdr_models.numerics.folds import find_copies, make_folds, random_keys


def draw(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < 0.4, 0.0, rng.standard_normal((n, d)))


def shuffle(n, seed=0):
    return np.random.default_rng(seed).permutation(n)


def together(groups):
    """Which pairs of samples are in one group."""
    return np.equal.outer(groups, groups)


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_folds_partition_the_samples_and_are_stratified(n_folds, monkeypatch):
    groups = np.repeat(np.arange(4), [2, 5, 7, 40])
    monkeypatch.setattr(folds, "N_FOLDS", n_folds)
    fold = make_folds(shuffle(54), groups)
    assert fold.min() == 0
    assert fold.max() == n_folds - 1
    for group in range(4):
        assert np.ptp(np.bincount(fold[groups == group], minlength=n_folds)) <= 1
    assert np.ptp(np.bincount(fold)) <= 1


@pytest.mark.parametrize(
    ("sizes", "n_folds"),
    [([23, 11, 1], 5), ([23, 3], 5), ([2, 2], 4), ([1, 1, 1, 1], 0), ([40, 2, 0, 1], 5)],
)
def test_a_small_class_is_in_as_many_folds_as_it_has_samples(sizes, n_folds):
    classes = np.repeat(np.arange(len(sizes)), sizes)
    fold = make_folds(shuffle(len(classes)), classes)
    assert fold.max() + 1 == n_folds
    for own, size in enumerate(sizes):
        expected = min(size, 5) if size > 1 else 0
        held_out = fold[(classes == own) & (fold >= 0)]
        assert len(np.unique(held_out)) == expected
        assert len(held_out) == size * (size > 1)
    everything = np.append(classes, -1)
    assert make_folds(shuffle(len(everything)), everything)[-1] == -1


def test_folds_of_real_outputs_and_of_label_sets():
    keys = shuffle(23)
    assert np.ptp(np.bincount(make_folds(keys, None), minlength=5)) <= 1
    labels = (draw(23, 2, seed=1) > 0.3).astype(int)
    fold = make_folds(keys, labels)
    assert fold.max() == 4
    for own in labels.T:
        count = np.bincount(fold[(own == 1) & (fold >= 0)], minlength=5)
        assert np.ptp(count) <= 2


@pytest.mark.parametrize("seed", range(10))
def test_every_value_of_every_label_is_in_every_training_set(seed):
    """Most labels are missing; a value of the last one has a single sample."""
    rng = np.random.default_rng(seed)
    labels = np.column_stack([rng.integers(0, k, 80) for k in (2, 3, 5)])
    labels[rng.random(labels.shape) < 0.6] = -1
    labels[0] = -1
    labels[7] = [0, 1, 5]
    fold = make_folds(rng.permutation(80), labels)
    assert fold[0] == fold[7] == -1
    assert np.count_nonzero(fold[(labels >= 0).any(axis=1)] < 0) <= 3
    sizes = np.bincount(fold[fold >= 0], minlength=5)
    assert sizes.max() <= 1.5 * sizes.mean()
    for own in labels.T:
        for number in range(5):
            assert {*own[fold != number]} >= {*own[own >= 0]}


def test_groups_are_in_one_fold_and_classes_in_all():
    keys = shuffle(120)
    groups = np.repeat(np.arange(24), 5)
    classes = np.arange(24)[groups] % 3
    fold = make_folds(keys, classes, groups)
    assert fold.max() == 4
    for group in range(24):
        assert len(np.unique(fold[groups == group])) == 1
    for own in range(3):
        assert np.ptp(np.bincount(fold[classes == own], minlength=5)) <= 5
    order = shuffle(120, seed=1)
    again = make_folds(keys[order], classes[order], groups[order])
    np.testing.assert_array_equal(again, fold[order])


@pytest.mark.parametrize(
    ("classes", "groups", "expected"),
    [
        ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1]),  # two groups
        ([0, 0, 1, 1], [0, 0, 0, 0], [-1, -1, -1, -1]),  # one group
        ([0, 0, 1, 1], [0, 0, 1, 1], [-1, -1, -1, -1]),  # a group of each class
        ([0, 1, 0, 1, 0, 1, 2], [0, 0, 1, 1, 2, 2, 2], [0, 0, 1, 1, -1, -1, -1]),
        ([0, -1, 0, -1], [0, 0, 1, 2], [0, -1, 1, -1]),  # without a class
    ],
)
def test_few_groups(classes, groups, expected):
    """Up to the names of the folds."""
    for seed in range(10):
        fold = make_folds(shuffle(len(classes), seed), np.array(classes), np.array(groups))
        np.testing.assert_array_equal(fold < 0, np.array(expected) < 0)
        np.testing.assert_array_equal(together(fold), together(np.array(expected)))


@pytest.mark.parametrize("seed", range(20))
def test_no_class_is_held_out_whole(seed):
    rng = np.random.default_rng(seed)
    groups, classes = rng.integers(7, size=40), rng.integers(4, size=40)
    fold = make_folds(shuffle(40), classes, groups)
    for held_out in range(fold.max() + 1):
        assert set(classes[fold == held_out]) <= set(classes[fold != held_out])


def test_groups_of_real_outputs():
    groups = np.repeat(np.arange(11), 4)
    fold = make_folds(shuffle(44), None, groups)
    assert np.ptp(np.bincount(fold)) <= 4
    assert len(np.unique(np.column_stack([groups, fold]), axis=0)) == 11


@pytest.mark.parametrize(
    "classes", [None, np.arange(60) % 4 - 1, np.arange(180).reshape(60, 3) % 2]
)
def test_keys_are_a_permutation_of_the_samples(classes):
    keys = random_keys(draw(60, 7), classes, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(keys), np.arange(60))
    other = random_keys(draw(60, 7), classes, np.random.default_rng(1))
    assert np.count_nonzero(other == keys) < 10


def test_dense_and_sparse_samples_have_the_same_keys():
    X = draw(500, 6)
    y = np.arange(500) % 3
    keys = random_keys(X, y, np.random.default_rng(0))
    np.testing.assert_array_equal(random_keys(csr_array(X), y, np.random.default_rng(0)), keys)


def test_every_key_is_as_likely_for_large_values_as_for_small_ones():
    """2000 draws: the mean key of 20 samples is 9.5 within 4.5 standard errors of 0.13."""
    X = np.sort(np.abs(np.random.default_rng(0).standard_normal((20, 1))), axis=0)
    rng = np.random.default_rng(1)
    mean = np.mean([random_keys(X, np.arange(20) % 2, rng) for _ in range(2000)], axis=0)
    assert np.abs(mean - 9.5).max() < 4.5 * 0.13
    assert np.std(mean) > 0.4 * 0.13


def with_copies(n=30, d=8):
    """Samples 3 to 7 again, the last one twice, in random order, and the sample of each."""
    source = np.random.default_rng(3).permutation(np.append(np.arange(n), [3, 4, 5, 6, 7, 7]))
    return np.random.default_rng(2).standard_normal((n, d))[source], source


@pytest.mark.parametrize("rounding", [0.0, 1e-6])
@pytest.mark.parametrize("form", ["dense", "sparse", "missing", "in other units"])
def test_copies_are_found(form, rounding):
    X, source = with_copies()
    if form == "missing":
        X[np.random.default_rng(4).random((30, 8))[source] < 0.2] = np.nan
    if form == "in other units":
        X *= 1e-20
    X *= 1.0 + rounding * np.random.default_rng(5).uniform(-1.0, 1.0, X.shape)
    found = find_copies(csr_array(X) if form == "sparse" else X)
    np.testing.assert_array_equal(together(found), together(source))


def test_samples_that_differ_in_one_value_or_in_what_is_missing_are_no_copies():
    X, _ = with_copies()
    X = X[:2].repeat(2, axis=0)
    X = np.concatenate([X, draw(20, 8, seed=6) + 0.01])
    X[0, 0] += 0.01
    X[2, 0] = np.nan
    assert find_copies(X) is None


def test_independent_features_of_few_values_are_no_copies():
    rng = np.random.default_rng(7)
    for n_values, d in ((2, 3), (2, 8), (10, 2)):
        X = rng.integers(n_values, size=(300, d)).astype(float)
        assert len(np.unique(X, axis=0)) < 300
        assert find_copies(X) is None
    counts = rng.poisson(200.0, size=(400, 2)).astype(float)
    assert len(np.unique(counts, axis=0)) < 400
    assert find_copies(counts) is None
    assert find_copies(np.zeros((5, 2))) is None


def test_copies_of_features_of_many_values_are_found_beside_features_of_few():
    X, source = with_copies()
    X = np.column_stack([X, np.arange(30)[source] % 2])
    np.testing.assert_array_equal(together(find_copies(X)), together(source))
