"""What an engine sees of a data set: the design operator and the targets, computed once."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, ProjectionPrior, Target
from bsdr_models.numerics.design import DenseDesign, Design, SpectralDesign


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Rows and targets.

    design
        X as a linear operator, (N, D); in working coordinates of its own for a columnwise prior.
    y
        Targets: label index (N,) of int for ``"multiclass"``, (N, K) of bool for
        ``"multilabel"``, (N, K) of float for ``"regression"``.
    n_labels
        K.
    target
        The kind of response.
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
        """D in the working coordinates of the design."""
        return self.design.n_features


def make_data(
    X: FloatArray,
    y: np.ndarray,
    *,
    n_labels: int,
    target: Target = "multiclass",
    projection_prior: ProjectionPrior = "entrywise",
) -> Data:
    """Wrap arrays that were already validated, with the design that suits the prior.

    A columnwise prior is invariant to rotations of the features, so one decomposition of X
    turns every later sweep into element-wise work.
    """
    design: Design = SpectralDesign(X) if projection_prior == "columnwise" else DenseDesign(X)
    return Data(design=design, y=y, n_labels=n_labels, target=target)
