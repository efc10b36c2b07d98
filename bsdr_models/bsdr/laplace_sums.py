r"""Sums over samples for Laplace's method: log likelihood, gradient, Hessian, initial statistics.

The likelihood depends on projection, weights and scale by their product only,

.. math::
    \eta_n = C^\top (V^\top F^\top x_n + s_b b), \qquad V = V_0 + A V_\perp,

with F (D, r) and V (r, J) of full rank. The rows of :math:`V_0` and :math:`V_\perp` are an
orthonormal basis of contrasts, so that F and A are identified by the matrix F V of rank r. Where
r = J, V is the identity and there is no A.

Every function reads a block of samples once and returns a sum.

Letters: n samples of a block, D features, r rank, K classes, J contrasts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.posterior import (
    LOG_SQRT_2PI,
    label_derivatives,
    label_log_likelihood,
    make_contrasts,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.sample_blocks import Block
from bsdr_models.numerics.scaled_samples import Rows, scaled_samples
from bsdr_models.numerics.scaling import Scaler

# Samples processed at once.
_CHUNK = 8192


class _Additive:
    """Dataclass whose fields are added one by one."""

    def __add__(self, other: Any) -> Any:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **{name: a + b for name, (a, b) in pairs.items()})  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Type of the targets, priors, and scaler of the samples.

    scaler
        Scales the samples of a block; None if they are scaled.
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
        """Chunks of scaled samples with a label, and their targets.

        ``dense`` scales them in advance, which is faster for many Gram matrices.
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
class Coefficients:
    """Identified parameters of the likelihood.

    loadings, weights
        F for scaled features, (D, r), and V, (r, J).
    bias, noise
        Standard normal a priori: b, (J,), and log sigma, (K,), empty except for regression.
    """

    loadings: FloatArray
    weights: FloatArray
    bias: FloatArray
    noise: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(_Additive):
    """Log likelihood of some samples, and its gradient in the fields of a :class:`Coefficients`."""

    value: float
    loadings: FloatArray
    weights: FloatArray
    bias: FloatArray
    noise: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSums(_Additive):
    """Sufficient statistics of scaled samples x and targets y (classes as indicators).

    gram, cross, total, fourth
        Sums of x x', (D, D), x y', (D, K), x, (D,), and |x|^4.
    target_total, target_square
        Sums of y and y^2, (K,).
    """

    n_samples: int
    gram: FloatArray
    fourth: float
    cross: FloatArray
    total: FloatArray
    target_total: FloatArray
    target_square: FloatArray


def sum_data(block: Block, response: Response) -> DataSums:
    """Sufficient statistics of a block."""
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
    for samples, y in response.chunks(block):
        if response.target == "multiclass":
            columns = np.equal.outer(y, np.arange(k)).astype(np.float64)
        else:
            columns = np.asarray(y, dtype=np.float64)
        out += DataSums(
            n_samples=len(y),
            gram=samples.gram(),
            fourth=float(np.sum(samples.square_lengths() ** 2)),
            cross=samples.back(columns),
            total=samples.total(),
            target_total=columns.sum(axis=0),
            target_square=np.sum(columns**2, axis=0),
        )
    return out


def sum_log_likelihood(block: Block, shared: tuple[Response, list[Coefficients]]) -> Any:
    """Log likelihood of several draws, (S,)."""
    response, draws = shared
    s, r = len(draws), draws[0].loadings.shape[1]
    flat = np.concatenate([p.loadings for p in draws], axis=1)
    W = np.stack([p.weights for p in draws]) @ response.contrasts
    b = response.priors.bias_scale * np.stack([p.bias for p in draws]) @ response.contrasts
    total = np.zeros(s)
    for samples, y in response.chunks(block):
        z = samples.project(flat).reshape(-1, s, r)
        for i, parameters in enumerate(draws):
            eta = z[:, i] @ W[i] + b[i]
            total[i] += _log_likelihood(response, eta, y, parameters.noise)[0]
    return total


def sum_gradient(block: Block, shared: tuple[Response, Coefficients]) -> Gradient:
    """Log likelihood and its gradient."""
    response, parameters = shared
    C, F = response.contrasts, parameters.loadings
    W = parameters.weights @ C
    b = response.priors.bias_scale * parameters.bias @ C
    value, back = 0.0, np.zeros_like(F)
    weights, bias = np.zeros_like(W), np.zeros(len(b))
    noise = np.zeros_like(parameters.noise)
    for samples, y in response.chunks(block):
        z = samples.project(F)
        own, slope, of_noise = _log_likelihood(response, z @ W + b, y, parameters.noise)
        value += own
        noise += of_noise
        back += samples.back(slope @ W.T)
        weights += z.T @ slope
        bias += slope.sum(axis=0)
    return Gradient(
        value=value,
        loadings=back,
        weights=weights @ C.T,
        bias=response.priors.bias_scale * C @ bias,
        noise=noise,
    )


def sum_hessian(block: Block, shared: tuple[Response, Coefficients, FloatArray]) -> FloatArray:
    """Hessian of the log likelihood in (F, A, b, noise), raveled: (P, P).

    Parameters
    ----------
    shared : (Response, Coefficients, ndarray)
        The last is V_perp, (J - r, J).

    Notes
    -----
    With H the Hessian of a sample's log likelihood in its contrasts (and noise) and g the
    gradient, it is x x' times V H V' in F, and x times V H (z V_perp)' + g V_perp' in F and A.
    """
    response, parameters, aside = shared
    C, F = response.contrasts, parameters.loadings
    r, j = parameters.weights.shape
    k = len(parameters.noise)
    W, b = parameters.weights @ C, response.priors.bias_scale * parameters.bias @ C
    V = np.concatenate([parameters.weights, np.zeros((r, k))], axis=1)  # zero for the noise
    n_aside = r * len(aside)
    n_other = n_aside + j + k
    d = len(F)
    inside = np.zeros((r, d, r, d))
    across = np.zeros((d, r, n_other))
    other = np.zeros((n_other, n_other))
    for samples, y in response.chunks(block, dense=True):
        z = samples.project(F)
        slope, second = _derivatives(response, z @ W + b, y, parameters.noise)
        n = len(z)
        # Jacobian of contrasts and noise in (A, b, noise), (n, n_other, J + K).
        motion = np.zeros((n, n_other, j + k))
        motion[:, :n_aside, :j] = (z[:, :, None, None] * aside).reshape(n, n_aside, j)
        motion[:, n_aside : n_aside + j, :j] = response.priors.bias_scale * np.eye(j)
        motion[:, n_aside + j :, j:] = np.eye(k)
        by_other = motion @ second  # (n, n_other, J + K)
        other += np.tensordot(by_other, motion, axes=([0, 2], [0, 2]))
        mixed = np.swapaxes(by_other @ V.T, 1, 2)  # (n, r, n_other)
        # Second derivatives of the products of F and A.
        by_product = slope[:, :j] @ aside.T  # (n, J - r)
        for i in range(r):
            mixed[:, i, i * len(aside) : (i + 1) * len(aside)] += by_product
        across += samples.back(mixed.reshape(n, -1)).reshape(d, r, n_other)
        by_loadings = np.einsum("ij,njl,ml->nim", V, second, V, optimize=True)
        for i in range(r):
            for m in range(i + 1):
                inside[i, :, m] += samples.gram(by_loadings[:, i, m])
    size = parameters.loadings.size
    out = np.zeros((size + n_other, size + n_other))
    blocks = out[:size, :size].reshape(len(parameters.loadings), r, len(parameters.loadings), r)
    for i in range(r):
        for m in range(i + 1):
            blocks[:, i, :, m] = inside[i, :, m]
            blocks[:, m, :, i] = inside[i, :, m]
    out[:size, :size] = blocks.reshape(size, size)
    out[:size, size:] = across.reshape(size, n_other)
    out[size:, :size] = out[:size, size:].T
    out[size:, size:] = other
    return out


def _log_likelihood(
    response: Response, eta: FloatArray, y: np.ndarray, noise: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Log likelihood of samples, its gradients in eta (n, K) and in the noise (K,)."""
    if response.target != "regression":
        each, slope = label_log_likelihood(eta[None], y, response.target, response.priors.lapse)
        return float(each.sum()), slope[0], np.zeros(0)
    log_sigma = response.log_noise(noise)
    residual = (y - eta) * np.exp(-log_sigma)
    value = -0.5 * np.sum(residual**2) - len(y) * np.sum(log_sigma + LOG_SQRT_2PI)
    of_noise = response.priors.noise_width * (np.sum(residual**2, axis=0) - len(y))
    return float(value), residual * np.exp(-log_sigma), of_noise


def _derivatives(
    response: Response, eta: FloatArray, y: np.ndarray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gradient in contrasts (n, J), Hessian in contrasts and noise (n, J + K, J + K)."""
    C = response.contrasts
    if response.target != "regression":
        slope, second = label_derivatives(eta, y, response.target, response.priors.lapse)
        return slope @ C.T, C @ second @ C.T
    k, width = len(C), response.priors.noise_width
    precision = np.exp(-response.log_noise(noise))
    residual = (y - eta) * precision
    second = np.zeros((len(y), 2 * k, 2 * k))
    own, of_noise = np.arange(k), k + np.arange(k)
    second[:, own, own] = -(precision**2)
    second[:, own, of_noise] = second[:, of_noise, own] = -2.0 * width * residual * precision
    second[:, of_noise, of_noise] = -2.0 * width**2 * residual**2
    return residual * precision, second
