r"""Settings of the map, chosen on training rows alone and in closed form.

Where the classes are pulled together without limit every row lies on the code of its class, and
the model is a penalised kernel discriminant analysis. Codes are there before any fit, so the
width g of the map and its noise lambda are chosen by how well the codes of rows left out are
predicted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import (
    DenseMapping,
    LowRankMapping,
    MappingPrior,
    centroid_weights,
)
from bsdr_models.dgplvm.leave_one_out import leave_one_out, leave_out_tuples
from bsdr_models.dgplvm.priors import LogNormal

WIDTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)
# Weak opinions where leave-out errors have none; without that on the width many rows choose ill.
WIDTH_PRIOR = LogNormal(2.0, 0.5)
NOISE_PRIOR = LogNormal(0.03, 1.5)
# Labelled rows on which settings are compared, at most: the inverse is cubic in their number.
SETTING_SAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSettings:
    """What determines the map but for the rows.

    width
        g: squared distances are divided by 2 med / g.
    noise
        lambda, relative to the variance of the smooth part.
    """

    width: float
    noise: float


type MappingFactory = Callable[[MappingSettings], MappingPrior]


def mapping_factory(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    mean_variance: float,
    centres: FloatArray | None = None,
) -> MappingFactory:
    """Map prior of training rows (N, D) as a function of its settings."""
    weights = centroid_weights(y_index, n_labels)

    def make(settings: MappingSettings) -> MappingPrior:
        options = {
            "width": settings.width,
            "noise": settings.noise,
            "mean_variance": mean_variance,
        }
        if centres is None:
            return DenseMapping.of(X, weights, **options)
        return LowRankMapping.of(X, weights, centres, **options)

    return make


def choose_settings(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    mean_variance: float,
    widths: Sequence[float] = WIDTHS,
    noises: Sequence[float] = NOISES,
) -> MappingSettings:
    """Settings under which leave-out codes are nearest to the codes.

    Parameters
    ----------
    X : (N, D)
    y_index : (N,)
        Rows without a label do not take part.
    n_labels : int
    mean_variance : float
    widths, noises : sequence of float
        Candidates; nothing is computed if there is one of each.

    Returns
    -------
    MappingSettings
    """
    candidates = [MappingSettings(width=g, noise=noise) for g in widths for noise in noises]
    if len(candidates) == 1:
        return candidates[0]
    rows = _stratified_subset(y_index, n_labels)
    X, y_index = X[rows], y_index[rows]
    codes = whitened_indicators(y_index, n_labels)
    tuples = leave_out_tuples(y_index, n_labels)
    make = mapping_factory(X, y_index, n_labels, mean_variance=mean_variance)

    def loss(settings: MappingSettings) -> float:
        fit = leave_one_out(make(settings), codes, y_index, tuples)
        error = 0.5 * codes.size * np.log(np.mean((codes - fit.latent) ** 2))
        width, _ = WIDTH_PRIOR.negative_log_density(np.log(settings.width))
        noise, _ = NOISE_PRIOR.negative_log_density(np.log(settings.noise))
        return float(error) + width + noise

    return min(candidates, key=loss)


def whitened_indicators(y_index: IntArray, n_labels: int) -> FloatArray:
    """Whitened indicators of the classes present, (N, K - 1); rows without a label are zero.

    Of labelled rows the columns have mean 0, variance 1 and no correlation, and a row depends on
    its class only.
    """
    known = y_index >= 0
    indicator = np.equal.outer(y_index[known], np.arange(n_labels)).astype(np.float64)
    indicator = indicator[:, indicator.any(axis=0)]
    left, _, _ = np.linalg.svd(indicator - indicator.mean(axis=0), full_matrices=False)
    codes = np.zeros((len(y_index), indicator.shape[1] - 1))
    codes[known] = np.sqrt(known.sum()) * left[:, : codes.shape[1]]
    return codes


def initial_coordinates(
    prior: MappingPrior, X: FloatArray, y_index: IntArray, n_labels: int, n_components: int
) -> FloatArray:
    """Whitened codes of labelled rows, with as many columns as there are components.

    Of more codes than components those combinations are taken that are predicted best where left
    out. Missing ones are the leading principal components of the features in the directions that
    codes leave.

    Parameters
    ----------
    prior : MappingPrior
    X : (N, D)
    y_index : (N,)
        No row without a label.
    n_labels, n_components : int

    Returns
    -------
    (N, R)

    Raises
    ------
    ValueError
        If rows or features are too few for that many components.
    """
    codes = whitened_indicators(y_index, n_labels)
    n_codes = codes.shape[1]
    if n_codes > n_components:
        tuples = leave_out_tuples(y_index, n_labels)
        agreement = codes.T @ leave_one_out(prior, codes, y_index, tuples).latent
        values, directions = np.linalg.eigh(agreement + agreement.T)
        return codes @ directions[:, np.argsort(-values)[:n_components]]
    if n_codes < n_components:
        return np.column_stack([codes, _other_directions(X, codes, n_components - n_codes)])
    return codes


def extend(prior: MappingPrior, latent: FloatArray, X: FloatArray) -> FloatArray:
    r"""Mean positions (M, R) of further rows, given those of the rows of the map.

    .. math::
        m(y) = c^\top X + k_b(y)^\top M (X - 1 c^\top X)
    """
    mean = prior.centre @ latent
    return mean + prior.features(X) @ prior.weights(latent - mean)


def _other_directions(X: FloatArray, codes: FloatArray, n_more: int) -> FloatArray:
    """Whitened principal components of the features, uncorrelated with the codes."""
    n, n_codes = codes.shape
    if n - 1 - n_codes < n_more:
        raise ValueError(
            f"n_components={n_codes + n_more} is too large for {n} labelled rows: {n - 1} at most"
        )
    rows = X - X.mean(axis=0)
    rows = rows - codes @ (codes.T @ rows) / n
    left, size, _ = np.linalg.svd(rows, full_matrices=False)
    found = int((size > 1e-8 * np.linalg.norm(X)).sum())
    if found < n_more:
        raise ValueError(
            f"n_components={n_codes + n_more} is too large: there are {n_codes} directions of the "
            f"classes and {found} of the features within classes"
        )
    return np.sqrt(n) * left[:, :n_more]


def _stratified_subset(y_index: IntArray, n_labels: int) -> IntArray:
    """At most ``SETTING_SAMPLES`` labelled rows, the same share of every class."""
    known = np.flatnonzero(y_index >= 0)
    if len(known) <= SETTING_SAMPLES:
        return known
    share = SETTING_SAMPLES / len(known)
    groups = [known[y_index[known] == label] for label in range(n_labels)]
    kept = [
        group[np.linspace(0, len(group) - 1, max(1, round(share * len(group)))).astype(int)]
        for group in groups
        if len(group)
    ]
    return np.sort(np.concatenate(kept))
