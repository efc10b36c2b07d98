"""Folds are stratified, and depend on the values of the samples alone."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models.numerics.folds import assign_folds, make_folds, sample_keys


def draw(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < 0.4, 0.0, rng.standard_normal((n, d)))


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_folds_partition_the_samples_and_are_stratified(n_folds):
    groups = np.repeat(np.arange(4), [2, 5, 7, 40])
    fold = assign_folds(groups, sample_keys(draw(54, 3)), n_folds=n_folds)
    assert fold.min() == 0
    assert fold.max() == n_folds - 1
    for group in range(4):
        assert np.ptp(np.bincount(fold[groups == group], minlength=n_folds)) <= 1
    assert np.ptp(np.bincount(fold)) <= 1


@pytest.mark.parametrize(
    ("sizes", "n_folds"), [([23, 11, 1], 5), ([23, 3], 3), ([1, 1, 1, 1], 0), ([40, 2, 0, 1], 2)]
)
def test_there_are_as_many_folds_as_samples_of_the_smallest_class_of_several(sizes, n_folds):
    classes = np.repeat(np.arange(len(sizes)), sizes)
    fold = make_folds(draw(len(classes), 3), classes)
    assert fold.max() + 1 == n_folds
    alone = np.array(sizes)[classes] == 1
    np.testing.assert_array_equal(fold == -1, alone)
    everything = np.append(classes, -1)
    assert make_folds(draw(len(everything), 3), everything)[-1] == -1


def test_folds_of_real_outputs_and_of_label_sets():
    X = draw(23, 3)
    assert np.ptp(np.bincount(make_folds(X, None), minlength=5)) <= 1
    labels = (draw(23, 2, seed=1) > 0.3).astype(int)
    fold = make_folds(X, labels)
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
    fold = assign_folds(labels, rng.permutation(80), n_folds=5)
    assert fold[0] == fold[7] == -1
    assert np.count_nonzero(fold[(labels >= 0).any(axis=1)] < 0) <= 3
    sizes = np.bincount(fold[fold >= 0], minlength=5)
    assert sizes.max() <= 1.5 * sizes.mean()
    for own in labels.T:
        for number in range(5):
            assert {*own[fold != number]} >= {*own[own >= 0]}


def test_groups_are_in_one_fold_and_classes_in_all():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(24), 5)
    classes = np.arange(24)[groups] % 3
    fold = make_folds(draw(120, 3), classes, groups)
    assert fold.max() == 4
    for group in range(24):
        assert len(np.unique(fold[groups == group])) == 1
    for own in range(3):
        assert np.ptp(np.bincount(fold[classes == own], minlength=5)) <= 5
    order = rng.permutation(120)
    again = make_folds(draw(120, 3)[order], classes[order], groups[order])
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
    fold = make_folds(draw(len(classes), 2), np.array(classes), np.array(groups))
    np.testing.assert_array_equal(fold, expected)


@pytest.mark.parametrize("seed", range(20))
def test_no_class_is_held_out_whole(seed):
    rng = np.random.default_rng(seed)
    groups, classes = rng.integers(7, size=40), rng.integers(4, size=40)
    fold = make_folds(draw(40, 2), classes, groups)
    for held_out in range(fold.max() + 1):
        assert set(classes[fold == held_out]) <= set(classes[fold != held_out])


def test_groups_of_real_outputs():
    groups = np.repeat(np.arange(11), 4)
    fold = make_folds(draw(44, 2), None, groups)
    assert np.ptp(np.bincount(fold)) <= 4
    assert len(np.unique(np.column_stack([groups, fold]), axis=0)) == 11


def test_singletons_and_samples_without_a_group_are_never_held_out():
    groups = np.array([0, 1, 1, -1, -1, 2, 2, 2])
    fold = assign_folds(groups, sample_keys(draw(8, 3)), n_folds=5)
    np.testing.assert_array_equal(fold == -1, [1, 0, 0, 1, 1, 0, 0, 0])


def test_order_of_samples_and_features_units_and_names_of_groups_make_no_difference():
    rng, X, groups = np.random.default_rng(1), draw(60, 7), np.arange(60) % 4
    X[3, 2] = np.nan
    samples, features, names = (rng.permutation(n) for n in (60, 7, 4))
    fold = assign_folds(groups, sample_keys(X), n_folds=5)
    rounded = -1e3 * X[samples][:, features] * (1.0 + 1e-15)
    again = assign_folds(names[groups][samples], sample_keys(rounded), n_folds=5)
    np.testing.assert_array_equal(again, fold[samples])


def test_dense_and_sparse_samples_have_the_same_keys_and_others_have_others():
    X = draw(500, 6)
    keys = sample_keys(X)
    np.testing.assert_array_equal(sample_keys(csr_array(X)), keys)
    assert len(np.unique(keys)) == len(np.unique(X, axis=0))
    assert np.count_nonzero(sample_keys(X + 1e-3) == keys) == 0


def test_folds_have_nothing_to_do_with_the_size_of_the_values():
    X = np.sort(np.random.default_rng(0).standard_normal((2000, 1)), axis=0)
    fold = assign_folds(np.zeros(2000, dtype=int), sample_keys(X), n_folds=5)
    means = np.array([X[fold == number].mean() for number in range(5)])
    assert np.abs(means).max() < 4.5 / np.sqrt(400)
    assert np.std(means) > 0.2 / np.sqrt(400)
