"""What leaves the rows of BM2PCA: sums, of a size that does not depend on their number.

Shapes: P problems, R components, K outcomes; w and g are the weights and pulls of the margins.
"""

from dataclasses import dataclass

from bsdr_models.bm2pca.views import Moments
from bsdr_models.typing import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSums:
    """What is kept of the positions of some rows; that of others is added.

    moments
        What each view needs.
    second
        Sum of E[z z'], (P, R, R).
    """

    moments: tuple[Moments, ...]
    second: FloatArray

    def __add__(self, other: "LatentSums") -> "LatentSums":
        """Sums over the rows of both."""
        return LatentSums(
            moments=tuple(a + b for a, b in zip(self.moments, other.moments, strict=True)),
            second=self.second + other.second,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSums:
    """What q(eta) needs of some rows; that of others is added.

    spread
        Sum of w_nc S_n, (P, K, R, R).
    outer
        Sum of w_nc E[z~] E[z~]', (P, K, 1 + R, 1 + R).
    pull
        Sum of g_nc E[z~], (P, 1 + R, K).
    """

    spread: FloatArray
    outer: FloatArray
    pull: FloatArray

    def __add__(self, other: "WeightSums") -> "WeightSums":
        """Sums over the rows of both."""
        return WeightSums(
            spread=self.spread + other.spread,
            outer=self.outer + other.outer,
            pull=self.pull + other.pull,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSums:
    """What the bound needs of some rows; that of others is added.

    n
        Number of rows.
    log_det
        Sum of log |S_n|, (P,).
    margins
        Bound of their margin factors, (P,).
    """

    n: int
    log_det: FloatArray
    margins: FloatArray

    def __add__(self, other: "BoundSums") -> "BoundSums":
        """Sums over the rows of both."""
        return BoundSums(
            n=self.n + other.n,
            log_det=self.log_det + other.log_det,
            margins=self.margins + other.margins,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSums:
    """What the visit that makes new positions adds up.

    latent
        For the views.
    weights
        For q(eta).
    spread
        Sum of S_n, (P, R, R).
    """

    latent: LatentSums
    weights: WeightSums
    spread: FloatArray

    def __add__(self, other: "SweepSums") -> "SweepSums":
        """Sums over the rows of both."""
        return SweepSums(
            latent=self.latent + other.latent,
            weights=self.weights + other.weights,
            spread=self.spread + other.spread,
        )
