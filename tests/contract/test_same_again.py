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


# The same samples in other words: a function of the samples, and their order.
ORDER = np.random.default_rng(0).permutation(60)
REWRITTEN = {
    "permuted": (lambda X: X, ORDER),
    "six digits": (np.vectorize(lambda value: float(f"{value:.6g}")), np.arange(60)),
    "mirrored": (np.negative, np.arange(60)),
}


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("model", [BSDRClassifier, BM2PCAClassifier, DGPLVMClassifier])
def test_order_rounding_and_signs_change_no_prediction(model):
    """Chains of BSDR stay together but where a proposal is just accepted or just rejected."""
    X, y = load_wine(return_X_y=True)
    X, y, new = X[::3], y[::3], X[1::3]
    plain = model(random_state=0).fit(X, y).predict_proba(new)
    for name, (rewrite, order) in REWRITTEN.items():
        again = model(random_state=0).fit(rewrite(X[order]), y[order])
        change = np.abs(again.predict_proba(rewrite(new)) - plain)
        size = np.sqrt(np.mean(change**2)) if model is BSDRClassifier else change.max()
        assert size < (1e-6 if name == "mirrored" else 0.01), name


@pytest.mark.parametrize("name", ["bsdr", "bsdr_gibbs", "bsdr_laplace", "bsdr_regressor"])
def test_seeds_of_every_kind(zoo, name):
    X, y = zoo.X[::3], zoo.target(name)[::3]

    def positions(seed):
        return zoo.fit(zoo.make(name, random_state=seed), X, y).transform(X)

    rng, first = np.random.default_rng(3), positions(3)
    for same in (np.int64(3), rng):
        np.testing.assert_array_equal(positions(same), first)
    again = (positions(np.random.RandomState(3)) for _ in range(2))
    np.testing.assert_array_equal(*again)
    for other in (rng, 4, None):  # a generator continues
        assert not np.array_equal(positions(other), first)


# All that does not end before it has converged.
CONVERGED = (
    *("bsdr", "bsdr_paper", "bsdr_regressor", "bm2pca"),
    *("bm2pca_paper", "bm2pca_regressor", "dgplvm", "dgplvm_limit"),
)


@pytest.mark.parametrize("name", CONVERGED)
def test_units_do_not_matter(zoo, name):
    """Powers of two change no digit of the scaled samples."""
    units, y = 2.0 ** np.array([660, -660, 0, 16]), zoo.target(name)
    more = {"metric": "unit"} if "metric" in zoo.make(name).get_params() else {}
    plain = zoo.fit(zoo.make(name, **more), zoo.X, y) if more else zoo.fitted(name)
    moved = zoo.fit(zoo.make(name, **more), zoo.X * units, y)
    said = "predict" if name.endswith("regressor") else "predict_proba"
    expected = getattr(plain, said)(zoo.X)
    np.testing.assert_allclose(getattr(moved, said)(zoo.X * units), expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["BSDRClassifier", "BM2PCAClassifier", "DGPLVMClassifier"])
def test_the_identity_sees_the_units_of_single_features(zoo, kind):
    """A common unit is seen by none."""
    model = zoo.make(kind, metric="identity")
    plain, common, own = (
        zoo.fit(clone(model), zoo.X * units, zoo.y).predict_proba(zoo.X * units)
        for units in (1.0, 2.0**660, 2.0 ** np.array([0, 5, -3, 2]))
    )
    np.testing.assert_allclose(common, plain, atol=1e-9)
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
