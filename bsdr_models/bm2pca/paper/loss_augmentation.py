r"""Margin factors as scale mixtures of normals: hinge, and epsilon-insensitive loss.

With u = C (1 - y f) [1]_,

.. math::
    e^{-2 \max(0, u)} = \int_0^\infty (2 \pi \lambda)^{-1/2} e^{-(\lambda + u)^2 / 2 \lambda}
    d\lambda .

Under q(lambda) = GIG(1/2, 1, chi), chi = E[u**2], a factor is normal in f. Updates of latent
coordinates and weights need its precision ``weights`` and linear term ``linear_terms``, both 0
without a target. q(lambda) is given by s = sqrt(chi): E[lambda] = s + 1, E[1 / lambda] = 1 / s.

Arrays are (P, N, K): P problems, N samples, K outcomes.

References
----------
.. [1] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines. Bayesian
       Analysis 6(1).
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import BoolArray, FloatArray

# Lower limit of s; s = 0 would make E[1 / lambda] infinite.
SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Pseudo-likelihood exp{-2 C max(0, 1 - y f)} of signs."""

    y: FloatArray  # (P, N, K) of -1, +1, and 0 without a label
    cost: FloatArray  # C, (P, 1, 1)

    @property
    def observed(self) -> BoolArray:
        """Mask of the labels, (P, N, K)."""
        return self.y != 0.0

    def scales(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Optimal s = C sqrt(E[(1 - y f)**2]), (P, N, K); 1 without a label."""
        square = (1.0 - self.y * mean) ** 2 + variance
        found: FloatArray = np.maximum(self.cost * np.sqrt(square), SMALLEST)
        return np.where(self.observed, found, 1.0)

    def weights(self, scales: FloatArray) -> FloatArray:
        """C**2 E[1 / lambda]: precision of f."""
        return self.y**2 * self.cost**2 / scales

    def linear_terms(self, scales: FloatArray) -> FloatArray:
        """C (1 + C E[1 / lambda]) y: linear term of f."""
        return self.y * self.cost * (1.0 + self.cost / scales)

    def bound(self, mean: FloatArray, variance: FloatArray, scales: FloatArray) -> FloatArray:
        """E[log of the augmented factors] plus entropy of q(lambda), (P,)."""
        square = self.cost**2 * ((1.0 - self.y * mean) ** 2 + variance)
        each = -self.cost * (1.0 - self.y * mean) - 0.5 * (square / scales + scales)
        return np.sum(self.y**2 * each, axis=(1, 2))

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Interval of f in which the factor is constant: two arrays (P, N, K)."""
        y = self.y
        return np.where(y > 0.0, 1.0, -np.inf), np.where(y < 0.0, -1.0, np.inf)

    def of_label(self, label: int) -> "Hinge":
        """The factors of one label alone, K = 1."""
        return replace(self, y=self.y[..., label : label + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonInsensitive:
    r"""Likelihood of real targets, constant for f within epsilon of the target.

    .. math::
        p(y \mid f) = e^{-2 C \max(0, |y - f| - \epsilon)} / (2 \epsilon + 1 / C)

    is the product of the hinges of C (y - f - epsilon) and C (f - y - epsilon), up to its
    constant; ``scales`` holds s of both along the first axis.
    """

    y: FloatArray  # (P, N, K)
    observed: BoolArray  # Mask of the observed targets, (P, N, K)
    cost: FloatArray  # C, (P, 1, 1), per unit of y
    epsilon: float  # Half width of the interval, in units of y

    def scales(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Optimal s of both sides, (2, P, N, K); 1 without a target."""
        found = self.cost * np.sqrt(self._squares(mean, variance))
        return np.where(self.observed, np.maximum(found, SMALLEST), 1.0)

    def _squares(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        residual = self.y - mean
        upper, lower = (residual - self.epsilon) ** 2, (residual + self.epsilon) ** 2
        return np.stack([upper, lower]) + variance

    def weights(self, scales: FloatArray) -> FloatArray:
        """Precision of f."""
        return self.observed * self.cost**2 * (1.0 / scales).sum(axis=0)

    def linear_terms(self, scales: FloatArray) -> FloatArray:
        """Linear term of f; the parts of the two sides without E[1 / lambda] cancel."""
        upper, lower = 1.0 / scales
        sides = (self.y - self.epsilon) * upper + (self.y + self.epsilon) * lower
        return self.observed * self.cost**2 * sides

    def bound(self, mean: FloatArray, variance: FloatArray, scales: FloatArray) -> FloatArray:
        """E[log likelihood, augmented] plus entropies, normalising constant included, (P,)."""
        square = self.cost**2 * self._squares(mean, variance)
        each = 2.0 * self.cost * self.epsilon - 0.5 * (square / scales + scales).sum(axis=0)
        each = each - np.log(2.0 * self.epsilon + 1.0 / self.cost)
        return np.sum(self.observed * each, axis=(1, 2))

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Interval of f in which the factor is constant: two arrays (P, N, K)."""
        lower = np.where(self.observed, self.y - self.epsilon, -np.inf)
        return lower, np.where(self.observed, self.y + self.epsilon, np.inf)

    def of_label(self, label: int) -> "EpsilonInsensitive":
        """The factors of one output alone, K = 1."""
        own = slice(label, label + 1)
        return replace(self, y=self.y[..., own], observed=self.observed[..., own])


type Margins = Hinge | EpsilonInsensitive


def margins_of(y: FloatArray, cost: FloatArray, epsilon: float | None) -> Margins:
    """Margin factors of signs (0 without a label), or of real targets (NaN if missing).

    Shapes are y (P, N, K), cost (P, 1, 1); ``epsilon`` is None for signs.
    """
    if epsilon is None:
        return Hinge(y=y, cost=cost)
    observed = ~np.isnan(y)
    return EpsilonInsensitive(
        y=np.where(observed, y, 0.0), observed=observed, cost=cost, epsilon=epsilon
    )
