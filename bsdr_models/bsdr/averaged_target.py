r"""The density that the averaged sampler of BSDR moves in: see :mod:`bsdr_models.bsdr.averaged`.

Projection, weights and biases stand side by side as P = D R + R K + K *entries*, each in units of
the scale of its prior.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data
from bsdr_models.numerics import averaged_probit
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.typing import FloatArray, IntArray, ProjectionPrior

# The target is cut where a coordinate asinh(w / scale) exceeds this: w of 5e12 scales.
_LIMIT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Data and prior as the sampler sees them. P = D R + R K + K entries, flat: Q, W, b.

    columns, y
        Features (D, N) and labels, (N,) or, of chains with labels of their own, (C, N).
    shapes
        Of Q, W and b.
    unit
        Scale of the prior of each entry, (P,).
    dof
        Degrees of freedom of the prior of each entry, (P,).
    tied_axis
        Axis of Q, after that of the chains, along which entries share a precision; None if none
        do.
    n_tied
        How many entries share the precision of each, itself among them, (P,).
    latent_scale
        sigma.
    """

    columns: FloatArray
    y: IntArray
    shapes: tuple[tuple[int, int], tuple[int, int], tuple[int]]
    unit: FloatArray
    dof: FloatArray
    tied_axis: int | None
    n_tied: FloatArray
    latent_scale: float

    @property
    def stops(self) -> tuple[int, int]:
        """Where W and b begin among the entries."""
        (d, r), (_, k), _ = self.shapes
        return d * r, d * r + r * k


def pose(
    data: Data, priors: Priors, *, n_components: int, projection_prior: ProjectionPrior
) -> Problem:
    """The problem of a data set.

    Parameters
    ----------
    data : Data
        Of classes, with a `DenseDesign`.
    priors : Priors
    n_components : int
        R.
    projection_prior : {"entrywise", "columnwise", "rowwise"}

    Raises
    ------
    TypeError
        If the design is not dense.
    ValueError
        If the target is not one class per row.
    """
    if not isinstance(data.design, DenseDesign):
        raise TypeError("the averaged sampler draws over the features: it needs a DenseDesign")
    if data.target != "multiclass":
        raise ValueError(f"the averaged sampler is for classes, not for target={data.target!r}")
    d, r, k = data.n_features, n_components, data.n_labels
    tied_axis = {"entrywise": None, "columnwise": 1, "rowwise": 2}[projection_prior]
    n_tied = {"entrywise": 1, "columnwise": d, "rowwise": r}[projection_prior]
    shape = [priors.projection_shape, priors.weight_shape, priors.bias_shape]
    rate = [priors.projection_rate, priors.weight_rate, priors.bias_rate]
    counts = (d * r, r * k, k)
    return Problem(
        columns=np.ascontiguousarray(data.design.X.T),
        y=np.ascontiguousarray(data.y, dtype=np.int64),
        shapes=((d, r), (r, k), (k,)),
        unit=np.repeat(np.sqrt(np.divide(rate, shape)), counts),
        dof=2.0 * np.repeat(shape, counts),
        tied_axis=tied_axis,
        n_tied=np.repeat([float(n_tied), 1.0, 1.0], counts),
        latent_scale=priors.latent_scale,
    )


def split(values: FloatArray, problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Q (C, D, R), W (C, R, K) and b (C, K) as views of flat values (C, P)."""
    parts = np.split(values, problem.stops, axis=1)
    Q, W, b = (
        part.reshape(len(values), *shape) for part, shape in zip(parts, problem.shapes, strict=True)
    )
    return Q, W, b


def join(blocks: tuple[FloatArray, FloatArray, FloatArray]) -> FloatArray:
    """Inverse of `split`."""
    return np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)


def log_prior(entries: FloatArray, problem: Problem) -> tuple[FloatArray, FloatArray]:
    r"""Log density of the entries (C, P), up to a constant, and its gradient.

    For n entries that share a precision, in units of the scale,

    .. math::
        \log p = -\tfrac12 (\nu + n) \log(\nu + |q|^2) .
    """
    squares = entries**2
    if problem.tied_axis is not None:
        Q, _, _ = split(squares, problem)
        Q[:] = Q.sum(axis=problem.tied_axis, keepdims=True)
    squares += problem.dof
    power = problem.dof + problem.n_tied
    value = -0.5 * np.log(squares) @ (power / problem.n_tied)
    return value, -power * entries / squares


def log_likelihood(
    entries: FloatArray, points: FloatArray, problem: Problem, *, with_gradient: bool = True
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Averaged log likelihood (C,), its gradient in the entries, the shares of the points."""
    Q, W, b = split(entries * problem.unit, problem)
    found = averaged_probit.evaluate(
        problem.columns,
        problem.y,
        Q,
        W,
        b,
        points,
        latent_scale=problem.latent_scale,
        with_gradient=with_gradient,
    )
    slope = join((found.projection, found.weights, found.bias)) * problem.unit
    return found.log_likelihood, slope, found.share


def log_jacobian(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log determinant of d sinh(x) / dx and its gradient."""
    size = np.abs(x)
    return np.sum(size + np.log1p(np.exp(-2.0 * size)), axis=1), np.tanh(x)


def log_density(
    x: FloatArray, points: FloatArray, problem: Problem
) -> tuple[FloatArray, FloatArray]:
    """Log density of the coordinates x = asinh(entries), (C, P), and its gradient.

    Beyond the limit it is minus infinity, and the gradient that of the nearest point inside.
    """
    inside = np.clip(x, -_LIMIT, _LIMIT)
    entries = np.sinh(inside)
    likelihood, slope, _ = log_likelihood(entries, points, problem)
    prior, prior_slope = log_prior(entries, problem)
    jacobian, jacobian_slope = log_jacobian(inside)
    value = np.where((x == inside).all(axis=1), likelihood + prior + jacobian, -np.inf)
    return value, (slope + prior_slope) * np.cosh(inside) + jacobian_slope


def is_inside(entries: FloatArray) -> np.ndarray:
    """Whether all entries of each chain are within the limit, (C,)."""
    return (np.abs(entries) <= np.sinh(_LIMIT)).all(axis=1)
