"""Blocks on a cluster, and blocks read one by one from a Dask array."""

import os
import time

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.block_sources import make_blocks
from bsdr_models.inference.sample_blocks import Block, InProcess

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from bsdr_models.inference import dask_blocks  # noqa: E402
from bsdr_models.inference.dask_blocks import (  # noqa: E402
    ClusterLostError,
    OnDask,
    blocks_of_dask,
)

N, P, SWEEPS = 83, 3, 12
CHUNKS = (20, 0, 33, 30)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) + np.where(rng.random(N) < 0.4, 2.0, -1.0)[:, None]
    return X, rng.integers(0, 3, N)


@pytest.fixture
def expected(arrays, toy):
    X, y = arrays
    found = toy.run(InProcess([Block(X=X, y=y, begin=0)]), SWEEPS)
    assert np.abs(found[0][0] - found[0][1]).min() > 1.0  # the components are separated
    return found


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def dask_pair(arrays, kind):
    X, y = arrays
    chunks = (CHUNKS, P)
    lazy = da.from_array(X, chunks=(CHUNKS, (1, 2)))
    if kind == "arrays":
        return lazy, y
    if kind == "dask targets":
        return lazy, da.from_array(y, chunks=50)
    if kind == "sparse":
        return da.from_array(X, chunks=chunks).map_blocks(sparse.csr_array), y
    if kind == "float32":
        return lazy.astype(np.float32), y
    assert kind == "unknown sizes"
    frame = da.from_array(X, chunks=chunks)
    return frame[da.from_array(np.ones(N, dtype=bool), chunks=(CHUNKS,))], y


KINDS = ["arrays", "dask targets", "sparse", "unknown sizes"]


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_in_process_equal_one_block(arrays, expected, toy, kind):
    blocks = blocks_of_dask(*dask_pair(arrays, kind))
    assert isinstance(blocks, InProcess)
    assert blocks.sizes == (20, 33, 30)
    assert_same(toy.run(blocks, SWEEPS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_copies", [0, 3], ids=["task", "copies"])
def test_blocks_on_a_cluster_equal_one_block(
    arrays, expected, toy, kind, n_copies, threads_cluster, monkeypatch
):
    monkeypatch.setattr(dask_blocks, "_FEW_BLOCKS", n_copies)
    blocks = blocks_of_dask(*dask_pair(arrays, kind), client=threads_cluster)
    assert isinstance(blocks, OnDask)
    assert blocks.sizes == (20, 33, 30)
    assert blocks.n_features == P
    assert_same(toy.run(blocks, SWEEPS), expected)


@pytest.mark.parametrize("kind", ["array", "memmap", "zarr", "csr"])
@pytest.mark.parametrize("on_cluster", [False, True])
def test_every_source_gives_the_same_fit(
    arrays, expected, toy, threads_cluster, tmp_path, kind, on_cluster
):
    X, y = arrays
    if kind == "memmap":
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")
        stored = zarr.create_array(tmp_path / "X", shape=X.shape, chunks=(10, 2), dtype=X.dtype)
        stored[:] = X
        X = stored
    elif kind == "csr":
        X = sparse.csr_array(X)
    blocks = make_blocks(X, y, block_size=30, client=threads_cluster if on_cluster else None)
    assert isinstance(blocks, OnDask if on_cluster else InProcess)
    assert blocks.sizes == (30, 30, 23)
    assert_same(toy.run(blocks, SWEEPS), expected)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_no_samples_are_refused(arrays, threads_cluster, on_cluster):
    X, _ = dask_pair(arrays, "arrays")
    with pytest.raises(ValueError, match="X has no samples"):
        blocks_of_dask(X[X[:, 0] > np.inf], client=threads_cluster if on_cluster else None)


def test_blocks_have_the_given_size(arrays, threads_cluster):
    X, y = dask_pair(arrays, "unknown sizes")
    for client in (None, threads_cluster):
        blocks = blocks_of_dask(X, y, block_size=40, client=client)
        assert blocks.sizes == (40, 40, 3)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_lengths_must_agree(arrays, on_cluster, threads_cluster):
    X, y = dask_pair(arrays, "arrays")
    with pytest.raises(ValueError, match="X has 83 samples, and y has 82"):
        blocks_of_dask(X, y[1:], client=threads_cluster if on_cluster else None)


def test_an_active_client_is_found(arrays, toy, threads_cluster):
    X, y = dask_pair(arrays, "arrays")
    with threads_cluster.as_current():
        assert isinstance(blocks_of_dask(X, y), OnDask)
    assert isinstance(blocks_of_dask(X, y), InProcess)


def test_targets_may_be_replaced(arrays, toy, threads_cluster):
    X, y = dask_pair(arrays, "arrays")
    blocks = blocks_of_dask(X, y, client=threads_cluster)
    other = blocks.with_targets(blocks.map(twice_the_targets))
    assert toy.run(other, 1)[2] == pytest.approx(2.0 * toy.run(blocks, 1)[2], rel=1e-12)
    assert other.sizes == blocks.sizes


def twice_the_targets(block, shared):
    return 2 * block.y


def test_an_error_of_a_block_is_raised_and_later_sums_are_right(
    arrays, toy, expected, threads_cluster
):
    blocks = blocks_of_dask(*dask_pair(arrays, "arrays"), client=threads_cluster)
    with pytest.raises(FloatingPointError, match="samples from 20"):
        blocks.reduce(toy.fail_at, shared=20)
    assert_same(toy.run(blocks, SWEEPS), expected)


def test_tasks_treat_overflow_as_the_client_does(arrays, toy, threads_cluster):
    blocks = blocks_of_dask(*dask_pair(arrays, "arrays"), client=threads_cluster)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        blocks.reduce(toy.overflow)
    with np.errstate(over="ignore"):
        assert blocks.reduce(toy.overflow) == 3


def test_tasks_have_one_thread(arrays, toy, threads_cluster):
    blocks = blocks_of_dask(*dask_pair(arrays, "arrays"), client=threads_cluster)
    assert blocks.reduce(toy.threads) == 3


def test_nothing_is_left_on_the_workers(arrays, toy):
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        blocks = blocks_of_dask(*dask_pair(arrays, "arrays"), client=client)
        centres = toy.init(blocks)
        for _ in range(5):
            centres, _ = toy.step(blocks, centres)
        deadline = time.monotonic() + 5.0
        while (left := len(client.has_what()[client.cluster.workers[0].address])) > 3:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        assert left == 3  # the blocks


# ------------------------------------------------------------------------------------ processes


@pytest.fixture
def cluster(toy):
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster


def kill(client, number):
    """Kill a worker's process; its blocks are lost."""
    pids = client.run(os.getpid)
    os.kill(list(pids.values())[number], 9)


@pytest.mark.slow
@pytest.mark.parametrize("at", [(1,), (7,), (3, 8)])
@pytest.mark.parametrize("n_copies", [0, 8], ids=["task", "copies"])
def test_a_killed_worker_changes_nothing(arrays, toy, expected, cluster, at, n_copies, monkeypatch):
    monkeypatch.setattr(dask_blocks, "_FEW_BLOCKS", n_copies)
    X, y = arrays
    with distributed.Client(cluster, set_as_default=False) as client:
        blocks = blocks_of_dask(da.from_array(X, chunks=(11, P)), y, client=client)
        found = toy.run(blocks, SWEEPS, lambda number: number in at and kill(client, number % 2))
    assert_same(found, expected)


@pytest.mark.slow
def test_blocks_stay_on_their_workers(arrays, toy, cluster):
    """Both workers hold an even share of the results of a map, the same after every sweep."""
    X, y = arrays
    with distributed.Client(cluster, set_as_default=False) as client:
        blocks = blocks_of_dask(da.from_array(X, chunks=(11, P)), y, client=client)
        centres = toy.init(blocks)
        first = None
        for _ in range(5):
            parts = blocks.map(toy.responsibilities, shared=centres)
            centres, _ = toy.step(blocks, centres)
            blocks.collect(parts)
            held = client.who_has(list(parts))
            where = [held[part.key][0] for part in parts]
            first = first or where
            assert where == first
        assert sorted(where.count(worker) for worker in set(where)) == [4, 4]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, whose scheduler is gone
def test_a_lost_scheduler_is_a_clear_error(arrays, toy, cluster):
    X, y = arrays
    with distributed.Client(cluster, set_as_default=False, timeout=2) as client:
        blocks = blocks_of_dask(da.from_array(X, chunks=(11, P)), y, client=client)

        def close(number):
            if number == 4:
                cluster.close()

        begin = time.monotonic()
        with pytest.raises(ClusterLostError, match=r"cluster is gone.*new cluster"):
            toy.run(blocks, SWEEPS, close)
        assert time.monotonic() - begin < 20.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, whose workers come and go
def test_a_block_that_kills_its_workers_is_a_clear_error(arrays, toy, cluster):
    X, y = arrays
    with distributed.Client(cluster, set_as_default=False) as client:
        blocks = blocks_of_dask(da.from_array(X, chunks=(40, P)), y, client=client)
        with pytest.raises(RuntimeError, match=r"killed several workers.*chunks of X"):
            blocks.reduce(toy.out_of_memory)
