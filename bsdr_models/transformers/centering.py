r"""Features less the offsets of groups, as far as these can be told from effects of the classes.

Sample i of group g is :math:`x_{gi} = \mu + b_g + \delta_{y_{gi}} + e_{gi}`, with variances T of
the offsets and W of the errors. The group has n samples, :math:`\bar x_g` is their mean. Given the
class of sample i, the deviation :math:`x_{gi} - \bar x_g` has the mean :math:`(1 - \kappa)\delta`
and the variance :math:`W (1 - 1/n)`, and :math:`\bar x_g - \mu` the mean :math:`\kappa \delta` and
the variance :math:`T + W/n`. The two are independent. If r is the correlation of the labels of two
samples of a group, :math:`\kappa = (1 + (n-1) r) / n`. The linear discriminant of both is that of

.. math::
    x_{gi} - (1 - \rho) (\bar x_g - \mu), \qquad
    \rho = \frac{\kappa (n - 1)}{1 - \kappa} \frac{W / n}{T + W / n}
         = \frac{1 + (n - 1) r}{1 - r} \frac{W}{n T + W}.

Labels drawn independently, r = 0, give the best linear unbiased prediction (BLUP) of the offset.
Groups with each class equally often, r = -1 / (n - 1), are centred in full: their means tell
nothing of the classes. If every group has one class, r = 1, nothing is subtracted, nor if the means
tell more of the classes than of the offsets, :math:`\rho \ge 1`.

T and W are estimated by moments, from mean squares between groups and within. With few groups the
ratios of these are noisy, and are shrunken towards what is common to the features, as the variances
of genes are [1]_. Without offsets they differ from 1 by chance, as does the ratio of the labels if
these are independent. So what each exceeds 1 by is multiplied by the probability, under BIC [2]_,
that more than chance is in it.

References
----------
.. [1] G. K. Smyth (2004). Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments. Statistical Applications in Genetics and Molecular
       Biology 3(1), article 3.
.. [2] R. E. Kass, A. E. Raftery (1995). Bayes factors. Journal of the American Statistical
       Association 90(430), 773-795.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, expit, polygamma
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.data import validation
from bsdr_models.data.replicates import group_means, mean_squares
from bsdr_models.data.targets import name_groups
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import warn
from bsdr_models.numerics.scaling import Scaler

# Most groups that a message names.
MAX_LISTED = 5
# Ratio of variances in place of infinity.
LARGEST_RATIO = 1e12
NO_GROUPS = (
    "GroupCentering needs the group of each sample, groups=, in fit and in transform; a Pipeline "
    "passes it on after sklearn.set_config(enable_metadata_routing=True)"
)


class GroupCentering(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Features less the offsets of groups, such as subjects, batches or studies.

    Centring within groups, also known as group-mean centring, the within transformation or the
    multilevel decomposition [1]_ [2]_, removes differences between groups. Here the mean of a group
    is subtracted only as far as it tells of the group and not of the classes in it: in full if
    every group has all classes in the same proportions, shrunken by size otherwise, and not at all
    if the proportions differ so much that the mean tells more of the class.

    New samples are centred by the mean of those of their group that are given together. The labels
    of these are not needed. Samples of a training group are centred by the offset of that group.

    Use it as a first step of a ``Pipeline``, which passes ``groups`` on after
    ``sklearn.set_config(enable_metadata_routing=True)``. :func:`compare_centering` tells whether
    it is of use.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Means of the training samples, at which all groups are centred.
    variance_ratio_ : ndarray of shape (n_features,)
        Variance of the offsets of groups over that of samples within groups and classes.
    label_correlation_ : float
        Correlation of the labels of two samples of one group: 0 if they are independent, 1 if each
        group has one class, negative if groups have all classes equally often.
    groups_ : list
        The training groups.
    offsets_ : ndarray of shape (n_groups, n_features)
        What is subtracted from their samples.

    See Also
    --------
    compare_centering : held-out scores with and without centring.

    Notes
    -----
    With T and W the variances between groups and within groups and classes, n the size of a group
    and r the correlation of labels, the mean of a group less that of all samples is multiplied by

    .. math:: 1 - \min\left(1, \frac{1 + (n - 1) r}{1 - r} \frac{W}{n T + W}\right)

    and subtracted. This is the linear discriminant of a sample and the mean of its group. With
    r = 0 it subtracts the best linear unbiased prediction (BLUP) of the offset. T / W and r are
    estimated by moments, and shrunken towards 0 as far as chance explains them. Features are
    treated one by one: offsets in a few directions of many features are not told from others. A
    missing value, NaN, remains one.

    References
    ----------
    .. [1] C. K. Enders, D. Tofighi (2007). Centering predictor variables in cross-sectional
           multilevel models: a new look at an old issue. Psychological Methods 12(2), 121-138.
    .. [2] J. A. Westerhuis, E. J. J. van Velzen, H. C. J. Hoefsloot, A. K. Smilde (2010).
           Multivariate paired data analysis: multilevel PLSDA versus OPLSDA. Metabolomics 6(1),
           119-128.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn import config_context
    >>> from sklearn.pipeline import make_pipeline
    >>> from bsdr_models import BM2PCAClassifier, GroupCentering
    >>> rng = np.random.default_rng(0)
    >>> subject, y = np.repeat(np.arange(20), 4), np.tile([0, 0, 1, 1], 20)
    >>> X = 3.0 * rng.standard_normal((20, 8))[subject] + rng.standard_normal((80, 8))
    >>> X[:, :2] += 2.0 * y[:, None]
    >>> old, new = subject < 10, subject >= 10
    >>> model = make_pipeline(GroupCentering(), BM2PCAClassifier(random_state=0))
    >>> with config_context(enable_metadata_routing=True):
    ...     model = model.fit(X[old], y[old], groups=subject[old])
    ...     score = model.score(X[new], y[new], groups=subject[new])
    >>> score > 0.9
    True
    """

    # Pipelines and searches pass groups on without ``set_fit_request``.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"groups": True}

    def fit(
        self, X: SamplesLike, y: TargetLike | None = None, *, groups: TargetLike | None = None
    ) -> Self:
        """Estimate the offsets of the groups, and how much such offsets vary.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples; NaN is a missing value.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Classes, label sets or real outputs, of which only their correlation within groups is
            used, and the variance that classes explain. Independent labels by default.
        groups : array-like of shape (n_samples,)
            Group of each sample.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``groups`` is not given, every group has one class or one sample only, or X is
            infinite.

        Warns
        -----
        UserWarning
            If some groups have one class only, or there is only one group.
        """
        table = X
        names, index, X = self._read(table, groups, reset=True)
        if y is not None:
            validation.check_order(table, y)
        classes, targets = _read_targets(y, X)
        _check_design(names, index, classes)
        self._peak = Scaler.peak_of(np.fmax.reduce(np.abs(X), axis=0))  # no square overflows
        X = X / self._peak
        self._center = group_means(X, np.zeros_like(index))[1][0]
        self.mean_ = self._center * self._peak
        self.label_correlation_ = _label_correlation(targets, index)
        self.variance_ratio_ = _variance_ratio(X, index, classes)
        self._n, self._means = group_means(X, index)
        self._within = mean_squares(X, index)[1]
        self.groups_ = names
        self.offsets_ = self._offsets(self._n, self._means) * self._peak
        return self

    def transform(self, X: SamplesLike, *, groups: TargetLike | None = None) -> FloatArray:
        """Subtract the offset of the group of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        groups : array-like of shape (n_samples,)
            Group of each sample: a group of `fit`, or a new one.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        ValueError
            If ``groups`` is not given, or X is infinite or has other features than in `fit`.

        Warns
        -----
        UserWarning
            If new groups have less than half as many samples as those of `fit`, or groups named as
            those of `fit` are as far from these as other groups are.
        """
        check_is_fitted(self)
        names, index, X = self._read(X, groups, reset=False)
        X = X / self._peak
        n, means = group_means(X, index)
        offsets = self._offsets(n, means)
        place = {name: i for i, name in enumerate(self.groups_)}
        known = np.array([name in place for name in names])
        former = [place[name] for name in names if name in place]
        offsets[known] = self.offsets_[former] / self._peak
        usual = np.median(self._n.max(axis=1))
        few = ~known & (n.max(axis=1) < 0.5 * usual)
        if few.any():
            warn(
                f"{_listed(names, few)} have few samples, at most {n[few].max():.0f}: held-out "
                f"scores are of groups like those of the fit, with {usual:.0f} in the median, and "
                "compare_centering(group_size=) gives those of smaller ones"
            )
        if self._are_others(n[known], means[known], former):
            warn(
                f"{_listed(names, known)} have names of training groups, but differ from these as "
                "other groups do: if they are others, give them other names"
            )
        return (X - offsets[index]) * self._peak

    def fit_transform(
        self, X: SamplesLike, y: TargetLike | None = None, *, groups: TargetLike | None = None
    ) -> FloatArray:
        """Fit, and subtract the offsets from the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Targets, as in `fit`.
        groups : array-like of shape (n_samples,)
            Group of each sample.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self.fit(X, y, groups=groups).transform(X, groups=groups)

    def _read(
        self, X: SamplesLike, groups: TargetLike | None, *, reset: bool
    ) -> tuple[list[object], IntArray, FloatArray]:
        """Names of the groups, the group of each sample (N,), and samples (N, D)."""
        if groups is None:
            raise ValueError(NO_GROUPS)
        table = validation.validate_samples(self, X, reset=reset, missing=True)
        names, index = name_groups(groups, X)
        return names, index, table

    def _offsets(self, n: FloatArray, means: FloatArray) -> FloatArray:
        """What is subtracted in groups with n samples of each feature, (G, D), and these means."""
        r = self.label_correlation_
        of_class = np.maximum(1.0 + (n - 1.0) * r, 0.0) / max(1.0 - r, 1e-12)
        kept = np.minimum(of_class / (n * self.variance_ratio_ + 1.0), 1.0)
        return np.where(n > 0, (1.0 - kept) * (means - self._center), 0.0)

    def _are_others(self, n: FloatArray, means: FloatArray, former: list[int]) -> bool:
        """Whether groups (G, D) are likelier to be others than training groups of these numbers.

        By the normal densities of the differences of means.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            same = self._within * (1.0 / n + 1.0 / self._n[former])
            other = same + 2.0 * self._within * self.variance_ratio_
            squared = (means - self._means[former]) ** 2
            evidence = np.log(other / same) + squared / other - squared / same
        return bool(np.nansum(evidence) < 0.0)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "offsets_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _read_targets(y: TargetLike | None, X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Class of each sample, (N,), of one class if targets are none; and targets (N, K)."""
    none = np.zeros(len(X), dtype=np.int64)
    if y is None:
        return none, np.empty((len(X), 0))
    values = validation.read_targets(y)
    check_consistent_length(X, values)
    several = values.ndim == 2 and values.shape[1] > 1
    many = values.dtype.kind in "iu" and len(np.unique(values)) > len(X) // 2  # counts, say
    if several or many or type_of_target(values) == "continuous":
        outputs = validation.read_numbers(values).reshape(len(X), -1)
        return none, outputs / np.maximum(outputs.std(axis=0), np.finfo(np.float64).tiny)
    index = np.unique(validation.read_labels(values), return_inverse=True)[1].reshape(-1)
    return index, np.eye(index.max() + 1)[index]


def _check_design(names: Sequence[object], index: IntArray, classes: IntArray) -> None:
    """Refuse groups of which each has one class or sample; warn if some have."""
    if len(names) == 1:
        warn(f"there is only one group, {names[0]!r}: new ones are centred at their own means")
        return
    if np.bincount(index).max() == 1:
        raise ValueError("every group has one sample only, which centring would remove")
    if classes.max() == 0:
        return
    pairs = np.unique(np.stack([index, classes], axis=1), axis=0)
    alone = np.bincount(pairs[:, 0]) == 1
    if alone.all():
        raise ValueError(
            "every group has samples of one class only, so that centring would remove the "
            "differences between classes: leave GroupCentering out"
        )
    if alone.any():
        warn(
            f"{_listed(names, alone)} have samples of one class only, of which nothing tells what "
            "is of the class and what of the group"
        )


def _listed(names: Sequence[object], which: np.ndarray) -> str:
    """How many groups are chosen, with the names of the first."""
    found = [repr(name) for name, chosen in zip(names, which, strict=True) if chosen]
    more = ", ..." if len(found) > MAX_LISTED else ""
    return f"{len(found)} of {len(names)} groups ({', '.join(found[:MAX_LISTED])}{more})"


def _variance_ratio(X: FloatArray, index: IntArray, classes: IntArray) -> FloatArray:
    """Variance of the offsets of groups over that within groups and classes, (D,)."""
    if index.max() == 0:
        return np.full(X.shape[1], LARGEST_RATIO)  # which leaves the means of groups in full
    residuals = X - group_means(X, classes)[1][classes]
    between, within, size = mean_squares(residuals, index, int(classes.max()) + 1)
    ratio = np.where(between > 0.0, LARGEST_RATIO, 0.0)
    varying = (between > 0.0) & (within > 0.0)
    if varying.any():
        f = between[varying] / within[varying]
        evidence = _evidence_of_groups(float(f.mean()), int(index.max()) * len(f))
        excess = np.maximum(_squeezed(f, int(index.max())) - 1.0, 0.0)
        ratio[varying] = evidence * excess / size[varying]
    return np.minimum(ratio, LARGEST_RATIO)


def _squeezed(values: FloatArray, df: int) -> FloatArray:
    """Mean squares (D,) of so many degrees of freedom, shrunken towards what they have in common.

    Their expectations are taken to have a scaled inverse chi-squared distribution, which is fitted
    to mean and variance of the logarithms.
    """
    if len(values) < 2:
        return values
    values = np.maximum(values, 1e-5 * np.median(values))
    logs = np.log(values) - digamma(0.5 * df) + np.log(0.5 * df)
    excess = np.var(logs, ddof=1) - polygamma(1, 0.5 * df)
    if excess <= 1e-6:
        return np.full_like(values, np.exp(logs.mean()))
    half = brentq(lambda x: polygamma(1, x) - min(excess, 1e5), 1e-3, 1e7)
    common = np.exp(logs.mean() + digamma(half) - np.log(half))
    return (2.0 * half * common + df * values) / (2.0 * half + df)


def _label_correlation(targets: FloatArray, index: IntArray) -> float:
    """Correlation of the targets (N, K) of two samples of a group.

    From the ratio of mean squares between groups and within, which is 1 of independent targets.
    """
    if index.max() == 0 or not np.ptp(targets, axis=0).any():
        return 0.0
    between, within, size = mean_squares(targets, index)
    if not within.any():
        return 1.0
    df = index.max() * max(targets.shape[1] - 1, 1)
    ratio = between.sum() / within.sum()
    excess = _evidence_of_groups(ratio, df) * (ratio - 1.0)
    return float(excess / (excess + size[0]))


def _evidence_of_groups(ratio: float, df: int) -> float:
    """Probability under BIC that the expected ratio of mean squares, between over within, is not 1.

    Those between groups have so many degrees of freedom, those within are taken as known.
    """
    ratio = max(ratio, np.finfo(np.float64).tiny)
    log_likelihood_ratio = 0.5 * df * (ratio - 1.0 - np.log(ratio))
    return float(expit(log_likelihood_ratio - 0.5 * np.log(df)))
