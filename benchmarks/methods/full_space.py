"""Classifiers of all features, to measure what a projection costs or gains.

Settings are chosen by the log loss of five folds of the training samples.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline

from benchmarks.methods.base import (
    Fitted,
    ImpossibleError,
    Method,
    UnitSize,
    inner_folds,
    of_classifier,
    scaler_of,
    scalers,
)
from benchmarks.methods.readouts import neighbours
from benchmarks.protocols import Training
from bsdr_models.compare.baselines import N_INNER_FOLDS, Folds, logistic_regression, pls_da

# Above this many features boosting gets principal components: it took minutes with 40 classes.
MANY_FEATURES, N_PRINCIPAL = 100, 30
# Its folds: a fit takes seconds.
N_FOLDS = 3


def _tuned(
    training: Training,
    n_components: int,
    seed: int,
    *,
    model: Any,
    grid: Mapping[str, Any],
    n_folds: int = 5,
) -> Fitted:
    """Scaling and settings by cross-validated log loss, then a fit to all training samples."""
    folds = inner_folds(training, seed, n_folds)
    if not folds:
        raise ImpossibleError("a class has one training sample")
    pipeline = Pipeline([("scaler", "passthrough"), ("size", UnitSize()), ("model", model)])
    settings = {f"model__{key}": values for key, values in grid.items()}
    settings["scaler"] = scalers(training)
    search = GridSearchCV(pipeline, settings, scoring="neg_log_loss", cv=folds)
    search.fit(training.X, training.y)
    record = {key: str(value) for key, value in search.best_params_.items()}
    return of_classifier(search, training, record=record)


def boosting(training: Training, n_components: int, seed: int) -> Fitted:
    """Gradient boosting; of principal components if there are many features."""
    n_samples, n_features = training.X.shape
    size = min(N_PRINCIPAL, n_samples * (N_FOLDS - 1) // N_FOLDS - 1)
    first = PCA(size, random_state=seed) if n_features > MANY_FEATURES else "passthrough"
    # A tenth of the features at each split was better than all of them (ORL, digits; seed 200).
    trees = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, min_samples_leaf=3, max_features=0.1, random_state=seed
    )
    grid = {"trees__learning_rate": (0.1, 0.3)}
    model = Pipeline([("first", first), ("trees", trees)])
    return _tuned(training, n_components, seed, model=model, grid=grid, n_folds=N_FOLDS)


def _baseline(training: Training, n_components: int, seed: int, *, make: Any) -> Fitted:
    """A baseline of the package, which chooses its own settings."""
    n_folds = len(inner_folds(training, seed)) or N_INNER_FOLDS
    chosen: dict[str, Any] = {"folds": Folds(n_folds, seed)}
    if make is pls_da:
        chosen["components"] = [r for r in range(1, 16) if r < 0.8 * min(training.X.shape)]
    model = make(**chosen)
    groups = {} if training.groups is None else {f"{model.steps[-1][0]}__groups": training.groups}
    return of_classifier(model.fit(training.X, training.y, **groups), training)


def discriminant(training: Training, n_components: int, seed: int) -> Fitted:
    """Linear discriminant analysis as a classifier, with all its directions."""
    scale = scaler_of(training)
    model = LinearDiscriminantAnalysis().fit(scale(training.X), training.y)
    fitted = of_classifier(model, training)
    return Fitted(predict=lambda new: fitted.predict(scale(new)))


def nearest(training: Training, n_components: int, seed: int) -> Fitted:
    """Three nearest neighbours among all features."""
    scale = scaler_of(training)
    read = neighbours(scale(training.X), training.y, training.n_classes)
    return Fitted(predict=lambda new: read(scale(new)), transform=scale)


def make_gaussian_process(X: np.ndarray) -> GaussianProcessClassifier:
    """Classifier of the features with the median distance as the initial length-scale.

    Unscaled, with a length-scale of 1, nearly all samples are uncorrelated: chance accuracy.
    """
    length = float(np.median(pdist(X)))
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(length, (1e-2 * length, 1e2 * length))
    return GaussianProcessClassifier(kernel, max_iter_predict=100)


def gaussian_process(training: Training, n_components: int, seed: int) -> Fitted:
    """Gaussian process classification, with the kernel chosen by the evidence."""
    scale = scaler_of(training)
    X = scale(training.X)
    model = of_classifier(make_gaussian_process(X).fit(X, training.y), training)
    return Fitted(predict=lambda new: model.predict(scale(new)))


def discriminant_then_process(training: Training, n_components: int, seed: int) -> Fitted:
    """Gaussian process classification of discriminants, "LDA LP" of Urtasun and Darrell."""
    if n_components > training.n_classes - 1:
        raise ImpossibleError(f"no more than {training.n_classes - 1} discriminants")
    reducer = LinearDiscriminantAnalysis(n_components=n_components)
    Z = reducer.fit(training.X, training.y).transform(training.X)
    model = make_gaussian_process(Z).fit(Z, training.y)
    fitted = of_classifier(model, training)
    return Fitted(
        predict=lambda new: fitted.predict(reducer.transform(new)), transform=reducer.transform
    )


_FITS: dict[str, Any] = {
    "logistic regression": partial(_baseline, make=logistic_regression),
    "PLS-DA, number chosen": partial(_baseline, make=pls_da),
    "naive Bayes": partial(
        _tuned, model=GaussianNB(), grid={"var_smoothing": (1e-6, 1e-2, 1e-1, 1.0, 10.0, 100.0)}
    ),
    "gradient boosting": boosting,
    "full LDA": discriminant,
    "full k-NN": nearest,
    "GPC": gaussian_process,
    "LDA + GPC": discriminant_then_process,
}
METHODS = {
    name: Method(
        fit=fit,
        modules=("benchmarks.methods.full_space",),
        full=fit is not discriminant_then_process,
    )
    for name, fit in _FITS.items()
}
