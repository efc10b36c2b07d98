"""Samples of any source give the same blocks, and one error for an invalid block."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.block_checks import check_blocks
from bsdr_models.block_sources import BLOCK_BYTES, is_block_source, make_blocks, read_blocks
from bsdr_models.inference.sample_blocks import Block, InProcess
from bsdr_models.numerics.scaled_samples import column_statistics

N, P = 50, 4


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, P)), rng.integers(0, 3, N)


def memmap(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def zarr_array(X, tmp_path):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(7, 3), dtype=X.dtype)
    stored[:] = X
    return stored


def dask_array(X, tmp_path):
    return pytest.importorskip("dask.array").from_array(X, chunks=(20, 3))


MAKERS = {
    "array": lambda X, tmp_path: X,
    "csr": lambda X, tmp_path: sparse.csr_matrix(X),
    "csc": lambda X, tmp_path: sparse.csc_array(X),
    "memmap": memmap,
    "zarr": zarr_array,
    "dask": dask_array,
}


def look(block, shared):
    X = block.X.toarray() if sparse.issparse(block.X) else np.asarray(block.X)
    assert X.shape == (len(block.y), P)
    return [(block.begin, X, block.y)]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("block_size", [None, 1, 15, 1000])
def test_every_source_gives_the_same_samples_in_order(arrays, tmp_path, kind, block_size):
    X, y = arrays
    blocks = make_blocks(MAKERS[kind](X, tmp_path), y, block_size=block_size)
    seen = blocks.reduce(look)
    assert blocks.n_features == P
    assert sum(blocks.sizes) == N
    if block_size is not None:
        assert set(blocks.sizes[:-1]) <= {block_size}
    assert [begin for begin, _, _ in seen] == np.cumsum([0, *blocks.sizes[:-1]]).tolist()
    np.testing.assert_array_equal(np.concatenate([rows for _, rows, _ in seen]), X)
    np.testing.assert_array_equal(np.concatenate([rows for _, _, rows in seen]), y)


def test_what_is_somewhere_else_is_known_by_its_type(arrays, tmp_path):
    X, _ = arrays
    found = {kind for kind, make in MAKERS.items() if is_block_source(make(X, tmp_path))}
    assert found == {"zarr", "dask"}


@pytest.mark.parametrize("kind", ["zarr", "memmap", "csr"])
def test_samples_can_be_read_in_turn(arrays, tmp_path, kind):
    X, _ = arrays
    pieces = list(read_blocks(MAKERS[kind](X, tmp_path), block_size=15))
    dense = [piece.toarray() if sparse.issparse(piece) else piece for piece in pieces]
    assert [len(piece) for piece in dense] == [15, 15, 15, 5]
    np.testing.assert_array_equal(np.concatenate(dense), X)


def test_a_map_reads_X_once_if_it_is_accessed(arrays, tmp_path):
    X, y = arrays
    reads = []

    class Disk:
        """Slices like a Zarr array, and counts."""

        shape, chunks = X.shape, (10, P)

        def __getitem__(self, rows):
            reads.append(rows)
            return X[rows]

    Disk.__module__ = "zarr.counting"
    blocks = make_blocks(Disk(), y, block_size=20)
    assert not reads
    blocks.reduce(lambda block, shared: block.X.sum() + block.X.shape[1])
    assert reads == [slice(0, 20), slice(20, 40), slice(40, 50)]
    blocks.reduce(lambda block, shared: block.y.sum())
    assert len(reads) == 3
    blocks.map(lambda block, shared: len(block.X))
    assert len(reads) == 6


def test_small_chunks_are_read_together():
    class Stored:
        shape, chunks = (10**7, 100), (3000, 100)

    Stored.__module__ = "zarr.stored"
    sizes = make_blocks(Stored()).sizes
    assert sizes[0] % 3000 == 0
    assert BLOCK_BYTES - 3000 * 800 < sizes[0] * 800 <= BLOCK_BYTES


@pytest.mark.parametrize("kind", MAKERS)
def test_lengths_must_agree(arrays, tmp_path, kind):
    X, y = arrays
    with pytest.raises(ValueError, match="X has 50 samples, and y has 49"):
        make_blocks(MAKERS[kind](X, tmp_path), y[1:])


def test_what_is_no_matrix_is_refused(arrays):
    X, y = arrays
    for bad in (X[:, 0], X[:0], X[:, :0]):
        with pytest.raises(ValueError, match="X must be a non-empty matrix"):
            make_blocks(bad, y)
    for block_size in (0, 2.5):
        with pytest.raises(ValueError, match="block_size must be"):
            make_blocks(X, y, block_size=block_size)


@pytest.mark.slow
def test_memory_is_that_of_a_block(tmp_path):
    """400 MB on disk, blocks of 16 MB: the peak of a process that sums it grows by few of them."""
    np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (500_000, 100)).flush()
    code = f"""
import resource, numpy as np
from bsdr_models.block_sources import make_blocks
blocks = make_blocks(np.load({str(tmp_path / "X.npy")!r}, mmap_mode="r"), block_size=20_000)
def look(block, shared): return np.asarray(block.X).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert blocks.reduce(look) == 0.0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 80_000


# --------------------------------------------------------------------------------------- checks


def pieces(X, y, size=20):
    blocks = [
        Block(
            X=X[begin : begin + size],
            y=y[begin : begin + size],
            begin=begin,
        )
        for begin in range(0, len(y), size)
    ]
    return InProcess(blocks)


@pytest.mark.parametrize("labels", [np.arange(3), np.array(["a", "bb", "c"]), np.arange(3.0)])
def test_sound_blocks_are_encoded_and_counted(arrays, labels):
    X, y = arrays
    checked = check_blocks(pieces(X, labels[y]))
    np.testing.assert_array_equal(checked.classes, labels)
    np.testing.assert_array_equal(checked.counts, np.bincount(y))
    encoded = checked.blocks.reduce(lambda block, shared: block.y.tolist())
    assert encoded == y.tolist()
    scaler, whole = checked.statistics.scaler(), column_statistics(X).scaler()
    np.testing.assert_allclose(scaler.location, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaler.scale, whole.scale, rtol=1e-12)


def with_value(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


BAD_X = {
    "NaN": (lambda X: with_value(X, (27, 2), np.nan), r"block 1, row 27: X contains nan.*column 2"),
    "infinity": (lambda X: with_value(X, (49, 0), -np.inf), r"block 2, row 49: X contains -inf"),
    "two": (lambda X: with_value(X, ([45, 23], 0), np.nan), r"block 1, row 23"),
    "text": (lambda X: X.astype(str), r"block 0, rows 0 to 19: X is of type <U"),
    "objects": (lambda X: X.astype(object), r"block 0, rows 0 to 19: X is of type object"),
}


@pytest.mark.parametrize("kind", BAD_X)
def test_bad_values_are_one_error_with_block_and_row(arrays, kind):
    X, y = arrays
    change, message = BAD_X[kind]
    with pytest.raises(ValueError, match=f"^{message}"):
        check_blocks(pieces(change(X), y))


def test_a_bad_value_of_sparse_samples_is_named(arrays):
    X, y = arrays
    blocks = make_blocks(sparse.csr_array(with_value(X, (27, 2), np.nan)), y, block_size=20)
    with pytest.raises(ValueError, match=r"^block 1, row 27: X contains nan \(column 2\)"):
        check_blocks(blocks)


def test_another_number_of_features_is_named(arrays):
    X, y = arrays
    blocks = InProcess(
        [Block(X=X[:20], y=y[:20], begin=0), Block(X=X[20:, :3], y=y[20:], begin=20)]
    )
    with pytest.raises(ValueError, match=r"block 1, rows 20 to 49: .*\(30, 3\), expected 4"):
        check_blocks(blocks)


BAD_Y = {
    "missing": (lambda y: with_value(y.astype(float), 41, np.nan), "block 2, row 41: y is nan"),
    "None": (lambda y: with_value(y.astype(object), 21, None), "block 1, row 21: y is None"),
    "infinite": (lambda y: with_value(y.astype(float), 3, np.inf), "block 0, row 3: y is inf"),
    "real": (lambda y: with_value(y.astype(float), 30, 0.5), "block 1, row 30: y is 0.5"),
    "mixed": (
        lambda y: with_value(y.astype(object), slice(20, 40), "a"),
        "the labels of some blocks are text",
    ),
    "two columns": (lambda y: np.stack([y, y], axis=1), r"block 0, rows from 0: y has shape"),
}


@pytest.mark.parametrize("kind", BAD_Y)
def test_bad_labels_are_one_error_with_block_and_row(arrays, kind):
    X, y = arrays
    change, message = BAD_Y[kind]
    with pytest.raises(ValueError, match=f"^{message}"):
        check_blocks(pieces(X, change(y)))


def test_on_a_cluster_the_error_is_the_same(arrays, threads_cluster):
    da = pytest.importorskip("dask.array")
    X, y = arrays
    bad = da.from_array(with_value(X, (27, 2), np.nan), chunks=(20, P))
    with pytest.raises(ValueError, match=r"^block 1, row 27: X contains nan"):
        check_blocks(make_blocks(bad, y, client=threads_cluster))
    for source in (X, sparse.csr_array(X)):
        checked = check_blocks(make_blocks(source, y, block_size=20, client=threads_cluster))
        assert checked.blocks.sizes == (20, 20, 10)
        seen = checked.blocks.reduce(look)
        np.testing.assert_array_equal(np.concatenate([rows for _, rows, _ in seen]), X)


def test_neither_dask_nor_zarr_is_imported_for_an_array():
    code = """
import sys
import numpy as np
from bsdr_models.block_sources import is_block_source, make_blocks
X = np.zeros((3, 2))
assert not is_block_source(X)
make_blocks(X)
print({"dask", "distributed", "zarr"} & set(sys.modules))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
