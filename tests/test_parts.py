"""Parts for models of others, against their definitions."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from sklearn.datasets import load_wine
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import scale

from bsdr_models import SupervisedWhitening, parts
from tests.toys import FAST, choice

ETA = np.array([[[0.3, -1.2, 0.8], [4.0, 0.0, -2.0]], [[0.0, 0.0, 0.0], [-1.0, 2.5, 2.0]]])


def test_multinomial_probit():
    """A batch of linear predictors: probabilities, gradient, and frequencies of draws."""
    lapse = 0.1
    probability = (1.0 - lapse) * choice(ETA) + lapse / 3.0
    steps = 1e-5 * np.eye(12).reshape(12, 2, 2, 3)
    points = np.concatenate([ETA[None], ETA + steps, ETA - steps])
    eta = pt.dtensor4(shape=points.shape)
    with pm.Model():
        label = parts.multinomial_probit("y", eta, n_classes=3, lapse=lapse)
    y = np.array([[0, 1], [2, 2]])
    log_p = pm.logp(label, np.tile(y, (len(points), 1, 1)))
    compiled = pytensor.function([eta], [log_p, pytensor.grad(log_p.sum(), eta)], **FAST)
    found, gradient = compiled(points)
    expected = np.take_along_axis(probability, y[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(found[0], np.log(expected), atol=1e-6)
    slope = (found[1:13] - found[13:]).sum(axis=(1, 2)) / 2e-5
    np.testing.assert_allclose(gradient[0].ravel(), slope, atol=1e-6)
    with pm.Model():
        many = pt.as_tensor(np.tile(ETA, (4000, 1, 1, 1)))
        label = parts.multinomial_probit("y", many, n_classes=3, lapse=lapse)
    drawn = pm.draw(label, random_seed=1, **FAST)
    for index in np.ndindex(2, 2):
        counts = np.bincount(drawn[:, *index], minlength=3)
        assert stats.chisquare(counts, 4000 * probability[index]).pvalue > 1e-4


@pytest.mark.parametrize("labelled", [False, True])
def test_covariance_of_a_metric_projection(labelled):
    """The projected samples have a mean variance of one, and those of the whitened features."""
    wine = load_wine()
    X, y = scale(wine.data[::6]), wine.target[::6] if labelled else None
    root = parts.metric_projection(pt.as_tensor(np.eye(13)), X, y).eval(**FAST)
    inner = X @ root @ root.T @ X.T
    np.testing.assert_allclose(np.trace(inner) / len(X), 1.0)
    if labelled:
        whitened = SupervisedWhitening().fit_transform(X, y)
        expected = whitened @ whitened.T
        np.testing.assert_allclose(inner / inner.max(), expected / expected.max(), atol=1e-8)


def test_covariance_of_a_back_constraint():
    X = scale(load_wine().data)[::6]
    root = parts.back_constraint(pt.as_tensor(np.eye(len(X))), X, width=1.5, noise=0.1).eval(**FAST)
    square = pairwise_distances(X) ** 2
    median = np.median(square[np.triu_indices(len(X), 1)])
    expected = np.exp(-1.5 * square / (2.0 * median)) + 0.1 * np.eye(len(X))
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-10)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'probit'"):
        parts.probit  # noqa: B018
