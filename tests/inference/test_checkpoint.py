"""Searches that continue where they were stopped."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.inference.checkpoint import POINTER, SavedPoint
from bsdr_models.inference.sample_blocks import Block, InProcess

N = 60


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, 1))


def in_process(X, size=25):
    return InProcess(
        [Block(X=X[begin : begin + size], y=None, begin=begin) for begin in range(0, len(X), size)]
    )


def search(X, folder, n_offers, **options):
    """Offers a point that counts; what it began with."""
    saved = SavedPoint(folder, in_process(X), **{"every": 5} | options)
    begun = saved.read()
    for number in range(1, n_offers + 1):
        saved.offer({"point": np.array([number, 0.5])})
    return begun


def test_a_search_continues_from_what_was_written_last(X, tmp_path):
    assert search(X, tmp_path / "fit", 14) is None
    found = search(X, tmp_path / "fit", 0)
    np.testing.assert_array_equal(found["point"], [10.0, 0.5])
    assert sorted(each.name for each in (tmp_path / "fit").iterdir()) == [POINTER, "point.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 59}, "it has 60 samples, X has 59"),
        ({"features": 2}, "it has 1 features, X has 2"),
        ({"size": 30}, "its blocks have other sizes"),
        ({"settings": {"n_components": 3}}, "n_components was 2 and is 3"),
        ({"settings": {}}, "n_components was 2 and is None"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused(X, tmp_path, change, message):
    search(X, tmp_path, 5, settings={"n_components": 2})
    rows = np.tile(X[: change.get("rows", N)], change.get("features", 1))
    blocks = in_process(rows, change.get("size", 25))
    settings = change.get("settings", {"n_components": 2})
    with pytest.raises(ValueError, match=f"another fit: {message}"):
        SavedPoint(tmp_path, blocks, settings=settings).read()


def test_what_is_no_checkpoint_is_refused(X, tmp_path):
    search(X, tmp_path, 5)
    for content in ("", "[]", json.dumps({"format": 99})):
        (tmp_path / POINTER).write_text(content)
        with pytest.raises(ValueError, match=r"no checkpoint|format 99"):
            search(X, tmp_path, 0)


@pytest.mark.parametrize("change", ["samples", "order", "targets"])
def test_a_checkpoint_of_other_data_is_refused(X, tmp_path, change):
    y = np.arange(N) % 3
    blocks = [Block(X=X[i : i + 20], y=y[i : i + 20], begin=i) for i in (0, 20, 40)]
    SavedPoint(tmp_path, InProcess(blocks), every=1).offer({"point": np.ones(2)})
    last = blocks[2]
    other = {
        "samples": replace(last, X=last.X * (1.0 + 1e-15)),
        "order": replace(last, X=last.X[::-1], y=last.y[::-1]),
        "targets": replace(last, y=np.roll(last.y, 1)),
    }
    changed = SavedPoint(tmp_path, InProcess([*blocks[:2], other[change]]))
    with pytest.raises(ValueError, match="samples or labels differ, first in block 2"):
        changed.read()
    assert SavedPoint(tmp_path, InProcess(blocks)).read() is not None


@pytest.mark.parametrize("size", [0, 10, 200, None])
def test_a_damaged_checkpoint_is_refused(X, tmp_path, size):
    search(X, tmp_path, 5)
    path = tmp_path / "point.npz"
    path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"point\.npz is damaged"):
        search(X, tmp_path, 0)


def test_a_pointer_without_an_entry_is_refused(X, tmp_path):
    search(X, tmp_path, 5)
    path = tmp_path / POINTER
    saved = json.loads(path.read_text())
    del saved["sizes"]
    path.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="is no checkpoint"):
        search(X, tmp_path, 0)


@pytest.mark.parametrize("place", [".", POINTER, "point.npz"])
def test_pipes_are_neither_read_nor_replaced(X, tmp_path, place):
    pipe = tmp_path / "fit" / place
    pipe.parent.mkdir(exist_ok=True) if place != "." else None
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="device or pipe"):
        search(X, tmp_path / "fit", 5)
    assert pipe.is_fifo()


def test_objects_are_not_pickled(X, tmp_path):
    saved = SavedPoint(tmp_path, in_process(X), every=1)
    with pytest.raises(TypeError, match="number: only arrays"):
        saved.offer({"number": None})


@pytest.mark.parametrize("every", [0, -1, 2.5, True])
def test_every_is_a_number_of_evaluations(X, tmp_path, every):
    with pytest.raises(ValueError, match="every must be"):
        SavedPoint(tmp_path, in_process(X), every=every)
