"""Leave-one-out from the draws of a tree against refits."""

import warnings

import arviz as az
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold

from bsdr_models import BSDRClassifier

pytestmark = pytest.mark.slow
# The posterior predictive distribution, which is what leave-one-out estimates.
PLAIN = {"temperature": 1.0, "sampling__chains": 2}


def loo(tree):
    with warnings.catch_warnings():
        # Samples of which every draw is certain have a large k, whatever it is worth.
        warnings.filterwarnings("ignore", message="Estimated shape parameter")
        return az.loo(tree, pointwise=True)


def ten_fold(n_components, X, y):
    """Log predictive probability of each sample from a fit to the other nine folds."""
    found = np.empty(len(y))
    for rest, fold in StratifiedKFold(10, shuffle=True, random_state=0).split(X, y):
        model = (
            BSDRClassifier(n_components, random_state=1).set_params(**PLAIN).fit(X[rest], y[rest])
        )
        found[fold] = model.predict_log_proba(X[fold])[np.arange(len(fold)), y[fold]]
    return found


def test_leave_one_out_is_what_refits_find():
    X, y = load_wine(return_X_y=True)
    tree = BSDRClassifier(1, random_state=0).set_params(**PLAIN).fit(X, y).idata_
    found = loo(tree)
    gap = found.elpd_i.values - ten_fold(1, X, y)
    # Ten folds learn from a tenth less: they are lower by about half a nat here.
    assert abs(gap.sum()) < 2.0 * gap.std() * np.sqrt(len(y)) + 1.0
    matters = found.elpd_i.values < -0.01
    assert np.mean(found.pareto_k.values[matters] < 0.7) > 0.6
