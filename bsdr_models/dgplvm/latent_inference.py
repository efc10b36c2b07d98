"""Embedding of samples by the likelihood of their features: the minimum of the paper's eq. (14).

Newton steps are vectorised over samples and initialisations, each with its own trust region and
stopping rule, so that results do not depend on the batch. The function and its derivatives are
those of :mod:`~bsdr_models.dgplvm.decoder`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats.qmc import Halton

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dgplvm.decoder import CHUNK, Decoder, Evaluation, FeatureMoments, Targets, times

# Limits of the number of grid cells per axis, for one and two components; a cell is at most a
# quarter of a length-scale wide within them.
_CELLS = {1: (80, 400), 2: (32, 64)}
# Quasi-random points for more components, and their sd relative to the training samples.
_N_QUASI_RANDOM, _WIDTH = 1000, 1.3
_MARGIN = 0.25  # of the grid on each side, as a share of the range of the training samples
_MAX_ITER = 100
# Predicted decrease, relative to 1 + |f|, below which a step is the last: Newton's method squares
# an error.
_MIN_DECREASE = 1e-11
_ROUNDING = 1e-13
_MIN_CURVATURE = 1e-8  # lower bound of a divisor; that of the prior alone is 1

# From latent coordinates (R,) to mean (R,) and variance of those of the next sample.
type Transition = Callable[[FloatArray], tuple[FloatArray, float]]


@dataclass(frozen=True, kw_only=True)
class InferredLatent:
    """Latent coordinates of M samples with R components, at the minimum of eq. (14).

    ``cov`` (M, R, R) is the inverse Hessian there, ``value`` (M,) eq. (14) with all constants, in
    nats, and ``log_density`` (M,) the untempered log density of the features.
    """

    latent: FloatArray
    cov: FloatArray
    value: FloatArray
    log_density: FloatArray
    converged: BoolArray


def infer_latent(
    decoder: Decoder,
    features: FloatArray,
    *,
    starts: FloatArray | None = None,
    n_starts: int = 4,
    temper: float = 1.0,
) -> InferredLatent:
    """Embed new samples (M, D) at the minimum of eq. (14).

    The best training sample, the ``n_starts`` lowest local minima of a grid (one and two
    components) or of quasi-random points, and ``starts`` (M, S, R) are the initial values.
    ``temper`` is t, below 1 for correlated features.
    """
    return _optimise(decoder, decoder.targets(features), starts, n_starts, temper)


def infer_latent_left_out(
    decoder: Decoder, features: FloatArray, *, n_starts: int = 4, temper: float = 1.0
) -> InferredLatent:
    """Embed every training sample (N, D) by the decoder of the other N - 1.

    Exact, by a rank-one update, with the kernel and the other latent coordinates held fixed. The
    results are comparable to those of new samples: see :func:`tail_probability`.
    """
    targets = replace(decoder.targets(features), left_out=np.arange(len(decoder.latent)))
    return _optimise(decoder, targets, None, n_starts, temper)


def infer_latent_sequence(
    decoder: Decoder,
    features: FloatArray,
    transition: Transition,
    *,
    n_starts: int = 4,
    temper: float = 1.0,
) -> InferredLatent:
    """Embed the samples of a sequence (M, D) in turn, as a filter.

    The prior is N(0, I) for the first sample, as in eq. (14), and N(mean, variance I) for later
    ones, by `transition` from the latent coordinates of the sample before.
    """
    results: list[InferredLatent] = []
    candidates = _candidates(decoder)
    for sample in np.asarray(features, dtype=np.float64)[:, None, :]:
        mean, variance = (None, 1.0) if not results else transition(results[-1].latent[0])
        start = None if mean is None else np.reshape(mean, (1, 1, -1))
        targets = decoder.targets(sample, prior_mean=mean, prior_variance=variance)
        results.append(_optimise(decoder, targets, start, n_starts, temper, candidates))
    return _join(results)


def _candidates(decoder: Decoder) -> "_Candidates":
    """Candidate initial values: a grid or quasi-random points, and the training samples."""
    X, R = decoder.latent, decoder.latent.shape[1]
    if R in _CELLS:
        few, many = _CELLS[R]
        reach = np.ptp(X, axis=0).max() * (1.0 + 2.0 * _MARGIN)
        cells = np.clip(np.ceil(4.0 * reach / decoder.lengthscale), few, many)
        points = grid_points(X, int(cells) + 1)
    else:
        normal = ndtri(Halton(R, scramble=False).random(_N_QUASI_RANDOM + 1)[1:])
        points = np.vstack([X, X.mean(axis=0) + _WIDTH * X.std(axis=0) * normal])
    n_neighbours = min(3**R, 2 * R + 5, len(points))
    neighbours = KDTree(points).query(points, k=n_neighbours)[1].reshape(len(points), -1)
    moments = decoder.feature_moments(np.vstack([points, X]))
    return _Candidates(moments=moments, neighbours=neighbours[:, 1:])


def _optimise(
    decoder: Decoder,
    targets: Targets,
    starts: FloatArray | None,
    n_starts: int,
    temper: float,
    candidates: "_Candidates | None" = None,
) -> InferredLatent:
    """The best minimum of every sample, in chunks of samples."""
    candidates = _candidates(decoder) if candidates is None else candidates
    (N, R), C = decoder.latent.shape, len(candidates.moments.latent)
    chunk = max(1, CHUNK // max(4 * C, (n_starts + 1) * (4 + 3 * R) * N))
    results = []
    for first in range(0, max(len(targets.projected), 1), chunk):
        samples = slice(first, first + chunk)
        part = _take(targets, samples)
        initial, valid = candidates.best(
            decoder.evaluate_all(part, candidates.moments, temper=temper), n_starts
        )
        if starts is not None:
            more = np.broadcast_to(starts[samples], (len(initial), *starts.shape[1:]))
            initial = np.concatenate([initial, more], axis=1)
            valid = np.column_stack([valid, np.ones(more.shape[:2], np.bool_)])
        index = np.nonzero(valid)  # sample and initialisation of each point
        x, at, converged = _descend(decoder, initial[index], _take(part, index[0]), temper)
        value, point = np.full(valid.shape, np.inf), np.zeros(valid.shape, np.int64)
        value[index], point[index] = at.value, np.arange(len(x))
        best = np.take_along_axis(point, value.argmin(axis=1)[:, None], axis=1)[:, 0]
        curvature, axes = np.linalg.eigh(at.hessian[best])
        scaled = axes / np.maximum(curvature, _MIN_CURVATURE)[:, None, :]
        results.append(
            InferredLatent(
                latent=x[best],
                cov=scaled @ axes.mT,
                value=at.value[best],
                log_density=at.log_density[best],
                converged=converged[best],
            )
        )
    return _join(results)


def _descend(
    decoder: Decoder, start: FloatArray, targets: Targets, temper: float
) -> tuple[FloatArray, Evaluation, BoolArray]:
    """Newton's method with a trust region for each of P points, (P, R)."""
    x, current = start.copy(), decoder.evaluate(start, targets, temper=temper)
    radius = np.full(len(x), 0.5 * decoder.lengthscale)
    converged = np.zeros(len(x), dtype=np.bool_)
    active = np.arange(len(x))
    for _ in range(_MAX_ITER):
        old = _take(current, active)
        step, predicted = _newton_step(old, radius[active])
        new = decoder.evaluate(x[active] + step, _take(targets, active), temper=temper)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """C candidate initial values, of which the last N are the training samples.

    neighbours
        Indices of the neighbours of each of the others.
    """

    moments: FeatureMoments
    neighbours: IntArray

    def best(self, value: FloatArray, n_starts: int) -> tuple[FloatArray, BoolArray]:
        """Lowest local minima and the best training sample by `value` (M, C): (M, n_starts + 1, R).

        The second array (M, n_starts + 1) is false where there are fewer local minima.
        """
        n_points = len(self.neighbours)
        minima = value[:, :n_points].copy()
        for column in self.neighbours.T:
            minima[value[:, :n_points] > value[:, column]] = np.inf
        chosen = np.argsort(minima, axis=1, kind="stable")[:, :n_starts]
        sample = n_points + value[:, n_points:].argmin(axis=1)
        valid = np.isfinite(np.take_along_axis(minima, chosen, axis=1))
        valid = np.column_stack([valid, np.ones(len(value), np.bool_)])
        return self.moments.latent[np.column_stack([chosen, sample])], valid


def grid_points(latent: FloatArray, n: int, margin: float = _MARGIN) -> FloatArray:
    """Points of a grid, n per axis, over latent coordinates (N, R): (n^R, R), in C order.

    The margin on each side is a share of the largest range, the same for all axes.
    """
    low, high = latent.min(axis=0), latent.max(axis=0)
    pad = margin * (float((high - low).max()) or 1.0)
    axes = [np.linspace(a - pad, b + pad, n) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def tail_probability(log_density: FloatArray, reference: FloatArray) -> FloatArray:
    """Empirical p-values (M,): the share of reference values (N,) that are no larger.

    (1 + their number) / (1 + N): about uniform for samples like the training samples, if these are
    the reference, each left out, and small for outliers.
    """
    below = np.searchsorted(np.sort(reference), log_density, side="right")
    return np.asarray((1.0 + below) / (1.0 + len(reference)))


def _newton_step(at: Evaluation, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Descent step (P, R) within the radius, and the decrease that the quadratic model predicts.

    Negative curvatures are replaced by their absolute values.
    """
    curvature, axes = np.linalg.eigh(at.hessian)
    slope = times(axes.mT, at.gradient)
    step = -slope / np.maximum(np.abs(curvature), _MIN_CURVATURE)
    step *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
    predicted = -np.sum(step * (slope + 0.5 * curvature * step), axis=1)
    return times(axes, step), predicted


def _take[T: (Targets, Evaluation)](record: T, index: IntArray | slice) -> T:
    """The indexed rows of every array."""
    arrays = {name: value[index] for name, value in vars(record).items() if value is not None}
    return replace(record, **arrays)


def _join(parts: list[InferredLatent]) -> InferredLatent:
    """Concatenation of the parts."""
    names = vars(parts[0])
    return InferredLatent(**{n: np.concatenate([vars(part)[n] for part in parts]) for n in names})
