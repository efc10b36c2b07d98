r"""Draws of the columns of a projection from their ridge normals, for many chains at once.

Column s of chain c is :math:`N(S X^\top l, S)` with
:math:`S = (\operatorname{diag}\phi + a X^\top X)^{-1}`. There are three exact algorithms:

* equal precision for all features: diagonal in the row space of X;
* D <= N: a Cholesky factor L of the D x D precision, :math:`x = L^{-\top}(L^{-1} X^\top l + e)`;
* N < D: perturb and solve, :math:`x = S u` with :math:`u = X^\top(l + \sqrt a\, e_1) +
  \sqrt\phi\, e_2`, which has mean :math:`X^\top l` and covariance :math:`S^{-1}`; S is applied
  through an N x N system [1]_.

References
----------
.. [1] A. Bhattacharya, A. Chakraborty, B. K. Mallick (2016). Fast sampling with Gaussian scale
       mixture priors in high-dimensional regression. Biometrika 103(4).
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.linalg import cholesky

# Stacks of matrices up to this order are factorised in one call.
_STACKED_ORDER = 48


def draw_columns(
    design: DenseDesign,
    linear: FloatArray,
    precision: FloatArray,
    scale: FloatArray,
    *,
    rng: np.random.Generator,
    n_columns: int | None = None,
) -> FloatArray:
    """One draw of B columns for each of C chains, (C, D, B).

    With l (C, N, B), positive phi, (C, D, B), (C, 1, B) or (C, D, 1), and a (C,); a = 0 gives the
    prior. If B is given, l may be of one column for all, (C, N, 1).
    """
    n, d = design.X.shape
    n_chains, n_columns = linear.shape[0], n_columns or linear.shape[2]
    noise = rng.standard_normal((n_chains, d, n_columns))
    if precision.shape[1] == 1:
        return _isotropic(design, linear, precision, scale, noise)
    if precision.shape[2] == n_columns:  # one matrix for each column
        precision = np.swapaxes(precision, 1, 2).reshape(-1, d)
        linear = np.swapaxes(linear, 1, 2).reshape(-1, n, 1)
        noise = np.swapaxes(noise, 1, 2).reshape(-1, d, 1)
        draws = _anisotropic(design, linear, precision, np.repeat(scale, n_columns), noise, rng)
        return np.swapaxes(draws.reshape(n_chains, n_columns, d), 1, 2)
    return _anisotropic(design, linear, precision[:, :, 0], scale, noise, rng)


def draw_deviations(
    design: DenseDesign,
    precision: FloatArray,
    latent_scale: float,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> FloatArray:
    """S draws of deviations of Q from its mean under q, (S, D, R) with ``shape`` (S, R)."""
    n_draws, r = shape
    zero, scale = np.zeros((1, len(design.X), 1)), np.array([latent_scale**-2.0])
    noise = [
        draw_columns(design, zero, phi[None, :, None], scale, rng=rng, n_columns=n_draws)[0]
        for phi in np.broadcast_to(precision, (precision.shape[0], r)).T
    ]  # (D, S) of each component
    return np.stack(noise, axis=2).swapaxes(0, 1)


def _isotropic(
    design: DenseDesign,
    linear: FloatArray,
    precision: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
) -> FloatArray:
    """Draws for phi (C, 1, B): prior draws, shifted and shrunk within the row space."""
    spectral = design.spectral
    inside = precision + scale[:, None, None] * spectral.eigenvalues[:, None]  # (C, r, B)
    shrink = 1.0 / np.sqrt(inside) - 1.0 / np.sqrt(precision)
    moved = (spectral.X.T @ linear) / inside + shrink * (spectral.basis.T @ noise)
    return noise / np.sqrt(precision) + spectral.basis @ moved


def _anisotropic(
    design: DenseDesign,
    linear: FloatArray,
    precision: FloatArray,
    scale: FloatArray,
    noise: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws (M, D, B) for M matrices: phi (M, D), a (M,), l (M, N, B), e_2 (M, D, B)."""
    if design.n_features > design.n_samples:
        extra = rng.standard_normal((*linear.shape[:2], noise.shape[2]))
        rows = zip(linear, precision, scale, noise, extra, strict=True)
        return np.stack([_by_rows(design.X, *row) for row in rows])
    target = design.X.T @ linear
    if design.n_features <= _STACKED_ORDER:
        matrix = scale[:, None, None] * design.gram
        np.einsum("mii->mi", matrix)[...] += precision
        half = np.linalg.inv(cholesky(matrix, name="projection precision"))
        return np.swapaxes(half, 1, 2) @ (half @ target + noise)
    parts = zip(target, precision, scale, noise, strict=True)
    return np.stack([_by_features(design.gram, *part) for part in parts])


def _by_features(
    gram: FloatArray, target: FloatArray, phi: FloatArray, a: float, noise: FloatArray
) -> FloatArray:
    """One D x D factorisation: (D, B)."""
    matrix = a * gram
    np.einsum("ii->i", matrix)[...] += phi
    factor = cholesky(matrix, name="projection precision")
    white = solve_triangular(factor, target, lower=True, check_finite=False) + noise
    return solve_triangular(factor, white, lower=True, trans="T", check_finite=False)


def _by_rows(
    X: FloatArray,
    linear: FloatArray,
    phi: FloatArray,
    a: float,
    noise: FloatArray,
    extra: FloatArray,
) -> FloatArray:
    """One N x N factorisation: (D, B), by Woodbury's identity."""
    half = X / np.sqrt(phi)
    matrix = a * (half @ half.T)
    np.einsum("ii->i", matrix)[...] += 1.0
    factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    white = half.T @ (linear + np.sqrt(a) * extra) + noise  # u / sqrt(phi)
    back = cho_solve(factor, half @ white, check_finite=False)
    return (white - a * (half.T @ back)) / np.sqrt(phi)[:, None]
