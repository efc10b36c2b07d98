r"""Normal posteriors of weighted ridge regressions with a common design matrix.

.. math::
    N(S A^\top l,\; S), \qquad S = (p I + A^\top \operatorname{diag}(h) A)^{-1}

for one A, (N, P), and many precisions p, weights h and right-hand sides l. For few samples it is
solved through :math:`B = I + D A A^\top D`, :math:`D = \operatorname{diag}(h / p)^{1/2}`:
:math:`S A^\top = A^\top D B^{-1} D^{-1} / p` and
:math:`A S A^\top = D^{-1} (I - B^{-1}) D^{-1} / p`, without a matrix of order P.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from bsdr_models.arrays import FloatArray

# N / P at which both algorithms take about equal time.
_ROWS_PER_COORDINATE = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Summaries of one normal posterior.

    mean
        (P,).
    trace
        tr S.
    log_det
        log |S|.
    row_variance
        a'S a of the rows of A, (N,); 0 for rows of weight 0.
    """

    mean: FloatArray
    trace: float
    log_det: float
    row_variance: FloatArray


@dataclass(frozen=True, kw_only=True)
class WeightedRidge:
    """Ridge regressions with the design matrix A.

    rows
        A, (N, P).
    """

    rows: FloatArray

    @cached_property
    def gram(self) -> FloatArray:
        """AA', (N, N)."""
        return self.rows @ self.rows.T

    @property
    def prefers_rows(self) -> bool:
        """Whether N x N matrices are cheaper than P x P ones."""
        n, p = self.rows.shape
        return n <= _ROWS_PER_COORDINATE * p

    def solve(self, precision: float, weight: FloatArray, linear: FloatArray) -> Ridge:
        """The posterior for p, h (N,) and l (N,), which must be 0 where h is."""
        if self.prefers_rows:
            return self.solve_by_rows(precision, weight, linear)
        return self.solve_by_coordinates(precision, weight, linear)

    def solve_by_rows(self, precision: float, weight: FloatArray, linear: FloatArray) -> Ridge:
        """See :meth:`solve`; matrices of order N."""
        n, p = self.rows.shape
        root = np.sqrt(weight / precision)
        B = root[:, None] * self.gram * root
        B.flat[:: n + 1] += 1.0
        half, log_det = _half_inverse(B)
        diagonal = np.einsum("ij,ij->j", half, half)
        live = weight > 0.0
        dual = half.T @ (half @ np.divide(linear, root, out=np.zeros(n), where=live))
        return Ridge(
            mean=self.rows.T @ (root * dual) / precision,
            trace=(p - n + float(diagonal.sum())) / precision,
            log_det=-p * float(np.log(precision)) - log_det,
            row_variance=np.divide(1.0 - diagonal, weight, out=np.zeros(n), where=live),
        )

    def solve_by_coordinates(
        self, precision: float, weight: FloatArray, linear: FloatArray
    ) -> Ridge:
        """See :meth:`solve`; matrices of order P."""
        half, log_det = self._half_covariance(precision, weight)
        spread = self.rows @ half.T
        return Ridge(
            mean=half.T @ (half @ (self.rows.T @ linear)),
            trace=float(np.vdot(half, half)),
            log_det=-log_det,
            row_variance=np.where(weight > 0.0, np.einsum("np,np->n", spread, spread), 0.0),
        )

    def covariance(self, precision: float, weight: FloatArray) -> FloatArray:
        """S, (P, P)."""
        half, _ = self._half_covariance(precision, weight)
        return half.T @ half

    def variance(self, rows: FloatArray, precision: float, weight: FloatArray) -> FloatArray:
        """a'S a of any rows, (M, P) -> (M,)."""
        half, _ = self._half_covariance(precision, weight)
        spread = rows @ half.T
        return np.einsum("mp,mp->m", spread, spread)

    def _half_covariance(self, precision: float, weight: FloatArray) -> tuple[FloatArray, float]:
        """L^-1 and log |S^-1|, S^-1 = LL'."""
        weighted = np.sqrt(weight)[:, None] * self.rows
        matrix = weighted.T @ weighted
        matrix.flat[:: len(matrix) + 1] += precision
        return _half_inverse(matrix)


def _half_inverse(matrix: FloatArray) -> tuple[FloatArray, float]:
    """L^-1 for the Cholesky factor L of an SPD matrix, which is overwritten, and its log det."""
    factor, fault = lapack.dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if fault != 0:
        raise np.linalg.LinAlgError("the precision of a ridge problem is not positive definite")
    log_det = 2.0 * float(np.log(np.diagonal(factor)).sum())
    half, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    return half, log_det
