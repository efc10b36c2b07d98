"""Classifiers made of scikit-learn with which :func:`bsdr_models.compare_models` compares."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.covariance import LedoitWolf
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bsdr_models.metrics import log_losses
from bsdr_models.numerics.arrays import FloatArray, IntArray

# Folds by which the classifiers choose their settings: inverse penalties of logistic
# regression, for features of mean square one, and numbers of components of PLS-DA. With larger
# penalties, which separable classes choose, the log loss of ten samples per class was higher.
N_INNER_FOLDS = 5
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
COMPONENTS = (1, 2, 3, 4, 5, 6, 8, 10, 15)
# Of linear discriminant analysis, which is overconfident with fewer samples than features: with
# ten samples of each of ten classes (usps) its log loss on new ones was 2.4 without, .74 with.
# Temperatures below one, chosen by thirty held-out samples, made it overconfident (wine).
TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 32.0)


class PLSScores(PLSRegression):
    """Transformer by partial least squares regression on class indicators (PLS-DA)."""

    def fit(self, X: FloatArray, y: np.ndarray) -> Self:
        """Fit to the labels, one per sample."""
        indicators = OneHotEncoder(sparse_output=False).fit_transform(np.reshape(y, (-1, 1)))
        super().fit(X, indicators)
        return self

    def fit_transform(self, X: FloatArray, y: np.ndarray) -> FloatArray:
        """Fit, then transform X."""
        return self.fit(X, y).transform(X)


class Folds:
    """Stratified folds, of whole groups where groups leave every class among training samples."""

    def __init__(self, n_splits: int, random_state: int) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

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


class Tuned(ClassifierMixin, BaseEstimator):
    """A classifier, one of whose settings inner folds choose by log loss."""

    def __init__(self, *, n_folds: int = N_INNER_FOLDS, random_state: int = 0) -> None:
        self.n_folds = n_folds
        self.random_state = random_state

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Most probable classes of samples (M, D), (M,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class TemperedLDA(Tuned):
    """Linear discriminant analysis, its covariance shrunk by Ledoit and Wolf, at a temperature."""

    def fit(self, X: ArrayLike, y: np.ndarray, groups: IntArray | None = None) -> Self:
        """Choose the temperature by log loss, then fit to all samples."""
        X = np.asarray(X)
        self.classes_, index = np.unique(y, return_inverse=True)
        losses = np.zeros(len(TEMPERATURES))
        for train, test in Folds(self.n_folds, self.random_state).split(X, index, groups):
            p = _shrunken_lda().fit(X[train], index[train]).predict_proba(X[test])
            losses += [log_losses(temper(p, t), index[test]).mean() for t in TEMPERATURES]
        self.temperature_ = TEMPERATURES[int(losses.argmin())]
        self.model_ = _shrunken_lda().fit(X, index)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities, (M, K)."""
        return temper(self.model_.predict_proba(np.asarray(X)), self.temperature_)


def _shrunken_lda() -> LinearDiscriminantAnalysis:
    """Linear discriminant analysis with a shrunken covariance."""
    return LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf())


def temper(p: FloatArray, temperature: float) -> FloatArray:
    """Probabilities (M, K) at a temperature."""
    raised = p ** (1.0 / temperature)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def shrinkage_lda(*, n_folds: int = N_INNER_FOLDS, random_state: int = 0) -> Pipeline:
    """Linear discriminant analysis with a shrunken covariance, its temperature cross-validated."""
    return _pipeline(TemperedLDA(n_folds=n_folds, random_state=random_state))


def logistic_regression(*, n_folds: int = N_INNER_FOLDS, random_state: int = 0) -> Pipeline:
    """Logistic regression, its penalty chosen by cross-validation."""
    folds = Folds(n_folds, random_state)
    model = LogisticRegression(max_iter=2000)
    return _pipeline(GridSearchCV(model, {"C": PENALTIES}, scoring=_log_score, cv=folds))


def pls_da(
    components: Sequence[int] = COMPONENTS, *, n_folds: int = N_INNER_FOLDS, random_state: int = 0
) -> Pipeline:
    """PLS-DA: logistic regression on PLS scores, their number and the penalty cross-validated."""
    return _pipeline(PLSDiscriminant(components, n_folds=n_folds, random_state=random_state))


class PLSDiscriminant(Tuned):
    """Logistic regression on the first PLS scores, which one fit has of all numbers."""

    def __init__(
        self,
        components: Sequence[int] = COMPONENTS,
        *,
        n_folds: int = N_INNER_FOLDS,
        random_state: int = 0,
    ) -> None:
        super().__init__(n_folds=n_folds, random_state=random_state)
        self.components = components

    def fit(self, X: ArrayLike, y: np.ndarray, groups: IntArray | None = None) -> Self:
        """Choose the number of scores and the penalty by log loss, then fit to all samples."""
        X = np.asarray(X)
        self.classes_, index = np.unique(y, return_inverse=True)
        losses = np.zeros((len(self.components), len(PENALTIES)))
        for train, test in Folds(self.n_folds, self.random_state).split(X, index, groups):
            pls = PLSScores(max(self.components), scale=False).fit(X[train], index[train])
            Z = np.asarray(pls.transform(X[train]))
            Z_test = np.asarray(pls.transform(X[test]))
            for losses_of_size, size in zip(losses, self.components, strict=True):
                found = by_penalty(Z[:, :size], index[train], Z_test[:, :size])
                losses_of_size += [log_losses(p, index[test]).sum() for p in found]
        row, column = divmod(int(losses.argmin()), len(PENALTIES))
        self.n_components_ = self.components[row]
        self.C_ = PENALTIES[column]
        pls = PLSScores(self.n_components_, scale=False)
        logistic = LogisticRegression(C=self.C_, max_iter=2000)
        self.model_ = make_pipeline(pls, StandardScaler(), logistic).fit(X, index)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities, (M, K)."""
        return np.asarray(self.model_.predict_proba(np.asarray(X)))


def by_penalty(Z: FloatArray, y: IntArray, Z_new: FloatArray) -> list[FloatArray]:
    """Probabilities (M, K) of new samples by logistic regression, for each of PENALTIES.

    Each search starts from the result of the last one.
    """
    scaler = StandardScaler().fit(Z)
    Z = scaler.transform(Z)
    Z_new = scaler.transform(Z_new)
    model = LogisticRegression(max_iter=2000, warm_start=True)
    return [model.set_params(C=C).fit(Z, y).predict_proba(Z_new) for C in PENALTIES]


def _log_score(model: LogisticRegression, X: FloatArray, y: np.ndarray) -> float:
    """Mean log score of samples, among which classes may be absent."""
    index = np.searchsorted(model.classes_, y)
    return -float(log_losses(model.predict_proba(X), index).mean())


def _pipeline(model: ClassifierMixin) -> Pipeline:
    """A model of standardised features in the coordinates of the samples' span, for speed.

    Penalties, PLS and shrinkage towards a multiple of the identity ignore rotations.
    """
    return make_pipeline(StandardScaler(), PCA(svd_solver="full"), model)
