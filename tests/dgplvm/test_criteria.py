"""The criteria against sums over samples, their gradients and errors."""

import numpy as np
import pytest

from bsdr_models.dgplvm.problem import make_criterion
from tests.toys import scatters

# Unsorted: class 3 has no sample, class 1 has one, two samples have no label.
labels = np.array([2, 0, 4, 0, 2, -1, 2, 0, 4, 2, -1, 0, 2, 0, 1, 4, 4, 0, 2])
K = 5

# Largest tested number of components.
WIDTH = {"trace_ratio": 3, "inverse_trace": 5, "total": 5}

every_criterion = pytest.mark.parametrize("name", WIDTH)


def rng_of(*key):
    return np.random.default_rng([41, *key])


def make(name, y=labels):
    return make_criterion(name, y)


def make_latent(r, y=labels, seed=0):
    """Slightly separated classes, with different scales, far from the origin."""
    rng = rng_of(1, seed)
    X = rng.standard_normal((len(y), r)) + 2.0 * rng.standard_normal((K + 1, r))[y]
    return X * np.geomspace(0.1, 10.0, r) + 3.0


def ratio(numerator, denominator):
    return np.trace(np.linalg.solve(denominator, numerator))


def test_values_are_traces_of_scatter_matrices():
    X = make_latent(2)
    S_w, S_b = scatters(X[labels >= 0], labels[labels >= 0])
    assert make("trace_ratio")(X)[0] == pytest.approx(ratio(S_w, S_b), rel=1e-11)
    assert make("inverse_trace")(X)[0] == pytest.approx(1.0 / ratio(S_b, S_w), rel=1e-11)
    assert make("total")(X)[0] == pytest.approx(ratio(S_w, S_w + S_b), rel=1e-11)


# ------------------------------------------------------------------------- gradient, invariance


@every_criterion
def test_invariant_to_affine_transformations(name):
    criterion = make(name)
    r = WIDTH[name]
    X = make_latent(r)
    rng = rng_of(8)
    Q = np.eye(r) + 0.5 * rng.standard_normal((r, r))
    b = 5.0 * rng.standard_normal(r)
    value, gradient = criterion(X)
    other, moved = criterion(X @ Q + b)
    assert other == pytest.approx(value, rel=1e-9)
    # dJ / dX = (dJ / d(XQ)) Q'
    np.testing.assert_allclose(moved @ Q.T, gradient, atol=1e-8 * np.abs(gradient).max())
    for c in (1e-150, 1e-6, 1e6, 1e150):
        assert criterion(c * X)[0] == pytest.approx(value, rel=1e-9)
    # J(X + e (X Q + b)) = J(X) to first order, for every Q and b.
    assert np.abs(X.T @ gradient).max() < 1e-9 * np.abs(X).max() * np.abs(gradient).sum()
    assert np.abs(gradient.sum(axis=0)).max() < 1e-10 * np.abs(gradient).sum()


@every_criterion
def test_invariant_to_unlabelled_samples_and_class_names(name):
    X = make_latent(WIDTH[name])
    value, gradient = make_criterion(name, labels)(X)
    other = X.copy()
    other[labels < 0] = 1e5
    known = labels >= 0
    renamed = np.array([7, 3, 0, 6, 1])[labels[known]]
    alone = make_criterion(name, renamed)(X[known])
    assert make(name)(other)[0] == pytest.approx(value, rel=1e-12)
    assert alone[0] == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(
        alone[1], gradient[known], rtol=1e-8, atol=1e-10 * np.abs(gradient).max()
    )


@every_criterion
def test_collapsed_classes_have_value_and_gradient_zero(name):
    X = rng_of(10).standard_normal((K, 3))[labels]
    value, gradient = make(name)(X)
    assert 0.0 <= value < 1e-25
    assert np.abs(gradient).max() < 1e-12
    singles = make(name, np.arange(6))
    value, gradient = singles(rng_of(11).standard_normal((6, 3)))
    assert value == 0.0
    assert not gradient.any()


def test_nearly_collapsed_classes_keep_precision():
    """J is quadratic in the size of the classes, far below the rounding error of 1."""
    centres, noise = (
        rng_of(12).standard_normal((K, 2)),
        rng_of(13).standard_normal((len(labels), 2)),
    )
    small, smaller = (make("trace_ratio")(centres[labels] + e * noise)[0] for e in (1e-9, 1e-10))
    assert small < 1e-15
    assert small / smaller == pytest.approx(100.0, rel=1e-3)


# ------------------------------------------------------------------------------------ the errors


@every_criterion
def test_one_class_raises(name):
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        make_criterion(name, np.array([1, 1, -1, 1]))


@every_criterion
def test_singular_total_scatter_raises(name):
    X = make_latent(3)
    X[:, 2] = X[:, 0] - 2.0 * X[:, 1]
    with pytest.raises(np.linalg.LinAlgError, match="total scatter"):
        make(name)(X)
    with pytest.raises(np.linalg.LinAlgError, match="total scatter"):
        make(name)(np.ones((len(labels), 2)))


def test_singular_between_class_scatter_raises():
    X = make_latent(2)
    for c in np.unique(labels):
        X[labels == c, 1] -= X[labels == c, 1].mean()
    with pytest.raises(np.linalg.LinAlgError, match="between-class scatter"):
        make("trace_ratio")(X)
    assert make("total")(X)[0] > 1.0
