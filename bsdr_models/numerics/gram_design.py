"""The design matrix by its Gram matrix alone, and the algebra that needs no more.

A ridge normal N(S X'z / v, S), S = (diag phi + X'X / v)^-1, is made of X'X and X'z: sums over
rows. Designs that hold the rows share this algebra; see :mod:`bsdr_models.numerics.design`.
"""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Never, Self

import numpy as np
from scipy.linalg import eigh, lapack, solve_triangular

from bsdr_models.numerics.factors import RidgeColumns
from bsdr_models.numerics.linalg import factorise_inplace
from bsdr_models.typing import FloatArray

# target (., R), phi (D,), v -> mean (D, R), diag S, log|S|, tr(X'X S).
type Solve = Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray, float, float]]

# Eigenvalues of a Gram matrix below this many rounding errors of the largest are noise.
_NOISE = 256


def feature_factor(gram: FloatArray, phi: FloatArray, variance: float) -> tuple[FloatArray, float]:
    """Lower factor L of diag(phi) + X'X / v = L L', and its log determinant."""
    matrix = gram.T / variance  # the transpose, for LAPACK's order of the axes
    matrix.reshape(-1, order="A")[:: len(gram) + 1] += phi
    return factorise_inplace(matrix, name="projection precision")


def ridge_by_features(
    gram: FloatArray, cross: FloatArray, phi: FloatArray, variance: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """One D x D factorisation: mean (D, R), diag S, log|S|, tr(X'X S); cross is X'z, (D, R)."""
    factor, log_det = feature_factor(gram, phi, variance)
    half, info = lapack.dtrtri(factor, lower=1, overwrite_c=1)  # S = half' half
    if info != 0:
        raise np.linalg.LinAlgError("projection precision is singular")
    mean = half.T @ (half @ (cross / variance))
    diagonal = np.einsum("ij,ij->j", half, half)
    trace = variance * (len(gram) - float(phi @ diagonal))
    return mean, diagonal, -log_det, trace


def ridge_columns(
    solve: Solve, target: FloatArray, precision: FloatArray, n_features: int, variance: float
) -> RidgeColumns:
    """Ridge normals of all columns, one solution for each distinct phi; no fitted rows.

    Parameters
    ----------
    solve : callable
    target : (., R)
    precision : (D, R), (1, R), (D, 1) or (1, 1)
    n_features : int
        D.
    variance : float
    """
    r = target.shape[1]
    phi = np.broadcast_to(precision, (n_features, precision.shape[1]))
    if precision.shape[1] == 1:
        mean, diagonal, log_det, trace = solve(target, phi[:, 0], variance)
        variances, log_dets, traces = np.repeat(diagonal[:, None], r, axis=1), log_det, trace
        return _columns(mean, variances, log_dets * np.ones(r), traces * np.ones(r))
    parts = [solve(target[:, s : s + 1], phi[:, s], variance) for s in range(r)]
    means, diagonals, each_log_det, each_trace = zip(*parts, strict=True)
    return _columns(
        np.concatenate(means, axis=1),
        np.column_stack(diagonals),
        np.array(each_log_det),
        np.array(each_trace),
    )


def _columns(
    mean: FloatArray, variance: FloatArray, log_det: FloatArray, gram_trace: FloatArray
) -> RidgeColumns:
    return RidgeColumns(
        mean=mean,
        variance=variance,
        log_det=log_det,
        gram_trace=gram_trace,
        fitted=np.empty((0, mean.shape[1])),
    )


def draw_by_features(
    gram: FloatArray, phi: FloatArray, variance: float, noise: FloatArray
) -> FloatArray:
    """Normals (D, S) of covariance S from standard ones."""
    factor, _ = feature_factor(gram, phi, variance)
    drawn: FloatArray = solve_triangular(factor, noise, lower=True, trans="T", check_finite=False)
    return drawn


def row_variance_by_features(
    gram: FloatArray, rows: FloatArray, phi: FloatArray, variance: float
) -> FloatArray:
    """x' S x of rows (M, D): (M,)."""
    factor, _ = feature_factor(gram, phi, variance)
    solved = solve_triangular(factor, rows.T, lower=True, check_finite=False)
    return np.einsum("dm,dm->m", solved, solved)


class WithoutRows:
    """What a design that knows only sums over its rows cannot do."""

    _some_rows: FloatArray | None = None

    def _absent(self) -> Never:
        raise TypeError("this needs the rows of the design, of which only sums are known")

    @property
    def rows(self) -> FloatArray:
        """Not known, but for those of :meth:`with_rows`."""
        if self._some_rows is None:
            self._absent()
        return self._some_rows

    def with_rows(self, rows: FloatArray) -> Self:
        """The same design, with some of its rows to look at, (n, D) in working coordinates."""
        found = copy(self)
        found._some_rows = rows
        return found

    def whitener(self, strength: FloatArray) -> Never:
        """Not known."""
        self._absent()

    def principal_scores(self, n_scores: int) -> FloatArray:
        """Not known."""
        self._absent()

    def project(self, B: FloatArray) -> FloatArray:
        """Not known."""
        self._absent()

    def back(self, A: FloatArray) -> FloatArray:
        """Not known."""
        self._absent()

    def ridge(self, target: FloatArray, precision: FloatArray, variance: float) -> RidgeColumns:
        """Not known; see ``ridge_from``."""
        self._absent()

    def weighted(self, weights: FloatArray) -> Never:
        """Not known."""
        self._absent()

    def weighted_variance(self, weights: FloatArray, precision: FloatArray) -> FloatArray:
        """Not known."""
        self._absent()


class FeatureCoordinates:
    """The working coordinates are the features, which miss nothing."""

    def draw_outside(
        self, precision: FloatArray, *, size: tuple[int, int], rng: np.random.Generator
    ) -> FloatArray | float:
        """Nothing."""
        return 0.0

    def coordinates(self, rows: FloatArray) -> FloatArray:
        """The rows themselves."""
        return rows

    def outside(self, rows: FloatArray) -> FloatArray:
        """Zeros."""
        return np.zeros(rows.shape[0])

    def loadings(self, projection: FloatArray) -> FloatArray:
        """The projection itself."""
        return projection

    def loading_variance(self, variance: FloatArray, precision: FloatArray) -> FloatArray:
        """The variances themselves."""
        return variance


class GramDesign(FeatureCoordinates, WithoutRows):
    """X by X'X; the working coordinates are the features.

    Parameters
    ----------
    gram : (D, D)
    n_rows : int
        N.
    """

    def __init__(self, gram: FloatArray, n_rows: int) -> None:
        self.gram = gram
        self.n_rows = n_rows

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.gram)

    @property
    def mean_eigenvalue(self) -> float:
        """tr(X'X) / D."""
        return float(np.trace(self.gram)) / self.n_features

    def ridge_from(self, cross: FloatArray, precision: FloatArray, variance: float) -> RidgeColumns:
        """Ridge normals from X'z, (D, R), without fitted rows; see ``Design.ridge``."""
        solve = partial(ridge_by_features, self.gram)
        return ridge_columns(solve, cross, precision, self.n_features, variance)

    def squared_length(self, B: FloatArray) -> FloatArray:
        """Squared length of the columns of X @ B, for B (D, R): (R,)."""
        return np.einsum("dr,dr->r", B, self.gram @ B)

    def principal_axes(self, n_axes: int) -> FloatArray:
        """Directions of most variation, (D, at most n_axes)."""
        return _axes(self.gram)[1][:, :n_axes]

    def draw(
        self,
        precision: FloatArray,
        variance: float,
        *,
        size: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Draws of N(0, S_s), (S, D, R)."""
        n_draws, r = size
        phi = np.broadcast_to(precision, (self.n_features, r))
        out = np.empty((n_draws, self.n_features, r))
        for s in range(r):
            noise = rng.standard_normal((self.n_features, n_draws))
            out[:, :, s] = draw_by_features(self.gram, phi[:, s], variance, noise).T
        return out

    def row_variance(
        self, rows: FloatArray, precision: FloatArray, variance: float, n_components: int
    ) -> FloatArray:
        """x' S_s x, (M, R)."""
        phi = np.broadcast_to(precision, (self.n_features, precision.shape[1]))
        each = [row_variance_by_features(self.gram, rows, column, variance) for column in phi.T]
        shape = (rows.shape[0], n_components)
        return np.ascontiguousarray(np.broadcast_to(np.column_stack(each), shape))

    def variance_under(self, matrix: FloatArray, precision: FloatArray) -> FloatArray:
        """Diagonal of (diag phi + matrix)^-1, for phi (D,) and another Gram matrix: (D,)."""
        none = np.empty((self.n_features, 0))
        return ridge_by_features(matrix, none, precision, 1.0)[1]


class SpectralCoordinates:
    """Coordinates along the axes of X = U S V', in which the Gram matrix is diagonal.

    basis
        V, (P, r).
    eigenvalues
        Of X'X, (r,).
    """

    basis: FloatArray
    eigenvalues: FloatArray

    @property
    def n_features(self) -> int:
        """The rank r of X."""
        return self.basis.shape[1]

    @property
    def mean_eigenvalue(self) -> float:
        """tr(X'X) / D."""
        return float(self.eigenvalues.mean())

    def _variance(self, precision: FloatArray, variance: float) -> FloatArray:
        """Diagonal of S_s in these coordinates, (D, R)."""
        if precision.shape[0] != 1:
            raise ValueError("spectral coordinates serve a columnwise prior only")
        return 1.0 / (precision + self.eigenvalues[:, None] / variance)

    def ridge_from(self, cross: FloatArray, precision: FloatArray, variance: float) -> RidgeColumns:
        """Ridge normals from X'z, (D, R), without fitted rows; see ``Design.ridge``."""
        diagonal = self._variance(precision, variance) * np.ones(cross.shape[1])
        return _columns(
            diagonal * cross / variance,
            diagonal,
            np.log(diagonal).sum(axis=0),
            self.eigenvalues @ diagonal,
        )

    def draw(
        self,
        precision: FloatArray,
        variance: float,
        *,
        size: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Draws of N(0, S_s), (S, D, R)."""
        n_draws, r = size
        noise = rng.standard_normal((n_draws, self.n_features, r))
        return np.sqrt(self._variance(precision, variance)) * noise

    def row_variance(
        self, rows: FloatArray, precision: FloatArray, variance: float, n_components: int
    ) -> FloatArray:
        """x' S_s x, (M, R)."""
        return rows**2 @ self._variance(precision, variance)

    def draw_outside(
        self, precision: FloatArray, *, size: tuple[int, int], rng: np.random.Generator
    ) -> FloatArray | float:
        """Prior draws, less their part in the row space."""
        n_features, rank = self.basis.shape
        if rank == n_features:
            return 0.0
        noise = rng.standard_normal((size[0], n_features, size[1])) / np.sqrt(precision)
        return noise - self.basis @ (self.basis.T @ noise)

    def coordinates(self, rows: FloatArray) -> FloatArray:
        """Rows in the basis of the row space."""
        return rows @ self.basis

    def outside(self, rows: FloatArray) -> FloatArray:
        """Squared length outside the row space."""
        missed = rows - self.coordinates(rows) @ self.basis.T
        return np.einsum("mp,mp->m", missed, missed)

    def loadings(self, projection: FloatArray) -> FloatArray:
        """Projection over features."""
        return self.basis @ projection

    def loading_variance(self, variance: FloatArray, precision: FloatArray) -> FloatArray:
        """Marginal variances over features; what lies outside the row space has its prior."""
        squares = self.basis**2
        return squares @ variance + (1.0 - squares.sum(axis=1))[:, None] / precision


class SpectralGramDesign(SpectralCoordinates, WithoutRows):
    """X by the axes of X'X, for a columnwise prior.

    Parameters
    ----------
    gram : (P, P)
    n_rows : int
        N.

    Notes
    -----
    Squared singular values below the rounding of the largest cannot be told from zero, so axes
    along which the rows vary less than about 2e-7 of the largest count as absent.
    """

    def __init__(self, gram: FloatArray, n_rows: int) -> None:
        self.eigenvalues, self.basis = _axes(gram)
        self.n_rows = n_rows

    def squared_length(self, B: FloatArray) -> FloatArray:
        """Squared length of the columns of X @ B, for B (D, R): (R,)."""
        return self.eigenvalues @ B**2

    def principal_axes(self, n_axes: int) -> FloatArray:
        """Directions of most variation, (D, at most n_axes)."""
        return np.eye(self.n_features)[:, :n_axes]

    def variance_under(self, matrix: FloatArray, precision: FloatArray) -> FloatArray:
        """Diagonal over features of (diag phi + matrix)^-1, for phi and matrix inside: (P,)."""
        inside = row_variance_by_features(matrix, self.basis, precision, 1.0)
        return inside + (1.0 - np.sum(self.basis**2, axis=1)) / precision[0]


def _axes(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (r,) above the noise, largest first, and eigenvectors (P, r)."""
    values, vectors = eigh(gram, check_finite=False)
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = max(len(gram), _NOISE) * np.finfo(np.float64).eps
    keep = values > noise * values[0]
    keep[0] = True
    return np.ascontiguousarray(values[keep]), np.ascontiguousarray(vectors[:, keep])
