"""Restarts, folds and searches on a cluster, through joblib and without code of our own."""

import os

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_wine

from bsdr_models import BSDROptimization
from bsdr_models.inference.parallel import n_workers, run_tasks
from bsdr_models.papers import PaperBSDRClassifier

pytest.importorskip("distributed")


@pytest.fixture
def on_dask(threads_cluster):
    with threads_cluster.as_current(), joblib.parallel_config("dask"):
        yield


def test_parallel_run_on_the_cluster(on_dask):
    done = []
    outcome = run_tasks(os.path.basename, ["a/0", "a/1", "a/2"], on_done=done.append)
    assert n_workers(None, 3) == 2
    assert outcome.results == {0: "0", 1: "1", 2: "2"}
    assert sorted(done) == ["0", "1", "2"]


def test_restarts_on_the_cluster_end_where_they_end_here(threads_cluster):
    X, y = load_wine(return_X_y=True)
    options = BSDROptimization(n_restarts=3, max_iter=30, tol=1e6)
    model = PaperBSDRClassifier(1, optimization=options, random_state=0)
    here = model.fit(X, y).predict_proba(X)
    with threads_cluster.as_current(), joblib.parallel_config("dask"):
        there = model.fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(there, here)
