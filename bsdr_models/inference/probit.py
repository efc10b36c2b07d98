"""Probit likelihood of signs as a symbolic graph, exact in both tails."""

import math
from typing import Any

import pymc as pm
import pytensor.tensor as pt

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any


def draw_sign(eta: Tensor, size: Any) -> Tensor:
    """Whether the utility N(eta, 1) is positive, of the shape of eta."""
    return pt.gt(eta + pm.Normal.dist(0.0, 1.0, shape=eta.shape), 0.0).astype("int64")


def log_sign_probability(y: Tensor, eta: Tensor) -> Tensor:
    """Log probability that the utility N(eta, 1) is positive iff y is 1, of the shape of eta."""
    return log_phi(pt.switch(pt.gt(y, 0), eta, -eta))


def log_phi(x: Tensor) -> Tensor:
    """Log of the standard normal distribution function, with finite gradients in both tails.

    Both branches get finite arguments, since the gradient of a ``switch`` multiplies the branch not
    taken by zero.
    """
    left = pt.minimum(x, -1.0)
    right = pt.maximum(x, -1.0)
    return pt.switch(
        x < -1.0,
        pt.log(pt.erfcx(-left / math.sqrt(2.0)) / 2.0) - 0.5 * left**2,
        pt.log1p(-pt.erfc(right / math.sqrt(2.0)) / 2.0),
    )
