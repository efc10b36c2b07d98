"""Array aliases, and the letters of shapes throughout the package.

N samples, D features, R components, K classes, labels or regression outputs, M new samples,
C chains, S draws.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ProjectionPrior = Literal["entrywise", "columnwise", "rowwise"]
Target = Literal["multiclass", "multilabel", "regression"]
# What y of a declared model holds: the binary model has one latent utility for two classes.
DeclaredTarget = Literal["multiclass", "binary", "multilabel", "regression"]
