"""Validation of numeric arguments."""

import numpy as np
import pytest

from bsdr_models.options import check_number


@pytest.mark.parametrize("value", [1, 0.3, np.float32(2.0), np.int64(3)])
def test_positive_numbers(value):
    found = check_number("weight", value)
    assert found == float(value)
    assert isinstance(found, float)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, -np.inf, True, None, "1", [1.0], 1j])
@pytest.mark.parametrize("infinite", [True, False])
def test_what_is_no_positive_number(value, infinite):
    with pytest.raises(ValueError, match=r"weight must be a positive (finite )?number, got"):
        check_number("weight", value, infinite=infinite)


def test_infinity_only_where_it_is_meant():
    assert check_number("weight", np.inf, infinite=True) == np.inf
    with pytest.raises(ValueError, match="weight must be a positive finite number, got inf"):
        check_number("weight", np.inf)


@pytest.mark.parametrize(
    ("sign", "allowed", "refused"),
    [("positive", 2.0, 0.0), ("non-negative", 0.0, -1.0), ("any", -1.0, np.inf)],
)
def test_signs(sign, allowed, refused):
    assert check_number("weight", allowed, sign=sign) == allowed
    with pytest.raises(ValueError, match="finite number, got"):
        check_number("weight", refused, sign=sign)
