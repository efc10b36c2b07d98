r"""Sums over samples that Laplace's method needs: log likelihood, slope, curvature, and a start.

Of projection, weights and scale the likelihood sees one product only,

.. math::
    \eta_n = C^\top (V^\top F^\top x_n + s_b b), \qquad V = V_0 + A V_\perp,

with F (D, r) and V (r, J) of full rank. The rows of :math:`V_0` and :math:`V_\perp` are an
orthonormal basis of contrasts, so that F and A number the matrices F V of rank r once: no rotation
or stretching of the components is left. Where r = J, V is the identity and there is no A.

Every function is reduced over blocks of samples: it reads a block once and returns a summand.

Letters: n samples of a block, D features, r rank, K classes, J contrasts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.posterior import (
    LOG_SQRT_2PI,
    label_curvature,
    label_log_likelihood,
    make_contrasts,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.sample_blocks import Block
from bsdr_models.numerics.scaled_samples import Rows, scaled_samples
from bsdr_models.numerics.scaling import Scaler

# Samples that are worked on at once.
_CHUNK = 8192


class _Summed:
    """Fields that are added one by one."""

    def __add__(self, other: Any) -> Any:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **{name: a + b for name, (a, b) in pairs.items()})  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is known of targets and features before any parameter.

    target, n_labels, priors
        Of the model.
    scaler
        How the samples of a block enter; None as they are.
    """

    target: Target
    n_labels: int
    priors: HierarchicalPriors
    scaler: Scaler | None = None

    @property
    def contrasts(self) -> FloatArray:
        """C, (J, K)."""
        return make_contrasts(self.n_labels, self.target)

    def chunks(self, block: Block, *, dense: bool = False) -> Iterator[tuple[Rows, np.ndarray]]:
        """Scaled samples and their targets, some at a time; those without a label are left out.

        Scaled in advance if ``dense``, which pays where many Gram matrices are made of them.
        """
        X, y = block.X, block.y
        assert y is not None
        for begin in range(0, X.shape[0], _CHUNK):
            part, own = X[begin : begin + _CHUNK], y[begin : begin + _CHUNK]
            if self.target == "multiclass" and (own < 0).any():
                part, own = part[own >= 0], own[own >= 0]
            if len(own):
                yield scaled_samples(part, self.scaler, seen=not dense), own

    def log_noise(self, standard: FloatArray) -> FloatArray:
        """log sigma, (K,)."""
        return self.priors.noise_location + self.priors.noise_width * standard


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Parameters that the likelihood sees.

    loadings
        F over scaled features, (D, r).
    weights
        V, (r, J).
    bias
        b, (J,), standard normal a priori.
    noise
        Of log sigma, (K,), standard normal a priori; empty but for real outputs.
    """

    loadings: FloatArray
    weights: FloatArray
    bias: FloatArray
    noise: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope(_Summed):
    """Log likelihood of some samples, and its slope in the fields of a :class:`Point`."""

    value: float
    loadings: FloatArray
    weights: FloatArray
    bias: FloatArray
    noise: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSums(_Summed):
    """Sums over scaled samples x and targets y as columns of numbers: what a fit begins with.

    n_samples
        N.
    gram
        Of x x', (D, D).
    fourth
        Of |x|^4.
    cross
        Of x y', (D, K).
    total
        Of x, (D,).
    target_total, target_square
        Of y and y^2, (K,).
    """

    n_samples: int
    gram: FloatArray
    fourth: float
    cross: FloatArray
    total: FloatArray
    target_total: FloatArray
    target_square: FloatArray


def sum_data(block: Block, response: Response) -> DataSums:
    """Sums over a block."""
    d, k = block.X.shape[1], response.n_labels
    zero = np.zeros
    out = DataSums(
        n_samples=0,
        gram=zero((d, d)),
        fourth=0.0,
        cross=zero((d, k)),
        total=zero(d),
        target_total=zero(k),
        target_square=zero(k),
    )
    for rows, y in response.chunks(block):
        if response.target == "multiclass":
            columns = np.equal.outer(y, np.arange(k)).astype(np.float64)
        else:
            columns = np.asarray(y, dtype=np.float64)
        out += DataSums(
            n_samples=len(y),
            gram=rows.gram(),
            fourth=float(np.sum(rows.square_lengths() ** 2)),
            cross=rows.back(columns),
            total=rows.total(),
            target_total=columns.sum(axis=0),
            target_square=np.sum(columns**2, axis=0),
        )
    return out


def sum_log_likelihood(block: Block, shared: tuple[Response, list[Point]]) -> Any:
    """Log likelihood at several points, (S,)."""
    response, points = shared
    s, r = len(points), points[0].loadings.shape[1]
    flat = np.concatenate([p.loadings for p in points], axis=1)
    W = np.stack([p.weights for p in points]) @ response.contrasts
    b = response.priors.bias_scale * np.stack([p.bias for p in points]) @ response.contrasts
    total = np.zeros(s)
    for rows, y in response.chunks(block):
        z = rows.project(flat).reshape(-1, s, r)
        for i, point in enumerate(points):
            eta = z[:, i] @ W[i] + b[i]
            total[i] += _respond(response, eta, y, point.noise)[0]
    return total


def sum_slope(block: Block, shared: tuple[Response, Point]) -> Slope:
    """Log likelihood and its slope."""
    response, point = shared
    C, F = response.contrasts, point.loadings
    W = point.weights @ C
    b = response.priors.bias_scale * point.bias @ C
    value, back = 0.0, np.zeros_like(F)
    weights, bias = np.zeros_like(W), np.zeros(len(b))
    noise = np.zeros_like(point.noise)
    for rows, y in response.chunks(block):
        z = rows.project(F)
        own, slope, of_noise = _respond(response, z @ W + b, y, point.noise)
        value += own
        noise += of_noise
        back += rows.back(slope @ W.T)
        weights += z.T @ slope
        bias += slope.sum(axis=0)
    return Slope(
        value=value,
        loadings=back,
        weights=weights @ C.T,
        bias=response.priors.bias_scale * C @ bias,
        noise=noise,
    )


def sum_curvature(block: Block, shared: tuple[Response, Point, FloatArray]) -> FloatArray:
    """Second derivatives of the log likelihood in (F, A, b, noise), raveled: (P, P).

    Parameters
    ----------
    block : Block
    shared : (Response, Point, ndarray)
        With the rows of V_perp, (J - r, J).

    Notes
    -----
    Utilities are linear in the parameters but for the products of F and A. With H the second
    derivatives of a sample's log likelihood in its contrasts (and its noise), and g the slope,
    those in F are x x' times V H V', those in F and A are x times V H (z V_perp)' + g V_perp'.
    """
    response, point, aside = shared
    C, F = response.contrasts, point.loadings
    r, j = point.weights.shape
    k = len(point.noise)
    W, b = point.weights @ C, response.priors.bias_scale * point.bias @ C
    V = np.concatenate([point.weights, np.zeros((r, k))], axis=1)  # noise is no contrast
    n_aside = r * len(aside)
    n_other = n_aside + j + k
    d = len(F)
    inside = np.zeros((r, d, r, d))
    across = np.zeros((d, r, n_other))
    other = np.zeros((n_other, n_other))
    for rows, y in response.chunks(block, dense=True):
        z = rows.project(F)
        slope, second = _curve(response, z @ W + b, y, point.noise)
        n = len(z)
        # How (A, b, noise) move the contrasts of a sample, (n, n_other, J + K).
        motion = np.zeros((n, n_other, j + k))
        motion[:, :n_aside, :j] = (z[:, :, None, None] * aside).reshape(n, n_aside, j)
        motion[:, n_aside : n_aside + j, :j] = response.priors.bias_scale * np.eye(j)
        motion[:, n_aside + j :, j:] = np.eye(k)
        by_other = motion @ second  # (n, n_other, J + K)
        other += np.tensordot(by_other, motion, axes=([0, 2], [0, 2]))
        mixed = np.swapaxes(by_other @ V.T, 1, 2)  # (n, r, n_other)
        # F and A multiply each other: z_i moves with x, and so does what A_i adds.
        push = slope[:, :j] @ aside.T  # (n, J - r)
        for i in range(r):
            mixed[:, i, i * len(aside) : (i + 1) * len(aside)] += push
        across += rows.back(mixed.reshape(n, -1)).reshape(d, r, n_other)
        by_loadings = np.einsum("ij,njl,ml->nim", V, second, V, optimize=True)
        for i in range(r):
            for m in range(i + 1):
                inside[i, :, m] += rows.gram(by_loadings[:, i, m])
    size = point.loadings.size
    out = np.zeros((size + n_other, size + n_other))
    blocks = out[:size, :size].reshape(len(point.loadings), r, len(point.loadings), r)
    for i in range(r):
        for m in range(i + 1):
            blocks[:, i, :, m] = inside[i, :, m]
            blocks[:, m, :, i] = inside[i, :, m]
    out[:size, :size] = blocks.reshape(size, size)
    out[:size, size:] = across.reshape(size, n_other)
    out[size:, :size] = out[:size, size:].T
    out[size:, size:] = other
    return out


def _respond(
    response: Response, eta: FloatArray, y: np.ndarray, noise: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Log likelihood of samples, its slope in the utilities (n, K), and in the noise (K,)."""
    if response.target != "regression":
        each, slope = label_log_likelihood(eta[None], y, response.target, response.priors.lapse)
        return float(each.sum()), slope[0], np.zeros(0)
    log_sigma = response.log_noise(noise)
    gap = (y - eta) * np.exp(-log_sigma)
    value = -0.5 * np.sum(gap**2) - len(y) * np.sum(log_sigma + LOG_SQRT_2PI)
    of_noise = response.priors.noise_width * (np.sum(gap**2, axis=0) - len(y))
    return float(value), gap * np.exp(-log_sigma), of_noise


def _curve(
    response: Response, eta: FloatArray, y: np.ndarray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slope in contrasts (n, J), second derivatives in contrasts and noise (n, J + K, J + K)."""
    C = response.contrasts
    if response.target != "regression":
        slope, second = label_curvature(eta, y, response.target, response.priors.lapse)
        return slope @ C.T, C @ second @ C.T
    k, width = len(C), response.priors.noise_width
    precision = np.exp(-response.log_noise(noise))
    gap = (y - eta) * precision
    second = np.zeros((len(y), 2 * k, 2 * k))
    own, of_noise = np.arange(k), k + np.arange(k)
    second[:, own, own] = -(precision**2)
    second[:, own, of_noise] = second[:, of_noise, own] = -2.0 * width * gap * precision
    second[:, of_noise, of_noise] = -2.0 * width**2 * gap**2
    return gap * precision, second
