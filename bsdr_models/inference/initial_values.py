"""Initial values of PyMC variables whose prior mean is no valid one.

PyMC's ``initval=`` would do the same, but a model that has it cannot be copied, as ``pm.do``,
``pm.observe`` and ``pm.compute_log_likelihood`` do.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt

from bsdr_models.arrays import FloatArray

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any


def normal_from(
    name: str, mean: Tensor, sd: Tensor, *, start: FloatArray, dims: Sequence[str]
) -> Tensor:
    """Normal variable with the initial value ``start``, of the shape of the variable."""

    def draw(mean: Tensor, sd: Tensor, size: Any) -> Tensor:
        return pm.Normal.dist(mean, sd, size=size)

    def initial_value(variable: Tensor, size: Any, mean: Tensor, sd: Tensor) -> Tensor:
        return pt.constant(start, dtype=variable.dtype)

    return pm.CustomDist(name, mean, sd, dist=draw, support_point=initial_value, dims=dims)
