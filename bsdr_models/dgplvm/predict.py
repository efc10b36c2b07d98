"""LatentCoordinates and class probabilities of new rows, from a fit or from draws.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import MapPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.dgplvm.latent_inference import project, project_sequence
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.latent_coordinates import LatentCoordinates

# Rows whose derivatives are held at a time.
CHUNK = 512


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of a row that lies as in any of the parts, each equally probable."""
    means = np.stack([one.mean for one in parts])
    mean = means.mean(axis=0)
    spread = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([one.cov for one in parts], axis=0) + spread)


class Classifier(Protocol):
    """What prediction needs of a classifier of positions."""

    def log_probabilities(self, latent: FloatArray, spread: FloatArray | None = None) -> FloatArray:
        """(M, R) -> (M, K), normalised; ``spread`` (M,) is how uncertain the positions are."""


class Placement(Protocol):
    """A way to place new rows."""

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Rows (M, D), scaled as the model sees them."""

    def latent(self, X: FloatArray) -> FloatArray:
        """The means alone, (M, R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByMap:
    r"""By the back-constraint, [1]_, Eqs. (17)-(18): closed form, no search.

    .. math::
        x(y) \sim N\!\left(m + k_b(y)^\top M (X - 1 m^\top),\;
        s^2 (1 + \omega + \lambda - k_b(y)^\top M k_b(y))\, I\right), \qquad m = X^\top c

    prior
        The map.
    mean
        m, (R,).
    weights
        Of the features of a row in the mean, (P, R).
    scale
        s**2.
    typical_variance
        Mean variance of leave-out positions, without the scale.
    """

    prior: MapPrior
    mean: FloatArray
    weights: FloatArray
    scale: float
    typical_variance: float = 1.0

    @classmethod
    def of(
        cls, prior: MapPrior, latent: FloatArray, scale: float, typical_variance: float = 1.0
    ) -> "ByMap":
        """Condition the map on training positions (N, R)."""
        mean = prior.centre @ latent
        return cls(
            prior=prior,
            mean=mean,
            weights=prior.weights(latent - mean),
            scale=scale,
            typical_variance=typical_variance,
        )

    def latent(self, X: FloatArray) -> FloatArray:
        """Means, (M, R)."""
        return self.mean + self.prior.features(X) @ self.weights

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances; the components are independent."""
        features = self.prior.features(X)
        variance = self.scale * self.prior.variance(features)
        return LatentCoordinates(
            mean=self.mean + features @ self.weights,
            cov=variance[:, None, None] * np.eye(len(self.mean)),
        )

    def latent_and_spread(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and variances in units of the usual one, (M,)."""
        features = self.prior.features(X)
        spread = self.prior.variance(features) / self.typical_variance
        return self.mean + features @ self.weights, spread

    def out_of_range(self, X: FloatArray) -> FloatArray:
        """Variance relative to that of a row infinitely far away, (M,)."""
        return self._relative(self.prior.variance(self.prior.features(X)))

    def out_of_range_left_out(self) -> FloatArray:
        """The same for each training row, as if it were new, (N,)."""
        return self._relative(self.prior.left_out_variance())

    def _relative(self, variance: FloatArray) -> FloatArray:
        far = float(self.prior.variance(self.prior.far_features())[0])
        return np.minimum(variance / far, 1.0)

    def sensitivity(self, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of the position by the features over rows (M, D).

        Returns
        -------
        mean, sd : (D, R)
            Over rows.
        share : (D,)
            Of each feature in the sum of squares over rows and components.
        """
        centres, factors = self.prior.expansion(self.weights)
        decay, n = self.prior.decay, len(X)
        total, square = np.zeros((2, X.shape[1], factors.shape[1]))
        size = max(1, CHUNK * 64 // max(X.shape[1], 64))
        for start in range(0, n, size):
            rows = X[start : start + size]
            kernel = np.exp(-decay * squared_distances(rows, centres))  # (M, m)
            slope = np.einsum("mr,md->mdr", kernel @ factors, rows)
            for r in range(factors.shape[1]):
                slope[:, :, r] -= (kernel * factors[:, r]) @ centres
            slope *= -2.0 * decay
            total += slope.sum(axis=0)
            square += (slope**2).sum(axis=0)
        mean = total / n
        sd = np.sqrt(np.maximum(square / n - mean**2, 0.0))
        share = square.sum(axis=1)
        return mean, sd, share / (share.sum() or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLikelihood:
    """By the features alone, [1]_, Eq. (14): a search for every row.

    decoder
        The generative part.
    temper
        Factor of the log likelihood.
    dynamics
        What follows a position, for rows in the order of time; None without sequences.
    """

    decoder: Decoder
    temper: float
    dynamics: Predictor | None = None

    def latent(self, X: FloatArray) -> FloatArray:
        """Optima, (M, R)."""
        return project(self.decoder, X, temper=self.temper).latent

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Optima, and the inverse second derivatives there."""
        found = project(self.decoder, X, temper=self.temper)
        return LatentCoordinates(mean=found.latent, cov=found.cov)

    def in_sequence(self, X: FloatArray, sequence: np.ndarray) -> LatentCoordinates:
        """The same with the row before as the prior of a row, (M,) sequences by name."""
        mean = np.empty((len(X), self.decoder.latent.shape[1]))
        cov = np.empty((*mean.shape, mean.shape[1]))
        for name in np.unique(sequence):
            rows = np.flatnonzero(sequence == name)
            found = project_sequence(self.decoder, X[rows], self._next, temper=self.temper)
            mean[rows], cov[rows] = found.latent, found.cov
        return LatentCoordinates(mean=mean, cov=cov)

    def _next(self, position: FloatArray) -> tuple[FloatArray, float]:
        if self.dynamics is None:
            raise ValueError("rows of sequences need a fit to sequences")
        mean, variance = self.dynamics.predict(position[None])
        return mean[0], float(variance[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """One set of training positions, and what follows from it for new rows."""

    placement: Placement
    classifier: Classifier

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean positions, (M, R)."""
        return self.placement.latent(X)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """LatentCoordinates of rows (M, D)."""
        return self.placement.embed(X)

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log class probabilities of rows, (M, K)."""
        if isinstance(self.placement, ByMap):
            return self.classifier.log_probabilities(*self.placement.latent_and_spread(X))
        return self.classifier.log_probabilities(self.placement.latent(X))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior:
    """The same for posterior draws of the positions, averaged.

    draws
        Aligned: component r means the same in all of them.
    """

    draws: tuple[Posterior, ...]

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean positions over draws, (M, R)."""
        return np.mean([draw.latent(X) for draw in self.draws], axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the mixture over draws."""
        return mixture([draw.embed(X) for draw in self.draws])

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log of the mean probability over draws, (M, K)."""
        stacked = np.stack([draw.log_probabilities(X) for draw in self.draws])
        return np.asarray(logsumexp(stacked, axis=0) - np.log(len(self.draws)))
