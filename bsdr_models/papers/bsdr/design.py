r"""The design matrix as a linear operator: ridge normals and discriminant directions.

The engines use X mostly through the ridge normal N(S_s X' z_s / v, S_s) with S_s = (diag phi_s +
X'X / v)^-1 of each component s. For each distinct phi_s it takes a Cholesky factor and its inverse,
2/3 D^3 flops, or Woodbury's identity, 2 N^2 D + N^3 / 3; under a columnwise prior r R flops, after
one decomposition for the whole run. The D working coordinates of a design may differ from the P
features, to which ``loadings`` maps projections back.

Letters: N training samples, M others, R components s; phi (D, R), (1, R), (D, 1) or (1, 1) are the
precisions and v the variance.

References
----------
.. [1] A. Bhattacharya, A. Chakraborty, B. K. Mallick (2016). Fast sampling with Gaussian scale
       mixture priors in high-dimensional regression. Biometrika 103(4).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack, solve_triangular

from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import cholesky, factorise_inplace, row_space
from bsdr_models.papers.factors import RidgeColumns, draw_normal

# Weight of an isotropic matrix in the covariance of the features of discriminant directions.
SHRINKAGE = 0.1


@dataclass(frozen=True)
class DenseDesign:
    """X itself, (N, D); the working coordinates are the features."""

    X: FloatArray

    @property
    def samples(self) -> FloatArray:
        """The samples over the features, (N, P)."""
        return self.X

    @cached_property
    def gram(self) -> FloatArray:
        """Gram matrix of the features, X'X, (D, D)."""
        return self.X.T @ self.X

    @property
    def prefers_rows(self) -> bool:
        """Whether Woodbury's N x N system is cheaper than the D x D one."""
        n, d = self.X.shape
        return 2.0 * n**2 * d + n**3 / 3.0 < 2.0 * d**3 / 3.0

    def ridge(self, target: FloatArray, precision: FloatArray, variance: float) -> RidgeColumns:
        """Ridge normals of targets z (N, R): the cheaper factorisation for each distinct phi_s."""
        solve = self._ridge_by_rows if self.prefers_rows else self._ridge_by_features
        phi = self._every_feature(precision)
        each = np.ones(target.shape[1])
        distinct = precision.shape[1]  # 1 or R
        means, variances, log_dets, traces = zip(
            *(solve(target[:, s::distinct], phi[:, s], variance) for s in range(distinct)),
            strict=True,
        )
        mean = np.concatenate(means, axis=1)
        return RidgeColumns(
            mean=mean,
            variance=np.column_stack(variances) * each,
            log_det=np.array(log_dets) * each,
            gram_trace=np.array(traces) * each,
            fitted=self.X @ mean,
        )

    def _every_feature(self, precision: FloatArray) -> FloatArray:
        return np.broadcast_to(precision, (self.X.shape[1], precision.shape[1]))

    def _feature_factor(self, phi: FloatArray, variance: float) -> tuple[FloatArray, float]:
        """Lower factor L of diag(phi) + X'X / v = L L', and its log determinant."""
        matrix = self.gram.T / variance  # the transpose, for LAPACK's order of the axes
        matrix.reshape(-1, order="A")[:: self.X.shape[1] + 1] += phi
        return factorise_inplace(matrix, name="projection precision")

    def _ridge_by_features(
        self, target: FloatArray, phi: FloatArray, variance: float
    ) -> tuple[FloatArray, FloatArray, float, float]:
        """One D x D factorisation: mean (D, R), diag S, log|S|, tr(X'X S)."""
        factor, log_det = self._feature_factor(phi, variance)
        half, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)  # S = half' half
        mean = half.T @ (half @ (self.X.T @ target / variance))
        diagonal = np.einsum("ij,ij->j", half, half)
        trace = variance * (self.X.shape[1] - float(phi @ diagonal))
        return mean, diagonal, -log_det, trace

    def _row_factor(self, phi: FloatArray, variance: float) -> tuple[FloatArray, FloatArray, float]:
        """V = L^-1 X diag(phi)^-1/2 with L L' = v I + X diag(1/phi) X'; L; log|L L'|."""
        half = self.X / np.sqrt(phi)
        matrix = (half @ half.T).T
        matrix.reshape(-1, order="A")[:: len(self.X) + 1] += variance
        factor, log_det = factorise_inplace(matrix, name="row covariance")
        return solve_triangular(factor, half, lower=True, check_finite=False), factor, log_det

    def _ridge_by_rows(
        self, target: FloatArray, phi: FloatArray, variance: float
    ) -> tuple[FloatArray, FloatArray, float, float]:
        """One N x N factorisation (Woodbury): mean (D, R), diag S, log|S|, tr(X'X S)."""
        half, factor, log_det = self._row_factor(phi, variance)
        solved = solve_triangular(factor, target, lower=True, check_finite=False)
        mean = (half.T @ solved) / np.sqrt(phi)[:, None]
        share = np.einsum("nd,nd->d", half, half)
        log_det_s = len(self.X) * np.log(variance) - log_det - float(np.log(phi).sum())
        return mean, (1.0 - share) / phi, log_det_s, variance * float(share.sum())

    def row_variance(self, rows: FloatArray, precision: FloatArray, variance: float) -> FloatArray:
        """x' S_s x of new samples for each distinct phi_s: (M, P) -> (M, R) or (M, 1)."""
        columns = self._every_feature(precision).T
        return np.column_stack([self._row_variance(rows, phi, variance) for phi in columns])

    def _row_variance(self, rows: FloatArray, phi: FloatArray, variance: float) -> FloatArray:
        if self.prefers_rows:
            scaled = rows / np.sqrt(phi)
            seen = scaled @ self._row_factor(phi, variance)[0].T
            value = np.einsum("md,md->m", scaled, scaled) - np.einsum("mn,mn->m", seen, seen)
            return np.maximum(value, 0.0)
        factor, _ = self._feature_factor(phi, variance)
        solved = solve_triangular(factor, rows.T, lower=True, check_finite=False)
        return np.einsum("dm,dm->m", solved, solved)

    def draw(
        self,
        linear: FloatArray,
        precision: FloatArray,
        scale: FloatArray,
        *,
        rng: np.random.Generator,
    ) -> FloatArray:
        r"""B draws from each of C normals :math:`N(S X^\top l, S)`, (C, D, B).

        With l (C, N, B), :math:`S = (\operatorname{diag}\phi + a X^\top X)^{-1}`, phi (C, D), or
        (C, 1) if all features share one, and a (C,). If N < D, x = S u with :math:`u =
        X^\top(l + \sqrt a\, e_1) + \sqrt\phi\, e_2`, of mean :math:`X^\top l` and covariance
        :math:`S^{-1}`; S is applied through an N x N system [1]_.
        """
        n, d = self.X.shape
        a = scale[:, None, None]
        root = np.sqrt(precision)[:, :, None]
        if d <= n:
            matrix = a * self.gram
            np.einsum("cii->ci", matrix)[...] += precision
            return draw_normal(matrix, self.X.T @ linear, name="projection precision", rng=rng)
        noise = rng.standard_normal((len(linear), d, linear.shape[2]))
        half = self.X / root.mT  # (C, N, D)
        white = half.mT @ (linear + np.sqrt(a) * rng.standard_normal(linear.shape)) + noise
        system = np.eye(n) + a * (half @ half.mT)
        try:
            back = np.linalg.solve(system, half @ white)
        except np.linalg.LinAlgError:  # the identity is lost beside huge features
            factor = cholesky(system, name="covariance of the samples")
            back = np.linalg.solve(factor.mT, np.linalg.solve(factor, half @ white))
        return (white - a * (half.mT @ back)) / root

    def loadings(self, projection: FloatArray) -> FloatArray:
        """Projection over features: (D, R) -> (P, R)."""
        return projection


@dataclass(frozen=True)
class SpectralDesign:
    """Row space of X = U S V', with working coordinates U S and a diagonal Gram matrix.

    For a columnwise prior, which is invariant to rotations of the features. Directions outside the
    row space are integrated out exactly, so D is the rank r of X (N, P).
    """

    X: FloatArray  # U S, (N, r)
    basis: FloatArray  # V, (P, r)
    eigenvalues: FloatArray  # S**2, (r,)
    samples: FloatArray  # X, (N, P)

    @classmethod
    def of(cls, X: FloatArray) -> "SpectralDesign":
        """The row space of X (N, P)."""
        values, basis = row_space(X)
        return cls(X @ basis, basis, values**2, X)

    def ridge(self, target: FloatArray, precision: FloatArray, variance: float) -> RidgeColumns:
        """Ridge regressions on orthogonal columns, each solved by itself."""
        if precision.shape[0] != 1:
            raise ValueError("spectral coordinates require a columnwise prior")
        diagonal = np.ones(target.shape[1]) / (precision + self.eigenvalues[:, None] / variance)
        mean = diagonal * (self.X.T @ target) / variance
        return RidgeColumns(
            mean=mean,
            variance=diagonal,
            log_det=np.log(diagonal).sum(axis=0),
            gram_trace=self.eigenvalues @ diagonal,
            fitted=self.X @ mean,
        )

    def loadings(self, projection: FloatArray) -> FloatArray:
        """Projection over features: (D, R) -> (P, R)."""
        return self.basis @ projection


type Design = DenseDesign | SpectralDesign


def label_indicators(y: IntArray, n_labels: int) -> FloatArray:
    """One unit-length indicator column per class, (N, K)."""
    indicator = np.equal.outer(y, np.arange(n_labels)).astype(np.float64)
    return indicator / np.sqrt(np.maximum(indicator.sum(axis=0), 1.0))


def discriminant_scores(design: Design, Y: FloatArray, n_scores: int) -> FloatArray:
    """Projections of the samples onto the leading shrunken discriminant directions.

    With Y from :func:`label_indicators` these are those of linear discriminant analysis (optimal
    scoring: the eigenvectors of between- against within-class scatter are those of between-class
    against total scatter); with real targets (N, K), those of a ridge-regularised reduced-rank
    regression. (N, min(n_scores, K)), with zero columns beyond the rank.
    """
    Y = Y - Y.mean(axis=0)
    mean_eigenvalue = float(np.vdot(design.X, design.X)) / design.X.shape[1]
    # Variance for which a ridge penalty of 1 gives this shrinkage.
    variance = mean_eigenvalue * SHRINKAGE / (1.0 - SHRINKAGE)
    fitted = design.ridge(Y, np.ones((1, 1)), variance).fitted
    _, _, directions = np.linalg.svd(Y.T @ fitted)
    return fitted @ directions[:n_scores].T
