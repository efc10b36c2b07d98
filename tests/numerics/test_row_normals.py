"""Normals that belong to a row: normal, independent, and the same for any cut."""

import numpy as np
from scipy.stats import kstest

from bsdr_models.numerics.row_normals import row_normals


def test_a_row_has_its_numbers_wherever_it_is_drawn():
    whole = row_normals(3, begin=0, n_rows=1000, n_columns=5)
    part = row_normals(3, begin=700, n_rows=100, n_columns=5)
    np.testing.assert_array_equal(part, whole[700:800])
    other = row_normals(4, begin=0, n_rows=1000, n_columns=5)
    assert not np.isin(other, whole).any()


def test_they_are_standard_normal():
    found = row_normals(3, begin=0, n_rows=20_000, n_columns=5)
    assert kstest(found.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(found.T) - np.eye(5)).max() < 0.03
    assert np.abs(np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1]) < 0.03
