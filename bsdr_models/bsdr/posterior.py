r"""Latent coordinates and predictions from draws of the model at full rank.

The posterior predictive distribution is the mean of the class probabilities over draws. On real
data draws of a linear predictor differ more than the data justify, and it is under-confident. Its
logarithm is therefore divided by a temperature T (temperature scaling [1]_),

.. math::
    p_T(k \mid x) = (1 - \epsilon) \frac{p(k \mid x)^{1/T}}{\sum_j p(j \mid x)^{1/T}}
    + \frac{\epsilon}{K} .

T = 1 is the posterior predictive. Temperature and class frequencies
(:mod:`bsdr_models.estimators.calibration`) affect predictions only, not the posterior.

References
----------
.. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017). On calibration of modern neural
       networks. ICML.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial

import numpy as np
from scipy.special import ndtr
from sklearn.utils import gen_batches

from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.feature_map import FeatureMap
from bsdr_models.estimators.calibration import Calibration, Link
from bsdr_models.learned_metric.metric import weigh
from bsdr_models.numerics.arrays import FloatArray, IntArray, Target
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.latent import LatentCoordinates, spread

# The posterior predictive as it is.
PREDICTIVE = Calibration()
# Linear predictors held in memory at once.
_BLOCK = 1 << 21
# Most samples of a block.
_CHUNK = 8192
# Draws of which class probabilities are means,
_MEAN_DRAWS = 600
# and those that colour a map.
_GRID_DRAWS = 100
# Smallest size of a linear predictor, by which others are divided.
_TINY = 1e-300
# Size of a direction of latent coordinates, relative to the largest, that is a rounding error.
_NO_DIRECTION = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """S draws of the parameters that predictions need, with a component for each contrast."""

    projection: FloatArray  # of whitened features, with the scales of views, (S, R, B)
    scale: FloatArray  # tau, (S,)
    weights: FloatArray  # C, (S, R, K)
    bias: FloatArray  # C'b, centred over classes, (S, K)
    noise_scale: FloatArray | None  # sigma of real outputs, (S, K)
    outside: FloatArray  # standard normals of what whitened features do not determine, (S, R)
    view_scale: FloatArray | None = None  # lambda, (S, V); None for one view

    def take(self, index: IntArray | slice) -> "Parameters":
        """A subset of the draws."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{k: v[index] for k, v in values.items() if v is not None})

    def recentred(self, most: int) -> "Parameters":
        """At most so many evenly spaced draws, moved to have the mean of all.

        Linear predictors then have their mean over all draws, and means of their nonlinear
        functions err by less.
        """
        if len(self.scale) <= most:
            return self
        few = self.take(evenly_spaced(len(self.scale), most))
        shift = self.projection.mean(axis=0) - few.projection.mean(axis=0)
        bias = self.bias.mean(axis=0) - few.bias.mean(axis=0)
        return replace(few, projection=few.projection + shift, bias=few.bias + bias)

    def latent(
        self,
        whitened: FloatArray,
        outside: FloatArray | None = None,
        missing: FloatArray | None = None,
    ) -> FloatArray:
        """Latent coordinates (S, M, R) of samples from their whitened features (M, B).

        ``outside``, (M,) or (M, V), is the prior standard deviation, for tau = 1, of what these do
        not determine in each view, zero for training samples; ``missing``, (S, R, R), the
        covariance from whitened features that all of these samples lack.
        """
        flat = self.projection.reshape(-1, self.projection.shape[2])
        z = (whitened @ flat.T).reshape(len(whitened), *self.projection.shape[:2])
        if outside is not None:
            sd = outside.reshape(len(outside), -1)  # relative to tau, (M, 1) or (M, S)
            if self.view_scale is not None:
                sd = np.sqrt(outside**2 @ self.view_scale.T**2)
            if missing is None:
                z += sd[..., None] * (self.scale[:, None] * self.outside)
            else:  # the root of the sum of both covariances
                value, vector = np.linalg.eigh(missing)
                size = np.sqrt(np.maximum(value, 0.0) + ((sd * self.scale) ** 2)[..., None])
                turned = (np.swapaxes(vector, 1, 2) @ self.outside[..., None])[..., 0]
                z += (vector @ (size * turned)[..., None])[..., 0]
        return np.swapaxes(z, 0, 1)

    def linear_predictor(
        self, whitened: FloatArray, outside: FloatArray | None = None
    ) -> FloatArray:
        """eta of samples, (S, M, K)."""
        return self.latent(whitened, outside) @ self.weights + self.bias[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    r"""Latent coordinates that the likelihood identifies.

    With F(x) the posterior mean of the linear predictor, they are
    :math:`u(x) = V^\top (F(x) - \bar F)`, where the columns of V are the leading eigenvectors of
    the covariance of the class means of F (of F itself if targets are not classes): canonical
    variates in units of the probit noise, or of the output. There are R of them, as many as
    contrasts, but at most as whitened features.

    Labels of nearly separable classes leave the size of the linear predictor open upwards, and a
    few draws of great size would determine its mean. The predictor of labels is therefore scaled to
    one size in all draws, the median root mean square over the training samples.
    """

    coefficients: FloatArray  # mean of P C over draws, so scaled, (B, K)
    axes: FloatArray  # V, (K, R)
    shift: FloatArray  # V' times the mean linear predictor without bias, (R,)
    share: FloatArray  # of each axis in the variance between classes, (R,)
    # Least-squares affine maps of the contrasts of each draw to u on the training samples, the
    # constant first.
    maps: FloatArray  # (S, 1 + J, R)

    @classmethod
    def learn(
        cls,
        whitened: FloatArray,
        y: np.ndarray,
        target: Target,
        draws: Parameters,
        sample_weight: FloatArray | None = None,
    ) -> "Coordinates":
        """Identified coordinates from whitened training samples (N, B), targets, and all draws."""
        s, j, b = draws.projection.shape
        r = min(j, b)
        rows = _triangular(whitened, sample_weight)  # in place of the samples of every draw
        ones = rows[:, :1]
        X = rows[:, 1:]
        z = draws.latent(X)
        weights = draws.weights
        if target != "regression":
            weights = weights * _size_factor(z, weights)[:, None, None]
        flat = draws.projection.reshape(s * j, b)
        coefficients = flat.T @ weights.reshape(s * j, -1) / s
        linear = whitened @ coefficients  # (N, K)
        one = np.ones(len(linear)) if sample_weight is None else sample_weight
        mean = np.average(linear, axis=0, weights=one)
        if target == "multiclass":
            own = [y == label for label in np.unique(y)]
            means = np.stack([np.average(linear[i], axis=0, weights=one[i]) for i in own])
            spread = means - means.mean(axis=0)
        else:
            spread = weigh(linear - mean, sample_weight)
        _, size, rows = np.linalg.svd(spread, full_matrices=True)
        axes = rows[:r].T
        largest = np.abs(axes).argmax(axis=0)
        axes = axes * np.where(axes[largest, np.arange(r)] < 0.0, -1.0, 1.0)
        variance = np.zeros(r)
        variance[: min(r, len(size))] = size[:r] ** 2
        total = float(np.sum(size**2))
        shift = mean @ axes
        coordinates = X @ (coefficients @ axes) - ones * shift
        full = np.concatenate([np.broadcast_to(ones, (s, *ones.shape)), z], axis=2)
        return cls(
            coefficients=coefficients,
            axes=axes,
            shift=shift,
            share=variance / total if total > 0.0 else np.full(r, 1.0 / r),
            maps=_fit_affine(full, coordinates),
        )

    def embed(self, whitened: FloatArray) -> FloatArray:
        """u of whitened samples, (M, R)."""
        return whitened @ (self.coefficients @ self.axes) - self.shift

    def covariance(self, latent: FloatArray, mean: FloatArray) -> FloatArray:
        """Covariance over draws of the first of u (M, R), (M, R, R), from z (S, M, J)."""
        shown = mean.shape[1]
        return spread(latent @ self.maps[:, 1:, :shown] + self.maps[:, :1, :shown], mean)

    def align(self, draws: Parameters, index: IntArray | slice = slice(None)) -> Parameters:
        """Draws in these coordinates, (S, R, .), with the same linear predictor."""
        draws = draws.take(index)
        maps = self.maps[index]
        shift = maps[:, 0]  # (S, R)
        linear = maps[:, 1:]  # (S, J, R)
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


def _size_factor(latent: FloatArray, weights: FloatArray) -> FloatArray:
    """Factors (S,) that give draws of the linear predictor their median size.

    From latent coordinates (S, M, J) of the rows of `_triangular` and weights (S, J, K).
    """
    centred = latent[:, 1:] @ weights  # the constant has the first row
    size = np.sqrt(np.sum(centred**2, axis=(1, 2)))
    return np.asarray(np.median(size) / np.maximum(size, _TINY))


def _triangular(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Triangular factor of (1, X), X (N, B), in blocks of samples: (M, 1 + B), M at most 1 + B.

    Its rows have the sums of squares and the least-squares fits of all samples.
    """
    rows = np.empty((0, 1 + X.shape[1]))
    for block in gen_batches(len(X), max(_CHUNK, X.shape[1])):
        part = np.insert(X[block], 0, 1.0, axis=1)
        part = weigh(part, None if weights is None else weights[block])
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


def log_probabilities(eta: FloatArray, target: Target, lapse: float) -> FloatArray:
    """Log of the mean over draws of class probabilities, from eta (M, S, K): (M, K).

    Of label sets those of both values of each label, (M, K, 2).
    """
    if target == "multiclass":
        return np.log(probit_choice.mean_probabilities(eta, lapse))
    both = np.stack([ndtr(-eta).mean(axis=1), ndtr(eta).mean(axis=1)], axis=-1)
    return np.log((1.0 - lapse) * both + lapse / 2.0)


def temper(log_p: FloatArray, temperature: float, lapse: float) -> FloatArray:
    """Log probabilities (..., K) at a temperature, normalised, with the lapse as before."""
    if temperature == 1.0:
        return log_p
    scaled = log_p / temperature
    scaled -= np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return np.logaddexp(math.log1p(-lapse) + scaled, math.log(lapse / log_p.shape[-1]))


def class_log_probabilities(
    eta: FloatArray, target: Target, lapse: float, calibration: Calibration = PREDICTIVE
) -> FloatArray:
    """Calibrated log probabilities of classes, or of each label being 1, (M, K).

    From linear predictors by draw, (M, S, K).
    """
    log_p = calibration.apply(log_probabilities(eta, target, lapse), link_of(lapse))
    if target == "multiclass":
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    return np.minimum(log_p[..., 1], 0.0)


def link_of(lapse: float) -> Link:
    """Log probabilities (..., K) at a temperature, from those at one."""
    return partial(temper, lapse=lapse)


@dataclass(frozen=True, kw_only=True)
class BSDRPosterior:
    """Posterior draws for predictions, and the number of latent coordinates that are shown."""

    feature_map: FeatureMap
    draws: Parameters
    coordinates: Coordinates
    calibration: Calibration  # of class probabilities
    target: Target
    lapse: float
    n_components: int

    def components(self) -> FloatArray:
        """Effects of the features on the coordinates (loadings), (R, D)."""
        axes = self.coordinates.axes[:, : self.n_components]
        return (self.feature_map.effects @ (self.coordinates.coefficients @ axes)).T

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features (D, K) and intercept (K,), means over draws."""
        draws = self.draws
        mean = np.tensordot(draws.projection, draws.weights, ([0, 1], [0, 1])) / len(draws.scale)
        effects = self.feature_map.effects
        at_zero = self.feature_map.whiten(np.zeros((1, len(effects))))[0]
        return effects @ mean, draws.bias.mean(axis=0) + at_zero @ mean

    @property
    def share(self) -> FloatArray:
        """Share of each coordinate in the variance between classes, (R,)."""
        return self.coordinates.share[: self.n_components]

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates of scaled samples (M, D), (M, R)."""
        return self.coordinates.embed(self.feature_map.whiten(X))[:, : self.n_components]

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of scaled samples (M, D), with their covariances."""
        mean = self.latent(X)
        cov = np.empty((*mean.shape, mean.shape[1]))
        for part, latent in self._latent(X):
            cov[part] = self.coordinates.covariance(latent, mean[part])
        return LatentCoordinates(mean=mean, cov=cov)

    def undetermined(self, X: FloatArray) -> FloatArray:
        """Share of the prior variance of samples that training samples do not determine, (M,)."""
        outside = np.sum(self.feature_map.outside_sd(X) ** 2, axis=1)
        return outside / (outside + np.sum(self.feature_map.whiten(X) ** 2, axis=1))

    def __getstate__(self) -> dict[str, object]:
        """The fields, without what is derived from them, which files need not hold."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _averaged(self) -> tuple[Parameters, FloatArray]:
        """Draws of which class probabilities are means, and their effects, (B, S K)."""
        draws = self.draws.recentred(_MEAN_DRAWS)
        effects = np.swapaxes(draws.projection, 1, 2) @ draws.weights  # (S, B, K)
        by_feature = np.ascontiguousarray(np.swapaxes(effects, 0, 1))
        return draws, by_feature.reshape(len(by_feature), -1)

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes, or of each label being 1: (M, K).

        Means over at most 600 draws, recentred: on digits and Wine they differ from those over 4000
        draws by .001 in the mean, less than another ``random_state`` changes them. Without
        what the training samples do not determine: its posterior is the prior, and it would only
        add the same noise to the scores of all classes.
        """
        draws, effects = self._averaged
        out = np.empty((len(X), draws.bias.shape[1]))
        for part, whitened, residuals in self.feature_map.blocks(X, _block(draws)):
            bias = draws.bias
            if residuals is not None:
                origin = np.zeros((1, whitened.shape[1]))
                nothing = np.zeros((1, self.feature_map.n_views))
                lacking = _spread(draws, residuals)
                bias = bias + (draws.latent(origin, nothing, lacking) @ draws.weights)[:, 0]
            out[part] = self._calibrated((whitened @ effects).reshape(-1, *bias.shape) + bias)
        return out

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R), by at most 100 draws.

        Of a sample whose other coordinates are those of the mean of the training samples; what all
        samples share, the shift, scale and shear of each draw, is averaged over.
        """
        kept = evenly_spaced(len(self.draws.scale), _GRID_DRAWS)
        aligned = self.coordinates.align(self.draws, kept)
        weights = aligned.weights[:, : self.n_components]
        out = np.empty((len(latent), aligned.bias.shape[1]))
        for part in gen_batches(len(latent), _block(aligned)):
            eta = latent[part] @ weights + aligned.bias[:, None]
            out[part] = self._calibrated(np.swapaxes(eta, 0, 1))
        return out

    def _calibrated(self, eta: FloatArray) -> FloatArray:
        """Normalised log probabilities from eta (M, S, K), (M, K)."""
        return class_log_probabilities(eta, self.target, self.lapse, self.calibration)

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of real outputs, (M, K) each."""
        assert self.draws.noise_scale is not None
        noise = np.mean(self.draws.noise_scale**2, axis=0)
        mean, std = (np.empty((len(X), len(noise))) for _ in range(2))
        for part, latent in self._latent(X):
            eta = latent @ self.draws.weights + self.draws.bias[:, None]
            mean[part] = eta.mean(axis=0)
            std[part] = np.sqrt(eta.var(axis=0) + noise)
        return mean, std

    def _latent(self, X: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Blocks of scaled samples, and their latent coordinates by draw."""
        for part, whitened, residuals in self.feature_map.blocks(X, _block(self.draws)):
            missing = None if residuals is None else _spread(self.draws, residuals)
            sd = self.feature_map.outside_sd(X[part])
            yield part, self.draws.latent(whitened, sd, missing)


def _spread(draws: Parameters, residuals: FloatArray) -> FloatArray:
    """Covariance (S, R, R) of latent coordinates from residuals (N, B) of missing views."""
    moments = residuals.T @ residuals / len(residuals)
    return draws.projection @ moments @ np.swapaxes(draws.projection, 1, 2)


def _block(draws: Parameters) -> int:
    """Number of samples whose linear predictors under the draws fit into memory."""
    return int(np.clip(_BLOCK // draws.bias.size, 1, _CHUNK))
