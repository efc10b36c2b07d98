"""Training samples: divisions are a function of the samples, copies stay together, folds are blind.

Divisions of changed samples are compared sample by sample with those of the samples as they were.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models.data import training
from bsdr_models.data.training import Training, is_shared, shared_training
from bsdr_models.numerics.scaling import Scaler


@dataclass
class Data:
    """Samples as given, classes, and the position of each among those that were drawn."""

    X: np.ndarray
    y: np.ndarray | None
    groups: np.ndarray | None = None
    place: np.ndarray = field(default=None)

    def __post_init__(self):
        self.place = np.arange(len(self.X)) if self.place is None else self.place


def draw(n=60, d=7, seed=0):
    rng = np.random.default_rng([5, seed])
    y = np.arange(n) % 3
    return rng.standard_normal((3, d))[y] + rng.standard_normal((n, d)), y


def unlike_sizes():
    X, y = draw()
    y[:25] = 0
    y[25:28] = -1
    return Data(X, y)


def with_copies():
    """Ten samples twice and one four times."""
    X, y = draw()
    again = np.r_[0:60, 0:10, 11, 11, 11]
    return Data(X[again], y[again])


def of_subjects():
    X, y = draw()
    groups = np.random.default_rng(2).permutation(np.repeat(np.arange(20), 3))
    return Data(X, y, groups)


FORMS = {
    "classes": lambda: Data(*draw()),
    "classes of unlike sizes, some unknown": unlike_sizes,
    "labels": lambda: Data(draw()[0], np.stack([draw()[1] > 0, draw()[1] % 2], axis=1).astype(int)),
    "real outputs": lambda: Data(draw()[0], None),
    "copies": with_copies,
    "groups": of_subjects,
}
each_form = pytest.mark.parametrize("form", FORMS)


def make(data, seed=0, metric=None, *, sparse=False):
    scaler = Scaler.fit(data.X)
    X = scaler.transform(data.X)
    X = csr_array(X) if sparse else X
    n_classes = 1 if data.y is None else data.y.max() + 1
    rng = np.random.default_rng(seed)
    units = np.ones(X.shape[1])
    return Training.of(X, data.y, n_classes, units, metric=metric, rng=rng, groups=data.groups)


def by_sample(data, folds):
    """Folds in the order in which samples were drawn, with names in that order."""
    ordered = np.empty(len(folds), dtype=int)
    ordered[data.place] = folds
    names = {-1: -1}
    return [names.setdefault(fold, len(names) - 1) for fold in ordered.tolist()]


def permute_rows(data, rng):
    order = rng.permutation(len(data.X))
    y = None if data.y is None else data.y[order]
    groups = None if data.groups is None else data.groups[order]
    return Data(data.X[order], y, groups, order)


def permute_columns(data, rng):
    return replace(data, X=data.X[:, rng.permutation(data.X.shape[1])])


def negate_columns(data, rng):
    return replace(data, X=data.X * rng.choice([-1.0, 1.0], data.X.shape[1]))


def change_units(data, rng):
    d = data.X.shape[1]
    return replace(data, X=data.X * np.exp(3.0 * rng.standard_normal(d)) + rng.standard_normal(d))


def rename_classes(data, rng):
    """Values of a label are exchanged."""
    if data.y is None:
        return data
    names = rng.permutation(data.y.max() + 1) if data.y.ndim == 1 else np.array([1, 0])
    return replace(data, y=np.where(data.y < 0, -1, names[data.y]))


def rename_groups(data, rng):
    if data.groups is None:
        return data
    return replace(data, groups=rng.permutation(data.groups.max() + 1)[data.groups])


def single_precision(data, _):
    return replace(data, X=data.X.astype(np.float32).astype(np.float64))


def six_digits(data, _):
    digits = [float(f"{value:.6g}") for value in data.X.ravel()]
    return replace(data, X=np.reshape(digits, data.X.shape))


CHANGES = (
    permute_rows,
    permute_columns,
    negate_columns,
    change_units,
    rename_classes,
    rename_groups,
    single_precision,
    six_digits,
)


class TestDivisions:
    @each_form
    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_they_are_a_function_of_the_samples(self, form, change):
        data = FORMS[form]()
        rng = np.random.default_rng(8)
        for seed in range(2):
            before, after = make(data, seed), change(data, rng)
            found = make(after, seed)
            for fold, again in zip(before.divisions, found.divisions, strict=True):
                np.testing.assert_array_equal(by_sample(after, again), by_sample(data, fold))
            if data.groups is not None:
                np.testing.assert_array_equal(
                    by_sample(after, found.singly), by_sample(data, before.singly)
                )

    @each_form
    def test_another_seed_has_other_ones(self, form):
        data = FORMS[form]()
        found = [make(data, seed).divisions for seed in (0, 1)]
        folds = [by_sample(data, fold) for divisions in found for fold in divisions]
        assert len(folds) == 4
        assert len(np.unique(folds, axis=0)) == 4

    @pytest.mark.parametrize(("n", "n_divisions"), [(20, 2), (100, 2), (300, 1)])
    def test_few_samples_have_several(self, n, n_divisions):
        found = make(Data(*draw(n)))
        assert len(found.divisions) == n_divisions
        for fold in found.divisions:
            assert np.ptp(np.bincount(fold, minlength=5)) <= 1

    def test_missing_values_do_not_hinder(self):
        data = with_copies()
        lacks = np.random.default_rng(0).random((60, 7)) < 0.1
        data.X[np.concatenate([lacks, lacks[:10], lacks[[11, 11, 11]]])] = np.nan
        found = make(data)
        assert {*found.divisions[0]} == {0, 1, 2, 3, 4}
        after = permute_rows(data, np.random.default_rng(1))
        again = by_sample(after, make(after).divisions[0])
        assert again == by_sample(data, found.divisions[0])


def in_one_fold(fold, groups):
    return all(len(np.unique(fold[groups == group])) == 1 for group in np.unique(groups))


class TestGroups:
    @pytest.mark.parametrize("rounding", [0.0, 1e-6])
    @pytest.mark.parametrize("sparse", [False, True])
    def test_copies_are_in_one_fold(self, rounding, sparse):
        data = with_copies()
        data.X *= 1.0 + rounding * np.random.default_rng(6).uniform(-1.0, 1.0, data.X.shape)
        source = np.r_[0:60, 0:10, 11, 11, 11]
        for seed in range(5):
            found = make(data, seed, sparse=sparse)
            assert found.singly is None
            assert all(in_one_fold(fold, source) for fold in found.divisions)
            assert len(np.unique(found.groups)) == 60

    def test_those_of_the_user_are_in_one_fold(self):
        data = of_subjects()
        for seed in range(5):
            found = make(data, seed)
            assert all(in_one_fold(fold, data.groups) for fold in found.divisions)
            assert not in_one_fold(found.singly, data.groups)
        np.testing.assert_array_equal(found.groups, data.groups)

    def test_replicates_are_a_share_of_their_number(self):
        X, y = draw(30)
        groups = np.repeat(np.arange(30), 5)
        assert make(Data(X[groups], y[groups])).share == pytest.approx(0.2)
        assert make(Data(X[groups], y[groups], groups)).share == pytest.approx(0.2)
        assert make(Data(X, y)).share == 1.0
        unknown = np.where(np.arange(150) % 5 == 1, -1, y[groups])
        assert make(Data(X[groups], unknown, groups)).share == pytest.approx(0.25)


class TestMetrics:
    @pytest.mark.parametrize("form", ["classes", "labels", "some unknown"])
    def test_those_of_a_fold_know_nothing_of_its_samples(self, form, monkeypatch):
        X, y = draw(d=20)
        fold = (1, 0)
        if form == "labels":
            y = np.stack([y > 0, y % 2], axis=1).astype(int)
        if form == "some unknown":
            y[::7] = -1
        before = make(Data(X, y), metric="auto")
        folds = iter(before.divisions)
        monkeypatch.setattr(training, "random_keys", lambda *_: before.keys)
        monkeypatch.setattr(training, "make_folds", lambda *_: next(folds))
        out = before.out(fold)
        other, labels = before.X.copy(), y.copy()
        other[out] = 5.0 * np.random.default_rng(9).standard_normal((out.sum(), 20))
        known = out & (y.reshape(60, -1) >= 0).all(axis=1)
        labels[known] = y[known][0]
        rng = np.random.default_rng(0)
        after = Training.of(other, labels, 3, before.units, metric="auto", rng=rng)
        assert after.metric_weights(fold) == pytest.approx(before.metric_weights(fold), rel=1e-9)
        inner = [each.metric(fold).whiten(before.X) for each in (before, after)]
        np.testing.assert_allclose(*(Z @ Z.T for Z in inner), rtol=1e-8, atol=1e-9)
        elsewhere = fold[0], (fold[1] + 1) % 5
        for other_fold in (None, elsewhere):
            weights = [each.metric_weights(other_fold) for each in (before, after)]
            assert np.abs(weights[0] - weights[1]).max() > 1e-3
            effects = [each.metric(other_fold).effects for each in (before, after)]
            assert effects[0].shape != effects[1].shape or not np.allclose(*effects, rtol=0.01)

    def test_the_metric_of_a_fold_is_that_of_the_other_samples(self):
        """Weights are given; scaled samples are those of all."""
        data = FORMS["classes"]()
        found = make(data, metric="auto")
        rest = ~found.out((0, 1))
        rng = np.random.default_rng(0)
        alone = Training.of(found.X[rest], data.y[rest], 3, found.units, metric="unit", rng=rng)
        alone = alone.learn_metric(np.ones(rest.sum(), dtype=bool), found.metric_weights((0, 1)))
        inner = [
            each.whiten(found.X) @ each.whiten(found.X).T for each in (found.metric((0, 1)), alone)
        ]
        np.testing.assert_allclose(*inner, rtol=1e-8, atol=1e-10)

    def test_there_are_none_unless_they_are_asked_for(self):
        assert make(FORMS["classes"]()).metric_weights().size == 0


class TestFolds:
    def test_all_or_as_many_as_give_so_many_samples(self):
        found = make(FORMS["classes"]())
        every = [(division, number) for division in (0, 1) for number in range(5)]
        assert found.folds() == every
        assert found.n_folds == 5
        assert found.folds(1) == [(0, 0), (1, 0)]
        assert found.folds(12) == [(0, 0), (1, 0)]
        assert found.folds(13) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        for division in (0, 1):
            held_out = np.sum([found.out((division, number)) for number in range(5)], axis=0)
            np.testing.assert_array_equal(held_out, 1)


class TestLimited:
    def test_few_samples_are_left_as_they_are(self):
        found = make(FORMS["classes"]())
        assert found.limited(60) is found
        real = make(FORMS["real outputs"]())
        assert real.limited(10) is real

    def test_a_subsample_has_the_same_share_of_every_class_and_all_unknown_samples(self):
        data = unlike_sizes()
        found = make(data)
        some = found.limited(30)
        known = data.y >= 0
        assert known[some.kept].sum() in range(30, 34)
        assert (~known)[some.kept].sum() == 3
        count, before = (np.bincount(y[y >= 0]) for y in (some.classes, data.y))
        assert np.abs(count - 30.0 * before / before.sum()).max() <= 1.0
        np.testing.assert_array_equal(some.X, found.X[some.kept])
        np.testing.assert_array_equal(some.classes, data.y[some.kept])
        for fold, every in zip(some.divisions, found.divisions, strict=True):
            np.testing.assert_array_equal(fold, every[some.kept])

    def test_it_is_a_function_of_the_samples(self):
        data = FORMS["classes"]()
        after = permute_rows(data, np.random.default_rng(2))
        expected = make(data).limited(20).kept
        assert {*after.place[make(after).limited(20).kept]} == {*expected}
        assert {*make(data, seed=1).limited(20).kept} != {*expected}

    def test_its_metric_is_of_its_samples(self):
        data = of_subjects()
        with shared_training(0):
            found = make(data, metric="auto")
            whole = found.metric()
            some = found.limited(30)
            assert some.metric() is not whole
            assert some.metric().mean == pytest.approx(some.X.mean(axis=0))
        np.testing.assert_array_equal(some.groups, found.groups[some.kept])
        np.testing.assert_array_equal(some.singly, found.singly[some.kept])


class TestSharing:
    def test_fits_to_the_same_samples_share_one_object(self):
        data = FORMS["classes"]()
        with shared_training(3):
            assert is_shared()
            first = make(data, seed=0, metric="unit")
            second = make(replace(data, X=data.X.copy()), seed=1, metric="unit")
            assert second is first
            assert first.metric((0, 1)) is second.metric((0, 1))
            others = [
                make(data),
                make(replace(data, X=data.X[:, 1:]), metric="unit"),
                make(replace(data, y=data.y[::-1].copy()), metric="unit"),
                make(replace(data, groups=np.arange(60) // 2), metric="unit"),
            ]
            assert all(other is not first for other in others)
        assert not is_shared()

    def test_the_seed_of_the_context_draws_the_divisions(self):
        data = FORMS["classes"]()
        found = []
        for seed in (3, 3, 4):
            with shared_training(seed):
                found.append(make(data).divisions)
        np.testing.assert_array_equal(found[0], found[1])
        assert not np.array_equal(found[0], found[2])

    def test_without_a_context_nothing_is_shared(self):
        data = FORMS["classes"]()
        first, second = make(data, metric="unit"), make(data, metric="unit")
        assert first is not second
        assert first.metric() is not first.metric()

    def test_a_context_within_another_changes_nothing(self):
        data = FORMS["classes"]()
        with shared_training(3):
            outer = make(data)
            with shared_training(4):
                assert make(data) is outer
            assert is_shared()
            assert make(data) is outer

    def test_an_error_ends_it(self):
        with pytest.raises(ZeroDivisionError), shared_training(3):
            raise ZeroDivisionError
        assert not is_shared()

    def test_sparse_samples_are_told_apart(self):
        data = FORMS["classes"]()
        with shared_training(3):
            first = make(data, sparse=True)
            assert make(data, sparse=True) is first
            data.X[0, 0] += 1.0
            assert make(data, sparse=True) is not first
