"""Classifiers stacked by pooling their predictive distributions."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import check_estimator

from bsdr_models import BM2PCAClassifier, DGPLVMClassifier, StackedClassifier, load
from bsdr_models.stacking import FLOOR, Pool, fit_pool, mixture_weights

X, Y = load_wine(return_X_y=True)
X, Y = X[::3], Y[::3]
MEMBERS = [("dgplvm", DGPLVMClassifier()), ("bayes", GaussianNB())]


def simulated(n=200, n_members=3, n_classes=4, seed=0):
    """Labels, and log probabilities of members that see them through noise of their own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    scores = 2.0 * np.eye(n_classes)[y] + 1.5 * rng.standard_normal((n_members, n, n_classes))
    return log_softmax(scores, axis=2), y


def penalised(weights, log_p, y, shrinkage):
    pooled = log_softmax(np.tensordot(weights, log_p, 1), axis=1)
    distance = np.sum((weights - 1.0 / len(weights)) ** 2) + 10.0 * (weights.sum() - 1.0) ** 2
    return -pooled[np.arange(len(y)), y].sum() + shrinkage * distance


class TestWeights:
    def test_weights_minimise_the_penalised_loss(self):
        log_p, y = simulated()
        log_p = np.maximum(log_p, np.log(FLOOR))
        pool = fit_pool(log_p, y, pooling="log", shrinkage=5.0)
        direct = minimize(
            penalised, np.full(3, 0.3), args=(log_p, y, 5.0), method="Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000},
        )  # fmt: skip
        np.testing.assert_allclose(pool.weights, direct.x, atol=1e-4)

    def test_loss_is_convex_along_lines(self):
        log_p, y = simulated()
        rng = np.random.default_rng(1)
        for _ in range(20):
            a, b = rng.exponential(size=(2, 3))
            middle = penalised((a + b) / 2.0, log_p, y, 1.0)
            assert middle <= (penalised(a, log_p, y, 1.0) + penalised(b, log_p, y, 1.0)) / 2.0

    def test_standard_deviations_are_of_the_curvature(self):
        log_p, y = simulated()
        pool = fit_pool(log_p, y, pooling="log", shrinkage=5.0)
        log_p = np.maximum(log_p, np.log(FLOOR))
        h, steps = 1e-3, np.eye(3) * 1e-3

        def value(shift):
            return penalised(pool.weights + shift, log_p, y, 5.0)

        hessian = [
            [(value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * h * h)
             for a in steps] for b in steps
        ]  # fmt: skip
        np.testing.assert_allclose(pool.sd, np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-3)

    @pytest.mark.parametrize("pooling", ["log", "linear"])
    def test_equal_members_have_equal_weights(self, pooling):
        log_p, y = simulated(n_members=1)
        pool = fit_pool(np.repeat(log_p, 3, axis=0), y, pooling=pooling, shrinkage=5.0)
        np.testing.assert_allclose(pool.weights, pool.weights[0], rtol=1e-4)

    @pytest.mark.parametrize("pooling", ["log", "linear"])
    def test_useless_member_has_little_weight(self, pooling):
        weights = []
        for seed in range(10):
            log_p, y = simulated(seed=seed)
            log_p[2] = log_p[2][np.random.default_rng(seed).permutation(len(y))]
            weights.append(fit_pool(log_p, y, pooling=pooling, shrinkage=3.0).weights[2])
        assert np.mean(weights) < 0.1

    def test_ten_samples_leave_weights_near_equal(self):
        shift = []
        for seed in range(20):
            log_p, y = simulated(n=10, seed=seed)
            weights = fit_pool(log_p, y, pooling="log", shrinkage=3.0).weights
            shift.append(np.abs(weights / weights.sum() - 1.0 / 3.0).max())
        assert np.mean(shift) < 1.0 / 6.0

    def test_sum_of_weights_calibrates(self):
        rng = np.random.default_rng(0)
        log_p = log_softmax(rng.standard_normal((2000, 3)), axis=1)
        y = np.array([rng.choice(3, p=p) for p in np.exp(log_p)])
        sharp = log_softmax(3.0 * log_p, axis=1)  # overconfident by a temperature of 3
        pool = fit_pool(np.stack([sharp, sharp]), y, pooling="log", shrinkage=0.01)
        assert pool.weights.sum() == pytest.approx(1.0 / 3.0, abs=0.05)

    def test_mixture_weights_agree_with_a_direct_search(self):
        log_p, y = simulated()
        log_density = log_p[:, np.arange(len(y)), y]
        weights, _ = mixture_weights(log_density, 6.0)

        def loss(free):
            w = np.exp(log_softmax(np.append(free, 0.0)))
            return -np.log(w @ np.exp(log_density)).sum() - 2.0 * np.log(w).sum()

        direct = minimize(loss, np.zeros(2), method="BFGS").x
        np.testing.assert_allclose(weights, np.exp(log_softmax(np.append(direct, 0.0))), atol=1e-5)

    def test_linear_pool_is_the_weighted_mean(self):
        log_p, _ = simulated(n=5)
        log_p = np.maximum(log_p, np.log(FLOOR))
        pool = Pool(weights=np.array([0.2, 0.3, 0.5]), sd=np.zeros(3), pooling="linear")
        mean = np.tensordot(pool.weights, np.exp(log_p), 1)
        mean /= mean.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(pool.log_probabilities(log_p)), mean)


@pytest.fixture(scope="module")
def wine():
    return StackedClassifier(MEMBERS, random_state=0).fit(X, Y)


class TestEstimator:
    def test_probabilities_are_the_pool_of_the_members(self, wine):
        log_p = np.stack([np.log(np.maximum(m.predict_proba(X), FLOOR)) for m in wine.estimators_])
        pooled = log_softmax(np.tensordot(wine.weights_, log_p, 1), axis=1)
        np.testing.assert_allclose(wine.predict_log_proba(X), pooled)

    def test_own_held_out_probabilities_serve(self, wine):
        own = wine.named_estimators_["dgplvm"].held_out_log_proba_
        np.testing.assert_array_equal(wine._log_p[0], own)

    def test_held_out_probabilities_are_those_of_refits(self, wine):
        log_p, fold = wine._log_p[1], wine._fold
        for number in np.unique(fold):
            test = fold == number
            p = GaussianNB().fit(X[~test], Y[~test]).predict_proba(X[test])
            np.testing.assert_allclose(log_p[test], np.log(np.maximum(p, FLOOR)))

    def test_score_of_a_sample_does_not_see_its_label(self, wine):
        fold = wine._fold == 0
        pool = fit_pool(wine._log_p[:, ~fold], Y[~fold], pooling="log", shrinkage=3.0)
        expected = pool.log_probabilities(wine._log_p[:, fold])
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

    def test_two_classes(self):
        some = Y < 2
        model = StackedClassifier(MEMBERS, random_state=0).fit(X[some], Y[some])
        assert model.decision_function(X[some]).shape == (some.sum(),)
        assert model.score(X[some], Y[some]) > 0.95
        assert model.map_coordinates(X[some]).shape == (some.sum(), 1)

    def test_class_of_one_sample(self):
        some = (Y < 2) | (np.cumsum(Y == 2) == 1) & (Y == 2)
        model = StackedClassifier([("bm2pca", BM2PCAClassifier(random_state=0)), MEMBERS[1]])
        with pytest.warns(UserWarning, match="single sample"):
            model.fit(X[some], Y[some])
        assert np.isfinite(model.predict_proba(X)).all()

    def test_groups_are_held_out_together(self):
        groups = np.arange(len(Y)) // 3
        model = StackedClassifier(MEMBERS, random_state=0).fit(X, Y, groups=groups)
        assert all(len(set(model._fold[groups == g])) == 1 for g in np.unique(groups))
        assert not np.allclose(
            model._log_p[0], model.named_estimators_["dgplvm"].held_out_log_proba_
        )

    def test_missing_values_if_all_members_take_them(self):
        holes = X.copy()
        holes[::7, 3] = np.nan
        bm2pca = ("bm2pca", BM2PCAClassifier(random_state=0))
        model = StackedClassifier([bm2pca], random_state=0).fit(holes, Y)
        assert np.isfinite(model.predict_proba(holes)).all()
        with pytest.raises(ValueError, match="NaN"):
            StackedClassifier([bm2pca, *MEMBERS]).fit(holes, Y)

    def test_parallel_fits_are_the_same(self, wine):
        other = clone(wine).set_params(n_jobs=2).fit(X, Y)
        np.testing.assert_array_equal(other.predict_proba(X), wine.predict_proba(X))

    def test_noise_has_no_signal(self):
        rng = np.random.default_rng(0)
        noise, y = rng.standard_normal((60, 8)), rng.integers(3, size=60)
        model = StackedClassifier([("dgplvm", DGPLVMClassifier()), ("bm2pca", BM2PCAClassifier())])
        with pytest.warns(UserWarning, match="no evidence"):
            model.fit(noise, y)
        new = rng.standard_normal((600, 8))
        loss = -model.predict_log_proba(new)[np.arange(600), rng.integers(3, size=600)].mean()
        assert loss < np.log(3.0) + 0.05

    def test_interrupted_member_is_the_last(self, monkeypatch):
        def stop(self, X, y):
            raise KeyboardInterrupt

        monkeypatch.setattr(GaussianNB, "fit", stop)
        model = StackedClassifier(MEMBERS, random_state=0)
        model.fit(X, Y)
        assert model.interrupted_
        assert list(model.named_estimators_) == ["dgplvm"]
        assert np.isfinite(model.predict_proba(X)).all()

    def test_save_and_load(self, wine, tmp_path):
        wine.save(tmp_path / "stack.skops")
        again = load(tmp_path / "stack.skops")
        np.testing.assert_array_equal(again.predict_proba(X), wine.predict_proba(X))
        assert again.idata_["predictions"].identical(wine.idata_["predictions"])
        assert again.named_estimators_["dgplvm"].idata_ is not None

    def test_arguments_of_members(self, wine):
        model = clone(wine).set_params(bayes__var_smoothing=0.1, dgplvm=LogisticRegression())
        assert model.get_params()["bayes__var_smoothing"] == 0.1
        assert isinstance(model.get_params()["dgplvm"], LogisticRegression)
        assert MEMBERS[1][1].var_smoothing == 1e-9
        with pytest.raises(ValueError, match="no argument"):
            model.set_params(knn__n=1)

    def test_summary_names_weights(self, wine):
        summary = wine.summary()
        assert {"weight of dgplvm", "weight of bayes", "held-out log score"} <= set(summary.index)

    def test_maps(self, wine):
        title = wine.plot_map().get_title(loc="left")
        assert "Held-out" in title
        assert "predictions" in title
        assert "New" in wine.plot_map(X, Y).get_title(loc="left")
        u = wine.map_coordinates(X)
        assert u.shape == wine.transform(X).shape == (len(X), 2)

    def test_features_of_a_member(self, wine):
        assert wine.plot_features() is not None
        with pytest.raises(ValueError, match="member must be one"):
            wine.plot_features("bayes")

    def test_frames_keep_names(self):
        frame = pd.DataFrame(X).add_prefix("f")
        model = StackedClassifier(MEMBERS, random_state=0).fit(frame, Y)
        assert model.idata_["constant_data"]["feature"].values[0] == "f0"
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[frame.columns[::-1]])

    @pytest.mark.parametrize(
        ("members", "error", "match"),
        [
            ([], ValueError, "unique names"),
            ([("a", GaussianNB()), ("a", GaussianNB())], ValueError, "unique names"),
            ([("a__b", GaussianNB())], ValueError, "unique names"),
            ([GaussianNB()], TypeError, "pairs"),
            ([("a", GaussianNB)], TypeError, "not an estimator"),
            ([("a", 3)], TypeError, "not an estimator"),
        ],
    )
    def test_bad_members(self, members, error, match):
        with pytest.raises(error, match=match):
            StackedClassifier(members).fit(X, Y)

    def test_bad_arguments(self):
        for bad in ({"pooling": "geometric"}, {"shrinkage": 0.0}, {"cv": 1}):
            with pytest.raises(ValueError, match=next(iter(bad))):
                StackedClassifier(**bad).fit(X, Y)
        with pytest.raises(ValueError, match="one class per sample"):
            StackedClassifier(MEMBERS).fit(X, np.stack([Y, Y], axis=1))

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_scikit_learn_checks(self):
        members = [("knn", KNeighborsClassifier(3)), ("bayes", GaussianNB())]
        check_estimator(StackedClassifier(members, random_state=0))
