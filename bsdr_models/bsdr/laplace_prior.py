r"""Prior of the product of projection and weights, with unidentified parameters integrated out.

For Q (R, B), W (R, J) and tau of the hierarchical model let :math:`M = \tau Q^\top W`, of rank
r = min(R, J), and :math:`M = F V` with :math:`V = V_0 + A V_\perp`
(:mod:`~bsdr_models.bsdr.laplace_sums`). Given W and tau the rows of F are normal; with both
integrated out the density depends on the singular values of M. With m = max(R, J),
:math:`E = I + A A^\top` and :math:`S = E^{1/2} F^\top F E^{1/2}`,

.. math::
    p(F, A) = |E|^{(B - J) / 2} h(S), \qquad
    h(S) \propto \int |T|^{-(\nu + r + 1) / 2} e^{-\operatorname{tr}(S T^{-1}) / 2}
        g(\operatorname{tr} T) \, dT, \qquad
    g(t) = \int p(\tau) \, \tau^{-r m} e^{-t / 2 \tau^2} \, d\tau,

where T, (r, r), is tau squared times the Gram matrix of the weights in the coordinates of F, and
:math:`\nu = B - m` (for R > J there is no A, and E = I). Without g this is an inverse Wishart
distribution. A fixed sample of it, scaled by S, makes the integral a smooth function of the
eigenvalues of S; importance weights give draws of T, then of tau given T, and so of weights and
projection given M.
"""

import math

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp, multigammaln

from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr.priors import HierarchicalPriors

# Draws of the inverse Wishart distribution, and their seed.
_N_SAMPLE, _SEED = 1000, 20
# Minimum degrees of freedom of the sample beyond the rank.
_LEAST_FREEDOM = 3.0
# Range of the table of log tr T; range of log tau in standard deviations, and its nodes.
_LOG_T, _WIDE, _N_NODES = (-60.0, 60.0), 9.0, 400


class ProductPrior:
    """Density of F and A, and draws of projection, weights and scale given these.

    Parameters
    ----------
    n_features, n_components, n_contrasts : int
        B, R, J; B must be r at least.
    """

    def __init__(
        self,
        n_features: int,
        n_components: int,
        n_contrasts: int,
        priors: HierarchicalPriors,
    ) -> None:
        self.n_features, self.n_components = n_features, n_components
        self.n_contrasts = n_contrasts
        self.rank = r = min(n_components, n_contrasts)
        m = max(n_components, n_contrasts)
        self._nu = n_features - m
        freedom = max(float(self._nu), r + _LEAST_FREEDOM)
        root = _wishart_roots(r, freedom, _N_SAMPLE)
        inverse = np.linalg.inv(root)
        self._sample = np.swapaxes(inverse, 1, 2) @ inverse  # inverse Wishart, (i, r, r)
        self._diagonal = np.einsum("ikk->ik", self._sample).copy()
        log_det = -2.0 * np.sum(np.log(np.einsum("ikk->ik", root)), axis=1)
        self._weight = 0.5 * (freedom - self._nu) * log_det - math.log(_N_SAMPLE)
        u = np.linspace(-_WIDE, _WIDE, _N_NODES)
        log_tau = priors.scale_location + priors.scale_width * u
        log_p = -0.5 * u**2 - 0.5 * math.log(2.0 * math.pi) + math.log(u[1] - u[0])
        self._u, self._log_tau, self._log_node = u, log_tau, log_p - r * m * log_tau
        log_t = np.linspace(*_LOG_T, 1201)
        self._log_g = CubicSpline(log_t, logsumexp(self._given_t(np.exp(log_t)), axis=1))
        self._slope_g = self._log_g.derivative()
        self._constant = (
            -0.5 * (m + n_features) * r * math.log(2.0 * math.pi)
            + 0.5 * n_components * r * math.log(math.pi)
            - multigammaln(0.5 * n_components, r)
            + 0.5 * freedom * r * math.log(2.0)
            + multigammaln(0.5 * freedom, r)
        )

    @property
    def det_power(self) -> float:
        """Power of ``|E|`` in the density, (B - J) / 2."""
        return 0.5 * (self.n_features - self.n_contrasts)

    def density(self, F: FloatArray, A: FloatArray) -> float:
        """Log density of F (B, r) and A (r, J - r)."""
        E = np.eye(self.rank) + A @ A.T
        power = self.det_power if A.size else 0.0
        return self._log_h(F.T @ F, E)[0] + power * float(np.linalg.slogdet(E)[1])

    def log_kernel(
        self, F: FloatArray, A: FloatArray, spread: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Log of h with its gradients in F and A, for uncertain F.

        Parameters
        ----------
        spread : (r, r)
            Sum of the covariances of the rows of F, added to F'F. This expectation determines T
            where the data determine few loadings, and removes the pole of h at F of lower rank.

        Notes
        -----
        Independent of the basis of A, unlike the density, which may have no maximum in a poor
        basis.
        """
        gram, E = F.T @ F + spread, np.eye(self.rank) + A @ A.T
        value, by_gram = self._log_h(gram, E)
        _, by_e = self._log_h(E, gram)
        by_a = 2.0 * by_e @ A
        return value, 2.0 * F @ by_gram, by_a

    def curvature(self, F: FloatArray, spread: FloatArray) -> FloatArray:
        """Hessian of the log of h in (F, A), raveled, at A = 0: (P, P)."""
        b, r, aside = self.n_features, self.rank, self.n_contrasts - self.rank
        gram, eye = F.T @ F + spread, np.eye(r)
        _, by_gram = self._log_h(gram, eye)
        # Derivatives of the gradient in F'F along symmetric directions; Jacobian of F'F in F.
        change = np.zeros((r, r, r, r))
        step = 1e-4 * np.sqrt(np.outer(np.diag(gram), np.diag(gram)))
        for i in range(r):
            for j in range(i + 1):
                move = np.zeros((r, r))
                move[i, j] = move[j, i] = 0.5 * step[i, j] * (2.0 if i == j else 1.0)
                ahead, behind = (self._log_h(gram + sign * move, eye)[1] for sign in (1.0, -1.0))
                change[i, j] = change[j, i] = 0.5 * (ahead - behind) / step[i, j]
        size = b * r
        out = np.zeros((size + r * aside, size + r * aside))
        motion = np.einsum("bi,jk->bjik", F, eye) + np.einsum("bi,jk->bjki", F, eye)
        motion = motion.reshape(size, r * r)
        by_motion = change.reshape(r * r, r * r)
        own = motion @ (0.5 * (by_motion + by_motion.T)) @ motion.T
        out[:size, :size] = own + np.kron(np.eye(b), 2.0 * by_gram)
        if aside:
            _, by_e = self._log_h(eye, gram)
            out[size:, size:] = np.kron(2.0 * by_e, np.eye(aside))
        return out

    def complete(
        self, F: FloatArray, A: FloatArray, V: FloatArray, *, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, float]:
        """A draw of projection (R, B), weights (R, J) and the standard log scale given M = F V.

        The components, which are arbitrary up to a rotation, are those of F.
        """
        r, extra = self.rank, self.n_components - self.rank
        value, vector = np.linalg.eigh(np.eye(r) + A @ A.T)
        straight = (vector / np.sqrt(value)) @ vector.T  # E^(-1/2)
        root = (vector * np.sqrt(value)) @ vector.T
        T = self.draw_scale(root @ (F.T @ F) @ root, rng=rng)
        node = self._given_t(np.trace(T)[None])[0]
        u = self._u + (rng.random() - 0.5) * (self._u[1] - self._u[0])
        u = float(rng.choice(u, p=np.exp(node - logsumexp(node))))
        tau = math.exp(float(np.interp(u, self._u, self._log_tau)))
        size, vector = np.linalg.eigh(T)
        half = (vector * np.sqrt(size)) @ vector.T @ straight / tau  # of W = half V
        projection = np.linalg.solve(half.T, F.T) / tau
        weights = half @ V
        none = np.zeros((extra, V.shape[1]))
        free = rng.standard_normal((extra, len(F)))
        return np.concatenate([projection, free]), np.concatenate([weights, none]), u

    def precision(self, F: FloatArray, spread: FloatArray) -> FloatArray:
        """Expected inverse of T, (r, r): the prior precision of every row of F."""
        return -2.0 * self._log_h(F.T @ F + spread, np.eye(self.rank))[1]

    def draw_scale(self, gram: FloatArray, *, rng: np.random.Generator) -> FloatArray:
        """A draw of T, (r, r), given F'F."""
        eigen, axes = np.linalg.eigh(gram)
        eigen = np.maximum(eigen, 1e-12 * eigen[-1])
        log_weight = self._weight + self._log_g(np.log(self._diagonal @ eigen))
        chosen = rng.choice(len(log_weight), p=np.exp(log_weight - logsumexp(log_weight)))
        stretch = axes * np.sqrt(eigen)
        T: FloatArray = stretch @ self._sample[chosen] @ stretch.T
        return T

    def _given_t(self, t: FloatArray) -> FloatArray:
        """Log weight of every node of tau at values of tr T, (T, nodes)."""
        exponent: FloatArray = self._log_node - 0.5 * t[:, None] * np.exp(-2.0 * self._log_tau)
        return exponent

    def _log_h(self, gram: FloatArray, E: FloatArray) -> tuple[float, FloatArray]:
        """Log of h at the eigenvalues of ``gram @ E``, and its gradient in ``gram``."""
        root = np.linalg.cholesky(E)
        eigen, axes = np.linalg.eigh(root.T @ gram @ root)
        eigen = np.maximum(eigen, np.finfo(float).tiny)
        t = self._diagonal @ eigen
        log_t = np.log(t)
        each = self._weight + self._log_g(log_t)
        total = logsumexp(each)
        value = self._constant - 0.5 * self._nu * np.sum(np.log(eigen)) + total
        by_t = np.exp(each - total) * self._slope_g(log_t) / t
        by_eigen = -0.5 * self._nu / eigen + by_t @ self._diagonal
        turned = root @ axes
        return float(value), (turned * by_eigen) @ turned.T


def _wishart_roots(rank: int, freedom: float, size: int) -> FloatArray:
    """Lower triangular roots of draws of Wishart matrices with unit scale, (size, r, r)."""
    rng = np.random.default_rng(_SEED)
    root = np.tril(rng.standard_normal((size, rank, rank)), -1)
    own = np.arange(rank)
    root[:, own, own] = np.sqrt(rng.chisquare(freedom - own, (size, rank)))
    return root
