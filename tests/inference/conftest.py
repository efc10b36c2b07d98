"""A toy model that the processes of a cluster can import."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def toy():
    """The module; in the path, from which processes that begin later take it."""
    sys.path.insert(0, str(Path(__file__).parent))
    yield importlib.import_module("toy_blocks")
    sys.path.remove(str(Path(__file__).parent))
