"""Every call of ArviZ takes the trees of every engine, or says which group it lacks."""

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from tests.agreement.fits import fitted

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HMC = {"rank", "energy", "loo", "loo_pit", "psense", "ppc"}
# Fits, and which calls take their trees, beside summary, traces and files, which all do.
ENGINES = {
    "hmc": HMC,
    "label sets": HMC,
    "laplace": {"ppc"},
    "nuts": HMC - {"psense"},
    "conjugate": {"loo", "loo_pit", "psense", "ppc"},
    "mean field": {"ppc"},
    "Gibbs": HMC - {"energy"},
    "margins": set(),
    "margins, mean field": set(),
    "margins, Gibbs": {"rank"},
    "margins, outputs": {"ppc"},
    "process": set(),
    "paper's process": set(),
}
# Of a call that lacks what it needs: what the error names.
LACKS = {
    "rank": "at least 2 chains",
    "energy": "sample_stats|energy",
    "loo": "log likelihood not found",
    "psense": "log (prior|likelihood) not found",
    "ppc": "posterior_predictive|not present",
    "loo_pit": "log likelihood not found",
}


@pytest.fixture(scope="module", params=ENGINES)
def case(request, short_pymc, uncompiled):
    """A fit, its tree, one variable of it with few entries, and the calls that take the tree."""
    with short_pymc():
        model = fitted(request.param)
    tree = model.idata_
    name = min(tree["posterior"].data_vars, key=lambda each: tree["posterior"][each].size)
    return model, tree, [name], ENGINES[request.param]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def drawn(case):
    """The tree with a posterior predictive, if the model has one, by the lines on its page."""
    model, tree, _, _ = case
    drawn = tree.copy()
    try:
        with model.model_:
            pm.sample_posterior_predictive(drawn, extend_inferencedata=True, progressbar=False)
    except ValueError:
        return tree
    return drawn


def one_outcome(drawn):
    """The tree with the first of several labels or outputs, as on its page."""
    outcomes = drawn["observed_data"].coords.get("outcome")
    return drawn if outcomes is None else drawn.sel(outcome=outcomes.values[0])


def check_posterior(tree, drawn):
    classes = tree["observed_data/y"].dtype.kind in "biu"
    call = az.plot_ppc_rootogram if classes else az.plot_ppc_dist
    call(one_outcome(drawn), var_names=["y"])


def test_tables_traces_and_files(case, tmp_path):
    _, tree, names, _ = case
    table = az.summary(tree, var_names=names, kind="stats", round_to=3)
    assert np.isfinite(table["mean"]).all()
    az.plot_forest(tree, var_names=names)
    az.plot_trace(tree, var_names=names)
    if tree["posterior"].sizes["draw"] > 1:  # of a single draw there is no density
        az.plot_trace_dist(tree, var_names=names)
    tree.to_netcdf(tmp_path / "tree.nc")
    again = az.from_netcdf(tmp_path / "tree.nc")
    for group in tree.children:
        xr.testing.assert_equal(again[group].to_dataset(), tree[group].to_dataset())
    assert again["posterior"].attrs["inference_library"] == "bsdr_models"


def test_samplers_tell_their_run(case):
    _, tree, _, _ = case
    here = tree.attrs["inference_method"] in ("hmc", "gibbs", "nuts")
    assert here != ("note" in tree.attrs)
    assert here == ({"sampling_time", "tuning_steps"} <= {*tree.attrs})
    if here:
        assert tree["posterior"].sizes["chain"] == 2
        assert tree["sample_stats"].attrs["sampling_time"] > 0.0
        lp = tree["sample_stats/lp"]
        assert lp.dims == ("chain", "draw")
        assert np.isfinite(lp).all()


@pytest.mark.parametrize("call", LACKS)
def test_calls_work_or_say_what_they_lack(case, drawn, call):
    _, tree, names, works = case
    calls = {
        "rank": lambda: az.plot_rank(tree, var_names=names),
        "energy": lambda: az.plot_energy(tree),
        "loo": lambda: az.compare({"one": az.loo(tree), "other": az.loo(tree)}),
        "psense": lambda: az.psense_summary(tree, var_names=names),
        "ppc": lambda: check_posterior(tree, drawn),
        "loo_pit": lambda: az.loo_pit(one_outcome(drawn), var_names=["y"]),
    }
    if call in works:
        calls[call]()
        return
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError), match=LACKS[call]):
        calls[call]()
