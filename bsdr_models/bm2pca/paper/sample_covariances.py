"""Covariances of the latent coordinates of samples, in compact exact forms.

P problems are stacked along the first axis; N samples, R components, K outcomes.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.linalg import cholesky, inv_spd


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisCovariances:
    """S_pn = V_p diag(D_pn) V_p': the precisions of a problem share one eigenbasis.

    axes
        V, (P, R, R), columns need not be orthogonal.
    scales
        D, (P, N, R).
    axes_log_det
        log |V V'|, (P,).
    """

    axes: FloatArray
    scales: FloatArray
    axes_log_det: FloatArray

    @property
    def log_det(self) -> FloatArray:
        """Sum over samples of log |S_pn|, (P,)."""
        each: FloatArray = np.log(self.scales).sum(axis=(1, 2))
        return each + self.scales.shape[1] * self.axes_log_det

    def total(self) -> FloatArray:
        """Sum over samples, (P, R, R)."""
        return (self.axes * self.scales.sum(axis=1)[:, None]) @ np.swapaxes(self.axes, -1, -2)

    def weighted(self, weights: FloatArray) -> FloatArray:
        """Sum over samples of weights[p, n, k] S_pn for every k: (P, K, R, R)."""
        summed = np.swapaxes(weights, 1, 2) @ self.scales  # (P, K, R)
        axes = self.axes[:, None]
        return (axes * summed[..., None, :]) @ np.swapaxes(axes, -1, -2)

    def quadratic(self, forms: FloatArray) -> FloatArray:
        """tr(G_pk S_pn) for symmetric G (P, K, R, R): (P, N, K)."""
        axes = self.axes[:, None]
        diagonal = np.einsum("pkij,pkij->pkj", axes, forms @ axes)
        return self.scales @ np.swapaxes(diagonal, 1, 2)

    def dense(self) -> FloatArray:
        """All of them, (P, N, R, R)."""
        axes = self.axes[:, None]
        return (axes * self.scales[..., None, :]) @ np.swapaxes(axes, -1, -2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedCovariances:
    """Covariances without common structure.

    cov
        (P, N, R, R).
    log_det
        Sum over samples of log |S_pn|, (P,).
    """

    cov: FloatArray
    log_det: FloatArray

    def total(self) -> FloatArray:
        """Sum over samples, (P, R, R)."""
        return self.cov.sum(axis=1)

    def weighted(self, weights: FloatArray) -> FloatArray:
        """Sum over samples of weights[p, n, k] S_pn for every k: (P, K, R, R)."""
        p, n, r, _ = self.cov.shape
        summed = np.swapaxes(weights, 1, 2) @ self.cov.reshape(p, n, r * r)
        return summed.reshape(p, -1, r, r)

    def quadratic(self, forms: FloatArray) -> FloatArray:
        """tr(G_pk S_pn) for symmetric G (P, K, R, R): (P, N, K)."""
        p, n, r, _ = self.cov.shape
        return self.cov.reshape(p, n, r * r) @ np.swapaxes(forms.reshape(p, -1, r * r), 1, 2)

    def dense(self) -> FloatArray:
        """All of them, (P, N, R, R)."""
        return self.cov


type SampleCovariances = AxisCovariances | StackedCovariances


def shared_axes(base: FloatArray, form: FloatArray, weights: FloatArray) -> AxisCovariances:
    r"""Inverses of A_p + w_pn B_p by one simultaneous diagonalisation per problem.

    With A = L L' and :math:`L^{-1} B L^{-\top} = U \operatorname{diag}(\omega) U^\top`, the axes
    are :math:`V = L^{-\top} U` and the scales :math:`1 / (1 + w_{pn} \omega)`. A, positive
    definite, and B, positive semi-definite, are (P, R, R), w is (P, N).
    """
    half = np.linalg.inv(cholesky(base, name="latent precision"))
    half_t = np.swapaxes(half, -1, -2)
    values, vectors = np.linalg.eigh(half @ form @ half_t)
    values = np.maximum(values, 0.0)
    log_det = 2.0 * np.log(np.einsum("pii->pi", half)).sum(axis=-1)
    return AxisCovariances(
        axes=half_t @ vectors,
        scales=1.0 / (1.0 + weights[..., None] * values[:, None]),
        axes_log_det=log_det,
    )


def stacked(precision: FloatArray) -> StackedCovariances:
    """Inverses of one matrix per sample, (P, N, R, R)."""
    cov, log_det = inv_spd(precision, name="latent precision")
    return StackedCovariances(cov=cov, log_det=log_det.sum(axis=1))
