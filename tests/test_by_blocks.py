"""Predictions in blocks of classifiers that are fitted in memory."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAOptimization,
    DGPLVMClassifier,
)
from bsdr_models.bm2pca.classifier import MarginClassifier
from bsdr_models.papers import PaperBM2PCAClassifier

MARGINS = {"loss__C": 10.0, "loss__calibrate": False, "random_state": 0}
MODELS = {
    "BM2PCA": lambda: BM2PCAClassifier(metric_scale=10.0).set_params(**MARGINS),
    "BM2PCA, paper": lambda: PaperBM2PCAClassifier(
        2, optimization=BM2PCAOptimization(n_sweeps=5)
    ).set_params(**MARGINS),
    "D-GPLVM": lambda: DGPLVMClassifier(2, random_state=0),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:60]
    return MODELS[request.param]().fit(X[order], y[order]), X


def in_dask(X, folder):
    return pytest.importorskip("dask.array").from_array(X, chunks=(50, 7))


def in_zarr(X, folder):
    zarr = pytest.importorskip("zarr")
    return zarr.create_array(folder / "X.zarr", data=X, chunks=(40, 13))


@pytest.mark.parametrize("place", [in_dask, in_zarr])
def test_answers_come_by_chunks(place, fitted, tmp_path):
    model, X = fitted
    rows = place(X, tmp_path)
    names = ("transform", "predict", "predict_proba", "predict_log_proba", "decision_function")
    methods = [name for name in names if hasattr(model, name)]
    assert len(methods) >= 4
    for name in methods:
        answer, expected = getattr(model, name)(rows), getattr(model, name)(X)
        assert (type(answer) is np.ndarray) == (place is in_zarr)
        assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
        if name == "predict":
            np.testing.assert_array_equal(np.asarray(answer), expected)
        else:
            np.testing.assert_allclose(np.asarray(answer), expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="12 features"):
        model.predict(rows[:, :12])


@pytest.mark.parametrize("place", [in_dask, in_zarr])
def test_answers_of_several_arrays_are_refused(place, fitted, tmp_path):
    model, X = fitted
    if not isinstance(model, MarginClassifier):
        return
    with pytest.raises(ValueError, match="one chunk at a time"):
        model.decision_function(place(X, tmp_path), return_std=True)
