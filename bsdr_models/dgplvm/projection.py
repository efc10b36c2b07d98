r"""From positions to features and back: the Gaussian process of a fitted model.

Given the N training rows Y at positions X, features at a new position x are normal with the same
variance for each of the D features. With k the kernel between x and the training positions,

.. math::
    \mu(x) = Y^\top v, \quad v = u + A k, \qquad
    \sigma^2(x) = c - 2 u^\top k - k^\top A k,

which are eqs. (15) and (16) of [1]_ for :math:`u = 0, A = K^{-1}` and :math:`c = k(x, x)`, noise
included. A constant of each feature with a flat prior, integrated out, has
:math:`A = K^{-1} - K^{-1} 1 1^\top K^{-1} / s`, :math:`u = K^{-1} 1 / s` and
:math:`c = k(x, x) + 1 / s` with :math:`s = 1^\top K^{-1} 1`. Noise belongs to a row, not to a
place: k has none of it even where x is the position of a training row.

A new row y is placed at the lowest point of eq. (14), with a factor t on its first part,

.. math::
    f(x) = t \Big[ \tfrac{|y - \mu(x)|^2}{2 \sigma^2(x)} + \tfrac{D}{2} \log 2\pi\sigma^2(x) \Big]
        + \tfrac12 |x|^2 + \tfrac{R}{2} \log 2\pi.

Only the part of y in the span of the training rows depends on x, and that has at most N
coordinates: no step costs more with more features. All rows take Newton steps at once, each with
its own trust region and its own end, so that no row changes the answer of another.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. International Conference on Machine Learning 24.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats.qmc import Halton

from bsdr_models.numerics.linalg import cholesky
from bsdr_models.typing import BoolArray, FloatArray, IntArray

_LOG_2PI = float(np.log(2.0 * np.pi))
# Array elements of one chunk of rows: some tens of megabytes, whatever the number of rows.
_CHUNK = 2**21
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
class Projected:
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


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What the search knows of rows: P rows, r <= min(N, D) coordinates.

    scores
        Less the mean, in the span of the training rows, (P, r).
    outside
        Squared length of the rest, (P,).
    prior_mean, prior_variance
        Of the position, (P, R) and (P,); 0 and 1 in eq. (14).
    left_out
        Training row that the decoder is to forget, (P,); None for none.
    """

    scores: FloatArray
    outside: FloatArray
    prior_mean: FloatArray
    prior_variance: FloatArray
    left_out: IntArray | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Eq. (14) at P points: value (P,), gradient (P, R), hessian (P, R, R), log_density (P,)."""

    value: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    log_density: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The generative part of a fitted model; make one by :meth:`of`.

    latent
        X, positions of the training rows, (N, R).
    signal_variance, lengthscale, noise_variance, bias
        theta_1, 1 / sqrt(theta_2), 1 / theta_4 and theta_3 of eq. (5), in the units of the
        features and of the positions.
    offset
        Y'u, and what was taken off before, (D,).
    basis
        Orthonormal axes of the training rows, (D, r).
    loadings
        A Y in these axes, transposed: (r, N).
    half
        (N, N) with half' half = A.
    mean_weights
        u, (N,).
    ceiling
        c, the variance far from all training rows, but for the bias.
    """

    latent: FloatArray
    signal_variance: float
    lengthscale: float
    noise_variance: float
    bias: float
    offset: FloatArray
    basis: FloatArray
    loadings: FloatArray
    half: FloatArray
    mean_weights: FloatArray
    ceiling: float
    _maps: FloatArray = field(repr=False)  # half' and loadings' side by side, (N, N + r)

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
        integrate_mean: bool = True,
    ) -> "Decoder":
        """Condition the Gaussian process on the training rows: O(N^3 + N^2 D), once.

        Parameters
        ----------
        latent : (N, R)
        features : (N, D)
            Centred by the caller where the mean is not integrated out, as the paper has it.
        signal_variance, lengthscale, noise_variance, bias : float
            See the class.
        integrate_mean : bool
            Whether every feature has a constant of its own with a flat prior.

        Raises
        ------
        ValueError
            If the shapes disagree or a parameter is out of its range.
        """
        X, Y = np.asarray(latent, dtype=np.float64), np.asarray(features, dtype=np.float64)
        if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
            raise ValueError(f"latent {X.shape} and features {Y.shape} must have the same rows")
        if not (min(signal_variance, lengthscale, noise_variance) > 0.0 and bias >= 0.0):
            raise ValueError("variances and the length-scale must be positive, the bias at least 0")
        centre = Y.mean(axis=0) if integrate_mean else np.zeros(Y.shape[1])
        Y = Y - centre
        K = _rbf(X, X, signal_variance, lengthscale)[0] + bias
        K[np.diag_indices_from(K)] += noise_variance
        half = solve_triangular(cholesky(K, name="kernel matrix"), np.eye(len(K)), lower=True)
        u, ceiling = np.zeros(len(K)), signal_variance + bias + noise_variance
        if integrate_mean:
            ones = half.sum(axis=1)
            total = float(ones @ ones)  # 1'K^-1 1
            u, ceiling = half.T @ ones / total, ceiling + 1.0 / total
            half = half - np.outer(ones / total, ones @ half)
        W = half.T @ (half @ Y)
        wide = Y.shape[1] > len(Y)
        basis, loadings = np.linalg.qr(W.T) if wide else (np.eye(Y.shape[1]), W.T)
        return cls(
            latent=X,
            signal_variance=float(signal_variance),
            lengthscale=float(lengthscale),
            noise_variance=float(noise_variance),
            bias=float(bias),
            offset=centre + Y.T @ u,
            basis=basis,
            loadings=loadings,
            half=half,
            mean_weights=u,
            ceiling=ceiling,
            _maps=np.hstack([half.T, loadings.T]),
        )

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.offset)

    def features(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (M, D) and variance (M,) of the features of rows at positions (M, R).

        Eqs. (15) and (16); the variance is that of each feature, noise included.
        """
        _, scores, variance = self._images(np.asarray(latent, dtype=np.float64))
        return self.offset + scores @ self.basis.T, variance

    def log_precision(self, latent: FloatArray, *, prior: bool = False) -> FloatArray:
        r"""How sure the model is of the features at positions (..., R), in nats, (...).

        :math:`-\tfrac{D}{2} \log \sigma^2(x)`, and with the prior :math:`-\tfrac12 |x|^2` more: the
        shades of Fig. 1, whose caption has the wrong sign before the second term.
        """
        x = np.asarray(latent, dtype=np.float64)
        variance = self._images(x.reshape(-1, x.shape[-1]))[2]
        result = -0.5 * self.n_features * np.log(variance).reshape(x.shape[:-1])
        return result - 0.5 * np.sum(x**2, axis=-1) if prior else result

    def targets(
        self,
        features: FloatArray,
        *,
        prior_mean: FloatArray | None = None,
        prior_variance: FloatArray | float = 1.0,
    ) -> Targets:
        """Reduce rows (M, D) to their coordinates; the prior of their positions is N(0, I)."""
        y = np.asarray(features, dtype=np.float64) - self.offset
        scores = y @ self.basis
        rest = np.sum(y**2, axis=1) - np.sum(scores**2, axis=1)
        m = np.zeros((len(y), self.latent.shape[1])) if prior_mean is None else prior_mean
        return Targets(
            scores=scores,
            outside=np.maximum(rest, 0.0) if self.n_features > scores.shape[1] else 0.0 * rest,
            prior_mean=np.broadcast_to(m, (len(y), self.latent.shape[1])),
            prior_variance=np.broadcast_to(np.asarray(prior_variance, np.float64), len(y)),
        )

    def evaluate(self, latent: FloatArray, targets: Targets, *, temper: float = 1.0) -> Evaluation:
        """Eq. (14) of P rows at one point each, (P, R), with its first two derivatives."""
        x, D, t = latent, self.n_features, temper
        N, R, ell2 = len(self.latent), x.shape[1], self.lengthscale**2
        k, away = _rbf(x, self.latent, self.signal_variance, self.lengthscale)
        slope = away * (-k / ell2)[:, None, :]  # dk/dx, (P, R, N)
        images = np.concatenate([(k + self.bias)[:, None, :], slope], axis=1) @ self._maps
        g, G = images[:, 0, :N], images[:, 1:, :N]  # half k, and its slope (P, R, N)
        e, E = targets.scores - images[:, 0, N:], images[:, 1:, N:]  # E is that of the mean
        along = (k + self.bias) @ self.mean_weights
        s2 = self.ceiling - 2.0 * along - np.sum(g**2, axis=1)
        back_e = np.zeros((1, 1))
        if targets.left_out is not None:  # the same without one row: a change of rank one
            h, w = self.half.T[targets.left_out], self.loadings.T[targets.left_out]
            a = np.sum(h**2, axis=1)[:, None]
            v = self.mean_weights[targets.left_out, None] + np.sum(h * g, axis=1)[:, None]
            s2 = s2 + (v**2 / a)[:, 0]
            e, g = e + w * v / a, g - h * v / a
            back_e = h * np.sum(w * e, axis=1)[:, None] / a
        s2 = np.maximum(s2, self.noise_variance)  # below it only by rounding
        ds2 = -2.0 * (slope @ self.mean_weights + _times(G, g))
        if targets.left_out is not None:
            dv = _times(G, h)[:, :, None] / a[:, None]
            G, E = G - dv * h[:, None], E - dv * w[:, None]
        rho = targets.outside + np.sum(e**2, axis=1)
        drho = -2.0 * _times(E, e)

        f_rho, f_s2 = t / (2.0 * s2), 0.5 * t * (D - rho / s2) / s2
        f_mixed, f_s2s2 = -0.5 * t / s2**2, t * (rho / s2 - 0.5 * D) / s2**2
        q_half = -2.0 * f_s2[:, None] * g + 2.0 * f_rho[:, None] * back_e
        q = np.hstack([q_half, -2.0 * f_rho[:, None] * e]) @ self._maps.T
        q -= 2.0 * f_s2[:, None] * self.mean_weights  # df/dk, (P, N)

        from_prior = (x - targets.prior_mean) / targets.prior_variance[:, None]
        mixed = f_mixed[:, None, None] * drho[:, :, None] * ds2[:, None, :]
        hessian = 2.0 * f_rho[:, None, None] * (E @ E.mT) - 2.0 * f_s2[:, None, None] * (G @ G.mT)
        hessian += mixed + mixed.mT + f_s2s2[:, None, None] * ds2[:, :, None] * ds2[:, None, :]
        hessian -= (slope * q[:, None, :]) @ away.mT / ell2
        axis = np.arange(R)
        hessian[:, axis, axis] += (1.0 / targets.prior_variance - np.sum(q * k, 1) / ell2)[:, None]
        log_density = -0.5 * (rho / s2 + D * (np.log(s2) + _LOG_2PI))
        prior = np.sum(from_prior * (x - targets.prior_mean), axis=1)
        prior += R * (_LOG_2PI + np.log(targets.prior_variance))
        return Evaluation(
            value=0.5 * prior - t * log_density,
            gradient=_times(slope, q) + from_prior,
            hessian=hessian,
            log_density=log_density,
        )

    def project(
        self,
        features: FloatArray,
        *,
        starts: FloatArray | None = None,
        n_starts: int = 4,
        temper: float = 1.0,
    ) -> Projected:
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
        return self._search(self.targets(features), starts, n_starts, temper)

    def project_left_out(
        self, features: FloatArray, *, n_starts: int = 4, temper: float = 1.0
    ) -> Projected:
        """Place every training row (N, D) by the decoder of the other N - 1.

        Exact, by a change of rank one, with the kernel as it is and the others where they are. What
        it gives are the fair counterparts of new rows: see :func:`tail_probability`.

        Raises
        ------
        ValueError
            If there are not N rows.
        """
        targets = replace(self.targets(features), left_out=np.arange(len(self.latent)))
        if len(targets.scores) != len(self.latent):
            raise ValueError(f"the training rows are {len(self.latent)}, got {len(features)}")
        return self._search(targets, None, n_starts, temper)

    def project_sequence(
        self,
        features: FloatArray,
        transition: Transition,
        *,
        n_starts: int = 4,
        temper: float = 1.0,
    ) -> Projected:
        """Place the rows of a sequence (M, D) in turn, each with the one before as its prior.

        The first row has the prior N(0, I) of eq. (14), every later one N(mean, variance I) by
        `transition` of the position before. A filter: what follows does not change what was.
        """
        placed: list[Projected] = []
        candidates = self._candidates()
        for row in np.asarray(features, dtype=np.float64)[:, None, :]:
            mean, variance = (None, 1.0) if not placed else transition(placed[-1].latent[0])
            start = None if mean is None else np.reshape(mean, (1, 1, -1))
            targets = self.targets(row, prior_mean=mean, prior_variance=variance)
            placed.append(self._search(targets, start, n_starts, temper, candidates))
        return _join(placed)

    def _images(self, latent: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """`half` k (M, N), mean in the axes of the training rows (M, r), and variance (M,)."""
        block = max(1, _CHUNK // (len(self.latent) * latent.shape[1]))
        kernels = [
            _rbf(latent[i : i + block], self.latent, self.signal_variance, self.lengthscale)[0]
            for i in range(0, max(len(latent), 1), block)
        ]
        k = np.vstack(kernels) + self.bias
        g, scores = np.split(k @ self._maps, [len(self.latent)], axis=1)
        variance = self.ceiling - 2.0 * k @ self.mean_weights - np.sum(g**2, axis=1)
        return g, scores, np.maximum(variance, self.noise_variance)

    def _candidates(self) -> "_Candidates":
        """Positions at which a search may begin: a grid or a scatter, and the training rows."""
        X, R = self.latent, self.latent.shape[1]
        if R in _CELLS:
            few, many = _CELLS[R]
            reach = np.ptp(X, axis=0).max() * (1.0 + 2.0 * _MARGIN)
            cells = np.clip(np.ceil(4.0 * reach / self.lengthscale), few, many)
            hollows = grid_points(landscape_grid(X, n=int(cells) + 1))
        else:
            normal = ndtri(Halton(R, scramble=False).random(_N_SPREAD + 1)[1:])
            hollows = np.vstack([X, X.mean(axis=0) + _WIDTH * X.std(axis=0) * normal])
        n_near = min(3**R, 2 * R + 5, len(hollows))
        near = KDTree(hollows).query(hollows, k=n_near)[1].reshape(len(hollows), -1)
        positions = np.vstack([hollows, X])
        g, scores, variance = self._images(positions)
        return _Candidates(
            positions=positions, near=near[:, 1:], half=g, scores=scores, variance=variance
        )

    def _coarse(self, targets: Targets, at: "_Candidates", temper: float) -> FloatArray:
        """Eq. (14) of M rows at C positions, up to a constant: (M, C)."""
        s2 = at.variance
        rho = (targets.outside + np.sum(targets.scores**2, axis=1))[:, None]
        rho = rho - 2.0 * targets.scores @ at.scores.T + np.sum(at.scores**2, axis=1)
        if targets.left_out is not None:  # as in `evaluate`
            h, w = self.half.T[targets.left_out], self.loadings.T[targets.left_out]
            a = np.sum(h**2, axis=1)[:, None]
            share = (self.mean_weights[targets.left_out, None] + h @ at.half.T) / a  # (M, C)
            cross = np.sum(targets.scores * w, axis=1)[:, None] - w @ at.scores.T
            rho = rho + 2.0 * cross * share + np.sum(w**2, axis=1)[:, None] * share**2
            s2 = s2 + a * share**2
        value = 0.5 * temper * (rho / s2 + self.n_features * np.log(s2))
        m, r = targets.prior_mean, targets.prior_variance[:, None]
        away = np.sum(m**2, axis=1)[:, None] - 2.0 * m @ at.positions.T
        return value + 0.5 * (away + np.sum(at.positions**2, axis=1)) / r

    def _search(
        self,
        targets: Targets,
        starts: FloatArray | None,
        n_starts: int,
        temper: float,
        candidates: "_Candidates | None" = None,
    ) -> Projected:
        """Rows in chunks; the best end of every row."""
        candidates = self._candidates() if candidates is None else candidates
        (N, R), C = self.latent.shape, len(candidates.positions)
        chunk = max(1, _CHUNK // max(4 * C, (n_starts + 1) * (4 + 3 * R) * N))
        placed = []
        for first in range(0, max(len(targets.scores), 1), chunk):
            rows = slice(first, first + chunk)
            part = _take(targets, rows)
            begin, useful = candidates.best(self._coarse(part, candidates, temper), n_starts)
            if starts is not None:
                more = np.broadcast_to(starts[rows], (len(begin), *starts.shape[1:]))
                begin = np.concatenate([begin, more], axis=1)
                useful = np.column_stack([useful, np.ones(more.shape[:2], np.bool_)])
            which = np.nonzero(useful)  # row and start of each point that is moved
            x, found, converged = self._descend(begin[which], _take(part, which[0]), temper)
            value, point = np.full(useful.shape, np.inf), np.zeros(useful.shape, np.int64)
            value[which], point[which] = found.value, np.arange(len(x))
            best = np.take_along_axis(point, value.argmin(axis=1)[:, None], axis=1)[:, 0]
            curvature, axes = np.linalg.eigh(found.hessian[best])
            scaled = axes / np.maximum(curvature, _FLAT)[:, None, :]
            placed.append(
                Projected(
                    latent=x[best],
                    cov=scaled @ axes.mT,
                    value=found.value[best],
                    log_density=found.log_density[best],
                    converged=converged[best],
                )
            )
        return _join(placed)

    def _descend(
        self, start: FloatArray, targets: Targets, temper: float
    ) -> tuple[FloatArray, Evaluation, BoolArray]:
        """Newton's method with a trust region for each of P points, (P, R)."""
        x, now = start.copy(), self.evaluate(start, targets, temper=temper)
        radius = np.full(len(x), 0.5 * self.lengthscale)
        converged = np.zeros(len(x), dtype=np.bool_)
        going = np.arange(len(x))
        for _ in range(_MAX_ITER):
            here = _take(now, going)
            step, promised = _newton_step(here, radius[going])
            then = self.evaluate(x[going] + step, _take(targets, going), temper=temper)
            gain, size = here.value - then.value, 1.0 + np.abs(here.value)
            last = promised <= _LAST_GAIN * size
            # What the last step gains may be less than rounding.
            taken = gain > np.where(last, -_ROUNDING * size, 0.1 * promised)
            length = np.linalg.norm(step, axis=1)
            grow = (gain > 0.75 * promised) & (length > 0.99 * radius[going])
            wider = np.minimum(2.0 * radius[going], 2.0 * self.lengthscale)
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
    """Where a search may begin: C positions (C, R), of which the last N are the training rows.

    near
        Neighbours of each of the first len(near) ones.
    half, scores, variance
        `half` k, (C, N), mean of the features in the axes of the training rows, (C, r), and
        variance, (C,).
    """

    positions: FloatArray
    near: IntArray
    half: FloatArray
    scores: FloatArray
    variance: FloatArray

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
        return self.positions[np.column_stack([chosen, row])], useful


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
        (:meth:`Decoder.project_left_out`).

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
    slope = _times(axes.mT, here.gradient)
    step = -slope / np.maximum(np.abs(curvature), _FLAT)
    step *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
    promised = -np.sum(step * (slope + 0.5 * curvature * step), axis=1)
    return _times(axes, step), promised


def _rbf(
    x: FloatArray, X: FloatArray, variance: float, lengthscale: float
) -> tuple[FloatArray, FloatArray]:
    """Kernel (P, N) between points and training positions, and x - x_j as (P, R, N)."""
    away = x[:, :, None] - X.T
    return variance * np.exp(-0.5 / lengthscale**2 * np.sum(away**2, axis=1)), away


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Products of a stack of matrices (P, A, B) with vectors (P, B): (P, A)."""
    return np.asarray((matrix @ vector[:, :, None])[:, :, 0])


def _take[T: (Targets, Evaluation)](record: T, rows: IntArray | slice) -> T:
    """Some of the rows of every array."""
    arrays = {name: value[rows] for name, value in vars(record).items() if value is not None}
    return replace(record, **arrays)


def _join(parts: list[Projected]) -> Projected:
    """Rows of all parts, in their order."""
    names = vars(parts[0])
    return Projected(**{n: np.concatenate([vars(part)[n] for part in parts]) for n in names})
