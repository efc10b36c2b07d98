"""Scaled samples against the scaler's own transform; streamed statistics against one pass."""

from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.numerics.scaled_samples import column_statistics, scaled_samples
from bsdr_models.numerics.scaling import Scaler


def make_rows(n=41, p=5):
    """Columns of many sizes, one constant, one that is mostly zeros."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)) * 10.0 ** np.arange(-2, p - 2) + rng.standard_normal(p)
    X[:, 1] = 0.1
    X[:, 2] *= rng.random(n) < 0.2
    return X


@pytest.mark.parametrize("kind", ["dense", "float32", "fortran", "memmap", "csr", "csr_matrix"])
@pytest.mark.parametrize("standardize", [True, False, None])
@pytest.mark.parametrize("seen", [True, False])
def test_products_are_those_of_the_transformed_samples(kind, standardize, seen, tmp_path):
    X = make_rows()
    if kind == "float32":
        X = X.astype(np.float32)
    given = X
    if kind == "fortran":
        given = np.asfortranarray(X)
    elif kind == "memmap":
        np.save(tmp_path / "rows.npy", X)
        given = np.load(tmp_path / "rows.npy", mmap_mode="r")
    elif kind.startswith("csr"):
        given = getattr(sparse, "csr_array" if kind == "csr" else "csr_matrix")(X)
    X = X.astype(np.float64)
    scaler = None if standardize is None else Scaler.fit(X, standardize=standardize)
    expected = X if scaler is None else scaler.transform(X)
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((len(X), 3)), rng.standard_normal((X.shape[1], 3))
    rows = scaled_samples(given, scaler, seen=seen)
    tol = {"rtol": 1e-12, "atol": 1e-10}
    assert rows.n_samples == len(X)
    np.testing.assert_allclose(rows.project(B), expected @ B, **tol)
    np.testing.assert_allclose(rows.back(A), expected.T @ A, **tol)
    np.testing.assert_allclose(rows.gram(), expected.T @ expected, **tol)
    weights = rng.random(len(X))
    weighted = expected * weights[:, None]
    np.testing.assert_allclose(rows.gram(weights), weighted.T @ expected, **tol)
    np.testing.assert_allclose(rows.total(), expected.sum(axis=0), **tol)


def test_dense_samples_are_scaled_as_the_scaler_does_to_the_last_bit():
    X = np.tile(make_rows(), (400, 1))  # several chunks
    scaler = Scaler.fit(X)
    np.testing.assert_array_equal(scaled_samples(X, scaler).X, scaler.transform(X))


def test_samples_that_the_scaler_has_seen_are_scaled_in_the_products():
    X = make_rows()
    assert scaled_samples(X, Scaler.fit(X), seen=True).X is X


@pytest.mark.parametrize("mean", [1e2, 1e5])
def test_columns_far_from_the_origin_are_centred_first(mean):
    X = make_rows()
    X[:, 0] += mean
    scaler = Scaler.fit(X)
    rows, B = scaled_samples(X, scaler, seen=True), np.eye(X.shape[1])
    np.testing.assert_array_equal(rows.project(B), scaler.transform(X) @ B)


def test_samples_of_a_file_are_not_changed():
    X = make_rows()
    before = X.copy()
    column_statistics(X)
    scaled_samples(X, Scaler.fit(X))
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_values_far_from_the_training_samples_are_refused(make):
    X = make_rows()
    scaler = Scaler.fit(X)
    X[3, 4] = 1e200
    with pytest.raises(ValueError, match="column 4 holds values too large"):
        scaled_samples(make(X), scaler)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1e-300, 1.0, 1e90, 1e300])
@pytest.mark.parametrize("standardize", [True, False])
def test_streamed_statistics_make_the_scaler_of_all_samples(make, size, standardize):
    if size > 1e100 and not standardize:
        pytest.skip("values of this size are refused unless they are standardised")
    X = make_rows() * size
    X[:7, 2:] *= 1e-3  # the peak of a block need not be that of the next
    cuts = [0, 7, 8, 8, 30, len(X)]
    parts = [column_statistics(make(X[a:b]), begin=a) for a, b in pairwise(cuts)]
    got = reduce(add, parts).scaler(standardize=standardize)
    expected = Scaler.fit(X, standardize=standardize)
    np.testing.assert_array_equal(got.peak, expected.peak)
    np.testing.assert_array_equal(got.constant, expected.constant)
    np.testing.assert_allclose(got.mean, expected.mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(got.std, expected.std, rtol=1e-11)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_bad_value_is_named_by_sample_and_column(make, value):
    X = np.tile(make_rows(), (400, 1))
    X[12_345, 3] = X[13_000, 0] = value
    cuts = [0, 5_000, 15_000, len(X)]
    parts = [column_statistics(make(X[a:b]), begin=a) for a, b in pairwise(cuts)]
    assert [part.bad for part in parts] == [None, (12_345, 3), None]
    assert reduce(add, parts).bad == (12_345, 3)
