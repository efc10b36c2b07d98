"""Embedding of samples by the likelihood of their features: the minimum of the paper's eq. (14).

Newton steps are vectorised over samples and initialisations, each with its own trust region and
stopping rule, so that results do not depend on the batch. The function and its derivatives are
those of :mod:`~bsdr_models.dgplvm.decoder`.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats.qmc import Halton

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dgplvm.decoder import Decoder, Evaluation, FeatureMoments, Targets, times
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.numerics.relevance import LatentCoordinates

# Local minima among the candidates at which a search begins, beside the best training sample.
N_STARTS = 4
# Quasi-random candidates, and their sd relative to the training samples.
_N_QUASI_RANDOM, _WIDTH = 1000, 1.3
_MAX_ITER = 100
# Predicted decrease, relative to 1 + |f|, below which a step is the last: Newton's method squares
# an error.
_MIN_DECREASE = 1e-11
_ROUNDING = 1e-13
_MIN_CURVATURE = 1e-8  # lower bound of a divisor; that of the prior alone is 1
# Array elements of a chunk of samples: some tens of megabytes.
CHUNK = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredLatent(LatentCoordinates):
    """Latent coordinates at the minimum of eq. (14), with the inverse Hessian as covariance.

    ``value`` (M,) is eq. (14) there, with all constants, in nats.
    """

    value: FloatArray
    converged: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodEmbedder:
    """Embedding by likelihood, Eq. (14) of the paper: a search per sample.

    ``dynamics`` predict the next latent coordinates of a sequence.
    """

    decoder: Decoder
    dynamics: Predictor | None = None

    def latent(self, X: FloatArray) -> FloatArray:
        """Optima of samples (M, D), (M, R)."""
        return self.embed(X).mean

    def embed(self, X: FloatArray) -> InferredLatent:
        """Optima of samples (M, D), and the inverse Hessians there."""
        return _optimise(self.decoder, self.decoder.targets(X), _Candidates.of(self.decoder))

    def embed_left_out(self, X: FloatArray) -> InferredLatent:
        """Embed every training sample (N, D) by the decoder of the others, all else held fixed."""
        targets = replace(self.decoder.targets(X), left_out=np.arange(len(self.decoder.latent)))
        return _optimise(self.decoder, targets, _Candidates.of(self.decoder))

    def embed_sequence(self, X: FloatArray, sequence: np.ndarray) -> LatentCoordinates:
        """Embed the samples of each sequence, named in (M,), in turn, as a filter.

        The prior of a sample is what the dynamics predict from the one before, or N(0, I).
        """
        if self.dynamics is None:
            raise ValueError("samples of sequences need a fit to sequences")
        mean = np.empty((len(X), self.decoder.latent.shape[1]))
        cov = np.empty((*mean.shape, mean.shape[1]))
        candidates = _Candidates.of(self.decoder)
        for name in np.unique(sequence):
            expected: FloatArray | None = None
            prior: dict[str, FloatArray] = {}
            for i in np.flatnonzero(sequence == name):
                targets = self.decoder.targets(X[i : i + 1], **prior)
                found = _optimise(self.decoder, targets, candidates, expected)
                mean[i], cov[i] = found.mean[0], found.cov[0]
                expected, variance = self.dynamics.predict(found.mean)
                prior = {"prior_mean": expected, "prior_variance": variance}
        return LatentCoordinates(mean=mean, cov=cov)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """C candidate initial values: N training samples, then quasi-random points.

    ``neighbours`` are the indices of the neighbours of each.
    """

    n_samples: int
    moments: FeatureMoments
    neighbours: IntArray

    @classmethod
    def of(cls, decoder: Decoder) -> "_Candidates":
        """For the training samples of a decoder."""
        X, R = decoder.latent, decoder.latent.shape[1]
        normal = ndtri(Halton(R, scramble=False).random(_N_QUASI_RANDOM + 1)[1:])
        points = np.vstack([X, X.mean(axis=0) + _WIDTH * X.std(axis=0) * normal])
        n_neighbours = min(3**R, 2 * R + 5, len(points))
        neighbours = KDTree(points).query(points, k=n_neighbours)[1].reshape(len(points), -1)
        moments = decoder.feature_moments(points)
        return cls(n_samples=len(X), moments=moments, neighbours=neighbours[:, 1:])

    def best(self, value: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Lowest local minima and the best training sample by `value` (M, C): (M, S + 1, R).

        The second array (M, S + 1) is false where there are fewer local minima than S.
        """
        minima = value.copy()
        for column in self.neighbours.T:
            minima[value > value[:, column]] = np.inf
        chosen = np.argsort(minima, axis=1, kind="stable")[:, :N_STARTS]
        sample = value[:, : self.n_samples].argmin(axis=1)
        valid = np.isfinite(np.take_along_axis(minima, chosen, axis=1))
        valid = np.column_stack([valid, np.ones(len(value), np.bool_)])
        return self.moments.latent[np.column_stack([chosen, sample])], valid


def _optimise(
    decoder: Decoder,
    targets: Targets,
    candidates: _Candidates,
    start: FloatArray | None = None,
) -> InferredLatent:
    """The best minimum of every sample, in chunks; ``start`` (M, R) is a further initial value."""
    (N, R), C = decoder.latent.shape, len(candidates.moments.latent)
    chunk = max(1, CHUNK // max(4 * C, (N_STARTS + 1) * (4 + 3 * R) * N))
    parts = []
    for first in range(0, max(len(targets.projected), 1), chunk):
        samples = slice(first, first + chunk)
        part = _take(targets, samples)
        initial, valid = candidates.best(decoder.evaluate_all(part, candidates.moments))
        if start is not None:
            initial = np.concatenate([initial, start[samples, None]], axis=1)
            valid = np.column_stack([valid, np.ones(len(initial), np.bool_)])
        index = np.nonzero(valid)  # sample and initialisation of each point
        x, at, converged = _descend(decoder, initial[index], _take(part, index[0]))
        value, point = np.full(valid.shape, np.inf), np.zeros(valid.shape, np.int64)
        value[index], point[index] = at.value, np.arange(len(x))
        best = np.take_along_axis(point, value.argmin(axis=1)[:, None], axis=1)[:, 0]
        curvature, axes = np.linalg.eigh(at.hessian[best])
        scaled = axes / np.maximum(curvature, _MIN_CURVATURE)[:, None, :]
        parts.append((x[best], scaled @ axes.mT, at.value[best], converged[best]))
    mean, cov, value, converged = map(np.concatenate, zip(*parts, strict=True))
    return InferredLatent(mean=mean, cov=cov, value=value, converged=converged)


def _descend(
    decoder: Decoder, start: FloatArray, targets: Targets
) -> tuple[FloatArray, Evaluation, BoolArray]:
    """Newton's method with a trust region for each of P points, (P, R)."""
    x, current = start.copy(), decoder.evaluate(start, targets)
    radius = np.full(len(x), 0.5 * decoder.lengthscale)
    converged = np.zeros(len(x), dtype=np.bool_)
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
        converged[active] = last
        active = active[~last]
        if not len(active):
            break
    return x, current, converged


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
