"""Dask arrays: what is read, refused, summed, and predicted chunk by chunk."""

import os
import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    HingeLoss,
    Sampling,
)
from bsdr_models.large.chunks import Chunks, InMemory
from bsdr_models.large.dask_arrays import as_dask, fit_scaler_of_chunks, read_chunked
from bsdr_models.numerics.scaling import Scaler

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
N, P = 50, 4
pytestmark = pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, P)), rng.integers(0, 3, N)


@pytest.mark.parametrize("chunks", [(20, 3), (50, 4), ((1, 49), (4,))])
def test_chunks_have_all_features(arrays, chunks):
    X, _ = arrays
    found = as_dask(da.from_array(X, chunks=chunks))
    assert found.chunks[1] == (P,)
    np.testing.assert_array_equal(found.compute(), X)


def test_unknown_and_empty_chunks_are_read(arrays):
    X, _ = arrays
    unknown = da.from_array(X, chunks=(20, P))
    unknown = unknown[unknown[:, 0] > -np.inf]
    assert as_dask(unknown).chunks[0] == (20, 20, 10)
    gap = da.concatenate([da.from_array(X[:5]), da.from_array(X[:0]), da.from_array(X[5:])])
    assert 0 not in as_dask(gap).chunks[0]


def test_what_is_no_matrix_is_refused(arrays):
    X, y = arrays
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        as_dask(da.from_array(y))
    with pytest.raises(ValueError, match="no samples"):
        as_dask(da.from_array(X)[:0])


@pytest.mark.parametrize(
    "option", [{"kernel": "rbf"}, {"views": {"a": [0, 1], "b": [2, 3]}}, {"inference": "hmc"}]
)
def test_what_needs_memory_says_so(arrays, option):
    X, y = arrays
    with pytest.raises(ValueError, match="Dask arrays"):
        BSDRClassifier(**option).fit(da.from_array(X), y)


def test_groups_and_label_sets_need_memory(arrays):
    X, y = arrays
    with pytest.raises(ValueError, match="groups are not for Dask arrays"):
        BSDRClassifier().fit(da.from_array(X), y, groups=np.arange(N) // 5)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        BSDRClassifier().fit(da.from_array(X), np.eye(3, dtype=int)[y])


@pytest.mark.parametrize("standardize", [True, False])
def test_scaler_is_that_of_samples_in_memory(arrays, standardize):
    X, _ = arrays
    X = np.column_stack([X * [1e50, 1.0, 1e-50, 3.0] + [0.0, 5.0, 0.0, 0.0], np.ones(N)])
    found = fit_scaler_of_chunks(da.from_array(X, chunks=(20, 5)), standardize=standardize)
    expected = Scaler.fit(X, standardize=standardize)
    np.testing.assert_array_equal(found.constant, expected.constant)
    np.testing.assert_allclose(found.transform(X), expected.transform(X), rtol=1e-9, atol=1e-12)


def total(X, y, shared, weights=None):
    return np.array([(X.T @ X).sum(), y @ y, shared * len(X)])


@pytest.mark.slow
def test_sums_do_not_depend_on_the_chunks(arrays, threads_cluster):
    X, y = arrays
    expected = InMemory(X, y).sum(total, 2.0)
    for size in (1, 7, 50):
        chunked = da.from_array(X, chunks=(size, P))
        np.testing.assert_allclose(Chunks(chunked, y).sum(total, 2.0), expected)
        with threads_cluster.as_current():
            np.testing.assert_allclose(Chunks(chunked, y).sum(total, 2.0), expected)


@pytest.mark.parametrize("chosen", [[0, 5, 19, 20, 49], [41], range(N)])
def test_samples_are_selected_from_chunks(arrays, chosen):
    X, y = arrays
    chosen = np.array(chosen)
    for samples in (InMemory(X, y), Chunks(da.from_array(X, chunks=(20, P)), y)):
        found = samples.select(chosen)
        np.testing.assert_array_equal(found.X, X[chosen])
        np.testing.assert_array_equal(found.y, y[chosen])


def test_labels_may_be_in_chunks(arrays):
    X, y = arrays
    for given in (y, da.from_array(y, chunks=9)):
        np.testing.assert_array_equal(read_chunked(da.from_array(X), given)[1], y)


@pytest.fixture(scope="module")
def fitted():
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4][:300], y[y < 4][:300]
    with pytest.warns(UserWarning, match="constant"):
        model = BSDRClassifier(3, random_state=0).fit(da.from_array(X, chunks=(170, 20)), y)
    return model, X, y


def test_fit_is_that_of_samples_in_memory(fitted):
    model, X, y = fitted
    with pytest.warns(UserWarning, match="constant"):
        memory = BSDRClassifier(3, inference="laplace", random_state=0).fit(X, y)
    assert (model.predict(X) == memory.predict(X)).mean() > 0.99
    assert model.idata_["posterior"].sizes["draw"] == 1000
    assert model.summary().loc["samples", "value"].startswith("300, of which 300")
    assert model.classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_worker_that_is_killed_changes_no_bit(monkeypatch):
    """Its chunks are computed again by the other worker."""
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    y = rng.integers(3, size=4000)
    X = da.from_array(rng.standard_normal((4000, 8)) + np.eye(3, 8)[y], chunks=(500, 8))
    alone = BSDRClassifier(sampling=Sampling(draws=64), random_state=0).fit(X, y)
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        victims = list(client.run(os.getpid).values())
        original = Chunks.sum
        n_passes = 0

        def killing(self, function, shared):
            nonlocal n_passes
            n_passes += 1
            if n_passes == 3:
                os.kill(victims[0], signal.SIGKILL)
            return original(self, function, shared)

        monkeypatch.setattr(Chunks, "sum", killing)
        shared = BSDRClassifier(sampling=Sampling(draws=64), random_state=0).fit(X, y)
        assert n_passes > 3
        assert victims[0] not in client.run(os.getpid).values()
    ours, theirs = (model.idata_["posterior"]["projection"] for model in (shared, alone))
    np.testing.assert_array_equal(ours, theirs)


def test_predictions_come_chunk_by_chunk(fitted):
    model, X, _ = fitted
    for method in ("predict", "predict_proba", "transform"):
        expected = getattr(model, method)(X[:100])
        lazy = getattr(model, method)(da.from_array(X[:100], chunks=(30, 64)))
        assert lazy.chunks[0] == (30, 30, 30, 10)
        assert lazy.dtype == expected.dtype
        found = lazy.compute()
        assert (found == expected).all() or np.allclose(found, expected)
    with pytest.raises(ValueError, match="returns several arrays"):
        model.transform(da.from_array(X), return_cov=True)


OTHERS = {
    "BM2PCA": BM2PCAClassifier(loss=HingeLoss(C=10.0, calibrate=False)),
    "D-GPLVM": DGPLVMClassifier(2, random_state=0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_models_fitted_in_memory_predict_by_chunks(name):
    X, y = load_wine(return_X_y=True)
    model = OTHERS[name].fit(X[::3], y[::3])
    for method in ("predict_log_proba", "decision_function", "transform"):
        found = getattr(model, method)(da.from_array(X, chunks=(50, 7))).compute()
        np.testing.assert_allclose(found, getattr(model, method)(X), rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="12 features"):
        model.predict(da.from_array(X[:, :12]))


@pytest.mark.parametrize("name", OTHERS)
def test_predictions_of_two_fits_that_are_computed_together_are_their_own(name):
    X, y = load_wine(return_X_y=True)
    fits = [clone(OTHERS[name]).fit(X[::3], classes[::3]) for classes in (y, 2 - y)]
    blocks = da.from_array(X, chunks=(50, 13))
    together = dask.compute(*(model.predict_proba(blocks) for model in fits))
    for model, found in zip(fits, together, strict=True):
        np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-8, atol=1e-10)
