"""Dask and Zarr arrays: what is read, refused, summed, and predicted chunk by chunk."""

import os
import signal

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAOptimization,
    BSDRClassifier,
    DGPLVMClassifier,
    MNPClassifier,
)
from bsdr_models.bm2pca.classifier import MarginClassifier
from bsdr_models.dask_arrays import as_dask, fit_scaler_of_chunks, is_chunked, read_chunked
from bsdr_models.inference.chunks import Chunks, InMemory
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
N, P = 50, 4
pytestmark = pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, P)), rng.integers(0, 3, N)


def stored(X, folder):
    return zarr.create_array(folder / "X.zarr", data=X, chunks=(20, 3))


def in_dask(X, folder):
    return da.from_array(X, chunks=(50, 7))


def with_value(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


def test_what_is_in_chunks_is_known_by_its_type(arrays, tmp_path):
    X, _ = arrays
    assert is_chunked(da.from_array(X))
    assert is_chunked(stored(X, tmp_path))
    assert not is_chunked(X)


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


BAD = {
    "NaN": (lambda X, y: (with_value(X, (27, 2), np.nan), y), r"NaN or infinity \(column 2\)"),
    "infinity": (lambda X, y: (with_value(X, (3, 0), -np.inf), y), r"NaN or infinity \(column 0"),
    "text": (lambda X, y: (X.astype(str), y), "X is of type <U"),
    "lengths": (lambda X, y: (X, y[1:]), "inconsistent numbers of samples"),
    "missing": (lambda X, y: (X, with_value(y.astype(float), 4, np.nan)), "y"),
    "real": (lambda X, y: (X, y + 0.5), "y"),
    "one class": (lambda X, y: (X, 0 * y), "one class only"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_a_clear_error(arrays, kind):
    change, message = BAD[kind]
    X, y = change(*arrays)
    with pytest.raises(ValueError, match=message):
        BSDRClassifier().fit(da.from_array(X, chunks=(20, P)), y)


@pytest.mark.parametrize("option", [{"kernel": "rbf"}, {"views": [2, 2]}, {"inference": "hmc"}])
def test_what_needs_memory_says_so(arrays, option):
    X, y = arrays
    with pytest.raises(ValueError, match="Dask and Zarr arrays"):
        BSDRClassifier(**option).fit(da.from_array(X), y)


def test_other_estimators_are_fitted_in_memory(arrays):
    X, y = arrays
    with pytest.raises(TypeError, match="PaperBSDRClassifier is fitted in memory"):
        PaperBSDRClassifier().fit(da.from_array(X), y)


@pytest.mark.parametrize("standardize", [True, False])
def test_scaler_is_that_of_samples_in_memory(arrays, standardize):
    X, _ = arrays
    X = np.column_stack([X * [1e50, 1.0, 1e-50, 3.0] + [0.0, 5.0, 0.0, 0.0], np.ones(N)])
    found = fit_scaler_of_chunks(da.from_array(X, chunks=(20, 5)), standardize=standardize)
    expected = Scaler.fit(X, standardize=standardize)
    np.testing.assert_array_equal(found.constant, expected.constant)
    np.testing.assert_allclose(found.transform(X), expected.transform(X), rtol=1e-9, atol=1e-12)


def total(X, y, shared):
    return np.array([(X.T @ X).sum(), y @ y, shared * len(X)])


def test_sums_do_not_depend_on_the_chunks(arrays, threads_cluster):
    X, y = arrays
    expected = InMemory(X, y).sum(total, 2.0)
    for size in (1, 7, 50):
        chunked = da.from_array(X, chunks=(size, P))
        np.testing.assert_allclose(Chunks(chunked, y).sum(total, 2.0), expected)
        with threads_cluster.as_current():
            np.testing.assert_allclose(Chunks(chunked, y).sum(total, 2.0), expected)


def test_labels_may_be_in_chunks(arrays, tmp_path):
    X, y = arrays
    for given in (y, da.from_array(y, chunks=9), zarr.create_array(tmp_path / "y.zarr", data=y)):
        np.testing.assert_array_equal(read_chunked(da.from_array(X), given)[1], y)


@pytest.fixture(scope="module")
def fitted():
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4], y[y < 4]
    with pytest.warns(UserWarning, match="constant"):
        model = BSDRClassifier(3, random_state=0).fit(da.from_array(X, chunks=(200, 20)), y)
    return model, X, y


def test_fit_is_that_of_samples_in_memory(fitted):
    model, X, y = fitted
    with pytest.warns(UserWarning, match="constant"):
        memory = BSDRClassifier(3, inference="laplace", random_state=0).fit(X, y)
    assert model.log_evidence_ == pytest.approx(memory.log_evidence_, abs=1e-4)
    assert (model.predict(X) == memory.predict(X)).mean() > 0.99
    assert model.idata_["posterior"].sizes["draw"] == 1000
    assert model.summary().loc["samples", "value"].startswith(f"{len(X)}, of which {len(X)}")


def test_predictions_come_chunk_by_chunk(fitted, tmp_path):
    model, X, _ = fitted
    for method in ("predict", "predict_proba", "transform"):
        expected = getattr(model, method)(X[:100])
        lazy = getattr(model, method)(da.from_array(X[:100], chunks=(30, 64)))
        assert lazy.chunks[0] == (30, 30, 30, 10)
        assert lazy.dtype == expected.dtype
        found = getattr(model, method)(zarr.create_array(tmp_path / method, data=X[:100]))
        for each in (lazy.compute(), found):
            assert (each == expected).all() or np.allclose(each, expected)
    with pytest.raises(ValueError, match="returns several arrays"):
        model.transform(da.from_array(X), return_cov=True)


def kill_once(X, y, shared):
    """The worker of the first chunk dies, unless the file of a former death exists."""
    if X[0, 0] == shared["first"] and not os.path.exists(shared["file"]):
        open(shared["file"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return float((X.T @ X).sum())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, whose workers come and go
def test_a_killed_worker_changes_nothing(arrays, tmp_path):
    X, y = arrays
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as own,
        distributed.Client(own),
    ):
        shared = {"first": X[0, 0], "file": str(tmp_path / "died")}
        found = Chunks(da.from_array(X, chunks=(10, P)), y).sum(kill_once, shared)
    assert os.path.exists(tmp_path / "died")
    assert found == pytest.approx(float((X.T @ X).sum()))


# Classifiers that are fitted in memory, and predict chunk by chunk.
MARGINS = {"loss__C": 10.0, "loss__calibrate": False, "random_state": 0}
IN_MEMORY = {
    "BM2PCA": lambda: BM2PCAClassifier(metric_scale=10.0).set_params(**MARGINS),
    "BM2PCA, paper": lambda: PaperBM2PCAClassifier(
        2, optimization=BM2PCAOptimization(n_sweeps=5)
    ).set_params(**MARGINS),
    "D-GPLVM": lambda: DGPLVMClassifier(2, random_state=0),
    "MNP": MNPClassifier,
}


@pytest.fixture(scope="module", params=IN_MEMORY)
def in_memory(request):
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:60]
    return IN_MEMORY[request.param]().fit(X[order], y[order]), X


@pytest.mark.parametrize("place", [in_dask, stored])
def test_answers_come_by_chunks(place, in_memory, tmp_path):
    model, X = in_memory
    rows = place(X, tmp_path)
    names = ("transform", "predict", "predict_proba", "predict_log_proba", "decision_function")
    methods = [name for name in names if hasattr(model, name)]
    assert len(methods) >= 4
    for name in methods:
        answer, expected = getattr(model, name)(rows), getattr(model, name)(X)
        assert (type(answer) is np.ndarray) == (place is stored)
        assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
        if name == "predict":
            np.testing.assert_array_equal(np.asarray(answer), expected)
        else:
            np.testing.assert_allclose(np.asarray(answer), expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="12 features"):
        model.predict(rows[:, :12])


@pytest.mark.parametrize("place", [in_dask, stored])
def test_answers_of_several_arrays_are_refused(place, in_memory, tmp_path):
    model, X = in_memory
    if not isinstance(model, MarginClassifier):
        return
    with pytest.raises(ValueError, match="one chunk at a time"):
        model.decision_function(place(X, tmp_path), return_std=True)
