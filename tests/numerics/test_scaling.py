"""Scaling against exact rational arithmetic, at sizes where plain formulas overflow."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bsdr_models.numerics.scaling import Scaler, largest_scaled, pad


def exact(column):
    """(x - mean) / std without rounding, from the squares."""
    values = [Fraction(float(v)) for v in column]
    mean = sum(values) / len(values)
    square = sum((v - mean) ** 2 for v in values) / len(values)
    return [np.sign(v - mean) * float((v - mean) ** 2 / square) ** 0.5 for v in values]


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-12, 1.0, 1e12, 1e200, 1.7e308])
def test_standardises_at_any_size(size):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (9, 3)) * size
    scaler = Scaler.fit(X)
    got = scaler.transform(X)
    for column, values in zip(X.T, got.T, strict=True):
        np.testing.assert_allclose(values, exact(column), rtol=1e-12)
    np.testing.assert_allclose(got.std(axis=0), 1.0)
    assert not scaler.constant.any()


@pytest.mark.parametrize("value", [0.0, 1.0, -3.7, 1e-300, 1e300, 0.1])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_constant_column_is_left_out_wherever_new_samples_lie(value, standardize):
    """0.1 * 3 / 3 is not 0.1: the standard deviation of a constant may be a rounding error."""
    X = np.column_stack([np.full(7, value), np.arange(7.0)])
    scaler = Scaler.fit(X, standardize=standardize)
    np.testing.assert_array_equal(scaler.constant, [True, False])
    new = np.array([[5.0, 1.0], [-1e300, 2.0]])
    alone = Scaler.fit(X[:, 1:], standardize=standardize).transform(new[:, 1:])
    np.testing.assert_array_equal(scaler.transform(new), alone)
    np.testing.assert_allclose(scaler.scale[0], 1.0)
    np.testing.assert_allclose(scaler.inverse(alone), [[value, 1.0], [value, 2.0]])


@pytest.mark.parametrize("axis", [0, 1])
def test_constant_features_are_filled_with_zeros(axis):
    constant = np.array([True, False, True, True, False])
    full = np.where(constant, 0.0, np.arange(5.0)) + np.zeros((5, 5))
    full = np.moveaxis(full, 1, axis)
    values = np.compress(~constant, full, axis=axis)
    np.testing.assert_array_equal(pad(values, constant, axis=axis), full)


def test_variation_of_rounding_is_none():
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.ones(10_000), size=50)
    X = np.column_stack(
        [shares.sum(axis=1), 7.0 * shares.sum(axis=1), 1.0 + 1e-13 * rng.random(50)]
    )
    assert np.ptp(X, axis=0).all()
    np.testing.assert_array_equal(Scaler.fit(X).constant, [True, True, False])


def test_centring_alone_refuses_training_samples_that_are_too_large():
    X = 1e200 * np.random.default_rng(6).standard_normal((10, 2))
    with pytest.raises(ValueError, match="not standardised"):
        Scaler.fit(X, standardize=False).transform(X)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    X=arrays(np.float64, (6, 2), elements=st.floats(allow_nan=False, allow_infinity=False)),
    standardize=st.booleans(),
)
def test_any_finite_samples_are_scaled_or_refused(X, standardize):
    """Never a NaN, never a warning; at most sqrt(n) standard deviations from the mean."""
    scaler = Scaler.fit(X, standardize=standardize)
    if not standardize and np.abs(X).max() > 1e99:
        return
    got = scaler.transform(X)
    assert np.isfinite(got).all()
    assert got.shape == (6, scaler.varies.sum())
    if standardize:
        assert np.abs(got).max(initial=0.0) <= np.sqrt(6.0) * (1.0 + 1e-6)
        np.testing.assert_allclose(got.std(axis=0), 1.0, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    X=arrays(np.float64, (6, 3), elements=st.floats(-1e6, 1e6)),
    missing=arrays(np.bool_, (6, 3)),
)
def test_no_standardised_value_exceeds_the_largest_possible(X, missing):
    X = np.where(missing, np.nan, X)
    scaler = Scaler.fit(X)
    largest = np.fmax.reduce(np.abs(scaler.transform(X)), axis=0, initial=0.0)
    assert (largest <= largest_scaled(scaler.select(X)) * (1.0 + 1e-6)).all()


@pytest.mark.parametrize("n", [2, 3, 10, 1000])
def test_one_value_apart_from_all_others_is_the_largest_possible(n):
    X = np.zeros((n + 4, 2))
    X[0], X[n:, 1] = 1e-3, np.nan
    scaled = Scaler.fit(X).transform(X)
    np.testing.assert_allclose(scaled[0], np.sqrt([n + 3.0, n - 1.0]), rtol=1e-12)
    np.testing.assert_allclose(largest_scaled(X), scaled[0], rtol=1e-12)
