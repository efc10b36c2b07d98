"""Arguments of the estimator, resolution of defaults, scales and priors."""

from functools import partial

import numpy as np
import pytest

from bsdr_models.dgplvm.problem import choose_criterion
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.papers.dgplvm import fitting as paper


def in_different_units(X):
    return paper.in_different_units(Scaler.fit(X))


def test_criterion():
    choose = partial(choose_criterion, n_labelled=100)
    assert choose("auto", 2, 3) == "trace_ratio"
    assert choose("auto", 3, 3) == "total"
    assert choose("auto", 1, 2) == "trace_ratio"
    assert choose("total", 1, 2) == "total"
    for name in ("trace_ratio", "inverse_trace"):
        assert choose(name, 2, 3) == name
        with pytest.raises(ValueError, match=rf"criterion='{name}' needs n_components <= 2.*got 3"):
            choose(name, 3, 3)


def test_equal_scales_are_equal_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6))
    assert not in_different_units(X)
    assert not in_different_units(X * np.array([1, 2, 1, 3, 2, 1]))
    assert not in_different_units(X[:, :1])
    assert in_different_units(X * np.array([1, 1, 1000, 1, 1, 1]))
    for scale in (1e-150, 1e150, 1e300):  # units of all of them say nothing
        assert not in_different_units(scale * X / np.abs(X).max())
        wild = X / np.abs(X).max() * np.array([1, 1, 1, 1, 1, 1e-3])
        assert in_different_units(wild) == in_different_units(scale * wild)


def test_threshold_is_the_participation_ratio():
    """With m equal features among d and the others negligible the ratio is known."""
    rng = np.random.default_rng(1)
    unit = (lambda x: (x - x.mean(axis=0)) / x.std(axis=0))(rng.standard_normal((40, 20)))
    for m in range(1, 21):
        X = unit * np.where(np.arange(20) < m, 1.0, 1e-3)
        assert in_different_units(X) == ((m - 1) / 19 < paper.SAME_UNITS)


def test_common_scale_is_the_root_mean_square():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4)) * np.array([1.0, 5.0, 0.1, 2.0]) + 3.0
    scaler = paper.common_scale(Scaler.fit(X))
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(
        scaler.transform(X), centred / np.sqrt(np.mean(centred**2)), rtol=1e-12
    )
    np.testing.assert_allclose(scaler.inverse(scaler.transform(X)), X, rtol=1e-12)
    same = Scaler.fit(X, standardize=False).with_common_scale(X)
    np.testing.assert_allclose(scaler.transform(X), same.transform(X), rtol=1e-12)


def test_common_scale_with_mixed_sizes_and_constant_features():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (30, 4)) * np.array([1e150, 1.0, 0.0, 1e-300]) + [0, 0, 7.0, 0]
    scaler = paper.common_scale(Scaler.fit(X))
    scaled = scaler.transform(X)
    assert np.isfinite(scaled).all()
    np.testing.assert_allclose(np.mean(scaled**2), 1.0)
    np.testing.assert_allclose(scaled[:, 1:], 0.0, atol=1e-140)
    assert np.isfinite(scaler.inverse(scaled)).all()
    np.testing.assert_allclose(scaler.inverse(scaled)[:, 2], 7.0)
