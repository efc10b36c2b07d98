"""A draw is an affine map of standard normals: read off with unit vectors for the normals."""

import numpy as np

from bsdr_models.numerics import linalg


class UnitNormals:
    """Zeros for the first matrix of a stack, the i-th unit vector for the i-th after it."""

    def standard_normal(self, shape):
        out = np.zeros(shape)
        flat = out.reshape(shape[0], -1)
        flat[1:] = np.eye(shape[0] - 1, flat.shape[1])
        return out


def test_mean_and_covariance_are_those_of_the_precision():
    rng = np.random.default_rng(34)
    p, m = 4, 3
    root = rng.standard_normal((p, p + 2))
    precision, linear = root @ root.T, rng.standard_normal((p, m))
    copies = (1 + p * m, 1, 1)
    draws = linalg.draw_normal(
        np.tile(precision, copies), np.tile(linear, copies), name="P", rng=UnitNormals()
    )
    np.testing.assert_allclose(precision @ draws[0], linear, atol=1e-10)
    spread = (draws[1:] - draws[0]).reshape(p * m, p * m)
    cov = (spread.T @ spread).reshape(p, m, p, m)
    for j in range(m):
        np.testing.assert_allclose(cov[:, j, :, j] @ precision, np.eye(p), atol=1e-9)
    np.testing.assert_allclose(cov[:, 0, :, 1], 0.0, atol=1e-12)
