"""A factor of the posterior of any model with conjugate updates."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.numerics.arrays import FloatArray

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Independent Gammas, density proportional to x**(shape - 1) exp(-rate x), of any shape."""

    shape: FloatArray
    rate: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean of the Gamma, E[x]."""
        return self.shape / self.rate
