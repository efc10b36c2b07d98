"""Placing rows by what their features say alone: the lowest point of eq. (14) of [1]_.

All rows take Newton steps at once, each start with its own trust region and its own end, so that
no row changes the answer of another. The function and its derivatives are those of
:mod:`~bsdr_models.dgplvm.decoder`.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. International Conference on Machine Learning 24.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats.qmc import Halton

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dgplvm.decoder import CHUNK, Decoder, Evaluation, FeatureMoments, Targets, times

# Cells per axis of the grid on which a search begins: at most a quarter of a length-scale wide,
# within these limits for one and for two components.
_CELLS = {1: (80, 400), 2: (32, 64)}
# Points scattered for more components, about the training positions and this much wider.
_N_SPREAD, _WIDTH = 1000, 1.3
_MARGIN = 0.25  # of the grid on each side, as a share of the range of the positions
_MAX_ITER = 100
# Newton's method squares an error: a step that promises less than this, relative to 1 + |f|, is
# the last one.
_LAST_GAIN = 1e-11
_ROUNDING = 1e-13
_FLAT = 1e-8  # smallest curvature that a step divides by; the prior alone has 1

# A position of the row before, (R,), to mean (R,) and variance of the next one.
type Transition = Callable[[FloatArray], tuple[FloatArray, float]]


@dataclass(frozen=True, kw_only=True)
class InferredLatent:
    """Where rows lie. M rows, R components.

    latent
        Lowest point found of eq. (14), (M, R).
    cov
        Inverse of the second derivatives there, (M, R, R): the normal that best fits the posterior
        of the position near it.
    value
        Eq. (14) with all constants, in nats, (M,).
    log_density
        Log density of the features given the position, untempered and without the prior, (M,).
    converged
        Whether the search of the row has ended by itself, (M,).
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
    """Place new rows at the lowest point of eq. (14).

    Parameters
    ----------
    features : (M, D)
    starts : (M, S, R), optional
        More points to begin at, row by row.
    n_starts : int
        How many of the lowest hollows of a grid (one and two components) or of scattered points
        a row begins at, beside the best training position.
    temper : float
        t: features that repeat each other are fewer than D measurements.
    """
    return _search(decoder, decoder.targets(features), starts, n_starts, temper)


def infer_latent_left_out(
    decoder: Decoder, features: FloatArray, *, n_starts: int = 4, temper: float = 1.0
) -> InferredLatent:
    """Place every training row (N, D) by the decoder of the other N - 1.

    Exact, by a change of rank one, with the kernel as it is and the others where they are. What
    it gives are the fair counterparts of new rows: see :func:`tail_probability`.

    Raises
    ------
    ValueError
        If there are not N rows.
    """
    targets = replace(decoder.targets(features), left_out=np.arange(len(decoder.latent)))
    if len(targets.scores) != len(decoder.latent):
        raise ValueError(f"the training rows are {len(decoder.latent)}, got {len(features)}")
    return _search(decoder, targets, None, n_starts, temper)


def infer_latent_sequence(
    decoder: Decoder,
    features: FloatArray,
    transition: Transition,
    *,
    n_starts: int = 4,
    temper: float = 1.0,
) -> InferredLatent:
    """Place the rows of a sequence (M, D) in turn, each with the one before as its prior.

    The first row has the prior N(0, I) of eq. (14), every later one N(mean, variance I) by
    `transition` of the position before. A filter: what follows does not change what was.
    """
    placed: list[InferredLatent] = []
    candidates = _candidates(decoder)
    for row in np.asarray(features, dtype=np.float64)[:, None, :]:
        mean, variance = (None, 1.0) if not placed else transition(placed[-1].latent[0])
        start = None if mean is None else np.reshape(mean, (1, 1, -1))
        targets = decoder.targets(row, prior_mean=mean, prior_variance=variance)
        placed.append(_search(decoder, targets, start, n_starts, temper, candidates))
    return _join(placed)


def _candidates(decoder: Decoder) -> "_Candidates":
    """LatentCoordinates at which a search may begin: a grid or a scatter, and the training rows."""
    X, R = decoder.latent, decoder.latent.shape[1]
    if R in _CELLS:
        few, many = _CELLS[R]
        reach = np.ptp(X, axis=0).max() * (1.0 + 2.0 * _MARGIN)
        cells = np.clip(np.ceil(4.0 * reach / decoder.lengthscale), few, many)
        hollows = grid_points(landscape_grid(X, n=int(cells) + 1))
    else:
        normal = ndtri(Halton(R, scramble=False).random(_N_SPREAD + 1)[1:])
        hollows = np.vstack([X, X.mean(axis=0) + _WIDTH * X.std(axis=0) * normal])
    n_near = min(3**R, 2 * R + 5, len(hollows))
    near = KDTree(hollows).query(hollows, k=n_near)[1].reshape(len(hollows), -1)
    positions = np.vstack([hollows, X])
    return _Candidates(images=decoder.feature_moments(positions), near=near[:, 1:])


def _search(
    decoder: Decoder,
    targets: Targets,
    starts: FloatArray | None,
    n_starts: int,
    temper: float,
    candidates: "_Candidates | None" = None,
) -> InferredLatent:
    """Rows in chunks; the best end of every row."""
    candidates = _candidates(decoder) if candidates is None else candidates
    (N, R), C = decoder.latent.shape, len(candidates.images.latent)
    chunk = max(1, CHUNK // max(4 * C, (n_starts + 1) * (4 + 3 * R) * N))
    placed = []
    for first in range(0, max(len(targets.scores), 1), chunk):
        rows = slice(first, first + chunk)
        part = _take(targets, rows)
        begin, useful = candidates.best(
            decoder.evaluate_all(part, candidates.images, temper=temper), n_starts
        )
        if starts is not None:
            more = np.broadcast_to(starts[rows], (len(begin), *starts.shape[1:]))
            begin = np.concatenate([begin, more], axis=1)
            useful = np.column_stack([useful, np.ones(more.shape[:2], np.bool_)])
        which = np.nonzero(useful)  # row and start of each point that is moved
        x, found, converged = _descend(decoder, begin[which], _take(part, which[0]), temper)
        value, point = np.full(useful.shape, np.inf), np.zeros(useful.shape, np.int64)
        value[which], point[which] = found.value, np.arange(len(x))
        best = np.take_along_axis(point, value.argmin(axis=1)[:, None], axis=1)[:, 0]
        curvature, axes = np.linalg.eigh(found.hessian[best])
        scaled = axes / np.maximum(curvature, _FLAT)[:, None, :]
        placed.append(
            InferredLatent(
                latent=x[best],
                cov=scaled @ axes.mT,
                value=found.value[best],
                log_density=found.log_density[best],
                converged=converged[best],
            )
        )
    return _join(placed)


def _descend(
    decoder: Decoder, start: FloatArray, targets: Targets, temper: float
) -> tuple[FloatArray, Evaluation, BoolArray]:
    """Newton's method with a trust region for each of P points, (P, R)."""
    x, now = start.copy(), decoder.evaluate(start, targets, temper=temper)
    radius = np.full(len(x), 0.5 * decoder.lengthscale)
    converged = np.zeros(len(x), dtype=np.bool_)
    going = np.arange(len(x))
    for _ in range(_MAX_ITER):
        here = _take(now, going)
        step, promised = _newton_step(here, radius[going])
        then = decoder.evaluate(x[going] + step, _take(targets, going), temper=temper)
        gain, size = here.value - then.value, 1.0 + np.abs(here.value)
        last = promised <= _LAST_GAIN * size
        # What the last step gains may be less than rounding.
        taken = gain > np.where(last, -_ROUNDING * size, 0.1 * promised)
        length = np.linalg.norm(step, axis=1)
        grow = (gain > 0.75 * promised) & (length > 0.99 * radius[going])
        wider = np.minimum(2.0 * radius[going], 2.0 * decoder.lengthscale)
        wider = np.where(grow, wider, radius[going])
        radius[going] = np.where(gain < 0.25 * promised, 0.25 * length, wider)
        x[going[taken]] += step[taken]
        for name, values in vars(now).items():
            values[going[taken]] = getattr(then, name)[taken]
        converged[going] = last
        going = going[~last]
        if not len(going):
            break
    return x, now, converged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Where a search may begin: C positions, of which the last N are the training rows.

    near
        Neighbours of each of the first len(near) ones.
    """

    images: FeatureMoments
    near: IntArray

    def best(self, value: FloatArray, n_starts: int) -> tuple[FloatArray, BoolArray]:
        """Lowest hollows and the best training row by `value` (M, C): (M, n_starts + 1, R).

        Some rows have fewer hollows; the second array (M, n_starts + 1) says which starts are any.
        """
        n_hollows = len(self.near)
        hollows = value[:, :n_hollows].copy()
        for column in self.near.T:
            hollows[value[:, :n_hollows] > value[:, column]] = np.inf
        chosen = np.argsort(hollows, axis=1, kind="stable")[:, :n_starts]
        row = n_hollows + value[:, n_hollows:].argmin(axis=1)
        useful = np.isfinite(np.take_along_axis(hollows, chosen, axis=1))
        useful = np.column_stack([useful, np.ones(len(value), np.bool_)])
        return self.images.latent[np.column_stack([chosen, row])], useful


def landscape_grid(
    latent: FloatArray, *, n: int = 60, margin: float = _MARGIN
) -> tuple[FloatArray, ...]:
    """Axes of a grid over positions (N, R): R arrays (n,), with a margin on each side.

    The margin is a share of the largest range, the same for all axes.
    """
    low, high = latent.min(axis=0), latent.max(axis=0)
    room = margin * (float((high - low).max()) or 1.0)
    return tuple(np.linspace(a - room, b + room, n) for a, b in zip(low, high, strict=True))


def grid_points(axes: tuple[FloatArray, ...]) -> FloatArray:
    """All points of a grid, (n_1 ... n_R, R); the last axis runs fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def tail_probability(log_density: FloatArray, reference: FloatArray) -> FloatArray:
    """How usual rows are: the share of usual rows that are no more likely, (M,).

    Parameters
    ----------
    log_density : (M,)
        Of rows at their places.
    reference : (N,)
        The same of the training rows, each placed without itself
        (:func:`infer_latent_left_out`).

    Returns
    -------
    (M,)
        (1 + number of reference rows not above) / (1 + N). Novel rows have small ones: of rows
        like the training rows about a share q lies below q.
    """
    below = np.searchsorted(np.sort(reference), log_density, side="right")
    return np.asarray((1.0 + below) / (1.0 + len(reference)))


def _newton_step(here: Evaluation, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Downhill step (P, R) no longer than the radius, and the gain that the parabola promises.

    Along axes of negative curvature the step has the length of a positive one of that size.
    """
    curvature, axes = np.linalg.eigh(here.hessian)
    slope = times(axes.mT, here.gradient)
    step = -slope / np.maximum(np.abs(curvature), _FLAT)
    step *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
    promised = -np.sum(step * (slope + 0.5 * curvature * step), axis=1)
    return times(axes, step), promised


def _take[T: (Targets, Evaluation)](record: T, rows: IntArray | slice) -> T:
    """Some of the rows of every array."""
    arrays = {name: value[rows] for name, value in vars(record).items() if value is not None}
    return replace(record, **arrays)


def _join(parts: list[InferredLatent]) -> InferredLatent:
    """Rows of all parts, in their order."""
    names = vars(parts[0])
    return InferredLatent(**{n: np.concatenate([vars(part)[n] for part in parts]) for n in names})
