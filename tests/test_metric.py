"""The metric of the features: dense formulae, other libraries, and what weights may not depend on.

Expected covariances are computed from the definition with dense matrices, class by class.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist, pdist
from scipy.special import log_softmax
from sklearn.covariance import ledoit_wolf, ledoit_wolf_shrinkage
from sklearn.feature_selection import f_classif
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from bsdr_models.learned_metric import metric
from bsdr_models.learned_metric import weights as metric_weights
from bsdr_models.learned_metric.metric import CANDIDATES, NAMES, ClassBasis, Metric
from bsdr_models.learned_metric.weights import MetricWeights, candidate_kernels
from bsdr_models.numerics.folds import make_folds

ALONE = dict(zip(NAMES, np.eye(len(NAMES)), strict=True))
AVERAGE = np.array([0.2, 0.1, 0.05, 0.15, 0.1, 0.2, 0.1, 0.1])
SEPARATION = [NAMES.index("separation"), NAMES.index("separation, half whitened")]
UNIFORM = np.full(len(NAMES), 1.0 / len(NAMES))


def make(n, d, n_classes, *, seed=0, constant=0, duplicated=0):
    """Scaled samples of correlated features about class means, new ones, classes and units."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    mix = rng.standard_normal((d, d)) / np.sqrt(d) + np.eye(d)
    means = rng.standard_normal((n_classes, d))
    X = means[y] + rng.standard_normal((n, d)) @ mix
    new = means[np.arange(9) % n_classes] + rng.standard_normal((9, d)) @ mix
    new = (new - X.mean(axis=0)) / X.std(axis=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X[:, d - constant :] = 0.0
    new[:, d - constant :] = 0.0
    X[:, :duplicated] = X[:, duplicated : 2 * duplicated]
    units = np.exp(rng.standard_normal(d))
    return SimpleNamespace(X=X, new=new, y=y, units=units / units.max())


DATA = {
    "tall": make(40, 6, 3),
    "wide": make(14, 30, 3, seed=1),
    "square": make(12, 12, 2, seed=2),
    "constant and duplicated": make(30, 12, 4, seed=3, constant=2, duplicated=3),
    "wide, constant and duplicated": make(12, 25, 2, seed=4, constant=3, duplicated=5),
}


def residuals(X, y):
    """Samples less the mean of their class."""
    return X - np.stack([X[y == own].mean(axis=0) for own in y])


def dense_candidate(data, name, every=None):
    """Lambda_j of centred samples, (D, D), from the definition.

    Features may have unit variance among ``every`` sample.
    """
    X, y = data.X, data.y
    n, d = X.shape
    dof = n - len(np.unique(y))
    total = X.var(axis=0)
    used = np.flatnonzero(total)
    rest = np.sum(residuals(X, y) ** 2, axis=0)
    within = 0.9 * rest / dof + 0.1 * total
    between = (n * total - rest) / (n - dof - 1)
    gap = np.maximum(between[used] / within[used] - 1.0, 0.0) + 1e-3
    divisors = {
        "common": 1.0 / data.units[used],
        "total": np.std(X if every is None else every, axis=0)[used],
        "within": np.sqrt(within[used]),
        "signal": np.sqrt(within[used] / gap),
    }
    divisor = divisors[CANDIDATES[name].scale]
    R = residuals(X, y)[:, used] / divisor * np.sqrt(n / dof)
    share = np.clip(ledoit_wolf_shrinkage(R, assume_centered=True), 1e-3, 1.0)
    W = R.T @ R / n
    W = (1.0 - share) * W + share * np.trace(W) / len(W) * np.eye(len(W))
    value, vector = np.linalg.eigh(W)
    inner = (vector * value ** -CANDIDATES[name].exponent) @ vector.T
    found = np.zeros((d, d))
    found[np.ix_(used, used)] = inner / np.outer(divisor, divisor)
    return found / np.trace(found @ X.T @ X / n)


def dense(data, weights):
    """Lambda, (D, D)."""
    return sum(w * dense_candidate(data, name) for name, w in zip(NAMES, weights, strict=True) if w)


def learn(data, weights, **options):
    return Metric.learn(data.X, ClassBasis.of(data.y), weights, data.units, **options)


each_data = pytest.mark.parametrize("data", DATA.values(), ids=DATA)
# An average of all candidates of every kind of data, and each candidate of one kind.
each_metric = pytest.mark.parametrize(
    ("data", "weights"),
    [
        *((data, AVERAGE) for data in DATA.values()),
        *((DATA["wide, constant and duplicated"], weights) for weights in ALONE.values()),
    ],
    ids=[*DATA, *ALONE],
)


class TestMetric:
    @each_metric
    def test_inner_products_are_those_of_the_definition(self, data, weights):
        expected = dense(data, weights)
        found = learn(data, weights)
        size = np.abs(data.X @ expected @ data.X.T).max()
        train = found.whiten(data.X)
        assert train @ train.T == pytest.approx(
            data.X @ expected @ data.X.T, rel=1e-8, abs=1e-9 * size
        )
        # One of two samples may leave the span of the training samples.
        cross = found.whiten(data.new) @ train.T
        assert cross == pytest.approx(data.new @ expected @ data.X.T, rel=1e-8, abs=1e-9 * size)
        mapped = found.map(data.new)
        assert mapped @ mapped.T == pytest.approx(
            data.new @ expected @ data.new.T, rel=1e-8, abs=1e-8
        )

    @each_metric
    def test_covariance_has_trace_one_and_a_root(self, data, weights):
        found = learn(data, weights)
        identity = np.eye(len(found.diagonal))
        root = found.diagonal[:, None] * (identity - found.turned * found.removed @ found.turned.T)
        expected = dense(data, weights)
        assert root @ root.T == pytest.approx(expected, rel=1e-8, abs=1e-9 * np.abs(expected).max())
        assert np.trace(root @ root.T @ np.cov(data.X.T, ddof=0)) == pytest.approx(1.0)
        assert np.sum(found.whiten(data.X) ** 2) / len(data.X) == pytest.approx(1.0)
        assert found.axes.T @ found.axes == pytest.approx(np.eye(found.width), abs=1e-9)

    @each_metric
    def test_parts_inside_and_outside_the_axes(self, data, weights):
        found = learn(data, weights)
        inside = np.sum(found.whiten(data.new) ** 2, axis=1)
        length = np.sum(found.map(data.new) ** 2, axis=1)
        assert inside + found.outside_sd(data.new) ** 2 == pytest.approx(length)
        assert found.outside_sd(data.X) == pytest.approx(0.0, abs=1e-5)
        # Loadings are linear in their normals: their covariance is that of those of unit vectors.
        outside = found.outside_loadings(np.eye(data.X.shape[1]))
        total = found.effects @ found.effects.T + outside.T @ outside
        expected = dense(data, weights)
        assert total == pytest.approx(expected, rel=1e-8, abs=1e-9 * np.abs(expected).max())
        normal = np.random.default_rng(0).standard_normal((2, 3, data.X.shape[1]))
        assert found.outside_loadings(normal) == pytest.approx(normal @ outside, abs=1e-9)
        of_samples = data.X @ found.outside_loadings(normal)[0].T
        assert of_samples == pytest.approx(0.0, abs=1e-8)

    def test_units_that_underflow_are_negligible_features(self):
        data = DATA["tall"]
        units = np.array([1.0, 0.5, 1e-170, 1e-250, 5e-324, 0.0])
        for weights in (AVERAGE, *ALONE.values()):
            found = Metric.learn(data.X, ClassBasis.of(data.y), weights, units)
            assert np.isfinite(found.effects).all()
            assert np.sum(found.whiten(data.X) ** 2) / len(data.X) == pytest.approx(1.0)
        found = Metric.learn(data.X, ClassBasis.of(data.y), ALONE["as they are"], units)
        X = data.X[:, :2] * [1.0, 0.5]
        expected = X @ X.T / np.mean(np.sum(X**2, axis=1))
        assert found.whiten(data.X) @ found.whiten(data.X).T == pytest.approx(expected)

    def test_many_nearly_collinear_samples(self):
        rng = np.random.default_rng(0)
        y = np.arange(3000) % 3
        few = rng.standard_normal((3, 8))[y] + rng.standard_normal((3000, 8))
        X = few @ rng.standard_normal((8, 150)) + 1e-7 * rng.standard_normal((3000, 150))
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        found = Metric.learn(X, ClassBasis.of(y), AVERAGE, np.ones(150))
        mapped = np.sum(found.map(X) ** 2, axis=1)
        assert np.sum(found.whiten(X) ** 2, axis=1) == pytest.approx(mapped, rel=1e-8)
        assert mapped.mean() == pytest.approx(1.0)

    def test_axes_of_samples_without_a_class(self):
        """They widen the span, and leave the covariance as it is."""
        data = DATA["wide"]
        found = learn(data, AVERAGE, every=np.concatenate([data.X, data.new]))
        assert found.outside_sd(data.new) == pytest.approx(0.0, abs=1e-6)
        size = found.whiten(data.new) @ found.whiten(data.new).T
        assert size == pytest.approx(data.new @ dense(data, AVERAGE) @ data.new.T, rel=1e-8)

    def test_shares_are_named_and_sorted(self):
        shares = learn(DATA["tall"], AVERAGE).shares
        assert shares == dict(zip(NAMES, AVERAGE, strict=True))
        assert list(shares.values()) == sorted(AVERAGE, reverse=True)


class TestClassBasis:
    @each_data
    def test_shrinkage_is_that_of_ledoit_and_wolf(self, data):
        """Of residuals whose covariance is divided by the degrees of freedom."""
        basis = ClassBasis.of(data.y)
        assert basis.dof == len(data.X) - len(np.unique(data.y))
        value, axes, _ = basis.shrink(data.X, data.X.shape[1])
        R = residuals(data.X, data.y) * np.sqrt(len(data.X) / basis.dof)
        expected = ledoit_wolf(R, assume_centered=True)[0]
        assert (axes * value) @ axes.T == pytest.approx(expected, abs=1e-10)
        # Of samples in the axes of their own span, with the eigenvalue in all other directions.
        span = np.linalg.svd(data.X, full_matrices=False)[2].T
        value, axes, outside = basis.shrink(data.X @ span, data.X.shape[1])
        turned = span @ axes
        rebuilt = (turned * (value - outside)) @ turned.T + outside * np.eye(len(turned))
        assert rebuilt == pytest.approx(expected, abs=1e-10)

    def test_separation_is_the_excess_of_the_f_statistic(self, monkeypatch):
        monkeypatch.setattr(metric, "TOTAL_SHARE", 0.0)
        data = DATA["tall"]
        found = ClassBasis.of(data.y).scales(data.X, data.units, {"within", "signal"})
        excess = np.maximum(f_classif(data.X, data.y)[0] - 1.0, 0.0) + metric.LEAST_SEPARATION
        assert (found["within"] / found["signal"]) ** 2 == pytest.approx(excess)

    def test_probabilities_of_zero_and_one_are_classes(self):
        data = DATA["tall"]
        shares = np.column_stack([np.eye(3)[data.y], np.zeros(len(data.y))])
        soft, hard = ClassBasis.of_probabilities(shares), ClassBasis.of(data.y)
        assert soft.n_classes == hard.n_classes == 3
        assert soft.scatter(data.X) == pytest.approx(hard.scatter(data.X))
        expected = residuals(data.X, data.y)
        assert soft.scatter(data.X) == pytest.approx(expected.T @ expected)

    def test_tasks_are_regressed_on_together(self):
        data = DATA["tall"]
        labels = np.stack([data.y, np.where(np.arange(40) < 20, np.arange(40) % 2, -1)], axis=1)
        design = np.column_stack([np.equal.outer(c, np.unique(c[c >= 0])) for c in labels.T])
        design = np.column_stack([np.ones(40), design])
        rest = data.X - design @ np.linalg.lstsq(design, data.X)[0]
        basis = ClassBasis.of(labels)
        assert basis.n_classes == np.linalg.matrix_rank(design)
        assert basis.scatter(data.X) == pytest.approx(rest.T @ rest)
        assert ClassBasis.one(40).scatter(data.X) == pytest.approx(data.X.T @ data.X)


def choose_weights(name, X, y, units, fold, **options):
    """Weights from all samples and without each fold of a single division."""
    found = MetricWeights.choose(name, X, y, units, [fold], **options)
    return np.concatenate([found.every[None], *found.without])


def roots(X, y, units, rest, every=None):
    """All samples, mapped to where distances are those of each candidate learned from some."""
    X = X - X[rest].mean(axis=0)
    training = SimpleNamespace(X=X[rest], y=y[rest], units=units)
    for name in NAMES:
        value, vector = np.linalg.eigh(dense_candidate(training, name, every))
        yield X @ vector * np.sqrt(np.maximum(value, 0.0))


class TestHeldOutScores:
    @each_data
    def test_candidates_are_learned_from_training_samples(self, data):
        every = np.concatenate([data.new, data.X])
        y = np.append(np.zeros(9, dtype=int), data.y)
        rest = np.arange(len(every)) >= 9
        found = candidate_kernels(every, rest, ClassBasis.of(data.y), data.units)
        for squares, F in zip(found, roots(every, y, data.units, rest), strict=True):
            expected = cdist(F, F[rest], "sqeuclidean")
            assert squares == pytest.approx(expected, rel=1e-6, abs=1e-7 * expected.max())

    def test_replicates_count_as_one_sample(self):
        """Metric and weights of replicates, of a fifth effective samples, are those of one each.

        The width of the regressions is a median of distances, those of replicates among them.
        """
        X, y = few_strong()
        fold = (np.arange(len(y)) // 4) % 5
        again = np.repeat(np.arange(len(y)), 5)
        units = np.ones(X.shape[1])
        once = choose_weights("auto", X, y, units, fold)
        often = choose_weights("auto", X[again], y[again], units, fold[again], share=0.2)
        np.testing.assert_allclose(often, once, atol=0.005)
        full = choose_weights("auto", X[again], y[again], units, fold[again])
        assert np.abs(full - once).max() > 0.1
        expected = Metric.learn(X, ClassBasis.of(y), once[0], units)
        found = Metric.learn(X[again], ClassBasis.of(y[again], 0.2), once[0], units)
        inner = [each.map(X) @ each.map(X).T for each in (found, expected)]
        np.testing.assert_allclose(*inner, rtol=1e-7, atol=1e-9)

    @each_data
    def test_scores_are_those_of_gaussian_processes(self, data):
        """Of class indicators less the mean of their class means.

        Of many features, unit variance is that of all samples, as they are given.
        """
        out = np.arange(len(data.X)) % 4 == 1
        targets = np.eye(4)[data.y]
        division = metric_weights._Division.of(
            data.X, data.y[:, None], data.units, out.astype(int), 1.0
        )
        division.targets[:] = [targets]
        scores = division._left_out_scores(out)
        ordered = targets[~out]
        mean = ordered.sum(axis=0).astype(bool) / len(np.unique(data.y[~out]))
        every = data.X if data.X.shape[1] > len(data.X) else None
        features = roots(data.X, data.y, data.units, ~out, every)
        for found, F in zip(scores, features, strict=True):
            distances = np.sort(pdist(F[~out], "sqeuclidean"))
            length = np.sqrt(distances[len(distances) // 2] / metric_weights.WIDTH)
            kernel = RBF(length) + ConstantKernel(metric_weights.MEAN_VARIANCE)
            for score, noise in zip(found, metric_weights.NOISES, strict=True):
                process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
                expected = mean + process.fit(F[~out], ordered - mean).predict(F[out])
                assert score == pytest.approx(expected, abs=1e-6)

    def test_losses_are_those_of_the_best_temperature(self):
        """To two hundredths of a nat per sample: a parabola interpolates between temperatures."""
        rng = np.random.default_rng(5)
        y = np.arange(60) % 3
        signal = np.eye(3)[y] * np.linspace(0.1, 0.5, 8)[:, None, None, None]
        scores = signal + 0.3 * rng.standard_normal((8, 4, 60, 3))
        losses = metric_weights._log_losses(scores, [np.eye(3)[y]], 1.0)

        def loss(log_sharp, of):
            log_p = log_softmax(np.exp(log_sharp) * of, axis=1)
            one_more = -np.mean(log_p.mean(axis=1))  # a sample of every class alike
            return (60.0 * -np.mean(log_p[np.arange(60), y]) + one_more) / 61.0

        best = [[minimize_scalar(loss, (0.0, 2.0), args=(s,)).fun for s in each] for each in scores]
        assert losses == pytest.approx(60.0 * np.min(best, axis=1), abs=60.0 * 0.02)
        half = metric_weights._log_losses(scores, [np.eye(3)[y]], 0.5)
        assert half == pytest.approx(0.5 * losses, rel=0.05)


def few_strong(seed=0, n=40, d=100):
    """Four classes that five features separate."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    X = rng.standard_normal((n, d))
    X[:, :5] += 3.0 * rng.standard_normal((4, 5))[y]
    return X, y


def common_factors(seed=0, n=60, d=200):
    """Ten classes that differ alike in all directions, and vary mostly in some."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 10
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = 0.01 * rng.standard_normal((10, d))[y]
    return X + rng.standard_normal((n, d)) / np.arange(1, d + 1) @ axes, y


def noise(seed=0, n=60, d=100):
    """Features that do not depend on the classes."""
    return np.random.default_rng(seed).standard_normal((n, d)), np.arange(n) % 3


def weigh(X, y, fold=None, *, name="auto", units=None):
    """Weights, with five folds by default."""
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if fold is None:
        fold = make_folds(np.arange(len(y)), y)
    return choose_weights(name, X, y, np.ones(X.shape[1]) if units is None else units, fold)


def changed(X, y, fold, held_out):
    """Other features of the samples of one fold, and one class.

    The variances of the features, by which all samples are scaled, stay the same.
    """
    own = fold == held_out
    other, labels = X.copy(), y.copy()
    noise = np.random.default_rng(9).standard_normal(X[own].shape)
    noise = (noise - noise.mean(axis=0)) / noise.std(axis=0)
    other[own] = X[own].mean(axis=0) + X[own].std(axis=0) * noise
    labels[own] = y[own][0]  # all alike, so that classes have other sizes
    return other, labels


def label_sets(X, y):
    return X, np.stack([y < 2, y % 2], axis=1).astype(np.int64)


def incomplete_labels(X, y):
    unknown = np.arange(len(y)) % 3 == 0
    return X, np.stack([y, np.where(unknown, -1, y % 2)], axis=1)


FORMS = {
    "classes": few_strong(),
    "two classes": (few_strong()[0], few_strong()[1] % 2),
    "label sets": label_sets(*few_strong()),
    "incomplete labels": incomplete_labels(*few_strong()),
    "a subsample": few_strong(n=400, d=12),
}
FOLD = {name: (np.arange(len(y)) // 4) % 5 for name, (_, y) in FORMS.items()}
FOLD["a subsample"] = np.random.default_rng(0).permutation(FOLD["a subsample"])


class TestWeights:
    @pytest.mark.parametrize("name", FORMS)
    def test_weights_of_a_fold_know_nothing_of_it(self, name):
        """They are averages, and the same if its labels and features change."""
        (X, y), fold = FORMS[name], FOLD[name]
        units = np.ones(X.shape[1])
        before = choose_weights("auto", X, y, units, fold)
        assert before.shape == (6, len(NAMES))
        assert before.sum(axis=1) == pytest.approx(1.0)
        assert (before >= 0.0).all()
        after = choose_weights("auto", *changed(X, y, fold, 2), units, fold)
        assert not np.array_equal(before[0], after[0])
        np.testing.assert_allclose(after[3], before[3], rtol=1e-9)

    def test_order_of_samples_and_names_of_classes_do_not_matter(self):
        X, y = few_strong()
        fold = FOLD["classes"]
        expected = weigh(X, y, fold)
        order = np.random.default_rng(0).permutation(len(y))
        assert weigh(X[order], y[order], fold[order]) == pytest.approx(expected, abs=1e-8)
        assert weigh(X, (3 * y + 1) % 4, fold) == pytest.approx(expected, abs=1e-8)
        renamed = np.array([4, 0, 2, 3, 1])[fold]
        rows = [0, 5, 1, 3, 4, 2]
        assert weigh(X, y, renamed)[rows] == pytest.approx(expected, abs=1e-8)

    def test_weights_fall_exponentially_with_the_loss(self):
        """Halves of a nat count; a candidate of less than a hundredth of the weight is left out."""
        losses = np.array([7.0, 8.0, 11.0, 30.0])
        expected = np.array([1.0, np.exp(-0.5), np.exp(-2.0), 0.0])
        expected /= expected.sum()
        assert metric_weights._from_losses(losses) == pytest.approx(expected)

    def test_weights_are_averages_over_divisions(self, monkeypatch):
        """Their logarithms from all samples; those without a fold are of its division."""
        monkeypatch.setattr(metric_weights, "LEAST_WEIGHT", 0.0)
        X, y = common_factors()
        folds = [make_folds(np.random.default_rng(i).permutation(60), y) for i in (0, 1)]
        each = [MetricWeights.choose("auto", X, y, np.ones(X.shape[1]), [fold]) for fold in folds]
        both = MetricWeights.choose("auto", X, y, np.ones(X.shape[1]), folds)
        expected = np.sqrt(each[0].every * each[1].every)
        assert both.every == pytest.approx(expected / expected.sum())
        assert not np.allclose(each[0].every, each[1].every, rtol=0.01)
        for found, alone in zip(both.without, each, strict=True):
            np.testing.assert_array_equal(found, alone.without[0])

    def test_two_folds_leave_nothing_to_choose_by_without_one(self):
        X, y = few_strong()
        weights = weigh(X, y, np.arange(40) // 4 % 2)
        assert weights[1:] == pytest.approx(np.tile(UNIFORM, (2, 1)))
        assert weights[0, SEPARATION].sum() > 0.5

    def test_one_fold_or_none(self):
        X, y = few_strong()
        assert weigh(X, y, np.zeros(40, dtype=int)) == pytest.approx(UNIFORM[None])
        assert weigh(X, y, np.full(40, -1)) == pytest.approx(UNIFORM[None])

    def test_the_only_sample_of_a_class_is_never_held_out(self):
        X, y = few_strong()
        y = np.where(np.arange(40) == 7, 4, y)
        fold = make_folds(np.arange(len(y)), y)
        assert fold[7] == -1
        assert weigh(X, y, fold)[0, SEPARATION].sum() > 0.5

    def test_few_strong_features_favour_separation(self):
        assert weigh(*few_strong(d=200))[0, SEPARATION].sum() > 0.8

    def test_common_variation_within_classes_favours_whitening(self):
        weights = dict(zip(NAMES, weigh(*common_factors())[0], strict=True))
        assert weights["whitened"] > 2.0 * weights["unit within-class variance"]
        assert weights["whitened as they are"] > 2.0 * weights["as they are"]

    @pytest.mark.parametrize("seed", range(3))
    def test_noise_favours_nothing(self, seed):
        weights = weigh(*noise(seed))[0]
        assert weights.max() < 3.0 / len(NAMES)

    def test_real_outputs_have_unit_variance(self):
        X, _ = noise()
        weights = choose_weights("auto", X, None, np.ones(100), FOLD["classes"])
        named = dict(zip(NAMES, weights[0].tolist(), strict=True))
        assert {k: w for k, w in named.items() if w} == {"unit variance": 1.0}
        assert (weights == weights[0]).all()
