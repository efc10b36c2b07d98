"""Small classification problems, what they hold out, and derivatives by finite differences."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from bsdr_models.data.training import Training


@pytest.fixture
def problem():
    """Centred samples about class centres, labels in no order, one class of a single sample."""
    rng = np.random.default_rng(0)
    y = np.insert(rng.permutation(np.arange(17) % 2 + 1), 9, 0)  # class 0, in the middle
    centres = 2.0 * rng.standard_normal((3, 5))
    X = centres[y] + rng.standard_normal((18, 5))
    return X - X.mean(axis=0), y


def slope(function, x, step=1e-3):
    """Fourth-order differences of a scalar function of an array."""
    x = np.array(x, dtype=float)
    out = np.zeros(x.size)
    flat = x.ravel()
    for i in range(x.size):
        values = []
        for shift in (step, -step, 2 * step, -2 * step):
            moved = flat.copy()
            moved[i] += shift
            values.append(function(moved.reshape(x.shape)))
        near_up, near_down, far_up, far_down = values
        out[i] = (8 * (near_up - near_down) - (far_up - far_down)) / (12 * step)
    return out.reshape(x.shape)


def make_training(X, y, metric="unit", **options):
    """Divisions of scaled samples (N, D) and the metric, of classes (N,), -1 without a label."""
    rng = np.random.default_rng(0)
    units = np.ones(X.shape[1])
    return Training.of(X, y, int(y.max()) + 1, units, metric=metric, rng=rng, **options)


@pytest.fixture(scope="session")
def training_of():
    return make_training


@pytest.fixture
def differences():
    return slope


@pytest.fixture
def extrapolated():
    """Richardson extrapolation of the fourth-order rule, with an error of order step**6."""
    return lambda f, x: (16.0 * slope(f, x, 4e-3) - slope(f, x, 8e-3)) / 15.0


@pytest.fixture(scope="session")
def wine():
    """60 training samples, 118 others, and their classes."""
    X, y = load_wine(return_X_y=True)
    train = np.arange(len(y)) % 3 == 0
    return X[train], X[~train], y[train], y[~train]
