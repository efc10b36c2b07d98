"""Validation of arguments."""

import numpy as np
import pytest

from bsdr_models.options import COUNT, TOLERANCE, StrOptions, check_number, check_parameters


@pytest.mark.parametrize("value", [1, 0.3, np.float32(2.0), np.int64(3)])
def test_positive_numbers(value):
    check_number("weight", value)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, True, None, "1", [1.0], 1j])
def test_what_is_no_positive_number(value):
    with pytest.raises(ValueError, match=r"weight must be a float in the range \(0\.0, inf\), got"):
        check_number("weight", value)


def test_a_parameter_is_refused_with_all_that_is_allowed():
    allowed = {"tol": [TOLERANCE, StrOptions({"cv", "auto"}), None], "n": [COUNT], "f": [callable]}
    for value in (0, 1e-3, np.float32(2.0), "cv", None):
        check_parameters(allowed, {"tol": value, "n": np.int64(1), "f": len, "other": "x"}, "Model")
    message = (
        r"The 'tol' parameter of Model must be a float in the range \[0\.0, inf\), a str among "
        r"'auto', 'cv' or None\. Got 'no' instead\."
    )
    with pytest.raises(ValueError, match=message):
        check_parameters(allowed, {"tol": "no"}, "Model")
    for name, value in (("tol", np.inf), ("tol", np.nan), ("n", True), ("n", 1.0), ("f", 3)):
        with pytest.raises(ValueError, match=f"'{name}' parameter"):
            check_parameters(allowed, {name: value}, "Model")
