"""Restarts, folds and searches on a cluster, through joblib and without code of our own."""

import os

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_score

from bsdr_models import BSDROptimization
from bsdr_models.inference.parallel import n_workers, run_tasks
from bsdr_models.papers import PaperBSDRClassifier

QUICK = {"optimization__tol": 1e6, "random_state": 0}
distributed = pytest.importorskip("distributed")


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        PaperBSDRClassifier(1, optimization=BSDROptimization(n_restarts=3, max_iter=30)).set_params(
            **QUICK
        ),
    ],
    ids=["restarts"],
)
def test_tasks_on_the_cluster_end_where_they_end_here(threads_cluster, model):
    X, y = load_wine(return_X_y=True)
    here = model.fit(X, y).predict_proba(X)
    with threads_cluster.as_current(), joblib.parallel_config("dask"):
        there = model.fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(there, here)


@pytest.mark.slow
def test_cross_validation_runs_on_the_cluster(toy):
    X, y = load_wine(return_X_y=True)
    model = PaperBSDRClassifier(
        n_components=2, optimization=BSDROptimization(max_iter=30), n_jobs=1
    ).set_params(**QUICK)
    here = cross_val_score(model, X, y, cv=3)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        client.as_current(),
        joblib.parallel_config("dask"),
    ):
        there = cross_val_score(model, X, y, cv=3)
        made_by = cross_val_score(DummyClassifier(), X, y, cv=5, scoring=toy.process)
        workers = client.run(os.getpid).values()
    np.testing.assert_array_equal(there, here)
    assert set(made_by) <= set(workers)
