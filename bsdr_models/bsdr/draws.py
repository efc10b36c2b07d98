"""Latent coordinates and predictions from draws of the model at full rank."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray, Target
from bsdr_models.bsdr.held_out import log_probabilities, temper
from bsdr_models.bsdr.posterior import Parameters, Problem
from bsdr_models.bsdr.views import FeatureMap, Views
from bsdr_models.numerics.relevance import LatentCoordinates

# Linear predictors held in memory at once, and samples.
_BLOCK, _CHUNK = 1 << 21, 8192
# Draws that colour a map.
_GRID_DRAWS = 100
# Smallest size of a linear predictor, and of a direction of latent coordinates relative to the
# largest one.
_TINY, _NO_DIRECTION = 1e-300, 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    r"""Latent coordinates that the likelihood identifies.

    The likelihood identifies latent coordinates only up to an invertible affine map. With F(x) the
    posterior mean of the linear predictor, the identified coordinates are
    :math:`u(x) = V^\top (F(x) - \bar F)`, where the columns of V are the leading eigenvectors of
    the covariance of the class means of F (of F itself if targets are not classes): canonical
    variates in units of the probit noise, or of the output.

    Labels of nearly separable classes leave the size of the linear predictor open upwards, and a
    few draws of great size would determine its mean. The predictor of labels is therefore scaled to
    one size in all draws, the median root mean square over the training samples.

    There are R of them, as many as contrasts, but at most as whitened features.

    coefficients
        Mean of P C over draws, so scaled, for whitened features, (B, K).
    axes, shift
        V, (K, R), and V' times the mean linear predictor without bias, (R,).
    share
        Share of each axis in the variance between classes, (R,).
    maps
        A_s, (S, 1 + J, R), least-squares affine maps of the contrasts of each draw to u on the
        training samples; the first row is the constant.
    reliability
        Share of the variance of u that these maps explain, averaged over draws: 1 if all draws
        arrange the training samples alike.
    """

    coefficients: FloatArray
    axes: FloatArray
    shift: FloatArray
    share: FloatArray
    maps: FloatArray
    reliability: float

    @classmethod
    def learn(cls, problem: Problem, draws: Parameters) -> "Coordinates":
        """Identified coordinates from the training samples and all draws."""
        s, j, b = draws.projection.shape
        r = min(j, b)
        rows = _triangular(problem.X)  # in place of the samples of every draw
        ones, X = rows[:, :1], rows[:, 1:]
        z = draws.latent(X)
        weights = draws.weights
        if problem.target != "regression":
            centred = z[:, 1:] @ weights  # the constant has the first row
            n_entries = len(problem.X) * weights.shape[2]
            size = np.sqrt(np.sum(centred**2, axis=(1, 2)) / n_entries)
            weights = weights * (np.median(size) / np.maximum(size, _TINY))[:, None, None]
        flat = draws.projection.reshape(s * j, b)
        coefficients = flat.T @ weights.reshape(s * j, -1) / s
        linear = problem.X @ coefficients  # (N, K)
        if problem.target == "multiclass":
            present = np.unique(problem.y)
            means = np.stack([linear[problem.y == label].mean(axis=0) for label in present])
            spread = means - means.mean(axis=0)
            spread -= spread.mean(axis=1, keepdims=True)
        else:
            spread = linear - linear.mean(axis=0)
        _, size, rows = np.linalg.svd(spread, full_matrices=True)
        axes = rows[:r].T
        largest = np.abs(axes).argmax(axis=0)
        axes = axes * np.where(axes[largest, np.arange(r)] < 0.0, -1.0, 1.0)
        variance = np.zeros(r)
        variance[: min(r, len(size))] = size[:r] ** 2
        total = float(np.sum(size**2))
        shift = linear.mean(axis=0) @ axes
        target = X @ (coefficients @ axes) - ones * shift
        full = np.concatenate([np.broadcast_to(ones, (s, *ones.shape)), z], axis=2)
        maps = _fit_affine(full, target)
        residual = z @ maps[:, 1:] + ones * maps[:, :1] - target
        around = np.sum(target**2)
        return cls(
            coefficients=coefficients,
            axes=axes,
            shift=shift,
            share=variance / total if total > 0.0 else np.full(r, 1.0 / r),
            maps=maps,
            reliability=1.0 - float(np.sum(residual**2)) / (s * around) if around > 0.0 else 0.0,
        )

    def thin(self, index: IntArray) -> "Coordinates":
        """Coordinates with the maps of some draws."""
        return replace(self, maps=self.maps[index])

    def leading(self, n: int) -> "Coordinates":
        """The leading coordinates."""
        return replace(
            self,
            axes=self.axes[:, :n],
            shift=self.shift[:n],
            share=self.share[:n],
            maps=self.maps[..., :n],
        )

    def embed(self, whitened: FloatArray) -> FloatArray:
        """u of whitened samples, (M, R)."""
        return whitened @ (self.coefficients @ self.axes) - self.shift

    def covariance(self, latent: FloatArray, mean: FloatArray) -> FloatArray:
        """Covariance of the coordinates of each sample over draws, (M, R, R).

        Parameters
        ----------
        latent : (S, M, R)
            Latent coordinates under each draw.
        mean : (M, R)
            u.
        """
        residual = latent @ self.maps[:, 1:] + self.maps[:, :1] - mean
        return np.einsum("smr,smq->mrq", residual, residual, optimize=True) / len(residual)

    def align(self, draws: Parameters) -> Parameters:
        """Draws in these coordinates, (S, R, .), with the same linear predictor."""
        shift, linear = self.maps[:, 0], self.maps[:, 1:]  # (S, R), (S, J, R)
        projection = np.swapaxes(linear, 1, 2) @ draws.projection  # (S, R, B)
        if linear.shape[1] == linear.shape[2]:
            weights = np.linalg.pinv(linear, rcond=_NO_DIRECTION) @ draws.weights
        else:
            back = np.swapaxes(np.linalg.pinv(projection), 1, 2)
            weights = back @ np.swapaxes(draws.projection, 1, 2) @ draws.weights
        return replace(
            draws,
            projection=projection,
            weights=weights,
            bias=draws.bias - (shift[:, None] @ weights)[:, 0],
        )


def _triangular(X: FloatArray) -> FloatArray:
    """Triangular factor of (1, X), X (N, B), in blocks of samples: (M, 1 + B), M at most 1 + B.

    Its rows have the sums of squares and the least-squares fits of all samples.
    """
    step = max(_CHUNK, X.shape[1])
    rows = np.empty((0, 1 + X.shape[1]))
    for begin in range(0, len(X), step):
        part = X[begin : begin + step]
        part = np.hstack([np.ones((len(part), 1)), part])
        rows = np.linalg.qr(np.concatenate([rows, part]), mode="r")
    return rows


def _fit_affine(full: FloatArray, target: FloatArray) -> FloatArray:
    """Least-squares affine maps of (S, M, 1 + J), constant first, to a target (M, R)."""
    size = np.sqrt(np.mean(full**2, axis=1, keepdims=True))
    full = full / np.where(size > 0.0, size, 1.0)
    turned = np.swapaxes(full, 1, 2)
    inverse = np.linalg.pinv(turned @ full, rcond=_NO_DIRECTION, hermitian=True)
    found = inverse @ (turned @ target)
    return np.asarray(found / np.where(size > 0.0, size, 1.0)[:, 0, :, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Posterior draws for predictions.

    temperature
        Of class probabilities, see :mod:`bsdr_models.bsdr.held_out`.
    n_components
        Number of latent coordinates that are shown, the leading ones.
    """

    metric: FeatureMap
    draws: Parameters
    coordinates: Coordinates
    temperature: float
    target: Target
    lapse: float
    n_components: int

    def components(self) -> FloatArray | None:
        """Mean gradients of the coordinates in the scaled features, (R, D); None if unknown.

        Of linear maps they are the loadings.
        """
        slopes = self.metric.slopes
        return None if slopes is None else (slopes @ self.combination()).T

    def combination(self) -> FloatArray:
        """Coordinates as combinations of whitened features, (B, R)."""
        return self.coordinates.coefficients @ self.coordinates.axes[:, : self.n_components]

    @property
    def share(self) -> FloatArray:
        """Share of each coordinate in the variance between classes, (R,)."""
        return self.coordinates.share[: self.n_components]

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of scaled samples (M, D), with their covariances."""
        r, shown = self.n_components, self.coordinates.leading(self.n_components)
        mean, cov = np.empty((len(X), r)), np.empty((len(X), r, r))
        for part, whitened, latent in self._latent(X, self.draws.projection.shape[1]):
            mean[part] = shown.embed(whitened)
            cov[part] = shown.covariance(latent, mean[part])
        return LatentCoordinates(mean=mean, cov=cov)

    def feature_relevance(self, X: FloatArray) -> FloatArray:
        """Share of each feature in the squared gradients of eta over samples (N, D), (D,)."""
        combined = self.coordinates.coefficients @ self.coordinates.axes @ self.coordinates.axes.T
        square = sum(np.sum(self.metric.gradient(X, c) ** 2, axis=0) for c in combined.T)
        return np.asarray(square / np.sum(square))

    def undetermined(self, X: FloatArray) -> FloatArray:
        """Share of the prior variance of samples that training samples do not determine, (M,)."""
        outside = np.sum(self.metric.outside_sd(X).reshape(len(X), -1) ** 2, axis=1)
        return outside / (outside + np.sum(self.metric.whiten(X) ** 2, axis=1))

    def log_probabilities(self, X: FloatArray, *, temperature: float | None = None) -> FloatArray:
        """Log probabilities of classes, or of each label being 1: (M, K)."""
        temperature = self.temperature if temperature is None else temperature
        out = np.empty((len(X), self.draws.bias.shape[1]))
        for part, eta in self._linear_predictors(X):
            out[part] = self._tempered(eta, temperature)
        return out

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R), by at most 100 draws.

        Of a sample whose other coordinates are those of the mean of the training samples, and whose
        deviation from u in single draws is zero: what all samples share, the shift, scale and shear
        of each draw, is averaged over.
        """
        kept = self.draws.spaced(_GRID_DRAWS)
        aligned = self.coordinates.thin(kept).align(self.draws.take(kept))
        weights = aligned.weights[:, : self.n_components]
        out = np.empty((len(latent), aligned.bias.shape[1]))
        for part in self._blocks(len(latent), out.shape[1]):
            eta = latent[part] @ weights + aligned.bias[:, None]
            out[part] = self._tempered(eta, self.temperature)
        return out

    def _tempered(self, eta: FloatArray, temperature: float) -> FloatArray:
        """Log probabilities at a temperature from eta (S, M, K), (M, K)."""
        log_p = log_probabilities(eta, self.target, self.lapse)
        log_p = temper(log_p, temperature, self.lapse)
        return log_p if self.target == "multiclass" else log_p[..., 0]

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of real outputs, (M, K) each."""
        assert self.draws.noise_scale is not None
        noise = np.mean(self.draws.noise_scale**2, axis=0)
        mean, std = (np.empty((len(X), len(noise))) for _ in range(2))
        for part, eta in self._linear_predictors(X):
            mean[part], std[part] = eta.mean(axis=0), np.sqrt(eta.var(axis=0) + noise)
        return mean, std

    def _linear_predictors(self, X: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Blocks of scaled samples, and eta of each under all draws.

        Of labels without what the training samples do not determine: its posterior is the prior,
        and it would only add the same noise to the scores of all classes.
        """
        inside = self.target != "regression"
        for part, _, latent in self._latent(X, self.draws.bias.shape[1], inside=inside):
            yield part, latent @ self.draws.weights + self.draws.bias[:, None]

    def _latent(
        self, X: FloatArray, width: int, *, inside: bool = False
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Blocks of scaled samples, their whitened features, and latent coordinates by draw."""
        whitened = self.metric.whiten(X)
        outside = self.metric.outside_sd(X)
        if inside:
            outside = np.zeros_like(outside)
        groups: Any = [(np.arange(len(X)), None)]
        if isinstance(self.metric, Views):
            groups = self.metric.residuals(X)
        for index, residuals in groups:
            missing = None if residuals is None else self.draws.covariance(residuals)
            for block in self._blocks(len(index), width):
                part = index[block]
                yield (
                    part,
                    whitened[part],
                    self.draws.latent(whitened[part], outside[part], missing),
                )

    def _blocks(self, n: int, width: int) -> list[slice]:
        size = max(1, _BLOCK // (len(self.draws.scale) * max(width, 1)))
        return [slice(begin, begin + size) for begin in range(0, n, size)]
