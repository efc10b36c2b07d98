"""Hyper-parameters: densities against SciPy, and validation."""

import math
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from bsdr_models import DGPLVMPriors
from bsdr_models.dgplvm.settings import BOX, LogNormal


@pytest.mark.parametrize(("median", "log_sd"), [(1.0, 1.0), (0.3, 0.15), (20.0, 3.0)])
@pytest.mark.parametrize("log_value", [-3.0, 0.0, 0.7, 5.0])
def test_density_of_the_logarithm(median, log_sd, log_value):
    prior = LogNormal(median, log_sd)
    value, slope = prior.negative_log_density(log_value)
    expected = stats.norm(math.log(median), log_sd)
    np.testing.assert_allclose(value, -expected.logpdf(log_value), rtol=1e-12)
    h = 1e-3
    at = [-expected.logpdf(log_value + k * h) for k in (-2, -1, 1, 2)]
    difference = (8.0 * (at[2] - at[1]) - (at[3] - at[0])) / (12.0 * h)
    np.testing.assert_allclose(slope, difference, rtol=1e-8, atol=1e-8)


def test_median_and_bounds():
    prior = LogNormal(0.3, 0.15)
    low, high = prior.bounds
    assert prior.log_median == math.log(0.3)
    np.testing.assert_allclose(0.5 * (low + high), prior.log_median)
    np.testing.assert_allclose(
        stats.lognorm(s=0.15, scale=0.3).median(), math.exp(prior.log_median)
    )
    # A draw is outside with probability 6e-7.
    np.testing.assert_allclose((high - low) / 2.0, BOX * 0.15)
    assert prior.negative_log_density(prior.log_median)[1] == 0.0


@pytest.mark.parametrize("value", [0.3, (0.3, 0.1), None, "narrow"])
def test_other_types_than_log_normal_raise(value):
    names = [field.name for field in fields(DGPLVMPriors) if field.type is LogNormal]
    assert len(names) == 6
    for name in names:
        with pytest.raises(ValueError, match=f"{name} must be a LogNormal"):
            DGPLVMPriors(**{name: value})
