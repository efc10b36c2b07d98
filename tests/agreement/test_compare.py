"""Numbers of components compared by leave-one-out, from saved trees, and against refits."""

import warnings

import arviz as az
import numpy as np
import pytest
from arviz_stats.base import array_stats
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr import SAMPLING

pytestmark = pytest.mark.slow
COMPONENTS = (1, 2, 3, 4)


def gibbs(n_components, X, y, *, draws=400, seed=0):
    model = BSDRClassifier(
        n_components,
        variant="paper",
        inference="gibbs",
        priors=SAMPLING,
        draws=draws,
        tune=400,
        chains=4,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Wine is separable, where Gibbs is slow to explore how far; elpd does not depend on it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def saved(wine, tmp_path_factory):
    """Trees of Wine by number of components, written and read again."""
    folder = tmp_path_factory.mktemp("trees")
    for r in COMPONENTS:
        gibbs(r, *wine).idata_.to_netcdf(folder / f"{r}.nc")
    return {r: az.from_netcdf(folder / f"{r}.nc") for r in COMPONENTS}


@pytest.fixture(scope="module")
def left_out(saved):
    with warnings.catch_warnings():
        # Rows of which every draw is certain have a large k, or none; what k is worth is below.
        warnings.filterwarnings("ignore", message="Estimated shape parameter")
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        return {r: az.loo(tree, pointwise=True) for r, tree in saved.items()}


def test_three_classes_need_two_components(left_out):
    """One is worse by many standard errors; more than two bring nothing."""
    table = az.compare({str(r): found for r, found in left_out.items()}, round_to="none")
    assert table.index[-1] == "1"
    assert table.loc["1", "elpd_diff"] < -4.0 * table.loc["1", "dse"]
    assert table.loc["2", "elpd_diff"] > -2.0 * max(table["dse"].drop(index="1"))


@pytest.mark.parametrize("r", COMPONENTS)
def test_few_rows_that_matter_have_a_large_pareto_k(left_out, r):
    """Of 178; most of the large ones belong to rows of which every draw is certain."""
    found = left_out[r]
    bad = ~(found.pareto_k.values < found.good_k)
    assert np.sum(bad & (found.elpd_i.values < -0.1)) <= 10


def test_leave_one_out_is_what_refits_find(wine, left_out):
    """The rows that count most, left out one by one and predicted.

    Both sides are Monte Carlo: of four chains, on rows whose log predictive is near -1.
    """
    X, y = wine
    elpd = left_out[2].elpd_i.values
    rows = np.argsort(elpd)[:5]
    refitted = []
    for row in rows:
        rest = np.delete(np.arange(len(y)), row)
        model = gibbs(2, X[rest], y[rest], seed=1)
        refitted.append(model.predict_log_proba(X[[row]])[0, y[row]])
    assert np.abs(elpd[rows] - refitted).mean() < 0.5


@pytest.mark.parametrize(
    "options", [{"projection_prior": "columnwise", "latent_scale": 0.1, "tol": 5e-3}, {}]
)
def test_pareto_k_of_mean_field_grows_with_its_components(wine, options):
    """With one component q can nearly be corrected, with three it cannot."""
    k = []
    for r in (1, 3):
        model = BSDRClassifier(r, variant="paper", random_state=0, **options).fit(*wine)
        stats = model.idata_["sample_stats"]
        k.append(array_stats.psislw((stats["log_p"] - stats["log_q"]).values.ravel())[1])
    assert k[0] < 0.8
    assert k[1] > 0.8
