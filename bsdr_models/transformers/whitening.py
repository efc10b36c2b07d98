"""Whitened features for other classifiers, by the learned metric."""

from typing import ClassVar, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.data import validation
from bsdr_models.data.targets import read_classes, read_groups
from bsdr_models.data.training import Training
from bsdr_models.learned_metric.metric import MetricName
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.numerics.scaling import Scaler, pad
from bsdr_models.options import StrOptions, check_parameters


class SupervisedWhitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Whitened features, in which directions count by how far they can separate the classes.

    Use it as a step of a ``Pipeline`` before any other classifier, such as logistic regression,
    support vectors or nearest neighbours, so that each fold learns it again. Inner products of
    whitened features are :math:`x^\top \Lambda x'`, with an average :math:`\Lambda` of covariances
    that are learned within classes and weighted by held-out samples
    (:mod:`bsdr_models.learned_metric`).

    The models of this package have the same metric inside. Do not give them whitened features,
    since their own folds would not hold out the labels from which these were learned.

    Parameters
    ----------
    metric : {"auto", "unit", "identity"}, default="auto"
        The average of candidates, unit variance of each feature, or the features as given, divided
        by a common number.

    Attributes
    ----------
    metric_weights_ : dict of str to float
        Weights of the candidates, the largest first.
    components_ : ndarray of shape (n_components, n_features)
        Whitened features are ``(X - mean_) / scale_ @ components_.T``: principal axes of the
        training samples, the largest first. Their mean squared length is the number of features
        that vary, as that of standardised features.
    mean_, scale_ : ndarray of shape (n_features,)
        Means and standard deviations of the features; the scale of constant ones is 1.

    See Also
    --------
    BSDRClassifier : a classifier with this metric as its prior.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from bsdr_models import SupervisedWhitening
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(SupervisedWhitening(), LogisticRegression())
    >>> bool(cross_val_score(model, X, y).mean() > 0.95)
    True
    """

    # Metadata routing passes groups on without ``set_fit_request``.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(self, metric: MetricName = "auto") -> None:
        self.metric = metric

    def fit(self, X: SamplesLike, y: TargetLike, *, groups: TargetLike | None = None) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples.
        y : array-like of shape (n_samples,), or (n_samples, n_labels) of 0 and 1
            Classes, or label sets.
        groups : array-like of shape (n_samples,), optional
            Samples of one group, such as a patient, are held out together to weigh the candidates.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, or ``metric`` is unknown.
        """
        self.__dict__.pop("components_", None)  # of an earlier fit
        names = StrOptions(set(get_args(MetricName)))
        check_parameters({"metric": [names]}, self.get_params(), "SupervisedWhitening")
        validation.require_targets(self, X, y)
        table = X
        X = validation.validate_samples(self, X, reset=True)
        targets = read_classes(y, several=True)
        check_consistent_length(X, targets.coded)
        group = read_groups(groups, table)
        self._scaler = validation.check_variation(self, Scaler.fit(X))
        X = self._scaler.transform(X)
        units = self._scaler.units
        n_classes = len(targets.names)
        with one_thread():
            rng = np.random.default_rng(0)
            training = Training.of(
                X, targets.coded, n_classes, units, metric=self.metric, rng=rng, groups=group
            )
            metric = training.metric()
        self.metric_weights_ = metric.shares
        self.mean_ = self._scaler.location
        self.scale_ = self._scaler.scale
        size = np.sqrt(np.count_nonzero(metric.diagonal))
        self._whitening = np.ascontiguousarray(size * metric.effects[:, ::-1])
        self.components_ = pad(self._whitening, self._scaler.constant, axis=0).T
        self._n_features_out = metric.width
        return self

    def transform(self, X: SamplesLike) -> FloatArray:
        """Whitened features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)

        Raises
        ------
        ValueError
            If the input is not finite or has other features than the training samples.
        """
        check_is_fitted(self)
        X = self._scaler.transform(validation.validate_samples(self, X, reset=False))
        return np.asarray(X @ self._whitening)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.multi_output = True
        return tags
