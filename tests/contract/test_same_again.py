"""The same samples, seeds and units give the same answers, alone or together, here or elsewhere."""

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

from bsdr_models import BM2PCAClassifier, BSDRClassifier, DGPLVMClassifier

pytestmark = pytest.mark.usefixtures("short_runs")


# D-GPLVM embeds samples by a search.
def test_a_sample_alone_is_a_sample_among_a_thousand(zoo, kind):
    model = zoo.fitted(kind)
    rng = np.random.default_rng(5)
    rows = zoo.X[rng.integers(45, size=1000)] + 0.1 * rng.standard_normal((1000, 4))
    together = zoo.outputs(model, rows)
    for n in (0, 17, 999):
        for key, values in zoo.outputs(model, rows[n : n + 1]).items():
            if key == "predict" and values.dtype.kind != "f":
                assert values[0] == together[key][n]
            else:
                near = {"rtol": 1e-6, "atol": 1e-8} if "DGPLVM" in kind else {"rtol": 1e-8}
                np.testing.assert_allclose(values[0], together[key][n], **{"atol": 1e-10} | near)


def test_fitting_again_gives_the_same_bits(zoo, kind):
    X, y = zoo.X, zoo.target(kind)
    first = zoo.outputs(zoo.fitted(kind), X)
    again = zoo.fit(zoo.make(kind), X[::5], y[::5])  # what was fitted before leaves no trace
    for key, values in zoo.outputs(zoo.fit(again, X, y), X).items():
        np.testing.assert_array_equal(values, first[key])
    assert again.idata_.equals(zoo.fitted(kind).idata_)


# The same samples in other words.
REWRITTEN = {
    "permuted": lambda X, order: X[order],
    "float32": lambda X, _: X.astype(np.float32),
    "six digits": lambda X, _: np.vectorize(lambda value: float(f"{value:.6g}"))(X),
}


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("model", [BSDRClassifier, BM2PCAClassifier, DGPLVMClassifier])
def test_order_and_rounding_change_no_prediction(model):
    """Chains of BSDR stay together but where a proposal is just accepted or just rejected."""
    X, y = load_wine(return_X_y=True)
    X, y, new = X[::3], y[::3], X[1::3]
    plain = model(random_state=0).fit(X, y).predict_proba(new)
    for name, rewrite in REWRITTEN.items():
        order = np.arange(len(y))
        if name == "permuted":
            order = np.random.default_rng(0).permutation(len(y))
        again = model(random_state=0).fit(rewrite(X, order), y[order]).predict_proba(new)
        change = np.abs(again - plain)
        size = np.sqrt(np.mean(change**2)) if model is BSDRClassifier else change.max()
        assert size < 0.01, name


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("model", [BSDRClassifier, BM2PCAClassifier, DGPLVMClassifier])
def test_signs_of_the_features_change_no_prediction(model):
    X, y = load_wine(return_X_y=True)
    X, y = X[::3], y[::3]
    plain = model(random_state=0).fit(X, y).predict_proba(X)
    mirrored = model(random_state=0).fit(-X, y).predict_proba(-X)
    np.testing.assert_allclose(mirrored, plain, atol=1e-6)


# Settings in which a seed matters.
SEEDED = {
    "bsdr": {},
    "bsdr_gibbs": {"sampling__draws": 4, "sampling__tune": 4},
    "bsdr_regressor": {},
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_of_every_kind(zoo, name):
    def positions(seed):
        model = zoo.make(name, **SEEDED[name], random_state=seed)
        return zoo.fit(model, zoo.X, zoo.target(name)).transform(zoo.X)

    rng, first = np.random.default_rng(3), positions(3)
    for same in (np.int64(3), rng):
        np.testing.assert_array_equal(positions(same), first)
    again = (positions(np.random.RandomState(3)) for _ in range(2))
    np.testing.assert_array_equal(*again)
    for other in (rng, 4, None):  # a generator continues
        assert not np.array_equal(positions(other), first)


UNITS = {
    "scale_1e200": 1e200,
    "scale_1e-200": 1e-200,
    "each_of_its_own": np.array([1e12, 1e-12, 1.0, 1e5]),
}
# Ascents that end where they have converged, not where they were cut short.
CLIMBS = (
    *("bsdr", "bsdr_paper", "bsdr_regressor", "bm2pca"),
    *("bm2pca_paper", "bm2pca_regressor", "dgplvm", "dgplvm_limit"),
)


# Each estimator with one of the units.
PAIRS = [(name, list(UNITS)[i % len(UNITS)]) for i, name in enumerate(CLIMBS)]


@pytest.mark.parametrize(("name", "units"), PAIRS)
def test_units_do_not_matter(zoo, name, units):
    y = zoo.target(name)
    more = {"standardize": True} if name == "dgplvm paper" else {}
    if "metric" in zoo.make(name).get_params():
        more = {"metric": "unit"}
    plain = zoo.fit(zoo.make(name, **more), zoo.X, y) if more else zoo.fitted(name)
    moved = zoo.fit(zoo.make(name, **more), zoo.X * UNITS[units], y)

    def said(model, X):
        if name.startswith("bm2pca") and hasattr(model, "decision_function"):
            return model.decision_function(X)
        return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)

    near = {"atol": 0.02} if name.startswith("bm2pca") else {"atol": 1e-3}
    if name in ("bsdr", "bsdr_regressor"):  # rounding changes the path of a sampler of few draws
        near = {"atol": 0.3}
    np.testing.assert_allclose(said(moved, zoo.X * UNITS[units]), said(plain, zoo.X), **near)


@pytest.mark.parametrize(
    ("model", "metric"),
    [
        *((model, "identity") for model in ("BSDRClassifier", "BM2PCAClassifier")),
        *(("DGPLVMClassifier", metric) for metric in ("auto", "unit", "identity")),
    ],
)
def test_the_identity_alone_sees_the_units_of_single_features(zoo, model, metric):
    """A common unit is seen by none. Powers of two change no digit of the scaled samples."""
    single = 2.0 ** np.array([0, 5, -3, 2])
    model = zoo.make(model, metric=metric)
    plain, common, own = (
        zoo.fit(clone(model), zoo.X * units, zoo.y).predict_proba(zoo.X * units)
        for units in (1.0, 2.0**660, single)
    )
    np.testing.assert_allclose(common, plain, atol=1e-9)
    if metric == "unit":
        np.testing.assert_allclose(own, plain, atol=1e-9)
    if metric == "identity":
        assert np.abs(own - plain).max() > 0.02


@pytest.mark.parametrize("name", ["bsdr", "bsdr_paper", "bm2pca", "dgplvm"])
def test_features_are_never_squared(zoo, name):
    """D = 3000: an array of D x D numbers would take 72 MB."""
    rng = np.random.default_rng(82)
    y = np.arange(15) % 3
    X = rng.standard_normal((15, 3000))
    X[:, :200] += y[:, None]
    tracemalloc.start()
    try:
        model = zoo.make(name)
        model = zoo.fit(model, X, zoo.target(name, y))
        model.predict(X)
        if hasattr(model, "transform"):
            model.transform(X, return_cov=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    assert model.idata_["constant_data"].sizes["feature"] == 3000
