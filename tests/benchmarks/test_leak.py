"""No method profits from what it may not see: labels of test rows, and test rows at all."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy import measure
from benchmarks.methods import METHODS
from benchmarks.methods.base import ImpossibleError
from benchmarks.protocols import Split
from bsdr_models.inference.sampling import Schedule

N_CLASSES, N_TRAIN, N_TEST, N_FEATURES = 3, 30, 300, 6
QUICK = ("BM2PCA", "LDA + k-NN")
# One of those that differ in a number, a prior, views, or the classifier of a projection only.
ALIKE = r", (weight|C =|columnwise|160|views)|\+ (probit|k-NN)"
FORMS = [name for name in METHODS if not re.search(ALIKE, name)]
EVERY = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in (*QUICK, *(name for name in FORMS if name not in QUICK))
]
every_method = pytest.mark.parametrize("method", EVERY)
quick_method = pytest.mark.parametrize("method", QUICK)
# Methods whose seeds or searches depend on the order of the classes are that far from even.
UNEVEN = 0.1


def make_split(seed=0):
    """Three clusters in the plane, four features of noise; classes in equal numbers."""
    rng = np.random.default_rng(seed)
    y = np.arange(N_TRAIN + N_TEST) % N_CLASSES
    centres = 3.0 * np.eye(N_CLASSES, N_FEATURES)
    X = centres[y] + rng.standard_normal((len(y), N_FEATURES))
    return Split(X_train=X[:N_TRAIN], y_train=y[:N_TRAIN], X_test=X[N_TRAIN:], y_test=y[N_TRAIN:])


def accuracy(method, split):
    found, _, _ = measure(split, method, 2, 0)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    return found["accuracy"]


def fit(method, split):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return METHODS[method].fit(split.training, 2, 0)
        except ImpossibleError as reason:
            pytest.skip(str(reason))


@quick_method
def test_labels_of_test_rows_are_not_known(method):
    """Of 300 rows in random order a third is right by chance, give or take 2.7 points."""
    split = make_split()
    order = np.random.default_rng(1).permutation(N_TEST)
    permuted = accuracy(method, replace(split, y_test=split.y_test[order]))
    deviation = np.sqrt(1 / 3 * 2 / 3 / (N_TEST - 1))
    assert abs(permuted - 1 / 3) < 5.0 * deviation


@quick_method
def test_labels_of_training_rows_are_all_there_is_to_learn_from(method):
    """Labels in random order, with every cyclic shift of the classes.

    Who learns from them alone names each test row once rightly in as many shifts as there are
    classes, so the mean accuracy is one in three; who knew the truth would have more.
    """
    split = make_split()
    order = np.random.default_rng(2).permutation(N_TRAIN)
    found = [
        accuracy(method, replace(split, y_train=(split.y_train[order] + shift) % N_CLASSES))
        for shift in range(N_CLASSES)
    ]
    assert abs(np.mean(found) - 1 / 3) < UNEVEN


@every_method
@pytest.mark.usefixtures("short_runs")
def test_a_fit_is_the_same_whatever_the_test_rows_are(method, monkeypatch):
    """Settings and predictions of training rows, bit by bit: then nothing of them is known."""
    few = {"draws": 20, "tune": 20}
    monkeypatch.setattr(
        "bsdr_models.estimators.base.Schedule", lambda **given: Schedule(**given | few)
    )
    split = make_split()
    other = replace(split, X_test=10.0 - 3.0 * split.X_test, y_test=np.roll(split.y_test[::-1], 1))
    ours, theirs = fit(method, split), fit(method, other)
    assert json.dumps(ours.record) == json.dumps(theirs.record)
    np.testing.assert_array_equal(ours.predict(split.X_train), theirs.predict(split.X_train))


@quick_method
def test_the_clusters_can_be_learnt(method):
    """Or the tests above would pass for a method that says anything."""
    assert accuracy(method, make_split()) > 0.6


def test_scaling_looks_at_training_rows_alone():
    split = make_split()
    other = replace(split, X_test=split.X_test + 100.0)
    np.testing.assert_array_equal(split.standardised().X_train, other.standardised().X_train)
