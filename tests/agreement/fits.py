"""Fits whose trees and declared models the calls of PyMC and ArviZ take."""

from functools import cache

import numpy as np
from sklearn.datasets import load_iris

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMOptimization,
    Sampling,
)
from bsdr_models.bm2pca import HingeLoss
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier

SHORT = {"sampling": Sampling(chains=2, draws=100, tune=100), "random_state": 0}
VERY_SHORT = {"sampling": Sampling(chains=2, draws=20, tune=20), "random_state": 0}
FULL_RANK = {**SHORT, "temperature": 1.0}
LOSS = HingeLoss(C=1.0, calibrate=False)
MODELS = {
    "hmc": BSDRClassifier(**FULL_RANK),
    "views": BSDRClassifier(views={"a": [0, 1], "b": [2, 3]}, **FULL_RANK),
    "label sets": BSDRClassifier(**FULL_RANK),
    "laplace": BSDRClassifier(inference="laplace", random_state=0),
    "nuts": BSDRClassifier(inference="nuts", **VERY_SHORT),
    "conjugate": BSDRRegressor(random_state=0),
    "mean field": PaperBSDRClassifier(random_state=0),
    "Gibbs": PaperBSDRClassifier(inference="gibbs", **SHORT),
    "margins": BM2PCAClassifier(2, loss=LOSS, random_state=0),
    "margins, mean field": PaperBM2PCAClassifier(2, C=1.0, random_state=0),
    "margins, Gibbs": PaperBM2PCAClassifier(2, C=1.0, inference="gibbs", **SHORT),
    "margins, outputs": BM2PCARegressor(2, random_state=0),
    "process": DGPLVMClassifier(random_state=0),
    "paper's process": PaperDGPLVMClassifier(
        optimization=DGPLVMOptimization(max_iter=50), random_state=0
    ),
}


def samples(name):
    """Iris with noise in two halves: classes, label sets, or two features given the others."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape)
    if isinstance(MODELS[name], BSDRRegressor | BM2PCARegressor):
        X, y = X[:, :2], X[:, 2:]
    elif name == "label sets":
        y = np.column_stack([y > 0, y == 1])
    return X[::2], y[::2], X[1::2], y[1::2]


@cache
def fitted(name):
    """The fit to the first half of the samples, not to be fitted again."""
    X, y, *_ = samples(name)
    return MODELS[name].fit(X, y)
