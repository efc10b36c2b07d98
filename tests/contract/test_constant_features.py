"""Constant features change nothing: no setting is derived from their number."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from bsdr_models import BM2PCAClassifier, BSDRClassifier, SupervisedWhitening

pytestmark = pytest.mark.usefixtures("short_runs")

# Most features that are tried, as spectra and counts have them.
MANY = 1000


def fitted(model, X, y):
    """A fit, and what it warns of constant features."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        model = clone(model).fit(X, y)
    return model, [str(w.message) for w in caught if "are constant" in str(w.message)]


def with_constants(X, count, *, missing=False):
    """Samples with constant features before, between and after the others."""
    values = np.tile([0.0, 1.0, -1e9, 0.1], -(-count // 4))[:count]
    where = np.arange(count) % (X.shape[1] + 1)
    out = np.insert(X, where, values, axis=1)
    if missing:
        varies = np.ptp(out, axis=0) > 0.0
        first = np.flatnonzero(~varies)[0]
        out[:, first] = np.nan
        out[1:, np.flatnonzero(~varies)[1]] = np.nan
    return out


def predictions(model, X):
    latent = np.abs(model.transform(X))
    if hasattr(model, "classes_"):
        return [model.predict_proba(X), latent]
    return [*model.predict(X, return_std=True), latent]


def assert_same(model, X, y, expected):
    """A fit to samples with constant features predicts what one without them does."""
    found, said = fitted(model, X, y)
    assert len(said) == 1, said
    for got, want in zip(predictions(found, X), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return found


def test_more_constant_features_than_samples_change_nothing(zoo, kind):
    expected = predictions(zoo.fitted(kind), zoo.X)
    found = assert_same(zoo.make(kind), with_constants(zoo.X, MANY), zoo.target(kind), expected)
    elsewhere = with_constants(zoo.X, MANY)
    elsewhere[:, 0] = 1e8  # what it is in new samples cannot matter
    assert np.ptp(with_constants(zoo.X, MANY)[:, 0]) == 0.0
    for got, want in zip(predictions(found, elsewhere), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    d = MANY + zoo.X.shape[1]
    assert found.scale_.shape == (d,) if hasattr(found, "scale_") else True
    if hasattr(found, "components_"):
        assert found.components_.shape[1] == d
        assert np.count_nonzero(found.components_.any(axis=0)) == zoo.X.shape[1]


def test_trees_hold_all_features_and_zeros_for_the_constant_ones(zoo, kind):
    X = with_constants(zoo.X, 3)
    model, _ = fitted(zoo.make(kind), X, zoo.target(kind))
    tree = model.idata_
    assert tree["constant_data"]["X"].shape == X.shape
    varies = np.ptp(X, axis=0) > 0.0
    for node in tree.subtree:
        for variable in node.data_vars.values():
            if "feature" in variable.dims:
                assert variable.sizes["feature"] == X.shape[1]
                assert not variable.isel(feature=~varies).values.any()
    assert np.isfinite(model.predict_idata(X)["predictions"]["latent_mean"]).all()


@pytest.mark.parametrize("reader", ["bm2pca", "bm2pca_regressor"])
def test_a_feature_with_one_value_or_none_is_constant(zoo, reader):
    expected = predictions(zoo.fitted(reader), zoo.X)
    X = with_constants(zoo.X, 5, missing=True)
    assert_same(zoo.make(reader), X, zoo.target(reader), expected)


def test_views_without_their_constant_features_are_the_same(zoo):
    X = with_constants(zoo.X, 5)
    varies = np.flatnonzero(np.ptp(X, axis=0) > 0.0)
    flat = np.setdiff1d(np.arange(X.shape[1]), varies)
    model = zoo.make("bsdr")
    narrow = clone(model).set_params(views={"a": [0, 1], "b": [2, 3]})
    wide = clone(model).set_params(
        views={"a": [*varies[:2], *flat[:2]], "b": [*varies[2:], *flat[2:]]}
    )
    y = zoo.target("bsdr")
    expected = narrow.fit(zoo.X, y).predict_proba(zoo.X)
    got = fitted(wide, X, y)[0].predict_proba(X)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    alone = clone(model).set_params(views={"a": [*varies, *flat[1:]], "b": flat[:1]})
    with pytest.raises(ValueError, match="view 'b' has no feature that varies"):
        fitted(alone, X, y)


def test_sparse(zoo):
    X = zoo.X * (np.abs(zoo.X) > 0.3)
    other = csr_array(with_constants(X, 40))
    model = BM2PCAClassifier(2, random_state=0)
    y = zoo.target("bm2pca")
    expected = predictions(fitted(model, csr_array(X), y)[0], csr_array(X))
    found = assert_same(model, other, y, expected)
    assert found.transform(other).shape == (len(zoo.X), 2)


def test_whitening(zoo):
    y = zoo.target("bsdr")
    X = with_constants(zoo.X, 30)
    plain = SupervisedWhitening().fit(zoo.X, y)
    found, said = fitted(SupervisedWhitening(), X, y)
    assert len(said) == 1
    expected = plain.transform(zoo.X)
    np.testing.assert_allclose(np.abs(found.transform(X)), np.abs(expected), atol=1e-6)
    np.testing.assert_allclose(
        found.transform(X), (X - found.mean_) / found.scale_ @ found.components_.T, atol=1e-9
    )


def test_components_are_at_most_the_features_that_vary(zoo):
    X = with_constants(zoo.X, 30)
    with pytest.raises(ValueError, match="must be at most n_features=4 that vary"):
        fitted(BSDRClassifier(5), X, zoo.target("bsdr"))
