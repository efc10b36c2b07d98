r"""Left-out latent coordinates, to which the classifier is fitted; class indicators.

Training samples lie closer to their class centroids than new samples. Leaving a sample out of the
mapping is closed form, but biased for few samples: without it the mean of the mapping moves away
from its class. So one random sample of every other class is left out with it, and the result is
averaged over such tuples. Unlabelled samples stay. A metric that was learned from the classes
still knows that of the sample: then folds are left out of both metric and mapping.

Samples of a group are dependent, and new samples are of other groups. The classifier is fitted as
if there were no groups, because left-out groups of few move together, and functions fitted to them
predict new groups worse. It is judged, and its temperature chosen, by groups that are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.criteria import class_centroids
from bsdr_models.metrics import N_STANDARD_ERRORS
from bsdr_models.numerics.dependence import error_of_sum
from bsdr_models.numerics.folds import sample_keys

# Tuples per sample: as many as give `TUPLE_SAMPLES` in all, within these limits.
MAX_TUPLES = 20
MIN_TUPLES = 3
TUPLE_SAMPLES = 400
# Samples whose blocks of the inverse are in memory at a time, times tuples and their size.
BLOCK_SAMPLES = 8000
# With up to this many samples even a good mapping may reverse the order of the leave-one-out
# centroids: then they have this slope on the fitted ones.
FEW_SAMPLES = 10
MIN_SLOPE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Samples left out of a mapping and of the metric in which it is, and the other samples.

    ``covariances`` (M, N) are those of the left-out samples in the mapping of the N others.
    """

    left_out: IntArray
    rest: IntArray
    prior: MappingPrior
    covariances: FloatArray

    def predict(self, values: FloatArray) -> FloatArray:
        """Values (M, R) of the left-out samples, given those of all samples."""
        return self.prior.predict(values[self.rest], self.covariances)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOutFit:
    """Left-out latent coordinates (N, R); unlabelled samples keep their fitted ones.

    ``variance`` (N,) is that under the mapping, up to its scale, and 0 without a label. ``slope``
    is that of the leave-one-out class centroids on the fitted ones, with its standard error over
    samples, or groups of them: about 1 for a mapping that predicts the classes, 0 or less for one
    that does not.
    """

    latent: FloatArray
    variance: FloatArray
    slope: float
    slope_se: float

    @property
    def typical_variance(self) -> float:
        """Mean variance of the labelled samples."""
        return float(self.variance[self.variance > 0.0].mean())

    @property
    def relative_variance(self) -> FloatArray:
        """Variance relative to the typical one, (N,); 1 without a label."""
        return np.where(self.variance > 0.0, self.variance / self.typical_variance, 1.0)

    @property
    def predictive(self) -> bool:
        """Whether the mapping predicts the classes, of which few samples cannot tell.

        Without this classes that differ by chance in nearly equal left-out latent coordinates would
        look like a signal.
        """
        few = int(np.count_nonzero(self.variance)) <= FEW_SAMPLES
        return few or self.slope > N_STANDARD_ERRORS * self.slope_se


def leave_out_tuples(y_index: IntArray, X: FloatArray) -> IntArray:
    """Samples left out together, (N_labelled, T, L): each labelled one, then one per other class.

    The seed is fixed; the order of samples and the names of classes make no difference.
    """
    rng = np.random.default_rng(0)
    order = np.argsort(sample_keys(X), kind="stable")
    order = order[y_index[order] >= 0]
    _, first, own = np.unique(y_index[order], return_index=True, return_inverse=True)
    classes = np.argsort(first)
    n_tuples = int(np.clip(TUPLE_SAMPLES // len(order), MIN_TUPLES, MAX_TUPLES))
    picks = [rng.choice(order[own == label], size=(len(order), n_tuples)) for label in classes]
    own = np.argsort(classes)[own]  # (N,)
    own_first = np.argsort(np.arange(len(classes)) != own[:, None], axis=1, kind="stable")
    tuples = np.take_along_axis(np.stack(picks, axis=-1), own_first[:, None, :], axis=2)
    tuples[:, :, 0] = order[:, None]
    return tuples[np.argsort(order)]


def leave_one_out(
    prior: MappingPrior,
    latent: FloatArray,
    y_index: IntArray,
    tuples: IntArray,
    folds: Iterable[Fold] = (),
) -> LeaveOneOutFit:
    r"""Left-out latent coordinates of the labelled samples, from latent coordinates (N, R).

    .. math::
        \tilde x_I = x_I - (M_{II})^{-1} [M (X - 1 c^\top X)]_I

    Classes are (N,), -1 without a label, and tuples are from :func:`leave_out_tuples`, of the
    samples that are in no fold.
    """
    residual = prior.solve(latent - prior.mean_weights @ latent)
    n_tuples, size = tuples.shape[1:]
    unit = np.eye(size, 1)
    left_out = latent.copy()
    variance = np.zeros(len(latent))
    step = max(1, BLOCK_SAMPLES // (size * n_tuples))
    for start in range(0, len(tuples), step):
        index = tuples[start : start + step]
        of_tuple = index.reshape(-1, size)
        blocks = prior.inverse[of_tuple[:, :, None], of_tuple[:, None, :]]
        # First row of the inverse.
        column = np.linalg.solve(blocks, unit)[..., 0].reshape(-1, n_tuples, size)
        sample = index[:, 0, 0]
        left_out[sample] -= np.einsum("btl,btlr->br", column, residual[index]) / n_tuples
        variance[sample] = column[:, :, 0].mean(axis=1)
    return leave_folds_out(left_out, variance, latent, y_index, folds)


def leave_folds_out(
    left_out: FloatArray,
    variance: FloatArray,
    latent: FloatArray,
    y_index: IntArray,
    folds: Iterable[Fold],
    groups: IntArray | None = None,
) -> LeaveOneOutFit:
    """Left-out coordinates (N, R) and variances (N,), by ``folds`` where they have a sample.

    If the folds are of whole ``groups`` (N,), the slope has its standard error over groups.
    """
    left_out = left_out.copy()
    variance = variance.copy()
    for fold in folds:
        left_out[fold.left_out] = fold.predict(latent)
        variance[fold.left_out] = fold.prior.variance(fold.covariances)
    fitted = _centred_centroids(latent, y_index)
    known = y_index >= 0
    _, own, count = np.unique(y_index[known], return_inverse=True, return_counts=True)
    deviation = left_out[known] - class_centroids(left_out, y_index).mean(axis=0)
    share = np.einsum("nr,nr->n", deviation, fitted[own]) / (count[own] * np.vdot(fitted, fitted))
    slope = float(share.sum())
    of_known = None if groups is None else groups[known]
    slope_se = error_of_sum(share - share.mean(), of_known)
    return LeaveOneOutFit(latent=left_out, variance=variance, slope=slope, slope_se=slope_se)


def enforce_centroid_order(
    fit: LeaveOneOutFit, latent: FloatArray, y_index: IntArray
) -> FloatArray:
    """Left-out latent coordinates; of few samples shifted by class to the least slope.

    With a handful of samples the leave-one-out centroids may be in reverse order, and a classifier
    fitted to them would reverse the predictions of the mapping.
    """
    known = y_index >= 0
    if fit.slope >= MIN_SLOPE or known.sum() > FEW_SAMPLES:
        return fit.latent
    _, index = np.unique(y_index[known], return_inverse=True)
    shifted = fit.latent.copy()
    shifted[known] += (MIN_SLOPE - fit.slope) * _centred_centroids(latent, y_index)[index]
    return shifted


def mapping_scale(fit: LeaveOneOutFit, latent: FloatArray, y_index: IntArray) -> float:
    """Moment estimate of the variance s**2 of the mapping from leave-one-out residuals."""
    known = y_index >= 0
    square = ((latent - fit.latent)[known] ** 2).mean(axis=1)
    return float(np.mean(square / fit.variance[known]))


def _centred_centroids(latent: FloatArray, y_index: IntArray) -> FloatArray:
    """Centroids (C, R) of the classes present, less their mean."""
    centroids = class_centroids(latent, y_index)
    return centroids - centroids.mean(axis=0)


def whitened_indicators(y_index: IntArray) -> FloatArray:
    """Whitened indicators of the classes present, (N, K - 1); unlabelled samples have zeros.

    Over labelled samples the columns have mean 0, variance 1 and no correlation.
    """
    known = y_index >= 0
    indicator = np.equal.outer(y_index[known], np.unique(y_index[known])).astype(np.float64)
    left, _, _ = np.linalg.svd(indicator - indicator.mean(axis=0), full_matrices=False)
    whitened = np.zeros((len(y_index), indicator.shape[1] - 1))
    whitened[known] = np.sqrt(known.sum()) * left[:, : whitened.shape[1]]
    return whitened


def with_principal_components(
    indicators: FloatArray, X: FloatArray, n_components: int
) -> FloatArray:
    """Whitened indicators (N, P), then whitened principal components of the rest of X (N, D)."""
    n, n_indicators = indicators.shape
    centred = X - X.mean(axis=0)
    residual = centred - indicators @ (indicators.T @ centred) / n
    left, size, _ = np.linalg.svd(residual, full_matrices=False)
    rank = int((size > 1e-8 * np.linalg.norm(X)).sum())
    n_more = n_components - n_indicators
    if rank < n_more:
        raise ValueError(
            f"n_components={n_components} is too large: there are {n_indicators} directions of the "
            f"classes and {rank} of the features within classes"
        )
    return np.column_stack([indicators, np.sqrt(n) * left[:, :n_more]])


def initial_coordinates(
    prior: MappingPrior,
    X: FloatArray,
    y_index: IntArray,
    n_components: int,
    tuples: IntArray,
) -> FloatArray:
    """The best predicted whitened indicators (N, R), then principal components of the features."""
    indicators = whitened_indicators(y_index)
    n_indicators = indicators.shape[1]
    if n_indicators > n_components:
        agreement = indicators.T @ leave_one_out(prior, indicators, y_index, tuples).latent
        values, directions = np.linalg.eigh(agreement + agreement.T)
        return indicators @ directions[:, np.argsort(-values)[:n_components]]
    if n_indicators < n_components:
        return with_principal_components(indicators, X, n_components)
    return indicators
