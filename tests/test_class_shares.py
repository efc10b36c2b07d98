"""Class probabilities for other class shares are those of Bayes' rule."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from bsdr_models import shift_class_shares

OLD = np.array([0.5, 0.3, 0.2])
NEW = np.array([0.0, 0.1, 0.9])


def posterior(shares):
    """Of normal classes, at thirty places."""
    joint = shares * norm(np.arange(3.0)).pdf(np.linspace(-3.0, 5.0, 30)[:, None])
    return joint / joint.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
def test_they_are_those_of_the_population(kind):
    found = shift_class_shares(posterior(OLD), old=kind(OLD), new=kind(NEW))
    assert_allclose(found, posterior(NEW))
    assert_allclose(shift_class_shares(posterior(OLD), OLD, OLD), posterior(OLD))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"old": [0.5, 0.5]}, "old has the shape"),
        ({"new": [[0.2, 0.3, 0.5]]}, "new has the shape"),
        ({"new": [2, 3, 5]}, "new must be shares of sum one"),
        ({"new": [-0.2, 0.7, 0.5]}, "new must be shares"),
        ({"old": [0.0, 0.5, 0.5]}, "old has a class without samples"),
        ({"old": [np.nan, 0.5, 0.5]}, "NaN"),
        ({"probability": [[0.2, 0.2, 0.2]]}, "probabilities of sample 0"),
        ({"probability": [[1.0, 0.0, 0.0]]}, "sample 0 is certainly of a class"),
    ],
)
def test_what_is_refused(changed, message):
    given = {"probability": posterior(OLD), "old": OLD, "new": NEW} | changed
    with pytest.raises(ValueError, match=message):
        shift_class_shares(**given)
