"""Classifiers of whitened features, chosen and tuned as those of scaled features.

Each fold learns the metric without its held-out samples.
"""

from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.methods import tempered
from benchmarks.methods.base import (
    Fitted,
    ImpossibleError,
    Method,
    UnitSize,
    inner_folds,
    of_classifier,
)
from benchmarks.protocols import Training
from bsdr_models.baselines import PENALTIES
from bsdr_models.whitening import SupervisedWhitening


def logistic(training: Training, n_components: int, seed: int) -> Fitted:
    """Logistic regression, its penalty chosen by cross-validation."""
    folds = inner_folds(training, seed)
    if not folds:
        raise ImpossibleError("a class has one training sample")
    last = LogisticRegression(max_iter=2000)
    model = Pipeline([("whitening", SupervisedWhitening()), ("last", last)])
    search = GridSearchCV(model, {"last__C": PENALTIES}, scoring="neg_log_loss", cv=folds)
    return of_classifier(search.fit(training.X, training.y), training)


class Whitened:
    """Whitened training samples of mean square length one, and the same map of new samples."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X = X
        self.y = y
        model = make_pipeline(SupervisedWhitening(), UnitSize()).fit(X, y)
        self.samples = model.transform(X)
        self.transform = model.transform

    def split(self, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training and held-out samples in the metric of the training samples."""
        part = Whitened(self.X[train], self.y[train])
        return part.samples, part.transform(self.X[test])


def whitened(training: Training, y: np.ndarray) -> list[Whitened]:
    """The only preparation."""
    return [Whitened(training.X, y)]


_FITS: dict[str, Any] = {
    "logistic regression, whitened": logistic,
    "linear SVM, whitened": partial(tempered.fit, settings=tempered.plain, prepare=whitened),
    "RBF support vectors, whitened": partial(
        tempered.fit, settings=tempered.gaussian, prepare=whitened
    ),
}
METHODS = {
    name: Method(fit=fit, modules=("benchmarks.methods.whitened",), full=True)
    for name, fit in _FITS.items()
}
