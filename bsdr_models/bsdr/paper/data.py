"""Data as seen by an inference engine: design operator and targets."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, ProjectionPrior, Target
from bsdr_models.numerics.design import DenseDesign, Design, SpectralDesign


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples and targets.

    design
        X as a linear operator, (N, D); in rotated coordinates for a columnwise prior.
    y
        Class indices (N,) for ``"multiclass"``, bool (N, K) for ``"multilabel"``, float (N, K) for
        ``"regression"``.
    n_labels
        K.
    target
        Kind of target.
    """

    design: Design
    y: np.ndarray
    n_labels: int
    target: Target = "multiclass"

    @property
    def n_samples(self) -> int:
        """N."""
        return self.design.n_samples

    @property
    def n_features(self) -> int:
        """D in the coordinates of the design."""
        return self.design.n_features


def make_data(
    X: FloatArray,
    y: np.ndarray,
    *,
    n_labels: int,
    target: Target = "multiclass",
    projection_prior: ProjectionPrior = "entrywise",
) -> Data:
    """Wrap validated arrays, with the design that suits the prior.

    A columnwise prior is invariant to rotations of the features, so after one decomposition of X
    every sweep is element-wise.
    """
    design: Design = SpectralDesign(X) if projection_prior == "columnwise" else DenseDesign(X)
    return Data(design=design, y=y, n_labels=n_labels, target=target)
