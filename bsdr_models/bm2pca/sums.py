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
