"""Covariances of samples in each form against dense matrices, one sample at a time."""

import numpy as np
import pytest

from bsdr_models.bm2pca.paper.sample_covariances import (
    AxisCovariances,
    StackedCovariances,
    shared_axes,
    stacked,
)

P, N, R, K = 2, 6, 3, 4


def spd(rng, *shape, size=R):
    root = rng.standard_normal((*shape, size, size + 1))
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(size)


def axis_form(rng):
    """Sample covariances in axes, and the same by dense inverses."""
    base, form, weights = spd(rng, P), spd(rng, P), rng.gamma(1.0, size=(P, N))
    weights[0, 2] = 0.0
    precision = base[:, None] + weights[..., None, None] * form[:, None]
    return shared_axes(base, form, weights), np.linalg.inv(precision)


def stacked_form(rng):
    precision = spd(rng, P, N)
    return stacked(precision), np.linalg.inv(precision)


FORMS = {"axes": (axis_form, AxisCovariances), "stacked": (stacked_form, StackedCovariances)}


def assert_is(found, dense):
    """Everything that is asked of covariances, from the dense ones."""
    np.testing.assert_allclose(found.dense(), dense, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.total(), sum(dense[:, n] for n in range(N)), rtol=1e-9)
    log_det = [sum(np.linalg.slogdet(S)[1] for S in rows) for rows in dense]
    np.testing.assert_allclose(found.log_det, log_det, rtol=1e-10)
    rng = np.random.default_rng(1)
    weights, forms = rng.standard_normal((P, N, K)), spd(rng, P, K)
    weighted, quadratic = found.weighted(weights), found.quadratic(forms)
    assert weighted.shape == (P, K, R, R)
    assert quadratic.shape == (P, N, K)
    for p, k in np.ndindex(P, K):
        expected = sum(weights[p, n, k] * dense[p, n] for n in range(N))
        np.testing.assert_allclose(weighted[p, k], expected, rtol=1e-9, atol=1e-10)
        expected = [np.trace(forms[p, k] @ S) for S in dense[p]]
        np.testing.assert_allclose(quadratic[p, :, k], expected, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_every_question_has_the_dense_answer(form):
    make, kind = FORMS[form]
    found, dense = make(np.random.default_rng(0))
    assert isinstance(found, kind)
    assert_is(found, dense)


def test_axes_hold_forms_of_low_rank_and_weights_of_every_size():
    rng = np.random.default_rng(3)
    vector = rng.standard_normal(R)
    base, form = spd(rng, 1), np.outer(vector, vector)[None]
    weights = np.array([[0.0, 1e-12, 1.0, 1e4, 1e8]])
    found = shared_axes(base, form, weights)
    inverse = np.linalg.inv(base[0])
    along = inverse @ vector
    for w, S in zip(weights[0], found.dense()[0], strict=True):
        expected = inverse - np.outer(along, along) * w / (1.0 + w * vector @ along)
        np.testing.assert_allclose(S, expected, atol=1e-7)  # condition 1e9
    sizes = np.log1p(weights[0] * (vector @ along)).sum()
    expected = -5 * np.linalg.slogdet(base[0])[1] - sizes
    np.testing.assert_allclose(found.log_det, expected, rtol=1e-8)


def test_a_matrix_that_is_no_precision_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="latent precision"):
        stacked(-np.ones((1, 1, 1, 1)))
    with pytest.raises(np.linalg.LinAlgError, match="latent precision"):
        shared_axes(-np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 2)))
