"""Files of every release are read by this one; their maker is beside them."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import bsdr_models
from bsdr_models.persistence import codec
from bsdr_models.persistence.classes import ESTIMATORS

HERE = Path(__file__).parent
MAKER = runpy.run_path(str(HERE / "make_fixtures.py"))
FILES = sorted((HERE / "files").glob("schema_*/*.nc"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_of_a_release_says_what_it_said_then(path):
    expected = json.loads((path.parent / "expected.json").read_text())
    got = MAKER["answers"](bsdr_models.load(path), np.array(expected["rows"]))
    assert got.keys() == expected[path.stem].keys()
    for name, want in expected[path.stem].items():
        np.testing.assert_allclose(got[name], want, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("schema", range(1, codec.SCHEMA + 1))
def test_there_are_files_of_every_schema_and_estimator(schema):
    files = [path for path in FILES if path.parent.name == f"schema_{schema}"]
    assert {type(bsdr_models.load(path)).__name__ for path in files} == set(ESTIMATORS)
    assert all(path.stat().st_size < 100_000 for path in files)


def test_stored_classes_hold_what_the_schema_says():
    """A change here is a change of files: see what the maker says about it."""
    recorded = json.loads((MAKER["FOLDER"] / "classes.json").read_text())
    assert MAKER["stored_fields"]() == recorded
