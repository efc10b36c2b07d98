"""Array aliases, and the letters of every shape in the package.

N rows (observations), D features, R components, K labels (or regression outputs),
M new rows, C chains, S draws.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ProjectionPrior = Literal["entrywise", "columnwise", "rowwise"]
Target = Literal["multiclass", "multilabel", "regression"]
