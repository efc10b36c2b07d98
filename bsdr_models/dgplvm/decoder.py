r"""Decoder: the Gaussian process from latent coordinates to features; embedding by its likelihood.

Given N training samples Y at X, the D features at new latent coordinates x are normal with equal
variances. With k the kernel between x and the training samples, without noise,

.. math::
    \mu(x) = Y^\top v, \quad v = u + A k, \qquad
    \sigma^2(x) = c - 2 u^\top k - k^\top A k,

the paper's eqs. (15) and (16) for :math:`u = 0, A = K^{-1}` and :math:`c = k(x, x)`, noise
included. A constant of each feature with a flat prior, integrated out, has
:math:`A = K^{-1} - K^{-1} 1 1^\top K^{-1} / s`, :math:`u = K^{-1} 1 / s` and
:math:`c = k(x, x) + 1 / s` with :math:`s = 1^\top K^{-1} 1`. The negative log joint density of y
and x is eq. (14), with a factor t on its first part,

.. math::
    f(x) = t \Big[ \tfrac{|y - \mu(x)|^2}{2 \sigma^2(x)} + \tfrac{D}{2} \log 2\pi\sigma^2(x) \Big]
        + \tfrac12 |x|^2 + \tfrac{R}{2} \log 2\pi.

Only the part of y in the row space of Y depends on x, so the cost does not grow with D. Newton
steps are vectorised over samples and initialisations, each with its own trust region and stopping
rule, so that results do not depend on the batch.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.kernels import rbf, squared_distances
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates

LOG_2PI = float(np.log(2.0 * np.pi))
# Training samples at which a search begins.
N_STARTS = 5
_MAX_ITER = 100
# Predicted decrease, relative to 1 + |f|, below which a step is the last: Newton's method squares
# an error.
_MIN_DECREASE = 1e-11
_ROUNDING = 1e-13
_MIN_CURVATURE = 1e-8  # lower bound of a divisor; that of the prior alone is 1
# Array elements of a chunk of samples: some tens of megabytes.
CHUNK = 2**21


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Features of P samples to be embedded, reduced to r <= min(N, D) coordinates.

    ``projected`` (P, r) are coordinates in the row space of the training samples, less the offset,
    and ``residual`` (P,) is the squared norm of the rest; ``left_out`` (P,) is the training sample
    to leave out.
    """

    projected: FloatArray
    residual: FloatArray
    left_out: IntArray | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Eq. (14) at P points: value (P,), gradient (P, R) and hessian (P, R, R)."""

    value: FloatArray
    gradient: FloatArray
    hessian: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The generative part of a fitted model, from :meth:`of`.

    The kernel parameters are in the units of the features and of the latent coordinates (N, R);
    ``temper`` is t; ``offset`` (D,) is Y'u plus the mean of the features if integrated out,
    ``basis`` (D, r) an orthonormal basis of the row space of Y, ``loadings`` (r, N) A Y in this
    basis, transposed, ``root`` (N, N) a root of A, ``mean_weights`` u (N,), and ``max_variance`` c,
    the variance far from all training samples, but for the bias.
    """

    latent: FloatArray
    signal_variance: float
    lengthscale: float
    noise_variance: float
    bias: float
    temper: float
    offset: FloatArray
    basis: FloatArray
    loadings: FloatArray
    root: FloatArray
    mean_weights: FloatArray
    max_variance: float

    @classmethod
    def of(
        cls,
        latent: FloatArray,
        features: FloatArray,
        *,
        signal_variance: float,
        lengthscale: float,
        noise_variance: float,
        bias: float = 0.0,
        temper: float = 1.0,
        integrate_mean: bool = True,
    ) -> "Decoder":
        """Condition the Gaussian process on latent coordinates (N, R) and features (N, D).

        Without ``integrate_mean`` features are centred by the caller, as in the paper.
        """
        centre = features.mean(axis=0) if integrate_mean else np.zeros(features.shape[1])
        Y = features - centre
        K = rbf(latent, None, lengthscale, signal_variance) + bias
        K[np.diag_indices_from(K)] += noise_variance
        root = solve_triangular(cholesky(K, name="kernel matrix"), np.eye(len(K)), lower=True)
        u, max_variance = np.zeros(len(K)), signal_variance + bias + noise_variance
        if integrate_mean:
            ones = root.sum(axis=1)
            total = float(ones @ ones)  # 1'K^-1 1
            u, max_variance = root.T @ ones / total, max_variance + 1.0 / total
            root = root - np.outer(ones / total, ones @ root)
        W = root.T @ (root @ Y)
        wide = Y.shape[1] > len(Y)
        basis, loadings = np.linalg.qr(W.T) if wide else (np.eye(Y.shape[1]), W.T)
        return cls(
            latent=latent,
            signal_variance=float(signal_variance),
            lengthscale=float(lengthscale),
            noise_variance=float(noise_variance),
            bias=float(bias),
            temper=float(temper),
            offset=centre + Y.T @ u,
            basis=basis,
            loadings=loadings,
            root=root,
            mean_weights=u,
            max_variance=max_variance,
        )

    def features(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (M, D) and variance (M,) of the features at latent coordinates (M, R)."""
        k = self._kernel(latent)
        variance = self.max_variance - 2.0 * k @ self.mean_weights
        variance -= np.sum((k @ self.root.T) ** 2, axis=1)
        mean = self.offset + k @ self.loadings.T @ self.basis.T
        return mean, np.maximum(variance, self.noise_variance)

    def fitted(self) -> FloatArray:
        """Mean features of the training samples, in the basis and less the offset, (N, r)."""
        return self._kernel(self.latent) @ self.loadings.T

    def _kernel(self, latent: FloatArray) -> FloatArray:
        """Kernels of latent coordinates (M, R) and those of the training samples, (M, N)."""
        return rbf(latent, self.latent, self.lengthscale, self.signal_variance) + self.bias

    def targets(self, features: FloatArray) -> Targets:
        """Reduce the features of samples (M, D)."""
        y = features - self.offset
        projected = y @ self.basis
        residual = np.sum(y**2, axis=1) - np.sum(projected**2, axis=1)
        wide = len(self.offset) > projected.shape[1]
        return Targets(
            projected=projected,
            residual=np.maximum(residual, 0.0) if wide else 0.0 * residual,
        )

    def evaluate(self, latent: FloatArray, targets: Targets) -> Evaluation:
        """Eq. (14) of P samples at one point each, (P, R), with its first two derivatives."""
        x, D, t, ell2 = latent, len(self.offset), self.temper, self.lengthscale**2
        difference = x[:, :, None] - self.latent.T  # (P, R, N)
        k = self.signal_variance * np.exp(-0.5 / ell2 * np.sum(difference**2, axis=1))
        dk = difference * (-k / ell2)[:, None, :]  # dk/dx
        with_bias = k + self.bias
        g, G = with_bias @ self.root.T, dk @ self.root.T  # root k, and its derivative (P, R, N)
        # Residual in the basis, and the derivative of the mean.
        e, E = targets.projected - with_bias @ self.loadings.T, dk @ self.loadings.T
        s2 = self.max_variance - 2.0 * with_bias @ self.mean_weights - np.sum(g**2, axis=1)
        back_e = np.zeros((1, 1))
        if targets.left_out is not None:  # without one sample: a rank-one update
            h, w = self.root.T[targets.left_out], self.loadings.T[targets.left_out]
            a = np.sum(h**2, axis=1)[:, None]
            v = self.mean_weights[targets.left_out, None] + np.sum(h * g, axis=1)[:, None]
            s2 = s2 + (v**2 / a)[:, 0]
            e, g = e + w * v / a, g - h * v / a
            back_e = h * np.sum(w * e, axis=1)[:, None] / a
        s2 = np.maximum(s2, self.noise_variance)  # it is smaller by rounding only
        ds2 = -2.0 * (dk @ self.mean_weights + times(G, g))
        if targets.left_out is not None:
            dv = times(G, h)[:, :, None] / a[:, None]
            G, E = G - dv * h[:, None], E - dv * w[:, None]
        rho = targets.residual + np.sum(e**2, axis=1)
        drho = -2.0 * times(E, e)

        f_rho, f_s2 = t / (2.0 * s2), 0.5 * t * (D - rho / s2) / s2
        f_mixed, f_s2s2 = -0.5 * t / s2**2, t * (rho / s2 - 0.5 * D) / s2**2
        q = (f_rho[:, None] * back_e - f_s2[:, None] * g) @ self.root  # df/dk / 2, (P, N)
        q -= f_rho[:, None] * (e @ self.loadings) + f_s2[:, None] * self.mean_weights

        mixed = f_mixed[:, None, None] * drho[:, :, None] * ds2[:, None, :]
        hessian = 2.0 * f_rho[:, None, None] * (E @ E.mT) - 2.0 * f_s2[:, None, None] * (G @ G.mT)
        hessian += mixed + mixed.mT + f_s2s2[:, None, None] * ds2[:, :, None] * ds2[:, None, :]
        hessian -= 2.0 * (dk * q[:, None, :]) @ difference.mT / ell2
        of_kernel = 1.0 - 2.0 * np.sum(q * k, axis=1) / ell2
        hessian += of_kernel[:, None, None] * np.eye(x.shape[1])
        log_density = -0.5 * (rho / s2 + D * (np.log(s2) + LOG_2PI))
        prior = np.sum(x**2, axis=1) + x.shape[1] * LOG_2PI
        value, gradient = 0.5 * prior - t * log_density, 2.0 * times(dk, q) + x
        return Evaluation(value=value, gradient=gradient, hessian=hessian)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodEmbedder:
    """Embedding by likelihood, Eq. (14) of the paper: a search per sample."""

    decoder: Decoder

    def latent(self, X: FloatArray) -> FloatArray:
        """Optima of samples (M, D), (M, R)."""
        return self.embed(X).mean

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Optima of samples (M, D), and the inverse Hessians there."""
        return _optimise(self.decoder, self.decoder.targets(X))

    def embed_left_out(self, X: FloatArray) -> LatentCoordinates:
        """Embed every training sample (N, D) by the decoder of the others, all else held fixed."""
        targets = replace(self.decoder.targets(X), left_out=np.arange(len(self.decoder.latent)))
        return _optimise(self.decoder, targets)


def _optimise(decoder: Decoder, targets: Targets) -> LatentCoordinates:
    """The best minimum of every sample, with the inverse Hessian there as covariance, in chunks.

    Initial values are the training samples of the most similar mean features.
    """
    (N, R), fitted = decoder.latent.shape, decoder.fitted()
    chunk = max(1, CHUNK // (N_STARTS * (4 + 3 * R) * N))
    means, covs = [np.empty((0, R))], [np.empty((0, R, R))]
    for first in range(0, len(targets.projected), chunk):
        part = _take(targets, slice(first, first + chunk))
        rows = np.arange(len(part.projected))
        distance = squared_distances(part.projected, fitted)
        if part.left_out is not None:
            distance[rows, part.left_out] = np.inf
        initial = decoder.latent[np.argsort(distance, axis=1, kind="stable")[:, :N_STARTS]]
        n_starts = initial.shape[1]
        x, at = _descend(decoder, initial.reshape(-1, R), _take(part, np.repeat(rows, n_starts)))
        best = n_starts * rows + at.value.reshape(-1, n_starts).argmin(axis=1)
        curvature, axes = np.linalg.eigh(at.hessian[best])
        scaled = axes / np.maximum(curvature, _MIN_CURVATURE)[:, None, :]
        means.append(x[best])
        covs.append(scaled @ axes.mT)
    return LatentCoordinates(mean=np.concatenate(means), cov=np.concatenate(covs))


def _descend(
    decoder: Decoder, start: FloatArray, targets: Targets
) -> tuple[FloatArray, Evaluation]:
    """Newton's method with a trust region for each of P points, (P, R)."""
    x, current = start.copy(), decoder.evaluate(start, targets)
    radius = np.full(len(x), 0.5 * decoder.lengthscale)
    active = np.arange(len(x))
    for _ in range(_MAX_ITER):
        old = _take(current, active)
        step, predicted = _newton_step(old, radius[active])
        new = decoder.evaluate(x[active] + step, _take(targets, active))
        decrease, size = old.value - new.value, 1.0 + np.abs(old.value)
        last = predicted <= _MIN_DECREASE * size
        # The decrease of the last step may be below rounding error.
        accepted = decrease > np.where(last, -_ROUNDING * size, 0.1 * predicted)
        length = np.linalg.norm(step, axis=1)
        grow = (decrease > 0.75 * predicted) & (length > 0.99 * radius[active])
        wider = np.minimum(2.0 * radius[active], 2.0 * decoder.lengthscale)
        wider = np.where(grow, wider, radius[active])
        radius[active] = np.where(decrease < 0.25 * predicted, 0.25 * length, wider)
        x[active[accepted]] += step[accepted]
        for name, values in vars(current).items():
            values[active[accepted]] = getattr(new, name)[accepted]
        active = active[~last]
        if not len(active):
            break
    return x, current


def _newton_step(at: Evaluation, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Descent step (P, R) within the radius, and the decrease that the quadratic model predicts.

    Negative curvatures are replaced by their absolute values.
    """
    curvature, axes = np.linalg.eigh(at.hessian)
    gradient = times(axes.mT, at.gradient)
    step = -gradient / np.maximum(np.abs(curvature), _MIN_CURVATURE)
    step *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
    predicted = -np.sum(step * (gradient + 0.5 * curvature * step), axis=1)
    return times(axes, step), predicted


def _take[T: (Targets, Evaluation)](record: T, index: IntArray | slice) -> T:
    """The indexed rows of every array."""
    arrays = {name: value[index] for name, value in vars(record).items() if value is not None}
    return replace(record, **arrays)


def times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Products of a stack of matrices (P, A, B) with vectors (P, B): (P, A)."""
    return np.asarray((matrix @ vector[:, :, None])[:, :, 0])
