"""Effects of features on scores and outputs, in the units of the samples, and selectors by them."""

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector

from bsdr_models import BSDRClassifier, Sampling
from bsdr_models.bsdr import Kernel

pytestmark = pytest.mark.usefixtures("short_runs", "explained")
NONLINEAR = ("dgplvm", "dgplvm_limit", "dgplvm_paper")
# Coordinates are of aligned or scaled draws: the mean of a product is not the product of means.
BY_DRAWS = ("bsdr", "bsdr_laplace", "bsdr_gibbs", "bm2pca_paper", "bm2pca_gibbs")


def in_other_units(X):
    """The samples in other units, about other places, with a constant feature before the last."""
    X = X * np.array([1.0, 100.0, 0.01, 3.0]) + np.array([0.0, 50.0, 0.0, -7.0])
    return np.insert(X, 3, 4.0, axis=1)


@pytest.fixture(scope="module")
def in_units(zoo):
    """Estimators fitted to samples in other units: of three classes, or two."""
    cache = {}

    def get(name, n_classes=3):
        X = in_other_units(zoo.X)[zoo.y < n_classes]
        y = zoo.target(name, zoo.y[zoo.y < n_classes])
        if (name, n_classes) not in cache:
            explained = (*zoo.explained, ".* features are constant in the training samples")
            cache[name, n_classes] = zoo.fit(zoo.make(name), X, y, explained)
        return cache[name, n_classes], X

    return get


@pytest.mark.parametrize("n_classes", [2, 3])
def test_coefficients_of_classes_give_the_scores_of_the_samples_as_given(
    in_units, classifier, n_classes
):
    model, X = in_units(classifier, n_classes)
    if classifier in NONLINEAR:
        for name in ("coef_", "intercept_"):
            assert not hasattr(model, name)
            with pytest.raises(AttributeError, match=f"{name}: its predictions are not linear"):
                getattr(model, name)
        return
    n_scores = 1 if n_classes == 2 else 3
    assert model.coef_.shape == (n_scores, 5)
    assert model.intercept_.shape == (n_scores,)
    np.testing.assert_array_equal(model.coef_[:, 3], 0.0)
    scores = X @ model.coef_.T + model.intercept_
    own = scores.argmax(axis=1) if n_classes == 3 else (scores[:, 0] > 0.0).astype(int)
    agree = np.mean(model.classes_[own] == model.predict(X))
    assert agree > 0.95
    if classifier == "bm2pca":
        factor = model.decision_function(X).reshape(len(X), -1) / scores
        assert (factor > 0.0).all()
        np.testing.assert_allclose(factor, factor[:, :1] * np.ones(n_scores))
    elif classifier not in BY_DRAWS:  # scores are an affine function of the latent coordinates
        latent = np.column_stack([model.transform(X), np.ones(len(X))])
        fitted = latent @ np.linalg.lstsq(latent, scores, rcond=None)[0]
        np.testing.assert_allclose(scores, fitted, atol=1e-8)


def test_coefficients_of_outputs_give_predictions(in_units, zoo, regressor):
    model, X = in_units(regressor)
    assert model.coef_.shape == (5,)
    assert isinstance(model.intercept_, float)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X), atol=1e-9)
    Y = np.column_stack([model.predict(X), zoo.target(regressor)])
    several = clone(model).fit(X, Y)
    assert several.coef_.shape == (2, 5)
    fitted = X @ several.coef_.T + several.intercept_
    np.testing.assert_allclose(fitted, several.predict(X), atol=1e-9)


def test_importances_are_shares_of_all_features(in_units, name):
    model, _ = in_units(name)
    if name == "dgplvm_paper":  # its embedding is by the likelihood, without a mapping
        assert not hasattr(model, "feature_importances_")
        return
    share = model.feature_importances_
    assert share.shape == (5,)
    assert share[3] == 0.0
    assert (share >= 0.0).all()
    assert share.sum() == pytest.approx(1.0)
    if name not in (*NONLINEAR, *BY_DRAWS):
        coef = model.coef_ * model._scaler.scale
        coef = coef if len(coef) in (1, 5) else coef - coef.mean(axis=0)
        square = np.sum(np.atleast_2d(coef) ** 2, axis=0)
        np.testing.assert_allclose(share, square / square.sum(), atol=1e-9)


def test_several_labels(zoo):
    Y = np.column_stack([zoo.y == 0, zoo.y == 2]).astype(int)
    for kind in ("BM2PCAClassifier", "PaperBSDRClassifier", "BSDRClassifier"):
        model = zoo.fit(zoo.make(kind), zoo.X, Y)
        on = zoo.X @ model.coef_.T + model.intercept_ > 0.0
        assert np.mean(on == model.predict(zoo.X)) > 0.95


def test_a_kernel_has_importances_but_no_coefficients(zoo):
    model = BSDRClassifier(kernel=Kernel("rbf"), sampling=Sampling(draws=30), random_state=0)
    zoo.fit(model, zoo.X, zoo.y)
    assert not hasattr(model, "coef_")
    assert model.feature_importances_.sum() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["from_model", "rfe", "rfecv", "sequential"])
@pytest.mark.parametrize("kind", ["BM2PCAClassifier", "PaperBSDRClassifier"])
def test_selectors_of_scikit_learn(zoo, kind, case):
    rng = np.random.default_rng(0)
    X = np.column_stack([zoo.X[:, 2:], rng.standard_normal((45, 4))])
    model = zoo.make(kind, n_components=1)
    made = {
        "from_model": SelectFromModel(model, max_features=2, threshold=-np.inf),
        "rfe": RFE(model, n_features_to_select=2),
        "rfecv": RFECV(model, cv=2, min_features_to_select=2, step=2),
        "sequential": SequentialFeatureSelector(model, n_features_to_select=1, cv=2),
    }[case]
    made.fit(X, zoo.target(kind))
    assert set(np.flatnonzero(made.get_support())) & {0, 1}
    if case == "from_model":
        importances = SelectFromModel(
            made.estimator_, importance_getter="feature_importances_", prefit=True
        )
        assert importances.fit(X).get_support()[:2].any()
    assert is_regressor(model) == is_regressor(made.estimator)
