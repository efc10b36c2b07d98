"""Draws of ridge normals. A draw is an affine map of standard normals: the test reads the map off.

Chain 0 gets zeros for its normals, so its draw is the mean; chain 1 + i gets the i-th unit vector,
so its draw less the mean is a column of the root of the covariance. Both are then exact.
"""

import numpy as np
import pytest

from bsdr_models.bsdr.paper import ridge_draws
from bsdr_models.numerics.design import DenseDesign


class UnitNormals:
    """Hands out unit vectors along axis 1, a new one for each chain, over successive calls."""

    def __init__(self, n_chains):
        self.n_chains, self.used = n_chains, 0

    def standard_normal(self, shape):
        out = np.zeros(shape)
        copies = shape[0] // self.n_chains
        for i in range(shape[1]):
            chain = 1 + self.used + i
            out[chain * copies : (chain + 1) * copies, i] = 1.0
        self.used += shape[1]
        return out


SHAPES = {"entrywise": (1, 1), "columnwise": (0, 1), "rowwise": (1, 0)}


@pytest.mark.parametrize(("n", "d"), [(9, 4), (7, 60), (60, 50), (5, 5)])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scale", [0.0, 1.7])
def test_mean_and_covariance_are_those_of_the_ridge(n, d, kind, scale):
    rng = np.random.default_rng(1)
    n_columns = 2
    X = rng.standard_normal((n, d))
    shape = tuple(
        size if varies else 1 for size, varies in zip((d, n_columns), SHAPES[kind], strict=True)
    )
    phi = rng.gamma(2.0, size=shape)
    linear = rng.standard_normal((n, n_columns))
    c = 1 + d + n

    draws = ridge_draws.draw_columns(
        DenseDesign(X),
        np.tile(linear, (c, 1, 1)),
        np.tile(phi, (c, 1, 1)),
        np.full(c, scale),
        rng=UnitNormals(c),
    )
    root = draws[1:] - draws[0]  # (noise, D, B)
    for s, column in enumerate(np.broadcast_to(phi, (d, n_columns)).T):
        precision = np.diag(column) + scale * X.T @ X
        mean = np.linalg.solve(precision, X.T @ linear[:, s])
        np.testing.assert_allclose(draws[0, :, s], mean, rtol=1e-8, atol=1e-10)
        cov = root[:, :, s].T @ root[:, :, s]
        np.testing.assert_allclose(cov @ precision, np.eye(d), atol=1e-8)


def test_chains_and_columns_draw_independently():
    rng = np.random.default_rng(2)
    for n, d in ((8, 3), (3, 8)):
        design = DenseDesign(rng.standard_normal((n, d)))
        for shape in ((d, 2), (1, 2), (d, 1)):
            draws = ridge_draws.draw_columns(
                design, np.zeros((3000, n, 2)), np.ones((3000, *shape)), np.ones(3000), rng=rng
            )
            correlation = np.corrcoef(draws[:1500, :, 0].T, draws[:1500, :, 1].T)[:d, d:]
            assert np.abs(correlation).max() < 5.0 / np.sqrt(1500)
            between = np.corrcoef(draws[:1500, :, 0].T, draws[1500:, :, 0].T)[:d, d:]
            assert np.abs(between).max() < 5.0 / np.sqrt(1500)
