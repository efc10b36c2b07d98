"""Every declared model takes every call of PyMC."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.model.fgraph import clone_model
from pymc.variational import ADVI, FullRankADVI

from bsdr_models import bm2pca, bsdr, dgplvm, papers
from bsdr_models.parts import multinomial_probit
from tests.toys import FAST, scaled_iris

QUIET = {"progressbar": False, "random_seed": 0}
X, Y = scaled_iris()
ONE = {"n_components": 1}


def probit(X, y, **options):
    """A multinomial probit by one of the parts."""
    with pm.Model(**options) as model:
        weights = pm.Normal("weights", shape=(X.shape[1], 3))
        multinomial_probit("y", X @ weights, n_classes=3, observed=y)
    return model


def declaring(build, y=Y, **options):
    return partial(build, X, y, **options)


PAPER_BM2PCA = {"n_components": 1, "C": 1.0}
MODELS = {
    "bsdr": declaring(bsdr.build_model),
    "bsdr regression": declaring(bsdr.build_model, X[:, :2], target="regression"),
    "paper bsdr": declaring(papers.bsdr.build_model, **ONE),
    "augmented bsdr": declaring(papers.bsdr.build_model, augmented=True, **ONE),
    "bm2pca": declaring(bm2pca.build_model, n_components=2),
    "paper bm2pca": declaring(papers.bm2pca.build_model, **PAPER_BM2PCA),
    "augmented bm2pca": declaring(papers.bm2pca.build_model, augmented=True, **PAPER_BM2PCA),
    "dgplvm": declaring(dgplvm.build_model, **ONE),
    "paper dgplvm": declaring(
        papers.dgplvm.build_model,
        classifier=True,
        X_new=X[:3],
        n_components=1,
        weight=10.0,
    ),
    "probit": declaring(probit),
}


def initial(model):
    return model.initial_point(random_seed=0)


def density(model, **options):
    return float(model.compile_logp(**options)(initial(model)))


def copied(model, trace):
    """By cloning, ``do`` and ``observe`` of the last free variable, at its initial value."""
    assert density(clone_model(model)) == pytest.approx(density(model))
    last = model.free_RVs[-1]
    [graph] = model.replace_rvs_by_values([last])
    function = model.compile_fn(graph, inputs=model.value_vars, on_unused_input="ignore")
    value = function(initial(model))
    assert last.name not in {each.name for each in pm.do(model, {last.name: value}).free_RVs}
    assert np.isfinite(density(pm.observe(model, {last.name: value}), jacobian=False))


def point_logps(model, trace):
    found = model.point_logps(initial(model))
    assert np.isfinite(list(found.values())).all()


def prior_predictive(model, trace):
    drawn = pm.sample_prior_predictive(3, model=model, random_seed=0)
    names = {each.name for each in model.free_RVs + model.deterministics}
    assert names <= set(drawn["prior"].data_vars)
    observed = {each.name for each in model.observed_RVs}
    assert observed == set(drawn["prior_predictive"].data_vars if observed else ())


def posterior_predictive(model, trace):
    """Of what is observed; without anything, of a deterministic variable by name."""
    names = [each.name for each in model.observed_RVs] or [model.deterministics[-1].name]
    drawn = pm.sample_posterior_predictive(trace, model=model, var_names=names, **QUIET)
    for name in names:
        assert np.isfinite(drawn["posterior_predictive"][name]).all()


def log_likelihood(model, trace):
    """Only of what is observed, so that BM2PCA has that of the features."""
    options = {"extend_inferencedata": False, "progressbar": False}
    found = pm.compute_log_likelihood(trace, model=model, **options)
    assert set(found.data_vars) == {each.name for each in model.observed_RVs}


def log_prior(model, trace):
    options = {"extend_inferencedata": False, "progressbar": False}
    found = pm.stats.compute_log_prior(trace, model=model, **options)
    assert all(np.isfinite(each).all() for each in found.data_vars.values())


def optimised(model, trace):
    """By the mode, ADVI and its form of full rank in turn."""
    number = OPTIMISED.index(BUILT["name"])
    if number == 0:
        find_map(model)
        return
    with model:
        fit = (ADVI, FullRankADVI)[number - 1](random_seed=0).fit(3, progressbar=False)
    assert np.isfinite(fit.hist).all()


def find_map(model):
    """From a jittered start, some steps up: the mean of the prior may be a saddle."""
    options = {"jitter": True, "return_inferencedata": False, **QUIET}
    found = pm.find_MAP(model=model, maxiter=30, **options)
    logp = model.compile_logp(jacobian=False)
    end = {each.name: found[each.name] for each in model.value_vars}
    assert logp(end) > logp(initial(model)) + 10.0


def single_precision(model, trace):
    """The density and its gradient, of variables that are single precision."""
    with pytensor.config.change_flags(floatX="float32"):
        single = BUILT["build"]()
        start = initial(single)
        outputs = [single.logp(), single.dlogp()]
        function = single.compile_fn(outputs, inputs=single.value_vars, **FAST)
        value, gradient = function(start)
    assert {each.dtype.name for each in start.values()} == {"float32"}
    assert value == pytest.approx(density(model), rel=1e-5)
    assert np.isfinite(gradient).all()


def twice(model, trace):
    """Two of them in one model, by names; rewriting could not add the terms of both."""
    with pm.Model() as both:
        for name in ("first", "second"):
            BUILT["build"](name=name)
    assert {each.name.partition("::")[0] for each in both.free_RVs} == {"first", "second"}
    assert density(both, **FAST) == pytest.approx(2.0 * density(model))


CALLS = [
    *(copied, point_logps, prior_predictive, posterior_predictive, log_likelihood),
    *(log_prior, single_precision, twice),
]
# Whose density has a gradient, as NUTS of every model shows.
OPTIMISED = ["bsdr", "bm2pca", "paper bsdr"]
CASES = [(name, call) for name in MODELS for call in (*CALLS, *[optimised] * (name in OPTIMISED))]
BUILT = {}
SHALLOW = {"max_treedepth": 2, "early_max_treedepth": 2}


@cache
def sampled(name):
    """A model, and a trace of a few steps of NUTS."""
    model = MODELS[name]()
    options = {
        "compute_convergence_checks": False,
        "nuts_sampler": "pymc",
        "init": "adapt_diag",  # without jitter, which contradicts the labels of augmented models
        **QUIET,
    }
    with model:
        trace = pm.sample(4, tune=2, chains=2, cores=1, nuts=SHALLOW, **options)
    return model, trace


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("name", "call"), CASES, ids=[f"{name}-{call.__name__}" for name, call in CASES]
)
def test_call(name, call):
    BUILT["name"], BUILT["build"] = name, MODELS[name]
    call(*sampled(name))
