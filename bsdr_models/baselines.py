"""Classifiers to compare with, made of scikit-learn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bsdr_models.arrays import FloatArray

# Inverse penalties of logistic regression, for features of mean square one. With larger ones, which
# separable classes choose, the log loss of ten samples per class was higher (seeds 200 to 202).
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
# Numbers of components of PLS-DA.
COMPONENTS = (1, 2, 3, 4, 5, 6, 8, 10, 15)


class PLSScores(PLSRegression):
    """Transformer by partial least squares regression on class indicators (PLS-DA)."""

    def fit(self, X: Any, y: Any) -> "PLSScores":
        """Fit to the labels, one per sample."""
        indicators = OneHotEncoder(sparse_output=False).fit_transform(np.reshape(y, (-1, 1)))
        super().fit(X, indicators)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> FloatArray:
        """Fit, then transform X."""
        return self.fit(X, y).transform(X)


def shrinkage_lda() -> Pipeline:
    """Linear discriminant analysis, its covariance shrunk as by Ledoit and Wolf."""
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf())
    return make_pipeline(*_rotation(), lda)


def logistic_regression(*, n_folds: int = 5, random_state: int = 0) -> Pipeline:
    """Logistic regression, its penalty chosen by cross-validation."""
    return make_pipeline(
        *_rotation(), tuned_logistic_regression(n_folds=n_folds, random_state=random_state)
    )


def pls_da(
    components: Sequence[int] = COMPONENTS, *, n_folds: int = 5, random_state: int = 0
) -> Pipeline:
    """PLS-DA: logistic regression on PLS scores, their number and the penalty cross-validated."""
    steps = {
        "pls": PLSScores(scale=False),
        "scale": StandardScaler(),
        "logistic": LogisticRegression(max_iter=2000),
    }
    grid = {"pls__n_components": list(components), "logistic__C": PENALTIES}
    return make_pipeline(
        *_rotation(), _tuned(Pipeline([*steps.items()]), grid, n_folds, random_state)
    )


def tuned_logistic_regression(*, n_folds: int = 5, random_state: int = 0) -> GridSearchCV:
    """Logistic regression of scaled features, its penalty chosen by cross-validated log loss."""
    grid = {"C": PENALTIES}
    return _tuned(LogisticRegression(max_iter=2000), grid, n_folds, random_state)


def _tuned(model: Any, grid: Mapping[str, Any], n_folds: int, random_state: int) -> GridSearchCV:
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
    return GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)


def _rotation() -> tuple[Any, ...]:
    """Standardised features in the coordinates of the samples' span: fits of wide data are short.

    Penalties, PLS and shrinkage towards a multiple of the identity ignore rotations.
    """
    return StandardScaler(), PCA(svd_solver="full")
