"""Blocks in one process."""

import numpy as np

from bsdr_models.inference.sample_blocks import Block, InProcess


def in_blocks(X, *sizes):
    ends = np.cumsum(sizes)
    assert ends[-1] == len(X)
    return InProcess(
        [
            Block(X=X[end - size : end], y=None, begin=int(end - size))
            for size, end in zip(sizes, ends, strict=True)
        ]
    )


def shifted_sum(block, shared):
    return np.array([(block.X.sum(axis=1) + shared).sum(), block.begin])


def test_map_keeps_a_result_per_block_and_reduce_adds_summands():
    X = np.arange(15.0).reshape(5, 3)
    blocks = in_blocks(X, 2, 3)
    assert blocks.sizes == (2, 3)
    assert blocks.n_features == 3
    parts = blocks.map(lambda block, shared: block.X.sum(axis=1) + shared, shared=11.0)
    np.testing.assert_array_equal(np.concatenate(blocks.collect(parts)), X.sum(axis=1) + 11.0)
    total = blocks.reduce(shifted_sum, shared=11.0)
    np.testing.assert_array_equal(total, [X.sum() + 55.0, 2.0])
