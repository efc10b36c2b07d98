r"""LatentCoordinates that training rows would have as new rows: what the classifier learns from.

A strong discriminative prior puts training rows on the centres of their classes; new rows do not
land there, and a classifier of the first learns a confidence that does not hold for the second.
Leaving a row out of the map is closed form. Left alone it is biased for few rows: without row i
the mean of the map moves away from its class. So one random row of every other class is left out
with it, and the result averaged over draws of these. Rows without a label stay, although labels
had a part in where they are: with many of them leave-out positions are a little too good.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MapPrior

# Tuples per row: enough to average over for few rows, few for many.
MAX_TUPLES, MIN_TUPLES, TUPLE_SAMPLES = 20, 3, 400
# Numbers held at a time in blocks of the inverse.
BLOCK_NUMBERS = 4_000_000
# A map that predicts less than this share of the distance between class centroids predicts none.
LEAST_SLOPE = 0.15
# Rows up to which leave-out centroids may lie in reverse where the map is good. With more they do
# so where it is not, and their order says how much is known.
FEW_SAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOutFit:
    """Leave-out positions of the labelled rows.

    latent
        (N, R); rows without a label keep their own position.
    variance
        Of position minus leave-out position under the map, up to its scale, (N,).
    slope
        Of the leave-out class centroids on those of the positions; about 1 for a map that
        predicts the classes, 0 or less for one that does not.
    """

    latent: FloatArray
    variance: FloatArray
    slope: float

    @property
    def typical_variance(self) -> float:
        """Mean variance of the labelled rows."""
        return float(self.variance[self.variance > 0.0].mean())

    @property
    def spread(self) -> FloatArray:
        """Variance in units of the usual one, (N,); 1 without a label."""
        return np.where(self.variance > 0.0, self.variance / self.typical_variance, 1.0)

    @property
    def predictive(self) -> bool:
        """Whether the map predicts the classes at all."""
        return self.slope >= LEAST_SLOPE


def leave_out_tuples(y_index: IntArray, n_labels: int, seed: int = 0) -> IntArray:
    """Rows left out together, (N_labelled, T, L): each labelled row, then one per other class.

    The generator is fixed, so that two settings are compared on the same tuples.
    """
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(y_index >= 0)
    groups = [np.flatnonzero(y_index == label) for label in range(n_labels)]
    groups = [group for group in groups if len(group)]
    n_tuples = int(np.clip(TUPLE_SAMPLES // len(known), MIN_TUPLES, MAX_TUPLES))
    picks = np.stack(
        [rng.choice(group, size=(len(known), n_tuples)) for group in groups], axis=-1
    )  # (N, T, L)
    present = np.array([y_index[group[0]] for group in groups])
    own = np.searchsorted(present, y_index[known])  # (N,)
    picks[np.arange(len(known)), :, own] = known[:, None]
    # The row itself comes first.
    order = np.argsort(np.arange(len(groups)) != own[:, None], axis=1, kind="stable")
    return np.take_along_axis(picks, order[:, None, :], axis=2)


def leave_one_out(
    prior: MapPrior, latent: FloatArray, y_index: IntArray, tuples: IntArray
) -> LeaveOneOutFit:
    r"""Leave-out positions of labelled rows.

    .. math::
        \tilde x_I = x_I - (M_{II})^{-1} [M (X - 1 c^\top X)]_I

    Parameters
    ----------
    prior : MapPrior
    latent : (N, R)
    y_index : (N,)
        Class of each row, -1 without a label.
    tuples : (N_labelled, T, L)
        From :func:`leave_out_tuples`.

    Returns
    -------
    LeaveOneOutFit
    """
    residual = prior.solve(latent - prior.centre @ latent)
    n_known, n_tuples, size = tuples.shape
    shift = np.zeros((n_known, latent.shape[1]))
    variance = np.zeros(n_known)
    unit = np.zeros((size, 1))
    unit[0] = 1.0
    step = max(1, BLOCK_NUMBERS // (size * size * n_tuples))
    for start in range(0, n_known, step):
        rows = slice(start, start + step)
        index = tuples[rows].reshape(-1, size)
        column = np.linalg.solve(prior.blocks(index), unit)[..., 0]  # first row of the inverse
        moved = np.einsum("bl,blr->br", column, residual[index])
        shift[rows] = moved.reshape(-1, n_tuples, latent.shape[1]).mean(axis=1)
        variance[rows] = column[:, 0].reshape(-1, n_tuples).mean(axis=1)
    known = tuples[:, 0, 0]
    found, spread = latent.copy(), np.zeros(len(latent))
    found[known] -= shift
    spread[known] = variance
    slope = centroid_slope(latent[known], found[known], y_index[known])
    return LeaveOneOutFit(latent=found, variance=spread, slope=slope)


def posterior_slope(n_samples: int) -> float:
    """Slope that is granted to a map whatever leave-out positions say: less to more rows."""
    return LEAST_SLOPE * min(1.0, FEW_SAMPLES / n_samples) ** 2


def guard_order(
    fit: LeaveOneOutFit, latent: FloatArray, y_index: IntArray, least: float = LEAST_SLOPE
) -> FloatArray:
    """Leave-out positions whose class centroids lie in the order of those of the positions.

    With a handful of rows the leave-out centroids may lie in reverse; a classifier would then
    learn the reverse of what the map says. Each class is shifted until the slope is ``least``.
    """
    if fit.slope >= least:
        return fit.latent
    known = y_index >= 0
    classes, index = np.unique(y_index[known], return_inverse=True)
    centroids = _centroids(latent[known], index, len(classes))
    shifted = fit.latent.copy()
    shifted[known] += (least - fit.slope) * (centroids - centroids.mean(axis=0))[index]
    return shifted


def map_scale(fit: LeaveOneOutFit, latent: FloatArray, y_index: IntArray) -> float:
    """Variance of the map, s**2, at which leave-out residuals have the size they have."""
    known = y_index >= 0
    square = ((latent - fit.latent)[known] ** 2).mean(axis=1)
    return float(np.mean(square / fit.variance[known]))


def centroid_slope(latent: FloatArray, found: FloatArray, y_index: IntArray) -> float:
    """Slope of the class centroids of leave-out positions on those of the positions."""
    classes, index = np.unique(y_index, return_inverse=True)
    there = _centroids(latent, index, len(classes))
    here = _centroids(found, index, len(classes))
    there, here = there - there.mean(axis=0), here - here.mean(axis=0)
    return float(np.vdot(here, there) / np.vdot(there, there))


def _centroids(latent: FloatArray, index: IntArray, n_classes: int) -> FloatArray:
    sums = np.zeros((n_classes, latent.shape[1]))
    np.add.at(sums, index, latent)
    return sums / np.bincount(index, minlength=n_classes)[:, None]
