"""What people use today: reduce to R scores, then logistic regression on them.

Features are scaled to unit variance on the training rows, scores again; every setting that is
not written here is scikit-learn's default.
"""

from collections.abc import Callable

import numpy as np
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets import Split

# Above this many features NCA sees principal components, as in Gönen (2013), Section III-B.
NCA_FEATURES, NCA_COMPONENTS = 100, 30

Reducer = Callable[[int, int, int], object]


class _Pls(PLSRegression):
    """PLS-DA: partial least squares on one-hot labels."""

    def fit(self, X, y):
        return super().fit(X, np.eye(y.max() + 1)[y])

    def fit_transform(self, X, y):
        return self.fit(X, y).transform(X)


def _nca(n_components: int, n_features: int, seed: int) -> object:
    nca = NeighborhoodComponentsAnalysis(n_components, max_iter=200, random_state=seed)
    if n_features <= NCA_FEATURES:
        return nca
    return make_pipeline(PCA(NCA_COMPONENTS, random_state=seed), nca)


REDUCERS: dict[str, Reducer] = {
    "PCA": lambda r, d, seed: PCA(r, random_state=seed),
    "LDA": lambda r, d, seed: LinearDiscriminantAnalysis(n_components=r),
    "shrinkage LDA": lambda r, d, seed: LinearDiscriminantAnalysis(
        solver="eigen", shrinkage="auto", n_components=r
    ),
    "PLS-DA": lambda r, d, seed: _Pls(r, scale=False),
    "NCA": _nca,
}


def probabilities(name: str, split: Split, n_components: int, seed: int) -> np.ndarray | None:
    """Class probabilities of the test rows, (M, K); None where the method has no R scores."""
    n_classes = int(split.y_train.max()) + 1
    if "LDA" in name and n_components > n_classes - 1:
        return None
    reducer = REDUCERS[name](n_components, split.X_train.shape[1], seed)
    model = make_pipeline(
        StandardScaler(), reducer, StandardScaler(), LogisticRegression(max_iter=2000)
    )
    return model.fit(split.X_train, split.y_train).predict_proba(split.X_test)


def discriminant(split: Split) -> np.ndarray:
    """Linear discriminant analysis as a classifier, with all its directions."""
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis())
    return model.fit(split.X_train, split.y_train).predict_proba(split.X_test)
