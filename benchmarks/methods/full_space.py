"""Classifiers of all features, to measure the loss or gain by a projection."""

from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.spatial.distance import pdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import (
    Fitted,
    ImpossibleError,
    Method,
    inner_folds,
    of_classifier,
    scaler_of,
)
from benchmarks.methods.readouts import neighbours
from benchmarks.protocols import Training
from bsdr_models.baselines import tuned_logistic_regression

# Variance of the latent functions of the classifier whose kernel is not fitted.
AMPLITUDE = 100.0


def discriminant(training: Training, n_components: int, seed: int) -> Fitted:
    """Linear discriminant analysis as a classifier, with all its directions."""
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis())
    return of_classifier(model.fit(training.X, training.y), training)


def ledoit_wolf(training: Training, n_components: int, seed: int) -> Fitted:
    """The same with shrunk covariance, features unscaled."""
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    return of_classifier(model.fit(training.X, training.y), training)


def logistic(training: Training, n_components: int, seed: int) -> Fitted:
    """Logistic regression, its penalty by the cross-validated log loss."""
    scaled, y = scaler_of(training), training.y
    X = scaled(training.X)
    size = float(np.sqrt(X.multiply(X).mean() if issparse(X) else np.mean(X**2)))

    def scale(rows: Any) -> Any:
        return scaled(rows) / size

    model, record = LogisticRegression(max_iter=2000), {}
    if folds := inner_folds(y, seed):
        model = tuned_logistic_regression(n_folds=folds.n_splits, random_state=seed)
    model.fit(scale(training.X), y)
    if folds:
        record = {"C": float(model.best_params_["C"])}
    fitted = of_classifier(model, training)
    return Fitted(predict=lambda new: fitted.predict(scale(new)), record=record)


def nearest(training: Training, n_components: int, seed: int) -> Fitted:
    """Three nearest neighbours among all features."""
    scale = scaler_of(training)
    read = neighbours(scale(training.X), training.y, training.n_classes)
    return Fitted(predict=lambda new: read(scale(new)), transform=scale)


def make_gaussian_process(X: np.ndarray, *, fitted: bool) -> GaussianProcessClassifier:
    """Classifier of the features with the median distance as the initial length-scale.

    Unscaled, with a length-scale of 1, nearly all samples are uncorrelated: chance accuracy.
    """
    length = float(np.median(pdist(X)))
    amplitude = ConstantKernel(1.0 if fitted else AMPLITUDE, (1e-3, 1e5))
    kernel = amplitude * RBF(length, (1e-2 * length, 1e2 * length))
    optimizer = "fmin_l_bfgs_b" if fitted else None
    return GaussianProcessClassifier(kernel, optimizer=optimizer, max_iter_predict=100)


def gaussian_process(training: Training, n_components: int, seed: int, *, fitted: bool) -> Fitted:
    """Gaussian process classification, with the kernel chosen by the evidence or fixed."""
    model = make_gaussian_process(training.X, fitted=fitted).fit(training.X, training.y)
    return of_classifier(model, training)


def discriminant_then_process(training: Training, n_components: int, seed: int) -> Fitted:
    """Gaussian process classification of discriminants, "LDA LP" of Urtasun and Darrell."""
    if n_components > training.n_classes - 1:
        raise ImpossibleError(f"no more than {training.n_classes - 1} discriminants")
    reducer = LinearDiscriminantAnalysis(n_components=n_components)
    Z = reducer.fit(training.X, training.y).transform(training.X)
    model = make_gaussian_process(Z, fitted=True).fit(Z, training.y)
    fitted = of_classifier(model, training)
    return Fitted(
        predict=lambda new: fitted.predict(reducer.transform(new)), transform=reducer.transform
    )


_FITS: dict[str, Any] = {
    "full LDA": discriminant,
    "full logistic": logistic,
    "full k-NN": nearest,
    "LDA, Ledoit-Wolf": ledoit_wolf,
    "GPC": partial(gaussian_process, fitted=True),
    "GPC, fixed kernel": partial(gaussian_process, fitted=False),
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
