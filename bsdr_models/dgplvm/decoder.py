r"""From positions to features: the Gaussian process of a fitted model.

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

How well a row y goes with a position is eq. (14), with a factor t on its first part,

.. math::
    f(x) = t \Big[ \tfrac{|y - \mu(x)|^2}{2 \sigma^2(x)} + \tfrac{D}{2} \log 2\pi\sigma^2(x) \Big]
        + \tfrac12 |x|^2 + \tfrac{R}{2} \log 2\pi.

Only the part of y in the span of the training rows depends on x, and that has at most N
coordinates: nothing here costs more with more features.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. International Conference on Machine Learning 24.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import cholesky

LOG_2PI = float(np.log(2.0 * np.pi))
# Array elements of one chunk of rows: some tens of megabytes, whatever the number of rows.
CHUNK = 2**21


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
        found = self.feature_moments(np.asarray(latent, dtype=np.float64))
        return self.offset + found.scores @ self.basis.T, found.variance

    def log_precision(self, latent: FloatArray, *, prior: bool = False) -> FloatArray:
        r"""How sure the model is of the features at positions (..., R), in nats, (...).

        :math:`-\tfrac{D}{2} \log \sigma^2(x)`, and with the prior :math:`-\tfrac12 |x|^2` more: the
        shades of Fig. 1, whose caption has the wrong sign before the second term.
        """
        x = np.asarray(latent, dtype=np.float64)
        variance = self.feature_moments(x.reshape(-1, x.shape[-1])).variance
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
        ds2 = -2.0 * (slope @ self.mean_weights + times(G, g))
        if targets.left_out is not None:
            dv = times(G, h)[:, :, None] / a[:, None]
            G, E = G - dv * h[:, None], E - dv * w[:, None]
        rho = targets.outside + np.sum(e**2, axis=1)
        drho = -2.0 * times(E, e)

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
        log_density = -0.5 * (rho / s2 + D * (np.log(s2) + LOG_2PI))
        prior = np.sum(from_prior * (x - targets.prior_mean), axis=1)
        prior += R * (LOG_2PI + np.log(targets.prior_variance))
        return Evaluation(
            value=0.5 * prior - t * log_density,
            gradient=times(slope, q) + from_prior,
            hessian=hessian,
            log_density=log_density,
        )

    def evaluate_all(
        self, targets: Targets, at: "FeatureMoments", *, temper: float = 1.0
    ) -> FloatArray:
        """Eq. (14) of M rows at each of C positions, up to a constant: (M, C)."""
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
        away = np.sum(m**2, axis=1)[:, None] - 2.0 * m @ at.latent.T
        return value + 0.5 * (away + np.sum(at.latent**2, axis=1)) / r

    def feature_moments(self, latent: FloatArray) -> "FeatureMoments":
        """Mean and variance of the features at positions (C, R), in the axes of the rows."""
        block = max(1, CHUNK // (len(self.latent) * latent.shape[1]))
        kernels = [
            _rbf(latent[i : i + block], self.latent, self.signal_variance, self.lengthscale)[0]
            for i in range(0, max(len(latent), 1), block)
        ]
        k = np.vstack(kernels) + self.bias
        g, scores = np.split(k @ self._maps, [len(self.latent)], axis=1)
        variance = self.ceiling - 2.0 * k @ self.mean_weights - np.sum(g**2, axis=1)
        return FeatureMoments(
            latent=latent,
            half=g,
            scores=scores,
            variance=np.maximum(variance, self.noise_variance),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMoments:
    """What the model expects at C positions (C, R).

    half
        `half` k, (C, N).
    scores
        Mean of the features in the axes of the training rows, (C, r).
    variance
        (C,).
    """

    latent: FloatArray
    half: FloatArray
    scores: FloatArray
    variance: FloatArray


def _rbf(
    x: FloatArray, X: FloatArray, variance: float, lengthscale: float
) -> tuple[FloatArray, FloatArray]:
    """Kernel (P, N) between points and training positions, and x - x_j as (P, R, N)."""
    away = x[:, :, None] - X.T
    return variance * np.exp(-0.5 / lengthscale**2 * np.sum(away**2, axis=1)), away


def times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Products of a stack of matrices (P, A, B) with vectors (P, B): (P, A)."""
    return np.asarray((matrix @ vector[:, :, None])[:, :, 0])
