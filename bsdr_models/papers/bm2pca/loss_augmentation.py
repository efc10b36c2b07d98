r"""Margin factors as scale mixtures of normals: hinge, and epsilon-insensitive loss.

A factor, phi of Eq. (3) of the paper, is the product of S hinges exp{-2 max(0, u)}, each a mixture
of normals [1]_, whose integrand is phi(y, lambda) of Eq. (4),

.. math::
    e^{-2 \max(0, u)} = \int_0^\infty (2 \pi \lambda)^{-1/2} e^{-(\lambda + u)^2 / 2 \lambda}
    d\lambda, \qquad u = C (a + b f), \quad b = \pm 1.

Under V(lambda) = GIG(1/2, 1, s**2) after Eq. (5), s**2 = E[u**2], it is normal in f, with the
precision ``weights`` and the linear term ``linear_terms``. E[lambda] = s + 1, and
E[1 / lambda] = 1 / s.

References
----------
.. [1] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines. Bayesian
       Analysis 6(1).
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.numerics.arrays import BoolArray, FloatArray

# Lower limit of s; s = 0 would make E[1 / lambda] infinite.
SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    r"""Factors of the class scores f, of N samples and K outcomes.

    Signs y have the pseudo-likelihood exp{-2 C max(0, 1 - y f)}, S = 1. Real targets have the
    density exp{-2 C max(0, \|y - f\| - epsilon)} / (2 epsilon + 1 / C), the hinges of
    y - f - epsilon and f - y - epsilon, S = 2. Without a target there is no factor. Scores of
    several chains have an axis before N.
    """

    y: FloatArray  # Targets (N, K), any number where there is none
    observed: BoolArray  # Mask of the targets, (N, K)
    cost: float  # C
    epsilon: float | None  # In units of y; None for signs

    def _excesses(self, f: FloatArray) -> FloatArray:
        """a + b f of every hinge, (S, N, K)."""
        if self.epsilon is None:
            return (1.0 - self.y * f)[None]
        rest = self.y - f
        return np.stack([rest, -rest]) - self.epsilon

    def scales(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Optimal s for scores of these moments, (S, N, K); 1 without a target."""
        found = self.cost * np.sqrt(self._excesses(mean) ** 2 + variance)
        return np.where(self.observed, np.maximum(found, SMALLEST), 1.0)

    def weights(self, scales: FloatArray) -> FloatArray:
        """Precision of f, C**2 times the sum of E[1 / lambda], (N, K)."""
        return self.observed * self.cost**2 * (1.0 / scales).sum(axis=0)

    def linear_terms(self, scales: FloatArray) -> FloatArray:
        """Linear term of f, minus C times the sum of b (1 + C a E[1 / lambda]), (N, K)."""
        if self.epsilon is None:
            return self.observed * self.y * (self.cost + self.cost**2 / scales[0])
        below = self.cost**2 * (self.y - self.epsilon) / scales[0]
        above = self.cost**2 * (self.y + self.epsilon) / scales[1]
        return self.observed * (below + above)

    def bound(self, mean: FloatArray, variance: FloatArray, scales: FloatArray) -> float:
        """E[log augmented factor] plus entropy of q(lambda)."""
        v = self._excesses(mean)
        square = self.cost**2 * (v**2 + variance)
        total = np.sum(-self.cost * v - 0.5 * (square / scales + scales), axis=0)
        if self.epsilon is not None:
            total -= np.log(2.0 * self.epsilon + 1.0 / self.cost)
        return float(np.sum(self.observed * total))

    def log_factors(self, f: FloatArray) -> FloatArray:
        """Logarithm of the product of all factors at scores f (C, N, K), (C,)."""
        total = -2.0 * self.cost * np.maximum(self._excesses(f), 0.0).sum(axis=0)
        if self.epsilon is not None:
            total -= np.log(2.0 * self.epsilon + 1.0 / self.cost)
        return np.sum(self.observed * total, axis=(1, 2))

    def of_label(self, label: int) -> "Margins":
        """The factors of one outcome alone, K = 1."""
        own = slice(label, label + 1)
        return replace(self, y=self.y[..., own], observed=self.observed[..., own])


def margins_of(y: FloatArray, cost: float, epsilon: float | None) -> Margins:
    """Factors of signs (0 without a label), or of real targets (NaN if missing), (N, K)."""
    observed = y != 0.0 if epsilon is None else ~np.isnan(y)
    return Margins(y=np.where(observed, y, 0.0), observed=observed, cost=cost, epsilon=epsilon)
