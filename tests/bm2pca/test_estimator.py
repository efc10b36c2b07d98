"""BM2PCAClassifier: interface, attributes and accuracy."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import BM2PCAClassifier, BM2PCAPriors, HingeLoss
from bsdr_models.bm2pca import selection
from bsdr_models.bm2pca.labels import encode
from bsdr_models.bm2pca.spec import PAPER, SAMPLING
from bsdr_models.papers import PaperBM2PCAClassifier

CLASSES = {"label_free": BM2PCAClassifier, "paper": PaperBM2PCAClassifier}
FORMS = [
    ("label_free", "shared"),
    ("label_free", "one_vs_rest"),
    ("paper", "shared"),
    ("paper", "one_vs_rest"),
]
every_form = pytest.mark.parametrize(("kind", "strategy"), FORMS)
KINDS = ("label_free", "paper")
every_kind = pytest.mark.parametrize("kind", KINDS)


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


@every_form
def test_embedding_separates_the_classes(wine, wine_models, kind, strategy):
    train, test, y_train, y_test = wine
    model = wine_models[kind, strategy]
    on_map = LogisticRegression(max_iter=1000).fit(model.transform(train), y_train)
    assert on_map.score(model.transform(test), y_test) > 0.93


def test_gibbs_on_wine(wine):
    train, test, y_train, y_test = wine
    model = quick(
        "paper",
        inference="gibbs",
        n_components=3,
        sampling__draws=60,
        sampling__tune=60,
        sampling__chains=2,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "R-hat of the identified quantities")
        model.fit(train, y_train)
    assert model.score(test, y_test) > 0.9
    assert model.idata_["posterior"].sizes == {**model.idata_["posterior"].sizes, "draw": 60}
    assert not hasattr(model, "n_sweeps_")


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


@every_form
def test_embedding_is_linear_in_scaled_features(wine, wine_models, kind, strategy):
    test, model = wine[1], wine_models[kind, strategy]
    scaled = (test - model.mean_) / model.scale_
    mean, cov = model.transform(test, return_cov=True)
    shift = mean - scaled @ model.components_.T
    np.testing.assert_allclose(shift, np.tile(shift[:1], (len(test), 1)), atol=1e-9)
    np.testing.assert_allclose(model.transform(test), mean, rtol=1e-12, atol=1e-12)
    assert np.linalg.eigvalsh(cov)[:, 0].min() > 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_without_standardize_all_features_have_one_scale(overlapping, kind):
    X, y = overlapping
    model = quick(kind, standardize=False).fit(X * np.arange(1.0, 6.0), y)
    assert np.ptp(model.scale_) < 1e-9 * model.scale_[0]
    total = ((X * np.arange(1.0, 6.0) - model.mean_) ** 2).mean()
    np.testing.assert_allclose(model.scale_[0] ** 2, total)


def test_plain_sweeps_never_lower_the_bound(wine):
    model = quick("paper", optimization__n_sweeps=60).fit(wine[0], wine[2])
    assert model.n_iter_ == 60
    assert not model.converged_
    assert np.all(np.diff(model.lower_bounds_) >= -1e-9 * np.abs(model.lower_bounds_[:-1]))


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


def test_cross_validation_runs_only_if_needed(overlapping, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("cross-validation")

    monkeypatch.setattr(selection, "cross_validate", refuse)
    X, y = overlapping
    quick().fit(X, y)
    quick("paper").fit(X, y)
    for more in ({"loss__calibrate": True}, {"loss__C": "cv"}, {"metric_scale": "cv"}):
        with pytest.raises(AssertionError, match="cross-validation"):
            quick(**more).fit(X, y)


@every_form
def test_progressbar(overlapping, capsys, kind, strategy):
    X, y = overlapping
    arguments = {"loss__calibrate": True}
    quiet = quick(kind, strategy, **arguments).fit(X, y)
    assert capsys.readouterr().out == ""
    shown = quick(kind, strategy, **arguments, progressbar=True).fit(X, y)
    assert "BM2PCA" in capsys.readouterr().out
    np.testing.assert_array_equal(shown.predict_proba(X), quiet.predict_proba(X))


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


def test_without_calibration_the_temperature_is_one(overlapping):
    X, y = overlapping
    plain = quick(loss__calibrate=False).fit(X, y)
    calibrated = quick(loss__calibrate=True).fit(X, y)
    assert plain.temperature_ == 1.0
    assert calibrated.temperature_ not in (0.0, 1.0)
    np.testing.assert_array_equal(plain.decision_function(X), calibrated.decision_function(X))


@every_form
def test_probabilities_are_calibrated(kind, strategy):
    """The relative frequency of labels equals their predicted probability."""
    rng = np.random.default_rng(93)
    X = rng.standard_normal((1300, 4))
    eta = X @ rng.standard_normal((4, 2)) @ rng.standard_normal((2, 3))
    y = (eta + rng.standard_normal(eta.shape)).argmax(axis=1)
    model = quick(kind, strategy, loss__calibrate=True, loss__C=1.0).fit(X[:300], y[:300])
    p = model.predict_proba(X[300:])
    on = np.eye(3)[y[300:]]
    for low in np.arange(0.0, 1.0, 0.25):
        chosen = (p >= low) & (p < low + 0.25)
        assert chosen.sum() > 100
        assert abs(p[chosen].mean() - on[chosen].mean()) < 4.0 * 0.5 / np.sqrt(chosen.sum()) + 0.04


@every_kind
def test_pure_noise_gives_uncertain_probabilities(kind):
    rng = np.random.default_rng(92)
    X, y = rng.standard_normal((60, 200)), rng.permutation(np.arange(60) % 3)
    with pytest.warns(UserWarning, match="no evidence that the targets depend on X"):
        model = CLASSES[kind](random_state=0).fit(X, y)
    new = rng.standard_normal((300, 200))
    assert log_loss(np.arange(300) % 3, model.predict_proba(new)) < 1.2  # chance is 1.10


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


@every_form
@pytest.mark.parametrize("marker", [-1, np.nan])
def test_partially_known_multilabel(tags, kind, strategy, marker):
    train, test, Y_train, Y_test = tags
    rng = np.random.default_rng(95)
    part = Y_train.astype(float)
    part[rng.random(part.shape) < 0.4] = marker
    part[:20] = marker  # samples without any label
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick(kind, strategy, unlabeled=marker, loss__calibrate=True).fit(train, part)
    assert np.mean(model.predict(test) == Y_test) > 0.75
    assert np.isfinite(model.predict_proba(test)).all()


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


def test_nullable_integer_series():
    y = pd.Series([0, 1, None, 0, 1], dtype="Int64")
    np.testing.assert_array_equal(encode(y, np.nan).groups, [0, 1, -1, 0, 1])
    with pytest.raises(ValueError, match="NaN or None, first at \\[2\\]"):
        encode(y, None)


def test_without_a_marker_minus_one_is_a_class(overlapping):
    X, y = overlapping
    model = quick().fit(X, np.array([-1, 0, 1])[y])
    assert model.classes_.tolist() == [-1, 0, 1]


def test_unused_marker_and_fully_unlabeled_y(overlapping):
    X, y = overlapping
    plain = quick().fit(X, y)
    np.testing.assert_array_equal(
        quick(unlabeled=-1).fit(X, y).predict_proba(X), plain.predict_proba(X)
    )
    with pytest.raises(ValueError, match="every y equals unlabeled=-1"):
        quick(unlabeled=-1).fit(X, np.full(len(y), -1))
    with pytest.raises(ValueError, match="one class only"):
        quick(unlabeled=-1).fit(X, np.where(y > 0, -1, 0))


@every_form
def test_unlabelled_samples_are_accepted(wine, kind, strategy):
    """Ten labelled samples of each class."""
    train, test, y_train, y_test = wine
    rng = np.random.default_rng(96)
    y = np.full(len(y_train), -1)
    for label in range(3):
        rows = rng.permutation(np.flatnonzero(y_train == label))[:10]
        y[rows] = label
    model = CLASSES[kind](loss=HingeLoss(strategy=strategy), unlabeled=-1, random_state=0)
    model.fit(train, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(test, y_test) > 0.9
    assert (model.idata_["fit/y_index"] == -1).sum() == (y == -1).sum()


def test_many_unlabelled_samples_improve_the_papers_model():
    """Five labelled samples of each class in 300 features, and about 400 unlabelled samples."""
    alone, helped = [], []
    for seed in range(6):
        rng = np.random.default_rng([97, seed])
        W, z = rng.standard_normal((2, 300)), rng.standard_normal((706, 2))
        X = z @ W + 3.0 * rng.standard_normal((706, 300))
        y = (z[:, 0] > 0.0).astype(int)
        chosen = np.concatenate([np.flatnonzero(y[:406] == c)[:5] for c in (0, 1)])
        few = np.full(406, -1)
        few[chosen] = y[chosen]
        model = quick("paper", n_components=2, optimization__n_sweeps=3, unlabeled=-1)
        alone.append(model.fit(X[chosen], y[chosen]).score(X[406:], y[406:]))
        helped.append(model.fit(X[:406], few).score(X[406:], y[406:]))
    assert np.mean(helped) > np.mean(alone) + 0.02


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
        self._scaler = None
        self.mean_, self.scale_ = np.zeros(X.shape[1]), np.ones(X.shape[1])
        return X


class DenseLabelFree(DenseAsItIs, BM2PCAClassifier):
    pass


class DensePaper(DenseAsItIs, PaperBM2PCAClassifier):
    pass


@every_kind
def test_dense_fits_predict_sparse_samples(overlapping, kind):
    X, y = overlapping
    model = quick(kind).fit(X, y)
    np.testing.assert_array_equal(
        model.decision_function(sparse.csr_matrix(X)), model.decision_function(X)
    )


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


def test_names_and_order_of_views_do_not_matter(overlapping):
    X, y = overlapping
    first = quick("paper", views=["a", "a", "b", "b", "b"]).fit(X, y)
    renamed = quick("paper", views=np.array([9, 9, 3, 3, 3])).fit(X, y)
    np.testing.assert_allclose(first.decision_function(X), renamed.decision_function(X), atol=1e-9)
    one = quick("paper", views=["a"] * 5).fit(X, y)
    np.testing.assert_array_equal(
        one.decision_function(X), quick("paper").fit(X, y).decision_function(X)
    )


@every_form
def test_missing_values_at_prediction_only(wine, wine_models, kind, strategy):
    _, test, _, y_test = wine
    model = wine_models[kind, strategy]
    rng = np.random.default_rng(100)
    holes = np.where(rng.random(test.shape) < 0.2, np.nan, test)
    assert model.score(holes, y_test) > 0.85
    complete = ~np.isnan(holes).any(axis=1)
    assert complete.any()
    np.testing.assert_allclose(
        model.decision_function(holes)[complete],
        model.decision_function(test[complete]),
        rtol=1e-9,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("kind", "strategy"), FORMS[:3])
def test_digits_with_a_fifth_of_the_values_missing(kind, strategy, seed):
    """Accuracy falls by less than five points; imputation halves the error of column means."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    train, test, y_train, y_test, holes_train, holes_test = train_test_split(
        X, y, holes, train_size=900, stratify=y, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* features are constant")
        arguments = {"loss": HingeLoss(strategy=strategy), "standardize": False}
        arguments |= {"n_components": 20, "random_state": 0}
        full = CLASSES[kind](**arguments).fit(train, y_train)
        model = CLASSES[kind](**arguments).fit(holes_train, y_train)
    assert model.score(holes_test, y_test) > full.score(test, y_test) - 0.05
    missing = np.isnan(holes_test)
    error = np.mean((model.impute(holes_test) - test)[missing] ** 2)
    by_means = np.mean((np.nanmean(holes_train, axis=0) - test)[missing] ** 2)
    assert error < 0.5 * by_means


@pytest.mark.parametrize(
    ("n", "d"), [(30, 2000), pytest.param(2000, 30, marks=pytest.mark.slow)], ids=str
)
@every_form
def test_wide_and_long(kind, strategy, n, d):
    rng = np.random.default_rng(101)
    y = np.arange(n + 200) % 3
    X = rng.standard_normal((n + 200, d))
    good = max(15, d // 10)
    X[:, :good] += 2.0 * np.eye(3)[y] @ rng.standard_normal((3, good))
    model = quick(kind, strategy).fit(X[:n], y[:n])
    assert model.score(X[n:], y[n:]) > 0.9
    assert model.components_.shape[1] == d


def test_iris_as_a_data_frame():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = quick().fit(X, y)
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.score(X, y) > 0.9
    assert model.idata_["posterior/feature"].values.tolist() == list(X.columns)


# ----------------------------------------------------------- few components, and invariances


def few_digits(seed, n_each=10):
    """Training and test samples of the ten digits."""
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        X, y, train_size=10 * n_each, stratify=y, random_state=seed
    )
    varies = train.std(axis=0) > 0.0
    return train[:, varies], test[:600, varies], y_train, y_test[:600]


def test_ten_classes_in_two_components():
    """The loss compares the classes, of which not each can be split from all others at once."""
    found = []
    for seed in (200, 201):
        train, test, y_train, y_test = few_digits(seed)
        model = BM2PCAClassifier(n_components=2).fit(train, y_train)
        assert log_loss(y_test, model.predict_proba(test)) < np.log(10) - 0.5
        found.append(model.score(test, y_test))
    assert np.mean(found) > 0.56


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        BM2PCAClassifier(n_components=2),
        BM2PCAClassifier(n_components=5),
        BM2PCAClassifier(),
        PaperBM2PCAClassifier(),
        PaperBM2PCAClassifier(loss=HingeLoss(strategy="one_vs_rest")),
        BM2PCAClassifier(loss=HingeLoss(strategy="one_vs_rest")),
    ],
    ids=str,
)
def test_order_of_samples_seed_and_names_of_classes_do_not_matter(model):
    train, test, y, _ = few_digits(200)
    rng = np.random.default_rng(4)
    order, name = rng.permutation(100), rng.permutation(10)
    one = clone(model).set_params(random_state=0).fit(train, y)
    other = clone(model).set_params(random_state=1).fit(train[order], name[y[order]])
    found = other.predict_proba(test)[:, name]
    np.testing.assert_allclose(found, one.predict_proba(test), atol=0.01)
