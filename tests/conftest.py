"""Fixtures: samples, short runs, and Dask workers."""

import numpy as np
import pytest
from sklearn.datasets import load_wine


@pytest.fixture(scope="session")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["a", "b", "c"])[y[order]]


# Draws of a chain, rounds of adaptation, trajectories of a fold and at a node of the path.
SHORT_RUNS = {
    "fit._DRAWS": 64,
    "hmc._ROUNDS": 3,
    "hmc._PER_NODE": 1,
    "held_out.N_FOLDS": 2,
    "held_out._N_WARM_UP": 2,
    "held_out._N_KEPT": 2,
}


@pytest.fixture(scope="session")
def short_run_settings():
    """Names of constants and their values in short runs."""
    return {f"bsdr_models.bsdr.{name}": number for name, number in SHORT_RUNS.items()}


@pytest.fixture
def short_runs(monkeypatch, short_run_settings):
    """The default of BSDR, cut short in this process (workers know nothing of it)."""
    for name, number in short_run_settings.items():
        monkeypatch.setattr(name, number)


@pytest.fixture(scope="module", autouse=True)
def coarse_grid():
    """Maps of trees have few grid points; each takes a prediction per draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bsdr_models.latent_grid.RESOLUTION", 9)
        yield


@pytest.fixture(scope="module")
def threads_cluster():
    """A client of two workers in this process, which leaves Dask's settings as they were.

    A worker that needs a client makes one, and that takes the scheduler of the moment for the
    setting to go back to when it closes.
    """
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set(scheduler=dask.config.get("scheduler", None)),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def pytest_addoption(parser):
    parser.addoption(
        "--renew-pictures", action="store_true", help="store the images of tests/plots/test_images"
    )
