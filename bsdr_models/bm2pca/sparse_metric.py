"""The Euclidean metric of sparse samples too many to be made dense, as an operator."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import dia_array, eye_array, issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.row_space import Rows, squared_distance, weighted_mean

# Whitened features of samples (N, B), an array or an operator with products by either side.
type Whitened = FloatArray | LinearOperator

# Most numbers of a dense copy of sparse samples.
MAX_DENSE = 2**25


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMetric:
    """Whitened features g (x - t), in place of those of a `Metric`."""

    mean: FloatArray  # t, (D,)
    gain: float  # g

    @classmethod
    def learn(cls, X: Rows) -> "SparseMetric":
        """From labelled samples (N, D)."""
        mean = weighted_mean(X, np.ones(X.shape[0]))
        length = float(np.mean(squared_distance(X, mean)))
        return cls(mean=mean, gain=1.0 / np.sqrt(length) if length > 0.0 else 1.0)

    @property
    def effects(self) -> dia_array:
        """Effects of features in whitened ones, g I, (D, D)."""
        return self.gain * eye_array(len(self.mean))

    @property
    def shares(self) -> dict[str, float]:
        """Weight of the only candidate."""
        return {"as they are": 1.0}

    def whiten(self, X: Rows) -> LinearOperator:
        """Whitened features of samples (M, D), as an operator."""
        ones = aslinearoperator(np.ones((X.shape[0], 1)))
        centred = aslinearoperator(X) - ones @ aslinearoperator(self.mean[None])
        return self.gain * centred


def is_large(X: Rows) -> bool:
    """Whether samples (N, D) are sparse and too many to be made dense."""
    return issparse(X) and X.shape[0] * X.shape[1] > MAX_DENSE
