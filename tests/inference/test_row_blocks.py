"""Blocks in one process, and vectors that lie in pieces beside them."""

import numpy as np
import pytest

from bsdr_models.inference.block_vector import BlockVector
from bsdr_models.inference.coordinate_ascent import Extrapolation
from bsdr_models.inference.row_blocks import Block, InProcess


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


@pytest.fixture
def pieces():
    """Three vectors of 2 shared entries and 4 in two blocks, whole and in pieces."""
    whole = np.random.default_rng(0).standard_normal((3, 6))
    blocks = in_blocks(np.zeros((4, 1)), 1, 3)
    return whole, [BlockVector(row[:2], (row[2:3], row[3:]), blocks) for row in whole]


def joined(vector):
    return np.concatenate([vector.shared, *vector.parts()])


def test_arithmetic_is_that_of_one_array(pieces):
    (a, b, c), (in_a, in_b, in_c) = pieces
    change, in_change = b - a, in_b - in_a
    curvature, in_curvature = c - b - change, in_c - in_b - in_change
    np.testing.assert_array_equal(joined(in_curvature), curvature)
    np.testing.assert_array_equal(
        joined(in_a + 2.0 * 1.7 * in_change + 1.7**2 * in_curvature),
        a + 2.0 * 1.7 * change + 1.7**2 * curvature,
    )
    np.testing.assert_array_equal(joined(in_b * np.float64(3.0)), 3.0 * b)
    np.testing.assert_array_equal(joined(np.float64(3.0) * in_b), 3.0 * b)
    assert in_curvature.norm() == pytest.approx(np.linalg.norm(curvature), rel=1e-15)
    np.testing.assert_array_equal(joined(in_a), a)


def test_sums_are_formed_in_one_visit(pieces):
    _, (a, b, c) = pieces
    visited = []

    class Counting(InProcess):
        def map(self, function, *parts, shared=None):
            visited.append(len(parts))
            return super().map(function, *parts, shared=shared)

    blocks = Counting(a.blocks._blocks)
    a, b, c = (BlockVector(each.shared, each.parts(), blocks) for each in (a, b, c))
    (a + 2.0 * (b - a) + 4.0 * (c - b - (b - a))).parts()
    assert visited == [3]


def test_squarem_over_blocks_is_squarem_of_one_array(toy):
    X = np.random.default_rng(1).standard_normal((40, 1))
    whole, split = in_blocks(X, 40), in_blocks(X, 7, 1, 20, 12)
    array = toy.climb(
        whole,
        Extrapolation(
            pack=lambda state: np.concatenate([[state.number], state.rows[0]]),
            unpack=lambda vector, state: toy.Tied(number=float(vector[0]), rows=(vector[1:],)),
        ),
    )
    pieces = toy.climb(split, toy.in_pieces(split))
    assert array.converged
    assert len(array.elbo) < 0.2 * len(toy.climb(whole, None).elbo)  # it has jumped
    assert len(pieces.elbo) == len(array.elbo)
    np.testing.assert_allclose(pieces.elbo, array.elbo, rtol=1e-12)
    np.testing.assert_allclose(pieces.state.number, array.state.number, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(pieces.state.rows), array.state.rows[0], rtol=1e-12)
