"""Classifiers made of scikit-learn with which :func:`bsdr_models.compare_models` compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.covariance import LedoitWolf
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bsdr_models.bm2pca.posterior import link_of
from bsdr_models.data.validation import find_classes
from bsdr_models.estimators.calibration import Likelihoods, TemperaturePrior
from bsdr_models.metrics import log_losses
from bsdr_models.numerics.arrays import FloatArray, IntArray

# Folds by which the classifiers choose their settings: inverse penalties of logistic
# regression, for features of mean square one, numbers of components of PLS-DA, and inverse
# penalties of its scores. With larger penalties, which separable classes choose, the log loss of
# ten samples per class was higher.
N_INNER_FOLDS = 5
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
COMPONENTS = (1, 2, 3, 4, 6, 10, 15)
PENALTIES_OF_SCORES = (0.01, 0.3, 10.0)
# Link of the scores of linear discriminant analysis, and prior of their log temperature: below
# one, as thirty held-out samples may have it, it was overconfident (wine).
LINK = link_of(exclusive=True, lapse=0.0)
LOG_T = TemperaturePrior(mean=0.7, sd=0.7)


class PLSScores(PLSRegression):
    """Transformer by partial least squares regression on class indicators (PLS-DA)."""

    def fit(self, X: FloatArray, y: np.ndarray) -> Self:
        """Fit to the labels, one per sample."""
        indicators = OneHotEncoder(sparse_output=False).fit_transform(np.reshape(y, (-1, 1)))
        super().fit(X, indicators)
        return self

    fit_transform = TransformerMixin.fit_transform  # without scores of the indicators


@dataclass(frozen=True)
class Folds:
    """Stratified folds, of whole groups where groups leave every class among training samples."""

    n_splits: int = N_INNER_FOLDS
    random_state: int = 0

    def split(
        self, X: FloatArray, y: np.ndarray, groups: IntArray | None = None
    ) -> list[tuple[IntArray, IntArray]]:
        """Pairs (train, test)."""
        options = {"shuffle": True, "random_state": self.random_state}
        folds = []
        if groups is not None:
            n_splits = min(self.n_splits, len(np.unique(groups)))
            folds = list(StratifiedGroupKFold(n_splits, **options).split(X, y, groups))
        n_classes = len(np.unique(y))
        whole = [(a, b) for a, b in folds if len(b) and len(np.unique(y[a])) == n_classes]
        return whole or list(StratifiedKFold(self.n_splits, **options).split(X, y))

    def get_n_splits(self, X: FloatArray, y: np.ndarray, groups: IntArray | None = None) -> int:
        """Number of pairs."""
        return len(self.split(X, y, groups))


class ShrinkageLDA(LinearDiscriminantAnalysis):
    """Linear discriminant analysis, its covariance shrunk by Ledoit and Wolf, calibrated by folds.

    It is overconfident with fewer samples than features: with ten samples of each of ten classes
    (usps) its log loss on new ones was 2.4 without a temperature, .74 with one.
    """

    def __init__(self, folds: Folds) -> None:
        super().__init__(solver="lsqr", covariance_estimator=LedoitWolf())
        self.folds = folds

    def fit(self, X: ArrayLike, y: np.ndarray, groups: IntArray | None = None) -> Self:
        """Calibrate by samples that are held out, then fit to all samples."""
        X = np.asarray(X)
        classes, index = np.unique(y, return_inverse=True)
        fold = np.full(len(index), -1)
        scores = np.empty((len(index), len(classes) if len(classes) > 2 else 1))
        for number, (train, test) in enumerate(self.folds.split(X, index, groups)):
            super().fit(X[train], index[train])
            scores[test] = self.decision_function(X[test]).reshape(len(test), -1)
            fold[test] = number
        held_out = Likelihoods.of([scores], index, [fold], LINK, LOG_T)
        self.calibration_ = held_out.calibrate(held_out.held_out, share=1.0)
        return super().fit(X, y)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities, (M, K)."""
        scores = self.decision_function(X)
        return np.exp(self.calibration_.apply(scores.reshape(len(scores), -1), LINK))


class PLSDA(ClassifierMixin, BaseEstimator):
    """Logistic regression on PLS scores, by the number and penalty of the lowest held-out log loss.

    One PLS regression serves all numbers of scores, as the first ones do not depend on later ones.
    There are fewer scores than training samples of a fold, and at most as many as features.
    """

    def __init__(self, folds: Folds, components: Sequence[int]) -> None:
        self.folds = folds
        self.components = components

    def fit(self, X: FloatArray, y: np.ndarray, groups: IntArray | None = None) -> Self:
        """Choose by inner folds, then fit to all samples."""
        folds = self.folds.split(X, y, groups)
        most = min(X.shape[1], *(len(train) - 1 for train, _ in folds))
        sizes = [size for size in self.components if size <= most]
        settings = list(product(sizes, PENALTIES_OF_SCORES))
        loss = np.zeros(len(settings))
        for train, test in folds:
            reduction = _pls_scores(max(sizes)).fit(X[train], y[train])
            known = reduction.transform(X[train])
            new = reduction.transform(X[test])
            for number, (size, penalty) in enumerate(settings):
                model = LogisticRegression(C=penalty, max_iter=2000)
                model.fit(known[:, :size], y[train])
                loss[number] -= _log_score(model, new[:, :size], y[test])
        size, penalty = settings[int(loss.argmin())]
        model = LogisticRegression(C=penalty, max_iter=2000)
        self.model_ = make_pipeline(_pls_scores(size), model).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: FloatArray) -> np.ndarray:
        """Classes of the samples, (M,)."""
        return self.model_.predict(X)

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Class probabilities, (M, K)."""
        return self.model_.predict_proba(X)


def _pls_scores(n_components: int) -> Pipeline:
    """Standardised PLS scores."""
    return make_pipeline(PLSScores(n_components, scale=False), StandardScaler())


def shrinkage_lda(folds: Folds) -> Pipeline:
    """Linear discriminant analysis with a shrunken covariance, calibrated by cross-validation."""
    return _pipeline(ShrinkageLDA(folds))


def logistic_regression(folds: Folds) -> Pipeline:
    """Logistic regression, its penalty chosen by cross-validation."""
    model = LogisticRegression(max_iter=2000)
    return _pipeline(GridSearchCV(model, {"C": PENALTIES}, scoring=_log_score, cv=folds))


def pls_da(folds: Folds, components: Sequence[int] = COMPONENTS) -> Pipeline:
    """PLS-DA: logistic regression on PLS scores, their number and the penalty cross-validated."""
    return _pipeline(PLSDA(folds, components))


def _log_score(model: ClassifierMixin, X: FloatArray, y: np.ndarray) -> float:
    """Mean log score of samples, among which classes may be absent."""
    return -float(log_losses(model.predict_proba(X), find_classes(y, model.classes_)).mean())


def _pipeline(model: ClassifierMixin) -> Pipeline:
    """A model of standardised features in the coordinates of the samples' span, for speed.

    Penalties, PLS and shrinkage towards a multiple of the identity ignore rotations.
    """
    return make_pipeline(StandardScaler(), PCA(svd_solver="full"), model)
