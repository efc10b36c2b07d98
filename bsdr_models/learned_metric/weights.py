r"""Weights of the candidates of a metric, by how well they predict held-out samples.

.. math::
    w_j \propto e^{-\kappa n l_j}

with the log loss :math:`l_j` of n held-out samples, a mean over several divisions into folds. It is
that of Gaussian process regressions of the class indicators on the features in candidate j, with
the radial basis functions that are the mapping of D-GPLVM, at the best noise and softmax
temperature. Candidates are learned without the held-out samples. The average predicts better than
the candidate of the smallest loss, which few samples cannot tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from types import MappingProxyType

import numpy as np
from scipy.linalg import eigh, lapack

from bsdr_models.learned_metric.metric import (
    CANDIDATES,
    NAMES,
    NO_VARIANCE,
    ClassBasis,
    MetricName,
    Scale,
    class_indicators,
    inner_products,
    named_weights,
    weigh,
)
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.folds import find_strata, stratified_subset

# kappa. At 1 differences of losses that are luck decide; at 0 all candidates count alike.
SHARPNESS = 0.5
# Variances within classes that are less count as this, of which squares do not overflow.
LEAST_VARIANCE = 1e-290
# Candidates with less weight are left out.
LEAST_WEIGHT = 0.01
# Most samples by which candidates are weighted.
MOST_SAMPLES = 300
# Width of the radial basis functions, relative to the median squared distance, and prior variance
# of the mean: those of the mapping of D-GPLVM.
WIDTH = 2.0
MEAN_VARIANCE = 0.3
# Noises of the regressions, relative to the variance of the smooth part.
NOISES = (0.003, 0.03, 0.3)
# Inverse softmax temperatures of its predictions that are compared.
INVERSE_TEMPERATURES = np.geomspace(0.05, 200.0, 12)
# Errors of sums of squares, as a share of them.
ROUNDING = 1e-14


@dataclass(frozen=True, kw_only=True)
class MetricWeights:
    """Weights of the candidates from all samples, (J,)."""

    every: FloatArray
    divisions: Sequence["_Division"] = ()  # by which they are chosen, if they are

    @cached_property
    def without(self) -> list[FloatArray]:
        """Weights without each fold, (F, J), of each division."""
        return [
            np.stack([_from_losses(losses) for losses in own.losses_without()])
            for own in self.divisions
        ]

    @classmethod
    def choose(
        cls,
        metric: MetricName,
        X: FloatArray,
        classes: IntArray | None,
        units: FloatArray,
        divisions: Sequence[IntArray],
        *,
        share: float = 1.0,
        sample_weight: FloatArray | None = None,
    ) -> "MetricWeights":
        """Weights by held-out samples, of a metric that the user has not named.

        Samples (N, D) are in random order. Classes are (N,), or (N, T) of several labels, -1 if
        unknown, or None for real outputs, for which ``"auto"`` is unit variance. A division into
        folds (N,) has numbers from 0, and -1 of samples that are in every training set. With fewer
        than two folds all candidates count alike. The effective number of samples is a ``share`` of
        the sum of their weights (N,), by default ones.
        """
        alone: MetricName = "unit" if metric == "auto" and classes is None else metric
        equal = named_weights(alone)
        used = [len(np.unique(fold[fold >= 0])) > 1 for fold in divisions]
        if metric != "auto" or classes is None or not all(used):
            return cls(every=equal)
        columns = classes.reshape(len(classes), -1)
        parts = [_Division.of(X, columns, units, fold, share, sample_weight) for fold in divisions]
        every = _from_losses(np.mean([part.losses() for part in parts], axis=0))
        return cls(every=every, divisions=parts)


def _from_losses(losses: FloatArray) -> FloatArray:
    """Weights (J,) of summed log losses (J,); equal ones if they are unknown."""
    weights = np.exp(-SHARPNESS * (losses - losses.min()))
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """Samples of one division into folds, at most so many, by which candidates are weighted."""

    X: FloatArray  # (N, D), centred
    classes: IntArray  # (N, T)
    units: FloatArray
    fold: IntArray  # (N,)
    n_folds: int
    share: float
    weights: FloatArray | None  # of the samples, (N,)
    targets: list[FloatArray]  # indicators of the values of each label, (N, K)
    whole: dict[Scale, FloatArray]  # inner products (N, N) in scales that know no class

    @classmethod
    def of(
        cls,
        X: FloatArray,
        classes: IntArray,
        units: FloatArray,
        fold: IntArray,
        share: float,
        weights: FloatArray | None = None,
    ) -> "_Division":
        """Of each fold apart: classes of one do not decide which samples of another are taken."""
        strata = find_strata(np.column_stack([fold, classes]))
        some = stratified_subset(strata, MOST_SAMPLES)
        weights = None if weights is None else weights[some]
        X = X[some] - np.average(X[some], axis=0, weights=weights)
        whole: dict[Scale, FloatArray] = {}
        if X.shape[1] > len(X):
            weighed = weigh(X, weights)
            size = len(X) if weights is None else weights.sum()
            total = np.einsum("nd,nd->d", weighed, weighed) / size
            varies = total > NO_VARIANCE * total.max(initial=0.0)
            X = X[:, varies]
            units = units[varies]
            with np.errstate(divide="ignore", over="ignore"):  # of negligible features
                common = 1.0 / units
            whole["common"] = inner_products(X, common)
            whole["total"] = inner_products(X, np.sqrt(total[varies]))
        return cls(
            X=X,
            classes=classes[some],
            units=units,
            fold=fold[some],
            n_folds=int(fold.max()) + 1,
            share=share,
            weights=weights,
            targets=[class_indicators(own) for own in classes[some].T],
            whole=whole,
        )

    def losses(self) -> FloatArray:
        """Summed log losses (J,) of the candidates, each fold predicted by the others."""
        scores = self._empty_scores()
        for number in range(self.n_folds):
            out = self.fold == number
            if out.any() and not out.all():
                scores[:, :, out] = self._left_out_scores(out)
        return self._log_losses(scores)

    def losses_without(self) -> FloatArray:
        """The same without each fold, (F, J): each of the others is predicted without both."""
        found = [self._empty_scores() for _ in range(self.n_folds)]
        for f, g in combinations(range(self.n_folds), 2):
            out = (self.fold == f) | (self.fold == g)
            if not out.any() or out.all():
                continue
            predicted = self._left_out_scores(out)
            for own, other in ((f, g), (g, f)):
                found[own][:, :, self.fold == other] = predicted[:, :, self.fold[out] == other]
        return np.stack([self._log_losses(scores) for scores in found])

    def _empty_scores(self) -> FloatArray:
        n_targets = sum(own.shape[1] for own in self.targets)
        return np.full((len(NAMES), len(NOISES), len(self.X), n_targets), np.nan)

    def _left_out_scores(self, out: BoolArray) -> FloatArray:
        """Predicted targets of M samples left out, by candidate and noise, (J, P, M, K)."""
        rest = ~out
        known = [own[rest] for own in self.targets]
        own = None if self.weights is None else self.weights[rest]
        weights = _mean_weights(known, own)
        basis = ClassBasis.of(self.classes[rest], self.share, own)
        targets = np.concatenate(known, axis=1)
        kernels = candidate_kernels(self.X, rest, basis, self.units, self.whole)
        return np.stack([_regress(each, rest, targets, weights, basis) for each in kernels])

    def _log_losses(self, scores: FloatArray) -> FloatArray:
        """Summed log losses (J,) of scores (J, P, N, K), NaN of samples that are not left out."""
        known = ~np.isnan(scores).any(axis=(0, 1, 3))
        if not known.any():
            return np.zeros(len(NAMES))
        targets = [own[known] for own in self.targets]
        weights = None if self.weights is None else self.weights[known]
        return _log_losses(scores[:, :, known], targets, self.share, weights)


def _mean_weights(targets: list[FloatArray], weights: FloatArray | None) -> FloatArray:
    """Weights (n,) of training samples in the mean of the regressions: classes count alike."""
    weights = np.ones(len(targets[0])) if weights is None else weights
    if len(targets) == 1:
        count = weights @ targets[0]
        each = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0.0)
        weights = weights * (targets[0] @ each)
    return np.asarray(weights / (weights.sum() or 1.0))


def candidate_kernels(
    X: FloatArray,
    rest: BoolArray,
    basis: ClassBasis,
    units: FloatArray,
    whole: Mapping[Scale, FloatArray] = MappingProxyType({}),
) -> Iterator[FloatArray]:
    """Squared distances (N, n) of samples (N, D) from the training ones in each candidate.

    Candidates are learned from the training samples ``rest`` (N,), and their scale is that in which
    the mean squared length of a training sample is one. Inner products (N, N) of the ``whole`` set
    may be known in some scales.
    """
    X = X - np.average(X[rest], axis=0, weights=basis.weights)
    needed = {each.scale for each in CANDIDATES.values()} - whole.keys()
    scales = basis.scales(weigh(X[rest], basis.weights), units, needed)
    parts: dict[Scale, _FeatureSpace | _SampleSpace] = {}
    for scale, products in whole.items():
        parts[scale] = _SampleSpace.learn(products, rest, basis, X.shape[1])
    wide = X.shape[1] > np.count_nonzero(rest)
    for scale, divisor in scales.items():
        n_features = int(np.isfinite(divisor).sum())
        if wide:
            products = inner_products(X, divisor)
            parts[scale] = _SampleSpace.learn(products, rest, basis, n_features)
        else:
            parts[scale] = _FeatureSpace.learn(X, divisor, rest, basis)
    for each in CANDIDATES.values():
        products, lengths = parts[each.scale].whitened(each.exponent, rest)
        size = float(np.average(lengths[rest], weights=basis.weights)) or 1.0
        squares = lengths[:, None] + lengths[rest] - 2.0 * products
        yield np.maximum(squares, 0.0) / size


@dataclass(frozen=True, slots=True)
class _FeatureSpace:
    """Samples (N, B) in the axes of their shrunk within-class covariance, with its spectrum."""

    coordinates: FloatArray
    value: FloatArray  # (B,)

    @classmethod
    def learn(
        cls, X: FloatArray, divisor: FloatArray, rest: BoolArray, basis: ClassBasis
    ) -> "_FeatureSpace":
        """From centred samples (N, D) and divisors (D,)."""
        Z = X / divisor
        own = weigh(Z[rest], basis.weights)
        value, axes, _ = basis.shrink(own, int(np.isfinite(divisor).sum()))
        return cls(Z @ axes, np.maximum(value, LEAST_VARIANCE))

    def whitened(self, exponent: float, rest: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Inner products (N, n) with training samples and squared lengths (N,)."""
        Z = self.coordinates * self.value ** (-0.5 * exponent)
        return Z @ Z[rest].T, np.einsum("nb,nb->n", Z, Z)


@dataclass(frozen=True, slots=True)
class _SampleSpace:
    """The same for more features than training samples, by inner products of the samples."""

    products: FloatArray  # with training samples, (N, n)
    lengths: FloatArray  # squared, (N,)
    along: FloatArray  # coordinates along the axes of the within-class scatter, (N, B)
    value: FloatArray  # shrunk variances along these, (B,)
    elsewhere: float  # variance in every other direction

    @classmethod
    def learn(
        cls, whole: FloatArray, rest: BoolArray, basis: ClassBasis, n_features: int
    ) -> "_SampleSpace":
        """From inner products (N, N), which are centred by the training samples."""
        products = whole[:, rest]
        mean = np.average(products, axis=1, weights=basis.weights)
        square = float(np.average(mean[rest], weights=basis.weights))
        lengths = np.diagonal(whole) - 2.0 * mean + square
        products = products - mean[:, None] - mean[rest] + square
        U = basis.basis
        weighed = weigh(products.T, basis.weights).T
        within = weighed - (weighed @ U) @ U.T
        own = weigh(within[rest], basis.weights)
        residual = own - U @ (U.T @ own)
        square, vector = eigh(residual)
        # Without any scatter within classes all of it are rounding errors.
        least = max(NO_VARIANCE * float(square[-1]), ROUNDING * float(lengths[rest].sum()))
        kept = square > least
        square = square[kept]
        value, elsewhere = basis.shrink_spectrum(square, np.diagonal(residual), n_features)
        along = within @ (vector[:, kept] / np.sqrt(square))
        value = np.maximum(value, LEAST_VARIANCE)
        return cls(products, lengths, along, value, max(elsewhere, LEAST_VARIANCE))

    def whitened(self, exponent: float, rest: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Inner products (N, n) with training samples and squared lengths (N,)."""
        if exponent == 0.0:
            return self.products, self.lengths
        outside = self.elsewhere**-exponent
        gain = self.value**-exponent - outside
        along = self.along * gain
        products = outside * self.products + along @ self.along[rest].T
        return products, outside * self.lengths + np.einsum("nb,nb->n", along, self.along)


def _regress(
    squares: FloatArray,
    rest: BoolArray,
    targets: FloatArray,
    mean_weights: FloatArray,
    basis: ClassBasis,
) -> FloatArray:
    """Predictions (P, M, K) of targets (n, K) by Gaussian processes, for each noise.

    From squared distances (N, n) of all samples from the n training samples.
    """
    among = squares[rest]
    n = len(among)
    typical = _median(among, basis.weights) or float(among.mean()) or 1.0
    covariance = np.exp((-0.5 * WIDTH / typical) * squares)
    covariance += MEAN_VARIANCE
    mean = mean_weights @ targets
    matrix = covariance[rest]
    cross = covariance[~rest]
    found = []
    count = basis.share if basis.weights is None else basis.share * basis.weights
    for noise in NOISES:
        noisy = matrix.copy()
        noisy.flat[:: n + 1] += noise / count
        _, solved, _ = lapack.dposv(noisy, targets - mean, overwrite_a=1)
        found.append(mean + cross @ solved)
    return np.stack(found)


def _median(squares: FloatArray, weights: FloatArray | None) -> float:
    """Median of the squared distances (n, n) of different samples, of weights (n,)."""
    n = len(squares)
    if weights is None:
        middle = min(n + n * (n - 1) // 2, n * n - 1)  # of the sorted ones, n of which are zero
        return float(np.partition(squares, middle, axis=None)[middle])
    order = np.argsort(squares, axis=None)
    mass = np.cumsum(np.outer(weights, weights).ravel()[order])
    middle = int(np.searchsorted(mass, 0.5 * (mass[-1] + np.sum(weights**2)), side="right"))
    return float(squares.ravel()[order[min(middle, n * n - 1)]])


def _log_losses(
    scores: FloatArray,
    targets: list[FloatArray],
    share: float,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Summed log losses (J,) of held-out samples of such an effective share, and weights (M,).

    From scores (J, P, M, K), at the best noise and temperature.
    """
    n_held_out = float(scores.shape[2])
    if weights is not None:
        targets = [own * weights[:, None] for own in targets]
        n_held_out = float(weights.sum())
    losses = np.zeros((len(INVERSE_TEMPERATURES), *scores.shape[:2]))
    ends = np.cumsum([own.shape[1] for own in targets])
    n_known = sum(float(own.sum()) for own in targets)
    n_effective = share * n_known
    for own, end in zip(targets, ends, strict=True):
        shifted = scores[..., end - own.shape[1] : end]
        shifted = shifted - shifted.mean(axis=-1, keepdims=True)
        largest = shifted.max(axis=-1)
        below = shifted - largest[..., None]
        right = np.einsum("jpmk,mk->jp", shifted, own)
        count = own.sum(axis=1)
        for loss, sharp in zip(losses, INVERSE_TEMPERATURES, strict=True):
            total = sharp * largest + np.log(np.exp(sharp * below).sum(axis=-1))
            # As if one sample more were of every class alike: certain predictions stay finite.
            loss += total @ count - sharp * right * n_effective / (n_effective + 1.0)
    return share * n_held_out / n_known * _parabola(losses).min(axis=1)


def _parabola(values: FloatArray) -> FloatArray:
    """Smallest values along the first axis, between neighbours of the smallest by a parabola."""
    at = np.clip(values.argmin(axis=0), 1, len(values) - 2)[None]
    low, middle, high = (np.take_along_axis(values, at + step, axis=0)[0] for step in (-1, 0, 1))
    curvature = low - 2.0 * middle + high
    fall = np.divide(
        (low - high) ** 2, 8.0 * curvature, out=np.zeros_like(low), where=curvature > 0.0
    )
    return np.minimum(values.min(axis=0), middle - fall)
