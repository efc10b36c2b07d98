"""Clusters of one machine, with a toy model that their processes can import."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def toy():
    """The module; in the path, from which processes that begin later take it."""
    sys.path.insert(0, str(Path(__file__).parent))
    yield importlib.import_module("toy_rows")
    sys.path.remove(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def threads_cluster(toy):
    """A client of two workers in this process."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
