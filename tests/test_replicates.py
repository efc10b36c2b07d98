"""Dependent samples: predictions that rest on near neighbours, weights, effective number."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import nan_euclidean_distances

from bsdr_models.data import replicates
from bsdr_models.data.replicates import (
    effective_share,
    intraclass,
    rests_on_neighbours,
    warn_of_replicates,
    weigh_samples,
)
from bsdr_models.estimators.calibration import HeldOutScore

MESSAGE = "rests on samples that resemble each other"


def scale(X):
    return (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)


def subjects(icc, seed=0, n=24, m=5, d=50):
    """Noise about the noise of a subject, and the subject of each sample."""
    rng = np.random.default_rng([17, seed])
    subject = np.repeat(np.arange(n), m)
    own = rng.standard_normal((n, d))[subject]
    return np.sqrt(icc) * own + np.sqrt(1.0 - icc) * rng.standard_normal((n * m, d)), subject


def noticed(X, classes, outputs=None):
    """Whether a fit to such targets would warn."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        outputs = np.empty((len(X), 0)) if outputs is None else outputs
        warn_of_replicates(scale(X), classes, outputs)
    assert all(MESSAGE in str(each.message) for each in caught)
    return len(caught) == 1


class TestLeavingOut:
    def left_out(self, X, Y, sets, fit):
        """Residuals of each sample after a fit to those that are not left out."""
        found = []
        for n, own in enumerate(sets):
            rest = np.setdiff1d(np.arange(len(X)), [n, *own])
            found.append(Y[n] - fit(X[rest], Y[rest]).predict(X[n : n + 1])[0])
        return np.array(found)

    @pytest.mark.parametrize("k", [1, 4])
    @pytest.mark.parametrize("d", [5, 40])
    def test_closed_form_is_that_of_refits(self, d, k):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((30, d))
        Y = X[:, :2] + rng.standard_normal((30, 2)) + 3.0
        Y -= Y.mean(axis=0)
        sets = np.array([rng.choice(np.delete(np.arange(30), n), k, False) for n in range(30)])
        ridge, intercept = 0.3 * d, 30.0 * d
        A = np.linalg.inv(X @ X.T + intercept + ridge * np.eye(30))
        found = replicates._residuals(A, A @ Y, sets)
        # A feature that is constant has the variance of the intercept.
        more = np.column_stack([X, np.full(30, np.sqrt(intercept))])
        penalised = self.left_out(
            more, Y, sets, lambda X, y: Ridge(ridge, fit_intercept=False).fit(X, y)
        )
        np.testing.assert_allclose(found, penalised, rtol=1e-8, atol=1e-10)
        usual = self.left_out(X, Y, sets, lambda X, y: Ridge(ridge).fit(X, y))
        np.testing.assert_allclose(found, usual, atol=0.02)

    def test_distances_are_over_the_values_that_both_have(self):
        X = np.random.default_rng(1).standard_normal((20, 30))
        X[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
        gram, distance = replicates._compare(X)
        X /= np.nanmax(np.abs(X))  # distances and products are in this unit
        expected = nan_euclidean_distances(X, squared=True)
        np.fill_diagonal(expected, np.inf)
        np.testing.assert_allclose(distance, expected)
        filled = np.nan_to_num(X)
        np.testing.assert_allclose(gram, filled @ filled.T)

    def test_random_samples_are_others_of_the_same_classes(self):
        rng = np.random.default_rng(3)
        classes = np.repeat([0, 1, 2], [40, 20, 12])
        near = np.array([rng.choice(np.delete(np.arange(72), n), 3, False) for n in range(72)])
        found = replicates._random_sets(classes, near, rng)
        np.testing.assert_array_equal(classes[found], classes[near])
        every = np.column_stack([np.arange(72), found])
        assert all(len({*own}) == 4 for own in every.tolist())
        assert np.mean(found == near) < 0.2


class TestReplicates:
    @pytest.mark.parametrize("icc", [0.5, 0.7, 0.86])
    @pytest.mark.parametrize(("n_classes", "missing"), [(2, 0.0), (3, 0.0), (2, 0.02)])
    def test_noise_of_subjects_is_noticed(self, icc, n_classes, missing):
        """Nearly always, and missing values do not hide it."""
        found = []
        for seed in range(10):
            X, subject = subjects(icc, seed)
            X[np.random.default_rng(seed).random(X.shape) < missing] = np.nan
            found.append(noticed(X, subject % n_classes))
        assert sum(found) >= 9

    @pytest.mark.parametrize("icc", [0.7, 0.86])
    def test_noise_of_subjects_in_few_features_is_noticed(self, icc):
        noticed = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            subject = np.repeat(np.arange(24), 5)
            y = rng.permutation(np.arange(24) % 2)[subject]
            X = np.sqrt(icc) * rng.standard_normal((24, 10))[subject]
            X += np.sqrt(1.0 - icc) * rng.standard_normal((120, 10))
            noticed.append(rests_on_neighbours(X, np.eye(2)[y], y))
        assert np.mean(noticed) >= 0.9

    @pytest.mark.parametrize("n", [40, 100, 300])
    def test_curved_boundaries_are_not_noticed(self, n):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            y = np.arange(n) % 2
            angle = rng.uniform(0.0, 2.0 * np.pi, n)
            ring = (1.0 + y)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
            X = ring + 0.2 * rng.standard_normal((n, 2))
            assert not rests_on_neighbours(X, np.eye(2)[y], y)

    def test_samples_without_a_class_have_no_part(self):
        X, subject = subjects(0.7)
        y = np.where(np.arange(120) % 6 == 0, -1, subject % 2)
        assert noticed(X, y)
        assert not noticed(X, np.where(np.arange(120) % 5, -1, subject % 2))

    def test_names_of_classes_and_the_order_of_samples_do_not_matter(self):
        X, subject = subjects(0.7)
        order = np.random.default_rng(0).permutation(120)
        assert noticed(X[order], 5 + 3 * (subject[order] % 2))

    def test_copies_are_counted_once(self):
        """They are held out together; subjects of which all samples are copied are noticed."""
        X = np.random.default_rng(0).standard_normal((40, 30))
        X[:, 0] += 3.0 * (np.arange(40) % 2)
        for again in (np.repeat(np.arange(40), 2), np.repeat(np.arange(40), 5)):
            assert not noticed(X[again], again % 2)
        X, subject = subjects(0.7)
        again = np.repeat(np.arange(120), 2)
        assert noticed(X[again], subject[again] % 2)

    def test_interpolated_samples_of_the_smaller_class_are_noticed(self):
        """Between a sample and one of its five nearest, as SMOTE makes them."""
        for seed in range(5):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((80, 30))
            few = X[60:]
            near = np.argsort(nan_euclidean_distances(few), axis=1)[:, 1:6]
            first = rng.integers(20, size=40)
            second = near[first, rng.integers(5, size=40)]
            between = few[first] + rng.random((40, 1)) * (few[second] - few[first])
            y = np.repeat([0, 1], 60)
            assert noticed(np.concatenate([X, between]), y)

    def test_real_outputs_of_subjects_are_noticed(self):
        for seed in range(5):
            X, subject = subjects(0.7, seed)
            own = np.random.default_rng(seed).standard_normal((24, 2))[subject]
            y = own + 0.3 * np.random.default_rng(seed + 9).standard_normal((120, 2))
            assert noticed(X, None, y)
            assert noticed(X, None, y[:, :1])

    def test_labels_of_subjects_are_noticed(self):
        X, subject = subjects(0.7)
        assert noticed(X, np.stack([subject % 2, subject // 2 % 2], axis=1))

    @pytest.mark.parametrize("icc", [0.0, 0.7])
    def test_sparse_samples_are_judged_as_dense_ones(self, icc):
        X, subject = subjects(icc)
        y = subject % 2
        X = np.where(np.abs(X) < 0.8, 0.0, X) / np.std(X)
        targets = np.eye(2)[y]
        expected = rests_on_neighbours(X, targets, y)
        assert expected == (icc > 0.0)
        assert rests_on_neighbours(csr_array(X), targets, y) == expected


class TestIndependentSamples:
    @pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
    def test_real_data_are_not_noticed(self, load):
        X, y = load(return_X_y=True)
        assert not noticed(X, y)
        order = np.random.default_rng(0).permutation(len(y))
        for part in (order[:60], order[60:120]):
            assert not noticed(X[part], np.unique(y[part], return_inverse=True)[1])

    def test_a_regression_is_not_noticed(self):
        X, y = load_diabetes(return_X_y=True)
        assert not noticed(X, None, scale(y[:, None]))

    @pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
    @pytest.mark.parametrize(("n", "d"), [(120, 50), (60, 5), (30, 300)])
    def test_classes_that_differ_are_not_noticed(self, n, d, strength):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            y = np.arange(n) % 3
            X = rng.standard_normal((n, d))
            X[:, :3] += strength * rng.standard_normal((3, 3))[y]
            assert not noticed(X, y)
            assert not noticed(X, np.stack([y > 0, y % 2], axis=1).astype(int))
            assert not noticed(X, None, X[:, :1] * strength + rng.standard_normal((n, 1)))

    def test_subjects_whose_classes_are_mixed_are_not_noticed(self):
        for seed in range(5):
            X, _ = subjects(0.7, seed)
            assert not noticed(X, np.arange(120) % 2)

    def test_too_few_samples_or_none_that_differ(self):
        X, subject = subjects(0.86)
        assert not noticed(X[:7], subject[:7] % 2)
        with warnings.catch_warnings(action="error"):
            warn_of_replicates(np.zeros((20, 3)), np.arange(20) % 2, np.empty((20, 0)))
            warn_of_replicates(X, np.full(120, -1), np.empty((120, 0)))
            partly = np.stack([np.arange(120) % 4 // 2, -np.ones(120, dtype=int)], axis=1)
            warn_of_replicates(X, partly, np.empty((120, 0)))
            warn_of_replicates(X, None, np.full((120, 1), np.nan))


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
        score = HeldOutScore.of(terms, np.zeros(120), np.ones(120), groups=groups)
        errors.append(120 * score.gain_se)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(sums), rel=0.06)
