"""Fits that go on where they were stopped, and clusters that are lost on the way."""

import json
import os
from functools import partial

import numpy as np
import pytest

from bsdr_models.inference.checkpoint import POINTER, Checkpoint, Codec, run_resumable
from bsdr_models.inference.row_blocks import Block, InProcess

N, SWEEPS = 60, 14


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, 1))


def in_process(X, size=25):
    return InProcess(
        [Block(X=X[begin : begin + size], y=None, begin=begin) for begin in range(0, len(X), size)]
    )


def make_codec(toy):
    return Codec(
        shared=lambda state: {"number": state.number},
        rows=lambda state: state.rows,
        write_rows=toy.write_rows,
        read_rows=toy.read_rows,
        state=lambda shared, rows: toy.Tied(number=float(shared["number"]), rows=rows),
    )


def fit(toy, blocks, folder, *, every=5, settings=None, callbacks=(), **options):
    """A fit with checkpoints; its result, and how many sweeps it has made."""
    checkpoint = Checkpoint(folder, blocks, make_codec(toy), every=every, settings=settings)
    made = []
    options = {"max_iter": SWEEPS, "extrapolation": None} | options
    result = toy.climb(
        blocks,
        init=lambda rng, restart: checkpoint.begin(restart, lambda: toy.tied_start(blocks)),
        callbacks=[checkpoint, lambda *_: made.append(1), *callbacks],
        **options,
    )
    return result, len(made), checkpoint


def assert_same(found, expected, blocks):
    assert found.state.number == pytest.approx(expected.state.number, rel=1e-12)
    rows = np.concatenate(blocks.collect(found.state.rows))
    np.testing.assert_allclose(rows, np.concatenate(expected.state.rows), rtol=1e-12)
    assert found.elbo[-1] == pytest.approx(expected.elbo[-1], rel=1e-12)


def stop(at):
    def callback(iteration, state, info):
        return iteration == at

    return callback


def test_a_fit_goes_on_from_what_was_written_last(X, toy, tmp_path):
    blocks = in_process(X)
    expected = toy.climb(blocks, None, max_iter=SWEEPS)
    _, made, _ = fit(toy, blocks, tmp_path, callbacks=[stop(12)])
    assert made == 12
    found, made, checkpoint = fit(toy, blocks, tmp_path, max_iter=SWEEPS - 10)
    assert made == 4
    assert checkpoint.sweeps == SWEEPS
    np.testing.assert_array_equal(found.elbo, expected.elbo[10:])
    assert_same(found, expected, blocks)


def test_a_limit_of_iterations_counts_those_before(X, toy, tmp_path):
    blocks = in_process(X)

    def run(**more):
        return run_resumable(
            lambda rng, restart: toy.tied_start(blocks),
            partial(toy.tied_step, blocks),
            rng=np.random.default_rng(0),
            max_iter=SWEEPS,
            tol=1e-12,
            checkpoint=Checkpoint(tmp_path, blocks, make_codec(toy), every=7),
            **more,
        )

    expected = toy.climb(blocks, None, max_iter=SWEEPS)
    run(callbacks=[stop(9)])
    for _ in range(2):  # that from which no iteration is left is not written
        found = run()
        np.testing.assert_array_equal(found.elbo, expected.elbo[7:])
        assert_same(found, expected, blocks)


def test_each_restart_has_its_own(X, toy, tmp_path):
    blocks = in_process(X)
    fit(toy, blocks, tmp_path, max_iter=5, n_restarts=2)
    _, _, checkpoint = fit(toy, blocks, tmp_path, max_iter=3, n_restarts=3)
    assert checkpoint.sweeps == 3  # the third had not begun
    checkpoint.begin(1, lambda: pytest.fail("begun anew"))
    assert checkpoint.sweeps == 5


def test_old_states_are_removed_once_nothing_looks_back_at_them(X, toy, tmp_path):
    fit(toy, in_process(X), tmp_path, every=5)
    assert folders(tmp_path) == [5, 10]  # 12 may still look back at rows of 9
    fit(toy, in_process(X), tmp_path / "often", every=1)
    assert folders(tmp_path / "often") == [11, 12, 13, 14]


def folders(tmp_path):
    return sorted(int(each.name) for each in (tmp_path / "restart-0").iterdir() if each.is_dir())


def test_a_run_that_stops_while_it_writes_leaves_the_last_checkpoint(X, toy, tmp_path):
    blocks = in_process(X)
    fit(toy, blocks, tmp_path, max_iter=5)
    half = tmp_path / "restart-0" / f"{10:09d}"
    half.mkdir()
    (half / "rows-0.npz").write_bytes(b"half a file")
    found, made, _ = fit(toy, blocks, tmp_path, max_iter=SWEEPS - 5)
    assert made == SWEEPS - 5
    assert_same(found, toy.climb(blocks, None, max_iter=SWEEPS), blocks)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 59}, "it has 60 rows, these are 59"),
        ({"features": 2}, "it has 1 features, these rows 2"),
        ({"size": 30}, "its blocks are of other sizes"),
        ({"settings": {"n_components": 3}}, "n_components was 2 and is 3"),
        ({"settings": {}}, "n_components was 2 and is None"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused(X, toy, tmp_path, change, message):
    fit(toy, in_process(X), tmp_path, max_iter=5, settings={"n_components": 2})
    rows = np.tile(X[: change.get("rows", N)], change.get("features", 1))
    blocks = in_process(rows, change.get("size", 25))
    settings = change.get("settings", {"n_components": 2})
    with pytest.raises(ValueError, match=f"another fit: {message}"):
        fit(toy, blocks, tmp_path, settings=settings)


def test_what_is_no_checkpoint_is_refused(X, toy, tmp_path):
    fit(toy, in_process(X), tmp_path, max_iter=5)
    pointer = tmp_path / "restart-0" / POINTER
    for content in ("", "[]", json.dumps({"format": 99})):
        pointer.write_text(content)
        with pytest.raises(ValueError, match=r"no checkpoint|format 99"):
            fit(toy, in_process(X), tmp_path)


def test_objects_are_not_pickled(X, toy, tmp_path):
    codec = make_codec(toy)
    checkpoint = Checkpoint(tmp_path, in_process(X), codec)
    state = toy.Tied(number=None, rows=tuple(np.zeros(size) for size in (25, 25, 10)))
    with pytest.raises(TypeError, match="number: only arrays"):
        checkpoint.save(state)


@pytest.mark.parametrize("every", [0, -1, 2.5, True])
def test_every_is_a_number_of_sweeps(X, toy, tmp_path, every):
    with pytest.raises(ValueError, match="every must be"):
        Checkpoint(tmp_path, in_process(X), make_codec(toy), every=every)


# -------------------------------------------------------------------------------------- clusters


def on_cluster(X, client):
    da = pytest.importorskip("dask.array")
    from bsdr_models.inference.dask_blocks import OnDask

    return OnDask(client, da.from_array(X, chunks=(15, 1)))


def test_a_resumed_fit_on_a_cluster_is_one_that_was_not_stopped(X, toy, tmp_path, threads_cluster):
    blocks = on_cluster(X, threads_cluster)
    fit(toy, blocks, tmp_path, callbacks=[stop(12)])
    found, made, _ = fit(toy, on_cluster(X, threads_cluster), tmp_path, max_iter=SWEEPS - 10)
    assert made == 4
    assert_same(found, toy.climb(in_process(X), None, max_iter=SWEEPS), blocks)


def test_a_checkpoint_cuts_the_chain_of_tasks(X, toy, tmp_path, threads_cluster):
    """Tasks that the scheduler remembers grow with the sweeps, and only without checkpoints."""

    def remembered(*, with_checkpoints):
        blocks = on_cluster(X, threads_cluster)
        before = len(scheduler.tasks)
        if with_checkpoints:
            result, _, _ = fit(toy, blocks, tmp_path, every=2, max_iter=15)
        else:
            result = toy.climb(blocks, None, max_iter=15)
        blocks.collect(result.state.rows)
        return len(scheduler.tasks) - before

    scheduler = threads_cluster.cluster.scheduler
    assert remembered(with_checkpoints=False) >= 4 * 15
    assert remembered(with_checkpoints=True) < 4 * 9


@pytest.fixture
def start_cluster(toy):
    distributed = pytest.importorskip("distributed")
    opened = []

    def start():
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        opened.append(cluster)
        opened.append(distributed.Client(cluster, set_as_default=False, timeout=5))
        return cluster, opened[-1]

    yield start
    for each in reversed(opened):
        each.close()


@pytest.mark.slow
@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_a_worker_killed_between_checkpoints_changes_nothing(
    X, toy, tmp_path, start_cluster, every, accelerated
):
    """Sweeps, or SQUAREM, whose vectors look back at rows from before the last checkpoint."""
    _, client = start_cluster()
    blocks = on_cluster(X, client)

    def kill(iteration, state, info):
        if iteration in (2, 4):
            os.kill(next(iter(client.run(os.getpid).values())), 9)

    here = in_process(X, 15)
    expected = toy.climb(here, toy.in_pieces(here) if accelerated else None, max_iter=5)
    found, made, _ = fit(
        toy,
        blocks,
        tmp_path,
        every=every,
        callbacks=[kill],
        max_iter=5,
        extrapolation=toy.in_pieces(blocks) if accelerated else None,
    )
    assert made == len(expected.elbo) == 5
    assert found.state.number == expected.state.number
    np.testing.assert_array_equal(blocks.collect(found.state.rows), expected.state.rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, whose scheduler is gone
def test_a_fit_goes_on_when_its_cluster_was_lost(X, toy, tmp_path, start_cluster):
    cluster, client = start_cluster()
    made = []

    def close(iteration, state, info):
        made.append(iteration)
        if iteration == 8:
            cluster.close()

    with pytest.raises(ConnectionError, match=r"cluster is gone.*last one when it is run again"):
        fit(toy, on_cluster(X, client), tmp_path, callbacks=[close])
    assert made == list(range(1, 9))

    blocks = on_cluster(X, start_cluster()[1])
    found, made, _ = fit(toy, blocks, tmp_path, max_iter=SWEEPS - 5)
    assert made == SWEEPS - 5  # those after the checkpoint at 5, and none before
    assert_same(found, toy.climb(in_process(X), None, max_iter=SWEEPS), blocks)
