"""The public interface of the classifier, its metric and calibration, and its accuracy."""

import warnings

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

from bsdr_models import DGPLVMClassifier, DGPLVMOptimization
from bsdr_models.dgplvm.gp_classifier import LAPSE, fit_gp_classifier
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.dgplvm import predict

FORMS = {
    "default": {},
    "limit": {"priors__weight": np.inf},
    "total": {"priors__criterion": "total"},
    "inverse_trace": {"priors__criterion": "inverse_trace"},
}
PAPER = {
    "paper": {"optimization__max_iter": 100},
}
FAST = ("default", "limit", "paper")
every_form = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in (*FORMS, *PAPER)
    ],
)


@pytest.fixture(scope="module")
def models(wine):
    """Every form, fitted once."""
    cache = {}

    def get(name):
        if name not in cache:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
                kind = PaperDGPLVMClassifier if name in PAPER else DGPLVMClassifier
                model = kind(random_state=0).set_params(**(FORMS | PAPER)[name])
                cache[name] = model.fit(wine[0], wine[2])
        return cache[name]

    return get


@every_form
def test_wine(wine, models, name):
    _, test, _, y_test = wine
    model = models(name)
    by_default = name in ("default", "limit")
    assert model.score(test, y_test) > (0.95 if by_default else 0.9)
    assert log_loss(y_test, model.predict_proba(test)) < (0.15 if by_default else 0.35)


def test_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    train = np.arange(len(y)) % 5 == 0
    model = DGPLVMClassifier(random_state=0).fit(X[train], y[train])
    assert model.transform(X).shape == (len(X), 1)
    assert model.score(X[~train], y[~train]) > 0.92
    assert log_loss(y[~train], model.predict_proba(X[~train])) < 0.25


@pytest.mark.parametrize("standardize", [pytest.param(True, marks=pytest.mark.slow), False])
def test_scaling_of_the_paper(wine, standardize):
    train, test, y_train, y_test = wine
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
        model = PaperDGPLVMClassifier(standardize=standardize, random_state=0)
        model.set_params(**PAPER["paper"]).fit(train, y_train)
    assert model.standardized_ is (standardize is not False)
    # With a common scale proline has nearly all of the variance.
    variance = model.idata_["constant_data/X"].values.var(axis=0)
    np.testing.assert_allclose(variance.mean(), 1.0)
    assert (variance[12] > 0.9 * variance.sum()) == (standardize is False)
    assert model.score(test, y_test) > (0.6 if standardize is False else 0.93)


# ------------------------------------------------------------------------------------ the metric


def classes(n=45, d=12):
    """Three overlapping classes in scaled features, in no order."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.standard_normal((n, d))
    X[np.arange(n), y] += 1.5
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def fitted(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DGPLVMClassifier(random_state=0, **options).fit(X, y)


def test_values_that_no_training_sample_can_have_are_set_to_the_largest():
    """The last feature is zero but in one sample."""
    X, y = classes()
    X = np.column_stack([X, np.where(np.arange(len(X)) == 4, 1e-3, 0.0)])
    model = fitted(X, y)
    largest = X[:, -1].mean() + X[:, -1].std() * np.sqrt(len(X) - 1.0)
    at_bound = X + np.eye(13)[-1] * (largest - X[:, -1:])
    far = X + np.eye(13)[-1] * 1e3
    for method in (model.predict_proba, model.transform):
        np.testing.assert_allclose(method(far), method(at_bound), atol=1e-9)
    assert (model.out_of_range(far) > 0.999).all()
    assert model.out_of_range(at_bound).mean() < 0.9
    tree = model.predict_idata(far)["predictions"]
    np.testing.assert_array_equal(tree["out_of_range"], model.out_of_range(far))


@pytest.mark.parametrize("metric", ["unit", "identity"])
def test_metric_that_the_user_names(metric):
    """Units of the features matter to the identity only."""
    X, y = classes()
    units = np.geomspace(1.0, 100.0, X.shape[1])
    one, other = fitted(X, y, metric=metric), fitted(X * units, y, metric=metric)
    name = {"unit": "unit variance", "identity": "as they are"}[metric]
    assert one.metric_weights_[name] == 1.0
    change = one.predict_proba(X) - other.predict_proba(X * units)
    assert (np.abs(change).max() < 1e-3) == (metric == "unit")


@pytest.mark.parametrize("metric", ["auto", "unit", "identity"])
def test_derivatives_of_the_mapping(metric):
    """The mean over training samples, in features of unit variance."""
    X, y = classes(d=6)
    units = np.geomspace(0.1, 10.0, 6)
    model, step = fitted(X * units, y, metric=metric), 1e-4
    for d in range(6):
        moved = [model.transform((X + sign * step * np.eye(6)[d]) * units) for sign in (1, -1)]
        slope = (moved[0] - moved[1]).mean(axis=0) / (2.0 * step)
        np.testing.assert_allclose(model.components_[:, d], slope, atol=1e-5)


# ------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize("random_labels", [False, True])
def test_the_paper_is_calibrated_by_samples_left_out_of_its_classifier(wine, random_labels):
    """Temperature and weight of the model against that of the class frequencies, by sums.

    Without a weight the latent coordinates do not separate random labels.
    """
    X, X_new, y, _ = wine
    options = {"optimization": DGPLVMOptimization(max_iter=60)}
    if random_labels:
        y = np.random.default_rng(1).permutation(y)
        options["weight"] = 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PaperDGPLVMClassifier(random_state=0, **options).fit(X, y)
    functions, log_odds = fit_gp_classifier(model.latent_, y)

    def probabilities(log_odds, temperature):
        return (1.0 - LAPSE) * softmax(log_odds / temperature, axis=1) + LAPSE / 3.0

    frequency = np.bincount(y) / len(y)
    log_t = np.linspace(-1.5, 2.5, 2001)
    prior = norm.pdf(log_t, 0.5, 0.5)
    truth = np.arange(len(y)), y
    gain = [np.log(probabilities(log_odds, t)[truth] / frequency[y]).sum() for t in np.exp(log_t)]
    weight = prior / prior.sum() * np.exp(0.5 * np.array(gain))
    temperature = np.exp(weight @ log_t / weight.sum())
    signal = 0.8 * weight.sum() / (0.8 * weight.sum() + 0.2)
    assert (signal < 0.9) == random_labels
    assert model.idata_.attrs["temperature"] == pytest.approx(temperature, rel=1e-3)
    assert model.idata_.attrs["signal"] == pytest.approx(signal, rel=1e-3)
    mean, variance = functions.moments(model.transform(X_new))
    z = mean / np.sqrt(1.0 + variance)
    p = probabilities(norm.logcdf(z) - norm.logcdf(-z), temperature)
    expected = signal * p + (1.0 - signal) * frequency
    found = model.predict_proba(X_new)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    scaled = (X_new - model.mean_) / model.scale_
    np.testing.assert_allclose(predict(model.idata_, scaled), found, atol=1e-9)


def test_without_a_signal_probabilities_are_near_the_class_frequencies():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], [30, 12, 6])
    X = rng.standard_normal((100, 8))
    model = fitted(X[:48], y)
    p = model.predict_proba(X[48:])
    frequency = np.bincount(y) / 48.0
    assert np.sqrt(np.mean((p - frequency) ** 2)) < 0.05
    assert model.idata_.attrs["signal"] < 0.8


def test_the_model_of_a_fit_is_declared_on_its_samples(uncompiled):
    """At its raw coordinates it has its latent coordinates and its criterion."""
    X, y = classes()
    model = fitted(X, y)
    declared, posterior = model.model_, model.idata_["posterior"]
    raw = posterior["latent_raw"].values[0, 0]
    values = {declared["latent_raw"]: raw}
    np.testing.assert_allclose(declared["latent"].eval(values), model.latent_, atol=1e-8)
    np.testing.assert_allclose(declared["criterion"].eval(values), posterior["criterion"].item())


def test_the_progress_bar(wine, capsys):
    DGPLVMClassifier(progressbar=True, random_state=0).fit(wine[0], wine[2])
    captured = capsys.readouterr()
    assert "MAP" in captured.out + captured.err
