"""BM2PCAClassifier: interface, attributes and accuracy."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import BM2PCAClassifier, BM2PCAPriors, HingeLoss
from bsdr_models.bm2pca.spec import PAPER, SAMPLING
from bsdr_models.bm2pca.task import encode
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.papers import PaperBM2PCAClassifier

CLASSES = {"label_free": BM2PCAClassifier, "paper": PaperBM2PCAClassifier}
FORMS = [
    ("label_free", "shared"),
    ("label_free", "one_vs_rest"),
    ("paper", "shared"),
    ("paper", "one_vs_rest"),
]
every_form = pytest.mark.parametrize(("kind", "strategy"), FORMS)


def quick(kind="label_free", strategy="shared", **more):
    """A fit without cross-validation."""
    settings = {
        "loss__strategy": strategy,
        "loss__C": 10.0,
        "loss__calibrate": False,
        "random_state": 0,
    }
    own = {"optimization__n_sweeps": 5} if kind == "paper" else {"metric_scale": 10.0}
    return CLASSES[kind]().set_params(**settings | own | more)


@pytest.fixture(scope="module")
def wine():
    """60 training and 118 test samples."""
    X, y = load_wine(return_X_y=True)
    return train_test_split(X, y, train_size=60, stratify=y, random_state=0)


@pytest.fixture(scope="module")
def wine_models(wine):
    """The default settings of every form, each fitted once."""
    return {
        form: CLASSES[form[0]](loss=HingeLoss(strategy=form[1]), random_state=0).fit(
            wine[0], wine[2]
        )
        for form in FORMS
    }


@pytest.fixture(scope="module")
def overlapping():
    """Three classes of which two overlap, in 5 features."""
    rng = np.random.default_rng(91)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 5)) + 2.0 * np.eye(3)[y] @ rng.standard_normal((3, 5))
    return X, y


# ------------------------------------------------------------------------------------- wine


@every_form
def test_wine(wine, wine_models, kind, strategy):
    """About as accurate as shrinkage LDA, with good probabilities."""
    train, test, y_train, y_test = wine
    model = wine_models[kind, strategy]
    lda = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1))
    lda.fit(train, y_train)
    assert model.score(test, y_test) > 0.93
    assert model.score(test, y_test) >= lda.score(test, y_test) - 0.04
    assert log_loss(y_test, model.predict_proba(test)) < 0.2


# ------------------------------------------------------------------------------- attributes


@every_form
def test_fitted_attributes(wine, wine_models, kind, strategy):
    train, model = wine[0], wine_models[kind, strategy]
    width = {
        ("label_free", "shared"): 2,
        ("label_free", "one_vs_rest"): 3,
        ("paper", "shared"): 10,
        ("paper", "one_vs_rest"): 30,
    }[kind, strategy]
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_features_in_ == 13
    assert model.components_.shape == (width, 13)
    assert len(model.get_feature_names_out()) == width
    np.testing.assert_allclose(model.mean_, train.mean(axis=0))
    np.testing.assert_allclose(model.scale_, train.std(axis=0))
    np.testing.assert_allclose(model.relevance_.sum(), 1.0)
    assert model.relevance_.shape == (width,)
    assert model.n_iter_ == len(model.lower_bounds_)
    assert not model.interrupted_
    results = model.cv_results_
    assert len(results["candidates"]) == len(results["accuracy"]) == len(results["log_loss"]) > 1
    chosen = results["candidates"][int(np.argmin(results["log_loss"]))]
    assert chosen["C"] == model.C_
    if kind == "paper":
        assert model.n_sweeps_ == chosen["n_sweeps"] == model.n_iter_
        assert not hasattr(model, "metric_scale_")
    else:
        assert model.converged_
        assert model.metric_scale_ == chosen["metric_scale"]
        assert not hasattr(model, "n_sweeps_")


# -------------------------------------------------------------------------------- arguments


def test_arguments_are_used(overlapping):
    X, y = overlapping
    priors = BM2PCAPriors(weight_rate=2.0)
    model = quick(
        "paper", loss__C=7.0, optimization__n_sweeps=4, priors=priors, n_components=3
    ).fit(X, y)
    config = json.loads(model.idata_.attrs["config"])
    assert config["priors"]["weight_rate"] == 2.0
    assert config["optimization"]["n_sweeps"] == 4
    assert "random_state" not in config
    assert model.C_ == model.idata_.attrs["C"] == 7.0
    assert model.transform(X).shape == (90, 3)
    free = quick(metric_scale=np.inf).fit(X, y)
    assert free.metric_scale_ == np.inf


def test_default_priors_depend_on_the_inference_method():
    assert PaperBM2PCAClassifier()._option("priors") == PAPER
    assert PaperBM2PCAClassifier(inference="gibbs")._option("priors") == SAMPLING


def test_convergence(overlapping):
    model = quick("paper", optimization__n_sweeps="converged").fit(*overlapping)
    assert model.converged_
    assert model.n_sweeps_ is None


def test_pymc_model_has_the_data_and_settings_of_the_fit(overlapping):
    X, y = overlapping
    model = quick("paper", n_components=2).fit(X, y)
    declared = model.model_
    assert dict(declared.dim_lengths)["obs"].eval() == 90
    assert {"loadings", "weights", "bias", "noise_precision"} <= set(declared.named_vars)
    assert tuple(declared.eval_rv_shapes()["loadings"]) == (5, 2)
    with pytest.raises(AttributeError, match="needs strategy='shared'"):
        quick("paper", "one_vs_rest").fit(X, y).model_  # noqa: B018
    with pytest.raises(ValueError, match="model_ needs complete dense samples"):
        quick("paper", views=list("aabbb")).fit(X, y).model_  # noqa: B018


# ------------------------------------------------------------------------------ predictions


@every_form
def test_prediction_methods_agree(wine, wine_models, kind, strategy):
    test, model = wine[1], wine_models[kind, strategy]
    scores = model.decision_function(test)
    expected = softmax(scores / model.temperature_, axis=1)
    np.testing.assert_allclose(model.predict_proba(test), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(test)), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(test), scores.argmax(axis=1))
    mean, std = model.decision_function(test, return_std=True)
    np.testing.assert_allclose(mean, scores, rtol=1e-9, atol=1e-12)
    assert std.shape == scores.shape
    assert (std > 0.0).all()


@every_form
def test_two_classes_share_one_score(overlapping, kind, strategy):
    X, y = overlapping
    labels = np.where(y == 0, "yes", "no")
    model = quick(kind, strategy, loss__calibrate=True).fit(X, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    scores, std = model.decision_function(X, return_std=True)
    assert scores.shape == std.shape == (90,)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p[:, 1], expit(scores / model.temperature_), rtol=1e-9)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0.0, "yes", "no"))


# ------------------------------------------------------------------------------- multi-label


@pytest.fixture(scope="module")
def tags():
    """Four labels: 120 training and 80 test samples."""
    rng = np.random.default_rng(94)
    X = rng.standard_normal((200, 6))
    eta = 2.0 * X @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    Y = (eta + rng.standard_normal(eta.shape) > 0.0).astype(int)
    return X[:120], X[120:], Y[:120], Y[120:]


@every_form
def test_multilabel(tags, kind, strategy):
    train, test, Y_train, Y_test = tags
    model = quick(kind, strategy, loss__calibrate=True).fit(train, Y_train)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    scores, p = model.decision_function(test), model.predict_proba(test)
    np.testing.assert_allclose(p, expit(scores / model.temperature_), rtol=1e-9)
    assert np.mean((p > 0.5) == Y_test) > 0.8
    np.testing.assert_array_equal(model.predict(test), p > 0.5)
    all_right = ((p > 0.5) == Y_test).all(axis=1)
    assert model.score(test, Y_test) == all_right.mean()


# --------------------------------------------------------------------- unlabelled samples


MARKED = {
    "minus one": (np.arange(3), -1),
    "empty text": (np.array(["a", "b", "c"]), ""),
    "word": (np.array(["a", "b", "c"], dtype=object), "?"),
    "nan": (np.array([0.0, 1.0, 2.0]), np.nan),
    "none among numbers": (np.array([0, 1, 2], dtype=object), None),
    "none among words": (np.array(["a", "b", "c"], dtype=object), None),
    "na": (np.array(["a", "b", "c"], dtype=object), pd.NA),
}


@pytest.mark.parametrize("kind", MARKED)
def test_unlabeled_markers(kind):
    labels, marker = MARKED[kind]
    index = np.array([0, 1, 2, 2, 0, 1, 2, 0, 1])
    y = labels[index]
    if marker is None or marker is pd.NA:
        y = y.astype(object)
    y[[2, 7]] = marker
    unlabeled = np.nan if marker is None or marker is pd.NA else marker
    got = encode(y, unlabeled)
    assert got.classes.tolist() == labels.tolist()
    np.testing.assert_array_equal(got.groups, [0, 1, -1, 2, 0, 1, 2, -1, 1])
    assert got.signs.shape == (9, 3)
    np.testing.assert_array_equal(got.signs[[2, 7]], 0.0)
    np.testing.assert_array_equal(got.signs[0], [1.0, -1.0, -1.0])
    assert got.exclusive


# ----------------------------------------------------------------------------- data formats


@every_form
def test_sparse_fit_equals_unscaled_dense_fit(overlapping, kind, strategy):
    """The dense fit has no scaler."""
    rng = np.random.default_rng(98)
    y = np.arange(60) % 3
    X = rng.random((60, 30)) + 2.0 * np.eye(3)[y] @ rng.random((3, 30))
    X[rng.random(X.shape) < 0.7] = 0.0
    model = quick(kind, strategy, loss__calibrate=True).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(model.mean_, 0.0)
    np.testing.assert_array_equal(model.scale_, 1.0)
    dense = (DensePaper if kind == "paper" else DenseLabelFree)(**model.get_params(deep=False)).fit(
        X, y
    )
    # Axes differ, and so does the optimum up to the tolerance of 1e-5.
    rough = (
        {"rtol": 0.03, "atol": 0.03} if strategy == "one_vs_rest" else {"rtol": 0.01, "atol": 0.01}
    )
    np.testing.assert_allclose(model.temperature_, dense.temperature_, **rough)
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array, np.asarray):
        got = model.decision_function(kind(X))
        np.testing.assert_allclose(got, dense.decision_function(X), **rough)


class DenseAsItIs:
    """Dense samples without centring and scaling."""

    def _scale(self, X):
        self._scaler = Scaler.identity(X.shape[1])
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        self.standardize = False  # values have no bound
        return X


class DenseLabelFree(DenseAsItIs, BM2PCAClassifier):
    pass


class DensePaper(DenseAsItIs, PaperBM2PCAClassifier):
    pass


@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_each_view_has_its_own_noise(strategy):
    """A view with ten times the noise does not dominate the other."""
    rng = np.random.default_rng(99)
    y = np.arange(150) % 3
    X = np.hstack([rng.standard_normal((150, 5)), 10.0 * rng.standard_normal((150, 40))])
    X[:, :5] += 3.0 * np.eye(3)[y] @ rng.standard_normal((3, 5))
    views = ["good"] * 5 + ["loud"] * 40
    arguments = {"standardize": False, "n_components": 3, "optimization__n_sweeps": 10}
    apart = quick("paper", strategy, views=views, **arguments).fit(X[:60], y[:60])
    assert apart.score(X[60:], y[60:]) > 0.85
    absent = X[60:].copy()
    absent[:, 5:] = np.nan
    assert apart.score(absent, y[60:]) > 0.85
    np.testing.assert_array_equal(np.isfinite(apart.impute(absent)), True)
    absent[:, :5] = np.nan  # all missing: the prior
    mean, cov = apart.transform(absent, return_cov=True)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(cov, np.tile(np.eye(mean.shape[1]), (90, 1, 1)), atol=1e-12)
