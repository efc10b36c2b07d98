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


def row_sums(block, own, shared):
    kept = own + block.X.sum(axis=1) + shared
    return kept, np.array([kept.sum(), block.begin])


def test_a_visit_gives_each_block_its_own_and_adds_in_order():
    X = np.arange(15.0).reshape(5, 3)
    blocks = in_blocks(X, 2, 3)
    assert blocks.sizes == (2, 3)
    assert blocks.n_features == 3
    parts = blocks.map(lambda block, shared: np.full(len(block.X), shared), shared=10.0)
    kept, total = blocks.visit(row_sums, parts, shared=1.0)
    np.testing.assert_array_equal(np.concatenate(kept), X.sum(axis=1) + 11.0)
    np.testing.assert_array_equal(total, [X.sum() + 55.0, 2.0])
