"""No D x D x R array in a fit, no N x N array in prediction."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.bsdr.posterior import Coordinates
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem, make_contrasts
from bsdr_models.large import laplace
from bsdr_models.large.dask_arrays import fit_scaler_of_chunks
from bsdr_models.large.laplace import Response
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import Optimization
from bsdr_models.papers.bsdr import mean_field as mf
from bsdr_models.papers.bsdr.mean_field import make_data
from bsdr_models.papers.bsdr.priors import Priors

FLOAT = 8


def peak(work):
    """Peak memory of a call in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(160, 150), (75, 600)])
@pytest.mark.parametrize("kind", ["entrywise", "columnwise", "rowwise"])
def test_memory_of_a_fit_is_that_of_a_few_matrices_for_any_number_of_components(kind, shape):
    rng, r = np.random.default_rng(0), 24
    X, y = rng.standard_normal(shape), rng.permutation(np.arange(shape[0]) % 3)

    def fit():
        data, priors = make_data(X, y, n_labels=3, projection_prior=kind), Priors()
        state = mf.init(data, replace(priors, projection_prior=kind), n_components=r, rng=rng)
        state, _ = mf.step(state, data, priors)
        mf.step(state, data, priors)

    fit()  # compiles
    n, d = shape
    limit = FLOAT * (20 * r * (n + d) + 6 * n * d)
    one_matrix_for_each_component = FLOAT * r * min(n, d) * d
    assert limit < 0.8 * one_matrix_for_each_component
    assert peak(fit) < limit


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_memory_of_prediction_is_linear_in_the_number_of_samples(monkeypatch):
    monkeypatch.setattr("bsdr_models.papers.bsdr.draws._BLOCK", 1 << 16)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 4))
    model = PaperBSDRClassifier(
        2,
        priors=Priors(latent_scale=0.5),
        optimization=Optimization(max_iter=20),
        random_state=0,
    )
    model.fit(X, (X[:, 0] > 0.0).astype(int))
    X_new = rng.standard_normal((3000, 4))
    model.predict_proba(X_new[:10])  # compiles
    assert peak(lambda: model.predict_proba(X_new)) < FLOAT * len(X_new) ** 2 / 8
    assert peak(lambda: model.transform(X_new)) < FLOAT * len(X_new) ** 2 / 8


def test_memory_of_coordinates_does_not_grow_with_samples_times_draws():
    rng, n, d, k, s = np.random.default_rng(2), 50_000, 6, 4, 100
    X = rng.standard_normal((n, d))
    problem = BSDRProblem(
        X=X / np.sqrt(d),
        y=rng.integers(k, size=n),
        n_labels=k,
        target="multiclass",
        priors=HierarchicalPriors(),
    )
    draws = problem.parameters(rng.standard_normal((s, problem.n_parameters)), rng=rng)
    limit = FLOAT * n * (2 * d + k)
    assert limit < 0.1 * FLOAT * s * n * (k - 1)  # of the latent coordinates under all draws
    assert peak(lambda: Coordinates.learn(problem.X, problem.y, problem.target, draws)) < limit


@pytest.mark.parametrize("name", ["_sum_derivatives", "_sum_log_likelihood"])
def test_memory_of_a_sum_is_less_than_a_copy_of_the_chunk(name):
    """That of twice the samples is larger by less than half of a copy of the further ones."""
    rng, n, d, k = np.random.default_rng(3), 2 * laplace._CHUNK, 20, 3
    X, y = rng.standard_normal((2 * n, d)), rng.integers(k, size=2 * n)
    response = Response(
        target="multiclass",
        contrasts=make_contrasts(k, "multiclass"),
        priors=HierarchicalPriors(),
        scaler=Scaler.fit(X),
    )
    at = rng.standard_normal((d + 1, k - 1))
    shared = response, at if name == "_sum_derivatives" else np.stack([at, -at])
    work = getattr(laplace, name)
    work(X[:n], y[:n], shared)  # compiles
    one, two = (peak(lambda m=m: work(X[:m], y[:m], shared)) for m in (n, 2 * n))
    assert two - one < 0.5 * FLOAT * n * d


def test_memory_of_scaling_is_less_than_a_copy_of_the_chunk():
    """That of twice the samples is larger by less than half of a copy of the further ones."""
    da = pytest.importorskip("dask.array")
    n, d = 8000, 50
    X = np.random.default_rng(4).standard_normal((2 * n, d)).astype(np.float32)
    chunks = [da.from_array(X[:m], chunks=(m, d)) for m in (n, n, 2 * n)]
    _, one, two = (peak(lambda c=c: fit_scaler_of_chunks(c, standardize=True)) for c in chunks)
    assert two - one < 0.5 * FLOAT * n * d
