r"""Embedding of new samples by their likelihood, the paper's Eqs. (14) to (16).

With the kernel k between latent coordinates x and those of the training samples Y (N, D), the
features y of a sample are normal, of equal variances, and the latent coordinates minimise

.. math::
    f(x) = \tfrac{|y - \mu(x)|^2}{2 \sigma^2(x)} + \tfrac{D}{2} \log 2\pi\sigma^2(x)
        + \tfrac12 |x|^2 + \tfrac{R}{2} \log 2\pi, \qquad
    \mu = Y^\top K^{-1} k, \quad \sigma^2 = k(x, x) - k^\top K^{-1} k .
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import approx_fprime, minimize

from bsdr_models.dgplvm.back_constraint import Embedder
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.kernels import rbf, squared_distances
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.relevance import LatentCoordinates

# Training samples, those of the most similar mean features, at which a search begins.
N_STARTS = 5
# Step of differences of the gradient.
STEP = 1e-6
# Lower bound of a curvature; that of the prior is 1.
MIN_CURVATURE = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodEmbedder(Embedder):
    """Training samples at latent coordinates ``places`` (N, R), and parameters theta (4,).

    ``inverse`` is K^-1 (N, N), and ``weights`` K^-1 Y (N, D).
    """

    places: FloatArray
    theta: FloatArray
    inverse: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, latent: FloatArray, Y: FloatArray, theta: FloatArray) -> "LikelihoodEmbedder":
        """Condition on latent coordinates (N, R) and centred features (N, D)."""
        signal, precision, bias, inverse_noise = theta
        K = rbf(latent, None, precision**-0.5, signal) + bias + np.eye(len(latent)) / inverse_noise
        inverse = inv_spd(K, name="kernel matrix")[0]
        return cls(places=latent, theta=theta, inverse=inverse, weights=inverse @ Y)

    def evaluate(self, x: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        """F and its gradient (R,) at latent coordinates (R,) of features (D,)."""
        signal, precision, bias, inverse_noise = self.theta
        difference = x - self.places
        smooth = signal * np.exp(-0.5 * precision * np.sum(difference**2, axis=1))
        k = smooth + bias
        v = self.inverse @ k
        rest = y - k @ self.weights
        # The variance is below that of the noise by rounding only.
        variance = max(signal + bias + 1.0 / inverse_noise - k @ v, 1.0 / inverse_noise)
        square = rest @ rest / variance
        value = 0.5 * (square + len(y) * (np.log(variance) + LOG_2PI) + x @ x + len(x) * LOG_2PI)
        by_k = -(self.weights @ rest + (len(y) - square) * v) / variance
        return float(value), x - precision * (by_k * smooth) @ difference

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """The best minimum of every sample (M, D), with the inverse Hessian as covariance."""
        _, precision, bias, _ = self.theta
        smooth = rbf(self.places, None, precision**-0.5, self.theta[0])
        distances = squared_distances(X, (smooth + bias) @ self.weights)
        mean = np.empty((len(X), self.places.shape[1]))
        cov = np.empty((*mean.shape, mean.shape[1]))
        for i, (y, near) in enumerate(zip(X, np.argsort(distances, axis=1), strict=True)):
            searches = [
                minimize(
                    self.evaluate,
                    start,
                    args=(y,),
                    jac=True,
                    method="L-BFGS-B",
                    options={"ftol": 1e-12, "gtol": 1e-8},
                )
                for start in self.places[near[:N_STARTS]]
            ]
            mean[i] = min(searches, key=lambda search: search.fun).x
            slopes = approx_fprime(mean[i], lambda x, y=y: self.evaluate(x, y)[1], STEP)
            hessian = np.atleast_2d(slopes)
            curvature, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
            cov[i] = (axes / np.maximum(curvature, MIN_CURVATURE)) @ axes.T
        return LatentCoordinates(mean=mean, cov=cov)
