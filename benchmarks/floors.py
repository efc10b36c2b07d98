"""Lower bounds of a sweep: bare BLAS and LAPACK calls, and a count for argmax moments."""

import numpy as np
from scipy.linalg import blas, lapack

from benchmarks.timing import Work
from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr.paper.mean_field import Data
from bsdr_models.numerics.design import DenseDesign

# Seconds of the argmax moments per sample, competing class and node: one factor in a bare loop
# over cached numbers (docs/decisions/0013-hot-loops.md).
CONE_SECONDS = 1.4e-9


def cone_seconds(data: Data, n_nodes: int) -> float:
    """Time of the factors of the integrand, by count."""
    return CONE_SECONDS * data.n_samples * (data.n_labels - 1) * n_nodes


def products(X: FloatArray, n_components: int) -> Work:
    """The two products with X, (N, D)."""
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((X.shape[1], n_components))
    latent = rng.standard_normal((X.shape[0], n_components))
    return Work(run=lambda _: (X @ projection, X.T @ latent))


def factorisations(data: Data, precision: FloatArray, variance: float) -> Work:
    """For every distinct phi_s, (D, 1) or (D, R): Cholesky factor and triangular inverse.

    With few samples the three calls of Woodbury's identity: product, Cholesky factor, solution.
    """
    design = data.design
    if not isinstance(design, DenseDesign):
        return Work(run=lambda _: None)
    if design.prefers_rows:
        return Work(
            prepare=lambda: [np.asfortranarray(design.X / np.sqrt(phi)) for phi in precision.T],
            run=lambda rows: [_by_rows(X, variance) for X in rows],
        )
    return Work(
        prepare=lambda: [
            np.asfortranarray(design.gram / variance + np.diag(phi)) for phi in precision.T
        ],
        run=lambda matrices: [_by_features(matrix) for matrix in matrices],
    )


def _by_features(matrix: FloatArray) -> None:
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    _, info = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    assert info == 0


def _by_rows(X: FloatArray, variance: float) -> None:
    start = np.eye(len(X), order="F")
    matrix = blas.dsyrk(1.0, X, variance, start, lower=1, overwrite_c=1)
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    blas.dtrsm(1.0, factor, X, lower=1, overwrite_b=1)
