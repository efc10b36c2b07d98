r"""Prediction for new rows: positions with their uncertainty, scores, label probabilities.

Everything here works row by row, so that a row's result does not depend on its batch, and costs
time linear in the number of rows. Scores of one row share its latent position and are therefore
correlated; the position is integrated by a fixed set of quasi-random normals, the same for all
rows, and the scores given the position in closed form or by one-dimensional quadrature [1]_.

Letters: M new rows, S points over which the position (and the draw of the parameters) is
averaged, R components, K labels.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6), Section II-B3. The score variances printed there
       as scales are squared: the integral over u needs standard deviations.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri
from scipy.stats import qmc

from bsdr_models.bsdr import information
from bsdr_models.bsdr.mean_field import State
from bsdr_models.data import Data
from bsdr_models.numerics import orthant
from bsdr_models.typing import FloatArray, Target

# Quasi-random points over a latent position, and per draw of a sampler.
N_POINTS, N_POINTS_PER_DRAW = 32, 4
# Scores held at once: blocks of rows keep memory flat.
BLOCK = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Predictive distribution of latent positions, one normal per row.

    mean
        (M, R).
    cov
        (M, R, R).
    """

    mean: FloatArray
    cov: FloatArray

    @property
    def std(self) -> FloatArray:
        """Marginal standard deviations, (M, R)."""
        return np.sqrt(np.einsum("mrr->mr", self.cov))


@cache
def cubature(n_components: int, n_points: int = N_POINTS) -> FloatArray:
    """Scrambled Sobol normals with mean exactly 0 and variance exactly 1: (S, R)."""
    sobol = qmc.Sobol(n_components, scramble=True, rng=np.random.default_rng(20130601))
    points = ndtri(sobol.random(n_points))
    points -= points.mean(axis=0)
    points /= points.std(axis=0)
    points.flags.writeable = False
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFieldPosterior:
    """What prediction needs of a mean-field fit.

    state
        Factors of q.
    data
        The training rows, through whose coordinates new rows enter, and their targets.
    latent_scale
        sigma_z.
    outside
        Whether predictions also carry the prior variance of the projection in directions that
        no training row has. Only matters with more features than rows.
    """

    state: State
    data: Data
    latent_scale: float
    outside: bool = True

    @property
    def target(self) -> Target:
        """Kind of response."""
        return self.data.target

    def positions(self, rows: FloatArray) -> Positions:
        """Where new rows lie: mean E[Q]' x*, covariance with all that is known to be unknown.

        The variance of Q is that of :mod:`bsdr_models.bsdr.information`: under q itself a
        position would be far too sure.
        """
        inside = self.data.design.coordinates(rows)
        variance = information.row_variance(inside, self.state, self.data, self.latent_scale)
        variance = variance + self._outside_variance(rows) + self.latent_scale**2
        mean = inside @ self.state.projection.mean
        return Positions(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def training_positions(self) -> Positions:
        """Where the training rows lie, given their labels too.

        Under q, the covariance given Q; what Q adds reaches z_n through Cov(z | Q) / sigma_z**2.
        """
        latent, v = self.state.latent, self.latent_scale**2
        rows = self.data.design.rows
        variance = information.row_variance(rows, self.state, self.data, self.latent_scale)
        carry = latent.cov / v
        cov = latent.cov + np.einsum("rs,ns,qs->nrq", carry, variance, carry)
        return Positions(mean=latent.mean, cov=cov)

    def _outside_variance(self, rows: FloatArray) -> FloatArray:
        """Prior variance of Q' x from directions that no training row has, (M, R) or (M, 1)."""
        precision = self.state.projection_precision.mean
        return self.data.design.outside(rows)[:, None] / precision.mean(axis=0)

    def _moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and marginal variance of the positions under q, each (M, R)."""
        design = self.data.design
        inside = design.coordinates(rows)
        mean = inside @ self.state.projection.mean
        precision = self.state.projection_precision.mean
        variance = design.row_variance(inside, precision, self.latent_scale**2, mean.shape[1])
        if self.outside:
            variance = variance + self._outside_variance(rows)
        return mean, variance + self.latent_scale**2

    def scores(
        self, rows: FloatArray, *, integrate_latent: bool = True
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Means and standard deviations of the scores at the points, by blocks of rows.

        Yields
        ------
        mean, std : (m, S, K)
            With unit-variance probit noise, or the noise of real targets, included.
        """
        mean, variance = self._moments(rows)
        weights = self.state.weights
        points = cubature(mean.shape[1]) if integrate_latent else np.zeros((1, mean.shape[1]))
        noise = np.ones(weights.mean.shape[1])
        if self.state.noise_precision is not None:
            tau = self.state.noise_precision
            noise = tau.rate / np.maximum(tau.shape - 1.0, 0.5)  # E[1 / tau]
        size = max(1, BLOCK // (points.shape[0] * weights.mean.shape[1]))
        for begin in range(0, mean.shape[0], size):
            part = slice(begin, begin + size)
            z = mean[part, None, :] + np.sqrt(variance[part, None, :]) * points
            full = np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1)  # (m, S, 1 + R)
            spread = np.einsum("msp,kpq,msq->msk", full, weights.cov, full, optimize=True)
            yield full @ weights.mean, np.sqrt(noise + spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior:
    """What prediction needs of a sampler: draws, chains already stacked.

    projection, weights, bias
        (S, D, R), (S, R, K), (S, K).
    noise_precision
        (S, K), or None for labels.
    """

    projection: FloatArray
    weights: FloatArray
    bias: FloatArray
    latent_scale: float
    target: Target
    noise_precision: FloatArray | None = None

    def thin(self, n_draws: int) -> "DrawPosterior":
        """At most so many draws, evenly spaced."""
        total = len(self.bias)
        kept = np.unique(np.linspace(0, total - 1, min(n_draws, total)).astype(int))
        tau = self.noise_precision
        return replace(
            self,
            projection=self.projection[kept],
            weights=self.weights[kept],
            bias=self.bias[kept],
            noise_precision=None if tau is None else tau[kept],
        )

    def positions(self, rows: FloatArray) -> Positions:
        """Mean and covariance of z* over draws and latent noise; draws must be aligned."""
        r = self.projection.shape[2]
        mean = rows @ self.projection.mean(axis=0)
        centred = self.projection - self.projection.mean(axis=0)
        cov = np.empty((rows.shape[0], r, r))
        size = max(1, BLOCK // (self.projection.shape[0] * r))
        for begin in range(0, rows.shape[0], size):
            part = slice(begin, begin + size)
            z = np.einsum("md,sdr->msr", rows[part], centred, optimize=True)
            cov[part] = np.einsum("msr,msq->mrq", z, z, optimize=True) / len(centred)
        return Positions(mean=mean, cov=cov + self.latent_scale**2 * np.eye(r))

    def scores(
        self, rows: FloatArray, *, integrate_latent: bool = True
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Means and standard deviations of the scores at the points, by blocks of rows."""
        r = self.projection.shape[2]
        points = cubature(r, N_POINTS_PER_DRAW) if integrate_latent else np.zeros((1, r))
        noise = self.latent_scale * np.einsum("jr,srk->sjk", points, self.weights)
        offset = (noise + self.bias[:, None, :]).reshape(-1, self.bias.shape[1])
        coef = self.projection @ self.weights  # (S, D, K)
        std = np.ones_like(self.bias)
        if self.noise_precision is not None:
            std = 1.0 / np.sqrt(self.noise_precision)
        std = np.repeat(std, len(points), axis=0)
        size = max(1, BLOCK // offset.size)
        for begin in range(0, rows.shape[0], size):
            linear = np.einsum("md,sdk->msk", rows[begin : begin + size], coef, optimize=True)
            mean = np.repeat(linear, len(points), axis=1) + offset
            yield mean, np.broadcast_to(std, mean.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeatures:
    """Prediction that ignores the features: label frequencies, or the spread of real targets.

    log_prob
        Log frequencies (K,), each count raised by one; of "on" for ``"multilabel"``. None for
        real targets.
    mean, std
        Of real targets, (K,), the sum of squares raised by one (targets have unit variance);
        None for labels.
    """

    target: Target
    log_prob: FloatArray | None = None
    mean: FloatArray | None = None
    std: FloatArray | None = None

    @classmethod
    def learn(cls, y: np.ndarray, n_labels: int, target: Target) -> "NoFeatures":
        """From training targets, as in :class:`bsdr_models.data.Data`."""
        if target == "regression":
            mean = y.mean(axis=0)
            variance = (1.0 + np.sum((y - mean) ** 2, axis=0)) / len(y)
            return cls(target=target, mean=mean, std=np.sqrt(variance))
        if target == "multilabel":
            return cls(target=target, log_prob=np.log((y.sum(axis=0) + 1.0) / (len(y) + 2.0)))
        counts = np.bincount(y, minlength=n_labels) + 1.0
        return cls(target=target, log_prob=np.log(counts / counts.sum()))


type Posterior = MeanFieldPosterior | DrawPosterior | NoFeatures


def label_log_probabilities(
    posterior: Posterior, rows: FloatArray, *, integrate_latent: bool = True
) -> FloatArray:
    """Log probabilities of the labels of new rows, (M, K).

    For ``"multiclass"`` rows of the result are normalised; for ``"multilabel"`` each entry is
    the log probability that the label is on.

    Parameters
    ----------
    posterior : MeanFieldPosterior, DrawPosterior or NoFeatures
    rows : (M, P)
        Features, scaled as the training rows were.
    integrate_latent : bool
        Average over the latent position; otherwise it is put at its mean (plug-in).
    """
    if isinstance(posterior, NoFeatures):
        assert posterior.log_prob is not None
        return np.tile(posterior.log_prob, (rows.shape[0], 1))
    out = []
    for mean, std in posterior.scores(rows, integrate_latent=integrate_latent):
        if posterior.target == "multilabel":
            log_p = log_ndtr(mean / std)
        else:
            m, s, k = mean.shape
            flat = orthant.label_log_probs(mean.reshape(-1, k), std.reshape(-1, k))
            log_p = flat.reshape(m, s, k)
        out.append(_log_mean(log_p))
    return np.concatenate(out)


def log_predictive(
    posterior: Posterior, rows: FloatArray, y: np.ndarray, *, integrate_latent: bool = True
) -> FloatArray:
    """Log predictive probability (or density) of the targets of new rows, (M,).

    Parameters
    ----------
    posterior : MeanFieldPosterior, DrawPosterior or NoFeatures
    rows : (M, P)
    y : (M,) of int, (M, K) of bool or (M, K) of float
        As in :class:`bsdr_models.data.Data`.
    integrate_latent : bool
        Average over the latent position; otherwise it is put at its mean (plug-in).
    """
    if posterior.target == "multiclass":
        log_p = label_log_probabilities(posterior, rows, integrate_latent=integrate_latent)
        return log_p[np.arange(len(y)), y]
    if isinstance(posterior, NoFeatures):
        if posterior.log_prob is not None:
            on = posterior.log_prob
            return np.where(y, on, np.log1p(-np.exp(on))).sum(axis=1)
        assert posterior.mean is not None
        assert posterior.std is not None
        return _normal_log_density(y, posterior.mean, posterior.std)
    out, begin = [], 0
    for mean, std in posterior.scores(rows, integrate_latent=integrate_latent):
        part = y[begin : begin + len(mean), None, :]
        begin += len(mean)
        if posterior.target == "multilabel":
            each = log_ndtr(np.where(part, 1.0, -1.0) * mean / std).sum(axis=2)
        else:
            each = _normal_log_density(part, mean, std)
        out.append(_log_mean(each))
    return np.concatenate(out)


def log_likelihood(posterior: DrawPosterior, rows: FloatArray, y: np.ndarray) -> FloatArray:
    """Log p(y_n | x_n, draw) with the latent and the scores integrated out: (S, M)."""
    n_draws, out, begin = len(posterior.bias), [], 0
    for mean, std in posterior.scores(rows):
        m, s, k = mean.shape
        part = y[begin : begin + m, None]
        begin += m
        if posterior.target == "multiclass":
            labels = np.repeat(part[:, 0], s)
            each = orthant.log_prob(mean.reshape(-1, k), labels, n_nodes=16).reshape(m, s)
        elif posterior.target == "multilabel":
            each = log_ndtr(np.where(part, 1.0, -1.0) * mean / std).sum(axis=2)
        else:
            each = _normal_log_density(part, mean, std)
        out.append(_log_mean(np.swapaxes(each.reshape(m, n_draws, -1), 1, 2)))
    return np.concatenate(out).T


def score_moments(
    posterior: Posterior, rows: FloatArray, *, integrate_latent: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the scores (or real targets) of new rows, each (M, K)."""
    if isinstance(posterior, NoFeatures):
        assert posterior.mean is not None
        assert posterior.std is not None
        return (
            np.tile(posterior.mean, (rows.shape[0], 1)),
            np.tile(posterior.std, (rows.shape[0], 1)),
        )
    means, stds = [], []
    for mean, std in posterior.scores(rows, integrate_latent=integrate_latent):
        means.append(mean.mean(axis=1))
        stds.append(np.sqrt((std**2).mean(axis=1) + mean.var(axis=1)))
    return np.concatenate(means), np.concatenate(stds)


def _log_mean(log_p: FloatArray) -> FloatArray:
    """Log of the mean over points, (m, S, ...) -> (m, ...)."""
    return logsumexp(log_p, axis=1) - np.log(log_p.shape[1])


def _normal_log_density(y: FloatArray, mean: FloatArray, std: FloatArray) -> FloatArray:
    """Log density of independent normals, summed over the last axis."""
    return -0.5 * (((y - mean) / std) ** 2 + np.log(2.0 * np.pi * std**2)).sum(axis=-1)
