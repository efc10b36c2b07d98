"""Classifiers stacked by pooling their probabilities."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from bsdr_models import (
    BM2PCAClassifier,
    DGPLVMClassifier,
    HingeLoss,
    StackedClassifier,
    compare_models,
    cross_validated_map,
    plots,
)
from bsdr_models.compare.stacking import FLOOR, SHRINKAGE, log_pool, pool_weights

X, Y = load_wine(return_X_y=True)
X, Y = X[::3], Y[::3]
BM2PCA = "bm2pca", BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0)
MEMBERS = [("dgplvm", DGPLVMClassifier()), ("bayes", GaussianNB())]


def simulated(n=200, n_members=3, n_classes=4, seed=0):
    """Labels, and log probabilities of members that see them through noise of their own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    scores = 2.0 * np.eye(n_classes)[y] + 1.5 * rng.standard_normal((n_members, n, n_classes))
    return log_softmax(scores, axis=2), y


def information(log_p):
    """Mean information about a weight of samples and of one more, of unit information."""
    p = np.exp(log_softmax(log_p.mean(axis=0), axis=1))
    variance = np.sum(p * log_p**2, axis=2) - np.sum(p * log_p, axis=2) ** 2  # (M, N)
    return (variance.mean(axis=0).sum() + 1.0) / (log_p.shape[1] + 1.0)


def penalised(weights, log_p, y, shrinkage):
    pooled = log_softmax(np.tensordot(weights, log_p, 1), axis=1)
    distance = np.sum((weights - 1.0 / len(weights)) ** 2) + 10.0 * (weights.sum() - 1.0) ** 2
    prior = 0.5 * shrinkage * information(log_p) * distance
    return prior - pooled[np.arange(len(y)), y].sum()


def bounded(p):
    return log_softmax(np.log(np.maximum(p, FLOOR)), axis=1)


class TestWeights:
    def test_weights_minimise_the_penalised_loss(self):
        log_p, y = simulated()
        log_p = np.maximum(log_p, np.log(FLOOR))
        weights, _ = pool_weights(log_p, y, 5.0)
        direct = minimize(
            penalised, np.full(3, 0.3), args=(log_p, y, 5.0), method="Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000},
        )  # fmt: skip
        np.testing.assert_allclose(weights, direct.x, atol=1e-4)

    def test_standard_deviations_are_of_the_curvature(self):
        log_p, y = simulated()
        weights, sd = pool_weights(log_p, y, 5.0)
        h, steps = 1e-3, np.eye(3) * 1e-3

        def value(shift):
            return penalised(weights + shift, log_p, y, 5.0)

        hessian = [
            [(value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * h * h)
             for a in steps] for b in steps
        ]  # fmt: skip
        np.testing.assert_allclose(sd, np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-3)

    def test_useless_member_has_little_weight(self):
        """Even of thirty samples, whose labels are permuted for it; less of more."""
        for n, limit in ((30, 0.2), (200, 0.1)):
            weights = []
            for seed in range(10):
                log_p, y = simulated(n=n, seed=seed)
                log_p[2] = log_p[2][np.random.default_rng(seed).permutation(len(y))]
                weights.append(pool_weights(log_p, y, SHRINKAGE)[0][2])
            assert np.mean(weights) < limit

    def test_weights_of_few_samples_do_not_follow_luck(self):
        """Members that know nothing: the pool of new samples is no worse than equal weights."""
        behind = []
        for seed in range(20):
            log_p = log_softmax(0.7 * np.random.default_rng(seed).standard_normal((3, 430, 2)), 2)
            y = np.arange(430) % 2
            weights, _ = pool_weights(log_p[:, :30], y[:30], SHRINKAGE)
            loss, least = (
                -log_pool(each, log_p[:, 30:])[np.arange(400), y[30:]].mean()
                for each in (weights, np.full(3, 1.0 / 3.0))
            )
            behind.append(loss - least)
        assert np.mean(behind) < 0.002
        assert np.max(behind) < 0.03

    def test_without_samples_weights_are_equal(self):
        weights, sd = pool_weights(np.empty((3, 0, 4)), np.empty(0, dtype=int), SHRINKAGE)
        np.testing.assert_allclose(weights, 1.0 / 3.0)
        assert np.isfinite(sd).all()

    def test_sum_of_weights_calibrates(self):
        rng = np.random.default_rng(0)
        log_p = log_softmax(rng.standard_normal((2000, 3)), axis=1)
        y = np.array([rng.choice(3, p=p) for p in np.exp(log_p)])
        sharp = log_softmax(3.0 * log_p, axis=1)  # overconfident by a temperature of 3
        weights, _ = pool_weights(np.stack([sharp, sharp]), y, 0.01)
        assert weights.sum() == pytest.approx(1.0 / 3.0, abs=0.05)


@pytest.fixture(scope="module")
def wine():
    return StackedClassifier(MEMBERS, random_state=0).fit(X, Y)


class TestEstimator:
    def test_probabilities_are_the_pool_of_the_members(self, wine):
        log_p = np.log([np.maximum(m.predict_proba(X), FLOOR) for m in wine.estimators_])
        pooled = log_softmax(np.tensordot(wine.weights_, log_p, 1), axis=1)
        np.testing.assert_allclose(wine.predict_log_proba(X), pooled)

    def test_own_held_out_probabilities_serve(self, wine):
        own = wine.named_estimators_["dgplvm"].held_out_log_proba_
        np.testing.assert_allclose(wine._held_out[0], bounded(np.exp(own)))

    def test_held_out_probabilities_are_those_of_refits(self, wine):
        log_p, fold = wine._held_out[1], wine._fold
        for number in np.unique(fold):
            test = fold == number
            p = GaussianNB().fit(X[~test], Y[~test]).predict_proba(X[test])
            np.testing.assert_allclose(log_p[test], bounded(p), atol=1e-12)

    def test_score_of_a_sample_does_not_see_its_label(self, wine):
        fold = wine._fold == 0
        log_p = wine._held_out
        weights, _ = pool_weights(log_p[:, ~fold], Y[~fold], SHRINKAGE)
        expected = log_pool(weights, log_p[:, fold])
        np.testing.assert_allclose(wine.held_out_log_proba_[fold], expected)
        score = wine.held_out_log_proba_[np.arange(len(Y)), Y].mean()
        assert wine.held_out_score_ == pytest.approx(score)

    def test_comparison_ranks_by_held_out_score(self, wine):
        table = wine.comparison()
        assert sorted(table.index) == ["bayes", "dgplvm", "stack"]
        assert table["elpd"].is_monotonic_decreasing
        assert table.loc["stack", "elpd"] == pytest.approx(wine.held_out_score_ * len(Y))
        assert table["dse"].iloc[0] == 0.0
        np.testing.assert_allclose(table.loc["dgplvm", "weight"], wine.weights_[0])

    def test_renamed_and_permuted_classes(self, wine):
        names = np.array(["c", "a", "b"])
        order = np.random.default_rng(0).permutation(len(Y))
        model = StackedClassifier(MEMBERS[:1], random_state=0).fit(X[order], names[Y][order])
        same = StackedClassifier(MEMBERS[:1], random_state=0).fit(X, Y)
        np.testing.assert_allclose(
            model.predict_proba(X)[:, [2, 0, 1]], same.predict_proba(X), atol=2e-3
        )

    def test_class_of_one_sample(self):
        some = (Y < 2) | (np.cumsum(Y == 2) == 1) & (Y == 2)
        model = StackedClassifier([BM2PCA, MEMBERS[1]])
        with pytest.warns(UserWarning, match="single sample"):
            model.fit(X[some], Y[some])
        assert np.isfinite(model.predict_proba(X)).all()

    def test_unlabelled_samples_have_no_class(self):
        y = Y.copy()
        y[:5] = -1
        member = clone(BM2PCA[1]).set_params(unlabeled=-1)
        model = StackedClassifier([("bm2pca", member)], random_state=0).fit(X, y)
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])
        np.testing.assert_array_equal(model.idata_["fit/y_index"], y)
        assert np.isfinite(model.idata_["fit/probability"]).all()

    def test_missing_values_if_all_members_take_them(self):
        holes = X.copy()
        holes[::7, 3] = np.nan
        model = StackedClassifier([BM2PCA], random_state=0).fit(holes, Y)
        assert np.isfinite(model.predict_proba(holes)).all()
        with pytest.raises(ValueError, match="NaN"):
            StackedClassifier([BM2PCA, *MEMBERS]).fit(holes, Y)
        imputed = ("nb", make_pipeline(SimpleImputer(), GaussianNB()))
        model = StackedClassifier([BM2PCA, imputed], random_state=0).fit(holes, Y)
        assert np.isfinite(model.predict_proba(holes)).all()

    @pytest.mark.slow  # workers take seconds to start
    def test_parallel_fits_are_the_same(self, wine):
        other = clone(wine).set_params(n_jobs=2).fit(X, Y)
        np.testing.assert_array_equal(other.predict_proba(X), wine.predict_proba(X))

    @pytest.mark.parametrize("n_fits", [0, 4])
    def test_an_interrupt_leaves_no_fit(self, interrupt, n_fits):
        """The fit of a member, or one of its refits."""
        interrupt(GaussianNB, "fit", n_fits + 1)
        model = StackedClassifier(MEMBERS[1:], random_state=0)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        with pytest.raises(NotFittedError):
            model.predict(X)

    def test_members_are_asked_once(self, wine, monkeypatch):
        calls, predict = [], GaussianNB.predict_proba
        monkeypatch.setattr(GaussianNB, "predict_proba", lambda *a: calls.append(1) or predict(*a))
        wine.predict_idata(X, Y)
        assert len(calls) == 1
        assert wine.plane_ is wine.plane_

    def test_arguments_of_members(self, wine):
        model = clone(wine).set_params(bayes__var_smoothing=0.1, dgplvm=LogisticRegression())
        assert model.get_params()["bayes__var_smoothing"] == 0.1
        assert isinstance(model.get_params()["dgplvm"], LogisticRegression)
        assert MEMBERS[1][1].var_smoothing == 1e-9
        with pytest.raises(ValueError, match="Invalid parameter"):
            model.set_params(knn__n=1)

    def test_summary_names_weights(self, wine):
        summary = wine.summary()
        assert {"weight of dgplvm", "weight of bayes", "held-out log score"} <= set(summary.index)

    def test_maps(self, wine):
        title = wine.plot_map().get_title(loc="left")
        assert "Held-out" in title
        assert "predictions" in title
        assert "New" in wine.plot_map(X, Y).get_title(loc="left")
        assert plots.map_table(wine.idata_)["confidence"].notnull().all()
        assert wine.transform(X).shape == (len(X), 2)

    @pytest.mark.parametrize(
        ("members", "error", "match"),
        [
            ([], TypeError, "pairs"),
            ([("a", GaussianNB()), ("a", GaussianNB())], ValueError, "not unique"),
            ([("a__b", GaussianNB())], ValueError, "must not contain __"),
            ([("n_jobs", GaussianNB())], ValueError, "conflict"),
            ([("a\0", GaussianNB())], ValueError, "NUL character"),
            ([GaussianNB()], TypeError, "pairs"),
            ([("a", GaussianNB)], TypeError, "not an estimator"),
            ([("a", 3)], TypeError, "not an estimator"),
        ],
    )
    def test_bad_members(self, members, error, match):
        with pytest.raises(error, match=match):
            StackedClassifier(members).fit(X, Y)

    @pytest.mark.parametrize(
        ("returned", "match"),
        [
            (np.nan, "NaN"),
            (-0.5, "negative or do not sum to one"),
            (7.0, "negative or do not sum to one"),
        ],
    )
    def test_bad_probabilities_of_a_member(self, returned, match):
        class Bad(GaussianNB):
            def predict_proba(self, X):
                p = super().predict_proba(X)
                p[-1, 0] = returned
                return p

        with pytest.raises(ValueError, match=match) as caught:
            StackedClassifier([("good", GaussianNB()), ("bad", Bad())]).fit(X, Y)
        assert "raised by bad" in caught.value.__notes__

    def test_errors_of_a_member_name_it(self):
        class Fails(GaussianNB):
            def fit(self, X, y):
                raise OSError("no luck")

        with pytest.raises(OSError, match="no luck") as caught:
            StackedClassifier([("it", Fails())]).fit(X, Y)
        assert "raised by it" in caught.value.__notes__

    def test_classes_in_any_order(self):
        class Unsorted(GaussianNB):
            def fit(self, X, y):
                super().fit(X, y)
                self.classes_ = self.classes_[[1, 2, 0]]
                return self

            def predict_proba(self, X):
                return super().predict_proba(X)[:, [1, 2, 0]]

        model, same = (
            StackedClassifier([("a", kind())], random_state=0).fit(X, Y)
            for kind in (Unsorted, GaussianNB)
        )
        np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))

    def test_frozen_members_are_refused(self):
        frozen = FrozenEstimator(GaussianNB().fit(X, Y))
        for member in (frozen, make_pipeline(StandardScaler(), frozen)):
            with pytest.raises(ValueError, match="FrozenEstimator"):
                StackedClassifier([("a", member)]).fit(X, Y)
            with pytest.raises(ValueError, match="FrozenEstimator"):
                cross_validated_map(member, X, Y)
        with pytest.raises(ValueError, match="FrozenEstimator"):
            compare_models(X, Y, models={"a": frozen}, progressbar=False)

    def test_fitted_members_serve_with_groups(self):
        """Held-out predictions of a fit by groups are not those of its training samples."""
        groups = np.arange(len(Y)) // 3
        fitted = DGPLVMClassifier().fit(X, Y, groups=groups)
        model = StackedClassifier([("a", FrozenEstimator(fitted))], random_state=0)
        model.fit(X, Y, groups=groups)
        np.testing.assert_allclose(model._held_out[0], bounded(np.exp(fitted.held_out_log_proba_)))

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="1d array"):
            StackedClassifier(MEMBERS).fit(X, np.stack([Y, Y], axis=1))
        with pytest.raises(ValueError, match="'estimators' parameter"):
            StackedClassifier(each for each in MEMBERS).fit(X, Y)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_scikit_learn_checks(self):
        tree = DecisionTreeClassifier(max_depth=2, random_state=0)
        members = [("tree", tree), ("bayes", GaussianNB())]
        random = dict.fromkeys(
            [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
            "the division of repeated samples is another one",
        )
        check_estimator(StackedClassifier(members, random_state=0), expected_failed_checks=random)
