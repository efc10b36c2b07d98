"""Array aliases, and the letters of shapes throughout the package.

N samples, D features, R components, K classes, labels or regression outputs, M new samples,
C chains, S draws.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import dask.array as da
    import pandas as pd
    import polars as pl
    import xarray as xr
    from scipy import sparse

FloatArray = NDArray[np.float64]
SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Dense (N, D), or any of SciPy's sparse arrays and matrices, which share no annotated type.
type Rows = Any

# What a user passes as samples (N, D), as their targets or groups (N,) or (N, K): `validation`
# reads them.
type SamplesLike = (
    ArrayLike | pd.DataFrame | pl.DataFrame | xr.DataArray | da.Array | sparse.sparray
)
type TargetLike = (
    ArrayLike | pd.Series | pd.DataFrame | pl.Series | pl.DataFrame | xr.DataArray | da.Array
)

Target = Literal["multiclass", "multilabel", "regression"]
# What y of a declared model holds: the binary model has one latent utility for two classes.
DeclaredTarget = Literal["multiclass", "binary", "multilabel", "regression"]
