"""Accuracy and log loss of all estimators on new samples of wine."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import BM2PCAClassifier, BSDRClassifier, DGPLVMClassifier
from bsdr_models.data.validation import R_HAT_LIMIT
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier
from bsdr_models.papers.bsdr import Priors

SLOW = pytest.mark.slow
STOPS = pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
ENDS = pytest.mark.filterwarnings("ignore:the search stopped|.* ended at a bound")
TOTAL = {"priors__criterion": "total"}
INVERSE = {"priors__criterion": "inverse_trace"}
HUNDRED = {"optimization__max_iter": 100}
LAPLACE = HUNDRED | {"approximation": "laplace"}


def row(name, kind, options, accuracy, loss, lag=1.0, *, marks=()):
    """An estimator, and bounds of its accuracy, its log loss and its lag behind shrinkage LDA."""
    options = {"random_state": 0} | options
    return pytest.param(kind, options, accuracy, loss, lag, id=name, marks=marks)


def by_mean_field(prior, latent_scale):
    priors = Priors(projection_prior=prior, latent_scale=latent_scale)
    options = {"n_components": 2, "priors": priors}
    return row(prior, PaperBSDRClassifier, options, 0.93, 0.35, marks=STOPS)


@pytest.mark.parametrize(
    ("kind", "options", "accuracy", "loss", "lag"),
    [
        row("bsdr", BSDRClassifier, {}, 0.95, 0.15, 0.02),
        by_mean_field("entrywise", 1.0),
        by_mean_field("columnwise", 0.1),
        by_mean_field("rowwise", 1.0),
        row("bm2pca", BM2PCAClassifier, {}, 0.93, 0.2, 0.04),
        row("bm2pca paper", PaperBM2PCAClassifier, {}, 0.93, 0.2, 0.04),
        row("dgplvm", DGPLVMClassifier, {}, 0.95, 0.15, marks=ENDS),
        row("limit", DGPLVMClassifier, {"priors__weight": np.inf}, 0.95, 0.15, marks=ENDS),
        row("total", DGPLVMClassifier, TOTAL, 0.9, 0.35, marks=(ENDS, SLOW)),
        row("inverse_trace", DGPLVMClassifier, INVERSE, 0.9, 0.35, marks=(ENDS, SLOW)),
        row("dgplvm paper", PaperDGPLVMClassifier, HUNDRED, 0.9, 0.35, marks=ENDS),
        row("Laplace", PaperDGPLVMClassifier, LAPLACE, 0.9, 0.35, marks=(ENDS, SLOW)),
    ],
)
def test_wine(wine_split, kind, options, accuracy, loss, lag):
    train, test, y_train, y_test = wine_split
    lda = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1))
    model = kind().set_params(**options).fit(train, y_train)
    assert model.score(test, y_test) > accuracy
    assert model.score(test, y_test) >= lda.fit(train, y_train).score(test, y_test) - lag
    assert log_loss(y_test, model.predict_proba(test)) < loss
    if hasattr(model, "lower_bounds_"):
        bounds = model.lower_bounds_
        assert np.all(np.diff(bounds) >= -1e-7 * np.abs(bounds[:-1]))
    if kind is BSDRClassifier:
        assert model._result.r_hat < 1.1
        assert model.converged_ == (model._result.r_hat < R_HAT_LIMIT)
        assert model.held_out_gain_ > 0.5
