"""Fits by mean field: convergence of the bound, for every kind of view and target."""

import numpy as np
import pytest

from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bm2pca.conjugate import BM2PCAProblem, fit_mean_field

N, D, R = 24, 6, 3
KINDS = ("signs", "real", "missing", "two views")


def make_task(kind):
    """Data of low rank with two outcomes; every kind of view and target."""
    rng = np.random.default_rng(31)
    X = rng.standard_normal((N, 2)) @ rng.standard_normal((2, D)) + rng.standard_normal((N, D))
    X[:, 0] += 3.0
    scores = X @ rng.standard_normal((D, 2))
    Y = np.where(scores > np.median(scores, axis=0), 1.0, -1.0)
    if kind == "missing":
        X[rng.random(X.shape) < 0.2] = np.nan
    views = (np.arange(2), np.arange(2, D)) if kind == "two views" else (None,)
    return BM2PCAProblem(
        X=X,
        Y=0.7 * Y if kind == "real" else Y,
        cost=2.0,
        epsilon=0.1 if kind == "real" else None,
        columns=views,
        n_components=R,
    )


def bound(posterior, task):
    """The bound of a state."""
    data = mean_field.make_data(task.X, task.Y, task.cost, task.epsilon, columns=task.columns)
    return sum(mean_field.bound_terms(posterior.state, data, PAPER).values())


@pytest.mark.parametrize("kind", KINDS)
def test_bound_rises_to_convergence_and_is_reported(kind):
    task = make_task(kind)
    rng = np.random.default_rng(0)
    result = fit_mean_field(task, rng=rng, max_iter=3000)
    assert result.converged
    assert np.all(np.diff(result.trace) >= -1e-9 * np.abs(result.trace[1:]))
    np.testing.assert_allclose(sum(result.terms.values()), result.trace, rtol=1e-12)
    assert result.trace[-1] == pytest.approx(bound(result.posterior, task))
